//! Zeros and values that are no numbers, and the statements that make them of operands that are neither.
//!
//! An output that is 0 everywhere, or has NaN in it, is what the program says, so that a comparison with the interpreter finds nothing wrong with
//! it. A run that notes what each statement made of what shows where that began.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::Memory;

use super::launch::Sizes;
use super::values::Made;
use crate::diagnostic::{Code, Diagnostic};
use crate::elementwise::{BinaryOp, ElemExpr, UnaryOp};
use crate::expr::{Expr, IntOp};
use crate::ids::StmtId;
use crate::printer::{elementwise_text, expr_text, statement_text};
use crate::program::{ParamId, Stmt, StmtKind, TensorId};
use crate::verified::Verified;

/// An output that is what the program says, and hardly what was meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Questionable {
    /// Every element is 0.
    Zero,
    /// So many elements, of so many, are no numbers.
    Nan {
        /// Those that are NaN.
        count: usize,
        /// All.
        of: usize,
    },
}

/// Warnings about outputs, of what statements made in a run over these sizes.
pub(super) fn warnings(
    v: &Verified,
    sizes: &[Option<i64>],
    made: BTreeMap<StmtId, Made>,
    outputs: &[(ParamId, Questionable)],
) -> Vec<Diagnostic> {
    let search = Search { v, made, sizes };
    outputs.iter().filter_map(|(param, what)| search.of(*param, *what)).collect()
}

struct Search<'a> {
    v: &'a Verified,
    made: BTreeMap<StmtId, Made>,
    sizes: &'a [Option<i64>],
}

