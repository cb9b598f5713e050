//! Products with a sparse left factor, whose metadata threads store in tensor memory, against plain loops, and what goes wrong with these.

use crate::common::*;
use crate::hopper_products::{Placed, fetch, fragment, pair, placed, registers, small, stage};
use crate::tensor_memory::factor;
use tilewright_machine::{
    Arch, DType, Major, ProxyFence, Sparsity, SwizzleMode, SyncOp, Tcgen05Row, metadata_layout,
    sparse_tcgen05, tcgen05_rows, tensor_memory_copies,
};
use tilewright_sim::{GlobalMemory, RaceKind, Report, Rule, run};
use tilewright_simt::{Builder, Factor, Function, MetadataCells, Operand};

const B: u32 = 1024;
/// The column of the left factor; the sums begin at column 0.
const LEFT: i32 = 16;
/// The first column of the metadata of two instructions of 16-bit factors, or of one of 8-bit ones.
const PLACES: i32 = 32;

/// A step of the program that a mistake may change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Nothing is changed.
    None,
    /// Nobody waits for the stores of the metadata.
    WaitStore,
    /// No fence stands between the stores and the barrier.
    Before,
    /// The metadata are read where nothing is allocated.
    Unallocated,
    /// They begin at an odd column.
    Odd,
    /// They begin at another lane.
    Lane,
    /// They are stored again while the product reads them.
    Refill,
    /// The places of a group do not increase.
    Order,
    /// The product takes the metadata of another instruction.
    Selector,
}

/// A block whose threads store a compressed left factor and its metadata in tensor memory, of which one multiplies, and that stores the sums.
fn program(row: &'static Tcgen05Row, b: &Placed, mistake: Step) -> Function {
    let right = |step: Step| mistake != step;
    let mut f = Builder::new("sparse", Arch::SM_100A, 128);
    let [pa, pb, pm, out] = ["a", "b", "meta", "out"].map(|name| f.pointer_param(name));
    f.add_shared_at("b", B, b.image.len() as u32);
    f.add_tensor_memory("acc", 0, 16);
    f.add_tensor_memory("left", 16, 16);
    f.add_tensor_memory("places", 32, 32);
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
    f.tensor_copy(copy("tcgen05.st.32x32b.x8"), words, at(own, LEFT));
    f.sync(SyncOp::TensorWaitStore);
    let array = f.add_array("places", 2);
    let places = registers(array, 2);
    fetch(&mut f, pm, &places, 128);
    f.tensor_copy(copy("tcgen05.st.32x32b.x2"), places.clone(), at(own, PLACES));
    if right(Step::WaitStore) {
        f.sync(SyncOp::TensorWaitStore);
    }
    if right(Step::Before) {
        f.sync(SyncOp::TensorFenceBefore);
    }
    f.sync(SyncOp::Barrier);
    f.sync(SyncOp::TensorFenceAfter);
    let other = factor(&mut f, b, B);
    let column = match mistake {
        Step::Unallocated => 64,
        Step::Odd => PLACES + 1,
        Step::Lane => PLACES + (32 << 16),
        _ => PLACES,
    };
    let selector = if row.a.bits() == 16 { u32::from(right(Step::Selector)) } else { 0 };
    block.multiply(&mut f, |b| {
        let left = Factor::Tensor(at(base, LEFT));
        let meta = MetadataCells { address: at(base, column), selector };
        b.sparse_tcgen05(row, at(base, 0), [left, other.clone()], meta, Operand::Imm(0));
    });
    if !right(Step::Refill) {
        f.set_origin("refill");
        f.tensor_copy(copy("tcgen05.st.32x32b.x2"), places, at(own, PLACES));
        f.sync(SyncOp::TensorWaitStore);
    }
    block.store_sums(&mut f, base, out, 16);
    block.end(&mut f, base);
    f.finish()
}

