//! The calculator behind `tilewright layout 'EXPR'`: reads an expression over layouts from left to right and evaluates it
//! as it goes. `A o B` and `compose(A, B)` apply `B` first; coordinates count colexicographically (leftmost fastest).
//!
//! ```text
//! program := ("let" NAME "=" expr ";")* expr
//! expr    := applied (("o" | "∘") applied)*             composition, from left to right
//! applied := primary ("(" expr, … ")")*                 L(22), L(1,2), L((1,0),2): the value at a coordinate
//! primary := INTEGER | tuple ":" tuple                  4, ((2,2),8):((1,16),2); an integer n as a layout is n:1
//!          | "(" expr, … ")" | "<" expr, … ">"          concatenation or tuple; tiler: operations by mode
//!          | "Sw<" B "," M "," S ">" | NAME | NAME "(" expr, … ")"
//! ```
//!
//! Functions: see [`FUNCTIONS`]. Expressions are limited in length, nesting and the size of every intermediate result,
//! so that any text at all gives a value or an error.
//!
//! ```
//! use tilewright_layout::calc::evaluate;
//! assert_eq!(evaluate("((2,2),(4,2)):((1,8),(2,16)) (22)")?.to_string(), "26");
//! assert_eq!(evaluate("let A = (8,8):(8,1); A o ((4,8),2):((16,1),8)")?.to_string(), "((4,8),2):((2,8),1)");
//! assert_eq!(evaluate("zipped_divide((8,16):(1,8), <4,8>)")?.to_string(), "((4,8),(2,2)):((1,8),(4,64))");
//! # Ok::<(), tilewright_layout::calc::CalcError>(())
//! ```

use crate::error::LayoutError;
use crate::htuple::{HTuple, MAX_DEPTH};
use crate::layout::Layout;
use crate::swizzle::{Swizzle, SwizzledLayout};
use crate::text::Cursor;
use std::fmt;
use thiserror::Error;

mod functions;

pub use functions::FUNCTIONS;

/// The longest expression, in bytes.
pub const MAX_LENGTH: usize = 1 << 16;
/// The most integers in any one value.
pub const MAX_LEAVES: usize = 4096;

/// The value of an expression. Prints in the form in which it can be read again.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Value {
    /// A layout.
    Layout(Layout),
    /// A layout followed by a swizzle.
    Swizzled(SwizzledLayout),
    /// A swizzle.
    Swizzle(Swizzle),
    /// A tiler: layouts applied by mode (paper 3.3.5).
    Tiler(Vec<Layout>),
    /// An integer.
    Integer(i64),
    /// A hierarchical tuple of integers.
    Tuple(HTuple<i64>),
    /// Whether something holds.
    Bool(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Layout(l) => write!(f, "{l}"),
            Value::Swizzled(l) => write!(f, "{l}"),
            Value::Swizzle(s) => write!(f, "{s}"),
            Value::Tiler(t) => {
                let tiles: Vec<String> = t.iter().map(Layout::to_string).collect();
                write!(f, "<{}>", tiles.join(", "))
            }
            Value::Integer(n) => write!(f, "{n}"),
            Value::Tuple(t) => write!(f, "{t}"),
            Value::Bool(b) => write!(f, "{b}"),
        }
    }
}

impl Value {
    /// What the value is, with its article.
    fn kind(&self) -> &'static str {
        match self {
            Value::Layout(_) => "a layout",
            Value::Swizzled(_) => "a swizzled layout",
            Value::Swizzle(_) => "a swizzle",
            Value::Tiler(_) => "a tiler",
            Value::Integer(_) => "an integer",
            Value::Tuple(_) => "a tuple",
            Value::Bool(_) => "a truth value",
        }
    }

    fn leaf_count(&self) -> usize {
        match self {
            Value::Layout(l) => l.shape().leaf_count(),
            Value::Swizzled(l) => l.layout.shape().leaf_count(),
            Value::Tiler(t) => t.iter().map(|l| l.shape().leaf_count()).sum(),
            Value::Tuple(t) => t.leaf_count(),
            Value::Swizzle(_) | Value::Integer(_) | Value::Bool(_) => 1,
        }
    }

    /// A leaf as an integer, anything else as a tuple.
    fn from_htuple(t: HTuple<i64>) -> Value {
        match t {
            HTuple::Leaf(n) => Value::Integer(n),
            t => Value::Tuple(t),
        }
    }

    /// An integer or tuple as a hierarchical tuple.
    fn to_htuple(&self) -> Option<HTuple<i64>> {
        match self {
            Value::Integer(n) => Some(HTuple::Leaf(*n)),
            Value::Tuple(t) => Some(t.clone()),
            _ => None,
        }
    }
}

