//! Iterations of a `prange`: two of them touch no common element that one writes.

use std::collections::BTreeMap;

use tilewright_tile::{Code, Diagnostic, Expr, IntOp, Origin, SymbolId};

use crate::cut::{self, Processors};
use crate::environment::Environment;
use crate::piece::{self, Affine, Guard, Meeting, Relation, Var, Vars, Witness};
use crate::program::{
    ArgumentKind, FormalKind, Inner, LoopId, LoopKind, Piece, Privilege, Program, Stmt, StmtKind, TensorId,
};

/// An argument of a launch in the loop.
struct Access {
    tensor: TensorId,
    privilege: Privilege,
    piece: piece::Piece,
    span: Origin,
    text: String,
}

/// Collects the accesses of a loop's body, with integers as affine forms of counters.
struct Collector<'a> {
    program: &'a Program,
    inner: &'a Inner,
    values: &'a Environment,
    processors: &'a Processors,
    shapes: &'a [Option<Vec<i64>>],
    vars: Vars,
    forms: BTreeMap<SymbolId, Affine>,
    /// Tensors that an iteration makes for itself.
    fresh: Vec<TensorId>,
    accesses: Vec<Access>,
}

/// The message about two iterations of a loop that touch one element, if it is a `prange` and has such.
pub(super) fn check(
    program: &Program,
    inner: &Inner,
    (values, processors): (&Environment, &Processors),
    shapes: &[Option<Vec<i64>>],
    (head, body): (LoopId, &[Stmt]),
) -> Option<Diagnostic> {
    let row = inner.head(head);
    if row.kind != LoopKind::Prange {
        return None;
    }
    let mut collector = Collector {
        program,
        inner,
        values,
        processors,
        shapes,
        vars: Vars::default(),
        forms: BTreeMap::new(),
        fresh: Vec::new(),
        accesses: Vec::new(),
    };
    let counters = collector.counters(head);
    collector.body(body)?;
    let Collector { vars, accesses, .. } = collector;
    for (k, first) in accesses.iter().enumerate() {
        for second in &accesses[k..] {
            let adds = first.privilege == Privilege::Add && second.privilege == Privilege::Add;
            let writes = first.privilege.writes() || second.privilege.writes();
            if first.tensor != second.tensor || adds || !writes {
                continue;
            }
            // Two iterations differ in a counter first; each of the two accesses may be in the earlier one.
            for at in 0..counters.len() {
                for (a, b) in [(first, second), (second, first)] {
                    let relation = |var: Var| match counters.iter().position(|counter| *counter == var) {
                        Some(k) if k < at => Relation::Same,
                        Some(k) if k == at => Relation::Later,
                        _ => Relation::Any,
                    };
                    match a.piece.meets(&b.piece, &vars, relation) {
                        Meeting::Apart => {}
                        Meeting::At(witness) => {
                            return Some(clash(program, inner, head, (a, b), Some((&counters, &witness))));
                        }
                        Meeting::Perhaps => return Some(clash(program, inner, head, (a, b), None)),
                    }
                }
            }
        }
    }
    None
}

