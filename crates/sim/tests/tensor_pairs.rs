//! Products of pairs of blocks against plain loops, and what goes wrong with pairs.

use crate::common::*;
use crate::hopper_products::{Placed, placed, registers, small};
use crate::tensor_memory::factor;
use tilewright_machine::{
    Arch, DType, Major, MbarrierOp, Memory, ProxyFence, ScalarOp, SwizzleMode, SyncOp, Tcgen05Row,
    TensorMemory, TensorOp, tcgen05_pair, tcgen05_rows, tensor_memory_copies, tensor_row,
};
use tilewright_sim::{GlobalMemory, RaceKind, Report, Rule, SimError, run};
use tilewright_simt::{Builder, Function, Op, Operand, Reg, Special};

const A: u32 = 1024;
const B: u32 = 64 * 1024;
/// The mbarrier that counts bytes, that of the products, and the word with the address.
const FULL: i64 = 0;
const DONE: i64 = 8;
const WORD: i64 = 16;

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// No barrier of the cluster stands before the allocation.
    Begin,
    /// The even block alone allocates.
    AllocateAlone,
    /// The odd block allocates twice as many columns.
    AllocateMore,
    /// The even block's barrier expects the bytes of its own copy.
    Bytes,
    /// The odd block's copy tells its own barrier.
    OwnBarrier,
    /// Nobody waits for the bytes.
    Wait,
    /// The odd block issues the products.
    Odd,
    /// Both blocks issue them.
    Both,
    /// No proxy fence stands behind the odd block's stores of its rows of A.
    ProxyFence,
    /// The commit tells the even block alone.
    Commit,
    /// The odd block reads its sums without a wait.
    OddWait,
    /// No barrier of the cluster stands before the blocks free their columns.
    End,
    /// The odd block frees nothing.
    Free,
}

