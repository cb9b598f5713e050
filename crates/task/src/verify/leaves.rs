//! Statements that may stand in a leaf.

use tilewright_tile::{Code, Diagnostic, Expr, Program, Stmt, StmtKind, TensorKind, named_statement_text};

use crate::program::Leaf;

/// Refuses statements that touch memory, wait, or share out threads.
pub(super) fn check(leaf: &Leaf, errors: &mut Vec<Diagnostic>) {
    body(leaf, &leaf.fragment.body, errors);
}

fn body(leaf: &Leaf, statements: &[Stmt], errors: &mut Vec<Diagnostic>) {
    let program = &leaf.fragment;
    for stmt in statements {
        if !computes(program, &stmt.kind) {
            let text = named_statement_text(program, stmt);
            let error = Diagnostic::new(Code::Misplaced, stmt.span, format!("`{text}` in a leaf"));
            errors.push(error.label("not a computation").help(
                "a leaf computes on registers: the compiler finds copies, waits and roles; for another result write `c = …`",
            ));
            continue;
        }
        if let StmtKind::Gemm { warps: Some(_), .. } = &stmt.kind {
            let error = Diagnostic::new(Code::Misplaced, stmt.span, "`warps = …` in a leaf");
            errors.push(error.help("a mapping says which processors share the product"));
        }
        if let Some(id) = stmt.kind.assigned().into_iter().find(|id| is_pinned(leaf, *id)) {
            let name = &program.tensor(id).name;
            let error =
                Diagnostic::new(Code::Misplaced, stmt.span, format!("`{name}` has a layout in a leaf"));
            errors.push(error.help("a mapping says how a tensor lies: `layout(x = …)`"));
        }
        let mut of_block = false;
        // The statements inside have messages of their own.
        let mut kind = stmt.kind.clone();
        if let Some(inside) = kind.body_mut() {
            inside.clear();
        }
        kind.exprs_mut(&mut |expr| expr.visit(&mut |part| of_block |= matches!(part, Expr::Block(_))));
        if of_block {
            let error = Diagnostic::new(Code::Misplaced, stmt.span, "the index of a block in a leaf");
            errors.push(error.help("a leaf gets integers as formals of type `i32`"));
        }
        body(leaf, stmt.kind.body(), errors);
    }
}

/// True if a statement computes: one with tensors, all of which are in registers here, unless it moves them, runs beside what follows or reaches
/// other blocks; and one of integers, or with a body, that shares out no threads.
fn computes(program: &Program, kind: &StmtKind) -> bool {
    match kind {
        StmtKind::Define(id) => matches!(program.tensor(*id).kind, TensorKind::Register { .. }),
        StmtKind::Let { .. }
        | StmtKind::For { .. }
        | StmtKind::If { .. }
        | StmtKind::IfAny { .. }
        | StmtKind::Break { .. }
        | StmtKind::Assert { .. }
        | StmtKind::Print { .. } => true,
        StmtKind::Copy { .. }
        | StmtKind::CopyAsync { .. }
        | StmtKind::GemmAsync { .. }
        | StmtKind::ClusterReduce { .. }
        | StmtKind::ClusterCombine { .. } => false,
        _ => !kind.tensors().is_empty(),
    }
}

fn is_pinned(leaf: &Leaf, id: tilewright_tile::TensorId) -> bool {
    matches!(leaf.fragment.tensor(id).kind, TensorKind::Register { pinned: Some(_), .. })
}
