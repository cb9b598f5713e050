//! The stages of pipelines: their barriers, where each side is in its ring, and when a stage is given back.
//!
//! A stage has two mbarriers. The full one ends a phase when its producer has arrived (which it does with the number of bytes that
//! tensor copies bring) and the bytes have landed; the empty one when every consumer warp has given the stage back. Each side keeps the
//! number of its stage and the parity of its phase in registers, and flips the parity when the ring wraps; a fresh empty barrier lets
//! a wait for parity 1 pass, which is how the producer begins.
//!
//! A consumer gives a stage back when its `consume` has ended and no product in flight reads it: at that end, or at the `wait_gemm`
//! that covers the last group of products that reads it, wherever that stands. `held.rs` knows how many stages that are at each
//! statement, and what registers have to count.

use std::collections::BTreeMap;

use tilewright_machine::{MbarrierOp, ProxyFence, ScalarOp, SyncOp};
use tilewright_simt::{Address, ArrayId, Builder, Operand, Reg, Special};
use tilewright_synth::{StmtPlan, SyncNote};
use tilewright_tile::{Code, Diagnostic, PipelineId, Side, Span, Stmt, StmtKind, SymbolId, Verified};

use crate::held::{GiveBack, Kept};
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
}

impl Ring {
    /// Whether the fence between what threads have read of a stage and the copies that overwrite it stands with the thread that starts
    /// these, behind its wait. It is the cheaper place: that thread has no loads of its own outstanding, which a fence waits for. A copy
    /// that other blocks start is fenced in the block that reads.
    fn fenced_by_producer(&self) -> bool {
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
        };
        rings.insert(*id, ring);
    }
    for part in parts {
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
                    }
                    Side::Produce => match fill(body, plans, &mut number.clone(), Some(1)) {
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
                "no asynchronous unit overwrites it",
            ),
            (false, false) => {
                note("no fence before a stage is given back".to_string(), "no ordinary instruction reads it")
            }
        }
    }
    notes
}

/// Where a side of a pipeline is: registers for the stage's number and the parity of its phase; a consumer's also for what [`Kept`] says
/// of the stages that it holds back.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    array: ArrayId,
    kept: Kept,
    /// Ages that are told apart.
    ages: u32,
}

impl Position {
    /// Makes the registers of a side, which begins with stage 0.
    pub(crate) fn new(b: &mut Builder, name: String, produces: bool, kept: Kept, ages: u32) -> Position {
        let (kept, ages) = (if produces { Kept::Nothing } else { kept }, ages);
        let registers = match kept {
            Kept::Nothing => 2,
            Kept::Oldest => 3,
            Kept::Count => 4,
            Kept::Ages => 5 + 2 * ages,
        };
        let position = Position { array: b.add_array(name, registers), kept, ages };
        for index in 0..registers {
            let first = Reg { array: position.array, index };
            b.write(first, int(i64::from(produces && first == position.parity())));
        }
        position
    }

