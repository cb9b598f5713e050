//! Calls of functions: the copy of the function's text is read where the call stands, with names of its own.

use tilewright_machine::Memory;

use super::expr::mistyped;
use super::{Parser, Res, syntax};
use crate::build::{Given, Named};
use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin, Span};
use crate::expr::Expr;
use crate::lexer::Tok;
use crate::names::is_reserved;
use crate::program::{BinaryOp, ElemExpr, ParamKind, StmtKind, TensorId, TensorKind, TensorRef};

/// A call whose function is being read.
struct Call<'a> {
    name: &'a str,
    span: Span,
    /// The token behind the call.
    behind: usize,
}

impl<'a> Parser<'a> {
    /// True if the token is the name of a function that is called.
    pub(super) fn is_call(&self, token: usize) -> bool {
        self.prepared.is_some_and(|prepared| prepared.calls.contains_key(&token))
    }

    /// True if a function is called here: its name was passed.
    pub(super) fn calls_function(&self) -> bool {
        self.is_call(self.pos.saturating_sub(1))
    }

    /// The part of a tensor that a parameter stands for, if the name of one is here.
    pub(super) fn given_tensor(&self) -> Option<TensorRef> {
        let token = self.token();
        match self.build.get(self.text(token)) {
            Some(Named::Given(given)) if token.tok == Tok::Word => match &self.build.given[given] {
                Given::Tensor(part) => Some(part.clone()),
                _ => None,
            },
            _ => None,
        }
    }

    /// `g`, `g[:, i]`, `transpose(g)` of a parameter that stands for a part: an index fixes modes that the part keeps.
    pub(super) fn part_of_given(
        &mut self,
        given: TensorRef,
        transposed: bool,
        start: Span,
    ) -> Res<Option<TensorRef>> {
        self.next();
        let index = self.index(start)?;
        if transposed {
            self.expect(")", "after the transposed tensor")?;
        }
        let span = self.since(start);
        let kept = given.index.iter().filter(|entry| entry.is_none()).count();
        if !index.is_empty() && (index.len() != kept || given.transposed) {
            let message = format!("the part has {kept} modes, and {} are indexed", index.len());
            self.report(Diagnostic::new(Code::WrongRank, span, message).related(given.span, "the part"))?;
            return Ok(None);
        }
        let mut entries = index.into_iter();
        let index =
            given.index.iter().map(|entry| entry.clone().or_else(|| entries.next().flatten())).collect();
        Ok(Some(TensorRef { index, transposed: transposed != given.transposed, span: span.into(), ..given }))
    }

