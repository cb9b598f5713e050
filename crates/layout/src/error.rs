//! Errors of layouts and of operations on them. Every message says what is wrong and what would be
//! right; layouts appear in their text form, so that a message can be pasted into `tilewright layout`.

use std::fmt;
use thiserror::Error;

/// The condition that a composition `A ∘ B` breaks (paper 3.3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// A stride of `B` neither divides nor is divided by the extents of `A` that it crosses (equation 20).
    StrideDivisibility,
    /// An extent of `B` is not a multiple of the part of `A` that it crosses (equation 21).
    ShapeDivisibility,
    /// The modes of `B` together carry over an extent of `A`, so that `A` does not distribute over their sum
    /// (equation 23).
    Disjointness,
    /// The strides of `A` are not linear over the integers that `B` adds up (bit strings only, where a bit carries).
    Linearity,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::StrideDivisibility => "stride divisibility",
            Condition::ShapeDivisibility => "shape divisibility",
            Condition::Disjointness => "disjointness of the modes of B",
            Condition::Linearity => "linearity of the strides of A",
        })
    }
}

/// An operation on layouts that has no result.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Shape and stride have different profiles.
    #[error("shape {shape} and stride {stride} are not congruent: both must nest in the same way")]
    NotCongruent {
        /// The shape.
        shape: String,
        /// The stride.
        stride: String,
    },
    /// An extent is zero or negative.
    #[error("extent {extent} in a shape is not positive: every extent must be at least 1")]
    NotPositive {
        /// The extent.
        extent: i64,
    },
    /// A shape contains the empty tuple.
    #[error("a shape contains the empty tuple (): every tuple must have at least one mode")]
    EmptyTuple,
    /// Tuples nest too deeply.
    #[error("tuples nest deeper than {limit} levels: flatten or coalesce the layout first")]
    TooDeep {
        /// The greatest depth allowed.
        limit: usize,
    },
    /// A number does not fit in 64 bits.
    #[error("{what} does not fit in a signed 64-bit integer")]
    Overflow {
        /// The number.
        what: &'static str,
    },
    /// A mode that the layout does not have.
    #[error("there is no mode {mode} in a layout of rank {rank}: modes count from 0")]
    NoSuchMode {
        /// The mode asked for.
        mode: usize,
        /// The rank of the layout.
        rank: usize,
    },
    /// A coordinate that no shape compatible with this one has.
    #[error(
        "coordinate {coord} does not fit shape {shape}: at each level it must be an integer or as long a tuple"
    )]
    BadCoordinate {
        /// The coordinate.
        coord: String,
        /// The shape.
        shape: String,
    },
    /// Two shapes of which neither refines the other, at some level.
    #[error("shapes {left} and {right} are not compatible: at each level one must be the size of the other")]
    Incompatible {
        /// The one shape.
        left: String,
        /// The other shape.
        right: String,
    },
    /// Two layouts that must have the same size.
    #[error("{operation}: {left} and {right} must have the same size")]
    SizeMismatch {
        /// The operation.
        operation: &'static str,
        /// The one layout.
        left: String,
        /// The other layout.
        right: String,
    },
    /// A stride that the operation cannot take.
    #[error("{operation} cannot take stride {stride} of {layout}: {reason}")]
    BadStride {
        /// The operation.
        operation: &'static str,
        /// The stride.
        stride: String,
        /// The layout that has it.
        layout: String,
        /// The reason, and what would be right.
        reason: String,
    },
    /// Layouts to which an operation does not apply.
    #[error("{operation} of {layout}: {reason}")]
    Inadmissible {
        /// The operation.
        operation: &'static str,
        /// The layout.
        layout: String,
        /// The reason, and what would be right.
        reason: String,
    },
    /// An accessor that left its data.
    #[error("offset {offset} is outside of data of {len} elements")]
    OutOfBounds {
        /// The offset.
        offset: i64,
        /// The number of elements.
        len: usize,
    },
    /// A profile that is longer or deeper than the layout.
    #[error(
        "profile {profile} does not fit shape {shape}: at each level it must be a leaf or no longer a tuple"
    )]
    BadProfile {
        /// The profile, its leaves written `*`.
        profile: String,
        /// The shape.
        shape: String,
    },
    /// A composition that no layout represents (paper 3.3.2).
    #[error("cannot compose {a} with {b}: {condition} fails at mode {mode} of B: {detail}")]
    Composition {
        /// The left layout, applied last.
        a: String,
        /// The right layout, applied first.
        b: String,
        /// The condition that fails.
        condition: Condition,
        /// The flat index of the leaf of `B` at which it fails.
        mode: usize,
        /// The numbers, and what would be right.
        detail: String,
    },
    /// A layout without a complement (paper 3.5).
    #[error("{layout} has no complement: {reason}")]
    Complement {
        /// The layout.
        layout: String,
        /// The reason, and what would be right.
        reason: String,
    },
    /// A layout without the inverse asked for (paper 3.4).
    #[error("{layout} has no {kind}: {reason}")]
    NotInvertible {
        /// The layout.
        layout: String,
        /// The inverse that was asked for.
        kind: &'static str,
        /// The reason, and what would be right.
        reason: String,
    },
    /// An operation that needs as many modes on the left as on the right.
    #[error("{operation} of a layout of rank {left} with one of rank {right}: {expected}")]
    RankMismatch {
        /// The operation.
        operation: &'static str,
        /// The rank of the left operand.
        left: usize,
        /// The rank, or number of tilers, of the right operand.
        right: usize,
        /// The condition that would be right.
        expected: &'static str,
    },
    /// A swizzle whose parameters overlap or are too large.
    #[error(
        "Sw<{bits},{base},{shift}> is not a swizzle: shift must be at least bits, and their sum with base at most 62"
    )]
    BadSwizzle {
        /// The number of bits.
        bits: u32,
        /// The lowest bit changed.
        base: u32,
        /// The distance from the bits changed to the bits they are changed by.
        shift: u32,
    },
    /// An expression of the calculator that would take too many steps.
    #[error("this takes too long to compute: an expression may take {limit} steps")]
    TooLong {
        /// The steps that an expression may take.
        limit: u64,
    },
    /// Text that is not a layout.
    #[error("at byte {offset}: {message}")]
    Parse {
        /// The offset in bytes at which reading stopped.
        offset: usize,
        /// The thing that was expected.
        message: String,
    },
}

pub(crate) fn overflow(what: &'static str) -> LayoutError {
    LayoutError::Overflow { what }
}
