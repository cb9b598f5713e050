//! The interpreter against plain loops.

use std::collections::BTreeMap;

use tilewright_machine::DType;
use tilewright_tile::interpret::{grid, round, size_values, tensor_len, tensor_shape};
use tilewright_tile::{
    Argument, Constants, InterpretError, ParamId, StmtKind, Verified, parse, unroll, verify,
};

use crate::common::{core_programs, desugar, interpret, through_core};

fn verified(source: &str, constants: &[(&str, i64)]) -> Verified {
    let constants: Constants = constants.iter().map(|(n, v)| (n.to_string(), *v)).collect();
    let program = parse(source).unwrap_or_else(|e| panic!("{e}"));
    verify(&program, &constants).unwrap_or_else(|e| panic!("{e}"))
}

fn sizes(list: &[(&str, i64)]) -> BTreeMap<String, i64> {
    list.iter().map(|(n, v)| (n.to_string(), *v)).collect()
}

/// Small integers and halves: sums of products are exact.
fn data(len: usize, seed: u64) -> Vec<f64> {
    (0..len as u64).map(|i| ((i * 7919 + seed * 104_729) % 13) as f64 / 2.0 - 3.0).collect()
}

fn tensor(args: &[Argument], i: usize) -> &[f64] {
    match &args[i] {
        Argument::Tensor(data) => data,
        Argument::Scalar(_) | Argument::Integers(_) => panic!("argument {i} is no tensor of floats"),
    }
}

fn check_gemm(source: &str, constants: &[(&str, i64)], [m, n, k]: [usize; 3]) {
    let v = verified(source, constants);
    let (a, b) = (data(m * k, 1), data(n * k, 2));
    let mut expected = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|p| a[i * k + p] * b[j * k + p]).sum();
            expected[i * n + j] = round(DType::F16, sum);
        }
    }
    let sizes = sizes(&[("m", m as i64), ("n", n as i64), ("k", k as i64)]);
    let plain = unroll(&v).unwrap_or_else(|e| panic!("{e}"));
    for v in [&v, &plain] {
        let mut args = [
            Argument::Tensor(a.clone()),
            Argument::Tensor(b.clone()),
            Argument::Tensor(vec![f64::NAN; m * n]),
        ];
        interpret(v, &sizes, &mut args).unwrap();
        assert_eq!(tensor(&args, 2), expected, "{m} {n} {k}");
    }
}

#[test]
fn gemm_at_any_size_equals_the_triple_loop() {
    for source in [
        include_str!("../../../examples/gemm.tile"),
        include_str!("../../../examples/gemm_shared.tile"),
        include_str!("../../../examples/gemm_multistage.tile"),
    ] {
        for shape in [[1, 1, 1], [64, 64, 16], [65, 63, 17], [130, 70, 50], [3, 200, 100]] {
            check_gemm(source, &[("BM", 64), ("BN", 32), ("BK", 16)], shape);
        }
    }
}

#[test]
fn strides_given_as_in_the_paper_mean_the_same() {
    let source = include_str!("../../../examples/gemm.tile");
    let paper =
        source.replace("(e0, e1, BK * e1)", "(k, 1, BK)").replace("(BM, BN) : (e0, e1)", "(BM, BN) : (n, 1)");
    assert_ne!(source, paper);
    assert_eq!(parse(source).unwrap(), parse(&paper).unwrap());
    let spellings = source.replace("BK * e1", "e1 * BK").replace(": (e0,", ": (1e0,");
    assert_eq!(parse(source).unwrap(), parse(&spellings).unwrap());
}

#[test]
fn transposed_operands_are_strides() {
    // a is stored k by m, b k by n.
    let source = include_str!("../../../examples/gemm.tile")
        .replace("a: f16[m, k]", "a: f16[m, k] : (1, m)")
        .replace("b: f16[n, k]", "b: f16[n, k] : (1, n)");
    let v = verified(&source, &[("BM", 16), ("BN", 16), ("BK", 16)]);
    let [m, n, k] = [37usize, 21, 19];
    let (a, b) = (data(m * k, 3), data(n * k, 4));
    let mut args =
        [Argument::Tensor(a.clone()), Argument::Tensor(b.clone()), Argument::Tensor(vec![0.0; m * n])];
    interpret(&v, &sizes(&[("m", 37), ("n", 21), ("k", 19)]), &mut args).unwrap();
    for i in 0..m {
        for j in 0..n {
            let sum: f64 = (0..k).map(|p| a[p * m + i] * b[p * n + j]).sum();
            assert_eq!(tensor(&args, 2)[i * n + j], round(DType::F16, sum));
        }
    }
}

