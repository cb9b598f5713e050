//! The programs of `examples/tasks`: their text form, the verifier, and the interpreter beside references of plain loops, at sizes that no
//! tile divides.

use std::fs;
use std::path::Path;

use tilewright_machine::DType;
use tilewright_task::{Interpretation, Program, interpret, parse, verify};
use tilewright_tile::Argument;
use tilewright_tile::interpret::round;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks")
}

fn example(name: &str) -> Program {
    let text = fs::read_to_string(folder().join(name)).unwrap();
    parse(&text).unwrap_or_else(|errors| panic!("{name}: {errors}"))
}

#[test]
fn programs_verify_print_and_parse_back() {
    for file in fs::read_dir(folder()).unwrap() {
        let path = file.unwrap().path();
        let program = example(path.file_name().unwrap().to_str().unwrap());
        if let Err(errors) = verify(&program, &Default::default()) {
            panic!("{}: {errors}", path.display());
        }
        let printed = program.to_string();
        let again =
            parse(&printed).unwrap_or_else(|errors| panic!("{}: {errors}\n{printed}", path.display()));
        assert_eq!(again, program, "{printed}");
        assert_eq!(again.to_string(), printed);
    }
}

/// Small integers, which sums of products keep exactly.
fn integers(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % 5) as f64 - 2.0
    };
    (0..count).map(|_| next()).collect()
}

