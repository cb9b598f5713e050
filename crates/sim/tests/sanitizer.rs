//! Mistakes that only a simulator sees: races on global memory, registers that nothing has written, lanes of one warp that wait for each
//! other, and what reports say.

use crate::common::*;
use tilewright_machine::{
    DType, MbarrierOp, Memory, MmaRow, ProxyFence, ScalarOp, SwizzleMode, SyncOp, TensorOp, mma_rows,
};
use tilewright_sim::{Argument, Config, GlobalMemory, RaceKind, Report, SimError, run};
use tilewright_simt::{Builder, Function, Operand, Position, Special};

/// Runs some blocks with one buffer of `words` words for each parameter, tensors being vectors of words.
fn run_on(f: &Function, blocks: u32, words: usize, config: &Config) -> Result<(Report, Vec<u32>), SimError> {
    let mut memory = GlobalMemory::new();
    let id = memory.alloc(4 * words);
    let args: Vec<_> = f
        .params
        .iter()
        .map(|p| match p.kind {
            tilewright_simt::FunctionParamKind::TensorMap(_) => tensor(id, &[words as u64], 4),
            _ => Argument::Buffer(id),
        })
        .collect();
    let report = run(f, [blocks, 1, 1], &memory, &args, config)?;
    Ok((report, words_of(&memory.read(id))))
}

fn kinds(f: &Function, blocks: u32, seed: u64) -> Vec<RaceKind> {
    let (report, _) = run_on(f, blocks, 256, &seeded(seed)).unwrap();
    assert!(report.races.iter().all(|r| r.memory == "global" && r.buffer == "x"), "{:?}", report.problems());
    report.races.iter().map(|r| r.kind).collect()
}

fn load_global(b: &mut Builder, param: u32, index: Operand) -> Operand {
    let array = b.add_array("got", 1);
    let address = b.pointer(param, index, 4);
    b.load(transfer(Memory::Global, Memory::Register, 4), vec![reg(array, 0)], at(address, 0), None);
    b.read(reg(array, 0))
}

#[test]
fn threads_of_a_block_race_on_global_memory_without_a_barrier() {
    for (flip, sync, races) in [
        (1, None, true),
        (1, Some(SyncOp::WarpBarrier), false),
        (32, Some(SyncOp::WarpBarrier), true),
        (32, Some(SyncOp::Barrier), false),
        (0, None, false),
    ] {
        let mut b = builder(64);
        let x = b.pointer_param("x");
        let t = b.thread();
        b.set_origin_at("write", Some(Position::Text(40)));
        b.store_global(x, t, t);
        if let Some(sync) = sync {
            b.sync(sync);
        }
        let call = std::panic::Location::caller();
        b.set_origin_at("read", Some(Position::Rust(call)));
        let other = b.op(ScalarOp::XorB32, t, flip);
        let _ = load_global(&mut b, x, other);
        let f = b.finish();
        for seed in 0..5 {
            let wanted: &[_] = if races { &[RaceKind::ReadWrite] } else { &[] };
            assert_eq!(kinds(&f, 1, seed), wanted);
        }
        let (report, _) = run_on(&f, 1, 256, &Config::default()).unwrap();
        for race in &report.races {
            let (first, second) = (&race.first, &race.second);
            let (writer, reader) = if first.write { (first, second) } else { (second, first) };
            assert_eq!(
                (writer.instruction.as_str(), writer.position),
                ("st.global.b32", Some(Position::Text(40)))
            );
            assert_eq!(
                (reader.instruction.as_str(), reader.position),
                ("ld.global.b32", Some(Position::Rust(call)))
            );
            assert_eq!(race.offset, 4 * u64::from(writer.thread));
            assert_eq!(race.suggestion, "add `syncthreads()` between");
            let text = report.problems().join("");
            assert!(text.contains("race on global `x` byte") && text.contains("`write`"), "{text}");
            // A call in Rust has a place without a text.
            assert!(text.contains(&format!("`read` ({call})")), "{text}");
        }
        let off = Config { check_global: false, ..Config::default() };
        assert!(run_on(&f, 1, 256, &off).unwrap().0.is_clean());
    }
}

