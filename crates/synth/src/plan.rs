//! Plans: the instruction calls of each statement, and when the stages of a pipeline are released.

use std::collections::BTreeSet;
use std::sync::Arc;

use tilewright_machine::{CopyRow, MmaRow};
use tilewright_tile::{Peers, TensorId};

use crate::async_layout::tensor_memory::{SumsPlan, TensorCopyPlan};
use crate::async_layout::tma::TmaPlan;
use crate::async_layout::wgmma::WgmmaPlan;
use crate::combine::CombinePlan;
use crate::gather::GatherPlan;
use crate::gemm::{GemmCall, TiledMma};
use crate::movement::Movement;
use crate::reduce::{ArgPlan, PickPlan, ReducePlan};
use crate::scan::ScanPlan;
use crate::sort::SortPlan;
use crate::tv::Access;

/// The plan of a `copy`.
#[derive(Clone, PartialEq, Debug)]
pub enum CopyPlan {
    /// Between a register tensor and memory.
    Direct {
        /// The instruction.
        row: &'static CopyRow,
        /// The addresses that it touches.
        access: Arc<Access>,
    },
    /// From global to shared memory, without registers.
    Async {
        /// The instruction.
        row: &'static CopyRow,
        /// The addresses that it touches.
        access: Arc<Access>,
    },
    /// From global to shared memory through registers of the moment.
    Staged {
        /// The load from global memory.
        load: &'static CopyRow,
        /// The store to shared memory.
        store: &'static CopyRow,
        /// The addresses that both touch.
        access: Arc<Access>,
    },
    /// An element of memory at a time is changed, and what was there goes to registers.
    Fetch {
        /// The instruction.
        row: &'static CopyRow,
        /// The addresses that it touches.
        access: Arc<Access>,
        /// Bytes of shared memory through which the results go to other threads that hold the same elements; 0 where none do.
        bytes: u32,
    },
    /// Between register tensors that agree which thread holds what: (source value, destination value).
    Registers {
        /// The moves.
        moves: Vec<(u32, u32)>,
    },
}

/// The plan of a `gemm`: calls of one instruction, in order.
#[derive(Clone, PartialEq, Debug)]
pub struct GemmPlan {
    /// The instruction.
    pub row: &'static MmaRow,
    /// The share of instructions and warps in the product.
    pub by: TiledMma,
    /// For each call the values of the accumulator, of A and of B, in the order of the instruction's values.
    pub calls: Vec<GemmCall>,
}

impl GemmPlan {
    /// The calls of one step along K: those that do not add to an accumulator that an earlier one of them has.
    pub fn step(&self) -> usize {
        let first = self.calls.first().map(|call| &call.c);
        let again = self.calls.iter().skip(1).position(|call| Some(&call.c) == first);
        again.map_or(self.calls.len().max(1), |at| at + 1)
    }
}

/// The plan of one statement.
#[derive(Clone, PartialEq, Debug)]
pub enum StmtPlan {
    /// Nothing to decide.
    None,
    /// A copy.
    Copy(CopyPlan),
    /// A copy by the tensor memory accelerator.
    Tma(TmaPlan),
    /// A matrix product.
    Gemm(GemmPlan),
    /// An asynchronous matrix product of warpgroups.
    Wgmma(WgmmaPlan),
    /// An asynchronous matrix product with its sums in tensor memory.
    Sums(SumsPlan),
    /// A copy between tensor memory and registers.
    TensorCopy(TensorCopyPlan),
    /// A rearrangement or a shape statement.
    Move(Movement),
    /// A join or a split: the moves (source value, destination value) of the first and of the second half.
    Halves([Vec<(u32, u32)>; 2]),
    /// An elementwise statement with operands whose extents of 1 repeat: for each the value that each value of the result takes.
    Repeat(Vec<(TensorId, Vec<u32>)>),
    /// A reduction.
    Reduce(ReducePlan),
    /// One coordinate of a mode that threads share, handed to all of them.
    Pick(PickPlan),
    /// The largest or the smallest along a mode with its coordinate.
    Arg(ArgPlan),
    /// A reduction by a function.
    Combine(CombinePlan),
    /// A sort.
    Sort(SortPlan),
    /// A scan.
    Scan(ScanPlan),
    /// A gather.
    Gather(GatherPlan),
    /// A statement with a flag: bytes of shared memory by which one thread hands the others what it was.
    Flag {
        /// The bytes.
        bytes: u32,
    },
}

