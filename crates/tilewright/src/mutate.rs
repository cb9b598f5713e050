//! Score of the simulator against wrong kernels: a compiled kernel is made wrong in every way that this module knows, one at a
//! time, and each mutant is simulated. `tilewright mutate` prints what comes out; `docs/mutation.md` says what did.
//!
//! A mutant is *found* by a launch in which the simulator reports anything, does not come to an end, or leaves another output
//! than the reference interpreter. Inputs are the same in all launches; the simulator's seed, which decides what hardware
//! leaves open, is 0, 1, 2, ….
//!
//! Most mutants change one instruction; some change the program's text, as its author might have ([`mutate_program`]). Of those that
//! are not found, [`Reason`]s that hold wherever they are given are told.

mod author;
mod flow;
mod mutant;
mod pairs;
mod reasons;
mod tensor_memory;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use tilewright_compiler::{Kernel, Options, compile};
use tilewright_machine::{MbarrierOp, ProxyFence, RegType, ScalarOp, SumsScaling, SyncOp};
use tilewright_runtime::{Device, RuntimeError, SimDevice};
use tilewright_sim::{Config, SimError};
use tilewright_simt::{Address, DescriptorValue, Factor, Function, Inst, Op, Operand, Reg, Value, verify};
use tilewright_tile::{Diagnostics, Program};

pub use mutant::{Kind, Mutant};
pub use reasons::Reason;

use mutant::{Edit, block_of};
use pairs::Pairs;

use crate::check::{CheckError, CheckOptions, Expected, compare, interpreted, prepare};

/// The mutants of a function that are valid thread-level programs.
#[derive(Clone, Debug)]
pub struct Mutants {
    /// The mutants, in the order of the program, the outermost block first.
    pub mutants: Vec<Mutant>,
    /// Mutants that were left out because they are no valid thread-level programs.
    pub invalid: usize,
}

/// Every mutant of a function.
pub fn mutants(function: &Function) -> Mutants {
    let mut all = Vec::new();
    let elected = Elected::of(function);
    let pairs = Pairs::of(function);
    let slots = Slots::of(function);
    walk(&function.body, &mut Vec::new(), &mut |block, body| {
        for (index, inst) in body.iter().enumerate() {
            let instruction = edits(function, (&elected, &pairs), body, index);
            let of_pair = pairs.edits(&inst.op);
            let displaced = displaced(function, block, body, index);
            let shifted = slots.edits(function, &inst.op);
            for (kind, what, edit) in instruction.into_iter().chain(of_pair).chain(displaced).chain(shifted) {
                let origin = function.origin(inst.origin).to_string();
                all.push(Mutant { kind, what, origin, ordinal: 0, block: block.to_vec(), index, edit });
            }
        }
    });
    let before = all.len();
    all.retain(|mutant| verify(&mutant.apply(function)).is_ok());
    let invalid = before - all.len();
    number(&mut all);
    Mutants { mutants: all, invalid }
}

/// Numbers mutants of the same kind, words and statement.
fn number(mutants: &mut [Mutant]) {
    let mut seen = BTreeMap::new();
    for mutant in mutants {
        let count = seen.entry((mutant.kind, mutant.what.clone(), mutant.origin.clone())).or_insert(0);
        *count += 1;
        mutant.ordinal = *count;
    }
}

/// Calls `visit` with every block of instructions and the way to it.
fn walk(body: &[Inst], block: &mut Vec<(usize, bool)>, visit: &mut impl FnMut(&[(usize, bool)], &[Inst])) {
    visit(block, body);
    for (position, inst) in body.iter().enumerate() {
        let sides: [&[Inst]; 2] = match &inst.op {
            Op::For { body, .. } => [body, &[]],
            Op::If { then, otherwise, .. } => [then, otherwise],
            _ => continue,
        };
        for (side, second) in sides.into_iter().zip([false, true]) {
            block.push((position, second));
            walk(side, block, visit);
            block.pop();
        }
    }
}

