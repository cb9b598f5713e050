//! `tilewright run`: compile, execute on random inputs, compare with the reference interpreter.

use std::process::ExitCode;
use std::time::Instant;

use comfy_table::{Table, presets};
use serde_json::json;
use tilewright::check::{CheckOptions, Outcome, check};
use tilewright::compiler::Kernel;
use tilewright::machine::Arch;
use tilewright::runtime::{self, Device, DeviceChoice};
use tilewright::sim::Config;

use crate::args::{Checks, RunArgs};
use crate::load::{Loaded, arch, load, timing};
use crate::messages::{Failure, error, print};

/// Compiles, runs and checks a program.
pub fn run(args: &RunArgs) -> Result<ExitCode, Failure> {
    let choice: DeviceChoice = args.device.parse().map_err(Failure::usage)?;
    let wanted = arch(&args.program, Arch::Sm80)?;
    let loaded = load(&args.program)?;
    let config = Config { seed: args.seed, ..Config::default() };
    let config = match args.checks {
        Checks::Off => config.unchecked(),
        Checks::Races => config.only_races(),
        Checks::All => config,
    };
    let device = open_with(choice, config).map_err(|e| Failure::program(error(e)))?;
    let arch = if args.program.arch.is_some() { wanted } else { device.arch().unwrap_or(wanted) };
    let started = Instant::now();
    let mut options = loaded.options(arch);
    options.timing = timing(&args.program, arch)?;
    let kernel = loaded.compile(&options)?;
    let compile_ms = started.elapsed().as_secs_f64() * 1e3;

    let options = CheckOptions {
        sizes: loaded.sizes.clone(),
        scalars: loaded.scalars.clone(),
        seed: args.seed,
        repeat: args.repeat,
    };
    let outcome = check(&kernel, device.as_ref(), &options).map_err(|e| Failure::program(error(e)))?;
    let summary = Summary {
        args,
        loaded: &loaded,
        kernel: &kernel,
        device: device.as_ref(),
        outcome: &outcome,
        compile_ms,
    };
    let text = if args.json { format!("{:#}\n", summary.json()) } else { summary.text() };
    print(&text)?;
    Ok(if outcome.is_right() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Opens a device; the simulator with a seed.
pub fn open(choice: DeviceChoice, seed: u64) -> Result<Box<dyn Device>, runtime::RuntimeError> {
    open_with(choice, Config { seed, ..Config::default() })
}

/// Opens a device; the simulator with a configuration.
fn open_with(choice: DeviceChoice, config: Config) -> Result<Box<dyn Device>, runtime::RuntimeError> {
    let device = runtime::open(choice)?;
    if device.kind() == runtime::DeviceKind::Sim {
        return Ok(Box::new(runtime::SimDevice::new(config)));
    }
    Ok(device)
}

struct Summary<'a> {
    args: &'a RunArgs,
    loaded: &'a Loaded,
    kernel: &'a Kernel,
    device: &'a dyn Device,
    outcome: &'a Outcome,
    compile_ms: f64,
}

impl Summary<'_> {
    fn grid(&self) -> [u32; 3] {
        tilewright::tile::interpret::grid(&self.kernel.verified, &self.loaded.sizes).unwrap_or([0; 3])
    }

    /// What is wrong besides results, with the lines of the statements.
    fn problems(&self) -> Vec<String> {
        let line = |position: u32| {
            let before = self.loaded.source.as_bytes().get(..position as usize).unwrap_or_default();
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            format!("{}:{line}", self.loaded.path)
        };
        self.outcome.report.sim().map(|sim| sim.problems_at(&line)).unwrap_or_default()
    }

    fn json(&self) -> serde_json::Value {
        let outputs: Vec<_> = self
            .outcome
            .comparisons
            .iter()
            .map(|c| {
                json!({
                    "name": c.name,
                    "max_relative_error": if c.max_error.is_finite() { json!(c.max_error) } else { json!(null) },
                    "tolerance": c.tolerance,
                    "wrong": c.wrong,
                })
            })
            .collect();
        json!({
            "right": self.outcome.is_right(),
            "kernel": self.kernel.function.name,
            "device": { "kind": self.device.kind().to_string(), "name": self.device.name() },
            "arch": self.kernel.function.arch.to_string(),
            "sizes": self.loaded.sizes,
            "constants": self.kernel.verified.constants(),
            "seed": self.args.seed,
            "grid": self.grid(),
            "threads": self.kernel.threads(),
            "shared_bytes": self.kernel.shared_bytes(),
            "fragment_registers": self.kernel.explanation.fragment_registers,
            "registers_per_thread": self.outcome.report.cuda().map(|c| c.registers_per_thread),
            "local_bytes": self.outcome.report.cuda().map(|c| c.local_bytes),
            "advisories": self.outcome.report.cuda().map(|c| &c.advisories),
            "milliseconds": self.outcome.timing.as_ref().map(|t| t.median_ms).or(self.outcome.report.milliseconds()),
            "compile_ms": self.compile_ms,
            "outputs": outputs,
            "problems": self.problems(),
            "simulation": self.outcome.report.sim(),
        })
    }

    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        let mut row = |name: &str, value: String| {
            table.add_row([name.to_string(), value]);
        };
        let auto = if self.args.device == "auto" { ", chosen by --device auto" } else { "" };
        row("device", format!("{} ({}{auto})", self.device.name(), self.device.kind()));
        row(
            "kernel",
            format!(
                "{} for {}, compiled in {:.1} ms",
                self.kernel.function.name, self.kernel.function.arch, self.compile_ms
            ),
        );
        let sizes: Vec<String> = self.loaded.sizes.iter().map(|(n, v)| format!("{n}={v}")).collect();
        let sizes = if sizes.is_empty() { "none".to_string() } else { sizes.join(" ") };
        row("sizes", format!("{sizes}, seed {}", self.args.seed));
        let grid = self.grid();
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
        if let Some(sim) = self.outcome.report.sim() {
            row("races", sim.races.iter().map(|r| r.count).sum::<u64>().to_string());
            row(
                "bank conflicts",
                format!("{} in {} shared wavefronts", sim.shared_conflicts, sim.shared_wavefronts),
            );
            row(
                "global memory",
                format!("{} sectors in {} requests", sim.global_sectors, sim.global_requests),
            );
            row("estimate", format!("{} cycles", sim.estimated_cycles));
            let seconds = self.outcome.seconds;
            let rate = sim.instructions as f64 / seconds.max(1e-9) / 1e6;
            row(
                "simulated",
                format!(
                    "{} warp instructions in {seconds:.2} s, {rate:.1} million a second",
                    sim.instructions
                ),
            );
        }
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
            row(
                &format!("output {}", c.name),
                format!(
                    "max relative error {:.2e} against the interpreter (tolerance {:.1e})",
                    c.max_error, c.tolerance
                ),
            );
        }
        let mut text = format!("{table}\n");
        for c in &self.outcome.comparisons {
            if let Some((index, expected, actual)) = c.first {
                let wrong = format!(
                    "output `{}` has {} wrong elements; element {index} is {actual} and should be {expected}",
                    c.name, c.wrong
                );
                text.push_str(&format!("{}\n", error(wrong)));
            }
        }
        for problem in &self.problems() {
            text.push_str(&format!("{}\n", error(problem)));
        }
        text.push_str(if self.outcome.is_right() { "right\n" } else { "WRONG\n" });
        text
    }
}
