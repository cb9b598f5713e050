//! Shape statements, reductions and gathers against plain loops.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tilewright_machine::DType;
use tilewright_tile::dsl::{KernelBuilder, Tensor, tile};
use tilewright_tile::{
    Argument, Code, Constants, Program, ReduceOp, ScanOperands, ShapeOp, StmtKind, TensorId, parse, verify,
};

use crate::common::interpret;

/// A register tensor in these tests: a type, a shape, and its elements, leftmost mode fastest.
#[derive(Clone, Debug)]
struct Tile {
    dtype: DType,
    shape: Vec<i64>,
    data: Vec<f64>,
}

impl Tile {
    fn new(dtype: DType, shape: &[i64], mut element: impl FnMut(usize) -> f64) -> Self {
        let len = shape.iter().product::<i64>() as usize;
        Tile { dtype, shape: shape.to_vec(), data: (0..len).map(&mut element).collect() }
    }

    fn counting(dtype: DType, shape: &[i64]) -> Self {
        Tile::new(dtype, shape, |i| i as f64)
    }

    /// The element at a coordinate.
    fn at(&self, coordinate: &[i64]) -> f64 {
        let digits = coordinate.iter().zip(&self.shape).rev();
        self.data[digits.fold(0, |index, (c, n)| index * n + c) as usize]
    }

    /// Every coordinate of a shape, leftmost mode fastest.
    fn coordinates(shape: &[i64]) -> Vec<Vec<i64>> {
        let len: i64 = shape.iter().product();
        let digits = |mut index: i64| {
            shape
                .iter()
                .map(|n| {
                    let digit = index % n;
                    index /= n;
                    digit
                })
                .collect()
        };
        (0..len).map(digits).collect()
    }

    /// A tile whose element at a coordinate is what the function says.
    fn of(dtype: DType, shape: &[i64], element: impl Fn(&[i64]) -> f64) -> Self {
        let data = Tile::coordinates(shape).iter().map(|c| element(c)).collect();
        Tile { dtype, shape: shape.to_vec(), data }
    }
}

/// A kernel that loads the inputs into registers, does what `body` says, and stores the tensors that it returns.
fn run(
    inputs: &[Tile],
    outputs: &[(DType, Vec<i64>)],
    body: impl Fn(&mut KernelBuilder, &[Tensor]) -> Vec<Tensor>,
) -> Vec<Vec<f64>> {
    let mut k = KernelBuilder::new("shapes");
    k.grid([1]);
    k.threads(32);
    // Buffers are column-major, as tiles are.
    let buffer = |k: &mut KernelBuilder, name: &str, dtype, shape: &[i64]| {
        let mut stride = 1;
        let strides: Vec<i64> = shape
            .iter()
            .map(|n| {
                let d = stride;
                stride *= n;
                d
            })
            .collect();
        let buffer = k.strided_tensor(name, dtype, shape.iter().copied(), strides);
        k.global_view(&format!("g{name}"), &buffer, shape.iter().enumerate().map(|(i, n)| tile(i as u32, *n)))
    };
    let mut tensors = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        let view = buffer(&mut k, &format!("x{i}"), input.dtype, &input.shape);
        let r = k.register_tensor(&format!("r{i}"), input.dtype, input.shape.iter().copied());
        k.copy(view, r);
        tensors.push(r);
    }
    let results = body(&mut k, &tensors);
    for (i, ((dtype, shape), result)) in outputs.iter().zip(&results).enumerate() {
        let view = buffer(&mut k, &format!("y{i}"), *dtype, shape);
        k.copy(result, view);
    }
    let program = k.finish().unwrap();
    assert_eq!(parse(&program.to_string()).unwrap(), program, "{program}");
    let verified = verify(&program, &Constants::new()).unwrap_or_else(|e| panic!("{e}\n{program}"));
    let mut args: Vec<Argument> = inputs.iter().map(|t| Argument::Tensor(t.data.clone())).collect();
    args.extend(outputs.iter().map(|(_, s)| Argument::Tensor(vec![0.0; s.iter().product::<i64>() as usize])));
    interpret(&verified, &BTreeMap::new(), &mut args).unwrap();
    let data = args.split_off(inputs.len()).into_iter().map(|arg| match arg {
        Argument::Tensor(data) => data,
        Argument::Scalar(_) | Argument::Integers(_) => Vec::new(),
    });
    data.collect()
}

