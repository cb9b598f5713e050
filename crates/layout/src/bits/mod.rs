//! Linear layouts: linear maps between labelled spaces of bits (*Linear Layouts*, definition 4.1; "LL" in these pages).
//! A column is the image of one bit of the input; the image of an index is the exclusive or of the columns of its bits.
//! The first dimension of an input or output holds the lowest bits. `a.compose(&b)` applies `b` first.
//!
//! # A worked table
//!
//! Four lanes hold a 4×4 tile in four registers each: register `r` of lane `t` has the element of row `t` and column `r ⊕ t`.
//! In every register the lanes are in different columns: a swizzle.
//!
//! | lane, register | 0 | 1 | 2 | 3 |
//! | --- | --- | --- | --- | --- |
//! | **0** | (0,0) | (0,1) | (0,2) | (0,3) |
//! | **1** | (1,1) | (1,0) | (1,3) | (1,2) |
//! | **2** | (2,2) | (2,3) | (2,0) | (2,1) |
//! | **3** | (3,3) | (3,2) | (3,1) | (3,0) |
//!
//! The table has sixteen entries, and four of them say everything: those at powers of two. They are the columns of the
//! matrix. All others are exclusive ors of these, coordinate by coordinate: lane 3, register 1 is
//! `(1,1) ⊕ (2,2) ⊕ (0,1) = (3,2)`.
//!
//! ```
//! use tilewright_layout::LinearLayout;
//! let l: LinearLayout = "[register: (0,1) (0,2); lane: (1,1) (2,2)] -> [row:4, column:4]".parse()?;
//! assert_eq!(l.apply(&[("lane", 3), ("register", 1)])?, [3, 2]);
//! for (lane, register) in (0..4).flat_map(|t| (0..4).map(move |r| (t, r))) {
//!     assert_eq!(l.apply(&[("lane", lane), ("register", register)])?, [lane, register ^ lane]);
//! }
//! # Ok::<(), tilewright_layout::LayoutError>(())
//! ```
//!
//! # Why from hardware to tensor
//!
//! Each register of each lane holds one element, so "which element is here" is a function. "Where is this element" is not:
//! several lanes may hold it (a column that is 0 is a broadcast), or none where the tensor is larger. Where every element
//! has one place, [`inverse`](LinearLayout::inverse) turns the map around; where it has several,
//! [`right_inverse`](LinearLayout::right_inverse) picks one.
//!
//! ```
//! use tilewright_layout::LinearLayout;
//! // A vector of four that both halves of a warp of eight hold: bit 2 of the lane leads nowhere.
//! let l: LinearLayout = "[lane: 1 2 0] -> [x:4]".parse()?;
//! assert_eq!((l.apply(&[("lane", 1)])?, l.apply(&[("lane", 5)])?), (vec![1], vec![1]));
//! assert!(l.inverse().is_err());
//! assert_eq!(l.right_inverse()?.to_string(), "[x: 1 2] -> [lane:8]");
//! # Ok::<(), tilewright_layout::LayoutError>(())
//! ```
//!
//! # Building, and converting
//!
//! A [`product`](LinearLayout::product) repeats one layout as another says: two registers along a row, then four lanes.
//! Between two layouts of the same tile, the inverse of one after the other says where each element goes:
//!
//! ```
//! use tilewright_layout::LinearLayout;
//! let pair = LinearLayout::identity(2, "register", "x")?;
//! let blocked = pair.product(&LinearLayout::identity(4, "lane", "x")?)?;
//! assert_eq!(blocked.to_string(), "[register: 1; lane: 2 4] -> [x:8]");
//! let cyclic: LinearLayout = "[register: 4; lane: 1 2] -> [x:8]".parse()?;
//! // Register r of lane t of the cyclic layout: where the blocked one has it.
//! let from = blocked.inverse()?.compose(&cyclic)?;
//! assert_eq!(from.apply(&[("register", 1), ("lane", 3)])?, [1, 3]); // element 7
//! assert_eq!(from.apply(&[("register", 0), ("lane", 1)])?, [1, 0]); // element 1
//! # Ok::<(), tilewright_layout::LayoutError>(())
//! ```
//!
//! # Beside CuTe's layouts
//!
//! A [`Layout`](crate::Layout) adds `coordinate · stride` with carries, takes any extents, and leads from coordinates to offsets. A
//! linear layout adds without carries, takes powers of two, and names what it leads from. Where the bits of a CuTe layout do not
//! meet, both are the same function; a swizzle is a linear layout like any other, for it only adds columns:
//!
//! ```
//! use tilewright_layout::{LinearLayout, SwizzledLayout};
//! let swizzled: SwizzledLayout = "Sw<2,0,2> o (4,4):(4,1)".parse()?;
//! let l = LinearLayout::from_swizzled(&swizzled, "index", "offset")?;
//! assert_eq!(l.to_string(), "[index: 5 10 1 2] -> [offset:16]");
//! assert_eq!(l.to_swizzled(), Some(swizzled));
//! # Ok::<(), tilewright_layout::LayoutError>(())
//! ```

