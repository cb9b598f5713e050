//! The DSL's handles and elementwise expressions.

use std::ops;

use tilewright_machine::DType;

use crate::expr::Expr;
use crate::parser::MAX_DEPTH;
use crate::program::{Asm, BinaryOp, ElemExpr, ParamId, TensorId, UnaryOp};

use super::POISONED;
use super::call::Call;

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
        Reference { tensor: *self, index: entries.into_iter().collect(), indexed: None, transposed: false }
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
    pub(super) indexed: Option<(u32, Elem)>,
    pub(super) transposed: bool,
}

impl Reference {
    /// `t[id, :]`: with a mode that a register tensor of `i32` indexes, or an expression of that type.
    pub fn indexed(mut self, mode: u32, by: impl Into<Elem>) -> Self {
        // Every mode has an entry where one is indexed.
        self.index.resize(self.index.len().max(self.tensor.rank), None);
        self.indexed = Some((mode, by.into()));
        self
    }

    /// `transpose(t[…])`: the kept modes in reverse order.
    pub fn transpose(mut self) -> Self {
        self.transposed = !self.transposed;
        self
    }
}

impl From<&Tensor> for Reference {
    fn from(tensor: &Tensor) -> Self {
        Reference { tensor: *tensor, index: Vec::new(), indexed: None, transposed: false }
    }
}

impl From<Tensor> for Reference {
    fn from(tensor: Tensor) -> Self {
        Reference::from(&tensor)
    }
}

/// Operand that a copy or a product reads: a tensor in any memory, or an expression in registers.
#[derive(Clone, Debug)]
pub enum Source {
    /// A tensor, perhaps indexed, perhaps transposed.
    Reference(Reference),
    /// An expression.
    Value(Elem),
}

impl<R: Into<Reference>> From<R> for Source {
    fn from(reference: R) -> Self {
        Source::Reference(reference.into())
    }
}

impl From<Elem> for Source {
    fn from(value: Elem) -> Self {
        Source::Value(value)
    }
}

/// An expression over register tensors, scalar parameters and numbers.
#[derive(Clone, Debug)]
pub struct Elem {
    pub(super) expr: ElemExpr,
    /// The parts of it that are statements of their own: [`CALLS`] and on are their places in the expression.
    pub(super) calls: Vec<Call>,
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
        Elem { expr, calls: Vec::new(), owner, height: 0, mixed: false, poisoned, nan }
    }

    /// `op` of this expression, for whoever has operations as data.
    pub fn unary(mut self, op: UnaryOp) -> Elem {
        if let (UnaryOp::Neg, ElemExpr::Number(x)) = (op, &self.expr) {
            // As the text form reads it.
            self.expr = ElemExpr::Number(-x);
            return self;
        }
        self.height += 1;
        self.expr = ElemExpr::unary(op, self.take());
        self.limited()
    }

    fn take(&mut self) -> ElemExpr {
        std::mem::replace(&mut self.expr, ElemExpr::Number(0.0))
    }

    /// `a op b`, for whoever has operations as data.
    pub fn binary(op: BinaryOp, mut a: Elem, mut b: Elem) -> Elem {
        a.join_calls(&mut b);
        let (x, y) = (a.take(), b.take());
        let mut both = a.with(b);
        both.expr = ElemExpr::binary(op, x, y);
        both.limited()
    }

    /// This expression and another beside each other, for an operation on both.
    fn with(self, other: Elem) -> Elem {
        let mixed = matches!((self.owner, other.owner), (Some(x), Some(y)) if x != y);
        Elem {
            owner: self.owner.or(other.owner),
            height: self.height.max(other.height) + 1,
            mixed: mixed || self.mixed || other.mixed,
            poisoned: self.poisoned || other.poisoned,
            nan: self.nan || other.nan,
            calls: self.calls,
            expr: self.expr,
        }
    }

    /// The bits of a value of 32 bits as one of another type of 32 bits.
    pub fn bitcast(mut self, dtype: DType) -> Elem {
        self.height += 1;
        self.expr = ElemExpr::Bitcast(dtype, Box::new(self.take()));
        self.limited()
    }

    /// `f16x2(self)`: every operation on `f16` in it is rounded to `f16`.
    pub fn f16x2(self) -> Elem {
        self.packed(DType::F16)
    }

    /// `bf16x2(self)`: every operation on `bf16` in it is rounded to `bf16`.
    pub fn bf16x2(self) -> Elem {
        self.packed(DType::BF16)
    }

    fn packed(mut self, dtype: DType) -> Elem {
        self.height += 1;
        self.expr = ElemExpr::Packed(dtype, Box::new(self.take()));
        self.limited()
    }

    /// Keeps an expression from growing once it is too deep to be used.
    pub(super) fn limited(mut self) -> Elem {
        if self.height > MAX_DEPTH {
            self.height = MAX_DEPTH + 1;
            self.calls = Vec::new();
            self.expr = ElemExpr::Number(0.0);
        }
        self
    }
}

