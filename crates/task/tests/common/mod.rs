//! Programs and snapshots, for the tests of several files.

use std::fs;
use std::path::{Path, PathBuf};

use tilewright_task::{Mapping, Program, parse};

/// The programs of `examples/tasks` by name, each with its mappings.
pub fn examples() -> Vec<(String, Program)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let program = parse(&text).unwrap_or_else(|errors| panic!("{}: {errors}", path.display()));
        (path.file_stem().unwrap().to_string_lossy().into_owned(), program)
    };
    paths.into_iter().map(read).collect()
}

/// Each mapping of each example, with a name for it.
pub fn mappings(mut each: impl FnMut(&str, &Program, &Mapping)) {
    for (name, program) in examples() {
        for mapping in &program.mappings {
            each(&format!("{name}.{}", mapping.name), &program, mapping);
        }
    }
}

/// Compares a text with the file of this name; `TILEWRIGHT_BLESS=1` writes it.
pub fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: TILEWRIGHT_BLESS=1 writes what is printed");
}
