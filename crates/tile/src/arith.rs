//! The arithmetic of elementwise statements, defined once: [`rounded`] makes of an expression the tree of operations that it
//! means. The interpreter evaluates the tree, lowering emits it, the cost model counts it.
//!
//! Every value has a type, and every operation is done in one of four ([`Compute`]): floats in `f32`, integers of 32 bits modulo
//! 2³², and truth values. Literals, scalar parameters of type `f32`, `float(…)` and integers of the program take the type of the operand beside them;
//! nothing else is converted unasked ([`value_type`]).
//!
//! Every operation on floats rounds its result to `f32`, to nearest even. The one contraction is syntactic: a sum or a difference of which an
//! operand is written as a product is one `fma`, with one rounding. Where both are products, the right one is contracted, and the
//! left one is rounded on its own. Signs are free: `x * y - z` is fma(x, y, −z), `z - x * y` is fma(−x, y, z).
//!
//! `+ - * / min max abs sqrt floor ceil round`, negation, `fma`, comparisons, and all that is done with integers and truth values are defined to
//! the bit, but for the bits of a NaN and quotients by the integer 0. The other functions are approximated by kernels, within [`UnaryOp::error`] of the exact value; here they
//! are rounded from it.

mod types;

use tilewright_machine::scalar::{least, most};
use tilewright_machine::{DType, ErrorBound};

pub use types::{Compute, TypeClash, TypeClashReason, Types, ValueType, value_type};

use crate::expr::Expr;
use crate::program::{BinaryOp, ElemExpr, ParamId, ReduceOp, TensorId, UnaryOp};

/// A tree of operations, each of which rounds once. An operation names the type of its operands.
#[derive(Clone, PartialEq, Debug)]
pub enum Rounded {
    /// The element of a register tensor at this coordinate.
    Tensor(TensorId),
    /// A literal.
    Number(f32),
    /// A literal integer.
    Integer(i64),
    /// A scalar parameter.
    Scalar(ParamId),
    /// An integer of the program, modulo 2³², or a condition over them.
    Int(Expr),
    /// The coordinate of the element along a mode.
    Index(u32),
    /// A function of one value.
    Unary(UnaryOp, Compute, Box<Rounded>),
    /// An operator on two values.
    Binary(BinaryOp, Compute, Box<Rounded>, Box<Rounded>),
    /// `x · y + z`, rounded once.
    Fma(Box<[Rounded; 3]>),
    /// The second where the first is true, else the third; of this type.
    Where(Compute, Box<[Rounded; 3]>),
    /// The bits of a value of the first type as one of the second.
    Bitcast([Compute; 2], Box<Rounded>),
}

impl Rounded {
    /// The operands of an operation.
    pub fn operands(&self) -> Vec<&Rounded> {
        match self {
            Rounded::Unary(_, _, x) | Rounded::Bitcast(_, x) => vec![x],
            Rounded::Binary(_, _, x, y) => vec![x, y],
            Rounded::Fma(operands) | Rounded::Where(_, operands) => operands.iter().collect(),
            Rounded::Tensor(_)
            | Rounded::Number(_)
            | Rounded::Integer(_)
            | Rounded::Scalar(_)
            | Rounded::Int(_)
            | Rounded::Index(_) => Vec::new(),
        }
    }
}

/// The operations that an expression of a result of this element type means.
///
/// # Errors
///
/// The first clash of types in it.
pub fn rounded(expr: &ElemExpr, result: DType, types: &(impl Types + ?Sized)) -> Result<Rounded, TypeClash> {
    // A tensor alone is moved, whatever its type.
    if let ElemExpr::Tensor(id) = expr
        && types.tensor(*id) == result
    {
        return Ok(Rounded::Tensor(*id));
    }
    let found = value_type(expr, types)?;
    let compute = Compute::of(result).ok_or_else(|| TypeClash::unsupported(expr, result))?;
    if !found.becomes(result) {
        return Err(TypeClash::result(expr, found, result));
    }
    tree(expr, compute, types)
}