#[test]
fn a_transpose_with_an_elementwise_tail() {
    let v = verified(include_str!("../../../examples/transpose.tile"), &[("BM", 16), ("BN", 32)]);
    let [m, n] = [45usize, 50];
    let x = data(m * n, 5);
    let mut args =
        [Argument::Tensor(x.clone()), Argument::Tensor(vec![0.0; m * n]), Argument::Scalar(0.1.into())];
    interpret(&v, &sizes(&[("m", 45), ("n", 50)]), &mut args).unwrap();
    let alpha = 0.1f32;
    for i in 0..m {
        for j in 0..n {
            // The product is contracted: one rounding of the function, one of the sum.
            let value = x[i * n + j];
            let expected = alpha.mul_add(value as f32, value.tanh() as f32);
            assert_eq!(tensor(&args, 1)[j * m + i], f64::from(expected));
        }
    }
}

const PIECES: &str = "
    size n = 10
    kernel pieces(x: f32[n], y: f32[n], z: i8[n], h: f16[8, 4]) grid(ceil_div(n, 8)) threads(32) {
        g = global_view(x[block.x * 8 :], (8) : (e0))
        out = global_view(y[block.x * 8 :], (8) : (e0))
        bytes = global_view(z[block.x * 8 :], (8) : (e0))
        r = register_tensor(f32, [8])
        copy(g, r)
        acc = register_tensor(f32, [8])
        fill(acc, 1.0)
        for i in 0..3 {
            acc = acc + float(i) * r
        }
        q = rearrange(acc)
        s = shared_tensor(f32, [8])
        copy(q, s)
        syncthreads()
        copy(s, out)
        b = cast(q, i8)
        copy(b, bytes)
        // A mode of two leaves: 2 by 4 elements, read as one mode of 8.
        nest = global_view(h[:, :], ((2, 4), 2) : ((e1, 2e0), 2e1))
        t = register_tensor(f16, [2, 8])
        copy(transpose(nest), t)
        again = max(t, t / 2.0)
        copy(again, transpose(nest))
    }";

#[test]
fn small_statements() {
    let v = verified(PIECES, &[]);
    let x: Vec<f64> = (0..10).map(|i| f64::from(i) * 11.3 - 60.0).map(|x| f64::from(x as f32)).collect();
    let h: Vec<f64> = (0..32).map(|i| f64::from(i) - 16.0).collect();
    let before = [
        Argument::Tensor(x.clone()),
        Argument::Tensor(vec![0.0; 10]),
        Argument::Tensor(vec![0.0; 10]),
        Argument::Tensor(h.clone()),
    ];
    let mut runs = vec![before.clone()];
    tilewright_tile::interpret(&v, &BTreeMap::new(), &mut runs[0]).unwrap();
    for (_, program) in core_programs(&v) {
        let mut args = before.clone();
        tilewright_tile::interpret(&program, &BTreeMap::new(), &mut args).unwrap();
        runs.push(args);
    }
    for args in runs {
        for (i, x) in x.iter().enumerate() {
            let y = f64::from((f64::from((1.0 + x) as f32) + 2.0 * x) as f32);
            assert_eq!(tensor(&args, 1)[i], y);
            assert_eq!(tensor(&args, 2)[i], y.round_ties_even().clamp(-128.0, 127.0));
        }
        // The view reaches rows 0, 2, 4, 6; both blocks halve negative numbers, in any order.
        for (i, (before, after)) in h.iter().zip(tensor(&args, 3)).enumerate() {
            let times = if i / 4 % 2 == 1 { [1.0, 1.0] } else { [2.0, 4.0] };
            let fits = *before >= 0.0 && after == before || times.iter().any(|t| *after == before / t);
            assert!(fits, "{i}: {before} {after}");
        }
    }
}

#[test]
fn desugaring_leaves_no_rearrangement_and_no_copy_from_shared_to_global() {
    let program = through_core(&verified(PIECES, &[]), desugar);
    program.visit(&mut |stmt, _| match &stmt.kind {
        StmtKind::Rearrange { .. } => panic!("a rearrangement is left"),
        StmtKind::Copy { src, dst, .. } => {
            let memories = (program.tile(src).memory, program.tile(dst).memory);
            assert_ne!(memories, (tilewright_machine::Memory::Shared, tilewright_machine::Memory::Global));
        }
        _ => {}
    });
}

