//! Instructions of copies: those between registers and global memory by width alone; those that touch a shared tensor
//! together with all other copies of that tensor, because they share its layout.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap as HashMap;
use tilewright_layout::{HTuple, Layout, Slice, SwizzledLayout, compose, slice};
use tilewright_machine::{
    Arch, CopyKind, CopyRow, DType, Features, Memory, Scope, Timing, atomic_copy, copies, copies_anywhere,
    reductions, reductions_anywhere,
};
use tilewright_tile::core::{Program, TensorKind, TensorRef, TileRef};
use tilewright_tile::{Code, Diagnostic, IndexedMode, Origin, TensorId};

mod agree;
mod search;

pub use agree::{Agreed, agree};
use search::{Leaf, Search, holds, leave_useful};

use crate::access::{
    busy_warps, coalesced, global_access, is_broadcast, reordered_accesses, shared_access, vector_run,
    widest_access,
};
use crate::allocate::SHARED_ALIGN;
use crate::divisibility::{Divisibility, weight};
use crate::explain::Words;
use crate::linear::LANES;
use crate::plan::CopyPlan;
use crate::reason::{Lost, NotTaken};
use crate::reject::Reject;
use crate::shared::{Constraint, SharedUse, UnifyError, count, stage_modes};
use crate::tv::{Access, TvLayout, linear_coordinate};

/// A copy of a register tensor from or to global memory; it may combine elements with those there.
pub fn global_copy(
    divisibility: &Divisibility<'_>,
    arch: Arch,
    tv: &TvLayout,
    tile: &TileRef,
    (is_load, how): (bool, tilewright_tile::CopyAttrs),
) -> Result<(CopyPlan, Vec<NotTaken>), Reject> {
    let Some(global) = &tile.global else { return Err(Reject::NotAView) };
    let (src, dst) =
        if is_load { (Memory::Global, Memory::Register) } else { (Memory::Register, Memory::Global) };
    let mut not_taken = Vec::new();
    let mut last = Reject::NotAView;
    let rows: Vec<_> = match (how.fetch, how.combine) {
        (Some(fetch), _) => atomic_copy(fetch.op, tile.dtype, dst).into_iter().collect(),
        (None, Some(op)) => reductions(op, tile.dtype, dst, arch).collect(),
        (None, None) => copies(src, dst, Scope::Cta, arch).collect(),
    };
    for row in rows {
        match global_access(divisibility, tile, global, tv, row) {
            Ok(access) => {
                let access = Arc::new(access);
                if how.fetch.is_some() {
                    let bytes = handed_on(&access, tile);
                    return Ok((CopyPlan::Fetch { row, access, bytes }, not_taken));
                }
                return Ok((CopyPlan::Direct { row, access }, not_taken));
            }
            Err(why) => {
                not_taken.push(NotTaken::rejected(row.name, why.clone()));
                last = why;
            }
        }
    }
    Err(last)
}

/// Bytes of shared memory through which the results of atomic operations go to the threads that hold the same elements.
fn handed_on(access: &Access, tile: &TileRef) -> u32 {
    // Elements of 16 bits travel one a word.
    let bytes = (tile.dtype.bits() / 8).max(4);
    if access.broadcast { bytes * tile.shape.iter().product::<i64>() as u32 } else { 0 }
}

/// Issue cycles of the arithmetic around the load of a lone element of a few bits.
const LONE_CYCLES: u32 = 6;

/// A store of elements that share a byte with those of another thread.
pub fn shares_bytes(
    verified: &Program,
    stmt: &tilewright_tile::core::Stmt,
    dtype: DType,
    why: &dyn fmt::Display,
) -> Diagnostic {
    let n = dtype.per_byte();
    let text = tilewright_tile::statement_text(verified, stmt);
    Diagnostic::new(
        Code::Unsatisfiable,
        stmt.span,
        format!("`{text}` cannot store {dtype}: elements of two threads share a byte ({why})"),
    )
    .label(format!("stores whole bytes, {n} elements of {dtype} each"))
    .help(format!(
        "keep at least {n} contiguous elements a thread, for example through `rearrange` with a layout whose first values \
         are the {n} of a byte, and make offsets, strides and extents multiples of {n}"
    ))
}

/// Choices that the search over the copies of a shared tensor looks at, at most.
const NODES: u32 = 2000;

/// Cycles of a warp for the address and the guard of a call to global memory.
const ADDRESS_CYCLES: u32 = 4;

