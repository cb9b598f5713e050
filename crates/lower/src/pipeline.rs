//! The stages of pipelines: their barriers, where each side is in its ring, and when a stage is given back.
//!
//! A stage has two mbarriers. The full one ends a phase when its producer has arrived (which it does with the number of bytes that
//! tensor copies bring) and the bytes have landed; the empty one when every warp of every consuming role has given the stage back. Each side keeps the
//! number of its stage and the parity of its phase in registers, and flips the parity when the ring wraps; a fresh empty barrier lets
//! a wait for parity 1 pass, which is how the producer begins.
//!
//! A consumer gives a stage back when its `consume` has ended and no product in flight reads it: at that end, or at the `wait_gemm`
//! that covers the last group of products that reads it, wherever that stands: `release.rs`.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{MbarrierOp, ProxyFence, ScalarOp, SyncOp};
use tilewright_simt::{Address, Builder, Operand, Reg, Special};
use tilewright_synth::{StmtPlan, SyncNote, Synthesis};
use tilewright_tile::{
    Code, Diagnostic, PipelineId, Side, Stmt, StmtKind, SymbolId, Verified, least_iterations,
};

use crate::cluster_reduce::Sum;
use crate::roles::{condition, warp_index};
use crate::scalar::{self, add, int};
use crate::{Lower, internal};
use tilewright_synth::block::proxy::{Accesses, Stages};
use tilewright_synth::block::smem::Places;
use tilewright_synth::block::{Part, walk_part};

/// A pipeline, as all its roles see it.
#[derive(Clone, Debug)]
pub struct Ring {
    pub(crate) stages: u32,
    /// The offset of the full barriers; the empty ones follow.
    pub(crate) at: u32,
    /// Arrivals that end a phase of a full barrier.
    pub(crate) full: u32,
    /// Arrivals that end a phase of an empty barrier.
    pub(crate) empty: u32,
    /// Bytes that tensor copies bring for a stage.
    bytes: u32,
    /// Whether threads write to the stage.
    written: bool,
    /// What orders accesses to the stage through different proxies.
    pub(crate) order: Stages,
    /// Whether a warp's threads meet before one of them releases a stage for all. Where none of them reads it, nor multiplies, a thread
    /// could otherwise fall behind by a phase.
    pub(crate) meets: bool,
    /// Blocks that receive what one block copies, 1 for none.
    pub(crate) blocks: u32,
}

impl Ring {
    /// Whether the fence between what threads have read of a stage and the copies that overwrite it stands with the thread that starts
    /// these, behind its wait. It is the cheaper place: that thread has no loads of its own outstanding, which a fence waits for. A copy
    /// that other blocks start is fenced in the block that reads.
    pub(crate) fn fenced_by_producer(&self) -> bool {
        self.order.fence_empty && self.blocks == 1
    }
}

/// The most bytes that a phase of an mbarrier counts (PTX ISA 9.0, section 9.7.13.15.5).
const MOST_BYTES: u64 = (1 << 20) - 1;

/// The pipelines of a program.
pub type Rings = BTreeMap<PipelineId, Ring>;

/// What a `produce` brings.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Fill {
    bytes: u64,
    written: bool,
    blocks: u32,
}

/// What the statements of a `produce` bring, each done so many times.
fn fill(body: &[Stmt], synthesis: &Synthesis, times: Option<u64>) -> Result<Fill, Diagnostic> {
    let mut all = Fill::default();
    for stmt in body {
        match synthesis.plan(stmt)? {
            StmtPlan::Tma(plan) => {
                let times = times.ok_or_else(|| {
                    let message =
                        "how many tensor copies fill the stage is not known when the kernel is compiled";
                    Diagnostic::new(Code::Unsatisfiable, stmt.span, message).help(
                        "a stage's barrier counts its bytes: let loops in `produce` have constant bounds",
                    )
                })?;
                all.bytes += times * plan.bytes();
                all.blocks = all.blocks.max(plan.multicast.map_or(1, |s| s.blocks));
            }
            StmtPlan::Copy(_) => all.written = true,
            _ => {}
        }
        let rounds = match &stmt.kind {
            StmtKind::For { lo, hi, .. } => {
                lo.as_int().zip(hi.as_int()).map(|(lo, hi)| (hi - lo).max(0) as u64)
            }
            StmtKind::Tiles { .. } => None,
            _ => Some(1),
        };
        let inner = fill(stmt.kind.body(), synthesis, times.zip(rounds).map(|(a, b)| a * b))?;
        all.bytes += inner.bytes;
        all.written |= inner.written;
        all.blocks = all.blocks.max(inner.blocks);
    }
    Ok(all)
}

/// Whether the statements certainly do a product, for which the threads of each warp meet.
fn multiplies(v: &Verified, body: &[Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        StmtKind::GemmAsync { .. } => true,
        StmtKind::For { lo, hi, body, .. } => {
            least_iterations(v.program(), lo, hi) > 0 && multiplies(v, body)
        }
        StmtKind::Stage { body, .. } => multiplies(v, body),
        _ => false,
    })
}

