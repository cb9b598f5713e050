//! Counters in global memory: the barrier of the grid, and tiles that are dealt out, by a counter or by the launch, as [`TileQueue`] says.
//!
//! One thread takes the number of the next tile while the current one is worked on: the atomic operation stands at the beginning of an
//! iteration, and its result is first looked at at the end. It counts up to the number of tiles and clusters together, less one, and goes on
//! with 0: every cluster takes one number that is no tile's, so that the counter is 0 again once all have.
//!
//! A cluster to which the launch deals tiles begins with its own, and the thread asks at the same place for one of a cluster that has not begun. The answer
//! is waited for at the end of the iteration, and a fence of the asynchronous proxy lies between reading it and the next request, which overwrites it. An
//! answer without a tile is the last: asking again would be undefined.

use tilewright_machine::{
    AtomicOp, AtomicRow, CopyRow, DType, LaunchControl, MbarrierOp, Memory, MemoryOrder, ProxyFence, RedOp,
    ScalarOp, Scope, SyncOp, Until, atomic, thread_copy,
};
use tilewright_simt::{Address, Operand, Reg, Special, Value};
use tilewright_synth::block::tiles::{AnswerSlot, TileQueue};
use tilewright_tile::{Dealer, Diagnostic, Origin, ParamId};

use crate::context::{Lower, internal};
use crate::scalar::{self, add, condition, int, value};

