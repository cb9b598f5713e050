//! Report of a search: every candidate with its estimate and its times.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::{Value, json};

use crate::problem::{Candidate, Problem, Target};
use crate::record::{COMPILER, Conditions, FORMAT, Measured, Record, RunnerUp};

/// Source of a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The space, by its estimate.
    Space,
    /// The operator's defaults.
    Default,
    /// The search around another.
    Refined,
}

/// Stage that refused a candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RejectedBy {
    /// Synthesis or lowering.
    Compiler,
    /// The driver's assembler, or the launch's checks.
    Assembler,
}

/// Reason why a candidate was not measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Refused {
    /// The stage.
    pub by: RejectedBy,
    /// The reason.
    pub reason: String,
}

/// Time by activity.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Seconds {
    /// Our compiler, of all threads together.
    pub compiler: f64,
    /// The driver's assembler on several threads, and making tensors, from start to end.
    pub assembler: f64,
    /// Turns, with their rests.
    pub measuring: f64,
}

/// A candidate.
#[derive(Clone, PartialEq, Debug)]
pub struct Entry {
    /// Its parameters.
    pub candidate: Candidate,
    /// The estimated time in microseconds.
    pub estimate: f64,
    /// Its place by estimate in the space, from 0.
    pub rank: Option<usize>,
    /// Its source.
    pub source: Source,
    /// The reason why it was not measured.
    pub refused: Option<Refused>,
    /// Its turns in its last contest, in microseconds.
    pub times: Vec<f64>,
    /// Seconds that our compiler took.
    pub compiler_seconds: f64,
}

impl Entry {
    pub(crate) fn new(candidate: Candidate, estimate: f64, rank: Option<usize>, source: Source) -> Self {
        let (refused, times) = (None, Vec::new());
        Entry { candidate, estimate, rank, source, refused, times, compiler_seconds: 0.0 }
    }
}

/// Reason for the end of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The same candidate led for several rounds, and nothing was expected to be faster.
    Stable,
    /// As many candidates were measured as may be.
    Measurements,
    /// All rounds were played.
    Rounds,
    /// The budget was spent.
    Budget,
    /// Nothing was measured.
    Unmeasured,
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stop::Stable => "nothing gained any more",
            Stop::Measurements => "as many were measured as may be",
            Stop::Rounds => "all rounds were played",
            Stop::Budget => "the budget was spent",
            Stop::Unmeasured => "nothing was measured",
        })
    }
}

/// Report of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// The operator.
    pub operator: &'static str,
    /// The pinned parameters.
    pub pinned: String,
    /// The sizes.
    pub sizes: BTreeMap<String, i64>,
    /// The class of shapes.
    pub class: String,
    /// The device.
    pub device: String,
    /// The architecture.
    pub arch: String,
    /// Conditions of measurement.
    pub conditions: Option<Conditions>,
    /// Points of the space that the operator's rules accept.
    pub space: usize,
    /// Points that they refuse, or that are out of proportion to the problem.
    pub refused_by_rules: usize,
    /// Candidates that may be measured.
    pub measurements: usize,
    /// Reason for its end.
    pub stop: Stop,
    /// The candidate with whose result that of the fastest was compared.
    pub checked_against: Option<String>,
    /// Time by activity.
    pub seconds: Seconds,
    /// From start to end.
    pub wall_seconds: f64,
    /// Number of the entries, from the first, that met in the last contest: their times can be compared best.
    pub finalists: usize,
    /// Every candidate that was compiled: those measured by time, then those not measured by estimate.
    pub entries: Vec<Entry>,
}

impl Report {
    /// The fastest candidate.
    pub fn winner(&self) -> Option<&Entry> {
        self.entries.first().filter(|entry| entry.median().is_some())
    }

    /// The candidates that were measured, the fastest first.
    pub fn measured(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().filter(|entry| entry.median().is_some())
    }

    /// Candidates that were refused by this.
    pub fn refused(&self, by: RejectedBy) -> usize {
        self.entries.iter().filter(|e| e.refused.as_ref().is_some_and(|r| r.by == by)).count()
    }

    /// By how much the first choice of the estimate that can run is slower than the fastest, as a part of its time.
    pub fn estimate_loses(&self) -> Option<f64> {
        let ranked = self.measured().filter(|entry| entry.rank.is_some());
        let first = ranked.min_by_key(|entry| entry.rank)?.median()?;
        Some(first / self.winner()?.median()? - 1.0)
    }

    /// The record of the winner; none if nothing was measured.
    pub fn record(&self, problem: &Problem, target: &Target, unix_seconds: u64) -> Option<Record> {
        let winner = self.winner()?;
        let runner_up = |entry: &Entry| {
            Some(RunnerUp {
                configuration: entry.candidate.to_string(),
                microseconds: rounded(entry.median()?),
                estimate_rank: entry.rank,
            })
        };
        Some(Record {
            format: FORMAT,
            operator: self.operator.to_string(),
            pinned: self.pinned.clone(),
            sizes: self.sizes.clone(),
            class: self.class.clone(),
            device: target.device.clone(),
            arch: target.arch.to_string(),
            compiler: COMPILER.to_string(),
            programs: winner.candidate.hash(problem.operator()).ok()?,
            remeasured: true,
            configuration: winner.candidate.to_string(),
            microseconds: rounded(winner.median()?),
            estimate_rank: winner.rank,
            runners_up: self.measured().skip(1).take(RUNNERS_UP).filter_map(runner_up).collect(),
            measured: Measured {
                unix_seconds,
                conditions: self.conditions.clone()?,
                rounds: winner.times.len(),
                measured: self.measured().count(),
                seconds: rounded(self.wall_seconds),
                stop: self.stop.to_string(),
                checked_against: self.checked_against.clone(),
            },
        })
    }

    /// All of it for machines.
    pub fn json(&self) -> Value {
        let entry = |entry: &Entry| {
            json!({
                "configuration": entry.candidate.to_string(),
                "estimate_microseconds": rounded(entry.estimate),
                "estimate_rank": entry.rank,
                "source": entry.source,
                "microseconds": entry.median().map(rounded),
                "best_microseconds": entry.best().map(rounded),
                "turns_microseconds": entry.times.iter().copied().map(rounded).collect::<Vec<_>>(),
                "refused": entry.refused,
                "compiler_seconds": rounded(entry.compiler_seconds),
            })
        };
        json!({
            "operator": self.operator,
            "pinned": self.pinned,
            "sizes": self.sizes,
            "class": self.class,
            "device": self.device,
            "arch": self.arch,
            "conditions": self.conditions,
            "space": self.space,
            "refused_by_rules": self.refused_by_rules,
            "compiled": self.entries.len(),
            "refused_by_compiler": self.refused(RejectedBy::Compiler),
            "refused_by_assembler": self.refused(RejectedBy::Assembler),
            "measured": self.measured().count(),
            "measurements": self.measurements,
            "finalists": self.finalists,
            "stop": self.stop,
            "checked_against": self.checked_against,
            "estimate_loses": self.estimate_loses(),
            "seconds": self.seconds,
            "wall_seconds": self.wall_seconds,
            "entries": self.entries.iter().map(entry).collect::<Vec<_>>(),
        })
    }
}

/// Runners-up that a record keeps.
const RUNNERS_UP: usize = 8;

/// To a thousandth: what is beyond is noise.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
