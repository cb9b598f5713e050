//! Choosing a configuration, with or without measuring.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use tilewright_kernels::Estimate;

use crate::correction::{Correction, Place};
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
/// Part by which a candidate counts as slower than estimated that nobody measured; less, the nearer the sizes are at which one did.
const UNPROVEN: f64 = 0.02;
/// Sizes that are multiples of this power of two are aligned: rows of 16-bit elements at multiples of 16 bytes.
const ALIGNED: u32 = 3;
/// Times of records, the nearest ones, from which corrections follow.
const NEIGHBOURS: usize = 64;
/// Times that a contender names.
const NAMED: usize = 4;
/// Points of the space, the best by estimate, that are corrected.
const CORRECTED: usize = 200;
/// Configurations of other families beside the choice.
const RIVALS: usize = 2;

/// Chooses without measuring: by a record of the shape class, else by estimate: the configurations of records for other sizes and the cost model's
/// first, corrected by what was measured at other sizes. Without a store only shipped records are looked at.
///
/// # Errors
///
/// [`TuneError::Empty`] if the operator has nothing for the problem; [`TuneError::NothingRuns`] if the compiler refuses the best estimates.
pub fn choose(problem: &Problem, target: &Target, store: Option<&Store>) -> Result<Choice, TuneError> {
    choose_accepted(problem, target, store, &mut |candidate, from| match from {
        Origin::Cache | Origin::Shipped => Ok(()),
        Origin::Nearby | Origin::Estimate => compiled(problem, target, candidate).map(drop),
    })
}

/// Says of a configuration why it is not to be taken, if it is not.
pub type Accept<'a> = dyn FnMut(&Candidate, Origin) -> Result<(), String> + 'a;

/// The same for who compiles by rules of its own: the first that it accepts is chosen, of records too.
///
/// # Errors
///
/// As of [`choose`].
pub fn choose_accepted(
    problem: &Problem,
    target: &Target,
    store: Option<&Store>,
    accept: &mut Accept<'_>,
) -> Result<Choice, TuneError> {
    let mut refused = Vec::new();
    let looked = [
        (Origin::Cache, store.map(|s| s.find(problem, target))),
        (Origin::Shipped, Some(shipped(problem, target))),
    ];
    for (from, found) in looked {
        match found {
            Some(Found::Record(record, candidate)) => {
                if let Err(reason) = accept(&candidate, from) {
                    refused.push(format!("the {from} record's `{candidate}` is not used: {reason}"));
                    continue;
                }
                let why = format!(
                    "measured on {} at {}: {:.1} µs{}",
                    record.device,
                    text_of(&record.sizes),
                    record.microseconds,
                    if record.remeasured { "" } else { ", before the program changed" }
                );
                return Ok(Choice { candidate, from, why, refused });
            }
            Some(Found::Refused { place, reason }) => refused.push(refusal(&place, &reason)),
            Some(Found::Nothing) | None => {}
        }
    }
    let (all, refused_by_rules, because) = contenders(problem, target, records(problem, store))?;
    let mut first = None;
    for Contender { candidate, from, how, expected, .. } in all.into_iter().take(TRIES) {
        match accept(&candidate, from) {
            Ok(()) => {
                let (class, device) = (problem.class(), &target.device);
                let why = format!(
                    "no record of {class} for {device}; {how}, estimated at {expected:.1} µs here and not measured"
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
            because: because.map(|reason| format!("; one is refused: {reason}")).unwrap_or_default(),
        }),
    }
}

/// A time that a record has, of its configuration or of one that lost.
#[derive(Clone, PartialEq, Debug)]
pub struct Neighbour {
    /// The device that was measured.
    pub device: String,
    /// The sizes that were measured.
    pub sizes: BTreeMap<String, i64>,
    /// The configuration.
    pub configuration: String,
    /// Its time in microseconds.
    pub microseconds: f64,
    /// The time as a multiple of the estimate there.
    pub ratio: f64,
    /// The part of the error of its estimate that the two share, from 0 to 1.
    pub likeness: f64,
}

/// A configuration that is compared with others for a problem.
#[derive(Clone, PartialEq, Debug)]
pub struct Contender {
    /// The configuration.
    pub candidate: Candidate,
    /// Its source.
    pub from: Origin,
    /// The same as text.
    pub how: String,
    /// Its estimate, with the parts.
    pub estimate: Estimate,
    /// The factor by which records correct the estimate.
    pub correction: f64,
    /// The expected time in microseconds: the estimate, corrected, and longer where nobody measured the configuration.
    pub expected: f64,
    /// The times from which the correction follows, the most alike first.
    pub neighbours: Vec<Neighbour>,
}

/// The times of records that say something of a problem's estimates.
pub(crate) struct Known<'a> {
    problem: &'a Problem,
    target: &'a Target,
    times: Vec<(Place, Neighbour)>,
    correction: Correction<'a>,
}

