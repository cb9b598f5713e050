//! Reasons why a mutant is as right as its kernel, decided by looking at the function: what they say holds wherever they are given.

use std::fmt;

use tilewright_machine::{BulkOp, MbarrierOp, ProxyFence, SumsScaling, SyncOp, TensorOp};
use tilewright_simt::{Function, Inst, Op, Operand, Reg, Value};

use super::flow::{Constants, Facts, InFlight, Target, Unfenced, engine, read_behind};
use super::mutant::{Edit, Kind, Mutant, block_of};
use super::tensor_memory;

/// Proof that a mutant that was not found is as right as its kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It waits for more than the kernel, so all is ordered that is ordered there.
    WaitsForMore,
    /// Two initialisations of different mbarriers are in the other order: nobody looks before what follows both.
    Initialisations,
    /// A fence of the same run of fences and initialisations orders the same: the one named.
    OtherFence(String),
    /// The fence orders registers, and what it changes places with touches none.
    Registers,
    /// A wait that covers it follows before any memory of the block is touched or any group begun: the one named.
    WaitFollows(String),
    /// A wait that covers it came before, and nothing has begun since: the one named.
    HasWaited(String),
    /// No instruction that can follow reads the register.
    Unread,
    /// The register holds the value already, in every thread.
    SameValue,
    /// No operation of its engine can be in flight there.
    NothingInFlight,
    /// The two close or wait for groups of different engines.
    OtherEngine,
    /// The same threads wait for the mbarrier, before the barrier instead of behind it: what follows comes after both.
    WaitsBefore,
    /// It waits for the stage's release before the first use of the stage.
    FirstUse,
    /// No register of the products up to the next fence was written since the last fence.
    FencedBefore,
    /// More threads compute registers that hold nothing yet: who reads them there has written them since.
    NothingHeld,
    /// More threads store the same bytes of shared memory to the same place, each waiting for its own stores.
    SameBytes,
    /// No access to shared memory, and no other synchronisation, comes before it.
    NothingBefore,
    /// The block has one warp.
    OneWarp,
    /// The compiler makes the same kernel of it.
    SameKernel,
    /// The fence covers all state spaces that the kernel's does.
    CoversMore,
    /// The fence is on the other side of the barrier, and every thread of the barrier has it there: it is still on every way from what
    /// comes before to what comes after (PTX ISA, proxy-preserved base causality order).
    OtherSide,
    /// The kernel has no other wait for the launches before it: it is no longer launched before they have ended.
    NotDependent,
    /// Another barrier of the same threads stands beside it, with no access to memory between.
    OtherBarrier,
    /// The thread has copied nothing between registers and tensor memory since the last fence that passes copies on.
    NothingToPass,
    /// It lets other blocks of the multiprocessor allocate tensor memory.
    OtherBlocks,
    /// The lanes have done nothing but copy tensor memory, which a warp does and waits for together.
    MetInCopies,
    /// The bytes that the arrival expects are copied behind both.
    CopiedBehind,
    /// The two copy scales to different columns of tensor memory.
    OtherColumns,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::WaitsForMore => f.write_str("it waits for more than the kernel"),
            Reason::Initialisations => {
                f.write_str("nobody looks at either mbarrier before what follows both initialisations")
            }
            Reason::OtherFence(other) => write!(f, "`{other}` beside it orders the same"),
            Reason::Registers => f.write_str("the fence orders registers, and the other touches none"),
            Reason::WaitFollows(wait) => write!(f, "`{wait}` follows before anything is touched"),
            Reason::HasWaited(wait) => write!(f, "`{wait}` has waited before, and nothing has begun since"),
            Reason::Unread => f.write_str("nothing reads the register afterwards"),
            Reason::SameValue => f.write_str("the register holds that value already"),
            Reason::NothingInFlight => f.write_str("nothing that it covers is in flight there"),
            Reason::OtherEngine => f.write_str("the two are about different engines"),
            Reason::WaitsBefore => {
                f.write_str("the barrier's threads all wait, and what follows comes after both")
            }
            Reason::FirstUse => f.write_str("no use of the stage comes before"),
            Reason::FencedBefore => {
                f.write_str("no register of the products was written since the last fence")
            }
            Reason::NothingHeld => f.write_str("more threads write registers in which they have nothing yet"),
            Reason::SameBytes => f.write_str("more threads store the same bytes to the same place"),
            Reason::NothingBefore => f.write_str("nothing has touched shared memory before"),
            Reason::OneWarp => f.write_str("the block has one warp"),
            Reason::SameKernel => f.write_str("the compiler makes the same kernel of it"),
            Reason::CoversMore => f.write_str("it covers all that the kernel's fence covers"),
            Reason::OtherSide => {
                f.write_str("every thread has the fence on the other side of the barrier, still on every way")
            }
            Reason::NotDependent => {
                f.write_str("a kernel without it is launched when those before have ended")
            }
            Reason::OtherBarrier => f.write_str("a barrier of the same threads stands beside it"),
            Reason::NothingToPass => {
                f.write_str("nothing was copied from or to tensor memory since the last such fence")
            }
            Reason::OtherBlocks => f.write_str("it is for blocks beside this one"),
            Reason::MetInCopies => {
                f.write_str("the lanes have met in copies of tensor memory, and done nothing else")
            }
            Reason::OtherColumns => f.write_str("the two copy to different columns"),
            Reason::CopiedBehind => f.write_str("what the arrival expects is copied behind both"),
        }
    }
}

