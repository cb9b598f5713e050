//! Facts about a place in a function that hold on every way to it or from it: asynchronous operations in flight, registers whose values
//! are known, registers that are read later or were written since the last fence.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{BulkOp, ScalarOp, SyncOp, TensorOp};
use tilewright_simt::{Factor, Function, Inst, Op, Operand, Reg, Value};

use super::mutant::{Mutant, block_of};

/// Path from the outermost block to another one, as in [`Mutant`], and the index of an instruction in it.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    block: &'a [(usize, bool)],
    index: usize,
}

impl<'a> Target<'a> {
    /// The instruction that a mutant changes.
    pub(super) fn of(mutant: &'a Mutant) -> Self {
        Target { block: &mutant.block, index: mutant.index }
    }

    /// The instruction, if it is the one at a position of the block that the path has come to.
    fn is(&self, position: usize) -> bool {
        self.block.is_empty() && self.index == position
    }

    /// The rest of the path within the loop or the side of a branch at a position.
    fn within(&self, position: usize, second: bool) -> Option<Self> {
        let (first, rest) = self.block.split_first()?;
        (*first == (position, second)).then_some(Target { block: rest, index: self.index })
    }
}

/// Facts at a place.
pub(super) trait Facts: Clone + PartialEq {
    /// Changes the facts by an instruction that is no loop or branch.
    fn execute(&mut self, op: &Op);

    /// Leaves the facts that hold on both of two ways.
    fn meet(&mut self, other: &Self);

    /// The facts before an instruction, on every way to it; `None` if there is no such instruction.
    fn before(mut self, function: &Function, target: Target<'_>) -> Option<Self> {
        self.walk(&function.body, Some(target))
    }

    /// Changes the facts by a block; those before the target if it lies in the block.
    fn walk(&mut self, body: &[Inst], target: Option<Target<'_>>) -> Option<Self> {
        for (position, inst) in body.iter().enumerate() {
            if target.is_some_and(|target| target.is(position)) {
                return Some(self.clone());
            }
            let inner = |second| target.and_then(|target| target.within(position, second));
            match &inst.op {
                Op::If { then, otherwise, .. } => {
                    let mut other = self.clone();
                    if let Some(found) = self.walk(then, inner(false)) {
                        return Some(found);
                    }
                    if let Some(found) = other.walk(otherwise, inner(true)) {
                        return Some(found);
                    }
                    self.meet(&other);
                }
                Op::For { body, .. } => {
                    // The facts that every round leaves as they are.
                    loop {
                        let (before, mut round) = (self.clone(), self.clone());
                        let _ = round.walk(body, None);
                        self.meet(&round);
                        if *self == before {
                            break;
                        }
                    }
                    if let Some(found) = inner(false).and_then(|target| self.clone().walk(body, Some(target)))
                    {
                        return Some(found);
                    }
                }
                op => self.execute(op),
            }
        }
        None
    }
}

/// An engine whose operations are committed in groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Engine {
    /// `cp.async`.
    Copies,
    /// Bulk and tensor copies out of shared memory.
    Bulk,
    /// Matrix products of a warpgroup.
    Products,
}

/// The engine whose groups an instruction closes or waits for.
pub(super) fn engine(op: &Op) -> Option<Engine> {
    match op {
        Op::Sync(SyncOp::AsyncCommit | SyncOp::AsyncWaitGroup(_) | SyncOp::AsyncWaitAll) => {
            Some(Engine::Copies)
        }
        Op::Sync(SyncOp::BulkCommit | SyncOp::BulkWait(_) | SyncOp::BulkWaitRead(_)) => Some(Engine::Bulk),
        Op::Sync(SyncOp::WgmmaCommit | SyncOp::WgmmaWait(_)) => Some(Engine::Products),
        _ => None,
    }
}

/// Operations of an engine that a thread may have in flight.
#[derive(Clone, PartialEq)]
pub(super) struct InFlight {
    engine: Engine,
    /// True if some are in no group yet.
    open: bool,
    /// True if some groups may not have been waited for.
    groups: bool,
}

impl InFlight {
    /// True if no operation of the engine is in flight before an instruction, on any way to it.
    pub(super) fn none(function: &Function, target: Target<'_>, engine: Engine) -> bool {
        let start = InFlight { engine, open: false, groups: false };
        start.before(function, target).is_some_and(|state| !state.open && !state.groups)
    }
}

