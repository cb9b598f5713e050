//! The arithmetic of elementwise statements, defined once: [`rounded`] makes of an expression the tree of `f32` operations that it
//! means. The interpreter evaluates the tree, lowering emits it, the cost model counts it.
//!
//! Every operation rounds its result to `f32`, to nearest even. The one contraction is syntactic: a sum or a difference of which an
//! operand is written as a product is one `fma`, with one rounding. Where both are products, the right one is contracted, and the
//! left one is rounded on its own. Signs are free: `x * y - z` is fma(x, y, −z), `z - x * y` is fma(−x, y, z).
//!
//! `+ - * / min max abs sqrt`, negation and `fma` are defined to the bit, but for the bits of a NaN. The other functions are
//! approximated by kernels, within [`UnaryOp::error`] of the exact value; here they are rounded from it.

use tilewright_machine::ErrorBound;
use tilewright_machine::scalar::{least, most};

use crate::expr::Expr;
use crate::program::{BinaryOp, ElemExpr, ParamId, ReduceOp, TensorId, UnaryOp};

/// A tree of operations on `f32`, each of which rounds once.
#[derive(Clone, PartialEq, Debug)]
pub enum Rounded {
    /// The element of a register tensor at this coordinate, which every element type's is in `f32`.
    Tensor(TensorId),
    /// A literal.
    Number(f32),
    /// A scalar parameter.
    Scalar(ParamId),
    /// An integer expression, converted.
    Int(Expr),
    /// A function of one number.
    Unary(UnaryOp, Box<Rounded>),
    /// An operator on two numbers.
    Binary(BinaryOp, Box<Rounded>, Box<Rounded>),
    /// `x · y + z`, rounded once.
    Fma(Box<[Rounded; 3]>),
}

/// The operations that an elementwise expression means.
pub fn rounded(expr: &ElemExpr) -> Rounded {
    match expr {
        ElemExpr::Tensor(id) => Rounded::Tensor(*id),
        ElemExpr::Number(x) => Rounded::Number(*x as f32),
        ElemExpr::Scalar(id) => Rounded::Scalar(*id),
        ElemExpr::Int(e) => Rounded::Int(e.clone()),
        ElemExpr::Unary(op, x) => Rounded::Unary(*op, Box::new(rounded(x))),
        ElemExpr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), left, right) => {
            sum(*op == BinaryOp::Sub, left, right)
        }
        ElemExpr::Binary(op, x, y) => Rounded::Binary(*op, Box::new(rounded(x)), Box::new(rounded(y))),
    }
}

fn sum(subtracts: bool, left: &ElemExpr, right: &ElemExpr) -> Rounded {
    let signed = |negative: bool, x: &ElemExpr| {
        if negative { Rounded::Unary(UnaryOp::Neg, Box::new(rounded(x))) } else { rounded(x) }
    };
    if let ElemExpr::Binary(BinaryOp::Mul, x, y) = right {
        return Rounded::Fma(Box::new([signed(subtracts, x), rounded(y), rounded(left)]));
    }
    if let ElemExpr::Binary(BinaryOp::Mul, x, y) = left {
        return Rounded::Fma(Box::new([rounded(x), rounded(y), signed(subtracts, right)]));
    }
    let op = if subtracts { BinaryOp::Sub } else { BinaryOp::Add };
    Rounded::Binary(op, Box::new(rounded(left)), Box::new(rounded(right)))
}

