//! Anchors: what distributes the tensors that no matrix product and no program does.

use std::collections::{BTreeSet, HashMap};

use tilewright_machine::Memory;
use tilewright_tile::TensorId;
use tilewright_tile::core::{Program, ShapeOp, Stmt, StmtKind, TileRef};

use super::solution::{Clash, Registers};
use super::{Anchor, Solver};
use crate::access::{coalesced, coalesced_by_warp, runs_along, widest_vector};
use crate::constraint::{Constraint, Equation, IndexedPart};
use crate::divisibility::Divisibility;
use crate::linear::LANES;
use crate::reason::Why;
use crate::shapes;

impl Solver<'_> {
    /// Everything but matrix products: gathers, the copies that move the most data, and what is left.
    pub(super) fn rest(&self, state: &mut Registers) -> Result<(), Clash> {
        let threads = i64::from(self.verified.threads());
        // The indices of copies without registers are held as these copy.
        for number in 0..self.constraints.len() {
            if let Equation::Indexed { tile: IndexedPart::Vectors(..), .. } =
                self.constraints[number].equation
            {
                let news = self.apply(state, number, false)?;
                self.propagate(state, news)?;
            }
        }
        for i in 0..self.statements.len() {
            self.gather(state, i)?;
        }
        loop {
            // What is repeated follows what copies of whole tiles have asked for, before its own copy asks.
            if self.next_anchor(state).is_none_or(|anchor| anchor.repeated) {
                self.repeat(state)?;
            }
            let Some(Anchor { statement, tensor, tile, vector: n, .. }) = self.next_anchor(state) else {
                break;
            };
            let (stmt, tensor) = (self.statements[*statement].0.id, *tensor);
            let along =
                self.reduced.get(&tensor).is_some_and(|axes| axes.iter().any(|axis| runs_along(tile, *axis)));
            let tv = if along { coalesced_by_warp(tile, threads, *n) } else { coalesced(tile, threads, *n) };
            let tv = tv.ok_or_else(|| self.too_large(tensor))?;
            // A transposed use names the tile in the statement's order; register tensors are never transposed themselves.
            let why = match tile.memory {
                Memory::Global => Why::Coalesced { stmt, vector: *n },
                _ => Why::RowVectors { stmt, vector: *n },
            };
            self.set(state, tensor, tv, why)?;
            self.propagate(state, vec![tensor])?;
        }
        for i in 0..self.statements.len() {
            self.scan(state, i)?;
        }
        // A role's program lists what other roles have.
        for id in self.touched.iter().copied() {
            let tensor = self.verified.tensor(id);
            if tensor.memory() == Memory::Register && state.layouts[id.0 as usize].is_none() {
                let tile = self.verified.tile(&id.into());
                let n = widest_vector(self.divisibility, &tile, threads, 16).0;
                let tv = coalesced(&tile, threads, n).ok_or_else(|| self.too_large(id))?;
                self.set(state, id, tv, Why::RowMajor)?;
                self.propagate(state, vec![id])?;
                self.repeat(state)?;
            }
        }
        Ok(())
    }

    /// Anchors a gather along the contiguous mode: its elements in neighbouring lanes, so that one shuffle finds each.
    pub(super) fn gather(&self, state: &mut Registers, i: usize) -> Result<(), Clash> {
        let StmtKind::Gather { dst, src, index, axis } = &self.statements[i].0.kind else { return Ok(()) };
        let (dst, src, index, axis) = (*dst, *src, *index, *axis as usize);
        let (from, to) = (self.verified.shape(src), self.verified.shape(dst));
        let known = |id: TensorId| state.layouts[id.0 as usize].is_some();
        let powers = from.iter().chain(&to).all(|e| (*e as u64).is_power_of_two());
        if axis + 1 != from.len() || !powers || known(dst) || known(src) || known(index) {
            return Ok(());
        }
        let along = from[axis].min(to[axis]).min(LANES);
        let threads = i64::from(self.verified.threads());
        let why = Why::GatherLanes { stmt: self.statements[i].0.id, axis, lanes: along };
        let mut ready = Vec::new();
        for (id, shape) in [(src, &from), (dst, &to), (index, &to)] {
            // In place the two are one.
            if state.layouts[id.0 as usize].is_none() {
                let Some(tv) = shapes::across(shape, axis, along, threads) else { break };
                self.set(state, id, tv, why.clone())?;
                ready.push(id);
            }
        }
        self.propagate(state, ready)
    }

    /// Gives a scan or a sort that nothing else distributes a run of values in each thread, neighbouring threads one after another.
    fn scan(&self, state: &mut Registers, i: usize) -> Result<(), Clash> {
        let (StmtKind::Scan { dst, axis, .. } | StmtKind::Sort { dst, axis, .. }) =
            &self.statements[i].0.kind
        else {
            return Ok(());
        };
        let (dst, axis) = (*dst, *axis as usize);
        if state.layouts[dst.0 as usize].is_some() {
            return Ok(());
        }
        let threads = i64::from(self.verified.threads());
        let tv = shapes::runs(&self.verified.shape(dst), axis, threads);
        let tv = tv.ok_or_else(|| self.too_large(dst))?;
        self.set(state, dst, tv, Why::ScanRuns { stmt: self.statements[i].0.id, axis })?;
        self.propagate(state, vec![dst])?;
        self.repeat(state)
    }

    /// The copy that moves the most data, global memory first, among those of register tensors without a layout.
    pub(super) fn next_anchor(&self, state: &Registers) -> Option<&Anchor> {
        self.anchors.iter().find(|anchor| state.layouts[anchor.tensor.0 as usize].is_none())
    }

    /// The copies between register tensors and other memories, those that move the most data first, global memory before all. What
    /// broadcasts repeat comes last: it follows what it meets.
    pub(super) fn anchors(
        verified: &Program,
        divisibility: &Divisibility<'_>,
        statements: &[(&Stmt, usize)],
        constraints: &[Constraint],
    ) -> Vec<Anchor> {
        let mut anchors = Vec::new();
        let repeated = repeated(verified, constraints);
        for (i, (stmt, _)) in statements.iter().enumerate() {
            let StmtKind::Copy { src, dst, .. } = &stmt.kind else { continue };
            for (register, memory) in [(src, dst), (dst, src)] {
                let tensor = register.tensor;
                if verified.tensor(tensor).memory() != Memory::Register {
                    continue;
                }
                let tile = verified.tile(memory);
                if matches!(tile.memory, Memory::Register | Memory::Tensor) {
                    continue;
                }
                let bits = tile.shape.iter().product::<i64>() * i64::from(tile.dtype.bits());
                let vector = widest_vector(divisibility, &tile, i64::from(verified.threads()), 16).0;
                let repeated = repeated[tensor.0 as usize];
                let key = (!repeated, tile.memory == Memory::Global, bits, vector, std::cmp::Reverse(i));
                anchors.push((key, Anchor { statement: i, tensor, tile, vector, repeated }));
            }
        }
        // Of equal ones the last, as a maximum takes it.
        anchors.reverse();
        anchors.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
        anchors.into_iter().map(|(_, anchor)| anchor).collect()
    }
}

