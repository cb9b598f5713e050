//! Pipelines: the arrivals and the bytes that the barriers of their stages count.
//!
//! A stage has two mbarriers. The *full* one ends a phase when its producer has arrived, with the number of bytes that TMA loads bring
//! (`expect_tx`), and the bytes have landed; the *empty* one when every warp of its consumers has released the stage.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Memory, ProxyFence};
use tilewright_tile::core::{Program, Stmt, StmtKind};
use tilewright_tile::{Code, Diagnostic, Origin, Peers, PipelineId, Side, least_iterations};

use super::part::{Around, Part};
use super::proxy::Accesses;
use super::smem::SharedMemoryMap;
use crate::explain::{PipelineNote, SyncNote};
use crate::plan::{CopyPlan, PipelinePlan, ReleaseDelay, StmtPlan};

/// The most bytes that a phase of an mbarrier counts (PTX ISA 9.0, section 9.7.13.15.5).
const MAX_TX_BYTES: u64 = (1 << 20) - 1;

/// The pipelines of a program.
pub type Pipelines = BTreeMap<PipelineId, PipelinePlan>;

/// The means by which a `produce` fills its stage.
#[derive(Clone, PartialEq, Eq)]
struct Fill {
    tx_bytes: u64,
    stored: bool,
    /// By products with their sums in tensor memory.
    sums: bool,
    /// The blocks of each multicast.
    peers: BTreeSet<Peers>,
}

/// A `produce`.
struct Produce {
    pipeline: PipelineId,
    span: Origin,
    fill: Fill,
    /// A tensor copy that is done nobody knows how often.
    uncounted: Option<Origin>,
}

/// True if the statements certainly do a product, for which the threads of each warp meet.
fn multiplies(v: &Program, body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::GemmAsync { .. } => true,
        StmtKind::For { lo, hi, condition: None, body, .. } => {
            least_iterations(v, lo, hi) > 0 && multiplies(v, body)
        }
        StmtKind::Stage { body, .. } => multiplies(v, body),
        _ => false,
    })
}

/// The `produce`s of a part, and the pipelines that it consumes: whether each `consume` of one multiplies.
fn stages(part: &Part<'_>) -> Result<(Vec<Produce>, BTreeMap<PipelineId, bool>), Diagnostic> {
    let mut produces: BTreeMap<usize, Produce> = BTreeMap::new();
    let mut consumed = BTreeMap::new();
    let mut number = 0;
    for site in part.sites()? {
        if let StmtKind::Stage { pipeline, side, body, .. } = &site.stmt.kind {
            match side {
                Side::Consume => {
                    *consumed.entry(*pipeline).or_insert(true) &= multiplies(part.verified, body)
                }
                Side::Produce => {
                    let fill = Fill { tx_bytes: 0, stored: false, sums: false, peers: BTreeSet::new() };
                    let produce =
                        Produce { pipeline: *pipeline, span: site.stmt.span, fill, uncounted: None };
                    produces.insert(number, produce);
                }
            }
            number += 1;
        }
        if let (StmtKind::GemmAsync { c, .. }, StmtPlan::Sums(_)) = (&site.stmt.kind, site.plan) {
            let fills = |around: &&Around| part.verified.pipeline(around.pipeline).tensors.contains(c);
            let produce = site.stages.iter().find(fills).and_then(|stage| produces.get_mut(&stage.number));
            produce.into_iter().for_each(|produce| produce.fill.sums = true);
        }
        let Some(produce) = site.stages.last().and_then(|stage| produces.get_mut(&stage.number)) else {
            continue;
        };
        match site.plan {
            StmtPlan::Tma(plan) => {
                let bytes = site.times.and_then(|times| times.checked_mul(plan.bytes()));
                match bytes.and_then(|bytes| produce.fill.tx_bytes.checked_add(bytes)) {
                    Some(bytes) => produce.fill.tx_bytes = bytes,
                    None => _ = produce.uncounted.get_or_insert(site.stmt.span),
                }
                produce.fill.peers.extend(plan.multicast.map(|share| share.peers));
                // Several threads gather rows: each waits for the stage, and arrives.
                produce.fill.stored |= plan.gather.is_some();
            }
            StmtPlan::Copy(_) | StmtPlan::TensorCopy(_) => produce.fill.stored = true,
            _ => {}
        }
    }
    Ok((produces.into_values().collect(), consumed))
}