/// Two blocks that multiply: each stores its 128 rows of A, and copies its half of B; all store the columns of their lanes.
fn program(
    row: &'static Tcgen05Row,
    (a, b): (&Placed, &Placed),
    swizzle: SwizzleMode,
    mistake: Step,
) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("pair", Arch::SM_100A, 128);
    f.set_cluster(2);
    f.set_pairs();
    let [pa, out] = ["a", "out"].map(|name| f.pointer_param(name));
    let extents = [row.k as u32, row.right_rows() as u32];
    let map = f.map("b", row.b, &extents, swizzle);
    f.add_shared_at("full", FULL as u32, 8);
    f.add_shared_at("done", DONE as u32, 8);
    f.add_shared_at("word", WORD as u32, 4);
    f.add_shared_at("a", A, a.image.len() as u32);
    f.add_shared_at("b", B, b.image.len() as u32);
    f.add_tensor_memory("acc", 0, row.columns());
    let columns = TensorMemory::allocation(row.columns()).unwrap();
    let rank: Operand = f.special(Special::ClusterRank).into();
    let odd = f.op(ScalarOp::AndB32, rank, 1);
    let even = value(f.op(ScalarOp::EqI32, odd, 0));
    let thread = f.thread();
    let warp = f.op(ScalarOp::ShrU32, thread, 5);
    let first = value(f.op(ScalarOp::LtI32, warp, 1));
    f.set_origin("allocate");
    f.init_barriers(&[(FULL, 1), (DONE, 1)]);
    if right(Step::Begin) {
        f.sync(SyncOp::ClusterStart);
    }
    let word = f.window(WORD);
    let allocates = |b: &mut Builder, columns: u32| {
        b.tensor_allocate(columns, word);
        b.sync(SyncOp::TensorRelinquish);
    };
    let more = if right(Step::AllocateMore) { columns } else { 2 * columns };
    f.branch(
        first,
        |b| {
            b.branch(
                even,
                |b| allocates(b, columns),
                |b| {
                    if right(Step::AllocateAlone) {
                        allocates(b, more);
                    }
                },
            );
        },
        |_| {},
    );
    f.set_origin("stage");
    let rows = f.mul(odd, a.image.len() as i64 / 16);
    stage_from(&mut f, (pa, rows), A, a.image.len());
    if right(Step::ProxyFence) {
        f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    } else {
        f.branch(even, |b| b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared)), |_| {});
    }
    f.sync(SyncOp::TensorFenceBefore);
    f.sync(SyncOp::ClusterBarrier);
    f.sync(SyncOp::TensorFenceAfter);
    let base = f.load_shared(imm(WORD));
    let own = f.window(FULL);
    let to = if right(Step::OwnBarrier) { imm(0) } else { odd };
    let full = at(f.scalar(ScalarOp::Mapa, &[own.base, to]), own.offset);
    f.set_origin("load");
    let half = row.right_rows() * row.k * i64::from(row.b.bits()) / 8;
    let expected = if right(Step::Bytes) { 2 * half } else { half };
    f.only(0, |b| {
        b.branch(even, |b| b.mbarrier_at(MbarrierOp::ArriveExpect, own, expected), |_| {});
        let begin = b.mul(odd, row.right_rows());
        let to = b.window(i64::from(B));
        b.tma(TensorOp::Load, map, &[imm(0), begin], to, Some(full));
    });
    f.set_origin("multiply");
    let (left, other) = (factor(&mut f, a, A), factor(&mut f, b, B));
    let done = f.window(DONE);
    let multiply = |b: &mut Builder| {
        if right(Step::Wait) && right(Step::Odd) {
            b.mbarrier_at(MbarrierOp::Wait, own, 0);
        }
        b.sync(SyncOp::TensorFenceAfter);
        b.tcgen05(row, at(base, 0), left.clone(), other.clone(), Operand::Imm(0));
        b.tcgen05(row, at(base, 0), left.clone(), other.clone(), Operand::Imm(1));
        let op = if right(Step::Commit) { MbarrierOp::CommitPeers } else { MbarrierOp::Commit };
        b.mbarrier_at(op, done, if right(Step::Commit) { 3 } else { 0 });
    };
    f.only(0, |b| match mistake {
        Step::Odd => b.branch(even, |_| {}, multiply),
        Step::Both => {
            b.branch(even, |b| b.mbarrier_at(MbarrierOp::Wait, own, 0), |_| {});
            b.sync(SyncOp::TensorFenceAfter);
            b.tcgen05(row, at(base, 0), left.clone(), other.clone(), Operand::Imm(0));
            b.mbarrier_at(MbarrierOp::Commit, done, 0);
        }
        _ => b.branch(even, multiply, |_| {}),
    });
    f.set_origin("load sums");
    if right(Step::OddWait) {
        f.mbarrier_at(MbarrierOp::Wait, done, 0);
    } else {
        f.branch(even, |b| b.mbarrier_at(MbarrierOp::Wait, done, 0), |_| {});
    }
    f.sync(SyncOp::TensorFenceAfter);
    let copy = tensor_memory_copies().iter().find(|copy| copy.name == "tcgen05.ld.32x32b.x8").unwrap();
    let array = f.add_array("cells", row.columns());
    let lanes = f.op(ScalarOp::ShlB32, warp, 21);
    let lanes = f.add(base, lanes);
    let of = |i: u32| (0..8).map(|j| reg(array, 8 * i + j)).collect::<Vec<Reg>>();
    for i in 0..row.columns() / 8 {
        f.tensor_copy(copy, of(i), at(lanes, 8 * i as i32));
    }
    f.sync(SyncOp::TensorWaitLoad);
    f.set_origin("store");
    let before = f.mul(odd, 128 * row.n);
    let cell = f.add(thread, before);
    for (column, register) in registers(array, row.columns()).into_iter().enumerate() {
        let index = f.add(cell, imm(128 * column as i64));
        let address = f.pointer(out, index, 4);
        f.store(transfer(Memory::Register, Memory::Global, 4), vec![register], at(address, 0), None);
    }
    f.set_origin("free");
    f.sync(SyncOp::TensorFenceBefore);
    f.sync(if right(Step::End) { SyncOp::ClusterBarrier } else { SyncOp::Barrier });
    f.branch(
        first,
        |b| {
            b.sync(SyncOp::TensorFenceAfter);
            let free = |b: &mut Builder, columns: u32| b.tensor_free(columns, base);
            b.branch(
                even,
                |b| free(b, columns),
                |b| {
                    if right(Step::Free) && right(Step::AllocateAlone) {
                        free(b, more);
                    }
                },
            );
        },
        |_| {},
    );
    f.finish()
}

