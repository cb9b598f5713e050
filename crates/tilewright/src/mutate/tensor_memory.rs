//! Reasons about tensor memory: fences that pass nothing on, or behind which another stands, and lanes that have met in a copy.

use tilewright_machine::{MbarrierOp, Memory, SyncOp};
use tilewright_simt::{Function, Inst, Op, Operand};

use super::flow::{Facts, Target};
use super::mutant::{Edit, Mutant, block_of};
use super::reasons::{Reason, waits_for_nothing};

/// Copies of tensor memory that no `tcgen05.fence::before_thread_sync` has passed on.
#[derive(Clone, PartialEq)]
struct Unpassed(bool);

impl Facts for Unpassed {
    fn execute(&mut self, op: &Op) {
        match op {
            Op::TensorCopy { .. } => self.0 = true,
            Op::Sync(SyncOp::TensorFenceBefore) => self.0 = false,
            _ => {}
        }
    }

    fn meet(&mut self, other: &Self) {
        self.0 |= other.0;
    }
}

/// The first of these that the ways from a place come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// A `tcgen05.fence::after_thread_sync`, on every way.
    Fence,
    /// On some way tensor memory, or the end of a loop that ends anywhere.
    Touch,
    /// Neither, on some way.
    Neither,
}

fn touches(op: &Op) -> bool {
    matches!(
        op,
        Op::TensorCopy { .. }
            | Op::Tcgen05 { .. }
            | Op::ScaleCopy { .. }
            | Op::TensorFree { .. }
            | Op::Break { .. }
    )
}

fn next(body: &[Inst]) -> Next {
    for inst in body {
        let found = match &inst.op {
            Op::Sync(SyncOp::TensorFenceAfter) => Next::Fence,
            Op::If { then, otherwise, .. } => match (next(then), next(otherwise)) {
                (Next::Touch, _) | (_, Next::Touch) => Next::Touch,
                (Next::Fence, Next::Fence) => Next::Fence,
                _ => Next::Neither,
            },
            // A loop may have no round.
            Op::For { body, .. } => match next(body) {
                Next::Touch => Next::Touch,
                _ => Next::Neither,
            },
            op if touches(op) => Next::Touch,
            _ => Next::Neither,
        };
        if found != Next::Neither {
            return found;
        }
    }
    Next::Neither
}

/// True if another fence follows on every way before the thread touches tensor memory.
fn fence_follows(function: &Function, mut block: &[(usize, bool)], mut index: usize) -> bool {
    loop {
        let Some(body) = block_of(function, block) else { return false };
        match next(&body[index + 1..]) {
            Next::Fence => return true,
            Next::Touch => return false,
            Next::Neither => {}
        }
        let Some((last, outer)) = block.split_last() else { return true };
        let container = block_of(function, outer).and_then(|body| body.get(last.0));
        if let Some(Op::For { body, .. }) = container.map(|inst| &inst.op)
            && next(body) == Next::Touch
        {
            return false;
        }
        (block, index) = (outer, last.0);
    }
}

/// True if lanes do nothing but copies of tensor memory and arithmetic, and store to global memory, which is no stage.
fn copies_alone(op: &Op) -> bool {
    match op {
        Op::Sync(
            SyncOp::TensorWaitLoad
            | SyncOp::TensorWaitStore
            | SyncOp::TensorFenceBefore
            | SyncOp::TensorFenceAfter
            | SyncOp::WarpBarrier,
        )
        | Op::TensorCopy { .. }
        | Op::WriteReg { .. }
        | Op::Vote { .. } => true,
        Op::Store { row, .. } => row.dst == Memory::Global,
        Op::For { body, .. } => body.iter().all(|inst| copies_alone(&inst.op)),
        Op::If { then, otherwise, .. } => then.iter().chain(otherwise).all(|inst| copies_alone(&inst.op)),
        op => op.is_removable(),
    }
}

/// True if the lanes of a warp meet in an instruction, or in a loop that has a round.
fn meets(op: &Op) -> bool {
    match op {
        Op::Sync(SyncOp::TensorWaitLoad | SyncOp::TensorWaitStore) | Op::Vote { .. } => true,
        Op::For { lo: Operand::Imm(lo), hi: Operand::Imm(hi), body, .. } => {
            lo < hi && body.iter().any(|inst| meets(&inst.op))
        }
        _ => false,
    }
}

