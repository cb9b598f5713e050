//! `gemm_weights` with weights that threads cast into tensor memory: formats and configurations at edge sizes in all executions, its space, and what is refused.

use std::collections::BTreeSet;

use crate::common::{assemble, crossed, in_turn, kernel_for, nightly, ptxas};
use crate::weights::{check, formats};
use crate::weights_groups;
use tilewright_kernels::gemm_weights::{self, Batch, Cluster, Instruction, Scaled, Schedule, WeightsConfig};
use tilewright_machine::{Arch, DType};

/// One warpgroup that casts, 128 × 16 tiles and few blocks.
fn small() -> WeightsConfig {
    let default = WeightsConfig::default();
    WeightsConfig { instruction: Instruction::Tcgen05, stages: 3, warpgroups: 1, sm_count: 3, ..default }
}

/// Configurations in which everything that there is to choose is chosen differently once.
fn configs() -> Vec<WeightsConfig> {
    let small = small();
    let whole = WeightsConfig { schedule: Schedule::DataParallel, sm_count: 4, ..small };
    let two = WeightsConfig { warpgroups: 2, ..small };
    vec![
        two,
        WeightsConfig { bk: 256, group: Some(64), bn: 32, ..small },
        WeightsConfig { group: Some(64), bk: 192, ..small },
        WeightsConfig { scaled: Scaled::Weights, bk: 256, bn: 48, ..two },
        WeightsConfig { cluster: Cluster::AlongN(2), sm_count: 4, ..small },
        whole,
        WeightsConfig { cluster: Cluster::AlongK(2), ..whole },
        WeightsConfig { cluster: Cluster::AlongM(2), zeros: true, weights: DType::U4, ..whole },
        WeightsConfig { cluster: Cluster::AlongMn(2, 2), sm_count: 8, scaled: Scaled::Weights, ..whole },
        WeightsConfig { scaled: Scaled::Weights, bn: 64, bk: 64, buffers: 2, chunk: Some(16), ..whole },
        // Two warpgroups store, and sums leave room for two stages of 32 columns of weights.
        WeightsConfig { bn: 224, chunk: Some(32), stages: 2, scaled: Scaled::Weights, ..whole },
        WeightsConfig { bn: 144, chunk: Some(16), stages: 2, ..whole },
        WeightsConfig { dependent: true, ahead: true, zeros: true, weights: DType::U4, ..two },
        WeightsConfig {
            activations: Some(DType::E4M3),
            weights: DType::E4M3,
            group: Some(64),
            part: 32,
            ..two
        },
    ]
}

#[test]
fn every_format_is_right_at_edges() {
    let floats = formats().into_iter().filter(|config| config.activations != Some(DType::I8));
    let of = |config| WeightsConfig { instruction: Instruction::Tcgen05, bm: 128, ..config };
    for (config, size) in crossed(floats.map(of), gemm_weights::edge_sizes, 6) {
        let report = check(&config, size, &[size[2] as u64]);
        assert!(report.races.is_empty(), "{config:?}");
    }
}

#[test]
fn every_configuration_is_right_at_edges() {
    for (config, size) in crossed(configs(), gemm_weights::edge_sizes, 3) {
        check(&config, size, &[size[2] as u64]);
    }
}

#[test]
fn it_computes_the_same_whatever_the_order_of_events() {
    let small = small();
    let seeds: Vec<u64> = (1..=if nightly() { 50 } else { 4 }).collect();
    for config in [
        small,
        WeightsConfig { sm_count: 5, zeros: true, weights: DType::U4, group: Some(32), part: 32, ..small },
        WeightsConfig {
            scaled: Scaled::Weights,
            schedule: Schedule::DataParallel,
            warpgroups: 2,
            sm_count: 2,
            ..small
        },
    ] {
        check(&config, [20, 200, 640], &seeds);
    }
}

