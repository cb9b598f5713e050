//! Block-scaled products by `gemm`: edge sizes in all executions, what is refused, and instructions.

use crate::common::{absolute, agree, assemble, bounds, kernel_for, nightly, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm::{self, GemmConfig};
use tilewright_kernels::{Loads, Path};
use tilewright_machine::{Arch, DType};

/// Scales from 1/4 to 4.
fn scales(rng: &mut ChaCha8Rng, dtype: DType, count: i64) -> Vec<f64> {
    let drawn = random(rng, DType::F32, count);
    drawn.into_iter().map(|x| dtype.decode(dtype.encode((2.0 * x.clamp(-1.0, 1.0)).exp2()))).collect()
}

/// The factor of so many columns whose elements are multiplied by the scales of their blocks.
fn scaled(factor: &[f64], scales: &[f64], k: usize, block: usize) -> Vec<f64> {
    let of = |i: usize| scales[i / k * k.div_ceil(block) + i % k / block];
    factor.iter().enumerate().map(|(i, x)| x * of(i)).collect()
}

/// The executions agree with plain loops over the factors times their scales.
fn check(config: &GemmConfig, [m, n, k]: [i64; 3]) {
    let scale = config.scales.unwrap();
    let block = if scale == DType::UE4M3 { 16 } else { 32 };
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let [a, b] = [m, n].map(|rows| random(&mut rng, config.dtype, rows * k));
    let [of_a, of_b] = [m, n].map(|rows| scales(&mut rng, scale, rows * ((k + block - 1) / block)));
    let (columns, block) = (k as usize, block as usize);
    let left = scaled(&a, &of_a, columns, block);
    let right = scaled(&b, &of_b, columns, block);
    let exact = gemm::reference(&left, &right, n as usize, columns);
    let magnitudes = gemm::reference(&absolute(&left), &absolute(&right), n as usize, columns);
    let bound = bounds(config.result(), 0.0, k, &exact, &magnitudes);
    let inputs = [(config.dtype, a), (config.dtype, b), (scale, of_a), (scale, of_b)];
    agree(&config.program().unwrap(), Arch::SM_120A, [m, n, k], &[k as u64], &inputs, &exact, &bound);
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
        let types = format!("{0}.{0}.f32.{1}", config.dtype, config.scales.unwrap());
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
    let four = GemmConfig { loads: Loads::Tma, ..configs()[5] };
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
