//! The roles of a program: which threads do what. Each is one side of a branch on the warp's index.
//!
//! # Who does what
//!
//! A tensor copy is started by one thread: the elected one of the role's first warp. A role that does nothing else is that one thread.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{ScalarOp, ShuffleMode, SyncOp, TensorOp};
use tilewright_simt::{Builder, Inst, Operand, Reg, Special, Value};
use tilewright_synth::block::release::Held;
use tilewright_synth::block::{Part, walk_part};
use tilewright_synth::{Facts, StmtPlan};
use tilewright_tile::{Diagnostic, PipelineId, Role, Side, Stmt, StmtKind, SymbolId, TensorId, Verified};

use crate::Lower;
use crate::cluster_reduce::Sum;
use crate::pipeline::Rings;
use crate::release::Position;
use crate::scalar::int;
use crate::tma::Maps;

/// The index of the thread's warp in the block, the same in all its lanes as far as the assembler can see.
pub(crate) fn warp_index(b: &mut Builder) -> Operand {
    let thread = Operand::Value(b.special(Special::ThreadIndex));
    let warp = b.scalar(ScalarOp::ShrU32, &[thread, int(5)]);
    b.shuffle(warp, ShuffleMode::Idx, int(0))
}

/// A condition as a value.
pub(crate) fn condition(b: &mut Builder, op: ScalarOp, x: Operand, y: Operand) -> Option<Value> {
    match b.scalar(op, &[x, y]) {
        Operand::Value(value) => Some(value),
        Operand::Imm(_) => None,
    }
}