#[test]
fn groups_and_rows_that_lie_anywhere_are_right() {
    let whole = WeightsConfig { schedule: Schedule::DataParallel, sm_count: 4, ..small() };
    let gather = WeightsConfig { gather: true, load_registers: 56, ..whole };
    for (i, config) in [
        WeightsConfig { batch: Batch::Grouped, group: Some(64), ..whole },
        WeightsConfig { batch: Batch::Ragged, cluster: Cluster::AlongN(2), scaled: Scaled::Weights, ..whole },
        WeightsConfig { batch: Batch::Ragged, warpgroups: 2, ..gather },
        WeightsConfig { batch: Batch::Grouped, zeros: true, weights: DType::U4, bn: 32, ..gather },
        WeightsConfig { batch: Batch::None, cluster: Cluster::AlongK(2), group: None, ..gather },
    ]
    .into_iter()
    .enumerate()
    {
        weights_groups::check(&config, &[9, 0, 37], [136, 168], &[i as u64]);
        if in_turn(i, 3) {
            weights_groups::check(&config, &[1], [1, 1], &[1]);
        }
    }
}

/// The cast is the layout that the products read: no shuffles, nothing through shared memory.
#[test]
fn what_a_thread_casts_it_stores_to_tensor_memory() {
    for (weights, activations, part) in
        [(DType::I4, None, 64), (DType::U2, None, 128), (DType::E2M1, Some(DType::E4M3), 64)]
    {
        let config = WeightsConfig { weights, activations, part, ..small() };
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_100A, [64, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(report.contains("tcgen05.st.16x128b") && !report.contains("shfl"), "{report}");
        assert!(kernel.ptx.contains("tcgen05.st.sync.aligned.16x128b"), "{config:?}");
    }
}

#[test]
fn kernels_are_assembled_without_spills() {
    let few = WeightsConfig { sm_count: 148, stages: 12, warpgroups: 2, ..small() };
    let many = WeightsConfig {
        schedule: Schedule::DataParallel,
        scaled: Scaled::Weights,
        warpgroups: 1,
        bn: 128,
        stages: 4,
        ..few
    };
    let list = [
        few,
        WeightsConfig { zeros: true, weights: DType::U4, dtype: DType::BF16, warpgroups: 1, ..few },
        WeightsConfig {
            weights: DType::E2M1,
            scale: Some(DType::UE8M0),
            group: Some(32),
            part: 32,
            warpgroups: 1,
            ..few
        },
        many,
        WeightsConfig { bn: 224, stages: 3, chunk: Some(32), ..many },
        WeightsConfig {
            weights: DType::U4,
            zeros: true,
            upper: Some(DType::U1),
            group: Some(64),
            bn: 64,
            ..many
        },
        WeightsConfig { batch: Batch::Ragged, gather: true, load_registers: 104, ..many },
        WeightsConfig {
            activations: Some(DType::E4M3),
            scaled: Scaled::Sums,
            bn: 64,
            epilogue: "row_scale+bias+gelu".parse().unwrap(),
            ..many
        },
    ];
    for (turn, config) in list.into_iter().enumerate() {
        let arch = if turn % 3 == 2 { Arch::SM_103A } else { Arch::SM_100A };
        let kernel = kernel_for(&config.program().unwrap(), arch, [4096, 4096, 4096]);
        assert!(kernel.ptx.contains("tcgen05.mma") && !kernel.ptx.contains("wgmma"), "{config:?}");
        if let Some(ptxas) = ptxas() {
            let spilled = assemble(&ptxas, &format!("weights_tcgen05_{turn}"), &kernel, arch);
            assert_eq!(spilled, 0, "{config:?} spills");
        }
    }
}

#[test]
fn the_space_is_of_weights_in_tensor_memory() {
    let default = WeightsConfig::default();
    for (turn, sizes) in [[1, 4096, 4096], [64, 28672, 4096], [4096, 4096, 4096]].into_iter().enumerate() {
        let arch = [Arch::SM_100A, Arch::SM_103A][turn % 2];
        let all: Vec<WeightsConfig> = default.space(arch, sizes).collect();
        assert!(all.len() >= 12, "{sizes:?}: {}", all.len());
        assert!(all.iter().all(|config| config.instruction == Instruction::Tcgen05));
        let step = if nightly() { 1 } else { (all.len() / 6).max(1) };
        for (at, config) in all.iter().enumerate().step_by(step) {
            let kernel = kernel_for(&config.program().unwrap(), arch, sizes);
            if let Some(ptxas) = ptxas() {
                let spilled = assemble(&ptxas, &format!("weights_space_{turn}_{at}"), &kernel, arch);
                assert_eq!(spilled, 0, "{config:?} spills");
            }
        }
    }
    assert!(default.space(Arch::SM_90A, [64, 4096, 4096]).all(|c| c.instruction != Instruction::Tcgen05));
    assert_eq!(default.space(Arch::SM_120A, [16, 4096, 4096]).count(), 0);
    let best = |m: i64| {
        let estimate = |c: &WeightsConfig| c.estimate(m, 28672, 4096);
        let space = default.space(Arch::SM_100A, [m, 28672, 4096]);
        space.min_by(|a, b| estimate(a).total_cmp(&estimate(b))).unwrap()
    };
    // Few rows want narrow tiles, many rows wide ones.
    assert!(best(1).bn == 16 && best(4096).bn >= 128, "{:?} {:?}", best(1), best(4096));
    let rejected = |arch| small().reject(arch).unwrap_or_default();
    assert!(
        rejected(Arch::SM_90A).contains("tcgen05, which sm_100a has") && rejected(Arch::SM_103A).is_empty()
    );
    assert!(default.reject(Arch::SM_100A).is_some_and(|reason| reason.contains("wgmma")));
}

#[test]
fn left_factors_fill_what_sums_leave() {
    let columns = |config: WeightsConfig| {
        let program = config.program().unwrap();
        let kernel = kernel_for(&program, Arch::SM_100A, [64, 4096, 4096]);
        let report = kernel.explanation.to_string();
        let line = report.lines().find(|line| line.contains("columns of tensor memory")).map(str::to_string);
        line.unwrap_or_default()
    };
    let few = columns(small());
    assert!(few.contains("`acc` 0 to 31, `left_factor` 32 to 287"), "{few}");
    let (scaled, schedule) = (Scaled::Weights, Schedule::DataParallel);
    let many = columns(WeightsConfig { bn: 224, chunk: Some(32), stages: 2, scaled, schedule, ..small() });
    assert!(many.contains("`acc` 0 to 447, `left_factor` 448 to 511"), "{many}");
}

#[test]
fn what_tensor_memory_does_not_do_is_refused() {
    let small = small();
    let mut fields = BTreeSet::new();
    let mut says = |config: WeightsConfig, field: &'static str, text: &str| {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(text), "{error}");
        fields.insert(field);
    };
    let bytes = WeightsConfig { activations: Some(DType::I8), ..small };
    says(bytes, "activations", "must be same or e4m3, with instruction=tcgen05");
    says(WeightsConfig { bm: 64, ..small }, "bm", "must be 128");
    says(WeightsConfig { bm: 256, ..small }, "bm", "must be 128");
    says(WeightsConfig { bn: 24, ..small }, "bn", "multiple of 16 from 16 to 240");
    says(WeightsConfig { warpgroups: 3, ..small }, "warpgroups", "from 1 to 2");
    says(WeightsConfig { blocks: 2, ..small }, "blocks", "must be 1");
    let whole = WeightsConfig { schedule: Schedule::DataParallel, ..small };
    says(WeightsConfig { overlap_epilogue: true, ..whole }, "overlap_epilogue", "must be false");
    let wide = WeightsConfig { bn: 240, scaled: Scaled::Weights, ..whole };
    says(wide, "bn", "columns of tensor memory");
    says(WeightsConfig { warpgroups: 2, group: Some(64), ..small }, "part", "must divide a group of 64");
    says(WeightsConfig { warpgroups: 2, bk: 64, ..small }, "bk", "multiple of 128");
    says(WeightsConfig { bn: 128, warpgroups: 2, stages: 2, ..small }, "bn", "registers of a thread");
    let three = WeightsConfig { weights: DType::U4, upper: Some(DType::U1), zeros: true, part: 128, ..whole };
    says(WeightsConfig { scaled: Scaled::Weights, ..three }, "part", "256 registers of a thread");
    assert_eq!(fields.len(), 8);
}
