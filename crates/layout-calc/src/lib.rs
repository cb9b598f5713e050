//! A calculator of layouts, [pictures](draw) of them, and the layouts of AMD's matrix instructions ([`Mfma`], [`Wmma`]).
//!
//! The calculator is behind `tilewright layout 'EXPR'`: it reads an expression over layouts from left to right and evaluates it
//! as it goes. `A o B` and `compose(A, B)` apply `B` first; coordinates count colexicographically (leftmost fastest).
//!
//! ```text
//! program := ("let" NAME "=" expr ";")* expr
//!          | ("let" NAME "=" expr ";")* "let" NAME "=" expr ";"?        its value; in a session the name stays
//! expr    := applied (("o" | "∘") applied)*             composition, from left to right
//! applied := primary ("(" expr, … ")" | "." NAME)*      L(22), L(1,2), L((1,0),2): the value at a coordinate
//!                                                       L(2,_), L(2,((0,_),_)): what `_` leaves, a slice
//!                                                       r.NAME: a field of a record
//! primary := INTEGER | tuple ":" stride                 4, ((2,2),8):((1,16),2); an integer n as a layout is n:1
//!                                                       strides may also be coordinates, (8,8):(e0,e1), or bit strings,
//!                                                       (4,4):(f1,f5)
//!          | "(" expr, … ")" | "<" expr, … ">"          concatenation or tuple; tiler: operations by mode
//!          | "Sw<" B "," M "," S ">" | NAME | NAME "(" expr, … ")"
//!          | COORD | BITS | "{" expr "}" | "_"          e0+6e1, e(0,1); f5; an accessor: {8} o (3,2):(15,100) is a tensor
//!          | "[" bases "]" "->" "[" sizes "]"           a linear layout, [register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2];
//!            ("+" (INTEGER | "(" INTEGER, … ")"))?      affine, [lane: 1 2] -> [x:4] + 3
//!          | "[" (NAME (":" INTEGER)?), … "]"           names: of dimensions [x, y], with sizes or indices [lane:3]
//!          | "{" (NAME "=" expr), … "}"                 a record
//! ```
//!
//! Linear layouts (*Linear Layouts* over F2, see [`LinearLayout`]) compose with each other, `A o B`, and apply to integers
//! that count their inputs as one, `L(5)`, and to named indices, `L([register:1, lane:9])`.
//!
//! Functions: see [`FUNCTIONS`]. Expressions are limited in length, nesting, the size of every intermediate result and
//! the steps that all of it takes, so that any text at all gives a value or an error, and soon.
//!
//! ```
//! use tilewright_layout_calc::{Session, evaluate};
//! assert_eq!(evaluate("((2,2),(4,2)):((1,8),(2,16)) (22)")?.to_string(), "26");
//! assert_eq!(evaluate("let A = (8,8):(8,1); A o ((4,8),2):((16,1),8)")?.to_string(), "((4,8),2):((2,8),1)");
//! assert_eq!(evaluate("zipped_divide((8,16):(1,8), <4,8>)")?.to_string(), "((4,8),(2,2)):((1,8),(4,64))");
//! assert_eq!(evaluate("((3,2),((2,3),2)):((4,1),((2,15),100)) (2,((0,_),_))")?.to_string(), "{8} o (3,2):(15,100)");
//! assert_eq!(evaluate("([register: (1,0) (0,1); lane: (2,0)] -> [x:4, y:2])([lane:1, register:2])")?.to_string(), "[x:2, y:1]");
//! let mut session = Session::default();
//! session.evaluate("let A = (4,8):(8,1)")?;
//! assert_eq!(session.evaluate("right_inverse(A)")?.to_string(), "(8,4):(4,1)");
//! # Ok::<(), tilewright_layout_calc::CalcError>(())
//! ```

use thiserror::Error;
use tilewright_layout::{
    AffineLayout, HTuple, Layout, LayoutError, LinearLayout, MAX_DEPTH, MAX_DIMS, Swizzle, text::Cursor, work,
};

mod amd;
pub mod draw;
mod functions;
mod linear;
mod value;

