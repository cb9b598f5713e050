"""Tests of import-graph on made-up workspaces: python3 -m unittest discover -s scripts"""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("import-graph")
LIMIT = 4


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
        names = ["ant", "bee", "cow", "dog", "elk"]
        status, said = self.check(self.ring(names))
        self.assertEqual(status, 1)
        self.assertIn("crates/made-up: a circle of 5 files: ant.rs bee.rs cow.rs dog.rs elk.rs", said)

    def test_a_circle_at_the_limit_passes(self):
        self.assertEqual(self.check(self.ring(["ant", "bee", "cow", "dog"])), (0, ""))

    def test_an_open_chain_passes(self):
        files = self.ring(["ant", "bee", "cow", "dog", "elk"])
        files["elk.rs"] = "pub struct Elk;\n"
        self.assertEqual(self.check(files), (0, ""))

    def test_paths_written_out_are_arrows(self):
        files = self.ring(["ant", "bee", "cow", "dog", "elk"], imports="pub fn f(_: crate::{0}::{1}) {{}}\n")
        self.assertEqual(self.check(files)[0], 1)

    def test_imports_through_a_re_export_are_arrows(self):
        names = ["zoo/ant", "zoo/bee", "zoo/cow", "zoo/dog", "zoo/elk"]
        files = self.ring(names, imports="use super::{1};\n")
        files["zoo/mod.rs"] = "".join(f"pub use {name.split('/')[1]}::{name.split('/')[1].title()};\n" for name in names)
        status, said = self.check(files)
        self.assertEqual(status, 1)
        self.assertNotIn("mod.rs", said)

    def test_unit_tests_are_no_arrows(self):
        files = self.ring(["ant", "bee", "cow", "dog", "elk"])
        files["elk.rs"] = "pub struct Elk;\n#[cfg(test)]\nmod tests {\n    use crate::ant::Ant;\n    fn f(_: Ant) {}\n}\n"
        self.assertEqual(self.check(files), (0, ""))

    def test_comments_and_strings_are_no_arrows(self):
        files = self.ring(["ant", "bee", "cow", "dog", "elk"])
        files["elk.rs"] = '//! Like [`crate::ant::Ant`].\npub const ELK: &str = "crate::ant::Ant";\npub struct Elk;\n'
        self.assertEqual(self.check(files), (0, ""))

    def test_the_limit_is_that_of_the_script(self):
        self.assertIn(f"LARGEST_CIRCLE = {LIMIT}\n", SCRIPT.read_text())


if __name__ == "__main__":
    unittest.main()
