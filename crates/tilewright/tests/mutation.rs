//! The simulator finds every wrong kernel that `tilewright::mutate` makes, but for those that are as right as the kernel: each is
//! named here with the reason. `docs/mutation.md` has the library's kernels at sizes that take longer.

use tilewright::check::CheckOptions;
use tilewright::compiler::Options;
use tilewright::kernels::operator;
use tilewright::machine::Arch;
use tilewright::mutate::mutate_program;
use tilewright::tile::{Program, parse};

/// Seeds of the simulator, for the kernel itself and for each mutant.
const SEEDS: u64 = 2;

// Why a mutant is as right as its kernel, where no program sees it.
const READS: &str = "it is for reads, which any arrival and any wait order";
const FIRST_WRITES: &str = "nobody has touched the buffer of the results before";
const OWN_BYTES: &str = "each thread reads the bytes that it copied itself";
const LAST: &str = "nobody waits for what it releases: it is the last of its pipeline";
const OTHER_WAY: &str = "what the other pipelines of the tile wait for orders the same";

/// Runs the mutants of a program; `equivalent` has the beginnings of the names of those that survive and that no reason of
/// `tilewright::mutate` explains, with the reason.
fn judge(
    program: &Program,
    arch: Arch,
    given: &[(&str, i64)],
    sizes: &[(&str, i64)],
    equivalent: &[(&str, &str)],
) {
    judge_with(program, arch, given, sizes, &[], equivalent);
}

/// The same with values of scalars.
fn judge_with(
    program: &Program,
    arch: Arch,
    given: &[(&str, i64)],
    sizes: &[(&str, i64)],
    scalars: &[(&str, f64)],
    equivalent: &[(&str, &str)],
) {
    let mut options = Options::new(arch).for_sizes(program, sizes);
    for (name, value) in given {
        options = options.constant(*name, *value);
    }
    let sizes = sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let scalars = scalars.iter().map(|(name, value)| (name.to_string(), (*value).into())).collect();
    let inputs = CheckOptions { sizes, scalars, ..CheckOptions::default() };
    let outcome =
        mutate_program(program, &options, &inputs, SEEDS, &|_, _| {}).unwrap_or_else(|e| panic!("{e}"));
    let survivors: Vec<String> = outcome.unexplained().map(ToString::to_string).collect();
    let name = &program.name;
    for survivor in &survivors {
        let known = equivalent.iter().any(|(start, _)| survivor.starts_with(start));
        assert!(known, "{name}: the simulator does not find `{survivor}`");
    }
    for (start, reason) in equivalent {
        let found = survivors.iter().all(|survivor| !survivor.starts_with(start));
        assert!(!found, "{name}: `{start}` is found now, though {reason}");
    }
    assert!(outcome.found() > 0, "{name}");
}

fn file(text: &str) -> Program {
    parse(text).unwrap_or_else(|e| panic!("{e}"))
}

#[test]
fn rings_of_asynchronous_copies() {
    let given = [("BM", 32), ("BN", 32), ("BK", 16), ("STAGES", 3)];
    let multistage = file(include_str!("../../../examples/gemm_multistage.tile"));
    judge(&multistage, Arch::SM_80, &given, &[("m", 64), ("n", 64), ("k", 128)], &[]);
    let w4a16 = [
        ("bm", "16"),
        ("bn", "32"),
        ("bk", "64"),
        ("kk", "64"),
        ("stages", "3"),
        ("threads", "64"),
        ("group", "64"),
        ("epilogue", "direct"),
    ];
    let w4a16 = (operator("w4a16").unwrap().programs)(&w4a16).unwrap().remove(0);
    judge(&w4a16, Arch::SM_80, &[], &[("m", 32), ("n", 64), ("k", 512)], &[]);
    let own = [
        ("delete bar.sync 0", OWN_BYTES),
        ("weaken bar.sync 0", OWN_BYTES),
        ("swap cp.async.wait", OWN_BYTES),
    ];
    judge(
        &file(include_str!("../../../tests/run/async_ring.tile")),
        Arch::SM_80,
        &[],
        &[("m", 64), ("k", 200)],
        &own,
    );
    let copies = file(include_str!("../../../tests/run/async_and_copy.tile"));
    judge(&copies, Arch::SM_80, &[], &[("m", 64), ("k", 128)], &own);
}

