//! The operators by plain loops.

use super::combine::MoeCombineConfig;
use super::quantise::MoeQuantiseConfig;
use super::quantise_rows::MoeQuantiseRowsConfig;
use super::routing::{MoeRoutingConfig, Scores};
use super::sort::MoeSortConfig;

/// The experts of tokens.
#[derive(Clone, PartialEq, Debug)]
pub struct Routed {
    /// `[tokens, k]`.
    pub ids: Vec<i64>,
    /// `[tokens, k]`.
    pub weights: Vec<f64>,
    /// The numbers that the experts were chosen by, `[tokens, experts]`: −∞ of those that were excluded.
    pub chosen_by: Vec<f64>,
}

/// The place of the largest number, the first of equal ones.
fn largest(numbers: &[f64]) -> usize {
    (1..numbers.len()).fold(0, |best, i| if numbers[i] > numbers[best] { i } else { best })
}

/// The experts of tokens with these logits, `[tokens, experts]`.
pub fn route(config: &MoeRoutingConfig, logits: &[f64], bias: &[f64], scale: f64) -> Routed {
    let mut routed = Routed { ids: Vec::new(), weights: Vec::new(), chosen_by: Vec::new() };
    let each = (config.experts / config.groups) as usize;
    for logits in logits.chunks(config.experts as usize) {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|x| (x - most).exp()).sum();
        let score = |x: f64| match config.scores {
            Scores::Softmax => (x - most).exp() / total,
            Scores::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        };
        let mut choice: Vec<f64> = match config.bias {
            true => logits.iter().zip(bias).map(|(x, bias)| score(*x) + bias).collect(),
            false => logits.to_vec(),
        };
        if config.groups > 1 {
            let of_group = |group: &[f64]| {
                let mut sorted = group.to_vec();
                sorted.sort_by(|a, b| b.total_cmp(a));
                if config.bias { sorted[0] + sorted[1] } else { sorted[0] }
            };
            let mut groups: Vec<f64> = choice.chunks(each).map(of_group).collect();
            let mut open = vec![false; groups.len()];
            for _ in 0..config.best_groups {
                let best = largest(&groups);
                (open[best], groups[best]) = (true, f64::NEG_INFINITY);
            }
            let closed = choice.iter_mut().enumerate().filter(|(i, _)| !open[i / each]);
            closed.for_each(|(_, choice)| *choice = f64::NEG_INFINITY);
        }
        routed.chosen_by.extend(&choice);
        let mut weights = Vec::new();
        for _ in 0..config.k {
            let best = largest(&choice);
            choice[best] = f64::NEG_INFINITY;
            routed.ids.push(best as i64);
            weights.push(score(logits[best]));
        }
        let sum: f64 = if config.renormalise { weights.iter().sum() } else { 1.0 };
        routed.weights.extend(weights.iter().map(|weight| weight / sum * scale));
    }
    routed
}

/// The order of tokens by expert.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sorted {
    /// The token of each row, −1 of padding behind an expert's last; `None`: not written.
    pub rows: Vec<Option<i64>>,
    /// The row of each expert of a token, −1 where the expert lies elsewhere.
    pub places: Vec<i64>,
    /// The expert of each tile, −1 of an unused one.
    pub groups: Vec<i64>,
    /// The first row of each tile, 0 of an unused one.
    pub first: Vec<i64>,
    /// The row behind each expert's last.
    pub ends: Vec<i64>,
}

/// Rows and tiles of a product by groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Places {
    /// Rows: the size `m`.
    pub rows: i64,
    /// Tiles of rows: the size `t`.
    pub tiles: i64,
}

impl MoeSortConfig {
    /// The most rows and tiles that so many tokens can have, whichever experts they have.
    pub fn places(&self, tokens: i64) -> Places {
        let all = tokens * self.k;
        let used = self.experts.min(all);
        let tiles = (all + used * (self.tile - 1)) / self.tile;
        Places { rows: if self.padded { tiles * self.tile } else { all }, tiles }
    }
}

