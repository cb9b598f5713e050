//! The search over whole programs: every solution of the thread-value constraints is completed with the layouts of its
//! shared tensors and the instructions of its copies, and estimated; the cheapest is taken.
//!
//! Shared tensors are solved one by one: they meet only through register tensors, whose layouts a solution fixes. What was
//! found for a shared tensor holds for every solution that agrees on the register tensors it is copied from and to, so each is
//! solved once for each such choice, and the cost of a search is linear in the number of buffers.

use rustc_hash::FxHashMap as HashMap;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use tilewright_machine::Memory;
use tilewright_tile::core::{Program, Stmt, StmtKind};
use tilewright_tile::{Code, Diagnostic, Origin, StmtId, StmtMap, SymbolId, TensorId};

use crate::allocate::{Allocation, Lifetimes, SHARED_ALIGN};
use crate::copies::{Memo, SharedProblem, SharedSolution};
use crate::cost::{self, Estimate};
use crate::divisibility::{Divisibility, weight};
use crate::explain::{CandidateNote, SearchNote};
use crate::gemm::{GemmCall, TiledMma};
use crate::limits::Streamed;
use crate::options::Options;
use crate::plan::{CopyPlan, GemmPlan, StmtPlan};
use crate::reason::NotTaken;
use crate::solve::{Budget, Exhausted, Registers, Solver, nothing_found};
use crate::synthesis::TensorLayout;
use crate::tv::TvLayout;
use crate::{async_layout, between, copies, limits, rows};

/// A solution, completed and estimated.
#[derive(Clone)]
pub struct Candidate {
    /// Layouts of register tensors, arrangements of products.
    pub registers: Registers,
    /// For each shared tensor what was found.
    pub shared: Vec<(TensorId, Rc<SharedSolution>)>,
    /// Of every statement.
    pub plans: StmtMap<StmtPlan>,
    /// Of copies, and of statements between registers, what else was possible.
    pub alternatives: StmtMap<Vec<NotTaken>>,
    /// Of copies of shared tensors, wavefronts of the whole block.
    pub wavefronts: StmtMap<u32>,
    /// The places of the shared tensors.
    pub allocation: Allocation,
    /// Bytes that statements use one after the other.
    pub scratch_bytes: u32,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u32,
    /// Fragment registers of a thread.
    pub fragment_registers: u32,
    /// The copies that the product which takes their fragment does, step by step along K.
    pub streamed: BTreeSet<StmtId>,
    /// The estimate.
    pub estimate: Estimate,
}

/// A program, and what is asked of its synthesis.
pub struct Search<'a> {
    verified: &'a Program,
    options: &'a Options,
    divisibility: &'a Divisibility<'a>,
    statements: &'a [(&'a Stmt, usize)],
    solver: Solver<'a>,
    /// Shared tensors that were solved, with the layouts of the register tensors on the other side.
    solved: HashMap<(TensorId, Vec<TvLayout>), Solved>,
    memo: Memo,
    /// Plans of statements between registers, with the layouts of what they touch.
    planned: RefCell<HashMap<(usize, Vec<TvLayout>), Planned>>,
    /// For each shared tensor the statements that copy it.
    copying: HashMap<TensorId, Vec<usize>>,
    lifetimes: Lifetimes,
    /// Steps taken besides those of the solver.
    steps: Cell<u64>,
}

/// Estimates that differ by less than one part of this are taken for equal; then those with the
/// fewest wavefronts of shared memory win, and of those the one with the fewest instructions.
const CLOSE: u64 = 128;

/// Other instructions that are looked at for each shared tensor of the best arrangement, at most.
const VARIANTS: usize = 5;

type Planned = Option<Result<(StmtPlan, Vec<NotTaken>), Diagnostic>>;
type Solved = Result<Rc<SharedSolution>, Diagnostic>;