/// Each block writes its 32 words, at `stride` words from the last block's; then reads those of the next block if it is to.
fn blocks(stride: i64, cluster: u32, reads: bool, sync: Option<SyncOp>) -> Function {
    let mut b = builder(32);
    b.set_cluster(cluster);
    let x = b.pointer_param("x");
    let t = b.thread();
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    let first = b.mul(block, stride);
    let mine = b.add(first, t);
    b.set_origin("write");
    b.store_global(x, mine, t);
    if let Some(sync) = sync {
        b.sync(sync);
    }
    if reads {
        b.set_origin("read");
        let next = b.op(ScalarOp::XorB32, mine, stride);
        let _ = load_global(&mut b, x, next);
    }
    b.finish()
}

#[test]
fn blocks_race_unless_a_barrier_of_their_cluster_orders_them() {
    use RaceKind::{ReadWrite, WriteWrite};
    for seed in 0..5 {
        assert_eq!(kinds(&blocks(32, 1, false, None), 4, seed), []);
        assert_eq!(kinds(&blocks(31, 1, false, None), 4, seed), [WriteWrite]);
        assert_eq!(kinds(&blocks(32, 1, true, Some(SyncOp::Barrier)), 4, seed), [ReadWrite]);
        assert_eq!(kinds(&blocks(32, 2, true, Some(SyncOp::Barrier)), 4, seed), [ReadWrite]);
        assert_eq!(kinds(&blocks(32, 2, true, Some(SyncOp::ClusterBarrier)), 4, seed), []);
        assert_eq!(kinds(&blocks(31, 2, false, None), 2, seed), [WriteWrite]);
    }
    let (report, _) = run_on(&blocks(31, 1, false, None), 4, 256, &Config::default()).unwrap();
    let race = &report.races[0];
    assert_eq!((race.offset, race.first.block, race.second.block), (124, [0, 0, 0], [1, 0, 0]));
    assert_eq!(race.count, 3);
    assert!(race.suggestion.starts_with("nothing orders these blocks"), "{race}");
    assert!(race.to_string().contains("of block [1, 0, 0] writes (`st.global.b32`)"), "{race}");
}

/// Every block does `op` with the same box of 64 words, ones or the block's number; `then` follows in its thread 0.
fn boxes(op: TensorOp, ones: bool, then: impl Fn(&mut Builder, u32)) -> Function {
    let mut b = builder(32);
    let x = b.pointer_param("x");
    b.add_shared_at("box", 1024, 256);
    let map = b.map("x", DType::I32, &[64], SwizzleMode::None);
    let t = b.thread();
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    for half in 0..2 {
        let word = b.mul(t, 4);
        let offset = b.add(word, imm(1024 + 128 * half));
        b.store_shared(offset, if ones { imm(1) } else { block });
    }
    b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    b.sync(SyncOp::Barrier);
    b.only(0, |b| {
        b.set_origin("store");
        let from = b.window(1024);
        b.tma(op, map, &[imm(0)], from, None);
        b.sync(SyncOp::BulkCommit);
        b.set_origin("then");
        then(b, x);
        b.sync(SyncOp::BulkWait(0));
    });
    b.finish()
}

