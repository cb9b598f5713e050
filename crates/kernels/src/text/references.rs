//! References of plain loops, in f64.

use super::{Sizes, Values};

/// A result of one name.
fn result(name: &str, values: Vec<f64>) -> Values {
    Values::from([(name.to_string(), values)])
}

/// The rows of a tensor whose last mode is the size `n`.
fn rows<'a>(sizes: &Sizes, values: &'a Values, name: &str) -> impl Iterator<Item = &'a [f64]> + use<'a> {
    values[name].chunks(sizes["n"] as usize)
}

/// A function of the elements of two tensors `a` and `b`.
fn of_pairs(values: &Values, f: impl Fn(f64, f64) -> f64) -> Values {
    result("y", values["a"].iter().zip(&values["b"]).map(|(a, b)| f(*a, *b)).collect())
}

/// A function of the rows of `x`.
fn of_rows(sizes: &Sizes, values: &Values, f: impl Fn(&[f64]) -> Vec<f64>) -> Values {
    result("y", rows(sizes, values, "x").flat_map(f).collect())
}

pub(super) fn copy(_: &Sizes, values: &Values) -> Values {
    result("y", values["x"].clone())
}

pub(super) fn silu_mul(_: &Sizes, values: &Values) -> Values {
    of_pairs(values, |a, b| a / (1.0 + (-a).exp()) * b)
}

pub(super) fn gelu_mul(_: &Sizes, values: &Values) -> Values {
    let inner = |a: f64| (2.0 / std::f64::consts::PI).sqrt() * (a + 0.044715 * a * a * a);
    of_pairs(values, |a, b| 0.5 * a * (1.0 + inner(a).tanh()) * b)
}

fn mean(row: &[f64]) -> f64 {
    row.iter().sum::<f64>() / row.len() as f64
}

fn rms_of(row: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
    let squares: Vec<f64> = row.iter().map(|x| x * x).collect();
    let scale = 1.0 / (mean(&squares) + eps).sqrt();
    row.iter().zip(w).map(|(x, w)| x * scale * w).collect()
}

pub(super) fn rmsnorm(sizes: &Sizes, values: &Values) -> Values {
    of_rows(sizes, values, |row| rms_of(row, &values["w"], values["eps"][0]))
}

pub(super) fn layernorm(sizes: &Sizes, values: &Values) -> Values {
    of_rows(sizes, values, |row| {
        let centre = mean(row);
        let centred: Vec<f64> = row.iter().map(|x| x - centre).collect();
        let scaled = rms_of(&centred, &values["w"], values["eps"][0]);
        scaled.iter().zip(&values["b"]).map(|(x, b)| x + b).collect()
    })
}

/// Sums of squares are taken of `h` as it is rounded, which the test gives back as a value: the reference of `y` is that of a norm of
/// the exact sum, and its tolerance has room for one rounding more.
pub(super) fn add_rmsnorm(sizes: &Sizes, values: &Values) -> Values {
    let h: Vec<f64> = values["x"].iter().zip(&values["r"]).map(|(x, r)| x + r).collect();
    let with = Values::from([
        ("x".to_string(), h.clone()),
        ("w".to_string(), values["w"].clone()),
        ("eps".to_string(), values["eps"].clone()),
    ]);
    let mut results = rmsnorm(sizes, &with);
    results.insert("h".to_string(), h);
    results
}

pub(super) fn transpose(sizes: &Sizes, values: &Values) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let turned = values["x"].chunks(m * n).flat_map(|x| (0..m * n).map(|i| x[i % m * n + i / m]));
    result("y", turned.collect())
}

pub(super) fn permute(sizes: &Sizes, values: &Values) -> Values {
    let (m, n, d) = (sizes["m"] as usize, sizes["n"] as usize, sizes["d"] as usize);
    let mut y = vec![0.0; values["x"].len()];
    for (at, row) in values["x"].chunks(d).enumerate() {
        let (l, i, j) = (at / (m * n), at / n % m, at % n);
        let to = ((l * n + j) * m + i) * d;
        y[to..to + d].copy_from_slice(row);
    }
    result("y", y)
}

/// Matrices times vectors.
pub(super) fn gemv(sizes: &Sizes, values: &Values) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let dot = |a: &[f64], x: &[f64]| a.iter().zip(x).map(|(a, x)| a * x).sum::<f64>();
    let pairs = values["a"].chunks(m * n).zip(values["x"].chunks(n));
    result("y", pairs.flat_map(|(a, x)| a.chunks(n).map(move |row| dot(row, x))).collect())
}

pub(super) fn sum_rows(sizes: &Sizes, values: &Values) -> Values {
    result("y", rows(sizes, values, "x").map(|row| row.iter().sum()).collect())
}

/// Quotients by scales of rows, or of blocks of columns of rows; the quotients are not rounded.
pub(super) fn quantise(sizes: &Sizes, values: &Values, block: Option<usize>, most: f64) -> Values {
    let block = block.unwrap_or(sizes["n"] as usize);
    let (mut y, mut scales) = (Vec::new(), Vec::new());
    for part in rows(sizes, values, "x").flat_map(|row| row.chunks(block)) {
        let top = part.iter().fold(0.0_f64, |top, x| top.max(x.abs()));
        let scale = (top / most).max(f64::from(f32::MIN_POSITIVE));
        scales.push(scale);
        y.extend(part.iter().map(|x| x / scale));
    }
    Values::from([("y".to_string(), y), ("s".to_string(), scales)])
}

/// Rotates the pairs `(x[first], x[second])` of heads of `d` numbers by the angles of their token.
fn rope(sizes: &Sizes, values: &Values, pair: impl Fn(usize, usize) -> (usize, usize)) -> Values {
    let d = sizes["d"] as usize;
    let heads = sizes["h"] as usize;
    let mut y = vec![0.0; values["x"].len()];
    for (at, x) in values["x"].chunks(d).enumerate() {
        let token = at / heads;
        for i in 0..d / 2 {
            let (c, s) = (values["cos"][token * (d / 2) + i], values["sin"][token * (d / 2) + i]);
            let (first, second) = pair(i, d);
            y[at * d + first] = x[first] * c - x[second] * s;
            y[at * d + second] = x[second] * c + x[first] * s;
        }
    }
    result("y", y)
}

pub(super) fn rope_half(sizes: &Sizes, values: &Values) -> Values {
    rope(sizes, values, |i, d| (i, i + d / 2))
}

pub(super) fn rope_interleaved(sizes: &Sizes, values: &Values) -> Values {
    rope(sizes, values, |i, _| (2 * i, 2 * i + 1))
}
