//! Producer/consumer rings and what can be wrong with them; mbarriers, named barriers, clusters, registers of warpgroups.

use crate::common::*;
use tilewright_machine::{
    DType, Descriptor, Major, MbarrierOp, Memory, ProxyFence, ScalarOp, SwizzleMode, SyncOp, TensorOp,
    WgmmaRow, copy_named, wgmmas,
};
use tilewright_sim::{Argument, Config, GlobalMemory, RaceKind, Report, SimError, run};
use tilewright_simt::{Builder, DescriptorValue, Factor, Function, Operand, Reg, Special};

/// Stages of the ring, and steps along k.
const STAGES: i64 = 4;
const STEPS: i64 = 11;
/// Bytes of a stage: 64 rows of A and 32 of B, 64 halves each.
const A_BYTES: i64 = 64 * 128;
const B_BYTES: i64 = 32 * 128;
const STAGE: i64 = A_BYTES + B_BYTES;
const N: i64 = 32;
/// The mbarriers lie before the stages: `full`, then `empty`; the tile of the result behind them.
const FIRST: i64 = 1024;
const RESULT: i64 = FIRST + STAGES * STAGE;

/// Mistake in a ring.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    Nothing,
    NoFullWait,
    NoEmptyWait,
    NoProxyFence,
    EarlyRelease,
    FullParity,
    EmptyParity,
    TooManyBytes,
    TooFewBytes,
    EarlyRead,
    NoArrive,
    OneArrives,
    /// None: one thread releases a stage for the warpgroup that has multiplied.
    OneForAll,
    NoWgmmaFence,
}

