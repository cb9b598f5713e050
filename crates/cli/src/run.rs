//! `tilewright run`: compile, execute on random inputs, compare with the reference interpreter.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use comfy_table::{Table, presets};
use serde_json::json;
use tilewright::check::{CheckOptions, Outcome, check};
use tilewright::compiler::Kernel;
use tilewright::machine::{Progress, RedOp};
use tilewright::runtime::{Device, DeviceKind, SimDevice};
use tilewright::sequence::check_in_order;
use tilewright::sim::{Config, Trace};
use tilewright::tile::{Origin, ParamId, Program, TensorKind};

use crate::args::RunArgs;
use crate::data;
use crate::load::{Loaded, load_all, timing};
use crate::messages::{Failure, error, print};
use crate::outcome::{
    comparisons, config, findings_as_json, mistakes, prints, prints_as_json, refused, warnings,
    warnings_as_json,
};
use crate::patience::{Watcher, announce, proposal};
use crate::places::Places;
use crate::profile::profile;
use crate::seeds;
use crate::target::{Target, target};
use crate::tasks;
use crate::tune_file::take_record;

/// A compiled kernel of the file.
pub struct Compiled {
    /// The program and its values.
    pub loaded: Loaded,
    /// The kernel.
    pub kernel: Kernel,
    /// Milliseconds that compiling it took.
    pub compile_ms: f64,
}

/// Compiles, runs and checks the kernels of a file.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let mut all = load_all(&args.program)?;
    let inputs = data::inputs(&args.inputs.input)?;
    // A size of all kernels is that of an array of any of them.
    let programs: Vec<Program> = all.iter().map(|loaded| loaded.program.clone()).collect();
    for loaded in &mut all {
        for program in &programs {
            data::take_sizes(loaded, program, &args.program.params, &inputs);
        }
    }
    let (simulator, interpreter) = (Progress::default(), Progress::default());
    let device = open(args, &simulator)?;
    let target = target(&args.program, &all, device.as_ref())?;
    if args.json || args.seeds.is_some() {
        target.say();
    }
    take_record(&mut all, &target, args.program.defaults)?;
    let kernels: Vec<Compiled> =
        all.into_iter().map(|loaded| compiled(args, loaded, &target)).collect::<Result<_, _>>()?;
    let parts: Vec<&Kernel> = kernels.iter().map(|part| &part.kernel).collect();
    data::check_names(&parts, &inputs, &args.output)?;
    let of = |part: &Compiled| CheckOptions {
        sizes: part.loaded.sizes.clone(),
        scalars: part.loaded.scalars.clone(),
        inputs: inputs.clone(),
        seed: args.inputs.seed,
        repeat: args.repeat,
        force: args.force,
        tolerance: args.tolerance,
        progress: Some(interpreter.clone()),
        detail: args.detail(),
    };
    let sizes = kernels.iter().flat_map(|part| part.loaded.sizes.clone()).collect();
    if device.kind() == DeviceKind::Sim {
        announce(&parts, &sizes, args.force);
    }
    let ran = match kernels.as_slice() {
        [one] => run_one(args, one, &target, (device.as_ref(), &simulator), &of(one)),
        several => {
            let mut options = CheckOptions { inputs: inputs.clone(), ..of(&several[0]) };
            for part in several {
                options.sizes.extend(part.loaded.sizes.clone());
                options.scalars.extend(part.loaded.scalars.clone());
            }
            run_several(args, several, &target, (device.as_ref(), &simulator), &options)
        }
    }?;
    // The same inputs by the interpreter of tasks, which defines what they mean.
    if all_of_tasks(&kernels) && args.inputs.input.is_empty() {
        let agreement = tasks::agreement(args)?;
        if !args.json {
            print(&agreement)?;
        }
    }
    Ok(ran)
}

/// True if a mapping made the kernels of tasks.
fn all_of_tasks(kernels: &[Compiled]) -> bool {
    kernels.iter().all(|part| part.loaded.mapping.is_some())
}