#[test]
fn tensor_copies_race_on_global_memory_and_additions_do_not() {
    use RaceKind::{AsyncPending, AsyncRead, MissingProxyFence, WriteWrite};
    let nothing = |_: &mut Builder, _| {};
    for seed in 0..10 {
        let (report, words) = run_on(&boxes(TensorOp::Add, true, nothing), 4, 64, &seeded(seed)).unwrap();
        assert!(report.is_clean() && words == [4; 64]);
        assert_eq!(kinds(&boxes(TensorOp::Store, true, nothing), 4, seed), [], "the same values");
        assert_eq!(kinds(&boxes(TensorOp::Store, false, nothing), 4, seed), [WriteWrite]);
        // A store's write is done when a wait covers it, not when its source has been read.
        for (wait, wanted) in [
            (SyncOp::BulkWait(0), &[][..]),
            (SyncOp::BulkWaitRead(0), &[AsyncPending]),
            (SyncOp::BulkWait(1), &[AsyncPending]),
        ] {
            let read = boxes(TensorOp::Store, true, |b, x| {
                b.sync(wait);
                let _ = load_global(b, x, imm(3));
            });
            assert_eq!(kinds(&read, 1, seed), wanted, "{wait:?}");
        }
        // Neither is its place free for another write, be it the same thread's.
        for (wait, wanted) in [
            (SyncOp::BulkWait(0), &[][..]),
            (SyncOp::BulkWaitRead(0), &[AsyncPending]),
            (SyncOp::BulkWait(1), &[AsyncPending]),
        ] {
            let write = boxes(TensorOp::Store, true, |b, x| {
                b.sync(wait);
                b.store_global(x, imm(3), imm(9));
            });
            assert_eq!(kinds(&write, 1, seed), wanted, "{wait:?}");
            let add = boxes(TensorOp::Store, true, |b, _| {
                b.sync(wait);
                let from = b.window(1024);
                b.tma(TensorOp::Add, 0, &[imm(0)], from, None);
                b.sync(SyncOp::BulkCommit);
            });
            assert_eq!(kinds(&add, 1, seed), wanted, "{wait:?}");
        }
        // What a thread writes, a tensor copy reads after a fence.
        for (fence, ordered) in [
            (Some(ProxyFence::Global), true),
            (Some(ProxyFence::All), true),
            (Some(ProxyFence::Shared), false),
            (Some(ProxyFence::SharedCluster), false),
            (None, false),
        ] {
            let mut b = builder(32);
            let x = b.pointer_param("x");
            b.add_shared("bar", 8, 8);
            b.add_shared_at("box", 1024, 256);
            let map = b.map("x", DType::I32, &[64], SwizzleMode::None);
            b.init_barriers(&[(0, 1)]);
            b.only(0, |b| {
                b.store_global(x, imm(5), imm(5));
                fence.into_iter().for_each(|fence| b.sync(SyncOp::FenceProxyAsync(fence)));
                let (to, bar) = (b.window(1024), b.window(0));
                b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 256);
                b.tma(TensorOp::Load, map, &[imm(0)], to, Some(bar));
                b.mbarrier_at(MbarrierOp::Wait, bar, 0);
                b.store_global(x, imm(6), imm(6));
            });
            let wanted: &[_] = if ordered { &[] } else { &[MissingProxyFence] };
            assert_eq!(kinds(&b.finish(), 1, seed), wanted);
        }
        // An asynchronous copy may read its source until a wait covers it.
        for wait in [true, false] {
            let mut b = builder(32);
            let x = b.pointer_param("x");
            b.add_shared("s", 16, 16);
            b.only(3, |b| {
                let (to, from) = (b.window(0), b.pointer(x, imm(0), 4));
                b.async_copy(row("cp.async.16"), to, at(from, 0), None);
                if wait {
                    b.sync(SyncOp::AsyncWaitAll);
                }
                b.store_global(x, imm(1), imm(6));
            });
            let wanted: &[_] = if wait { &[] } else { &[AsyncRead] };
            assert_eq!(kinds(&b.finish(), 1, seed), wanted);
        }
    }
}

#[test]
fn a_copy_overwrites_global_memory_after_a_fence_of_its_space() {
    use RaceKind::{MissingProxyFence, ReadWithoutProxyFence};
    for op in [TensorOp::Store, TensorOp::Add] {
        for writes in [true, false] {
            for (fence, behind, ordered) in [
                (None, false, false),
                (Some(ProxyFence::Shared), false, false),
                (Some(ProxyFence::SharedCluster), true, false),
                (Some(ProxyFence::Global), false, true),
                (Some(ProxyFence::All), false, true),
                // A fence covers what its thread knows, not only what it has done.
                (Some(ProxyFence::Global), true, true),
            ] {
                let mut b = builder(64);
                let x = b.pointer_param("x");
                b.add_shared_at("box", 1024, 256);
                let map = b.map("x", DType::I32, &[64], SwizzleMode::None);
                let t = b.thread();
                let word = b.mul(t, 4);
                let offset = b.add(word, imm(1024));
                b.store_shared(offset, imm(1));
                b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
                b.set_origin("touch");
                if writes {
                    b.store_global(x, t, imm(0));
                } else {
                    let _ = load_global(&mut b, x, t);
                }
                let own = |b: &mut Builder, here: bool| {
                    fence.filter(|_| here).into_iter().for_each(|f| b.sync(SyncOp::FenceProxyAsync(f)));
                };
                own(&mut b, !behind);
                b.sync(SyncOp::Barrier);
                b.only(0, |b| {
                    own(b, behind);
                    let from = b.window(1024);
                    b.tma(op, map, &[imm(0)], from, None);
                    b.sync(SyncOp::BulkCommit);
                    b.sync(SyncOp::BulkWait(0));
                });
                let f = b.finish();
                let kind = if writes { MissingProxyFence } else { ReadWithoutProxyFence };
                let wanted: &[_] = if ordered { &[] } else { &[kind] };
                for seed in 0..3 {
                    assert_eq!(kinds(&f, 1, seed), wanted, "{op:?} {fence:?} {behind}");
                }
                let (report, _) = run_on(&f, 1, 256, &Config::default()).unwrap();
                for race in &report.races {
                    let who = if writes { "writing" } else { "reading" };
                    let words = format!("the {who} threads need fence.proxy.async.global before");
                    assert!(race.suggestion.starts_with(&words), "{race}");
                }
            }
        }
    }
}

