//! `print` and `assert`.

use super::{Elem, KernelBuilder, Reference, Source, Tensor};
use crate::diagnostic::{Code, Origin};
use crate::expr::Expr;
use crate::program::{Asserted, PrintItem, StmtKind};

/// An item of a [`print`](KernelBuilder::print).
#[derive(Clone, Debug)]
pub enum Item {
    /// An integer.
    Integer(Expr),
    /// A register tensor, a shared tensor that may be indexed, or an expression in registers.
    Tensor(Source),
}

impl From<Expr> for Item {
    fn from(value: Expr) -> Self {
        Item::Integer(value)
    }
}

impl From<&Expr> for Item {
    fn from(value: &Expr) -> Self {
        Item::Integer(value.clone())
    }
}

impl From<Tensor> for Item {
    fn from(tensor: Tensor) -> Self {
        Item::Tensor(tensor.into())
    }
}

impl From<&Tensor> for Item {
    fn from(tensor: &Tensor) -> Self {
        Item::Tensor(tensor.into())
    }
}

impl From<Reference> for Item {
    fn from(reference: Reference) -> Self {
        Item::Tensor(reference.into())
    }
}

impl From<Elem> for Item {
    fn from(value: Elem) -> Self {
        Item::Tensor(value.into())
    }
}

impl KernelBuilder {
    /// `assert(condition, text)`: the interpreter and the simulator report where the integer is 0.
    #[track_caller]
    pub fn assert(&mut self, condition: impl Into<Expr>, text: &str) {
        self.asserted(Asserted::Integer(condition.into()), text);
    }

    /// `assert(all(condition), text)`: the interpreter and the simulator report elements that are false.
    #[track_caller]
    pub fn assert_all(&mut self, condition: impl Into<Elem>, text: &str) {
        if let Some(tensor) = self.operand(condition) {
            self.asserted(Asserted::All(tensor), text);
        }
    }

    #[track_caller]
    fn asserted(&mut self, condition: Asserted, text: &str) {
        if self.is_text(text, "an assertion") {
            self.build.emit(StmtKind::Assert { condition, text: text.to_string() }, Origin::caller());
        }
    }

    /// `print(text, items)`: the interpreter and the simulator show the items.
    #[track_caller]
    pub fn print(&mut self, text: &str, items: impl IntoIterator<Item = Item>) {
        let mut shown = Vec::new();
        for item in items {
            let item = match item {
                Item::Integer(value) => Some(PrintItem::Integer(value)),
                Item::Tensor(source) => self.source(source).map(|of| PrintItem::Tensor { of, extents: None }),
            };
            match item {
                Some(item) => shown.push(item),
                None => return,
            }
        }
        if self.is_text(text, "a `print`") {
            let kind = StmtKind::Print { text: text.to_string(), items: shown, iteration: None };
            self.build.emit(kind, Origin::caller());
        }
    }

    /// True if a text can stand between quotation marks.
    #[track_caller]
    fn is_text(&mut self, text: &str, of: &str) -> bool {
        let fits = !text.contains(['"', '\n']);
        if !fits {
            let message = format!("the text of {of} has a quotation mark or a line break");
            self.misuse(Code::BadValue, message, "write it without");
        }
        fits
    }
}
