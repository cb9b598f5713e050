//! Words of global memory by which blocks meet: what releases and acquires order, and what they do not.

use crate::common::*;
use tilewright_machine::{AtomicOp, DType, Memory, MemoryOrder, RedOp, ScalarOp, Until, atomic};
use tilewright_sim::{Argument, GlobalMemory, Report, SimError, run};
use tilewright_simt::{Builder, Function, Operand, Special};

/// The way in which the second block comes to know of the first.
#[derive(Clone, Copy, PartialEq)]
enum Learns {
    /// It waits for the word.
    Waits,
    /// It does an atomic operation of this order, once.
    Looks(MemoryOrder),
}

fn add(b: &mut Builder, flag: u32, order: MemoryOrder, value: i64) -> Operand {
    let row = atomic(AtomicOp::Combine(RedOp::Add), DType::U32, Memory::Global).unwrap();
    let address = at(b.param(flag).into(), 0);
    b.atomic(row, order, address, vec![imm(value)], None)
}

/// Thread 0 of block 0 writes `x[1]` and adds 1 to the flag; that of block 1 reads `x[1]` once it knows, and writes it to `x[2]`.
fn handed_over(release: MemoryOrder, learns: Learns) -> Function {
    let mut b = builder(32);
    let (x, flag) = (b.pointer_param("x"), b.pointer_param("flag"));
    let thread = b.thread();
    let alone = value(b.op(ScalarOp::EqI32, thread, 0));
    let block = b.special(Special::BlockIndex(0)).into();
    let first = value(b.op(ScalarOp::EqI32, block, 0));
    b.open_branch();
    b.open_branch();
    b.store_global(x, imm(1), imm(7));
    add(&mut b, flag, release, 1);
    let then = b.close_side();
    b.open_branch();
    match learns {
        Learns::Waits => {
            let address = at(b.param(flag).into(), 0);
            b.await_word(address, Until::AtLeast, imm(1));
        }
        Learns::Looks(order) => _ = add(&mut b, flag, order, 0),
    }
    let array = b.add_array("got", 1);
    let address = b.pointer(x, imm(1), 4);
    b.load(transfer(Memory::Global, Memory::Register, 4), vec![reg(array, 0)], at(address, 0), None);
    let got = b.read(reg(array, 0));
    b.store_global(x, imm(2), got);
    let otherwise = b.close_side();
    b.if_else(first, then, otherwise);
    b.close_branch(alone);
    b.finish()
}

fn run_on(f: &Function, blocks: u32, seed: u64) -> Result<(Report, Vec<u32>), SimError> {
    let mut memory = GlobalMemory::new();
    let (x, flag) = (memory.alloc(1024), memory.alloc(4));
    let args = [Argument::Buffer(x), Argument::Buffer(flag)];
    let report = run(f, [blocks, 1, 1], &memory, &args, &seeded(seed))?;
    let bytes = memory.read(x);
    Ok((report, bytes.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()))
}

#[test]
fn a_release_that_is_waited_for_orders_what_came_before_it() {
    for release in [MemoryOrder::Release, MemoryOrder::AcquireRelease] {
        for seed in 0..8 {
            let (report, x) = run_on(&handed_over(release, Learns::Waits), 2, seed).unwrap();
            assert!(report.races.is_empty(), "{:?}", report.problems());
            assert_eq!(x[2], 7);
        }
    }
}

#[test]
fn a_relaxed_operation_publishes_nothing() {
    for release in [MemoryOrder::Relaxed, MemoryOrder::Acquire] {
        let (report, x) = run_on(&handed_over(release, Learns::Waits), 2, 1).unwrap();
        assert_eq!((report.races.len(), x[2]), (1, 7), "{:?}", report.problems());
    }
}

#[test]
fn who_does_not_wait_may_come_first() {
    let raced = |order, seed| {
        let f = handed_over(MemoryOrder::Release, Learns::Looks(order));
        !run_on(&f, 2, seed).unwrap().0.races.is_empty()
    };
    assert!((0..8).all(|seed| raced(MemoryOrder::Relaxed, seed)));
    assert!((0..16).any(|seed| raced(MemoryOrder::Acquire, seed)));
}

#[test]
fn a_word_that_nobody_writes_is_a_deadlock_that_names_it() {
    let mut b = builder(32);
    let (_, flag) = (b.pointer_param("x"), b.pointer_param("flag"));
    let address = at(b.param(flag).into(), 0);
    b.await_word(address, Until::AtLeast, imm(3));
    let error = run_on(&b.finish(), 2, 1).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, SimError::Deadlock { .. }), "{text}");
    assert!(text.contains("element 0 of `flag`, which is 0, to be at least 3"), "{text}");
}

#[test]
fn blocks_race_for_numbers_and_each_is_given_once() {
    let mut b = builder(32);
    let (x, flag) = (b.pointer_param("x"), b.pointer_param("flag"));
    let number = add(&mut b, flag, MemoryOrder::Relaxed, 1);
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    b.store_global(x, number, block);
    let f = b.finish();
    let orders: Vec<Vec<u32>> = (1..5).map(|seed| run_on(&f, 8, seed).unwrap().1).collect();
    for order in &orders {
        let mut counts = [0; 8];
        order.iter().for_each(|block| counts[*block as usize] += 1);
        assert_eq!(counts, [32; 8]);
    }
    assert!(orders.windows(2).any(|pair| pair[0] != pair[1]), "the scheduler decides who comes first");
}

#[test]
fn blocks_that_wait_for_each_other_are_at_most_so_many() {
    let f = handed_over(MemoryOrder::Release, Learns::Waits);
    assert!(matches!(run_on(&f, 1025, 0), Err(SimError::Together { blocks: 1025, limit: 1024 })));
}
