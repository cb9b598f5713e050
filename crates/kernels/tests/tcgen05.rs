//! `gemm_hopper` with its sums in tensor memory: edge sizes in all executions, its space, and what is refused.

use std::collections::BTreeMap;

use crate::common::{assemble, crossed, in_turn, kernel_for, ptxas, small_hopper};
use crate::product::check;
use tilewright_kernels::gemm_hopper::{
    Batch, Cluster, Dual, FillMode, Form, HopperGemmConfig, Major, Pack, Precision, Schedule, Triangle,
};
use tilewright_kernels::operator;
use tilewright_machine::{Arch, DType};

fn small() -> HopperGemmConfig {
    HopperGemmConfig { form: Form::Tcgen05, bm: 128, ..small_hopper() }
}

/// Configurations in which everything that there is to choose is chosen differently once.
fn configs() -> Vec<HopperGemmConfig> {
    let small = small();
    let epilogue = |text: &str| text.parse().unwrap();
    vec![
        small,
        HopperGemmConfig { bm: 64, bn: 16, dtype: DType::BF16, out: Some(DType::F32), ..small },
        HopperGemmConfig { a: Major::Mn, b: Major::Mn, bn: 80, ..small },
        HopperGemmConfig { dtype: DType::F32, bk: 32, b: Major::Mn, ..small },
        HopperGemmConfig { dtype: DType::F32, bk: 24, a: Major::Mn, swap: true, bn: 96, stages: 2, ..small },
        HopperGemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E5M2), bk: 128, ..small },
        HopperGemmConfig { dtype: DType::E5M2, a: Major::Mn, b: Major::Mn, bk: 96, bn: 80, ..small },
        HopperGemmConfig {
            bn: 256,
            warpgroups: 2,
            stages: 2,
            epilogue: epilogue("alpha+bias+gelu+residual"),
            ..small
        },
        HopperGemmConfig { swap: true, bn: 32, epilogue: epilogue("row_scale+col_scale+row_sums"), ..small },
        HopperGemmConfig { split: 3, bm: 64, epilogue: epilogue("alpha+beta"), ..small },
        HopperGemmConfig { schedule: Schedule::StreamK, ..small },
        HopperGemmConfig { schedule: Schedule::Remainder, chunk: Some(16), ..small },
        HopperGemmConfig { pack: Pack::Both, dependent: true, ..small },
        HopperGemmConfig { dual: Dual::SiluMul, fused: true, warpgroups: 2, ..small },
        HopperGemmConfig { dual: Dual::Add, b: Major::Mn, ..small },
        HopperGemmConfig { dual: Dual::Mul, bn: 128, chunk: Some(32), warpgroups: 2, stages: 2, ..small },
        HopperGemmConfig { triangular: Triangle::Upper, ..small },
        HopperGemmConfig { triangular: Triangle::Lower, swap: true, ..small },
        HopperGemmConfig { fill: FillMode::Lower, bm: 64, ..small },
        HopperGemmConfig { fill: FillMode::Symmetric, bm: 64, ..small },
        HopperGemmConfig { cluster: Cluster::AlongK(2), ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), b: Major::Mn, ..small },
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), swap: true, dependent: true, ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), schedule: Schedule::StreamK, ..small },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), ..small },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongM(2),
            bn: 128,
            b: Major::Mn,
            a: Major::Mn,
            ..small
        },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongN(2),
            swap: true,
            bn: 32,
            dependent: true,
            ..small
        },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongM(2),
            schedule: Schedule::StreamK,
            dtype: DType::E4M3,
            bk: 128,
            ..small
        },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongM(2),
            dual: Dual::SiluMul,
            fused: true,
            warpgroups: 2,
            pack: Pack::A,
            ..small
        },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongMn(2, 2), sm_count: 4, ..small },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongMn(2, 2),
            sm_count: 8,
            swap: true,
            a: Major::Mn,
            b: Major::Mn,
            dual: Dual::SiluMul,
            warpgroups: 2,
            ..small
        },
        HopperGemmConfig { gather: true, load_registers: 64, ..small },
        HopperGemmConfig { dtype: DType::I8, bk: 128, b: Major::Mn, ..small },
        HopperGemmConfig { dtype: DType::U8, bk: 128, bm: 64, swap: true, out: Some(DType::I32), ..small },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), dtype: DType::I8, bk: 128, ..small },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongM(4), sm_count: 4, ..small },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongMn(4, 2),
            sm_count: 8,
            b: Major::Mn,
            bn: 128,
            warpgroups: 2,
            ..small
        },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongN(4), sm_count: 4, swap: true, ..small },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongM(2),
            gather: true,
            load_registers: 64,
            ..small
        },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongN(2),
            swap: true,
            gather: true,
            load_registers: 64,
            ..small
        },
        HopperGemmConfig { complex: true, bn: 32, ..small },
    ]
}

