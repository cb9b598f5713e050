//! Elementwise statements on 16-bit floats, two values an instruction: those of `f16x2(…)` and `bf16x2(…)`, and others where that gives the bits that evaluation in `f32`
//! and one rounding give.
//!
//! The sum, the difference and the product of two numbers of the type, rounded to `f32` and then to the type, are what one
//! rounding gives: an `f32` has 24 places, more than twice as many as the type and two. (A product of `bf16` numbers below
//! the least `f32` is 0 both ways.) Negation, absolute value, minimum and maximum are exact, and as rounding is
//! monotonic, odd and keeps what is representable, they may come before or after it. So an expression is packed if no sum,
//! difference or product is an operand of another, and nothing else rounds.

use tilewright_machine::{Arch, DType, ScalarOp};
use tilewright_simt::{Builder, Operand};
use tilewright_tile::{BinaryOp, Compute, ElemExpr, TensorId, UnaryOp};

use crate::elementwise;
use crate::wide::convert;

/// A literal that is a number of the type: the number.
fn literal(expr: &ElemExpr, dtype: DType) -> Option<f64> {
    let number = match expr {
        ElemExpr::Number(x) => f64::from(*x as f32),
        ElemExpr::Unary(UnaryOp::Float, x) => match &**x {
            ElemExpr::Int(e) => f64::from(i32::try_from(e.as_int()?).ok()? as f32),
            _ => return None,
        },
        _ => return None,
    };
    (dtype.decode(dtype.encode(number)) == number).then_some(number)
}

/// True if packed instructions give an expression's bits, with at most `roundings` on the way from an operand to the result.
fn rounds(expr: &ElemExpr, dtype: DType, roundings: u32) -> bool {
    if literal(expr, dtype).is_some() {
        return true;
    }
    match expr {
        ElemExpr::Tensor(_) => true,
        ElemExpr::Unary(UnaryOp::Neg | UnaryOp::Abs, x) => rounds(x, dtype, roundings),
        ElemExpr::Binary(BinaryOp::Min | BinaryOp::Max, x, y) => {
            rounds(x, dtype, roundings) && rounds(y, dtype, roundings)
        }
        ElemExpr::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, x, y) => {
            roundings > 0 && rounds(x, dtype, roundings - 1) && rounds(y, dtype, roundings - 1)
        }
        _ => false,
    }
}

/// True if packed instructions give an expression's bits.
pub fn applies(expr: &ElemExpr, dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && rounds(expr, dtype, 1)
}

/// The same number in both halves.
pub fn both(dtype: DType, x: f64) -> Operand {
    Operand::Imm(dtype.encode(x) * 0x0001_0001)
}

/// A register of the result of an expression that [`applies`]; `read` gives the tensors' registers.
pub fn register(
    b: &mut Builder,
    (arch, dtype): (Arch, DType),
    expr: &ElemExpr,
    read: &mut dyn FnMut(&mut Builder, TensorId) -> Operand,
) -> Operand {
    if let Some(x) = literal(expr, dtype) {
        return both(dtype, x);
    }
    match expr {
        ElemExpr::Tensor(id) => read(b, *id),
        ElemExpr::Unary(op, x) => {
            let x = register(b, (arch, dtype), x, read);
            sign(b, *op, x)
        }
        ElemExpr::Binary(op, x, y) => {
            let x = register(b, (arch, dtype), x, read);
            let y = register(b, (arch, dtype), y, read);
            binary(b, (arch, dtype), *op, [x, y])
        }
        // Literals of the type have been taken; others do not apply.
        _ => both(dtype, 0.0),
    }
}

/// True for the operators that packed instructions have.
pub fn has(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max)
}

/// The negation, or the absolute value, of both halves.
pub fn sign(b: &mut Builder, op: UnaryOp, x: Operand) -> Operand {
    let (op, mask) = match op {
        UnaryOp::Neg => (ScalarOp::XorB32, 0x8000_8000),
        _ => (ScalarOp::AndB32, 0x7fff_7fff),
    };
    b.scalar(op, &[x, Operand::Imm(mask)])
}

