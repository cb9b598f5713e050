//! Rules that instructions have to keep.

use serde::Serialize;

/// Rule of asynchronous engines and mbarriers that is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// An mbarrier is initialised where one is.
    Again,
    /// An address is not aligned as it has to be.
    Alignment,
    /// Tensor memory is allocated or freed as it may not be, or used where it is not allocated.
    Allocation,
    /// An assertion of the program does not hold.
    Assertion,
    /// More arrivals than a phase has.
    Arrivals,
    /// An mbarrier's bytes are not for ordinary accesses, and nothing else is an mbarrier.
    Barrier,
    /// A count of bytes is wrong.
    Bytes,
    /// Memory is accessed before a wait for the launches that may still access it.
    Dependency,
    /// The threads of a warpgroup or of a barrier do not agree.
    Disagree,
    /// A block or barrier is used after its end.
    Ended,
    /// Registers are written before a product without a fence.
    Fence,
    /// Several threads issue what one has to issue.
    Issuer,
    /// A launch is asked for a cluster as it may not be.
    Launch,
    /// Metadata of a sparse factor are not in order.
    Metadata,
    /// Registers are used while a product, or a load from tensor memory, owns them.
    Owned,
    /// A wait names neither phase.
    Parity,
    /// The phase that an arrival or a wait belongs to depends on the order of execution.
    Phase,
    /// An address is not where it has to be.
    Place,
    /// A thread's number of registers is wrong.
    Registers,
    /// An mbarrier's initialisation was not made visible.
    Visible,
}