pub use amd::{Mfma, Wmma};
pub use functions::FUNCTIONS;
pub use value::{Names, Value};

/// The longest expression, in bytes.
pub const MAX_LENGTH: usize = 1 << 16;
/// The most integers in any one value; a sum of basis elements has one for each.
pub const MAX_LEAVES: usize = 4096;

/// Greatest depth of an expression: the leaf of a tuple of the greatest depth in a tiler still reads.
const NESTING: usize = MAX_DEPTH + 2;

/// Place and reason of an expression that has no value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("at byte {offset}: {message}")]
pub struct CalcError {
    /// The offset in bytes of what is wrong.
    pub offset: usize,
    /// The fault, and what would be right.
    pub message: String,
    /// The operation's own error, where an operation on layouts refused.
    pub cause: Option<Box<LayoutError>>,
}

impl CalcError {
    fn new(offset: usize, message: impl Into<String>) -> CalcError {
        CalcError { offset, message: message.into(), cause: None }
    }

    /// An error of the operation that stands at `offset`.
    fn at(offset: usize, error: LayoutError) -> CalcError {
        match error {
            LayoutError::Parse { offset, message } => CalcError { offset, message, cause: None },
            error => CalcError { offset, message: error.to_string(), cause: Some(Box::new(error)) },
        }
    }

    /// The kind of error in one word, for programs: `expression` where the text is wrong, else the name of the
    /// [`LayoutError`] in snake case: `composition`, `complement`, `not_invertible`, `overflow`, …
    pub fn kind(&self) -> String {
        let Some(cause) = &self.cause else { return "expression".to_string() };
        let debug = format!("{cause:?}");
        let mut kind = String::new();
        for c in debug.chars().take_while(char::is_ascii_alphanumeric) {
            if c.is_ascii_uppercase() && !kind.is_empty() {
                kind.push('_');
            }
            kind.push(c.to_ascii_lowercase());
        }
        kind
    }
}

/// The value of an expression; the module's documentation gives the grammar.
pub fn evaluate(expr: &str) -> Result<Value, CalcError> {
    Session::default().evaluate(expr)
}

/// A sequence of expressions in which names stay: a line that ends with `let NAME = expr` gives the value of `expr` and
/// binds the name for the lines after it. Names bound before another expression, `let NAME = expr; …`, are gone with
/// their line.
#[derive(Clone, Default, Debug)]
pub struct Session {
    names: Vec<(String, Value)>,
}

impl Session {
    /// The value of the next expression. An error leaves the session as it is.
    pub fn evaluate(&mut self, expr: &str) -> Result<Value, CalcError> {
        if expr.len() > MAX_LENGTH {
            return Err(CalcError::new(MAX_LENGTH, format!("an expression has at most {MAX_LENGTH} bytes")));
        }
        let mut reader = Reader { cursor: Cursor::new(expr), names: Vec::new(), outer: &self.names };
        let limit = work::Limit::new();
        let result = reader.program();
        if limit.exhausted() {
            // Whatever else was said follows from that.
            let offset = result.err().map_or(expr.len(), |e| e.offset);
            return Err(CalcError::at(offset, LayoutError::TooLong { limit: work::STEPS }));
        }
        drop(limit);
        let (name, value) = result?;
        reader.cursor.end().map_err(|e| CalcError::at(0, e))?;
        if let Some(name) = name {
            match self.names.iter_mut().find(|(n, _)| n == name) {
                Some((_, old)) => *old = value.clone(),
                None => self.names.push((name.to_string(), value.clone())),
            }
        }
        Ok(value)
    }
}

struct Reader<'a, 's> {
    cursor: Cursor<'a>,
    /// Bound in this expression.
    names: Vec<(&'a str, Value)>,
    /// Bound by earlier ones.
    outer: &'s [(String, Value)],
}

impl<'a> Reader<'a, '_> {
    /// The value, with the name that it is to be bound to.
    fn program(&mut self) -> Result<(Option<&'a str>, Value), CalcError> {
        while self.eat_word("let") {
            let offset = self.cursor.pos();
            let name = match self.cursor.word() {
                Some(name) if !reserved(name) => name,
                Some(name) => return Err(CalcError::new(offset, format!("`{name}` cannot be a name"))),
                None => return Err(self.unexpected("a name")),
            };
            self.expect("=")?;
            let value = self.expr(NESTING)?;
            let more = self.cursor.eat(";");
            if self.cursor.peek().is_none() {
                return Ok((Some(name), value));
            }
            if !more {
                return Err(self.unexpected("`;`"));
            }
            self.names.retain(|(n, _)| *n != name);
            self.names.push((name, value));
        }
        Ok((None, self.expr(NESTING)?))
    }

