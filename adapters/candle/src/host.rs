//! References on the host: plain loops in f64, rounded once to the type of the result.

use candle_core::{CpuStorage, DType, Error, Layout, Result};
use half::{bf16, f16};
use rayon::prelude::*;

/// The elements of an operand, in row-major order.
pub(crate) fn read(storage: &CpuStorage, layout: &Layout, operator: &'static str) -> Result<Vec<f64>> {
    let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: operator })?;
    Ok(match storage {
        CpuStorage::U8(values) => values[from..to].iter().map(|value| f64::from(*value)).collect(),
        CpuStorage::U32(values) => values[from..to].iter().map(|value| f64::from(*value)).collect(),
        CpuStorage::I32(values) => values[from..to].iter().map(|value| f64::from(*value)).collect(),
        CpuStorage::F16(values) => values[from..to].iter().map(|value| value.to_f64()).collect(),
        CpuStorage::BF16(values) => values[from..to].iter().map(|value| value.to_f64()).collect(),
        CpuStorage::F32(values) => values[from..to].iter().map(|value| f64::from(*value)).collect(),
        CpuStorage::F64(values) => values[from..to].to_vec(),
        other => {
            use candle_core::backend::BackendStorage;
            return Err(Error::UnsupportedDTypeForOp(other.dtype(), operator).bt());
        }
    })
}

/// A result of a type.
pub(crate) fn write(values: &[f64], dtype: DType, operator: &'static str) -> Result<CpuStorage> {
    Ok(match dtype {
        DType::F16 => CpuStorage::F16(values.iter().map(|value| f16::from_f64(*value)).collect()),
        DType::BF16 => CpuStorage::BF16(values.iter().map(|value| bf16::from_f64(*value)).collect()),
        DType::F32 => CpuStorage::F32(values.iter().map(|value| *value as f32).collect()),
        DType::F64 => CpuStorage::F64(values.to_vec()),
        DType::U8 => CpuStorage::U8(values.iter().map(|value| *value as u8).collect()),
        other => return Err(Error::UnsupportedDTypeForOp(other, operator).bt()),
    })
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Rows as columns: `x[rows, columns]` becomes `[columns, rows]`.
pub(crate) fn transposed(x: &[f64], [rows, columns]: [usize; 2]) -> Vec<f64> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| x[row * columns + column])).collect()
}

/// `a[m, k] · b[n, k]ᵀ`.
pub(crate) fn product(a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    c.par_chunks_mut(n).zip(a.par_chunks(k)).for_each(|(c, a)| {
        c.iter_mut().zip(b.chunks(k)).for_each(|(c, b)| *c = dot(a, b));
    });
    c
}

/// Softmax of rows of `n`.
pub(crate) fn softmax(x: &[f64], n: usize) -> Vec<f64> {
    let mut y = x.to_vec();
    y.chunks_mut(n).for_each(|row| {
        softmax_row(row);
    });
    y
}

/// Softmax of a row in its place; returns the logarithm of the sum of exponentials. A row of −∞ becomes zeros.
fn softmax_row(row: &mut [f64]) -> f64 {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        row.fill(0.0);
        return top;
    }
    row.iter_mut().for_each(|value| *value = (*value - top).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|value| *value /= sum);
    top + sum.ln()
}

/// The mean of a row and the reciprocal of its deviation; about 0 if `centred` is false.
fn moments(row: &[f64], eps: f64, centred: bool) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = if centred { row.iter().sum::<f64>() / n } else { 0.0 };
    let variance = row.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    (mean, 1.0 / (variance + eps).sqrt())
}

/// A norm of rows: `(x − mean) · s · w + b`; without `b` about 0, as rms norms are.
pub(crate) fn norm(x: &[f64], w: &[f64], b: Option<&[f64]>, eps: f64) -> Vec<f64> {
    let mut y = Vec::with_capacity(x.len());
    for row in x.chunks(w.len()) {
        let (mean, s) = moments(row, eps, b.is_some());
        let shift = |column: usize| b.map_or(0.0, |b| b[column]);
        y.extend(row.iter().zip(w).enumerate().map(|(column, (x, w))| (x - mean) * s * w + shift(column)));
    }
    y
}

/// The gradients of x, w and b of a norm, from that of the result.
pub(crate) fn norm_backward(x: &[f64], w: &[f64], dy: &[f64], eps: f64, centred: bool) -> [Vec<f64>; 3] {
    let n = w.len();
    let (mut dx, mut dw, mut db) = (Vec::with_capacity(x.len()), vec![0.0; n], vec![0.0; n]);
    for (row, dy) in x.chunks(n).zip(dy.chunks(n)) {
        let (mean, s) = moments(row, eps, centred);
        let unit: Vec<f64> = row.iter().map(|x| (x - mean) * s).collect();
        let g: Vec<f64> = dy.iter().zip(w).map(|(d, w)| d * w).collect();
        let along = dot(&g, &unit) / n as f64;
        let level = if centred { g.iter().sum::<f64>() / n as f64 } else { 0.0 };
        dx.extend(g.iter().zip(&unit).map(|(g, u)| s * (g - level - u * along)));
        for column in 0..n {
            dw[column] += dy[column] * unit[column];
            db[column] += dy[column];
        }
    }
    [dx, dw, db]
}

