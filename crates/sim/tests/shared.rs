//! Shared memory: barriers, races, asynchronous copies, bounds, bank conflicts.

use crate::common::*;
use tilewright_machine::{Memory, ScalarOp, SyncOp};
use tilewright_sim::{Config, GlobalMemory, RaceKind, Report, SimError};
use tilewright_simt::{Builder, Function};

/// Each thread writes its word, and reads that of thread `t ^ flip` after `sync`.
fn exchange(threads: u32, flip: i64, sync: Option<SyncOp>) -> Function {
    let mut b = builder(threads);
    let out = b.pointer_param("out");
    b.add_shared("pad", 16, 16);
    b.add_shared("s", 4 * threads, 16);
    let t = b.thread();
    let mine = b.mul(t, 4);
    let mine = b.add(mine, imm(16));
    let other = b.op(ScalarOp::XorB32, t, flip);
    let theirs = b.mul(other, 4);
    let theirs = b.add(theirs, imm(16));
    b.set_origin("copy in");
    b.store_shared(mine, t);
    if let Some(sync) = sync {
        b.sync(sync);
    }
    b.set_origin("copy out");
    let got = b.load_shared(theirs);
    b.store_global(out, t, got);
    b.finish()
}

fn run_seeded(f: &Function, words: usize, seed: u64) -> Result<(Report, Vec<u32>), SimError> {
    let mut memory = GlobalMemory::new();
    let id = memory.alloc(4 * words);
    let report = run_with(f, &memory, &[id], &Config { seed, ..Config::default() })?;
    Ok((report, words_of(&memory.read(id))))
}

/// Runs one block of a function without parameters.
fn run_alone(f: &Function) -> Result<Report, SimError> {
    run_with(f, &GlobalMemory::new(), &[], &Config::default())
}

#[test]
fn with_a_barrier_results_do_not_depend_on_the_seed() {
    let f = exchange(128, 127, Some(SyncOp::Barrier));
    let (first, words) = run_seeded(&f, 128, 0).unwrap();
    assert!(first.is_clean(), "{:?}", first.problems());
    assert_eq!(words, (0..128).map(|t| t ^ 127).collect::<Vec<_>>());
    for seed in 1..20 {
        assert_eq!(run_seeded(&f, 128, seed).unwrap(), (first.clone(), words.clone()));
    }
}

#[test]
fn without_a_barrier_the_race_names_both_statements() {
    let mut results = std::collections::HashSet::new();
    for seed in 0..10 {
        let (report, words) = run_seeded(&exchange(128, 64, None), 128, seed).unwrap();
        results.insert(words);
        assert_eq!(report.races.len(), 1, "{:?}", report.problems());
        let race = &report.races[0];
        assert_eq!((race.kind, race.buffer.as_str()), (RaceKind::ReadWrite, "s"));
        let mut origins = [race.first.origin.as_str(), race.second.origin.as_str()];
        origins.sort_unstable();
        assert_eq!(origins, ["copy in", "copy out"]);
        assert_eq!(race.first.thread ^ 64, race.second.thread);
        let writer = if race.first.write { &race.first } else { &race.second };
        assert_eq!(race.offset, u64::from(4 * writer.thread));
        // Of each pair of accesses, one comes second.
        assert_eq!(race.count, 128);
        assert!(race.to_string().contains("no barrier between"), "{race}");
    }
    assert!(results.len() > 1, "the order of warps is permuted");
}

#[test]
fn a_warp_barrier_is_enough_within_the_warp_and_only_there() {
    let races = |flip, sync| run_seeded(&exchange(64, flip, sync), 64, 3).unwrap().0.races.len();
    assert_eq!(races(1, None), 1);
    assert_eq!(races(1, Some(SyncOp::WarpBarrier)), 0);
    assert_eq!(races(32, Some(SyncOp::WarpBarrier)), 1);
    assert_eq!(races(0, None), 0);
}

#[test]
fn two_lanes_that_store_to_the_same_byte_race_in_one_instruction() {
    let mut b = builder(32);
    b.add_shared("s", 64, 16);
    let t = b.thread();
    let bit = b.op(ScalarOp::AndB32, t, 1);
    let offset = b.mul(bit, 4);
    b.store_shared(offset, t);
    let report = run_alone(&b.finish()).unwrap();
    assert_eq!(report.races[0].kind, RaceKind::WriteWrite);
    assert_eq!(report.races[0].count, 30);
}

#[test]
fn divergent_barriers_and_deadlocks_are_errors() {
    for (bound, deadlock) in [(40, false), (32, true)] {
        let mut b = builder(64);
        b.set_origin("stage");
        let t = b.thread();
        let some = b.op(ScalarOp::LtI32, t, bound);
        b.branch(value(some), |b| b.sync(SyncOp::Barrier), |_| {});
        let error = run_alone(&b.finish()).unwrap_err();
        if deadlock {
            assert!(matches!(&error, SimError::Deadlock { waiting: 1, exited: 1, .. }), "{error}");
        } else {
            assert!(matches!(&error, SimError::DivergentBarrier { warp: 1, active: 0xff, .. }), "{error}");
        }
        assert!(error.to_string().contains("in `stage`"), "{error}");
    }
}