/// The reason why a mutant is as right as its kernel, if one can be seen.
pub(super) fn reason(function: &Function, mutant: &Mutant) -> Option<Reason> {
    if matches!(mutant.edit, Edit::Program(_)) {
        return None;
    }
    let body = block_of(function, &mutant.block)?;
    let op = &body.get(mutant.index)?.op;
    if let Some(reason) = tensor_memory::reason(function, mutant) {
        return Some(reason);
    }
    match mutant.kind {
        Kind::Strengthen => Some(Reason::WaitsForMore),
        Kind::Swap => swapped(function, mutant, op, body).or_else(|| weakened(function, mutant, op)),
        Kind::Skip => match op {
            Op::WriteReg { dst, src } => skipped(function, mutant, *dst, src),
            _ => None,
        },
        Kind::Guard if same_bytes(op) => Some(Reason::SameBytes),
        Kind::Guard if nothing_held(function, mutant, op) => Some(Reason::NothingHeld),
        Kind::Guard => only_fences(op).then_some(Reason::CoversMore),
        Kind::Space if covers_more(op, &mutant.edit) => Some(Reason::CoversMore),
        Kind::Delete | Kind::Weaken | Kind::Space | Kind::Move => weakened(function, mutant, op),
        Kind::Slot => first_use(function, mutant),
        Kind::Short | Kind::Reuse | Kind::Late => None,
    }
}

/// True if a fence between proxies became one of more state spaces.
fn covers_more(op: &Op, edit: &Edit) -> bool {
    let (Op::Sync(SyncOp::FenceProxyAsync(old)), Edit::Replace(Op::Sync(SyncOp::FenceProxyAsync(new)))) =
        (op, edit)
    else {
        return false;
    };
    *new == ProxyFence::All || (*old, *new) == (ProxyFence::Shared, ProxyFence::SharedCluster)
}

/// Reason why a register need not be written.
fn skipped(function: &Function, mutant: &Mutant, register: Reg, value: &Operand) -> Option<Reason> {
    let target = Target::of(mutant);
    if !read_behind(function, target, register) {
        return Some(Reason::Unread);
    }
    let known = Constants::default().before(function, target)?;
    let held = known.register(register)?;
    (known.of(value) == Some(held)).then_some(Reason::SameValue)
}

/// [`Reason::FirstUse`], if a wait is for parity 1 at a place that is reached once, by a register that nothing has written since it began
/// with 1. Only roles that fill stages begin so: they find each stage free at its first use. Its first phase ends after that use.
fn first_use(function: &Function, mutant: &Mutant) -> Option<Reason> {
    waits_for_nothing(function, &mutant.block, mutant.index).then_some(Reason::FirstUse)
}

/// True if the instruction at a place is such a wait.
pub(super) fn waits_for_nothing(function: &Function, block: &[(usize, bool)], index: usize) -> bool {
    parity_of_first_use(function, block, index).is_some()
}

