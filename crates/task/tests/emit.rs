//! Emitted programs: their text, their verifier, and programs that are written by hand.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tilewright_machine::Elements;
use tilewright_task::{Interpretation, Mapping, Program, emit, interpret, lower, parse, passes};
use tilewright_tile::{
    Argument, Expr, ParamId, ParamKind, Program as Tile, StmtKind, SymbolId, SymbolKind, TensorKind,
};

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

/// Numbers between −1 and 1 of the entry's types, and its scalars' defaults.
fn arguments(kernel: &Tile, sizes: &BTreeMap<String, i64>, seed: u64) -> Vec<Argument> {
    let mut state = seed;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((state >> 33) % 2001) as f64 / 1000.0 - 1.0
    };
    let size = |id: SymbolId| {
        let row = kernel.symbol(id);
        let SymbolKind::Size(default) = row.kind else { return None };
        Some(Expr::Int(sizes.get(&row.name).copied().unwrap_or(default)))
    };
    let argument = |param: &tilewright_tile::Param| match &param.kind {
        ParamKind::Scalar { default } => Argument::Scalar(*default),
        ParamKind::Tensor { shape, .. } => {
            let extents = shape.iter().map(|extent| extent.substitute(&size).as_int().unwrap());
            let count = extents.product::<i64>();
            Argument::tensor(Elements::rounded(param.dtype, (0..count).map(|_| next())))
        }
    };
    kernel.params.iter().map(argument).collect()
}

/// Asserts that the task interpreter and that of the emitted program have the same bits.
fn agrees(name: &str, program: &Program, mapping: &Mapping, sizes: &[(&str, i64)], seed: u64) {
    let sizes: BTreeMap<String, i64> = sizes.iter().map(|(name, value)| (name.to_string(), *value)).collect();
    let kernel = lower(program, mapping).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    let args = arguments(kernel.program(), &sizes, seed);
    let (mut expected, mut found) = (args.clone(), args);
    let how = Interpretation { sizes: sizes.clone(), seed, ..Interpretation::default() };
    interpret(program, mapping, &how, &mut expected).unwrap_or_else(|errors| panic!("{name}: {errors}"));
    if let Err(error) = tilewright_tile::interpret(&kernel, &sizes, &mut found) {
        panic!("{name}: {error}\n{}", kernel.program());
    }
    for ((expected, found), param) in expected.iter().zip(&found).zip(&kernel.program().params) {
        let (Some(expected), Some(found)) = (expected.elements(), found.elements()) else { continue };
        let differ = (0..expected.len()).find(|at| !expected.same_bits(&found, *at));
        assert_eq!(differ, None, "{name}: `{}` at {sizes:?}, seed {seed}", param.name);
    }
}

#[test]
fn examples_compute_what_their_tasks_do() {
    let sizes: [(&str, &[(&str, i64)]); 8] = [
        ("gemm", &[("m", 70), ("n", 40), ("k", 270)]),
        ("gemm_batched", &[("l", 2), ("m", 33), ("n", 20), ("k", 70)]),
        ("gemm_dual", &[("m", 40), ("n", 270), ("k", 65)]),
        ("gemm_sum", &[("m", 140), ("n", 300), ("k", 70)]),
        ("attention", &[("l", 2), ("s", 40), ("t", 300)]),
        ("attention_causal", &[("l", 2), ("s", 130), ("t", 160)]),
        ("mlp", &[("m", 40), ("f", 100)]),
        ("gated", &[("m", 40), ("n", 150), ("k", 270)]),
    ];
    common::mappings(|name, program, mapping| {
        let file = name.split('.').next().unwrap();
        let (_, sizes) = sizes.iter().find(|(of, _)| *of == file).unwrap();
        // A smaller head: the bits are compared element by element.
        let head = if file == "mlp" { 64 } else { 16 };
        let program = program.with_constants(&[("D".to_string(), head)].into_iter().collect());
        agrees(name, &program, mapping, sizes, 1);
    });
}

/// The mapping `pairs` of `gemm.task` with other attributes of the host.
fn clusters(attributes: &str) -> Program {
    let (_, program) = common::examples().into_iter().find(|(name, _)| name == "gemm").unwrap();
    let text = program.to_string().replace("persistent(grouped(12)) cluster(i = 2)", attributes);
    parse(&text).unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

#[test]
fn blocks_of_a_cluster_share_what_does_not_depend_on_their_counter() {
    for (name, attributes) in
        [("grid", "cluster(i = 2)"), ("both", "persistent(grouped(2)) cluster(i = 2) cluster(j = 2)")]
    {
        let program = clusters(attributes);
        let kernel = emitted(&program, "pairs");
        common::snapshot(&format!("cluster.{name}"), &kernel.to_string());
        assert_eq!(tilewright_tile::parse(&kernel.to_string()).unwrap(), kernel);
        let mapping = program.mappings.iter().find(|row| row.name == "pairs").unwrap();
        // The second block of the last cluster has nothing to do.
        agrees(name, &program, mapping, &[("m", 270), ("n", 40), ("k", 70)], 1);
    }
}

#[test]
fn clusters_that_are_no_neighbours_are_refused() {
    let refused = |attributes: &str| {
        let program = clusters(attributes);
        let mapping = program.mappings.iter().find(|row| row.name == "pairs").unwrap();
        let graph = passes::graph(&program, mapping).unwrap();
        let errors = emit(&program, mapping, &graph).unwrap_err();
        assert!(!errors.0[0].span.is_unknown());
        errors.to_string()
    };
    common::snapshot("cluster.not_along_x", &refused("cluster(j = 2)"));
}