/// Numbers between −1 and 1, of a type.
fn fractions(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        round(DType::F16, ((state >> 33) % 2001) as f64 / 1000.0 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

/// The results of a mapping's entry, whose outputs come first.
fn run(
    program: &Program,
    mapping: &str,
    sizes: &[(&str, i64)],
    seed: u64,
    args: Vec<Argument>,
) -> Vec<Argument> {
    let mapping = program.mappings.iter().find(|row| row.name == mapping).unwrap();
    let names = |names: &[(&str, i64)]| names.iter().map(|(n, v)| (n.to_string(), *v)).collect();
    let constant = |name: &&(&str, i64)| name.0.chars().all(char::is_uppercase);
    let constants: Vec<(&str, i64)> = sizes.iter().filter(constant).copied().collect();
    let sizes: Vec<(&str, i64)> = sizes.iter().filter(|name| !constant(name)).copied().collect();
    let how = Interpretation {
        constants: constants.iter().map(|(n, v)| (n.to_string(), *v)).collect(),
        sizes: names(&sizes),
        seed,
    };
    let mut args = args;
    interpret(program, mapping, &how, &mut args)
        .unwrap_or_else(|errors| panic!("{}: {errors}", mapping.name));
    args
}

fn tensor(argument: &Argument) -> &[f64] {
    match argument {
        Argument::Tensor(values) => values,
        other => panic!("{other:?} is no tensor"),
    }
}

/// c = a · bᵀ.
fn product([m, n, k]: [usize; 3], a: &[f64], b: &[f64]) -> Vec<f64> {
    let element = |i: usize, j: usize| (0..k).map(|x| a[i * k + x] * b[j * k + x]).sum();
    (0..m * n).map(|at| element(at / n, at % n)).collect()
}

fn halves(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|x| round(DType::F16, x)).collect()
}

#[test]
fn gemm_is_a_product_by_every_mapping_and_in_every_order() {
    let program = example("gemm.task");
    // With `levels`, each thread of a block launches leaves of its own: one block has them all.
    let cases = [
        ("h200", [130, 260, 70]),
        ("ampere", [130, 140, 70]),
        ("deferred", [20, 260, 70]),
        ("levels", [70, 40, 70]),
    ];
    for (mapping, [m, n, k]) in cases {
        let (a, b) = (integers(m * k, 1), integers(n * k, 2));
        let expected = halves(product([m, n, k], &a, &b));
        let sizes = [("m", m as i64), ("n", n as i64), ("k", k as i64)];
        for seed in if mapping == "h200" { vec![0, 7] } else { vec![3] } {
            let args = [vec![f64::NAN; m * n], a.clone(), b.clone()].map(Argument::Tensor).to_vec();
            let results = run(&program, mapping, &sizes, seed, args);
            assert!(tensor(&results[0]) == expected, "{mapping}, seed {seed}");
        }
    }
}

#[test]
fn batches_are_products_of_their_own() {
    let program = example("gemm_batched.task");
    let [l, m, n, k] = [3, 33, 20, 70];
    let (a, b) = (integers(l * m * k, 3), integers(l * n * k, 4));
    let expected: Vec<f64> =
        (0..l).flat_map(|i| halves(product([m, n, k], &a[i * m * k..], &b[i * n * k..]))).collect();
    let sizes = [("l", l as i64), ("m", m as i64), ("n", n as i64), ("k", k as i64)];
    let args = [vec![0.0; l * m * n], a, b].map(Argument::Tensor).to_vec();
    assert!(tensor(&run(&program, "h200", &sizes, 3, args)[0]) == expected);
}

#[test]
fn a_dual_product_is_the_sum_of_two() {
    let program = example("gemm_dual.task");
    let [m, n, k] = [40, 270, 65];
    let (a, b1, b2) = (integers(m * k, 5), integers(n * k, 6), integers(n * k, 7));
    let both = product([m, n, k], &a, &b1).into_iter().zip(product([m, n, k], &a, &b2));
    let expected = halves(both.map(|(x, y)| x + y).collect());
    let sizes = [("m", m as i64), ("n", n as i64), ("k", k as i64)];
    let args = [vec![0.0; m * n], a, b1, b2].map(Argument::Tensor).to_vec();
    assert!(tensor(&run(&program, "h200", &sizes, 0, args)[0]) == expected);
}

#[test]
fn sums_of_rows_come_beside_the_product() {
    let program = example("gemm_sum.task");
    let [m, n, k] = [140, 300, 70];
    let (a, b) = (integers(m * k, 8), integers(n * k, 9));
    let expected = halves(product([m, n, k], &a, &b));
    let sums: Vec<f64> = a.chunks(k).map(|row| row.iter().sum()).collect();
    let sizes = [("m", m as i64), ("n", n as i64), ("k", k as i64)];
    for seed in [0, 5] {
        let args = [vec![0.0; m * n], vec![0.0; m], a.clone(), b.clone()].map(Argument::Tensor).to_vec();
        let results = run(&program, "h200", &sizes, seed, args);
        assert!(tensor(&results[0]) == expected && tensor(&results[1]) == sums, "seed {seed}");
    }
}

fn close(found: &[f64], expected: &[f64], within: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (x, y)) in found.iter().zip(expected).enumerate() {
        assert!((x - y).abs() <= within * (1.0 + y.abs()), "element {at}: {x}, expected {y}");
    }
}

/// softmax(q · kᵀ · scale) · v, where row i sees `seen(i)` keys; `scale` includes log2(e).
fn attention(
    [l, s, t, d]: [usize; 4],
    [q, k, v]: [&[f64]; 3],
    scale: f64,
    seen: impl Fn(usize) -> usize,
) -> Vec<f64> {
    let mut o = Vec::new();
    for h in 0..l {
        let (q, k, v) = (&q[h * s * d..][..s * d], &k[h * t * d..][..t * d], &v[h * t * d..][..t * d]);
        for i in 0..s {
            let dot = |j: usize| -> f64 { (0..d).map(|x| q[i * d + x] * k[j * d + x]).sum() };
            let scores: Vec<f64> = (0..seen(i)).map(|j| dot(j) * scale).collect();
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - top).exp2()).collect();
            let total: f64 = weights.iter().sum();
            o.extend((0..d).map(|x| {
                let sum: f64 = weights.iter().enumerate().map(|(j, w)| w * v[j * d + x]).sum();
                sum / total
            }));
        }
    }
    o
}

