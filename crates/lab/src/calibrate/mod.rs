//! Measures a [`Timing`] table on a device, by microbenchmarks.
//!
//! A figure is a difference: the same kernel runs with a short and with a long unrolled body, and what the longer one takes
//! more, divided by what it has more, is the cost of one step. So the clock, the loop, the barriers and the start of the
//! pipeline are in no figure. Latency is measured by one warp whose steps each need the one before; issue by 4, 8 and 16
//! warps with four independent chains a thread, of which the best counts. Each kernel runs several times on several
//! multiprocessors; the median counts. `docs/calibrate.md` says how to read the result.
//!
//! ```no_run
//! use tilewright_lab::calibrate;
//! use tilewright_runtime::{DeviceChoice, open};
//!
//! let device = open(DeviceChoice::Auto)?;
//! let found = calibrate::calibrate(&*device, &calibrate::Config::quick(), |_, _, _| {})?;
//! println!("{}", found.text());
//! # Ok::<(), tilewright_runtime::RuntimeError>(())
//! ```

mod kernels;
mod recipes;

use std::fmt::Write;

use tilewright_compiler::{Kernel, Options, compile};
use tilewright_machine::timing::{Entry, Figure, Rate, Timing, number, timing};
use tilewright_machine::{Arch, OpKey, ScalarOp, copy_named};
use tilewright_runtime::{Arg, Buffer, Device, DeviceKind, RuntimeError, Sizes};
use tilewright_simt::{Builder, Function, Operand};

use kernels::{CHUNK, SLOTS, Spec, Start, Step, THREADS};
use recipes::{Data, LARGE, Latency, Recipe, rate_recipe, recipes};

/// Thoroughness of measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Runs of each kernel.
    pub runs: usize,
    /// Rounds of the unrolled body.
    pub rounds: u32,
}

impl Config {
    /// The configuration that the built-in tables are measured with; less than a minute on a GPU.
    pub fn full() -> Self {
        Config { runs: 5, rounds: 32 }
    }

    /// A few seconds on a GPU, and no more than that on the simulator.
    pub fn quick() -> Self {
        Config { runs: 1, rounds: 4 }
    }
}

/// A table with how far its figures scatter, and what could not be measured.
#[derive(Debug)]
pub struct Calibration {
    /// The table. What was not measured is taken from the built-in one, and its source says so.
    pub timing: Timing,
    /// Name and message of each measurement that failed.
    pub failures: Vec<(String, String)>,
    header: String,
}

impl Calibration {
    /// The table as a file, with the built-in figures beside its own as comments.
    pub fn text(&self) -> String {
        let built_in = timing(self.timing.arch);
        let mut text = self.header.clone();
        // Writing to a string cannot fail.
        for (name, message) in &self.failures {
            let message = message.replace('\n', " ");
            let _ = writeln!(text, "# not measured: {name}: {message}");
        }
        let _ = writeln!(text, "\narch: {}", self.timing.arch);
        for figure in &self.timing.figures {
            let known = built_in.figure(figure.rate).map_or("none".to_string(), |f| number(f.value));
            let _ = writeln!(text, "{:<90} # built in: {known}", figure.to_string());
        }
        text.push('\n');
        for entry in &self.timing.entries {
            let known = built_in.entry(entry.key);
            let known =
                known.map_or("none".to_string(), |e| format!("{} {}", number(e.issue), number(e.latency)));
            let _ = writeln!(text, "{:<90} # built in: {known}", entry.to_string());
        }
        text
    }
}

/// A microbenchmark's code: what `--ptx-dir` writes.
#[derive(Clone, Debug)]
pub struct Program {
    /// The entry point's name.
    pub name: String,
    /// Program of one thread.
    pub function: Function,
    /// The instruction that is measured.
    pub mnemonic: String,
    /// Occurrences in the body.
    pub count: u32,
}

/// Steps of the short and of the long body of a latency kernel.
fn latency_lengths(recipe: &Recipe) -> [u32; 2] {
    if recipe.long { [4, 12] } else { LENGTHS }
}