/// Checks that a barrier can count what fills a stage, and that each `produce` of a pipeline brings the same.
fn check(whole: &Program, produce: &Produce, first: &Fill) -> Result<u32, Diagnostic> {
    let name = &whole.pipeline(produce.pipeline).name;
    let fail = |span: Origin, message: String, help: &str| {
        Diagnostic::new(Code::Unsatisfiable, span, message).help(help)
    };
    if let Some(span) = produce.uncounted {
        return Err(fail(
            span,
            "how many tensor copies fill the stage is not known when the kernel is compiled".to_string(),
            "a stage's barrier counts its bytes: let loops in `produce` have constant bounds, and write branches around it",
        ));
    }
    let bytes = produce.fill.tx_bytes;
    let counted = u32::try_from(bytes).ok().filter(|_| bytes <= MAX_TX_BYTES).ok_or_else(|| {
        fail(
            produce.span,
            format!(
                "this `produce` copies {bytes} bytes into a stage of `{name}`, and its barrier counts up to {MAX_TX_BYTES}"
            ),
            "copy each part of a stage once; a loop around the copies repeats them",
        )
    })?;
    if produce.fill != *first {
        return Err(fail(
            produce.span,
            format!("this `produce` fills a stage of `{name}` otherwise than another"),
            "a pipeline's barriers count the same bytes for every stage: copy the same tiles by the same means",
        ));
    }
    Ok(counted)
}

