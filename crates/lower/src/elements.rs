//! Fragments element by element: reading one as `f32` or as bits, and packing results back into registers.

use tilewright_machine::{DType, ScalarOp};
use tilewright_simt::{ArrayId, Builder, Operand, Reg};

use crate::scalar::int;

/// The register that holds a value of a fragment, and the bit at which it starts.
pub fn place(array: ArrayId, value: u32, bits: u32) -> (Reg, u32) {
    (Reg { array, index: value * bits / 32 }, value * bits % 32)
}

/// Registers of a fragment of `values` elements.
pub fn registers(values: u32, bits: u32) -> u32 {
    (values * bits).div_ceil(32)
}

/// A value of a fragment as zero-extended bits.
pub fn read_bits(b: &mut Builder, array: ArrayId, value: u32, bits: u32) -> Operand {
    let (reg, shift) = place(array, value, bits);
    let word = b.read(reg);
    if bits == 32 {
        return word;
    }
    b.scalar(ScalarOp::BfeU32, &[word, int(i64::from(shift)), int(i64::from(bits))])
}

/// A value of a fragment as an `f32`.
pub fn read_f32(b: &mut Builder, array: ArrayId, value: u32, dtype: DType) -> Operand {
    let (reg, shift) = place(array, value, dtype.bits());
    let word = b.read(reg);
    match dtype {
        DType::F32 => word,
        DType::I32 | DType::I8 | DType::U8 => {
            let wide = widen(b, word, shift, dtype);
            b.scalar(ScalarOp::F32FromI32, &[wide])
        }
        DType::F16 => {
            let low = if shift == 0 { word } else { b.scalar(ScalarOp::ShrU32, &[word, int(16)]) };
            let half = b.scalar(ScalarOp::LowB16, &[low]);
            b.scalar(ScalarOp::F32FromF16, &[half])
        }
        DType::BF16 if shift == 0 => b.scalar(ScalarOp::ShlB32, &[word, int(16)]),
        DType::BF16 => b.scalar(ScalarOp::AndB32, &[word, Operand::Imm(0xffff_0000)]),
    }
}

/// An integer element of a register as a 32-bit integer.
fn widen(b: &mut Builder, word: Operand, shift: u32, dtype: DType) -> Operand {
    let op = match dtype {
        DType::I8 => ScalarOp::BfeS32,
        DType::U8 => ScalarOp::BfeU32,
        _ => return word,
    };
    b.scalar(op, &[word, int(i64::from(shift)), int(8)])
}

/// A value of a fragment of integers as a 32-bit integer.
pub fn read_i32(b: &mut Builder, array: ArrayId, value: u32, dtype: DType) -> Operand {
    let (reg, shift) = place(array, value, dtype.bits());
    let word = b.read(reg);
    widen(b, word, shift, dtype)
}

/// A 32-bit integer brought into the range of an integer type.
pub fn saturate(b: &mut Builder, value: Operand, dtype: DType) -> Operand {
    let (low, high) = match dtype {
        DType::I8 => (-128, 127),
        DType::U8 => (0, 255),
        _ => return value,
    };
    let above = b.scalar(ScalarOp::MaxI32, &[value, int(low)]);
    b.scalar(ScalarOp::MinI32, &[above, int(high)])
}

/// Writes the register whose first value is `first` from `f32` results, rounding each to the element type.
pub fn write_register(b: &mut Builder, array: ArrayId, dtype: DType, first: u32, results: &[Operand]) {
    let word = pack(b, dtype, results);
    b.write(place(array, first, dtype.bits()).0, word);
}

fn pack(b: &mut Builder, dtype: DType, results: &[Operand]) -> Operand {
    match (dtype, results) {
        (DType::F16, [low, high]) => b.scalar(ScalarOp::F16x2FromF32, &[*high, *low]),
        (DType::BF16, [low, high]) => b.scalar(ScalarOp::BF16x2FromF32, &[*high, *low]),
        (DType::F16 | DType::BF16, [one, ..]) => {
            let op = if dtype == DType::F16 { ScalarOp::F16FromF32 } else { ScalarOp::BF16FromF32 };
            let half = b.scalar(op, &[*one]);
            b.scalar(ScalarOp::ExtendB16, &[half])
        }
        (DType::F32, [one, ..]) => *one,
        (DType::I32, [one, ..]) => b.scalar(ScalarOp::I32FromF32, &[*one]),
        (DType::I8 | DType::U8, _) => {
            let bytes: Vec<Operand> = results
                .iter()
                .map(|r| {
                    let wide = b.scalar(ScalarOp::I32FromF32, &[*r]);
                    saturate(b, wide, dtype)
                })
                .collect();
            join(b, &bytes, 8)
        }
        (_, []) => int(0),
    }
}

/// Joins the low `bits` of each part into one register, the first lowest.
pub fn join(b: &mut Builder, parts: &[Operand], bits: u32) -> Operand {
    let mut word = parts.first().copied().unwrap_or(int(0));
    for (i, part) in parts.iter().enumerate().skip(1) {
        let position = i as i64 * i64::from(bits);
        word = b.scalar(ScalarOp::BfiB32, &[*part, word, int(position), int(i64::from(bits))]);
    }
    word
}
