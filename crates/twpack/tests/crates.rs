//! A program with nothing but packs, in Rust or in C, has few crates of others.

use std::collections::BTreeSet;
use std::process::Command;

/// The crates of others that a crate of this repository is built of.
fn foreign(package: &str) -> BTreeSet<String> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
        .args(["tree", "--offline", "--locked", "-e", "normal,build", "--prefix", "none", "-p", package])
        .current_dir(root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout).unwrap();
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    names.filter(|name| !name.starts_with("tilewright-")).map(str::to_string).collect()
}

#[test]
fn packs_need_the_dynamic_loader_and_nothing_else_of_others() {
    for package in ["tilewright-launch", "tilewright-twpack", "tilewright-capi"] {
        let known = ["cfg-if", "libloading", "windows-link"];
        let foreign = foreign(package);
        assert!(foreign.iter().all(|name| known.contains(&name.as_str())), "{package}: {foreign:?}");
        assert!(foreign.len() <= 6 && foreign.contains("libloading"), "{package}: {foreign:?}");
    }
}
