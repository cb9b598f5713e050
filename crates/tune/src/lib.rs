//! The autotuner. An operator's tuning space ([`tilewright_kernels::Tuning`]) is ranked by a closed-form cost model, the best few of
//! several families are compiled and measured in turns, and one parameter after another is varied around the fastest. What is found
//! is kept as a [`Record`] for a class of shapes on a device, in the user's [`Store`] or beside the kernels.
//!
//! ```
//! use tilewright_machine::Arch;
//! use tilewright_tune::{Origin, Problem, Target, choose};
//!
//! let sizes = [("m", 512), ("n", 512), ("k", 512)].map(|(name, size)| (name.to_string(), size));
//! let problem = Problem::new("gemm", &sizes.into(), &[("dtype", "bf16")])?;
//! let target = Target::new("a device that nobody tuned for", Arch::SM_80);
//! let choice = choose(&problem, &target, None)?;
//! assert_eq!(choice.from, Origin::Estimate);
//! println!("tilewright kernels gemm, with -p for each of: {}", choice.candidate);
//! # Ok::<(), tilewright_tune::TuneError>(())
//! ```
//!
//! `docs/tuning.md` tells it to users.

mod choose;
mod correction;
mod error;
mod explore;
mod fit;
mod gpu;
mod mapping;
mod measurer;
mod problem;
mod program;
mod record;
mod report;
mod search;
#[cfg(test)]
mod simulated;
mod store;
mod why;

pub use choose::{
    Accept, Choice, Contender, MakeMeasurer, Neighbour, Origin, Tuned, Why, choose, choose_accepted, explain,
    tune,
};
pub use error::TuneError;
pub use fit::{
    EXPERIMENTS, Experiment, Fit, Fitted, Residual, Timed, experiments, fit, read_timings, timed,
    timings_text,
};
pub use gpu::GpuMeasurer;
pub use measurer::{Load, Measurer};
pub use problem::{Candidate, Problem, Target, class_end};
pub use program::{
    Assignment, MAX_ASSIGNMENTS, ProgramProblem, ProgramRecord, ProgramReport, program_record, rank_program,
    text_of as constants_text, tune_program,
};
pub use record::{COMPILER, Conditions, FORMAT, Measured, Record, RunnerUp, Stale};
pub use report::{Entry, Refused, RejectedBy, Report, Seconds, Source, Stop};
pub use search::{Progress, ProgressFn, Settings, rank, search};
pub use store::{
    DeviceLock, Found, Merged, SHIPPED, Store, arch_of_shipped, merge, read_lines, read_model,
    refresh_hashes, shipped, write_lines,
};
pub use tilewright_cache::{CACHE_VARIABLE, Lock};
