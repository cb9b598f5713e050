//! Corrections by records: of a simulated device, and of those that come with the kernels.

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
        "bm=256 bn=128 overlap_epilogue=true",
        "bm=256 bn=128 cluster=m2 overlap_epilogue=true",
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

#[test]
fn interpolation_beats_the_nearest_record() {
    const SEED: u64 = 3;
    let corners = [1024, 2048, 4096, 8192];
    let sizes = corners.into_iter().flat_map(|mn| [1024, 4096, 16384].map(|k| [mn, mn, k]));
    let records: Vec<(Record, bool)> = sizes.map(|sizes| (simulated(sizes, SEED).0, false)).collect();
    let target = Target::new("simulated", Arch::SM_90A);
    let mut errors = Errors::default();
    for sizes in
        [[1536, 1536, 2048], [3072, 2048, 8192], [6144, 4096, 2048], [4096, 8192, 8192], [2048, 6144, 6144]]
    {
        let (record, times) = simulated(sizes, SEED);
        let problem = record.problem().unwrap();
        errors.add(&Known::of(&problem, &target, records.clone()), &times);
    }
    let [interpolated, nearest] = errors.means();
    println!(
        "off by {:.2} % by interpolation, {:.2} % by the nearest",
        100.0 * interpolated,
        100.0 * nearest
    );
    assert!(interpolated < 0.8 * nearest, "{errors:?}");
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
