//! `gemm_fp8_blocks`: its configurations at edge sizes in all executions, and what is refused.

use crate::common::{absolute, agree, assemble, bounds, crossed, in_turn, kernel_for, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_fp8_blocks::{self, BLOCK, Fp8BlocksConfig};
use tilewright_kernels::gemm_hopper::{Batch, Cluster, Rasterization};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_sim::Report;
use tilewright_tile::parse;

fn check(config: &Fp8BlocksConfig, size: [i64; 3], seeds: &[u64]) -> Report {
    let [m, n, k] = size;
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let deep = (k + BLOCK - 1) / BLOCK;
    let inputs = [
        (config.a, m * k),
        (config.b, n * k),
        (DType::F32, deep * m),
        (DType::F32, (n + BLOCK - 1) / BLOCK * deep),
    ]
    .map(|(dtype, len)| (dtype, random(&mut rng, dtype, len)));
    let [a, b, sa, sb] = [0, 1, 2, 3].map(|i: usize| inputs[i].1.clone());
    let sizes = size.map(|s| s as usize);
    let exact = gemm_fp8_blocks::reference((&a, &b), (&sa, &sb), sizes);
    let [a, b, sa, sb] = [a, b, sa, sb].map(|values| absolute(&values));
    let magnitudes = gemm_fp8_blocks::reference((&a, &b), (&sa, &sb), sizes);
    let bound = bounds(config.out, 0.0, k, &exact, &magnitudes);
    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    agree(&program, Arch::SM_90A, size, seeds, &inputs, &exact, &bound)
}

/// One math warpgroup, 64 × 64 tiles and four blocks.
fn small() -> Fp8BlocksConfig {
    Fp8BlocksConfig {
        bm: 64,
        bn: 64,
        stages: 2,
        warpgroups: 1,
        cluster: Cluster::None,
        rasterization: Rasterization::Grouped(2),
        sm_count: 4,
        ..Fp8BlocksConfig::default()
    }
}

/// Configurations in which everything that there is to choose is chosen differently once.
fn configs() -> Vec<Fp8BlocksConfig> {
    let small = small();
    let default = Fp8BlocksConfig { sm_count: 4, ..Fp8BlocksConfig::default() };
    vec![
        small,
        Fp8BlocksConfig { overlap_epilogue: false, a: DType::E5M2, out: DType::F16, ..small },
        Fp8BlocksConfig {
            b: DType::E5M2,
            out: DType::F32,
            rasterization: Rasterization::Serpentine(1),
            ..small
        },
        Fp8BlocksConfig { overlap_epilogue: false, out: DType::F32, bn: 8, stages: 1, ..small },
        // Parts of a tile that lie in blocks of their own, and tiles that begin within a block.
        Fp8BlocksConfig { part: Some(16), bn: 48, cluster: Cluster::AlongM(2), ..small },
        Fp8BlocksConfig { part: Some(64), bn: 192, buffers: 3, ..small },
        Fp8BlocksConfig { bn: 256, stages: 3, overlap_epilogue: false, ..default },
        Fp8BlocksConfig { part: Some(32), chunk: Some(8), cluster: Cluster::AlongN(2), ..small },
        Fp8BlocksConfig { swap: true, bn: 24, part: Some(24), hint_b: Some(CacheHint::EvictFirst), ..small },
        Fp8BlocksConfig {
            swap: true,
            overlap_epilogue: false,
            part: Some(32),
            cluster: Cluster::AlongM(2),
            ..small
        },
        Fp8BlocksConfig { swap: true, cluster: Cluster::AlongN(4), ..default },
        Fp8BlocksConfig { cluster: Cluster::AlongMn(2, 2), ..small },
        default,
    ]
}

/// Configurations that are the fastest, or may be.
fn wide() -> Vec<Fp8BlocksConfig> {
    let default = Fp8BlocksConfig::default();
    let narrow = Fp8BlocksConfig { cluster: Cluster::None, stages: 7, ..default };
    vec![
        Fp8BlocksConfig { cluster: Cluster::None, rasterization: Rasterization::Hilbert(3), ..default },
        Fp8BlocksConfig { cluster: Cluster::AlongN(2), ..default },
        Fp8BlocksConfig { bn: 256, stages: 4, buffers: 1, overlap_epilogue: false, ..default },
        Fp8BlocksConfig {
            bm: 192,
            warpgroups: 3,
            math_registers: 160,
            stages: 4,
            overlap_epilogue: false,
            ..default
        },
        Fp8BlocksConfig { bm: 256, bn: 64, stages: 4, buffers: 1, ..default },
        Fp8BlocksConfig { bn: 64, ..narrow },
        Fp8BlocksConfig { bn: 32, ..narrow },
        Fp8BlocksConfig { swap: true, bn: 64, ..narrow },
        Fp8BlocksConfig { swap: true, bm: 64, warpgroups: 1, bn: 16, stages: 12, ..narrow },
        Fp8BlocksConfig {
            swap: true,
            bn: 160,
            part: Some(160),
            stages: 4,
            overlap_epilogue: false,
            ..narrow
        },
    ]
}

#[test]
fn it_is_right_at_edges() {
    for (config, size) in crossed(configs(), gemm_fp8_blocks::edge_sizes, 4) {
        check(&config, size, &[size[2] as u64]);
    }
}

#[test]
fn it_computes_the_same_whatever_the_order_of_events() {
    let small = small();
    let configs = [
        small,
        Fp8BlocksConfig { cluster: Cluster::AlongM(2), overlap_epilogue: false, ..small },
        Fp8BlocksConfig { cluster: Cluster::AlongN(2), swap: true, buffers: 1, ..small },
        Fp8BlocksConfig { cluster: Cluster::AlongMn(2, 2), swap: true, overlap_epilogue: false, ..small },
        Fp8BlocksConfig { part: Some(32), sm_count: 2, ..small },
    ];
    for config in configs {
        check(&config, [200, 200, 400], &[1, 2, 3, 4, 5]);
    }
}

#[test]
fn the_default_is_right_without_conflicts() {
    for config in [Fp8BlocksConfig::default()].into_iter().chain(wide()) {
        let report = check(&Fp8BlocksConfig { sm_count: 4, ..config }, [256, 256, 384], &[7]);
        assert_eq!(report.shared_conflicts, 0, "{config:?}");
    }
}

/// A part's sums are added with one instruction a value, and everything that has rows of multiples of 16 bytes is copied by tensor maps.
#[test]
fn sums_are_promoted_by_fused_additions() {
    for config in [Fp8BlocksConfig::default()].into_iter().chain(wide()) {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 7168, 2048]);
        let report = kernel.explanation.to_string();
        assert!(!report.contains("not tma"), "{config:?}: {report}");
        let part = config.part.unwrap_or([128, 64, 32, 16].into_iter().find(|p| config.bn % p == 0).unwrap());
        let sums = (config.bm * part / (128 * config.warpgroups)) as usize;
        let (fused, added) =
            (kernel.ptx.matches("fma.rn.f32").count(), kernel.ptx.matches("add.rn.f32").count());
        assert!(
            fused >= sums && fused % sums == 0 && added == 0,
            "{config:?}: {fused} and {added} of {sums}"
        );
    }
}

