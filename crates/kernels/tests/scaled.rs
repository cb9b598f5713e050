//! Block-scaled products by `gemm` and `gemm_hopper`: edge sizes in all executions, what is refused, and instructions.

use crate::common::{absolute, agree, assemble, bounds, in_turn, kernel_for, nightly, ptxas, random};
use crate::product::{check as check_product, scaled, scales};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm::{self, GemmConfig};
use tilewright_kernels::gemm_hopper::{
    Batch, Cluster, Dual, FillMode, Form, HopperGemmConfig, Major, Schedule, Triangle,
};
use tilewright_kernels::{Loads, Path};
use tilewright_machine::{Arch, DType};
use tilewright_tile::{Constants, Program, lint, verify};

/// The executions agree with plain loops over the factors times their scales.
fn check(config: &GemmConfig, sizes: [i64; 3]) {
    let types = [config.dtype, config.right(), config.scales.unwrap(), config.result()];
    check_program(&config.program().unwrap(), Arch::SM_120A, types, sizes);
}

/// The same of a program whose factors, scales and result have these types.
fn check_program(
    program: &Program,
    arch: Arch,
    [of_a, of_b, scale, result]: [DType; 4],
    [m, n, k]: [i64; 3],
) {
    let block = if scale == DType::UE4M3 { 16 } else { 32 };
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let types = [of_a, of_b];
    let [a, b] = [(of_a, m), (of_b, n)].map(|(dtype, rows)| random(&mut rng, dtype, rows * k));
    let [of_a, of_b] = [m, n].map(|rows| scales(&mut rng, scale, rows * ((k + block - 1) / block)));
    let (columns, block) = (k as usize, block as usize);
    let left = scaled(&a, &of_a, (Major::K, [m as usize, columns]), block);
    let right = scaled(&b, &of_b, (Major::K, [n as usize, columns]), block);
    let exact = gemm::reference(&left, &right, n as usize, columns);
    let magnitudes = gemm::reference(&absolute(&left), &absolute(&right), n as usize, columns);
    let bound = bounds(result, 0.0, k, &exact, &magnitudes);
    let inputs = [(types[0], a), (types[1], b), (scale, of_a), (scale, of_b)];
    agree(program, arch, [m, n, k], &[k as u64], &inputs, &exact, &bound);
}

/// Configurations of every format, in which what there is to choose is chosen differently once.
fn configs() -> Vec<GemmConfig> {
    let small = GemmConfig { bm: 64, bn: 32, stages: 2, out: Some(DType::F32), ..GemmConfig::default() };
    let bytes = GemmConfig { bk: 128, kk: 64, scales: Some(DType::UE8M0), ..small };
    vec![
        GemmConfig { dtype: DType::E4M3, kk: 128, ..bytes },
        GemmConfig { dtype: DType::E5M2, bk: 64, kk: 32, stages: 3, results: Path::Direct, ..bytes },
        GemmConfig { dtype: DType::E3M2, loads: Loads::Tma, ..bytes },
        GemmConfig { dtype: DType::E2M3, stages: 1, ..bytes },
        GemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E2M3), ..bytes },
        GemmConfig { dtype: DType::E2M1, split: 2, ..bytes },
        GemmConfig { dtype: DType::E2M1, scales: Some(DType::UE4M3), kk: 128, ..bytes },
    ]
}

#[test]
fn gemm_is_right_at_edges() {
    for (i, config) in configs().into_iter().enumerate().filter(|(_, config)| config.split == 1) {
        // Whole bytes of four bits, and rows that tensor copies read.
        let sizes = [[65, 40, 208], [1, 1, 2], [64, 32, 2 * config.bk], [63, 33, config.bk + 34]];
        for (j, size) in sizes.into_iter().enumerate() {
            if j == i % 2 || nightly() {
                check(&config, size);
            }
        }
    }
}

