//! The release of pipeline stages by their consumers, at the end of a `consume` or at the `wait_gemm` that covers the last product that
//! reads the stage. [`ReleasePlan`](tilewright_synth::block::release::ReleasePlan) knows how many stages that are at each statement, and what registers have to count.

use tilewright_machine::{MbarrierOp, ProxyFence, ScalarOp, SyncOp};
use tilewright_simt::{Address, Builder, Operand, Reg, Special, Value};
use tilewright_synth::block::release::{Release, Tracking};
use tilewright_synth::plan::PipelinePlan;
use tilewright_tile::{PipelineId, Side, StmtId};

use crate::async_state::Position;
use crate::context::Lower;
use crate::scalar::{add, condition, int};

impl<'a> Lower<'a> {
    /// Releases the oldest stage.
    fn release_oldest(&mut self, pipeline: &PipelinePlan, position: Position) {
        let oldest = self.slot_of(pipeline, position.oldest());
        self.release_stage(pipeline, oldest, None);
        self.advance(pipeline, position.oldest(), None);
    }

    /// Releases the oldest stage where a condition holds. Nothing but the arrival stands behind a branch: between products whose
    /// operand A is in registers, the assembler serialises them for any larger one (C7513).
    fn release_oldest_where(&mut self, pipeline: &PipelinePlan, position: Position, condition: Value) {
        let oldest = self.slot_of(pipeline, position.oldest());
        self.release_stage(pipeline, oldest, Some(condition));
        let next = self.next_stage(pipeline, oldest).0;
        let next = self.b.scalar(ScalarOp::Select, &[next, oldest, condition.into()]);
        self.b.write(position.oldest(), next);
    }

    /// Releases the oldest stage where more than `keep` are unreleased.
    fn release_beyond(&mut self, pipeline: &PipelinePlan, position: Position, keep: u32) {
        let unreleased = self.b.read(position.unreleased());
        let more = condition(self.b, ScalarOp::GeI32, unreleased, int(i64::from(keep) + 1));
        let Some(more) = more else { return };
        self.release_oldest_where(pipeline, position, more);
        let fewer = add(self.b, unreleased, int(-1));
        let fewer = self.b.scalar(ScalarOp::Select, &[fewer, unreleased, more.into()]);
        self.b.write(position.unreleased(), fewer);
    }

    /// Releases what a statement releases of each pipeline of which a count of unreleased stages tells it.
    fn release_at(&mut self, statement: StmtId) {
        for (id, pipeline, position) in self.consumed() {
            match self.role.release.at(statement, id) {
                Release::Exactly(0) => {}
                Release::Exactly(stages) => {
                    (0..stages).for_each(|_| self.release_oldest(pipeline, position));
                    if position.tracking == Tracking::Count {
                        let held = self.b.read(position.unreleased());
                        let left = add(self.b, held, int(-i64::from(stages)));
                        self.b.write(position.unreleased(), left);
                    }
                }
                Release::Above { keep, most } => {
                    (0..most).for_each(|_| self.release_beyond(pipeline, position, keep));
                }
            }
        }
    }

    /// The pipelines that the part consumes.
    fn consumed(&self) -> Vec<(PipelineId, &'a PipelinePlan, Position)> {
        let consumers = self.state.positions.iter().filter(|((_, side), _)| *side == Side::Consume);
        let with_plan = |((id, _), position): (&(PipelineId, Side), &Position)| {
            Some((*id, self.pipelines.get(id)?, *position))
        };
        consumers.filter_map(with_plan).collect()
    }

    /// Ends a `consume`, after the wait that may stand there.
    pub(crate) fn end_of_consume(
        &mut self,
        statement: StmtId,
        pipeline: &PipelinePlan,
        position: Position,
        slot: Operand,
    ) {
        match position.tracking {
            Tracking::Immediate => self.release_stage(pipeline, slot, None),
            Tracking::Oldest => {}
            Tracking::Count => {
                let held = self.b.read(position.unreleased());
                let held = add(self.b, held, int(1));
                self.b.write(position.unreleased(), held);
            }
            Tracking::ByAge => self.count_by_age(pipeline, position),
        }
        self.release_at(statement);
    }

