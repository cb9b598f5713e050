//! Casts as instruction rows, register by register and never an exchange between threads: what makes the registers of a
//! fragment of one element type of those of another, both with their values packed in order from the low bits up.
//!
//! The rules are written once, for whoever takes instructions ([`Emit`]): lowering emits them into a program, and
//! [`plan()`] records them, so that reports and costs name the rows that the program has.
//!
//! Integers of up to 8 bits become floats by their bits (the design notes' table of bit tricks, and Marlin's): the bits of
//! an element are put under the leading one of a power of two, `(x & mask) ^ magic`, where a signed element's sign bit is
//! flipped, so that it counts from the least value. Then one fused multiply-add takes the power, the offset and the position
//! within the byte away. No rounding occurs on the way: all numbers have as many bits as the float has places.

mod blocks;
mod bytes;
mod plans;
mod wide;

pub use bytes::{from_bytes, to_bytes};
pub use plans::{Arg, Plan, Step, Unsupported, plan, plan_in_order, supported};
pub use tilewright_machine::Emit;
use tilewright_machine::{DType, ScalarOp};

/// The truth tables of `lop3` that occur here.
const AND_XOR: u32 = 0x6a;
const OR_AND: u32 = 0xa8;
const AND_OR: u32 = 0xea;

/// Registers of a fragment of `values` elements.
pub fn registers(values: u32, bits: u32) -> u32 {
    (values * bits).div_ceil(32)
}

fn shift_right<E: Emit>(e: &mut E, word: E::Value, amount: u32) -> E::Value {
    if amount == 0 {
        return word;
    }
    let amount = e.literal(amount);
    e.op(ScalarOp::ShrU32, &[word, amount])
}

/// The word whose bytes, lowest first, are these of `low` (0 to 3) and `high` (4 to 7).
fn permute<E: Emit>(e: &mut E, low: E::Value, high: E::Value, bytes: [u32; 4]) -> E::Value {
    let selector = bytes.iter().rev().fold(0, |all, byte| all << 4 | byte);
    let selector = e.literal(selector);
    e.op(ScalarOp::PrmtB32, &[low, high, selector])
}

/// `(word & mask) ^ magic`
fn and_xor<E: Emit>(e: &mut E, word: E::Value, mask: u32, magic: u32) -> E::Value {
    let [mask, magic, table] = [mask, magic, AND_XOR].map(|x| e.literal(x));
    e.op(ScalarOp::Lop3B32, &[word, mask, magic, table])
}

/// `bits` ones from bit `position` on.
fn ones(bits: u32, position: u32) -> u32 {
    (u32::MAX >> (32 - bits)) << position
}

/// The amount by which a signed type's elements are raised when their sign bits are flipped; 0 of an unsigned type.
fn raised(dtype: DType) -> u32 {
    dtype.range().map_or(0, |(low, _)| low.unsigned_abs() as u32)
}

/// True for types whose elements are integers, or truth values that count as 1 and 0.
fn counts(dtype: DType) -> bool {
    dtype.range().is_some() || dtype == DType::Bool
}

/// 1, or a number's bits that mean 1, where a condition holds, else 0.
fn one_where<E: Emit>(e: &mut E, condition: E::Value, one: u32) -> E::Value {
    let [one, zero] = [one, 0].map(|x| e.literal(x));
    e.op(ScalarOp::Select, &[one, zero, condition])
}

/// The truth of a byte of a word.
pub fn read_truth<E: Emit>(e: &mut E, word: E::Value, shift: u32) -> E::Value {
    let [mask, zero] = [0xff << shift, 0].map(|x| e.literal(x));
    let byte = e.op(ScalarOp::AndB32, &[word, mask]);
    e.op(ScalarOp::NeI32, &[byte, zero])
}

/// Truth values, packed into one register of bytes, the first lowest.
pub fn pack_truths<E: Emit>(e: &mut E, truths: &[E::Value]) -> E::Value {
    let parts: Vec<E::Value> = truths.iter().map(|truth| one_where(e, *truth, 1)).collect();
    join(e, &parts, DType::Bool.bits())
}

