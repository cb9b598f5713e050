//! Types of elementwise expressions.

use std::fmt;

use tilewright_machine::DType;

use crate::elementwise::{BinaryOp, ElemExpr, UnaryOp};
use crate::ids::{ParamId, TensorId};
use crate::program::Program;

/// The type in which an operation of an elementwise expression is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Compute {
    /// `f32`, for floats of every type but `f64`.
    F32,
    /// `f64`.
    F64,
    /// `f16`, in [`ElemExpr::Packed`].
    F16,
    /// `bf16`, in [`ElemExpr::Packed`].
    BF16,
    /// Signed integers modulo 2³².
    I32,
    /// Unsigned integers modulo 2³².
    U32,
    /// Signed integers modulo 2⁶⁴.
    I64,
    /// Unsigned integers modulo 2⁶⁴.
    U64,
    /// Truth values.
    Bool,
}

impl Compute {
    /// The type in which elements of a type are computed with; `None` of integers of fewer than 32 bits.
    pub fn of(dtype: DType) -> Option<Compute> {
        match dtype {
            DType::I32 => Some(Compute::I32),
            DType::U32 => Some(Compute::U32),
            DType::I64 => Some(Compute::I64),
            DType::U64 => Some(Compute::U64),
            DType::Bool => Some(Compute::Bool),
            DType::F64 => Some(Compute::F64),
            _ => dtype.is_float().then_some(Compute::F32),
        }
    }

    /// The type in which packed arithmetic on elements of a type is done; `None` where there is none.
    pub fn packed(dtype: DType) -> Option<Compute> {
        match dtype {
            DType::F16 => Some(Compute::F16),
            DType::BF16 => Some(Compute::BF16),
            _ => None,
        }
    }

    /// True for the types of packed arithmetic.
    pub fn is_packed(self) -> bool {
        matches!(self, Compute::F16 | Compute::BF16)
    }

    /// The element type of its values.
    pub fn dtype(self) -> DType {
        match self {
            Compute::F32 => DType::F32,
            Compute::F64 => DType::F64,
            Compute::F16 => DType::F16,
            Compute::BF16 => DType::BF16,
            Compute::I32 => DType::I32,
            Compute::U32 => DType::U32,
            Compute::I64 => DType::I64,
            Compute::U64 => DType::U64,
            Compute::Bool => DType::Bool,
        }
    }

    /// True for integers.
    pub fn is_integer(self) -> bool {
        self.dtype().range().is_some()
    }

    /// True for floats.
    pub fn is_float(self) -> bool {
        self.dtype().is_float()
    }

    /// True for integers without a sign.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Compute::U32 | Compute::U64)
    }

    /// Bits of a value: 16, 32 or 64; of a truth value 8.
    pub fn bits(self) -> u32 {
        self.dtype().bits()
    }

    /// An integer modulo 2³² or 2⁶⁴, in the range of the type; of the other types itself.
    pub fn wrap(self, value: i128) -> i128 {
        if self.is_integer() {
            self.dtype().decode_integer(self.dtype().encode_integer(value))
        } else {
            value
        }
    }

    /// A number rounded to a float type, to nearest even; of the other types itself.
    pub fn round(self, x: f64) -> f64 {
        match self {
            Compute::F32 => f64::from(x as f32),
            Compute::F16 | Compute::BF16 => self.dtype().decode(self.dtype().encode(x)),
            _ => x,
        }
    }

    /// The unit roundoff of a float type.
    pub fn epsilon(self) -> f64 {
        self.dtype().epsilon()
    }
}

/// Element types of the leaves of an expression.
pub trait Types {
    /// The type of a tensor's elements.
    fn tensor(&self, id: TensorId) -> DType;
    /// The type of a scalar parameter.
    fn scalar(&self, id: ParamId) -> DType;
    /// The type of an operand of a [`Combination`](crate::Combination); `None` outside of one.
    fn operand(&self, _: u32) -> Option<DType> {
        None
    }
}

/// The types inside a function that puts together tuples of elements of these types.
pub(super) struct OfTuples<'a, T> {
    /// The types outside of it.
    pub(super) outside: &'a T,
    /// The types of a tuple's elements.
    pub(super) elements: &'a [DType],
}

