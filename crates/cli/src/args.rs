//! The command line.

mod devices;
mod operators;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tilewright::findings::Detail;
use tilewright::synth::Options as SynthOptions;

pub use devices::{BenchArgs, BenchWhat, CalibrateArgs, DevicesArgs, FidelityArgs, GemmBenchArgs, PeerName};
pub use operators::{
    CheckpointFormat, KernelsArgs, L2Args, MergeArgs, PackArgs, PackBuildArgs, PackCommand, RecordsArgs,
    RecordsCommand, RepackArgs, Shard, TuneArgs,
};

/// Compile, explain, run and check GPU tile kernels.
///
/// A tile program (*.tile) says what is computed on which tile and where each tile lives. Tilewright works out layouts,
/// instructions, addresses and synchronisation, runs the kernel on a GPU or on a simulated one, and emits PTX.
/// A task program (*.task) says what is computed, in order, and mappings say where; it is verified and run by its interpreter.
///
/// Begin with: tilewright run examples/gemm_shared.tile
///
/// Exit codes: 0 all is well, 1 the program or its result is wrong, 2 the command line is, 3 the compiler is: please report that.
#[derive(Parser)]
#[command(version, propagate_version = true)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands of `tilewright`.
#[derive(Subcommand)]
pub enum Command {
    /// Compile a program, run it on random inputs, and compare with the reference interpreter
    Run(RunArgs),
    /// Compile a program and print one of its forms
    Compile(CompileArgs),
    /// Verify programs, look for what they hardly mean, and compile them for several architectures; nothing is run
    Check(CheckArgs),
    /// Say what the code of a message means, with a wrong and a right program; without one, list the codes
    Explain(ExplainArgs),
    /// Serve an editor: diagnostics, hover, completion, definitions and formatting by the Language Server Protocol on standard input and output
    Lsp(LspArgs),
    /// Write a page with a program's costs, layouts, timeline and alternatives, to open in a browser
    View(ViewArgs),
    /// Bring programs into the form that all have: indentation, blanks and empty lines
    Fmt(FmtArgs),
    /// Run every candidate of a program's layouts and instructions, and compare estimates with what they take
    Candidates(CandidatesArgs),
    /// Make a program's kernel wrong in many ways, and see which of them the simulator finds
    Mutate(MutateArgs),
    /// Print the trees of instances of a task program's mappings
    Tasks(TasksArgs),
    /// Evaluate an expression over layouts
    Layout(LayoutArgs),
    /// List the operators that come with Tilewright, or print the program of one
    Kernels(KernelsArgs),
    /// Find the fastest configuration of an operator for a problem by measuring, and keep it
    Tune(TuneArgs),
    /// Put files of records together, as `tune --shard` leaves them
    Records(RecordsArgs),
    /// Put weights of a few bits in the order in which `gemm_weights` reads them
    Repack(RepackArgs),
    /// Keep kernels in a file that programs without the compiler launch from, list what one holds, or compile it again
    Pack(PackArgs),
    /// List the devices that kernels can run on
    Devices(DevicesArgs),
    /// Measure what instructions and the chip cost, as a table for --timing
    Calibrate(CalibrateArgs),
    /// Compare what each instruction does on the simulator and on a device
    Fidelity(FidelityArgs),
    /// Measure an operator on a GPU, beside a library if wanted
    Bench(BenchArgs),
}

/// `tilewright check`
#[derive(Args)]
pub struct CheckArgs {
    /// The tile programs, or task programs (*.task)
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// A value for a size or a tile constant, e.g. -p m=512 -p BM=64
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// An architecture to compile for; without, those on which kernels have run: sm_80, sm_89 and sm_90a. May be given several times
    #[arg(long, value_name = "ARCH")]
    pub arch: Vec<String>,
    /// Make warnings mistakes
    #[arg(long)]
    pub deny_warnings: bool,
    /// Print one JSON object instead of messages and a table
    #[arg(long)]
    pub json: bool,
}

/// `tilewright tasks`
#[derive(Args)]
pub struct TasksArgs {
    /// The task program (*.task)
    pub file: PathBuf,
    /// The mapping of this name alone
    #[arg(long, value_name = "NAME")]
    pub mapping: Option<String>,
    /// Printed form of each mapping
    #[arg(long, value_enum, default_value_t = TasksEmit::Tree)]
    pub emit: TasksEmit,
    /// A value for a constant, e.g. -p D=64
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
}

