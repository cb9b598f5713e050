//! The arithmetic of elementwise statements, defined once: [`rounded`] makes of an expression the tree of operations that it
//! means. The interpreter evaluates the tree, lowering emits it, the cost model counts it.
//!
//! Every value has a type, and every operation is done in one of nine ([`Compute`]): floats in `f32`, those of `f64` in `f64`, integers of 32
//! and of 64 bits modulo 2³² and 2⁶⁴, and truth values. Literals, scalar parameters of type `f32`, `float(…)` and integers of the program take the
//! type of the operand beside them; nothing else is converted unasked ([`value_type`]).
//!
//! In `f16x2(…)` and `bf16x2(…)` operations on values of that type are done in it ([`Compute::F16`], [`Compute::BF16`]), and round to it.
//!
//! Every operation on floats rounds its result to `f32` or `f64`, to nearest even. The one contraction is syntactic: a sum or a difference of which an
//! operand is written as a product is one `fma`, with one rounding. Where both are products, the right one is contracted, and the
//! left one is rounded on its own. Signs are free: `x * y - z` is fma(x, y, −z), `z - x * y` is fma(−x, y, z).
//!
//! `+ - * / min max abs sqrt floor ceil round`, negation, `fma`, comparisons, and all that is done with integers and truth values are defined to
//! the bit, but for the bits of a NaN and quotients by the integer 0, and so are all functions of `f64` ([`double`]). The other functions are approximated by kernels, within [`UnaryOp::error`] of the exact value; here they
//! are rounded from it.

pub mod double;
mod types;

use tilewright_machine::scalar::{least, most};
use tilewright_machine::{DType, ErrorBound};

pub use types::{Compute, TypeClash, TypeClashReason, Types, ValueType, value_type};

use crate::expr::Expr;
#[cfg(doc)]
use crate::program::Asm;
use crate::program::{BinaryOp, Combination, ElemExpr, ParamId, ReduceOp, TensorId, UnaryOp};

/// A tree of operations, each of which rounds once. An operation names the type of its operands.
#[derive(Clone, PartialEq, Debug)]
pub enum Rounded {
    /// The element of a register tensor at this coordinate.
    Tensor(TensorId),
    /// A literal.
    Number(Compute, f64),
    /// A literal integer.
    Integer(Compute, i128),
    /// A scalar parameter.
    Scalar(ParamId),
    /// An integer of the program, modulo 2³², or a condition over them: an `i32`.
    Int(Expr),
    /// The coordinate of the element along a mode: an `i32`.
    Index(u32),
    /// An operand of a [`Combination`].
    Operand(u32),
    /// A function of one value.
    Unary(UnaryOp, Compute, Box<Rounded>),
    /// An operator on two values.
    Binary(BinaryOp, Compute, Box<Rounded>, Box<Rounded>),
    /// `x · y + z`, rounded once.
    Fma(Compute, Box<[Rounded; 3]>),
    /// The second where the first is true, else the third; of this type.
    Where(Compute, Box<[Rounded; 3]>),
    /// The bits of a value of the first type as one of the second.
    Bitcast([Compute; 2], Box<Rounded>),
    /// A value of the first type as the nearest one of the second: an integer as a float, or as an integer modulo 2ⁿ; a truth value as 1 or 0; an
    /// `f32` as an `f64`.
    Convert([Compute; 2], Box<Rounded>),
    /// The result of instructions of PTX.
    Asm(Box<RoundedAsm>),
}

/// An [`Asm`] whose operands have types.
#[derive(Clone, PartialEq, Debug)]
pub struct RoundedAsm {
    /// The text.
    pub text: String,
    /// The type of the result and of the meaning.
    pub compute: Compute,
    /// The types of the operands.
    pub computes: Vec<Compute>,
    /// The meaning, and behind it the operands.
    pub operands: Vec<Rounded>,
    /// The largest distance of the result from the meaning, as a part of its size.
    pub within: f64,
}

impl Rounded {
    /// The operands of an operation; of instructions of PTX their meaning first.
    pub fn operands(&self) -> Vec<&Rounded> {
        match self {
            Rounded::Unary(_, _, x) | Rounded::Bitcast(_, x) | Rounded::Convert(_, x) => vec![x],
            Rounded::Binary(_, _, x, y) => vec![x, y],
            Rounded::Fma(_, operands) | Rounded::Where(_, operands) => operands.iter().collect(),
            Rounded::Asm(asm) => asm.operands.iter().collect(),
            Rounded::Tensor(_)
            | Rounded::Number(..)
            | Rounded::Integer(..)
            | Rounded::Scalar(_)
            | Rounded::Int(_)
            | Rounded::Index(_)
            | Rounded::Operand(_) => Vec::new(),
        }
    }