/// The predicates that hold for an elected thread only, with the conjunctions among them, and the results of votes, each with what a lane says.
#[derive(Default)]
struct Elected {
    values: BTreeSet<Value>,
    conjunctions: BTreeMap<Value, Vec<Value>>,
    votes: BTreeMap<Value, Value>,
}

impl Elected {
    fn of(function: &Function) -> Self {
        let mut found = Elected::default();
        function.visit(&mut |inst| match &inst.op {
            Op::Elect { dst } => {
                found.values.insert(*dst);
            }
            Op::Vote { dst, src: Operand::Value(src) } => {
                found.votes.insert(*dst, *src);
            }
            Op::Scalar { dst, op: ScalarOp::AndPred, args } => {
                let parts: Vec<Value> = args
                    .iter()
                    .filter_map(|a| if let Operand::Value(value) = a { Some(*value) } else { None })
                    .collect();
                if parts.iter().any(|part| found.values.contains(part)) {
                    found.values.insert(*dst);
                    found.conjunctions.insert(*dst, parts);
                }
            }
            _ => {}
        });
        found
    }
}

/// Name of a synchronisation that is to be deleted or moved; `None` of any other instruction.
fn synchronisation(op: &Op) -> Option<String> {
    match op {
        Op::Sync(SyncOp::SetMaxRegisters { .. } | SyncOp::DependentsLaunch) => None,
        Op::Sync(SyncOp::ClusterBarrier | SyncOp::ClusterStart) => Some("barrier.cluster".to_string()),
        Op::Sync(sync) => Some(sync.spelling()),
        Op::BarrierSync { .. } => Some("bar.sync of a warpgroup".to_string()),
        Op::Mbarrier { op, .. } => Some(op.name().to_string()),
        Op::Await { .. } => Some("ld.acquire".to_string()),
        Op::TensorFree { .. } => Some("tcgen05.dealloc".to_string()),
        Op::ScaleCopy { .. } => Some(SumsScaling::COPY.to_string()),
        _ => None,
    }
}