impl<'a> Known<'a> {
    /// The nearest times of these records that hold for other sizes, of the same operator and architecture and of pins that make no difference, with rows
    /// that are aligned as well as the problem's: those of the device first, and of others as multiples of the estimates for these.
    pub(crate) fn of(
        problem: &'a Problem,
        target: &'a Target,
        records: impl IntoIterator<Item = (Record, bool)>,
    ) -> Self {
        let here: Vec<f64> = problem.sizes().values().map(|size| (*size as f64).log2()).collect();
        let aligned = |p: &Problem| -> Vec<(String, u32)> {
            let of = |(name, size): (&String, &i64)| (name.clone(), size.trailing_zeros().min(ALIGNED));
            p.sizes().iter().map(of).collect()
        };
        let (own, arch) = (aligned(problem), target.arch.to_string());
        let mut times = Vec::new();
        for (record, any_compiler) in records {
            // The others are of nothing alike, which their texts tell.
            if record.arch != arch || record.operator != problem.operator().name {
                continue;
            }
            let Ok(other) = record.problem() else { continue };
            if !problem.is_like(&other) || aligned(&other) != own {
                continue;
            }
            let elsewhere =
                (record.device != target.device).then(|| Target::new(record.device.clone(), target.arch));
            let device = elsewhere.as_ref().unwrap_or(target);
            let Ok(winner) = record.holds(&other, device, any_compiler) else { continue };
            let lost = record.runners_up.iter();
            let lost = lost.filter_map(|r| Some((Candidate::parse(&r.configuration).ok()?, r.microseconds)));
            for (candidate, microseconds) in [(winner, record.microseconds)].into_iter().chain(lost) {
                let estimate = (other.tuning().estimate)(device.chip(), other.sizes(), &candidate.given());
                let Some(estimate) = estimate.ok().filter(|e| e.microseconds.is_finite()) else { continue };
                let Ok(candidate) = problem.adopted(&other, &candidate, target.chip()) else { continue };
                let neighbour = Neighbour {
                    device: record.device.clone(),
                    sizes: record.sizes.clone(),
                    configuration: candidate.to_string(),
                    microseconds,
                    ratio: microseconds / estimate.microseconds,
                    likeness: 0.0,
                };
                let place = Place::new(candidate, other.sizes(), &estimate);
                let place = if elsewhere.is_some() { place.on(&record.device) } else { place };
                times.push((place, neighbour));
            }
        }
        let order =
            |(place, time): &(Place, Neighbour)| (place.distance(&here), time.device != target.device);
        times.sort_by(|a, b| {
            let ((near, other), (far, another)) = (order(a), order(b));
            near.total_cmp(&far).then(other.cmp(&another))
        });
        times.truncate(NEIGHBOURS);
        let samples = times.iter().map(|(place, time)| (place.clone(), time.ratio.ln())).collect();
        Known { problem, target, times, correction: Correction::new(problem.tuning(), samples) }
    }

    /// The factor by which the estimate of a configuration is corrected.
    pub(crate) fn factor(&self, place: &Place) -> f64 {
        self.correction.at(place).log.exp()
    }

    /// A configuration at the problem's sizes, with its estimate.
    pub(crate) fn place(&self, candidate: &Candidate) -> Result<(Place, Estimate), TuneError> {
        let (tuning, sizes) = (self.problem.tuning(), self.problem.sizes());
        let estimate = (tuning.estimate)(self.target.chip(), sizes, &candidate.given())?;
        Ok((Place::new(candidate.clone(), sizes, &estimate), estimate))
    }

    /// A configuration with its estimate, the corrected one, and the times that correct it.
    fn contender(&self, candidate: Candidate, from: Origin, how: String) -> Result<Contender, TuneError> {
        let (place, estimate) = self.place(&candidate)?;
        let correction = self.factor(&place);
        let measured = self.times.iter().filter(|(place, _)| *place.candidate() == candidate);
        let nearest = measured.map(|(other, _)| place.nearness(other)).fold(0.0, f64::max);
        let unproven = if self.times.is_empty() { 1.0 } else { 1.0 + UNPROVEN * (1.0 - nearest) };
        let nearest = self.correction.nearest(&place);
        let neighbours = nearest.into_iter().take(NAMED).map(|(i, likeness)| {
            let (_, neighbour) = &self.times[i];
            Neighbour { likeness, ..neighbour.clone() }
        });
        let neighbours = neighbours.collect();
        let expected = estimate.microseconds * correction * unproven;
        Ok(Contender { candidate, from, how, estimate, correction, expected, neighbours })
    }
}

