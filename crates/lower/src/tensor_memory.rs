//! Tensor memory: its allocation at the start and its end, products with their sums there, copies, and the fences that order them.
//!
//! Everything here follows the order of the PTX ISA (9.1, section 9.7.16.6): what has waited for a barrier and touches tensor memory, or issues a product, has a
//! `fence::after_thread_sync` behind the wait; what a thread has copied and waited for, it passes on behind a `fence::before_thread_sync`; a commit brings its own.

use tilewright_machine::{
    Descriptor, Major, MbarrierOp, Memory, ScalarOp, Scope, SumsScaling, SyncOp, Tcgen05Row, TensorMemory,
    thread_copy,
};
use tilewright_simt::{
    Address, Build, Builder, DescriptorValue, Factor, MetadataCells, Operand, Reg, ScaleCells, Special,
};
use tilewright_synth::block::tensor_memory::TensorMemoryMap;
use tilewright_synth::plan::PipelinePlan;
use tilewright_synth::{ScalesAt, SharedOperand, SumsPlan, TensorCopyPlan};
use tilewright_tile::core::{Program, Slot, TensorRef};
use tilewright_tile::{Code, Diagnostic, Multicast, Origin, Side, StmtId, TensorId};

use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, condition, int, warp_index};

/// The block's tensor memory.
#[derive(Clone, Copy)]
pub struct Columns<'a> {
    /// Its map.
    pub map: &'a TensorMemoryMap,
    /// The address of its first column.
    pub base: Operand,
}

/// Allocates the block's columns, by its first warp, which gives up the permit so that the next block may. A barrier has to follow.
pub fn allocate(b: &mut Builder, whole: &Program, map: &TensorMemoryMap) {
    for (id, columns) in &map.tensors {
        b.add_tensor_memory(whole.tensor(*id).name.clone(), columns.first, columns.all);
    }
    for (id, first, columns) in &map.scale_tensors {
        b.add_tensor_memory(whole.tensor(*id).name.clone(), *first, *columns);
    }
    b.set_origin("tensor memory");
    let base = Operand::Value(b.special(Special::SharedBase));
    let word = Address { base, offset: map.word as i32 };
    first_warp(b, |b| {
        b.tensor_allocate(map.columns, word);
        b.sync(SyncOp::TensorRelinquish);
    });
    b.sync(SyncOp::TensorFenceBefore);
}

/// Reads the address of the columns, behind the barrier.
///
/// # Errors
///
/// An internal one.
pub fn address<'a>(b: &mut Builder, map: &'a TensorMemoryMap) -> Result<Columns<'a>, Diagnostic> {
    b.sync(SyncOp::TensorFenceAfter);
    let base = Operand::Value(b.special(Special::SharedBase));
    let word = Reg { array: b.add_array("tensor memory", 1), index: 0 };
    let row = thread_copy(Memory::Shared, Memory::Register, Scope::Cta, 4);
    let row = row.ok_or_else(|| internal(Origin::Unknown, "no load of a word"))?;
    b.load(row, vec![word], Address { base, offset: map.word as i32 }, None);
    Ok(Columns { map, base: b.read(word) })
}

/// Frees the columns once all threads have come to the end, and, where blocks reach into each other's memory, those of the cluster.
pub fn free(b: &mut Builder, columns: Columns<'_>, reached: bool) {
    b.set_origin("tensor memory");
    // Lanes that a role has left out come together again.
    b.sync(SyncOp::WarpBarrier);
    b.sync(SyncOp::TensorFenceBefore);
    b.sync(if reached { SyncOp::ClusterBarrier } else { SyncOp::Barrier });
    first_warp(b, |b| {
        b.sync(SyncOp::TensorFenceAfter);
        b.tensor_free(columns.map.columns, columns.base);
    });
}

/// Does something with the block's first warp.
fn first_warp(b: &mut Builder, body: impl FnOnce(&mut Builder)) {
    let warp = warp_index(b);
    match condition(b, ScalarOp::EqI32, warp, int(0)) {
        Some(first) => b.only_where(first, body),
        None => body(b),
    }
}

