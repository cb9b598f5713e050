//! How many wrong kernels the simulator finds: a compiled kernel is made wrong in every way that this module knows, one at a
//! time, and each mutant is simulated. `tilewright mutate` prints what comes out; `docs/mutation.md` says what did.
//!
//! A mutant is *found* by a launch in which the simulator reports anything, does not come to an end, or leaves another output
//! than the reference interpreter. Inputs are the same in all launches; the simulator's seed, which decides what hardware
//! leaves open, is 0, 1, 2, ….

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use tilewright_compiler::Kernel;
use tilewright_machine::{MbarrierOp, RegType, ScalarOp, SyncOp};
use tilewright_runtime::{Device, RuntimeError, SimDevice};
use tilewright_sim::{Config, SimError};
use tilewright_simt::{Function, Inst, Op, Operand, Value, verify};

use crate::check::{CheckError, CheckOptions, Expected, compare, interpreted, prepare};

/// How a mutant differs from its kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Kind {
    /// A synchronisation is missing.
    Delete,
    /// A synchronisation waits for less, or for something else: a group more stays in flight, an mbarrier counts other bytes or
    /// arrivals or has the other parity, a barrier has a warp less, an arrival or wait orders less.
    Weaken,
    /// A counter of stages, phases or products is not written.
    Skip,
    /// What an elected thread does, more threads do.
    Guard,
    /// Two synchronisations with nothing between them are in the other order.
    Swap,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 5] = [Kind::Delete, Kind::Weaken, Kind::Skip, Kind::Guard, Kind::Swap];
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Delete => "delete",
            Kind::Weaken => "weaken",
            Kind::Skip => "skip",
            Kind::Guard => "guard",
            Kind::Swap => "swap",
        })
    }
}

/// A way to make a function wrong. [`Mutant::apply`] does it.
#[derive(Clone, Debug)]
pub struct Mutant {
    /// The kind.
    pub kind: Kind,
    /// What is changed, in words.
    pub what: String,
    /// The tile statement that the instruction comes from.
    pub origin: String,
    /// Which of those of the same kind, words and statement, counted from 1.
    pub ordinal: usize,
    /// The block of instructions: from the outermost in, the position of a loop or branch and whether its second side is meant.
    block: Vec<(usize, bool)>,
    /// The position in the block.
    index: usize,
    edit: Edit,
}

/// What becomes of an instruction.
#[derive(Clone, Debug)]
enum Edit {
    Remove,
    Replace(Op),
    /// The operand of an operation on an mbarrier becomes `op(operand, literal)`.
    Operand(ScalarOp, u64),
    /// A branch becomes its first side.
    Unguard,
    /// A branch has another condition.
    Condition(Value),
    /// The instruction goes behind the one at this position.
    Behind(usize),
}

impl fmt::Display for Mutant {
    /// The name: unique among the mutants of a function.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in `{}` #{}", self.kind, self.what, self.origin, self.ordinal)
    }
}

impl Mutant {
    /// The mutated function.
    pub fn apply(&self, function: &Function) -> Function {
        let mut mutated = function.clone();
        let fresh = Value(mutated.values.len() as u32);
        if matches!(self.edit, Edit::Operand(..)) {
            mutated.values.push(RegType::B32);
        }
        let mut body = &mut mutated.body;
        for (position, second) in &self.block {
            body = match body.get_mut(*position).map(|inst| &mut inst.op) {
                Some(Op::For { body, .. }) => body,
                Some(Op::If { otherwise, .. }) if *second => otherwise,
                Some(Op::If { then, .. }) => then,
                _ => return mutated,
            };
        }
        if self.index < body.len() {
            self.edit.apply(body, self.index, fresh);
        }
        mutated
    }
}

