//! The cost model (Hexcute, section VI): an estimate of a kernel's cycles from what was decided for each statement.
//!
//! Every warp issues its statements in order. A statement occupies a unit of the multiprocessor for a while (its *busy*
//! time), and its results are there some cycles after (its *latency*). What is in flight overlaps with what follows, until a
//! statement reads it, waits for it, or wants a unit that another warp occupies. A statement that reads what another is
//! still producing begins when the first part is there, and ends no earlier than the last part allows. A loop is run for a few
//! rounds and the last round is taken for all that follow.
//!
//! Several blocks are resident on a multiprocessor, as many as shared memory, registers and threads allow; a few of them are
//! followed together. The grid runs in waves of them, and no wave is shorter than the work of its busiest unit; the last wave has the blocks
//! that are left (`cost/waves.rs`).

use rustc_hash::FxHashMap as HashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use serde::Serialize;
use tilewright_machine::{Class, Memory, Rate, TensorOp, Timing, Unit};
use tilewright_tile::core::{Program, Stmt, StmtKind};
use tilewright_tile::{
    Axis, BinaryOp, Compute, ElemExpr, Expr, ParamId, PipelineId, Rounded, Scope, Side, StmtId, StmtMap,
    SymbolId, TensorId, UnaryOp, rounded,
};

mod roles;
mod waves;

pub use roles::together;
pub use waves::estimate;
use waves::{Waves, blocks};

use crate::access::busy_warps;
use crate::cast;
use crate::movement::HALVES;
use crate::plan::{CopyPlan, StmtPlan};
use crate::tv::TvLayout;

/// The units that the model knows, all arithmetic in one.
const UNITS: [Unit; 5] = [Unit::Tensor, Unit::Alu, Unit::Lsu, Unit::L2, Unit::Tma];

/// Estimates beyond, which sizes near their limits have, are all the same; sums of them do not overflow.
const MOST_CYCLES: f64 = 1e18;

/// Registers of a thread for scalars and addresses, beside fragments.
const SCALAR_REGISTERS: u32 = 40;
/// Rounds of a loop that are gone through; the last stands for those that follow.
const ROUNDS: i64 = 4;
/// Cycles of the load/store unit for one call, besides those for what it moves: addresses are issued with it.
const CALL: f64 = 0.25;
/// The same for a call to global memory, which computes an address and mostly a guard.
const GLOBAL_CALL: f64 = 4.0;
/// Resident blocks that are followed together.
const FOLLOWED: i64 = 3;
/// Cycles between launch and the first instruction, and between the last and the next wave.
const WAVE: f64 = 700.0;

/// The work that one statement asks of the machine.
struct Work {
    unit: Unit,
    /// Cycles for which a warp occupies the unit.
    busy: f64,
    /// Cycles for which it occupies the way to global memory besides.
    global: f64,
    /// Cycles from the last issue to the last result.
    latency: f64,
    /// Results come at a later wait.
    asynchronous: bool,
    /// Barriers within the statement.
    barriers: u32,
}

/// The work of a statement, and the tensors that it waits for and makes.
struct Issued {
    work: Work,
    reads: Vec<TensorId>,
    writes: Vec<TensorId>,
}

/// The work of the statements that were gone through: the plans decide it, whatever the iteration.
type IssuedOnce = RefCell<HashMap<StmtId, Option<Rc<Issued>>>>;

/// An estimate.
#[derive(Clone, Debug, PartialEq, Serialize, Default)]
pub struct Estimate {
    /// Cycles of the kernel at the sizes that it was estimated for.
    pub cycles: u64,
    /// Of one block alone.
    pub block_cycles: u64,
    /// For each unit the cycles that one block occupies it.
    pub busy: Vec<(&'static str, u64)>,
    /// Blocks that are resident on one multiprocessor at a time.
    pub resident: u32,
    /// Waves of resident blocks.
    pub waves: u64,
    /// The bound: a unit, or `latency`.
    pub bound: &'static str,
    /// Stages of pipelines, as a block fills or uses them.
    #[serde(skip)]
    stages: Vec<StageUse>,
    /// Blocks of the grid.
    #[serde(skip)]
    blocks: i64,
    /// Cycles that device memory takes at least.
    #[serde(skip)]
    memory: f64,
}

/// Stages of a pipeline, as the block's role fills or uses them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct StageUse {
    pipeline: PipelineId,
    side: Side,
    /// The number of times.
    times: f64,
    /// Cycles from the first instruction to the last result, of the last that was gone through.
    cycles: f64,
}

