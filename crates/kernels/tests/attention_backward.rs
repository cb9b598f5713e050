//! `attention_backward`: heads, masks and forms at edge sizes in interpreter and simulator, against plain loops in f64; what is refused;
//! registers of what is assembled.

mod common;

use common::{Launch, Tensors, assemble, close, ptxas, random};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{AttentionSizes, Mask, Modes};
use tilewright_kernels::attention_backward::{
    AttentionBackwardConfig, Given, Gradients, edge_sizes, reference,
};
use tilewright_kernels::{ConfigError, attention, operator};
use tilewright_machine::{Arch, DType};

/// Interpreter, simulator and plain loops agree.
fn check(config: &AttentionBackwardConfig, sizes: &AttentionSizes, seed: u64) {
    let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
    let (dtype, d, dv) = (config.dtype, config.d, config.values());
    let mut rng = ChaCha8Rng::seed_from_u64((sq * 7 + sk * 3 + d) as u64);
    let mut draw = |len: i64, factor: f64| -> Vec<f64> {
        let values = random(&mut rng, dtype, len);
        values.iter().map(|x| dtype.decode(dtype.encode(x * factor))).collect()
    };
    let (q, k) = (draw(b * sq * hq * d, 4.0), draw(b * sk * hk * d, 1.0));
    let (v, dout) = (draw(b * sk * hk * dv, 1.0), draw(b * sq * hq * dv, 1.0));
    // The scalars as f32 has them.
    let (scale, cap) = (f64::from(1.25 / (d as f32).sqrt()), 5.0);
    let inputs = attention::Inputs { q: &q, k: &k, v: &v, scale, cap, ..Default::default() };
    let (o, lse) = attention::reference(&config.forward(), sizes, &inputs).unwrap();
    let rounded = |x: &f64| dtype.decode(dtype.encode(*x));
    let o: Vec<f64> = o.iter().map(rounded).collect();
    let given = Given { q: &q, k: &k, v: &v, dout: &dout, scale, cap };
    let wanted = reference(config, sizes, &given);
    let tensors: Tensors = [("q", &q), ("k", &k), ("v", &v), ("o", &o), ("dout", &dout), ("lse", &lse)]
        .map(|(name, values)| (name.to_string(), values.clone()))
        .into();
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let launch = Launch {
        programs: &programs,
        sizes: &[("b", b), ("hq", hq), ("hk", hk), ("sq", sq), ("sk", sk)],
        scalars: if config.softcap { &[("scale", scale), ("cap", cap)] } else { &[("scale", scale)] },
    };
    let (simulated, interpreted, _) = launch.run(Arch::SM_90A, &[seed], &tensors);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        compare(&format!("{who} at {sizes:?} of {config:?}"), &results, &wanted, dtype);
    }
}

/// Weights, their gradients and o are rounded to the type, each result once more; 2e-4 is for exponentials and sums in f32.
fn compare(at: &str, results: &Tensors, wanted: &Gradients, dtype: DType) {
    let epsilon = dtype.epsilon();
    let bound = |sums: &[f64], magnitudes: &[f64]| -> Vec<f64> {
        let each = |(sum, all): (&f64, &f64)| all * (epsilon + 2e-4) + sum.abs() * epsilon + 1e-5;
        sums.iter().zip(magnitudes).map(each).collect()
    };
    close(&format!("dq, {at}"), &results["dq"], &wanted.dq, &bound(&wanted.dq, &wanted.dq_magnitudes));
    close(&format!("dk, {at}"), &results["dk"], &wanted.dk, &bound(&wanted.dk, &wanted.dk_magnitudes));
    close(&format!("dv, {at}"), &results["dv"], &wanted.dv, &bound(&wanted.dv, &wanted.dv_magnitudes));
}

fn configs() -> Vec<AttentionBackwardConfig> {
    let small =
        AttentionBackwardConfig { d: 64, bm: Some(48), warpgroups: 1, ..AttentionBackwardConfig::default() };
    vec![
        AttentionBackwardConfig { stagger: 1, ..small },
        AttentionBackwardConfig {
            mask: Mask::Causal,
            modes: Modes::Bhsd,
            keys_in_registers: true,
            overlap: true,
            ..small
        },
        AttentionBackwardConfig { mask: Mask::Window(37), softcap: true, dtype: DType::BF16, ..small },
        AttentionBackwardConfig { mask: Mask::Causal, bm: Some(64), bulk: true, stages: 1, ..small },
        AttentionBackwardConfig { mask: Mask::Causal, deterministic: true, modes: Modes::Bhsd, ..small },
        AttentionBackwardConfig { mask: Mask::Window(50), deterministic: true, softcap: true, ..small },
    ]
}

#[test]
fn gradients_are_right_at_edges() {
    for config in configs() {
        for sizes in edge_sizes(&config) {
            check(&config, &sizes, sizes.sk as u64);
        }
    }
}

