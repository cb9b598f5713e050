//! Operators from outside: their programs, what the tuner ranks, records and chooses, models, and benches.

use crate::common::{self, refused, tilewright};

#[test]
fn kernels_lists_operators_and_prints_programs_that_run() {
    let run = tilewright(&["kernels"], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    for text in [
        "gemm: c[m, n]",
        "w4a16: c[m, n]",
        "gemm_hopper: c[m, n]",
        "(since sm_90a)",
        "stages",
        "epilogue",
        "group",
    ] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    for (operator, given) in
        [("gemm", ["-p", "stages=3", "-p", "bm=64"]), ("w4a16", ["-p", "bk=64", "-p", "kk=32"])]
    {
        let program =
            tilewright(&[["kernels", operator, "--emit", "tile"].as_slice(), &given].concat(), None);
        assert_eq!(program.code, Some(0), "{}", program.err);
        let sizes = ["run", "-", "-p", "m=33", "-p", "n=70", "-p", "k=100", "--device", "sim"];
        let run = tilewright(&sizes, Some(program.out.as_bytes()));
        assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
        assert!(run.out.contains("right"), "{}", run.out);
    }
}

#[test]
fn kernels_says_what_there_is() {
    refused(
        &["kernels", "conv"],
        None,
        2,
        &["no operator `conv`", "gemm, gemm_hopper, gemm_fp8_blocks, w4a16"],
    );
    refused(
        &["kernels", "gemm", "-p", "tile=4"],
        None,
        2,
        &["no parameter `tile`", "bm, bn, bk, kk, widen, stages"],
    );
    refused(&["kernels", "gemm", "-p", "bm"], None, 2, &["NAME=VALUE"]);
    refused(&["kernels", "gemm", "-p", "bm=64", "-p", "bm=32"], None, 2, &["given twice"]);
    refused(&["kernels", "gemm", "-p", "bm=x"], None, 2, &["`bm` = x", "integer"]);
    refused(&["kernels", "gemm", "--step", "2"], None, 2, &["`--step 2`", "`gemm` is 1 program"]);
    refused(&["kernels", "gemm_hopper", "-p", "split=4", "--step", "0"], None, 2, &["is 2 programs"]);
    let second = tilewright(&["kernels", "gemm_hopper", "-p", "split=4", "--step", "2"], None);
    assert!(
        second.out.contains("kernel split_sum") && second.err.contains("program 2 of 2"),
        "{}",
        second.err
    );
    refused(&["kernels", "gemm", "-p", "bm=100"], None, 2, &["`bm` = 100", "multiple of 16"]);
    refused(&["kernels", "w4a16", "-p", "group=32"], None, 2, &["`group` = 32", "multiple of bk"]);
    refused(&["kernels", "-p", "bm=64"], None, 2, &["operator"]);
}

#[test]
fn tune_without_a_gpu_ranks_by_estimate_and_records_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (cache, report) = (folder.path().join("cache"), folder.path().join("report.json"));
    let (cache_text, report_text) = (cache.display().to_string(), report.display().to_string());
    let shapes = folder.path().join("shapes.txt");
    std::fs::write(&shapes, "# three numbers, or names\n256,512,512\nm=16 n=512 k=512 dtype=bf16\n").unwrap();
    let shapes = shapes.display().to_string();
    let args = ["tune", "gemm", "--shapes", &shapes, "--device", "sim", "--top", "3", "--cache", &cache_text];
    let args = [&args[..], &["--json", &report_text, "--arch", "sm_80"]].concat();
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(0), "{}{}", run.out, run.err);
    for text in [
        "gemm m=256 n=512 k=512 on Tilewright simulator for sm_80: ranked by estimate, nothing is measured and nothing is recorded",
        "gemm m=16 n=512 k=512 dtype=bf16 on",
        "refused by rules",
    ] {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    assert!(!cache.exists() && run.err.is_empty(), "{}", run.err);
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    let problems = value["problems"].as_array().unwrap();
    assert_eq!((problems.len(), problems[0]["from"].as_str()), (2, Some("estimate")));
    let entries = problems[0]["report"]["entries"].as_array().unwrap();
    assert!(entries.len() >= 3 && entries[0]["microseconds"].is_null(), "{entries:#?}");
}

