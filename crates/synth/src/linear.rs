//! Thread-value layouts as linear layouts over bits: (register, lane, warp) → the tile's modes, with what is not a power of
//! two beside (see [`Split`]).

use tilewright_layout::{HTuple, Layout, LayoutError, LinearLayout, Split, compose};

use crate::tv::TvLayout;

/// Lanes of a warp.
pub const LANES: i64 = 32;

/// A register tensor's layout over bits.
#[derive(Clone, PartialEq, Debug)]
pub struct Bits {
    /// Its powers of two, `register`, `lane` and `warp` to `dim0`, `dim1`, …, and the rest.
    pub split: Split,
}

impl Bits {
    /// The layout over bits of a tensor of `shape`.
    ///
    /// # Errors
    ///
    /// The reason for which there is none: threads with odd factors, or modes that carry.
    pub fn new(tv: &TvLayout, shape: &[i64]) -> Result<Bits, LayoutError> {
        let threads = tv.threads();
        let lanes = compose(threads, &Layout::identity(LANES))?;
        let warps =
            compose(threads, &Layout::new(HTuple::Leaf(threads.size() / LANES), HTuple::Leaf(LANES))?)?;
        let inputs = [("register", tv.values()), ("lane", &lanes), ("warp", &warps)];
        let split = Split::new(&inputs, &HTuple::from_flat(shape.to_vec()))?;
        for (k, name) in ["lane", "warp"].into_iter().enumerate() {
            if split.slices[k + 1].size() > 1 {
                return Err(LayoutError::Inadmissible {
                    operation: "a layout over bits",
                    layout: tv.layout().to_string(),
                    reason: format!("the {name}s have an odd factor"),
                });
            }
        }
        Ok(Bits { split })
    }

    /// The linear part.
    pub fn linear(&self) -> &LinearLayout {
        &self.split.linear
    }

    /// The slices of registers that odd factors make; the linear part is that of each.
    pub fn slices(&self) -> i64 {
        self.split.slices[0].size()
    }

    /// The places of the slices in the tile.
    pub fn places(&self) -> &Layout {
        &self.split.places[0]
    }

    /// The value of a thread that is register `register` of a slice.
    pub fn value(&self, register: u64, slice: i64) -> u32 {
        (self.split.indices[0].eval(register as i64) + self.split.slices[0].eval(slice)) as u32
    }

    /// log₂ of the registers of a slice.
    pub fn register_bits(&self) -> u32 {
        self.linear().bases("register").len() as u32
    }
}
