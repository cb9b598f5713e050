//! One matrix product of a warpgroup for each combination of element types, majors, swizzle and place of the left factor, and one tensor
//! copy for each rank, swizzle, edge, multicast and kind, each from a tile program of its own: the simulator agrees with the
//! interpreter, and the code holds the instruction that was meant.
//!
//! With `TILEWRIGHT_HOPPER_DIR` the programs are written there, for `scripts/gpu-check --dir`, which runs them on a GPU.

use std::fmt::Write;
use std::path::Path;

use tilewright::check::{CheckOptions, check};
use tilewright::compiler::{Options, compile};
use tilewright::layout::SwizzledLayout;
use tilewright::machine::{Arch, DType, SwizzleMode};
use tilewright::runtime::SimDevice;
use tilewright::synth::async_layout::descriptor::swizzle_atom_layout;
use tilewright::tile::parse;

/// A program, and the instruction that it is about.
struct Case {
    name: String,
    source: String,
    /// Texts that the PTX has.
    has: Vec<String>,
}

fn layout(shape: &[i64], along: usize, mode: SwizzleMode, bits: u32) -> SwizzledLayout {
    swizzle_atom_layout(shape, along, mode, bits)
        .unwrap_or_else(|| panic!("{shape:?} along {along} with {mode}"))
}

fn short(mode: SwizzleMode) -> u32 {
    if mode == SwizzleMode::None { 0 } else { mode.span() }
}

/// A product of 64×n by `k`, with both factors in shared memory or the left one in registers.
fn product(
    (a, b, c): (DType, DType, DType),
    n: i64,
    mode: SwizzleMode,
    (a_mn, b_mn): (bool, bool),
    registers: bool,
) -> Case {
    // Two rows of the widest swizzle along K: every layout has more than one span somewhere.
    let k = 2048 / i64::from(a.bits());
    let operand =
        |rows: i64, mn: bool, dtype: DType| layout(&[rows, k], usize::from(!mn), mode, dtype.bits());
    let (sa, sb) = (operand(64, a_mn, a), operand(n, b_mn, b));
    // What is contiguous along M or N lies so in global memory too.
    let buffer = |name: &str, rows: i64, mn: bool, dtype: DType| {
        if mn { format!("{name}: {dtype}[{k}, {rows}]") } else { format!("{name}: {dtype}[{rows}, {k}]") }
    };
    let view = |mn: bool| if mn { "(e1, e0)" } else { "(e0, e1)" };
    let (pa, pb) = (buffer("a", 64, a_mn, a), buffer("b", n, b_mn, b));
    let (load, left) = if registers {
        (format!("ra = register_tensor({a}, [64, {k}])\n            copy(sa, ra)"), "ra")
    } else {
        (String::new(), "sa")
    };
    let source = format!(
        "kernel product({pa}, {pb}, c: {c}[64, {n}]) grid(1) threads(256)
{{
    ga = global_view(a, (64, {k}) : {})
    gb = global_view(b, ({n}, {k}) : {})
    gc = global_view(c, (64, {n}) : (e0, e1))
    sa = shared_tensor({a}, [64, {k}], layout = {sa})
    sb = shared_tensor({b}, [{n}, {k}], layout = {sb})
    p = pipeline(1, sa, sb)
    warpgroup load(1) {{
        produce p {{
            copy.async(ga, sa)
            copy.async(gb, sb)
        }}
    }}
    warpgroup math(1) {{
        rc = register_tensor({c}, [64, {n}])
        fill(rc, 0.0)
        consume p {{
            {load}
            gemm.async(rc, {left}, sb)
            commit_gemm()
            wait_gemm(0)
        }}
        copy(rc, gc)
    }}
}}
",
        view(a_mn),
        view(b_mn)
    );
    let major = |mn: bool| if mn { "mn" } else { "k" };
    let from = if registers { "registers".to_string() } else { major(a_mn).to_string() };
    Case {
        name: format!("wgmma_{a}_{b}_{c}_n{n}_{from}_{}_sw{}", major(b_mn), short(mode)),
        source,
        has: vec!["wgmma.mma_async.sync.aligned.m64n".to_string()],
    }
}

fn products() -> Vec<Case> {
    use DType::{BF16, E4M3, E5M2, F16, F32, I8, I32, U8};
    let mut cases = Vec::new();
    for types in [(F16, F16, F32), (F16, F16, F16), (BF16, BF16, F32)] {
        for mode in SwizzleMode::ALL {
            for b_mn in [false, true] {
                cases.push(product(types, 64, mode, (false, b_mn), false));
                cases.push(product(types, 64, mode, (true, b_mn), false));
                cases.push(product(types, 64, mode, (false, b_mn), true));
            }
        }
    }
    let narrow = [
        (F32, F32, F32),
        (E4M3, E4M3, F32),
        (E4M3, E5M2, F32),
        (E5M2, E4M3, F16),
        (E5M2, E5M2, F16),
        (I8, I8, I32),
        (U8, U8, I32),
    ];
    for types in narrow {
        for mode in SwizzleMode::ALL {
            for registers in [false, true] {
                cases.push(product(types, 32, mode, (false, false), registers));
            }
        }
    }
    for n in (1..=32).map(|i| 8 * i) {
        cases.push(product((F16, F16, F32), n, SwizzleMode::B128, (false, false), false));
    }
    cases
}

