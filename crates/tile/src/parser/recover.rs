//! Going on behind a mistake of grammar: in a block at the next statement, in a list of parameters at the next parameter, at the top level at the
//! next declaration, function or kernel.
//!
//! Names in what could not be read are bound to nothing, so that their uses are no mistakes; a block behind a header that could not be read is
//! read. A core program is not written by hand, and its first mistake ends its reading.

use super::{MAX_ERRORS, Parser, Res};
use crate::build::Head;
use crate::diagnostic::{Diagnostic, Diagnostics, Span};
use crate::expr::Expr;
use crate::lexer::Tok;
use crate::names::is_reserved;

/// Words that begin something at the top level.
pub(super) const BEGINS: [&str; 6] = ["size", "const", "fn", "use", "space", "kernel"];

/// Words that begin a part of a kernel's header.
const HEADER: [&str; 3] = ["grid", "threads", "cluster"];

/// A place to which the parser goes back: a token, the blocks that are open there, and the calls of functions.
pub(super) struct Mark {
    pub(super) pos: usize,
    blocks: usize,
    calls: usize,
}

/// The mistakes of a text, and what of it was passed without being read.
#[derive(Default)]
pub(super) struct Mistakes {
    pub(super) errors: Vec<Diagnostic>,
    pub(super) passed: Vec<Span>,
}

impl From<Diagnostic> for Mistakes {
    fn from(error: Diagnostic) -> Self {
        Mistakes { errors: vec![error], passed: Vec::new() }
    }
}

impl From<Diagnostics> for Mistakes {
    fn from(errors: Diagnostics) -> Self {
        Mistakes { errors: errors.0, passed: Vec::new() }
    }
}

