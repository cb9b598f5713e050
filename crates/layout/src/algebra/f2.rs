//! The algebra over bit strings: composition on the right, inverses and nullspace by elimination over F2 (paper 2.4.4,
//! tables 5 and 6). Bits count from the lowest, as coordinates do.

use super::compose::{Parts, assemble};
use crate::error::{Condition, LayoutError};
use crate::layout::Layout;
use crate::stride::{F2, Stride};
use crate::work;

/// Domains of at most this size are decided at every coordinate.
const POINTWISE: i64 = 1 << 16;

/// The layout over bit strings with the same values (paper 2.4.4): an offset `x` becomes `f_x`.
///
/// The law: `to_f2(L)(c) = f_{L(c)}` at every coordinate. An error where adding offsets carries, so that no layout of
/// that shape has these values, or where an offset is negative; a leaf that is a power of two is split where that helps.
///
/// ```
/// use tilewright_layout::{Layout, to_f2};
/// assert_eq!(to_f2(&"(8,4):(1,8)".parse()?)?.to_string(), "(8,4):(f1,f8)");
/// assert!(to_f2(&"(2,2):(1,1)".parse()?).is_err());
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn to_f2(layout: &Layout) -> Result<Layout<F2>, LayoutError> {
    to_f2_of(layout, |x| x)
}

/// [`to_f2`] of the layout followed by a function.
pub(super) fn to_f2_of(layout: &Layout, f: impl Fn(i64) -> i64) -> Result<Layout<F2>, LayoutError> {
    let value = |i: i64| u64::try_from(f(layout.checked_eval(i).ok()?)).ok().map(F2);
    through(layout, "conversion to bit strings", layout.shape().leaf_count(), value)
}

/// The layout of integers with the same values, the other way around than [`to_f2`].
pub fn from_f2(layout: &Layout<F2>) -> Result<Layout, LayoutError> {
    through(layout, "conversion to integers", layout.shape().leaf_count(), |i| {
        i64::try_from(layout.eval(i).0).ok()
    })
}

/// The composition `A ∘ B` with a `B` that gives bit strings, read as integral coordinates of `A` (paper 3.3.2: "special
/// care must be taken").
///
/// The laws are those of [`compose`](crate::compose): the shape of the result refines that of `B`, and
/// `R(c) = A(B(c))`. An error where no layout over `A`'s strides has these values, and for domains of more than 2^16
/// coordinates where not every extent is a power of two.
///
/// ```
/// use tilewright_layout::{F2, Layout, compose_f2};
/// let a: Layout<F2> = "16:f1".parse()?;
/// let b: Layout<F2> = "(4,4):(f1,f5)".parse()?;
/// assert_eq!(compose_f2(&a, &b)?, b);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn compose_f2<S: Stride>(a: &Layout<S>, b: &Layout<F2>) -> Result<Layout<S>, LayoutError> {
    let index = |i: i64| i64::try_from(b.eval(i).0).ok();
    let cost = a.shape().leaf_count() + b.shape().leaf_count();
    through(b, "composition", cost, |i| a.checked_eval(index(i)?).ok()).map_err(|_| {
        LayoutError::Composition {
            a: a.to_string(),
            b: b.to_string(),
            condition: Condition::Linearity,
            mode: 0,
            detail: "the strides of B add by exclusive or, and A is not linear over that".to_string(),
        }
    })
}

/// The layout that refines `b` and has the values of `f`, which evaluates layouts of `cost` leaves, at its integral
/// coordinates, if there is one.
fn through<D: Stride, S: Stride>(
    b: &Layout<D>,
    operation: &'static str,
    cost: usize,
    f: impl Fn(i64) -> Option<S>,
) -> Result<Layout<S>, LayoutError> {
    let refuse = |reason: &str| LayoutError::Inadmissible {
        operation,
        layout: b.to_string(),
        reason: reason.to_string(),
    };
    // Each mode that is tried calls for as many values as it has, the check for one at each coordinate.
    let tried = b.leaves().iter().filter(|l| l.0 <= POINTWISE).fold(0i64, |n, l| n.saturating_add(l.0));
    work::pay_for(tried, cost)?;
    let mut parts: Parts<S> = Vec::new();
    let mut place = 1i64;
    for (extent, _) in b.leaves() {
        let leaf = fit(extent, |c| f(c.checked_mul(place)?));
        parts.push(leaf.ok_or_else(|| refuse("the values along a mode are not those of a layout"))?);
        place = place.saturating_mul(extent);
    }
    let result = assemble(b, parts)?;
    if b.size() > POINTWISE {
        return Err(refuse("only layouts of at most 65536 coordinates are decided"));
    }
    work::pay_for(b.size(), cost)?;
    if (0..b.size()).zip(result.image()).all(|(i, value)| f(i).as_ref() == Some(&value)) {
        Ok(result)
    } else {
        Err(refuse("the values of its modes do not add up: a bit carries"))
    }
}

