//! The command from outside: what it prints, and what it says to mistakes, with its exit codes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{refused, tilewright};
use ::tilewright::machine::{Arch, OpKey, WgmmaKind, timing};

const GEMM: &str = "examples/gemm.tile";

#[test]
fn run_reports_a_right_result() {
    let run = tilewright(&["run", GEMM, "-p", "m=100", "-p", "n=70", "-p", "k=33", "--device", "sim"], None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    for text in
        ["Tilewright simulator (sim)", "2 × 2 × 1 blocks of 128 threads", "races", "bank conflicts", "right"]
    {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
}

#[test]
fn run_names_the_lines_of_what_is_wrong_and_checks_what_it_is_told() {
    let program = "tests/wrong/no_barrier.tile";
    let run = |checks| tilewright(&["run", program, "--device", "sim", "--checks", checks], None);
    for checks in ["races", "all"] {
        let run = run(checks);
        assert_eq!(run.code, Some(1), "{}", run.out);
        for text in [
            "--> tests/wrong/no_barrier.tile:14:5",
            "thread 0 writes `s`",
            "put `syncthreads()` behind the wait",
        ] {
            assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
        }
    }
    assert!(!run("off").out.contains("race on"));
    refused(&["run", program, "--checks", "some"], None, 2, &["it is one of off, races, all"]);
}

#[test]
fn run_prints_json_for_machines() {
    let args =
        ["run", GEMM, "-p", "m=64", "-p", "n=64", "-p", "k=64", "-p", "BM=32", "--device", "sim", "--json"];
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(value["right"], true);
    assert_eq!(value["constants"]["BM"], 32);
    assert_eq!(value["grid"], serde_json::json!([2, 1, 1]));
    assert_eq!(value["simulation"]["races"], serde_json::json!([]));
}

#[test]
fn a_wrong_kernel_has_exit_code_1_and_names_the_race() {
    // Without the barrier, threads read what others have not written yet.
    let source =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/transpose.tile"));
    let racy = source.unwrap().replace("syncthreads()", "");
    let run = tilewright(&["run", "-", "-p", "m=64", "-p", "n=64", "--device", "sim"], Some(racy.as_bytes()));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    for text in ["race", "copy(transpose(s), r)", "copy(gx, s)", "WRONG"] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
}

/// An example without the first line that says this.
fn example_without(name: &str, line: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let source = std::fs::read_to_string(path).unwrap();
    assert!(source.contains(line));
    source.replacen(line, "", 1).into_bytes()
}

#[test]
fn problems_are_shown_beside_their_statements() {
    let racy = example_without("transpose.tile", "syncthreads()");
    let run = tilewright(&["run", "-", "-p", "m=64", "-p", "n=64", "--device", "sim"], Some(&racy));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    for text in
        ["--> -:15:5", "12 |     copy(gx, s)", "thread 0 writes", "= help: put `syncthreads()` between"]
    {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
}

#[test]
fn of_many_problems_ten_are_shown_and_unrolled_ones_once() {
    let mut body = String::new();
    for i in 0..12 {
        body.push_str(&format!("s{i} = shared_tensor(f32, [32, 32])\ncopy(gx, s{i})\n"));
        body.push_str(&format!("r{i} = register_tensor(f32, [32, 32])\ncopy(transpose(s{i}), r{i})\n"));
    }
    let sum = (0..12).map(|i| format!("r{i}")).collect::<Vec<_>>().join(" + ");
    let source = format!(
        "size m = 32\nkernel f(x: f32[m, 32], y: f32[m, 32]) grid(1) threads(128)\n{{\n\
         gx = global_view(x, (32, 32) : (e0, e1))\ngy = global_view(y, (32, 32) : (e0, e1))\n\
         {body}t = {sum}\ncopy(t, gy)\n}}\n"
    );
    let run = tilewright(&["run", "-", "--device", "sim"], Some(source.as_bytes()));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    assert_eq!(run.out.matches("--> -:").count(), 10, "{}", run.out);
    assert!(run.out.contains("more findings (--json lists all)"), "{}", run.out);
    // Each of four parts of a tile leaves before all of it is there.
    let barrier = "                syncthreads()\n                copy.async(sc";
    let racy = String::from_utf8(example_without("gemm_hopper.tile", barrier)).unwrap();
    let racy = racy.replace("[:, :, j % 2], gc", "copy.async(sc[:, :, j % 2], gc");
    let given =
        ["run", "-", "--device", "sim", "--arch", "sm_90a", "-p", "m=128", "-p", "n=256", "-p", "k=64"];
    let run = tilewright(&given, Some(racy.as_bytes()));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    let titles: Vec<&str> = run.out.lines().filter(|line| line.starts_with("error[")).collect();
    let distinct: std::collections::BTreeSet<&&str> = titles.iter().collect();
    assert!(!titles.is_empty() && titles.len() == distinct.len(), "{}", run.out);
}

#[test]
fn a_profile_counts_by_statement() {
    let given =
        ["run", "examples/gemm_shared.tile", "--device", "sim", "-p", "m=128", "-p", "n=128", "-p", "k=64"];
    let run = tilewright(&[&given[..], &["--profile"]].concat(), None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    for text in ["copy(ga[:, :, ki], sa)", "ldmatrix.x4", "wavefronts/request", "total", "1.00×", "right"] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    let run = tilewright(&[&given[..], &["--profile", "--json"]].concat(), None);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let rows = value["simulation"]["profile"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|r| r["instruction"] == name).unwrap();
    let product = row("mma.m16n8k16.f32.f16");
    assert_eq!((&product["class"], &product["calls"]), (&"tensor".into(), &(128 * 128 * 64 / 2048).into()));
    let copy = row("cp.async.16");
    assert_eq!(copy["bytes"]["global_read"], 128 * 64 * 2);
    assert_eq!(copy["bytes"]["shared_written"], 128 * 64 * 2);
    assert_eq!((&copy["global_sectors"], &copy["global_ideal"]), (&512.into(), &512.into()));
    let calls = |r: &serde_json::Value| r["calls"].as_u64().unwrap();
    // Moves between registers are no instructions of a GPU, but are counted.
    assert_eq!(rows.iter().map(calls).sum::<u64>(), value["simulation"]["instructions"]);
    assert!(
        rows.iter().any(|r| r["class"] == "barrier" && r["stall_cycles"].as_u64() > Some(100)),
        "{value}"
    );
    let plain = tilewright(&[&given[..], &["--json"]].concat(), None);
    assert!(!plain.out.contains("profile"), "{}", plain.out);
}

const HOPPER: [&str; 14] = [
    "run",
    "examples/gemm_hopper.tile",
    "--device",
    "sim",
    "--arch",
    "sm_90a",
    "-p",
    "m=256",
    "-p",
    "n=512",
    "-p",
    "k=512",
    "-p",
    "SMS=2",
];

#[test]
fn a_trace_shows_how_copies_and_products_overlap() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace.json");
    let run =
        tilewright(&[&HOPPER[..], &["--trace", file.to_str().unwrap(), "--trace-block", "1"]].concat(), None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    assert!(run.out.contains("ui.perfetto.dev"), "{}", run.out);
    let trace: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    let all = trace.as_array().unwrap();
    let names: Vec<&str> = all
        .iter()
        .filter(|e| e["name"] == "thread_name")
        .map(|e| e["args"]["name"].as_str().unwrap())
        .collect();
    assert!(
        names.contains(&"warp 11") && names.contains(&"TMA") && names.contains(&"tensor cores, warpgroup 2")
    );
    let events: Vec<_> = all.iter().filter(|e| e["ph"] == "X").collect();
    let time = |e: &serde_json::Value| {
        let start = e["ts"].as_u64().unwrap();
        (start, start + e["dur"].as_u64().unwrap())
    };
    // What is on a track comes one after the other.
    for pair in events.windows(2).filter(|p| p[0]["tid"] == p[1]["tid"]) {
        assert!(time(pair[0]).1 <= time(pair[1]).0, "{} {}", pair[0], pair[1]);
    }
    assert!(events.iter().all(|e| e["pid"] == 1));
    let of = |category: &str| -> Vec<(u64, u64)> {
        events.iter().filter(|e| e["cat"] == category).map(|e| time(e)).collect()
    };
    let (copies, products) = (of("copy"), of("product"));
    // Two tiles of 8 steps: 2 loads each and 4 stores; 4 products of 2 warpgroups.
    assert_eq!((copies.len(), products.len()), (2 * (8 * 2 + 4), 2 * 8 * 4 * 2));
    let overlaps = copies.iter().filter(|c| products.iter().any(|p| p.0 < c.1 && c.0 < p.1)).count();
    assert!(overlaps > copies.len() / 2, "{overlaps} of {} copies", copies.len());
    for text in ["wait ab.full[2]", "wait ab.empty[0]", "wait wgmma.wait_group"] {
        assert!(events.iter().any(|e| e["name"] == text), "{text}");
    }
    // The tensor cores do one product at a time.
    let mut sorted = products;
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|p| p[0].1 <= p[1].0));
}

#[test]
fn the_estimate_of_a_pipeline_is_near_what_its_tensor_cores_need() {
    let mut given = HOPPER.to_vec();
    given[11] = "k=2048";
    given.push("--json");
    let run = tilewright(&given, None);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let cycles = value["simulation"]["estimated_cycles"].as_u64().unwrap();
    // Two tiles of 32 steps, each 8 products, which the architecture's table has the cycles of.
    let product = timing(Arch::SM_90A).cost(OpKey::Wgmma(WgmmaKind::HalfF32, 256)).issue;
    let least = 2 * 32 * 8 * product as u64;
    assert!((least..least * 11 / 10).contains(&cycles), "{cycles}, at least {least}");
}

#[test]
fn the_report_in_the_guide_to_hopper_is_the_one_that_is_printed() {
    let guide = include_str!("../../../docs/hopper.md");
    let (_, section) = guide.split_once("## Reading the report").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    // As the guide says, one block of lines is of an odd k.
    let command = ["compile", "examples/gemm_hopper.tile", "--arch", "sm_90a", "--emit", "report"];
    let printed =
        [&[][..], &["-p", "k=1001"]].map(|given| tilewright(&[&command[..], given].concat(), None).out);
    let lines: BTreeSet<&str> = printed.iter().flat_map(|report| report.lines().map(str::trim)).collect();
    let blocks: Vec<&str> = section.split("```").skip(1).step_by(2).collect();
    let shown = blocks.iter().flat_map(|block| block.lines().skip(1)).map(str::trim);
    let shown: Vec<&str> = shown.filter(|line| !["", "…"].contains(line)).collect();
    assert!(shown.len() > 60, "{} lines", shown.len());
    let missing: Vec<&str> = shown.into_iter().filter(|line| !lines.contains(line)).collect();
    assert!(missing.is_empty(), "docs/hopper.md has lines that the report does not: {missing:#?}");
}

#[test]
fn seeds_are_run_until_one_fails() {
    let small = ["-p", "m=64", "-p", "n=64", "--device", "sim"];
    let run = tilewright(&[&["run", "examples/transpose.tile", "--seeds", "6"], &small[..]].concat(), None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    assert!(run.out.contains("seeds 0 to 5: all right"), "{}", run.out);
    let racy = example_without("transpose.tile", "syncthreads()");
    let wrong = [&["run", "-", "--seeds", "6", "--sim-seed", "3"], &small[..]].concat();
    let run = tilewright(&wrong, Some(&racy));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    for text in [
        "seed 3: 1 of 1 failed (3)",
        "replay it with: tilewright run - -p m=64 -p n=64 --device sim --sim-seed 3\n",
        "race on",
    ] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    let run = tilewright(&[&wrong[..], &["--keep-going", "--json"]].concat(), Some(&racy));
    assert_eq!(run.code, Some(1), "{}{}", run.out, run.err);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!((&value["right"], &value["seeds_run"]), (&false.into(), &6.into()));
    assert_eq!(value["failed"].as_array().unwrap().len(), 6);
    assert_eq!(value["failed"][5]["sim_seed"], 8);
    assert_eq!(value["failed"][5]["findings"][0]["code"], "race", "{value}");
}

#[test]
fn the_seed_of_inputs_is_not_the_simulators() {
    let run = |more: &[&str]| {
        let given = ["run", GEMM, "-p", "m=64", "-p", "n=64", "-p", "k=32", "--device", "sim", "--json"];
        let run = tilewright(&[&given[..], more].concat(), None);
        let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
        (value["outputs"][0]["worst"].clone(), value["sim_seed"].as_u64())
    };
    let (error, _) = run(&[]);
    assert_eq!(run(&["--sim-seed", "5"]), (error.clone(), Some(5)));
    assert_ne!(run(&["--seed", "5"]).0, error);
}

#[test]
fn mistakes_in_what_the_simulator_is_asked() {
    refused(&["run", GEMM, "--seeds", "0"], None, 2, &["--seeds"]);
    refused(&["run", GEMM, "--seeds", "3", "--profile"], None, 2, &["--profile"]);
    refused(&["run", GEMM, "--keep-going"], None, 2, &["--seeds"]);
    let last = u64::MAX.to_string();
    let beyond = ["run", GEMM, "--device", "sim", "--seeds", "2", "--sim-seed", &last];
    refused(&beyond, None, 2, &["more than there are"]);
    refused(&["run", GEMM, "--trace-block", "1"], None, 2, &["--trace"]);
    let small = ["run", GEMM, "--device", "sim", "-p", "m=16", "-p", "n=8", "-p", "k=16", "--trace"];
    refused(&[&small[..], &["/nowhere/t.json"]].concat(), None, 1, &["cannot write `/nowhere/t.json`"]);
    refused(
        &[&small[..], &["/nowhere/t.json", "--trace-block", "7"]].concat(),
        None,
        2,
        &["`--trace-block 7`: the grid has 1 blocks"],
    );
}

#[test]
fn compile_emits_every_form() {
    let cases = [
        ("tile", "kernel gemm("),
        ("layouts", "mma.m16n8k16.f32.f16"),
        ("simt", "function gemm("),
        ("ptx", ".target sm_80"),
        ("report", "assumes k % 256 == 0"),
    ];
    for (form, text) in cases {
        // With a GPU there, the default is its architecture.
        let run = tilewright(&["compile", GEMM, "--arch", "sm_80", "--emit", form], None);
        assert_eq!(run.code, Some(0), "{}", run.err);
        assert!(run.out.contains(text), "{form}: {text} is not in\n{}", run.out);
    }
    let run = tilewright(&["compile", GEMM, "--emit", "report", "--json"], None);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(value["kernel"], "gemm");
    let run = tilewright(&["compile", GEMM, "--arch", "sm_90a", "--emit", "ptx"], None);
    assert!(run.out.contains(".target sm_90a"), "{}", run.out);
    assert!(run.out.contains(&format!("{GEMM}\"\n")) && run.out.contains("    .loc 1 "), "{}", run.out);
    let run = tilewright(&["compile", GEMM, "--emit", "ptx", "--no-lines"], None);
    assert!(!run.out.contains(".file ") && !run.out.contains(".loc "), "{}", run.out);
}

#[test]
fn assertions_and_prints_are_in_ptx_where_they_are_asked_for() {
    let asserts = "kernel k(x: f32[64], y: f32[64]) grid(1) threads(64) {
        gx = global_view(x, (64) : (e0))
        gy = global_view(y, (64) : (e0))
        r = register_tensor(f32, [64])
        copy(gx, r)
        print(\"r\", r)
        assert(all(r < 2.0), \"small\")
        copy(r, gy)
    }";
    let emitted = |more: &[&str]| {
        let run = tilewright(&[&["compile", "-", "--emit"][..], more].concat(), Some(asserts.as_bytes()));
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.out
    };
    assert!(!emitted(&["ptx"]).contains("// records"));
    assert!(emitted(&["ptx", "--debug"]).contains("// records"));
    let launch: serde_json::Value = serde_json::from_str(&emitted(&["launch", "--debug"])).unwrap();
    assert_eq!(launch["params"].as_array().unwrap().last().unwrap()["kind"], "records");
    let run = tilewright(&["run", "-", "--device", "sim", "--debug"], Some(asserts.as_bytes()));
    assert!(run.out.contains("-:6: r [block (0, 0, 0)]") && run.out.ends_with("right\n"), "{}", run.out);
}

#[test]
fn the_text_of_a_core_program_is_compiled_and_run() {
    let args = ["compile", GEMM, "--arch", "sm_80", "--emit"];
    let emitted = |form: &str| tilewright(&[&args[..], &[form]].concat(), None).out;
    let core = emitted("core");
    let again = |args: &[&str]| {
        let run = tilewright(args, Some(core.as_bytes()));
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.out
    };
    // Each has the lines of its own text.
    let ptx = tilewright(&[&args[..], &["ptx", "--no-lines"]].concat(), None).out;
    assert_eq!(again(&["compile", "-", "--arch", "sm_80", "--emit", "ptx", "--no-lines"]), ptx);
    let with_lines = again(&["compile", "-", "--arch", "sm_80", "--emit", "ptx"]);
    assert!(with_lines.contains("/gemm.tile\"\n") && with_lines.contains("    .loc 1 "), "{with_lines}");
    assert_eq!(again(&["compile", "-", "--arch", "sm_80", "--emit", "core"]), core);
    assert!(again(&["compile", "-", "--emit", "passes"]).starts_with("// after multi-buffer (unchanged)"));
    let sizes = ["-p", "m=64", "-p", "n=64", "-p", "k=64"];
    assert!(again(&[&["run", "-", "--device", "sim"], &sizes[..]].concat()).contains("right"));
    refused(&["mutate", "-"], Some(core.as_bytes()), 2, &["takes a tile program"]);
    refused(&["candidates", "-"], Some(core.as_bytes()), 2, &["takes a tile program"]);
    let wrong = core.replacen("define", "defines", 1);
    refused(
        &["compile", "-"],
        Some(wrong.as_bytes()),
        1,
        &["error[syntax]", "`defines` does not begin a statement"],
    );
}

#[test]
fn the_architecture_is_the_least_that_has_everything() {
    let program = "kernel k(x: f32[64], y: f32[64]) grid(1) threads(128) {
        gx = global_view(x, (64) : (e0))
        gy = global_view(y, (64) : (e0))
        s = shared_tensor(f32, [64])
        r = register_tensor(f32, [64])
        p = pipeline(2, s)
        produce p { copy.async(gx, s) }
        consume p { copy(s, r) }
        copy(r, gy)
    }";
    let said = "the least that has `pipeline` (line 6)";
    let run = tilewright(&["run", "-", "--device", "sim"], Some(program.as_bytes()));
    assert!(run.code == Some(0) && run.out.contains(&format!("sm_90a, {said}")), "{}{}", run.out, run.err);
    let json = tilewright(&["run", "-", "--device", "sim", "--json"], Some(program.as_bytes()));
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((&value["arch"], &value["arch_because"]), (&"sm_90a".into(), &said.into()));
    for command in
        [&["run", "-", "--device", "sim", "--seeds", "2"][..], &["candidates", "-", "--device", "sim"]]
    {
        let run = tilewright(command, Some(program.as_bytes()));
        assert!(
            run.code == Some(0) && run.err.contains(&format!("arch: sm_90a, {said}")),
            "{command:?} {}",
            run.err
        );
    }
    // These open no device: with a GPU in the machine they compile for it.
    for command in [["compile", "-"], ["mutate", "-"]] {
        let run = tilewright(&command, Some(program.as_bytes()));
        assert!(run.code == Some(0) && run.err.contains("arch: sm_90a, "), "{command:?} {}", run.err);
    }
    for command in ["run", "compile", "candidates", "mutate"] {
        let words =
            ["`pipeline` needs transaction barriers, which sm_80 does not have", "-:6:", "--arch sm_90a"];
        refused(&[command, "-", "--arch", "sm_80"], Some(program.as_bytes()), 1, &words);
    }
}

#[test]
fn warnings_are_said_and_may_be_denied() {
    let program =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/warned/grid_short_in_rows.tile"))
            .unwrap();
    let args = ["run", "-", "--device", "sim", "-p", "m=100"];
    let run = tilewright(&args, Some(&program));
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    for text in ["warning[partly-written]", "rows 64..99", "`ceil_div(m, BM)` is 2", "right where written"] {
        assert!(run.out.contains(text), "`{text}` is not in\n{}", run.out);
    }
    let denied = tilewright(&[&args[..], &["--deny", "warnings"]].concat(), Some(&program));
    assert!(denied.code == Some(1) && denied.out.contains("error[partly-written]"), "{}", denied.out);
    let json = tilewright(&[&args[..], &["--deny", "warnings", "--json"]].concat(), Some(&program));
    let value: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!((json.code, &value["verdict"]), (Some(1), &"right where written".into()));
    assert_eq!(
        (&value["warnings"][1]["code"], value["warnings"].as_array().unwrap().len()),
        (&"partly-written".into(), 2)
    );
    assert!(value["warnings"][1]["line"].as_u64().is_some(), "{value}");
    let seeds = tilewright(&[&args[..], &["--deny", "warnings", "--seeds", "2"]].concat(), Some(&program));
    assert!(seeds.code == Some(1) && seeds.out.contains("rows 64..99"), "{}", seeds.out);
    let whole =
        ["run", GEMM, "--device", "sim", "-p", "m=70", "-p", "n=50", "-p", "k=20", "--deny", "warnings"];
    assert_eq!(tilewright(&whole, None).code, Some(0));
}

#[test]
fn the_shared_gemm_uses_wide_accesses_and_no_conflicts() {
    let run = tilewright(&["compile", "examples/gemm_shared.tile", "--emit", "layouts", "--json"], None);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let mut fragments = 0;
    for statement in value["statements"].as_array().unwrap() {
        assert_eq!(statement["bank_conflicts"], 0, "{statement}");
        // Every load of a fragment moves 512 bytes a call.
        let instruction = statement["instruction"].as_str().unwrap();
        if instruction == "ldmatrix.x4" || instruction == "ld.shared.v4.b32" {
            fragments += 1;
        }
        let global = statement["global_bytes"].as_u64().unwrap();
        assert!(global == 0 || global == 16, "{statement}");
    }
    assert_eq!(fragments, 3);
}

#[test]
fn compile_writes_a_file_and_reports_one_it_cannot_write() {
    let path: PathBuf = std::env::temp_dir().join(format!("tilewright-{}.ptx", std::process::id()));
    let name = path.to_string_lossy().into_owned();
    let run = tilewright(&["compile", GEMM, "--emit", "ptx", "-o", &name], None);
    assert_eq!((run.code, run.out.as_str()), (Some(0), ""), "{}", run.err);
    assert!(std::fs::read_to_string(&path).unwrap().contains(".entry gemm"));
    std::fs::remove_file(&path).unwrap();
    refused(&["compile", GEMM, "-o", "/nowhere/x.ptx"], None, 1, &["cannot write `/nowhere/x.ptx`"]);
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_a_closed_pipe_is_not() {
    let shell = |script: &str| {
        let binary = env!("CARGO_BIN_EXE_tilewright");
        let output = Command::new("sh")
            .args(["-c", &script.replace("TW", binary)])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!err.contains("panicked"), "{script}: {err}");
        (output.status.code(), err)
    };
    for command in ["layout 4:1", "devices", "compile examples/gemm.tile --emit ptx"] {
        let (code, err) = shell(&format!("TW {command} > /dev/full"));
        assert!(code == Some(1) && err.contains("cannot write to standard output"), "{command}: {err}");
        assert_eq!(shell(&format!("TW {command} | true")).0, Some(0));
    }
}

#[test]
fn assumptions_can_be_given() {
    let run = tilewright(&["compile", GEMM, "--assume", "k=8"], None);
    assert!(run.out.contains("assumes k % 8 == 0") && !run.out.contains("assumes m"), "{}", run.out);
    refused(&["compile", GEMM, "--assume", "q=8"], None, 1, &["`q` is not a size of the program"]);
    refused(&["compile", GEMM, "--assume", "k=0"], None, 1, &["cannot be assumed to be a multiple of 0"]);
    refused(&["compile", GEMM, "--assume", "k"], None, 2, &["is not SIZE=MULTIPLE"]);
}

#[test]
fn mistakes_in_files() {
    refused(&["run", "no/such/file.tile"], None, 1, &["cannot read `no/such/file.tile`"]);
    refused(&["run", "examples"], None, 1, &["`examples` is a folder"]);
    refused(&["run", "-"], Some(b""), 1, &["error"]);
    refused(&["run", "-"], Some(&[0xff, 0xfe, 0, 1, 2, 0x80]), 1, &["not a text file"]);
    refused(&["run", "-"], Some(b"\0\x01\x02ELF"), 1, &["error"]);
    let long = vec![b'a'; 10 << 20];
    refused(&["run", "-"], Some(&long), 1, &["larger than 1 MiB"]);
    let line = vec![b'a'; 900_000];
    refused(&["run", "-"], Some(&line), 1, &["error"]);
    let nested = "(".repeat(300_000);
    let program = format!("const A = {nested}");
    refused(&["compile", "-"], Some(program.as_bytes()), 1, &["error"]);
}

#[test]
fn mistakes_in_values() {
    let run = |value: &'static str| ["run", GEMM, "--device", "sim", "-p", value];
    refused(&run("m=0"), None, 2, &["`m` must be at least 1"]);
    refused(&run("m=-1"), None, 2, &["`m` must be at least 1"]);
    refused(&run("m=abc"), None, 2, &["`m` is a size, and `abc` is not an integer"]);
    refused(&run("m=99999999999999999999"), None, 2, &["not an integer"]);
    refused(&run("m=4000000000"), None, 2, &["at most 2145386496"]);
    refused(&run("m=2145386496"), None, 1, &["elements"]);
    refused(&run("q=1"), None, 2, &["the program has no `q`", "its sizes are m, n, k", "BM, BN, BK"]);
    refused(&run("m"), None, 2, &["is not NAME=VALUE"]);
    refused(
        &run("BM=17"),
        None,
        1,
        &["no matrix instruction tiles a product of 17×64×16", "examples/gemm.tile"],
    );
    refused(&run("BM=0"), None, 1, &["divides by zero", "examples/gemm.tile"]);
    refused(&run("BM=-64"), None, 1, &["error", "examples/gemm.tile"]);
    refused(&["run", GEMM, "-p", "m=8", "-p", "m=9"], None, 2, &["`m` is given twice"]);
    refused(
        &["run", "examples/transpose.tile", "-p", "alpha=1e300"],
        None,
        2,
        &["not a number of its range"],
    );
    refused(&["compile", GEMM, "--assume", "k=8", "--assume", "k=16"], None, 2, &["`k` is given twice"]);
    refused(
        &["run", GEMM, "--arch", "sm_75"],
        None,
        2,
        &["`sm_75` is not supported", "sm_80, sm_86, sm_87, sm_89, sm_90a, sm_100a"],
    );
    refused(&["run", GEMM, "--device", "tpu"], None, 2, &["tpu"]);
    refused(&["run", GEMM, "--frobnicate"], None, 2, &["--frobnicate"]);
    refused(&["compile", GEMM, "--emit", "ptx", "--json"], None, 2, &["--json"]);
}

#[test]
fn cuda_without_a_driver_is_refused_and_auto_takes_the_simulator() {
    let devices = tilewright(&["devices", "--json"], None);
    let value: serde_json::Value = serde_json::from_str(&devices.out).unwrap();
    let small = ["-p", "m=16", "-p", "n=8", "-p", "k=16"];
    let with = |device: &'static str| [&["run", GEMM, "--device", device][..], &small[..]].concat();
    let auto = tilewright(&with("auto"), None);
    assert_eq!(auto.code, Some(0), "{}{}", auto.out, auto.err);
    assert!(auto.out.contains("chosen by --device auto"), "{}", auto.out);
    if value["cuda_absent"].is_null() {
        assert_eq!(tilewright(&with("cuda"), None).code, Some(0));
        assert!(auto.out.contains("(cuda"), "{}", auto.out);
    } else {
        refused(&with("cuda"), None, 1, &["CUDA is not available"]);
        assert!(auto.out.contains("(sim"), "{}", auto.out);
    }
}

#[test]
fn the_calculator_answers_one_expression_or_one_a_line() {
    let run = tilewright(&["layout", "((2,2),(4,2)):((1,8),(2,16)) (22)"], None);
    assert_eq!((run.code, run.out.trim()), (Some(0), "26"), "{}", run.err);
    refused(&["layout", "compose((6,2):(1,12), 4:5)"], None, 1, &["error"]);
    let run = tilewright(&["layout", "-"], Some(b"8:1\nnonsense(\n4:2 (1)\n"));
    assert_eq!(run.code, Some(1));
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (3, "8:1", "2"), "{}", run.out);
    assert!(lines[1].starts_with("error: "), "{}", run.out);
}

#[test]
fn help_is_there_for_a_newcomer() {
    let run = tilewright(&["--help"], None);
    assert!(run.out.contains("Begin with: tilewright run examples/gemm_shared.tile"), "{}", run.out);
    for command in ["run", "compile", "layout", "devices", "bench"] {
        assert_eq!(tilewright(&[command, "--help"], None).code, Some(0));
    }
}

#[test]
fn runs_that_cannot_end_soon_are_refused_before_they_begin() {
    let kernel = |grid: &str, len: &str| {
        format!(
            "size n = 64\nkernel k(x: f32[{len}], y: f32[{len}]) grid({grid}) threads(32) {{
                 gx = global_view(x, (64) : (e0))\n gy = global_view(y, (64) : (e0))
                 r = register_tensor(f32, [64])\n copy(gx, r)\n copy(r, gy)\n}}"
        )
    };
    let many = kernel("2147483647", "n");
    for args in [
        vec!["run", "-", "--device", "sim"],
        vec!["run", "-", "--device", "sim", "--seeds", "2"],
        vec!["mutate", "-"],
        vec!["candidates", "-", "--device", "sim"],
    ] {
        refused(&args, Some(many.as_bytes()), 1, &["2147483647 blocks of about", "--force"]);
    }
    // Rounds of a loop count, and those of the tiles of one block.
    let rounds =
        kernel("1", "n").replace("copy(r, gy)\n", "for i in 0..2000000000 { copy(gx, r) }\n copy(r, gy)\n");
    refused(&["run", "-", "--device", "sim"], Some(rounds.as_bytes()), 1, &["1 blocks of about", "--force"]);
    let large = kernel("1", "n, n").replace("(64) : (e0)", "(1, 64) : (e0, e1)").replace("[64]", "[1, 64]");
    refused(
        &["run", "-", "--device", "sim", "-p", "n=1000000"],
        Some(large.as_bytes()),
        1,
        &["the tensors have 2000000000000 elements", "GiB of memory are needed", "--force"],
    );
    refused(&["calibrate", "--device", "sim"], None, 2, &["minutes", "--quick", "--force"]);
    // What is forced begins.
    let run = tilewright(&["run", "-", "--device", "sim", "--force"], Some(kernel("1", "n").as_bytes()));
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
}

