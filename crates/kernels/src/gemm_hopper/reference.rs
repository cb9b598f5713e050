//! The product by plain loops, and the sizes at which it is tested.

use std::collections::BTreeMap;

use super::{HopperGemmConfig, Major};
use crate::epilogue::{Chain, Combine, EpilogueOp, OperandKind};

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

/// The operands of an epilogue, those that it has: `l` products' vectors and matrices, one behind the other; with groups, what belongs
/// to rows of A is there once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inputs {
    /// The factor of [`Part::Alpha`](super::Part::Alpha).
    pub alpha: f64,
    /// `[l, m]`.
    pub row_scale: Vec<f64>,
    /// `[l, n]`.
    pub col_scale: Vec<f64>,
    /// `[l, n]`.
    pub bias: Vec<f64>,
    /// `[l, m, n]`.
    pub residual: Vec<f64>,
    /// The factor of [`Part::Beta`](super::Part::Beta).
    pub beta: f64,
    /// `[l, m, n]`: what C holds beforehand.
    pub c: Vec<f64>,
    /// `[l, n]`, of [`dual_bias`](HopperGemmConfig::dual_bias).
    pub gate_bias: Vec<f64>,
    /// `[l, n]`.
    pub up_bias: Vec<f64>,
    /// The operands of one's own operations, by name.
    pub custom: BTreeMap<String, Vec<f64>>,
}

impl Inputs {
    pub(crate) fn named(&self, name: &str) -> &[f64] {
        match name {
            "alpha" => std::slice::from_ref(&self.alpha),
            "row_scale" => &self.row_scale,
            "col_scale" => &self.col_scale,
            "bias" => &self.bias,
            "residual" => &self.residual,
            "beta" => std::slice::from_ref(&self.beta),
            "c" => &self.c,
            "gate_bias" => &self.gate_bias,
            "up_bias" => &self.up_bias,
            name => self.custom.get(name).map_or(&[], Vec::as_slice),
        }
    }
}

/// The matrix B that a row of C belongs to, where rows are counted through all products of `m` rows; `None`: rows of padding, and
/// those of a group that there is not among `l`. `groups` has the group of each row, where there are groups.
fn matrix_of(config: &HopperGemmConfig, groups: &[i64], [l, m]: [usize; 2], row: usize) -> Option<usize> {
    if !config.batch.has_groups() {
        return Some(row / m);
    }
    usize::try_from(groups[row]).ok().filter(|group| *group < l)
}

/// A · Bᵀ in f64, row-major (of complex numbers real and imaginary parts side by side, as in the factors), for factors that lie as the configuration says
/// (B as A, where they are one): `l` products, one behind the other; or one, with `l` matrices B of which each row of A has the one that `groups` says, and none where that is negative.
pub fn sums(
    config: &HopperGemmConfig,
    a: &[f64],
    b: &[f64],
    groups: &[i64],
    [l, m, n, k]: [usize; 4],
) -> Vec<f64> {
    if config.complex {
        return complex_sums(config, a, b, groups, [l, m, n, k]);
    }
    let step = |major: Major, rows: usize| if major == Major::K { (k, 1) } else { (1, rows) };
    let major_of_b = if config.squares() { config.a } else { config.b };
    let (a_steps, b_steps) = (step(config.a, m), step(major_of_b, n));
    let dot = |row: usize, j: usize| -> f64 {
        let Some(of) = matrix_of(config, groups, [l, m], row) else { return 0.0 };
        let (a, b) = (&a[row / m * m * k..], &b[of * n * k..]);
        let product = |at: usize| a[row % m * a_steps.0 + at * a_steps.1] * b[j * b_steps.0 + at * b_steps.1];
        (0..k).map(product).sum()
    };
    let rows = if config.batch.has_groups() { m } else { l * m };
    (0..rows).flat_map(|row| (0..n).map(move |j| (row, j))).map(|(row, j)| dot(row, j)).collect()
}

