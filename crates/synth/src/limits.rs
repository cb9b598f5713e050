//! Tensors that statements touch, and the check that a block's fragments and shared tensors fit.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use rustc_hash::FxHashMap as HashMap;
use tilewright_layout::SwizzledLayout;
use tilewright_machine::{Arch, Memory};
use tilewright_tile::core::{Program, Stmt, StmtKind, TensorKind};
use tilewright_tile::{Code, Diagnostic, Origin, StmtId, StmtMap, TensorId};

use crate::allocate::{ASYNC_ALIGN, SHARED_ALIGN};
use crate::copies::SharedSolution;
use crate::movement::Movement;
use crate::plan::{CopyPlan, StmtPlan};
use crate::tv::TvLayout;

pub(crate) fn check_shared(
    verified: &Program,
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
    let mut sizes: Vec<String> = shared
        .iter()
        .map(|(id, s)| match s.stages {
            Some((n, each)) if n > 1 => {
                format!("`{}` {} ({n} stages of {each} bytes)", verified.tensor(*id).name, s.bytes)
            }
            _ => format!("`{}` {}", verified.tensor(*id).name, s.bytes),
        })
        .collect();
    if scratch > 0 {
        sizes.push(format!("exchanges between threads {scratch}"));
    }
    Err(Diagnostic::new(
        Code::SharedMemoryExceeded,
        verified.tensors[largest].span,
        format!("the block's shared tensors take {total} bytes, and {arch} has {limit} for a block"),
    )
    .label("the largest of them")
    .help(format!("make the tiles smaller; in bytes: {}", sizes.join(", "))))
}

/// True if the shared memory of a program is sure to fit into a block, whatever layouts its tensors get: by their elements, what stages
/// are rounded up by, and an exchange of the largest register tensor.
pub(crate) fn surely_fits(verified: &Program, statements: &[(&Stmt, usize)], arch: Arch) -> bool {
    let size = |id: TensorId| verified.shape(id).into_iter().fold(1, i64::saturating_mul);
    let mut total = 0i64;
    for (stmt, _) in statements {
        let StmtKind::Define(id) = stmt.kind else { continue };
        let TensorKind::Shared { pinned, .. } = &verified.tensor(id).kind else { continue };
        let count = pinned.as_ref().map_or_else(|| size(id), SwizzledLayout::cosize);
        let bytes = count.saturating_mul(i64::from(verified.tensor(id).dtype.bits())) / 8;
        let references = statements.iter().filter_map(|(stmt, _)| stmt.kind.copied());
        let references = references.flat_map(|(src, dst)| [src, dst]).filter(|r| r.tensor == id);
        let fixed: BTreeSet<usize> = references
            .flat_map(|r| r.index.iter().enumerate().filter(|(_, at)| at.is_some()).map(|(mode, _)| mode))
            .collect();
        let shape = verified.shape(id);
        let stages = fixed.iter().map(|mode| shape[*mode]).fold(1, i64::saturating_mul);
        let rounded = stages.saturating_mul(i64::from(SHARED_ALIGN)).saturating_add(i64::from(ASYNC_ALIGN));
        total = total.saturating_add(bytes).saturating_add(rounded);
    }
    let ids = (0..verified.tensors.len() as u32).map(TensorId);
    let registers = ids.filter(|id| verified.tensor(*id).memory() == Memory::Register);
    let exchange = registers.map(size).max().unwrap_or(0).saturating_mul(4);
    total.saturating_add(exchange) <= i64::from(arch.limits().shared_bytes_per_block)
}

/// The tensors that a statement reads and writes.
pub(crate) fn touched(stmt: &tilewright_tile::core::Stmt) -> Vec<TensorId> {
    let mut all = stmt.kind.reads();
    all.extend(stmt.kind.writes());
    all
}

/// The fragments that live at one time.
pub(crate) struct Live {
    /// The number of the statement that needs them at once, in their order.
    statement: Option<usize>,
    /// Each with its 32-bit registers a thread, the largest first.
    fragments: Vec<(TensorId, u32)>,
}

impl Live {
    /// The 32-bit registers of a thread that they take.
    pub(crate) fn registers(&self) -> u32 {
        self.fragments.iter().map(|(_, registers)| registers).sum()
    }
}

/// Steps along K of a streamed fragment that are there at once: the one that multiplies, and the next.
pub(crate) const STEPS_AHEAD: i64 = 2;

/// A fragment that can be loaded step by step along K within the product that takes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Streamed {
    /// The copy that loads it.
    pub load: StmtId,
    /// The fragment.
    tensor: TensorId,
    /// Of so many parts of it one lives at a time.
    parts: u32,
}