#[test]
fn launches_that_are_not_possible_are_errors() {
    let v = verified(include_str!("../../../examples/transpose.tile"), &[]);
    let none = BTreeMap::new();
    assert_eq!(grid(&v, &sizes(&[("m", 65)])), Ok([2, 16, 1]));
    assert_eq!(size_values(&v, &sizes(&[("n", 7)])), Ok(vec![1024, 7]));
    assert_eq!(tensor_shape(&v, ParamId(1), &sizes(&[("n", 7)])), Ok(vec![7, 1024]));
    assert_eq!(tensor_len(&v, ParamId(0), &none), Ok(1024 * 1024));
    assert!(matches!(grid(&v, &sizes(&[("q", 1)])), Err(InterpretError::UnknownSize { .. })));
    assert!(matches!(grid(&v, &sizes(&[("m", 0)])), Err(InterpretError::BadSize { .. })));
    assert!(matches!(grid(&v, &sizes(&[("m", i64::MAX)])), Err(InterpretError::OutOfRange { .. })));
    assert!(matches!(
        tensor_len(&v, ParamId(0), &sizes(&[("m", i64::MAX)])),
        Err(InterpretError::NoValue { .. })
    ));
    let run = |args: &mut [Argument]| interpret(&v, &sizes(&[("m", 2), ("n", 2)]), args).unwrap_err();
    assert!(matches!(run(&mut []), InterpretError::ArgumentCount { expected: 3, found: 0 }));
    let four = || Argument::Tensor(vec![0.0; 4]);
    assert!(matches!(run(&mut [four(), four(), four()]), InterpretError::ArgumentKind { .. }));
    let mut short = [four(), Argument::Tensor(vec![0.0; 3]), Argument::Scalar(1.0.into())];
    assert!(matches!(run(&mut short), InterpretError::ArgumentLength { expected: 4, found: 3, .. }));
}

#[test]
fn offsets_far_outside_read_zero_and_write_nothing() {
    let source = "size n = 4
        kernel far(x: f32[n], y: f32[n]) grid(1) threads(32) {
            g = global_view(x[2147483000 :], (4) : (e0))
            h = global_view(x[-2 :], (4) : (e0))
            out = global_view(y[:], (4) : (e0))
            away = global_view(y[-2147483000 :], (4) : (e0))
            r = register_tensor(f32, [4])
            copy(g, r)
            copy(r, away)
            q = register_tensor(f32, [4])
            copy(h, q)
            t = r + q
            copy(t, out)
        }";
    let v = verified(source, &[]);
    let mut args = [Argument::Tensor(vec![1.0, 2.0, 3.0, 4.0]), Argument::Tensor(vec![7.0; 4])];
    interpret(&v, &BTreeMap::new(), &mut args).unwrap();
    assert_eq!(tensor(&args, 1), [0.0, 0.0, 1.0, 2.0]);
}

#[test]
fn integers_beyond_32_bits_are_refused_and_named() {
    let refused = |body: &str, given: &[(&str, i64)]| {
        let source = format!(
            "size m = 64, n = 1\nkernel k(x: f32[m], y: f32[m]) grid(ceil_div(m, 32)) threads(32) {{\n{body}\n}}"
        );
        let v = verified(&source, &[]);
        let sizes = sizes(given);
        tilewright_tile::interpret::check_ranges(&v, &sizes, &BTreeMap::new()).map_err(|e| e.to_string())
    };
    let copy = |offset: &str| {
        format!("g = global_view(x[{offset} :], (32) : (e0))\nr = register_tensor(f32, [32])\ncopy(g, r)")
    };
    assert_eq!(refused(&copy("block.x * 32"), &[]), Ok(()));
    let message = "an offset of `g` can reach 6400000000: the integers of a kernel have 32 bits";
    assert_eq!(refused(&copy("m * 100000000 / 100000000 - m"), &[]), Err(message.to_string()));
    assert!(refused(&copy("block.x * 4294967296"), &[]).is_err());
    assert!(refused(&copy("m % (n - 1 + 5) - n / (0 - 3)"), &[]).is_ok());
    let far = "g = global_view(x, (32) : (4294967296 * e0))\nr = register_tensor(f32, [32])\ncopy(g, r)";
    assert!(refused(far, &[]).unwrap_err().contains("an offset of `g`"));
    let float =
        "g = global_view(x, (32) : (e0))\nr = register_tensor(f32, [32])\ncopy(g, r)\nr = r + float(n * n)";
    assert_eq!(refused(float, &[("n", 40000)]), Ok(()));
    let message = "an integer of the kernel can reach 10000000000: the integers of a kernel have 32 bits";
    assert_eq!(refused(float, &[("n", 100_000)]), Err(message.to_string()));
    let bound = "for i in 2147483646..2147483650 { syncthreads() }";
    assert!(refused(bound, &[]).unwrap_err().contains("a bound of the loop over `i`"));
}