    /// Releases the current stage, if nothing reads it and none before it is unreleased; otherwise counts it with the age of the last
    /// group that reads it or, if there is none, of the stage before.
    fn count_by_age(&mut self, pipeline: &PipelinePlan, position: Position) {
        let (held, read) = (self.b.read(position.unreleased()), self.b.read(position.read()));
        let either = self.b.scalar(ScalarOp::OrB32, &[held, read]);
        let Some(free) = condition(self.b, ScalarOp::EqI32, either, int(0)) else { return };
        self.release_oldest_where(pipeline, position, free);
        let more = add(self.b, held, int(1));
        let more = self.b.scalar(ScalarOp::Select, &[int(0), more, free.into()]);
        self.b.write(position.unreleased(), more);
        // 1 as long as the stage has no age.
        let mut ageless = self.b.scalar(ScalarOp::XorB32, &[read, int(1)]);
        for (held, read) in position.unreleased_by_age().into_iter().zip(position.read_by_age()) {
            let (of_age, own) = (self.b.read(held), self.b.read(read));
            let Some(none) = condition(self.b, ScalarOp::EqI32, of_age, int(0)) else { continue };
            let joins = self.b.scalar(ScalarOp::Select, &[int(0), ageless, none.into()]);
            ageless = self.b.scalar(ScalarOp::Select, &[ageless, int(0), none.into()]);
            let sum = add(self.b, of_age, own);
            let sum = add(self.b, sum, joins);
            self.b.write(held, sum);
            self.b.write(read, int(0));
        }
        self.b.write(position.read(), int(0));
    }

    /// True in the lanes whose numbers are the ranks of the blocks that fill a pipeline's stages.
    fn lanes_of_peers(&mut self, pipeline: &PipelinePlan, lane: Operand) -> Option<Value> {
        if pipeline.multicast == self.verified.cluster() {
            return condition(self.b, ScalarOp::LtI32, lane, int(i64::from(pipeline.multicast)));
        }
        let ranks = self.ranks_of_fillers(pipeline);
        let from_lane = self.b.scalar(ScalarOp::ShrU32, &[ranks, lane]);
        let bit = self.b.scalar(ScalarOp::AndB32, &[from_lane, int(1)]);
        condition(self.b, ScalarOp::EqI32, bit, int(1))
    }

    /// The ranks of the blocks that fill a pipeline's stages, as the bits of a mask.
    fn ranks_of_fillers(&mut self, pipeline: &PipelinePlan) -> Operand {
        pipeline.peers.iter().fold(int(0), |ranks, peers| {
            let more = self.ranks_of_peers(*peers);
            self.b.scalar(ScalarOp::OrB32, &[ranks, more])
        })
    }