#[test]
fn products_with_sums_in_tensor_memory_are_right_at_edges() {
    let sizes = |config: &HopperGemmConfig| match config.fill {
        FillMode::Full => vec![[129, 65, 101], [200, 136, 264], [1, 1, 1]],
        FillMode::Lower | FillMode::Symmetric => vec![[130, 130, 72], [65, 65, 33]],
    };
    for (config, [m, n, k]) in crossed(configs(), sizes, 5) {
        check(&config, [1, m, n, k], &[1, k as u64]);
    }
}

#[test]
fn batches_and_groups_are_right() {
    let small = small();
    let two = HopperGemmConfig { dual: Dual::GeluMul, fused: true, warpgroups: 2, ..small };
    for (turn, (config, size)) in [
        (HopperGemmConfig { batch: Batch::Packed, ..small }, [3, 130, 72, 96]),
        (HopperGemmConfig { batch: Batch::Pointers, bm: 64, ..small }, [2, 70, 136, 72]),
        (HopperGemmConfig { batch: Batch::Strided, ..two }, [2, 70, 136, 72]),
        (HopperGemmConfig { batch: Batch::Grouped, ..small }, [3, 400, 72, 96]),
        (HopperGemmConfig { batch: Batch::Ragged, ..small }, [3, 200, 72, 96]),
        (HopperGemmConfig { batch: Batch::Ragged, swap: true, bn: 32, ..small }, [4, 101, 136, 96]),
    ]
    .into_iter()
    .enumerate()
    {
        let seeds: &[u64] = if in_turn(turn, 2) { &[1, 5] } else { &[3] };
        check(&config, size, seeds);
    }
}

#[test]
fn kernels_are_assembled_without_spills() {
    let default = HopperGemmConfig { form: Form::Tcgen05, sm_count: 148, ..HopperGemmConfig::default() };
    let list = [
        default,
        HopperGemmConfig { bn: 128, stages: 6, warpgroups: 1, dtype: DType::BF16, ..default },
        HopperGemmConfig {
            dtype: DType::E4M3,
            bk: 128,
            stages: 3,
            epilogue: "row_scale+col_scale+bias".parse().unwrap(),
            ..default
        },
        HopperGemmConfig { dtype: DType::F32, bk: 32, bn: 192, ..default },
        HopperGemmConfig { schedule: Schedule::StreamK, chunk: Some(32), ..default },
        HopperGemmConfig { bm: 64, swap: true, bn: 16, stages: 12, warpgroups: 1, ..default },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), stages: 6, ..default },
        HopperGemmConfig { pair: true, cluster: Cluster::AlongMn(2, 2), stages: 6, ..default },
        HopperGemmConfig {
            pair: true,
            cluster: Cluster::AlongN(2),
            swap: true,
            dtype: DType::E4M3,
            bk: 128,
            stages: 6,
            ..default
        },
    ];
    for (turn, config) in list.into_iter().enumerate() {
        let arch = if turn % 3 == 2 { Arch::SM_103A } else { Arch::SM_100A };
        let kernel = kernel_for(&config.program().unwrap(), arch, [4096, 4096, 4096]);
        assert!(kernel.ptx.contains("tcgen05.mma") && !kernel.ptx.contains("wgmma"), "{config:?}");
        if let Some(ptxas) = ptxas() {
            let spilled = assemble(&ptxas, &format!("gemm_tcgen05_{turn}"), &kernel, arch);
            assert_eq!(spilled, 0, "{config:?} spills");
        }
    }
}

#[test]
fn the_space_is_of_sums_in_tensor_memory() {
    let all: Vec<HopperGemmConfig> = HopperGemmConfig::space(Arch::SM_100A, 1024, 6144, 4096).collect();
    assert!(all.len() >= 100 && all.iter().all(|config| config.form == Form::Tcgen05), "{}", all.len());
    assert!(HopperGemmConfig::space(Arch::SM_90A, 1024, 6144, 4096).all(|config| config.form == Form::Wgmma));
    assert_eq!(HopperGemmConfig::space(Arch::SM_120A, 1024, 6144, 4096).count(), 0);
    for config in all.iter().step_by(all.len() / 12) {
        kernel_for(&config.program().unwrap(), Arch::SM_100A, [1024, 6144, 4096]);
    }
    let first =
        all.iter().min_by(|a, b| a.estimate(8192, 8192, 8192).total_cmp(&b.estimate(8192, 8192, 8192)));
    assert!(first.is_some_and(|c| c.bm == 128 && c.bn >= 192), "{first:?}");
    let paired = all.iter().filter(|config| config.pair);
    assert!(paired.clone().count() >= 10 && paired.clone().all(|config| config.cluster != Cluster::None));
    assert!(paired.clone().any(|config| config.bn == 256 && config.stages >= 5));
}

