//! The parts of a block, and their statements with the loops and stages around them: the one walk that the plan of a block rests on.

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

/// A statement of a part, and its place there.
pub struct Site<'a> {
    /// The statement.
    pub stmt: &'a Stmt,
    /// Its plan.
    pub plan: &'a StmtPlan,
    /// The number of the statement whose body it is in.
    pub parent: Option<usize>,
    /// The number behind the last statement of its body.
    pub end: usize,
    /// The numbers of the loops around it, outermost first.
    pub loops: Vec<usize>,
    /// The stages around it, outermost first.
    pub stages: Vec<Around>,
    /// The times that the statement is done each time that the innermost stage is, where that is known.
    pub times: Option<u64>,
}

struct Walk<'a> {
    part: Part<'a>,
    /// Stages that have begun.
    begun: usize,
    loops: Vec<usize>,
    stages: Vec<Around>,
    found: Vec<Site<'a>>,
}

impl<'a> Part<'a> {
    /// The statements, in the order of [`Program::visit`], which is that of their numbers.
    ///
    /// # Errors
    ///
    /// A statement without a plan.
    pub fn sites(&self) -> Result<Vec<Site<'a>>, Diagnostic> {
        let mut walk =
            Walk { part: *self, begun: 0, loops: Vec::new(), stages: Vec::new(), found: Vec::new() };
        walk.body(&self.verified.body, None, Some(1))?;
        Ok(walk.found)
    }

    /// True if it issues products with their sums in tensor memory.
    ///
    /// # Errors
    ///
    /// A statement without a plan.
    pub fn multiplies_in_tensor_memory(&self) -> Result<bool, Diagnostic> {
        Ok(self.sites()?.iter().any(|site| matches!(site.plan, StmtPlan::Sums(_))))
    }

    /// True if it issues such products for a pair of blocks.
    ///
    /// # Errors
    ///
    /// A statement without a plan.
    pub fn multiplies_in_pairs(&self) -> Result<bool, Diagnostic> {
        let sites = self.sites()?;
        Ok(sites.iter().any(|site| matches!(site.plan, StmtPlan::Sums(plan) if plan.row.blocks > 1)))
    }
}

impl<'a> Walk<'a> {
    fn body(
        &mut self,
        body: &'a [Stmt],
        parent: Option<usize>,
        times: Option<u64>,
    ) -> Result<(), Diagnostic> {
        for stmt in body {
            let (number, plan) = (self.found.len(), self.part.synthesis.plan(stmt)?);
            let (loops, stages) = (self.loops.clone(), self.stages.clone());
            let outer = (loops.len(), stages.len());
            self.found.push(Site { stmt, plan, parent, end: number + 1, loops, stages, times });
            if stmt.kind.repeats() {
                self.loops.push(number);
            }
            let mut repeated = times;
            match &stmt.kind {
                StmtKind::Stage { pipeline, side, .. } => {
                    self.stages.push(Around { pipeline: *pipeline, side: *side, number: self.begun });
                    repeated = Some(1);
                    self.begun += 1;
                }
                StmtKind::For { condition: Some(_), .. } => repeated = None,
                kind if kind.may_break() => repeated = None,
                StmtKind::For { lo, hi, .. } => {
                    let rounds = lo.as_int().zip(hi.as_int()).map(|(lo, hi)| (hi - lo).max(0) as u64);
                    repeated = times.zip(rounds).and_then(|(a, b)| a.checked_mul(b));
                }
                StmtKind::Tiles { .. } | StmtKind::If { .. } | StmtKind::IfAny { .. } => repeated = None,
                _ => {}
            }
            self.body(stmt.kind.body(), Some(number), repeated)?;
            self.loops.truncate(outer.0);
            self.stages.truncate(outer.1);
            self.found[number].end = self.found.len();
        }
        Ok(())
    }
}
