//! The depth-first search over the arrangements of matrix products.

use rustc_hash::FxHashMap;
use tilewright_tile::TensorId;
use tilewright_tile::core::StmtKind;

use super::Solver;
use super::solution::{Budget, Exhausted, Found, Registers};
use crate::gemm::TiledMma;
use crate::tv::TvLayout;

/// The state on which the rest of a search depends: the next product, which tensors have a layout, the layouts that later statements meet, by number,
/// and the arrangements that later products may take over.
type Frontier = (usize, Vec<u64>, Vec<(TensorId, u32)>, Vec<u32>);

/// A search on its way.
struct Walk {
    budget: Budget,
    found: Found,
    /// The numbers of layouts in frontiers.
    numbers: FxHashMap<TvLayout, u32>,
    /// Frontiers beyond which there is no solution, with the clashes there.
    dead: FxHashMap<Frontier, usize>,
}

/// The decisions of a branch that later statements may meet. It only shrinks on the way down, but for what is decided there.
#[derive(Clone, Default)]
struct Alive {
    /// Tensors with layouts.
    tensors: Vec<TensorId>,
    /// Products with arrangements.
    products: Vec<usize>,
    /// Length of the trail that has been looked at.
    seen: usize,
}

impl Solver<'_> {
    /// The solutions of the constraints within a budget.
    pub fn search(&self, budget: Budget) -> Found {
        let found = Found { solutions: Vec::new(), exhausted: None, clash: None, clashes: 0 };
        let budget = Budget { steps: budget.steps.saturating_add(self.steps()), ..budget };
        let (numbers, dead) = (FxHashMap::default(), FxHashMap::default());
        let mut walk = Walk { budget, found, numbers, dead };
        let tensors = self.verified.tensors.len();
        let mut state = Registers::open(tensors, self.statements.len());
        match self.pinned(&mut state) {
            Ok(()) => self.descend(&mut state, 0, &Alive::default(), &mut walk),
            Err(clash) => walk.found.fail(|| clash),
        }
        walk.found
    }

    /// True if the budget is spent; a search that has found nothing goes on until it is out of steps.
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

    /// Decides the matrix products from statement `from` on, then everything else, and leaves the state as it was.
    fn descend(&self, state: &mut Registers, from: usize, above: &Alive, walk: &mut Walk) {
        if self.spent(walk) {
            return;
        }
        let next = self.products.get(self.products.partition_point(|i| *i < from)).copied();
        let alive = self.alive(state, next, above);
        let frontier = self.frontier(state, next, &alive, &mut walk.numbers);
        if let Some(clashes) = walk.dead.get(&frontier) {
            walk.found.clashes = walk.found.clashes.saturating_add(*clashes);
            return;
        }
        let (solutions, clashes) = (walk.found.solutions.len(), walk.found.clashes);
        self.branch(state, next, alive, walk);
        if walk.found.exhausted.is_none() && walk.found.solutions.len() == solutions {
            walk.dead.insert(frontier, walk.found.clashes - clashes);
        }
    }

    /// Decides product `next` and what follows it; without one, everything else.
    fn branch(&self, state: &mut Registers, next: Option<usize>, mut alive: Alive, walk: &mut Walk) {
        let mark = state.mark();
        let Some(i) = next else {
            match self.rest(state) {
                Ok(()) => walk.found.solutions.push(state.solution()),
                Err(clash) => walk.found.fail(|| clash),
            }
            return state.undo(mark);
        };
        let fits: Vec<TiledMma> = self.fitting(state, i);
        if fits.is_empty() {
            return walk.found.fail(|| self.unfitting(state, i));
        }
        alive.products.push(i);
        for by in self.order(fits, i, walk.budget) {
            if self.spent(walk) {
                return;
            }
            match self.place(state, i, by) {
                Ok(()) => self.descend(state, i + 1, &alive, walk),
                Err(clash) => walk.found.fail(|| clash),
            }
            state.undo(mark);
            state.gemms[i] = None;
        }
    }

    /// The tensors that statements meet together with one that has no layout, and those that products from `next` on meet. A constraint of which
    /// every tensor has a layout has been checked.
    fn alive(&self, state: &Registers, next: Option<usize>, above: &Alive) -> Alive {
        let open = |group: &Vec<TensorId>| group.iter().any(|t| state.layouts[t.0 as usize].is_none());
        let later = |t: &TensorId| {
            next.is_some_and(|next| self.last_product[t.0 as usize].is_some_and(|last| last >= next))
        };
        let meets =
            |t: &TensorId| later(t) || self.groups[t.0 as usize].iter().any(|g| open(&self.members[*g]));
        let news = state.since(above.seen);
        let tensors = above.tensors.iter().chain(news).copied().filter(meets).collect();
        let shares = |i: &usize| match &self.statements[*i].0.kind {
            StmtKind::Gemm { c, a, b, meta, scales, .. } => {
                [c, a, b].into_iter().chain(meta).chain(scales.iter().flatten()).any(later)
            }
            _ => false,
        };
        let products = above.products.iter().copied().filter(shares).collect();
        Alive { tensors, products, seen: state.mark() }
    }

    /// The state on which a search from product `next` on depends.
    fn frontier(
        &self,
        state: &Registers,
        next: Option<usize>,
        alive: &Alive,
        numbers: &mut FxHashMap<TvLayout, u32>,
    ) -> Frontier {
        self.step(1 + self.constraints.len() as u64 / 8);
        let mut met = Vec::with_capacity(alive.tensors.len());
        for t in &alive.tensors {
            let Some((tv, _)) = &state.layouts[t.0 as usize] else { continue };
            let number = match numbers.get(tv) {
                Some(number) => *number,
                None => {
                    let number = numbers.len() as u32;
                    numbers.insert(tv.clone(), number);
                    number
                }
            };
            met.push((*t, number));
        }
        met.sort_unstable();
        let position = |i: &usize| {
            let by = state.gemms[*i]?;
            self.arrangements[*i].all.iter().position(|other| *other == by)
        };
        let taken = alive.products.iter().map(|i| position(i).map_or(u32::MAX, |at| at as u32)).collect();
        (next.unwrap_or(self.statements.len()), state.known().to_vec(), met, taken)
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
