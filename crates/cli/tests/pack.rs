//! `tilewright pack`: what is built is listed, and compiles to the same again.

use crate::common::tilewright;
use ::tilewright::pack::{Class, Pack, Span};

/// The command fails with 1, and says why.
fn refused(args: &[&str], text: &str) {
    let run = tilewright(args, None);
    assert_eq!(run.code, Some(1), "{args:?}: {}{}", run.out, run.err);
    assert!(run.err.contains(text), "{args:?} should say `{text}`:\n{}", run.err);
}

#[test]
fn kernels_are_kept_listed_and_compiled_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (first, both) = (path("first.twpack"), path("both.twpack"));
    let build =
        ["pack", "build", "examples/gemm_shared.tile", "-p", "m=256", "--arch", "sm_80", "-o", &first];
    let run = tilewright(&build, None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.starts_with("1 kernels, "), "{}", run.out);
    let bytes = std::fs::read(&first).unwrap();
    // The same again, byte by byte.
    tilewright(&build, None);
    assert_eq!(std::fs::read(&first).unwrap(), bytes);

    let parts = [&build[..], &["--workspace", "c"]].concat();
    assert_eq!(tilewright(&parts, None).code, Some(0));
    assert_ne!(std::fs::read(&first).unwrap(), bytes);
    assert_eq!(tilewright(&["pack", "verify", &first], None).out, "gemm_shared: the same code and recipe\n");
    tilewright(&build, None);
    refused(
        &[&build[..], &["--workspace", "d"]].concat(),
        "no kernel has a tensor `d`, of which `--workspace`",
    );

    // Classes of operators are listed, and stay with their kernels.
    let mut pack = Pack::from_bytes(&bytes).unwrap();
    let mut class = Class::new("gemm", ["gemm_shared".to_string()]);
    class.sizes = vec![Span::new("m", 1, 4096).multiples_of(256)];
    class.device = "a GPU".into();
    pack.add_class(class).unwrap();
    std::fs::write(&first, pack.to_bytes().unwrap()).unwrap();

    let hopper =
        ["pack", "build", "examples/gemm_hopper.tile", "--name", "hopper", "--with", &first, "-o", &both];
    let run = tilewright(&hopper, None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let list = tilewright(&["pack", "list", &both], None).out;
    assert!(
        list.contains("gemm_shared: sm_80, PTX of ") && list.contains("hopper: sm_90a, PTX of "),
        "{list}"
    );
    assert!(
        list.contains(
            "sizes m (multiples of 256), n (multiples of 256), k (multiples of 256), with its program"
        ),
        "{list}"
    );
    assert!(list.ends_with("gemm: m from 1 to 4096 by 256, chosen for a GPU\n    gemm_shared\n"), "{list}");
    let run = tilewright(&["pack", "verify", &both], None);
    assert_eq!(run.out, "gemm_shared: the same code and recipe\nhopper: the same code and recipe\n");
    assert_eq!(run.code, Some(0));

    refused(
        &["pack", "build", "examples/gemm_shared.tile", "--with", &first, "-o", &both],
        "the pack has two kernels of the name `gemm_shared` for sm_80",
    );
    let mut damaged = bytes.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&both, damaged).unwrap();
    refused(&["pack", "list", &both], "the pack is damaged");
    refused(&["pack", "verify", "examples/gemm.tile"], "this is no pack");
    refused(&["pack", "list", &path("none.twpack")], "cannot be read");
}

#[test]
fn binaries_are_kept_beside_the_text() {
    if std::env::var_os("TILEWRIGHT_PTXAS").is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI has no ptxas: set TILEWRIGHT_PTXAS");
        eprintln!("no TILEWRIGHT_PTXAS: no binary is made");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("both.twpack").display().to_string();
    let program = "examples/transpose.tile";
    let build = |arch: &str, binaries: &[&str]| {
        let mut args = vec!["pack", "build", program, "--arch", arch, "-o", &file];
        binaries.iter().for_each(|arch| args.extend(["--binary", arch]));
        tilewright(&args, None)
    };
    let run = build("sm_80", &["sm_90", "sm_86"]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let list = tilewright(&["pack", "list", &file], None).out;
    let at = |text: &str| list.find(text).unwrap_or_else(|| panic!("{text}: {list}"));
    assert!(
        at("PTX of ") < at("a binary for 8.6 of ") && at("a binary for 8.6 of ") < at("a binary for 9.0 of ")
    );
    assert!(list.starts_with("made by tilewright 0.1.0, hash "), "{list}");
    let run = tilewright(&["pack", "verify", &file], None);
    assert_eq!(run.out, "transpose: the same code and recipe; its 2 binaries are not compared\n");
    for (arch, binary, text) in [
        ("sm_80", "86", "`86` is no architecture of `--binary`, as `sm_86` is"),
        ("sm_90a", "sm_80", "no binary of `transpose` for sm_80: ptxas "),
        ("sm_80", "sm_75", "no binary of `transpose` for sm_75: ptxas "),
    ] {
        let run = build(arch, &[binary]);
        assert_eq!(run.code, Some(1), "{}", run.out);
        assert!(run.err.contains(text), "{}", run.err);
    }
}
