//! Outcomes of checked launches as messages and as JSON, for one seed of the simulator or many.

use annotate_snippets::Level;
use serde_json::json;
use tilewright::check::{CheckError, Comparison, Outcome};
use tilewright::sim::Config;
use tilewright::tile::Diagnostic;

use crate::args::{Checks, RunArgs};
use crate::load::Loaded;
use crate::messages::{Failure, error, render, render_one};
use crate::problems::{Places, problems};

/// Configuration of the simulator for the checks that are asked for, with a seed.
pub fn config(args: &RunArgs, seed: u64) -> Config {
    let config = Config { seed, ..Config::default() };
    match args.checks {
        Checks::Off => config.unchecked(),
        Checks::Races => config.only_races(),
        Checks::All => config,
    }
}

/// The message of a check that did not begin, or failed; with the statements that wait, where roles wait for each other for ever.
pub fn refused(loaded: &Loaded, e: CheckError) -> Failure {
    if let CheckError::Interpret(error) = &e
        && let Some(diagnostic) = error.diagnostic()
    {
        return Failure::program(render(&loaded.sources, &diagnostic.into()));
    }
    let forced = if e.is_estimate() { ", or give --force" } else { "" };
    Failure::program(error(format!("{e}{forced}")))
}

/// Comparison of each output with the interpreter's, as JSON.
pub fn comparisons(outcome: &Outcome) -> Vec<serde_json::Value> {
    let finite = |x: f64| if x.is_finite() { json!(x) } else { json!(x.to_string()) };
    let as_json = |c: &Comparison| {
        json!({
            "name": c.name,
            "elements": c.elements,
            "wrong": c.wrong,
            "unbounded": c.unbounded,
            "worst_ratio": c.worst.as_ref().map_or(json!(0.0), |worst| json!(Some(worst.ratio()).filter(|r| r.is_finite()))),
            "worst": c.worst.as_ref().map(|worst| json!({
                "at": worst.at,
                "expected": finite(worst.expected),
                "actual": finite(worst.actual),
                "bound": finite(worst.bound),
                "ratio": finite(worst.ratio()),
            })),
        })
    };
    outcome.comparisons.iter().map(as_json).collect()
}

/// The simulator's reports, one sentence each, with the lines of the statements.
pub fn sentences(loaded: &Loaded, outcome: &Outcome) -> Vec<String> {
    let places = Places::new(loaded);
    let line = |position| places.at(position).map_or(String::new(), |(path, line)| format!("{path}:{line}"));
    outcome.report.sim().map(|sim| sim.problems_at(&line)).unwrap_or_default()
}

/// Wrong elements of outputs, and the simulator's reports, as messages.
pub fn mistakes(loaded: &Loaded, outcome: &Outcome) -> String {
    let mut text = String::new();
    for c in &outcome.comparisons {
        if let (Some(worst), 1..) = (&c.worst, c.wrong) {
            let wrong = format!(
                "output `{}` has {} wrong elements; the worst, {:?}, is {} and should be {} within {:.1e}",
                c.name, c.wrong, worst.at, worst.actual, worst.expected, worst.bound
            );
            text.push_str(&format!("{}\n", error(wrong)));
        }
    }
    if let Some(report) = outcome.report.sim() {
        text.push_str(&problems(&Places::new(loaded), report));
    }
    text
}

/// Warnings beside the lines that they are about; as errors where they are denied.
pub fn warnings(args: &RunArgs, loaded: &Loaded, warnings: &[Diagnostic]) -> String {
    let level = if args.denies_warnings() { Level::ERROR } else { Level::WARNING };
    warnings.iter().map(|w| render_one(&loaded.sources, w, level.clone()) + "\n").collect()
}

/// Warnings with their lines.
pub fn warnings_as_json(loaded: &Loaded, warnings: &[Diagnostic]) -> Vec<serde_json::Value> {
    let places = Places::new(loaded);
    let as_json = |w: &Diagnostic| {
        json!({
            "code": w.code.name(),
            "message": w.message,
            "line": w.span.text().and_then(|span| places.line(span.start)),
            "help": w.help,
        })
    };
    warnings.iter().map(as_json).collect()
}