/// The leaves of the layout with the values of `f` on `0, …, s−1`: factors of `s`, smallest first, then merged.
fn fit<S: Stride>(s: i64, f: impl Fn(i64) -> Option<S>) -> Option<Vec<(i64, S)>> {
    if s > POINTWISE {
        return None;
    }
    let mut leaves: Vec<(i64, S)> = Vec::new();
    let (mut unit, mut left, mut prime) = (1i64, s, 2i64);
    while left > 1 {
        if left % prime != 0 {
            prime += 1;
            continue;
        }
        let step = f(unit)?;
        for c in 2..prime {
            if f(c * unit)? != step.checked_scale(c)? {
                return None;
            }
        }
        match leaves.last_mut() {
            Some((extent, d)) if d.continues(*extent, &step, prime) => *extent *= prime,
            _ => leaves.push((prime, step)),
        }
        unit *= prime;
        left /= prime;
    }
    if leaves.is_empty() {
        leaves.push((1, S::zero()));
    }
    Some(leaves)
}

/// A layout taken apart for elimination.
struct Columns {
    /// The value and the coordinate of each bit.
    bits: Vec<(u64, u64)>,
    /// A last leaf whose extent is not a power of two: its extent, stride and place.
    tail: Option<(i64, u64, u64)>,
    /// True if leaves follow the tail.
    more: bool,
}

fn columns(layout: &Layout<F2>, operation: &'static str) -> Result<Columns, LayoutError> {
    let (mut bits, mut place) = (Vec::new(), 1u64);
    let mut leaves = layout.leaves().into_iter().filter(|l| l.0 > 1);
    while let Some((extent, stride)) = leaves.next() {
        if let Some(column) = stride.bits(extent) {
            for value in column {
                bits.push((value.0, place));
                place = place.wrapping_mul(2);
            }
        } else if stride.0 == 0 && extent & (extent - 1) == 0 {
            for _ in 0..extent.trailing_zeros() {
                bits.push((0, place));
                place = place.wrapping_mul(2);
            }
        } else if stride.0.is_power_of_two() && extent & (extent - 1) != 0 {
            let more = leaves.next().is_some();
            return Ok(Columns { bits, tail: Some((extent, stride.0, place)), more });
        } else {
            return Err(LayoutError::BadStride {
                operation,
                stride: stride.to_string(),
                layout: layout.to_string(),
                reason: format!("with extent {extent} a bit carries; the mode is not linear over bits"),
            });
        }
    }
    Ok(Columns { bits, tail: None, more: false })
}

/// A basis of the values, in reduced echelon form: pivot bit, value, coordinate; and the coordinates of the value 0.
type Echelon = (Vec<(u32, u64, u64)>, Vec<u64>);

fn eliminate(bits: &[(u64, u64)]) -> Echelon {
    let (mut rows, mut kernel): Echelon = (Vec::new(), Vec::new());
    for &(mut value, mut at) in bits {
        for &(pivot, v, x) in &rows {
            if value >> pivot & 1 == 1 {
                value ^= v;
                at ^= x;
            }
        }
        if value == 0 {
            kernel.push(at);
            continue;
        }
        let pivot = value.trailing_zeros();
        for row in &mut rows {
            if row.1 >> pivot & 1 == 1 {
                row.1 ^= value;
                row.2 ^= at;
            }
        }
        rows.push((pivot, value, at));
    }
    rows.sort_unstable();
    (rows, kernel)
}

fn merged(mut bits: Vec<(i64, F2)>, tail: Option<(i64, F2)>) -> Result<Layout<F2>, LayoutError> {
    bits.extend(tail);
    let layout = Layout::from_leaves(&bits)?;
    Ok(super::coalesce(&layout))
}

