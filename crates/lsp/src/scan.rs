//! Tokens of a text that need not be a program. The compiler's lexer refuses a text with an open bracket or a strange sign, and while
//! someone writes, most texts have one; what an editor asks about names must be answered all the same.

use std::ops::Range;

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A name or a keyword.
    Word,
    /// A number.
    Number,
    /// Characters between double quotes, closed or not.
    Text,
    /// `//` or `#` and the rest of the line.
    Comment,
    /// One character of punctuation, or `..`, or two that compare.
    Sign,
    /// The end of a line.
    Newline,
}

/// A token, as bytes of the text.
#[derive(Clone, Debug)]
pub struct Token {
    /// The kind.
    pub kind: Kind,
    /// The bytes.
    pub range: Range<usize>,
}

/// Signs of two characters.
const PAIRS: [&str; 7] = ["..", "==", "!=", "<=", ">=", "<<", ">>"];

/// Splits any text into tokens; blanks are left out.
pub fn scan(text: &str) -> Vec<Token> {
    let bytes = text.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    while let Some(&byte) = bytes.get(at) {
        let start = at;
        let rest = &bytes[at..];
        let run = |ok: &dyn Fn(u8) -> bool| rest.iter().take_while(|b| ok(**b)).count();
        let (kind, length) = match byte {
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'\n' => (Kind::Newline, 1),
            b'#' => (Kind::Comment, run(&|b| b != b'\n')),
            b'/' if rest.starts_with(b"//") => (Kind::Comment, run(&|b| b != b'\n')),
            b'"' => {
                let inside = rest[1..].iter().take_while(|b| !matches!(**b, b'"' | b'\n')).count();
                (Kind::Text, 1 + inside + usize::from(rest.get(1 + inside) == Some(&b'"')))
            }
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                (Kind::Word, run(&|b| b == b'_' || b.is_ascii_alphanumeric()))
            }
            b'0'..=b'9' => (Kind::Number, number(rest)),
            _ if PAIRS.iter().any(|pair| rest.starts_with(pair.as_bytes())) => (Kind::Sign, 2),
            _ => (Kind::Sign, text[at..].chars().next().map_or(1, char::len_utf8)),
        };
        at += length;
        tokens.push(Token { kind, range: start..at });
    }
    tokens
}

/// The length of a number: digits and letters, with a point that digits follow.
fn number(rest: &[u8]) -> usize {
    let word = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_alphanumeric()).count();
    let whole = word(0);
    if rest.get(whole) == Some(&b'.') && rest.get(whole + 1).is_some_and(u8::is_ascii_digit) {
        return whole + 1 + word(whole + 1);
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_but_blanks_is_in_a_token_and_ranges_are_of_whole_characters() {
        for text in
            ["for i in 0..n { x = 1.5e3 } // ä", "\"never closed\nq ≤ \u{1f980} \"", "0..", "a.", "", "\r\n#"]
        {
            let mut at = 0;
            for token in scan(text) {
                assert!(text[at..token.range.start].chars().all(|c| " \t\r".contains(c)), "{text}");
                assert!(!text[token.range.clone()].is_empty());
                at = token.range.end;
            }
            assert!(text[at..].trim_matches([' ', '\t', '\r']).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_range_is_no_decimal_point() {
        let text = "0..4 1.5 2e1";
        let words: Vec<&str> = scan(text).into_iter().map(|token| &text[token.range]).collect();
        assert_eq!(words, ["0", "..", "4", "1.5", "2e1"]);
    }
}