/// `float(value)`: an integer as a number.
pub fn float(value: impl Into<Elem>) -> Elem {
    value.into().unary(UnaryOp::Float)
}

/// `index(axis)`: the coordinate of an element along a mode of the result.
pub fn index(axis: u32) -> Elem {
    Elem::leaf(ElemExpr::Index(axis), None)
}

/// `where(c, x, y)`: x where c is true, else y. Both are evaluated.
pub fn where_(c: impl Into<Elem>, x: impl Into<Elem>, y: impl Into<Elem>) -> Elem {
    let [mut c, mut x, mut y]: [Elem; 3] = [c.into(), x.into(), y.into()];
    c.join_calls(&mut x);
    c.join_calls(&mut y);
    let operands = Box::new([c.take(), x.take(), y.take()]);
    let mut chosen = c.with(x).with(y);
    chosen.expr = ElemExpr::Where(operands);
    chosen.limited()
}

/// `asm(text, operands, means = means, within = within)`: what instructions of PTX compute of the operands. `means` says what that is, for the
/// interpreter; the result may be off by `within` of its size.
pub fn asm(
    text: impl Into<String>,
    operands: impl IntoIterator<Item = Elem>,
    means: impl Into<Elem>,
    within: f64,
) -> Elem {
    let (text, mut whole) = (text.into(), Elem::leaf(ElemExpr::Number(0.0), None));
    let mut parts = Vec::new();
    for mut x in operands.into_iter().chain([means.into()]) {
        whole.join_calls(&mut x);
        parts.push(x.take());
        whole = whole.with(x);
    }
    let means = parts.pop().unwrap_or(ElemExpr::Number(f64::NAN));
    whole.expr = ElemExpr::Asm(Box::new(Asm { text, operands: parts, means, within }));
    whole.limited()
}

impl From<Expr> for Elem {
    fn from(value: Expr) -> Self {
        Elem::leaf(ElemExpr::Int(value), None)
    }
}

impl From<&Expr> for Elem {
    fn from(value: &Expr) -> Self {
        Elem::from(value.clone())
    }
}

impl From<i64> for Elem {
    fn from(value: i64) -> Self {
        Elem::from(value as f64)
    }
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
    /// `exp2(x)`: 2ˣ.
    exp2 => UnaryOp::Exp2;
    /// `log2(x)`.
    log2 => UnaryOp::Log2;
    /// `sin(x)`, of radians.
    sin => UnaryOp::Sin;
    /// `cos(x)`, of radians.
    cos => UnaryOp::Cos;
    /// `erf(x)`.
    erf => UnaryOp::Erf;
    /// `floor(x)`.
    floor => UnaryOp::Floor;
    /// `ceil(x)`.
    ceil => UnaryOp::Ceil;
    /// `round(x)`: to the nearest integer, of two to the even one.
    round => UnaryOp::Round;
    /// `float(x)`: an integer or a truth value as an `f32`.
    float => UnaryOp::Float;
    /// `int(x)`: a truth value as 1 or 0.
    int => UnaryOp::Int;
    /// `not x`, of truth values.
    not => UnaryOp::Not;
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

            /// `fdividef(x, y)`: a cheap quotient, see [`BinaryOp::FastDiv`].
            pub fn fdividef(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::FastDiv, self.into(), other.into())
            }

            /// `mulhi(x, y)`: the upper 32 bits of the product of integers.
            pub fn mulhi(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::MulHi, self.into(), other.into())
            }

            /// `x == y`.
            pub fn eq(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Eq, self.into(), other.into())
            }

            /// `x != y`.
            pub fn ne(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Ne, self.into(), other.into())
            }

            /// `x < y`.
            pub fn lt(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Lt, self.into(), other.into())
            }

            /// `x <= y`.
            pub fn le(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Le, self.into(), other.into())
            }

            /// `x > y`.
            pub fn gt(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Gt, self.into(), other.into())
            }

            /// `x >= y`.
            pub fn ge(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Ge, self.into(), other.into())
            }

            /// `x and y`, of truth values.
            pub fn and(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::And, self.into(), other.into())
            }

            /// `x or y`, of truth values.
            pub fn or(&self, other: impl Into<Elem>) -> Elem {
                Elem::binary(BinaryOp::Or, self.into(), other.into())
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
    Rem, rem, BinaryOp::Rem;
    BitAnd, bitand, BinaryOp::BitAnd;
    BitOr, bitor, BinaryOp::BitOr;
    BitXor, bitxor, BinaryOp::BitXor;
    Shl, shl, BinaryOp::Shl;
    Shr, shr, BinaryOp::Shr;
}
