//! Makes a program ready for synthesis: rearrangements where statements clash, and copies instead of what no single statement
//! between registers can do.

use std::collections::BTreeSet;

use tilewright_machine::Memory;
use tilewright_tile::{Diagnostic, Stmt, StmtId, StmtKind, TensorId, Verified};

use crate::access;
use crate::between::moved;
use crate::explain::StatementNote;
use crate::facts::Facts;
use crate::movement;
use crate::options::Options;
use crate::solve::{self, Budget, Solver, nothing_found};
use crate::synthesise;

/// A program that is ready for [`synthesise`].
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The program.
    pub verified: Verified,
    /// What was inserted where statements clash, in words.
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
    /// What [`synthesise`] says of the prepared program, as a message about the author's: it says where tensors come from that
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
/// A clash that no rearrangement of an operand resolves; what [`synthesise`] says of register tensors.
pub fn prepare(verified: &Verified, options: &Options) -> Result<Prepared, Diagnostic> {
    let mut verified = verified.clone();
    let (mut inserted, mut moved) = (Vec::new(), Vec::new());
    // What each insertion was to resolve: if it does not help, that is what there is to say.
    let mut first: Vec<Diagnostic> = Vec::new();
    while options.without.thread_values
        && let Some((before, operand)) = unmoved(&verified)
    {
        verified = tilewright_tile::insert_rearrangement(&verified, before, operand).0;
    }
    let mut steps = 0;
    loop {
        let statements = solve::statements(&verified);
        let facts = Facts::new(&verified, &options.multiples);
        let solver = Solver::new(&verified, &facts, options.arch, &statements)?;
        let found = solver.search(first_solution(options.budget, steps));
        steps += solver.steps();
        if !found.solutions.is_empty() {
            break;
        }
        let clash = found.clash.unwrap_or_else(|| nothing_found().into());
        let Some((before, operand)) = clash.remedy.filter(|_| inserted.len() < MAX_INSERTED) else {
            let place = clash.diagnostic.span.key();
            let same = |d: &&Diagnostic| !d.span.is_unknown() && d.span.key() == place;
            let error = first.iter().find(same).cloned().unwrap_or(*clash.diagnostic);
            return Err(with_origins(error, &moved));
        };
        let (next, fresh) = tilewright_tile::insert_rearrangement(&verified, before, operand);
        let program = next.program();
        inserted.push(format!(
            "`{} = rearrange({})` before `{}`: {}",
            program.tensor(fresh).name,
            program.tensor(operand).name,
            statements
                .iter()
                .find(|(s, _)| s.id == before)
                .map_or_else(String::new, |(s, _)| tilewright_tile::statement_text(verified.program(), s)),
            clash.diagnostic.message
        ));
        moved.push(Moved {
            name: program.tensor(fresh).name.clone(),
            of: program.tensor(operand).name.clone(),
            why: clash.diagnostic.message.clone(),
        });
        first.push(*clash.diagnostic);
        verified = next;
    }
    let verified = expand_rearrangements(verified, options, &mut inserted, &mut steps)
        .map_err(|error| with_origins(error, &moved))?;
    Ok(Prepared { verified, inserted, steps, moved })
}

/// The budget of a search for one solution, after some steps.
fn first_solution(budget: Budget, taken: u64) -> Budget {
    Budget { solutions: 1, steps: budget.steps.saturating_sub(taken), ..budget }
}

/// A matrix product with a factor that does not come out of a rearrangement, and that factor.
pub(crate) fn unmoved(verified: &Verified) -> Option<(StmtId, TensorId)> {
    let statements = solve::statements(verified);
    let moved = |t: TensorId| {
        statements.iter().any(|(s, _)| matches!(s.kind, StmtKind::Rearrange { dst, .. } if dst == t))
    };
    statements.iter().find_map(|(stmt, _)| {
        let StmtKind::Gemm { a, b, .. } = stmt.kind else { return None };
        [a, b].into_iter().find(|t| !moved(*t)).map(|t| (stmt.id, t))
    })
}

/// Rearrangements that are inserted at most.
pub(crate) const MAX_INSERTED: usize = 256;

