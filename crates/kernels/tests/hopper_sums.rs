//! `gemm_hopper` with sums of the rows of A: edge sizes in all executions, with what they go with, no work between lanes and no spills, and
//! what is refused.

use crate::common::{assemble, kernel_for, ptxas, small_hopper};
use crate::product::{check, check_hopper};
use tilewright_kernels::ConfigError;
use tilewright_kernels::gemm_hopper::{Batch, Cluster, Dual, Form, HopperGemmConfig, Major, Pack};
use tilewright_machine::{Arch, DType};
use tilewright_tile::parse;

/// Configurations with every way in which A lies or comes.
fn configs() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { sums_a: true, ..small_hopper() };
    vec![
        small,
        HopperGemmConfig { a: Major::Mn, dtype: DType::BF16, overlap_epilogue: true, ..small },
        HopperGemmConfig { swap: true, bn: 16, in_flight: 0, ..small },
        HopperGemmConfig { swap: true, a: Major::Mn, cluster: Cluster::AlongM(2), ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), in_flight: 2, ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), overlap_epilogue: true, ..small },
        HopperGemmConfig { pack: Pack::Both, ..small },
        HopperGemmConfig { dual: Dual::SiluMul, bn: 64, fused: true, ..small },
        HopperGemmConfig { epilogue: "bias+relu+row_sums".parse().unwrap(), ..small },
        HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..small },
        HopperGemmConfig { dtype: DType::I8, bk: 128, ..small },
    ]
}

#[test]
fn sums_of_rows_of_a_are_right_at_edges() {
    for config in configs() {
        for size in [[1, 1, 1], [7, 65, 129], [65, 136, 88]] {
            check_hopper(&config, size, &[size[2] as u64]);
        }
    }
    for config in [0, 1, 4].map(|i| configs()[i]) {
        check_hopper(&config, [72, 136, 264], &[1, 2, 3]);
    }
}

#[test]
fn batches_and_groups_have_sums_of_rows_of_their_own() {
    let small = configs()[0];
    for config in [
        HopperGemmConfig { batch: Batch::Packed, ..small },
        HopperGemmConfig { batch: Batch::Strided, swap: true, bn: 32, ..small },
        HopperGemmConfig { batch: Batch::Grouped, overlap_epilogue: true, ..small },
    ] {
        for size in [[1, 7, 65, 129], [3, 66, 72, 72], [2, 1, 1, 1]] {
            check(&config, size, &[size[2] as u64]);
        }
    }
}

#[test]
fn a_step_adds_without_shuffles_conflicts_or_spills() {
    let wide = HopperGemmConfig { sums_a: true, ..HopperGemmConfig::default() };
    for (i, config) in [
        wide,
        HopperGemmConfig { overlap_epilogue: true, ..wide },
        HopperGemmConfig { bm: 256, bn: 128, buffers: 1, ..wide },
        HopperGemmConfig { a: Major::Mn, ..wide },
        HopperGemmConfig { dual: Dual::SiluMul, bn: 128, ..wide },
        HopperGemmConfig { swap: true, bm: 64, bn: 16, warpgroups: 1, stages: 16, ..wide },
        HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..wide },
    ]
    .into_iter()
    .enumerate()
    {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
        if config.a == Major::K && !config.swap {
            let report = kernel.explanation.to_string();
            let lines: Vec<&str> = report.lines().skip_while(|line| !line.contains("statements")).collect();
            let after = |text: &str| {
                let at = lines.iter().position(|line| line.contains(text));
                at.and_then(|at| lines.get(at + 1)).unwrap_or_else(|| panic!("{text}: {report}")).to_string()
            };
            assert!(after("tile_of_a)").contains("16-byte shared accesses, 0 bank conflicts"), "{report}");
            assert!(after("some_of_a = reduce").contains("0 × shfl.sync"), "{report}");
        }
        if let Some(ptxas) = ptxas() {
            assert_eq!(assemble(&ptxas, &format!("gemm_sums_a_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
        }
    }
}

#[test]
fn mistakes_about_sums_of_rows_name_the_field_and_what_would_be_right() {
    let says = |config: HopperGemmConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let wide = HopperGemmConfig { sums_a: true, ..HopperGemmConfig::default() };
    says(HopperGemmConfig { split: 2, ..wide }, "split", "with sums_a=true");
    says(HopperGemmConfig { cluster: Cluster::AlongK(2), ..wide }, "cluster", "with sums_a=true");
    says(HopperGemmConfig { batch: Batch::Ragged, ..wide }, "batch", "with sums_a=true");
    let vector = HopperGemmConfig { form: Form::Gemv, bm: 8, bn: 1, bk: 256, ..wide };
    says(vector, "sums_a", "says nothing with form=gemv");
}

#[test]
fn programs_print_and_parse_back() {
    for config in configs() {
        for program in config.programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
        }
    }
}