/// Steps of each chain in the short and in the long body of an issue kernel.
fn issue_lengths(recipe: &Recipe) -> [u32; 2] {
    match recipe.issue {
        _ if recipe.long => [2, 6],
        // All loads of a body are in flight together: they must fit the registers.
        Step::GlobalLoad(row) => [6 / row.registers().max(1) + 1, 2 * (6 / row.registers().max(1) + 1)],
        _ => [16, 40],
    }
}

/// Steps of the short and of the long body of a chase and of barriers.
const LENGTHS: [u32; 2] = [64, 160];

fn program(kind: &str, name: &str, mnemonic: &str, arch: Arch, spec: Spec) -> Program {
    let entry = format!("{kind}_{}_{}", name.replace('.', "_"), spec.length);
    let function = kernels::chain(&entry, arch, spec);
    Program { name: entry, function, mnemonic: mnemonic.to_string(), count: spec.chains * spec.length }
}

fn latency_program(recipe: &Recipe, step: Step, arch: Arch, length: u32) -> Program {
    let spec = Spec { step, start: recipe.start, chains: 1, length };
    let program = program("latency", &recipe.key.to_string(), &recipe.mnemonic_on(arch), arch, spec);
    Program { count: program.count * recipe.fused, ..program }
}

fn issue_program(recipe: &Recipe, arch: Arch, length: u32) -> Program {
    let spec = Spec { step: recipe.issue, start: recipe.start, chains: recipe.load.1, length };
    let program = program("issue", &recipe.key.to_string(), &recipe.mnemonic_on(arch), arch, spec);
    Program { count: program.count * recipe.fused, ..program }
}

fn rate_program(recipe: &Recipe, arch: Arch, length: u32) -> Program {
    let spec = Spec { step: recipe.issue, start: recipe.start, chains: 1, length };
    program("rate", &recipe.key.to_string(), &recipe.mnemonic_on(arch), arch, spec)
}

fn chase_program(arch: Arch, length: u32) -> Program {
    let load = copy_named("ld.global.b32").map_or(Step::Barrier, Step::Chase);
    let spec = Spec { step: load, start: Start::Offset, chains: 1, length };
    program("chase", "ld.global.b32", "ld.global.b32", arch, spec)
}

fn barrier_program(arch: Arch, length: u32) -> Program {
    let spec = Spec { step: Step::Barrier, start: Start::Offset, chains: 1, length };
    program("barrier", "bar.sync", "bar.sync", arch, spec)
}

/// A long chain of sums, for the clock.
fn clock_program(arch: Arch) -> Program {
    let step: fn(&mut Builder, Operand, &kernels::Values) -> Operand =
        |b, x, v| b.scalar(ScalarOp::AddF32, &[x, v.one_f32]);
    let spec = Spec { step: Step::Scalar(step), start: Start::Float, chains: 1, length: 128 };
    program("clock", "fma.f32", ScalarOp::AddF32.row().mnemonic, arch, spec)
}

/// The microbenchmarks that are a short and a long body, in pairs.
pub fn programs(arch: Arch) -> Vec<[Program; 2]> {
    let mut all = Vec::new();
    for recipe in recipes(arch) {
        if let Latency::Chain(step) = recipe.latency {
            all.push(latency_lengths(&recipe).map(|n| latency_program(&recipe, step, arch, n)));
        }
        all.push(issue_lengths(&recipe).map(|n| issue_program(&recipe, arch, n)));
    }
    for recipe in Rate::all(arch).filter_map(rate_recipe) {
        all.push(issue_lengths(&recipe).map(|n| rate_program(&recipe, arch, n)));
    }
    all.push(LENGTHS.map(|n| chase_program(arch, n)));
    all.push(LENGTHS.map(|n| barrier_program(arch, n)));
    all
}

/// The PTX of every microbenchmark, with its name.
pub fn ptx(arch: Arch) -> Vec<(String, String)> {
    let pairs = programs(arch).into_iter().flatten().map(|p| p.function);
    let others = [
        clock_program(arch).function,
        kernels::bandwidth("bandwidth", arch, 256),
        kernels::nothing("nothing", arch),
    ];
    pairs.chain(others).map(|f| (f.name.clone(), tilewright_ptx::print(&f))).collect()
}