#[test]
fn products_are_those_of_the_formats_and_need_no_spills() {
    for (turn, config) in configs().into_iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_120A, [1024, 1024, 1024]);
        let kind = match config.dtype {
            DType::E2M1 => "kind::mxf4nvf4.block_scale",
            _ => "kind::mxf8f6f4.block_scale.scale_vec::1X",
        };
        let types = format!("{}.{}.f32.{}", config.dtype, config.right(), config.scales.unwrap());
        assert!(kernel.ptx.contains(kind) && kernel.ptx.contains(&types), "{config:?}");
        assert_eq!(kernel.ptx.contains("cp.async.bulk.tensor"), config.loads == Loads::Tma, "{config:?}");
        if let Some(ptxas) = ptxas() {
            let spilled = assemble(&ptxas, &format!("scaled-{turn}"), &kernel, Arch::SM_120A);
            assert_eq!(spilled, 0, "{config:?} spills");
        }
    }
}

#[test]
fn mistakes_name_the_field() {
    let reject = |config: GemmConfig, arch| config.reject(arch).unwrap_or_default();
    let bytes = configs()[0];
    let without = GemmConfig { dtype: DType::E2M1, scales: None, kk: 64, ..bytes };
    assert_eq!(
        reject(without, Arch::SM_120A),
        "`scales` = none: elements of e2m1 are multiplied with scales alone: must be ue8m0 or ue4m3"
    );
    let halves = GemmConfig { dtype: DType::F16, scales: None, dtype_b: Some(DType::E5M2), ..bytes };
    assert_eq!(
        reject(halves, Arch::SM_120A),
        "`dtype_b` = e5m2: must be same, or both of e4m3, e5m2, e3m2, e2m3"
    );
    let other = GemmConfig { scales: Some(DType::UE4M3), ..bytes };
    assert_eq!(
        reject(other, Arch::SM_120A),
        "`scales` = ue4m3: goes with e2m1: must be none with dtype=e4m3"
    );
    assert!(
        reject(GemmConfig { sparse: true, ..bytes }, Arch::SM_120A)
            .starts_with("`scales` = ue8m0: must be none with sparse")
    );
    assert!(
        reject(bytes, Arch::SM_90A).contains("block-scaled products of a warp, which sm_90a does not have")
    );
    let four = GemmConfig { loads: Loads::Tma, ..configs()[6] };
    assert!(reject(four, Arch::SM_120A).starts_with("`loads` = tma: elements of e2m1 are no whole bytes"));
}

#[test]
fn the_space_of_sm_120a_has_every_format_within_99_kib() {
    for config in configs() {
        // As many bytes of a stage as of 16-bit factors.
        let more = i64::from(16 / config.dtype.bits());
        let points = GemmConfig::grid().map(|point| GemmConfig {
            dtype: config.dtype,
            scales: config.scales,
            bk: more * point.bk,
            kk: more * point.kk,
            ..point
        });
        let fit = points.filter(|point| point.reject(Arch::SM_120A).is_none()).count();
        assert!(fit > 100, "{} with {:?}: {fit}", config.dtype, config.scales);
    }
}

/// Products with their sums in tensor memory, of every format.
fn sums_in_tensor_memory() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig {
        form: Form::Tcgen05,
        bn: 128,
        bk: 128,
        stages: 2,
        warpgroups: 1,
        sm_count: 2,
        scales: Some(DType::UE8M0),
        ..HopperGemmConfig::default()
    };
    let four = HopperGemmConfig { dtype: DType::E2M1, ..small };
    vec![
        HopperGemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E5M2), ..small },
        HopperGemmConfig { scales: Some(DType::UE4M3), bk: 64, out: Some(DType::F32), ..four },
        HopperGemmConfig { dtype: DType::E5M2, swap: true, ..small },
        HopperGemmConfig { bk: 256, out: Some(DType::F16), ..four },
        HopperGemmConfig {
            scales: Some(DType::UE4M3),
            bn: 192,
            bk: 256,
            warpgroups: 2,
            load_registers: 56,
            ..four
        },
        HopperGemmConfig { dtype: DType::E4M3, swap: true, bn: 48, ..small },
    ]
}

