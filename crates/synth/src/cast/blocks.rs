//! Casts from and to the floats of blocks, `e3m2`, `e2m3`, `e2m1`, `ue8m0` and `ue4m3`. Pairs have instructions on Blackwell, but for `ue4m3` and
//! for casts to `ue8m0` (those round in one direction, which is not the language's); else these are sequences of operations that every architecture has. The exponent and the mantissa of an element, a subnormal one too, are put at the lower end of a wider
//! float's exponent, and one product with a power of two makes up for the difference of the biases, exactly.

use tilewright_machine::{DType, ScalarOp};

use super::{AND_OR, Emit, Within, join, pairs_of_bytes, permute, shift_right};

/// True for the floats of blocks.
pub(super) fn of_blocks(dtype: DType) -> bool {
    finite(dtype).is_some() || matches!(dtype, DType::UE8M0 | DType::UE4M3)
}

/// A float with a sign and without infinities and NaN.
#[derive(Clone, Copy)]
struct Finite {
    /// Bits of an element, of which [`DType::bits`] may have more.
    bits: u32,
    exponent: u32,
    mantissa: u32,
    bias: i32,
    most: f32,
}

impl Finite {
    /// The bits below the sign, the lowest at `position`.
    fn size_at(self, position: u32) -> u32 {
        ((1 << (self.exponent + self.mantissa)) - 1) << position
    }
}

/// The form of a float with a sign and without infinities and NaN.
fn finite(dtype: DType) -> Option<Finite> {
    match dtype {
        DType::E3M2 => Some(Finite { bits: 6, exponent: 3, mantissa: 2, bias: 3, most: 28.0 }),
        DType::E2M3 => Some(Finite { bits: 6, exponent: 2, mantissa: 3, bias: 1, most: 7.5 }),
        DType::E2M1 => Some(Finite { bits: 4, exponent: 2, mantissa: 1, bias: 1, most: 6.0 }),
        _ => None,
    }
}

/// `(word & mask) | other`
fn and_or<E: Emit>(e: &mut E, word: E::Value, mask: u32, other: E::Value) -> E::Value {
    let [mask, table] = [mask, AND_OR].map(|x| e.literal(x));
    e.op(ScalarOp::Lop3B32, &[word, mask, other, table])
}

/// `op(x, literal)`
fn with<E: Emit>(e: &mut E, op: ScalarOp, x: E::Value, literal: u32) -> E::Value {
    let literal = e.literal(literal);
    e.op(op, &[x, literal])
}

/// `op(x, number)` of `f32`.
fn with_number<E: Emit>(e: &mut E, op: ScalarOp, x: E::Value, number: f32) -> E::Value {
    with(e, op, x, number.to_bits())
}

/// Moves the bit at `from` of a word to `to`, all others with it.
fn moved<E: Emit>(e: &mut E, word: E::Value, from: u32, to: u32) -> E::Value {
    if to > from { with(e, ScalarOp::ShlB32, word, to - from) } else { shift_right(e, word, from - to) }
}

/// Two bytes of words, each a byte's first bit with its word, in the low half of a word.
fn low_half<E: Emit>(e: &mut E, [(a, first), (b, second)]: [Within<E::Value>; 2]) -> E::Value {
    let half = if a == b && first % 16 == 0 && second == first + 8 {
        shift_right(e, a, first)
    } else {
        permute(e, a, b, [first / 8, second / 8 + 4, first / 8, first / 8])
    };
    e.op(ScalarOp::LowB16, &[half])
}

