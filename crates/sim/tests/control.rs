//! Branches, loops, shuffles, scalars and global memory.

use crate::common::*;
use tilewright_machine::{Memory, ScalarOp, ShuffleMode, SyncOp};
use tilewright_sim::{Argument, Config, GlobalMemory, SimError};
use tilewright_simt::{FunctionParamKind, Special};

#[test]
fn both_sides_of_nested_branches_run_for_their_own_lanes() {
    let mut b = builder(48);
    let out = b.pointer_param("out");
    let t = b.thread();
    let low = b.op(ScalarOp::LtI32, t, 20);
    let bit = b.op(ScalarOp::AndB32, t, 1);
    let odd = b.op(ScalarOp::NeI32, bit, 0);
    b.store_global(out, t, imm(7));
    b.branch(
        value(low),
        |b| {
            b.branch(value(odd), |b| b.store_global(out, t, imm(1)), |b| b.store_global(out, t, imm(2)));
            let again = b.mul(t, 1);
            let high = b.op(ScalarOp::GeI32, again, 18);
            b.branch(value(high), |b| b.store_global(out, t, imm(3)), |_| {});
        },
        |b| b.branch(value(odd), |b| b.store_global(out, t, imm(4)), |_| {}),
    );
    let (report, words) = run_block(&b.finish(), &[], 48);
    assert!(report.is_clean(), "{:?}", report.problems());
    let expected = (0..48u32).map(|t| match t {
        18..20 => 3,
        0..18 => 2 - t % 2,
        _ => 7 - 3 * (t % 2),
    });
    assert_eq!(words, expected.collect::<Vec<_>>());
}

#[test]
fn loops_run_as_often_as_each_lane_wants() {
    let mut b = builder(64);
    let out = b.pointer_param("out");
    let t = b.thread();
    let sum = b.add_array("sum", 1);
    b.write(reg(sum, 0), imm(0));
    let lo = b.op(ScalarOp::SubI32, t, 10);
    b.for_loop::<()>(lo, t, imm(3), |b, i| {
        b.for_loop(imm(0), i.into(), imm(1), |b, _| {
            let old = b.read(reg(sum, 0));
            let new = b.add(old, i.into());
            b.write(reg(sum, 0), new);
            Ok(())
        })
    })
    .unwrap();
    let total = b.read(reg(sum, 0));
    b.store_global(out, t, total);
    let (_, words) = run_block(&b.finish(), &[], 64);
    for (t, word) in words.iter().enumerate() {
        let t = t as i32;
        let expected: i32 = (t - 10..t).step_by(3).map(|i| i.max(0) * i).sum();
        assert_eq!(*word as i32, expected, "{t}");
    }
}

#[test]
fn a_loop_with_no_round_and_an_overflowing_one() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    b.for_loop::<()>(imm(3), imm(3), imm(1), |b, i| {
        b.store_global(out, imm(0), i.into());
        Ok(())
    })
    .unwrap();
    assert_eq!(run_block(&b.finish(), &[], 1).1, [0]);

    let mut b = builder(32);
    let out = b.pointer_param("out");
    b.for_loop::<()>(imm(i64::from(i32::MAX) - 2), imm(i64::from(i32::MAX)), imm(4), |b, i| {
        b.store_global(out, imm(0), i.into());
        Ok(())
    })
    .unwrap();
    let mut memory = GlobalMemory::new();
    let id = memory.alloc(4);
    let error = run_with(&b.finish(), &memory, &[id], &Config::default()).unwrap_err();
    assert!(matches!(error, SimError::LoopOverflow { .. }), "{error}");
}

#[test]
fn shuffles_read_other_lanes() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    let t = b.thread();
    for (i, (mode, operand)) in
        [(ShuffleMode::Bfly, 5), (ShuffleMode::Idx, 9), (ShuffleMode::Up, 4), (ShuffleMode::Down, -1)]
            .into_iter()
            .enumerate()
    {
        let got = b.shuffle(t, mode, imm(operand));
        let index = b.add(t, imm(32 * i as i64));
        b.store_global(out, index, got);
    }
    let (_, words) = run_block(&b.finish(), &[], 128);
    for t in 0..32u32 {
        let got = [0, 32, 64, 96].map(|base| words[(base + t) as usize]);
        // Of the distance the low five bits count: 31.
        assert_eq!(got, [t ^ 5, 9, if t < 4 { t } else { t - 4 }, if t == 0 { 31 } else { t }]);
    }
}

