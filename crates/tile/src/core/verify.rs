//! The core program's invariants, checked after every pass.

use std::collections::{BTreeSet, HashSet};

use super::{
    Coord, Expr, Operand, Param, Program, Slot, Stmt, StmtKind, SymbolId, TensorId, TensorKind, Use,
};
use crate::diagnostic::{Diagnostic, Origin};
use crate::printer::statement_text;
use crate::statement::otherwise;
use tilewright_machine::Memory;

/// Checks a core program.
///
/// 1. **Ids.** Tensors, pipelines, barriers, parameters and symbols are of the program's tables. Each statement has an id of its own.
/// 2. **Shapes.** Register and shared tensors have modes, all of positive extents; pipelines have stages.
/// 3. **Roles.** Together they have the block's threads, one behind the other, in whole warpgroups. Beside them are only definitions.
/// 4. **Life.** A tensor is read or written within the body that defines or assigns it, behind that.
/// 5. **Counters.** Expressions are over sizes and the counters of the loops around; those of a `drain` are of the loop before it. There
///    is no `let`.
/// 6. **References.** An index has an entry a mode, or none at all. Register tensors have none.
/// 7. **Slots.** A slot fixes the last mode of a tensor of its pipeline, in a stage of that pipeline and side. That mode has the pipeline's
///    stages, and every use of the tensor is at a slot.
/// 8. **Branches.** An `else` stands right behind its `if`.
/// 9. **Turns.** There are none: roles wait at named barriers.
///
/// # Errors
///
/// The first violation: an internal error of the pass `after` which it is found.
pub fn verify(program: &Program, after: &str) -> Result<(), Diagnostic> {
    let Some((span, violated)) = violation(program) else { return Ok(()) };
    Err(Diagnostic::internal(span, format_args!("after {after}, the core program violates {violated}")))
}

/// The first violated invariant, and its place.
pub(super) fn violation(program: &Program) -> Option<(Origin, String)> {
    let mut check = Check {
        program,
        staged: program.staged(),
        ids: HashSet::new(),
        alive: BTreeSet::new(),
        counters: BTreeSet::new(),
        open: Vec::new(),
    };
    let Violation { rule, what, span } = check.tables().and_then(|()| check.bodies()).err()?;
    Some((span, format!("invariant {rule}: {what}")))
}

/// A violated invariant.
struct Violation {
    rule: u32,
    what: String,
    span: Origin,
}

fn ensure(holds: bool, rule: u32, span: Origin, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { rule, what: what(), span }) }
}

struct Check<'a> {
    program: &'a Program,
    /// The tensors whose last mode is their stages.
    staged: BTreeSet<TensorId>,
    ids: HashSet<super::StmtId>,
    alive: BTreeSet<TensorId>,
    counters: BTreeSet<SymbolId>,
    /// The stages around the statement.
    open: Vec<Slot>,
}

impl<'a> Check<'a> {
    fn tables(&mut self) -> Result<(), Violation> {
        let program = self.program;
        for tensor in &program.tensors {
            let what = || format!("`{}` has no shape", tensor.name);
            match &tensor.kind {
                TensorKind::Register { shape, .. }
                | TensorKind::Shared { shape, .. }
                | TensorKind::Tensor { shape } => {
                    ensure(!shape.is_empty() && shape.iter().all(|n| *n > 0), 2, tensor.span, what)?;
                }
                TensorKind::View { param, modes, .. } => {
                    let known = (param.0 as usize) < program.params.len();
                    ensure(known, 1, tensor.span, || format!("`{}` views no parameter", tensor.name))?;
                    ensure(!modes.is_empty(), 2, tensor.span, what)?;
                }
            }
        }
        for pipeline in &program.pipelines {
            let what = || format!("`{}` has no stages", pipeline.name);
            ensure(pipeline.stages > 0, 2, pipeline.span, what)?;
            let known = pipeline.tensors.iter().all(|id| (id.0 as usize) < program.tensors.len());
            ensure(known, 1, pipeline.span, || format!("`{}` has an unknown tensor", pipeline.name))?;
            for id in pipeline.tensors.iter().filter(|id| self.staged.contains(id)) {
                let row = program.tensor(*id);
                let TensorKind::Shared { shape, .. } = &row.kind else { continue };
                let what =
                    || format!("the last mode of `{}` is not the stages of `{}`", row.name, pipeline.name);
                ensure(shape.last() == Some(&i64::from(pipeline.stages)), 7, row.span, what)?;
            }
        }
        Ok(())
    }

