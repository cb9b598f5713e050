//! A simulated GPU: executes a thread-level program ([`tilewright_simt::Function`]) on the CPU, and reports what went
//! wrong and what it cost.
//!
//! # Execution
//!
//! The threads of a block form warps of 32 that run in lock-step, instruction by instruction, with a mask of active
//! lanes. One scheduler runs the warps of all blocks of a cluster: a warp runs until it has to wait (at a barrier, for an mbarrier, for
//! the warpgroup it multiplies with, for registers), or, with a [`Config::seed`] that is not 0, for a random number of
//! instructions. Clusters run in parallel on the CPU's threads, and their findings are merged in the order of the grid, so that a report
//! is deterministic unless blocks race on global memory. Where a function takes values from atomic operations on global memory, or waits for
//! words there, clusters run together under one scheduler (all of them, up to 1024 blocks, where releases and acquires order what they do): who comes first is decided by it.
//!
//! If the lanes of a warp are on both sides of a branch, those on one side run to its end or until they wait for an mbarrier; then those
//! on the other side may run, so that one side may wait for the other. At the end of the branch they meet again.
//!
//! Instructions do what their rows say: scalar operations by the rows' functions, matrix copies and products by
//! their layouts, operands of a warpgroup's products from the bits of their descriptors. Products and their sums are `f32` in the order
//! of rising k, and are rounded once an instruction to the accumulator's type, so results differ from hardware's in the last
//! bits; integers are exact.
//!
//! A launch that can do nothing more while warps wait ends with [`SimError::Deadlock`], which says who waits for what.
//!
//! # What is left open is decided against the program
//!
//! * An asynchronous copy of a thread lands as late as it may: when its issuing thread executes a wait that covers it; with another seed
//!   than 0 at a random moment before. Its source is read then. Any access to its destination in between, the issuing thread's own
//!   included, is a race.
//! * A tensor or bulk copy into shared memory reads its source and lands when nothing else can run, in the order of issue; with
//!   another seed than 0 at a random moment, which each block that receives it has of its own. A copy out of shared memory reads and
//!   writes when its thread waits for it, or at the end; with another seed than 0 each at a random moment before.
//! * An arrival at an mbarrier of a peer takes place at once; with another seed than 0 at a random moment before the cluster next meets.
//! * A warpgroup's product reads its operands and writes its registers when a wait covers it; with another seed than 0 at a random
//!   moment before.
//! * A product with its sums in tensor memory reads its factors and writes its sums, and a commit behind it arrives, when nothing else can run, in the order of
//!   issue; with another seed than 0 at a random moment. The first column that a block allocates depends on the seed.
//! * Shared memory, tensor memory and registers begin as ones in every bit, NaNs.
//! * The block's shared window is not at address 0.
//! * An access that is out of bounds or misaligned reads zeros or writes nothing, and is reported. Shared accesses have
//!   to lie within one shared buffer.
//!
//! # Races
//!
//! Two accesses to a byte of shared or global memory by different threads, at least one of which writes, race unless one *happened before* the other:
//! by a barrier of the warp, the block, the cluster or a number of warps, where both took part; or by an arrival at an mbarrier after the
//! first and a wait for that phase before the second. What a peer of the cluster wrote with ordinary instructions, or had copied to global
//! memory, before it arrived is ordered only if it arrived, and the wait waits, for the cluster; what it read is, as all rings that are
//! released to peers rely on. Being in the same warp, or in the same
//! instruction, orders nothing. A matrix instruction's rows are accessed by the warp together: such an access needs a barrier
//! even from the thread that gives the row's address.
//!
//! The work of an asynchronous engine happens after its issue, and before what follows a wait for it: for the phase of the mbarrier that counts
//! its bytes, for the thread's group of bulk copies, for the warpgroup's group of products. Who waits for it learns of what it did, not of
//! what its thread did before. What ordinary instructions (`cp.async` among them) have written, the asynchronous proxy reads or overwrites
//! only after a proxy fence of that state space between, and what they have read it overwrites only after one: by the accessing threads
//! before the barrier that orders both, or behind it by a thread that knows of the accesses, for a fence covers all that its thread knows.
//! `fence.proxy.async.shared::cta` is for the shared memory of its own block, `.shared::cluster` for that of all blocks of the cluster,
//! `.global` for global memory, and the fence without a state space for all (PTX ISA 9.0, section 9.7.13.4).
//!
//! A copy to global memory writes until a wait for the whole operation covers it; one for its reads frees its source, and nothing else.
//! Until then it is unordered with all that touches the place, another such copy of the same thread included.
//!
//! On global memory the same holds within a cluster, and among clusters that run together. What different clusters do is ordered by the end
//! of the kernel and by words of global memory: an acquire (of an atomic operation, or of a wait for a word) comes after the releases on that
//! word that it reads from, relaxed operations in between included. Two unordered
//! accesses do not race where both are atomic, or both write the same value to the byte; every other access
//! of that byte has to be ordered with each of them. Between clusters all values that a cluster writes to the byte have to be the same.
//! Reads are followed only of buffers that the function writes.
//!
//! Nothing that a later access may race with is forgotten: `tests/reference.rs` compares what is found with every pair of accesses of
//! random programs.
//!
//! Launches before this one access every byte of global memory once, before the first access of this launch: by a read, and by a write but in
//! buffers that are [constant](GlobalMemory::mark_constant). In a function that waits for such launches or lets later ones begin,
//! each access has to come after a wait for them, in its thread or by a barrier ([`Config::overlaps`]); one that does not is in
//! [`Report::protocol`].
//!
//! A race names both accesses ([`Party`]), and what would order them in the words of the tile language ([`Race::suggestion`]).
//!
//! Registers that a product in flight writes are not to be touched, and those that it reads not to be written, until a wait covers it; what
//! ordinary code has written to them needs a fence before the product. Every arrival at an mbarrier has to come after the end of the phase
//! before, and every wait before the end of the phase behind (PTX ISA 9.0, section 9.7.13.15: a wait is for the current phase or the one
//! before), in every order of execution: else a thread may wait for ever, or for too little. These and the other rules of mbarriers are in
//! [`Report::protocol`]. A register that nothing has written is not to be read; that is in [`Report::uninitialised`], by lane.
//!
//! # Switches
//!
//! [`Config`] says what is looked for. Without races and unwritten memory ([`Config::unchecked`]) a run takes about two thirds of the time.
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
//! busiest unit together, so that a persistent grid is one wave and takes as long as its longest block. Tensor copies and products of
//! warpgroups take their time while their warps go on, on units that all warps of the block share; a wait lasts until they are done.
//! Caches and bandwidth of global memory are not modelled.
//!
//! [`Report::profile`] says what each instruction of each tile statement cost ([`Config::profile`]), [`Report::trace`] what the warps and
//! units of a cluster did when ([`Config::trace`]).

