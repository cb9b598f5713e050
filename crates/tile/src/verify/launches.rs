//! Launches that overlap: whether parameters are accessed only behind `wait_dependencies()`, as far as the order of the statements shows it.
//!
//! Each role is walked in its order with whether it has waited: no, yes, or perhaps (a wait in a loop that may have no iterations, a stage from a
//! role that waits between others). Only what is certain is refused; the simulator follows the rest.

use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{Operand, ParamId, Program, Side, Stmt, StmtKind, TensorId, TensorKind};

use super::stage::stages_of;
use crate::statement::otherwise;

/// The mistakes of a program whose statements are legal each for itself.
pub(super) fn check(program: &Program) -> Vec<Diagnostic> {
    let mut errors = Vec::new();
    writes_of_constants(program, &program.body, &mut errors);
    let mut found = Found::default();
    found.look(&program.body);
    let Found { waits, launches } = &found;
    match (waits.first(), launches.first()) {
        (None, None) => return errors,
        (None, Some(launch)) => {
            let message = "the kernel lets launches behind it begin and does not wait for those before it, so that \
                           nothing orders these and those";
            let help = "write `wait_dependencies()` before the kernel reads or writes its parameters";
            errors.push(Diagnostic::new(Code::Misplaced, *launch, message).help(help));
            return errors;
        }
        (Some(_), _) => {}
    }
    let parts = parts(program);
    let unknown = vec![Handed::default(); program.pipelines.len()];
    let mut walk = Walk {
        program,
        part: Part { role: None, body: &[], wait: None },
        others_wait: false,
        produced: false,
        handed: unknown.clone(),
        filled: unknown.clone(),
        errors: Vec::new(),
    };
    // Pipelines lead from role to role in any order: once more than there are roles, and all is known.
    let mut all_wait = false;
    for _ in 0..=parts.len() {
        walk.handed = std::mem::replace(&mut walk.filled, unknown.clone());
        walk.errors.clear();
        all_wait = false;
        for (i, part) in parts.iter().enumerate() {
            walk.part = *part;
            walk.others_wait = parts.iter().enumerate().any(|(j, other)| j != i && other.wait.is_some());
            walk.produced = false;
            all_wait |= walk.block(part.body, Waited::No) == Waited::Yes;
        }
    }
    errors.append(&mut walk.errors);
    if let Some(wait) = waits.first().filter(|_| !all_wait) {
        let message = "a block in which the loop around `wait_dependencies()` has no rounds ends without it, and nothing orders the \
                       launches behind this one and those before it";
        let at = launches.first().unwrap_or(wait);
        errors.push(
            Diagnostic::new(Code::Misplaced, *at, message)
                .related(*wait, "the wait")
                .help("write `wait_dependencies()` outside of loops, once in every block"),
        );
    }
    errors
}

/// Reports the statements that write parameters marked `constant`.
fn writes_of_constants(program: &Program, body: &[Stmt], errors: &mut Vec<Diagnostic>) {
    for stmt in body {
        writes_of_constants(program, stmt.kind.body(), errors);
        let (StmtKind::Copy { dst, .. } | StmtKind::CopyAsync { dst, .. }) = &stmt.kind else { continue };
        let TensorKind::View { param, .. } = program.tensor(dst.tensor).kind else { continue };
        let row = program.param(param);
        if row.is_constant() {
            let message = format!("`{}` is written here, and the parameter is `constant`", row.name);
            errors.push(
                Diagnostic::new(Code::Misplaced, stmt.span, message).related(row.span, "the parameter").help(
                    format!(
                        "no launch of a sequence writes what is `constant`: declare it as `{}: …`",
                        row.name
                    ),
                ),
            );
        }
    }
}

/// The places at which a program waits for the launches before it, and lets those behind it begin.
#[derive(Default)]
struct Found {
    waits: Vec<Origin>,
    launches: Vec<Origin>,
}