/// Plans the pipelines of a program.
///
/// # Errors
///
/// A stage of which the bytes that fill it are not known, or too many.
pub fn plan(
    whole: &Program,
    parts: &[Part<'_>],
    memory: &SharedMemoryMap,
    accesses: &Accesses<'_>,
) -> Result<Pipelines, Diagnostic> {
    let mut plans = Pipelines::new();
    for (id, barriers) in &memory.barriers {
        let fences = accesses.of_stages(&whole.pipeline(*id).tensors);
        let plan = PipelinePlan {
            stages: barriers.stages,
            barriers: barriers.at,
            full_arrivals: 1,
            empty_arrivals: 0,
            tx_bytes: 0,
            sums: false,
            tensor_memory: whole
                .pipeline(*id)
                .tensors
                .iter()
                .any(|tensor| whole.tensor(*tensor).memory() == Memory::Tensor),
            stored: false,
            fences,
            warps_meet: fences.read,
            multicast: 1,
            pair: false,
            peers: BTreeSet::new(),
            release_delay: ReleaseDelay::Stages(0),
            hand_over_delay: 0,
        };
        plans.insert(*id, plan);
    }
    for part in parts {
        let (produces, consumed) = stages(part)?;
        let mut first: BTreeMap<PipelineId, Fill> = BTreeMap::new();
        for produce in &produces {
            let fill = first.entry(produce.pipeline).or_insert_with(|| produce.fill.clone());
            let tx_bytes = check(whole, produce, fill)?;
            let Some(plan) = plans.get_mut(&produce.pipeline) else { continue };
            // A stage that nothing is copied to is handed on by all threads of the role.
            plan.sums = fill.sums;
            plan.stored = !fill.sums && (fill.stored || tx_bytes == 0);
            plan.tx_bytes = tx_bytes;
            plan.peers.clone_from(&fill.peers);
            plan.full_arrivals = if plan.stored { part.verified.threads() } else { 1 };
        }
        let sums = part.multiplies_in_tensor_memory()?;
        let pairs = part.multiplies_in_pairs()?;
        for produce in produces {
            if let Some(plan) = plans.get_mut(&produce.pipeline) {
                plan.pair |= pairs;
            }
        }
        for (id, multiplies) in consumed {
            if let Some(plan) = plans.get_mut(&id) {
                plan.pair |= pairs;
                plan.warps_meet |= !multiplies;
                // A commit behind the products is one arrival.
                plan.empty_arrivals += if sums { 1 } else { part.verified.threads() / 32 };
            }
        }
    }
    for plan in plans.values_mut() {
        // A stage is free once all blocks have released it that receive what this one copies: as many for each block, by symmetry.
        let reached: BTreeSet<u32> = plan.peers.iter().flat_map(|peers| peers.ranks(0)).collect();
        plan.multicast = reached.len().max(1) as u32;
        plan.empty_arrivals *= plan.multicast;
        // The even block of a pair waits for the bytes of both, for the warps that fill stages in both, and for those who read the sums of both.
        if plan.pair && plan.sums {
            plan.empty_arrivals *= 2;
        } else if plan.pair {
            plan.tx_bytes *= 2;
            if plan.stored {
                plan.full_arrivals = 2 * plan.full_arrivals / 32;
            }
        }
    }
    Ok(plans)
}

/// Stages whose copies are in flight beside those of the stage at hand, at most: with those of one stage more they hide the latency of memory.
const MOST_LATE: u32 = 3;

/// The stages that the producer of a pipeline may fill before it hands one on: some, where its threads fill them by `cp.async` and it waits for nobody but
/// for free stages.
///
/// A consumer that waits has released all stages that were handed on, but for the latest of its release delay. The producer waits for a stage to be free that it filled a ring
/// earlier: with `d` stages not handed on, `d + 1 + delay` of them at most the ring's, that one has been released, or will be without a further hand-over.
pub fn hand_over_delay(part: &Part<'_>, id: PipelineId, plan: &PipelinePlan) -> Result<u32, Diagnostic> {
    let ReleaseDelay::Stages(delay) = plan.release_delay else { return Ok(0) };
    if !plan.stored {
        return Ok(0);
    }
    let mut copies = false;
    for site in part.sites()? {
        let fills =
            site.stages.last().is_some_and(|stage| stage.side == Side::Produce && stage.pipeline == id);
        let alone = match (&site.stmt.kind, site.plan) {
            (StmtKind::CopyAsync { .. }, StmtPlan::Copy(CopyPlan::Async { .. })) => {
                copies |= fills;
                site.stages.last().is_some_and(|stage| stage.side == Side::Produce)
            }
            (StmtKind::CopyAsync { .. }, plan) => {
                matches!(plan, StmtPlan::Tma(_))
                    && site.stages.last().is_some_and(|stage| stage.side == Side::Produce)
            }
            (StmtKind::Copy { how, .. }, StmtPlan::Copy(CopyPlan::Direct { .. })) => {
                !fills && how.fetch.is_none() && how.combine.is_none()
            }
            (StmtKind::Stage { side, .. }, _) => *side == Side::Produce,
            (StmtKind::Tiles { dynamic, .. }, _) => dynamic.is_none(),
            (
                StmtKind::Define(_)
                | StmtKind::Let { .. }
                | StmtKind::Pipeline(_)
                | StmtKind::Cast { .. }
                | StmtKind::Fill { .. }
                | StmtKind::Elementwise { .. }
                | StmtKind::Rearrange { .. }
                | StmtKind::Shape { .. }
                | StmtKind::For { .. }
                | StmtKind::If { .. }
                | StmtKind::WaitDependencies
                | StmtKind::LaunchDependents,
                _,
            ) => true,
            _ => false,
        };
        if !alone {
            return Ok(0);
        }
    }
    let free = plan.stages.saturating_sub(1 + delay);
    Ok(if copies { free.div_ceil(2).min(MOST_LATE) } else { 0 })
}

/// The pipelines, for reports.
pub fn notes(whole: &Program, plans: &Pipelines) -> Vec<PipelineNote> {
    let note = |(id, plan): (&PipelineId, &PipelinePlan)| {
        let pipeline = whole.pipeline(*id);
        let position = pipeline.span.text().map_or(0, |span| span.start);
        PipelineNote { name: pipeline.name.clone(), position, plan: plan.clone() }
    };
    plans.iter().map(note).collect()
}

/// The order of the accesses to each pipeline's stages, for reports.
pub fn sync_notes(whole: &Program, plans: &Pipelines) -> Vec<SyncNote> {
    let mut notes = Vec::new();
    for (id, plan) in plans {
        let pipeline = whole.pipeline(*id);
        let fence = ProxyFence::Shared.spelling();
        let mut note = |what: String, why: &str| {
            let text = format!("stages of `{}`", pipeline.name);
            notes.push(SyncNote {
                text,
                position: pipeline.span.text().map_or(0, |span| span.start),
                what,
                why: why.to_string(),
            });
        };
        match (plan.fences.fence_full, plan.stored) {
            (true, _) => note(
                format!("{fence} before a stage is handed on"),
                "threads fill it, and asynchronous engines read it",
            ),
            (false, true) => note(
                "no fence before a stage is handed on".to_string(),
                "threads fill it, and no asynchronous engine reads it",
            ),
            (false, false) => {}
        }
        match (plan.fences.fence_empty, plan.fences.read) {
            (true, _) if plan.fenced_by_producer() => note(
                format!("{fence} before a stage is filled again, by the thread that starts the copies"),
                "ordinary instructions read it, and tensor copies overwrite it",
            ),
            (true, _) => note(
                format!("{fence} before a stage is given back, by the lane of each warp that arrives"),
                "ordinary instructions read it, and tensor copies of other blocks overwrite it",
            ),
            (false, true) => note(
                "no fence before a stage is given back".to_string(),
                "no asynchronous engine overwrites it",
            ),
            (false, false) => {
                note("no fence before a stage is given back".to_string(), "no ordinary instruction reads it")
            }
        }
    }
    notes
}