#[test]
fn products_with_sums_in_tensor_memory_are_right_at_edges() {
    for (i, config) in sums_in_tensor_memory().into_iter().enumerate() {
        let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
        let types = [config.dtype, config.right(), config.scales.unwrap(), config.result()];
        let (tall, more) = ([129, 65, 2 * config.bk + 34], [200, 136, config.bk - 32]);
        for (j, size) in [tall, more].into_iter().enumerate() {
            if j == i % 2 || nightly() {
                check_program(&program, Arch::SM_100A, types, size);
            }
        }
    }
}

/// Floats of six bits are multiplied as those of eight that they are, from a copy.
#[test]
fn floats_of_six_bits_are_right() {
    let [bytes, ..] = sums_in_tensor_memory()[..] else { panic!("six") };
    let six = HopperGemmConfig { dtype: DType::E2M3, dtype_b: None, ..bytes };
    for (turn, (config, size)) in [
        (six, [1, 129, 65, 160]),
        (HopperGemmConfig { dtype_b: Some(DType::E3M2), bn: 64, ..six }, [1, 70, 136, 97]),
        (
            HopperGemmConfig { dtype: DType::E5M2, dtype_b: Some(DType::E2M3), b: Major::Mn, ..six },
            [1, 70, 136, 96],
        ),
        (HopperGemmConfig { dtype: DType::E3M2, a: Major::Mn, scales: None, ..six }, [1, 72, 136, 96]),
        (HopperGemmConfig { batch: Batch::Ragged, ..six }, [3, 200, 72, 160]),
        (HopperGemmConfig { dtype: DType::E3M2, form: Form::Wgmma, scales: None, ..six }, [1, 200, 136, 161]),
    ]
    .into_iter()
    .enumerate()
    {
        check_product(&config, size, if in_turn(turn, 2) { &[1, 5] } else { &[3] });
    }
    let programs = six.programs().unwrap();
    assert_eq!(
        programs.iter().map(|program| &program.name[..]).collect::<Vec<_>>(),
        ["pack", "gemm_tcgen05"]
    );
}

/// Batches and groups, whose scales lie as their factors' rows do.
#[test]
fn batches_and_groups_have_scales() {
    let [bytes, four, swapped, .., narrow] = sums_in_tensor_memory()[..] else { panic!("six") };
    for (turn, (config, size)) in [
        (HopperGemmConfig { batch: Batch::Grouped, ..four }, [3, 300, 72, 96]),
        (HopperGemmConfig { batch: Batch::Ragged, bn: 64, ..bytes }, [3, 200, 72, 160]),
        (HopperGemmConfig { batch: Batch::Ragged, ..narrow }, [4, 101, 136, 96]),
        (
            HopperGemmConfig { batch: Batch::Ragged, gather: true, load_registers: 96, ..bytes },
            [3, 200, 72, 160],
        ),
        (HopperGemmConfig { gather: true, load_registers: 96, bn: 64, ..bytes }, [1, 200, 72, 160]),
        (HopperGemmConfig { batch: Batch::Packed, b: Major::Mn, ..swapped }, [2, 70, 144, 160]),
        (
            HopperGemmConfig { batch: Batch::Pointers, scales: Some(DType::UE8M0), bk: 128, ..four },
            [2, 130, 70, 64],
        ),
        (
            HopperGemmConfig { batch: Batch::Strided, bn: 96, epilogue: "alpha".parse().unwrap(), ..four },
            [2, 70, 136, 96],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let seeds: &[u64] = if in_turn(turn, 2) { &[1, 5] } else { &[3] };
        check_product(&config, size, seeds);
    }
}

/// Pairs of blocks, of which each has the scales of all columns.
fn of_pairs() -> Vec<HopperGemmConfig> {
    let [bytes, four, .., wide, _] = sums_in_tensor_memory()[..] else { panic!("six") };
    let pair = |config| HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), ..config };
    let turned = HopperGemmConfig { pair: true, cluster: Cluster::AlongN(2), swap: true, ..four };
    vec![
        pair(bytes),
        pair(wide),
        HopperGemmConfig { bn: 64, scales: Some(DType::UE8M0), bk: 128, ..turned },
        pair(HopperGemmConfig { b: Major::Mn, bn: 96, ..bytes }),
        pair(HopperGemmConfig { schedule: Schedule::StreamK, ..four }),
        HopperGemmConfig { batch: Batch::Ragged, bn: 32, ..turned },
        HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), sm_count: 4, ..pair(bytes) },
    ]
}

