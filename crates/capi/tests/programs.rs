//! The examples in C and C++, compiled and run on the stand-in driver: against the shared and the static library.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use tilewright_stand_in_driver::StandIn;

/// A library of this crate, which is built with its tests.
fn library(begin: &str, end: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let is = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with(begin) && name.ends_with(end)
    };
    let mut found: Vec<PathBuf> =
        std::fs::read_dir(deps).unwrap().map(|entry| entry.unwrap().path()).filter(is).collect();
    // Where other builds have left theirs, the newest is this one's.
    found.sort_by_key(|path| path.metadata().unwrap().modified().unwrap());
    found.pop().unwrap_or_else(|| panic!("{begin}*{end} is built beside {}", test.display()))
}

fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{command:?}: {out}{err}");
    out + &err
}

/// Compiles a program, runs it on the stand-in with a pack, and returns what it prints and the launches that it made.
fn launches(compiler: &[&str], example: &str, linked: &[&str], pack: &[u8]) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = at("program");
    let mut compile = Command::new(compiler[0]);
    compile.args(&compiler[1..]).args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(root.join("include"));
    compile.arg(root.join("examples").join(example)).arg("-o").arg(&program).args(linked);
    ran(&mut compile);
    std::fs::write(at("kernels.twpack"), pack).unwrap();
    let mut run = Command::new(&program);
    run.arg(at("kernels.twpack")).env("TILEWRIGHT_LIBCUDA", StandIn::path_of_this_test());
    // Cargo's has the library of another build ahead of the one that is linked.
    run.env("TILEWRIGHT_STAND_IN_CALLS", at("calls")).env_remove("LD_LIBRARY_PATH");
    let printed = ran(&mut run);
    let calls = std::fs::read_to_string(at("calls")).unwrap();
    (printed, calls.lines().filter(|line| line.starts_with("cuLaunch")).map(str::to_string).collect())
}

/// The launch of the examples: addresses are the stand-in's.
fn check(launches: &[String]) {
    assert_eq!(launches.len(), 2, "{launches:?}");
    assert_eq!(launches[0], launches[1]);
    let launch = &launches[0];
    assert!(launch.starts_with("cuLaunchKernelEx grid=32,1,1 block=128,1,1 shared=0 stream=0x"), "{launch}");
    assert!(launch.contains(" attributes=[] function=scale params=["), "{launch}");
    assert!(launch.ends_with(" 0000003f 00100000]"), "{launch}");
}

/// The launches of the examples of products: with a bias, and without one.
fn check_products(launches: &[String]) {
    assert_eq!(launches.len(), 2, "{launches:?}");
    assert!(launches[0].starts_with("cuLaunchKernelEx grid=3,1,1 block=128,1,1 "), "{launches:?}");
    assert!(launches[0].ends_with(" 82000000 00010000 40000000]"), "{launches:?}");
    assert!(launches[1].starts_with("cuLaunchKernelEx grid=1,1,1 block=128,1,1 "), "{launches:?}");
    assert!(launches[1].ends_with(" 40000000 00010000 40000000]"), "{launches:?}");
    // A pointer more.
    let params = |launch: &String| launch.split("params=").nth(1).unwrap().split(' ').count();
    assert_eq!([params(&launches[0]), params(&launches[1])], [7, 6]);
}

#[test]
fn the_examples_in_c_run_with_the_shared_library() {
    let library = library("libtilewright_capi", ".so");
    let folder = library.parent().unwrap().display().to_string();
    let rpath = format!("-Wl,-rpath,{folder}");
    let linked = ["-L", &folder, "-ltilewright_capi", &rpath, "-ldl"];
    let compiler = ["cc", "-std=c11", "-D_GNU_SOURCE"];
    let (printed, calls) = launches(&compiler, "scale.c", &linked, &common::pack());
    // The stand-in runs nothing: y is as it was allocated.
    assert_eq!(printed, "workspace: 0 bytes, y[4095] = 0\n");
    check(&calls);
    let (printed, calls) = launches(&compiler, "gemm.c", &linked, &common::products());
    assert_eq!(printed, "c[0, 0] = 0x0000\n");
    check_products(&calls);
}

#[test]
fn the_examples_in_cpp_run_with_the_static_library() {
    let library = library("libtilewright_capi", ".a").display().to_string();
    let linked = [library.as_str(), "-ldl", "-lpthread", "-lm"];
    let compiler = ["c++", "-std=c++17"];
    let (printed, calls) = launches(&compiler, "scale.cpp", &linked, &common::pack());
    assert_eq!(printed, "launched twice\n");
    check(&calls);
    let (printed, calls) = launches(&compiler, "gemm.cpp", &linked, &common::products());
    assert!(
        printed.starts_with("two products; the pack has no kernels of `gemm` for epilogue=gelu"),
        "{printed}"
    );
    check_products(&calls);
}

#[test]
fn the_page_shows_the_code_of_the_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let (page, example) = (read("../../docs/my-data-my-stream.md"), read("examples/scale.c"));
    let blocks: Vec<&str> =
        page.split("```c\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 2);
    for block in blocks {
        assert!(example.contains(block), "not in the example: {block}");
    }
}
