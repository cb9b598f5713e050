//! Propagation: a queue of ready constraints leads layouts on, until one finds two that clash.

use std::collections::VecDeque;

use tilewright_layout::{Layout, nullspace};
use tilewright_tile::core::{ShapeOp, Stmt, StmtKind, TensorKind};
use tilewright_tile::{Code, Diagnostic, TensorId};

use super::Solver;
use super::solution::{Clash, Registers};
use crate::access::{in_memory_order, packed_in_memory_order};
use crate::constraint::{Equation, IndexedPart};
use crate::reason::Why;
use crate::tv::{TvLayout, moves, moves_through};
use crate::{between, shapes};

/// The longest mode of which the extent has an odd factor, the extent, and the largest power of two that divides it.
fn odd_extent(shape: &[i64]) -> Option<(usize, i64, i64)> {
    let odd = shape.iter().enumerate().filter(|(_, extent)| !(**extent as u64).is_power_of_two());
    let (mode, extent) = odd.max_by_key(|(_, extent)| **extent)?;
    Some((mode, *extent, 1 << extent.trailing_zeros()))
}

impl Solver<'_> {
    pub(super) fn pinned(&self, state: &mut Registers) -> Result<(), Clash> {
        let mut ready = Vec::new();
        for id in self.touched.iter().copied() {
            let tensor = self.verified.tensor(id);
            let TensorKind::Register { pinned: Some(layout), .. } = &tensor.kind else { continue };
            // The verifier has checked that it has two modes, the first of the block's threads, and covers the tile.
            let tv = TvLayout::from_layout(layout.clone()).map_err(|_| self.too_large(id))?;
            self.set(state, id, tv, Why::Pinned)?;
            ready.push(id);
        }
        self.propagate(state, ready)
    }

    pub(super) fn set(
        &self,
        state: &mut Registers,
        id: TensorId,
        tv: TvLayout,
        why: Why,
    ) -> Result<(), Diagnostic> {
        let dtype = self.verified.tensor(id).dtype;
        let registers = (tv.count() as u32 * dtype.bits()).div_ceil(32);
        let limit =
            self.arch.limits().registers_of_a_thread(self.verified.threads() * self.verified.resident());
        if registers > limit {
            let tensor = self.verified.tensor(id);
            let size: i64 = self.verified.shape(id).iter().product();
            let threads = self.verified.threads();
            // Threads that hold what others hold too are of no use: more of them would not help.
            let copies = nullspace(tv.threads()).size();
            let repeated = matches!(&why, Why::Operand { by, .. } if by.replication > 1);
            let help = if copies > 1 && repeated {
                format!(
                    "the tile does not divide among the {} warps, so {copies} of them hold the same part: choose a tile \
                     whose instruction tiles divide among the warps",
                    threads / 32
                )
            } else if copies > 1 && why == Why::Pinned {
                format!(
                    "the layout that the program gives it has {copies} threads hold the same elements: let the thread modes \
                     of stride 0 walk through the tile"
                )
            } else if let (true, Some((mode, extent, power))) =
                (copies > 1, odd_extent(&self.verified.shape(id)))
            {
                format!(
                    "{copies} threads each hold the same elements: mode {mode} has {extent} = {} · {power} elements, and {threads} \
                     threads share no factor of {}; choose an extent with more factors of 2, or make the tile smaller",
                    extent / power,
                    extent / power
                )
            } else {
                "share it among more threads, make the tile smaller, or keep it in shared memory".to_string()
            };
            return Err(Diagnostic::new(
                Code::RegistersExceeded,
                tensor.span,
                format!(
                    "`{}` needs {registers} registers of each of the {threads} threads, and {} has {limit} for each",
                    tensor.name, self.arch
                ),
            )
            .label(format!("{size} elements of {dtype} over {threads} threads"))
            .help(help));
        }
        state.set(id, tv, why);
        Ok(())
    }

    /// Leads layouts on from tensors that just got theirs: solves every constraint with one unknown, and checks those with none.
    pub(super) fn propagate(&self, state: &mut Registers, news: Vec<TensorId>) -> Result<(), Clash> {
        let mut queue: VecDeque<usize> =
            news.iter().flat_map(|t| self.touching[t.0 as usize].iter().copied()).collect();
        while let Some(next) = queue.pop_front() {
            for id in self.apply(state, next, false)? {
                queue.extend(self.touching[id.0 as usize].iter().copied());
            }
        }
        Ok(())
    }

    /// Leads layouts on to the results of broadcasts that nothing else asks for, and to conditions of rows, and on from there: once every product and every copy has
    /// asked. Then what is repeated follows what it repeats, and not the other way round.
    pub(super) fn repeat(&self, state: &mut Registers) -> Result<(), Clash> {
        let mut next = 0;
        while next < self.constraints.len() {
            let follows = matches!(
                self.constraints[next].equation,
                Equation::Shape { op: ShapeOp::Broadcast(_), .. } | Equation::Rows { .. }
            );
            let news = if follows { self.apply(state, next, true)? } else { Vec::new() };
            next = if news.is_empty() { next + 1 } else { 0 };
            self.propagate(state, news)?;
        }
        Ok(())
    }

    /// Solves a constraint for what is unknown in it; returns the tensors that got a layout.
    pub(super) fn apply(
        &self,
        state: &mut Registers,
        number: usize,
        any: bool,
    ) -> Result<Vec<TensorId>, Clash> {
        self.step(1);
        let constraint = &self.constraints[number];
        let i = constraint.statement;
        let mut new = Vec::new();
        for id in constraint.tensors() {
            if state.layouts[id.0 as usize].is_none() {
                let known = |t: TensorId| state.layouts[t.0 as usize].as_ref().map(|l| &l.0);
                let Some((from, tv)) = constraint.solve(self.verified, id, &known, any) else { continue };
                // The order of a thread's values is free in a join: that of the memory into which it goes.
                let stored =
                    self.joined.get(&id).filter(|_| matches!(constraint.equation, Equation::Half { .. }));
                let tv = stored.and_then(|tile| in_memory_order(tile, &tv)).unwrap_or(tv);
                // In a cast, too, where values that share a register are to be stored together.
                let casts = matches!(&self.statements[i].0.kind, StmtKind::Cast { dst, .. } if *dst == id);
                let stored = self.stored_casts.get(&id).filter(|_| casts);
                let tv = stored.and_then(|tile| packed_in_memory_order(tile, &tv)).unwrap_or(tv);
                let stmt = self.statements[i].0.id;
                let why = match &constraint.equation {
                    Equation::Equal(_) => Why::SameAs { stmt, tensor: from },
                    Equation::Indexed { tile: IndexedPart::Vectors(_, n), .. } => {
                        Why::Coalesced { stmt, vector: *n }
                    }
                    _ => Why::DerivedFrom { stmt, tensor: from },
                };
                self.set(state, id, tv, why)?;
                new.push(id);
            }
        }
        match &constraint.equation {
            Equation::Equal(group) => self.check(state, i, group)?,
            Equation::Shape { dst, src, op: op @ ShapeOp::Broadcast(_) } if new.is_empty() => {
                self.check_repeated(state, i, (*dst, *src), op)?;
            }
            Equation::Indexed { by, map, tile } => self.check_indices(state, i, *by, (map, tile))?,
            Equation::Rows { condition, axis, of } => self.check_rows(state, i, (*condition, *axis), *of)?,
            _ => {}
        }
        self.suits(state, i)?;
        Ok(new)
    }

    /// Checks that the threads hold of a broadcast's operand what they hold of its result: else the operand, which is the smaller, is
    /// rearranged.
    fn check_repeated(
        &self,
        state: &Registers,
        i: usize,
        (dst, src): (TensorId, TensorId),
        op: &ShapeOp,
    ) -> Result<(), Clash> {
        let known = |id: TensorId| state.layouts[id.0 as usize].as_ref();
        let (Some((to, to_why)), Some((from, from_why))) = (known(dst), known(src)) else { return Ok(()) };
        let (shape, of_shape) = (self.verified.shape(dst), self.verified.shape(src));
        let map = shapes::backward(op, &of_shape, &shape).ok_or_else(|| self.too_large(dst))?;
        let threads = i64::from(self.verified.threads());
        let holds =
            self.cache.repeats([(to.clone(), shape), (from.clone(), of_shape)], |[(to, _), (from, _)]| {
                shapes::seen(to, &map).is_some_and(|seen| seen.same_function(from))
                    || moves_through(from, to, threads, &|place| map.eval(place)).is_some()
            });
        if holds {
            return Ok(());
        }
        let stmt = self.statements[i].0;
        let (message, help) = between::repeats_of_others(self.verified, (dst, to), (src, from));
        let mut error = Diagnostic::new(Code::LayoutConflict, stmt.span, message).help(help);
        for (id, why) in [(dst, to_why), (src, from_why)] {
            if let Some(other) = why.statement() {
                let fixed = format!("`{}` is fixed here: {}", self.name(id), self.words().why(why));
                error = error.related(self.span(other), fixed);
            }
        }
        Err(Clash { diagnostic: Box::new(error), remedy: Some((stmt.id, src)) })
    }

    /// Checks that what a scan or a reduction goes along is held in a way that it can go through.
    fn suits(&self, state: &Registers, i: usize) -> Result<(), Clash> {
        let stmt = self.statements[i].0;
        let (operand, axis, reduces) = match &stmt.kind {
            StmtKind::Scan { operands, axis, .. } => (operands.tensors()[0], *axis, false),
            StmtKind::Combine { srcs, axis, .. } => (srcs[0], *axis, false),
            StmtKind::Reduce { src, axis, .. } => (*src, *axis, true),
            StmtKind::Arg { src, axis, .. } | StmtKind::Sort { src, axis, .. } => (*src, *axis, false),
            _ => return Ok(()),
        };
        let Some((tv, why)) = &state.layouts[operand.0 as usize] else { return Ok(()) };
        let shape = self.verified.shape(operand);
        let Some(reason) = self.cache.refusal(tv, &shape, axis, reduces) else { return Ok(()) };
        let name = self.name(operand);
        let word = match &stmt.kind {
            StmtKind::Combine { form, .. } => form.name(),
            StmtKind::Scan { .. } => "scan",
            StmtKind::Arg { op, .. } => op.name(),
            StmtKind::Sort { .. } => "sort",
            _ => "reduction",
        };
        let message =
            format!("no {word} goes along mode {axis} of `{name}`, which is {}: {reason}", tv.layout());
        let mut error = Diagnostic::new(Code::LayoutConflict, stmt.span, message)
            .help(format!("redistribute `{name}` before it: `x = rearrange({name})`"));
        if let Some(other) = why.statement() {
            let fixed = format!("`{name}` is fixed here: {}", self.words().why(why));
            error = error.related(self.span(other), fixed);
        }
        // Once is enough: the layout that a rearrangement leads to is one that others ask for.
        let moved = |other: &&(&Stmt, usize)| matches!(other.0.kind, StmtKind::Rearrange { dst, .. } if dst == operand);
        let remedy = self.statements.iter().find(moved).is_none().then_some((stmt.id, operand));
        Err(Clash { diagnostic: Box::new(error), remedy })
    }

    /// Checks that warps can decide for the rows of a tensor, where both layouts are known.
    fn check_rows(
        &self,
        state: &Registers,
        i: usize,
        (condition, axis): (TensorId, u32),
        of: TensorId,
    ) -> Result<(), Clash> {
        let known = |id: TensorId| state.layouts[id.0 as usize].as_ref();
        let (Some((by, by_why)), Some((held, held_why))) = (known(condition), known(of)) else {
            return Ok(());
        };
        let shape = |id: TensorId| self.verified.shape(id);
        let threads = i64::from(self.verified.threads());
        let ends = [(by, shape(condition)), (held, shape(of))];
        let Some(apart) = self.cache.apart(ends, axis, threads) else { return Ok(()) };
        let stmt = self.statements[i].0;
        let (name, condition_name) = (self.name(of), self.name(condition));
        let message = format!(
            "warps cannot decide for the rows of `{name}`, which is {}, by `{condition_name}`, which is {}: {apart}",
            held.layout(),
            by.layout()
        );
        let mut error = Diagnostic::new(Code::LayoutConflict, stmt.span, message).help(format!(
            "put each row's condition together before the branch: `if any(reduce({condition_name}, max, {axis}, keep), {axis})`"
        ));
        for (id, why) in [(of, held_why), (condition, by_why)] {
            if let Some(other) = why.statement() {
                let fixed = format!("`{}` is fixed here: {}", self.name(id), self.words().why(why));
                error = error.related(self.span(other), fixed);
            }
        }
        // A condition of one element a row goes where the row is.
        let single = self.verified.shape(condition)[axis as usize] == 1;
        let moved = |other: &&(&Stmt, usize)| matches!(other.0.kind, StmtKind::Rearrange { dst, .. } if dst == condition);
        let remedy =
            (single && !self.statements.iter().any(|other| moved(&other))).then_some((stmt.id, condition));
        Err(Clash { diagnostic: Box::new(error), remedy })
    }

    /// Checks that each thread holds the indices of what it copies, where both are known.
    fn check_indices(
        &self,
        state: &Registers,
        i: usize,
        by: TensorId,
        (map, tile): (&Layout, &IndexedPart),
    ) -> Result<(), Clash> {
        let known = |id: TensorId| state.layouts[id.0 as usize].as_ref().map(|(tv, _)| tv);
        let part = match tile {
            IndexedPart::Register(register) => known(*register),
            IndexedPart::Vectors(tv, _) => Some(tv),
        };
        let (Some(held), Some(part)) = (known(by), part) else { return Ok(()) };
        let threads = i64::from(self.verified.threads());
        let needed = shapes::seen(part, map);
        if needed.as_ref().is_some_and(|needed| moves(held, needed, threads).is_some()) {
            return Ok(());
        }
        let stmt = self.statements[i].0;
        let needed = needed.map_or_else(String::new, |tv| format!(", which are {}", tv.layout()));
        let message = format!(
            "threads do not hold the indices of what they copy here{needed}; `{}` is {}",
            self.name(by),
            held.layout()
        );
        let diagnostic = Diagnostic::new(Code::LayoutConflict, stmt.span, message)
            .help(format!("redistribute it: `x = rearrange({})`, and index by `x`", self.name(by)));
        Err(Clash { diagnostic: Box::new(diagnostic), remedy: Some((stmt.id, by)) })
    }

    /// Checks that the tensors of an equality that have layouts have the same one.
    pub(super) fn check(&self, state: &Registers, i: usize, group: &[TensorId]) -> Result<(), Clash> {
        let known = |id: TensorId| state.layouts[id.0 as usize].as_ref();
        let Some(first) = group.iter().copied().find(|t| known(*t).is_some()) else { return Ok(()) };
        let Some((tv, why)) = known(first) else { return Ok(()) };
        let threads = i64::from(self.verified.threads());
        for other in group.iter().copied().filter(|t| *t != first) {
            let Some((theirs, their_why)) = known(other) else { continue };
            if theirs.same_function(tv) {
                continue;
            }
            // Registers may differ in the order of a thread's values, if data moves or is cast.
            let permuted = match &self.statements[i].0.kind {
                StmtKind::Copy { src, .. } if src.tensor == first => moves(tv, theirs, threads).is_some(),
                StmtKind::Copy { .. } => moves(theirs, tv, threads).is_some(),
                StmtKind::Cast { src, .. } if *src == first => moves(tv, theirs, threads).is_some(),
                StmtKind::Cast { .. } => moves(theirs, tv, threads).is_some(),
                _ => false,
            };
            if !permuted {
                let diagnostic = self.conflict(i, (first, tv, why), (other, theirs, their_why));
                // An operand can be rearranged before the statement, its result cannot.
                let assigned = self.statements[i].0.kind.assigned();
                let written = |t: TensorId| {
                    assigned.contains(&t)
                        || matches!(&self.statements[i].0.kind, StmtKind::Copy { dst, .. } if dst.tensor == t)
                };
                let operand = if written(other) { first } else { other };
                let remedy = (!written(operand)).then_some((self.statements[i].0.id, operand));
                return Err(Clash { diagnostic: Box::new(diagnostic), remedy });
            }
        }
        Ok(())
    }

    pub(super) fn conflict(
        &self,
        i: usize,
        (first, first_tv, first_why): (TensorId, &TvLayout, &Why),
        (second, second_tv, second_why): (TensorId, &TvLayout, &Why),
    ) -> Diagnostic {
        let (a, b) = (self.name(first), self.name(second));
        let mut error = Diagnostic::new(
            Code::LayoutConflict,
            self.statements[i].0.span,
            format!(
                "`{a}` and `{b}` must be distributed alike here, but `{a}` is {} and `{b}` is {}",
                first_tv.layout(),
                second_tv.layout()
            ),
        )
        .label("wants one layout for both")
        .help(match &self.statements[i].0.kind {
            // Its results cannot be redistributed before it.
            StmtKind::Split { lo, hi, src } if [*lo, *hi] == [first, second] => format!(
                "pin both alike, or split into new names and rearrange those: `x, y = split({})`, `{b} = rearrange(y)`",
                self.name(*src)
            ),
            _ => format!("redistribute one of them: `x = rearrange({b})` and use `x` here"),
        });
        for (name, why) in [(a, first_why), (b, second_why)] {
            if let Some(other) = why.statement() {
                let fixed = format!("`{name}` is fixed here: {}", self.words().why(why));
                error = error.related(self.span(other), fixed);
            }
        }
        error
    }
}