/// The order of the experts `ids[tokens, k]` of tokens; `map` has the numbers that experts have here.
pub fn sort(config: &MoeSortConfig, ids: &[i64], map: Option<&[i64]>) -> Sorted {
    let Places { rows, tiles } = config.places(ids.len() as i64 / config.k);
    let here = |id: &i64| {
        let local = match map {
            Some(map) => usize::try_from(*id).ok().and_then(|id| map.get(id)).copied().unwrap_or(-1),
            None => *id,
        };
        (0..config.experts).contains(&local).then_some(local)
    };
    let local: Vec<Option<i64>> = ids.iter().map(here).collect();
    let mut sorted = Sorted {
        rows: vec![None; rows as usize],
        places: vec![-1; ids.len()],
        groups: vec![-1; tiles as usize],
        first: vec![0; tiles as usize],
        ends: Vec::new(),
    };
    let (mut row, mut tile) = (0, 0);
    for expert in 0..config.experts {
        let begin = row;
        for (place, _) in local.iter().enumerate().filter(|(_, local)| **local == Some(expert)) {
            sorted.rows[row] = Some(place as i64 / config.k);
            sorted.places[place] = row as i64;
            row += 1;
        }
        sorted.ends.push(row as i64);
        for first in (begin..row).step_by(config.tile as usize) {
            (sorted.groups[tile], sorted.first[tile]) = (expert, first as i64);
            tile += 1;
        }
        while config.padded && row as i64 % config.tile != 0 {
            sorted.rows[row] = Some(-1);
            row += 1;
        }
    }
    sorted
}

/// The gated units of `x[m, 2 · n]`.
pub fn gate(x: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    let unit = |row: usize, column: usize| {
        let (gate, up) = (x[2 * row * n + column], x[(2 * row + 1) * n + column]);
        gate / (1.0 + (-gate).exp()) * up
    };
    (0..m).flat_map(|row| (0..n).map(move |column| (row, column))).map(|(i, j)| unit(i, j)).collect()
}

/// The quotients of `x[m, n]`, or of gated units of `x[m, 2 · n]`, by their scales, not rounded, and the scales `[⌈n / 128⌉, m]`.
pub fn quantise(config: &MoeQuantiseConfig, x: &[f64], [m, n]: [usize; 2]) -> (Vec<f64>, Vec<f64>) {
    let deep = n.div_ceil(128);
    let values = if config.gated { gate(x, [m, n]) } else { x.to_vec() };
    let value = |row: usize, column: usize| values[row * n + column];
    let (mut y, mut s) = (vec![0.0; m * n], vec![0.0; deep * m]);
    for row in 0..m {
        for block in 0..deep {
            let columns = block * 128..((block + 1) * 128).min(n);
            let most = columns.clone().map(|column| value(row, column).abs()).fold(0.0, f64::max);
            let scale = (most / 448.0).max(f64::from(f32::MIN_POSITIVE));
            s[block * m + row] = scale;
            columns.for_each(|column| y[row * n + column] = value(row, column) / scale);
        }
    }
    (y, s)
}

/// The quotients of rows `x[m, n]` by their scales, not rounded, and the scales `[m]`.
pub fn quantise_rows(config: &MoeQuantiseRowsConfig, x: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let scale = |row: &[f64]| {
        let most = row.iter().map(|x| x.abs()).fold(0.0, f64::max);
        (most / config.most()).max(f64::from(f32::MIN_POSITIVE))
    };
    let s: Vec<f64> = x.chunks(n).map(scale).collect();
    let y = x.chunks(n).zip(&s).flat_map(|(row, s)| row.iter().map(move |x| x / s)).collect();
    (y, s)
}

/// The sums of the results `c[m, n]` of tokens' experts.
pub fn combine(config: &MoeCombineConfig, c: &[f64], n: usize, places: &[i64], weights: &[f64]) -> Vec<f64> {
    let k = config.k as usize;
    let sum = |token: usize, column: usize| {
        let of = |place: usize| {
            let row = usize::try_from(places[place]).ok()?;
            Some(if config.weighted { weights[place] } else { 1.0 } * c[row * n + column])
        };
        (token * k..(token + 1) * k).filter_map(of).sum()
    };
    (0..places.len() / k)
        .flat_map(|token| (0..n).map(move |column| (token, column)))
        .map(|(t, j)| sum(t, j))
        .collect()
}
