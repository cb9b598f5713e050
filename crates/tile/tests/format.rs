//! The form of texts: the same program, the same comments, and nothing left to change, over every text of the repository.

use std::path::{Path, PathBuf};

use tilewright_tile::{Sources, format, parse_module, read_beside};

/// The files with an extension below a folder.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if path.is_dir() && !hidden && entry.file_name() != "target" {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}

/// The texts of programs of the repository: files, and blocks of documents.
fn texts() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut paths, mut documents) = (Vec::new(), Vec::new());
    ["tile", "core"].iter().for_each(|extension| files(&root, extension, &mut paths));
    files(&root, "md", &mut documents);
    let mut texts: Vec<(PathBuf, String)> = paths
        .into_iter()
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        .collect();
    for path in documents {
        let text = std::fs::read_to_string(&path).expect("a document is text");
        for block in text.split("\n```").skip(1).step_by(2) {
            let (language, block) = block.split_once('\n').unwrap_or((block, ""));
            if language.starts_with("tile") {
                texts.push((path.clone(), block.to_string()));
            }
        }
    }
    texts
}

/// The comments of a text, by a reading of its own: strings hold none, and no line is longer than itself.
fn comments(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut quoted = false;
        for (at, c) in line.char_indices() {
            quoted ^= c == '"';
            if !quoted && (c == '#' || line[at..].starts_with("//")) {
                found.push(line[at..].trim_end());
                break;
            }
        }
    }
    found
}

#[test]
fn every_text_of_the_repository_is_the_same_program_afterwards() {
    let texts = texts();
    assert!(texts.len() > 900, "{} texts", texts.len());
    let mut programs = 0;
    for (path, text) in &texts {
        let Ok(formatted) = format(text) else { continue };
        let name = path.display();
        assert_eq!(format(&formatted).as_ref(), Ok(&formatted), "{name}: formatted twice");
        assert_eq!(comments(text), comments(&formatted), "{name}: comments");
        let read = |text: &str| {
            parse_module(Sources::new(path.to_string_lossy(), text), &mut read_beside)
                .map(|module| module.programs)
        };
        match (read(text), read(&formatted)) {
            (Ok(before), Ok(after)) => {
                assert_eq!(before, after, "{name}: another program");
                programs += 1;
            }
            (Err(before), Err(after)) => {
                let said = |misread: &tilewright_tile::Misread| -> Vec<_> {
                    misread.diagnostics.0.iter().map(|d| (d.code, d.message.clone())).collect()
                };
                assert_eq!(said(&before), said(&after), "{name}: other mistakes");
            }
            (before, after) => panic!("{name}: {:?}, and {:?} formatted", before.is_ok(), after.is_ok()),
        }
    }
    assert!(programs > 500, "{programs} programs");
}
