//! Values of options, of which a call makes no copy.

use std::borrow::Cow;

use tilewright_kernels::epilogue::Part;
use tilewright_launch::DType;

/// Operations on the sums of a product, in order: their numbers from 1 on, four bits each, the first in the highest bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts(u64);

/// Bits of an operation.
const PART_BITS: u32 = 4;

impl Parts {
    /// None.
    #[inline]
    pub(crate) const fn new() -> Self {
        Parts(0)
    }

    /// With one more behind the others. No product has as many as there is room for.
    #[inline]
    pub(crate) fn with(self, part: Part) -> Self {
        Parts(self.0 << PART_BITS | (part as u64 + 1))
    }

    fn names(self) -> Vec<&'static str> {
        let number = |place: u32| (self.0 >> (PART_BITS * place)) as usize & 15;
        let places = (0..u64::BITS / PART_BITS).rev();
        let part = |place: u32| Some(Part::ALL.get(number(place).checked_sub(1)?)?.name());
        places.filter_map(part).collect()
    }
}

/// The value of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Value<'a>(pub(crate) Kind<'a>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind<'a> {
    Text(&'a str),
    Number(i64),
    Parts(Parts),
    /// A word with a number in parentheses.
    Applied(&'static str, i64),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Value(Kind::Text(text))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value(Kind::Text(text))
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Value(Kind::Number(number))
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Value(Kind::Text(if flag { "true" } else { "false" }))
    }
}

impl From<DType> for Value<'_> {
    fn from(dtype: DType) -> Self {
        Value(Kind::Text(dtype.name()))
    }
}

impl Value<'_> {
    /// The text by which operators know it.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Kind::Text(text) => Cow::Borrowed(text),
            Kind::Number(number) => Cow::Owned(number.to_string()),
            Kind::Applied(word, number) => Cow::Owned(format!("{word}({number})")),
            Kind::Parts(parts) => {
                let names = parts.names();
                Cow::Owned(if names.is_empty() { "none".to_string() } else { names.join("+") })
            }
        }
    }

    /// Gives integers that are alike for equal values, and differ for others of the same kind.
    #[inline]
    pub(crate) fn words(&self, each: &mut impl FnMut(u64)) {
        match &self.0 {
            Kind::Text(text) => words_of(text, each),
            Kind::Number(number) => each(number.cast_unsigned()),
            Kind::Applied(word, number) => {
                words_of(word, each);
                each(number.cast_unsigned());
            }
            Kind::Parts(parts) => each(parts.0),
        }
    }
}

/// The integers of a text: its length with the first bytes, and further bytes by eights.
#[inline]
pub(crate) fn words_of(text: &str, each: &mut impl FnMut(u64)) {
    let bytes = text.as_bytes();
    let (first, rest) = bytes.split_at(bytes.len().min(7));
    // Seven bytes, and how many there are.
    each(upto_seven(first) | ((bytes.len() as u64) << 56));
    let mut eights = rest.chunks_exact(8);
    for eight in &mut eights {
        each(eight.iter().rev().fold(0, |word, byte| (word << 8) | u64::from(*byte)));
    }
    let last = eights.remainder();
    if !rest.is_empty() {
        each(upto_seven(last) | ((bytes.len() as u64 >> 8) << 56));
    }
}

/// At most seven bytes as an integer, without a loop over them.
#[inline]
fn upto_seven(bytes: &[u8]) -> u64 {
    let count = bytes.len();
    if let (Some(first), Some(last)) = (bytes.first_chunk(), bytes.last_chunk()) {
        let (first, last) = (u32::from_le_bytes(*first), u32::from_le_bytes(*last));
        // Of the last four those that are none of the first.
        let behind = u64::from(last) >> (8 * (8 - count.min(8)));
        return u64::from(first) | (behind << 32);
    }
    let at = |place: usize| bytes.get(place).map_or(0, |byte| u64::from(*byte) << (8 * place));
    at(0) | at(1) | at(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(value: Value<'_>) -> Vec<u64> {
        let mut words = Vec::new();
        value.words(&mut |word| words.push(word));
        words
    }

    #[test]
    fn values_have_the_texts_of_operators_and_words_of_their_own() {
        let parts = Parts::new().with(Part::Bias).with(Part::Gelu);
        let parts = Value(Kind::Parts(parts));
        assert_eq!(parts.text(), "bias+gelu");
        assert_eq!(Value(Kind::Parts(Parts::new())).text(), "none");
        assert_eq!((Value::from(64).text(), Value::from(true).text()), ("64".into(), "true".into()));
        assert_eq!(Value::from(DType::BF16).text(), "bf16");
        let long = "a".repeat(300);
        let texts = [
            "",
            "a",
            "b",
            "ab",
            "aaaa",
            "aaaaa",
            "abcdef",
            "abcdefg",
            "abcdefgh",
            "abcdefghi",
            "abcdefghabcdefg",
            &long,
            &long[..44],
        ];
        let texts = texts.map(Value::from);
        for (i, a) in texts.iter().enumerate() {
            for (j, b) in texts.iter().enumerate() {
                assert_eq!(words(*a) == words(*b), i == j);
            }
        }
        assert_eq!(Value(Kind::Applied("window", 512)).text(), "window(512)");
        let other = Value(Kind::Parts(Parts::new().with(Part::Gelu).with(Part::Bias)));
        assert_ne!(words(parts), words(other));
    }
}
