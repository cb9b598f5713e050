//! Checks of barriers: of roles, of warpgroups, and named ones.

use super::checker::Checker;
use crate::barriers::{BARRIERS, BarrierNumbers, Team, barriers_of, meets_by_warpgroup};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::ids::BarrierId;
use crate::program::{Barrier, BarrierKind, Program, Side, Stmt, StmtKind, SyncScope};

/// The roles of a program with their bodies.
fn roles(program: &Program) -> impl Iterator<Item = (i64, &[Stmt])> {
    program.body.iter().filter_map(|stmt| match &stmt.kind {
        StmtKind::Role { warpgroups, body, .. } => Some((warpgroups.as_int().unwrap_or(1), &body[..])),
        _ => None,
    })
}

impl Checker<'_> {
    /// `b = named_barrier()`.
    pub(super) fn named_barrier(&mut self, id: BarrierId, span: Origin) {
        let Barrier { name, kind, .. } = self.program.barrier(id);
        if std::mem::replace(&mut self.barred[id.0 as usize], true) {
            let message = format!("`{name}` is defined twice");
            self.report(Diagnostic::new(Code::DuplicateName, span, message).help("remove one definition"));
        }
        if self.role_names.is_empty() {
            let (what, help) = match kind {
                BarrierKind::Named => ("the named barrier", "all threads meet in `syncthreads()`"),
                BarrierKind::Turns => ("the turns", "roles take turns: write `warpgroup name(1) { … }`"),
            };
            self.misplaced(span, format!("{what} `{name}` in a kernel without roles"), help);
        }
    }

    /// `syncthreads()`, `syncthreads(warpgroup)`, `syncthreads(b)`.
    pub(super) fn sync(&mut self, scope: SyncScope, threads: Option<u32>, span: Origin) {
        match scope {
            SyncScope::All => {}
            SyncScope::Warpgroup => self.whole_warpgroups("syncthreads(warpgroup)", threads, span),
            SyncScope::Barrier(id) => self.come(id, BarrierKind::Named, span),
        }
    }

    /// `arrive(b)`.
    pub(super) fn arrive(&mut self, id: BarrierId, span: Origin) {
        self.come(id, BarrierKind::Named, span);
    }

    /// `in_turn t { … }`.
    pub(super) fn in_turn(&mut self, turns: BarrierId, body: &[Stmt], threads: Option<u32>, span: Origin) {
        self.come(turns, BarrierKind::Turns, span);
        let name = &self.program.barrier(turns).name;
        if self.turns.contains(&turns) {
            let message = format!("`in_turn {name}` inside `in_turn {name}`");
            self.misplaced(
                span,
                message,
                "the role has the turn already, and passes it at the end of the outer one",
            );
        }
        self.turns.push(turns);
        self.block(body, threads, "turn");
        self.turns.pop();
    }

    /// A statement of a barrier that must be of this kind.
    fn come(&mut self, id: BarrierId, wanted: BarrierKind, span: Origin) {
        let Barrier { name, kind, .. } = self.program.barrier(id);
        if *kind != wanted {
            let (is, help) = match kind {
                BarrierKind::Named => {
                    ("a named barrier", "use `syncthreads(…)` and `arrive(…)`, or make turns: `t = turns()`")
                }
                BarrierKind::Turns => {
                    ("turns", "use `in_turn t { … }`, or make a named barrier: `b = named_barrier()`")
                }
            };
            let message = format!("`{name}` is {is}");
            self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
        }
        if !self.barred[id.0 as usize] {
            let message = format!("`{name}` is used before it is defined");
            self.report(
                Diagnostic::new(Code::UnknownName, span, message)
                    .help("define it on an earlier line, beside the roles"),
            );
        }
    }

    /// Reports a statement that comes to a barrier inside a `produce`.
    pub(super) fn comes_while_filling(&mut self, stmt: &Stmt) {
        let word = match stmt.kind {
            StmtKind::Sync(_) => "syncthreads",
            StmtKind::Arrive(_) => "arrive",
            StmtKind::SyncGrid { .. } => "syncgrid",
            StmtKind::Signal { .. } => "signal",
            StmtKind::Await { .. } => "wait",
            StmtKind::Ticket { .. } => "ticket",
            StmtKind::InTurn { .. } => "in_turn",
            _ => return,
        };
        if let Some(stage) = self.stages.iter().find(|stage| stage.side == Side::Produce) {
            let message = format!("`{word}` inside `produce {}`", self.pipeline_name(stage.pipeline));
            let help = "what fills a stage does not wait: place the barrier before or after";
            self.misplaced(stmt.span, message, help);
        }
    }

    /// True if two roles come to one named barrier.
    pub(super) fn meet(&self, [a, b]: [usize; 2]) -> bool {
        let of = |role: usize| {
            roles(self.program).nth(role).map(|(_, body)| barriers_of(body)).unwrap_or_default()
        };
        !of(a).is_disjoint(&of(b))
    }

    /// Several roles come to each named barrier, and one waits; the block has enough barriers.
    pub(super) fn meetings(&mut self, threads: Option<u32>) {
        let program = self.program;
        let bodies: Vec<(i64, &[Stmt])> = roles(program).collect();
        let mut needed = 0;
        for (i, row) in program.barriers.iter().enumerate() {
            let id = BarrierId(i as u32);
            let come = bodies.iter().filter(|(_, body)| barriers_of(body).contains(&id)).count();
            let mut waits = false;
            program.body.iter().for_each(|stmt| waits |= waits_at(&stmt.kind, id));
            let name = &row.name;
            needed += if row.kind == BarrierKind::Turns { come } else { 1 };
            if row.kind == BarrierKind::Turns {
                if come < 2 && !bodies.is_empty() {
                    let whose = if come == 0 { "no role takes" } else { "one role alone takes" };
                    let message = format!("{whose} turns of `{name}`");
                    self.misplaced(row.span, message, format!("several roles have `in_turn {name} {{ … }}`"));
                }
            } else if come < 2 && !bodies.is_empty() {
                let whose = if come == 0 { "no role comes" } else { "one role alone comes" };
                let message = format!("{whose} to the named barrier `{name}`");
                self.misplaced(
                    row.span,
                    message,
                    "the threads of a role meet in `syncthreads()`; a named barrier is for several roles",
                );
            } else if !waits && come > 0 {
                let message = format!("roles arrive at `{name}`, and none waits there");
                self.misplaced(row.span, message, format!("write `syncthreads({name})` in one of them"));
            }
        }
        let whole = [(i64::from(threads.unwrap_or(0)) / 128, &program.body[..])];
        let teams = if bodies.is_empty() { &whole[..] } else { &bodies[..] };
        let teams: Vec<Team> = teams
            .iter()
            .map(|(warpgroups, body)| Team {
                warpgroups: u32::try_from(*warpgroups).unwrap_or(0),
                by_warpgroup: meets_by_warpgroup(body),
            })
            .collect();
        let count = BarrierNumbers::new(&teams, !bodies.is_empty(), needed).count();
        if count > BARRIERS {
            let message = format!(
                "the kernel needs {count} barriers, and a block has {BARRIERS}: one for the block, {} for roles, {} for warpgroups that \
                 meet by themselves, {needed} named ones and turns",
                bodies.len(),
                (count as usize).saturating_sub(1 + bodies.len() + needed)
            );
            let span = program.barriers.last().map_or(program.threads_span, |row| row.span);
            self.report(
                Diagnostic::new(Code::BadLaunch, span, message)
                    .help("use one barrier for several meetings of the same roles"),
            );
        }
    }
}

/// True if a statement waits at a named barrier, or one inside it does.
fn waits_at(kind: &StmtKind, id: BarrierId) -> bool {
    *kind == StmtKind::Sync(SyncScope::Barrier(id)) || kind.body().iter().any(|stmt| waits_at(&stmt.kind, id))
}