#[test]
fn attention_is_softmax_of_products_by_both_algorithms() {
    let program = example("attention.task");
    let [l, s, t, d] = [2, 200, 150, 16];
    let [q, k, v] = [(s, 10), (t, 11), (t, 12)].map(|(n, seed)| fractions(l * n * d, seed));
    let scale = f64::from(0.36f32);
    let expected = attention([l, s, t, d], [&q, &k, &v], scale, |_| t);
    let sizes = [("l", l as i64), ("s", s as i64), ("t", t as i64), ("D", d as i64)];
    let mut by_hand = Vec::new();
    for mapping in ["fa2", "fa3", "fa3_by_hand"] {
        let mut args = [vec![0.0; l * s * d], q.clone(), k.clone(), v.clone()].map(Argument::Tensor).to_vec();
        args.push(Argument::Scalar(scale.into()));
        let results = run(&program, mapping, &sizes, 1, args);
        close(tensor(&results[0]), &expected, 2e-3);
        by_hand.push(tensor(&results[0]).to_vec());
    }
    // The order of additions is that of the one algorithm in the other.
    assert!(by_hand[1] == by_hand[2]);
}

#[test]
fn causal_attention_sees_the_keys_up_to_its_row() {
    let program = example("attention_causal.task");
    for [s, t] in [[130, 130], [70, 200]] {
        let [l, d] = [2, 16];
        let [q, k, v] = [(s, 13), (t, 14), (t, 15)].map(|(n, seed)| fractions(l * n * d, seed));
        let scale = f64::from(0.36f32);
        let expected = attention([l, s, t, d], [&q, &k, &v], scale, |i| i + t - s + 1);
        let sizes = [("l", l as i64), ("s", s as i64), ("t", t as i64), ("D", d as i64)];
        let mut args = [vec![0.0; l * s * d], q, k, v].map(Argument::Tensor).to_vec();
        args.push(Argument::Scalar(scale.into()));
        close(tensor(&run(&program, "fa2", &sizes, 0, args)[0]), &expected, 2e-3);
    }
}

#[test]
fn an_mlp_is_two_products_with_a_function_between() {
    let program = example("mlp.task");
    let [m, d, f] = [140, 64, 100];
    let [x, w1, w2] = [(m * d, 16), (f * d, 17), (d * f, 18)].map(|(n, seed)| fractions(n, seed));
    let erf = |x: f64| {
        // 7.1.26 of Abramowitz and Stegun would do; a sum of the series is exact enough here.
        let (mut term, mut sum) = (x, x);
        for n in 1..60 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    };
    let gelu = |x: f64| if x.abs() > 5.5 { x.max(0.0) } else { 0.5 * x * (1.0 + erf(x / 2f64.sqrt())) };
    let hidden: Vec<f64> = product([m, f, d], &x, &w1).into_iter().map(gelu).collect();
    let expected = product([m, d, f], &halves(hidden), &w2);
    let sizes = [("m", m as i64), ("D", d as i64), ("f", f as i64)];
    let args = [vec![0.0; m * d], x, w1, w2].map(Argument::Tensor).to_vec();
    close(tensor(&run(&program, "h200", &sizes, 2, args)[0]), &expected, 3e-3);
}

#[test]
fn a_gated_product_is_two_products_and_their_combination() {
    let program = example("gated.task");
    let [m, n, k] = [133, 72, 70];
    let [a, w1, w2] = [(m * k, 19), (n * k, 20), (n * k, 21)].map(|(n, seed)| fractions(n, seed));
    let [gate, up] = [&w1, &w2].map(|w| product([m, n, k], &a, w));
    let expected: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
    let sizes = [("m", m as i64), ("n", n as i64), ("k", k as i64)];
    let args = [vec![0.0; m * n], a, w1, w2].map(Argument::Tensor).to_vec();
    close(tensor(&run(&program, "h200", &sizes, 3, args)[0]), &expected, 2e-2);
}
