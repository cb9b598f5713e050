//! Inserts a rearrangement before a statement, for one of its operands.
//!
//! Needs: a verified program. Keeps: its meaning, and every id. The statement reads a new register tensor that holds the same
//! tile, so that it may be distributed in another way.

use crate::desugar::names_of;
use crate::ids::StmtId;
use crate::program::{OperandMut, Program, Stmt, StmtKind, Tensor, TensorId, TensorKind, Use};
use crate::verified::Verified;

/// The program in which statement `before` reads `rearrange(tensor)` for the register tensor `tensor`, and
/// the new tensor. What the statement writes stays as it is.
pub fn insert_rearrangement(v: &Verified, before: StmtId, tensor: TensorId) -> (Verified, TensorId) {
    let mut result = v.clone();
    let program = v.program();
    let old = program.tensor(tensor);
    let fresh = TensorId(program.tensors.len() as u32);
    let shape = v.shape(tensor).into_iter().map(crate::expr::Expr::Int).collect();
    // The base is cut so that the name stays a legal one.
    let base: String = old.name.chars().take(100).collect();
    let taken = names_of(program);
    let name = (0..)
        .map(|i: u64| if i == 0 { format!("{base}_moved") } else { format!("{base}_moved{i}") })
        .find(|name| !taken.contains(name))
        .unwrap_or_default();
    result.program.tensors.push(Tensor {
        name,
        dtype: old.dtype,
        kind: TensorKind::Register { shape, pinned: None },
        span: old.span,
    });
    let Program { body, statements, .. } = &mut result.program;
    let rearrange = statements.fresh(Some(before));
    insert(body, before, rearrange, (tensor, fresh));
    (result, fresh)
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
