//! Replaces statements that no single instruction family does by those that do.
//!
//! Keeps: the program's meaning, and every id. The statements that replace another have its id as their origin.

use std::collections::BTreeSet;

use super::{
    Changed, Coord, CopyAttrs, Expr, Program, ShapeOp, Stmt, StmtId, StmtKind, SyncScope, TensorId,
    TensorKind, TensorRef,
};
use tilewright_machine::Memory;

/// Replaces copies from shared to global memory, and those to shared memory that say what lies outside, or to rows that a register tensor names: each becomes two, through a new
/// register tensor. Asynchronous copies that the tensor memory accelerator does and those that add stay. A copy of a view with modes of stride 0 to registers becomes one without these modes, and a
/// broadcast: a thread loads once what it holds several times, and the layout of what is loaded follows that of what is repeated.
pub fn desugar_copies(program: &mut Program) -> Changed {
    run(program, &|program, stmt| match &stmt.kind {
        // Threads that store do not add: such a copy stays what it is.
        StmtKind::CopyAsync { how, .. } if how.add => None,
        StmtKind::Copy { src, dst, .. } if program.tensor(dst.tensor).memory() == Memory::Register => {
            let repeated = repeated_modes(program, src);
            let loads = !repeated.is_empty() && repeated.len() < program.tile(src).shape.len();
            loads.then_some(Replace::Repeated(repeated))
        }
        kind => {
            let (src, dst) = kind.copied()?;
            let [from, to] = [src, dst].map(|r| program.tensor(r.tensor).memory());
            let stores = (from, to) == (Memory::Shared, Memory::Global);
            // Only registers hold anything but zeros where nothing is read.
            let fills =
                matches!(kind, StmtKind::Copy { how, .. } if how.outside.is_some()) || dst.indexed.is_some();
            let loads = (from, to) == (Memory::Global, Memory::Shared) && fills;
            (stores || loads).then_some(Replace::Copy)
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
        StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } => {
            let loads = program.tensor(src.tensor).memory() == Memory::Global
                && program.tensor(dst.tensor).memory() == Memory::Shared;
            loads.then_some(Replace::Copy)
        }
        _ => None,
    })
}

/// The modes of the tile of a view that repeat it: those of stride 0. Each with the view's mode.
fn repeated_modes(program: &Program, reference: &TensorRef) -> Vec<(usize, usize)> {
    let tile = program.tile(reference);
    let Some(global) = &tile.global else { return Vec::new() };
    let TensorKind::View { modes, .. } = &program.tensor(reference.tensor).kind else { return Vec::new() };
    let is_kept = |mode: &usize| reference.index.get(*mode).is_none_or(Option::is_none);
    let indexed = tile.indexed.as_ref().map(|indexed| indexed.at);
    let mut kept: Vec<usize> = (0..modes.len()).filter(is_kept).collect();
    if tile.transposed {
        kept.reverse();
    }
    let repeats = |axis: &usize| {
        let leaves = &global.modes[*axis];
        tile.shape[*axis] > 1
            && indexed != Some(*axis)
            && leaves.iter().all(|(extent, _, scale)| *extent == 1 || *scale == 0)
    };
    (0..kept.len()).filter(repeats).map(|axis| (axis, kept[axis])).collect()
}

/// Replacement of a statement.
enum Replace {
    /// A copy without modes that repeat, each of the tile with the view's, and a broadcast.
    Repeated(Vec<(usize, usize)>),
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

    /// The number of modes of a view.
    fn modes(&self, program: &Program, view: TensorId) -> usize {
        match &program.tensor(view).kind {
            TensorKind::View { modes, .. } => modes.len(),
            TensorKind::Shared { shape, .. }
            | TensorKind::Register { shape, .. }
            | TensorKind::Tensor { shape } => shape.len(),
        }
    }

    fn replaced(&mut self, program: &mut Program, stmt: &Stmt, replace: Replace) -> Vec<StmtKind> {
        let whole = |tensor: TensorId| TensorRef { span: stmt.span, ..TensorRef::whole(tensor) };
        let copy = |src, dst, how| StmtKind::Copy { src, dst, how };
        match (replace, &stmt.kind) {
            (Replace::Rearrange, StmtKind::Rearrange { dst, src }) => {
                let kind = TensorKind::Shared { shape: program.shape(*src), pinned: None };
                let tmp = program.add_tensor(*src, "staged", kind);
                let define = self.defined.insert(*dst).then_some(StmtKind::Define(*dst));
                let trip = [
                    StmtKind::Define(tmp),
                    StmtKind::Sync(SyncScope::All),
                    copy(whole(*src), whole(tmp), CopyAttrs::default()),
                    StmtKind::Sync(SyncScope::All),
                    copy(whole(tmp), whole(*dst), CopyAttrs::default()),
                ];
                define.into_iter().chain(trip).collect()
            }
            (Replace::Copy, StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. }) => {
                let how =
                    if let StmtKind::Copy { how, .. } = &stmt.kind { *how } else { CopyAttrs::default() };
                let kind = TensorKind::Register { shape: program.tile(src).shape, pinned: None };
                let tmp = program.add_tensor(src.tensor, "loaded", kind);
                vec![
                    StmtKind::Define(tmp),
                    copy(src.clone(), whole(tmp), CopyAttrs { combine: None, ..how }),
                    copy(whole(tmp), dst.clone(), CopyAttrs { outside: None, ..how }),
                ]
            }
            (Replace::Repeated(modes), StmtKind::Copy { src, dst, how }) => {
                let shape = program.tile(src).shape;
                let is_kept = |axis: &usize| modes.iter().all(|(repeated, _)| repeated != axis);
                let mut extents: Vec<i64> = (0..shape.len()).filter(is_kept).map(|k| shape[k]).collect();
                let mut index = src.index.clone();
                index.resize(index.len().max(self.modes(program, src.tensor)), None);
                modes.iter().for_each(|(_, mode)| index[*mode] = Some(Coord::Expr(Expr::Int(0))));
                let register = |shape: &[i64]| TensorKind::Register { shape: shape.to_vec(), pinned: None };
                let mut once = program.add_tensor(src.tensor, "once", register(&extents));
                let load = copy(TensorRef { index, ..src.clone() }, whole(once), *how);
                let mut out = vec![StmtKind::Define(once), load];
                for (axis, _) in modes {
                    extents.insert(axis, 1);
                    let wider = program.add_tensor(src.tensor, "once", register(&extents));
                    let op = ShapeOp::Expand { axis: axis as u32 };
                    out.push(StmtKind::Shape { dst: wider, src: once, op });
                    once = wider;
                }
                let op = ShapeOp::Broadcast(shape);
                out.push(StmtKind::Shape { dst: dst.tensor, src: once, op });
                out
            }
            (_, kind) => vec![kind.clone()],
        }
    }
}