impl<T: Types> Types for OfTuples<'_, T> {
    fn tensor(&self, id: TensorId) -> DType {
        self.outside.tensor(id)
    }

    fn scalar(&self, id: ParamId) -> DType {
        self.outside.scalar(id)
    }

    fn operand(&self, number: u32) -> Option<DType> {
        let count = self.elements.len();
        self.elements.get((number as usize).checked_rem(count)?).copied()
    }
}

/// Of an id that the program does not have, `f32`: what refers to it is reported as such.
impl Types for Program {
    fn tensor(&self, id: TensorId) -> DType {
        self.tensors.get(id.0 as usize).map_or(DType::F32, |tensor| tensor.dtype)
    }

    fn scalar(&self, id: ParamId) -> DType {
        self.params.get(id.0 as usize).map_or(DType::F32, |param| param.dtype)
    }
}

/// The type of a value of an expression.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ValueType {
    /// That of a literal: any number.
    Literal,
    /// An `f32` that takes the type of a float beside it.
    Float,
    /// An `i32` that takes the type of an integer beside it.
    Int,
    /// An element type.
    Is(DType),
}

impl ValueType {
    /// The common type of two values beside each other.
    fn meet(self, other: ValueType) -> Option<ValueType> {
        use ValueType::{Float, Int, Is, Literal};
        match (self, other) {
            (Literal, x) | (x, Literal) if x.is_number() => Some(x),
            (Float, Is(dtype)) | (Is(dtype), Float) if dtype.is_float() => Some(Is(dtype)),
            (Int, Is(dtype)) | (Is(dtype), Int) if dtype.range().is_some() => Some(Is(dtype)),
            (x, y) => (x == y).then_some(x),
        }
    }

    fn is_number(self) -> bool {
        self != ValueType::Is(DType::Bool)
    }

    fn is_float(self) -> bool {
        match self {
            ValueType::Literal | ValueType::Float => true,
            ValueType::Int => false,
            ValueType::Is(dtype) => dtype.is_float(),
        }
    }

    fn is_integer(self) -> bool {
        match self {
            ValueType::Literal | ValueType::Int => true,
            ValueType::Float => false,
            ValueType::Is(dtype) => dtype.range().is_some(),
        }
    }

    /// The element type of a new tensor that holds such values.
    pub fn dtype(self) -> DType {
        match self {
            ValueType::Literal | ValueType::Float => DType::F32,
            ValueType::Int => DType::I32,
            ValueType::Is(dtype) => dtype,
        }
    }

    /// True if a tensor of the type may hold the value.
    pub(super) fn becomes(self, dtype: DType) -> bool {
        self.meet(ValueType::Is(dtype)) == Some(ValueType::Is(dtype))
    }
}

impl fmt::Display for ValueType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ValueType::Literal => f.write_str("a literal"),
            ValueType::Float => f.write_str("f32"),
            ValueType::Int => f.write_str("i32"),
            ValueType::Is(dtype) => write!(f, "{dtype}"),
        }
    }
}

/// Types that do not fit, and the expression in which they meet.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeClash {
    /// The innermost expression.
    pub expr: ElemExpr,
    /// The reason.
    pub reason: TypeClashReason,
}

/// The reason of a [`TypeClash`].
#[derive(Clone, PartialEq, Debug)]
pub enum TypeClashReason {
    /// The operands of an operator have two types.
    Operands(ValueType, ValueType),
    /// The operand of this type is not what the operator takes: floats, integers, numbers, truth values, or values of as many bits.
    Operand(ValueType, &'static str),
    /// The expression has a type, and its result another.
    Result(ValueType, DType),
    /// A literal that is no number of the type.
    Literal(f64, DType),
    /// There is no arithmetic on elements of the type.
    Unsupported(DType),
}

impl TypeClash {
    fn new(expr: &ElemExpr, reason: TypeClashReason) -> Self {
        TypeClash { expr: expr.clone(), reason }
    }

    pub(super) fn unsupported(expr: &ElemExpr, dtype: DType) -> Self {
        TypeClash::new(expr, TypeClashReason::Unsupported(dtype))
    }

