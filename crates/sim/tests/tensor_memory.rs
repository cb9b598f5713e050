//! Products with their sums in tensor memory against plain loops, and what goes wrong with tensor memory.

use crate::common::*;
use crate::hopper_products::{Placed, placed, registers, small, stage};
use tilewright_machine::{
    Arch, CopyKind, DType, Major, MbarrierOp, Memory, ProxyFence, ScalarOp, SwizzleMode, SyncOp, Tcgen05Row,
    TensorMemory, tcgen05, tcgen05_rows, tensor_memory_copies,
};
use tilewright_sim::{GlobalMemory, RaceKind, Report, Rule, SimError, run};
use tilewright_simt::{Builder, DescriptorValue, Factor, Function, Operand, Reg};

const A: u32 = 1024;
const B: u32 = 64 * 1024;
/// The mbarrier, then the word with the address.
const BARRIER: i64 = 0;
const WORD: i64 = 8;

pub(crate) fn factor(b: &mut Builder, placed: &Placed, offset: u32) -> Factor {
    let bits = Tcgen05Row::matrix(&placed.descriptor);
    let base = b.window(i64::from(offset));
    let address = b.add(base.base, imm(i64::from(base.offset)));
    let start = b.op(ScalarOp::ShrU32, address, 4);
    let low = b.op(ScalarOp::OrB32, start, i64::from(bits as u32));
    Factor::Shared { descriptor: DescriptorValue { low, high: (bits >> 32) as u32 }, major: placed.major }
}

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// No proxy fence stands behind the stores of the factors.
    ProxyFence,
    /// No fence stands behind the barrier or the wait before the product.
    AfterBeforeProduct,
    /// All lanes of the warp issue the products.
    Issuer,
    /// The second product's sums begin where nothing is allocated.
    Column,
    /// The first product reads the sums.
    Accumulate,
    /// Nobody waits for the commit.
    Wait,
    /// No fence stands behind the wait for the commit.
    AfterBeforeLoad,
    /// Loads begin at a lane of another warp.
    Lane,
    /// Registers are stored before the loads are waited for.
    WaitLoad,
    /// No fence stands before the barrier behind which the columns are freed.
    BeforeFree,
    /// Nothing is freed.
    Free,
    /// Fewer columns are freed than were allocated.
    FreeLess,
    /// The block allocates again after it has given up its permit.
    AllocateAgain,
    /// Stores follow the loads without a wait.
    Overwrite,
    /// The factors are stored again while the products read them.
    Refill,
}

