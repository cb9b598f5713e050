//! `gemm_hopper`: its configurations at edge sizes in all executions, epilogues, batches, splits of k, and what is refused.

use crate::common::{assemble, crossed, in_turn, kernel_for, ptxas, small_hopper};
use crate::product::{check, check_hopper};
use tilewright_kernels::gemm_hopper::{
    self, Batch, Cluster, Epilogue, Form, HopperGemmConfig, Major, Part, Rasterization, Schedule,
};
use tilewright_kernels::{ConfigError, Point, operator};
use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_tile::parse;

/// Configurations in which everything that there is to choose is chosen differently once.
fn hopper_configs() -> Vec<HopperGemmConfig> {
    let small = small_hopper();
    let default = HopperGemmConfig { sm_count: 4, ..HopperGemmConfig::default() };
    vec![
        small,
        HopperGemmConfig { a: Major::Mn, in_flight: 0, rasterization: Rasterization::Serpentine(2), ..small },
        HopperGemmConfig { b: Major::Mn, in_flight: 2, rasterization: Rasterization::Hilbert(1), ..small },
        HopperGemmConfig { a: Major::Mn, b: Major::Mn, dtype: DType::BF16, ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), b: Major::Mn, in_flight: 2, ..small },
        HopperGemmConfig {
            cluster: Cluster::AlongM(4),
            b: Major::Mn,
            rasterization: Rasterization::Serpentine(1),
            ..small
        },
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), a: Major::Mn, in_flight: 0, ..small },
        HopperGemmConfig {
            cluster: Cluster::AlongMn(2, 4),
            swap: true,
            overlap_epilogue: true,
            sm_count: 16,
            ..small
        },
        HopperGemmConfig { bm: 128, bn: 112, stages: 2, warpgroups: 2, buffers: 3, ..small },
        HopperGemmConfig { bn: 192, a: Major::Mn, ..default },
        HopperGemmConfig {
            bk: 32,
            chunk: Some(32),
            buffers: 1,
            dtype: DType::BF16,
            stages: 1,
            in_flight: 0,
            ..small
        },
        HopperGemmConfig { overlap_epilogue: true, chunk: Some(16), ..small },
        HopperGemmConfig {
            overlap_epilogue: true,
            cluster: Cluster::AlongM(2),
            bn: 48,
            buffers: 2,
            b: Major::Mn,
            in_flight: 2,
            ..small
        },
        HopperGemmConfig {
            overlap_epilogue: true,
            swap: true,
            cluster: Cluster::AlongN(2),
            in_flight: 0,
            ..small
        },
        HopperGemmConfig { swap: true, bn: 16, stages: 5, hint_b: Some(CacheHint::EvictFirst), ..small },
        HopperGemmConfig {
            swap: true,
            bm: 128,
            bn: 64,
            warpgroups: 2,
            cluster: Cluster::AlongM(2),
            a: Major::Mn,
            hint_a: Some(CacheHint::EvictLast),
            hint_c: Some(CacheHint::EvictFirst),
            ..small
        },
        HopperGemmConfig { overlap_epilogue: true, sm_count: 2, ..default },
        default,
    ]
}

/// Factors of 8 bits: both kinds of floats, both kinds of integers, with every type of results.
fn eight_bits() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..small_hopper() };
    let list = |parts: &str| parts.parse::<Epilogue>().unwrap();
    let integers = HopperGemmConfig { dtype: DType::I8, ..small };
    let scaled = HopperGemmConfig { epilogue: list("row_scale+col_scale"), ..small };
    vec![
        small,
        HopperGemmConfig { out: Some(DType::F32), in_flight: 0, bk: 64, overlap_epilogue: true, ..small },
        HopperGemmConfig { dtype: DType::E5M2, out: Some(DType::F16), bk: 32, stages: 5, ..small },
        HopperGemmConfig {
            dtype_b: Some(DType::E5M2),
            overlap_epilogue: true,
            epilogue: list("alpha"),
            ..small
        },
        HopperGemmConfig { dtype: DType::E5M2, dtype_b: Some(DType::E4M3), bn: 112, ..scaled },
        HopperGemmConfig {
            swap: true,
            bn: 16,
            cluster: Cluster::AlongM(2),
            overlap_epilogue: true,
            ..scaled
        },
        HopperGemmConfig { split: 3, ..scaled },
        HopperGemmConfig { cluster: Cluster::AlongK(2), batch: Batch::Packed, ..small },
        integers,
        HopperGemmConfig {
            dtype: DType::U8,
            overlap_epilogue: true,
            cluster: Cluster::AlongN(2),
            ..integers
        },
        HopperGemmConfig { swap: true, bn: 24, batch: Batch::Strided, in_flight: 0, ..integers },
        HopperGemmConfig { out: Some(DType::F32), bk: 32, ..integers },
        HopperGemmConfig {
            out: Some(DType::BF16),
            epilogue: list("row_scale+col_scale+bias"),
            overlap_epilogue: true,
            ..integers
        },
    ]
}

