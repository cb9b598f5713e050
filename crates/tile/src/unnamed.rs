//! Tensors for the values of expressions to which the author gave no name.
//!
//! An expression stands where a tensor may: `copy(cast(acc, f16), gy)`. The parser and the Rust DSL make a statement of each part of it that is
//! one, with a register tensor for its value, so that every later stage sees flat statements. Such a tensor gets a name when the program
//! is complete, made of that of its first operand (`acc_f16`): the text form prints it, and reads back to the same program. In messages
//! the text of the expression stands for it ([`Expressions`]).

use std::collections::{BTreeMap, HashSet};

use tilewright_layout::Layout;
use tilewright_machine::DType;

use crate::build::Builder;
use crate::diagnostic::{Diagnostic, Diagnostics, Origin};
use crate::expr::Expr;
use crate::names::{fresh_name, names_of, words};
use crate::printer::statement_text;
use crate::program::{OperandMut, Program, Stmt, StmtKind, Tensor, TensorId, TensorKind, Unnamed, Use};

/// A tensor of the builder that gets its name at the end. Until then its text is its name.
pub(crate) struct Nameless {
    id: TensorId,
    /// The named tensor that it comes from.
    base: String,
    /// A word for what is done.
    suffix: String,
}

/// The word of a statement whose result has no name.
fn suffix(kind: &StmtKind, text: &str, dtype: DType) -> String {
    match kind {
        StmtKind::Cast { .. } => dtype.name().to_string(),
        StmtKind::Reduce { op, .. } => op.name().to_string(),
        StmtKind::Elementwise { .. } => "value".to_string(),
        _ => {
            let word = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(0);
            let is_call = word > 0 && text[word..].starts_with('(');
            if is_call { text[..word].to_string() } else { "value".to_string() }
        }
    }
}

impl Builder {
    /// Emits a statement whose result has no name: the register tensor of the result.
    pub(crate) fn unnamed(
        &mut self,
        dtype: DType,
        (shape, pinned): (Vec<Expr>, Option<Layout>),
        kind: impl FnOnce(TensorId) -> StmtKind,
        span: impl Into<Origin>,
    ) -> TensorId {
        let span = span.into();
        let id = TensorId(self.program.tensors.len() as u32);
        let row = Tensor {
            name: String::new(),
            dtype,
            kind: TensorKind::Register { shape, pinned },
            span,
            unnamed: Unnamed::default(),
        };
        self.program.tensors.push(row);
        let stmt = self.program.statement(kind(id), span);
        let text = statement_text(&self.program, &stmt);
        let text = text.strip_prefix(" = ").unwrap_or(&text).to_string();
        let suffix = suffix(&stmt.kind, &text, dtype);
        let base = stmt.kind.reads().first().map_or("value", |first| self.base(*first)).to_string();
        self.nameless.push(Nameless { id, base, suffix });
        self.say(id, text);
        self.push(stmt);
        id
    }

    /// Gives a tensor without a name another text.
    pub(crate) fn say(&mut self, id: TensorId, text: String) {
        if let Some(row) = self.program.tensors.get_mut(id.0 as usize) {
            row.name = text;
        }
    }

    /// Gives the result of an `expand` the text of the reduction that it comes from, which keeps its mode.
    pub(crate) fn say_kept(&mut self, id: TensorId, reduced: TensorId) {
        let text = self.program.tensor(reduced).name.strip_suffix(')').map(|text| format!("{text}, keep)"));
        self.say(id, text.unwrap_or_default());
    }

    /// The named tensor that a tensor comes from.
    fn base(&self, id: TensorId) -> &str {
        if let Some(nameless) = self.nameless.iter().find(|nameless| nameless.id == id) {
            return &nameless.base;
        }
        match self.program.tensor(id).kind {
            TensorKind::Part { of, .. } => &self.program.tensor(of).name,
            _ => &self.program.tensor(id).name,
        }
    }
}

/// Gives names to the tensors that have none, and numbers all tensors as the parser does that reads the program's text.
pub(crate) fn name(program: &mut Program, nameless: Vec<Nameless>, inlined: bool) {
    // Arguments of a function may name parts before the function's statements do.
    if nameless.is_empty() && !inlined {
        return;
    }
    let mut names: HashSet<String> = names_of(program);
    names.extend(words().map(|(word, _)| word.to_string()));
    for Nameless { id, base, suffix } in nameless {
        let row = &mut program.tensors[id.0 as usize];
        let text = std::mem::replace(&mut row.name, fresh_name(&mut names, &base, &suffix));
        row.unnamed = Unnamed(Some(text));
    }
    renumber(program);
}