#[test]
fn pairs_with_scales_are_right_at_edges() {
    for (turn, config) in of_pairs().into_iter().enumerate() {
        let l = if config.batch == Batch::None { 1 } else { 3 };
        let sizes = [[l, 264, 130, 2 * config.bk + 32], [l, 129, 65, config.bk - 32]];
        for (at, size) in sizes.into_iter().enumerate() {
            if at == turn % 2 || nightly() {
                let seeds: &[u64] = if in_turn(turn, 2) { &[1, 5] } else { &[3] };
                check_product(&config, size, seeds);
            }
        }
        let program = config.program().unwrap();
        let kernel = kernel_for(&program, Arch::SM_100A, [4096, 4096, 4096]);
        assert!(kernel.ptx.contains("tcgen05.cp.cta_group::2.32x128b.warpx4"), "{config:?}");
    }
}

/// Scales where blocks share factors, tiles or steps along k, with a second matrix, and with triangles.
#[test]
fn scales_go_with_every_way_to_share_out_products() {
    let [bytes, four, swapped, .., narrow] = sums_in_tensor_memory()[..] else { panic!("six") };
    let dual = HopperGemmConfig { bn: 64, warpgroups: 2, ..bytes };
    let square = HopperGemmConfig { dtype_b: None, ..bytes };
    for (turn, (config, size)) in [
        (HopperGemmConfig { cluster: Cluster::AlongM(2), ..bytes }, [1, 200, 136, 320]),
        (HopperGemmConfig { cluster: Cluster::AlongMn(2, 2), sm_count: 4, ..swapped }, [1, 200, 264, 160]),
        (HopperGemmConfig { cluster: Cluster::AlongK(2), ..four }, [1, 129, 136, 288]),
        (HopperGemmConfig { split: 3, epilogue: "alpha".parse().unwrap(), ..bytes }, [1, 129, 136, 416]),
        (HopperGemmConfig { schedule: Schedule::StreamK, ..four }, [1, 300, 136, 288]),
        (HopperGemmConfig { schedule: Schedule::Remainder, ..narrow }, [1, 300, 136, 416]),
        (HopperGemmConfig { dual: Dual::SiluMul, fused: true, ..dual }, [1, 129, 72, 288]),
        (HopperGemmConfig { dual: Dual::Mul, swap: true, ..dual }, [1, 129, 72, 160]),
        (HopperGemmConfig { dual: Dual::Add, ..four }, [1, 129, 136, 160]),
        (HopperGemmConfig { triangular: Triangle::Upper, ..bytes }, [1, 200, 136, 320]),
        (HopperGemmConfig { triangular: Triangle::Lower, ..swapped }, [1, 200, 136, 320]),
        (HopperGemmConfig { fill: FillMode::Lower, ..bytes }, [1, 136, 136, 160]),
        (HopperGemmConfig { fill: FillMode::Symmetric, ..square }, [1, 136, 136, 160]),
        (
            HopperGemmConfig { batch: Batch::Packed, dual: Dual::SiluMul, fused: true, ..dual },
            [2, 70, 72, 160],
        ),
        (
            HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), dual: Dual::SiluMul, ..dual },
            [1, 260, 72, 160],
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let seeds: &[u64] = if in_turn(turn, 2) { &[1, 5] } else { &[3] };
        check_product(&config, size, seeds);
    }
}