impl Found {
    fn look(&mut self, body: &[Stmt]) {
        for stmt in body {
            match stmt.kind {
                StmtKind::WaitDependencies => self.waits.push(stmt.span),
                StmtKind::LaunchDependents => self.launches.push(stmt.span),
                _ => self.look(stmt.kind.body()),
            }
        }
    }
}

/// A role, or the whole kernel.
#[derive(Clone, Copy)]
struct Part<'a> {
    role: Option<&'a str>,
    body: &'a [Stmt],
    /// Its first wait.
    wait: Option<Origin>,
}

/// The roles of a program; of one without roles, all of it.
fn parts(program: &Program) -> Vec<Part<'_>> {
    let part = |role, body| {
        let mut found = Found::default();
        found.look(body);
        Part { role, body, wait: found.waits.first().copied() }
    };
    let roles = program.body.iter().filter_map(|stmt| match &stmt.kind {
        StmtKind::Role { name, body, .. } => Some(part(Some(name), body)),
        _ => None,
    });
    let roles: Vec<Part<'_>> = roles.collect();
    if roles.is_empty() {
        return vec![part(None, &program.body)];
    }
    roles
}

/// The state of threads with respect to a wait for the launches before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    No,
    Perhaps,
    Yes,
}

impl Waited {
    fn or(self, other: Waited) -> Waited {
        if self == other { self } else { Waited::Perhaps }
    }
}

/// The state of the role that fills the stages of each pipeline, at that time.
#[derive(Clone, Copy, Default)]
struct Handed {
    /// At the first stage.
    first: Option<Waited>,
    /// Perhaps at any.
    any: bool,
}

/// An access to a parameter.
#[derive(Clone, Copy)]
enum Access {
    Read,
    Element,
    Write,
}

struct Walk<'a> {
    program: &'a Program,
    part: Part<'a>,
    /// True if another role waits.
    others_wait: bool,
    /// True if the part has filled a stage.
    produced: bool,
    /// By pipeline, as far as it is known, and as the walk finds it.
    handed: Vec<Handed>,
    filled: Vec<Handed>,
    errors: Vec<Diagnostic>,
}

