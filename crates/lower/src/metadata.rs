//! Registers of the metadata of sparse factors, and of scales: those of a fragment as they are, or put together of its bytes.

use std::collections::HashMap;

use tilewright_machine::{DType, ScalarOp, Sparsity};
use tilewright_simt::{ArrayId, Builder, Operand, Reg, ScaleBytes};
use tilewright_tile::{Diagnostic, TensorId};

use crate::context::Lower;
use crate::elements;

/// The metadata of a product, or the scales of a factor, and the registers that have been put together of them.
pub(crate) struct Metadata {
    array: ArrayId,
    name: String,
    made: HashMap<Vec<u32>, Reg>,
}

impl Metadata {
    pub(crate) fn new(lower: &Lower<'_>, meta: TensorId) -> Result<Self, Diagnostic> {
        let name = format!("{}.ordered", lower.verified.tensor(meta).name);
        Ok(Metadata { array: lower.array(meta)?, name, made: HashMap::new() })
    }

    /// The register with these values of the fragment, which are those of four whole bytes.
    pub(crate) fn register(&mut self, b: &mut Builder, values: &[u32]) -> Reg {
        let bytes = self.bytes(values, Sparsity::META);
        let whole = bytes[0].0;
        if bytes.iter().enumerate().all(|(i, byte)| *byte == (whole, i as u32)) {
            return whole;
        }
        self.made(b, values, &bytes)
    }

    /// The bytes of a register with these scales of the fragment, which begin at a multiple of their number.
    pub(crate) fn scales(&mut self, b: &mut Builder, values: &[u32]) -> ScaleBytes {
        let bytes = self.bytes(values, DType::U8);
        let (register, byte) = bytes[0];
        let neighbours = (byte..).zip(&bytes).all(|(i, at)| *at == (register, i));
        if neighbours && (byte as usize).is_multiple_of(bytes.len()) {
            return ScaleBytes { register, byte };
        }
        ScaleBytes { register: self.made(b, values, &bytes), byte: 0 }
    }

    /// The registers and bytes of some values of the fragment, which fill whole bytes.
    fn bytes(&self, values: &[u32], dtype: DType) -> Vec<(Reg, u32)> {
        let bits = dtype.bits();
        let places =
            values.chunks(8 / bits as usize).map(|values| elements::place(self.array, values[0], bits));
        places.map(|(register, bit)| (register, bit / 8)).collect()
    }

    /// The register that these bytes have been put together in.
    fn made(&mut self, b: &mut Builder, values: &[u32], bytes: &[(Reg, u32)]) -> Reg {
        if let Some(made) = self.made.get(values) {
            return *made;
        }
        let word = together(b, bytes);
        let made = Reg { array: b.add_array(self.name.clone(), 1), index: 0 };
        b.write(made, word);
        self.made.insert(values.to_vec(), made);
        made
    }
}

/// A word of these bytes of registers, the lowest first: by one permutation where two registers have them all.
fn together(b: &mut Builder, bytes: &[(Reg, u32)]) -> Operand {
    let first = bytes[0].0;
    let second = bytes.iter().map(|(register, _)| *register).find(|register| *register != first);
    let second = second.unwrap_or(first);
    if bytes.iter().any(|(register, _)| ![first, second].contains(register)) {
        let (low, high) = bytes.split_at(bytes.len() / 2);
        let [low, high] = [low, high].map(|half| together(b, half));
        return b.scalar(ScalarOp::PrmtB32, &[low, high, Operand::Imm(0x5410)]);
    }
    let selector = bytes.iter().enumerate().fold(0, |selector, (i, (register, byte))| {
        let from = if *register == first { *byte } else { 4 + byte };
        selector | u64::from(from) << (4 * i)
    });
    let [x, y] = [first, second].map(|register| b.read(register));
    b.scalar(ScalarOp::PrmtB32, &[x, y, Operand::Imm(selector)])
}
