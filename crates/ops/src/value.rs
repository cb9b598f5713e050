//! Values of options, of which a call makes no copy.

use std::borrow::Cow;

use tilewright_kernels::epilogue::Part;
use tilewright_launch::DType;

use crate::name::Name;
use crate::words::End;

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
    Text(Name<'a>),
    Number(i64),
    Parts(Parts),
    /// A word with a number in parentheses.
    Applied(&'static str, i64),
}

impl<'a> From<&'a str> for Value<'a> {
    #[inline]
    fn from(text: &'a str) -> Self {
        Value(Kind::Text(Name::new(text)))
    }
}

impl<'a> From<&'a String> for Value<'a> {
    fn from(text: &'a String) -> Self {
        Value::from(text.as_str())
    }
}

impl From<i64> for Value<'_> {
    #[inline]
    fn from(number: i64) -> Self {
        Value(Kind::Number(number))
    }
}

impl From<bool> for Value<'_> {
    fn from(flag: bool) -> Self {
        Value::from(if flag { "true" } else { "false" })
    }
}

impl From<DType> for Value<'_> {
    fn from(dtype: DType) -> Self {
        Value::from(dtype.name())
    }
}

impl Value<'_> {
    /// The text by which operators know it.
    pub(crate) fn text(&self) -> Cow<'_, str> {
        match &self.0 {
            Kind::Text(text) => text.text(),
            Kind::Number(number) => Cow::Owned(number.to_string()),
            Kind::Applied(word, number) => Cow::Owned(format!("{word}({number})")),
            Kind::Parts(parts) => {
                let names = parts.names();
                Cow::Owned(if names.is_empty() { "none".to_string() } else { names.join("+") })
            }
        }
    }

    /// A number for the kind.
    #[inline]
    pub(crate) fn mark(&self) -> u64 {
        match self.0 {
            Kind::Text(_) => 0,
            Kind::Number(_) => 1,
            Kind::Parts(_) => 2,
            Kind::Applied(..) => 3,
        }
    }

    /// Writes words that are alike for equal values, and differ for others of the same kind.
    #[inline]
    pub(crate) fn words<'w>(&self, end: End<'w>) -> End<'w> {
        match &self.0 {
            Kind::Text(text) => text.words(0, end),
            Kind::Number(number) => end.with(number.cast_unsigned()),
            Kind::Applied(word, number) => Name::new(word).words(0, end).with(number.cast_unsigned()),
            Kind::Parts(parts) => end.with(parts.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;

    fn words(value: Value<'_>) -> Vec<u64> {
        Words::new().written(|end| value.words(end)).unwrap().to_vec()
    }

    #[test]
    fn values_have_the_texts_of_operators_and_words_of_their_own() {
        let parts = Parts::new().with(Part::Bias).with(Part::Gelu);
        let parts = Value(Kind::Parts(parts));
        assert_eq!(parts.text(), "bias+gelu");
        assert_eq!(Value(Kind::Parts(Parts::new())).text(), "none");
        assert_eq!((Value::from(64).text(), Value::from(true).text()), ("64".into(), "true".into()));
        assert_eq!(Value::from(DType::BF16).text(), "bf16");
        assert_eq!(Value(Kind::Applied("window", 512)).text(), "window(512)");
        let other = Value(Kind::Parts(Parts::new().with(Part::Gelu).with(Part::Bias)));
        assert_ne!(words(parts), words(other));
    }
}
