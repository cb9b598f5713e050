//! Integer expressions over tile constants, run-time sizes, loop counters, block indices and elements of tensors that the kernel reads.
//!
//! An expression's value is a 64-bit signed integer. Division rounds towards negative infinity, and `%` has the
//! sign of the divisor, as in Python: a tile index stays in its tile for negative offsets too.

use std::ops;

use crate::ids::ParamId;

/// A constant, a run-time size or a loop counter: an index into [`Program::symbols`](crate::Program::symbols).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct SymbolId(pub u32);

/// A dimension of the launch grid.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Axis {
    /// `block.x`, the fastest.
    X,
    /// `block.y`.
    Y,
    /// `block.z`.
    Z,
}

impl Axis {
    /// 0, 1 or 2.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// An operator on two integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IntOp {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, rounded down
    Div,
    /// `a % b`, with the sign of `b`
    Rem,
    /// `ceil_div(a, b)`, rounded up
    CeilDiv,
    /// `min(a, b)`
    Min,
    /// `max(a, b)`
    Max,
    /// `a == b`: 1 where it holds, else 0, like all comparisons.
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
    /// `a and b`: 1 where neither is 0, else 0. Both are evaluated.
    And,
    /// `a or b`: 0 where both are 0, else 1. Both are evaluated.
    Or,
}

impl IntOp {
    /// True if the result is 0 or 1: a comparison, `and`, `or`.
    pub fn is_condition(self) -> bool {
        match self {
            IntOp::Eq | IntOp::Ne | IntOp::Lt | IntOp::Le | IntOp::Gt | IntOp::Ge => true,
            IntOp::And | IntOp::Or => true,
            IntOp::Add | IntOp::Sub | IntOp::Mul | IntOp::Div | IntOp::Rem | IntOp::CeilDiv => false,
            IntOp::Min | IntOp::Max => false,
        }
    }

    /// Applies the operator; `None` on overflow and on division by zero.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            IntOp::Add => a.checked_add(b),
            IntOp::Sub => a.checked_sub(b),
            IntOp::Mul => a.checked_mul(b),
            IntOp::Div => floor_div(a, b),
            IntOp::Rem => floor_div(a, b).and_then(|q| a.checked_sub(q.checked_mul(b)?)),
            IntOp::CeilDiv => floor_div(a.checked_neg()?, b).and_then(i64::checked_neg),
            IntOp::Min => Some(a.min(b)),
            IntOp::Max => Some(a.max(b)),
            IntOp::Eq => Some(i64::from(a == b)),
            IntOp::Ne => Some(i64::from(a != b)),
            IntOp::Lt => Some(i64::from(a < b)),
            IntOp::Le => Some(i64::from(a <= b)),
            IntOp::Gt => Some(i64::from(a > b)),
            IntOp::Ge => Some(i64::from(a >= b)),
            IntOp::And => Some(i64::from(a != 0 && b != 0)),
            IntOp::Or => Some(i64::from(a != 0 || b != 0)),
        }
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

/// An integer expression.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// A literal.
    Int(i64),
    /// The value of a constant, size or loop counter.
    Symbol(SymbolId),
    /// The index of this block in the grid.
    Block(Axis),
    /// An operator applied to two expressions.
    Binary(IntOp, Box<Expr>, Box<Expr>),
    /// `groups[i]`, `table[b, j]`: an element of a tensor parameter of type `i32` that the kernel does not write, at one index a mode. An
    /// index outside its mode reads 0.
    Element(ParamId, Vec<Expr>),
    /// A scalar parameter of an integer type.
    Scalar(ParamId),
}

/// The values of names in an expression.
pub trait Scope {
    /// The value of a symbol, if it is known.
    fn symbol(&self, id: SymbolId) -> Option<i64>;
    /// The block's index along an axis, if it is known.
    fn block(&self, axis: Axis) -> Option<i64>;
    /// The element of a parameter at an index, one entry a mode, if it is known; where there are no buffers, none is.
    fn element(&self, _param: ParamId, _index: &[i64]) -> Option<i64> {
        None
    }
    /// The value of a scalar parameter of an integer type, if it is known; where there are no arguments, none is.
    fn scalar(&self, _param: ParamId) -> Option<i64> {
        None
    }
}

