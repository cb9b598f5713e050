//! The words of a call: alike for calls for which the same launches are ready.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;
use std::slice;

use tilewright_launch::hash;

/// Words of a call that has its launches kept.
const MOST: usize = 120;

/// Words, of which those that are pushed are there.
pub(crate) struct Words {
    words: [MaybeUninit<u64>; MOST],
    len: usize,
}

impl Words {
    /// None.
    #[inline]
    pub(crate) fn new() -> Self {
        Words { words: [const { MaybeUninit::uninit() }; MOST], len: 0 }
    }

    /// Adds a word. One that has no room is counted.
    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        if let Some(place) = self.words.get_mut(self.len) {
            place.write(word);
        }
        self.len += 1;
    }

    /// The words; none of a call that has too many.
    #[inline]
    pub(crate) fn given(&self) -> Option<&[u64]> {
        // SAFETY: the first `len` words were written, if there is room for so many.
        (self.len <= MOST).then(|| unsafe { slice::from_raw_parts(self.words.as_ptr().cast(), self.len) })
    }

    /// A number of them: products of 128 bits, folded, of two at a time.
    #[inline]
    pub(crate) fn number(words: &[u64]) -> u64 {
        let fold = |a: u64, b: u64| {
            let product = u128::from(a) * u128::from(b);
            product as u64 ^ (product >> 64) as u64
        };
        let number = words.chunks(2).fold(words.len() as u64, |number, pair| {
            let second = pair.get(1).copied().unwrap_or(0);
            fold(
                pair[0] ^ number ^ 0x9e37_79b9_7f4a_7c15,
                second ^ number.rotate_left(32) ^ 0xd1b5_4a32_d192_ed03,
            )
        });
        hash([number])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_given_while_there_is_room() {
        let mut words = Words::new();
        assert_eq!(words.given(), Some(&[][..]));
        for word in 0..MOST as u64 {
            words.push(word);
        }
        assert_eq!(words.given().map(<[u64]>::len), Some(MOST));
        assert_ne!(Words::number(&[1, 2, 3]), Words::number(&[1, 3, 2]));
        words.push(0);
        assert_eq!(words.given(), None);
    }
}