/// The extents of attention: batches, queries, keys, heads of queries, heads of keys, and elements of a head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub(crate) b: usize,
    pub(crate) sq: usize,
    pub(crate) sk: usize,
    pub(crate) hq: usize,
    pub(crate) hk: usize,
    pub(crate) d: usize,
}

impl Heads {
    /// The elements of a query's head in `[b, sq, hq, d]`.
    fn query(&self, b: usize, i: usize, h: usize) -> std::ops::Range<usize> {
        let at = ((b * self.sq + i) * self.hq + h) * self.d;
        at..at + self.d
    }

    /// The elements of the key for a query's head in `[b, sk, hk, d]`.
    fn key(&self, b: usize, j: usize, h: usize) -> std::ops::Range<usize> {
        let at = ((b * self.sk + j) * self.hk + h * self.hk / self.hq) * self.d;
        at..at + self.d
    }

    /// The keys that a query attends to: queries stand at the end of the keys, and a window has so many up to its own place.
    fn keys(&self, i: usize, window: Option<Option<usize>>) -> std::ops::Range<usize> {
        let Some(window) = window else { return 0..self.sk };
        let end = (i + self.sk + 1).saturating_sub(self.sq).min(self.sk);
        end.saturating_sub(window.unwrap_or(end))..end
    }
}

/// The keys that queries attend to: all of them, those up to their own place, or so many of those.
pub(crate) type Seen = Option<Option<usize>>;

/// Attention, and the logarithms of the sums of exponentials, `[b, hq, sq]`.
pub(crate) fn attention(
    q: &[f64],
    k: &[f64],
    v: &[f64],
    heads: Heads,
    scale: f64,
    seen: Seen,
) -> [Vec<f64>; 2] {
    let (mut o, mut lse) = (vec![0.0; q.len()], vec![0.0; heads.b * heads.hq * heads.sq]);
    for (b, h, i) in places(heads) {
        let keys = heads.keys(i, seen);
        let query = heads.query(b, i, h);
        let mut weights: Vec<f64> =
            keys.clone().map(|j| scale * dot(&q[query.clone()], &k[heads.key(b, j, h)])).collect();
        lse[(b * heads.hq + h) * heads.sq + i] = softmax_row(&mut weights);
        for (j, weight) in keys.zip(weights) {
            o[query.clone()].iter_mut().zip(&v[heads.key(b, j, h)]).for_each(|(o, v)| *o += weight * v);
        }
    }
    [o, lse]
}

/// The gradients of q, k and v.
pub(crate) fn attention_backward(
    [q, k, v, o, dout, lse]: [&[f64]; 6],
    heads: Heads,
    scale: f64,
    seen: Seen,
) -> [Vec<f64>; 3] {
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for (b, h, i) in places(heads) {
        let query = heads.query(b, i, h);
        let sum = lse[(b * heads.hq + h) * heads.sq + i];
        let delta = dot(&o[query.clone()], &dout[query.clone()]);
        for j in heads.keys(i, seen) {
            let key = heads.key(b, j, h);
            let weight = (scale * dot(&q[query.clone()], &k[key.clone()]) - sum).exp();
            let of_score = scale * weight * (dot(&dout[query.clone()], &v[key.clone()]) - delta);
            for e in 0..heads.d {
                dv[key.start + e] += weight * dout[query.start + e];
                dq[query.start + e] += of_score * k[key.start + e];
                dk[key.start + e] += of_score * q[query.start + e];
            }
        }
    }
    [dq, dk, dv]
}

fn places(heads: Heads) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..heads.b).flat_map(move |b| (0..heads.hq).flat_map(move |h| (0..heads.sq).map(move |i| (b, h, i))))
}

/// Puts a result into the place of an operand of its type.
pub(crate) fn put(
    into: &mut CpuStorage,
    layout: &Layout,
    result: CpuStorage,
    operator: &'static str,
) -> Result<()> {
    use candle_core::backend::BackendStorage;
    let (from, to) = layout.contiguous_offsets().ok_or(Error::RequiresContiguous { op: operator })?;
    match (into, result) {
        (CpuStorage::F16(into), CpuStorage::F16(result)) => into[from..to].copy_from_slice(&result),
        (CpuStorage::BF16(into), CpuStorage::BF16(result)) => into[from..to].copy_from_slice(&result),
        (CpuStorage::F32(into), CpuStorage::F32(result)) => into[from..to].copy_from_slice(&result),
        (CpuStorage::F64(into), CpuStorage::F64(result)) => into[from..to].copy_from_slice(&result),
        (into, _) => return Err(Error::UnsupportedDTypeForOp(into.dtype(), operator).bt()),
    }
    Ok(())
}