/// The register of the parity of such a wait.
fn parity_of_first_use(function: &Function, block: &[(usize, bool)], index: usize) -> Option<Reg> {
    let Op::Mbarrier {
        op: MbarrierOp::Wait | MbarrierOp::WaitCluster, operand: Operand::Value(parity), ..
    } = &block_of(function, block)?.get(index)?.op
    else {
        return None;
    };
    let mut register = None;
    let mut body = &function.body[..];
    let mut writes: Vec<(Reg, Option<u64>)> = Vec::new();
    let ways = block.iter().map(|(position, second)| (*position, Some(*second)));
    for (position, second) in ways.chain([(index, None)]) {
        let mut look = |op: &Op| match op {
            Op::WriteReg { dst, src: Operand::Imm(x) } => writes.push((*dst, Some(*x))),
            Op::WriteReg { dst, .. } => writes.push((*dst, None)),
            Op::ReadReg { dst, src } if dst == parity => register = Some(*src),
            _ => {}
        };
        body[..position].iter().for_each(|inst| super::flow::visit(inst, &mut look));
        body = match (&body.get(position)?.op, second) {
            (Op::If { otherwise, .. }, Some(true)) => otherwise,
            (Op::If { then, .. }, Some(false)) => then,
            (_, None) => break,
            _ => return None,
        };
    }
    let register = register?;
    let mut writes = writes.into_iter().filter(|(written, _)| *written == register);
    (writes.next() == Some((register, Some(1))) && writes.next().is_none()).then_some(register)
}

/// True if all uses of a named barrier are in the block of a mutant's instruction, all of whose threads come to it.
fn only_here(function: &Function, body: &[Inst], barrier: &Op) -> bool {
    let Op::Sync(SyncOp::NamedBarrier { id, .. }) = barrier else { return false };
    let uses = |op: &Op| matches!(op, Op::Sync(SyncOp::NamedBarrier { id: other, .. }) if other == id);
    let (mut everywhere, mut within) = (0, 0);
    function.visit(&mut |inst| everywhere += u32::from(uses(&inst.op)));
    body.iter().for_each(|inst| super::flow::visit(inst, &mut |op| within += u32::from(uses(op))));
    everywhere == within
}

fn swapped(function: &Function, mutant: &Mutant, op: &Op, body: &[Inst]) -> Option<Reason> {
    let Edit::Behind(position) = mutant.edit else { return None };
    if let Some(first) = first_use(function, mutant) {
        return Some(first);
    }
    let other = &body.get(position)?.op;
    if let (Some(a), Some(b)) = (engine(op), engine(other))
        && a != b
    {
        return Some(Reason::OtherEngine);
    }
    let idle = |op: &Op| engine(op).is_some_and(|e| InFlight::none(function, Target::of(mutant), e));
    if idle(op) || idle(other) {
        return Some(Reason::NothingInFlight);
    }
    if matches!(other, Op::Mbarrier { op: MbarrierOp::Wait, .. }) && only_here(function, body, op) {
        return Some(Reason::WaitsBefore);
    }
    let fence = |op: &Op| matches!(op, Op::Sync(SyncOp::FenceProxyAsync(_)));
    let barrier = |op: &Op| {
        matches!(
            op,
            Op::BarrierSync { .. }
                | Op::Sync(
                    SyncOp::Barrier
                        | SyncOp::NamedBarrier { .. }
                        | SyncOp::ClusterBarrier
                        | SyncOp::ClusterStart
                )
        )
    };
    if (fence(op) && barrier(other)) || (barrier(op) && fence(other)) {
        return Some(Reason::OtherSide);
    }
    if let (Op::ScaleCopy { to: one, .. }, Op::ScaleCopy { to: second, .. }) = (op, other)
        && one.base == second.base
        && one.offset.abs_diff(second.offset) >= SumsScaling::COLUMNS
    {
        return Some(Reason::OtherColumns);
    }
    if fence(op) && expects(other) {
        return Some(Reason::CopiedBehind);
    }
    // An initialisation behind a fence: another fence of the run is still behind it.
    if is_init(op) && is_fence(other) {
        let run = body[position + 1..].iter().take_while(|inst| passes(&inst.op));
        return run.map(|inst| &inst.op).find(|op| is_fence(op)).and_then(|op| match op {
            Op::Sync(fence) => Some(Reason::OtherFence(fence.spelling())),
            _ => None,
        });
    }
    let registers = |op: &Op| matches!(op, Op::Sync(SyncOp::WgmmaFence));
    let touches_none = |op: &Op| matches!(op, Op::Mbarrier { .. } | Op::Sync(_));
    if is_init(op) && is_init(other) {
        return Some(Reason::Initialisations);
    }
    let ordering = |op: &Op| matches!(op, Op::Sync(SyncOp::WgmmaCommit | SyncOp::WgmmaWait(_)));
    ((registers(op) && touches_none(other) && !ordering(other))
        || (registers(other) && touches_none(op) && !ordering(op)))
    .then_some(Reason::Registers)
}

