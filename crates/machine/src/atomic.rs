//! Atomic operations with a value (`atom`), and waits for a word of global memory.
//!
//! Sources: PTX ISA 8.0, sections 9.7.12.4 (`atom`), 9.7.12.5 (`red`), 9.7.8.8 (`ld.acquire`) and 8 (the memory model).

use std::sync::LazyLock;

use crate::arch::Memory;
use crate::copy::{CopyKind, CopyRow, per_thread};
use crate::dtype::DType;
use crate::red::RedOp;
use crate::scalar::RegType;

/// An operation that changes an element of memory as one step and gives what was there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum AtomicOp {
    /// The element is combined with the operand.
    Combine(RedOp),
    /// The operand takes the element's place.
    Exchange,
    /// The second operand takes the element's place, if that has the bits of the first.
    CompareAndSwap,
    /// One more; 0, where the element is at least the operand. Unsigned.
    Increment,
}

impl AtomicOp {
    /// Every operation.
    pub const ALL: [AtomicOp; 6] = [
        AtomicOp::Combine(RedOp::Add),
        AtomicOp::Combine(RedOp::Max),
        AtomicOp::Combine(RedOp::Min),
        AtomicOp::Exchange,
        AtomicOp::CompareAndSwap,
        AtomicOp::Increment,
    ];

    /// The element types that the tile language's operation takes.
    pub fn types(self) -> &'static [DType] {
        match self {
            AtomicOp::Increment => &[DType::U32],
            AtomicOp::Combine(RedOp::Add) => {
                &[DType::I32, DType::U32, DType::F32, DType::I64, DType::U64, DType::F64, DType::F16]
            }
            _ => &[DType::I32, DType::U32, DType::F32, DType::I64, DType::U64, DType::F64],
        }
    }

    /// The word of the tile language; `None` for what it does not have.
    pub fn word(self) -> Option<&'static str> {
        match self {
            AtomicOp::Combine(RedOp::Add) => Some("atomic_add"),
            AtomicOp::Combine(RedOp::Max) => Some("atomic_max"),
            AtomicOp::Combine(RedOp::Min) => Some("atomic_min"),
            AtomicOp::Exchange => Some("atomic_exchange"),
            AtomicOp::CompareAndSwap => Some("atomic_cas"),
            AtomicOp::Increment => None,
        }
    }

    /// The word of PTX.
    fn mnemonic(self) -> &'static str {
        match self {
            AtomicOp::Combine(op) => op.name(),
            AtomicOp::Exchange => "exch",
            AtomicOp::CompareAndSwap => "cas",
            AtomicOp::Increment => "inc",
        }
    }

    /// The number of its operands.
    pub fn operands(self) -> usize {
        if self == AtomicOp::CompareAndSwap { 2 } else { 1 }
    }
}

/// The order that an atomic operation gives to other accesses, for all threads of the GPU (PTX ISA 8.0, section 8.8).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemoryOrder {
    /// None.
    Relaxed,
    /// Acquire: what its thread does behind it comes after what a release of the word that it reads has published.
    Acquire,
    /// Release: what its thread did before is published to those who acquire the word that it writes.
    Release,
    /// Both.
    AcquireRelease,
}

impl MemoryOrder {
    /// The word of PTX.
    pub fn spelling(self) -> &'static str {
        match self {
            MemoryOrder::Relaxed => "relaxed",
            MemoryOrder::Acquire => "acquire",
            MemoryOrder::Release => "release",
            MemoryOrder::AcquireRelease => "acq_rel",
        }
    }

    /// True if it acquires.
    pub fn acquires(self) -> bool {
        matches!(self, MemoryOrder::Acquire | MemoryOrder::AcquireRelease)
    }

    /// True if it releases.
    pub fn releases(self) -> bool {
        matches!(self, MemoryOrder::Release | MemoryOrder::AcquireRelease)
    }
}

/// An atomic instruction, of 16, 32 or 64 bits, on every architecture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtomicRow {
    /// `atom.global.add.s32`.
    pub name: String,
    /// The operation.
    pub op: AtomicOp,
    /// The type of the element; `u32` or `u64` of one that moves bits, and of sums of integers of 64 bits.
    pub dtype: DType,
    /// The memory.
    pub memory: Memory,
}

