//! Task programs on the command line.

use crate::common::tilewright;

#[test]
fn the_tree_of_a_mapping_is_printed() {
    let printed = tilewright(&["tasks", "examples/tasks/gemm.task", "--mapping", "levels"], None);
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let lines = [
        "levels for sm_90a",
        "gemm.host on host(c = c: global, a = a: global, b = b: global) { U = 128, V = 256 } persistent(grouped(12, serpentine))",
        "fill.all on block(acc = acc: none), by default",
        "lane = gemm_add.product on thread(c = acc[w, 0][i][i2]: register, a = a[i, 0][0, kk][w, 0][i][i2]: shared, b = b[j, 0][0, kk][i][i2]: shared)",
    ];
    for line in lines {
        assert!(
            printed.out.lines().any(|printed| printed.trim() == line),
            "{line}\nis not in\n{}",
            printed.out
        );
    }
    let unknown = tilewright(&["tasks", "examples/tasks/gemm.task", "--mapping", "b200"], None);
    assert!(
        unknown.code == Some(2) && unknown.err.contains("h200, pairs, ampere, deferred, levels"),
        "{}",
        unknown.err
    );
}

#[test]
fn the_graph_of_a_mapping_is_printed() {
    let file = "examples/tasks/gemm.task";
    let of = |emit| tilewright(&["tasks", file, "--mapping", "h200", "--emit", emit], None);
    for (emit, text) in [
        ("events", "prange i"),
        ("copies", "by reference"),
        ("memory", "4 stages of 16384"),
        ("tile", "warpgroup compute(2)"),
    ] {
        let printed = of(emit);
        assert_eq!(printed.code, Some(0), "{}", printed.err);
        assert!(
            printed.out.trim_start_matches("// ").starts_with("h200 for sm_90a\n")
                && printed.out.contains(text),
            "{}",
            printed.out
        );
    }
    let picture = of("svg");
    assert!(picture.code == Some(0) && picture.out.starts_with("<svg "), "{}", picture.err);
    let all = tilewright(&["tasks", file, "--emit", "svg"], None);
    assert!(all.code == Some(2) && all.err.contains("--mapping NAME"), "{}", all.err);
    let unknown = of("ptx");
    assert!(unknown.code == Some(2) && unknown.err.contains("tree, events, copies"), "{}", unknown.err);
}

#[test]
fn task_programs_are_checked_and_formatted() {
    let files =
        ["gemm", "gemm_batched", "gemm_dual", "gemm_sum", "attention", "attention_causal", "gated", "mlp"];
    let files: Vec<String> = files.iter().map(|name| format!("examples/tasks/{name}.task")).collect();
    for command in [&["check"][..], &["fmt", "--check"]] {
        let words: Vec<&str> = command.iter().copied().chain(files.iter().map(String::as_str)).collect();
        let ran = tilewright(&words, None);
        assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    }
    let wrong = tilewright(&["check", "tests/error/task_overlap.task"], None);
    assert!(wrong.code == Some(1) && wrong.err.contains("error[overlap]"), "{}", wrong.err);
    let json = tilewright(&["check", "tests/error/task_overlap.task", "--json"], None);
    assert!(json.code == Some(1) && json.out.contains("\"code\": \"overlap\""), "{}", json.out);
}

#[test]
fn task_programs_run_as_kernels_and_by_their_interpreter() {
    let words =
        ["run", "examples/tasks/gemm_sum.task", "-p", "m=20", "-p", "n=30", "-p", "k=10", "--device", "sim"];
    let ran = tilewright(&words, None);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let texts = [
        "sm_90a, that of the mapping `h200`",
        "gemm_sum.host by the mapping h200",
        "f16[20, 30]",
        "f32[20]",
        "the same bits by the task interpreter, in two orders of the parallel iterations, and by that of the tile program",
    ];
    for text in texts {
        assert!(ran.out.contains(text), "{text}\nis not in\n{}", ran.out);
    }
    let unknown = tilewright(&["run", "examples/tasks/gemm_sum.task", "-p", "x=1"], None);
    assert!(unknown.code == Some(2) && unknown.err.contains("its sizes are m, n, k"), "{}", unknown.err);
}

#[test]
fn commands_for_kernels_take_task_programs() {
    let file = "examples/tasks/gemm.task";
    let compile = ["compile", file, "--mapping", "deferred", "--emit", "tile"];
    let tile = tilewright(&compile, None);
    assert!(tile.code == Some(0) && tile.out.contains("drain {"), "{}{}", tile.out, tile.err);
    let printed = tilewright(&["tasks", file, "--mapping", "deferred", "--emit", "tile"], None);
    assert_eq!(printed.out, format!("// deferred for sm_90a\n{}", tile.out), "{}", printed.err);
    let constant =
        tilewright(&["compile", "examples/tasks/attention.task", "-p", "D=64", "--emit", "tile"], None);
    assert!(
        constant.code == Some(0) && constant.out.contains("q: f16[l, s, 64]"),
        "{}{}",
        constant.out,
        constant.err
    );
    let unknown = tilewright(&["compile", file, "--mapping", "b200"], None);
    assert!(unknown.code == Some(2) && unknown.err.contains("h200, pairs, ampere"), "{}", unknown.err);
}
