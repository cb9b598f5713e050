//! Clusters that cancel others that have not begun, and what goes wrong with the launch's answers.

use crate::common::*;
use tilewright_machine::{
    Arch, AtomicOp, DType, LaunchControl, MbarrierOp, Memory, MemoryOrder, ProxyFence, RedOp, ScalarOp,
    SyncOp, atomic,
};
use tilewright_sim::{Argument, Config, GlobalMemory, RaceKind, Report, Rule, run};
use tilewright_simt::{Builder, Function, Special};

const ANSWER: i64 = 16;
const BARRIER: i64 = 0;
const BLOCKS: u32 = 40;

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// An answer is read before it is waited for.
    Wait,
    /// No fence stands between reading an answer and the next request.
    ProxyFence,
    /// The mbarrier is told to expect more bytes.
    Bytes,
    /// The answer is to lie at an odd place.
    Place,
    /// A block asks again when it knows that there is no more.
    Again,
}

/// Blocks of one thread that count in `out` the blocks whose work they do: their own, and those that they cancel.
fn program(arch: Arch, mistake: Step) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("launched", arch, 1);
    let out = f.pointer_param("out");
    f.add_shared_at("barrier", BARRIER as u32, 8);
    f.add_shared_at("answer", ANSWER as u32, 32);
    f.init_barriers(&[(BARRIER, 1)]);
    let (state, words) = (f.add_array("state", 2), f.add_array("words", 4));
    let (block, phase) = (reg(state, 0), reg(state, 1));
    let words: Vec<_> = (0..4).map(|index| reg(words, index)).collect();
    let own = f.special(Special::BlockIndex(0)).into();
    f.write(block, own);
    f.write(phase, imm(0));
    let (barrier, answer) =
        (f.window(BARRIER), f.window(if right(Step::Place) { ANSWER } else { ANSWER + 8 }));
    let count = atomic(AtomicOp::Combine(RedOp::Add), DType::U32, Memory::Global).unwrap();
    let counter = f.open_loop();
    let number = f.read(block);
    // Behind the counts is one for no block.
    let number = f.op(ScalarOp::MinU32, number, i64::from(BLOCKS));
    let place = f.pointer(out, number, 4);
    f.atomic(count, MemoryOrder::Relaxed, at(place, 0), vec![imm(1)], None);
    let bytes = i64::from(LaunchControl::ANSWER_BYTES);
    f.set_origin("ask");
    f.mbarrier_at(MbarrierOp::ArriveExpect, barrier, if right(Step::Bytes) { bytes } else { 2 * bytes });
    f.try_cancel(answer, barrier);
    f.set_origin("answer");
    let parity = f.read(phase);
    if right(Step::Wait) {
        f.mbarrier(MbarrierOp::Wait, barrier, parity);
    }
    f.load(transfer(Memory::Shared, Memory::Register, 16), words.clone(), answer, None);
    if right(Step::ProxyFence) {
        f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    }
    let next = f.cancelled(words).into();
    if right(Step::Again) {
        let none = f.op(ScalarOp::EqI32, next, i64::from(LaunchControl::NONE));
        f.break_where(value(none));
    }
    f.write(block, next);
    let parity = f.op(ScalarOp::XorB32, parity, 1);
    f.write(phase, parity);
    f.close_loop(counter, imm(0), imm(i64::from(BLOCKS)), imm(1));
    f.finish()
}

/// The report of a launch, and how often the work of each block was done.
fn execute(arch: Arch, mistake: Step, seed: u64) -> Option<(Report, Vec<u32>)> {
    let mut memory = GlobalMemory::new();
    let out = memory.alloc(4 * (BLOCKS as usize + 1));
    memory.write(out, &[0; 4 * (BLOCKS as usize + 1)]);
    let config = Config { seed, ..Config::default() };
    let report = run(&program(arch, mistake), [BLOCKS, 1, 1], &memory, &[Argument::Buffer(out)], &config);
    Some((report.ok()?, words_of(&memory.read(out))[..BLOCKS as usize].to_vec()))
}

#[test]
fn the_work_of_each_block_is_done_once_by_whichever() {
    for arch in [Arch::SM_100A, Arch::SM_120A] {
        for seed in 0..30 {
            let (report, counts) = execute(arch, Step::None, seed).unwrap();
            assert!(report.is_clean(), "{seed}: {:?}", report.problems());
            assert!(counts.iter().all(|count| *count == 1), "{seed}: {counts:?}");
        }
    }
    // The same seed, the same blocks.
    let [first, second] = [7; 2].map(|seed| execute(Arch::SM_100A, Step::None, seed).unwrap().0);
    assert_eq!(first.estimated_cycles, second.estimated_cycles);
}

#[test]
fn mistakes_with_answers_are_found() {
    let mut missed = Vec::new();
    for mistake in [Step::Wait, Step::ProxyFence, Step::Bytes, Step::Place, Step::Again] {
        let (mut rules, mut races, mut hangs) = (Vec::new(), Vec::new(), false);
        for seed in 0..10 {
            match execute(Arch::SM_100A, mistake, seed) {
                Some((report, _)) => {
                    rules.extend(report.protocol.iter().map(|misuse| misuse.rule));
                    races.extend(report.races.iter().map(|race| race.kind));
                }
                None => hangs = true,
            }
        }
        let found = match mistake {
            Step::Wait => races.contains(&RaceKind::AsyncPending),
            Step::ProxyFence => races.contains(&RaceKind::ReadWithoutProxyFence),
            Step::Bytes => hangs,
            Step::Place => rules.contains(&Rule::Alignment),
            _ => rules.contains(&Rule::Launch),
        };
        if !found {
            missed.push((mistake, rules, races, hangs));
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}