/// The greatest right inverse of a layout over bit strings (paper 3.4.1, table 5); its values are integral coordinates
/// of the layout, as bit strings.
///
/// The law, with `R` the result: `L(R(k)) = f_k` for `0 ≤ k < size(R)`. An error where a mode is not linear over its
/// bits; a mode whose extent is not a power of two must be the last that counts, with a power of two as its stride.
///
/// ```
/// use tilewright_layout::{Layout, right_inverse_f2};
/// let r = right_inverse_f2(&"(4,(4,3)):(f1,(f5,f16))".parse()?)?;
/// assert_eq!(r.to_string(), "(4,4,3):(f1,f5,f16)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn right_inverse_f2(layout: &Layout<F2>) -> Result<Layout<F2>, LayoutError> {
    let columns = columns(layout, "right inverse")?;
    let (rows, _) = eliminate(&columns.bits);
    let mut out = Vec::new();
    // Bit k is reached where some coordinate has exactly the value f_(2^k): in reduced form, a row that is just it.
    for k in 0..63u32 {
        match rows.iter().find(|r| r.1 == 1 << k) {
            Some(row) => out.push((2, F2(row.2))),
            None => break,
        }
    }
    let next = 1u64 << out.len();
    let tail = columns.tail.filter(|t| t.1 == next).map(|t| (t.0, F2(t.2)));
    merged(out, tail)
}

/// A left inverse of a layout over bit strings (paper 3.4.3, table 6).
///
/// The law, with `R` the result read as a function of the bits of its argument: `L(R(L(k))) = L(k)` at every
/// coordinate. Errors are those of [`right_inverse_f2`], and a mode whose extent is not a power of two must lie above
/// all other values.
///
/// ```
/// use tilewright_layout::{Layout, left_inverse_f2};
/// let r = left_inverse_f2(&"(4,4):(f1,f9)".parse()?)?;
/// assert_eq!(r.to_string(), "(4,2,4):(f1,f0,f5)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn left_inverse_f2(layout: &Layout<F2>) -> Result<Layout<F2>, LayoutError> {
    let columns = columns(layout, "left inverse")?;
    let fail = |reason: &str| LayoutError::NotInvertible {
        layout: layout.to_string(),
        kind: "left inverse",
        reason: reason.to_string(),
    };
    if columns.more {
        return Err(fail("only the last mode may have an extent that is not a power of two"));
    }
    let (mut rows, _) = eliminate_high(&columns.bits);
    rows.sort_unstable();
    let all = columns.bits.iter().fold(0u64, |all, b| all | b.0);
    let mut top = 64 - all.leading_zeros();
    if let Some((_, stride, _)) = columns.tail {
        if stride.checked_shr(top).unwrap_or(0) == 0 {
            return Err(fail("the mode whose extent is not a power of two must lie above the others"));
        }
        top = stride.trailing_zeros();
    }
    if top > 62 {
        return Err(crate::error::overflow("the size of a left inverse"));
    }
    let mut out = Vec::new();
    for k in 0..top {
        let at = rows.iter().find(|r| r.0 == k).map_or(0, |r| r.2);
        out.push((2, F2(at)));
    }
    merged(out, columns.tail.map(|t| (t.0, F2(t.2))))
}

/// As [`eliminate`], with the highest bit of each value as its pivot, so that what a left inverse adds lies lower.
fn eliminate_high(bits: &[(u64, u64)]) -> Echelon {
    let mirrored: Vec<(u64, u64)> = bits.iter().map(|(v, x)| (v.reverse_bits(), *x)).collect();
    let (rows, kernel) = eliminate(&mirrored);
    (rows.into_iter().map(|(p, v, x)| (63 - p, v.reverse_bits(), x)).collect(), kernel)
}

/// The inverse of a layout over bit strings that is a bijection onto `f_0, …, f_(size−1)` (paper 3.4.1).
pub fn inverse_f2(layout: &Layout<F2>) -> Result<Layout<F2>, LayoutError> {
    let right = right_inverse_f2(layout)?;
    if right.size() == layout.size() {
        return Ok(right);
    }
    Err(LayoutError::NotInvertible {
        layout: layout.to_string(),
        kind: "inverse",
        reason: format!("its right inverse has size {}, not {}", right.size(), layout.size()),
    })
}

/// The coordinates at which a layout over bit strings is 0, as a layout over bit strings.
///
/// The laws: `L(N(i)) = f0` for every `i < size(N)`, `N` is injective, and no other coordinate has the value 0.
pub fn nullspace_f2(layout: &Layout<F2>) -> Result<Layout<F2>, LayoutError> {
    let columns = columns(layout, "nullspace")?;
    let all = columns.bits.iter().fold(0u64, |all, b| all | b.0);
    if columns.more || columns.tail.is_some_and(|t| t.1 & (t.1 - 1) != 0 || t.1 <= all) {
        return Err(LayoutError::Inadmissible {
            operation: "nullspace",
            layout: layout.to_string(),
            reason: "a mode whose extent is not a power of two must be the last and lie above the others"
                .to_string(),
        });
    }
    let (_, kernel) = eliminate(&columns.bits);
    merged(kernel.into_iter().map(|at| (2, F2(at))).collect(), None)
}
