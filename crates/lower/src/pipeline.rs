//! The barriers and phases of pipeline stages, as [`PipelinePlan`] says.
//!
//! Each side keeps the number of its stage and the parity of its phase in registers, and flips the parity when the ring wraps; a fresh
//! empty barrier lets a wait for parity 1 pass, which is how the producer begins. A consumer's release of stages is in `release.rs`.

use tilewright_machine::{MbarrierOp, ProxyFence, ScalarOp, SyncOp};
use tilewright_simt::{Address, Build, Builder, Operand, Reg, Special};
use tilewright_synth::plan::PipelinePlan;
use tilewright_tile::core::{Slot, Stmt, StmtKind};
use tilewright_tile::{Diagnostic, Origin, PipelineId, Side};

use crate::async_state::{Position, is_even_block};
use crate::context::{Lower, internal};
use crate::scalar::{self, add, int, value};

impl<'a> Lower<'a> {
    /// The plan of a pipeline.
    pub(crate) fn pipeline(&self, id: PipelineId, span: Origin) -> Result<&'a PipelinePlan, Diagnostic> {
        self.pipelines.get(&id).ok_or_else(|| internal(span, "a pipeline without barriers"))
    }

    /// The barrier of a stage.
    pub(crate) fn barrier(&mut self, pipeline: &PipelinePlan, empty: bool, slot: Operand) -> Address {
        let base = self.shared_base();
        let offset = scalar::scale(self.b, slot, 8);
        let base = add(self.b, base, offset);
        Address { base, offset: (pipeline.barriers + if empty { 8 * pipeline.stages } else { 0 }) as i32 }
    }

    /// An address of the block's shared memory in that of the even block of its pair.
    pub(crate) fn in_even_block(&mut self, at: Address) -> Address {
        let rank = Operand::Value(self.b.special(Special::ClusterRank));
        let even = self.b.scalar(ScalarOp::AndB32, &[rank, int(!1)]);
        let local = add(self.b, at.base, int(i64::from(at.offset)));
        Address { base: self.b.scalar(ScalarOp::Mapa, &[local, even]), offset: 0 }
    }

    /// The number of the stage after one, and whether the ring wraps there.
    pub(crate) fn next_stage(&mut self, pipeline: &PipelinePlan, slot: Operand) -> (Operand, Operand) {
        let next = add(self.b, slot, int(1));
        let wraps = self.b.scalar(ScalarOp::EqI32, &[next, int(i64::from(pipeline.stages))]);
        (self.b.scalar(ScalarOp::Select, &[int(0), next, wraps]), wraps)
    }

    /// The number of a stage, which a register holds where there are several.
    pub(crate) fn slot_of(&mut self, pipeline: &PipelinePlan, slot: Reg) -> Operand {
        if pipeline.stages == 1 { int(0) } else { self.b.read(slot) }
    }

    /// Moves a stage's number on; the parity, if there is one, flips when the ring wraps.
    pub(crate) fn advance(&mut self, pipeline: &PipelinePlan, slot: Reg, parity: Option<Reg>) {
        let flip = if pipeline.stages == 1 {
            int(1)
        } else {
            let current = self.b.read(slot);
            let (next, wraps) = self.next_stage(pipeline, current);
            self.b.write(slot, next);
            self.b.scalar(ScalarOp::Select, &[int(1), int(0), wraps])
        };
        if let Some(parity) = parity {
            let current = self.b.read(parity);
            let next = self.b.scalar(ScalarOp::XorB32, &[current, flip]);
            self.b.write(parity, next);
        }
    }

    /// `produce` or `consume`.
    pub(crate) fn stage(
        &mut self,
        (id, side): (PipelineId, Side),
        body: &[Stmt],
        stmt: &Stmt,
    ) -> Result<(), Diagnostic> {
        let pipeline = self.pipeline(id, stmt.span)?;
        let position = self.state.positions.get(&(id, side)).copied();
        let position = position.ok_or_else(|| internal(stmt.span, "a pipeline without a position"))?;
        // Copies in flight from before have nothing to do with the stage.
        self.wait_for_copies(None);
        self.hand_on_rest((side == Side::Produce).then_some(id))?;
        self.hoisting(true, |lower| {
            let slot = lower.slot_of(pipeline, position.slot());
            let full = lower.acquire_stage(pipeline, side, position, slot);
            let outer = lower.state.stage.replace((id, side, slot));
            let around = lower.slots.insert(Slot { pipeline: id, side }, slot);
            lower.block(body)?;
            if position.late > 0 {
                // The copies of the stage are waited for where it is handed on.
                lower.pending_copies.clear();
                lower.b.sync(SyncOp::AsyncCommit);
                lower.fences(stmt.id);
            } else if side == Side::Consume || pipeline.stored {
                lower.wait_for_copies(None);
                lower.fences(stmt.id);
            }
            match side {
                Side::Produce if position.late > 0 => lower.hand_on_late(pipeline, position, slot),
                Side::Produce => lower.commit_stage(pipeline, full),
                Side::Consume => {
                    if lower.stores_from(id, body) {
                        // TMA stores must have read the stage before it is released.
                        lower.b.sync(SyncOp::BulkCommit);
                        lower.b.sync(SyncOp::BulkWaitRead(0));
                    }
                    lower.end_of_consume(stmt.id, pipeline, position, slot);
                }
            }
            lower.advance(pipeline, position.slot(), Some(position.parity()));
            match around {
                Some(slot) => lower.slots.insert(Slot { pipeline: id, side }, slot),
                None => lower.slots.remove(&Slot { pipeline: id, side }),
            };
            lower.state.stage = outer;
            Ok(())
        })
    }

    /// Waits for the stage, which a producer finds empty and a consumer full. Returns the full barrier.
    fn acquire_stage(
        &mut self,
        pipeline: &PipelinePlan,
        side: Side,
        position: Position,
        slot: Operand,
    ) -> Address {
        let produces = side == Side::Produce;
        let parity = self.b.read(position.parity());
        let waited = self.barrier(pipeline, produces, slot);
        let full = self.barrier(pipeline, false, slot);
        let fences = produces && pipeline.fenced_by_producer();
        let fence = move |b: &mut Builder| {
            if fences {
                b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            }
        };
        if produces && pipeline.sums {
            self.b.mbarrier(MbarrierOp::Wait, waited, parity);
        } else if produces && !pipeline.stored {
            // Only the thread that issues the copies waits: nothing would keep another one from falling behind by a phase, which
            // a parity does not tell from the one before.
            let bytes = int(i64::from(pipeline.tx_bytes));
            self.guarded(self.state.tma_issuer, |lower| {
                lower.b.mbarrier(MbarrierOp::Wait, waited, parity);
                fence(lower.b);
                // The copies of both blocks of a pair tell the even one's barrier.
                let tells = if pipeline.pair { is_even_block(lower.b) } else { None };
                lower.guarded(tells, |lower| lower.b.mbarrier(MbarrierOp::ArriveExpect, full, bytes));
            });
        } else {
            // Threads of the other block of a pair fill its part of a stage.
            let of_both = !produces && pipeline.pair && pipeline.stored;
            let wait = if of_both { MbarrierOp::WaitCluster } else { MbarrierOp::Wait };
            self.b.mbarrier(wait, waited, parity);
            if fences {
                self.guarded(self.state.tma_issuer, |lower| fence(lower.b));
            }
        }
        self.after_wait(pipeline);
        full
    }

    /// Hands a filled stage on, where threads write to it; where TMA loads alone fill it, the wait has arrived before them.
    fn commit_stage(&mut self, pipeline: &PipelinePlan, full: Address) {
        if pipeline.sums {
            return self.commit_sums(pipeline, full);
        }
        if !pipeline.stored {
            return;
        }
        self.before_arrival(pipeline);
        if pipeline.fences.fence_full {
            self.b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
        }
        if pipeline.pair {
            return self.tell_even_block(pipeline, full);
        }
        let bytes = int(i64::from(pipeline.tx_bytes));
        match self.state.tma_issuer.filter(|_| pipeline.tx_bytes > 0) {
            Some(issuer) => self.b.branch(
                issuer,
                |b| b.mbarrier(MbarrierOp::ArriveExpect, full, bytes),
                |b| b.mbarrier(MbarrierOp::Arrive, full, int(0)),
            ),
            None => self.b.mbarrier(MbarrierOp::Arrive, full, int(0)),
        }
    }

    /// Arrives once for the warp at the full barrier of the pair's even block, whose thread that issues copies tells the bytes of both.
    fn tell_even_block(&mut self, pipeline: &PipelinePlan, full: Address) {
        self.b.sync(SyncOp::WarpBarrier);
        let of_pair = self.in_even_block(full);
        let bytes = int(i64::from(pipeline.tx_bytes));
        let issuer = self.state.tma_issuer.filter(|_| pipeline.tx_bytes > 0);
        let even = issuer.and_then(|_| is_even_block(self.b));
        let expects = self.both(issuer, even);
        self.guarded(self.state.elected, |lower| {
            let arrive = |b: &mut Builder| b.mbarrier(MbarrierOp::ArriveCluster, of_pair, int(0));
            match expects {
                Some(expects) => {
                    lower.b.branch(expects, |b| b.mbarrier(MbarrierOp::ArriveExpect, full, bytes), arrive);
                }
                None => arrive(lower.b),
            }
        });
    }

    /// Hands on the stage that was filled so many stages ago as the producer is late, if it has filled as many, once the copies to it have arrived.
    fn hand_on_late(&mut self, pipeline: &PipelinePlan, position: Position, slot: Operand) {
        let late = int(i64::from(position.late));
        let filled = self.b.read(position.filled());
        let enough = self.b.scalar(ScalarOp::GeI32, &[filled, late]);
        self.guarded(value(enough), |lower| {
            lower.b.sync(SyncOp::AsyncWaitGroup(position.late));
            let full = lower.filled_before(pipeline, slot, position.late);
            lower.commit_stage(pipeline, full);
        });
        let next = add(self.b, filled, int(1));
        let next = self.b.scalar(ScalarOp::MinI32, &[next, late]);
        self.b.write(position.filled(), next);
    }

    /// Hands on all stages that were filled and not handed on, but for those of one pipeline: whoever waits for something else must not have others wait for these.
    pub(crate) fn hand_on_rest(&mut self, but: Option<PipelineId>) -> Result<(), Diagnostic> {
        let late =
            self.state.positions.iter().filter(|((id, _), position)| position.late > 0 && Some(*id) != but);
        let late: Vec<(PipelineId, Position)> = late.map(|((id, _), position)| (*id, *position)).collect();
        for (id, position) in late {
            let pipeline = self.pipeline(id, self.verified.pipeline(id).span)?;
            self.b.sync(SyncOp::AsyncWaitAll);
            let (filled, slot) = (self.b.read(position.filled()), self.b.read(position.slot()));
            for before in (1..=position.late).rev() {
                let there = self.b.scalar(ScalarOp::GeI32, &[filled, int(i64::from(before))]);
                self.guarded(value(there), |lower| {
                    let full = lower.filled_before(pipeline, slot, before);
                    lower.commit_stage(pipeline, full);
                });
            }
            self.b.write(position.filled(), int(0));
        }
        Ok(())
    }

    /// Waits until all stages that were filled of the pipelines that blocks share are released by all blocks: their arrivals are the last that reach this one.
    pub(crate) fn wait_for_releases(&mut self) -> Result<(), Diagnostic> {
        for id in self.role.drains.clone() {
            let span = self.verified.pipeline(id).span;
            let pipeline = self.pipeline(id, span)?;
            let position = self.state.positions.get(&(id, Side::Produce)).copied();
            let position = position.ok_or_else(|| internal(span, "a pipeline without a position"))?;
            let issuer = self.state.tma_issuer.filter(|_| !pipeline.stored);
            self.guarded(issuer, |lower| {
                let (slot, parity) =
                    (lower.slot_of(pipeline, position.slot()), lower.b.read(position.parity()));
                for stage in 0..i64::from(pipeline.stages) {
                    // Stages before the next one have been filled once more than those from there on.
                    let before = lower.b.scalar(ScalarOp::LtI32, &[int(stage), slot]);
                    let flip = lower.b.scalar(ScalarOp::Select, &[int(1), int(0), before]);
                    let parity = lower.b.scalar(ScalarOp::XorB32, &[parity, flip]);
                    let empty = lower.barrier(pipeline, true, int(stage));
                    lower.b.mbarrier(MbarrierOp::Wait, empty, parity);
                }
            });
        }
        Ok(())
    }

    /// The full barrier of the stage that was filled so many stages before one.
    fn filled_before(&mut self, pipeline: &PipelinePlan, slot: Operand, before: u32) -> Address {
        let at = self.b.scalar(ScalarOp::SubI32, &[slot, int(i64::from(before))]);
        let around = add(self.b, at, int(i64::from(pipeline.stages)));
        let inside = self.b.scalar(ScalarOp::GeI32, &[at, int(0)]);
        let at = self.b.scalar(ScalarOp::Select, &[at, around, inside]);
        self.barrier(pipeline, false, at)
    }

    /// True if tensor copies read a stage's memory.
    fn stores_from(&self, id: PipelineId, body: &[Stmt]) -> bool {
        let tensors = &self.verified.pipeline(id).tensors;
        body.iter().any(|stmt| match &stmt.kind {
            StmtKind::CopyAsync { src, how, .. } => how.tensor && tensors.contains(&src.tensor),
            kind => self.stores_from(id, kind.body()),
        })
    }
}
