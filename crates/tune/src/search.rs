//! The search: the space ranked by estimate, the best few of several families compiled and measured in turns, then those that may be faster
//! by what was measured, a few at a time, and a last contest of those that came furthest.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rayon::prelude::*;
use tilewright_compiler::{Kernel, Options, compile};
use tilewright_kernels::Launch;
use tilewright_runtime::Timing;

use crate::error::TuneError;
use crate::explore::Explorer;
use crate::measurer::{Load, Measurer};
use crate::problem::{Candidate, Problem, Target};
use crate::report::{Entry, Refused, RejectedBy, Report, Seconds, Source, Stop};

/// Limits of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// Configurations of the space that are compiled and measured first.
    pub top: usize,
    /// Configurations that are measured at most.
    pub measurements: usize,
    /// Time for the whole search. What is being compiled or timed when it is over is finished, and a last contest of a few rounds.
    pub budget: Duration,
    /// A configuration drops out of a contest when its best time is slower than the leader's median by this part.
    pub drop: f64,
    /// Turns of a contest: at least and at most.
    pub rounds: [usize; 2],
    /// True if the search goes on after the first contest.
    pub refine: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            top: 8,
            measurements: 20,
            budget: Duration::from_secs(60),
            drop: 0.03,
            rounds: [3, 9],
            refine: true,
        }
    }
}

/// Progress of a search.
#[derive(Clone, PartialEq, Debug)]
pub struct Progress {
    /// Part of the budget that is spent, from 0 to 1.
    pub spent: f64,
    /// Current activity.
    pub doing: String,
}

/// Progress callback.
pub type ProgressFn<'a> = dyn FnMut(Progress) + 'a;

/// Before the least number of rounds is played, a candidate that is slower by this many times the usual part drops out.
const EARLY: f64 = 4.0;
/// The leader is stable when it led for this many rounds.
const STABLE_ROUNDS: usize = 3;
/// The fastest of all contests that meet in the last.
const FINALISTS: usize = 3;
/// The part of the budget in which the first contest and the search after it must end.
const SHARES: [f64; 2] = [0.5, 0.85];

/// Ranks the configurations for a problem by estimate and compiles the best of several families; nothing is measured.
///
/// # Errors
///
/// [`TuneError::Empty`] or [`TuneError::NothingRuns`] if nothing is left.
pub fn rank(
    problem: &Problem,
    target: &Target,
    settings: &Settings,
    watch: &mut ProgressFn<'_>,
) -> Result<Report, TuneError> {
    let mut search = Search::new(problem, target, settings, None, watch);
    search.first()?;
    Ok(search.report(Vec::new(), Stop::Unmeasured, None))
}

/// Searches for the fastest configuration of a problem.
///
/// # Errors
///
/// [`TuneError::Empty`] or [`TuneError::NothingRuns`] if nothing is left; [`TuneError::Device`] if the device fails;
/// [`TuneError::Wrong`] if the fastest computes something else than another.
pub fn search(
    problem: &Problem,
    target: &Target,
    settings: &Settings,
    measurer: &mut dyn Measurer,
    watch: &mut ProgressFn<'_>,
) -> Result<Report, TuneError> {
    let mut search = Search::new(problem, target, settings, Some(measurer), watch);
    let entrants = search.first()?;
    let mut stop = search.contest("first contest", &entrants, settings.rounds[1], SHARES[0])?;
    let mut ranked = search.ranked(&entrants);
    if settings.refine && search.spent() < SHARES[1] {
        stop = search.refine()?;
        // Those that were measured in different contests, and the estimate's first, meet in one.
        let all: Vec<usize> = (0..search.entries.len()).collect();
        let mut last: Vec<usize> = search.ranked(&all).into_iter().take(FINALISTS).collect();
        last.extend(entrants.first().copied().filter(|first| !last.contains(first)));
        search.contest("last contest", &last, settings.rounds[1], 1.0)?;
        ranked = search.ranked(&last);
    }
    let checked = search.check(&ranked)?;
    Ok(search.report(ranked, stop, checked))
}

struct Search<'a, 'w> {
    problem: &'a Problem,
    target: &'a Target,
    settings: &'a Settings,
    measurer: Option<&'a mut dyn Measurer>,
    watch: &'a mut ProgressFn<'w>,
    started: Instant,
    entries: Vec<Entry>,
    known: HashMap<Candidate, usize>,
    explorer: Option<Explorer<'a>>,
    space: usize,
    refused: usize,
    default: Option<usize>,
    /// Seconds of the driver's assembler, from start to end.
    assembling: f64,
    /// Seconds of turns with their rests.
    measuring: f64,
}