impl Facts for InFlight {
    fn execute(&mut self, op: &Op) {
        let begins = match op {
            Op::AsyncCopy { .. } => self.engine == Engine::Copies,
            Op::Tensor { row, .. } => self.engine == Engine::Bulk && row.op != TensorOp::Load,
            Op::Bulk { op, .. } => self.engine == Engine::Bulk && *op == BulkOp::Store,
            Op::Wgmma { .. } => self.engine == Engine::Products,
            _ => false,
        };
        self.open |= begins;
        if engine(op) != Some(self.engine) {
            return;
        }
        match op {
            Op::Sync(SyncOp::AsyncCommit | SyncOp::BulkCommit | SyncOp::WgmmaCommit) => {
                self.groups |= std::mem::take(&mut self.open);
            }
            Op::Sync(SyncOp::AsyncWaitGroup(0) | SyncOp::BulkWait(0) | SyncOp::WgmmaWait(0)) => {
                self.groups = false;
            }
            Op::Sync(SyncOp::AsyncWaitAll) => (self.open, self.groups) = (false, false),
            _ => {}
        }
    }

    fn meet(&mut self, other: &Self) {
        self.open |= other.open;
        self.groups |= other.groups;
    }
}

/// Registers and values that are the same in all threads and on every way.
#[derive(Clone, PartialEq, Default)]
pub(super) struct Constants {
    registers: BTreeMap<Reg, u64>,
    values: BTreeMap<Value, u64>,
}

impl Constants {
    /// The value of an operand, if it is known.
    pub(super) fn of(&self, operand: &Operand) -> Option<u64> {
        match operand {
            Operand::Imm(x) => Some(*x),
            Operand::Value(value) => self.values.get(value).copied(),
        }
    }

    /// The value of a register, if it is known.
    pub(super) fn register(&self, register: Reg) -> Option<u64> {
        self.registers.get(&register).copied()
    }

    fn set<K: Ord>(map: &mut BTreeMap<K, u64>, key: K, value: Option<u64>) {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }

    fn scalar(&self, op: ScalarOp, args: &[Operand]) -> Option<u64> {
        let args = args.iter().map(|arg| self.of(arg)).collect::<Option<Vec<u64>>>()?;
        Some((op.row().eval)(&args))
    }
}

impl Facts for Constants {
    fn execute(&mut self, op: &Op) {
        match op {
            Op::Scalar { dst, op, args } => {
                let value = self.scalar(*op, args);
                Constants::set(&mut self.values, *dst, value);
            }
            Op::ReadReg { dst, src } => {
                let value = self.register(*src);
                Constants::set(&mut self.values, *dst, value);
            }
            Op::WriteReg { dst, src } => {
                let value = self.of(src);
                Constants::set(&mut self.registers, *dst, value);
            }
            op => written(op).into_iter().for_each(|register| {
                self.registers.remove(&register);
            }),
        }
    }

    fn meet(&mut self, other: &Self) {
        self.registers.retain(|register, value| other.registers.get(register) == Some(value));
        self.values.retain(|key, value| other.values.get(key) == Some(value));
    }
}

/// Registers that ordinary instructions may have written since the last `wgmma.fence`.
#[derive(Clone, PartialEq)]
pub(super) struct Unfenced {
    /// True before the first fence.
    all: bool,
    registers: BTreeSet<Reg>,
}

impl Unfenced {
    /// True if the products that may follow an instruction before the next `wgmma.fence` use no register that was written since the fence
    /// before it.
    pub(super) fn none(function: &Function, target: Target<'_>) -> bool {
        let start = Unfenced { all: true, registers: BTreeSet::new() };
        let Some(before) = start.before(function, target) else { return false };
        let mut used = BTreeSet::new();
        until_fence(function, target, &mut used) && !before.all && before.registers.is_disjoint(&used)
    }
}

impl Facts for Unfenced {
    fn execute(&mut self, op: &Op) {
        match op {
            Op::Sync(SyncOp::WgmmaFence) => (self.all, self.registers) = (false, BTreeSet::new()),
            Op::WriteReg { dst, .. } => {
                self.registers.insert(*dst);
            }
            Op::Wgmma { .. } => {}
            op => self.registers.extend(written(op)),
        }
    }

