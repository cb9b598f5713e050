//! Reasons for which synthesis took a layout or an instruction, and did not take others: data, which [`explain`](crate::explain) puts into
//! words.

use tilewright_machine::{CopyRow, SwizzleMode, WgmmaRow};
use tilewright_tile::{StmtId, TensorId};

use crate::gemm::TiledMma;
use crate::reject::{MmaOperand, Reject};
use crate::shared::{Constraint, UnifyError};

/// Reason for a tensor's layout.
#[derive(Clone, PartialEq, Debug)]
pub enum Why {
    /// The program gives it.
    Pinned,
    /// It is an operand of a matrix product.
    Operand {
        /// The product.
        stmt: StmtId,
        /// The operand of the product.
        operand: MmaOperand,
        /// The arrangement of the product.
        by: TiledMma,
    },
    /// It coalesces the accesses of a copy to global memory.
    Coalesced {
        /// The copy.
        stmt: StmtId,
        /// Contiguous elements of a thread.
        vector: i64,
    },
    /// It has vectors of rows for a copy to other memory.
    RowVectors {
        /// The copy.
        stmt: StmtId,
        /// Elements of a vector.
        vector: i64,
    },
    /// It has the elements along the mode of a gather in neighbouring lanes.
    GatherLanes {
        /// The gather.
        stmt: StmtId,
        /// The mode.
        axis: usize,
        /// Lanes along it.
        lanes: i64,
    },
    /// A thread has a run of the values along the mode of a scan.
    ScanRuns {
        /// The scan.
        stmt: StmtId,
        /// The mode.
        axis: usize,
    },
    /// A statement wants it to be that of another tensor.
    SameAs {
        /// The statement.
        stmt: StmtId,
        /// The other tensor.
        tensor: TensorId,
    },
    /// It is what a statement makes of another tensor's.
    DerivedFrom {
        /// The statement.
        stmt: StmtId,
        /// The other tensor.
        tensor: TensorId,
    },
    /// Nothing asks for more than row by row.
    RowMajor,
    /// It is the accumulator, or an operand in registers, of an asynchronous matrix product.
    Wgmma {
        /// The instruction.
        row: &'static WgmmaRow,
        /// Warpgroups along M and along N.
        warpgroups: [i64; 2],
    },
    /// It is copied from tensor memory or to it: each warp has the rows of its own lanes.
    TensorMemory {
        /// The instruction.
        row: &'static CopyRow,
    },
    /// The widest swizzle that asynchronous engines can read and write.
    AsyncEngines {
        /// The swizzle.
        swizzle: SwizzleMode,
        /// Tensor copies that move it.
        tensor_copies: usize,
        /// The instruction family of the products that read it.
        products: Option<&'static str>,
    },
    /// Several roles share it, and no layout suits their copies better.
    SharedByRoles,
    /// It unifies what the copies of several roles ask.
    Agreed {
        /// Their demands.
        constraint: Constraint,
        /// Elements from one stage to the next, where it has stages.
        stage: Option<i64>,
    },
    /// It unifies what the copies of a shared tensor ask.
    Unified {
        /// Their demands.
        constraint: Constraint,
        /// Elements from one stage to the next, where it has stages.
        stage: Option<i64>,
    },
}

impl Why {
    /// The statement that fixed the layout.
    pub fn statement(&self) -> Option<StmtId> {
        match self {
            Why::Operand { stmt, .. }
            | Why::Coalesced { stmt, .. }
            | Why::RowVectors { stmt, .. }
            | Why::GatherLanes { stmt, .. }
            | Why::ScanRuns { stmt, .. }
            | Why::SameAs { stmt, .. }
            | Why::DerivedFrom { stmt, .. } => Some(*stmt),
            Why::Pinned
            | Why::RowMajor
            | Why::Wgmma { .. }
            | Why::TensorMemory { .. }
            | Why::AsyncEngines { .. }
            | Why::SharedByRoles
            | Why::Agreed { .. }
            | Why::Unified { .. } => None,
        }
    }
}

/// An instruction that was not taken.
#[derive(Clone, PartialEq, Debug)]
pub struct NotTaken {
    /// Its name.
    pub instruction: String,
    /// Reason for which it was not.
    pub why: Lost,
}

impl NotTaken {
    /// An instruction that cannot do what is asked.
    pub fn rejected(instruction: impl Into<String>, why: impl Into<Reject>) -> Self {
        NotTaken { instruction: instruction.into(), why: Lost::Rejected(why.into()) }
    }
}

/// Reason for which an instruction was not taken.
#[derive(Clone, PartialEq, Debug)]
pub enum Lost {
    /// It cannot do what is asked.
    Rejected(Reject),
    /// It wants another layout of a shared tensor than the instruction of another copy.
    Contradicts {
        /// The layout that it wants.
        constraint: Constraint,
        /// The other instruction.
        other: String,
        /// The other copy.
        stmt: StmtId,
        /// The difference of the two.
        error: UnifyError,
    },
    /// It takes more calls.
    MoreCalls {
        /// Its calls.
        calls: usize,
        /// Those of the instruction that was taken.
        against: usize,
    },
    /// It takes more issue cycles of a warp, bank conflicts aside.
    MoreCycles {
        /// Its cycles.
        cycles: u64,
        /// Those of the instruction that was taken.
        against: u64,
    },
    /// Its bank conflicts, or the instruction that it forces on another copy, cost more than it saves.
    DearerInAll {
        /// Its issue cycles.
        cycles: u64,
        /// The cycles of all copies of the tensor as they were taken.
        total: u64,
    },
    /// It takes more issue cycles of a warp.
    Slower {
        /// Its cycles.
        cycles: u32,
        /// Those of the way that was taken.
        against: u32,
    },
    /// Rows of a shared tile have no multiple of 16 bytes, whichever mode is contiguous.
    RowBytes {
        /// The tensor.
        tensor: TensorId,
        /// The bytes of a row along each mode.
        bytes: Vec<i64>,
    },
}

impl From<Reject> for Lost {
    fn from(why: Reject) -> Self {
        Lost::Rejected(why)
    }
}
