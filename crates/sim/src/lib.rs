//! A simulated GPU: executes a thread-level program ([`tilewright_simt::Function`]) on the CPU, and reports what went
//! wrong and what it cost.
//!
//! # Execution
//!
//! The threads of a block form warps of 32 that run in lock-step, instruction by instruction, with a mask of active
//! lanes. A warp runs until it reaches a block barrier, then another one does, in an order that [`Config::seed`] permutes.
//! Blocks run in parallel on the CPU's threads, and their findings are merged in the order of the grid, so that a report
//! is deterministic unless blocks race on global memory (which is not detected).
//!
//! What instructions do comes from their rows: scalar operations from the rows' functions, matrix copies and products from
//! their layouts. Products and their sums are `f32` in the order of rising k, and are rounded once to the accumulator's
//! type, so results differ from hardware's in the last bits.
//!
//! # What is left open is decided against the program
//!
//! * An asynchronous copy lands as late as it may: when its issuing thread executes a wait that covers it. Its source is
//!   read when it is issued. Any access to its destination in between, the issuing thread's own included, is a race.
//! * Shared memory and registers begin as ones in every bit, NaNs.
//! * The block's shared window is not at address 0.
//! * An access that is out of bounds or misaligned reads zeros or writes nothing, and is reported. Shared accesses have
//!   to lie within one shared buffer.
//!
//! # Races
//!
//! Two accesses to a shared byte by different threads, at least one of which writes, race unless a block barrier
//! lies between them, or a warp barrier where both threads are of one warp. Being in the same warp, or in the same
//! instruction, orders nothing. A matrix instruction's rows are accessed by the warp together: such an access needs a barrier
//! even from the thread that gives the row's address.
//!
//! # Cycles
//!
//! This model gives [`Report::estimated_cycles`].
//!
//! A warp issues in order. An instruction starts when its operands are ready (its rows' latencies after those that made
//! them) and the warp's previous use of the same unit is over (the row's issue cycles, plus one for each wavefront
//! lost to bank conflicts). Between two barriers a block takes the longest of: its slowest warp; the scalar and the tensor
//! work of all its warps, each divided among four units; the work of its one load/store unit. A kernel runs in waves of
//! multiprocessors × resident blocks; a wave takes as long as one block alone or as the resident ones occupy their
//! busiest unit together. Caches and bandwidth of global memory are not modelled.

mod access;
mod clock;
mod cluster;
mod config;
mod context;
mod cycles;
mod decode;
mod error;
mod flight;
mod mbarrier;
mod memory;
mod owned;
mod report;
mod schedule;
mod shadow;
mod sink;
mod tables;
mod units;
mod warp;
mod wgmma;

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use tilewright_simt::Function;

pub use config::{Argument, Config};
pub use error::{SimError, Waiting};
pub use memory::{BufferId, GlobalMemory};
pub use report::{Counts, Fault, Misuse, Party, RACE_LIMIT, Race, RaceKind, Report, Traffic};

use context::Context;
use schedule::Outcome;
use sink::Sink;

/// Clusters whose findings are held at once.
const BATCH: u64 = 4096;

/// Executes `function` on every block of `grid`, with `args` for its parameters in order.
///
/// An `Err` says that the launch does not fit the function, or that a block could not be executed to its end (the first
/// such block, in the order of the grid); `memory` then holds what was written until then. What goes wrong otherwise is in
/// the report.
pub fn run(
    function: &Function,
    grid: [u32; 3],
    memory: &GlobalMemory,
    args: &[Argument],
    config: &Config,
) -> Result<Report, SimError> {
    let context = Context::new(function, grid, memory, args, config)?;
    let clusters = context.clusters();
    let mut sink = Sink::new(context.program.statements.len());
    let (mut longest, mut sum, mut busy) = (0u64, 0u64, 0u64);
    let failed = AtomicU64::new(u64::MAX);
    for start in (0..clusters).step_by(BATCH as usize) {
        let batch: Vec<Option<Result<Outcome, SimError>>> = (start..clusters.min(start + BATCH))
            .into_par_iter()
            .map(|linear| {
                // Clusters after a failed one do not matter; those before it still run, for one of them may fail too.
                (linear < failed.load(Ordering::Relaxed)).then(|| {
                    let outcome = schedule::execute(&context, linear);
                    if outcome.is_err() {
                        failed.fetch_min(linear, Ordering::Relaxed);
                    }
                    outcome
                })
            })
            .collect();
        for outcome in batch.into_iter().flatten() {
            let outcome = outcome?;
            sink.merge(outcome.sink);
            longest = longest.max(outcome.longest);
            sum += outcome.sum;
            busy += outcome.busy;
        }
    }
    let blocks = clusters * u64::from(function.cluster);
    let mut report = sink.report(&context);
    report.blocks = blocks;
    report.warps = blocks * u64::from(function.threads.div_ceil(32));
    report.estimated_cycles = cycles::kernel(function, blocks, longest, sum, busy);
    Ok(report)
}