/// Instructions of threads that measuring takes on the simulator, passes that warm up included: what its time is in proportion to.
pub fn simulated_instructions(arch: Arch, config: &Config) -> u64 {
    let both = |programs: [Program; 2]| programs.iter().map(|p| u64::from(p.count)).sum::<u64>();
    let mut warps = 0;
    for recipe in recipes(arch) {
        if let Latency::Chain(step) = recipe.latency {
            warps += both(latency_lengths(&recipe).map(|n| latency_program(&recipe, step, arch, n)));
        }
        let issue = both(issue_lengths(&recipe).map(|n| issue_program(&recipe, arch, n)));
        warps += recipe.load.0.iter().map(|warps| u64::from(*warps)).sum::<u64>() * issue;
    }
    32 * PASSES * warps * u64::from(config.rounds) * config.runs.max(1) as u64
}

/// Passes over the rounds of a kernel, the first to warm up.
const PASSES: u64 = 2;

/// The tile program whose parameters the kernels have. It runs nowhere.
const CARRIER: &str = "
size blocks = 1, words = 64, slots = 64, rounds = 1, passes = 1
kernel microbenchmark(data: f32[words], seeds: f32[64], out: f32[slots]) grid(blocks) threads(32) {
    from = global_view(seeds[0 :], (64) : (e0))
    to = global_view(out[0 :], (64) : (e0))
    r = register_tensor(f32, [64])
    copy(from, r)
    copy(r, to)
}
";

/// Sizes of what is measured, on a GPU and on the simulator.
struct Extents {
    blocks: u32,
    small: usize,
    middle: usize,
    large: usize,
    stream: usize,
    clock_rounds: u32,
    long_chase: u32,
}

const ON_GPU: Extents = Extents {
    blocks: 8,
    small: 16 << 10,
    middle: 16 << 20,
    large: 256 << 20,
    stream: 1 << 30,
    clock_rounds: 100_000,
    long_chase: 128,
};

const ON_SIM: Extents = Extents {
    blocks: 1,
    small: 4 << 10,
    middle: 128 << 10,
    large: 128 << 10,
    stream: 128 << 10,
    clock_rounds: 4,
    long_chase: 2,
};

/// Bytes between the places of a chase: a line.
const LINE: usize = 128;

/// A chase through every line in an order that nothing foresees: at the start of each line, where the next one is, in
/// units of 16 bytes.
fn chase(bytes: usize) -> Vec<u8> {
    let lines = bytes / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for i in (1..lines).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        order.swap(i, (state % (i as u64 + 1)) as usize);
    }
    let mut data = vec![0u8; bytes];
    for (i, line) in order.iter().enumerate() {
        let next = order[(i + 1) % lines] * (LINE / 16) as u32;
        let at = *line as usize * LINE;
        data[at..at + 4].copy_from_slice(&next.to_le_bytes());
    }
    data
}

/// A figure with half the distance between its quartiles.
#[derive(Clone, Copy, Debug)]
struct Measured {
    value: f64,
    spread: f64,
}

fn median(mut values: Vec<f64>) -> Option<Measured> {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| values.get(((values.len() as f64 - 1.0) * share).round() as usize).copied();
    let (low, high) = (at(0.25)?, at(0.75)?);
    let n = values.len();
    Some(Measured { value: (values[(n - 1) / 2] + values[n / 2]) / 2.0, spread: (high - low) / 2.0 })
}

/// Reason why a figure is missing.
type Failure = String;

/// The device with the buffers of all microbenchmarks.
struct Bench<'a> {
    device: &'a dyn Device,
    arch: Arch,
    config: &'a Config,
    extents: &'static Extents,
    carrier: Kernel,
    scratch: Buffer,
    small: Buffer,
    middle: Buffer,
    seeds: Buffer,
    out: Buffer,
}

struct Run<'a> {
    blocks: u32,
    warps: u32,
    rounds: u32,
    passes: u32,
    data: &'a Buffer,
}

