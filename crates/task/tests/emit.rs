//! Emitted programs: their text, their verifier, and programs that are written by hand.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tilewright_task::{Program, emit, parse, passes};
use tilewright_tile::{Expr, ParamId, Program as Tile, StmtKind, SymbolId, SymbolKind, TensorKind};

/// The kernel of a mapping.
fn emitted(program: &Program, mapping: &str) -> Tile {
    let mapping = program.mappings.iter().find(|row| row.name == mapping).unwrap();
    let graph = passes::graph(program, mapping).unwrap_or_else(|errors| panic!("{}: {errors}", mapping.name));
    emit(program, mapping, &graph).unwrap_or_else(|errors| panic!("{}: {errors}", mapping.name))
}

#[test]
fn examples_verify_and_read_back() {
    common::mappings(|name, program, mapping| {
        let graph = passes::graph(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let kernel = emit(program, mapping, &graph).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let text = kernel.to_string();
        common::snapshot(&format!("{name}.tile"), &text);
        let again = tilewright_tile::parse(&text).unwrap_or_else(|errors| panic!("{name}: {errors}\n{text}"));
        assert_eq!(again, kernel, "{name}:\n{text}");
        if let Err(errors) = tilewright_tile::verify(&kernel, &Default::default()) {
            panic!("{name}: {errors}\n{text}");
        }
    });
}

/// A program with the values of its constants in their place, its parameters in the order of their views, and a number for every name.
fn nameless(program: &Tile) -> String {
    let mut program = program.clone();
    let mut values: BTreeMap<SymbolId, Expr> = BTreeMap::new();
    for (id, _, value) in program.constants() {
        let value = value.substitute(&|id| values.get(&id).cloned());
        values.insert(id, value);
    }
    program.exprs_mut(&mut |expr| *expr = expr.substitute(&|id| values.get(&id).cloned()));
    let named = program.symbols.iter_mut().filter(|row| !matches!(row.kind, SymbolKind::Constant(_)));
    named.enumerate().for_each(|(at, row)| row.name = format!("n{at}"));
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

#[test]
fn gemm_on_hopper_is_the_program_that_is_written_by_hand() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let text = fs::read_to_string(examples.join("tasks/gemm.task")).unwrap();
    // The order in which the program by hand takes its tiles.
    let program = parse(&text.replace("grouped(12, serpentine)", "grouped(12)")).unwrap();
    let by_hand = fs::read_to_string(examples.join("gemm_hopper.tile")).unwrap();
    let by_hand = tilewright_tile::parse(&by_hand).unwrap();
    let (emitted, by_hand) = (nameless(&emitted(&program, "h200")), nameless(&by_hand));
    assert!(emitted == by_hand, "emitted:\n{emitted}\nby hand:\n{by_hand}");
}