#[test]
fn a_whole_warp_may_wait_in_a_branch_if_all_do() {
    let mut b = builder(64);
    let t = b.thread();
    let low = b.op(ScalarOp::LtI32, t, 32);
    b.branch(value(low), |b| b.sync(SyncOp::Barrier), |b| b.sync(SyncOp::Barrier));
    assert!(run_alone(&b.finish()).unwrap().is_clean());
}

/// Copies 16 bytes a thread in asynchronously, then `wait`, then stores the first word out.
fn async_copy(threads: u32, wait: impl FnOnce(&mut Builder), guarded: bool) -> (Report, Vec<u32>) {
    let mut b = builder(threads);
    let (src, out) = (b.pointer_param("src"), b.pointer_param("out"));
    b.add_shared("s", 16 * threads, 16);
    let t = b.thread();
    let offset = b.mul(t, 16);
    let (to, from) = (b.shared(offset), b.pointer(src, t, 16));
    let guard = guarded.then(|| value(b.op(ScalarOp::LtI32, t, 2)));
    b.set_origin("async copy");
    b.async_copy(row("cp.async.16"), at(to, 0), at(from, 0), guard);
    wait(&mut b);
    b.set_origin("use");
    let reversed = b.op(ScalarOp::XorB32, t, i64::from(threads) - 1);
    let offset = b.mul(reversed, 16);
    let got = b.load_shared(offset);
    b.store_global(out, t, got);
    let input: Vec<u8> = (0..4 * threads).flat_map(|w| (w + 100).to_le_bytes()).collect();
    run_block(&b.finish(), &[&input], threads as usize)
}

#[test]
fn asynchronous_copies_land_at_the_wait() {
    let expected: Vec<u32> = (0..64).map(|t| 100 + 4 * (63 - t)).collect();
    type Wait = fn(&mut Builder);
    let commit: Wait = |b| {
        b.sync(SyncOp::AsyncCommit);
        b.sync(SyncOp::AsyncWaitGroup(0));
        b.sync(SyncOp::Barrier);
    };
    let all: Wait = |b| {
        b.sync(SyncOp::AsyncWaitAll);
        b.sync(SyncOp::Barrier);
    };
    for wait in [commit, all] {
        let (report, words) = async_copy(64, wait, false);
        assert!(report.is_clean(), "{:?}", report.problems());
        assert_eq!(words, expected);
    }
    let (report, words) = async_copy(64, commit, true);
    assert!(report.is_clean());
    assert_eq!(words, [vec![0; 62], vec![104, 100]].concat());
}

#[test]
fn an_asynchronous_copy_without_its_wait_is_a_race_and_its_data_is_not_there() {
    type Wait = fn(&mut Builder);
    let nothing: Wait = |b| b.sync(SyncOp::Barrier);
    // Nothing is committed, so the group that is waited for is an empty one.
    let uncommitted: Wait = |b| {
        b.sync(SyncOp::AsyncWaitGroup(0));
        b.sync(SyncOp::Barrier);
    };
    let too_few: Wait = |b| {
        b.sync(SyncOp::AsyncCommit);
        b.sync(SyncOp::AsyncWaitGroup(1));
        b.sync(SyncOp::Barrier);
    };
    for wait in [nothing, uncommitted, too_few] {
        let (report, words) = async_copy(64, wait, false);
        assert_eq!(words, [u32::MAX; 64]);
        let [race] = &report.races[..] else { panic!("{:?}", report.problems()) };
        assert_eq!((race.kind, race.count), (RaceKind::AsyncPending, 64));
        assert_eq!((race.first.origin.as_str(), race.second.origin.as_str()), ("async copy", "use"));
        assert!(race.to_string().contains("in flight"), "{race}");
    }
    // With the wait but no barrier, the data is not there for other threads.
    let (report, _) = async_copy(64, |b| b.sync(SyncOp::AsyncWaitAll), false);
    assert_eq!(report.races.len(), 1);
    assert_eq!(report.races[0].kind, RaceKind::ReadWrite);
}

#[test]
fn refilling_a_stage_that_others_still_read_is_a_race() {
    for barrier in [true, false] {
        let mut b = builder(64);
        let src = b.pointer_param("src");
        b.add_shared("s", 1024, 16);
        let t = b.thread();
        let offset = b.mul(t, 16);
        let (to, from) = (b.shared(offset), b.pointer(src, t, 16));
        let other = b.op(ScalarOp::XorB32, offset, 512);
        b.for_loop::<()>(imm(0), imm(3), imm(1), |b, _| {
            b.set_origin("fill");
            b.async_copy(row("cp.async.16"), at(to, 0), at(from, 0), None);
            b.sync(SyncOp::AsyncWaitAll);
            b.sync(SyncOp::Barrier);
            b.set_origin("drain");
            let _ = b.load_shared(other);
            if barrier {
                b.sync(SyncOp::Barrier);
            }
            Ok(())
        })
        .unwrap();
        let mut memory = GlobalMemory::new();
        let id = memory.alloc(1024);
        let report = run_with(&b.finish(), &memory, &[id], &Config::default()).unwrap();
        assert_eq!(report.is_clean(), barrier, "{:?}", report.problems());
    }
}

