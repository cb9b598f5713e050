//! Checks that asynchronous products are waited for before their operands are touched, as far as the order of the statements shows it.
//!
//! The statements are walked in their order with the products in flight; a loop until its iterations change nothing any more. What
//! depends on numbers of a launch the interpreter checks. Parts of register tensors, and tensors that each iteration of an `unroll for` has
//! for itself, are told apart once the loops are unrolled, when the program is verified again.

use std::collections::{BTreeSet, VecDeque};

use tilewright_machine::Memory;

use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::Expr;
use crate::program::{
    PipelineId, Program, Side, Stmt, StmtKind, SymbolKind, TensorId, TensorKind, TensorRef,
};

use crate::statement::otherwise;

/// The most statements that are walked: nested loops are no reason to walk for ever.
const FUEL: usize = 20_000;
/// The iterations of a loop that are walked: more than a pipeline has stages.
const ROUNDS: i64 = 70;
/// The number of groups, and of products in none yet, that are known: the latest. Any wait covers what is older.
const KEPT: usize = 70;

/// The mistakes of a program, whose statements are legal each for itself.
pub(super) fn check(program: &Program) -> Vec<Diagnostic> {
    let defined = BTreeSet::new();
    let mut walk =
        Walk { program, fuel: FUEL, errors: Vec::new(), stages: Vec::new(), assumed: Vec::new(), defined };
    // Each role waits for its own products.
    for stmt in program.body.iter().filter(|stmt| matches!(stmt.kind, StmtKind::Role { .. })) {
        walk.block(stmt.kind.body(), &mut State::default());
    }
    walk.block(&program.body, &mut State::default());
    walk.errors
}

/// A product in flight.
#[derive(Clone, PartialEq)]
struct Product {
    /// Its accumulator, as long as statements can name it.
    c: Option<TensorId>,
    /// The tensors that it reads, as a whole.
    reads: Vec<TensorId>,
    /// The stages that it reads: of which pipeline, and how many `consume` of that ago.
    stages: Vec<(PipelineId, usize)>,
    span: Origin,
}

/// The products in flight.
#[derive(Clone, PartialEq, Default)]
struct State {
    groups: VecDeque<Vec<Product>>,
    open: Vec<Product>,
}

impl State {
    fn products(&mut self) -> impl Iterator<Item = &mut Product> {
        self.groups.iter_mut().flatten().chain(&mut self.open)
    }
}

struct Walk<'a> {
    program: &'a Program,
    fuel: usize,
    errors: Vec<Diagnostic>,
    /// The pipelines whose stages are being read.
    stages: Vec<PipelineId>,
    /// The conditions of branches that were taken, as far as they hold at the statement at hand.
    assumed: Vec<Expr>,
    /// The tensors that are defined, but for those of iterations of unrolled loops that are over.
    defined: BTreeSet<TensorId>,
}

