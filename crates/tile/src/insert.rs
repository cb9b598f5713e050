//! Inserts a rearrangement before a statement, for one of its operands.
//!
//! Needs: a verified program. Keeps: its meaning, and every id. The statement reads a new register tensor that holds the same
//! tile, so that it may be distributed in another way.

use crate::desugar::names_of;
use crate::program::{OperandMut, Stmt, StmtKind, Tensor, TensorId, TensorKind, Use};
use crate::verified::Verified;

/// The program in which statement `number`, in the order of [`Verified::visit`], reads `rearrange(tensor)` for the register
/// tensor `tensor`, and the new tensor. What the statement writes stays as it is.
pub fn insert_rearrangement(v: &Verified, number: usize, tensor: TensorId) -> (Verified, TensorId) {
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
    let mut next = 0;
    result.program.body = block(&program.body, &mut next, number, (tensor, fresh));
    (result, fresh)
}

fn block(body: &[Stmt], next: &mut usize, number: usize, (old, new): (TensorId, TensorId)) -> Vec<Stmt> {
    let mut out = Vec::new();
    for stmt in body {
        let here = *next == number;
        *next += 1;
        let mut stmt = stmt.clone();
        if here {
            out.push(Stmt { kind: StmtKind::Rearrange { dst: new, src: old }, span: stmt.span });
            for operand in stmt.kind.operands_mut() {
                match operand {
                    OperandMut::Tensor(Use::Read, id) if *id == old => *id = new,
                    OperandMut::Reference(Use::Read, r) if r.tensor == old => r.tensor = new,
                    _ => {}
                }
            }
        }
        if let Some(body) = stmt.kind.body_mut() {
            *body = block(body, next, number, (old, new));
        }
        out.push(stmt);
    }
    out
}