    /// Reads the arguments of the call whose name was passed, and goes to the statements of the function.
    fn begin_call(&mut self) -> Res<Call<'a>> {
        let token = self.tokens[self.pos - 1];
        let name = self.text(token);
        let known = self.prepared.and_then(|prepared| {
            let (number, first) = prepared.calls.get(&(self.pos - 1))?;
            Some((prepared.functions.get(*number)?, *first))
        });
        let Some((function, first)) = known else {
            return Err(Diagnostic::internal(token.span, format!("no text of the function `{name}`")).into());
        };
        self.expect("(", "and the arguments")?;
        let mut given: Vec<Named> = Vec::new();
        self.list(")", |p| {
            given.push(p.argument()?);
            Ok(())
        })?;
        let span = self.since(token.span);
        if given.len() != function.params.len() {
            let names: Vec<&str> = function.params.iter().map(|(name, _)| name.as_str()).collect();
            let message =
                format!("`{name}` takes {} arguments, and {} are given", function.params.len(), given.len());
            return Err(syntax(span, message)
                .related(function.span, "defined here")
                .help(format!(
                    "its parameters are {}",
                    if names.is_empty() { "none".to_string() } else { names.join(", ") }
                ))
                .into());
        }
        let params = function.params.iter().zip(given);
        let params = params.map(|((name, span), named)| (name.clone(), Origin::from(*span), named)).collect();
        self.build.enter(name, params);
        let behind = self.pos;
        // The `{` of the copy.
        self.pos = first + 1;
        Ok(Call { name, span, behind })
    }

    /// The statements of a function, up to its `return` or its end: true if it returns something, whose expressions follow.
    fn statements_of(&mut self) -> Res<bool> {
        loop {
            self.skip_newlines();
            if self.at("}") {
                return Ok(false);
            }
            if self.eat_word("return") {
                return Ok(!matches!(self.token().tok, Tok::Newline) && !self.at("}"));
            }
            self.statement_or_next()?;
        }
    }

    /// Goes back to where the call stands.
    fn end_call(&mut self, call: &Call<'_>) -> Res<()> {
        self.skip_newlines();
        if !self.at("}") {
            let name = call.name;
            return Err(self
                .unexpected("`}`")
                .help(format!("`return` is the last statement of the function `{name}`"))
                .into());
        }
        self.build.leave();
        self.pos = call.behind;
        Ok(())
    }

    /// An argument: a name stands for what it names; an integer, a number, or a part of a view or a shared tensor for itself. Any other
    /// expression is computed once, into a tensor of its own.
    fn argument(&mut self) -> Res<Named> {
        let token = self.token();
        let ends =
            |p: &Self, at: usize| matches!(p.tokens.get(at).map(|t| t.tok), Some(Tok::Punct("," | ")")));
        let word = token.tok == Tok::Word && !is_reserved(self.text(token));
        let named = if word { self.build.get(self.text(token)) } else { None };
        if word && ends(self, self.pos + 1) {
            self.next();
            let name = self.text(token);
            return match self.build.lookup(name, token.span, "an argument") {
                Ok(Named::Role) => Err(mistyped(name, token.span, "a role", "an argument").into()),
                Ok(Named::Function) => Err(mistyped(name, token.span, "a function", "an argument").into()),
                Ok(Named::Symbol(id)) => Ok(self.build.give(Given::Integer(Expr::Symbol(id)))),
                Ok(named) => Ok(named),
                Err(error) => {
                    self.report(error)?;
                    Ok(Named::Poisoned)
                }
            };
        }
        let indexed = word && matches!(self.ahead(1).tok, Tok::Punct("["));
        if indexed && ends(self, self.ahead(1).close + 1) {
            let whole = match named {
                Some(Named::Tensor(id)) => Some(self.build.program.tensor(id).memory()),
                Some(Named::Given(given)) => match self.build.given[given] {
                    Given::Tensor(_) => Some(Memory::Shared),
                    _ => None,
                },
                _ => None,
            };
            if whole.is_some_and(|memory| memory != Memory::Register) {
                let part = self.reference()?;
                return Ok(part.map_or(Named::Poisoned, |part| self.build.give(Given::Tensor(part))));
            }
        }
        if self.is_integer() {
            let value = self.expr()?;
            return Ok(self.build.give(Given::Integer(value)));
        }
        let start = self.span();
        let before = self.errors.len();
        let value = self.elementwise()?;
        if self.errors.len() > before {
            return Ok(Named::Poisoned);
        }
        match value {
            ElemExpr::Tensor(id) => Ok(Named::Tensor(id)),
            value if value.tensors().is_empty() => Ok(self.build.give(Given::Number(value))),
            value => {
                let span = self.since(start);
                Ok(self.computed(value, span).map_or(Named::Poisoned, Named::Tensor))
            }
        }
    }

    /// True if what stands here, up to a comma or a closing bracket, is an integer expression.
    fn is_integer(&self) -> bool {
        let mut at = self.pos;
        loop {
            let token = self.tokens[at];
            match token.tok {
                Tok::Punct("," | ")" | "]" | "}") | Tok::End | Tok::Newline => return at > self.pos,
                Tok::Number if self.text(token).contains(['.', 'e', 'E']) => return false,
                Tok::Word => match self.text(token) {
                    "min" | "max" | "ceil_div" => {}
                    "block" => at += 2,
                    name => match self.build.get(name) {
                        Some(Named::Symbol(_)) => {}
                        Some(Named::Given(given)) if matches!(self.build.given[given], Given::Integer(_)) => {
                        }
                        Some(Named::Param(id)) => {
                            let param = self.build.program.param(id);
                            if param.is_integer() {
                                at += 1;
                                continue;
                            }
                            let element = matches!(param.kind, ParamKind::Tensor { .. });
                            let next = self.tokens[at + 1];
                            if !element || next.tok != Tok::Punct("[") {
                                return false;
                            }
                            at = next.close;
                        }
                        _ => return false,
                    },
                },
                Tok::Punct("(") if at > self.pos && self.tokens[at - 1].tok == Tok::Word => {
                    // Both operands of `min(a, b)`, each an integer or none.
                    at = token.close;
                }
                _ => {}
            }
            at += 1;
        }
    }
}

impl<'a> Parser<'a> {
    /// The call of a function as a part of an elementwise expression; its name was passed.
    pub(super) fn elementwise_call(&mut self) -> Res<(ElemExpr, u32)> {
        let call = self.begin_call()?;
        self.value_of(&call)?;
        let start = self.span();
        let value = self.elem_level(BinaryOp::OR)?;
        self.values.push((call.name.to_string(), call.span, self.since(start)));
        self.one_result(&call)?;
        self.end_call(&call)?;
        Ok(value)
    }

    /// The call of a function as a part of an integer expression; its name was passed.
    pub(super) fn integer_call(&mut self) -> Res<(Expr, u32)> {
        let call = self.begin_call()?;
        self.value_of(&call)?;
        let value = self.sum()?;
        self.one_result(&call)?;
        self.end_call(&call)?;
        Ok(value)
    }