fn edits(
    function: &Function,
    (elected, pairs): (&Elected, &Pairs),
    body: &[Inst],
    index: usize,
) -> Vec<(Kind, String, Edit)> {
    let op = &body[index].op;
    let mut all = Vec::new();
    if let Some(name) = synchronisation(op) {
        all.push((Kind::Delete, name.clone(), Edit::Remove));
        let next = body[index + 1..].iter().position(|inst| !inst.op.is_removable());
        let other = next.map(|skipped| index + 1 + skipped);
        if let Some((other, second)) = other.and_then(|o| Some((o, synchronisation(&body[o].op)?)))
            && body[other].op != *op
        {
            all.push((Kind::Swap, format!("{name}, {second}"), Edit::Behind(other)));
        }
    }
    match op {
        Op::Sync(sync) => {
            for weaker in weaker(*sync) {
                let what = format!("{} to {}", sync.spelling(), weaker.spelling());
                all.push((Kind::Weaken, what, Edit::Replace(Op::Sync(weaker))));
            }
            if let Some(stronger) = stronger(*sync) {
                let what = format!("{} to {}", sync.spelling(), stronger.spelling());
                all.push((Kind::Strengthen, what, Edit::Replace(Op::Sync(stronger))));
            }
            if let SyncOp::FenceProxyAsync(fence) = sync {
                for other in
                    ProxyFence::ALL.into_iter().filter(|other| other != fence && *other != ProxyFence::All)
                {
                    let what = format!("{} to {}", sync.spelling(), other.spelling());
                    all.push((Kind::Space, what, Edit::Replace(Op::Sync(SyncOp::FenceProxyAsync(other)))));
                }
            }
        }
        Op::BarrierSync { id, threads } => {
            let fewer = threads.saturating_sub(32);
            let what = format!("bar.sync of a warpgroup, {threads} to {fewer} threads");
            all.push((Kind::Weaken, what, Edit::Replace(Op::BarrierSync { id: *id, threads: fewer })));
        }
        Op::Mbarrier { op, address, operand } => {
            let minus = |n: u32| u64::from(n.wrapping_neg());
            let changes: &[(&str, ScalarOp, u64)] = match op {
                MbarrierOp::Init => &[
                    ("one arrival more", ScalarOp::AddI32, 1),
                    ("one arrival less", ScalarOp::AddI32, minus(1)),
                ],
                MbarrierOp::ArriveExpect => {
                    &[("16 bytes more", ScalarOp::AddI32, 16), ("16 bytes less", ScalarOp::AddI32, minus(16))]
                }
                op if op.waits() => &[("the other parity", ScalarOp::XorB32, 1)],
                _ => &[],
            };
            for (words, scalar, literal) in changes {
                all.push((Kind::Weaken, format!("{}: {words}", op.name()), Edit::Operand(*scalar, *literal)));
            }
            let weaker = match op {
                MbarrierOp::ArriveCluster => Some(MbarrierOp::ArrivePeer),
                MbarrierOp::WaitCluster => Some(MbarrierOp::Wait),
                MbarrierOp::CommitPeers => Some(MbarrierOp::Commit),
                _ => None,
            };
            if let Some(weaker) = weaker {
                let what = format!("{} to {}", op.name(), weaker.name());
                let operand = if weaker.has_operand() { *operand } else { Operand::Imm(0) };
                let weaker = Op::Mbarrier { op: weaker, address: *address, operand };
                all.push((Kind::Weaken, what, Edit::Replace(weaker)));
            }
        }
        Op::Tcgen05 { row, meta: Some(meta), .. } if row.a.bits() == 16 => {
            let mut other = op.clone();
            if let Op::Tcgen05 { meta: Some(meta), .. } = &mut other {
                meta.selector ^= 1;
            }
            let what = format!("{}: selector {} in place of {}", row.name, meta.selector ^ 1, meta.selector);
            all.push((Kind::Weaken, what, Edit::Replace(other)));
        }
        Op::Tensor { row, multicast: Some(to), even, .. } => {
            if *even {
                let mut own = op.clone();
                if let Op::Tensor { even, .. } = &mut own {
                    *even = false;
                }
                let what = format!("{}: to the mbarriers of the blocks that receive it", row.name);
                all.push((Kind::Weaken, what, Edit::Replace(own)));
            }
            let blocks = (1u64 << function.cluster) - 1;
            let others = [
                ("not to block 0", ScalarOp::AndB32, blocks & !1),
                ("to all blocks", ScalarOp::OrB32, blocks),
            ];
            for (words, scalar, literal) in others.into_iter().filter(|change| *to != Operand::Imm(change.2))
            {
                let what = format!("{}: {words} of the cluster", row.name);
                all.push((Kind::Weaken, what, Edit::Operand(scalar, literal)));
            }
        }
        Op::Atomic { .. } => {
            let weaker = words::weaker(op).into_iter();
            all.extend(weaker.map(|(what, op)| (Kind::Weaken, what, Edit::Replace(op))));
        }
        Op::WriteReg { dst, .. } => {
            // Fragments have the names of tensors, in which there is no dot.
            let array = function.arrays.get(dst.array.0 as usize).map_or("", |a| a.name.as_str());
            if array.contains('.') {
                all.push((Kind::Skip, format!("{array}[{}]", dst.index), Edit::Remove));
            }
        }
        Op::If { condition, .. } if elected.values.contains(condition) => {
            all.push((Kind::Guard, "all threads".to_string(), Edit::Unguard));
            let parts = elected.conjunctions.get(condition).map_or(&[][..], Vec::as_slice);
            let of_pair = parts.iter().any(|part| pairs.is_even(*part));
            for part in parts {
                let what = if pairs.is_even(*part) {
                    "all threads of the even block"
                } else if of_pair {
                    "one thread of both blocks"
                } else if elected.values.contains(part) {
                    "one thread of each warp"
                } else {
                    "all threads of the warp"
                };
                all.push((Kind::Guard, what.to_string(), Edit::Condition(*part)));
            }
        }
        Op::If { condition, then, .. } => {
            if let Some(own) = elected.votes.get(condition) {
                // Whether a lane may decide alone for the registers that it has depends on what it has.
                if then.iter().any(|inst| moves_as_a_warp(&inst.op)) {
                    all.push((Kind::Guard, "each lane for itself".to_string(), Edit::Condition(*own)));
                }
                all.push((Kind::Skip, "what rows ask for".to_string(), Edit::Remove));
            }
        }
        _ => {}
    }
    all
}

