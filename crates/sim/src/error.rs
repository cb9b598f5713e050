//! Errors that end a simulation.

use std::fmt;

use tilewright_simt::{Position, VerifyError};

use crate::findings::Findings;

/// A launch that does not fit its function, or an execution that hardware would hang on or leave undefined. What merely
/// goes wrong inside a run (races, accesses out of bounds) is in the [`Report`](crate::Report) instead.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum SimError {
    /// The launch passes another number of arguments than the function has parameters.
    #[error("the function has {expected} parameters, but the launch passes {given} arguments")]
    ArgumentCount {
        /// Parameters of the function.
        expected: usize,
        /// Arguments of the launch.
        given: usize,
    },
    /// An argument is not of its parameter's kind.
    #[error("parameter `{name}` is {expected}, but the launch passes {given}")]
    ArgumentKind {
        /// The parameter.
        name: String,
        /// Its kind, as text.
        expected: &'static str,
        /// The kind of the argument, as text.
        given: &'static str,
    },
    /// A buffer that this memory does not hold.
    #[error("parameter `{name}` names buffer {buffer}, which this memory does not hold")]
    UnknownBuffer {
        /// The parameter.
        name: String,
        /// The buffer's number.
        buffer: u32,
    },
    /// A grid with no block, or with more than 2³¹ − 1.
    #[error("a grid of {0:?} blocks cannot be launched")]
    Grid([u32; 3]),
    /// A grid that is not made of whole clusters.
    #[error("a grid of {grid} blocks along x is not made of clusters of {cluster}")]
    Cluster {
        /// Blocks along x.
        grid: u32,
        /// Blocks of a cluster.
        cluster: u32,
    },
    /// A tensor that a tensor map cannot describe.
    #[error("tensor map `{name}`: {reason}")]
    TensorMap {
        /// The parameter.
        name: String,
        /// The fault, as text.
        reason: String,
    },
    /// A block of no thread, or of more than the architecture runs.
    #[error("a block of {threads} threads cannot be launched; the architecture allows 1 to {limit}")]
    Threads {
        /// Threads of the function.
        threads: u32,
        /// Most threads of the architecture.
        limit: u32,
    },
    /// More shared memory than a block may use.
    #[error("the function needs {bytes} bytes of shared memory; the architecture allows {limit}")]
    SharedMemory {
        /// Need of the function.
        bytes: u32,
        /// Limit of the architecture.
        limit: u32,
    },
    /// Blocks wait for each other, and there are too many to run together.
    #[error(
        "the grid has {blocks} blocks that words of global memory order; the simulator runs at most {limit} together"
    )]
    Together {
        /// Blocks of the grid.
        blocks: u64,
        /// The limit.
        limit: u64,
    },
    /// The program breaks an invariant of thread-level programs.
    #[error(transparent)]
    Invalid(#[from] VerifyError),
    /// The program has an instruction that the simulator cannot execute.
    #[error("`{instruction}` cannot be simulated: {reason} (in `{origin}`)")]
    Unsupported {
        /// The instruction.
        instruction: String,
        /// The missing part.
        reason: &'static str,
        /// The tile statement.
        origin: String,
    },
    /// An instruction that the whole warp must execute was reached by a part of it.
    #[error(
        "`{instruction}` needs every lane of warp {warp}, but only lanes {active:#010x} reached it (block {block:?}, in `{origin}`)"
    )]
    DivergentCollective {
        /// The instruction.
        instruction: String,
        /// The tile statement.
        origin: String,
        /// The block.
        block: [u32; 3],
        /// The warp in its block.
        warp: u32,
        /// The lanes that reached it, lane 0 lowest.
        active: u32,
    },
    /// A block barrier was reached by a part of a warp.
    #[error(
        "divergent barrier: only lanes {active:#010x} of warp {warp} reached it (block {block:?}, in `{origin}`)"
    )]
    DivergentBarrier {
        /// The tile statement.
        origin: String,
        /// The block.
        block: [u32; 3],
        /// The warp in its block.
        warp: u32,
        /// The lanes that reached it, lane 0 lowest.
        active: u32,
    },
    /// Some warps wait for what never comes: nothing else can run, and no asynchronous operation is outstanding.
    #[error(
        "deadlock: {waiting} warps wait for what never comes, {exited} have finished (block {block:?}, in `{origin}`){}",
        details(waits, found)
    )]
    Deadlock {
        /// The tile statement at which the first of them waits.
        origin: String,
        /// Its block.
        block: [u32; 3],
        /// Warps of the cluster that wait.
        waiting: u32,
        /// Warps of the cluster that have finished.
        exited: u32,
        /// Waiting warps, with what each waits for.
        waits: Vec<Waiting>,
        /// The warps that have finished, each with its block.
        ended: Box<[([u32; 3], u32)]>,
        /// The mbarriers of all blocks.
        barriers: Box<[BarrierState]>,
        /// Other findings in the cluster until then.
        found: Box<Findings>,
    },
    /// The warps of a warpgroup execute different matrix products together, or some of them none.
    #[error(
        "the warps of warpgroup {group} do not execute the same matrix product (block {block:?}, in `{origin}`)"
    )]
    DivergentWarpgroup {
        /// The tile statement of one of the products.
        origin: String,
        /// The block.
        block: [u32; 3],
        /// The warpgroup in its block.
        group: u32,
    },
    /// A loop counter left the range of 32-bit integers before it reached its bound.
    #[error("a loop counter overflows before it reaches its bound (block {block:?}, in `{origin}`)")]
    LoopOverflow {
        /// The tile statement.
        origin: String,
        /// The block.
        block: [u32; 3],
    },
    /// A block executed more warp instructions than [`Config::step_limit`](crate::Config::step_limit).
    #[error("block {block:?} executed more than {limit} warp instructions: does a loop run too often?")]
    StepLimit {
        /// The block.
        block: [u32; 3],
        /// The limit.
        limit: u64,
    },
}