#[test]
fn pairs_of_the_space_halve_factors_that_are_contiguous_along_their_rows() {
    let hopper = operator("gemm_hopper").unwrap();
    let sizes = ["m", "n", "k"].map(|name| (name.to_string(), 4096)).into();
    for (turn, given) in [
        [("dtype", "f32"), ("a", "k"), ("b", "n")],
        [("dtype", "f32"), ("a", "m"), ("b", "k")],
        [("dtype", "e4m3"), ("a", "k"), ("b", "n")],
        [("dtype", "e4m3"), ("a", "m"), ("b", "n")],
    ]
    .iter()
    .enumerate()
    {
        let points = (hopper.tuning.unwrap().space)(Arch::SM_100A.into(), &sizes, given).unwrap().points;
        // One of each width, either way round.
        let mut paired = BTreeMap::new();
        for point in &points {
            let value =
                |name: &str| point.parameters.iter().find(|(other, _)| *other == name).map(|(_, v)| v);
            if value("pair").is_some_and(|pair| pair == "true") {
                paired.entry((value("swap"), value("bn"))).or_insert(point);
            }
        }
        assert!(paired.len() >= 4, "{given:?}: {:?}", paired.keys());
        for (at, point) in paired.values().enumerate().filter(|(at, _)| in_turn(turn + at, 4)) {
            let parameters: Vec<(&str, &str)> =
                point.parameters.iter().map(|(name, value)| (&**name, &**value)).collect();
            let programs = (hopper.programs)(&parameters).unwrap();
            let program = programs.last().unwrap();
            let kernel = kernel_for(program, Arch::SM_100A, [4096, 4096, 4096]);
            assert!(kernel.ptx.contains("cta_group::2"), "{parameters:?}");
            if let Some(ptxas) = ptxas() {
                assemble(&ptxas, &format!("gemm_pair_{turn}_{at}"), &kernel, Arch::SM_100A);
            }
        }
    }
}

#[test]
fn what_tensor_memory_does_not_do_is_refused() {
    let small = small();
    let says = |config: HopperGemmConfig, field: &str, text: &str| {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(text), "{error}");
    };
    says(HopperGemmConfig { bm: 256, warpgroups: 2, ..small }, "bm", "must be 64 or 128");
    says(HopperGemmConfig { bn: 72, ..small }, "bn", "multiple of 16");
    says(HopperGemmConfig { dual: Dual::Mul, bn: 256, stages: 1, ..small }, "bn", "columns of tensor memory");
    let along_n = HopperGemmConfig { dtype: DType::F32, bk: 32, b: Major::Mn, bn: 80, ..small };
    says(along_n, "bn", "must be a multiple of 32 where floats lie along it");
    says(HopperGemmConfig { promote: Some(true), ..small }, "promote", "must be false");
    says(HopperGemmConfig { sums_a: true, ..small }, "sums_a", "must be false");
    says(HopperGemmConfig { overlap_epilogue: true, ..small }, "overlap_epilogue", "must be false");
    says(HopperGemmConfig { in_flight: 0, ..small }, "in_flight", "must be 1");
    says(HopperGemmConfig { sparse: true, ..small }, "form", "must be wgmma");
    let pair = HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), ..small };
    says(HopperGemmConfig { form: Form::Wgmma, ..pair }, "pair", "form=tcgen05 alone");
    says(HopperGemmConfig { bm: 64, ..pair }, "pair", "bm=128");
    says(HopperGemmConfig { swap: true, ..pair }, "pair", "cluster=n2");
    says(HopperGemmConfig { cluster: Cluster::AlongN(2), ..pair }, "pair", "cluster=m2");
    let gathers = HopperGemmConfig { gather: true, load_registers: 64, ..pair };
    let turned = HopperGemmConfig { swap: true, cluster: Cluster::AlongN(2), bn: 96, ..gathers };
    says(turned, "pair", "bn a power of two");
    says(HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), ..gathers }, "gather", "cluster must be none");
    let integers = HopperGemmConfig { dtype: DType::I8, bk: 128, bn: 48, ..pair };
    says(integers, "bn", "multiple of 32");
    let integers = HopperGemmConfig { bn: 64, ..integers };
    assert_eq!(integers.reject(Arch::SM_100A), None);
    assert!(
        integers.reject(Arch::SM_103A).is_some_and(|why| why.contains("lacks tcgen05 of integers")),
        "{:?}",
        integers.reject(Arch::SM_103A)
    );
    let along_n = HopperGemmConfig { b: Major::Mn, ..pair };
    let floats = HopperGemmConfig { dtype: DType::F32, bk: 32, bn: 96, ..along_n };
    says(
        floats,
        "bn",
        "must be a multiple of 64 where floats lie along it, and blocks of a pair have half each",
    );
    says(
        HopperGemmConfig { dtype: DType::E4M3, bk: 128, bn: 48, ..along_n },
        "bn",
        "must be a multiple of 32",
    );
    let (cluster, swap) = (Cluster::AlongN(2), true);
    let along_m =
        HopperGemmConfig { a: Major::Mn, cluster, swap, dtype: DType::E4M3, bk: 128, bn: 80, ..pair };
    says(along_m, "bn", "must be a multiple of 32");
    says(
        HopperGemmConfig { dtype: DType::F32, bk: 32, precision: Precision::Tf32x3, ..small },
        "precision",
        "must be tf32",
    );
    assert!(
        small
            .reject(Arch::SM_90A)
            .is_some_and(|why| why.contains("lacks tcgen05") && why.contains("sm_100a"))
    );
}