/// A block that multiplies two tiles twice, by an elected thread, and stores all columns of its lanes.
fn program(row: &'static Tcgen05Row, (a, b): (&Placed, &Placed), mistake: Step) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("sums", Arch::SM_100A, 128);
    let [pa, pb, out] = ["a", "b", "out"].map(|name| f.pointer_param(name));
    f.add_shared_at("barrier", BARRIER as u32, 8);
    f.add_shared_at("word", WORD as u32, 4);
    f.add_shared_at("a", A, a.image.len() as u32);
    f.add_shared_at("b", B, b.image.len() as u32);
    f.add_tensor_memory("acc", 0, row.columns());
    let columns = TensorMemory::allocation(row.columns()).unwrap();
    let thread = f.thread();
    let warp = f.op(ScalarOp::ShrU32, thread, 5);
    let first = value(f.op(ScalarOp::LtI32, warp, 1));
    f.set_origin("allocate");
    f.init_barriers(&[(BARRIER, 1)]);
    let word = f.window(WORD);
    f.branch(
        first,
        |b| {
            b.tensor_allocate(columns, word);
            b.sync(SyncOp::TensorRelinquish);
            if !right(Step::AllocateAgain) {
                b.tensor_allocate(32, word);
            }
        },
        |_| {},
    );
    f.set_origin("stage");
    stage(&mut f, pa, A, a.image.len(), 128);
    stage(&mut f, pb, B, b.image.len(), 128);
    if right(Step::ProxyFence) {
        f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    }
    f.sync(SyncOp::TensorFenceBefore);
    f.sync(SyncOp::Barrier);
    if right(Step::AfterBeforeProduct) {
        f.sync(SyncOp::TensorFenceAfter);
    }
    let base = f.load_shared(imm(WORD));
    let (left, other) = (factor(&mut f, a, A), factor(&mut f, b, B));
    let barrier = f.window(BARRIER);
    f.set_origin("multiply");
    let issue = |b: &mut Builder| {
        let begins = Operand::Imm(u64::from(!right(Step::Accumulate)));
        b.tcgen05(row, at(base, 0), left.clone(), other.clone(), begins);
        let column = if right(Step::Column) { 0 } else { columns as i32 };
        b.tcgen05(row, at(base, column), left.clone(), other.clone(), Operand::Imm(1));
        b.mbarrier_at(MbarrierOp::Commit, barrier, 0);
    };
    let issuer = if right(Step::Issuer) { value(f.op(ScalarOp::EqI32, thread, 0)) } else { first };
    f.branch(issuer, issue, |_| {});
    if !right(Step::Refill) {
        f.set_origin("refill");
        stage(&mut f, pa, A, a.image.len(), 128);
    }
    f.set_origin("wait");
    if right(Step::Wait) {
        f.mbarrier_at(MbarrierOp::Wait, barrier, 0);
    }
    if right(Step::AfterBeforeLoad) {
        f.sync(SyncOp::TensorFenceAfter);
    }
    f.set_origin("load");
    let shape = if row.m == 128 { "tcgen05.ld.32x32b.x8" } else { "tcgen05.ld.16x256b.x1" };
    let copy = tensor_memory_copies().iter().find(|copy| copy.name == shape).unwrap();
    let regs = copy.registers();
    let array = f.add_array("cells", regs * row.columns() / 8);
    let own = f.op(ScalarOp::ShlB32, warp, 21);
    let own = f.add(base, own);
    let own = if right(Step::Lane) { own } else { base };
    let of = |i: u32| (0..regs).map(|j| reg(array, regs * i + j)).collect::<Vec<Reg>>();
    for i in 0..row.columns() / 8 {
        f.tensor_copy(copy, of(i), at(own, 8 * i as i32));
    }
    if right(Step::WaitLoad) && right(Step::Overwrite) {
        f.sync(SyncOp::TensorWaitLoad);
    }
    if !right(Step::Overwrite) {
        f.set_origin("overwrite");
        let name = shape.replace(".ld.", ".st.");
        let store = tensor_memory_copies().iter().find(|copy| copy.name == name).unwrap();
        let zeros = f.add_array("zeros", regs);
        registers(zeros, regs).into_iter().for_each(|zero| f.write(zero, imm(0)));
        f.tensor_copy(store, registers(zeros, regs), at(own, 0));
        f.sync(SyncOp::TensorWaitStore);
        f.sync(SyncOp::TensorWaitLoad);
    }
    f.set_origin("store");
    let CopyKind::Tensor { lanes, .. } = copy.kind else { panic!("{shape}") };
    for i in 0..row.columns() / 8 {
        for (r, register) in of(i).into_iter().enumerate() {
            // The cell of each lane, by the layout of the copy.
            let [lane, column] = match lanes {
                32 => {
                    let lane = thread;
                    [lane, imm(8 * i64::from(i) + r as i64)]
                }
                _ => {
                    let within = f.op(ScalarOp::AndB32, thread, 31);
                    let row = f.op(ScalarOp::ShrU32, within, 2);
                    let warps = f.mul(warp, 32);
                    let lane = f.add(row, warps);
                    let lane = f.add(lane, imm(8 * (r as i64 / 2)));
                    let pair = f.op(ScalarOp::AndB32, within, 3);
                    let pair = f.mul(pair, 2);
                    let column = f.add(pair, imm(8 * i64::from(i) + r as i64 % 2));
                    [lane, column]
                }
            };
            let column = f.mul(column, 128);
            let index = f.add(lane, column);
            let address = f.pointer(out, index, 4);
            f.store(transfer(Memory::Register, Memory::Global, 4), vec![register], at(address, 0), None);
        }
    }
    f.set_origin("free");
    if right(Step::BeforeFree) {
        f.sync(SyncOp::TensorFenceBefore);
    }
    f.sync(SyncOp::Barrier);
    if right(Step::Free) {
        f.branch(
            first,
            |b| {
                b.sync(SyncOp::TensorFenceAfter);
                b.tensor_free(if right(Step::FreeLess) { columns } else { 32 }, base);
            },
            |_| {},
        );
    }
    f.finish()
}

