//! The search, with a measurer that knows the answer.

mod common;

use std::time::Duration;

use common::{Fake, columns_96, gpu, problem, quick};
use tilewright_tune::{RejectedBy, Settings, Source, Stop, TuneError, rank, search};

/// Parameters that the space does not vary are found by the search around its best.
#[test]
fn parameters_are_varied_around_the_fastest() {
    let problem = problem("gemm_hopper", [4096, 4096, 4096], &[]);
    let time = |program: &str| {
        let has = |what: &str| program.contains(what);
        180.0 - if has("hilbert(3)") { 20.0 } else { 0.0 } - if has("evict_last") { 5.0 } else { 0.0 }
    };
    let mut measurer = Fake::new(time);
    let mut said = Vec::new();
    // The estimate knows of none of them: with so many measurements each has its turn.
    let settings = Settings { measurements: 60, ..quick() };
    let report = search(&problem, &gpu(), &settings, &mut measurer, &mut |p| said.push(p.doing)).unwrap();
    let winner = report.winner().unwrap();
    assert_eq!(winner.candidate.value("rasterization"), Some("hilbert(3)"), "{}", winner.candidate);
    assert!(winner.candidate.to_string().contains("evict_last"), "{}", winner.candidate);
    assert_eq!((winner.source, report.stop), (Source::Refined, Stop::Stable));
    assert!(winner.median().unwrap() < 156.0);
    // All that were measured are there, in the order of the last contest and then of their times.
    let times: Vec<f64> = report.measured().map(|e| e.median().unwrap()).collect();
    assert!(times[..report.finalists].is_sorted() && times[report.finalists..].is_sorted(), "{times:?}");
    assert_eq!(times.len(), measurer.turns.len());
    // The estimate's first is one of the last contest, so its loss is measured in one contest.
    assert!(report.entries[..report.finalists].iter().any(|e| e.rank == Some(0)));
    assert!(report.estimate_loses().unwrap() > 0.1);
    // The default's result is what the winner's is compared with.
    assert_eq!((measurer.compared.len(), report.checked_against.as_deref()), (1, Some("")));
    assert!(said.iter().any(|s| s.starts_with("contest 2, round 1")), "{said:?}");
    let json = report.json();
    assert_eq!(json["measured"], times.len());
    assert_eq!(json["entries"][0]["configuration"], winner.candidate.to_string());
}

/// No more candidates than asked for are measured, and the report says that this ended the search.
#[test]
fn measurements_are_limited() {
    let problem = problem("gemm", [1024, 1024, 1024], &[]);
    for measurements in [1, 7] {
        let settings = Settings { measurements, ..quick() };
        let mut measurer = Fake::new(columns_96);
        let report = search(&problem, &gpu(), &settings, &mut measurer, &mut |_| {}).unwrap();
        assert_eq!((report.measured().count(), report.stop), (measurements, Stop::Measurements));
        assert_eq!(report.json()["measurements"], measurements);
    }
}

#[test]
fn slow_candidates_drop_out_early() {
    let problem = problem("gemm", [1024, 1024, 1024], &[]);
    let settings = Settings { refine: false, top: 6, ..quick() };
    let mut measurer = Fake::new(columns_96);
    let report = search(&problem, &gpu(), &settings, &mut measurer, &mut |_| {}).unwrap();
    let most = measurer.turns.values().max().unwrap();
    let slow: Vec<_> = report.measured().filter(|e| e.median() > Some(250.0)).collect();
    assert!(!slow.is_empty() && slow.iter().all(|e| e.times.len() < *most), "{:?}", measurer.turns);
    let fast = report.winner().unwrap();
    assert_eq!(fast.times.len(), *most);
}