/// One way to do a copy that touches a shared tensor.
#[derive(Clone)]
struct Candidate {
    plan: CopyPlan,
    /// The instruction on the shared side, and the elements that it touches.
    row: &'static CopyRow,
    access: Arc<Access>,
    constraint: Constraint,
    /// Issue cycles of one warp, without conflicts.
    cycles: u64,
    /// Elements that must stay together at one shared address.
    vector: i64,
    /// True if vectors are made of other values than neighbours in the order of the registers' layout.
    reordered: bool,
}

/// The instruction of a plan, as reports name it.
pub fn plan_name(plan: &CopyPlan) -> String {
    match plan {
        CopyPlan::Direct { row, .. } | CopyPlan::Async { row, .. } | CopyPlan::Fetch { row, .. } => {
            row.name.to_string()
        }
        CopyPlan::Staged { load, store, .. } => format!("{} + {}", load.name, store.name),
        CopyPlan::Registers { moves } if moves.is_empty() => "nothing".to_string(),
        CopyPlan::Registers { .. } => "mov".to_string(),
    }
}

/// The ways to do a copy, as they are found.
struct Candidates<'a> {
    own: &'a Layout,
    shape: &'a [i64],
    found: Vec<Candidate>,
    rejected: Vec<NotTaken>,
}

impl Candidates<'_> {
    fn reject(&mut self, instruction: impl Into<String>, why: Reject) {
        self.rejected.push(NotTaken::rejected(instruction, why));
    }

    fn add(&mut self, plan: CopyPlan, row: &'static CopyRow, access: Arc<Access>, run: &Layout, cycles: u64) {
        let run = match compose(self.own, run) {
            // A vector holds elements of one row.
            Ok(run) if run.leaves().iter().all(|(extent, stride)| *extent == 1 || *stride != 0) => run,
            _ => return self.reject(plan_name(&plan), Reject::RunSplits),
        };
        let vector = i64::from(access.vector);
        let constraint = Constraint::contiguous(self.shape, &run);
        self.found.push(Candidate { plan, row, access, constraint, cycles, vector, reordered: false });
    }

    /// Further ways for an instruction between registers of this layout and a shared tensor, with vectors of other values.
    fn add_reordered(&mut self, tv: &TvLayout, tile: &TileRef, row: &'static CopyRow, issue: u32) {
        let from = self.found.len();
        for (access, run) in reordered_accesses(tv, &tile.shape, tile.dtype.bits(), row) {
            let access = Arc::new(access);
            let cycles = access.calls.len() as u64 * u64::from(issue);
            // One whose run splits in the tensor is no way, and no reason.
            if compose(self.own, &run).is_ok_and(|run| !is_broadcast(&run)) {
                self.add(CopyPlan::Direct { row, access: access.clone() }, row, access, &run, cycles);
            }
        }
        self.found[from..].iter_mut().for_each(|candidate| candidate.reordered = true);
    }
}

/// Statements that touch a shared tensor in the same way, with the ways to do them: one decision.
struct Site {
    /// The statements, each with the instructions that cannot do it.
    statements: Vec<(usize, Rc<Vec<NotTaken>>)>,
    /// Statement's tile coordinate → the tensor's own coordinate.
    own: Layout,
    weight: u64,
    candidates: Rc<Vec<Candidate>>,
}

impl Site {
    /// A statement, for messages.
    fn first(&self) -> usize {
        self.statements.first().map_or(0, |s| s.0)
    }

    /// True if the other statement may do exactly what these may.
    fn is_like(&self, own: &Layout, candidates: &[Candidate]) -> bool {
        let same = |a: &Candidate, b: &Candidate| {
            a.row.name == b.row.name
                && a.plan == b.plan
                && a.constraint == b.constraint
                && a.cycles == b.cycles
                && a.vector == b.vector
        };
        let alike = || {
            self.candidates.len() == candidates.len()
                && self.candidates.iter().zip(candidates).all(|(a, b)| same(a, b))
        };
        self.own == *own && (std::ptr::eq(self.candidates.as_slice(), candidates) || alike())
    }
}