impl<'a, 'w> Search<'a, 'w> {
    fn new(
        problem: &'a Problem,
        target: &'a Target,
        settings: &'a Settings,
        measurer: Option<&'a mut dyn Measurer>,
        watch: &'a mut ProgressFn<'w>,
    ) -> Self {
        let (entries, known) = (Vec::new(), HashMap::new());
        let started = Instant::now();
        Search {
            problem,
            target,
            settings,
            measurer,
            watch,
            started,
            entries,
            known,
            explorer: None,
            space: 0,
            refused: 0,
            default: None,
            assembling: 0.0,
            measuring: 0.0,
        }
    }

    fn spent(&self) -> f64 {
        let budget = self.settings.budget.as_secs_f64();
        if budget > 0.0 { (self.started.elapsed().as_secs_f64() / budget).min(1.0) } else { 1.0 }
    }

    fn say(&mut self, doing: impl Into<String>) {
        let spent = self.spent();
        (self.watch)(Progress { spent, doing: doing.into() });
    }

    /// The space, and its best points compiled and loaded; the default too. Returns those that can run, the estimate's first first.
    fn first(&mut self) -> Result<Vec<usize>, TuneError> {
        let (problem, target) = (self.problem, self.target);
        self.say("ranking configurations by estimate");
        let space = (problem.tuning().space)(target.chip(), problem.sizes(), &problem.pinned().given())?;
        (self.space, self.refused) = (space.points.len(), space.refused);
        let explorer = Explorer::new(problem, target, self.settings, space.points)?;
        let mut wanted = explorer.first();
        self.explorer = Some(explorer);
        let pinned = problem.pinned().given();
        let room = self.measurer.is_none() || self.settings.measurements > 1;
        let default = if room && (problem.tuning().reject)(target.arch, &pinned).is_none() {
            let point = (problem.tuning().point)(target.chip(), problem.sizes(), &pinned)?;
            let candidate = Candidate::from(point.parameters);
            if !wanted.iter().any(|other| other.candidate == candidate) {
                wanted.truncate(self.settings.measurements.max(2) - 1);
                wanted.push(Entry::new(candidate.clone(), point.estimate, None, Source::Default));
            }
            Some(candidate)
        } else {
            None
        };
        if wanted.is_empty() {
            return Err(TuneError::Empty {
                operator: problem.operator().name,
                problem: problem.to_string(),
                arch: target.arch.to_string(),
                refused: self.refused,
                because: (problem.tuning().reject)(target.arch, &pinned)
                    .map(|reason| format!("; the defaults do not either: {reason}"))
                    .unwrap_or_default(),
            });
        }
        let tried = wanted.len();
        let able = self.add(wanted)?;
        self.default = default.and_then(|d| self.known.get(&d).copied()).filter(|d| able.contains(d));
        if able.is_empty() {
            let reasons = self.entries.iter().filter_map(|e| e.refused.as_ref());
            let reason = reasons.map(|r| r.reason.clone()).next().unwrap_or_default();
            return Err(TuneError::NothingRuns { problem: problem.to_string(), tried, reason });
        }
        Ok(able)
    }

