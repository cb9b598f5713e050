//! Plans: the instruction calls of each statement, and when the stages of a pipeline are released.

use std::sync::Arc;

use tilewright_machine::{CopyRow, MmaRow};

use crate::async_layout::tma::TmaPlan;
use crate::async_layout::wgmma::WgmmaPlan;
use crate::gather::GatherPlan;
use crate::gemm::{GemmCall, TiledMma};
use crate::movement::Movement;
use crate::reduce::ReducePlan;
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
    /// A rearrangement or a shape statement.
    Move(Movement),
    /// A join or a split: the moves (source value, destination value) of the first and of the second half.
    Halves([Vec<(u32, u32)>; 2]),
    /// A reduction.
    Reduce(ReducePlan),
    /// A gather.
    Gather(GatherPlan),
}

impl StmtPlan {
    /// Bytes of shared memory that the statement needs for itself.
    pub fn scratch_bytes(&self) -> u32 {
        match self {
            StmtPlan::Move(movement) => movement.shared_bytes(),
            StmtPlan::Reduce(plan) => plan.shared_bytes(),
            StmtPlan::Gather(plan) => plan.shared_bytes(),
            StmtPlan::None
            | StmtPlan::Copy(_)
            | StmtPlan::Tma(_)
            | StmtPlan::Gemm(_)
            | StmtPlan::Wgmma(_)
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
