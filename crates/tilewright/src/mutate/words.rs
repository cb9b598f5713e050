//! Mutants of what orders blocks: atomic operations on words of global memory.

use tilewright_machine::MemoryOrder;
use tilewright_simt::Op;

/// The operation with less of an order, and the change in words.
pub(super) fn weaker(op: &Op) -> Vec<(String, Op)> {
    let Op::Atomic { row, order, dst, address, operands, guard } = op else { return Vec::new() };
    let weaker: &[MemoryOrder] = match order {
        MemoryOrder::AcquireRelease => &[MemoryOrder::Acquire, MemoryOrder::Release],
        MemoryOrder::Acquire | MemoryOrder::Release => &[MemoryOrder::Relaxed],
        MemoryOrder::Relaxed => &[],
    };
    let with = |to: &MemoryOrder| {
        let spelled = |order: MemoryOrder| row.mnemonic(order, dst.is_some());
        let (operands, guard) = (operands.clone(), *guard);
        let weaker = Op::Atomic { row, order: *to, dst: *dst, address: *address, operands, guard };
        (format!("{} to {}", spelled(*order), spelled(*to)), weaker)
    };
    weaker.iter().map(with).collect()
}
