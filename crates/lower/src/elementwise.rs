//! Elementwise statements, casts and fills: value by value, by the operations that [`tilewright_tile::arith`] defines, and rounded
//! once to the result's type. Where [`packed`] instructions give the same bits, they are taken.

use std::collections::BTreeMap;

use tilewright_machine::ScalarOp;
use tilewright_simt::{ArrayId, Builder, Operand, Reg};
use tilewright_synth::cast;
use tilewright_tile::{BinaryOp, Diagnostic, ElemExpr, Rounded, TensorId, UnaryOp, rounded};

use crate::context::Lower;
use crate::{elements, packed, scalar};

impl Lower<'_> {
    pub(crate) fn fill(&mut self, dst: TensorId, value: f64) -> Result<(), Diagnostic> {
        let array = self.array(dst)?;
        let dtype = self.verified.tensor(dst).dtype;
        let bits = dtype.encode(value);
        // The element in every place of a register.
        let word = (0..32).step_by(dtype.bits() as usize).fold(0, |word, place| word | bits << place);
        let count = elements::registers(self.count(dst)?, dtype.bits());
        for index in 0..count {
            self.b.write(Reg { array, index }, Operand::Imm(u64::from(word)));
        }
        Ok(())
    }

    /// A cast, by the rows that [`cast`] chooses.
    pub(crate) fn cast(&mut self, dst: TensorId, src: TensorId) -> Result<(), Diagnostic> {
        let dtype = |id| self.verified.tensor(id).dtype;
        let (from, to) = (dtype(src), dtype(dst));
        let (source, target) = (self.array(src)?, self.array(dst)?);
        let count = self.count(dst)?;
        let held = elements::registers(self.count(src)?, from.bits());
        let words = elements::read_words(self.b, source, held);
        if from == to || to.bits() != 16 {
            let order: Vec<u32> = (0..count).collect();
            let results = cast::emit(&mut elements::Into(self.b), from, to, &words, &order);
            elements::write_words(self.b, target, results);
            return Ok(());
        }
        // What products multiply comes register by register, in the order in which they want it.
        let per = tilewright_machine::per_register(to.bits());
        for index in self.first_use.registers(dst, elements::registers(count, to.bits()), to.bits()) {
            let order: Vec<u32> = (index * per..((index + 1) * per).min(count)).collect();
            let results = cast::emit(&mut elements::Into(self.b), from, to, &words, &order);
            for word in results {
                self.b.write(Reg { array: target, index }, word);
            }
        }
        Ok(())
    }

    pub(crate) fn elementwise(&mut self, dst: TensorId, expr: &ElemExpr) -> Result<(), Diagnostic> {
        let array = self.array(dst)?;
        let dtype = self.verified.tensor(dst).dtype;
        let count = self.count(dst)?;
        // A register of the result may be one of the operands': its elements are all read before it is written.
        if packed::applies(expr, dtype) {
            let ids = expr.tensors();
            let arrays: BTreeMap<TensorId, ArrayId> =
                ids.into_iter().map(|id| Ok((id, self.array(id)?))).collect::<Result<_, Diagnostic>>()?;
            for index in self.first_use.registers(dst, elements::registers(count, dtype.bits()), dtype.bits())
            {
                let mut read = |b: &mut Builder, id: TensorId| b.read(Reg { array: arrays[&id], index });
                let word = packed::register(self.b, (self.arch, dtype), expr, &mut read);
                self.b.write(Reg { array, index }, word);
            }
            return Ok(());
        }
        let tree = rounded(expr);
        let per_register = tilewright_machine::per_register(dtype.bits());
        for first in (0..count).step_by(per_register as usize) {
            let values = first..(first + per_register).min(count);
            let results: Vec<Operand> =
                values.map(|value| self.element(&tree, value)).collect::<Result<_, _>>()?;
            elements::write_register(self.b, array, dtype, first, &results);
        }
        Ok(())
    }

    fn element(&mut self, tree: &Rounded, value: u32) -> Result<Operand, Diagnostic> {
        Ok(match tree {
            Rounded::Tensor(id) => {
                let array = self.array(*id)?;
                let dtype = self.verified.tensor(*id).dtype;
                elements::read_f32(self.b, array, value, dtype)
            }
            Rounded::Number(x) => scalar::float(f64::from(*x)),
            Rounded::Scalar(param) => Operand::Value(self.b.param(param.0)),
            Rounded::Int(e) => {
                let x = self.expr(e);
                self.b.scalar(ScalarOp::F32FromI32, &[x])
            }
            Rounded::Unary(op, x) => {
                let x = self.element(x, value)?;
                unary(self.b, *op, x)
            }
            Rounded::Binary(op, x, y) => {
                let (x, y) = (self.element(x, value)?, self.element(y, value)?);
                self.b.scalar(binary(*op), &[x, y])
            }
            Rounded::Fma(operands) => {
                let [x, y, z] = &**operands;
                let args = [self.element(x, value)?, self.element(y, value)?, self.element(z, value)?];
                self.b.scalar(ScalarOp::FmaF32, &args)
            }
        })
    }
}

