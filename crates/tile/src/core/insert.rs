//! Inserts a rearrangement before a statement, for one of its operands.
//!
//! Keeps: the program's meaning, and every id. The statement reads a new register tensor that holds the same tile, so that it may be
//! distributed in another way.

use super::{OperandMut, Program, Stmt, StmtId, StmtKind, TensorId, TensorKind, Use};

/// Lets statement `before` read `rearrange(tensor)` for the register tensor `tensor`; returns the new tensor. What the statement writes
/// stays as it is. `None`, and nothing is changed, if the program has no such statement.
pub fn insert_rearrangement(program: &mut Program, before: StmtId, tensor: TensorId) -> Option<TensorId> {
    let kind = TensorKind::Register { shape: program.shape(tensor), pinned: None };
    let fresh = TensorId(program.tensors.len() as u32);
    let rearrange = program.statements.fresh(Some(before));
    if !program.bodies_mut().any(|body| insert(body, before, rearrange, (tensor, fresh))) {
        return None;
    }
    Some(program.add_tensor(tensor, "moved", kind))
}

/// The indexed modes of a statement's references.
fn indices(kind: &mut StmtKind) -> impl Iterator<Item = &mut TensorId> {
    let reference = |operand| if let OperandMut::Reference(_, r) = operand { Some(r) } else { None };
    let references = kind.operands_mut().into_iter().filter_map(reference);
    references.filter_map(|r| r.indexed.as_mut().map(|indexed| &mut indexed.by))
}

/// Lets a statement read another tensor. One that indexes a mode is replaced there alone.
fn replace(kind: &mut StmtKind, old: TensorId, new: TensorId) {
    if indices(kind).any(|by| *by == old) {
        indices(kind).filter(|by| **by == old).for_each(|by| *by = new);
        return;
    }
    for operand in kind.operands_mut() {
        match operand {
            OperandMut::Tensor(Use::Read, id) if *id == old => *id = new,
            OperandMut::Reference(Use::Read, r) if r.tensor == old => r.tensor = new,
            _ => {}
        }
    }
}

/// True if a statement, or one inside, defines or writes a tensor.
fn changes(stmt: &Stmt, tensor: TensorId) -> bool {
    let mut tensors = stmt.kind.tensors().into_iter();
    tensors.any(|(used, id)| id == tensor && used != Use::Read)
        || stmt.kind.body().iter().any(|inner| changes(inner, tensor))
}

/// The statement of an id in a body.
fn find(body: &mut [Stmt], id: StmtId) -> Option<&mut Stmt> {
    for stmt in body {
        if stmt.id == id {
            return Some(stmt);
        }
        if let Some(found) = stmt.kind.body_mut().and_then(|body| find(body, id)) {
            return Some(found);
        }
    }
    None
}

/// Inserts the rearrangement with id `rearrange`; whether the statement is in this body. That of an index stands before the loops that do not
/// change it.
fn insert(body: &mut Vec<Stmt>, before: StmtId, rearrange: StmtId, (old, new): (TensorId, TensorId)) -> bool {
    let within = |stmt: &mut Stmt| stmt.kind.body_mut().is_some_and(|body| find(body, before).is_some());
    let Some(at) = body.iter_mut().position(|stmt| stmt.id == before || within(stmt)) else { return false };
    let holder = &mut body[at];
    if holder.id != before {
        let repeats = holder.kind.repeats() && !changes(holder, old);
        let Some(inner) = holder.kind.body_mut() else { return false };
        let is_index = find(inner, before).is_some_and(|stmt| indices(&mut stmt.kind).any(|by| *by == old));
        if !(repeats && is_index) {
            return insert(inner, before, rearrange, (old, new));
        }
        if let Some(stmt) = find(inner, before) {
            replace(&mut stmt.kind, old, new);
        }
    } else {
        replace(&mut holder.kind, old, new);
    }
    let (kind, span) = (StmtKind::Rearrange { dst: new, src: old }, body[at].span);
    body.insert(at, Stmt { id: rearrange, kind, span });
    true
}
