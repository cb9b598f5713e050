//! `gemm_hopper` as a BLAS has it: products of f32 and of complex numbers and results in place, in all executions at edge sizes, with what is refused.

use crate::common::{Launch, absolute, assemble, in_turn, kernel_for, ptxas, random, small_hopper};
use crate::product::{check, check_hopper};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_hopper::{
    self, Batch, Cluster, Dual, FillMode, Form, HopperGemmConfig, Major, Pack, Precision, Schedule, Text,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_tile::parse;

/// The error of a configuration names the field, and its text says this.
fn says(config: HopperGemmConfig, field: &str, text: &str) {
    match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}: {wanted}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    }
}

/// Configurations in each of which results in place go another way.
fn in_place() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { epilogue: "alpha+beta".parse().unwrap(), ..small_hopper() };
    let gemv =
        HopperGemmConfig { form: Form::Gemv, bm: 8, bn: 4, bk: 128, warpgroups: 1, ..Default::default() };
    let outer =
        HopperGemmConfig { form: Form::Outer, bm: 64, bn: 64, bk: 16, warpgroups: 1, ..Default::default() };
    vec![
        small,
        HopperGemmConfig { overlap_epilogue: true, chunk: Some(16), out: Some(DType::F32), ..small },
        HopperGemmConfig {
            epilogue: "bias+gelu+beta+residual".parse().unwrap(),
            swap: true,
            bn: 32,
            ..small
        },
        HopperGemmConfig { cluster: Cluster::AlongK(2), ..small },
        HopperGemmConfig { split: 3, ..small },
        HopperGemmConfig { schedule: Schedule::StreamK, ..small },
        HopperGemmConfig { fill: FillMode::Symmetric, ..small },
        HopperGemmConfig { fill: FillMode::Lower, ..small },
        HopperGemmConfig { epilogue: small.epilogue, ..gemv },
        HopperGemmConfig { epilogue: small.epilogue, ..outer },
    ]
}

/// Products of f32 in which each precision, and each way of a factor, is met.
fn single() -> Vec<HopperGemmConfig> {
    let tf32 = HopperGemmConfig { dtype: DType::F32, bk: 32, ..small_hopper() };
    let of = |precision| HopperGemmConfig { precision, stages: 2, ..tf32 };
    let bf16 = |precision| HopperGemmConfig { bk: 64, ..of(precision) };
    vec![
        tf32,
        HopperGemmConfig { a: Major::Mn, b: Major::Mn, overlap_epilogue: true, ..tf32 },
        HopperGemmConfig { pack: Pack::A, b: Major::Mn, out: Some(DType::BF16), swap: true, bn: 32, ..tf32 },
        HopperGemmConfig { dual: Dual::SiluMul, a: Major::Mn, promote: Some(false), ..tf32 },
        HopperGemmConfig { sums_a: true, promote: Some(true), ..tf32 },
        of(Precision::Tf32x3),
        HopperGemmConfig { a: Major::Mn, split: 2, promote: Some(false), ..of(Precision::Tf32x3) },
        HopperGemmConfig { fill: FillMode::Symmetric, ..of(Precision::Tf32x3) },
        HopperGemmConfig { b: Major::Mn, cluster: Cluster::AlongM(2), bn: 32, ..bf16(Precision::Bf16x6) },
        HopperGemmConfig { cluster: Cluster::AlongK(2), bn: 32, ..bf16(Precision::Bf16x9) },
        HopperGemmConfig {
            schedule: Schedule::StreamK,
            bn: 32,
            bk: 32,
            epilogue: "alpha+bias+beta".parse().unwrap(),
            ..of(Precision::Bf16x9)
        },
    ]
}