/// The decisions about a shared tensor and the copies that touch it.
pub struct SharedSolution {
    /// The layout.
    pub layout: SwizzledLayout,
    sites: Rc<Vec<Site>>,
    /// For each site the number of the candidate.
    chosen: Vec<usize>,
    /// Cycles of all copies, weighted.
    cost: u64,
    /// The unified constraint.
    pub constraint: Constraint,
    /// Elements from one stage to the next, if the tensor has stages.
    pub stage: Option<i64>,
    /// Size in bytes.
    pub bytes: u32,
    /// For each statement the wavefronts of one execution by the whole block.
    pub wavefronts: Vec<(usize, u32)>,
    /// Number of stages, and the bytes of each, if the tensor has some.
    pub stages: Option<(i64, i64)>,
}

impl SharedSolution {
    /// The plan of each statement that touches the tensor.
    pub fn plans(&self) -> impl Iterator<Item = (usize, &CopyPlan)> {
        let chosen = self.sites.iter().zip(&self.chosen);
        chosen.flat_map(|(site, c)| site.statements.iter().map(|(i, _)| (*i, &site.candidates[*c].plan)))
    }
}

/// Statement's tile coordinate → the tensor's own coordinate, where the modes that the reference fixes are 0: the identity, a
/// choice of modes, perhaps transposed.
pub fn own_layout(verified: &Program, reference: &TensorRef) -> Option<Layout> {
    own_without(verified, reference, &[])
}

/// [`own_layout`] for the tensor without some modes, which the reference fixes.
fn own_without(verified: &Program, reference: &TensorRef, without: &[usize]) -> Option<Layout> {
    let shape = verified.shape(reference.tensor);
    if let Some(indexed) = reference.indexed {
        return own_indexed(verified, reference, indexed, without);
    }
    let modes = (0..shape.len()).filter(|mode| !without.contains(mode));
    let (extents, at): (Vec<i64>, Vec<Option<i64>>) = modes
        .map(|mode| (shape[mode], matches!(reference.index.get(mode), Some(Some(_))).then_some(0)))
        .unzip();
    if extents.is_empty() {
        return Some(Layout::trivial());
    }
    let (_, own) = slice(&linear_coordinate(extents).ok()?, &Slice(HTuple::from_flat(at))).ok()?;
    let reversed = || own.modes().into_iter().rev().collect::<Vec<_>>();
    if reference.transposed { Some(Layout::concat(&reversed()).ok()?.flatten()) } else { Some(own) }
}

/// [`own_without`] where a register tensor indexes a mode: that is fixed at 0 too, once for each index.
fn own_indexed(
    verified: &Program,
    reference: &TensorRef,
    indexed: IndexedMode,
    without: &[usize],
) -> Option<Layout> {
    let (mut leaves, mut stride) = (Vec::new(), 1i64);
    for (mode, extent) in verified.shape(reference.tensor).into_iter().enumerate() {
        if without.contains(&mode) {
            continue;
        }
        if indexed.mode as usize == mode {
            leaves.push((verified.shape(indexed.by)[0], 0));
        } else if !matches!(reference.index.get(mode), Some(Some(_))) {
            leaves.push((extent, stride));
        }
        stride = stride.checked_mul(extent)?;
    }
    if reference.transposed {
        leaves.reverse();
    }
    Layout::from_leaves(&leaves).ok()
}

/// The ways to do a copy, and the instructions that cannot.
type Ways = (Rc<Vec<Candidate>>, Rc<Vec<NotTaken>>);

/// The ways to do copies that touch shared tensors, by statement and layout of the register tensor, if there is one.
#[derive(Default)]
pub struct Memo(RefCell<HashMap<(usize, Option<TvLayout>), Ways>>);

/// Everything needed to solve the shared tensors of a program.
pub struct SharedProblem<'a> {
    /// The program.
    pub verified: &'a Program,
    /// Knowledge of sizes.
    pub divisibility: &'a Divisibility<'a>,
    /// The table of the architecture.
    pub timing: &'a Timing,
    /// The layout of each register tensor.
    pub register: &'a dyn Fn(TensorId) -> Option<TvLayout>,
    /// Every statement, with its loop depth.
    pub statements: &'a [(&'a tilewright_tile::core::Stmt, usize)],
    /// Without synthesis of layouts: each tensor as it is copied from global memory, without a swizzle.
    pub plain: bool,
    /// Ways to do copies that were found for one solution and hold for all.
    pub memo: &'a Memo,
    /// For each shared tensor the statements that copy it ([`copying`]).
    pub copying: &'a HashMap<TensorId, Vec<usize>>,
    /// Steps taken so far, and how many may be: beyond, the first layout that suits is taken.
    pub steps: &'a Cell<u64>,
    /// See `steps`.
    pub limit: u64,
}

