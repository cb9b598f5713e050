//! Elementwise operations on numbers of 64 bits: `f64`, functions and conversions of integers modulo 2⁶⁴.

use tilewright_machine::ScalarOp;
use tilewright_simt::{Builder, Operand};
use tilewright_synth::cast;
use tilewright_tile::arith::double;
use tilewright_tile::{BinaryOp, Compute, UnaryOp};

use crate::elements::Into;

/// A literal of 64 bits.
fn literal(x: i64) -> Operand {
    Operand::Imm(x.cast_unsigned())
}

/// An operator on two `f64`.
pub fn binary(b: &mut Builder, op: BinaryOp, [x, y]: [Operand; 2]) -> Operand {
    use ScalarOp::*;
    let (op, operands) = match op {
        BinaryOp::Add => (AddF64, [x, y]),
        BinaryOp::Sub => (SubF64, [x, y]),
        BinaryOp::Mul => (MulF64, [x, y]),
        BinaryOp::Min => (MinF64, [x, y]),
        BinaryOp::Max => (MaxF64, [x, y]),
        BinaryOp::Eq => (EqF64, [x, y]),
        BinaryOp::Ne => (NeF64, [x, y]),
        BinaryOp::Lt => (LtF64, [x, y]),
        BinaryOp::Le => (LeF64, [x, y]),
        BinaryOp::Gt => (LtF64, [y, x]),
        BinaryOp::Ge => (LeF64, [y, x]),
        // The others have no floats of 64 bits for operands.
        BinaryOp::Div
        | BinaryOp::FastDiv
        | BinaryOp::Rem
        | BinaryOp::MulHi
        | BinaryOp::BitAnd
        | BinaryOp::BitOr
        | BinaryOp::BitXor
        | BinaryOp::Shl
        | BinaryOp::Shr
        | BinaryOp::And
        | BinaryOp::Or => (DivF64, [x, y]),
    };
    b.scalar(op, &operands)
}

/// A function of one value.
pub fn unary(b: &mut Builder, op: UnaryOp, compute: Compute, x: Operand) -> Operand {
    use ScalarOp::*;
    match (op, compute) {
        (UnaryOp::Neg, Compute::F64) => b.scalar(NegF64, &[x]),
        (UnaryOp::Abs, Compute::F64) => b.scalar(AbsF64, &[x]),
        (UnaryOp::Sqrt, _) => b.scalar(SqrtF64, &[x]),
        (UnaryOp::Floor, _) => b.scalar(FloorF64, &[x]),
        (UnaryOp::Ceil, _) => b.scalar(CeilF64, &[x]),
        (UnaryOp::Round, _) => b.scalar(RoundF64, &[x]),
        (UnaryOp::Neg, _) => b.scalar(SubI64, &[literal(0), x]),
        (UnaryOp::Abs, Compute::I64) => {
            let negated = b.scalar(SubI64, &[literal(0), x]);
            b.scalar(MaxI64, &[x, negated])
        }
        // The verifier knows no other function of integers of 64 bits.
        (_, Compute::F64) => double::function(&mut Into(b), op, x).unwrap_or(x),
        _ => x,
    }
}