/// Configurations that are the fastest for operands of 8 bits, or may be.
fn wide_eight_bits() -> Vec<HopperGemmConfig> {
    let floats = HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..HopperGemmConfig::default() };
    let integers = HopperGemmConfig { dtype: DType::I8, bk: 128, ..HopperGemmConfig::default() };
    let overlap_epilogue =
        HopperGemmConfig { overlap_epilogue: true, epilogue: "alpha".parse().unwrap(), ..floats };
    vec![
        floats,
        overlap_epilogue,
        HopperGemmConfig { cluster: Cluster::AlongM(2), ..overlap_epilogue },
        HopperGemmConfig {
            epilogue: "row_scale+col_scale".parse().unwrap(),
            chunk: Some(32),
            ..overlap_epilogue
        },
        HopperGemmConfig { swap: true, bn: 64, stages: 8, cluster: Cluster::AlongM(2), ..floats },
        integers,
        HopperGemmConfig { bn: 128, stages: 5, overlap_epilogue: true, ..integers },
        HopperGemmConfig { bn: 192, cluster: Cluster::AlongM(2), ..integers },
    ]
}

#[test]
fn eight_bit_factors_are_right_at_edges() {
    let sizes = |config: &HopperGemmConfig| {
        gemm_hopper::edge_sizes(config).into_iter().chain([[72, 88, 400]]).collect()
    };
    for (config, [m, n, k]) in crossed(eight_bits(), sizes, 5) {
        let l = if config.batch == Batch::None { 1 } else { 2 };
        check(&config, [l, m, n, k], &[k as u64, 2]);
    }
    for config in wide_eight_bits() {
        let report = check_hopper(&HopperGemmConfig { sm_count: 4, ..config }, [256, 256, 384], &[7]);
        // Pairs of 32-bit results meet each other on their way out: two rows of a swizzled tile have the same 32 bytes.
        let half = config.result().bits() == 16;
        assert!(report.shared_conflicts == 0 || !half, "{config:?}: {}", report.shared_conflicts);
    }
}

