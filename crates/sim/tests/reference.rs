//! Races of random small programs, found a second time by force: every pair of accesses, byte by byte, and whether a path leads from the
//! end of one to the start of the other in the graph of what synchronises with what, for the asynchronous proxy through a fence of the
//! memory's state space. No clocks, no cells, nothing that is forgotten.
//!
//! `PROPTEST_CASES=10000` is the nightly size.

use std::fmt::Write as _;

use crate::common::*;
use tilewright_machine::{
    BulkOp, DType, MbarrierOp, Memory, ProxyFence, ScalarOp, SwizzleMode, SyncOp, TensorOp,
};
use tilewright_sim::{Argument, GlobalMemory, Report, run};
use tilewright_simt::{Address, Builder, Function, Operand, Special};

/// Threads that act, two of each of three warps.
const THREADS: [u32; 6] = [0, 1, 32, 33, 64, 65];
/// Places of 16 bytes that they act on, in each memory.
const PLACES: usize = 2;
/// Values of writes: words that have some bytes in common.
const WORDS: [u32; 3] = [0, 1, 0x100];

/// Offsets in the block's window: mbarriers, the places, a tile of each word, and a place for what is only read.
const TESTED: i64 = 512;
const TILES: i64 = 1024;
const SCRATCH: i64 = 2048;

/// Bytes of a place.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Span {
    memory: Memory,
    place: usize,
    offset: usize,
    bytes: usize,
}

/// A step of a program: `thread` and `warp` are indices. An mbarrier is named by the step that completes its one phase.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Read {
        thread: usize,
        span: Span,
    },
    Write {
        thread: usize,
        span: Span,
        word: usize,
    },
    /// `ldmatrix` of a place.
    Matrix {
        warp: usize,
        place: usize,
    },
    /// A bulk copy of a tile to global memory, or an addition.
    Store {
        thread: usize,
        place: usize,
        word: usize,
        how: Bulk,
    },
    /// A bulk copy of a place of shared memory to where nobody looks.
    StoreFrom {
        thread: usize,
        place: usize,
    },
    /// A bulk copy into a place of shared memory.
    Load {
        thread: usize,
        place: usize,
    },
    /// A bulk copy of a place of global memory to where nobody looks.
    LoadFrom {
        thread: usize,
        place: usize,
    },
    /// `cp.async` into a place of shared memory.
    Copy {
        thread: usize,
        place: usize,
    },
    /// `cp.async` of a place of global memory to where nobody looks.
    CopyFrom {
        thread: usize,
        place: usize,
    },
    CopyWait {
        thread: usize,
    },
    Commit {
        thread: usize,
    },
    Wait {
        thread: usize,
        groups: u32,
        reads: bool,
    },
    Arrive {
        thread: usize,
    },
    /// Waits for the mbarrier of an earlier step.
    Await {
        thread: usize,
        step: usize,
    },
    Fence {
        thread: usize,
        fence: ProxyFence,
    },
    WarpFence {
        warp: usize,
        fence: ProxyFence,
    },
    WarpBarrier {
        warp: usize,
    },
    /// The barrier of two warps: all but one.
    Named {
        without: usize,
    },
    Barrier,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Bulk {
    Contiguous,
    Tensor,
    Add,
}

impl Step {
    /// True if an mbarrier's phase ends by it.
    fn completes(&self) -> bool {
        matches!(self, Step::Arrive { .. } | Step::Load { .. } | Step::LoadFrom { .. })
    }
}

/// Steps of each block of a program; blocks are clusters of one.
type Program = Vec<Vec<Step>>;