/// True if an instruction, or one within it, moves elements for the lanes of a warp together.
fn moves_as_a_warp(op: &Op) -> bool {
    match op {
        Op::For { body, .. } => body.iter().any(|inst| moves_as_a_warp(&inst.op)),
        Op::If { then, otherwise, .. } => then.iter().chain(otherwise).any(|inst| moves_as_a_warp(&inst.op)),
        Op::TensorCopy { .. } | Op::Matrix { .. } | Op::Shuffle { .. } => true,
        _ => false,
    }
}

/// Mutants in which an instruction moves: a fence to another role, a wait for the kernels before behind the first access to global memory;
/// and loops that end early.
fn displaced(
    function: &Function,
    block: &[(usize, bool)],
    body: &[Inst],
    index: usize,
) -> Vec<(Kind, String, Edit)> {
    let mut all = Vec::new();
    match &body[index].op {
        Op::Sync(sync @ SyncOp::FenceProxyAsync(_)) => {
            // The outermost branch of which both sides do something is that between roles.
            let branch = (0..block.len()).find(|depth| {
                let outer = block_of(function, &block[..*depth]).and_then(|outer| outer.get(block[*depth].0));
                matches!(outer.map(|inst| &inst.op), Some(Op::If { otherwise, .. }) if !otherwise.is_empty())
            });
            if let Some(depth) = branch {
                let mut to = block[..depth].to_vec();
                to.push((block[depth].0, !block[depth].1));
                // Into the loops of the other role, if it has some.
                while let Some(inner) = block_of(function, &to)
                    .and_then(|body| body.iter().position(|inst| matches!(inst.op, Op::For { .. })))
                {
                    to.push((inner, false));
                }
                all.push((Kind::Move, format!("{} to the other role", sync.spelling()), Edit::Elsewhere(to)));
            }
        }
        Op::Sync(sync @ SyncOp::DependencyWait) => {
            if let Some(next) = body[index + 1..].iter().position(|inst| touches_global(&inst.op)) {
                let what = format!("{} behind an access", sync.spelling());
                all.push((Kind::Late, what, Edit::Behind(index + 1 + next)));
            }
        }
        Op::For { .. } => all.push((Kind::Short, "a round less".to_string(), Edit::Short)),
        _ => {}
    }
    all
}

/// True if an instruction, or one within it, touches global memory.
fn touches_global(op: &Op) -> bool {
    use tilewright_machine::Memory;
    match op {
        Op::For { body, .. } => body.iter().any(|inst| touches_global(&inst.op)),
        Op::If { then, otherwise, .. } => then.iter().chain(otherwise).any(|inst| touches_global(&inst.op)),
        Op::Load { row, .. } | Op::Lookup { row, .. } => row.src == Memory::Global,
        Op::Store { row, .. } => row.dst == Memory::Global,
        Op::AsyncCopy { .. } | Op::Tensor { .. } | Op::Bulk { .. } => true,
        _ => false,
    }
}

/// The counters of stages of a function: registers that begin again at 0 after `stages` steps, and the arithmetic on them.
struct Slots {
    /// For each value its operation.
    scalars: BTreeMap<Value, (ScalarOp, Vec<Operand>)>,
    /// For each value that is a read of a counter, which.
    reads: BTreeMap<Value, Reg>,
    /// For each counter its stages.
    stages: Vec<(Reg, u64)>,
}

