//! Checks of `print`.

use tilewright_machine::Memory;

use super::checker::{Allowed, Checker};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{Iteration, PrintItem, TensorRef};

impl Checker<'_> {
    /// `print(text, items)`.
    pub(super) fn print(&mut self, items: &[PrintItem], iteration: Option<&Iteration>, span: Origin) {
        for item in items {
            match item {
                PrintItem::Integer(value) => {
                    self.expr(value, Allowed::All, span, "the integer that is printed");
                }
                PrintItem::Tensor { of, .. } => self.printed(of, span),
            }
        }
        for (_, value) in iteration.into_iter().flatten() {
            self.expr(value, Allowed::All, span, "the counter");
        }
    }

    fn printed(&mut self, r: &TensorRef, span: Origin) {
        let Some(operand) = self.reference(r, span) else { return };
        let (name, at) = (self.name(r.tensor).to_string(), r.span.or(span));
        let (code, message, help) = if operand.memory == Memory::Global {
            let message =
                format!("`{name}` is in global memory, and `print` shows registers and shared memory");
            (Code::WrongMemory, message, "copy a tile of it into a register tensor first")
        } else if r.transposed {
            let message = format!("`print` shows `{name}` as it lies, not transposed");
            (Code::BadValue, message, "print it without `transpose`")
        } else if r.indexed.is_some() {
            let message = format!("a register tensor indexes `{name}`, which `print` shows");
            (Code::BadValue, message, "copy what it names into a register tensor first")
        } else {
            return;
        };
        self.report(Diagnostic::new(code, at, message).help(help));
    }
}
