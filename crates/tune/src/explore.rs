//! The choice of what to measure next: the space by its estimates, corrected by what was measured, and values of single parameters around
//! the fastest.

use std::collections::{HashMap, HashSet};

use tilewright_kernels::Point;

use crate::correction::{Correction, Place};
use crate::error::TuneError;
use crate::problem::{Candidate, Problem, Target};
use crate::report::{Entry, Source};
use crate::search::Settings;

/// A second candidate of one family counts as slower by this part, a third by twice as much, and so on.
const FAMILY_PENALTY: f64 = 0.03;
/// Improvements over the fastest by less are noise.
pub(crate) const GAIN: f64 = 0.003;
/// The second is a base too if it is slower by less than this part and of another family.
const AS_FAST: f64 = 0.005;
/// Candidates that are measured beside the fastest in one contest.
const BATCH: usize = 2;
/// Standard deviations by which a candidate may turn out faster than expected.
const HOPE: f64 = 1.5;
/// Candidates that are compiled for each that may be measured, at most: others are refused.
const COMPILED: usize = 3;

/// The part of a search that chooses candidates.
pub(crate) struct Explorer<'a> {
    problem: &'a Problem,
    target: &'a Target,
    settings: &'a Settings,
    points: Vec<(Place, Point)>,
}

impl<'a> Explorer<'a> {
    /// For the points of a problem's space, by estimate.
    pub fn new(
        problem: &'a Problem,
        target: &'a Target,
        settings: &'a Settings,
        points: Vec<Point>,
    ) -> Result<Self, TuneError> {
        let mut explorer = Explorer { problem, target, settings, points: Vec::new() };
        for point in points {
            let place = explorer.place(&Candidate::from(point.parameters.clone()))?;
            explorer.points.push((place, point));
        }
        Ok(explorer)
    }

    /// A configuration with its estimate, for comparison with others.
    fn place(&self, candidate: &Candidate) -> Result<Place, TuneError> {
        let estimate =
            (self.problem.tuning().estimate)(self.target.chip(), self.problem.sizes(), &candidate.given())?;
        Ok(Place::new(candidate.clone(), self.problem.sizes(), &estimate))
    }

    /// The candidates of the first contest: the best estimates of several families.
    pub fn first(&self) -> Vec<Entry> {
        let count = self.settings.top.clamp(1, self.settings.measurements.max(1));
        diverse(&self.points, self.problem.tuning().family, count)
            .into_iter()
            .map(|rank| self.entry(rank))
            .collect()
    }

    fn entry(&self, rank: usize) -> Entry {
        let point = &self.points[rank].1;
        Entry::new(point.parameters.clone().into(), point.estimate, Some(rank), Source::Space)
    }

