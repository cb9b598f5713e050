//! Flags: one thread of the block, or of the role, changes a word of global memory or waits for it, between barriers of its threads.
//!
//! The barrier before a release makes what all threads did part of what the one thread publishes; the barrier behind an acquire hands what it has
//! learnt to all (PTX ISA 8.0, sections 8.8 and 8.9.4). Where asynchronous engines may read what other blocks wrote, a proxy fence follows.

use tilewright_machine::{
    AtomicOp, DType, Memory, MemoryOrder, ProxyFence, RedOp, ScalarOp, Scope, SyncOp, Until, atomic,
    thread_copy,
};
use tilewright_simt::{Address, Operand, Reg, Special, Value};
use tilewright_tile::{Diagnostic, Expr, Flag, Origin, SymbolId};

use crate::context::{Lower, internal};
use crate::memory::narrow;
use crate::scalar::{self, add, condition, int};

impl Lower<'_> {
    /// The word of a flag, and the condition of the one thread that touches it: where the index is outside, none does.
    fn flag(&mut self, flag: &Flag) -> (Address, Option<Value>) {
        let symbols = &self.symbols;
        let (address, inside) =
            scalar::word(self.b, self.divisibility, &|id| symbols[&id], flag.param, &flag.index);
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let alone = condition(self.b, ScalarOp::EqI32, thread, int(0));
        (address, narrow(self.b, alone, inside))
    }

    /// `signal(flag, value, combine)`.
    pub(crate) fn signal(
        &mut self,
        flag: &Flag,
        value: &Expr,
        combine: Option<RedOp>,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let op = combine.map_or(AtomicOp::Exchange, AtomicOp::Combine);
        let row = atomic(op, DType::I32, Memory::Global);
        let row = row.ok_or_else(|| internal(span, "no row changes a flag"))?;
        let value = self.expr(value);
        self.b.sync(SyncOp::Barrier);
        let (address, guard) = self.flag(flag);
        self.b.atomic(row, MemoryOrder::Release, address, vec![value], guard);
        Ok(())
    }

    /// `wait(flag >= least)`.
    pub(crate) fn await_flag(&mut self, flag: &Flag, least: &Expr) {
        let least = self.expr(least);
        let (address, guard) = self.flag(flag);
        self.guarded(guard, |lower| lower.b.await_word(address, Until::AtLeast, least));
        self.b.sync(SyncOp::Barrier);
        self.fence_behind_acquire();
    }

    /// `let symbol = ticket(flag, count)`.
    pub(crate) fn ticket(
        &mut self,
        symbol: SymbolId,
        flag: &Flag,
        count: &Expr,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (shared, register) = (Memory::Shared, Memory::Register);
        let rows = [(register, shared), (shared, register)].map(|(a, b)| thread_copy(a, b, Scope::Cta, 4));
        let ([Some(store), Some(load)], Some(row)) =
            (rows, atomic(AtomicOp::Increment, DType::U32, Memory::Global))
        else {
            return Err(internal(span, "no row counts"));
        };
        let count = self.expr(count);
        let count = self.b.scalar(ScalarOp::MaxI32, &[count, int(1)]);
        let most = add(self.b, count, int(-1));
        // It also ends what was exchanged through the word before.
        self.b.sync(SyncOp::Barrier);
        self.scratch_used = true;
        let (address, guard) = self.flag(flag);
        let array = self.b.add_array("ticket", 1);
        let number = Reg { array, index: 0 };
        let base = self.shared_base();
        let place = Address { base, offset: self.memory.scratch as i32 };
        let thread = Operand::Value(self.b.special(Special::ThreadIndex));
        let alone = condition(self.b, ScalarOp::EqI32, thread, int(0));
        let found = self.b.atomic(row, MemoryOrder::AcquireRelease, address, vec![most], guard);
        self.b.write(number, found);
        self.b.store(store, vec![number], place, alone);
        self.b.sync(SyncOp::Barrier);
        self.fence_behind_acquire();
        self.b.load(load, vec![number], place, None);
        let number = self.b.read(number);
        // Whatever the flag was when the launch began, a ticket is one of them: what follows from its range stays true.
        let number = self.b.scalar(ScalarOp::MinU32, &[number, most]);
        self.symbols.insert(symbol, number);
        Ok(())
    }

    /// Orders what other blocks wrote before what asynchronous copies of this one read.
    pub(crate) fn fence_behind_acquire(&mut self) {
        if self.role.elects || !self.pipelines.is_empty() {
            self.b.sync(SyncOp::FenceProxyAsync(ProxyFence::Global));
        }
    }
}
