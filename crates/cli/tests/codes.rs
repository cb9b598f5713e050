//! The pages of `tilewright explain`, `docs/codes/*.md`: every code has one, its wrong program gives the message that the page shows and no other, and
//! its right program gives none. `TILEWRIGHT_BLESS=1` writes what is printed into the pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::tilewright;
use ::tilewright::tile::Code;
use ::tilewright::tile::code::Kind;
use rayon::prelude::*;

/// Codes that no program is meant to give: of mistakes of the compiler, of devices, and of runs that take minutes.
const WITHOUT_PROGRAMS: [Code; 6] =
    [Code::Internal, Code::Misaligned, Code::Endless, Code::NoDevice, Code::DeviceFailed, Code::TooLarge];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/codes")
}

/// The blocks of a section: language and text of each.
fn blocks(section: &str) -> Vec<(&str, &str)> {
    let mut parts = section.split("```");
    parts.next();
    let inside = parts.step_by(2);
    inside
        .filter_map(|block| block.split_once('\n'))
        .map(|(language, text)| (language.trim(), text))
        .collect()
}

/// Programs and output of a page, beside its words.
struct Page<'a> {
    wrong: &'a str,
    /// The command that is given for both programs.
    command: &'a str,
    /// Its output for the wrong one.
    printed: &'a str,
    right: &'a str,
}

impl<'a> Page<'a> {
    fn of(code: Code, text: &'a str) -> Result<Page<'a>, String> {
        let head = format!("# {code}\n\n{}\n\n", code.summary());
        if !text.starts_with(&head) {
            return Err(format!("it does not begin with\n{head}"));
        }
        let (_, programs) = text.split_once("\n## Wrong\n").ok_or("it has no section `## Wrong`")?;
        let (wrong, right) = programs.split_once("\n## Right\n").ok_or("it has no section `## Right`")?;
        let blocks = [blocks(wrong), blocks(right)].concat();
        let [(first, wrong), ("console", console), (second, right)] = blocks[..] else {
            return Err(
                "its sections hold other blocks than a program and a command, and a program".to_string()
            );
        };
        let command = console.strip_prefix("$ tilewright ").ok_or("the command is not `$ tilewright …`")?;
        let (command, printed) = command.split_once('\n').ok_or("the command has no end")?;
        // The language is that of the file: `tile`, `task` or `core`.
        let file = command.split(' ').nth(1).unwrap_or_default();
        let language = file.rsplit('.').next().unwrap_or_default();
        if (first, second) != (language, language) {
            return Err(format!("its programs are not marked `{language}`"));
        }
        Ok(Page { wrong, command, printed, right })
    }

    /// Runs the command on a program, in a folder of its own: the exit code, and all that is printed.
    fn run(&self, program: &str) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut words = self.command.split(' ');
        let file = words.nth(1).unwrap();
        fs::write(folder.path().join(file), program).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_tilewright"))
            .args(self.command.split(' '))
            .current_dir(folder.path())
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    }
}

/// True for a line that belongs to the message above it: its place, lines of the program, notes and help.
fn belongs(line: &str) -> bool {
    let margin = line.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit());
    ["|", "-->", ":::", "=", "..."].iter().any(|mark| margin.starts_with(mark))
}

/// The messages of an output, without the rest.
fn messages(output: &str) -> String {
    let mut kept = String::new();
    let mut inside = false;
    for line in output.lines() {
        inside = line.starts_with("error[") || line.starts_with("warning[") || (inside && belongs(line));
        if inside {
            kept.push_str(line.trim_end());
            kept.push('\n');
        }
    }
    kept
}

/// The first lines of messages, with codes or without.
fn titles(output: &str) -> Vec<&str> {
    output.lines().filter(|line| line.starts_with("error") || line.starts_with("warning")).collect()
}