pub(crate) fn expand_rearrangements(
    mut verified: Verified,
    options: &Options,
    inserted: &mut Vec<String>,
    steps: &mut u64,
) -> Result<Verified, Diagnostic> {
    loop {
        let statements = solve::statements(&verified);
        let facts = Facts::new(&verified, &options.multiples);
        let parts: Vec<&Stmt> =
            statements.iter().map(|(s, _)| *s).filter(|s| parts_of_bytes(&verified, &facts, s)).collect();
        if !parts.is_empty() {
            for stmt in &parts {
                if let StmtKind::CopyAsync { src, .. } = &stmt.kind {
                    inserted.push(format!(
                        "a register tensor in `{}`, which is done through registers, at once: rows of `{}` begin within bytes",
                        tilewright_tile::statement_text(verified.program(), stmt),
                        verified.program().tensor(src.tensor).name
                    ));
                }
            }
            let parts = parts.into_iter().map(|stmt| stmt.id).collect();
            verified = tilewright_tile::desugar_rearrangements(&verified, &parts);
            continue;
        }
        if !statements.iter().any(|(s, _)| matches!(s.kind, StmtKind::Rearrange { .. })) {
            return Ok(verified);
        }
        let solver = Solver::new(&verified, &facts, options.arch, &statements)?;
        let found = solver.search(first_solution(options.budget, *steps));
        *steps += solver.steps();
        let Some(registers) = found.solutions.into_iter().next() else {
            return Err(found.clash.unwrap_or_else(|| nothing_found().into()).diagnostic.as_ref().clone());
        };
        let register = |id: TensorId| registers.layouts[id.0 as usize].as_ref().map(|(tv, _)| tv.clone());
        let mut needed = BTreeSet::new();
        for (stmt, _) in &statements {
            let StmtKind::Rearrange { dst, src } = &stmt.kind else { continue };
            let staged = match moved(&verified, options.arch, &register, (*src, *dst), None) {
                Err(_) => true,
                Ok((movement::Movement::Shared(trip), _)) => {
                    matrices_are_fewer(&verified, options, (stmt, &trip), steps)
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
        verified = tilewright_tile::desugar_rearrangements(&verified, &needed);
    }
}

/// Whether a statement copies elements of a few bits from global to shared memory whose rows do not begin at whole bytes:
/// then they are put together in registers, at once, even if the copy is asynchronous.
pub(crate) fn parts_of_bytes(verified: &Verified, facts: &Facts<'_>, stmt: &Stmt) -> bool {
    let Some((src, dst)) = stmt.kind.copied() else { return false };
    let program = verified.program();
    let memory = |t: TensorId| program.tensor(t).memory();
    let per_byte = i64::from(program.tensor(src.tensor).dtype.per_byte());
    per_byte > 1
        && memory(src.tensor) == Memory::Global
        && memory(dst.tensor) == Memory::Shared
        && access::widest_access(facts, &verified.tile(src), i64::from(verified.threads()), 1).0 < per_byte
}

/// Whether copies through a shared tensor do a rearrangement with `ldmatrix` or `stmatrix`, as many wavefronts at most and
/// fewer calls: then they are better than the accesses of single threads.
pub(crate) fn matrices_are_fewer(
    verified: &Verified,
    options: &Options,
    (stmt, trip): (&Stmt, &movement::Trip),
    steps: &mut u64,
) -> bool {
    let StmtKind::Rearrange { src, .. } = stmt.kind else { return false };
    if verified.program().tensor(src).dtype.bits() != 16 {
        return false;
    }
    let variant = tilewright_tile::desugar_rearrangements(verified, &BTreeSet::from([stmt.id]));
    let Some(buffer) = variant.program().tensors.last().map(|t| t.name.clone()) else { return false };
    let budget = first_solution(options.budget, *steps);
    let options = Options { budget, candidate: None, ..options.clone() };
    let Ok(synthesis) = synthesise(&variant, &options) else { return false };
    *steps += synthesis.explanation.search.steps;
    let copies: Vec<&StatementNote> = synthesis
        .explanation
        .statements
        .iter()
        .filter(|note| note.shared_calls > 0 && note.text.contains(&buffer))
        .collect();
    let warps = verified.threads() / 32;
    let (wavefronts, calls) =
        copies.iter().fold((0, 0), |(w, c), note| (w + note.wavefronts, c + note.shared_calls));
    let matrices = copies.iter().any(|note| note.instruction.contains("matrix"));
    matrices && wavefronts <= trip.wavefronts() * warps && calls < trip.calls()
}
