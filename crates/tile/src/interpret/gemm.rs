//! Matrix products of tiles.

use std::borrow::Cow;

use tilewright_machine::DType;

use super::bound::{self, Accumulation, Element};
use super::round;
use crate::arith::Compute;
use crate::program::BinaryOp;

/// A group of four elements along K whose places do not increase, or are none.
pub(super) struct Disorder {
    pub(super) row: usize,
    pub(super) group: usize,
    pub(super) places: [f64; 2],
}

/// The left factor of a product.
pub(super) struct Left<'t> {
    /// All its elements; those that a sparse one leaves out are 0.
    pub(super) all: Cow<'t, [Element]>,
    /// Of a sparse one, which elements it has: the others are in no term, so that an infinity of the right factor meets no 0 there.
    pub(super) has: Option<Vec<bool>>,
}

impl<'t> Left<'t> {
    /// A factor that has all its elements.
    pub(super) fn dense(all: &'t [Element]) -> Self {
        Left { all: Cow::Borrowed(all), has: None }
    }

    /// The factor of `m` rows of which `a` has two elements of every four along K, at the places that `meta` tells.
    ///
    /// # Errors
    ///
    /// The first group whose places do not increase.
    pub(super) fn sparse(a: &[Element], meta: &[Element], m: usize) -> Result<Self, Disorder> {
        let mut all = vec![Element::exact(0.0); 2 * a.len()];
        let mut has = vec![false; all.len()];
        for (group, (kept, places)) in a.chunks_exact(2 * m).zip(meta.chunks_exact(2 * m)).enumerate() {
            for row in 0..m {
                let at = [row, row + m];
                let places = at.map(|i| places[i].value);
                // What nothing has written is no number, and no place.
                let increase = places[0] < places[1];
                if !increase {
                    return Err(Disorder { row, group, places });
                }
                for (i, place) in at.into_iter().zip(places) {
                    let to = row + m * (4 * group + place as usize);
                    (all[to], has[to]) = (kept[i], true);
                }
            }
        }
        Ok(Left { all: Cow::Owned(all), has: Some(has) })
    }

    /// True if the factor has the element of this index.
    pub(super) fn has(&self, index: usize) -> bool {
        self.has.as_ref().is_none_or(|has| has[index])
    }
}

/// The factor of so many rows whose elements are multiplied by the scales of their blocks along K, exactly: a scale has eight bits of an exponent
/// or four of a mantissa, and a number of an `f64` holds both. A row has so many `blocks`; there may be scales of more rows than the factor has.
pub(super) fn scaled(factor: &[Element], scales: &[Element], rows: usize, blocks: usize) -> Vec<Element> {
    let (block, apart) = (factor.len() / (rows * blocks).max(1), scales.len() / blocks.max(1));
    let of = |i: usize| scales[i / rows / block * apart + i % rows];
    factor.iter().enumerate().map(|(i, x)| Element::binary(BinaryOp::Mul, Compute::F64, *x, of(i))).collect()
}

/// `c += a · bᵀ` with every tile's leftmost mode contiguous.
pub(super) fn gemm(c: &mut [Element], mut a: Left<'_>, b: &[Element], shape: [usize; 3], how: Accumulation) {
    let values = |tile: &[Element]| tile.iter().map(|x| x.value).collect::<Vec<f64>>();
    if let Cow::Owned(read) = how.read(&a.all) {
        a.all = Cow::Owned(read);
    }
    let b = how.read(b);
    let mut sums = values(c);
    let (left, right) = (values(&a.all), values(&b));
    match &a.has {
        Some(has) if right.iter().any(|x| !x.is_finite()) => {
            multiply_kept(&mut sums, (&left, has), &right, shape, how.sums);
        }
        _ => multiply(&mut sums, &left, &right, shape, how.sums),
    }
    bound::product(c, &sums, (&a, &b), shape, how);
}

/// `c += a · bᵀ` of a left factor that has some of its elements.
fn multiply_kept(c: &mut [f64], (a, has): (&[f64], &[bool]), b: &[f64], [m, n, _]: [usize; 3], dtype: DType) {
    for (j, column) in c.chunks_exact_mut(m).enumerate() {
        for ((a, has), b) in a.chunks_exact(m).zip(has.chunks_exact(m)).zip(b[j..].iter().step_by(n)) {
            for ((x, a), _) in column.iter_mut().zip(a).zip(has).filter(|(_, has)| **has) {
                *x += a * b;
            }
        }
        finish(column, dtype);
    }
}

/// `c += a · bᵀ`: a column of `c` takes multiples of columns of `a`.
fn multiply(c: &mut [f64], a: &[f64], b: &[f64], [m, n, k]: [usize; 3], dtype: DType) {
    for (j, column) in c.chunks_exact_mut(m).enumerate() {
        let mut p = 0;
        while p + 4 <= k {
            let factors = [0, 1, 2, 3].map(|i| b[j + (p + i) * n]);
            let [a0, a1, a2, a3] = [0, 1, 2, 3].map(|i| &a[(p + i) * m..][..m]);
            for ((((x, a0), a1), a2), a3) in column.iter_mut().zip(a0).zip(a1).zip(a2).zip(a3) {
                *x += (a0 * factors[0] + a1 * factors[1]) + (a2 * factors[2] + a3 * factors[3]);
            }
            p += 4;
        }
        while p < k {
            let factor = b[j + p * n];
            for (x, y) in column.iter_mut().zip(&a[p * m..][..m]) {
                *x += y * factor;
            }
            p += 1;
        }
        finish(column, dtype);
    }
}

/// Rounds sums to their type.
fn finish(sums: &mut [f64], dtype: DType) {
    match dtype {
        DType::I32 => sums.iter_mut().for_each(|x| *x = wrap(*x)),
        _ => sums.iter_mut().for_each(|x| *x = round(dtype, *x)),
    }
}

/// An integer modulo 2³², as the tensor cores count.
fn wrap(x: f64) -> f64 {
    if x.is_nan() { x } else { f64::from(x as i64 as i32) }
}
