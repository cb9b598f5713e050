//! Products with a sparse A by `gemm` and `gemm_hopper`: edge sizes in all executions, what is refused, and registers.

use crate::common::{absolute, agree, assemble, bounds, kernel_for, nightly, ptxas, random, small_hopper};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm::{self, GemmConfig};
use tilewright_kernels::gemm_hopper::{Cluster, HopperGemmConfig, Major};
use tilewright_kernels::{Path, operator, sparse};
use tilewright_machine::{Arch, DType};
use tilewright_sim::Report;
use tilewright_tile::Program;

/// A product with a sparse A, whose metadata have whole tiles.
struct Product {
    program: Program,
    dtypes: [DType; 2],
    b: Major,
    result: DType,
    metadata_tile: [usize; 2],
}

impl Product {
    fn gemm(config: &GemmConfig) -> Product {
        Product {
            program: config.program().unwrap(),
            dtypes: [config.dtype; 2],
            b: config.b,
            result: config.result(),
            metadata_tile: config.metadata_tile(),
        }
    }

    fn hopper(config: &HopperGemmConfig) -> Product {
        Product {
            program: config.program().unwrap(),
            dtypes: [config.dtype, config.right()],
            b: config.b,
            result: config.result(),
            metadata_tile: config.metadata_tile(),
        }
    }

    /// The executions agree with plain loops over the matrix before it was compressed.
    fn check(&self, arch: Arch, [m, n, k]: [i64; 3]) -> Report {
        let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
        let shape = [m as usize, k as usize];
        let mut a = random(&mut rng, self.dtypes[0], m * k);
        sparse::prune(&mut a, shape, f64::abs).unwrap();
        let b = random(&mut rng, self.dtypes[1], n * k);
        let exact = gemm::reference(&a, &b, n as usize, k as usize);
        let magnitudes = gemm::reference(&absolute(&a), &absolute(&b), n as usize, k as usize);
        let bound = match self.result {
            DType::I32 => vec![0.0; exact.len()],
            out => bounds(out, 0.0, k, &exact, &magnitudes),
        };
        let compressed = sparse::compress(&a, shape, self.metadata_tile).unwrap();
        let places = compressed.places.iter().map(|place| f64::from(*place)).collect();
        let across = |i: i64| b[(i % n * k + i / n) as usize];
        let b = if self.b == Major::K { b } else { (0..n * k).map(across).collect() };
        let inputs = [(self.dtypes[0], compressed.values), (self.dtypes[1], b), (DType::U2, places)];
        agree(&self.program, arch, [m, n, k], &[k as u64], &inputs, &exact, &bound)
    }
}

#[test]
fn gemm_is_right_at_edges() {
    let small =
        GemmConfig { sparse: true, bm: 64, bn: 32, bk: 64, kk: 64, stages: 3, ..GemmConfig::default() };
    for size in gemm::edge_sizes(&small) {
        Product::gemm(&small).check(Arch::SM_80, size);
    }
    let configs = [
        (GemmConfig { dtype: DType::BF16, bk: 128, kk: 32, stages: 2, ..small }, Arch::SM_80),
        (GemmConfig { dtype: DType::I8, bk: 128, kk: 64, results: Path::Direct, ..small }, Arch::SM_80),
        (GemmConfig { dtype: DType::U8, bk: 128, kk: 128, stages: 1, ..small }, Arch::SM_80),
        (GemmConfig { dtype: DType::E4M3, bk: 128, kk: 128, ..small }, Arch::SM_89),
        (GemmConfig { dtype: DType::E5M2, bm: 128, bk: 256, kk: 256, stages: 2, ..small }, Arch::SM_90A),
        (GemmConfig { b: Major::Mn, ..small }, Arch::SM_90A),
    ];
    for (config, arch) in configs {
        Product::gemm(&config).check(arch, [65, 48, 200]);
        if nightly() {
            Product::gemm(&config).check(arch, [130, 40, 129]);
        }
    }
}

/// Configurations of `gemm_hopper` in which what there is to choose is chosen differently once.
fn hopper_configs() -> Vec<HopperGemmConfig> {
    let small = HopperGemmConfig { sparse: true, ..small_hopper() };
    let bytes = HopperGemmConfig { bk: 128, ..small };
    vec![
        small,
        HopperGemmConfig { dtype: DType::BF16, b: Major::Mn, bk: 32, in_flight: 0, ..small },
        HopperGemmConfig { bm: 128, bn: 112, bk: 128, stages: 2, warpgroups: 2, ..small },
        HopperGemmConfig {
            bm: 128,
            bk: 128,
            stages: 2,
            cluster: Cluster::AlongM(2),
            register_a: true,
            ..small
        },
        HopperGemmConfig { cluster: Cluster::AlongM(2), overlap_epilogue: true, chunk: Some(16), ..small },
        HopperGemmConfig { cluster: Cluster::AlongN(2), out: Some(DType::F32), ..small },
        HopperGemmConfig { dtype: DType::E4M3, dtype_b: Some(DType::E5M2), ..bytes },
        HopperGemmConfig { dtype: DType::I8, bk: 64, overlap_epilogue: true, ..bytes },
    ]
}

#[test]
fn gemm_hopper_is_right_at_edges() {
    for (i, config) in hopper_configs().into_iter().enumerate() {
        let product = Product::hopper(&config);
        let sizes = [[1, 1, 1], [65, 72, 200], [130, 129, 257], [64, 64, 2 * config.bk]];
        for (j, size) in sizes.into_iter().enumerate() {
            if (i + j) % 2 == 0 || nightly() {
                product.check(Arch::SM_90A, size);
            }
        }
    }
}

