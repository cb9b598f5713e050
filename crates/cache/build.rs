//! Makes the identity of the compiler, which is in the key of every kernel that is kept: its version, and in a checkout of the repository a hash of its sources, so that
//! whoever changes the compiler is not given kernels of the one before.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// The crates that decide what code a program comes to.
const CRATES: [&str; 11] =
    ["layout", "machine", "tile", "task", "launch", "pack", "synth", "simt", "lower", "ptx", "compiler"];

/// The files of a folder and of those in it, in order.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() { files(&path, found) } else { found.push(path) }
    }
}

fn main() {
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let crates = PathBuf::from(env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("..");
    let mut found = Vec::new();
    for name in CRATES {
        let folder = crates.join(name).join("src");
        if folder.is_dir() {
            println!("cargo:rerun-if-changed={}", folder.display());
            files(&folder, &mut found);
        }
    }
    println!("cargo:rerun-if-changed=build.rs");
    // Packages of a registry have one text for a version.
    let build = if found.is_empty() {
        version
    } else {
        let mut hasher = DefaultHasher::new();
        for path in &found {
            path.strip_prefix(&crates).unwrap_or(path).hash(&mut hasher);
            fs::read(path).unwrap_or_default().hash(&mut hasher);
        }
        format!("{version}+{:016x}", hasher.finish())
    };
    println!("cargo:rustc-env=TILEWRIGHT_COMPILER_BUILD={build}");
}