/// The operation on two `f32`.
pub fn binary(op: BinaryOp) -> ScalarOp {
    match op {
        BinaryOp::Add => ScalarOp::AddF32,
        BinaryOp::Sub => ScalarOp::SubF32,
        BinaryOp::Mul => ScalarOp::MulF32,
        BinaryOp::Div => ScalarOp::DivF32,
        BinaryOp::Min => ScalarOp::MinF32,
        BinaryOp::Max => ScalarOp::MaxF32,
    }
}

/// A function of one `f32`.
pub fn unary(b: &mut Builder, op: UnaryOp, x: Operand) -> Operand {
    match op {
        UnaryOp::Neg => b.scalar(ScalarOp::NegF32, &[x]),
        UnaryOp::Abs => b.scalar(ScalarOp::AbsF32, &[x]),
        UnaryOp::Sqrt => b.scalar(ScalarOp::SqrtF32, &[x]),
        UnaryOp::Rsqrt => b.scalar(ScalarOp::RsqrtF32, &[x]),
        UnaryOp::Exp => {
            let scaled = b.scalar(ScalarOp::MulF32, &[x, scalar::float(std::f64::consts::LOG2_E)]);
            b.scalar(ScalarOp::Ex2F32, &[scaled])
        }
        UnaryOp::Log => {
            let log2 = b.scalar(ScalarOp::Lg2F32, &[x]);
            b.scalar(ScalarOp::MulF32, &[log2, scalar::float(std::f64::consts::LN_2)])
        }
        UnaryOp::Tanh => tanh(b, x),
    }
}

/// The argument at which [`tanh`] passes from the polynomial to the exponential.
const TANH_SMALL: f32 = 0.5625;
/// (tanh(x)/x − 1)/x² by powers of x², the lowest first: the minimax polynomial of the relative error of tanh up to [`TANH_SMALL`],
/// 4.6·10⁻⁸ with these coefficients.
const TANH: [f32; 4] = [-0.333_328_75, 0.133_190_8, -0.052_565_12, 0.016_232_92];