    fn bodies(&mut self) -> Result<(), Violation> {
        let program = self.program;
        self.block(&program.body)?;
        let mut first = 0;
        for role in &program.roles {
            let whole = role.first == first && role.threads > 0 && role.threads % 128 == 0;
            ensure(whole, 3, role.span, || format!("the role `{}` has other threads", role.name))?;
            first += role.threads;
            let outside = self.alive.clone();
            self.block(&role.body)?;
            self.alive = outside;
        }
        if !program.roles.is_empty() {
            let span = program.threads_span;
            ensure(first == program.threads, 3, span, || "its roles do not have its threads".to_string())?;
            for stmt in &program.body {
                let defines =
                    matches!(stmt.kind, StmtKind::Define(_) | StmtKind::Pipeline(_) | StmtKind::Barrier(_));
                let what = || format!("`{}` stands beside roles", self.text(stmt));
                ensure(defines, 3, stmt.span, what)?;
            }
        }
        Ok(())
    }

    fn text(&self, stmt: &Stmt) -> String {
        statement_text(self.program, stmt)
    }

    fn block(&mut self, body: &'a [Stmt]) -> Result<(), Violation> {
        let mut last = BTreeSet::new();
        for (i, stmt) in body.iter().enumerate() {
            let alone = stmt.kind.is_otherwise() && (i == 0 || otherwise(body, i - 1).is_none());
            ensure(!alone, 8, stmt.span, || "an `else` stands without its `if`".to_string())?;
            let loops = matches!(stmt.kind, StmtKind::For { .. });
            let leaves = |inner: &&Stmt| matches!(inner.kind, StmtKind::Break { .. });
            let leaves = stmt.kind.body().iter().find(leaves).filter(|_| !loops);
            ensure(leaves.is_none(), 8, stmt.span, || {
                "a `break` stands outside of its loop's body".to_string()
            })?;
            last = self.statement(stmt, last)?;
        }
        Ok(())
    }

    /// Checks a statement, given the counters of the loop before it that a `drain` reads; returns those of its own.
    fn statement(
        &mut self,
        stmt: &'a Stmt,
        before: BTreeSet<SymbolId>,
    ) -> Result<BTreeSet<SymbolId>, Violation> {
        let program = self.program;
        let known = program.statements.contains(stmt.id) && self.ids.insert(stmt.id);
        ensure(known, 1, stmt.span, || format!("`{}` has the id of another statement", self.text(stmt)))?;
        let turn = matches!(stmt.kind, StmtKind::InTurn { .. });
        ensure(!turn, 9, stmt.span, || format!("`{}` stands for barriers", self.text(stmt)))?;
        let named = matches!(stmt.kind, StmtKind::Let { .. });
        ensure(!named, 5, stmt.span, || format!("`{}` names an integer", self.text(stmt)))?;
        let mut counted = BTreeSet::new();
        for operand in stmt.kind.operands() {
            match operand {
                Operand::Tensor(used, id) => self.tensor(stmt, used, *id)?,
                Operand::Reference(used, r) => {
                    self.tensor(stmt, used, r.tensor)?;
                    if let Some(indexed) = r.indexed {
                        self.tensor(stmt, Use::Read, indexed.by)?;
                    }
                    self.reference(stmt, r)?;
                }
                Operand::Constant(_) => {}
                Operand::Expr(e) => {
                    // The condition of a loop sees its counter.
                    let outer = self.counters.clone();
                    self.counters.extend(&counted);
                    self.expr(stmt, e)?;
                    self.counters = outer;
                }
                Operand::Counter(Use::Define, id) => {
                    // It is visible behind the statement, to the end of the body.
                    if stmt.kind.names_integer() {
                        self.counters.insert(*id);
                    }
                    let known = program.symbols.get(id).is_some_and(|row| row.size.is_none());
                    ensure(known, 1, stmt.span, || format!("`{}` has no counter", self.text(stmt)))?;
                    counted.insert(*id);
                }
                Operand::Counter(_, id) => {
                    let what = || format!("`{}` reads a counter of no loop before it", self.text(stmt));
                    ensure(before.contains(id), 5, stmt.span, what)?;
                    counted.insert(*id);
                }
                Operand::Barrier(_, id) => {
                    let known = (id.0 as usize) < program.barriers.len();
                    ensure(known, 1, stmt.span, || format!("`{}` names no barrier", self.text(stmt)))?;
                }
                Operand::Pipeline(_, id) => {
                    let known = (id.0 as usize) < program.pipelines.len();
                    ensure(known, 1, stmt.span, || format!("`{}` names no pipeline", self.text(stmt)))?;
                }
                Operand::Scalar(id) | Operand::Param(_, id) => {
                    let known = (id.0 as usize) < program.params.len();
                    ensure(known, 1, stmt.span, || format!("`{}` names no parameter", self.text(stmt)))?;
                }
                Operand::Body(body) => {
                    let (alive, counters) = (self.alive.clone(), self.counters.clone());
                    self.counters.extend(&counted);
                    let depth = self.open.len();
                    if let StmtKind::Stage { pipeline, side, .. } = &stmt.kind {
                        self.open.push(Slot { pipeline: *pipeline, side: *side });
                    }
                    self.block(body)?;
                    self.open.truncate(depth);
                    (self.alive, self.counters) = (alive, counters);
                }
            }
        }
        Ok(counted)
    }

