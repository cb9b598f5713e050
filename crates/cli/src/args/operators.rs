//! Operators: their programs, the tuner and its records, weights and packs.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use tilewright::machine::DType;

use super::ProgramArgs;

/// The form of an operator's program.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EmitOperator {
    /// The tile program
    Tile,
}

/// `tilewright kernels`
///
/// Without an operator, lists them with their parameters, defaults and what they mean. With one, prints its tile program, or a file of the
/// several that it is, which `tilewright run -` and `tilewright compile -` read:
///
/// tilewright kernels gemm -p stages=3 | tilewright run - -p m=512
#[derive(Args)]
pub struct KernelsArgs {
    /// The operator
    pub operator: Option<String>,
    /// A value for a parameter of the operator, e.g. -p bm=64
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// Of an operator that is several programs with these parameters: the one to print, counted from 1, instead of a file with all
    #[arg(long, value_name = "N")]
    pub step: Option<usize>,
    /// Form to print
    #[arg(long, value_enum)]
    pub emit: Option<EmitOperator>,
    /// Choose the parameters for a problem, e.g. --for m=4096,n=4096,k=4096: by a record (`tilewright tune`), else by estimate
    #[arg(long = "for", value_name = "SIZES", requires = "operator")]
    pub problem: Option<String>,
    /// Print the chosen parameters as one line, e.g. bm=128 bn=192, instead of the program
    #[arg(long, requires = "problem", conflicts_with = "emit")]
    pub config_only: bool,
    /// The device that is chosen for: auto (a GPU if there is one), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto", requires = "problem")]
    pub device: String,
    /// Choose for a device of this name, which need not be here, e.g. 'NVIDIA H200'
    #[arg(long, value_name = "NAME", requires = "problem")]
    pub device_name: Option<String>,
    /// Choose for this architecture, e.g. sm_100a, instead of the device's
    #[arg(long, value_name = "ARCH", requires = "problem")]
    pub arch: Option<String>,
    /// The folder of records and models instead of the user's
    #[arg(long, value_name = "DIR", requires = "problem")]
    pub cache: Option<PathBuf>,
    /// Print the estimate of the choice by its parts, beside those of the best configurations of other families, instead of the program
    #[arg(long, requires = "problem", conflicts_with_all = ["emit", "config_only", "step"])]
    pub why: bool,
    /// A model of a kernel's time, as `tilewright calibrate --model` writes it, instead of the device's in the cache or the built-in one
    #[arg(long, value_name = "FILE", requires = "problem")]
    pub model: Option<PathBuf>,
}

/// State of the L2 cache when a timed run begins.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum L2Args {
    /// Other data that was written
    Dirty,
    /// Other data that was read
    Clean,
}

/// `tilewright tune`
///
/// Ranks the configurations of an operator by a cost model, measures the best on a GPU in turns, varies parameters around the fastest,
/// and records what it finds for problems of similar sizes; a second run takes the record. Without a GPU it ranks by estimate,
/// measures nothing and records nothing. docs/tuning.md says more.
///
/// tilewright tune gemm_hopper -p m=4096 -p n=4096 -p k=4096 -p dtype=bf16
#[derive(Args)]
pub struct TuneArgs {
    /// The operator, a file `*.tile` with a `space` of values for its constants, or a task program `*.task`, whose mapping is varied
    #[arg(required_unless_present = "refresh_hashes")]
    pub operator: Option<String>,
    /// The mapping of a task program that the search begins from, instead of the first
    #[arg(long, value_name = "NAME")]
    pub mapping: Option<String>,
    /// A size of the problem, or a parameter to keep, e.g. -p m=4096 -p dtype=bf16
    #[arg(short = 'p', long = "param", value_name = "NAME=VALUE")]
    pub params: Vec<String>,
    /// A file with one problem a line: 4096,4096,4096 or m=4096 n=4096 k=4096 dtype=bf16
    #[arg(long, value_name = "FILE")]
    pub shapes: Option<PathBuf>,
    /// Device to measure on: auto (a GPU if there is one, else the simulator, which ranks by estimate), sim, cuda or cuda:N
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub device: String,
    /// Several GPUs of one model to measure on, by number: each takes the next problem of the list
    #[arg(long, value_name = "N,N,…", value_delimiter = ',', conflicts_with = "device")]
    pub devices: Vec<u32>,
    /// Problems of a list that each GPU works on at the same time: they measure in turns, and one measures while another compiles
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=16))]
    pub searches: usize,
    /// The I-th of N parts of the list of problems, for as many machines: `records merge` puts what they find together
    #[arg(long, value_name = "I/N")]
    pub shard: Option<Shard>,
    /// The architecture to compile for, instead of the device's
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<String>,
    /// Seconds for each problem
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    pub budget: f64,
    /// Configurations of the space that are measured first: 8 of an operator, 12 of a file, which are all that are
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub top: Option<usize>,
    /// Configurations that are measured at most
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000))]
    pub measurements: usize,
    /// A model of a kernel's time, as `tilewright calibrate --model` writes it, instead of the device's in the cache or the built-in one
    #[arg(long, value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Seconds that the GPU rests before each turn
    #[arg(long, value_name = "SECONDS", default_value_t = 0.03)]
    pub rest: f64,
    /// State of the L2 cache when a timed run begins
    #[arg(long, value_enum, default_value = "dirty")]
    pub l2: L2Args,
    /// Vary no parameters around the fastest
    #[arg(long)]
    pub no_refine: bool,
    /// Rank by estimate, and measure and record nothing, on a machine with a GPU too
    #[arg(long)]
    pub estimate: bool,
    /// The folder of records instead of the user's
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Measure even if there is a record, and replace it
    #[arg(long)]
    pub no_cache: bool,
    /// Put the records into this file too, one a line
    #[arg(long, value_name = "FILE")]
    pub records: Option<PathBuf>,
    /// Write every candidate with its estimate and its times to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Bring the programs' hashes in a file of records up to date without measuring; such records say so
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub refresh_hashes: Option<PathBuf>,
}

