//! Files with several kernels, functions and a space.

use crate::common::tilewright;

const TWO: &str = "tests/run/two_kernels.tile";

#[test]
fn kernels_run_one_after_another() {
    let args = ["run", TWO, "--device", "sim", "-p", "rows=5"];
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    for text in ["parts for", "whole for", "2 kernels one after another: right"] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    let seeds = tilewright(&[&args[..], &["--seeds", "3"]].concat(), None);
    assert_eq!(seeds.code, Some(0), "{}{}", seeds.out, seeds.err);
    assert!(seeds.out.contains("seeds 0 to 2: all right"), "{}", seeds.out);
    let one = tilewright(&[&args[..], &["--kernel", "whole", "--json"]].concat(), None);
    let value: serde_json::Value = serde_json::from_str(&one.out).unwrap();
    assert_eq!((&value["kernel"], &value["right"]), (&"whole".into(), &true.into()));
    // A constant of the space is one of both kernels, and `BN` of the first alone.
    assert_eq!(value["constants"], serde_json::json!({ "SPLITS": 4 }));
    let unknown = tilewright(&[&args[..], &["--kernel", "third"]].concat(), None);
    assert!(unknown.code == Some(2) && unknown.err.contains("has parts, whole"), "{}", unknown.err);
}

#[test]
fn sizes_of_other_kernels_are_left_aside() {
    let file: &[u8] = b"size v = 77, n = 1000
kernel zero(h: i32[v]) grid(ceil_div(v, 128)) threads(128) {
    gh = global_view(h[block.x * 128 :], (128) : (e0))
    r = register_tensor(i32, [128])
    fill(r, 0)
    copy(r, gh)
}
kernel count(x: i32[n], h: i32[v]) grid(ceil_div(n, 128)) threads(128) {
    gx = global_view(x[block.x * 128 :], (128) : (e0))
    gh = global_view(h, (v) : (e0))
    r = register_tensor(i32, [128])
    unit = register_tensor(i32, [128])
    fill(unit, 1)
    copy(gx, r, outside = -1)
    copy(unit, gh[r], add)
}
";
    let given = ["run", "-", "--device", "sim", "-p", "n=300", "-p", "v=17", "--input", "x=0..17"];
    for (kernel, said) in [(None, "2 kernels"), (Some("zero"), "v=17"), (Some("count"), "n=300 v=17")] {
        let asked = kernel.map(|name| ["--kernel", name]);
        // The first kernel has no `x`.
        let args = if kernel == Some("zero") { &given[..8] } else { &given[..] };
        let run = tilewright(&[args, asked.as_ref().map_or(&[][..], |a| &a[..])].concat(), Some(file));
        assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
        assert!(run.out.contains(said) && run.out.contains("right"), "{}", run.out);
    }
    let unknown = tilewright(&["run", "-", "--device", "sim", "-p", "k=3"], Some(file));
    assert_eq!(unknown.code, Some(2), "{}", unknown.out);
    assert!(
        unknown.err.contains("the file has no `k`; its sizes are v, n, its constants none"),
        "{}",
        unknown.err
    );
}

#[test]
fn operators_of_several_programs_are_one_file() {
    for (operator, given, sizes, count) in [
        ("histogram", &[][..], &["-p", "n=300", "-p", "v=17", "--input", "x=0..17"][..], "2 kernels"),
        ("rmsnorm_backward", &["-p", "split=2"], &["-p", "m=5", "-p", "n=17"], "3 kernels"),
        ("gemm_hopper", &["-p", "split=2"], &["-p", "m=70", "-p", "n=40", "-p", "k=160"], "2 kernels"),
    ] {
        let file = tilewright(&[&["kernels", operator], given].concat(), None);
        assert_eq!((file.code, file.err.as_str()), (Some(0), ""));
        let run = tilewright(
            &[&["run", "-", "--device", "sim", "--arch", "sm_90a"], sizes].concat(),
            Some(file.out.as_bytes()),
        );
        assert_eq!(run.code, Some(0), "{operator}: {}{}", run.out, run.err);
        assert!(run.out.contains(&format!("{count} one after another: right")), "{}", run.out);
    }
}

#[test]
fn inputs_and_outputs_are_those_of_all_kernels() {
    let folder = tempfile::tempdir().unwrap();
    let output = format!("o={}", folder.path().join("o.npy").display());
    let args = ["run", "tests/run/decode_in_two_kernels.tile", "--device", "sim", "--output", &output];
    let inputs = ["--input", "len=1..500", "--input", "table=0..32", "--input", "q=normal(0, 1)"];
    let run = tilewright(&[&args[..], &inputs].concat(), None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    // 2 sequences, 2 heads of 8 queries, 128 elements of 2 bytes.
    assert_eq!(std::fs::metadata(folder.path().join("o.npy")).unwrap().len(), 128 + 2 * 2 * 8 * 128 * 2);
}

#[test]
fn each_kernel_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("two.ptx");
    let out = file.display().to_string();
    let run = tilewright(&["compile", TWO, "--emit", "ptx", "--arch", "sm_80", "-o", &out], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    for name in ["parts", "whole"] {
        let text = std::fs::read_to_string(folder.path().join(format!("two.{name}.ptx"))).unwrap();
        assert!(text.contains(&format!(".entry {name}")), "{text}");
    }
    // Printed, they are one module.
    let module = tilewright(&["compile", TWO, "--emit", "ptx", "--arch", "sm_80"], None);
    assert_eq!(module.code, Some(0), "{}", module.err);
    let count = |text: &str| module.out.lines().filter(|line| line.starts_with(text)).count();
    assert_eq!(
        [".version", ".target", ".file", ".visible .entry"].map(count),
        [1, 1, 1, 2],
        "{}",
        module.out
    );
    let printed = tilewright(&["compile", TWO, "--emit", "tile"], None);
    assert_eq!(printed.out.matches("kernel ").count(), 2, "{}", printed.out);
    assert!(printed.out.contains("space { SPLITS = 2 | 4 | 8 }") && !printed.out.contains("weight("));
    let again = tilewright(&["run", "-", "--device", "sim", "-p", "rows=3"], Some(printed.out.as_bytes()));
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
}

#[test]
fn a_space_is_ranked_by_estimate() {
    let args = ["tune", TWO, "--device", "sim", "-p", "rows=64"];
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    for text in ["ranked by estimate", "SPLITS=8", "the file's own values", "3 assignments, 0 refused"] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    let pinned = tilewright(&[&args[..], &["-p", "SPLITS=2"]].concat(), None);
    assert!(pinned.code == Some(2) && pinned.err.contains("has a value already"), "{}", pinned.err);
    let without = tilewright(&["tune", "examples/gemm.tile", "--device", "sim"], None);
    assert!(
        without.code == Some(2) && without.err.contains("declare one before the kernel"),
        "{}",
        without.err
    );
}

#[test]
fn a_mistake_in_a_function_shows_the_function_and_the_call() {
    let source = b"fn both(x) {
    o = register_tensor(f32, [32])
    y = x + o
    return y
}
kernel k(x: f32[64]) grid(1) threads(32) {
    gx = global_view(x, (64) : (e0))
    r = register_tensor(f32, [64])
    copy(gx, r)
    t = both(r)
    copy(t, gx)
}
";
    let run = tilewright(&["compile", "-"], Some(source));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    for text in ["shape-mismatch", "y = x + o", "t = both(r)", "in this call of `both`"] {
        assert!(run.err.contains(text), "{text} is not in\n{}", run.err);
    }
}
