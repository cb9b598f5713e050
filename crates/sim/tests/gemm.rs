//! A whole kernel by hand: tiles of 128 × 128 × 32 by four warps, two stages of `cp.async`, swizzled shared memory,
//! `ldmatrix` and `mma`.

use crate::common::*;
use half::f16;
use tilewright_machine::{Arch, DType, Memory, MmaKind, ScalarOp, SyncOp, mmas};
use tilewright_sim::{Argument, Config, GlobalMemory, Report};
use tilewright_simt::{Builder, Function, Operand, Special};

/// Bytes of one operand's stage: 128 rows of 32 halves.
const STAGE: i64 = 128 * 64;

/// Byte offset of 16-byte chunk `chunk` of row `row`, swizzled so that eight rows of one chunk meet no bank twice.
fn swizzled(b: &mut Builder, row: Operand, chunk: Operand) -> Operand {
    let key = b.scalar(ScalarOp::BfeU32, &[row, imm(1), imm(2)]);
    let chunk = b.scalar(ScalarOp::XorB32, &[chunk, key]);
    let (row, chunk) = (b.mul(row, 64), b.mul(chunk, 16));
    b.add(row, chunk)
}

/// `c[m][n] = Σ a[m][k] · b[n][k]`, all row-major; `barrier` false leaves out the one that frees a stage.
fn gemm(k: i64, n: i64, barrier: bool) -> Function {
    let mut b = builder(128);
    let [pa, pb, pc] = ["a", "b", "c"].map(|name| b.pointer_param(name));
    b.add_shared("a", 2 * STAGE as u32, 128);
    b.add_shared("b", 2 * STAGE as u32, 128);
    let t = b.thread();
    let [bx, by] = [0, 1].map(|axis| Operand::from(b.special(Special::BlockIndex(axis))));
    let (acc, fa, fb) = (b.add_array("acc", 128), b.add_array("a", 16), b.add_array("b", 16));
    for i in 0..128 {
        b.write(reg(acc, i), imm(0));
    }
    // Thread t copies chunk t % 4 of rows t / 4 + 32 i.
    let (copy_row, copy_chunk) = (b.op(ScalarOp::ShrU32, t, 2), b.op(ScalarOp::AndB32, t, 3));
    let first_rows = [b.mul(by, 128), b.mul(bx, 128)];
    let mut copies = Vec::new();
    for (operand, param) in [pa, pb].into_iter().enumerate() {
        for i in 0..4 {
            let row = b.add(copy_row, imm(32 * i));
            let to = swizzled(&mut b, row, copy_chunk);
            let to = b.add(to, imm(2 * STAGE * operand as i64));
            let to = b.shared(to);
            let row = b.add(row, first_rows[operand]);
            let index = b.mul(row, k / 8);
            let index = b.add(index, copy_chunk);
            copies.push((to, b.pointer(param, index, 16)));
        }
    }
    let copy = |b: &mut Builder, step: Operand, stage: Operand| {
        b.set_origin("copy in");
        let shift = b.mul(stage, STAGE);
        for (to, from) in &copies {
            let to = b.add(*to, shift);
            let offset = b.scalar(ScalarOp::MulWide, &[step, imm(64)]);
            let from = b.scalar(ScalarOp::AddI64, &[*from, offset]);
            b.async_copy(row("cp.async.16"), at(to, 0), at(from, 0), None);
        }
        b.sync(SyncOp::AsyncCommit);
    };
    let lane = b.op(ScalarOp::AndB32, t, 31);
    let warp = b.op(ScalarOp::ShrU32, t, 5);
    let (wm, wn) = (b.op(ScalarOp::AndB32, warp, 1), b.op(ScalarOp::ShrU32, warp, 1));
    let (wm, wn) = (b.mul(wm, 64), b.mul(wn, 64));
    let low4 = b.op(ScalarOp::AndB32, lane, 15);
    let high = b.op(ScalarOp::ShrU32, lane, 4);
    copy(&mut b, imm(0), imm(0));
    let mma = mmas([DType::F16; 2], DType::F32, MmaKind::Dense, Arch::SM_90A).next().unwrap();
    b.for_loop::<()>(imm(0), imm(k / 32), imm(1), |b, step| {
        let step = Operand::from(step);
        let stage = b.op(ScalarOp::AndB32, step, 1);
        let next = b.add(step, imm(1));
        let more = b.op(ScalarOp::LtI32, next, k / 32);
        let other = b.op(ScalarOp::XorB32, stage, 1);
        b.branch(value(more), |b| copy(b, next, other), |b| b.sync(SyncOp::AsyncCommit));
        b.sync(SyncOp::AsyncWaitGroup(1));
        b.sync(SyncOp::Barrier);
        b.set_origin("gemm");
        let shift = b.mul(stage, STAGE);
        for half in 0..2 {
            let chunk = b.add(high, imm(2 * half));
            for (base, first, fragment) in [(0, wm, fa), (2 * STAGE, wn, fb)] {
                for i in 0..4 {
                    let r = b.add(first, low4);
                    let r = b.add(r, imm(16 * i));
                    let offset = swizzled(b, r, chunk);
                    let offset = b.add(offset, imm(base));
                    let address = b.shared(offset);
                    let address = b.add(address, shift);
                    let regs = (0..4).map(|j| reg(fragment, 4 * i as u32 + j)).collect();
                    b.matrix(row("ldmatrix.x4"), regs, at(address, 0));
                }
            }
            for i in 0..4 {
                for j in 0..8 {
                    let d = (0..4).map(|v| reg(acc, 32 * i + 4 * j + v)).collect();
                    let a = (0..4).map(|v| reg(fa, 4 * i + v)).collect();
                    // Rows 0–7 and 8–15 of n are in registers 0, 2 and 1, 3.
                    let bn = [0, 2].map(|v| reg(fb, 4 * (j / 2) + j % 2 + v));
                    b.mma(mma, d, a, bn.to_vec());
                }
            }
        }
        if barrier {
            b.sync(SyncOp::Barrier);
        }
        Ok(())
    })
    .unwrap();
    b.set_origin("copy out");
    let (group, thread) = (b.op(ScalarOp::ShrU32, lane, 2), b.op(ScalarOp::AndB32, lane, 3));
    let row0 = b.add(first_rows[0], wm);
    let row0 = b.add(row0, group);
    let column0 = b.add(first_rows[1], wn);
    let thread = b.mul(thread, 2);
    let column0 = b.add(column0, thread);
    let index = b.mul(row0, n);
    let index = b.add(index, column0);
    let address = b.pointer(pc, index, 4);
    let store = transfer(Memory::Register, Memory::Global, 8);
    for i in 0..4i64 {
        for j in 0..8i64 {
            for half in 0..2i64 {
                let offset = 4 * ((16 * i + 8 * half) * n + 8 * j);
                let first = (32 * i + 4 * j + 2 * half) as u32;
                b.store(store, vec![reg(acc, first), reg(acc, first + 1)], at(address, offset as i32), None);
            }
        }
    }
    b.finish()
}

