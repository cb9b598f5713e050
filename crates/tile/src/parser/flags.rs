//! Statements with flags: what blocks tell each other by elements of an `i32` parameter.

use tilewright_machine::RedOp;

use super::{Parser, Res, syntax};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::program::{Flag, StmtKind};

/// A flag in examples of messages.
const EXAMPLE: &str = "e.g. `done[block.x]`, of a parameter `done: i32[blocks]`";

impl Parser<'_> {
    /// `done[block.x]`; `None` after a mistake about the name.
    fn flag(&mut self) -> Res<Option<Flag>> {
        let param = self.named_param("a flag: an element of a parameter of type i32")?;
        if !self.at("[") {
            return Err(self.unexpected("`[` and the index of the flag").help(EXAMPLE).into());
        }
        self.next();
        let mut index = Vec::new();
        loop {
            index.push(self.expr()?);
            if !self.eat(",") {
                break;
            }
            self.skip_newlines();
        }
        self.expect("]", "after the index of the flag")?;
        Ok(param.map(|param| Flag { param, index }))
    }

    /// `signal(done[i], value)`, `signal(done[i], value, add)`; the word is passed.
    pub(super) fn signal(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `signal`")?;
        let flag = self.flag()?;
        self.expect(",", "and the value of the flag")?;
        self.skip_newlines();
        let value = self.expr()?;
        let mut combine = None;
        if self.eat(",") {
            self.skip_newlines();
            let (word, span) = self.word("`add`, `max` or `min`")?;
            combine = RedOp::ALL.into_iter().find(|op| op.name() == word);
            if combine.is_none() {
                return Err(syntax(span, format!("a flag is not changed by `{word}`"))
                    .help("there are `add`, `max` and `min`; without one the value takes the flag's place")
                    .into());
            }
        }
        self.expect(")", "after the value of the flag, or `, add`")?;
        if let Some(flag) = flag {
            let span = self.since(start);
            self.build.emit(StmtKind::Signal { flag, value, combine }, span);
        }
        Ok(())
    }

    /// `wait(done[i] >= least)`; the word is passed.
    pub(super) fn wait(&mut self, start: Span) -> Res<()> {
        self.expect("(", "after `wait`")?;
        let flag = self.flag()?;
        if !self.at(">=") {
            let help = "a wait ends once the flag is at least a value: `wait(done[i] >= 1)`";
            return Err(self.unexpected("`>=` after the flag").help(help).into());
        }
        self.next();
        self.skip_newlines();
        let least = self.expr()?;
        self.expect(")", "after the least value of the flag")?;
        if let Some(flag) = flag {
            let span = self.since(start);
            self.build.emit(StmtKind::Await { flag, least }, span);
        }
        Ok(())
    }

    /// `let name = ticket(done[i], count)`; the word `ticket` is passed.
    pub(super) fn ticket(&mut self, name: &str, span: Span) -> Res<()> {
        self.expect("(", "after `ticket`")?;
        let flag = self.flag()?;
        self.expect(",", "and the number of tickets")?;
        self.skip_newlines();
        let count = self.expr()?;
        self.expect(")", "after the number of tickets")?;
        match (self.build.declare_ticket(name, span), flag) {
            (Ok(symbol), Some(flag)) => {
                let span = self.since(span);
                self.build.emit(StmtKind::Ticket { symbol, flag, count }, span);
            }
            (Err(error), _) => self.report(error)?,
            (Ok(_), None) => {}
        }
        Ok(())
    }

    /// `ticket(…)` elsewhere than behind `let name =`.
    pub(super) fn ticket_without_let(span: Span) -> Diagnostic {
        Diagnostic::new(Code::Syntax, span, "`ticket` gives an integer")
            .help("name it: `let turn = ticket(done[0], n)`")
    }
}