/// The body that each statement stands in, by number.
fn bodies(verified: &Program) -> HashMap<StmtId, usize> {
    fn walk(body: &[Stmt], next: &mut usize, found: &mut HashMap<StmtId, usize>) {
        let number = *next;
        for stmt in body {
            found.insert(stmt.id, number);
            if !stmt.kind.body().is_empty() {
                *next += 1;
                walk(stmt.kind.body(), next, found);
            }
        }
    }
    let (mut next, mut found) = (0, HashMap::default());
    for body in std::iter::once(&verified.body).chain(verified.roles().iter().map(|role| &role.body)) {
        walk(body, &mut next, &mut found);
        next += 1;
    }
    found
}

/// The fragments that are copied from shared memory for one product, with nothing between the two that waits or writes memory.
pub(crate) fn streamed(
    verified: &Program,
    statements: &[(&Stmt, usize)],
    plans: &StmtMap<StmtPlan>,
) -> Vec<Streamed> {
    let mut uses: BTreeMap<TensorId, Vec<usize>> = BTreeMap::new();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        for id in touched(stmt) {
            uses.entry(id).or_default().push(i);
        }
    }
    let bodies = bodies(verified);
    let mut found = Vec::new();
    for (tensor, uses) in uses {
        let [load, product] = uses[..] else { continue };
        let (copy, gemm) = (statements[load].0, statements[product].0);
        let (StmtKind::Copy { src, dst, .. }, StmtKind::Gemm { a, b, .. }) = (&copy.kind, &gemm.kind) else {
            continue;
        };
        let is_operand = dst.tensor == tensor && (*a == tensor || *b == tensor);
        let passes = |(stmt, _): &(&Stmt, usize)| match &stmt.kind {
            StmtKind::Define(_) | StmtKind::Fill { .. } | StmtKind::Gemm { .. } => true,
            StmtKind::Copy { dst, .. } => verified.tensor(dst.tensor).memory() == Memory::Register,
            _ => false,
        };
        let together = bodies[&copy.id] == bodies[&gemm.id] && statements[load..product].iter().all(passes);
        let (Some(StmtPlan::Copy(CopyPlan::Direct { row, .. })), Some(StmtPlan::Gemm(plan))) =
            (plans.get(copy.id), plans.get(gemm.id))
        else {
            continue;
        };
        let whole = (row.is_collective() || row.bytes >= 4) && src.indexed.is_none();
        if !(is_operand && together && whole && verified.tensor(src.tensor).memory() == Memory::Shared) {
            continue;
        }
        // A lane's run along K may be those of several instructions.
        let (row, left) = (plan.row, *a == tensor);
        let columns = if left { row.a_columns() } else { row.k };
        let steps = verified.shape(tensor)[1] / (columns * plan.by.steps_together());
        if steps > STEPS_AHEAD {
            found.push(Streamed { load: copy.id, tensor, parts: (steps / STEPS_AHEAD) as u32 });
        }
    }
    found
}

/// The fragments that take the most 32-bit registers at one time. A tensor lives from its first use to its last; one that
/// was used before a loop and is used in it lives through the whole loop. Of a streamed one a part lives. A slice or another shape of a tensor, or a cast to its own
/// type, is a name for its registers, and some statements may leave their results where operands were that nobody needs any more ([`reuses`]).
pub(crate) fn live_registers(
    verified: &Program,
    statements: &[(&tilewright_tile::core::Stmt, usize)],
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    plans: &StmtMap<StmtPlan>,
    streamed: &[Streamed],
) -> Live {
    let n = statements.len();
    let parts: HashMap<TensorId, u32> = streamed.iter().map(|s| (s.tensor, s.parts)).collect();
    let names = names(verified, statements, plans);
    let mut spans: HashMap<TensorId, (usize, usize)> = HashMap::default();
    // What is only shown is not there in PTX.
    let is_print = |(_, (stmt, _)): &(usize, &(&Stmt, usize))| matches!(stmt.kind, StmtKind::Print { .. });
    for (i, (stmt, _)) in statements.iter().enumerate().filter(|of| !is_print(of)) {
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
        let bits = verified.tensor(*id).dtype.bits();
        let whole = register(*id).map_or(0, |tv| (tv.count() as u32 * bits).div_ceil(32));
        whole.div_ceil(parts.get(id).copied().unwrap_or(1))
    };
    // Registers that begin and that end to be needed at each statement.
    let (mut begins, mut ends) = (vec![0; n], vec![0; n]);
    for (id, (first, last)) in &spans {
        let registers = size(id);
        begins[*first] += registers;
        ends[*last] += registers;
    }
    let reuses = |i: usize| reuses(statements[i].0, plans);
    let (mut live, mut most, mut place) = (0, 0, None);
    for i in 0..n {
        live += begins[i];
        let here = if reuses(i) { live - begins[i].min(ends[i]) } else { live };
        if here > most {
            (most, place) = (here, Some(i));
        }
        live -= ends[i];
    }
    let Some(i) = place else { return Live { statement: None, fragments: Vec::new() } };
    let alive = |(first, last): (usize, usize)| match reuses(i) {
        true if ends[i] < begins[i] => first <= i && i < last,
        true => first < i && i <= last,
        false => first <= i && i <= last,
    };
    let alive = spans.iter().filter(|(_, span)| alive(**span));
    let mut fragments: Vec<(TensorId, u32)> =
        alive.map(|(id, _)| (*id, size(id))).filter(|(_, registers)| *registers > 0).collect();
    fragments.sort_by_key(|(id, registers)| (std::cmp::Reverse(*registers), *id));
    Live { statement: Some(i), fragments }
}

