//! Layout synthesis: from a verified tile program to a layout for every tensor and an instruction for every statement.
//!
//! The order is that of Hexcute (CGO 2026, sections IV and V): thread-value layouts of register tensors by anchors and
//! propagation ([`solve`]); then, for each shared tensor on its own, the instructions of all copies that touch it, the
//! unification of what they ask of its layout, and a swizzle ([`copies`], [`shared`]); then instructions between
//! registers and global memory by width. Every solution is estimated (`search`, [`cost`]) and the cheapest taken. The result is
//! a [`Synthesis`], whose [`Explanation`] can be printed.
//!
//! Directions are those of `tv`: thread-value layouts map (thread, value) → coordinate, memory layouts map
//! coordinate → offset.

pub mod access;
mod allocate;
pub mod along;
pub mod async_layout;
mod between;
pub mod block;
pub mod cast;
pub mod combine;
pub mod constraint;
pub mod copies;
pub mod cost;
pub mod divisibility;
mod explain;
pub mod gather;
pub mod gemm;
mod limits;
pub mod linear;
pub mod movement;
mod note;
mod options;
mod pad;
pub mod plan;
mod prepare;
mod reason;
pub mod reduce;
mod reject;
pub mod rows;
pub mod scan;
mod search;
mod shapes;
pub mod shared;
pub mod solve;
pub mod sort;
mod statements;
mod synthesis;
mod tv;

use tilewright_tile::core::Program;
use tilewright_tile::{Diagnostic, TensorId};

pub use allocate::{ASYNC_ALIGN, SHARED_ALIGN};
pub use async_layout::tensor_memory::{ScalesAt, SumsCall, SumsPlan, TensorCall, TensorCopyPlan};
pub use async_layout::tma::{Multicast, TmaCall, TmaPlan};
pub use async_layout::wgmma::{OperandA, SharedOperand, WgmmaCall, WgmmaPlan};
pub use async_layout::{AsyncLayouts, assign_async_layouts};
pub use copies::{Agreed, agree};
pub use divisibility::{Divisibility, Multiples};
pub use explain::{
    Alternative, CandidateNote, ConstraintNote, Explanation, PipelineNote, SearchNote, StatementNote,
    SyncNote, TensorNote, Words,
};
pub use gemm::GemmCall;
pub use options::{Ablation, Options};
pub use pad::pad_extents;
pub use plan::{CopyPlan, GemmPlan, StmtPlan};
pub use prepare::{Prepared, prepare};
use reason::Why;
use search::{Candidate, Search};
pub use solve::Budget;
pub use statements::statements;
pub use synthesis::{Synthesis, TensorLayout};
pub use tv::{Access, Call, TvLayout, moves};

/// Synthesises layouts and instructions for a program.
///
/// The program must have been made ready for it ([`prepare`]).
///
/// # Errors
///
/// A [`Diagnostic`] that names the statement: the architecture lacks what it uses, no matrix instruction fits, two statements want
/// different layouts of one tensor, a tensor is too large for registers or shared memory.
pub fn synthesise(verified: &Program, options: &Options) -> Result<Synthesis, Diagnostic> {
    let divisibility = Divisibility::new(verified, &options.multiples);
    let statements = statements(verified);
    let mut search = Search::new(verified, options, &divisibility, &statements)?;
    let mut outcome = search.run()?;
    let components = search.solver().components();
    let constraints = search
        .solver()
        .constraints()
        .iter()
        .map(|c| ConstraintNote {
            component: c.tensors().first().and_then(|t| components[t.0 as usize]).unwrap_or(0),
            statement: tilewright_tile::statement_text(verified, statements[c.statement].0),
            equation: c.text(verified),
        })
        .collect();
    let tensors = outcome.tensors(verified);
    let Candidate { registers, shared, mut plans, alternatives, .. } = outcome.chosen.clone();
    for (i, plan) in outcome.gemms.iter_mut().enumerate() {
        if let Some(plan) = plan.take() {
            plans.insert(statements[i].0.id, StmtPlan::Gemm(plan));
        }
    }
    let (fragment_registers, shared_total) = (outcome.chosen.fragment_registers, outcome.chosen.shared_bytes);
    let scratch_bytes = outcome.chosen.scratch_bytes;
    let words = Words { verified, statements: &statements };
    let mut explanation = Explanation {
        fragment_registers,
        shared_bytes: shared_total,
        constraints,
        candidates: outcome.notes,
        search: outcome.note,
        estimate: outcome.chosen.estimate,
        ..Explanation::default()
    };
    for (i, tensor) in verified.tensors.iter().enumerate() {
        let id = TensorId(i as u32);
        let (layout, size, why) = match &tensors[i] {
            None => continue,
            Some(TensorLayout::Register(tv)) => (
                tv.layout().to_string(),
                (tv.count() as u32 * tensor.dtype.bits()).div_ceil(32),
                registers.layouts[i].as_ref().map_or_else(String::new, |(_, why)| words.why(why)),
            ),
            Some(TensorLayout::Shared { layout, bytes, .. }) => {
                let solution = shared.iter().find(|(other, _)| *other == id).map(|(_, solution)| solution);
                let why = solution.map_or_else(String::new, |s| {
                    words.why(&Why::Unified { constraint: s.constraint.clone(), stage: s.stage })
                });
                (layout.to_string(), *bytes, why)
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
    let (allocation, streamed) = (outcome.chosen.allocation, outcome.chosen.streamed);
    let mut synthesis =
        Synthesis { tensors, statements: plans, allocation, scratch_bytes, streamed, explanation };
    for (stmt, _) in &statements {
        let others = alternatives.get(stmt.id).into_iter().flatten();
        let others = others.map(|other| words.alternative(other)).collect();
        let plan = synthesis.plan(stmt)?;
        if let Some(note) = note::note((verified, options), stmt, plan, &synthesis.tensors, others) {
            synthesis.explanation.statements.push(note);
        }
    }
    Ok(synthesis)
}
