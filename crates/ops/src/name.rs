//! Names in calls: short ones are integers, which are compared and told apart without a loop.

use std::borrow::Cow;
use std::fmt;

use crate::words::End;

/// The most bytes of a short name.
const SHORT: usize = 7;
/// The place of a short name's length in its integer; that of a long one has [`LONG`] there.
const LENGTH: u32 = 56;
const LONG: u64 = SHORT as u64 + 1;
/// The place of a mark in the first integer of a name.
const MARK: u32 = 60;

/// A name, or another text of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    /// Its bytes, and above them their number.
    Short(u64),
    Long(&'a str),
}

impl<'a> Name<'a> {
    /// The name of a text.
    #[inline]
    pub(crate) const fn new(text: &'a str) -> Self {
        let bytes = text.as_bytes();
        if bytes.len() > SHORT {
            return Name::Long(text);
        }
        let (mut word, mut at) = ((bytes.len() as u64) << LENGTH, 0);
        while at < bytes.len() {
            word |= (bytes[at] as u64) << (8 * at);
            at += 1;
        }
        Name::Short(word)
    }

    /// The text.
    pub(crate) fn text(&self) -> Cow<'a, str> {
        match *self {
            Name::Short(word) => {
                let bytes = &word.to_le_bytes()[..(word >> LENGTH) as usize];
                Cow::Owned(String::from_utf8_lossy(bytes).into_owned())
            }
            Name::Long(text) => Cow::Borrowed(text),
        }
    }

    /// Writes words, of which there are as many as the first one says, and which are those of no other name with a mark of at most four bits.
    #[inline]
    pub(crate) fn words<'w>(&self, mark: u64, end: End<'w>) -> End<'w> {
        match *self {
            Name::Short(word) => end.with(word | (mark << MARK)),
            Name::Long(text) => {
                let (eights, last) = text.as_bytes().as_chunks::<8>();
                let end = end.with((LONG << LENGTH) | (mark << MARK) | text.len() as u64);
                let end = eights.iter().fold(end, |end, eight| end.with(u64::from_le_bytes(*eight)));
                if last.is_empty() {
                    return end;
                }
                let mut bytes = [0; 8];
                bytes.iter_mut().zip(last).for_each(|(to, byte)| *to = *byte);
                end.with(u64::from_le_bytes(bytes))
            }
        }
    }
}

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl fmt::Debug for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.text(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::Words;

    fn words(text: &str, mark: u64) -> Vec<u64> {
        Words::new().written(|end| Name::new(text).words(mark, end)).unwrap().to_vec()
    }

    #[test]
    fn names_have_their_texts_and_words_of_their_own() {
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
            "größe",
            "eine größe",
            &long,
            &long[..44],
        ];
        for (i, a) in texts.iter().enumerate() {
            assert_eq!((Name::new(a).text(), Name::new(a).to_string()), ((*a).into(), (*a).to_string()));
            for (j, b) in texts.iter().enumerate() {
                assert_eq!(Name::new(a) == Name::new(b), i == j);
                assert_eq!(words(a, 3) == words(b, 3), i == j);
                assert_ne!(words(a, 0), words(b, 1));
            }
        }
    }
}