#[test]
fn heads_of_every_size_are_right() {
    for (d, dv) in [(16, 16), (96, 32), (128, 128), (192, 128)] {
        let mask = Mask::Causal;
        let config =
            AttentionBackwardConfig { d, dv: Some(dv), mask, deterministic: d > 128, ..Default::default() };
        check(&config, &AttentionSizes { b: 1, hq: 2, hk: 1, sq: 70, sk: 140 }, 1);
    }
    check(&AttentionBackwardConfig::default(), &AttentionSizes { b: 1, hq: 1, hk: 1, sq: 90, sk: 130 }, 2);
}

#[test]
fn deterministic_gradients_repeat_bit_by_bit() {
    // Sums in f32 in the order of the blocks that add: `Launch::run` compares seeds, which differ in that order.
    let config = AttentionBackwardConfig {
        deterministic: true,
        d: 16,
        bm: Some(16),
        warpgroups: 1,
        ..Default::default()
    };
    let sizes = AttentionSizes { b: 1, hq: 1, hk: 1, sq: 40, sk: 200 };
    let programs = config.programs().unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let mut draw = |len: i64| random(&mut rng, config.dtype, len);
    let tensors: Tensors =
        [("q", 40 * 16), ("k", 200 * 16), ("v", 200 * 16), ("o", 40 * 16), ("dout", 40 * 16), ("lse", 40)]
            .map(|(name, len)| (name.to_string(), draw(len)))
            .into();
    let AttentionSizes { b, hq, hk, sq, sk } = sizes;
    let launch = Launch {
        programs: &programs,
        sizes: &[("b", b), ("hq", hq), ("hk", hk), ("sq", sq), ("sk", sk)],
        scalars: &[],
    };
    launch.run(Arch::SM_90A, &[1, 2, 3], &tensors);
}

#[test]
fn gradients_are_assembled_without_spills() {
    let Some(ptxas) = ptxas() else { return };
    let plain = AttentionBackwardConfig::default();
    let causal = AttentionBackwardConfig { mask: Mask::Causal, ..plain };
    let forms = [
        plain,
        causal,
        AttentionBackwardConfig { bm: Some(64), overlap: true, ..plain },
        AttentionBackwardConfig { bm: Some(64), bulk: true, ..plain },
        AttentionBackwardConfig { d: 64, ..plain },
        AttentionBackwardConfig { d: 64, bm: Some(96), keys_in_registers: true, ..causal },
        AttentionBackwardConfig { d: 96, mask: Mask::Window(1024), ..plain },
        AttentionBackwardConfig { d: 192, dv: Some(128), deterministic: true, ..causal },
        AttentionBackwardConfig { softcap: true, ..causal },
        AttentionBackwardConfig { deterministic: true, ..causal },
    ];
    for (i, config) in forms.iter().enumerate() {
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        for (j, program) in config.programs().unwrap().iter().enumerate() {
            let kernel = compile(program, &Options::new(Arch::SM_90A).for_sizes(program, &sizes)).unwrap();
            let name = format!("attention_backward_{i}_{j}");
            assert_eq!(assemble(&ptxas, &name, &kernel, Arch::SM_90A), 0, "{config:?}");
        }
    }
}

#[test]
fn values_out_of_range_are_refused() {
    let refused = |given: &[(&str, &str)]| {
        let made = (operator("attention_backward").unwrap().programs)(given);
        match made.unwrap_err() {
            ConfigError::Value { field, wanted, .. } => format!("{field}: {wanted}"),
            other => panic!("{other}"),
        }
    };
    let head = "must be a multiple of 16 from 16 to 192";
    assert_eq!(refused(&[("mask", "diagonal")]), "mask: must be none, causal or window(KEYS)");
    assert_eq!(refused(&[("mask", "window(0)")]), "mask: must have a window of 1 to 2^30 keys");
    assert_eq!(refused(&[("d", "256")]), format!("d: {head}"));
    assert_eq!(refused(&[("dv", "72")]), format!("dv: {head}"));
    let long =
        "dv: must be at most 128 with d = 192: a thread keeps half as many sums of dk and dv as d + dv";
    assert_eq!(refused(&[("d", "192")]), long);
    assert_eq!(refused(&[("warpgroups", "4")]), "warpgroups: must be 1 to 3");
    assert_eq!(refused(&[("stagger", "-1")]), "stagger: must be 0 to 1024");
    assert_eq!(refused(&[("bm", "72")]), "bm: must be a multiple of 16 from 16 to 256, or widest");
    let many = "bm: needs 258 registers of a thread, which has 240: choose fewer queries or smaller heads";
    assert_eq!(refused(&[("bm", "96")]), many);
    let rows =
        "bm: must be a multiple of 64, as d = 96 is none: dq or its transpose has rows in groups of 64";
    assert_eq!(refused(&[("d", "96"), ("bm", "80")]), rows);
    let shared = "bm: must be a multiple of 24 for 3 warpgroups to share dq";
    assert_eq!(refused(&[("d", "64"), ("bm", "32"), ("warpgroups", "3")]), shared);
    let deep =
        "stages: needs 440320 bytes of shared memory, and a block has 232448: choose fewer stages or queries";
    assert_eq!(refused(&[("bm", "80"), ("stages", "8")]), deep);
}
