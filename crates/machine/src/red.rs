//! Reductions in memory (`red`): instructions that combine the elements of a thread with those at its address, each as one step.
//!
//! They are [`CopyRow`]s from registers to memory, of a kind of their own. Sources: PTX ISA 8.1, sections 9.7.12.4 and 9.7.12.5 (`atom`, `red`).

use std::sync::LazyLock;

use crate::arch::{Arch, Memory};
use crate::copy::{CopyKind, CopyRow, per_thread};
use crate::dtype::DType;
use crate::features::{Feature, Features};

/// An operation that combines an element with one in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum RedOp {
    /// `add`: the sum, rounded to the type; of integers modulo 2ⁿ.
    Add,
    /// `max`: the largest.
    Max,
    /// `min`: the smallest.
    Min,
}

impl RedOp {
    /// Every operation.
    pub const ALL: [RedOp; 3] = [RedOp::Add, RedOp::Max, RedOp::Min];

    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            RedOp::Add => "add",
            RedOp::Max => "max",
            RedOp::Min => "min",
        }
    }

    /// The element types that it combines, in the order of messages.
    pub fn types(self) -> &'static [DType] {
        match self {
            RedOp::Add => &[DType::F32, DType::F16, DType::BF16, DType::I32, DType::U32],
            RedOp::Max | RedOp::Min => &[DType::F32, DType::I32, DType::U32],
        }
    }

    /// The result of combining two elements of a type, as bits. Of `max` and `min` a NaN that comes changes nothing.
    pub fn combine(self, dtype: DType, old: u32, new: u32) -> u32 {
        let (signed, sign) = ((old as i32, new as i32), (new as i32) < 0);
        match (self, dtype) {
            (RedOp::Add, DType::I32 | DType::U32) => old.wrapping_add(new),
            (RedOp::Add, DType::F32) => (f32::from_bits(old) + f32::from_bits(new)).to_bits(),
            (RedOp::Add, _) => dtype.encode(dtype.decode(old) + dtype.decode(new)),
            (_, DType::F32) if f32::from_bits(new).is_nan() => old,
            // Bits of floats are ordered as integers are; of those below zero, as unsigned ones, the other way round.
            (RedOp::Max, DType::F32) if sign => old.min(new),
            (RedOp::Min, DType::F32) if sign => old.max(new),
            (RedOp::Max, DType::U32) => old.max(new),
            (RedOp::Min, DType::U32) => old.min(new),
            (RedOp::Max, _) => signed.0.max(signed.1) as u32,
            (RedOp::Min, _) => signed.0.min(signed.1) as u32,
        }
    }
}

/// The way in which a reduction is done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RedForm {
    /// By one `red`.
    Instruction,
    /// Of an `f32`: as a signed or as an unsigned integer, by its sign, since the bits of floats are ordered as integers are.
    Ordered,
    /// By `atom.cas` until nothing has come between.
    Loop,
}

/// The elements that a reduction combines, and the way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reduction {
    /// The operation.
    pub op: RedOp,
    /// The type of the elements.
    pub dtype: DType,
    /// The way.
    pub form: RedForm,
}

impl CopyRow {
    /// The reduction that the row does, if it is one.
    pub fn reduction(&self) -> Option<Reduction> {
        if let CopyKind::Reduction(reduction) = self.kind { Some(reduction) } else { None }
    }
}

fn row(dst: Memory, bytes: u32, reduction: Reduction, name: &'static str, needs: Features) -> CopyRow {
    let kind = CopyKind::Reduction(reduction);
    CopyRow { name, mnemonic: name, kind, needs, ..per_thread(Memory::Register, dst, bytes) }
}

