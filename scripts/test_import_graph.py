"""Tests of import-graph on made-up workspaces: python3 -m unittest discover -s scripts"""

import pathlib
import re
import string
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("import-graph")
LIMIT = int(re.search(r"^LARGEST_CIRCLE = (\d+)$", SCRIPT.read_text(), re.M).group(1))
# One file more than a circle may have.
NAMES = [f"file_{letter}" for letter in string.ascii_lowercase[: LIMIT + 1]]


class Check(unittest.TestCase):
    def check(self, files):
        """The exit status and the output of `--check` on a workspace of one crate with these files."""
        with tempfile.TemporaryDirectory() as folder:
            crate = pathlib.Path(folder, "crates/made-up")
            for name, text in {"Cargo.toml": "[package]\n", **{f"src/{name}": text for name, text in files.items()}}.items():
                path = crate / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, SCRIPT, "--check", folder], capture_output=True, text=True, check=False)
            return run.returncode, run.stdout

    def ring(self, names, imports="use crate::{0}::{1};\n"):
        """Files of which each uses a type of the next, and the last of the first."""
        types = [name.split("/")[-1].title() for name in names]
        paths = [name.replace("/", "::") for name in names]
        after = [*range(1, len(names)), 0]
        return {
            f"{name}.rs": imports.format(paths[next_], types[next_]) + f"pub struct {own}(Option<Box<{types[next_]}>>);\n"
            for name, own, next_ in zip(names, types, after, strict=True)
        }

    def test_a_circle_above_the_limit_fails_and_is_named(self):
        status, said = self.check(self.ring(NAMES))
        self.assertEqual(status, 1)
        files = " ".join(f"{name}.rs" for name in NAMES)
        self.assertIn(f"crates/made-up: a circle of {LIMIT + 1} files: {files}", said)

    def test_a_circle_at_the_limit_passes(self):
        self.assertEqual(self.check(self.ring(NAMES[:LIMIT])), (0, ""))

    def test_an_open_chain_passes(self):
        self.assertEqual(self.check(self.ring(NAMES) | {f"{NAMES[-1]}.rs": "pub struct Last;\n"}), (0, ""))

    def test_paths_written_out_are_arrows(self):
        self.assertEqual(self.check(self.ring(NAMES, imports="pub fn f(_: crate::{0}::{1}) {{}}\n"))[0], 1)

    def test_imports_through_a_re_export_are_arrows(self):
        files = self.ring([f"room/{name}" for name in NAMES], imports="use super::{1};\n")
        files["room/mod.rs"] = "".join(f"pub use {name}::{name.title()};\n" for name in NAMES)
        status, said = self.check(files)
        self.assertEqual(status, 1)
        self.assertNotIn("mod.rs", said)

    def test_unit_tests_are_no_arrows(self):
        first = NAMES[0].title()
        unit_test = f"#[cfg(test)]\nmod tests {{\n    use crate::{NAMES[0]}::{first};\n    fn f(_: {first}) {{}}\n}}\n"
        self.assertEqual(self.check(self.ring(NAMES) | {f"{NAMES[-1]}.rs": "pub struct Last;\n" + unit_test}), (0, ""))

    def test_comments_and_strings_are_no_arrows(self):
        path = f"crate::{NAMES[0]}::{NAMES[0].title()}"
        last = f'//! Like [`{path}`].\npub const PATH: &str = "{path}";\npub struct Last;\n'
        self.assertEqual(self.check(self.ring(NAMES) | {f"{NAMES[-1]}.rs": last}), (0, ""))


if __name__ == "__main__":
    unittest.main()