/// True if the lanes of a warp have done nothing but copies of tensor memory since a wait for an mbarrier, which copies and their waits are the warp's; in a branch that the
/// warp has voted about they have met in the vote.
fn met_in_copies(before: &[Inst]) -> bool {
    let mut met = false;
    for inst in before.iter().rev() {
        match &inst.op {
            Op::Mbarrier { op: MbarrierOp::Wait, .. } => return met,
            op if copies_alone(op) => met |= meets(op),
            _ => return false,
        }
    }
    false
}

/// True if a thread learns nothing of others by an instruction: it computes, or issues products and their commits.
fn issues_alone(op: &Op) -> bool {
    match op {
        Op::Tcgen05 { .. }
        | Op::Elect { .. }
        | Op::WriteReg { .. }
        | Op::Mbarrier { op: MbarrierOp::Commit | MbarrierOp::CommitPeers, .. } => true,
        Op::If { then, otherwise, .. } => then.iter().chain(otherwise).all(|inst| issues_alone(&inst.op)),
        op => op.is_removable(),
    }
}

/// True if a `tcgen05.fence::after_thread_sync` stands before this one, and the thread has waited for nothing since.
fn fenced_before(function: &Function, block: &[(usize, bool)], body: &[Inst], position: usize) -> bool {
    for (at, inst) in body[..position].iter().enumerate().rev() {
        match &inst.op {
            Op::Sync(SyncOp::TensorFenceAfter) => return true,
            Op::Mbarrier { op: MbarrierOp::Wait, .. } if waits_for_nothing(function, block, at) => {}
            op if issues_alone(op) => {}
            _ => return false,
        }
    }
    false
}

/// True if a `tcgen05.wait::st` follows with nothing but further stores to tensor memory between.
fn stores_waited_for(behind: &[Inst]) -> bool {
    for inst in behind {
        match &inst.op {
            Op::Sync(SyncOp::TensorWaitStore) => return true,
            Op::TensorCopy { row, .. } if row.dst == Memory::Tensor => {}
            Op::WriteReg { .. } => {}
            op if op.is_removable() => {}
            _ => return false,
        }
    }
    false
}

/// Reason why what is about tensor memory may be missing, or stand on the other side of a synchronisation.
pub(super) fn reason(function: &Function, mutant: &Mutant) -> Option<Reason> {
    let body = block_of(function, &mutant.block)?;
    let positions = match mutant.edit {
        Edit::Behind(position) => vec![mutant.index, position],
        Edit::Remove => vec![mutant.index],
        _ => return None,
    };
    let at = |sync: SyncOp| {
        positions
            .iter()
            .copied()
            .find(|position| body.get(*position).is_some_and(|inst| inst.op == Op::Sync(sync)))
    };
    if at(SyncOp::TensorFenceBefore).is_some()
        && Unpassed(false).before(function, Target::of(mutant)).is_some_and(|copies| !copies.0)
    {
        return Some(Reason::NothingToPass);
    }
    if let Some(position) = at(SyncOp::TensorFenceAfter)
        && fence_follows(function, &mutant.block, position)
    {
        return Some(Reason::WaitFollows(SyncOp::TensorFenceAfter.spelling()));
    }
    if let Some(position) = at(SyncOp::TensorFenceAfter)
        && fenced_before(function, &mutant.block, body, position)
    {
        return Some(Reason::HasWaited(SyncOp::TensorFenceAfter.spelling()));
    }
    let removed = positions.len() == 1;
    if removed && at(SyncOp::TensorWaitStore).is_some_and(|position| stores_waited_for(&body[position + 1..]))
    {
        return Some(Reason::WaitFollows(SyncOp::TensorWaitStore.spelling()));
    }
    if removed && at(SyncOp::TensorRelinquish).is_some() {
        return Some(Reason::OtherBlocks);
    }
    let position = at(SyncOp::WarpBarrier)?;
    let alone = removed || at(SyncOp::TensorFenceBefore).is_some();
    (alone && met_in_copies(&body[..position])).then_some(Reason::MetInCopies)
}
