//! What statements touch, and whether a block's fragments and shared tensors fit.

use std::collections::HashMap;
use std::rc::Rc;

use tilewright_machine::Arch;
use tilewright_tile::{Code, Diagnostic, StmtKind, TensorId, Verified};

use crate::copies::SharedSolution;
use crate::plan::TvLayout;

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

/// The most 32-bit registers that fragments take at one time. A tensor lives from its first use to its last; one that
/// was used before a loop and is used in it lives through the whole loop. A slice or another shape of a tensor is a name for its
/// registers, and a statement between elements may leave its result where an operand was that nobody needs any more.
pub(crate) fn live_registers(
    verified: &Verified,
    statements: &[(tilewright_tile::Stmt, usize)],
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
) -> u32 {
    let n = statements.len();
    let names = names(statements);
    let mut spans: HashMap<TensorId, (usize, usize)> = HashMap::new();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        for mut id in touched(stmt) {
            while let Some(of) = names.get(&id) {
                id = *of;
            }
            spans.entry(id).and_modify(|s| s.1 = i).or_insert((i, i));
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
        let bits = verified.program().tensor(*id).dtype.bits();
        register(*id).map_or(0, |tv| (tv.count() as u32 * bits).div_ceil(32))
    };
    let live = |within: &dyn Fn((usize, usize)) -> bool| -> u32 {
        spans.iter().filter(|(_, s)| within(**s)).map(|(id, _)| size(id)).sum()
    };
    let at = |i: usize| match statements[i].0.kind {
        StmtKind::Elementwise { .. } | StmtKind::Cast { .. } => {
            let (before, after) = (live(&|s| s.0 < i && i <= s.1), live(&|s| s.0 <= i && i < s.1));
            before.max(after)
        }
        _ => live(&|s| s.0 <= i && i <= s.1),
    };
    (0..n).map(at).max().unwrap_or(0)
}

/// Of every tensor that is written once, and then as another shape of one that is not written behind it, that one.
fn names(statements: &[(tilewright_tile::Stmt, usize)]) -> HashMap<TensorId, TensorId> {
    let mut last_write: HashMap<TensorId, usize> = HashMap::new();
    let mut writes: HashMap<TensorId, u32> = HashMap::new();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        for id in stmt.kind.writes() {
            *writes.entry(id).or_default() += 1;
            last_write.insert(id, i);
        }
    }
    let shapes = statements.iter().enumerate().filter_map(|(i, (stmt, _))| match &stmt.kind {
        StmtKind::Shape { dst, src, .. } => {
            let stays = last_write.get(src).is_none_or(|last| *last < i);
            (writes[dst] == 1 && stays).then_some((*dst, *src))
        }
        _ => None,
    });
    shapes.collect()
}

pub(crate) fn too_many_registers(
    verified: &Verified,
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
            "the register tensors that are live at once take {total} registers of a thread, which has {limit}"
        ),
    )
    .label("the largest of them")
    .help(format!("make the tiles smaller or use more threads; in registers a thread: {}", list.join(", ")))
}