/// Reason why a synchronisation may be missing, or order less.
fn weakened(function: &Function, mutant: &Mutant, op: &Op) -> Option<Reason> {
    if let Op::BarrierSync { .. } = op {
        let body = block_of(function, &mutant.block)?;
        return beside(body, mutant.index, |other| (*other == *op).then_some(Reason::OtherBarrier))
            .or_else(|| nothing_before(function, mutant).then_some(Reason::NothingBefore));
    }
    let Op::Sync(sync) = op else {
        return if mutant.kind == Kind::Delete { first_use(function, mutant) } else { None };
    };
    if engine(op).is_some_and(|engine| InFlight::none(function, Target::of(mutant), engine)) {
        return Some(Reason::NothingInFlight);
    }
    let body = block_of(function, &mutant.block)?;
    let index = mutant.index;
    match sync {
        SyncOp::WgmmaFence if mutant.kind == Kind::Delete => {
            Unfenced::none(function, Target::of(mutant)).then_some(Reason::FencedBefore)
        }
        SyncOp::FenceMbarrierInit | SyncOp::FenceProxyAsync(_) => beside(body, index, |other| match other {
            Op::Sync(other @ (SyncOp::FenceMbarrierInit | SyncOp::FenceProxyAsync(_))) if other != sync => {
                // Only what initialises mbarriers may be ordered by either.
                let only_inits = body[..index].iter().rev().take_while(|inst| passes(&inst.op));
                let inits = only_inits.filter(|inst| is_init(&inst.op)).count() > 0;
                inits.then(|| Reason::OtherFence(other.spelling()))
            }
            _ => None,
        }),
        SyncOp::DependencyWait => {
            let mut waits = 0;
            function.visit(&mut |inst| waits += u32::from(inst.op == *op));
            (waits == 1).then_some(Reason::NotDependent)
        }
        SyncOp::Barrier if function.threads == 32 && mutant.kind == Kind::Weaken => Some(Reason::OneWarp),
        SyncOp::Barrier
        | SyncOp::NamedBarrier { .. }
        | SyncOp::ClusterBarrier
        | SyncOp::ClusterStart
        | SyncOp::WarpBarrier => {
            beside(body, index, |other| same_threads(other, op).then_some(Reason::OtherBarrier))
                .or_else(|| nothing_before(function, mutant).then_some(Reason::NothingBefore))
        }
        wait if is_wait(*wait) => {
            follows(function, &mutant.block, index, *wait).map(Reason::WaitFollows).or_else(|| {
                let before = body[..index].iter().rev();
                has_waited(before.map(|inst| &inst.op), *wait).map(Reason::HasWaited)
            })
        }
        SyncOp::AsyncCommit => {
            let before = body[..index].iter().rev();
            has_waited(before.map(|inst| &inst.op), SyncOp::AsyncWaitAll).map(Reason::HasWaited).or_else(
                || {
                    waits_for_all(&body[index + 1..])
                        .then(|| Reason::WaitFollows(SyncOp::AsyncWaitAll.spelling()))
                },
            )
        }
        _ => None,
    }
}

/// True if an arrival expects bytes, which engines bring that the thread asks for behind it.
fn expects(op: &Op) -> bool {
    matches!(op, Op::Mbarrier { op: MbarrierOp::ArriveExpect, operand: Operand::Imm(bytes), .. } if *bytes > 0)
}

