//! The stages of pipelines: their barriers, where each side is in its ring, and when a stage is given back.
//!
//! A stage has two mbarriers. The full one ends a phase when its producer has arrived (which it does with the number of bytes that
//! tensor copies bring) and the bytes have landed; the empty one when every consumer warp has given the stage back. Each side keeps the
//! number of its stage and the parity of its phase in registers, and flips the parity when the ring wraps; a fresh empty barrier lets
//! a wait for parity 1 pass, which is how the producer begins.
//!
//! A consumer gives a stage back when no product in flight reads it: with `wait_gemm(n)` in the `consume`, that of `n` groups ago.
//! What is held back so is given back at the next `wait_gemm(0)`.

use std::collections::BTreeMap;

use tilewright_machine::{MbarrierOp, ProxyFence, ScalarOp, SyncOp};
use tilewright_simt::{Address, ArrayId, Builder, Operand, Reg, Special};
use tilewright_synth::{StmtPlan, SyncNote};
use tilewright_tile::{
    Code, Diagnostic, PipelineId, Side, Span, Stmt, StmtKind, SymbolId, TensorId, Verified,
};

use crate::hopper::{condition, walk_part};
use crate::places::Places;
use crate::proxies::{Accesses, Stages};
use crate::scalar::{self, add, int};
use crate::{Lower, Part, internal};

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
    order: Stages,
    /// Blocks that receive what one block copies, 1 for none.
    pub(crate) blocks: u32,
    /// Stages that a consumer holds back for products in flight.
    lag: u32,
}

/// The pipelines of a program.
pub type Rings = BTreeMap<PipelineId, Ring>;

/// Stages that a `consume` leaves to products in flight, the one that it reads among them.
fn lag(body: &[Stmt], tensors: &[TensorId], stages: u32) -> u32 {
    fn any(body: &[Stmt], test: &impl Fn(&StmtKind) -> bool) -> u32 {
        body.iter().map(|s| u32::from(test(&s.kind)) + any(s.kind.body(), test)).sum()
    }
    /// Groups in flight after the statements, where there were so many before, at most.
    fn after(body: &[Stmt], before: u32) -> u32 {
        body.iter().fold(before, |flight, stmt| match &stmt.kind {
            StmtKind::CommitGemm => flight.saturating_add(1),
            StmtKind::WaitGemm(n) => {
                n.as_int().and_then(|n| u32::try_from(n).ok()).map_or(flight, |n| n.min(flight))
            }
            kind if kind.repeats() => after(kind.body(), after(kind.body(), flight)).max(flight),
            kind => after(kind.body(), flight),
        })
    }
    let reads = |kind: &StmtKind| match kind {
        StmtKind::GemmAsync { a, b, .. } => tensors.contains(&a.tensor) || tensors.contains(&b.tensor),
        _ => false,
    };
    if any(body, &reads) == 0 {
        return 0;
    }
    let commits = any(body, &|kind| matches!(kind, StmtKind::CommitGemm)).max(1);
    after(body, u32::MAX).div_ceil(commits).min(stages)
}

/// What a `produce` brings.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
struct Fill {
    bytes: u64,
    written: bool,
    blocks: u32,
}

