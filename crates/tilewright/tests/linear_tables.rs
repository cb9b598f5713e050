//! Tables 4 and 5 of *Linear Layouts*: reductions over every family of layouts, with their shared-memory instructions, and
//! small products of mixed types.

use tilewright::layout::{Blocked, LinearLayout, MmaOperand};
use tilewright::prelude::*;
use tilewright::synth::Explanation;

/// A linear layout of registers, lanes and warps as a pinned layout; registers that hold what others hold are left out.
fn pinned(layout: &LinearLayout) -> String {
    let mode = |columns: Vec<u64>| match &columns[..] {
        [] => ("1".to_string(), "0".to_string()),
        many => {
            let list = |f: &dyn Fn(&u64) -> String| many.iter().map(f).collect::<Vec<_>>().join(",");
            (format!("({})", list(&|_| "2".to_string())), format!("({})", list(&|c| c.to_string())))
        }
    };
    let threads = mode([layout.bases("lane"), layout.bases("warp")].concat());
    let values = mode(layout.bases("register").iter().copied().filter(|c| *c != 0).collect());
    format!("({}, {}) : ({}, {})", threads.0, values.0, threads.1, values.1)
}

/// Runs a kernel on the simulator and returns its explanation.
fn right(source: &str, arch: Arch) -> Explanation {
    let program = parse(source).unwrap_or_else(|e| panic!("{e:?}\n{source}"));
    let kernel = compile(&program, &Options::new(arch).for_sizes(&program, &[]))
        .unwrap_or_else(|e| panic!("{e:?}\n{source}"));
    let device = open(DeviceChoice::Sim).unwrap();
    let outcome = check(&kernel, device.as_ref(), &CheckOptions::default()).unwrap();
    assert!(outcome.is_right(), "{:?}\n{source}", outcome.findings);
    kernel.explanation
}

/// Shared-memory instructions of a thread in a reduction of a tensor of this layout along `axis`.
fn reduction(layout: &LinearLayout, shape: [u64; 2], axis: usize) -> u32 {
    let [m, n] = shape;
    let kept = shape[1 - axis];
    let source = format!(
        "kernel f(x: f16[{m}, {n}], z: f16[{kept}]) grid(1) threads(128) {{\n    \
         gx = global_view(x[:, :], ({m}, {n}) : (e0, e1))\n    gz = global_view(z[:], ({kept}) : (e0))\n    \
         r = register_tensor(f16, [{m}, {n}], layout = {})\n    copy(gx, r)\n    t = reduce(r, sum, {axis})\n    copy(t, gz)\n}}\n",
        pinned(layout)
    );
    let explanation = right(&source, Arch::SM_80);
    let note = explanation.statements.iter().find(|s| s.text.contains("reduce")).unwrap();
    note.shared_calls
}

/// The two-dimensional layout of a slice of a three-dimensional parent, on four warps.
fn slice_of(
    parent: &dyn Fn(&[u64]) -> LinearLayout,
    shape: [u64; 2],
    at: usize,
    extent: u64,
) -> LinearLayout {
    let mut whole = shape.to_vec();
    whole.insert(at, extent);
    parent(&whole).sliced(at).unwrap()
}

const SHAPES: [[u64; 2]; 5] = [[128, 16], [128, 128], [32, 128], [32, 32], [16, 16]];