/// True if all of a thread's asynchronous copies are waited for before any groups are counted.
fn waits_for_all(after: &[Inst]) -> bool {
    for inst in after {
        match &inst.op {
            Op::Sync(SyncOp::AsyncWaitAll) => return true,
            Op::Sync(SyncOp::AsyncWaitGroup(_)) | Op::For { .. } | Op::If { .. } => return false,
            _ => {}
        }
    }
    false
}

fn is_fence(op: &Op) -> bool {
    matches!(op, Op::Sync(SyncOp::FenceMbarrierInit | SyncOp::FenceProxyAsync(_)))
}

/// True if a barrier is of the threads of another, or of more.
fn same_threads(barrier: &Op, other: &Op) -> bool {
    barrier == other || matches!((barrier, other), (Op::Sync(SyncOp::Barrier), Op::Sync(SyncOp::WarpBarrier)))
}

fn is_init(op: &Op) -> bool {
    matches!(op, Op::Mbarrier { op: MbarrierOp::Init, .. })
}

/// True if fences that stand side by side may have this between them.
fn passes(op: &Op) -> bool {
    let of_tensor_memory = matches!(op, Op::Sync(SyncOp::TensorFenceBefore | SyncOp::TensorFenceAfter));
    op.is_removable() || is_init(op) || is_fence(op) || of_tensor_memory
}

/// Applies `f` to the instructions beside this one, with nothing but arithmetic, fences and initialisations between; the first result.
fn beside(body: &[Inst], index: usize, f: impl Fn(&Op) -> Option<Reason>) -> Option<Reason> {
    let scan = |all: &mut dyn Iterator<Item = &Inst>| {
        for inst in all {
            if let Some(reason) = f(&inst.op) {
                return Some(reason);
            }
            if !passes(&inst.op) {
                break;
            }
        }
        None
    };
    scan(&mut body[index + 1..].iter()).or_else(|| scan(&mut body[..index].iter().rev()))
}

fn is_wait(op: SyncOp) -> bool {
    matches!(
        op,
        SyncOp::AsyncWaitGroup(_)
            | SyncOp::AsyncWaitAll
            | SyncOp::BulkWait(_)
            | SyncOp::BulkWaitRead(_)
            | SyncOp::WgmmaWait(_)
    )
}

/// True if a wait orders all that another one does.
fn covers(wait: SyncOp, other: SyncOp) -> bool {
    match (wait, other) {
        (SyncOp::AsyncWaitAll, SyncOp::AsyncWaitAll | SyncOp::AsyncWaitGroup(_)) => true,
        (SyncOp::AsyncWaitGroup(n), SyncOp::AsyncWaitGroup(m))
        | (SyncOp::BulkWait(n), SyncOp::BulkWait(m) | SyncOp::BulkWaitRead(m))
        | (SyncOp::BulkWaitRead(n), SyncOp::BulkWaitRead(m))
        | (SyncOp::WgmmaWait(n), SyncOp::WgmmaWait(m)) => n <= m,
        _ => false,
    }
}

/// The wait that follows a place on every way and covers `wait`, with only arithmetic between, or a barrier behind which the
/// function ends; what surrounds the block goes on, unless it is a loop.
fn follows(function: &Function, block: &[(usize, bool)], index: usize, wait: SyncOp) -> Option<String> {
    let holds = conditions(function, block);
    follows_where(function, (block, index), wait, &holds)
}

/// [`follows`] in threads in which these conditions hold.
fn follows_where(
    function: &Function,
    (block, index): (&[(usize, bool)], usize),
    wait: SyncOp,
    holds: &[Value],
) -> Option<String> {
    let body = block_of(function, block)?;
    for inst in &body[index + 1..] {
        match &inst.op {
            Op::Sync(next) if is_wait(*next) && covers(*next, wait) => return Some(next.spelling()),
            Op::Sync(next) if is_wait(*next) => {}
            // All threads that wait here come into the branch.
            Op::If { condition, then, .. } if holds.contains(condition) => {
                let first = then.iter().find(|inst| !inst.op.is_removable());
                match first.map(|inst| &inst.op) {
                    Some(Op::Sync(next)) if is_wait(*next) && covers(*next, wait) => {
                        return Some(next.spelling());
                    }
                    _ => return None,
                }
            }
            op if op.is_removable()
                || matches!(op, Op::Elect { .. } | Op::Shuffle { .. } | Op::Vote { .. }) => {}
            _ => return None,
        }
    }
    let (last, outer) = block.split_last()?;
    match block_of(function, outer)?.get(last.0)?.op {
        Op::If { .. } => follows_where(function, (outer, last.0), wait, holds),
        _ => None,
    }
}