mod affine;
mod cute;
mod elimination;
mod families;
mod gather;
mod operations;
mod reorder;
mod shape;
mod shared;
mod text;
mod tile;
mod utilities;

pub use affine::AffineLayout;
pub use cute::Split;
pub use families::{Blocked, MmaOperand, NvmmaShared, check_sizes};
pub use reorder::{Exchange, Reorder};
pub use shared::{SharedAccess, lane_wavefronts, optimal_swizzle, single_element_swizzle, wavefronts};
pub use tile::TileBuilder;

use crate::error::LayoutError;

/// The most bits that an input or an output has.
pub const MAX_BITS: u32 = 62;
/// The most dimensions that an input or an output has.
pub const MAX_DIMS: usize = 64;

/// A dimension: a label, and the number of its bits.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Dim {
    /// The label: `register`, `lane`, `warp`, `block`, `offset`, `dim0`, …
    pub name: String,
    /// log₂ of its size.
    pub bits: u32,
}

impl Dim {
    /// A dimension of 2^`bits` indices.
    pub fn new(name: impl Into<String>, bits: u32) -> Dim {
        Dim { name: name.into(), bits }
    }

    /// The number of indices: 2^bits.
    pub fn size(&self) -> u64 {
        1 << self.bits
    }
}

/// A linear map over F2 from labelled input dimensions to labelled output dimensions (LL definition 4.1).
///
/// A *distributed* layout leads from `register`, `lane`, `warp` and `block` to the modes of a tensor; a *memory* layout
/// from `offset` to the modes. An index of several dimensions also counts as one integer, the first dimension fastest,
/// as the coordinates of a [`Layout`](crate::Layout) do.
///
/// Invariants: names of inputs are distinct, so are those of outputs; inputs and outputs have at most [`MAX_BITS`] bits
/// in at most [`MAX_DIMS`] dimensions.
///
/// ```
/// use tilewright_layout::LinearLayout;
/// // Layout A of LL figure 1: 2×2 registers, 4×8 lanes and 2×1 warps tile a 16×16 tensor; j is the fastest mode.
/// let text = "[register: (1,0) (0,1); lane: (2,0) (4,0) (8,0) (0,2) (0,4); warp: (0,8)] -> [j:16, i:16]";
/// let a: LinearLayout = text.parse()?;
/// assert_eq!(a.to_string(), text);
/// // Register 1 of lane 9 of warp 0 holds the element of row 2 and column 3 (LL 4.1).
/// assert_eq!(a.apply(&[("register", 1), ("lane", 9), ("warp", 0)])?, [3, 2]);
/// assert!(a.is_bijective());
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LinearLayout {
    ins: Vec<Dim>,
    outs: Vec<Dim>,
    /// One a bit of the input, the first dimension's lowest bit first.
    columns: Vec<u64>,
}

pub(crate) fn total(dims: &[Dim]) -> u32 {
    dims.iter().map(|d| d.bits).sum()
}

/// A refusal of an operation on `layout`.
pub(crate) fn refuse<T>(
    operation: &'static str,
    layout: impl std::fmt::Display,
    reason: impl Into<String>,
) -> Result<T, LayoutError> {
    Err(LayoutError::Inadmissible { operation, layout: layout.to_string(), reason: reason.into() })
}

/// log₂ of a size that must be a power of two.
pub fn log2(operation: &'static str, name: &str, size: u64) -> Result<u32, LayoutError> {
    if size.is_power_of_two() && size.trailing_zeros() <= MAX_BITS {
        return Ok(size.trailing_zeros());
    }
    refuse(
        operation,
        format!("{name} of size {size}"),
        format!("sizes are powers of two, at most 2^{MAX_BITS}"),
    )
}

