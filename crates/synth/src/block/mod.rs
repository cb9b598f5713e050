//! The plan of a thread block: what its roles, each synthesised on its own, must agree on. Shared memory is mapped ([`smem`]); pipelines
//! get the arrivals and the bytes that their barriers count ([`pipeline`]), the points at which their stages are released ([`release`])
//! and the fences between proxies ([`proxy`]); of each role it is known which of its threads issue and wait ([`role`]). Lowering emits
//! what the plan says, and reports print it.

pub mod disjoint;
pub mod pipeline;
pub mod proxy;
pub mod release;
pub mod role;
pub mod smem;

use tilewright_machine::Arch;
use tilewright_tile::core::{Program, Role, Stmt, StmtKind};
use tilewright_tile::{Diagnostic, PipelineId, Side};

use crate::divisibility::{Divisibility, Multiples};
use crate::explain::{PipelineNote, SyncNote};
use crate::plan::StmtPlan;
use crate::synthesis::Synthesis;
use pipeline::Pipelines;
use proxy::Accesses;
use role::RolePlan;
use smem::SharedMemoryMap;

/// The work of some of a block's threads: the whole of a program without roles, or one role.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// Its program, prepared for synthesis.
    pub verified: &'a Program,
    /// Its layouts and instructions.
    pub synthesis: &'a Synthesis,
    /// The role; `None` if all threads do it.
    pub role: Option<&'a Role>,
}

/// The plan of a block.
pub struct BlockPlan {
    /// The map of shared memory.
    pub memory: SharedMemoryMap,
    /// The pipelines.
    pub pipelines: Pipelines,
    /// One plan a part.
    pub roles: Vec<RolePlan>,
    /// The pipelines, for reports.
    pub pipeline_notes: Vec<PipelineNote>,
    /// What orders accesses of threads and of asynchronous engines, for reports.
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
        for (i, part) in parts.iter().enumerate() {
            let divisibility = Divisibility::new(part.verified, multiples);
            let mut role = RolePlan::new(whole, part, memory.cluster_reduce[i], arch, &divisibility)?;
            role.sync = accesses.orders(i);
            sync_notes.append(&mut role.sync.notes);
            for (id, _) in role.sides.iter().filter(|(_, side)| *side == Side::Consume) {
                if let Some(pipeline) = pipelines.get_mut(id) {
                    pipeline.release_delay = pipeline.release_delay.max(role.release.delay(*id));
                }
            }
            roles.push(role);
        }
        let multicasts = pipelines.values().any(|pipeline| pipeline.multicast > 1);
        for role in &mut roles {
            role.ends_with_cluster |= multicasts;
        }
        let pipeline_notes = pipeline::notes(whole, &pipelines);
        Ok(BlockPlan { memory, pipelines, roles, pipeline_notes, sync_notes })
    }

    /// Whether threads of other blocks of the cluster arrive at this block's barriers.
    pub fn meets_cluster(&self) -> bool {
        self.roles.iter().any(|role| role.ends_with_cluster)
    }
}

/// A stage of a pipeline around a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Around {
    pipeline: PipelineId,
    side: Side,
    /// The number of its `produce` or `consume` among those of the part.
    number: usize,
}

/// A statement of a part.
struct Site<'a> {
    stmt: &'a Stmt,
    plan: &'a StmtPlan,
    /// The innermost stage that the statement is in.
    stage: Option<Around>,
    /// How often the statement is done each time that the stage is, where that is known.
    times: Option<u64>,
}

struct Sites<'a> {
    part: Part<'a>,
    stages: usize,
    found: Vec<Site<'a>>,
}

impl<'a> Sites<'a> {
    /// The statements of a part, in their order.
    fn of(part: &Part<'a>) -> Result<Vec<Site<'a>>, Diagnostic> {
        let mut sites = Sites { part: *part, stages: 0, found: Vec::new() };
        sites.body(&part.verified.body, None, Some(1))?;
        Ok(sites.found)
    }

    fn body(
        &mut self,
        body: &'a [Stmt],
        stage: Option<Around>,
        times: Option<u64>,
    ) -> Result<(), Diagnostic> {
        for stmt in body {
            let plan = self.part.synthesis.plan(stmt)?;
            self.found.push(Site { stmt, plan, stage, times });
            let (mut inner, mut repeated) = (stage, times);
            match &stmt.kind {
                StmtKind::Stage { pipeline, side, .. } => {
                    inner = Some(Around { pipeline: *pipeline, side: *side, number: self.stages });
                    repeated = Some(1);
                    self.stages += 1;
                }
                StmtKind::For { lo, hi, .. } => {
                    let rounds = lo.as_int().zip(hi.as_int()).map(|(lo, hi)| (hi - lo).max(0) as u64);
                    repeated = times.zip(rounds).and_then(|(a, b)| a.checked_mul(b));
                }
                StmtKind::Tiles { .. } => repeated = None,
                _ => {}
            }
            self.body(stmt.kind.body(), inner, repeated)?;
        }
        Ok(())
    }
}
