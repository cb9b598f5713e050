//! `break` in branches: moved behind them, so that every `break` stands in the body of its loop.
//!
//! Conditions are integers, which no statement changes: `if a { …; break if b }` is `if a { … }` and `break if a and b`. The verifier knows that in a
//! branch nothing stands behind a `break`.

use crate::diagnostic::Origin;
use crate::expr::{Expr, IntOp};
use crate::ids::{StmtId, StmtIds};
use crate::program::{Stmt, StmtKind};

/// True if the statement is a branch with a `break`.
pub(crate) fn in_branch(stmt: &Stmt) -> bool {
    let StmtKind::If { body, .. } = &stmt.kind else { return false };
    body.iter().any(|inner| matches!(inner.kind, StmtKind::Break { .. }) || in_branch(inner))
}

/// The body of a loop with every `break` in it.
pub(crate) fn flat(body: Vec<Stmt>, ids: &mut StmtIds) -> Vec<Stmt> {
    let mut out: Vec<Stmt> = Vec::new();
    // The condition, and the branch that it is taken from.
    let mut exit: Option<(Expr, StmtId, Origin)> = None;
    for mut stmt in body {
        if !stmt.kind.is_otherwise() {
            out.extend(exit.take().map(|exit| left(exit, ids)));
        }
        if let Some(condition) = take(&mut stmt) {
            let earlier = exit.take().map(|(condition, ..)| condition);
            exit = Some((either(earlier, condition), stmt.id, stmt.span));
        }
        out.push(stmt);
    }
    out.extend(exit.map(|exit| left(exit, ids)));
    out
}

/// The `break` behind a branch.
fn left((condition, of, span): (Expr, StmtId, Origin), ids: &mut StmtIds) -> Stmt {
    Stmt { id: ids.fresh(Some(of)), kind: StmtKind::Break { condition }, span }
}

fn either(a: Option<Expr>, b: Expr) -> Expr {
    match a {
        Some(a) => Expr::binary(IntOp::Or, a, b),
        None => b,
    }
}

/// Takes the `break` out of a branch: the condition under which the branch comes to it.
fn take(stmt: &mut Stmt) -> Option<Expr> {
    let StmtKind::If { condition, body, .. } = &mut stmt.kind else { return None };
    let mut exit = None;
    if let Some(StmtKind::Break { condition }) = body.last().map(|last| last.kind.clone()) {
        body.pop();
        exit = Some(condition);
    }
    // A branch at the end, and its other side.
    let ends = body.len().saturating_sub(2)..body.len();
    for inner in &mut body[ends] {
        if let Some(condition) = take(inner) {
            exit = Some(either(exit, condition));
        }
    }
    exit.map(|exit| Expr::binary(IntOp::And, condition.clone(), exit))
}
