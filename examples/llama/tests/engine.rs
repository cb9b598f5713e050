//! The engine beside the reference on the host, on the simulator.

use tilewright_llama::{Config, Engine, Format, Limits, Model, Place, Reference, Sampler, Weights};

/// The largest difference of two rows of scores.
fn difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Scores are of size 1, and every value between is rounded to f16.
const BOUND: f32 = 0.01;

#[test]
fn one_sequence_has_the_scores_of_the_reference() {
    let config = Config::small(1);
    let weights = Weights::random(&config, 3);
    let place = Place::sim();
    let model = Model::new(&place, &config, &weights, Format::F16).unwrap();
    let limits = Limits { sequences: 1, places: 64 };
    let mut engine = Engine::new(&model, limits).unwrap();
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

#[test]
fn sequences_of_their_own_lengths_have_the_scores_of_the_reference() {
    let config = Config::small(1);
    let weights = Weights::random(&config, 4);
    let place = Place::sim();
    let model = Model::new(&place, &config, &weights, Format::F16).unwrap();
    let limits = Limits { sequences: 2, places: 128 };
    let mut engine = Engine::new(&model, limits).unwrap();
    // The first prompt takes a step of many words, and two of one.
    let prompts: Vec<Vec<u32>> = vec![(0..67).map(|i| i * 37 % 320).collect(), vec![9, 8]];
    engine.begin(&prompts).unwrap();
    engine.run(1).unwrap();
    for (prompt, scores) in prompts.iter().zip(engine.logits().unwrap()) {
        let mut reference = Reference::new(&config, &weights);
        let expected = prompt.iter().map(|word| reference.step(*word)).last().unwrap();
        assert!(difference(&scores, &expected) < BOUND, "{}", difference(&scores, &expected));
    }
}

#[test]
fn layers_that_are_one_have_memory_of_their_own() {
    let config = Config::small(2);
    let weights = Weights::repeated(&config, 8);
    let place = Place::sim();
    for format in [Format::F16, Format::I4] {
        let model = Model::new(&place, &config, &weights, format).unwrap();
        let limits = Limits { sequences: 1, places: 64 };
        let mut engine = Engine::new(&model, limits).unwrap();
        engine.begin(&[vec![11]]).unwrap();
        engine.run(1).unwrap();
        let exact = if format == Format::I4 { weights.rounded_to_4_bits(&config) } else { weights.clone() };
        let expected = Reference::new(&config, &exact).step(11);
        let scores = &engine.logits().unwrap()[0];
        assert!(difference(scores, &expected) < BOUND, "{}", difference(scores, &expected));
    }
}

#[test]
fn integers_of_4_bits_have_the_scores_of_what_they_stand_for() {
    let config = Config::small(1);
    let weights = Weights::random(&config, 6);
    let rounded = weights.rounded_to_4_bits(&config);
    let place = Place::sim();
    let model = Model::new(&place, &config, &weights, Format::I4).unwrap();
    for sequences in [1, 2] {
        let limits = Limits { sequences, places: 64 };
        let mut engine = Engine::new(&model, limits).unwrap();
        engine.begin(&vec![vec![7, 8, 9]; sequences]).unwrap();
        engine.run(1).unwrap();
        let mut reference = Reference::new(&config, &rounded);
        let expected = [7, 8, 9].iter().map(|word| reference.step(*word)).last().unwrap();
        let mut exact = Reference::new(&config, &weights);
        let other = [7, 8, 9].iter().map(|word| exact.step(*word)).last().unwrap();
        for scores in engine.logits().unwrap() {
            assert!(difference(&scores, &expected) < BOUND, "{}", difference(&scores, &expected));
            assert!(difference(&scores, &other) > 5.0 * BOUND, "the weights have other values");
        }
    }
}

#[test]
fn what_an_engine_does_not_take_is_named() {
    let config = Config::small(1);
    let weights = Weights::random(&config, 5);
    let place = Place::sim();
    let model = Model::new(&place, &config, &weights, Format::F16).unwrap();
    let limits = Limits { sequences: 1, places: 64 };
    let mut engine = Engine::new(&model, limits).unwrap();
    let mut message = |prompts: &[Vec<u32>]| engine.begin(prompts).unwrap_err().to_string();
    assert_eq!(message(&[vec![1, 320]]), "word 320 is not of a vocabulary of 320");
    assert_eq!(message(&[vec![1; 65]]), "65 words do not fit in 64: give the engine more `places`");
    assert!(message(&[]).contains("made for 1 sequences"));
    assert!(message(&[vec![]]).contains("at least one word"));
    assert!(engine.choose(&[1, 2]).is_err() && engine.choose(&[320]).is_err());
    engine.begin(&[vec![1]]).unwrap();
    let error = engine.run(65).unwrap_err().to_string();
    assert_eq!(error, "66 words do not fit in 65: give the engine more `places`");
    let limits = Limits { sequences: 0, places: 64 };
    let error = Engine::new(&model, limits).err().unwrap();
    assert_eq!(error.to_string(), "`sequences` is 0: must be at least 1");
    let odd = Config { hidden: 100, ..config.clone() };
    let error = Model::new(&place, &odd, &weights, Format::F16).err().unwrap();
    assert!(error.to_string().contains("multiple of 8"));
}

#[test]
fn samplers_continue_a_prompt() {
    let config = Config::small(1);
    let weights = Weights::random(&config, 9);
    let place = Place::sim();
    let model = Model::new(&place, &config, &weights, Format::F16).unwrap();
    let limits = Limits { sequences: 1, places: 64 };
    let mut engine = Engine::new(&model, limits).unwrap();
    let most = engine.generate(&[1, 2], 3, &mut Sampler::new(0.0, 1.0, 0)).unwrap();
    engine.begin(&[vec![1, 2]]).unwrap();
    engine.run(3).unwrap();
    // The GPU notes the words that it chooses at their places.
    assert_eq!(engine.words(2..5).unwrap(), [most]);
    assert!(engine.generate(&[1], 64, &mut Sampler::new(0.0, 1.0, 0)).is_err());
}
