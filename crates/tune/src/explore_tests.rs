//! Searches with simulated timings: those of a model with other numbers, times what no estimate knows.

use std::collections::HashMap;

use tilewright_kernels::Space;

use super::*;
use crate::record::Record;
use crate::simulated::Simulated;
use crate::store::SHIPPED;

/// The number of candidates that the search measures, and the time of the one that it finds.
fn searched(explorer: &Explorer<'_>, device: &mut Simulated<'_>) -> (usize, f64) {
    let mut entries: Vec<Entry> = Vec::new();
    let mut wanted = explorer.first();
    while !wanted.is_empty() {
        for mut entry in wanted {
            entry.times.push(device.measured(&entry.candidate));
            entries.push(entry);
        }
        wanted = explorer.next(&entries).unwrap();
    }
    let fastest = entries.iter().min_by(|a, b| a.median().unwrap().total_cmp(&b.median().unwrap())).unwrap();
    (entries.len(), device.time(&fastest.candidate))
}

/// The same for a search that varies each parameter in turn around the best two of a first contest of twelve, and measures so many at most.
fn varied(explorer: &Explorer<'_>, device: &mut Simulated<'_>, most: usize) -> (usize, f64) {
    let wide = Settings { top: 12, measurements: 12, ..*explorer.settings };
    let wide = Explorer { settings: &wide, points: explorer.points.clone(), ..*explorer };
    let mut seen: HashMap<Candidate, f64> = HashMap::new();
    let mut measured = |candidate: &Candidate| {
        if let Some(time) = seen.get(candidate) {
            return *time;
        }
        if seen.len() == most {
            return f64::INFINITY;
        }
        let time = device.measured(candidate);
        seen.insert(candidate.clone(), time);
        time
    };
    let mut first: Vec<(f64, Candidate)> =
        wide.first().into_iter().map(|entry| (measured(&entry.candidate), entry.candidate)).collect();
    first.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, base) in first.into_iter().take(2) {
        descended(explorer, base, &mut measured);
    }
    let fastest = seen.iter().min_by(|a, b| a.1.total_cmp(b.1)).unwrap().0.clone();
    (seen.len(), device.time(&fastest))
}

/// The end of a descent along one parameter after another.
fn descended(
    explorer: &Explorer<'_>,
    base: Candidate,
    time: &mut impl FnMut(&Candidate) -> f64,
) -> (Candidate, f64) {
    let mut best = (time(&base), base);
    loop {
        let before = best.1.clone();
        for (name, _) in explorer.problem.tuning().secondary {
            let around = explorer.neighbours(&best.1).unwrap();
            let along = around.into_iter().filter(|entry| entry.candidate.value(name) != best.1.value(name));
            let times: Vec<(f64, Candidate)> =
                along.map(|entry| (time(&entry.candidate), entry.candidate)).collect();
            let fastest = times.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
            best = match fastest {
                Some(faster) if faster.0 < best.0 * (1.0 - GAIN) => faster,
                _ => best,
            };
        }
        if best.1 == before {
            return (best.1, best.0);
        }
    }
}

/// The least time of the space: the best that descents from its fastest points reach, without noise.
fn least(explorer: &Explorer<'_>, device: &mut Simulated<'_>) -> f64 {
    let candidates = explorer.points.iter().map(|(_, point)| Candidate::from(point.parameters.clone()));
    let mut times: Vec<(f64, Candidate)> = candidates.map(|c| (device.time(&c), c)).collect();
    times.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ends = times.into_iter().take(6).map(|(_, c)| descended(explorer, c, &mut |c| device.time(c)).1);
    ends.fold(f64::INFINITY, f64::min)
}

/// Twenty measurements find nearly as much as several times as many, and more than as many as were usual, 36, where each parameter is varied in
/// turn: on spaces of real problems, by day of a few, each night, with `TILEWRIGHT_EVERY_POINT`, of 44.
#[test]
fn twenty_measurements_are_enough() {
    const USUAL: usize = 36;
    let records = SHIPPED[0].1.lines().filter_map(|line| Record::parse(line).ok());
    let products: Vec<Record> = records.filter(|record| record.operator == "gemm_hopper").collect();
    let every = std::env::var_os("TILEWRIGHT_EVERY_POINT").is_some();
    let settings = Settings::default();
    let (mut most, mut count, mut sums) = (0, 0, [[0.0; 2]; 4]);
    for (seed, record) in (0..).zip(products.iter().step_by(if every { 2 } else { 11 })) {
        let (problem, target) = (record.problem().unwrap(), record.target().unwrap());
        let given = problem.pinned().given();
        let Space { points, .. } = (problem.tuning().space)(target.chip(), problem.sizes(), &given).unwrap();
        let explorer = Explorer::new(&problem, &target, &settings, points).unwrap();
        let mut device = Simulated::new(&problem, seed);
        let least = least(&explorer, &mut device);
        let first = explorer.first().remove(0).candidate;
        let searches = [
            (1, device.time(&first)),
            varied(&explorer, &mut device, usize::MAX),
            varied(&explorer, &mut device, USUAL),
            searched(&explorer, &mut device),
        ];
        let lost = searches.map(|(count, time)| [count as f64, 100.0 * (time / least).ln()]);
        println!("{problem}: {lost:.2?}");
        most = most.max(searches[3].0);
        count += 1;
        for (sum, lost) in sums.iter_mut().zip(lost) {
            *sum = [sum[0] + lost[0], sum[1] + lost[1]];
        }
    }
    let [first, all, usual, own] = sums.map(|sum| sum.map(|x| x / f64::from(count)));
    println!(
        "{count} problems, measurements and % that the result is slower than the fastest: the estimate's first {first:.2?}, each parameter in \
         turn {all:.2?}, at most {USUAL} {usual:.2?}, this search {own:.2?}, at most {most}"
    );
    assert!(most <= settings.measurements && all[0] > 2.0 * own[0]);
    assert!(own[1] < 1.0 && own[1] < usual[1] + 0.2, "{own:?} and {usual:?}");
}