/// Products of complex numbers.
fn complex() -> Vec<HopperGemmConfig> {
    let tf32 = HopperGemmConfig { dtype: DType::F32, complex: true, bk: 32, ..small_hopper() };
    let x3 = HopperGemmConfig { precision: Precision::Tf32x3, stages: 2, ..tf32 };
    vec![
        tf32,
        HopperGemmConfig { conj_a: true, a: Major::Mn, b: Major::Mn, ..tf32 },
        HopperGemmConfig { conj_b: true, epilogue: "alpha+bias+beta".parse().unwrap(), ..x3 },
        HopperGemmConfig { conj_a: true, conj_b: true, a: Major::Mn, split: 2, ..x3 },
        HopperGemmConfig { precision: Precision::Bf16x6, bn: 32, swap: true, overlap_epilogue: true, ..x3 },
        HopperGemmConfig { dtype: DType::F16, bk: 64, conj_b: true, b: Major::Mn, ..tf32 },
    ]
}

#[test]
fn products_of_f32_are_right_at_edges() {
    for (i, config) in single().into_iter().enumerate() {
        for (j, [m, n, k]) in [[66, 136, 129], [1, 1, 1], [130, 72, 88]].into_iter().enumerate() {
            let n = if config.fill == FillMode::Full { n } else { m };
            if j == 0 || in_turn(i + j, 4) {
                check_hopper(&config, [m, n, k], &[k as u64]);
            }
        }
    }
    let x3 = single()[5];
    for (batch, a, b) in [
        (Batch::Packed, Major::Mn, Major::K),
        (Batch::Strided, Major::K, Major::Mn),
        (Batch::Grouped, Major::K, Major::K),
        (Batch::Ragged, Major::K, Major::K),
    ] {
        check(&HopperGemmConfig { batch, a, b, ..x3 }, [2, 66, 72, 40], &[1]);
        let copied = HopperGemmConfig { batch, a, b, pack: Pack::Both, ..small_hopper() };
        check(&copied, [2, 66, 71, 41], &[3]);
    }
}

/// The root of the mean square of errors, relative to the sums of absolute values.
fn error(of: &[f64], exact: &[f64], magnitudes: &[f64]) -> f64 {
    let square = |i: usize| ((of[i] - exact[i]) / magnitudes[i]).powi(2);
    ((0..of.len()).map(square).sum::<f64>() / of.len() as f64).sqrt()
}

#[test]
fn products_of_parts_are_as_exact_as_sums_in_f32() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let [m, n, k] = [64, 64, 512];
    let [a, b] = [m, n].map(|rows| random(&mut rng, DType::F32, rows * k));
    let config = |precision: Precision| {
        let bk = if precision.part() == DType::F32 { 32 } else { 64 };
        HopperGemmConfig { dtype: DType::F32, precision, bn: 32, bk, stages: 2, ..small_hopper() }
    };
    let sizes = [1, m as usize, n as usize, k as usize];
    let sums = |a: &[f64], b: &[f64]| gemm_hopper::sums(&config(Precision::Tf32), a, b, &[], sizes);
    let (exact, magnitudes) = (sums(&a, &b), sums(&absolute(&a), &absolute(&b)));
    let (width, height) = (k as usize, n as usize);
    let plain = |at: usize| {
        let (row, column) = (at / height, at % height);
        let product =
            |sum: f32, i: usize| (a[row * width + i] as f32).mul_add(b[column * width + i] as f32, sum);
        f64::from((0..width).fold(0.0, product))
    };
    let plain: Vec<f64> = (0..exact.len()).map(plain).collect();
    let plain = error(&plain, &exact, &magnitudes);
    println!("f32 {plain:.2e}");
    for precision in Precision::ALL {
        for promote in [false, true] {
            let config = HopperGemmConfig { promote: Some(promote), ..config(precision) };
            let given =
                [("a", &a), ("b", &b)].map(|(name, values)| (name.to_string(), values.clone())).into();
            let programs = config.programs().unwrap();
            let launch = Launch { programs: &programs, sizes: &[("m", m), ("n", n), ("k", k)], scalars: &[] };
            let (simulated, _, _) = launch.run(Arch::SM_90A, &[1], &given);
            let error = error(&simulated["c"], &exact, &magnitudes);
            println!("{precision} promote={promote} {error:.2e}");
            match precision {
                Precision::Tf32 => assert!(error > 100.0 * plain, "{error} {plain}"),
                _ if promote => assert!(error < plain, "{precision}: {error} {plain}"),
                _ => assert!(error < 3.0 * plain, "{precision}: {error} {plain}"),
            }
        }
    }
}

