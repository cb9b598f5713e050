//! Stores, and reductions in memory: one instruction, two that exclude each other, or a loop around `atom.cas`.

use tilewright_machine::{CopyRow, DType, Memory, RedForm, RedOp, RegType};
use tilewright_simt::{Address, Reg, Value};

use super::Body;
use crate::operand::{reg, vector};

impl Body<'_> {
    /// Emits a store, or a reduction.
    pub(super) fn store(&mut self, row: &CopyRow, src: &[Reg], address: &Address, guard: Option<Value>) {
        let place = self.address(address, row.dst);
        match row.reduction().map(|by| (by.form, by.op)) {
            Some((RedForm::Loop, RedOp::Add)) => self.exchange_loop(row, src, &place, guard),
            Some((RedForm::Loop, op)) => self.extreme_loop(row, op, src, &place, guard),
            Some((RedForm::Instruction, _)) if row.reduction().is_some_and(|by| by.dtype.bits() == 64) => {
                let whole = self.whole(src);
                let guard = self.guard(guard);
                self.line(format!("{guard}{} {place}, {whole}", row.mnemonic));
            }
            Some((RedForm::Ordered, op)) => self.ordered(row, op, src, &place, guard),
            Some((RedForm::Instruction, _)) if row.bytes == 2 => {
                let half = self.half(src[0]);
                let guard = self.guard(guard);
                self.line(format!("{guard}{} {place}, {half}", row.mnemonic));
            }
            Some((RedForm::Instruction, _)) | None => {
                let guard = self.guard(guard);
                self.line(format!("{guard}{} {place}, {}", row.mnemonic, vector(src, false)));
            }
        }
    }

    /// A register of 16 bits with the low half of a fragment's.
    fn half(&mut self, src: Reg) -> String {
        let half = self.counts.fresh(RegType::B16);
        self.line(format!("cvt.u16.u32 {half}, {}", reg(src)));
        half
    }

    /// A register of 64 bits with two of a fragment.
    fn whole(&mut self, src: &[Reg]) -> String {
        let whole = self.counts.fresh(RegType::B64);
        self.line(format!("mov.b64 {whole}, {}", vector(src, true)));
        whole
    }

    /// The largest or smallest element of a type without an instruction: exchanged until nothing has come between, or what is there is as large,
    /// or as small. A NaN changes nothing, and one that is there stays.
    fn extreme_loop(&mut self, row: &CopyRow, op: RedOp, src: &[Reg], place: &str, guard: Option<Value>) {
        let dtype = row.reduction().map_or(DType::F64, |by| by.dtype);
        let number = self.label_number();
        let (again, end) = (format!("$L{number}_exchange"), format!("$L{number}_end"));
        if let Some(guard) = guard {
            let guard = self.name(guard);
            self.line(format!("@!{guard} bra {end}"));
        }
        let (ty, width) = if row.bytes == 8 { (RegType::B64, "b64") } else { (RegType::B16, "b16") };
        let term = if row.bytes == 8 { self.whole(src) } else { self.half(src[0]) };
        let [old, found] = [(); 2].map(|()| self.counts.fresh(ty));
        let [takes, came] = [(); 2].map(|()| self.counts.fresh(RegType::Pred));
        let (space, scope) = (space(row.dst), if row.dst == Memory::Shared { "cta" } else { "gpu" });
        let came_with = self.number(dtype, &term);
        self.line(format!("ld.relaxed.{scope}.{space}.{width} {old}, {place}"));
        self.label(&again);
        let there = self.number(dtype, &old);
        let compare = if op == RedOp::Max { "setp.lt" } else { "setp.gt" };
        let compared = if row.bytes == 8 { "f64" } else { "f32" };
        self.line(format!("{compare}.{compared} {takes}, {there}, {came_with}"));
        self.line(format!("@!{takes} bra {end}"));
        self.line(format!("{} {found}, {place}, {old}, {term}", row.mnemonic));
        self.line(format!("setp.ne.{width} {came}, {found}, {old}"));
        self.line(format!("mov.{width} {old}, {found}"));
        self.line(format!("@{came} bra {again}"));
        self.label(&end);
    }

    /// A register with an element as an `f32`, or as an `f64` that it is.
    fn number(&mut self, dtype: DType, element: &str) -> String {
        if dtype == DType::F64 {
            return element.to_string();
        }
        let wide = self.counts.fresh(RegType::B32);
        if dtype == DType::F16 {
            self.line(format!("cvt.f32.f16 {wide}, {element}"));
        } else {
            // The upper half of an `f32`.
            let zero = self.counts.fresh(RegType::B16);
            self.line(format!("mov.b16 {zero}, 0"));
            self.line(format!("mov.b32 {wide}, {{{zero}, {element}}}"));
        }
        wide
    }

    /// The largest or smallest `f32`: as signed integers where the one that comes is not below zero, else as unsigned ones the other way
    /// round. A NaN changes nothing.
    fn ordered(&mut self, row: &CopyRow, op: RedOp, src: &[Reg], place: &str, guard: Option<Value>) {
        let value = reg(src[0]);
        let [number, above, below] = [(); 3].map(|()| self.counts.fresh(RegType::Pred));
        self.line(format!("setp.num.f32 {number}, {value}, {value}"));
        if let Some(guard) = guard {
            let guard = self.name(guard);
            self.line(format!("and.pred {number}, {number}, {guard}"));
        }
        self.line(format!("setp.ge.and.s32 {above}, {value}, 0, {number}"));
        self.line(format!("setp.lt.and.s32 {below}, {value}, 0, {number}"));
        let space = space(row.dst);
        let (signed, unsigned) = if op == RedOp::Max { ("max", "min") } else { ("min", "max") };
        self.line(format!("@{above} red.{space}.{signed}.s32 {place}, {value}"));
        self.line(format!("@{below} red.{space}.{unsigned}.u32 {place}, {value}"));
    }

    /// A sum of `bf16`, one or two: computed and exchanged until nothing has come between.
    fn exchange_loop(&mut self, row: &CopyRow, src: &[Reg], place: &str, guard: Option<Value>) {
        let number = self.label_number();
        let (again, end) = (format!("$L{number}_exchange"), format!("$L{number}_end"));
        if let Some(guard) = guard {
            let guard = self.name(guard);
            self.line(format!("@!{guard} bra {end}"));
        }
        let (ty, width, one, sum) = match row.bytes {
            2 => (RegType::B16, "b16", "0x3f80", "fma.rn.bf16"),
            _ => (RegType::B32, "b32", "0x3f803f80", "fma.rn.bf16x2"),
        };
        let term = if row.bytes == 2 { self.half(src[0]) } else { reg(src[0]) };
        let [factor, old, new, found] = [(); 4].map(|()| self.counts.fresh(ty));
        let came = self.counts.fresh(RegType::Pred);
        let (space, scope) = (space(row.dst), if row.dst == Memory::Shared { "cta" } else { "gpu" });
        self.line(format!("mov.{width} {factor}, {one}"));
        self.line(format!("ld.relaxed.{scope}.{space}.{width} {old}, {place}"));
        self.label(&again);
        self.line(format!("{sum} {new}, {old}, {factor}, {term}"));
        self.line(format!("{} {found}, {place}, {old}, {new}", row.mnemonic));
        self.line(format!("setp.ne.{width} {came}, {found}, {old}"));
        self.line(format!("mov.{width} {old}, {found}"));
        self.line(format!("@{came} bra {again}"));
        if guard.is_some() {
            self.label(&end);
        }
    }
}

fn space(memory: Memory) -> &'static str {
    if memory == Memory::Shared { "shared" } else { "global" }
}
