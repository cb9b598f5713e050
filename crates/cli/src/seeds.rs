//! `tilewright run --seeds`: one launch for each seed of the simulator.

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde_json::json;
use tilewright::check::{CheckError, CheckOptions, Outcome, check_against, watched};
use tilewright::compiler::Kernel;
use tilewright::runtime::{DeviceKind, SimDevice};
use tilewright::tile::Code;

use crate::args::RunArgs;
use crate::load::Loaded;
use crate::messages::{Failure, print, quoted};
use crate::outcome::{comparisons, config, findings_as_json, mistakes, refused, warnings, warnings_as_json};
use crate::patience::proposal;

/// Failures whose details are kept, and seeds that are listed by number.
const LIMIT: usize = 20;

/// A launch that went wrong.
struct Failed {
    seed: u64,
    /// Of the first failures.
    result: Option<Result<Outcome, CheckError>>,
}

/// Runs `count` seeds, and says which fail and how to see one fail again.
pub fn run(
    args: &RunArgs,
    loaded: &Loaded,
    kernel: &Kernel,
    options: &CheckOptions,
    count: u64,
) -> Result<ExitCode, Failure> {
    let end = args.sim_seed.checked_add(count).ok_or_else(|| {
        Failure::usage(format!("`--seeds {count}`: seeds from {} on are more than there are", args.sim_seed))
    })?;
    let refuse = |e| refused(loaded, kernel, options, &e, proposal(&[kernel], &options.sizes));
    let (expected, found) = watched(kernel, options).map_err(refuse)?;
    let bar = ProgressBar::new(end - args.sim_seed).with_style(
        ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} seeds {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let mut failed: Vec<Failed> = Vec::new();
    let mut next = args.sim_seed;
    let step = rayon::current_num_threads().max(1) as u64;
    while next < end && (args.keep_going || failed.is_empty()) {
        let seeds = next..next.saturating_add(step).min(end);
        next = seeds.end;
        let found: Vec<Failed> = seeds
            .into_par_iter()
            .filter_map(|seed| {
                let device = SimDevice::new(config(args, seed));
                let result = check_against(kernel, &device, options, &expected);
                bar.inc(1);
                let right = result.as_ref().is_ok_and(Outcome::is_right);
                (!right).then_some(Failed { seed, result: Some(result) })
            })
            .collect();
        failed.extend(found);
        failed.iter_mut().skip(LIMIT).for_each(|f| f.result = None);
        if !failed.is_empty() {
            bar.set_message(format!("{} failed", failed.len()));
        }
    }
    bar.finish_and_clear();
    // Without --keep-going the seeds after the first that fails do not count: how many ran depends on the machine.
    if !args.keep_going && !failed.is_empty() {
        failed.truncate(1);
    }
    let run = failed.first().filter(|_| !args.keep_going).map_or(end, |f| f.seed + 1) - args.sim_seed;
    let text = if args.json {
        let mut value = as_json(args, loaded, kernel, &failed, run);
        value["warnings"] = json!(warnings_as_json(loaded, &found));
        format!("{value:#}\n")
    } else {
        warnings(args, loaded, &found) + &text(args, (loaded, kernel, options), &failed, run)
    };
    print(&text)?;
    let garbage = found.iter().any(|warning| warning.code == Code::ReadUnwritten);
    let denied = garbage || (args.denies_warnings() && !found.is_empty());
    Ok(if failed.is_empty() && !denied { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn as_json(
    args: &RunArgs,
    loaded: &Loaded,
    kernel: &Kernel,
    failed: &[Failed],
    run: u64,
) -> serde_json::Value {
    let one = |f: &Failed| {
        let mut value = json!({ "sim_seed": f.seed, "replay": replay(f.seed) });
        match &f.result {
            Some(Ok(outcome)) => {
                value["outputs"] = json!(comparisons(outcome));
                value["findings"] = json!(findings_as_json(loaded, kernel, outcome, DeviceKind::Sim));
            }
            Some(Err(e)) => value["error"] = json!(e.to_string()),
            None => {}
        }
        value
    };
    json!({
        "right": failed.is_empty(),
        "kernel": kernel.function.name,
        "arch": kernel.function.arch.to_string(),
        "seed": args.inputs.seed,
        "first_sim_seed": args.sim_seed,
        "seeds_run": run,
        "failed": failed.iter().map(one).collect::<Vec<_>>(),
    })
}

fn text(
    args: &RunArgs,
    (loaded, kernel, options): (&Loaded, &Kernel, &CheckOptions),
    failed: &[Failed],
    run: u64,
) -> String {
    let name = &kernel.function.name;
    let seeds = match run {
        1 => format!("seed {}", args.sim_seed),
        _ => format!("seeds {} to {}", args.sim_seed, args.sim_seed + run - 1),
    };
    let Some(first) = failed.first() else {
        return format!("{name} on the simulator, {seeds}: all right\n");
    };
    let mut text = match &first.result {
        Some(Ok(outcome)) => mistakes(loaded, kernel, outcome, DeviceKind::Sim),
        Some(Err(e)) => format!("{}\n", refused(loaded, kernel, options, e, None).text),
        None => String::new(),
    };
    let listed: Vec<String> = failed.iter().take(LIMIT).map(|f| f.seed.to_string()).collect();
    let rest = if failed.len() > LIMIT { ", …" } else { "" };
    text.push_str(&format!(
        "{name} on the simulator, {seeds}: {} of {run} failed ({}{rest}); the messages are those of seed {}\n",
        failed.len(),
        listed.join(", "),
        first.seed,
    ));
    text.push_str(&format!("replay it with: {}\nWRONG\n", replay(first.seed)));
    text
}

/// The command that was given, for one seed.
fn replay(seed: u64) -> String {
    let mut words = Vec::new();
    let mut given = crate::usage::words().map(|word| word.to_string_lossy().into_owned());
    while let Some(word) = given.next() {
        match word.as_str() {
            "--seeds" | "--sim-seed" => drop(given.next()),
            "--keep-going" | "--json" => {}
            other if other.starts_with("--seeds=") || other.starts_with("--sim-seed=") => {}
            _ => words.push(quoted(word)),
        }
    }
    format!("tilewright {} --sim-seed {seed}", words.join(" "))
}