mod access;
mod atomic;
mod bulk;
mod choices;
mod clock;
mod cluster;
mod config;
mod context;
mod cycles;
mod decode;
mod error;
mod findings;
mod flight;
mod global;
mod launch;
mod mbarrier;
mod memory;
mod named;
mod observe;
mod owned;
mod print;
mod profile;
mod queues;
mod report;
mod rule;
mod schedule;
mod shadow;
mod sink;
mod suggest;
mod tables;
mod tensor_memory;
mod trace;
mod units;
mod warp;
mod wgmma;

use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use tilewright_machine::Progress;
use tilewright_simt::Function;

pub use config::{Argument, Config};
pub use error::{Awaited, BarrierState, SimError, Waiting};
pub use findings::{
    Bytes, Class, Counts, Fault, Findings, Misuse, Party, RACE_LIMIT, Race, RaceKind, Traffic,
};
pub use memory::{BufferId, GlobalMemory};
pub use profile::Profile;
pub use report::Report;
pub use rule::Rule;
pub use trace::{Details, EVENT_LIMIT, Event, Phase, SharedRequest, StageEnd, Trace, Track};

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
    let (mut longest, mut sum, mut busy, mut begun) = (0u64, 0u64, 0u64, 0u64);
    let mut costs = vec![profile::Cost::default(); context.program.rows.len()];
    let mut trace = None;
    let mut touched = Vec::new();
    let failed = AtomicU64::new(u64::MAX);
    let groups = clusters.div_ceil(context.together);
    if let Some(progress) = &config.progress {
        progress.begin(groups);
    }
    for start in (0..groups).step_by(BATCH as usize) {
        let batch: Vec<Option<Result<Outcome, SimError>>> = (start..groups.min(start + BATCH))
            .into_par_iter()
            .map(|group| {
                // Clusters after a failed one do not matter; those before it still run, for one of them may fail too.
                (group < failed.load(Ordering::Relaxed)).then(|| {
                    let outcome = schedule::execute(&context, group * context.together);
                    if outcome.is_err() {
                        failed.fetch_min(group, Ordering::Relaxed);
                    }
                    config.progress.iter().for_each(Progress::step);
                    outcome
                })
            })
            .collect();
        for (group, outcome) in (start..).zip(batch) {
            let Some(outcome) = outcome else { continue };
            let outcome = outcome?;
            if let Some(observer) = outcome.observer {
                costs.iter_mut().zip(&observer.costs).for_each(|(sum, cost)| sum.add(cost));
                trace = trace.or(observer.tracer.map(trace::Tracer::finish));
            }
            touched.push((group * context.together, outcome.touched));
            sink.merge(outcome.sink);
            longest = longest.max(outcome.longest);
            sum += outcome.sum;
            busy += outcome.busy;
            begun += outcome.begun;
        }
    }
    global::conflicts(&touched, |(a, first), (b, second), offset| {
        let (first, second) = ((context.first_block(a), first), (context.first_block(b), second));
        sink.raced_between(&context, first, second, offset);
    });
    let blocks = clusters * u64::from(function.cluster);
    let profile =
        if config.profile { profile::profile(&context.program, &costs, &sink.counts) } else { Vec::new() };
    let mut report = sink.report(&context);
    report.profile = profile;
    report.trace = trace;
    report.blocks = blocks;
    report.warps = blocks * u64::from(function.threads.div_ceil(32));
    report.estimated_cycles = cycles::kernel(function, begun, longest, sum, busy);
    Ok(report)
}
