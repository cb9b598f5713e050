//! Affine layouts, `Ax ⊕ b` (LL section 8): what linear layouts become under flips and aligned slices. `a.compose(&b)`
//! applies `b` first.

use super::{LinearLayout, refuse, total};
use crate::error::LayoutError;
use std::fmt;

/// A linear layout followed by the exclusive or with a constant.
///
/// ```
/// use tilewright_layout::{AffineLayout, LinearLayout};
/// let l = LinearLayout::identity(8, "lane", "x")?;
/// let flipped = AffineLayout::from(l).flip("x")?;
/// assert_eq!(flipped.to_string(), "[lane: 1 2 4] -> [x:8] + 7");
/// assert_eq!((flipped.at(0), flipped.at(6)), (7, 1));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AffineLayout {
    linear: LinearLayout,
    offset: u64,
}

impl From<LinearLayout> for AffineLayout {
    fn from(linear: LinearLayout) -> AffineLayout {
        AffineLayout { linear, offset: 0 }
    }
}

impl AffineLayout {
    /// `linear` followed by the exclusive or with `offset`, an integer over the outputs.
    pub fn new(linear: LinearLayout, offset: u64) -> Result<AffineLayout, LayoutError> {
        if offset >> linear.out_bits() != 0 {
            return refuse("an affine layout", linear, format!("offset {offset} is not one of its outputs"));
        }
        Ok(AffineLayout { linear, offset })
    }

    /// The linear part.
    pub fn linear(&self) -> &LinearLayout {
        &self.linear
    }

    /// The image of 0, as one integer over the outputs.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The image of an index, both counted as one integer.
    pub fn at(&self, index: u64) -> u64 {
        self.linear.at(index) ^ self.offset
    }

    /// The bits of one output dimension: where they begin, and a mask over the outputs.
    fn mode(&self, mode: &str) -> Result<(u32, u64), LayoutError> {
        let outs = self.linear.outs();
        match outs.iter().position(|o| o.name == mode) {
            Some(k) => {
                let at = total(&outs[..k]);
                Ok((at, (outs[k].size() - 1) << at))
            }
            None => refuse("an affine layout", &self.linear, format!("it has no mode {mode}")),
        }
    }

    /// The layout of the tensor flipped along a mode: index `i` becomes `size − 1 − i`, which is `i` with all bits
    /// inverted.
    pub fn flip(&self, mode: &str) -> Result<AffineLayout, LayoutError> {
        let (_, mask) = self.mode(mode)?;
        Ok(AffineLayout { linear: self.linear.clone(), offset: self.offset ^ mask })
    }

    /// The composition `self ∘ inner`: both offsets meet in the outputs of `self`.
    pub fn compose(&self, inner: &AffineLayout) -> Result<AffineLayout, LayoutError> {
        let linear = self.linear.compose(&inner.linear)?;
        let constant = LinearLayout::from_columns(
            vec![super::Dim::new("one", 1)],
            inner.linear.outs().to_vec(),
            vec![inner.offset],
        )?;
        let moved = self.linear.compose(&constant)?.at(1);
        Ok(AffineLayout { linear, offset: self.offset ^ moved })
    }

    /// The part of the layout that holds the slice `start .. start + size` of a mode: an affine layout from new inputs
    /// `slice` to the old inputs, whose images under the layout are the slice. `size` is a power of two and `start` a
    /// multiple of it. An error where no index leads there.
    ///
    /// ```
    /// use tilewright_layout::{AffineLayout, LinearLayout};
    /// let l: LinearLayout = "[register: 1; lane: 2 4] -> [x:8]".parse()?;
    /// // The upper half is what lanes 2 and 3 hold.
    /// let held = AffineLayout::from(l).slice_mode("x", 4, 4)?;
    /// assert_eq!(held.to_string(), "[slice: (1,0) (0,1)] -> [register:2, lane:4] + (0,2)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn slice_mode(&self, mode: &str, start: u64, size: u64) -> Result<AffineLayout, LayoutError> {
        let (at, mask) = self.mode(mode)?;
        let bits = super::log2("a slice", mode, size)?;
        let end = start.saturating_add(size);
        if !start.is_multiple_of(size) || end > (mask >> at) + 1 {
            let reason = format!("{start}..{end} of {mode} is not aligned and within it");
            return refuse("a slice", &self.linear, reason);
        }
        // The equations: the high bits of the mode are those of `start`.
        let high = mask & !((size - 1) << at);
        debug_assert_eq!(high.count_ones() + bits, mask.count_ones());
        let rows: Vec<u64> = self.linear.columns().iter().map(|c| c & high).collect();
        let wanted = (start << at ^ self.offset) & high;
        let Some(first) = super::elimination::Echelon::of(&rows).solve(wanted) else {
            return refuse("a slice", &self.linear, format!("no index leads to {start} of {mode}"));
        };
        let kernel = super::elimination::kernel(&rows);
        let ins = vec![super::Dim::new("slice", kernel.len() as u32)];
        let linear = LinearLayout::from_columns(ins, self.linear.ins().to_vec(), kernel)?;
        AffineLayout::new(linear, first)
    }
}

impl fmt::Display for AffineLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.linear.unflatten_out(self.offset);
        match &offset[..] {
            [one] => write!(f, "{} + {one}", self.linear),
            several => {
                let elements: Vec<String> = several.iter().map(u64::to_string).collect();
                write!(f, "{} + ({})", self.linear, elements.join(","))
            }
        }
    }
}
