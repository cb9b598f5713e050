//! Attention over a cache by plain loops, and the sizes at which it is tested.

use super::AttentionDecodeConfig;

/// The sizes of a problem: sequences, heads of k and v, query tokens of each sequence, and how many keys there is room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeSizes {
    /// Sequences.
    pub b: i64,
    /// Heads of k and v.
    pub hk: i64,
    /// Query tokens of a sequence, or of the one that has the most.
    pub sq: i64,
    /// Keys of a sequence at most; with pages those of `sk / page` pages, rounded up.
    pub sk: i64,
    /// Parts of the keys.
    pub splits: i64,
    /// Keys of a part.
    pub chunk: i64,
}

/// The operands, in the order in which they lie.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DecodeInputs {
    /// `[b, sq, hk · group, d]`, or `[tq, hk · group, d]`.
    pub q: Vec<f64>,
    /// `[b, sk, hk, d]`, or `[pages, page, hk, d]`.
    pub k: Vec<f64>,
    /// `[b, sk, hk, dv]`, or `[pages, page, hk, dv]`; not read with [`mla`](AttentionDecodeConfig::mla).
    pub v: Vec<f64>,
    /// The pages of each sequence: `[b, ceil_div(sk, page)]`; empty without pages.
    pub table: Vec<i64>,
    /// The keys of each sequence: `[b]`.
    pub len: Vec<i64>,
    /// The first query token of each sequence, and the end: `[b + 1]`; empty without [`varlen`](AttentionDecodeConfig::varlen).
    pub cu_q: Vec<i64>,
    /// Scales of keys by head: `[hk]`; empty where there are none.
    pub ks: Vec<f64>,
    /// Scales of values by head: `[hk]`; empty where there are none.
    pub vs: Vec<f64>,
}

impl DecodeInputs {
    /// The sequence of each query token, its number there, and the number of its sequence's tokens.
    fn tokens(&self, sizes: &DecodeSizes) -> Vec<[i64; 3]> {
        let count = |batch: i64| match &self.cu_q[..] {
            [] => sizes.sq,
            cu_q => cu_q[batch as usize + 1] - cu_q[batch as usize],
        };
        let of_sequence = |batch: i64| (0..count(batch)).map(move |i| [batch, i, count(batch)]);
        (0..sizes.b).flat_map(of_sequence).collect()
    }

    /// The place of key `j` of a sequence, in rows of all heads.
    fn row(&self, config: &AttentionDecodeConfig, sizes: &DecodeSizes, batch: i64, j: i64) -> i64 {
        match config.page {
            None => batch * sizes.sk + j,
            Some(page) => {
                let pages = (sizes.sk + page - 1) / page;
                self.table[(batch * pages + j / page) as usize] * page + j % page
            }
        }
    }
}

/// o in f64 as `[b, sq, hk · group, dv]`, and the logarithms of the sums of exponentials as `[b, sq, hk · group]`; with `cu_q` as
/// `[tq, hk · group, dv]` and `[tq, hk · group]`. A query that attends to no key has zeros and −∞.
pub fn reference(
    config: &AttentionDecodeConfig,
    sizes: &DecodeSizes,
    inputs: &DecodeInputs,
    (scale, cap): (f64, f64),
) -> (Vec<f64>, Vec<f64>) {
    let hk = sizes.hk;
    let (d, dv, hq) = (config.d, config.values(), hk * config.group);
    let tokens = inputs.tokens(sizes);
    let rows = tokens.len() as i64 * hq;
    let (mut o, mut lse) = (vec![0.0; (rows * dv) as usize], Vec::new());
    let scale_of = |scales: &[f64], head: i64| scales.get(head as usize).copied().unwrap_or(1.0);
    for row in 0..rows {
        let ([batch, i, count], head) = (tokens[(row / hq) as usize], row % hq / config.group);
        let query = &inputs.q[(row * d) as usize..][..d as usize];
        let length = inputs.len[batch as usize];
        let of_key = |j: i64| inputs.row(config, sizes, batch, j) * hk + head;
        let score = |j: i64| {
            let key = &inputs.k[(of_key(j) * d) as usize..][..d as usize];
            let product: f64 = query.iter().zip(key).map(|(x, y)| x * y).sum();
            let x = scale * scale_of(&inputs.ks, head) * product;
            if config.softcap { cap * (x / cap).tanh() } else { x }
        };
        let keys: Vec<i64> = (0..length).filter(|j| config.attends(i, *j, [count, length])).collect();
        let scores: Vec<f64> = keys.iter().map(|j| score(*j)).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        lse.push(if keys.is_empty() { f64::NEG_INFINITY } else { most + sum.ln() });
        let result = &mut o[(row * dv) as usize..][..dv as usize];
        for (j, weight) in keys.iter().zip(&weights) {
            // The values of a latent cache are its first columns.
            let (values, step) = if config.mla { (&inputs.k, d) } else { (&inputs.v, dv) };
            let value = &values[(of_key(*j) * step) as usize..][..dv as usize];
            let factor = weight / sum * scale_of(&inputs.vs, head);
            result.iter_mut().zip(value).for_each(|(o, v)| *o += factor * v);
        }
    }
    (o, lse)
}

/// Sizes with the keys and the query tokens of each sequence, at which blocks and parts meet every kind of edge: single keys, no keys, fewer keys than
/// queries, ragged ends, parts without keys, a last part with more than its share, and more queries than a tile has; with
/// [`varlen`](AttentionDecodeConfig::varlen) also sequences without queries.
pub fn edge_sizes(config: &AttentionDecodeConfig) -> Vec<(DecodeSizes, Vec<i64>, Vec<i64>)> {
    let (bn, tokens) = (config.bn, config.tokens());
    let of = |[hk, sk, splits, chunk]: [i64; 4], len: &[i64], counts: &[i64]| {
        let (b, sq) = (len.len() as i64, counts.iter().copied().max().unwrap_or(1));
        (DecodeSizes { b, hk, sq, sk, splits, chunk }, len.to_vec(), counts.to_vec())
    };
    if config.varlen {
        return vec![
            of([1, 1, 1, 1], &[1], &[1]),
            of([1, 3 * bn, 3, bn], &[0, 1, 2 * bn + 1, 3 * bn], &[2, 0, 3, 1]),
            of([2, 5 * bn - 3, 2, bn + 1], &[1, 5 * bn - 3], &[2, 1]),
            of([1, 2 * bn, 4, bn - 1], &[tokens, bn + 3, 0], &[1, tokens + 1, 0]),
        ];
    }
    vec![
        of([1, 1, 1, 1], &[1], &[1]),
        of([1, 3 * bn, 3, bn], &[0, 1, 2 * bn + 1, 3 * bn], &[1; 4]),
        of([2, 5 * bn - 3, 2, bn + 1], &[1, 5 * bn - 3], &[2; 2]),
        of([1, 2 * bn, 4, bn - 1], &[tokens, bn + 3], &[tokens + 1; 2]),
    ]
}
