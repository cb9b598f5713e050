//! `attention`: heads, masks and forms at edge sizes in all executions, against plain loops in f64; what is refused; registers of what is
//! assembled.

use crate::common::attention::sweep;
use crate::common::{Launch, Tensors, absolute, assemble, close, in_turn, ptxas, random};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::{Options, compile};
use tilewright_kernels::attention::{
    AttentionConfig, AttentionSizes, Expression, Form, Inputs, Mask, Modes, Scalars, edge_sizes, reference,
};
use tilewright_kernels::{ConfigError, operator};
use tilewright_machine::{Arch, DType};

/// A problem, beside its sizes.
#[derive(Default)]
pub struct Given<'a> {
    /// The lengths of sequences of queries and of keys, with `varlen`.
    pub lengths: &'a [[i64; 2]],
    /// Rows of keys and values behind the last sequence.
    pub behind: i64,
    /// Matrices of the bias along b and hq.
    pub bias: [i64; 2],
    /// Scalars of functions.
    pub scalars: &'a [(&'a str, f64)],
}

fn check(config: &AttentionConfig, sizes: &AttentionSizes, seeds: &[u64]) {
    check_with(config, sizes, &Given { bias: [1, 1], ..Given::default() }, seeds);
}

/// Interpreter, simulator and plain loops agree; scores are large enough for the reference maximum to move.
pub fn check_with(config: &AttentionConfig, sizes: &AttentionSizes, given: &Given<'_>, seeds: &[u64]) {
    let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
    let mut rng = ChaCha8Rng::seed_from_u64((sq * 7 + sk * 3 + config.d) as u64);
    let mut draw = |dtype: DType, len: i64, factor: f64| -> Vec<f64> {
        let values = random(&mut rng, dtype, len);
        values.iter().map(|x| dtype.decode(dtype.encode(x * factor))).collect()
    };
    let places = [0, 1].map(|which| {
        let ends = given.lengths.iter().scan(0, |end, lengths| {
            *end += lengths[which];
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect::<Vec<i64>>()
    });
    let all = [0, 1].map(|which| if config.varlen { places[which][b as usize] } else { b * [sq, sk][which] });
    let (q, k) =
        (draw(config.dtype, all[0] * hq * config.d, 8.0), draw(config.dtype, all[1] * hk * config.d, 1.0));
    let v = draw(config.dtype, all[1] * hk * config.values(), 1.0);
    let when = |wanted: bool, len: i64| if wanted { len } else { 0 };
    let mut bias = draw(config.results(), when(config.bias, given.bias[0] * given.bias[1] * sq * sk), 2.0);
    // Keys that a query does not attend to, and a query without any.
    let masked = |(at, x): (usize, &mut f64)| {
        if at % 7 == 0 || at as i64 / sk % sq == 3 {
            *x = f64::NEG_INFINITY;
        }
    };
    bias.iter_mut().enumerate().for_each(masked);
    let slopes = draw(DType::F32, when(config.alibi, hq), 0.5);
    let sinks = draw(DType::F32, when(config.sink, hq), 6.0);
    let descales = [(); 3]
        .map(|()| draw(DType::F32, when(config.dtype == DType::E4M3, b * hk), 1.5))
        .map(|x| absolute(&x));
    // The scalars as f32 has them.
    let (scale, cap) = (f64::from(1.25 / (config.d as f32).sqrt()), 5.0);
    let inputs = Inputs {
        q: &q,
        k: &k,
        v: &v,
        bias: &bias,
        matrices: given.bias,
        slopes: &slopes,
        sinks: &sinks,
        descales: [&descales[0], &descales[1], &descales[2]],
        places: [&places[0], &places[1]],
        scale,
        cap,
        scalars: given.scalars,
    };
    let (o, lse) = reference(config, sizes, &inputs).unwrap();
    let sizes_only = absolute(&v);
    let (weighed, _) = reference(config, sizes, &Inputs { v: &sizes_only, ..inputs }).unwrap();
    // Weights are rounded to the type of v, of 8 bits to multiples of 2⁻⁹ at least, where they sum to more than 1; results once more.
    let (mean, _) = reference(config, sizes, &Inputs { v: &sizes_only, scale: 0.0, ..inputs }).unwrap();
    let least = if config.dtype == DType::E4M3 { sk as f64 / 1024.0 } else { 0.0 };
    let exponential = if config.polynomial > 0 { 2.5e-4 } else { 1e-4 };
    let (epsilon, rounded) = (config.dtype.epsilon(), config.results().epsilon());
    let bound: Vec<f64> = o
        .iter()
        .zip(weighed.iter().zip(&mean))
        .map(|(o, (all, mean))| all * (2.0 * epsilon + exponential) + mean * least + o.abs() * rounded + 1e-6)
        .collect();
    let programs = config.programs().unwrap_or_else(|e| panic!("{config:?}: {e}"));
    let mut tensors: Tensors =
        [("q", q), ("k", k), ("v", v)].map(|(name, values)| (name.to_string(), values)).into();
    let as_numbers = |places: &[i64]| places.iter().map(|x| *x as f64).collect::<Vec<f64>>();
    let others = [
        (config.varlen, "cu_q", as_numbers(&places[0])),
        (config.varlen, "cu_k", as_numbers(&places[1])),
        (config.bias, "bias", bias),
        (config.alibi, "slopes", slopes),
        (config.sink, "sinks", sinks),
    ];
    let fp8 = config.dtype == DType::E4M3;
    let names = ["q_descale", "k_descale", "v_descale"];
    let others =
        others.into_iter().chain(names.into_iter().zip(descales).map(|(name, values)| (fp8, name, values)));
    let present = others.filter(|(present, ..)| *present);
    tensors.extend(present.map(|(_, name, values)| (name.to_string(), values)));
    let mut named = vec![("b", b), ("hq", hq), ("hk", hk), ("sq", sq), ("sk", sk)];
    if config.varlen {
        named.extend([("tq", all[0]), ("tk", all[1] + given.behind)]);
        for (name, width, value) in [("k", config.d, 0.0), ("v", config.values(), f64::NAN)] {
            let behind = std::iter::repeat_n(value, (given.behind * hk * width) as usize);
            tensors.entry(name.to_string()).or_default().extend(behind);
        }
    }
    if config.bias {
        named.extend([("bb", given.bias[0]), ("bh", given.bias[1])]);
    }
    // Rows apart from each other.
    let steps = |which: usize, heads: i64, width: i64| {
        let rows = if config.varlen { all[which] } else { [sq, sk][which] };
        let step = heads * width + 16;
        [rows * step + 32, step, width]
    };
    let strides = [
        ("q", ["q_b", "q_s", "q_h"], steps(0, hq, config.d)),
        ("k", ["k_b", "k_s", "k_h"], steps(1, hk, config.d)),
        ("v", ["v_b", "v_s", "v_h"], steps(1, hk, config.values())),
        ("o", ["o_b", "o_s", "o_h"], steps(0, hq, config.values())),
    ];
    let place = |[batch, row, _]: [i64; 3], at: usize, rows: i64, width: i64| {
        let (line, within) = (at as i64 / width, at as i64 % width);
        (line / rows * batch + line % rows * row + within) as usize
    };
    if config.strides {
        for (name, names, steps) in strides {
            let rows = if "qo".contains(name) { sq } else { sk };
            named.extend(names.into_iter().zip(steps));
            if let Some(values) = tensors.get_mut(name) {
                let mut spread =
                    vec![
                        f64::NAN;
                        ((b - 1) * steps[0] + (rows - 1) * steps[1]) as usize + steps[1] as usize - 16
                    ];
                for (at, value) in values.iter().enumerate() {
                    spread[place(steps, at, rows, steps[1] - 16)] = *value;
                }
                *values = spread;
            }
        }
    }
    let mut scalars = given.scalars.to_vec();
    scalars.extend([("scale", scale), ("cap", cap)]);
    let arch = if config.form == Form::Tcgen05 { Arch::SM_100A } else { Arch::SM_90A };
    let launch = Launch { programs: &programs, sizes: &named, scalars: &scalars };
    let (simulated, interpreted, _) = launch.run(arch, seeds, &tensors);
    for (who, results) in [("the simulator", simulated), ("the interpreter", interpreted)] {
        let at = format!("{who} at {sizes:?} of {config:?}");
        let width = hq * config.values();
        let gathered = |(at, _): (usize, &f64)| results["o"][place(strides[3].2, at, sq, width)];
        let found: Vec<f64> =
            if config.strides { o.iter().enumerate().map(gathered).collect() } else { results["o"].clone() };
        close(&at, &found, &o, &bound);
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
        AttentionConfig { lse: true, ..small.clone() },
        AttentionConfig { mask: Mask::Causal, lse: true, modes: Modes::Bhsd, ..small.clone() },
        AttentionConfig { mask: Mask::Window(37), softcap: true, dtype: DType::BF16, ..small.clone() },
        AttentionConfig { persistent: true, sm_count: 2, modes: Modes::Bhsd, warpgroups: 1, ..small.clone() },
        AttentionConfig {
            persistent: true,
            sm_count: 3,
            mask: Mask::Causal,
            warpgroups: 1,
            lse: true,
            ..small.clone()
        },
        AttentionConfig {
            d: 96,
            dv: Some(32),
            mask: Mask::Causal,
            warpgroups: 1,
            stages: 1,
            ..small.clone()
        },
        AttentionConfig { ping_pong: true, lse: true, ..small.clone() },
        AttentionConfig {
            ping_pong: true,
            persistent: true,
            q_stages: 2,
            sm_count: 3,
            mask: Mask::Window(50),
            ..small.clone()
        },
    ]
}

#[test]
fn attention_is_right_at_edges() {
    for (i, config) in configs().into_iter().enumerate() {
        let sizes = edge_sizes(config.rows(), config.bn).into_iter().enumerate();
        for (_, sizes) in sizes.filter(|(j, _)| in_turn(i + j, 2)) {
            check(&config, &sizes, &[sizes.sk as u64]);
        }
    }
}

fn small() -> AttentionConfig {
    AttentionConfig { d: 64, bn: 48, warpgroups: 1, lse: true, ..AttentionConfig::default() }
}

#[test]
fn sequences_of_their_own_lengths_are_right() {
    let lengths = [[70, 70], [1, 130], [0, 5], [64, 0], [90, 48], [3, 2]];
    let sizes = AttentionSizes { b: 6, hq: 2, hk: 1, sq: 90, sk: 130 };
    let given = Given { lengths: &lengths, ..Given::default() };
    let varlen = AttentionConfig { varlen: true, ..small() };
    for config in [
        AttentionConfig { sink: true, ..varlen.clone() },
        AttentionConfig { mask: Mask::Causal, ..varlen.clone() },
        AttentionConfig { mask: Mask::Window(40), persistent: true, sm_count: 3, ..varlen.clone() },
        AttentionConfig { ping_pong: true, warpgroups: 2, mask: Mask::Causal, ..varlen.clone() },
        AttentionConfig { dtype: DType::E4M3, bn: 96, ..varlen.clone() },
        AttentionConfig { dtype: DType::E4M3, bn: 32, mask: Mask::Window(40), persistent: true, ..varlen },
    ] {
        let behind = if config.dtype == DType::E4M3 { 300 } else { 0 };
        check_with(&config, &sizes, &Given { behind, ..given }, &[3]);
    }
}

#[test]
fn rows_apart_from_each_other_are_right() {
    let sizes = AttentionSizes { b: 2, hq: 2, hk: 1, sq: 70, sk: 100 };
    check(&AttentionConfig { strides: true, mask: Mask::Causal, ..small() }, &sizes, &[5]);
}

#[test]
fn what_is_added_to_scores_is_right() {
    let sizes = AttentionSizes { b: 2, hq: 4, hk: 2, sq: 70, sk: 100 };
    let plain = small();
    for (config, bias) in [
        (AttentionConfig { alibi: true, mask: Mask::Causal, ..plain.clone() }, [1, 1]),
        (AttentionConfig { sink: true, mask: Mask::Causal, dtype: DType::BF16, ..plain.clone() }, [1, 1]),
        (AttentionConfig { bias: true, softcap: true, ..plain.clone() }, [2, 4]),
        (
            AttentionConfig { bias: true, alibi: true, sink: true, modes: Modes::Bhsd, ..plain.clone() },
            [1, 4],
        ),
        (AttentionConfig { bias: true, mask: Mask::Window(50), ..plain.clone() }, [1, 1]),
        (AttentionConfig { bias: true, warpgroups: 2, ping_pong: true, ..plain }, [2, 1]),
    ] {
        check_with(&config, &sizes, &Given { bias, ..Given::default() }, &[5]);
    }
}

#[test]
fn heads_of_8_bits_are_right() {
    let plain = AttentionConfig { dtype: DType::E4M3, bn: 64, ..small() };
    let sizes = AttentionSizes { b: 2, hq: 4, hk: 2, sq: 70, sk: 150 };
    for config in [
        plain.clone(),
        AttentionConfig {
            mask: Mask::Causal,
            out: Some(DType::BF16),
            d: 128,
            modes: Modes::Bhsd,
            ..plain.clone()
        },
        AttentionConfig {
            mask: Mask::Window(60),
            softcap: true,
            sink: true,
            persistent: true,
            ..plain.clone()
        },
        AttentionConfig { bias: true, mask: Mask::Causal, ..plain.clone() },
        AttentionConfig { warpgroups: 2, ping_pong: true, strides: true, ..plain },
    ] {
        check(&config, &sizes, &[2]);
    }
}

/// Functions of a user's own over scores and masks, with the mask beside them.
const FUNCTIONS: [(Option<&str>, Option<&str>, Mask); 8] = [
    // Blocks along the diagonal, of which others are skipped, a prefix that all see, what is dilated, and nothing at all for some.
    (Some("i / span == j / 40"), None, Mask::None),
    (Some("j < 20 or i / 32 == j / 32"), None, Mask::Causal),
    (Some("(i - j) % 3 == 0 and not (abs(i - j) > 60)"), Some("x * slope"), Mask::None),
    (Some("h == 0 and j >= 100 - 10 * b"), Some("where(j < 5, -inf, x)"), Mask::None),
    (None, Some("x - slope * float(i - j) + float(h)"), Mask::Causal),
    (None, Some("x - slope * float(i - j) + float(h)"), Mask::Window(33)),
    (None, Some("tanh(x / 4.0) * 4.0"), Mask::Window(33)),
    (None, Some("where(x > 0.5, x, 0.25 * x)"), Mask::None),
];

/// Every function of a user's own is right in a configuration, by day one of so many.
pub fn functions_are_right(base: &AttentionConfig, one_of: usize) {
    let sizes = AttentionSizes { b: 2, hq: 2, hk: 1, sq: 130, sk: 200 };
    let scalars = [("slope", 0.5), ("span", 40.0)];
    let given = Given { bias: [1, 1], scalars: &scalars, ..Given::default() };
    let declared = Scalars("slope: f32 = 0.25, span: i32 = 40".to_string());
    for (at, (attends, score, mask)) in FUNCTIONS.into_iter().enumerate() {
        if !in_turn(at, one_of) {
            continue;
        }
        let [attends, score] = [attends, score].map(|text| text.map(|text| Expression(text.to_string())));
        let config = AttentionConfig { attends, score, mask, scalars: declared.clone(), ..base.clone() };
        check_with(&config, &sizes, &given, &[7]);
    }
}

#[test]
fn functions_of_a_users_own_are_right() {
    functions_are_right(&small(), 1);
}

/// A random choice of all options that go together.
fn random_config(rng: &mut ChaCha8Rng) -> AttentionConfig {
    fn pick<T: Clone>(rng: &mut ChaCha8Rng, from: &[T]) -> T {
        from[rng.random_range(0..from.len())].clone()
    }
    let expression = |text: &str| Some(Expression(text.to_string()));
    loop {
        let mut one_in = |n: u32| rng.random_range(0..n) == 0;
        let (softcap, alibi, bias, sink, lse) = (one_in(4), one_in(4), one_in(5), one_in(4), one_in(2));
        let (varlen, strides, persistent, ping_pong) = (one_in(4), one_in(5), one_in(2), one_in(3));
        let config = AttentionConfig {
            dtype: pick(rng, &[DType::F16, DType::F16, DType::BF16, DType::E4M3]),
            d: pick(rng, &[16, 32, 48, 64, 96, 128]),
            dv: pick(rng, &[None, None, Some(32), Some(64)]),
            mask: pick(rng, &[Mask::None, Mask::Causal, Mask::Window(1), Mask::Window(45)]),
            attends: pick(rng, &[None, None, expression("i / 40 == j / 40"), expression("(i + j) % 3 != h")]),
            score: pick(
                rng,
                &[None, None, expression("x * 0.5 + float(j % 7)"), expression("where(j == i, -inf, x)")],
            ),
            modes: if varlen { Modes::Bshd } else { pick(rng, &[Modes::Bshd, Modes::Bhsd]) },
            warpgroups: pick(rng, &[1, 1, 2, 3]),
            bn: pick(rng, &[16, 32, 48, 64, 96]),
            stages: pick(rng, &[1, 2, 3]),
            q_stages: if persistent { pick(rng, &[1, 2]) } else { 1 },
            sm_count: pick(rng, &[1, 3, 132]),
            softcap,
            alibi,
            bias: bias && !varlen,
            sink,
            lse,
            varlen,
            strides: strides && !varlen,
            persistent,
            ping_pong,
            ..Default::default()
        };
        let usual = AttentionConfig::default();
        let config = match pick(rng, &Form::ALL) {
            Form::Wgmma => config,
            Form::Tcgen05 => AttentionConfig {
                form: Form::Tcgen05,
                polynomial: pick(rng, &[0, 16]),
                warpgroups: usual.warpgroups,
                q_stages: usual.q_stages,
                persistent: usual.persistent,
                ping_pong: usual.ping_pong,
                sm_count: usual.sm_count,
                ..config
            },
        };
        // Strides of the test are those of places before heads.
        if config.validate().is_ok() && (!config.strides || config.modes == Modes::Bshd) {
            return config;
        }
    }
}

#[test]
fn random_options_are_right() {
    let draw = |rng: &mut ChaCha8Rng| {
        let config = random_config(rng);
        let varlen = config.varlen;
        (config, varlen)
    };
    sweep(5, draw, |config, sizes, lengths, seed| {
        check_with(config, sizes, &Given { lengths, bias: [1, sizes.hq], ..Given::default() }, &[seed]);
    });
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
        AttentionConfig { d: 64, bn: 128, persistent: true, mask: Mask::Causal, ..Default::default() },
        AttentionConfig {
            d: 64,
            bn: 112,
            persistent: true,
            ping_pong: true,
            q_stages: 2,
            mask: Mask::Window(300),
            ..Default::default()
        },
        AttentionConfig { d: 256, warpgroups: 2, mask: Mask::Window(1024), ..Default::default() },
        AttentionConfig { varlen: true, ..Default::default() },
        AttentionConfig { varlen: true, mask: Mask::Window(300), lse: true, ..Default::default() },
        AttentionConfig { strides: true, alibi: true, sink: true, mask: Mask::Causal, ..Default::default() },
        AttentionConfig { bias: true, bn: 64, ..Default::default() },
        AttentionConfig { dtype: DType::E4M3, bn: 96, persistent: true, ..Default::default() },
        AttentionConfig { attends: Some(Expression("i / 512 == j / 512".to_string())), ..Default::default() },
        AttentionConfig {
            dtype: DType::E4M3,
            bn: 96,
            varlen: true,
            mask: Mask::Causal,
            ..Default::default()
        },
        AttentionConfig { dtype: DType::E4M3, bn: 64, bias: true, ..Default::default() },
    ];
    for (i, config) in forms.iter().enumerate() {
        if !in_turn(i, 2) {
            continue;
        }
        let program = config.program().unwrap();
        let sizes = [("b", 2), ("hq", 16), ("hk", 4), ("sq", 4096), ("sk", 4096)];
        let kernel = compile(&program, &Options::new(Arch::SM_90A).for_own_sizes(&program, &sizes)).unwrap();
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
    let wrong = |name: &str, value: &str, words: &str| {
        let said = refused(name, value);
        assert!(said.contains(words), "{said}");
    };
    wrong("attends", "i + j", "attends: must be a condition over i, j, h and b");
    wrong("attends", "i < k", "`k`");
    assert_eq!(refused("score", "i < j"), "score: must be a number over x, i, j, h and b");
    assert_eq!(refused("attends", "x > 0.0").lines().count(), 1);
    wrong("attends", "x > 0.0", "nothing is named `x`");
    assert_eq!(
        refused("scalars", "acc: f32 = 1.0"),
        "scalars: `acc` is a name of the program: choose another, such as `acc_0`"
    );
    assert_eq!(
        refused("q_stages", "2"),
        "q_stages: must be 1, or persistent = true: else a block has one tile of queries"
    );
    wrong("score", "x) + (x", "score: must be a number");
    wrong("score", "x; fill(x, 0.0)", "must be one expression");
    assert_eq!(refused("scalars", "slope"), "scalars: must be none or declarations such as slope: f32 = 0.5");
    assert_eq!(refused("mask", "diagonal"), "mask: must be none, causal or window(KEYS)");
    assert_eq!(refused("mask", "window(0)"), "mask: must have a window of 1 to 2^30 keys");
    assert_eq!(refused("d", "72"), "d: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused("dv", "0"), "dv: must be a multiple of 16 from 16 to 256");
    assert_eq!(refused("modes", "hbsd"), "modes: must be bshd or bhsd");
    assert_eq!(refused("warpgroups", "4"), "warpgroups: must be 1 to 3");
    assert_eq!(refused("bn", "40"), "bn: must be a multiple of 16 from 16 to 256");
    let many = "bn: needs 198 registers of a thread, which has 160: choose fewer keys, or two warpgroups";
    assert_eq!(refused("bn", "144"), many);
    let deep =
        "stages: needs 377856 bytes of shared memory, and a block has 232448: choose fewer stages or keys";
    assert_eq!(refused("stages", "8"), deep);
}
