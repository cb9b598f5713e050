//! The complement: the layout of the values that a layout leaves out, in ascending order (paper 3.5). It is laid out
//! from the smallest stride of the layout to the greatest.

use crate::error::{LayoutError, overflow};
use crate::layout::Layout;

/// The complement of `layout` up to `cotarget` (paper 3.5): together with the layout it reaches at least `cotarget`
/// values where it can fill every hole. Modes of stride 0 do not contribute; a last mode of extent 1 is dropped. A mode of
/// negative stride counts as the same mode backwards, which only shifts all values by one number: copies that do not meet
/// still do not.
///
/// The laws (paper equations 28 and 29), with `R` the result: for `0 < a < size(R)`, `R(a)` is not a value of the
/// layout, and `R(a−1) < R(a)`.
///
/// An error where modes overlap, so that copies of the layout cannot lie side by side, and where `cotarget` is below 1.
///
/// ```
/// use tilewright_layout::{Layout, complement};
/// let l: Layout = "(4,8):(1,8)".parse()?;
/// assert_eq!(complement(&l, 64)?.to_string(), "2:4");
/// assert_eq!(complement(&l, 640)?.to_string(), "(2,10):(4,64)");
/// assert_eq!(complement(&"(4,8):(-1,8)".parse()?, 640)?.to_string(), "(2,10):(4,64)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn complement(layout: &Layout, cotarget: i64) -> Result<Layout, LayoutError> {
    bounded(layout, cotarget, Holes::Skip)
}

/// The complement without a bound (paper 3.5, table 7): its last mode has extent 1 and the stride with which the layout
/// can be repeated, so that evaluation out of bounds, which extends the last mode, goes on for ever.
///
/// The laws are those of [`complement`], for every `a > 0`.
///
/// ```
/// use tilewright_layout::{Layout, complement_unbounded};
/// let l: Layout = "(4,8):(1,8)".parse()?;
/// assert_eq!(complement_unbounded(&l)?.to_string(), "(2,1):(4,64)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn complement_unbounded(layout: &Layout) -> Result<Layout, LayoutError> {
    let (mut leaves, period) = holes(layout, Holes::Skip)?;
    leaves.push((1, period));
    Layout::from_leaves(&leaves)
}

/// The complement for a logical divide: with the layout it is surjective onto the values from 0 up to `cotarget` (paper 3.5.2), so
/// holes that are not a multiple of what lies below them are an error, and so are negative strides, which lead out of these values.
pub(super) fn complement_exact(layout: &Layout, cotarget: i64) -> Result<Layout, LayoutError> {
    bounded(layout, cotarget, Holes::Fill)
}

/// The treatment of a hole that is not a multiple of what lies below it.
#[derive(Clone, Copy, PartialEq)]
enum Holes {
    /// Use the part that is a multiple.
    Skip,
    /// Refuse.
    Fill,
}

fn bounded(layout: &Layout, cotarget: i64, mode: Holes) -> Result<Layout, LayoutError> {
    if cotarget < 1 {
        return Err(LayoutError::NotPositive { extent: cotarget });
    }
    let (mut leaves, period) = holes(layout, mode)?;
    let repeats = (cotarget - 1) / period + 1;
    if repeats > 1 {
        leaves.push((repeats, period));
    }
    Layout::from_leaves(&leaves)
}

/// The holes between the modes of the layout, smallest stride first, and the stride with which the layout can be
/// repeated.
fn holes(layout: &Layout, mode: Holes) -> Result<(Vec<(i64, i64)>, i64), LayoutError> {
    let fail = |reason: String| LayoutError::Complement { layout: layout.to_string(), reason };
    let leaves = layout.leaves();
    let mut modes = Vec::with_capacity(leaves.len());
    for (s, d) in leaves.into_iter().filter(|(s, d)| *s > 1 && *d != 0) {
        if d < 0 && mode == Holes::Fill {
            return Err(fail(format!(
                "stride {d} is negative, and a tiler's values must be coordinates of what it divides (surjectivity onto them, paper \
                 3.5.2); reverse that mode first"
            )));
        }
        modes.push((d.checked_abs().ok_or(overflow("a stride of a complement"))?, s));
    }
    modes.sort_unstable();
    let (mut out, mut current) = (Vec::new(), 1i64);
    for (d, s) in modes {
        if d < current {
            return Err(fail(format!(
                "mode {s}:{d} lies within the span {current} of the modes with smaller strides, so that shifted copies meet (images are \
                 not disjoint, paper equation 28); it must have a stride of at least {current}"
            )));
        }
        if mode == Holes::Fill && d % current != 0 {
            return Err(fail(format!("to fill every hole stride {d} must be a multiple of {current}")));
        }
        if d / current > 1 {
            out.push((d / current, current));
        }
        current = d.checked_mul(s).ok_or(overflow("a stride of a complement"))?;
    }
    Ok((out, current))
}
