//! The files in `tests/error` whose mistake the parser, the verifier or the expansion of `unroll for` finds say what is found. (The files whose mistake a
//! later stage finds are read too; the whole compiler runs them all.)

use std::fs;
use std::path::Path;

use tilewright_tile::renamed::{Place, RENAMED, renamed_message};
use tilewright_tile::{Constants, Diagnostics, parse, unroll, verify};

fn describe(source: &str, diagnostics: &Diagnostics) -> String {
    let all: Vec<String> = diagnostics
        .0
        .iter()
        .map(|d| {
            let before = &source[..d.span.text().map_or(0, |span| span.range().start).min(source.len())];
            let line = before.matches('\n').count() + 1;
            let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
            let help = d.help.as_ref().map_or(String::new(), |h| format!(" [help: {h}]"));
            format!("{} at {line}:{column}: {}{help}", d.code, d.message)
        })
        .collect();
    all.join(" | ")
}

#[test]
fn every_mistake_is_told_as_its_file_says() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/error");
    let (mut found, mut wrong) = (0, Vec::new());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        // Files that others use lie in a folder, and task programs have a parser of their own.
        if path.is_dir() || path.extension().is_none_or(|extension| extension != "tile") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let source = String::from_utf8_lossy(&bytes);
        // Files with several kernels, or that use others, are no programs by themselves.
        let kernels = source.lines().filter(|line| line.starts_with("kernel ")).count();
        if kernels > 1 || source.lines().any(|line| line.starts_with("use \"")) {
            continue;
        }
        let header = |key| {
            source
                .lines()
                .take_while(|l| l.starts_with("//"))
                .find_map(|l| l.strip_prefix("// ")?.strip_prefix(key))
        };
        let given: Constants = header("options: ")
            .unwrap_or("")
            .split_whitespace()
            .filter_map(|word| {
                let (name, value) = word.split_once('=')?;
                Some((name.to_string(), value.parse().ok()?))
            })
            .collect();
        let result = parse(&source).and_then(|program| {
            let is_constant = |name: &String| program.constants().any(|(_, s, _)| s.name == *name);
            let constants = given.into_iter().filter(|(name, _)| is_constant(name)).collect();
            verify(&program, &constants).and_then(|v| unroll(&v)).map(|_| ())
        });
        let Err(diagnostics) = result else { continue };
        found += 1;
        let (actual, expected) = (describe(&source, &diagnostics), header("error: ").unwrap_or(""));
        // The calls of functions that the place lies in are those of the whole file, as the command reads it.
        let calls =
            [" [in this call of", " [the value of"].map(|of| expected.find(of).unwrap_or(expected.len()));
        let expected = &expected[..calls[0].min(calls[1])];
        if actual != expected {
            wrong.push(format!("{}\n  expected {expected}\n  found    {actual}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found > 190, "{found}");
}

/// Every old word of the language has a file that shows its message, and the documentation has the table.
#[test]
fn every_old_word_is_refused_with_the_new_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let docs = fs::read_to_string(root.join("docs/tile-language.md")).unwrap();
    for row in RENAMED {
        let line = format!("| {} | `{}` | `{}` |", row.place.name(), row.old, row.new);
        assert!(docs.contains(&line), "docs/tile-language.md lacks {line}");
        if row.place == Place::Language {
            let path = root.join(format!("tests/error/renamed_{}.tile", row.old));
            let source = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let message = renamed_message(row.place, row.old).unwrap();
            assert!(parse(&source).unwrap_err().to_string().contains(&message), "{}", path.display());
        }
    }
    let table = docs.lines().skip_while(|line| *line != "## Renamed words");
    assert_eq!(table.filter(|line| line.starts_with("| ")).count(), RENAMED.len() + 2, "rows in the docs");
}