/// The tree of an expression whose value is of a type.
fn tree(expr: &ElemExpr, compute: Compute, types: &(impl Types + ?Sized)) -> Result<Rounded, TypeClash> {
    let of = |x: &ElemExpr| tree(x, compute, types);
    let boxed = |x: &ElemExpr, compute: Compute| Ok(Box::new(tree(x, compute, types)?));
    Ok(match expr {
        ElemExpr::Tensor(id) => Rounded::Tensor(*id),
        ElemExpr::Number(x) if compute.is_integer() => Rounded::Integer(types::integer(expr, *x, compute)?),
        ElemExpr::Number(x) => Rounded::Number(*x as f32),
        ElemExpr::Scalar(id) => Rounded::Scalar(*id),
        ElemExpr::Int(e) => Rounded::Int(e.clone()),
        ElemExpr::Index(axis) => Rounded::Index(*axis),
        ElemExpr::Unary(op @ (UnaryOp::Float | UnaryOp::Int), x) => {
            let from = types::operand(x, types)?;
            Rounded::Unary(*op, from, boxed(x, from)?)
        }
        ElemExpr::Unary(op, x) => Rounded::Unary(*op, compute, boxed(x, compute)?),
        ElemExpr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), left, right) if compute == Compute::F32 => {
            sum(*op == BinaryOp::Sub, left, right, &of)?
        }
        ElemExpr::Binary(op, x, y) if op.compares() => {
            let operands = types::operands(expr, [x, y], types)?;
            Rounded::Binary(*op, operands, boxed(x, operands)?, boxed(y, operands)?)
        }
        ElemExpr::Binary(op, x, y) => Rounded::Binary(*op, compute, boxed(x, compute)?, boxed(y, compute)?),
        ElemExpr::Where(operands) => {
            let [c, x, y] = &**operands;
            Rounded::Where(compute, Box::new([tree(c, Compute::Bool, types)?, of(x)?, of(y)?]))
        }
        ElemExpr::Bitcast(_, x) => {
            let from = types::operand(x, types)?;
            Rounded::Bitcast([from, compute], boxed(x, from)?)
        }
    })
}

fn sum(
    subtracts: bool,
    left: &ElemExpr,
    right: &ElemExpr,
    of: &impl Fn(&ElemExpr) -> Result<Rounded, TypeClash>,
) -> Result<Rounded, TypeClash> {
    let signed = |negative: bool, x: &ElemExpr| {
        let x = of(x)?;
        Ok(if negative { Rounded::Unary(UnaryOp::Neg, Compute::F32, Box::new(x)) } else { x })
    };
    if let ElemExpr::Binary(BinaryOp::Mul, x, y) = right {
        return Ok(Rounded::Fma(Box::new([signed(subtracts, x)?, of(y)?, of(left)?])));
    }
    if let ElemExpr::Binary(BinaryOp::Mul, x, y) = left {
        return Ok(Rounded::Fma(Box::new([of(x)?, of(y)?, signed(subtracts, right)?])));
    }
    let op = if subtracts { BinaryOp::Sub } else { BinaryOp::Add };
    Ok(Rounded::Binary(op, Compute::F32, Box::new(of(left)?), Box::new(of(right)?)))
}