    fn expr(&mut self, depth: usize) -> Result<Value, CalcError> {
        let mut value = self.applied(depth)?;
        loop {
            let offset = self.cursor.pos();
            if !self.cursor.eat("∘") && !self.eat_word("o") {
                return Ok(value);
            }
            let right = self.applied(depth)?;
            value = functions::compose_values(&value, &right).map_err(|e| e.at(offset))?;
            limit(&value, offset)?;
        }
    }

    fn applied(&mut self, depth: usize) -> Result<Value, CalcError> {
        let offset = self.cursor.pos();
        let mut value = self.primary(depth)?;
        loop {
            if self.cursor.eat("(") {
                let args = self.list(depth, ")")?;
                value = functions::apply(&value, &args).map_err(|e| e.at(offset))?;
            } else if self.cursor.eat(".") {
                value = self.field(value)?;
            } else {
                break;
            }
        }
        limit(&value, offset)?;
        Ok(value)
    }

    fn primary(&mut self, depth: usize) -> Result<Value, CalcError> {
        let offset = self.cursor.pos();
        let Some(depth) = depth.checked_sub(1) else {
            let message = format!("expressions nest deeper than {NESTING} levels");
            return Err(CalcError::new(offset, message));
        };
        let start = self.cursor.clone();
        if self.cursor.at_integer() {
            let n = self.cursor.integer().map_err(|e| CalcError::at(offset, e))?;
            if self.cursor.peek() == Some('e') {
                self.cursor = start;
                return self.coord(offset);
            }
            return self.layout_of(Value::Integer(n), offset);
        }
        if self.cursor.peek() == Some('-') {
            return self.coord(offset);
        }
        if self.cursor.eat("(") {
            let values = self.list(depth, ")")?;
            let value = functions::parenthesized(values).map_err(|e| e.at(offset))?;
            limit(&value, offset)?;
            return self.layout_of(value, offset);
        }
        if self.cursor.eat("<") {
            let values = self.list(depth, ">")?;
            return functions::tiler(&values).map_err(|e| e.at(offset)).map(Value::Tiler);
        }
        if self.cursor.peek() == Some('[') {
            return self.bracketed(offset);
        }
        if self.cursor.eat("{") {
            if let Some(record) = self.record(depth)? {
                return Ok(record);
            }
            let value = self.expr(depth)?;
            self.expect("}")?;
            return functions::accessor(value).map_err(|e| e.at(offset));
        }
        let Some(word) = self.cursor.word() else {
            return Err(self.unexpected("an expression"));
        };
        if word == "Sw" {
            self.cursor = start;
            return Swizzle::read(&mut self.cursor).map(Value::Swizzle).map_err(|e| CalcError::at(offset, e));
        }
        if word == "_" {
            return Ok(Value::Slice(HTuple::Leaf(None)));
        }
        if let Some((_, value)) = self.names.iter().find(|(n, _)| *n == word) {
            return Ok(value.clone());
        }
        if let Some((_, value)) = self.outer.iter().find(|(n, _)| n == word) {
            return Ok(value.clone());
        }
        if is_basis(word) {
            self.cursor = start;
            if word.starts_with('f') {
                return self.cursor.f2().map(Value::F2).map_err(|e| CalcError::at(offset, e));
            }
            return self.coord(offset);
        }
        if !functions::exists(word) {
            let message = match functions::nearest(word) {
                Some(name) => format!("`{word}` is not defined; did you mean `{name}`?"),
                None => format!("`{word}` is not defined; a name is defined by `let {word} = …;`"),
            };
            return Err(CalcError::new(offset, message));
        }
        self.expect("(")?;
        let args = self.list(depth, ")")?;
        functions::call(word, &args).map_err(|e| e.at(offset))
    }

