//! A ring that two blocks of a cluster fill together: each loads a half of what both need, and sends it to both.

use crate::common::*;
use tilewright_machine::{DType, MbarrierOp, ProxyFence, ScalarOp, SwizzleMode, SyncOp};
use tilewright_sim::{Argument, GlobalMemory, RaceKind, Report, SimError, run};
use tilewright_simt::{Builder, Function, Operand, Special};

const STAGES: i64 = 2;
const STEPS: i64 = 9;
/// Bytes of a stage: two halves of 128 words.
const STAGE: i64 = 1024;
const FIRST: i64 = 128;

/// Arrivals by which consumers release a stage.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Release {
    /// One lane a warp and block, after the warp has met.
    Both,
    /// The same without meeting.
    Apart,
    /// Only the own block is told.
    Own,
}

/// Proxy fence between the reads of a stage and the copy that fills it again.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Fence {
    /// Each reader, before its warp meets.
    Readers(ProxyFence),
    /// The lanes that arrive, after their warp has met.
    Arriving(ProxyFence),
    /// The thread that loads, behind its wait.
    Loading(ProxyFence),
    /// Nobody.
    Nobody,
}

/// Each of two warps of a block adds up its half of every stage; warp 2 loads.
fn ring(release: Release, fence: Fence) -> Function {
    let mut f = builder(96);
    f.set_cluster(2);
    let out = f.pointer_param("out");
    f.add_shared_at("full", 0, 8 * STAGES as u32);
    f.add_shared_at("empty", 8 * STAGES as u32, 8 * STAGES as u32);
    f.add_shared_at("stages", FIRST as u32, (STAGES * STAGE) as u32);
    let map = f.map("src", DType::I32, &[128], SwizzleMode::None);
    let arrivals = if release == Release::Own { 2 } else { 4 };
    let barriers: Vec<(i64, i64)> =
        (0..STAGES).map(|s| (8 * s, 1)).chain((0..STAGES).map(|s| (8 * (STAGES + s), arrivals))).collect();
    f.init_barriers(&barriers);
    f.sync(SyncOp::ClusterBarrier);
    let t = f.thread();
    let rank: Operand = f.special(Special::ClusterRank).into();
    let block: Operand = f.special(Special::BlockIndex(0)).into();
    let base: Operand = f.special(Special::SharedBase).into();
    let lane = f.op(ScalarOp::AndB32, t, 31);
    let producer = f.op(ScalarOp::GeI32, t, 64);
    let sum = f.add_array("sum", 1);
    f.write(reg(sum, 0), imm(0));
    let stage = |f: &mut Builder, step: Operand| {
        let (index, round) = (f.op(ScalarOp::AndB32, step, 1), f.op(ScalarOp::ShrU32, step, 1));
        let (bars, bytes) = (f.mul(index, 8), f.mul(index, STAGE));
        (f.add(base, bars), bytes, f.op(ScalarOp::AndB32, round, 1))
    };
    f.branch(
        value(producer),
        |f| {
            let elected = f.elect();
            f.open_branch();
            f.for_loop::<()>(imm(0), imm(STEPS), imm(1), |f, step| {
                let (bars, bytes, parity) = stage(f, step.into());
                let free = f.op(ScalarOp::XorB32, parity, 1);
                f.mbarrier(MbarrierOp::Wait, at(bars, 8 * STAGES as i32), free);
                if let Fence::Loading(fence) = fence {
                    f.sync(SyncOp::FenceProxyAsync(fence));
                }
                f.set_origin("load");
                f.mbarrier_at(MbarrierOp::ArriveExpect, at(bars, 0), STAGE);
                let half = f.mul(rank, STAGE / 2);
                let to = f.add(bytes, half);
                let to = f.add(base, to);
                let pair = f.mul(step.into(), 2);
                let x = f.add(pair, rank);
                let x = f.mul(x, 128);
                f.multicast(map, &[x], at(to, FIRST as i32), at(bars, 0), 3);
                Ok(())
            })
            .unwrap();
            f.close_branch(elected);
        },
        |f| {
            f.for_loop::<()>(imm(0), imm(STEPS), imm(1), |f, step| {
                let (bars, bytes, parity) = stage(f, step.into());
                f.mbarrier(MbarrierOp::Wait, at(bars, 0), parity);
                f.set_origin("use");
                for i in 0..4 {
                    let word = f.mul(t, 4);
                    let offset = f.add(bytes, word);
                    let offset = f.add(offset, imm(FIRST + 256 * i));
                    let word = f.load_shared(offset);
                    let old = f.read(reg(sum, 0));
                    let new = f.add(old, word);
                    f.write(reg(sum, 0), new);
                }
                if let Fence::Readers(fence) = fence {
                    f.sync(SyncOp::FenceProxyAsync(fence));
                }
                if release != Release::Apart {
                    f.sync(SyncOp::WarpBarrier);
                }
                f.set_origin("release");
                let peers = if release == Release::Own { 1 } else { 2 };
                for peer in 0..peers {
                    let it = f.op(ScalarOp::EqI32, lane, 7 * peer);
                    let other = f.op(ScalarOp::XorB32, rank, peer);
                    let theirs = f.scalar(ScalarOp::Mapa, &[bars, other]);
                    let empty = at(theirs, 8 * STAGES as i32);
                    let arrive = |f: &mut Builder| {
                        if let Fence::Arriving(fence) = fence {
                            f.sync(SyncOp::FenceProxyAsync(fence));
                        }
                        f.mbarrier_at(MbarrierOp::ArrivePeer, empty, 0);
                    };
                    f.branch(value(it), arrive, |_| {});
                }
                Ok(())
            })
            .unwrap();
            let row = f.mul(block, 64);
            let index = f.add(row, t);
            let total = f.read(reg(sum, 0));
            f.store_global(out, index, total);
        },
    );
    f.sync(SyncOp::ClusterBarrier);
    f.finish()
}