    fn reg(self, index: u32) -> Reg {
        Reg { array: self.array, index }
    }
    pub(crate) fn slot(self) -> Reg {
        self.reg(0)
    }
    pub(crate) fn parity(self) -> Reg {
        self.reg(1)
    }
    /// The oldest stage that is held back; the stage at hand where there is none.
    fn oldest(self) -> Reg {
        self.reg(2)
    }
    /// How many are held back.
    fn held(self) -> Reg {
        self.reg(3)
    }
    /// Whether a group in flight reads the stage at hand.
    fn read(self) -> Reg {
        self.reg(4)
    }
    /// For each age how many stages are held back whose last group has it.
    fn held_by_age(self) -> Vec<Reg> {
        (0..self.ages).map(|age| self.reg(5 + age)).collect()
    }
    /// For each age whether the last group that reads the stage at hand has it.
    fn read_by_age(self) -> Vec<Reg> {
        (0..self.ages).map(|age| self.reg(5 + self.ages + age)).collect()
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
            if self.leaves(id, body) {
                // What leaves the stage must have left it before it is given back.
                self.b.sync(SyncOp::BulkCommit);
                self.b.sync(SyncOp::BulkWaitRead(0));
            }
            self.end_of_consume(number, &ring, position, slot);
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

    /// Gives the oldest stage back.
    fn give_back_oldest(&mut self, ring: &Ring, position: Position) {
        let oldest = self.b.read(position.oldest());
        self.give_back(ring, oldest);
        self.advance(ring, position.oldest(), None);
    }

    /// Gives the oldest stage back where more than `keep` are held.
    fn give_back_beyond(&mut self, ring: &Ring, position: Position, keep: u32) {
        let held = self.b.read(position.held());
        let Some(more) = condition(&mut self.b, ScalarOp::GeI32, held, int(i64::from(keep) + 1)) else {
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

    /// Gives back what a statement gives back of each pipeline whose held stages a count tells.
    fn give_back_at(&mut self, statement: usize) {
        for (id, ring, position) in self.consumed() {
            match self.units.held.at(statement, id) {
                GiveBack::Exactly(0) => {}
                GiveBack::Exactly(stages) => {
                    (0..stages).for_each(|_| self.give_back_oldest(&ring, position));
                    if position.kept == Kept::Count {
                        let held = self.b.read(position.held());
                        let left = add(&mut self.b, held, int(-i64::from(stages)));
                        self.b.write(position.held(), left);
                    }
                }
                GiveBack::Above { keep, most } => {
                    (0..most).for_each(|_| self.give_back_beyond(&ring, position, keep));
                }
            }
        }
    }

    /// The pipelines that the part consumes.
    fn consumed(&self) -> Vec<(PipelineId, Ring, Position)> {
        let consumers = self.units.positions.iter().filter(|((_, produces), _)| !produces);
        let with_ring = |((id, _), position): (&(PipelineId, bool), &Position)| {
            Some((*id, self.units.rings.get(id)?.clone(), *position))
        };
        consumers.filter_map(with_ring).collect()
    }

    /// The end of a `consume`, after the wait that may stand there.
    fn end_of_consume(&mut self, statement: usize, ring: &Ring, position: Position, slot: Operand) {
        match position.kept {
            Kept::Nothing => self.give_back(ring, slot),
            Kept::Oldest => {}
            Kept::Count => {
                let held = self.b.read(position.held());
                let held = add(&mut self.b, held, int(1));
                self.b.write(position.held(), held);
            }
            Kept::Ages => self.hold_by_age(ring, position),
        }
        self.give_back_at(statement);
    }

    /// Gives the stage at hand back, where nothing reads it and none is held before it; otherwise holds it back too, with the age of
    /// the last group that reads it or, if there is none, of the stage before.
    fn hold_by_age(&mut self, ring: &Ring, position: Position) {
        let (held, read) = (self.b.read(position.held()), self.b.read(position.read()));
        let either = self.b.scalar(ScalarOp::OrB32, &[held, read]);
        let Some(free) = condition(&mut self.b, ScalarOp::EqI32, either, int(0)) else { return };
        let oldest = self.b.read(position.oldest());
        self.guarded(Some(free), |lower| {
            lower.give_back(ring, oldest);
            lower.advance(ring, position.oldest(), None);
        });
        let more = add(&mut self.b, held, int(1));
        let more = self.b.scalar(ScalarOp::Select, &[int(0), more, free.into()]);
        self.b.write(position.held(), more);
        // 1 as long as the stage has no age.
        let mut ageless = self.b.scalar(ScalarOp::XorB32, &[read, int(1)]);
        for (held, read) in position.held_by_age().into_iter().zip(position.read_by_age()) {
            let (of_age, own) = (self.b.read(held), self.b.read(read));
            let Some(none) = condition(&mut self.b, ScalarOp::EqI32, of_age, int(0)) else { continue };
            let joins = self.b.scalar(ScalarOp::Select, &[int(0), ageless, none.into()]);
            ageless = self.b.scalar(ScalarOp::Select, &[ageless, int(0), none.into()]);
            let sum = add(&mut self.b, of_age, own);
            let sum = add(&mut self.b, sum, joins);
            self.b.write(held, sum);
            self.b.write(read, int(0));
        }
        self.b.write(position.read(), int(0));
    }

    /// One arrival of the warp at the empty barrier of a stage, in every block that fills it.
    fn give_back(&mut self, ring: &Ring, slot: Operand) {
        if ring.order.read {
            self.b.sync(SyncOp::WarpBarrier);
        }
        // The lane that arrives knows, behind the barrier, of its warp's reads: its fence orders them all. Where the copies come from
        // other blocks it stands here, in the block that reads.
        let fences = ring.order.fence_empty && !ring.fenced_by_producer();
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

    /// `commit_gemm()`: the groups before are one older.
    pub(crate) fn commit_gemm(&mut self, statement: usize) {
        self.b.sync(SyncOp::WgmmaCommit);
        for (id, _, position) in self.consumed() {
            if position.kept != Kept::Ages {
                continue;
            }
            let reads = self.units.held.commits(statement, id);
            for (regs, begin) in [(position.held_by_age(), false), (position.read_by_age(), reads)] {
                for pair in regs.windows(2).rev() {
                    let younger = if begin { int(0) } else { self.b.read(pair[0]) };
                    self.b.write(pair[1], younger);
                }
                if let Some(youngest) = regs.first() {
                    self.b.write(*youngest, int(i64::from(begin)));
                }
            }
            if reads {
                self.b.write(position.read(), int(1));
            }
        }
    }

    /// `wait_gemm(n)`: the held stages that only products read which are now complete are given back.
    pub(crate) fn wait_gemm(&mut self, statement: usize, groups: u32) {
        self.b.sync(SyncOp::WgmmaWait(groups));
        self.fences(statement);
        for (_, ring, position) in self.consumed() {
            if position.kept == Kept::Ages {
                self.give_back_by_age(&ring, position, groups as usize);
            }
        }
        self.give_back_at(statement);
    }

    /// Gives back the held stages whose last groups have at least the age `from`.
    fn give_back_by_age(&mut self, ring: &Ring, position: Position, from: usize) {
        let sum = |lower: &mut Self, regs: &[Reg]| {
            regs.iter().fold(int(0), |sum, reg| {
                let more = lower.b.read(*reg);
                add(&mut lower.b, sum, more)
            })
        };
        let (held, read) = (position.held_by_age(), position.read_by_age());
        let from = from.min(held.len());
        let keep = sum(self, &held[..from]);
        let reads = sum(self, &read[..from]);
        self.b.write(position.read(), reads);
        held[from..].iter().chain(&read[from..]).for_each(|reg| self.b.write(*reg, int(0)));
        let all = self.b.read(position.held());
        let free = self.b.scalar(ScalarOp::SubI32, &[all, keep]);
        let counter = self.b.open_loop();
        self.give_back_oldest(ring, position);
        self.b.close_loop(counter, int(0), free, int(1));
        self.b.write(position.held(), keep);
    }
}
