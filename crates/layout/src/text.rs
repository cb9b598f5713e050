//! Reading the text forms: a cursor over bytes that never recurses deeper than [`MAX_DEPTH`]. Reads left to right;
//! white space may stand between any two tokens. Crates that read more than layouts build on it.

use crate::error::LayoutError;
use crate::htuple::{HTuple, MAX_DEPTH};

/// A position in a text.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    pub(crate) pos: usize,
}

impl<'a> Cursor<'a> {
    /// A cursor at the start.
    pub fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, pos: 0 }
    }

    /// The offset of the next token.
    pub fn pos(&mut self) -> usize {
        self.skip();
        self.pos
    }

    pub(crate) fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or("")
    }

    fn skip(&mut self) {
        let rest = self.rest();
        self.pos += rest.len() - rest.trim_start().len();
    }

    /// The next character that is not white space.
    pub fn peek(&mut self) -> Option<char> {
        self.skip();
        self.rest().chars().next()
    }

    /// Passes `token` if it comes next.
    pub fn eat(&mut self, token: &str) -> bool {
        self.skip();
        let found = self.rest().starts_with(token);
        if found {
            self.pos += token.len();
        }
        found
    }

    /// Passes `token`.
    pub fn expect(&mut self, token: &str) -> Result<(), LayoutError> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    /// An error at the next token: what was expected, and what is there.
    pub fn unexpected(&mut self, expected: &str) -> LayoutError {
        let message = match self.peek() {
            Some(c) => format!("expected {expected}, found `{}`", c.escape_default()),
            None => format!("expected {expected}, found the end"),
        };
        LayoutError::Parse { offset: self.pos, message }
    }

    /// The end of the text.
    pub fn end(&mut self) -> Result<(), LayoutError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    /// A word: a letter or `_`, then letters, digits and `_`. Passes nothing if none comes next.
    pub fn word(&mut self) -> Option<&'a str> {
        self.skip();
        let rest = self.rest();
        if !rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return None;
        }
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
        self.pos += len;
        rest.get(..len)
    }

    /// True if an integer comes next.
    pub fn at_integer(&mut self) -> bool {
        self.skip();
        let rest = self.rest();
        rest.strip_prefix('-').unwrap_or(rest).starts_with(|c: char| c.is_ascii_digit())
    }

    /// An integer with an optional minus sign.
    pub fn integer(&mut self) -> Result<i64, LayoutError> {
        if !self.at_integer() {
            return Err(self.unexpected("an integer"));
        }
        let rest = self.rest();
        let sign = usize::from(rest.starts_with('-'));
        let digits = rest.get(sign..).unwrap_or("");
        let len = sign + digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let number = rest.get(..len).unwrap_or("").parse().map_err(|_| LayoutError::Parse {
            offset: self.pos,
            message: "this integer does not fit in 64 bits".to_string(),
        })?;
        self.pos += len;
        Ok(number)
    }

    /// An integer that is not negative.
    pub fn natural(&mut self) -> Result<u64, LayoutError> {
        let mut start = self.clone();
        u64::try_from(self.integer()?).map_err(|_| start.unexpected("a number that is not negative"))
    }

    /// A hierarchical tuple of integers.
    pub fn integers(&mut self) -> Result<HTuple<i64>, LayoutError> {
        self.htuple(MAX_DEPTH, &Self::integer)
    }

    /// A hierarchical tuple of whatever `leaf` reads.
    pub fn htuple<T>(
        &mut self,
        depth: usize,
        leaf: &impl Fn(&mut Self) -> Result<T, LayoutError>,
    ) -> Result<HTuple<T>, LayoutError> {
        if self.peek() != Some('(') {
            return leaf(self).map(HTuple::Leaf);
        }
        if depth == 0 {
            let offset = self.pos;
            return Err(LayoutError::Parse {
                offset,
                message: format!("tuples nest deeper than {MAX_DEPTH} levels"),
            });
        }
        self.expect("(")?;
        let mut elements = vec![self.htuple(depth - 1, leaf)?];
        while self.eat(",") {
            elements.push(self.htuple(depth - 1, leaf)?);
        }
        if !self.eat(")") {
            return Err(self.unexpected("`,` or `)`"));
        }
        Ok(HTuple::Tuple(elements))
    }
}