fn run_ring(f: &Function, seed: u64) -> Result<(Report, bool), SimError> {
    let words = STEPS as usize * 256;
    let mut memory = GlobalMemory::new();
    let (src, out) = (memory.alloc(4 * words), memory.alloc(4 * 64 * 4));
    let values: Vec<u32> = (0..words as u32).map(|i| i * i % 1009).collect();
    memory.write(src, &values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>());
    let args = [Argument::Buffer(out), tensor(src, &[words as u64], 4)];
    let report = run(f, [4, 1, 1], &memory, &args, &seeded(seed))?;
    let sums = words_of(&memory.read(out));
    let right = sums.iter().enumerate().all(|(i, sum)| {
        let own = (0..words).filter(|w| w % 64 == i % 64);
        *sum == own.map(|w| values[w]).sum::<u32>()
    });
    Ok((report, right))
}

#[test]
fn a_ring_of_two_blocks_is_right_and_clean_in_every_order() {
    use Fence::{Arriving, Loading, Readers};
    use ProxyFence::{All, Shared, SharedCluster};
    let all = [Readers(Shared), Readers(All), Arriving(Shared), Loading(SharedCluster), Loading(All)];
    for fence in all {
        let f = ring(Release::Both, fence);
        for seed in 0..20 {
            let (report, right) = run_ring(&f, seed).unwrap();
            assert!(report.is_clean() && right, "{fence:?} {seed} {right} {:?}", report.problems());
        }
    }
}

#[test]
fn a_stage_that_threads_have_read_is_filled_again_after_a_fence_of_its_memory() {
    use Fence::{Arriving, Loading, Nobody, Readers};
    use ProxyFence::{Global, Shared};
    // The thread that loads fills the stage of its peer too, which a fence of its own block's memory does not cover.
    for fence in [Nobody, Readers(Global), Arriving(Global), Loading(Global), Loading(Shared)] {
        for seed in 0..5 {
            let (report, _) = run_ring(&ring(Release::Both, fence), seed).unwrap();
            let [race] = &report.races[..] else { panic!("{fence:?} {:?}", report.problems()) };
            assert_eq!(race.kind, RaceKind::ReadWithoutProxyFence);
            assert_eq!((race.first.origin.as_str(), race.second.origin.as_str()), ("use", "load"));
            let words = "the reading threads need fence.proxy.async.shared::cta before";
            assert!(race.suggestion.starts_with(words), "{race}");
        }
    }
}

#[test]
fn lanes_that_have_not_met_cannot_be_released_by_one() {
    for seed in 0..10 {
        let (report, _) = run_ring(&ring(Release::Apart, Fence::Readers(ProxyFence::Shared)), seed).unwrap();
        let kinds: Vec<_> = report.races.iter().map(|r| r.kind).collect();
        assert_eq!(kinds, [RaceKind::ReadWrite], "{:?}", report.problems());
        let race = &report.races[0];
        assert_eq!((race.first.origin.as_str(), race.second.origin.as_str()), ("use", "load"));
    }
}

#[test]
fn a_peer_that_has_not_released_its_stage_is_overwritten() {
    let mut found = 0;
    for seed in 0..20 {
        match run_ring(&ring(Release::Own, Fence::Readers(ProxyFence::Shared)), seed) {
            Ok((report, _)) => found += usize::from(!report.is_clean()),
            Err(SimError::Deadlock { found: other, .. }) => found += usize::from(!other.is_clean()),
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(found, 20);
}