impl UnaryOp {
    /// The value in `f32`: the exact one, rounded to nearest even.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Exp | UnaryOp::Log | UnaryOp::Rsqrt | UnaryOp::Tanh => self.exact(f64::from(x)) as f32,
        }
    }

    /// The value in double precision.
    pub fn exact(self, x: f64) -> f64 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Exp => x.exp(),
            UnaryOp::Log => x.ln(),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Rsqrt => 1.0 / x.sqrt(),
            UnaryOp::Tanh => x.tanh(),
        }
    }

    /// The distance of a kernel's result from the exact value, at most; `None` where it is defined to the bit.
    ///
    /// The bounds follow from those of the instructions ([`tilewright_machine::ScalarOp::error`]) and the roundings between them, and
    /// `tilewright fidelity --functions` measures them.
    pub fn error(self) -> Option<ErrorBound> {
        match self {
            UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sqrt => None,
            // ex2(x · log₂ e): the product is rounded (2⁻²⁴), and so is log₂ e (2⁻²⁶·²), together 2⁻²³·⁷¹ of the
            // exponent; a subnormal result is a rounded square.
            UnaryOp::Exp => Some(ErrorBound {
                relative: 2f64.powf(-22.5),
                per_argument: 2f64.powf(-23.7),
                absolute: 2f64.powi(-147),
            }),
            // lg2(x) · ln 2: 2⁻²² and a rounding; from 0.5 to 2, where the logarithm vanishes, 2⁻²²·⁶ · ln 2.
            UnaryOp::Log => {
                Some(ErrorBound { absolute: 2f64.powi(-23), ..ErrorBound::relative(2f64.powf(-21.6)) })
            }
            UnaryOp::Rsqrt => Some(ErrorBound::relative(2f64.powf(-22.9))),
            // A polynomial to 0.5625 (2⁻²²·⁹), then 1 − 2 / (1 + e²ˣ), whose error is largest where it begins.
            UnaryOp::Tanh => Some(ErrorBound::relative(2f64.powf(-21.0))),
        }
    }
}

impl BinaryOp {
    /// The value in `f32`, rounded to nearest even; of minimum and maximum, a NaN loses and −0 lies below +0.
    pub fn apply(self, x: f32, y: f32) -> f32 {
        match self {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div => x / y,
            BinaryOp::Min => least(f64::from(x), f64::from(y)) as f32,
            BinaryOp::Max => most(f64::from(x), f64::from(y)) as f32,
        }
    }
}

impl ReduceOp {
    /// Two elements put together, in double precision; of minimum and maximum, a NaN loses and −0 lies below +0.
    pub fn apply(self, x: f64, y: f64) -> f64 {
        match self {
            ReduceOp::Sum => x + y,
            ReduceOp::Max => most(x, y),
            ReduceOp::Min => least(x, y),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn x(id: u32) -> ElemExpr {
        ElemExpr::Tensor(TensorId(id))
    }

    fn two(op: BinaryOp, x: ElemExpr, y: ElemExpr) -> ElemExpr {
        ElemExpr::Binary(op, Box::new(x), Box::new(y))
    }

    fn fma(x: Rounded, y: Rounded, z: Rounded) -> Rounded {
        Rounded::Fma(Box::new([x, y, z]))
    }

    #[test]
    fn a_product_in_a_sum_is_contracted_and_of_two_the_right_one() {
        use BinaryOp::*;
        let t = |id| Rounded::Tensor(TensorId(id));
        let minus = |x| Rounded::Unary(UnaryOp::Neg, Box::new(x));
        let product = |a, b| Rounded::Binary(Mul, Box::new(t(a)), Box::new(t(b)));
        let cases = [
            (two(Add, two(Mul, x(0), x(1)), x(2)), fma(t(0), t(1), t(2))),
            (two(Add, x(2), two(Mul, x(0), x(1))), fma(t(0), t(1), t(2))),
            (two(Sub, two(Mul, x(0), x(1)), x(2)), fma(t(0), t(1), minus(t(2)))),
            (two(Sub, x(2), two(Mul, x(0), x(1))), fma(minus(t(0)), t(1), t(2))),
            (two(Add, two(Mul, x(0), x(1)), two(Mul, x(2), x(3))), fma(t(2), t(3), product(0, 1))),
            (two(Sub, two(Mul, x(0), x(1)), two(Mul, x(0), x(1))), fma(minus(t(0)), t(1), product(0, 1))),
        ];
        for (expr, expected) in cases {
            assert_eq!(rounded(&expr), expected);
        }
        // A negated product is no product, and a quotient is not contracted.
        let negated = ElemExpr::Unary(UnaryOp::Neg, Box::new(two(Mul, x(0), x(1))));
        assert!(matches!(rounded(&two(Add, negated, x(2))), Rounded::Binary(Add, ..)));
        assert!(matches!(rounded(&two(Add, two(Div, x(0), x(1)), x(2))), Rounded::Binary(Add, ..)));
    }
}
