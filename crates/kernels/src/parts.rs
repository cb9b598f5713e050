//! An estimated time as the sum of its parts, and of a product's steps what bounds them.

use std::fmt;

/// A part of an estimated time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Launching a kernel that does nothing.
    Launch,
    /// The time for which the launch of clusters takes longer.
    Clusters,
    /// Kernels ahead, which put factors into another form.
    Ahead,
    /// Blocks until their first step.
    Prologue,
    /// The steps along k of all rounds of tiles.
    Steps,
    /// Results on their way to memory, as far as no other tile's steps hide them.
    Epilogue,
    /// Sums that the blocks of a cluster exchange.
    Meeting,
    /// Sums that a block leaves for another one, and that this one adds.
    StreamK,
    /// Device memory, as far as it takes longer than all that blocks do.
    Memory,
    /// Tiles that lie beside the tensors partly: negative where boxes are not written.
    Beside,
    /// The launch that adds parts of sums.
    SplitSums,
    /// An estimate that has no parts.
    Whole,
}

impl Part {
    /// Every part, in the order of time.
    pub const ALL: [Part; 12] = [
        Part::Launch,
        Part::Clusters,
        Part::Ahead,
        Part::Prologue,
        Part::Steps,
        Part::Epilogue,
        Part::Meeting,
        Part::StreamK,
        Part::Memory,
        Part::Beside,
        Part::SplitSums,
        Part::Whole,
    ];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Part::Launch => "launch",
            Part::Clusters => "launch of clusters",
            Part::Ahead => "kernels ahead",
            Part::Prologue => "prologue",
            Part::Steps => "steps along k",
            Part::Epilogue => "epilogue",
            Part::Meeting => "sums of a cluster",
            Part::StreamK => "stream-K sums",
            Part::Memory => "device memory beyond that",
            Part::Beside => "tiles beside the tensors",
            Part::SplitSums => "split sums",
            Part::Whole => "estimate without parts",
        })
    }
}

/// A resource that a step along k waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resource {
    /// Products of the tensor cores.
    TensorCores,
    /// Shared memory, from which products read their factors.
    SharedMemory,
    /// The port to the L2 cache.
    Port,
    /// The L2 cache, which delivers to all blocks at once.
    L2,
    /// Shared memory, into which factors arrive.
    Arrival,
    /// The latency of a stage, shared out among the stages of the ring.
    Latency,
    /// Additions of a stage's sums to those in the threads.
    Promotion,
    /// Work of a warpgroup beside products of matrices.
    Threads,
    /// Loads by threads, where TMA cannot.
    Loads,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Resource; 9] = [
        Resource::TensorCores,
        Resource::SharedMemory,
        Resource::Port,
        Resource::L2,
        Resource::Arrival,
        Resource::Latency,
        Resource::Promotion,
        Resource::Threads,
        Resource::Loads,
    ];
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Resource::TensorCores => "tensor cores",
            Resource::SharedMemory => "shared memory",
            Resource::Port => "port to the L2 cache",
            Resource::L2 => "L2 cache of all blocks",
            Resource::Arrival => "arrival in shared memory",
            Resource::Latency => "latency of a stage",
            Resource::Promotion => "promotion of sums",
            Resource::Threads => "work of the threads",
            Resource::Loads => "loads by threads",
        })
    }
}

/// The steps along k of a product.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Steps {
    /// Tiles that a block, or a cluster, does one after another.
    pub waves: f64,
    /// Steps of a tile.
    pub steps: f64,
    /// Cycles of a step.
    pub cycles: f64,
    /// Cycles that each resource alone would take for a step, in the order of [`Resource::ALL`].
    pub wanted: [f64; Resource::ALL.len()],
}

impl Steps {
    /// The resource that wants most of a step.
    pub fn bound(&self) -> Resource {
        let wants = Resource::ALL.into_iter().zip(self.wanted);
        wants.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Resource::TensorCores, |(resource, _)| resource)
    }
}

/// An estimated time with its parts.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Estimate {
    /// Microseconds of all.
    pub microseconds: f64,
    /// Microseconds of each part, in the order of [`Part::ALL`]: they add up to those of all.
    pub parts: [f64; Part::ALL.len()],
    /// The steps, where a part is theirs.
    pub steps: Option<Steps>,
}

impl Estimate {
    /// An estimate that has no parts.
    pub(crate) fn whole(microseconds: f64) -> Self {
        Estimate::of(microseconds, &[(Part::Whole, microseconds)])
    }

    /// An estimate with these parts.
    pub(crate) fn of(microseconds: f64, given: &[(Part, f64)]) -> Self {
        let mut parts = [0.0; Part::ALL.len()];
        given.iter().for_each(|(part, time)| parts[*part as usize] += time);
        Estimate { microseconds, parts, steps: None }
    }

    /// The same with kernels ahead that take so long.
    pub(crate) fn after(self, microseconds: f64) -> Self {
        self.with(Part::Ahead, microseconds)
    }

    /// The same with so much more of a part.
    pub(crate) fn with(mut self, part: Part, microseconds: f64) -> Self {
        self.microseconds += microseconds;
        self.parts[part as usize] += microseconds;
        self
    }

    /// Microseconds of a part.
    pub fn part(&self, part: Part) -> f64 {
        self.parts[part as usize]
    }
}
