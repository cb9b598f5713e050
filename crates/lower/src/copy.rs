//! Copies: the calls of the chosen instructions, with addresses, guards, and packing of elements smaller than a register.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tilewright_layout::SwizzledLayout;
use tilewright_machine::{CopyRow, DType, Memory, ScalarOp};
use tilewright_simt::{Address, ArrayId, Builder, Operand, Reg, Special, Value};
use tilewright_synth::access::held_indices;
use tilewright_synth::{Access, Call, CopyPlan, StmtPlan, copies::own_layout};
use tilewright_tile::core::{Stmt, StmtKind, TensorRef, TileRef};
use tilewright_tile::{Diagnostic, Literal, TensorId};

use crate::context::{Lower, internal};
use crate::elements;
use crate::memory::{GlobalAddressing, Offset, Place, Row, SharedAddressing, covers, narrow};
use crate::movement::moves_from;
use crate::scalar::{self, both};

/// Loads whose results wait in scratch registers before they are packed or stored on.
const BATCH: usize = 16;

/// Two neighbouring registers full of a literal; zeros if there is none.
pub(crate) fn words_of(dtype: DType, value: Option<Literal>) -> [u32; 2] {
    elements::words_of_literal(dtype, value.map_or(0.0, |value| value.value()))
}

/// The bits of a register that a load of less than one fills.
fn narrow_mask(row: &CopyRow) -> u32 {
    u32::MAX >> (32 - 8 * row.bytes.min(4))
}

/// The place in memory of one side of a copy.
pub(crate) enum Side<'a> {
    Global(GlobalAddressing<'a>),
    Shared(SharedAddressing),
    /// With a mode that a register tensor indexes.
    Indexed {
        /// For each distinct index of the thread: where it lies within the mode, and the addresses of its elements.
        sides: Vec<(Operand, Side<'a>)>,
        /// Offset of a call → its place in `sides`.
        calls: HashMap<i64, usize>,
    },
}

/// A copy to a fragment whose calls stand in the product that takes it.
pub(crate) struct Stream {
    copy: Stmt,
    row: &'static CopyRow,
    side: SharedAddressing,
    array: ArrayId,
    /// Bits of an element.
    bits: u32,
    /// The calls that are left, each with the number of the first instruction of the product that takes a value of it.
    calls: VecDeque<(u32, Call)>,
}

impl Stream {
    /// The copy.
    pub(crate) fn copy(&self) -> &Stmt {
        &self.copy
    }
}

impl Side<'_> {
    fn place(&self, lower: &mut Lower<'_>, offset: i64) -> (Place, Option<Value>) {
        match self {
            Side::Global(global) => global.call(lower.b, offset),
            Side::Shared(shared) => (shared.call(lower.b, offset), None),
            Side::Indexed { sides, calls } => {
                let (inside, side) = &sides[calls.get(&offset).copied().unwrap_or_default()];
                let (place, guard) = side.place(lower, offset);
                (place, narrow(lower.b, guard, Some(*inside)))
            }
        }
    }

    /// The address of an access to whole bytes.
    pub(crate) fn call(&self, lower: &mut Lower<'_>, offset: i64) -> (Address, Option<Value>) {
        let (place, guard) = self.place(lower, offset);
        (place.address, guard)
    }
}