impl Slots {
    fn of(function: &Function) -> Self {
        let mut slots = Slots { scalars: BTreeMap::new(), reads: BTreeMap::new(), stages: Vec::new() };
        function.visit(&mut |inst| match &inst.op {
            Op::Scalar { dst, op, args } => {
                slots.scalars.insert(*dst, (*op, args.clone()));
            }
            Op::ReadReg { dst, src } => {
                slots.reads.insert(*dst, *src);
            }
            _ => {}
        });
        // `n == counter + 1` is where a counter begins again.
        let value = |operand: &Operand| if let Operand::Value(value) = operand { Some(*value) } else { None };
        for (op, args) in slots.scalars.values() {
            let (ScalarOp::EqI32, [next, Operand::Imm(stages)]) = (op, &args[..]) else { continue };
            let Some((ScalarOp::AddI32, parts)) = value(next).and_then(|v| slots.scalars.get(&v)) else {
                continue;
            };
            let [counter, Operand::Imm(1)] = parts[..] else { continue };
            if let Some(counter) = value(&counter).and_then(|v| slots.reads.get(&v))
                && !slots.stages.iter().any(|(known, _)| known == counter)
                && *stages > 1
            {
                slots.stages.push((*counter, *stages));
            }
        }
        slots
    }

    /// The read of a counter that a value is computed from, with the operations on the way, the first of them first.
    fn way(&self, value: Value) -> Option<(Value, u64, Vec<Value>)> {
        if let Some(counter) = self.reads.get(&value) {
            let stages = self.stages.iter().find(|(known, _)| known == counter)?.1;
            return Some((value, stages, Vec::new()));
        }
        let (_, args) = self.scalars.get(&value)?;
        let found = args.iter().find_map(|arg| match arg {
            Operand::Value(arg) => self.way(*arg),
            Operand::Imm(_) => None,
        });
        let (read, stages, mut way) = found?;
        way.push(value);
        Some((read, stages, way))
    }

    /// The edits that make an instruction's stage the next one, each place of the instruction on its own.
    fn edits(&self, function: &Function, op: &Op) -> Vec<(Kind, String, Edit)> {
        let mut all = Vec::new();
        let mut shift = |name: String, operand: Operand, replaced: &dyn Fn(Operand) -> Op| {
            let Operand::Value(value) = operand else { return };
            let Some((read, stages, way)) = self.way(value) else { return };
            let mut types = Vec::new();
            let mut before = Vec::new();
            let mut push = |ty: RegType, op: ScalarOp, args: Vec<Operand>| {
                let dst = Value((function.values.len() + types.len()) as u32);
                types.push(ty);
                before.push(Op::Scalar { dst, op, args });
                Operand::from(dst)
            };
            let next = push(RegType::B32, ScalarOp::AddI32, vec![read.into(), Operand::Imm(1)]);
            let ends = push(RegType::Pred, ScalarOp::EqI32, vec![next, Operand::Imm(stages)]);
            let mut last = push(RegType::B32, ScalarOp::Select, vec![Operand::Imm(0), next, ends]);
            let mut old = read;
            for value in way {
                let (op, args) = &self.scalars[&value];
                let args =
                    args.iter().map(|arg| if *arg == Operand::from(old) { last } else { *arg }).collect();
                last = push(function.values[value.0 as usize], *op, args);
                old = value;
            }
            all.push((Kind::Slot, name, Edit::Insert(types, before, replaced(last))));
        };
        let moved = |address: &Address, base: Operand| Address { base, ..*address };
        match op {
            Op::Mbarrier { op, address, operand } => {
                shift(format!("{}: the next stage's", op.name()), address.base, &|base| Op::Mbarrier {
                    op: *op,
                    address: moved(address, base),
                    operand: *operand,
                });
            }
            Op::Tensor { row, shared, barrier, .. } => {
                shift(format!("{}: the next stage", row.name), shared.base, &|base| {
                    let mut other = op.clone();
                    if let Op::Tensor { shared, .. } = &mut other {
                        shared.base = base;
                    }
                    other
                });
                if let Some(signalled) = barrier {
                    shift(format!("{}: the next stage's mbarrier", row.name), signalled.base, &|base| {
                        let mut other = op.clone();
                        if let Op::Tensor { barrier: Some(barrier), .. } = &mut other {
                            barrier.base = base;
                        }
                        other
                    });
                }
            }
            Op::Matrix { row, address, .. }
            | Op::Load { row, address, .. }
            | Op::TensorCopy { row, address, .. } => {
                shift(format!("{}: the next stage", row.name), address.base, &|base| {
                    let mut other = op.clone();
                    if let Op::Matrix { address, .. }
                    | Op::Load { address, .. }
                    | Op::TensorCopy { address, .. } = &mut other
                    {
                        address.base = base;
                    }
                    other
                });
            }
            Op::Tcgen05 { row, d, meta, .. } => {
                if let Some(meta) = meta {
                    let name = format!("{}: the next stage of its metadata", row.name);
                    shift(name, meta.address.base, &|base| {
                        let mut other = op.clone();
                        if let Op::Tcgen05 { meta: Some(meta), .. } = &mut other {
                            meta.address.base = base;
                        }
                        other
                    });
                }
                shift(format!("{}: the next stage of its sums", row.name), d.base, &|base| {
                    let mut other = op.clone();
                    if let Op::Tcgen05 { d, .. } = &mut other {
                        d.base = base;
                    }
                    other
                });
            }
            Op::ScaleCopy { chunk, to } => {
                shift(format!("{}: the next stage", SumsScaling::COPY), chunk.low, &|low| Op::ScaleCopy {
                    chunk: DescriptorValue { low, ..*chunk },
                    to: *to,
                });
            }
            _ => {}
        }
        let factors = match op {
            Op::Wgmma { row, a, b, .. } => Some((&row.name, [a, b])),
            Op::Tcgen05 { row, a, b, .. } => Some((&row.name, [a, b])),
            _ => None,
        };
        if let Some((instruction, sides)) = factors {
            for (side, (name, factor)) in ["left", "right"].into_iter().zip(sides).enumerate() {
                let at = match factor {
                    Factor::Shared { descriptor, .. } => descriptor.low,
                    Factor::Tensor(address) => address.base,
                    Factor::Registers(_) => continue,
                };
                let name = format!("{instruction}: the next stage of its {name} factor");
                shift(name, at, &|at| {
                    let mut other = op.clone();
                    if let Op::Wgmma { a, b, .. } | Op::Tcgen05 { a, b, .. } = &mut other {
                        match [a, b][side] {
                            Factor::Shared { descriptor, .. } => descriptor.low = at,
                            Factor::Tensor(address) => address.base = at,
                            Factor::Registers(_) => {}
                        }
                    }
                    other
                });
            }
        }
        all
    }
}

