//! The DSL's handles and elementwise expressions.

use std::ops;

use crate::expr::Expr;
use crate::parser::MAX_DEPTH;
use crate::program::{BinaryOp, ElemExpr, ParamId, TensorId, UnaryOp};

use super::POISONED;

/// A tensor parameter.
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    pub(super) param: ParamId,
    pub(super) owner: u64,
}

impl Buffer {
    /// The buffer from these coordinates on: one offset a mode.
    pub fn from<E: Into<Expr>>(&self, offsets: impl IntoIterator<Item = E>) -> BufferAt {
        BufferAt {
            buffer: *self,
            offsets: Some(offsets.into_iter().map(Into::into).collect()),
            ends: Vec::new(),
        }
    }

    /// `groups[index]`: an element of a tensor of one mode, as an integer. Its type is `i32`, and the kernel does not write it; an index
    /// outside reads 0.
    pub fn element(&self, index: impl Into<Expr>) -> Expr {
        self.element_at([index])
    }

    /// `table[b, j]`: the same of a tensor of several modes, one index a mode.
    pub fn element_at<E: Into<Expr>>(&self, index: impl IntoIterator<Item = E>) -> Expr {
        Expr::Element(self.param, index.into_iter().map(Into::into).collect())
    }
}

/// A buffer, and the coordinates at which a view of it starts.
#[derive(Clone, Debug)]
pub struct BufferAt {
    pub(super) buffer: Buffer,
    pub(super) offsets: Option<Vec<Expr>>,
    pub(super) ends: Vec<(usize, Expr)>,
}

impl BufferAt {
    /// A view of it ends at a coordinate of a mode of the buffer (`c[first :, :]` becomes `c[first : end, :]`): what lies behind reads as 0 and
    /// is not written.
    pub fn until(mut self, mode: usize, end: impl Into<Expr>) -> BufferAt {
        self.ends.push((mode, end.into()));
        self
    }
}

impl From<&Buffer> for BufferAt {
    fn from(buffer: &Buffer) -> Self {
        BufferAt { buffer: *buffer, offsets: None, ends: Vec::new() }
    }
}

/// A tensor of the block: a view, a shared tensor or a register tensor.
#[derive(Clone, Copy, Debug)]
pub struct Tensor {
    pub(super) id: TensorId,
    pub(super) rank: usize,
    pub(super) owner: u64,
}

impl Tensor {
    /// `t[:, …, :, index]`: the view at a coordinate of its last mode.
    pub fn at(&self, index: impl Into<Expr>) -> Reference {
        let mut entries = vec![None; self.rank.saturating_sub(1)];
        entries.push(Some(index.into()));
        self.index(entries)
    }

    /// The view with some modes fixed: one entry a mode, `None` keeps it.
    pub fn index(&self, entries: impl IntoIterator<Item = Option<Expr>>) -> Reference {
        Reference { tensor: *self, index: entries.into_iter().collect(), transposed: false }
    }

    /// `transpose(t)`.
    pub fn transpose(&self) -> Reference {
        Reference::from(self).transpose()
    }
}

/// A tensor as a copy uses it: perhaps indexed, perhaps transposed.
#[derive(Clone, Debug)]
pub struct Reference {
    pub(super) tensor: Tensor,
    pub(super) index: Vec<Option<Expr>>,
    pub(super) transposed: bool,
}

impl Reference {
    /// `transpose(t[…])`: the kept modes in reverse order.
    pub fn transpose(mut self) -> Self {
        self.transposed = !self.transposed;
        self
    }
}

impl From<&Tensor> for Reference {
    fn from(tensor: &Tensor) -> Self {
        Reference { tensor: *tensor, index: Vec::new(), transposed: false }
    }
}

impl From<Tensor> for Reference {
    fn from(tensor: Tensor) -> Self {
        Reference::from(&tensor)
    }
}

/// An elementwise expression over register tensors, scalar parameters and numbers.
#[derive(Clone, Debug)]
pub struct Elem {
    pub(super) expr: ElemExpr,
    pub(super) owner: Option<u64>,
    pub(super) height: u32,
    /// Handles of two kernels meet in it.
    pub(super) mixed: bool,
    /// A handle in it could not be made.
    pub(super) poisoned: bool,
    /// A number in it is not one.
    pub(super) nan: bool,
}

impl Elem {
    pub(super) fn leaf(expr: ElemExpr, owner: Option<u64>) -> Self {
        let poisoned = match &expr {
            ElemExpr::Tensor(id) => id.0 == POISONED,
            ElemExpr::Scalar(id) => id.0 == POISONED,
            _ => false,
        };
        let nan = matches!(&expr, ElemExpr::Number(x) if x.is_nan());
        Elem { expr, owner, height: 0, mixed: false, poisoned, nan }
    }