/// An integer element of a word as a 32-bit integer.
pub fn read_i32<E: Emit>(e: &mut E, word: E::Value, shift: u32, dtype: DType) -> E::Value {
    if dtype.bits() == 32 {
        return word;
    }
    if dtype == DType::Bool {
        let truth = read_truth(e, word, shift);
        return one_where(e, truth, 1);
    }
    let [position, length] = [shift, dtype.bits()].map(|x| e.literal(x));
    let op = if raised(dtype) > 0 { ScalarOp::BfeS32 } else { ScalarOp::BfeU32 };
    e.op(op, &[word, position, length])
}

/// A 32-bit integer, of the range of `from`, brought into the range of an integer type.
fn saturate<E: Emit>(e: &mut E, value: E::Value, from: DType, to: DType) -> E::Value {
    let literal = |e: &mut E, x: i128| e.literal(x as u32);
    if to == DType::Bool {
        let zero = e.literal(0);
        let truth = e.op(ScalarOp::NeI32, &[value, zero]);
        return one_where(e, truth, 1);
    }
    let source = if from == DType::Bool { Some((0, 1)) } else { from.range() };
    let (Some((low, high)), Some((least, most))) = (to.range(), source) else { return value };
    let mut value = value;
    if least < low {
        let low = literal(e, low);
        value = e.op(ScalarOp::MaxI32, &[value, low]);
    }
    if most > high {
        let high = literal(e, high);
        let smaller = if from == DType::U32 { ScalarOp::MinU32 } else { ScalarOp::MinI32 };
        value = e.op(smaller, &[value, high]);
    }
    value
}

/// An element of a word, which begins at bit `shift`, as an `f32`.
pub fn read_f32<E: Emit>(e: &mut E, word: E::Value, shift: u32, dtype: DType) -> E::Value {
    match dtype {
        DType::F32 => word,
        DType::I32 => e.op(ScalarOp::F32FromI32, &[word]),
        DType::U32 => e.op(ScalarOp::F32FromU32, &[word]),
        DType::Bool => {
            let truth = read_truth(e, word, shift);
            one_where(e, truth, 1f32.to_bits())
        }
        DType::F16 => {
            let low = shift_right(e, word, shift);
            let half = e.op(ScalarOp::LowB16, &[low]);
            e.op(ScalarOp::F32FromF16, &[half])
        }
        DType::BF16 if shift == 0 => {
            let half = e.literal(16);
            e.op(ScalarOp::ShlB32, &[word, half])
        }
        DType::BF16 => {
            let upper = e.literal(0xffff_0000);
            e.op(ScalarOp::AndB32, &[word, upper])
        }
        DType::E4M3 | DType::E5M2 => {
            let first = shift / 16 * 2;
            let pair = halves_of_bytes(e, dtype, (word, first), (word, first + 1));
            read_f32(e, pair, shift % 16 * 2, DType::F16)
        }
        DType::I16 | DType::U16 => {
            let wide = read_i32(e, word, shift, dtype);
            e.op(ScalarOp::F32FromI32, &[wide])
        }
        _ if blocks::of_blocks(dtype) => blocks::read(e, word, shift, dtype),
        _ => small_to_f32(e, word, shift, dtype),
    }
}

/// An integer of at most 8 bits as an `f32`, under the leading one of 2²³.
fn small_to_f32<E: Emit>(e: &mut E, word: E::Value, shift: u32, dtype: DType) -> E::Value {
    let (bits, raised) = (dtype.bits(), raised(dtype));
    let number = |e: &mut E, x: f64| e.literal((x as f32).to_bits());
    if bits == 8 {
        let word = raise_bytes(e, word, raised);
        let magic = e.literal(0x4b00_0000);
        let under = permute(e, word, magic, [shift / 8, 4, 4, 7]);
        let least = number(e, -f64::from((1 << 23) + raised));
        return e.op(ScalarOp::AddF32, &[under, least]);
    }
    let (word, shift) =
        if shift + bits > 23 { (shift_right(e, word, 16), shift - 16) } else { (word, shift) };
    let under = and_xor(e, word, ones(bits, shift), 0x4b00_0000 ^ raised << shift);
    let least = number(e, -f64::from((1 << (23 - shift)) + raised));
    if shift == 0 {
        return e.op(ScalarOp::AddF32, &[under, least]);
    }
    let scale = number(e, 2f64.powi(-(shift as i32)));
    e.op(ScalarOp::FmaF32, &[under, scale, least])
}