impl Edit {
    fn apply(&self, body: &mut Vec<Inst>, index: usize, fresh: Value) {
        match self {
            Edit::Remove => {
                body.remove(index);
            }
            Edit::Replace(op) => body[index].op = op.clone(),
            Edit::Operand(op, literal) => {
                let origin = body[index].origin;
                let Op::Mbarrier { operand, .. } = &mut body[index].op else { return };
                match *operand {
                    Operand::Imm(bits) => *operand = Operand::Imm((op.row().eval)(&[bits, *literal])),
                    value => {
                        *operand = fresh.into();
                        let args = vec![value, Operand::Imm(*literal)];
                        body.insert(index, Inst { op: Op::Scalar { dst: fresh, op: *op, args }, origin });
                    }
                }
            }
            Edit::Unguard => {
                let Op::If { then, .. } = &mut body[index].op else { return };
                let then = std::mem::take(then);
                body.splice(index..=index, then);
            }
            Edit::Condition(value) => {
                if let Op::If { condition, .. } = &mut body[index].op {
                    *condition = *value;
                }
            }
            Edit::Behind(other) => body[index..=*other].rotate_left(1),
        }
    }
}

/// The mutants of a function that are valid thread-level programs.
#[derive(Clone, Debug)]
pub struct Mutants {
    /// The mutants, in the order of the program, the outermost block first.
    pub mutants: Vec<Mutant>,
    /// How many more there would be, were they valid.
    pub invalid: usize,
}

/// Every mutant of a function.
pub fn mutants(function: &Function) -> Mutants {
    let mut all = Vec::new();
    let elected = Elected::of(function);
    walk(&function.body, &mut Vec::new(), &mut |block, body| {
        for (index, inst) in body.iter().enumerate() {
            for (kind, what, edit) in edits(function, &elected, body, index) {
                let origin = function.origin(inst.origin).to_string();
                all.push(Mutant { kind, what, origin, ordinal: 0, block: block.to_vec(), index, edit });
            }
        }
    });
    let before = all.len();
    all.retain(|mutant| verify(&mutant.apply(function)).is_ok());
    let invalid = before - all.len();
    let mut seen = BTreeMap::new();
    for mutant in &mut all {
        let count = seen.entry((mutant.kind, mutant.what.clone(), mutant.origin.clone())).or_insert(0);
        *count += 1;
        mutant.ordinal = *count;
    }
    Mutants { mutants: all, invalid }
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

/// The predicates that hold for an elected thread only, and the conjunctions among them.
#[derive(Default)]
struct Elected {
    values: BTreeSet<Value>,
    conjunctions: BTreeMap<Value, Vec<Value>>,
}

impl Elected {
    fn of(function: &Function) -> Self {
        let mut found = Elected::default();
        function.visit(&mut |inst| match &inst.op {
            Op::Elect { dst } => {
                found.values.insert(*dst);
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

/// What an instruction is called, if it is a synchronisation that is to be deleted or moved.
fn synchronisation(op: &Op) -> Option<String> {
    match op {
        Op::Sync(SyncOp::SetMaxRegisters { .. } | SyncOp::DependencyWait | SyncOp::DependentsLaunch) => None,
        Op::Sync(SyncOp::ClusterBarrier) => Some("barrier.cluster".to_string()),
        Op::Sync(sync) => Some(sync.spelling()),
        Op::Mbarrier { op, .. } => Some(op.name().to_string()),
        _ => None,
    }
}

fn edits(function: &Function, elected: &Elected, body: &[Inst], index: usize) -> Vec<(Kind, String, Edit)> {
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
                _ => None,
            };
            if let Some(weaker) = weaker {
                let what = format!("{} to {}", op.name(), weaker.name());
                let weaker = Op::Mbarrier { op: weaker, address: *address, operand: *operand };
                all.push((Kind::Weaken, what, Edit::Replace(weaker)));
            }
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
            for part in elected.conjunctions.get(condition).into_iter().flatten() {
                let what = if elected.values.contains(part) {
                    "one thread of each warp"
                } else {
                    "all threads of the warp"
                };
                all.push((Kind::Guard, what.to_string(), Edit::Condition(*part)));
            }
        }
        _ => {}
    }
    all
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
        SyncOp::ClusterBarrier => vec![SyncOp::Barrier],
        SyncOp::Barrier => vec![SyncOp::WarpBarrier],
        _ => Vec::new(),
    }
}

/// What gave a mutant away.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Sign {
    /// A race on shared memory.
    Race,
    /// A rule of mbarriers, asynchronous units or their registers.
    Protocol,
    /// An access out of bounds, misaligned, or to bytes that nothing has written.
    Access,
    /// Warps wait for what never comes.
    Deadlock,
    /// The launch does not come to its end for another reason.
    Failure,
    /// An output that is not the interpreter's.
    Output,
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
        })
    }
}

