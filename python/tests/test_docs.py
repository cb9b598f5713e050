"""The transcript of docs/python.md: each script prints what stands behind it. `TILEWRIGHT_BLESS=1` writes it."""

import os
import pathlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
SCRIPT = re.compile(r"```python\n(# (\w+\.py)\n.*?)```\n\n```text\n(.*?)```\n", re.S)


def test_the_transcript_is_true(tmp_path):
    page = PAGE.read_text()

    def printed(script):
        (tmp_path / script[2]).write_text(script[1])
        done = subprocess.run([sys.executable, script[2]], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        # Blanks at the ends of lines, and where the folder lies.
        lines = done.stdout.replace(f"{tmp_path}{os.sep}", "").strip("\n").splitlines()
        return "".join(f"{line.rstrip()}\n" for line in lines)

    scripts = list(SCRIPT.finditer(page))
    assert len(scripts) >= 5
    with ThreadPoolExecutor() as pool:
        outputs = list(pool.map(printed, scripts))
    for script, output in reversed(list(zip(scripts, outputs))):
        page = page[: script.start(3)] + output + page[script.end(3) :]
    if os.environ.get("TILEWRIGHT_BLESS"):
        PAGE.write_text(page)
    assert PAGE.read_text() == page
