//! `tilewright view`.

use crate::common::tilewright;
use serde_json::Value;

fn data(args: &[&str]) -> Value {
    let run = tilewright(&[&["view"], args, &["--json", "-o", "-"]].concat(), None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    serde_json::from_str(&run.out).unwrap()
}

#[test]
fn a_page_has_every_statement_with_its_line_its_instruction_and_its_cost() {
    let page = data(&["examples/gemm_shared.tile", "-p", "m=128", "-p", "n=128", "-p", "k=64"]);
    let kernel = &page["kernels"][0];
    assert_eq!(
        (kernel["run"]["right"].as_bool(), kernel["run"]["verdict"].as_str()),
        (Some(true), Some("right"))
    );
    let text = std::fs::read_to_string("../../examples/gemm_shared.tile").unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let statements = kernel["statements"].as_array().unwrap();
    let mut products = 0;
    for statement in statements.iter().filter(|s| s["place"].is_object()) {
        let line = lines[statement["place"]["line"].as_u64().unwrap() as usize - 1];
        let said = statement["text"].as_str().unwrap();
        let word = said.split(['(', ' ']).next().unwrap();
        assert!(line.contains(word), "{said}: {line}");
        if statement["kind"] == "product" {
            products += 1;
            assert_eq!(statement["choices"][0]["instruction"], "mma.m16n8k16.f32.f16");
            assert!(statement["costs"].as_array().unwrap().iter().any(|row| row["class"] == "tensor"));
            assert_eq!(statement["tensors"], serde_json::json!(["rc", "ra", "rb"]));
        }
    }
    assert_eq!(products, 1);
    // Every `mma.sync` of the PTX is of the product.
    let lines = kernel["ptx"]["lines"].as_array().unwrap();
    let of = kernel["ptx"]["statements"].as_array().unwrap();
    let mma = lines.iter().zip(of).filter(|(line, _)| line.as_str().unwrap().contains("mma.sync"));
    let kinds: Vec<&Value> =
        mma.map(|(_, index)| &statements[index.as_u64().unwrap() as usize]["kind"]).collect();
    assert!(kinds.len() >= 32 && kinds.iter().all(|kind| *kind == "product"), "{kinds:?}");
    // The copies to registers have requests to the tensors that they read.
    let requests = kernel["run"]["requests"].as_array().unwrap();
    let of = |name: &str| requests.iter().filter(|r| r["tensor"] == name).count();
    assert!(of("sa") >= 2 && of("sb") >= 2, "{requests:?}");
    assert!(requests.iter().all(|r| r["wavefronts"] == r["ideal"]), "{requests:?}");
}

#[test]
fn a_run_that_takes_long_is_one_at_smaller_sizes() {
    let page = data(&["examples/gemm_hopper.tile", "-p", "m=8192", "-p", "n=8192", "-p", "k=8192"]);
    let kernel = &page["kernels"][0];
    assert_eq!(kernel["sizes"]["m"], 8192);
    let run = &kernel["run"];
    assert_eq!(run["smaller"], true);
    for size in ["m", "n", "k"] {
        assert_eq!(run["sizes"][size].as_i64().unwrap() % 256, 0, "what the kernel assumes");
    }
    // Each stage is filled before it is freed.
    let phases = run["timeline"]["phases"].as_array().unwrap();
    for stage in 0..4 {
        let of = phases.iter().filter(|p| p["block"] == 0 && p["stage"] == stage);
        let ends: Vec<bool> = of.map(|p| p["full"].as_bool().unwrap()).collect();
        assert!(
            !ends.is_empty() && ends.iter().enumerate().all(|(i, full)| *full == (i % 2 == 0)),
            "{ends:?}"
        );
    }
    let roles: Vec<&str> =
        kernel["roles"].as_array().unwrap().iter().map(|role| role["name"].as_str().unwrap()).collect();
    assert_eq!(roles, ["load", "math"]);
}

#[test]
fn warnings_are_on_the_page_and_without_a_run_there_are_no_costs() {
    let page = data(&["tests/lint/unused_tensor.tile", "--no-run"]);
    let kernel = &page["kernels"][0];
    let messages = kernel["messages"].as_array().unwrap();
    assert!(
        messages.iter().any(|m| m["code"] == "unused-tensor" && m["place"]["line"].is_u64()),
        "{messages:?}"
    );
    assert!(kernel["run"].is_null());
    assert_eq!(kernel["not_run"], "a run was not asked for");
}

#[test]
fn a_page_is_written_where_it_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("page.html");
    let run = tilewright(&["view", "examples/transpose.tile", "-o", &out.display().to_string()], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.err.contains("page.html"), "{}", run.err);
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.contains("\"kernels\":[{"));
    let wrong = tilewright(&["view", "no/such.tile"], None);
    assert_eq!(wrong.code, Some(1));
}
