//! Notes on statements, for reports.

use tilewright_machine::{AtomicOp, DType, Memory, MemoryOrder, Timing, atomic};
use tilewright_tile::core::{Program, Stmt, StmtKind, TensorRef};
use tilewright_tile::{Multicast, TensorId, rounded};

use crate::cast;
use crate::copies::{own_layout, plan_name};
use crate::cost::{Parts, arithmetic_of, operation_names, vote};
use crate::explain::{Alternative, StatementNote};
use crate::gather::GatherPlan;
use crate::movement::Movement;
use crate::options::Options;
use crate::plan::{CopyPlan, StmtPlan};
use crate::reduce::Meeting;
use crate::shared::{SharedUse, count};
use crate::synthesis::TensorLayout;
use crate::tv::moves;

/// The memories of a copy's source and destination, in letters, and the tensor in memory that it is about; nothing for copies between
/// registers.
pub(crate) fn level(verified: &Program, (src, dst): (&TensorRef, &TensorRef)) -> (String, String) {
    let tensor = |r: &TensorRef| verified.tensor(r.tensor);
    let letter = |r: &TensorRef| match tensor(r).memory() {
        Memory::Global => 'G',
        Memory::Shared => 'S',
        Memory::Register => 'R',
        Memory::Tensor => 'T',
    };
    let (from, to) = (letter(src), letter(dst));
    let about = match (from, to) {
        ('R', 'R') => return Default::default(),
        ('R', _) | ('G', 'S') => dst,
        _ => src,
    };
    (format!("{from}2{to}"), tensor(about).name.clone())
}