#[test]
fn values_that_leave_later_beside_a_chunk_have_registers() {
    let tile = HopperGemmConfig {
        dtype: DType::E4M3,
        bm: 192,
        bn: 192,
        bk: 128,
        warpgroups: 3,
        math_registers: 160,
        chunk: Some(32),
        epilogue: "row_scale+col_scale".parse().unwrap(),
        ..HopperGemmConfig::default()
    };
    kernel_for(&tile.program().unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
    let late = HopperGemmConfig { overlap_epilogue: true, ..tile };
    let error = late.program().unwrap_err().to_string();
    assert!(error.starts_with("`bn` = 192") && error.contains("use a smaller tile"), "{error}");
}

#[test]
fn ptxas_needs_no_spills_for_eight_bit_factors() {
    let Some(ptxas) = ptxas() else { return };
    for (i, config) in eight_bits().into_iter().chain(wide_eight_bits()).enumerate() {
        if !in_turn(i, 2) {
            continue;
        }
        let program = config.program().unwrap();
        for (name, size) in [("whole", [4096, 4096, 4096]), ("edges", [1000, 3000, 1040])] {
            let kernel = kernel_for(&program, Arch::SM_90A, size);
            let spilled = assemble(&ptxas, &format!("gemm_eight_bits_{i}_{name}"), &kernel, Arch::SM_90A);
            assert_eq!(spilled, 0, "{config:?} spills");
        }
    }
    // The tuner's space for a type: stages of as many bytes, fewer where an epilogue's operands lie beside them.
    let tuning = operator("gemm_hopper").unwrap().tuning.unwrap();
    let sizes = [("m", 4096), ("n", 4096), ("k", 4096)].map(|(name, size)| (name.to_string(), size)).into();
    for given in [&[("dtype", "i8")][..], &[("dtype", "e4m3"), ("epilogue", "row_scale+col_scale")]] {
        let space = (tuning.space)(Arch::SM_90A.into(), &sizes, given).unwrap();
        let has =
            |p: &Point, field: &str, value: &str| p.parameters.iter().any(|(n, v)| *n == field && v == value);
        let wide: Vec<&Point> = space.points.iter().filter(|p| has(p, "bk", "128")).collect();
        assert!(wide.len() >= 100 && wide.iter().any(|p| has(p, "bn", "192")), "{given:?}");
        let as_default = |p: &Point| p.parameters.iter().all(|(name, _)| !["bm", "bn"].contains(name));
        assert!(wide.iter().any(|p| as_default(p)), "{given:?}");
        for point in space.points.iter().step_by(space.points.len() / 20) {
            let parameters: Vec<(&str, &str)> =
                point.parameters.iter().map(|(n, v)| (*n, v.as_str())).collect();
            let programs = (operator("gemm_hopper").unwrap().programs)(&parameters).unwrap();
            kernel_for(&programs[0], Arch::SM_90A, [4096, 4096, 4096]);
        }
    }
}

/// Configurations that are the fastest for problems of few rows, and ones with an overlapped epilogue.
fn tuned_hopper() -> Vec<HopperGemmConfig> {
    let default = HopperGemmConfig::default();
    let overlap_epilogue = HopperGemmConfig { overlap_epilogue: true, ..default };
    let swapped = HopperGemmConfig { swap: true, hint_b: Some(CacheHint::EvictFirst), ..default };
    vec![
        overlap_epilogue,
        HopperGemmConfig { bn: 192, ..overlap_epilogue },
        HopperGemmConfig { bn: 112, stages: 6, hint_b: Some(CacheHint::EvictFirst), ..overlap_epilogue },
        HopperGemmConfig {
            cluster: Cluster::AlongM(2),
            rasterization: Rasterization::Serpentine(12),
            ..overlap_epilogue
        },
        HopperGemmConfig { bm: 64, bn: 16, stages: 20, warpgroups: 1, ..swapped },
        HopperGemmConfig { bn: 64, stages: 8, cluster: Cluster::AlongM(2), ..swapped },
    ]
}

#[test]
fn gemm_hopper_is_right_at_edges() {
    for (config, size) in crossed(hopper_configs(), gemm_hopper::edge_sizes, 3) {
        check_hopper(&config, size, &[size[2] as u64]);
    }
}

#[test]
fn gemm_hopper_computes_the_same_whatever_the_order_of_events() {
    let small = small_hopper();
    let configs = [
        small,
        HopperGemmConfig { cluster: Cluster::AlongM(2), in_flight: 0, ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), in_flight: 2, buffers: 1, ..small },
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), buffers: 1, ..small },
        HopperGemmConfig { sm_count: 2, ..HopperGemmConfig::default() },
        HopperGemmConfig { overlap_epilogue: true, chunk: Some(16), ..small },
        HopperGemmConfig {
            overlap_epilogue: true,
            cluster: Cluster::AlongM(2),
            chunk: Some(32),
            in_flight: 2,
            ..small
        },
        HopperGemmConfig {
            overlap_epilogue: true,
            swap: true,
            cluster: Cluster::AlongM(2),
            buffers: 3,
            ..small
        },
    ];
    for config in configs {
        check_hopper(&config, [200, 200, 328], &[1, 2, 3, 4, 5]);
    }
}

#[test]
fn the_default_gemm_hopper_is_right_without_conflicts() {
    for (a, b) in [(Major::K, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::K), (Major::Mn, Major::Mn)]
    {
        for dtype in [DType::F16, DType::BF16] {
            let config = HopperGemmConfig { dtype, a, b, ..HopperGemmConfig::default() };
            let report = check_hopper(&config, [128, 256, 128], &[7]);
            assert_eq!(report.shared_conflicts, 0, "{config:?}");
        }
    }
    for config in tuned_hopper() {
        let report = check_hopper(&HopperGemmConfig { sm_count: 2, ..config }, [128, 256, 320], &[7]);
        assert_eq!(report.shared_conflicts, 0, "{config:?}");
    }
}

#[test]
fn a_swapped_gemm_hopper_leaves_by_transposing_stores() {
    for config in tuned_hopper().into_iter().filter(|config| config.swap) {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [16, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(
            !report.contains("not tma") && report.contains("× stmatrix.x4.trans,"),
            "{config:?}: {report}"
        );
        assert!(kernel.ptx.contains("cache_hint"), "{config:?}");
    }
}

#[test]
fn gemm_hopper_copies_by_tensor_maps_and_shares_in_clusters() {
    for cluster in [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(4), Cluster::AlongMn(4, 2)] {
        for (a, b) in
            [(Major::K, Major::K), (Major::K, Major::Mn), (Major::Mn, Major::K), (Major::Mn, Major::Mn)]
        {
            for bn in [112, 192, 256] {
                let config = HopperGemmConfig { a, b, bn, cluster, ..HopperGemmConfig::default() };
                if config.reject(Arch::SM_90A).is_some() {
                    continue;
                }
                let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [1000, 2000, 1016]);
                let report = kernel.explanation.to_string();
                assert!(!report.contains("not tma"), "{config:?}: {report}");
                assert_eq!(report.contains("multicast to"), cluster != Cluster::None, "{config:?}: {report}");
            }
        }
    }
}