fn generate(seed: u64) -> Program {
    let mut next = random(seed);
    let mut below = |n: usize| next() as usize % n;
    let blocks = if below(4) == 0 { 2 } else { 1 };
    (0..blocks)
        .map(|_| {
            let mut steps: Vec<Step> = Vec::new();
            for _ in 0..4 + below(14) {
                let (thread, warp, place) = (below(THREADS.len()), below(3), below(PLACES));
                let bytes = [1, 2, 4, 8, 16, 16][below(6)];
                let memory = if below(2) == 0 { Memory::Shared } else { Memory::Global };
                let span = Span { memory, place, offset: bytes * below(16 / bytes), bytes };
                let fence = ProxyFence::ALL[below(4)];
                let word = below(WORDS.len());
                let done: Vec<usize> = (0..steps.len()).filter(|s| steps[*s].completes()).collect();
                steps.push(match below(27) {
                    0..3 => Step::Read { thread, span },
                    3..7 => Step::Write { thread, span, word },
                    7 => Step::Matrix { warp, place },
                    8 => Step::Store { thread, place, word, how: Bulk::Contiguous },
                    9 => Step::Store { thread, place, word, how: Bulk::Tensor },
                    10..12 => Step::Store { thread, place, word, how: Bulk::Add },
                    12 => Step::StoreFrom { thread, place },
                    13 => Step::Load { thread, place },
                    14 => Step::LoadFrom { thread, place },
                    15 if below(2) == 0 => Step::Copy { thread, place },
                    15 => Step::CopyFrom { thread, place },
                    16 => Step::CopyWait { thread },
                    17 => Step::Commit { thread },
                    18 | 19 => Step::Wait { thread, groups: u32::from(below(4) == 0), reads: below(3) == 0 },
                    20 => Step::Arrive { thread },
                    21 | 22 if !done.is_empty() => Step::Await { thread, step: done[below(done.len())] },
                    21 | 23 => Step::Fence { thread, fence },
                    24 => Step::WarpFence { warp, fence },
                    25 => Step::WarpBarrier { warp },
                    22 => Step::Named { without: warp },
                    _ => Step::Barrier,
                });
            }
            steps
        })
        .collect()
}

/// Kind of an access.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Touch {
    Read,
    Write(u32),
    Add,
}

/// An access: it starts after what leads to `start`, and is over for whatever one of `ends` leads to.
#[derive(Clone, Debug)]
struct Access {
    block: usize,
    span: Span,
    touch: Touch,
    proxied: bool,
    start: usize,
    ends: Vec<usize>,
}

impl Access {
    /// The byte that it writes at an offset of the place.
    fn byte(&self, at: usize) -> Option<u8> {
        match self.touch {
            Touch::Write(word) => Some((word >> (8 * ((at - self.span.offset) % 4))) as u8),
            _ => None,
        }
    }
}

/// Order of the steps of a block.
#[derive(Default)]
struct Graph {
    /// For each node, the nodes from which an edge comes.
    before: Vec<Vec<usize>>,
    fences: Vec<(usize, ProxyFence)>,
    /// The last node of each thread, and the last of each warp where all its lanes were.
    last: [Option<usize>; THREADS.len()],
    met: [Option<usize>; 3],
    /// Nodes that warps executed together since they met.
    together: [Vec<usize>; 3],
}

impl Graph {
    fn node(&mut self, before: impl IntoIterator<Item = usize>) -> usize {
        self.before.push(before.into_iter().collect());
        self.before.len() - 1
    }

    fn act(&mut self, thread: usize) -> usize {
        let node = self.node(self.last[thread]);
        self.last[thread] = Some(node);
        node
    }

    fn meet(&mut self, warps: &[usize]) {
        let threads: Vec<usize> = (0..THREADS.len()).filter(|t| warps.contains(&(t / 2))).collect();
        let mut before: Vec<usize> = threads.iter().filter_map(|t| self.last[*t]).collect();
        for warp in warps {
            before.append(&mut self.together[*warp]);
            before.extend(self.met[*warp]);
        }
        let node = self.node(before);
        threads.iter().for_each(|t| self.last[*t] = Some(node));
        warps.iter().for_each(|w| self.met[*w] = Some(node));
    }

    /// For each node, those that lead to it.
    fn paths(&self) -> Vec<u128> {
        let mut to: Vec<u128> = Vec::new();
        for before in &self.before {
            to.push(before.iter().fold(0, |all, b| all | to[*b] | 1 << b));
        }
        to
    }
}