/// The note of a statement; `None` where it does nothing worth one.
pub(crate) fn note(
    (verified, options): (&Program, &Options),
    stmt: &Stmt,
    plan: &StmtPlan,
    tensors: &[Option<TensorLayout>],
    alternatives: Vec<Alternative>,
) -> Option<StatementNote> {
    let timing = options.timing();
    let warps = verified.threads() / 32;
    let mut note = StatementNote {
        id: stmt.id,
        text: tilewright_tile::statement_text(verified, stmt),
        position: stmt.span.text().map_or(0, |span| span.start),
        instruction: String::new(),
        calls: 0,
        per_call: 4,
        level: String::new(),
        tensor: String::new(),
        by_tma: false,
        by_descriptor: Vec::new(),
        small_values: 0,
        global_bytes: 0,
        shared_bytes: 0,
        shared_calls: 0,
        wavefronts: 0,
        bank_conflicts: 0,
        cycles: 0,
        alternatives,
    };
    match plan {
        StmtPlan::None | StmtPlan::Repeat(_) if matches!(stmt.kind, StmtKind::Elementwise { .. }) => {
            let parts: &[_] = if let StmtPlan::Repeat(parts) = plan { parts } else { &[] };
            elementwise((verified, timing), stmt, (tensors, parts), &mut note)?;
        }
        StmtPlan::None if matches!(stmt.kind, StmtKind::IfAny { .. }) => {
            let StmtKind::IfAny { condition, .. } = &stmt.kind else { return None };
            let TensorLayout::Register(tv) = tensors[condition.0 as usize].as_ref()? else { return None };
            note.issues("vote.sync.any".to_string(), 1, vote(timing, tv.count()).ceil() as u32);
        }
        StmtPlan::None | StmtPlan::Repeat(_) => {
            let (plan, small) = cast_plan(verified, options, stmt, tensors)?;
            note.issues(plan.name(), plan.calls(), plan.cycles(timing));
            note.small_values = small;
        }
        StmtPlan::Move(plan) => {
            note.issues(plan.name(), plan.calls(), plan.cycles(timing));
            if let Movement::Shared(trip) = plan {
                note.passes(trip.store.row.bytes, plan.calls(), trip.wavefronts() * warps);
            }
        }
        StmtPlan::Halves(_) => note.issues("nothing".to_string(), 0, 0),
        StmtPlan::Flag { .. } => note.issues(flag_instruction(&stmt.kind)?, 1, 1),
        StmtPlan::Reduce(plan) => {
            let shared = plan.shared_instructions();
            let calls = (plan.lanes.len() * plan.local.len()) as u32 + shared;
            let (mut name, mut bytes, mut wavefronts) = ("shfl.sync".to_string(), 0, 0);
            match &plan.meeting {
                Meeting::None => {}
                Meeting::Warps(trip) => {
                    name = format!("{name}, {} + {}", trip.store.row.name, trip.load.row.name);
                    (bytes, wavefronts) = (trip.store.row.bytes, trip.wavefronts() * warps);
                }
                Meeting::Threads(exchange) => {
                    name = format!("{name}, {} parts in shared memory", exchange.extent);
                    (bytes, wavefronts) = (4, plan.meeting.calls() * warps);
                }
            }
            note.issues(name, calls, plan.cycles(timing));
            note.passes(bytes, shared, wavefronts);
        }
        StmtPlan::Pick(plan) => {
            note.issues(plan.name(), plan.calls(), plan.cycles(timing));
            note.passes(4, plan.shared_calls(), plan.shared_calls() * warps);
        }
        StmtPlan::Arg(plan) => {
            note.issues("shfl.sync".to_string(), plan.calls(), plan.cycles(timing));
            note.passes(4, plan.shared_calls(), plan.shared_calls() * warps);
        }
        StmtPlan::Combine(plan) => {
            note.issues(plan.name(), plan.calls(), plan.cycles(timing));
            note.passes(4, plan.up.shared_calls(), plan.up.shared_calls() * warps);
        }
        StmtPlan::Sort(plan) => {
            note.issues("bitonic sort".to_string(), plan.calls(), plan.cycles(timing));
            note.passes(4, plan.shared_calls(), plan.shared_calls() * warps);
        }
        StmtPlan::Scan(plan) => {
            note.issues(plan.name(), plan.calls(), plan.cycles(timing));
            note.passes(4, plan.shared_calls(), plan.shared_calls() * warps);
        }
        StmtPlan::Gather(plan) => {
            note.issues(plan.name(), plan.calls(), plan.cycles(timing));
            if let GatherPlan::Shared(gather) = plan {
                note.passes(gather.store.row.bytes, plan.calls(), 0);
            }
        }
        StmtPlan::Gemm(plan) => {
            let calls = plan.calls.len() as u32;
            let cycles = (f64::from(calls) * timing.cost(plan.row).issue) as u32;
            note.issues(plan.row.name.to_string(), calls, cycles);
            note.per_call = plan.row.macs() as u32;
        }
        StmtPlan::Wgmma(plan) => {
            note.issues(plan.name(), plan.calls.len() as u32, plan.cycles(timing));
            note.per_call = plan.row.macs() as u32;
            let StmtKind::GemmAsync { a, b, .. } = &stmt.kind else { return None };
            let factors = [a, b].map(|factor| verified.tensor(factor.tensor));
            let shared = factors.into_iter().filter(|tensor| tensor.memory() == Memory::Shared);
            note.by_descriptor = shared.map(|tensor| tensor.name.clone()).collect();
        }
        StmtPlan::Sums(plan) => {
            note.issues(plan.name(), plan.calls.len() as u32, plan.cycles(timing));
            note.per_call = plan.row.macs() as u32;
            let StmtKind::GemmAsync { a, b, scales, .. } = &stmt.kind else { return None };
            let read = [a, b].into_iter().chain(scales.iter().flatten());
            let tensors = read.map(|factor| verified.tensor(factor.tensor));
            let shared = tensors.filter(|tensor| tensor.memory() == Memory::Shared);
            note.by_descriptor = shared.map(|tensor| tensor.name.clone()).collect();
        }
        StmtPlan::TensorCopy(plan) => {
            let StmtKind::Copy { src, dst, .. } = &stmt.kind else { return None };
            (note.level, note.tensor) = level(verified, (src, dst));
            note.issues(plan.row.name.to_string(), plan.calls.len() as u32, plan.cycles(timing));
            note.per_call = 4 * plan.row.registers();
        }
        StmtPlan::Tma(plan) => {
            let StmtKind::CopyAsync { src, dst, .. } = &stmt.kind else { return None };
            (note.level, note.tensor) = level(verified, (src, dst));
            let calls = plan.calls.len() as u32;
            note.issues(plan.name(), calls, calls * timing.cost(plan.row.op).whole_issue());
            note.per_call = plan.shape.bytes() as u32;
            note.by_tma = true;
            note.global_bytes = plan.shape.extents[0] * plan.shape.dtype.bits() / 8;
            note.passes(plan.shape.swizzle.span(), 0, (plan.bytes() as u32).div_ceil(128));
        }
        StmtPlan::Copy(plan) => copy((verified, timing), stmt, plan, tensors, &mut note)?,
    }
    Some(note)
}

/// The note of an elementwise statement: its operations, each with the times that it is done for a value.
fn elementwise(
    (verified, timing): (&Program, &Timing),
    stmt: &Stmt,
    (tensors, parts): (&[Option<TensorLayout>], Parts<'_>),
    note: &mut StatementNote,
) -> Option<()> {
    let StmtKind::Elementwise { dst, expr } = &stmt.kind else { return None };
    let values = |id: TensorId| match tensors.get(id.0 as usize) {
        Some(Some(TensorLayout::Register(tv))) => tv.count() as f64,
        _ => 0.0,
    };
    let tree = rounded(expr, verified.tensor(*dst).dtype, verified).ok()?;
    let cycles = arithmetic_of((verified, timing), &values, stmt, parts)?;
    let names = operation_names(&tree);
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for name in &names {
        match counted.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => *count += 1,
            None => counted.push((name, 1)),
        }
    }
    let text = |(name, count): &(&str, usize)| match count {
        1 => (*name).to_string(),
        count => format!("{count} {name}"),
    };
    let operations: Vec<String> = counted.iter().map(text).collect();
    let instruction = if operations.is_empty() { "moved".to_string() } else { operations.join(", ") };
    note.issues(format!("({instruction})"), values(*dst) as u32, cycles.ceil() as u32);
    Some(())
}

