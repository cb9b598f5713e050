//! The gradients by plain loops, and the sizes at which they are tested.

use super::AttentionBackwardConfig;
use crate::attention::{AttentionConfig, AttentionSizes, Modes};

/// The tensors of a problem and its scalars.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Given<'a> {
    /// Queries.
    pub q: &'a [f64],
    /// Keys.
    pub k: &'a [f64],
    /// Values.
    pub v: &'a [f64],
    /// The gradient of the results.
    pub dout: &'a [f64],
    /// The factor of scores.
    pub scale: f64,
    /// The cap of scores, if they have one.
    pub cap: f64,
}

/// Results of a backward pass, with the sums of its summands' magnitudes.
#[derive(Clone, PartialEq, Debug)]
pub struct Gradients {
    /// The gradient of q.
    pub dq: Vec<f64>,
    /// The gradient of k.
    pub dk: Vec<f64>,
    /// The gradient of v.
    pub dv: Vec<f64>,
    /// Σ |scale| · |dS| · |k|, where |dS| is P ∘ (|do| |v|ᵀ + |do| |o|ᵀ).
    pub dq_magnitudes: Vec<f64>,
    /// Σ |scale| · |dS| · |q|.
    pub dk_magnitudes: Vec<f64>,
    /// Σ P · |do|.
    pub dv_magnitudes: Vec<f64>,
}

impl AttentionBackwardConfig {
    /// The forward pass whose gradients these are, with its log-sum-exp.
    pub fn forward(&self) -> AttentionConfig {
        AttentionConfig {
            dtype: self.dtype,
            d: self.d,
            dv: self.dv,
            mask: self.mask,
            softcap: self.softcap,
            modes: self.modes,
            lse: true,
            ..AttentionConfig::default()
        }
    }
}

/// Places of elements.
struct Places {
    modes: Modes,
}

impl Places {
    fn at(
        &self,
        [batch, place, head]: [i64; 3],
        [places, heads]: [i64; 2],
        elements: i64,
    ) -> std::ops::Range<usize> {
        let row = match self.modes {
            Modes::Bshd => (batch * places + place) * heads + head,
            Modes::Bhsd => (batch * heads + head) * places + place,
        };
        (row * elements) as usize..((row + 1) * elements) as usize
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn dot_of_magnitudes(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a * b).abs()).sum()
}

/// Adds a multiple of a row, and that of its magnitudes.
fn add(sums: &mut [f64], magnitudes: &mut [f64], row: &[f64], [factor, magnitude]: [f64; 2]) {
    for ((sum, all), x) in sums.iter_mut().zip(magnitudes).zip(row) {
        *sum += factor * x;
        *all += magnitude * x.abs();
    }
}

/// dq, dk and dv in f64, in the order of the tensors' modes. A query that attends to no key has no gradient and gives none.
pub fn reference(config: &AttentionBackwardConfig, sizes: &AttentionSizes, given: &Given<'_>) -> Gradients {
    let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
    let (d, dv, places) = (config.d, config.values(), Places { modes: config.modes });
    let Given { q, k, v, dout, scale, cap } = *given;
    let (zeros, forward) = (|x: &[f64]| vec![0.0; x.len()], config.forward());
    let mut all = Gradients {
        dq: zeros(q),
        dk: zeros(k),
        dv: zeros(v),
        dq_magnitudes: zeros(q),
        dk_magnitudes: zeros(k),
        dv_magnitudes: zeros(v),
    };
    for (batch, head) in (0..b).flat_map(|batch| (0..hq).map(move |head| (batch, head))) {
        for i in 0..sq {
            let of_query = places.at([batch, i, head], [sq, hq], d);
            let of_result = places.at([batch, i, head], [sq, hq], dv);
            let of_key = |j: i64| places.at([batch, j, head / (hq / hk)], [sk, hk], d);
            let of_value = |j: i64| places.at([batch, j, head / (hq / hk)], [sk, hk], dv);
            let (query, gradient) = (&q[of_query.clone()], &dout[of_result]);
            let keys: Vec<i64> = (0..sk).filter(|j| forward.attends_to(i + sk - sq, *j)).collect();
            // Scores with the derivatives of their caps.
            let scores: Vec<(f64, f64)> = keys
                .iter()
                .map(|j| {
                    let x = scale * dot(query, &k[of_key(*j)]);
                    let t = (x / cap).tanh();
                    if config.softcap { (cap * t, 1.0 - t * t) } else { (x, 1.0) }
                })
                .collect();
            let most = scores.iter().fold(f64::NEG_INFINITY, |most, (x, _)| most.max(*x));
            let sum: f64 = scores.iter().map(|(x, _)| (x - most).exp()).sum();
            let weights: Vec<f64> = scores.iter().map(|(x, _)| (x - most).exp() / sum).collect();
            let through = |of: fn(&[f64], &[f64]) -> f64| -> Vec<f64> {
                keys.iter().map(|j| of(gradient, &v[of_value(*j)])).collect()
            };
            let (dp, dp_magnitudes) = (through(dot), through(dot_of_magnitudes));
            let (delta, delta_magnitude) = (dot(&weights, &dp), dot(&weights, &dp_magnitudes));
            for (at, j) in keys.iter().enumerate() {
                let (p, slope) = (weights[at], scores[at].1);
                let ds = scale * p * (dp[at] - delta) * slope;
                let magnitude = scale * p * (dp_magnitudes[at] + delta_magnitude) * slope;
                let (key, value) = (of_key(*j), of_value(*j));
                let row = of_query.clone();
                add(&mut all.dv[value.clone()], &mut all.dv_magnitudes[value], gradient, [p, p]);
                add(&mut all.dk[key.clone()], &mut all.dk_magnitudes[key.clone()], query, [ds, magnitude]);
                add(&mut all.dq[row.clone()], &mut all.dq_magnitudes[row], &k[key], [ds, magnitude]);
            }
        }
    }
    all
}

/// Sizes at which blocks meet every kind of edge: single queries and keys, more queries than keys, shared heads, lengths beside blocks.
pub fn edge_sizes(config: &AttentionBackwardConfig) -> Vec<AttentionSizes> {
    let (queries, keys) = (config.block_of_queries(), config.keys());
    let of = |[b, hq, hk, sq, sk]: [i64; 5]| AttentionSizes { b, hq, hk, sq, sk };
    [
        [1, 1, 1, 1, 1],
        [1, 2, 1, 17, 2 * keys + 3],
        [2, 3, 3, queries, keys],
        [1, 6, 2, queries + 1, keys + 1],
        [1, 1, 1, 3 * queries - 7, keys - 1],
        [2, 2, 1, 3, keys + 9],
    ]
    .map(of)
    .to_vec()
}