#[test]
fn shards_share_out_a_list_of_problems() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = folder.path().join("shapes.txt");
    std::fs::write(&shapes, "64,64,64\n128,64,64\n192,64,64\n").unwrap();
    let shapes = shapes.display().to_string();
    let common = ["tune", "gemm", "--shapes", &shapes, "--device", "sim", "--top", "1", "--shard"];
    let of = |shard: &str| tilewright(&[&common[..], &[shard]].concat(), None);
    let (first, second) = (of("1/2"), of("2/2"));
    let has = |run: &common::Run, m: i64| run.out.contains(&format!("gemm m={m} n=64 k=64 on"));
    assert_eq!([64, 128, 192].map(|m| has(&first, m)), [true, false, true], "{}", first.out);
    assert_eq!([64, 128, 192].map(|m| has(&second, m)), [false, true, false], "{}", second.out);
    let none = of("4/4");
    assert_eq!((none.code, none.out.contains("0 problems")), (Some(0), true), "{}", none.out);
    for wrong in ["0/2", "3/2", "1", "a/b", "1/0"] {
        refused(&[&common[..], &[wrong]].concat(), None, 2, &["must be I/N with I from 1 to N, such as 2/4"]);
    }
    let several = ["tune", "gemm", "--shapes", &shapes, "--devices", "0,1"];
    refused(&[&several[..], &["--device", "sim"]].concat(), None, 2, &["cannot be used with"]);
    refused(&["tune", "gemm", "--shapes", &shapes, "--devices", "0,x"], None, 2, &["`--devices x`"]);
}

#[test]
fn searches_at_the_same_time_report_in_the_order_of_the_list() {
    let folder = tempfile::tempdir().unwrap();
    let shapes = folder.path().join("shapes.txt");
    let sizes = [512, 64, 128, 1024, 192];
    let lines: String = sizes.iter().map(|m| format!("{m},64,64\n")).collect();
    // A problem that a line ahead has, in other words, is tuned once.
    let lines = lines + "m=512 n=64 k=64\n";
    std::fs::write(&shapes, lines).unwrap();
    let shapes = shapes.display().to_string();
    let common = ["tune", "gemm", "--shapes", &shapes, "--device", "sim", "--top", "1", "--searches"];
    let of = |searches: &str| {
        let run = tilewright(&[&common[..], &[searches]].concat(), None);
        assert_eq!(run.code, Some(0), "{}", run.err);
        // Without the seconds that it took.
        run.out.lines().filter(|line| !line.contains("compiler")).map(str::to_string).collect::<Vec<_>>()
    };
    let one = of("1");
    assert_eq!(one.iter().filter(|line| line.contains("n=64 k=64 on")).count(), sizes.len());
    assert_eq!(of("4"), one);
    refused(&[&common[..], &["0"]].concat(), None, 2, &["0 is not in 1..=16"]);
}

#[test]
fn records_are_merged_into_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let lines: Vec<&str> = ::tilewright::tune::SHIPPED[0].1.lines().take(3).collect();
    std::fs::write(path("a"), format!("{}\n{}\n", lines[0], lines[1])).unwrap();
    std::fs::write(path("b"), format!("{}\n{}\n", lines[1], lines[2])).unwrap();
    let run = tilewright(&["records", "merge", &path("a"), &path("b"), "-o", &path("c")], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    assert!(run.out.starts_with("3 records of 2 files in") && run.out.contains("0 left out"), "{}", run.out);
    assert_eq!(std::fs::read_to_string(path("c")).unwrap().lines().count(), 3);
    // Nothing is written where a file is wrong.
    std::fs::write(path("b"), "no record\n").unwrap();
    refused(
        &["records", "merge", &path("a"), &path("b"), "-o", &path("a")],
        None,
        1,
        &["line 1: it cannot be read"],
    );
    assert_eq!(std::fs::read_to_string(path("a")).unwrap().lines().count(), 2);
    refused(&["records", "merge", &path("a")], None, 2, &["--output"]);
    refused(&["records", "merge", &path("none"), "-o", &path("c")], None, 1, &["none"]);
}

#[test]
fn the_largest_sizes_can_be_ranked() {
    for operator in ["gemm", "gemm_hopper", "gemm_fp8_blocks", "w4a16"] {
        let most = ["-p", "m=2145386496", "-p", "n=2145386496", "-p", "k=2145386496"];
        let args = [&["tune", operator, "--device", "sim", "--top", "1"], &most[..]].concat();
        let run = tilewright(&args, None);
        assert_eq!(run.code, Some(0), "{operator}: {}{}", run.out, run.err);
    }
}

