//! The context of lowering: the part of a program that is lowered, its plans, and the builder with what the statements before have
//! left in it.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Arch, ScalarOp, SyncOp};
use tilewright_simt::{ArrayId, Build, Builder, Operand, Special, Value};
use tilewright_synth::block::pipeline::Pipelines;
use tilewright_synth::block::role::RolePlan;
use tilewright_synth::block::smem::PartMemory;
use tilewright_synth::block::tiles::TileQueues;
use tilewright_synth::{Divisibility, Synthesis};
use tilewright_tile::core::{Coord, Program, Slot, Stmt};
use tilewright_tile::{Diagnostic, Expr, Origin, StmtId, SymbolId, TensorId};

use crate::async_state::AsyncState;
use crate::barriers::Barriers;
use crate::maps::Maps;
use crate::scalar;
use crate::schedule::FirstUse;
use crate::tensor_memory::Columns;
use crate::walk::FirstTile;

/// A state that synthesis should have ruled out.
pub fn internal(span: Origin, what: &str) -> Diagnostic {
    Diagnostic::internal(span, format_args!("lowering met {what}"))
}

/// One part of a program on its way to what its threads run.
pub struct Lower<'a> {
    pub(crate) verified: &'a Program,
    pub(crate) synthesis: &'a Synthesis,
    pub(crate) divisibility: &'a Divisibility<'a>,
    pub(crate) arch: Arch,
    pub(crate) b: &'a mut Builder,
    /// The tensor maps so far.
    pub(crate) maps: &'a mut Maps,
    /// The fragment of each register tensor.
    pub(crate) arrays: Vec<Option<ArrayId>>,
    /// The offsets of shared tensors, their buffers, by which reports name them, and the scratch buffer.
    pub(crate) memory: &'a PartMemory,
    /// Values of sizes and of the counters in scope: the verifier has seen that no other is used.
    pub(crate) symbols: BTreeMap<SymbolId, Operand>,
    /// The numbers of the stages that statements around have.
    pub(crate) slots: BTreeMap<Slot, Operand>,
    /// Shared tensors that synchronous copies in flight fill.
    pub(crate) pending_copies: BTreeSet<TensorId>,
    /// True if a statement before has used the scratch buffer.
    pub(crate) scratch_used: bool,
    /// Loops around the statement.
    pub(crate) loops: u32,
    /// The first use of each value in a product.
    pub(crate) first_use: FirstUse,
    /// Copies to fragments that products do step by step, by fragment.
    pub(crate) streams: BTreeMap<TensorId, Stmt>,
    /// The statements of conditions that a vote alone takes, by condition: they stand in it.
    pub(crate) decisions: BTreeMap<TensorId, Stmt>,
    /// The plan of the part.
    pub(crate) role: &'a RolePlan,
    /// The pipelines of the block.
    pub(crate) pipelines: &'a Pipelines,
    /// The block's tensor memory.
    pub(crate) columns: Option<Columns<'a>>,
    /// The counters of the block that deal out tiles.
    pub(crate) tiles: &'a TileQueues,
    /// The number of the part.
    pub(crate) part: usize,
    /// The tile with which one of its loops begins, if the start has computed it.
    pub(crate) first_tile: Option<FirstTile>,
    /// The numbers of its barriers.
    pub(crate) barriers: Barriers,
    /// The state of asynchronous operations.
    pub(crate) state: AsyncState,
}

impl Build for Lower<'_> {
    fn builder(&mut self) -> &mut Builder {
        self.b
    }
}

impl Lower<'_> {
    /// The registers of a fragment.
    pub(crate) fn array(&self, tensor: TensorId) -> Result<ArrayId, Diagnostic> {
        let span = self.verified.tensor(tensor).span;
        self.arrays[tensor.0 as usize].ok_or_else(|| internal(span, "a tensor that is not in registers"))
    }

    /// Values a thread holds of a register tensor.
    pub(crate) fn count(&self, tensor: TensorId) -> Result<u32, Diagnostic> {
        let span = self.verified.tensor(tensor).span;
        let tv = self.synthesis.register(tensor);
        tv.map(|tv| tv.count() as u32).ok_or_else(|| internal(span, "a register tensor without a layout"))
    }

    /// An expression over the sizes and counters in scope.
    pub(crate) fn expr(&mut self, e: &Expr) -> Operand {
        let symbols = &self.symbols;
        scalar::expr(self.b, self.divisibility, &|id| symbols[&id], e)
    }

    /// The condition that an expression is not 0.
    pub(crate) fn condition(&mut self, e: &Expr) -> Operand {
        let symbols = &self.symbols;
        scalar::holds(self.b, self.divisibility, &|id| symbols[&id], e)
    }

    /// An entry of an index.
    pub(crate) fn coord(&mut self, coord: &Coord, span: Origin) -> Result<Operand, Diagnostic> {
        match coord {
            Coord::Expr(e) => Ok(self.expr(e)),
            Coord::Slot(slot) => {
                let number = self.slots.get(slot).copied();
                number.ok_or_else(|| internal(span, "a stage outside of its pipeline"))
            }
        }
    }

    /// Waits for the asynchronous copies that do synchronous ones: of one tensor, or of all.
    pub(crate) fn wait_for_copies(&mut self, tensor: Option<TensorId>) {
        if tensor.map_or(!self.pending_copies.is_empty(), |t| self.pending_copies.contains(&t)) {
            self.b.sync(SyncOp::AsyncWaitAll);
            self.pending_copies.clear();
        }
    }

    /// The fences that stand at a statement, behind what is in flight.
    pub(crate) fn fences(&mut self, statement: StmtId) {
        let fences = self.role.sync.fences(statement).to_vec();
        if !fences.is_empty() {
            self.wait_for_copies(None);
        }
        for fence in fences {
            self.b.sync(SyncOp::FenceProxyAsync(fence));
        }
    }

    /// The base of the block's shared memory.
    pub(crate) fn shared_base(&mut self) -> Operand {
        Operand::Value(self.b.special(Special::SharedBase))
    }

    /// Does something where a condition holds, if there is one.
    pub(crate) fn guarded(&mut self, condition: Option<Value>, body: impl FnOnce(&mut Self)) {
        match condition {
            None => body(self),
            Some(condition) => self.only_where(condition, body),
        }
    }

    /// Two conditions of which either may be missing.
    pub(crate) fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        let (Some(x), Some(y)) = (a, b) else { return a.or(b) };
        scalar::value(self.b.scalar(ScalarOp::AndPred, &[x.into(), y.into()]))
    }
}
