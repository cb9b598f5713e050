//! The roles of a program: which threads do what. Each is one side of a branch on the warp's index.
//!
//! # Who does what
//!
//! A tensor copy is started by one thread: the elected one of the role's first warp. A role that does nothing else is that one thread.

use tilewright_machine::{ScalarOp, SyncOp};
use tilewright_simt::{Build, Builder, Inst, Value};
use tilewright_tile::Diagnostic;
use tilewright_tile::core::{Role, Stmt};

use crate::async_state::Warp;
use crate::context::Lower;
use crate::scalar::{condition, int, warp_index};

/// Puts the roles' bodies side by side: each warp does that of its role. `known` is the thread's warp, where the start has it.
pub fn roles(b: &mut Builder, mut bodies: Vec<(&Role, Vec<Inst>)>, known: Option<Warp>) {
    let Some((_, last)) = bodies.pop() else { return };
    b.set_origin("the roles of warpgroups");
    let warp = known.map_or_else(|| warp_index(b), |warp| warp.index);
    let conditions: Vec<Option<Value>> = bodies
        .iter()
        .map(|(role, _)| {
            condition(b, ScalarOp::LtI32, warp, int(i64::from((role.first + role.threads) / 32)))
        })
        .collect();
    let mut otherwise = last;
    while let (Some((_, then)), Some(condition)) =
        (bodies.pop(), conditions.get(bodies.len()).copied().flatten())
    {
        b.open_branch();
        b.if_else(condition, then, otherwise);
        otherwise = b.close_side();
    }
    b.append(otherwise);
}

impl Lower<'_> {
    /// The whole of a part.
    pub(crate) fn part(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        if self.role.single_thread {
            return self.by_issuer(|lower| {
                lower.block(body)?;
                lower.wait_for_releases()
            });
        }
        self.block(body)?;
        self.hand_on_rest(None)?;
        if self.role.stores {
            // Shared memory must outlive the copies that read it.
            self.b.sync(SyncOp::BulkWaitRead(0));
        }
        // A block must not end while its peers may still reach its memory: with tensor memory all of its threads wait where that is freed.
        if self.role.ends_with_cluster && self.columns.is_none() {
            self.b.sync(SyncOp::ClusterBarrier);
        } else {
            self.wait_for_readers();
            self.wait_for_releases()?;
        }
        Ok(())
    }

    /// Does something with the one thread that issues TMA copies.
    fn by_issuer(
        &mut self,
        body: impl FnOnce(&mut Self) -> Result<(), Diagnostic>,
    ) -> Result<(), Diagnostic> {
        let Some(issuer) = self.state.tma_issuer.take() else { return body(self) };
        let result = self.only_where(issuer, body);
        self.state.tma_issuer = Some(issuer);
        result
    }

    /// Closes a group of copies.
    pub(crate) fn commit_copies(&mut self) {
        if self.role.copies || !self.role.stores {
            self.b.sync(SyncOp::AsyncCommit);
        }
        if self.role.stores {
            self.b.sync(SyncOp::BulkCommit);
        }
    }

    /// Waits for groups of copies; of TMA stores for their `writes` too.
    pub(crate) fn wait_group(&mut self, groups: u32, writes: bool) {
        if self.role.copies || !self.role.stores {
            self.b.sync(SyncOp::AsyncWaitGroup(groups));
        }
        if self.role.stores {
            self.b.sync(if writes { SyncOp::BulkWait(groups) } else { SyncOp::BulkWaitRead(groups) });
        }
    }
}