#[test]
fn ptxas_needs_no_spills_for_any_gemm_hopper() {
    let Some(ptxas) = ptxas() else { return };
    let default = HopperGemmConfig::default();
    let wide = [
        HopperGemmConfig {
            bn: 224,
            cluster: Cluster::AlongM(2),
            rasterization: Rasterization::Hilbert(3),
            ..default
        },
        HopperGemmConfig {
            bn: 160,
            cluster: Cluster::AlongN(2),
            rasterization: Rasterization::Serpentine(12),
            ..default
        },
        HopperGemmConfig { bm: 256, bn: 128, buffers: 1, b: Major::Mn, ..default },
        HopperGemmConfig { bm: 192, warpgroups: 3, math_registers: 160, bn: 144, ..default },
        HopperGemmConfig { bm: 256, bn: 160, buffers: 1, cluster: Cluster::AlongN(2), ..default },
        HopperGemmConfig { bm: 256, bn: 192, stages: 3, buffers: 1, ..default },
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), ..default },
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 4), overlap_epilogue: true, ..default },
    ];
    for (i, config) in hopper_configs().into_iter().chain(wide).chain(tuned_hopper()).enumerate() {
        let program = config.program().unwrap();
        let assemble = |name: &str, size: [i64; 3]| {
            let kernel = kernel_for(&program, Arch::SM_90A, size);
            assemble(&ptxas, &format!("gemm_hopper_{i}_{name}"), &kernel, Arch::SM_90A)
        };
        for (turn, name, size) in [(0, "whole", [4096, 4096, 4096]), (1, "edges", [1000, 3000, 1016])] {
            assert!(!in_turn(i + turn, 2) || assemble(name, size) == 0, "{config:?} spills");
        }
        if i < 2 {
            // Threads copy element by element, where a few spilled registers are the least of it.
            assert!(assemble("odd", [1001, 3001, 1003]) < 1024, "{config:?}");
        }
    }
}

