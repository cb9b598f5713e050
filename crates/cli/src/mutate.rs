//! `tilewright mutate`: make a kernel wrong in many ways, and see which of them the simulator finds.

use std::collections::BTreeMap;
use std::process::ExitCode;

use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use tilewright::check::CheckOptions;
use tilewright::mutate::{Kind, MutateError, Outcome, mutate_program};

use crate::args::MutateArgs;
use crate::load::{load, timing};
use crate::messages::{Failure, error, print};
use crate::outcome::refused;
use crate::target::target_without_device;

/// Runs every mutant of a program's kernel and prints which were found.
pub fn mutate(args: &MutateArgs) -> Result<ExitCode, Failure> {
    if args.seeds == 0 {
        return Err(Failure::usage("`--seeds 0`: each mutant must be run once at least"));
    }
    let loaded = load(&args.program)?;
    let program = loaded.tile_program("mutate")?;
    let target = target_without_device(&args.program, std::slice::from_ref(&loaded))?;
    target.say();
    let mut options = loaded.options(target.arch);
    options.timing = timing(&args.program, target.arch)?;
    // Says what is wrong with the program, if anything is.
    let kernel = loaded.compile(&options)?;
    let inputs = CheckOptions {
        sizes: loaded.sizes.clone(),
        scalars: loaded.scalars.clone(),
        force: args.force,
        ..CheckOptions::default()
    };
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{elapsed_precise} {bar:30} {pos}/{len} mutants")
            .unwrap_or_else(|_| ProgressStyle::default_bar()),
    );
    let outcome = mutate_program(program, &options, &inputs, args.seeds, &|done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let outcome = outcome.map_err(|e| match e {
        MutateError::Check(e) => refused(&loaded, &kernel, &inputs, &e, None),
        MutateError::Compile(d) => Failure::refused(&loaded.sources, &d),
        MutateError::Wrong(_) => Failure::program(error(e)),
    })?;
    let text = if args.json { format!("{:#}\n", as_json(&outcome, args.seeds)) } else { table(&outcome) };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(outcome: &Outcome, seeds: u64) -> serde_json::Value {
    let mutants: Vec<_> = outcome
        .verdicts
        .iter()
        .map(|v| {
            json!({
                "mutant": v.mutant.to_string(),
                "kind": v.mutant.kind.to_string(),
                "what": v.mutant.what,
                "statement": v.mutant.origin,
                "found": v.found.as_ref().map(|f| json!({
                    "seed": f.seed,
                    "by": f.sign.to_string(),
                    "message": f.message,
                })),
                "reason": v.reason.as_ref().map(ToString::to_string),
            })
        })
        .collect();
    json!({
        "seeds": seeds,
        "mutants": mutants,
        "found": outcome.found(),
        "survived": outcome.survivors().count(),
        "unexplained": outcome.unexplained().count(),
        "invalid": outcome.invalid,
        "score": outcome.score(),
    })
}

fn table(outcome: &Outcome) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["", "by", "seed", "mutation", "statement", "reason"]);
    for v in &outcome.verdicts {
        let (verdict, by, seed) = match &v.found {
            Some(found) => ("found", found.sign.to_string(), found.seed.to_string()),
            None if v.reason.is_some() => ("survived", String::new(), String::new()),
            None => ("SURVIVED", String::new(), String::new()),
        };
        let mutation = format!("{} {}", v.mutant.kind, v.mutant.what);
        table.add_row([
            verdict,
            &by,
            &seed,
            &mutation,
            &format!("{} #{}", v.mutant.origin, v.mutant.ordinal),
            &v.reason.as_ref().map_or_else(String::new, ToString::to_string),
        ]);
    }
    let mut kinds: BTreeMap<Kind, (usize, usize)> = BTreeMap::new();
    for v in &outcome.verdicts {
        let (found, all) = kinds.entry(v.mutant.kind).or_default();
        *found += usize::from(v.found.is_some());
        *all += 1;
    }
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, (found, all))| format!("{kind} {found}/{all}")).collect();
    let latest = outcome.verdicts.iter().filter_map(|v| v.found.as_ref().map(|f| f.seed)).max().unwrap_or(0);
    format!(
        "{table}\n{} of {} mutants found ({:.1} %): {}; latest seed {latest}; {} more are no valid programs; {} survivors without a reason\n",
        outcome.found(),
        outcome.verdicts.len(),
        100.0 * outcome.score(),
        kinds.join(", "),
        outcome.invalid,
        outcome.unexplained().count(),
    )
}