/// An element of a word, which begins at bit `shift`, as an `f32`.
pub(super) fn read<E: Emit>(e: &mut E, word: E::Value, shift: u32, dtype: DType) -> E::Value {
    if let Some(form) = finite(dtype) {
        let top = moved(e, word, shift, 32 - form.bits);
        let size = shift_right(e, top, 8 - form.exponent);
        let size = with(e, ScalarOp::AndB32, size, form.size_at(23 - form.mantissa));
        let small = and_or(e, top, 0x8000_0000, size);
        return with_number(e, ScalarOp::MulF32, small, 2f32.powi(127 - form.bias));
    }
    match dtype {
        DType::UE8M0 if e.has(ScalarOp::BF16x2FromUE8M0x2.needs()) => {
            let first = shift / 16 * 16;
            let pair = low_half(e, [(word, first), (word, first + 8)]);
            let pair = e.op(ScalarOp::BF16x2FromUE8M0x2, &[pair]);
            if shift == first {
                with(e, ScalarOp::ShlB32, pair, 16)
            } else {
                with(e, ScalarOp::AndB32, pair, 0xffff_0000)
            }
        }
        DType::UE8M0 => {
            let place = moved(e, word, shift, 23);
            let power = with(e, ScalarOp::AndB32, place, 0x7f80_0000);
            // 2^−127 is half of the least normal number.
            let power = with(e, ScalarOp::MaxU32, power, 0x0040_0000);
            // What would be an infinity is a NaN: one more carries into the sign.
            let carried = with(e, ScalarOp::AddI32, power, 0x0080_0000);
            let carried = shift_right(e, carried, 9);
            and_or(e, carried, 0x0040_0000, power)
        }
        _ => {
            let place = moved(e, word, shift, 20);
            let small = with(e, ScalarOp::AndB32, place, 0x07f0_0000);
            let number = with_number(e, ScalarOp::MulF32, small, 2f32.powi(120));
            let known = with(e, ScalarOp::NeI32, small, 0x07f0_0000);
            let nan = e.literal(f32::NAN.to_bits());
            e.op(ScalarOp::Select, &[number, nan, known])
        }
    }
}

/// Two elements of a float without infinities and NaN as packed `f16` or `bf16`; or of `ue4m3` as packed `f16`, or of `ue8m0` as packed `bf16`
/// where that is an instruction.
pub(super) fn pair<E: Emit>(e: &mut E, from: DType, to: DType, pair: [Within<E::Value>; 2]) -> E::Value {
    if from == DType::UE8M0 {
        let bytes = low_half(e, pair);
        return e.op(ScalarOp::BF16x2FromUE8M0x2, &[bytes]);
    }
    let [(a, first), (b, second)] = pair;
    let Some(form) = finite(from) else {
        let bytes = permute(e, a, b, [first / 8, first / 8, second / 8 + 4, second / 8 + 4]);
        let bytes = shift_right(e, bytes, 1);
        let small = with(e, ScalarOp::AndB32, bytes, 0x3f80_3f80);
        let number = with(e, ScalarOp::MulF16x2, small, 0x5c00_5c00);
        // 0x7f and one more carries; a 480 with one more bit of its exponent is a NaN.
        let carried = with(e, ScalarOp::AddI32, small, 0x0080_0080);
        let carried = shift_right(e, carried, 1);
        return and_or(e, carried, 0x2000_2000, number);
    };
    let of_a_byte = from == DType::E2M1 && a == b && first % 8 == 0 && second == first + 4;
    if to == DType::F16 && of_a_byte && e.has(ScalarOp::F16x2FromE2M1x2.needs()) {
        let byte = shift_right(e, a, first);
        let byte = e.op(ScalarOp::LowB16, &[byte]);
        return e.op(ScalarOp::F16x2FromE2M1x2, &[byte]);
    }
    let whole = match from {
        DType::E3M2 => Some(ScalarOp::F16x2FromE3M2x2),
        DType::E2M3 => Some(ScalarOp::F16x2FromE2M3x2),
        _ => None,
    };
    if let Some(op) = whole.filter(|op| to == DType::F16 && e.has(op.needs())) {
        // The instruction wants the upper two bits of each byte to be 0 (PTX ISA 8.6, section 9.7.9.21).
        let [a, b] = [a, b].map(|word| with(e, ScalarOp::AndB32, word, 0x3f3f_3f3f));
        let bytes = low_half(e, [(a, first), (b, second)]);
        return e.op(op, &[bytes]);
    }
    // The bits of the exponent and of the mantissa go from below bit 15 to the lower end of the exponent.
    let (exponent, mantissa, bias) = if to == DType::F16 { (5, 10, 15) } else { (8, 7, 127) };
    let (down, mask) = (exponent - form.exponent, form.size_at(mantissa - form.mantissa));
    let scale = to.encode(2f64.powi(bias - form.bias));
    let (top, size) = if a == b && second == first + 16 {
        // Shifts to the left, where they may be: the assembler makes products of them, which another unit does.
        let top = 16 - form.bits;
        (moved(e, a, first, top), moved(e, a, first, top - down))
    } else {
        // Each element at the upper end of its byte.
        let [a, b] = [(a, first), (b, second)].map(|(word, shift)| moved(e, word, shift % 8, 8 - form.bits));
        let [low, high] = [first / 8, second / 8];
        let top = permute(e, a, b, [low, low, high + 4, high + 4]);
        (top, shift_right(e, top, down))
    };
    let size = with(e, ScalarOp::AndB32, size, mask * 0x0001_0001);
    let small = and_or(e, top, 0x8000_8000, size);
    let scale = scale as u32 * 0x0001_0001;
    if to == DType::F16 {
        return with(e, ScalarOp::MulF16x2, small, scale);
    }
    // A product alone is no instruction of every architecture.
    let [scale, zero] = [scale, 0x8000_8000].map(|x| e.literal(x));
    e.op(ScalarOp::FmaBF16x2, &[small, scale, zero])
}

