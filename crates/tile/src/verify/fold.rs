//! Puts the constants' values into every expression of a program.

use crate::expr::{Expr, SymbolId};
use crate::program::{
    ElemExpr, Param, ParamKind, Pipeline, Program, ShapeOp, Stmt, StmtKind, SymbolKind, Tensor, TensorKind,
    TensorRef, TileOrder, ViewLeaf, ViewMode,
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
                ParamKind::Tensor { shape, strides, constant } => ParamKind::Tensor {
                    shape: all(shape),
                    strides: strides.as_deref().map(all),
                    constant: *constant,
                },
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
                TensorKind::View { param, offsets, ends, modes } => TensorKind::View {
                    param: *param,
                    offsets: all(offsets),
                    ends: ends.iter().map(|end| end.as_ref().map(fold)).collect(),
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
        cluster: fold(&program.cluster),
        cluster_span: program.cluster_span,
        tensors,
        pipelines: program
            .pipelines
            .iter()
            .map(|p| Pipeline { stages: fold(&p.stages), ..p.clone() })
            .collect(),
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
        StmtKind::CopyAsync { src, dst, how } => {
            StmtKind::CopyAsync { src: reference(src), dst: reference(dst), how: *how }
        }
        StmtKind::Wait(groups) => StmtKind::Wait(fold(groups)),
        StmtKind::Gemm { c, a, b, warps } => {
            let warps = warps.as_ref().map(|warps| warps.each_ref().map(fold));
            StmtKind::Gemm { c: *c, a: *a, b: *b, warps }
        }
        StmtKind::GemmAsync { c, a, b, warpgroups } => {
            let warpgroups = warpgroups.as_ref().map(|warpgroups| warpgroups.each_ref().map(fold));
            StmtKind::GemmAsync { c: *c, a: reference(a), b: reference(b), warpgroups }
        }
        StmtKind::WaitGemm(groups) => StmtKind::WaitGemm(fold(groups)),
        StmtKind::Role { name, warpgroups, registers, body } => StmtKind::Role {
            name: name.clone(),
            warpgroups: fold(warpgroups),
            registers: registers.as_ref().map(fold),
            body: block(body, fold),
        },
        StmtKind::Stage { pipeline, side, slot, body } => {
            StmtKind::Stage { pipeline: *pipeline, side: *side, slot: *slot, body: block(body, fold) }
        }
        StmtKind::Tiles { row, col, after, rows, cols, order, body } => StmtKind::Tiles {
            row: *row,
            col: *col,
            after: *after,
            rows: fold(rows),
            cols: fold(cols),
            order: match order {
                TileOrder::Bands { rows, snake } => TileOrder::Bands { rows: fold(rows), snake: *snake },
                TileOrder::Hilbert { order } => TileOrder::Hilbert { order: fold(order) },
            },
            body: block(body, fold),
        },
        StmtKind::Finally { after, body } => StmtKind::Finally { after: *after, body: block(body, fold) },
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
                ShapeOp::Slice { axis, start, extent } => {
                    ShapeOp::Slice { axis: *axis, start: fold(start), extent: fold(extent) }
                }
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
        | StmtKind::CommitGemm
        | StmtKind::ClusterSum { .. }
        | StmtKind::WaitDependencies
        | StmtKind::LaunchDependents
        | StmtKind::Pipeline(_)
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
