//! Thread-value layouts of register tensors: anchors and propagation (Hexcute, Algorithm 1).
//!
//! Constraints ([`constraint`](crate::constraint)) connect register tensors into components, separated by memory. Pinned
//! layouts come first, then matrix products, then, in a component that has neither, the copy that moves the most data. From
//! there a queue of ready constraints leads layouts on, until one finds two that clash.
//!
//! A matrix product is a decision: its [`Arrangement`] is one of several. The search over them is depth-first: a product of
//! which no operand has a layout branches; one that meets another through registers takes an arrangement that fits what it
//! meets, such as the first product's accumulator as its left factor. Where none fits, the clash says which operand of which
//! statement must be rearranged.
//!
//! What follows a product depends on what came before only through the layouts that it still meets (`Solver::frontier`): a
//! dead end is looked at once for each such interface, so a search that finds nothing takes time that is linear in the number of
//! products, and one that finds something the same for each solution. Beyond that, a search ends with its [steps](Budget::steps).

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;

use tilewright_machine::{Arch, Memory, MmaRow, mmas};
use tilewright_tile::{Code, Diagnostic, Span, Stmt, StmtKind, TensorId, TensorKind, TileRef, Verified};

use crate::access::{coalesced, widest_vector};
use crate::constraint::{Constraint, Equation, components, constraints};
use crate::facts::Facts;
use crate::gemm::{self, Arrangement, GemmLayouts};
use crate::linear::LANES;
use crate::plan::GemmPlan;
use crate::shapes;
use crate::tv::{TvLayout, moves};

/// Where a tensor's layout comes from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Index of the statement that fixed it; `None` for a pinned layout.
    pub statement: Option<usize>,
    /// In words.
    pub why: String,
}

/// Steps that comparing an arrangement with known layouts counts for.
const COMPARISON: u64 = 20;

/// Why a pinned layout is what it is.
const PINNED: &str = "given by the program";

/// The layouts of all register tensors: one solution of the constraints.
#[derive(Clone, Debug)]
pub struct Registers {
    /// One entry a tensor; `None` for other memories, and for what is not solved yet.
    pub layouts: Vec<Option<(TvLayout, Origin)>>,
    /// One entry a statement: the arrangement of each matrix product.
    pub gemms: Vec<Option<Arrangement>>,
}

/// Two statements that want different layouts of one tensor.
#[derive(Clone, Debug)]
pub struct Clash {
    /// What to say to the author.
    pub diagnostic: Box<Diagnostic>,
    /// The statement and the operand whose rearrangement would resolve it.
    pub remedy: Option<(usize, TensorId)>,
}

impl From<Diagnostic> for Clash {
    fn from(diagnostic: Diagnostic) -> Self {
        Clash { diagnostic: Box::new(diagnostic), remedy: None }
    }
}

/// Every statement, in the order of [`Verified::visit`], with the depth of loops around it.
pub fn statements(verified: &Verified) -> Vec<(Stmt, usize)> {
    let mut all = Vec::new();
    verified.visit(&mut |stmt, depth| {
        // Bodies are visited on their own; without them a statement is small to copy.
        let kind = match &stmt.kind {
            StmtKind::For { counter, lo, hi, .. } => {
                StmtKind::For { counter: *counter, lo: lo.clone(), hi: hi.clone(), body: Vec::new() }
            }
            StmtKind::Tiles { row, col, after, rows, cols, order, .. } => StmtKind::Tiles {
                row: *row,
                col: *col,
                after: *after,
                rows: rows.clone(),
                cols: cols.clone(),
                order: order.clone(),
                body: Vec::new(),
            },
            StmtKind::Finally { after, .. } => StmtKind::Finally { after: *after, body: Vec::new() },
            StmtKind::Stage { pipeline, side, slot, .. } => {
                StmtKind::Stage { pipeline: *pipeline, side: *side, slot: *slot, body: Vec::new() }
            }
            kind => kind.clone(),
        };
        all.push((Stmt { kind, span: stmt.span }, depth));
    });
    all
}

/// The thread-value constraints of a program, and how they are solved.
pub struct Solver<'a> {
    verified: &'a Verified,
    facts: &'a Facts<'a>,
    arch: Arch,
    statements: &'a [(Stmt, usize)],
    constraints: Vec<Constraint>,
    /// For each tensor the constraints that it takes part in.
    touching: Vec<Vec<usize>>,
    /// For each matrix product the arrangements that fit its tile; products of the same tile share them.
    arrangements: Vec<Rc<Arrangements>>,
    /// The arrangements that agree with layouts of operands that are known, for products that share theirs.
    fitting: RefCell<HashMap<FittingKey, Rc<Vec<Arrangement>>>>,
    /// Copies between register tensors and other memories ([`Solver::anchors`]).
    anchors: Vec<Anchor>,
    /// The tensors that statements name.
    touched: BTreeSet<TensorId>,
    /// Steps taken so far.
    steps: Cell<u64>,
}