#[test]
fn mistakes_about_gemm_hopper_name_the_field_and_what_would_be_right() {
    let says = |config: HopperGemmConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = HopperGemmConfig::default();
    says(HopperGemmConfig { dtype: DType::F64, ..default }, "dtype", "f16, bf16, f32, e4m3");
    let bytes = HopperGemmConfig { dtype: DType::E4M3, bk: 128, ..default };
    let integers = HopperGemmConfig { dtype: DType::I8, ..bytes };
    says(HopperGemmConfig { dtype_b: Some(DType::BF16), ..default }, "dtype_b", "same");
    says(HopperGemmConfig { dtype_b: Some(DType::U8), ..integers }, "dtype_b", "same");
    says(
        HopperGemmConfig { dtype_b: Some(DType::F16), ..bytes },
        "dtype_b",
        "must be `same`, e4m3, e5m2, e3m2 or e2m3",
    );
    says(HopperGemmConfig { out: Some(DType::I32), ..bytes }, "out", "i32 of integers");
    says(HopperGemmConfig { out: Some(DType::E4M3), ..bytes }, "out", "f16, bf16 or f32");
    says(HopperGemmConfig { a: Major::Mn, ..bytes }, "a", "contiguous along k");
    says(HopperGemmConfig { b: Major::Mn, ..integers }, "b", "contiguous along k");
    says(HopperGemmConfig { bk: 48, ..bytes }, "bk", "multiple of 32");
    says(HopperGemmConfig { split: 2, ..integers }, "split", "must be 1");
    says(HopperGemmConfig { cluster: Cluster::AlongK(2), ..integers }, "cluster", "only f32");
    let alpha = "alpha".parse().unwrap();
    says(HopperGemmConfig { epilogue: alpha, ..integers }, "epilogue", "out must be f16");
    says(HopperGemmConfig { bm: 64, ..default }, "bm", "64 for each of 2");
    says(HopperGemmConfig { bn: 100, ..default }, "bn", "multiple of 8");
    says(HopperGemmConfig { bk: 24, ..default }, "bk", "multiple of 16");
    says(HopperGemmConfig { stages: 0, ..default }, "stages", "from 1");
    says(HopperGemmConfig { stages: 5, ..default }, "stages", "fewer stages");
    says(HopperGemmConfig { warpgroups: 0, ..default }, "warpgroups", "from 1 to 7");
    says(HopperGemmConfig { in_flight: 4, ..default }, "in_flight", "from 0 to 3");
    says(HopperGemmConfig { chunk: Some(48), ..default }, "chunk", "divide bn = 256");
    says(HopperGemmConfig { bn: 96, chunk: Some(64), ..default }, "chunk", "divide bn = 96");
    says(HopperGemmConfig { buffers: 0, ..default }, "buffers", "from 1");
    says(HopperGemmConfig { cluster: Cluster::AlongM(3), ..default }, "cluster", "2, 4 or 8");
    says(
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 8), ..default },
        "cluster",
        "2 or 4 blocks along m and",
    );
    says(
        HopperGemmConfig { bn: 48, chunk: Some(16), cluster: Cluster::AlongMn(4, 2), ..default },
        "cluster",
        "4 blocks cannot share 48 rows",
    );
    says(
        HopperGemmConfig { batch: Batch::Grouped, cluster: Cluster::AlongMn(2, 2), ..default },
        "cluster",
        "different groups",
    );
    says(
        HopperGemmConfig { bn: 120, cluster: Cluster::AlongM(2), ..default },
        "cluster",
        "cannot share 120 rows",
    );
    says(
        HopperGemmConfig { rasterization: Rasterization::Grouped(0), ..default },
        "rasterization",
        "1 to 1024",
    );
    says(HopperGemmConfig { rasterization: Rasterization::Hilbert(9), ..default }, "rasterization", "0 to 8");
    says(HopperGemmConfig { load_registers: 20, ..default }, "load_registers", "multiple of 8 from 24");
    says(HopperGemmConfig { load_registers: 48, ..default }, "math_registers", "there are 64512");
    says(HopperGemmConfig { load_registers: 32, ..default }, "math_registers", "there are 64512");
    says(HopperGemmConfig { bm: 256, stages: 2, ..default }, "bn", "more warpgroups");
    let three = HopperGemmConfig { bm: 192, warpgroups: 3, stages: 3, math_registers: 160, ..default };
    says(three, "bn", "can start with 128 each");
    says(HopperGemmConfig { bn: 208, ..three }, "bn", "take 104 registers");
    assert!(HopperGemmConfig { bn: 200, ..three }.validate().is_ok());
    says(HopperGemmConfig { sm_count: 0, ..default }, "sm_count", "from 1");
    says(HopperGemmConfig { split: 2, batch: Batch::Packed, ..default }, "split", "batch must be none");
    says(HopperGemmConfig { split: 2, batch: Batch::Grouped, ..default }, "split", "batch must be none");
    let vector = HopperGemmConfig { form: Form::Gemv, bm: 8, bn: 1, bk: 256, ..default };
    says(HopperGemmConfig { bn: 16, ..vector }, "bn", "from 1 to 8");
    let short = HopperGemmConfig { form: Form::Outer, bm: 64, bn: 64, bk: 16, warpgroups: 1, ..default };
    says(HopperGemmConfig { bn: 256, ..short }, "bn", "from 8 to 64 of each of 128 threads");
    says(HopperGemmConfig { split: 2, ..short }, "split", "says nothing with form=outer: must be 1");
    says(HopperGemmConfig { dtype: DType::E4M3, ..short }, "dtype", "multiplies f16 or bf16");
    says(HopperGemmConfig { bk: 16, ..vector }, "bk", "from 1 to 64 sums of each of 256 threads");
    says(HopperGemmConfig { stages: 3, ..vector }, "stages", "says nothing with form=gemv: must be 4");
    says(HopperGemmConfig { batch: Batch::Packed, ..vector }, "batch", "one product at a time");
    says(HopperGemmConfig { dtype: DType::I8, ..vector }, "dtype", "multiplies floats");
    says(
        HopperGemmConfig { batch: Batch::Ragged, epilogue: "row_sums".parse().unwrap(), ..default },
        "epilogue",
        "must not be ragged",
    );
    says(
        HopperGemmConfig { batch: Batch::Ragged, epilogue: "beta".parse().unwrap(), ..default },
        "epilogue",
        "rows of other groups: batch must not be ragged",
    );
    let sums = "beta+row_sums".parse().unwrap();
    says(
        HopperGemmConfig { cluster: Cluster::AlongK(2), epilogue: sums, bn: 128, ..default },
        "epilogue",
        "cluster must be none, along m",
    );
    says(
        HopperGemmConfig { batch: Batch::Grouped, cluster: Cluster::AlongM(2), ..default },
        "cluster",
        "different groups",
    );
    says(
        HopperGemmConfig { out: Some(DType::F32), chunk: Some(64), ..default },
        "chunk",
        "more than 128 bytes",
    );
    says(HopperGemmConfig { out: Some(DType::I8), ..default }, "out", "f16, bf16 or f32");
    assert_eq!(default.reject(Arch::SM_90A), None);
    assert!(default.reject(Arch::SM_80).is_some_and(|r| r.contains("sm_90a")));
    let set = |field: &str, value: &str| (operator("gemm_hopper").unwrap().programs)(&[(field, value)]);
    for (field, value) in [
        ("a", "m"),
        ("b", "n"),
        ("cluster", "m2"),
        ("cluster", "n4"),
        ("cluster", "none"),
        ("rasterization", "grouped(8)"),
        ("rasterization", "serpentine(12)"),
        ("rasterization", "hilbert(4)"),
        ("chunk", "32"),
        ("chunk", "widest"),
        ("overlap_epilogue", "true"),
        ("batch", "strided"),
        ("batch", "pointers"),
        ("batch", "grouped"),
        ("batch", "ragged"),
        ("epilogue", "alpha+bias+gelu"),
        ("epilogue", "none"),
        ("out", "f32"),
        ("split", "3"),
        ("swap", "true"),
        ("hint_b", "evict_first"),
        ("hint_c", "none"),
        ("dtype", "bf16"),
    ] {
        assert!(set(field, value).is_ok(), "{field} = {value}: {:?}", set(field, value));
    }
    for (field, value, text) in [
        ("a", "n", "k or m"),
        ("b", "m", "k or n"),
        ("cluster", "2", "none, or m, n or k"),
        ("batch", "two", "none, packed, strided, pointers, grouped or ragged"),
        ("epilogue", "tanh", "joined with"),
        ("epilogue", "bias+bias", "twice"),
        ("epilogue", "row_sums+relu", "must be last"),
        ("epilogue", "bias+col_sums", "outside of c"),
        ("out", "i8", "f16, bf16, f32 or i32"),
        ("split", "65", "from 1 to 64"),
        ("pack", "c", "none, a, b or ab"),
        ("form", "dot", "wgmma, tcgen05, gemv or outer"),
        ("cluster", "m0", "none, or"),
        ("cluster", "m2n1", "m and n: m2, m2n2"),
        ("cluster", "n2m2", "m and n: m2, m2n2"),
        ("rasterization", "rows", "hilbert(order)"),
        ("overlap_epilogue", "yes", "true or false"),
        ("hint_a", "first", "none, evict_first or evict_last"),
        ("bm", "x", "integer"),
        ("dtype", "f64", "f16, bf16"),
    ] {
        assert!(set(field, value).is_err_and(|e| e.to_string().contains(text)), "{field} = {value}");
    }
}