    /// The candidates that may be faster than the fastest so far, the most promising first: few, for they are measured before others are
    /// chosen. None are left when the limit of measurements is reached, or what is not measured yet is slower beyond the noise.
    ///
    /// # Errors
    ///
    /// [`TuneError::Config`] from the operator.
    pub fn next(&self, entries: &[Entry]) -> Result<Vec<Entry>, TuneError> {
        let mut measured: Vec<(f64, &Entry)> =
            entries.iter().filter_map(|entry| Some((entry.median()?, entry))).collect();
        measured.sort_by(|a, b| a.0.total_cmp(&b.0));
        let left = self.settings.measurements.saturating_sub(measured.len());
        let Some((best, fastest)) = measured.first().copied() else { return Ok(Vec::new()) };
        if left == 0 || entries.len() >= COMPILED * self.settings.measurements {
            return Ok(Vec::new());
        }
        let sample = |(time, entry): &(f64, &Entry)| {
            Ok::<_, TuneError>((self.place(&entry.candidate)?, (time / entry.estimate).ln()))
        };
        let estimated = measured.iter().filter(|(_, entry)| entry.estimate.is_finite());
        let samples = estimated.map(sample).collect::<Result<_, _>>()?;
        let mut correction = Correction::new(self.problem.tuning(), samples);
        let second = measured[1..].iter().find(|(time, entry)| {
            *time <= best * (1.0 + AS_FAST)
                && self.family(&entry.candidate) != self.family(&fastest.candidate)
        });
        let known: HashSet<&Candidate> = entries.iter().map(|entry| &entry.candidate).collect();
        let mut pool: Vec<(Place, Entry)> = Vec::new();
        let mut seen: HashSet<Candidate> = HashSet::new();
        for base in [Some(fastest), second.map(|(_, entry)| *entry)].into_iter().flatten() {
            for entry in self.neighbours(&base.candidate)? {
                if !known.contains(&entry.candidate) && seen.insert(entry.candidate.clone()) {
                    pool.push((self.place(&entry.candidate)?, entry));
                }
            }
        }
        for (rank, (place, point)) in self.points.iter().enumerate() {
            let candidate = Candidate::from(point.parameters.clone());
            if !known.contains(&candidate) && !seen.contains(&candidate) {
                pool.push((place.clone(), self.entry(rank)));
            }
        }
        let mut chosen = Vec::new();
        while chosen.len() < BATCH.min(left) {
            let hoped = pool.iter().enumerate().map(|(i, (place, entry))| {
                let corrected = correction.at(place);
                (entry.estimate.ln() + corrected.log - HOPE * corrected.deviation, i)
            });
            let Some((time, i)) = hoped.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
            if time > (best * (1.0 - GAIN)).ln() {
                break;
            }
            let (place, entry) = pool.swap_remove(i);
            // What is expected of it counts as measured, so that the next one is different.
            let expected = correction.at(&place).log;
            correction.push(place, expected);
            chosen.push(entry);
        }
        Ok(chosen)
    }

    /// The values of a candidate's parameters in which families differ.
    fn family<'c>(&self, candidate: &'c Candidate) -> Vec<&'c (String, String)> {
        let family = self.problem.tuning().family;
        candidate.0.iter().filter(|(name, _)| family.contains(&name.as_str())).collect()
    }

    /// The candidates that differ from one in one parameter, as far as the operator accepts them.
    fn neighbours(&self, of: &Candidate) -> Result<Vec<Entry>, TuneError> {
        let (problem, target) = (self.problem, self.target);
        let mut found = Vec::new();
        for (name, values) in problem.tuning().secondary {
            if problem.pinned().value(name).is_some() {
                continue;
            }
            for value in *values {
                let changed = of.with(name, value);
                if (problem.tuning().reject)(target.arch, &changed.given()).is_some() {
                    continue;
                }
                let point = (problem.tuning().point)(target.chip(), problem.sizes(), &changed.given())?;
                let candidate = Candidate::from(point.parameters);
                if candidate != *of {
                    found.push(Entry::new(candidate, point.estimate, None, Source::Refined));
                }
            }
        }
        Ok(found)
    }
}

/// Picks points, which are ordered by estimate: the first, and then always the one with the least estimate, where those of a family from
/// which some were picked count as slower. Returns their places.
fn diverse(points: &[(Place, Point)], family: &[&str], count: usize) -> Vec<usize> {
    let family_of = |point: &Point| -> Vec<(&'static str, String)> {
        point.parameters.iter().filter(|(name, _)| family.contains(name)).cloned().collect()
    };
    let mut families: HashMap<Vec<(&str, String)>, Vec<usize>> = HashMap::new();
    for (rank, (_, point)) in points.iter().enumerate() {
        families.entry(family_of(point)).or_default().push(rank);
    }
    let mut families: Vec<(Vec<usize>, usize)> = families.into_values().map(|ranks| (ranks, 0)).collect();
    families.sort();
    let mut picked = Vec::new();
    while picked.len() < count.min(points.len()) {
        let score = |(ranks, taken): &(Vec<usize>, usize)| {
            let penalty = 1.0 + FAMILY_PENALTY * *taken as f64;
            ranks.get(*taken).map(|rank| points[*rank].1.estimate * penalty)
        };
        let scored = families.iter_mut().filter_map(|f| Some((score(f)?, f)));
        let Some((_, (ranks, taken))) = scored.min_by(|a, b| a.0.total_cmp(&b.0)) else { break };
        picked.push(ranks[*taken]);
        *taken += 1;
    }
    picked
}

#[cfg(test)]
#[path = "explore_tests.rs"]
mod tests;
