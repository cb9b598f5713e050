//! The roles of a program: which threads do what. Each is one side of a branch on the warp's index.
//!
//! # Who does what
//!
//! A tensor copy is started by one thread: the elected one of the role's first warp. A role that does nothing else is that one thread.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{ScalarOp, ShuffleMode, SyncOp};
use tilewright_simt::{Build, Builder, Inst, Operand, Reg, Special, Value};
use tilewright_synth::block::role::{ClusterReducePlan, RegisterBudget, RolePlan};
use tilewright_tile::core::{Program, Role, Stmt};
use tilewright_tile::{Diagnostic, PipelineId, Side, SymbolId, TensorId};

use crate::Lower;
use crate::release::Position;
use crate::scalar::int;

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
pub fn roles(b: &mut Builder, mut bodies: Vec<(&Role, Vec<Inst>)>) {
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

/// The state of asynchronous operations while a part is lowered.
pub struct AsyncState {
    /// The threads of a role, with their barrier.
    pub(crate) team: Option<(Value, SyncOp)>,
    /// The registers of the sides of pipelines.
    pub(crate) positions: BTreeMap<(PipelineId, Side), Position>,
    /// The stage that is being filled or read.
    pub(crate) stage: Option<(PipelineId, Side, Operand)>,
    /// The thread's warp, counted from the part's first.
    pub(crate) warps: (u32, Operand),
    /// True in the elected lane of each warp.
    pub(crate) elected: Option<Value>,
    /// True in the thread that issues TMA copies; `None` where only one thread is active.
    pub(crate) tma_issuer: Option<Value>,
    /// For each accumulator that a fill with zero leaves to its products a register: 0 until the first has been issued.
    pub(crate) accumulate: BTreeMap<TensorId, Reg>,
    /// Accumulators whose next product is the first: it overwrites them.
    pub(crate) zero_init: BTreeSet<TensorId>,
    /// The part's sums over the cluster, and the parities of their two barriers.
    pub(crate) cluster_reduce: Option<(ClusterReducePlan, [Reg; 2])>,
    /// The registers that hold row and column of the previous iteration's tile.
    pub(crate) previous_tile: BTreeMap<SymbolId, Reg>,
}

impl AsyncState {
    /// Begins a part: its registers, its thread's index, and which of its threads issue copies.
    pub fn new(whole: &Program, role: Option<&Role>, plan: &RolePlan, b: &mut Builder) -> Self {
        let mut state = AsyncState {
            team: None,
            positions: BTreeMap::new(),
            stage: None,
            warps: (plan.first_warp, int(0)),
            elected: None,
            tma_issuer: None,
            accumulate: BTreeMap::new(),
            zero_init: BTreeSet::new(),
            cluster_reduce: None,
            previous_tile: BTreeMap::new(),
        };
        if let Some(role) = role {
            b.set_origin(format!("warpgroup {}", role.name));
        }
        if let Some(RegisterBudget { registers, more }) = plan.registers {
            b.sync(SyncOp::SetMaxRegisters { more, registers });
        }
        if plan.elects {
            state.elect(plan, b);
        }
        state.team = role.and_then(|role| team(whole, role, b));
        for (id, side) in &plan.sides {
            let name = &whole.pipeline(*id).name;
            let name = format!("{name}.{}", if *side == Side::Produce { "produced" } else { "consumed" });
            let (tracking, ages) = (plan.release.tracking(*id), plan.release.ages());
            let position = Position::new(b, name, *side == Side::Produce, tracking, ages);
            state.positions.insert((*id, *side), position);
        }
        state.cluster_reduce = plan.cluster_reduce.map(|reduce| {
            let array = b.add_array("sum.parities", 2);
            let parities = [0, 1].map(|index| Reg { array, index });
            // Nothing is there to be read at first, and everything has been read.
            b.write(parities[0], int(0));
            b.write(parities[1], int(1));
            (reduce, parities)
        });
        state
    }

    /// Elects a lane of each warp, and of these the one that issues TMA copies.
    fn elect(&mut self, plan: &RolePlan, b: &mut Builder) {
        let warp = warp_index(b);
        self.warps.1 = warp;
        let elected = b.elect();
        self.elected = Some(elected);
        let first = condition(b, ScalarOp::EqI32, warp, int(i64::from(plan.first_warp)));
        let issuer = first.map(|first| b.scalar(ScalarOp::AndPred, &[first.into(), elected.into()]));
        self.tma_issuer = match issuer {
            Some(Operand::Value(issuer)) => Some(issuer),
            _ => None,
        };
    }

    /// Whether a copy fills a stage.
    pub fn fills_stage(&self) -> bool {
        matches!(self.stage, Some((_, Side::Produce, _)))
    }
}

/// The index of a thread among those of its role, and the barrier of these.
fn team(whole: &Program, role: &Role, b: &mut Builder) -> Option<(Value, SyncOp)> {
    let thread = b.special(Special::ThreadIndex);
    let thread = b.scalar(ScalarOp::SubI32, &[thread.into(), int(i64::from(role.first))]);
    let number = whole.roles().iter().take_while(|r| r.first != role.first).count() as u32;
    match thread {
        Operand::Value(thread) => {
            Some((thread, SyncOp::NamedBarrier { id: number + 1, threads: role.threads }))
        }
        Operand::Imm(_) => None,
    }
}

impl Lower<'_> {
    /// The whole of a part.
    pub(crate) fn part(&mut self, body: &[Stmt]) -> Result<(), Diagnostic> {
        if self.role.single_thread {
            return self.by_issuer(|lower| lower.block(body));
        }
        self.block(body)?;
        if self.role.stores {
            // Shared memory must outlive the copies that read it.
            self.b.sync(SyncOp::BulkWaitRead(0));
        }
        if self.role.ends_with_cluster {
            // A block must not end while its peers may still reach its memory.
            self.b.sync(SyncOp::ClusterBarrier);
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

    pub(crate) fn shared_base(&mut self) -> Operand {
        Operand::Value(self.b.special(Special::SharedBase))
    }

    /// Does something where a condition holds, if there is one.
    pub(crate) fn guarded(&mut self, condition: Option<Value>, body: impl FnOnce(&mut Self)) {
        match condition {
            None => body(self),
            Some(condition) => self.only_where(condition, body),
        }
    }

    /// Two conditions of which either may be missing.
    pub(crate) fn both(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        let (Some(x), Some(y)) = (a, b) else { return a.or(b) };
        match self.b.scalar(ScalarOp::AndPred, &[x.into(), y.into()]) {
            Operand::Value(both) => Some(both),
            Operand::Imm(_) => None,
        }
    }
}