/// Why an expression has no value.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("at byte {offset}: {message}")]
pub struct CalcError {
    /// The offset in bytes of what is wrong.
    pub offset: usize,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl CalcError {
    fn new(offset: usize, message: impl Into<String>) -> CalcError {
        CalcError { offset, message: message.into() }
    }

    /// An error of the operation that stands at `offset`.
    fn at(offset: usize, error: LayoutError) -> CalcError {
        match error {
            LayoutError::Parse { offset, message } => CalcError { offset, message },
            error => CalcError { offset, message: error.to_string() },
        }
    }
}

/// The value of an expression; the module's documentation gives the grammar.
pub fn evaluate(expr: &str) -> Result<Value, CalcError> {
    if expr.len() > MAX_LENGTH {
        return Err(CalcError::new(MAX_LENGTH, format!("an expression has at most {MAX_LENGTH} bytes")));
    }
    let mut reader = Reader { cursor: Cursor::new(expr), names: Vec::new() };
    let value = reader.program()?;
    reader.cursor.end().map_err(|e| CalcError::at(0, e))?;
    Ok(value)
}

struct Reader<'a> {
    cursor: Cursor<'a>,
    names: Vec<(&'a str, Value)>,
}

impl<'a> Reader<'a> {
    fn program(&mut self) -> Result<Value, CalcError> {
        while self.eat_word("let") {
            let offset = self.cursor.pos();
            let name = match self.cursor.word() {
                Some(name) if !matches!(name, "let" | "o" | "Sw") => name,
                Some(name) => return Err(CalcError::new(offset, format!("`{name}` cannot be a name"))),
                None => return Err(self.unexpected("a name")),
            };
            self.expect("=")?;
            let value = self.expr(MAX_DEPTH)?;
            self.expect(";")?;
            self.names.retain(|(n, _)| *n != name);
            self.names.push((name, value));
        }
        self.expr(MAX_DEPTH)
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
        while self.cursor.peek() == Some('(') {
            self.expect("(")?;
            let args = self.list(depth, ")")?;
            value = functions::apply(&value, &args).map_err(|e| e.at(offset))?;
        }
        limit(&value, offset)?;
        Ok(value)
    }

    fn primary(&mut self, depth: usize) -> Result<Value, CalcError> {
        let offset = self.cursor.pos();
        let Some(depth) = depth.checked_sub(1) else {
            let message = format!("expressions nest deeper than {MAX_DEPTH} levels");
            return Err(CalcError::new(offset, message));
        };
        if self.cursor.at_integer() {
            let n = self.cursor.integer().map_err(|e| CalcError::at(offset, e))?;
            return self.layout_of(Value::Integer(n), offset);
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
        let start = self.cursor.clone();
        let Some(word) = self.cursor.word() else {
            return Err(self.unexpected("an expression"));
        };
        if word == "Sw" {
            self.cursor = start;
            return Swizzle::read(&mut self.cursor).map(Value::Swizzle).map_err(|e| CalcError::at(offset, e));
        }
        if let Some((_, value)) = self.names.iter().find(|(n, _)| *n == word) {
            return Ok(value.clone());
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
        let stride = self.cursor.integers().map_err(|e| CalcError::at(offset, e))?;
        Layout::new(shape, stride).map(Value::Layout).map_err(|e| CalcError::at(offset, e))
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

fn limit(value: &Value, offset: usize) -> Result<(), CalcError> {
    if value.leaf_count() <= MAX_LEAVES {
        return Ok(());
    }
    Err(CalcError::new(offset, format!("this value has more than {MAX_LEAVES} integers")))
}