/// tanh(x) without cancellation or a branch: x + x³ · p(x²) for small x, else 1 − 2 / (1 + e²ˣ) with the sign of x.
fn tanh(b: &mut Builder, x: Operand) -> Operand {
    use ScalarOp::*;
    let float = |x: f32| Operand::Imm(u64::from(x.to_bits()));
    let size = b.scalar(AbsF32, &[x]);
    // A subnormal x has the square 0, and its polynomial is x.
    let square = b.scalar(MulF32, &[x, x]);
    let [c0, c1, c2, c3] = TANH.map(float);
    let p = [c2, c1, c0].into_iter().fold(c3, |p, c| b.scalar(FmaF32, &[p, square, c]));
    let cube = b.scalar(MulF32, &[p, square]);
    let small = b.scalar(FmaF32, &[cube, x, x]);
    // From e¹ on no operand or result is subnormal but the reciprocal of what is infinite compared with 1.
    let scaled = b.scalar(MulF32, &[size, scalar::float(2.0 * std::f64::consts::LOG2_E)]);
    let power = b.scalar(Ex2FtzF32, &[scaled]);
    let denominator = b.scalar(AddF32, &[power, float(1.0)]);
    let reciprocal = b.scalar(RcpFtzF32, &[denominator]);
    let large = b.scalar(FmaF32, &[reciprocal, float(-2.0), float(1.0)]);
    // (x and the sign's bit) or the value.
    let signed = b.scalar(Lop3B32, &[x, Operand::Imm(0x8000_0000), large, Operand::Imm(0xea)]);
    // Numbers that are not negative are in the order of their bits, and a NaN is above all of them.
    let is_small = b.scalar(LtI32, &[size, float(TANH_SMALL)]);
    b.scalar(Select, &[small, signed, is_small])
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::Arch;

    /// The ends of all ranges, both signs, and numbers between.
    fn values() -> Vec<f32> {
        let ends = [0u32, 1, 2, 0x007f_ffff, 0x0080_0000, 0x3f7f_ffff, 0x3f80_0000, 0x7f7f_ffff, 0x7f80_0000];
        let mut seed = 1u32;
        let mut next = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            seed
        };
        let random: Vec<u32> = (0..200).map(|_| next()).collect();
        let near_one = random.clone().into_iter().map(|x| (120 + x % 14) << 23 | x >> 9);
        let all: Vec<u32> =
            ends.into_iter().chain(near_one).chain(random.clone()).chain([0x7fc0_0000]).collect();
        all.into_iter().flat_map(|x| [x, x ^ 0x8000_0000]).map(f32::from_bits).collect()
    }

    fn literal(x: f32) -> Operand {
        Operand::Imm(u64::from(x.to_bits()))
    }

    fn number(x: Operand) -> f32 {
        match x {
            Operand::Imm(bits) => f32::from_bits(bits as u32),
            Operand::Value(_) => panic!("literals fold"),
        }
    }

    fn same(x: f32, y: f32) -> bool {
        x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan()
    }

    #[test]
    fn rows_compute_what_the_interpreter_does() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let all = values();
        for (i, x) in all.iter().enumerate() {
            for op in UnaryOp::ALL.into_iter().filter(|op| op.error().is_none()) {
                let found = number(unary(&mut b, op, literal(*x)));
                assert!(same(found, op.apply(*x)), "{} {x:e}: {found:e}", op.name());
            }
            for y in &all {
                use BinaryOp::*;
                for op in [Add, Sub, Mul, Div, Min, Max] {
                    let found = number(b.scalar(binary(op), &[literal(*x), literal(*y)]));
                    assert!(same(found, op.apply(*x, *y)), "{op:?} {x:e} {y:e}: {found:e}");
                }
                let z = all[(i * 31 + 7) % all.len()];
                let found = number(b.scalar(ScalarOp::FmaF32, &[literal(*x), literal(*y), literal(z)]));
                assert!(same(found, x.mul_add(*y, z)), "{x:e} * {y:e} + {z:e}: {found:e}");
            }
        }
    }

    #[test]
    fn functions_keep_their_bounds() {
        let mut b = Builder::new("k", Arch::SM_90A, 32);
        let tiny = (0..2000).map(|i| f32::from_bits(i * 0x000e_1234 % 0x7f80_0000));
        for x in values().into_iter().chain(tiny.flat_map(|x| [x, -x])) {
            for (op, error) in UnaryOp::ALL.into_iter().filter_map(|op| Some((op, op.error()?))) {
                let found = number(unary(&mut b, op, literal(x)));
                let exact = op.exact(f64::from(x));
                let expected = op.apply(x);
                let right = same(found, expected)
                    || (f64::from(found) - exact).abs() <= error.at(f64::from(x), exact)
                    || found.is_infinite() && exact > f64::from(f32::MAX) * (1.0 - 1e-5);
                assert!(right, "{} {x:e}: {found:e}, should be {exact:e}", op.name());
            }
        }
    }
}
