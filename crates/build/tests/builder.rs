//! Packs of build scripts: what is in them, which files they are made of, and what is refused.

use std::fs;

use tilewright_build::{BuildError, Builder, Options, compiled_again};
use tilewright_machine::Arch;
use tilewright_twpack::Pack;

const PROGRAM: &str = "use \"twice.tile\"
size n = 1024
kernel double(x: f32[n], y: f32[n]) grid(ceil_div(n, 128)) threads(128) {
    gx = global_view(x[block.x * 128 :], (128) : (e0))
    gy = global_view(y[block.x * 128 :], (128) : (e0))
    r = register_tensor(f32, [128])
    copy(gx, r)
    s = twice(r)
    copy(s, gy)
}";
const USED: &str = "fn twice(x) { return x + x }";

#[test]
fn a_file_with_those_that_it_uses_and_an_operator() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("double.tile"), PROGRAM).unwrap();
    fs::write(at("twice.tile"), USED).unwrap();
    let made = || {
        Builder::new()
            .file(at("double.tile"), &Options::new(Arch::SM_80))?
            .file(at("double.tile"), &Options::new(Arch::SM_90A))?
            .operator("gemm", &[("bm", "64")], &Options::new(Arch::SM_80))
    };
    let builder = made().unwrap();
    let names: Vec<_> =
        builder.pack().entries().iter().map(|e| (e.name.as_str(), e.recipe.target.name.as_str())).collect();
    assert_eq!(names, [("double", "sm_80"), ("double", "sm_90a"), ("gemm", "sm_80")]);
    let files: Vec<_> = builder.files().iter().map(|file| file.rsplit('/').next().unwrap()).collect();
    assert_eq!(files, ["double.tile", "twice.tile", "double.tile", "twice.tile"]);
    for entry in builder.pack().entries() {
        assert_eq!(compiled_again(entry), Some(Ok(true)), "{}", entry.name);
    }
    let bytes = builder.pack().to_bytes().unwrap();
    assert_eq!(made().unwrap().pack().to_bytes().unwrap(), bytes);
    assert_eq!(&Pack::from_bytes(&bytes).unwrap(), builder.pack());
}

#[test]
fn what_is_wrong_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let options = Options::new(Arch::SM_80);
    let text = |result: Result<Builder, BuildError>| result.unwrap_err().to_string();
    let absent = text(Builder::new().file(at("none.tile"), &options));
    assert!(absent.starts_with("cannot read `") && absent.contains("none.tile`: "), "{absent}");
    fs::write(at("bytes.tile"), b"\xff").unwrap();
    assert!(text(Builder::new().file(at("bytes.tile"), &options)).contains("bytes.tile"));
    fs::write(at("wrong.tile"), "kernel").unwrap();
    let wrong = text(Builder::new().file(at("wrong.tile"), &options));
    assert!(wrong.contains("wrong.tile: "), "{wrong}");
    assert!(text(Builder::new().operator("gem", &[], &options)).contains("`gem`"));
    let hopper = text(Builder::new().operator("gemm_hopper", &[], &options));
    assert!(hopper.starts_with("kernel `gemm_hopper`: "), "{hopper}");
    let twice = Builder::new().operator("gemm", &[], &options).unwrap().operator("gemm", &[], &options);
    assert_eq!(text(twice), "the pack has two kernels of the name `gemm` for sm_80");
    if std::env::var_os("OUT_DIR").is_none() {
        assert!(matches!(Builder::new().write("kernels.twpack"), Err(BuildError::NoScript)));
    }
}