    /// Arrives once for the warp at the empty barrier of a stage, in every block that fills it, where a condition holds if there is one.
    fn release_stage(&mut self, pipeline: &PipelinePlan, slot: Operand, where_: Option<Value>) {
        if self.role.sums {
            let empty = self.barrier(pipeline, true, slot);
            if pipeline.multicast > 1 {
                let mut ranks = self.ranks_of_fillers(pipeline);
                if pipeline.pair {
                    // The odd block's stage is given back to those of the next ranks.
                    let of_odd = self.b.scalar(ScalarOp::ShlB32, &[ranks, int(1)]);
                    ranks = self.b.scalar(ScalarOp::OrB32, &[ranks, of_odd]);
                }
                return self.b.mbarrier(MbarrierOp::CommitPeers, empty, ranks);
            }
            return self.commit_sums(pipeline, empty);
        }
        self.before_arrival(pipeline);
        if pipeline.warps_meet {
            self.b.sync(SyncOp::WarpBarrier);
        }
        // The lane that arrives knows, behind the barrier, of its warp's reads: its fence orders them all. Where the copies come from
        // other blocks it stands here, in the block that reads; by all lanes where an arrival has a condition, to keep branches short.
        let fences = pipeline.fences.fence_empty && !pipeline.fenced_by_producer();
        let fence = |b: &mut Builder, stands: bool| {
            if stands {
                b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            }
        };
        fence(self.b, fences && where_.is_some());
        let at = self.barrier(pipeline, true, slot);
        let (arrival, address, lanes) = if pipeline.multicast > 1 {
            let thread = Operand::Value(self.b.special(Special::ThreadIndex));
            let lane = self.b.scalar(ScalarOp::AndB32, &[thread, int(31)]);
            let lanes = self.lanes_of_peers(pipeline, lane);
            let local = add(self.b, at.base, int(i64::from(at.offset)));
            let peer = self.b.scalar(ScalarOp::Mapa, &[local, lane]);
            (MbarrierOp::ArrivePeer, Address { base: peer, offset: 0 }, lanes)
        } else if pipeline.pair {
            // The even block multiplies into the stages of both.
            (MbarrierOp::ArrivePeer, self.in_even_block(at), self.state.elected)
        } else {
            (MbarrierOp::Arrive, at, self.state.elected)
        };
        let lanes = self.both(lanes, where_);
        self.guarded(lanes, |lower| {
            fence(lower.b, fences && where_.is_none());
            lower.b.mbarrier(arrival, address, int(0));
        });
    }

    /// `commit_gemm()`: the groups before are one older.
    pub(crate) fn commit_gemm(&mut self, statement: StmtId) {
        self.b.sync(SyncOp::WgmmaCommit);
        for (id, _, position) in self.consumed() {
            if position.tracking != Tracking::ByAge {
                continue;
            }
            let reads = self.role.release.commits(statement, id);
            for (regs, begin) in [(position.unreleased_by_age(), false), (position.read_by_age(), reads)] {
                for pair in regs.windows(2).rev() {
                    let younger = if begin { int(0) } else { self.b.read(pair[0]) };
                    self.b.write(pair[1], younger);
                }
                if let Some(youngest) = regs.first() {
                    self.b.write(*youngest, int(i64::from(begin)));
                }
            }
            if reads {
                self.b.write(position.read(), int(1));
            }
        }
    }

    /// `wait_gemm(n)`: releases the stages that only products read which are now complete.
    pub(crate) fn wait_gemm(&mut self, statement: StmtId, groups: u32) {
        self.b.sync(SyncOp::WgmmaWait(groups));
        self.fences(statement);
        for (_, pipeline, position) in self.consumed() {
            if position.tracking == Tracking::ByAge {
                self.release_by_age(pipeline, position, groups as usize);
            }
        }
        self.release_at(statement);
    }

    /// Releases the stages whose last groups have at least the age `from`.
    fn release_by_age(&mut self, pipeline: &PipelinePlan, position: Position, from: usize) {
        let sum = |lower: &mut Self, regs: &[Reg]| {
            regs.iter().fold(int(0), |sum, reg| {
                let more = lower.b.read(*reg);
                add(lower.b, sum, more)
            })
        };
        let (held, read) = (position.unreleased_by_age(), position.read_by_age());
        let from = from.min(held.len());
        let keep = sum(self, &held[..from]);
        let reads = sum(self, &read[..from]);
        self.b.write(position.read(), reads);
        held[from..].iter().chain(&read[from..]).for_each(|reg| self.b.write(*reg, int(0)));
        let all = self.b.read(position.unreleased());
        let free = self.b.scalar(ScalarOp::SubI32, &[all, keep]);
        for released in 0..pipeline.stages {
            let more = condition(self.b, ScalarOp::GeI32, free, int(i64::from(released) + 1));
            if let Some(more) = more {
                self.release_oldest_where(pipeline, position, more);
            }
        }
        self.b.write(position.unreleased(), keep);
    }
}