/// The plan of a statement if it is a cast, and the values of a thread where these are of at most 8 bits.
fn cast_plan(
    verified: &Program,
    options: &Options,
    stmt: &Stmt,
    tensors: &[Option<TensorLayout>],
) -> Option<(cast::Plan, u32)> {
    let StmtKind::Cast { dst, src } = &stmt.kind else { return None };
    let register = |id: &TensorId| match &tensors[id.0 as usize] {
        Some(TensorLayout::Register(tv)) => Some(tv),
        _ => None,
    };
    let (from, to) = (register(src)?, register(dst)?);
    let dtype = |id: &TensorId| verified.tensor(*id).dtype;
    // A result may have the values in another order.
    let order: Vec<u32> = match to.same_function(from) {
        true => (0..from.count() as u32).collect(),
        false => {
            moves(from, to, i64::from(verified.threads()))?.into_iter().map(|(value, _)| value).collect()
        }
    };
    let small = if dtype(src).bits() <= 8 { order.len() as u32 } else { 0 };
    Some((cast::plan_in_order(dtype(src), dtype(dst), options.arch, &order).ok()?, small))
}

impl StatementNote {
    /// Says what a statement issues.
    fn issues(&mut self, instruction: String, calls: u32, cycles: u32) {
        (self.instruction, self.calls, self.cycles) = (instruction, calls, cycles);
    }

    /// Says what goes through shared memory.
    fn passes(&mut self, bytes: u32, calls: u32, wavefronts: u32) {
        (self.shared_bytes, self.shared_calls, self.wavefronts) = (bytes, calls, wavefronts);
    }
}

/// The note of a copy that is not by the tensor memory accelerator.
fn copy(
    (verified, timing): (&Program, &Timing),
    stmt: &Stmt,
    plan: &CopyPlan,
    tensors: &[Option<TensorLayout>],
    note: &mut StatementNote,
) -> Option<()> {
    let (calls, per_call, issue) = match plan {
        CopyPlan::Direct { row, access }
        | CopyPlan::Async { row, access }
        | CopyPlan::Fetch { row, access, .. } => {
            (access.calls.len(), row.bytes_per_lane(), timing.lsu_issue(row))
        }
        CopyPlan::Staged { load, store, access } => {
            (access.calls.len(), load.bytes, timing.lsu_issue(load) + timing.lsu_issue(store))
        }
        CopyPlan::Registers { moves } => (moves.len(), 4, 1.0),
    };
    note.issues(plan_name(plan), calls as u32, (calls as f64 * issue) as u32);
    note.per_call = per_call;
    let (src, dst) = stmt.kind.copied()?;
    (note.level, note.tensor) = level(verified, (src, dst));
    if let StmtKind::CopyAsync { how, .. } = &stmt.kind {
        if matches!(plan, CopyPlan::Staged { .. }) {
            note.instruction += " (through registers, at once: no asynchronous copy has this width)";
        }
        // What only tensor copies take into account, and changes no value.
        let shares = how.multicast.map(Multicast::word);
        let lost = shares.into_iter().chain(how.hint.map(|hint| hint.name()));
        for word in lost {
            note.instruction += &format!(" (without `{word}`, which only tensor copies have)");
        }
    }
    let (row, access) = match plan {
        CopyPlan::Direct { row, access }
        | CopyPlan::Async { row, access }
        | CopyPlan::Fetch { row, access, .. } => (*row, access),
        CopyPlan::Staged { store, access, .. } => (*store, access),
        CopyPlan::Registers { .. } => return Some(()),
    };
    let warps = verified.threads() / 32;
    for reference in [src, dst] {
        match &tensors[reference.tensor.0 as usize] {
            Some(TensorLayout::Shared { layout, .. }) => {
                let bits = verified.tensor(reference.tensor).dtype.bits();
                let tile = own_layout(verified, reference)?;
                let usage = SharedUse { row, access, own: &tile, weight: 1 };
                let counted = count(&usage, layout, bits, 0..i64::from(warps))?;
                note.passes(row.bytes, access.calls.len() as u32, counted.actual);
                note.bank_conflicts = counted.conflicts();
                note.cycles += counted.conflicts() / warps.max(1);
            }
            Some(TensorLayout::Register(_)) => {}
            None => note.global_bytes = row.bytes,
        }
    }
    Some(())
}

/// The instruction that changes a flag, or looks at it.
fn flag_instruction(kind: &StmtKind) -> Option<String> {
    let row = |op| atomic(op, DType::I32, Memory::Global);
    Some(match kind {
        StmtKind::Signal { combine, .. } => {
            let row = row(combine.map_or(AtomicOp::Exchange, AtomicOp::Combine))?;
            row.mnemonic(MemoryOrder::Release, false)
        }
        StmtKind::Ticket { .. } => {
            let row = atomic(AtomicOp::Increment, DType::U32, Memory::Global)?;
            row.mnemonic(MemoryOrder::AcquireRelease, true)
        }
        _ => "ld.acquire.gpu.global.b32".to_string(),
    })
}
