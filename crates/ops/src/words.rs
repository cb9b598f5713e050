//! The words of a call: alike for calls for which the same launches are ready.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::slice;

use tilewright_launch::hash;

/// Words of a call that has its launches kept.
const MOST: usize = 148;

/// Room for the words of a call.
pub(crate) struct Words([MaybeUninit<u64>; MOST]);

/// The end of the words that are written, which moves behind each that is added. There is none once they have no room.
pub(crate) struct End<'w>(Option<&'w mut [MaybeUninit<u64>]>);

impl<'w> End<'w> {
    /// Adds a word.
    #[inline]
    pub(crate) fn with(self, word: u64) -> End<'w> {
        let Some([place, rest @ ..]) = self.0 else { return End(None) };
        place.write(word);
        End(Some(rest))
    }
}

impl Words {
    /// Room, in which nothing is written.
    #[inline]
    pub(crate) const fn new() -> Self {
        Words([MaybeUninit::uninit(); MOST])
    }

    /// The words that a function writes; none of a call that has too many.
    #[inline]
    pub(crate) fn written(&mut self, write: impl FnOnce(End<'_>) -> End<'_>) -> Option<&[u64]> {
        let rest = write(End(Some(&mut self.0))).0?.len();
        // SAFETY: an end moves from the beginning on, and by one word for each that is written; nobody else makes one.
        Some(unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), MOST - rest) })
    }
}

/// A number of words: the sum of products of 128 bits of two at a time, each with keys of its own place, so that none waits for another.
#[inline]
pub(crate) fn number_of(words: &[u64]) -> u64 {
    let (pairs, last) = words.as_chunks::<2>();
    let (mut low, mut high) = (words.len() as u64, last.first().copied().unwrap_or(0));
    for ([first, second], keys) in pairs.iter().zip(&KEYS) {
        let product = u128::from(first ^ keys[0]) * u128::from(second ^ keys[1]);
        low = low.wrapping_add(product as u64);
        high = high.wrapping_add((product >> 64) as u64);
    }
    hash([low, high])
}

/// A number for each place: those of SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators").
static KEYS: [[u64; 2]; MOST / 2] = {
    let (mut keys, mut at, mut state) = ([[0; 2]; MOST / 2], 0, 0u64);
    while at < MOST {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        keys[at / 2][at % 2] = mixed ^ (mixed >> 31);
        at += 1;
    }
    keys
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_given_while_there_is_room() {
        let mut words = Words::new();
        assert_eq!(words.written(|end| end), Some(&[][..]));
        let all: Vec<u64> = (0..=MOST as u64).collect();
        assert_eq!(words.written(|end| (0..MOST as u64).fold(end, End::with)), Some(&all[..MOST]));
        assert_eq!(words.written(|end| (0..=MOST as u64).fold(end, End::with)), None);
        let numbers: std::collections::BTreeSet<u64> =
            (0..=MOST).map(|count| number_of(&all[..count])).collect();
        assert_eq!(numbers.len(), MOST + 1);
        assert_ne!(number_of(&[1, 2, 3]), number_of(&[1, 3, 2]));
    }
}