/// Runs the program on small whole numbers; its report, and whether its sums are those of plain loops.
fn execute(
    row: &'static Tcgen05Row,
    places: [(Major, SwizzleMode); 2],
    mistake: Step,
    seed: u64,
) -> (Report, bool) {
    let (m, n, k) = (row.m as usize, row.n as usize, row.k as usize);
    let mut next = random(row.n as u64 * 7 + row.k as u64);
    let ea: Vec<u32> = (0..m * k).map(|_| small(row.a, &mut next)).collect();
    let eb: Vec<u32> = (0..n * k).map(|_| small(row.b, &mut next)).collect();
    let a = placed(row.a, (m, k), places[0].0, places[0].1, |i, kk| ea[i + m * kk]);
    let b = placed(row.b, (n, k), places[1].0, places[1].1, |i, kk| eb[i + n * kk]);
    let f = program(row, (&a, &b), mistake);
    let mut memory = GlobalMemory::new();
    let mut args = Vec::new();
    for image in [&a.image, &b.image] {
        let id = memory.alloc(image.len());
        memory.write(id, image);
        args.push(tilewright_sim::Argument::Buffer(id));
    }
    let out = memory.alloc(4 * 128 * row.n as usize);
    args.push(tilewright_sim::Argument::Buffer(out));
    let report = run(&f, [1, 1, 1], &memory, &args, &seeded(seed)).unwrap();
    let words = words_of(&memory.read(out));
    let cells = row.d_layout();
    let same = (0..m * n).all(|at| {
        let (i, j) = (at % m, at / m);
        let terms = (0..k).map(|kk| row.a.decode(ea[i + m * kk]) * row.b.decode(eb[j + n * kk]));
        let sum = 2.0 * terms.sum::<f64>();
        row.c.decode(words[cells.eval(at as i64) as usize]) == sum
    });
    (report, same)
}

#[test]
fn sums_of_every_type_major_and_swizzle_are_those_of_plain_loops() {
    let plain = tcgen05_rows().iter().filter(|row| row.scaling.is_none() && !row.sparse && row.blocks == 1);
    for row in plain.filter(|row| matches!((row.m, row.n), (128, 16 | 32) | (64, 24 | 48))) {
        // Along N there are whole 16 bytes, and of 32 bits whole spans.
        let whole = match row.b.bits() {
            32 => row.n % 32 == 0,
            bits => row.n * i64::from(bits) % 128 == 0,
        };
        let places = places_of(row, whole);
        for (i, place) in places.iter().enumerate() {
            let other = places[(i + 3) % places.len()];
            let (report, same) = execute(row, [other, *place], Step::None, i as u64 % 3);
            let what = format!("{} {other:?} {place:?}", row.name);
            assert!(report.is_clean(), "{what}: {:?}", report.problems());
            assert!(same, "{what}");
        }
    }
}

/// The majors and swizzles that a factor may have.
fn places_of(row: &Tcgen05Row, along_n: bool) -> Vec<(Major, SwizzleMode)> {
    let along_k = SwizzleMode::ALL.map(|swizzle| (Major::K, swizzle));
    let atoms = [SwizzleMode::B128Atom32];
    let other: Vec<SwizzleMode> = match row.a.bits() {
        32 => atoms.into(),
        _ => SwizzleMode::ALL.into(),
    };
    along_k.into_iter().chain(other.into_iter().filter(|_| along_n).map(|mode| (Major::Mn, mode))).collect()
}

fn half() -> &'static Tcgen05Row {
    tcgen05(DType::F16, DType::F16, DType::F32, [128, 48]).unwrap()
}

const PLACES: [(Major, SwizzleMode); 2] = [(Major::K, SwizzleMode::B32); 2];