/// The words of metadata, lane fastest: those of an instruction, of 16-bit factors in the second column of a pair whose first has others.
fn metadata(row: &Tcgen05Row, place: impl Fn(usize, usize) -> usize, disorder: bool) -> Vec<u8> {
    let (m, k) = (row.m as usize, row.left_columns() as usize);
    let layout = metadata_layout(row.a.bits(), row.left_columns()).unwrap();
    let first = if row.a.bits() == 16 { 128 } else { 0 };
    // The last two of each group, where the instruction reads others.
    let mut words = vec![0xeeee_eeeeu32; first];
    words.resize(256, 0);
    for at in 0..m * k {
        let found = layout.eval(at as i64) as usize;
        let place = if disorder && at == m { 0 } else { place(at % m, at / m) };
        words[first + found / 16] |= (place as u32) << (2 * (found % 16));
    }
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Runs the program on small whole numbers; its report, and whether its sums are those of plain loops.
fn execute(row: &'static Tcgen05Row, mistake: Step, seed: u64) -> (Report, bool) {
    let (m, n, k) = (row.m as usize, row.n as usize, row.k as usize);
    let kept = row.left_columns() as usize;
    let mut next = random(row.k as u64 + 3);
    let ea: Vec<u32> = (0..m * kept).map(|_| small(row.a, &mut next)).collect();
    let eb: Vec<u32> = (0..n * k).map(|_| small(row.b, &mut next)).collect();
    let place = |i: usize, c: usize| pair(i, c / Sparsity::KEPT as usize)[c % Sparsity::KEPT as usize];
    // A thread has a row.
    let rows = format!("({m},{kept}):(1,{m})").parse().unwrap();
    let a = fragment(&rows, row.a, |at| ea[at]);
    let b = placed(row.b, (n, k), Major::K, SwizzleMode::B64, |i, kk| eb[i + n * kk]);
    let f = program(row, &b, mistake);
    let mut memory = GlobalMemory::new();
    let mut args = Vec::new();
    for image in [&a, &b.image, &metadata(row, place, mistake == Step::Order)] {
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
        let terms = (0..kept).map(|c| {
            let column = c / Sparsity::KEPT as usize * Sparsity::GROUP as usize + place(i, c);
            row.a.decode(ea[i + m * c]) * row.b.decode(eb[j + n * column])
        });
        row.c.decode(words[at]) == terms.sum::<f64>()
    });
    (report, same)
}

fn half() -> &'static Tcgen05Row {
    sparse_tcgen05(DType::F16, DType::F16, DType::F32, [128, 16]).unwrap()
}

#[test]
fn sums_of_every_type_are_those_of_plain_loops() {
    for (i, row) in tcgen05_rows().iter().filter(|row| row.sparse && row.n == 16).enumerate() {
        let (report, same) = execute(row, Step::None, i as u64);
        assert!(report.is_clean(), "{}: {:?}", row.name, report.problems());
        assert!(same, "{}", row.name);
    }
}

#[test]
fn every_mistake_is_found() {
    let races = [
        (Step::WaitStore, RaceKind::AsyncPending),
        (Step::Before, RaceKind::AsyncPending),
        (Step::Refill, RaceKind::AsyncRead),
    ];
    for (mistake, kind) in races {
        let reports: Vec<Report> = (0..4).map(|seed| execute(half(), mistake, seed).0).collect();
        let found: Vec<_> = reports.iter().flat_map(|report| &report.races).map(|race| race.kind).collect();
        assert!(found.contains(&kind), "{mistake:?}: {found:?}");
    }
    let rules = [
        (Step::Unallocated, Rule::Allocation),
        (Step::Odd, Rule::Place),
        (Step::Lane, Rule::Place),
        (Step::Order, Rule::Metadata),
    ];
    for (mistake, rule) in rules {
        let (report, _) = execute(half(), mistake, 0);
        let found: Vec<_> = report.protocol.iter().map(|misuse| misuse.rule).collect();
        assert!(found.contains(&rule), "{mistake:?}: {found:?}");
    }
    // Metadata of another instruction are as good as any.
    let (report, same) = execute(half(), Step::Selector, 0);
    assert!(report.is_clean() && !same, "{:?}", report.problems());
}
