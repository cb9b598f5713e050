//! `gemm_hopper` with a function of a user's own as text: what it computes, written again in Rust, in every form and with what it goes with;
//! and what is refused.

use crate::common::{Launch, Tensors, assemble, bounds, close, kernel_for, ptxas, random, small_hopper};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_hopper::{
    self, Batch, Cluster, Dual, Form, HopperGemmConfig, Inputs, Part, Text,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_tile::parse;

/// The elements at a place of C: `x`, `gate[j]`, `weight[i]` and `mask[i, j]`.
struct At {
    x: f64,
    i: f64,
    j: f64,
    gate: f64,
    weight: f64,
    mask: f64,
}

/// A function as text, and as Rust. `slope` is 0.75.
struct Function {
    text: &'static str,
    scalars: &'static str,
    tensors: &'static str,
    value: fn(&At) -> f64,
}

const FUNCTIONS: [Function; 3] = [
    Function {
        text: "x * tanh(gate) + 0.125 * float(i - 2 * j)",
        scalars: "",
        tensors: "gate: f32[n]",
        value: |at| at.x * at.gate.tanh() + 0.125 * (at.i - 2.0 * at.j),
    },
    Function {
        text: "where(i / 3 >= j % 5, max(x, slope * x), mask * weight) + gate",
        scalars: "slope: f32 = 0.5",
        tensors: "mask: f16[m, n], weight: f32[m], gate: f32[n]",
        value: |at| {
            let holds = (at.i / 3.0).floor() >= at.j % 5.0;
            at.gate + if holds { at.x.max(0.75 * at.x) } else { at.mask * at.weight }
        },
    },
    Function {
        text: "x / (1.0 + exp(-1.702 * x))",
        scalars: "none",
        tensors: "none",
        value: |at| at.x / (1.0 + (-1.702 * at.x).exp()),
    },
];

fn with(function: &Function, config: HopperGemmConfig) -> HopperGemmConfig {
    let text = |text: &str| Text::from(if text == "none" { "" } else { text });
    HopperGemmConfig {
        function: Some(Text::from(function.text)),
        scalars: text(function.scalars),
        tensors: text(function.tensors),
        ..config
    }
}

/// Checks a configuration without an epilogue, or with `bias`, at a size: interpreter, simulator, reference and the function in Rust agree.
fn check(function: &Function, config: &HopperGemmConfig, [l, m, n, k]: [i64; 4]) {
    let config = &with(function, *config);
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let out = config.result();
    let has = |name: &str| programs.iter().any(|p| p.params.iter().any(|param| param.name == name));
    let mut draw = |name: &str, dtype: DType, len: i64| {
        let values = random(&mut rng, dtype, len);
        (name.to_string(), if has(name) { values } else { Vec::new() })
    };
    let given: Tensors = [
        draw("a", config.dtype, l * m * k),
        draw("b", config.dtype, l * n * k),
        draw("up", config.dtype, l * n * k),
        draw("bias", out, l * n),
        draw("gate", DType::F32, l * n),
        draw("weight", DType::F32, l * m),
        draw("mask", DType::F16, l * m * n),
    ]
    .into();
    let custom = given.iter().map(|(name, values)| (name.clone(), values.clone()));
    let custom = custom.chain([("slope".to_string(), vec![0.75])]).collect();
    let inputs = Inputs { bias: given["bias"].clone(), custom, ..Inputs::default() };
    let [sl, sm, sn, sk] = [l, m, n, k].map(|size| size as usize);
    let product = |b: &str| gemm_hopper::sums(config, &given["a"], &given[b], &[], [sl, sm, sn, sk]);
    let gate = product("b");
    let up = if config.dual == Dual::None { gate.clone() } else { product("up") };
    let sums = gemm_hopper::combined(config, &inputs, [&gate, &up], &[], [sl, sm, sn]);
    let exact = gemm_hopper::finish(config, &inputs, &sums, &[], [sl, sm, sn]);
    for (at, (exact, sum)) in exact.iter().zip(&sums).enumerate() {
        let (row, col) = (at / sn, at % sn);
        let column = row / sm * sn + col;
        let read = |name: &str, place: usize| given[name].get(place).copied().unwrap_or(0.0);
        let bias = if config.epilogue.has(Part::Bias) { read("bias", column) } else { 0.0 };
        let wanted = (function.value)(&At {
            x: sum + bias,
            i: (row % sm) as f64,
            j: col as f64,
            gate: read("gate", column),
            weight: read("weight", row),
            mask: read("mask", at),
        });
        assert!((exact - wanted).abs() < 1e-9 * (1.0 + wanted.abs()), "{row}, {col}: {exact}, not {wanted}");
    }
    // Two sums of k products of at most 1, functions to 2⁻¹⁰, and one rounding.
    let size: Vec<f64> =
        gate.iter().zip(&up).map(|(g, u)| (g.abs() + 2.0) * (u.abs() + 2.0) + k as f64).collect();
    let inner = bounds(DType::F32, 0.0, k + 8, &sums, &size);
    let bound: Vec<f64> = exact
        .iter()
        .zip(&size)
        .zip(&inner)
        .map(|((v, size), inner)| {
            2.0 * inner + (v.abs() + size) * f64::powi(2.0, -10) + v.abs() * out.epsilon()
        })
        .collect();
    let given: Tensors = given.into_iter().filter(|(_, values)| !values.is_empty()).collect();
    let sizes = [("m", m), ("n", n), ("k", k), ("l", l)];
    let launch = Launch { programs: &programs, sizes: &sizes, scalars: &[("slope", 0.75)] };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1], &given);
    close(&format!("the simulator: {config:?}"), &simulated["c"], &exact, &bound);
    close(&format!("the interpreter: {config:?}"), &interpreted["c"], &exact, &bound);
}

