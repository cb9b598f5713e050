//! The parts of a block, and their statements with the stages that these are in.

use tilewright_tile::core::{Program, Role, Stmt, StmtKind};
use tilewright_tile::{Diagnostic, PipelineId, Side};

use crate::plan::StmtPlan;
use crate::synthesis::Synthesis;

/// The work of some of a block's threads: the whole of a program without roles, or one role.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    /// Its program, prepared for synthesis.
    pub verified: &'a Program,
    /// Its layouts and instructions.
    pub synthesis: &'a Synthesis,
    /// The role; `None` if all threads do it.
    pub role: Option<&'a Role>,
}

/// A stage of a pipeline around a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Around {
    /// The pipeline.
    pub pipeline: PipelineId,
    /// The side of it that the part is on.
    pub side: Side,
    /// The number of its `produce` or `consume` among those of the part.
    pub number: usize,
}

/// A statement of a part.
pub struct Site<'a> {
    /// The statement.
    pub stmt: &'a Stmt,
    /// Its plan.
    pub plan: &'a StmtPlan,
    /// The innermost stage that the statement is in.
    pub stage: Option<Around>,
    /// The times that the statement is done each time that the stage is, where that is known.
    pub times: Option<u64>,
}

struct Sites<'a> {
    part: Part<'a>,
    /// Stages that have begun.
    stages: usize,
    found: Vec<Site<'a>>,
}

impl<'a> Part<'a> {
    /// The statements, in their order.
    ///
    /// # Errors
    ///
    /// A statement without a plan.
    pub fn sites(&self) -> Result<Vec<Site<'a>>, Diagnostic> {
        let mut sites = Sites { part: *self, stages: 0, found: Vec::new() };
        sites.body(&self.verified.body, None, Some(1))?;
        Ok(sites.found)
    }
}

impl<'a> Sites<'a> {
    fn body(
        &mut self,
        body: &'a [Stmt],
        stage: Option<Around>,
        times: Option<u64>,
    ) -> Result<(), Diagnostic> {
        for stmt in body {
            let plan = self.part.synthesis.plan(stmt)?;
            self.found.push(Site { stmt, plan, stage, times });
            let (mut inner, mut repeated) = (stage, times);
            match &stmt.kind {
                StmtKind::Stage { pipeline, side, .. } => {
                    inner = Some(Around { pipeline: *pipeline, side: *side, number: self.stages });
                    repeated = Some(1);
                    self.stages += 1;
                }
                StmtKind::For { lo, hi, .. } => {
                    let rounds = lo.as_int().zip(hi.as_int()).map(|(lo, hi)| (hi - lo).max(0) as u64);
                    repeated = times.zip(rounds).and_then(|(a, b)| a.checked_mul(b));
                }
                StmtKind::Tiles { .. } => repeated = None,
                _ => {}
            }
            self.body(stmt.kind.body(), inner, repeated)?;
        }
        Ok(())
    }
}