fn stronger(op: SyncOp) -> Option<SyncOp> {
    match op {
        SyncOp::AsyncWaitGroup(n) => n.checked_sub(1).map(SyncOp::AsyncWaitGroup),
        SyncOp::WgmmaWait(n) => n.checked_sub(1).map(SyncOp::WgmmaWait),
        SyncOp::BulkWait(n) => n.checked_sub(1).map(SyncOp::BulkWait),
        SyncOp::BulkWaitRead(n) => n.checked_sub(1).map(SyncOp::BulkWaitRead),
        _ => None,
    }
}

fn weaker(op: SyncOp) -> Vec<SyncOp> {
    match op {
        SyncOp::AsyncWaitGroup(n) => vec![SyncOp::AsyncWaitGroup(n + 1)],
        SyncOp::AsyncWaitAll => vec![SyncOp::AsyncWaitGroup(1)],
        SyncOp::WgmmaWait(n) => vec![SyncOp::WgmmaWait(n + 1)],
        SyncOp::BulkWait(n) => vec![SyncOp::BulkWait(n + 1), SyncOp::BulkWaitRead(n)],
        SyncOp::BulkWaitRead(n) => vec![SyncOp::BulkWaitRead(n + 1)],
        SyncOp::NamedBarrier { id, threads } => {
            vec![SyncOp::NamedBarrier { id, threads: threads.saturating_sub(32) }]
        }
        SyncOp::BarrierArrive { id, threads } => {
            vec![SyncOp::BarrierArrive { id, threads: threads.saturating_sub(32) }]
        }
        SyncOp::ClusterBarrier | SyncOp::ClusterStart => vec![SyncOp::Barrier],
        SyncOp::Barrier => vec![SyncOp::WarpBarrier],
        _ => Vec::new(),
    }
}