    pub(super) fn result(expr: &ElemExpr, found: ValueType, dtype: DType) -> Self {
        TypeClash::new(expr, TypeClashReason::Result(found, dtype))
    }
}

/// The operands that an operator takes.
#[derive(Clone, Copy)]
enum Takes {
    Floats,
    /// Floats that quotients are approximated for: not `f64`.
    Singles,
    Integers,
    Numbers,
    Truths,
    Anything,
}

impl Takes {
    fn takes(self, of: ValueType) -> bool {
        match self {
            Takes::Floats => of.is_float(),
            Takes::Singles => of.is_float() && of != ValueType::Is(DType::F64),
            Takes::Integers => of.is_integer(),
            Takes::Numbers => of.is_number(),
            Takes::Truths => !of.is_number(),
            Takes::Anything => true,
        }
    }

    /// The operands that it takes, to one who gave another.
    fn name(self, found: ValueType) -> &'static str {
        match self {
            Takes::Floats => "floats",
            Takes::Singles if found == ValueType::Is(DType::F64) => "floats of at most 32 bits",
            Takes::Singles => "floats",
            Takes::Integers => "integers",
            Takes::Numbers => "numbers",
            Takes::Truths => "truth values",
            Takes::Anything => "values",
        }
    }

    fn of_unary(op: UnaryOp) -> Self {
        match op {
            UnaryOp::Neg | UnaryOp::Abs => Takes::Numbers,
            UnaryOp::Not => Takes::Truths,
            UnaryOp::Float | UnaryOp::Int => Takes::Anything,
            _ => Takes::Floats,
        }
    }

    fn of_binary(op: BinaryOp) -> Self {
        match op {
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::Lt
            | BinaryOp::Le
            | BinaryOp::Gt
            | BinaryOp::Ge => Takes::Numbers,
            BinaryOp::FastDiv => Takes::Singles,
            BinaryOp::Rem
            | BinaryOp::MulHi
            | BinaryOp::BitAnd
            | BinaryOp::BitOr
            | BinaryOp::BitXor
            | BinaryOp::Shl
            | BinaryOp::Shr => Takes::Integers,
            BinaryOp::And | BinaryOp::Or => Takes::Truths,
            BinaryOp::Eq | BinaryOp::Ne => Takes::Anything,
        }
    }
}

