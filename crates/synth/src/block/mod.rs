//! A thread block as a whole: what its roles, each synthesised on its own, must agree on. Nothing here emits code.

pub mod disjoint;
pub mod proxy;
pub mod release;
pub mod smem;

use tilewright_tile::{PipelineId, Role, Side, Stmt, StmtKind, Verified};

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
    plans: &'a [StmtPlan],
    next: &mut usize,
    stage: Option<(PipelineId, Side)>,
    visit: &mut impl FnMut(&'a Stmt, &'a StmtPlan, Option<(PipelineId, Side)>),
) {
    for stmt in body {
        let plan = plans.get(*next).unwrap_or(&StmtPlan::None);
        *next += 1;
        visit(stmt, plan, stage);
        let inner = match &stmt.kind {
            StmtKind::Stage { pipeline, side, .. } => Some((*pipeline, *side)),
            _ => stage,
        };
        walk(stmt.kind.body(), plans, next, inner, visit);
    }
}

/// Calls `visit` for every statement of a part with its plan, and the innermost stage that it is in.
pub fn walk_part<'a>(
    part: &Part<'a>,
    visit: &mut impl FnMut(&'a Stmt, &'a StmtPlan, Option<(PipelineId, Side)>),
) {
    walk(&part.verified.program().body, &part.synthesis.statements, &mut 0, None, visit);
}