    fn meet(&mut self, other: &Self) {
        self.all |= other.all;
        self.registers.extend(other.registers.iter().copied());
    }
}

/// Collects the registers that products use behind an instruction and before the next `wgmma.fence`; false
/// if a way has none.
fn until_fence(function: &Function, target: Target<'_>, used: &mut BTreeSet<Reg>) -> bool {
    let mut scan = |insts: &[Inst]| {
        insts.iter().any(|inst| {
            let fence = matches!(inst.op, Op::Sync(SyncOp::WgmmaFence));
            if !fence {
                visit(inst, &mut |op| used.extend(product_registers(op)));
            }
            fence
        })
    };
    let (mut block, mut index) = (target.block, target.index);
    loop {
        let Some(body) = block_of(function, block) else { return false };
        if scan(&body[index + 1..]) {
            return true;
        }
        let Some((last, outer)) = block.split_last() else { return true };
        let container = block_of(function, outer).and_then(|body| body.get(last.0));
        // The next round, up to its first fence, and what follows the loop.
        if let Some(Op::For { body, .. }) = container.map(|inst| &inst.op) {
            scan(body);
        }
        (block, index) = (outer, last.0);
    }
}

/// True if an instruction may read a register after the one at the target.
pub(super) fn read_behind(function: &Function, target: Target<'_>, register: Reg) -> bool {
    let mut read = false;
    let mut look = |insts: &[Inst]| {
        insts.iter().for_each(|inst| visit(inst, &mut |op| read |= reads(op, register)));
    };
    let (mut block, mut index) = (target.block, target.index);
    loop {
        let Some(body) = block_of(function, block) else { return true };
        look(&body[index + 1..]);
        let Some((last, outer)) = block.split_last() else { return read };
        let container = block_of(function, outer).and_then(|body| body.get(last.0));
        if let Some(Op::For { body, .. }) = container.map(|inst| &inst.op) {
            look(body);
        }
        (block, index) = (outer, last.0);
    }
}

/// Calls `f` with an instruction and those within it.
pub(super) fn visit(inst: &Inst, f: &mut impl FnMut(&Op)) {
    f(&inst.op);
    match &inst.op {
        Op::For { body, .. } => body.iter().for_each(|inst| visit(inst, f)),
        Op::If { then, otherwise, .. } => then.iter().chain(otherwise).for_each(|inst| visit(inst, f)),
        _ => {}
    }
}

/// True if an instruction reads a register of a fragment.
fn reads(op: &Op, register: Reg) -> bool {
    match op {
        Op::ReadReg { src, .. } => *src == register,
        Op::Store { src, .. } => src.contains(&register),
        Op::Cancelled { answer, .. } => answer.contains(&register),
        Op::Matrix { regs, .. } | Op::TensorCopy { regs, .. } => regs.contains(&register),
        Op::Mma { d, a, b, meta, scales, .. } => {
            [d, a, b].iter().any(|regs| regs.contains(&register))
                || *meta == Some(register)
                || scales.iter().flatten().any(|scale| scale.register == register)
        }
        op => product_registers(op).contains(&register),
    }
}

/// Registers that an instruction other than a product of a warpgroup may write.
pub(super) fn written(op: &Op) -> Vec<Reg> {
    match op {
        Op::WriteReg { dst, .. } => vec![*dst],
        Op::Load { dst, .. } => dst.clone(),
        Op::Matrix { regs, .. } | Op::TensorCopy { regs, .. } => regs.clone(),
        Op::Mma { d, .. } | Op::Wgmma { d, .. } => d.clone(),
        _ => Vec::new(),
    }
}

/// Registers of a product of a warpgroup: its accumulators, the left operand's if it is in registers, and its metadata's.
fn product_registers(op: &Op) -> Vec<Reg> {
    let Op::Wgmma { d, a, meta, .. } = op else { return Vec::new() };
    match a {
        Factor::Registers(left) => d.iter().chain(left).chain(meta).copied().collect(),
        Factor::Shared { .. } | Factor::Tensor(_) => d.iter().chain(meta).copied().collect(),
    }
}