    /// A number that no value of this `f32` is below, a NaN apart; `None` if none is known. From the signs of functions and squares, and
    /// the numbers that are added to them.
    pub fn lower_bound(&self) -> Option<f64> {
        let both = |x: &Rounded, y: &Rounded| x.lower_bound().zip(y.lower_bound());
        // Of factors that are not negative, or are the same.
        let product = |x: &Rounded, y: &Rounded| {
            (x == y || both(x, y).is_some_and(|(x, y)| x >= 0.0 && y >= 0.0)).then_some(0.0)
        };
        match self {
            Rounded::Number(Compute::F32, x) => Some(*x),
            Rounded::Unary(UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Abs | UnaryOp::Sqrt, Compute::F32, _) => {
                Some(0.0)
            }
            Rounded::Binary(op, Compute::F32, x, y) => match op {
                BinaryOp::Add => both(x, y).map(|(x, y)| x + y),
                BinaryOp::Mul => product(x, y),
                BinaryOp::Min => both(x, y).map(|(x, y)| x.min(y)),
                BinaryOp::Max => match (x.lower_bound(), y.lower_bound()) {
                    (Some(x), Some(y)) => Some(x.max(y)),
                    (x, y) => x.or(y),
                },
                _ => None,
            },
            Rounded::Fma(Compute::F32, operands) => {
                let [x, y, z] = &**operands;
                product(x, y).zip(z.lower_bound()).map(|(_, z)| z)
            }
            Rounded::Where(Compute::F32, operands) => both(&operands[1], &operands[2]).map(|(x, y)| x.min(y)),
            _ => None,
        }
    }

