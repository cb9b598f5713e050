//! The model of a kernel's time fitted to a device: a fixed list of products and configurations is timed, and the model's numbers are moved so
//! that its estimates are the times.

mod experiments;
mod solve;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tilewright_kernels::Chip;
use tilewright_kernels::model::{Model, Numbers, Quantity};
use tilewright_machine::Arch;

use crate::error::TuneError;
use crate::problem::{Candidate, Problem};

pub use experiments::{EXPERIMENTS, Experiment, experiments, timed};

/// The time of a configuration on a device.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Timed {
    /// The device.
    pub device: String,
    /// The operator.
    pub operator: String,
    /// The sizes.
    pub sizes: BTreeMap<String, i64>,
    /// The parameters that differ from the defaults, as text.
    pub configuration: String,
    /// The time.
    pub microseconds: f64,
}

/// Standard deviations of the logarithm of a time, of a number of the model around the one where the fit begins, and of a factor.
const OF_TIME: f64 = 0.03;
const OF_NUMBER: f64 = 0.4;
const OF_FACTOR: f64 = 0.2;

/// The logarithm by which a number may differ from the one where the fit begins: three times as much, or a third.
const FARTHEST: f64 = 1.1;

/// The part of its first standard deviation that a number must keep at most, to count as observed.
const OBSERVED: f64 = 0.75;

/// Digits of a fitted number.
const DIGITS: i32 = 4;

/// Residuals of the times of one group: the root of the mean square of the logarithm of measured over estimated time.
#[derive(Clone, PartialEq, Debug)]
pub struct Residual {
    /// The operator with what its configurations have in common.
    pub group: String,
    /// Times.
    pub count: usize,
    /// By the model where the fit began.
    pub before: f64,
    /// By the fitted model.
    pub after: f64,
}

/// A number of a fitted model.
#[derive(Clone, PartialEq, Debug)]
pub struct Fitted {
    /// The number.
    pub name: &'static str,
    /// The value where the fit began.
    pub before: f64,
    /// The fitted value.
    pub after: f64,
    /// The standard deviation of its logarithm.
    pub deviation: f64,
    /// False if the times say nothing of it: the value is then the one before.
    pub observed: bool,
}

/// A fitted model.
#[derive(Clone, PartialEq, Debug)]
pub struct Fit {
    /// The model.
    pub model: Model,
    /// Its numbers.
    pub numbers: Vec<Fitted>,
    /// Its residuals by group, and of all.
    pub residuals: Vec<Residual>,
}

/// A time, with what estimates it.
struct Point {
    problem: Problem,
    candidate: Candidate,
    group: String,
    log: f64,
}

impl Point {
    fn of(timed: &Timed) -> Result<Self, TuneError> {
        let candidate = Candidate::parse(&timed.configuration)?;
        let problem =
            Problem::new(&timed.operator, &timed.sizes, &experiments::meaning(&timed.operator, &candidate)?)?;
        let group = group(problem.operator().name, &candidate);
        Ok(Point { problem, candidate, group, log: timed.microseconds.ln() })
    }

    /// The logarithm of the estimate.
    fn estimate(&self, arch: Arch, model: &Model) -> Result<f64, TuneError> {
        let (tuning, chip) = (self.problem.tuning(), Chip { arch, model });
        let estimate = (tuning.estimate)(chip, self.problem.sizes(), &self.candidate.given())?;
        Ok(estimate.microseconds.ln())
    }
}

/// The group of a configuration in reports: the first of the parameters that decide about its form.
fn group(operator: &str, candidate: &Candidate) -> String {
    const DECIDES: [&str; 6] = ["form", "schedule", "split", "pack", "cluster", "swap"];
    let first = DECIDES.into_iter().find_map(|name| Some((name, candidate.value(name)?)));
    match first {
        Some((name @ ("form" | "schedule"), value)) => format!("{operator} {name}={value}"),
        Some((name, _)) => format!("{operator} {name}"),
        None => operator.to_string(),
    }
}

