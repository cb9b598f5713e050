//! Task programs on the command line.

mod common;

use common::tilewright;

#[test]
fn the_tree_of_a_mapping_is_printed() {
    let printed = tilewright(&["tasks", "examples/tasks/gemm.task", "--mapping", "levels"], None);
    assert_eq!(printed.code, Some(0), "{}", printed.err);
    let lines = [
        "levels for sm_90a",
        "gemm.host on host(c = c: global, a = a: global, b = b: global) { U = 128, V = 256 } persistent(grouped(12, serpentine))",
        "clear.zero on block(x = acc: none), by default",
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
        unknown.code == Some(2) && unknown.err.contains("h200, ampere, deferred, levels"),
        "{}",
        unknown.err
    );
}

#[test]
fn the_graph_of_a_mapping_is_printed() {
    let file = "examples/tasks/gemm.task";
    let of = |emit| tilewright(&["tasks", file, "--mapping", "h200", "--emit", emit], None);
    for (emit, text) in [("events", "prange i"), ("copies", "by reference"), ("memory", "4 stages of 16384")]
    {
        let printed = of(emit);
        assert_eq!(printed.code, Some(0), "{}", printed.err);
        assert!(
            printed.out.starts_with("h200 for sm_90a\n") && printed.out.contains(text),
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
    let files = ["gemm", "gemm_batched", "gemm_dual", "gemm_sum", "attention", "attention_causal", "mlp"];
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
fn task_programs_run_by_their_interpreter() {
    let words = ["run", "examples/tasks/gemm_sum.task", "-p", "m=20", "-p", "n=30", "-p", "k=10"];
    let ran = tilewright(&words, None);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for text in ["gemm_sum.host by the mapping h200, run by the task interpreter", "f16[20, 30]", "f32[20]"] {
        assert!(ran.out.contains(text), "{}", ran.out);
    }
    let device = tilewright(&[&words[..], &["--device", "sim"]].concat(), None);
    assert!(device.code == Some(2) && device.err.contains("not compiled to kernels yet"), "{}", device.err);
    let unknown = tilewright(&["run", "examples/tasks/gemm_sum.task", "-p", "x=1"], None);
    assert!(unknown.code == Some(2) && unknown.err.contains("its sizes are m, n, k"), "{}", unknown.err);
    for command in ["compile", "candidates", "view", "mutate"] {
        let refused = tilewright(&[command, "examples/tasks/gemm.task"], None);
        assert!(refused.code == Some(2) && refused.err.contains("tasks are not compiled"), "{}", refused.err);
    }
}