/// A program with what was decided for it.
pub struct Problem<'a> {
    /// The program.
    pub verified: &'a Program,
    /// The table of the architecture.
    pub timing: &'a Timing,
    /// The plan of every statement.
    pub plans: &'a StmtMap<StmtPlan>,
    /// Of copies of shared tensors, wavefronts of the whole block.
    pub wavefronts: &'a StmtMap<u32>,
    /// The layout of each register tensor.
    pub register: &'a dyn Fn(TensorId) -> Option<TvLayout>,
    /// Values of the run-time sizes.
    pub size: &'a dyn Fn(SymbolId) -> Option<i64>,
    /// Fragment registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Counts what estimates take: one for each warp of a statement that is gone through.
    pub steps: &'a Cell<u64>,
}

/// Sizes, the block at the origin, loop counters at their first value, and elements of tensors as 0.
struct At<'a, 'b> {
    problem: &'a Problem<'b>,
    counters: Option<&'a HashMap<SymbolId, i64>>,
}

impl Scope for At<'_, '_> {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.counters.and_then(|counters| counters.get(&id).copied()).or_else(|| (self.problem.size)(id))
    }

    fn block(&self, _: Axis) -> Option<i64> {
        Some(0)
    }

    fn element(&self, _: ParamId, _: &[i64]) -> Option<i64> {
        Some(0)
    }

    fn scalar(&self, param: ParamId) -> Option<i64> {
        self.problem.verified.param(param).integer()
    }
}

/// The cycles at which a tensor's values are there for a warp: the first, the last.
type Ready = (f64, f64);

/// A warp of a resident block.
#[derive(Clone, Default)]
struct Warp {
    now: f64,
    ready: HashMap<TensorId, Ready>,
    /// Asynchronous copies that the compiler waits for, and those of the group that is open: the tensor and when it lands.
    settled: Vec<(TensorId, f64)>,
    open: Vec<(TensorId, f64)>,
    /// Those of the closed groups.
    groups: Vec<Vec<(TensorId, f64)>>,
}

impl Warp {
    fn shift(&mut self, by: f64) {
        self.now += by;
        self.ready.values_mut().for_each(|(a, b)| {
            *a += by;
            *b += by;
        });
        let copies = self.groups.iter_mut().flatten().chain(&mut self.settled).chain(&mut self.open);
        copies.for_each(|(_, t)| *t += by);
    }

    fn land(&mut self, copies: Vec<(TensorId, f64)>) {
        for (tensor, at) in copies {
            self.now = self.now.max(at);
            self.ready.insert(tensor, (at, at));
        }
    }

    /// Lands all closed groups but the last `keep`.
    fn wait(&mut self, keep: usize) {
        let landing = self.groups.len().saturating_sub(keep);
        let copies = self.groups.drain(..landing).flatten().collect();
        self.land(copies);
    }

    /// Lands the copies that the compiler waits for.
    fn settle(&mut self) {
        let copies = std::mem::take(&mut self.settled);
        self.land(copies);
    }
}

/// The multiprocessor with the warps of its resident blocks.
struct Clock<'a, 'b> {
    problem: &'a Problem<'b>,
    issued: &'a IssuedOnce,
    /// Warps of a block, and all of them.
    per_block: usize,
    warps: Vec<Warp>,
    /// The cycle at which each unit is free; of tensor cores and arithmetic there is one a scheduler.
    free: HashMap<(Unit, usize), f64>,
    /// Cycles for which each unit is occupied, in all.
    busy: HashMap<Unit, f64>,
    counters: HashMap<SymbolId, i64>,
    /// The number of times that the next statement runs.
    times: f64,
    stages: Vec<StageUse>,
}

impl<'a, 'b> Clock<'a, 'b> {
    fn new(problem: &'a Problem<'b>, issued: &'a IssuedOnce, blocks: usize) -> Self {
        let per_block = (problem.verified.threads() / 32).max(1) as usize;
        Clock {
            problem,
            issued,
            per_block,
            warps: vec![Warp::default(); per_block * blocks],
            free: HashMap::default(),
            busy: HashMap::default(),
            counters: HashMap::default(),
            times: 1.0,
            stages: Vec::new(),
        }
    }

