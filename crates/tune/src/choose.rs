//! Choosing a configuration, with or without measuring.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::TuneError;
use crate::meter::Meter;
use crate::problem::{Candidate, Problem, Target};
use crate::record::Record;
use crate::report::Report;
use crate::search::{Progress, Settings, Watch, compiled, search};
use crate::store::{Found, Store, shipped};

/// Where a choice comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A record of the user's cache.
    Cache,
    /// A record that comes with the kernels.
    Shipped,
    /// The cost model's first that the compiler accepts.
    Estimate,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Cache => "cache",
            Origin::Shipped => "shipped",
            Origin::Estimate => "estimate",
        })
    }
}

/// A configuration for a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The configuration.
    pub candidate: Candidate,
    /// Where it comes from.
    pub from: Origin,
    /// The same in words.
    pub why: String,
    /// Records that were refused, each with its reason.
    pub refused: Vec<String>,
}

/// Estimates whose programs are compiled to find one that the compiler accepts.
const TRIES: usize = 8;

/// Chooses without measuring: by a record of the shape class, else by estimate. Without a store only shipped records are looked at.
///
/// # Errors
///
/// [`TuneError::Empty`] if the operator has nothing for the problem; [`TuneError::NothingRuns`] if the compiler refuses the best estimates.
pub fn choose(problem: &Problem, target: &Target, store: Option<&Store>) -> Result<Choice, TuneError> {
    let mut refused = Vec::new();
    let looked = [
        (Origin::Cache, store.map(|s| s.find(problem, target))),
        (Origin::Shipped, Some(shipped(problem, target))),
    ];
    for (from, found) in looked {
        match found {
            Some(Found::Record(record, candidate)) => {
                let why = format!(
                    "measured on {} at {}: {:.1} µs{}",
                    record.device,
                    sizes(&record),
                    record.microseconds,
                    if record.remeasured { "" } else { ", before the program changed" }
                );
                return Ok(Choice { candidate, from, why, refused });
            }
            Some(Found::Refused { place, reason }) => refused.push(refusal(&place, &reason)),
            Some(Found::Nothing) | None => {}
        }
    }
    let tuning = problem.tuning();
    let pinned = problem.pinned().given();
    let space = (tuning.space)(target.arch, problem.sizes(), &pinned)?;
    let empty = TuneError::Empty {
        operator: problem.operator().name,
        problem: problem.to_string(),
        arch: target.arch.to_string(),
        refused: space.refused,
        because: String::new(),
    };
    let mut first = None;
    for (rank, point) in space.points.into_iter().take(TRIES).enumerate() {
        let (estimate, candidate) = (point.estimate, Candidate::from(point.parameters));
        match compiled(problem, target, &candidate) {
            Ok(_) => {
                let why = format!(
                    "no record of {} for {}; the cost model's choice {}, estimated at {estimate:.1} µs and not measured",
                    problem.class(),
                    target.device,
                    rank + 1,
                );
                return Ok(Choice { candidate, from: Origin::Estimate, why, refused });
            }
            Err(reason) => first = first.or(Some(reason)),
        }
    }
    match first {
        Some(reason) => Err(TuneError::NothingRuns { problem: problem.to_string(), tried: TRIES, reason }),
        None => Err(empty),
    }
}

fn sizes(record: &Record) -> String {
    record.sizes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn refusal(place: &str, reason: &dyn fmt::Display) -> String {
    format!("the record in {place} is not used: {reason}")
}

/// What tuning a problem gave.
#[derive(Debug)]
pub struct Tuned {
    /// The record.
    pub record: Record,
    /// The search; none if the record was there already.
    pub report: Option<Report>,
    /// Records that were refused, each with its reason.
    pub refused: Vec<String>,
}

/// Makes the meter of a problem when it is needed.
pub type MakeMeter<'a> = dyn FnMut(&Problem) -> Result<Box<dyn Meter + 'a>, TuneError> + 'a;

/// Tunes a problem: takes the record of its shape class from the store, or searches and writes one. Of several processes that tune the same, one
/// measures and the others wait for its record; those that tune different problems on one device measure one after another.
/// `fresh` measures even if there is a record.
///
/// # Errors
///
/// What the search says ([`search`]), and [`TuneError::Store`].
pub fn tune(
    problem: &Problem,
    target: &Target,
    store: &Store,
    fresh: bool,
    settings: &Settings,
    meter: &mut MakeMeter<'_>,
    watch: &mut Watch<'_>,
) -> Result<Tuned, TuneError> {
    let mut refused = Vec::new();
    let wait = |watch: &mut Watch<'_>, what: &str| watch(Progress { spent: 0.0, doing: what.to_string() });
    let key = problem.key(target);
    let _of_problem =
        store.lock(&key, || wait(watch, "waiting for another process, which tunes the same"))?;
    if !fresh {
        match store.find(problem, target) {
            Found::Record(record, _) => return Ok(Tuned { record: *record, report: None, refused }),
            Found::Refused { place, reason } => refused.push(refusal(&place, &reason)),
            Found::Nothing => {}
        }
    }
    let device = format!("device | {}", target.device);
    let _of_device = store.lock(&device, || wait(watch, "waiting for another process, which measures"))?;
    let mut meter = meter(problem)?;
    let report = search(problem, target, settings, meter.as_mut(), watch)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let record = report.record(problem, target, now).ok_or_else(|| TuneError::NothingRuns {
        problem: problem.to_string(),
        tried: report.entries.len(),
        reason: "no time was measured".to_string(),
    })?;
    store.put(&record)?;
    Ok(Tuned { record, report: Some(report), refused })
}
