//! The programs of docs/tasks.md and of the pages of codes verify and are emitted, or are refused by the code of their page.

use std::fs;
use std::path::Path;

use tilewright_task::{Program, check, lower, parse};
use tilewright_tile::Diagnostics;

fn docs() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

/// The blocks of a text that are marked `task`.
fn blocks(text: &str) -> Vec<&str> {
    text.split("```task\n").skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// Checks a program, and makes a tile program of each of its mappings.
fn checked(text: &str) -> Result<(), Diagnostics> {
    let program: Program = parse(text)?;
    check(&program, &Default::default())?;
    program.mappings.iter().try_for_each(|mapping| lower(&program, mapping).map(|_| ()))
}

#[test]
fn programs_of_the_page_are_right() {
    let page = fs::read_to_string(docs().join("tasks.md")).unwrap();
    let programs = blocks(&page);
    assert!(programs.len() >= 3);
    for text in programs {
        checked(text).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    }
}

#[test]
fn programs_of_codes_are_wrong_and_right() {
    let mut pages = 0;
    for file in fs::read_dir(docs().join("codes")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let [wrong, right] = blocks(&text)[..] else { continue };
        pages += 1;
        let name = path.file_stem().unwrap().to_str().unwrap();
        let errors = checked(wrong).unwrap_err();
        assert!(errors.0.len() == 1 && errors.0[0].code.name() == name, "{name}: {errors}");
        assert_eq!(checked(right), Ok(()), "{name}");
    }
    assert_eq!(pages, 14);
}