/// Symptom by which a mutant was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Sign {
    /// A race on shared memory.
    Race,
    /// A rule of mbarriers, asynchronous engines or their registers.
    Protocol,
    /// An access out of bounds, misaligned, or to bytes that nothing has written.
    Access,
    /// Warps wait for what never comes.
    Deadlock,
    /// The launch does not come to its end for another reason.
    Failure,
    /// An output that is not the interpreter's.
    Output,
    /// The compiler refuses it.
    Refused,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sign::Race => "race",
            Sign::Protocol => "protocol",
            Sign::Access => "access",
            Sign::Deadlock => "deadlock",
            Sign::Failure => "failure",
            Sign::Output => "output",
            Sign::Refused => "refused",
        })
    }
}

/// The launch in which a mutant was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The simulator's seed.
    pub seed: u64,
    /// The symptom.
    pub sign: Sign,
    /// The first message, or which output is wrong.
    pub message: String,
}

/// A mutant and whether it was found.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The mutant.
    pub mutant: Mutant,
    /// The launch in which it was found, or `None`: it survived all seeds.
    pub found: Option<Found>,
    /// Of a survivor: why it is as right as the kernel, where that can be seen.
    pub reason: Option<Reason>,
}

/// Verdicts on all mutants of a kernel.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// One entry a mutant.
    pub verdicts: Vec<Verdict>,
    /// Mutants that are no valid thread-level programs and were not run.
    pub invalid: usize,
}

impl Outcome {
    /// Number of mutants that were found.
    pub fn found(&self) -> usize {
        self.verdicts.iter().filter(|v| v.found.is_some()).count()
    }

    /// Those that were not found.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        self.verdicts.iter().filter(|v| v.found.is_none()).map(|v| &v.mutant)
    }

    /// Those that were not found and that no [`Reason`] explains.
    pub fn unexplained(&self) -> impl Iterator<Item = &Mutant> {
        self.verdicts.iter().filter(|v| v.found.is_none() && v.reason.is_none()).map(|v| &v.mutant)
    }

    /// The share of mutants that were found; 1 where there are none.
    pub fn score(&self) -> f64 {
        if self.verdicts.is_empty() { 1.0 } else { self.found() as f64 / self.verdicts.len() as f64 }
    }
}

/// Errors of [`mutate`] and [`mutate_program`].
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    /// The kernel cannot be run, or its program not be interpreted.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The program does not compile.
    #[error("{0}")]
    Compile(#[from] Diagnostics),
    /// Something is found in the kernel itself.
    #[error("the kernel itself is found wrong with seed {}: {}", .0.seed, .0.message)]
    Wrong(Found),
}

/// Kernel, inputs and the outputs that are right.
struct Judge<'a> {
    kernel: &'a Kernel,
    inputs: &'a CheckOptions,
    expected: Expected,
    step_limit: u64,
    /// Options with which mutants of the program's text are compiled.
    options: Option<&'a Options>,
}