impl<'a> Bench<'a> {
    fn new(device: &'a dyn Device, arch: Arch, config: &'a Config) -> Result<Self, RuntimeError> {
        let extents = if device.kind() == DeviceKind::Cuda { &ON_GPU } else { &ON_SIM };
        let program = tilewright_tile::parse(CARRIER).map_err(|e| carrier(&e))?;
        let carrier = compile(&program, &Options::new(arch)).map_err(|e| carrier(&e))?;
        let filled = |bytes: usize| -> Result<Buffer, RuntimeError> {
            let buffer = device.alloc(bytes)?;
            device.upload(&buffer, &chase(bytes))?;
            Ok(buffer)
        };
        let bench = Bench {
            arch,
            config,
            extents,
            carrier,
            scratch: device.alloc((kernels::STREAM_BYTES * extents.blocks) as usize)?,
            small: filled(extents.small)?,
            middle: filled(extents.middle)?,
            seeds: device.alloc(4 * kernels::SEEDS as usize)?,
            out: device.alloc(4 * (64 * THREADS * SLOTS) as usize)?,
            device,
        };
        bench.start_at(0)?;
        Ok(bench)
    }

    /// Chains of offsets begin here from now on.
    fn start_at(&self, start: u32) -> Result<(), RuntimeError> {
        let bytes: Vec<u8> = kernels::seeds(start).into_iter().flat_map(u32::to_le_bytes).collect();
        self.device.upload(&self.seeds, &bytes)
    }

    fn kernel(&self, function: Function, warps: u32) -> Kernel {
        let mut kernel = self.carrier.with_function(function);
        kernel.function.threads = 32 * warps;
        kernel
    }

    fn sizes(&self, run: &Run<'_>) -> Sizes {
        let sizes = [
            ("blocks", run.blocks as i64),
            ("words", (run.data.bytes() / 4) as i64),
            ("slots", (self.out.bytes() / 4) as i64),
            ("rounds", i64::from(run.rounds)),
            ("passes", i64::from(run.passes)),
        ];
        sizes.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
    }

