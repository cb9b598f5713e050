//! Why a launch could not be simulated to its end.

use tilewright_simt::VerifyError;

/// A launch that does not fit its function, or an execution that hardware would hang on or leave undefined. What merely
/// goes wrong inside a run (races, accesses out of bounds) is in the [`Report`](crate::Report) instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
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
        /// Its kind, in words.
        expected: &'static str,
        /// The kind of the argument, in words.
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
        /// What the function needs.
        bytes: u32,
        /// What the architecture allows.
        limit: u32,
    },
    /// The program breaks an invariant of thread-level programs.
    #[error(transparent)]
    Invalid(#[from] VerifyError),
    /// The program has an instruction that the simulator cannot execute.
    #[error("`{instruction}` cannot be simulated: {reason} (in `{origin}`)")]
    Unsupported {
        /// The instruction.
        instruction: &'static str,
        /// What is missing.
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
    /// Some warps wait at a barrier that others never reach.
    #[error(
        "deadlock: {waiting} warps wait at a barrier that {exited} finished warps never reached (block {block:?}, in `{origin}`)"
    )]
    Deadlock {
        /// The tile statement of the first waiting warp's barrier.
        origin: String,
        /// The block.
        block: [u32; 3],
        /// Warps that wait.
        waiting: u32,
        /// Warps that have finished.
        exited: u32,
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