#[test]
fn collectives_need_the_whole_warp() {
    let shuffle: fn(&mut tilewright_simt::Builder) = |b| {
        let _ = b.shuffle(imm(1), ShuffleMode::Idx, imm(0));
    };
    let sync: fn(&mut tilewright_simt::Builder) = |b| b.sync(SyncOp::WarpBarrier);
    let matrix: fn(&mut tilewright_simt::Builder) = |b| {
        let array = b.add_array("a", 1);
        b.matrix(row("ldmatrix.x1"), vec![reg(array, 0)], at(imm(1024), 0));
    };
    for body in [shuffle, sync, matrix] {
        let mut b = builder(32);
        b.add_shared("s", 1024, 16);
        b.set_origin("the collective");
        let t = b.thread();
        let condition = b.op(ScalarOp::LtI32, t, 3);
        b.branch(value(condition), body, |_| {});
        let error = run_with(&b.finish(), &GlobalMemory::new(), &[], &Config::default()).unwrap_err();
        assert!(matches!(&error, SimError::DivergentCollective { active: 7, .. }), "{error}");
        assert!(error.to_string().contains("the collective"));
    }
}

#[test]
fn blocks_see_their_index_and_parameters() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    let n = b.add_param("n", FunctionParamKind::I32);
    let x = b.add_param("x", FunctionParamKind::F32);
    let [bx, by, bz] = [0, 1, 2].map(|axis| b.special(Special::BlockIndex(axis)).into());
    let zy = b.mul(bz, 3);
    let zy = b.add(zy, by);
    let linear = b.mul(zy, 2);
    let linear = b.add(linear, bx);
    let (n, x) = (b.param(n).into(), b.param(x).into());
    let n = b.scalar(ScalarOp::F32FromI32, &[n]);
    let product = b.scalar(ScalarOp::MulF32, &[n, x]);
    let i = b.scalar(ScalarOp::F32FromI32, &[linear]);
    let sum = b.scalar(ScalarOp::AddF32, &[product, i]);
    b.store_global(out, linear, sum);
    let f = b.finish();
    let mut memory = GlobalMemory::new();
    let id = memory.alloc(4 * 24);
    let args = [Argument::Buffer(id), Argument::I32(-3), Argument::F32(0.5)];
    let report = tilewright_sim::run(&f, [2, 3, 4], &memory, &args, &Config::default()).unwrap();
    assert_eq!((report.blocks, report.warps), (24, 24));
    let words = words_of(&memory.read(id));
    for (i, word) in words.iter().enumerate() {
        assert_eq!(f32::from_bits(*word), i as f32 - 1.5);
    }
}

#[test]
fn loads_and_stores_of_every_width_with_guards() {
    for bytes in [1, 2, 4, 8, 16] {
        let registers = (bytes / 4u32).max(1);
        let mut b = builder(32);
        let (src, dst) = (b.pointer_param("src"), b.pointer_param("dst"));
        let t = b.thread();
        let array = b.add_array("a", registers);
        let regs: Vec<_> = (0..registers).map(|i| reg(array, i)).collect();
        let (from, to) = (b.pointer(src, t, i64::from(bytes)), b.pointer(dst, t, i64::from(bytes)));
        let (read, write) = (b.op(ScalarOp::LtI32, t, 20), b.op(ScalarOp::GeI32, t, 2));
        let load = transfer(Memory::Global, Memory::Register, bytes);
        let store = transfer(Memory::Register, Memory::Global, bytes);
        b.load(load, regs.clone(), at(from, 0), Some(value(read)));
        b.store(store, regs, at(to, 0), Some(value(write)));
        let f = b.finish();
        let len = 32 * bytes as usize;
        let input: Vec<u8> = (0..len).map(|i| i as u8 | 0x80).collect();
        let mut memory = GlobalMemory::new();
        // The source is just as long as the guard allows.
        let ids = [memory.alloc(20 * bytes as usize), memory.alloc(len)];
        memory.write(ids[0], &input);
        memory.write(ids[1], &vec![0x55; len]);
        let report = run_with(&f, &memory, &ids, &Config::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems());
        let expected = (0..len).map(|i| match i / bytes as usize {
            0..2 => 0x55,
            2..20 => input[i],
            _ => 0,
        });
        assert_eq!(memory.read(ids[1]), expected.collect::<Vec<_>>(), "{bytes}");
        assert_eq!(report.global_requests, 2);
        assert_eq!(report.global_bytes, u64::from(50 * bytes));
    }
}