#[test]
fn exchanges_through_shared_memory() {
    for text in [
        include_str!("../../../tests/run/reduce.tile"),
        include_str!("../../../tests/run/gather.tile"),
        include_str!("../../../examples/transpose_bytes.tile"),
    ] {
        let program = file(text);
        let sizes: Vec<(&str, i64)> =
            program.sizes().map(|(_, symbol, _)| (symbol.name.as_str(), 128)).collect();
        judge(&program, Arch::SM_80, &[], &sizes, &[]);
    }
    let matrix = file(include_str!("../../../tests/run/rearrange_matrix.tile"));
    judge(&matrix, Arch::SM_90A, &[], &[], &[]);
}

#[test]
fn roles_of_warpgroups() {
    let given = [
        ("bm", "64"),
        ("bn", "32"),
        ("bk", "32"),
        ("stages", "2"),
        ("warpgroups", "1"),
        ("chunk", "8"),
        ("sm_count", "2"),
    ];
    let alone = (operator("gemm_hopper").unwrap().programs)(&given).unwrap().remove(0);
    // Nine tiles, of which each block has some of other rows and of other columns.
    judge(&alone, Arch::SM_90A, &[], &[("m", 192), ("n", 96), ("k", 288)], &[]);
}

#[test]
fn clusters() {
    let sums = file(include_str!("../../../tests/run/cluster_sums.tile"));
    let equivalent = [
        ("weaken mbarrier.wait.cluster to mbarrier.wait in `cluster_reduce(rc, sum)` #1", READS),
        ("weaken mbarrier.arrive.cluster to mbarrier.arrive.peer in `cluster_reduce(rc, sum)` #2", READS),
    ];
    let given = [("BN", 32), ("BK", 32)];
    judge(&sums, Arch::SM_90A, &given, &[("m", 192), ("n", 32), ("k", 640)], &equivalent);
}

#[test]
fn sums_in_tensor_memory() {
    let sums = file(include_str!("../../../tests/run/tensor_memory_gemm.tile"));
    let given = [("BM", 64), ("BN", 16), ("BK", 32), ("STAGES", 2), ("SMS", 1)];
    judge(&sums, Arch::SM_100A, &given, &[("m", 65), ("n", 32), ("k", 40)], &[]);
    // Sums that stay, scaled in branches that rows decide.
    let asking = file(include_str!("../../../tests/run/tensor_memory_rows_that_ask.tile"));
    let last = [
        ("delete tcgen05.fence::before_thread_sync in `for p_2 in 0..2` #1", LAST),
        ("delete mbarrier.arrive in `for p_2 in 0..2` #1", LAST),
    ];
    let given = [("BM", 64), ("PARTS", 2)];
    judge(&asking, Arch::SM_100A, &given, &[("m", 64), ("n", 32), ("k", 320)], &last);
    // A tile with scales has 128 rows and columns: by night.
    if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some_and(|v| v == "1") {
        let given = [("BK", 64), ("S", 4), ("SMS", 1)];
        let sizes = [("m", 136), ("n", 130), ("k", 300)];
        let scaled = file(include_str!("../../../tests/run/tensor_memory_nvfp4.tile"));
        judge(&scaled, Arch::SM_100A, &given, &sizes, &[]);
    }
}

#[test]
fn convolutions_in_tensor_memory() {
    let given = [
        ("form", "tcgen05"),
        ("bm", "64"),
        ("bn", "16"),
        ("bk", "16"),
        ("stages", "2"),
        ("warpgroups", "1"),
        ("chunk", "8"),
        ("sm_count", "1"),
        ("filter", "1x2"),
        ("padding", "0"),
    ];
    let forward = (operator("conv_hopper").unwrap().programs)(&given).unwrap().remove(0);
    // Four tiles, so that both stages of sums are used again, in two rows and two columns.
    let sizes = [("nb", 1), ("h", 7), ("w", 17), ("c", 16), ("kout", 32)];
    judge(&forward, Arch::SM_100A, &[], &sizes, &[]);
}