/// The result of a search.
pub struct Outcome {
    /// The candidate that was taken.
    pub chosen: Candidate,
    /// Its matrix products.
    pub gemms: Vec<Option<GemmPlan>>,
    /// Every candidate, the chosen one marked.
    pub notes: Vec<CandidateNote>,
    /// Counts of the search, and why it ended.
    pub note: SearchNote,
}

impl<'a> Search<'a> {
    /// A search over a program whose clashes have been resolved.
    ///
    /// # Errors
    ///
    /// A matrix product that no instruction does.
    pub fn new(
        verified: &'a Program,
        options: &'a Options,
        divisibility: &'a Divisibility<'a>,
        statements: &'a [(&'a Stmt, usize)],
    ) -> Result<Self, Diagnostic> {
        let solver = Solver::new(verified, divisibility, options.arch, statements)?;
        Ok(Search {
            verified,
            options,
            divisibility,
            statements,
            solver,
            solved: HashMap::default(),
            memo: Memo::default(),
            planned: RefCell::default(),
            copying: copies::copying(statements),
            lifetimes: Lifetimes::new(verified),
            steps: Cell::new(0),
        })
    }

    /// The constraints and how they are solved.
    pub fn solver(&self) -> &Solver<'a> {
        &self.solver
    }

    /// Looks at every solution within the budget and takes the cheapest, or the one that was asked for.
    ///
    /// # Errors
    ///
    /// The failure of the first candidate, if none is possible; a number that no candidate has.
    pub fn run(&mut self) -> Result<Outcome, Diagnostic> {
        let budget = self.options.budget;
        let found = self.solver.search(budget);
        if found.solutions.is_empty() {
            return Err(match found.clash {
                Some(clash) => *clash.diagnostic,
                None => nothing_found(),
            });
        }
        let mut exhausted = found.exhausted;
        let mut candidates: Vec<Result<Candidate, Diagnostic>> = Vec::new();
        for registers in found.solutions {
            if self.spent() && candidates.iter().any(Result::is_ok) {
                exhausted = Some(Exhausted::Steps);
                break;
            }
            candidates.push(self.complete(registers, None));
        }
        // Of the best arrangement, other instructions for the copies of one shared tensor at a time.
        if let Some(best) = self.cheapest(&candidates) {
            let left = budget.solutions.saturating_sub(candidates.len());
            if let Ok(best) = candidates[best].clone() {
                for (tensor, solution) in self.variants(&best, left) {
                    if self.spent() {
                        exhausted = Some(Exhausted::Steps);
                        break;
                    }
                    candidates.push(self.complete(best.registers.clone(), Some((tensor, solution))));
                }
            }
        }
        let best = self.cheapest(&candidates);
        let chosen = match (self.options.candidate, best) {
            (Some(asked), _) if asked >= candidates.len() => {
                return Err(no_such_candidate(asked, candidates.len()));
            }
            (Some(asked), _) => asked,
            (None, Some(best)) => best,
            (None, None) => 0,
        };
        let notes =
            candidates.iter().enumerate().map(|(i, c)| self.note(i, c, chosen, &candidates)).collect();
        let note = SearchNote {
            candidates: candidates.len(),
            budget: budget.solutions,
            clashes: found.clashes,
            stopped: match exhausted {
                Some(Exhausted::Solutions) => {
                    format!("the budget of {} candidates is spent", budget.solutions)
                }
                Some(Exhausted::Steps) => format!("the budget of {} steps is spent", budget.steps),
                None => "every arrangement was looked at".to_string(),
            },
            steps: self.steps(),
            seed: budget.seed,
        };
        let mut chosen = candidates.into_iter().nth(chosen).unwrap_or_else(|| Err(nothing_found()))?;
        self.explain(&mut chosen);
        let gemms = self.solver.calls(&chosen.registers).map_err(|clash| *clash.diagnostic)?;
        Ok(Outcome { chosen, gemms, notes, note })
    }

    /// True if the first solution can be completed.
    pub fn first_is_possible(&mut self) -> bool {
        let found = self.solver.search(Budget { solutions: 1, ..self.options.budget });
        let first = found.solutions.into_iter().next();
        first.is_some_and(|registers| self.complete(registers, None).is_ok())
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.solver.steps().saturating_add(self.steps.get())
    }

    /// True if the search is out of steps.
    fn spent(&self) -> bool {
        self.steps() >= self.options.budget.steps
    }

    /// The candidate to take.
    fn cheapest(&self, all: &[Result<Candidate, Diagnostic>]) -> Option<usize> {
        let possible = || all.iter().enumerate().filter_map(|(i, c)| Some((i, c.as_ref().ok()?)));
        let fewest = possible().map(|(_, c)| c.estimate.cycles).min()?;
        let close = possible().filter(|(_, c)| c.estimate.cycles <= fewest + fewest / CLOSE);
        close.min_by_key(|(i, c)| (self.wavefronts(c), self.calls(c), c.estimate.cycles, *i)).map(|(i, _)| i)
    }

    /// Wavefronts of shared memory of a candidate, those in loops counted several times.
    fn wavefronts(&self, candidate: &Candidate) -> u64 {
        let counted = self.statements.iter().filter_map(|(stmt, depth)| {
            Some(u64::from(*candidate.wavefronts.get(stmt.id)?) * weight(*depth))
        });
        counted.sum()
    }

    /// Instruction calls of all copies of a candidate, those in loops counted several times.
    fn calls(&self, candidate: &Candidate) -> u64 {
        let weighted = self.statements.iter().map(|(stmt, depth)| {
            let calls = match candidate.plans.get(stmt.id) {
                Some(StmtPlan::Copy(
                    CopyPlan::Direct { access, .. }
                    | CopyPlan::Async { access, .. }
                    | CopyPlan::Fetch { access, .. }
                    | CopyPlan::Staged { access, .. },
                )) => access.calls.len(),
                _ => 0,
            };
            calls as u64 * weight(*depth)
        });
        weighted.sum()
    }

    fn note(
        &self,
        number: usize,
        candidate: &Result<Candidate, Diagnostic>,
        chosen: usize,
        all: &[Result<Candidate, Diagnostic>],
    ) -> CandidateNote {
        let best = all.get(chosen).and_then(|c| c.as_ref().ok()).map_or(0, |c| c.estimate.cycles);
        let (mut arrangements, mut instructions) = (Vec::<String>::new(), Vec::new());
        let (estimate, why) = match candidate {
            Err(error) => (None, format!("not possible: {}", error.message)),
            Ok(c) => {
                for by in c.registers.gemms.iter().flatten() {
                    let text = by.to_string();
                    if !arrangements.contains(&text) {
                        arrangements.push(text);
                    }
                }
                for (stmt, _) in self.statements {
                    if let Some(StmtPlan::Copy(copy)) = c.plans.get(stmt.id) {
                        instructions.push(copies::plan_name(copy));
                    }
                }
                let cycles = c.estimate.cycles;
                let why = match (number == chosen, self.options.candidate) {
                    (true, Some(_)) => "asked for by number".to_string(),
                    (true, None) => {
                        "the fewest cycles; of those that are close the fewest wavefronts and instructions"
                            .to_string()
                    }
                    (false, _) if cycles <= best + best / CLOSE => {
                        "as good as the chosen one, with more wavefronts or instructions, or later"
                            .to_string()
                    }
                    (false, _) => format!(
                        "{:.3} times the cycles of the chosen one; bound by {}",
                        cycles as f64 / best.max(1) as f64,
                        c.estimate.bound
                    ),
                };
                (Some(c.estimate.clone()), why)
            }
        };
        CandidateNote { number, arrangements, instructions, estimate, chosen: number == chosen, why }
    }

    /// The layout of a shared tensor and the instructions of its copies, given the register tensors.
    fn shared(&mut self, id: TensorId, registers: &Registers) -> Solved {
        let register = |id: TensorId| registers.layout(id);
        let mut partners = Vec::new();
        for i in self.copying.get(&id).into_iter().flatten() {
            if let Some((src, dst)) = self.statements[*i].0.kind.copied() {
                partners.extend(register(src.tensor).into_iter().chain(register(dst.tensor)));
            }
        }
        let key = (id, partners);
        if let Some(solved) = self.solved.get(&key) {
            return solved.clone();
        }
        let solved = self.problem(&register).solve(id, 1).map(|all| all.into_iter().map(Rc::new).collect());
        let solved =
            solved.and_then(|all: Vec<Rc<SharedSolution>>| all.into_iter().next().ok_or_else(nothing_found));
        self.solved.insert(key, solved.clone());
        solved
    }

    /// The plan of a statement between registers, if it is one.
    fn between(&self, i: usize, register: &dyn Fn(TensorId) -> Option<TvLayout>) -> Planned {
        let stmt = &self.statements[i].0;
        let ends: Vec<TvLayout> = limits::touched(stmt).into_iter().filter_map(register).collect();
        let key = (i, ends);
        if let Some(plan) = self.planned.borrow().get(&key) {
            return plan.clone();
        }
        let planner = between::Planner { verified: self.verified, timing: self.options.timing(), register };
        let plan = planner.plan(stmt);
        self.planned.borrow_mut().insert(key, plan.clone());
        plan
    }

    fn problem<'p>(&'p self, register: &'p dyn Fn(TensorId) -> Option<TvLayout>) -> SharedProblem<'p> {
        SharedProblem {
            verified: self.verified,
            divisibility: self.divisibility,
            timing: self.options.timing(),
            register,
            statements: self.statements,
            copying: &self.copying,
            plain: self.options.without.shared_layouts,
            memo: &self.memo,
            steps: &self.steps,
            limit: self.options.budget.steps.saturating_sub(self.solver.steps()),
        }
    }

    /// Other instructions for the copies of one shared tensor of a candidate, at most `limit` of them.
    fn variants(&self, of: &Candidate, limit: usize) -> Vec<(TensorId, Rc<SharedSolution>)> {
        let register = |id: TensorId| of.registers.layout(id);
        let mut found = Vec::new();
        for (id, _) in &of.shared {
            if found.len() >= limit || self.spent() {
                break;
            }
            let all = self.problem(&register).solve(*id, VARIANTS + 1);
            // The first is the one that the candidate has.
            found.extend(all.into_iter().flatten().skip(1).map(|solution| (*id, Rc::new(solution))));
        }
        found.truncate(limit);
        found
    }

    /// Reasons for the instruction of each copy of a candidate.
    fn explain(&self, candidate: &mut Candidate) {
        let registers = candidate.registers.clone();
        let register = |id: TensorId| registers.layout(id);
        let problem = self.problem(&register);
        for (_, solution) in &candidate.shared {
            for (statement, others) in problem.explain(solution) {
                candidate.alternatives.insert(self.statements[statement].0.id, others);
            }
        }
    }

    /// Completes a solution: shared tensors, plans of statements, estimate.
    fn complete(
        &mut self,
        registers: Registers,
        variant: Option<(TensorId, Rc<SharedSolution>)>,
    ) -> Result<Candidate, Diagnostic> {
        let mut plans: StmtMap<StmtPlan> =
            self.statements.iter().map(|(stmt, _)| (stmt.id, StmtPlan::None)).collect();
        let (mut alternatives, mut wavefronts) = (StmtMap::new(), StmtMap::new());
        let mut scratch_bytes = 0;
        let shared = self.shared_tensors(&registers, variant)?;
        for (_, solution) in &shared {
            for (s, plan) in solution.plans() {
                let plan = StmtPlan::Copy(plan.clone());
                scratch_bytes = scratch_bytes.max(plan.scratch_bytes());
                plans.insert(self.statements[s].0.id, plan);
            }
            for (s, count) in &solution.wavefronts {
                wavefronts.insert(self.statements[*s].0.id, *count);
            }
        }
        for (i, (stmt, _)) in self.statements.iter().enumerate() {
            if let Some((plan, others)) = self.plan(i, &registers, &shared)? {
                scratch_bytes = scratch_bytes.max(plan.scratch_bytes());
                plans.insert(stmt.id, plan);
                alternatives.insert(stmt.id, others);
            }
        }
        self.statements.iter().try_for_each(|(stmt, _)| rows::check_alone(stmt, &plans, self.verified))?;
        let sizes: Vec<(TensorId, u32)> = shared.iter().map(|(id, solution)| (*id, solution.bytes)).collect();
        let allocation = self.lifetimes.allocate(&sizes);
        let shared_bytes = allocation.bytes.next_multiple_of(SHARED_ALIGN).saturating_add(scratch_bytes);
        limits::check_shared(self.verified, self.options.arch, &shared, scratch_bytes, shared_bytes)?;
        let register = |id: TensorId| registers.layout(id);
        let limit = self.options.registers_of_a_thread(self.verified);
        let live = |streamed: &[Streamed]| {
            limits::live_registers(self.verified, self.statements, &register, &plans, streamed)
        };
        // Whole fragments leave the assembler the most freedom; where they do not fit, products load theirs step by step.
        let (mut alive, mut streamed) = (live(&[]), Vec::new());
        if alive.registers() > limit {
            streamed = limits::streamed(self.verified, self.statements, &plans);
            alive = live(&streamed);
        }
        let fragment_registers = alive.registers();
        if fragment_registers > limit {
            return Err(limits::too_many_registers(self.verified, limit, &alive, self.statements));
        }
        let estimate = cost::estimate(&cost::Problem {
            verified: self.verified,
            timing: self.options.timing(),
            plans: &plans,
            wavefronts: &wavefronts,
            register: &register,
            size: &|id| self.size(id),
            registers: fragment_registers,
            shared_bytes,
            steps: &self.steps,
        });
        Ok(Candidate {
            registers,
            shared,
            plans,
            alternatives,
            wavefronts,
            allocation,
            scratch_bytes,
            shared_bytes,
            fragment_registers,
            streamed: streamed.iter().map(|s| s.load).collect(),
            estimate,
        })
    }

    /// The shared tensors of a solution, one of them perhaps in a variant.
    fn shared_tensors(
        &mut self,
        registers: &Registers,
        variant: Option<(TensorId, Rc<SharedSolution>)>,
    ) -> Result<Vec<(TensorId, Rc<SharedSolution>)>, Diagnostic> {
        let mut shared = Vec::new();
        for (stmt, _) in self.statements {
            // A role's program has tensors that only others define.
            let StmtKind::Define(id) = stmt.kind else { continue };
            if self.verified.tensor(id).memory() != Memory::Shared {
                continue;
            }
            let solution = match &variant {
                Some((other, solution)) if *other == id => solution.clone(),
                _ => self.shared(id, registers)?,
            };
            shared.push((id, solution));
        }
        Ok(shared)
    }

    /// The plan of a statement that no shared tensor's solution has, with what else was possible.
    fn plan(
        &self,
        i: usize,
        registers: &Registers,
        shared: &[(TensorId, Rc<SharedSolution>)],
    ) -> Result<Option<(StmtPlan, Vec<NotTaken>)>, Diagnostic> {
        let (stmt, _) = self.statements[i];
        let register = |id: TensorId| registers.layout(id);
        if let Some(planned) = self.between(i, &register) {
            return planned.map(Some);
        }
        let arch = self.options.arch;
        if let Some(planned) = between::direct(self.verified, self.divisibility, arch, &register, stmt)? {
            return Ok(Some(planned));
        }
        let plan = match self.asynchronous(stmt, shared, &register)? {
            Some(plan) => Some(plan),
            // The calls are found for the one that is taken; their number is known.
            None => registers.gemms[i].map(|by| StmtPlan::Gemm(self.counted(by, i))),
        };
        Ok(plan.map(|plan| (plan, Vec::new())))
    }

    /// The value of a run-time size that estimates are for.
    fn size(&self, id: SymbolId) -> Option<i64> {
        let (_, symbol, default) = self.verified.sizes().find(|(size, _, _)| *size == id)?;
        Some(self.options.sizes.get(&symbol.name).copied().unwrap_or(default))
    }

    /// The plan of a copy or a product by an asynchronous engine, if it is one.
    fn asynchronous(
        &self,
        stmt: &Stmt,
        shared: &[(TensorId, Rc<SharedSolution>)],
        register: &dyn Fn(TensorId) -> Option<TvLayout>,
    ) -> Result<Option<StmtPlan>, Diagnostic> {
        let layout =
            |id: TensorId| shared.iter().find(|(t, _)| *t == id).map(|(_, solution)| solution.layout.clone());
        let plan = match &stmt.kind {
            StmtKind::CopyAsync { src, dst, how } if how.tensor => {
                async_layout::copy_plan(self.verified, self.divisibility, (src, dst, *how), &layout)
                    .map(StmtPlan::Tma)
            }
            StmtKind::GemmAsync { c, a, b, meta, scales, warpgroups } => async_layout::product_plan(
                (self.verified, self.divisibility),
                (*c, a, b),
                (meta.is_some(), scales.as_ref()),
                warpgroups.as_ref(),
                &layout,
            ),
            StmtKind::Copy { src, dst, .. } => {
                match async_layout::tensor_copy_plan(self.verified, (src, dst), register) {
                    Ok(Some(plan)) => Ok(StmtPlan::TensorCopy(plan)),
                    Ok(None) => return Ok(None),
                    Err(why) => Err(why),
                }
            }
            _ => return Ok(None),
        };
        plan.map(Some).map_err(|why| {
            Diagnostic::new(Code::Unsatisfiable, stmt.span, format!("no instruction can do this: {why}"))
        })
    }

    /// A product's plan with as many calls as it needs, but without their operands.
    fn counted(&self, by: TiledMma, i: usize) -> GemmPlan {
        let (m, n, k) = self.solver.extents(i);
        let (wm, wn) = by.warps;
        let calls = (m / by.row.m / wm) * (n / by.row.n / wn) * (k / by.row.k);
        let empty = GemmCall { c: Vec::new(), a: Vec::new(), b: Vec::new(), meta: Vec::new(), scales: None };
        GemmPlan { row: by.row, by, calls: vec![empty; calls.max(0) as usize] }
    }
}

impl Outcome {
    /// The layout of each register and shared tensor.
    pub fn tensors(&self, verified: &Program) -> Vec<Option<TensorLayout>> {
        let mut tensors: Vec<Option<TensorLayout>> = vec![None; verified.tensors.len()];
        for (i, layout) in self.chosen.registers.layouts.iter().enumerate() {
            tensors[i] = layout.as_ref().map(|(tv, _)| TensorLayout::Register(tv.clone()));
        }
        for (id, solution) in &self.chosen.shared {
            tensors[id.0 as usize] =
                Some(TensorLayout::Shared { layout: solution.layout.clone(), bytes: solution.bytes });
        }
        tensors
    }
}

fn no_such_candidate(asked: usize, candidates: usize) -> Diagnostic {
    Diagnostic::new(
        Code::BadValue,
        Origin::Unknown,
        format!("there is no candidate {asked}: this program has {candidates}, counted from 0"),
    )
    .help("`tilewright compile --emit report` lists them")
}
