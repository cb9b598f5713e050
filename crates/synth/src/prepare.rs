//! Makes a program ready for synthesis: rearrangements where statements clash, and copies instead of what no single statement
//! between registers can do.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use tilewright_machine::{CopyKind, Memory};
use tilewright_tile::core::{self, Program, Stmt, StmtKind};
use tilewright_tile::{Diagnostic, StmtId, TensorId};

use crate::access;
use crate::between::Planner;
use crate::copies::{self, Memo, SharedProblem};
use crate::divisibility::Divisibility;
use crate::limits;
use crate::movement::{Movement, Trip};
use crate::options::Options;
use crate::plan::CopyPlan;
use crate::reason::Why;
use crate::search::Search;
use crate::solve::{Budget, Cache, Registers, Solver, nothing_found};
use crate::statements::statements;
use crate::tv::TvLayout;

/// A program that is ready for [`synthesise`](crate::synthesise).
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The program.
    pub verified: Program,
    /// The rearrangements that were inserted where statements clash, in words.
    pub inserted: Vec<String>,
    /// Steps that it took ([`Budget::steps`]), of as many as a search may take.
    pub steps: u64,
    moved: Vec<Moved>,
}

/// A tensor that a program does not have itself: an operand that was rearranged.
#[derive(Clone, Debug)]
pub(crate) struct Moved {
    name: String,
    of: String,
    why: String,
}

/// A message about a program with inserted tensors, which says where those that it names come from.
pub(crate) fn with_origins(mut error: Diagnostic, moved: &[Moved]) -> Diagnostic {
    let text = format!("{} {}", error.message, error.help.clone().unwrap_or_default());
    for Moved { name, of, why } in moved.iter().filter(|m| text.contains(&format!("`{}`", m.name))) {
        let note = format!("`{name}` is `rearrange({of})`, inserted because {why}");
        error.help = Some(match error.help {
            Some(help) => format!("{help}; {note}"),
            None => note,
        });
    }
    error
}

impl Prepared {
    /// Makes of a message of [`synthesise`](crate::synthesise) about the prepared program one about the author's: it says where tensors come from that
    /// were inserted.
    pub fn explain(&self, error: Diagnostic) -> Diagnostic {
        with_origins(error, &self.moved)
    }
}

/// Makes a program ready for synthesis. Where two statements want different layouts of one register tensor and no arrangement of
/// their products reconciles them, a rearrangement is inserted. Rearrangements that neither shuffles nor a linear shared layout
/// can do, where tiles or threads have odd factors that cross, and those that matrix instructions do in fewer calls, are
/// replaced by copies through a shared tensor. Copies from global to shared memory whose rows begin within bytes become two,
/// through registers; an asynchronous one is then done at once.
///
/// # Errors
///
/// A clash that no rearrangement of an operand resolves; what [`synthesise`](crate::synthesise) says of register tensors.
pub fn prepare(verified: &Program, options: &Options) -> Result<Prepared, Diagnostic> {
    let mut verified = verified.clone();
    let (mut inserted, mut moved) = (Vec::new(), Vec::new());
    // What each insertion was to resolve: if it does not help, that is what there is to say.
    let mut first: Vec<Diagnostic> = Vec::new();
    while options.without.thread_values
        && let Some((before, operand)) = unmoved(&verified)
    {
        core::insert_rearrangement(&mut verified, before, operand);
    }
    let mut steps = 0;
    let cache = Rc::new(Cache::default());
    let registers = loop {
        let statements = statements(&verified);
        let divisibility = Divisibility::new(&verified, &options.multiples);
        let solver = Solver::with(&verified, &divisibility, options.arch, &statements, cache.clone())?;
        let found = solver.search(first_solution(options.budget, steps));
        steps += solver.steps();
        if let Some(registers) = found.solutions.into_iter().next() {
            break registers;
        }
        let clash = found.clash.unwrap_or_else(|| nothing_found().into());
        let Some((before, operand)) = clash.remedy.filter(|_| inserted.len() < MAX_INSERTED) else {
            let place = clash.diagnostic.span.key();
            let same = |d: &&Diagnostic| !d.span.is_unknown() && d.span.key() == place;
            let error = first.iter().find(same).cloned().unwrap_or(*clash.diagnostic);
            return Err(with_origins(error, &moved));
        };
        let text = statements
            .iter()
            .find(|(s, _)| s.id == before)
            .map_or_else(String::new, |(s, _)| tilewright_tile::statement_text(&verified, s));
        let Some(fresh) = core::insert_rearrangement(&mut verified, before, operand) else {
            return Err(*clash.diagnostic);
        };
        let program = &verified;
        inserted.push(format!(
            "`{} = rearrange({})` before `{}`: {}",
            program.tensor(fresh).name,
            program.tensor(operand).name,
            text,
            clash.diagnostic.message
        ));
        moved.push(Moved {
            name: program.tensor(fresh).name.clone(),
            of: program.tensor(operand).name.clone(),
            why: clash.diagnostic.message.clone(),
        });
        first.push(*clash.diagnostic);
    };
    let verified = expand_rearrangements(verified, registers, options, &mut inserted, &mut steps)
        .map_err(|error| with_origins(error, &moved))?;
    Ok(Prepared { verified, inserted, steps, moved })
}

