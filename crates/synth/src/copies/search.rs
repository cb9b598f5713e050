//! The search over the ways to do all copies of a shared tensor.

use std::cell::Cell;
use std::rc::Rc;

use tilewright_layout::{SwizzledLayout, max_alignment};
use tilewright_machine::Wavefronts;

use super::{Candidate, Site};
use crate::shared::{Constraint, SharedUse, UnifyError, choose_swizzle, count};

/// A choice for every site.
pub(super) struct Leaf {
    pub(super) cost: u64,
    pub(super) chosen: Vec<usize>,
    pub(super) layout: SwizzledLayout,
    pub(super) constraint: Constraint,
}

pub(super) struct Search<'a> {
    pub(super) sites: &'a [Site],
    pub(super) bits: u32,
    pub(super) pinned: Option<&'a SwizzledLayout>,
    /// The distance between stages, if there are some.
    pub(super) stage: Option<i64>,
    /// Leaves that are kept, at most.
    pub(super) limit: usize,
    /// The leaves found, the cheapest first.
    pub(super) best: Vec<Leaf>,
    pub(super) clashes: Vec<(usize, usize, UnifyError)>,
    pub(super) budget: u32,
    /// Steps taken so far by the search over the whole program, and how many it may take.
    pub(super) steps: &'a Cell<u64>,
    pub(super) most_steps: u64,
}

/// Leaves those ways with vectors of other values that a given layout has where it lacks the run of the values in order, or that agree with
/// another copy which that run contradicts. Others cannot save a cycle.
pub(super) fn leave_useful(sites: &mut [Site], pinned: Option<&SwizzledLayout>) {
    let useful = |s: usize, candidate: &Candidate| {
        let mut alike =
            sites[s].candidates.iter().filter(|c| !c.reordered && c.row.name == candidate.row.name);
        let suits = |c: &Candidate| pinned.is_some_and(|pinned| holds(pinned, &c.constraint, c.vector));
        let agrees = |c: &Candidate, other: &Candidate| c.constraint.unify(&other.constraint).is_ok();
        let others = sites.iter().enumerate().filter(|(o, _)| *o != s);
        let others = others.flat_map(|(_, site)| site.candidates.iter().filter(|other| !other.reordered));
        alike.all(|c| match pinned {
            Some(_) => suits(candidate) && !suits(c),
            None => others.clone().any(|other| agrees(candidate, other) && !agrees(c, other)),
        })
    };
    let kept = |(s, site): (usize, &Site)| {
        let reordered = site.candidates.iter().any(|c| c.reordered);
        reordered.then(|| {
            let kept = site.candidates.iter().filter(|c| !c.reordered || useful(s, c));
            Rc::new(kept.cloned().collect::<Vec<_>>())
        })
    };
    let kept: Vec<_> = sites.iter().enumerate().map(kept).collect();
    for (site, kept) in sites.iter_mut().zip(kept) {
        site.candidates = kept.unwrap_or_else(|| site.candidates.clone());
    }
}

/// Steps that a candidate for a copy counts for where it is unified with what others ask.
const UNIFICATION: u64 = 5;
/// Steps that a call counts for where the swizzle of a layout is chosen.
const SWIZZLES: u64 = 20;

impl Search<'_> {
    pub(super) fn descend(&mut self, chosen: &mut Vec<usize>, constraint: Constraint, cost: u64) {
        let s = chosen.len();
        let spent = self.steps.get() >= self.most_steps && !self.best.is_empty();
        if self.budget == 0 || spent {
            return;
        }
        self.budget -= 1;
        self.step(UNIFICATION * self.sites.get(s).map_or(1, |site| site.candidates.len() as u64));
        let remaining: u64 = self.sites[s..]
            .iter()
            .map(|site| site.weight * site.candidates.iter().map(|c| c.cycles).min().unwrap_or(0))
            .sum();
        if self.best.len() == self.limit && self.best.last().is_some_and(|b| cost + remaining >= b.cost) {
            return;
        }
        if s == self.sites.len() {
            self.leaf(chosen, constraint, cost);
            return;
        }
        let sites = self.sites;
        for (c, candidate) in sites[s].candidates.iter().enumerate() {
            match constraint.unify(&candidate.constraint) {
                Ok(unified) => {
                    chosen.push(c);
                    self.descend(chosen, unified, cost + sites[s].weight * candidate.cycles);
                    chosen.pop();
                }
                Err(error) => {
                    let other = (0..s).rev().find(|o| {
                        let theirs = &sites[*o].candidates[chosen[*o]].constraint;
                        theirs.unify(&candidate.constraint).is_err()
                    });
                    self.clashes.push((other.unwrap_or(0), s, error));
                }
            }
        }
    }

    fn step(&self, steps: u64) {
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    fn leaf(&mut self, chosen: &[usize], constraint: Constraint, cost: u64) {
        let vector = self.sites.iter().zip(chosen).map(|(s, c)| s.candidates[*c].vector).max().unwrap_or(1);
        let uses: Vec<SharedUse<'_>> = self
            .sites
            .iter()
            .zip(chosen)
            .map(|(site, c)| SharedUse {
                row: site.candidates[*c].row,
                access: &site.candidates[*c].access,
                own: &site.own,
                weight: site.weight,
            })
            .collect();
        self.step(uses.iter().map(|u| SWIZZLES * u.access.calls.len() as u64).sum());
        let (layout, wavefronts, ideal) = match self.pinned {
            Some(pinned) => {
                if !holds(pinned, &constraint, vector) {
                    return;
                }
                let counted: Option<Vec<_>> =
                    uses.iter().map(|u| count(u, pinned, self.bits, 0..1).map(|w| (w, u.weight))).collect();
                let Some(counted) = counted else { return };
                let sum = |pick: fn(&Wavefronts) -> u32| -> u64 {
                    counted.iter().map(|(w, weight)| u64::from(pick(w)) * weight).sum()
                };
                (pinned.clone(), sum(|w| w.actual), sum(|w| w.ideal))
            }
            None => {
                let Some(memory) = constraint.materialise() else { return };
                // Beyond the last leaf that is kept, a leaf is of no use.
                let worst = self.best.last().filter(|_| self.best.len() == self.limit);
                let bound = worst.map_or(u64::MAX, |worst| worst.cost.saturating_sub(cost));
                let Some((swizzle, w, ideal)) =
                    choose_swizzle(&memory, &uses, self.bits, vector, self.stage, bound)
                else {
                    return;
                };
                (SwizzledLayout::new(swizzle, memory), w, ideal)
            }
        };
        let cost = cost + wavefronts.saturating_sub(ideal);
        let at = self.best.partition_point(|b| b.cost <= cost);
        if at < self.limit {
            self.best.insert(at, Leaf { cost, chosen: chosen.to_vec(), layout, constraint });
            self.best.truncate(self.limit);
        }
    }
}

/// True if a given layout has the runs of a constraint, aligned, with a swizzle that keeps them together.
pub(super) fn holds(layout: &SwizzledLayout, constraint: &Constraint, vector: i64) -> bool {
    let SwizzledLayout { layout, swizzle } = layout;
    let runs = constraint
        .known()
        .iter()
        .all(|k| (0..k.extent).all(|i| layout.eval(k.coordinate * i) == k.stride * i));
    let together = swizzle.is_identity() || (1i64 << swizzle.base()) >= vector;
    runs && together && max_alignment(layout) % vector == 0
}
