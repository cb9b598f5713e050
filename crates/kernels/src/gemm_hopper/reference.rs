//! What the product is, by plain loops, and the sizes at which it is tested.

use super::{Epilogue, HopperGemmConfig, Major, Part};

/// Sizes at which tiles of `bm` × `bn` × `bk` meet every kind of edge: one, one less and one more than a tile, rows that no
/// vector divides, and rows that tensor copies can take without being whole tiles.
pub fn edge_sizes(config: &HopperGemmConfig) -> Vec<[i64; 3]> {
    let HopperGemmConfig { bm, bn, bk, .. } = *config;
    let (rows, cols) = config.sides((bm, bn));
    vec![
        [1, 1, 1],
        [7, 65, 129],
        [rows, cols, bk * 2],
        [rows + 1, cols - 1, bk + 1],
        [2 * rows + 8, cols + 8, 3 * bk + 8],
        [rows - 8, 2 * cols + 24, bk - 8],
        [200, 129, 200],
    ]
}

/// The operands of an epilogue, those that it has: `l` products' vectors and matrices, one behind the other.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inputs {
    /// The factor of [`Part::Alpha`].
    pub alpha: f64,
    /// `[l, m]`.
    pub row_scale: Vec<f64>,
    /// `[l, n]`.
    pub col_scale: Vec<f64>,
    /// `[l, n]`.
    pub bias: Vec<f64>,
    /// `[l, m, n]`.
    pub residual: Vec<f64>,
}

/// A · Bᵀ in f64, row-major, for factors that lie as the configuration says: `l` products, one behind the other.
pub fn sums(config: &HopperGemmConfig, a: &[f64], b: &[f64], [l, m, n, k]: [usize; 4]) -> Vec<f64> {
    let step = |major: Major, rows: usize| if major == Major::K { (k, 1) } else { (1, rows) };
    let (a_steps, b_steps) = (step(config.a, m), step(config.b, n));
    let dot = |of: usize, i: usize, j: usize| -> f64 {
        let (a, b) = (&a[of * m * k..], &b[of * n * k..]);
        let product = |at: usize| a[i * a_steps.0 + at * a_steps.1] * b[j * b_steps.0 + at * b_steps.1];
        (0..k).map(product).sum()
    };
    let one =
        |of: usize| (0..m).flat_map(move |i| (0..n).map(move |j| (i, j))).map(move |(i, j)| dot(of, i, j));
    (0..l).flat_map(one).collect()
}

/// What the epilogue makes of sums, before it is rounded: all of C. Sums of its rows and columns are left to the caller.
pub fn finish(epilogue: &Epilogue, inputs: &Inputs, sums: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    let each = |(at, sum): (usize, &f64)| {
        let (row, col) = (at / n, at / (m * n) * n + at % n);
        epilogue.parts().fold(*sum, |v, part| {
            let operand = match part {
                Part::Alpha => inputs.alpha,
                Part::RowScale => inputs.row_scale[row],
                Part::ColScale => inputs.col_scale[col],
                Part::Bias => inputs.bias[col],
                Part::Residual => inputs.residual[at],
                _ => 0.0,
            };
            part.of(v, operand)
        })
    };
    sums.iter().enumerate().map(each).collect()
}