/// For each tensor the statements that copy it, or to it, in order.
pub fn copying(statements: &[(&tilewright_tile::core::Stmt, usize)]) -> HashMap<TensorId, Vec<usize>> {
    let mut all: HashMap<TensorId, Vec<usize>> = HashMap::default();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        let Some((src, dst)) = stmt.kind.copied() else { continue };
        for id in [src.tensor, dst.tensor] {
            let own = all.entry(id).or_default();
            if own.last() != Some(&i) {
                own.push(i);
            }
        }
    }
    all
}

impl SharedProblem<'_> {
    /// Issue cycles of one call.
    fn issue(&self, row: &CopyRow) -> u32 {
        self.timing.lsu_issue(row).round() as u32
    }

    /// The ways to do statement `i`, a copy that touches a shared tensor of this shape, and the instructions that cannot.
    fn candidates(&self, i: usize, (src, dst): (&TileRef, &TileRef), own: &Layout, shape: &[i64]) -> Ways {
        let register = [src, dst].into_iter().find(|tile| tile.memory == Memory::Register);
        let key = (i, register.and_then(|tile| (self.register)(tile.tensor)));
        if let Some(known) = self.memo.0.borrow().get(&key) {
            return known.clone();
        }
        let mut candidates = Candidates { own, shape, found: Vec::new(), rejected: Vec::new() };
        match &key.1 {
            _ if src.memory == Memory::Global => self.without_registers(src, &mut candidates),
            Some(tv) => {
                let how = (&self.statements[i].0.kind, self.is_indexed(i));
                self.with_registers(tv, src, how, &mut candidates);
            }
            None => {}
        }
        // The cheapest first; among equals the one with fewer calls.
        candidates.found.sort_by_key(|c| (c.cycles, c.access.calls.len()));
        let ways = (Rc::new(candidates.found), Rc::new(candidates.rejected));
        self.memo.0.borrow_mut().insert(key, ways.clone());
        ways
    }

    /// Copies from global memory: asynchronous where the hardware has the width, else through registers.
    fn without_registers(&self, src: &TileRef, candidates: &mut Candidates<'_>) {
        let bits = src.dtype.bits();
        let threads = i64::from(self.verified.threads());
        // Nothing of an asynchronous copy lies in registers: where a warp has enough to do, others may have nothing. But of an indexed mode they hold the indices.
        let busy = if src.indexed.is_some() { threads } else { threads.min(LANES) };
        let (widest, why) = widest_access(self.divisibility, src, busy, 16);
        // Whatever the width, a thread copies the rows whose indices it holds.
        let indexed = src.indexed.is_some().then(|| coalesced(src, threads, widest)).flatten();
        for bytes in [16u32, 8, 4, 2, 1].into_iter().filter(|bytes| bytes * 8 >= bits) {
            let n = i64::from(bytes * 8 / bits);
            let row = copies(Memory::Global, Memory::Shared, Scope::Cta, self.timing.arch)
                .find(|r| r.bytes == bytes);
            let load = copies(Memory::Global, Memory::Register, Scope::Cta, self.timing.arch)
                .find(|r| r.bytes == bytes);
            let store = copies(Memory::Register, Memory::Shared, Scope::Cta, self.timing.arch)
                .find(|r| r.bytes == bytes && r.kind == CopyKind::PerThread);
            let (Some(load), Some(store)) = (load, store) else { continue };
            let name = row.map_or_else(|| format!("{} + {}", load.name, store.name), |r| r.name.to_string());
            if n > widest {
                candidates.reject(name, why.clone().unwrap_or(Reject::FewerContiguous(n)));
                continue;
            }
            let accessed = indexed
                .clone()
                .or_else(|| coalesced(src, threads, n))
                .ok_or(Reject::TooLarge)
                .and_then(|tv| vector_run(&tv, n));
            let (mut access, run) = match accessed {
                Ok(accessed) => accessed,
                Err(reason) => {
                    candidates.reject(name, reason);
                    continue;
                }
            };
            access.calls.iter_mut().for_each(|c| c.values.clear());
            let access = Arc::new(access);
            let calls = access.calls.len() as u64;
            if let Some(row) = row {
                let cycles = calls as f64 * f64::from(self.issue(row) + ADDRESS_CYCLES);
                let cycles = (cycles * busy_warps(&access.threads)).ceil() as u64;
                let plan = CopyPlan::Async { row, access: access.clone() };
                candidates.add(plan, row, access, &run, cycles);
            } else {
                let plan = CopyPlan::Staged { load, store, access: access.clone() };
                let cycles = calls * u64::from(self.issue(load) + self.issue(store) + ADDRESS_CYCLES);
                candidates.add(plan, store, access, &run, cycles);
            }
        }
    }

    /// True if a register tensor indexes a mode of what statement `i` copies.
    fn is_indexed(&self, i: usize) -> bool {
        let copied = self.statements[i].0.kind.copied();
        copied.is_some_and(|(src, dst)| src.indexed.is_some() || dst.indexed.is_some())
    }

    /// Copies between a register tensor of this layout and a shared one.
    fn with_registers(
        &self,
        tv: &TvLayout,
        src: &TileRef,
        (kind, indexed): (&tilewright_tile::core::StmtKind, bool),
        candidates: &mut Candidates<'_>,
    ) {
        let (bits, is_store) = (src.dtype.bits(), src.memory == Memory::Register);
        let (from, to) =
            if is_store { (Memory::Register, Memory::Shared) } else { (Memory::Shared, Memory::Register) };
        // What is narrower than one element is no alternative.
        let fetch = kind.fetch();
        let rows: Vec<_> = match (fetch, kind.combines()) {
            (Some(fetch), _) => atomic_copy(fetch.op, src.dtype, to).into_iter().collect(),
            (None, Some(op)) => reductions_anywhere(op, src.dtype, to).collect(),
            (None, None) => {
                copies_anywhere(from, to, Scope::Cta).filter(|row| row.bytes * 8 >= bits).collect()
            }
        };
        for row in rows {
            if row.is_collective() && indexed {
                candidates.reject(row.name, Reject::RowsFromAnywhere);
                continue;
            }
            let missing = self.timing.arch.lacks(row.needs);
            if missing != Features::NONE {
                candidates.reject(row.name, Reject::Lacks(missing, self.timing.arch));
                continue;
            }
            match shared_access(tv, bits, row) {
                Ok((access, _)) if is_store && row.is_collective() && access.broadcast => {
                    candidates.reject(row.name, Reject::StoredTwice);
                }
                Ok((access, run)) => {
                    let access = Arc::new(access);
                    let cycles = access.calls.len() as u64 * u64::from(self.issue(row));
                    let bytes = handed_on(&access, src);
                    let plan = match fetch {
                        Some(_) => CopyPlan::Fetch { row, access: access.clone(), bytes },
                        None => CopyPlan::Direct { row, access: access.clone() },
                    };
                    candidates.add(plan, row, access, &run, cycles);
                    if fetch.is_none() {
                        candidates.add_reordered(tv, src, row, self.issue(row));
                    }
                }
                Err(reason) => candidates.reject(row.name, reason),
            }
        }
        let lone =
            copies(from, to, Scope::Cta, self.timing.arch).find(|r| r.bytes == 1 && bits < 8 && !is_store);
        if let (Some(row), Ok((access, run))) = (lone, vector_run(tv, 1)) {
            // The byte that holds an element, and the element out of it: an address, a shift and a field more.
            let access = Arc::new(access);
            let cycles = access.calls.len() as u64 * u64::from(self.issue(row) + LONE_CYCLES);
            candidates.add(CopyPlan::Direct { row, access: access.clone() }, row, access, &run, cycles);
        }
    }

    /// The best ways, at most `limit`, to lay out a shared tensor and do all its copies, the cheapest first: a depth-first search
    /// over the candidates of each copy, cut off where the cycles so far reach those of the last that is kept, each leaf
    /// completed with its best swizzle.
    ///
    /// # Errors
    ///
    /// A copy that no instruction does; copies of which no layout suits all.
    pub fn solve(&self, tensor: TensorId, limit: usize) -> Result<Vec<SharedSolution>, Diagnostic> {
        let row = self.verified.tensor(tensor);
        let bits = row.dtype.bits();
        let given = match &row.kind {
            TensorKind::Shared { pinned, .. } => pinned.clone(),
            _ => None,
        };
        let stages = self.stages(tensor, given.is_some());
        let shape = &stages.shape;
        let mut sites = self.sites(tensor, &stages)?;
        let plain = (self.plain && given.is_none()).then(|| plain_layout(shape, &sites));
        let pinned = given.clone().or(plain);
        leave_useful(&mut sites, pinned.as_ref());
        let mut search = Search {
            sites: &sites,
            bits,
            pinned: pinned.as_ref(),
            stage: stages.distance,
            limit: limit.max(1),
            best: Vec::new(),
            clashes: Vec::new(),
            budget: NODES,
            steps: self.steps,
            most_steps: self.limit,
        };
        search.descend(&mut Vec::new(), Constraint::unknown(shape), 0);
        let clashes = std::mem::take(&mut search.clashes);
        let best = std::mem::take(&mut search.best);
        if best.is_empty() {
            let unsuited = given.as_ref().and_then(|pinned| {
                let suits = |c: &Candidate| holds(pinned, &c.constraint, c.vector);
                sites.iter().find(|site| !site.candidates.iter().any(suits))
            });
            return Err(match unsuited {
                Some(site) => self.unsuited(tensor, site, shape),
                None => self.unsolvable(tensor, &sites, &clashes, given.is_some()),
            });
        }
        let sites = Rc::new(sites);
        best.into_iter().map(|leaf| self.solution(tensor, &sites, &stages, leaf)).collect()
    }

    /// The stages of a shared tensor: the layout is found for the other modes, and repeated for each stage.
    fn stages(&self, tensor: TensorId, given: bool) -> Stages {
        let rank = self.verified.shape(tensor).len();
        let modes = if given { Vec::new() } else { self.stage_modes(tensor, rank) };
        self.stages_along(tensor, modes)
    }

    /// The stages of a shared tensor whose modes `modes` tell them apart.
    fn stages_along(&self, tensor: TensorId, modes: Vec<usize>) -> Stages {
        let whole = self.verified.shape(tensor);
        let kept = (0..whole.len()).filter(|mode| !modes.contains(mode));
        let shape: Vec<i64> = kept.map(|mode| whole[mode]).collect();
        let bits = self.verified.tensor(tensor).dtype.bits();
        let distance = (!modes.is_empty()).then(|| {
            let aligned = (i64::from(SHARED_ALIGN) * 8 / i64::from(bits)).max(1);
            let size: i64 = shape.iter().product();
            size + (aligned - size % aligned) % aligned
        });
        Stages { whole, modes, shape, distance }
    }

    /// The copies that touch a shared tensor, with the ways to do them.
    fn sites(&self, tensor: TensorId, stages: &Stages) -> Result<Vec<Site>, Diagnostic> {
        let row = self.verified.tensor(tensor);
        let words = Words { verified: self.verified, statements: self.statements };
        let mut sites: Vec<Site> = Vec::new();
        for i in self.copying.get(&tensor).into_iter().flatten().copied() {
            let (stmt, depth) = &self.statements[i];
            let Some((src, dst)) = stmt.kind.copied() else { continue };
            let Some(reference) = [src, dst].into_iter().find(|r| r.tensor == tensor) else { continue };
            let own = own_without(self.verified, reference, &stages.modes)
                .ok_or_else(|| too_large(&row.name, stmt.span))?;
            let ends = (&self.verified.tile(src), &self.verified.tile(dst));
            let (candidates, rejected) = self.candidates(i, ends, &own, &stages.shape);
            if candidates.is_empty() {
                let why = rejected.last().map(|other| words.lost(&other.why));
                if row.dtype.bits() < 8 && dst.tensor == tensor {
                    return Err(shares_bytes(self.verified, stmt, row.dtype, &why.unwrap_or_default()));
                }
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                return Err(Diagnostic::new(
                    Code::Unsatisfiable,
                    stmt.span,
                    format!("no instruction can do this copy of `{}`{why}", row.name),
                ));
            }
            let weight = weight(*depth);
            match sites.iter_mut().find(|site| site.is_like(&own, &candidates)) {
                Some(site) => {
                    site.weight += weight;
                    site.statements.push((i, rejected));
                }
                None => sites.push(Site { statements: vec![(i, rejected)], own, weight, candidates }),
            }
        }
        Ok(sites)
    }

    /// A choice for every site, as the solution of a tensor with its stages.
    fn solution(
        &self,
        tensor: TensorId,
        sites: &Rc<Vec<Site>>,
        stages: &Stages,
        Leaf { cost, chosen, layout, constraint }: Leaf,
    ) -> Result<SharedSolution, Diagnostic> {
        let row = self.verified.tensor(tensor);
        let bits = row.dtype.bits();
        let warps = i64::from(self.verified.threads()) / 32;
        let mut wavefronts = Vec::new();
        for (site, c) in sites.iter().zip(&chosen) {
            let candidate = &site.candidates[*c];
            let (row, access) = (candidate.row, &candidate.access);
            let usage = SharedUse { row, access, own: &site.own, weight: 1 };
            let busy = match candidate.plan {
                CopyPlan::Async { .. } => (warps as f64 * busy_warps(&access.threads)).ceil() as i64,
                _ => warps,
            };
            let all = count(&usage, &layout, bits, 0..busy).map_or(0, |w| w.actual);
            wavefronts.extend(site.statements.iter().map(|(i, _)| (*i, all)));
        }
        let Stages { whole, modes, distance: stage, .. } = stages;
        let layout = match stage {
            None => layout,
            Some(stage) => {
                layout.with_stages(whole, modes, *stage).map_err(|_| too_large(&row.name, row.span))?
            }
        };
        let size = (layout.cosize() * i64::from(bits) + 7) / 8;
        let bytes = u32::try_from(size).unwrap_or(u32::MAX);
        let (sites, stage) = (sites.clone(), *stage);
        let stages =
            stage.map(|stage| (modes.iter().map(|mode| whole[*mode]).product(), stage * i64::from(bits) / 8));
        Ok(SharedSolution { layout, sites, chosen, cost, constraint, stage, bytes, wavefronts, stages })
    }

    /// The pinned layout of a shared tensor that has no instruction for some copy.
    fn unsuited(&self, tensor: TensorId, site: &Site, shape: &[i64]) -> Diagnostic {
        let program = self.verified;
        let row = program.tensor(tensor);
        let stmt = &self.statements[site.first()].0;
        let text = tilewright_tile::statement_text(program, stmt);
        // The shortest run asks for the least.
        let least = site.candidates.iter().min_by_key(|c| c.vector);
        let run = least.map_or_else(String::new, |c| run_text(&c.constraint, shape));
        Diagnostic::new(
            Code::Unsatisfiable,
            row.span,
            format!(
                "the layout that the program gives `{}` does not have what `{text}` needs: {run} as neighbours in memory, \
                 the first at a multiple of {}",
                row.name,
                least.map_or(1, |c| c.vector)
            ),
        )
        .label("pinned here")
        .related(stmt.span, "this copy cannot use it")
        .help(format!("leave the layout of `{}` open, or pin one with such a run", row.name))
    }

    /// Copies of a shared tensor of which no layout suits all.
    fn unsolvable(
        &self,
        tensor: TensorId,
        sites: &[Site],
        clashes: &[(usize, usize, UnifyError)],
        given: bool,
    ) -> Diagnostic {
        let row = self.verified.tensor(tensor);
        let mut error = Diagnostic::new(
            Code::Unsatisfiable,
            row.span,
            format!("no layout of `{}` suits all its copies", row.name),
        )
        .help(if given {
            format!("leave the layout of `{}` open", row.name)
        } else {
            "copy through a second shared tensor, or transpose in registers".to_string()
        });
        // Two copies that no choice of instructions reconciles say the most; else the search's first clashes.
        let apart = |a: usize, b: usize| {
            let mut last = None;
            for x in sites[a].candidates.iter() {
                for y in sites[b].candidates.iter() {
                    last = Some(x.constraint.unify(&y.constraint).err()?);
                }
            }
            last.map(|why| (a, b, why))
        };
        let pair = (0..sites.len()).find_map(|b| (0..b).find_map(|a| apart(a, b)));
        let clashes = pair.as_ref().map_or(clashes, std::slice::from_ref);
        let mut told: Vec<(usize, usize)> = Vec::new();
        for (a, b, why) in clashes {
            let pair = ((*a).min(*b), (*a).max(*b));
            if told.iter().any(|t| [t.0, t.1].iter().any(|s| *s == pair.0 || *s == pair.1)) {
                continue;
            }
            told.push(pair);
            error = error.related(self.statements[sites[*a].first()].0.span, format!("this copy: {why}"));
            if a != b {
                error = error.related(self.statements[sites[*b].first()].0.span, "and this one");
            }
        }
        error
    }

    /// The modes of a shared tensor that are stages; none if that leaves no mode, or if nothing uses it.
    fn stage_modes(&self, tensor: TensorId, rank: usize) -> Vec<usize> {
        stage_modes(rank, self.references(tensor))
    }

    /// The references to a shared tensor in copies.
    fn references(&self, tensor: TensorId) -> impl Iterator<Item = &TensorRef> {
        let copying = self.copying.get(&tensor).into_iter().flatten();
        let operands = copying.filter_map(|i| self.statements[*i].0.kind.copied());
        operands.flat_map(|(src, dst)| [src, dst]).filter(move |r| r.tensor == tensor)
    }

    /// For each statement that touches the tensor what else could have done it, and why it lost.
    pub fn explain(&self, solution: &SharedSolution) -> Vec<(usize, Vec<NotTaken>)> {
        let SharedSolution { sites, chosen, cost, .. } = solution;
        let mut all = Vec::new();
        for (s, site) in sites.iter().enumerate() {
            let winner = &site.candidates[chosen[s]];
            let mut not_taken = Vec::new();
            for (c, candidate) in site.candidates.iter().enumerate() {
                let name = plan_name(&candidate.plan);
                let alike = candidate.reordered || winner.reordered;
                let told = name == plan_name(&winner.plan)
                    || not_taken.iter().any(|n: &NotTaken| n.instruction == name);
                // The same instruction with other values is no alternative to tell of.
                if c == chosen[s] || (alike && told) {
                    continue;
                }
                // Does it contradict what the other copies chose?
                let clash = sites.iter().enumerate().filter(|(o, _)| *o != s).find_map(|(o, other)| {
                    let theirs = &other.candidates[chosen[o]];
                    candidate.constraint.unify(&theirs.constraint).err().map(|e| (o, e))
                });
                let (cycles, calls) = (candidate.cycles, candidate.access.calls.len());
                let why = match clash {
                    Some((o, error)) => Lost::Contradicts {
                        constraint: candidate.constraint.clone(),
                        other: plan_name(&sites[o].candidates[chosen[o]].plan),
                        stmt: self.statements[sites[o].first()].0.id,
                        error,
                    },
                    None if cycles == winner.cycles => {
                        Lost::MoreCalls { calls, against: winner.access.calls.len() }
                    }
                    None if cycles > winner.cycles => Lost::MoreCycles { cycles, against: winner.cycles },
                    None => Lost::DearerInAll { cycles, total: *cost },
                };
                not_taken.push(NotTaken { instruction: name, why });
            }
            for (statement, rejected) in &site.statements {
                all.push((*statement, rejected.iter().chain(&not_taken).cloned().collect()));
            }
        }
        all
    }
}

