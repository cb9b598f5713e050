//! Turns: how often work is run and timed, and from which state of the GPU.

use std::time::Duration;

/// Content of the L2 cache when a run begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L2 {
    /// Lines of another buffer that were written and must go to memory first: what a kernel meets after one with large results.
    Written,
    /// Lines of another buffer that were only read.
    Read,
    /// The previous run's content.
    Kept,
}

/// A pause, runs that do not count, and runs that do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// Idle time before the turn.
    pub rest: Duration,
    /// Content of the L2 cache before each run.
    pub l2: L2,
    /// Runs that do not count.
    pub warmup: usize,
    /// Runs that count.
    pub runs: usize,
}