#[test]
fn global_sectors_are_counted_by_statement() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    let t = b.thread();
    b.set_origin("dense");
    b.store_global(out, t, t);
    b.set_origin("strided");
    let far = b.mul(t, 8);
    b.store_global(out, far, t);
    let (report, _) = run_block(&b.finish(), &[], 256);
    let sectors: Vec<_> =
        report.traffic.iter().map(|t| (t.origin.as_str(), t.counts.global_sectors)).collect();
    assert_eq!(sectors, [("dense", 4), ("strided", 32)]);
    assert_eq!((report.global_requests, report.global_sectors), (2, 36));
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let mut b = builder(32);
    b.pointer_param("p");
    let f = b.finish();
    let mut memory = GlobalMemory::new();
    let mut other = GlobalMemory::new();
    let id = memory.alloc(4);
    let _ = other.alloc(4);
    let stranger = other.alloc(4);
    let config = Config::default();
    let run = |grid, args: &[Argument]| tilewright_sim::run(&f, grid, &memory, args, &config);
    assert!(run([1, 1, 1], &[Argument::Buffer(id)]).is_ok());
    assert_eq!(run([1, 0, 1], &[Argument::Buffer(id)]), Err(SimError::Grid([1, 0, 1])));
    assert_eq!(run([u32::MAX; 3], &[Argument::Buffer(id)]), Err(SimError::Grid([u32::MAX; 3])));
    assert_eq!(run([1, 1, 1], &[]), Err(SimError::ArgumentCount { expected: 1, given: 0 }));
    assert!(matches!(run([1, 1, 1], &[Argument::I32(1)]), Err(SimError::ArgumentKind { .. })));
    let unknown = SimError::UnknownBuffer { name: "p".to_string(), buffer: 1 };
    assert_eq!(run([1, 1, 1], &[Argument::Buffer(stranger)]), Err(unknown));
    for threads in [0, 2048] {
        let f = builder(threads).finish();
        let refused = tilewright_sim::run(&f, [1, 1, 1], &memory, &[], &config);
        assert_eq!(refused, Err(SimError::Threads { threads, limit: 1024 }));
    }
    let mut b = builder(32);
    b.add_shared("s", 1 << 20, 16);
    let refused = tilewright_sim::run(&b.finish(), [1, 1, 1], &memory, &[], &config);
    assert!(matches!(refused, Err(SimError::SharedMemory { .. })));
}

#[test]
fn a_block_that_never_ends_is_given_up() {
    let mut b = builder(32);
    b.for_loop::<()>(imm(0), imm(i64::from(i32::MAX)), imm(1), |b, _| {
        b.sync(SyncOp::WarpBarrier);
        Ok(())
    })
    .unwrap();
    let config = Config { step_limit: 1000, ..Config::default() };
    let error = run_with(&b.finish(), &GlobalMemory::new(), &[], &config).unwrap_err();
    assert_eq!(error, SimError::StepLimit { block: [0, 0, 0], limit: 1000 });
}

#[test]
fn the_clock_counts_the_cycles_of_the_model() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    let t = b.thread();
    b.sync(SyncOp::Barrier);
    let before = b.special(Special::Clock).into();
    let mut x = t;
    for _ in 0..10 {
        x = b.op(ScalarOp::ShlB32, x, 1);
    }
    b.sync(SyncOp::Barrier);
    let after = b.special(Special::Clock).into();
    let cycles = b.scalar(ScalarOp::SubI32, &[after, before]);
    let kept = b.add(cycles, x);
    let cycles = b.scalar(ScalarOp::SubI32, &[kept, x]);
    b.store_global(out, t, cycles);
    let (_, words) = run_block(&b.finish(), &[], 32);
    // Ten shifts of 4 cycles each, the last one's first cycle only, and the barrier's 16.
    assert!(words.iter().all(|w| *w == words[0] && (37..60).contains(w)), "{words:?}");
}