/// Puts the roles' bodies side by side: each warp does that of its role.
pub fn roles(b: &mut Builder, mut bodies: Vec<(Role<'_>, Vec<Inst>)>) {
    let Some((_, last)) = bodies.pop() else { return };
    b.set_origin("the roles of warpgroups");
    let warp = warp_index(b);
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

/// What a part needs for asynchronous engines.
pub struct Units<'a> {
    pub(crate) rings: &'a Rings,
    /// The tensor maps so far.
    pub maps: Maps,
    /// Which stages products in flight hold back.
    pub(crate) held: Held,
    pub(crate) positions: BTreeMap<(PipelineId, bool), Position>,
    /// The stage that is being filled or read.
    pub(crate) stage: Option<(PipelineId, Side, Operand)>,
    /// The part's first warp in the block, and its warp's index.
    pub(crate) warps: (u32, Operand),
    /// Whether this lane is the elected one of its warp.
    pub(crate) elected: Option<Value>,
    /// Whether this thread starts tensor copies; `None` where only one thread is here.
    pub(crate) starts: Option<Value>,
    /// Whether the part has tensor copies out of shared memory, and asynchronous copies of threads outside stages.
    stores: bool,
    pub(crate) copies: bool,
    /// For each accumulator that a fill starts afresh, a register: 0 while nothing has been added.
    pub(crate) begun: BTreeMap<TensorId, Reg>,
    /// Accumulators whose next product is the first.
    pub(crate) fresh: BTreeSet<TensorId>,
    /// Whether the part does nothing but start tensor copies: one thread does it.
    alone: bool,
    /// How the part sums over the blocks of a cluster, and the parities of the two barriers.
    pub(crate) sum: Option<(Sum, [Reg; 2])>,
    /// The registers of counters that are the row and the column of the previous iteration's tile.
    pub(crate) previous: BTreeMap<SymbolId, Reg>,
}

impl<'a> Units<'a> {
    /// Begins a part: its registers, its thread's index, which of its threads start copies.
    pub fn new(
        whole: &Verified,
        part: &Part<'_>,
        (rings, sum): (&'a Rings, Option<Sum>),
        maps: Maps,
        facts: &Facts<'_>,
        b: &mut Builder,
    ) -> Result<Self, Diagnostic> {
        let (mut stores, mut copies, mut products, mut plain) = (false, false, false, false);
        let mut sides = BTreeSet::new();
        let mut tensors = false;
        walk_part(part, &mut |stmt, plan, stage| match (&stmt.kind, plan) {
            (StmtKind::CopyAsync { .. }, StmtPlan::Tma(plan)) => {
                tensors = true;
                if plan.row.op != TensorOp::Load {
                    (stores, plain) = (true, true);
                }
            }
            (StmtKind::CopyAsync { .. }, _) => {
                plain = true;
                copies |= !matches!(stage, Some((_, Side::Produce)));
            }
            (StmtKind::GemmAsync { .. }, _) => (products, plain) = (true, true),
            (StmtKind::Stage { pipeline, side, .. }, _) => {
                plain |= *side == Side::Consume;
                sides.insert((*pipeline, *side == Side::Produce));
            }
            (
                StmtKind::For { .. }
                | StmtKind::Tiles { .. }
                | StmtKind::Drain { .. }
                | StmtKind::Define(_)
                | StmtKind::Pipeline(_)
                | StmtKind::WaitDependencies
                | StmtKind::LaunchDependents,
                _,
            ) => {}
            _ => plain = true,
        })?;
        let first = part.role.map_or(0, |role| role.first / 32);
        let mut units = Units {
            rings,
            maps,
            held: Held::new(part.verified.program(), facts),
            positions: BTreeMap::new(),
            stage: None,
            warps: (first, int(0)),
            elected: None,
            starts: None,
            stores,
            copies,
            begun: BTreeMap::new(),
            fresh: BTreeSet::new(),
            alone: false,
            sum: None,
            previous: BTreeMap::new(),
        };
        if let Some(role) = part.role {
            b.set_origin(format!("warpgroup {}", role.name));
            let own = whole.roles().iter().map(|r| r.registers).collect::<Option<Vec<u32>>>();
            let limits = b.arch().limits();
            let entry = limits.registers_of_a_thread(whole.threads());
            if let (Some(registers), Some(_)) = (role.registers, own)
                && registers != entry
            {
                b.sync(SyncOp::SetMaxRegisters { more: registers > entry, registers });
            }
        }
        let asynchronous = tensors || !sides.is_empty() || products;
        if asynchronous {
            let warp = warp_index(b);
            units.warps.1 = warp;
            let elected = b.elect();
            units.elected = Some(elected);
            units.starts = condition(b, ScalarOp::EqI32, warp, int(i64::from(first)))
                .map(|mine| b.scalar(ScalarOp::AndPred, &[mine.into(), elected.into()]))
                .and_then(|both| if let Operand::Value(value) = both { Some(value) } else { None });
        }
        if let Some(role) = part.role {
            let thread = b.special(Special::ThreadIndex);
            let own = b.scalar(ScalarOp::SubI32, &[thread.into(), int(i64::from(role.first))]);
            let index = whole.roles().iter().position(|r| r.first == role.first).unwrap_or(0) as u32;
            let barrier = SyncOp::NamedBarrier { id: index + 1, threads: role.threads };
            if let Operand::Value(own) = own {
                b.set_team(Some((own, barrier)));
            }
        }
        for (id, produces) in sides {
            let name = &whole.program().pipeline(id).name;
            let side = if produces { "produced" } else { "consumed" };
            let (kept, ages) = (units.held.kept(id), units.held.ages());
            let position = Position::new(b, format!("{name}.{side}"), produces, kept, ages);
            units.positions.insert((id, produces), position);
        }
        units.sum = sum.map(|sum| {
            let array = b.add_array("sum.parities", 2);
            let parities = [0, 1].map(|index| Reg { array, index });
            // Nothing is there to be read at first, and everything has been read.
            b.write(parities[0], int(0));
            b.write(parities[1], int(1));
            (sum, parities)
        });
        units.alone = !plain && tensors && part.role.is_some();
        Ok(units)
    }

    /// Whether what is copied fills a stage.
    pub fn fills_stage(&self) -> bool {
        matches!(self.stage, Some((_, Side::Produce, _)))
    }

    /// Closes a group of copies.
    pub fn commit(&self, b: &mut Builder) {
        if self.copies || !self.stores {
            b.sync(SyncOp::AsyncCommit);
        }
        if self.stores {
            b.sync(SyncOp::BulkCommit);
        }
    }

    /// Waits for groups of copies; of tensor copies to global memory for their `writes` too.
    pub fn wait(&self, b: &mut Builder, groups: u32, writes: bool) {
        if self.copies || !self.stores {
            b.sync(SyncOp::AsyncWaitGroup(groups));
        }
        if self.stores {
            b.sync(if writes { SyncOp::BulkWait(groups) } else { SyncOp::BulkWaitRead(groups) });
        }
    }
}

impl Lower<'_> {
    /// The whole of a part.
    pub(crate) fn part(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        if self.units.alone {
            return self.alone(|lower| lower.block(body));
        }
        self.block(body)?;
        if self.units.stores {
            // Shared memory must outlive the copies that read it.
            self.b.sync(SyncOp::BulkWaitRead(0));
        }
        let shared = self.units.rings.values().any(|ring| ring.blocks > 1);
        if shared || self.units.sum.is_some() {
            // A block must not end while its peers may still reach its memory.
            self.b.sync(SyncOp::ClusterBarrier);
        }
        Ok(())
    }

    /// Does something with the one thread that starts tensor copies.
    fn alone(&mut self, body: impl FnOnce(&mut Self) -> Result<(), Diagnostic>) -> Result<(), Diagnostic> {
        let Some(starts) = self.units.starts.take() else { return body(self) };
        self.b.open_branch();
        let floor = self.b.floor_here();
        let result = body(self);
        self.b.set_floor(floor);
        self.b.close_branch(starts);
        self.units.starts = Some(starts);
        result
    }

    pub(crate) fn shared_base(&mut self) -> Operand {
        Operand::Value(self.b.special(Special::SharedBase))
    }

    /// Does something where a condition holds, if there is one.
    pub(crate) fn guarded(&mut self, condition: Option<Value>, body: impl FnOnce(&mut Self)) {
        match condition {
            None => body(self),
            Some(condition) => {
                self.b.open_branch();
                let floor = self.b.floor_here();
                body(self);
                self.b.set_floor(floor);
                self.b.close_branch(condition);
            }
        }
    }
}
