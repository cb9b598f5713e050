"""The transcripts of docs/python.md and docs/quick-start.md: each script prints what stands behind it. `TILEWRIGHT_BLESS=1` writes it."""

import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
PAGES = [DOCS / "python.md", DOCS / "quick-start.md"]
SCRIPT = re.compile(r"```python\n(# (\w+\.py)\n.*?)```\n\n```text\n(.*?)```\n", re.S)


def test_the_transcripts_are_true(tmp_path):
    def printed(script):
        (tmp_path / script[2]).write_text(script[1])
        done = subprocess.run([sys.executable, script[2]], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # Blanks at the ends of lines, and where the folder lies.
        lines = done.stdout.replace(f"{tmp_path}{os.sep}", "").strip("\n").splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)

    texts = [page.read_text() for page in PAGES]
    scripts = [script for text in texts for script in SCRIPT.finditer(text)]
    assert len(scripts) >= 7 and len({script[2] for script in scripts}) == len(scripts)
    with ThreadPoolExecutor() as pool:
        outputs = list(pool.map(printed, scripts))
    for page, text in zip(PAGES, texts):
        own = [(script, output) for script, output in zip(scripts, outputs) if script.string is text]
        after = text
        for script, output in reversed(own):
            after = after[: script.start(3)] + output + after[script.end(3) :]
        if os.environ.get("TILEWRIGHT_BLESS"):
            page.write_text(after)
        assert page.read_text() == after