/// Printed form of `tilewright tasks`.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TasksEmit {
    /// The launches with their instances, memories and tunables
    Tree,
    /// The graph of statements and copies: replicas with their memories, and the events that each waits for
    Events,
    /// The copies between each task and its caller, with what became of each
    Copies,
    /// The shared memory of each kernel, with the places in it, and the registers of the threads that compute
    Memory,
    /// The graph as a picture: a lane for each role, rings with their stages, and the circuits that decide how long iterations take
    Svg,
    /// The tile program
    Tile,
}

/// `tilewright explain`
#[derive(Args)]
pub struct ExplainArgs {
    /// Codes, as messages have them in brackets, e.g. shape-mismatch
    #[arg(value_name = "CODE")]
    pub codes: Vec<String>,
}

/// `tilewright lsp`
#[derive(Args)]
pub struct LspArgs {
    /// Standard input and output, which are the only way: clients that offer several add this
    #[arg(long, hide = true)]
    pub stdio: bool,
}

/// `tilewright fmt`
#[derive(Args)]
pub struct FmtArgs {
    /// The tile programs, which are written anew where they change; `-` reads one from standard input and prints it
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// Change nothing: name the files that would change, and fail if there are any
    #[arg(long)]
    pub check: bool,
}

/// A program, and values for its sizes, constants and scalars.
#[derive(Args)]
pub struct ProgramArgs {
    /// The tile program, or for `compile` and `run` the text of a core program (see --emit core); `-` reads it from standard input
    pub file: PathBuf,
    /// Of a file with several kernels the one of this name; without, `run` and `compile` take all of them
    #[arg(long, value_name = "NAME")]
    pub kernel: Option<String>,
    /// Of a task program (*.task) the mapping of this name; without, the first
    #[arg(long, value_name = "NAME")]
    pub mapping: Option<String>,
    /// A value for a size, a tile constant or a scalar parameter, e.g. -p m=512 -p BM=64 -p alpha=0.5
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// Leave constants at their defaults, where `tilewright tune` recorded faster values for them
    #[arg(long)]
    pub defaults: bool,
    /// The architecture to compile for, as sm_90a; without, that of the GPU, or where there is none the least that has all
    /// that the program uses
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// A table of costs, as `tilewright calibrate` prints it, instead of the built-in one of the architecture
    #[arg(long, value_name = "FILE")]
    pub timing: Option<PathBuf>,
    /// Take the candidate of this number (see `compile --emit report`) instead of the one with the fewest cycles
    #[arg(long, value_name = "N")]
    pub candidate: Option<usize>,
    /// Candidates that the search for layouts and instructions looks at, at most
    #[arg(long, value_name = "N", default_value_t = SynthOptions::CANDIDATES)]
    pub budget: usize,
    /// Steps that the search takes, at most: they bound its time, in the same way on every machine
    #[arg(long, value_name = "N", default_value_t = SynthOptions::STEPS)]
    pub steps: u64,
    /// Shuffles the order in which the search tries arrangements; 0 keeps their own order
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub search_seed: u64,
    /// Leave out a part of synthesis, to measure what it is worth
    #[arg(long, value_enum, value_name = "PART")]
    pub without: Vec<Without>,
    /// Leave the lines of the program out of PTX: those that ncu, compute-sanitizer and cuda-gdb show beside the code
    #[arg(long)]
    pub no_lines: bool,
    /// Keep `assert` and `print` in PTX: a GPU then says which do not hold and shows the same as the simulator, which has them anyway
    #[arg(long)]
    pub debug: bool,
}

/// A part of synthesis.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Without {
    /// Shared tensors are laid out as they are copied from global memory, without a swizzle
    SharedLayouts,
    /// Fragments are distributed as is natural for the copy that loads them, and rearranged for every matrix product
    ThreadValues,
}

/// Checks of the simulator.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Checks {
    /// Only what costs no time: accesses out of bounds, misuses of barriers and asynchronous engines
    Off,
    /// Races too
    Races,
    /// Reads of what nothing has written too
    All,
}