/// Flips the sign bits of four signed bytes.
fn raise_bytes<E: Emit>(e: &mut E, word: E::Value, raised: u32) -> E::Value {
    if raised == 0 {
        return word;
    }
    let signs = e.literal(0x8080_8080);
    e.op(ScalarOp::XorB32, &[word, signs])
}

/// Two bytes, each a byte of a word, as packed `f16`.
fn halves_of_bytes<E: Emit>(
    e: &mut E,
    dtype: DType,
    (a, low): (E::Value, u32),
    (b, high): (E::Value, u32),
) -> E::Value {
    if dtype == DType::E5M2 {
        // An `e5m2` is the upper byte of the `f16`.
        if a == b {
            let zero = e.literal(0);
            return permute(e, a, zero, [4, low, 4, high]);
        }
        let both = permute(e, a, b, [low, low, high + 4, high + 4]);
        let mask = e.literal(0xff00_ff00);
        return e.op(ScalarOp::AndB32, &[both, mask]);
    }
    let pair = if a == b && low % 2 == 0 && high == low + 1 {
        shift_right(e, a, 8 * low)
    } else {
        permute(e, a, b, [low, high + 4, low, low])
    };
    let pair = e.op(ScalarOp::LowB16, &[pair]);
    e.op(ScalarOp::F16x2FromE4M3x2, &[pair])
}

/// `f32` results rounded to a type and packed into one register, the first lowest.
pub fn pack_f32<E: Emit>(e: &mut E, dtype: DType, results: &[E::Value]) -> E::Value {
    match (dtype, results) {
        (_, []) => e.literal(0),
        (DType::F16, [low, high]) => e.op(ScalarOp::F16x2FromF32, &[*high, *low]),
        (DType::BF16, [low, high]) => e.op(ScalarOp::BF16x2FromF32, &[*high, *low]),
        (DType::F16 | DType::BF16, [one, ..]) => {
            let op = if dtype == DType::F16 { ScalarOp::F16FromF32 } else { ScalarOp::BF16FromF32 };
            let half = e.op(op, &[*one]);
            e.op(ScalarOp::ExtendB16, &[half])
        }
        (DType::E4M3, _) => pairs_of_bytes(e, ScalarOp::E4M3x2FromF32, results),
        (DType::E5M2, _) => pairs_of_bytes(e, ScalarOp::E5M2x2FromF32, results),
        (DType::F32, [one, ..]) => *one,
        (DType::I32, [one, ..]) => e.op(ScalarOp::I32FromF32, &[*one]),
        (DType::U32, [one, ..]) => e.op(ScalarOp::U32FromF32, &[*one]),
        (DType::Bool, _) => {
            let zero = e.literal(0);
            let truths: Vec<E::Value> = results.iter().map(|r| e.op(ScalarOp::NeF32, &[*r, zero])).collect();
            pack_truths(e, &truths)
        }
        _ if blocks::of_blocks(dtype) => blocks::pack(e, dtype, results),
        (_, _) => {
            let parts: Vec<E::Value> = results
                .iter()
                .map(|r| {
                    let wide = e.op(ScalarOp::I32FromF32, &[*r]);
                    saturate(e, wide, DType::I32, dtype)
                })
                .collect();
            join(e, &parts, dtype.bits())
        }
    }
}

/// `f32` results rounded to bytes, two by one operation, and packed into one register.
fn pairs_of_bytes<E: Emit>(e: &mut E, op: ScalarOp, results: &[E::Value]) -> E::Value {
    let zero = e.literal(0);
    let pairs: Vec<E::Value> = results
        .chunks(2)
        .map(|pair| {
            let pair = e.op(op, &[pair.get(1).copied().unwrap_or(zero), pair[0]]);
            e.op(ScalarOp::ExtendB16, &[pair])
        })
        .collect();
    two_halves(e, &pairs)
}

