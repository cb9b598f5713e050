//! The numbers of the model, each declared once: its name in files, its unit and its meaning.

use std::fmt;

/// The unit of a number of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quantity {
    /// Cycles of the multiprocessors.
    Cycles,
    /// Microseconds.
    Microseconds,
    /// Cycles a microsecond.
    CyclesPerMicrosecond,
    /// Bytes.
    Bytes,
    /// Bytes a cycle, of the whole chip or of a multiprocessor.
    BytesPerCycle,
    /// Bytes a microsecond.
    BytesPerMicrosecond,
    /// Lines of 128 bytes a cycle, of the whole chip.
    LinesPerCycle,
    /// Elements a cycle.
    ElementsPerCycle,
    /// Accesses to memory a cycle.
    AccessesPerCycle,
    /// Instructions.
    Instructions,
    /// A multiple of something else.
    Factor,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Quantity::Cycles => "cycles",
            Quantity::Microseconds => "us",
            Quantity::CyclesPerMicrosecond => "cycles/us",
            Quantity::Bytes => "bytes",
            Quantity::BytesPerCycle => "bytes/cycle",
            Quantity::BytesPerMicrosecond => "bytes/us",
            Quantity::LinesPerCycle => "lines/cycle",
            Quantity::ElementsPerCycle => "elements/cycle",
            Quantity::AccessesPerCycle => "accesses/cycle",
            Quantity::Instructions => "instructions",
            Quantity::Factor => "factor",
        })
    }
}

/// A number of the model.
#[derive(Clone, Copy, Debug)]
pub struct Number {
    /// The name in files.
    pub name: &'static str,
    /// The unit.
    pub unit: Quantity,
    /// The meaning.
    pub about: &'static str,
    get: fn(&Numbers) -> f64,
    set: fn(&mut Numbers, f64),
}

impl Number {
    /// The value among those of a model.
    pub fn of(&self, numbers: &Numbers) -> f64 {
        (self.get)(numbers)
    }

    /// Gives it another value.
    pub fn set(&self, numbers: &mut Numbers, value: f64) {
        (self.set)(numbers, value);
    }
}

