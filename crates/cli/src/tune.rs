//! `tilewright tune`: measure configurations of an operator, and keep the fastest.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use comfy_table::{CellAlignment, Table, presets};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tilewright::compiler::arch_named;
use tilewright::kernels::operator;
use tilewright::lab::measure::L2;
use tilewright::machine::Arch;
use tilewright::runtime::{CudaDevice, Device};
use tilewright::tune::{
    DeviceLock, Entry, GpuMeasurer, Measurer, Problem, Progress, RejectedBy, Report, Settings, Store, Target,
    TuneError, Tuned, arch_of_shipped, rank, read_model, refresh_hashes, tune as tune_problem,
};

use crate::args::{L2Args, Shard, TuneArgs};
use crate::messages::{Failure, error, print};
use crate::tasks::is_task;
use crate::tune_file::tune_file;

/// Entries of a table.
const SHOWN: usize = 16;

/// Tunes every problem that the command line names.
pub fn tune(args: &TuneArgs) -> Result<ExitCode, Failure> {
    if let Some(file) = &args.refresh_hashes {
        let (changed, all) = refresh_hashes(file).map_err(failure)?;
        print(&format!("{changed} of {all} records have programs that changed since they were measured\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(name) = &args.operator else {
        return Err(Failure::usage("which operator? `tilewright kernels` lists them"));
    };
    let tasks = is_task(Path::new(name));
    if let Some(mapping) = args.mapping.as_deref().filter(|_| !tasks) {
        let message = format!("`--mapping {mapping}` is for task programs (*.task), and this is `{name}`");
        return Err(Failure::usage(message));
    }
    if tasks || name.ends_with(".tile") {
        return tune_file(args, Path::new(name));
    }
    let all = problems(name, &args.params, args.shapes.as_deref())?;
    let problems: Vec<Problem> = match args.shard {
        Some(Shard { index, of }) => all.into_iter().skip(index - 1).step_by(of).collect(),
        None => all,
    };
    if problems.is_empty() {
        print("0 problems: the list has fewer than there are shards\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    let top = args.top.unwrap_or(Settings::default().top);
    let session = Session {
        args,
        problems: &problems,
        settings: Settings {
            top,
            measurements: args.measurements.max(top),
            budget: seconds("--budget", args.budget)?,
            refine: !args.no_refine,
            ..Settings::default()
        },
        rest: seconds("--rest", args.rest)?,
        arch: args.arch.as_deref().map(arch_named).transpose().map_err(Failure::usage)?,
        next: AtomicUsize::new(0),
        done: Mutex::default(),
        bars: MultiProgress::new(),
    };
    let started = Instant::now();
    let (reports, failed) = session.run()?;
    let seconds = started.elapsed().as_secs_f64();
    if problems.len() > 1 {
        let totals = totals(&reports);
        let of = |name: &str| totals[name].as_f64().unwrap_or_default();
        print(&format!(
            "{} problems, {} from the cache, {failed} without a result: {seconds:.0} s, {} configurations compiled, {} measured; compiler {:.1} s \
             (all threads), assembler {:.1} s, measuring {:.1} s\n",
            problems.len(),
            totals["from_cache"],
            totals["compiled"],
            totals["measured"],
            of("compiler"),
            of("assembler"),
            of("measuring"),
        ))?;
    }
    Ok(if failed > 0 { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Problems that the devices of the command line take one after another.
struct Session<'a> {
    args: &'a TuneArgs,
    problems: &'a [Problem],
    settings: Settings,
    rest: Duration,
    arch: Option<Arch>,
    next: AtomicUsize,
    done: Mutex<Done>,
    /// The bars of the searches that are under way.
    bars: MultiProgress,
}

/// A device on which several searches measure.
struct Shared<'a> {
    name: &'a str,
    device: &'a dyn Device,
    /// Taken by the first search that measures.
    lock: Mutex<Option<DeviceLock>>,
}

impl Shared<'_> {
    /// The lock of the device, which its searches hold together until the last of them ends.
    fn hold(&self, store: &Store, bar: &ProgressBar) -> Result<DeviceLock, TuneError> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = &*lock {
            return Ok(held.clone());
        }
        let held = hold(store, &self.device.name(), self.name, bar)?;
        Ok(lock.insert(held).clone())
    }
}

/// Waits until no other process measures on a device, given its model and its name on the command line; the bar says so.
pub fn hold(store: &Store, model: &str, name: &str, bar: &ProgressBar) -> Result<DeviceLock, TuneError> {
    let ordinal = name.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()).unwrap_or(0);
    store.lock_device(model, ordinal, || bar.set_message("waiting for another process, which measures"))
}

/// The reports of a session by problem, and how many have no result.
#[derive(Default)]
struct Done {
    reports: BTreeMap<usize, Value>,
    failed: usize,
    /// Texts of problems that are done while one ahead of them is not, and the number of those that are printed: texts come in the order of
    /// the list.
    texts: BTreeMap<usize, String>,
    printed: usize,
    /// The first error after which nothing more is begun.
    over: Option<Failure>,
}

impl Session<'_> {
    /// Tunes all problems: their reports, and the number of those without a result.
    fn run(self) -> Result<(Vec<Value>, usize), Failure> {
        let named: Vec<String> = match &self.args.devices[..] {
            [] => vec![self.args.device.clone()],
            several => several.iter().map(|ordinal| format!("cuda:{ordinal}")).collect(),
        };
        // Whatever is wrong with a device is said before the first one measures.
        let devices = named.iter().map(|name| crate::device::open(name));
        let devices = devices.collect::<Result<Vec<Box<dyn Device>>, Failure>>()?;
        for (i, name) in named.iter().enumerate() {
            if named[..i].contains(name) {
                return Err(Failure::usage(format!("`--devices`: {name} is given twice")));
            }
            let (first, other) = (devices[0].name(), devices[i].name());
            if other != first {
                return Err(Failure::usage(format!(
                    "`--devices`: {} is a {first} and {name} a {other}: records are for one model, so tune them apart",
                    named[0]
                )));
            }
        }
        let searches = self.args.searches.min(self.problems.len().div_ceil(devices.len()));
        let shared: Vec<Shared<'_>> = named
            .iter()
            .zip(&devices)
            .map(|(name, device)| Shared { name, device: &**device, lock: Mutex::default() })
            .collect();
        std::thread::scope(|scope| {
            for device in &shared {
                for _ in 0..searches {
                    scope.spawn(|| {
                        if let Err(failure) = self.work(device) {
                            self.done().over.get_or_insert(failure);
                        }
                    });
                }
            }
        });
        let Done { reports, failed, texts, over, .. } =
            self.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        // Behind a problem that was given up.
        for text in texts.into_values() {
            print(&text)?;
        }
        match over {
            Some(failure) => Err(failure),
            None => Ok((reports.into_values().collect(), failed)),
        }
    }

    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tunes one problem after another on a device, until there is none or another search has failed. Searches on one device measure in
    /// turns, since it is held during each.
    fn work(&self, shared: &Shared<'_>) -> Result<(), Failure> {
        let device = shared.device;
        while self.done().over.is_none() {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(problem) = self.problems.get(number) else { break };
            let least = problem.operator().least_architecture();
            let target = Target::new(device.name(), self.arch.or(device.arch()).unwrap_or(least));
            let store = store(self.args.cache.as_deref()).ok();
            let target = modelled(target, self.args.model.as_deref(), store.as_ref())?;
            let found = match device.cuda().filter(|_| !self.args.estimate) {
                None => ranked(problem, &target, &self.settings, self.bars.add(bar())),
                Some(gpu) => self.measured(problem, (shared, gpu), &target, self.bars.add(bar())),
            };
            self.note(number, found)?;
        }
        Ok(())
    }

    /// On a GPU: from the cache, or measured.
    fn measured(
        &self,
        problem: &Problem,
        (shared, gpu): (&Shared<'_>, &CudaDevice),
        target: &Target,
        bar: ProgressBar,
    ) -> Result<(String, Value), TuneError> {
        let args = self.args;
        let store = args.cache.as_ref().map_or_else(Store::of_user, |folder| Ok(Store::new(folder)))?;
        let l2 = match args.l2 {
            L2Args::Dirty => L2::Written,
            L2Args::Clean => L2::Read,
        };
        let mut measurer = |problem: &Problem| -> Result<Box<dyn Measurer + '_>, TuneError> {
            let lock = shared.hold(&store, &bar)?;
            Ok(Box::new(GpuMeasurer::new(gpu, lock, problem, l2, self.rest)?))
        };
        let watch = &mut |p: Progress| shown(&bar, p);
        let tuned =
            tune_problem(problem, target, &store, args.no_cache, &self.settings, &mut measurer, watch);
        bar.finish_and_clear();
        let Tuned { record, report, refused } = tuned?;
        for reason in refused {
            self.bars.suspend(|| anstream::eprintln!("note: {reason}"));
        }
        if let Some(file) = &args.records {
            store.put_line(file, &record)?;
        }
        let mut text = format!("{problem} on {}\n", target.device);
        let configuration =
            if record.configuration.is_empty() { "the defaults" } else { record.configuration.as_str() };
        let from = if report.is_some() { "measured" } else { "cache" };
        let _ = writeln!(text, "  {configuration}\n  {:.1} µs ({from})", record.microseconds);
        if let Some(report) = &report {
            text.push_str(&table(report));
        }
        let report = report.map(|r| r.json());
        let value =
            json!({ "problem": problem.to_string(), "from": from, "record": record, "report": report });
        Ok((text, value))
    }

    /// Prints and keeps the report of a problem.
    fn note(&self, number: usize, found: Result<(String, Value), TuneError>) -> Result<(), Failure> {
        let mut done = self.done();
        match found {
            Ok((text, value)) => {
                done.texts.insert(number, text);
                done.reports.insert(number, value);
            }
            // After an error of the device nothing that it says can be relied on. Other problems may do better than this one.
            Err(e @ TuneError::Device { .. }) => return Err(failure(e)),
            Err(e) if self.problems.len() == 1 => return Err(failure(e)),
            Err(e) => {
                let (problem, reason) = (self.problems[number].to_string(), e.to_string());
                self.bars.suspend(|| anstream::eprintln!("{}", failure(e).text));
                let value = json!({ "problem": problem, "from": "nothing", "error": reason });
                done.texts.insert(number, String::new());
                done.reports.insert(number, value);
                done.failed += 1;
            }
        }
        loop {
            let next = done.printed;
            let Some(text) = done.texts.remove(&next) else { break };
            done.printed += 1;
            self.bars.suspend(|| print(&text))?;
        }
        if let Some(file) = &self.args.json {
            // After each problem: what is known is there if the next one is interrupted.
            let reports: Vec<Value> = done.reports.values().cloned().collect();
            let totals = totals(&reports);
            write(file, &format!("{:#}\n", json!({ "totals": totals, "problems": reports })))?;
        }
        Ok(())
    }
}

/// Sums over the reports of all problems.
fn totals(reports: &[Value]) -> Value {
    let sum = |pointer: &str| -> f64 {
        reports
            .iter()
            .filter_map(|r| r.pointer(&format!("/report/{pointer}")))
            .filter_map(Value::as_f64)
            .sum()
    };
    json!({
        "problems": reports.len(),
        "from_cache": reports.iter().filter(|r| r["from"] == "cache").count(),
        "compiled": sum("compiled") as u64,
        "measured": sum("measured") as u64,
        "wall_seconds": sum("wall_seconds"),
        "compiler": sum("seconds/compiler"),
        "assembler": sum("seconds/assembler"),
        "measuring": sum("seconds/measuring"),
    })
}

pub fn seconds(name: &str, value: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(value)
        .map_err(|_| Failure::usage(format!("`{name} {value}` is no number of seconds")))
}

pub fn write(file: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(file, text)
        .map_err(|e| Failure::program(error(format!("cannot write `{}`: {e}", file.display()))))
}

/// An error with its exit code: 2 where the command line is wrong.
pub fn failure(e: TuneError) -> Failure {
    match e {
        TuneError::Config(_)
        | TuneError::NotTuned { .. }
        | TuneError::NoSpace { .. }
        | TuneError::Size { .. }
        | TuneError::Text { .. } => Failure::usage(e),
        _ => Failure::program(error(e)),
    }
}

/// The problem of `NAME=VALUE` pairs: a size fixes the problem, a parameter is pinned.
pub fn problem<'a>(name: &str, pairs: impl Iterator<Item = &'a str>) -> Result<Problem, Failure> {
    let operator = operator(name).map_err(Failure::usage)?;
    let known = operator.tuning.map_or(&[][..], |tuning| tuning.sizes);
    let (mut sizes, mut pinned) = (BTreeMap::new(), Vec::<(&str, &str)>::new());
    for pair in pairs {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::usage(format!("`-p {pair}` is not NAME=VALUE, e.g. `-p m=4096`")));
        };
        let (name, value) = (name.trim(), value.trim());
        let twice = if known.iter().any(|(size, _)| *size == name) {
            let Ok(number) = value.parse::<i64>() else {
                return Err(Failure::usage(format!("`-p {pair}`: the size `{name}` is not an integer")));
            };
            sizes.insert(name.to_string(), number).is_some()
        } else {
            let twice = pinned.iter().any(|(other, _)| *other == name);
            pinned.push((name, value));
            twice
        };
        if twice {
            return Err(Failure::usage(format!("`-p {pair}`: `{name}` is given twice")));
        }
    }
    Problem::new(name, &sizes, &pinned).map_err(failure)
}

