//! `gemm_hopper` with rows of A that lie anywhere: at edge sizes in all executions, with what it goes with, the instructions that copy, registers,
//! and what is refused.

use crate::common::{assemble, in_turn, kernel_for, ptxas, small_hopper};
use crate::product::{check, check_hopper};
use tilewright_kernels::ConfigError;
use tilewright_kernels::gemm_hopper::{
    Batch, Cluster, Dual, FillMode, Form, HopperGemmConfig, Major, Pack, Precision, Schedule,
};
use tilewright_machine::{Arch, DType};

/// Configurations of which each thing that gathered rows go with is one.
fn configs() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { gather: true, load_registers: 56, ..small_hopper() };
    let list = |parts: &str| parts.parse().unwrap();
    vec![
        HopperGemmConfig { batch: Batch::Ragged, ..small },
        HopperGemmConfig { batch: Batch::Grouped, overlap_epilogue: true, ..small },
        HopperGemmConfig { batch: Batch::Ragged, dual: Dual::SiluMul, fused: true, bn: 32, ..small },
        HopperGemmConfig { batch: Batch::Ragged, dual: Dual::SiluMul, swap: true, bn: 16, ..small },
        HopperGemmConfig {
            batch: Batch::Ragged,
            swap: true,
            bn: 8,
            cluster: Cluster::AlongK(2),
            fused: true,
            dual: Dual::SiluMul,
            ..small
        },
        HopperGemmConfig {
            batch: Batch::Ragged,
            overlap_epilogue: true,
            dtype: DType::BF16,
            b: Major::Mn,
            ..small
        },
        HopperGemmConfig {
            batch: Batch::Grouped,
            dtype: DType::E4M3,
            bk: 128,
            load_registers: 104,
            epilogue: list("col_scale+bias"),
            ..small
        },
        HopperGemmConfig { batch: Batch::Grouped, sums_a: true, ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), epilogue: list("alpha+bias"), ..small },
        HopperGemmConfig { split: 2, ..small },
    ]
}

#[test]
fn products_of_rows_that_lie_anywhere_are_right_at_edges() {
    for (i, config) in configs().into_iter().enumerate() {
        let sizes = [[1, 1, 1], [7, 65, 129], [65, 136, 88]].into_iter().enumerate();
        for (_, size) in sizes.filter(|(j, _)| in_turn(i + j, 2)) {
            if config.batch.to_string() == "none" {
                check_hopper(&config, size, &[size[2] as u64]);
            } else {
                check(&config, [3, size[0], size[1], size[2]], &[size[2] as u64]);
            }
        }
    }
    for config in [0, 1, 4].map(|i| configs()[i]) {
        check(&config, [4, 200, 136, 264], &[1, 2, 3]);
    }
}

/// The tiles of many rows and of few.
fn wide() -> Vec<HopperGemmConfig> {
    let many = HopperGemmConfig {
        batch: Batch::Ragged,
        gather: true,
        load_registers: 56,
        math_registers: 224,
        ..HopperGemmConfig::default()
    };
    let few = HopperGemmConfig {
        swap: true,
        bm: 64,
        bn: 16,
        warpgroups: 1,
        stages: 10,
        math_registers: 240,
        ..many
    };
    vec![
        many,
        HopperGemmConfig { dual: Dual::SiluMul, fused: true, bn: 128, chunk: Some(32), ..many },
        HopperGemmConfig { dual: Dual::SiluMul, fused: true, ..few },
        HopperGemmConfig { dual: Dual::SiluMul, fused: true, cluster: Cluster::AlongK(4), ..few },
    ]
}

#[test]
fn threads_copy_rows_in_whole_pieces_and_need_no_spills() {
    for (i, config) in wide().into_iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(
            report
                .contains("cp.async.16, 16-byte global accesses, 16-byte shared accesses, 0 bank conflicts"),
            "{report}"
        );
        assert!(!kernel.ptx.contains("cp.async.ca"), "{config:?}");
        if let Some(ptxas) = ptxas().filter(|_| in_turn(i, 2)) {
            assert_eq!(assemble(&ptxas, &format!("gemm_gather_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
        }
    }
}

#[test]
fn mistakes_about_rows_that_lie_anywhere_name_the_field_and_what_would_be_right() {
    let says = |config: HopperGemmConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let gather = HopperGemmConfig { load_registers: 56, ..wide()[0] };
    says(HopperGemmConfig { load_registers: 24, ..gather }, "load_registers", "at least 56 with gather=true");
    says(HopperGemmConfig { a: Major::Mn, ..gather }, "gather", "a must be k");
    says(HopperGemmConfig { batch: Batch::Packed, ..gather }, "gather", "none, grouped or ragged");
    says(HopperGemmConfig { pack: Pack::A, ..gather }, "gather", "pack must be none");
    let floats = HopperGemmConfig { dtype: DType::F32, bk: 32, ..gather };
    says(HopperGemmConfig { precision: Precision::Tf32x3, ..floats }, "gather", "precision must be tf32");
    says(HopperGemmConfig { b: Major::Mn, ..floats }, "gather", "b of f32 must be k");
    let six = HopperGemmConfig { dtype: DType::E2M3, ..gather };
    says(six, "gather", "six bits are copied ahead: dtype");
    says(HopperGemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E3M2), ..gather }, "gather", "six bits");
    says(HopperGemmConfig { cluster: Cluster::AlongN(2), ..gather }, "gather", "along m or along k");
    let one = HopperGemmConfig { batch: Batch::None, ..gather };
    says(HopperGemmConfig { fill: FillMode::Lower, bn: 128, ..one }, "gather", "no order");
    says(HopperGemmConfig { schedule: Schedule::StreamK, ..one }, "gather", "data_parallel");
    says(HopperGemmConfig { form: Form::Gemv, ..one }, "gather", "must be wgmma");
    says(HopperGemmConfig { sparse: true, ..one }, "gather", "must be false");
}