/// Tiles that are dealt out in a loop.
pub struct Queue {
    plan: TileQueue,
    source: Source,
    /// Number of tiles.
    count: Operand,
    /// True in the thread that takes numbers; `None` where only that one is active.
    taker: Option<Value>,
    /// True if the part has that thread.
    takes: bool,
    /// The word that is read next, and the parity of its phase; the same of the word that is written next.
    read: [Reg; 2],
    written: [Reg; 2],
    /// The number that was taken last.
    taken: Reg,
    rows: [&'static CopyRow; 3],
}

/// The source of the numbers.
enum Source {
    /// A counter, with its largest value.
    Counter { param: ParamId, last: Operand, count_up: &'static AtomicRow },
    /// Answers of the launch, with the registers of one and the parity of the phase in which the next is there.
    Launch { slot: AnswerSlot, words: Vec<Reg>, parity: Reg, load: &'static CopyRow },
}

impl Lower<'_> {
    /// Takes the first number, before the loop, which `clusters` walk, of which this one is number `cluster`.
    pub(crate) fn begin_queue(
        &mut self,
        dealer: Dealer,
        (count, clusters): (Operand, Operand),
        cluster: Operand,
        span: Origin,
    ) -> Result<Queue, Diagnostic> {
        let plan = self.tiles.get(&dealer).copied();
        let plan = plan.ok_or_else(|| internal(span, "tiles without a place for their numbers"))?;
        let (shared, register) = (Memory::Shared, Memory::Register);
        let rows = [
            thread_copy(register, shared, Scope::Cta, 4),
            thread_copy(shared, register, Scope::Cta, 4),
            thread_copy(shared, register, Scope::Cluster, 4),
        ];
        let [Some(store), Some(load), Some(peer)] = rows else {
            return Err(internal(span, "no row moves a word"));
        };
        let name = dealer.counter().map_or("launch", |counter| &*self.verified.param(counter).name);
        let array = self.b.add_array(format!("{name}.tiles"), 5);
        let reg = |index| Reg { array, index };
        // Nothing is there to be read at first, and everything has been read.
        for (index, first) in [(0, 0), (1, 0), (2, 0), (3, 1), (4, 0)] {
            self.b.write(reg(index), int(first));
        }
        let queue = Queue {
            plan,
            source: self.source(dealer, &plan, (count, clusters), span)?,
            count,
            taker: self.taker(&plan),
            takes: plan.taker == self.part,
            read: [reg(0), reg(1)],
            written: [reg(2), reg(3)],
            taken: reg(4),
            rows: [store, load, peer],
        };
        match queue.source {
            Source::Counter { .. } => self.take_number(&queue),
            Source::Launch { .. } => self.b.write(queue.taken, cluster),
        }
        self.hand_number(&queue);
        Ok(queue)
    }

    /// The source of the numbers of `count` tiles, which `clusters` walk.
    fn source(
        &mut self,
        dealer: Dealer,
        plan: &TileQueue,
        (count, clusters): (Operand, Operand),
        span: Origin,
    ) -> Result<Source, Diagnostic> {
        let Dealer::Counter(param) = dealer else {
            let slot = plan.slot.answer.ok_or_else(|| internal(span, "answers without a place"))?;
            let load = thread_copy(Memory::Shared, Memory::Register, Scope::Cta, LaunchControl::ANSWER_BYTES);
            let load = load.ok_or_else(|| internal(span, "no row reads an answer"))?;
            let words = self.b.add_array("launch.answer", LaunchControl::ANSWER_BYTES / 4);
            let array = self.b.add_array("launch.phase", 1);
            let parity = Reg { array, index: 0 };
            self.b.write(parity, int(0));
            let words = (0..LaunchControl::ANSWER_BYTES / 4).map(|index| Reg { array: words, index });
            return Ok(Source::Launch { slot, words: words.collect(), parity, load });
        };
        let count_up = atomic(AtomicOp::Increment, DType::U32, Memory::Global);
        let count_up = count_up.ok_or_else(|| internal(span, "no row counts"))?;
        let last = add(self.b, count, clusters);
        let last = add(self.b, last, int(-1));
        Ok(Source::Counter { param, last, count_up })
    }

    /// `syncgrid(counter)`: between two barriers of the block one thread arrives, and waits until the counter's sign changes: the first block adds
    /// what is missing to 2³¹ when every other adds 1, whatever the counter begins with.
    pub(crate) fn sync_grid(&mut self, counter: ParamId, span: Origin) -> Result<(), Diagnostic> {
        let row = atomic(AtomicOp::Combine(RedOp::Add), DType::U32, Memory::Global);
        let row = row.ok_or_else(|| internal(span, "no row adds"))?;
        let grid = self.verified.grid.clone();
        let (mut blocks, mut index) = (int(1), int(0));
        for (axis, extent) in (0..).zip(&grid) {
            let extent = self.expr(extent);
            blocks = self.b.scalar(ScalarOp::MulI32, &[blocks, extent]);
            let at = Operand::Value(self.b.special(Special::BlockIndex(axis)));
            index = self.b.scalar(ScalarOp::OrB32, &[index, at]);
        }
        let first = self.b.scalar(ScalarOp::EqI32, &[index, int(0)]);
        let missing = self.b.scalar(ScalarOp::SubI32, &[int(i64::from(i32::MIN) + 1), blocks]);
        let share = self.b.scalar(ScalarOp::Select, &[missing, int(1), first]);
        let base = Operand::Value(self.b.param(counter.0));
        let address = Address { base, offset: 0 };
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let alone = condition(self.b, ScalarOp::EqI32, thread, int(0));
        self.b.sync(SyncOp::Barrier);
        self.guarded(alone, |lower| {
            let old = lower.b.atomic(row, MemoryOrder::AcquireRelease, address, vec![share], None);
            lower.b.await_word(address, Until::SignDiffers, old);
        });
        self.b.sync(SyncOp::Barrier);
        self.fence_behind_acquire();
        Ok(())
    }

    /// The condition of the thread that takes numbers: of the first block of the cluster.
    fn taker(&mut self, plan: &TileQueue) -> Option<Value> {
        let mut taker = self.state.tma_issuer;
        if plan.slot.barriers.is_none() {
            let thread = Operand::Value(self.b.special(Special::ThreadIndex));
            taker = condition(self.b, ScalarOp::EqI32, thread, int(0));
        }
        if plan.blocks > 1 {
            let rank = Operand::Value(self.b.special(Special::ClusterRank));
            let first = condition(self.b, ScalarOp::EqI32, rank, int(0));
            taker = self.both(taker, first);
        }
        taker
    }

    /// Takes the next number, or asks for it.
    fn take_number(&mut self, queue: &Queue) {
        if !queue.takes {
            return;
        }
        match &queue.source {
            Source::Counter { param, last, count_up } => {
                let base = Operand::Value(self.b.param(param.0));
                let address = Address { base, offset: 0 };
                let number = self.b.atomic(count_up, MemoryOrder::Relaxed, address, vec![*last], queue.taker);
                self.b.write(queue.taken, number);
            }
            Source::Launch { slot, .. } => {
                let [answer, barrier] = self.answer(slot);
                self.guarded(queue.taker, |lower| {
                    let bytes = int(i64::from(LaunchControl::ANSWER_BYTES));
                    lower.b.mbarrier(MbarrierOp::ArriveExpect, barrier, bytes);
                    lower.b.try_cancel(answer, barrier);
                });
            }
        }
    }

    /// Gets the number that was asked for.
    fn receive_number(&mut self, queue: &Queue) {
        let Source::Launch { slot, words, parity, load } = &queue.source else { return };
        if !queue.takes {
            return;
        }
        let [answer, barrier] = self.answer(slot);
        let phase = self.b.read(*parity);
        self.guarded(queue.taker, |lower| {
            lower.b.mbarrier(MbarrierOp::Wait, barrier, phase);
            lower.b.load(load, words.clone(), answer, None);
            lower.b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            let block = Operand::Value(lower.b.cancelled(words.clone()));
            // That of no block divides to no tile's.
            let number = scalar::divide(lower.b, block, i64::from(queue.plan.blocks));
            lower.b.write(queue.taken, number);
        });
        let next = self.b.scalar(ScalarOp::XorB32, &[phase, int(1)]);
        self.b.write(*parity, next);
    }

    /// The addresses of an answer and of its mbarrier.
    fn answer(&mut self, slot: &AnswerSlot) -> [Address; 2] {
        let base = self.shared_base();
        [slot.place, slot.barrier].map(|at| Address { base, offset: at as i32 })
    }

    /// Gets the number of the next tile, and writes it for all.
    pub(crate) fn hand_next(&mut self, queue: &Queue) {
        self.receive_number(queue);
        self.hand_number(queue);
    }

    /// Writes the number that was taken last for all who walk the tiles.
    fn hand_number(&mut self, queue: &Queue) {
        let Queue { plan, written: [slot, parity], .. } = queue;
        if !queue.takes {
            return;
        }
        let stage = self.b.read(*slot);
        let word = self.word(plan, stage);
        let blocks = plan.blocks;
        self.guarded(queue.taker, |lower| {
            if let Some(barriers) = plan.slot.barriers {
                let phase = lower.b.read(*parity);
                let empty = lower.word_barrier(barriers + 8 * plan.slot.stages, stage);
                let wait = if blocks > 1 { MbarrierOp::WaitCluster } else { MbarrierOp::Wait };
                lower.b.mbarrier(wait, empty, phase);
            }
            lower.b.store(queue.rows[0], vec![queue.taken], word, None);
            let Some(barriers) = plan.slot.barriers else { return };
            let full = lower.word_barrier(barriers, stage);
            if blocks == 1 {
                lower.b.mbarrier(MbarrierOp::Arrive, full, int(0));
                return;
            }
            let local = add(lower.b, full.base, int(i64::from(full.offset)));
            for rank in 0..blocks {
                let peer = lower.b.scalar(ScalarOp::Mapa, &[local, int(i64::from(rank))]);
                lower.b.mbarrier(MbarrierOp::ArriveCluster, Address { base: peer, offset: 0 }, int(0));
            }
        });
        self.next_word(plan, [*slot, *parity]);
    }

    /// Reads the number of the next tile, leaves the loop where there is none, and takes the one behind it.
    pub(crate) fn next_number(&mut self, queue: &Queue) -> Operand {
        let Queue { plan, read: [slot, parity], .. } = queue;
        let stage = self.b.read(*slot);
        let word = self.word(plan, stage);
        let array = self.b.add_array("tile.number", 1);
        let number = Reg { array, index: 0 };
        match plan.slot.barriers {
            None => {
                self.b.sync(SyncOp::Barrier);
                self.b.load(queue.rows[1], vec![number], word, None);
            }
            Some(barriers) => {
                let phase = self.b.read(*parity);
                let full = self.word_barrier(barriers, stage);
                let empty = self.word_barrier(barriers + 8 * plan.slot.stages, stage);
                let local = |lower: &mut Self, at: Address| add(lower.b, at.base, int(i64::from(at.offset)));
                let (word, empty, row) = if plan.blocks > 1 {
                    self.b.mbarrier(MbarrierOp::WaitCluster, full, phase);
                    let [word, empty] = [word, empty].map(|at| {
                        let at = local(self, at);
                        let base = self.b.scalar(ScalarOp::Mapa, &[at, int(0)]);
                        Address { base, offset: 0 }
                    });
                    (word, empty, queue.rows[2])
                } else {
                    self.b.mbarrier(MbarrierOp::Wait, full, phase);
                    (word, empty, queue.rows[1])
                };
                self.b.load(row, vec![number], word, None);
                let arrival = if plan.blocks > 1 { MbarrierOp::ArriveCluster } else { MbarrierOp::Arrive };
                if self.state.tma_issuer.is_some() {
                    self.b.sync(SyncOp::WarpBarrier);
                    self.guarded(self.state.elected, |lower| lower.b.mbarrier(arrival, empty, int(0)));
                } else {
                    self.b.mbarrier(arrival, empty, int(0));
                }
            }
        }
        self.next_word(plan, [*slot, *parity]);
        let number = self.b.read(number);
        let ends = self.b.scalar(ScalarOp::GeI32, &[number, queue.count]);
        if let Some(ends) = value(ends) {
            self.b.break_where(ends);
        }
        self.take_number(queue);
        number
    }

    /// The address of a word.
    fn word(&mut self, plan: &TileQueue, stage: Operand) -> Address {
        let base = self.shared_base();
        let offset = scalar::scale(self.b, stage, 4);
        Address { base: add(self.b, base, offset), offset: plan.slot.words as i32 }
    }

    /// The address of a barrier.
    fn word_barrier(&mut self, barriers: u32, stage: Operand) -> Address {
        let base = self.shared_base();
        let offset = scalar::scale(self.b, stage, 8);
        Address { base: add(self.b, base, offset), offset: barriers as i32 }
    }

    /// Goes on to the next word; the parity flips when the ring wraps.
    fn next_word(&mut self, plan: &TileQueue, [slot, parity]: [Reg; 2]) {
        let (stage, phase) = (self.b.read(slot), self.b.read(parity));
        let next = add(self.b, stage, int(1));
        let next = self.b.scalar(ScalarOp::AndB32, &[next, int(i64::from(plan.slot.stages) - 1)]);
        let wraps = self.b.scalar(ScalarOp::EqI32, &[next, int(0)]);
        let flip = self.b.scalar(ScalarOp::Select, &[int(1), int(0), wraps]);
        let phase = self.b.scalar(ScalarOp::XorB32, &[phase, flip]);
        self.b.write(slot, next);
        self.b.write(parity, phase);
    }
}