#[test]
fn accesses_out_of_bounds_read_zeros_write_nothing_and_are_reported() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    b.add_shared("first", 64, 16);
    b.add_shared("second", 64, 128);
    let t = b.thread();
    let offset = b.mul(t, 4);
    b.set_origin("shared");
    b.store_shared(offset, t);
    let got = b.load_shared(offset);
    b.set_origin("global");
    b.store_global(out, t, got);
    let (report, words) = run_block(&b.finish(), &[], 20);
    assert_eq!(words, (0..20).map(|t| if t < 16 { t } else { 0 }).collect::<Vec<_>>());
    let found =
        report.out_of_bounds.iter().map(|f| (f.memory, f.buffer.as_str(), f.offset, f.write, f.count));
    assert_eq!(
        found.collect::<Vec<_>>(),
        [
            ("shared", "first", 64, true, 16),
            ("shared", "first", 64, false, 16),
            ("global", "out", 80, true, 12)
        ]
    );
    assert_eq!(report.out_of_bounds[2].origin, "global");
    assert!(report.races.is_empty() && report.misaligned.is_empty() && report.uninitialised.is_empty());
    assert!(report.problems()[0].contains("out of bounds"));
}

#[test]
fn code_that_forgets_the_base_of_the_window_is_out_of_bounds() {
    let mut b = builder(32);
    b.add_shared("s", 64, 16);
    let array = b.add_array("a", 1);
    b.load(transfer(Memory::Shared, Memory::Register, 4), vec![reg(array, 0)], at(imm(0), 4), None);
    let report = run_alone(&b.finish()).unwrap();
    assert_eq!((report.out_of_bounds.len(), report.out_of_bounds[0].offset), (1, -1020));
}

#[test]
fn misaligned_and_uninitialised_accesses_are_reported() {
    let mut b = builder(32);
    let out = b.pointer_param("out");
    b.add_shared("s", 1024, 16);
    let t = b.thread();
    let array = b.add_array("a", 4);
    let regs: Vec<_> = (0..4).map(|i| reg(array, i)).collect();
    let offset = b.mul(t, 8);
    let shared = b.shared(offset);
    let global = b.pointer(out, t, 4);
    b.set_origin("wide");
    b.load(transfer(Memory::Shared, Memory::Register, 16), regs.clone(), at(shared, 0), None);
    b.load(transfer(Memory::Global, Memory::Register, 8), regs[..2].to_vec(), at(global, 0), None);
    let (report, _) = run_block(&b.finish(), &[], 64);
    let misaligned: Vec<_> = report.misaligned.iter().map(|f| (f.instruction, f.count)).collect();
    assert_eq!(misaligned, [("ld.shared.v4.b32", 16), ("ld.global.v2.b32", 16)]);
    let uninitialised: Vec<_> = report.uninitialised.iter().map(|f| (f.origin.as_str(), f.count)).collect();
    assert_eq!(uninitialised, [("wide", 16)]);
}

#[test]
fn initialisation_is_known_to_the_byte() {
    let mut b = builder(32);
    b.add_shared("s", 64, 16);
    let t = b.thread();
    let offset = b.mul(t, 2);
    let address = b.shared(offset);
    let array = b.add_array("a", 1);
    b.write(reg(array, 0), t);
    b.store(transfer(Memory::Register, Memory::Shared, 1), vec![reg(array, 0)], at(address, 0), None);
    b.load(transfer(Memory::Shared, Memory::Register, 1), vec![reg(array, 0)], at(address, 0), None);
    let f = |b: Builder| run_alone(&b.finish()).unwrap();
    let mut other = builder(32);
    other.add_shared("s", 64, 16);
    assert!(f(other).is_clean());
    b.load(transfer(Memory::Shared, Memory::Register, 2), vec![reg(array, 0)], at(address, 0), None);
    let report = f(b);
    assert_eq!(report.uninitialised.len(), 1);
    assert_eq!((report.uninitialised[0].bytes, report.uninitialised[0].offset), (2, 1));
    assert!(report.races.is_empty(), "neighbouring bytes are of different threads");
}

#[test]
fn bank_conflicts_are_counted_by_statement() {
    let mut b = builder(32);
    b.add_shared("s", 4096, 16);
    let t = b.thread();
    let dense = b.mul(t, 4);
    let strided = b.mul(t, 128);
    b.set_origin("dense");
    b.store_shared(dense, t);
    b.sync(SyncOp::Barrier);
    b.set_origin("strided");
    b.store_shared(strided, t);
    let report = run_alone(&b.finish()).unwrap();
    let counts: Vec<_> = report
        .traffic
        .iter()
        .map(|t| (t.origin.as_str(), t.instruction, t.counts.shared_wavefronts, t.counts.conflicts()))
        .collect();
    assert_eq!(counts, [("dense", "st.shared.b32", 1, 0), ("strided", "st.shared.b32", 32, 31)]);
    assert_eq!((report.shared_requests, report.shared_wavefronts, report.shared_conflicts), (2, 33, 31));
}
