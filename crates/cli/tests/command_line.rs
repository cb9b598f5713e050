//! Mistakes of the command line as users make them, and what is said: the argument, what is wrong with it, and what would be right.

use crate::common::tilewright;

/// The command must fail with this code and say each of these.
#[track_caller]
fn refused(args: &[&str], input: Option<&[u8]>, code: i32, says: &[&str]) {
    let run = tilewright(args, input);
    assert_eq!(run.code, Some(code), "{args:?}: {}{}", run.out, run.err);
    for text in says {
        assert!(run.err.contains(text), "{args:?} should say `{text}`:\n{}", run.err);
    }
    assert!(run.err.starts_with("error"), "{}", run.err);
    assert!(!run.err.contains("panicked") && !run.err.contains('\u{1b}'), "{}", run.err);
}

/// True on a machine without a GPU.
fn without_gpu() -> bool {
    let devices = tilewright(&["devices", "--json"], None);
    let value: serde_json::Value = serde_json::from_str(&devices.out).unwrap();
    !value["cuda_absent"].is_null()
}

#[test]
fn options_of_another_subcommand() {
    let gemm = "examples/gemm.tile";
    refused(
        &["run", gemm, "--emit", "ptx"],
        None,
        2,
        &[
            "`--emit` is an option of `tilewright compile`",
            "help: `tilewright compile examples/gemm.tile --emit ptx`",
        ],
    );
    refused(&["compile", gemm, "--emit", "sass"], None, 2, &["there is no `sass`", "ptxas -arch"]);
    refused(
        &[gemm],
        None,
        2,
        &["`examples/gemm.tile` is no subcommand", "`tilewright run examples/gemm.tile`"],
    );
}

#[test]
fn files_that_are_none() {
    refused(
        &["run", "examples"],
        None,
        1,
        &["`examples` is a folder", "`examples/", "for f in examples/*.tile"],
    );
    refused(
        &["run", "examples/gemm-shared.tile"],
        None,
        1,
        &["cannot read `examples/gemm-shared.tile`", "did you mean `examples/gemm_shared.tile`?"],
    );
    refused(&["run", "nowhere/gemm.tile"], None, 1, &["there is no folder `nowhere`"]);
    refused(&["run", "examples/zzzzzzzzzzzzzz.tile"], None, 1, &["the programs in `examples` are "]);
    let latin = b"size n = 64\n// die Gr\xf6\xdfe\nkernel k(x: f32[n]) grid(1) threads(32) { }\n";
    refused(
        &["run", "-", "--device", "sim"],
        Some(latin),
        1,
        &["line 2, column 10 (byte 21 of the file) is 0xf6, `ö` in Latin-1", "iconv -f latin1 -t utf-8"],
    );
}

#[test]
fn values_in_other_forms() {
    let run =
        |more: &[&'static str]| [&["run", "examples/transpose.tile", "--device", "sim"][..], more].concat();
    refused(&run(&["-p", "m=64,n=64"]), None, 2, &["`-p m=64,n=64` gives several", "`-p m=64 -p n=64`"]);
    refused(&run(&["-p", "m"]), None, 2, &["`-p m` is not NAME=VALUE", "`-p m=VALUE`"]);
    refused(&run(&["--seeds", "0..10"]), None, 2, &["`--seeds 0..10`", "`--sim-seed 0 --seeds 10`"]);
    refused(
        &run(&["-p", "m=64", "-p", "n=64", "--input", "alpha=0.5"]),
        None,
        2,
        &["`--input alpha=0.5`: `alpha` is a scalar", "help: `-p alpha=0.5`"],
    );
    refused(&run(&["--input", "m=64"]), None, 2, &["`m` is a size", "help: `-p m=64`"]);
    refused(
        &["kernels", "softmax", "-p", "n=1000"],
        None,
        2,
        &["`n` is a size of the problem", "tilewright kernels softmax | tilewright run - -p n=1000"],
    );
}

#[test]
fn devices_that_are_not_there() {
    refused(
        &["run", "examples/gemm.tile", "--device", "gpu"],
        None,
        2,
        &["`--device gpu`", "`--device cuda`"],
    );
    if without_gpu() {
        let cuda = ["run", "examples/gemm.tile", "--device", "cuda:3"];
        refused(&cuda, None, 1, &["error[no-device]: `--device cuda:3`", "`--device sim`"]);
        let bench = ["bench", "gemm", "--shapes", "1024,1024,1024"];
        refused(&bench, None, 1, &["`tilewright bench` measures times on a GPU", "--profile", "--estimate"]);
    }
}

#[test]
fn launches_that_are_not_possible() {
    let softmax = b"size m = 7, n = 100
const C = 2
kernel k(x: f16[m, n], y: f16[m, n]) grid(m) threads(128) cluster(C)
{
    gx = global_view(x[block.x / C :, block.x % C * 64 :], (1, 64) : (e0, e1))
    gy = global_view(y[block.x / C :, block.x % C * 64 :], (1, 64) : (e0, e1))
    r = register_tensor(f16, [1, 64])
    copy(gx, r)
    copy(r, gy)
}
";
    refused(
        &["run", "-", "--device", "sim"],
        Some(softmax),
        1,
        &[
            "error[bad-launch]: the grid has 7 blocks along x",
            "-:3:",
            "clusters of 2",
            "`grid(m * C, ",
            "ceil_div(m, C) * C",
        ],
    );
    let rows = b"size m = 100000
kernel k(x: f16[m, 32], y: f16[m, 32]) grid(1, m) threads(32)
{
    gx = global_view(x[block.y :, :], (32) : (e1))
    gy = global_view(y[block.y :, :], (32) : (e1))
    r = register_tensor(f16, [32])
    copy(gx, r)
    copy(r, gy)
}
";
    refused(
        &["run", "-", "--device", "sim"],
        Some(rows),
        1,
        &[
            "error[bad-launch]: the grid's y extent is 100000",
            "-:2:",
            "`grid(m)`, and `block.x` with `block.y`",
        ],
    );
}

#[test]
fn a_long_run_is_announced_with_sizes_that_take_less() {
    // It is refused at once where it would take hours, with the same proposal.
    let args =
        ["run", "examples/gemm.tile", "--device", "sim", "-p", "m=16384", "-p", "n=16384", "-p", "k=16384"];
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(1), "{}", run.err);
    let proposed = run.err.split('`').find(|part| part.starts_with("-p ")).unwrap_or_default().to_string();
    let small: Vec<&str> = proposed.split_whitespace().collect();
    let run = tilewright(&[&["run", "examples/gemm.tile", "--device", "sim"][..], &small].concat(), None);
    assert!(run.code == Some(0) && run.out.contains("right"), "{proposed}: {}{}", run.out, run.err);
}
