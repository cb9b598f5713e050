//! Inverses: from values back to integral coordinates (paper 3.4). They are laid out from the smallest stride of the
//! layout to the greatest, so that their own coordinates count values upwards.

use super::coalesce::coalesce;
use crate::error::LayoutError;
use crate::layout::Layout;

/// One leaf of a layout with the stride that its coordinate has in the integral coordinate.
#[derive(Clone, Copy)]
struct Leaf {
    stride: i64,
    extent: i64,
    place: i64,
}

/// The leaves that matter to an inverse, smallest stride first.
fn sorted(layout: &Layout) -> Vec<Leaf> {
    let mut place = 1i64;
    let mut leaves = Vec::new();
    for (extent, stride) in layout.leaves() {
        if extent > 1 && stride != 0 {
            leaves.push(Leaf { stride, extent, place });
        }
        place = place.saturating_mul(extent);
    }
    leaves.sort_by_key(|l| l.stride);
    leaves
}

/// The greatest right inverse (paper 3.4.1), coalesced; `1:0` where no other exists.
///
/// The law (paper, the common case of equation 24), with `R` the result: `L(R(k)) = k` for `0 ≤ k < size(R)`.
///
/// The paper's tables 5 and 6 give `(2,2):(4,8)` for `((2,2),(2,4)):((0,1),(0,2))`; by this law it is `(2,4):(2,8)`.
///
/// ```
/// use tilewright_layout::{Layout, right_inverse};
/// let l: Layout = "(3,7,5):(5,15,1)".parse()?;
/// assert_eq!(right_inverse(&l).to_string(), "(5,21):(21,1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn right_inverse(layout: &Layout) -> Layout {
    let mut leaves = sorted(layout);
    leaves.retain(|l| l.stride > 0);
    // From the greatest stride down: how far a chain of modes that starts with this leaf reaches, and what follows it.
    // A leaf is followed by one whose stride is a multiple of its own that it reaches; in an injective layout that is
    // always all of the leaf.
    let mut best: Vec<(i128, Option<usize>)> = vec![(0, None); leaves.len()];
    for k in (0..leaves.len()).rev() {
        let this = leaves[k];
        best[k] = (i128::from(this.stride) * i128::from(this.extent), None);
        for (j, next) in leaves.iter().enumerate().skip(k + 1) {
            let reaches = next.stride % this.stride == 0 && next.stride / this.stride <= this.extent;
            if reaches && next.stride > this.stride && best[j].0 > best[k].0 {
                best[k] = (best[j].0, Some(j));
            }
        }
    }
    let starts = (0..leaves.len()).filter(|k| leaves[*k].stride == 1);
    let mut at = starts.max_by_key(|k| (best[*k].0, std::cmp::Reverse(*k)));
    let mut out = Vec::new();
    while let Some(k) = at {
        at = best[k].1;
        let extent = at.map_or(leaves[k].extent, |j| leaves[j].stride / leaves[k].stride);
        out.push((extent, leaves[k].place));
    }
    coalesce(&Layout::from_leaves(&out).unwrap_or_else(|_| Layout::trivial()))
}

/// A left inverse (paper 3.4.3), coalesced.
///
/// The law (paper equation 26), with `R` the result: `L(R(L(k))) = L(k)` at every coordinate; where `L` is injective
/// `R(L(k)) = k`. Modes of stride 0 do not contribute. What `R` gives for other values is not specified.
///
/// An error where a stride is negative, modes overlap, or a stride is not a multiple of the next smaller one.
///
/// ```
/// use tilewright_layout::{Layout, left_inverse};
/// let l: Layout = "(4,8):(1,5)".parse()?;
/// assert_eq!(left_inverse(&l)?.to_string(), "(5,8):(1,4)");
/// assert_eq!(left_inverse(&"(2,2,8):(1,2,5)".parse()?)?, left_inverse(&l)?);
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn left_inverse(layout: &Layout) -> Result<Layout, LayoutError> {
    let fail = |reason: String| {
        Err(LayoutError::NotInvertible { layout: layout.to_string(), kind: "left inverse", reason })
    };
    let mut leaves: Vec<Leaf> = Vec::new();
    for leaf in sorted(layout) {
        // Modes that continue each other, in value and in coordinate, are one.
        match leaves.last_mut() {
            Some(last)
                if last.stride.checked_mul(last.extent) == Some(leaf.stride)
                    && last.place.checked_mul(last.extent) == Some(leaf.place) =>
            {
                last.extent = last.extent.saturating_mul(leaf.extent);
            }
            _ => leaves.push(leaf),
        }
    }
    let mut out = Vec::new();
    let mut below = Leaf { stride: 1, extent: 1, place: 0 };
    for leaf in leaves {
        if leaf.stride < 0 {
            return fail(format!("stride {} is negative; reverse that mode first", leaf.stride));
        }
        if leaf.stride % below.stride != 0 {
            return fail(format!("stride {} must be a multiple of stride {}", leaf.stride, below.stride));
        }
        let extent = leaf.stride / below.stride;
        if extent < below.extent {
            return fail(format!(
                "modes {}:{} and {}:{} overlap; the strides must be at least the span of smaller modes",
                below.extent, below.stride, leaf.extent, leaf.stride
            ));
        }
        out.push((extent, below.place));
        below = leaf;
    }
    out.push((below.extent, below.place));
    Ok(coalesce(&Layout::from_leaves(&out)?))
}

/// The inverse of a layout that is a bijection onto `0, …, size−1` (paper 3.4.1), coalesced.
///
/// The laws, with `R` the result: `L(R(k)) = k` and `R(L(k)) = k` for `0 ≤ k < size(L)`.
///
/// ```
/// use tilewright_layout::{Layout, inverse};
/// let l: Layout = "(4,(4,2)):(4,(1,16))".parse()?;
/// assert_eq!(inverse(&l)?.to_string(), "(4,4,2):(4,1,16)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn inverse(layout: &Layout) -> Result<Layout, LayoutError> {
    let right = right_inverse(layout);
    if right.size() == layout.size() {
        return Ok(right);
    }
    Err(LayoutError::NotInvertible {
        layout: layout.to_string(),
        kind: "inverse",
        reason: format!(
            "it is not a bijection onto 0..{}; its right inverse has size {}",
            layout.size(),
            right.size()
        ),
    })
}

impl Layout {
    /// True if the values are exactly `0, …, n−1`, each taken once (paper 3.4: compact where `n` is the size).
    pub fn is_bijective_onto(&self, n: i64) -> bool {
        self.size() == n && right_inverse(self).size() == n
    }

    /// True if this is a bijection onto `0, …, size−1` (paper 3.4.1).
    pub fn is_compact(&self) -> bool {
        self.is_bijective_onto(self.size())
    }
}
