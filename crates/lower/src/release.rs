//! The release of pipeline stages by their consumers, at the end of a `consume` or at the `wait_gemm` that covers the last product that
//! reads the stage. `held.rs` knows how many stages that are at each statement, and what registers have to count.

use tilewright_machine::{MbarrierOp, ProxyFence, ScalarOp, SyncOp};
use tilewright_simt::{Address, ArrayId, Builder, Operand, Reg, Special};
use tilewright_tile::{PipelineId, StmtId};

use crate::Lower;
use crate::pipeline::Ring;
use crate::roles::condition;
use crate::scalar::{add, int};
use tilewright_synth::block::release::{GiveBack, Kept};

/// Where a side of a pipeline is: registers for the stage's number and the parity of its phase; a consumer's also for what [`Kept`] says
/// of the stages that it holds back.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    array: ArrayId,
    kept: Kept,
    /// Ages that are told apart.
    ages: u32,
}

impl Position {
    /// Makes the registers of a side, which begins with stage 0.
    pub(crate) fn new(b: &mut Builder, name: String, produces: bool, kept: Kept, ages: u32) -> Position {
        let (kept, ages) = (if produces { Kept::Nothing } else { kept }, ages);
        let registers = match kept {
            Kept::Nothing => 2,
            Kept::Oldest => 3,
            Kept::Count => 4,
            Kept::Ages => 5 + 2 * ages,
        };
        let position = Position { array: b.add_array(name, registers), kept, ages };
        for index in 0..registers {
            let first = Reg { array: position.array, index };
            b.write(first, int(i64::from(produces && first == position.parity())));
        }
        position
    }

    fn reg(self, index: u32) -> Reg {
        Reg { array: self.array, index }
    }
    pub(crate) fn slot(self) -> Reg {
        self.reg(0)
    }
    pub(crate) fn parity(self) -> Reg {
        self.reg(1)
    }
    /// The oldest stage that is held back; the stage at hand where there is none.
    fn oldest(self) -> Reg {
        self.reg(2)
    }
    /// How many are held back.
    fn held(self) -> Reg {
        self.reg(3)
    }
    /// Whether a group in flight reads the stage at hand.
    fn read(self) -> Reg {
        self.reg(4)
    }
    /// For each age how many stages are held back whose last group has it.
    fn held_by_age(self) -> Vec<Reg> {
        (0..self.ages).map(|age| self.reg(5 + age)).collect()
    }
    /// For each age whether the last group that reads the stage at hand has it.
    fn read_by_age(self) -> Vec<Reg> {
        (0..self.ages).map(|age| self.reg(5 + self.ages + age)).collect()
    }
}