#[test]
fn a_problem_that_cannot_be_tuned_does_not_stop_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let (report, shapes) = (folder.path().join("report.json"), folder.path().join("shapes.txt"));
    std::fs::write(&shapes, "64,64,64 stages=32 bk=256\n64,64,64\n").unwrap();
    let (shapes, report_text) = (shapes.display().to_string(), report.display().to_string());
    let args =
        ["tune", "gemm_hopper", "--shapes", &shapes, "--device", "sim", "--top", "1", "--json", &report_text];
    let run = tilewright(&args, None);
    assert_eq!(run.code, Some(1), "{}", run.err);
    assert!(
        run.err.contains("shared memory") && run.out.contains("gemm_hopper m=64 n=64 k=64 on"),
        "{}",
        run.out
    );
    assert!(run.out.contains("2 problems, 0 from the cache, 1 without a result"), "{}", run.out);
    let value: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert!(value["problems"][0]["error"].as_str().unwrap().contains("suits gemm_hopper m=64"), "{value}");
    assert_eq!(value["problems"][1]["from"], "estimate");
    assert_eq!(value["totals"]["problems"], 2);
}

#[test]
fn kernels_are_chosen_for_a_problem() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().display().to_string();
    let common = ["--for", "m=16,n=512,k=1024", "--device", "sim", "--cache", &cache];
    let line = tilewright(&[&["kernels", "gemm_hopper", "--config-only"], &common[..]].concat(), None);
    assert_eq!(line.code, Some(0), "{}", line.err);
    assert!(line.out.ends_with('\n') && line.out.lines().count() == 1, "{}", line.out);
    let said =
        "nearby: no record of m<=16/16 n<=512/16 k<=1024/16 for Tilewright simulator; measured on NVIDIA H";
    assert!(line.err.starts_with(said), "{}", line.err);
    let whole = tilewright(&[&["kernels", "gemm_hopper", "-p", "dtype=bf16"], &common[..]].concat(), None);
    assert_eq!(whole.code, Some(0), "{}", whole.err);
    assert!(whole.out.contains("kernel gemm_hopper") && whole.out.contains("bf16"), "{}", whole.out);
    // What is printed is a program with the chosen parameters.
    let given = line.out.split_whitespace().flat_map(|pair| ["-p", pair]);
    let args: Vec<&str> = ["kernels", "gemm_hopper", "-p", "dtype=bf16"].into_iter().chain(given).collect();
    assert_eq!(tilewright(&args, None).out, whole.out);
}