    /// No value of this `f32` is a subnormal number.
    pub fn is_normal(&self) -> bool {
        self.lower_bound().is_some_and(|least| least >= LEAST_NORMAL)
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
    tree(expr, compute, types, None)
}

/// The type in which elements of a type are put together by a [`Combination`]: `f32` of floats, their own of `f64` and of integers of 32 and 64
/// bits; `None` of those that none puts together.
pub fn combined_in(dtype: DType) -> Option<DType> {
    match dtype {
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::F64 => Some(dtype),
        _ => dtype.is_float().then_some(DType::F32),
    }
}

/// The operations of a function that puts together tuples of elements of these types.
///
/// # Errors
///
/// The first clash of types in it.
pub fn combined(by: &Combination, elements: &[DType], types: &impl Types) -> Result<Vec<Rounded>, TypeClash> {
    let held: Vec<DType> = elements.iter().filter_map(|dtype| combined_in(*dtype)).collect();
    let types = types::OfTuples { outside: types, elements: &held };
    by.results.iter().zip(&held).map(|(result, dtype)| rounded(result, *dtype, &types)).collect()
}

/// True if a cast rounds to `f32` before it rounds to its type: every one to a float of fewer bits, of elements that an `f32` does not all hold.
pub fn through_f32(from: DType, to: DType) -> bool {
    let wide = matches!(from, DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::F64);
    wide && to.is_float() && to != DType::F64
}

/// The tree of an expression whose value is of a type, inside of packed arithmetic if there is one around.
fn tree(
    expr: &ElemExpr,
    compute: Compute,
    types: &(impl Types + ?Sized),
    packed: Option<Compute>,
) -> Result<Rounded, TypeClash> {
    let of = |x: &ElemExpr| tree(x, compute, types, packed);
    let boxed = |x: &ElemExpr, compute: Compute| Ok(Box::new(tree(x, compute, types, packed)?));
    // What is an `f32` anywhere else.
    let rounded = |x: Rounded| match compute.is_packed() {
        true => Rounded::Convert([Compute::F32, compute], Box::new(x)),
        false => x,
    };
    // Integers of the program have 32 bits, whichever type is beside them.
    let of_32_bits = |x: Rounded| match compute.bits() {
        64 => Rounded::Convert([Compute::I32, compute], Box::new(x)),
        _ => x,
    };
    Ok(match expr {
        ElemExpr::Tensor(id) => rounded(Rounded::Tensor(*id)),
        ElemExpr::Number(x) if compute.is_integer() => {
            Rounded::Integer(compute, types::integer(expr, *x, compute)?)
        }
        ElemExpr::Number(x) => Rounded::Number(compute, compute.round(*x)),
        ElemExpr::Scalar(id) => match (types.scalar(*id), compute.bits()) {
            (DType::F32, 64) => Rounded::Convert([Compute::F32, compute], Box::new(Rounded::Scalar(*id))),
            (DType::I32, _) => of_32_bits(Rounded::Scalar(*id)),
            _ => rounded(Rounded::Scalar(*id)),
        },
        ElemExpr::Int(e) => of_32_bits(Rounded::Int(e.clone())),
        ElemExpr::Index(axis) => of_32_bits(Rounded::Index(*axis)),
        ElemExpr::Operand(number) => Rounded::Operand(*number),
        ElemExpr::Unary(op @ (UnaryOp::Float | UnaryOp::Int), x) => {
            let from = types::operand(x, types, packed)?;
            let x = boxed(x, from)?;
            if from.bits() == 64 || compute.bits() == 64 {
                return Ok(if from == compute { *x } else { Rounded::Convert([from, compute], x) });
            }
            rounded(Rounded::Unary(*op, from, x))
        }
        ElemExpr::Packed(dtype, x) => {
            let inside = Compute::packed(*dtype).ok_or_else(|| TypeClash::unsupported(expr, *dtype))?;
            let x = tree(x, inside, types, Some(inside))?;
            if compute == inside { x } else { Rounded::Convert([inside, compute], Box::new(x)) }
        }
        ElemExpr::Unary(op, x) => Rounded::Unary(*op, compute, boxed(x, compute)?),
        ElemExpr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), left, right) if compute.is_float() => {
            sum(*op == BinaryOp::Sub, compute, left, right, &of)?
        }
        ElemExpr::Binary(op, x, y) if op.compares() => {
            let operands = types::operands(expr, [x, y], types, packed)?;
            Rounded::Binary(*op, operands, boxed(x, operands)?, boxed(y, operands)?)
        }
        ElemExpr::Binary(op, x, y) => Rounded::Binary(*op, compute, boxed(x, compute)?, boxed(y, compute)?),
        ElemExpr::Where(operands) => {
            let [c, x, y] = &**operands;
            Rounded::Where(compute, Box::new([tree(c, Compute::Bool, types, packed)?, of(x)?, of(y)?]))
        }
        ElemExpr::Asm(asm) => {
            // Outside of packed arithmetic, whatever is around: its registers hold one value each.
            let of = types::operand(&asm.means, types, None)?;
            let (mut computes, mut operands) = (Vec::new(), vec![tree(&asm.means, of, types, None)?]);
            for x in &asm.operands {
                let compute = types::operand(x, types, None)?;
                computes.push(compute);
                operands.push(tree(x, compute, types, None)?);
            }
            let (text, within) = (asm.text.clone(), asm.within);
            let value = Rounded::Asm(Box::new(RoundedAsm { text, compute: of, computes, operands, within }));
            if of == compute { value } else { Rounded::Convert([of, compute], Box::new(value)) }
        }
        ElemExpr::Bitcast(_, x) => {
            let from = types::operand(x, types, packed)?;
            Rounded::Bitcast([from, compute], boxed(x, from)?)
        }
    })
}