/// A copy that can say how a register tensor is distributed.
struct Anchor {
    statement: usize,
    tensor: TensorId,
    /// The tile in memory.
    tile: TileRef,
    /// Elements of a vector.
    vector: i64,
}

/// The arrangements of a product with the layouts of its operands. None for statements of other kinds.
#[derive(Default)]
struct Arrangements {
    /// The first product that has them.
    first: usize,
    all: Vec<Arrangement>,
    layouts: Vec<GemmLayouts>,
}

/// The first product with the same arrangements, and the known layouts of C, A and B.
type FittingKey = (usize, [Option<TvLayout>; 3]);

/// What decides how a search goes on: the next product, and for each tensor the number of its layout, if that still matters.
type Frontier = (usize, Vec<u32>);

/// The layout of a tensor in a [`Frontier`] that no later statement meets, and that of one that has none yet.
const SETTLED: u32 = 0;
const OPEN: u32 = 1;

/// A search on its way.
struct Walk {
    budget: Budget,
    found: Found,
    /// The numbers of layouts in frontiers.
    numbers: HashMap<TvLayout, u32>,
    /// Frontiers beyond which there is no solution, with the clashes there.
    dead: HashMap<Frontier, usize>,
}

/// How far a search goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// Solutions that are looked at, at most.
    pub solutions: usize,
    /// 0 tries arrangements in their own order; any other number shuffles them, but for the first.
    pub seed: u64,
    /// Steps that a search takes, at most, which bounds its time on any machine in the same way: layouts led on by one statement,
    /// arrangements compared with what is known, ways to do a copy, statements estimated for a warp.
    pub steps: u64,
}

/// What ends a search before it has looked at everything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exhausted {
    /// [`Budget::solutions`].
    Solutions,
    /// [`Budget::steps`].
    Steps,
}

/// What a search found.
pub struct Found {
    /// Solutions, in the order in which they were found.
    pub solutions: Vec<Registers>,
    /// What ended it before every arrangement was looked at.
    pub exhausted: Option<Exhausted>,
    /// The clash of the first branch that had one.
    pub clash: Option<Clash>,
    /// Branches that ended in a clash.
    pub clashes: usize,
}

impl<'a> Solver<'a> {
    /// Builds the constraints.
    ///
    /// # Errors
    ///
    /// A matrix product that no instruction does.
    pub fn new(
        verified: &'a Verified,
        facts: &'a Facts<'a>,
        arch: Arch,
        statements: &'a [(Stmt, usize)],
    ) -> Result<Self, Diagnostic> {
        let constraints = constraints(verified, statements);
        let mut touching = vec![Vec::new(); verified.program().tensors.len()];
        for (i, constraint) in constraints.iter().enumerate() {
            for tensor in constraint.tensors() {
                touching[tensor.0 as usize].push(i);
            }
        }
        let mut solver = Solver {
            verified,
            facts,
            arch,
            statements,
            constraints,
            touching,
            arrangements: Vec::new(),
            fitting: RefCell::default(),
            anchors: Solver::anchors(verified, facts, statements),
            touched: verified.touched(),
            steps: Cell::new(0),
        };
        let none = Rc::new(Arrangements::default());
        for (i, (stmt, _)) in statements.iter().enumerate() {
            let StmtKind::Gemm { c, a, warps, .. } = &stmt.kind else {
                solver.arrangements.push(none.clone());
                continue;
            };
            let dtypes = |i: usize| match &statements[i].0.kind {
                StmtKind::Gemm { c, a, warps, .. } => {
                    let dtype = |t: &TensorId| verified.program().tensor(*t).dtype;
                    Some((dtype(c), dtype(a), warps))
                }
                _ => None,
            };
            let own = Some((verified.program().tensor(*c).dtype, verified.program().tensor(*a).dtype, warps));
            let like = (0..i).find(|j| dtypes(*j) == own && solver.extents(*j) == solver.extents(i));
            let arrangements = match like {
                Some(j) => solver.arrangements[j].clone(),
                None => Rc::new(solver.arrange(i)?),
            };
            solver.arrangements.push(arrangements);
        }
        Ok(solver)
    }

    /// The constraints.
    pub fn constraints(&self) -> &[Constraint] {
        &self.constraints
    }

    /// The component of each register tensor.
    pub fn components(&self) -> Vec<Option<usize>> {
        components(self.verified, &self.constraints)
    }

    /// Steps that searches have taken so far (see [`Budget::steps`]).
    pub fn steps(&self) -> u64 {
        self.steps.get()
    }