impl Lower<'_> {
    /// The address of the first column of a tensor, of the stage at hand.
    fn columns(&mut self, tensor: TensorId, span: Origin) -> Result<Operand, Diagnostic> {
        let found = self.columns.and_then(|columns| Some((columns.base, *columns.map.tensors.get(&tensor)?)));
        let (base, at) = found.ok_or_else(|| internal(span, "a tensor without columns"))?;
        let sides = [Side::Produce, Side::Consume].map(|side| Slot { pipeline: at.pipeline, side });
        let slot = sides.iter().find_map(|slot| self.slots.get(slot).copied());
        let slot = slot.ok_or_else(|| internal(span, "a stage of tensor memory outside of its pipeline"))?;
        let first = add(self.b, base, int(i64::from(at.first)));
        let stage = scalar::scale(self.b, slot, i64::from(at.stage));
        Ok(add(self.b, first, stage))
    }

    /// The lower half of a factor's descriptor, and its upper one.
    fn factor(
        &mut self,
        reference: &TensorRef,
        operand: &SharedOperand,
        span: Origin,
    ) -> Result<DescriptorValue, Diagnostic> {
        let low = self.descriptor(reference, operand, (1, 1), span)?.low;
        let form = Descriptor { start: 0, ..operand.descriptor };
        Ok(DescriptorValue { low, high: (Tcgen05Row::matrix(&form) >> 32) as u32 })
    }

    /// `gemm.async(c, a, b)` with its sums in tensor memory.
    pub(crate) fn sums(
        &mut self,
        c: TensorId,
        (a, b): (&TensorRef, &TensorRef),
        (meta, scales): (Option<TensorId>, Option<(StmtId, &[TensorRef; 2])>),
        plan: &SumsPlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let sums = Address { base: self.columns(c, span)?, offset: 0 };
        let scales = scales.map(|(stmt, scales)| self.scales(stmt, scales, plan, span)).transpose()?;
        let left = plan.a.as_ref().map(|of| self.factor(a, of, span)).transpose()?;
        let tensor = if left.is_none() { Some(self.columns(a.tensor, span)?) } else { None };
        let right = self.factor(b, &plan.b, span)?;
        let metadata = meta.map(|meta| self.columns(meta, span)).transpose()?;
        let (first, flag) = self.accumulates(c);
        for call in &plan.calls {
            let factor = |lower: &mut Self, whole: DescriptorValue, operand: &SharedOperand, at: i64| {
                let low = add(lower.b, whole.low, int(at / 16));
                Factor::Shared { descriptor: DescriptorValue { low, ..whole }, major: operand.major }
            };
            let x = match (left, &plan.a, tensor) {
                (Some(left), Some(of), _) => factor(self, left, of, call.a_at),
                (_, _, Some(base)) => Factor::Tensor(Address { base, offset: call.a_at as i32 }),
                _ => return Err(internal(span, "a product without its left factor")),
            };
            let y = factor(self, right, &plan.b, call.b_at);
            let accumulate = if call.first { first } else { Operand::Imm(1) };
            if let (Some(base), Some(places)) = (metadata, call.places) {
                let address = Address { base, offset: places.column as i32 };
                let meta = MetadataCells { address, selector: places.selector };
                self.b.sparse_tcgen05(plan.row, sums, [x, y], meta, accumulate);
                continue;
            }
            match (scales, call.scales) {
                (Some(columns), Some([of_a, of_b])) => {
                    let cells = |first: Address, at: ScalesAt| {
                        let address = Address { offset: first.offset + at.column as i32, ..first };
                        ScaleCells { address, byte: at.byte }
                    };
                    let scales = [cells(columns[0], of_a), cells(columns[1], of_b)];
                    self.b.scaled_tcgen05(plan.row, sums, [x, y], scales, accumulate);
                }
                _ => self.b.tcgen05(plan.row, sums, x, y, accumulate),
            }
        }
        if let Some(flag) = flag {
            self.b.write(flag, int(1));
        }
        Ok(())
    }

    /// Copies the scales of a product to tensor memory, a chunk at a time: the addresses of their first columns.
    fn scales(
        &mut self,
        stmt: StmtId,
        scales: &[TensorRef; 2],
        plan: &SumsPlan,
        span: Origin,
    ) -> Result<[Address; 2], Diagnostic> {
        let found = self.columns.and_then(|columns| Some((columns.base, *columns.map.scales.get(&stmt)?)));
        let (base, columns) = found.ok_or_else(|| internal(span, "scales without columns"))?;
        let to = columns.map(|first| Address { base, offset: first as i32 });
        let descriptor = SumsScaling::chunk();
        let operand = SharedOperand { major: Major::K, descriptor, warpgroup: 0 };
        for ((scale, chunks), to) in scales.iter().zip(plan.chunks).zip(to) {
            let first = self.factor(scale, &operand, span)?;
            for chunk in 0..chunks {
                let low = add(self.b, first.low, int(i64::from(chunk) * SumsScaling::BYTES / 16));
                let offset = to.offset + (chunk * SumsScaling::COLUMNS) as i32;
                self.b.scale_copy(DescriptorValue { low, ..first }, Address { offset, ..to });
            }
        }
        Ok(to)
    }

    /// True if a fill stands ahead of the stages of its tensor, of which there is one: nobody reads the stage before a product has overwritten it, which finds a
    /// flag.
    pub(crate) fn begins_ahead(&mut self, tensor: TensorId) -> bool {
        let map = self.columns.map(|columns| &columns.map.tensors);
        let Some(at) = map.and_then(|tensors| tensors.get(&tensor)) else { return false };
        let slot = Slot { pipeline: at.pipeline, side: Side::Produce };
        if self.slots.contains_key(&slot) {
            return false;
        }
        self.begin_by_flag(tensor);
        true
    }

    /// The refusal of a fill of tensor memory that no product overwrites.
    pub(crate) fn fill_without_product(&self, tensor: TensorId, span: Origin) -> Diagnostic {
        let name = &self.verified.tensor(tensor).name;
        let message = format!(
            "`{name}` in tensor memory is filled, and no product is sure to follow that overwrites it"
        );
        Diagnostic::new(Code::Unsatisfiable, span, message).help(
            "let `gemm.async` follow the fill, at once or in a loop that has a round: of bounds such as `0..ceil_div(k, BK)`",
        )
    }

    /// A copy between tensor memory and registers, and its wait.
    pub(crate) fn copy_of_sums(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        plan: &TensorCopyPlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let loads = self.verified.tensor(src.tensor).memory() == Memory::Tensor;
        let (sums, fragment) = if loads { (src, dst.tensor) } else { (dst, src.tensor) };
        let array = self.array(fragment)?;
        let first = self.columns(sums.tensor, span)?;
        let first = self.part_of_sums(first, sums, span)?;
        let bits = self.verified.tensor(sums.tensor).dtype.bits();
        let (first_warp, warp) = self.state.warps;
        // Roles are of whole warpgroups, so that a warp's number in the block tells its lanes too.
        let quarter = self.b.scalar(ScalarOp::AndB32, &[warp, int(3)]);
        let lanes = scalar::scale(
            self.b,
            quarter,
            i64::from(TensorMemory::address(TensorMemory::LANES_OF_A_WARP, 0)),
        );
        let mut base = add(self.b, first, lanes);
        if plan.warpgroup > 0 {
            let own = add(self.b, warp, int(-i64::from(first_warp)));
            let group = self.b.scalar(ScalarOp::ShrU32, &[own, int(2)]);
            let part = scalar::scale(self.b, group, i64::from(plan.warpgroup));
            base = add(self.b, base, part);
        }
        for call in &plan.calls {
            let regs = elements::places(array, &call.values, bits);
            let offset = TensorMemory::address(call.lane, call.column) as i32;
            self.b.tensor_copy(plan.row, regs, Address { base, offset });
        }
        self.b.sync(if loads { SyncOp::TensorWaitLoad } else { SyncOp::TensorWaitStore });
        Ok(())
    }

    /// The first column of a part of a tensor that begins at a column: the parts lie side by side.
    fn part_of_sums(
        &mut self,
        mut first: Operand,
        part: &TensorRef,
        span: Origin,
    ) -> Result<Operand, Diagnostic> {
        let (shape, dtype) = (self.verified.shape(part.tensor), self.verified.tensor(part.tensor).dtype);
        let mut step = 1;
        for (mode, extent) in shape.iter().enumerate().skip(1) {
            if let Some(Some(at)) = part.index.get(mode) {
                let at = self.coord(at, span)?;
                let columns = scalar::scale(self.b, at, i64::from(TensorMemory::columns_of(step, dtype)));
                first = add(self.b, first, columns);
            }
            step *= extent;
        }
        Ok(first)
    }

    /// The fence behind a wait for a stage, where the role touches tensor memory in it or issues products.
    pub(crate) fn after_wait(&mut self, pipeline: &PipelinePlan) {
        if pipeline.tensor_memory || self.role.sums {
            self.b.sync(SyncOp::TensorFenceAfter);
        }
    }

    /// The fence before an arrival at a barrier of a stage whose tensor memory threads have touched.
    pub(crate) fn before_arrival(&mut self, pipeline: &PipelinePlan) {
        if pipeline.tensor_memory {
            self.b.sync(SyncOp::TensorFenceBefore);
        }
    }

    /// Arrives at a barrier of a stage, of a pair at that of both blocks, once all products so far are complete.
    pub(crate) fn commit_sums(&mut self, pipeline: &PipelinePlan, barrier: Address) {
        if pipeline.pair {
            let ranks = self.ranks_of_peers(Multicast::Pair.peers(self.verified.cluster_shape()));
            return self.b.mbarrier(MbarrierOp::CommitPeers, barrier, ranks);
        }
        self.b.mbarrier(MbarrierOp::Commit, barrier, int(0));
    }

    /// True if a tensor is in tensor memory.
    pub(crate) fn is_in_tensor_memory(&self, tensor: TensorId) -> bool {
        self.verified.tensor(tensor).memory() == Memory::Tensor
    }
}