    fn now(&self) -> f64 {
        self.warps.iter().map(|w| w.now).fold(0.0, f64::max)
    }

    /// The warps of each block go on when its last one has arrived.
    fn barrier(&mut self) {
        let rate = if self.per_block > 4 { Rate::Barrier8 } else { Rate::Barrier4 };
        let cycles = self.problem.timing.rate(rate);
        for block in self.warps.chunks_mut(self.per_block) {
            let last = block.iter().map(|w| w.now).fold(0.0, f64::max) + cycles;
            block.iter_mut().for_each(|w| w.now = last);
        }
    }

    fn block(&mut self, body: &[Stmt]) {
        for stmt in body {
            match &stmt.kind {
                StmtKind::For { counter, lo, hi, body, .. } => self.repeat(*counter, lo, hi, body),
                StmtKind::Tiles { row, col, previous, rows, cols, body, .. } => {
                    let counters = [row, col].into_iter().chain(previous.iter().flatten());
                    self.counters.extend(counters.map(|counter| (*counter, 0)));
                    self.tiles(rows, cols, body);
                }
                StmtKind::Drain { body, .. } => self.block(body),
                // Taken, unless it is known that it is not.
                StmtKind::If { condition, otherwise, body } => {
                    let scope = At { problem: self.problem, counters: Some(&self.counters) };
                    if condition.eval(&scope).map_or(!otherwise, |holds| holds != 0) {
                        self.block(body);
                    }
                }
                // Taken; the vote is an operation on each element of the condition.
                StmtKind::IfAny { body, .. } => {
                    self.statement(stmt);
                    self.block(body);
                }
                StmtKind::Stage { pipeline, side, body, .. } => {
                    self.stage(*pipeline, *side, body);
                }
                kind if kind.is_barrier() => {
                    self.warps.iter_mut().for_each(Warp::settle);
                    self.barrier();
                }
                StmtKind::Commit => {
                    for warp in &mut self.warps {
                        let group = std::mem::take(&mut warp.open);
                        warp.groups.push(group);
                    }
                }
                StmtKind::Wait(keep) => {
                    let keep = usize::try_from(*keep).unwrap_or(0);
                    self.warps.iter_mut().for_each(|w| w.wait(keep));
                }
                _ => self.statement(stmt),
            }
        }
    }

    /// A block's share of tiles: the first stands for all.
    fn tiles(&mut self, rows: &Expr, cols: &Expr, body: &[Stmt]) {
        let scope = At { problem: self.problem, counters: Some(&self.counters) };
        let tiles = rows.eval(&scope).unwrap_or(1).saturating_mul(cols.eval(&scope).unwrap_or(1)).max(1);
        let blocks = blocks(self.problem);
        let each = (tiles / blocks + i64::from(tiles % blocks > 0)) as f64;
        let (before, outer) = (self.now(), self.times);
        self.times = outer * each;
        self.block(body);
        self.times = outer;
        self.advance((self.now() - before) * (each - 1.0));
    }

    /// A stage of a pipeline, which is filled when its copies have landed.
    fn stage(&mut self, pipeline: PipelineId, side: Side, body: &[Stmt]) {
        let before = self.now();
        self.block(body);
        let copies = self.warps.iter().flat_map(|warp| &warp.open);
        let landed = copies.map(|(_, landed)| *landed).filter(|_| side == Side::Produce);
        let cycles = landed.fold(self.now(), f64::max) - before;
        match self.stages.iter_mut().find(|stage| stage.pipeline == pipeline && stage.side == side) {
            Some(stage) => (stage.times, stage.cycles) = (stage.times + self.times, cycles),
            None => self.stages.push(StageUse { pipeline, side, times: self.times, cycles }),
        }
    }

    /// Lets time pass in which what was gone through is done again.
    fn advance(&mut self, by: f64) {
        self.warps.iter_mut().for_each(|w| w.shift(by));
        self.free.values_mut().for_each(|t| *t += by);
    }