    fn step(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    /// The solutions of the constraints within a budget.
    pub fn search(&self, budget: Budget) -> Found {
        let found = Found { solutions: Vec::new(), exhausted: None, clash: None, clashes: 0 };
        let budget = Budget { steps: budget.steps.saturating_add(self.steps()), ..budget };
        let mut walk = Walk { budget, found, numbers: HashMap::new(), dead: HashMap::new() };
        let mut state = Registers {
            layouts: vec![None; self.verified.program().tensors.len()],
            gemms: vec![None; self.statements.len()],
        };
        let started = self.pinned(&mut state);
        match started {
            Ok(()) => self.descend(state, 0, &mut walk),
            Err(clash) => {
                walk.found.clash = Some(clash);
                walk.found.clashes = 1;
            }
        }
        walk.found
    }

    /// Whether the budget is spent; a search that has found nothing goes on until it is out of steps.
    fn spent(&self, walk: &mut Walk) -> bool {
        if walk.found.solutions.len() >= walk.budget.solutions {
            walk.found.exhausted = Some(Exhausted::Solutions);
        } else if self.steps() >= walk.budget.steps
            && (!walk.found.solutions.is_empty() || walk.found.clash.is_some())
        {
            walk.found.exhausted = Some(Exhausted::Steps);
        }
        walk.found.exhausted.is_some()
    }

    /// Decides the matrix products from statement `from` on, then everything else.
    fn descend(&self, state: Registers, from: usize, walk: &mut Walk) {
        if self.spent(walk) {
            return;
        }
        let is_product = |i: &usize| matches!(self.statements[*i].0.kind, StmtKind::Gemm { .. });
        let next = (from..self.statements.len()).find(is_product);
        let frontier = self.frontier(&state, next, &mut walk.numbers);
        if let Some(clashes) = walk.dead.get(&frontier) {
            walk.found.clashes = walk.found.clashes.saturating_add(*clashes);
            return;
        }
        let (solutions, clashes) = (walk.found.solutions.len(), walk.found.clashes);
        self.branch(state, next, walk);
        if walk.found.exhausted.is_none() && walk.found.solutions.len() == solutions {
            walk.dead.insert(frontier, walk.found.clashes - clashes);
        }
    }

    /// Decides product `next` and what follows it; without one, everything else.
    fn branch(&self, mut state: Registers, next: Option<usize>, walk: &mut Walk) {
        let Some(i) = next else {
            match self.rest(&mut state) {
                Ok(()) => walk.found.solutions.push(state),
                Err(clash) => walk.found.fail(clash),
            }
            return;
        };
        let StmtKind::Gemm { c, a, b, .. } = self.statements[i].0.kind else { return };
        let fits: Vec<Arrangement> = self.fitting(&state, i);
        if fits.is_empty() {
            return walk.found.fail(self.unfitting(&state, i));
        }
        for by in self.order(fits, i, walk.budget) {
            if self.spent(walk) {
                return;
            }
            let mut branch = state.clone();
            match self.place(&mut branch, i, (c, a, b), by) {
                Ok(()) => self.descend(branch, i + 1, walk),
                Err(clash) => walk.found.fail(clash),
            }
        }
    }

    /// What decides how a search goes on from product `next`: which tensors have no layout; the layouts of those that a statement
    /// meets together with one that has none, or that a product meets that is not decided yet; and the arrangements that
    /// [`fitting`](Self::fitting) may take over. A constraint of which every tensor has a layout has been checked.
    fn frontier(
        &self,
        state: &Registers,
        next: Option<usize>,
        numbers: &mut HashMap<TvLayout, u32>,
    ) -> Frontier {
        self.step(1 + self.constraints.len() as u64 / 8);
        let known = |t: TensorId| state.layouts[t.0 as usize].as_ref().map(|l| &l.0);
        let mut key = vec![SETTLED; state.layouts.len()];
        let mut meets = |tensors: &[TensorId]| {
            for t in tensors {
                let next = numbers.len() as u32 + OPEN + 1;
                key[t.0 as usize] = known(*t).map_or(OPEN, |tv| match numbers.get(tv) {
                    Some(number) => *number,
                    None => {
                        numbers.insert(tv.clone(), next);
                        next
                    }
                });
            }
        };
        let open = |tensors: &[TensorId]| tensors.iter().any(|t| known(*t).is_none());
        for constraint in &self.constraints {
            let tensors = constraint.tensors();
            let later = matches!(constraint.equation, Equation::Gemm { .. })
                && next.is_some_and(|next| constraint.statement >= next);
            if later || open(&tensors) {
                meets(&tensors);
            }
        }
        let mut taken = Vec::new();
        let mut shared: Vec<TensorId> = Vec::new();
        for (i, (stmt, _)) in self.statements.iter().enumerate().rev() {
            match &stmt.kind {
                // The operand of a gather is in no constraint with the others.
                StmtKind::Gather { dst, src, index, .. } => {
                    let tensors = [*dst, *src, *index];
                    if open(&tensors) {
                        meets(&tensors);
                    }
                }
                StmtKind::Gemm { c, a, b, .. } if next.is_some_and(|next| i >= next) => {
                    shared.extend([*c, *a, *b]);
                }
                StmtKind::Gemm { c, a, b, .. } if [c, a, b].iter().any(|t| shared.contains(t)) => {
                    let by = state.gemms[i]
                        .and_then(|by| self.arrangements[i].all.iter().position(|own| *own == by));
                    taken.push(by.map_or(u32::MAX, |by| by as u32));
                }
                _ => {}
            }
        }
        key.extend(taken);
        (next.unwrap_or(self.statements.len()), key)
    }

    /// The arrangements of product `i` that agree with the layouts that its operands have. A product that shares an operand
    /// with an earlier one of the same extents takes the same arrangement, if that fits.
    fn fitting(&self, state: &Registers, i: usize) -> Vec<Arrangement> {
        let StmtKind::Gemm { c, a, b, .. } = self.statements[i].0.kind else { return Vec::new() };
        let known = [c, a, b].map(|id| state.layouts[id.0 as usize].as_ref().map(|l| &l.0));
        let Arrangements { first, all, layouts } = &*self.arrangements[i];
        if known.iter().all(|tv| tv.is_none()) {
            return all.clone();
        }
        let extents = self.extents(i);
        let earlier = (0..i).rev().find_map(|j| {
            let StmtKind::Gemm { c: c2, a: a2, b: b2, .. } = self.statements[j].0.kind else { return None };
            let shares = [a2, b2, c2].iter().any(|t| [a, b, c].contains(t));
            let by = state.gemms[j]?;
            let alike = shares && self.extents(j) == extents && by.row == all.first()?.row;
            let (m, n, k) = extents;
            (alike && self.fits(&by, by.layouts(m, n, k).as_ref()?, extents, known)).then_some(by)
        });
        if let Some(by) = earlier {
            return vec![by];
        }
        let key = (*first, known.map(|tv| tv.cloned()));
        if let Some(fitting) = self.fitting.borrow().get(&key) {
            return fitting.to_vec();
        }
        let both = all.iter().zip(layouts);
        let fitting: Vec<Arrangement> =
            both.filter(|(by, own)| self.fits(by, own, extents, known)).map(|(by, _)| *by).collect();
        self.fitting.borrow_mut().insert(key, Rc::new(fitting.clone()));
        fitting
    }

    /// Whether an arrangement with its own layouts of C, A and B agrees with those that are known.
    fn fits(
        &self,
        by: &Arrangement,
        own: &GemmLayouts,
        extents: (i64, i64, i64),
        known: [Option<&TvLayout>; 3],
    ) -> bool {
        self.step(COMPARISON);
        let own = [&own.c, &own.a, &own.b];
        let each = |same: &dyn Fn(&TvLayout, &TvLayout) -> bool| {
            known.iter().zip(own).all(|(theirs, tv)| theirs.is_none_or(|theirs| same(theirs, tv)))
        };
        if each(&|theirs, tv| theirs.same_function(tv)) {
            return true;
        }
        // In another order of values, or over other warps, the same registers may still serve. Lanes must be where the
        // instruction wants them.
        let lanes = |tv: &TvLayout| -> Vec<i64> {
            (0..32).map(|lane| tv.threads().eval(lane) - tv.threads().eval(0)).collect()
        };
        each(&|theirs, tv| lanes(theirs) == lanes(tv)) && {
            let [c, a, b] = [0, 1, 2].map(|operand| known[operand].unwrap_or(own[operand]));
            let threads = i64::from(self.verified.threads());
            gemm::calls(by, extents, c, a, b, threads).is_some()
        }
    }

    fn order(&self, mut fits: Vec<Arrangement>, i: usize, budget: Budget) -> Vec<Arrangement> {
        if budget.seed != 0 {
            let mut random = budget.seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for last in (2..fits.len()).rev() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                fits.swap(last, 1 + (random % last as u64) as usize);
            }
        }
        fits
    }

