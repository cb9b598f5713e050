//! Reductions over the blocks of a cluster, through distributed shared memory.

use tilewright_machine::{
    CopyRow, DType, MbarrierOp, Memory, ScalarOp, Scope, SyncOp, per_register, registers_of, thread_copy,
};
use tilewright_simt::{Address, ArrayId, Operand, Reg, Special, Value};
use tilewright_synth::block::role::ClusterReducePlan;
use tilewright_tile::{Combination, Diagnostic, Origin, ReduceOp, TensorId};

use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, condition, int};
use crate::scan::{Item, combining};

/// One run of registers, as the blocks of a cluster show it to each other.
struct Shown {
    /// The registers of all blocks, those of the block of rank 0 first.
    parts: ArrayId,
    blocks: u32,
    /// Registers of a block.
    registers: u32,
}

/// The places where the blocks of a cluster show registers to each other, `width` of each thread side by side.
struct Exchange {
    plan: ClusterReducePlan,
    /// Parities of the barriers: of what is there to be read, and of what has been read by all.
    parities: [Reg; 2],
    width: u32,
    store: &'static CopyRow,
    load: &'static CopyRow,
    /// The thread's place in its own block, and in each.
    place: Operand,
    peers: Vec<Operand>,
    /// The barriers of this block, and of the one that the thread tells, if it tells one.
    barriers: Operand,
    there: Operand,
    tells: Option<Value>,
    threads: u32,
}

/// Registers that are loaded of several blocks before any is used, at most.
const LOADED: u32 = 64;

impl Exchange {
    /// Bytes from a thread's place to its run number `i`.
    fn offset(&self, i: u32) -> i32 {
        (i * 4 * self.width * self.threads) as i32
    }

    /// The registers of run `i` of an array.
    fn run(&self, array: ArrayId, i: u32) -> Vec<Reg> {
        (self.width * i..self.width * (i + 1)).map(|index| Reg { array, index }).collect()
    }
}