    /// A function of this expression.
    fn unary(mut self, op: UnaryOp) -> Elem {
        if let (UnaryOp::Neg, ElemExpr::Number(x)) = (op, &self.expr) {
            // As the text form reads it.
            self.expr = ElemExpr::Number(-x);
            return self;
        }
        self.height += 1;
        let expr = std::mem::replace(&mut self.expr, ElemExpr::Number(0.0));
        self.expr = ElemExpr::Unary(op, Box::new(expr));
        self.limited()
    }

    fn binary(op: BinaryOp, a: Elem, b: Elem) -> Elem {
        let mixed = matches!((a.owner, b.owner), (Some(x), Some(y)) if x != y);
        Elem {
            owner: a.owner.or(b.owner),
            height: a.height.max(b.height) + 1,
            mixed: mixed || a.mixed || b.mixed,
            poisoned: a.poisoned || b.poisoned,
            nan: a.nan || b.nan,
            expr: ElemExpr::Binary(op, Box::new(a.expr), Box::new(b.expr)),
        }
        .limited()
    }

    /// Keeps an expression from growing once it is too deep to be used.
    fn limited(mut self) -> Elem {
        if self.height > MAX_DEPTH {
            self.height = MAX_DEPTH + 1;
            self.expr = ElemExpr::Number(0.0);
        }
        self
    }
}

/// `float(value)`: an integer expression as a number.
pub fn float(value: impl Into<Expr>) -> Elem {
    Elem::leaf(ElemExpr::Int(value.into()), None)
}

impl From<f64> for Elem {
    fn from(value: f64) -> Self {
        Elem::leaf(ElemExpr::Number(value), None)
    }
}

impl From<Tensor> for Elem {
    fn from(tensor: Tensor) -> Self {
        Elem::leaf(ElemExpr::Tensor(tensor.id), Some(tensor.owner))
    }
}

impl From<&Tensor> for Elem {
    fn from(tensor: &Tensor) -> Self {
        Elem::from(*tensor)
    }
}

impl From<&Elem> for Elem {
    fn from(elem: &Elem) -> Self {
        elem.clone()
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $op:expr;)*) => {
        impl Elem {
            $($(#[$doc])* pub fn $name(&self) -> Elem { self.clone().unary($op) })*
        }
        impl Tensor {
            $($(#[$doc])* pub fn $name(&self) -> Elem { Elem::from(self).unary($op) })*
        }
    };
}
functions! {
    /// `abs(x)`.
    abs => UnaryOp::Abs;
    /// `exp(x)`.
    exp => UnaryOp::Exp;
    /// `log(x)`, natural.
    log => UnaryOp::Log;
    /// `sqrt(x)`.
    sqrt => UnaryOp::Sqrt;
    /// `rsqrt(x)`: 1/√x.
    rsqrt => UnaryOp::Rsqrt;
    /// `tanh(x)`.
    tanh => UnaryOp::Tanh;
}

macro_rules! extrema {
    ($($type:ty),*) => {$(
        impl $type {
            /// `min(x, y)`.
            pub fn min(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Min, self.into(), other.into())
            }

            /// `max(x, y)`.
            pub fn max(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Max, self.into(), other.into())
            }
        }
        impl ops::Neg for $type {
            type Output = Elem;
            fn neg(self) -> Elem {
                Elem::from(self).unary(UnaryOp::Neg)
            }
        }
        impl ops::Neg for &$type {
            type Output = Elem;
            fn neg(self) -> Elem {
                Elem::from(self).unary(UnaryOp::Neg)
            }
        }
    )*};
}
extrema!(Elem, Tensor);

macro_rules! operator {
    ($trait:ident, $method:ident, $op:expr; $($left:ty),*) => {$(
        impl<R: Into<Elem>> ops::$trait<R> for $left {
            type Output = Elem;
            fn $method(self, other: R) -> Elem {
                Elem::binary($op, self.into(), other.into())
            }
        }
    )*};
}
macro_rules! from_number {
    ($trait:ident, $method:ident, $op:expr; $($right:ty),*) => {$(
        impl ops::$trait<$right> for f64 {
            type Output = Elem;
            fn $method(self, other: $right) -> Elem {
                Elem::binary($op, self.into(), other.into())
            }
        }
    )*};
}
macro_rules! operators {
    ($($trait:ident, $method:ident, $op:expr;)*) => {$(
        operator!($trait, $method, $op; Elem, &Elem, Tensor, &Tensor);
        from_number!($trait, $method, $op; Elem, &Elem, Tensor, &Tensor);
    )*};
}
operators! {
    Add, add, BinaryOp::Add;
    Sub, sub, BinaryOp::Sub;
    Mul, mul, BinaryOp::Mul;
    Div, div, BinaryOp::Div;
}
