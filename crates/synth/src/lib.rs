//! Layout synthesis: from a verified tile program to a layout for every tensor and an instruction for every statement.
//!
//! The order is that of Hexcute (CGO 2026, sections IV and V): thread-value layouts of register tensors by anchors and
//! propagation ([`solve`]); then, for each shared tensor on its own, the instructions of all copies that touch it, the
//! unification of what they ask of its layout, and a swizzle ([`copies`], [`shared`]); then instructions between
//! registers and global memory by width. The result is a [`Synthesis`], whose [`Explanation`] can be printed.
//!
//! Directions are those of [`plan`]: thread-value layouts map (thread, value) → coordinate, memory layouts map
//! coordinate → offset.

pub mod access;
pub mod allocate;
pub mod cast;
pub mod constraint;
pub mod copies;
pub mod cost;
pub mod explain;
pub mod facts;
pub mod gather;
pub mod gemm;
pub mod linear;
pub mod movement;
pub mod plan;
pub mod reduce;
pub mod search;
pub mod shapes;
pub mod shared;
pub mod solve;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

use tilewright_layout::SwizzledLayout;
use tilewright_machine::{Arch, DType, Memory, Timing};
use tilewright_tile::{Code, Diagnostic, ReduceOp, Span, StmtKind, TensorId, TensorRef, Verified};

use copies::{SharedSolution, global_copy, own_layout, plan_name};
pub use explain::{Alternative, ConstraintNote, Explanation, StatementNote, TensorNote};
pub use facts::{Facts, Multiples};
pub use plan::{Access, Call, CopyPlan, GemmCall, GemmPlan, StmtPlan, Synthesis, TensorLayout, TvLayout};
use search::{Candidate, Search};
pub use search::{CandidateNote, SearchNote};
use shared::{SharedUse, count};
pub use solve::Budget;
use solve::Solver;

/// Shared tensors start at multiples of this many bytes, so that a swizzle of their offsets is one of their addresses.
pub const SHARED_ALIGN: u32 = 128;

/// The moves (source value, destination value) that turn one distribution into another without any exchange between
/// threads; `None` where some thread lacks what it needs.
pub fn moves(src: &TvLayout, dst: &TvLayout, threads: i64) -> Option<Vec<(u32, u32)>> {
    moves_through(src, dst, threads, &|place| place)
}

/// [`moves`] between tiles of different shapes: the destination's coordinate `c` wants the source's `map(c)`.
fn moves_through(
    src: &TvLayout,
    dst: &TvLayout,
    threads: i64,
    map: &dyn Fn(i64) -> i64,
) -> Option<Vec<(u32, u32)>> {
    let values: HashMap<i64, u32> = (0..src.count()).map(|v| (src.at(0, v as i64), v as u32)).collect();
    let moves: Vec<(u32, u32)> = (0..dst.count())
        .map(|v| values.get(&map(dst.at(0, v as i64))).map(|s| (*s, v as u32)))
        .collect::<Option<_>>()?;
    let everywhere = (0..threads)
        .all(|t| moves.iter().all(|(s, d)| src.at(t, i64::from(*s)) == map(dst.at(t, i64::from(*d)))));
    everywhere.then_some(moves)
}

/// What is asked of a synthesis.
#[derive(Clone, Debug)]
pub struct Options {
    /// The architecture.
    pub arch: Arch,
    /// What may be relied on: sizes that are multiples of numbers.
    pub multiples: Multiples,
    /// Sizes for which candidates are compared; those not named have their defaults.
    pub sizes: BTreeMap<String, i64>,
    /// How far the search goes.
    pub budget: Budget,
    /// The candidate to take, by its number in the report, instead of the one with the fewest cycles.
    pub candidate: Option<usize>,
    /// What is left out, to measure what it is worth.
    pub without: Ablation,
    /// What instructions and the chip cost, where that is not the built-in table of the architecture.
    pub timing: Option<Arc<Timing>>,
}

/// Parts of synthesis that can be left out, to measure what they are worth (Hexcute, Fig. 14; its first version, Fig. 20).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ablation {
    /// Shared tensors are laid out as they are copied from global memory, without a swizzle.
    pub shared_layouts: bool,
    /// Fragments are distributed as is natural for the copy that loads them, and rearranged for every matrix product.
    pub thread_values: bool,
}

impl Options {
    /// Candidates that a search looks at unless told otherwise.
    pub const CANDIDATES: usize = 256;

    /// Nothing asked for but the architecture, given what is known of sizes.
    pub fn new(arch: Arch, multiples: Multiples) -> Self {
        let budget = Budget { solutions: Options::CANDIDATES, seed: 0, plain: false };
        let without = Ablation::default();
        Options { arch, multiples, sizes: BTreeMap::new(), budget, candidate: None, without, timing: None }
    }

    /// The table that costs are taken from.
    pub fn timing(&self) -> &Timing {
        self.timing.as_deref().unwrap_or_else(|| tilewright_machine::timing(self.arch))
    }
}

