//! Coalescing: the same function of integral coordinates with as few modes as possible (paper 3.2). Modes merge from
//! left to right, fastest first.

use super::profile::by_profile;
use crate::error::LayoutError;
use crate::htuple::HTuple;
use crate::layout::Layout;
use crate::stride::Stride;

/// The layout of least rank and depth at most 1 that agrees with `layout` at every integral coordinate in bounds.
///
/// The laws (paper equations 13 to 15): `size(R) = size(A)`, `depth(R) ≤ 1`, `R(i) = A(i)` for `i < size(A)`.
///
/// ```
/// use tilewright_layout::{Layout, coalesce};
/// let l: Layout = "(2,(1,6)):(1,(6,2))".parse()?;
/// assert_eq!(coalesce(&l).to_string(), "12:1");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn coalesce<S: Stride>(layout: &Layout<S>) -> Layout<S> {
    let leaves = merge(layout.leaves().into_iter().filter(|(s, _)| *s > 1));
    Layout::from_leaves(&leaves).unwrap_or_else(|_| layout.flatten())
}

/// Coalesces by mode: where `profile` has a leaf, that part of the layout is coalesced as a whole; where it has a tuple,
/// each of its elements is applied to its mode. Modes that the profile does not mention stay as they are. What the
/// leaves of the profile are does not matter (paper 3.2, `coalesce(L, ⟨*,*⟩)`).
///
/// ```
/// use tilewright_layout::{HTuple, Layout, coalesce_by};
/// let l: Layout = "(2,(1,6)):(1,(6,2))".parse()?;
/// assert_eq!(coalesce_by(&l, &HTuple::from((0, 0)))?.to_string(), "(2,6):(1,2)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn coalesce_by<S: Stride, T>(layout: &Layout<S>, profile: &HTuple<T>) -> Result<Layout<S>, LayoutError> {
    by_profile(layout, profile, &mut |mode, _| Ok(coalesce(mode)))
}

/// The flattened layout without its modes of extent 1, `1:0` where that leaves none. Unlike [`coalesce`] it keeps modes apart that
/// continue each other (`squeeze` of array libraries).
///
/// The laws: `size(R) = size(A)`, `R(i) = A(i)` for `i < size(A)`, and no leaf of `R` has extent 1 unless it is the only one.
///
/// ```
/// use tilewright_layout::{Layout, squeeze};
/// let l: Layout = "(2,(1,6)):(1,(6,2))".parse()?;
/// assert_eq!(squeeze(&l).to_string(), "(2,6):(1,2)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn squeeze<S: Stride>(layout: &Layout<S>) -> Layout<S> {
    let leaves: Vec<(i64, S)> = layout.leaves().into_iter().filter(|(s, _)| *s > 1).collect();
    Layout::from_leaves(&leaves).unwrap_or_else(|_| layout.flatten())
}

/// The layout with extent 1 in place of every extent of stride 0: each value of a broadcast once (CuTe C++, `filter_zeros`).
///
/// The laws: the result is congruent to the layout, has the same values and no mode of stride 0 with more than one element;
/// `size(R) · size(nullspace(A)) = size(A)`.
///
/// ```
/// use tilewright_layout::{Layout, filter_zeros};
/// let l: Layout = "((2,4),(2,8)):((0,1),(4,0))".parse()?;
/// assert_eq!(filter_zeros(&l).to_string(), "((1,4),(2,1)):((0,1),(4,0))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn filter_zeros<S: Stride>(layout: &Layout<S>) -> Layout<S> {
    let mut strides = layout.stride().leaves().into_iter();
    let shape = layout.shape().map(|s| if strides.next().is_some_and(S::is_zero) { 1 } else { *s });
    Layout::new(shape, layout.stride().clone()).unwrap_or_else(|_| layout.clone())
}

/// Merges neighbours where the right stride continues the left mode. Extents are taken as they come.
fn merge<S: Stride>(leaves: impl Iterator<Item = (i64, S)>) -> Vec<(i64, S)> {
    let mut out: Vec<(i64, S)> = Vec::new();
    for (s, d) in leaves {
        match out.last_mut() {
            Some((s0, d0)) if d0.continues(*s0, &d, s) => *s0 = s0.saturating_mul(s),
            _ => out.push((s, d)),
        }
    }
    out
}

/// The coalesced leaves of `layout` that agree with it also out of bounds, where the last mode extends: like
/// [`coalesce`], but a last leaf of extent 1 stays unless it continues its neighbour. Never empty.
pub(crate) fn coalesce_unbounded<S: Stride>(layout: &Layout<S>) -> Vec<(i64, S)> {
    let leaves = layout.leaves();
    let last = leaves.len().saturating_sub(1);
    merge(leaves.into_iter().enumerate().filter(|(k, (s, _))| *s > 1 || *k == last).map(|(_, leaf)| leaf))
}