/// The records that hold for a device: those of the user's store, and those that come with the kernels.
pub(crate) fn records(problem: &Problem, store: Option<&Store>) -> Vec<(Record, bool)> {
    let own = store.map(|s| s.all(problem.operator().name)).unwrap_or_default();
    let shipped: Vec<(Record, bool)> = all_shipped()
        .values()
        .filter(|record| own.iter().all(|other| other.key() != record.key()))
        .map(|record| (record.clone(), true))
        .collect();
    own.into_iter().map(|record| (record, false)).chain(shipped).collect()
}

/// The configurations that records of other sizes have and the best of the space, by expected time; how many the rules refused, and why one of these.
fn contenders(
    problem: &Problem,
    target: &Target,
    records: Vec<(Record, bool)>,
) -> Result<(Vec<Contender>, usize, Option<String>), TuneError> {
    let space = (problem.tuning().space)(target.chip(), problem.sizes(), &problem.pinned().given())?;
    let known = Known::of(problem, target, records);
    let (mut all, mut seen) = (Vec::new(), HashSet::new());
    for (place, time) in &known.times {
        let candidate = place.candidate();
        let refused = (problem.tuning().reject)(target.arch, &candidate.given()).is_some();
        let point = (problem.tuning().point)(target.chip(), problem.sizes(), &candidate.given());
        if !refused && point.is_ok_and(|point| point.suits) && seen.insert(candidate.clone()) {
            let on =
                if time.device == target.device { String::new() } else { format!(" on {}", time.device) };
            let how = format!("measured{on} at {}", text_of(&time.sizes));
            all.push(known.contender(candidate.clone(), Origin::Nearby, how)?);
        }
    }
    let mut estimated = Vec::new();
    for (rank, point) in space.points.into_iter().take(CORRECTED).enumerate() {
        let candidate = Candidate::from(point.parameters);
        if !seen.contains(&candidate) {
            let how = format!("the cost model's choice {}", rank + 1);
            let (place, estimate) = known.place(&candidate)?;
            estimated.push((estimate.microseconds * known.factor(&place), candidate, how));
        }
    }
    estimated.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, candidate, how) in estimated.into_iter().take(TRIES) {
        all.push(known.contender(candidate, Origin::Estimate, how)?);
    }
    all.sort_by(|a, b| a.expected.total_cmp(&b.expected));
    Ok((all, space.refused, space.because))
}

/// A choice and its rivals.
#[derive(Clone, PartialEq, Debug)]
pub struct Why {
    /// The problem.
    pub problem: String,
    /// The device whose model the estimates are of.
    pub model: String,
    /// The time in microseconds that a record of the problem's class has for the choice.
    pub measured: Option<f64>,
    /// The choice, and the best of other families behind it.
    pub contenders: Vec<Contender>,
}

/// The estimate of a choice and of the best configurations of other families, with their parts.
///
/// # Errors
///
/// [`TuneError::Config`] from the operator.
pub fn explain(
    problem: &Problem,
    target: &Target,
    store: Option<&Store>,
    choice: &Choice,
) -> Result<Why, TuneError> {
    let family = |candidate: &Candidate| -> Vec<(String, String)> {
        let of = |(name, _): &&(String, String)| problem.tuning().family.contains(&name.as_str());
        candidate.0.iter().filter(of).cloned().collect()
    };
    let records = records(problem, store);
    let known = Known::of(problem, target, records.clone());
    let (all, ..) = contenders(problem, target, records)?;
    let chosen = known.contender(choice.candidate.clone(), choice.from, choice.why.clone())?;
    let mut families = vec![family(&chosen.candidate)];
    let mut shown = vec![chosen];
    for contender in all {
        let own = family(&contender.candidate);
        if shown.len() <= RIVALS && !families.contains(&own) {
            families.push(own);
            shown.push(contender);
        }
    }
    let found = [store.map(|s| s.find(problem, target)), Some(shipped(problem, target))];
    let measured = found.into_iter().flatten().find_map(|found| match found {
        Found::Record(record, candidate) if candidate == choice.candidate => Some(record.microseconds),
        _ => None,
    });
    let model = target.model.device().to_string();
    Ok(Why { problem: problem.to_string(), model, measured, contenders: shown })
}

/// Sizes as text.
pub(crate) fn text_of(sizes: &BTreeMap<String, i64>) -> String {
    sizes.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
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
/// measures and the others wait for its record; those that tune different problems on one device wait for each other's [`DeviceLock`](crate::DeviceLock).
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

#[cfg(test)]
#[path = "choose_tests.rs"]
mod tests;
