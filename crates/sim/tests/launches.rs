//! Launches that overlap: accesses to global memory come after a wait for the launches before, in the thread or behind a barrier.

use crate::common;
use crate::common::{Hopper, Write, at, builder, reg, row, transfer, value};
use tilewright_machine::{BulkOp, DType, MbarrierOp, Memory, ScalarOp, SwizzleMode, SyncOp, TensorOp};
use tilewright_sim::{Argument, BufferId, Config, GlobalMemory, Report};
use tilewright_simt::{Builder, Function};

/// Ways to access the one buffer, by threads of the first warp.
#[derive(Clone, Copy, PartialEq, Debug)]
enum How {
    Load,
    Lookup,
    CopyAsync,
    BulkLoad,
    TensorLoad,
    Store,
    BulkStore,
    TensorStore,
    TensorAdd,
}

const ALL: [How; 9] = [
    How::Load,
    How::Lookup,
    How::CopyAsync,
    How::BulkLoad,
    How::TensorLoad,
    How::Store,
    How::BulkStore,
    How::TensorStore,
    How::TensorAdd,
];

impl How {
    fn writes(self) -> bool {
        matches!(self, How::Store | How::BulkStore | How::TensorStore | How::TensorAdd)
    }

    /// The operation of the tensor memory accelerator that does it.
    fn unit(self) -> Option<Result<BulkOp, TensorOp>> {
        match self {
            How::BulkLoad => Some(Ok(BulkOp::Load)),
            How::BulkStore => Some(Ok(BulkOp::Store)),
            How::TensorLoad => Some(Err(TensorOp::Load)),
            How::TensorStore => Some(Err(TensorOp::Store)),
            How::TensorAdd => Some(Err(TensorOp::Add)),
            How::Load | How::Lookup | How::CopyAsync | How::Store => None,
        }
    }

    fn emit(self, b: &mut Builder, map: u32) {
        let x = 0;
        if let Some(unit) = self.unit() {
            b.only(0, |b| {
                let (shared, barrier, other) = (b.window(0), b.window(64), at(b.param(x).into(), 0));
                let signals = (!self.writes()).then_some(barrier);
                if signals.is_some() {
                    b.mbarrier_at(MbarrierOp::ArriveExpect, barrier, 64);
                }
                match unit {
                    Ok(op) => b.copy_bulk(op, shared, other, 64, signals),
                    Err(op) => b.tma(op, map, &[common::imm(0)], shared, signals),
                }
                if signals.is_some() {
                    b.mbarrier_at(MbarrierOp::Wait, barrier, 0);
                } else {
                    b.sync(SyncOp::BulkCommit);
                    b.sync(SyncOp::BulkWait(0));
                }
            });
            return;
        }
        let thread = b.thread();
        let first = value(b.op(ScalarOp::LtI32, thread, 32));
        let address = at(b.pointer(x, thread, 4), 0);
        let array = b.add_array("r", 1);
        match self {
            How::Load => {
                b.load(
                    transfer(Memory::Global, Memory::Register, 4),
                    vec![reg(array, 0)],
                    address,
                    Some(first),
                );
            }
            How::Lookup => {
                let found = b.lookup(row("ld.global.b32"), address, Some(first));
                b.write(reg(array, 0), found);
            }
            How::CopyAsync => {
                let offset = b.mul(thread, 4);
                let to = at(b.shared(offset), 128);
                b.async_copy(row("cp.async.4"), to, address, Some(first));
                b.sync(SyncOp::AsyncWaitAll);
            }
            _ => {
                b.write(reg(array, 0), common::imm(7));
                b.store(
                    transfer(Memory::Register, Memory::Global, 4),
                    vec![reg(array, 0)],
                    address,
                    Some(first),
                );
            }
        }
    }
}

/// Waits and barriers around the access.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Around {
    WaitBefore,
    WaitAfter,
    OtherWarpWaits,
    OtherWarpWaitsThenBarrier,
    BarrierThenOtherWarpWaits,
    OneLaneWaitsThenWarpBarrier,
    OnlyLaunches,
    Nothing,
}