/// [`pack_f32`] for results that are numbers of the type already.
pub fn pack_exact_f32<E: Emit>(e: &mut E, dtype: DType, results: &[E::Value]) -> E::Value {
    if dtype != DType::E5M2 {
        return pack_f32(e, dtype, results);
    }
    // The upper bytes of the `f16`: infinities stay, and every architecture has it.
    let zero = e.literal(0);
    let pairs: Vec<E::Value> = results
        .chunks(2)
        .map(|pair| {
            let pair = e.op(ScalarOp::F16x2FromF32, &[pair.get(1).copied().unwrap_or(zero), pair[0]]);
            permute(e, pair, pair, [1, 3, 1, 3])
        })
        .collect();
    two_halves(e, &pairs)
}

/// The low halves of one or two words, in one.
fn two_halves<E: Emit>(e: &mut E, pairs: &[E::Value]) -> E::Value {
    match pairs {
        [] => e.literal(0),
        [one] => *one,
        [low, high, ..] => permute(e, *low, *high, [0, 1, 4, 5]),
    }
}

/// Joins the low `bits` of each part into one register, the first lowest.
pub fn join<E: Emit>(e: &mut E, parts: &[E::Value], bits: u32) -> E::Value {
    let mut word = parts.first().copied().unwrap_or_else(|| e.literal(0));
    for (i, part) in parts.iter().enumerate().skip(1) {
        let [position, length] = [i as u32 * bits, bits].map(|x| e.literal(x));
        word = e.op(ScalarOp::BfiB32, &[*part, word, position, length]);
    }
    word
}

/// An integer of at most 4 bits within the word that holds it: the word, and the bit at which it begins.
type Within<V> = (V, u32);

/// Two integers of at most 8 bits as packed `f16` or `bf16`.
fn pair_of_small<E: Emit>(e: &mut E, from: DType, to: DType, pair: [Within<E::Value>; 2]) -> E::Value {
    let (bits, raised) = (from.bits(), raised(from));
    // The power of two that has places for the element below its leading one, and how many.
    let (power, places) = if to == DType::F16 { (10, 10) } else { (7, 7) };
    let encode = |x: f64| to.encode(x) as u32;
    let leading = encode(2f64.powi(power));
    let least = |position: u32| -(2f64.powi(power - position as i32) + f64::from(raised));
    if bits == 8 && pair[0].0 == pair[1].0 {
        let word = raise_bytes(e, pair[0].0, raised);
        let magic = e.literal(leading >> 8 | leading >> 8 << 8);
        let under = permute(e, word, magic, [pair[0].1 / 8, 4, pair[1].1 / 8, 4]);
        let offset = e.literal(encode(least(0)) * 0x0001_0001);
        return e.op(ScalarOp::AddF16x2, &[under, offset]);
    }
    // Where an element would reach above the places it moves down first, all of its word with it.
    let placed = pair.map(|(word, shift)| {
        let position = shift % 8;
        let down = (position + bits).saturating_sub(places);
        (shift_right(e, word, down), shift / 8, position - down)
    });
    let [(a, low, p), (b, high, q)] = placed;
    let bytes =
        if a == b && low == 0 && high == 2 { a } else { permute(e, a, b, [low, low, high + 4, high + 4]) };
    let both = |low: u32, high: u32| low | high << 16;
    let magic = both(leading, leading) ^ both(raised << p, raised << q);
    let under = and_xor(e, bytes, both(ones(bits, p), ones(bits, q)), magic);
    let number = |x: f64, y: f64| both(encode(x), encode(y));
    let offset = e.literal(number(least(p), least(q)));
    if p == 0 && q == 0 && to == DType::F16 {
        return e.op(ScalarOp::AddF16x2, &[under, offset]);
    }
    let scale = e.literal(number(2f64.powi(-(p as i32)), 2f64.powi(-(q as i32))));
    let op = if to == DType::F16 { ScalarOp::FmaF16x2 } else { ScalarOp::FmaBF16x2 };
    e.op(op, &[under, scale, offset])
}