/// The number of bits of a float of `mantissa` bits that is nearest to an `f32` that is not negative and lies in its range.
fn nearest<E: Emit>(e: &mut E, x: E::Value, mantissa: u32, bias: i32) -> E::Value {
    let dropped = 23 - mantissa;
    // Of normal numbers the bits that remain, to nearest even.
    let [position, length] = [dropped, 1].map(|x| e.literal(x));
    let odd = e.op(ScalarOp::BfeU32, &[x, position, length]);
    let up = with(e, ScalarOp::AddI32, x, (1 << (dropped - 1)) - 1);
    let up = e.op(ScalarOp::AddI32, &[up, odd]);
    let up = shift_right(e, up, dropped);
    let normal = with(e, ScalarOp::SubI32, up, ((127 - bias) as u32) << mantissa);
    // Of subnormal ones their units, which an addend brings to the end of an f32's mantissa.
    let addend = 2f32.powi(24 - bias - mantissa as i32);
    let units = with_number(e, ScalarOp::AddF32, x, addend);
    let units = with(e, ScalarOp::SubI32, units, addend.to_bits());
    let small = with_number(e, ScalarOp::LtF32, x, 2f32.powi(1 - bias));
    e.op(ScalarOp::Select, &[units, normal, small])
}

/// The bits of an `f32` rounded to a float of blocks.
fn rounded<E: Emit>(e: &mut E, x: E::Value, dtype: DType) -> E::Value {
    if let Some(form) = finite(dtype) {
        // A NaN loses against the bounds.
        let x = with_number(e, ScalarOp::MinF32, x, form.most);
        let x = with_number(e, ScalarOp::MaxF32, x, -form.most);
        let size = with(e, ScalarOp::AndB32, x, 0x7fff_ffff);
        let size = nearest(e, size, form.mantissa, form.bias);
        let sign = shift_right(e, x, 32 - form.bits);
        return and_or(e, sign, 1 << (form.bits - 1), size);
    }
    match dtype {
        DType::UE8M0 => {
            let known = e.op(ScalarOp::EqF32, &[x, x]);
            let power = with_number(e, ScalarOp::MaxF32, x, 2f32.powi(-127));
            // Twice the number is normal, or an infinity, which stands for 2^128.
            let twice = e.op(ScalarOp::AddF32, &[power, power]);
            let half_up = with(e, ScalarOp::AddI32, twice, 0x0040_0000);
            let exponent = shift_right(e, half_up, 23);
            let exponent = with(e, ScalarOp::SubI32, exponent, 1);
            let nan = e.literal(0xff);
            e.op(ScalarOp::Select, &[exponent, nan, known])
        }
        _ => {
            let known = e.op(ScalarOp::EqF32, &[x, x]);
            let size = with_number(e, ScalarOp::MaxF32, x, 0.0);
            let size = with_number(e, ScalarOp::MinF32, size, 448.0);
            let size = nearest(e, size, 3, 7);
            let nan = e.literal(0x7f);
            e.op(ScalarOp::Select, &[size, nan, known])
        }
    }
}