    fn repeat(&mut self, counter: SymbolId, lo: &Expr, hi: &Expr, body: &[Stmt]) {
        let scope = At { problem: self.problem, counters: Some(&self.counters) };
        let (lo, hi) = (lo.eval(&scope).unwrap_or(0), hi.eval(&scope).unwrap_or(1));
        let trips = (hi - lo).max(0);
        let outer = self.times;
        let rounds = trips.min(ROUNDS);
        let mut last = 0.0;
        for round in 0..rounds {
            self.counters.insert(counter, lo + round);
            // The last round stands for those that are not gone through.
            let stands_for = if round + 1 == rounds { trips - rounds + 1 } else { 1 };
            self.times = outer * stands_for as f64;
            let before = self.now();
            self.block(body);
            last = self.now() - before;
        }
        if trips > rounds {
            self.advance(last * (trips - rounds) as f64);
        }
        self.times = outer;
        self.counters.remove(&counter);
    }

    /// The work of a statement, if it has any.
    fn issued(&self, stmt: &Stmt) -> Option<Rc<Issued>> {
        let known = self.issued.borrow().get(&stmt.id).cloned();
        known.unwrap_or_else(|| {
            let work = work(self.problem, stmt);
            let issued = work
                .map(|work| Rc::new(Issued { work, reads: stmt.kind.reads(), writes: stmt.kind.writes() }));
            self.issued.borrow_mut().insert(stmt.id, issued.clone());
            issued
        })
    }

    /// Issues a statement for every warp, the one that comes first to it first.
    fn statement(&mut self, stmt: &Stmt) {
        let Some(issued) = self.issued(stmt) else { return };
        let Issued { work, reads, writes } = &*issued;
        let mut order: Vec<usize> = (0..self.warps.len()).collect();
        order.sort_by(|a, b| self.warps[*a].now.total_cmp(&self.warps[*b].now));
        self.problem.steps.set(self.problem.steps.get().saturating_add(order.len() as u64));
        for w in order {
            let lane = w % work.unit.count() as usize;
            let warp = &mut self.warps[w];
            let operands: Vec<Ready> = reads.iter().filter_map(|t| warp.ready.get(t).copied()).collect();
            let start = operands.iter().fold(warp.now, |t, r| t.max(r.0));
            let free = self.free.entry((work.unit, lane)).or_default();
            let unit_start = start.max(*free);
            // The last calls wait for the last operands.
            let end = operands.iter().fold(unit_start + work.busy, |t, r| t.max(r.1 + work.busy / 4.0));
            *free = unit_start + work.busy;
            let mut arrival = (unit_start + work.latency, end + work.latency);
            if work.global > 0.0 {
                let way = self.free.entry((Unit::L2, 0)).or_default();
                *way = way.max(unit_start) + work.global;
                arrival = (arrival.0.max(*way), arrival.1.max(*way + work.latency));
            }
            warp.now = unit_start + work.busy;
            for tensor in writes {
                if work.asynchronous && matches!(stmt.kind, StmtKind::CopyAsync { .. }) {
                    warp.open.push((*tensor, arrival.1));
                } else if work.asynchronous {
                    warp.settled.push((*tensor, arrival.1));
                } else {
                    warp.ready.insert(*tensor, arrival);
                }
            }
            if work.barriers > 0 {
                warp.now = warp.now.max(arrival.1);
            }
        }
        let warps = self.per_block as f64;
        let rounds = f64::from((self.per_block as u32).div_ceil(work.unit.count()));
        *self.busy.entry(work.unit).or_default() += rounds * work.busy * self.times;
        *self.busy.entry(Unit::L2).or_default() += warps * work.global * self.times;
        for _ in 0..work.barriers {
            self.barrier();
        }
    }

    /// The cycle at which everything is done.
    fn finish(&mut self) -> f64 {
        for warp in &mut self.warps {
            warp.settle();
            warp.wait(0);
        }
        let ends = self.warps.iter().flat_map(|w| w.ready.values().map(|r| r.1));
        ends.chain(self.free.values().copied()).fold(self.now(), f64::max)
    }
}

/// The values that operands of an elementwise statement repeat in, each with the value that each of the result's takes.
pub(crate) type Parts<'a> = &'a [(TensorId, Vec<u32>)];