/// Stores bytes of a parameter, from so many 16 bytes on, in shared memory.
pub(crate) fn stage_from(f: &mut Builder, (param, first): (u32, Operand), offset: u32, bytes: usize) {
    let t = f.thread();
    let array = f.add_array("staged", 4);
    let regs = registers(array, 4);
    f.for_loop::<()>(t, imm(bytes as i64 / 16), imm(128), |b, i| {
        let index = b.add(i.into(), first);
        let from = b.pointer(param, index, 16);
        b.load(transfer(Memory::Global, Memory::Register, 16), regs.clone(), at(from, 0), None);
        let to = b.mul(i.into(), 16);
        let to = b.shared(to);
        b.store(transfer(Memory::Register, Memory::Shared, 16), regs.clone(), at(to, offset as i32), None);
        Ok(())
    })
    .unwrap();
}

/// Runs the program on small whole numbers; its report, and whether the sums of both blocks are those of plain loops.
fn execute(row: &'static Tcgen05Row, mistake: Step, seed: u64) -> Result<(Report, bool), SimError> {
    let (m, n, k) = (row.m as usize, row.n as usize, row.k as usize);
    let mut next = random(row.n as u64 * 7 + row.k as u64);
    let ea: Vec<u32> = (0..2 * m * k).map(|_| small(row.a, &mut next)).collect();
    let eb: Vec<u32> = (0..n * k).map(|_| small(row.b, &mut next)).collect();
    let swizzle = SwizzleMode::B32;
    let of_block =
        |block: usize| placed(row.a, (m, k), Major::K, swizzle, |i, kk| ea[i + block * m + 2 * m * kk]);
    let left = [0, 1].map(of_block);
    let half = placed(row.b, (n / 2, k), Major::K, swizzle, |i, kk| eb[i + n * kk]);
    let f = program(row, (&left[0], &half), swizzle, mistake);
    let mut memory = GlobalMemory::new();
    let images: Vec<u8> = left.iter().flat_map(|placed| placed.image.iter().copied()).collect();
    let a = memory.alloc(images.len());
    memory.write(a, &images);
    let out = memory.alloc(4 * 2 * 128 * n);
    let bytes = (row.b.bits() / 8) as usize;
    let mut right = Vec::new();
    for (i, kk) in (0..n).flat_map(|i| (0..k).map(move |kk| (i, kk))) {
        right.extend_from_slice(&eb[i + n * kk].to_le_bytes()[..bytes]);
    }
    let b = memory.alloc(right.len());
    memory.write(b, &right);
    let args = [
        tilewright_sim::Argument::Buffer(a),
        tilewright_sim::Argument::Buffer(out),
        tensor(b, &[k as u64, n as u64], bytes as u64),
    ];
    let report = run(&f, [2, 1, 1], &memory, &args, &seeded(seed))?;
    let words = words_of(&memory.read(out));
    let same = (0..2 * m * n).all(|at| {
        let (i, j) = (at % (2 * m), at / (2 * m));
        let terms = (0..k).map(|kk| row.a.decode(ea[i + 2 * m * kk]) * row.b.decode(eb[j + n * kk]));
        let sum = 2.0 * terms.sum::<f64>();
        row.c.decode(words[i / m * m * n + i % m + m * j]) == sum
    });
    Ok((report, same))
}