impl UnaryOp {
    /// The value of a float in `f32`: the exact one, rounded to nearest even. `float`, `int` and `not` are no functions of floats, and give it back.
    pub fn apply(self, x: f32) -> f32 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Floor => x.floor(),
            UnaryOp::Ceil => x.ceil(),
            UnaryOp::Round => x.round_ties_even(),
            UnaryOp::Float | UnaryOp::Int | UnaryOp::Not => x,
            UnaryOp::Exp
            | UnaryOp::Exp2
            | UnaryOp::Log
            | UnaryOp::Log2
            | UnaryOp::Rsqrt
            | UnaryOp::Tanh
            | UnaryOp::Sin
            | UnaryOp::Cos
            | UnaryOp::Erf => self.exact(f64::from(x)) as f32,
        }
    }

    /// The value in double precision.
    pub fn exact(self, x: f64) -> f64 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Exp => x.exp(),
            UnaryOp::Exp2 => x.exp2(),
            UnaryOp::Log => x.ln(),
            UnaryOp::Log2 => x.log2(),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Rsqrt => 1.0 / x.sqrt(),
            UnaryOp::Tanh => x.tanh(),
            UnaryOp::Sin => x.sin(),
            UnaryOp::Cos => x.cos(),
            UnaryOp::Erf => libm::erf(x),
            UnaryOp::Floor => x.floor(),
            UnaryOp::Ceil => x.ceil(),
            UnaryOp::Round => x.round_ties_even(),
            UnaryOp::Float | UnaryOp::Int | UnaryOp::Not => x,
        }
    }

    /// The distance of a kernel's result from the exact value, at most; `None` where it is defined to the bit.
    ///
    /// The bounds follow from those of the instructions ([`tilewright_machine::ScalarOp::error`]) and the roundings between them, and
    /// `tilewright fidelity --functions` measures them. Those of `sin` and `cos` hold for arguments up to [`LARGEST_ANGLE`].
    pub fn error(self) -> Option<ErrorBound> {
        match self {
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Float
            | UnaryOp::Int
            | UnaryOp::Not => None,
            // ex2(x · log₂ e): the product is rounded (2⁻²⁴), and so is log₂ e (2⁻²⁶·²), together 2⁻²³·⁷¹ of the
            // exponent; a subnormal result is a rounded square.
            UnaryOp::Exp => Some(ErrorBound {
                relative: 2f64.powf(-22.5),
                per_argument: 2f64.powf(-23.7),
                absolute: 2f64.powi(-147),
            }),
            UnaryOp::Exp2 => {
                Some(ErrorBound { absolute: 2f64.powi(-147), ..ErrorBound::relative(2f64.powf(-22.5)) })
            }
            // lg2(x) · ln 2: 2⁻²² and a rounding; from 0.5 to 2, where the logarithm vanishes, 2⁻²²·⁶ · ln 2.
            UnaryOp::Log => {
                Some(ErrorBound { absolute: 2f64.powi(-23), ..ErrorBound::relative(2f64.powf(-21.6)) })
            }
            UnaryOp::Log2 => {
                Some(ErrorBound { absolute: 2f64.powf(-22.6), ..ErrorBound::relative(2f64.powi(-22)) })
            }
            UnaryOp::Rsqrt => Some(ErrorBound::relative(2f64.powf(-22.9))),
            // A polynomial to 0.5625 (2⁻²²·⁹), then 1 − 2 / (1 + e²ˣ), whose error is largest where it begins.
            UnaryOp::Tanh => Some(ErrorBound::relative(2f64.powf(-21.0))),
            // Of the angle's remainder by 2π: 2⁻²⁰·⁵ of the instruction, half a unit in the last place of π, and 2⁻²³ of the remainder of the largest
            // angle.
            UnaryOp::Sin | UnaryOp::Cos => {
                Some(ErrorBound { absolute: 2f64.powi(-20), ..ErrorBound::relative(0.0) })
            }
            // A polynomial to 0.95, then 1 − 2^(−q): the relative error of the power is scaled by it. A subnormal result is a sum of two that are rounded.
            UnaryOp::Erf => {
                Some(ErrorBound { absolute: 2f64.powi(-149), ..ErrorBound::relative(2f64.powi(-22)) })
            }
        }
    }
}

impl UnaryOp {
    /// The distance of a kernel's result from the exact value `y` at argument `x`, at most; 0 where it is defined to the bit.
    pub fn error_at(self, x: f64, y: f64) -> f64 {
        match self {
            UnaryOp::Sin | UnaryOp::Cos if x.abs() > LARGEST_ANGLE => 2.0,
            _ => self.error().map_or(0.0, |bound| bound.at(x, y)),
        }
    }
}

/// The largest argument for which the bounds of `sin` and `cos` hold; beyond it their results are from −1 to 1.
pub const LARGEST_ANGLE: f64 = (1u64 << 30) as f64;

/// The bound of `fdividef(x, y)` where |y| is from 2⁻¹²⁶ to 2¹²⁶: 2 units in the last place (PTX ISA, `div.approx`).
pub fn fast_quotient_error() -> ErrorBound {
    ErrorBound { absolute: 2f64.powi(-149), ..ErrorBound::relative(2f64.powi(-22)) }
}

