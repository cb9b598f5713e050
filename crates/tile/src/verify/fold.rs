//! Puts the constants' values into every expression of a program.

use crate::expr::{Expr, SymbolId};
use crate::program::{
    ElemExpr, Param, ParamKind, Program, ShapeOp, Stmt, StmtKind, SymbolKind, Tensor, TensorKind, TensorRef,
    ViewLeaf, ViewMode,
};

/// The program with constants replaced by their values, and literals folded.
pub(super) fn program(program: &Program, values: &[Option<i64>]) -> Program {
    let fold = |e: &Expr| e.substitute(&|s: SymbolId| values.get(s.0 as usize).copied().flatten());
    let all = |list: &[Expr]| list.iter().map(fold).collect::<Vec<_>>();
    let mut symbols = program.symbols.clone();
    for (symbol, value) in symbols.iter_mut().zip(values) {
        if let (SymbolKind::Constant(default), Some(value)) = (&mut symbol.kind, value) {
            *default = Expr::Int(*value);
        }
    }
    let params = program
        .params
        .iter()
        .map(|p| Param {
            kind: match &p.kind {
                ParamKind::Tensor { shape, strides } => {
                    ParamKind::Tensor { shape: all(shape), strides: strides.as_deref().map(all) }
                }
                scalar @ ParamKind::Scalar { .. } => scalar.clone(),
            },
            ..p.clone()
        })
        .collect();
    let tensors = program
        .tensors
        .iter()
        .map(|t| Tensor {
            kind: match &t.kind {
                TensorKind::Register { shape, pinned } => {
                    TensorKind::Register { shape: all(shape), pinned: pinned.clone() }
                }
                TensorKind::Shared { shape, pinned } => {
                    TensorKind::Shared { shape: all(shape), pinned: pinned.clone() }
                }
                TensorKind::Part { of, index, shape } => TensorKind::Part {
                    of: *of,
                    index: index.iter().map(|entry| entry.as_ref().map(fold)).collect(),
                    shape: all(shape),
                },
                TensorKind::View { param, offsets, modes } => TensorKind::View {
                    param: *param,
                    offsets: all(offsets),
                    modes: modes
                        .iter()
                        .map(|mode| ViewMode {
                            leaves: mode
                                .leaves
                                .iter()
                                .map(|l| ViewLeaf {
                                    extent: fold(&l.extent),
                                    dim: l.dim,
                                    scale: fold(&l.scale),
                                })
                                .collect(),
                        })
                        .collect(),
                },
            },
            ..t.clone()
        })
        .collect();
    Program {
        name: program.name.clone(),
        symbols,
        params,
        grid: all(&program.grid),
        grid_span: program.grid_span,
        threads: fold(&program.threads),
        threads_span: program.threads_span,
        tensors,
        body: block(&program.body, &fold),
    }
}

fn block(body: &[Stmt], fold: &impl Fn(&Expr) -> Expr) -> Vec<Stmt> {
    body.iter().map(|stmt| Stmt { kind: kind(&stmt.kind, fold), span: stmt.span }).collect()
}

fn kind(kind: &StmtKind, fold: &impl Fn(&Expr) -> Expr) -> StmtKind {
    let reference = |r: &TensorRef| TensorRef {
        index: r.index.iter().map(|entry| entry.as_ref().map(fold)).collect(),
        ..r.clone()
    };
    match kind {
        StmtKind::Copy { src, dst } => StmtKind::Copy { src: reference(src), dst: reference(dst) },
        StmtKind::CopyAsync { src, dst } => StmtKind::CopyAsync { src: reference(src), dst: reference(dst) },
        StmtKind::Wait(groups) => StmtKind::Wait(fold(groups)),
        StmtKind::Gemm { c, a, b, warps } => {
            let warps = warps.as_ref().map(|warps| warps.each_ref().map(fold));
            StmtKind::Gemm { c: *c, a: *a, b: *b, warps }
        }
        StmtKind::Elementwise { dst, expr } => {
            StmtKind::Elementwise { dst: *dst, expr: elementwise(expr, fold) }
        }
        StmtKind::For { counter, lo, hi, body } => {
            StmtKind::For { counter: *counter, lo: fold(lo), hi: fold(hi), body: block(body, fold) }
        }
        StmtKind::Shape { dst, src, op } => {
            let all = |shape: &[Expr]| shape.iter().map(fold).collect();
            let op = match op {
                ShapeOp::Reshape(shape) => ShapeOp::Reshape(all(shape)),
                ShapeOp::Broadcast(shape) => ShapeOp::Broadcast(all(shape)),
                ShapeOp::Transpose(_) | ShapeOp::Expand { .. } => op.clone(),
            };
            StmtKind::Shape { dst: *dst, src: *src, op }
        }
        StmtKind::Define(_)
        | StmtKind::Cast { .. }
        | StmtKind::Rearrange { .. }
        | StmtKind::Fill { .. }
        | StmtKind::Join { .. }
        | StmtKind::Split { .. }
        | StmtKind::Reduce { .. }
        | StmtKind::Gather { .. }
        | StmtKind::Commit
        | StmtKind::Sync => kind.clone(),
    }
}

fn elementwise(expr: &ElemExpr, fold: &impl Fn(&Expr) -> Expr) -> ElemExpr {
    match expr {
        ElemExpr::Int(e) => ElemExpr::Int(fold(e)),
        ElemExpr::Unary(op, x) => ElemExpr::Unary(*op, Box::new(elementwise(x, fold))),
        ElemExpr::Binary(op, x, y) => {
            ElemExpr::Binary(*op, Box::new(elementwise(x, fold)), Box::new(elementwise(y, fold)))
        }
        ElemExpr::Tensor(_) | ElemExpr::Number(_) | ElemExpr::Scalar(_) => expr.clone(),
    }
}
