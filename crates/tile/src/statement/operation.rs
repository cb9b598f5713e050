//! Operations that statements name: of shapes, reductions, scans and assertions.

use super::TensorRef;
use super::form::{Form, Surface};
use crate::expr::Expr;
use crate::ids::TensorId;

/// The relation of the result of a [`StmtKind::Shape`](super::StmtKind::Shape) to its operand. Elements are counted colexicographically, the leftmost
/// mode fastest, as everywhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ShapeOp<F: Form = Surface> {
    /// `transpose(r, 1, 0, 2)`: mode `i` of the result is mode `order[i]` of the operand. Each mode occurs once.
    Transpose(Vec<u32>),
    /// `reshape(r, [A, B])`: the same elements in the same order, in this shape.
    Reshape(Vec<F::Int>),
    /// `expand(r, axis)`: a new mode of extent 1, which is mode `axis` of the result.
    Expand {
        /// From 0 to the number of modes of the operand.
        axis: u32,
    },
    /// `slice(r, axis, start, extent)`: of mode `axis`, the coordinates from `start` on, `extent` of them.
    Slice {
        /// The mode.
        axis: u32,
        /// The first coordinate, over constants and counters of `unroll for`.
        start: F::Int,
        /// The number of coordinates, over constants.
        extent: F::Int,
    },
    /// `broadcast(r, [A, B])`: modes of extent 1 are repeated to these extents; the others have them already.
    Broadcast(Vec<F::Int>),
}

impl<F: Form> ShapeOp<F> {
    /// The word of the tile language.
    pub fn name(&self) -> &'static str {
        match self {
            ShapeOp::Transpose(_) => "transpose",
            ShapeOp::Reshape(_) => "reshape",
            ShapeOp::Expand { .. } => "expand",
            ShapeOp::Slice { .. } => "slice",
            ShapeOp::Broadcast(_) => "broadcast",
        }
    }
}

/// The operation of a [`StmtKind::Reduce`](super::StmtKind::Reduce). The order of the elements is the compiler's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// `sum`: floats are added in `f32`, and the sum is rounded once to the element type; `i32` counts modulo 2³².
    /// There is no sum of integers of 8 bits and fewer.
    Sum,
    /// `max`: the largest. A NaN loses to every number.
    Max,
    /// `min`: the smallest. A NaN loses to every number.
    Min,
    /// `product`: floats are multiplied in `f32`, and the product is rounded once to the element type; `i32` counts modulo 2³².
    /// There is no product of integers of 8 bits and fewer.
    Product,
}

impl ReduceOp {
    /// All, in the order of the grammar.
    pub const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product];

    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Product => "product",
        }
    }

    /// True if it computes new numbers, which are rounded: the others choose among the elements.
    pub fn computes(self) -> bool {
        matches!(self, ReduceOp::Sum | ReduceOp::Product)
    }
}

/// The condition of a [`StmtKind::Assert`](super::StmtKind::Assert).
#[derive(Clone, PartialEq, Debug)]
pub enum Asserted {
    /// An integer that is not 0.
    Integer(Expr),
    /// `all(t)`: every element of a register tensor of truth values is true.
    All(TensorId),
}

/// An item of a [`StmtKind::Print`](super::StmtKind::Print).
#[derive(Clone, PartialEq, Debug)]
pub enum PrintItem<F: Form = Surface> {
    /// An integer.
    Integer(Expr),
    /// A register tensor, or a shared tensor that may be indexed.
    Tensor {
        /// The tensor.
        of: TensorRef<F>,
        /// The extents up to which it is shown: of a tensor that a pass of the core program has padded those that it had. `None`: all.
        extents: Option<Vec<i64>>,
    },
}

/// The counters of the loops around a [`StmtKind::Print`](super::StmtKind::Print), outermost first: each with its name and its value, which
/// stays where a pass writes the loop's iterations out.
pub type Iteration = Vec<(String, Expr)>;

/// The element that a [`StmtKind::Arg`](super::StmtKind::Arg) finds. The order is that of [`ReduceOp::Max`]: a NaN loses to every number, −0 lies below +0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArgOp {
    /// `argmax`: the largest.
    Max,
    /// `argmin`: the smallest.
    Min,
}

impl ArgOp {
    /// All, in the order of the grammar.
    pub const ALL: [ArgOp; 2] = [ArgOp::Max, ArgOp::Min];

    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            ArgOp::Max => "argmax",
            ArgOp::Min => "argmin",
        }
    }

    /// The reduction to the same element.
    pub fn extreme(self) -> ReduceOp {
        match self {
            ArgOp::Max => ReduceOp::Max,
            ArgOp::Min => ReduceOp::Min,
        }
    }
}

/// The results of a [`StmtKind::Combine`](super::StmtKind::Combine).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CombineForm {
    /// The tuple that all along the mode come to: the mode is gone, as in a reduction.
    Reduce,
    /// For every element the tuple that those up to it come to, itself among them.
    Scan {
        /// From the last element of the mode to the first.
        reverse: bool,
    },
}

impl CombineForm {
    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            CombineForm::Reduce => "reduce",
            CombineForm::Scan { .. } => "scan",
        }
    }
}

/// The operands of a [`StmtKind::Scan`](super::StmtKind::Scan). Floats are combined in `f32`, each result is rounded once to the element type; which elements are
/// put together first is the compiler's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanOperands {
    /// `scan(src, op, axis)`: sums, products, the largest or the smallest so far.
    One {
        /// The operand.
        src: TensorId,
        /// The operation on two elements.
        op: ReduceOp,
    },
    /// `scan(a, b, linear, axis)`, `scan(a, b, linear, axis, h0)`: hₜ = aₜ·hₜ₋₁ + bₜ of floats, from h₋₁ = `h0`, or 0.
    Linear {
        /// The factors.
        a: TensorId,
        /// The terms, of the same shape and type.
        b: TensorId,
        /// The state before the first: of extent 1 along the mode, or without it. In a reverse scan it is the state behind the last.
        before: Option<TensorId>,
    },
}

impl ScanOperands {
    /// The operands of the result's shape, in the order of the text.
    pub fn tensors(&self) -> Vec<TensorId> {
        match self {
            ScanOperands::One { src, .. } => vec![*src],
            ScanOperands::Linear { a, b, .. } => vec![*a, *b],
        }
    }
}
