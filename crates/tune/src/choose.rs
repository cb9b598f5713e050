//! Choosing a configuration, with or without measuring.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::TuneError;
use crate::measurer::Measurer;
use crate::problem::{Candidate, Problem, Target};
use crate::record::Record;
use crate::report::Report;
use crate::search::{Progress, ProgressFn, Settings, compiled, search};
use crate::store::{Found, Store, all_shipped, shipped};

/// Source of a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// A record of the user's cache.
    Cache,
    /// A record that comes with the kernels.
    Shipped,
    /// The configuration of a record for other sizes, which the cost model, corrected by records, takes for the fastest.
    Nearby,
    /// The cost model's first that the compiler accepts.
    Estimate,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Cache => "cache",
            Origin::Shipped => "shipped",
            Origin::Nearby => "nearby",
            Origin::Estimate => "estimate",
        })
    }
}

/// A configuration for a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The configuration.
    pub candidate: Candidate,
    /// Its source.
    pub from: Origin,
    /// The same as text.
    pub why: String,
    /// Records that were refused, each with its reason.
    pub refused: Vec<String>,
}

/// Choices whose programs are compiled to find one that the compiler accepts.
const TRIES: usize = 8;
/// Part by which an unmeasured candidate counts as slower than estimated.
const UNPROVEN: f64 = 0.05;
/// Sizes that are multiples of this power of two are aligned: rows of 16-bit elements at multiples of 16 bytes.
const ALIGNED: u32 = 3;

/// Chooses without measuring: by a record of the shape class, else by estimate: the configurations of records for other sizes, whose estimates are
/// corrected by what was measured, and the cost model's first. Without a store only shipped records are looked at.
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
    let space = (problem.tuning().space)(target.arch, problem.sizes(), &problem.pinned().given())?;
    let refused_by_rules = space.refused;
    let known = known(problem, target, store);
    let nearest = known.iter().min_by(|a, b| a.distance.total_cmp(&b.distance));
    // What nobody measured must be that much faster by estimate than what was.
    let unproven = nearest.map_or(1.0, |k| k.ratio * (1.0 + UNPROVEN));
    let estimated = space.points.into_iter().take(TRIES).enumerate().map(|(rank, point)| {
        let why = format!("the cost model's choice {}", rank + 1);
        (point.estimate * unproven, Candidate::from(point.parameters), Origin::Estimate, why)
    });
    let proven = known.iter().map(|k| {
        let why = format!("measured at {}", sizes(&k.record));
        (k.predicted, k.candidate.clone(), Origin::Nearby, why)
    });
    let mut all: Vec<(f64, Candidate, Origin, String)> = proven.chain(estimated).collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut first = None;
    for (time, candidate, from, how) in all.into_iter().take(TRIES) {
        match compiled(problem, target, &candidate) {
            Ok(_) => {
                let (class, device) = (problem.class(), &target.device);
                let why = format!(
                    "no record of {class} for {device}; {how}, estimated at {time:.1} µs here and not measured"
                );
                return Ok(Choice { candidate, from, why, refused });
            }
            Err(reason) => first = first.or(Some(reason)),
        }
    }
    match first {
        Some(reason) => Err(TuneError::NothingRuns { problem: problem.to_string(), tried: TRIES, reason }),
        None => Err(TuneError::Empty {
            operator: problem.operator().name,
            problem: problem.to_string(),
            arch: target.arch.to_string(),
            refused: refused_by_rules,
            because: String::new(),
        }),
    }
}

/// A record for other sizes, and what it says of the problem.
struct Known {
    record: Record,
    candidate: Candidate,
    /// The time that was measured, as a multiple of the estimate.
    ratio: f64,
    /// The estimate for the problem, times the ratio.
    predicted: f64,
    /// The sum of the binary logarithms of the sizes' quotients.
    distance: f64,
}

/// The records of this operator, device and these pins that hold for other sizes, with rows that are aligned as well as the problem's, and whose
/// configuration is in proportion to the problem.
fn known(problem: &Problem, target: &Target, store: Option<&Store>) -> Vec<Known> {
    let own = store.map(|s| s.all(problem.operator().name)).unwrap_or_default();
    let shipped = all_shipped().values().filter(|r| own.iter().all(|o| o.key() != r.key())).cloned();
    let one = |(record, any_compiler): (Record, bool)| {
        let other = record.problem().ok()?;
        let candidate = record.holds(&other, target, any_compiler).ok()?;
        if other.operator().name != problem.operator().name || other.pinned() != problem.pinned() {
            return None;
        }
        let aligned = |p: &Problem| -> Vec<u32> {
            p.sizes().values().map(|size| size.trailing_zeros().min(ALIGNED)).collect()
        };
        if aligned(&other) != aligned(problem) {
            return None;
        }
        let point = |p: &Problem| (p.tuning().point)(target.arch, p.sizes(), &candidate.given()).ok();
        let here = point(problem).filter(|point| point.suits)?;
        let ratio = record.microseconds / point(&other)?.estimate;
        let predicted = ratio * here.estimate;
        let pairs = other.sizes().values().zip(problem.sizes().values());
        let distance = pairs.map(|(a, b)| (*a as f64 / *b as f64).log2().abs()).sum();
        Some(Known { record, candidate, ratio, predicted, distance })
    };
    let own: Vec<(Record, bool)> = own.iter().map(|r| (r.clone(), false)).collect();
    own.into_iter().chain(shipped.map(|r| (r, true))).filter_map(one).collect()
}

fn sizes(record: &Record) -> String {
    record.sizes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

fn refusal(place: &str, reason: &dyn fmt::Display) -> String {
    format!("the record in {place} is not used: {reason}")
}

/// Result of tuning a problem.
#[derive(Debug)]
pub struct Tuned {
    /// The record.
    pub record: Record,
    /// The search; none if the record was there already.
    pub report: Option<Report>,
    /// Records that were refused, each with its reason.
    pub refused: Vec<String>,
}

/// Makes the measurer of a problem when it is needed.
pub type MakeMeasurer<'a> = dyn FnMut(&Problem) -> Result<Box<dyn Measurer + 'a>, TuneError> + 'a;

/// Tunes a problem: takes the record of its shape class from the store, or searches and writes one. Of several processes that tune the same, one
/// measures and the others wait for its record; those that tune different problems on one device measure one after another.
/// `fresh` measures even if there is a record.
///
/// # Errors
///
/// Those of [`search`], and [`TuneError::Store`].
pub fn tune(
    problem: &Problem,
    target: &Target,
    store: &Store,
    fresh: bool,
    settings: &Settings,
    measurer: &mut MakeMeasurer<'_>,
    watch: &mut ProgressFn<'_>,
) -> Result<Tuned, TuneError> {
    let mut refused = Vec::new();
    let wait =
        |watch: &mut ProgressFn<'_>, what: &str| watch(Progress { spent: 0.0, doing: what.to_string() });
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
    let device = format!("device | {} | {}", target.device, settings.ordinal);
    let _of_device = store.lock(&device, || wait(watch, "waiting for another process, which measures"))?;
    let mut measurer = measurer(problem)?;
    let report = search(problem, target, settings, measurer.as_mut(), watch)?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let record = report.record(problem, target, now).ok_or_else(|| TuneError::NothingRuns {
        problem: problem.to_string(),
        tried: report.entries.len(),
        reason: "no time was measured".to_string(),
    })?;
    store.put(&record)?;
    Ok(Tuned { record, report: Some(report), refused })
}