#[test]
fn what_is_let_pass_hides_nothing_from_a_third() {
    // In turn: what three threads of three warps do to the same words, unordered; whether that is a race.
    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Act {
        Write(i64),
        Read,
    }
    use Act::{Read, Write};
    let cases: [(&[(i64, Act)], bool); 6] = [
        (&[(0, Write(0)), (32, Write(0))], false),
        (&[(0, Write(0)), (32, Write(0)), (32, Write(5))], true),
        (&[(0, Write(0)), (32, Write(0)), (32, Read)], true),
        (&[(0, Write(5)), (0, Write(7)), (32, Write(7))], true),
        (&[(0, Write(7)), (0, Write(7)), (32, Write(7))], false),
        (&[(0, Read), (0, Write(7)), (32, Write(7))], true),
    ];
    for (acts, race) in cases {
        let mut b = builder(96);
        let x = b.pointer_param("x");
        for (thread, act) in acts {
            b.only(*thread, |b| match act {
                Write(value) => b.store_global(x, imm(3), imm(*value)),
                Read => {
                    let _ = load_global(b, x, imm(3));
                }
            });
        }
        let f = b.finish();
        for seed in 0..20 {
            assert_eq!(!kinds(&f, 1, seed).is_empty(), race, "{acts:?}");
        }
    }
}

#[test]
fn an_mbarrier_tells_of_its_copies_and_not_of_their_threads_past() {
    // Thread 32 expects the bytes, thread 0 writes a word and starts the copy of them, thread 64 waits and reads the word.
    for publishes in [false, true] {
        let mut b = builder(96);
        let x = b.pointer_param("x");
        b.add_shared("bar", 8, 8);
        b.add_shared_at("s", 1024, 32);
        b.init_barriers(&[(0, if publishes { 2 } else { 1 })]);
        let (bar, to) = (b.window(0), b.window(1024 + 16));
        b.only(32, |b| b.mbarrier_at(MbarrierOp::ArriveExpect, bar, 16));
        b.only(0, |b| {
            b.store_shared(imm(1024), imm(1));
            let from = b.pointer(x, imm(0), 4);
            b.copy_bulk(tilewright_machine::BulkOp::Load, to, at(from, 0), 16, Some(bar));
            if publishes {
                b.mbarrier_at(MbarrierOp::Arrive, bar, 0);
            }
        });
        b.only(64, |b| {
            b.mbarrier_at(MbarrierOp::Wait, bar, 0);
            let _ = b.load_shared(imm(1024 + 16));
            let _ = b.load_shared(imm(1024));
        });
        let f = b.finish();
        for seed in 0..10 {
            let (report, _) = run_on(&f, 1, 256, &seeded(seed)).unwrap();
            let found: Vec<_> = report.races.iter().map(|r| (r.kind, r.offset)).collect();
            let wanted: &[_] = if publishes { &[] } else { &[(RaceKind::ReadWrite, 0)] };
            assert_eq!(found, wanted, "{:?}", report.problems());
        }
    }
}

#[test]
fn a_tensor_that_shares_memory_is_unwritten_when_its_life_begins() {
    for written in [true, false] {
        let mut b = builder(32);
        let first = b.add_shared_at("first", 0, 128);
        let second = b.add_shared_at("second", 0, 128);
        let t = b.thread();
        let offset = b.mul(t, 4);
        b.set_origin("write the first");
        b.name_shared(first);
        b.store_shared(offset, t);
        b.sync(SyncOp::Barrier);
        if written {
            b.set_origin("write the second");
            b.name_shared(second);
            b.store_shared(offset, t);
        }
        b.set_origin("read the second");
        b.name_shared(second);
        let _ = b.load_shared(offset);
        let report = run_with(&b.finish(), &GlobalMemory::new(), &[], &Config::default()).unwrap();
        let found: Vec<_> = report.uninitialised.iter().map(|f| (f.buffer.as_str(), f.count)).collect();
        let wanted: &[_] = if written { &[] } else { &[("second", 32)] };
        assert_eq!(found, wanted, "{:?}", report.problems());
    }
}

