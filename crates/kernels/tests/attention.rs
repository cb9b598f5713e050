//! `attention`: heads, masks and forms at edge sizes in all executions, against plain loops in f64; what is refused; registers of what is
//! assembled.

mod common;

use common::{Launch, Tensors, absolute, assemble, close, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{AttentionConfig, AttentionSizes, Mask, Modes, edge_sizes, reference};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};

/// Interpreter, simulator and plain loops agree; scores are large enough for the reference maximum to move.
fn check(config: &AttentionConfig, sizes: &AttentionSizes, seeds: &[u64]) {
    let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
    let mut rng = ChaCha8Rng::seed_from_u64((sq * 7 + sk * 3 + config.d) as u64);
    let mut draw = |len: i64, factor: f64| -> Vec<f64> {
        let values = random(&mut rng, config.dtype, len);
        values.iter().map(|x| config.dtype.decode(config.dtype.encode(x * factor))).collect()
    };
    let (q, k) = (draw(b * sq * hq * config.d, 8.0), draw(b * sk * hk * config.d, 1.0));
    let v = draw(b * sk * hk * config.values(), 1.0);
    // The scalars as f32 has them.
    let (scale, cap) = (f64::from(1.25 / (config.d as f32).sqrt()), 5.0);
    let (o, lse) = reference(config, sizes, (&q, &k, &v), (scale, cap));
    let (weighed, _) = reference(config, sizes, (&q, &k, &absolute(&v)), (scale, cap));
    // Weights are rounded to the type of v, results once more.
    let epsilon = config.dtype.epsilon();
    let bound: Vec<f64> = o
        .iter()
        .zip(&weighed)
        .map(|(o, all)| all * (2.0 * epsilon + 1e-4) + o.abs() * epsilon + 1e-6)
        .collect();
    let given: Tensors =
        [("q", q), ("k", k), ("v", v)].map(|(name, values)| (name.to_string(), values)).into();
    let program = config.program().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let launch = Launch {
        programs: std::slice::from_ref(&program),
        sizes: &[("b", b), ("hq", hq), ("hk", hk), ("sq", sq), ("sk", sk)],
        scalars: if config.softcap { &[("scale", scale), ("cap", cap)] } else { &[("scale", scale)] },
    };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, seeds, &given);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {sizes:?} of {config:?}");
        close(&at, &results["o"], &o, &bound);
        if config.lse {
            for (i, (found, wanted)) in results["lse"].iter().zip(&lse).enumerate() {
                let right = found == wanted || (found - wanted).abs() < 2e-4 * (1.0 + wanted.abs());
                assert!(right, "{at}, lse {i}: {found}, not {wanted}");
            }
        }
    }
}

fn configs() -> Vec<AttentionConfig> {
    let small = AttentionConfig { d: 64, bn: 48, warpgroups: 2, ..AttentionConfig::default() };
    vec![
        AttentionConfig { lse: true, ..small },
        AttentionConfig { mask: Mask::Causal, lse: true, modes: Modes::Bhsd, ..small },
        AttentionConfig { mask: Mask::Window(37), softcap: true, dtype: DType::BF16, ..small },
        AttentionConfig { persistent: true, sm_count: 2, modes: Modes::Bhsd, warpgroups: 1, ..small },
        AttentionConfig {
            persistent: true,
            sm_count: 3,
            mask: Mask::Causal,
            warpgroups: 1,
            lse: true,
            ..small
        },
        AttentionConfig { d: 96, dv: Some(32), mask: Mask::Causal, warpgroups: 1, stages: 1, ..small },
    ]
}

#[test]
fn attention_is_right_at_edges() {
    for config in configs() {
        for sizes in edge_sizes(&config) {
            check(&config, &sizes, &[sizes.sk as u64]);
        }
    }
}

#[test]
fn heads_of_every_size_are_right() {
    let heads = [(16, 16, 3, 96), (80, 80, 3, 80), (128, 128, 3, 80), (192, 128, 2, 96), (256, 256, 2, 80)];
    for (d, dv, warpgroups, bn) in heads {
        let config =
            AttentionConfig { d, dv: Some(dv), warpgroups, bn, mask: Mask::Causal, ..Default::default() };
        check(&config, &AttentionSizes { b: 1, hq: 2, hk: 1, sq: 70, sk: 100 }, &[1, 2]);
    }
}

#[test]
fn attention_is_assembled_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let forms = [
        AttentionConfig::default(),
        AttentionConfig { persistent: true, ..Default::default() },
        AttentionConfig { mask: Mask::Causal, lse: true, ..Default::default() },
        AttentionConfig { mask: Mask::Causal, warpgroups: 2, bn: 128, ..Default::default() },
        AttentionConfig { d: 64, bn: 128, persistent: true, ..Default::default() },
        AttentionConfig { d: 256, warpgroups: 2, mask: Mask::Window(1024), ..Default::default() },
    ];
    for (i, config) in forms.iter().enumerate() {
        let program = config.program().unwrap();
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        let kernel = compile(&program, &Options::new(Arch::SM_90A).for_sizes(&program, &sizes)).unwrap();
        assert_eq!(assemble(&ptxas, &format!("attention_{i}"), &kernel, Arch::SM_90A), 0, "{config:?}");
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |name: &str, value: &str| {
        let made = (operator("attention").unwrap().programs)(&[(name, value)]);
        match made.unwrap_err() {
            ConfigError::Value { field, wanted, .. } => format!("{field}: {wanted}"),
            other => panic!("{other}"),
        }
    };
    assert_eq!(refused("mask", "diagonal"), "mask: must be none, causal or window(KEYS)");
    assert_eq!(refused("mask", "window(0)"), "mask: must have a window of 1 to 2^30 keys");
    assert_eq!(refused("d", "72"), "d: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused("dv", "0"), "dv: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused("modes", "hbsd"), "modes: must be bshd or bhsd");
    assert_eq!(refused("warpgroups", "4"), "warpgroups: must be 1 to 3");
    assert_eq!(refused("bn", "40"), "bn: must be a multiple of 16 from 16 to 256");
    let many = "bn: needs 194 registers of a thread, which has 160: choose fewer keys, or two warpgroups";
    assert_eq!(refused("bn", "144"), many);
    let deep =
        "stages: needs 377856 bytes of shared memory, and a block has 232448: choose fewer stages or keys";
    assert_eq!(refused("stages", "8"), deep);
}