/// What the parts do with each pipeline.
///
/// # Errors
///
/// A stage of which the bytes that fill it are not known.
pub fn rings(
    whole: &Verified,
    parts: &[Part<'_>],
    places: &Places,
    accesses: &Accesses<'_>,
) -> Result<Rings, Diagnostic> {
    let mut rings = Rings::new();
    for (id, at) in &places.barriers {
        let stages = whole.program().pipeline(*id).stages.as_int().unwrap_or(1) as u32;
        let order = accesses.of_stages(&whole.program().pipeline(*id).tensors);
        let ring = Ring {
            stages,
            at: *at,
            full: 1,
            empty: 0,
            bytes: 0,
            written: false,
            order,
            meets: order.read,
            blocks: 1,
        };
        rings.insert(*id, ring);
    }
    for part in parts {
        let mut filled: BTreeMap<PipelineId, Fill> = BTreeMap::new();
        let mut consumed = BTreeSet::new();
        let mut failed = None;
        walk_part(part, &mut |stmt, _, _| {
            if let StmtKind::Stage { pipeline, side, body, .. } = &stmt.kind
                && let Some(ring) = rings.get_mut(pipeline)
            {
                if *side == Side::Consume {
                    ring.meets |= !multiplies(part.verified, body);
                }
                match side {
                    // Every warp of every consuming role releases a stage.
                    Side::Consume if consumed.insert(*pipeline) => {
                        ring.empty += part.verified.threads() / 32;
                    }
                    Side::Consume => {}
                    Side::Produce => match fill(body, part.synthesis, Some(1)) {
                        Ok(brings) if brings.bytes > MOST_BYTES => {
                            let name = &whole.program().pipeline(*pipeline).name;
                            let message = format!(
                                "this `produce` copies {} bytes into a stage of `{name}`, and its barrier counts up to {MOST_BYTES}",
                                brings.bytes
                            );
                            let error = Diagnostic::new(Code::Unsatisfiable, stmt.span, message).help(
                                "copy each part of a stage once; a loop around the copies repeats them",
                            );
                            failed.get_or_insert(error);
                        }
                        Ok(brings) if *filled.entry(*pipeline).or_insert(brings) != brings => {
                            let name = &whole.program().pipeline(*pipeline).name;
                            let message =
                                format!("this `produce` fills a stage of `{name}` otherwise than another");
                            let error = Diagnostic::new(Code::Unsatisfiable, stmt.span, message)
                                .help("a pipeline's barriers count the same bytes for every stage: copy the same tiles by the same means");
                            failed.get_or_insert(error);
                        }
                        Ok(_) => {}
                        Err(error) => {
                            failed.get_or_insert(error);
                        }
                    },
                }
            }
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        for (id, brings) in filled {
            let Some(ring) = rings.get_mut(&id) else { continue };
            ring.bytes = u32::try_from(brings.bytes).unwrap_or(u32::MAX);
            // A stage that nothing is copied to is handed on by all threads of the role.
            ring.written = brings.written || brings.bytes == 0;
            ring.blocks = brings.blocks.max(1);
            ring.full = if ring.written { part.verified.threads() } else { 1 };
        }
    }
    for ring in rings.values_mut() {
        ring.empty *= ring.blocks;
    }
    Ok(rings)
}

/// What orders the accesses to each pipeline's stages, for reports.
pub fn notes(whole: &Verified, rings: &Rings) -> Vec<SyncNote> {
    let mut notes = Vec::new();
    for (id, ring) in rings {
        let pipeline = whole.program().pipeline(*id);
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
        let order = ring.order;
        match (order.fence_full, ring.written) {
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
        match (order.fence_empty, order.read) {
            (true, _) if ring.fenced_by_producer() => note(
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

/// Makes the barriers of pipelines and sums, and has every thread wait until they are there.
pub fn prologue(b: &mut Builder, rings: &Rings, sums: &[Option<Sum>]) {
    if rings.is_empty() && sums.iter().all(Option::is_none) {
        return;
    }
    b.set_origin("the barriers of pipelines");
    let warp = warp_index(b);
    let base = Operand::Value(b.special(Special::SharedBase));
    let elected = b.elect();
    let first = condition(b, ScalarOp::EqI32, warp, int(0));
    let mine = first.map(|first| b.scalar(ScalarOp::AndPred, &[first.into(), elected.into()]));
    if let Some(Operand::Value(mine)) = mine {
        b.open_branch();
        for ring in rings.values() {
            for stage in 0..ring.stages {
                for (at, count) in [(ring.at, ring.full), (ring.at + 8 * ring.stages, ring.empty)] {
                    let address = Address { base, offset: (at + 8 * stage) as i32 };
                    b.mbarrier(MbarrierOp::Init, address, int(i64::from(count)));
                }
            }
        }
        for sum in sums.iter().flatten() {
            for at in [sum.place.barriers, sum.place.barriers + 8] {
                let address = Address { base, offset: at as i32 };
                b.mbarrier(MbarrierOp::Init, address, int(i64::from(sum.arrivals)));
            }
        }
        b.sync(SyncOp::FenceMbarrierInit);
        b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
        b.close_branch(mine);
    }
    let shared = rings.values().any(|ring| ring.blocks > 1) || sums.iter().any(Option::is_some);
    b.sync(if shared { SyncOp::ClusterBarrier } else { SyncOp::Barrier });
}
impl Lower<'_> {
    /// The barrier of a stage.
    pub(crate) fn barrier(&mut self, ring: &Ring, empty: bool, slot: Operand) -> Address {
        let base = self.shared_base();
        let offset = scalar::scale(&mut self.b, slot, 8);
        let base = add(&mut self.b, base, offset);
        Address { base, offset: (ring.at + if empty { 8 * ring.stages } else { 0 }) as i32 }
    }

    /// Moves a stage's number on; the parity, if there is one, flips when the ring wraps.
    pub(crate) fn advance(&mut self, ring: &Ring, slot: Reg, parity: Option<Reg>) {
        let now = self.b.read(slot);
        let next = add(&mut self.b, now, int(1));
        let Some(wraps) = condition(&mut self.b, ScalarOp::EqI32, next, int(i64::from(ring.stages))) else {
            return;
        };
        let next = self.b.scalar(ScalarOp::Select, &[int(0), next, wraps.into()]);
        self.b.write(slot, next);
        if let Some(parity) = parity {
            let now = self.b.read(parity);
            let flip = self.b.scalar(ScalarOp::Select, &[int(1), int(0), wraps.into()]);
            let next = self.b.scalar(ScalarOp::XorB32, &[now, flip]);
            self.b.write(parity, next);
        }
    }

    /// `produce` or `consume`.
    pub(crate) fn stage(
        &mut self,
        (id, side): (PipelineId, Side),
        slot_of: Option<SymbolId>,
        body: &[Stmt],
        stmt: &Stmt,
    ) -> Result<(), Diagnostic> {
        let ring = self
            .units
            .rings
            .get(&id)
            .cloned()
            .ok_or_else(|| internal(stmt.span, "a pipeline without barriers"))?;
        let produces = side == Side::Produce;
        let position = self.units.positions.get(&(id, produces)).copied();
        let position = position.ok_or_else(|| internal(stmt.span, "a pipeline without a position"))?;
        // What was in flight before has nothing to do with the stage.
        self.settle(None);
        let hoists = self.b.set_hoisting(true);
        let slot = self.b.read(position.slot());
        let parity = self.b.read(position.parity());
        let waited = self.barrier(&ring, produces, slot);
        let full = self.barrier(&ring, false, slot);
        if produces && !ring.written {
            // Only the thread that starts the copies waits: nothing would keep another one from falling behind by a phase, which
            // a parity does not tell from the one before.
            let (bytes, fences) = (int(i64::from(ring.bytes)), ring.fenced_by_producer());
            self.guarded(self.units.starts, |lower| {
                lower.b.mbarrier(MbarrierOp::Wait, waited, parity);
                if fences {
                    lower.b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
                }
                lower.b.mbarrier(MbarrierOp::ArriveExpect, full, bytes);
            });
        } else {
            self.b.mbarrier(MbarrierOp::Wait, waited, parity);
            if produces && ring.fenced_by_producer() {
                self.guarded(self.units.starts, |lower| {
                    lower.b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
                });
            }
        }
        let outer = self.units.stage.replace((id, side, slot));
        if let Some(symbol) = slot_of {
            self.symbols.insert(symbol, slot);
        }
        self.block(body)?;
        if !produces || ring.written {
            self.settle(None);
            self.fences(stmt.id);
        }
        if produces && ring.written {
            if ring.order.fence_full {
                self.b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            }
            let bytes = int(i64::from(ring.bytes));
            match self.units.starts.filter(|_| ring.bytes > 0) {
                Some(starts) => self.b.branch(
                    starts,
                    |b| b.mbarrier(MbarrierOp::ArriveExpect, full, bytes),
                    |b| b.mbarrier(MbarrierOp::Arrive, full, int(0)),
                ),
                None => self.b.mbarrier(MbarrierOp::Arrive, full, int(0)),
            }
        }
        if !produces {
            if self.leaves(id, body) {
                // What leaves the stage must have left it before it is given back.
                self.b.sync(SyncOp::BulkCommit);
                self.b.sync(SyncOp::BulkWaitRead(0));
            }
            self.end_of_consume(stmt.id, &ring, position, slot);
        }
        self.advance(&ring, position.slot(), Some(position.parity()));
        if let Some(symbol) = slot_of {
            self.symbols.remove(&symbol);
        }
        self.units.stage = outer;
        self.b.set_hoisting(hoists);
        Ok(())
    }

    /// Whether tensor copies read a stage's memory.
    fn leaves(&self, id: PipelineId, body: &[Stmt]) -> bool {
        let tensors = &self.verified.program().pipeline(id).tensors;
        body.iter().any(|stmt| match &stmt.kind {
            StmtKind::CopyAsync { src, how, .. } => how.tensor && tensors.contains(&src.tensor),
            kind => self.leaves(id, kind.body()),
        })
    }
}