/// The launch in which a mutant was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The simulator's seed.
    pub seed: u64,
    /// What gave it away.
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
}

/// What became of all mutants of a kernel.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// One entry a mutant.
    pub verdicts: Vec<Verdict>,
    /// Mutants that are no valid thread-level programs and were not run.
    pub invalid: usize,
}

impl Outcome {
    /// How many were found.
    pub fn found(&self) -> usize {
        self.verdicts.iter().filter(|v| v.found.is_some()).count()
    }

    /// Those that were not found.
    pub fn survivors(&self) -> impl Iterator<Item = &Mutant> {
        self.verdicts.iter().filter(|v| v.found.is_none()).map(|v| &v.mutant)
    }

    /// The share of mutants that were found; 1 where there are none.
    pub fn score(&self) -> f64 {
        if self.verdicts.is_empty() { 1.0 } else { self.found() as f64 / self.verdicts.len() as f64 }
    }
}

/// Why a kernel's mutants could not be judged.
#[derive(Debug, thiserror::Error)]
pub enum MutateError {
    /// The kernel cannot be run, or its program not be interpreted.
    #[error(transparent)]
    Check(#[from] CheckError),
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

    /// The first of so many launches that finds something.
    fn judge(&self, mutant: &Mutant, seeds: u64) -> Result<Option<Found>, CheckError> {
        let function = mutant.apply(&self.kernel.function);
        let kernel = Kernel { function, ..self.kernel.clone() };
        for seed in 0..seeds {
            let (found, _) = self.launch(&kernel, seed)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}

/// Simulates the kernel itself with `seeds` seeds, then each of its mutants with as many until it is found. Mutants are
/// simulated in parallel; `progress` is told, from any thread, how many are judged and how many there are.
///
/// # Errors
///
/// Where the kernel cannot be run, or is found wrong itself.
pub fn mutate(
    kernel: &Kernel,
    inputs: &CheckOptions,
    seeds: u64,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Outcome, MutateError> {
    let expected = interpreted(kernel, inputs)?;
    let mut judge = Judge { kernel, inputs, expected, step_limit: Config::default().step_limit };
    let runs: Vec<(Option<Found>, u64)> =
        (0..seeds).into_par_iter().map(|seed| judge.launch(kernel, seed)).collect::<Result<_, _>>()?;
    if let Some(found) = runs.iter().find_map(|(found, _)| found.clone()) {
        return Err(MutateError::Wrong(found));
    }
    // A mutant that takes many times as long as the whole grid does not end.
    let longest = runs.iter().map(|(_, instructions)| *instructions).max().unwrap_or(0);
    judge.step_limit = 4 * longest + 10_000;
    let Mutants { mutants, invalid } = mutants(&kernel.function);
    let (total, done) = (mutants.len(), AtomicUsize::new(0));
    progress(0, total);
    let verdicts = mutants
        .into_par_iter()
        .map(|mutant| {
            let found = judge.judge(&mutant, seeds)?;
            progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
            Ok(Verdict { mutant, found })
        })
        .collect::<Result<_, CheckError>>()?;
    Ok(Outcome { verdicts, invalid })
}
