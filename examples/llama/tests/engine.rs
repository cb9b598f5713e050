//! The engine beside the reference on the host, on the simulator.

use tilewright_llama::{Config, Engine, Limits, Place, Reference, Weights};

/// The largest difference of two rows of scores.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Scores are of size 1, and every value between is rounded to f16.
const BOUND: f32 = 0.02;

#[test]
fn one_sequence_has_the_scores_of_the_reference() {
    let config = Config::small(1);
    let weights = Weights::random(&config, 3);
    let place = Place::sim();
    let limits = Limits { sequences: 1, places: 64 };
    let mut engine = Engine::new(&place, &config, &weights, limits).unwrap();
    let mut reference = Reference::new(&config, &weights);
    let prompt = vec![5, 119, 300];
    engine.begin(std::slice::from_ref(&prompt)).unwrap();
    let mut words = prompt.clone();
    for word in &prompt[..2] {
        reference.step(*word);
    }
    for _ in 0..2 {
        engine.run(1).unwrap();
        let scores = &engine.logits().unwrap()[0];
        let expected = reference.step(words[words.len() - 1]);
        assert!(difference(scores, &expected) < BOUND, "{}", difference(scores, &expected));
        let next = engine.words(words.len()..words.len() + 1).unwrap()[0][0];
        assert!(scores.iter().all(|score| *score <= scores[next as usize]));
        words.push(next);
    }
}
