//! docs/tasks-paper.md: a row for each of the thirty things that the paper has, and each test that it names is there.

use std::fs;
use std::path::Path;

#[test]
fn each_row_names_tests_that_there_are() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = fs::read_to_string(root.join("docs/tasks-paper.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.first().is_some_and(|first| first.parse::<usize>().is_ok()))
        .collect();
    let numbers: Vec<usize> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
    assert_eq!(numbers, (1..=30).collect::<Vec<_>>());
    for row in rows {
        let [number, .., shown] = row[..] else { panic!("{row:?}") };
        if shown == "not yet" {
            continue;
        }
        for test in shown.split(',').map(|test| test.trim().trim_matches('`')) {
            let (file, name) = test.split_once("::").unwrap_or((test, ""));
            let text =
                fs::read_to_string(root.join(file)).unwrap_or_else(|e| panic!("{number}: {file}: {e}"));
            assert!(name.is_empty() || text.contains(&format!("fn {name}(")), "{number}: {test}");
        }
    }
}
