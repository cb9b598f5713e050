//! `tilewright tune FILE`: values for the constants of a program's `space`, and their use by `run` and `compile`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::json;
use tilewright::compiler::arch_named;
use tilewright::lab::measure::L2;
use tilewright::tile::Constants;
use tilewright::tune::{
    GpuMeasurer, ProgramProblem, ProgramReport, Settings, Target as TuneTarget, program_record, rank_program,
    tune_program,
};

use crate::args::{L2Args, TuneArgs};
use crate::load::{Asked, Loaded, load_file, module_of};
use crate::messages::{Failure, note, print};
use crate::target::{Target, target_of};
use crate::tune::{bar, failure, hold, seconds, shown, store, write};

/// Entries of a table.
const SHOWN: usize = 16;

/// The problem of kernels with the values that they were given.
fn problem(all: &[Loaded]) -> Result<ProgramProblem, Failure> {
    let (mut sizes, mut pinned) = (BTreeMap::new(), Constants::new());
    for loaded in all {
        sizes.extend(loaded.sizes.clone());
        pinned.extend(loaded.constants.clone());
    }
    if let Some((tasks, mapping)) = all.first().and_then(|loaded| loaded.mapping.as_ref()) {
        return ProgramProblem::of_mapping(tasks, mapping, &sizes).map_err(failure);
    }
    ProgramProblem::new(&module_of(all), &sizes, &pinned).map_err(failure)
}

/// Assignments of a file's constants that are measured, where nothing else is asked.
const TOP: usize = 12;

/// Tunes the constants of a file.
pub fn tune_file(args: &TuneArgs, file: &Path) -> Result<ExitCode, Failure> {
    if args.shapes.is_some() || args.records.is_some() {
        return Err(Failure::usage("--shapes and --records are for operators; a file takes its sizes by -p"));
    }
    let all = load_file(file, &Asked { kernel: None, mapping: args.mapping.as_deref() }, &args.params)?;
    let problem = problem(&all)?;
    let device = crate::device::open(&args.device)?;
    let arch = match &args.arch {
        Some(name) => arch_named(name).map_err(Failure::usage)?,
        None => target_of(&all, device.as_ref())?.arch,
    };
    let target = TuneTarget::new(device.name(), arch);
    let settings = Settings {
        top: args.top.unwrap_or(TOP),
        budget: seconds("--budget", args.budget)?,
        ..Settings::default()
    };
    let bar = bar();
    let watch = &mut |p| shown(&bar, p);
    let Some(gpu) = device.cuda().filter(|_| !args.estimate) else {
        let report = rank_program(&problem, &target, watch);
        bar.finish_and_clear();
        let report = report.map_err(failure)?;
        let mut text = format!(
            "{problem} on {} for {arch}: ranked by estimate, nothing is measured and nothing is recorded\n",
            target.device
        );
        text.push_str(&table(&problem, &report));
        print(&text)?;
        return save(args, &problem, "estimate", json!(report));
    };
    let store = store(args.cache.as_deref())?;
    if !args.no_cache
        && let Some(record) = program_record(&problem, &target, &store)
    {
        bar.finish_and_clear();
        print(&format!(
            "{problem} on {}\n  {}\n  {:.1} µs (cache)\n{}",
            target.device,
            or_defaults(&problem.shown(&record.constants)),
            record.microseconds,
            rows(&problem, &record.constants)
        ))?;
        return save(args, &problem, "cache", json!(record));
    }
    let l2 = match args.l2 {
        L2Args::Dirty => L2::Written,
        L2Args::Clean => L2::Read,
    };
    let rest = seconds("--rest", args.rest)?;
    let lock = hold(&store, &target.device, &args.device, &bar).map_err(failure)?;
    let mut measurer = GpuMeasurer::of_programs(gpu, lock, problem.programs(), l2, rest);
    let tuned = tune_program(&problem, &target, &store, &settings, &mut measurer, watch);
    bar.finish_and_clear();
    let (record, report) = tuned.map_err(failure)?;
    let values = problem.shown(&record.constants);
    let against = record
        .defaults_microseconds
        .map_or(String::new(), |us| format!("; the file's own values {us:.1} µs"));
    let mut text = format!(
        "{problem} on {}\n  {}\n  {:.1} µs{against}\n",
        target.device,
        or_defaults(&values),
        record.microseconds
    );
    text.push_str(&table(&problem, &report));
    text.push_str(&rows(&problem, &record.constants));
    print(&text)?;
    save(args, &problem, "measured", json!({ "record": record, "report": report }))
}