/// `tilewright run`
///
/// Inputs are uniform random numbers, reproducible by --seed. The interpreter does what the program says, so that it shares the program's
/// mistakes: elements of outputs that nothing writes, of inputs that nothing reads, values that are overwritten. These are warnings, and
/// `right` says so. The exit code is 0 only if every output agrees with the reference interpreter and, on the simulator, no race, stray or misaligned access was seen. docs/simulator.md says what
/// the simulator finds, and how its seeds, profiles and traces are read.
#[derive(Args)]
pub struct RunArgs {
    /// The program.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Device to run on: auto (a GPU if there is one, else the simulator), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// The inputs.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Write an output to a file `y.npy` or `y.safetensors:name`
    #[arg(long, value_name = "NAME=FILE", conflicts_with = "seeds")]
    pub output: Vec<String>,
    /// Let an element x differ from the interpreter's by T · (1 + |x|), instead of the bound that the interpreter carries to it
    #[arg(long, value_name = "T", value_parser = tolerance)]
    pub tolerance: Option<f64>,
    /// Checks of the simulator, in addition to wrong results and accesses
    #[arg(long, value_enum, value_name = "WHAT", default_value = "all")]
    pub checks: Checks,
    /// Time this many further launches (GPU only) and report their median
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub repeat: usize,
    /// Decides what hardware leaves open: the order of warps and of asynchronous engines; 0 runs warps in order (simulator only)
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub sim_seed: u64,
    /// Run with as many seeds, from --sim-seed on, and stop at the first that fails (simulator only)
    #[arg(long, value_name = "N", value_parser = seeds)]
    pub seeds: Option<u64>,
    /// Run all seeds even if one fails
    #[arg(long, requires = "seeds")]
    pub keep_going: bool,
    /// Lines of what the program prints that are shown at most
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub print_lines: usize,
    /// Count instructions, bytes and cycles of each statement, and print them (simulator only)
    #[arg(long, conflicts_with = "seeds")]
    pub profile: bool,
    /// Write what one cluster does when, for ui.perfetto.dev (simulator only)
    #[arg(long, value_name = "FILE", conflicts_with = "seeds")]
    pub trace: Option<PathBuf>,
    /// The block whose cluster is traced, counted along x, then y, then z
    #[arg(long, value_name = "N", default_value_t = 0, requires = "trace")]
    pub trace_block: u64,
    /// Say beside each finding what the machine does: threads, instructions, bytes, mbarriers with their parities (simulator only)
    #[arg(long)]
    pub machine: bool,
    /// Make warnings mistakes: they say what a comparison with the interpreter cannot show, such as elements of outputs
    /// that nothing writes
    #[arg(long, value_enum, value_name = "WHAT")]
    pub deny: Vec<Deny>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Begin however long it takes by the estimate, and however much memory it needs
    #[arg(long)]
    pub force: bool,
}

impl RunArgs {
    /// Depth of messages about what the simulator finds.
    pub fn detail(&self) -> Detail {
        if self.machine { Detail::Machine } else { Detail::Program }
    }

    /// True if warnings are mistakes.
    pub fn denies_warnings(&self) -> bool {
        self.deny.contains(&Deny::Warnings)
    }
}

/// Messages that are made mistakes.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Deny {
    /// Every warning
    Warnings,
}

/// `tilewright view`
///
/// Compiles the program, runs it on the simulator, and writes one HTML file that needs nothing else: the source with the cost of each line,
/// layouts and bank maps as pictures, the pipeline as a timeline, each statement's alternatives and why they lost, warnings. Where a run at
/// the given sizes takes long, the page shows one at smaller sizes and says so. docs/view.md says how it is read.
#[derive(Args)]
pub struct ViewArgs {
    /// The program.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// The page to write, `-` for standard output; without, the program's name with .html in this folder
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Run nothing: a page without costs and timeline
    #[arg(long)]
    pub no_run: bool,
    /// Write the page's data as JSON instead
    #[arg(long)]
    pub json: bool,
}

/// The elements of a program's inputs.
#[derive(Args)]
pub struct InputArgs {
    /// Seed of the random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Elements of a tensor instead of random ones: a number, a range (`len=0..500`, its end excluded), `normal(0, 1)`, or a file `x.npy`
    /// or `x.safetensors:name`. Sizes that its shape names and -p does not are those of the file
    #[arg(long, value_name = "NAME=WHAT")]
    pub input: Vec<String>,
}

/// `tilewright candidates`
///
/// The exit code is 0 only if all candidates agree on every output.
#[derive(Args)]
pub struct CandidatesArgs {
    /// The program.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Device to run on: auto (a GPU if there is one, else the simulator), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// The inputs.
    #[command(flatten)]
    pub inputs: InputArgs,
    /// Rounds in which the candidates are timed in turns (GPU only)
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Begin however long it takes by the estimate, and however much memory it needs
    #[arg(long)]
    pub force: bool,
}

/// `tilewright mutate`
///
/// Deletes, weakens, skips or swaps one synchronisation at a time, and simulates each mutant with one seed after the other until
/// anything is reported, the launch does not end, or an output is wrong. docs/mutation.md has the result for the library's
/// kernels. Choose sizes with a few rounds more than a kernel has stages, and more than one tile a block.
#[derive(Args)]
pub struct MutateArgs {
    /// The program.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Seeds of the simulator to try on each mutant, at most
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub seeds: u64,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Begin however long it takes by the estimate, and however much memory it needs
    #[arg(long)]
    pub force: bool,
}