/// What the statements of a `produce` bring, each done so many times.
fn fill(body: &[Stmt], plans: &[StmtPlan], next: &mut usize, times: Option<u64>) -> Result<Fill, Diagnostic> {
    let mut all = Fill::default();
    for stmt in body {
        match plans.get(*next) {
            Some(StmtPlan::Tensor(plan)) => {
                let times = times.ok_or_else(|| {
                    let message =
                        "how many tensor copies fill the stage is not known when the kernel is compiled";
                    Diagnostic::new(Code::Unsatisfiable, stmt.span, message).help(
                        "a stage's barrier counts its bytes: let loops in `produce` have constant bounds",
                    )
                })?;
                all.bytes += times * plan.bytes();
                all.blocks = all.blocks.max(plan.share.map_or(1, |s| s.blocks));
            }
            Some(StmtPlan::Copy(_)) => all.written = true,
            _ => {}
        }
        *next += 1;
        let rounds = match &stmt.kind {
            StmtKind::For { lo, hi, .. } => {
                lo.as_int().zip(hi.as_int()).map(|(lo, hi)| (hi - lo).max(0) as u64)
            }
            StmtKind::Tiles { .. } => None,
            _ => Some(1),
        };
        let inner = fill(stmt.kind.body(), plans, next, times.zip(rounds).map(|(a, b)| a * b))?;
        all.bytes += inner.bytes;
        all.written |= inner.written;
        all.blocks = all.blocks.max(inner.blocks);
    }
    Ok(all)
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
        let ring = Ring {
            stages,
            at: *at,
            full: 1,
            empty: 1,
            bytes: 0,
            written: false,
            order: accesses.of_stages(&whole.program().pipeline(*id).tensors),
            blocks: 1,
            lag: 0,
        };
        rings.insert(*id, ring);
    }
    for part in parts {
        let tensors = |id: PipelineId| &whole.program().pipeline(id).tensors;
        let plans = &part.synthesis.statements;
        let mut filled: BTreeMap<PipelineId, Fill> = BTreeMap::new();
        let mut failed = None;
        let mut number = 0;
        walk_part(part, &mut |stmt, _, _| {
            number += 1;
            if let StmtKind::Stage { pipeline, side, body, .. } = &stmt.kind
                && let Some(ring) = rings.get_mut(pipeline)
            {
                match side {
                    Side::Consume => {
                        ring.empty = part.verified.threads() / 32;
                        ring.lag = ring.lag.max(lag(body, tensors(*pipeline), ring.stages));
                    }
                    Side::Produce => match fill(body, plans, &mut number.clone(), Some(1)) {
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
        });
        if let Some(error) = failed {
            return Err(error);
        }
        for (id, brings) in filled {
            let Some(ring) = rings.get_mut(&id) else { continue };
            ring.bytes = u32::try_from(brings.bytes).unwrap_or(u32::MAX);
            ring.written = brings.written;
            ring.blocks = brings.blocks.max(1);
            ring.full = if brings.written { part.verified.threads() } else { 1 };
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
            notes.push(SyncNote { text, position: pipeline.span.start, what, why: why.to_string() });
        };
        let order = ring.order;
        match (order.fence_full, ring.written) {
            (true, _) => note(
                format!("{fence} before a stage is handed on"),
                "threads fill it, and asynchronous units read it",
            ),
            (false, true) => note(
                "no fence before a stage is handed on".to_string(),
                "threads fill it, and no asynchronous unit reads it",
            ),
            (false, false) => {}
        }
        match (order.fence_empty, order.read) {
            (true, _) => note(
                format!("{fence} before a stage is given back, by the lane of each warp that arrives"),
                "ordinary instructions read it, and tensor copies overwrite it",
            ),
            (false, true) => note(
                "no fence before a stage is given back".to_string(),
                "no asynchronous unit overwrites it",
            ),
            (false, false) => {
                note("no fence before a stage is given back".to_string(), "no ordinary instruction reads it")
            }
        }
    }
    notes
}

/// Where a side of a pipeline is: registers for the stage's number and the parity of its phase; a consumer's also for how many stages it
/// holds back and the first of them.
#[derive(Clone, Copy)]
pub(crate) struct Position(pub(crate) ArrayId);

impl Position {
    pub(crate) fn slot(self) -> Reg {
        Reg { array: self.0, index: 0 }
    }
    pub(crate) fn parity(self) -> Reg {
        Reg { array: self.0, index: 1 }
    }
    pub(crate) fn held(self) -> Reg {
        Reg { array: self.0, index: 2 }
    }
    pub(crate) fn oldest(self) -> Reg {
        Reg { array: self.0, index: 3 }
    }
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
    fn advance(&mut self, ring: &Ring, slot: Reg, parity: Option<Reg>) {
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
        (number, span): (usize, Span),
    ) -> Result<(), Diagnostic> {
        let ring = self
            .units
            .rings
            .get(&id)
            .cloned()
            .ok_or_else(|| internal(span, "a pipeline without barriers"))?;
        let produces = side == Side::Produce;
        let position = self.units.positions.get(&(id, produces)).copied();
        let position = position.ok_or_else(|| internal(span, "a pipeline without a position"))?;
        // What was in flight before has nothing to do with the stage.
        self.settle(None);
        let hoists = self.b.set_hoisting(true);
        let slot = self.b.read(position.slot());
        let parity = self.b.read(position.parity());
        let waited = self.barrier(&ring, produces, slot);
        self.b.mbarrier(MbarrierOp::Wait, waited, parity);
        let outer = self.units.stage.replace((id, side, slot));
        if let Some(symbol) = slot_of {
            self.symbols.insert(symbol, slot);
        }
        let full = self.barrier(&ring, false, slot);
        if produces && !ring.written {
            let bytes = int(i64::from(ring.bytes));
            self.guarded(self.units.starts, |lower| lower.b.mbarrier(MbarrierOp::ArriveExpect, full, bytes));
        }
        self.block(body)?;
        if !produces || ring.written {
            self.settle(None);
            self.fences(number);
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
            let leaves = body.iter().any(|stmt| {
                matches!(&stmt.kind,
                StmtKind::CopyAsync { src, how, .. } if how.tensor && self.of_pipeline(id, src.tensor))
            });
            if leaves {
                // What leaves the stage must have left it before it is given back.
                self.b.sync(SyncOp::BulkCommit);
                self.b.sync(SyncOp::BulkWaitRead(0));
            }
            let tensors = &self.verified.program().pipeline(id).tensors;
            let hold = lag(body, tensors, ring.stages);
            if ring.lag == 0 {
                self.give_back(&ring, slot);
            } else {
                let held = self.b.read(position.held());
                let held = add(&mut self.b, held, int(1));
                self.b.write(position.held(), held);
                for keep in (hold..=ring.lag).rev() {
                    self.give_back_older(&ring, position, keep);
                }
            }
        }
        self.advance(&ring, position.slot(), Some(position.parity()));
        if let Some(symbol) = slot_of {
            self.symbols.remove(&symbol);
        }
        self.units.stage = outer;
        self.b.set_hoisting(hoists);
        Ok(())
    }

    fn of_pipeline(&self, id: PipelineId, tensor: TensorId) -> bool {
        self.verified.program().pipeline(id).tensors.contains(&tensor)
    }

    /// Gives the oldest stage back where more than `hold` are held.
    fn give_back_older(&mut self, ring: &Ring, position: Position, hold: u32) {
        let held = self.b.read(position.held());
        let Some(more) = condition(&mut self.b, ScalarOp::GeI32, held, int(i64::from(hold) + 1)) else {
            return;
        };
        let oldest = self.b.read(position.oldest());
        self.guarded(Some(more), |lower| {
            lower.give_back(ring, oldest);
            lower.advance(ring, position.oldest(), None);
            let fewer = add(&mut lower.b, held, int(-1));
            lower.b.write(position.held(), fewer);
        });
    }

    /// One arrival of the warp at the empty barrier of a stage, in every block that fills it.
    fn give_back(&mut self, ring: &Ring, slot: Operand) {
        if ring.order.read {
            self.b.sync(SyncOp::WarpBarrier);
        }
        // The lane that arrives knows, behind the barrier, of its warp's reads: its fence orders them all.
        let fences = ring.order.fence_empty;
        let fence = |b: &mut Builder| {
            if fences {
                b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            }
        };
        let at = self.barrier(ring, true, slot);
        if ring.blocks > 1 {
            let thread = Operand::Value(self.b.special(Special::ThreadIndex));
            let lane = self.b.scalar(ScalarOp::AndB32, &[thread, int(31)]);
            let tells = condition(&mut self.b, ScalarOp::LtI32, lane, int(i64::from(ring.blocks)));
            let here = add(&mut self.b, at.base, int(i64::from(at.offset)));
            let there = self.b.scalar(ScalarOp::Mapa, &[here, lane]);
            self.guarded(tells, |lower| {
                let address = Address { base: there, offset: 0 };
                fence(&mut lower.b);
                lower.b.mbarrier(MbarrierOp::ArrivePeer, address, int(0));
            });
        } else {
            let elected = self.units.elected;
            self.guarded(elected, |lower| {
                fence(&mut lower.b);
                lower.b.mbarrier(MbarrierOp::Arrive, at, int(0));
            });
        }
    }

    /// `wait_gemm(n)`: the stages that products read which are now complete are given back, but for those of the stage at hand.
    pub(crate) fn wait_gemm(&mut self, groups: u32) {
        self.b.sync(SyncOp::WgmmaWait(groups));
        if self.units.stage.is_some() {
            return;
        }
        for ((id, produces), position) in self.units.positions.clone() {
            let Some(ring) = self.units.rings.get(&id).cloned() else { continue };
            if produces || ring.lag == 0 {
                continue;
            }
            for keep in (groups.min(ring.lag)..ring.lag).rev() {
                self.give_back_older(&ring, position, keep);
            }
        }
    }
}