    /// Gives the operands of product `i` that have no layout those of an arrangement.
    fn place(
        &self,
        state: &mut Registers,
        i: usize,
        (c, a, b): (TensorId, TensorId, TensorId),
        by: Arrangement,
    ) -> Result<(), Clash> {
        let (m, n, k) = self.extents(i);
        let span = self.statements[i].0.span;
        let layouts = by.layouts(m, n, k).ok_or_else(|| {
            Diagnostic::new(
                Code::Unsatisfiable,
                span,
                "the product cannot be laid out: its tile is too large",
            )
        })?;
        let text = self.text(i);
        state.gemms[i] = Some(by);
        let mut ready = Vec::new();
        for (id, tv, operand) in [(c, layouts.c, "C"), (a, layouts.a, "A"), (b, layouts.b, "B")] {
            if state.layouts[id.0 as usize].is_none() {
                let why = format!("operand {operand} of {by}, for `{text}`");
                self.set(state, id, tv, Origin { statement: Some(i), why })?;
                ready.push(id);
            }
        }
        self.propagate(state, ready)
    }

    /// Everything but matrix products: gathers, the copies that move the most data, and what is left.
    fn rest(&self, state: &mut Registers) -> Result<(), Clash> {
        let threads = i64::from(self.verified.threads());
        self.propagate_all(state, Vec::new())?;
        for i in 0..self.statements.len() {
            self.gather(state, i)?;
        }
        while let Some(Anchor { statement, tensor, tile, vector: n }) = self.next_anchor(state) {
            let (i, tensor) = (*statement, *tensor);
            let tv = coalesced(tile, threads, *n).ok_or_else(|| self.too_large(tensor))?;
            // A transposed use names the tile in the statement's order; register tensors are never transposed themselves.
            let why = match tile.memory {
                Memory::Global => {
                    format!(
                        "coalesces the global accesses of `{}`: {n} contiguous elements a thread",
                        self.text(i)
                    )
                }
                _ => format!("{n} elements of a row a thread, for `{}`", self.text(i)),
            };
            self.set(state, tensor, tv, Origin { statement: Some(i), why })?;
            self.propagate_all(state, vec![tensor])?;
        }
        // A role's program lists what other roles have.
        for id in self.touched.iter().copied() {
            let tensor = self.verified.program().tensor(id);
            if tensor.memory() == Memory::Register && state.layouts[id.0 as usize].is_none() {
                let tile = self.verified.tile(&id.into());
                let n = widest_vector(self.facts, &tile, threads, 16).0;
                let tv = coalesced(&tile, threads, n).ok_or_else(|| self.too_large(id))?;
                let why = "no statement asks for more than a row-wise one".into();
                self.set(state, id, tv, Origin { statement: None, why })?;
                self.propagate_all(state, vec![id])?;
            }
        }
        Ok(())
    }