/// The same of complex numbers.
fn complex_sums(
    config: &HopperGemmConfig,
    a: &[f64],
    b: &[f64],
    groups: &[i64],
    sizes: [usize; 4],
) -> Vec<f64> {
    let part = |of: &[f64], part: usize| of.iter().skip(part).step_by(2).copied().collect::<Vec<f64>>();
    let real = HopperGemmConfig { complex: false, ..*config };
    let product = |x: usize, y: usize| sums(&real, &part(a, x), &part(b, y), groups, sizes);
    let sign = |conjugate: bool| if conjugate { -1.0 } else { 1.0 };
    let (of_a, of_b) = (sign(config.conj_a), sign(config.conj_b));
    let (re_re, im_im, re_im, im_re) = (product(0, 0), product(1, 1), product(0, 1), product(1, 0));
    let parts = |i: usize| [re_re[i] - of_a * of_b * im_im[i], of_b * re_im[i] + of_a * im_re[i]];
    (0..re_re.len()).flat_map(parts).collect()
}

/// The sums of the rows of A: of each product's, one behind the other; with groups 0 of rows that have none.
pub fn row_sums(config: &HopperGemmConfig, a: &[f64], groups: &[i64], [l, m, k]: [usize; 3]) -> Vec<f64> {
    let (down, across) = if config.a == Major::K { (k, 1) } else { (1, m) };
    let rows = if config.batch.has_groups() { m } else { l * m };
    let sum = |row: usize| -> f64 {
        let a = &a[row / m * m * k..];
        matrix_of(config, groups, [l, m], row)
            .map_or(0.0, |_| (0..k).map(|at| a[row % m * down + at * across]).sum())
    };
    (0..rows).map(sum).collect()
}

/// The values that the [`sums`] of products with B and with the second matrix become: those of B where there is no second.
pub fn combined(
    config: &HopperGemmConfig,
    inputs: &Inputs,
    [gate, up]: [&[f64]; 2],
    groups: &[i64],
    [l, m, n]: [usize; 3],
) -> Vec<f64> {
    let bias = |name: &str, at: usize| {
        let place = matrix_of(config, groups, [l, m], at / n).map(|of| of * n + at % n);
        let of_sum = |place| inputs.named(name).get(place).copied();
        place.filter(|_| config.dual_bias).and_then(of_sum).unwrap_or(0.0)
    };
    let each = |(at, gate): (usize, &f64)| match config.combine() {
        Some(combine) => {
            let [of_gate, of_up] = Combine::BIASES.map(|name| bias(name, at));
            combine.reference([gate + of_gate, up[at] + of_up])
        }
        None if config.dual.matrices() > 1 => gate + up[at],
        None => *gate,
    };
    gate.iter().enumerate().map(each).collect()
}

/// All of C before it is rounded: the sums, [`combined`] if they are of two products, after the epilogue. Sums of its rows and columns are left to the caller.
pub fn finish(
    config: &HopperGemmConfig,
    inputs: &Inputs,
    sums: &[f64],
    groups: &[i64],
    sizes: [usize; 3],
) -> Vec<f64> {
    finish_with(config, &[], inputs, sums, groups, sizes)
}

/// The same with operations of the caller's own. An operand that is not among the inputs, or too short, is 0.
pub fn finish_with(
    config: &HopperGemmConfig,
    custom: &[&dyn EpilogueOp],
    inputs: &Inputs,
    sums: &[f64],
    groups: &[i64],
    [l, m, n]: [usize; 3],
) -> Vec<f64> {
    let [_, n, _] = config.real([0, n as i64, 0]).map(|size| size as usize);
    // A function that does not read has no program either.
    let own = config.user_function().ok().flatten();
    let own = own.iter().map(|function| &**function as &dyn EpilogueOp);
    let custom: Vec<&dyn EpilogueOp> = own.chain(custom.iter().copied()).collect();
    let chain = Chain::new(&config.epilogue, &custom);
    let ops: Vec<_> = chain.ops.iter().map(|op| (op, op.operands(config.result()))).collect();
    let each = |(at, sum): (usize, &f64)| {
        let (row, col) = (at / n, at % n);
        let place = |kind: OperandKind| match kind {
            OperandKind::Scalar(_) => Some(0),
            OperandKind::Row => Some(row),
            OperandKind::Column => matrix_of(config, groups, [l, m], row).map(|of| of * n + col),
            OperandKind::Matrix | OperandKind::Result => Some(at),
        };
        ops.iter().fold(*sum, |v, (op, operands)| {
            let value = |name: &str, kind| {
                place(kind).and_then(|place| inputs.named(name).get(place)).copied().unwrap_or(0.0)
            };
            let operands: Vec<f64> = operands.iter().map(|o| value(&o.name, o.kind)).collect();
            op.reference(v, &operands, [row % m, col])
        })
    };
    sums.iter().enumerate().map(each).collect()
}
