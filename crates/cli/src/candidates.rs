//! `tilewright candidates`: run every candidate of a program's synthesis.

use std::process::ExitCode;

use comfy_table::{Table, presets};
use serde_json::json;
use tilewright::candidates::{CandidatesError, Measured, candidates, rank_correlation, regret};
use tilewright::check::CheckOptions;
use tilewright::runtime::DeviceKind;

use crate::args::CandidatesArgs;
use crate::data;
use crate::load::{load, timing};
use crate::messages::{Failure, print};
use crate::outcome::refused;
use crate::target::target;

/// Runs every candidate and prints what it was estimated at and what it took.
pub fn list(args: &CandidatesArgs) -> Result<ExitCode, Failure> {
    let mut loaded = load(&args.program)?;
    let given = data::inputs(&args.inputs.input)?;
    let program = loaded.tile_program("candidates")?.clone();
    data::take_sizes(&mut loaded, &program, &args.program.params, &given);
    let device = crate::device::open(&args.device)?;
    let target = target(&args.program, std::slice::from_ref(&loaded), device.as_ref())?;
    target.say();
    let mut options = loaded.options(target.arch);
    options.timing = timing(&args.program, target.arch)?;
    // Says what is wrong with the program, if anything is.
    let kernel = loaded.compile(&options)?;
    data::check_names(&[&kernel], &given, &[])?;
    let inputs = CheckOptions {
        inputs: given,
        sizes: loaded.sizes.clone(),
        scalars: loaded.scalars.clone(),
        seed: args.inputs.seed,
        force: args.force,
        ..CheckOptions::default()
    };
    let mut all =
        candidates(&program, &options, device.as_ref(), &inputs, args.rounds).map_err(|e| match e {
            CandidatesError::Check(e) => refused(&loaded, &kernel, &inputs, &e, None),
            CandidatesError::Compile(d) => Failure::refused(&loaded.sources, &d),
        })?;
    all.sort_by(|a, b| a.time.total_cmp(&b.time));
    let right = all.iter().all(|m| m.agrees);
    let text = if args.json {
        format!("{:#}\n", as_json(&all, device.kind()))
    } else {
        table(&all, device.kind(), &device.name())
    };
    print(&text)?;
    Ok(if right { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn as_json(all: &[Measured], kind: DeviceKind) -> serde_json::Value {
    json!({
        "unit": if kind == DeviceKind::Sim { "cycles" } else { "milliseconds" },
        "regret": regret(all),
        "rank_correlation": rank_correlation(all),
        "candidates": all
            .iter()
            .map(|m| json!({ "candidate": m.note, "time": m.time, "agrees": m.agrees, "spilled_bytes": m.spilled }))
            .collect::<Vec<_>>(),
    })
}

fn table(all: &[Measured], kind: DeviceKind, device: &str) -> String {
    let unit = if kind == DeviceKind::Sim { "cycles" } else { "ms" };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "no.", unit, "of the best", "estimate", "arrangement and instructions"]);
    let best = all.first().map_or(f64::NAN, |m| m.time);
    for m in all {
        let mut what = m.note.arrangements.join("; ");
        let mut last: Option<(&str, usize)> = None;
        // Equal instructions in a row are written once.
        let mut runs: Vec<(String, usize)> = Vec::new();
        for name in &m.note.instructions {
            match (&mut last, runs.last_mut()) {
                (Some((before, _)), Some(run)) if before == name => run.1 += 1,
                _ => runs.push((name.clone(), 1)),
            }
            last = Some((name, 0));
        }
        let runs: Vec<String> =
            runs.iter().map(|(n, k)| if *k > 1 { format!("{k} × {n}") } else { n.clone() }).collect();
        what.push_str(&format!("\n{}", runs.join(", ")));
        if !m.agrees {
            what.push_str("\nWRONG: differs from the first candidate");
        }
        if m.spilled.is_some_and(|bytes| bytes > 0) {
            what.push_str(&format!("\nspills {} bytes", m.spilled.unwrap_or(0)));
        }
        table.add_row([
            if m.note.chosen { "*".to_string() } else { String::new() },
            m.note.number.to_string(),
            if kind == DeviceKind::Sim { format!("{:.0}", m.time) } else { format!("{:.4}", m.time) },
            format!("{:.3}", m.time / best),
            m.note.estimate.as_ref().map_or(String::new(), |e| e.cycles.to_string()),
            what,
        ]);
    }
    let correlation = rank_correlation(all);
    let correlation = if correlation.is_finite() {
        format!("; rank correlation of estimates and times {correlation:.2}")
    } else {
        String::new()
    };
    format!(
        "{table}\n{} on {device}; the chosen one takes {:.3} times as long as the fastest{correlation}\n",
        if all.len() == 1 { "1 candidate".to_string() } else { format!("{} candidates", all.len()) },
        regret(all),
    )
}