impl<'a> Search<'a> {
    fn statements(&self) -> Vec<&'a Stmt> {
        let mut all = Vec::new();
        self.v.visit(&mut |stmt, _| all.push(stmt));
        all
    }

    /// A statement in the author's words.
    fn text(&self, stmt: &Stmt) -> String {
        let written = stmt.span.text().and_then(|span| self.v.source.sources.quote(span));
        written.unwrap_or_else(|| statement_text(self.v.program(), stmt))
    }

    /// A tensor in the author's words.
    fn tensor(&self, id: TensorId) -> &str {
        let row = self.v.program().tensor(id);
        row.unnamed.text().unwrap_or(&row.name)
    }

    fn of(&self, param: ParamId, what: Questionable) -> Option<Diagnostic> {
        match what {
            Questionable::Zero => self.zero(param),
            Questionable::Nan { count, of } => self.nan(param, count, of),
        }
    }

    /// The copies that write a parameter.
    fn stores(&self, param: ParamId) -> impl Iterator<Item = (&'a Stmt, TensorId)> {
        let viewed = move |id: TensorId| matches!(self.v.program().tensor(id).kind, crate::program::TensorKind::View { param: of, .. } if of == param);
        let stored = move |stmt: &'a Stmt| match &stmt.kind {
            StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } if viewed(dst.tensor) => {
                Some((stmt, src.tensor))
            }
            _ => None,
        };
        self.statements().into_iter().filter_map(stored)
    }

    /// A statement that made nothing but zeros of operands that were not all 0, behind a tensor.
    fn zeroing(&self, tensor: TensorId, seen: &mut BTreeSet<TensorId>) -> Option<&'a Stmt> {
        if !seen.insert(tensor) {
            return None;
        }
        let writes = |stmt: &&Stmt| stmt.kind.writes().contains(&tensor) && self.made.contains_key(&stmt.id);
        for stmt in self.statements().into_iter().filter(writes) {
            let made = self.made[&stmt.id];
            if made.other {
                continue;
            }
            let deeper = stmt.kind.reads().into_iter().find_map(|read| self.zeroing(read, seen));
            if deeper.is_some() {
                return deeper;
            }
            if made.of_other && stmt.kind.copied().is_none() {
                return Some(stmt);
            }
        }
        None
    }

    /// True if a tensor was filled with 0, and nothing else writes it.
    fn is_zero(&self, tensor: TensorId) -> bool {
        let mut writers = self.writers(tensor).peekable();
        writers.peek().is_some()
            && writers.all(|stmt| {
                let fills = matches!(stmt.kind, StmtKind::Fill { .. });
                fills && self.made.get(&stmt.id).is_none_or(|made| !made.other)
            })
    }

    /// The statements that write a tensor, but for its definition.
    fn writers(&self, tensor: TensorId) -> impl Iterator<Item = &'a Stmt> {
        let writes = move |stmt: &&Stmt| {
            stmt.kind.writes().contains(&tensor) && !matches!(stmt.kind, StmtKind::Define(_))
        };
        self.statements().into_iter().filter(writes)
    }

    fn zero(&self, param: ParamId) -> Option<Diagnostic> {
        let name = &self.v.program().param(param).name;
        let message = format!("`{name}` is 0 everywhere, whatever its inputs are");
        // A kernel that fills a tensor with zeros means them.
        let (_, tensor) = self.stores(param).next()?;
        let stmt = self.zeroing(tensor, &mut BTreeSet::new())?;
        let label = format!("`{}` is 0 in every element", self.text(stmt));
        let mut diagnostic = Diagnostic::new(Code::AllZero, stmt.span, message).label(label);
        if let Some((integer, text)) = self.quotient(stmt) {
            return Some(diagnostic.help(match &integer {
                Expr::Binary(IntOp::Div, a, b) => {
                    let of = |e: &Expr| match e.as_int() {
                        Some(number) => format!("{number}.0"),
                        None => format!("float({})", expr_text(&*self.v.source, e)),
                    };
                    format!(
                        "`{text}` is 0: integers are divided without a rest; of numbers it is `{} / {}`",
                        of(a),
                        of(b)
                    )
                }
                _ => format!("`{text}` is 0"),
            }));
        }
        if let Some(condition) = self.never(stmt) {
            return Some(diagnostic.help(format!("`{condition}` holds for no element that is stored")));
        }
        let read = stmt.kind.reads().into_iter().find(|read| self.is_zero(*read))?;
        let name = self.tensor(read).to_string();
        for writer in self.writers(read).take(3) {
            diagnostic = diagnostic.related(writer.span, format!("`{name}` becomes 0"));
        }
        if let Some((first, second, text)) = self.second_product(read) {
            let (place, label) = (diagnostic.span, std::mem::take(&mut diagnostic.label));
            diagnostic = diagnostic.related(place, label).related(first.span, "adds to the same accumulator");
            let help = format!("`{text}` adds to `{name}`, to which no statement adds yet");
            return Some(Diagnostic { span: second.span, ..diagnostic }.help(help));
        }
        Some(diagnostic.help(format!(
            "`{name}` is 0 wherever this reads it: no statement writes anything else to it; add to it, or compute it, first"
        )))
    }

    /// Two products of one accumulator, of which the second may be meant for `other`, a tensor like it; and its text then.
    fn second_product(&self, other: TensorId) -> Option<(&'a Stmt, &'a Stmt, String)> {
        let source = &*self.v.source;
        let like = |id: TensorId| {
            let (x, y) = (source.tensor(id), source.tensor(other));
            x.memory() == y.memory() && x.dtype == y.dtype && self.v.shape(id) == self.v.shape(other)
        };
        let mut first: BTreeMap<TensorId, &Stmt> = BTreeMap::new();
        self.statements().into_iter().find_map(|stmt| {
            let (StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. }) = &stmt.kind else { return None };
            if *c == other || !like(*c) {
                return None;
            }
            let before = first.insert(*c, stmt)?;
            let mut moved = stmt.kind.clone();
            if let StmtKind::Gemm { c, .. } | StmtKind::GemmAsync { c, .. } = &mut moved {
                *c = other;
            }
            Some((before, stmt, statement_text(source, &Stmt { kind: moved, ..stmt.clone() })))
        })
    }

    /// The condition of a `where(c, x, 0)` that no data decides, which a statement is.
    fn never(&self, stmt: &Stmt) -> Option<String> {
        let StmtKind::Elementwise { expr: ElemExpr::Where(parts), .. } = &stmt.kind else { return None };
        let [condition, _, other] = &**parts;
        let of_data = |part: &ElemExpr| !part.tensors().is_empty();
        let zero = matches!(other, ElemExpr::Number(value) if *value == 0.0);
        (zero && !of_data(condition)).then(|| elementwise_text(&*self.v.source, condition))
    }

    /// An integer division in a statement whose value is 0, with the text of what it stands in.
    fn quotient(&self, stmt: &Stmt) -> Option<(Expr, String)> {
        let StmtKind::Elementwise { expr, .. } = &stmt.kind else { return None };
        let mut found = None;
        expr.visit(&mut |part| {
            if let ElemExpr::Unary(UnaryOp::Float, inner) = part
                && let ElemExpr::Int(integer @ Expr::Binary(IntOp::Div, ..)) = &**inner
                && integer.eval(&Sizes(self.sizes)) == Some(0)
            {
                found.get_or_insert((integer.clone(), elementwise_text(&*self.v.source, part)));
            }
        });
        found
    }

    fn nan(&self, param: ParamId, count: usize, of: usize) -> Option<Diagnostic> {
        let name = &self.v.program().param(param).name;
        // Without such a statement they are elements that nothing wrote.
        let (stmt, operands) =
            self.statements().into_iter().find_map(|stmt| Some((stmt, self.made.get(&stmt.id)?.nan?)))?;
        let elements =
            if count == of { format!("all {of} elements") } else { format!("{count} of {of} elements") };
        let message = format!("{elements} of `{name}` are no numbers (NaN), though all inputs are numbers");
        let mut divides = false;
        if let StmtKind::Elementwise { expr, .. } = &stmt.kind {
            expr.visit(&mut |part| {
                divides |= matches!(part, ElemExpr::Binary(BinaryOp::Div | BinaryOp::FastDiv, ..))
            });
        }
        let diagnostic =
            |label: &str| Diagnostic::new(Code::NotANumber, stmt.span, message.clone()).label(label);
        if operands.masked {
            let what = self.masked(stmt);
            return Some(diagnostic("the first NaN: an operand is -inf").help(format!(
                "`inf - inf`, `0 * inf` and `inf / inf` are no numbers; a row whose elements are all masked has the maximum -inf and the sum 0: \
                 subtract `where({what} == -inf, 0.0, {what})`, and divide by `max(s, 1e-30)` for a sum `s`"
            )));
        }
        if divides && operands.zero && count == of {
            return Some(diagnostic("the first NaN: 0 / 0").help(
                "keep the divisor from being 0: `max(s, 1e-30)` for a sum `s`, or `where(s == 0.0, 0.0, x / s)` with a divisor that is not 0",
            ));
        }
        (count == of).then(|| diagnostic("the first NaN"))
    }

    /// The operand that a statement subtracts, or its last one.
    fn masked(&self, stmt: &Stmt) -> String {
        let mut subtracted = None;
        if let StmtKind::Elementwise { expr, .. } = &stmt.kind {
            expr.visit(&mut |part| {
                if let ElemExpr::Binary(BinaryOp::Sub, _, right) = part
                    && let ElemExpr::Tensor(id) = &**right
                {
                    subtracted = subtracted.or(Some(*id));
                }
            });
        }
        let mut registers = stmt.kind.reads().into_iter().rev();
        let last = || registers.find(|id| self.v.program().tensor(*id).memory() == Memory::Register);
        subtracted.or_else(last).map_or("x".to_string(), |id| self.tensor(id).to_string())
    }
}
