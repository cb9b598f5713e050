//! Recipes of the shipped operators: their bounds are the interpreter's verdict, and packs hold them.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tilewright::compiler::recipe::outline;
use tilewright::kernels::OPERATORS;
use tilewright::launch::{LaunchError, ParamKind, Recipe, Scalar};
use tilewright::machine::Arch;
use tilewright::pack::{Entry, Pack};
use tilewright::tile::interpret::{InterpretError, check_ranges, grid};
use tilewright::tile::{Constants, ParamId, Verified, verify};

/// The programs of every configuration in tests/operators.txt.
fn programs() -> Vec<(String, Verified)> {
    let list = include_str!("../../../tests/operators.txt");
    let mut programs = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words = line.split(": ").next().unwrap().trim_end_matches(':');
        let (name, rest) = words.split_once(' ').unwrap_or((words, ""));
        let operator = OPERATORS.iter().find(|operator| operator.name == name).unwrap();
        let given: Vec<(&str, &str)> = rest.split(' ').filter_map(|word| word.split_once('=')).collect();
        let Ok(made) = (operator.programs)(&given) else { continue };
        programs.extend(
            made.iter().map(|program| (line.to_string(), verify(program, &Constants::new()).unwrap())),
        );
    }
    programs
}

/// A size: small, around a power of two, or up to the largest.
fn size() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => 1i64..300,
        3 => (0u32..31, -2i64..3).prop_map(|(power, near)| ((1i64 << power) + near).max(1)),
        1 => 1i64..2_145_386_496,
    ]
}

/// The verdict of a recipe, in the interpreter's terms.
fn verdict(recipe: &Recipe, sizes: &[i64], integers: &BTreeMap<ParamId, i64>) -> Result<(), &'static str> {
    let integer = |(param, id): (_, u32)| match param {
        &ParamKind::Scalar(Scalar::I32) => integers.get(&ParamId(id)).copied(),
        _ => None,
    };
    let scalars: Vec<Option<i64>> =
        recipe.params.iter().map(|param| &param.kind).zip(0..).map(integer).collect();
    recipe.check_bounds(sizes, &scalars).map_err(|error| match error {
        LaunchError::TooWide { .. } => "too wide",
        LaunchError::NoValue { .. } => "no value",
        other => panic!("{other}"),
    })
}

#[test]
fn bounds_are_the_verdict_of_the_interpreter() {
    let programs = programs();
    assert!(programs.len() > 200, "{}", programs.len());
    let cases = if std::env::var("TILEWRIGHT_EVERY_POINT").is_ok() { 400 } else { 12 };
    let (refused, checked) = (Cell::new(0usize), Cell::new(0usize));
    for (line, verified) in &programs {
        let recipe = outline(verified, Arch::SM_90A).unwrap_or_else(|error| panic!("{line}: {error}"));
        recipe.check().unwrap_or_else(|error| panic!("{line}: {error}"));
        let params = verified.program().params.iter().zip(0..).map(|(param, id)| (ParamId(id), param));
        let signed: Vec<ParamId> = params.filter(|(_, p)| p.is_signed_integer()).map(|(id, _)| id).collect();
        let sizes = proptest::collection::vec(size(), recipe.sizes.len());
        let integers =
            proptest::collection::vec(prop_oneof![Just(0i32), 0..200i32, any::<i32>()], signed.len());
        let config = Config { cases, failure_persistence: None, ..Config::default() };
        let mut runner = TestRunner::new_with_rng(
            config,
            proptest::test_runner::TestRng::deterministic_rng(Default::default()),
        );
        let run = runner.run(&(sizes, integers), |(sizes, integers)| {
            let names = recipe.sizes.iter().map(|size| size.name.clone());
            let by_name: BTreeMap<String, i64> = names.zip(sizes.iter().copied()).collect();
            let integers =
                signed.iter().copied().zip(integers.iter().map(|value| i64::from(*value))).collect();
            if grid(verified, &by_name).is_err() {
                // The grid is checked before.
                return Ok(());
            }
            let expected = check_ranges(verified, &by_name, &integers).map_err(|error| match error {
                InterpretError::TooWide { .. } => "too wide",
                InterpretError::NoValue { .. } => "no value",
                other => panic!("{other}"),
            });
            checked.set(checked.get() + 1);
            refused.set(refused.get() + usize::from(expected.is_err()));
            prop_assert_eq!(verdict(&recipe, &sizes, &integers), expected, "{:?} {:?}", sizes, integers);
            Ok(())
        });
        run.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    // Both verdicts occur often.
    let (refused, checked) = (refused.get(), checked.get());
    assert!(refused * 20 > checked && (checked - refused) * 20 > checked, "{refused} of {checked}");
}

#[test]
fn recipes_of_all_operators_come_back_from_a_pack() {
    let mut pack = Pack::new("a test");
    for (number, (line, verified)) in programs().iter().enumerate() {
        let recipe = outline(verified, Arch::SM_90A).unwrap();
        let ptx = format!(".target sm_90a\n.visible .entry {}() {{ ret; }}", recipe.entry);
        let entry = Entry::of_ptx(recipe, ptx).named(format!("{number} {line}"));
        pack.add(entry).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
    let bytes = pack.to_bytes().unwrap();
    let read = Pack::from_bytes(&bytes).unwrap();
    assert_eq!(read, pack);
    assert_eq!(read.to_bytes().unwrap(), bytes);
}
