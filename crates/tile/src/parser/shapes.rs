//! Statements that give register tensors another shape, reduce them and gather from them.

use super::value::Target;
use super::{Parser, Res};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::Expr;
use crate::lexer::Tok;
use crate::printer::expr_text;
use crate::program::{CombineForm, ShapeOp, StmtKind, TensorId};

impl Parser<'_> {
    /// `transpose(r)`, `transpose(r, 1, 0)`, `reshape(r, [A, B])`, `expand(r, 0)`, `slice(r, 1, 0, 64)`, `broadcast(r, [A, B])`;
    /// the opening parenthesis is passed.
    pub(super) fn shape(&mut self, word: &str, to: Target<'_>) -> Res<Option<TensorId>> {
        let start = self.before_call();
        let src = self.operand_tensor("a register tensor")?;
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
        let Some(src) = src else { return Ok(self.no_value(to)) };
        if let ShapeOp::Reshape(extents) = &op
            && let Some(at) = extents.iter().position(|extent: &Expr| extent.as_int() == Some(-1))
        {
            let error = self.left_out(src, extents, at, self.since(start));
            self.report(error)?;
            return Ok(self.no_value(to));
        }
        let shape = self.build.reshaped(src, &op);
        self.like(to, src, shape, |dst| StmtKind::Shape { dst, src, op })
    }

    /// The message about an extent −1 of a reshape, as NumPy and PyTorch take it for the one that is left.
    fn left_out(&self, src: TensorId, extents: &[Expr], at: usize, span: Span) -> Diagnostic {
        let program = &self.build.program;
        // What the source's extents have and the other ones do not: equal factors go.
        let mut others: Vec<&Expr> =
            extents.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, e)| e).collect();
        let shape = self.build.result_shape(src);
        let mut left: Vec<Expr> = Vec::new();
        for extent in shape.clone() {
            match others.iter().position(|other| **other == extent) {
                Some(same) => drop(others.remove(same)),
                None => left.push(extent),
            }
        }
        let product = |factors: Vec<Expr>| factors.into_iter().reduce(|x, y| x * y);
        let mut extent = product(left).unwrap_or(Expr::Int(1));
        if let Some(divisor) = product(others.into_iter().cloned().collect()) {
            extent = extent / divisor;
        }
        let written = |(i, e): (usize, &Expr)| expr_text(program, if i == at { &extent } else { e });
        let mut texts: Vec<String> = extents.iter().enumerate().map(written).collect();
        let left = texts[at].clone();
        let mut help = format!("the extent that is left is `{left}`: `[{}]`", texts.join(", "));
        // The last mode of the source in two: NumPy counts the last of them fastest, and here the first is.
        let kept = extents.len().saturating_sub(2);
        if shape.len() == kept + 1 && shape[..kept] == extents[..kept] {
            texts.swap(kept, kept + 1);
            help = format!(
                "the extent that is left is `{left}`; the first mode is the fastest here, so that groups of {} neighbours are `[{}]`, with the \
                 places within a group along mode {kept}, as in `reduce(…, max, {kept})`",
                texts[kept],
                texts.join(", ")
            );
        }
        let message = "an extent of -1 stands for no number: `reshape` is given every extent";
        Diagnostic::new(Code::BadValue, span, message).help(help)
    }

    /// `join(a, b)`.
    pub(super) fn join(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let a = self.operand_tensor("a register tensor")?;
        self.expect(",", "and the other tensor")?;
        let b = self.operand_tensor("a register tensor")?;
        self.close()?;
        let (Some(a), Some(b)) = (a, b) else { return Ok(self.no_value(to)) };
        let shape = self.build.joined(a);
        self.like(to, a, shape, |dst| StmtKind::Join { dst, a, b })
    }

    /// `reduce(r, sum, 1)`, `reduce(r, sum, 1, keep)`: the second puts a mode of extent 1 in the place of the one that goes.
    pub(super) fn reduce(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let start = self.before_call();
        let src = self.operand_tensor("a register tensor")?;
        self.expect(",", "and `sum`, `max`, `min` or `product`, or a function")?;
        if self.at_function() {
            return self.combined_one(to, src, CombineForm::Reduce);
        }
        let op = self.reduction("reduction")?;
        self.expect(",", "and the mode to reduce")?;
        let axis = self.mode()?;
        let keep = self.eat(",") && !self.at(")");
        if keep && !self.eat_word("keep") {
            return Err(self.unexpected("`keep` or `)`").into());
        }
        if keep {
            self.eat(",");
        }
        self.close()?;
        let Some(src) = src else { return Ok(self.no_value(to)) };
        let shape = self.build.reduced(src, axis);
        let kind = |dst| StmtKind::Reduce { dst, src, op, axis };
        // Of a tensor of one mode an extent of 1 is left in any case.
        if !keep || self.build.result_shape(src).len() < 2 {
            return self.like(to, src, shape, kind);
        }
        let at = self.since(start);
        let Some(src) = self.like(Target::Operand(at), src, shape, kind)? else {
            return Ok(self.no_value(to));
        };
        let op = ShapeOp::Expand { axis };
        let shape = self.build.reshaped(src, &op);
        let kept = self.like(to, src, shape, |dst| StmtKind::Shape { dst, src, op })?;
        if let (Some(kept), Target::Operand(_)) = (kept, to) {
            self.build.say_kept(kept, src);
        }
        Ok(kept)
    }

    /// `gather(r, index, 1)`.
    pub(super) fn gather(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let src = self.operand_tensor("a register tensor")?;
        self.expect(",", "and the index")?;
        let index = self.operand_tensor("an index in registers")?;
        self.expect(",", "and the mode along which it reads")?;
        let axis = self.mode()?;
        self.close()?;
        let (Some(src), Some(index)) = (src, index) else { return Ok(self.no_value(to)) };
        let shape = self.build.result_shape(index);
        self.like(to, src, shape, |dst| StmtKind::Gather { dst, src, index, axis })
    }

    pub(super) fn close(&mut self) -> Res<()> {
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