#[test]
fn products_of_complex_numbers_are_right_at_edges() {
    for (i, config) in complex().into_iter().enumerate() {
        for (j, size) in [[66, 68, 41], [1, 1, 1], [70, 33, 64]].into_iter().enumerate() {
            if j == 0 || in_turn(i + j, 3) {
                check_hopper(&config, size, &[3]);
            }
        }
    }
    let x3 = complex()[2];
    for batch in [Batch::Packed, Batch::Strided] {
        check(&HopperGemmConfig { batch, b: Major::Mn, ..x3 }, [2, 66, 36, 20], &[1, 2]);
    }
}

#[test]
fn results_in_place_are_right_at_edges() {
    for (i, config) in in_place().into_iter().enumerate() {
        for [m, n, k] in [[1, 1, 1], [66, 136, 129]] {
            if m == 1 && !in_turn(i, 3) {
                continue;
            }
            let n = match (config.fill, config.form) {
                (FillMode::Full, Form::Gemv) => n.min(7),
                (FillMode::Full, _) => n,
                _ => m,
            };
            let k = if config.form == Form::Outer { k.min(30) } else { k };
            check_hopper(&config, [m, n, k], &[k as u64]);
        }
    }
    let small = in_place()[0];
    for batch in [Batch::Packed, Batch::Strided, Batch::Grouped] {
        check(&HopperGemmConfig { batch, ..small }, [2, 66, 72, 88], &[1, 2]);
    }
}

#[test]
fn ptxas_needs_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    let epilogue = "alpha+beta".parse().unwrap();
    let wide = HopperGemmConfig { epilogue, stages: 3, ..HopperGemmConfig::default() };
    let single = HopperGemmConfig { dtype: DType::F32, bk: 32, bn: 128, ..HopperGemmConfig::default() };
    let x3 = HopperGemmConfig { precision: Precision::Tf32x3, stages: 3, ..single };
    let x9 = HopperGemmConfig { precision: Precision::Bf16x9, bk: 64, stages: 2, ..single };
    let wide = [
        wide,
        HopperGemmConfig { out: Some(DType::F32), bn: 128, overlap_epilogue: true, ..wide },
        HopperGemmConfig { bn: 256, stages: 3, ..single },
        x3,
        // The choice for 8192³.
        HopperGemmConfig { bn: 224, stages: 2, ..x3 },
        HopperGemmConfig { a: Major::Mn, b: Major::Mn, batch: Batch::Strided, ..x3 },
        // The widest promoted sums that leave later.
        HopperGemmConfig { bn: 96, overlap_epilogue: true, ..x3 },
        x9,
        HopperGemmConfig { complex: true, conj_b: true, epilogue, stages: 2, ..x3 },
        HopperGemmConfig { complex: true, a: Major::Mn, dtype: DType::F16, bk: 64, ..single },
    ];
    for (i, config) in wide.into_iter().enumerate().filter(|(i, _)| in_turn(*i, 2)) {
        for (j, program) in config.programs().unwrap().iter().enumerate() {
            let kernel = kernel_for(program, Arch::SM_90A, [4096, 4096, 4096]);
            assert_eq!(
                assemble(&ptxas, &format!("gemm_f32_{i}_{j}"), &kernel, Arch::SM_90A),
                0,
                "{config:?}"
            );
        }
    }
}

