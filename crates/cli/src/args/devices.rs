//! Devices: what they are, what they measure, and benches on them.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// `tilewright devices`
#[derive(Args)]
pub struct DevicesArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `tilewright calibrate`
///
/// Runs microbenchmarks (less than a minute on a GPU) and prints a table that `run` and `compile` take with --timing.
/// docs/calibrate.md says how each figure is measured.
#[derive(Args)]
pub struct CalibrateArgs {
    /// Device to measure: auto (a GPU if there is one, else the simulator), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Write to a file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Measure each figure once, over fewer rounds
    #[arg(long, conflicts_with = "model")]
    pub quick: bool,
    /// Fit the model of a kernel's time, by which `tune` and `kernels --for` rank configurations, to timings of products on the GPU; written to
    /// the cache, where both find it
    #[arg(long, conflicts_with = "force")]
    pub model: bool,
    /// Fit to the timings of this file, one JSON object a line, and measure nothing
    #[arg(long, value_name = "FILE", requires = "model")]
    pub timings: Option<PathBuf>,
    /// Write the timings to this file
    #[arg(long, value_name = "FILE", requires = "model", conflicts_with = "timings")]
    pub write_timings: Option<PathBuf>,
    /// The model where the fit begins, instead of the built-in one
    #[arg(long, value_name = "FILE", requires = "model")]
    pub from: Option<PathBuf>,
    /// The folder of models instead of the user's
    #[arg(long, value_name = "DIR", requires = "model")]
    pub cache: Option<PathBuf>,
    /// Write the PTX of every microbenchmark to this folder instead of measuring
    #[arg(long, value_name = "DIR", hide = true)]
    pub ptx_dir: Option<PathBuf>,
    /// The architecture of that PTX
    #[arg(long, value_name = "ARCH", hide = true, requires = "ptx_dir")]
    pub arch: Option<String>,
    /// Begin however long it takes by the estimate, and however much memory it needs
    #[arg(long)]
    pub force: bool,
}

/// `tilewright fidelity`
///
/// Applies every scalar operation, shuffle, copy and warp-level matrix product to special and random operands. On a GPU the results
/// are compared with the simulator's, on the simulator with the instructions' descriptions. The exit code is 0 only if all agree,
/// bit by bit or within the bound that is printed. docs/fidelity.md says more.
#[derive(Args)]
pub struct FidelityArgs {
    /// Device to compare: auto (a GPU if there is one, else the simulator), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Blocks of 128 threads, each of which applies every instruction to operands of its own
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub blocks: u32,
    /// Seed of the operands
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Measure the functions of elementwise expressions instead, on every f16 number and on f32 numbers, against double precision and their bounds
    #[arg(long)]
    pub functions: bool,
    /// So many f32 numbers
    #[arg(long, value_name = "N", default_value_t = 10_000_000, requires = "functions")]
    pub arguments: usize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Write the PTX of every kernel to this folder instead of comparing
    #[arg(long, value_name = "DIR", hide = true)]
    pub ptx_dir: Option<PathBuf>,
    /// The architecture of that PTX
    #[arg(long, value_name = "ARCH", hide = true, requires = "ptx_dir")]
    pub arch: Option<String>,
}

/// `tilewright bench`
#[derive(Args)]
pub struct BenchArgs {
    /// The operator to measure.
    #[command(subcommand)]
    pub what: BenchWhat,
}

/// Operators that can be measured.
#[derive(Subcommand)]
pub enum BenchWhat {
    /// Matrix products c[m, n] = a[m, k] · b[n, k]ᵀ
    ///
    /// Ours and the library's take turns on one GPU: each round has a turn of each, in alternating order, and the median of a turn's
    /// launches counts. The ratio is the library's time over ours: more is better. Every result is compared with an exact one at
    /// sampled places, and with the library's everywhere; the exit code is 0 only if all are right. docs/benchmarks.md says more.
    Gemm(GemmBenchArgs),
}

/// A library to compare with.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerName {
    /// NVIDIA's cuBLASLt: of the first 8 ways that its heuristics propose, the fastest. TILEWRIGHT_CUBLASLT says where the library is, if
    /// it is not where the dynamic loader looks or in /usr/local/cuda
    Cublaslt,
}

/// The type of a product's factors.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FactorType {
    /// Sums in f32
    F16,
    /// Sums in f32
    Bf16,
    /// 8-bit floats; sums in f32
    E4m3,
    /// Sums in i32
    I8,
}

impl FactorType {
    /// The name in operators' parameters.
    pub fn name(self) -> &'static str {
        match self {
            FactorType::F16 => "f16",
            FactorType::Bf16 => "bf16",
            FactorType::E4m3 => "e4m3",
            FactorType::I8 => "i8",
        }
    }
}

/// `tilewright bench gemm`
#[derive(Args)]
pub struct GemmBenchArgs {
    /// Library to compare with; without it, ours is measured alone
    #[arg(long, value_enum, value_name = "LIBRARY")]
    pub vs: Option<PeerName>,
    /// Shapes as M,N,K, or M,N,K,BATCHES [default: 4096,4096,4096]
    #[arg(long, value_name = "M,N,K", num_args = 1..)]
    pub shapes: Vec<String>,
    /// A file with more shapes, one a line; # begins a comment
    #[arg(long, value_name = "FILE")]
    pub shapes_file: Option<PathBuf>,
    /// The type of the factors
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f16")]
    pub dtype: FactorType,
    /// The operator that computes ours: one with tensors a, b and c (see `tilewright kernels`)
    #[arg(long, value_name = "NAME", default_value = "gemm_hopper")]
    pub operator: String,
    /// A value for a parameter of the operator, e.g. -p bn=192
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// The state of the GPU: rested (after a pause, L2 emptied by writing), sustained (no pause), clean (after a pause, L2 emptied by
    /// reading), warm (no pause, L2 as it is), or all for the first three
    #[arg(long, value_name = "STATE", num_args = 1.., default_value = "rested")]
    pub condition: Vec<String>,
    /// Rounds in which each has a turn
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub rounds: usize,
    /// Seconds of the pause before a turn, in states that have one [default: 0.2]
    #[arg(long, value_name = "S")]
    pub rest: Option<f64>,
    /// Also write everything, with every launch's time, to a file: one JSON object a line, as soon as a shape is done
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The GPU: cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "cuda")]
    pub device: String,
}
