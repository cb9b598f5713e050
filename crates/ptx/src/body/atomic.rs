//! Atomic operations with a value, and waits for a word of global memory.

use tilewright_machine::{AtomicRow, Memory, MemoryOrder, RegType, Until};
use tilewright_simt::{Address, Operand, Value};

use super::Body;

impl Body<'_> {
    /// Emits an `atom`; a `red` or an `st` where nothing uses the result.
    pub(super) fn atomic(
        &mut self,
        (row, order): (&AtomicRow, MemoryOrder),
        dst: Option<Value>,
        address: &Address,
        operands: &[Operand],
        guard: Option<Value>,
    ) {
        let place = self.address(address, row.memory);
        let mnemonic = row.mnemonic(order, dst.is_some());
        let operands: Vec<String> =
            operands.iter().map(|operand| self.register(*operand, row.register())).collect();
        let operands = operands.join(", ");
        let result = dst.map(|dst| self.define(dst));
        if let (Some(name), Some(_)) = (&result, guard) {
            let width = 8 * row.bytes();
            self.line(format!("mov.b{width} {name}, 0"));
        }
        let guard = self.guard(guard);
        let result = result.map_or(String::new(), |name| format!("{name}, "));
        self.line(format!("{guard}{mnemonic} {result}{place}, {operands}"));
    }

    /// Reads the word until it is what the condition says.
    pub(super) fn await_word(&mut self, address: &Address, until: Until, operand: Operand) {
        let place = self.address(address, Memory::Global);
        let operand = self.register(operand, RegType::B32);
        let (word, done, number) =
            (self.counts.fresh(RegType::B32), self.counts.fresh(RegType::Pred), self.label_number());
        self.label(&format!("$L{number}_wait"));
        self.line(format!("ld.acquire.gpu.global.b32 {word}, {place}"));
        match until {
            Until::AtLeast => self.line(format!("setp.ge.s32 {done}, {word}, {operand}")),
            Until::SignDiffers => {
                self.line(format!("xor.b32 {word}, {word}, {operand}"));
                self.line(format!("setp.lt.s32 {done}, {word}, 0"));
            }
        }
        self.line(format!("@!{done} bra $L{number}_wait"));
    }
}