#[test]
fn the_space_of_gemm_hopper_compiles() {
    let all: Vec<HopperGemmConfig> = HopperGemmConfig::space(Arch::SM_90A, 1024, 6144, 4096).collect();
    assert!(all.len() >= 100, "{}", all.len());
    assert!(all.contains(&HopperGemmConfig::default()));
    for bn in [112, 160, 192, 224] {
        assert!(all.iter().any(|c| c.bn == bn), "{bn}");
    }
    assert_eq!(HopperGemmConfig::space(Arch::SM_80, 4096, 4096, 4096).count(), 0);
    let rows = |c: &HopperGemmConfig| if c.swap { c.bn } else { c.bm };
    assert!(HopperGemmConfig::space(Arch::SM_90A, 64, 4096, 4096).all(|c| rows(&c) <= 64 * 2));
    let left_out = HopperGemmConfig::grid().filter(|c| c.reject(Arch::SM_90A).is_some()).count();
    assert!(left_out > 0 && left_out < HopperGemmConfig::grid().count());
    for config in all.iter().step_by(all.len() / 40) {
        kernel_for(&config.program().unwrap(), Arch::SM_90A, [1024, 6144, 4096]);
    }
}

#[test]
fn every_part_of_an_epilogue_is_right_at_edges() {
    let small = small_hopper();
    let list = |parts: &str| parts.parse::<Epilogue>().unwrap();
    let configs = [
        HopperGemmConfig { epilogue: list("alpha"), ..small },
        HopperGemmConfig { epilogue: list("bias+relu"), overlap_epilogue: true, ..small },
        HopperGemmConfig { epilogue: list("row_scale+col_scale+bias+gelu+residual"), ..small },
        HopperGemmConfig {
            epilogue: list("residual+silu"),
            dtype: DType::BF16,
            overlap_epilogue: true,
            ..small
        },
        HopperGemmConfig { epilogue: list("row_sums+col_sums"), ..small },
        HopperGemmConfig { epilogue: list("alpha+residual+row_sums"), swap: true, bn: 32, ..small },
        HopperGemmConfig {
            epilogue: list("row_scale+silu+col_sums"),
            swap: true,
            overlap_epilogue: true,
            ..small
        },
        HopperGemmConfig { epilogue: list("alpha+relu+col_sums"), cluster: Cluster::AlongM(2), ..small },
        HopperGemmConfig { epilogue: list("bias+row_sums"), cluster: Cluster::AlongK(2), bn: 128, ..small },
        HopperGemmConfig { epilogue: list("bias+residual+relu"), out: Some(DType::F32), ..small },
        HopperGemmConfig { epilogue: list("col_scale+gelu+row_sums+col_sums"), split: 3, ..small },
        HopperGemmConfig { epilogue: list("alpha+beta"), ..small },
        HopperGemmConfig { epilogue: list("alpha+beta+bias+relu"), overlap_epilogue: true, ..small },
        HopperGemmConfig { epilogue: list("beta"), cluster: Cluster::AlongK(2), bn: 128, ..small },
        HopperGemmConfig { epilogue: list("beta+residual"), swap: true, out: Some(DType::F32), ..small },
        HopperGemmConfig { epilogue: list("beta+gelu"), split: 3, dtype: DType::BF16, ..small },
        HopperGemmConfig { epilogue: list("alpha+beta"), schedule: Schedule::StreamK, ..small },
    ];
    let sizes = [[1, 1, 1], [7, 65, 129], [130, 200, 328], [200, 129, 200], [64, 64, 64]];
    for (config, size) in crossed(configs, |_| sizes.to_vec(), 2) {
        check_hopper(&config, size, &[size[2] as u64]);
    }
}