/// The rules and the kinds of races that a mistake breaks, with several seeds.
fn found(mistake: Step) -> (Vec<Rule>, Vec<RaceKind>, usize) {
    let (mut rules, mut races, mut unwritten) = (Vec::new(), Vec::new(), 0);
    for seed in 0..4 {
        let (report, _) = execute(half(), PLACES, mistake, seed);
        rules.extend(report.protocol.iter().map(|misuse| misuse.rule));
        races.extend(report.races.iter().map(|race| race.kind));
        unwritten += report.uninitialised.len();
    }
    rules.sort_unstable();
    rules.dedup();
    races.sort_unstable();
    races.dedup();
    (rules, races, unwritten)
}

#[test]
fn the_program_without_a_mistake_is_clean() {
    for seed in 0..20 {
        let (report, same) = execute(half(), PLACES, Step::None, seed);
        assert!(report.is_clean() && same, "{seed}: {:?}", report.problems());
    }
}

#[test]
fn every_mistake_breaks_its_rule() {
    let rules = [
        (Step::Issuer, Rule::Issuer),
        (Step::Column, Rule::Allocation),
        (Step::Lane, Rule::Place),
        (Step::WaitLoad, Rule::Owned),
        (Step::Free, Rule::Allocation),
        (Step::FreeLess, Rule::Allocation),
        (Step::AllocateAgain, Rule::Allocation),
    ];
    for (mistake, rule) in rules {
        let (broken, ..) = found(mistake);
        assert!(broken.contains(&rule), "{mistake:?}: {broken:?}");
    }
    let (rules, races, unwritten) = found(Step::Accumulate);
    assert!(rules.is_empty() && races.is_empty() && unwritten > 0);
}

#[test]
fn every_missing_order_is_a_race() {
    let kinds = [
        (Step::ProxyFence, RaceKind::MissingProxyFence),
        (Step::AfterBeforeProduct, RaceKind::ReadWrite),
        (Step::Wait, RaceKind::AsyncPending),
        (Step::AfterBeforeLoad, RaceKind::AsyncPending),
        (Step::BeforeFree, RaceKind::AsyncRead),
        (Step::Overwrite, RaceKind::AsyncRead),
        (Step::Refill, RaceKind::AsyncRead),
    ];
    for (mistake, kind) in kinds {
        let (_, races, _) = found(mistake);
        assert!(races.contains(&kind), "{mistake:?}: {races:?}");
    }
}

/// Two blocks, each of which commits at the barriers of blocks, and waits for two arrivals at its own.
fn committed(op: MbarrierOp, ranks: i64) -> Function {
    let mut f = Builder::new("committed", Arch::SM_100A, 32);
    f.set_cluster(2);
    f.add_shared_at("barrier", BARRIER as u32, 8);
    f.add_shared_at("word", WORD as u32, 4);
    f.add_tensor_memory("acc", 0, 32);
    f.init_barriers(&[(BARRIER, 2)]);
    let word = f.window(WORD);
    f.tensor_allocate(32, word);
    f.sync(SyncOp::ClusterBarrier);
    let (barrier, thread) = (f.window(BARRIER), f.thread());
    let first = value(f.op(ScalarOp::EqI32, thread, 0));
    f.branch(first, |b| b.mbarrier_at(op, barrier, ranks), |_| {});
    f.mbarrier_at(MbarrierOp::Wait, barrier, 0);
    f.sync(SyncOp::ClusterBarrier);
    let base = f.load_shared(imm(WORD));
    f.tensor_free(32, base);
    f.finish()
}

#[test]
fn a_commit_reaches_the_blocks_of_its_mask() {
    let run_at =
        |op, ranks, seed| run(&committed(op, ranks), [2, 1, 1], &GlobalMemory::new(), &[], &seeded(seed));
    for seed in 0..6 {
        let report = run_at(MbarrierOp::CommitPeers, 3, seed).unwrap();
        assert!(report.is_clean(), "{seed}: {:?}", report.problems());
        // Nobody tells the peer, or all tell block 0.
        for (op, ranks) in [(MbarrierOp::Commit, 0), (MbarrierOp::CommitPeers, 1)] {
            assert!(matches!(run_at(op, ranks, seed), Err(SimError::Deadlock { .. })), "{op:?} {ranks}");
        }
    }
    let report = run_at(MbarrierOp::CommitPeers, 7, 0).unwrap();
    assert!(report.protocol.iter().any(|misuse| misuse.rule == Rule::Place), "{:?}", report.problems());
}