type Family = (&'static str, u32, Vec<Box<dyn Fn([u64; 2]) -> LinearLayout>>);

/// The families of table 4 with the paper's number of shared-memory instructions of Triton-Linear, and our layouts of each:
/// the paper does not print which it used.
fn families() -> Vec<Family> {
    let blocked = |registers: [u64; 2], lanes: [u64; 2], warps: [u64; 2], order: [usize; 2]| Blocked {
        registers: registers.to_vec(),
        lanes: lanes.to_vec(),
        warps: warps.to_vec(),
        order: order.to_vec(),
    };
    let rows = blocked([1, 4], [4, 8], [4, 1], [1, 0]);
    let columns = blocked([2, 2], [8, 4], [2, 2], [0, 1]);
    let (rows2, columns2) = (rows.clone(), columns.clone());
    let cube = |order: [usize; 3]| Blocked {
        registers: vec![1, 2, 2],
        lanes: vec![4, 4, 2],
        warps: vec![2, 1, 2],
        order: order.to_vec(),
    };
    let mma =
        |operand, warps: [u64; 2], shape: [u64; 2]| LinearLayout::mma(operand, 2, &warps, &shape).unwrap();
    let batched =
        |operand, warps: [u64; 3], shape: &[u64]| LinearLayout::mma(operand, 2, &warps, shape).unwrap();
    vec![
        (
            "Blocked",
            1388,
            vec![Box::new(move |s| rows.layout(&s).unwrap()), Box::new(move |s| columns.layout(&s).unwrap())],
        ),
        (
            "MMA",
            3517,
            vec![
                Box::new(move |s| mma(MmaOperand::C, [4, 1], s)),
                Box::new(move |s| mma(MmaOperand::C, [2, 2], s)),
            ],
        ),
        ("MMA Input", 5884, vec![Box::new(move |s| mma(MmaOperand::A, [2, 2], s))]),
        (
            "Sliced-Blocked",
            4687,
            vec![
                Box::new(move |s| slice_of(&|w| cube([2, 1, 0]).layout(w).unwrap(), s, 0, 4)),
                Box::new(move |s| slice_of(&|w| cube([0, 1, 2]).layout(w).unwrap(), s, 2, 4)),
            ],
        ),
        (
            "Sliced-MMA",
            320,
            vec![Box::new(move |s| slice_of(&|w| batched(MmaOperand::C, [1, 2, 2], w), s, 1, 16))],
        ),
        (
            "Sliced-MMA Input",
            545,
            vec![Box::new(move |s| slice_of(&|w| batched(MmaOperand::A, [1, 2, 2], w), s, 1, 16))],
        ),
        (
            "Custom",
            913,
            // Rows and columns interleaved bit by bit, a lane and a warp of copies.
            vec![Box::new(move |s| {
                let tile = rows2.layout(&s).unwrap();
                let mixed = columns2.layout(&s).unwrap();
                assert_eq!(tile.outs(), mixed.outs());
                let (rows, columns) = (s[0].trailing_zeros(), s[1].trailing_zeros());
                let mut units: Vec<u64> = (0..rows.max(columns))
                    .flat_map(|i| {
                        let row = (i < rows).then(|| 1u64 << i);
                        let column = (i < columns).then(|| 1u64 << (rows + i));
                        [row, column].into_iter().flatten()
                    })
                    .collect();
                let high = units.split_off(6.min(units.len()));
                let mut threads: Vec<u64> = vec![0];
                threads.extend(units);
                threads.truncate(7);
                threads.resize(7, 0);
                let dims = |n: usize| tilewright::layout::Dim::new("register", n as u32);
                let ins = vec![
                    dims(high.len()),
                    tilewright::layout::Dim::new("lane", 5),
                    tilewright::layout::Dim::new("warp", 2),
                ];
                LinearLayout::from_columns(ins, tile.outs().to_vec(), [high, threads].concat()).unwrap()
            })],
        ),
    ]
}

/// Every reduction is right; the number of shared-memory instructions is the sum over its cases, those of one thread, and
/// must stay what it is: a change that stores copies again would raise it.
#[test]
fn table_4_reductions_over_every_family() {
    let expected = [
        ("Blocked", 102),
        ("MMA", 122),
        ("MMA Input", 57),
        ("Sliced-Blocked", 75),
        ("Sliced-MMA", 132),
        ("Sliced-MMA Input", 0),
        ("Custom", 63),
    ];
    let (mut counted, mut left_out) = (Vec::new(), Vec::new());
    for (name, paper, layouts) in families() {
        let mut total = 0;
        for layout in &layouts {
            for shape in SHAPES {
                let layout = layout(shape);
                // A thread has 255 registers: some layouts of many copies hold 128×128 elements in more.
                let held = layout.bases("register").iter().filter(|c| **c != 0).count();
                if held > 8 {
                    left_out.push((name, shape));
                    continue;
                }
                for axis in 0..2 {
                    total += reduction(&layout, shape, axis);
                }
            }
        }
        assert!(total < paper, "{name}: {total} against Triton-Linear's {paper}");
        counted.push((name, total));
    }
    assert_eq!(counted, expected);
    let too_large = [
        ("Sliced-Blocked", [128, 128]),
        ("Sliced-Blocked", [128, 128]),
        ("Sliced-MMA", [128, 128]),
        ("Sliced-MMA", [32, 128]),
        ("Sliced-MMA Input", [128, 16]),
        ("Sliced-MMA Input", [128, 128]),
        ("Sliced-MMA Input", [32, 128]),
    ];
    assert_eq!(left_out, too_large);
}

/// Products of every pair of element types that there are, each cast in registers to a type that multiplies: the part of
/// table 5 whose types exist. (i16, i64, f64 and 8-bit floats are not element types yet.)
#[test]
fn table_5_products_of_mixed_types() {
    let types = ["i8", "u8", "i32", "f16", "bf16", "f32"];
    let mut cases = 0;
    for a in types {
        for b in types {
            for factor in ["f16", "bf16"] {
                for (m, n, k) in [(16, 8, 16), (16, 16, 32), (32, 64, 16), (64, 32, 64)] {
                    let factors = |name: &str, dtype: &str| {
                        if dtype == factor {
                            (String::new(), format!("r{name}"))
                        } else {
                            (format!("    h{name} = cast(r{name}, {factor})\n"), format!("h{name}"))
                        }
                    };
                    let ((cast_a, ra), (cast_b, rb)) = (factors("a", a), factors("b", b));
                    let source = format!(
                        "kernel f(a: {a}[{m}, {k}], b: {b}[{n}, {k}], c: f32[{m}, {n}]) grid(1) threads({}) {{\n    \
                         ga = global_view(a[:, :], ({m}, {k}) : (e0, e1))\n    gb = global_view(b[:, :], ({n}, {k}) : (e0, e1))\n    \
                         gc = global_view(c[:, :], ({m}, {n}) : (e0, e1))\n    ra = register_tensor({a}, [{m}, {k}])\n    \
                         rb = register_tensor({b}, [{n}, {k}])\n    rc = register_tensor(f32, [{m}, {n}])\n    fill(rc, 0.0)\n    \
                         copy(ga, ra)\n    copy(gb, rb)\n{cast_a}{cast_b}    gemm(rc, {ra}, {rb})\n    copy(rc, gc)\n}}\n",
                        if m == 64 { 128 } else { 32 }
                    );
                    right(&source, Arch::SM_80);
                    cases += 1;
                }
            }
        }
    }
    assert_eq!(cases, 288);
}