impl Lower<'_> {
    pub(crate) fn side<'t>(
        &mut self,
        reference: &TensorRef,
        tile: &'t TileRef,
        access: &Access,
    ) -> Result<Side<'t>, Diagnostic> {
        let Some(indexed) = &tile.indexed else { return self.side_at(reference, tile, access, None) };
        let wrong = || internal(tile.span, "indices that threads do not hold");
        let held = self.synthesis.register(indexed.by).ok_or_else(wrong)?.clone();
        let threads = i64::from(self.verified.threads());
        let values = held_indices(tile, access, &held, threads).ok_or_else(wrong)?;
        let array = self.array(indexed.by)?;
        let extent = self.expr(&indexed.extent);
        let (mut sides, mut of, mut calls) = (Vec::new(), HashMap::new(), HashMap::new());
        for (call, value) in access.calls.iter().zip(values) {
            let next = sides.len();
            let side = *of.entry(value).or_insert(next);
            calls.insert(call.offset, side);
            if side < next {
                continue;
            }
            let index = self.b.read(Reg { array, index: value });
            let above = self.b.scalar(ScalarOp::GeI32, &[index, scalar::int(0)]);
            let below = self.b.scalar(ScalarOp::LtI32, &[index, extent]);
            let inside = both(self.b, Some(above), below);
            let row = Row {
                index,
                covers: tile.global.as_ref().is_some_and(|global| covers(global, &indexed.extent)),
            };
            sides.push((inside, self.side_at(reference, tile, access, Some(row))?));
        }
        Ok(Side::Indexed { sides, calls })
    }

    /// A side whose indexed mode, if there is one, is at this coordinate.
    fn side_at<'t>(
        &mut self,
        reference: &TensorRef,
        tile: &'t TileRef,
        access: &Access,
        row: Option<Row>,
    ) -> Result<Side<'t>, Diagnostic> {
        let bits = tile.dtype.bits();
        match (&tile.global, tile.memory) {
            (Some(global), _) => {
                let symbols = &self.symbols;
                let side =
                    GlobalAddressing::new(self.b, self.divisibility, global, (access, row), bits, &|id| {
                        symbols[&id]
                    });
                side.map(Side::Global)
                    .ok_or_else(|| internal(tile.span, "a global tile that does not compose"))
            }
            (None, Memory::Shared) => {
                let own = own_layout(self.verified, reference)
                    .ok_or_else(|| internal(tile.span, "a tile too large"))?;
                let (layout, _) = self
                    .synthesis
                    .shared(reference.tensor)
                    .ok_or_else(|| internal(tile.span, "a shared tensor without a layout"))?;
                let buffer = self.memory.offsets[reference.tensor.0 as usize];
                let at = self.offset(layout, tile, row)?;
                SharedAddressing::new(self.b, layout, &own, access, (bits, buffer), at)
                    .map(Side::Shared)
                    .ok_or_else(|| internal(tile.span, "a shared tile that does not compose"))
            }
            _ => Err(internal(tile.span, "a register tensor where memory is wanted")),
        }
    }

    /// The offset at which the modes that a reference to a shared tensor fixes put its tile.
    fn offset(
        &mut self,
        layout: &SwizzledLayout,
        tile: &TileRef,
        row: Option<Row>,
    ) -> Result<Offset, Diagnostic> {
        let mut at = Offset::default();
        if let (Some(indexed), Some(row)) = (&tile.indexed, row) {
            let mode = layout.layout.mode(indexed.mode);
            let mode = mode.map_err(|_| internal(tile.span, "a mode that is not there"))?;
            let term = scalar::layout(self.b, &mode, row.index);
            at.add(self.b, term, &mode);
        }
        for (mode, index) in &tile.fixed {
            let mode =
                layout.layout.mode(*mode).map_err(|_| internal(tile.span, "a mode that is not there"))?;
            if let Some(index) = index.as_int() {
                at.constant += mode.eval(index);
                continue;
            }
            let inside = self.divisibility.is_inside(index, mode.size());
            let index = self.coord(index, tile.span)?;
            let term = scalar::layout(self.b, &mode, index);
            at.add(self.b, term, &mode);
            if !inside {
                let above = self.b.scalar(ScalarOp::GeI32, &[index, scalar::int(0)]);
                let below = self.b.scalar(ScalarOp::LtI32, &[index, scalar::int(mode.size())]);
                at.inside = Some(both(self.b, at.inside, above));
                at.inside = Some(both(self.b, at.inside, below));
            }
        }
        Ok(at)
    }

    /// Holds for the first of the threads that touch the same elements; `None` if there is only one.
    pub(crate) fn owner(&mut self, access: &Access) -> Option<Operand> {
        if !access.broadcast {
            return None;
        }
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let mut condition = None;
        let mut done = 1;
        for (extent, stride) in access.threads.leaves() {
            if extent > 1 && stride == 0 {
                let digit = scalar::divide(self.b, thread, done);
                let digit = scalar::remainder(self.b, digit, extent);
                let first = self.b.scalar(ScalarOp::EqI32, &[digit, scalar::int(0)]);
                condition = Some(both(self.b, condition, first));
            }
            done *= extent;
        }
        condition
    }

    /// A copy, with the value of what lies outside; not `waited` for if it is a `copy.async`.
    pub(crate) fn copy(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        plan: &CopyPlan,
        outside: Option<Literal>,
        waited: bool,
    ) -> Result<(), Diagnostic> {
        let (from, to) = (self.verified.tile(src), self.verified.tile(dst));
        // A tile program's copies are synchronous: one in flight is waited for before its destination is read or written
        // again, and before global memory, where its source may lie, is written.
        for shared in [(&from, src), (&to, dst)].into_iter().filter(|(tile, _)| tile.memory == Memory::Shared)
        {
            self.wait_for_copies(Some(shared.1.tensor));
        }
        if to.memory == Memory::Global {
            self.wait_for_copies(None);
        }
        let tiles = (&from, &to);
        match plan {
            CopyPlan::Direct { row, access } => {
                let outside = words_of(from.dtype, outside);
                self.copy_direct((src, dst), tiles, (row, access), outside)?;
            }
            CopyPlan::Async { row, access } => {
                self.copy_async((src, dst), tiles, row, access)?;
                if waited {
                    self.pending_copies.insert(dst.tensor);
                }
            }
            CopyPlan::Staged { load, store, access } => {
                self.copy_staged((src, dst), tiles, (load, store), access)?;
            }
            CopyPlan::Fetch { .. } => return Err(internal(src.span, "an atomic operation without a result")),
            CopyPlan::Registers { moves } => {
                let (a, d) = (self.array(src.tensor)?, self.array(dst.tensor)?);
                self.moves(&moves_from(a, moves), d, from.dtype.bits());
            }
        }
        Ok(())
    }

    /// A copy between registers and memory.
    fn copy_direct(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        (from, to): (&TileRef, &TileRef),
        (row, access): (&'static CopyRow, &Access),
        outside: [u32; 2],
    ) -> Result<(), Diagnostic> {
        let is_load = to.memory == Memory::Register;
        let (reference, tile, tensor) = if is_load { (src, from, dst.tensor) } else { (dst, to, src.tensor) };
        let side = self.side(reference, tile, access)?;
        let array = self.array(tensor)?;
        let bits = from.dtype.bits();
        if row.is_collective() {
            for call in self.first_use.calls(tensor, &access.calls) {
                let (address, _) = side.call(self, call.offset);
                let regs = call.values.iter().map(|v| elements::place(array, *v, bits).0).collect();
                self.b.matrix(row, regs, address);
            }
        } else if is_load {
            self.load_fragment((row, outside), access, &side, (tensor, array), bits);
        } else {
            let owner = self.owner(access);
            self.store_fragment(row, access, &side, array, bits, owner);
        }
        Ok(())
    }

    /// Prepares a copy from shared memory to a fragment whose calls stand in the product that takes it.
    pub(crate) fn stream(&mut self, copy: Stmt) -> Result<Stream, Diagnostic> {
        let StmtKind::Copy { src, dst, .. } = &copy.kind else {
            return Err(internal(copy.span, "a streamed fragment without a copy"));
        };
        let StmtPlan::Copy(CopyPlan::Direct { row, access }) = self.synthesis.plan(&copy)? else {
            return Err(internal(copy.span, "a streamed fragment that no instruction loads"));
        };
        self.begin(&copy);
        self.wait_for_copies(Some(src.tensor));
        let tile = self.verified.tile(src);
        let Side::Shared(side) = self.side(src, &tile, access)? else {
            return Err(internal(copy.span, "a streamed fragment that does not come from shared memory"));
        };
        let calls = self.first_use.calls(dst.tensor, &access.calls);
        let calls = calls.into_iter().map(|call| (self.first_use.of_call(dst.tensor, call), call.clone()));
        let calls: VecDeque<(u32, Call)> = calls.collect();
        let array = self.array(dst.tensor)?;
        Ok(Stream { copy, row, side, array, bits: tile.dtype.bits(), calls })
    }

    /// Loads what the instructions of a product before number `until` take.
    pub(crate) fn load_before(&mut self, stream: &mut Stream, until: usize) {
        while stream.calls.front().is_some_and(|(first, _)| (*first as usize) < until) {
            let Some((_, call)) = stream.calls.pop_front() else { return };
            let address = stream.side.call(self.b, call.offset).address;
            if stream.row.is_collective() {
                let place = |v: &u32| elements::place(stream.array, *v, stream.bits).0;
                self.b.matrix(stream.row, call.values.iter().map(place).collect(), address);
            } else {
                let places = elements::places(stream.array, &call.values, stream.bits);
                self.b.load(stream.row, places, address, None);
            }
        }
    }

    /// A copy from global to shared memory without registers.
    fn copy_async(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        (from, to): (&TileRef, &TileRef),
        row: &'static CopyRow,
        access: &Access,
    ) -> Result<(), Diagnostic> {
        let (global, shared) = (self.side(src, from, access)?, self.side(dst, to, access)?);
        let ends = |lower: &mut Self, call: &Call| {
            let (target, _) = shared.call(lower, call.offset);
            let (source, guard) = global.call(lower, call.offset);
            (target, source, guard)
        };
        // Zero-filling is a write too, so threads that do not own an element must not issue at all: a guard cannot say that, a branch
        // can.
        if let Some(owner) = self.owner(access).and_then(scalar::value) {
            let calls: Vec<_> = access.calls.iter().map(|call| ends(self, call)).collect();
            let issue = |b: &mut Builder| {
                for (target, source, guard) in calls {
                    b.async_copy(row, target, source, guard);
                }
            };
            self.b.branch(owner, issue, |_| {});
            return Ok(());
        }
        for call in &access.calls {
            let (target, source, guard) = ends(self, call);
            self.b.async_copy(row, target, source, guard);
        }
        Ok(())
    }

    /// A copy from global to shared memory through registers of the moment.
    fn copy_staged(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        (from, to): (&TileRef, &TileRef),
        (load, store): (&'static CopyRow, &'static CopyRow),
        access: &Access,
    ) -> Result<(), Diagnostic> {
        let (global, shared) = (self.side(src, from, access)?, self.side(dst, to, access)?);
        let owner = self.owner(access);
        let width = load.registers();
        let scratch = self.b.add_array(
            format!("{}.staged", self.verified.tensor(dst.tensor).name),
            width * BATCH.min(access.calls.len()) as u32,
        );
        let regs = |slot: usize| -> Vec<Reg> {
            (0..width).map(|i| Reg { array: scratch, index: slot as u32 * width + i }).collect()
        };
        for batch in access.calls.chunks(BATCH) {
            for (slot, call) in batch.iter().enumerate() {
                let (address, guard) = global.call(self, call.offset);
                self.b.load(load, regs(slot), address, guard);
            }
            for (slot, call) in batch.iter().enumerate() {
                let (address, _) = shared.call(self, call.offset);
                let guard = narrow(self.b, None, owner);
                self.b.store(store, regs(slot), address, guard);
            }
        }
        Ok(())
    }

    fn load_fragment(
        &mut self,
        (row, outside): (&'static CopyRow, [u32; 2]),
        access: &Access,
        side: &Side<'_>,
        (tensor, array): (TensorId, ArrayId),
        bits: u32,
    ) {
        if row.bytes >= 4 {
            for call in self.first_use.calls(tensor, &access.calls) {
                let (address, guard) = side.call(self, call.offset);
                let regs = elements::places(array, &call.values, bits);
                self.b.load_or(row, regs, address, guard, outside);
            }
            return;
        }
        // Elements smaller than a register arrive one register each, and are packed a register at a time. A call
        // of a narrow instruction moves one element, several of 8 bits or fewer, or one of the elements that share a byte.
        let per_call = access.vector;
        let lone = bits * per_call < 8;
        let mut by_value: Vec<(u32, i64)> = access.calls.iter().map(|c| (c.values[0], c.offset)).collect();
        by_value.sort_unstable();
        let per_register = (tilewright_machine::per_register(bits) / per_call) as usize;
        let batch = BATCH.next_multiple_of(per_register);
        let scratch = self.b.add_array("narrow", batch.min(by_value.len()) as u32);
        for group in by_value.chunks(batch) {
            let mut begins = Vec::new();
            for (slot, (_, offset)) in group.iter().enumerate() {
                let (place, guard) = side.place(self, *offset);
                let reg = Reg { array: scratch, index: slot as u32 };
                let outside = outside.map(|word| word & narrow_mask(row));
                self.b.load_or(row, vec![reg], place.address, guard, outside);
                begins.push(place.bit.filter(|_| lone));
            }
            for (i, parts) in group.chunks(per_register).enumerate() {
                let words: Vec<Operand> = (i * per_register..i * per_register + parts.len())
                    .map(|slot| {
                        let word = self.b.read(Reg { array: scratch, index: slot as u32 });
                        match begins[slot] {
                            // The element out of the byte that holds it.
                            Some(bit) => self.b.scalar(ScalarOp::ShrU32, &[word, bit]),
                            None => word,
                        }
                    })
                    .collect();
                let word = elements::join(self.b, &words, bits * per_call);
                let (reg, _) = elements::place(array, parts[0].0, bits);
                self.b.write(reg, word);
            }
        }
    }

    fn store_fragment(
        &mut self,
        row: &'static CopyRow,
        access: &Access,
        side: &Side<'_>,
        array: ArrayId,
        bits: u32,
        owner: Option<Operand>,
    ) {
        let narrow_row = row.bytes < 4;
        let scratch = if narrow_row { Some(self.b.add_array("narrow", 1)) } else { None };
        let mut combined = BTreeSet::new();
        for call in &access.calls {
            // An element that a thread holds several times is combined once.
            if row.reduction().is_some() && !combined.insert(call.offset) {
                continue;
            }
            let (address, guard) = side.call(self, call.offset);
            let guard = narrow(self.b, guard, owner);
            let regs = match scratch {
                None => elements::places(array, &call.values, bits),
                Some(scratch) => {
                    let (reg, shift) = elements::place(array, call.values[0], bits);
                    if shift == 0 {
                        vec![reg]
                    } else {
                        let word = self.b.read(reg);
                        let moved = self.b.scalar(ScalarOp::ShrU32, &[word, scalar::int(i64::from(shift))]);
                        let temporary = Reg { array: scratch, index: 0 };
                        self.b.write(temporary, moved);
                        vec![temporary]
                    }
                }
            };
            self.b.store(row, regs, address, guard);
        }
    }
}
