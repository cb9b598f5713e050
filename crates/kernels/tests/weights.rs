//! `gemm_weights`: its formats and configurations at edge sizes in all executions, and what is refused.

use crate::common::{
    Launch, Tensors, absolute, assemble, bounds, close, crossed, in_turn, kernel_for, nightly, ptxas, random,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::gemm_weights::{
    self, Batch, Cluster, Factors, Instruction, RepackConfig, Scaled, Schedule, WeightsConfig,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};
use tilewright_sim::Report;
use tilewright_synth::cast;
use tilewright_tile::parse;

/// The architecture of a configuration's instructions.
pub fn target(config: &WeightsConfig) -> Arch {
    if config.instruction == Instruction::Tcgen05 { Arch::SM_100A } else { Arch::SM_90A }
}

/// Interpreter and simulator agree with the product of dequantised weights in f64.
pub fn check(config: &WeightsConfig, [m, n, k]: [i64; 3], seeds: &[u64]) -> Report {
    let mut rng = ChaCha8Rng::seed_from_u64((m * 7 + n * 3 + k) as u64);
    let sizes = [m, n, k].map(|size| size as usize);
    let groups = config.group.map_or(1, |group| (k + group - 1) / group);
    let stored = config.stored();
    let a = random(&mut rng, config.a(), m * k);
    // What lies behind the last row and column is stored too, and does not count.
    let w = random(&mut rng, config.weights, stored.count([sizes[1], sizes[2]]) as i64);
    // Scales have no sign.
    let s = absolute(&random(&mut rng, config.scales(), groups * n));
    let s: Vec<f64> = s.iter().map(|x| config.scales().decode(config.scales().encode(x + 0.01))).collect();
    let zeros = random(&mut rng, DType::U4, if config.zeros { groups * n } else { 0 });
    let mut weights = stored.unpack(&w, [sizes[1], sizes[2]]);
    // Integers of 16 bits are rounded to the type of the activations.
    if config.weights == DType::I16 {
        weights.iter_mut().for_each(|weight| *weight = config.a().decode(config.a().encode(*weight)));
    }
    let upper = config.stored_upper().map(|upper| {
        let h = random(&mut rng, upper.dtype(), upper.count([sizes[1], sizes[2]]) as i64);
        let step = f64::from(1u32 << config.weights.bits());
        let bits = upper.unpack(&h, [sizes[1], sizes[2]]);
        weights.iter_mut().zip(bits).for_each(|(weight, bits)| *weight += step * bits);
        h
    });
    let group = config.group.map(|group| group as usize);
    let exact = gemm_weights::reference(Factors { a: &a, w: &weights, s: &s, z: &zeros }, sizes, group);
    // Of a difference the magnitudes add up.
    let less: Vec<f64> = zeros.iter().map(|z| -z).collect();
    let size = Factors { a: &absolute(&a), w: &absolute(&weights), s: &s, z: &less };
    let magnitudes = gemm_weights::reference(size, sizes, group);
    // Weights are rounded where scales multiply them, and where what is left of them has more bits than bf16.
    let scaled = config.scaled == Scaled::Weights && config.group.is_some();
    let long = config.zeros && config.dtype == DType::BF16 && config.weights.bits() >= 8;
    let bound = bounds(config.dtype, if scaled || long { 2.0 } else { 0.0 }, k, &exact, &magnitudes);

    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let mut given = Tensors::from([("a", a), ("w", w), ("s", s)].map(|(name, x)| (name.to_string(), x)));
    if config.zeros {
        given.insert("z".to_string(), zeros);
    }
    given.extend(upper.map(|h| ("h".to_string(), h)));
    if config.schedule == Schedule::StreamK {
        given.insert("done".to_string(), vec![0.0; 2 * config.sm_count as usize]);
    }
    let launch = Launch {
        programs: std::slice::from_ref(&program),
        sizes: &[("m", m), ("n", n), ("k", k)],
        scalars: &[],
    };
    let (simulated, interpreted, mut reports) = launch.run(target(config), seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        close(&format!("{who} at {:?} of {config:?}", [m, n, k]), &results["c"], &exact, &bound);
        assert!(results.get("done").is_none_or(|done| done.iter().all(|count| *count == 0.0)));
    }
    reports.remove(0)
}

/// One math warpgroup, 64 × 16 tiles and few blocks.
fn small() -> WeightsConfig {
    WeightsConfig { bm: 64, stages: 3, warpgroups: 1, sm_count: 3, ..WeightsConfig::default() }
}

/// Every format with its scales.
pub fn formats() -> Vec<WeightsConfig> {
    let small = small();
    let of = |weights: DType| WeightsConfig { weights, ..small };
    let block = WeightsConfig { weights: DType::E2M1, ..small };
    vec![
        small,
        WeightsConfig { zeros: true, dtype: DType::BF16, ..of(DType::U4) },
        WeightsConfig { zeros: true, group: Some(64), scaled: Scaled::Weights, ..of(DType::U4) },
        WeightsConfig { group: Some(32), part: 32, scale: Some(DType::F32), ..of(DType::I4) },
        WeightsConfig { group: None, ..of(DType::I4) },
        WeightsConfig { group: None, zeros: true, scale: Some(DType::F32), ..of(DType::U8) },
        // MXFP4 and NVFP4.
        WeightsConfig { group: Some(32), part: 32, scale: Some(DType::UE8M0), ..block },
        WeightsConfig { group: Some(32), part: 32, scale: Some(DType::UE8M0), dtype: DType::BF16, ..block },
        WeightsConfig { group: Some(16), part: 16, scale: Some(DType::UE4M3), ..block },
        WeightsConfig {
            group: Some(16),
            part: 16,
            scale: Some(DType::UE4M3),
            scaled: Scaled::Weights,
            ..block
        },
        WeightsConfig { group: Some(64), ..of(DType::I8) },
        WeightsConfig { group: Some(32), part: 32, bk: 64, dtype: DType::BF16, ..of(DType::E4M3) },
        WeightsConfig { part: 128, ..of(DType::I2) },
        WeightsConfig { part: 128, zeros: true, dtype: DType::BF16, ..of(DType::U2) },
        WeightsConfig { part: 128, ..of(DType::I1) },
        WeightsConfig { group: Some(64), zeros: true, scaled: Scaled::Weights, ..of(DType::U1) },
        // Signed integers of 3 bits, and unsigned ones of 5 and 6.
        WeightsConfig { part: 128, upper: Some(DType::I1), ..of(DType::U2) },
        WeightsConfig { group: Some(64), zeros: true, upper: Some(DType::U1), ..of(DType::U4) },
        WeightsConfig {
            group: None,
            bk: 256,
            part: 128,
            upper: Some(DType::U2),
            dtype: DType::BF16,
            ..of(DType::U4)
        },
        // Activations of 8 bits.
        WeightsConfig { activations: Some(DType::E4M3), ..small },
        WeightsConfig { activations: Some(DType::E4M3), group: None, ..of(DType::U4) },
        WeightsConfig {
            activations: Some(DType::E4M3),
            group: Some(32),
            part: 32,
            scale: Some(DType::UE8M0),
            ..block
        },
        WeightsConfig { activations: Some(DType::I8), dtype: DType::BF16, ..small },
        WeightsConfig { activations: Some(DType::I8), dtype: DType::BF16, group: None, ..of(DType::I8) },
        WeightsConfig {
            activations: Some(DType::I8),
            dtype: DType::BF16,
            part: 128,
            group: Some(128),
            ..of(DType::I2)
        },
    ]
}

/// Configurations in which everything that there is to choose is chosen differently once.
fn configs() -> Vec<WeightsConfig> {
    let small = small();
    let whole = WeightsConfig { schedule: Schedule::DataParallel, sm_count: 4, ..small };
    vec![
        WeightsConfig { sm_count: 5, bn: 8, bk: 64, ..small },
        WeightsConfig { bk: 256, group: Some(64), bn: 24, ..small },
        WeightsConfig { group: Some(64), bk: 192, ..small },
        WeightsConfig { bm: 128, warpgroups: 2, cluster: Cluster::AlongN(2), sm_count: 4, ..small },
        WeightsConfig { bm: 256, warpgroups: 2, bn: 8, ..small },
        whole,
        WeightsConfig { overlap_epilogue: true, chunk: Some(8), bn: 32, buffers: 2, ..whole },
        WeightsConfig { cluster: Cluster::AlongK(2), ..whole },
        WeightsConfig { bm: 128, warpgroups: 2, cluster: Cluster::AlongM(2), ..whole },
        WeightsConfig { scaled: Scaled::Weights, bn: 64, bk: 64, ..whole },
        WeightsConfig { epilogue: "alpha+bias+silu".parse().unwrap(), scaled: Scaled::Weights, ..whole },
        WeightsConfig { instruction: Instruction::Mma, bm: 256, warpgroups: 2, bn: 8, ..small },
        WeightsConfig { instruction: Instruction::Mma, cluster: Cluster::AlongK(2), bn: 24, ..whole },
        WeightsConfig { dependent: true, ahead: true, zeros: true, weights: DType::U4, ..small },
        WeightsConfig { dependent: true, ahead: true, instruction: Instruction::Mma, bn: 8, ..whole },
        WeightsConfig { blocks: 2, instruction: Instruction::Mma, bn: 8, ..whole },
    ]
}

/// Configurations that are the fastest, or may be.
fn wide() -> Vec<WeightsConfig> {
    let few = WeightsConfig { sm_count: 132, ..WeightsConfig::default() };
    let many = WeightsConfig {
        schedule: Schedule::DataParallel,
        scaled: Scaled::Weights,
        bn: 256,
        bk: 128,
        stages: 3,
        chunk: Some(32),
        ..few
    };
    vec![
        few,
        WeightsConfig { bn: 8, stages: 16, ..few },
        WeightsConfig { bm: 256, warpgroups: 4, math_registers: 112, stages: 8, ..few },
        WeightsConfig {
            instruction: Instruction::Mma,
            bn: 8,
            bm: 256,
            warpgroups: 4,
            math_registers: 112,
            stages: 4,
            ..few
        },
        WeightsConfig { schedule: Schedule::DataParallel, cluster: Cluster::AlongK(4), stages: 8, ..few },
        WeightsConfig { bn: 64, stages: 8, cluster: Cluster::AlongN(2), ..few },
        many,
        WeightsConfig { bm: 256, bn: 128, stages: 3, ..many },
        WeightsConfig { bn: 192, overlap_epilogue: true, ..many },
    ]
}

#[test]
fn every_format_is_right_at_edges() {
    for (config, size) in crossed(formats(), gemm_weights::edge_sizes, 6) {
        if config.epilogue.is_empty() {
            check(&config, size, &[size[2] as u64]);
        }
    }
}

/// The same by instructions of a warp.
#[test]
fn every_format_is_right_at_edges_where_warps_multiply() {
    let by_warps = |config| WeightsConfig { instruction: Instruction::Mma, bn: 8, ..config };
    for (config, size) in crossed(formats().into_iter().map(by_warps), gemm_weights::edge_sizes, 6) {
        check(&config, size, &[size[2] as u64]);
    }
}

#[test]
fn every_configuration_is_right_at_edges() {
    let plain = configs().into_iter().filter(|config| config.epilogue.is_empty());
    for (config, size) in crossed(plain, gemm_weights::edge_sizes, 3) {
        check(&config, size, &[size[2] as u64]);
    }
}

/// Option sets by chance, those among them that are valid: every format with every way to share out a tile.
#[test]
fn option_sets_by_chance_are_right() {
    let mut rng = ChaCha8Rng::seed_from_u64(22);
    let wanted = if nightly() { 200 } else { 6 };
    let mut found = 0;
    while found < wanted {
        let config = chance(&mut rng);
        if config.validate().is_err() {
            continue;
        }
        found += 1;
        let [m, n, k] = [40, 300, 700].map(|most| rng.random_range(1..=most));
        check(&config, [m, n, k], &[found as u64]);
    }
}

/// Options by chance.
fn chance(rng: &mut ChaCha8Rng) -> WeightsConfig {
    let mut of = |choices: usize| rng.random_range(0..choices);
    let warpgroups = [1, 1, 2][of(3)];
    let cluster =
        [Cluster::None, Cluster::None, Cluster::AlongN(2), Cluster::AlongM(2), Cluster::AlongK(2)][of(5)];
    let bk = [32, 64, 128, 256][of(4)];
    let activations = [None, None, None, Some(DType::E4M3), Some(DType::I8)][of(5)];
    let weights = WeightsConfig::WEIGHTS[of(WeightsConfig::WEIGHTS.len())];
    // Products of bytes, and of integers of 16 bits, are beyond the range of f16.
    let large = activations == Some(DType::I8) || weights == DType::I16;
    WeightsConfig {
        dtype: if large { DType::BF16 } else { [DType::F16, DType::BF16][of(2)] },
        activations,
        weights,
        upper: [None, None, Some(DType::U1), Some(DType::I2)][of(4)],
        scale: [None, Some(DType::F32), Some(DType::UE8M0), Some(DType::UE4M3)][of(4)],
        group: [None, Some(16), Some(32), Some(64), Some(128)][of(5)],
        zeros: of(3) == 0,
        scaled: [Scaled::Sums, Scaled::Weights][of(2)],
        instruction: Instruction::ALL[of(3)],
        bm: 64 * warpgroups * [1, 1, 2][of(3)],
        bn: [8, 16, 24, 32][of(4)],
        bk,
        part: bk / [1, 2, 4][of(3)],
        stages: [2, 3, 4][of(3)],
        warpgroups,
        cluster,
        schedule: [Schedule::StreamK, Schedule::DataParallel][of(2)],
        sm_count: 2 * [1, 2, 3][of(3)],
        ..WeightsConfig::default()
    }
}

#[test]
fn it_computes_the_same_whatever_the_order_of_events() {
    let small = small();
    let seeds: Vec<u64> = (1..=if nightly() { 50 } else { 5 }).collect();
    for config in [
        small,
        WeightsConfig { sm_count: 5, zeros: true, weights: DType::U4, ..small },
        WeightsConfig { scaled: Scaled::Weights, schedule: Schedule::DataParallel, ..small },
        WeightsConfig { instruction: Instruction::Mma, ..small },
    ] {
        check(&config, [20, 200, 640], &seeds);
    }
}

/// The kernel that repacks weights writes what the host function does, of every type and size.
#[test]
fn weights_are_repacked_by_a_kernel_as_on_the_host() {
    let all = WeightsConfig::WEIGHTS.map(|weights| RepackConfig { weights, ..RepackConfig::default() });
    let narrow = RepackConfig { activations: Some(DType::E4M3), units: 2, ..RepackConfig::default() };
    let others = [
        narrow,
        RepackConfig { weights: DType::E2M1, group: Some(16), units: 4, ..RepackConfig::default() },
        RepackConfig { weights: DType::U2, group: None, ..RepackConfig::default() },
    ];
    for (i, config) in all.into_iter().chain(others).enumerate() {
        let (n, k) = if i % 2 == 0 { (200, 392) } else { (64, 512) };
        let mut rng = ChaCha8Rng::seed_from_u64(i as u64);
        let x = random(&mut rng, config.weights, n * k);
        let packed = config.stored().pack(&x, [n as usize, k as usize], 0.0);
        let program = config.program().unwrap();
        let launch =
            Launch { programs: std::slice::from_ref(&program), sizes: &[("n", n), ("k", k)], scalars: &[] };
        let given = Tensors::from([("x".to_string(), x)]);
        let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[1], &given);
        assert_eq!(simulated["w"], packed, "{config:?}");
        assert_eq!(interpreted["w"], packed, "{config:?}");
    }
}

