//! Outcomes of checked launches as messages and as JSON, for one seed of the simulator or many.

use std::collections::BTreeMap;

use serde_json::json;
use tilewright::check::{CheckError, CheckOptions, Comparison, Outcome};
use tilewright::compiler::Kernel;
use tilewright::excerpts::{Severity, as_json};
use tilewright::findings::{refusal, wrong_results};
use tilewright::printed::PrintedRecord;
use tilewright::runtime::{DeviceKind, sizes_of};
use tilewright::sim::Config;
use tilewright::tile::{Code, Diagnostic, Diagnostics, lint};

use crate::args::{Checks, RunArgs};
use crate::load::Loaded;
use crate::messages::{Failure, render, render_one};
use crate::places::Places;

/// Findings that are printed; of the others, the number.
const LIMIT: usize = 10;

/// Configuration of the simulator for the checks that are asked for, with a seed.
pub fn config(args: &RunArgs, seed: u64) -> Config {
    let config = Config { seed, ..Config::default() };
    match args.checks {
        Checks::Off => config.unchecked(),
        Checks::Races => config.only_races(),
        Checks::All => config,
    }
}

/// The messages of a check that did not begin, or failed, beside the statements that they are about; with the lints of the program, which often
/// show why roles wait for ever.
pub fn refused(
    loaded: &Loaded,
    kernel: &Kernel,
    options: &CheckOptions,
    e: &CheckError,
    proposed: Option<String>,
) -> Failure {
    let sizes = sizes_of(kernel, &options.sizes);
    let mut messages = refusal(kernel, &sizes, e, options.detail);
    if let (true, Some(first)) = (e.is_estimate(), messages.first_mut()) {
        first.help = Some(match proposed {
            Some(options) => format!("for a run of some seconds: `{options}`; `--force` begins all the same"),
            None => "choose smaller sizes, or begin all the same with `--force`".to_string(),
        });
    }
    let waits = messages.first().is_some_and(|first| first.code == Code::Deadlock);
    let failure = Failure::refused(&loaded.sources, &Diagnostics(messages));
    let lints = if waits { lint(&kernel.verified, &sizes) } else { Vec::new() };
    let lints = lints.iter().map(|w| format!("\n\n{}", render_one(&loaded.sources, w, Severity::Warning)));
    Failure { text: failure.text + &lints.collect::<String>(), ..failure }
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
            "zeros": c.zeros,
            "nans": c.nans,
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

/// Findings of the simulator, then outputs with wrong elements.
fn found(kernel: &Kernel, outcome: &Outcome, device: DeviceKind) -> Vec<Diagnostic> {
    let explained = !outcome.findings.is_empty();
    let wrong = wrong_results(kernel, &outcome.comparisons, device, explained);
    outcome.findings.iter().cloned().chain(wrong).collect()
}

/// The same as JSON.
pub fn findings_as_json(
    loaded: &Loaded,
    kernel: &Kernel,
    outcome: &Outcome,
    device: DeviceKind,
) -> Vec<serde_json::Value> {
    found(kernel, outcome, device)
        .iter()
        .map(|finding| as_json(&loaded.sources, finding, Severity::Error))
        .collect()
}

/// Findings of the simulator and wrong elements of outputs, as messages beside the statements that they are about.
pub fn mistakes(loaded: &Loaded, kernel: &Kernel, outcome: &Outcome, device: DeviceKind) -> String {
    let mut all = found(kernel, outcome, device);
    let more = all.len().saturating_sub(LIMIT);
    all.truncate(LIMIT);
    let mut text =
        all.into_iter().map(|finding| render(&loaded.sources, &finding.into()) + "\n").collect::<String>();
    if more > 0 {
        text.push_str(&format!("and {more} more findings (--json lists all)\n"));
    }
    text
}

/// Records of the program's prints, up to a number of lines.
pub fn prints(loaded: &Loaded, outcome: &Outcome, limit: usize) -> String {
    let places = Places::new(loaded);
    let (mut text, mut lines) = (String::new(), 0);
    let mut left_out = outcome.printed.left_out;
    for record in &outcome.printed.records {
        let at = record.span.text().and_then(|span| places.at(span.start));
        let at = at.map_or(String::new(), |(path, line)| format!("{path}:{line}: "));
        let shown = format!("{at}{record}\n");
        lines += shown.lines().count();
        if lines <= limit {
            text.push_str(&shown);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        text.push_str(&format!("{left_out} prints are left out (--print-lines {limit})\n"));
    }
    text
}

/// The same with all lines that were kept.
pub fn prints_as_json(loaded: &Loaded, outcome: &Outcome) -> serde_json::Value {
    let places = Places::new(loaded);
    let as_json = |record: &PrintedRecord| {
        let counters: BTreeMap<&String, &i64> =
            record.counters.iter().zip(&record.record.iteration).collect();
        json!({
            "text": record.text,
            "line": record.span.text().and_then(|span| places.line(span.start)),
            "block": record.record.block,
            "iteration": counters,
            "items": record.record.items.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "by": record.by.to_string(),
        })
    };
    let printed = &outcome.printed;
    json!({ "records": printed.records.iter().map(as_json).collect::<Vec<_>>(), "left_out": printed.left_out })
}

/// Warnings beside the lines that they are about; as errors where they are denied.
pub fn warnings(args: &RunArgs, loaded: &Loaded, warnings: &[Diagnostic]) -> String {
    let level = if args.denies_warnings() { Severity::Error } else { Severity::Warning };
    warnings.iter().map(|w| render_one(&loaded.sources, w, level) + "\n").collect()
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
