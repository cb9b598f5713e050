//! Symbols in the order in which the text form declares them: those of the text, those of signatures, those of bodies.

use std::collections::BTreeMap;

use tilewright_tile::{Expr, SymbolId};

use crate::mapping::{AttributeKind, Choice, Rasterization, SettingValue};
use crate::program::{
    ArgumentKind, Body, FormalKind, Inner, PartitionKind, Piece, ProcessorArg, Program, Stmt, StmtKind,
    SymbolKind, TaskId, VariantId,
};

/// Numbers the symbols of a program anew.
pub(super) fn renumber(program: &mut Program, of_variants: &BTreeMap<(TaskId, VariantId), Vec<SymbolId>>) {
    let all = (0..program.symbols.len() as u32).map(SymbolId);
    let global = |id: &SymbolId| {
        matches!(program.symbols[id.0 as usize].kind, SymbolKind::Constant(_) | SymbolKind::Size(_))
    };
    let signature = |id: &SymbolId| {
        matches!(program.symbols[id.0 as usize].kind, SymbolKind::Extent | SymbolKind::Scalar(_))
    };
    let mut order: Vec<SymbolId> = all.clone().filter(global).collect();
    // Signatures are declared in the order of the tasks.
    order.extend(all.filter(signature));
    order.extend(of_variants.values().flatten().copied());
    let numbers: BTreeMap<SymbolId, SymbolId> =
        order.iter().enumerate().map(|(new, old)| (*old, SymbolId(new as u32))).collect();
    program.symbols = order.iter().map(|id| program.symbols[id.0 as usize].clone()).collect();
    let id = |id: &mut SymbolId| *id = numbers.get(id).copied().unwrap_or(*id);
    let expr = |expr: &mut Expr| {
        *expr = expr.substitute(&|id| numbers.get(&id).map(|id| Expr::Symbol(*id)));
    };
    for symbol in &mut program.symbols {
        if let SymbolKind::Constant(default) = &mut symbol.kind {
            expr(default);
        }
    }
    for task in &mut program.tasks {
        task.extents.iter_mut().for_each(id);
        for formal in &mut task.formals {
            match &mut formal.kind {
                FormalKind::Tensor { shape, .. } => shape.iter_mut().for_each(expr),
                FormalKind::Integer(symbol) => id(symbol),
                FormalKind::Float(_) => {}
            }
        }
        for variant in &mut task.variants {
            match &mut variant.body {
                Body::Leaf(leaf) => {
                    // The constants of a fragment stand in the order of the symbols that they are.
                    leaf.symbols.iter_mut().for_each(|(_, outside)| id(outside));
                }
                Body::Inner(inner) => body(inner, &id, &expr),
            }
        }
    }
    for instance in program.mappings.iter_mut().flat_map(|mapping| &mut mapping.instances) {
        for setting in &mut instance.tunables {
            id(&mut setting.tunable);
            if let SettingValue::Integer(value) = &mut setting.value {
                expr(value);
            }
        }
        for attribute in &mut instance.attributes {
            match &mut attribute.kind {
                AttributeKind::Warpspecialize { warpgroups, .. } => warpgroups.iter_mut().for_each(expr),
                AttributeKind::Pipeline { least, most, .. } => [least, most].into_iter().for_each(expr),
                AttributeKind::Shared(value)
                | AttributeKind::Warps(value)
                | AttributeKind::InFlight(value)
                | AttributeKind::Persistent(Some(
                    Rasterization::Grouped { rows: value, .. } | Rasterization::Hilbert { order: value },
                ))
                | AttributeKind::Order(
                    Rasterization::Grouped { rows: value, .. } | Rasterization::Hilbert { order: value },
                ) => expr(value),
                AttributeKind::Cluster { counter, blocks } => {
                    id(counter);
                    expr(blocks);
                }
                AttributeKind::Registers { load, compute } => [load, compute].into_iter().for_each(expr),
                AttributeKind::Space(dimensions) => {
                    for dimension in dimensions {
                        if let Choice::Tunable(symbol) = &mut dimension.choice {
                            id(symbol);
                        }
                    }
                }
                AttributeKind::Persistent(None)
                | AttributeKind::Late { .. }
                | AttributeKind::Local { .. }
                | AttributeKind::Layout { .. } => {}
            }
        }
    }
}

fn body(inner: &mut Inner, id: &impl Fn(&mut SymbolId), expr: &impl Fn(&mut Expr)) {
    inner.tensors.iter_mut().flat_map(|tensor| &mut tensor.shape).for_each(expr);
    for partition in &mut inner.partitions {
        match &mut partition.kind {
            PartitionKind::Blocks { shape } => shape.iter_mut().for_each(expr),
            PartitionKind::Mma { processor, .. } | PartitionKind::Tv { processor, .. } => {
                if let ProcessorArg::Tunable(symbol) = processor {
                    id(symbol);
                }
            }
        }
    }
    for head in &mut inner.loops {
        head.counters.iter_mut().for_each(id);
        head.ranges.iter_mut().flat_map(|range| [&mut range.lo, &mut range.hi]).for_each(expr);
    }
    for argument in inner.launches.iter_mut().flat_map(|launch| &mut launch.arguments) {
        match &mut argument.kind {
            ArgumentKind::Integer(value) => expr(value),
            ArgumentKind::Tensor { piece, when } => {
                if let Piece::Part { colours, .. } = piece {
                    colours.iter_mut().for_each(expr);
                }
                when.iter_mut().for_each(expr);
            }
            ArgumentKind::Float(_) => {}
        }
    }
    statements(&mut inner.statements, id, expr);
}

fn statements(body: &mut [Stmt], id: &impl Fn(&mut SymbolId), expr: &impl Fn(&mut Expr)) {
    for stmt in body {
        match &mut stmt.kind {
            StmtKind::Tunable(symbols) => symbols.iter_mut().for_each(id),
            StmtKind::Let { symbol, value } => {
                id(symbol);
                expr(value);
            }
            StmtKind::For { body, .. } => statements(body, id, expr),
            StmtKind::Tensor(_) | StmtKind::Partition(_) | StmtKind::Launch(_) => {}
        }
    }
}