impl Parser<'_> {
    pub(super) fn mark(&self) -> Mark {
        let (blocks, calls) = self.build.nesting();
        Mark { pos: self.pos, blocks, calls }
    }

    /// Records mistakes behind which the parser goes on; an error after too many.
    pub(super) fn keep(&mut self, errors: Diagnostics) -> Res<()> {
        if self.core.is_some() {
            return Err(errors);
        }
        self.errors.extend(errors.0);
        if self.errors.len() >= MAX_ERRORS {
            return Err(Diagnostics(std::mem::take(&mut self.errors)));
        }
        Ok(())
    }

    /// A statement and its end; after a mistake the text goes on behind it.
    pub(super) fn statement_or_next(&mut self) -> Res<()> {
        let mark = self.mark();
        match self.statement().and_then(|()| self.end_of_statement()) {
            Ok(()) => Ok(()),
            Err(errors) => {
                self.keep(errors)?;
                self.pass_statement(&mark)
            }
        }
    }

    /// Goes to the end of the statement that begins at a mark. Blocks that were not reached are read.
    fn pass_statement(&mut self, mark: &Mark) -> Res<()> {
        let stopped = self.pos;
        self.build.unwind(mark.blocks, mark.calls);
        let end = self.end_of_line(mark.pos);
        // A mistake in a function's copy is behind the file.
        let reached = if (mark.pos..=end).contains(&stopped) { stopped } else { mark.pos };
        let mut from = mark.pos;
        let mut at = mark.pos;
        while at < end {
            let token = self.tokens[at];
            match token.tok {
                Tok::Punct("{") => {
                    self.pass(from, at);
                    if at >= reached && self.build.nesting().0 < super::MAX_DEPTH as usize {
                        self.pos = at;
                        self.build.begin(Head::If { condition: Expr::Int(1), otherwise: false });
                        self.block()?;
                        self.build.end(token.span);
                    }
                    at = token.close + 1;
                    from = at;
                }
                Tok::Punct("(" | "[") => at = token.close + 1,
                _ => at += 1,
            }
        }
        self.pass(from, end);
        self.pos = end;
        Ok(())
    }

    /// The token behind a statement or a declaration: the end of its line, or of the block around.
    fn end_of_line(&self, mut at: usize) -> usize {
        while let Some(token) = self.tokens.get(at) {
            match token.tok {
                Tok::Newline | Tok::End | Tok::Punct("}" | ")" | "]") => break,
                Tok::Punct("(" | "[" | "{") => at = token.close + 1,
                _ => at += 1,
            }
        }
        at.min(self.tokens.len() - 1)
    }

    /// Notes that tokens were not read, and binds the names among them that nothing has.
    fn pass(&mut self, from: usize, to: usize) {
        let Some(tokens) = self.tokens.get(from..to).filter(|tokens| !tokens.is_empty()) else { return };
        let tokens = tokens.to_vec();
        self.passed.push(tokens[0].span.to(tokens[tokens.len() - 1].span));
        for token in tokens.into_iter().filter(|token| token.tok == Tok::Word) {
            let name = self.text(token);
            if !is_reserved(name) && self.build.get(name).is_none() {
                self.build.poison(name, token.span);
            }
        }
    }

    /// Goes to the line behind a mark at the top level that begins something. What lies between is not read.
    pub(super) fn pass_item(&mut self, mark: &Mark) {
        self.build.unwind(mark.blocks, mark.calls);
        let from = mark.pos;
        let mut at = mark.pos;
        loop {
            let end = self.end_of_line(at);
            // A bracket that closes nothing is no token; one that the line does not close stands in a list that was left.
            at = if matches!(self.tokens[end].tok, Tok::Punct(_)) { end + 1 } else { end };
            while self.tokens.get(at).is_some_and(|token| token.tok == Tok::Newline) {
                at += 1;
            }
            let Some(token) = self.tokens.get(at).filter(|token| token.tok != Tok::End) else { break };
            if token.tok == Tok::Word && BEGINS.contains(&self.text(*token)) {
                break;
            }
        }
        self.pos = at.min(self.tokens.len() - 1);
        self.pass(from, self.pos);
    }

    /// Goes to the block of a kernel whose header could not be read; false if no line of the header has one.
    pub(super) fn pass_header(&mut self, mark: &Mark) -> bool {
        let mut at = mark.pos;
        loop {
            let token = self.tokens[at.min(self.tokens.len() - 1)];
            match token.tok {
                Tok::Punct("{") => {
                    self.build.unwind(mark.blocks, mark.calls);
                    self.pass(mark.pos, at);
                    self.pos = at;
                    return true;
                }
                Tok::Punct("(" | "[") => at = token.close + 1,
                Tok::Newline => {
                    let next = self.tokens[(at + 1).min(self.tokens.len() - 1)];
                    let goes_on = match next.tok {
                        Tok::Word => HEADER.contains(&self.text(next)),
                        Tok::Newline | Tok::Punct("{") => true,
                        _ => false,
                    };
                    if !goes_on {
                        return false;
                    }
                    at += 1;
                }
                Tok::End => return false,
                _ => at += 1,
            }
        }
    }

    /// The parameters of a kernel up to the closing parenthesis, which is passed; after a mistake in one the next is read.
    pub(super) fn params(&mut self) -> Res<()> {
        loop {
            self.skip_newlines();
            if self.eat(")") {
                return Ok(());
            }
            let mark = self.mark();
            if let Err(errors) = self.param() {
                self.keep(errors)?;
                self.pass_to_comma(&mark);
            }
            self.skip_newlines();
            if self.eat(",") || self.at(")") {
                continue;
            }
            let mark = self.mark();
            let mut error = self.unexpected("`)` or `,`");
            let next = self.token();
            let is_param = next.tok == Tok::Word && self.ahead(1).tok == Tok::Punct(":");
            if is_param {
                error = error.help(format!("put a `,` before the parameter `{}`", self.text(next)));
            }
            self.keep(error.into())?;
            if !is_param {
                self.pass_to_comma(&mark);
                self.eat(",");
            }
        }
    }

    /// Goes to the comma behind an item of a list, or to the list's end.
    fn pass_to_comma(&mut self, mark: &Mark) {
        self.build.unwind(mark.blocks, mark.calls);
        let mut at = mark.pos;
        while let Some(token) = self.tokens.get(at) {
            match token.tok {
                Tok::End | Tok::Punct("," | ")" | "]" | "}") => break,
                Tok::Punct("(" | "[" | "{") => at = token.close + 1,
                _ => at += 1,
            }
        }
        self.pass(mark.pos, at);
        self.pos = at.min(self.tokens.len() - 1);
    }
}