/// The share of the result's values for which an operation of an elementwise statement is done: once for all that take the same values of
/// operands that repeat.
fn share(tree: &Rounded, parts: Parts<'_>) -> f64 {
    fn tensors(tree: &Rounded, all: &mut BTreeSet<TensorId>) {
        match tree {
            Rounded::Tensor(id) => all.extend([*id]),
            _ => tree.operands().into_iter().for_each(|x| tensors(x, all)),
        }
    }
    let mut read = BTreeSet::new();
    if !parts.is_empty() {
        tensors(tree, &mut read);
    }
    let taken: Option<Vec<&Vec<u32>>> =
        read.iter().map(|id| parts.iter().find(|(part, _)| part == id).map(|(_, taken)| taken)).collect();
    match taken {
        Some(taken) if !taken.is_empty() && !taken[0].is_empty() => {
            let of = |value: usize| taken.iter().map(|values| values[value]).collect::<Vec<u32>>();
            let different: BTreeSet<Vec<u32>> = (0..taken[0].len()).map(of).collect();
            different.len() as f64 / taken[0].len() as f64
        }
        _ => 1.0,
    }
}

/// The operands of an operation that a kernel computes: not what instructions of PTX mean.
fn computed(tree: &Rounded) -> Vec<&Rounded> {
    let mut operands = tree.operands();
    if matches!(tree, Rounded::Asm(_)) && !operands.is_empty() {
        operands.remove(0);
    }
    operands
}

/// Cycles of a warp for the operations of an elementwise statement, for each value of a thread.
fn operations(timing: &Timing, tree: &Rounded, parts: Parts<'_>) -> f64 {
    let cost = |class: Class| timing.cost(class).issue;
    let operands: f64 = computed(tree).into_iter().map(|x| operations(timing, x, parts)).sum();
    operands
        + share(tree, parts)
            * match tree {
                Rounded::Unary(UnaryOp::Neg | UnaryOp::Abs, compute, _)
                | Rounded::Binary(
                    BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max,
                    compute,
                    ..,
                )
                | Rounded::Fma(compute, _)
                    if compute.is_packed() =>
                {
                    // Of two values.
                    0.5 * cost(Class::FmaF16x2)
                }
                Rounded::Unary(op, compute, _) => function(timing, *op, *compute),
                Rounded::Binary(op, compute, _, _) => operator(timing, *op, *compute),
                Rounded::Fma(Compute::F64, _) => cost(Class::MulI64),
                Rounded::Fma(..) => cost(Class::FmaF32),
                Rounded::Convert([_, to], x) if to.is_packed() && matches!(**x, Rounded::Tensor(_)) => 0.0,
                Rounded::Convert([from, to], _) if from.is_packed() || to.is_packed() => {
                    cost(Class::F32FromHalf)
                }
                Rounded::Convert(..) => cost(Class::MulI64),
                // Of predicates it is an operation, too.
                Rounded::Where(..) => cost(Class::Selp),
                // The base of a thread plus a constant.
                Rounded::Index(_) => cost(Class::AddI32),
                Rounded::Asm(asm) => asm.text.matches(';').count() as f64 * cost(Class::FmaF32),
                Rounded::Bitcast(..)
                | Rounded::Operand(_)
                | Rounded::Tensor(_)
                | Rounded::Number(..)
                | Rounded::Integer(..)
                | Rounded::Scalar(_)
                | Rounded::Int(_) => 0.0,
            }
}

/// Cycles of a function of one value.
fn function(timing: &Timing, op: UnaryOp, compute: Compute) -> f64 {
    let cost = |class: Class| timing.cost(class).issue;
    if compute.bits() == 64 {
        // Of arithmetic in `f64` nothing is measured: it costs what products of 64 bits do.
        let division = if op == UnaryOp::Sqrt { cost(Class::DivF32) } else { cost(Class::MulI64) };
        let instructions = op.double_instructions().filter(|_| compute == Compute::F64);
        return instructions.map_or(division, |count| f64::from(count) * cost(Class::MulI64));
    }
    match op {
        UnaryOp::Neg | UnaryOp::Abs if compute == Compute::F32 => cost(Class::FmaF32),
        UnaryOp::Neg | UnaryOp::Abs => cost(Class::AddI32),
        UnaryOp::Exp => cost(Class::Ex2) + cost(Class::FmaF32),
        UnaryOp::Exp2 => cost(Class::Ex2),
        UnaryOp::Log => cost(Class::Lg2) + cost(Class::FmaF32),
        UnaryOp::Log2 => cost(Class::Lg2),
        UnaryOp::Sqrt => cost(Class::SqrtF32),
        UnaryOp::Rsqrt => cost(Class::Rsqrt),
        UnaryOp::Tanh => {
            2.0 * cost(Class::Ex2)
                + 9.0 * cost(Class::FmaF32)
                + cost(Class::Lop3)
                + cost(Class::Setp)
                + cost(Class::Selp)
        }
        // The remainder of the angle in double precision.
        UnaryOp::Sin | UnaryOp::Cos => 5.0 * cost(Class::MulI64) + cost(Class::Ex2),
        UnaryOp::Erf => {
            cost(Class::Ex2)
                + 15.0 * cost(Class::FmaF32)
                + cost(Class::Lop3)
                + cost(Class::Setp)
                + cost(Class::Selp)
        }
        UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round => cost(Class::I32FromF32),
        UnaryOp::Float if compute == Compute::Bool => cost(Class::Selp),
        UnaryOp::Float => cost(Class::F32FromI32),
        UnaryOp::Int if compute == Compute::Bool => cost(Class::Selp),
        UnaryOp::Int => 0.0,
        UnaryOp::Not => cost(Class::Setp),
    }
}

