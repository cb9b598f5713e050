//! Arithmetic on bits: linear maps of an index over F2, and words made of the bytes of others.

use tilewright_machine::ScalarOp;
use tilewright_simt::{Builder, Operand};

use crate::scalar::int;

/// The image of `index`, of which bit `j` leads to `columns[j]`; its other bits must be 0.
///
/// Bits that move by the same distance move together: one mask and one shift for each diagonal of the matrix.
pub fn linear_map(b: &mut Builder, columns: &[u64], index: Operand) -> Operand {
    masked_linear_map(b, columns, index, (1u64 << columns.len()) - 1)
}

/// The same where `index` may have any other bits, too: `known` are those that it can have.
pub fn masked_linear_map(b: &mut Builder, columns: &[u64], index: Operand, known: u64) -> Operand {
    let mut diagonals: std::collections::BTreeMap<i64, u64> = std::collections::BTreeMap::new();
    for (j, column) in columns.iter().enumerate() {
        for row in (0..64).filter(|i| column >> i & 1 == 1) {
            *diagonals.entry(row - j as i64).or_default() |= 1 << j;
        }
    }
    let mut sum = int(0);
    for (distance, mask) in diagonals {
        let mut term = index;
        if mask != known {
            term = b.scalar(ScalarOp::AndB32, &[term, int(mask as i64)]);
        }
        term = match distance {
            0 => term,
            up if up > 0 => b.scalar(ScalarOp::ShlB32, &[term, int(up)]),
            down => b.scalar(ScalarOp::ShrU32, &[term, int(-down)]),
        };
        sum = b.scalar(ScalarOp::XorB32, &[sum, term]);
    }
    sum
}

/// True if bit `bit` of a value is set.
pub fn bit(b: &mut Builder, value: Operand, bit: u32) -> Operand {
    let masked = b.scalar(ScalarOp::AndB32, &[value, Operand::Imm(1 << bit)]);
    b.scalar(ScalarOp::NeI32, &[masked, int(0)])
}

/// A word of the given bytes, lowest first, each a byte of another word; at most four. Bytes that are not given are
/// anything.
pub fn assemble(b: &mut Builder, bytes: &[(Operand, u32)]) -> Operand {
    let mut words: Vec<Operand> = Vec::new();
    for (word, _) in bytes {
        if !words.contains(word) {
            words.push(*word);
        }
    }
    match words[..] {
        [] => int(0),
        [only] if bytes.iter().enumerate().all(|(k, (_, byte))| *byte == k as u32) => only,
        [a] => permute(b, a, a, bytes),
        [a, c] => permute(b, a, c, bytes),
        [a, c, ..] => {
            // The bytes of the first two words in their places, then the rest around them.
            let place = |words: [Operand; 2]| -> Vec<(Operand, u32)> {
                bytes.iter().map(|x| if words.contains(&x.0) { *x } else { (words[0], 0) }).collect()
            };
            let first = permute(b, a, c, &place([a, c]));
            let rest = words[2..].to_vec();
            let second = match rest[..] {
                [d] => d,
                [d, e] => permute(b, d, e, &place([d, e])),
                _ => return first, // four bytes have at most four words
            };
            let last: Vec<(Operand, u32)> = bytes
                .iter()
                .enumerate()
                .map(|(k, (word, byte))| match (*word == a || *word == c, rest.len()) {
                    (true, _) => (first, k as u32),
                    (false, 1) => (second, *byte),
                    (false, _) => (second, k as u32),
                })
                .collect();
            permute(b, first, second, &last)
        }
    }
}

/// The word whose bytes come from `low` and `high`.
fn permute(b: &mut Builder, low: Operand, high: Operand, bytes: &[(Operand, u32)]) -> Operand {
    let selector = bytes.iter().enumerate().fold(0u64, |all, (k, (word, byte))| {
        let from = if *word == low { *byte } else { *byte + 4 };
        all | u64::from(from) << (4 * k)
    });
    b.scalar(ScalarOp::PrmtB32, &[low, high, Operand::Imm(selector)])
}