/// A tile of a buffer of `rank` modes to shared memory and back to another buffer, by tensor copies.
fn copies(rank: usize, mode: SwizzleMode, edge: bool, cluster: u32, dtype: DType, add: bool) -> Case {
    let row = i64::from(mode.span().max(32) * 8 / dtype.bits());
    // Row-major buffers: the last mode is contiguous. Past the edge the tile reaches by part of every mode.
    let mut tile = vec![2; rank];
    tile[rank - 1] = row;
    if rank > 1 {
        // Each block of a cluster copies whole repetitions of the swizzle: 8 rows.
        tile[rank - 2] = 8 * i64::from(cluster.max(2));
    }
    let shape: Vec<i64> = tile.iter().map(|e| if edge { *e + e / 2 } else { 2 * e }).collect();
    let start: Vec<i64> = tile.iter().map(|e| if edge { *e } else { 0 }).collect();
    let list = |items: &[i64]| items.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    let offsets: Vec<String> = start.iter().map(|s| format!("{s} :")).collect();
    let steps: Vec<String> = (0..rank).map(|d| format!("e{d}")).collect();
    let s = layout(&tile, rank - 1, mode, dtype.bits());
    let (extents, dims) = (list(&tile), list(&shape));
    let (view, steps) = (offsets.join(", "), steps.join(", "));
    let (multicast, clusters) =
        if cluster > 1 { (", multicast", format!(" cluster({cluster})")) } else { ("", String::new()) };
    let added = if add { ", add" } else { "" };
    let place = if cluster > 1 {
        // Each block writes its own copy, one behind the other along mode 0.
        let mut first = offsets.clone();
        first[0] = format!("{} + block.x * {} :", start[0], shape[0]);
        first.join(", ")
    } else {
        view.clone()
    };
    let mut target = shape.clone();
    target[0] *= i64::from(cluster);
    let source = format!(
        "kernel moves(x: {dtype}[{dims}], y: {dtype}[{}]) grid({cluster}) threads(256){clusters}
{{
    gx = global_view(x[{view}], ({extents}) : ({steps}))
    gy = global_view(y[{place}], ({extents}) : ({steps}))
    sx = shared_tensor({dtype}, [{extents}], layout = {s})
    sy = shared_tensor({dtype}, [{extents}], layout = {s})
    p = pipeline(1, sx)
    warpgroup load(1) {{
        produce p {{ copy.async(gx, sx{multicast}) }}
    }}
    warpgroup store(1) {{
        r = register_tensor({dtype}, [{extents}])
        consume p {{ copy(sx, r) }}
        copy(r, sy)
        syncthreads()
        copy.async(sy, gy{added})
        commit_group()
        wait_group(0)
    }}
}}
",
        list(&target)
    );
    let mut name = format!("tma_{}d_{dtype}_sw{}", rank, short(mode));
    let _ = write!(name, "{}{}", if edge { "_edge" } else { "" }, if add { "_add" } else { "" });
    if cluster > 1 {
        let _ = write!(name, "_multicast{cluster}");
    }
    let store = if add {
        format!("cp.reduce.async.bulk.tensor.{rank}d")
    } else {
        format!("cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group")
    };
    let load = format!(
        "cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{}",
        if cluster > 1 { ".multicast::cluster" } else { " " }
    );
    Case { name, source, has: vec![load, store] }
}

fn moves() -> Vec<Case> {
    use DType::{BF16, E4M3, F16, F32, I32, U8};
    let mut cases = Vec::new();
    for rank in 1..=5 {
        for mode in SwizzleMode::ALL {
            for edge in [false, true] {
                cases.push(copies(rank, mode, edge, 1, F16, false));
            }
        }
    }
    for rank in 2..=3 {
        for mode in SwizzleMode::ALL {
            for cluster in [2, 4] {
                cases.push(copies(rank, mode, true, cluster, F16, false));
            }
        }
    }
    for dtype in [F32, BF16, I32, U8, E4M3] {
        cases.push(copies(2, SwizzleMode::B128, true, 1, dtype, false));
    }
    for dtype in [F32, F16, BF16, I32] {
        for rank in 1..=3 {
            cases.push(copies(rank, SwizzleMode::B64, true, 1, dtype, true));
        }
    }
    cases
}

/// Runs the cases; writes them where they are asked for.
fn run(cases: Vec<Case>) {
    let directory = std::env::var("TILEWRIGHT_HOPPER_DIR").ok();
    let mut wrong = Vec::new();
    for case in &cases {
        if let Some(directory) = &directory {
            let path = Path::new(directory).join(format!("{}.tile", case.name));
            std::fs::write(path, &case.source).unwrap();
        }
        let program = parse(&case.source).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let kernel = match compile(&program, &Options::new(Arch::SM_90A)) {
            Ok(kernel) => kernel,
            Err(e) => {
                wrong.push(format!("{}: {e}\n{}", case.name, case.source));
                continue;
            }
        };
        for text in case.has.iter().filter(|text| !kernel.ptx.contains(*text)) {
            wrong.push(format!("{}: there is no {text}", case.name));
        }
        for seed in [0, 1] {
            let device = SimDevice::new(tilewright::sim::Config { seed, ..Default::default() });
            let options = CheckOptions { seed: 7, ..CheckOptions::default() };
            match check(&kernel, &device, &options) {
                Ok(outcome) if outcome.is_right() => {}
                Ok(outcome) => {
                    wrong.push(format!(
                        "{} seed {seed}: {:?} {:?}",
                        case.name, outcome.comparisons, outcome.findings
                    ));
                }
                Err(e) => wrong.push(format!("{} seed {seed}: {e}", case.name)),
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong[..wrong.len().min(8)].join("\n")
    );
}

#[test]
fn products_of_every_kind() {
    run(products());
}

#[test]
fn tensor_copies_of_every_kind() {
    run(moves());
}
