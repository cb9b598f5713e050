//! Elements of fewer than 8 bits in bytes of their own.

use tilewright_machine::{DType, ScalarOp};

use super::{AND_OR, Emit, OR_AND, and_xor, join, ones, permute, raised, shift_right};

/// Elements of fewer than 8 bits, each in a byte of its own, zero-extended: four a register.
pub fn to_bytes<E: Emit>(e: &mut E, words: &[E::Value], bits: u32, values: u32) -> Vec<E::Value> {
    (0..values)
        .step_by(4)
        .map(|first| {
            let (word, shift) = (words[(first * bits / 32) as usize], first * bits % 32);
            let [position, length] = [shift, 4 * bits].map(|x| e.literal(x));
            let four = e.op(ScalarOp::BfeU32, &[word, position, length]);
            // Pairs to both halves, then elements to both bytes of each.
            let two = ones(2 * bits, 0);
            let halves = apart(e, four, 16 - 2 * bits, two | two << 16);
            apart(e, halves, 8 - bits, ones(bits, 0) * 0x0101_0101)
        })
        .collect()
}

/// A 1 in every byte.
const EACH_BYTE: u32 = 0x0101_0101;

/// Integers of fewer than 8 bits in their order as bytes, signed ones with their signs.
pub(super) fn widened_to_bytes<E: Emit>(
    e: &mut E,
    from: DType,
    words: &[E::Value],
    values: u32,
) -> Vec<E::Value> {
    let raised = raised(from);
    // Sign bits are flipped, and bit 7 is set.
    let flipped = if raised == 0 { 0 } else { (raised | 0x80) * EACH_BYTE };
    if from.bits() != 4 {
        let bytes = to_bytes(e, words, from.bits(), values);
        let signed = |word: E::Value| {
            let literal = e.literal(flipped);
            let word = if raised == 0 { word } else { e.op(ScalarOp::XorB32, &[word, literal]) };
            lower_bytes(e, word, raised)
        };
        return bytes.into_iter().map(signed).collect();
    }
    // The even elements of a register and the odd ones, then both in turn.
    let halves: Vec<[E::Value; 2]> = words
        .iter()
        .map(|word| {
            let odd = shift_right(e, *word, 4);
            [*word, odd].map(|half| {
                let bytes = and_xor(e, half, ones(4, 0) * EACH_BYTE, flipped);
                lower_bytes(e, bytes, raised)
            })
        })
        .collect();
    (0..values.div_ceil(4) as usize)
        .map(|four| {
            let [even, odd] = halves[four / 2];
            permute(e, even, odd, if four % 2 == 0 { [0, 4, 1, 5] } else { [2, 6, 3, 7] })
        })
        .collect()
}

/// The signed bytes of those that are `raised` too large and have bit 7 set, so that no byte borrows of the next; the same of unsigned ones.
fn lower_bytes<E: Emit>(e: &mut E, word: E::Value, raised: u32) -> E::Value {
    if raised == 0 {
        return word;
    }
    let [least, signs] = [raised, 0x80].map(|x| e.literal(x * EACH_BYTE));
    let lowered = e.op(ScalarOp::SubI32, &[word, least]);
    e.op(ScalarOp::XorB32, &[lowered, signs])
}

/// Elements of 4 bits in their order as bytes of a table: `prmt` chooses among the eight of the codes below 8 and among the others, and then
/// between both by the upper bit of each code.
pub(super) fn looked_up<E: Emit>(
    e: &mut E,
    from: DType,
    to: DType,
    words: &[E::Value],
    values: u32,
) -> Vec<E::Value> {
    let byte = |code: u32| to.encode(from.decode(code)) as u32 & 0xff;
    let table = [0, 4, 8, 12].map(|first| (0..4).fold(0, |all, i| all | byte(first + i) << (8 * i)));
    let table = table.map(|bytes| e.literal(bytes));
    let mut found = Vec::new();
    for (word, left) in words.iter().zip((1..=values).rev().step_by(8)) {
        let [codes, upper, places, both] =
            [0x7777_7777, 0x4444_4444, 0x3210_3210, AND_OR].map(|x| e.literal(x));
        let code = e.op(ScalarOp::AndB32, &[*word, codes]);
        let upper_bit = shift_right(e, *word, 1);
        let side = e.op(ScalarOp::Lop3B32, &[upper_bit, upper, places, both]);
        for shift in if left > 4 { &[0, 16][..] } else { &[0] } {
            let [code, side] = [code, side].map(|x| shift_right(e, x, *shift));
            let below = e.op(ScalarOp::PrmtB32, &[table[0], table[1], code]);
            let above = e.op(ScalarOp::PrmtB32, &[table[2], table[3], code]);
            found.push(e.op(ScalarOp::PrmtB32, &[below, above, side]));
        }
    }
    found
}

/// `(x | x << distance) & mask`
fn apart<E: Emit>(e: &mut E, x: E::Value, distance: u32, mask: u32) -> E::Value {
    let [distance, mask, table] = [distance, mask, OR_AND].map(|x| e.literal(x));
    let moved = e.op(ScalarOp::ShlB32, &[x, distance]);
    e.op(ScalarOp::Lop3B32, &[x, moved, mask, table])
}

/// Elements of fewer than 8 bits, packed again from the bytes that [`to_bytes`] makes.
pub fn from_bytes<E: Emit>(e: &mut E, words: &[E::Value], bits: u32, values: u32) -> Vec<E::Value> {
    let fours: Vec<E::Value> = (0..values.div_ceil(4) as usize)
        .map(|k| {
            let near = shift_right(e, words[k], 8 - bits);
            let [mask, table] = [ones(2 * bits, 0) * 0x0001_0001, OR_AND].map(|x| e.literal(x));
            let pairs = e.op(ScalarOp::Lop3B32, &[words[k], near, mask, table]);
            let near = shift_right(e, pairs, 16 - 2 * bits);
            e.op(ScalarOp::OrB32, &[pairs, near])
        })
        .collect();
    fours.chunks((8 / bits) as usize).map(|parts| join(e, parts, 4 * bits)).collect()
}