/// `d[m][n] = Σ a[m][k] · b[n][k]`: warp 4 loads, warps 0 to 3 multiply, and store the result by a tensor copy.
/// `lagging` keeps one group of products in flight.
fn ring(fault: Fault, lagging: bool) -> Function {
    let row = wgmmas(DType::F16, DType::F16, DType::F32, false).find(|r| r.n == N).unwrap();
    let mut f = builder(256);
    f.add_shared_at("full", 0, 8 * STAGES as u32);
    f.add_shared_at("empty", 8 * STAGES as u32, 8 * STAGES as u32);
    f.add_shared_at("stages", FIRST as u32, (STAGES * STAGE) as u32);
    f.add_shared_at("result", RESULT as u32, 64 * N as u32 * 4);
    let a = f.map("a", DType::F16, &[64, 64], SwizzleMode::B128);
    let b = f.map("b", DType::F16, &[64, 32], SwizzleMode::B128);
    let d = f.map("d", DType::F32, &[32, 64], SwizzleMode::None);
    let arrivals = if fault == Fault::OneForAll { 1 } else { 4 };
    let barriers: Vec<(i64, i64)> =
        (0..STAGES).map(|s| (8 * s, 1)).chain((0..STAGES).map(|s| (8 * (STAGES + s), arrivals))).collect();
    f.init_barriers(&barriers);
    let t = f.thread();
    let acc = f.add_array("acc", row.registers().1);
    let acc: Vec<Reg> = (0..row.registers().1).map(|i| reg(acc, i)).collect();
    let base: Operand = f.special(Special::SharedBase).into();
    let (producer, loads) = (f.op(ScalarOp::GeI32, t, 128), f.op(ScalarOp::LtI32, t, 160));
    let lane = f.op(ScalarOp::AndB32, t, 31);
    let first = f.op(ScalarOp::EqI32, lane, 0);
    // The stage's mbarriers and bytes, and the parity of its round.
    let stage = |f: &mut Builder, step: Operand| {
        let (index, round) = (f.op(ScalarOp::AndB32, step, STAGES - 1), f.op(ScalarOp::ShrU32, step, 2));
        let offset = f.mul(index, 8);
        let bars = f.add(base, offset);
        let offset = f.mul(index, STAGE);
        let bytes = f.add(base, offset);
        (bars, bytes, f.op(ScalarOp::AndB32, round, 1))
    };
    f.branch(
        value(producer),
        |f| {
            let elected = f.elect();
            let elected = f.scalar(ScalarOp::AndPred, &[elected.into(), loads]);
            f.branch(
                value(elected),
                |f| {
                    f.for_loop::<()>(imm(0), imm(STEPS), imm(1), |f, step| {
                        let (bars, bytes, parity) = stage(f, step.into());
                        let (full, empty) = (at(bars, 0), at(bars, 8 * STAGES as i32));
                        f.set_origin("wait for an empty stage");
                        let free = match fault {
                            Fault::EmptyParity => parity,
                            _ => f.op(ScalarOp::XorB32, parity, 1),
                        };
                        if fault != Fault::NoEmptyWait {
                            f.mbarrier(MbarrierOp::Wait, empty, free);
                        }
                        f.set_origin("load");
                        let expected = match fault {
                            Fault::TooManyBytes => STAGE + 128,
                            Fault::TooFewBytes => STAGE - B_BYTES,
                            _ => STAGE,
                        };
                        f.mbarrier_at(MbarrierOp::ArriveExpect, full, expected);
                        let k = f.mul(step.into(), 64);
                        f.tma(TensorOp::Load, a, &[k, imm(0)], at(bytes, FIRST as i32), Some(full));
                        let to = at(bytes, (FIRST + A_BYTES) as i32);
                        f.tma(TensorOp::Load, b, &[k, imm(0)], to, Some(full));
                        Ok(())
                    })
                    .unwrap();
                },
                |_| {},
            );
        },
        |f| {
            let release = |f: &mut Builder, empty| {
                f.set_origin("release");
                let arrive = |f: &mut Builder| f.mbarrier_at(MbarrierOp::Arrive, empty, 0);
                match fault {
                    Fault::NoArrive => {}
                    Fault::OneArrives | Fault::OneForAll => f.only(0, arrive),
                    _ => f.branch(value(first), arrive, |_| {}),
                }
            };
            f.for_loop::<()>(imm(0), imm(STEPS), imm(1), |f, step| {
                let (bars, bytes, parity) = stage(f, step.into());
                let (full, empty) = (at(bars, 0), at(bars, 8 * STAGES as i32));
                f.set_origin("wait for a full stage");
                let filled = match fault {
                    Fault::FullParity => f.op(ScalarOp::XorB32, parity, 1),
                    _ => parity,
                };
                if fault != Fault::NoFullWait {
                    f.mbarrier(MbarrierOp::Wait, full, filled);
                }
                if fault != Fault::NoWgmmaFence {
                    f.sync(SyncOp::WgmmaFence);
                }
                f.set_origin("multiply");
                multiply(f, row, &acc, bytes, step.into());
                f.sync(SyncOp::WgmmaCommit);
                if fault == Fault::EarlyRead {
                    let _ = f.read(acc[0]);
                }
                if fault == Fault::EarlyRelease {
                    release(f, empty);
                    f.sync(SyncOp::WgmmaWait(0));
                } else if lagging {
                    f.sync(SyncOp::WgmmaWait(1));
                    let later = f.op(ScalarOp::GeI32, step.into(), 1);
                    f.branch(
                        value(later),
                        |f| {
                            let before = f.op(ScalarOp::SubI32, step.into(), 1);
                            let (bars, _, _) = stage(f, before);
                            release(f, at(bars, 8 * STAGES as i32));
                        },
                        |_| {},
                    );
                } else {
                    f.sync(SyncOp::WgmmaWait(0));
                    release(f, empty);
                }
                Ok(())
            })
            .unwrap();
            f.sync(SyncOp::WgmmaWait(0));
            f.set_origin("write the result");
            let warp = f.op(ScalarOp::ShrU32, t, 5);
            let pairs = f.op(ScalarOp::AndB32, lane, 3);
            let line = f.op(ScalarOp::ShrU32, lane, 2);
            let rows = f.mul(warp, 16);
            let line = f.add(rows, line);
            let (line, column) = (f.mul(line, N * 4), f.mul(pairs, 8));
            let place = f.add(line, column);
            let place = f.add(place, base);
            for (i, pair) in acc.chunks(2).enumerate() {
                let offset = RESULT + 32 * (i as i64 / 2) + 8 * N * 4 * (i as i64 % 2);
                f.store(
                    transfer(Memory::Register, Memory::Shared, 8),
                    pair.to_vec(),
                    at(place, offset as i32),
                    None,
                );
            }
            if fault != Fault::NoProxyFence {
                f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
            }
            f.sync(SyncOp::NamedBarrier { id: 1, threads: 128 });
            f.only(0, |f| {
                f.set_origin("store the result");
                f.tma(TensorOp::Store, d, &[imm(0), imm(0)], at(base, RESULT as i32), None);
                f.sync(SyncOp::BulkCommit);
                f.sync(SyncOp::BulkWait(0));
            });
        },
    );
    f.finish()
}