    fn args<'b>(&'b self, run: &Run<'b>) -> [Arg<'b>; 3] {
        [Arg::Buffer(run.data), Arg::Buffer(&self.seeds), Arg::Buffer(&self.out)]
    }

    /// The cycles of each block, the word that its first chain ends with, and the milliseconds of the launch.
    fn launch(&self, kernel: &Kernel, run: &Run<'_>) -> Result<(Vec<f64>, u32, Option<f64>), RuntimeError> {
        let report = self.device.launch(kernel, &self.sizes(run), &self.args(run))?;
        let bytes = self.device.download(&self.out)?;
        let words: Vec<u32> =
            bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect();
        let block = |index: u32| {
            let first = (index * THREADS * SLOTS) as usize;
            let threads = words[first..].chunks_exact(SLOTS as usize).take(32 * run.warps as usize);
            let zero = words[first];
            // Clocks wrap: they count from the first thread's.
            let starts = threads.clone().map(|t| t[0].wrapping_sub(zero) as i32);
            let ends = threads.map(|t| t[1].wrapping_sub(zero) as i32);
            let (start, end) = (starts.min().unwrap_or(0), ends.max().unwrap_or(0));
            f64::from(end) - f64::from(start)
        };
        Ok(((0..run.blocks.min(64)).map(block).collect(), words[2], report.milliseconds()))
    }

    /// The cycles that one step more of each chain takes.
    fn slope(&self, programs: [Program; 2], chains: u32, run: &Run<'_>) -> Result<Measured, Failure> {
        let steps = f64::from((programs[1].count - programs[0].count) / chains.max(1));
        let kernels = programs.map(|p| self.kernel(p.function, run.warps));
        let mut values = Vec::new();
        for _ in 0..self.config.runs.max(1) {
            let [short, long] = [0, 1].map(|i| self.launch(&kernels[i], run));
            let (short, long) = (short.map_err(text)?.0, long.map_err(text)?.0);
            let more = short.iter().zip(&long).map(|(s, l)| (l - s) / (steps * f64::from(run.rounds)));
            values.extend(more);
        }
        median(values).ok_or_else(|| "nothing ran".to_string())
    }

    fn run(&self, data: Data, warps: u32) -> Run<'_> {
        let buffer = match data {
            Data::Scratch => &self.scratch,
            Data::Small => &self.small,
            Data::Middle => &self.middle,
        };
        Run {
            blocks: self.extents.blocks,
            warps,
            rounds: self.config.rounds,
            passes: PASSES as u32,
            data: buffer,
        }
    }

    fn latency(&self, recipe: &Recipe, step: Step) -> Result<Measured, Failure> {
        let programs = latency_lengths(recipe).map(|n| latency_program(recipe, step, self.arch, n));
        let chased = matches!(step, Step::Chase(_) | Step::AsyncChase(_));
        let mut run = self.run(if chased { recipe.data } else { Data::Scratch }, recipe.warps);
        if chased {
            // More lines than the L1 cache holds, so that the second pass finds none there.
            run.rounds = self.extents.long_chase;
        }
        let one = self.slope(programs, 1, &run)?;
        let share = self.fusion(recipe);
        Ok(Measured { value: one.value * share, spread: one.spread * share })
    }

    /// Operations that are one instruction: the simulator has no assembler that would fuse them.
    fn fusion(&self, recipe: &Recipe) -> f64 {
        if self.device.kind() == DeviceKind::Sim { 1.0 } else { f64::from(recipe.fused) }
    }

    fn issue(&self, recipe: &Recipe, units: u32) -> Result<Measured, Failure> {
        let mut best: Option<Measured> = None;
        let (load, chains) = recipe.load;
        for warps in load {
            let programs = issue_lengths(recipe).map(|n| issue_program(recipe, self.arch, n));
            let all = self.slope(programs, chains, &self.run(Data::Scratch, *warps))?;
            let share = f64::from(units) * self.fusion(recipe) / f64::from(chains * warps);
            let one = Measured { value: all.value * share, spread: all.spread * share };
            if best.is_none_or(|b| one.value < b.value) {
                best = Some(one);
            }
        }
        best.ok_or_else(|| "nothing ran".to_string())
    }

    fn chase(&self, data: Data) -> Result<Measured, Failure> {
        let mut run = self.run(data, 1);
        run.rounds = if data == Data::Small { self.config.rounds } else { self.extents.long_chase };
        self.slope(LENGTHS.map(|n| chase_program(self.arch, n)), 1, &run)
    }

    /// A chase that meets no line twice: each launch goes on where the one before ended.
    fn dram_latency(&self) -> Result<Measured, Failure> {
        let large = self.device.alloc(self.extents.large).map_err(text)?;
        self.device.upload(&large, &chase(self.extents.large)).map_err(text)?;
        let run = Run { blocks: 1, warps: 1, rounds: self.extents.long_chase, passes: 1, data: &large };
        let programs = LENGTHS.map(|n| chase_program(self.arch, n));
        let steps = f64::from(programs[1].count - programs[0].count) * f64::from(run.rounds);
        let kernels = programs.map(|p| self.kernel(p.function, 1));
        let mut values = Vec::new();
        for _ in 0..self.config.runs.max(1) {
            let mut cycles = [0.0; 2];
            for (kernel, cycles) in kernels.iter().zip(&mut cycles) {
                let (blocks, end, _) = self.launch(kernel, &run).map_err(text)?;
                *cycles = blocks[0];
                self.start_at(end).map_err(text)?;
            }
            values.push((cycles[1] - cycles[0]) / steps);
        }
        self.start_at(0).map_err(text)?;
        median(values).ok_or_else(|| "nothing ran".to_string())
    }

    fn clock(&self) -> Result<Measured, Failure> {
        let kernel = self.kernel(clock_program(self.arch).function, 1);
        let mut run = self.run(Data::Scratch, 1);
        (run.rounds, run.passes, run.blocks) = (self.extents.clock_rounds, 1, 1);
        let mut values = Vec::new();
        for _ in 0..self.config.runs.max(2) {
            let (cycles, _, milliseconds) = self.launch(&kernel, &run).map_err(text)?;
            let milliseconds = milliseconds.ok_or("the simulator has no clock")?;
            values.push(cycles[0] / milliseconds / 1e3);
        }
        median(values).ok_or_else(|| "nothing ran".to_string())
    }

    /// Bytes a cycle and multiprocessor of a plain stream.
    fn bandwidth(&self, data: &Buffer, once: bool, figures: &Figures) -> Result<Measured, Failure> {
        let chunks = (data.bytes() as u32 / CHUNK).max(1);
        let function = kernels::bandwidth("bandwidth", self.arch, chunks);
        let kernel = self.kernel(function, THREADS / 32);
        let warps = THREADS / 32;
        if self.device.kind() == DeviceKind::Sim {
            let rounds = self.config.rounds;
            let run = Run { blocks: 1, warps, rounds, passes: 1, data };
            let (cycles, ..) = self.launch(&kernel, &run).map_err(text)?;
            let bytes = f64::from(CHUNK) * f64::from(rounds);
            return median(cycles.into_iter().map(|c| bytes / c).collect()).ok_or("nothing ran".to_string());
        }
        let multiprocessors = figures.rate(Rate::Multiprocessors);
        let (blocks, rounds) = if once { (chunks, 1) } else { (2 * multiprocessors as u32, 64) };
        // Neighbours begin a few chunks apart.
        let run = Run { blocks, warps, rounds, passes: if once { 1 } else { 7 }, data };
        let repeats = self.config.runs.max(3);
        let times =
            self.device.time(&kernel, &self.sizes(&run), &self.args(&run), 2, repeats).map_err(text)?;
        let times = times.ok_or("the device has no clock")?;
        let bytes = f64::from(blocks) * f64::from(rounds) * f64::from(CHUNK);
        let clock = figures.rate(Rate::ClockMhz) * 1e3;
        let per = |milliseconds: &f64| bytes / (milliseconds * clock) / multiprocessors;
        median(times.runs_ms.iter().map(per).collect()).ok_or_else(|| "nothing ran".to_string())
    }

    fn dram_bandwidth(&self, figures: &Figures) -> Result<Measured, Failure> {
        let stream = self.device.alloc(self.extents.stream).map_err(text)?;
        self.bandwidth(&stream, true, figures)
    }

    fn launch_us(&self) -> Result<Measured, Failure> {
        let kernel = self.kernel(kernels::nothing("nothing", self.arch), 1);
        let mut run = self.run(Data::Scratch, 1);
        run.blocks = 1;
        let times = self.device.time(&kernel, &self.sizes(&run), &self.args(&run), 10, 50).map_err(text)?;
        let times = times.ok_or("the simulator has no clock")?;
        median(times.runs_ms.iter().map(|ms| ms * 1e3).collect()).ok_or_else(|| "nothing ran".to_string())
    }
}

