//! `attention_backward`: heads, masks and forms at edge sizes in interpreter and simulator, against plain loops in f64; what is refused;
//! registers of what is assembled.

use crate::common::attention::{Drawn, Problem, begins, sweep};
use crate::common::{Launch, Tensors, assemble, close, in_turn, ptxas, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{AttentionSizes, Expression, Inputs, Mask, Modes, Scalars};
use tilewright_kernels::attention_backward::{
    AttentionBackwardConfig, Given, Gradients, edge_sizes, reference,
};
use tilewright_kernels::{ConfigError, attention, operator};
use tilewright_machine::{Arch, DType};

fn check(config: &AttentionBackwardConfig, sizes: &AttentionSizes, seed: u64) {
    check_with(config, sizes, &Problem { bias: [1, 1], ..Problem::default() }, seed);
}

/// Interpreter, simulator and plain loops agree.
fn check_with(config: &AttentionBackwardConfig, sizes: &AttentionSizes, problem: &Problem<'_>, seed: u64) {
    let (dtype, forward) = (config.dtype, config.forward());
    let drawn = Drawn::new(&forward, sizes, problem, 4.0);
    let inputs = drawn.inputs(problem);
    let (o, lse) = attention::reference(&forward, sizes, &inputs).unwrap();
    let o: Vec<f64> = o.iter().map(|x| dtype.decode(dtype.encode(*x))).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(o.len() as u64);
    let dout = random(&mut rng, dtype, o.len() as i64);
    let wanted = reference(config, sizes, &Given { forward: inputs, dout: &dout }).unwrap();
    let mut tensors = drawn.tensors(&forward);
    tensors.extend([("o", o), ("dout", dout), ("lse", lse)].map(|(name, values)| (name.to_string(), values)));
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let (named, scalars) = (drawn.sizes(&forward, sizes), drawn.scalars(problem));
    let launch = Launch { programs: &programs, sizes: &named, scalars: &scalars };
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
        AttentionBackwardConfig { stagger: 1, ..small.clone() },
        AttentionBackwardConfig {
            mask: Mask::Causal,
            modes: Modes::Bhsd,
            keys_in_registers: true,
            overlap: true,
            ..small.clone()
        },
        AttentionBackwardConfig {
            mask: Mask::Window(37),
            softcap: true,
            dtype: DType::BF16,
            ..small.clone()
        },
        AttentionBackwardConfig { mask: Mask::Causal, bm: Some(64), bulk: true, stages: 1, ..small.clone() },
        AttentionBackwardConfig {
            mask: Mask::Causal,
            deterministic: true,
            modes: Modes::Bhsd,
            ..small.clone()
        },
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

fn small() -> AttentionBackwardConfig {
    AttentionBackwardConfig { d: 64, bm: Some(48), warpgroups: 1, ..AttentionBackwardConfig::default() }
}

#[test]
fn sequences_of_their_own_lengths_are_right() {
    let lengths = [[70, 70], [1, 130], [0, 5], [64, 0], [0, 0], [90, 48], [3, 3]];
    let sizes = AttentionSizes { b: 7, hq: 2, hk: 1, sq: 90, sk: 130 };
    let problem = Problem { lengths: &lengths, ..Problem::default() };
    let varlen = AttentionBackwardConfig { varlen: true, ..small() };
    for config in [
        varlen.clone(),
        AttentionBackwardConfig { mask: Mask::Causal, stagger: 1, dtype: DType::BF16, ..varlen.clone() },
        AttentionBackwardConfig {
            mask: Mask::Window(40),
            bulk: true,
            bm: Some(64),
            softcap: true,
            ..varlen.clone()
        },
        AttentionBackwardConfig {
            mask: Mask::Causal,
            d: 96,
            bm: Some(64),
            dv: Some(32),
            warpgroups: 2,
            ..varlen.clone()
        },
        AttentionBackwardConfig { deterministic: true, ..varlen.clone() },
        AttentionBackwardConfig { deterministic: true, mask: Mask::Window(40), ..varlen },
    ] {
        check_with(&config, &sizes, &problem, 3);
    }
}

#[test]
fn what_is_added_to_scores_is_right() {
    let sizes = AttentionSizes { b: 2, hq: 4, hk: 2, sq: 70, sk: 100 };
    let plain = small();
    let deterministic = AttentionBackwardConfig { deterministic: true, ..plain.clone() };
    for (config, bias) in [
        (AttentionBackwardConfig { alibi: true, mask: Mask::Causal, ..plain.clone() }, [1, 1]),
        (
            AttentionBackwardConfig { sink: true, mask: Mask::Causal, dtype: DType::BF16, ..plain.clone() },
            [1, 1],
        ),
        (AttentionBackwardConfig { bias: true, softcap: true, ..plain.clone() }, [2, 4]),
        (
            AttentionBackwardConfig {
                bias: true,
                alibi: true,
                sink: true,
                modes: Modes::Bhsd,
                ..deterministic.clone()
            },
            [1, 4],
        ),
        (AttentionBackwardConfig { bias: true, mask: Mask::Window(50), ..deterministic }, [1, 1]),
        (AttentionBackwardConfig { bias: true, bulk: true, bm: Some(64), ..plain }, [2, 1]),
    ] {
        check_with(&config, &sizes, &Problem { bias, ..Problem::default() }, 5);
    }
}

#[test]
fn functions_of_a_users_own_are_right() {
    let expression = |text: &str| Some(Expression(text.to_string()));
    let sizes = AttentionSizes { b: 2, hq: 2, hk: 1, sq: 130, sk: 200 };
    let scalars = [("slant", 0.5), ("span", 40.0)];
    let problem = Problem { bias: [1, 1], scalars: &scalars, ..Problem::default() };
    let base = AttentionBackwardConfig {
        scalars: Scalars("slant: f32 = 0.25, span: i32 = 40".to_string()),
        ..small()
    };
    let deterministic = AttentionBackwardConfig { deterministic: true, ..base.clone() };
    for (base, attends, score, mask, softcap) in [
        // Blocks along the diagonal, a prefix that all see, what is dilated, and nothing at all for some.
        (&base, expression("i / span == j / 40"), None, Mask::None, false),
        (&base, expression("j < 20 or i / 32 == j / 32"), None, Mask::Causal, true),
        (
            &deterministic,
            expression("(i - j) % 3 == 0 and not (abs(i - j) > 60)"),
            expression("x * slant"),
            Mask::None,
            false,
        ),
        (
            &base,
            expression("h == 0 and j >= 100 - 10 * b"),
            expression("where(j < 5, -inf, x)"),
            Mask::None,
            false,
        ),
        (&base, None, expression("x - slant * float(i - j) + float(h)"), Mask::Causal, false),
        (&deterministic, None, expression("tanh(x / 4.0) * 4.0"), Mask::Window(33), true),
        (&base, None, expression("x + 0.1 * x * x"), Mask::Causal, true),
        (&base, None, expression("where(x > 0.5, x, 0.25 * x + 0.375)"), Mask::None, false),
    ] {
        check_with(
            &AttentionBackwardConfig { attends, score, mask, softcap, ..base.clone() },
            &sizes,
            &problem,
            7,
        );
    }
}

/// The plain loops themselves: their gradients are difference quotients of the pass forward.
#[test]
fn gradients_are_those_of_differences() {
    let expression = |text: &str| Some(Expression(text.to_string()));
    let config = AttentionBackwardConfig {
        d: 16,
        mask: Mask::Causal,
        attends: expression("(i + j) % 5 != 0"),
        score: expression("where(j < 2, x * 0.5, sin(x))"),
        softcap: true,
        alibi: true,
        sink: true,
        varlen: true,
        ..Default::default()
    };
    let lengths = [[5, 7], [0, 3], [4, 0], [3, 2]];
    let places = [0, 1].map(|which| begins(&lengths, which));
    let sizes = AttentionSizes { b: 4, hq: 2, hk: 1, sq: 5, sk: 7 };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut draw = |len: i64| random(&mut rng, DType::F32, len);
    let (q, k, v, dout) = (draw(12 * 2 * 16), draw(12 * 16), draw(12 * 16), draw(12 * 2 * 16));
    let inputs = Inputs {
        slopes: &[0.25, -0.5],
        sinks: &[0.5, -1.0],
        places: [&places[0], &places[1]],
        scale: 0.7,
        cap: 2.0,
        ..Default::default()
    };
    let forward = Inputs { q: &q, k: &k, v: &v, ..inputs };
    let found = reference(&config, &sizes, &Given { forward, dout: &dout }).unwrap();
    let loss = |q: &[f64], k: &[f64], v: &[f64]| -> f64 {
        let (o, _) = attention::reference(&config.forward(), &sizes, &Inputs { q, k, v, ..inputs }).unwrap();
        o.iter().zip(&dout).map(|(o, d)| o * d).sum()
    };
    let step = 1e-5;
    for (which, gradients) in [&found.dq, &found.dk, &found.dv].into_iter().enumerate() {
        for (at, found) in gradients.iter().enumerate().step_by(7) {
            let with = |by: f64| {
                let mut all = [q.clone(), k.clone(), v.clone()];
                all[which][at] += by;
                loss(&all[0], &all[1], &all[2])
            };
            let wanted = (with(step) - with(-step)) / (2.0 * step);
            assert!((found - wanted).abs() < 1e-6, "gradient {which}, element {at}: {found}, not {wanted}");
        }
    }
    assert!(found.dq.iter().any(|x| x.abs() > 0.01) && found.dk.iter().any(|x| x.abs() > 0.01));
}

/// A random choice of all options that go together.
fn random_config(rng: &mut ChaCha8Rng) -> AttentionBackwardConfig {
    fn pick<T: Clone>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
        from[rng.random_range(0..from.len())].clone()
    }
    let expression = |text: &str| Some(Expression(text.to_string()));
    loop {
        let mut one_in = |n: u32| rng.random_range(0..n) == 0;
        let (softcap, alibi, bias, sink) = (one_in(4), one_in(4), one_in(5), one_in(4));
        let (varlen, deterministic, bulk, overlap) = (one_in(3), one_in(3), one_in(4), one_in(4));
        let config = AttentionBackwardConfig {
            dtype: pick(rng, &[DType::F16, DType::BF16]),
            d: pick(rng, &[16, 32, 48, 64, 96, 128]),
            dv: pick(rng, &[None, None, Some(32), Some(64)]),
            mask: pick(rng, &[Mask::None, Mask::Causal, Mask::Window(1), Mask::Window(45)]),
            attends: pick(rng, &[None, None, expression("i / 40 == j / 40"), expression("(i + j) % 3 != h")]),
            score: pick(
                rng,
                &[
                    None,
                    None,
                    expression("x * 0.5 + float(j % 7)"),
                    expression("where(j == i, -inf, x + 0.5 * tanh(x))"),
                ],
            ),
            modes: if varlen { Modes::Bshd } else { pick(rng, &[Modes::Bshd, Modes::Bhsd]) },
            bm: pick(rng, &[None, Some(16), Some(48), Some(64)]),
            warpgroups: pick(rng, &[1, 1, 2]),
            stages: pick(rng, &[1, 2, 3]),
            stagger: pick(rng, &[0, 0, 1]),
            keys_in_registers: one_in_three(rng),
            softcap,
            alibi,
            bias: bias && !varlen,
            sink,
            varlen,
            deterministic,
            bulk,
            overlap,
            ..Default::default()
        };
        if config.validate().is_ok() {
            return config;
        }
    }
}

fn one_in_three(rng: &mut ChaCha8Rng) -> bool {
    rng.random_range(0..3) == 0
}

#[test]
fn random_options_are_right() {
    let draw = |rng: &mut ChaCha8Rng| {
        let config = random_config(rng);
        let varlen = config.varlen;
        (config, varlen)
    };
    sweep(4, draw, |config, sizes, lengths, seed| {
        check_with(config, sizes, &Problem { lengths, bias: [1, sizes.hq], scalars: &[] }, seed);
    });
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
    let causal = AttentionBackwardConfig { mask: Mask::Causal, ..plain.clone() };
    let expression = |text: &str| Some(Expression(text.to_string()));
    let forms = [
        plain.clone(),
        causal.clone(),
        AttentionBackwardConfig { bm: Some(64), overlap: true, ..plain.clone() },
        AttentionBackwardConfig { bm: Some(64), bulk: true, ..plain.clone() },
        AttentionBackwardConfig { d: 64, ..plain.clone() },
        AttentionBackwardConfig { d: 64, bm: Some(96), keys_in_registers: true, ..causal.clone() },
        AttentionBackwardConfig { d: 96, mask: Mask::Window(1024), ..plain.clone() },
        AttentionBackwardConfig { d: 192, dv: Some(128), deterministic: true, ..causal.clone() },
        AttentionBackwardConfig { softcap: true, ..causal.clone() },
        AttentionBackwardConfig { deterministic: true, ..causal.clone() },
        AttentionBackwardConfig { varlen: true, ..causal.clone() },
        AttentionBackwardConfig { varlen: true, ..plain.clone() },
        AttentionBackwardConfig { varlen: true, deterministic: true, d: 64, ..causal.clone() },
        AttentionBackwardConfig { varlen: true, bm: Some(64), bulk: true, ..plain.clone() },
        AttentionBackwardConfig { alibi: true, ..causal.clone() },
        AttentionBackwardConfig { alibi: true, deterministic: true, ..causal.clone() },
        AttentionBackwardConfig { bias: true, ..plain.clone() },
        AttentionBackwardConfig { bias: true, deterministic: true, ..plain.clone() },
        AttentionBackwardConfig { attends: expression("i / 512 == j / 512"), ..plain.clone() },
        AttentionBackwardConfig {
            attends: expression("i / 512 == j / 512"),
            deterministic: true,
            ..plain.clone()
        },
        AttentionBackwardConfig { score: expression("tanh(x / 4.0) * 4.0 + float(i - j)"), ..causal.clone() },
        AttentionBackwardConfig {
            score: expression("tanh(x / 4.0) * 4.0"),
            softcap: true,
            deterministic: true,
            ..causal
        },
    ];
    let mut spilled = Vec::new();
    for (i, config) in forms.iter().enumerate() {
        if !in_turn(i, 2) {
            continue;
        }
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        for (j, program) in config.programs().unwrap().iter().enumerate() {
            let kernel =
                compile(program, &Options::new(Arch::SM_90A).for_own_sizes(program, &sizes)).unwrap();
            let name = format!("attention_backward_{i}_{j}");
            let bytes = assemble(&ptxas, &name, &kernel, Arch::SM_90A);
            spilled.extend((bytes > 0).then(|| format!("{name}, {bytes} bytes: {config:?}")));
        }
    }
    assert_eq!(spilled, Vec::<String>::new());
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
    assert_eq!(refused(&[("varlen", "true"), ("modes", "bhsd")]), "modes: must be bshd with varlen = true");
    assert_eq!(refused(&[("varlen", "true"), ("bias", "true")]), "bias: must be false with varlen = true");
    let unknown = refused(&[("score", "bitcast(bitcast(x, u32), f32)")]);
    assert!(
        unknown.starts_with("score: must have a derivative by x: that of `bitcast` is not known"),
        "{unknown}"
    );
    let clash = "scalars: `delta` is a name of the program: choose another, such as `delta_0`";
    assert_eq!(refused(&[("scalars", "delta: f32 = 1.0")]), clash);
    let shared = "bm: must be a multiple of 24 for 3 warpgroups to share dq";
    assert_eq!(refused(&[("d", "64"), ("bm", "32"), ("warpgroups", "3")]), shared);
    let deep =
        "stages: needs 440320 bytes of shared memory, and a block has 232448: choose fewer stages or queries";
    assert_eq!(refused(&[("bm", "80"), ("stages", "8")]), deep);
}
