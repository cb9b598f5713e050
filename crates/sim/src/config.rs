//! What a launch passes, and what the simulator is asked to do with it.

use crate::memory::BufferId;

/// An argument of a launch, for one parameter of the function.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Argument {
    /// A pointer to the first byte of a buffer.
    Buffer(BufferId),
    /// A signed 32-bit integer.
    I32(i32),
    /// An `f32`.
    F32(f32),
}

/// How to simulate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Decides what hardware leaves open: the order in which a block's warps run between barriers. 0 runs them in
    /// order.
    pub seed: u64,
    /// Whether races on shared memory are looked for.
    pub check_races: bool,
    /// Whether reads of shared bytes that nothing has written are looked for.
    pub check_uninitialised: bool,
    /// Warp instructions after which a block is given up.
    pub step_limit: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config { seed: 0, check_races: true, check_uninitialised: true, step_limit: 100_000_000 }
    }
}
