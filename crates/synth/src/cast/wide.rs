//! Casts from and to elements of 64 bits, which lie in two registers, the lower half first.

use tilewright_machine::{DType, ScalarOp, per_register};

use super::{Emit, counts, join, pack_f32, pack_truths, raised, read_f32, read_i32, saturate};

/// The registers of a fragment of `to`, of which value `i` is value `order[i]` of the fragment of `from` in `words`; one of both has 64 bits.
pub(super) fn emit<E: Emit>(
    e: &mut E,
    from: DType,
    to: DType,
    words: &[E::Value],
    order: &[u32],
) -> Vec<E::Value> {
    let halves = |value: u32| [words[2 * value as usize], words[2 * value as usize + 1]];
    if from == to {
        return order.iter().flat_map(|value| halves(*value)).collect();
    }
    let joined = |e: &mut E, value: u32| e.op(ScalarOp::JoinB64, &halves(value));
    if to.bits() == 64 {
        let results = order.iter().flat_map(|value| {
            let wide = if from.bits() == 64 {
                let x = joined(e, *value);
                between(e, x, from, to)
            } else {
                let bit = value * from.bits();
                widened(e, (words[(bit / 32) as usize], bit % 32), from, to)
            };
            [ScalarOp::LowB32, ScalarOp::HighB32].map(|half| e.op(half, &[wide]))
        });
        return results.collect();
    }
    order
        .chunks(per_register(to.bits()) as usize)
        .map(|values| {
            let wide: Vec<E::Value> = values.iter().map(|value| joined(e, *value)).collect();
            narrowed(e, &wide, from, to)
        })
        .collect()
}

/// The result where a number is one, else 0.
fn of_number<E: Emit>(e: &mut E, x: E::Value, result: E::Value, [equal, select]: [ScalarOp; 2]) -> E::Value {
    let known = e.op(equal, &[x, x]);
    let zero = e.wide_literal(0);
    e.op(select, &[result, zero, known])
}

/// An `f64` as an integer: to nearest even, saturating, a NaN 0.
fn integer<E: Emit>(e: &mut E, x: E::Value, to: DType) -> E::Value {
    let (op, select) = match to {
        DType::I64 => (ScalarOp::I64FromF64, ScalarOp::SelectB64),
        DType::U64 => (ScalarOp::U64FromF64, ScalarOp::SelectB64),
        DType::U32 => (ScalarOp::U32FromF64, ScalarOp::Select),
        _ => (ScalarOp::I32FromF64, ScalarOp::Select),
    };
    let whole = e.op(op, &[x]);
    of_number(e, x, whole, [ScalarOp::EqF64, select])
}

/// An element of 64 bits as one of another such type.
fn between<E: Emit>(e: &mut E, x: E::Value, from: DType, to: DType) -> E::Value {
    match (from, to) {
        (DType::F64, _) => integer(e, x, to),
        (DType::I64, DType::F64) => e.op(ScalarOp::F64FromI64, &[x]),
        (_, DType::F64) => e.op(ScalarOp::F64FromU64, &[x]),
        (DType::I64, _) => {
            let least = e.wide_literal(0);
            e.op(ScalarOp::MaxI64, &[x, least])
        }
        _ => {
            let most = e.wide_literal(i64::MAX.cast_unsigned());
            e.op(ScalarOp::MinU64, &[x, most])
        }
    }
}

/// An element of at most 32 bits, in a word from a bit on, as one of 64.
fn widened<E: Emit>(e: &mut E, (word, shift): (E::Value, u32), from: DType, to: DType) -> E::Value {
    if from.is_float() {
        let x = read_f32(e, word, shift, from);
        let op = match to {
            DType::F64 => return e.op(ScalarOp::F64FromF32, &[x]),
            DType::I64 => ScalarOp::I64FromF32,
            _ => ScalarOp::U64FromF32,
        };
        let whole = e.op(op, &[x]);
        return of_number(e, x, whole, [ScalarOp::EqF32, ScalarOp::SelectB64]);
    }
    let mut x = read_i32(e, word, shift, from);
    let signed = raised(from) > 0;
    match to {
        DType::F64 if from == DType::U32 => return e.op(ScalarOp::F64FromU32, &[x]),
        DType::F64 => return e.op(ScalarOp::F64FromI32, &[x]),
        DType::U64 if signed => {
            let least = e.literal(0);
            x = e.op(ScalarOp::MaxI32, &[x, least]);
        }
        _ => {}
    }
    e.op(if signed { ScalarOp::ExtendI64 } else { ScalarOp::ExtendU64 }, &[x])
}

