//! Replaces statements that no single instruction family does by those that do.
//!
//! Keeps: the program's meaning, and every id. The statements that replace another have its id as their origin.

use std::collections::BTreeSet;

use super::{Changed, Program, Stmt, StmtId, StmtKind, TensorId, TensorKind, TensorRef};
use tilewright_machine::Memory;

/// Replaces copies from shared to global memory: each becomes two, through a new register tensor. Copies that the tensor memory
/// accelerator does and those that add stay.
pub fn desugar_copies(program: &mut Program) -> Changed {
    run(program, &|program, stmt| match &stmt.kind {
        // Threads that store do not add: such a copy stays what it is.
        StmtKind::CopyAsync { how, .. } if how.add => None,
        kind => {
            let (src, dst) = kind.copied()?;
            let stores = program.tensor(src.tensor).memory() == Memory::Shared
                && program.tensor(dst.tensor).memory() == Memory::Global;
            stores.then_some(Replace::Copy)
        }
    })
}

/// Replaces statements of a set. `dst = rearrange(src)` becomes a trip through a new shared tensor: definition, `syncthreads`,
/// `copy(src, tmp)`, `syncthreads`, `copy(tmp, dst)`. The first barrier keeps a later iteration of a loop from overwriting what threads
/// still read. A copy from global to shared memory becomes two through a new register tensor, at once.
pub fn desugar_rearrangements(program: &mut Program, which: &BTreeSet<StmtId>) -> Changed {
    run(program, &|program, stmt| match &stmt.kind {
        _ if !which.contains(&stmt.id) => None,
        StmtKind::Rearrange { .. } => Some(Replace::Rearrange),
        StmtKind::CopyAsync { how, .. } if how.add => None,
        StmtKind::Copy { src, dst } | StmtKind::CopyAsync { src, dst, .. } => {
            let loads = program.tensor(src.tensor).memory() == Memory::Global
                && program.tensor(dst.tensor).memory() == Memory::Shared;
            loads.then_some(Replace::Copy)
        }
        _ => None,
    })
}

/// Replacement of a statement.
enum Replace {
    /// Two copies through registers.
    Copy,
    /// A trip through shared memory.
    Rearrange,
}

type Which<'a> = dyn Fn(&Program, &Stmt) -> Option<Replace> + 'a;

fn run(program: &mut Program, which: &Which<'_>) -> Changed {
    let mut pass = Desugar { which, defined: BTreeSet::new(), changed: false };
    let (body, roles) = (std::mem::take(&mut program.body), std::mem::take(&mut program.roles));
    program.body = pass.block(program, body);
    for mut role in roles {
        role.body = pass.block(program, role.body);
        program.roles.push(role);
    }
    Changed::from(pass.changed)
}

struct Desugar<'a> {
    which: &'a Which<'a>,
    defined: BTreeSet<TensorId>,
    changed: bool,
}

impl Desugar<'_> {
    fn block(&mut self, program: &mut Program, body: Vec<Stmt>) -> Vec<Stmt> {
        let mut out = Vec::new();
        for mut stmt in body {
            if let Some(replace) = (self.which)(program, &stmt) {
                self.changed = true;
                for kind in self.replaced(program, &stmt, replace) {
                    out.push(Stmt { id: program.statements.fresh(Some(stmt.id)), kind, span: stmt.span });
                }
                continue;
            }
            self.defined.extend(stmt.kind.assigned());
            if let Some(body) = stmt.kind.body_mut() {
                *body = self.block(program, std::mem::take(body));
            }
            out.push(stmt);
        }
        out
    }

    fn replaced(&mut self, program: &mut Program, stmt: &Stmt, replace: Replace) -> Vec<StmtKind> {
        let whole = |tensor: TensorId| TensorRef { span: stmt.span, ..TensorRef::whole(tensor) };
        match (replace, &stmt.kind) {
            (Replace::Rearrange, StmtKind::Rearrange { dst, src }) => {
                let kind = TensorKind::Shared { shape: program.shape(*src), pinned: None };
                let tmp = program.add_tensor(*src, "staged", kind);
                let define = self.defined.insert(*dst).then_some(StmtKind::Define(*dst));
                let trip = [
                    StmtKind::Define(tmp),
                    StmtKind::Sync,
                    StmtKind::Copy { src: whole(*src), dst: whole(tmp) },
                    StmtKind::Sync,
                    StmtKind::Copy { src: whole(tmp), dst: whole(*dst) },
                ];
                define.into_iter().chain(trip).collect()
            }
            (Replace::Copy, StmtKind::Copy { src, dst } | StmtKind::CopyAsync { src, dst, .. }) => {
                let kind = TensorKind::Register { shape: program.tile(src).shape, pinned: None };
                let tmp = program.add_tensor(src.tensor, "loaded", kind);
                vec![
                    StmtKind::Define(tmp),
                    StmtKind::Copy { src: src.clone(), dst: whole(tmp) },
                    StmtKind::Copy { src: whole(tmp), dst: dst.clone() },
                ]
            }
            (_, kind) => vec![kind.clone()],
        }
    }
}