/// The accesses of a block, and a function that says whether one is ordered before another.
fn accesses(block: usize, steps: &[Step]) -> (Vec<Access>, impl Fn(&Access, &Access) -> bool + use<>) {
    let mut g = Graph::default();
    let mut all: Vec<Access> = Vec::new();
    // Accesses that waits end: of bulk copies with the thread, its group, and whether they write; of others with the step or the thread.
    let mut bulk: Vec<(usize, u32, bool, usize)> = Vec::new();
    let (mut groups, mut copies) = ([0; THREADS.len()], Vec::new());
    let mut phases: Vec<Option<(usize, Option<usize>)>> = vec![None; steps.len()];
    let whole = |memory, place| Span { memory, place, offset: 0, bytes: 16 };
    for (index, step) in steps.iter().enumerate() {
        let mut access = |span, touch, proxied, start, ends| {
            all.push(Access { block, span, touch, proxied, start, ends });
            all.len() - 1
        };
        match *step {
            Step::Read { thread, span } => {
                let node = g.act(thread);
                access(span, Touch::Read, false, node, vec![node]);
            }
            Step::Write { thread, span, word } => {
                let node = g.act(thread);
                access(span, Touch::Write(WORDS[word]), false, node, vec![node]);
            }
            Step::Matrix { warp, place } => {
                let node = g.node(g.met[warp]);
                g.together[warp].push(node);
                access(whole(Memory::Shared, place), Touch::Read, false, node, vec![node]);
            }
            Step::Store { thread, place, word, how } => {
                let touch = if how == Bulk::Add { Touch::Add } else { Touch::Write(WORDS[word]) };
                let node = g.act(thread);
                let id = access(whole(Memory::Global, place), touch, true, node, Vec::new());
                bulk.push((thread, groups[thread], true, id));
            }
            Step::StoreFrom { thread, place } => {
                let node = g.act(thread);
                let id = access(whole(Memory::Shared, place), Touch::Read, true, node, Vec::new());
                bulk.push((thread, groups[thread], false, id));
            }
            Step::Load { thread, place } | Step::LoadFrom { thread, place } => {
                let load = matches!(step, Step::Load { .. });
                let (memory, touch) =
                    if load { (Memory::Shared, Touch::Write(0)) } else { (Memory::Global, Touch::Read) };
                let node = g.act(thread);
                phases[index] =
                    Some((node, Some(access(whole(memory, place), touch, true, node, Vec::new()))));
            }
            Step::Copy { thread, place } => {
                let node = g.act(thread);
                let id = access(whole(Memory::Shared, place), Touch::Write(0), false, node, Vec::new());
                copies.push((thread, id));
            }
            Step::CopyFrom { thread, place } => {
                let node = g.act(thread);
                copies.push((
                    thread,
                    access(whole(Memory::Global, place), Touch::Read, false, node, Vec::new()),
                ));
            }
            Step::CopyWait { thread } => {
                let node = g.act(thread);
                copies.iter().filter(|(t, _)| *t == thread).for_each(|(_, id)| all[*id].ends.push(node));
            }
            Step::Commit { thread } => groups[thread] += 1,
            Step::Wait { thread, groups: n, reads } => {
                let node = g.act(thread);
                let covered = groups[thread].saturating_sub(n);
                let done = bulk
                    .iter()
                    .filter(|(t, group, writes, _)| *t == thread && *group < covered && !(reads && *writes));
                done.for_each(|(_, _, _, id)| all[*id].ends.push(node));
            }
            Step::Arrive { thread } => phases[index] = Some((g.act(thread), None)),
            Step::Await { thread, step } => {
                let Some((arrival, id)) = phases[step] else { continue };
                let node = g.act(thread);
                g.before[node].push(arrival);
                id.into_iter().for_each(|id| all[id].ends.push(node));
            }
            Step::Fence { thread, fence } => {
                let node = g.act(thread);
                g.fences.push((node, fence));
            }
            Step::WarpFence { warp, fence } => {
                for thread in [2 * warp, 2 * warp + 1] {
                    let node = g.act(thread);
                    g.fences.push((node, fence));
                }
                let done = g.together[warp].clone();
                let node = g.node(done);
                g.together[warp].push(node);
                g.fences.push((node, fence));
            }
            Step::WarpBarrier { warp } => g.meet(&[warp]),
            Step::Named { without } => {
                g.meet(&[0, 1, 2].into_iter().filter(|w| *w != without).collect::<Vec<_>>());
            }
            Step::Barrier => g.meet(&[0, 1, 2]),
        }
    }
    let (to, fences) = (g.paths(), g.fences);
    let ordered = move |a: &Access, b: &Access| {
        let path = |from: usize, node: usize| to[node] >> from & 1 != 0;
        a.ends.iter().any(|end| {
            path(*end, b.start)
                && (a.proxied
                    || !b.proxied
                    || fences.iter().any(|(fence, space)| {
                        space.covers(a.span.memory) && path(*end, *fence) && path(*fence, b.start)
                    }))
        })
    };
    (all, ordered)
}