    /// Compiles and loads candidates that are not known yet; returns those of all that can run.
    fn add(&mut self, wanted: Vec<Entry>) -> Result<Vec<usize>, TuneError> {
        let mut ids = Vec::new();
        let mut new = Vec::new();
        for entry in wanted {
            let id = *self.known.entry(entry.candidate.clone()).or_insert_with(|| {
                let id = self.entries.len();
                self.entries.push(entry);
                new.push(id);
                id
            });
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        if !new.is_empty() {
            self.say(format!("compiling {} configurations", new.len()));
        }
        let (problem, target, entries) = (self.problem, self.target, &self.entries);
        let compiled: Vec<(usize, f64, Compiled)> = new
            .into_par_iter()
            .map(|id| {
                let started = Instant::now();
                let kernels = compiled(problem, target, &entries[id].candidate);
                (id, started.elapsed().as_secs_f64(), kernels)
            })
            .collect();
        let started = Instant::now();
        let able = compiled.iter().filter_map(|(.., kernels)| kernels.as_ref().ok());
        let all: Vec<&Kernel> = able.flat_map(|(kernels, _)| kernels).collect();
        if self.measurer.is_some() && !all.is_empty() {
            self.say(format!("assembling {} kernels", all.len()));
        }
        if let Some(measurer) = &mut self.measurer {
            measurer.prefetch(&all);
        }
        for (id, seconds, kernels) in compiled {
            self.entries[id].compiler_seconds = seconds;
            let load = match (kernels, &mut self.measurer) {
                (Err(reason), _) => Err(Refused { by: RejectedBy::Compiler, reason }),
                (Ok(_), None) => Ok(Load::Ready),
                (Ok((kernels, launch)), Some(measurer)) => Ok(measurer.load(id, kernels, &launch)?),
            };
            self.entries[id].refused = match load {
                Ok(Load::Ready) => None,
                Ok(Load::Refused(reason)) => Some(Refused { by: RejectedBy::Assembler, reason }),
                Err(refused) => Some(refused),
            };
        }
        if self.measurer.is_some() {
            self.assembling += started.elapsed().as_secs_f64();
        }
        ids.retain(|id| self.entries[*id].refused.is_none());
        Ok(ids)
    }

    /// Gives every candidate a turn in each round, until the leader is stable, all others dropped out, or the part of the budget is
    /// spent; the least number of rounds is played in any case. Times are those of this contest.
    fn contest(
        &mut self,
        name: &str,
        entrants: &[usize],
        most: usize,
        share: f64,
    ) -> Result<Stop, TuneError> {
        let started = Instant::now();
        let least = self.settings.rounds[0].max(1);
        for id in entrants {
            self.entries[*id].times.clear();
        }
        let mut alive = entrants.to_vec();
        let mut leaders: Vec<usize> = Vec::new();
        let mut stop = Stop::Rounds;
        for round in 0..most.max(least) {
            // The other way round every second time: a place in the round is no advantage.
            if round > 0 {
                alive.reverse();
            }
            for id in alive.clone() {
                let Some(measurer) = &mut self.measurer else { return Ok(Stop::Unmeasured) };
                let time = measurer.time(id)?;
                self.entries[id].times.push(time);
            }
            let leader = self.ranked(&alive)[0];
            let time = self.entries[leader].median().unwrap_or(f64::INFINITY);
            leaders.push(leader);
            self.say(format!(
                "{name}, round {}: {} left, {time:.1} µs by {}",
                round + 1,
                alive.len(),
                shown(&self.entries[leader].candidate)
            ));
            let early = round + 1 < least;
            let part = if early { EARLY * self.settings.drop } else { self.settings.drop };
            let (limit, entries) = (time * (1.0 + part), &self.entries);
            alive.retain(|id| entries[*id].best().is_none_or(|best| best <= limit));
            if early {
                continue;
            }
            let stable = leaders.len() > STABLE_ROUNDS
                && leaders[leaders.len() - STABLE_ROUNDS..].iter().all(|l| *l == leader);
            if alive.len() == 1 || stable {
                stop = Stop::Stable;
                break;
            }
            if self.spent() >= share {
                stop = Stop::Budget;
                break;
            }
        }
        self.measuring += started.elapsed().as_secs_f64();
        Ok(stop)
    }

    /// Those of these candidates that were measured, the fastest first.
    fn ranked(&self, ids: &[usize]) -> Vec<usize> {
        let mut ranked: Vec<(f64, usize)> =
            ids.iter().filter_map(|id| Some((self.entries[*id].median()?, *id))).collect();
        ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        ranked.into_iter().map(|(_, id)| id).collect()
    }

    /// Measures what may be faster than the fastest, a few candidates beside it at a time, until nothing may or the limit is reached.
    fn refine(&mut self) -> Result<Stop, TuneError> {
        for number in 1.. {
            if self.spent() >= SHARES[1] {
                return Ok(Stop::Budget);
            }
            let all: Vec<usize> = (0..self.entries.len()).collect();
            let Some(best) = self.ranked(&all).first().copied() else { break };
            let Some(explorer) = &self.explorer else { break };
            let wanted = explorer.next(&self.entries)?;
            if wanted.is_empty() {
                break;
            }
            let able = self.add(wanted)?;
            if able.is_empty() {
                continue;
            }
            let entrants: Vec<usize> = [best].into_iter().chain(able).collect();
            let most = self.settings.rounds[0] + 2;
            self.contest(&format!("contest {}", number + 1), &entrants, most, SHARES[1])?;
        }
        let measured = self.entries.iter().filter(|entry| entry.median().is_some()).count();
        Ok(if measured < self.settings.measurements { Stop::Stable } else { Stop::Measurements })
    }

    /// Compares the result of the fastest with that of the default, or of another if the default is the fastest or cannot run; returns which.
    fn check(&mut self, ranked: &[usize]) -> Result<Option<usize>, TuneError> {
        let Some(winner) = ranked.first().copied() else { return Ok(None) };
        let others = ranked.iter().copied().chain(0..self.entries.len());
        let able = |id: &usize| *id != winner && self.entries[*id].refused.is_none();
        let other = self.default.into_iter().chain(others).find(able);
        let Some(other) = other else { return Ok(None) };
        self.say("comparing results");
        let Some(measurer) = &mut self.measurer else { return Ok(None) };
        if let Some(difference) = measurer.difference(winner, other)? {
            return Err(TuneError::Wrong {
                problem: self.problem.to_string(),
                winner: shown(&self.entries[winner].candidate),
                other: shown(&self.entries[other].candidate),
                difference,
            });
        }
        Ok(Some(other))
    }

    fn report(self, finalists: Vec<usize>, stop: Stop, checked: Option<usize>) -> Report {
        // The last contest's come first, then all others by their own times, then by estimate.
        let mut order = finalists.clone();
        let all: Vec<usize> = (0..self.entries.len()).collect();
        order.extend(self.ranked(&all).into_iter().filter(|id| !finalists.contains(id)));
        let mut rest: Vec<usize> = all.into_iter().filter(|id| !order.contains(id)).collect();
        rest.sort_by(|a, b| {
            let of = |id: &usize| (self.entries[*id].refused.is_some(), self.entries[*id].estimate);
            let ((ra, ea), (rb, eb)) = (of(a), of(b));
            ra.cmp(&rb).then(ea.total_cmp(&eb))
        });
        order.extend(rest);
        let checked_against = checked.map(|id| self.entries[id].candidate.to_string());
        Report {
            operator: self.problem.operator().name,
            pinned: self.problem.pinned().to_string(),
            sizes: self.problem.sizes().clone(),
            class: self.problem.class(),
            device: self.target.device.clone(),
            arch: self.target.arch.to_string(),
            conditions: self.measurer.as_ref().map(|measurer| measurer.conditions()),
            space: self.space,
            refused_by_rules: self.refused,
            measurements: self.settings.measurements,
            stop,
            checked_against,
            seconds: Seconds {
                compiler: self.entries.iter().map(|e| e.compiler_seconds).sum(),
                assembler: self.assembling,
                measuring: self.measuring,
            },
            wall_seconds: self.started.elapsed().as_secs_f64(),
            finalists: finalists.len(),
            entries: {
                let mut entries: BTreeMap<usize, Entry> = self.entries.into_iter().enumerate().collect();
                order.iter().filter_map(|id| entries.remove(id)).collect()
            },
        }
    }
}

/// A candidate for people.
fn shown(candidate: &Candidate) -> String {
    if candidate.0.is_empty() { "the defaults".to_string() } else { candidate.to_string() }
}

/// The kernels of a candidate with their launch, or why there are none.
pub(crate) type Compiled = Result<(Vec<Kernel>, Launch), String>;

/// The kernels of a candidate for the problem's sizes with their launch, or why there are none.
pub(crate) fn compiled(problem: &Problem, target: &Target, candidate: &Candidate) -> Compiled {
    let programs = candidate.programs(problem.operator()).map_err(|e| e.to_string())?;
    let launch = (problem.tuning().launch)(target.arch, problem.sizes(), &candidate.given())
        .map_err(|e| e.to_string())?;
    let sizes: Vec<(&str, i64)> = launch.sizes.iter().map(|(name, v)| (name.as_str(), *v)).collect();
    let one = |program| {
        compile(program, &Options::new(target.arch).for_own_sizes(program, &sizes)).map_err(|d| d.to_string())
    };
    Ok((programs.iter().map(one).collect::<Result<_, String>>()?, launch))
}

impl Entry {
    /// The median of its turns in its last contest, in microseconds.
    pub fn median(&self) -> Option<f64> {
        Timing::of(self.times.clone()).map(|t| t.median_ms)
    }

    /// The fastest of these turns.
    pub fn best(&self) -> Option<f64> {
        self.times.iter().copied().min_by(f64::total_cmp)
    }
}