fn half() -> &'static Tcgen05Row {
    tcgen05_pair(DType::F16, DType::F16, DType::F32, [128, 48]).unwrap()
}

#[test]
fn sums_of_pairs_of_every_type_are_those_of_plain_loops() {
    for row in tcgen05_rows()
        .iter()
        .filter(|row| row.blocks == 2 && row.scaling.is_none() && matches!(row.n, 16 | 96 | 112))
    {
        let (report, same) = execute(row, Step::None, row.n as u64 % 3).unwrap();
        assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
        assert!(same, "{}", row.name);
    }
}

#[test]
fn a_pair_without_a_mistake_is_clean() {
    for seed in 0..50 {
        let (report, same) = execute(half(), Step::None, seed).unwrap();
        assert!(report.is_clean() && same, "{seed}: {:?}", report.problems());
    }
}

/// The rules and the kinds of races that a mistake breaks, with several seeds.
fn found(mistake: Step) -> (Vec<Rule>, Vec<RaceKind>) {
    let (mut rules, mut races) = (Vec::new(), Vec::new());
    for seed in 0..8 {
        let Ok((report, _)) = execute(half(), mistake, seed) else { continue };
        rules.extend(report.protocol.iter().map(|misuse| misuse.rule));
        races.extend(report.races.iter().map(|race| race.kind));
    }
    rules.sort_unstable();
    rules.dedup();
    races.sort_unstable();
    races.dedup();
    (rules, races)
}

#[test]
fn every_mistake_of_a_pair_breaks_its_rule() {
    let rules = [
        (Step::Begin, Rule::Allocation),
        (Step::AllocateAlone, Rule::Allocation),
        (Step::AllocateMore, Rule::Allocation),
        (Step::Odd, Rule::Issuer),
        (Step::Both, Rule::Issuer),
        (Step::Free, Rule::Allocation),
    ];
    for (mistake, rule) in rules {
        let (broken, _) = found(mistake);
        assert!(broken.contains(&rule), "{mistake:?}: {broken:?}");
    }
}

#[test]
fn every_missing_order_of_a_pair_is_a_race() {
    let kinds = [
        (Step::Bytes, RaceKind::AsyncPending),
        (Step::Wait, RaceKind::AsyncPending),
        (Step::ProxyFence, RaceKind::MissingProxyFence),
        (Step::OddWait, RaceKind::AsyncPending),
        (Step::End, RaceKind::AsyncRead),
    ];
    for (mistake, kind) in kinds {
        let (_, races) = found(mistake);
        assert!(races.contains(&kind), "{mistake:?}: {races:?}");
    }
}

#[test]
fn a_block_that_nobody_tells_waits_for_ever() {
    for mistake in [Step::OwnBarrier, Step::Commit] {
        for seed in 0..4 {
            let result = execute(half(), mistake, seed);
            assert!(matches!(result, Err(SimError::Deadlock { .. })), "{mistake:?} {seed}");
        }
    }
}