macro_rules! numbers {
    ($($(#[doc = $doc:literal])+ $field:ident: $unit:ident,)+) => {
        /// The values of a model's numbers.
        #[derive(Clone, Copy, PartialEq, Debug)]
        pub struct Numbers {
            $($(#[doc = $doc])+ pub $field: f64,)+
        }

        impl Numbers {
            /// Every number, in the order of files.
            pub const ALL: &'static [Number] = &[$(Number {
                name: stringify!($field),
                unit: Quantity::$unit,
                about: concat!($($doc),+).trim_ascii(),
                get: |numbers| numbers.$field,
                set: |numbers, value| numbers.$field = value,
            },)+];

            /// The same value for each.
            pub(super) const fn same(value: f64) -> Self {
                Numbers { $($field: value,)+ }
            }
        }
    };
}

impl Numbers {
    /// Lines of the L2 cache that are delivered in a cycle, to clusters or to blocks without.
    pub(crate) fn l2_lines(&self, clusters: bool) -> f64 {
        if clusters { self.delivered_clusters } else { self.delivered }
    }
}

numbers! {
    /// Clock under load, which stays well below the highest one.
    clock: CyclesPerMicrosecond,
    /// Launch that does nothing, as events around it see it.
    launch: Microseconds,
    /// Time for which the launch of clusters takes longer.
    clusters: Microseconds,
    /// Bytes that device memory delivers at best.
    read: BytesPerCycle,
    /// Bytes that device memory takes of rows that are multiples of 32 bytes.
    write: BytesPerCycle,
    /// Bytes that could be written in the time that the two ends of a piece of another row take longer, which are parts of sectors.
    ends: Bytes,
    /// Time until device memory is at speed, with an L2 cache full of what others wrote.
    warm_up: Cycles,
    /// Time of a read of device memory: what is in flight over it limits how fast data come.
    memory_latency: Cycles,
    /// Exponent by which the work of blocks and device memory, which go on at once, add up: the higher, the more of the shorter is hidden.
    overlap: Factor,
    /// Time of a block from its launch to its first step.
    prologue: Cycles,
    /// Time from the request of a stage to its product.
    latency: Cycles,
    /// Part by which blocks of a cluster wait longer where two share a factor.
    latency_of_two: Factor,
    /// Part by which they wait longer where more do.
    latency_of_more: Factor,
    /// Part of a step in which what bounds it is at work.
    tensor_cores: Factor,
    /// Part by which steps of fewer than four stages are slower.
    few_stages: Factor,
    /// Part by which steps of fewer than 256 columns are slower.
    narrow: Factor,
    /// Part by which steps are slower where blocks of a cluster wait for the slowest before a stage is filled again.
    in_step: Factor,
    /// Time in which a multiprocessor's port to the L2 cache takes a line of 128 bytes.
    port: Cycles,
    /// Lines that the L2 cache delivers to blocks without clusters, whose neighbours' requests for the same lines are merged.
    delivered: LinesPerCycle,
    /// Lines that it delivers to clusters of blocks, each of which asks for itself.
    delivered_clusters: LinesPerCycle,
    /// Lines that a row of 128 bytes counts as that lies across two: its neighbours in the matrix need the other parts.
    astride: Factor,
    /// Time in which shared memory takes as many bytes as a line, which others of the cluster may have asked for.
    arriving: Cycles,
    /// Part by which device memory is slower where the blocks of a cluster share the smaller factor.
    shared_smaller: Factor,
    /// Accesses of the warpgroup that loads through registers where TMA cannot, of which it has few, one element each.
    through_registers: AccessesPerCycle,
    /// Accesses of `cp.async`, of 4 bytes or 8.
    asynchronous: AccessesPerCycle,
    /// Elements that math warps store where TMA cannot.
    stored: ElementsPerCycle,
    /// Time of a tile's results from the last product to the first chunk's store.
    drain: Cycles,
    /// Time of each chunk beside its elements.
    drain_chunk: Cycles,
    /// Elements of a chunk that leave.
    drained: ElementsPerCycle,
    /// Time between a tile and the next where factors' rows are a step or two, which nothing hides.
    between: Cycles,
    /// Time of a tile's results that leave during the next one's steps.
    overlapped: Cycles,
    /// Time of each of their chunks.
    overlapped_chunk: Cycles,
    /// Time until the sums of a cluster's blocks along k have met.
    meeting: Cycles,
    /// Bytes of sums that a block reads of others of its cluster.
    met: BytesPerCycle,
    /// Time for which boxes of tiles that lie beside the tensors wholly would be written as zeros.
    beside: Cycles,
    /// Time that reads of lines that are not kept save: they need no room, which in an L2 cache full of written lines has to be made.
    unkept: Cycles,
    /// Bytes from which on they save as much.
    unkept_from: Bytes,
    /// Bytes beyond which they save nothing.
    unkept_to: Bytes,
    /// Time that they cost then.
    unkept_cost: Cycles,
    /// Launch that adds the parts of sums.
    adding: Microseconds,
    /// Time for each part, which a thread adds one after the other.
    each_part: Microseconds,
    /// Bytes of parts that are written and read again.
    added_parts: BytesPerCycle,
    /// Bytes of sums that a block of stream-K leaves for another one.
    left: BytesPerCycle,
    /// Bytes of sums that a block adds of others.
    added: BytesPerCycle,
    /// Time that a flag takes from one block to another.
    flag: Cycles,
    /// Time that a block waits for each of the others whose sums it adds.
    other: Cycles,
    /// Part by which steps are slower whose neighbours read other places of k: the L2 cache holds less of what they share.
    scattered: Factor,
    /// Bytes of factors that the L2 cache holds for blocks at different places of k.
    kept: Bytes,
    /// Time until a warpgroup has its sums of a step.
    promotion: Cycles,
    /// Elements that a warpgroup adds to other sums.
    promoted: ElementsPerCycle,
    /// Launch that packs factors, during which that of the product goes on.
    packing: Microseconds,
    /// Bytes that packing reads and writes.
    packed: BytesPerMicrosecond,
    /// Part by which memory is slower for factors whose rows are a step or two and no multiples of the 32 bytes of a sector.
    beside_sectors: Factor,
    /// Part by which it is slower for such rows in steps longer than 64 bytes.
    long_steps: Factor,
    /// Time until the form for short sums writes.
    outer_warm_up: Cycles,
    /// Bytes that it writes then.
    outer_write: BytesPerCycle,
    /// Time of one of its blocks from launch to first store.
    outer_latency: Cycles,
    /// Part by which it is slower with each doubling of its steps of 16 elements.
    outer_deep: Factor,
    /// Time of a block of the form for few columns beside its loads.
    gemv_prologue: Cycles,
    /// Time from loads of that form until their sums: those that are written out together wait once.
    gemv_latency: Cycles,
    /// Instructions of an element of the long factor, and of one of a vector.
    gemv_converted: Instructions,
    /// Time of a warp's access of that form.
    gemv_access: Cycles,
    /// Part by which lines of boxes that taps shift take longer than those of matrices.
    conv_shifted: Factor,
    /// Launch that packs images, and of the one that copies a filter's gradient back.
    conv_packing: Microseconds,
    /// Bytes that packing images reads and writes.
    conv_packed: BytesPerMicrosecond,
    /// Launch that permutes a factor of a contraction.
    permuting: Microseconds,
    /// Bytes that it reads and writes.
    permuted: BytesPerMicrosecond,
    /// Time of a warpgroup from its last product with scales of blocks until it can add, and from there to its next product, beside the
    /// additions.
    fp8_turn: Cycles,
}
