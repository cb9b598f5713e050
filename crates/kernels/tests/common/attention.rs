//! Random problems of attention.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_kernels::attention::{AttentionConfig, AttentionSizes, Inputs};
use tilewright_machine::DType;

use super::{Tensors, nightly, random};

/// A problem, beside its sizes.
#[derive(Default)]
pub struct Problem<'a> {
    /// The lengths of sequences of queries and of keys, with `varlen`.
    pub lengths: &'a [[i64; 2]],
    /// Matrices of the bias along b and hq.
    pub bias: [i64; 2],
    /// Scalars of functions.
    pub scalars: &'a [(&'a str, f64)],
}

/// Checks random configurations with random sizes and lengths: by day so many, each night, with `TILEWRIGHT_EVERY_POINT`, 300. `draw` gives a
/// configuration and its `varlen`; `check` also has the lengths of sequences, and the seed.
pub fn sweep<C>(
    by_day: u64,
    draw: impl Fn(&mut ChaCha8Rng) -> (C, bool),
    check: impl Fn(&C, &AttentionSizes, &[[i64; 2]], u64),
) {
    let count = if nightly() { 300 } else { by_day };
    for seed in 0..count {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (config, varlen) = draw(&mut rng);
        let hk = rng.random_range(1..3);
        let hq = hk * rng.random_range(1..3);
        let b: i64 = rng.random_range(1..4);
        let lengths: Vec<[i64; 2]> =
            (0..b).map(|_| [rng.random_range(0..100), rng.random_range(0..150)]).collect();
        let longest = |which: usize| lengths.iter().map(|of| of[which]).max().unwrap_or(0).max(1);
        if varlen && (0..2).any(|which| lengths.iter().all(|of| of[which] == 0)) {
            continue;
        }
        check(&config, &AttentionSizes { b, hq, hk, sq: longest(0), sk: longest(1) }, &lengths, seed);
    }
}

/// The tensors of a problem; those that a configuration does not have are empty.
pub struct Drawn {
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub bias: Vec<f64>,
    pub slopes: Vec<f64>,
    pub sinks: Vec<f64>,
    /// The places at which sequences of queries and of keys begin, and the ends of the last.
    pub places: [Vec<i64>; 2],
    /// Rows of queries and of keys, of all batches.
    pub rows: [i64; 2],
    /// The scalars as f32 has them.
    pub scale: f64,
    pub cap: f64,
    matrices: [i64; 2],
}

impl Drawn {
    /// Draws a problem of a pass forward, with queries of a largest size.
    pub fn new(
        config: &AttentionConfig,
        sizes: &AttentionSizes,
        problem: &Problem<'_>,
        largest: f64,
    ) -> Drawn {
        let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
        let mut rng = ChaCha8Rng::seed_from_u64((sq * 7 + sk * 3 + config.d) as u64);
        let mut draw = |dtype: DType, len: i64, factor: f64| -> Vec<f64> {
            let values = random(&mut rng, dtype, len);
            values.iter().map(|x| dtype.decode(dtype.encode(x * factor))).collect()
        };
        let places = [0, 1].map(|which| begins(problem.lengths, which));
        let rows =
            [0, 1].map(|which| if config.varlen { places[which][b as usize] } else { b * [sq, sk][which] });
        let (dtype, d, dv) = (config.dtype, config.d, config.values());
        let when = |wanted: bool, len: i64| if wanted { len } else { 0 };
        let all = problem.bias[0] * problem.bias[1] * sq * sk;
        let mut drawn = Drawn {
            q: draw(dtype, rows[0] * hq * d, largest),
            k: draw(dtype, rows[1] * hk * d, 1.0),
            v: draw(dtype, rows[1] * hk * dv, 1.0),
            bias: draw(config.results(), when(config.bias, all), 2.0),
            slopes: draw(DType::F32, when(config.alibi, hq), 0.5),
            sinks: draw(DType::F32, when(config.sink, hq), 6.0),
            places,
            rows,
            scale: f64::from(1.25 / (d as f32).sqrt()),
            cap: 5.0,
            matrices: problem.bias,
        };
        // Keys that a query does not attend to, and a query without any.
        for (at, x) in drawn.bias.iter_mut().enumerate() {
            if at % 7 == 0 || at as i64 / sk % sq == 3 {
                *x = f64::NEG_INFINITY;
            }
        }
        drawn
    }

    /// The arguments of the plain loops.
    pub fn inputs<'a>(&'a self, problem: &Problem<'a>) -> Inputs<'a> {
        Inputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            bias: &self.bias,
            matrices: self.matrices,
            slopes: &self.slopes,
            sinks: &self.sinks,
            places: [&self.places[0], &self.places[1]],
            scale: self.scale,
            cap: self.cap,
            scalars: problem.scalars,
            ..Default::default()
        }
    }

    /// The tensors of a launch, by name.
    pub fn tensors(&self, config: &AttentionConfig) -> Tensors {
        let [cu_q, cu_k] = [0, 1].map(|which| self.places[which].iter().map(|x| *x as f64).collect());
        let all = [
            (true, "q", self.q.clone()),
            (true, "k", self.k.clone()),
            (true, "v", self.v.clone()),
            (config.varlen, "cu_q", cu_q),
            (config.varlen, "cu_k", cu_k),
            (config.bias, "bias", self.bias.clone()),
            (config.alibi, "slopes", self.slopes.clone()),
            (config.sink, "sinks", self.sinks.clone()),
        ];
        let present = all.into_iter().filter(|(present, ..)| *present);
        present.map(|(_, name, values)| (name.to_string(), values)).collect()
    }

    /// The sizes of a launch.
    pub fn sizes(&self, config: &AttentionConfig, sizes: &AttentionSizes) -> Vec<(&'static str, i64)> {
        let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
        let mut named = vec![("b", b), ("hq", hq), ("hk", hk), ("sq", sq), ("sk", sk)];
        if config.varlen {
            named.extend([("tq", self.rows[0]), ("tk", self.rows[1])]);
        }
        if config.bias {
            named.extend([("bb", self.matrices[0]), ("bh", self.matrices[1])]);
        }
        named
    }

    /// The scalars of a launch.
    pub fn scalars<'a>(&self, problem: &Problem<'a>) -> Vec<(&'a str, f64)> {
        let mut scalars = problem.scalars.to_vec();
        scalars.extend([("scale", self.scale), ("cap", self.cap)]);
        scalars
    }
}

/// The places at which sequences of queries (0) or of keys (1) begin, and the end of the last.
pub fn begins(lengths: &[[i64; 2]], which: usize) -> Vec<i64> {
    let ends = lengths.iter().scan(0, |end, lengths| {
        *end += lengths[which];
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}