/// The four products of a stage.
fn multiply(f: &mut Builder, row: &'static WgmmaRow, acc: &[Reg], bytes: Operand, step: Operand) {
    let descriptor = Descriptor { start: 0, leading: 16, stride: 1024, swizzle: SwizzleMode::B128 }.encode();
    let later = f.op(ScalarOp::NeI32, step, 0);
    for k in 0..4 {
        let mut factor = |offset: i64| {
            let address = f.add(bytes, imm(FIRST + offset + 32 * k));
            let start = f.op(ScalarOp::ShrU32, address, 4);
            let low = f.op(ScalarOp::OrB32, start, i64::from(descriptor as u32));
            let descriptor = DescriptorValue { low, high: (descriptor >> 32) as u32 };
            Factor::Shared { descriptor, major: Major::K }
        };
        let (left, right) = (factor(0), factor(A_BYTES));
        let accumulate = if k == 0 { later } else { Operand::Imm(1) };
        f.wgmma(row, acc.to_vec(), left, right, accumulate);
    }
}

/// Runs a ring; the report, and whether the result is right.
fn run_ring(f: &Function, seed: u64) -> Result<(Report, bool), SimError> {
    run_ring_with(f, &seeded(seed))
}

fn run_ring_with(f: &Function, config: &Config) -> Result<(Report, bool), SimError> {
    let k = STEPS as usize * 64;
    let mut next = random(17);
    let mut values = |count: usize| -> Vec<i32> { (0..count).map(|_| next() as i32 % 5 - 2).collect() };
    let (a, b) = (values(64 * k), values(N as usize * k));
    let bytes = |values: &[i32]| -> Vec<u8> {
        values.iter().flat_map(|v| (DType::F16.encode(f64::from(*v)) as u16).to_le_bytes()).collect()
    };
    let mut memory = GlobalMemory::new();
    let ids = [memory.alloc(2 * a.len()), memory.alloc(2 * b.len()), memory.alloc(64 * N as usize * 4)];
    memory.write(ids[0], &bytes(&a));
    memory.write(ids[1], &bytes(&b));
    let args = [
        tensor(ids[0], &[k as u64, 64], 2),
        tensor(ids[1], &[k as u64, N as u64], 2),
        tensor(ids[2], &[N as u64, 64], 4),
    ];
    let report = run(f, [1, 1, 1], &memory, &args, config)?;
    let found = words_of(&memory.read(ids[2]));
    let right = (0..64 * N as usize).all(|i| {
        let (m, n) = (i / N as usize, i % N as usize);
        let sum: i32 = (0..k).map(|j| a[m * k + j] * b[n * k + j]).sum();
        f32::from_bits(found[i]) == sum as f32
    });
    Ok((report, right))
}

#[test]
fn a_ring_is_right_and_clean_in_every_order() {
    for (fault, lagging) in [(Fault::Nothing, false), (Fault::Nothing, true), (Fault::OneForAll, true)] {
        let f = ring(fault, lagging);
        for seed in 0..100 {
            let (report, right) = run_ring(&f, seed).unwrap();
            assert!(report.is_clean(), "{seed} {:?}", report.problems());
            assert!(right, "{seed}");
            assert_eq!(report.wgmma_count, 4 * STEPS as u64);
            assert_eq!(report.tma_bytes, (STEPS * STAGE + 64 * N * 4) as u64);
        }
    }
}

#[test]
fn a_ring_overlaps_loads_and_products() {
    let cycles = run_ring(&ring(Fault::Nothing, true), 0).unwrap().0.estimated_cycles;
    // A step alone, from its load to its release, takes over 800.
    assert!((1500..400 * STEPS as u64).contains(&cycles), "{cycles}");
}