#[test]
fn batches_are_right_at_edges() {
    let small = small_hopper();
    let bias = "bias+relu+residual".parse::<Epilogue>().unwrap();
    let configs = [
        HopperGemmConfig { batch: Batch::Packed, ..small },
        HopperGemmConfig { batch: Batch::Strided, overlap_epilogue: true, b: Major::Mn, ..small },
        HopperGemmConfig { batch: Batch::Packed, cluster: Cluster::AlongM(2), epilogue: bias, ..small },
        HopperGemmConfig { batch: Batch::Packed, swap: true, cluster: Cluster::AlongN(2), ..small },
        HopperGemmConfig { batch: Batch::Strided, epilogue: "alpha+beta".parse().unwrap(), ..small },
        HopperGemmConfig { batch: Batch::Packed, cluster: Cluster::AlongK(2), a: Major::Mn, ..small },
        HopperGemmConfig { batch: Batch::Pointers, cluster: Cluster::AlongM(2), epilogue: bias, ..small },
        HopperGemmConfig {
            batch: Batch::Pointers,
            swap: true,
            b: Major::Mn,
            overlap_epilogue: true,
            epilogue: "alpha+beta".parse().unwrap(),
            ..small
        },
    ];
    let sizes = [[1, 7, 65, 129], [3, 64, 128, 64], [5, 130, 72, 200], [2, 1, 1, 1]];
    for (config, size) in crossed(configs, |_| sizes.to_vec(), 2) {
        check(&config, size, &[size[2] as u64]);
    }
}