/// A part of a list: every `of`-th entry, from the `index`-th on, counted from 1.
#[derive(Clone, Copy, Debug)]
pub struct Shard {
    pub index: usize,
    pub of: usize,
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if (1..=of).contains(&index) => Ok(Shard { index, of }),
            _ => Err("must be I/N with I from 1 to N, such as 2/4".to_string()),
        }
    }
}

/// The form of weights in a file.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CheckpointFormat {
    /// A matrix [n, k], whose elements have bytes of their own
    Rows,
    /// The tensors qweight, qzeros and scales of AWQ
    Awq,
    /// The tensors qweight, qzeros, scales and g_idx of GPTQ
    Gptq,
}

/// `tilewright repack`
#[derive(Args)]
pub struct RepackArgs {
    /// The weights: a file *.safetensors, or *.npy of rows
    pub file: PathBuf,
    /// The file *.safetensors to write: w, and of a checkpoint the scales s and the zero points z
    pub output: PathBuf,
    /// The form of the weights
    #[arg(long, value_enum, value_name = "FORM", default_value = "rows")]
    pub format: CheckpointFormat,
    /// The beginning of the names of a layer's tensors, without the last dot; of rows the tensor's name
    #[arg(long, value_name = "NAME")]
    pub layer: Option<String>,
    /// Neighbours along k that share a scale; without, all of a row
    #[arg(long, value_name = "COLUMNS")]
    pub group: Option<usize>,
    /// The type of rows, as the operator's parameter `weights`; that of checkpoints is u4
    #[arg(long, value_name = "TYPE", default_value = "i4")]
    pub weights: DType,
}

/// `tilewright records`
#[derive(Args)]
pub struct RecordsArgs {
    #[command(subcommand)]
    pub command: RecordsCommand,
}

/// The commands of `tilewright records`.
#[derive(Subcommand)]
pub enum RecordsCommand {
    /// Write the records of all files to one: of several for a problem the one of the later compiler, and of one compiler the fastest
    Merge(MergeArgs),
}

/// `tilewright records merge`
#[derive(Args)]
pub struct MergeArgs {
    /// Files of records, one a line
    #[arg(required = true)]
    pub files: Vec<PathBuf>,
    /// The file to write; it may be one of those
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
}

/// `tilewright pack`
#[derive(Args)]
pub struct PackArgs {
    /// The command for packs.
    #[command(subcommand)]
    pub command: PackCommand,
}

/// The commands of `tilewright pack`.
#[derive(Subcommand)]
pub enum PackCommand {
    /// Compile the kernels of a program into a pack
    Build(Box<PackBuildArgs>),
    /// List the kernels of a pack
    List(PackFileArgs),
    /// Compile the kernels of a pack again, and compare
    Verify(PackFileArgs),
}

/// `tilewright pack build`
#[derive(Args)]
pub struct PackBuildArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
    /// The file *.twpack to write
    #[arg(short, long, value_name = "FILE")]
    pub output: PathBuf,
    /// The name of the kernel in the pack, instead of its own; of several kernels what their names begin with
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// A pack whose kernels are kept, too; it may be the file to write
    #[arg(long, value_name = "FILE")]
    pub with: Vec<PathBuf>,
    /// A tensor that is a part of the workspace of a launch, and no argument. May be given several times
    #[arg(long, value_name = "TENSOR")]
    pub workspace: Vec<String>,
    /// An architecture for which a binary is kept beside the PTX text, as `sm_86`; `ptxas` makes it. May be given several times
    #[arg(long, value_name = "SM")]
    pub binary: Vec<String>,
}

/// `tilewright pack list` and `tilewright pack verify`
#[derive(Args)]
pub struct PackFileArgs {
    /// The pack
    pub file: PathBuf,
}
