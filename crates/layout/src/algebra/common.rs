//! Vectorization (paper 3.4.2), alignment, admissibility (paper 3.4.4), the nullspace, and layouts from tables.

use super::coalesce::coalesce;
use super::complement::complement_exact;
use super::compose::{compose, fit};
use super::inverse::{left_inverse, right_inverse};
use crate::error::LayoutError;
use crate::layout::Layout;
use crate::stride::Stride;
use crate::work;

/// Coordinates that are tried, at most, where algebra does not decide.
const POINTWISE: i64 = 1 << 16;

/// The maximum common sublayout (paper 3.4.2, equation 25): the layout of the integral coordinates at which both layouts
/// have the offsets `0, 1, …, K−1`, for the largest `K` that a layout can have.
///
/// The laws, with `R` the result: `A(R(k)) = k = B(R(k))` for `0 ≤ k < size(R)`.
///
/// ```
/// use tilewright_layout::{Layout, max_common_layout};
/// let r = max_common_layout(&"(4,8):(1,4)".parse()?, &"((2,2),8):((1,16),2)".parse()?);
/// assert_eq!(r.to_string(), "2:1");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn max_common_layout(a: &Layout, b: &Layout) -> Layout {
    let one = |a: &Layout, b: &Layout| {
        let inverse = right_inverse(b);
        let agreed = agreement(a, &inverse);
        truncate(&inverse, agreed)
    };
    let (x, y) = (one(a, b), one(b, a));
    if y.size() > x.size() { y } else { x }
}

/// Number of elements that a copy between the layouts can move at once (paper 3.4.2): the size of
/// [`max_common_layout`].
///
/// ```
/// use tilewright_layout::{Layout, max_common_vector};
/// assert_eq!(max_common_vector(&"(4,8):(1,4)".parse()?, &"(4,8):(1,4)".parse()?), 32);
/// assert_eq!(max_common_vector(&"(4,8):(1,4)".parse()?, &"(4,8):(8,1)".parse()?), 1);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn max_common_vector(a: &Layout, b: &Layout) -> i64 {
    max_common_layout(a, b).size()
}

/// Number of elements of the longest vectors that a layout is made of: contiguous, each at a multiple of its length
/// (CuTe C++, `max_alignment`). 1 where the layout has no run that divides it.
///
/// The laws, with `R = right_inverse(L)`, `R*` its complement up to `size(L)` and `n` the result: `n` divides `size(R)` and every
/// value of `L ∘ R*`, so that with a value `v` all of `⌊v/n⌋·n, …, ⌊v/n⌋·n + n − 1` are values.
///
/// ```
/// use tilewright_layout::{Layout, max_alignment};
/// assert_eq!(max_alignment(&"(8,64):(64,1)".parse()?), 512);
/// assert_eq!(max_alignment(&"(8,64):(72,1)".parse()?), 8);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn max_alignment(layout: &Layout) -> i64 {
    let run = right_inverse(layout);
    let rest = complement_exact(&run, layout.size()).and_then(|rest| compose(layout, &rest));
    match rest {
        Ok(rest) if run.size().checked_mul(rest.size()) == Some(layout.size()) => {
            gcd(run.size(), rest.divisor())
        }
        _ => 1,
    }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.saturating_abs()
}

impl Layout {
    /// The greatest common divisor of all values; 0 where all are 0. In a layout that is one of its strides.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!("(4,(1,8)):(24,(1,16))".parse::<Layout>()?.divisor(), 8);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn divisor(&self) -> i64 {
        self.leaves().into_iter().filter(|(s, _)| *s > 1).fold(0, |divisor, (_, d)| gcd(divisor, d))
    }
}

impl<S: Stride> Layout<S> {
    /// The layout that has these values, with as few modes as possible; `None` where no layout has them. The inverse of
    /// [`table`](Self::table).
    ///
    /// The laws: `from_table(t)` has the table `t`, and over integers `from_table(L.table()) = coalesce(L)`.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// assert_eq!(Layout::from_table(&[0, 2, 16, 18]), Some("(2,2):(2,16)".parse()?));
    /// assert_eq!(Layout::from_table(&[0, 2, 16, 17]), None);
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn from_table(values: &[S]) -> Option<Layout<S>> {
        let leaves = fit(values.len() as i64, |i| values.get(i as usize).cloned())?;
        Layout::from_leaves(&leaves).ok().filter(|layout| layout.table() == values)
    }
}