/// Configurations of products by groups.
fn grouped_hopper() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { batch: Batch::Grouped, ..small_hopper() };
    let list = |parts: &str| parts.parse::<Epilogue>().unwrap();
    vec![
        small,
        HopperGemmConfig { overlap_epilogue: true, chunk: Some(32), b: Major::Mn, ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), a: Major::Mn, dtype: DType::BF16, ..small },
        HopperGemmConfig { cluster: Cluster::AlongK(2), overlap_epilogue: true, ..small },
        HopperGemmConfig { swap: true, bn: 16, stages: 5, ..small },
        HopperGemmConfig {
            swap: true,
            bn: 24,
            overlap_epilogue: true,
            in_flight: 0,
            out: Some(DType::F32),
            ..small
        },
        HopperGemmConfig { epilogue: list("row_scale+col_scale+bias+silu+residual"), ..small },
        HopperGemmConfig { epilogue: list("col_scale+row_sums+col_sums"), overlap_epilogue: true, ..small },
        HopperGemmConfig { batch: Batch::Grouped, sm_count: 2, ..HopperGemmConfig::default() },
        HopperGemmConfig { batch: Batch::Ragged, ..small },
        HopperGemmConfig {
            batch: Batch::Ragged,
            overlap_epilogue: true,
            chunk: Some(32),
            in_flight: 2,
            ..small
        },
        HopperGemmConfig { batch: Batch::Ragged, swap: true, bn: 32, chunk: Some(16), stages: 5, ..small },
        HopperGemmConfig { batch: Batch::Ragged, swap: true, bn: 64, overlap_epilogue: true, ..small },
        HopperGemmConfig { batch: Batch::Ragged, cluster: Cluster::AlongK(2), dtype: DType::BF16, ..small },
        HopperGemmConfig { batch: Batch::Ragged, cluster: Cluster::AlongN(2), b: Major::Mn, ..small },
        HopperGemmConfig { batch: Batch::Ragged, epilogue: list("row_scale+bias+relu+residual"), ..small },
        HopperGemmConfig { batch: Batch::Ragged, sm_count: 2, ..HopperGemmConfig::default() },
    ]
}

#[test]
fn products_by_groups_are_right_at_edges() {
    for (i, config) in grouped_hopper().into_iter().enumerate() {
        let odd = [[1, 1, 1, 1], [2, 7, 65, 129], [9, 513, 31, 77]];
        // The sums of columns of several groups are added by tensor copies alone.
        let odd = odd.into_iter().filter(|_| !config.epilogue.has(Part::ColSums));
        let sizes = [[3, 64, 128, 64], [4, 300, 72, 200], [2, 5, 4, 3]].into_iter().chain(odd);
        for (_, size) in sizes.enumerate().filter(|(j, _)| in_turn(i + j, 2)) {
            check(&config, size, &[size[2] as u64]);
        }
    }
    for config in [0, 1, 9, 10, 11].map(|i| grouped_hopper()[i]) {
        check(&config, [3, 330, 136, 264], &[1, 2, 3, 4, 5]);
    }
}

#[test]
fn products_by_groups_copy_by_tensor_maps_and_need_no_spills() {
    let default = HopperGemmConfig { batch: Batch::Grouped, ..HopperGemmConfig::default() };
    let decode = HopperGemmConfig { swap: true, bm: 128, bn: 32, stages: 8, ..default };
    let ragged = HopperGemmConfig { batch: Batch::Ragged, ..default };
    let late = HopperGemmConfig { overlap_epilogue: true, ..default };
    let few = HopperGemmConfig { batch: Batch::Ragged, ..decode };
    for (i, config) in [default, late, decode, ragged, few].into_iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(!report.contains("not tma"), "{config:?}: {report}");
        if let Some(ptxas) = ptxas() {
            assert_eq!(
                assemble(&ptxas, &format!("gemm_grouped_{i}"), &kernel, Arch::SM_90A),
                0,
                "{config:?}"
            );
        }
    }
}

#[test]
fn splits_of_k_are_right_at_edges() {
    let small = small_hopper();
    let configs = [
        HopperGemmConfig { split: 4, ..small },
        HopperGemmConfig { split: 19, bn: 16, ..small },
        HopperGemmConfig { split: 2, cluster: Cluster::AlongM(2), out: Some(DType::F32), ..small },
        HopperGemmConfig { split: 3, swap: true, bn: 16, dependent: true, ..small },
        HopperGemmConfig { split: 2, cluster: Cluster::AlongK(2), overlap_epilogue: true, ..small },
        HopperGemmConfig { cluster: Cluster::AlongK(2), ..small },
        HopperGemmConfig { cluster: Cluster::AlongK(4), bn: 24, swap: true, dtype: DType::BF16, ..small },
        HopperGemmConfig {
            cluster: Cluster::AlongK(2),
            overlap_epilogue: true,
            out: Some(DType::F32),
            ..small
        },
        HopperGemmConfig { cluster: Cluster::AlongK(8), sm_count: 8, ..small },
    ];
    let sizes = [[1, 1, 1], [7, 65, 129], [130, 200, 328], [64, 64, 2000], [200, 129, 200]];
    for (config, size) in crossed(configs, |_| sizes.to_vec(), 5) {
        check_hopper(&config, size, &[1, size[2] as u64 + 2]);
    }
}

#[test]
fn programs_print_and_parse_back() {
    for config in hopper_configs().into_iter().chain(grouped_hopper()) {
        for program in config.programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
        }
    }
}