impl Judge<'_> {
    /// One launch of a kernel, and how many instructions it took.
    fn launch(&self, kernel: &Kernel, seed: u64) -> Result<(Option<Found>, u64), CheckError> {
        let found = |sign, message: String| Some(Found { seed, sign, message });
        let device = SimDevice::new(Config { seed, step_limit: self.step_limit, ..Config::default() });
        let prepared = prepare(kernel, &device, self.inputs)?;
        let report = match device.launch(kernel, &prepared.sizes, &prepared.args()) {
            Ok(report) => report,
            Err(RuntimeError::Simulator { error, .. }) => {
                let sign =
                    if matches!(*error, SimError::Deadlock { .. }) { Sign::Deadlock } else { Sign::Failure };
                let text = error.to_string();
                return Ok((found(sign, text.lines().next().unwrap_or_default().to_string()), 0));
            }
            Err(other) => return Err(other.into()),
        };
        let report = report.sim();
        let instructions = report.map_or(0, |r| r.instructions);
        if let Some(report) = report.filter(|r| !r.is_clean()) {
            let sign = if !report.races.is_empty() {
                Sign::Race
            } else if !report.protocol.is_empty() {
                Sign::Protocol
            } else {
                Sign::Access
            };
            return Ok((found(sign, report.problems().swap_remove(0)), instructions));
        }
        let results = prepared.read(kernel, &device)?;
        let right = compare(kernel, self.inputs, &self.expected, &results)?.iter().all(|c| c.wrong == 0);
        let wrong = "an output is not the interpreter's".to_string();
        Ok((if right { None } else { found(Sign::Output, wrong) }, instructions))
    }

    /// The first of `seeds` launches that finds something.
    fn judge(&self, mutant: &Mutant, seeds: u64) -> Result<(Option<Found>, Option<Reason>), CheckError> {
        let kernel = match (mutant.program(), self.options) {
            (Some(program), Some(options)) => match compile(program, options) {
                Ok(kernel) => kernel,
                Err(refused) => {
                    let message = refused.0.first().map_or_else(String::new, |d| d.message.clone());
                    return Ok((Some(Found { seed: 0, sign: Sign::Refused, message }), None));
                }
            },
            _ => {
                let mut kernel = self.kernel.clone();
                kernel.function = mutant.apply(&kernel.function);
                kernel
            }
        };
        if kernel.function.body == self.kernel.function.body {
            return Ok((None, Some(Reason::SameKernel)));
        }
        for seed in 0..seeds {
            let (found, _) = self.launch(&kernel, seed)?;
            if found.is_some() {
                return Ok((found, None));
            }
        }
        Ok((None, reasons::reason(&self.kernel.function, mutant)))
    }
}

/// Simulates the kernel itself with `seeds` seeds, then each of its mutants with as many until it is found. Mutants are
/// simulated in parallel; `progress` is told, from any thread, how many are judged and how many there are.
///
/// # Errors
///
/// If the kernel cannot be run, or is found wrong itself.
pub fn mutate(
    kernel: &Kernel,
    inputs: &CheckOptions,
    seeds: u64,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, MutateError> {
    judged(kernel, None, inputs, seeds, progress)
}

/// Does the same as [`mutate`] with the kernel of a program, and also with mutants of the program's text: a stage or a buffer for
/// another. A mutant that the compiler refuses is found.
///
/// # Errors
///
/// If the program does not compile, its kernel cannot be run, or is found wrong itself.
pub fn mutate_program(
    program: &Program,
    options: &Options,
    inputs: &CheckOptions,
    seeds: u64,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, MutateError> {
    judged(&compile(program, options)?, Some((program, options)), inputs, seeds, progress)
}

fn judged(
    kernel: &Kernel,
    source: Option<(&Program, &Options)>,
    inputs: &CheckOptions,
    seeds: u64,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, MutateError> {
    let expected = interpreted(kernel, inputs)?;
    let options = source.map(|(_, options)| options);
    let mut judge = Judge { kernel, inputs, expected, step_limit: Config::default().step_limit, options };
    let runs: Vec<(Option<Found>, u64)> =
        (0..seeds).into_par_iter().map(|seed| judge.launch(kernel, seed)).collect::<Result<_, _>>()?;
    if let Some(found) = runs.iter().find_map(|(found, _)| found.clone()) {
        return Err(MutateError::Wrong(found));
    }
    // A mutant that takes many times as long as the whole grid does not end.
    let longest = runs.iter().map(|(_, instructions)| *instructions).max().unwrap_or(0);
    judge.step_limit = 4 * longest + 10_000;
    let Mutants { mut mutants, invalid } = mutants(&kernel.function);
    if let Some((program, _)) = source {
        mutants.extend(author::mutants(program));
        number(&mut mutants);
    }
    let (total, done) = (mutants.len(), AtomicUsize::new(0));
    progress(0, total);
    let verdicts = mutants
        .into_par_iter()
        .map(|mutant| {
            let (found, reason) = judge.judge(&mutant, seeds)?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            Ok(Verdict { mutant, found, reason })
        })
        .collect::<Result<_, CheckError>>()?;
    Ok(Outcome { verdicts, invalid })
}