/// Cycles of an operator on two values.
fn operator(timing: &Timing, op: BinaryOp, compute: Compute) -> f64 {
    let cost = |class: Class| timing.cost(class).issue;
    let float = compute.is_float();
    if compute.bits() == 64 {
        return match op {
            BinaryOp::Div if float => cost(Class::DivF32),
            BinaryOp::Div | BinaryOp::Rem => cost(Class::DivI32) + 4.0 * cost(Class::AddI64),
            BinaryOp::Mul | BinaryOp::MulHi => cost(Class::MulI64),
            _ if float => cost(Class::MulI64),
            BinaryOp::Shl | BinaryOp::Shr => cost(Class::ShiftB64),
            _ => cost(Class::AddI64),
        };
    }
    match op {
        BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul if float => cost(Class::FmaF32),
        BinaryOp::Add | BinaryOp::Sub => cost(Class::AddI32),
        BinaryOp::Mul | BinaryOp::MulHi => cost(Class::Imad),
        BinaryOp::Div if float => cost(Class::DivF32),
        BinaryOp::Div | BinaryOp::Rem => cost(Class::DivI32) + 4.0 * cost(Class::AddI32),
        BinaryOp::FastDiv => cost(Class::Ex2) + cost(Class::FmaF32),
        BinaryOp::Min | BinaryOp::Max if float => cost(Class::MinF32),
        BinaryOp::Min | BinaryOp::Max => cost(Class::MinI32),
        BinaryOp::BitAnd | BinaryOp::BitOr | BinaryOp::BitXor => cost(Class::Lop3),
        BinaryOp::Shl | BinaryOp::Shr => cost(Class::Shift),
        BinaryOp::Eq
        | BinaryOp::Ne
        | BinaryOp::Lt
        | BinaryOp::Le
        | BinaryOp::Gt
        | BinaryOp::Ge
        | BinaryOp::And
        | BinaryOp::Or => cost(Class::Setp),
    }
}

/// Cycles of a warp for a vote on a condition of so many values a thread: each is put to those before, four a register.
pub(crate) fn vote(timing: &Timing, values: usize) -> f64 {
    timing.cost(Class::Lop3).issue * values.div_ceil(4) as f64 + timing.cost(Class::Setp).issue
}

/// True if an expression is one operation, which 16-bit types have in packed instructions.
fn is_single(expr: &ElemExpr) -> bool {
    let leaf = |x: &ElemExpr| {
        matches!(x, ElemExpr::Tensor(_) | ElemExpr::Number(_) | ElemExpr::Scalar(_) | ElemExpr::Int(_))
    };
    matches!(expr, ElemExpr::Binary(_, x, y) if leaf(x) && leaf(y))
}

impl Work {
    /// Cycles of arithmetic.
    fn alu(busy: f64) -> Work {
        Work { unit: Unit::Alu, busy, global: 0.0, latency: 5.0, asynchronous: false, barriers: 0 }
    }

    /// A movement between threads, in halves of a cycle of the load/store unit, and with barriers if it goes through shared memory.
    fn moved(timing: &Timing, halves: u32, scratch: u32) -> Work {
        Work {
            unit: Unit::Lsu,
            busy: f64::from(halves) / f64::from(HALVES),
            latency: timing.cost(Class::Shuffle).latency,
            barriers: if scratch > 0 { 2 } else { 0 },
            ..Work::alu(0.0)
        }
    }
}