/// The conditions that hold in a block: of the branches around, as far as it is their first side.
fn conditions(function: &Function, block: &[(usize, bool)]) -> Vec<Value> {
    let around = (0..block.len()).filter(|depth| !block[*depth].1);
    let condition = |depth: usize| match block_of(function, &block[..depth])?.get(block[depth].0)?.op {
        Op::If { condition, .. } => Some(condition),
        _ => None,
    };
    around.filter_map(condition).collect()
}

/// The wait among what came before, the last first, that covers `wait` with nothing begun since.
fn has_waited<'a>(before: impl Iterator<Item = &'a Op>, wait: SyncOp) -> Option<String> {
    for op in before {
        match op {
            Op::Sync(earlier) if is_wait(*earlier) && covers(*earlier, wait) => {
                return Some(earlier.spelling());
            }
            Op::AsyncCopy { .. }
            | Op::Bulk { .. }
            | Op::TryCancel { .. }
            | Op::Tensor { .. }
            | Op::Wgmma { .. }
            | Op::For { .. }
            | Op::If { .. } => return None,
            _ => {}
        }
    }
    None
}

/// True if a guarded block does nothing but store from shared memory to global memory, and wait for that.
fn same_bytes(op: &Op) -> bool {
    let Op::If { then, otherwise, .. } = op else { return false };
    otherwise.is_empty()
        && then.iter().all(|inst| match &inst.op {
            Op::Tensor { row, .. } => row.op == TensorOp::Store,
            Op::Bulk { op, .. } => *op == BulkOp::Store,
            Op::Sync(SyncOp::BulkCommit | SyncOp::BulkWait(_) | SyncOp::BulkWaitRead(_)) => true,
            op => op.is_removable(),
        })
}

/// True if a guarded block in no other computes nothing but registers, which no instruction before it writes.
fn nothing_held(function: &Function, mutant: &Mutant, op: &Op) -> bool {
    let Op::If { then, otherwise, .. } = op else { return false };
    let written = then.iter().map(|inst| match &inst.op {
        Op::WriteReg { dst, .. } => Some(Some(*dst)),
        op => op.is_removable().then_some(None),
    });
    let Some(written) = written.collect::<Option<Vec<_>>>() else { return false };
    let mut before = Vec::new();
    let mut look = |op: &Op| before.extend(super::flow::written(op));
    function.body[..mutant.index.min(function.body.len())]
        .iter()
        .for_each(|inst| super::flow::visit(inst, &mut look));
    mutant.block.is_empty()
        && otherwise.is_empty()
        && written.iter().any(Option::is_some)
        && !written.into_iter().flatten().any(|register| before.contains(&register))
}

/// True if a guarded block has nothing but fences between proxies, which may be of more threads.
fn only_fences(op: &Op) -> bool {
    let Op::If { then, otherwise, .. } = op else { return false };
    let fence = |op: &Op| matches!(op, Op::Sync(SyncOp::FenceProxyAsync(_)));
    otherwise.is_empty() && then.iter().all(|inst| fence(&inst.op) || inst.op.is_removable())
}

/// True if nothing that touches shared memory, and no synchronisation, stands before a mutant's instruction, which is in no loop.
fn nothing_before(function: &Function, mutant: &Mutant) -> bool {
    let mut body = &function.body;
    let ways = mutant.block.iter().map(|(position, second)| (*position, Some(*second)));
    for (position, second) in ways.chain([(mutant.index, None)]) {
        if body[..position.min(body.len())].iter().any(|inst| touches(&inst.op)) {
            return false;
        }
        body = match (body.get(position).map(|inst| &inst.op), second) {
            (Some(Op::If { then, otherwise, .. }), Some(second)) => {
                if second {
                    otherwise
                } else {
                    then
                }
            }
            (_, None) => return true,
            _ => return false,
        };
    }
    true
}