impl Lower<'_> {
    /// An exchange by runs of so many registers.
    fn exchange(&mut self, width: u32, span: Origin) -> Result<Exchange, Diagnostic> {
        let Some((plan, parities)) = self.state.cluster_reduce else {
            return Err(internal(span, "a reduction over the cluster without a place"));
        };
        let (shared, register) = (Memory::Shared, Memory::Register);
        let store = thread_copy(register, shared, Scope::Cta, 4 * width);
        let load = thread_copy(shared, register, Scope::Cluster, 4 * width);
        let (Some(store), Some(load)) = (store, load) else {
            return Err(internal(span, "no row moves the registers of a reduction over the cluster"));
        };
        let threads = self.verified.threads();
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let base = self.shared_base();
        let share = scalar::scale(self.b, thread, i64::from(4 * width));
        let buffer = add(self.b, base, int(i64::from(plan.slot.buffer)));
        let place = add(self.b, buffer, share);
        let lane = self.b.scalar(ScalarOp::AndB32, &[thread, int(31)]);
        let barriers = add(self.b, base, int(i64::from(plan.slot.barriers)));
        let there = self.b.scalar(ScalarOp::Mapa, &[barriers, lane]);
        let tells = condition(self.b, ScalarOp::LtI32, lane, int(i64::from(plan.blocks)));
        let peers: Vec<Operand> = (0..plan.blocks)
            .map(|rank| self.b.scalar(ScalarOp::Mapa, &[place, int(i64::from(rank))]))
            .collect();
        Ok(Exchange { plan, parities, width, store, load, place, peers, barriers, there, tells, threads })
    }

    /// Tells the other blocks that this thread's warp has shown something (offset 0), or has read what they show (8).
    fn tell(&mut self, exchange: &Exchange, offset: i32) {
        self.b.sync(SyncOp::WarpBarrier);
        let base = exchange.there;
        self.guarded(exchange.tells, |lower| {
            lower.b.mbarrier(MbarrierOp::ArriveCluster, Address { base, offset }, int(0));
        });
    }

    /// Waits until all blocks have read what this one has shown last; nothing of theirs is read behind that. Nobody reaches its memory any more: an arrival that is
    /// still on its way is at a block that waits for it here.
    pub(crate) fn wait_for_readers(&mut self) {
        let Some((plan, [_, free])) = self.state.cluster_reduce else { return };
        let base = self.shared_base();
        let barriers = add(self.b, base, int(i64::from(plan.slot.barriers)));
        let now = self.b.read(free);
        self.b.mbarrier(MbarrierOp::Wait, Address { base: barriers, offset: 8 }, now);
    }

    /// Stores runs of registers once all blocks have read those before, and waits until all blocks have stored theirs.
    fn show_to_cluster(&mut self, exchange: &Exchange, runs: &[Vec<Reg>]) {
        let [full, free] = exchange.parities;
        self.wait_flip(exchange.barriers, 8, free);
        for (i, run) in (0..).zip(runs) {
            let address = Address { base: exchange.place, offset: exchange.offset(i) };
            self.b.store(exchange.store, run.clone(), address, None);
        }
        self.tell(exchange, 0);
        self.wait_flip(exchange.barriers, 0, full);
    }

    /// `cluster_reduce(t, op)`: every block shows its part in its shared memory, a few registers of each thread at a time, and every
    /// thread puts together what the same thread of each block shows, in the order of ranks. A cluster of one block has nothing to do.
    pub(crate) fn cluster_reduce(
        &mut self,
        tensor: TensorId,
        op: ReduceOp,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        if self.verified.cluster() == 1 {
            return Ok(());
        }
        let dtype = self.verified.tensor(tensor).dtype;
        let (array, values) = (self.array(tensor)?, self.count(tensor)?);
        let count = elements::registers(values, dtype.bits());
        let width = if count.is_multiple_of(4) { 4 } else { registers_of(dtype.bits()) };
        let exchange = self.exchange(width, span)?;
        let blocks = exchange.plan.blocks;
        let parts = self.b.add_array("cluster_reduce.parts", width * blocks);
        let groups: Vec<u32> = (0..count / width).collect();
        for chunk in groups.chunks((exchange.plan.slot.registers / width) as usize) {
            let runs: Vec<Vec<Reg>> = chunk.iter().map(|group| exchange.run(array, *group)).collect();
            self.show_to_cluster(&exchange, &runs);
            for (i, group) in (0..).zip(chunk) {
                for (rank, peer) in (0..).zip(&exchange.peers) {
                    let address = Address { base: *peer, offset: exchange.offset(i) };
                    self.b.load(exchange.load, exchange.run(parts, rank), address, None);
                }
                let shown = Shown { parts, blocks, registers: width };
                self.combine_shown(&shown, (array, width * group), (dtype, values), op);
            }
            self.tell(&exchange, 8);
        }
        Ok(())
    }

    /// `cluster_reduce((m, s), f)`: the same, of tuples of elements that go through as they are computed with.
    pub(crate) fn cluster_combine(
        &mut self,
        tensors: &[TensorId],
        by: &Combination,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        if self.verified.cluster() == 1 {
            return Ok(());
        }
        let (trees, widths) = self.trees(by, tensors, span)?;
        let words: u32 = widths.iter().sum();
        let values: Vec<u32> = (0..self.count(tensors[0])?).collect();
        let mut items = self.tuples(tensors, std::slice::from_ref(&values))?.concat();
        items.iter_mut().for_each(|item| item.truncate(words as usize));
        let Some((plan, _)) = self.state.cluster_reduce else {
            return Err(internal(span, "a reduction over the cluster without a place"));
        };
        let at_once = (plan.slot.registers / words).max(1).min(values.len() as u32);
        let width = [4, 2, 1].into_iter().find(|width| (words * at_once).is_multiple_of(*width)).unwrap_or(1);
        let exchange = self.exchange(width, span)?;
        let registers = words * at_once;
        let given = self.b.add_array("cluster_reduce.given", registers);
        let ranks_at_once = (LOADED / registers).clamp(1, plan.blocks);
        let parts = self.b.add_array("cluster_reduce.parts", registers * ranks_at_once);
        for chunk in items.chunks_mut(at_once as usize) {
            // The last chunk may have fewer items: what stands behind them is nobody's.
            for (index, word) in (0..).zip(chunk.concat()) {
                self.b.write(Reg { array: given, index }, word);
            }
            let runs = (words * chunk.len() as u32).div_ceil(width);
            let stored: Vec<Vec<Reg>> = (0..runs).map(|run| exchange.run(given, run)).collect();
            self.show_to_cluster(&exchange, &stored);
            let mut totals: Vec<Item> = Vec::new();
            let ranks: Vec<u32> = (0..plan.blocks).collect();
            for ranks in ranks.chunks(ranks_at_once as usize) {
                for (number, rank) in (0..).zip(ranks) {
                    for run in 0..runs {
                        let address =
                            Address { base: exchange.peers[*rank as usize], offset: exchange.offset(run) };
                        let to = exchange.run(parts, number * registers / width + run);
                        self.b.load(exchange.load, to, address, None);
                    }
                }
                for number in 0..ranks.len() as u32 {
                    for item in 0..chunk.len() {
                        let first = number * registers + words * item as u32;
                        let read = |index| self.b.read(Reg { array: parts, index });
                        let next: Item = (first..first + words).map(read).collect();
                        match totals.get(item) {
                            None => totals.push(next),
                            Some(total) => {
                                totals[item] = self.both_tuples((&trees, &widths), total, &next)?
                            }
                        }
                    }
                }
            }
            self.tell(&exchange, 8);
            chunk.iter_mut().zip(totals).for_each(|(item, total)| *item = total);
        }
        let mut first = 0;
        for (tensor, width) in tensors.iter().zip(&widths) {
            let words = first..first + *width as usize;
            first = words.end;
            let results: Vec<Operand> =
                items.iter().map(|item| elements::of_words(self.b, &item[words.clone()])).collect();
            let (to, dtype) = (self.array(*tensor)?, self.verified.tensor(*tensor).dtype);
            self.write_reduced(to, dtype, false, &results);
        }
        Ok(())
    }

    /// Puts together what the blocks show of a run of registers of an array, which has so many values: floats in `f32`, rounded once.
    fn combine_shown(
        &mut self,
        shown: &Shown,
        (array, first): (ArrayId, u32),
        (dtype, values): (DType, u32),
        op: ReduceOp,
    ) {
        let (packed, each) = (per_register(dtype.bits()), registers_of(dtype.bits()));
        let combine = combining(dtype, op);
        for k in (0..shown.registers).step_by(each as usize) {
            let value = packed * (first + k) / each;
            let group: Vec<Operand> = (0..packed.min(values - value))
                .map(|at| {
                    let part = |rank: u32| packed * (shown.registers * rank + k) / each + at;
                    let mut total = elements::read(self.b, shown.parts, part(0), dtype);
                    for rank in 1..shown.blocks {
                        let next = elements::read(self.b, shown.parts, part(rank), dtype);
                        total = self.b.scalar(combine, &[total, next]);
                    }
                    total
                })
                .collect();
            self.write_group(array, (dtype, !op.computes()), value, &group);
        }
    }

    /// Waits for the phase of a barrier, across the cluster, whose parity a register holds, and flips it.
    fn wait_flip(&mut self, base: Operand, offset: i32, parity: Reg) {
        let now = self.b.read(parity);
        self.b.mbarrier(MbarrierOp::WaitCluster, Address { base, offset }, now);
        let next = self.b.scalar(ScalarOp::XorB32, &[now, int(1)]);
        self.b.write(parity, next);
    }
}
