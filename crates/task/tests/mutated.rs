//! Texts with a few tokens changed: each is refused with a place, or prints as text that reads as the same program; whatever reads is verified, and the graphs
//! of its mappings are made or refused, without a mistake of the compiler's own.

use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng};
use tilewright_task::{check, parse};

/// The words, numbers and signs of a text, with the spaces between them.
fn tokens(text: &str) -> Vec<String> {
    let kind = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' => 0,
        ' ' => 1,
        _ => 2,
    };
    let mut out: Vec<String> = Vec::new();
    let mut last = None;
    for c in text.chars() {
        match out.last_mut() {
            Some(token) if last == Some(kind(c)) && kind(c) != 2 => token.push(c),
            _ => out.push(c.to_string()),
        }
        last = Some(kind(c));
    }
    out
}

#[test]
fn changed_texts_are_refused_or_mean_something() {
    let cases = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 40000 } else { 400 };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/tasks");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    paths.sort();
    let texts: Vec<Vec<String>> =
        paths.iter().map(|path| tokens(&fs::read_to_string(path).unwrap())).collect();
    let (mut read, mut right) = (0, 0);
    for seed in 0..cases {
        let mut bytes = [23u8; 32];
        bytes[..8].copy_from_slice(&(seed as u64).to_le_bytes());
        let mut rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut changed = texts[seed % texts.len()].clone();
        for _ in 0..rng.random_range(1..3) {
            let word = |token: &String| token.chars().all(|c| c.is_alphanumeric() || c == '_');
            let places: Vec<usize> = (0..changed.len()).filter(|at| word(&changed[*at])).collect();
            let at = places[rng.random_range(0..places.len())];
            let other = changed[places[rng.random_range(0..places.len())]].clone();
            match rng.random_range(0..6) {
                0 => changed[at].clear(),
                1 => changed[at] = rng.random_range(0..300).to_string(),
                2 => changed[at] = "none".to_string(),
                3 => {
                    changed.remove(rng.random_range(0..changed.len()));
                }
                _ => changed[at] = other,
            }
        }
        let text = changed.concat();
        let Ok(program) = parse(&text) else { continue };
        read += 1;
        let printed = program.to_string();
        let again = parse(&printed).unwrap_or_else(|errors| panic!("{errors}\n{printed}"));
        assert_eq!(again.to_string(), printed, "{text}");
        match check(&program, &Default::default()) {
            Ok(()) => right += 1,
            Err(errors) => assert!(!errors.any_internal(), "{errors}\n{text}"),
        }
    }
    assert!(read > cases / 10 && right > cases / 100, "{read} read and {right} are right of {cases}");
}
