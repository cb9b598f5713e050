//! `gemm_hopper` with a second matrix: every combination of both sums at edge sizes in all executions, with what it goes with, registers,
//! the tuner's first choices, and what is refused.

use crate::common::{Launch, assemble, kernel_for, ptxas, small_hopper};
use crate::product::{check, check_hopper};
use tilewright_kernels::gemm_hopper::{Batch, Cluster, Dual, Form, HopperGemmConfig, Major, Pack};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_tile::parse;

/// Configurations of which each combination, way to store a second matrix, and thing that it goes with is one.
fn configs() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { dual: Dual::SiluMul, ..small_hopper() };
    let list = |parts: &str| parts.parse().unwrap();
    vec![
        small,
        HopperGemmConfig { dual: Dual::Add, overlap_epilogue: true, ..small },
        HopperGemmConfig { dual: Dual::Mul, overlap_epilogue: true, chunk: Some(16), b: Major::Mn, ..small },
        HopperGemmConfig { dual: Dual::GeluMul, dual_bias: true, fused: true, ..small },
        HopperGemmConfig { dual: Dual::ReluMul, fused: true, b: Major::Mn, dtype: DType::BF16, ..small },
        HopperGemmConfig {
            dual_bias: true,
            epilogue: list("alpha+bias+residual+row_sums"),
            overlap_epilogue: true,
            ..small
        },
        HopperGemmConfig { swap: true, bn: 16, dual_bias: true, fused: true, ..small },
        HopperGemmConfig { swap: true, cluster: Cluster::AlongM(2), overlap_epilogue: true, ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), fused: true, ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), in_flight: 0, a: Major::Mn, ..small },
        HopperGemmConfig { cluster: Cluster::AlongK(2), bn: 48, ..small },
        HopperGemmConfig { dual: Dual::Add, split: 3, ..small },
        HopperGemmConfig { pack: Pack::A, ..small },
        HopperGemmConfig { dtype: DType::E4M3, bk: 128, out: Some(DType::F32), ..small },
        HopperGemmConfig { dual: Dual::Mul, dtype: DType::I8, bk: 128, out: Some(DType::BF16), ..small },
        HopperGemmConfig { dual: Dual::Add, dtype: DType::I8, bk: 128, ..small },
    ]
}

#[test]
fn products_with_two_matrices_are_right_at_edges() {
    for config in configs() {
        for size in [[1, 1, 1], [7, 65, 129], [65, 136, 88]] {
            check_hopper(&config, size, &[size[2] as u64]);
        }
    }
    for config in [0, 2, 7, 8].map(|i| configs()[i]) {
        check_hopper(&config, [72, 136, 264], &[1, 2, 3]);
    }
}

#[test]
fn batches_and_groups_with_two_matrices_are_right_at_edges() {
    let small = configs()[0];
    for config in [
        HopperGemmConfig { batch: Batch::Packed, fused: true, dual_bias: true, ..small },
        HopperGemmConfig { batch: Batch::Strided, overlap_epilogue: true, ..small },
        HopperGemmConfig { batch: Batch::Strided, fused: true, b: Major::Mn, ..small },
        HopperGemmConfig { batch: Batch::Grouped, dual_bias: true, overlap_epilogue: true, ..small },
        HopperGemmConfig { batch: Batch::Ragged, fused: true, ..small },
        HopperGemmConfig { batch: Batch::Ragged, swap: true, bn: 32, dual_bias: true, ..small },
    ] {
        for size in [[1, 7, 65, 129], [3, 66, 72, 72], [2, 1, 1, 1]] {
            check(&config, size, &[size[2] as u64]);
        }
    }
}

#[test]
fn two_matrices_come_by_tensor_maps_in_one_pass() {
    for (fused, b) in [(false, Major::K), (true, Major::Mn)] {
        let config =
            HopperGemmConfig { dual: Dual::SiluMul, bn: 128, fused, b, ..HopperGemmConfig::default() };
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [1000, 2000, 1016]);
        let report = kernel.explanation.to_string();
        assert!(!report.contains("not tma"), "{config:?}: {report}");
        assert_eq!(report.matches("tma.load").count(), 3, "{config:?}: {report}");
    }
}

/// The tiles that are the largest, or the first choices of problems.
fn wide() -> Vec<HopperGemmConfig> {
    let wide = HopperGemmConfig { dual: Dual::SiluMul, bn: 128, ..HopperGemmConfig::default() };
    vec![
        wide,
        HopperGemmConfig { overlap_epilogue: true, dual_bias: true, stages: 3, ..wide },
        HopperGemmConfig { fused: true, b: Major::Mn, cluster: Cluster::AlongM(2), ..wide },
        HopperGemmConfig { dual: Dual::Add, bn: 256, stages: 2, ..wide },
        HopperGemmConfig { swap: true, bm: 64, bn: 16, warpgroups: 1, stages: 10, ..wide },
        HopperGemmConfig { dtype: DType::E4M3, bk: 128, overlap_epilogue: true, ..wide },
        HopperGemmConfig { batch: Batch::Ragged, fused: true, ..wide },
    ]
}