/// A shared tensor's modes: stages, which every use fixes, and the others.
struct Stages {
    /// The tensor's shape.
    whole: Vec<i64>,
    /// The modes that are stages.
    modes: Vec<usize>,
    /// The extents of the others.
    shape: Vec<i64>,
    /// Elements from one stage to the next; `None` without stages.
    distance: Option<i64>,
}

fn too_large(name: &str, place: Origin) -> Diagnostic {
    Diagnostic::new(Code::BadValue, place, format!("`{name}` is too large to be laid out"))
}

/// The elements that a constraint wants next to each other, in words.
fn run_text(constraint: &Constraint, shape: &[i64]) -> String {
    let known = constraint.known();
    if known.is_empty() {
        return "its elements one by one".to_string();
    }
    let parts: Vec<String> = known
        .iter()
        .map(|k| {
            let (mut mode, mut unit) = (0, 1);
            while mode + 1 < shape.len() && k.coordinate >= unit * shape[mode] {
                unit *= shape[mode];
                mode += 1;
            }
            match k.coordinate / unit {
                1 => format!("{} elements along mode {mode}", k.extent),
                step => format!("{} elements, {step} apart, along mode {mode}", k.extent),
            }
        })
        .collect();
    parts.join(", then ")
}

/// The layout that a tensor has without synthesis: the modes in the order in which they are copied from global memory, else the
/// last one contiguous, and no swizzle.
fn plain_layout(shape: &[i64], sites: &[Site]) -> SwizzledLayout {
    let copied = sites
        .iter()
        .flat_map(|site| site.candidates.iter())
        .find(|c| matches!(c.plan, CopyPlan::Async { .. } | CopyPlan::Staged { .. }));
    let constraint = copied.map_or_else(|| Constraint::unknown(shape), |c| c.constraint.clone());
    let size = shape.iter().product();
    let layout = constraint.materialise().unwrap_or_else(|| Layout::identity(size));
    SwizzledLayout::from(layout)
}