/// True if a statement makes its result register by register, so that it may leave it where an operand was that nobody needs any more:
/// between elements, and where elements change registers within a thread.
fn reuses(stmt: &Stmt, plans: &StmtMap<StmtPlan>) -> bool {
    match &stmt.kind {
        StmtKind::Elementwise { .. } | StmtKind::Cast { .. } => true,
        StmtKind::Join { .. } | StmtKind::Split { .. } => {
            matches!(plans.get(stmt.id), Some(StmtPlan::Halves(_)))
        }
        StmtKind::Shape { .. } => {
            matches!(plans.get(stmt.id), Some(StmtPlan::Move(Movement::Registers(_))))
        }
        _ => false,
    }
}

/// True if every register of a statement's result is one of its operand's.
fn renames(plan: &StmtPlan, bits: u32) -> bool {
    let StmtPlan::Move(Movement::Registers(moves)) = plan else { return false };
    let per = 32 / bits.clamp(1, 32);
    let mut from: HashMap<u32, u32> = HashMap::default();
    moves.iter().all(|(s, d)| s % per == d % per && *from.entry(d / per).or_insert(s / per) == s / per)
}

/// Of every tensor that is written once, as another shape of one that is not written before its own last use, that one.
fn names(
    verified: &Program,
    statements: &[(&tilewright_tile::core::Stmt, usize)],
    plans: &StmtMap<StmtPlan>,
) -> HashMap<TensorId, TensorId> {
    let mut writes: HashMap<TensorId, Vec<usize>> = HashMap::default();
    let mut uses: HashMap<TensorId, (usize, usize)> = HashMap::default();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        for id in stmt.kind.writes() {
            writes.entry(id).or_default().push(i);
        }
        for id in touched(stmt) {
            uses.entry(id).and_modify(|u| u.1 = i).or_insert((i, i));
        }
    }
    let dtype = |id: &TensorId| verified.tensor(*id).dtype;
    let mut names = HashMap::default();
    // Backwards: a name of a name is a use of what both name.
    for (i, (stmt, _)) in statements.iter().enumerate().rev() {
        let (dst, src) = match &stmt.kind {
            StmtKind::Shape { dst, src, .. }
                if plans.get(stmt.id).is_some_and(|plan| renames(plan, dtype(dst).bits())) =>
            {
                (dst, src)
            }
            StmtKind::Cast { dst, src } if dtype(dst) == dtype(src) => (dst, src),
            _ => continue,
        };
        let (first, last) = uses[dst];
        let stays = writes.get(src).is_none_or(|all| all.iter().all(|w| *w < i || *w > last));
        if writes[dst].len() == 1 && first == i && stays {
            names.insert(*dst, *src);
            uses.entry(*src).and_modify(|u| u.1 = u.1.max(last));
        }
    }
    names
}

/// Tensors that a message about registers lists.
const LISTED: usize = 8;

/// More registers than a thread has.
pub(crate) fn too_many_registers(
    verified: &Program,
    limit: u32,
    live: &Live,
    statements: &[(&tilewright_tile::core::Stmt, usize)],
) -> Diagnostic {
    let total = live.registers();
    let tensor = |id: TensorId| verified.tensor(id);
    let mut list: Vec<String> =
        live.fragments.iter().take(LISTED).map(|(id, n)| format!("`{}` {n}", tensor(*id).name)).collect();
    if live.fragments.len() > LISTED {
        let rest: u32 = live.fragments[LISTED..].iter().map(|(_, n)| n).sum();
        list.push(format!("{} others {rest}", live.fragments.len() - LISTED));
    }
    let largest = live.fragments.first().map_or(Origin::Unknown, |(id, _)| tensor(*id).span);
    let place = live.statement.map_or(Origin::Unknown, |i| statements[i].0.span);
    let message = format!(
        "the register tensors that are live at once take {total} registers of a thread, which has {limit}"
    );
    let help = format!(
        "make the tiles smaller or use more threads; live here, in registers a thread: {}",
        list.join(", ")
    );
    if place.is_unknown() {
        return Diagnostic::new(Code::RegistersExceeded, largest, message)
            .label("the largest of them")
            .help(help);
    }
    Diagnostic::new(Code::RegistersExceeded, place, message)
        .label("the most are live here")
        .related(largest, "the largest of them")
        .help(help)
}