/// Without time left every candidate still has its least number of turns, and the fastest wins.
#[test]
fn the_budget_ends_the_search() {
    let problem = problem("gemm", [1024, 1024, 1024], &[]);
    let settings = Settings { budget: Duration::ZERO, ..quick() };
    let mut measurer = Fake::new(|_| 100.0);
    let report = search(&problem, &gpu(), &settings, &mut measurer, &mut |_| {}).unwrap();
    assert_eq!(report.stop, Stop::Budget);
    assert!(measurer.turns.values().all(|turns| *turns == settings.rounds[0]), "{:?}", measurer.turns);
    assert!(report.entries.iter().all(|e| e.source != Source::Refined));
}

#[test]
fn pinned_parameters_are_kept() {
    let pinned = [("bm", "64"), ("stages", "4"), ("dtype", "bf16")];
    let problem = problem("gemm", [512, 512, 512], &pinned);
    let mut measurer = Fake::new(columns_96);
    let report = search(&problem, &gpu(), &quick(), &mut measurer, &mut |_| {}).unwrap();
    assert!(report.measured().count() > 2);
    for entry in &report.entries {
        assert_eq!(entry.candidate.value("bm"), Some("64"));
        assert_eq!(entry.candidate.value("dtype"), Some("bf16"));
        assert_eq!(entry.candidate.value("stages"), None, "the default is 4: {}", entry.candidate);
    }
}

#[test]
fn a_wrong_result_is_an_error() {
    let problem = problem("gemm", [512, 512, 512], &[]);
    let mut measurer = Fake::new(columns_96);
    measurer.difference = Some("`c`: 3 of 9 elements differ".to_string());
    let settings = Settings { refine: false, ..quick() };
    let error = search(&problem, &gpu(), &settings, &mut measurer, &mut |_| {}).unwrap_err();
    assert!(matches!(error, TuneError::Wrong { .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("WRONG RESULT") && text.contains("`c`: 3 of 9 elements differ"), "{text}");
}

#[test]
fn what_the_assembler_refuses_is_counted_and_not_measured() {
    let problem = problem("gemm", [1024, 1024, 1024], &[]);
    let settings = Settings { refine: false, top: 8, ..quick() };
    let mut measurer = Fake::new(columns_96);
    measurer.refuse = |program| program.contains("STAGES = 4").then(|| "it spills".to_string());
    let report = search(&problem, &gpu(), &settings, &mut measurer, &mut |_| {}).unwrap();
    let refused = report.refused(RejectedBy::Assembler);
    assert!(refused > 0 && report.measured().count() > 0, "{:#}", report.json());
    assert_eq!(
        refused + report.refused(RejectedBy::Compiler) + report.measured().count(),
        report.entries.len()
    );

    measurer.refuse = |_| Some("it spills".to_string());
    let error = search(&problem, &gpu(), &settings, &mut measurer, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("can run; the first: it spills"), "{error}");
}

#[test]
fn nothing_suits_what_the_rules_refuse() {
    let problem = problem("gemm_hopper", [512, 512, 512], &[("stages", "32"), ("bk", "256")]);
    let mut measurer = Fake::new(|_| 1.0);
    let error = search(&problem, &gpu(), &quick(), &mut measurer, &mut |_| {}).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, TuneError::Empty { .. }) && text.contains("shared memory"), "{text}");
}

#[test]
fn without_a_meter_estimates_rank() {
    for (operator, sizes) in
        [("gemm", [100, 200, 300]), ("w4a16", [16, 512, 512]), ("gemm_hopper", [16, 512, 1024])]
    {
        let report = rank(&problem(operator, sizes, &[]), &gpu(), &quick(), &mut |_| {}).unwrap();
        assert_eq!((report.stop, report.winner()), (Stop::Unmeasured, None));
        let able = report.entries.iter().filter(|e| e.refused.is_none());
        let estimates: Vec<f64> = able.map(|e| e.estimate).collect();
        assert!(estimates.len() > 1 && estimates.is_sorted(), "{operator}: {estimates:?}");
        assert!(report.space > 100 && report.refused_by_rules > 100);
    }
}