/// A thread's loads of weights are as wide as a unit, without bank conflicts, and everything is copied by tensor maps.
#[test]
fn weights_are_loaded_as_they_are_stored() {
    for config in wide() {
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [64, 4096, 4096]);
        let report = kernel.explanation.to_string();
        assert!(!report.contains("not tma"), "{config:?}: {report}");
        assert!(report.contains("× ld.shared.v4.b32, 16-byte shared accesses, 0 bank conflicts"), "{report}");
        assert!(!report.contains("exchange"), "{config:?}: {report}");
    }
    let report = check(&small(), [16, 128, 512], &[3]);
    assert_eq!(report.shared_conflicts, 0);
}

/// The pair of a register comes from places that are half a word apart, where a cast takes the fewest instructions: of eight elements in every
/// order of the fragment's modes, none takes fewer.
#[test]
fn the_order_of_a_word_takes_the_fewest_instructions_to_cast() {
    // Value i of the fragment: pairs along k, then rows, then columns 8 apart; each mode's place in a word of eight.
    let calls = |places: [u32; 3], weights: DType| {
        let order = (0..8u32).map(|i| (0..3).map(|mode| (i >> mode & 1) * places[mode]).sum::<u32>());
        cast::plan_in_order(weights, DType::F16, Arch::SM_90A, &order.collect::<Vec<_>>()).unwrap().calls()
    };
    for weights in [DType::I4, DType::U4, DType::E2M1] {
        let chosen = calls([4, 1, 2], weights);
        for places in [[1, 2, 4], [1, 4, 2], [2, 1, 4], [2, 4, 1], [4, 2, 1]] {
            assert!(chosen <= calls(places, weights), "{weights}: {places:?}");
        }
    }
}

