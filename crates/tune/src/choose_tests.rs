//! Corrections by records: of a simulated device, and of those that come with the kernels.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::*;
use crate::record::{COMPILER, Conditions, FORMAT, Measured, RunnerUp};
use crate::simulated::Simulated;
use tilewright_machine::Arch;

/// The errors of two predictions of times: by interpolation between records, and by the nearest record.
#[derive(Default, Debug)]
struct Errors {
    interpolated: f64,
    nearest: f64,
    count: f64,
}

impl Errors {
    /// Adds those for these configurations, whose times are known: the logarithms without their sign.
    fn add(&mut self, known: &Known<'_>, times: &[(Candidate, f64)]) {
        let Some((_, first)) = known.times.first() else { return };
        for (candidate, time) in times {
            let (place, estimate) = known.place(candidate).unwrap();
            // The nearest record with this configuration, else the nearest of all.
            let same = known.times.iter().find(|(place, _)| place.candidate() == candidate);
            let ratio = same.map_or(first.ratio, |(_, neighbour)| neighbour.ratio);
            let error = |ratio: f64| (estimate.microseconds * ratio / time).ln().abs();
            self.interpolated += error(known.factor(&place));
            self.nearest += error(ratio);
            self.count += 1.0;
        }
    }

    fn means(&self) -> [f64; 2] {
        [self.interpolated, self.nearest].map(|sum| sum / self.count)
    }
}

/// The record of a simulated device for a product: the fastest of some configurations, and the others.
fn simulated(sizes: [i64; 3], seed: u64) -> (Record, Vec<(Candidate, f64)>) {
    let sizes: BTreeMap<String, i64> = ["m", "n", "k"].into_iter().map(String::from).zip(sizes).collect();
    let problem = Problem::new("gemm_hopper", &sizes, &[]).unwrap();
    let mut device = Simulated::new(&problem, seed);
    let texts = [
        "overlap_epilogue=true",
        "bn=192 overlap_epilogue=true",
        "bn=128 stages=6 overlap_epilogue=true",
        "bm=256 bn=128 stages=3 overlap_epilogue=true",
        "bm=256 bn=128 stages=3 cluster=m2 overlap_epilogue=true",
        "cluster=m2 overlap_epilogue=true",
        "bn=192 cluster=n2",
        "swap=true overlap_epilogue=true",
    ];
    let mut times: Vec<(Candidate, f64)> = texts
        .into_iter()
        .map(|text| Candidate::parse(text).unwrap())
        .map(|candidate| (candidate.clone(), device.measured(&candidate)))
        .collect();
    times.sort_by(|a, b| a.1.total_cmp(&b.1));
    let lost = times[1..].iter().map(|(candidate, microseconds)| RunnerUp {
        configuration: candidate.to_string(),
        microseconds: *microseconds,
        estimate_rank: None,
    });
    let record = Record {
        format: FORMAT,
        operator: "gemm_hopper".to_string(),
        pinned: String::new(),
        class: problem.class(),
        sizes,
        device: "simulated".to_string(),
        arch: Arch::SM_90A.to_string(),
        compiler: COMPILER.to_string(),
        programs: times[0].0.hash(problem.operator()).unwrap(),
        remeasured: true,
        configuration: times[0].0.to_string(),
        microseconds: times[0].1,
        estimate_rank: None,
        runners_up: lost.collect(),
        measured: Measured {
            unix_seconds: 0,
            conditions: Conditions { l2: "dirty".to_string(), rest_seconds: 0.0 },
            rounds: 1,
            measured: 8,
            seconds: 0.0,
            stop: String::new(),
            checked_against: None,
        },
    };
    (record, times)
}

/// Times of the same products in the other type of 16 bits, of a simulated device, whose errors are those of both.
#[test]
fn times_of_the_other_type_correct_estimates() {
    const SEEDS: u64 = 8;
    let sizes = [[1024, 4096, 4096], [4096, 4096, 16384], [8192, 2048, 1024]];
    let texts = ["overlap_epilogue=true", "bn=192 overlap_epilogue=true", "bn=192 cluster=n2"];
    let count = (SEEDS as usize * sizes.len() * texts.len()) as f64;
    let target = Target::new("simulated", Arch::SM_90A);
    let mut sums = [0.0; 2];
    for seed in 0..SEEDS {
        let records: Vec<(Record, bool)> = sizes.map(|sizes| (simulated(sizes, seed).0, false)).into();
        for (record, _) in &records {
            let problem = Problem::new("gemm_hopper", &record.sizes, &[("dtype", "bf16")]).unwrap();
            let mut device = Simulated::new(&problem, seed);
            let known = Known::of(&problem, &target, records.clone());
            assert!(known.times.iter().all(|(place, _)| place.candidate().value("dtype") == Some("bf16")));
            for text in texts {
                let candidate = Candidate::parse(&format!("dtype=bf16 {text}")).unwrap();
                let (place, estimate) = known.place(&candidate).unwrap();
                let log = (device.time(&candidate) / estimate.microseconds).ln();
                sums[0] += (log - known.factor(&place).ln()).abs() / count;
                sums[1] += log.abs() / count;
            }
        }
    }
    println!("off by {:.2} %, and by the estimate {:.2} %", 100.0 * sums[0], 100.0 * sums[1]);
    assert!(sums[0] < 0.005 && sums[1] > 0.05, "{sums:?}");
}