impl Collector<'_> {
    /// The counters of a loop as variables.
    fn counters(&mut self, head: LoopId) -> Vec<Var> {
        let row = self.inner.head(head);
        let mut counters = Vec::new();
        for (counter, range) in row.counters.iter().zip(&row.ranges) {
            let (least, most) = (self.form(&range.lo), self.form(&range.hi));
            let least = least.and_then(|form| self.vars.range(&form).0);
            let most = most.and_then(|form| self.vars.range(&form).1).map(|most| most - 1);
            let var = self.vars.fresh(&self.program.symbol(*counter).name, least, most);
            self.forms.insert(*counter, Affine::var(var));
            counters.push(var);
        }
        counters
    }

    fn body(&mut self, body: &[Stmt]) -> Option<()> {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Tunable(_) | StmtKind::Partition(_) => {}
                StmtKind::Let { symbol, value } => {
                    let form = self.form(value)?;
                    self.forms.insert(*symbol, form);
                }
                StmtKind::Tensor(id) => self.fresh.push(*id),
                StmtKind::For { head, body } => {
                    self.counters(*head);
                    self.body(body)?;
                }
                StmtKind::Launch(id) => {
                    let launch = self.inner.launch(*id);
                    let task = self.program.task(launch.task);
                    for (formal, argument) in task.formals.iter().zip(&launch.arguments) {
                        let (FormalKind::Tensor { privilege, .. }, ArgumentKind::Tensor { piece, when }) =
                            (&formal.kind, &argument.kind)
                        else {
                            continue;
                        };
                        let tensor = self.inner.tensor_of(piece);
                        if self.fresh.contains(&tensor) {
                            continue;
                        }
                        let text = self.program.piece(self.inner, piece);
                        let mut piece = self.piece(piece)?;
                        if let Some(when) = when {
                            piece = piece.when(self.guards(when)?);
                        }
                        let (privilege, span) = (*privilege, argument.span);
                        self.accesses.push(Access { tensor, privilege, piece, span, text });
                    }
                }
            }
        }
        Some(())
    }

    fn piece(&mut self, of: &Piece) -> Option<piece::Piece> {
        let shape = self.shapes[self.inner.tensor_of(of).index()].as_ref()?;
        let extents: Vec<Option<i64>> = shape.iter().map(|extent| Some(*extent)).collect();
        let whole = piece::Piece::whole(&extents);
        let Piece::Part { partition, colours } = of else { return Some(whole) };
        let row = self.inner.partition(*partition);
        let cut =
            cut::partition(self.program, self.inner, row, &extents, self.values, self.processors).ok()?;
        let colours: Option<Vec<Affine>> = colours.iter().map(|colour| self.form(colour)).collect();
        whole.part(&cut, &colours?, &mut self.vars).ok()
    }

    /// An integer as an affine form.
    fn form(&mut self, expr: &Expr) -> Option<Affine> {
        match expr {
            Expr::Int(value) => Some(Affine::constant(*value)),
            Expr::Symbol(id) => match self.forms.get(id) {
                Some(form) => Some(form.clone()),
                None => self.values.0.get(id.0 as usize).copied().flatten().map(Affine::constant),
            },
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.form(a)?, self.form(b)?);
                self.vars.apply(*op, &a, &b)
            }
            Expr::Block(_) | Expr::Element(..) | Expr::Scalar(_) => None,
        }
    }

    /// Conditions that hold where an argument is present: those of them that have a form, so that fewer are apart and none is more.
    fn guards(&mut self, condition: &Expr) -> Option<Vec<Guard>> {
        let Expr::Binary(op, a, b) = condition else { return Some(Vec::new()) };
        if *op == IntOp::And {
            let (mut first, second) = (self.guards(a)?, self.guards(b)?);
            first.extend(second);
            return Some(first);
        }
        let (a, b) = (self.form(a)?, self.form(b)?);
        let apart = |a: &Affine, b: &Affine, less: i64| a.plus(b, -1).plus(&Affine::constant(less), -1);
        Some(match op {
            IntOp::Eq => vec![Guard::Zero(apart(&a, &b, 0))],
            IntOp::Ge => vec![Guard::AtLeastZero(apart(&a, &b, 0))],
            IntOp::Gt => vec![Guard::AtLeastZero(apart(&a, &b, 1))],
            IntOp::Le => vec![Guard::AtLeastZero(apart(&b, &a, 0))],
            IntOp::Lt => vec![Guard::AtLeastZero(apart(&b, &a, 1))],
            _ => Vec::new(),
        })
    }
}

/// The message about accesses of two iterations, with an element where one is known.
fn clash(
    program: &Program,
    inner: &Inner,
    head: LoopId,
    (first, second): (&Access, &Access),
    known: Option<(&[Var], &Witness)>,
) -> Diagnostic {
    let row = inner.head(head);
    let names: Vec<&str> = row.counters.iter().map(|id| program.symbol(*id).name.as_str()).collect();
    let tuple = |values: Vec<String>| match &values[..] {
        [one] => one.clone(),
        _ => format!("({})", values.join(", ")),
    };
    let named = tuple(names.iter().map(|name| name.to_string()).collect());
    let tensor = &inner.tensor(first.tensor).name;
    let both =
        if first.privilege.writes() && second.privilege.writes() { "both write" } else { "both touch" };
    let message = match known {
        Some((counters, witness)) => {
            let side = |values: &[(Var, i64)], other: &[(Var, i64)], later: bool| {
                let value = |var: &Var| {
                    let find = |list: &[(Var, i64)]| list.iter().find(|(v, _)| v == var).map(|(_, x)| *x);
                    // A counter that the access does not depend on may be anything that makes the iterations differ.
                    find(values).or_else(|| find(other)).unwrap_or(i64::from(later)).to_string()
                };
                tuple(counters.iter().map(value).collect())
            };
            let element: Vec<String> = witness.element.iter().map(i64::to_string).collect();
            format!(
                "iterations {named} = {} and {} of `prange` {both} element [{}] of `{tensor}`",
                side(&witness.first, &witness.second, false),
                side(&witness.second, &witness.first, true),
                element.join(", ")
            )
        }
        None => format!("iterations of `prange` cannot be shown to touch different elements of `{tensor}`"),
    };
    let last = names.last().copied().unwrap_or("i");
    let write = if first.privilege.writes() { first } else { second };
    let other = if first.privilege.writes() { second } else { first };
    let error = Diagnostic::new(Code::ParallelWrites, write.span, message).related(row.span, "the loop");
    let error = match write.span.key() == other.span.key() {
        true => error,
        false => error.related(other.span, "the other"),
    };
    error.help(format!(
        "give each iteration a part of its own, or pass it in one of them: `{} when {last} == 0`",
        write.text
    ))
}