    /// `value`, or the layout whose shape it is where a colon follows.
    fn layout_of(&mut self, value: Value, offset: usize) -> Result<Value, CalcError> {
        let Some(shape) = value.to_htuple() else { return Ok(value) };
        if !self.cursor.eat(":") {
            return Ok(value);
        }
        let start = self.cursor.clone();
        let integers = self.cursor.integers();
        let error = match integers {
            Ok(stride) if !matches!(self.cursor.peek(), Some('e' | 'f')) => {
                return Layout::new(shape, stride).map(Value::Layout).map_err(|e| CalcError::at(offset, e));
            }
            Ok(_) => None,
            Err(error) => Some(error),
        };
        self.cursor = start.clone();
        let error = match self.cursor.htuple(MAX_DEPTH, &Cursor::coord) {
            Ok(stride) if self.cursor.peek() != Some('f') => {
                return Layout::new(shape, stride)
                    .map(Value::CoordLayout)
                    .map_err(|e| CalcError::at(offset, e));
            }
            Ok(_) => error,
            Err(other) => Some(furthest(error, other)),
        };
        self.cursor = start;
        match self.cursor.htuple(MAX_DEPTH, &Cursor::f2) {
            Ok(stride) => {
                Layout::new(shape, stride).map(Value::F2Layout).map_err(|e| CalcError::at(offset, e))
            }
            Err(other) => Err(CalcError::at(offset, furthest(error, other))),
        }
    }

    /// A linear or affine layout, or names.
    fn bracketed(&mut self, offset: usize) -> Result<Value, CalcError> {
        let start = self.cursor.clone();
        let error = match self.names() {
            Ok(names) if !self.cursor.eat("->") => return Ok(Value::Names(names)),
            Ok(_) => None,
            Err(error) => Some(error),
        };
        self.cursor = start;
        let layout =
            LinearLayout::read(&mut self.cursor).map_err(|e| CalcError::at(offset, furthest(error, e)))?;
        if !self.cursor.eat("+") {
            return Ok(Value::Linear(layout));
        }
        let at = self.cursor.pos();
        let added = self.added(&layout).map_err(|e| CalcError::at(at, e))?;
        let affine = AffineLayout::new(layout, added).map_err(|e| CalcError::at(at, e))?;
        Ok(Value::Affine(affine))
    }

    /// Reads the offset of an affine layout, as one integer over the outputs of its linear part.
    fn added(&mut self, layout: &LinearLayout) -> Result<u64, LayoutError> {
        let mut elements = Vec::new();
        if self.cursor.eat("(") {
            while !self.cursor.eat(")") {
                if !elements.is_empty() {
                    self.cursor.expect(",")?;
                }
                elements.push(self.cursor.natural()?);
            }
        } else {
            elements.push(self.cursor.natural()?);
        }
        let bases = [("one", vec![elements])];
        let outs: Vec<(&str, u64)> = layout.outs().iter().map(|o| (o.name.as_str(), o.size())).collect();
        Ok(LinearLayout::from_bases(&bases, &outs)?.at(1))
    }

    fn names(&mut self) -> Result<Names, LayoutError> {
        self.cursor.expect("[")?;
        let mut names = Names::new();
        while let Some(name) = self.cursor.word() {
            if names.len() == MAX_DIMS {
                return Err(self.cursor.unexpected(&format!("at most {MAX_DIMS} names")));
            }
            let number = if self.cursor.eat(":") { Some(self.cursor.natural()?) } else { None };
            names.push((name.to_string(), number));
            if !self.cursor.eat(",") {
                break;
            }
        }
        self.cursor.expect("]")?;
        Ok(names)
    }