#[test]
fn functions_of_a_users_own_are_right_at_edges() {
    let small = small_hopper();
    for config in [
        small,
        HopperGemmConfig { overlap_epilogue: true, chunk: Some(32), ..small },
        HopperGemmConfig { swap: true, epilogue: "bias".parse().unwrap(), ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), dtype: DType::BF16, ..small },
        HopperGemmConfig { dual: Dual::Mul, bn: 64, ..small },
        HopperGemmConfig { batch: Batch::Packed, ..small },
        HopperGemmConfig { split: 3, out: Some(DType::F32), ..small },
        HopperGemmConfig {
            form: Form::Outer,
            bm: 32,
            bn: 64,
            bk: 16,
            warpgroups: 1,
            ..HopperGemmConfig::default()
        },
    ] {
        let l = if config.batch == Batch::None { 1 } else { 2 };
        for (i, function) in FUNCTIONS.iter().enumerate() {
            check(function, &config, [[l, 7, 65, 33], [l, 66, 72, 72], [l, 1, 1, 1]][i]);
            check(function, &config, [[l, 66, 72, 72], [l, 7, 65, 33], [l, 9, 130, 24]][i]);
        }
    }
    let vector = HopperGemmConfig {
        form: Form::Gemv,
        bm: 8,
        bn: 8,
        bk: 128,
        warpgroups: 1,
        ..HopperGemmConfig::default()
    };
    for function in &FUNCTIONS {
        check(function, &vector, [1, 67, 5, 129]);
    }
}

#[test]
fn functions_need_no_spills_and_are_in_the_tuning_space() {
    let wide = HopperGemmConfig { bn: 128, ..HopperGemmConfig::default() };
    for (i, function) in FUNCTIONS.iter().enumerate() {
        let config = with(function, HopperGemmConfig { overlap_epilogue: i == 1, ..wide });
        for program in config.programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program);
            let kernel = kernel_for(&program, Arch::SM_90A, [4096, 4096, 4096]);
            let Some(ptxas) = ptxas() else { continue };
            assert_eq!(
                assemble(&ptxas, &format!("gemm_function_{i}"), &kernel, Arch::SM_90A),
                0,
                "{config:?}"
            );
        }
    }
    let tuning = operator("gemm_hopper").unwrap().tuning.unwrap();
    let sizes = [("m", 4096), ("n", 4096), ("k", 4096)].map(|(name, size)| (name.to_string(), size)).into();
    let given = [("function", "x * mask"), ("tensors", "mask: f16[m, n]")];
    let points = (tuning.space)(Arch::SM_90A.into(), &sizes, &given).unwrap().points;
    let first = &points[0].parameters;
    assert!(
        points.len() > 100 && first.iter().any(|(name, value)| *name == "function" && value == "x * mask")
    );
}

#[test]
fn mistakes_about_functions_name_the_field_and_what_would_be_right() {
    let says = |given: &[(&str, &str)], field: &str, text: &str| match (operator("gemm_hopper")
        .unwrap()
        .programs)(given)
    {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{given:?}: {wanted}");
            assert!(wanted.contains(text), "{given:?}: {wanted}");
        }
        other => panic!("{given:?}: {other:?}"),
    };
    says(&[("function", "x +")], "function", "must be a number over x, i, j");
    says(&[("function", "x * gate")], "function", "gate");
    says(&[("function", "x; y")], "function", "one expression");
    says(&[("function", "x + index(0)")], "function", "");
    says(&[("function", "i < j")], "function", "must be a number");
    says(&[("function", "bitcast(x, f32)")], "function", "operators");
    says(&[("tensors", "gate: f32[n]")], "tensors", "function=none");
    says(&[("scalars", "slope: f32 = 1.0")], "scalars", "function=none");
    says(&[("function", "x"), ("tensors", "gate f32")], "tensors", "x: f32[n], x: f32[m] or x: f16[m, n]");
    says(&[("function", "x"), ("tensors", "gate: f32[k]")], "tensors", "x: f32[n]");
    says(&[("function", "x"), ("tensors", "gate: i8[n]")], "tensors", "f32, f16 or bf16");
    says(&[("function", "x * y"), ("tensors", "y: f32[m, n]")], "tensors", "no wider elements than c");
    says(&[("function", "x"), ("scalars", "slope")], "scalars", "declarations");
    says(&[("function", "x * float(s)"), ("scalars", "s: i32 = 1")], "scalars", "a number in f32");
    says(
        &[("function", "x * bk"), ("tensors", "bk: f32[n]"), ("epilogue", "row_sums")],
        "epilogue",
        "no sums",
    );
    says(
        &[("function", "x * a"), ("tensors", "a: f32[n]"), ("stages", "3")],
        "tensors",
        "`a` is a name of the program",
    );
    says(&[("function", "x"), ("dtype", "i8"), ("bk", "128")], "epilogue", "out must be f16");
}