/// Compares a page with what its programs give, or writes it anew.
fn check(code: Code) -> Result<(), String> {
    let path = folder().join(format!("{code}.md"));
    let text = fs::read_to_string(&path).map_err(|e| e.to_string())?;
    let page = Page::of(code, &text)?;
    let (exit, output) = page.run(page.wrong);
    let printed = messages(&output);
    let expected = if code.kind() == Kind::Error { 1 } else { exit.unwrap_or(-1) };
    let is_it = |title: &&str| title.contains(&format!("[{code}]"));
    // Elements that differ are what a mistake that a run finds leads to.
    let follows = |title: &&str| title.contains("[wrong-result]");
    let titles = titles(&output);
    if exit != Some(expected) || !titles.iter().any(&is_it) {
        return Err(format!("the wrong program gives no such message (exit code {exit:?}):\n{output}"));
    }
    if let Some(other) = titles.iter().find(|title| !is_it(title) && !follows(title)) {
        return Err(format!("the wrong program gives another message, `{other}`:\n{output}"));
    }
    let (exit, output) = page.run(page.right);
    if exit != Some(0) || !self::titles(&output).is_empty() {
        return Err(format!("the right program gives messages (exit code {exit:?}):\n{output}"));
    }
    if printed == page.printed {
        return Ok(());
    }
    if std::env::var_os("TILEWRIGHT_BLESS").is_some_and(|v| v == "1") {
        let command = format!("$ tilewright {}\n", page.command);
        let blessed = text.replacen(&(command.clone() + page.printed), &(command + &printed), 1);
        return fs::write(&path, blessed).map_err(|e| e.to_string());
    }
    Err(format!("the wrong program prints\n{printed}\nand the page has\n{}", page.printed))
}

#[test]
fn every_code_has_a_page_whose_programs_do_what_it_says() {
    let of_codes: BTreeSet<String> = Code::ALL.iter().map(|code| format!("{code}.md")).collect();
    let names = fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.collect::<BTreeSet<_>>(), of_codes, "a page for every code, and no others");
    let failed: Vec<String> = Code::ALL
        .par_iter()
        .filter(|code| !WITHOUT_PROGRAMS.contains(code))
        .filter_map(|code| check(*code).err().map(|why| format!("docs/codes/{code}.md: {why}")))
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[test]
fn explain_prints_pages_and_the_list_of_codes() {
    let list = tilewright(&["explain"], None);
    assert_eq!(list.code, Some(0), "{}", list.err);
    for code in Code::ALL {
        let row = list.out.lines().find(|line| line.split_whitespace().next() == Some(code.name()));
        assert!(row.is_some_and(|row| row.ends_with(code.summary())), "{code} is not in\n{}", list.out);
        let page = tilewright(&["explain", code.name()], None);
        assert!(page.code == Some(0) && page.out.starts_with(&format!("{code}\n\n")), "{}", page.out);
    }
    let two = tilewright(&["explain", "error[short-grid]", "shape-mismatch"], None);
    assert!(two.out.contains("short-grid\n") && two.out.contains("\nshape-mismatch\n"), "{}", two.out);
    let unknown = tilewright(&["explain", "short-gird"], None);
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.err.contains("there is no code `short-gird`: did you mean `short-grid`?"),
        "{}",
        unknown.err
    );
}

#[test]
fn messages_end_with_how_to_ask_once_a_run() {
    let run = tilewright(&["check", "tests/error/gemm_shapes.tile"], None);
    assert!(run.err.ends_with("more about this: tilewright explain shape-mismatch\n"), "{}", run.err);
    let run = tilewright(&["check", "tests/lint/idle_axis.tile"], None);
    assert_eq!(run.err, "more about these: tilewright explain short-grid idle-axis\n");
    let right = tilewright(&["check", "examples/gemm.tile"], None);
    assert!(right.err.is_empty(), "{}", right.err);
    let json = tilewright(&["check", "tests/lint/idle_axis.tile", "--json"], None);
    assert!(json.err.is_empty(), "{}", json.err);
}

#[test]
fn the_readme_shows_a_message_as_it_is_printed() {
    let page = Page::of(Code::UnmaskedEdge, Code::UnmaskedEdge.page()).unwrap();
    let first: String = page.printed.lines().take(8).map(|line| format!("{line}\n")).collect();
    let shown = first.replace("unmasked-edge.tile", "softmax.tile");
    assert!(include_str!("../../../README.md").contains(&shown), "README.md lacks\n{shown}");
}