/// The mapping that was found, to be put into the file.
fn rows(problem: &ProgramProblem, values: &Constants) -> String {
    problem.mapping_text(values).map_or(String::new(), |text| format!("\n{text}"))
}

fn or_defaults(values: &str) -> &str {
    if values.is_empty() { "the file's own values" } else { values }
}

fn save(
    args: &TuneArgs,
    problem: &ProgramProblem,
    from: &str,
    value: serde_json::Value,
) -> Result<ExitCode, Failure> {
    if let Some(file) = &args.json {
        let value = json!({ "problem": problem.to_string(), "from": from, "result": value });
        write(file, &format!("{value:#}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The candidates in order, and how many were refused, with the first reasons.
fn table(problem: &ProgramProblem, report: &ProgramReport) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["µs", "estimate", "values"]);
    for column in 0..2 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let able = report.candidates.iter().filter(|c| c.refused.is_none());
    for candidate in able.clone().take(SHOWN) {
        table.add_row([
            candidate.median().map_or("–".to_string(), |time| format!("{time:.2}")),
            candidate.estimate.map_or("–".to_string(), |time| format!("{time:.1}")),
            or_defaults(&problem.shown(&candidate.constants)).to_string(),
        ]);
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let mut reasons: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for candidate in &report.candidates {
        if let Some(refused) = &candidate.refused {
            let entry =
                reasons.entry(&refused.reason).or_insert_with(|| (0, problem.shown(&candidate.constants)));
            entry.0 += 1;
        }
    }
    let refused: usize = reasons.values().map(|(count, _)| count).sum();
    let _ =
        writeln!(text, "{} assignments, {refused} refused; {:.1} s", report.candidates.len(), report.seconds);
    for (reason, (count, first)) in reasons.iter().take(SHOWN) {
        let _ = writeln!(text, "  {count} refused, the first {}: {reason}", or_defaults(first));
    }
    text
}

/// Gives the constants that `tilewright tune` found for these kernels on this GPU, and says so.
pub fn take_record(all: &mut [Loaded], target: &Target, defaults: bool) -> Result<(), Failure> {
    let Some(device) = target.device.clone().filter(|_| !defaults) else { return Ok(()) };
    if all.iter().all(|loaded| loaded.program.space.is_empty() && loaded.mapping.is_none()) {
        return Ok(());
    }
    // With a value for each constant of the space there is nothing to look for; without a home there are no records.
    let (Ok(problem), Ok(store)) = (problem(all), store(None)) else { return Ok(()) };
    let tuned = TuneTarget::new(device, target.arch);
    let Some(record) = program_record(&problem, &tuned, &store) else { return Ok(()) };
    let sources = all.first().map(|loaded| loaded.sources.clone()).unwrap_or_default();
    let lowered = problem.lowered(&record.constants);
    let lowered = lowered.map_err(|errors| Failure::refused(&sources, &errors))?;
    for loaded in all.iter_mut() {
        let named = |program: &&tilewright::tile::Program| program.name == loaded.program.name;
        if let Some(program) = lowered.iter().flatten().find(named) {
            loaded.program = program.clone();
            continue;
        }
        for (name, value) in &record.constants {
            if loaded.program.constants().any(|(_, symbol, _)| symbol.name == *name) {
                loaded.constants.insert(name.clone(), *value);
            }
        }
    }
    let values = problem.shown(&record.constants);
    note(format!(
        "{}: {}, measured on {} at {:.1} µs (`--defaults` keeps the file's own)",
        if all.iter().any(|loaded| loaded.mapping.is_some()) { "mapping" } else { "constants" },
        or_defaults(&values),
        record.device,
        record.microseconds
    ));
    Ok(())
}