impl AtomicRow {
    /// The instruction with an order, `atom.release.gpu.global.add.s32`; without a result `red` instead of `atom`, and `st` of an exchange.
    pub fn mnemonic(&self, order: MemoryOrder, result: bool) -> String {
        let scope = if self.memory == Memory::Shared { "cta" } else { "gpu" };
        let (order, space) = (format!("{}.{scope}", order.spelling()), space(self.memory));
        let (op, ty) = (self.op.mnemonic(), suffix(self.op, self.dtype));
        match (result, self.op) {
            (false, AtomicOp::Exchange) => format!("st.{order}.{space}.{ty}"),
            (false, AtomicOp::Combine(_) | AtomicOp::Increment) => format!("red.{order}.{space}.{op}.{ty}"),
            _ => format!("atom.{order}.{space}.{op}.{ty}"),
        }
    }

    /// The register that holds an element.
    pub fn register(&self) -> RegType {
        match self.dtype.bits() {
            16 => RegType::B16,
            64 => RegType::B64,
            _ => RegType::B32,
        }
    }

    /// Bytes of an element.
    pub fn bytes(&self) -> u32 {
        self.dtype.bits() / 8
    }

    /// True if there is an instruction without a result.
    pub fn has_plain_form(&self, order: MemoryOrder) -> bool {
        self.op != AtomicOp::CompareAndSwap && !order.acquires()
    }

    /// The element behind the operation, of its bits before and of the operands'.
    pub fn apply(&self, old: u64, operands: [u64; 2]) -> u64 {
        let [first, second] = operands;
        match self.op {
            AtomicOp::Combine(op) => op.combine(self.dtype, old, first),
            AtomicOp::Exchange => first,
            AtomicOp::CompareAndSwap if old == first => second,
            AtomicOp::CompareAndSwap => old,
            AtomicOp::Increment if old >= first => 0,
            AtomicOp::Increment => old + 1,
        }
    }
}

/// The condition of a wait for a word of global memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Until {
    /// As a signed integer it is at least the operand.
    AtLeast,
    /// Its highest bit is not the operand's.
    SignDiffers,
}

impl Until {
    /// True if the word lets the thread go on.
    pub fn holds(self, word: u32, operand: u32) -> bool {
        match self {
            Until::AtLeast => word as i32 >= operand as i32,
            Until::SignDiffers => (word ^ operand) >> 31 != 0,
        }
    }
}

fn space(memory: Memory) -> &'static str {
    if memory == Memory::Shared { "shared" } else { "global" }
}

fn suffix(op: AtomicOp, dtype: DType) -> &'static str {
    match (op, dtype) {
        (AtomicOp::Exchange | AtomicOp::CompareAndSwap, DType::U64) => "b64",
        (AtomicOp::Exchange | AtomicOp::CompareAndSwap, _) => "b32",
        (_, DType::F16) => "noftz.f16",
        (_, DType::F32) => "f32",
        (_, DType::F64) => "f64",
        (_, DType::I32) => "s32",
        (_, DType::I64) => "s64",
        (_, DType::U64) => "u64",
        _ => "u32",
    }
}

static ROWS: LazyLock<Vec<AtomicRow>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for memory in [Memory::Global, Memory::Shared] {
        for op in AtomicOp::ALL {
            let types: &[DType] = match op {
                AtomicOp::Combine(RedOp::Add) => {
                    &[DType::I32, DType::U32, DType::F32, DType::U64, DType::F64, DType::F16]
                }
                AtomicOp::Combine(_) => &[DType::I32, DType::U32, DType::I64, DType::U64],
                AtomicOp::Exchange | AtomicOp::CompareAndSwap => &[DType::U32, DType::U64],
                AtomicOp::Increment => &[DType::U32],
            };
            rows.extend(types.iter().map(|dtype| {
                let name = format!("atom.{}.{}.{}", space(memory), op.mnemonic(), suffix(op, *dtype));
                AtomicRow { name, op, dtype: *dtype, memory }
            }));
        }
    }
    rows
});

/// Every atomic instruction.
pub fn atomic_rows() -> &'static [AtomicRow] {
    &ROWS
}

/// The instruction that does an operation on elements of a type in a memory, if there is one: the largest or smallest float has none.
pub fn atomic(op: AtomicOp, dtype: DType, memory: Memory) -> Option<&'static AtomicRow> {
    let moves = matches!(op, AtomicOp::Exchange | AtomicOp::CompareAndSwap);
    // Sums modulo 2⁶⁴ are the same with and without a sign, and PTX has one of them.
    let sums = op == AtomicOp::Combine(RedOp::Add) && dtype == DType::I64;
    let wanted = if sums { DType::U64 } else { dtype };
    let fits = |row: &&AtomicRow| row.op == op && row.memory == memory;
    let typed =
        move |row: &&AtomicRow| if moves { row.dtype.bits() == dtype.bits() } else { row.dtype == wanted };
    ROWS.iter().filter(fits).find(typed)
}