#[test]
fn registers_that_nothing_has_written_are_reported_by_lane() {
    let problems = |build: &dyn Fn(&mut Builder)| {
        let mut b = builder(32);
        b.set_origin("use");
        build(&mut b);
        let f = b.finish();
        let off = Config { check_registers: false, ..Config::default() };
        assert!(run_with(&f, &GlobalMemory::new(), &[], &off).unwrap().is_clean());
        run_with(&f, &GlobalMemory::new(), &[], &Config::default()).unwrap().problems().join("\n")
    };
    let found = problems(&|b| {
        let rc = b.add_array("rc", 3);
        b.write(reg(rc, 0), imm(1));
        let _ = b.read(reg(rc, 0));
        let _ = b.read(reg(rc, 2));
    });
    let words = "thread 0 reads a register of `rc` that nothing has written (register 2 of 3)";
    assert!(found.contains("uninitialised: `mov` in `use`") && found.contains(words), "{found}");
    let found = problems(&|b| {
        let rc = b.add_array("rc", 1);
        let t = b.thread();
        let low = b.op(ScalarOp::LtI32, t, 9);
        b.branch(value(low), |b| b.write(reg(rc, 0), imm(1)), |_| {});
        b.add_shared("s", 128, 16);
        let address = b.mul(t, 4);
        let address = b.shared(address);
        b.store(transfer(Memory::Register, Memory::Shared, 4), vec![reg(rc, 0)], at(address, 0), None);
    });
    assert!(found.contains("`st.shared.b32` in `use`: thread 9 reads a register of `rc`"), "{found}");
    let row: &'static MmaRow = mma_rows().iter().find(|r| r.a == DType::F16 && r.c == DType::F32).unwrap();
    let found = problems(&|b| {
        let arrays = ["rc", "ra", "rb"].map(|name| b.add_array(name, 8));
        let (a, n, c) = row.registers();
        let [c, a, n] = [(0, c), (1, a), (2, n)]
            .map(|(i, count)| (0..count).map(|r| reg(arrays[i], r)).collect::<Vec<_>>());
        a.iter().chain(&n).for_each(|r| b.write(*r, imm(0)));
        b.mma(row, c, a, n);
    });
    assert!(found.contains("reads a register of `rc`") && found.lines().count() == 1, "{found}");
}

#[test]
fn lanes_that_wait_let_those_on_the_other_side_of_a_branch_run() {
    // Lane 5 arrives, or waits; the others do the other. The phases alternate, in a loop, in a nested branch.
    for (arrives_first, nested) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut b = builder(32);
        let out = b.pointer_param("out");
        b.add_shared("bars", 16, 8);
        b.init_barriers(&[(0, 1), (8, 31)]);
        b.sync(SyncOp::WarpBarrier);
        let t = b.thread();
        let one = b.op(if arrives_first { ScalarOp::EqI32 } else { ScalarOp::NeI32 }, t, 5);
        let all = b.op(ScalarOp::GeI32, t, 0);
        let (first, second) = (b.window(0), b.window(8));
        let leads = |b: &mut Builder, step: Operand| {
            let parity = b.op(ScalarOp::AndB32, step, 1);
            b.mbarrier_at(MbarrierOp::Arrive, first, 0);
            b.mbarrier(MbarrierOp::Wait, second, parity);
        };
        let follows = |b: &mut Builder, step: Operand| {
            let parity = b.op(ScalarOp::AndB32, step, 1);
            b.mbarrier(MbarrierOp::Wait, first, parity);
            b.mbarrier_at(MbarrierOp::Arrive, second, 0);
        };
        let ping = |b: &mut Builder| {
            b.for_loop::<()>(imm(0), imm(4), imm(1), |b, step| {
                let step: Operand = step.into();
                if arrives_first {
                    b.branch(value(one), |b| leads(b, step), |b| follows(b, step));
                } else {
                    b.branch(value(one), |b| follows(b, step), |b| leads(b, step));
                }
                Ok(())
            })
            .unwrap();
        };
        if nested {
            b.branch(value(all), ping, |_| {});
        } else {
            ping(&mut b);
        }
        b.sync(SyncOp::WarpBarrier);
        b.store_global(out, t, t);
        let f = b.finish();
        for seed in 0..20 {
            let (report, words) = run_on(&f, 1, 32, &seeded(seed)).unwrap();
            assert!(report.is_clean(), "{:?}", report.problems());
            assert_eq!(words, (0..32).collect::<Vec<_>>());
        }
    }
}

