//! The results in f64, by plain loops, and the sizes at which tiles meet every kind of edge.

use super::functions::Function;
use super::{AttentionConfig, AttentionSizes, Modes};
use crate::config::ConfigError;

/// Tensors and scalars of a problem, row-major. Those that a configuration does not have are empty.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inputs<'a> {
    /// The queries.
    pub q: &'a [f64],
    /// The keys.
    pub k: &'a [f64],
    /// The values.
    pub v: &'a [f64],
    /// `bias[bb, bh, sq, sk]`.
    pub bias: &'a [f64],
    /// `bb` and `bh`.
    pub matrices: [i64; 2],
    /// `slopes[hq]`.
    pub slopes: &'a [f64],
    /// `sinks[hq]`.
    pub sinks: &'a [f64],
    /// The scales of 8-bit q, k and v, `[b, hk]` each.
    pub descales: [&'a [f64]; 3],
    /// The places at which sequences of queries and of keys begin and end.
    pub places: [&'a [i64]; 2],
    /// The factor of scores.
    pub scale: f64,
    /// The cap of scores.
    pub cap: f64,
    /// Scalars of functions, by name.
    pub scalars: &'a [(&'a str, f64)],
}

/// A problem with the functions of its configuration.
pub(crate) struct Problem<'a> {
    config: &'a AttentionConfig,
    sizes: AttentionSizes,
    inputs: Inputs<'a>,
    score: Option<Function>,
    attends: Option<Function>,
}

/// o in f64 in the order of its modes, and the logarithms of the sums of exponentials as `[b, hq, sq]` (`[hq, tq]` of sequences of their own
/// lengths). A query that attends to no key has zeros, and −∞ or its sink.
///
/// # Errors
///
/// Those of [`AttentionConfig::validate`] for functions.
pub fn reference(
    config: &AttentionConfig,
    sizes: &AttentionSizes,
    inputs: &Inputs<'_>,
) -> Result<(Vec<f64>, Vec<f64>), ConfigError> {
    let problem = Problem::new(config, sizes, inputs)?;
    let AttentionSizes { b, hq, .. } = *sizes;
    let rows = problem.rows();
    let width = config.values() as usize;
    let mut o = vec![0.0; (rows * hq) as usize * width];
    let mut lse = vec![f64::NEG_INFINITY; (rows * hq) as usize];
    for batch in 0..b {
        for head in 0..hq {
            for i in 0..problem.lengths(batch)[0] {
                let (sum, row) = problem.row(batch, head, i);
                let [at, logarithm] = problem.places(batch, head, i);
                o[at * width..][..width].copy_from_slice(&row);
                lse[logarithm] = sum;
            }
        }
    }
    Ok((o, lse))
}

impl<'a> Problem<'a> {
    /// The problem of a configuration.
    ///
    /// # Errors
    ///
    /// Those of [`AttentionConfig::validate`] for functions.
    pub(crate) fn new(
        config: &'a AttentionConfig,
        sizes: &AttentionSizes,
        inputs: &Inputs<'a>,
    ) -> Result<Self, ConfigError> {
        let (score, attends) = config.functions()?;
        Ok(Problem { config, sizes: *sizes, inputs: *inputs, score, attends })
    }

    /// Rows of q in all, of a head.
    fn rows(&self) -> i64 {
        match self.config.varlen {
            true => self.inputs.places[0].last().copied().unwrap_or(0),
            false => self.sizes.b * self.sizes.sq,
        }
    }

    /// Queries and keys of a batch.
    pub(crate) fn lengths(&self, batch: i64) -> [i64; 2] {
        match self.config.varlen {
            true => self.inputs.places.map(|places| places[batch as usize + 1] - places[batch as usize]),
            false => [self.sizes.sq, self.sizes.sk],
        }
    }

    /// The row of an operand, of q (0) or of k and v (1).
    pub(crate) fn at(&self, which: usize, [batch, place, head]: [i64; 3]) -> usize {
        let AttentionSizes { hq, hk, sq, sk, .. } = self.sizes;
        let (heads, longest) = ([hq, hk][which], [sq, sk][which]);
        let row = match (self.config.varlen, self.config.modes) {
            (true, _) => (self.inputs.places[which][batch as usize] + place) * heads + head,
            (false, Modes::Bshd) => (batch * longest + place) * heads + head,
            (false, Modes::Bhsd) => (batch * heads + head) * longest + place,
        };
        row as usize
    }

    /// The row of o and the place in lse.
    fn places(&self, batch: i64, head: i64, i: i64) -> [usize; 2] {
        let logarithm = match self.config.varlen {
            true => head * self.rows() + self.inputs.places[0][batch as usize] + i,
            false => (batch * self.sizes.hq + head) * self.sizes.sq + i,
        };
        [self.at(0, [batch, i, head]), logarithm as usize]
    }