impl Lower<'_> {
    /// Gives the oldest stage back.
    fn give_back_oldest(&mut self, ring: &Ring, position: Position) {
        let oldest = self.b.read(position.oldest());
        self.give_back(ring, oldest);
        self.advance(ring, position.oldest(), None);
    }

    /// Gives the oldest stage back where more than `keep` are held.
    fn give_back_beyond(&mut self, ring: &Ring, position: Position, keep: u32) {
        let held = self.b.read(position.held());
        let Some(more) = condition(&mut self.b, ScalarOp::GeI32, held, int(i64::from(keep) + 1)) else {
            return;
        };
        let oldest = self.b.read(position.oldest());
        self.guarded(Some(more), |lower| {
            lower.give_back(ring, oldest);
            lower.advance(ring, position.oldest(), None);
            let fewer = add(&mut lower.b, held, int(-1));
            lower.b.write(position.held(), fewer);
        });
    }

    /// Gives back what a statement gives back of each pipeline whose held stages a count tells.
    fn give_back_at(&mut self, statement: StmtId) {
        for (id, ring, position) in self.consumed() {
            match self.units.held.at(statement, id) {
                GiveBack::Exactly(0) => {}
                GiveBack::Exactly(stages) => {
                    (0..stages).for_each(|_| self.give_back_oldest(&ring, position));
                    if position.kept == Kept::Count {
                        let held = self.b.read(position.held());
                        let left = add(&mut self.b, held, int(-i64::from(stages)));
                        self.b.write(position.held(), left);
                    }
                }
                GiveBack::Above { keep, most } => {
                    (0..most).for_each(|_| self.give_back_beyond(&ring, position, keep));
                }
            }
        }
    }

    /// The pipelines that the part consumes.
    fn consumed(&self) -> Vec<(PipelineId, Ring, Position)> {
        let consumers = self.units.positions.iter().filter(|((_, produces), _)| !produces);
        let with_ring = |((id, _), position): (&(PipelineId, bool), &Position)| {
            Some((*id, self.units.rings.get(id)?.clone(), *position))
        };
        consumers.filter_map(with_ring).collect()
    }

    /// The end of a `consume`, after the wait that may stand there.
    pub(crate) fn end_of_consume(
        &mut self,
        statement: StmtId,
        ring: &Ring,
        position: Position,
        slot: Operand,
    ) {
        match position.kept {
            Kept::Nothing => self.give_back(ring, slot),
            Kept::Oldest => {}
            Kept::Count => {
                let held = self.b.read(position.held());
                let held = add(&mut self.b, held, int(1));
                self.b.write(position.held(), held);
            }
            Kept::Ages => self.hold_by_age(ring, position),
        }
        self.give_back_at(statement);
    }

    /// Gives the stage at hand back, where nothing reads it and none is held before it; otherwise holds it back too, with the age of
    /// the last group that reads it or, if there is none, of the stage before.
    fn hold_by_age(&mut self, ring: &Ring, position: Position) {
        let (held, read) = (self.b.read(position.held()), self.b.read(position.read()));
        let either = self.b.scalar(ScalarOp::OrB32, &[held, read]);
        let Some(free) = condition(&mut self.b, ScalarOp::EqI32, either, int(0)) else { return };
        let oldest = self.b.read(position.oldest());
        self.guarded(Some(free), |lower| {
            lower.give_back(ring, oldest);
            lower.advance(ring, position.oldest(), None);
        });
        let more = add(&mut self.b, held, int(1));
        let more = self.b.scalar(ScalarOp::Select, &[int(0), more, free.into()]);
        self.b.write(position.held(), more);
        // 1 as long as the stage has no age.
        let mut ageless = self.b.scalar(ScalarOp::XorB32, &[read, int(1)]);
        for (held, read) in position.held_by_age().into_iter().zip(position.read_by_age()) {
            let (of_age, own) = (self.b.read(held), self.b.read(read));
            let Some(none) = condition(&mut self.b, ScalarOp::EqI32, of_age, int(0)) else { continue };
            let joins = self.b.scalar(ScalarOp::Select, &[int(0), ageless, none.into()]);
            ageless = self.b.scalar(ScalarOp::Select, &[ageless, int(0), none.into()]);
            let sum = add(&mut self.b, of_age, own);
            let sum = add(&mut self.b, sum, joins);
            self.b.write(held, sum);
            self.b.write(read, int(0));
        }
        self.b.write(position.read(), int(0));
    }

    /// One arrival of the warp at the empty barrier of a stage, in every block that fills it.
    fn give_back(&mut self, ring: &Ring, slot: Operand) {
        if ring.meets {
            self.b.sync(SyncOp::WarpBarrier);
        }
        // The lane that arrives knows, behind the barrier, of its warp's reads: its fence orders them all. Where the copies come from
        // other blocks it stands here, in the block that reads.
        let fences = ring.order.fence_empty && !ring.fenced_by_producer();
        let fence = |b: &mut Builder| {
            if fences {
                b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            }
        };
        let at = self.barrier(ring, true, slot);
        if ring.blocks > 1 {
            let thread = Operand::Value(self.b.special(Special::ThreadIndex));
            let lane = self.b.scalar(ScalarOp::AndB32, &[thread, int(31)]);
            let tells = condition(&mut self.b, ScalarOp::LtI32, lane, int(i64::from(ring.blocks)));
            let here = add(&mut self.b, at.base, int(i64::from(at.offset)));
            let there = self.b.scalar(ScalarOp::Mapa, &[here, lane]);
            self.guarded(tells, |lower| {
                let address = Address { base: there, offset: 0 };
                fence(&mut lower.b);
                lower.b.mbarrier(MbarrierOp::ArrivePeer, address, int(0));
            });
        } else {
            let elected = self.units.elected;
            self.guarded(elected, |lower| {
                fence(&mut lower.b);
                lower.b.mbarrier(MbarrierOp::Arrive, at, int(0));
            });
        }
    }

    /// `commit_gemm()`: the groups before are one older.
    pub(crate) fn commit_gemm(&mut self, statement: StmtId) {
        self.b.sync(SyncOp::WgmmaCommit);
        for (id, _, position) in self.consumed() {
            if position.kept != Kept::Ages {
                continue;
            }
            let reads = self.units.held.commits(statement, id);
            for (regs, begin) in [(position.held_by_age(), false), (position.read_by_age(), reads)] {
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

    /// `wait_gemm(n)`: the held stages that only products read which are now complete are given back.
    pub(crate) fn wait_gemm(&mut self, statement: StmtId, groups: u32) {
        self.b.sync(SyncOp::WgmmaWait(groups));
        self.fences(statement);
        for (_, ring, position) in self.consumed() {
            if position.kept == Kept::Ages {
                self.give_back_by_age(&ring, position, groups as usize);
            }
        }
        self.give_back_at(statement);
    }

    /// Gives back the held stages whose last groups have at least the age `from`.
    fn give_back_by_age(&mut self, ring: &Ring, position: Position, from: usize) {
        let sum = |lower: &mut Self, regs: &[Reg]| {
            regs.iter().fold(int(0), |sum, reg| {
                let more = lower.b.read(*reg);
                add(&mut lower.b, sum, more)
            })
        };
        let (held, read) = (position.held_by_age(), position.read_by_age());
        let from = from.min(held.len());
        let keep = sum(self, &held[..from]);
        let reads = sum(self, &read[..from]);
        self.b.write(position.read(), reads);
        held[from..].iter().chain(&read[from..]).for_each(|reg| self.b.write(*reg, int(0)));
        let all = self.b.read(position.held());
        let free = self.b.scalar(ScalarOp::SubI32, &[all, keep]);
        let counter = self.b.open_loop();
        self.give_back_oldest(ring, position);
        self.b.close_loop(counter, int(0), free, int(1));
        self.b.write(position.held(), keep);
    }
}