/// For each tensor the modes along which it is reduced, or what casts and elementwise statements make of it. Tensors of other ranks in a group are what
/// reductions of a mode of extent 1 leave: their modes have other numbers.
pub(super) fn reduced(verified: &Program, constraints: &[Constraint]) -> HashMap<TensorId, BTreeSet<usize>> {
    let rank = |id: TensorId| verified.shape(id).len();
    let mut reduced: HashMap<TensorId, BTreeSet<usize>> = HashMap::new();
    for constraint in constraints {
        if let Equation::Reduce { src, axis, .. } = constraint.equation {
            reduced.entry(src).or_default().insert(axis as usize);
        }
    }
    loop {
        let before: usize = reduced.values().map(BTreeSet::len).sum();
        for constraint in constraints {
            let Equation::Equal(group) = &constraint.equation else { continue };
            if group.iter().any(|id| rank(*id) != rank(group[0])) {
                continue;
            }
            let axes: BTreeSet<usize> =
                group.iter().filter_map(|id| reduced.get(id)).flatten().copied().collect();
            if !axes.is_empty() {
                group.iter().for_each(|id| reduced.entry(*id).or_default().extend(&axes));
            }
        }
        if reduced.values().map(BTreeSet::len).sum::<usize>() == before {
            return reduced;
        }
    }
}