#[test]
fn profiles_and_traces_agree_with_the_counts_in_every_order() {
    let f = ring(Fault::Nothing, true);
    for seed in 0..20 {
        let config = Config { profile: true, trace: Some(0), ..seeded(seed) };
        let (report, right) = run_ring_with(&f, &config).unwrap();
        assert!(right && report.is_clean(), "{seed}");
        let plain = run_ring(&f, seed).unwrap().0;
        assert_eq!(plain.estimated_cycles, report.estimated_cycles);
        assert!(plain.profile.is_empty() && plain.trace.is_none());
        assert_eq!(report.profile.iter().map(|p| p.calls).sum::<u64>(), report.instructions);
        let products = |p: &&tilewright_sim::Profile| p.class == tilewright_sim::Class::Tensor;
        let calls: u64 = report.profile.iter().filter(products).map(|p| p.calls).sum();
        assert_eq!(calls, 4 * report.wgmma_count);
        let moved: u64 = report.profile.iter().map(|p| p.bytes.unit_read + p.bytes.unit_written).sum();
        assert_eq!(moved, report.tma_bytes);
        let trace = report.trace.unwrap();
        assert!(!trace.truncated);
        for pair in trace.events.windows(2).filter(|p| p[0].track == p[1].track) {
            assert!(pair[0].start + pair[0].cycles <= pair[1].start, "{seed}: {pair:?}");
        }
        let of = |category| trace.events.iter().filter(move |e| e.category == category);
        assert_eq!(of("product").count() as u64, report.wgmma_count);
        assert_eq!(of("copy").map(|e| e.args.bytes).sum::<u64>(), report.tma_bytes);
        // No product begins before the first stage is there.
        let there = of("copy").map(|e| e.args.lands).min().unwrap();
        assert!(of("product").all(|e| e.start >= there), "{seed}");
        assert!(trace.events.iter().all(|e| e.start + e.cycles <= report.estimated_cycles), "{seed}");
    }
}

#[test]
fn what_is_wrong_with_a_ring_is_reported_in_every_order() {
    use RaceKind::{AsyncRead, MissingProxyFence};
    let race = |fault, kind: RaceKind, origins: [&str; 2]| {
        let f = ring(fault, false);
        for seed in 0..30 {
            let (report, _) = run_ring(&f, seed).unwrap();
            let found = report.races.iter().find(|r| r.kind == kind);
            let found = found.unwrap_or_else(|| panic!("{fault:?} {seed}: {:?}", report.problems()));
            assert_eq!([found.first.origin.as_str(), found.second.origin.as_str()], origins, "{fault:?}");
        }
    };
    race(Fault::NoProxyFence, MissingProxyFence, ["write the result", "store the result"]);
    race(Fault::EarlyRelease, AsyncRead, ["multiply", "load"]);
    for seed in 0..30 {
        let (report, _) = run_ring(&ring(Fault::EarlyRead, false), seed).unwrap();
        let words = "register 0 of `acc` is read while the wgmma in `multiply` owns it";
        assert!(report.protocol.iter().any(|m| m.message.contains(words)), "{:?}", report.problems());
        let (report, _) = run_ring(&ring(Fault::NoWgmmaFence, false), seed).unwrap();
        assert!(report.problems()[0].contains("no wgmma.fence"), "{:?}", report.problems());
    }
}