#[test]
fn sparse_products_are_those_of_the_instructions_for_them() {
    let config = HopperGemmConfig { sparse: true, ..HopperGemmConfig::default() };
    let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [1024, 1024, 1024]);
    assert!(kernel.ptx.contains("wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.f16.f16"));
    assert!(kernel.ptx.contains("cp.async.bulk.tensor.2d"), "{}", kernel.ptx);
    let config = GemmConfig { sparse: true, bk: 64, kk: 64, bn: 64, ..GemmConfig::default() };
    let kernel = kernel_for(&config.program().unwrap(), Arch::SM_80, [1024, 1024, 1024]);
    assert!(kernel.ptx.contains("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"));
    // A lane has the metadata of two instructions along k by one access.
    assert!(kernel.explanation.to_string().contains("16 of the metadata along K a lane"));
}

#[test]
fn ptxas_needs_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    let sparse = HopperGemmConfig { sparse: true, ..HopperGemmConfig::default() };
    let hopper = [
        sparse,
        HopperGemmConfig { overlap_epilogue: true, bn: 128, ..sparse },
        HopperGemmConfig { dtype: DType::E4M3, bk: 128, cluster: Cluster::AlongM(2), ..sparse },
    ];
    for (i, config) in hopper.iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [2048, 2048, 2048]);
        assert_eq!(
            assemble(&ptxas, &format!("gemm_hopper-sparse-{i}"), &kernel, Arch::SM_90A),
            0,
            "{config:?}"
        );
    }
    let sparse = GemmConfig { sparse: true, bn: 64, bk: 64, kk: 64, stages: 3, ..GemmConfig::default() };
    let bytes = GemmConfig { bk: 128, kk: 128, ..sparse };
    let products = [
        (sparse, Arch::SM_80),
        (GemmConfig { kk: 32, bn: 128, threads: 256, ..sparse }, Arch::SM_90A),
        (GemmConfig { dtype: DType::I8, ..bytes }, Arch::SM_80),
        (GemmConfig { dtype: DType::E4M3, ..bytes }, Arch::SM_89),
    ];
    for (i, (config, arch)) in products.iter().enumerate() {
        let kernel = kernel_for(&config.program().unwrap(), *arch, [2048, 2048, 2048]);
        assert_eq!(assemble(&ptxas, &format!("gemm-sparse-{i}"), &kernel, *arch), 0, "{config:?}");
    }
}

#[test]
fn the_estimate_knows_what_a_sparse_factor_leaves_out() {
    let dense = HopperGemmConfig::default();
    let sparse = HopperGemmConfig { sparse: true, bk: 2 * dense.bk, ..dense };
    // Tensor cores bound both; where m is small the bytes of b do, which are the same.
    let ratio = |[m, n, k]: [i64; 3]| sparse.estimate(m, n, k) / dense.estimate(m, n, k);
    let (large, small) = (ratio([8192; 3]), ratio([128, 57344, 8192]));
    assert!((0.5..0.75).contains(&large), "{large}");
    assert!((0.85..1.05).contains(&small), "{small}");
    // Longer steps and no cluster are what was the fastest on an H100.
    let longer = HopperGemmConfig { bk: 2 * dense.bk, stages: 2, register_a: true, sparse: true, ..dense };
    let shorter = HopperGemmConfig { sparse: true, ..dense };
    let shared = HopperGemmConfig { cluster: Cluster::AlongM(2), ..longer };
    let [longer, shorter, shared] = [longer, shorter, shared].map(|c| c.estimate(8192, 8192, 8192));
    assert!(longer < shorter && longer < shared, "{longer} {shorter} {shared}");
}

#[test]
fn what_a_sparse_factor_does_not_go_with_is_refused() {
    let refused = |name: &str, given: &[(&str, &str)]| {
        let all: Vec<_> = [("sparse", "true")].iter().chain(given).copied().collect();
        (operator(name).unwrap().programs)(&all).err().map(|e| e.to_string()).unwrap_or_default()
    };
    for (given, word) in [
        (&[("dtype", "f32")][..], "`dtype` = f32"),
        (&[("dtype", "e3m2")], "`dtype` = e3m2: must be f16, bf16, e4m3, e5m2, i8 or u8"),
        (
            &[("dtype", "e4m3"), ("dtype_b", "e2m3")],
            "`dtype_b` = e2m3: must be same, e4m3 or e5m2, with sparse",
        ),
        (&[("a", "m")], "`a` = m"),
        (&[("batch", "packed")], "`batch` = packed"),
        (&[("dual", "mul")], "`dual` = mul"),
        (&[("swap", "true")], "`swap` = true"),
        (&[("schedule", "stream_k")], "`schedule` = stream_k"),
        (&[("split", "2")], "`split` = 2"),
        (&[("in_flight", "2")], "`in_flight` = 2"),
        (&[("bk", "48")], "`bk` = 48"),
    ] {
        let text = refused("gemm_hopper", given);
        assert!(text.starts_with(word), "{given:?}: {text}");
    }
    for (given, word) in [
        (&[("dtype", "f64"), ("kk", "32")][..], "`dtype` = f64"),
        (&[("dtype", "e4m3"), ("dtype_b", "e5m2")], "`dtype_b` = e5m2: must be same with sparse=true"),
        (&[("a", "m"), ("kk", "32")], "`a` = m"),
        (&[("kk", "16")], "`kk` = 16"),
    ] {
        let text = refused("gemm", given);
        assert!(text.starts_with(word), "{given:?}: {text}");
    }
    let dense = HopperGemmConfig { register_a: true, ..HopperGemmConfig::default() };
    assert!(dense.validate().unwrap_err().to_string().starts_with("`register_a` = true"));
    let cluster = HopperGemmConfig { cluster: Cluster::AlongM(2), ..HopperGemmConfig::default() };
    assert_eq!(cluster.metadata_tile(), [256, 64]);
}