/// `f32` results rounded to a type and packed into one register, the first lowest.
pub(super) fn pack<E: Emit>(e: &mut E, dtype: DType, results: &[E::Value]) -> E::Value {
    if dtype == DType::E2M1 && e.has(ScalarOp::E2M1x2FromF32.needs()) {
        let zero = e.literal(0);
        let bytes = results.chunks(2).map(|pair| {
            let pair = [pair.get(1).copied().unwrap_or(zero), pair[0]];
            let byte = e.op(ScalarOp::E2M1x2FromF32, &pair);
            e.op(ScalarOp::ExtendB16, &[byte])
        });
        let bytes: Vec<E::Value> = bytes.collect();
        return join(e, &bytes, 2 * dtype.bits());
    }
    let whole = match dtype {
        DType::E3M2 => Some(ScalarOp::E3M2x2FromF32),
        DType::E2M3 => Some(ScalarOp::E2M3x2FromF32),
        _ => None,
    };
    if let Some(op) = whole.filter(|op| e.has(op.needs())) {
        return pairs_of_bytes(e, op, results);
    }
    let parts: Vec<E::Value> = results.iter().map(|x| rounded(e, *x, dtype)).collect();
    join(e, &parts, dtype.bits())
}

#[cfg(test)]
mod tests {
    use tilewright_machine::{Arch, DType};

    use crate::cast::{plan, plan_in_order};

    const BLOCKS: [DType; 5] = [DType::E3M2, DType::E2M3, DType::E2M1, DType::UE8M0, DType::UE4M3];

    /// Numbers of every exponent, with mantissas beside every tie of three bits, and what is no number.
    fn numbers() -> Vec<u32> {
        let mantissas = (0..32u32)
            .flat_map(|i| [0, 1, 0x3_ffff].map(|low| (i << 18 | low) & 0x7f_ffff))
            .collect::<Vec<_>>();
        let sizes = (0..256u32).flat_map(|exponent| mantissas.iter().map(move |m| exponent << 23 | m));
        sizes.flat_map(|size| [size, size | 1 << 31]).collect()
    }

    #[test]
    fn numbers_of_every_size_are_rounded_to_the_bit() {
        let numbers = numbers();
        let cases = BLOCKS.into_iter().flat_map(|dtype| [(dtype, Arch::SM_80), (dtype, Arch::SM_100A)]);
        for (dtype, arch) in cases {
            let plan = plan(DType::F32, dtype, arch, 1).unwrap();
            for bits in &numbers {
                let expected = dtype.encode(f64::from(f32::from_bits(*bits))) as u32;
                assert_eq!(plan.evaluate(&[*bits]), [expected], "{bits:#x} to {dtype}");
            }
        }
    }

    #[test]
    fn every_code_in_a_byte_becomes_its_number() {
        let cases = [DType::E3M2, DType::E2M3].map(|from| (from, &[DType::F16, DType::BF16, DType::F32][..]));
        let scales = (DType::UE8M0, &[DType::BF16, DType::F32][..]);
        for (from, to) in
            cases.into_iter().chain([scales]).flat_map(|(from, to)| to.iter().map(move |to| (from, *to)))
        {
            for arch in [Arch::SM_80, Arch::SM_120A] {
                let plan = plan(from, to, arch, 4).unwrap();
                // Neighbours of every code; of six bits with what nobody reads in the upper ones.
                for code in 0..256u32 {
                    let bytes = [code, code ^ 0x95, code ^ 0x6a, code ^ 0xc0];
                    let word = bytes.iter().rev().fold(0, |word, byte| word << 8 | byte);
                    let results = plan.evaluate(&[word]);
                    for (i, byte) in bytes.iter().enumerate() {
                        let bit = i as u32 * to.bits();
                        let found = to.decode(results[(bit / 32) as usize] >> (bit % 32));
                        let expected = from.decode(*byte);
                        let same =
                            found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                        assert!(same, "{from} {byte:#x} to {to} on {arch}");
                    }
                }
            }
        }
    }

