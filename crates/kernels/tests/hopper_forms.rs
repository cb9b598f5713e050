//! `gemm_hopper` where TMA cannot take the sizes, its forms for few columns and short sums, and stream-K: edge sizes in all executions, the
//! instructions that they are made of, and registers.

use crate::common::{Launch, assemble, crossed, kernel_for, ptxas, small_hopper};
use crate::product;
use crate::product::check_hopper;
use tilewright_kernels::gemm_hopper::{
    Batch, Cluster, FillMode, Form, HopperGemmConfig, Major, Pack, Part, Schedule, Triangle,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_tile::parse;

/// Configurations that pack factors of every type, stored either way.
fn packing() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { pack: Pack::Both, ..small_hopper() };
    vec![
        small,
        HopperGemmConfig { pack: Pack::A, b: Major::Mn, ..small },
        HopperGemmConfig { pack: Pack::B, a: Major::Mn, b: Major::Mn, ..small },
        HopperGemmConfig {
            a: Major::Mn,
            b: Major::Mn,
            dtype: DType::BF16,
            cluster: Cluster::AlongM(2),
            ..small
        },
        HopperGemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E5M2), bk: 128, ..small },
        HopperGemmConfig { dtype: DType::I8, bk: 128, swap: true, bn: 16, ..small },
        HopperGemmConfig { split: 3, dependent: true, ..small },
        HopperGemmConfig { overlap_epilogue: true, epilogue: "bias+relu+residual".parse().unwrap(), ..small },
    ]
}

#[test]
fn packed_factors_are_right_at_edges() {
    let sizes = [[1, 1, 1], [1, 65, 3], [7, 65, 129], [130, 71, 33], [65, 257, 301]];
    for (config, size) in crossed(packing(), |_| sizes.to_vec(), 2) {
        check_hopper(&config, size, &[1, size[2] as u64 + 2]);
    }
}

#[test]
fn packed_factors_are_copied_wide_and_read_by_tensor_maps() {
    for (pack, sizes) in
        [(Pack::Both, [1001, 1003, 1001]), (Pack::A, [1001, 1000, 504]), (Pack::B, [72, 1001, 200])]
    {
        let majors = if pack == Pack::Both { [Major::K, Major::K] } else { [Major::Mn, Major::Mn] };
        let config = HopperGemmConfig { pack, a: majors[0], b: majors[1], ..HopperGemmConfig::default() };
        let programs = config.programs().unwrap();
        assert_eq!(programs.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["pack", "gemm_hopper"]);
        for (i, program) in programs.iter().enumerate() {
            let [m, n, k] = sizes;
            let given = [("m", m), ("n", n), ("k", k)];
            let kernel = Launch { programs: std::slice::from_ref(program), sizes: &given, scalars: &[] }
                .kernels(Arch::SM_90A)
                .remove(0);
            let report = kernel.explanation.to_string();
            if i == 0 {
                assert!(report.contains("st.global.v4.b32") && !report.contains("st.global.u16"), "{report}");
            } else {
                assert_eq!(report.matches("tma.load.2d of").count(), 2, "{report}");
            }
            if let Some(ptxas) = ptxas() {
                assert_eq!(assemble(&ptxas, &format!("gemm_packed_{pack}_{i}"), &kernel, Arch::SM_90A), 0);
            }
        }
    }
}

/// Configurations of the form for few columns, or few rows.
fn vectors() -> Vec<HopperGemmConfig> {
    let one = HopperGemmConfig { form: Form::Gemv, bm: 8, bn: 1, bk: 256, ..HopperGemmConfig::default() };
    let few = HopperGemmConfig { bn: 8, bk: 128, warpgroups: 1, ..one };
    vec![
        one,
        HopperGemmConfig { b: Major::Mn, split: 3, dtype: DType::BF16, warpgroups: 1, ..one },
        HopperGemmConfig { a: Major::Mn, bm: 64, bk: 32, bn: 2, out: Some(DType::F32), ..one },
        HopperGemmConfig { swap: true, epilogue: "alpha+bias+gelu+residual+beta".parse().unwrap(), ..few },
        HopperGemmConfig { swap: true, b: Major::Mn, bm: 64, bk: 16, dependent: true, split: 2, ..few },
        HopperGemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E5M2), bn: 4, ..few },
        HopperGemmConfig { epilogue: "row_scale+row_sums".parse().unwrap(), ..few },
    ]
}

#[test]
fn few_columns_or_rows_are_right_at_edges() {
    let sizes = [[1, 1, 1], [9, 1, 1000], [1, 71, 257], [67, 5, 129], [3, 130, 33], [20, 17, 600]];
    for (config, size) in crossed(vectors(), |_| sizes.to_vec(), 2) {
        let seeds: &[u64] = if config.epilogue.has(Part::RowSums) { &[1] } else { &[1, 5] };
        check_hopper(&config, size, seeds);
    }
}