/// The bytes of each place that are in a race, by memory (0: shared) and block (0 for global memory): a bit each.
type Races = std::collections::BTreeMap<(usize, usize, usize), u16>;

fn by_force(program: &Program) -> Races {
    let blocks: Vec<_> = program.iter().enumerate().map(|(i, steps)| accesses(i, steps)).collect();
    let all: Vec<&Access> = blocks.iter().flat_map(|(all, _)| all).collect();
    let mut races = Races::new();
    for (i, a) in all.iter().enumerate() {
        for b in &all[i + 1..] {
            let same = (a.span.memory, a.span.place) == (b.span.memory, b.span.place);
            let global = a.span.memory == Memory::Global;
            if !same || (!global && a.block != b.block) || (a.touch == Touch::Read && b.touch == Touch::Read)
            {
                continue;
            }
            let ordered = &blocks[a.block].1;
            if a.block == b.block && (ordered(a, b) || ordered(b, a)) {
                continue;
            }
            let covers = |x: &Access, at: usize| (x.span.offset..x.span.offset + x.span.bytes).contains(&at);
            for at in (0..16).filter(|at| covers(a, *at) && covers(b, *at)) {
                let equal = global && a.byte(at).is_some() && a.byte(at) == b.byte(at);
                let both_add = a.touch == Touch::Add && b.touch == Touch::Add;
                if !(equal || both_add) {
                    let key = (usize::from(global), if global { 0 } else { a.block }, a.span.place);
                    *races.entry(key).or_default() |= 1 << at;
                }
            }
        }
    }
    races
}

/// The program for the simulator.
fn build(program: &Program) -> Function {
    let mut f = builder(96);
    let (global, scratch, constant) =
        (f.pointer_param("g"), f.pointer_param("scratch"), f.pointer_param("constant"));
    let map = f.map("map", DType::I32, &[4], SwizzleMode::None);
    f.add_shared_at("bars", 0, 256);
    f.add_shared_at("s", TESTED as u32, 16 * PLACES as u32);
    f.add_shared_at("tiles", TILES as u32, 128 * WORDS.len() as u32);
    f.add_shared_at("private", SCRATCH as u32, 16 * 64);
    f.only(0, |f| {
        for i in 0..4 * PLACES as i64 {
            f.store_shared(imm(TESTED + 4 * i), imm(7));
        }
        for (tile, word) in (0..).zip(WORDS) {
            (0..4).for_each(|i| f.store_shared(imm(TILES + 128 * tile + 4 * i), imm(i64::from(word))));
        }
    });
    f.sync(SyncOp::FenceProxyAsync(ProxyFence::All));
    let most = program.iter().map(Vec::len).max().unwrap_or(0) as i64;
    f.init_barriers(&(0..most).map(|i| (8 * i, 1)).collect::<Vec<_>>());
    let block: Operand = f.special(Special::BlockIndex(0)).into();
    for (number, steps) in (0..).zip(program) {
        let here = f.op(ScalarOp::EqI32, block, number);
        f.open_branch();
        for (index, step) in steps.iter().enumerate() {
            f.set_origin(format!("block {number} step {index}"));
            emit(
                &mut f,
                steps,
                index,
                *step,
                (global, scratch, constant, map),
                16 * (number * 32 + index as i64),
            );
        }
        // Nothing is left in flight at the end.
        f.set_origin("end");
        for thread in THREADS {
            f.only(i64::from(thread), |f| {
                f.sync(SyncOp::BulkCommit);
                f.sync(SyncOp::BulkWait(0));
                f.sync(SyncOp::AsyncWaitAll);
            });
        }
        for index in (0..steps.len()).filter(|i| steps[*i].completes()) {
            let bar = f.window(8 * index as i64);
            f.mbarrier_at(MbarrierOp::Wait, bar, 0);
        }
        f.close_branch(value(here));
    }
    f.finish()
}

