//! Matrix products: the arrangements that fit, and the calls of those that are chosen.

use std::collections::BTreeSet;
use std::rc::Rc;

use tilewright_machine::{
    MmaKind, MmaRow, factor_types, mma_rows, mmas, mmas_of, product_types, scaled_types,
};
use tilewright_tile::core::StmtKind;
use tilewright_tile::{Code, Diagnostic, TensorId};

use super::solution::{Clash, Registers};
use super::{Solver, TiledMmas};
use crate::constraint::Equation;
use crate::gemm::{self, GemmLayouts, TiledMma};
use crate::plan::GemmPlan;
use crate::reason::Why;
use crate::reject::MmaOperand;
use crate::tv::TvLayout;

/// Neighbours along M that a lane holds of a left factor whose rows have vectors, at most: 16 bytes of elements of 16 bits.
const LONGEST_M: i64 = 8;

/// Steps that comparing an arrangement with known layouts counts for.
const COMPARISON: u64 = 20;

impl Solver<'_> {
    /// The arrangements of product `i`; none for other statements.
    pub(super) fn arrangements(&self, i: usize) -> Result<Option<Rc<TiledMmas>>, Diagnostic> {
        let StmtKind::Gemm { c, a, b, ref warps, .. } = self.statements[i].0.kind else { return Ok(None) };
        let dtype = |t: TensorId| self.verified.tensor(t).dtype;
        let shape = self.verified.shape(c);
        let extents = (shape[0], shape[1], self.verified.shape(b)[1]);
        let longest_m = if self.rows_have_vectors(a) { LONGEST_M } else { 1 };
        let key = (dtype(c), [a, b].map(dtype), self.kind(i), *warps, extents, longest_m);
        let known = &self.cache.arrangements;
        if let Some((_, found)) = known.borrow().iter().find(|(other, _)| *other == key) {
            return Ok(Some(found.clone()));
        }
        let number = known.borrow().len();
        let found = Rc::new(self.arrange(i, number, extents, longest_m)?);
        known.borrow_mut().push((key, found.clone()));
        Ok(Some(found))
    }

    /// The kind of product `i`.
    fn kind(&self, i: usize) -> MmaKind {
        let StmtKind::Gemm { b, meta, scales, .. } = self.statements[i].0.kind else { return MmaKind::Dense };
        let scaled = scales.and_then(|[left, _]| {
            let (k, blocks) = (self.verified.shape(b)[1], self.verified.shape(left)[1]);
            MmaKind::scaled(self.verified.tensor(left).dtype, k, blocks)
        });
        scaled.unwrap_or_else(|| MmaKind::sparse(meta.is_some()))
    }

    /// The arrangements of the fastest instruction that tiles product `i`.
    fn arrange(
        &self,
        i: usize,
        number: usize,
        (m, n, k): (i64, i64, i64),
        longest_m: i64,
    ) -> Result<TiledMmas, Diagnostic> {
        let StmtKind::Gemm { c, a, b, ref warps, .. } = self.statements[i].0.kind else {
            return Ok(TiledMmas::default());
        };
        let kind = self.kind(i);
        let (of, by) = match kind {
            MmaKind::Dense => ("", String::new()),
            MmaKind::Sparse => ("sparse ", String::new()),
            MmaKind::Scaled { scale, block } => ("block-scaled ", format!(" with {scale} of {block}")),
        };
        let span = self.statements[i].0.span;
        let program = self.verified;
        let (factors, acc) = ([a, b].map(|factor| program.tensor(factor).dtype), program.tensor(c).dtype);
        let rows: Vec<&'static MmaRow> = mmas(factors, acc, kind, self.arch).collect();
        if rows.is_empty() {
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!(
                    "{} has no matrix instruction that multiplies {of}{}{by} into {acc}",
                    self.arch,
                    factor_types(factors)
                ),
            )
            .label(match factors {
                [left, right] if left == right => {
                    format!("`{}` is {acc}, `{}` is {left}", self.name(c), self.name(a))
                }
                [left, right] => format!(
                    "`{}` is {acc}, `{}` is {left}, `{}` is {right}",
                    self.name(c),
                    self.name(a),
                    self.name(b)
                ),
            })
            .help({
                let has = |row: &&MmaRow| self.arch.has(row.needs);
                match kind {
                    MmaKind::Scaled { .. } => match scaled_types(mma_rows().iter().filter(has)) {
                        none if none.is_empty() => {
                            "it multiplies without scales: multiply the factors by them before".to_string()
                        }
                        types => format!("it multiplies {types} into f32"),
                    },
                    _ => format!("it multiplies {}", product_types(mmas_of(kind).filter(has))),
                }
            }));
        }
        let Some(row) = rows.iter().find(|r| m % r.m == 0 && n % r.n == 0 && k % r.k == 0).copied() else {
            let smallest = rows[rows.len() - 1];
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("no matrix instruction tiles a {of}product of {m}×{n}×{k}"),
            )
            .label(format!("`{}` is {m}×{n}, `{}` is {m}×{}", self.name(c), self.name(a), program.shape(a)[1]))
            .help(format!(
                "the smallest instruction for these types is {}: make M a multiple of {}, N of {} and K of {}",
                smallest.name, smallest.m, smallest.n, smallest.k
            )));
        };
        let grid = warps.map(|[m, n]| (m, n));
        let warps = i64::from(self.verified.threads()) / 32;
        let (all, layouts) = gemm::arrangements(row, (m, n, k), (warps, grid), longest_m);
        if let (true, Some((wm, wn))) = (all.is_empty(), grid) {
            return Err(Diagnostic::new(
                Code::Unsatisfiable,
                span,
                format!("a product of {m}×{n}×{k} does not divide among {wm}×{wn} warps"),
            )
            .label("given here")
            .help(format!(
                "{} computes {}×{}: make M a multiple of {} and N of {}, or leave `warps` out",
                row.name,
                row.m,
                row.n,
                row.m * wm,
                row.n * wn
            )));
        }
        Ok(TiledMmas { number, extents: (m, n, k), all, layouts })
    }

    /// True if a left factor is made of vectors along its rows that copies load, such as the scales of rows: they follow it, so the rows that a lane holds
    /// decide how wide these copies are.
    fn rows_have_vectors(&self, a: TensorId) -> bool {
        let mut vectors = Vec::new();
        self.made_of([a].into(), &mut |dst, src| {
            let columns = |id: TensorId| self.verified.shape(id).get(1).copied();
            let repeats = columns(src) == Some(1) && columns(dst).is_some_and(|n| n > 1);
            if repeats {
                vectors.push(src);
            }
            !repeats
        });
        let made = self.made_of(vectors.into_iter().collect(), &mut |_, _| true);
        self.anchors.iter().any(|anchor| anchor.repeated && made.contains(&anchor.tensor))
    }

    /// The tensors that elementwise statements and casts connect with given ones, and those that shape statements make these of, where `follow` (result,
    /// operand) says so.
    fn made_of(
        &self,
        mut found: BTreeSet<TensorId>,
        follow: &mut dyn FnMut(TensorId, TensorId) -> bool,
    ) -> BTreeSet<TensorId> {
        let mut open: Vec<TensorId> = found.iter().copied().collect();
        while let Some(next) = open.pop() {
            for number in &self.touching[next.0 as usize] {
                match &self.constraints[*number].equation {
                    Equation::Equal(group) => open.extend(group.iter().filter(|id| found.insert(**id))),
                    Equation::Shape { dst, src, .. } if *dst == next && follow(*dst, *src) => {
                        open.extend(found.insert(*src).then_some(*src));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The arrangements of product `i` that agree with the layouts that its operands have. A product that shares an operand
    /// with an earlier one of the same extents takes the same arrangement, if that fits.
    pub(super) fn fitting(&self, state: &Registers, i: usize) -> Vec<TiledMma> {
        let StmtKind::Gemm { c, a, b, meta, scales, .. } = self.statements[i].0.kind else {
            return Vec::new();
        };
        let [left, right] = gemm::beside(meta, scales);
        let layout = |id: TensorId| state.layouts[id.0 as usize].as_ref().map(|l| &l.0);
        let known = [Some(c), Some(a), Some(b), left, right].map(|id| layout(id?));
        let TiledMmas { number, all, layouts, .. } = &*self.arrangements[i];
        if known.iter().all(|tv| tv.is_none()) {
            return all.clone();
        }
        let extents = self.extents(i);
        let earlier = (0..i).rev().find_map(|j| {
            let StmtKind::Gemm { c: c2, a: a2, b: b2, .. } = self.statements[j].0.kind else { return None };
            let shares = [a2, b2, c2].iter().any(|t| [a, b, c].contains(t));
            let by = state.gemms[j]?;
            let alike = shares && self.extents(j) == extents && by.row == all.first()?.row;
            (alike && self.fits(&by, &self.arrangements[i].layouts_of(&by)?, extents, known)).then_some(by)
        });
        if let Some(by) = earlier {
            return vec![by];
        }
        let key = (*number, known.map(|tv| tv.cloned()));
        if let Some(fitting) = self.cache.fitting.borrow().get(&key) {
            return fitting.to_vec();
        }
        let both = all.iter().zip(layouts);
        let fitting: Vec<TiledMma> =
            both.filter(|(by, own)| self.fits(by, own, extents, known)).map(|(by, _)| *by).collect();
        self.cache.fitting.borrow_mut().insert(key, Rc::new(fitting.clone()));
        fitting
    }

    /// True if an arrangement with its own layouts of C, A, B and what is beside them agrees with those that are known.
    pub(super) fn fits(
        &self,
        by: &TiledMma,
        own: &GemmLayouts,
        extents: (i64, i64, i64),
        known: [Option<&TvLayout>; 5],
    ) -> bool {
        self.step(COMPARISON);
        let [left, right] = &own.beside;
        let own = [Some(&own.c), Some(&own.a), Some(&own.b), left.as_ref(), right.as_ref()];
        let each = |same: &dyn Fn(&TvLayout, &TvLayout) -> bool| {
            known.iter().zip(own).all(|pair| match pair {
                (Some(theirs), Some(tv)) => same(theirs, tv),
                _ => true,
            })
        };
        if each(&|theirs, tv| theirs.same_function(tv)) {
            return true;
        }
        // In another order of values, or over other warps, the same registers may still serve. Lanes must be where the
        // instruction wants them.
        let lanes = |tv: &TvLayout| -> Vec<i64> {
            (0..32).map(|lane| tv.thread_offset(lane) - tv.thread_offset(0)).collect()
        };
        each(&|theirs, tv| lanes(theirs) == lanes(tv)) && {
            let [c, a, b, left, right] =
                [0, 1, 2, 3, 4].map(|operand: usize| known[operand].or(own[operand]));
            let (Some(c), Some(a), Some(b)) = (c, a, b) else { return false };
            let threads = i64::from(self.verified.threads());
            gemm::calls(by, extents, [c, a, b], [left, right], threads).is_some()
        }
    }

    /// Gives the operands of product `i` that have no layout those of an arrangement.
    pub(super) fn place(&self, state: &mut Registers, i: usize, by: TiledMma) -> Result<(), Clash> {
        let (stmt, span) = (&self.statements[i].0.kind, self.statements[i].0.span);
        let StmtKind::Gemm { c, a, b, meta, scales, .. } = *stmt else { return Ok(()) };
        let layouts = self.arrangements[i].layouts_of(&by).ok_or_else(|| {
            Diagnostic::new(
                Code::Unsatisfiable,
                span,
                "the product cannot be laid out: its tile is too large",
            )
        })?;
        state.gemms[i] = Some(by);
        let mut ready = Vec::new();
        let operands =
            [(c, layouts.c, MmaOperand::C), (a, layouts.a, MmaOperand::A), (b, layouts.b, MmaOperand::B)];
        let roles = match scales {
            Some(_) => [MmaOperand::ScalesA, MmaOperand::ScalesB],
            None => [MmaOperand::Meta; 2],
        };
        let beside = gemm::beside(meta, scales).into_iter().zip(layouts.beside).zip(roles);
        let beside = beside.filter_map(|((id, tv), operand)| Some((id?, tv?, operand)));
        for (id, tv, operand) in operands.into_iter().chain(beside) {
            if state.layouts[id.0 as usize].is_none() {
                self.set(state, id, tv, Why::Operand { stmt: self.statements[i].0.id, operand, by })?;
                ready.push(id);
            }
        }
        self.propagate(state, ready)
    }

    /// The clash of a product that no arrangement fits.
    pub(super) fn unfitting(&self, state: &Registers, i: usize) -> Clash {
        let span = self.statements[i].0.span;
        let StmtKind::Gemm { c, a, b, scales, .. } = self.statements[i].0.kind else {
            return Diagnostic::new(Code::LayoutConflict, span, "not a matrix product").into();
        };
        let row = self.arrangements[i].all.first().map_or("a matrix instruction", |by| by.row.name);
        let mut error = Diagnostic::new(
            Code::LayoutConflict,
            span,
            format!(
                "the layouts of `{}`, `{}` and `{}` do not fit one arrangement of {row}",
                self.name(c),
                self.name(a),
                self.name(b)
            ),
        )
        .label("this product wants its operands arranged by its own accumulator");
        let fits_without = |t: TensorId| {
            let mut without = state.clone();
            let had = without.layouts[t.0 as usize].take().is_some();
            had && !self.fitting(&without, i).is_empty()
        };
        error = error.help(if fits_without(c) {
            format!(
                "no arrangement has this layout of `{}`: leave it open here, and give what follows an operand of its own, \
                 `x = rearrange({})`",
                self.name(c),
                self.name(c)
            )
        } else {
            format!("give it an operand of its own: `x = rearrange({})` and use `x` here", self.name(a))
        });
        for id in [c, a, b].into_iter().chain(scales.into_iter().flatten()) {
            let Some((_, why)) = &state.layouts[id.0 as usize] else { continue };
            if let Some(other) = why.statement()
                && other != self.statements[i].0.id
            {
                let fixed = format!("`{}` is fixed here: {}", self.name(id), self.words().why(why));
                error = error.related(self.span(other), fixed);
            }
        }
        // The factor, or its scales, without which the rest would fit; else the left one that has a layout.
        let operands = [a, b].into_iter().chain(scales.into_iter().flatten());
        let remedy = operands.filter(|t| state.layouts[t.0 as usize].is_some()).collect::<Vec<_>>();
        let alone = remedy.iter().copied().find(|t| fits_without(*t));
        Clash {
            diagnostic: Box::new(error),
            remedy: alone.or(remedy.first().copied()).map(|t| (self.statements[i].0.id, t)),
        }
    }

    /// The calls of every matrix product of a solution.
    ///
    /// # Errors
    ///
    /// A product whose operands do not fit its arrangement.
    pub fn calls(&self, state: &Registers) -> Result<Vec<Option<GemmPlan>>, Clash> {
        let mut plans = vec![None; self.statements.len()];
        for (i, plan) in plans.iter_mut().enumerate() {
            let (StmtKind::Gemm { c, a, b, meta, scales, .. }, Some(by)) =
                (&self.statements[i].0.kind, state.gemms[i])
            else {
                continue;
            };
            let get = |id: TensorId| state.layouts[id.0 as usize].as_ref().map(|l| &l.0);
            let threads = i64::from(self.verified.threads());
            let calls = match (get(*c), get(*a), get(*b)) {
                (Some(c), Some(a), Some(b)) => {
                    let beside = gemm::beside(*meta, *scales).map(|id| get(id?));
                    gemm::calls(&by, self.extents(i), [c, a, b], beside, threads)
                }
                _ => None,
            };
            match calls {
                Some(calls) => *plan = Some(GemmPlan { row: by.row, by, calls }),
                None => return Err(self.unfitting(state, i)),
            }
        }
        Ok(plans)
    }
}