/// The parts of the choice's estimate and of its rivals', of a product without a record and of one with.
#[test]
fn kernels_say_why_they_are_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().display().to_string();
    let common = ["--device-name", "NVIDIA H200", "--cache", &cache, "--why", "--for"];
    let sizes = ["m=3000,n=2000,k=4096", "m=4096,n=4096,k=4096", "m=2048,n=2048,k=2041"];
    let mut text = String::new();
    for sizes in sizes {
        let run = tilewright(&[&["kernels", "gemm_hopper"], &common[..], &[sizes]].concat(), None);
        assert_eq!(run.code, Some(0), "{}", run.err);
        text.push_str(&format!("## --for {sizes}\n{}\n", run.out));
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/why.txt");
    if std::env::var_os("TILEWRIGHT_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(text, expected, "TILEWRIGHT_BLESS=1 writes {} anew", path.display());
    refused(&["kernels", "gemm", "--why"], None, 2, &["--for"]);
}

/// A model is fitted to timings, found in the cache by the next choice, and given by name.
#[test]
fn calibrate_fits_a_model_that_choices_read() {
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str| folder.path().join(name).display().to_string();
    let (timings, cache, own) = (of("timings.jsonl"), of("cache"), of("own.txt"));
    // A device on which every launch takes 10 µs.
    let lines: Vec<String> = [(256, 64), (256, 128), (256, 256), (512, 64), (512, 128), (512, 512)]
        .into_iter()
        .map(|(mn, k)| {
            format!(
                r#"{{"device":"NVIDIA Test","operator":"gemm_hopper","sizes":{{"m":{mn},"n":{mn},"k":{k}}},"configuration":"bm=64 bn=64 stages=4 warpgroups=1","microseconds":{}}}"#,
                12.0 + f64::from(k) / 256.0
            )
        })
        .collect();
    std::fs::write(&timings, lines.join("\n")).unwrap();
    let run = tilewright(&["calibrate", "--model", "--timings", &timings, "--cache", &cache], None);
    assert_eq!(run.code, Some(0), "{}", run.err);
    for text in ["group", "gemm_hopper", "launch", "do not decide them: ", "the model of NVIDIA Test is in "]
    {
        assert!(run.out.contains(text), "{text} is not in\n{}", run.out);
    }
    let path = run.out.trim_end().rsplit(' ').next().unwrap();
    let model = std::fs::read_to_string(path).unwrap();
    assert!(model.starts_with("device: NVIDIA Test\n") && model.contains("fitted to 6 timings"), "{model}");
    let why = |more: &[&str]| {
        let args = ["kernels", "gemm_hopper", "--for", "m=256,n=256,k=256", "--why", "--device-name"];
        tilewright(&[&args[..], &["NVIDIA Test"], more].concat(), None)
    };
    assert!(why(&["--cache", &cache]).out.contains("by the model of NVIDIA Test"));
    let empty = of("empty");
    assert!(why(&["--cache", &empty]).out.contains("by the model of NVIDIA H200"));
    // A model that is given, of another device, is taken with a note; one that is wrong is refused with its line.
    std::fs::write(&own, "device: mine\nlaunch 100 us guessed\n").unwrap();
    let given = why(&["--cache", &empty, "--model", &own]);
    assert!(given.out.contains("100.00") && given.err.contains("the model is that of mine"), "{}", given.out);
    std::fs::write(&own, "device: mine\nlaunch 100 ms guessed\n").unwrap();
    let wrong = ["own.txt: line 2: `launch` is in us, not in `ms`"];
    refused(&["calibrate", "--model", "--timings", &timings, "--from", &own], None, 1, &wrong);
    refused(
        &["tune", "gemm", "-p", "m=64", "-p", "n=64", "-p", "k=64", "--device", "sim", "--model", &own],
        None,
        1,
        &wrong,
    );
    refused(&["calibrate", "--timings", &timings], None, 2, &["--model"]);
    refused(&["calibrate", "--model", "--device", "sim"], None, 1, &["measures times", "--timings FILE"]);
    std::fs::write(&timings, "{}\n").unwrap();
    refused(&["calibrate", "--model", "--timings", &timings], None, 1, &["line 1: it is no timing"]);
    std::fs::write(&timings, "").unwrap();
    refused(&["calibrate", "--model", "--timings", &timings], None, 1, &["there are none"]);
}

#[test]
fn tune_says_what_is_wrong_with_the_command_line() {
    let sizes = ["-p", "m=64", "-p", "n=64", "-p", "k=64"];
    let fail = |args: &[&str], says: &[&str]| refused(args, None, 2, says);
    fail(&["tune"], &["required"]);
    fail(&["tune", "gemmm"], &["no operator `gemmm`"]);
    fail(&["tune", "gemm", "-p", "m=64"], &["size `n` of `gemm` is not given; its sizes are m, n, k"]);
    fail(&["tune", "gemm", "-p", "m=x"], &["the size `m` is not an integer"]);
    fail(&["tune", "gemm", "-p", "m=1", "-p", "m=2"], &["`m` is given twice"]);
    fail(&["tune", "gemm", "-p", "m"], &["is not NAME=VALUE"]);
    fail(&[&["tune", "gemm", "-p", "bq=1"], &sizes[..]].concat(), &["no parameter `bq`"]);
    fail(
        &[&["tune", "gemm", "--budget=-1"], &sizes[..]].concat(),
        &["`--budget -1` is no number of seconds"],
    );
    fail(&[&["tune", "gemm", "--top", "0"], &sizes[..]].concat(), &["1..=10000"]);
    fail(&["tune", "gemm", "--shapes", "no/such/file"], &["cannot read `no/such/file`"]);
    fail(&["kernels", "gemm", "--config-only"], &["--for"]);
    let attention =
        ["kernels", "attention", "--for", "b=4,hq=16,hk=4,sq=4096,sk=4096", "--config-only", "--arch"];
    let pinned = |arch: &'static str, given: &[&'static str]| {
        let given = given.iter().flat_map(|pair| ["-p", pair]);
        attention.into_iter().chain([arch]).chain(given).collect::<Vec<_>>()
    };
    let chosen = tilewright(&pinned("sm_100a", &["form=tcgen05"]), None);
    assert!(chosen.code == Some(0) && chosen.out.contains("form=tcgen05"), "{} {}", chosen.out, chosen.err);
    let lacks = "sm_90a lacks tcgen05, which sm_100a has";
    refused(&pinned("sm_90a", &["form=tcgen05"]), None, 1, &[lacks]);
    refused(
        &pinned("sm_100a", &["form=tcgen05", "d=256"]),
        None,
        1,
        &["suits attention", "d=256 form=tcgen05 on sm_100a", "one is refused: `bn` = 32: needs 576 columns"],
    );
    refused(
        &pinned("sm_100a", &["form=tcgen05", "stages=0"]),
        None,
        1,
        &["suits attention", "form=tcgen05 stages=0 on sm_100a", "`stages` = 0: must be 1 to 8"],
    );
    fail(&pinned("sm_90a", &["warpgroups=0"]), &["`warpgroups` = 0: must be at least 1"]);
    let weights = ["kernels", "gemm_weights", "--for", "m=16,n=4096,k=4096", "-p", "blocks=0"];
    fail(&weights, &["`blocks` = 0: must be at least 1"]);
    fail(&["kernels", "gemm", "--for", "m=64"], &["size `n` of `gemm` is not given"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.jsonl");
    std::fs::write(&file, "{}\n").unwrap();
    let file = file.display().to_string();
    refused(&["tune", "--refresh-hashes", &file], None, 1, &["line 1: it cannot be read"]);
    std::fs::write(&file, "16,16\n").unwrap();
    fail(&["tune", "gemm", "--shapes", &file], &["records.jsonl, line 1", "size `k` of `gemm` is not given"]);
    std::fs::write(&file, "# nothing\n").unwrap();
    fail(&["tune", "gemm", "--shapes", &file], &["has no shapes"]);
    let impossible = ["tune", "gemm_hopper", "-p", "stages=32", "-p", "bk=256", "--device", "sim"];
    refused(
        &[&impossible, &sizes[..]].concat(),
        None,
        1,
        &["configurations of `gemm_hopper` suits", "shared memory"],
    );
}

#[test]
fn bench_says_what_is_wrong_with_its_arguments() {
    let gemm = |more: &[&'static str]| [&["bench", "gemm"], more].concat();
    refused(&["bench"], None, 2, &["gemm"]);
    refused(&gemm(&["--vs", "mkl"]), None, 2, &["`--vs mkl`", "it is one of cublaslt"]);
    refused(&gemm(&["--dtype", "f64"]), None, 2, &["it is one of f16, bf16, e4m3, i8"]);
    refused(&gemm(&["--shapes", "64,64,64", "64,64"]), None, 2, &["`64,64` is not a shape", "M,N,K,BATCHES"]);
    refused(&gemm(&["--shapes-file", "no/such"]), None, 1, &["cannot read `no/such`"]);
    refused(&gemm(&["--condition", "hot"]), None, 2, &["`hot` is not a condition", "rested, sustained"]);
    refused(&gemm(&["--rounds", "0"]), None, 2, &["`--rounds 0`"]);
    refused(&gemm(&["--rest=-1"]), None, 2, &["`--rest -1`", "from 0 to 600 seconds"]);
    refused(&gemm(&["--rest", "nan"]), None, 2, &["from 0 to 600 seconds"]);
    refused(&gemm(&["--operator", "conv"]), None, 2, &["no operator `conv`"]);
    refused(&gemm(&["-p", "bn"]), None, 2, &["NAME=VALUE"]);
    refused(&gemm(&["-p", "bn=7"]), None, 2, &["`bn` = 7", "multiple of 8"]);
    refused(&gemm(&["--device", "gpu"]), None, 2, &["`gpu` is not a device"]);
    refused(&gemm(&["--device", "sim"]), None, 1, &["the simulator has no clock"]);
}

#[test]
fn bench_needs_a_gpu() {
    let devices = tilewright(&["devices", "--json"], None);
    let list: serde_json::Value = serde_json::from_str(&devices.out).unwrap();
    if list["devices"].as_array().unwrap().len() == 1 {
        let args = ["bench", "gemm", "--vs", "cublaslt", "--shapes", "64,64,64"];
        refused(&args, None, 1, &["CUDA is not available"]);
    }
}
