//! The kernels of `examples/tasks` beside those of operators of the same form: up to names they differ in the lines that `task_operators/` has, and in no
//! other. `TILEWRIGHT_BLESS=1` writes these.

use std::fs;
use std::path::Path;

use similar::{ChangeTag, TextDiff};
use tilewright::kernels::operator;
use tilewright::task::{lower, parse};

#[path = "../../task/tests/common/nameless.rs"]
mod nameless;

/// The lines that only one of two texts has, of the first with `-` and of the second with `+`.
fn difference(first: &str, second: &str) -> String {
    let diff = TextDiff::from_lines(first, second);
    let changes = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    changes.map(|change| format!("{}{}\n", change.tag(), change.value().trim())).collect()
}

/// A file, a mapping of it, and parameters of the operator.
type Pair<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

#[test]
fn kernels_of_tasks_are_those_of_operators_but_for_these_lines() {
    let serpentine = ("rasterization", "serpentine(12)");
    let pairs: [Pair<'_>; 4] = [
        ("gemm", "h200", &[serpentine]),
        ("gemm", "deferred", &[serpentine, ("overlap_epilogue", "true")]),
        ("gemm", "pairs", &[("cluster", "m2")]),
        ("gemm_sum", "h200", &[serpentine, ("sums_a", "true")]),
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (file, name, given) in pairs {
        let text = fs::read_to_string(root.join(format!("../../examples/tasks/{file}.task"))).unwrap();
        let program = parse(&text).unwrap();
        let mapping = program.mappings.iter().find(|mapping| mapping.name == name).unwrap();
        let kernels = lower(&program, mapping).unwrap();
        let [lowered] = &kernels[..] else { panic!("{file}.{name} is several kernels") };
        let [by_hand] = &(operator("gemm_hopper").unwrap().programs)(given).unwrap()[..] else {
            panic!("{given:?} is several kernels")
        };
        let found = difference(&nameless::nameless(lowered.program()), &nameless::nameless(by_hand));
        let path = root.join(format!("tests/task_operators/{file}.{name}.diff"));
        if std::env::var_os("TILEWRIGHT_BLESS").is_some() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &found).unwrap();
        }
        assert_eq!(found, fs::read_to_string(&path).unwrap_or_default(), "{file}.{name}");
    }
}
