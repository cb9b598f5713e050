//! The state of asynchronous operations while a part is lowered, most of it in registers.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{ScalarOp, SyncOp};
use tilewright_simt::{ArrayId, Builder, Operand, Reg, Special, Value};
use tilewright_synth::block::pipeline::Pipelines;
use tilewright_synth::block::release::Tracking;
use tilewright_synth::block::role::{ClusterReducePlan, RegisterBudget, RolePlan};
use tilewright_tile::core::{Program, Role};
use tilewright_tile::{PipelineId, Side, SymbolId, TensorId};

use crate::scalar::{condition, int, value, warp_index};

/// A thread's place in its block.
#[derive(Clone, Copy)]
pub struct Warp {
    /// The number of its warp.
    pub index: Operand,
    /// True in the elected lane of each warp.
    pub elected: Value,
}

impl Warp {
    /// Elects a lane of each warp.
    pub fn elect(b: &mut Builder) -> Warp {
        Warp { index: warp_index(b), elected: b.elect() }
    }

    /// True in the elected lane of this warp.
    pub fn leads(self, b: &mut Builder, warp: u32) -> Option<Value> {
        let here = condition(b, ScalarOp::EqI32, self.index, int(i64::from(warp)))?;
        value(b.scalar(ScalarOp::AndPred, &[here.into(), self.elected.into()]))
    }
}

/// The place of a side in its ring: registers for the stage's number and the parity of its phase; a consumer's also for what [`Tracking`]
/// says of its unreleased stages.
#[derive(Clone, Copy)]
pub struct Position {
    array: ArrayId,
    pub(crate) tracking: Tracking,
    /// Ages that are told apart.
    ages: u32,
    /// Stages that a producer fills before it hands one on.
    pub(crate) late: u32,
}

impl Position {
    /// Makes the registers of a side, which begins with stage 0.
    pub(crate) fn new(
        b: &mut Builder,
        name: String,
        produces: bool,
        (tracking, ages): (Tracking, u32),
        late: u32,
    ) -> Position {
        let tracking = if produces { Tracking::Immediate } else { tracking };
        let late = if produces { late } else { 0 };
        let registers = match tracking {
            Tracking::Immediate if late > 0 => 3,
            Tracking::Immediate => 2,
            Tracking::Oldest => 3,
            Tracking::Count => 4,
            Tracking::ByAge => 5 + 2 * ages,
        };
        let position = Position { array: b.add_array(name, registers), tracking, ages, late };
        for index in 0..registers {
            let first = Reg { array: position.array, index };
            b.write(first, int(i64::from(produces && first == position.parity())));
        }
        position
    }

    fn reg(self, index: u32) -> Reg {
        Reg { array: self.array, index }
    }

    /// The number of the stage.
    pub(crate) fn slot(self) -> Reg {
        self.reg(0)
    }

    /// The parity of its phase.
    pub(crate) fn parity(self) -> Reg {
        self.reg(1)
    }

    /// The number of stages that a producer has filled and not handed on.
    pub(crate) fn filled(self) -> Reg {
        self.reg(2)
    }

    /// The oldest unreleased stage; the current one if there is none.
    pub(crate) fn oldest(self) -> Reg {
        self.reg(2)
    }

    /// The number of unreleased stages.
    pub(crate) fn unreleased(self) -> Reg {
        self.reg(3)
    }

    /// 1 if a group in flight reads the current stage.
    pub(crate) fn read(self) -> Reg {
        self.reg(4)
    }

    /// The numbers of unreleased stages by the age of the last group that reads them.
    pub(crate) fn unreleased_by_age(self) -> Vec<Reg> {
        (0..self.ages).map(|age| self.reg(5 + age)).collect()
    }

    /// 1 for the age of the last group that reads the current stage.
    pub(crate) fn read_by_age(self) -> Vec<Reg> {
        (0..self.ages).map(|age| self.reg(5 + self.ages + age)).collect()
    }
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
    /// The part's reductions over the cluster, and the parities of their two barriers.
    pub(crate) cluster_reduce: Option<(ClusterReducePlan, [Reg; 2])>,
    /// The registers that hold row and column of the previous iteration's tile.
    pub(crate) previous_tile: BTreeMap<SymbolId, Reg>,
}

impl AsyncState {
    /// Begins a part: its registers, its thread's index, and which of its threads issue copies.
    pub fn new(
        whole: &Program,
        role: Option<&Role>,
        (plan, pipelines): (&RolePlan, &Pipelines),
        warp: Option<Warp>,
        b: &mut Builder,
    ) -> Self {
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
            state.elect(plan, warp, b);
        }
        state.team = role.and_then(|role| team(whole, role, b));
        for (id, side) in &plan.sides {
            let name = &whole.pipeline(*id).name;
            let name = format!("{name}.{}", if *side == Side::Produce { "produced" } else { "consumed" });
            let (tracking, ages) = (plan.release.tracking(*id), plan.release.ages());
            let late = pipelines.get(id).map_or(0, |pipeline| pipeline.hand_over_delay);
            let position = Position::new(b, name, *side == Side::Produce, (tracking, ages), late);
            state.positions.insert((*id, *side), position);
        }
        state.cluster_reduce = plan.cluster_reduce.map(|reduce| {
            let array = b.add_array("cluster_reduce.parities", 2);
            let parities = [0, 1].map(|index| Reg { array, index });
            // Nothing is there to be read at first, and everything has been read.
            b.write(parities[0], int(0));
            b.write(parities[1], int(1));
            (reduce, parities)
        });
        state
    }

    /// Elects a lane of each warp, unless the start has, and of these the one that issues TMA copies.
    fn elect(&mut self, plan: &RolePlan, known: Option<Warp>, b: &mut Builder) {
        let warp = known.unwrap_or_else(|| Warp::elect(b));
        self.warps.1 = warp.index;
        self.elected = Some(warp.elected);
        let issuer = warp.leads(b, plan.first_warp);
        // The even block's thread multiplies for both blocks of a pair.
        let even = if plan.pair { is_even_block(b) } else { None };
        self.tma_issuer = match (issuer, even) {
            (Some(issuer), Some(even)) => value(b.scalar(ScalarOp::AndPred, &[issuer.into(), even.into()])),
            (issuer, _) => issuer,
        };
    }

    /// True if a copy fills a stage.
    pub fn fills_stage(&self) -> bool {
        matches!(self.stage, Some((_, Side::Produce, _)))
    }
}

/// True in the even block of a pair.
pub fn is_even_block(b: &mut Builder) -> Option<Value> {
    let rank = Operand::Value(b.special(Special::ClusterRank));
    let odd = b.scalar(ScalarOp::AndB32, &[rank, int(1)]);
    condition(b, ScalarOp::EqI32, odd, int(0))
}

/// The index of a thread among those of its role, and the barrier of these.
fn team(whole: &Program, role: &Role, b: &mut Builder) -> Option<(Value, SyncOp)> {
    let thread = b.special(Special::ThreadIndex);
    let thread = b.scalar(ScalarOp::SubI32, &[thread.into(), int(i64::from(role.first))]);
    let number = whole.roles().iter().take_while(|r| r.first != role.first).count() as u32;
    Some((value(thread)?, SyncOp::NamedBarrier { id: number + 1, threads: role.threads }))
}