impl BinaryOp {
    /// The value of an operation on `f32`, rounded to nearest even; of minimum and maximum, a NaN loses and −0 lies below +0. `None` of an operator that has
    /// no float for a result.
    pub fn apply(self, x: f32, y: f32) -> Option<f32> {
        Some(match self {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div | BinaryOp::FastDiv => x / y,
            BinaryOp::Min => least(f64::from(x), f64::from(y)) as f32,
            BinaryOp::Max => most(f64::from(x), f64::from(y)) as f32,
            _ => return None,
        })
    }

    /// The value of an operation on integers of 32 bits, modulo 2³²; `None` of a quotient or a remainder by 0, which may be anything, and of an
    /// operator that has no integer for a result.
    pub fn apply_integer(self, compute: Compute, x: i64, y: i64) -> Option<i64> {
        let unsigned = compute == Compute::U32;
        let shift = y as u32;
        let value = match self {
            BinaryOp::Add => x.wrapping_add(y),
            BinaryOp::Sub => x.wrapping_sub(y),
            BinaryOp::Mul => x.wrapping_mul(y),
            BinaryOp::Div => {
                let quotient = x.checked_div(y)?;
                if x % y != 0 && (x < 0) != (y < 0) { quotient - 1 } else { quotient }
            }
            BinaryOp::Rem => {
                let rest = x.checked_rem(y)?;
                if rest != 0 && (rest < 0) != (y < 0) { rest + y } else { rest }
            }
            BinaryOp::Min => x.min(y),
            BinaryOp::Max => x.max(y),
            BinaryOp::MulHi if unsigned => ((x as u64).wrapping_mul(y as u64) >> 32) as i64,
            BinaryOp::MulHi => x.wrapping_mul(y) >> 32,
            BinaryOp::BitAnd => x & y,
            BinaryOp::BitOr => x | y,
            BinaryOp::BitXor => x ^ y,
            BinaryOp::Shl => i64::from((x as u32).checked_shl(shift).unwrap_or(0)),
            BinaryOp::Shr if unsigned => i64::from((x as u32).checked_shr(shift).unwrap_or(0)),
            BinaryOp::Shr => x >> shift.min(31),
            _ => return None,
        };
        Some(compute.wrap(value))
    }

    /// The truth of a comparison of two numbers; `None` of another operator. A NaN is unequal to everything, and otherwise compares to nothing.
    pub fn compare(self, x: f64, y: f64) -> Option<bool> {
        Some(match self {
            BinaryOp::Eq => x == y,
            BinaryOp::Ne => x != y,
            BinaryOp::Lt => x < y,
            BinaryOp::Le => x <= y,
            BinaryOp::Gt => x > y,
            BinaryOp::Ge => x >= y,
            _ => return None,
        })
    }
}