impl LinearLayout {
    /// The layout with these columns: one for each bit of the inputs, the first dimension's lowest bit first; bit `i` of
    /// a column is bit `i` of the outputs, the first dimension lowest.
    pub fn from_columns(
        ins: Vec<Dim>,
        outs: Vec<Dim>,
        columns: Vec<u64>,
    ) -> Result<LinearLayout, LayoutError> {
        let operation = "a linear layout";
        for dims in [&ins, &outs] {
            if dims.len() > MAX_DIMS {
                let shown = format!("{} dimensions", dims.len());
                return refuse(operation, shown, format!("there are at most {MAX_DIMS} on a side"));
            }
            let all =
                || dims.iter().map(|d| format!("{}:2^{}", d.name, d.bits)).collect::<Vec<_>>().join(", ");
            if dims.iter().map(|d| u64::from(d.bits)).sum::<u64>() > u64::from(MAX_BITS) {
                return refuse(operation, all(), format!("there are more than {MAX_BITS} bits"));
            }
            for (k, dim) in dims.iter().enumerate() {
                if dims[..k].iter().any(|d| d.name == dim.name) {
                    return refuse(operation, all(), format!("two dimensions are named {}", dim.name));
                }
            }
        }
        if columns.len() != total(&ins) as usize {
            let bits = total(&ins);
            let reason = format!("there must be {bits} columns, one for each bit of the input");
            return refuse(operation, format!("{} columns", columns.len()), reason);
        }
        let end = 1u64 << total(&outs);
        if let Some(column) = columns.iter().find(|c| **c >= end) {
            let reason = format!("the output has only {} bits", total(&outs));
            return refuse(operation, format!("column {column:#b}"), reason);
        }
        Ok(LinearLayout { ins, outs, columns })
    }

