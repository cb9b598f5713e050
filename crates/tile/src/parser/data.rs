//! Elements where integers belong, and integers where tensors do: conditions over tensors, assignments of integers, numbers in a copy, each with what
//! is written instead.

use tilewright_machine::{DType, Memory};

use super::{Parser, Res};
use crate::build::Named;
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::elementwise::ElemExpr;
use crate::lexer::{Tok, Token};
use crate::printer::expr_text;
use crate::program::{ParamKind, TensorKind};

impl Parser<'_> {
    /// Passes a condition of an `if` over tensors or numbers of a launch, with a message; false where none stands here.
    pub(super) fn data_condition(&mut self) -> Res<bool> {
        let Some(end) = self.end_of_condition() else { return Ok(false) };
        let Some((name, span, noun)) = (self.pos..end).find_map(|at| self.data(at)) else { return Ok(false) };
        let condition = self.words(self.tokens[self.pos].span.to(self.tokens[end - 1].span));
        let help = match self.choices(&condition, end) {
            Some(choices) => format!("an `if` takes integers; of elements write {choices}"),
            None => format!(
                "an `if` takes integers; elements are chosen by `where({condition}, x, y)`, and statements that only some rows need stand in \
                 `if any({condition}, axis) {{ … }}`"
            ),
        };
        let error = Diagnostic::new(Code::TypeMismatch, span, format!("`{name}` is {noun}, not an integer"))
            .label("expected an integer")
            .help(help);
        self.report(error)?;
        self.pos = end;
        Ok(true)
    }

    /// The token behind the condition that begins here, if its block or a colon follows.
    fn end_of_condition(&self) -> Option<usize> {
        let tok = |at: usize| self.tokens.get(at).map_or(Tok::End, |token| token.tok);
        let mut at = self.pos;
        while !matches!(tok(at), Tok::Punct("{" | ":") | Tok::Newline | Tok::End) {
            at = match tok(at) {
                Tok::Punct("(" | "[") => self.tokens[at].close.max(at) + 1,
                _ => at + 1,
            };
        }
        let mut open = at;
        while tok(open) == Tok::Newline {
            open += 1;
        }
        (at > self.pos && matches!(tok(open), Tok::Punct("{" | ":"))).then_some(at)
    }

    /// The name of a tensor in registers or of a number of the launch at a token, with its place and what it is.
    fn data(&self, at: usize) -> Option<(String, Span, &'static str)> {
        let token = self.tokens[at];
        let name = if token.tok == Tok::Word { self.text(token) } else { return None };
        let noun = match self.build.get(name)? {
            Named::Tensor(_) => "a tensor",
            Named::Param(id) => {
                let param = self.build.program.param(id);
                match param.kind {
                    ParamKind::Scalar { .. } if param.dtype.is_float() => "a number of the launch",
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some((name.to_string(), token.span, noun))
    }

    /// The assignments of the block at a token, each as a choice between two values.
    fn choices(&self, condition: &str, open: usize) -> Option<String> {
        let then = self.assigned(open)?;
        let mut behind = self.tokens[open].close + 1;
        while self.tokens.get(behind)?.tok == Tok::Newline {
            behind += 1;
        }
        let otherwise = match self.text(self.tokens[behind]) {
            "else" => self.assigned(behind + 1)?,
            _ => Vec::new(),
        };
        if otherwise.iter().any(|(name, _)| !then.iter().any(|(known, _)| known == name)) {
            return None;
        }
        // The condition is computed anew for each.
        if then.len() > 1 && then.iter().any(|(name, _)| condition.contains(name)) {
            return None;
        }
        let choice = |(name, value): &(&str, &str)| {
            let other = otherwise.iter().find(|(known, _)| known == name).map_or(*name, |(_, other)| other);
            format!("`{name} = where({condition}, {value}, {other})`")
        };
        Some(then.iter().map(choice).collect::<Vec<_>>().join(", "))
    }

    /// The names of register tensors and the values that are assigned to them in a block that holds nothing else.
    fn assigned(&self, open: usize) -> Option<Vec<(&str, &str)>> {
        if self.tokens.get(open)?.tok != Tok::Punct("{") {
            return None;
        }
        let inside = self.tokens.get(open + 1..self.tokens[open].close)?;
        let mut assigned: Vec<(&str, &str)> = Vec::new();
        for statement in inside.split(|token| token.tok == Tok::Newline).filter(|tokens| !tokens.is_empty()) {
            let [name, equals, first, ..] = statement else { return None };
            let (name, last) = (self.text(*name), statement[statement.len() - 1]);
            let known = matches!(self.build.get(name), Some(Named::Tensor(_)));
            let braces = statement.iter().any(|token| token.tok == Tok::Punct("{"));
            if equals.tok != Tok::Punct("=") || !known || braces || assigned.len() == 2 {
                return None;
            }
            assigned.push((name, self.source.get(first.span.to(last.span).range())?));
        }
        (!assigned.is_empty()).then_some(assigned)
    }

    /// The remedy for a name that stands for no integer where one does.
    pub(super) fn integers_help(&self, name: &str) -> String {
        match self.build.get(name) {
            Some(Named::Tensor(id))
                if self.build.program.tensor(id).memory() == Memory::Register
                    && self.build.program.tensor(id).dtype == DType::I32 =>
            {
                format!(
                    "integers are sizes, constants, counters, names of `let`, and elements `p[i]` of a tensor parameter of type i32; \
                     coordinates in registers index a view in a copy: `copy(g[{name}, :], r)`"
                )
            }
            _ => "integers are sizes, constants, counters, names of `let`, and elements `p[i]` of a tensor parameter of type i32"
                .to_string(),
        }
    }

    /// The error about an assignment of an integer, which `let` names; nothing for values of other types.
    pub(super) fn integer_assigned(&self, name: &str, expr: &ElemExpr, whole: Span) -> Option<Diagnostic> {
        let (mut integers, mut others) = (0, 0);
        expr.visit(&mut |leaf| match leaf {
            ElemExpr::Int(_) => integers += 1,
            ElemExpr::Number(_) | ElemExpr::Binary(..) => {}
            _ => others += 1,
        });
        if integers == 0 || others > 0 {
            return None;
        }
        let text = self.words(whole);
        Some(match self.build.get(name) {
            Some(Named::Symbol(_)) => {
                let message = format!("`{name}` is an integer, which keeps its value");
                Diagnostic::new(Code::TypeMismatch, whole, message).help(
                    "a loop counts by itself, `for i in 0..n { … }`; another integer has a name of its own: `let next = …`",
                )
            }
            _ => Diagnostic::new(
                Code::TypeMismatch,
                whole,
                format!("`{name}` would be an integer, which `let` names"),
            )
            .help(format!("write `let {text}`")),
        })
    }

    /// The remedy for a number where a tensor belongs: a register tensor of the shape and type that the line has elsewhere.
    pub(super) fn how_to_fill(&self, expr: &ElemExpr) -> String {
        let ElemExpr::Number(value) = expr else {
            return "define a register tensor first, and `fill` it or assign to it".to_string();
        };
        let program = &self.build.program;
        let line_end = |token: &Token| matches!(token.tok, Tok::Newline | Tok::End);
        let begin = self.tokens[..self.pos].iter().rposition(line_end).map_or(0, |at| at + 1);
        let named = self.tokens[begin..].iter().take_while(|token| !line_end(token)).filter_map(|token| {
            match self.build.get(self.text(*token)) {
                Some(Named::Tensor(id)) if token.tok == Tok::Word => Some(program.tensor(id)),
                _ => None,
            }
        });
        let named: Vec<_> = named.collect();
        let shape =
            named.iter().chain(&program.tensors.iter().collect::<Vec<_>>()).find_map(|row| match &row.kind {
                TensorKind::Register { shape, .. } => {
                    Some(shape.iter().map(|extent| expr_text(program, extent)).collect::<Vec<_>>().join(", "))
                }
                _ => None,
            });
        let shape = shape.unwrap_or_else(|| "16, 16".to_string());
        let view = named.iter().find(|row| !matches!(row.kind, TensorKind::Register { .. }));
        let dtype = view.map_or(DType::F32, |row| row.dtype);
        let number = if dtype.is_float() { format!("{value:?}") } else { value.to_string() };
        format!(
            "a number is filled into a register tensor: `t = register_tensor({dtype}, [{shape}])`, `fill(t, {number})`, and `t` in the place of the number"
        )
    }
}