#[test]
fn ptxas_needs_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    for (i, config) in configs().into_iter().chain(wide()).enumerate() {
        let program = config.program().unwrap();
        let assemble = |name: &str, size: [i64; 3]| {
            let kernel = kernel_for(&program, Arch::SM_90A, size);
            assemble(&ptxas, &format!("gemm_fp8_blocks_{i}_{name}"), &kernel, Arch::SM_90A)
        };
        for (turn, name, size) in [(0, "whole", [4096, 7168, 16384]), (1, "edges", [1000, 3000, 1040])] {
            assert!(!in_turn(i + turn, 2) || assemble(name, size) == 0, "{config:?} spills");
        }
    }
}

#[test]
fn programs_print_and_parse_back() {
    for config in configs().into_iter().chain(wide()) {
        let program = config.program().unwrap();
        assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
    }
}

#[test]
fn mistakes_name_the_field_and_what_would_be_right() {
    let says = |config: Fp8BlocksConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = Fp8BlocksConfig::default();
    says(Fp8BlocksConfig { a: DType::F16, ..default }, "a", "e4m3 or e5m2");
    says(Fp8BlocksConfig { b: DType::I8, ..default }, "b", "e4m3 or e5m2");
    says(Fp8BlocksConfig { out: DType::E4M3, ..default }, "out", "bf16, f16 or f32");
    says(Fp8BlocksConfig { warpgroups: 0, ..default }, "warpgroups", "from 1 to 7");
    says(Fp8BlocksConfig { bm: 64, ..default }, "bm", "64 for each of 2");
    says(Fp8BlocksConfig { swap: true, bm: 256, ..default }, "bm", "within a block of b");
    says(Fp8BlocksConfig { bn: 100, ..default }, "bn", "multiple of 8");
    says(Fp8BlocksConfig { part: Some(48), ..default }, "part", "divides bn = 128");
    says(Fp8BlocksConfig { bn: 96, part: Some(48), ..default }, "part", "must divide 128");
    says(Fp8BlocksConfig { stages: 0, ..default }, "stages", "from 1");
    says(Fp8BlocksConfig { stages: 7, ..default }, "stages", "fewer stages");
    says(Fp8BlocksConfig { chunk: Some(48), ..default }, "chunk", "divide part = 128");
    says(
        Fp8BlocksConfig { out: DType::F32, chunk: Some(64), overlap_epilogue: false, ..default },
        "chunk",
        "128 bytes",
    );
    says(Fp8BlocksConfig { buffers: 0, ..default }, "buffers", "from 1");
    says(Fp8BlocksConfig { cluster: Cluster::AlongM(3), ..default }, "cluster", "2, 4 or 8");
    says(Fp8BlocksConfig { cluster: Cluster::AlongK(2), ..default }, "cluster", "along m or n");
    says(Fp8BlocksConfig { bn: 8, part: Some(8), ..default }, "cluster", "cannot share 8 rows");
    says(
        Fp8BlocksConfig { rasterization: Rasterization::Grouped(0), ..default },
        "rasterization",
        "1 to 1024",
    );
    says(Fp8BlocksConfig { rasterization: Rasterization::Hilbert(9), ..default }, "rasterization", "0 to 8");
    says(Fp8BlocksConfig { load_registers: 25, ..default }, "load_registers", "multiple of 8");
    says(Fp8BlocksConfig { warpgroups: 4, bm: 256, ..default }, "math_registers", "fewer");
    says(Fp8BlocksConfig { bn: 256, stages: 2, ..default }, "bn", "registers of a thread");
    says(Fp8BlocksConfig { sm_count: 1, ..default }, "sm_count", "from 2");
    assert!(default.reject(Arch::SM_80).is_some_and(|reason| reason.contains("sm_90a")));

    let named = |given: &[(&str, &str)]| (operator("gemm_fp8_blocks").unwrap().programs)(given);
    for (given, text) in [
        (("a", "f8"), "e4m3 or e5m2"),
        (("out", "half"), "bf16, f16 or f32"),
        (("cluster", "m0"), "none, or m"),
        (("rasterization", "rows"), "grouped(rows)"),
        (("part", "most"), "an integer"),
        (("swap", "1"), "true or false"),
        (("hint_a", "keep"), "evict_first"),
        (("bk", "64"), "no parameter `bk`"),
    ] {
        let error = named(&[given]).unwrap_err().to_string();
        assert!(error.contains(text), "{given:?}: {error}");
    }
    let given = [
        ("a", "e5m2"),
        ("b", "e5m2"),
        ("out", "f16"),
        ("swap", "true"),
        ("bm", "64"),
        ("bn", "32"),
        ("part", "16"),
        ("stages", "6"),
        ("warpgroups", "1"),
        ("cluster", "n2"),
        ("rasterization", "serpentine(4)"),
        ("overlap_epilogue", "false"),
        ("chunk", "8"),
        ("buffers", "3"),
        ("hint_a", "evict_last"),
        ("hint_b", "evict_first"),
        ("hint_c", "none"),
        ("batch", "ragged"),
        ("gather", "false"),
        ("scatter", "true"),
        ("dependent", "true"),
        ("load_registers", "32"),
        ("math_registers", "232"),
        ("sm_count", "78"),
    ];
    let same = Fp8BlocksConfig {
        a: DType::E5M2,
        b: DType::E5M2,
        out: DType::F16,
        swap: true,
        bm: 64,
        bn: 32,
        part: Some(16),
        stages: 6,
        warpgroups: 1,
        cluster: Cluster::AlongN(2),
        rasterization: Rasterization::Serpentine(4),
        overlap_epilogue: false,
        chunk: Some(8),
        buffers: 3,
        hint_a: Some(CacheHint::EvictLast),
        hint_b: Some(CacheHint::EvictFirst),
        hint_c: None,
        batch: Batch::Ragged,
        gather: false,
        scatter: true,
        dependent: true,
        load_registers: 32,
        math_registers: 232,
        sm_count: 78,
    };
    assert_eq!(named(&given).unwrap(), vec![same.program().unwrap()]);
}

#[test]
fn the_space_compiles() {
    let all: Vec<Fp8BlocksConfig> = Fp8BlocksConfig::space(Arch::SM_90A, 4096, 7168, 2048).collect();
    assert!(all.len() >= 100, "{}", all.len());
    assert!(all.contains(&Fp8BlocksConfig::default()));
    assert!(all.iter().any(|c| c.bm == 192 && c.warpgroups == 3));
    assert_eq!(Fp8BlocksConfig::space(Arch::SM_80, 4096, 7168, 2048).count(), 0);
    assert!(Fp8BlocksConfig::space(Arch::SM_90A, 64, 4096, 7168).all(|c| c.swap || c.bm <= 64 * 2));
    for config in all.iter().step_by(all.len() / 40) {
        kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 7168, 2048]);
    }
}