/// Fits the numbers of a model to the times of a device, beginning with those of another model.
///
/// The sum of squares of the logarithms of measured over estimated times is least, where those that are far off count less (Huber, Robust
/// Estimation of a Location Parameter, 1964), and numbers that the times do not decide stay near where they begin.
///
/// # Errors
///
/// [`TuneError::Timings`] for no times, or those of several devices; what is wrong with a configuration.
pub fn fit(timed: &[Timed], arch: Arch, begin: &Model) -> Result<Fit, TuneError> {
    let Some(first) = timed.first() else {
        return Err(TuneError::Timings { reason: "there are none".to_string() });
    };
    if let Some(other) = timed.iter().find(|other| other.device != first.device) {
        let reason = format!("they are of {} and {}: fit a model to each", first.device, other.device);
        return Err(TuneError::Timings { reason });
    }
    if let Some(wrong) = timed.iter().find(|t| !(t.microseconds.is_finite() && t.microseconds > 0.0)) {
        let reason = format!("`{}` took {} µs, which is no time", wrong.configuration, wrong.microseconds);
        return Err(TuneError::Timings { reason });
    }
    let points = timed.iter().map(Point::of).collect::<Result<Vec<_>, _>>()?;
    let moved = |logs: &[f64]| -> Numbers {
        let mut numbers = *begin.numbers();
        for (number, log) in Numbers::ALL.iter().zip(logs) {
            number.set(&mut numbers, number.of(begin.numbers()) * log.exp());
        }
        numbers
    };
    let residuals = |logs: &[f64]| -> Result<Vec<f64>, TuneError> {
        let model = begin.clone().with_numbers(moved(logs));
        points.iter().map(|point| Ok((point.estimate(arch, &model)? - point.log) / OF_TIME)).collect()
    };
    let spread: Vec<f64> = Numbers::ALL
        .iter()
        .map(|number| if number.unit == Quantity::Factor { OF_FACTOR } else { OF_NUMBER })
        .collect();
    let free = solve::least_squares(&spread, FARTHEST, residuals)?;
    let observed: Vec<bool> = free
        .deviations
        .iter()
        .zip(&spread)
        .map(|(deviation, spread)| *deviation < OBSERVED * spread)
        .collect();
    // Again without those that the times do not decide: what the others made up for them they no longer do.
    let held = spread.iter().zip(&observed).map(|(spread, observed)| if *observed { *spread } else { 0.0 });
    let solved = solve::least_squares(&held.collect::<Vec<_>>(), FARTHEST, residuals)?;
    let mut model = begin.clone().for_device(&first.device);
    let mut numbers = Vec::new();
    for (place, number) in Numbers::ALL.iter().enumerate() {
        let observed = observed[place];
        let deviation = if observed { solved.deviations[place] } else { free.deviations[place] };
        let before = number.of(begin.numbers());
        let after = if observed { rounded(before * solved.values[place].exp()) } else { before };
        let source = if observed {
            format!("fitted to {} timings, ±{:.0} %", timed.len(), 100.0 * deviation)
        } else {
            format!("that of {}: {} timings do not decide it", begin.device(), timed.len())
        };
        model = model.with(number, after, &source);
        numbers.push(Fitted { name: number.name, before, after, deviation, observed });
    }
    let mut groups: BTreeMap<&str, Vec<[f64; 2]>> = BTreeMap::new();
    for point in &points {
        let off = |model: &Model| Ok::<f64, TuneError>(point.estimate(arch, model)? - point.log);
        let both = [off(begin)?, off(&model)?];
        groups.entry(&point.group).or_default().push(both);
        groups.entry("all").or_default().push(both);
    }
    let residual = |(group, off): (&str, Vec<[f64; 2]>)| {
        let root = |i: usize| (off.iter().map(|both| both[i].powi(2)).sum::<f64>() / off.len() as f64).sqrt();
        Residual { group: group.to_string(), count: off.len(), before: root(0), after: root(1) }
    };
    let mut residuals: Vec<Residual> = groups.into_iter().map(residual).collect();
    residuals.sort_by(|a, b| (a.group == "all").cmp(&(b.group == "all")).then(a.group.cmp(&b.group)));
    Ok(Fit { model, numbers, residuals })
}

/// To so many digits.
fn rounded(value: f64) -> f64 {
    let scale = 10f64.powi(DIGITS - 1 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.residuals.iter().map(|residual| residual.group.len()).max().unwrap_or(0).max(5);
        writeln!(f, "{:<width$}  timings  off before    now", "group")?;
        for Residual { group, count, before, after } in &self.residuals {
            let percent = |x: f64| format!("{:.1} %", 100.0 * x);
            writeln!(f, "{group:<width$}  {count:>7}  {:>10} {:>6}", percent(*before), percent(*after))?;
        }
        let moved = self.numbers.iter().filter(|number| number.observed);
        writeln!(f, "\n{:<18}  {:>9}  {:>9}  deviation", "number", "before", "now")?;
        for Fitted { name, before, after, deviation, .. } in moved {
            writeln!(f, "{name:<18}  {before:>9}  {after:>9}  {:>7.0} %", 100.0 * deviation)?;
        }
        let others: Vec<&str> =
            self.numbers.iter().filter(|number| !number.observed).map(|number| number.name).collect();
        if !others.is_empty() {
            writeln!(f, "as before, for the timings do not decide them: {}", others.join(", "))?;
        }
        Ok(())
    }
}

/// Reads timings, one a line.
///
/// # Errors
///
/// [`TuneError::Store`] for a file that cannot be read; [`TuneError::RecordFile`] for a line that is no timing.
pub fn read_timings(path: &Path) -> Result<Vec<Timed>, TuneError> {
    let text = std::fs::read_to_string(path).map_err(TuneError::store("read", path))?;
    let lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let timing = |(line, text): (usize, &str)| {
        serde_json::from_str(text).map_err(|error| TuneError::RecordFile {
            path: path.to_path_buf(),
            line,
            reason: format!("it is no timing ({error})"),
        })
    };
    lines.map(timing).collect()
}

/// Timings as text, one a line.
pub fn timings_text(timed: &[Timed]) -> String {
    timed.iter().filter_map(|timed| Some(serde_json::to_string(timed).ok()? + "\n")).collect()
}

#[cfg(test)]
mod tests;