/// The registers of a fragment of `to`, of which value `i` is value `order[i]` of the fragment of `from` in `words`.
pub fn emit<E: Emit>(e: &mut E, from: DType, to: DType, words: &[E::Value], order: &[u32]) -> Vec<E::Value> {
    let place = |value: u32| -> Within<E::Value> {
        let bit = value * from.bits();
        (words[(bit / 32) as usize], bit % 32)
    };
    let in_order = order.iter().enumerate().all(|(i, value)| *value == i as u32);
    if from == to && in_order {
        return words.to_vec();
    }
    if from.bits() == 64 || to.bits() == 64 {
        return wide::emit(e, from, to, words, order);
    }
    let small = from.range().is_some() && from.bits() <= 8;
    let fits = raised(from) == 0 || raised(to) > 0;
    if small && to.range().is_some() && to.bits() == 8 && fits && from.bits() < 8 && in_order {
        return bytes::widened_to_bytes(e, from, words, order.len() as u32);
    }
    if from.bits() == 4 && matches!(to, DType::E4M3 | DType::E5M2) && in_order {
        return bytes::looked_up(e, from, to, words, order.len() as u32);
    }
    let floats = |e: &mut E, values: &[u32]| -> Vec<E::Value> {
        let read = |value: &u32| {
            let (word, shift) = place(*value);
            read_f32(e, word, shift, from)
        };
        values.iter().map(read).collect()
    };
    order
        .chunks(tilewright_machine::per_register(to.bits()) as usize)
        .map(|values| match (from, to) {
            (DType::E4M3 | DType::E5M2, DType::F16) => {
                let byte = |k: usize| place(values[k.min(values.len() - 1)]);
                let [(a, low), (b, high)] = [byte(0), byte(1)];
                halves_of_bytes(e, from, (a, low / 8), (b, high / 8))
            }
            (DType::E3M2 | DType::E2M3 | DType::E2M1, DType::F16 | DType::BF16)
            | (DType::UE4M3, DType::F16) => {
                blocks::pair(e, from, to, [0, 1].map(|k| place(values[k.min(values.len() - 1)])))
            }
            (DType::UE8M0, DType::BF16) if e.has(ScalarOp::BF16x2FromUE8M0x2.needs()) => {
                blocks::pair(e, from, to, [0, 1].map(|k| place(values[k.min(values.len() - 1)])))
            }
            (_, DType::F16) if small => {
                pair_of_small(e, from, to, [0, 1].map(|k| place(values[k.min(values.len() - 1)])))
            }
            (_, DType::BF16) if small && from.bits() < 8 => {
                pair_of_small(e, from, to, [0, 1].map(|k| place(values[k.min(values.len() - 1)])))
            }
            (_, DType::BF16) if small => {
                let wide = floats(e, values);
                // Numbers of 8 bits have nothing in the lower half.
                permute(e, wide[0], wide[wide.len() - 1], [2, 3, 6, 7])
            }
            (DType::F16, DType::E4M3 | DType::E5M2) if in_order => {
                let narrow =
                    if to == DType::E4M3 { ScalarOp::E4M3x2FromF16x2 } else { ScalarOp::E5M2x2FromF16x2 };
                let pairs: Vec<E::Value> = values
                    .chunks(2)
                    .map(|pair| {
                        let pair = e.op(narrow, &[place(pair[0]).0]);
                        e.op(ScalarOp::ExtendB16, &[pair])
                    })
                    .collect();
                two_halves(e, &pairs)
            }
            _ if from == to || counts(from) && counts(to) => {
                let bits = |e: &mut E, value: u32| {
                    let (word, shift) = place(value);
                    if from != to {
                        let wide = read_i32(e, word, shift, from);
                        return saturate(e, wide, from, to);
                    }
                    shift_right(e, word, shift)
                };
                let parts: Vec<E::Value> = values.iter().map(|value| bits(e, *value)).collect();
                join(e, &parts, to.bits())
            }
            _ => {
                let wide = floats(e, values);
                pack_f32(e, to, &wide)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::plans::Record;
    use super::*;
    use tilewright_machine::Arch;

    const NARROW: [DType; 8] =
        [DType::I1, DType::I2, DType::I4, DType::I8, DType::U1, DType::U2, DType::U4, DType::U8];

    fn packed(dtype: DType, elements: &[u32]) -> Vec<u32> {
        let per_word = tilewright_machine::per_register(dtype.bits()) as usize;
        let word = |part: &[u32]| {
            part.iter().enumerate().fold(0, |all, (i, bits)| all | bits << (i as u32 * dtype.bits()))
        };
        elements.chunks(per_word).map(word).collect()
    }

    fn unpacked(dtype: DType, words: &[u32], count: usize) -> Vec<u32> {
        let bits = dtype.bits() as usize;
        (0..count).map(|i| words[i * bits / 32] >> (i * bits % 32) & (u32::MAX >> (32 - bits))).collect()
    }

    /// A value as the language has it: to floats and from floats through `f32`.
    fn converted(from: DType, to: DType, bits: u32) -> f64 {
        to.decode(to.encode(from.decode(bits)))
    }

    fn check(from: DType, to: DType, elements: &[u32]) {
        let plan = plan(from, to, Arch::SM_90A, elements.len() as u32).unwrap();
        let results = unpacked(to, &plan.evaluate(&packed(from, elements)), elements.len());
        for (bits, result) in elements.iter().zip(results) {
            let (expected, found) = (converted(from, to, *bits), to.decode(result));
            let same = expected == found && expected.is_sign_negative() == found.is_sign_negative();
            assert!(same || expected.is_nan() && found.is_nan(), "{from} {bits:#x} to {to}: {found}");
        }
    }

    /// By day a quarter of the patterns of 16 bits, another one for each pair of types.
    #[test]
    fn every_bit_pattern_of_every_type_becomes_every_type() {
        let at_most_32 = |t: &DType| t.bits() <= 32;
        let nightly = std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some();
        let mut pairs = 0;
        for from in DType::ALL.into_iter().filter(at_most_32) {
            for to in DType::ALL.into_iter().filter(at_most_32) {
                let width = from.bits().min(16);
                let mut elements: Vec<u32> = (0..1u32 << width).collect();
                match from {
                    DType::F32 => elements.iter_mut().for_each(|x| *x = *x << 16 | *x & 0x8001),
                    DType::I32 | DType::U32 => {
                        elements.iter_mut().for_each(|x| *x = x.wrapping_mul(65537) >> (*x % 32))
                    }
                    _ => {}
                }
                if from == to && to == DType::E5M2 {
                    continue; // moved bit for bit: infinities stay
                }
                if matches!(from, DType::I32 | DType::U32) && to.is_float() {
                    elements.retain(|x| from.decode(*x).abs() < 2f64.powi(24));
                }
                pairs += 1;
                let in_turn = |i: usize| nightly || width < 16 || (i + pairs).is_multiple_of(4);
                for (_, part) in elements.chunks(64).enumerate().filter(|(i, _)| in_turn(*i)) {
                    check(from, to, part);
                }
                // Each position of a register, and registers that are filled in part.
                for count in 1..=9 {
                    for rotation in 0..3u32 {
                        let part: Vec<u32> = (0..count)
                            .map(|i| elements[((i * 7 + rotation * 5 + 1) % elements.len() as u32) as usize])
                            .collect();
                        check(from, to, &part);
                    }
                }
            }
        }
    }

    #[test]
    fn a_cast_to_its_own_type_is_nothing() {
        for dtype in DType::ALL {
            let plan = plan(dtype, dtype, Arch::SM_80, 16).unwrap();
            assert_eq!((plan.calls(), plan.name().as_str()), (0, "nothing"));
        }
    }

    #[test]
    fn small_integers_take_at_most_three_instructions_a_pair() {
        for from in NARROW.into_iter().filter(|t| t.bits() < 8) {
            let plan = plan(from, DType::F16, Arch::SM_80, 8).unwrap();
            assert!(plan.calls() <= 12, "{from}: {:?}", plan.instructions());
        }
        let eight = plan(DType::U4, DType::F16, Arch::SM_80, 8).unwrap();
        assert_eq!(eight.name(), "prmt + lop3 + fma.rn.f16x2");
        assert_eq!(eight.instructions().iter().map(|i| i.1).collect::<Vec<_>>(), [4, 4, 4]);
        let eight = plan(DType::I4, DType::BF16, Arch::SM_80, 8).unwrap();
        assert_eq!((eight.calls(), eight.instructions()[0]), (13, (ScalarOp::ShrU32, 1)));
        // Bytes need no mask; the signs of four are flipped at once.
        assert_eq!(plan(DType::U8, DType::F16, Arch::SM_80, 4).unwrap().calls(), 4);
        assert_eq!(plan(DType::I8, DType::F16, Arch::SM_80, 4).unwrap().calls(), 5);
        assert_eq!(plan(DType::E5M2, DType::F16, Arch::SM_80, 4).unwrap().name(), "prmt");
        // Bytes of eight elements of 4 bits, signed or not.
        let calls = |from, to| plan(from, to, Arch::SM_80, 8).unwrap().calls();
        assert_eq!([calls(DType::I4, DType::I8), calls(DType::U4, DType::U8)], [9, 5]);
        // Bytes of a table, for elements of 4 bits of any kind.
        for from in [DType::I4, DType::U4, DType::E2M1] {
            let plan = plan(from, DType::E4M3, Arch::SM_90A, 8).unwrap();
            assert_eq!((plan.calls(), plan.name().as_str()), (11, "and + shr.u32 + lop3 + prmt"), "{from}");
        }
    }

    /// An instruction that makes a pair of f16 of two elements of a word, whatever the others are: of each row, with the word at each of its operands, and every choice of
    /// the literals that casts have at the others: masks, shifts, leading ones, scales, offsets, tables, selectors, truth tables.
    fn one_instruction_for(from: DType, pair: [u32; 2]) -> Option<ScalarOp> {
        let bits = from.bits();
        let words: Vec<u32> = (0..48u32).map(|i| 0x9e37_79b9u32.wrapping_mul(i + 1) ^ i << 13).collect();
        let wanted: Vec<u64> = words
            .iter()
            .map(|word| {
                let half = |at: u32| DType::F16.encode(from.decode(word >> (at * bits) & ones(bits, 0)));
                half(pair[0]) | half(pair[1]) << 16
            })
            .collect();
        let fields = (0..16 / bits).flat_map(|at| {
            let mask = ones(bits, at * bits);
            [mask, mask << 16, mask | mask << 16]
        });
        let both = [0x3c00, 0x6400, 0xe400, 0xc000, 0xbc00, 0x4000].map(|half: u32| half | half << 16);
        let rest = [
            0,
            1,
            2,
            4,
            8,
            16,
            24,
            0xbc00_3c00,
            0x003c_bcc0,
            0x5140,
            0x7351,
            0x4140,
            AND_XOR,
            AND_OR,
            OR_AND,
            u32::MAX,
        ];
        let literals: Vec<u64> = fields.chain(both).chain(rest).map(u64::from).collect();
        let makes = |op: ScalarOp, operands: usize, place: usize| {
            let others = operands - 1;
            (0..literals.len().pow(others as u32)).any(|choice| {
                let literal = |i: usize| literals[choice / literals.len().pow(i as u32) % literals.len()];
                words.iter().zip(&wanted).all(|(word, wanted)| {
                    let mut args: Vec<u64> = (0..others).map(literal).collect();
                    args.insert(place, u64::from(*word));
                    (op.row().eval)(&args) == *wanted
                })
            })
        };
        ScalarOp::ALL.iter().copied().find(|op| {
            let operands = op.row().operands.len();
            (1..=4).contains(&operands) && (0..operands).any(|place| makes(*op, operands, place))
        })
    }

    /// Every pair has an instruction of its own that ends it and, as none makes it of the word alone, one before: what is found is two for each pair and a shift of the word,
    /// which the pairs of its upper bits share.
    #[test]
    fn no_shorter_cast_of_one_or_two_bits_is_found() {
        for (from, values) in [(DType::I2, 16u32), (DType::U2, 16), (DType::U1, 32)] {
            let half = values / 2;
            let order: Vec<u32> = (0..half).flat_map(|i| [i, i + half]).collect();
            let plan = plan_in_order(from, DType::F16, Arch::SM_80, &order).unwrap();
            assert_eq!(plan.calls(), values + 1, "{from}: {:?}", plan.instructions());
            for pair in [[0, half], [half - 1, values - 1]] {
                assert_eq!(one_instruction_for(from, pair), None, "{from}");
            }
        }
    }

    #[test]
    fn interleaved_pairs_take_two_instructions_and_share_a_shift() {
        let order = [0, 4, 1, 5, 2, 6, 3, 7];
        for from in [DType::I4, DType::U4] {
            let plan = plan_in_order(from, DType::F16, Arch::SM_80, &order).unwrap();
            assert_eq!(plan.calls(), 9, "{:?}", plan.instructions());
            let elements: Vec<u32> = vec![15, 0, 7, 8, 9, 3, 1, 12];
            let results = unpacked(DType::F16, &plan.evaluate(&packed(from, &elements)), 8);
            for (i, result) in results.into_iter().enumerate() {
                assert_eq!(DType::F16.decode(result), from.decode(elements[order[i] as usize]));
            }
        }
    }

    #[test]
    fn any_order_is_kept() {
        let order = [5u32, 0, 31, 17, 2, 2, 12, 30, 9];
        let at_most_32 = |t: &DType| t.bits() <= 32;
        for from in DType::ALL.into_iter().filter(at_most_32) {
            for to in DType::ALL.into_iter().filter(at_most_32) {
                let elements: Vec<u32> =
                    (0..32u32).map(|i| (i * 11 + 3) & (u32::MAX >> (32 - from.bits()))).collect();
                let plan = plan_in_order(from, to, Arch::SM_90A, &order).unwrap();
                let results = unpacked(to, &plan.evaluate(&packed(from, &elements)), order.len());
                for (i, result) in results.into_iter().enumerate() {
                    let expected = converted(from, to, elements[order[i] as usize]);
                    let found = to.decode(result);
                    assert!(expected == found || expected.is_nan() && found.is_nan(), "{from} to {to}");
                }
            }
        }
    }

    #[test]
    fn elements_in_bytes_of_their_own_are_packed_again() {
        for bits in [1u32, 2, 4] {
            for values in [1u32, 3, 4, 7, 8, 9, 16, 33, 64] {
                let mut record = Record { arch: Arch::SM_80, steps: Vec::new(), made: HashMap::new() };
                let words: Vec<Arg> = (0..registers(values, bits)).map(Arg::Source).collect();
                let bytes = to_bytes(&mut record, &words, bits, values);
                let results = from_bytes(&mut record, &bytes, bits, values);
                let plan = Plan { steps: record.steps, results };
                let source: Vec<u32> =
                    (0..words.len() as u32).map(|i| 0x9e37_79b9u32.wrapping_mul(i + 1)).collect();
                let found = plan.evaluate(&source);
                for v in 0..values {
                    let element =
                        |words: &[u32]| words[(v * bits / 32) as usize] >> (v * bits % 32) & ones(bits, 0);
                    assert_eq!(element(&found), element(&source), "{bits} bits, {values} values, {v}");
                }
            }
        }
    }

    #[test]
    fn eight_bit_floats_need_the_architecture_that_has_them() {
        let error = plan(DType::F16, DType::E4M3, Arch::SM_80, 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "a conversion from f16 to e4m3 needs FP8 conversions, which sm_80 does not have"
        );
        assert!(plan(DType::E4M3, DType::F16, Arch::SM_89, 4).is_ok());
        assert!(plan(DType::E4M3, DType::E4M3, Arch::SM_80, 4).is_ok());
    }
}
