//! Statements by their places, each with what was decided for it and what it costs.

use std::collections::BTreeMap;

use tilewright::compiler::Kernel as Compiled;
use tilewright::machine::Memory;
use tilewright::sim::{Class, Profile};
use tilewright::simt::Position;
use tilewright::tile::core::{Program, Stmt, StmtKind};
use tilewright::tile::{Span, TensorId, statement_text};

use crate::model::{Choice, Kind, Statement};
use crate::places::Places;

/// The statements of a kernel. Copies that unrolling made of one are one.
pub struct Statements {
    /// The statements, in program order.
    pub list: Vec<Statement>,
    /// Indices by the first byte.
    by_position: BTreeMap<u32, usize>,
}

impl Statements {
    /// Those of a kernel, with its decisions.
    pub fn new(kernel: &Compiled, places: &mut Places<'_>) -> Self {
        let core = &kernel.core;
        let mut statements = Statements { list: Vec::new(), by_position: BTreeMap::new() };
        statements.enter((core, &core.body), None, places);
        for (i, role) in core.roles.iter().enumerate() {
            statements.enter((core, &role.body), Some(i), places);
        }
        for note in &kernel.explanation.statements {
            let at = statements.at(note.position).unwrap_or_else(|| {
                statements.push(Some(note.position), note.text.clone(), Kind::Compute, places)
            });
            let new = Choice::of(note.clone());
            let choices = &mut statements.list[at].choices;
            match choices.iter_mut().find(|known| same(known, &new)) {
                Some(known) => known.count += 1,
                None => choices.push(new),
            }
        }
        statements
    }

    /// The statement that begins at a byte.
    pub fn at(&self, position: u32) -> Option<usize> {
        self.by_position.get(&position).copied()
    }

    /// The statement at a position of a trace or a profile; a new one where nothing is known there.
    pub fn find(
        &mut self,
        position: Option<Position>,
        (text, class): (&str, Option<Class>),
        places: &mut Places<'_>,
    ) -> Option<usize> {
        let byte = position.and_then(Position::text);
        if let Some(known) = byte.and_then(|byte| self.at(byte)) {
            return Some(known);
        }
        // What belongs to no statement is known by its text.
        let known = self.list.iter().position(|s| s.place.is_none() && s.text == text);
        let kind = if class == Some(Class::Barrier) { Kind::Synchronisation } else { Kind::Control };
        Some(
            known
                .filter(|_| byte.is_none())
                .unwrap_or_else(|| self.push(byte, text.to_string(), kind, places)),
        )
    }

    /// Adds the costs of a run.
    pub fn add_costs(&mut self, profile: &[Profile], places: &mut Places<'_>) {
        for row in profile {
            if let Some(at) = self.find(row.position, (&row.origin, Some(row.class)), places) {
                let costs = &mut self.list[at].costs;
                match costs.iter_mut().find(|known| known.instruction == row.instruction) {
                    Some(known) => add(known, row),
                    None => costs.push(row.clone()),
                }
            }
        }
    }

    fn push(&mut self, position: Option<u32>, text: String, kind: Kind, places: &mut Places<'_>) -> usize {
        let at = position.map(|byte| places.at(Span { start: byte, end: byte }));
        let (place, calls) = at.map_or((None, Vec::new()), |(place, calls)| (Some(place), calls));
        let (role, tensors, choices, costs) = (None, Vec::new(), Vec::new(), Vec::new());
        self.list.push(Statement { place, calls, text, kind, role, tensors, choices, costs });
        let index = self.list.len() - 1;
        if let Some(position) = position {
            self.by_position.insert(position, index);
        }
        index
    }

    fn enter(&mut self, (program, body): (&Program, &[Stmt]), role: Option<usize>, places: &mut Places<'_>) {
        for stmt in body {
            if let (Some(kind), Some(span)) = (kind_of(program, &stmt.kind), stmt.span.text()) {
                let index = self.at(span.start).unwrap_or_else(|| {
                    self.push(Some(span.start), statement_text(program, stmt), kind, places)
                });
                let statement = &mut self.list[index];
                statement.role = statement.role.or(role);
                let local = |id: &TensorId| program.tensor(*id).memory() != Memory::Global;
                for (_, id) in stmt.kind.tensors().into_iter().filter(|(_, id)| local(id)) {
                    let name = &program.tensor(id).name;
                    if !statement.tensors.contains(name) {
                        statement.tensors.push(name.clone());
                    }
                }
            }
            self.enter((program, stmt.kind.body()), role, places);
        }
    }
}

/// True if the same was decided, whatever the copies of the statement are called.
fn same(a: &Choice, b: &Choice) -> bool {
    let mut renamed = a.note.clone();
    (renamed.id, renamed.text) = (b.note.id, b.note.text.clone());
    renamed == b.note && a.lost == b.lost
}

/// The kind of a statement; none of definitions.
fn kind_of(program: &Program, kind: &StmtKind) -> Option<Kind> {
    let memory = |id: TensorId| program.tensor(id).memory();
    Some(match kind {
        StmtKind::Define(_) | StmtKind::Let { .. } | StmtKind::Pipeline(_) | StmtKind::Barrier(_) => {
            return None;
        }
        StmtKind::Gemm { .. } | StmtKind::GemmAsync { .. } => Kind::Product,
        StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } => {
            match [memory(src.tensor), memory(dst.tensor)] {
                [Memory::Register, Memory::Register] => Kind::Compute,
                ends if ends.contains(&Memory::Global) => Kind::Global,
                _ => Kind::Shared,
            }
        }
        StmtKind::Commit
        | StmtKind::Wait(_)
        | StmtKind::CommitGemm
        | StmtKind::WaitGemm(_)
        | StmtKind::WaitDependencies
        | StmtKind::LaunchDependents
        | StmtKind::Stage { .. }
        | StmtKind::Drain { .. }
        | StmtKind::Sync(_)
        | StmtKind::Arrive(_)
        | StmtKind::InTurn { .. }
        | StmtKind::SyncGrid { .. }
        | StmtKind::Signal { .. }
        | StmtKind::Await { .. }
        | StmtKind::Ticket { .. } => Kind::Synchronisation,
        StmtKind::Role { .. }
        | StmtKind::Tiles { .. }
        | StmtKind::If { .. }
        | StmtKind::IfAny { .. }
        | StmtKind::Break { .. }
        | StmtKind::For { .. } => Kind::Control,
        _ => Kind::Compute,
    })
}

fn add(to: &mut Profile, row: &Profile) {
    to.calls += row.calls;
    to.unit_cycles += row.unit_cycles;
    to.issue_cycles += row.issue_cycles;
    to.stall_cycles += row.stall_cycles;
    to.bytes.add(&row.bytes);
    let (sum, more) = (&mut to.counts, &row.counts);
    sum.shared_requests += more.shared_requests;
    sum.shared_wavefronts += more.shared_wavefronts;
    sum.shared_ideal += more.shared_ideal;
    sum.shared_bytes += more.shared_bytes;
    sum.global_requests += more.global_requests;
    sum.global_sectors += more.global_sectors;
    sum.global_ideal += more.global_ideal;
    sum.global_bytes += more.global_bytes;
}
