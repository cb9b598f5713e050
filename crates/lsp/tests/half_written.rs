//! Texts as they are while someone writes: every question is answered, and nothing panics. [`Analysis::unguarded`] lets a panic through.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use tilewright_lsp::analysis::{Analysis, Job};
use tilewright_lsp::complete::complete;
use tilewright_lsp::hover::hover;
use tilewright_lsp::lines::Encoding;
use tilewright_lsp::navigate::{definition, references, symbols};
use tilewright_lsp::outline::Outline;
use tilewright_lsp::publish::messages;

/// The programs that come with it, by path.
fn examples() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "tile"));
    paths.sort();
    paths.into_iter().map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

fn analysed(path: &str, text: &str) -> Analysis {
    Analysis::unguarded(&Job {
        path: path.to_string(),
        version: 1,
        text: text.to_string(),
        open: HashMap::new(),
        arch: None,
    })
}

/// Asks everything about a place.
fn asked(path: &str, text: &str, analysis: &Analysis, byte: usize) {
    let outline = Outline::of(text);
    for item in complete(text, &outline, &analysis.sources, byte, true) {
        assert!(!item.label.is_empty());
    }
    if let Some((said, range)) = hover(text, &outline, analysis, byte) {
        assert!(!said.is_empty() && text.get(range).is_some(), "{said}");
    }
    let _ = definition(path, text, &outline, &analysis.sources, byte);
    assert!(references(text, &outline, byte, true).iter().all(|range| text.get(range.clone()).is_some()));
    for symbol in symbols(text, &outline, Encoding::Utf16) {
        let (whole, name) = (symbol.range, symbol.selection_range);
        assert!(whole.start <= name.start && name.end <= whole.end, "{}", symbol.name);
    }
    let by_file = messages(path, analysis, Encoding::Utf16, &|path| tilewright_lsp::paths::uri_of(path));
    assert_eq!(by_file.values().map(Vec::len).sum::<usize>(), analysis.found.len());
}

#[test]
fn a_text_that_ends_anywhere_is_answered_for() {
    for (path, text) in examples() {
        // Behind each line, and within each.
        let mut ends: Vec<usize> = Vec::new();
        let mut start = 0;
        for line in text.split_inclusive('\n') {
            ends.extend([start + line.len() / 2, start + line.len()]);
            start += line.len();
        }
        for end in ends.into_iter().filter(|end| text.is_char_boundary(*end)) {
            let begun = &text[..end];
            // The whole text is asked for below.
            if end < text.len() {
                asked(&path, begun, &analysed(&path, begun), end);
            }
        }
    }
}

#[test]
fn a_text_without_a_line_or_with_half_of_one_is_answered_for() {
    for (path, text) in
        examples().into_iter().filter(|(path, _)| path.contains("hopper") || path.contains("transpose."))
    {
        let lines: Vec<&str> = text.lines().collect();
        for at in 0..lines.len() {
            for kept in [0, lines[at].len() / 2] {
                let Some(half) = lines[at].get(..kept) else { continue };
                let mut changed = lines.clone();
                changed[at] = half;
                let changed = changed.join("\n");
                let byte = changed.lines().take(at).map(|line| line.len() + 1).sum::<usize>() + kept;
                asked(&path, &changed, &analysed(&path, &changed), byte);
            }
        }
    }
}

#[test]
fn every_example_is_without_messages_and_every_statement_of_it_is_explained() {
    for (path, text) in examples() {
        let analysis = analysed(&path, &text);
        assert!(analysis.found.is_empty(), "{path}: {:?}", analysis.found);
        assert!(!analysis.kernels.is_empty(), "{path}");
        let outline = Outline::of(&text);
        let mut costs = 0;
        for statement in &outline.statements {
            asked(&path, &text, &analysis, statement.range.start);
            let said = hover(&text, &outline, &analysis, statement.range.start)
                .map_or(String::new(), |(said, _)| said);
            let words = &text[statement.range.clone()];
            let costs_something =
                ["copy(", "copy.async(", "gemm(", "gemm.async("].iter().any(|call| words.starts_with(call));
            costs += usize::from(costs_something);
            assert!(!costs_something || said.contains("cycles"), "{path}: {words}: {said}");
        }
        assert!(costs > 0, "{path}");
        // Every name of a tensor has a type and a shape.
        for declaration in &outline.declarations {
            use tilewright_lsp::outline::Named::{Register, Result, Shared, View};
            if matches!(declaration.kind, Register | Result | Shared | View) {
                let said = hover(&text, &outline, &analysis, declaration.range.start)
                    .map_or(String::new(), |(said, _)| said);
                assert!(said.contains("]`"), "{path}: {}: {said}", declaration.name);
            }
        }
    }
}
