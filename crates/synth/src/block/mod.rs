//! The plan of a thread block: what its roles, each synthesised on its own, must agree on. Shared memory is mapped ([`smem`]), and tensor memory ([`tensor_memory`]); pipelines
//! get the arrivals and the bytes that their barriers count ([`pipeline`]), the points at which their stages are released ([`release`])
//! and the fences between proxies ([`proxy`]), barriers of warpgroups the threads that meet there ([`warpgroups`]), the counters that deal out tiles a thread that takes them ([`tiles`]); of each role it is known which of its threads issue and wait ([`role`]). Lowering emits
//! what the plan says, and reports print it.

mod disjoint;
mod part;
pub mod pipeline;
pub mod proxy;
pub mod release;
pub mod role;
pub mod smem;
pub mod tensor_memory;
pub mod tiles;
pub mod warpgroups;

use tilewright_machine::Arch;
use tilewright_tile::core::Program;
use tilewright_tile::{Diagnostic, PipelineId, Side};

use crate::divisibility::{Divisibility, Multiples};
use crate::explain::{PipelineNote, SyncNote};
pub use part::Part;
use pipeline::Pipelines;
use proxy::Accesses;
use role::RolePlan;
use smem::SharedMemoryMap;
use tiles::TileQueues;

/// The plan of a block.
pub struct BlockPlan {
    /// The map of shared memory.
    pub memory: SharedMemoryMap,
    /// The pipelines.
    pub pipelines: Pipelines,
    /// The counters that deal out tiles.
    pub tiles: TileQueues,
    /// One plan a part.
    pub roles: Vec<RolePlan>,
    /// The pipelines, for reports.
    pub pipeline_notes: Vec<PipelineNote>,
    /// The fences and waits that order accesses of threads and of asynchronous engines, for reports.
    pub sync_notes: Vec<SyncNote>,
}

impl BlockPlan {
    /// Plans a block. `whole` is the program of all parts, from which each was taken.
    ///
    /// # Errors
    ///
    /// More shared memory than a block has; a pipeline stage of which the bytes that fill it are not known.
    pub fn new(
        whole: &Program,
        parts: &[Part<'_>],
        arch: Arch,
        multiples: &Multiples,
    ) -> Result<BlockPlan, Diagnostic> {
        let memory = smem::map(whole, parts, arch)?;
        let accesses = Accesses::new(parts, &memory)?;
        let mut pipelines = pipeline::plan(whole, parts, &memory, &accesses)?;
        let mut sync_notes = pipeline::sync_notes(whole, &pipelines);
        let mut roles = Vec::new();
        for ((i, part), registers) in parts.iter().enumerate().zip(role::budgets(whole, parts, arch)) {
            let divisibility = Divisibility::new(part.verified, multiples);
            let mut role = RolePlan::new(whole, part, memory.cluster_reduce[i], registers, &divisibility)?;
            role.sync = accesses.orders(i);
            sync_notes.append(&mut role.sync.notes);
            let (apart, mut notes) = warpgroups::meet_apart(part, &accesses, i);
            role.warpgroups = apart;
            sync_notes.append(&mut notes);
            for (id, _) in role.sides.iter().filter(|(_, side)| *side == Side::Consume) {
                if let Some(pipeline) = pipelines.get_mut(id) {
                    pipeline.release_delay = pipeline.release_delay.max(role.release.delay(*id));
                }
            }
            roles.push(role);
        }
        for (part, role) in parts.iter().zip(&roles) {
            for (id, _) in role.sides.iter().filter(|(_, side)| *side == Side::Produce) {
                if let Some(pipeline) = pipelines.get_mut(id) {
                    pipeline.hand_over_delay = pipeline::hand_over_delay(part, *id, pipeline)?;
                }
            }
        }
        let tiles = tiles::plan(whole, parts, &memory.tiles, &roles);
        let multicasts = pipelines.values().any(|pipeline| pipeline.multicast > 1);
        let deals = tiles.values().any(|queue| queue.blocks > 1);
        let pairs = roles.iter().any(|role| role.pair);
        // Where blocks meet by multicasts alone, the roles that issue them see the last release of each stage.
        let drains = multicasts && !deals && !pairs && memory.tensor_memory.is_none();
        for role in &mut roles {
            role.ends_with_cluster |= (multicasts && !drains) || deals || pairs;
            let shared = |id: &PipelineId| pipelines.get(id).is_some_and(|pipeline| pipeline.multicast > 1);
            let produced = role.sides.iter().filter(|(_, side)| *side == Side::Produce).map(|(id, _)| *id);
            role.drains = produced.filter(|id| drains && shared(id)).collect();
        }
        let pipeline_notes = pipeline::notes(whole, &pipelines);
        Ok(BlockPlan { memory, pipelines, tiles, roles, pipeline_notes, sync_notes })
    }

    /// True if blocks work in pairs.
    pub fn pairs(&self) -> bool {
        self.roles.iter().any(|role| role.pair)
    }

    /// True if threads of other blocks of the cluster arrive at this block's barriers.
    pub fn meets_cluster(&self) -> bool {
        self.roles
            .iter()
            .any(|role| role.ends_with_cluster || !role.drains.is_empty() || role.cluster_reduce.is_some())
    }
}