impl Walk<'_> {
    fn block(&mut self, body: &[Stmt], before: Waited) -> Waited {
        let mut waited = before;
        for (i, stmt) in body.iter().enumerate() {
            waited = match (&stmt.kind, otherwise(body, i)) {
                // The `if` before it has walked it.
                (kind, _) if kind.is_otherwise() && i > 0 => continue,
                (StmtKind::If { .. }, other) => {
                    let taken = self.statement(stmt, waited);
                    let left = other.map_or(waited, |other| self.statement(other, waited));
                    taken.or(left)
                }
                _ => self.statement(stmt, waited),
            };
        }
        waited
    }

    fn statement(&mut self, stmt: &Stmt, waited: Waited) -> Waited {
        if waited == Waited::No {
            self.accesses(stmt);
        }
        match &stmt.kind {
            StmtKind::WaitDependencies => Waited::Yes,
            StmtKind::For { condition: Some(_), body, .. } => self.rounds(stmt, body, None, waited),
            kind if kind.may_break() => self.rounds(stmt, kind.body(), None, waited),
            StmtKind::For { lo, hi, body, .. } => {
                let some = lo.as_int().zip(hi.as_int()).map(|(lo, hi)| lo < hi);
                self.rounds(stmt, body, some, waited)
            }
            StmtKind::Tiles { body, .. } => self.rounds(stmt, body, None, waited),
            StmtKind::Drain { body, .. } | StmtKind::InTurn { body, .. } | StmtKind::If { body, .. } => {
                self.block(body, waited)
            }
            StmtKind::Stage { pipeline, side: Side::Produce, body, .. } => {
                // A stage is given back by a role that may have waited.
                let free = self.produced && self.others_wait && waited == Waited::No;
                let waited = self.block(body, if free { Waited::Perhaps } else { waited });
                self.produced = true;
                let filled = &mut self.filled[pipeline.0 as usize];
                filled.first.get_or_insert(waited);
                filled.any |= waited != Waited::No;
                waited
            }
            StmtKind::Stage { pipeline, body, .. } => {
                let handed = self.handed[pipeline.0 as usize];
                let before = match handed {
                    _ if waited == Waited::Yes => Waited::Yes,
                    Handed { first: Some(Waited::Yes), .. } => Waited::Yes,
                    Handed { any: true, .. } => Waited::Perhaps,
                    Handed { .. } => waited,
                };
                self.block(body, before)
            }
            _ => waited,
        }
    }

    /// A loop that certainly has iterations, or none, or perhaps some.
    fn rounds(&mut self, stmt: &Stmt, body: &[Stmt], some: Option<bool>, before: Waited) -> Waited {
        if some == Some(false) {
            return before;
        }
        let mut after = self.block(body, before);
        let mut fills = false;
        for (pipeline, side) in stages_of(&stmt.kind) {
            if side == Side::Produce {
                fills = true;
                self.filled[pipeline.0 as usize].any |= after != Waited::No;
            }
        }
        if fills && self.others_wait && after == Waited::No {
            after = Waited::Perhaps;
        }
        if some == Some(true) { after } else { before.or(after) }
    }

    /// Reports what a statement does to parameters before the wait, but for what is in its body.
    fn accesses(&mut self, stmt: &Stmt) {
        let mut found: Vec<(ParamId, Access)> = Vec::new();
        for operand in stmt.kind.operands() {
            if let Operand::Param(used, param) = operand {
                found.push((*param, if used.writes() { Access::Write } else { Access::Element }));
            }
        }
        let mut element = |e: &Expr| e.elements(&mut |param| found.push((param, Access::Element)));
        for operand in stmt.kind.operands() {
            match operand {
                Operand::Expr(e) => element(e),
                Operand::Reference(_, r) => {
                    r.index.iter().flatten().for_each(&mut element);
                    if let TensorKind::View { offsets, ends, modes, fold, .. } =
                        &self.program.tensor(r.tensor).kind
                    {
                        let leaves = modes.iter().flat_map(|mode| &mode.leaves).chain(fold);
                        let extents = leaves.map(|leaf| &leaf.extent);
                        offsets.iter().chain(ends.iter().flatten()).chain(extents).for_each(&mut element);
                    }
                }
                _ => {}
            }
        }
        found.extend(stmt.kind.references().into_iter().filter_map(|(used, r)| {
            let access = if used.writes() { Access::Write } else { Access::Read };
            Some((self.param(r.tensor)?, access))
        }));
        for (param, access) in found {
            self.before_the_wait(param, access, stmt.span);
        }
    }

    /// The parameter of which a tensor is a view.
    fn param(&self, tensor: TensorId) -> Option<ParamId> {
        match self.program.tensor(tensor).kind {
            TensorKind::View { param, .. } => Some(param),
            _ => None,
        }
    }

    fn before_the_wait(&mut self, param: ParamId, access: Access, span: Origin) {
        let row = self.program.param(param);
        if row.is_constant() {
            return;
        }
        let name = &row.name;
        let what = match access {
            Access::Read => format!("`{name}` is read"),
            Access::Element => format!("an element of `{name}` is read"),
            Access::Write => format!("`{name}` is written"),
        };
        let may = match access {
            Access::Read | Access::Element => "write",
            Access::Write => "read or write",
        };
        let (place, label) = match (self.part.wait, self.part.role) {
            (None, Some(role)) => (format!("in the role `{role}`, which does not wait"), "without a wait"),
            _ => ("before `wait_dependencies()`".to_string(), "before the wait"),
        };
        let message = format!("{what} {place}: a launch before this one may still {may} it");
        let help = match access {
            Access::Read | Access::Element => format!(
                "write `wait_dependencies()` before it, or, if no launch of a sequence writes the tensor, `constant {name}: …` in the \
                 parameters"
            ),
            Access::Write => "write `wait_dependencies()` before it".to_string(),
        };
        let mut error = Diagnostic::new(Code::Misplaced, span, message).label(label).help(help);
        if let Some(wait) = self.part.wait {
            error = error.related(wait, "the wait");
        }
        self.errors.push(error);
    }
}