#[test]
fn calibrate_prints_a_table_that_compile_takes() {
    // It takes 20 s: by day the table that ships is taken.
    let table = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() {
        let run = tilewright(&["calibrate", "--device", "sim", "--quick"], None);
        assert_eq!(run.code, Some(0), "{}", run.err);
        for text in ["arch: sm_90a", "the simulator's own model", "ldmatrix.x4 ", "# built in: "] {
            assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
        }
        run.out
    } else {
        include_str!("../../machine/tables/sm_90a.txt").to_string()
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("own.txt");
    std::fs::write(&file, table).unwrap();
    let file = file.to_str().unwrap();
    let args = ["compile", GEMM, "--arch", "sm_90a", "--timing", file, "--emit", "ptx"];
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    refused(
        &["compile", GEMM, "--arch", "sm_80", "--timing", file],
        None,
        2,
        &["is a table of sm_90a; the program is compiled for sm_80"],
    );
    std::fs::write(file, "arch: sm_80\nldmatrix.x8 lsu 1 1 mine\n").unwrap();
    refused(
        &["run", GEMM, "--device", "sim", "--timing", file],
        None,
        2,
        &["line 2: `ldmatrix.x8`", "did you mean"],
    );
    refused(&["compile", GEMM, "--timing", "no/such"], None, 1, &["cannot read `no/such`"]);
}

#[test]
fn calibrate_writes_its_kernels() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    let run = tilewright(&["calibrate", "--ptx-dir", path, "--arch", "sm_80"], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let ptx = std::fs::read_to_string(dir.path().join("latency_ldmatrix_x4_64.sm_80.ptx")).unwrap();
    assert_eq!(ptx.matches("ldmatrix.sync.aligned.m8n8.x4.shared.b16 ").count(), 64);
    refused(&["calibrate", "--device", "gpu"], None, 2, &["`gpu` is not a device"]);
}

#[test]
fn candidates_are_run_and_compared() {
    let given = ["-p", "m=40", "-p", "n=24", "-p", "k=48", "-p", "BM=32", "-p", "BN=32"];
    let mut args = vec!["candidates", "examples/gemm_shared.tile", "--device", "sim", "--json"];
    args.extend(given);
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    let all = value["candidates"].as_array().unwrap();
    assert!(all.len() > 5 && all.iter().all(|c| c["agrees"] == true), "{value}");
    assert_eq!(all.iter().filter(|c| c["candidate"]["chosen"] == true).count(), 1);
    args.retain(|a| *a != "--json");
    let run = tilewright(&args, None);
    assert!(run.out.contains("the chosen one takes"), "{}", run.out);
}

#[test]
fn mutants_are_run_and_counted() {
    let mut args = vec!["mutate", "examples/gemm_multistage.tile", "--seeds", "2"];
    args.extend(["-p", "m=40", "-p", "n=24", "-p", "k=100", "-p", "BM=32", "-p", "BN=32", "-p", "BK=16"]);
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    for text in ["delete 9/9, weaken 5/5, swap 2/2", "reuse 2/2", "0 survivors without a reason"] {
        assert!(run.out.contains(text), "{}", run.out);
    }
    args.push("--json");
    let run = tilewright(&args, None);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert_eq!(value["unexplained"], 0, "{value}");
    assert!(value["mutants"].as_array().unwrap().iter().any(|m| m["found"]["by"] == "race"), "{value}");
    refused(&["mutate", "examples/gemm.tile", "--seeds", "0"], None, 2, &["once at least"]);
}

#[test]
fn fidelity_compares_the_simulator_with_the_rows() {
    let run = tilewright(&["fidelity", "--device", "sim", "--blocks", "1"], None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    assert!(run.out.contains("rows agree: Tilewright simulator and the rows' own evaluation"), "{}", run.out);
    let run = tilewright(&["fidelity", "--device", "sim", "--blocks", "1", "--json"], None);
    let value: serde_json::Value = serde_json::from_str(&run.out).unwrap();
    assert!(value["right"] == true && value["rows"].as_array().unwrap().len() > 100, "{value}");
    refused(&["fidelity", "--blocks", "0"], None, 2, &["from 1 to 1024"]);
    refused(&["fidelity", "--device", "gpu"], None, 2, &["`gpu` is not a device"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let run = tilewright(&["fidelity", "--ptx-dir", path, "--arch", "sm_80"], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(folder.path().join("fidelity_0.sm_80.ptx").exists());
}

#[test]
fn a_candidate_can_be_asked_for_and_parts_left_out() {
    let text = |more: &[&str]| {
        let mut args = vec!["compile", "examples/gemm_shared.tile", "--arch", "sm_90a"];
        args.extend(more);
        let run = tilewright(&args, None);
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.out
    };
    assert!(text(&["--candidate", "1"]).contains("asked for by number"));
    assert!(text(&["--budget", "2"]).contains("the budget of 2 candidates is spent"));
    assert!(!text(&["--without", "shared-layouts"]).contains("layout  Sw<"));
    assert!(text(&["--without", "thread-values"]).contains("ra_moved"));
    assert!(text(&["--emit", "report"]).contains("constraints of component 0"));
    assert!(text(&["--emit", "report"]).contains("sa: 16 G2S, 16 S2R"));
    let gemm = "examples/gemm_shared.tile";
    refused(
        &["compile", gemm, "--candidate", "999"],
        None,
        1,
        &["there is no candidate 999", "--emit report"],
    );
    refused(&["compile", gemm, "--budget", "0"], None, 2, &["at least"]);
}

#[test]
fn layouts_of_a_program_can_be_drawn() {
    let gemm = "examples/gemm_shared.tile";
    let run = tilewright(&["compile", gemm, "-p", "BM=16", "-p", "BN=16", "--draw", "ra"], None);
    assert!(run.out.contains("T0V0"), "{}", run.out);
    let run = tilewright(&["compile", gemm, "--draw", "sa", "--draw-as", "svg"], None);
    assert!(run.out.starts_with("<svg"), "{}", run.out);
    refused(
        &["compile", gemm, "--draw", "nothing"],
        None,
        1,
        &["no register or shared tensor `nothing`", "sa, sb"],
    );
}