fn text(error: RuntimeError) -> Failure {
    error.to_string()
}

/// The program that carries the kernels is a literal that a test compiles.
fn carrier(_: &tilewright_tile::Diagnostics) -> RuntimeError {
    RuntimeError::Inconsistent { kernel: "microbenchmark".to_string() }
}

/// Figures measured so far; those that were not are the built-in table's.
struct Figures {
    built_in: &'static Timing,
    source: String,
    entries: Vec<Entry>,
    rates: Vec<Figure>,
    failures: Vec<(String, String)>,
}

impl Figures {
    fn rate(&self, rate: Rate) -> f64 {
        let measured = self.rates.iter().find(|f| f.rate == rate).map(|f| f.value);
        measured.unwrap_or_else(|| self.built_in.rate(rate))
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().chain(&self.built_in.entries).find(|e| e.key.to_string() == name)
    }

    fn sum(&self, names: &[&str], part: impl Fn(&Entry) -> f64) -> f64 {
        names.iter().filter_map(|n| self.entry(n)).map(part).sum()
    }

    fn note_rate(&mut self, rate: Rate, found: Result<Measured, Failure>) {
        match found.and_then(positive) {
            Ok(m) => {
                let source = format!("{} (± {})", self.source, number(m.spread));
                self.rates.push(Figure { rate, value: m.value, source });
            }
            Err(message) => self.failures.push((rate.name().to_string(), message)),
        }
    }
}