/// The budget of a search for one solution, after some steps.
fn first_solution(budget: Budget, taken: u64) -> Budget {
    Budget { solutions: 1, steps: budget.steps.saturating_sub(taken), ..budget }
}

/// A matrix product with a factor that does not come out of a rearrangement, and that factor.
fn unmoved(verified: &Program) -> Option<(StmtId, TensorId)> {
    let statements = statements(verified);
    let moved = |t: TensorId| {
        statements.iter().any(|(s, _)| matches!(s.kind, StmtKind::Rearrange { dst, .. } if dst == t))
    };
    statements.iter().find_map(|(stmt, _)| {
        let StmtKind::Gemm { a, b, .. } = stmt.kind else { return None };
        [a, b].into_iter().find(|t| !moved(*t)).map(|t| (stmt.id, t))
    })
}

/// Rearrangements that are inserted at most.
const MAX_INSERTED: usize = 256;

/// Replaces rearrangements by copies through shared tensors where that is better, or the only way. `registers` is the first solution of
/// the program.
fn expand_rearrangements(
    mut verified: Program,
    registers: Registers,
    options: &Options,
    inserted: &mut Vec<String>,
    steps: &mut u64,
) -> Result<Program, Diagnostic> {
    let mut solved = Some(registers);
    let mut known = Answers::default();
    loop {
        let statements = statements(&verified);
        let divisibility = Divisibility::new(&verified, &options.multiples);
        let parts: Vec<&Stmt> = statements
            .iter()
            .map(|(s, _)| *s)
            .filter(|s| parts_of_bytes(&verified, &divisibility, s))
            .collect();
        if !parts.is_empty() {
            for stmt in &parts {
                if let StmtKind::CopyAsync { src, .. } = &stmt.kind {
                    inserted.push(format!(
                        "a register tensor in `{}`, which is done through registers, at once: rows of `{}` begin within bytes",
                        tilewright_tile::statement_text(&verified, stmt),
                        verified.tensor(src.tensor).name
                    ));
                }
            }
            let parts: BTreeSet<StmtId> = parts.into_iter().map(|stmt| stmt.id).collect();
            core::desugar_rearrangements(&mut verified, &parts);
            solved = None;
            continue;
        }
        if !statements.iter().any(|(s, _)| matches!(s.kind, StmtKind::Rearrange { .. })) {
            return Ok(verified);
        }
        let registers = match solved.take() {
            Some(registers) => registers,
            None => first_registers(&verified, &divisibility, &statements, options, steps)?,
        };
        let register = |id: TensorId| registers.layout(id);
        let planner = Planner { verified: &verified, timing: options.timing(), register: &register };
        let mut needed = BTreeSet::new();
        for (stmt, _) in &statements {
            let StmtKind::Rearrange { dst, src } = &stmt.kind else { continue };
            let staged = match planner.movement((*src, *dst), None) {
                Err(_) => true,
                Ok((Movement::Shared(trip), _)) => {
                    let mut question = Staging { verified: &verified, options, registers: &registers, steps };
                    question.matrices_are_fewer(stmt, &trip, &mut known)
                }
                Ok(_) => false,
            };
            if staged {
                needed.insert(stmt.id);
            }
        }
        if needed.is_empty() {
            return Ok(verified);
        }
        // The layouts of what is left may change with the new copies, so look again.
        core::desugar_rearrangements(&mut verified, &needed);
    }
}

/// The first solution of a program's thread-value constraints.
fn first_registers(
    verified: &Program,
    divisibility: &Divisibility<'_>,
    statements: &[(&Stmt, usize)],
    options: &Options,
    steps: &mut u64,
) -> Result<Registers, Diagnostic> {
    let solver = Solver::new(verified, divisibility, options.arch, statements)?;
    let found = solver.search(first_solution(options.budget, *steps));
    *steps += solver.steps();
    let clash = found.clash;
    let first = found.solutions.into_iter().next();
    first.ok_or_else(|| *clash.unwrap_or_else(|| nothing_found().into()).diagnostic)
}

/// True if a statement copies elements of a few bits from global to shared memory whose rows do not begin at whole bytes:
/// then they are put together in registers, at once, even if the copy is asynchronous.
fn parts_of_bytes(verified: &Program, divisibility: &Divisibility<'_>, stmt: &Stmt) -> bool {
    let Some((src, dst)) = stmt.kind.copied() else { return false };
    let memory = |t: TensorId| verified.tensor(t).memory();
    let per_byte = i64::from(verified.tensor(src.tensor).dtype.per_byte());
    per_byte > 1
        && memory(src.tensor) == Memory::Global
        && memory(dst.tensor) == Memory::Shared
        && access::widest_access(divisibility, &verified.tile(src), i64::from(verified.threads()), 1).0
            < per_byte
}