    /// The statements of a function up to its value.
    fn value_of(&mut self, call: &Call<'_>) -> Res<()> {
        let before = self.errors.len();
        if self.statements_of()? {
            return Ok(());
        }
        // After a mistake in it nothing is said of what it lacks.
        let missing = (self.errors.len() == before).then(|| no_result(call));
        Err(Diagnostics(missing.into_iter().collect()))
    }

    fn one_result(&self, call: &Call<'_>) -> Res<()> {
        if !self.at(",") {
            return Ok(());
        }
        let name = call.name;
        Err(syntax(call.span, format!("`{name}` returns several values, and one is taken here"))
            .help(format!("name all of them, on a line of their own: `a, b = {name}(…)`"))
            .into())
    }

    /// The call of a function as a statement; its name was passed.
    pub(super) fn call_statement(&mut self) -> Res<()> {
        let call = self.begin_call()?;
        if self.statements_of()? {
            let name = call.name;
            return Err(syntax(call.span, format!("the result of `{name}` has no name"))
                .help(format!("write `t = {name}(…)`"))
                .into());
        }
        self.end_call(&call)
    }

    /// True if a statement begins here that names several results of a function, `a, b = f(x)`.
    pub(super) fn takes_results(&self) -> bool {
        let mut at = self.pos;
        let is = |at: usize, punct: &str| matches!(self.tokens.get(at), Some(token) if matches!(token.tok, Tok::Punct(p) if p == punct));
        while is(at + 1, ",") {
            at += 2;
        }
        at > self.pos && is(at + 1, "=") && self.is_call(at + 2)
    }

    /// The names of several results, with commas, up to the `=`.
    pub(super) fn result_names(&mut self) -> Res<Vec<(&'a str, Span)>> {
        let mut names = Vec::new();
        loop {
            let (name, span) = self.word("a name for the result")?;
            if is_reserved(name) {
                return Err(self.misplaced_word(name, span, "a name for the result").into());
            }
            names.push((name, span));
            if !self.eat(",") {
                break;
            }
        }
        Ok(names)
    }

    /// `a, b = f(x)`.
    pub(super) fn several_results(&mut self) -> Res<()> {
        let start = self.span();
        let names = self.result_names()?;
        self.expect("=", "and a call")?;
        // The name of the function.
        self.next();
        let before = self.errors.len();
        let call = self.begin_call()?;
        let mut results = Vec::new();
        if self.statements_of()? {
            loop {
                results.push(self.elementwise()?);
                if !self.eat(",") {
                    break;
                }
                self.skip_newlines();
            }
        }
        self.end_call(&call)?;
        let whole = self.since(start);
        if self.errors.len() > before {
            names.iter().for_each(|(name, span)| self.poison_new(name, *span));
            return Ok(());
        }
        if results.len() != names.len() {
            let message =
                format!("`{}` returns {} values, and {} are named", call.name, results.len(), names.len());
            return Err(syntax(whole, message).into());
        }
        // A result that is read after the assignment of one before it is computed before.
        let written: Vec<Option<TensorId>> = names
            .iter()
            .map(|(name, _)| match self.build.get(name) {
                Some(Named::Tensor(id)) => Some(id),
                _ => None,
            })
            .collect();
        for (i, result) in results.iter_mut().enumerate() {
            let read = result.tensors();
            if written[..i].iter().flatten().any(|id| read.iter().any(|read| self.overlaps(*read, *id))) {
                let value = std::mem::replace(result, ElemExpr::Number(0.0));
                if let Some(computed) = self.computed(value, call.span) {
                    *result = ElemExpr::Tensor(computed);
                }
            }
        }
        for ((name, span), result) in names.into_iter().zip(results) {
            self.assign_elementwise(name, span, result, whole)?;
        }
        Ok(())
    }

    /// True if both are one tensor, or one is a part of the other.
    fn overlaps(&self, a: TensorId, b: TensorId) -> bool {
        let whole = |id: TensorId| match self.build.program.tensor(id).kind {
            TensorKind::Part { of, .. } => of,
            _ => id,
        };
        whole(a) == whole(b)
    }

    /// A tensor that gets the value of an expression.
    fn computed(&mut self, value: ElemExpr, span: Span) -> Option<TensorId> {
        let shape = self.build.elementwise_shape(&value.tensors())?;
        let dtype = self.build.result_type(&value);
        let kind = |dst| StmtKind::Elementwise { dst, expr: value };
        Some(self.build.unnamed(dtype, (shape, None), kind, span))
    }
}

fn no_result(call: &Call<'_>) -> Diagnostic {
    let name = call.name;
    syntax(call.span, format!("`{name}` returns nothing")).help(
        "the last statement of a function that has a value is `return …`; without, its call is a statement",
    )
}