    /// The fields after `{`; `None`, and nothing read, where no name and `=` follow.
    fn record(&mut self, depth: usize) -> Result<Option<Value>, CalcError> {
        let mut fields: Vec<(String, Value)> = Vec::new();
        loop {
            let start = self.cursor.clone();
            let offset = self.cursor.pos();
            let name = self.cursor.word().filter(|_| self.cursor.eat("="));
            let Some(name) = name else {
                self.cursor = start;
                return if fields.is_empty() { Ok(None) } else { Err(self.unexpected("a name and `=`")) };
            };
            if fields.iter().any(|(n, _)| n == name) {
                return Err(CalcError::new(offset, format!("the record has a field `{name}` already")));
            }
            let offset = self.cursor.pos();
            let value = self.expr(depth)?;
            if matches!(value, Value::Record(_) | Value::Bool(_) | Value::Text(_)) {
                return Err(CalcError::new(offset, format!("a record cannot hold {}", value.described())));
            }
            fields.push((name.to_string(), value));
            if self.cursor.eat("}") {
                let record = Value::Record(fields);
                limit(&record, offset)?;
                return Ok(Some(record));
            }
            if !self.cursor.eat(",") {
                return Err(self.unexpected("`,` or `}`"));
            }
            if fields.len() == MAX_DIMS {
                return Err(self.unexpected(&format!("at most {MAX_DIMS} fields")));
            }
        }
    }

    /// The field of a record that is named next.
    fn field(&mut self, value: Value) -> Result<Value, CalcError> {
        let offset = self.cursor.pos();
        let Some(name) = self.cursor.word() else { return Err(self.unexpected("the name of a field")) };
        let Value::Record(fields) = value else {
            return Err(CalcError::new(offset, format!("{} has no fields", value.described())));
        };
        let names: Vec<&str> = fields.iter().map(|(n, _)| n.as_str()).collect();
        let message = format!("the record has no field `{name}`; it has {}", names.join(", "));
        let found = fields.into_iter().find(|(n, _)| n == name);
        found.map(|(_, value)| value).ok_or_else(|| CalcError::new(offset, message))
    }

    /// An element of a coordinate semimodule.
    fn coord(&mut self, offset: usize) -> Result<Value, CalcError> {
        self.cursor.coord().map(Value::Coord).map_err(|e| CalcError::at(offset, e))
    }

    /// Expressions separated by commas, up to `close`; at least one.
    fn list(&mut self, depth: usize, close: &str) -> Result<Vec<Value>, CalcError> {
        let mut values = vec![self.expr(depth)?];
        loop {
            if self.cursor.eat(close) {
                return Ok(values);
            }
            if !self.cursor.eat(",") {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
            values.push(self.expr(depth)?);
        }
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let start = self.cursor.clone();
        let found = self.cursor.word() == Some(word);
        if !found {
            self.cursor = start;
        }
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), CalcError> {
        self.cursor.expect(token).map_err(|e| CalcError::at(0, e))
    }

    fn unexpected(&mut self, expected: &str) -> CalcError {
        CalcError::at(0, self.cursor.unexpected(expected))
    }
}

/// True if `name` means something else already.
fn reserved(name: &str) -> bool {
    matches!(name, "let" | "o" | "Sw" | "_") || is_basis(name)
}

/// True if `word` begins a basis element, `e0` or `e(0,1)`, or is a bit string, `f5`.
fn is_basis(word: &str) -> bool {
    let digits = word.strip_prefix(['e', 'f']);
    word == "e" || digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
}

/// Of two readings of the same text, the error of the one that came further.
fn furthest(first: Option<LayoutError>, second: LayoutError) -> LayoutError {
    let reached = |e: &LayoutError| match e {
        LayoutError::Parse { offset, .. } => *offset,
        _ => usize::MAX,
    };
    match first {
        Some(first) if reached(&first) >= reached(&second) => first,
        _ => second,
    }
}

/// Each value is paid for, so that there cannot be too many of them either.
fn limit(value: &Value, offset: usize) -> Result<(), CalcError> {
    let leaves = value.leaf_count();
    if leaves <= MAX_LEAVES {
        // Sums of basis elements take more room than integers.
        let each = if value.has_coords() { 512 } else { 128 };
        return work::pay(each * leaves).map_err(|e| CalcError::at(offset, e));
    }
    Err(CalcError::new(offset, format!("this value has more than {MAX_LEAVES} integers")))
}