#[test]
fn ptxas_needs_no_spills_for_two_sums() {
    let Some(ptxas) = ptxas() else { return };
    for (i, config) in wide().into_iter().chain(configs()).enumerate() {
        let program = config.programs().unwrap().into_iter().find(|p| p.name == "gemm_hopper").unwrap();
        let kernel = kernel_for(&program, Arch::SM_90A, [4096, 4096, 4096]);
        assert_eq!(assemble(&ptxas, &format!("gemm_dual_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
    }
}

#[test]
fn the_first_choices_fit_two_sums() {
    let hopper = operator("gemm_hopper").unwrap();
    let tuning = hopper.tuning.unwrap();
    for (dual, [m, n, k]) in [
        ("silu_mul", [4096, 14336, 4096]),
        ("silu_mul", [16, 14336, 4096]),
        ("silu_mul", [1, 11008, 4096]),
        ("gelu_mul", [1000, 3001, 1000]),
    ] {
        let sizes = [("m", m), ("n", n), ("k", k)].map(|(name, size)| (name.to_string(), size)).into();
        let space =
            |given: &[(&str, &str)]| (tuning.space)(Arch::SM_90A.into(), &sizes, given).unwrap().points;
        let first = space(&[("dual", dual)]).remove(0);
        let given: Vec<(&str, &str)> = first.parameters.iter().map(|(name, v)| (*name, v.as_str())).collect();
        // More work than one product, and less than two.
        let alone = space(&[]).remove(0).estimate;
        assert!(first.estimate > alone && first.estimate < 2.2 * alone, "{given:?}: {alone}");
        let programs = (hopper.programs)(&given).unwrap();
        let launch = Launch { programs: &programs, sizes: &[("m", m), ("n", n), ("k", k)], scalars: &[] };
        for (kernel, i) in launch.kernels(Arch::SM_90A).iter().zip(0..) {
            if let Some(ptxas) = ptxas() {
                let name = format!("gemm_dual_{m}_{n}_{k}_{i}");
                assert_eq!(assemble(&ptxas, &name, kernel, Arch::SM_90A), 0, "{given:?}");
            }
        }
    }
}

#[test]
fn mistakes_about_two_matrices_name_the_field_and_what_would_be_right() {
    let says = |config: HopperGemmConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = HopperGemmConfig::default();
    says(HopperGemmConfig { fused: true, ..default }, "fused", "with dual=none");
    says(HopperGemmConfig { dual_bias: true, ..default }, "dual_bias", "dual=none has one");
    says(HopperGemmConfig { dual_bias: true, dual: Dual::Add, ..default }, "dual_bias", "dual=add has one");
    let dual = HopperGemmConfig { dual: Dual::SiluMul, bn: 128, ..default };
    says(HopperGemmConfig { bn: 256, stages: 2, ..dual }, "bn", "at most 200 columns fit");
    says(HopperGemmConfig { form: Form::Gemv, ..dual }, "form", "with dual=silu_mul");
    says(HopperGemmConfig { pack: Pack::Both, ..dual }, "pack", "must be none or a with dual=silu_mul");
    let (six, eight) = (DType::E2M3, DType::E4M3);
    let wanted = "must be no float of six bits with dual=silu_mul";
    says(HopperGemmConfig { dtype: six, ..dual }, "dtype", wanted);
    says(HopperGemmConfig { dtype: eight, dtype_b: Some(six), ..dual }, "dtype_b", wanted);
    let floats = HopperGemmConfig { dtype: DType::F32, bk: 32, ..dual };
    says(HopperGemmConfig { b: Major::Mn, ..floats }, "b", "of f32 must be k with dual=silu_mul");
    says(HopperGemmConfig { split: 2, ..dual }, "split", "with dual=silu_mul");
    says(HopperGemmConfig { dtype: DType::I8, bk: 128, ..dual }, "out", "dual=silu_mul multiplies in f32");
    let columns = HopperGemmConfig { epilogue: "col_sums".parse().unwrap(), ..dual };
    says(HopperGemmConfig { dual_bias: true, ..columns }, "epilogue", "with dual_bias=true");
    assert!(columns.validate().is_ok());
    says(HopperGemmConfig { stages: 5, ..dual }, "stages", "fewer stages");
    let set = (operator("gemm_hopper").unwrap().programs)(&[("dual", "swiglu")]);
    assert!(set.is_err_and(|e| e.to_string().contains("relu_mul, gelu_mul or silu_mul")));
}

#[test]
fn programs_print_and_parse_back() {
    for config in configs().into_iter().chain(wide()) {
        for program in config.programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
        }
    }
}
