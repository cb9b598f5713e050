//! Statements that give register tensors another shape, reduce them and gather from them.

use super::{Parser, Res, syntax};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::Expr;
use crate::lexer::Tok;
use crate::names::{is_reserved, nearest};
use crate::program::{ReduceOp, ShapeOp, StmtKind, TensorId};

impl Parser<'_> {
    /// `transpose(r)`, `transpose(r, 1, 0)`, `reshape(r, [A, B])`, `expand(r, 0)`, `slice(r, 1, 0, 64)`, `broadcast(r, [A, B])`;
    /// the opening parenthesis is passed.
    pub(super) fn shape(&mut self, word: &str, name: &str, span: Span) -> Res<()> {
        let src = self.tensor("a register tensor")?;
        let op = match word {
            "transpose" => {
                let mut order = Vec::new();
                if self.eat(",") {
                    self.list(")", |p| {
                        order.push(p.mode()?);
                        Ok(())
                    })?;
                } else {
                    self.expect(")", "after the tensor, or `,` and the order of its modes")?;
                }
                if order.is_empty() {
                    let rank = src.map_or(0, |src| self.build.result_shape(src).len());
                    order = (0..rank as u32).rev().collect();
                }
                ShapeOp::Transpose(order)
            }
            "expand" => {
                self.expect(",", "and the place of the new mode")?;
                let axis = self.mode()?;
                self.close()?;
                ShapeOp::Expand { axis }
            }
            "slice" => {
                self.expect(",", "and the mode")?;
                let axis = self.mode()?;
                self.expect(",", "and the first coordinate")?;
                let start = self.expr()?;
                self.expect(",", "and how many coordinates")?;
                let extent = self.expr()?;
                self.close()?;
                ShapeOp::Slice { axis, start, extent }
            }
            _ => {
                self.expect(",", "and the shape")?;
                let shape = self.bracketed_shape()?;
                self.close()?;
                if word == "reshape" { ShapeOp::Reshape(shape) } else { ShapeOp::Broadcast(shape) }
            }
        };
        let Some(src) = src else {
            self.poison_new(name, span);
            return Ok(());
        };
        let shape = self.build.reshaped(src, &op);
        self.assigned(name, span, src, shape, |dst| StmtKind::Shape { dst, src, op })
    }

    /// `join(a, b)`.
    pub(super) fn join(&mut self, name: &str, span: Span) -> Res<()> {
        let a = self.tensor("a register tensor")?;
        self.expect(",", "and the other tensor")?;
        let b = self.tensor("a register tensor")?;
        self.close()?;
        let (Some(a), Some(b)) = (a, b) else {
            self.poison_new(name, span);
            return Ok(());
        };
        let shape = self.build.joined(a);
        self.assigned(name, span, a, shape, |dst| StmtKind::Join { dst, a, b })
    }

    /// `reduce(r, sum, 1)`.
    pub(super) fn reduce(&mut self, name: &str, span: Span) -> Res<()> {
        let src = self.tensor("a register tensor")?;
        self.expect(",", "and `sum`, `max` or `min`")?;
        let (word, word_span) = self.word("`sum`, `max` or `min`")?;
        let Some(op) = ReduceOp::ALL.into_iter().find(|op| op.name() == word) else {
            let error = syntax(word_span, format!("there is no reduction `{word}`"))
                .label("expected `sum`, `max` or `min`");
            return Err(match nearest(word, ReduceOp::ALL.map(ReduceOp::name)) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None => error.help("there are sum, max and min"),
            }
            .into());
        };
        self.expect(",", "and the mode to reduce")?;
        let axis = self.mode()?;
        self.close()?;
        let Some(src) = src else {
            self.poison_new(name, span);
            return Ok(());
        };
        let shape = self.build.reduced(src, axis);
        self.assigned(name, span, src, shape, |dst| StmtKind::Reduce { dst, src, op, axis })
    }

    /// `gather(r, index, 1)`.
    pub(super) fn gather(&mut self, name: &str, span: Span) -> Res<()> {
        let src = self.tensor("a register tensor")?;
        self.expect(",", "and the index")?;
        let index = self.tensor("an index in registers")?;
        self.expect(",", "and the mode along which it reads")?;
        let axis = self.mode()?;
        self.close()?;
        let (Some(src), Some(index)) = (src, index) else {
            self.poison_new(name, span);
            return Ok(());
        };
        let shape = self.build.result_shape(index);
        self.assigned(name, span, src, shape, |dst| StmtKind::Gather { dst, src, index, axis })
    }

    /// `lo, hi = split(t)`; the first name is passed.
    pub(super) fn split(&mut self, lo: &str, lo_span: Span) -> Res<()> {
        self.expect(",", "and a second result")?;
        self.skip_newlines();
        let (hi, hi_span) = self.word("a name for the second result")?;
        for (name, span) in [(lo, lo_span), (hi, hi_span)] {
            if is_reserved(name) {
                return Err(self.misplaced_word(name, span, "a name for the result").into());
            }
        }
        self.expect("=", "and `split(…)`, which has two results")?;
        self.skip_newlines();
        if !self.at_word("split") {
            return Err(self
                .unexpected("`split(…)`")
                .help("only `split` has two results: `lo, hi = split(t)`")
                .into());
        }
        self.next();
        self.expect("(", "after `split`")?;
        let src = self.tensor("a register tensor")?;
        self.close()?;
        let Some(src) = src else {
            self.poison_new(lo, lo_span);
            self.poison_new(hi, hi_span);
            return Ok(());
        };
        let dtype = self.build.program.tensor(src).dtype;
        let mut halves = [None, None];
        for (slot, (name, span)) in halves.iter_mut().zip([(lo, lo_span), (hi, hi_span)]) {
            let shape = self.build.halved(src);
            match self.build.assign(name, span, dtype, shape, None) {
                Ok(id) => *slot = id,
                Err(error) => self.report(error)?,
            }
        }
        if let [Some(lo), Some(hi)] = halves {
            let span = self.since(lo_span);
            self.build.emit(StmtKind::Split { lo, hi, src }, span);
        }
        Ok(())
    }

    /// Emits an assignment to `name`, whose result has this shape and the type of `like`.
    fn assigned(
        &mut self,
        name: &str,
        span: Span,
        like: TensorId,
        shape: Vec<Expr>,
        kind: impl FnOnce(TensorId) -> StmtKind,
    ) -> Res<()> {
        let dtype = self.build.program.tensor(like).dtype;
        match self.build.assign(name, span, dtype, shape, None) {
            Ok(Some(dst)) => {
                let span = self.since(span);
                self.build.emit(kind(dst), span);
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(error) => self.report(error),
        }
    }

    fn close(&mut self) -> Res<()> {
        self.expect(")", "after the last operand").map(|_| ())
    }

    /// `[A, B]`.
    pub(super) fn bracketed_shape(&mut self) -> Res<Vec<Expr>> {
        self.expect("[", "and the shape, such as `[BM, BK]`")?;
        let mut shape = Vec::new();
        self.list("]", |p| {
            shape.push(p.expr()?);
            Ok(())
        })?;
        Ok(shape)
    }

    /// The number of a mode: a literal, for the shape of the result depends on it.
    pub(super) fn mode(&mut self) -> Res<u32> {
        let start = self.span();
        if !matches!(self.token().tok, Tok::Number | Tok::Word | Tok::Punct("(" | "-")) {
            return Err(self.unexpected("the number of a mode").into());
        }
        let before = self.errors.len();
        let value = self.expr()?;
        let span = self.since(start);
        if self.errors.len() > before {
            return Ok(0);
        }
        let (message, help) = match value.as_int().map(u32::try_from) {
            Some(Ok(mode)) => return Ok(mode),
            Some(Err(_)) => ("is not the number of a mode", "modes count from 0: the first is 0, the next 1"),
            None => (
                "is no literal, and the number of a mode is one",
                "the shape of the result depends on it: write 0 for the first mode, 1 for the next",
            ),
        };
        let message = format!("`{}` {message}", self.words(span));
        self.report(Diagnostic::new(Code::BadValue, span, message).help(help))?;
        Ok(0)
    }
}
