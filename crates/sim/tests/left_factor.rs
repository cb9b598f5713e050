//! Products whose left factor lies in tensor memory against plain loops, and what goes wrong with it.

use crate::common::*;
use crate::hopper_products::{Placed, fetch, fragment, placed, registers, small, stage};
use crate::tensor_memory::factor;
use tilewright_machine::{
    Arch, DType, Major, ProxyFence, SwizzleMode, SyncOp, Tcgen05Row, tcgen05, tcgen05_rows,
    tensor_memory_copies,
};
use tilewright_sim::{GlobalMemory, RaceKind, Report, Rule, run};
use tilewright_simt::{Builder, Factor, Function, Operand};

const B: u32 = 1024;
/// The column of the left factor; the sums begin at column 0.
const LEFT: i32 = 16;

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// Nobody waits for the stores of the factor.
    WaitStore,
    /// No fence stands between the stores and the barrier.
    Before,
    /// No fence stands between the barrier and the product.
    After,
    /// The factor is stored where nothing is allocated.
    Column,
    /// The factor begins at another lane.
    Lane,
    /// The factor is stored again while the product reads it.
    Refill,
    /// The factor is read where the sums of the product before have been made.
    Sums,
    /// A later product of the thread overwrites the factor, which is right: products are done in the order of their issue.
    Overwrite,
}

/// A block whose threads store a left factor in tensor memory, of which one multiplies, and that stores the sums.
fn program(row: &'static Tcgen05Row, b: &Placed, mistake: Step) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("left", Arch::SM_100A, 128);
    let [pa, pb, out] = ["a", "b", "out"].map(|name| f.pointer_param(name));
    f.add_shared_at("b", B, b.image.len() as u32);
    f.add_tensor_memory("acc", 0, 16);
    f.add_tensor_memory("left", 16, 16);
    f.add_tensor_memory("copy", 32, 16);
    let block = TensorBlock::begin(&mut f, 64);
    stage(&mut f, pb, B, b.image.len(), 128);
    f.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    let base = block.base(&mut f);
    let own = block.lanes(&mut f, base);
    let copy = |name: &str| tensor_memory_copies().iter().find(|copy| copy.name == name).unwrap();
    f.set_origin("store");
    let array = f.add_array("a", 8);
    let words = registers(array, 8);
    fetch(&mut f, pa, &words, 128);
    let column = if right(Step::Column) { LEFT } else { 64 };
    for column in [column, LEFT + 16] {
        f.tensor_copy(copy("tcgen05.st.32x32b.x8"), words.clone(), at(own, column));
    }
    if right(Step::WaitStore) {
        f.sync(SyncOp::TensorWaitStore);
    }
    if right(Step::Before) {
        f.sync(SyncOp::TensorFenceBefore);
    }
    f.sync(SyncOp::Barrier);
    if right(Step::After) {
        f.sync(SyncOp::TensorFenceAfter);
    }
    let other = factor(&mut f, b, B);
    let lane = if right(Step::Lane) { 0 } else { 32 << 16 };
    block.multiply(&mut f, |b| {
        let left = Factor::Tensor(at(base, LEFT + lane));
        if !right(Step::Sums) {
            let copied = Factor::Tensor(at(base, LEFT + 16));
            b.tcgen05(row, at(base, LEFT), copied, other.clone(), Operand::Imm(0));
        }
        b.tcgen05(row, at(base, 0), left, other.clone(), Operand::Imm(0));
        if !right(Step::Overwrite) {
            let copied = Factor::Tensor(at(base, LEFT + 16));
            b.tcgen05(row, at(base, LEFT), copied, other.clone(), Operand::Imm(0));
        }
    });
    if !right(Step::Refill) {
        f.set_origin("refill");
        f.tensor_copy(copy("tcgen05.st.32x32b.x8"), words, at(own, LEFT));
        f.sync(SyncOp::TensorWaitStore);
    }
    block.store_sums(&mut f, base, out, 16);
    block.end(&mut f, base);
    f.finish()
}

/// Runs the program on small whole numbers; its report, and whether its sums are those of plain loops.
fn execute(row: &'static Tcgen05Row, mistake: Step, seed: u64) -> (Report, bool) {
    let (m, n, k) = (row.m as usize, row.n as usize, row.k as usize);
    let mut next = random(row.k as u64);
    let ea: Vec<u32> = (0..m * k).map(|_| small(row.a, &mut next)).collect();
    let eb: Vec<u32> = (0..n * k).map(|_| small(row.b, &mut next)).collect();
    // A thread has a row.
    let rows = format!("({m},{k}):(1,{m})").parse().unwrap();
    let a = fragment(&rows, row.a, |at| ea[at]);
    let b = placed(row.b, (n, k), Major::K, SwizzleMode::B32, |i, kk| eb[i + n * kk]);
    let f = program(row, &b, mistake);
    let mut memory = GlobalMemory::new();
    let mut args = Vec::new();
    for image in [&a, &b.image] {
        let id = memory.alloc(image.len());
        memory.write(id, image);
        args.push(tilewright_sim::Argument::Buffer(id));
    }
    let out = memory.alloc(4 * m * n);
    args.push(tilewright_sim::Argument::Buffer(out));
    let report = run(&f, [1, 1, 1], &memory, &args, &seeded(seed)).unwrap();
    let words = words_of(&memory.read(out));
    let same = (0..m * n).all(|at| {
        let (i, j) = (at % m, at / m);
        let terms = (0..k).map(|kk| row.a.decode(ea[i + m * kk]) * row.b.decode(eb[j + n * kk]));
        row.c.decode(words[at]) == terms.sum::<f64>()
    });
    (report, same)
}

fn half() -> &'static Tcgen05Row {
    tcgen05(DType::F16, DType::F16, DType::F32, [128, 16]).unwrap()
}

#[test]
fn sums_of_every_type_are_those_of_plain_loops() {
    for (i, row) in tcgen05_rows()
        .iter()
        .filter(|row| (row.blocks, row.m, row.n) == (1, 128, 16) && row.scaling.is_none() && !row.sparse)
        .enumerate()
    {
        let (report, same) = execute(row, Step::None, i as u64);
        assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
        assert!(same, "{}", row.name);
    }
    for seed in 0..8 {
        let (report, same) = execute(half(), Step::Overwrite, seed);
        assert!(report.is_clean() && same, "{seed}: {:?}", report.problems());
    }
}

#[test]
fn every_mistake_is_found() {
    let races = [
        (Step::WaitStore, RaceKind::AsyncPending),
        (Step::Before, RaceKind::AsyncPending),
        (Step::After, RaceKind::AsyncPending),
        (Step::Sums, RaceKind::AsyncPending),
        (Step::Refill, RaceKind::AsyncRead),
    ];
    for (mistake, kind) in races {
        let reports: Vec<Report> = (0..4).map(|seed| execute(half(), mistake, seed).0).collect();
        let found: Vec<_> = reports.iter().flat_map(|report| &report.races).map(|race| race.kind).collect();
        assert!(found.contains(&kind), "{mistake:?}: {found:?}");
    }
    for (mistake, rule) in [(Step::Column, Rule::Allocation), (Step::Lane, Rule::Place)] {
        let (report, _) = execute(half(), mistake, 0);
        let found: Vec<_> = report.protocol.iter().map(|misuse| misuse.rule).collect();
        assert!(found.contains(&rule), "{mistake:?}: {found:?}");
    }
}
