//! Sums over the blocks of a cluster, through distributed shared memory.

use tilewright_machine::{MbarrierOp, Memory, ScalarOp, Scope, SyncOp, thread_copy};
use tilewright_simt::{Address, ArrayId, Operand, Reg, Special};
use tilewright_tile::{Diagnostic, Origin, TensorId};

use crate::context::{Lower, internal};
use crate::scalar::{self, add, condition, int};

impl Lower<'_> {
    /// `cluster_sum(c)`: every block shows its part in its shared memory, a few registers of each thread at a time, and every thread
    /// adds what the same thread of each block shows, in the order of ranks.
    pub(crate) fn cluster_sum(&mut self, tensor: TensorId, span: Origin) -> Result<(), Diagnostic> {
        let Some((plan, [full, free])) = self.state.cluster_reduce else {
            return Err(internal(span, "a sum without a place"));
        };
        let (array, count) = (self.array(tensor)?, self.count(tensor)?);
        let widths = if count % 4 == 0 { 4 } else { 1 };
        let (shared, register) = (Memory::Shared, Memory::Register);
        let store = thread_copy(register, shared, Scope::Cta, 4 * widths);
        let load = thread_copy(shared, register, Scope::Cluster, 4 * widths);
        let (Some(store), Some(load)) = (store, load) else {
            return Err(internal(span, "no row moves the registers of a sum"));
        };
        let threads = self.verified.threads();
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let base = self.shared_base();
        let own = scalar::scale(self.b, thread, i64::from(4 * widths));
        let buffer = add(self.b, base, int(i64::from(plan.slot.buffer)));
        let mine = add(self.b, buffer, own);
        let lane = self.b.scalar(ScalarOp::AndB32, &[thread, int(31)]);
        let barriers = add(self.b, base, int(i64::from(plan.slot.barriers)));
        let there = self.b.scalar(ScalarOp::Mapa, &[barriers, lane]);
        let tells = condition(self.b, ScalarOp::LtI32, lane, int(i64::from(plan.blocks)));
        let peers: Vec<Operand> = (0..plan.blocks)
            .map(|rank| self.b.scalar(ScalarOp::Mapa, &[mine, int(i64::from(rank))]))
            .collect();
        let parts = self.b.add_array("sum.parts", widths * plan.blocks);
        let some = |array: ArrayId, first: u32| -> Vec<Reg> {
            (first..first + widths).map(|index| Reg { array, index }).collect()
        };
        let tell = |lower: &mut Self, offset: i32| {
            lower.b.sync(SyncOp::WarpBarrier);
            lower.guarded(tells, |lower| {
                lower.b.mbarrier(MbarrierOp::ArriveCluster, Address { base: there, offset }, int(0));
            });
        };
        let groups: Vec<u32> = (0..count / widths).map(|g| widths * g).collect();
        for chunk in groups.chunks((plan.slot.registers / widths) as usize) {
            let offset = |i: usize| (i as u32 * 4 * widths * threads) as i32;
            self.wait_flip(barriers, 8, free);
            for (i, first) in chunk.iter().enumerate() {
                self.b.store(store, some(array, *first), Address { base: mine, offset: offset(i) }, None);
            }
            tell(self, 0);
            self.wait_flip(barriers, 0, full);
            for (i, first) in chunk.iter().enumerate() {
                for (rank, peer) in peers.iter().enumerate() {
                    let regs = some(parts, widths * rank as u32);
                    self.b.load(load, regs, Address { base: *peer, offset: offset(i) }, None);
                }
                for k in 0..widths {
                    let mut total = self.b.read(Reg { array: parts, index: k });
                    for rank in 1..plan.blocks {
                        let next = self.b.read(Reg { array: parts, index: widths * rank + k });
                        total = self.b.scalar(ScalarOp::AddF32, &[total, next]);
                    }
                    self.b.write(Reg { array, index: first + k }, total);
                }
            }
            tell(self, 8);
        }
        Ok(())
    }

    /// Waits for the phase of a barrier, across the cluster, whose parity a register holds, and flips it.
    fn wait_flip(&mut self, base: Operand, offset: i32, parity: Reg) {
        let now = self.b.read(parity);
        self.b.mbarrier(MbarrierOp::WaitCluster, Address { base, offset }, now);
        let next = self.b.scalar(ScalarOp::XorB32, &[now, int(1)]);
        self.b.write(parity, next);
    }
}