impl Expr {
    /// Applies `op`, folding two literals whose result does not overflow.
    pub fn binary(op: IntOp, a: Expr, b: Expr) -> Expr {
        if let (Expr::Int(x), Expr::Int(y)) = (&a, &b)
            && let Some(value) = op.apply(*x, *y)
        {
            return Expr::Int(value);
        }
        match (op, &a, &b) {
            (IntOp::Add | IntOp::Sub, _, Expr::Int(0))
            | (IntOp::Mul | IntOp::Div | IntOp::CeilDiv, _, Expr::Int(1)) => a,
            (IntOp::Add, Expr::Int(0), _) | (IntOp::Mul, Expr::Int(1), _) => b,
            (IntOp::And, Expr::Int(0), _) | (IntOp::And, _, Expr::Int(0)) => Expr::Int(0),
            (IntOp::Or, Expr::Int(x), _) | (IntOp::Or, _, Expr::Int(x)) if *x != 0 => Expr::Int(1),
            (IntOp::And, _, Expr::Int(_)) | (IntOp::Or, _, Expr::Int(0)) if a.is_condition() => a,
            (IntOp::And, Expr::Int(_), _) | (IntOp::Or, Expr::Int(0), _) if b.is_condition() => b,
            _ => Expr::Binary(op, Box::new(a), Box::new(b)),
        }
    }

    /// The value in a scope; `None` if a name has none there, on overflow, and on division by zero.
    pub fn eval(&self, scope: &impl Scope) -> Option<i64> {
        match self {
            Expr::Int(value) => Some(*value),
            Expr::Symbol(id) => scope.symbol(*id),
            Expr::Block(axis) => scope.block(*axis),
            Expr::Binary(op, a, b) => op.apply(a.eval(scope)?, b.eval(scope)?),
            Expr::Element(param, index) => {
                let index: Option<Vec<i64>> = index.iter().map(|e| e.eval(scope)).collect();
                scope.element(*param, &index?)
            }
            Expr::Scalar(param) => scope.scalar(*param),
        }
    }

    /// True if every value is 0 or 1: of a comparison, `and`, `or`.
    pub fn is_condition(&self) -> bool {
        matches!(self, Expr::Binary(op, ..) if op.is_condition())
    }

    /// The literal value, if the expression is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Expr::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// Calls `visit` for itself and each expression in it.
    pub fn visit(&self, visit: &mut impl FnMut(&Expr)) {
        visit(self);
        match self {
            Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => {}
            Expr::Binary(_, a, b) => {
                a.visit(visit);
                b.visit(visit);
            }
            Expr::Element(_, index) => index.iter().for_each(|e| e.visit(visit)),
        }
    }

    /// Calls `visit` for each parameter of which it reads an element, as often as it does.
    pub fn elements(&self, visit: &mut impl FnMut(ParamId)) {
        match self {
            Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => {}
            Expr::Binary(_, a, b) => {
                a.elements(visit);
                b.elements(visit);
            }
            Expr::Element(param, index) => {
                visit(*param);
                index.iter().for_each(|e| e.elements(visit));
            }
        }
    }

    /// Replaces the symbols for which `value` returns an expression, and folds.
    pub fn substitute(&self, value: &impl Fn(SymbolId) -> Option<Expr>) -> Expr {
        match self {
            Expr::Symbol(id) => value(*id).unwrap_or_else(|| self.clone()),
            Expr::Binary(op, a, b) => Expr::binary(*op, a.substitute(value), b.substitute(value)),
            Expr::Element(param, index) => {
                Expr::Element(*param, index.iter().map(|e| e.substitute(value)).collect())
            }
            Expr::Int(_) | Expr::Block(_) | Expr::Scalar(_) => self.clone(),
        }
    }

    /// The number of its operators, names and literals.
    pub fn size(&self) -> usize {
        match self {
            Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => 1,
            Expr::Binary(_, a, b) => a.size().saturating_add(b.size()).saturating_add(1),
            Expr::Element(_, index) => index.iter().fold(1, |sum: usize, e| sum.saturating_add(e.size())),
        }
    }

    /// The height of its tree: 0 of a name or a literal.
    pub(crate) fn height(&self) -> u32 {
        match self {
            Expr::Int(_) | Expr::Symbol(_) | Expr::Block(_) | Expr::Scalar(_) => 0,
            Expr::Binary(_, a, b) => a.height().max(b.height()) + 1,
            Expr::Element(_, index) => index.iter().map(Expr::height).max().unwrap_or(0) + 1,
        }
    }

    /// Calls `visit` for each symbol in it, as often as it occurs.
    pub(crate) fn symbols(&self, visit: &mut impl FnMut(SymbolId)) {
        match self {
            Expr::Symbol(id) => visit(*id),
            Expr::Binary(_, a, b) => {
                a.symbols(visit);
                b.symbols(visit);
            }
            Expr::Element(_, index) => index.iter().for_each(|e| e.symbols(visit)),
            Expr::Int(_) | Expr::Block(_) | Expr::Scalar(_) => {}
        }
    }