/// One problem of the command line, or one a line of the file with what the command line adds; one that several lines have is taken once.
fn problems(name: &str, params: &[String], shapes: Option<&Path>) -> Result<Vec<Problem>, Failure> {
    let Some(file) = shapes else { return Ok(vec![problem(name, params.iter().map(String::as_str))?]) };
    let text = std::fs::read_to_string(file)
        .map_err(|e| Failure::usage(format!("cannot read `{}`: {e}", file.display())))?;
    let sizes = operator(name).map_err(Failure::usage)?.tuning.map_or(&[][..], |tuning| tuning.sizes);
    let (mut all, mut known) = (Vec::new(), BTreeSet::new());
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split([',', ' ', '\t']).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            continue;
        }
        // Bare numbers are sizes, in the operator's order.
        let mut names = sizes.iter().map(|(name, _)| *name);
        let pairs: Vec<String> = words
            .into_iter()
            .map(|word| match (word.contains('='), names.next()) {
                (false, Some(name)) => format!("{name}={word}"),
                _ => word.to_string(),
            })
            .collect();
        let pairs = params.iter().chain(&pairs).map(String::as_str);
        let place =
            |f: Failure| Failure { text: format!("{}, line {number}: {}", file.display(), f.text), ..f };
        let problem = problem(name, pairs).map_err(place)?;
        if known.insert(problem.to_string()) {
            all.push(problem);
        }
    }
    if all.is_empty() {
        return Err(Failure::usage(format!("`{}` has no shapes", file.display())));
    }
    Ok(all)
}

