//! The form of what an [`Op::Print`](crate::Op::Print) shows.

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::printed::shown_coordinates;
use tilewright_machine::{DType, Elements, PrintedTensor};

/// The place in a tile's linear coordinate, the leftmost mode fastest.
pub fn linear(at: &[i64], shape: &[i64]) -> i64 {
    at.iter().zip(shape).rev().fold(0, |sum, (x, extent)| sum * extent + x)
}

/// A tensor of which nothing is known yet.
pub fn unknown(dtype: DType, shape: Vec<i64>) -> PrintedTensor {
    let count = shown_coordinates(&shape).len();
    PrintedTensor {
        dtype,
        elements: Elements::of_bits(dtype, std::iter::repeat_n(0, count)),
        shape,
        bounds: Vec::new(),
    }
}

/// A `print`. Its operands are the thread's index among those that execute it, the counters, and what each item takes, all `B32`.
#[derive(Clone, PartialEq, Debug)]
pub struct Print {
    /// The tile statement: its number as the author wrote it.
    pub statement: u32,
    /// Counters of loops around.
    pub counters: u32,
    /// The items, in the order of the text.
    pub items: Vec<PrintItem>,
}

/// An item of a [`Print`].
#[derive(Clone, PartialEq, Debug)]
pub enum PrintItem {
    /// An integer: one operand.
    Integer,
    /// A register tensor: an operand for each register of a thread.
    Registers {
        /// The element type.
        dtype: DType,
        /// Thread → coordinate of its first value in the tile, the leftmost mode fastest.
        threads: Layout,
        /// Value → coordinate relative to that.
        values: Layout,
        /// The tile's shape.
        tile: Vec<i64>,
        /// The extents up to which it is shown.
        shape: Vec<i64>,
    },
    /// A shared tensor: an operand for each mode that is fixed.
    Shared {
        /// The element type.
        dtype: DType,
        /// The offset of its buffer in the block's window, in bytes.
        buffer: u32,
        /// Coordinate → offset in elements.
        layout: SwizzledLayout,
        /// The tensor's shape.
        tile: Vec<i64>,
        /// The modes that are fixed.
        fixed: Vec<bool>,
    },
}

impl PrintItem {
    /// Operands that it takes.
    pub fn operands(&self) -> usize {
        match self {
            PrintItem::Integer => 1,
            PrintItem::Registers { dtype, values, .. } => {
                (values.size() as usize * dtype.bits() as usize).div_ceil(32)
            }
            PrintItem::Shared { fixed, .. } => fixed.iter().filter(|fixed| **fixed).count(),
        }
    }

    /// The shape of what is shown of it; none of an integer.
    pub fn shape(&self) -> Vec<i64> {
        match self {
            PrintItem::Integer => Vec::new(),
            PrintItem::Registers { shape, .. } => shape.clone(),
            PrintItem::Shared { tile, fixed, .. } => {
                tile.iter().zip(fixed).filter(|(_, fixed)| !**fixed).map(|(extent, _)| *extent).collect()
            }
        }
    }
}

impl Print {
    /// Operands that it takes.
    pub fn operands(&self) -> usize {
        1 + self.counters as usize + self.items.iter().map(PrintItem::operands).sum::<usize>()
    }
}
