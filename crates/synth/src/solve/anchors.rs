//! Anchors: what distributes the tensors that no matrix product and no program does.

use tilewright_machine::Memory;
use tilewright_tile::TensorId;
use tilewright_tile::core::{Program, Stmt, StmtKind};

use super::solution::{Clash, Registers};
use super::{Anchor, Solver};
use crate::access::{coalesced, widest_vector};
use crate::divisibility::Divisibility;
use crate::linear::LANES;
use crate::reason::Why;
use crate::shapes;

impl Solver<'_> {
    /// Everything but matrix products: gathers, the copies that move the most data, and what is left.
    pub(super) fn rest(&self, state: &mut Registers) -> Result<(), Clash> {
        let threads = i64::from(self.verified.threads());
        self.propagate_all(state, Vec::new())?;
        for i in 0..self.statements.len() {
            self.gather(state, i)?;
        }
        while let Some(Anchor { statement, tensor, tile, vector: n }) = self.next_anchor(state) {
            let (stmt, tensor) = (self.statements[*statement].0.id, *tensor);
            let tv = coalesced(tile, threads, *n).ok_or_else(|| self.too_large(tensor))?;
            // A transposed use names the tile in the statement's order; register tensors are never transposed themselves.
            let why = match tile.memory {
                Memory::Global => Why::Coalesced { stmt, vector: *n },
                _ => Why::RowVectors { stmt, vector: *n },
            };
            self.set(state, tensor, tv, why)?;
            self.propagate_all(state, vec![tensor])?;
        }
        // A role's program lists what other roles have.
        for id in self.touched.iter().copied() {
            let tensor = self.verified.tensor(id);
            if tensor.memory() == Memory::Register && state.layouts[id.0 as usize].is_none() {
                let tile = self.verified.tile(&id.into());
                let n = widest_vector(self.divisibility, &tile, threads, 16).0;
                let tv = coalesced(&tile, threads, n).ok_or_else(|| self.too_large(id))?;
                self.set(state, id, tv, Why::RowMajor)?;
                self.propagate_all(state, vec![id])?;
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
        self.propagate_all(state, ready)
    }

    /// The copy that moves the most data, global memory first, among those of register tensors without a layout.
    pub(super) fn next_anchor(&self, state: &Registers) -> Option<&Anchor> {
        self.anchors.iter().find(|anchor| state.layouts[anchor.tensor.0 as usize].is_none())
    }

    /// The copies between register tensors and other memories, those that move the most data first, global memory before all.
    pub(super) fn anchors(
        verified: &Program,
        divisibility: &Divisibility<'_>,
        statements: &[(&Stmt, usize)],
    ) -> Vec<Anchor> {
        let mut anchors = Vec::new();
        for (i, (stmt, _)) in statements.iter().enumerate() {
            let StmtKind::Copy { src, dst } = &stmt.kind else { continue };
            for (register, memory) in [(src, dst), (dst, src)] {
                let tensor = register.tensor;
                if verified.tensor(tensor).memory() != Memory::Register {
                    continue;
                }
                let tile = verified.tile(memory);
                if tile.memory == Memory::Register {
                    continue;
                }
                let bits = tile.shape.iter().product::<i64>() * i64::from(tile.dtype.bits());
                let vector = widest_vector(divisibility, &tile, i64::from(verified.threads()), 16).0;
                let key = (tile.memory == Memory::Global, bits, vector, std::cmp::Reverse(i));
                anchors.push((key, Anchor { statement: i, tensor, tile, vector }));
            }
        }
        // Of equal ones the last, as a maximum takes it.
        anchors.reverse();
        anchors.sort_by_key(|(key, _)| std::cmp::Reverse(*key));
        anchors.into_iter().map(|(_, anchor)| anchor).collect()
    }
}
