//! Operators on integers of 32 and 64 bits, by one table of instructions.

use tilewright_machine::ScalarOp;
use tilewright_simt::{Builder, Operand};
use tilewright_tile::{BinaryOp, Compute};

use crate::scalar;

/// The instruction of an operator for each type: of `i32`, `u32`, `i64` and `u64`. Of `>` and `<=` it is that of `<` and `>=` with the operands
/// exchanged. A quotient is rounded towards zero, and a remainder has the sign of the dividend.
fn row(op: BinaryOp) -> [ScalarOp; 4] {
    use ScalarOp::*;
    match op {
        BinaryOp::Add => [AddI32, AddI32, AddI64, AddI64],
        BinaryOp::Sub => [SubI32, SubI32, SubI64, SubI64],
        BinaryOp::Mul => [MulI32, MulI32, MulI64, MulI64],
        BinaryOp::MulHi => [MulHiI32, MulHiU32, MulHiI64, MulHiU64],
        BinaryOp::Div | BinaryOp::FastDiv => [DivI32, DivU32, DivI64, DivU64],
        BinaryOp::Rem => [RemI32, RemU32, RemI64, RemU64],
        BinaryOp::Min => [MinI32, MinU32, MinI64, MinU64],
        BinaryOp::Max => [MaxI32, MaxU32, MaxI64, MaxU64],
        BinaryOp::BitAnd | BinaryOp::And => [AndB32, AndB32, AndB64, AndB64],
        BinaryOp::BitOr | BinaryOp::Or => [OrB32, OrB32, OrB64, OrB64],
        BinaryOp::BitXor => [XorB32, XorB32, XorB64, XorB64],
        BinaryOp::Shl => [ShlB32, ShlB32, ShlB64, ShlB64],
        BinaryOp::Shr => [ShrI32, ShrU32, ShrI64, ShrU64],
        BinaryOp::Eq => [EqI32, EqI32, EqI64, EqI64],
        BinaryOp::Ne => [NeI32, NeI32, NeI64, NeI64],
        BinaryOp::Lt | BinaryOp::Gt => [LtI32, LtU32, LtI64, LtU64],
        BinaryOp::Ge | BinaryOp::Le => [GeI32, GeU32, GeI64, GeU64],
    }
}

/// The instruction of an operator in a type.
fn instruction(op: BinaryOp, compute: Compute) -> ScalarOp {
    let [signed, unsigned, signed_wide, unsigned_wide] = row(op);
    match (compute.bits() == 64, compute.is_unsigned()) {
        (false, false) => signed,
        (false, true) => unsigned,
        (true, false) => signed_wide,
        (true, true) => unsigned_wide,
    }
}

/// A literal of a type.
fn literal(compute: Compute, x: i64) -> Operand {
    Operand::Imm(compute.dtype().encode_integer(i128::from(x)))
}

/// An operator on two integers of a type.
pub fn binary(b: &mut Builder, op: BinaryOp, compute: Compute, [x, y]: [Operand; 2]) -> Operand {
    let operands = match op {
        BinaryOp::Div | BinaryOp::FastDiv | BinaryOp::Rem => return quotient(b, op, compute, x, y),
        BinaryOp::Shl | BinaryOp::Shr if compute.bits() == 64 => [x, amount(b, y)],
        BinaryOp::Gt | BinaryOp::Le => [y, x],
        _ => [x, y],
    };
    b.scalar(instruction(op, compute), &operands)
}

/// The amount of a shift of 64 bits, at most 64: instructions take 32 bits of it.
fn amount(b: &mut Builder, y: Operand) -> Operand {
    let most = b.scalar(ScalarOp::MinU64, &[y, literal(Compute::U64, 64)]);
    b.scalar(ScalarOp::LowB32, &[most])
}

/// A quotient rounded down, or the remainder with the sign of the divisor.
fn quotient(b: &mut Builder, op: BinaryOp, compute: Compute, x: Operand, y: Operand) -> Operand {
    let emit =
        |b: &mut Builder, op: BinaryOp, x: Operand, y: Operand| b.scalar(instruction(op, compute), &[x, y]);
    let (remainder, unsigned) = (op == BinaryOp::Rem, compute.is_unsigned());
    // Powers of two are shifts and masks, which round down whatever the sign.
    if let Operand::Imm(divisor) = y
        && divisor.is_power_of_two()
        && (unsigned || compute.dtype().decode_integer(divisor) > 0)
    {
        return if remainder {
            emit(b, BinaryOp::BitAnd, x, Operand::Imm(divisor - 1))
        } else {
            emit(b, BinaryOp::Shr, x, scalar::int(i64::from(divisor.trailing_zeros())))
        };
    }
    if unsigned {
        return emit(b, op, x, y);
    }
    let rest = emit(b, BinaryOp::Rem, x, y);
    // Where the rest is not 0 and has not the divisor's sign, it is one divisor too small.
    let signs = emit(b, BinaryOp::BitXor, rest, y);
    let zero = literal(compute, 0);
    let [inexact, opposite] = [emit(b, BinaryOp::Ne, rest, zero), emit(b, BinaryOp::Lt, signs, zero)];
    let below = b.scalar(ScalarOp::AndPred, &[inexact, opposite]);
    let [raised, kept] = if remainder {
        [emit(b, BinaryOp::Add, rest, y), rest]
    } else {
        let whole = emit(b, BinaryOp::Div, x, y);
        [emit(b, BinaryOp::Add, whole, literal(compute, -1)), whole]
    };
    let select = if compute.bits() == 64 { ScalarOp::SelectB64 } else { ScalarOp::Select };
    b.scalar(select, &[raised, kept, below])
}
