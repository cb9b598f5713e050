//! What a report says of a statement.

use tilewright_machine::Memory;
use tilewright_tile::TensorId;
use tilewright_tile::core::{Program, StmtKind, TensorRef};

use crate::copies::{own_layout, plan_name};
use crate::explain::{Alternative, StatementNote};
use crate::options::Options;
use crate::plan::{CopyPlan, StmtPlan};
use crate::shared::{SharedUse, count};
use crate::synthesis::TensorLayout;
use crate::{cast, gather, movement};

/// From where to where a copy goes, in letters, and the tensor in memory that it is about; nothing for copies between registers.
pub(crate) fn level(verified: &Program, (src, dst): (&TensorRef, &TensorRef)) -> (String, String) {
    let tensor = |r: &TensorRef| verified.tensor(r.tensor);
    let letter = |r: &TensorRef| match tensor(r).memory() {
        Memory::Global => 'G',
        Memory::Shared => 'S',
        Memory::Register => 'R',
    };
    let (from, to) = (letter(src), letter(dst));
    let about = match (from, to) {
        ('R', 'R') => return Default::default(),
        ('R', _) | ('G', 'S') => dst,
        _ => src,
    };
    (format!("{from}2{to}"), tensor(about).name.clone())
}

pub(crate) fn note(
    (verified, options): (&Program, &Options),
    stmt: &tilewright_tile::core::Stmt,
    plan: &StmtPlan,
    tensors: &[Option<TensorLayout>],
    alternatives: Vec<Alternative>,
) -> Option<StatementNote> {
    let timing = options.timing();
    let text = tilewright_tile::statement_text(verified, stmt);
    let position = stmt.span.text().map_or(0, |span| span.start);
    // What touches no global memory; without words of shared memory, registers alone.
    let local = |instruction: String,
                 (calls, per_call): (u32, u32),
                 (shared, shared_calls, wavefronts): (u32, u32, u32),
                 cycles,
                 others| {
        Some(StatementNote {
            id: stmt.id,
            text: text.clone(),
            position,
            instruction,
            calls,
            per_call,
            level: String::new(),
            tensor: String::new(),
            global_bytes: 0,
            shared_bytes: shared,
            shared_calls,
            wavefronts,
            bank_conflicts: 0,
            cycles,
            alternatives: others,
        })
    };
    let moved = |name, calls, shared, cycles, others| local(name, (calls, 4), shared, cycles, others);
    let product = |name, calls, cycles, others| local(name, calls, (0, 0, 0), cycles, others);
    let warps = verified.threads() / 32;
    let copy = match plan {
        StmtPlan::None => {
            let StmtKind::Cast { dst, src } = &stmt.kind else { return None };
            let Some(TensorLayout::Register(tv)) = &tensors[src.0 as usize] else { return None };
            let dtype = |id: &TensorId| verified.tensor(*id).dtype;
            let plan = cast::plan(dtype(src), dtype(dst), options.arch, tv.count() as u32).ok()?;
            return moved(plan.name(), plan.calls(), (0, 0, 0), plan.cycles(timing), alternatives);
        }
        StmtPlan::Move(movement) => {
            let shared = match movement {
                movement::Movement::Shared(trip) => {
                    (trip.store.row.bytes, movement.calls(), trip.wavefronts() * warps)
                }
                _ => (0, 0, 0),
            };
            let (name, calls, cycles) = (movement.name(), movement.calls(), movement.cycles(timing));
            return moved(name, calls, shared, cycles, alternatives);
        }
        StmtPlan::Halves(_) => return moved("nothing".to_string(), 0, (0, 0, 0), 0, alternatives),
        StmtPlan::Reduce(plan) => {
            let calls = plan.lanes.len() as u32 * plan.local.len() as u32;
            let (name, shared, wavefronts) = match &plan.warps {
                Some(trip) => {
                    let name = format!("shfl.sync, {} + {}", trip.store.row.name, trip.load.row.name);
                    (name, trip.store.row.bytes, trip.wavefronts() * warps)
                }
                None => ("shfl.sync".to_string(), 0, 0),
            };
            let shared_calls = plan.shared_instructions();
            let shared = (shared, shared_calls, wavefronts);
            return moved(name, calls + shared_calls, shared, plan.cycles(timing), alternatives);
        }
        StmtPlan::Gather(plan) => {
            let shared = match plan {
                gather::GatherPlan::Shared(g) => (g.store.row.bytes, plan.calls(), 0),
                gather::GatherPlan::Warp(_) => (0, 0, 0),
            };
            return moved(plan.name(), plan.calls(), shared, plan.cycles(timing), alternatives);
        }
        StmtPlan::Gemm(plan) => {
            let issue = timing.cost(plan.row).issue;
            let calls = (plan.calls.len() as u32, plan.row.macs() as u32);
            let cycles = (f64::from(calls.0) * issue) as u32;
            return product(plan.row.name.to_string(), calls, cycles, alternatives);
        }
        StmtPlan::Tma(plan) => {
            let StmtKind::CopyAsync { src, dst, .. } = &stmt.kind else { return None };
            let (level, tensor) = level(verified, (src, dst));
            let bytes = plan.bytes() as u32;
            return Some(StatementNote {
                id: stmt.id,
                text,
                position,
                instruction: plan.name(),
                calls: plan.calls.len() as u32,
                per_call: plan.shape.bytes() as u32,
                level,
                tensor,
                global_bytes: plan.shape.extents[0] * plan.shape.dtype.bits() / 8,
                shared_bytes: plan.shape.swizzle.span(),
                shared_calls: 0,
                wavefronts: bytes.div_ceil(128),
                bank_conflicts: 0,
                cycles: plan.calls.len() as u32 * timing.cost(plan.row.op).whole_issue(),
                alternatives,
            });
        }
        StmtPlan::Wgmma(plan) => {
            let calls = (plan.calls.len() as u32, plan.row.macs() as u32);
            return product(plan.name(), calls, plan.cycles(timing), alternatives);
        }
        StmtPlan::Copy(copy) => copy,
    };
    let (calls, per_call, issue) = match copy {
        CopyPlan::Direct { row, access } | CopyPlan::Async { row, access } => {
            (access.calls.len(), row.bytes_per_lane(), timing.lsu_issue(row))
        }
        CopyPlan::Staged { load, store, access } => {
            (access.calls.len(), load.bytes, timing.lsu_issue(load) + timing.lsu_issue(store))
        }
        CopyPlan::Registers { moves } => (moves.len(), 4, 1.0),
    };
    let (level, tensor) = stmt.kind.copied().map_or_else(Default::default, |ends| level(verified, ends));
    let mut result = StatementNote {
        id: stmt.id,
        text,
        position,
        instruction: plan_name(copy),
        calls: calls as u32,
        per_call,
        level,
        tensor,
        global_bytes: 0,
        shared_bytes: 0,
        shared_calls: 0,
        wavefronts: 0,
        bank_conflicts: 0,
        cycles: (calls as f64 * issue) as u32,
        alternatives,
    };
    if let (StmtKind::CopyAsync { .. }, CopyPlan::Staged { .. }) = (&stmt.kind, copy) {
        result.instruction += " (through registers, at once: no asynchronous copy has this width)";
    }
    if let StmtKind::CopyAsync { how, .. } = &stmt.kind {
        // What only tensor copies take into account, and changes no value.
        let lost = how.multicast.then_some("multicast").into_iter().chain(how.hint.map(|hint| hint.name()));
        for word in lost {
            result.instruction += &format!(" (without `{word}`, which only tensor copies have)");
        }
    }
    let Some((src, dst)) = stmt.kind.copied() else { return Some(result) };
    let (row, access) = match copy {
        CopyPlan::Direct { row, access } | CopyPlan::Async { row, access } => (*row, access),
        CopyPlan::Staged { store, access, .. } => (*store, access),
        CopyPlan::Registers { .. } => return Some(result),
    };
    let program = verified;
    for reference in [src, dst] {
        match &tensors[reference.tensor.0 as usize] {
            Some(TensorLayout::Shared { layout, .. }) => {
                let bits = program.tensor(reference.tensor).dtype.bits();
                let own = own_layout(verified, reference)?;
                let usage = SharedUse { row, access, own: &own, weight: 1 };
                let w = count(&usage, layout, bits, 0..i64::from(verified.threads()) / 32)?;
                result.shared_bytes = row.bytes;
                result.shared_calls = access.calls.len() as u32;
                result.wavefronts = w.actual;
                result.bank_conflicts = w.conflicts();
                result.cycles += w.conflicts() / (verified.threads() / 32).max(1);
            }
            Some(TensorLayout::Register(_)) => {}
            None => result.global_bytes = row.bytes,
        }
    }
    Some(result)
}