/// Without a GPU: the ranking by estimate.
fn ranked(
    problem: &Problem,
    target: &Target,
    settings: &Settings,
    bar: ProgressBar,
) -> Result<(String, Value), TuneError> {
    let report = rank(problem, target, settings, &mut |p| shown(&bar, p));
    bar.finish_and_clear();
    let report = report?;
    let mut text = format!(
        "{problem} on {} for {}: ranked by estimate, nothing is measured and nothing is recorded\n",
        target.device, target.arch
    );
    text.push_str(&table(&report));
    Ok((text, json!({ "problem": problem.to_string(), "from": "estimate", "report": report.json() })))
}

/// The folder that is given, else the user's.
pub fn store(folder: Option<&Path>) -> Result<Store, Failure> {
    folder.map_or_else(Store::of_user, |folder| Ok(Store::new(folder))).map_err(failure)
}

/// A bar on standard error, if that is a terminal.
pub fn bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{elapsed_precise} {bar:24} {wide_msg}");
    ProgressBar::new(1000).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

pub fn shown(bar: &ProgressBar, progress: Progress) {
    bar.set_position((progress.spent * 1000.0) as u64);
    bar.set_message(progress.doing);
}

/// The candidates in order, and what the search did.
fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["µs", "estimate", "rank", "configuration"]);
    for column in 0..3 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let able = || report.entries.iter().filter(|e| e.refused.is_none());
    for entry in able().take(SHOWN) {
        let Entry { candidate, estimate, rank, .. } = entry;
        table.add_row([
            entry.median().map_or("–".to_string(), |time| format!("{time:.2}")),
            format!("{estimate:.1}"),
            rank.map_or("–".to_string(), |rank| (rank + 1).to_string()),
            if candidate.0.is_empty() { "the defaults".to_string() } else { candidate.to_string() },
        ]);
    }
    let mut text: String = table.lines().map(|line| format!("{}\n", line.trim_end())).collect();
    let _ = writeln!(
        text,
        "space: {} configurations ({} more refused by rules); {} compiled, {} refused by the compiler, {} by the assembler, {} measured (at most {})",
        report.space,
        report.refused_by_rules,
        report.entries.len(),
        report.refused(RejectedBy::Compiler),
        report.refused(RejectedBy::Assembler),
        report.measured().count(),
        report.measurements,
    );
    if let Some(conditions) = &report.conditions {
        let lost = report.estimate_loses().unwrap_or_default();
        let _ = writeln!(
            text,
            "the estimate's first is {:.1} % slower; L2 cache {}, rests of {} s; {}",
            100.0 * lost,
            conditions.l2,
            conditions.rest_seconds,
            report.stop,
        );
    }
    let seconds = report.seconds;
    let _ = writeln!(
        text,
        "{:.1} s: compiler {:.1} s (all threads), assembler {:.1} s, measuring {:.1} s",
        report.wall_seconds, seconds.compiler, seconds.assembler, seconds.measuring
    );
    text
}

/// The target with the model of a file, else with that of the device in the store, where there is one.
pub fn modelled(target: Target, file: Option<&Path>, store: Option<&Store>) -> Result<Target, Failure> {
    let Some(file) = file else {
        let own = store.map(|store| store.model(&target.device)).transpose().map_err(failure)?;
        return Ok(match own.flatten() {
            Some(model) => target.with_model(model),
            None => target,
        });
    };
    let model = read_model(file).map_err(failure)?;
    if model.device() != target.device {
        anstream::eprintln!(
            "note: the model is that of {}, and the device is {}",
            model.device(),
            target.device
        );
    }
    Ok(target.with_model(model))
}

/// Device and architecture of a choice: of the device that is named, else of the one that is opened.
pub fn target(problem: &Problem, device: &str, name: Option<&str>) -> Result<Target, Failure> {
    let since = problem.operator().least_architecture();
    if let Some(name) = name {
        return Ok(Target::new(name, arch_of_shipped(name).unwrap_or(since)));
    }
    let device = crate::device::open(device)?;
    Ok(Target::new(device.name(), device.arch().unwrap_or(since)))
}