#[test]
fn products_with_sums_in_tensor_memory_need_no_spills() {
    let pairs = of_pairs().into_iter().take(3);
    for (turn, config) in sums_in_tensor_memory().into_iter().chain(pairs).enumerate() {
        let arch = if turn % 2 == 0 { Arch::SM_100A } else { Arch::SM_103A };
        let kernel = kernel_for(&config.program().unwrap(), arch, [4096, 4096, 4096]);
        let kind = match (config.dtype, config.scales) {
            (DType::E2M1, Some(DType::UE4M3)) => "kind::mxf4nvf4.block_scale.scale_vec::4X",
            (DType::E2M1, _) => "kind::mxf4.block_scale.scale_vec::2X",
            _ => "kind::mxf8f6f4.block_scale.scale_vec::1X",
        };
        assert!(kernel.ptx.contains(kind) && kernel.ptx.contains("tcgen05.cp"), "{config:?}");
        if let Some(ptxas) = ptxas() {
            let spilled = assemble(&ptxas, &format!("scaled-sums-{turn}"), &kernel, arch);
            assert_eq!(spilled, 0, "{config:?} spills");
        }
    }
}

/// Scales of tiles of few columns come with those of the next tiles.
#[test]
fn lints_say_nothing_of_scales_of_narrow_tiles() {
    for bn in [16, 32, 64, 192] {
        let narrow = HopperGemmConfig { bn, ..sums_in_tensor_memory()[0] };
        let verified = verify(&narrow.program().unwrap(), &Constants::new()).unwrap();
        let found = lint(&verified, &std::collections::BTreeMap::new());
        assert!(found.is_empty(), "{bn}: {found:?}");
    }
}

#[test]
fn mistakes_with_sums_in_tensor_memory_name_the_field() {
    let bytes = sums_in_tensor_memory()[0];
    let says = |config: HopperGemmConfig, text: &str| {
        let error = config.validate().unwrap_err().to_string();
        assert!(error.starts_with(text), "{error}");
    };
    says(HopperGemmConfig { form: Form::Wgmma, ..bytes }, "`scales` = ue8m0: must be none but with form");
    says(HopperGemmConfig { dtype: DType::F16, dtype_b: None, ..bytes }, "`scales` = ue8m0: goes with");
    says(HopperGemmConfig { scales: Some(DType::UE4M3), ..bytes }, "`scales` = ue4m3: goes with e2m1");
    says(HopperGemmConfig { bn: 72, ..bytes }, "`bn` = 72: must be a multiple of 16");
    let four = HopperGemmConfig { dtype: DType::E2M1, dtype_b: None, ..bytes };
    says(
        HopperGemmConfig { b: Major::Mn, ..four },
        "`b` = mn: two elements of 4 bits are neighbours along k",
    );
    let six = HopperGemmConfig { dtype: DType::E3M2, dtype_b: None, ..bytes };
    says(HopperGemmConfig { scales: None, form: Form::Gemv, ..six }, "`dtype` = e3m2: form=gemv has no copy");
    says(
        HopperGemmConfig { gather: true, scales: None, ..six },
        "`gather` = true: rows are read where they lie, and floats of six bits are copied ahead",
    );
    says(
        HopperGemmConfig { dtype: DType::F16, dtype_b: Some(DType::E2M3), scales: None, ..bytes },
        "`dtype_b` = e2m3: must be `same`",
    );
    says(HopperGemmConfig { bm: 64, ..bytes }, "`bm` = 64: must be 128");
    says(HopperGemmConfig { bk: 64, ..bytes }, "`bk` = 64: four scales of a row");
    says(HopperGemmConfig { bn: 256, warpgroups: 2, ..bytes }, "`bn` = 256: 2 stages of sums and the scales");
    says(HopperGemmConfig { sparse: true, ..bytes }, "`sparse` = true: scales are of blocks");
    says(
        HopperGemmConfig { dual: Dual::SiluMul, bn: 128, warpgroups: 2, ..bytes },
        "`bn` = 128: 2 stages of sums and the scales take 524 columns",
    );
    says(
        HopperGemmConfig { pair: true, cluster: Cluster::AlongM(2), bn: 256, warpgroups: 2, ..bytes },
        "`bn` = 256: 2 stages of sums and the scales",
    );
    let without = HopperGemmConfig { dtype: DType::E2M1, dtype_b: None, scales: None, ..bytes };
    says(without, "`scales` = none: elements of e2m1");
}
