//! Layout synthesis: from a verified tile program to a layout for every tensor and an instruction for every statement.
//!
//! The order is that of Hexcute (CGO 2026, sections IV and V): thread-value layouts of register tensors by anchors and
//! propagation ([`solve`]); then, for each shared tensor on its own, the instructions of all copies that touch it, the
//! unification of what they ask of its layout, and a swizzle ([`copies`], [`shared`]); then instructions between
//! registers and global memory by width. Every solution is estimated ([`search`], [`cost`]) and the cheapest taken. The result is
//! a [`Synthesis`], whose [`Explanation`] can be printed.
//!
//! Directions are those of [`plan`]: thread-value layouts map (thread, value) → coordinate, memory layouts map
//! coordinate → offset.

pub mod access;
pub mod allocate;
mod between;
pub mod cast;
pub mod constraint;
pub mod copies;
pub mod cost;
pub mod explain;
pub mod facts;
pub mod gather;
pub mod gemm;
pub mod hopper;
mod limits;
pub mod linear;
pub mod movement;
mod note;
pub mod plan;
mod prepare;
pub mod reduce;
pub mod search;
pub mod shapes;
pub mod shared;
pub mod solve;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tilewright_machine::{Arch, Memory, Timing};
use tilewright_tile::{Code, Diagnostic, Span, StmtKind, TensorId, Verified, check_architecture};

pub use between::moves;
use copies::global_copy;
pub use explain::{Alternative, ConstraintNote, Explanation, StatementNote, SyncNote, TensorNote};
pub use facts::{Facts, Multiples};
pub use hopper::product::{LeftPlan, OperandPlan, ProductCall, ProductPlan};
pub use hopper::tensor::{Share, TensorCall, TensorPlan};
pub use hopper::{Prescribed, prescribe};
pub use plan::{Access, Call, CopyPlan, GemmCall, GemmPlan, StmtPlan, Synthesis, TensorLayout, TvLayout};
pub use prepare::{Prepared, prepare};
use search::{Candidate, Search};
pub use search::{CandidateNote, SearchNote};
pub use solve::Budget;

/// Shared tensors start at multiples of this many bytes, so that a swizzle of their offsets is one of their addresses.
pub const SHARED_ALIGN: u32 = 128;
/// What asynchronous units take as the beginning of a tensor: they swizzle by the bits of addresses, and the widest swizzle repeats
/// after this many bytes.
pub const UNIT_ALIGN: u32 = 1024;

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
    /// Registers that a thread may have, where that is not what the block's threads leave it: a role's budget.
    pub registers: Option<u32>,
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

    /// Steps that a search takes at most unless told otherwise: a fraction of a second.
    pub const STEPS: u64 = 1_000_000;

    /// Nothing asked for but the architecture, given what is known of sizes.
    pub fn new(arch: Arch, multiples: Multiples) -> Self {
        let budget = Budget { solutions: Options::CANDIDATES, seed: 0, steps: Options::STEPS };
        let without = Ablation::default();
        Options {
            arch,
            multiples,
            sizes: BTreeMap::new(),
            budget,
            candidate: None,
            without,
            timing: None,
            registers: None,
        }
    }

    /// Registers that a thread of a program may have.
    pub fn registers_of_a_thread(&self, verified: &Verified) -> u32 {
        let limits = self.arch.limits();
        let own = self.registers.unwrap_or_else(|| limits.registers_of_a_thread(verified.threads()));
        own.min(limits.registers_per_thread)
    }

    /// The table that costs are taken from.
    pub fn timing(&self) -> &Timing {
        self.timing.as_deref().unwrap_or_else(|| tilewright_machine::timing(self.arch))
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
/// A [`Diagnostic`] that names the statement: the architecture lacks what it uses, no matrix instruction fits, two statements want
/// different layouts of one tensor, a tensor is too large for registers or shared memory.
pub fn synthesise(verified: &Verified, options: &Options) -> Result<Synthesis, Diagnostic> {
    check_architecture(verified, options.arch)?;
    let facts = Facts::new(verified, &options.multiples);
    let statements = solve::statements(verified);
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
            note::note((verified, options), stmt, &plans[i], &tensors, std::mem::take(&mut alternatives[i]))
        {
            explanation.statements.push(note);
        }
    }
    let allocation = outcome.chosen.allocation;
    Ok(Synthesis { tensors, statements: plans, allocation, scratch_bytes, explanation })
}