impl StmtPlan {
    /// Bytes of shared memory that the statement needs for itself.
    pub fn scratch_bytes(&self) -> u32 {
        match self {
            StmtPlan::Move(movement) => movement.shared_bytes(),
            StmtPlan::Reduce(plan) => plan.shared_bytes(),
            StmtPlan::Pick(plan) => plan.shared_bytes(),
            StmtPlan::Arg(plan) => plan.shared_bytes(),
            StmtPlan::Combine(plan) => plan.shared_bytes(),
            StmtPlan::Sort(plan) => plan.shared_bytes(),
            StmtPlan::Scan(plan) => plan.shared_bytes(),
            StmtPlan::Gather(plan) => plan.shared_bytes(),
            StmtPlan::Copy(CopyPlan::Fetch { bytes, .. }) | StmtPlan::Flag { bytes } => *bytes,
            StmtPlan::None
            | StmtPlan::Copy(_)
            | StmtPlan::Tma(_)
            | StmtPlan::Gemm(_)
            | StmtPlan::Wgmma(_)
            | StmtPlan::Sums(_)
            | StmtPlan::TensorCopy(_)
            | StmtPlan::Repeat(_)
            | StmtPlan::Halves(_) => 0,
        }
    }
}

/// Stages that stay unreleased behind the end of their `consume`, because products in flight read them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseDelay {
    /// So many at most.
    Stages(u32),
    /// As many as the launch makes it: registers count them by age.
    Counted,
}

/// The barriers of a pipeline, the same for all its roles.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct PipelinePlan {
    /// Stages of the ring.
    pub stages: u32,
    /// The byte of shared memory at which the full barriers begin, 8 bytes each; the empty ones follow.
    pub barriers: u32,
    /// Arrivals that end a phase of a full barrier.
    pub full_arrivals: u32,
    /// Bytes of TMA loads that end it with them.
    pub tx_bytes: u32,
    /// Arrivals that end a phase of an empty barrier: one a warp of the consumers, in every block that a load reaches.
    pub empty_arrivals: u32,
    /// Blocks whose stages a block's loads reach, its own among them, and whose loads reach its stages: 1 without multicast.
    pub multicast: u32,
    /// True if the even block of a pair multiplies what fills the stages of both, or fills those of both by products: of the barriers for which it waits its own count for both
    /// blocks, and its commits arrive at those of both.
    #[serde(skip)]
    pub pair: bool,
    /// The same block by block: those of each multicast to the stage.
    #[serde(skip)]
    pub peers: BTreeSet<Peers>,
    /// Stages that a consumer has not released when a later one's `consume` ends, at most.
    pub release_delay: ReleaseDelay,
    /// Stages that the producer fills before it hands one on: the copies of its threads to all of them are in flight meanwhile. 0: each is handed on, and its copies
    /// are waited for, at the end of its `produce`.
    pub hand_over_delay: u32,
    /// True if products with their sums in tensor memory fill the stage: it is handed on by their commit.
    #[serde(skip)]
    pub sums: bool,
    /// True if the stage is in tensor memory.
    #[serde(skip)]
    pub tensor_memory: bool,
    /// True if threads write to the stage.
    #[serde(skip)]
    pub stored: bool,
    /// The proxy fences where a stage is handed on.
    #[serde(skip)]
    pub fences: StageFences,
    /// True if a warp's threads meet before one of them releases a stage for all. Where none of them reads it, nor multiplies, a thread
    /// could otherwise fall behind by a phase.
    #[serde(skip)]
    pub warps_meet: bool,
}

impl PipelinePlan {
    /// True if the fence between what threads have read of a stage and the loads that overwrite it stands with the thread that issues
    /// these, behind its wait. It is the cheaper place: that thread has no loads of its own outstanding, which a fence waits for. A load
    /// that other blocks issue is fenced in the block that reads.
    pub fn fenced_by_producer(&self) -> bool {
        self.fences.fence_empty && self.multicast == 1
    }
}

/// The fences that order the accesses to the stages of a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StageFences {
    /// True if threads, and not only asynchronous engines, read a stage.
    pub read: bool,
    /// True if a fence stands before an arrival at the full barrier: threads write what asynchronous engines read or overwrite.
    pub fence_full: bool,
    /// True if a fence stands before an arrival at the empty barrier: threads read what asynchronous copies overwrite.
    pub fence_empty: bool,
}