/// Attention in tensor memory, of which each pipeline is kept in order by the others of its tile too: by night.
#[test]
fn attention_in_tensor_memory() {
    if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_none_or(|v| v != "1") {
        return;
    }
    // Numbers count the outer blocks first: what stands behind a loop is #1, and in the loop #2; of arrivals, which stand in branches, the loop's is #1.
    let of_tile = |tile: &str| {
        let of = |words: &str, reason| (words.replace('@', tile), reason);
        let fenced = [
            "swap mbarrier.wait, tcgen05.fence::after_thread_sync",
            "delete tcgen05.fence::after_thread_sync",
        ];
        let waits =
            [("produce scores@", 2), ("produce weights@", 1)].into_iter().flat_map(|(stage, number)| {
                ["delete mbarrier.wait", fenced[0], fenced[1]]
                    .map(|words| (format!("{words} in `{stage}` #{number}"), OTHER_WAY))
            });
        let others = [
            (
                "swap tcgen05.wait::ld.sync.aligned, tcgen05.fence::before_thread_sync in `copy(s@, s",
                OTHER_WAY,
            ),
            ("delete tcgen05.fence::before_thread_sync in `copy(s@, s", OTHER_WAY),
            ("delete mbarrier.wait in `produce factors@` #2", OTHER_WAY),
            ("delete mbarrier.wait in `consume sums@` #2", OTHER_WAY),
            ("swap mbarrier.wait, tcgen05.fence::after_thread_sync in `consume sums@` #2", OTHER_WAY),
            ("delete bar.warp.sync 0xffffffff in `copy(f@[:, :, factors@.consumed], a)` #1", LAST),
            ("delete mbarrier.arrive in `copy(f@[:, :, factors@.consumed], a)` #2", LAST),
            ("delete tcgen05.commit in `gemm.async(o@, p@, transpose(xv[:, :, values.consumed]))` #2", LAST),
        ];
        waits
            .map(|(words, reason)| of(&words, reason))
            .chain(others.map(|(words, reason)| of(words, reason)))
            .collect::<Vec<_>>()
    };
    let ends = [
        "weaken mbarrier.init: one arrival more in `the barriers of pipelines` #2",
        "delete tcgen05.commit in `gemm.async(o1, p1, transpose(xv[:, :, values.consumed]))` #3",
        "delete tcgen05.commit in `gemm.async(o1, p1, transpose(xv[:, :, values.consumed]))` #4",
        "slot tcgen05.commit: the next stage's in `gemm.async(o1, p1, transpose(xv[:, :, values.consumed]))` #1",
        "delete tcgen05.fence::before_thread_sync in `for c_2_1 in 0..4` #1",
        "delete tcgen05.fence::before_thread_sync in `for c_2_2 in 0..4` #1",
        "delete mbarrier.arrive in `for c_2_1 in 0..4` #1",
        "delete mbarrier.arrive in `for c_2_2 in 0..4` #1",
    ];
    let known: Vec<(String, &str)> =
        ["0", "1"].into_iter().flat_map(of_tile).chain(ends.map(|words| (words.to_string(), LAST))).collect();
    let known: Vec<(&str, &str)> = known.iter().map(|(words, reason)| (words.as_str(), *reason)).collect();
    let attention = file(include_str!("../../../tests/run/tensor_memory_attention.tile"));
    // Polynomials take the bounds of results away, and tiles of 128 columns a second a launch.
    let given = [("D", 32), ("BN", 32), ("HARD", 2)];
    let sizes = [("b", 1), ("hq", 1), ("hk", 1), ("sq", 250), ("sk", 300)];
    judge_with(&attention, Arch::SM_100A, &given, &sizes, &[("scale", 3.0)], &known);
}

#[test]
fn tensor_copies_beside_products_of_a_warp() {
    let given = [("loads", "tma"), ("bm", "32"), ("bn", "32"), ("bk", "32"), ("kk", "16"), ("stages", "2")];
    let loaded = (operator("gemm").unwrap().programs)(&given).unwrap().remove(0);
    judge(
        &loaded,
        Arch::SM_120A,
        &[],
        &[("m", 64), ("n", 64), ("k", 160)],
        &[("delete bar.sync 2, 128 in `syncthreads()` #1", FIRST_WRITES)],
    );
}