fn function(how: How, around: Around) -> Function {
    let mut b = builder(64);
    b.pointer_param("x");
    let map = b.map("x", DType::F32, &[16], SwizzleMode::None);
    b.add_shared_at("s", 0, 64);
    b.add_shared_at("full", 64, 8);
    b.add_shared_at("t", 128, 256);
    b.init_barriers(&[(64, 1)]);
    let wait_of = |b: &mut Builder, thread: i64| b.only(thread, |b| b.sync(SyncOp::DependencyWait));
    match around {
        Around::WaitBefore => b.sync(SyncOp::DependencyWait),
        Around::OtherWarpWaits => wait_of(&mut b, 40),
        Around::OtherWarpWaitsThenBarrier => {
            wait_of(&mut b, 40);
            b.sync(SyncOp::Barrier);
        }
        Around::BarrierThenOtherWarpWaits => {
            b.sync(SyncOp::Barrier);
            wait_of(&mut b, 40);
        }
        Around::OneLaneWaitsThenWarpBarrier => {
            wait_of(&mut b, 5);
            b.sync(SyncOp::WarpBarrier);
        }
        Around::WaitAfter | Around::OnlyLaunches | Around::Nothing => {}
    }
    how.emit(&mut b, map);
    match around {
        Around::WaitAfter => b.sync(SyncOp::DependencyWait),
        Around::OnlyLaunches => b.sync(SyncOp::DependentsLaunch),
        _ => {}
    }
    b.finish()
}

fn run(function: &Function, memory: &GlobalMemory, x: BufferId, config: &Config) -> Report {
    let args = [Argument::Buffer(x), common::tensor(x, &[128], 4)];
    tilewright_sim::run(function, [1, 1, 1], memory, &args, config).unwrap()
}

/// Number of accesses that are reported to come before the wait.
fn found(function: &Function, constant: bool, config: &Config) -> u64 {
    let mut memory = GlobalMemory::new();
    let x = memory.alloc(512);
    if constant {
        memory.mark_constant(x);
    }
    let report = run(function, &memory, x, config);
    let early =
        report.protocol.iter().filter(|m| m.message.contains("ordered behind no `wait_dependencies()`"));
    early.map(|m| m.count).sum()
}

#[test]
fn every_access_is_ordered_behind_a_wait() {
    use Around::*;
    for how in ALL {
        for (around, right) in [
            (WaitBefore, true),
            (WaitAfter, false),
            (OtherWarpWaits, false),
            (OtherWarpWaitsThenBarrier, true),
            (BarrierThenOtherWarpWaits, false),
            (OneLaneWaitsThenWarpBarrier, true),
            (OnlyLaunches, false),
            // Launches of such a kernel never overlap those before.
            (Nothing, true),
        ] {
            for seed in 0..3 {
                let function = function(how, around);
                let count = found(&function, false, &common::seeded(seed));
                assert_eq!(count == 0, right, "{how:?}, {around:?}, seed {seed}: {count}");
                let alone = Config { overlaps: false, ..common::seeded(seed) };
                assert_eq!(found(&function, false, &alone), 0, "{how:?}, {around:?}");
                // What nobody writes may be read early, and not be written.
                let early = found(&function, true, &common::seeded(seed));
                assert_eq!(early == 0, right || !how.writes(), "{how:?}, {around:?}");
            }
        }
    }
}

#[test]
fn the_report_says_what_would_be_right() {
    let mut memory = GlobalMemory::new();
    let x = memory.alloc(512);
    for (how, words) in [
        (
            How::Load,
            "it reads byte 0 of `x` and is ordered behind no `wait_dependencies()`: a launch before this one may still write `x`; wait before, in \
             the same role or in one whose stage it gets, or mark it `constant x: …` if none of them writes it (block [0, 0, 0], 32 times)",
        ),
        (
            How::Store,
            "a launch before this one may still read or write `x`; wait before, in the same role or in one whose stage it gets (block",
        ),
    ] {
        let report = run(&function(how, Around::WaitAfter), &memory, x, &Config::default());
        let all = report.problems();
        assert!(all.len() == 1 && all[0].contains(words), "{all:?}");
    }
}