#[test]
fn lanes_on_both_sides_that_wait_for_nobody_are_a_deadlock() {
    let mut b = builder(32);
    b.add_shared("bars", 16, 8);
    b.init_barriers(&[(0, 1), (8, 1)]);
    let t = b.thread();
    let one = b.op(ScalarOp::EqI32, t, 5);
    let (first, second) = (b.window(0), b.window(8));
    let wait = |name: &'static str, bar| {
        move |b: &mut Builder| {
            b.set_origin(name);
            b.mbarrier_at(MbarrierOp::Wait, bar, 0);
        }
    };
    b.branch(value(one), wait("then", first), wait("otherwise", second));
    let error = run_with(&b.finish(), &GlobalMemory::new(), &[], &Config::default()).unwrap_err().to_string();
    assert!(error.starts_with("deadlock: 1 warps wait"), "{error}");
    assert!(error.contains("waits in `then`") && error.contains("waits in `otherwise`"), "{error}");
}

#[test]
fn with_a_seed_asynchronous_copies_land_at_any_moment_before_the_wait() {
    let mut b = builder(32);
    let x = b.pointer_param("x");
    b.add_shared("s", 512, 16);
    let t = b.thread();
    let offset = b.mul(t, 16);
    let to = b.shared(offset);
    let words = b.mul(t, 4);
    let from = b.pointer(x, words, 4);
    b.async_copy(row("cp.async.16"), at(to, 0), at(from, 0), None);
    let steps = b.add_array("steps", 1);
    b.write(reg(steps, 0), imm(0));
    b.for_loop::<()>(imm(0), imm(50), imm(1), |b, i| {
        b.write(reg(steps, 0), i.into());
        Ok(())
    })
    .unwrap();
    let early = b.load_shared(offset);
    b.sync(SyncOp::AsyncWaitAll);
    b.sync(SyncOp::Barrier);
    let index = b.add(t, imm(128));
    b.store_global(x, index, early);
    let f = b.finish();
    let mut seen = [0; 2];
    for seed in 0..20 {
        let (report, words) = run_on(&f, 1, 160, &seeded(seed)).unwrap();
        assert_eq!(report.races[0].kind, RaceKind::AsyncPending);
        let landed = words[128..].iter().filter(|w| **w == 0).count();
        assert!(seed != 0 || landed == 0, "without a seed as late as it may");
        seen[0] += landed;
        seen[1] += 32 - landed;
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
}

#[test]
fn races_name_the_blocks_of_a_cluster() {
    // Each thread reads its word of the peer, which writes it.
    let mut b = builder(32);
    b.set_cluster(2);
    b.add_shared("s", 128, 16);
    let t = b.thread();
    let offset = b.mul(t, 4);
    b.store_shared(offset, t);
    let mine = b.shared(offset);
    let rank: Operand = b.special(Special::ClusterRank).into();
    let peer = b.op(ScalarOp::XorB32, rank, 1);
    let theirs = b.scalar(ScalarOp::Mapa, &[mine, peer]);
    let array = b.add_array("got", 1);
    let load = tilewright_machine::copy_named("ld.shared::cluster.b32").unwrap();
    b.load(load, vec![reg(array, 0)], at(theirs, 0), None);
    b.sync(SyncOp::ClusterBarrier);
    let report = run(&b.finish(), [2, 1, 1], &GlobalMemory::new(), &[], &Config::default()).unwrap();
    let race = &report.races[0];
    assert_ne!(race.first.rank, race.second.rank);
    assert!(race.to_string().contains("(rank 0)") && race.to_string().contains("(rank 1)"), "{race}");
    assert_eq!((race.memory, race.suggestion.as_str()), ("shared", "add a barrier of the cluster between"));
}
