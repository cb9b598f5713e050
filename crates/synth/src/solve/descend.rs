//! The depth-first search over the arrangements of matrix products.

use std::collections::HashMap;

use tilewright_tile::TensorId;
use tilewright_tile::core::StmtKind;

use super::Solver;
use super::solution::{Budget, Exhausted, Found, Registers};
use crate::constraint::Equation;
use crate::gemm::TiledMma;
use crate::tv::TvLayout;

/// What decides how a search goes on: the next product, and for each tensor the number of its layout, if that still matters.
type Frontier = (usize, Vec<u32>);

/// The layout of a tensor in a [`Frontier`] that no later statement meets, and that of one that has none yet.
const SETTLED: u32 = 0;
const OPEN: u32 = 1;

/// A search on its way.
struct Walk {
    budget: Budget,
    found: Found,
    /// The numbers of layouts in frontiers.
    numbers: HashMap<TvLayout, u32>,
    /// Frontiers beyond which there is no solution, with the clashes there.
    dead: HashMap<Frontier, usize>,
}

impl Solver<'_> {
    /// The solutions of the constraints within a budget.
    pub fn search(&self, budget: Budget) -> Found {
        let found = Found { solutions: Vec::new(), exhausted: None, clash: None, clashes: 0 };
        let budget = Budget { steps: budget.steps.saturating_add(self.steps()), ..budget };
        let mut walk = Walk { budget, found, numbers: HashMap::new(), dead: HashMap::new() };
        let mut state = Registers {
            layouts: vec![None; self.verified.tensors.len()],
            gemms: vec![None; self.statements.len()],
        };
        let started = self.pinned(&mut state);
        match started {
            Ok(()) => self.descend(state, 0, &mut walk),
            Err(clash) => {
                walk.found.clash = Some(clash);
                walk.found.clashes = 1;
            }
        }
        walk.found
    }

    /// Whether the budget is spent; a search that has found nothing goes on until it is out of steps.
    fn spent(&self, walk: &mut Walk) -> bool {
        if walk.found.solutions.len() >= walk.budget.solutions {
            walk.found.exhausted = Some(Exhausted::Solutions);
        } else if self.steps() >= walk.budget.steps
            && (!walk.found.solutions.is_empty() || walk.found.clash.is_some())
        {
            walk.found.exhausted = Some(Exhausted::Steps);
        }
        walk.found.exhausted.is_some()
    }

    /// Decides the matrix products from statement `from` on, then everything else.
    fn descend(&self, state: Registers, from: usize, walk: &mut Walk) {
        if self.spent(walk) {
            return;
        }
        let is_product = |i: &usize| matches!(self.statements[*i].0.kind, StmtKind::Gemm { .. });
        let next = (from..self.statements.len()).find(is_product);
        let frontier = self.frontier(&state, next, &mut walk.numbers);
        if let Some(clashes) = walk.dead.get(&frontier) {
            walk.found.clashes = walk.found.clashes.saturating_add(*clashes);
            return;
        }
        let (solutions, clashes) = (walk.found.solutions.len(), walk.found.clashes);
        self.branch(state, next, walk);
        if walk.found.exhausted.is_none() && walk.found.solutions.len() == solutions {
            walk.dead.insert(frontier, walk.found.clashes - clashes);
        }
    }

    /// Decides product `next` and what follows it; without one, everything else.
    fn branch(&self, mut state: Registers, next: Option<usize>, walk: &mut Walk) {
        let Some(i) = next else {
            match self.rest(&mut state) {
                Ok(()) => walk.found.solutions.push(state),
                Err(clash) => walk.found.fail(clash),
            }
            return;
        };
        let StmtKind::Gemm { c, a, b, .. } = self.statements[i].0.kind else { return };
        let fits: Vec<TiledMma> = self.fitting(&state, i);
        if fits.is_empty() {
            return walk.found.fail(self.unfitting(&state, i));
        }
        for by in self.order(fits, i, walk.budget) {
            if self.spent(walk) {
                return;
            }
            let mut branch = state.clone();
            match self.place(&mut branch, i, (c, a, b), by) {
                Ok(()) => self.descend(branch, i + 1, walk),
                Err(clash) => walk.found.fail(clash),
            }
        }
    }

    /// What decides how a search goes on from product `next`: which tensors have no layout; the layouts of those that a statement
    /// meets together with one that has none, or that a product meets that is not decided yet; and the arrangements that
    /// [`fitting`](Self::fitting) may take over. A constraint of which every tensor has a layout has been checked.
    fn frontier(
        &self,
        state: &Registers,
        next: Option<usize>,
        numbers: &mut HashMap<TvLayout, u32>,
    ) -> Frontier {
        self.step(1 + self.constraints.len() as u64 / 8);
        let known = |t: TensorId| state.layouts[t.0 as usize].as_ref().map(|l| &l.0);
        let mut key = vec![SETTLED; state.layouts.len()];
        let mut meets = |tensors: &[TensorId]| {
            for t in tensors {
                let next = numbers.len() as u32 + OPEN + 1;
                key[t.0 as usize] = known(*t).map_or(OPEN, |tv| match numbers.get(tv) {
                    Some(number) => *number,
                    None => {
                        numbers.insert(tv.clone(), next);
                        next
                    }
                });
            }
        };
        let open = |tensors: &[TensorId]| tensors.iter().any(|t| known(*t).is_none());
        for constraint in &self.constraints {
            let tensors = constraint.tensors();
            let later = matches!(constraint.equation, Equation::Gemm { .. })
                && next.is_some_and(|next| constraint.statement >= next);
            if later || open(&tensors) {
                meets(&tensors);
            }
        }
        let mut taken = Vec::new();
        let mut shared: Vec<TensorId> = Vec::new();
        for (i, (stmt, _)) in self.statements.iter().enumerate().rev() {
            match &stmt.kind {
                // The operand of a gather is in no constraint with the others.
                StmtKind::Gather { dst, src, index, .. } => {
                    let tensors = [*dst, *src, *index];
                    if open(&tensors) {
                        meets(&tensors);
                    }
                }
                StmtKind::Gemm { c, a, b, .. } if next.is_some_and(|next| i >= next) => {
                    shared.extend([*c, *a, *b]);
                }
                StmtKind::Gemm { c, a, b, .. } if [c, a, b].iter().any(|t| shared.contains(t)) => {
                    let by = state.gemms[i]
                        .and_then(|by| self.arrangements[i].all.iter().position(|own| *own == by));
                    taken.push(by.map_or(u32::MAX, |by| by as u32));
                }
                _ => {}
            }
        }
        key.extend(taken);
        (next.unwrap_or(self.statements.len()), key)
    }

    fn order(&self, mut fits: Vec<TiledMma>, i: usize, budget: Budget) -> Vec<TiledMma> {
        if budget.seed != 0 {
            let mut random = budget.seed ^ (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for last in (2..fits.len()).rev() {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                fits.swap(last, 1 + (random % last as u64) as usize);
            }
        }
        fits
    }
}