    /// The layout with these bases, a list for each input dimension, a vector over the output dimensions for each of its
    /// bits. Output sizes are powers of two.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let bases = [("register", vec![vec![1, 0], vec![0, 1]]), ("lane", vec![vec![2, 0]])];
    /// let l = LinearLayout::from_bases(&bases, &[("x", 4), ("y", 2)])?;
    /// assert_eq!(l.to_string(), "[register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn from_bases<N: AsRef<str>>(
        bases: &[(N, Vec<Vec<u64>>)],
        outs: &[(N, u64)],
    ) -> Result<LinearLayout, LayoutError> {
        let operation = "a linear layout";
        let outs: Vec<Dim> = outs
            .iter()
            .map(|(name, size)| Ok(Dim::new(name.as_ref(), log2(operation, name.as_ref(), *size)?)))
            .collect::<Result<_, LayoutError>>()?;
        let (mut ins, mut columns) = (Vec::new(), Vec::new());
        if total(&outs) > MAX_BITS {
            return LinearLayout::from_columns(ins, outs, columns);
        }
        for (name, vectors) in bases {
            ins.push(Dim::new(name.as_ref(), u32::try_from(vectors.len()).unwrap_or(u32::MAX)));
            for vector in vectors {
                let shown = || format!("basis {vector:?} of {}", name.as_ref());
                if vector.len() != outs.len() {
                    let reason = format!("it must have one element for each of {} outputs", outs.len());
                    return refuse(operation, shown(), reason);
                }
                let (mut column, mut at) = (0, 0);
                for (element, out) in vector.iter().zip(&outs) {
                    if *element >= out.size() {
                        let reason =
                            format!("{element} is not below the size {} of {}", out.size(), out.name);
                        return refuse(operation, shown(), reason);
                    }
                    column |= element << at;
                    at += out.bits;
                }
                columns.push(column);
            }
        }
        LinearLayout::from_columns(ins, outs, columns)
    }

    /// The layout from no dimension to none: the neutral element of the product.
    pub fn empty() -> LinearLayout {
        LinearLayout { ins: Vec::new(), outs: Vec::new(), columns: Vec::new() }
    }

    /// The identity of `size` indices from one dimension to another.
    pub fn identity(size: u64, input: &str, output: &str) -> Result<LinearLayout, LayoutError> {
        LinearLayout::strided(size, 1, input, output)
    }

    /// Multiplication by `stride`: `size` indices lead to `size · stride`; both are powers of two.
    ///
    /// ```
    /// use tilewright_layout::LinearLayout;
    /// let l = LinearLayout::strided(4, 2, "lane", "dim0")?;
    /// assert_eq!(l.to_string(), "[lane: 2 4] -> [dim0:8]");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn strided(size: u64, stride: u64, input: &str, output: &str) -> Result<LinearLayout, LayoutError> {
        let operation = "a strided linear layout";
        let (bits, shift) = (log2(operation, input, size)?, log2(operation, "a stride", stride)?);
        let columns = (0..bits).map(|i| 1u64 << (i + shift).min(63)).collect();
        LinearLayout::from_columns(vec![Dim::new(input, bits)], vec![Dim::new(output, bits + shift)], columns)
    }

    /// Every one of `size` indices leads to 0, of an output of `out` indices.
    pub fn zeros(size: u64, out: u64, input: &str, output: &str) -> Result<LinearLayout, LayoutError> {
        let operation = "a linear layout of zeros";
        let (bits, to) = (log2(operation, input, size)?, log2(operation, output, out)?);
        let columns = vec![0; bits as usize];
        LinearLayout::from_columns(vec![Dim::new(input, bits)], vec![Dim::new(output, to)], columns)
    }

    /// The input dimensions, the one of the lowest bits first.
    pub fn ins(&self) -> &[Dim] {
        &self.ins
    }

    /// The output dimensions, the one of the lowest bits first.
    pub fn outs(&self) -> &[Dim] {
        &self.outs
    }

    /// The columns of the matrix, as in [`from_columns`](Self::from_columns).
    pub fn columns(&self) -> &[u64] {
        &self.columns
    }

    /// log₂ of the number of inputs.
    pub fn in_bits(&self) -> u32 {
        total(&self.ins)
    }

    /// log₂ of the number of outputs.
    pub fn out_bits(&self) -> u32 {
        total(&self.outs)
    }

    /// The columns of one input dimension; none where it has no such dimension.
    pub fn bases(&self, input: &str) -> &[u64] {
        let mut at = 0;
        for dim in &self.ins {
            let end = at + dim.bits as usize;
            if dim.name == input {
                return &self.columns[at..end];
            }
            at = end;
        }
        &[]
    }

    /// The size of an input dimension; 1 where there is none of that name.
    pub fn in_size(&self, name: &str) -> u64 {
        self.ins.iter().find(|d| d.name == name).map_or(1, Dim::size)
    }

    /// The size of an output dimension; 1 where there is none of that name.
    pub fn out_size(&self, name: &str) -> u64 {
        self.outs.iter().find(|d| d.name == name).map_or(1, Dim::size)
    }

    /// An index over the outputs as one index a dimension.
    pub fn unflatten_out(&self, index: u64) -> Vec<u64> {
        unflatten(&self.outs, index)
    }

    /// An index over the inputs as one index a dimension.
    pub fn unflatten_in(&self, index: u64) -> Vec<u64> {
        unflatten(&self.ins, index)
    }

    /// The image of an index that counts the inputs as one integer, the first dimension fastest; as such an integer.
    pub fn at(&self, index: u64) -> u64 {
        elimination::apply(&self.columns, index)
    }

    /// The image of an index a dimension; dimensions that are left out are 0. One index for each output.
    pub fn apply(&self, indices: &[(&str, u64)]) -> Result<Vec<u64>, LayoutError> {
        let mut flat = 0;
        for (name, index) in indices {
            let mut at = 0;
            let found = self.ins.iter().find(|d| {
                let here = d.name == *name;
                at += if here { 0 } else { d.bits };
                here
            });
            match found {
                Some(dim) if *index < dim.size() => flat |= index << at,
                Some(dim) => {
                    let reason = format!("it must be below {}", dim.size());
                    return refuse("evaluation", format!("{name} {index}"), reason);
                }
                None => return refuse("evaluation", name, format!("it is not an input of {self}")),
            }
        }
        Ok(self.unflatten_out(self.at(flat)))
    }
}

pub(crate) fn unflatten(dims: &[Dim], mut index: u64) -> Vec<u64> {
    dims.iter()
        .map(|dim| {
            let here = index & (dim.size() - 1);
            index >>= dim.bits;
            here
        })
        .collect()
}