/// One form of a compiled program.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Emit {
    /// The tile program itself, as it is printed
    Tile,
    /// The layout of every tensor and the instruction of every statement
    Layouts,
    /// The core program, which synthesis works on: integers, stages and roles resolved. It can be edited, compiled and run
    Core,
    /// The core program after each pass
    Passes,
    /// The thread-level program: the code of one thread
    Simt,
    /// PTX for a driver or ptxas: of several kernels one module, or with -o a file each
    Ptx,
    /// Layouts and instructions with the reasons, assumptions and compile times
    Report,
    /// All that a launch at these sizes needs, as JSON: grid, shared memory, parameters, tensor maps, PTX
    Launch,
}

/// `tilewright compile`
#[derive(Args)]
pub struct CompileArgs {
    /// The program.
    #[command(flatten)]
    pub program: ProgramArgs,
    /// Form to print
    #[arg(long, value_enum, default_value = "report")]
    pub emit: Emit,
    /// Rely on a size being a multiple of a number, e.g. --assume k=16; without any, the sizes' values (-p, else their
    /// defaults) say what is relied on
    #[arg(long, value_name = "SIZE=MULTIPLE")]
    pub assume: Vec<String>,
    /// Draw the layout of a register or shared tensor instead: which thread holds what, or the banks of shared memory
    #[arg(long, value_name = "TENSOR", conflicts_with = "emit")]
    pub draw: Option<String>,
    /// The form of that picture
    #[arg(long, value_enum, value_name = "FORM", default_value = "text", requires = "draw")]
    pub draw_as: Draw,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "OUT")]
    pub output: Option<PathBuf>,
    /// Print JSON (for layouts and report)
    #[arg(long)]
    pub json: bool,
}

/// The form of a picture.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Draw {
    /// A table for the terminal
    Text,
    /// An SVG document
    Svg,
    /// A standalone LaTeX document (TikZ)
    Latex,
}

/// `tilewright layout`
///
/// The expression language: layouts as ((2,2),8):((1,16),2) or (8,8):(e0,e1), tilers as <4:1, 8:2>, composition as A o B,
/// evaluation as L(22) or L(1,2), slices as L(2,_), tensors as {8} o (3,2):(15,100), let-bindings as let A = 8:1; …, and
/// the functions below.
///
/// With `-` every line of standard input is one expression and gets one line as answer; an error, which begins with
/// `error: `, does not end the run, only its exit code is 1. A line that is `let NAME = expr` binds the name for the
/// lines after it.
#[derive(Args)]
#[command(after_help = layout_functions())]
pub struct LayoutArgs {
    /// The expression, e.g. 'compose((4,2,8):(3,12,97), 3:3)'; `-` reads one expression a line from standard input
    #[arg(allow_hyphen_values = true)]
    pub expression: String,
    /// Print one JSON object a result: text, kind, shape, stride, size, cosize; for an error its kind and message
    #[arg(long, conflicts_with = "draw")]
    pub json: bool,
    /// Draw a layout of rank 1 or 2: its offsets, or what --tile or --banks says
    #[arg(long, value_enum, value_name = "FORM")]
    pub draw: Option<Draw>,
    /// Draw a layout (thread, value) -> coordinate on a tile of this many rows and columns, e.g. --tile 16,8
    #[arg(long, value_name = "M,N", conflicts_with = "banks")]
    pub tile: Option<String>,
    /// Draw the banks of shared memory for elements of this type, e.g. --banks f16
    #[arg(long, value_name = "TYPE")]
    pub banks: Option<String>,
}

/// A number that is not negative.
fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("it must be a number that is at least 0; e.g. `1e-3`".to_string()),
    }
}

/// A number of seeds.
fn seeds(text: &str) -> Result<u64, String> {
    if let Ok(count @ 1..=0x1_0000_0000) = text.parse::<u64>() {
        return Ok(count);
    }
    let range = text.split_once("..").and_then(|(first, end)| {
        let (first, end) = (first.parse::<u64>().ok()?, end.trim_start_matches('=').parse::<u64>().ok()?);
        let count = end.checked_sub(first).filter(|count| *count > 0)?;
        Some(format!("it is a number of seeds, and not a range; `--sim-seed {first} --seeds {count}`"))
    });
    Err(range.unwrap_or_else(|| "it is a number of seeds, from 1 to 4294967296; `--seeds 10`".to_string()))
}

fn layout_functions() -> String {
    let mut text = "Functions:\n".to_string();
    for (name, usage) in tilewright::layout_calc::FUNCTIONS {
        text.push_str(&format!("  {name:<24}{usage}\n"));
    }
    text
}