fn run(m: usize, n: usize, k: usize, barrier: bool, config: &Config) -> (Report, Vec<f32>) {
    let f = gemm(k as i64, n as i64, barrier);
    let element = |i: usize| f16::from_f32(((i * 37 + i / 64) % 9) as f32 - 4.0).to_le_bytes();
    let mut memory = GlobalMemory::new();
    let ids = [memory.alloc(2 * m * k), memory.alloc(2 * n * k), memory.alloc(4 * m * n)];
    memory.write(ids[0], &(0..m * k).flat_map(element).collect::<Vec<_>>());
    memory.write(ids[1], &(0..n * k).flat_map(element).collect::<Vec<_>>());
    let grid = [(n / 128) as u32, (m / 128) as u32, 1];
    let report = tilewright_sim::run(&f, grid, &memory, &ids.map(Argument::Buffer), config).unwrap();
    (report, words_of(&memory.read(ids[2])).into_iter().map(f32::from_bits).collect())
}

#[test]
fn a_pipelined_product_is_right_and_clean_in_every_order() {
    let (m, n, k) = (128, 256, 128);
    let element = |i: usize| ((i * 37 + i / 64) % 9) as f32 - 4.0;
    let mut first = None;
    for seed in [0, 1, 2] {
        let (report, c) = run(m, n, k, true, &Config { seed, ..Config::default() });
        assert!(report.is_clean(), "{:?}", report.problems());
        assert_eq!((report.shared_conflicts, report.mma_count), (0, (m * n * k / 2048) as u64));
        for (i, c) in c.iter().enumerate() {
            let expected: f32 = (0..k).map(|x| element(i / n * k + x) * element(i % n * k + x)).sum();
            assert_eq!(*c, expected, "{i}");
        }
        assert_eq!(*first.get_or_insert_with(|| report.clone()), report);
    }
}

#[test]
fn without_the_barrier_that_frees_a_stage_it_races() {
    let (report, _) = run(128, 128, 128, false, &Config { seed: 5, ..Config::default() });
    let race = report.races.first().expect("a race");
    let mut origins = [race.first.origin.as_str(), race.second.origin.as_str()];
    origins.sort_unstable();
    assert_eq!(origins, ["copy in", "gemm"]);
}

#[test]
fn a_product_of_512_cubed_is_clean() {
    let (report, _) = run(512, 512, 512, true, &Config::default());
    assert!(report.is_clean(), "{:?}", report.problems());
    assert_eq!(report.mma_count, 65536);
}
