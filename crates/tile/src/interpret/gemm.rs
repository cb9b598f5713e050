//! Matrix products of tiles.

use std::cmp::Ordering;

use tilewright_machine::DType;

use super::bound::{self, Accumulation, Element};
use super::round;

/// A group of four elements along K whose places do not increase, or are none.
pub(super) struct Disorder {
    pub(super) row: usize,
    pub(super) group: usize,
    pub(super) places: [f64; 2],
}

/// The left factor of `m` rows of which `a` has two elements of every four along K, at the places that `meta` tells.
///
/// # Errors
///
/// The first group whose places do not increase.
pub(super) fn dense(a: &[Element], meta: &[Element], m: usize) -> Result<Vec<Element>, Disorder> {
    let mut all = vec![Element::exact(0.0); 2 * a.len()];
    for (group, (kept, places)) in a.chunks_exact(2 * m).zip(meta.chunks_exact(2 * m)).enumerate() {
        for row in 0..m {
            let at = [row, row + m];
            let places = at.map(|i| places[i].value);
            // What nothing has written is no number, and no place.
            if places[0].partial_cmp(&places[1]) != Some(Ordering::Less) {
                return Err(Disorder { row, group, places });
            }
            for (i, place) in at.into_iter().zip(places) {
                all[row + m * (4 * group + place as usize)] = kept[i];
            }
        }
    }
    Ok(all)
}

/// `c += a · bᵀ` with every tile's leftmost mode contiguous.
pub(super) fn gemm(c: &mut [Element], a: &[Element], b: &[Element], shape: [usize; 3], how: Accumulation) {
    let values = |tile: &[Element]| tile.iter().map(|x| x.value).collect::<Vec<f64>>();
    let mut sums = values(c);
    multiply(&mut sums, &values(a), &values(b), shape, how.sums);
    bound::product(c, &sums, [a, b], shape, how);
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
        match dtype {
            DType::I32 => column.iter_mut().for_each(|x| *x = wrap(*x)),
            _ => column.iter_mut().for_each(|x| *x = round(dtype, *x)),
        }
    }
}

/// An integer modulo 2³², as the tensor cores count.
fn wrap(x: f64) -> f64 {
    if x.is_nan() { x } else { f64::from(x as i64 as i32) }
}