/// An operation of the tile language on elements of a type: the largest or smallest float is two instructions, by the operand's sign.
static COPIES: LazyLock<Vec<(DType, CopyRow)>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for memory in [Memory::Global, Memory::Shared] {
        for op in AtomicOp::ALL {
            for dtype in op.types() {
                let [max, min] = match (memory, dtype.bits()) {
                    (Memory::Global, 32) => ["atom.global.max.f32", "atom.global.min.f32"],
                    (Memory::Global, _) => ["atom.global.max.f64", "atom.global.min.f64"],
                    (_, 32) => ["atom.shared.max.f32", "atom.shared.min.f32"],
                    (..) => ["atom.shared.max.f64", "atom.shared.min.f64"],
                };
                let name = match op {
                    AtomicOp::Combine(RedOp::Max) if dtype.is_float() => max,
                    AtomicOp::Combine(RedOp::Min) if dtype.is_float() => min,
                    _ => atomic(op, *dtype, memory).map_or("atom", |row| row.name.as_str()),
                };
                let kind = CopyKind::Atomic(op);
                let bytes = dtype.bits() / 8;
                let row =
                    CopyRow { name, mnemonic: name, kind, ..per_thread(Memory::Register, memory, bytes) };
                rows.push((*dtype, row));
            }
        }
    }
    rows
});

/// The row by which synthesis lays an operation on elements of a type out; `None` for types that it does not take.
pub fn atomic_copy(op: AtomicOp, dtype: DType, memory: Memory) -> Option<&'static CopyRow> {
    let fits =
        |(of, row): &&(DType, CopyRow)| *of == dtype && row.dst == memory && row.kind == CopyKind::Atomic(op);
    COPIES.iter().find(fits).map(|(_, row)| row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_do_what_ptx_says() {
        let row = |op| atomic(op, DType::U32, Memory::Global).unwrap();
        assert_eq!(row(AtomicOp::Combine(RedOp::Add)).apply(u32::MAX.into(), [2, 0]), 1);
        assert_eq!(row(AtomicOp::Exchange).apply(3, [7, 0]), 7);
        assert_eq!(row(AtomicOp::CompareAndSwap).apply(3, [3, 9]), 9);
        assert_eq!(row(AtomicOp::CompareAndSwap).apply(4, [3, 9]), 4);
        let wrap = row(AtomicOp::Increment);
        assert_eq!([wrap.apply(0, [2, 0]), wrap.apply(1, [2, 0]), wrap.apply(2, [2, 0])], [1, 2, 0]);
    }

    #[test]
    fn mnemonics_have_the_order_behind_the_instruction() {
        let add = atomic(AtomicOp::Combine(RedOp::Add), DType::I32, Memory::Global).unwrap();
        assert_eq!(add.mnemonic(MemoryOrder::Release, false), "red.release.gpu.global.add.s32");
        let exchange = atomic(AtomicOp::Exchange, DType::F32, Memory::Shared).unwrap();
        assert_eq!(exchange.mnemonic(MemoryOrder::Relaxed, true), "atom.relaxed.cta.shared.exch.b32");
        assert!(atomic(AtomicOp::Combine(RedOp::Max), DType::F32, Memory::Global).is_none());
        assert!(atomic(AtomicOp::Combine(RedOp::Max), DType::F64, Memory::Global).is_none());
    }

    #[test]
    fn elements_of_64_bits_have_the_instructions_that_ptx_has() {
        let name = |op, dtype| atomic(op, dtype, Memory::Global).unwrap().name.as_str();
        assert_eq!(name(AtomicOp::Combine(RedOp::Add), DType::I64), "atom.global.add.u64");
        assert_eq!(name(AtomicOp::Combine(RedOp::Add), DType::F64), "atom.global.add.f64");
        assert_eq!(name(AtomicOp::Combine(RedOp::Min), DType::I64), "atom.global.min.s64");
        assert_eq!(name(AtomicOp::CompareAndSwap, DType::F64), "atom.global.cas.b64");
        let sum = atomic(AtomicOp::Combine(RedOp::Add), DType::F64, Memory::Shared).unwrap();
        assert_eq!(sum.apply(1.5_f64.to_bits(), [2.25_f64.to_bits(), 0]), 3.75_f64.to_bits());
        assert_eq!((sum.register(), sum.bytes()), (RegType::B64, 8));
    }

    #[test]
    fn waits_compare_as_they_say() {
        assert!(Until::AtLeast.holds(3, 3) && !Until::AtLeast.holds(u32::MAX, 0));
        assert!(Until::SignDiffers.holds(1 << 31, 5) && !Until::SignDiffers.holds(7, 5));
    }
}
