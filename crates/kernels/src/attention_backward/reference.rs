//! The gradients by plain loops, and the sizes at which they are tested.

use super::AttentionBackwardConfig;
use crate::attention::{AttentionConfig, AttentionSizes, Inputs, Problem};
use crate::config::ConfigError;

/// The tensors of a problem and its scalars.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    /// Those of the pass forward.
    pub forward: Inputs<'a>,
    /// The gradient of the results.
    pub dout: &'a [f64],
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
        AttentionConfig { lse: true, ..self.computed() }
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
///
/// # Errors
///
/// Those of [`AttentionBackwardConfig::validate`] for functions.
pub fn reference(
    config: &AttentionBackwardConfig,
    sizes: &AttentionSizes,
    given: &Given<'_>,
) -> Result<Gradients, ConfigError> {
    let AttentionSizes { b, hq, hk, .. } = *sizes;
    let forward = config.forward();
    let problem = Problem::new(&forward, sizes, &given.forward)?;
    let Inputs { q, k, v, scale, sinks, .. } = given.forward;
    let zeros = |x: &[f64]| vec![0.0; x.len()];
    let mut all = Gradients {
        dq: zeros(q),
        dk: zeros(k),
        dv: zeros(v),
        dq_magnitudes: zeros(q),
        dk_magnitudes: zeros(k),
        dv_magnitudes: zeros(v),
    };
    let row = |which: usize, place: [i64; 3], elements: i64| {
        let first = problem.at(which, place) * elements as usize;
        first..first + elements as usize
    };
    let (d, width) = (config.d, config.values());
    for (batch, head) in (0..b).flat_map(|batch| (0..hq).map(move |head| (batch, head))) {
        let [queries, keys] = problem.lengths(batch);
        let of_key = |j: i64| row(1, [batch, j, head / (hq / hk)], d);
        let of_value = |j: i64| row(1, [batch, j, head / (hq / hk)], width);
        for i in 0..queries {
            let of_query = row(0, [batch, i, head], d);
            let (query, gradient) = (&q[of_query.clone()], &given.dout[row(0, [batch, i, head], width)]);
            // Keys with their scores and the derivatives of these by scale · q kᵀ.
            let scored = |j| problem.score_of([batch, head, i, j]).map(|(x, slope)| (j, x, slope));
            let scores: Vec<(i64, f64, f64)> = (0..keys).filter_map(scored).collect();
            let sink = config.sink.then(|| sinks[head as usize]);
            let most = scores.iter().map(|(_, x, _)| *x).chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|(_, x, _)| *x).chain(sink).map(|x| (x - most).exp()).sum();
            let weights: Vec<f64> = scores.iter().map(|(_, x, _)| (x - most).exp() / sum).collect();
            let through = |of: fn(&[f64], &[f64]) -> f64| -> Vec<f64> {
                scores.iter().map(|(j, ..)| of(gradient, &v[of_value(*j)])).collect()
            };
            let (dp, dp_magnitudes) = (through(dot), through(dot_of_magnitudes));
            let (delta, delta_magnitude) = (dot(&weights, &dp), dot(&weights, &dp_magnitudes));
            for (at, (j, _, slope)) in scores.iter().enumerate() {
                let p = weights[at];
                let ds = scale * p * (dp[at] - delta) * slope;
                let magnitude = scale * p * (dp_magnitudes[at] + delta_magnitude) * slope.abs();
                let (key, value) = (of_key(*j), of_value(*j));
                let row = of_query.clone();
                add(&mut all.dv[value.clone()], &mut all.dv_magnitudes[value], gradient, [p, p]);
                add(&mut all.dk[key.clone()], &mut all.dk_magnitudes[key.clone()], query, [ds, magnitude]);
                add(&mut all.dq[row.clone()], &mut all.dq_magnitudes[row], &k[key], [ds, magnitude]);
            }
        }
    }
    Ok(all)
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
