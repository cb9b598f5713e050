//! `print("text", item, …)`.

use super::{Parser, Res};
use crate::diagnostic::Span;
use crate::lexer::Tok;
use crate::program::{Iteration, PrintItem, StmtKind};

impl Parser<'_> {
    /// `print("text", t, s[:, i], i + 1)`, in core programs also `for (i = i)`; the word is passed.
    pub(super) fn print(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `print`")?;
        let token = self.token();
        if token.tok != Tok::Text {
            let help = "it begins with words: `print(\"the sum\", total, i)`";
            return Err(self.unexpected("a text").help(help).into());
        }
        let text = self.text(token).trim_matches('"').to_string();
        self.next();
        let (mut items, mut whole) = (Vec::new(), true);
        // A core program says all that there is.
        let mut iteration = self.core.as_ref().map(|_| Iteration::new());
        while self.eat(",") {
            self.skip_newlines();
            if self.at(")") {
                break;
            }
            if self.core.is_some() && self.eat_word("for") {
                iteration = Some(self.iteration()?);
                break;
            }
            match self.print_item()? {
                Some(item) => items.push(item),
                None => whole = false,
            }
            self.skip_newlines();
        }
        self.skip_newlines();
        self.expect(")", "after the items")?;
        if whole {
            let span = self.since(start);
            self.build.emit(StmtKind::Print { text, items, iteration }, span);
        }
        Ok(())
    }

    /// A tensor, a part of one, an expression in registers, or an integer; `None` after a mistake about a name.
    fn print_item(&mut self) -> Res<Option<PrintItem>> {
        if !self.at_elements(&|_| true) {
            return Ok(Some(PrintItem::Integer(self.condition()?)));
        }
        let of = self.source()?;
        let mut extents = None;
        if self.core.is_some() && self.eat(":") {
            let mut list = Vec::new();
            self.expect("[", "and the extents that are shown")?;
            self.list("]", |p| {
                list.push(p.whole_number("an extent")?.into());
                Ok(())
            })?;
            extents = Some(list);
        }
        Ok(of.map(|of| PrintItem::Tensor { of, extents }))
    }

    /// `(i = i, j = 3)`.
    fn iteration(&mut self) -> Res<Iteration> {
        self.expect("(", "and the counters of the loops around: `for (i = i)`")?;
        let mut counters = Iteration::new();
        self.list(")", |p| {
            let (name, _) = p.word("the name of a counter")?;
            p.expect("=", "and its value")?;
            counters.push((name.to_string(), p.expr()?));
            Ok(())
        })?;
        Ok(counters)
    }
}