/// The largest `K` with `a(inverse(k)) = k` for all `k < K`, as far as that is decided. Values outside of `a` do not
/// count.
fn agreement(a: &Layout, inverse: &Layout) -> i64 {
    let composed = compose(a, inverse).map(|r| coalesce(&r));
    let mut reach = match composed {
        Ok(r) => match r.leaves().first() {
            Some((s, 1)) => *s,
            _ => 1,
        },
        Err(_) => {
            let mut end = inverse.size().min(POINTWISE);
            if !work::spend_for(end, a.shape().leaf_count() + inverse.shape().leaf_count()) {
                end = 1;
            }
            (0..end).find(|k| a.eval(inverse.eval(*k)) != *k).unwrap_or(end)
        }
    };
    // The inverse may lead beyond a smaller layout.
    let inside = |reach: i64| {
        inverse
            .leaves()
            .iter()
            .scan(1i64, |unit, (s, d)| {
                let steps = ((reach - 1) / *unit).min(s - 1);
                *unit = unit.saturating_mul(*s);
                Some(steps.saturating_mul(*d))
            })
            .fold(0i64, i64::saturating_add)
            < a.size()
    };
    while reach > 1 && !inside(reach) {
        reach /= 2;
    }
    reach.max(1)
}

/// The greatest layout that is a prefix of `layout` of at most `reach` values.
fn truncate(layout: &Layout, reach: i64) -> Layout {
    let (mut out, mut left) = (Vec::new(), reach);
    for (s, d) in layout.leaves() {
        let keep = s.min(left);
        if keep > 1 {
            out.push((keep, d));
        }
        if keep < s {
            break;
        }
        left /= s;
    }
    Layout::from_leaves(&out).unwrap_or_else(|_| Layout::trivial())
}

/// The places of an instruction's offsets in a data layout (paper 3.4.4): the layout `A† ∘ T` from the coordinates of
/// `T` to those of `A`.
///
/// The laws, with `R` the result: `A(R(i)) = T(i)` and `0 ≤ R(i) < size(A)` for every coordinate of `T`, and where `T`
/// is injective so is `R`.
///
/// An error where an offset of `T` is not one of `A`, or where that is not a layout.
///
/// ```
/// use tilewright_layout::{Layout, admissible};
/// let data: Layout = "(128,8):(16384,1)".parse()?;
/// let x2: Layout = "(2,128):(1,16384)".parse()?;
/// assert_eq!(admissible(&data, &x2)?.to_string(), "(2,128):(128,1)");
/// assert!(admissible(&data, &"(16,128):(1,16384)".parse()?).is_err());
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn admissible(a: &Layout, t: &Layout) -> Result<Layout, LayoutError> {
    let refuse = |reason: String| LayoutError::Inadmissible {
        operation: "admission",
        layout: format!("{t} into {a}"),
        reason,
    };
    // Bounds come first: the algebra extends a last mode, but data do not go on.
    let found = compose(&left_inverse(a)?, t)?;
    let (mut low, mut high) = (0i64, 0i64);
    for (s, d) in found.leaves() {
        let reach = (s - 1).saturating_mul(d);
        if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
    }
    if low < 0 || high >= a.size() {
        return Err(refuse(format!(
            "its offsets would be at coordinates {low} to {high}, not all below the size {}",
            a.size()
        )));
    }
    match compose(a, &found) {
        Ok(back) if coalesce(&back) == coalesce(t) => Ok(found),
        _ if t.size() <= POINTWISE
            && work::spend_for(t.size(), a.shape().leaf_count() + 2 * found.shape().leaf_count()) =>
        {
            match (0..t.size()).find(|i| a.eval(found.eval(*i)) != t.eval(*i)) {
                None => Ok(found),
                Some(i) => Err(refuse(format!("offset {} at coordinate {i} is not in the data", t.eval(i)))),
            }
        }
        _ => Err(refuse("not every offset is in the data".to_string())),
    }
}

/// The nullspace: the integral coordinates that the modes of stride 0 reach, coalesced.
///
/// The laws, with `N` the result: `L(N(i)) = 0` and `N` is injective; `size(N)` is the product of the extents of the modes
/// of stride 0. Values that modes of other strides share are not in it.
///
/// ```
/// use tilewright_layout::{Layout, nullspace};
/// let n = nullspace(&"((2,2),(2,4)):((0,1),(0,2))".parse::<Layout>()?);
/// assert_eq!(n.to_string(), "(2,2):(1,4)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn nullspace<S: Stride>(layout: &Layout<S>) -> Layout {
    let (mut place, mut out) = (1i64, Vec::new());
    for (s, d) in layout.leaves() {
        if d.is_zero() && s > 1 {
            out.push((s, place));
        }
        place = place.saturating_mul(s);
    }
    coalesce(&Layout::from_leaves(&out).unwrap_or_else(|_| Layout::trivial()))
}