/// Elements of 64 bits as one register of elements of at most 32.
fn narrowed<E: Emit>(e: &mut E, wide: &[E::Value], from: DType, to: DType) -> E::Value {
    if to == DType::Bool {
        let differs = if from == DType::F64 { ScalarOp::NeF64 } else { ScalarOp::NeI64 };
        let zero = e.wide_literal(0);
        let truths: Vec<E::Value> = wide.iter().map(|x| e.op(differs, &[*x, zero])).collect();
        return pack_truths(e, &truths);
    }
    if to.is_float() {
        let op = match from {
            DType::F64 => ScalarOp::F32FromF64,
            DType::I64 => ScalarOp::F32FromI64,
            _ => ScalarOp::F32FromU64,
        };
        let floats: Vec<E::Value> = wide.iter().map(|x| e.op(op, &[*x])).collect();
        return pack_f32(e, to, &floats);
    }
    let parts: Vec<E::Value> = wide
        .iter()
        .map(|x| match from {
            DType::F64 => {
                let whole = integer(e, *x, to);
                if to == DType::U32 { whole } else { saturate(e, whole, DType::I32, to) }
            }
            _ => clamped(e, *x, from, to),
        })
        .collect();
    join(e, &parts, to.bits())
}

/// An integer of 64 bits brought into the range of a narrower type.
fn clamped<E: Emit>(e: &mut E, x: E::Value, from: DType, to: DType) -> E::Value {
    debug_assert!(counts(from) && counts(to));
    let (low, high) = to.range().unwrap_or((0, 1));
    let mut x = x;
    if from == DType::I64 {
        let low = e.wide_literal(low as u64);
        x = e.op(ScalarOp::MaxI64, &[x, low]);
    }
    let high = e.wide_literal(high as u64);
    let smaller = if from == DType::I64 { ScalarOp::MinI64 } else { ScalarOp::MinU64 };
    x = e.op(smaller, &[x, high]);
    e.op(ScalarOp::LowB32, &[x])
}

#[cfg(test)]
mod tests {
    use tilewright_machine::Arch;

    use super::*;
    use crate::cast::plan;

    /// The bits of an element in a type, as the language has the cast: exactly, but to floats of at most 32 bits through `f32`.
    fn expected(from: DType, to: DType, bits: u64) -> u64 {
        let integer = from.range().map(|_| from.decode_integer(bits));
        let number = from.decode(bits);
        match (integer, to.range()) {
            (_, None) if to == DType::Bool => u64::from(integer.map_or(number != 0.0, |x| x != 0)),
            (Some(x), Some((low, high))) => to.encode_integer(x.clamp(low, high)),
            (None, Some((low, high))) => {
                to.encode_integer((number.round_ties_even() as i128).clamp(low, high))
            }
            (Some(x), None) if to == DType::F64 => (x as f64).to_bits(),
            (None, None) if to == DType::F64 => number.to_bits(),
            (Some(x), None) => to.encode(f64::from(x as f32)),
            (None, None) => to.encode(f64::from(number as f32)),
        }
    }

    fn words_of(dtype: DType, elements: &[u64]) -> Vec<u32> {
        let (bits, mut words) = (dtype.bits() as usize, Vec::new());
        words.resize((elements.len() * bits).div_ceil(32), 0u32);
        for (i, element) in elements.iter().enumerate() {
            words[i * bits / 32] |= (*element as u32) << (i * bits % 32);
            if bits == 64 {
                words[2 * i + 1] = (element >> 32) as u32;
            }
        }
        words
    }

    fn element(dtype: DType, words: &[u32], i: usize) -> u64 {
        let bits = dtype.bits() as usize;
        let high = if bits == 64 { u64::from(words[2 * i + 1]) << 32 } else { 0 };
        (high | u64::from(words[i * bits / 32] >> (i * bits % 32))) & (u64::MAX >> (64 - bits))
    }

    #[test]
    fn elements_of_64_bits_become_every_type_and_come_of_every_type() {
        let numbers = [
            0.0, -0.0, 0.5, 1.5, 2.5, -3.0, 7.0, 127.5, 255.6, -129.0, 65504.0, 1e6, 16777217.0, 4e9, -5e9,
            1e19, -1e30,
        ];
        let wide = |t: DType| t.bits() == 64;
        for from in DType::ALL {
            for to in DType::ALL.into_iter().filter(|to| wide(from) || wide(*to)) {
                let mut elements: Vec<u64> = numbers.iter().map(|x| from.encode(*x)).collect();
                match from {
                    DType::F64 => elements.extend([f64::NAN, f64::INFINITY, f64::MIN].map(f64::to_bits)),
                    DType::I64 | DType::U64 => {
                        elements.extend([u64::MAX, 1 << 63, (1 << 53) + 1, (1 << 24) + 1, i64::MAX as u64]);
                    }
                    _ => {}
                }
                let plan = plan(from, to, Arch::SM_90A, elements.len() as u32).unwrap();
                let results = plan.evaluate(&words_of(from, &elements));
                for (i, bits) in elements.iter().enumerate() {
                    let (found, expected) = (element(to, &results, i), expected(from, to, *bits));
                    let nan = to.is_float() && to.decode(found).is_nan() && to.decode(expected).is_nan();
                    assert!(
                        nan || found == expected,
                        "{from} {bits:#x} to {to}: {found:#x}, not {expected:#x}"
                    );
                }
            }
        }
    }
}