/// A program that is ready for [`synthesise`].
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The program.
    pub verified: Verified,
    /// What was inserted where statements clash, in words.
    pub inserted: Vec<String>,
    moved: Vec<Moved>,
}

/// A tensor that a program does not have itself: an operand that was rearranged.
#[derive(Clone, Debug)]
struct Moved {
    name: String,
    of: String,
    why: String,
}

/// A message about a program with inserted tensors, which says where those that it names come from.
fn with_origins(mut error: Diagnostic, moved: &[Moved]) -> Diagnostic {
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
        && let Some((i, operand)) = unmoved(&verified)
    {
        verified = tilewright_tile::insert_rearrangement(&verified, i, operand).0;
    }
    loop {
        let statements = solve::statements(&verified);
        let facts = Facts::new(&verified, &options.multiples);
        let solver = Solver::new(&verified, &facts, options.arch, &statements)?;
        let found = solver
            .search(Budget { solutions: 1, ..options.budget })
            .map_err(|error| with_origins(error, &moved))?;
        if !found.solutions.is_empty() {
            break;
        }
        let clash = found.clash.unwrap_or_else(|| nothing_found().into());
        let Some((i, operand)) = clash.remedy.filter(|_| inserted.len() < MAX_INSERTED) else {
            let span = clash.diagnostic.span.range();
            let same = |d: &&Diagnostic| !d.span.is_none() && d.span.range() == span;
            let error = first.iter().find(same).cloned().unwrap_or(*clash.diagnostic);
            return Err(with_origins(error, &moved));
        };
        let (next, fresh) = tilewright_tile::insert_rearrangement(&verified, i, operand);
        let program = next.program();
        inserted.push(format!(
            "`{} = rearrange({})` before `{}`: {}",
            program.tensor(fresh).name,
            program.tensor(operand).name,
            tilewright_tile::statement_text(verified.program(), &statements[i].0),
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
    let verified = expand_rearrangements(verified, options, &mut inserted)
        .map_err(|error| with_origins(error, &moved))?;
    Ok(Prepared { verified, inserted, moved })
}

/// A matrix product with a factor that does not come out of a rearrangement, and that factor.
fn unmoved(verified: &Verified) -> Option<(usize, TensorId)> {
    let statements = solve::statements(verified);
    let moved = |t: TensorId| {
        statements.iter().any(|(s, _)| matches!(s.kind, StmtKind::Rearrange { dst, .. } if dst == t))
    };
    statements.iter().enumerate().find_map(|(i, (stmt, _))| {
        let StmtKind::Gemm { a, b, .. } = stmt.kind else { return None };
        [a, b].into_iter().find(|t| !moved(*t)).map(|t| (i, t))
    })
}

/// Rearrangements that are inserted at most.
const MAX_INSERTED: usize = 256;

fn expand_rearrangements(
    mut verified: Verified,
    options: &Options,
    inserted: &mut Vec<String>,
) -> Result<Verified, Diagnostic> {
    loop {
        let statements = solve::statements(&verified);
        let facts = Facts::new(&verified, &options.multiples);
        let parts: BTreeSet<usize> =
            (0..statements.len()).filter(|i| parts_of_bytes(&verified, &facts, &statements[*i].0)).collect();
        if !parts.is_empty() {
            for i in &parts {
                if let StmtKind::CopyAsync { src, .. } = &statements[*i].0.kind {
                    inserted.push(format!(
                        "a register tensor in `{}`, which is done through registers, at once: rows of `{}` begin within bytes",
                        tilewright_tile::statement_text(verified.program(), &statements[*i].0),
                        verified.program().tensor(src.tensor).name
                    ));
                }
            }
            verified = tilewright_tile::desugar_rearrangements(&verified, &parts);
            continue;
        }
        if !statements.iter().any(|(s, _)| matches!(s.kind, StmtKind::Rearrange { .. })) {
            return Ok(verified);
        }
        let solver = Solver::new(&verified, &facts, options.arch, &statements)?;
        let found = solver.search(Budget { solutions: 1, ..options.budget })?;
        let Some(registers) = found.solutions.into_iter().next() else {
            return Err(found.clash.unwrap_or_else(|| nothing_found().into()).diagnostic.as_ref().clone());
        };
        let register = |id: TensorId| registers.layouts[id.0 as usize].as_ref().map(|(tv, _)| tv.clone());
        let mut needed = BTreeSet::new();
        for (i, (stmt, _)) in statements.iter().enumerate() {
            let StmtKind::Rearrange { dst, src } = &stmt.kind else { continue };
            let staged = match moved(&verified, options.arch, &register, (*src, *dst), None) {
                Err(_) => true,
                Ok((movement::Movement::Shared(trip), _)) => matrices_are_fewer(&verified, options, i, &trip),
                Ok(_) => false,
            };
            if staged {
                needed.insert(i);
            }
        }
        if needed.is_empty() {
            return Ok(verified);
        }
        // The layouts of what is left may change with the new copies, so look again.
        verified = tilewright_tile::desugar_rearrangements(&verified, &needed);
    }
}

/// For the case that a search ends without a solution and without a clash, which it never does.
fn nothing_found() -> Diagnostic {
    Diagnostic::new(Code::Unsatisfiable, Span::NONE, "no layouts were found for this program")
        .help("give the search a larger budget")
}

fn no_such_candidate(asked: usize, candidates: usize) -> Diagnostic {
    Diagnostic::new(
        Code::BadValue,
        Span::NONE,
        format!("there is no candidate {asked}: this program has {candidates}, counted from 0"),
    )
    .help("`tilewright compile --emit report` lists them")
}

/// Whether a statement copies elements of a few bits from global to shared memory whose rows do not begin at whole bytes:
/// then they are put together in registers, at once, even if the copy is asynchronous.
fn parts_of_bytes(verified: &Verified, facts: &Facts<'_>, stmt: &tilewright_tile::Stmt) -> bool {
    let Some((src, dst)) = stmt.kind.copied() else { return false };
    let program = verified.program();
    let memory = |t: TensorId| program.tensor(t).memory();
    let per_byte = i64::from(program.tensor(src.tensor).dtype.per_byte());
    per_byte > 1
        && memory(src.tensor) == Memory::Global
        && memory(dst.tensor) == Memory::Shared
        && access::widest_access(facts, &verified.tile(src), i64::from(verified.threads()), 1).0 < per_byte
}

/// How a statement sees its operand's layout: in the coordinates of its result.
type See<'a> = &'a dyn Fn(&TvLayout) -> Option<TvLayout>;

/// Whether copies through a shared tensor do rearrangement `i` with `ldmatrix` or `stmatrix`, as many wavefronts at most and
/// fewer calls: then they are better than the accesses of single threads.
fn matrices_are_fewer(verified: &Verified, options: &Options, i: usize, trip: &movement::Trip) -> bool {
    let StmtKind::Rearrange { src, .. } = solve::statements(verified)[i].0.kind else { return false };
    if verified.program().tensor(src).dtype.bits() != 16 {
        return false;
    }
    let variant = tilewright_tile::desugar_rearrangements(verified, &BTreeSet::from([i]));
    let Some(buffer) = variant.program().tensors.last().map(|t| t.name.clone()) else { return false };
    let options =
        Options { budget: Budget { solutions: 1, ..options.budget }, candidate: None, ..options.clone() };
    let Ok(synthesis) = synthesise(&variant, &options) else { return false };
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

/// The movement from one register tensor to another, the operand seen through a coordinate map.
fn moved(
    verified: &Verified,
    arch: Arch,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    (src, dst): (TensorId, TensorId),
    map: Option<See<'_>>,
) -> Result<(movement::Movement, Vec<Alternative>), String> {
    let (Some(from), Some(to)) = (register(src), register(dst)) else {
        return Err("a register tensor has no layout".to_string());
    };
    let from = match map {
        Some(map) => map(&from).ok_or("the operand's layout does not compose with the change of shape")?,
        None => from,
    };
    movement::movement(&movement::Between {
        from: &from,
        to: &to,
        shape: &verified.shape(dst),
        threads: i64::from(verified.threads()),
        bits: carried(verified, dst),
        arch,
    })
}

/// Bits in which an element travels between threads: its own, at least a byte.
fn carried(verified: &Verified, id: TensorId) -> u32 {
    verified.program().tensor(id).dtype.bits().max(8)
}

/// The plan of a statement between register tensors of which the layouts are known.
fn between_registers(
    verified: &Verified,
    arch: Arch,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    stmt: &tilewright_tile::Stmt,
) -> Option<Result<(StmtPlan, Vec<Alternative>), Refusal>> {
    let layout = |id: TensorId| register(id).ok_or_else(|| "a register tensor has no layout".to_string());
    let shape = |id: TensorId| verified.shape(id);
    let threads = i64::from(verified.threads());
    let bits = |id: TensorId| carried(verified, id);
    let moves_of = |movement: Result<(movement::Movement, Vec<Alternative>), String>| {
        movement.map(|(movement, others)| (StmtPlan::Move(movement), others)).map_err(Refusal::from)
    };
    let refusal = Refusals { verified, register };
    Some(match &stmt.kind {
        StmtKind::Rearrange { dst, src } => moves_of(moved(verified, arch, register, (*src, *dst), None)),
        StmtKind::Shape { dst, src, op } => {
            let (from, to) = (shape(*src), shape(*dst));
            let see = |tv: &TvLayout| {
                let there = shapes::seen(tv, &shapes::forward(op, &from, &to)?)?;
                match op {
                    tilewright_tile::ShapeOp::Broadcast(_) => shapes::repeated(&there, &from, &to),
                    _ => Some(there),
                }
            };
            // A broadcast's values are repeated in the operand's own registers.
            let broadcast = || -> Result<StmtPlan, String> {
                let map = shapes::backward(op, &from, &to).ok_or("the tile is too large")?;
                let moves = moves_through(&layout(*src)?, &layout(*dst)?, threads, &|place| map.eval(place));
                let moves = moves.ok_or("threads do not hold what they need")?;
                Ok(StmtPlan::Move(movement::Movement::Registers(moves)))
            };
            match broadcast() {
                Ok(plan) => Ok((plan, Vec::new())),
                Err(_) if !matches!(op, tilewright_tile::ShapeOp::Broadcast(_)) => {
                    moves_of(moved(verified, arch, register, (*src, *dst), Some(&see)))
                }
                Err(_) => Err(refusal.broadcast(*dst, *src)),
            }
        }
        StmtKind::Join { dst, a, b } => (|| {
            let size: i64 = shape(*a).iter().product();
            let whole = layout(*dst)?;
            let (first, a, b) = (*a, layout(*a)?, layout(*b)?);
            let swap = |moves: Vec<(u32, u32)>| moves.into_iter().map(|(s, d)| (d, s)).collect::<Vec<_>>();
            let half = |tv: &TvLayout, offset: i64| halves(tv, &whole, offset, threads).map(swap);
            let why = || refusal.halves(*dst, first, true);
            let (lo, hi) = (half(&a, 0).ok_or_else(why)?, half(&b, size).ok_or_else(why)?);
            Ok((StmtPlan::Halves([lo, hi]), Vec::new()))
        })(),
        StmtKind::Split { lo, hi, src } => (|| {
            let size: i64 = shape(*lo).iter().product();
            let whole = layout(*src)?;
            let (a, b) = (layout(*lo)?, layout(*hi)?);
            let half = |tv: &TvLayout, offset: i64| halves(tv, &whole, offset, threads);
            let why = || refusal.halves(*src, *lo, false);
            let (lo, hi) = (half(&a, 0).ok_or_else(why)?, half(&b, size).ok_or_else(why)?);
            Ok((StmtPlan::Halves([lo, hi]), Vec::new()))
        })(),
        StmtKind::Reduce { dst, src, axis, op } => (|| {
            let plan = reduce::reduce(
                &layout(*src)?,
                &layout(*dst)?,
                (&shape(*src), &shape(*dst)),
                *axis,
                (threads, bits(*dst)),
                arch,
            );
            let plan = plan.map_err(|why| refusal.reduce(*src, *axis, *op).unwrap_or(why.into()))?;
            Ok((StmtPlan::Reduce(plan), Vec::new()))
        })(),
        StmtKind::Gather { dst, src, axis, .. } => (|| {
            let planned = gather::gather(
                &layout(*src)?,
                &layout(*dst)?,
                (&shape(*src), &shape(*dst)),
                *axis,
                bits(*dst),
                arch,
            );
            let (plan, others) =
                planned.map_err(|why| refusal.gather(&[*src, *dst], *axis).unwrap_or(why.into()))?;
            Ok((StmtPlan::Gather(plan), others))
        })(),
        _ => return None,
    })
}

/// The moves from the whole to the half of it that begins at `offset`: (value of the whole, value of the half).
fn halves(half: &TvLayout, whole: &TvLayout, offset: i64, threads: i64) -> Option<Vec<(u32, u32)>> {
    let moves = moves_through(whole, half, threads, &|place| place + offset)?;
    (2 * half.count() == whole.count()).then_some(moves)
}

/// The plan of a copy between registers and global memory, or from registers to registers.
fn direct(
    verified: &Verified,
    facts: &Facts<'_>,
    arch: Arch,
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
    stmt: &tilewright_tile::Stmt,
) -> Result<Option<(StmtPlan, Vec<Alternative>)>, Diagnostic> {
    let StmtKind::Copy { src, dst } = &stmt.kind else { return Ok(None) };
    let memory = |t: TensorId| verified.program().tensor(t).memory();
    let fail = |why: String| {
        Diagnostic::new(Code::Unsatisfiable, stmt.span, format!("no instruction can do this copy: {why}"))
    };
    let layout = |id: TensorId| register(id).ok_or_else(|| fail("a register tensor has no layout".into()));
    Ok(match (memory(src.tensor), memory(dst.tensor)) {
        (Memory::Global, Memory::Register) | (Memory::Register, Memory::Global) => {
            let is_load = memory(src.tensor) == Memory::Global;
            let (view, tensor) = if is_load { (src, dst.tensor) } else { (dst, src.tensor) };
            let tv = layout(tensor)?;
            let (plan, others) =
                global_copy(facts, arch, &tv, &verified.tile(view), is_load).map_err(|why| {
                    let dtype = verified.program().tensor(tensor).dtype;
                    if is_load || dtype.bits() >= 8 {
                        return fail(why);
                    }
                    copies::shares_bytes(verified, stmt, dtype, &why)
                })?;
            Some((StmtPlan::Copy(plan), others))
        }
        (Memory::Register, Memory::Register) => {
            let (from, to) = (layout(src.tensor)?, layout(dst.tensor)?);
            let moves = moves(&from, &to, i64::from(verified.threads()))
                .ok_or_else(|| fail("the two tensors are distributed differently".to_string()))?;
            Some((StmtPlan::Copy(CopyPlan::Registers { moves }), Vec::new()))
        }
        _ => None,
    })
}

/// Synthesises layouts and instructions for a program.
///
/// The program must have been made ready for it ([`prepare`]).
///
/// # Errors
///
/// A [`Diagnostic`] that names the statement: no matrix instruction fits, two statements want different layouts of one
/// tensor, a tensor is too large for registers or shared memory.
pub fn synthesise(verified: &Verified, options: &Options) -> Result<Synthesis, Diagnostic> {
    let facts = Facts::new(verified, &options.multiples);
    let statements = solve::statements(verified);
    for (stmt, _) in &statements {
        conversions(verified, options.arch, stmt)?;
    }
    let mut search = Search::new(verified, options, &facts, &statements)?;
    let mut outcome = search.run()?;
    let components = search.solver().components();
    let constraints = search
        .solver()
        .constraints()
        .iter()
        .map(|c| ConstraintNote {
            component: c.tensors().first().and_then(|t| components[t.0 as usize]).unwrap_or(0),
            statement: tilewright_tile::statement_text(verified.program(), &statements[c.statement].0),
            equation: c.text(verified),
        })
        .collect();
    let program = verified.program();
    let tensors = outcome.tensors(verified);
    let Candidate { registers, shared, mut plans, mut alternatives, .. } = outcome.chosen.clone();
    for (i, plan) in outcome.gemms.iter_mut().enumerate() {
        if let Some(plan) = plan.take() {
            plans[i] = StmtPlan::Gemm(plan);
        }
    }
    let mut shared_notes: HashMap<TensorId, String> =
        shared.iter().map(|(id, s)| (*id, format!("unified from its copies: {}", s.constraint))).collect();
    let (fragment_registers, shared_total) = (outcome.chosen.fragment_registers, outcome.chosen.shared_bytes);
    let scratch_bytes = outcome.chosen.scratch_bytes;
    let mut explanation = Explanation {
        fragment_registers,
        shared_bytes: shared_total,
        constraints,
        candidates: outcome.notes,
        search: outcome.note,
        estimate: outcome.chosen.estimate,
        ..Explanation::default()
    };
    for (i, tensor) in program.tensors.iter().enumerate() {
        let id = TensorId(i as u32);
        let (layout, size, why) = match &tensors[i] {
            None => continue,
            Some(TensorLayout::Register(tv)) => (
                tv.layout().to_string(),
                (tv.count() as u32 * tensor.dtype.bits()).div_ceil(32),
                registers.layouts[i].as_ref().map_or_else(String::new, |(_, o)| o.why.clone()),
            ),
            Some(TensorLayout::Shared { layout, bytes, .. }) => {
                (layout.to_string(), *bytes, shared_notes.remove(&id).unwrap_or_default())
            }
        };
        explanation.tensors.push(TensorNote {
            name: tensor.name.clone(),
            memory: tensor.memory().to_string(),
            dtype: tensor.dtype.to_string(),
            shape: verified.shape(id),
            layout,
            size,
            offset: outcome.chosen.allocation.offsets.iter().find(|(t, _)| *t == id).map_or(0, |(_, at)| *at),
            why,
        });
    }
    for (i, (stmt, _)) in statements.iter().enumerate() {
        if let Some(note) =
            note((verified, options.arch), stmt, &plans[i], &tensors, std::mem::take(&mut alternatives[i]))
        {
            explanation.statements.push(note);
        }
    }
    let allocation = outcome.chosen.allocation;
    Ok(Synthesis { tensors, statements: plans, allocation, scratch_bytes, explanation })
}

/// Whether the architecture converts the elements of a statement from and to 8-bit floats.
fn conversions(verified: &Verified, arch: Arch, stmt: &tilewright_tile::Stmt) -> Result<(), Diagnostic> {
    let dtype = |id: TensorId| verified.program().tensor(id).dtype;
    let pairs: Vec<(DType, DType)> = match &stmt.kind {
        StmtKind::Cast { dst, src } => vec![(dtype(*src), dtype(*dst))],
        StmtKind::Elementwise { dst, expr } => {
            let mut pairs: Vec<(DType, DType)> =
                expr.tensors().into_iter().map(|id| (dtype(id), DType::F32)).collect();
            pairs.push((DType::F32, dtype(*dst)));
            pairs
        }
        StmtKind::Reduce { dst, src, op, .. } => {
            let narrow = *op == ReduceOp::Sum || dtype(*dst) == DType::E4M3;
            let back = if narrow { vec![(DType::F32, dtype(*dst))] } else { Vec::new() };
            [vec![(dtype(*src), DType::F32)], back].concat()
        }
        _ => Vec::new(),
    };
    for (from, to) in pairs {
        if let Err(error) = cast::supported(from, to, arch) {
            return Err(Diagnostic::new(Code::Unsatisfiable, stmt.span, error.to_string())
                .label("converts 8-bit floats")
                .help(format!("compile for {} or a later architecture", error.since)));
        }
    }
    Ok(())
}

/// From where to where a copy goes, in letters, and the tensor in memory that it is about; nothing for copies between registers.
fn level(verified: &Verified, (src, dst): (&TensorRef, &TensorRef)) -> (String, String) {
    let tensor = |r: &TensorRef| verified.program().tensor(r.tensor);
    let letter = |r: &TensorRef| match tensor(r).memory() {
        Memory::Global => 'G',
        Memory::Shared => 'S',
        Memory::Register => 'R',
    };
    let (from, to) = (letter(src), letter(dst));
    let about = match (from, to) {
        ('R', 'R') => return Default::default(),
        ('R', _) | ('G', 'S') => dst,
        _ => src,
    };
    (format!("{from}2{to}"), tensor(about).name.clone())
}

/// A statement between registers that no plan does.
fn cannot_move(stmt: &tilewright_tile::Stmt, why: &Refusal) -> Diagnostic {
    Diagnostic::new(Code::LayoutConflict, stmt.span, why.message.clone()).help(why.help.clone())
}

/// Why no plan does a statement between registers, and what would be right.
struct Refusal {
    message: String,
    help: String,
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Refusal {
            message: format!("the threads do not hold what this statement needs: {why}"),
            help: "redistribute an operand before it: `x = rearrange(…)`, with a layout of its own where one is needed"
                .to_string(),
        }
    }
}

/// Words for refusals, with the program's own names.
struct Refusals<'a> {
    verified: &'a Verified,
    register: &'a dyn Fn(TensorId) -> Option<TvLayout>,
}

impl Refusals<'_> {
    fn name(&self, id: TensorId) -> &str {
        &self.verified.program().tensor(id).name
    }

    /// A tensor and its layout.
    fn is(&self, id: TensorId) -> String {
        let layout = (self.register)(id).map_or_else(String::new, |tv| tv.layout().to_string());
        format!("`{}` is {layout}", self.name(id))
    }

    /// The coordinates along a mode that threads begin at.
    fn spread(&self, id: TensorId, axis: usize) -> BTreeSet<i64> {
        let shape = self.verified.shape(id);
        let unit: i64 = shape[..axis].iter().product();
        let starts = (self.register)(id).map_or_else(Vec::new, |tv| tv.threads().image());
        starts.into_iter().map(|start| start / unit % shape[axis]).collect()
    }

    fn broadcast(&self, dst: TensorId, src: TensorId) -> Refusal {
        let (to, from) = (self.name(dst), self.name(src));
        Refusal {
            message: format!(
                "threads hold elements of `{to}` that repeat elements of `{from}` held by others: {}, and {}",
                self.is(src),
                self.is(dst)
            ),
            help: format!("redistribute `{from}` before it: `x = rearrange({from})` and broadcast `x`"),
        }
    }

    /// Of a join into `whole`, or a split of it.
    fn halves(&self, whole: TensorId, half: TensorId, joins: bool) -> Refusal {
        let name = self.name(whole);
        let last = self.verified.shape(whole).len() - 1;
        let help = if joins {
            format!(
                "leave the layout of `{name}` open, or join into a new name and rearrange that: `{name} = rearrange(x)`"
            )
        } else {
            format!(
                "leave the layout of `{name}` open, or redistribute it before: `x = rearrange({name})` and split `x`"
            )
        };
        let message = if self.spread(whole, last).len() > 1 {
            let verb = if joins { "joins" } else { "splits" };
            let lanes = (self.register)(whole).is_some_and(|tv| {
                let unit: i64 = self.verified.shape(whole)[..last].iter().product();
                (0..32).any(|lane| tv.threads().eval(lane) / unit != tv.threads().eval(0) / unit)
            });
            let who = if lanes { "lanes" } else { "warps" };
            format!(
                "mode {last} of `{name}` is spread over {who}, and a thread that {verb} holds both halves of what it has"
            )
        } else {
            format!(
                "threads hold other elements of `{}` than of `{name}`: {}, and {}",
                self.name(half),
                self.is(half),
                self.is(whole)
            )
        };
        Refusal { message, help }
    }

    /// Of a mode that a number of threads share which is no power of two.
    fn reduce(&self, src: TensorId, axis: u32, op: ReduceOp) -> Option<Refusal> {
        let (name, along) = (self.name(src), self.spread(src, axis as usize).len());
        let (op, block) = (op.name(), self.verified.threads());
        let odd = !along.is_power_of_two();
        let spreads = format!("`{name}` spreads mode {axis} over {along} threads");
        let otherwise = if block.is_power_of_two() { " or over a power of two of them" } else { "" };
        (odd || (along > 1 && !block.is_power_of_two())).then(|| Refusal {
            message: if odd {
                format!("{spreads}, and a {op} across threads needs a power of two")
            } else {
                format!("{spreads} of a block of {block}, and a {op} across threads needs a power of two in the block")
            },
            help: format!(
                "redistribute `{name}` before it, `x = rearrange({name}, layout = …)`, so that mode {axis} lies within each \
                 thread{otherwise}"
            ),
        })
    }

    /// Of a mode whose extent is no power of two.
    fn gather(&self, tensors: &[TensorId], axis: u32) -> Option<Refusal> {
        let extent = |id: TensorId| self.verified.shape(id)[axis as usize];
        let odd = tensors.iter().copied().find(|id| !(extent(*id) as u64).is_power_of_two())?;
        let (name, now) = (self.name(odd), extent(odd));
        Some(Refusal {
            message: format!(
                "a gather runs along modes of power-of-two extents, and mode {axis} of `{name}` has {now}"
            ),
            help: format!(
                "make mode {axis} of `{name}` a power of two ({now} → {})",
                (now as u64).next_power_of_two()
            ),
        })
    }
}

/// Elements of memory that a shared layout needs: one more than its largest offset.
fn elements(layout: &SwizzledLayout) -> i64 {
    let (plain, swizzle) = (layout.layout.cosize(), layout.swizzle);
    // A swizzle permutes each aligned block of this size; whole blocks stay what they are.
    let block = 1i64 << (swizzle.base() + swizzle.bits());
    if swizzle.is_identity() || plain % block == 0 {
        return plain;
    }
    (0..layout.layout.size()).map(|i| layout.eval(i)).max().map_or(plain, |last| last + 1)
}

fn note(
    (verified, arch): (&Verified, Arch),
    stmt: &tilewright_tile::Stmt,
    plan: &StmtPlan,
    tensors: &[Option<TensorLayout>],
    alternatives: Vec<Alternative>,
) -> Option<StatementNote> {
    let text = tilewright_tile::statement_text(verified.program(), stmt);
    let position = stmt.span.start;
    let moved = |instruction: String,
                 calls: u32,
                 (shared, shared_calls, wavefronts): (u32, u32, u32),
                 cycles,
                 others| {
        Some(StatementNote {
            text: text.clone(),
            position,
            instruction,
            calls,
            per_call: 4,
            level: String::new(),
            tensor: String::new(),
            global_bytes: 0,
            shared_bytes: shared,
            shared_calls,
            wavefronts,
            bank_conflicts: 0,
            cycles,
            alternatives: others,
        })
    };
    let warps = verified.threads() / 32;
    let copy = match plan {
        StmtPlan::None => {
            let StmtKind::Cast { dst, src } = &stmt.kind else { return None };
            let Some(TensorLayout::Register(tv)) = &tensors[src.0 as usize] else { return None };
            let dtype = |id: &TensorId| verified.program().tensor(*id).dtype;
            let plan = cast::plan(dtype(src), dtype(dst), arch, tv.count() as u32).ok()?;
            return moved(plan.name(), plan.calls(), (0, 0, 0), plan.cycles(), alternatives);
        }
        StmtPlan::Move(movement) => {
            let shared = match movement {
                movement::Movement::Shared(trip) => {
                    (trip.store.row.bytes, movement.calls(), trip.wavefronts() * warps)
                }
                _ => (0, 0, 0),
            };
            let (name, calls, cycles) = (movement.name(), movement.calls(), movement.cycles());
            return moved(name, calls, shared, cycles, alternatives);
        }
        StmtPlan::Halves(_) => return moved("nothing".to_string(), 0, (0, 0, 0), 0, alternatives),
        StmtPlan::Reduce(plan) => {
            let calls = plan.lanes.len() as u32 * plan.local.len() as u32;
            let (name, shared, wavefronts) = match &plan.warps {
                Some(trip) => {
                    let name = format!("shfl.sync, {} + {}", trip.store.row.name, trip.load.row.name);
                    (name, trip.store.row.bytes, trip.wavefronts() * warps)
                }
                None => ("shfl.sync".to_string(), 0, 0),
            };
            let shared_calls = plan.shared_instructions();
            let shared = (shared, shared_calls, wavefronts);
            return moved(name, calls + shared_calls, shared, plan.cycles(), alternatives);
        }
        StmtPlan::Gather(plan) => {
            let shared = match plan {
                gather::GatherPlan::Shared(g) => (g.store.row.bytes, plan.calls(), 0),
                gather::GatherPlan::Warp(_) => (0, 0, 0),
            };
            return moved(plan.name(), plan.calls(), shared, plan.cycles(), alternatives);
        }
        StmtPlan::Gemm(plan) => {
            return Some(StatementNote {
                text,
                position,
                instruction: plan.row.name.to_string(),
                calls: plan.calls.len() as u32,
                per_call: plan.row.macs() as u32,
                level: String::new(),
                tensor: String::new(),
                global_bytes: 0,
                shared_bytes: 0,
                shared_calls: 0,
                wavefronts: 0,
                bank_conflicts: 0,
                cycles: plan.calls.len() as u32 * plan.row.issue_cycles,
                alternatives,
            });
        }
        StmtPlan::Copy(copy) => copy,
    };
    let (calls, per_call, issue) = match copy {
        CopyPlan::Direct { row, access } | CopyPlan::Async { row, access } => {
            (access.calls.len(), row.bytes_per_lane(), row.issue_cycles)
        }
        CopyPlan::Staged { load, store, access } => {
            (access.calls.len(), load.bytes, load.issue_cycles + store.issue_cycles)
        }
        CopyPlan::Registers { moves } => (moves.len(), 4, 1),
    };
    let (level, tensor) = stmt.kind.copied().map_or_else(Default::default, |ends| level(verified, ends));
    let mut result = StatementNote {
        text,
        position,
        instruction: plan_name(copy),
        calls: calls as u32,
        per_call,
        level,
        tensor,
        global_bytes: 0,
        shared_bytes: 0,
        shared_calls: 0,
        wavefronts: 0,
        bank_conflicts: 0,
        cycles: calls as u32 * issue,
        alternatives,
    };
    if let (StmtKind::CopyAsync { .. }, CopyPlan::Staged { .. }) = (&stmt.kind, copy) {
        result.instruction += " (through registers, at once: no asynchronous copy has this width)";
    }
    let Some((src, dst)) = stmt.kind.copied() else { return Some(result) };
    let (row, access) = match copy {
        CopyPlan::Direct { row, access } | CopyPlan::Async { row, access } => (*row, access),
        CopyPlan::Staged { store, access, .. } => (*store, access),
        CopyPlan::Registers { .. } => return Some(result),
    };
    let program = verified.program();
    for reference in [src, dst] {
        match &tensors[reference.tensor.0 as usize] {
            Some(TensorLayout::Shared { layout, .. }) => {
                let bits = program.tensor(reference.tensor).dtype.bits();
                let own = own_layout(verified, reference)?;
                let usage = SharedUse { row, access, own: &own, weight: 1 };
                let w = count(&usage, layout, bits, 0..i64::from(verified.threads()) / 32)?;
                result.shared_bytes = row.bytes;
                result.shared_calls = access.calls.len() as u32;
                result.wavefronts = w.actual;
                result.bank_conflicts = w.conflicts();
                result.cycles += w.conflicts() / (verified.threads() / 32).max(1);
            }
            Some(TensorLayout::Register(_)) => {}
            None => result.global_bytes = row.bytes,
        }
    }
    Some(result)
}

fn check_shared(
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

/// The register and shared tensors that a statement reads, views left out.
fn reads(stmt: &tilewright_tile::Stmt) -> Vec<TensorId> {
    match &stmt.kind {
        StmtKind::Copy { src, .. } | StmtKind::CopyAsync { src, .. } => vec![src.tensor],
        StmtKind::Gemm { c, a, b } => vec![*c, *a, *b],
        StmtKind::Cast { src, .. }
        | StmtKind::Rearrange { src, .. }
        | StmtKind::Shape { src, .. }
        | StmtKind::Split { src, .. }
        | StmtKind::Reduce { src, .. } => vec![*src],
        StmtKind::Elementwise { expr, .. } => expr.tensors(),
        StmtKind::Join { a, b, .. } => vec![*a, *b],
        StmtKind::Gather { src, index, .. } => vec![*src, *index],
        StmtKind::Fill { .. }
        | StmtKind::Define(_)
        | StmtKind::Sync
        | StmtKind::Commit
        | StmtKind::Wait(_)
        | StmtKind::For { .. } => Vec::new(),
    }
}

/// The tensors that a statement writes.
fn writes(stmt: &tilewright_tile::Stmt) -> Vec<TensorId> {
    match &stmt.kind {
        StmtKind::Copy { dst, .. } | StmtKind::CopyAsync { dst, .. } => vec![dst.tensor],
        StmtKind::Gemm { c, .. } => vec![*c],
        StmtKind::Fill { dst, .. } => vec![*dst],
        StmtKind::Define(_) => Vec::new(),
        kind => kind.assigned(),
    }
}

/// The tensors that a statement reads and writes.
fn touched(stmt: &tilewright_tile::Stmt) -> Vec<TensorId> {
    let mut all = reads(stmt);
    all.extend(writes(stmt));
    all
}

/// The most 32-bit registers that fragments take at one time. A tensor lives from its first use to its last; one that
/// was used before a loop and is used in it lives through the whole loop.
fn live_registers(
    verified: &Verified,
    statements: &[(tilewright_tile::Stmt, usize)],
    register: &dyn Fn(TensorId) -> Option<TvLayout>,
) -> u32 {
    let n = statements.len();
    let mut spans: HashMap<TensorId, (usize, usize)> = HashMap::new();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        for id in touched(stmt) {
            spans.entry(id).and_modify(|s| s.1 = i).or_insert((i, i));
        }
    }
    // A loop's end: the last statement that is deeper than its head.
    for (i, (stmt, depth)) in statements.iter().enumerate() {
        if matches!(stmt.kind, StmtKind::For { .. }) {
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
    (0..n)
        .map(|i| spans.iter().filter(|(_, s)| s.0 <= i && i <= s.1).map(|(id, _)| size(id)).sum())
        .max()
        .unwrap_or(0)
}

fn too_many_registers(
    verified: &Verified,
    arch: Arch,
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
            "the register tensors that are live at once take {total} registers of a thread, and {arch} has {} for each",
            arch.limits().registers_of_a_thread(verified.threads())
        ),
    )
    .label("the largest of them")
    .help(format!("make the tiles smaller or use more threads; in registers a thread: {}", list.join(", ")))
}
