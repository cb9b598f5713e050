//! The core programs of configurations of every operator, after each pass: their text reads back.

use tilewright_compiler::{Options, dumps};
use tilewright_kernels::{OPERATORS, operator};
use tilewright_tile::core;

/// A word `name=value`.
fn pair(word: &str) -> (&str, &str) {
    word.split_once('=').unwrap()
}

/// Reads the core programs of a configuration `gemm sm_90a m=4096 n=4096 k=4096 : bm=128`; returns their number.
fn read_back(line: &str) -> usize {
    let (problem, parameters) = line.split_once(" :").unwrap();
    let parameters: Vec<_> = parameters.split_whitespace().map(pair).collect();
    let mut words = problem.split_whitespace();
    let operator = operator(words.next().unwrap()).unwrap();
    let arch = words.next().unwrap().parse().unwrap();
    let sizes: Vec<(&str, i64)> =
        words.map(pair).map(|(name, value)| (name, value.parse().unwrap())).collect();
    let mut count = 0;
    for program in (operator.programs)(&parameters).unwrap() {
        let options = Options::new(arch).for_own_sizes(&program, &sizes);
        for dump in dumps(&program, &options).unwrap() {
            let Some(program) = dump.program else { continue };
            let text = program.to_string();
            let again = core::parse(&text).unwrap_or_else(|d| panic!("{line}, {}: {d}\n{text}", dump.pass));
            assert_eq!(again, program.renumbered(), "{line}, {}", dump.pass);
            assert_eq!(again.to_string(), text, "{line}, {}", dump.pass);
            core::check(&again).unwrap_or_else(|d| panic!("{line}, {}: {d}\n{text}", dump.pass));
            count += 1;
        }
    }
    count
}

#[test]
fn the_text_of_listed_configurations_reads_back() {
    let named = |line: &'static str| line.split(' ').next().unwrap_or(line);
    // Every fifth, and the first of each operator.
    let mut seen = std::collections::HashSet::new();
    let all = include_str!("../examples/configurations.txt").lines().enumerate();
    let lines: Vec<&str> =
        all.filter(|(i, line)| seen.insert(named(line)) || i % 5 == 0).map(|(_, line)| line).collect();
    assert!(OPERATORS.iter().all(|operator| seen.contains(operator.name)));
    let count: usize = lines.iter().map(|line| read_back(line)).sum();
    assert!(count > 2 * lines.len(), "{count} programs of {} configurations", lines.len());
}
