//! Spaces of mappings: the axes of the examples, and the mappings that their values make.

use tilewright_task::mapping::{Choice, Mapping};
use tilewright_task::space::{Axis, axes, with};
use tilewright_task::{Program, parse, verify};
use tilewright_tile::Constants;

fn example(name: &str) -> Program {
    let path = format!("{}/../../examples/tasks/{name}.task", env!("CARGO_MANIFEST_DIR"));
    parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn of<'a>(program: &'a Program, name: &str) -> &'a Mapping {
    program.mappings.iter().find(|mapping| mapping.name == name).unwrap()
}

/// A line an axis: its name, its values, and which of them the mapping has.
fn text(program: &Program, mapping: &Mapping, axes: &[Axis]) -> String {
    let line = |axis: &Axis| {
        let values = axis.values.iter().map(|value| axis.shown(program, mapping, *value));
        let own = axis.own.map_or("none".to_string(), |own| axis.shown(program, mapping, own));
        format!("{}: {} ({own})\n", axis.name, values.collect::<Vec<_>>().join(" "))
    };
    axes.iter().map(line).collect()
}

#[test]
fn a_mapping_without_a_space_has_an_axis_for_every_number() {
    let program = example("gemm");
    let mapping = of(&program, "deferred");
    let all = axes(&program, mapping, &Constants::new()).unwrap();
    let expected = "gemm.host.U: 32 64 96 128 192 256 512 (128)
gemm.host.V: 64 128 192 256 384 512 1024 (256)
gemm.host.persistent: 1 4 8 12 16 (12)
gemm.late.W: 16 32 48 64 96 128 256 (64)
gemm.late.pipeline: 2 3 4 5 6 8 (4)
gemm.late.late: none out (out)
gemm.late.in_flight: 0 1 (1)
gemm.late.warpspecialize: 1 2 3 (2)
move.chunks.CHUNK: 16 32 48 64 96 128 256 (64)
move.chunks.pipeline: 2 3 4 5 6 8 (2)
";
    assert_eq!(text(&program, mapping, &all), expected);
}

#[test]
fn counts_of_what_is_there_are_kept() {
    let program = example("gemm");
    let all = axes(&program, of(&program, "levels"), &Constants::new()).unwrap();
    let names: Vec<&str> = all.iter().map(|axis| axis.name.as_str()).collect();
    assert!(!names.contains(&"tile.WGS") && !names.contains(&"wg.PIECES"), "{names:?}");
}

#[test]
fn a_declared_space_is_the_whole_space() {
    let text_of =
        std::fs::read_to_string(format!("{}/../../examples/tasks/gemm.task", env!("CARGO_MANIFEST_DIR")));
    let text_of = text_of.unwrap().replace(
        "in_flight(1) late(out, kk)",
        "in_flight(1) space { W = 32 | 64..192 step 64 | 64, pipeline = 2..4, late = out | none, warpspecialize = 2 | 3 }",
    );
    let program = parse(&text_of).unwrap();
    verify(&program, &Constants::new()).unwrap();
    assert_eq!(parse(&program.to_string()).unwrap(), program);
    let mapping = of(&program, "deferred");
    let all = axes(&program, mapping, &Constants::new()).unwrap();
    let expected = "gemm.late.W: 32 64 128 192 (64)
gemm.late.pipeline: 2 3 4 (4)
gemm.late.late: out none (none)
gemm.late.warpspecialize: 2 3 (2)
";
    assert_eq!(text(&program, mapping, &all), expected);
    let out = all[2].values[0];
    let changed = with(mapping, all.iter().zip([128, 3, out, 3]));
    let mut with_it = program.clone();
    with_it.mappings = vec![changed];
    let row = "gemm.late on block(global, global, global) { W = 128 } warpspecialize(3) pipeline(3) in_flight(1) late(out)\n";
    assert!(with_it.to_string().contains(row), "{with_it}");
    verify(&with_it, &Constants::new()).unwrap();
}

#[test]
fn every_value_of_every_axis_is_a_mapping_that_reads_back() {
    for name in
        ["gemm", "gemm_batched", "gemm_dual", "gemm_sum", "attention", "attention_causal", "gated", "mlp"]
    {
        let program = example(name);
        for mapping in &program.mappings {
            for axis in axes(&program, mapping, &Constants::new()).unwrap() {
                for value in axis.values.clone() {
                    let mut one = program.clone();
                    one.mappings = vec![with(mapping, [(&axis, value)])];
                    let read = parse(&one.to_string()).unwrap();
                    let again = axes(&read, &read.mappings[0], &Constants::new()).unwrap();
                    let same = again.iter().find(|other| other.name == axis.name);
                    // What is `none` may leave no axis.
                    assert!(
                        same.is_none_or(|same| same.own == Some(value)),
                        "{name} {}: {value}, {same:?}",
                        axis.name
                    );
                    assert!(same.is_some() || axis.choice == Choice::Late, "{name} {}", axis.name);
                }
                let own = axis.own.map(|own| with(mapping, [(&axis, own)]));
                assert!(own.is_none_or(|own| own.instances.len() == mapping.instances.len()));
            }
        }
    }
}