impl Walk<'_> {
    fn block(&mut self, body: &[Stmt], state: &mut State) {
        let assumed = self.assumed.len();
        for (i, stmt) in body.iter().enumerate() {
            if self.fuel == 0 {
                return;
            }
            self.fuel -= 1;
            match &stmt.kind {
                // The `if` before it walks it.
                kind if kind.is_otherwise() => {}
                StmtKind::If { condition, body: taken, .. } => {
                    let other = otherwise(body, i).map_or(&[][..], |stmt| stmt.kind.body());
                    self.branch(condition, [taken, other], state);
                }
                _ => self.statement(stmt, state),
            }
        }
        self.assumed.truncate(assumed);
    }

    /// A branch is taken to be done, as loops are to have iterations, unless an earlier one with the opposite condition was; the other side
    /// is walked from where both begin.
    fn branch(&mut self, condition: &Expr, [taken, other]: [&[Stmt]; 2], state: &mut State) {
        let opposite = self.assumed.contains(&condition.negated());
        if condition.as_int() == Some(0) || opposite {
            self.block(other, state);
            return;
        }
        let mut before = state.clone();
        self.assumed.push(condition.clone());
        self.block(taken, state);
        if condition.as_int().is_none() {
            let assumed = std::mem::take(&mut self.assumed);
            self.block(other, &mut before);
            self.assumed = assumed;
        }
    }

    fn statement(&mut self, stmt: &Stmt, state: &mut State) {
        self.touches(stmt, state);
        self.defined.extend(stmt.kind.assigned());
        match &stmt.kind {
            // Nobody touches sums in tensor memory, nor fills the stages of their factors, before a commit behind them has arrived.
            StmtKind::GemmAsync { c, .. } if self.program.tensor(*c).memory() == Memory::Tensor => {}
            StmtKind::GemmAsync { c, a, b, meta, .. } => {
                let whole = |r: &&TensorRef| r.index.is_empty() && !self.is_part(r.tensor);
                let factors = [a, b].into_iter().filter(whole).map(|r| r.tensor);
                let reads = factors.chain(meta.filter(|meta| !self.is_part(*meta))).collect();
                let read = [a.tensor, b.tensor];
                let of =
                    |id: &&PipelineId| self.program.pipeline(**id).tensors.iter().any(|t| read.contains(t));
                let stages = self.stages.iter().filter(of).map(|id| (*id, 0)).collect();
                let c = Some(*c).filter(|c| !self.is_part(*c));
                state.open.push(Product { c, reads, stages, span: stmt.span });
                state.open.drain(..state.open.len().saturating_sub(KEPT));
            }
            StmtKind::CommitGemm => {
                state.groups.push_back(std::mem::take(&mut state.open));
                state.groups.drain(..state.groups.len().saturating_sub(KEPT));
            }
            StmtKind::WaitGemm(groups) => {
                let left = groups.as_int().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
                state.groups.drain(..state.groups.len().saturating_sub(left));
            }
            StmtKind::For { condition: Some(_), body, .. } => self.rounds(body, None, false, state),
            StmtKind::For { counter, lo, hi, body, .. } => {
                let unrolled = self.program.symbol(*counter).kind == SymbolKind::Unrolled;
                let rounds = lo.as_int().zip(hi.as_int()).and_then(|(lo, hi)| hi.checked_sub(lo));
                self.rounds(body, rounds, unrolled, state);
            }
            StmtKind::Tiles { body, .. } => self.rounds(body, None, false, state),
            StmtKind::IfAny { body, .. } => self.block(body, &mut state.clone()),
            StmtKind::Stage { pipeline, side: Side::Consume, body, .. } => {
                self.consume(*pipeline, body, state, stmt.span);
            }
            StmtKind::Stage { body, .. } | StmtKind::InTurn { body, .. } | StmtKind::Drain { body, .. } => {
                self.block(body, state);
            }
            // A role is walked on its own.
            _ => {}
        }
    }

    fn rounds(&mut self, body: &[Stmt], rounds: Option<i64>, unrolled: bool, state: &mut State) {
        for _ in 0..rounds.map_or(ROUNDS, |rounds| rounds.min(ROUNDS)) {
            let before = state.clone();
            let defined = unrolled.then(|| self.defined.clone());
            self.block(body, state);
            if let Some(defined) = defined {
                // The next iteration has its own.
                let own = &self.defined - &defined;
                self.defined = defined;
                for product in state.products() {
                    product.c = product.c.filter(|c| !own.contains(c));
                    product.reads.retain(|id| !own.contains(id));
                }
            }
            if *state == before {
                return;
            }
        }
    }

    fn consume(&mut self, pipeline: PipelineId, body: &[Stmt], state: &mut State, span: Origin) {
        let row = self.program.pipeline(pipeline);
        let name = &row.name;
        // Stages are given back in their order: the oldest that is read holds all later ones.
        let mut held = 0;
        let mut holder = Origin::Unknown;
        for product in state.products() {
            for (_, ago) in product.stages.iter_mut().filter(|(id, _)| *id == pipeline) {
                *ago += 1;
                held = held.max(*ago);
                holder = product.span;
            }
        }
        if row.stages.as_int().is_some_and(|stages| held as i64 >= stages) {
            let message = format!(
                "products in flight still read every stage of `{name}` here, so that none is given back to be filled"
            );
            self.error(
                Diagnostic::new(Code::Misplaced, span, message)
                    .related(holder, "the latest of them")
                    .help("leave fewer groups in flight with `wait_gemm` than the pipeline has stages"),
            );
        }
        self.stages.push(pipeline);
        self.block(body, state);
        self.stages.pop();
        let open = state.open.iter().find(|product| product.stages.contains(&(pipeline, 0)));
        if let Some(product) = open {
            let message = format!("a product that reads the stage is in no group when `consume {name}` ends");
            self.error(
                Diagnostic::new(Code::Misplaced, product.span, message)
                    .help(format!("write `commit_gemm()` before the end of `consume {name}`")),
            );
        }
    }

    /// A statement that reads or writes an accumulator in flight, or writes a factor in flight.
    fn touches(&mut self, stmt: &Stmt, state: &State) {
        let kind = &stmt.kind;
        let accumulates = match kind {
            StmtKind::GemmAsync { c, .. } => Some(*c),
            _ => None,
        };
        let (reads, writes) = (kind.reads(), kind.writes());
        let indexed = kind.copied().is_some_and(|(_, dst)| !dst.index.is_empty());
        for product in state.groups.iter().flatten().chain(&state.open) {
            let c = product.c;
            let touched = |c: &TensorId| accumulates != Some(*c) && (reads.contains(c) || writes.contains(c));
            // A tensor of a pipeline is another one in each stage.
            let earlier = |id: &TensorId| {
                let of = |stage: &(PipelineId, usize)| self.program.pipeline(stage.0).tensors.contains(id);
                product.stages.iter().find(|stage| of(stage)).is_some_and(|(_, ago)| *ago > 0)
            };
            let overwritten = product.reads.iter().find(|id| writes.contains(id) && !indexed && !earlier(id));
            let Some(id) = c.filter(touched).or(overwritten.copied()) else { continue };
            let message = format!(
                "`{}` belongs to the products in flight until `wait_gemm`",
                self.program.tensor(id).name
            );
            self.error(
                Diagnostic::new(Code::Misplaced, stmt.span, message)
                    .label("used here")
                    .related(product.span, "in flight from here on")
                    .help("write `wait_gemm(0)` before, or a number of later groups that may stay in flight"),
            );
            return;
        }
    }

    /// True for a part of a tensor, of which only `unroll for` tells which.
    fn is_part(&self, id: TensorId) -> bool {
        matches!(self.program.tensor(id).kind, TensorKind::Part { .. })
    }

    /// Reports a mistake once, however often it is walked over.
    fn error(&mut self, error: Diagnostic) {
        if !self.errors.iter().any(|known| known.repeats(&error)) {
            self.errors.push(error);
        }
    }
}
