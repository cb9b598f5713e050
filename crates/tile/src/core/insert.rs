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

/// Inserts the rearrangement with id `rearrange`; whether the statement is in this body.
fn insert(body: &mut Vec<Stmt>, before: StmtId, rearrange: StmtId, (old, new): (TensorId, TensorId)) -> bool {
    if let Some(at) = body.iter().position(|stmt| stmt.id == before) {
        for operand in body[at].kind.operands_mut() {
            match operand {
                OperandMut::Tensor(Use::Read, id) if *id == old => *id = new,
                OperandMut::Reference(Use::Read, r) if r.tensor == old => r.tensor = new,
                _ => {}
            }
        }
        let (kind, span) = (StmtKind::Rearrange { dst: new, src: old }, body[at].span);
        body.insert(at, Stmt { id: rearrange, kind, span });
        return true;
    }
    let mut bodies = body.iter_mut().filter_map(|stmt| stmt.kind.body_mut());
    bodies.any(|body| insert(body, before, rearrange, (old, new)))
}