impl ReduceOp {
    /// Two elements put together, in double precision; of minimum and maximum, a NaN loses and −0 lies below +0.
    pub fn apply(self, x: f64, y: f64) -> f64 {
        match self {
            ReduceOp::Sum => x + y,
            ReduceOp::Max => most(x, y),
            ReduceOp::Min => least(x, y),
            ReduceOp::Product => x * y,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every tensor is an `f32`, but for number 9, an `i32`, and number 8, truth values.
    struct Tensors;

    impl Types for Tensors {
        fn tensor(&self, id: TensorId) -> DType {
            match id.0 {
                9 => DType::I32,
                8 => DType::Bool,
                _ => DType::F32,
            }
        }

        fn scalar(&self, _: ParamId) -> DType {
            DType::F32
        }
    }

    fn floats(expr: &ElemExpr) -> Rounded {
        rounded(expr, DType::F32, &Tensors).expect("floats alone")
    }

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
        let minus = |x| Rounded::Unary(UnaryOp::Neg, Compute::F32, Box::new(x));
        let product = |a, b| Rounded::Binary(Mul, Compute::F32, Box::new(t(a)), Box::new(t(b)));
        let cases = [
            (two(Add, two(Mul, x(0), x(1)), x(2)), fma(t(0), t(1), t(2))),
            (two(Add, x(2), two(Mul, x(0), x(1))), fma(t(0), t(1), t(2))),
            (two(Sub, two(Mul, x(0), x(1)), x(2)), fma(t(0), t(1), minus(t(2)))),
            (two(Sub, x(2), two(Mul, x(0), x(1))), fma(minus(t(0)), t(1), t(2))),
            (two(Add, two(Mul, x(0), x(1)), two(Mul, x(2), x(3))), fma(t(2), t(3), product(0, 1))),
            (two(Sub, two(Mul, x(0), x(1)), two(Mul, x(0), x(1))), fma(minus(t(0)), t(1), product(0, 1))),
        ];
        for (expr, expected) in cases {
            assert_eq!(floats(&expr), expected);
        }
        // A negated product is no product, and a quotient is not contracted.
        let negated = ElemExpr::Unary(UnaryOp::Neg, Box::new(two(Mul, x(0), x(1))));
        assert!(matches!(floats(&two(Add, negated, x(2))), Rounded::Binary(Add, ..)));
        assert!(matches!(floats(&two(Add, two(Div, x(0), x(1)), x(2))), Rounded::Binary(Add, ..)));
    }

    #[test]
    fn integers_are_rounded_down_and_counted_modulo_two_to_the_32() {
        use BinaryOp::*;
        let (i, u) = (Compute::I32, Compute::U32);
        let cases = [
            (Div, i, -7, 2, Some(-4)),
            (Rem, i, -7, 2, Some(1)),
            (Rem, i, 7, -2, Some(-1)),
            (Div, i, 1, 0, None),
            (Div, i, i64::from(i32::MIN), -1, Some(i64::from(i32::MIN))),
            (Add, i, i64::from(i32::MAX), 1, Some(i64::from(i32::MIN))),
            (Sub, u, 0, 1, Some(i64::from(u32::MAX))),
            (MulHi, u, 0xffff_ffff, 0xffff_ffff, Some(0xffff_fffe)),
            (MulHi, i, -1, 1, Some(-1)),
            (Shl, u, 1, 32, Some(0)),
            (Shr, i, -8, 40, Some(-1)),
            (Shr, u, 0x8000_0000, 31, Some(1)),
            (Lt, i, 1, 2, None),
        ];
        for (op, compute, x, y, expected) in cases {
            assert_eq!(op.apply_integer(compute, x, y), expected, "{op:?} {compute:?} {x} {y}");
        }
    }

    #[test]
    fn types_meet_or_clash() {
        use BinaryOp::*;
        let of = |expr: &ElemExpr| value_type(expr, &Tensors).map_err(|clash| clash.reason);
        let number = ElemExpr::Number;
        assert_eq!(of(&two(Add, x(9), number(1.0))), Ok(ValueType::Is(DType::I32)));
        assert_eq!(of(&two(Lt, ElemExpr::Index(0), x(9))), Ok(ValueType::Is(DType::Bool)));
        assert_eq!(of(&two(Add, ElemExpr::Index(0), number(2.0))), Ok(ValueType::Int));
        assert!(matches!(of(&two(Add, x(9), x(0))), Err(TypeClashReason::Operands(..))));
        assert!(matches!(of(&two(Add, x(0), ElemExpr::Index(0))), Err(TypeClashReason::Operands(..))));
        assert!(matches!(of(&two(BitAnd, x(0), x(1))), Err(TypeClashReason::Operand(..))));
        assert!(matches!(of(&two(And, x(9), x(8))), Err(TypeClashReason::Operand(..))));
        let half = rounded(&two(Add, x(9), number(0.5)), DType::I32, &Tensors).map_err(|clash| clash.reason);
        assert_eq!(half, Err(TypeClashReason::Literal(0.5, DType::I32)));
        let float = rounded(&two(Lt, x(0), x(1)), DType::F32, &Tensors).map_err(|clash| clash.reason);
        assert!(matches!(float, Err(TypeClashReason::Result(..))));
    }
}
