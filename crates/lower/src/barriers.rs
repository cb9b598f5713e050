//! Barriers of a part: of all its threads, of each warpgroup, and those at which it meets other roles.

use tilewright_machine::{ScalarOp, SyncOp, WARPGROUP};
use tilewright_simt::{Operand, Special};
use tilewright_tile::StmtId;
use tilewright_tile::core::{BarrierId, Program, SyncScope};

use crate::context::Lower;
use crate::scalar::int;

/// The numbers of a part's barriers.
pub struct Barriers {
    /// For each named barrier its number, and the threads that come to it.
    named: Vec<(u32, u32)>,
    /// The number of the barrier of the part's first warpgroup, if its warpgroups have barriers of their own.
    warpgroups: Option<u32>,
}

impl Barriers {
    /// Those of the part of this index.
    pub(crate) fn new(whole: &Program, index: usize) -> Self {
        let numbers = whole.barrier_numbers();
        let named = (0..whole.barriers.len() as u32).map(BarrierId);
        Barriers {
            named: named.map(|id| (numbers.named(id), whole.threads_at(id))).collect(),
            warpgroups: numbers.first_warpgroup(index),
        }
    }

    /// The number of a named barrier, and the threads that come to it.
    pub(crate) fn named(&self, id: BarrierId) -> (u32, u32) {
        self.named[id.0 as usize]
    }
}

impl Lower<'_> {
    /// `syncthreads()`, `syncthreads(warpgroup)`, `syncthreads(b)`.
    pub(crate) fn sync_threads(&mut self, scope: SyncScope, statement: StmtId) {
        match (scope, self.barriers.warpgroups) {
            (SyncScope::Barrier(barrier), _) => {
                let (id, threads) = self.barriers.named(barrier);
                self.b.sync(SyncOp::NamedBarrier { id, threads });
            }
            (SyncScope::Warpgroup, Some(first)) if self.role.warpgroups.contains(&statement) => {
                let thread = Operand::Value(self.b.special(Special::ThreadIndex));
                let group = self.b.scalar(ScalarOp::ShrU32, &[thread, int(i64::from(WARPGROUP.ilog2()))]);
                let id = self.b.scalar(ScalarOp::AddI32, &[group, int(i64::from(first))]);
                self.b.barrier_sync(id, WARPGROUP);
            }
            // One warpgroup, or elements that several touch.
            (SyncScope::All | SyncScope::Warpgroup, _) => self.b.sync(SyncOp::Barrier),
        }
    }
}