    fn tensor(&mut self, stmt: &Stmt, used: Use, id: TensorId) -> Result<(), Violation> {
        let known = (id.0 as usize) < self.program.tensors.len();
        ensure(known, 1, stmt.span, || format!("`{}` names no tensor", self.text(stmt)))?;
        if matches!(used, Use::Define | Use::Assign) {
            self.alive.insert(id);
            return Ok(());
        }
        let what =
            || format!("`{}` uses `{}` before it is defined", self.text(stmt), self.program.tensor(id).name);
        ensure(self.alive.contains(&id), 4, stmt.span, what)
    }

    fn expr(&self, stmt: &Stmt, e: &Expr) -> Result<(), Violation> {
        match e {
            Expr::Int(_) | Expr::Block(_) => Ok(()),
            Expr::Element(param, index) => {
                let known = (param.0 as usize) < self.program.params.len();
                ensure(known, 1, stmt.span, || format!("`{}` names no parameter", self.text(stmt)))?;
                index.iter().try_for_each(|e| self.expr(stmt, e))
            }
            Expr::Scalar(param) => {
                let known = self.program.params.get(param.0 as usize).is_some_and(Param::is_integer);
                ensure(known, 1, stmt.span, || format!("`{}` names no integer", self.text(stmt)))
            }
            Expr::Binary(_, a, b) => {
                self.expr(stmt, a)?;
                self.expr(stmt, b)
            }
            Expr::Symbol(id) => {
                let row = self.program.symbols.get(id);
                let known = row.is_some_and(|row| row.size.is_some()) || self.counters.contains(id);
                let name = || row.map_or("?", |row| row.name.as_str());
                ensure(known, 5, stmt.span, || {
                    format!("`{}` is no size or counter in `{}`", name(), self.text(stmt))
                })
            }
        }
    }

    fn reference(&self, stmt: &Stmt, r: &super::TensorRef) -> Result<(), Violation> {
        let program = self.program;
        let row = program.tensor(r.tensor);
        let rank = match &row.kind {
            TensorKind::View { modes, .. } => modes.len(),
            TensorKind::Shared { shape, .. } | TensorKind::Tensor { shape } => shape.len(),
            TensorKind::Register { .. } => 0,
        };
        let what =
            || format!("`{}` has another number of modes than its index in `{}`", row.name, self.text(stmt));
        ensure(r.index.is_empty() || r.index.len() == rank, 6, stmt.span, what)?;
        let at_stage = matches!(r.index.last(), Some(Some(Coord::Slot(_))));
        let outside = || format!("`{}` is at no stage of its pipeline in `{}`", row.name, self.text(stmt));
        ensure(at_stage || !self.staged.contains(&r.tensor), 7, stmt.span, outside)?;
        for (mode, coord) in r.index.iter().enumerate() {
            match coord {
                None => {}
                Some(Coord::Expr(e)) => self.expr(stmt, e)?,
                Some(Coord::Slot(slot)) => {
                    let known = (slot.pipeline.0 as usize) < program.pipelines.len();
                    let holds = known
                        && row.memory() == Memory::Shared
                        && mode + 1 == rank
                        && program.pipeline(slot.pipeline).tensors.contains(&r.tensor)
                        && self.open.contains(slot);
                    ensure(holds, 7, stmt.span, outside)?;
                }
            }
        }
        Ok(())
    }
}