/// A value of one type as the nearest one of another; integers modulo 2ⁿ.
pub fn convert(b: &mut Builder, from: Compute, to: Compute, x: Operand) -> Operand {
    use ScalarOp::*;
    let bits_of_truth =
        |b: &mut Builder, one: u64| b.scalar(SelectB64, &[Operand::Imm(one), Operand::Imm(0), x]);
    if to.is_packed() {
        return cast::pack_f32(&mut Into(b), to.dtype(), &[x]);
    }
    if from.is_packed() {
        let single = cast::read_f32(&mut Into(b), x, 0, from.dtype());
        return if to == Compute::F64 { b.scalar(F64FromF32, &[single]) } else { single };
    }
    let op = match (from, to) {
        (Compute::Bool, Compute::F64) => return bits_of_truth(b, 1f64.to_bits()),
        (Compute::Bool, _) => return bits_of_truth(b, 1),
        (Compute::F32, Compute::F64) => F64FromF32,
        (Compute::I32, Compute::F64) => F64FromI32,
        (Compute::U32, Compute::F64) => F64FromU32,
        (Compute::I64, Compute::F64) => F64FromI64,
        (Compute::U64, Compute::F64) => F64FromU64,
        (Compute::I64, Compute::F32) => F32FromI64,
        (Compute::U64, Compute::F32) => F32FromU64,
        (Compute::I32, Compute::I64 | Compute::U64) => ExtendI64,
        (Compute::U32, Compute::I64 | Compute::U64) => ExtendU64,
        (Compute::I64 | Compute::U64, Compute::I32 | Compute::U32) => LowB32,
        // Both have as many bits.
        _ => return x,
    };
    b.scalar(op, &[x])
}

#[cfg(test)]
mod tests {
    use tilewright_machine::{Arch, DType};

    use super::*;
    use crate::integer;

    fn imm(operand: Operand) -> u64 {
        match operand {
            Operand::Imm(bits) => bits,
            Operand::Value(_) => panic!("literals fold"),
        }
    }

    #[test]
    fn integer_rows_compute_what_the_interpreter_does() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let words = [0u64, 1, 2, 3, 7, 63, 64, 65, 1000, 1 << 31, 1 << 62, i64::MAX as u64, 1 << 63];
        let words: Vec<u64> = words.into_iter().flat_map(|x| [x, !x]).collect();
        for compute in [Compute::I64, Compute::U64] {
            let number = |word: u64| compute.wrap(i128::from(word));
            for (x, y) in words.iter().flat_map(|x| words.iter().map(|y| (*x, *y))) {
                let operands = [x, y].map(Operand::Imm);
                for op in BinaryOp::ALL {
                    let expected = op.apply_integer(compute, number(x), number(y)).map(|value| value as u64);
                    let truth = op.compare(number(x), number(y)).map(u64::from);
                    let Some(expected) = expected.or(truth) else { continue };
                    let found = imm(integer::binary(&mut b, op, compute, operands));
                    assert_eq!(found, expected, "{op:?} {compute:?} {x:#x} {y:#x}");
                }
            }
        }
    }

    #[test]
    fn rows_compute_what_the_interpreter_does() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let numbers = [0.0, 0.5, 1.0, 1.5, 2.5, 1e-310, 0.1, 3e300, f64::MAX, f64::INFINITY, f64::NAN];
        let numbers: Vec<f64> = numbers.into_iter().flat_map(|x| [x, -x]).collect();
        let same = |x: u64, y: f64| x == y.to_bits() || f64::from_bits(x).is_nan() && y.is_nan();
        for x in &numbers {
            use UnaryOp::*;
            for op in [Neg, Abs, Sqrt, Floor, Ceil, Round, Exp, Exp2, Log, Log2, Rsqrt, Tanh, Sin, Cos, Erf] {
                let found = imm(unary(&mut b, op, Compute::F64, Operand::Imm(x.to_bits())));
                assert!(same(found, op.apply_in(Compute::F64, *x)), "{op:?} {x:e}");
            }
            for y in &numbers {
                use BinaryOp::*;
                for op in [Add, Sub, Mul, Div, Min, Max] {
                    let operands = [x, y].map(|x| Operand::Imm(x.to_bits()));
                    let found = imm(binary(&mut b, op, operands));
                    let expected = op.apply_in(Compute::F64, *x, *y);
                    assert!(expected.is_some_and(|expected| same(found, expected)), "{op:?} {x:e} {y:e}");
                }
            }
        }
        let x = Operand::Imm(DType::I64.encode_integer(-3));
        assert_eq!(imm(convert(&mut b, Compute::I64, Compute::F64, x)), (-3f64).to_bits());
    }
}