fn emit(
    f: &mut Builder,
    steps: &[Step],
    index: usize,
    step: Step,
    (global, scratch, constant, map): (u32, u32, u32, u32),
    private: i64,
) {
    let lane = |thread: usize| i64::from(THREADS[thread]);
    let bar = |f: &mut Builder, step: usize| f.window(8 * step as i64);
    let tested = |place: usize| TESTED + 16 * place as i64;
    let pointer = |f: &mut Builder, param, bytes: i64| at(f.pointer(param, imm(bytes), 1), 0);
    let aside = SCRATCH + 16 * index as i64;
    match step {
        Step::Read { thread, span } | Step::Write { thread, span, .. } => f.only(lane(thread), |f| {
            let offset = (16 * span.place + span.offset) as i64;
            let address: Address = match span.memory {
                Memory::Shared => f.window(TESTED + offset),
                _ => pointer(f, global, offset),
            };
            let count = span.bytes.div_ceil(4) as u32;
            let array = f.add_array("word", count);
            let regs: Vec<_> = (0..count).map(|i| reg(array, i)).collect();
            if let Step::Write { word, .. } = step {
                regs.iter().for_each(|r| f.write(*r, imm(i64::from(WORDS[word]))));
                f.store(transfer(Memory::Register, span.memory, span.bytes as u32), regs, address, None);
            } else {
                f.load(transfer(span.memory, Memory::Register, span.bytes as u32), regs, address, None);
            }
        }),
        Step::Matrix { warp, place } => in_warps(f, &[warp], |f| {
            let array = f.add_array("tile", 1);
            let from = f.window(tested(place));
            f.matrix(row("ldmatrix.x1"), vec![reg(array, 0)], from);
        }),
        Step::Store { thread, place, word, how } => f.only(lane(thread), |f| {
            let from = f.window(TILES + 128 * word as i64);
            let coordinate = imm(4 * place as i64);
            match how {
                Bulk::Contiguous => {
                    let to = pointer(f, global, 16 * place as i64);
                    f.copy_bulk(BulkOp::Store, from, to, 16, None);
                }
                Bulk::Tensor => f.tma(TensorOp::Store, map, &[coordinate], from, None),
                Bulk::Add => f.tma(TensorOp::Add, map, &[coordinate], from, None),
            }
        }),
        Step::StoreFrom { thread, place } => f.only(lane(thread), |f| {
            let (from, to) = (f.window(tested(place)), pointer(f, scratch, private));
            f.copy_bulk(BulkOp::Store, from, to, 16, None);
        }),
        Step::Load { thread, place } | Step::LoadFrom { thread, place } => f.only(lane(thread), |f| {
            let bar = bar(f, index);
            f.mbarrier_at(MbarrierOp::ArriveExpect, bar, 16);
            let (to, from) = match step {
                Step::Load { .. } => (f.window(tested(place)), pointer(f, constant, 0)),
                _ => (f.window(aside), pointer(f, global, 16 * place as i64)),
            };
            f.copy_bulk(BulkOp::Load, to, from, 16, Some(bar));
        }),
        Step::Copy { thread, place } | Step::CopyFrom { thread, place } => f.only(lane(thread), |f| {
            let (to, from) = match step {
                Step::Copy { .. } => (f.window(tested(place)), pointer(f, constant, 0)),
                _ => (f.window(aside), pointer(f, global, 16 * place as i64)),
            };
            f.async_copy(row("cp.async.16"), to, from, None);
        }),
        Step::CopyWait { thread } => f.only(lane(thread), |f| f.sync(SyncOp::AsyncWaitAll)),
        Step::Commit { thread } => f.only(lane(thread), |f| f.sync(SyncOp::BulkCommit)),
        Step::Wait { thread, groups, reads } => f.only(lane(thread), |f| {
            f.sync(if reads { SyncOp::BulkWaitRead(groups) } else { SyncOp::BulkWait(groups) });
        }),
        Step::Arrive { thread } => f.only(lane(thread), |f| {
            let bar = bar(f, index);
            f.mbarrier_at(MbarrierOp::Arrive, bar, 0);
        }),
        // A step whose mbarrier's was taken away does nothing.
        Step::Await { thread, step } if steps.get(step).is_some_and(Step::completes) && step < index => {
            f.only(lane(thread), |f| {
                let bar = bar(f, step);
                f.mbarrier_at(MbarrierOp::Wait, bar, 0);
            });
        }
        Step::Await { .. } => {}
        Step::Fence { thread, fence } => f.only(lane(thread), |f| f.sync(SyncOp::FenceProxyAsync(fence))),
        Step::WarpFence { warp, fence } => in_warps(f, &[warp], |f| f.sync(SyncOp::FenceProxyAsync(fence))),
        Step::WarpBarrier { warp } => in_warps(f, &[warp], |f| f.sync(SyncOp::WarpBarrier)),
        Step::Named { without } => {
            let warps: Vec<usize> = (0..3).filter(|w| *w != without).collect();
            in_warps(f, &warps, |f| f.sync(SyncOp::NamedBarrier { id: 1 + without as u32, threads: 64 }));
        }
        Step::Barrier => f.sync(SyncOp::Barrier),
    }
}