    /// A scalar of functions, or a size.
    fn scalar(&self, name: &str) -> f64 {
        let AttentionSizes { hq, hk, sq, sk, .. } = self.sizes;
        let sizes = [("hq", hq), ("hk", hk), ("sq", sq), ("sk", sk)];
        let size = sizes.iter().find(|(known, _)| *known == name).map(|(_, value)| *value as f64);
        let scalar = self.inputs.scalars.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        size.or(scalar).unwrap_or(f64::NAN)
    }

    /// The scale of q (0), k (1) or v (2) of a head of q.
    fn descale(&self, which: usize, batch: i64, head: i64) -> f64 {
        let AttentionSizes { hq, hk, .. } = self.sizes;
        let at = batch * hk + head / (hq / hk);
        if self.config.is_fp8() { self.inputs.descales[which][at as usize] } else { 1.0 }
    }

    /// The score of a query and a key; `None` if the one does not attend to the other.
    fn score(&self, place: [i64; 4]) -> Option<f64> {
        self.score_of(place).map(|(x, _)| x)
    }

    /// The score of a query and a key with its derivative by scale · q kᵀ; `None` if the one does not attend to the other.
    pub(crate) fn score_of(&self, [batch, head, i, j]: [i64; 4]) -> Option<(f64, f64)> {
        let (config, inputs) = (self.config, &self.inputs);
        let lengths = self.lengths(batch);
        let place = i + lengths[1] - lengths[0];
        let at = [place, j, head, batch];
        let holds = |mask: &Function| mask.eval(at, 0.0, &|name| self.scalar(name)) != 0.0;
        if !config.attends_to(place, j) || !self.attends.as_ref().is_none_or(holds) {
            return None;
        }
        let AttentionSizes { hq, hk, sq, sk, .. } = self.sizes;
        let d = config.d as usize;
        let query = &inputs.q[self.at(0, [batch, i, head]) * d..][..d];
        let key = &inputs.k[self.at(1, [batch, j, head / (hq / hk)]) * d..][..d];
        let descale = |which: usize| self.descale(which, batch, head);
        let (mut x, mut slope) = (
            inputs.scale * descale(0) * descale(1) * query.iter().zip(key).map(|(x, y)| x * y).sum::<f64>(),
            1.0,
        );
        if config.softcap {
            let tangent = (x / inputs.cap).tanh();
            (x, slope) = (inputs.cap * tangent, 1.0 - tangent * tangent);
        }
        if config.alibi {
            x += inputs.slopes[head as usize] * (j - place) as f64;
        }
        if config.bias {
            let [bb, bh] = inputs.matrices;
            let matrix = batch % bb * bh + head % bh;
            x += inputs.bias[((matrix * sq + i) * sk + j) as usize];
        }
        if let Some(score) = &self.score {
            let value = |x: f64| score.eval(at, x, &|name| self.scalar(name));
            // By differences, whatever the expression.
            let step = 1e-5 * (1.0 + x.abs());
            slope *= (value(x + step) - value(x - step)) / (2.0 * step);
            x = value(x);
        }
        (x != f64::NEG_INFINITY).then_some((x, slope))
    }

    /// The logarithm of the sum of exponentials of a query, and its row of o.
    fn row(&self, batch: i64, head: i64, i: i64) -> (f64, Vec<f64>) {
        let scores = (0..self.lengths(batch)[1]).map(|j| (j, self.score([batch, head, i, j])));
        let scores: Vec<(i64, f64)> = scores.filter_map(|(j, x)| x.map(|x| (j, x))).collect();
        let sink = self.config.sink.then(|| self.inputs.sinks[head as usize]);
        let most = scores.iter().map(|(_, x)| *x).chain(sink).fold(f64::NEG_INFINITY, f64::max);
        let width = self.config.values() as usize;
        let mut row = vec![0.0; width];
        let total: f64 = scores.iter().map(|(_, x)| *x).chain(sink).map(|x| (x - most).exp()).sum();
        for (j, x) in &scores {
            let of_key = head / (self.sizes.hq / self.sizes.hk);
            let value = &self.inputs.v[self.at(1, [batch, *j, of_key]) * width..][..width];
            let weight = (x - most).exp() / total * self.descale(2, batch, head);
            row.iter_mut().zip(value).for_each(|(o, v)| *o += weight * v);
        }
        let sum = if most == f64::NEG_INFINITY { most } else { most + total.ln() };
        (sum, row)
    }
}

/// Sizes at which tiles meet every kind of edge: single queries and keys, more queries than keys, shared heads, lengths beside tiles and blocks.
/// `rows` are the queries of a tile, `keys` the keys of a block.
pub fn edge_sizes(rows: i64, keys: i64) -> Vec<AttentionSizes> {
    let of = |[b, hq, hk, sq, sk]: [i64; 5]| AttentionSizes { b, hq, hk, sq, sk };
    [
        [1, 1, 1, 1, 1],
        [1, 2, 1, 17, 2 * keys + 3],
        [2, 3, 3, rows, keys],
        [1, 4, 2, rows + 1, rows + 1],
        [1, 1, 1, 2 * rows - 7, keys - 1],
        [2, 2, 1, 3, 3 * keys],
    ]
    .map(of)
    .to_vec()
}
