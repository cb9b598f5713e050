//! Registers of fragments: whether they are defined, and what touches them.

use tilewright_machine::Memory;

use super::Warp;
use crate::cluster::Cluster;
use crate::error::SimError;
use crate::rule::Rule;
use crate::sink::FaultKind;

impl Warp {
    /// Looks for a register that these lanes read, but nothing has written.
    pub(crate) fn defined(
        &self,
        cluster: &mut Cluster<'_>,
        regs: &[u32],
        mask: u32,
        (statement, origin): (u32, u32),
    ) {
        if self.written.is_empty() {
            return;
        }
        let mask = mask & self.live;
        if let Some(reg) = regs.iter().find(|r| mask & !self.written[**r as usize] != 0) {
            let lanes = mask & !self.written[*reg as usize];
            let site = self.site(statement, origin, lanes.trailing_zeros().min(31) as usize);
            cluster.wrong(&site, FaultKind::Unwritten, Memory::Register, i64::from(*reg), 4, false);
        }
    }

    /// Notes that these lanes write registers.
    pub(crate) fn define(&mut self, regs: &[u32], mask: u32) {
        if !self.written.is_empty() {
            regs.iter().for_each(|r| self.written[*r as usize] |= mask);
        }
    }

    /// Notes that an ordinary instruction of these lanes reads or writes registers.
    pub(super) fn touch(
        &mut self,
        cluster: &mut Cluster<'_>,
        regs: &[u32],
        write: bool,
        mask: u32,
        (statement, origin): (u32, u32),
    ) {
        if write {
            self.define(regs, mask);
        } else {
            self.defined(cluster, regs, mask, (statement, origin));
        }
        if let Some(reg) = regs.iter().find(|reg| self.tensor.loading.contains(reg)) {
            let site = self.site(statement, origin, self.active.trailing_zeros().min(31) as usize);
            let (name, does) =
                (cluster.context.program.register(*reg), if write { "written" } else { "read" });
            cluster.misuse(&site, Rule::Owned, || {
                format!("{name} is {does} while a load from tensor memory owns it; no tcgen05.wait::ld stands between")
            });
        }
        let Some(owned) = &mut self.owned else { return };
        for reg in regs {
            if let Some(owner) = owned.touch(*reg, write) {
                let site = self.site(statement, origin, self.active.trailing_zeros().min(31) as usize);
                let program = &cluster.context.program;
                let (name, owner) = (program.register(*reg), program.origin(owner));
                let does = if write { "written" } else { "read" };
                cluster.misuse(&site, Rule::Owned, || {
                    format!("{name} is {does} while the wgmma in `{owner}` owns it; no wgmma.wait_group covers it yet")
                });
                return;
            }
        }
    }

    /// Fails where lanes of the warp do not come to a barrier with the others.
    pub(crate) fn all_lanes(&self, cluster: &Cluster<'_>, origin: u32) -> Result<(), SimError> {
        if self.active == self.live {
            return Ok(());
        }
        Err(SimError::DivergentBarrier {
            origin: cluster.context.program.origin(origin),
            block: cluster.index(self.rank),
            warp: self.index,
            active: self.active,
        })
    }
}