    #[test]
    fn six_bits_and_scales_have_instructions_on_blackwell() {
        let calls = |from, to, arch| plan(from, to, arch, 4).unwrap().calls();
        for six in [DType::E3M2, DType::E2M3] {
            let halves = [DType::F16, DType::BF16].map(|to| calls(six, to, Arch::SM_80));
            assert_eq!((halves, calls(six, DType::F16, Arch::SM_120A)), ([11, 11], 6));
            assert!(calls(DType::F32, six, Arch::SM_80) > 40 && calls(DType::F32, six, Arch::SM_120A) == 5);
        }
        assert_eq!(calls(DType::UE8M0, DType::BF16, Arch::SM_120A), 5);
        assert_eq!([Arch::SM_80, Arch::SM_120A].map(|arch| calls(DType::UE8M0, DType::F32, arch)), [24, 9]);
    }

    #[test]
    fn pairs_half_a_word_apart_need_no_permutation() {
        let order = [0, 4, 1, 5, 2, 6, 3, 7];
        for to in [DType::F16, DType::BF16] {
            let plan = plan_in_order(DType::E2M1, to, Arch::SM_80, &order).unwrap();
            assert_eq!(
                (plan.calls(), plan.name().contains("prmt")),
                (19, false),
                "{:?}",
                plan.instructions()
            );
            for word in [0x7654_3210, 0xfedc_ba98] {
                for (pair, result) in plan.evaluate(&[word]).into_iter().enumerate() {
                    for half in 0..2 {
                        let expected = DType::E2M1.decode(word >> (4 * (pair + 4 * half)));
                        let found = to.decode(result >> (16 * half) & 0xffff);
                        assert_eq!(found.to_bits(), expected.to_bits(), "{word:#x} {pair} {half}");
                    }
                }
            }
        }
    }

    #[test]
    fn instructions_of_blackwell_convert_pairs() {
        let wide = plan(DType::E2M1, DType::F16, Arch::SM_120A, 8).unwrap();
        assert_eq!((wide.calls(), wide.name().as_str()), (11, "cvt.u16.u32 + cvt.rn.f16x2.e2m1x2 + shr.u32"));
        let narrow = plan(DType::F32, DType::E2M1, Arch::SM_120A, 8).unwrap();
        assert_eq!(
            (narrow.calls(), narrow.name().as_str()),
            (11, "cvt.rn.satfinite.e2m1x2.f32 + cvt.u32.u16 + bfi")
        );
        let numbers = [0.0, -0.5, 1.0, -1.5, 2.0, -3.0, 4.0, 100.0].map(|x: f32| x.to_bits());
        assert_eq!(narrow.evaluate(&numbers), [0x76d4_b290]);
        for (pair, result) in wide.evaluate(&[0x76d4_b290]).into_iter().enumerate() {
            for half in 0..2 {
                let x = f64::from(f32::from_bits(numbers[2 * pair + half])).min(6.0);
                assert_eq!(DType::F16.decode(result >> (16 * half) & 0xffff), x);
            }
        }
    }

    #[test]
    fn pairs_of_e2m1_take_at_most_22_operations_of_eight() {
        let calls = |to| plan(DType::E2M1, to, Arch::SM_80, 8).unwrap().calls();
        assert_eq!([calls(DType::F16), calls(DType::BF16)], [21, 21]);
        let pair = plan(DType::UE4M3, DType::F16, Arch::SM_80, 2).unwrap();
        assert_eq!(
            (pair.calls(), pair.name().as_str()),
            (7, "prmt + shr.u32 + and + mul.rn.f16x2 + add.s32 + lop3")
        );
    }
}