/// Numbers tensors in the order in which statements name them: the operands of each, then its results.
fn renumber(program: &mut Program) {
    let mut order = Vec::new();
    let mut seen = vec![false; program.tensors.len()];
    let mut note = |id: TensorId| {
        if !std::mem::replace(&mut seen[id.0 as usize], true) {
            order.push(id);
        }
    };
    walk(&mut program.body, &mut |id| note(*id));
    (0..program.tensors.len() as u32).for_each(|id| note(TensorId(id)));
    let numbers: BTreeMap<TensorId, TensorId> =
        order.iter().enumerate().map(|(new, old)| (*old, TensorId(new as u32))).collect();
    let number = |id: &mut TensorId| *id = numbers[id];
    program.tensors = order.iter().map(|id| program.tensors[id.0 as usize].clone()).collect();
    for row in &mut program.tensors {
        if let TensorKind::Part { of, .. } = &mut row.kind {
            number(of);
        }
    }
    program.pipelines.iter_mut().flat_map(|pipeline| &mut pipeline.tensors).for_each(number);
    walk(&mut program.body, &mut |id| *id = numbers[id]);
}

/// Calls `visit` for every use of a tensor: of each statement those that it reads or defines, then those that it assigns to.
fn walk(body: &mut [Stmt], visit: &mut impl FnMut(&mut TensorId)) {
    for stmt in body {
        for assigns in [false, true] {
            for operand in stmt.kind.operands_mut() {
                match operand {
                    OperandMut::Tensor(used, id) if (used == Use::Assign) == assigns => visit(id),
                    OperandMut::Reference(_, r) if !assigns => {
                        visit(&mut r.tensor);
                        r.indexed.iter_mut().for_each(|indexed| visit(&mut indexed.by));
                    }
                    OperandMut::Body(body) if !assigns => walk(body, visit),
                    _ => {}
                }
            }
        }
    }
}

/// The expressions of a program's tensors that the author did not name, by their names.
#[derive(Clone, Debug, Default)]
pub struct Expressions(BTreeMap<String, String>);

impl Expressions {
    /// Those among the names of tensors.
    pub(crate) fn of<'a>(tensors: impl Iterator<Item = (&'a String, &'a Unnamed)>) -> Expressions {
        let text =
            |(name, unnamed): (&'a String, &'a Unnamed)| Some((name.clone(), unnamed.text()?.to_string()));
        Expressions(tensors.filter_map(text).collect())
    }

    /// The text with expressions for the names of tensors that the author did not name; a statement that gives one its value is that
    /// expression.
    pub fn said(&self, text: &str) -> String {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(start) = rest.find(is_name) {
            out.push_str(&rest[..start]);
            let word = &rest[start..];
            let end = word.find(|c| !is_name(c)).unwrap_or(word.len());
            rest = &word[end..];
            match self.0.get(&word[..end]) {
                None => out.push_str(&word[..end]),
                Some(expression) => match rest.strip_prefix(" = ") {
                    Some(value) => rest = value,
                    None => out.push_str(expression),
                },
            }
        }
        out.push_str(rest);
        out
    }

    /// Messages in which expressions stand for tensors that the author did not name.
    pub fn in_words(&self, Diagnostics(all): Diagnostics) -> Diagnostics {
        Diagnostics(all.into_iter().map(|diagnostic| self.in_words_of(diagnostic)).collect())
    }

    /// The same for one message.
    pub fn in_words_of(&self, mut diagnostic: Diagnostic) -> Diagnostic {
        if !self.0.is_empty() {
            let Diagnostic { message, label, related, notes, help, .. } = &mut diagnostic;
            let texts = [message, label].into_iter().chain(related.iter_mut().map(|(_, text)| text));
            texts.chain(notes).chain(help).for_each(|text| *text = self.said(text));
        }
        diagnostic
    }
}

impl Program {
    /// The expressions of the tensors that the author did not name.
    pub fn unnamed(&self) -> Expressions {
        Expressions::of(self.tensors.iter().map(|row| (&row.name, &row.unnamed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_stand_for_whole_names_alone() {
        let all = Expressions(BTreeMap::from([("e_sum".to_string(), "reduce(e, sum, 1)".to_string())]));
        let text = "`e_sum` and `e_sum_moved` in `y = cast(e_sum, f16)` after `e_sum = reduce(e, sum, 1)`";
        let expected = "`reduce(e, sum, 1)` and `e_sum_moved` in `y = cast(reduce(e, sum, 1), f16)` after `reduce(e, sum, 1)`";
        assert_eq!(all.said(text), expected);
    }
}
