//! Roles: which of a part's threads issue asynchronous operations, and what they wait for.

use std::collections::BTreeSet;

use tilewright_machine::{Arch, TensorOp};
use tilewright_tile::core::{Program, StmtKind};
use tilewright_tile::{Diagnostic, PipelineId, Side, StmtId};

use super::part::Part;
use super::proxy::Orders;
use super::release::ReleasePlan;
use super::smem::ClusterReduceSlot;
use crate::divisibility::Divisibility;
use crate::plan::StmtPlan;

/// A change of the registers that a thread of a role may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisterBudget {
    /// Registers of a thread from here on.
    pub registers: u32,
    /// True if they are more than a thread has at entry.
    pub more: bool,
}

/// Reductions over the blocks of a cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterReducePlan {
    /// The buffer and the barriers.
    pub slot: ClusterReduceSlot,
    /// Arrivals that end a phase of the barriers: every warp of the part, in every block.
    pub arrivals: u32,
    /// Blocks of the cluster.
    pub blocks: u32,
}

/// The plan of one part of a block.
pub struct RolePlan {
    /// The first warp in the block.
    pub first_warp: u32,
    /// The sides of pipelines that the part is on.
    pub sides: BTreeSet<(PipelineId, Side)>,
    /// True if it issues TMA stores or reductions, which read shared memory.
    pub stores: bool,
    /// True if it has `cp.async` outside stages.
    pub copies: bool,
    /// True if it issues TMA copies or products of warpgroups, is on a side of a pipeline, or gets tiles from a counter by barriers of its
    /// own: one thread is elected.
    pub elects: bool,
    /// True if it only issues TMA loads, or products with their sums in tensor memory: a single thread does all of it.
    pub single_thread: bool,
    /// True if it issues products with their sums in tensor memory: their commits give back the stages that it consumes.
    pub sums: bool,
    /// True if these are products of pairs: only the even block's thread issues them, and the odd block's role does nothing.
    pub pair: bool,
    /// The change of its register budget on entry.
    pub registers: Option<RegisterBudget>,
    /// True if it ends with a barrier of the cluster: peers may still reach the block's memory.
    pub ends_with_cluster: bool,
    /// Pipelines that other blocks fill and release too, of which it waits at its end until all stages that it has filled are released: nobody reaches
    /// their barriers any more, and no barrier of the cluster has to say so.
    pub drains: BTreeSet<PipelineId>,
    /// Its reductions over the cluster.
    pub cluster_reduce: Option<ClusterReducePlan>,
    /// The points at which it releases the stages that it consumes.
    pub release: ReleasePlan,
    /// Its proxy fences, and the forms of its waits.
    pub sync: Orders,
    /// Its barriers at which each warpgroup meets by itself.
    pub warpgroups: BTreeSet<StmtId>,
}

impl RolePlan {
    /// Plans a part; fences and waits are those of the whole block's accesses, and left out.
    ///
    /// # Errors
    ///
    /// A statement without a plan.
    pub fn new(
        whole: &Program,
        part: &Part<'_>,
        slot: Option<ClusterReduceSlot>,
        registers: Option<RegisterBudget>,
        divisibility: &Divisibility<'_>,
    ) -> Result<RolePlan, Diagnostic> {
        let blocks = whole.cluster();
        let mut plan = RolePlan {
            first_warp: part.role.map_or(0, |role| role.first / 32),
            sides: BTreeSet::new(),
            stores: false,
            copies: false,
            elects: false,
            single_thread: false,
            sums: part.multiplies_in_tensor_memory()?,
            pair: part.multiplies_in_pairs()?,
            registers,
            ends_with_cluster: false,
            drains: BTreeSet::new(),
            cluster_reduce: slot.map(|slot| ClusterReducePlan {
                slot,
                arrivals: part.verified.threads() / 32 * blocks,
                blocks,
            }),
            release: ReleasePlan::new(part.verified, divisibility),
            sync: Orders::default(),
            warpgroups: BTreeSet::new(),
        };
        let (mut issues_tma, mut products, mut threads) = (false, false, false);
        let meets = part.role.is_some() || blocks > 1;
        let mut deals = false;
        for site in part.sites()? {
            match (&site.stmt.kind, site.plan) {
                (StmtKind::CopyAsync { .. }, StmtPlan::Tma(copy)) => {
                    (issues_tma, threads) = (true, threads || copy.gather.is_some());
                    if copy.row.op != TensorOp::Load {
                        (plan.stores, threads) = (true, true);
                    }
                }
                (StmtKind::CopyAsync { .. }, _) => {
                    threads = true;
                    plan.copies |= site.stages.last().is_none_or(|stage| stage.side == Side::Consume);
                }
                (StmtKind::GemmAsync { .. }, _) => (products, threads) = (true, true),
                (StmtKind::Stage { pipeline, side, .. }, _) => {
                    threads |= *side == Side::Consume;
                    plan.sides.insert((*pipeline, *side));
                }
                (StmtKind::Tiles { dynamic: Some(_), .. }, _) => deals = true,
                (
                    StmtKind::For { .. }
                    | StmtKind::If { .. }
                    | StmtKind::Break { .. }
                    | StmtKind::Assert { .. }
                    | StmtKind::Print { .. }
                    | StmtKind::Tiles { .. }
                    | StmtKind::Drain { .. }
                    | StmtKind::Define(_)
                    | StmtKind::Pipeline(_)
                    | StmtKind::Barrier(_)
                    | StmtKind::WaitDependencies
                    | StmtKind::LaunchDependents,
                    _,
                ) => {}
                _ => threads = true,
            }
        }
        plan.elects = issues_tma || products || !plan.sides.is_empty() || (deals && meets);
        // The verifier has seen to it that such a role does nothing that its threads do together.
        plan.single_thread = (issues_tma && !threads || plan.sums) && part.role.is_some();
        Ok(plan)
    }
}

/// Registers that a thread needs beside its fragments, at most: addresses, counters, and what `ptxas` keeps in flight.
const BESIDE_FRAGMENTS: u32 = 64;

/// The change of each part's register budget on entry, where all roles have one and it is not what a thread has at entry. There is none where what a thread has
/// at entry is enough for every role: the change takes time, 0.04 to 0.2 µs of a product's 8 to 16 on an H100.
pub fn budgets(whole: &Program, parts: &[Part<'_>], arch: Arch) -> Vec<Option<RegisterBudget>> {
    let entry = arch.limits().registers_of_a_thread(whole.threads() * whole.resident());
    let enough = |part: &Part<'_>| part.synthesis.explanation.fragment_registers + BESIDE_FRAGMENTS <= entry;
    let changes = whole.roles().iter().all(|role| role.registers.is_some()) && !parts.iter().all(enough);
    let budget = |part: &Part<'_>| {
        let registers = part.role?.registers.filter(|registers| changes && *registers != entry)?;
        Some(RegisterBudget { registers, more: registers > entry })
    };
    parts.iter().map(budget).collect()
}
