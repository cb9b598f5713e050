//! Elementwise statements, casts and fills: value by value in `f32`, rounded once to the result's type. Where
//! [`packed`] instructions give the same bits, they are taken.

use std::collections::BTreeMap;

use tilewright_machine::ScalarOp;
use tilewright_simt::{ArrayId, Builder, Operand, Reg};
use tilewright_synth::cast;
use tilewright_tile::{BinaryOp, Diagnostic, ElemExpr, Fused, TensorId, UnaryOp};

use crate::{Lower, elements, packed, scalar};

impl Lower<'_> {
    pub(crate) fn fill(&mut self, dst: TensorId, value: f64) -> Result<(), Diagnostic> {
        let array = self.array(dst)?;
        let dtype = self.verified.program().tensor(dst).dtype;
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
        let dtype = |id| self.verified.program().tensor(id).dtype;
        let (from, to) = (dtype(src), dtype(dst));
        let (source, target) = (self.array(src)?, self.array(dst)?);
        let count = self.count(dst)?;
        let held = elements::registers(self.count(src)?, from.bits());
        let words = elements::read_words(&mut self.b, source, held);
        if from == to || to.bits() != 16 {
            let order: Vec<u32> = (0..count).collect();
            let results = cast::emit(&mut elements::Into(&mut self.b), from, to, &words, &order);
            for (index, word) in results.into_iter().enumerate() {
                self.b.write(Reg { array: target, index: index as u32 }, word);
            }
            return Ok(());
        }
        // What products multiply comes register by register, in the order in which they want it.
        let per = 32 / to.bits();
        for index in self.wanted(dst, elements::registers(count, to.bits()), to.bits()) {
            let order: Vec<u32> = (index * per..((index + 1) * per).min(count)).collect();
            let results = cast::emit(&mut elements::Into(&mut self.b), from, to, &words, &order);
            for word in results {
                self.b.write(Reg { array: target, index }, word);
            }
        }
        Ok(())
    }

    pub(crate) fn elementwise(&mut self, dst: TensorId, expr: &ElemExpr) -> Result<(), Diagnostic> {
        let array = self.array(dst)?;
        let dtype = self.verified.program().tensor(dst).dtype;
        let count = self.count(dst)?;
        // A register of the result may be one of the operands': its elements are all read before it is written.
        if packed::applies(expr, dtype) {
            let ids = expr.tensors();
            let arrays: BTreeMap<TensorId, ArrayId> =
                ids.into_iter().map(|id| Ok((id, self.array(id)?))).collect::<Result<_, Diagnostic>>()?;
            for index in self.wanted(dst, elements::registers(count, dtype.bits()), dtype.bits()) {
                let mut read = |b: &mut Builder, id: TensorId| b.read(Reg { array: arrays[&id], index });
                let word = packed::register(&mut self.b, (self.arch, dtype), expr, &mut read);
                self.b.write(Reg { array, index }, word);
            }
            return Ok(());
        }
        let per_register = 32 / dtype.bits();
        for first in (0..count).step_by(per_register as usize) {
            let values = first..(first + per_register).min(count);
            let results: Vec<Operand> =
                values.map(|value| self.element(expr, value)).collect::<Result<_, _>>()?;
            elements::write_register(&mut self.b, array, dtype, first, &results);
        }
        Ok(())
    }

    fn element(&mut self, expr: &ElemExpr, value: u32) -> Result<Operand, Diagnostic> {
        Ok(match expr {
            ElemExpr::Tensor(id) => {
                let array = self.array(*id)?;
                let dtype = self.verified.program().tensor(*id).dtype;
                elements::read_f32(&mut self.b, array, value, dtype)
            }
            ElemExpr::Number(x) => scalar::float(*x),
            ElemExpr::Scalar(param) => Operand::Value(self.b.param(param.0)),
            ElemExpr::Int(e) => {
                let x = self.expr(e);
                self.b.scalar(ScalarOp::F32FromI32, &[x])
            }
            ElemExpr::Unary(op, x) => {
                let x = self.element(x, value)?;
                unary(&mut self.b, *op, x)
            }
            ElemExpr::Binary(op, x, y) => {
                if let Some(fused) = expr.fused() {
                    return self.fused(fused, value);
                }
                let (x, y) = (self.element(x, value)?, self.element(y, value)?);
                self.b.scalar(binary(*op), &[x, y])
            }
        })
    }

    /// A product that is added to or subtracted, with one rounding.
    fn fused(
        &mut self,
        Fused { factors: [x, y], other, minus }: Fused<'_>,
        value: u32,
    ) -> Result<Operand, Diagnostic> {
        let (mut x, y) = (self.element(x, value)?, self.element(y, value)?);
        let mut z = self.element(other, value)?;
        let [of_product, of_other] = minus;
        if of_product {
            x = self.b.scalar(ScalarOp::NegF32, &[x]);
        }
        if of_other {
            z = self.b.scalar(ScalarOp::NegF32, &[z]);
        }
        Ok(self.b.scalar(ScalarOp::FmaF32, &[x, y, z]))
    }
}

fn exp(b: &mut Builder, x: Operand, factor: f64) -> Operand {
    let scaled = b.scalar(ScalarOp::MulF32, &[x, scalar::float(factor * std::f64::consts::LOG2_E)]);
    b.scalar(ScalarOp::Ex2F32, &[scaled])
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
        UnaryOp::Exp => exp(b, x, 1.0),
        UnaryOp::Log => {
            let log2 = b.scalar(ScalarOp::Lg2F32, &[x]);
            b.scalar(ScalarOp::MulF32, &[log2, scalar::float(std::f64::consts::LN_2)])
        }
        UnaryOp::Tanh => {
            // 1 − 2 / (1 + e²ˣ): exact at both ends, where the exponential overflows or vanishes.
            let e = exp(b, x, 2.0);
            let denominator = b.scalar(ScalarOp::AddF32, &[e, scalar::float(1.0)]);
            let quotient = b.scalar(ScalarOp::DivF32, &[scalar::float(2.0), denominator]);
            b.scalar(ScalarOp::SubF32, &[scalar::float(1.0), quotient])
        }
    }
}
