//! Values of options, of which a call makes no copy.

use std::borrow::Cow;

use tilewright_kernels::epilogue::Part;
use tilewright_launch::DType;

/// Parts of an epilogue, at most.
const MOST_PARTS: usize = 12;

/// Operations on the sums of a product, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts {
    parts: [Option<Part>; MOST_PARTS],
    len: usize,
}

impl Parts {
    /// None.
    pub(crate) fn new() -> Self {
        Parts { parts: [None; MOST_PARTS], len: 0 }
    }

    /// With one more behind the others.
    pub(crate) fn with(mut self, part: Part) -> Self {
        if let Some(place) = self.parts.get_mut(self.len) {
            *place = Some(part);
            self.len += 1;
        }
        self
    }

    fn iter(&self) -> impl Iterator<Item = Part> {
        self.parts.iter().flatten().copied()
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
                let names: Vec<&str> = parts.iter().map(Part::name).collect();
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
            Kind::Parts(parts) => {
                each(parts.iter().fold(1, |sum, part| sum << 4 | (part as u64 + 1)));
            }
        }
    }
}

/// The integers of a text: its length, and its bytes by eights.
#[inline]
pub(crate) fn words_of(text: &str, each: &mut impl FnMut(u64)) {
    let mut word = text.len() as u64;
    let mut bits = 8;
    for byte in text.bytes() {
        word |= u64::from(byte) << bits;
        bits += 8;
        if bits == 64 {
            each(word);
            (word, bits) = (0, 0);
        }
    }
    if bits > 0 {
        each(word);
    }
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
        let texts = ["", "a", "b", "abcdefg", "abcdefgh", "abcdefghi", "abcdefghabcdefg"].map(Value::from);
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