/// The type of an expression's value.
///
/// # Errors
///
/// The first clash of types in it.
pub fn value_type(expr: &ElemExpr, types: &(impl Types + ?Sized)) -> Result<ValueType, TypeClash> {
    let of = |x: &ElemExpr| value_type(x, types);
    let check = |takes: Takes, found: ValueType| {
        if let ValueType::Is(dtype) = found
            && Compute::of(dtype).is_none()
        {
            return Err(TypeClash::new(expr, TypeClashReason::Unsupported(dtype)));
        }
        if takes.takes(found) {
            return Ok(());
        }
        Err(TypeClash::new(expr, TypeClashReason::Operand(found, takes.name(found))))
    };
    let meet = |x: ValueType, y: ValueType| {
        x.meet(y).ok_or_else(|| TypeClash::new(expr, TypeClashReason::Operands(x, y)))
    };
    Ok(match expr {
        ElemExpr::Tensor(id) => ValueType::Is(types.tensor(*id)),
        ElemExpr::Number(_) => ValueType::Literal,
        ElemExpr::Scalar(id) => match types.scalar(*id) {
            DType::F32 => ValueType::Float,
            DType::I32 => ValueType::Int,
            dtype => ValueType::Is(dtype),
        },
        ElemExpr::Int(e) if e.is_condition() => ValueType::Is(DType::Bool),
        ElemExpr::Int(_) | ElemExpr::Index(_) => ValueType::Int,
        ElemExpr::Operand(number) => match types.operand(*number) {
            Some(dtype) => ValueType::Is(dtype),
            None => {
                return Err(TypeClash::new(
                    expr,
                    TypeClashReason::Operand(ValueType::Literal, "operands of a function that is passed"),
                ));
            }
        },
        ElemExpr::Unary(op, x) => {
            let found = of(x)?;
            check(Takes::of_unary(*op), found)?;
            match op {
                UnaryOp::Float | UnaryOp::Int if found.is_float() && found != ValueType::Literal => {
                    let reason = TypeClashReason::Operand(found, "integers and truth values");
                    return Err(TypeClash::new(expr, reason));
                }
                UnaryOp::Float => ValueType::Float,
                UnaryOp::Int => ValueType::Int,
                UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Not => found,
                _ => meet(found, ValueType::Float)?,
            }
        }
        ElemExpr::Binary(op, x, y) => {
            let (x, y) = (of(x)?, of(y)?);
            let takes = Takes::of_binary(*op);
            check(takes, x)?;
            check(takes, y)?;
            let both = match (takes, meet(x, y)?) {
                (Takes::Integers, ValueType::Literal) => ValueType::Int,
                (_, both) => both,
            };
            if op.compares() { ValueType::Is(DType::Bool) } else { both }
        }
        ElemExpr::Where(operands) => {
            let [c, x, y] = &**operands;
            check(Takes::Truths, of(c)?)?;
            let (x, y) = (of(x)?, of(y)?);
            check(Takes::Anything, x)?;
            check(Takes::Anything, y)?;
            meet(x, y)?
        }
        ElemExpr::Packed(dtype, x) => {
            if Compute::packed(*dtype).is_none() {
                return Err(TypeClash::new(expr, TypeClashReason::Unsupported(*dtype)));
            }
            let found = of(x)?;
            if found != ValueType::Is(*dtype) {
                let takes = if *dtype == DType::F16 { "values of type f16" } else { "values of type bf16" };
                return Err(TypeClash::new(expr, TypeClashReason::Operand(found, takes)));
            }
            found
        }
        ElemExpr::Asm(asm) => {
            for x in asm.operands.iter().chain([&asm.means]) {
                let found = of(x)?;
                let held = Compute::of(found.dtype()).is_some_and(|compute| compute.bits() >= 32);
                if found == ValueType::Literal || !held {
                    let takes = "values of 32 or 64 bits (a literal stands in the text)";
                    return Err(TypeClash::new(expr, TypeClashReason::Operand(found, takes)));
                }
            }
            ValueType::Is(of(&asm.means)?.dtype())
        }
        ElemExpr::Bitcast(to, x) => {
            let found = of(x)?;
            let width = if to.bits() == 64 { "values of 64 bits" } else { "values of 32 bits" };
            let clash = || TypeClash::new(expr, TypeClashReason::Operand(found, width));
            if found == ValueType::Literal || found.dtype().bits() < 32 {
                return Err(clash());
            }
            if to.bits() < 32 {
                return Err(TypeClash::new(expr, TypeClashReason::Unsupported(*to)));
            }
            if found.dtype().bits() != to.bits() {
                return Err(clash());
            }
            ValueType::Is(*to)
        }
    })
}

/// The type in which elements of a type are computed with inside of packed arithmetic of a type, if there is one around.
fn within(packed: Option<Compute>, dtype: DType) -> Option<Compute> {
    packed.filter(|packed| packed.dtype() == dtype).or_else(|| Compute::of(dtype))
}

/// The type in which the operand of a conversion is computed, which takes no type from beside it. A literal is an integer there.
pub(super) fn operand(
    expr: &ElemExpr,
    types: &(impl Types + ?Sized),
    packed: Option<Compute>,
) -> Result<Compute, TypeClash> {
    let dtype = match value_type(expr, types)? {
        ValueType::Literal => DType::I32,
        found => found.dtype(),
    };
    within(packed, dtype).ok_or_else(|| TypeClash::unsupported(expr, dtype))
}

/// The type in which two operands of an expression are compared.
pub(super) fn operands(
    expr: &ElemExpr,
    [x, y]: [&ElemExpr; 2],
    types: &(impl Types + ?Sized),
    packed: Option<Compute>,
) -> Result<Compute, TypeClash> {
    let (x, y) = (value_type(x, types)?, value_type(y, types)?);
    let both = x.meet(y).ok_or_else(|| TypeClash::new(expr, TypeClashReason::Operands(x, y)))?;
    within(packed, both.dtype()).ok_or_else(|| TypeClash::unsupported(expr, both.dtype()))
}

/// A literal as an integer of a type.
pub(super) fn integer(expr: &ElemExpr, value: f64, compute: Compute) -> Result<i128, TypeClash> {
    let dtype = compute.dtype();
    let (low, _) = dtype.range().unwrap_or((0, 0));
    // Bit patterns are written without a sign.
    let high = (1i128 << compute.bits()) - 1;
    if value.fract() != 0.0 || !(low..=high).contains(&(value as i128)) {
        return Err(TypeClash::new(expr, TypeClashReason::Literal(value, dtype)));
    }
    Ok(compute.wrap(value as i128))
}