/// Four blocks, of which each brings half of its place's 16 rows to itself and to the block of that place in the other pair. Even blocks wait for `bytes`, of both blocks of their pair;
/// `even`: copies signal them. Each block stores what it has got.
fn shared_by_pairs(even: bool, bytes: i64) -> Function {
    let mut f = Builder::new("pairs", Arch::SM_100A, 128);
    f.set_cluster(4);
    f.set_pairs();
    let out = f.pointer_param("out");
    let map = f.map("a", DType::F16, &[64, 8], SwizzleMode::None);
    f.add_shared_at("full", FULL as u32, 8);
    f.add_shared_at("box", A, 2048);
    let rank: Operand = f.special(Special::ClusterRank).into();
    let odd = f.op(ScalarOp::AndB32, rank, 1);
    let leads = value(f.op(ScalarOp::EqI32, odd, 0));
    let place = f.op(ScalarOp::ShrU32, rank, 1);
    let thread = f.thread();
    f.init_barriers(&[(FULL, 1)]);
    f.sync(SyncOp::ClusterStart);
    f.set_origin("load");
    let own = f.window(FULL);
    let first = f.op(ScalarOp::AndB32, rank, 2);
    let full = at(f.scalar(ScalarOp::Mapa, &[own.base, first]), own.offset);
    let mask = f.scalar(ScalarOp::ShlB32, &[imm(5), odd]);
    let (rows, part) = (f.mul(odd, 16), f.mul(place, 8));
    let row = f.add(rows, part);
    let to = f.window(i64::from(A));
    let behind = f.mul(place, 1024);
    let shared = at(f.add(to.base, behind), to.offset);
    f.only(0, |b| {
        b.branch(leads, |b| b.mbarrier_at(MbarrierOp::ArriveExpect, own, bytes), |_| {});
        b.bulk(Op::Tensor {
            row: tensor_row(TensorOp::Load, 2).unwrap(),
            map,
            one: None,
            coords: vec![imm(0), row],
            shared,
            barrier: Some(full),
            multicast: Some(mask),
            even,
            hint: None,
        });
    });
    f.branch(leads, |b| b.mbarrier_at(MbarrierOp::Wait, own, 0), |_| {});
    f.sync(SyncOp::ClusterBarrier);
    f.set_origin("store");
    let array = f.add_array("got", 4);
    let regs = registers(array, 4);
    let unit = f.mul(thread, 16);
    let from = f.shared(unit);
    f.load(transfer(Memory::Shared, Memory::Register, 16), regs.clone(), at(from, A as i32), None);
    let before = f.mul(rank, 128);
    let index = f.add(before, thread);
    let to = f.pointer(out, index, 16);
    f.store(transfer(Memory::Register, Memory::Global, 16), regs, at(to, 0), None);
    f.finish()
}

/// The report, and whether each block has the rows of its place.
fn run_shared(even: bool, bytes: i64, seed: u64) -> Result<(Report, bool), SimError> {
    let mut memory = GlobalMemory::new();
    let rows: Vec<u8> = (0..32 * 64).flat_map(|i: u16| i.to_le_bytes()).collect();
    let a = memory.alloc(rows.len());
    memory.write(a, &rows);
    let out = memory.alloc(4 * 2048);
    let args = [tilewright_sim::Argument::Buffer(out), tensor(a, &[64, 32], 2)];
    let report = run(&shared_by_pairs(even, bytes), [4, 1, 1], &memory, &args, &seeded(seed))?;
    let got = memory.read(out);
    let same = (0..4).all(|rank| got[2048 * rank..][..2048] == rows[2048 * (rank % 2)..][..2048]);
    Ok((report, same))
}

#[test]
fn even_blocks_count_what_other_pairs_bring() {
    for seed in 0..20 {
        let (report, same) = run_shared(true, 4096, seed).unwrap();
        assert!(report.is_clean() && same, "{seed}: {:?}", report.problems());
    }
    let mut races = Vec::new();
    for seed in 0..8 {
        // The bytes of one block alone.
        if let Ok((report, _)) = run_shared(true, 2048, seed) {
            races.extend(report.races.iter().map(|race| race.kind));
        }
    }
    assert!(races.contains(&RaceKind::AsyncPending), "{races:?}");
    let mistaken = (0..4).map(|seed| run_shared(false, 4096, seed));
    let found = |result: Result<(Report, bool), SimError>| match result {
        Err(SimError::Deadlock { .. }) => true,
        Err(_) => false,
        Ok((report, _)) => report.protocol.iter().any(|misuse| misuse.rule == Rule::Place),
    };
    assert!(mistaken.into_iter().all(found));
}