fn compiled(args: &RunArgs, loaded: Loaded, target: &Target) -> Result<Compiled, Failure> {
    let started = Instant::now();
    let mut options = loaded.options(target.arch);
    options.timing = timing(&args.program, target.arch)?;
    let kernel = loaded.compile(&options)?;
    Ok(Compiled { loaded, kernel, compile_ms: started.elapsed().as_secs_f64() * 1e3 })
}

fn run_one(
    args: &RunArgs,
    part: &Compiled,
    target: &Target,
    (device, simulated): (&dyn Device, &Progress),
    options: &CheckOptions,
) -> Result<ExitCode, Failure> {
    let Compiled { loaded, kernel, .. } = part;
    if let Some(count) = args.seeds {
        return seeds::run(args, loaded, kernel, options, count);
    }
    let sizes = &loaded.sizes;
    let grid = tilewright::tile::interpret::grid(&kernel.verified, sizes)
        .map_err(|e| refused(loaded, kernel, options, &e.into(), None))?;
    let blocks = grid.iter().map(|g| u64::from(*g)).product::<u64>();
    if args.trace.is_some() && args.trace_block >= blocks {
        return Err(Failure::usage(format!(
            "`--trace-block {}`: the grid has {blocks} blocks",
            args.trace_block
        )));
    }
    let refuse = |e| refused(loaded, kernel, options, &e, proposal(&[kernel], &options.sizes));
    let watcher = Watcher::new(options.progress.clone().unwrap_or_default(), simulated.clone());
    let outcome = check(kernel, device, options).map_err(refuse)?;
    drop(watcher);
    if let (Some(path), Some(trace)) = (&args.trace, outcome.report.sim().and_then(|s| s.trace.as_ref())) {
        write_trace(path, trace)?;
    }
    data::write_outputs(&[(kernel, &outcome)], &options.sizes, &args.output)?;
    let summary = Summary::of(args, (part, &[]), target, device, &outcome);
    let text = if args.json { format!("{:#}\n", summary.json()) } else { summary.text() };
    print(&text)?;
    let denied = args.denies_warnings() && !outcome.warnings.is_empty();
    Ok(if outcome.is_right() && !denied { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Runs kernels one after another; with `--seeds`, for each seed until one fails.
fn run_several(
    args: &RunArgs,
    parts: &[Compiled],
    target: &Target,
    (device, simulated): (&dyn Device, &Progress),
    options: &CheckOptions,
) -> Result<ExitCode, Failure> {
    if args.trace.is_some() {
        return Err(Failure::usage("`--trace` takes one kernel: add --kernel"));
    }
    let kernels: Vec<&Kernel> = parts.iter().map(|part| &part.kernel).collect();
    let proposed = || proposal(&kernels, &options.sizes);
    let failed = |e| refused(&parts[0].loaded, &parts[0].kernel, options, &e, proposed());
    if let Some(count) = args.seeds {
        let end = args.sim_seed.saturating_add(count);
        let mut wrong = 0;
        for seed in args.sim_seed..end {
            let device = SimDevice::new(config(args, seed));
            let ran = check_in_order(&kernels, &device, options).map_err(failed)?;
            if !ran.is_right() {
                let text: String = parts
                    .iter()
                    .zip(&ran.outcomes)
                    .map(|(part, outcome)| mistakes(&part.loaded, &part.kernel, outcome, device.kind()))
                    .collect();
                let together: String = ran.together.iter().map(|text| format!("{}\n", error(text))).collect();
                print(&format!("{text}{together}seed {seed} fails\n"))?;
                wrong += 1;
                if !args.keep_going {
                    break;
                }
            }
        }
        let verdict = if wrong == 0 { "all right" } else { "WRONG" };
        let last = end.saturating_sub(1);
        print(&format!(
            "{} kernels on the simulator, seeds {} to {last}: {verdict}\n",
            parts.len(),
            args.sim_seed
        ))?;
        return Ok(if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) });
    }
    let watcher = Watcher::new(options.progress.clone().unwrap_or_default(), simulated.clone());
    let ran = check_in_order(&kernels, device, options).map_err(failed)?;
    drop(watcher);
    let pairs: Vec<(&Kernel, &Outcome)> = kernels.iter().copied().zip(&ran.outcomes).collect();
    data::write_outputs(&pairs, &options.sizes, &args.output)?;
    let summaries: Vec<Summary<'_>> = parts
        .iter()
        .zip(&ran.outcomes)
        .enumerate()
        .map(|(i, (part, outcome))| Summary::of(args, (part, &parts[..i]), target, device, outcome))
        .collect();
    let text = if args.json {
        let value = json!({
            "right": ran.is_right(),
            "kernels": summaries.iter().map(Summary::json).collect::<Vec<_>>(),
            "together": ran.together,
            "milliseconds": ran.milliseconds,
        });
        format!("{value:#}\n")
    } else {
        let each: Vec<String> = summaries.iter().map(Summary::text).collect();
        let mut text = each.join("\n");
        ran.together.iter().for_each(|wrong| text.push_str(&format!("{}\n", error(wrong))));
        let time = ran.milliseconds.map_or(String::new(), |ms| format!(" in {ms:.4} ms"));
        let verdict = if ran.is_right() { "right" } else { "WRONG" };
        text.push_str(&format!("\n{} kernels one after another{time}: {verdict}\n", parts.len()));
        text
    };
    print(&text)?;
    let denied = args.denies_warnings() && ran.outcomes.iter().any(|outcome| !outcome.warnings.is_empty());
    Ok(if ran.is_right() && !denied { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Opens the device; the simulator as it is asked for.
fn open(args: &RunArgs, progress: &Progress) -> Result<Box<dyn Device>, Failure> {
    let device = crate::device::open(&args.device)?;
    if device.kind() == DeviceKind::Sim {
        let trace = args.trace.as_ref().map(|_| args.trace_block);
        let progress = Some(progress.clone());
        let config = Config { profile: args.profile, trace, progress, ..config(args, args.sim_seed) };
        return Ok(Box::new(SimDevice::new(config)));
    }
    let only = [
        ("--profile", args.profile),
        ("--trace", args.trace.is_some()),
        ("--seeds", args.seeds.is_some()),
        ("--sim-seed", args.sim_seed != 0),
    ];
    match only.iter().find(|(_, given)| *given) {
        Some((option, _)) => {
            Err(Failure::usage(format!("`{option}` is for the simulator; add `--device sim`")))
        }
        None => Ok(device),
    }
}

fn grid(loaded: &Loaded, kernel: &Kernel) -> [u32; 3] {
    tilewright::tile::interpret::grid(&kernel.verified, &loaded.sizes).unwrap_or([0; 3])
}

fn write_trace(path: &Path, trace: &Trace) -> Result<(), Failure> {
    let failed = |e: &dyn std::fmt::Display| {
        Failure::program(error(format!("cannot write `{}`: {e}", path.display())))
    };
    let mut file = BufWriter::new(File::create(path).map_err(|e| failed(&e))?);
    serde_json::to_writer(&mut file, trace).map_err(|e| failed(&e))?;
    file.flush().map_err(|e| failed(&e))
}

/// The outputs that a kernel only adds to, that no kernel before it writes and that no option gives, with the line of an addition.
fn added_to(args: &RunArgs, part: &Compiled, before: &[Compiled]) -> Vec<(String, Option<usize>)> {
    let (program, verified) = (part.kernel.program(), &part.kernel.verified);
    let mut sums: BTreeMap<ParamId, Option<Origin>> = BTreeMap::new();
    verified.visit(&mut |stmt, _| {
        for (_, reference) in stmt.kind.references() {
            let TensorKind::View { param, .. } = program.tensor(reference.tensor).kind else { continue };
            let adds = stmt.kind.combines() == Some(RedOp::Add);
            let sum = sums.entry(param).or_insert(Some(stmt.span));
            *sum = sum.filter(|_| adds);
        }
    });
    let given = |name: &str| args.inputs.input.iter().any(|input| input.split('=').next() == Some(name));
    let filled = |name: &str| {
        let writes = |kernel: &Kernel| {
            let outputs = kernel.verified.outputs().iter();
            outputs.map(|id| &kernel.program().param(*id).name).any(|other| other == name)
        };
        before.iter().any(|part| writes(&part.kernel))
    };
    let named = sums.into_iter().filter_map(|(id, span)| Some((program.param(id).name.clone(), span?)));
    let places = Places::new(&part.loaded);
    named
        .filter(|(name, _)| !given(name) && !filled(name))
        .map(|(name, span)| (name, span.text().and_then(|span| places.line(span.start))))
        .collect()
}

struct Summary<'a> {
    args: &'a RunArgs,
    loaded: &'a Loaded,
    kernel: &'a Kernel,
    target: &'a Target,
    device: &'a dyn Device,
    outcome: &'a Outcome,
    compile_ms: f64,
    grid: [u32; 3],
    /// The outputs that are added to, and that nothing has filled before, with the line of the first addition.
    added_to: Vec<(String, Option<usize>)>,
}

impl<'a> Summary<'a> {
    fn of(
        args: &'a RunArgs,
        (part, before): (&'a Compiled, &[Compiled]),
        target: &'a Target,
        device: &'a dyn Device,
        outcome: &'a Outcome,
    ) -> Self {
        let Compiled { loaded, kernel, compile_ms } = part;
        let grid = grid(loaded, kernel);
        let added_to = added_to(args, part, before);
        Summary { args, loaded, kernel, target, device, outcome, compile_ms: *compile_ms, grid, added_to }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "right": self.outcome.is_right(),
            "verdict": self.outcome.verdict().to_string(),
            "warnings": warnings_as_json(self.loaded, &self.outcome.warnings),
            "kernel": self.kernel.function.name,
            "device": { "kind": self.device.kind().to_string(), "name": self.device.name() },
            "arch": self.kernel.function.arch.to_string(),
            "arch_because": self.target.why,
            "sizes": self.loaded.sizes,
            "constants": self.kernel.verified.constants(),
            "seed": self.args.inputs.seed,
            "sim_seed": self.outcome.report.sim().map(|_| self.args.sim_seed),
            "grid": self.grid,
            "threads": self.kernel.threads(),
            "shared_bytes": self.kernel.shared_bytes(),
            "fragment_registers": self.kernel.explanation.fragment_registers,
            "registers_per_thread": self.outcome.report.cuda().map(|c| c.registers_per_thread),
            "local_bytes": self.outcome.report.cuda().map(|c| c.local_bytes),
            "advisories": self.outcome.report.cuda().map(|c| &c.advisories),
            "milliseconds": self.outcome.timing.as_ref().map(|t| t.median_ms).or(self.outcome.report.milliseconds()),
            "compile_ms": self.compile_ms,
            "outputs": comparisons(self.outcome),
            "findings": findings_as_json(self.loaded, self.kernel, self.outcome, self.device.kind()),
            "printed": prints_as_json(self.loaded, self.outcome),
            "simulation": self.outcome.report.sim(),
        })
    }

    /// The table: a name and a value a row.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_string(), value]);
        };
        let auto = if self.args.device == "auto" { ", chosen by --device auto" } else { "" };
        row("device", format!("{} ({}{auto})", self.device.name(), self.device.kind()));
        if let Some(why) = &self.target.why {
            row("arch", format!("{}, {why}", self.target.arch));
        }
        row(
            "kernel",
            format!(
                "{} for {}, compiled in {:.1} ms",
                self.kernel.function.name, self.kernel.function.arch, self.compile_ms
            ),
        );
        let sizes: Vec<String> = self.loaded.sizes.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let sizes = if sizes.is_empty() { "none".to_string() } else { sizes.join(" ") };
        let scheduled = match (self.outcome.report.sim(), self.args.sim_seed) {
            (Some(_), seed @ 1..) => format!(", simulator's seed {seed}"),
            _ => String::new(),
        };
        row("sizes", format!("{sizes}, seed {}{scheduled}", self.args.inputs.seed));
        let grid = self.grid;
        row(
            "grid",
            format!("{} × {} × {} blocks of {} threads", grid[0], grid[1], grid[2], self.kernel.threads()),
        );
        row("shared memory", format!("{} bytes a block", self.kernel.shared_bytes()));
        let registers = match self.outcome.report.cuda() {
            Some(cuda) => {
                format!("{} a thread, {} bytes spilled", cuda.registers_per_thread, cuda.local_bytes)
            }
            None => format!("{} a thread for fragments", self.kernel.explanation.fragment_registers),
        };
        row("registers", registers);
        for advisory in self.outcome.report.cuda().map_or(&[][..], |cuda| &cuda.advisories) {
            row("warning", advisory.clone());
        }
        self.simulation(&mut row);
        if let Some(ms) = self.outcome.report.milliseconds() {
            row("time", format!("{ms:.4} ms (one launch)"));
        }
        if let Some(t) = &self.outcome.timing {
            row(
                "median time",
                format!("{:.4} ms of {} launches (fastest {:.4})", t.median_ms, t.runs_ms.len(), t.min_ms),
            );
        }
        for c in &self.outcome.comparisons {
            row(&format!("output {}", c.name), c.to_string());
        }
        for (name, line) in &self.added_to {
            let place = line.map_or(self.loaded.path.clone(), |line| format!("{}:{line}", self.loaded.path));
            let text = format!(
                "random numbers, to which the kernel adds ({place}), for no kernel before it fills `{name}`: for the sums alone copy zeros to it in a kernel before, or run with `--input {name}=0`"
            );
            row(&format!("before it {name}"), text);
        }
        table
    }

    /// The rows of the simulator's counts.
    fn simulation(&self, row: &mut impl FnMut(&str, String)) {
        let Some(sim) = self.outcome.report.sim() else { return };
        row("races", sim.races.iter().map(|r| r.count).sum::<u64>().to_string());
        row(
            "bank conflicts",
            format!("{} in {} shared wavefronts", sim.shared_conflicts, sim.shared_wavefronts),
        );
        row("global memory", format!("{} sectors in {} requests", sim.global_sectors, sim.global_requests));
        row("estimate", format!("{} cycles", sim.estimated_cycles));
        let seconds = self.outcome.seconds;
        let rate = sim.instructions as f64 / seconds.max(1e-9) / 1e6;
        row(
            "simulated",
            format!("{} warp instructions in {seconds:.2} s, {rate:.1} million a second", sim.instructions),
        );
    }

    fn text(&self) -> String {
        let mut text = format!("{}\n", self.table());
        if let Some(sim) = self.outcome.report.sim() {
            if self.args.profile {
                text.push_str(&profile(&Places::new(self.loaded), &sim.profile));
            }
            if let (Some(path), Some(trace)) = (&self.args.trace, &sim.trace) {
                let events = trace.events.len();
                let cut = if trace.truncated { ", the rest is left out" } else { "" };
                text.push_str(&format!(
                    "trace: {events} events in {}{cut}; open it in ui.perfetto.dev (1 µs is one cycle)\n",
                    path.display()
                ));
            }
        }
        text.push_str(&prints(self.loaded, self.outcome, self.args.print_lines));
        text.push_str(&mistakes(self.loaded, self.kernel, self.outcome, self.device.kind()));
        text.push_str(&warnings(self.args, self.loaded, &self.outcome.warnings));
        text.push_str(&format!("{}\n", self.outcome.verdict()));
        text
    }
}