    fn text(&self, i: usize) -> String {
        tilewright_tile::statement_text(self.verified.program(), &self.statements[i].0)
    }

    fn name(&self, id: TensorId) -> &str {
        &self.verified.program().tensor(id).name
    }

    fn too_large(&self, id: TensorId) -> Diagnostic {
        let tensor = self.verified.program().tensor(id);
        Diagnostic::new(Code::BadValue, tensor.span, format!("`{}` is too large to be laid out", tensor.name))
    }

    fn pinned(&self, state: &mut Registers) -> Result<(), Clash> {
        let mut ready = Vec::new();
        for id in self.touched.iter().copied() {
            let tensor = self.verified.program().tensor(id);
            let TensorKind::Register { pinned: Some(layout), .. } = &tensor.kind else { continue };
            // The verifier has checked that it has two modes, the first of the block's threads, and covers the tile.
            let tv = TvLayout::from_layout(layout.clone()).map_err(|_| self.too_large(id))?;
            self.set(state, id, tv, Origin { statement: None, why: PINNED.to_string() })?;
            ready.push(id);
        }
        self.propagate(state, ready)
    }

    /// M, N and K of product `i`.
    pub(crate) fn extents(&self, i: usize) -> (i64, i64, i64) {
        let StmtKind::Gemm { c, a, .. } = self.statements[i].0.kind else { return (1, 1, 1) };
        let shape = self.verified.shape(c);
        (shape[0], shape[1], self.verified.shape(a)[1])
    }