static ROWS: LazyLock<Vec<CopyRow>> = LazyLock::new(|| {
    use DType::{BF16, F16, F32, I32, U32};
    use Memory::{Global, Shared};
    use RedForm::{Instruction, Loop, Ordered};
    let (all, vectors) = (Features::NONE, Features::from(Feature::VectorReduction));
    let add = |dtype, form| Reduction { op: RedOp::Add, dtype, form };
    let mut rows = vec![
        row(Global, 16, add(F32, Instruction), "red.global.add.v4.f32", vectors),
        row(Global, 8, add(F32, Instruction), "red.global.add.v2.f32", vectors),
        row(Global, 4, add(F32, Instruction), "red.global.add.f32", all),
        row(Shared, 4, add(F32, Instruction), "red.shared.add.f32", all),
        row(Global, 16, add(F16, Instruction), "red.global.add.noftz.v4.f16x2", vectors),
        row(Global, 8, add(F16, Instruction), "red.global.add.noftz.v2.f16x2", vectors),
        row(Global, 4, add(F16, Instruction), "red.global.add.noftz.f16x2", all),
        row(Shared, 4, add(F16, Instruction), "red.shared.add.noftz.f16x2", all),
        row(Global, 2, add(F16, Instruction), "red.global.add.noftz.f16", all),
        row(Shared, 2, add(F16, Instruction), "red.shared.add.noftz.f16", all),
        row(Global, 16, add(BF16, Instruction), "red.global.add.noftz.v4.bf16x2", vectors),
        row(Global, 8, add(BF16, Instruction), "red.global.add.noftz.v2.bf16x2", vectors),
        row(Global, 4, add(BF16, Instruction), "red.global.add.noftz.bf16x2", vectors),
        row(Shared, 4, add(BF16, Instruction), "red.shared.add.noftz.bf16x2", vectors),
        row(Global, 4, add(BF16, Loop), "atom.global.cas.b32", all),
        row(Shared, 4, add(BF16, Loop), "atom.shared.cas.b32", all),
        row(Global, 2, add(BF16, Instruction), "red.global.add.noftz.bf16", vectors),
        row(Shared, 2, add(BF16, Instruction), "red.shared.add.noftz.bf16", vectors),
        row(Global, 2, add(BF16, Loop), "atom.global.cas.b16", all),
        row(Shared, 2, add(BF16, Loop), "atom.shared.cas.b16", all),
        row(Global, 4, add(I32, Instruction), "red.global.add.s32", all),
        row(Shared, 4, add(I32, Instruction), "red.shared.add.s32", all),
        row(Global, 4, add(U32, Instruction), "red.global.add.u32", all),
        row(Shared, 4, add(U32, Instruction), "red.shared.add.u32", all),
        row(
            Global,
            4,
            Reduction { op: RedOp::Max, dtype: U32, form: Instruction },
            "red.global.max.u32",
            all,
        ),
        row(
            Shared,
            4,
            Reduction { op: RedOp::Max, dtype: U32, form: Instruction },
            "red.shared.max.u32",
            all,
        ),
        row(
            Global,
            4,
            Reduction { op: RedOp::Min, dtype: U32, form: Instruction },
            "red.global.min.u32",
            all,
        ),
        row(
            Shared,
            4,
            Reduction { op: RedOp::Min, dtype: U32, form: Instruction },
            "red.shared.min.u32",
            all,
        ),
    ];
    for (op, [global, shared, global_f32, shared_f32]) in [
        (
            RedOp::Max,
            ["red.global.max.s32", "red.shared.max.s32", "red.global.max.f32", "red.shared.max.f32"],
        ),
        (
            RedOp::Min,
            ["red.global.min.s32", "red.shared.min.s32", "red.global.min.f32", "red.shared.min.f32"],
        ),
    ] {
        let integers = Reduction { op, dtype: I32, form: Instruction };
        let floats = Reduction { op, dtype: F32, form: Ordered };
        rows.push(row(Global, 4, integers, global, all));
        rows.push(row(Shared, 4, integers, shared, all));
        rows.push(row(Global, 4, floats, global_f32, all));
        rows.push(row(Shared, 4, floats, shared_f32, all));
    }
    rows
});

/// Every reduction; those of an operation, a type and a memory by falling width: the order in which synthesis tries them.
pub fn reduction_rows() -> &'static [CopyRow] {
    &ROWS
}

/// The rows that combine elements of a type with those in a memory, on any architecture, in the order of [`reduction_rows`].
pub fn reductions_anywhere(op: RedOp, dtype: DType, dst: Memory) -> impl Iterator<Item = &'static CopyRow> {
    let fits = move |row: &&CopyRow| {
        row.dst == dst && row.reduction().is_some_and(|by| (by.op, by.dtype) == (op, dtype))
    };
    reduction_rows().iter().filter(fits)
}

/// The same on `arch`.
pub fn reductions(
    op: RedOp,
    dtype: DType,
    dst: Memory,
    arch: Arch,
) -> impl Iterator<Item = &'static CopyRow> {
    reductions_anywhere(op, dtype, dst).filter(move |row| arch.has(row.needs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_of_an_operation_has_rows_of_one_element_on_every_architecture() {
        for op in RedOp::ALL {
            for dtype in op.types() {
                for memory in [Memory::Global, Memory::Shared] {
                    let single = |row: &CopyRow| row.bytes * 8 == dtype.bits();
                    assert!(reductions(op, *dtype, memory, Arch::SM_80).any(single), "{op:?} {dtype}");
                }
            }
        }
    }

    #[test]
    fn largest_and_smallest_floats_are_those_of_their_order() {
        let numbers = [f32::NEG_INFINITY, -2.5, -1.0, -1e-40, 0.0, 1e-40, 1.0, 3.0, f32::INFINITY];
        for x in numbers {
            for y in numbers {
                let [a, b] = [x, y].map(f32::to_bits);
                assert_eq!(f32::from_bits(RedOp::Max.combine(DType::F32, a, b)), x.max(y));
                assert_eq!(f32::from_bits(RedOp::Min.combine(DType::F32, a, b)), x.min(y));
            }
            let nan = f32::NAN.to_bits();
            assert_eq!(RedOp::Max.combine(DType::F32, x.to_bits(), nan), x.to_bits());
        }
    }
}