/// An operator that packed instructions have, on both halves.
pub fn binary(b: &mut Builder, (arch, dtype): (Arch, DType), op: BinaryOp, [x, y]: [Operand; 2]) -> Operand {
    use ScalarOp::*;
    let [half, bfloat] = match op {
        BinaryOp::Add => [AddF16x2, AddBF16x2],
        BinaryOp::Sub => [SubF16x2, SubBF16x2],
        BinaryOp::Min => [MinF16x2, MinBF16x2],
        BinaryOp::Max => [MaxF16x2, MaxBF16x2],
        // The only other that applies is a product.
        _ => [MulF16x2, MulBF16x2],
    };
    let row = if dtype == DType::F16 { half } else { bfloat };
    if arch.has(row.needs()) {
        return b.scalar(row, &[x, y]);
    }
    // Before it has sums and products of its own, `bf16` has x · 1 + y, y · −1 + x and x · y + −0.
    let number = |x: f64| both(dtype, x);
    match op {
        BinaryOp::Add => b.scalar(FmaBF16x2, &[x, number(1.0), y]),
        BinaryOp::Sub => b.scalar(FmaBF16x2, &[y, number(-1.0), x]),
        _ => b.scalar(FmaBF16x2, &[x, y, number(-0.0)]),
    }
}

/// A product and a sum of both halves, rounded once.
pub fn fma(b: &mut Builder, dtype: DType, operands: &[Operand]) -> Operand {
    let op = if dtype == DType::F16 { ScalarOp::FmaF16x2 } else { ScalarOp::FmaBF16x2 };
    b.scalar(op, operands)
}

/// The half of a word that begins at a bit, 0 or 16, as the lower one.
pub fn half(b: &mut Builder, word: Operand, shift: u32) -> Operand {
    match shift {
        0 => b.scalar(ScalarOp::AndB32, &[word, Operand::Imm(0xffff)]),
        _ => b.scalar(ScalarOp::ShrU32, &[word, Operand::Imm(u64::from(shift))]),
    }
}

/// A function of a value in the lower half of a word, in packed arithmetic: where there is no instruction, that of `f32`, rounded.
pub fn unary(b: &mut Builder, op: UnaryOp, compute: Compute, x: Operand) -> Operand {
    if matches!(op, UnaryOp::Neg | UnaryOp::Abs) {
        return sign(b, op, x);
    }
    let single = convert(b, compute, Compute::F32, x);
    let single = elementwise::unary(b, op, Compute::F32, single);
    convert(b, Compute::F32, compute, single)
}

/// An operator on values in the lower halves of words, in packed arithmetic: where there is no instruction, that of `f32`, rounded. Comparisons are those
/// of `f32`.
pub fn operator(
    b: &mut Builder,
    arch: Arch,
    op: BinaryOp,
    compute: Compute,
    operands: [Operand; 2],
) -> Operand {
    if has(op) {
        return binary(b, (arch, compute.dtype()), op, operands);
    }
    let singles = operands.map(|x| convert(b, compute, Compute::F32, x));
    let found = elementwise::binary(b, op, Compute::F32, singles);
    if op.compares() { found } else { convert(b, Compute::F32, compute, found) }
}

#[cfg(test)]
mod tests {
    use tilewright_synth::cast;
    use tilewright_tile::Expr;

    use super::*;
    use crate::elements::Into;

    /// Numbers of every size and both signs, next to powers of two and between; infinities, NaNs and zeros.
    fn values(dtype: DType) -> Vec<u32> {
        let mantissa = if dtype == DType::F16 { 10 } else { 7 };
        let ones = (1u32 << mantissa) - 1;
        let exponents: Vec<u32> = match dtype {
            DType::F16 => (0..32).collect(),
            _ => [0, 1, 2, 7, 8, 9, 56, 60, 62, 63, 64, 65, 110]
                .into_iter()
                .chain(118..=136)
                .chain([180, 190, 191, 192, 247, 252, 253, 254, 255])
                .collect(),
        };
        let mantissas = [0, 1, 1 << (mantissa - 1), (1 << (mantissa - 1)) + 1, ones - 1, ones];
        let words = exponents.iter().flat_map(|e| mantissas.map(|m| e << mantissa | m));
        words.flat_map(|w| [w, w | 0x8000]).collect()
    }

    fn imm(operand: Operand) -> u32 {
        match operand {
            Operand::Imm(bits) => bits as u32,
            Operand::Value(_) => panic!("literals fold"),
        }
    }