#[test]
fn the_choice_without_a_record_knows_what_products_cost() {
    let hopper = operator("gemm_hopper").unwrap();
    let tuning = hopper.tuning.unwrap();
    let sizes = [("m", 4096), ("n", 4096), ("k", 4096)].map(|(name, size)| (name.to_string(), size)).into();
    let first = |given: &[(&str, &str)]| {
        let first = (tuning.space)(Arch::SM_90A.into(), &sizes, given).unwrap().points.remove(0);
        let given: Vec<(&str, &str)> = first.parameters.iter().map(|(name, v)| (*name, v.as_str())).collect();
        assert!((hopper.programs)(&given).is_ok(), "{given:?}");
        first.estimate
    };
    let f16 = first(&[]);
    let of = |precision: &'static str| [("dtype", "f32"), ("precision", precision)];
    let [tf32, x3, x9] = ["tf32", "tf32x3", "bf16x9"].map(|precision| first(&of(precision)));
    assert!(f16 < tf32 && tf32 < x3 && tf32 < x9, "{f16} {tf32} {x3} {x9}");
    assert!(x3 > 2.5 * tf32 && x3 < 5.0 * tf32, "{tf32} {x3}");
    let complex = first(&[("dtype", "f32"), ("precision", "tf32"), ("complex", "true")]);
    assert!(complex > 3.0 * tf32 && complex < 5.0 * tf32, "{tf32} {complex}");
    // A factor that must be transposed is packed, and that takes time.
    let transposed = first(&[("dtype", "f32"), ("precision", "tf32"), ("b", "n")]);
    assert!(transposed > tf32, "{tf32} {transposed}");
}

#[test]
fn programs_print_and_parse_back() {
    for config in in_place().into_iter().chain(single()).chain(complex()) {
        for program in config.programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
        }
    }
}

#[test]
fn mistakes_name_the_field_and_what_would_be_right() {
    let small = in_place()[0];
    says(HopperGemmConfig { batch: Batch::Ragged, ..small }, "epilogue", "must not be ragged");
    let single = single()[0];
    let x3 = HopperGemmConfig { precision: Precision::Tf32x3, stages: 2, ..single };
    says(HopperGemmConfig { precision: Precision::Bf16x9, ..small }, "precision", "multiplied as it is");
    says(HopperGemmConfig { bm: 128, bn: 256, ..x3 }, "bn", "smaller tile");
    let late = HopperGemmConfig { bm: 128, bn: 104, warpgroups: 2, overlap_epilogue: true, ..x3 };
    says(late, "bn", "smaller tile");
    says(HopperGemmConfig { dual: Dual::Add, ..x3 }, "dual", "precision=tf32x3");
    says(HopperGemmConfig { dual: Dual::Add, b: Major::Mn, ..single }, "b", "of f32 must be k");
    says(HopperGemmConfig { dual: Dual::Mul, promote: Some(true), ..single }, "promote", "two sums");
    says(HopperGemmConfig { dtype: DType::I8, promote: Some(true), ..small_hopper() }, "promote", "exact");
    says(HopperGemmConfig { sums_a: true, ..x3 }, "sums_a", "where a is split");
    says(HopperGemmConfig { form: Form::Gemv, ..single }, "dtype", "form=gemv");
    says(HopperGemmConfig { conj_a: true, ..single }, "conj_a", "real numbers");
    let complex = complex()[0];
    says(HopperGemmConfig { dtype: DType::E4M3, ..complex }, "complex", "dtype must be");
    says(HopperGemmConfig { dual: Dual::Add, ..complex }, "complex", "dual must be none");
    says(HopperGemmConfig { fill: FillMode::Lower, ..complex }, "complex", "fill must be full");
    says(HopperGemmConfig { epilogue: "relu".parse().unwrap(), ..complex }, "complex", "`relu`");
    says(HopperGemmConfig { function: Some(Text::from("x + 1")), ..complex }, "complex", "function");
    says(HopperGemmConfig { form: Form::Outer, dtype: DType::F16, ..complex }, "complex", "form must be");
    says(HopperGemmConfig { dtype: DType::I8, bk: 128, ..small }, "epilogue", "out must be");
}