/// Configurations of the form for short sums.
fn short_sums() -> Vec<HopperGemmConfig> {
    let one = HopperGemmConfig {
        form: Form::Outer,
        bm: 32,
        bn: 64,
        bk: 16,
        warpgroups: 1,
        ..HopperGemmConfig::default()
    };
    vec![
        one,
        HopperGemmConfig { a: Major::Mn, b: Major::Mn, dtype: DType::BF16, bn: 128, warpgroups: 2, ..one },
        HopperGemmConfig { bk: 64, out: Some(DType::F32), dependent: true, ..one },
        HopperGemmConfig { bm: 64, epilogue: "alpha+bias+gelu+residual+beta".parse().unwrap(), ..one },
    ]
}

#[test]
fn short_sums_are_right_at_edges() {
    let sizes = [[1, 1, 1], [9, 65, 5], [67, 129, 24], [33, 72, 8], [64, 64, 130]];
    for (config, size) in crossed(short_sums(), |_| sizes.to_vec(), 2) {
        check_hopper(&config, size, &[1, 5]);
    }
}

#[test]
fn points_for_short_sums_need_no_spills() {
    for (i, config) in HopperGemmConfig::grid().filter(|c| c.form == Form::Outer).enumerate() {
        assert_eq!(config.reject(Arch::SM_90A), None, "{config:?}");
        let program = config.program().unwrap();
        let kernel = kernel_for(&program, Arch::SM_90A, [4096, 4096 + i as i64 % 2, config.bk - 3]);
        if let Some(ptxas) = ptxas() {
            assert_eq!(assemble(&ptxas, &format!("outer_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
        }
    }
}

#[test]
fn points_for_few_columns_need_no_spills() {
    let points = HopperGemmConfig::grid().filter(|c| c.form == Form::Gemv && c.split == 1 && !c.swap);
    let points: Vec<_> = points.filter(|c| c.reject(Arch::SM_90A).is_none()).collect();
    assert!(points.iter().any(|c| c.bn == 8) && points.iter().any(|c| c.bm > c.bk));
    for (i, config) in points.into_iter().enumerate() {
        let a = if config.bm > config.bk { Major::Mn } else { Major::K };
        let program = HopperGemmConfig { a, ..config }.program().unwrap();
        let kernel =
            kernel_for(&program, Arch::SM_90A, [4096, config.bn, if i % 3 == 0 { 4097 } else { 4096 }]);
        if let Some(ptxas) = ptxas() {
            assert_eq!(assemble(&ptxas, &format!("gemv_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
        }
    }
}

#[test]
fn the_first_choices_for_sizes_that_tma_cannot_take_need_no_spills() {
    let hopper = operator("gemm_hopper").unwrap();
    let tuning = hopper.tuning.unwrap();
    let all = [
        ("none", [2048, 6001, 2048]),
        ("none", [3000, 1001, 24]),
        ("none", [77, 333, 4098]),
        ("none", [64, 64, 65]),
        ("none", [1000, 3001, 1001]),
        ("bias+gelu+residual", [333, 50257, 4096]),
        ("bias+gelu+residual", [1001, 3001, 1000]),
    ];
    for (epilogue, [m, n, k]) in all {
        let sizes = [("m", m), ("n", n), ("k", k)].map(|(name, size)| (name.to_string(), size)).into();
        let first =
            (tuning.space)(Arch::SM_90A.into(), &sizes, &[("epilogue", epilogue)]).unwrap().points.remove(0);
        let given: Vec<(&str, &str)> = first.parameters.iter().map(|(name, v)| (*name, v.as_str())).collect();
        assert_eq!(given.contains(&("pack", "ab")), k > 1000 && k % 2 == 1, "{given:?}");
        let programs = (hopper.programs)(&given).unwrap();
        let launch = Launch { programs: &programs, sizes: &[("m", m), ("n", n), ("k", k)], scalars: &[] };
        for (kernel, i) in launch.kernels(Arch::SM_90A).iter().zip(0..) {
            if let Some(ptxas) = ptxas() {
                let name = format!("gemm_{m}_{n}_{k}_{i}");
                assert_eq!(assemble(&ptxas, &name, kernel, Arch::SM_90A), 0, "{given:?}");
            }
        }
    }
}

/// Configurations whose tiles are shared by steps along k.
fn stream_k() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { schedule: Schedule::StreamK, ..small_hopper() };
    vec![
        small,
        HopperGemmConfig { overlap_epilogue: true, bn: 32, ..small },
        HopperGemmConfig { swap: true, bn: 24, epilogue: "bias+gelu".parse().unwrap(), ..small },
        HopperGemmConfig { cluster: Cluster::AlongM(2), dependent: true, ..small },
        HopperGemmConfig {
            cluster: Cluster::AlongN(2),
            sm_count: 6,
            overlap_epilogue: true,
            epilogue: "row_scale+residual".parse().unwrap(),
            ..small
        },
        HopperGemmConfig { bm: 128, warpgroups: 2, sm_count: 7, dtype: DType::BF16, ..small },
        HopperGemmConfig { dtype: DType::I8, bk: 128, out: Some(DType::F32), ..small },
        HopperGemmConfig {
            dtype: DType::E4M3,
            bk: 128,
            epilogue: "row_sums+col_sums".parse().unwrap(),
            ..small
        },
        HopperGemmConfig { pack: Pack::Both, sm_count: 5, ..small },
        HopperGemmConfig { schedule: Schedule::Remainder, sm_count: 5, ..small },
        HopperGemmConfig {
            schedule: Schedule::Remainder,
            cluster: Cluster::AlongM(2),
            sm_count: 6,
            overlap_epilogue: true,
            epilogue: "bias+residual".parse().unwrap(),
            ..small
        },
    ]
}

#[test]
fn tiles_that_are_shared_by_steps_are_right_at_edges() {
    let sizes = [[1, 1, 1], [7, 65, 129], [130, 200, 328], [64, 64, 1000], [200, 136, 272], [330, 96, 80]];
    for (config, size) in crossed(stream_k(), |_| sizes.to_vec(), 2) {
        // Whatever comes first, the bits are the same, but of sums that are added in any order.
        let sums = config.epilogue.has(Part::RowSums);
        check_hopper(&config, size, if sums { &[1] } else { &[1, 332] });
    }
}

#[test]
fn tiles_that_are_shared_by_steps_need_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    let wide = HopperGemmConfig { schedule: Schedule::StreamK, ..HopperGemmConfig::default() };
    let configs = [
        wide,
        HopperGemmConfig { overlap_epilogue: true, epilogue: "bias+relu".parse().unwrap(), ..wide },
        HopperGemmConfig { bm: 256, bn: 192, stages: 3, buffers: 1, chunk: Some(16), ..wide },
        HopperGemmConfig { bm: 192, warpgroups: 3, math_registers: 160, bn: 128, ..wide },
        HopperGemmConfig { schedule: Schedule::Remainder, chunk: Some(16), ..wide },
    ];
    for (i, config) in configs.into_iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 4096]);
        // What a thread leaves for another block is contiguous.
        assert!(!kernel.ptx.contains("st.global.v2.b32"), "{config:?}");
        let spilled = assemble(&ptxas, &format!("gemm_stream_k_{i}"), &kernel, Arch::SM_90A);
        assert_eq!(spilled, 0, "{config:?} spills");
    }
}

#[test]
fn what_does_not_go_with_stream_k_is_refused() {
    let schedule = Schedule::StreamK;
    for given in ["split=2", "batch=packed", "cluster=k2", "dual=mul", "sums_a=true"] {
        let (name, value) = given.split_once('=').unwrap();
        let parameters = [("schedule", "stream_k"), (name, value)];
        let said = (operator("gemm_hopper").unwrap().programs)(&parameters).unwrap_err();
        let ConfigError::Value { field, wanted, .. } = said else { panic!("{given}: {said}") };
        assert_eq!(field, "schedule");
        assert!(wanted.contains(name), "{given}: {wanted}");
    }
    let several = [("schedule", "remainder"), ("epilogue", "row_sums")];
    let said = (operator("gemm_hopper").unwrap().programs)(&several).unwrap_err().to_string();
    assert!(said.contains("several blocks finish a tile"), "{said}");
    let vector = HopperGemmConfig { form: Form::Gemv, schedule, bn: 1, ..HopperGemmConfig::default() };
    assert!(vector.validate().unwrap_err().to_string().contains("says nothing with form=gemv"));
}

#[test]
fn programs_print_and_parse_back() {
    let all = packing().into_iter().chain(vectors()).chain(short_sums()).chain(stream_k());
    for config in all {
        for program in config.programs().unwrap() {
            assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
        }
    }
}

/// Square results, and triangular factors, with what they go with.
fn triangles() -> Vec<HopperGemmConfig> {
    let square = HopperGemmConfig { bm: 64, bn: 64, warpgroups: 1, ..small_hopper() };
    let symmetric = HopperGemmConfig { fill: FillMode::Symmetric, ..square };
    let lower = HopperGemmConfig { fill: FillMode::Lower, ..square };
    let triangular = HopperGemmConfig { triangular: Triangle::Lower, ..small_hopper() };
    let upper = HopperGemmConfig { triangular: Triangle::Upper, ..small_hopper() };
    vec![
        symmetric,
        HopperGemmConfig { a: Major::Mn, overlap_epilogue: true, ..symmetric },
        HopperGemmConfig {
            bn: 128,
            cluster: Cluster::AlongM(2),
            epilogue: "alpha+residual+beta+relu".parse().unwrap(),
            ..symmetric
        },
        HopperGemmConfig { dtype: DType::BF16, out: Some(DType::F32), pack: Pack::A, ..symmetric },
        HopperGemmConfig { batch: Batch::Packed, cluster: Cluster::AlongK(2), ..symmetric },
        HopperGemmConfig {
            batch: Batch::Strided,
            dtype: DType::E4M3,
            bk: 128,
            overlap_epilogue: true,
            ..symmetric
        },
        HopperGemmConfig { split: 3, dependent: true, ..symmetric },
        lower,
        HopperGemmConfig {
            bm: 128,
            warpgroups: 2,
            cluster: Cluster::AlongN(2),
            overlap_epilogue: true,
            epilogue: "row_scale+bias".parse().unwrap(),
            ..lower
        },
        HopperGemmConfig { triangular: Triangle::Lower, batch: Batch::Packed, b: Major::Mn, ..lower },
        HopperGemmConfig { triangular: Triangle::Upper, dtype: DType::I8, bk: 128, ..lower },
        triangular,
        HopperGemmConfig { swap: true, cluster: Cluster::AlongN(2), overlap_epilogue: true, ..triangular },
        HopperGemmConfig { a: Major::Mn, cluster: Cluster::AlongM(2), ..triangular },
        upper,
        HopperGemmConfig { overlap_epilogue: true, cluster: Cluster::AlongM(2), ..upper },
        HopperGemmConfig { swap: true, sums_a: true, ..upper },
    ]
}

#[test]
fn triangles_of_c_and_of_a_are_right_at_edges() {
    let square = [[1, 1, 1], [65, 65, 9], [200, 200, 72], [130, 130, 136], [257, 257, 40]];
    let any = [[65, 40, 9], [200, 72, 72], [130, 72, 136], [72, 72, 330]];
    let of = |config: &HopperGemmConfig| match config.fill {
        FillMode::Full => any.to_vec(),
        _ => square.to_vec(),
    };
    for (config, [m, n, k]) in crossed(triangles(), of, 3) {
        let l = if config.batch == Batch::None { 1 } else { 3 };
        product::check(&config, [l, m, n, k], &[k as u64 + 3]);
    }
}

#[test]
fn triangles_refuse_what_they_do_not_go_with() {
    let square =
        HopperGemmConfig { bm: 128, bn: 128, fill: FillMode::Symmetric, ..HopperGemmConfig::default() };
    assert!(square.validate().is_ok());
    let lower = HopperGemmConfig { fill: FillMode::Lower, ..square };
    let refused = |config: HopperGemmConfig, field: &str, word: &str| {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.contains(field) && error.contains(word), "{config:?}: {error}");
    };
    for config in [square, lower] {
        refused(HopperGemmConfig { bn: 64, ..config }, "fill", "128 × 64 are not square");
        refused(HopperGemmConfig { cluster: Cluster::AlongM(2), ..config }, "fill", "256 × 128");
        refused(HopperGemmConfig { swap: true, ..config }, "fill", "swap");
        refused(HopperGemmConfig { batch: Batch::Grouped, ..config }, "fill", "batch");
        refused(HopperGemmConfig { schedule: Schedule::StreamK, ..config }, "fill", "schedule");
        refused(HopperGemmConfig { epilogue: "row_sums".parse().unwrap(), ..config }, "fill", "row_sums");
        refused(HopperGemmConfig { sums_a: true, ..config }, "fill", "sums_a");
    }
    refused(HopperGemmConfig { split: 2, ..lower }, "fill", "split");
    refused(HopperGemmConfig { epilogue: "bias".parse().unwrap(), ..square }, "fill", "bias");
    refused(HopperGemmConfig { b: Major::Mn, ..square }, "fill", "b must be k");
    refused(HopperGemmConfig { pack: Pack::Both, ..square }, "fill", "pack");
    refused(HopperGemmConfig { triangular: Triangle::Lower, ..square }, "triangular", "both factors");
    let triangular = HopperGemmConfig { triangular: Triangle::Upper, ..HopperGemmConfig::default() };
    refused(HopperGemmConfig { split: 2, ..triangular }, "triangular", "split");
    refused(HopperGemmConfig { cluster: Cluster::AlongK(2), ..triangular }, "triangular", "cluster");
    refused(HopperGemmConfig { batch: Batch::Ragged, ..triangular }, "triangular", "batch");
}
