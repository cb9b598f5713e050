//! Core programs in tests, and the interpretation of both forms.
#![allow(dead_code, reason = "each test file uses some of it")]

use std::collections::{BTreeMap, BTreeSet};

use tilewright_tile::core::{self, Program, build, verify};
use tilewright_tile::interpret::{Executable, interpret_bounded};
use tilewright_tile::{Argument, InterpretError, StmtKind, Verified, unroll};

/// The core program of a surface program with this done to it.
pub fn through_core(v: &Verified, pass: impl Fn(&mut Program)) -> Program {
    let mut program = build(&unroll(v).unwrap()).unwrap();
    pass(&mut program);
    verify(&program, "the test").unwrap();
    program
}

/// Replaces every rearrangement, and every copy from shared to global memory.
pub fn desugar(program: &mut Program) {
    let mut rearrangements = BTreeSet::new();
    program.visit(&mut |stmt, _| {
        if let StmtKind::Rearrange { .. } = stmt.kind {
            rearrangements.insert(stmt.id);
        }
    });
    core::desugar_rearrangements(program, &rearrangements);
    core::desugar_copies(program);
}

/// The core program after each of its passes.
pub fn core_programs(v: &Verified) -> [(&'static str, Program); 3] {
    let built = through_core(v, |_| {});
    let multi_buffered = through_core(v, |program| _ = core::multi_buffer(program));
    let desugared = through_core(v, |program| {
        core::multi_buffer(program);
        desugar(program);
    });
    [("unroll", built), ("multi-buffer", multi_buffered), ("desugar", desugared)]
}

/// Arguments after a run and the bounds of their elements, bit by bit.
fn outcome(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<Vec<Vec<u64>>, InterpretError> {
    let bounds = interpret_bounded(program, sizes, args)?;
    let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect();
    let values = args.iter().map(|arg| match arg {
        Argument::Tensor(values) => bits(values),
        Argument::Integers(values) => values.iter().map(|x| *x as u64).collect(),
        Argument::Scalar(x) => bits(&[x.nearest()]),
    });
    let bounds = bounds.iter().flatten().map(|list| list.iter().map(|x| u64::from(x.to_bits())).collect());
    Ok(values.chain(bounds).collect())
}

/// Interprets a surface program, and its core program after each pass: they leave the same behind, bit by bit. A program that is refused has
/// no core, or one that is refused, too, until copies that nothing waits for are replaced by others.
pub fn interpret(
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<(), InterpretError> {
    let before = args.to_vec();
    let expected = outcome(v, sizes, args);
    if expected.is_err() && unroll(v).is_err() {
        return expected.map(|_| ());
    }
    for (pass, program) in core_programs(v) {
        let found = outcome(&program, sizes, &mut before.clone());
        match (&expected, &found) {
            (Ok(expected), Ok(found)) => {
                assert!(expected == found, "another result after {pass}:\n{program}")
            }
            (Ok(_), Err(error)) => panic!("refused after {pass}: {error}\n{program}"),
            (Err(_), found) => {
                assert!(pass == "desugar" || found.is_err(), "not refused after {pass}:\n{program}")
            }
        }
    }
    expected.map(|_| ())
}
