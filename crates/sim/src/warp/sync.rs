//! Barriers, fences and waits of a warp.

use tilewright_machine::SyncOp;

use super::{Wait, Warp};
use crate::cluster::Cluster;
use crate::error::SimError;

impl Warp {
    pub(super) fn sync(
        &mut self,
        cluster: &mut Cluster<'_>,
        op: SyncOp,
        statement: u32,
        origin: u32,
    ) -> Result<(), SimError> {
        match op {
            SyncOp::Barrier
            | SyncOp::NamedBarrier { .. }
            | SyncOp::BarrierArrive { .. }
            | SyncOp::ClusterBarrier
            | SyncOp::ClusterStart => {
                self.all_lanes(cluster, origin)?;
                match op {
                    SyncOp::NamedBarrier { id, threads } => {
                        self.come(cluster, (id, threads), true, (statement, origin));
                    }
                    SyncOp::BarrierArrive { id, threads } => {
                        self.come(cluster, (id, threads), false, (statement, origin));
                    }
                    SyncOp::ClusterBarrier | SyncOp::ClusterStart => self.wait(Wait::Cluster),
                    _ => self.wait(Wait::Block),
                }
            }
            SyncOp::WarpBarrier => {
                self.collective(cluster, &op.spelling(), self.live, origin)?;
                cluster.know[self.agent as usize].meet_lanes();
            }
            SyncOp::AsyncCommit => self.queue.commit(self.active),
            SyncOp::AsyncWaitGroup(n) => self.land(cluster, Some(n)),
            SyncOp::AsyncWaitAll => self.land(cluster, None),
            SyncOp::WgmmaFence | SyncOp::WgmmaCommit | SyncOp::WgmmaWait(_) => {
                self.collective(cluster, &op.spelling(), u32::MAX, origin)?;
                let Some(owned) = &mut self.owned else { return Ok(()) };
                match op {
                    SyncOp::WgmmaFence => owned.fence(),
                    SyncOp::WgmmaCommit => owned.commit(),
                    SyncOp::WgmmaWait(n) => {
                        let (products, ready) = owned.covered(n);
                        self.timing.clock = self.timing.clock.max(ready);
                        self.wait(Wait::Products(products));
                    }
                    _ => {}
                }
            }
            SyncOp::BulkCommit => self.bulk.commit(self.active),
            SyncOp::BulkWait(n) => self.bulk_wait(cluster, n, false),
            SyncOp::BulkWaitRead(n) => self.bulk_wait(cluster, n, true),
            SyncOp::FenceProxyAsync(fence) => {
                let spaces = cluster.spaces(fence, self.rank);
                cluster.know[self.agent as usize].fence(self.active, &spaces);
                cluster.publish_barriers(self.agent, self.active);
            }
            SyncOp::FenceMbarrierInit => cluster.publish_barriers(self.agent, self.active),
            SyncOp::SetMaxRegisters { more, registers } => {
                self.collective(cluster, &op.spelling(), self.live, origin)?;
                self.set_registers(cluster, more, registers, (statement, origin));
            }
            SyncOp::DependencyWait => {
                cluster.know[self.agent as usize].wait_for_launches(self.active);
            }
            // It orders nothing.
            SyncOp::DependentsLaunch => {}
            SyncOp::TensorRelinquish | SyncOp::TensorWaitLoad | SyncOp::TensorWaitStore => {
                self.collective(cluster, &op.spelling(), self.live, origin)?;
                match op {
                    SyncOp::TensorRelinquish => cluster.relinquish(self.rank),
                    _ if cluster.context.program.sums => {
                        self.tensor_wait(cluster, op == SyncOp::TensorWaitLoad);
                    }
                    _ => {}
                }
            }
            SyncOp::TensorFenceBefore => self.tensor_before(cluster),
            SyncOp::TensorFenceAfter => self.tensor_after(cluster),
        }
        Ok(())
    }
}