fn positive(m: Measured) -> Result<Measured, Failure> {
    if m.value.is_finite() && m.value > 0.0 {
        Ok(m)
    } else {
        Err(format!("the figure is {}, which cannot be", number(m.value)))
    }
}

/// Measures the table of a device's architecture (on the simulator sm_90a). `progress` is told, before each measurement, how
/// many are done, how many there are, and what comes. Measurements that fail are in the result.
///
/// # Errors
///
/// Nothing at all can run.
pub fn calibrate(
    device: &dyn Device,
    config: &Config,
    mut progress: impl FnMut(usize, usize, &str),
) -> Result<Calibration, RuntimeError> {
    let arch = device.arch().unwrap_or(Arch::SM_90A);
    let bench = Bench::new(device, arch, config)?;
    let chip = device.chip();
    let simulated = device.kind() == DeviceKind::Sim;
    let source = if simulated {
        "the simulator's own model".to_string()
    } else {
        format!("measured on {}", device.name())
    };
    let built_in = timing(arch);
    let mut figures =
        Figures { built_in, source, entries: Vec::new(), rates: Vec::new(), failures: Vec::new() };

    let recipes = recipes(arch);
    let total = recipes.len() + Rate::all(arch).count();
    let mut done = 0;
    let mut next = |name: &str| {
        progress(done, total, name);
        done += 1;
    };

    next(Rate::ClockMhz.name());
    if simulated {
        figures.failures.push(("clock_mhz, launch_us".to_string(), "the simulator has no clock".to_string()));
    } else {
        figures.note_rate(Rate::ClockMhz, bench.clock());
    }
    next(Rate::Multiprocessors.name());
    if let Some(count) = chip.multiprocessors {
        let source = format!("{}, as the driver says", device.name());
        figures.rates.push(Figure { rate: Rate::Multiprocessors, value: f64::from(count), source });
    }
    for (rate, recipe) in Rate::all(arch).filter_map(|rate| Some((rate, rate_recipe(rate)?))) {
        next(rate.name());
        let programs = issue_lengths(&recipe).map(|n| rate_program(&recipe, arch, n));
        let cycles = bench.slope(programs, 1, &bench.run(Data::Scratch, 1));
        let per = |m: Measured| Measured { value: f64::from(LARGE) / m.value, spread: 0.0 };
        figures.note_rate(rate, cycles.map(per));
    }
    for recipe in &recipes {
        let name = recipe.key.to_string();
        next(&name);
        match measure(&bench, recipe, &figures) {
            Ok(entry) => figures.entries.push(entry),
            Err(message) => figures.failures.push((name, message)),
        }
    }
    // An address of global memory is a product and a sum of 64 bits in one instruction.
    let address = figures.sum(&["imad.wide"], |e| e.latency);
    let load = |found: Result<Measured, Failure>| found.map(|m| Measured { value: m.value - address, ..m });
    next(Rate::L1Latency.name());
    figures.note_rate(Rate::L1Latency, load(bench.chase(Data::Small)));
    next(Rate::L2Latency.name());
    figures.note_rate(Rate::L2Latency, load(bench.chase(Data::Middle)));
    for (rate, warps) in [(Rate::Barrier4, 4), (Rate::Barrier8, 8)] {
        next(rate.name());
        let programs = LENGTHS.map(|n| barrier_program(arch, n));
        figures.note_rate(rate, bench.slope(programs, 1, &bench.run(Data::Scratch, warps)));
    }
    // A warp's widest access is of 512 bytes.
    for (rate, name) in [(Rate::SharedBytes, "ld.shared.v4.b32"), (Rate::StoreBytes, "st.global.v4.b32")] {
        next(rate.name());
        let entry = figures.entries.iter().find(|e| e.key.to_string() == name);
        let value = entry.map(|e| 512.0 / e.issue).ok_or_else(|| format!("{name} was not measured"));
        figures.note_rate(rate, value.map(|value| Measured { value, spread: 0.0 }));
    }
    next(Rate::L2Bytes.name());
    let found = bench.bandwidth(&bench.middle, false, &figures);
    figures.note_rate(Rate::L2Bytes, found);
    next(Rate::DramBytes.name());
    let found = bench.dram_bandwidth(&figures);
    figures.note_rate(Rate::DramBytes, found);
    next(Rate::DramLatency.name());
    figures.note_rate(Rate::DramLatency, load(bench.dram_latency()));
    next(Rate::LaunchUs.name());
    if !simulated {
        figures.note_rate(Rate::LaunchUs, bench.launch_us());
    }

    let header = header(device, arch, config);
    Ok(Calibration { timing: table(arch, &figures), failures: figures.failures, header })
}

