//! Values: what stands to the right of `t = `, and expressions where a tensor may stand. A part of an expression that is a statement becomes
//! one, whose result has no name.

use tilewright_layout::Layout;
use tilewright_machine::{AtomicOp, DType, Memory};

use super::core::no_parts;
use super::{Parser, Res};
use crate::build::Named;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::expr::Expr;
use crate::lexer::Tok;
use crate::names::{Word, is_reserved, word};
use crate::printer::expr_text;
use crate::program::{CopyAttrs, ElemExpr, Fetch, StmtKind, TensorId, TensorKind, TensorRef};

/// The tensor that gets a value.
#[derive(Clone, Copy)]
pub(super) enum Target<'a> {
    /// `t = …`: the one of this name, or a new one.
    Named(&'a str, Span),
    /// A new one without a name, for the expression that begins here.
    Operand(Span),
}

/// True for a word whose call is a value in registers.
pub(super) fn is_value(name: &str) -> bool {
    let others = [
        "global_view",
        "register_tensor",
        "shared_tensor",
        "tensor_memory",
        "pipeline",
        "split",
        "argmax",
        "argmin",
    ];
    word(name) == Some(Word::Value) && !others.contains(&name)
}

impl Parser<'_> {
    /// The call of a value, `cast(…)`, `reduce(…)`; the opening parenthesis is passed.
    pub(super) fn value(&mut self, word: &str, to: Target<'_>) -> Res<Option<TensorId>> {
        match word {
            "cast" => self.cast(to),
            "rearrange" => self.rearrange(to),
            "join" => self.join(to),
            "reduce" => self.reduce(to),
            "scan" => self.scan(to),
            "sort" => self.sort(to),
            "gather" => self.gather(to),
            "ticket" => {
                let span = self.tokens[self.pos.saturating_sub(2)].span;
                Err(Self::ticket_without_let(span).into())
            }
            _ => match AtomicOp::ALL.into_iter().find(|op| op.word() == Some(word)) {
                Some(op) => self.atomic(op, to),
                None => self.shape(word, to),
            },
        }
    }

    /// True if the call here is a value, and all that is assigned.
    pub(super) fn is_value_alone(&self) -> bool {
        let close = self.ahead(1).close;
        is_value(self.text(self.token()))
            && self
                .tokens
                .get(close + 1)
                .is_none_or(|after| matches!(after.tok, Tok::Newline | Tok::End | Tok::Punct("}")))
    }

    /// The place of the word of a call, whose opening parenthesis was just passed.
    pub(super) fn before_call(&self) -> Span {
        self.tokens[self.pos.saturating_sub(2)].span
    }

    /// Emits a statement whose result is a value of this type and shape.
    fn result(
        &mut self,
        to: Target<'_>,
        dtype: DType,
        shape: (Vec<Expr>, Option<Layout>),
        kind: impl FnOnce(TensorId) -> StmtKind,
    ) -> Res<Option<TensorId>> {
        match to {
            Target::Named(name, start) => {
                let dst = match self.build.assign(name, start, dtype, shape.0, shape.1) {
                    Ok(dst) => dst,
                    Err(error) => {
                        self.report(error)?;
                        None
                    }
                };
                if let Some(dst) = dst {
                    let span = self.since(start);
                    self.build.emit(kind(dst), span);
                }
                Ok(dst)
            }
            Target::Operand(start) => {
                let span = self.since(start);
                if self.build.declared {
                    let message = "a core program gives every value a name".to_string();
                    let help = "declare a register tensor, and assign to it on a line of its own";
                    self.report(Diagnostic::new(Code::BadValue, span, message).help(help))?;
                    return Ok(None);
                }
                Ok(Some(self.build.unnamed(dtype, shape, kind, span)))
            }
        }
    }

    /// [`result`](Self::result) of the type of `like`.
    pub(super) fn like(
        &mut self,
        to: Target<'_>,
        like: TensorId,
        shape: Vec<Expr>,
        kind: impl FnOnce(TensorId) -> StmtKind,
    ) -> Res<Option<TensorId>> {
        let dtype = self.build.program.tensor(like).dtype;
        self.result(to, dtype, (shape, None), kind)
    }

    /// `atomic_add(v[…], r)`, `atomic_cas(v[…], expected, r)`.
    fn atomic(&mut self, op: AtomicOp, to: Target<'_>) -> Res<Option<TensorId>> {
        let place = self.reference()?;
        let mut compare = None;
        if op == AtomicOp::CompareAndSwap {
            self.expect(",", "and what the elements are compared with")?;
            compare = self.operand_tensor("a register tensor")?;
            if compare.is_none() {
                self.expect(",", "and the new elements")?;
                self.operand_tensor("a register tensor")?;
                self.expect(")", "after the new elements")?;
                return Ok(self.no_value(to));
            }
        }
        self.expect(",", "and a register tensor")?;
        let start = self.span();
        let src = self.operand_tensor("a register tensor")?;
        let span = self.since(start);
        self.expect(")", "after the register tensor")?;
        let (Some(dst), Some(src)) = (place, src) else { return Ok(self.no_value(to)) };
        let shape = self.build.result_shape(src);
        let combine = if let AtomicOp::Combine(op) = op { Some(op) } else { None };
        self.like(to, src, shape, |old| {
            let src = TensorRef { span: span.into(), ..TensorRef::whole(src) };
            let fetch = Some(Fetch { op, old, compare });
            StmtKind::Copy { src, dst, how: CopyAttrs { outside: None, combine, fetch } }
        })
    }

    /// A value that could not be made.
    pub(super) fn no_value(&mut self, to: Target<'_>) -> Option<TensorId> {
        if let Target::Named(name, span) = to {
            self.poison_new(name, span);
        }
        None
    }

    /// Binds the name of a result that could not be made, unless it exists. Reports it where it is a parameter's.
    pub(super) fn poison_new(&mut self, name: &str, span: Span) {
        if self.build.get(name).is_none() {
            self.build.poison(name, span);
        } else if let Some(Named::Param(_)) = self.build.get(name) {
            self.errors.extend(self.build.bound_anew(name, span.into()));
        }
    }

    /// `(src, dtype)`.
    fn cast(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let src = self.operand_tensor("a register tensor")?;
        self.expect(",", "and an element type")?;
        let type_span = self.span();
        let dtype = self.dtype()?;
        self.expect(")", "after the element type")?;
        let Some(src) = src else { return Ok(self.no_value(to)) };
        if let Target::Named(name, _) = to
            && let Some(Named::Tensor(dst)) = self.build.get(name)
        {
            let tensor = self.build.program.tensor(dst);
            if tensor.dtype != dtype {
                let message =
                    format!("`{name}` has element type {}, and the cast is to {dtype}", tensor.dtype);
                let error = Diagnostic::new(Code::TypeMismatch, type_span, message)
                    .related(tensor.span, "defined here")
                    .help(format!("cast to {}, or give the result another name", tensor.dtype));
                self.report(error)?;
                return Ok(None);
            }
        }
        let shape = self.build.result_shape(src);
        self.result(to, dtype, (shape, None), |dst| StmtKind::Cast { dst, src })
    }

    /// `(src)` or `(src, layout = …)`.
    fn rearrange(&mut self, to: Target<'_>) -> Res<Option<TensorId>> {
        let close = self.tokens[self.pos - 1].close;
        let src = self.operand_tensor("a register tensor")?;
        let pinned = self.pinned::<Layout>(close)?;
        let Some(src) = src else { return Ok(self.no_value(to)) };
        let (dtype, shape) = (self.build.program.tensor(src).dtype, self.build.result_shape(src));
        self.result(to, dtype, (shape, pinned), |dst| StmtKind::Rearrange { dst, src })
    }

    /// `t = expression`.
    pub(super) fn elementwise_assignment(&mut self, name: &str, span: Span) -> Res<()> {
        let before = self.errors.len();
        let expr = self.elementwise()?;
        let whole = self.since(span);
        if self.errors.len() > before || poisoned(&expr) {
            self.poison_new(name, span);
            return Ok(());
        }
        self.assign_elementwise(name, span, expr, whole)
    }

    /// Assigns an expression, which the text has read, to the tensor of this name, or to a new one.
    pub(super) fn assign_elementwise(
        &mut self,
        name: &str,
        span: Span,
        expr: ElemExpr,
        whole: Span,
    ) -> Res<()> {
        let operands = expr.tensors();
        if let Some(shape) = self.build.elementwise_shape(&operands) {
            let dtype = self.build.result_type(&expr);
            let kind = |dst| StmtKind::Elementwise { dst, expr };
            return self.result(Target::Named(name, span), dtype, (shape, None), kind).map(|_| ());
        }
        // Without a tensor operand only an existing tensor tells the shape.
        match self.build.get(name) {
            Some(Named::Tensor(dst)) => {
                self.build.emit(StmtKind::Elementwise { dst, expr }, whole);
                Ok(())
            }
            Some(Named::Poisoned) => Ok(()),
            _ => {
                if let Some(error) = self.integer_assigned(name, &expr, whole) {
                    self.poison_new(name, span);
                    return self.report(error);
                }
                self.build.poison(name, span);
                let error = Diagnostic::new(
                    Code::WrongRank,
                    whole,
                    format!("the shape of `{name}` is not known: no register tensor stands on the right"),
                );
                let help = self.how_to_define(name, &expr);
                self.report(error.help(help))
            }
        }
    }

    /// The remedy for a tensor of no known shape: a definition in the shape of another register tensor of the program.
    fn how_to_define(&self, name: &str, expr: &ElemExpr) -> String {
        let program = &self.build.program;
        let shape = program.tensors.iter().find_map(|row| match &row.kind {
            TensorKind::Register { shape, .. } => {
                Some(shape.iter().map(|extent| expr_text(program, extent)).collect::<Vec<_>>().join(", "))
            }
            _ => None,
        });
        let define =
            format!("`{name} = register_tensor(f32, [{}])`", shape.unwrap_or_else(|| "16, 16".to_string()));
        match expr {
            ElemExpr::Number(value) => format!(
                "a tensor of numbers is defined and filled: {define}, `fill({name}, {value:?})`; what is summed up along a mode is \
                 `reduce(x, sum, 0)`, and needs no accumulator"
            ),
            _ => format!("define it first: {define}"),
        }
    }

    /// The index of the token behind a name here, and its index in brackets if there is one.
    fn behind_name(&self, at: usize) -> Option<usize> {
        let token = self.tokens.get(at).filter(|token| token.tok == Tok::Word)?;
        let bracket = self.tokens.get(at + 1)?;
        let indexed = bracket.tok == Tok::Punct("[") && !is_reserved(self.text(*token));
        Some(if indexed { bracket.close + 1 } else { at + 1 })
    }

    /// True if a tensor is named here, and no expression goes on behind it.
    fn is_name_alone(&self, at: usize) -> bool {
        let behind = self.behind_name(at).and_then(|behind| self.tokens.get(behind));
        behind.is_some_and(|token| matches!(token.tok, Tok::Punct("," | ")") | Tok::Newline | Tok::End))
    }

    /// A tensor in registers: a name, a part, or an expression, which becomes one. `None` after a mistake about a name.
    pub(super) fn operand_tensor(&mut self, what: &str) -> Res<Option<TensorId>> {
        let begins = matches!(self.token().tok, Tok::Word | Tok::Number | Tok::Punct("(" | "-"));
        if self.core.is_some() || !begins || self.is_name_alone(self.pos) {
            return self.tensor(what);
        }
        self.expression_tensor(None)
    }

    /// An expression, whose value gets a tensor. Without a tensor operand it has the type and the shape of `like`.
    fn expression_tensor(&mut self, like: Option<(DType, Vec<Expr>)>) -> Res<Option<TensorId>> {
        let (start, before) = (self.span(), self.errors.len());
        let expr = self.elementwise()?;
        if self.errors.len() > before || poisoned(&expr) {
            return Ok(None);
        }
        if let ElemExpr::Tensor(id) = expr {
            return Ok(Some(id));
        }
        let operands = expr.tensors();
        let shape = self.build.elementwise_shape(&operands);
        let of_operands = shape.map(|shape| (self.build.result_type(&expr), shape));
        let Some((dtype, shape)) = of_operands.or(like) else {
            let span = self.since(start);
            let message =
                format!("the shape of `{}` is not known: it has no register tensor", self.words(span));
            let help = self.how_to_fill(&expr);
            self.report(Diagnostic::new(Code::WrongRank, span, message).help(help))?;
            return Ok(None);
        };
        let kind = |dst| StmtKind::Elementwise { dst, expr };
        self.result(Target::Operand(start), dtype, (shape, None), kind)
    }

    /// Operand that a copy or a product reads: a reference to a tensor in any memory, or an expression in registers.
    pub(super) fn source(&mut self) -> Res<Option<TensorRef>> {
        let begins = matches!(self.token().tok, Tok::Word | Tok::Number | Tok::Punct("(" | "-"));
        let transposed = self.at_word("transpose") && self.ahead(1).tok == Tok::Punct("(");
        let named = self.pos + if transposed { 2 } else { 0 };
        let in_registers = || match self.tokens.get(named).map(|token| self.build.get(self.text(*token))) {
            Some(Some(Named::Tensor(id))) => self.build.program.tensor(id).memory() == Memory::Register,
            _ => false,
        };
        let refers = self.is_name_alone(named) && !(transposed && in_registers());
        if self.core.is_some() || !begins || refers {
            return self.reference();
        }
        let start = self.span();
        let tensor = self.expression_tensor(None)?;
        let span = self.since(start);
        Ok(tensor.map(|tensor| TensorRef { span: span.into(), ..TensorRef::whole(tensor) }))
    }

    /// True if the statement here is `t[…] = …`.
    pub(super) fn assigns_a_part(&self) -> bool {
        let equals = |at: usize| self.tokens.get(at).is_some_and(|token| token.tok == Tok::Punct("="));
        self.ahead(1).tok == Tok::Punct("[") && self.behind_name(self.pos).is_some_and(equals)
    }

    /// `h[:, :, n] = expression`: a copy of its value.
    pub(super) fn part_assignment(&mut self) -> Res<()> {
        let start = self.span();
        let of = self.named_tensor("a register tensor")?;
        let index = self.index(start)?;
        let at = self.since(start);
        self.expect("=", "and a value")?;
        self.skip_newlines();
        if self.core.is_some() {
            self.report(no_parts(at))?;
        }
        let value = self.span();
        let like = of.map(|of| (self.build.program.tensor(of).dtype, self.build.part_shape(of, &index)));
        let src = self.expression_tensor(like)?;
        let (Some(of), Some(src)) = (of, src) else { return Ok(()) };
        let row = self.build.program.tensor(of);
        let (name, memory) = (row.name.clone(), row.memory());
        let (whole, text) = (self.since(start), self.words(at));
        if memory != Memory::Register {
            let message =
                format!("`{name}` is in {memory} memory, and only to parts of register tensors is assigned");
            return self.report(
                Diagnostic::new(Code::WrongMemory, at, message)
                    .help(format!("copy the value there: `copy(…, {text})`")),
            );
        }
        let dst = self.build.part(of, index, at);
        let reference = |tensor, span: Span| TensorRef { span: span.into(), ..TensorRef::whole(tensor) };
        let (src, dst) = (reference(src, value.to(whole)), reference(dst, at));
        self.build.emit(StmtKind::Copy { src, dst, how: CopyAttrs::default() }, whole);
        Ok(())
    }
}

/// True if an operand was missing.
fn poisoned(expr: &ElemExpr) -> bool {
    let mut missing = false;
    expr.visit(&mut |x| missing |= matches!(x, ElemExpr::Number(x) if x.is_nan()));
    missing
}