    /// `not self`: 1 where it is 0, else 0. Comparisons become their opposites.
    pub fn negated(&self) -> Expr {
        let both = |op, a: &Expr, b: &Expr| Expr::binary(op, a.clone(), b.clone());
        match self {
            Expr::Binary(IntOp::Eq, a, b) => both(IntOp::Ne, a, b),
            Expr::Binary(IntOp::Ne, a, b) => both(IntOp::Eq, a, b),
            Expr::Binary(IntOp::Lt, a, b) => both(IntOp::Ge, a, b),
            Expr::Binary(IntOp::Ge, a, b) => both(IntOp::Lt, a, b),
            Expr::Binary(IntOp::Gt, a, b) => both(IntOp::Le, a, b),
            Expr::Binary(IntOp::Le, a, b) => both(IntOp::Gt, a, b),
            Expr::Binary(IntOp::And, a, b) => Expr::binary(IntOp::Or, a.negated(), b.negated()),
            Expr::Binary(IntOp::Or, a, b) => Expr::binary(IntOp::And, a.negated(), b.negated()),
            other => Expr::binary(IntOp::Eq, other.clone(), Expr::Int(0)),
        }
    }

    /// `ceil_div(self, other)`: the number of tiles of size `other` that cover `self`.
    pub fn ceil_div(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(IntOp::CeilDiv, self.clone(), other.into())
    }

    /// The smaller of both.
    pub fn min(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(IntOp::Min, self.clone(), other.into())
    }

    /// The larger of both.
    pub fn max(&self, other: impl Into<Expr>) -> Expr {
        Expr::binary(IntOp::Max, self.clone(), other.into())
    }
}

macro_rules! comparison {
    ($($(#[$doc:meta])* $method:ident = $op:expr;)*) => {
        /// Comparisons and their connectives: 1 where they hold, else 0.
        impl Expr {
            $(
                $(#[$doc])*
                pub fn $method(&self, other: impl Into<Expr>) -> Expr {
                    Expr::binary($op, self.clone(), other.into())
                }
            )*
        }
    };
}
comparison! {
    /// `self == other`
    equals = IntOp::Eq;
    /// `self != other`
    differs = IntOp::Ne;
    /// `self < other`
    less = IntOp::Lt;
    /// `self <= other`
    at_most = IntOp::Le;
    /// `self > other`
    greater = IntOp::Gt;
    /// `self >= other`
    at_least = IntOp::Ge;
    /// `self and other`
    and = IntOp::And;
    /// `self or other`
    or = IntOp::Or;
}

impl From<i64> for Expr {
    fn from(value: i64) -> Self {
        Expr::Int(value)
    }
}

impl From<&Expr> for Expr {
    fn from(expr: &Expr) -> Self {
        expr.clone()
    }
}

macro_rules! operator {
    ($trait:ident, $method:ident, $op:expr) => {
        impl<R: Into<Expr>> ops::$trait<R> for Expr {
            type Output = Expr;
            fn $method(self, other: R) -> Expr {
                Expr::binary($op, self, other.into())
            }
        }
        impl<R: Into<Expr>> ops::$trait<R> for &Expr {
            type Output = Expr;
            fn $method(self, other: R) -> Expr {
                Expr::binary($op, self.clone(), other.into())
            }
        }
    };
}
operator!(Add, add, IntOp::Add);
operator!(Sub, sub, IntOp::Sub);
operator!(Mul, mul, IntOp::Mul);
operator!(Div, div, IntOp::Div);
operator!(Rem, rem, IntOp::Rem);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn division_rounds_down_and_ceil_div_rounds_up() {
        assert_eq!(IntOp::Div.apply(-7, 2), Some(-4));
        assert_eq!(IntOp::Rem.apply(-7, 2), Some(1));
        assert_eq!(IntOp::CeilDiv.apply(7, 2), Some(4));
        assert_eq!(IntOp::CeilDiv.apply(-7, 2), Some(-3));
        assert_eq!(IntOp::Div.apply(1, 0), None);
        assert_eq!(IntOp::Div.apply(i64::MIN, -1), None);
        assert_eq!(IntOp::Mul.apply(i64::MAX, 2), None);
    }

    #[test]
    fn literals_fold() {
        assert_eq!(Expr::Int(6) * 7 + 0, Expr::Int(42));
    }
}