/// For each result of a join the tile in memory that it is copied to or from, itself or what casts and elementwise statements make
/// of it.
pub(super) fn joined(anchors: &[Anchor], constraints: &[Constraint]) -> HashMap<TensorId, TileRef> {
    let mut joined = HashMap::new();
    for constraint in constraints {
        let Equation::Half { whole, joins: true, .. } = constraint.equation else { continue };
        let mut alike = BTreeSet::from([whole]);
        loop {
            let before = alike.len();
            for constraint in constraints {
                if let Equation::Equal(group) = &constraint.equation
                    && group.iter().any(|id| alike.contains(id))
                {
                    alike.extend(group);
                }
            }
            if alike.len() == before {
                break;
            }
        }
        let copy = anchors.iter().find(|anchor| alike.contains(&anchor.tensor));
        joined.extend(copy.map(|anchor| (whole, anchor.tile.clone())));
    }
    joined
}

/// For each result of a cast that only copies to memory meet, the first tile of global memory among these: the order of its values is free.
pub(super) fn stored_casts(
    verified: &Program,
    statements: &[(&Stmt, usize)],
    anchors: &[Anchor],
    constraints: &[Constraint],
) -> HashMap<TensorId, TileRef> {
    let mut stored = HashMap::new();
    for (i, (stmt, _)) in statements.iter().enumerate() {
        let StmtKind::Cast { dst, src } = &stmt.kind else { continue };
        let only_copied = constraints.iter().filter(|c| c.statement != i && c.tensors().contains(dst));
        let only_copied = only_copied.into_iter().all(|c| matches!(c.equation, Equation::Memory { .. }));
        let mut others = statements.iter().filter(|(other, _)| other.id != stmt.id);
        let alone = others.all(|(other, _)| {
            !other.kind.writes().contains(dst)
                && (!other.kind.reads().contains(dst) || matches!(other.kind, StmtKind::Copy { .. }))
        });
        let dtype = |id: &TensorId| verified.tensor(*id).dtype;
        if only_copied && alone && dtype(dst) != dtype(src) {
            let copy = anchors.iter().find(|anchor| anchor.tensor == *dst && anchor.tile.global.is_some());
            stored.extend(copy.map(|anchor| (*dst, anchor.tile.clone())));
        }
    }
    stored
}

/// For each tensor, true if a broadcast repeats it, or what casts, elementwise statements and shape statements make of it.
fn repeated(verified: &Program, constraints: &[Constraint]) -> Vec<bool> {
    let mut repeated = vec![false; verified.tensors.len()];
    let is = |repeated: &[bool], id: &TensorId| repeated[id.0 as usize];
    loop {
        let mut news = Vec::new();
        for constraint in constraints {
            match &constraint.equation {
                Equation::Equal(group) if group.iter().any(|id| is(&repeated, id)) => news.extend(group),
                Equation::Shape { src, op: ShapeOp::Broadcast(_), .. } => news.push(*src),
                Equation::Shape { dst, src, .. } if is(&repeated, dst) => news.push(*src),
                _ => {}
            }
        }
        news.retain(|id| !is(&repeated, id));
        if news.is_empty() {
            return repeated;
        }
        news.iter().for_each(|id| repeated[id.0 as usize] = true);
    }
}
