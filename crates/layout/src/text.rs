//! Reading the text forms: a cursor over bytes that never recurses deeper than [`MAX_DEPTH`]. Reads left to right;
//! white space may stand between any two tokens. Crates that read more than layouts build on it.

use crate::error::LayoutError;
use crate::htuple::{HTuple, MAX_DEPTH};
use crate::stride::{Coord, F2, MAX_POWER, Poly, Stride};

/// A position in a text.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    text: &'a str,
    pos: usize,
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

    fn rest(&self) -> &'a str {
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

    /// Whether an integer comes next.
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

    /// A formal sum of scaled basis elements: `0`, `e0`, `6e1`, `e0+6e1`, `2e0-e3`.
    pub fn coord(&mut self) -> Result<Coord, LayoutError> {
        let mut terms: Vec<Coord> = Vec::new();
        let start = self.pos();
        let too_big =
            |offset| LayoutError::Parse { offset, message: "this sum does not fit in 64 bits".to_string() };
        loop {
            let offset = self.pos();
            // The sign belongs to the number: the least one has no positive.
            let (negative, factor) = if self.at_integer() && (terms.is_empty() || self.peek() == Some('-')) {
                (false, Some(self.integer()?))
            } else {
                let negative = self.eat("-");
                if !negative && !terms.is_empty() && !self.eat("+") {
                    return Coord::sum(terms).ok_or_else(|| too_big(start));
                }
                (negative, if self.at_integer() { Some(self.integer()?) } else { None })
            };
            let term = if self.eat("e") {
                let path = if self.eat("(") {
                    let mut path = vec![self.basis_index()?];
                    while self.eat(",") {
                        path.push(self.basis_index()?);
                    }
                    self.expect(")")?;
                    path
                } else {
                    vec![self.basis_index()?]
                };
                Coord::nested(&path)?.checked_scale(factor.unwrap_or(1))
            } else if factor == Some(0) {
                Some(Coord::zero())
            } else {
                return Err(self.unexpected("a basis element such as `e0`"));
            };
            let term = term.and_then(|t| if negative { t.checked_scale(-1) } else { Some(t) });
            terms.push(term.ok_or_else(|| too_big(offset))?);
        }
    }

    fn basis_index(&mut self) -> Result<usize, LayoutError> {
        let offset = self.pos();
        usize::try_from(self.integer()?).map_err(|_| LayoutError::Parse {
            offset,
            message: "the index of a basis element must not be negative".to_string(),
        })
    }

    /// A bit string such as `f5`; `0` is `f0`.
    pub fn f2(&mut self) -> Result<F2, LayoutError> {
        let offset = self.pos();
        if self.eat("0") {
            return Ok(F2(0));
        }
        if !self.eat("f") {
            return Err(self.unexpected("a bit string such as `f5`"));
        }
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let bits = rest.get(..len).unwrap_or("").parse().map_err(|_| LayoutError::Parse {
            offset,
            message: "after `f` must follow a number of at most 64 bits".to_string(),
        })?;
        self.pos += len;
        Ok(F2(bits))
    }

    /// A polynomial: a sum of products of integers and powers of symbols, such as `2*m*n^2-k+3`.
    pub fn poly(&mut self) -> Result<Poly, LayoutError> {
        let too_big = |offset| LayoutError::Parse {
            offset,
            message: "a number in this polynomial does not fit in 64 bits".to_string(),
        };
        let mut sum = Poly::zero();
        let mut first = true;
        loop {
            let offset = self.pos();
            // The sign belongs to the number: the least one has no positive.
            let mut term = if self.at_integer() && (first || self.peek() == Some('-')) {
                Poly::integer(self.integer()?)
            } else {
                let negative = self.eat("-");
                if !negative && !first && !self.eat("+") {
                    return Ok(sum);
                }
                let factor = self.power()?;
                factor.checked_scale(if negative { -1 } else { 1 }).ok_or_else(|| too_big(offset))?
            };
            while self.eat("*") {
                let factor = self.power()?;
                term = term.checked_mul(&factor).ok_or_else(|| too_big(offset))?;
            }
            sum.try_add(&term).ok_or_else(|| too_big(offset))?;
            first = false;
        }
    }

    /// An integer, or a symbol with an optional power.
    fn power(&mut self) -> Result<Poly, LayoutError> {
        if self.at_integer() {
            return self.integer().map(Poly::integer);
        }
        let Some(symbol) = self.word() else {
            return Err(self.unexpected("an integer or a symbol"));
        };
        if !self.eat("^") {
            return Ok(Poly::symbol(symbol));
        }
        let offset = self.pos();
        let power = u32::try_from(self.integer()?).ok().and_then(|power| Poly::power(symbol, power));
        power.ok_or_else(|| LayoutError::Parse {
            offset,
            message: format!("a power must be between 0 and {MAX_POWER}"),
        })
    }
}
