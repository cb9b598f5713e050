//! Atomic operations with a value: `old = atomic_add(v, r)`.

use std::collections::HashMap;

use tilewright_machine::{
    AtomicOp, DType, Memory, MemoryOrder, RedOp, ScalarOp, Scope, SyncOp, atomic, thread_copy,
};
use tilewright_simt::{Address, ArrayId, Operand, Reg, Special, Value};
use tilewright_synth::Access;
use tilewright_tile::core::TensorRef;
use tilewright_tile::{Diagnostic, Fetch};

use crate::context::{Lower, internal};
use crate::elements;
use crate::memory::narrow;
use crate::scalar::{self, add, int};

impl Lower<'_> {
    /// Changes the elements of memory one at a time. The threads that hold an element which another changes get the result through shared
    /// memory, of `bytes`.
    pub(crate) fn fetch(
        &mut self,
        (src, dst): (&TensorRef, &TensorRef),
        fetch: Fetch,
        (access, bytes): (&Access, u32),
    ) -> Result<(), Diagnostic> {
        let to = self.verified.tile(dst);
        self.wait_for_copies(None);
        let side = self.side(dst, &to, access)?;
        let owner = self.owner(access);
        let (from, old) = (self.array(src.tensor)?, self.array(fetch.old)?);
        let compare = fetch.compare.map(|compare| self.array(compare)).transpose()?;
        let bits = to.dtype.bits();
        // Results of 16 bits have a register each until all are there.
        let count = self.count(fetch.old)?;
        let (results, carried) =
            if bits == 16 { (self.b.add_array("fetched", count), 32) } else { (old, bits) };
        // By the offset of a call, the value that has its result.
        let mut done: HashMap<i64, u32> = HashMap::new();
        for call in &access.calls {
            let index = call.values.first().copied().unwrap_or_default();
            if let Some(first) = done.get(&call.offset) {
                self.move_element(results, *first, index, carried);
                continue;
            }
            done.insert(call.offset, index);
            let (address, guard) = side.call(self, call.offset);
            let guard = narrow(self.b, guard, owner);
            let value = self.whole_element(from, index, bits);
            let mut operands = vec![value];
            if let Some(compare) = compare {
                operands.insert(0, self.whole_element(compare, index, bits));
            }
            let found = self
                .change((fetch.op, to.dtype, to.memory), address, operands, guard)
                .ok_or_else(|| internal(dst.span, "an atomic operation without an instruction"))?;
            let found = if bits == 16 { self.b.scalar(ScalarOp::ExtendB16, &[found]) } else { found };
            let words = elements::words(self.b, found, carried);
            for (reg, word) in elements::places(results, &[index], carried).into_iter().zip(words) {
                self.b.write(reg, word);
            }
        }
        if bytes > 0 {
            self.share_results(access, (results, &done, carried), owner, dst)?;
        }
        for first in (0..count).step_by(2).filter(|_| bits == 16) {
            let halves: Vec<Operand> = (first..count.min(first + 2))
                .map(|index| self.b.read(Reg { array: results, index }))
                .collect();
            let word = elements::join(self.b, &halves, bits);
            self.b.write(elements::place(old, first, bits).0, word);
        }
        Ok(())
    }

    /// One atomic operation; what was there.
    fn change(
        &mut self,
        (op, dtype, memory): (AtomicOp, DType, Memory),
        address: Address,
        operands: Vec<Operand>,
        guard: Option<Value>,
    ) -> Option<Operand> {
        let (AtomicOp::Combine(extreme @ (RedOp::Max | RedOp::Min)), true) = (op, dtype.is_float()) else {
            let row = atomic(op, dtype, memory)?;
            return Some(self.b.atomic(row, MemoryOrder::Relaxed, address, operands, guard));
        };
        // As signed integers where the one that comes is not below zero, else as unsigned ones the other way round. A NaN changes nothing: it is
        // the least, or the largest, instead.
        let (other, neutral) = match extreme {
            RedOp::Max => (RedOp::Min, f64::NEG_INFINITY),
            _ => (RedOp::Max, f64::INFINITY),
        };
        let value = *operands.first()?;
        let [is_number, select, less, at_least] = match dtype {
            DType::F64 => [ScalarOp::EqF64, ScalarOp::SelectB64, ScalarOp::LtI64, ScalarOp::GeI64],
            _ => [ScalarOp::EqF32, ScalarOp::Select, ScalarOp::LtI32, ScalarOp::GeI32],
        };
        let types = if dtype == DType::F64 { [DType::I64, DType::U64] } else { [DType::I32, DType::U32] };
        let number = self.b.scalar(is_number, &[value, value]);
        let value = self.b.scalar(select, &[value, Operand::Imm(dtype.encode(neutral)), number]);
        let below = self.b.scalar(less, &[value, int(0)]);
        let above = self.b.scalar(at_least, &[value, int(0)]);
        let [first, second] = [narrow(self.b, guard, Some(above)), narrow(self.b, guard, Some(below))];
        let signed = atomic(op, types[0], memory)?;
        let unsigned = atomic(AtomicOp::Combine(other), types[1], memory)?;
        let x = self.b.atomic(signed, MemoryOrder::Relaxed, address, vec![value], first);
        let y = self.b.atomic(unsigned, MemoryOrder::Relaxed, address, vec![value], second);
        Some(self.b.scalar(select, &[y, x, below]))
    }

    /// An element of a fragment, of 16, 32 or 64 bits.
    fn whole_element(&mut self, array: ArrayId, value: u32, bits: u32) -> Operand {
        if bits == 16 {
            let (reg, from) = elements::place(array, value, bits);
            let word = self.b.read(reg);
            let word =
                if from == 0 { word } else { self.b.scalar(ScalarOp::ShrU32, &[word, int(i64::from(from))]) };
            return self.b.scalar(ScalarOp::LowB16, &[word]);
        }
        let words: Vec<Operand> =
            elements::places(array, &[value], bits).into_iter().map(|reg| self.b.read(reg)).collect();
        elements::of_words(self.b, &words)
    }

    /// Copies a value of a fragment to another.
    fn move_element(&mut self, array: ArrayId, from: u32, to: u32, bits: u32) {
        let [from, to] = [from, to].map(|value| elements::places(array, &[value], bits));
        for (from, to) in from.into_iter().zip(to) {
            let word = self.b.read(from);
            self.b.write(to, word);
        }
    }

    /// Gives the results of the threads that have changed elements to all that hold them.
    fn share_results(
        &mut self,
        access: &Access,
        (array, results, bits): (ArrayId, &HashMap<i64, u32>, u32),
        owner: Option<Operand>,
        dst: &TensorRef,
    ) -> Result<(), Diagnostic> {
        let (shared, register) = (Memory::Shared, Memory::Register);
        let rows =
            [(register, shared), (shared, register)].map(|(a, b)| thread_copy(a, b, Scope::Cta, bits / 8));
        let [Some(store), Some(load)] = rows else {
            return Err(internal(dst.span, "no row moves an element"));
        };
        // Others may still read what they exchanged before.
        if self.scratch_used || self.loops > 0 {
            self.b.sync(SyncOp::Barrier);
        }
        self.scratch_used = true;
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let own = scalar::layout(self.b, &access.threads, thread);
        let own = scalar::scale(self.b, own, i64::from(bits / 8));
        let window = self.shared_base();
        let base = add(self.b, window, own);
        let mut places: Vec<(i64, u32)> = results.iter().map(|(offset, value)| (*offset, *value)).collect();
        places.sort_unstable();
        let bytes = (bits / 8) as i32;
        let at = |offset: i64, scratch: u32| Address { base, offset: scratch as i32 + bytes * offset as i32 };
        let guard = narrow(self.b, None, owner);
        for (offset, value) in &places {
            let regs = elements::places(array, &[*value], bits);
            self.b.store(store, regs, at(*offset, self.memory.scratch), guard);
        }
        self.b.sync(SyncOp::Barrier);
        for (offset, value) in &places {
            let regs = elements::places(array, &[*value], bits);
            self.b.load(load, regs, at(*offset, self.memory.scratch), None);
        }
        for call in &access.calls {
            let index = call.values.first().copied().unwrap_or_default();
            if let Some(first) = results.get(&call.offset).filter(|first| **first != index) {
                self.move_element(array, *first, index, bits);
            }
        }
        Ok(())
    }
}
