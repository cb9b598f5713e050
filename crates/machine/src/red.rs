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
            RedOp::Add | RedOp::Max | RedOp::Min => &[
                DType::F32,
                DType::F16,
                DType::BF16,
                DType::F64,
                DType::I32,
                DType::U32,
                DType::I64,
                DType::U64,
            ],
        }
    }

    /// The result of combining two elements of a type, as bits. Of `max` and `min` a NaN that comes changes nothing, and one that is there stays.
    pub fn combine(self, dtype: DType, old: u64, new: u64) -> u64 {
        let chosen = |takes: bool| if takes { new } else { old };
        if dtype.is_float() {
            let [x, y] = [old, new].map(|bits| dtype.decode(bits));
            return match (self, dtype) {
                (RedOp::Add, DType::F32) => u64::from((x as f32 + y as f32).to_bits()),
                (RedOp::Add, _) => dtype.encode(x + y),
                _ if y.is_nan() => old,
                // Bits of floats are ordered as integers are; of those below zero, as unsigned ones, the other way round.
                (op, DType::F32) => {
                    let signed = |bits: u64| bits as u32 as i32;
                    chosen(if y.is_sign_negative() {
                        if op == RedOp::Max { new < old } else { new > old }
                    } else if op == RedOp::Max {
                        signed(new) > signed(old)
                    } else {
                        signed(new) < signed(old)
                    })
                }
                (RedOp::Max, _) => chosen(x < y),
                (RedOp::Min, _) => chosen(x > y),
            };
        }
        let [x, y] = [old, new].map(|bits| dtype.decode_integer(bits));
        match self {
            RedOp::Add => dtype.encode_integer(x + y),
            RedOp::Max => chosen(y > x),
            RedOp::Min => chosen(y < x),
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
    /// By `atom.cas` until nothing has come between. Of a largest or smallest element, which must be larger or smaller than the one there.
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
    use DType::{BF16, F16, F32, F64, I32, I64, U32, U64};
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
    for (dst, space) in [(Global, 0), (Shared, 1)] {
        let name = |names: [&'static str; 2]| names[space];
        let add_f64 = name(["red.global.add.f64", "red.shared.add.f64"]);
        rows.push(row(dst, 8, add(F64, Instruction), add_f64, all));
        let add_u64 = name(["red.global.add.u64", "red.shared.add.u64"]);
        rows.push(row(dst, 8, add(I64, Instruction), add_u64, all));
        rows.push(row(dst, 8, add(U64, Instruction), add_u64, all));
        let signed =
            [["red.global.max.s64", "red.shared.max.s64"], ["red.global.min.s64", "red.shared.min.s64"]];
        let others =
            [["red.global.max.u64", "red.shared.max.u64"], ["red.global.min.u64", "red.shared.min.u64"]];
        let cas =
            [["atom.global.cas.b16", "atom.shared.cas.b16"], ["atom.global.cas.b64", "atom.shared.cas.b64"]];
        for (k, op) in [RedOp::Max, RedOp::Min].into_iter().enumerate() {
            let by = |dtype, form| Reduction { op, dtype, form };
            rows.push(row(dst, 8, by(I64, Instruction), name(signed[k]), all));
            rows.push(row(dst, 8, by(U64, Instruction), name(others[k]), all));
            rows.push(row(dst, 8, by(F64, Loop), name(cas[1]), all));
            rows.push(row(dst, 2, by(F16, Loop), name(cas[0]), all));
            rows.push(row(dst, 2, by(BF16, Loop), name(cas[0]), all));
        }
    }
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
                for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
                    let [x, y] = [x, y].map(|x| dtype.decode(dtype.encode(f64::from(x))));
                    let [a, b] = [x, y].map(|x| dtype.encode(x));
                    assert_eq!(dtype.decode(RedOp::Max.combine(dtype, a, b)), x.max(y), "{dtype} {x} {y}");
                    assert_eq!(dtype.decode(RedOp::Min.combine(dtype, a, b)), x.min(y), "{dtype} {x} {y}");
                }
            }
            let nan = u64::from(f32::NAN.to_bits());
            assert_eq!(RedOp::Max.combine(DType::F32, x.to_bits().into(), nan), u64::from(x.to_bits()));
        }
    }
}
