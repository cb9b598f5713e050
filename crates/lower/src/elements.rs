//! Fragments element by element: reading one as `f32` or as bits, and packing results back into registers. The
//! conversions are those of [`tilewright_synth::cast`].

use tilewright_machine::{DType, Features, ScalarOp};
use tilewright_simt::{ArrayId, Builder, Operand, Reg};
use tilewright_synth::cast::{self, Emit};

/// Emits the instructions of conversions into a program.
pub struct Into<'a>(pub &'a mut Builder);

impl Emit for Into<'_> {
    type Value = Operand;

    fn has(&self, needs: Features) -> bool {
        self.0.arch().has(needs)
    }

    fn op(&mut self, op: ScalarOp, args: &[Operand]) -> Operand {
        self.0.scalar(op, args)
    }

    fn literal(&mut self, bits: u32) -> Operand {
        Operand::Imm(u64::from(bits))
    }

    fn wide_literal(&mut self, bits: u64) -> Operand {
        Operand::Imm(bits)
    }
}

/// The register that holds a value of a fragment, and the bit at which it starts.
pub fn place(array: ArrayId, value: u32, bits: u32) -> (Reg, u32) {
    (Reg { array, index: value * bits / 32 }, value * bits % 32)
}

/// The registers that hold values of a fragment, of which each register's stand side by side; of a value of 64 bits both, the lower half first.
pub fn places(array: ArrayId, values: &[u32], bits: u32) -> Vec<Reg> {
    let registers = values.chunks(tilewright_machine::per_register(bits) as usize);
    let of = |values: &[u32]| {
        let first = place(array, values[0], bits).0;
        (0..tilewright_machine::registers_of(bits)).map(move |k| Reg { index: first.index + k, ..first })
    };
    registers.flat_map(of).collect()
}

/// Two neighbouring registers of a fragment that is full of a literal, the first at an even place.
pub fn words_of_literal(dtype: DType, value: f64) -> [u32; 2] {
    let bits = dtype.encode(value);
    // The element in every place.
    let both = (0..64).step_by(dtype.bits() as usize).fold(0, |word, place| word | bits << place);
    [both as u32, (both >> 32) as u32]
}

/// The words of a value of 32 bits, or of 64.
pub fn words(b: &mut Builder, value: Operand, bits: u32) -> Vec<Operand> {
    match bits {
        64 => [ScalarOp::LowB32, ScalarOp::HighB32].map(|half| b.scalar(half, &[value])).to_vec(),
        _ => vec![value],
    }
}

/// The value of these words.
pub fn of_words(b: &mut Builder, words: &[Operand]) -> Operand {
    match words {
        [low, high] => b.scalar(ScalarOp::JoinB64, &[*low, *high]),
        _ => words.first().copied().unwrap_or(Operand::Imm(0)),
    }
}

/// Registers of a fragment of `values` elements.
pub fn registers(values: u32, bits: u32) -> u32 {
    cast::registers(values, bits)
}

/// All registers of a fragment.
pub fn read_words(b: &mut Builder, array: ArrayId, count: u32) -> Vec<Operand> {
    (0..count).map(|index| b.read(Reg { array, index })).collect()
}

/// Writes registers of a fragment, from its first on.
pub fn write_words(b: &mut Builder, array: ArrayId, words: Vec<Operand>) {
    for (index, word) in (0..).zip(words) {
        b.write(Reg { array, index }, word);
    }
}

/// The register of a 16-bit fragment that has for its two halves values `2 * index` and `2 * index + 1` of `values`, which are places in
/// the fragment.
pub fn read_pair(b: &mut Builder, array: ArrayId, values: &[u32], index: u32) -> Operand {
    let low = values[2 * index as usize];
    let high = values.get(2 * index as usize + 1).copied().unwrap_or(low);
    let [first, second] = [low, high].map(|value| b.read(place(array, value, 16).0));
    if low.is_multiple_of(2) && high == low + 1 {
        return first;
    }
    // Bytes 0 to 3 are the first register's, 4 to 7 the second's.
    let [from, to] = [low % 2, high % 2].map(|half| u64::from(2 * half));
    let bytes = from | (from + 1) << 4 | (4 + to) << 8 | (5 + to) << 12;
    b.scalar(ScalarOp::PrmtB32, &[first, second, Operand::Imm(bytes)])
}

/// A value of a fragment as an `f32`; its type has at most 32 bits.
pub fn read_f32(b: &mut Builder, array: ArrayId, value: u32, dtype: DType) -> Operand {
    let (reg, shift) = place(array, value, dtype.bits());
    let word = b.read(reg);
    cast::read_f32(&mut Into(b), word, shift, dtype)
}

/// A value of a fragment of integers of at most 32 bits as a 32-bit integer.
pub fn read_i32(b: &mut Builder, array: ArrayId, value: u32, dtype: DType) -> Operand {
    let (reg, shift) = place(array, value, dtype.bits());
    let word = b.read(reg);
    cast::read_i32(&mut Into(b), word, shift, dtype)
}

/// The words of a value of a fragment in the type that it is computed with: of an `f32`, of a 32-bit integer, or both halves of 64 bits.
pub fn read_words_of(b: &mut Builder, array: ArrayId, value: u32, dtype: DType) -> Vec<Operand> {
    match (dtype.bits(), dtype.is_float()) {
        (64, _) => places(array, &[value], 64).into_iter().map(|reg| b.read(reg)).collect(),
        (_, true) => vec![read_f32(b, array, value, dtype)],
        (_, false) => vec![read_i32(b, array, value, dtype)],
    }
}

/// A value of a fragment in the type that it is computed with: an `f32`, a 32-bit integer, or 64 bits.
pub fn read(b: &mut Builder, array: ArrayId, value: u32, dtype: DType) -> Operand {
    let words = read_words_of(b, array, value, dtype);
    of_words(b, &words)
}

/// Writes the registers whose first value is `first` from results of 64 bits, or `f32` results, rounding each to the element type.
pub fn write_register(b: &mut Builder, array: ArrayId, dtype: DType, first: u32, results: &[Operand]) {
    if dtype.bits() == 64 {
        return write_wide(b, array, first, results);
    }
    let word = cast::pack_f32(&mut Into(b), dtype, results);
    b.write(place(array, first, dtype.bits()).0, word);
}

/// The same of results that are numbers of the element type.
pub fn write_exact(b: &mut Builder, array: ArrayId, dtype: DType, first: u32, results: &[Operand]) {
    if dtype.bits() == 64 {
        return write_wide(b, array, first, results);
    }
    let word = cast::pack_exact_f32(&mut Into(b), dtype, results);
    b.write(place(array, first, dtype.bits()).0, word);
}

/// Writes values of 64 bits, from one on.
fn write_wide(b: &mut Builder, array: ArrayId, first: u32, results: &[Operand]) {
    for (value, result) in (first..).zip(results) {
        let halves = words(b, *result, 64);
        for (reg, half) in places(array, &[value], 64).into_iter().zip(halves) {
            b.write(reg, half);
        }
    }
}

/// Joins the low `bits` of each part into one register, the first lowest.
pub fn join(b: &mut Builder, parts: &[Operand], bits: u32) -> Operand {
    cast::join(&mut Into(b), parts, bits)
}