/// Adds `body` for all threads of these warps.
fn in_warps(f: &mut Builder, warps: &[usize], mut body: impl FnMut(&mut Builder)) {
    let t = f.thread();
    let warp = f.op(ScalarOp::ShrU32, t, 5);
    for each in warps {
        let here = f.op(ScalarOp::EqI32, warp, *each as i64);
        f.branch(value(here), &mut body, |_| {});
    }
}

fn simulate(f: &Function, blocks: usize, seed: u64) -> Report {
    let mut memory = GlobalMemory::new();
    let g = memory.alloc(16 * PLACES);
    let (scratch, constant) = (memory.alloc(16 * 64), memory.alloc(16));
    let args = [
        Argument::Buffer(g),
        Argument::Buffer(scratch),
        Argument::Buffer(constant),
        tensor(g, &[4 * PLACES as u64], 4),
    ];
    run(f, [blocks as u32, 1, 1], &memory, &args, &seeded(seed)).unwrap()
}

/// Difference between the races that the simulator and the reference find in a program.
fn disagreement(program: &Program, seeds: u64) -> Option<String> {
    let wanted = by_force(program);
    let f = build(program);
    for seed in 0..seeds {
        let report = simulate(&f, program.len(), seed);
        let mut found = Races::new();
        for race in &report.races {
            let global = race.memory == "global";
            let block = if global { 0 } else { race.block[0] as usize };
            let key = (usize::from(global), block, race.offset as usize / 16);
            *found.entry(key).or_default() |= 1 << (race.offset % 16);
        }
        let others: Vec<String> =
            report.problems().into_iter().filter(|p| !p.starts_with("race on")).collect();
        // Which pairs are told depends on the order; whether a place is in a race, and that a byte that is told is, does not.
        let right = found.keys().eq(wanted.keys())
            && found.iter().all(|(key, bytes)| bytes & !wanted.get(key).copied().unwrap_or(0) == 0);
        if !right || !others.is_empty() {
            let mut text = format!("seed {seed}: by force {wanted:x?}, the simulator {found:x?}\n");
            for problem in report.problems() {
                let _ = writeln!(text, "  {problem}");
            }
            return Some(text);
        }
    }
    None
}

/// A program without what is not needed to disagree.
fn shrink(mut program: Program, seeds: u64) -> Program {
    let mut again = true;
    while again {
        again = false;
        for block in 0..program.len() {
            for step in (0..program[block].len()).rev() {
                let mut smaller = program.clone();
                smaller[block].remove(step);
                for other in &mut smaller[block] {
                    if let Step::Await { step: of, .. } = other {
                        *of = if *of > step {
                            *of - 1
                        } else if *of == step {
                            usize::MAX
                        } else {
                            *of
                        };
                    }
                }
                smaller[block].retain(|s| !matches!(s, Step::Await { step: usize::MAX, .. }));
                if disagreement(&smaller, seeds).is_some() {
                    program = smaller;
                    again = true;
                    break;
                }
            }
        }
    }
    program
}

fn cases() -> u64 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

#[test]
fn shadow_memory_agrees_with_all_pairs_of_accesses() {
    let (mut racing, mut clean) = (0, 0);
    for case in 0..cases() {
        let program = generate(case);
        let seeds = 3;
        if let Some(text) = disagreement(&program, seeds) {
            let small = shrink(program, seeds);
            let text = disagreement(&small, seeds).unwrap_or(text);
            panic!("program {case}: {text}{small:#?}");
        }
        if by_force(&program).is_empty() { clean += 1 } else { racing += 1 }
    }
    assert!(racing > 20 && clean > 20, "programs of both sorts: {racing} race, {clean} do not");
}
