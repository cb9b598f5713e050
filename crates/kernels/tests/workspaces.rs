//! Tensors that programs leave for each other are workspaces of their operator, and no others are.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_kernels::{OPERATORS, operator};
use tilewright_tile::{Constants, ParamId, Program, verify};

/// The programs of every configuration in tests/operators.txt, with the line.
fn listed() -> Vec<(&'static str, &'static str, Vec<Program>)> {
    let mut all = Vec::new();
    let list = include_str!("../../../tests/operators.txt");
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let words = line.split(": ").next().unwrap().trim_end_matches(':');
        let (name, rest) = words.split_once(' ').unwrap_or((words, ""));
        let given: Vec<(&str, &str)> = rest.split(' ').filter_map(|word| word.split_once('=')).collect();
        all.push((name, line, (operator(name).unwrap().programs)(&given).unwrap()));
    }
    all
}

/// Results that a first program fills with zeros.
const RESULTS: &[(&str, &str)] = &[("histogram", "h"), ("embedding_backward", "dw")];

#[test]
fn what_programs_leave_for_each_other_is_a_workspace() {
    let mut used: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut missing = Vec::new();
    for (name, line, programs) in listed() {
        let workspaces = operator(name).unwrap().workspaces();
        let is_workspace = |param: &str| workspaces.iter().any(|workspace| workspace.name == param);
        let (mut written, mut read): (BTreeSet<String>, BTreeSet<String>) = Default::default();
        for program in &programs {
            let verified = verify(program, &Constants::new()).unwrap();
            let names = |ids: &[ParamId]| -> Vec<String> {
                ids.iter().map(|id| program.param(*id).name.clone()).collect()
            };
            let (inputs, outputs) = (names(verified.inputs()), names(verified.outputs()));
            for param in &inputs {
                if written.contains(param) && !is_workspace(param) && !RESULTS.contains(&(name, param)) {
                    missing.push(format!("{line}: `{param}`"));
                }
            }
            read.extend(inputs);
            written.extend(outputs);
        }
        let mut names = read.union(&written).filter(|param| is_workspace(param)).cloned().peekable();
        if names.peek().is_some() {
            used.entry(name).or_default().extend(names);
        }
    }
    assert_eq!(missing, Vec::<String>::new());
    for operator in OPERATORS.iter().filter(|operator| !operator.workspaces().is_empty()) {
        assert!(used.contains_key(operator.name), "{} has no workspace", operator.name);
    }
}