/// The work of a statement, if it has any.
fn work(problem: &Problem<'_>, stmt: &Stmt) -> Option<Work> {
    let timing = problem.timing;
    let warps = f64::from(problem.verified.threads() / 32);
    Some(match problem.plans.get(stmt.id)? {
        StmtPlan::Gemm(plan) => {
            let cost = timing.cost(plan.row);
            let busy = plan.calls.len() as f64 * cost.issue;
            Work { unit: Unit::Tensor, busy, latency: cost.latency, ..Work::alu(0.0) }
        }
        StmtPlan::Copy(plan) => return copy_work(problem, stmt, plan),
        StmtPlan::Tma(plan) => {
            let cost = timing.cost(plan.row.op);
            let (port, rate) = match plan.row.op {
                TensorOp::Load => (Rate::L2Bytes, Rate::TmaLoadBytes),
                TensorOp::Store | TensorOp::Add => (Rate::StoreBytes, Rate::TmaStoreBytes),
            };
            let bytes = plan.bytes() as f64;
            let moving = (bytes / timing.rate(rate)).max(plan.calls.len() as f64 * cost.issue);
            Work {
                unit: Unit::Tma,
                busy: moving / warps,
                global: bytes / timing.rate(port) / warps,
                latency: cost.latency,
                asynchronous: true,
                barriers: 0,
            }
        }
        StmtPlan::Wgmma(plan) => Work {
            unit: Unit::Tensor,
            // What the warpgroup's four tensor cores do together is spread over its warps.
            busy: f64::from(plan.cycles(timing) * Unit::Tensor.count()) / warps,
            latency: timing.wgmma(plan.row).latency,
            ..Work::alu(0.0)
        },
        StmtPlan::Sums(plan) => Work {
            unit: Unit::Tensor,
            // What the multiprocessor's tensor cores do together is spread over the role's warps.
            busy: f64::from(plan.cycles(timing) * Unit::Tensor.count()) / warps,
            latency: timing.tcgen05(plan.row, plan.a.is_some()).latency,
            asynchronous: true,
            ..Work::alu(0.0)
        },
        StmtPlan::TensorCopy(plan) => Work {
            unit: Unit::Lsu,
            busy: f64::from(plan.cycles(timing)),
            latency: timing.cost(plan.row).latency,
            ..Work::alu(0.0)
        },
        StmtPlan::Move(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Reduce(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Pick(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Arg(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Combine(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Sort(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Scan(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Gather(plan) => Work::moved(timing, plan.cycles(timing), plan.shared_bytes()),
        StmtPlan::Flag { .. } => Work::alu(1.0),
        StmtPlan::Halves(moves) => Work::alu(moves.iter().map(|m| m.len() as f64).sum::<f64>() / 2.0),
        StmtPlan::None if matches!(stmt.kind, StmtKind::IfAny { .. }) => {
            let StmtKind::IfAny { condition, .. } = &stmt.kind else { return None };
            Work::alu(vote(timing, (problem.register)(*condition)?.count()))
        }
        StmtPlan::None => Work::alu(arithmetic(problem, stmt, &[])?),
        StmtPlan::Repeat(parts) => Work::alu(arithmetic(problem, stmt, parts)?),
    })
}

/// The work of a copy that is not by the tensor memory accelerator.
fn copy_work(problem: &Problem<'_>, stmt: &Stmt, plan: &CopyPlan) -> Option<Work> {
    let timing = problem.timing;
    let (row, access, asynchronous) = match plan {
        CopyPlan::Direct { row, access } | CopyPlan::Fetch { row, access, .. } => (*row, access, false),
        CopyPlan::Async { row, access } => (*row, access, true),
        CopyPlan::Staged { load, access, .. } => (*load, access, false),
        CopyPlan::Registers { moves } => return Some(Work::alu(moves.len() as f64)),
    };
    let (src, dst) = stmt.kind.copied()?;
    let is_global = |t: TensorId| problem.verified.tensor(t).memory() == Memory::Global;
    let warps = f64::from(problem.verified.threads() / 32);
    let wavefronts = f64::from(problem.wavefronts.get(stmt.id).copied().unwrap_or(0)) / warps;
    let share = if asynchronous { busy_warps(&access.threads) } else { 1.0 };
    let calls = access.calls.len() as f64 * share;
    let bytes = calls * 32.0 * f64::from(row.bytes);
    let global = if is_global(src.tensor) {
        bytes / timing.rate(Rate::L2Bytes)
    } else if is_global(dst.tensor) {
        bytes / timing.rate(Rate::StoreBytes)
    } else {
        0.0
    };
    let stored = match plan {
        CopyPlan::Staged { store, .. } => calls * timing.cost(*store).issue,
        _ => 0.0,
    };
    let issue = calls * timing.lsu_issue(row) + stored;
    Some(Work {
        unit: Unit::Lsu,
        // Each call to global memory computes an address, and mostly a guard.
        busy: issue.max(wavefronts) + calls * if global > 0.0 { GLOBAL_CALL } else { CALL },
        global,
        latency: timing.cost(row).latency,
        asynchronous,
        barriers: 0,
    })
}

/// Cycles of a statement that each thread does with its own values, if it is one.
fn arithmetic(problem: &Problem<'_>, stmt: &Stmt, parts: Parts<'_>) -> Option<f64> {
    let values = |id: TensorId| (problem.register)(id).map_or(0.0, |tv| tv.count() as f64);
    arithmetic_of((problem.verified, problem.timing), &values, stmt, parts)
}

/// [`arithmetic`] of a statement whose tensors have so many values a thread.
pub(crate) fn arithmetic_of(
    (program, timing): (&Program, &Timing),
    values: &dyn Fn(TensorId) -> f64,
    stmt: &Stmt,
    parts: Parts<'_>,
) -> Option<f64> {
    let bits = |id: TensorId| program.tensor(id).dtype.bits();
    let words = |id: TensorId| (values(id) * f64::from(bits(id)) / 32.0).ceil();
    Some(match &stmt.kind {
        StmtKind::Cast { dst, src } => {
            let (from, to) = (program.tensor(*src).dtype, program.tensor(*dst).dtype);
            let each = |(op, count): &(_, u32)| timing.cost(*op).issue * f64::from(*count);
            match cast::plan(from, to, timing.arch, values(*src) as u32) {
                Ok(plan) => plan.instructions().iter().map(each).sum(),
                Err(_) => 3.0 * words(*dst),
            }
        }
        StmtKind::Fill { dst, .. } => words(*dst),
        StmtKind::Elementwise { dst, expr } if bits(*dst) == 16 && is_single(expr) => {
            words(*dst) * timing.cost(Class::FmaF16x2).issue
        }
        StmtKind::Elementwise { dst, expr: expr @ ElemExpr::Packed(dtype, _) }
            if program.tensor(*dst).dtype == *dtype =>
        {
            let tree = rounded(expr, *dtype, program).ok()?;
            let inner: f64 = tree.operands().into_iter().map(|x| operations(timing, x, parts)).sum();
            values(*dst) * inner
        }
        StmtKind::Elementwise { dst, expr } => {
            // Other types are unpacked and packed again.
            let conversion = expr.tensors().len() as f64 * timing.cost(Class::F32FromHalf).issue + 1.0;
            let conversions = if bits(*dst) == 32 { 0.0 } else { values(*dst) * conversion };
            let tree = rounded(expr, program.tensor(*dst).dtype, program).ok()?;
            values(*dst) * operations(timing, &tree, parts) + conversions
        }
        _ => return None,
    })
}

/// The operations of an elementwise statement on each value, by name, each as often as it is done.
pub(crate) fn operation_names(tree: &Rounded) -> Vec<&'static str> {
    let mut names: Vec<&'static str> = computed(tree).into_iter().flat_map(operation_names).collect();
    names.extend(match tree {
        Rounded::Unary(op, ..) => Some(op.name()),
        Rounded::Binary(op, ..) => Some(op.name()),
        Rounded::Fma(..) => Some("fma"),
        Rounded::Convert([_, to], _) if to.is_float() => Some(UnaryOp::Float.name()),
        Rounded::Convert(..) => Some(UnaryOp::Int.name()),
        Rounded::Where(..) => Some("where"),
        Rounded::Index(_) => Some("index"),
        Rounded::Asm(_) => Some("asm"),
        Rounded::Bitcast(..)
        | Rounded::Operand(_)
        | Rounded::Tensor(_)
        | Rounded::Number(..)
        | Rounded::Integer(..)
        | Rounded::Scalar(_)
        | Rounded::Int(_) => None,
    });
    names
}