/// Warps of one block that wait for the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The block.
    pub block: [u32; 3],
    /// The warps in their block.
    pub warps: Vec<u32>,
    /// The tile statement at which they wait.
    pub origin: String,
    /// Its position in the source.
    pub position: Option<Position>,
    /// The awaited event.
    pub on: Awaited,
    /// The same in words of the machine.
    pub what: String,
}

/// An event that warps wait for.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Awaited {
    /// The other warps of the block.
    Block,
    /// The other blocks of the cluster.
    Cluster,
    /// A word of global memory, by another block.
    Word {
        /// Its value.
        now: i32,
    },
    /// The threads that come to a barrier of the block.
    Named {
        /// Its number.
        id: u32,
        /// Phases that have ended.
        phases: u32,
    },
    /// A phase of an mbarrier of the block.
    Mbarrier {
        /// The shared buffer that holds it.
        buffer: String,
        /// Its byte in the buffer.
        offset: u64,
    },
    /// Registers that other warps have to give back.
    Registers,
    /// The other warps of the warpgroup, to issue a product together.
    Warpgroup,
    /// Products of the warpgroup.
    Products,
}

/// An mbarrier when nothing can go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BarrierState {
    /// The block.
    pub block: [u32; 3],
    /// The shared buffer that holds it.
    pub buffer: String,
    /// Its byte in the buffer.
    pub offset: u64,
    /// Phases that have ended.
    pub phases: u32,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warps: Vec<String> = self.warps.iter().map(u32::to_string).collect();
        let s = if warps.len() == 1 { "" } else { "s" };
        let waits = if warps.len() == 1 { "waits" } else { "wait" };
        let Waiting { block, origin, what, .. } = self;
        write!(f, "warp{s} {} of block {block:?} {waits} in `{origin}` for {what}", warps.join(", "))
    }
}

fn details(waits: &[Waiting], found: &Findings) -> String {
    let waits = waits.iter().map(Waiting::to_string);
    waits.chain(found.problems()).map(|line| format!("\n  {line}")).collect()
}
