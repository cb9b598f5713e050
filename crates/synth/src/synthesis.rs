//! The result of synthesis: the layout of each tensor, the plan of each statement, and why.
//!
//! A shared tensor's layout maps the coordinate in its tile → offset in elements, the swizzle last.

use std::collections::BTreeSet;

use tilewright_layout::SwizzledLayout;
use tilewright_tile::core::Stmt;
use tilewright_tile::{Diagnostic, StmtId, StmtMap, TensorId};

use crate::allocate::Allocation;
use crate::explain::Explanation;
use crate::plan::StmtPlan;
use crate::tv::TvLayout;

/// The layout of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub enum TensorLayout {
    /// Of a register tensor.
    Register(TvLayout),
    /// Of a shared tensor: tile coordinate → offset in elements.
    Shared {
        /// The layout.
        layout: SwizzledLayout,
        /// Size in bytes.
        bytes: u32,
    },
}

/// The decisions for a program.
#[derive(Clone, Debug)]
pub struct Synthesis {
    /// One entry a tensor of the program; `None` for views of global memory.
    pub tensors: Vec<Option<TensorLayout>>,
    /// The plan of every statement.
    pub statements: StmtMap<StmtPlan>,
    /// The places of the shared tensors in the block's window.
    pub allocation: Allocation,
    /// Bytes of shared memory, behind the tensors, that statements use one after the other, each for itself.
    pub scratch_bytes: u32,
    /// The copies to fragments that the products which take them do, step by step along K, because whole fragments do not fit.
    pub streamed: BTreeSet<StmtId>,
    /// Reasons of the choices, for people and for tools.
    pub explanation: Explanation,
}

impl Synthesis {
    /// The plan of a statement of the program.
    ///
    /// # Errors
    ///
    /// A statement of another program: an internal error.
    pub fn plan(&self, stmt: &Stmt) -> Result<&StmtPlan, Diagnostic> {
        self.statements.get(stmt.id).ok_or_else(|| {
            Diagnostic::internal(
                stmt.span,
                format_args!("synthesis has no plan for the statement {}", stmt.id),
            )
        })
    }

    /// The thread-value layout of a register tensor.
    pub fn register(&self, tensor: TensorId) -> Option<&TvLayout> {
        match self.tensors.get(tensor.0 as usize) {
            Some(Some(TensorLayout::Register(tv))) => Some(tv),
            _ => None,
        }
    }

    /// The layout and size of a shared tensor.
    pub fn shared(&self, tensor: TensorId) -> Option<(&SwizzledLayout, u32)> {
        match self.tensors.get(tensor.0 as usize) {
            Some(Some(TensorLayout::Shared { layout, bytes, .. })) => Some((layout, *bytes)),
            _ => None,
        }
    }
}
