//! A thread block as a whole: what its roles, each synthesised on its own, must agree on. Nothing here emits code.

pub mod disjoint;
pub mod proxy;
pub mod release;
pub mod smem;

use tilewright_tile::{Diagnostic, PipelineId, Role, Side, Stmt, StmtKind, Verified};

use crate::plan::StmtPlan;
use crate::synthesis::Synthesis;

/// What some of a block's threads do: the whole of a program without roles, or one role.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// Its program, prepared for synthesis.
    pub verified: &'a Verified,
    /// What was decided for it.
    pub synthesis: &'a Synthesis,
    /// The role; `None` if all threads do it.
    pub role: Option<Role<'a>>,
}

/// Calls `visit` for every statement with its plan, and the innermost stage that it is in.
fn walk<'a>(
    body: &'a [Stmt],
    synthesis: &'a Synthesis,
    stage: Option<(PipelineId, Side)>,
    visit: &mut impl FnMut(&'a Stmt, &'a StmtPlan, Option<(PipelineId, Side)>),
) -> Result<(), Diagnostic> {
    for stmt in body {
        visit(stmt, synthesis.plan(stmt)?, stage);
        let inner = match &stmt.kind {
            StmtKind::Stage { pipeline, side, .. } => Some((*pipeline, *side)),
            _ => stage,
        };
        walk(stmt.kind.body(), synthesis, inner, visit)?;
    }
    Ok(())
}

/// Calls `visit` for every statement of a part with its plan, and the innermost stage that it is in.
///
/// # Errors
///
/// A statement without a plan.
pub fn walk_part<'a>(
    part: &Part<'a>,
    visit: &mut impl FnMut(&'a Stmt, &'a StmtPlan, Option<(PipelineId, Side)>),
) -> Result<(), Diagnostic> {
    walk(&part.verified.program().body, part.synthesis, None, visit)
}
