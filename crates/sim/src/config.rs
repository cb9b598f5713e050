//! Arguments of a launch, and the configuration of the simulator.

use tilewright_machine::Progress;

use crate::memory::BufferId;

/// An argument of a launch, for one parameter of the function.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A pointer to the first byte of a buffer.
    Buffer(BufferId),
    /// A signed 32-bit integer.
    I32(i32),
    /// An `f32`.
    F32(f32),
    /// A 64-bit integer.
    I64(i64),
    /// An `f64`.
    F64(f64),
    /// A tensor in a buffer, for a tensor map: it begins at the buffer's first byte.
    TensorMap {
        /// The buffer.
        buffer: BufferId,
        /// Extents in elements, dimension 0 first, in the order of the map's box.
        extents: Vec<u64>,
        /// Bytes from one element to the next along dimensions 1, 2, …; dimension 0 is contiguous.
        strides: Vec<u64>,
    },
    /// A pointer to pointers to buffers.
    Buffers {
        /// The buffer of the pointers: [`GlobalMemory::alloc_pointers`](crate::GlobalMemory::alloc_pointers).
        pointers: BufferId,
        /// The buffers.
        buffers: Vec<BufferId>,
    },
    /// A pointer to tensor maps of tensors of one shape, one in each buffer: they begin at its first byte.
    TensorMaps {
        /// The buffers.
        buffers: Vec<BufferId>,
        /// Extents in elements, dimension 0 first, in the order of the map's box.
        extents: Vec<u64>,
        /// Bytes from one element to the next along dimensions 1, 2, …; dimension 0 is contiguous.
        strides: Vec<u64>,
    },
}

impl Argument {
    /// The buffers through which a function may touch memory by this argument; one for each tensor, in order.
    pub(crate) fn buffers(&self) -> &[BufferId] {
        match self {
            Argument::Buffer(buffer) | Argument::TensorMap { buffer, .. } => std::slice::from_ref(buffer),
            Argument::Buffers { buffers, .. } | Argument::TensorMaps { buffers, .. } => buffers,
            Argument::I32(_) | Argument::F32(_) | Argument::I64(_) | Argument::F64(_) => &[],
        }
    }
}

/// Configuration of a simulation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Decides what hardware leaves open: in which order and for how long the warps of a cluster run, and when asynchronous engines
    /// do their work. 0 runs warps in order, each as far as it comes, and units as late as they may.
    pub seed: u64,
    /// True if races on shared memory are looked for.
    pub check_races: bool,
    /// True if races on global memory are looked for, within a cluster and between clusters.
    pub check_global: bool,
    /// True if the launch may begin before those ahead of it have ended: each of its accesses to global memory is then to come after
    /// [`SyncOp::DependencyWait`](tilewright_machine::SyncOp::DependencyWait), in its thread or, by a barrier, in another of the cluster, but
    /// for reads of buffers that are [constant](crate::GlobalMemory::mark_constant). Asked of functions that wait so or let later launches
    /// begin, where `check_global` is on.
    pub overlaps: bool,
    /// True if reads of shared bytes that nothing has written are looked for.
    pub check_uninitialised: bool,
    /// True if reads of registers that nothing has written are looked for.
    pub check_registers: bool,
    /// Warp instructions of a block after which its cluster is given up.
    pub step_limit: u64,
    /// True if [`Report::profile`](crate::Report::profile) is wanted.
    pub profile: bool,
    /// The number of a block, x fastest, whose cluster is traced in [`Report::trace`](crate::Report::trace).
    pub trace: Option<u64>,
    /// Counts the clusters that have run.
    pub progress: Option<Progress>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 0,
            check_races: true,
            check_global: true,
            overlaps: true,
            check_uninitialised: true,
            check_registers: true,
            step_limit: 100_000_000,
            profile: false,
            trace: None,
            progress: None,
        }
    }
}

impl Config {
    /// This configuration with only the checks for races.
    pub fn only_races(self) -> Self {
        Config { check_uninitialised: false, check_registers: false, ..self }
    }

    /// This configuration without the checks that cost time. Accesses out of bounds and misuses are found all the same.
    pub fn unchecked(self) -> Self {
        Config { check_races: false, check_global: false, ..self.only_races() }
    }
}
