//! The header: made of the table of functions, structs and numbers, and compared with the file that is kept.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_launch::DType;

use crate::table::Item;
use crate::{failure, handle, types};

const TOP: &str = "\
/*
 * Tilewright for C and C++: packs of kernels, launched on one's own streams.
 *
 * Made by `TILEWRIGHT_BLESS=1 cargo test -p tilewright-capi` of crates/capi/src; a test compares both.
 *
 * Functions return TW_OK or why they did nothing; tw_last_error() has the words. Callers owe: addresses of as much memory as is said, texts that end with NUL, handles
 * that this library gave and that nobody frees while they are used, and memory of the GPU that lives until the work has ended. Everything else is checked. Functions may be called from any
 * thread, at the same time too.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

const BOTTOM: &str = "
#ifdef __cplusplus
}
#endif

#endif
";

fn section(text: &mut String, title: &str, items: &[Item]) {
    let _ = write!(text, "\n/* {title} */\n");
    for item in items {
        let lines: Vec<&str> = item.doc.iter().map(|line| line.trim()).collect();
        if !lines.is_empty() {
            let _ = writeln!(text, "\n/* {} */", lines.join("\n * "));
        }
        let _ = writeln!(text, "{}", item.text);
    }
}

fn header() -> String {
    let mut text = TOP.to_string();
    section(&mut text, "What functions return.", &failure::statuses());
    section(&mut text, "Kinds of arguments.", &types::kinds());
    section(&mut text, "Element types.", &types::dtypes());
    section(&mut text, "Handles.", &handle::handles());
    section(
        &mut text,
        "Structs. `size` is first, so that header and library are found to be of different versions.",
        &types::structs(),
    );
    section(&mut text, "Functions.", &crate::functions());
    text + BOTTOM
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

#[test]
fn the_header_is_that_of_the_functions() {
    let path = folder().join("tilewright.h");
    let expected = header();
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        std::fs::write(&path, &expected).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == expected,
        "include/tilewright.h is not that of the functions: TILEWRIGHT_BLESS=1 writes it"
    );
}

#[test]
fn structs_lie_in_c_as_they_do_here() {
    let mut text = "#include \"tilewright.h\"\n".to_string();
    for laid in types::laid() {
        let (name, bytes) = (laid.name, laid.bytes);
        let _ = writeln!(text, "_Static_assert(sizeof({name}) == {bytes}, \"{name}\");");
        for (field, at) in laid.fields {
            let _ = writeln!(text, "_Static_assert(offsetof({name}, {field}) == {at}, \"{name}.{field}\");");
        }
    }
    let folder_of_test = tempfile::tempdir().unwrap();
    let file = folder_of_test.path().join("layout.c");
    std::fs::write(&file, text).unwrap();
    let run = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"])
        .args([folder(), file])
        .output()
        .expect("`cc` is there, for rustc links with it");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn every_element_type_has_a_number() {
    let known: Vec<(usize, DType)> =
        (0..256u32).filter_map(|number| Some((number as usize, types::dtype(number)?))).collect();
    assert_eq!(known.len(), DType::ALL.len());
    for dtype in DType::ALL {
        assert!(known.iter().any(|(_, other)| other == dtype), "{dtype}");
    }
    let names = types::dtypes();
    // Numbers are those of all that is compiled against the header: types that came later are behind the others.
    for (at, (number, dtype)) in known.iter().enumerate() {
        assert_eq!(at + 1, *number);
        let line = format!("#define TW_DTYPE_{} {number}", dtype.name().to_uppercase());
        assert!(names.iter().any(|item| item.text == line), "{line}");
    }
}
