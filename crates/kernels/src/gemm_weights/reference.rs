//! The product in plain loops, and sizes at which it meets every kind of edge.

use super::WeightsConfig;

/// The factors of a product, as numbers in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct Factors<'a> {
    /// Activations, `[m, k]`.
    pub a: &'a [f64],
    /// Weights, `[n, k]`.
    pub w: &'a [f64],
    /// Scales, `[groups, n]`.
    pub s: &'a [f64],
    /// Zero points, of the same shape; empty: there are none.
    pub z: &'a [f64],
}

/// C = A · (S ∘ (W − Z))ᵀ in f64, row-major; `group` as in [`WeightsConfig`].
pub fn reference(factors: Factors<'_>, [m, n, k]: [usize; 3], group: Option<usize>) -> Vec<f64> {
    let Factors { a, w, s, z } = factors;
    let group = group.unwrap_or(k);
    let weight = |row: usize, column: usize| {
        let at = column / group * n + row;
        (w[row * k + column] - z.get(at).copied().unwrap_or(0.0)) * s[at]
    };
    let weights: Vec<f64> = (0..n).flat_map(|row| (0..k).map(move |column| weight(row, column))).collect();
    let places = (0..m).flat_map(|i| (0..n).map(move |j| (i, j)));
    places.map(|(i, j)| (0..k).map(|l| a[i * k + l] * weights[j * k + l]).sum()).collect()
}

/// Sizes at which tiles meet every kind of edge: one, one less and one more than a tile, units of weights and groups that end beyond k.
pub fn edge_sizes(config: &WeightsConfig) -> Vec<[i64; 3]> {
    let WeightsConfig { bm: along_n, bn: along_m, bk, .. } = *config;
    vec![
        [1, 1, 1],
        [1, along_n, 2 * bk],
        [along_m, 2 * along_n, bk],
        [along_m + 1, along_n - 1, bk - 1],
        [along_m - 1, along_n + 8, 3 * bk + 8],
        [2 * along_m + 3, along_n + 65, bk + 17],
    ]
}