/// The records that ship: of the times of each product, those of points of the space, the choice by the records of other sizes takes the fastest nearly. By
/// day some of them.
#[test]
fn choices_without_their_record_are_nearly_as_fast() {
    let records: Vec<(Record, bool)> =
        all_shipped().values().filter(|r| r.operator == "gemm_hopper").map(|r| (r.clone(), true)).collect();
    let every = std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some();
    let alone: Vec<&Record> = records.iter().map(|(r, _)| r).filter(|r| r.pinned.is_empty()).collect();
    let mut lost = Vec::new();
    for record in alone.into_iter().step_by(if every { 1 } else { 11 }) {
        let (problem, target) = (record.problem().unwrap(), record.target().unwrap());
        let others: Vec<(Record, bool)> =
            records.iter().filter(|(other, _)| other.class != record.class).cloned().collect();
        let known = Known::of(&problem, &target, others);
        let space = (problem.tuning().space)(target.chip(), problem.sizes(), &[]).unwrap();
        let points: HashSet<Candidate> = space.points.into_iter().map(|p| p.parameters.into()).collect();
        let runners_up = record.runners_up.iter().map(|r| (r.configuration.as_str(), r.microseconds));
        let all = [(record.configuration.as_str(), record.microseconds)].into_iter().chain(runners_up);
        let all = all.map(|(text, time)| (Candidate::parse(text).unwrap(), time));
        let expected = all.filter(|(candidate, _)| points.contains(candidate)).map(|(candidate, time)| {
            let (place, estimate) = known.place(&candidate).unwrap();
            (estimate.microseconds * known.factor(&place), time)
        });
        if let Some((_, time)) = expected.min_by(|a, b| a.0.total_cmp(&b.0)) {
            let ratio = time / record.microseconds;
            lost.push((ratio, problem.to_string()));
        }
    }
    let mean = lost.iter().map(|(ratio, _)| ratio.ln()).sum::<f64>() / lost.len() as f64;
    let worst = lost.iter().max_by(|a, b| a.0.total_cmp(&b.0)).unwrap();
    let most = 100.0 * (worst.0 - 1.0);
    println!("{} choices are {:.2} % slower, at most {most:.1} % ({})", lost.len(), 100.0 * mean, worst.1);
    assert!(mean < 0.03 && worst.0 < 1.12, "{lost:?}");
}

/// The records of an H200: each is predicted by the others, by day some of them.
#[test]
fn shipped_records_predict_each_other() {
    let records: Vec<(Record, bool)> =
        all_shipped().values().filter(|r| r.operator == "gemm_hopper").map(|r| (r.clone(), true)).collect();
    let every = std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some();
    let mut errors = Errors::default();
    for (record, _) in records.iter().step_by(if every { 1 } else { 11 }) {
        let (problem, target) = (record.problem().unwrap(), record.target().unwrap());
        let like = |other: &&(Record, bool)| other.0.pinned == record.pinned && other.0.class != record.class;
        let others: Vec<(Record, bool)> = records.iter().filter(like).cloned().collect();
        let lost = record.runners_up.iter().map(|lost| (lost.configuration.as_str(), lost.microseconds));
        let all = [(record.configuration.as_str(), record.microseconds)].into_iter().chain(lost);
        let times: Vec<(Candidate, f64)> =
            all.map(|(text, time)| (Candidate::parse(text).unwrap(), time)).collect();
        errors.add(&Known::of(&problem, &target, others), &times);
    }
    let [interpolated, nearest] = errors.means();
    println!(
        "{} times: off by {:.2} % by interpolation, {:.2} % by the nearest",
        errors.count,
        100.0 * interpolated,
        100.0 * nearest
    );
    assert!(interpolated < nearest, "{errors:?}");
}

/// Shapes drawn at random, and those with 64 more of a size, whose rows are aligned as well: a choice is not expected to be much slower than that for the larger product, which computes the smaller one too.
/// By day a few.
#[test]
fn choices_of_smaller_products_are_not_much_slower() {
    let target = Target::new("NVIDIA H200", Arch::SM_90A);
    let expected = |sizes: [i64; 3]| {
        let sizes = ["m", "n", "k"].into_iter().map(String::from).zip(sizes).collect();
        let problem = Problem::new("gemm_hopper", &sizes, &[]).unwrap();
        let (all, ..) = contenders(&problem, &target, records(&problem, None)).unwrap();
        (all[0].expected, all[0].candidate.to_string())
    };
    let count = if std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some() { 400 } else { 6 };
    let mut random = ChaCha8Rng::seed_from_u64(20_261_127);
    for round in 0..count {
        // Log-uniform from 1 to 20,000; of two in three rows are multiples of 16 bytes.
        let drawn = [0; 3].map(|_| (random.random::<f64>() * 20_000_f64.ln()).exp() as i64);
        let aligned = |size: i64| if round % 3 == 0 { size } else { (size + 7) / 8 * 8 };
        let smaller = [drawn[0], aligned(drawn[1]), aligned(drawn[2])];
        let (time, chosen) = expected(smaller);
        for mode in 0..3 {
            let mut larger = smaller;
            larger[mode] += 64;
            let (bound, other) = expected(larger);
            assert!(time < 1.3 * bound, "{smaller:?}: {chosen} {time}; {larger:?}: {other} {bound}");
        }
    }
}