fn one(
    inputs: &[Tile],
    dtype: DType,
    shape: &[i64],
    body: impl Fn(&mut KernelBuilder, &[Tensor]) -> Tensor,
) -> Vec<f64> {
    run(inputs, &[(dtype, shape.to_vec())], |k, r| vec![body(k, r)]).remove(0)
}

const F16: DType = DType::F16;
const F32: DType = DType::F32;
const I32: DType = DType::I32;

#[test]
fn a_transpose_permutes_modes() {
    let matrix = Tile::counting(F32, &[2, 3]);
    let t = one(std::slice::from_ref(&matrix), F32, &[3, 2], |k, r| k.permute("t", r[0], [1, 0]));
    assert_eq!(t, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    let cube = Tile::counting(I32, &[2, 3, 4]);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0u32]] {
        let shape = order.map(|mode| cube.shape[mode as usize]);
        let t = one(std::slice::from_ref(&cube), I32, &shape, |k, r| k.permute("t", r[0], order));
        let expected = Tile::of(I32, &shape, |c| {
            let mut from = [0; 3];
            order.iter().zip(c).for_each(|(mode, i)| from[*mode as usize] = *i);
            cube.at(&from)
        });
        assert_eq!(t, expected.data, "{order:?}");
    }
    let vector = Tile::counting(F32, &[5]);
    assert_eq!(one(&[vector], F32, &[5], |k, r| k.permute("t", r[0], [0])), [0.0, 1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn a_reshape_keeps_the_order_leftmost_mode_fastest() {
    let from = Tile::counting(F32, &[4, 6]);
    let flat = one(std::slice::from_ref(&from), F32, &[24], |k, r| k.reshape("t", r[0], [24]));
    assert_eq!(flat, from.data);
    let t = one(std::slice::from_ref(&from), F32, &[2, 2, 6], |k, r| k.reshape("t", r[0], [2, 2, 6]));
    let expected = Tile::of(F32, &[2, 2, 6], |c| from.at(&[c[0] + 2 * c[1], c[2]]));
    assert_eq!(t, expected.data);
}

#[test]
fn a_broadcast_repeats_what_expand_made() {
    let vector = Tile::counting(F32, &[3]);
    for (axis, from, to) in [(0, [1, 3], [4, 3]), (1, [3, 1], [3, 4])] {
        let t = one(std::slice::from_ref(&vector), F32, &to, |k, r| {
            let e = k.expand("e", r[0], axis);
            let again = k.register_tensor("again", F32, from);
            k.expand_to(&again, r[0], axis);
            let sum = k.define("sum", 0.5 * e + 0.5 * again);
            k.broadcast("t", sum, to)
        });
        assert_eq!(t, Tile::of(F32, &to, |c| c[1 - axis as usize] as f64).data);
    }
    let middle = Tile::counting(F16, &[2, 1, 3]);
    let t = one(std::slice::from_ref(&middle), F16, &[2, 4, 3], |k, r| k.broadcast("t", r[0], [2, 4, 3]));
    assert_eq!(t, Tile::of(F16, &[2, 4, 3], |c| middle.at(&[c[0], 0, c[2]])).data);
    let all = one(&[Tile::counting(I32, &[1])], I32, &[7], |k, r| k.broadcast("t", r[0], [7]));
    assert_eq!(all, [0.0; 7]);
}

#[test]
fn split_undoes_join() {
    let (a, b) = (Tile::counting(F32, &[2, 3]), Tile::new(F32, &[2, 3], |i| -(i as f64)));
    let outputs = [(F32, vec![2, 3, 2]), (F32, vec![2, 3]), (F32, vec![2, 3])];
    let found = run(&[a.clone(), b.clone()], &outputs, |k, r| {
        let t = k.join("t", r[0], r[1]);
        let (lo, hi) = k.split("lo", "hi", t);
        vec![t, lo, hi]
    });
    let joined = Tile::of(F32, &[2, 3, 2], |c| if c[2] == 0 { a.at(&c[..2]) } else { b.at(&c[..2]) });
    assert_eq!(found, [joined.data, a.data.clone(), b.data.clone()]);
    // Into tensors that exist, in the other order: each half where it is named.
    let found = run(&[a.clone(), b.clone()], &outputs[1..], |k, r| {
        let t = k.join("t", r[0], r[1]);
        k.split_to(&r[1], &r[0], t);
        vec![r[0], r[1]]
    });
    assert_eq!(found, [b.data, a.data]);
}

#[test]
fn a_reduction_takes_one_mode_away() {
    let shape = [3, 4, 5];
    let cube = Tile::new(F32, &shape, |i| ((i * 7919) % 23) as f64 - 11.0);
    for op in ReduceOp::ALL {
        for axis in 0..3u32 {
            let mut left = shape.to_vec();
            left.remove(axis as usize);
            let found = one(std::slice::from_ref(&cube), F32, &left, |k, r| k.reduce("t", r[0], op, axis));
            let expected = Tile::of(F32, &left, |c| {
                let along = (0..shape[axis as usize]).map(|k| {
                    let mut from = c.to_vec();
                    from.insert(axis as usize, k);
                    cube.at(&from)
                });
                match op {
                    ReduceOp::Sum => along.sum(),
                    ReduceOp::Max => along.fold(f64::NEG_INFINITY, f64::max),
                    ReduceOp::Min => along.fold(f64::INFINITY, f64::min),
                    ReduceOp::Product => along.product(),
                }
            });
            assert_eq!(found, expected.data, "{op:?} {axis}");
        }
    }
    let vector = Tile::counting(I32, &[10]);
    assert_eq!(one(&[vector], I32, &[1], |k, r| k.reduce("t", r[0], ReduceOp::Sum, 0)), [45.0]);
}

/// Every operation in both directions, and a recurrence from zero and from a state.
#[test]
fn a_scan_puts_together_what_comes_before() {
    let shape = [3, 4, 5];
    let cube = Tile::new(F32, &shape, |i| ((i * 7919) % 23) as f64 - 11.0);
    for (reverse, axis) in [(false, 0u32), (true, 1), (false, 1), (true, 2)] {
        // The places up to one, in order.
        let upto = |c: &[i64]| {
            let k = c[axis as usize];
            let places: Vec<i64> =
                if reverse { (k..shape[axis as usize]).rev().collect() } else { (0..=k).collect() };
            let place = |k| {
                let mut at = c.to_vec();
                at[axis as usize] = k;
                at
            };
            places.into_iter().map(place).collect::<Vec<_>>()
        };
        for op in ReduceOp::ALL {
            let scan = |k: &mut KernelBuilder, r: &[Tensor]| k.scan("t", &r[0], op, axis, reverse);
            let found = one(std::slice::from_ref(&cube), F32, &shape, scan);
            let expected = Tile::of(F32, &shape, |c| {
                let along: Vec<f64> = upto(c).iter().map(|at| cube.at(at)).collect();
                along.into_iter().reduce(|x, y| op.apply(x, y)).unwrap()
            });
            assert_eq!(found, expected.data, "{op:?} {axis} {reverse}");
        }
        let terms = Tile::new(F32, &shape, |i| (i % 5) as f64);
        let factors = Tile::new(F32, &shape, |i| (i % 3) as f64 - 1.0);
        let mut left = shape.to_vec();
        left[axis as usize] = 1;
        let state = Tile::new(F32, &left, |i| i as f64);
        let states = |from: Option<&Tile>| {
            Tile::of(F32, &shape, |c| {
                let mut first = c.to_vec();
                first[axis as usize] = 0;
                let before = from.map_or(0.0, |state| state.at(&first));
                upto(c).iter().fold(before, |h, at| factors.at(at) * h + terms.at(at))
            })
        };
        let operands = [factors.clone(), terms.clone()];
        let from_zero =
            |k: &mut KernelBuilder, r: &[Tensor]| k.scan_linear("t", [&r[0], &r[1]], axis, None, reverse);
        assert_eq!(one(&operands, F32, &shape, from_zero), states(None).data, "{axis} {reverse}");
        let operands = [factors.clone(), terms.clone(), state.clone()];
        let from_state = |k: &mut KernelBuilder, r: &[Tensor]| {
            k.scan_linear("t", [&r[0], &r[1]], axis, Some(&r[2]), reverse)
        };
        assert_eq!(one(&operands, F32, &shape, from_state), states(Some(&state)).data, "{axis} {reverse}");
    }
}

fn reduced(dtype: DType, op: ReduceOp, data: &[f64]) -> f64 {
    let input = Tile { dtype, shape: vec![data.len() as i64], data: data.to_vec() };
    one(&[input], dtype, &[1], |k, r| k.reduce("t", r[0], op, 0))[0]
}

#[test]
fn sums_are_rounded_once() {
    // In f16, 2048 + 1 is 2048: added one by one, ones would be lost.
    let mut data = vec![1.0; 65];
    data[0] = 2048.0;
    assert_eq!(reduced(DType::F16, ReduceOp::Sum, &data), 2112.0);
    // 2049 lies halfway and goes to even; so does 2051, upwards.
    assert_eq!(reduced(DType::F16, ReduceOp::Sum, &[2048.0, 1.0]), 2048.0);
    assert_eq!(reduced(DType::F16, ReduceOp::Sum, &[2050.0, 1.0]), 2052.0);
    assert_eq!(reduced(DType::BF16, ReduceOp::Sum, &[256.0, 1.0, 1.0, 1.0]), 260.0);
    // Beyond f16's range only at the end.
    assert_eq!(reduced(DType::F16, ReduceOp::Sum, &[65504.0, 65504.0, -65504.0]), 65504.0);
    assert_eq!(reduced(DType::F16, ReduceOp::Sum, &[65504.0, 65504.0]), f64::INFINITY);
    assert_eq!(reduced(DType::F32, ReduceOp::Sum, &[16_777_216.0, 1.0, 1.0]), 16_777_218.0);
    assert!(reduced(DType::F32, ReduceOp::Sum, &[f64::NAN, 1.0]).is_nan());
    assert!(reduced(DType::F32, ReduceOp::Sum, &[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
    // Integers count modulo 2^32.
    let most = f64::from(i32::MAX);
    assert_eq!(reduced(I32, ReduceOp::Sum, &[most, 1.0]), f64::from(i32::MIN));
    assert_eq!(reduced(I32, ReduceOp::Sum, &[most, most, most, -1.0]), f64::from(i32::MAX - 3));
    assert_eq!(reduced(I32, ReduceOp::Sum, &[f64::from(i32::MIN); 4]), 0.0);
}

#[test]
fn a_nan_loses_and_every_type_has_a_largest() {
    let nan = f64::NAN;
    assert_eq!(reduced(F32, ReduceOp::Max, &[nan, -1.0, nan, -2.0]), -1.0);
    assert_eq!(reduced(F16, ReduceOp::Min, &[nan, -1.0, -2.0, nan]), -2.0);
    assert!(reduced(F32, ReduceOp::Max, &[nan, nan]).is_nan());
    for dtype in [DType::F16, DType::BF16, F32, DType::I8, I32] {
        assert_eq!(reduced(dtype, ReduceOp::Max, &[-3.0, 7.0, 5.0]), 7.0, "{dtype}");
        assert_eq!(reduced(dtype, ReduceOp::Min, &[-3.0, 7.0, 5.0]), -3.0, "{dtype}");
    }
    assert_eq!(reduced(DType::U8, ReduceOp::Max, &[200.0, 255.0, 0.0]), 255.0);
    assert_eq!(reduced(F32, ReduceOp::Max, &[f64::NEG_INFINITY; 3]), f64::NEG_INFINITY);
}

#[test]
fn a_gather_counts_modulo_the_extent() {
    let vector = Tile::new(F32, &[4], |i| 10.0 * i as f64);
    let data = vec![0.0, 3.0, -1.0, 4.0, -4.0, -5.0, 7.0, f64::from(i32::MAX), f64::from(i32::MIN)];
    let index = Tile { dtype: I32, shape: vec![9], data };
    let found = one(&[vector, index], F32, &[9], |k, r| k.gather("t", r[0], r[1], 0));
    assert_eq!(found, [0.0, 30.0, 30.0, 0.0, 0.0, 30.0, 30.0, 30.0, 0.0]);
    let shape = [3, 4, 2];
    let cube = Tile::counting(F16, &shape);
    for axis in 0..3usize {
        let mut to = shape;
        to[axis] = 5;
        let index = Tile::new(I32, &to, |i| ((i * 104_729) % 31) as f64 - 15.0);
        let found =
            one(&[cube.clone(), index.clone()], F16, &to, |k, r| k.gather("t", r[0], r[1], axis as u32));
        let expected = Tile::of(F16, &to, |c| {
            let mut from = c.to_vec();
            from[axis] = (index.at(c) as i64).rem_euclid(shape[axis]);
            cube.at(&from)
        });
        assert_eq!(found, expected.data, "{axis}");
    }
}

#[test]
fn reductions_and_gathers_may_update_their_operands() {
    // Every element follows its own pointer twice: 0 → 1 → 2 → 3 → 0.
    let next = Tile { dtype: I32, shape: vec![4], data: vec![1.0, 2.0, 3.0, 0.0] };
    let found = one(&[next], I32, &[4], |k, r| {
        k.gather_to(&r[0], r[0], r[0], 0);
        r[0]
    });
    assert_eq!(found, [2.0, 3.0, 0.0, 1.0]);
    let single = Tile { dtype: F32, shape: vec![1], data: vec![5.0] };
    let found = one(&[single], F32, &[1], |k, r| {
        k.reduce_to(&r[0], r[0], ReduceOp::Sum, 0);
        r[0]
    });
    assert_eq!(found, [5.0]);
}

#[test]
fn every_statement_updates_a_tensor_that_exists() {
    let matrix = Tile::counting(F32, &[2, 2]);
    let found = one(std::slice::from_ref(&matrix), F32, &[2, 2], |k, r| {
        let t = k.register_tensor("t", F32, [2, 2]);
        let row = k.register_tensor("row", F32, [2]);
        let pair = k.register_tensor("pair", F32, [2, 2]);
        k.for_range("i", 0, 3, |k, _| {
            k.permute_to(&t, r[0], [1, 0]);
            k.reduce_to(&row, t, ReduceOp::Max, 0);
            k.join_to(&pair, row, row);
            k.reshape_to(&t, pair);
            k.broadcast_to(&pair, t);
        });
        pair
    });
    assert_eq!(found, [2.0, 3.0, 2.0, 3.0]);
}

#[test]
fn a_softmax_of_rows() {
    let source = "
        const M = 4, N = 8
        kernel softmax(x: f32[M, N], y: f32[M, N]) grid(1) threads(32) {
            gx = global_view(x, (M, N) : (e0, e1))
            gy = global_view(y, (M, N) : (e0, e1))
            r = register_tensor(f32, [M, N])
            copy(gx, r)
            m = reduce(r, max, 1)
            m1 = expand(m, 1)
            mb = broadcast(m1, [M, N])
            p = exp(r - mb)
            s = reduce(p, sum, 1)
            s1 = reshape(s, [M, 1])
            sb = broadcast(s1, [M, N])
            q = p / sb
            copy(q, gy)
        }";
    let program = parse(source).unwrap();
    let v = verify(&program, &Constants::from([("N".to_string(), 16)])).unwrap();
    let x: Vec<f64> = (0..64).map(|i| f64::from((i * 37) % 11)).collect();
    let mut args = [Argument::Tensor(x.clone()), Argument::Tensor(vec![0.0; 64])];
    interpret(&v, &BTreeMap::new(), &mut args).unwrap();
    let Argument::Tensor(y) = &args[1] else { panic!("a tensor") };
    for (x, y) in x.chunks(16).zip(y.chunks(16)) {
        let sum: f64 = x.iter().map(|x| x.exp()).sum();
        assert!(x.iter().zip(y).all(|(x, y)| (x.exp() / sum - y).abs() < 1e-6));
    }
}

#[test]
fn constants_are_put_into_shapes() {
    let source = "const A = 4, B = 8
        kernel k() grid(1) threads(32) {
            r = register_tensor(f32, [A, B])
            t = reshape(r, [B, A * 2 / 2])
            u = broadcast(t, [B, A])
        }";
    let program = parse(source).unwrap();
    assert!(verify(&program, &Constants::new()).is_ok());
    // A division that loses something at another value.
    let odd = source.replace("A * 2 / 2", "A / 2 * 2");
    let errors = verify(&parse(&odd).unwrap(), &Constants::from([("A".to_string(), 5)])).unwrap_err();
    assert_eq!(errors.0.len(), 1, "{errors}");
    assert_eq!(errors.0[0].code, Code::ShapeMismatch);
}

/// A program with one statement, made by hand: no builder has seen it.
fn by_hand(kinds: &[StmtKind]) -> Program {
    let mut program = parse(
        "kernel k(x: f32[4]) grid(1) threads(32) {
            a = register_tensor(f32, [2, 3])
            i = register_tensor(i32, [2, 3])
            s = shared_tensor(f32, [2, 3])
            g = global_view(x, (2, 3) : (e0, e0))
            for c in 0..1 { inner = register_tensor(f32, [2, 3]) }
        }",
    )
    .unwrap();
    for kind in kinds {
        let stmt = program.statement(kind.clone(), Default::default());
        program.body.push(stmt);
    }
    program
}

fn op(kind: u8, numbers: &[u32]) -> ShapeOp {
    let extents = || numbers.iter().map(|n| (i64::from(*n) - 1).into()).collect();
    match kind {
        0 => ShapeOp::Transpose(numbers.to_vec()),
        1 => ShapeOp::Reshape(extents()),
        2 => ShapeOp::Expand { axis: numbers.first().copied().unwrap_or(u32::MAX) },
        _ => ShapeOp::Broadcast(extents()),
    }
}

#[test]
fn ids_that_refer_to_nothing_are_refused() {
    let far = TensorId(99);
    let a = TensorId(0);
    let kinds = [
        StmtKind::Shape { dst: far, src: a, op: op(0, &[1, 0]) },
        StmtKind::Join { dst: a, a, b: far },
        StmtKind::Split { lo: a, hi: far, src: a },
        StmtKind::Reduce { dst: a, src: far, op: ReduceOp::Sum, axis: 0 },
        StmtKind::Gather { dst: a, src: a, index: far, axis: 0 },
        StmtKind::Scan {
            dst: a,
            operands: ScanOperands::One { src: far, op: ReduceOp::Max },
            axis: 0,
            reverse: true,
        },
    ];
    for kind in kinds {
        let errors = verify(&by_hand(&[kind]), &Constants::new()).unwrap_err();
        assert_eq!(errors.0[0].code, Code::UnknownName, "{errors}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn statements_made_by_hand_are_answered(
        statements in prop::collection::vec((0..10u8, 0..5u32, 0..5u32, 0..5u32, prop::collection::vec(0..5u32, 0..4)), 1..5),
    ) {
        let kinds: Vec<StmtKind> = statements
            .iter()
            .map(|(kind, a, b, c, numbers)| {
                let [a, b, c] = [*a, *b, *c].map(TensorId);
                let axis = numbers.first().copied().unwrap_or(u32::MAX);
                match kind {
                    0..=3 => StmtKind::Shape { dst: a, src: b, op: op(*kind, numbers) },
                    4 => StmtKind::Join { dst: a, a: b, b: c },
                    5 => StmtKind::Split { lo: a, hi: b, src: c },
                    6 => StmtKind::Reduce { dst: a, src: b, op: ReduceOp::ALL[c.0 as usize % 4], axis },
                    7 => {
                        let operands = ScanOperands::One { src: b, op: ReduceOp::ALL[c.0 as usize % 4] };
                        StmtKind::Scan { dst: a, operands, axis, reverse: axis == 1 }
                    }
                    8 => {
                        let before = numbers.get(1).map(|before| TensorId(*before));
                        let operands = ScanOperands::Linear { a: b, b: c, before };
                        StmtKind::Scan { dst: a, operands, axis, reverse: axis == 0 }
                    }
                    _ => StmtKind::Gather { dst: a, src: b, index: c, axis },
                }
            })
            .collect();
        let program = by_hand(&kinds);
        let _ = program.to_string();
        if let Ok(v) = verify(&program, &Constants::new()) {
            interpret(&v, &BTreeMap::new(), &mut [Argument::Tensor(vec![0.0; 4])]).unwrap();
        }
    }
}
