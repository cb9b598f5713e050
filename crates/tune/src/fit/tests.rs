//! Fits to simulated timings: those of a model with other numbers.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::record::Record;
use crate::store::SHIPPED;

const ARCH: Arch = Arch::SM_90A;

/// The part by which some time differs where a number is two fifths larger, at least.
const SHOWS: f64 = 0.004;

/// Times of the list by a model, each off by up to so much.
fn simulated(model: &Model, noise: f64) -> Vec<Timed> {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let of = |experiment: &Experiment| {
        let Experiment { problem, candidate } = experiment;
        let chip = Chip { arch: ARCH, model };
        let point = (problem.tuning().point)(chip, problem.sizes(), &candidate.given()).unwrap();
        Timed {
            device: model.device().to_string(),
            operator: problem.operator().name.to_string(),
            sizes: problem.sizes().clone(),
            configuration: candidate.to_string(),
            microseconds: point.estimate * (1.0 + noise * (2.0 * rng.random::<f64>() - 1.0)),
        }
    };
    experiments().unwrap().iter().map(of).collect()
}

#[test]
fn the_list_runs_and_shows_every_number() {
    let all = experiments().unwrap();
    let built_in = Model::built_in();
    let estimate = |experiment: &Experiment, model: &Model| {
        let chip = Chip { arch: ARCH, model };
        let Experiment { problem, candidate } = experiment;
        (problem.tuning().estimate)(chip, problem.sizes(), &candidate.given()).unwrap().microseconds
    };
    for experiment in &all {
        let tensors = experiment
            .problem
            .programs(ARCH)
            .unwrap()
            .iter()
            .map(|program| program.params.len())
            .sum::<usize>();
        assert!(tensors >= 2, "{}", experiment.problem);
        let given = experiment.candidate.given();
        assert_eq!((experiment.problem.tuning().reject)(ARCH, &given), None, "{given:?}");
    }
    let before: Vec<f64> = all.iter().map(|experiment| estimate(experiment, built_in)).collect();
    // A turn of a kernel, with its rest, is a few hundredths of a second, and each has three.
    assert!(all.len() <= 340 && before.iter().all(|time| *time < 3000.0));
    let mut hidden = Vec::new();
    for number in Numbers::ALL {
        let other = built_in.clone().with(number, 1.4 * number.of(built_in.numbers()), "a test");
        let moves =
            |(experiment, before): (&Experiment, &f64)| (estimate(experiment, &other) / before).ln().abs();
        let most = all.iter().zip(&before).map(moves).fold(0.0, f64::max);
        if most < SHOWS {
            hidden.push((number.name, most));
        }
    }
    assert!(hidden.is_empty(), "these show nowhere: {hidden:?}");
}

#[test]
fn another_device_is_fitted() {
    let mut rng = ChaCha8Rng::seed_from_u64(6);
    let built_in = Model::built_in();
    let mut truth = built_in.clone().for_device("NVIDIA Other");
    for number in Numbers::ALL {
        let factor = 1.0 + 0.4 * (2.0 * rng.random::<f64>() - 1.0);
        truth = truth.with(number, number.of(built_in.numbers()) * factor, "simulated");
    }
    let fit = fit(&simulated(&truth, 0.02), ARCH, built_in).unwrap();
    println!("{fit}");
    assert_eq!(fit.model.device(), "NVIDIA Other");
    // Products that were not timed: those of the records, with the configurations that these name.
    let (mut off, mut off_before, mut count) = (0.0, 0.0, 0.0);
    for record in SHIPPED[0].1.lines().filter_map(|line| Record::parse(line).ok()) {
        if !["gemm_hopper", "gemm_fp8_blocks"].contains(&record.operator.as_str()) {
            continue;
        }
        let problem = record.problem().unwrap();
        let lost = record.runners_up.iter().map(|lost| lost.configuration.as_str());
        for text in [record.configuration.as_str()].into_iter().chain(lost) {
            let candidate = Candidate::parse(text).unwrap();
            let log = |model: &Model| {
                let chip = Chip { arch: ARCH, model };
                let point = (problem.tuning().point)(chip, problem.sizes(), &candidate.given());
                point.unwrap().estimate.ln()
            };
            off += (log(&fit.model) - log(&truth)).abs();
            off_before += (log(built_in) - log(&truth)).abs();
            count += 1.0;
        }
    }
    let (off, off_before) = ((off / count).exp() - 1.0, (off_before / count).exp() - 1.0);
    println!(
        "{count} products that were not timed: off by {:.2} %, before {:.1} %",
        100.0 * off,
        100.0 * off_before
    );
    assert!(count > 500.0 && off < 0.03 && off_before > 0.05, "{off} {off_before}");
    // What the timings say nothing of is as it was, and its source says so.
    for (fitted, (number, value, source)) in fit.numbers.iter().zip(fit.model.lines()) {
        assert_eq!((fitted.name, fitted.after), (number.name, value));
        assert_eq!(source.starts_with("fitted to"), fitted.observed, "{source}");
        assert!(fitted.observed || value == number.of(built_in.numbers()));
    }
    let text = fit.model.to_string();
    assert_eq!(text.parse::<Model>().as_ref(), Ok(&fit.model));
}

#[test]
fn an_outlier_moves_little_and_no_times_are_an_error() {
    let built_in = Model::built_in();
    let mut times = simulated(built_in, 0.0);
    times[10].microseconds *= 3.0;
    let fitted = fit(&times, ARCH, built_in).unwrap();
    let all = fitted.residuals.last().unwrap();
    assert!(all.group == "all" && all.after < 1.01 * all.before, "{all:?}");
    for Fitted { name, before, after, .. } in &fitted.numbers {
        assert!((after / before).ln().abs() < 0.12, "{name}: {before} and {after}");
    }
    let said = |times: &[Timed]| fit(times, ARCH, built_in).unwrap_err().to_string();
    assert!(said(&[]).contains("there are none"), "{}", said(&[]));
    times[3].device = "another".to_string();
    assert!(said(&times).contains("NVIDIA H200 and another"), "{}", said(&times));
    times.truncate(3);
    times[1].microseconds = 0.0;
    assert!(said(&times).contains("took 0 µs, which is no time"), "{}", said(&times));
}