#[test]
fn ptxas_needs_no_spills() {
    let Some(ptxas) = ptxas() else { return };
    for (i, config) in formats().into_iter().chain(configs()).chain(wide()).enumerate() {
        if !in_turn(i, 2) {
            continue;
        }
        let kernel = kernel_for(&config.program().unwrap(), Arch::SM_90A, [4096, 4096, 8192]);
        let name = format!("gemm_weights_{i}");
        assert_eq!(assemble(&ptxas, &name, &kernel, Arch::SM_90A), 0, "{config:?} spills");
    }
}

#[test]
fn programs_print_and_parse_back() {
    for config in formats().into_iter().chain(configs()).chain(wide()) {
        let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
        assert_eq!(parse(&program.to_string()).unwrap(), program, "{config:?}");
    }
}

#[test]
fn mistakes_name_the_field_and_what_would_be_right() {
    let says = |config: WeightsConfig, field: &str, text: &str| match config.program() {
        Err(ConfigError::Value { field: actual, wanted, .. }) => {
            assert_eq!(actual, field, "{config:?}");
            assert!(wanted.contains(text), "{config:?}: {wanted}");
        }
        other => panic!("{config:?}: {other:?}"),
    };
    let default = WeightsConfig::default();
    says(WeightsConfig { dtype: DType::F32, ..default }, "dtype", "f16 or bf16");
    says(WeightsConfig { weights: DType::F16, ..default }, "weights", "i4, u4, e2m1");
    says(WeightsConfig { activations: Some(DType::E5M2), ..default }, "activations", "same, e4m3 or i8");
    let narrow = WeightsConfig { activations: Some(DType::I8), ..default };
    says(WeightsConfig { weights: DType::E2M1, ..narrow }, "weights", "i2 or u2 with activations of i8");
    says(WeightsConfig { scaled: Scaled::Weights, ..narrow }, "scaled", "must be sums");
    says(WeightsConfig { zeros: true, ..narrow }, "zeros", "must be false");
    says(WeightsConfig { weights: DType::U4, upper: Some(DType::U1), ..narrow }, "upper", "must be none");
    says(WeightsConfig { upper: Some(DType::U1), ..default }, "upper", "u4, u2 or u1");
    says(WeightsConfig { upper: Some(DType::U4), ..default }, "upper", "u1, i1, u2 or i2");
    says(WeightsConfig { weights: DType::I1, group: Some(32), ..default }, "group", "from 64");
    says(WeightsConfig { scale: Some(DType::I8), ..default }, "scale", "f32, ue8m0 or ue4m3");
    says(WeightsConfig { weights: DType::E2M1, zeros: true, ..default }, "zeros", "must be false");
    says(WeightsConfig { group: Some(96), ..default }, "group", "power of two from 16");
    says(WeightsConfig { weights: DType::U2, group: Some(16), ..default }, "group", "from 32");
    says(WeightsConfig { part: 32, ..default }, "part", "multiple of 64");
    says(WeightsConfig { group: Some(32), ..default }, "part", "divide a group of 32");
    says(WeightsConfig { bk: 96, ..default }, "bk", "multiple of 64");
    says(WeightsConfig { bk: 192, ..default }, "bk", "group of 128");
    says(WeightsConfig { bm: 64, ..default }, "bm", "64 for each of 2");
    says(WeightsConfig { stages: 32, ..default }, "stages", "fewer stages");
    says(WeightsConfig { bn: 256, stages: 2, ..default }, "bn", "registers of a thread");
    let spread = WeightsConfig { bm: 256, bn: 128, bk: 256, stages: 2, chunk: Some(8), ..default };
    says(WeightsConfig { scaled: Scaled::Weights, ..spread }, "bn", "registers of a thread");
    says(WeightsConfig { cluster: Cluster::AlongK(2), ..default }, "schedule", "share a tile already");
    says(WeightsConfig { cluster: Cluster::AlongM(4), bm: 128, ..default }, "cluster", "2 units");
    says(WeightsConfig { blocks: 5, ..default }, "blocks", "from 1 to 4");
    let shared = WeightsConfig { blocks: 2, warpgroups: 1, bm: 64, ..default };
    says(WeightsConfig { bk: 256, ..shared }, "stages", "fewer stages");
    says(
        WeightsConfig { blocks: 3, bm: 128, bn: 64, stages: 2, scaled: Scaled::Weights, ..shared },
        "bn",
        "registers of a thread",
    );
    says(WeightsConfig { ahead: true, ..default }, "ahead", "unless dependent is true");
    let early = WeightsConfig { dependent: true, ahead: true, batch: Batch::Grouped, ..default };
    says(WeightsConfig { schedule: Schedule::DataParallel, ..early }, "ahead", "tables");
    says(WeightsConfig { epilogue: "row_sums".parse().unwrap(), ..default }, "epilogue", "alpha, row_scale");
    assert!(default.reject(Arch::SM_80).is_some_and(|reason| reason.contains("sm_90a")));
    let named = |given: &[(&str, &str)]| (operator("gemm_weights").unwrap().programs)(given);
    for (given, text) in [
        (("weights", "u16"), "must be i4, u4"),
        (("scale", "e5m2"), "must be f32, ue8m0"),
        (("scaled", "products"), "sums or weights"),
        (("instruction", "mma.sync"), "wgmma, mma or tcgen05"),
        (("group", "row"), "an integer"),
    ] {
        let error = named(&[given]).unwrap_err().to_string();
        assert!(error.contains(text), "{given:?}: {error}");
    }
    let given = [("weights", "e2m1"), ("scale", "ue8m0"), ("group", "32"), ("part", "32"), ("bn", "8")];
    let same = WeightsConfig {
        weights: DType::E2M1,
        scale: Some(DType::UE8M0),
        group: Some(32),
        part: 32,
        bn: 8,
        ..default
    };
    assert_eq!(named(&given).unwrap(), vec![same.program().unwrap()]);
}

#[test]
fn the_space_compiles() {
    let default = WeightsConfig::default();
    for sizes in [[1, 4096, 4096], [64, 28672, 4096], [4096, 4096, 4096]] {
        let all: Vec<WeightsConfig> = default.space(Arch::SM_90A, sizes).collect();
        assert!(all.len() >= 30, "{sizes:?}: {}", all.len());
        let step = if nightly() { 1 } else { (all.len() / 8).max(1) };
        for config in all.iter().step_by(step) {
            kernel_for(&config.program().unwrap(), Arch::SM_90A, sizes);
        }
    }
    assert_eq!(default.space(Arch::SM_80, [16, 4096, 4096]).count(), 0);
    let best = |m: i64| {
        let estimate = |c: &WeightsConfig| c.estimate(m, 28672, 4096);
        let space = default.space(Arch::SM_90A, [m, 28672, 4096]);
        space.min_by(|a, b| estimate(a).total_cmp(&estimate(b))).unwrap()
    };
    // Few rows want narrow tiles, many rows wide ones.
    assert!(best(1).bn <= 16 && best(4096).bn >= 64, "{:?} {:?}", best(1), best(4096));
}