    /// By the general path, on literals, which the builder folds with the functions that the simulator calls.
    fn in_f32(b: &mut Builder, dtype: DType, expr: &ElemExpr, x: u32, y: u32) -> Operand {
        let of = |b: &mut Builder, e: &ElemExpr| in_f32(b, dtype, e, x, y);
        match expr {
            ElemExpr::Tensor(id) => {
                let word = Operand::Imm(u64::from(if id.0 == 0 { x } else { y }));
                cast::read_f32(&mut Into(b), word, 0, dtype)
            }
            ElemExpr::Number(x) => crate::scalar::float(*x),
            ElemExpr::Unary(op, x) => {
                let x = of(b, x);
                crate::elementwise::unary(b, *op, Compute::F32, x)
            }
            ElemExpr::Binary(op, x, y) => {
                let (x, y) = (of(b, x), of(b, y));
                crate::elementwise::binary(b, *op, Compute::F32, [x, y])
            }
            _ => panic!("not in these tests"),
        }
    }

    fn two(op: BinaryOp, x: ElemExpr, y: ElemExpr) -> ElemExpr {
        ElemExpr::Binary(op, Box::new(x), Box::new(y))
    }

    fn float(value: Expr) -> ElemExpr {
        ElemExpr::unary(UnaryOp::Float, ElemExpr::Int(value))
    }

    const X: ElemExpr = ElemExpr::Tensor(TensorId(0));
    const Y: ElemExpr = ElemExpr::Tensor(TensorId(1));

    #[test]
    fn packed_results_are_those_of_f32() {
        use BinaryOp::*;
        let negative = |x| ElemExpr::Unary(UnaryOp::Neg, Box::new(x));
        let positive = |x| ElemExpr::Unary(UnaryOp::Abs, Box::new(x));
        let number = ElemExpr::Number;
        let exprs = [
            two(Add, X, Y),
            two(Sub, X, Y),
            two(Mul, X, Y),
            two(Min, X, Y),
            two(Max, X, Y),
            negative(X),
            positive(X),
            two(Sub, number(0.25), X),
            two(Mul, X, number(-1.5)),
            two(Max, two(Add, X, Y), number(0.0)),
            two(Min, two(Mul, X, Y), two(Sub, positive(Y), X)),
            negative(two(Mul, X, negative(Y))),
            two(Add, two(Min, X, number(6.0)), two(Max, Y, number(-0.0))),
        ];
        for dtype in [DType::F16, DType::BF16] {
            let values = values(dtype);
            assert!(values.len() >= 300);
            // Packed `f16` is the same on all.
            let archs = if dtype == DType::F16 { 1 } else { 2 };
            let cases = |e| [Arch::SM_80, Arch::SM_90A].into_iter().take(archs).map(move |arch| (e, arch));
            for (expr, arch) in exprs.iter().flat_map(cases) {
                assert!(applies(expr, dtype), "{expr:?}");
                let mut b = Builder::new("k", arch, 32);
                for (i, x) in values.iter().enumerate() {
                    // Two values at once, so that each half is seen.
                    for (j, y) in values.iter().enumerate() {
                        let (x2, y2) = (values[(i + j) % values.len()], values[(i * 5 + j) % values.len()]);
                        let words = [x | x2 << 16, y | y2 << 16];
                        let mut read =
                            |_: &mut Builder, id: TensorId| Operand::Imm(words[id.0 as usize].into());
                        let found = imm(register(&mut b, (arch, dtype), expr, &mut read));
                        let upper = (j % 16 == 0).then_some((found >> 16, x2, y2));
                        for (half, x, y) in std::iter::once((found & 0xffff, *x, *y)).chain(upper) {
                            let result = in_f32(&mut b, dtype, expr, x, y);
                            let expected = imm(cast::pack_f32(&mut Into(&mut b), dtype, &[result]));
                            let nan = dtype.decode(half).is_nan() && dtype.decode(expected).is_nan();
                            assert!(
                                nan || half == expected,
                                "{dtype} {x:#x} {y:#x}: {half:#x}, not {expected:#x}, of {expr:?}"
                            );
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_rounds_twice_is_not_packed() {
        use BinaryOp::*;
        let no = [
            two(Add, two(Mul, X, Y), X),
            two(Mul, X, ElemExpr::Number(0.1)),
            two(Mul, X, float(Expr::Int(100_003))),
            two(Mul, X, ElemExpr::Number(1e6)),
            two(Div, X, Y),
            ElemExpr::Unary(UnaryOp::Exp, Box::new(X)),
            two(Max, X, ElemExpr::Scalar(tilewright_tile::ParamId(0))),
        ];
        assert!(no.iter().all(|e| !applies(e, DType::F16)));
        assert!(applies(&two(Mul, X, float(Expr::Int(3))), DType::BF16));
        assert!(!applies(&two(Mul, X, Y), DType::F32) && !applies(&two(Mul, X, Y), DType::E5M2));
    }
}