/// True if copies through a shared tensor are better than a trip by the accesses of single threads, by the layouts on both sides and the
/// shape of the tile.
type Answers = FxHashMap<(TvLayout, TvLayout, Vec<i64>), bool>;

/// The question which way a rearrangement takes through shared memory.
struct Staging<'a> {
    verified: &'a Program,
    options: &'a Options,
    /// The first solution of the program.
    registers: &'a Registers,
    steps: &'a mut u64,
}

impl Staging<'_> {
    /// True if copies through a shared tensor do a rearrangement with `ldmatrix` or `stmatrix`, as many wavefronts at most and
    /// fewer calls: then they are better than the accesses of single threads.
    fn matrices_are_fewer(&mut self, stmt: &Stmt, trip: &Trip, known: &mut Answers) -> bool {
        let StmtKind::Rearrange { dst, src } = stmt.kind else { return false };
        if self.verified.tensor(src).dtype.bits() != 16 {
            return false;
        }
        // The new copies fix no layout that other statements have fixed before.
        let fixed = is_fixed(self.registers, src) && is_fixed(self.registers, dst);
        let key = match (fixed, self.registers.layout(src), self.registers.layout(dst)) {
            (true, Some(from), Some(to)) => Some((from, to, self.verified.shape(dst))),
            _ => None,
        };
        if let Some(answer) = key.as_ref().and_then(|key| known.get(key)) {
            return *answer;
        }
        let answer = self.ask(stmt, trip, fixed).unwrap_or(false);
        known.extend(key.map(|key| (key, answer)));
        answer
    }

    /// The answer of the program with that shared tensor; `None` where it has no solution.
    fn ask(&mut self, stmt: &Stmt, trip: &Trip, fixed: bool) -> Option<bool> {
        let options = self.options;
        let mut variant = self.verified.clone();
        core::desugar_rearrangements(&mut variant, &BTreeSet::from([stmt.id]));
        let buffer = TensorId(variant.tensors.len() as u32 - 1);
        let statements = statements(&variant);
        let divisibility = Divisibility::new(&variant, &options.multiples);
        let solved;
        let registers = if fixed {
            self.registers
        } else {
            solved = first_registers(&variant, &divisibility, &statements, options, self.steps).ok()?;
            &solved
        };
        let taken = Cell::new(0);
        let copying = copies::copying(&statements);
        let problem = SharedProblem {
            verified: &variant,
            divisibility: &divisibility,
            timing: options.timing(),
            register: &|id| registers.layout(id),
            statements: &statements,
            copying: &copying,
            plain: options.without.shared_layouts,
            memo: &Memo::default(),
            steps: &taken,
            limit: options.budget.steps.saturating_sub(*self.steps),
        };
        let solutions = problem.solve(buffer, 1).ok()?;
        *self.steps += taken.get();
        let solution = solutions.first()?;
        let wavefronts: u32 = solution.wavefronts.iter().map(|(_, count)| count).sum();
        let (mut calls, mut matrices) = (0, false);
        for (_, plan) in solution.plans() {
            if let CopyPlan::Direct { row, access } = plan {
                calls += access.calls.len() as u32;
                matrices |= matches!(row.kind, CopyKind::Matrix { .. });
            }
        }
        let warps = variant.threads() / 32;
        let better = matrices && wavefronts <= trip.wavefronts() * warps && calls < trip.calls();
        Some(
            better
                && (limits::surely_fits(&variant, &statements, options.arch) || self.is_possible(&variant)),
        )
    }

    /// True if the first solution of a program can be completed.
    fn is_possible(&mut self, variant: &Program) -> bool {
        let budget = first_solution(self.options.budget, *self.steps);
        let options = Options { budget, candidate: None, ..self.options.clone() };
        let statements = statements(variant);
        let divisibility = Divisibility::new(variant, &options.multiples);
        let Ok(mut search) = Search::new(variant, &options, &divisibility, &statements) else { return false };
        let possible = search.first_is_possible();
        *self.steps += search.steps();
        possible
    }
}

/// True if a layout was fixed before copies between registers and shared memory fixed those that nothing else does.
fn is_fixed(registers: &Registers, id: TensorId) -> bool {
    match registers.layouts[id.0 as usize].as_ref().map(|(_, why)| why) {
        Some(Why::SameAs { tensor, .. } | Why::DerivedFrom { tensor, .. }) => is_fixed(registers, *tensor),
        Some(
            Why::Pinned
            | Why::Operand { .. }
            | Why::GatherLanes { .. }
            | Why::ScanRuns { .. }
            | Why::Coalesced { .. },
        ) => true,
        _ => false,
    }
}
