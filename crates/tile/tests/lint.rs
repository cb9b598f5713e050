//! Lints say nothing of programs that are right: the examples, the operators, and the programs of the text tests.
//!
//! `TILEWRIGHT_LINT_PROGRAMS=folder:folder` looks at other folders instead and prints what is found there.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tilewright_tile::{Constants, Sources, lint, parse_module, read_beside, verify};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The program files of a folder, sorted.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "tile"));
    paths.sort();
    paths
}

/// The lints of a file's kernels at the defaults; a file that is no program for itself has none.
fn findings(path: &Path) -> Vec<String> {
    let Ok(text) = fs::read_to_string(path) else { return Vec::new() };
    let Ok(module) = parse_module(Sources::new(path.display().to_string(), text.clone()), &mut read_beside)
    else {
        return vec!["it does not parse".to_string()];
    };
    let mut all = Vec::new();
    for program in &module.programs {
        let Ok(verified) = verify(program, &Constants::new()) else {
            all.push("it is refused".to_string());
            continue;
        };
        for finding in lint(&verified, &BTreeMap::new()) {
            let at = finding.span.text().map_or(0, |span| module.sources.locate(span).span.start as usize);
            let before = text.get(..at).unwrap_or_default();
            let line = 1 + before.matches('\n').count();
            let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count();
            let help = finding.help.as_ref().map_or(String::new(), |help| format!(" [help: {help}]"));
            let path = path.display();
            all.push(format!("{path}: {} at {line}:{column}: {}{help}", finding.code, finding.message));
        }
    }
    all
}

#[test]
fn programs_that_are_right_get_no_lint() {
    let mut found = Vec::new();
    let mut count = 0;
    for folder in ["examples", "crates/kernels/src/text"] {
        for path in files(&root().join(folder)) {
            count += 1;
            found.extend(findings(&path));
        }
    }
    for path in files(&root().join("tests/run")) {
        // What is warned of on purpose says so.
        let text = fs::read_to_string(&path).expect("a text test");
        if !text.contains("// warning: ") && text.contains("// run:") {
            count += 1;
            found.extend(findings(&path));
        }
    }
    assert!(count > 300, "{count} programs");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn programs_of_other_folders_are_shown() {
    let Ok(folders) = std::env::var("TILEWRIGHT_LINT_PROGRAMS") else { return };
    for path in folders.split(':').flat_map(|folder| files(Path::new(folder))) {
        let found = findings(&path);
        println!("{}: {}", path.display(), if found.is_empty() { "nothing" } else { "" });
        found.iter().for_each(|finding| println!("  {finding}"));
    }
}
