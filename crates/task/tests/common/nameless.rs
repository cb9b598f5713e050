//! Tile programs without the names that their authors gave, so that two that do the same read the same.

use std::collections::BTreeMap;

use tilewright_tile::{Expr, ParamId, Program as Tile, StmtKind, SymbolId, SymbolKind, TensorKind};

/// A program with the values of its constants in their place, its parameters in the order of their views, and a number for every name.
pub fn nameless(program: &Tile) -> String {
    let mut program = program.clone();
    let mut values: BTreeMap<SymbolId, Expr> = BTreeMap::new();
    for (id, _, value) in program.constants() {
        let value = value.substitute(&|id| values.get(&id).cloned());
        values.insert(id, value);
    }
    program.exprs_mut(&mut |expr| *expr = expr.substitute(&|id| values.get(&id).cloned()));
    let (mut numbers, mut lets) = (0.., 0..);
    for row in program.symbols.iter_mut().filter(|row| !matches!(row.kind, SymbolKind::Constant(_))) {
        row.name = match row.kind {
            SymbolKind::Let => format!("l{}", lets.next().unwrap_or_default()),
            _ => format!("n{}", numbers.next().unwrap_or_default()),
        };
    }
    let mut order: Vec<ParamId> = Vec::new();
    for (at, tensor) in program.tensors.iter_mut().enumerate() {
        tensor.name = format!("t{at}");
        if let TensorKind::View { param, .. } = &mut tensor.kind {
            let known = order.iter().position(|of| of == param);
            let place = known.unwrap_or(order.len());
            if known.is_none() {
                order.push(*param);
            }
            *param = ParamId(place as u32);
        }
    }
    program.params = order.iter().map(|id| program.param(*id).clone()).collect();
    program.params.iter_mut().enumerate().for_each(|(at, row)| row.name = format!("p{at}"));
    program.pipelines.iter_mut().enumerate().for_each(|(at, row)| row.name = format!("r{at}"));
    program.name = "kernel".to_string();
    for (at, stmt) in program.body.iter_mut().enumerate() {
        if let StmtKind::Role { name, .. } = &mut stmt.kind {
            *name = format!("w{at}");
        }
    }
    let text = program.to_string();
    let (head, body) = text.split_once("kernel ").unwrap();
    let lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("const")).collect();
    format!("{}\nkernel {body}", lines.join("\n"))
}