/// True if an instruction, or one within it, touches shared memory or synchronises.
fn touches(op: &Op) -> bool {
    match op {
        Op::For { body, .. } => body.iter().any(|inst| touches(&inst.op)),
        Op::If { then, otherwise, .. } => then.iter().chain(otherwise).any(|inst| touches(&inst.op)),
        Op::Load { row, .. } => row.src == tilewright_machine::Memory::Shared,
        Op::Store { row, .. } => row.dst == tilewright_machine::Memory::Shared,
        Op::AsyncCopy { .. }
        | Op::Matrix { .. }
        | Op::Wgmma { .. }
        | Op::Tcgen05 { .. }
        | Op::ScaleCopy { .. }
        | Op::TensorCopy { .. }
        | Op::TensorAllocate { .. }
        | Op::TensorFree { .. }
        | Op::Tensor { .. }
        | Op::Bulk { .. }
        | Op::TryCancel { .. }
        | Op::Mbarrier { .. } => true,
        Op::Sync(sync) => !matches!(sync, SyncOp::SetMaxRegisters { .. }),
        Op::BarrierSync { .. } => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use tilewright_machine::{Arch, ScalarOp};
    use tilewright_simt::{Build, Builder, Special};

    use super::*;

    /// Waits in branches, each by its condition (`None`: in no branch), one behind the other; whether another follows the first.
    fn waits(branches: &[Option<usize>]) -> bool {
        const WAIT: SyncOp = SyncOp::AsyncWaitGroup(0);
        let mut b = Builder::new("waits", Arch::SM_80, 128);
        let thread = Operand::Value(b.special(Special::ThreadIndex));
        let conditions = [1, 2].map(|limit| b.scalar(ScalarOp::LtI32, &[thread, Operand::Imm(limit)]));
        for branch in branches {
            match branch.map(|number| conditions[number]) {
                Some(Operand::Value(condition)) => b.only_where(condition, |b| b.sync(WAIT)),
                _ => b.sync(WAIT),
            }
        }
        let function = b.finish();
        let is_wait = |inst: &Inst| matches!(inst.op, Op::Sync(WAIT));
        let first = function.body.iter().position(|inst| is_wait(inst) || matches!(inst.op, Op::If { .. }));
        let first = first.unwrap();
        match &function.body[first].op {
            Op::If { then, .. } => {
                let at = then.iter().position(is_wait).unwrap();
                follows(&function, &[(first, false)], at, WAIT).is_some()
            }
            _ => follows(&function, &[], first, WAIT).is_some(),
        }
    }

    /// A branch of some threads that writes a register, behind a write of the register by all or not; whether more threads may take it.
    fn holds_nothing(written_before: bool) -> bool {
        let mut b = Builder::new("first", Arch::SM_80, 128);
        let thread = Operand::Value(b.special(Special::ThreadIndex));
        let register = Reg { array: b.add_array("r", 1), index: 0 };
        if written_before {
            b.write(register, Operand::Imm(7));
        }
        let Operand::Value(some) = b.scalar(ScalarOp::LtI32, &[thread, Operand::Imm(1)]) else {
            unreachable!()
        };
        b.only_where(some, |b| {
            let twice = b.scalar(ScalarOp::AddI32, &[thread, thread]);
            b.write(register, twice);
        });
        let function = b.finish();
        let index = function.body.iter().position(|inst| matches!(inst.op, Op::If { .. })).unwrap();
        let mutant = Mutant {
            kind: Kind::Guard,
            what: String::new(),
            origin: String::new(),
            ordinal: 1,
            block: Vec::new(),
            index,
            edit: Edit::Unguard,
        };
        nothing_held(&function, &mutant, &function.body[index].op)
    }

    #[test]
    fn registers_that_hold_nothing_may_be_written_by_more_threads() {
        assert!(holds_nothing(false));
        assert!(!holds_nothing(true));
    }

    #[test]
    fn a_wait_that_begins_a_branch_follows_where_the_branch_is_taken() {
        assert!(waits(&[None, None]));
        assert!(!waits(&[None, Some(0)]));
        assert!(waits(&[Some(0), Some(0)]));
        assert!(!waits(&[Some(0), Some(1)]));
        assert!(waits(&[Some(0), None]));
    }
}
