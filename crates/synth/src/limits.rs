//! What statements touch, and whether a block's fragments and shared tensors fit.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use tilewright_machine::Arch;
use tilewright_tile::{Code, Diagnostic, StmtKind, TensorId, Verified};

use crate::copies::SharedSolution;
use crate::movement::Movement;
use crate::plan::{StmtPlan, TvLayout};

pub(crate) fn check_shared(
    verified: &Verified,
    arch: Arch,
    shared: &[(TensorId, Rc<SharedSolution>)],
    scratch: u32,
    total: u32,
) -> Result<(), Diagnostic> {
    let limit = arch.limits().shared_bytes_per_block;
    if total <= limit {
        return Ok(());
    }
    let largest = shared.iter().max_by_key(|(_, s)| s.bytes).map_or(0, |(id, _)| id.0 as usize);
    let program = verified.program();
    let mut sizes: Vec<String> = shared
        .iter()
        .map(|(id, s)| match s.stages {
            Some((n, each)) if n > 1 => {
                format!("`{}` {} ({n} stages of {each} bytes)", program.tensor(*id).name, s.bytes)
            }
            _ => format!("`{}` {}", program.tensor(*id).name, s.bytes),
        })
        .collect();
    if scratch > 0 {
        sizes.push(format!("exchanges between threads {scratch}"));
    }
    Err(Diagnostic::new(
        Code::SharedMemoryExceeded,
        program.tensors[largest].span,
        format!("the block's shared tensors take {total} bytes, and {arch} has {limit} for a block"),
    )
    .label("the largest of them")
    .help(format!("make the tiles smaller; in bytes: {}", sizes.join(", "))))
}

/// How much what a statement does counts, `depth` loops deep, where the number of rounds is not known.
pub(crate) fn weight(depth: usize) -> u64 {
    if depth > 0 { 16 } else { 1 }
}

/// The tensors that a statement reads and writes.
pub(crate) fn touched(stmt: &tilewright_tile::Stmt) -> Vec<TensorId> {
    let mut all = stmt.kind.reads();
    all.extend(stmt.kind.writes());
    all
}

/// Whether every register of a statement's result is one of its operand's, so that it only needs another name.
fn renames(plan: &StmtPlan, bits: u32) -> bool {
    let StmtPlan::Move(Movement::Registers(moves)) = plan else { return false };
    let per = 32 / bits.clamp(1, 32);
    let mut from: HashMap<u32, u32> = HashMap::new();
    moves.iter().all(|(s, d)| s % per == d % per && *from.entry(d / per).or_insert(s / per) == s / per)
}

/// The most 32-bit registers that fragments take at one time. A tensor lives from its first use to its last; one that
/// was used before a loop and is used in it lives through the whole loop. What a shape statement or a cast to the same type makes takes no registers while those
/// of its operand stay as they are: they live longer instead.
pub(crate) fn live_registers(
    verified: &Verified,
    statements: &[(tilewright_tile::Stmt, usize)],
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    plans: &[StmtPlan],
) -> u32 {
    let n = statements.len();
    let mut spans: HashMap<TensorId, (usize, usize)> = HashMap::new();
    let mut writes: HashMap<TensorId, Vec<usize>> = HashMap::new();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        for id in touched(stmt) {
            spans.entry(id).and_modify(|s| s.1 = i).or_insert((i, i));
        }
        for id in stmt.kind.writes() {
            writes.entry(id).or_default().push(i);
        }
    }
    let mut names = HashSet::new();
    // Backwards, so that names of names come before what they name.
    for (i, (stmt, _)) in statements.iter().enumerate().rev() {
        let (StmtKind::Shape { dst, src, .. } | StmtKind::Cast { dst, src }) = &stmt.kind else { continue };
        let (Some(span), Some(own)) = (spans.get(dst).copied(), writes.get(dst)) else { continue };
        let dtype = |id: &TensorId| verified.program().tensor(*id).dtype;
        let bits = dtype(dst).bits();
        let same = match &stmt.kind {
            StmtKind::Cast { .. } => dtype(dst) == dtype(src),
            _ => plans.get(i).is_some_and(|plan| renames(plan, bits)),
        };
        let once = own.len() == 1 && span.0 == i;
        let stays = writes.get(src).is_none_or(|all| all.iter().all(|w| *w <= i || *w > span.1));
        if once && stays && same {
            names.insert(*dst);
            spans.entry(*src).and_modify(|s| s.1 = s.1.max(span.1));
        }
    }
    // A loop's end: the last statement that is deeper than its head.
    for (i, (stmt, depth)) in statements.iter().enumerate() {
        if stmt.kind.repeats() {
            let end = (i + 1..n).take_while(|j| statements[*j].1 > *depth).last().unwrap_or(i);
            for span in spans.values_mut() {
                if span.0 < i && span.1 >= i && span.1 <= end {
                    span.1 = end;
                }
            }
        }
    }
    let size = |id: &TensorId| {
        if names.contains(id) {
            return 0;
        }
        let bits = verified.program().tensor(*id).dtype.bits();
        register(*id).map_or(0, |tv| (tv.count() as u32 * bits).div_ceil(32))
    };
    (0..n)
        .map(|i| spans.iter().filter(|(_, s)| s.0 <= i && i <= s.1).map(|(id, _)| size(id)).sum())
        .max()
        .unwrap_or(0)
}

pub(crate) fn too_many_registers(
    verified: &Verified,
    arch: Arch,
    limit: u32,
    total: u32,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
) -> Diagnostic {
    let program = verified.program();
    let mut sizes: Vec<(u32, usize)> = program
        .tensors
        .iter()
        .enumerate()
        .filter_map(|(i, t)| {
            register(TensorId(i as u32)).map(|tv| ((tv.count() as u32 * t.dtype.bits()).div_ceil(32), i))
        })
        .collect();
    sizes.sort_by(|a, b| b.cmp(a));
    let largest = sizes.first().map_or(0, |s| s.1);
    let list: Vec<String> =
        sizes.iter().take(4).map(|(size, i)| format!("`{}` {size}", program.tensors[*i].name)).collect();
    Diagnostic::new(
        Code::RegistersExceeded,
        program.tensors[largest].span,
        format!(
            "the register tensors that are live at once take {total} registers of a thread, and {arch} has {limit} for each"
        ),
    )
    .label("the largest of them")
    .help(format!("make the tiles smaller or use more threads; in registers a thread: {}", list.join(", ")))
}