fn sum(
    subtracts: bool,
    compute: Compute,
    left: &ElemExpr,
    right: &ElemExpr,
    of: &impl Fn(&ElemExpr) -> Result<Rounded, TypeClash>,
) -> Result<Rounded, TypeClash> {
    let signed = |negative: bool, x: &ElemExpr| {
        let x = of(x)?;
        Ok(if negative { Rounded::Unary(UnaryOp::Neg, compute, Box::new(x)) } else { x })
    };
    if let ElemExpr::Binary(BinaryOp::Mul, x, y) = right {
        return Ok(Rounded::Fma(compute, Box::new([signed(subtracts, x)?, of(y)?, of(left)?])));
    }
    if let ElemExpr::Binary(BinaryOp::Mul, x, y) = left {
        return Ok(Rounded::Fma(compute, Box::new([of(x)?, of(y)?, signed(subtracts, right)?])));
    }
    let op = if subtracts { BinaryOp::Sub } else { BinaryOp::Add };
    Ok(Rounded::Binary(op, compute, Box::new(of(left)?), Box::new(of(right)?)))
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

    /// The value of a number of a float type: the exact one, rounded to nearest even.
    pub fn apply_in(self, compute: Compute, x: f64) -> f64 {
        if compute == Compute::F64 {
            self.apply_double(x)
        } else {
            compute.round(f64::from(self.apply(x as f32)))
        }
    }

    /// The value in double precision, the same on every machine: the functions are those of the crate `libm`, as a C library's differ by the processor.
    pub fn exact(self, x: f64) -> f64 {
        match self {
            UnaryOp::Neg => -x,
            UnaryOp::Abs => x.abs(),
            UnaryOp::Exp => libm::exp(x),
            UnaryOp::Exp2 => libm::exp2(x),
            UnaryOp::Log => libm::log(x),
            UnaryOp::Log2 => libm::log2(x),
            UnaryOp::Sqrt => x.sqrt(),
            UnaryOp::Rsqrt => 1.0 / x.sqrt(),
            UnaryOp::Tanh => libm::tanh(x),
            UnaryOp::Sin => libm::sin(x),
            UnaryOp::Cos => libm::cos(x),
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
            // exponent; a subnormal result is 0.
            UnaryOp::Exp => Some(ErrorBound {
                relative: 2f64.powf(-22.5),
                per_argument: 2f64.powf(-23.7),
                absolute: LEAST_NORMAL,
            }),
            UnaryOp::Exp2 => {
                Some(ErrorBound { absolute: LEAST_NORMAL, ..ErrorBound::relative(2f64.powf(-22.5)) })
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
    /// The distance of the value in `f64` from the exact one, at most; `None` where it is correctly rounded. The value itself is the same, bit by bit, in
    /// every execution ([`double`]).
    ///
    /// The bounds are what 20,000 arguments a function came to in comparison with values of 180 places (1.09, 1.18, 1.30, 1.13, 1.49, 2.72, 1.09, 1.09 and 1.16
    /// times 2⁻⁵³, in the order of the list), rounded up. Those of `sin` and `cos` hold for arguments up to [`double::LARGEST_DOUBLE_ANGLE`].
    pub fn double_error(self) -> Option<ErrorBound> {
        let least = 2f64.powi(-1074);
        let normal = |power: f64| ErrorBound::relative(2f64.powf(power));
        Some(match self {
            UnaryOp::Exp | UnaryOp::Exp2 | UnaryOp::Erf => ErrorBound { absolute: least, ..normal(-52.5) },
            UnaryOp::Log | UnaryOp::Rsqrt => normal(-52.4),
            UnaryOp::Log2 | UnaryOp::Sin | UnaryOp::Cos => normal(-52.5),
            // The quotient of two numbers of which the first is off by a unit.
            UnaryOp::Tanh => ErrorBound { absolute: least, ..normal(-51.3) },
            UnaryOp::Neg
            | UnaryOp::Abs
            | UnaryOp::Sqrt
            | UnaryOp::Floor
            | UnaryOp::Ceil
            | UnaryOp::Round
            | UnaryOp::Float
            | UnaryOp::Int
            | UnaryOp::Not => return None,
        })
    }

    /// The distance of a kernel's result from the exact value `y` at argument `x`, at most; 0 where it is defined to the bit.
    pub fn error_at(self, x: f64, y: f64) -> f64 {
        match self {
            UnaryOp::Sin | UnaryOp::Cos if x.abs() > LARGEST_ANGLE => 2.0,
            // Far below the subnormal numbers there is 0 alone.
            UnaryOp::Exp | UnaryOp::Exp2 if y == 0.0 => 0.0,
            _ => self.error().map_or(0.0, |bound| bound.at(x, y)),
        }
    }
}

/// The largest argument for which the bounds of `sin` and `cos` hold; beyond it their results are from −1 to 1.
pub const LARGEST_ANGLE: f64 = (1u64 << 30) as f64;

/// The least normal number, 2⁻¹²⁶: instructions with `.ftz` take what is smaller for 0.
pub const LEAST_NORMAL: f64 = f32::MIN_POSITIVE as f64;

/// The bound of `fdividef(x, y)` where |y| is from 2⁻¹²⁶ to 2¹²⁶: 2 units in the last place, and a subnormal x or quotient is 0 (PTX ISA,
/// `div.approx.ftz`).
pub fn fast_quotient_error(y: f64) -> ErrorBound {
    ErrorBound { absolute: LEAST_NORMAL / y.abs().min(1.0), ..ErrorBound::relative(2f64.powi(-22)) }
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

    /// The value of an operation on numbers of a float type, as [`BinaryOp::apply`] has it.
    pub fn apply_in(self, compute: Compute, x: f64, y: f64) -> Option<f64> {
        if compute != Compute::F64 {
            // Of 16-bit floats the rounding to `f32` on the way changes nothing: it has more than twice as many places and two.
            return self.apply(x as f32, y as f32).map(|value| compute.round(f64::from(value)));
        }
        Some(match self {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
            BinaryOp::Mul => x * y,
            BinaryOp::Div | BinaryOp::FastDiv => x / y,
            BinaryOp::Min => least(x, y),
            BinaryOp::Max => most(x, y),
            _ => return None,
        })
    }

    /// The value of an operation on integers of 32 or 64 bits, modulo 2³² or 2⁶⁴; `None` of a quotient or a remainder by 0, which may be anything,
    /// and of an operator that has no integer for a result.
    pub fn apply_integer(self, compute: Compute, x: i128, y: i128) -> Option<i128> {
        let bits = compute.bits();
        // A shift by as many bits or more leaves the sign alone, or nothing. Of a negative amount the bits count.
        let shift = u32::try_from(compute.dtype().encode_integer(y)).map_or(bits, |y| y.min(bits));
        let value = match self {
            BinaryOp::Add => x + y,
            BinaryOp::Sub => x - y,
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
            BinaryOp::MulHi if compute.is_unsigned() => {
                ((x.cast_unsigned()).wrapping_mul(y.cast_unsigned()) >> bits).cast_signed()
            }
            BinaryOp::MulHi => (x * y) >> bits,
            BinaryOp::BitAnd => x & y,
            BinaryOp::BitOr => x | y,
            BinaryOp::BitXor => x ^ y,
            BinaryOp::Shl => i128::from(compute.dtype().encode_integer(x)) << shift,
            BinaryOp::Shr => x >> shift,
            _ => return None,
        };
        Some(compute.wrap(value))
    }

    /// The truth of a comparison of two numbers; `None` of another operator. A NaN is unequal to everything, and otherwise compares to nothing.
    pub fn compare<T: PartialOrd>(self, x: T, y: T) -> Option<bool> {
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
        Rounded::Fma(Compute::F32, Box::new([x, y, z]))
    }

    #[test]
    fn lower_bounds_are_below_all_values() {
        let float = |x: f32| Box::new(Rounded::Number(Compute::F32, f64::from(x)));
        let x = || Box::new(Rounded::Tensor(TensorId(0)));
        let unary = |op, x| Box::new(Rounded::Unary(op, Compute::F32, x));
        let binary = |op, x, y| Box::new(Rounded::Binary(op, Compute::F32, x, y));
        let one_and_power = binary(BinaryOp::Add, float(1.0), unary(UnaryOp::Exp, x()));
        assert_eq!(one_and_power.lower_bound(), Some(1.0));
        assert!(one_and_power.is_normal());
        let square = Rounded::Fma(Compute::F32, Box::new([*x(), *x(), Rounded::Number(Compute::F32, 1e-5)]));
        assert!(square.is_normal());
        assert_eq!(binary(BinaryOp::Max, x(), float(0.5)).lower_bound(), Some(0.5));
        assert_eq!(binary(BinaryOp::Min, x(), float(0.5)).lower_bound(), None);
        assert_eq!(binary(BinaryOp::Sub, float(1.0), unary(UnaryOp::Abs, x())).lower_bound(), None);
        assert_eq!(binary(BinaryOp::Mul, float(-1.0), unary(UnaryOp::Abs, x())).lower_bound(), None);
        assert!(!unary(UnaryOp::Exp2, x()).is_normal() && !x().is_normal());
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
            (Div, i, i128::from(i32::MIN), -1, Some(i128::from(i32::MIN))),
            (Add, i, i128::from(i32::MAX), 1, Some(i128::from(i32::MIN))),
            (Sub, u, 0, 1, Some(i128::from(u32::MAX))),
            (MulHi, u, 0xffff_ffff, 0xffff_ffff, Some(0xffff_fffe)),
            (MulHi, i, -1, 1, Some(-1)),
            (Shl, u, 1, 32, Some(0)),
            (Shr, i, -8, 40, Some(-1)),
            (Shr, u, 0x8000_0000, 31, Some(1)),
            (Lt, i, 1, 2, None),
            (Add, Compute::I64, i128::from(i64::MAX), 1, Some(i128::from(i64::MIN))),
            (Mul, Compute::U64, i128::from(u64::MAX), i128::from(u64::MAX), Some(1)),
            (MulHi, Compute::U64, i128::from(u64::MAX), i128::from(u64::MAX), Some(i128::from(u64::MAX) - 1)),
            (MulHi, Compute::I64, i128::from(i64::MIN), i128::from(i64::MIN), Some(1 << 62)),
            (Shl, Compute::I64, -1, 63, Some(i128::from(i64::MIN))),
            (Shr, Compute::U64, i128::from(u64::MAX), 63, Some(1)),
            (Shr, Compute::I64, -8, -1, Some(-1)),
            (Sub, Compute::U64, 0, 1, Some(i128::from(u64::MAX))),
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