/// An entry by its recipe.
fn measure(bench: &Bench<'_>, recipe: &Recipe, figures: &Figures) -> Result<Entry, Failure> {
    let mut issue = bench.issue(recipe, recipe.key.unit().count())?;
    issue.value -= figures.sum(recipe.less_issue, |e| e.issue);
    let issue = positive(issue)?;
    let (latency, how) = match recipe.latency {
        Latency::Chain(step) => {
            let mut latency = bench.latency(recipe, step)?;
            latency.value -= figures.sum(recipe.less_latency, |e| e.latency);
            latency.value -= recipe.moved.map_or(0.0, |(rate, bytes)| f64::from(bytes) / figures.rate(rate));
            (positive(latency)?, String::new())
        }
        Latency::Like(name) => {
            let other = figures.entry(name).ok_or("what it is like was not measured")?;
            (Measured { value: other.latency, spread: 0.0 }, format!(", latency as of {name}"))
        }
        Latency::Issue => (issue, ", nobody waits for it".to_string()),
    };
    let spread = format!(" (± {} {})", number(issue.spread), number(latency.spread));
    Ok(Entry {
        key: recipe.key,
        issue: issue.value,
        latency: latency.value,
        source: format!("{}{how}{spread}", figures.source),
    })
}

/// The whole table, in the usual order.
fn table(arch: Arch, figures: &Figures) -> Timing {
    let rates = Rate::all(arch).filter_map(|rate| {
        let measured = figures.rates.iter().find(|f| f.rate == rate).cloned();
        measured.or_else(|| {
            let known = figures.built_in.figure(rate)?;
            Some(Figure { source: format!("not measured; built in: {}", known.source), ..known.clone() })
        })
    });
    let entries = OpKey::all(arch).into_iter().filter_map(|key| {
        let measured = figures.entries.iter().find(|e| e.key == key).cloned();
        measured.or_else(|| {
            let known = figures.built_in.entry(key)?;
            Some(Entry { source: format!("not measured; built in: {}", known.source), ..known.clone() })
        })
    });
    Timing { arch, figures: rates.collect(), entries: entries.collect() }
}

fn header(device: &dyn Device, arch: Arch, config: &Config) -> String {
    let chip = device.chip();
    let mut text = "# Latency and throughput, measured by `tilewright calibrate`.\n".to_string();
    let mut line = |what: &str, value: String| text.push_str(&format!("# {what}: {value}\n"));
    line("device", format!("{} ({})", device.name(), device.kind()));
    if let Some(cuda) = chip.cuda {
        line("driver", format!("CUDA {cuda}"));
    }
    if let Some(clock) = chip.clock_mhz {
        line("highest clock", format!("{clock} MHz"));
    }
    line("architecture", arch.to_string());
    line("effort", format!("{} runs of {} rounds", config.runs, config.rounds));
    if device.kind() == DeviceKind::Sim {
        line("note", "these figures are the simulator's own model, not those of any hardware".to_string());
    }
    text.push_str(
        "# Rates are `name: value source`, entries `name unit issue latency source`. (± …) is half the distance between the\n\
         # quartiles, for entries of issue and of latency. The comment at the end of a line is the built-in figure.\n",
    );
    text
}

#[cfg(test)]
mod tests;