    /// The arrangements of the fastest instruction that tiles product `i`; none for other statements.
    fn arrange(&self, i: usize) -> Result<Arrangements, Diagnostic> {
        let StmtKind::Gemm { c, a, ref warps, .. } = self.statements[i].0.kind else {
            return Ok(Arrangements::default());
        };
        let span = self.statements[i].0.span;
        let program = self.verified.program();
        let (ab, acc) = (program.tensor(a).dtype, program.tensor(c).dtype);
        let (m, n, k) = self.extents(i);
        let rows: Vec<&'static MmaRow> = mmas(ab, acc, self.arch).collect();
        if rows.is_empty() {
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("{} has no matrix instruction that multiplies {ab} into {acc}", self.arch),
            )
            .label(format!("`{}` is {acc}, `{}` is {ab}", self.name(c), self.name(a)))
            .help("multiply f16 into f32 or f16, or bf16 into f32".to_string()));
        }
        let Some(row) = rows.iter().find(|r| m % r.m == 0 && n % r.n == 0 && k % r.k == 0).copied() else {
            let smallest = rows[rows.len() - 1];
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("no matrix instruction tiles a product of {m}×{n}×{k}"),
            )
            .label(format!("`{}` is {m}×{n}, `{}` is {m}×{k}", self.name(c), self.name(a)))
            .help(format!(
                "the smallest instruction for these types is {}: make M a multiple of {}, N of {} and K of {}",
                smallest.name, smallest.m, smallest.n, smallest.k
            )));
        };
        let grid = warps.as_ref().and_then(|[m, n]| Some((m.as_int()?, n.as_int()?)));
        let all = gemm::arrangements(row, (m, n, k), i64::from(self.verified.threads()) / 32, grid);
        if let (true, Some((wm, wn))) = (all.is_empty(), grid) {
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("a product of {m}×{n}×{k} does not divide among {wm}×{wn} warps"),
            )
            .label("given here")
            .help(format!(
                "{} computes {}×{}: make M a multiple of {} and N of {}, or leave `warps` out",
                row.name,
                row.m,
                row.n,
                row.m * wm,
                row.n * wn
            )));
        }
        let (all, layouts) = all.into_iter().filter_map(|by| Some((by, by.layouts(m, n, k)?))).unzip();
        Ok(Arrangements { first: i, all, layouts })
    }

    /// Anchors a gather along the contiguous mode: its elements in neighbouring lanes, so that one shuffle finds each.
    fn gather(&self, state: &mut Registers, i: usize) -> Result<(), Clash> {
        let StmtKind::Gather { dst, src, index, axis } = &self.statements[i].0.kind else { return Ok(()) };
        let (dst, src, index, axis) = (*dst, *src, *index, *axis as usize);
        let (from, to) = (self.verified.shape(src), self.verified.shape(dst));
        let known = |id: TensorId| state.layouts[id.0 as usize].is_some();
        let powers = from.iter().chain(&to).all(|e| (*e as u64).is_power_of_two());
        if axis + 1 != from.len() || !powers || known(dst) || known(src) || known(index) {
            return Ok(());
        }
        let along = from[axis].min(to[axis]).min(LANES);
        let threads = i64::from(self.verified.threads());
        let why = format!("elements along mode {axis} in {along} neighbouring lanes, for `{}`", self.text(i));
        let mut ready = Vec::new();
        for (id, shape) in [(src, &from), (dst, &to), (index, &to)] {
            // In place the two are one.
            if state.layouts[id.0 as usize].is_none() {
                let Some(tv) = shapes::across(shape, axis, along, threads) else { break };
                self.set(state, id, tv, Origin { statement: Some(i), why: why.clone() })?;
                ready.push(id);
            }
        }
        self.propagate_all(state, ready)
    }

    /// The clash of a product that no arrangement fits.
    fn unfitting(&self, state: &Registers, i: usize) -> Clash {
        let span = self.statements[i].0.span;
        let StmtKind::Gemm { c, a, b, .. } = self.statements[i].0.kind else {
            return Diagnostic::new(Code::LayoutConflict, span, "not a matrix product").into();
        };
        let row = self.arrangements[i].all.first().map_or("a matrix instruction", |by| by.row.name);
        let mut error = Diagnostic::new(
            Code::LayoutConflict,
            span,
            format!(
                "the layouts of `{}`, `{}` and `{}` do not fit one arrangement of {row}",
                self.name(c),
                self.name(a),
                self.name(b)
            ),
        )
        .label("this product wants its operands arranged by its own accumulator");
        let fits_without = |t: TensorId| {
            let mut without = state.clone();
            let had = without.layouts[t.0 as usize].take().is_some();
            had && !self.fitting(&without, i).is_empty()
        };
        error = error.help(if fits_without(c) {
            format!(
                "no arrangement has this layout of `{}`: leave it open here, and give what follows an operand of its own, \
                 `x = rearrange({})`",
                self.name(c),
                self.name(c)
            )
        } else {
            format!("give it an operand of its own: `x = rearrange({})` and use `x` here", self.name(a))
        });
        for id in [c, a, b] {
            let Some((_, origin)) = &state.layouts[id.0 as usize] else { continue };
            if let Some(other) = origin.statement
                && other != i
            {
                let span = self.statements[other].0.span;
                error = error.related(span, format!("`{}` is fixed here: {}", self.name(id), origin.why));
            }
        }
        // The factor without which the rest would fit; else the left one that has a layout.
        let remedy = [a, b].into_iter().filter(|t| state.layouts[t.0 as usize].is_some()).collect::<Vec<_>>();
        let alone = remedy.iter().copied().find(|t| fits_without(*t));
        Clash { diagnostic: Box::new(error), remedy: alone.or(remedy.first().copied()).map(|t| (i, t)) }
    }

    /// The calls of every matrix product of a solution.
    ///
    /// # Errors
    ///
    /// A product whose operands do not fit its arrangement.
    pub fn calls(&self, state: &Registers) -> Result<Vec<Option<GemmPlan>>, Clash> {
        let mut plans = vec![None; self.statements.len()];
        for (i, plan) in plans.iter_mut().enumerate() {
            let (StmtKind::Gemm { c, a, b, .. }, Some(by)) = (&self.statements[i].0.kind, state.gemms[i])
            else {
                continue;
            };
            let get = |id: TensorId| state.layouts[id.0 as usize].as_ref().map(|l| &l.0);
            let threads = i64::from(self.verified.threads());
            let calls = match (get(*c), get(*a), get(*b)) {
                (Some(c), Some(a), Some(b)) => gemm::calls(&by, self.extents(i), c, a, b, threads),
                _ => None,
            };
            match calls {
                Some(calls) => *plan = Some(GemmPlan { row: by.row, by, calls }),
                None => return Err(self.unfitting(state, i)),
            }
        }
        Ok(plans)
    }

    fn set(
        &self,
        state: &mut Registers,
        id: TensorId,
        tv: TvLayout,
        origin: Origin,
    ) -> Result<(), Diagnostic> {
        let dtype = self.verified.program().tensor(id).dtype;
        let registers = (tv.count() as u32 * dtype.bits()).div_ceil(32);
        let limit = self.arch.limits().registers_of_a_thread(self.verified.threads());
        if registers > limit {
            let tensor = self.verified.program().tensor(id);
            let size: i64 = self.verified.shape(id).iter().product();
            let threads = self.verified.threads();
            // Threads that hold what others hold too are of no use: more of them would not help.
            let copies: i64 = tv.threads().leaves().iter().filter(|l| l.1 == 0).map(|l| l.0).product();
            let help = if copies > 1 && origin.why.contains("each part in") {
                format!(
                    "the tile does not divide among the {} warps, so {copies} of them hold the same part: choose a tile \
                     whose instruction tiles divide among the warps",
                    threads / 32
                )
            } else if copies > 1 && origin.statement.is_none() && origin.why == PINNED {
                format!(
                    "the layout that the program gives it has {copies} threads hold the same elements: let the thread modes \
                     of stride 0 walk through the tile"
                )
            } else {
                "make the tile smaller, use more threads, or keep it in shared memory".to_string()
            };
            return Err(Diagnostic::new(
                Code::RegistersExceeded,
                tensor.span,
                format!(
                    "`{}` needs {registers} registers of each of the {threads} threads, and {} has {limit} for each",
                    tensor.name, self.arch
                ),
            )
            .label(format!("{size} elements of {dtype} over {threads} threads"))
            .help(help));
        }
        state.layouts[id.0 as usize] = Some((tv, origin));
        Ok(())
    }

    /// Leads layouts on from tensors that just got theirs: solves every constraint with one unknown, and checks those with none.
    fn propagate(&self, state: &mut Registers, news: Vec<TensorId>) -> Result<(), Clash> {
        let mut queue: VecDeque<usize> =
            news.iter().flat_map(|t| self.touching[t.0 as usize].iter().copied()).collect();
        while let Some(next) = queue.pop_front() {
            for id in self.apply(state, next, false)? {
                queue.extend(self.touching[id.0 as usize].iter().copied());
            }
        }
        Ok(())
    }

    /// [`propagate`](Self::propagate) once every product is placed: the results of broadcasts that nothing has asked for follow
    /// their operands.
    fn propagate_all(&self, state: &mut Registers, news: Vec<TensorId>) -> Result<(), Clash> {
        self.propagate(state, news)?;
        loop {
            let mut news = Vec::new();
            // Only where nothing else asks for it is the result of a broadcast held whole by those who hold the operand.
            for next in 0..self.constraints.len() {
                let broadcast = matches!(
                    self.constraints[next].equation,
                    Equation::Shape { op: tilewright_tile::ShapeOp::Broadcast(_), .. }
                );
                if broadcast {
                    news = self.apply(state, next, true)?;
                }
                if !news.is_empty() {
                    break;
                }
            }
            if news.is_empty() {
                return Ok(());
            }
            self.propagate(state, news)?;
        }
    }

    /// Solves a constraint for what is unknown in it; returns the tensors that got a layout.
    fn apply(&self, state: &mut Registers, number: usize, any: bool) -> Result<Vec<TensorId>, Clash> {
        self.step(1);
        let constraint = &self.constraints[number];
        let i = constraint.statement;
        let mut new = Vec::new();
        for id in constraint.tensors() {
            if state.layouts[id.0 as usize].is_none() {
                let known = |t: TensorId| state.layouts[t.0 as usize].as_ref().map(|l| &l.0);
                let Some((from, tv)) = constraint.solve(self.verified, id, &known, any) else { continue };
                let why = match &constraint.equation {
                    Equation::Equal(_) => {
                        format!("the same as `{}`, for `{}`", self.name(from), self.text(i))
                    }
                    _ => format!("what `{}` makes of `{}`", self.text(i), self.name(from)),
                };
                self.set(state, id, tv, Origin { statement: Some(i), why })?;
                new.push(id);
            }
        }
        if let Equation::Equal(group) = &constraint.equation {
            self.check(state, i, group)?;
        }
        Ok(new)
    }

    /// Whether the tensors of an equality that have layouts have the same one.
    fn check(&self, state: &Registers, i: usize, group: &[TensorId]) -> Result<(), Clash> {
        let known = |id: TensorId| state.layouts[id.0 as usize].as_ref();
        let Some(first) = group.iter().copied().find(|t| known(*t).is_some()) else { return Ok(()) };
        let Some((tv, origin)) = known(first) else { return Ok(()) };
        let threads = i64::from(self.verified.threads());
        for other in group.iter().copied().filter(|t| *t != first) {
            let Some((theirs, their_origin)) = known(other) else { continue };
            if theirs.same_function(tv) {
                continue;
            }
            // Registers may differ in the order of a thread's values, if only data moves.
            let permuted = match &self.statements[i].0.kind {
                StmtKind::Copy { src, .. } if src.tensor == first => moves(tv, theirs, threads).is_some(),
                StmtKind::Copy { .. } => moves(theirs, tv, threads).is_some(),
                _ => false,
            };
            if !permuted {
                let diagnostic = self.conflict(i, (first, tv, origin), (other, theirs, their_origin));
                // An operand can be rearranged before the statement, its result cannot.
                let assigned = self.statements[i].0.kind.assigned();
                let written = |t: TensorId| {
                    assigned.contains(&t)
                        || matches!(&self.statements[i].0.kind, StmtKind::Copy { dst, .. } if dst.tensor == t)
                };
                let operand = if written(other) { first } else { other };
                let remedy = (!written(operand)).then_some((i, operand));
                return Err(Clash { diagnostic: Box::new(diagnostic), remedy });
            }
        }
        Ok(())
    }

    fn conflict(
        &self,
        i: usize,
        (first, first_tv, first_origin): (TensorId, &TvLayout, &Origin),
        (second, second_tv, second_origin): (TensorId, &TvLayout, &Origin),
    ) -> Diagnostic {
        let (a, b) = (self.name(first), self.name(second));
        let mut error = Diagnostic::new(
            Code::LayoutConflict,
            self.statements[i].0.span,
            format!(
                "`{a}` and `{b}` must be distributed alike here, but `{a}` is {} and `{b}` is {}",
                first_tv.layout(),
                second_tv.layout()
            ),
        )
        .label("wants one layout for both")
        .help(match &self.statements[i].0.kind {
            // Its results cannot be redistributed before it.
            StmtKind::Split { lo, hi, src } if [*lo, *hi] == [first, second] => format!(
                "pin both alike, or split into new names and rearrange those: `x, y = split({})`, `{b} = rearrange(y)`",
                self.name(*src)
            ),
            _ => format!("redistribute one of them: `x = rearrange({b})` and use `x` here"),
        });
        for (name, origin) in [(a, first_origin), (b, second_origin)] {
            if let Some(other) = origin.statement {
                error = error.related(
                    self.statements[other].0.span,
                    format!("`{name}` is fixed here: {}", origin.why),
                );
            }
        }
        error
    }

    /// The copy that moves the most data, global memory first, among those of register tensors without a layout.
    fn next_anchor(&self, state: &Registers) -> Option<&Anchor> {
        self.anchors.iter().find(|anchor| state.layouts[anchor.tensor.0 as usize].is_none())
    }

    /// The copies between register tensors and other memories, those that move the most data first, global memory before all.
    fn anchors(verified: &Verified, facts: &Facts<'_>, statements: &[(Stmt, usize)]) -> Vec<Anchor> {
        let mut anchors = Vec::new();
        for (i, (stmt, _)) in statements.iter().enumerate() {
            let StmtKind::Copy { src, dst } = &stmt.kind else { continue };
            for (register, memory) in [(src, dst), (dst, src)] {
                let tensor = register.tensor;
                if verified.program().tensor(tensor).memory() != Memory::Register {
                    continue;
                }
                let tile = verified.tile(memory);
                if tile.memory == Memory::Register {
                    continue;
                }
                let bits = tile.shape.iter().product::<i64>() * i64::from(tile.dtype.bits());
                let vector = widest_vector(facts, &tile, i64::from(verified.threads()), 16).0;
                let key = (tile.memory == Memory::Global, bits, vector, std::cmp::Reverse(i));
                anchors.push((key, Anchor { statement: i, tensor, tile, vector }));
            }
        }
        // Of equal ones the last, as a maximum takes it.
        anchors.reverse();
        anchors.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
        anchors.into_iter().map(|(_, anchor)| anchor).collect()
    }
}

impl Found {
    fn fail(&mut self, clash: Clash) {
        self.clashes += 1;
        // The clash that a rearrangement resolves is worth more than one that nothing does.
        if self.clash.as_ref().is_none_or(|old| old.remedy.is_none() && clash.remedy.is_some()) {
            self.clash = Some(clash);
        }
    }
}

/// For the case that a search ends without a solution and without a clash, which it never does.
pub(crate) fn nothing_found() -> Diagnostic {
    Diagnostic::new(Code::Unsatisfiable, Span::NONE, "no layouts were found for this program")
        .help("give the search a larger budget")
}