#[test]
fn rings_that_lose_their_step_stop_or_race() {
    // Either a race is found, or nothing can go on.
    for fault in [Fault::NoEmptyWait, Fault::TooFewBytes, Fault::OneArrives] {
        for seed in 0..30 {
            match run_ring(&ring(fault, false), seed) {
                Ok((report, _)) => {
                    assert!(!report.races.is_empty(), "{fault:?} {seed}: {:?}", report.problems())
                }
                Err(SimError::Deadlock { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn rings_that_hang_say_who_waits_for_what() {
    let cases: [(Fault, &[&str]); 4] = [
        (
            Fault::EmptyParity,
            &[
                "warp 4 of block [0, 0, 0] waits in `wait for an empty stage` for the mbarrier at byte 0 of `empty`, parity 0",
            ],
        ),
        (
            Fault::NoArrive,
            &["at byte 0 of `empty`, parity 0: 0 phases have ended, the next lacks 4 arrivals and no bytes"],
        ),
        (
            Fault::TooManyBytes,
            &[
                "warps 0, 1, 2, 3 of block [0, 0, 0] wait in `wait for a full stage` for the mbarrier at byte 0 of `full`, parity 0: \
                 0 phases have ended, the next lacks 0 arrivals and 128 bytes",
                "wait for an empty stage",
            ],
        ),
        (Fault::OneArrives, &["lacks 3 arrivals and no bytes", "waits in `wait for an empty stage`"]),
    ];
    for (fault, words) in cases {
        for seed in 0..10 {
            let error = run_ring(&ring(fault, false), seed).unwrap_err();
            assert!(matches!(error, SimError::Deadlock { .. }), "{error}");
            let text = error.to_string();
            words.iter().for_each(|w| assert!(text.contains(w), "{fault:?} {seed}: {text}"));
        }
    }
    // A consumer that does not wait, or for the wrong parity, uses what has not come: it is in flight, or not even that; or the
    // whole ring stops.
    for (fault, seed) in (0..20).flat_map(|seed| [(Fault::NoFullWait, seed), (Fault::FullParity, seed)]) {
        match run_ring(&ring(fault, false), seed) {
            Ok((report, _)) => {
                let known =
                    |p: &String| p.contains("no wait covers it yet") || p.starts_with("uninitialised");
                assert!(report.problems().iter().any(known), "{fault:?} {seed} {:?}", report.problems());
            }
            Err(error) => assert!(matches!(error, SimError::Deadlock { .. }), "{error}"),
        }
    }
}

fn alone(f: &Function, config: &Config) -> Result<Report, SimError> {
    run_with(f, &GlobalMemory::new(), &[], config)
}

#[test]
fn named_barriers_order_those_that_take_part() {
    // Two pairs of warps exchange words, each pair at its own barrier.
    for (threads, id_by_pair) in [(64, true), (128, false)] {
        let mut b = builder(128);
        b.add_shared("s", 512, 16);
        let t = b.thread();
        let (mine, other) = (b.mul(t, 4), b.op(ScalarOp::XorB32, t, 32));
        let theirs = b.mul(other, 4);
        b.store_shared(mine, t);
        let low = b.op(ScalarOp::LtI32, t, 64);
        b.branch(
            value(low),
            |b| b.sync(SyncOp::NamedBarrier { id: 1, threads }),
            |b| b.sync(SyncOp::NamedBarrier { id: if id_by_pair { 2 } else { 1 }, threads }),
        );
        let _ = b.load_shared(theirs);
        let f = b.finish();
        for seed in 0..20 {
            let report = alone(&f, &seeded(seed)).unwrap();
            assert!(report.is_clean(), "{:?}", report.problems());
        }
    }
    let across = |threads: u32, other: u32| {
        let mut b = builder(128);
        b.add_shared("s", 512, 16);
        b.set_origin("exchange");
        let t = b.thread();
        let (mine, flipped) = (b.mul(t, 4), b.op(ScalarOp::XorB32, t, 64));
        let theirs = b.mul(flipped, 4);
        b.store_shared(mine, t);
        let low = b.op(ScalarOp::LtI32, t, 64);
        b.branch(
            value(low),
            |b| b.sync(SyncOp::NamedBarrier { id: 1, threads }),
            |b| b.sync(SyncOp::NamedBarrier { id: other, threads: if other == 1 { 96 } else { threads } }),
        );
        let _ = b.load_shared(theirs);
        alone(&b.finish(), &Config::default())
    };
    assert_eq!(across(64, 2).unwrap().races[0].kind, RaceKind::ReadWrite);
    let error = across(96, 2).unwrap_err().to_string();
    assert!(error.contains("barrier 1: 64 of 96 threads are there"), "{error}");
    let error = across(128, 1).map(|r| r.problems().join("\n")).unwrap_or_else(|e| e.to_string());
    assert!(error.contains("for 96 threads, and others there for 128"), "{error}");
    let mut b = builder(128);
    b.sync(SyncOp::NamedBarrier { id: 16, threads: 128 });
    assert!(matches!(alone(&b.finish(), &Config::default()), Err(SimError::Invalid(_))));
}

/// Each block writes its shared words and reads those of the next of its cluster.
fn neighbours(cluster: u32, before: bool, after: bool) -> Function {
    let mut b = builder(64);
    b.set_cluster(cluster);
    let out = b.pointer_param("out");
    b.add_shared("s", 256, 16);
    let t = b.thread();
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    let rank: Operand = b.special(Special::ClusterRank).into();
    let index = b.mul(block, 64);
    let index = b.add(index, t);
    let (mine, theirs) = (b.mul(t, 4), b.op(ScalarOp::XorB32, t, 63));
    b.set_origin("fill");
    b.store_shared(mine, index);
    if before {
        b.sync(SyncOp::ClusterBarrier);
    } else {
        b.sync(SyncOp::Barrier);
    }
    let next = b.add(rank, imm(1));
    let next = b.op(ScalarOp::RemI32, next, i64::from(cluster));
    let theirs = b.mul(theirs, 4);
    let local = b.shared(theirs);
    let peer = b.scalar(ScalarOp::Mapa, &[local, next]);
    let array = b.add_array("got", 1);
    b.set_origin("peek");
    b.load(copy_named("ld.shared::cluster.b32").unwrap(), vec![reg(array, 0)], at(peer, 0), None);
    let got = b.read(reg(array, 0));
    if after {
        b.sync(SyncOp::ClusterBarrier);
    }
    b.store_global(out, index, got);
    b.finish()
}

fn run_neighbours(f: &Function, seed: u64) -> (Report, Vec<u32>) {
    let mut memory = GlobalMemory::new();
    let out = memory.alloc(4 * 64 * 8);
    let report = run(f, [8, 1, 1], &memory, &[Argument::Buffer(out)], &seeded(seed)).unwrap();
    (report, words_of(&memory.read(out)))
}

#[test]
fn blocks_of_a_cluster_read_each_other() {
    for (cluster, seed) in [(2, 0), (4, 1), (8, 2), (2, 3), (4, 4), (1, 5)] {
        let (report, words) = run_neighbours(&neighbours(cluster, true, true), seed);
        assert!(report.is_clean(), "{:?}", report.problems());
        for (i, word) in words.iter().enumerate() {
            let (block, thread) = (i as u32 / 64, i as u32 % 64);
            let next = block / cluster * cluster + (block + 1) % cluster;
            assert_eq!(*word, 64 * next + (63 - thread), "{cluster} {i}");
        }
    }
    let (report, _) = run_neighbours(&neighbours(2, false, true), 0);
    assert!(!report.races.is_empty() || !report.uninitialised.is_empty());
    let mut left_early = false;
    for seed in 0..30 {
        let (report, _) = run_neighbours(&neighbours(2, true, false), seed);
        left_early |= report.problems().iter().any(|p| p.contains("of the cluster, which has ended"));
    }
    assert!(left_early, "a block that leaves while others read it");
}

#[test]
fn plain_accesses_do_not_reach_peers() {
    let mut b = builder(32);
    b.set_cluster(2);
    b.add_shared("s", 256, 16);
    let t = b.thread();
    let base = b.special(Special::SharedBase).into();
    let peer = b.scalar(ScalarOp::Mapa, &[base, imm(1)]);
    let offset = b.mul(t, 4);
    let address = b.add(peer, offset);
    let array = b.add_array("a", 1);
    b.write(reg(array, 0), t);
    b.store(transfer(Memory::Register, Memory::Shared, 4), vec![reg(array, 0)], at(address, 0), None);
    b.sync(SyncOp::ClusterBarrier);
    let f = b.finish();
    let report = run(&f, [2, 1, 1], &GlobalMemory::new(), &[], &Config::default()).unwrap();
    // For block 1 it is an address of its own.
    assert_eq!(report.out_of_bounds.iter().map(|f| f.count).collect::<Vec<_>>(), [32]);
}

#[test]
fn peers_are_told_by_mbarriers() {
    use MbarrierOp::{ArriveCluster, ArrivePeer, Wait, WaitCluster};
    // Only a release to the cluster and a wait for it order what was written.
    let ways = [ArriveCluster, ArrivePeer].into_iter().flat_map(|a| [WaitCluster, Wait].map(|w| (a, w)));
    for ((arrive, wait), seed) in ways.flat_map(|way| (0..10).map(move |seed| (way, seed))) {
        let mut b = builder(32);
        b.set_cluster(2);
        let out = b.pointer_param("out");
        b.add_shared("bar", 8, 8);
        b.add_shared_at("s", 128, 128);
        b.init_barriers(&[(0, 32)]);
        b.sync(SyncOp::ClusterBarrier);
        let t = b.thread();
        let rank: Operand = b.special(Special::ClusterRank).into();
        let base = b.special(Special::SharedBase).into();
        let other = b.op(ScalarOp::XorB32, rank, 1);
        let peer = b.scalar(ScalarOp::Mapa, &[base, other]);
        let offset = b.mul(t, 4);
        let offset = b.add(offset, imm(128));
        let word = b.mul(rank, 100);
        let word = b.add(word, t);
        b.store_shared(offset, word);
        b.mbarrier_at(arrive, at(peer, 0), 0);
        let bar = b.window(0);
        b.mbarrier_at(wait, bar, 0);
        let array = b.add_array("got", 1);
        let address = b.add(peer, offset);
        b.load(copy_named("ld.shared::cluster.b32").unwrap(), vec![reg(array, 0)], at(address, 0), None);
        let got = b.read(reg(array, 0));
        let index = b.mul(rank, 32);
        let index = b.add(index, t);
        b.store_global(out, index, got);
        b.sync(SyncOp::ClusterBarrier);
        let mut memory = GlobalMemory::new();
        let out = memory.alloc(256);
        let f = b.finish();
        let report = run(&f, [2, 1, 1], &memory, &[Argument::Buffer(out)], &seeded(seed)).unwrap();
        let ordered = (arrive, wait) == (ArriveCluster, WaitCluster);
        assert_eq!(report.is_clean(), ordered, "{arrive:?} {wait:?}: {:?}", report.problems());
        assert!(report.races.iter().all(|race| race.kind == RaceKind::ReadWrite));
        let expected = (100..132).chain(0..32).collect::<Vec<u32>>();
        assert_eq!(words_of(&memory.read(out)), expected);
    }
}

#[test]
fn a_cluster_barrier_that_a_block_does_not_reach_is_a_deadlock() {
    let mut b = builder(32);
    b.set_cluster(2);
    b.set_origin("meet");
    let rank: Operand = b.special(Special::ClusterRank).into();
    let first = b.op(ScalarOp::EqI32, rank, 0);
    b.branch(value(first), |b| b.sync(SyncOp::ClusterBarrier), |_| {});
    let f = b.finish();
    let error = run(&f, [4, 1, 1], &GlobalMemory::new(), &[], &Config::default()).unwrap_err();
    assert!(matches!(error, SimError::Deadlock { waiting: 1, exited: 1, .. }), "{error}");
    let words = "for the barrier of the cluster: 1 of 2 warps are there, 1 have finished";
    assert!(error.to_string().contains(words), "{error}");
}

#[test]
fn an_mbarrier_is_used_after_its_initialisation() {
    for barrier in [true, false] {
        let mut b = builder(64);
        b.add_shared("bar", 8, 8);
        let bar = b.window(0);
        b.only(0, |b| b.mbarrier_at(MbarrierOp::Init, bar, 64));
        if barrier {
            b.sync(SyncOp::Barrier);
        }
        b.mbarrier_at(MbarrierOp::Arrive, bar, 0);
        b.mbarrier_at(MbarrierOp::Wait, bar, 0);
        let f = b.finish();
        let mut found = 0;
        for seed in 0..10 {
            let problems = match alone(&f, &seeded(seed)) {
                Ok(report) => report.problems(),
                Err(SimError::Deadlock { found, .. }) => found.problems(),
                Err(error) => panic!("{error}"),
            };
            found += usize::from(!problems.is_empty());
        }
        assert_eq!(found, if barrier { 0 } else { 10 });
    }
}

#[test]
fn peers_and_units_see_an_mbarrier_after_its_fence() {
    for fence in [Some(SyncOp::FenceMbarrierInit), Some(SyncOp::FenceProxyAsync(ProxyFence::Shared)), None] {
        let mut b = builder(32);
        b.set_cluster(2);
        b.add_shared("bar", 8, 8);
        let bar = b.window(0);
        b.only(0, |b| {
            b.mbarrier_at(MbarrierOp::Init, bar, 1);
            fence.into_iter().for_each(|f| b.sync(f));
        });
        b.sync(SyncOp::ClusterBarrier);
        let rank: Operand = b.special(Special::ClusterRank).into();
        let other = b.op(ScalarOp::XorB32, rank, 1);
        let peer = b.scalar(ScalarOp::Mapa, &[bar.base, other]);
        b.only(0, |b| b.mbarrier_at(MbarrierOp::ArrivePeer, at(peer, 0), 0));
        b.mbarrier_at(MbarrierOp::Wait, bar, 0);
        let report = run(&b.finish(), [2, 1, 1], &GlobalMemory::new(), &[], &Config::default()).unwrap();
        let problems = report.problems().join("\n");
        assert_eq!(problems.contains("needs fence.mbarrier_init"), fence.is_none(), "{problems}");
        assert_eq!(problems.is_empty(), fence.is_some(), "{problems}");
    }
}

/// Three warpgroups that set their numbers of registers: (more, how many) each.
fn registers(sets: [&[(bool, u32)]; 3]) -> Result<Report, SimError> {
    let mut b = builder(384);
    let t = b.thread();
    for (group, sets) in sets.into_iter().enumerate() {
        let group_of = b.op(ScalarOp::ShrU32, t, 7);
        let here = b.op(ScalarOp::EqI32, group_of, group as i64);
        b.open_branch();
        for (more, registers) in sets {
            b.set_origin(format!("registers {registers}"));
            b.sync(SyncOp::SetMaxRegisters { more: *more, registers: *registers });
        }
        b.close_branch(value(here));
    }
    alone(&b.finish(), &Config::default())
}

#[test]
fn warpgroups_exchange_registers_through_the_pool() {
    // 384 threads begin with 168 each.
    let consumer: &[_] = &[(true, 240)];
    assert!(registers([&[(false, 24)], consumer, consumer]).unwrap().is_clean());
    assert!(registers([consumer, consumer, &[(false, 24)]]).unwrap().is_clean());
    assert!(registers([&[(false, 40), (true, 64)], &[(false, 144)], &[]]).unwrap().is_clean());
    let error = registers([&[(false, 32)], consumer, consumer]).unwrap_err().to_string();
    assert!(error.contains("for 240 registers a thread: a warp wants 2304 more"), "{error}");
    let problems = |sets| registers([sets, &[], &[]]).unwrap().problems().join("\n");
    let found = problems(&[(false, 40), (false, 64)]);
    assert!(found.contains("keeps 64 registers, but each thread has only 40"), "{found}");
    assert!(problems(&[(true, 64)]).contains("has 168 already"));
    assert!(matches!(registers([&[(false, 44)], &[], &[]]), Err(SimError::Invalid(_))));
}

#[test]
fn the_lowest_active_lane_is_elected() {
    let mut b = builder(64);
    let out = b.pointer_param("out");
    let t = b.thread();
    let high = b.op(ScalarOp::GeI32, t, 5);
    b.branch(
        value(high),
        |b| {
            let elected = b.elect();
            b.branch(elected, |b| b.store_global(out, t, imm(1)), |_| {});
        },
        |_| {},
    );
    let (_, words) = run_block(&b.finish(), &[], 64);
    let elected: Vec<_> = (0..64).filter(|t| words[*t] == 1).collect();
    assert_eq!(elected, [5, 32]);
}

/// Warp 1 hands warp 0 four turns: each of its threads arrives at `full`, and one thread of warp 0 gives the turn back.
fn turns(arrivals: i64, meets: bool) -> Function {
    let mut f = builder(64);
    f.add_shared_at("full", 0, 8);
    f.add_shared_at("empty", 8, 8);
    f.init_barriers(&[(0, arrivals), (8, 1)]);
    let (full, empty) = (f.window(0), f.window(8));
    let t = f.thread();
    let gives = f.op(ScalarOp::GeI32, t, 32);
    let turn = |f: &mut Builder, gives: bool| {
        f.for_loop::<()>(imm(0), imm(4), imm(1), |f, step| {
            let parity = f.op(ScalarOp::AndB32, step.into(), 1);
            if gives {
                f.set_origin("give a turn");
                let free = f.op(ScalarOp::XorB32, parity, 1);
                f.mbarrier(MbarrierOp::Wait, empty, free);
                f.mbarrier_at(MbarrierOp::Arrive, full, 0);
            } else {
                f.set_origin("take a turn");
                f.mbarrier(MbarrierOp::Wait, full, parity);
                if meets {
                    f.sync(SyncOp::WarpBarrier);
                }
                f.only(0, |f| f.mbarrier_at(MbarrierOp::Arrive, empty, 0));
            }
            Ok(())
        })
        .unwrap();
    };
    f.branch(value(gives), |f| turn(f, true), |f| turn(f, false));
    f.finish()
}

#[test]
fn the_phase_of_an_arrival_or_a_wait_depends_on_no_order() {
    let early = "it may count for the phase before, since it is not ordered after an arrival of that phase (in `give a turn`)";
    let late = "it may end a phase while a thread still waits for the phase before, since it is not ordered after that wait (in `take a turn`)";
    for seed in 0..30 {
        let report = alone(&turns(32, true), &seeded(seed)).unwrap();
        assert!(report.is_clean(), "{seed}: {:?}", report.problems());
        // A thread still waits when thread 0 has given its turn back.
        let report = alone(&turns(32, false), &seeded(seed)).unwrap();
        assert!(
            report.protocol.iter().any(|m| m.message.starts_with(late)),
            "{seed}: {:?}",
            report.problems()
        );
        // The phase ends without one of the threads, whose arrival counts for the next.
        let found = match alone(&turns(31, true), &seeded(seed)) {
            Ok(report) => report.protocol.iter().any(|m| m.message.starts_with(early)),
            Err(error) => matches!(error, SimError::Deadlock { .. }),
        };
        assert!(found, "{seed}");
    }
}
