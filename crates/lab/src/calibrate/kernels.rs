//! The microbenchmarks as thread-level programs.
//!
//! Every kernel has the same frame: fill shared memory, then twice (the first time warms the instruction cache): barrier,
//! clock, `rounds` times the unrolled body, barrier, clock. Each thread stores both clocks and what its chains hold, so that
//! no assembler can drop the body. Numbers that the body uses come from memory, so that none can be folded.

use tilewright_machine::{
    Arch, BulkOp, CopyKind, CopyRow, Descriptor, Major, MbarrierOp, MmaRow, ProxyFence, ScalarOp,
    ShuffleMode, Sparsity, SwizzleMode, SyncOp, WgmmaRow, copy_named,
};
use tilewright_simt::{
    Address, ArrayId, Builder, DescriptorValue, Factor, Function, FunctionParamKind, Op, Operand, Reg,
    ScaleBytes, Special, Value,
};

/// Threads that the kernels are printed for; a launch may have fewer.
pub(crate) const THREADS: u32 = 512;
/// Words that each thread stores: clock before, clock after, where its first chain ends, what all chains hold.
pub(crate) const SLOTS: u32 = 4;
/// Words of the buffer of numbers.
pub(crate) const SEEDS: u32 = 64;
/// Bytes of shared memory: 16 for each thread, and for each of four chains.
const SHARED: u32 = 4 * 16 * THREADS;

/// Values that the body may use, none of them known to an assembler.
pub(crate) struct Values {
    /// Integers and bit patterns from memory, as [`seeds`] writes them.
    pub zero: Operand,
    pub one: Operand,
    pub three: Operand,
    pub selector: Operand,
    pub one_f32: Operand,
    /// A true predicate.
    pub truth: Operand,
}

/// The numbers in memory: first those of [`Values`], then where chains begin.
pub(crate) fn seeds(start: u32) -> Vec<u32> {
    let mut words = vec![0; SEEDS as usize];
    words[..5].copy_from_slice(&[0, 1, 3, 0x3210, 1f32.to_bits()]);
    for chain in 0..4 {
        words[16 + chain] = start;
        words[24 + chain] = 1.5f32.to_bits();
        words[32 + chain] = 12345 + chain as u32;
    }
    words
}

/// Value of a chain at its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// The offset that a chase begins at.
    Offset,
    /// 1.5.
    Float,
    /// A number of five digits.
    Integer,
}

impl Start {
    fn seed(self, chain: u32) -> u32 {
        chain
            + match self {
                Start::Offset => 16,
                Start::Float => 24,
                Start::Integer => 32,
            }
    }
}

/// The body's repeated step. A chain's step depends on the one before it.
#[derive(Clone, Copy)]
pub(crate) enum Step {
    /// From a 32-bit number to the next.
    Scalar(fn(&mut Builder, Operand, &Values) -> Operand),
    /// From a 64-bit number to the next; such chains begin and end at an address that is loaded from.
    Wide(fn(&mut Builder, Operand, &Values) -> Operand),
    /// A shuffle.
    Shuffle,
    /// A matrix product into the chain's accumulators.
    Mma(&'static MmaRow),
    /// A load from shared memory whose address depends on the last one's result: `add` and the load.
    SharedLoad(&'static CopyRow),
    /// A store to shared memory and, after it, a load of what the neighbour stored (an assembler would not load what the
    /// thread itself stored): `add`, the store and `ld.shared.b32`.
    SharedRoundTrip(&'static CopyRow),
    /// A store to shared memory; nothing waits for it.
    SharedStore(&'static CopyRow),
    /// A load from global memory at the offset that the last one gave: `imad.wide` and the load.
    Chase(&'static CopyRow),
    /// A load from global memory that nothing waits for, of the same few lines: they lie in the L1 cache.
    GlobalLoad(&'static CopyRow),
    /// A store to global memory; nothing waits for it.
    GlobalStore(&'static CopyRow),
    /// An asynchronous copy, its wait, and the load of what it wrote: `imad.wide`, the copy, `ld.shared.b32`.
    AsyncChase(&'static CopyRow),
    /// An asynchronous copy of the same few lines; the round waits for all of its copies.
    AsyncCopy(&'static CopyRow),
    /// A product of a warpgroup into the chain's accumulators, A in registers; the round waits for all of its products.
    Wgmma(&'static WgmmaRow),
    /// The same, waited for at once.
    WgmmaWait(&'static WgmmaRow),
    /// A bulk copy of this many bytes by one thread; the round waits for all of its copies.
    Bulk(BulkOp, u32),
    /// The same, waited for at once.
    BulkWait(BulkOp, u32),
    /// A block barrier.
    Barrier,
}

impl Step {
    /// Threads that the kernel is printed for: fewer where they need many registers.
    fn threads(self) -> u32 {
        if matches!(self, Step::Wgmma(_) | Step::WgmmaWait(_)) { 128 } else { THREADS }
    }
}

/// A microbenchmark.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    pub step: Step,
    pub start: Start,
    /// Independent chains of a thread, at most 4.
    pub chains: u32,
    /// Steps of each chain in the body.
    pub length: u32,
}

fn reg(array: ArrayId, index: u32) -> Reg {
    Reg { array, index }
}

fn regs(array: ArrayId, start: u32, count: u32) -> Vec<Reg> {
    (start..start + count).map(|i| reg(array, i)).collect()
}

fn at(base: Operand, offset: i32) -> Address {
    Address { base, offset }
}

fn row(name: &'static str) -> &'static CopyRow {
    copy_named(name).expect("the name of a row that a test looks up")
}

fn imm(x: u32) -> Operand {
    Operand::Imm(u64::from(x))
}

/// A kernel that is being built.
struct Frame {
    b: Builder,
    spec: Spec,
    values: Values,
    /// The chains' numbers between rounds.
    state: ArrayId,
    /// Registers of loads, stores and products: those of each chain, one after the other.
    work: ArrayId,
    per_chain: u32,
    /// The thread's addresses in shared memory and in the data.
    shared: Option<Operand>,
    data: Operand,
    /// For steps that stream: where each chain's accesses of this round begin.
    streams: Vec<Operand>,
    /// For bulk copies: their mbarrier, the parity of its phase, and whether this thread makes them.
    bulk: Option<(Address, Reg, Value)>,
}

/// Registers that one chain of a step uses.
fn registers(step: Step) -> u32 {
    match step {
        Step::Mma(row) => {
            let (a, b, c) = row.registers();
            a + b + c + u32::from(row.sparsity.is_some()) + 2 * u32::from(row.scaling.is_some())
        }
        Step::Wgmma(row) | Step::WgmmaWait(row) => {
            let (a, d) = row.registers();
            a + d
        }
        Step::SharedLoad(row)
        | Step::SharedStore(row)
        | Step::SharedRoundTrip(row)
        | Step::Chase(row)
        | Step::GlobalLoad(row)
        | Step::GlobalStore(row) => row.registers() + 1,
        Step::Scalar(_)
        | Step::Wide(_)
        | Step::Shuffle
        | Step::AsyncChase(_)
        | Step::AsyncCopy(_)
        | Step::Bulk(..)
        | Step::BulkWait(..)
        | Step::Barrier => 1,
    }
}

fn uses_shared(step: Step) -> bool {
    matches!(
        step,
        Step::SharedLoad(_)
            | Step::SharedRoundTrip(_)
            | Step::SharedStore(_)
            | Step::AsyncChase(_)
            | Step::AsyncCopy(_)
    ) || is_asynchronous(step)
}

/// True if the asynchronous proxy reads or writes shared memory.
fn is_asynchronous(step: Step) -> bool {
    matches!(step, Step::Wgmma(_) | Step::WgmmaWait(_)) || is_bulk(step)
}

fn is_bulk(step: Step) -> bool {
    matches!(step, Step::Bulk(..) | Step::BulkWait(..))
}

/// Declares what a launch passes: the data, the numbers, the results, and the sizes of the program that carries the kernels.
struct Params {
    data: u32,
    seeds: u32,
    out: u32,
    rounds: u32,
    passes: u32,
}

fn params(b: &mut Builder) -> Params {
    let mut pointer = |name: &str| b.add_param(name, FunctionParamKind::Pointer);
    let (data, seeds, out) = (pointer("data"), pointer("seeds"), pointer("out"));
    let mut size = |name: &str| b.add_param(name, FunctionParamKind::I32);
    let (_, _, _) = (size("blocks"), size("words"), size("slots"));
    Params { data, seeds, out, rounds: size("rounds"), passes: size("passes") }
}

/// `pointer + index * bytes`.
fn element(b: &mut Builder, param: u32, index: Operand, bytes: u32) -> Operand {
    let base = b.param(param).into();
    let offset = b.scalar(ScalarOp::MulWide, &[index, imm(bytes)]);
    b.scalar(ScalarOp::AddI64, &[base, offset])
}

/// A microbenchmark's function. `name` is its entry point's.
pub(crate) fn chain(name: &str, arch: Arch, spec: Spec) -> Function {
    let mut b = Builder::new(name, arch, spec.step.threads());
    let params = params(&mut b);
    let seeds = b.add_array("seeds", SEEDS);
    let clocks = b.add_array("clocks", 2);
    let state = b.add_array("state", spec.chains);
    let per_chain = registers(spec.step);
    let work = b.add_array("work", per_chain * spec.chains);
    let base: Operand = b.param(params.seeds).into();
    let wanted = [0, 1, 2, 3, 4].into_iter().chain((0..spec.chains).map(|c| spec.start.seed(c)));
    for index in wanted {
        b.load(row("ld.global.b32"), vec![reg(seeds, index)], at(base, 4 * index as i32), None);
    }
    let zero = b.read(reg(seeds, 0));
    let values = Values {
        zero,
        one: b.read(reg(seeds, 1)),
        three: b.read(reg(seeds, 2)),
        selector: b.read(reg(seeds, 3)),
        one_f32: b.read(reg(seeds, 4)),
        truth: b.scalar(ScalarOp::EqI32, &[zero, imm(0)]),
    };
    for chain in 0..spec.chains {
        let mut first = b.read(reg(seeds, spec.start.seed(chain)));
        if matches!(spec.step, Step::Shuffle) {
            // An assembler knows that a shuffle of what all lanes share is no shuffle.
            let thread: Operand = b.special(Special::ThreadIndex).into();
            first = b.scalar(ScalarOp::XorB32, &[first, thread]);
        }
        b.write(reg(state, chain), first);
        for index in 0..per_chain {
            b.write(reg(work, chain * per_chain + index), values.zero);
        }
    }
    let thread: Operand = b.special(Special::ThreadIndex).into();
    let shared = uses_shared(spec.step).then(|| {
        b.add_shared("buffer", SHARED, 128);
        let window: Operand = b.special(Special::SharedBase).into();
        let offset = b.scalar(ScalarOp::ShlB32, &[thread, imm(4)]);
        let own = b.scalar(ScalarOp::AddI32, &[window, offset]);
        let zeros = b.add_array("zeros", 4);
        regs(zeros, 0, 4).into_iter().for_each(|r| b.write(r, imm(0)));
        for chain in 0..4 {
            let address = at(own, (chain * 16 * THREADS) as i32);
            b.store(row("st.shared.v4.b32"), regs(zeros, 0, 4), address, None);
        }
        own
    });
    let data: Operand = b.param(params.data).into();
    let passes = Operand::from(b.param(params.passes));
    let rounds = Operand::from(b.param(params.rounds));
    let bulk = is_bulk(spec.step).then(|| {
        let offset = b.add_shared("barrier", 8, 8);
        let window: Operand = b.special(Special::SharedBase).into();
        let barrier = at(window, offset as i32);
        let parity = reg(b.add_array("parity", 1), 0);
        b.write(parity, imm(0));
        let first = b.scalar(ScalarOp::EqI32, &[thread, imm(0)]);
        let Operand::Value(first) = first else { unreachable!("a thread's index is no literal") };
        b.open_branch();
        b.mbarrier(MbarrierOp::Init, barrier, imm(1));
        b.sync(SyncOp::FenceMbarrierInit);
        b.close_branch(first);
        (barrier, parity, first)
    });
    if is_asynchronous(spec.step) {
        b.sync(SyncOp::FenceProxyAsync(ProxyFence::Shared));
    }
    let mut frame =
        Frame { b, spec, values, state, work, per_chain, shared, data, streams: Vec::new(), bulk };

    let pass = frame.b.open_loop();
    frame.b.sync(SyncOp::Barrier);
    let before = frame.b.special(Special::Clock);
    frame.b.write(reg(clocks, 0), before.into());
    let round = frame.b.open_loop();
    frame.round();
    frame.b.close_loop(round, imm(0), rounds, imm(1));
    frame.b.sync(SyncOp::Barrier);
    let after = frame.b.special(Special::Clock);
    frame.b.write(reg(clocks, 1), after.into());
    frame.b.close_loop(pass, imm(0), passes, imm(1));

    let Frame { mut b, state, work, .. } = frame;
    let sum = b.add_array("sum", 1);
    let mut total = values_sum(&mut b, state, spec.chains);
    let held = values_sum(&mut b, work, per_chain * spec.chains);
    total = b.scalar(ScalarOp::AddI32, &[total, held]);
    b.write(reg(sum, 0), total);
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    let first = b.scalar(ScalarOp::MulI32, &[block, imm(THREADS)]);
    let index = b.scalar(ScalarOp::AddI32, &[first, thread]);
    let address = element(&mut b, params.out, index, 4 * SLOTS);
    let store = row("st.global.b32");
    b.store(store, vec![reg(clocks, 0)], at(address, 0), None);
    b.store(store, vec![reg(clocks, 1)], at(address, 4), None);
    b.store(store, vec![reg(state, 0)], at(address, 8), None);
    b.store(store, vec![reg(sum, 0)], at(address, 12), None);
    b.finish()
}

fn values_sum(b: &mut Builder, array: ArrayId, count: u32) -> Operand {
    let mut total = imm(0);
    for index in 0..count {
        let value = b.read(reg(array, index));
        total = b.scalar(ScalarOp::XorB32, &[total, value]);
    }
    total
}

impl Frame {
    /// The body: `length` steps of every chain, the chains' steps interleaved.
    fn round(&mut self) {
        let chains = self.spec.chains;
        let mut now: Vec<Operand> = (0..chains).map(|c| self.b.read(reg(self.state, c))).collect();
        if matches!(self.spec.step, Step::Wide(_)) {
            for x in &mut now {
                // The state is 0: the address stays that of the data.
                let offset = self.b.scalar(ScalarOp::ExtendI64, &[*x]);
                *x = self.b.scalar(ScalarOp::AddI64, &[self.data, offset]);
            }
        }
        if let Step::GlobalLoad(row) | Step::GlobalStore(row) | Step::AsyncCopy(row) = self.spec.step {
            self.begin_streams(row, &now);
        }
        self.begin_round();
        for index in 0..self.spec.length {
            for chain in 0..chains {
                now[chain as usize] = self.step(now[chain as usize], chain, index);
            }
        }
        self.end_round();
        if let Step::AsyncCopy(_) = self.spec.step {
            self.b.sync(SyncOp::AsyncWaitAll);
        }
        for (chain, x) in (0..chains).zip(now) {
            if matches!(self.spec.step, Step::Wide(_)) {
                self.b.load(row("ld.global.b32"), vec![reg(self.state, chain)], at(x, 0), None);
            } else {
                self.b.write(reg(self.state, chain), x);
            }
        }
    }

    fn begin_round(&mut self) {
        if let Step::Wgmma(_) | Step::WgmmaWait(_) = self.spec.step {
            self.b.sync(SyncOp::WgmmaFence);
        }
        let Some((barrier, ..)) = self.bulk else { return };
        self.b.open_branch();
        if let Step::Bulk(BulkOp::Load, bytes) = self.spec.step {
            self.b.mbarrier(MbarrierOp::ArriveExpect, barrier, imm(self.spec.length * bytes));
        }
    }

    fn end_round(&mut self) {
        if let Step::Wgmma(_) = self.spec.step {
            self.b.sync(SyncOp::WgmmaCommit);
            self.b.sync(SyncOp::WgmmaWait(0));
        }
        let Some((barrier, parity, first)) = self.bulk else { return };
        match self.spec.step {
            Step::Bulk(BulkOp::Load, _) => {
                let now = self.b.read(parity);
                self.b.mbarrier(MbarrierOp::Wait, barrier, now);
                let next = self.b.scalar(ScalarOp::XorB32, &[now, imm(1)]);
                self.b.write(parity, next);
            }
            Step::Bulk(..) => self.wait_for_stores(),
            _ => {}
        }
        self.b.close_branch(first);
    }

    fn wait_for_stores(&mut self) {
        self.b.sync(SyncOp::BulkCommit);
        self.b.sync(SyncOp::BulkWaitRead(0));
    }

    /// A product of a warpgroup: A in registers, B without a swizzle, 8 rows of 32 bytes after another.
    fn wgmma(&mut self, row: &'static WgmmaRow, chain: u32) {
        let (a, d) = row.registers();
        let (d, a) = (self.registers(chain, 0, d), self.registers(chain, d, a));
        let descriptor =
            Descriptor { start: 0, leading: 128, stride: 256, swizzle: SwizzleMode::None }.encode();
        let window: Operand = self.b.special(Special::SharedBase).into();
        let start = self.b.scalar(ScalarOp::ShrU32, &[window, imm(4)]);
        let start = self.b.scalar(ScalarOp::AndB32, &[start, imm(0x3fff)]);
        let low = self.b.scalar(ScalarOp::OrB32, &[start, imm(descriptor as u32)]);
        let descriptor = DescriptorValue { low, high: (descriptor >> 32) as u32 };
        let b = Factor::Shared { descriptor, major: Major::K };
        self.b.wgmma(row, d, Factor::Registers(a), b, self.values.truth);
    }

    fn bulk(&mut self, op: BulkOp, bytes: u32, index: u32) {
        let Some((barrier, ..)) = self.bulk else { return };
        let window: Operand = self.b.special(Special::SharedBase).into();
        let place = (index * bytes) as i32;
        let barrier = (op == BulkOp::Load).then_some(barrier);
        let (shared, other) = (at(window, place), at(self.data, place));
        self.b.bulk(Op::Bulk { op, shared, other, bytes: imm(bytes), barrier });
    }

    fn registers(&self, chain: u32, skip: u32, count: u32) -> Vec<Reg> {
        regs(self.work, chain * self.per_chain + skip, count)
    }

    fn load(&mut self, row: &'static CopyRow, registers: Vec<Reg>, address: Address) {
        match row.kind {
            CopyKind::Matrix { .. } => self.b.matrix(row, registers, address),
            _ => self.b.load(row, registers, address, None),
        }
    }

    fn store(&mut self, row: &'static CopyRow, registers: Vec<Reg>, address: Address) {
        match row.kind {
            CopyKind::Matrix { .. } => self.b.matrix(row, registers, address),
            _ => self.b.store(row, registers, address, None),
        }
    }

    /// The thread's place in shared memory for a chain: contiguous threads lie `row.bytes` apart, so that nothing conflicts.
    fn place(&mut self, row: &CopyRow, chain: u32) -> Address {
        let own = self.shared.unwrap_or(imm(0));
        if row.bytes == 16 {
            return at(own, (chain * 16 * THREADS) as i32);
        }
        let thread: Operand = self.b.special(Special::ThreadIndex).into();
        let window: Operand = self.b.special(Special::SharedBase).into();
        let offset = self.b.scalar(ScalarOp::MulI32, &[thread, imm(row.bytes)]);
        let base = self.b.scalar(ScalarOp::AddI32, &[window, offset]);
        at(base, (chain * 16 * THREADS) as i32)
    }

    /// A word that depends on a load: its words' exclusive or, since an assembler would narrow a load whose words are not all used. All
    /// but the first are zero. The words of a matrix are needed only to the first.
    fn loaded(&mut self, row: &CopyRow, registers: &[Reg]) -> Operand {
        let mut all = self.b.read(registers[0]);
        if !row.is_collective() {
            for word in &registers[1..] {
                let word = self.b.read(*word);
                all = self.b.scalar(ScalarOp::XorB32, &[all, word]);
            }
        }
        all
    }

    fn moved(&mut self, place: Address, by: Operand) -> Address {
        at(self.b.scalar(ScalarOp::AddI32, &[place.base, by]), place.offset)
    }

    fn step(&mut self, x: Operand, chain: u32, index: u32) -> Operand {
        match self.spec.step {
            Step::Scalar(f) | Step::Wide(f) => f(&mut self.b, x, &self.values),
            // By a literal, two of them are none.
            Step::Shuffle => self.b.shuffle(x, ShuffleMode::Bfly, self.values.one),
            Step::Barrier => {
                self.b.sync(SyncOp::Barrier);
                x
            }
            Step::Mma(row) => {
                let (a, b, c) = row.registers();
                let skipped = c + a + b;
                let [d, a, b] = [(0, c), (c, a), (c + a, b)].map(|(skip, n)| self.registers(chain, skip, n));
                if row.sparsity.is_some() {
                    let meta = self.registers(chain, skipped, 1)[0];
                    self.b.write(meta, Operand::Imm(u64::from(Sparsity::FIRST_TWO)));
                    self.b.sparse_mma(row, d, a, b, meta);
                } else if row.scaling.is_some() {
                    let registers = self.registers(chain, skipped, 2);
                    // Scales of 1, as ue8m0.
                    registers.iter().for_each(|scales| self.b.write(*scales, Operand::Imm(0x7f7f_7f7f)));
                    let scales = [0, 1].map(|i| ScaleBytes { register: registers[i], byte: 0 });
                    self.b.scaled_mma(row, d, [a, b], scales);
                } else {
                    self.b.mma(row, d, a, b);
                }
                x
            }
            Step::Wgmma(row) => {
                self.wgmma(row, chain);
                x
            }
            Step::WgmmaWait(row) => {
                self.wgmma(row, chain);
                self.b.sync(SyncOp::WgmmaCommit);
                self.b.sync(SyncOp::WgmmaWait(0));
                x
            }
            Step::Bulk(op, bytes) => {
                self.bulk(op, bytes, index);
                x
            }
            Step::BulkWait(op, bytes) => {
                if let (BulkOp::Load, Some((barrier, ..))) = (op, self.bulk) {
                    // Bodies have an even number of steps: each begins in phase 0.
                    self.b.mbarrier(MbarrierOp::ArriveExpect, barrier, imm(bytes));
                    self.bulk(op, bytes, index);
                    self.b.mbarrier(MbarrierOp::Wait, barrier, imm(index % 2));
                } else {
                    self.bulk(op, bytes, index);
                    self.wait_for_stores();
                }
                x
            }
            Step::SharedLoad(row) => {
                let place = self.place(row, chain);
                let address = self.moved(place, x);
                let registers = self.registers(chain, 0, row.registers());
                self.load(row, registers.clone(), address);
                self.loaded(row, &registers)
            }
            Step::SharedRoundTrip(copy) => {
                let place = self.place(copy, chain);
                let address = self.moved(place, x);
                let registers = self.registers(chain, 0, copy.registers());
                self.store(copy, registers, address);
                let back = self.registers(chain, copy.registers(), 1);
                let load = row(if copy.bytes < 4 { "ld.shared.u8" } else { "ld.shared.b32" });
                let beside = self.b.scalar(ScalarOp::XorB32, &[place.base, imm(copy.bytes)]);
                let beside = self.moved(at(beside, place.offset), x);
                self.load(load, back.clone(), beside);
                self.b.read(back[0])
            }
            Step::SharedStore(row) => {
                let place = self.place(row, chain);
                let registers = self.registers(chain, 0, row.registers());
                self.store(row, registers, place);
                x
            }
            Step::Chase(row) => {
                let offset = self.b.scalar(ScalarOp::MulWide, &[x, imm(16)]);
                let address = self.b.scalar(ScalarOp::AddI64, &[self.data, offset]);
                let registers = self.registers(chain, 0, row.registers());
                self.b.load(row, registers.clone(), at(address, 0), None);
                self.loaded(row, &registers)
            }
            Step::GlobalLoad(row) => {
                // A load whose result is overwritten unread would be dropped: each is added to the chain.
                let registers = self.registers(chain, 0, row.registers());
                let address = self.stream(chain, index);
                self.b.load(row, registers.clone(), address, None);
                let words = self.loaded(row, &registers);
                self.b.scalar(ScalarOp::XorB32, &[x, words])
            }
            Step::GlobalStore(row) => {
                let registers = self.registers(chain, 0, row.registers());
                let address = self.stream(chain, index);
                self.b.store(row, registers, address, None);
                x
            }
            Step::AsyncChase(copy) => {
                let offset = self.b.scalar(ScalarOp::MulWide, &[x, imm(16)]);
                let source = self.b.scalar(ScalarOp::AddI64, &[self.data, offset]);
                let place = self.place(copy, chain);
                self.b.async_copy(copy, place, at(source, 0), None);
                self.b.sync(SyncOp::AsyncWaitAll);
                let back = self.registers(chain, 0, 1);
                self.b.load(row("ld.shared.b32"), back.clone(), place, None);
                self.b.read(back[0])
            }
            Step::AsyncCopy(row) => {
                let place = self.place(row, chain);
                let address = self.stream(chain, index);
                self.b.async_copy(row, place, address, None);
                x
            }
        }
    }

    /// Begins the chains' streams of this round in the block's own part of the data, contiguous threads `row.bytes` apart.
    /// It depends on what the chain loaded before (zeros), so that no assembler takes a load out of the loop.
    fn begin_streams(&mut self, row: &CopyRow, now: &[Operand]) {
        let thread: Operand = self.b.special(Special::ThreadIndex).into();
        let block: Operand = self.b.special(Special::BlockIndex(0)).into();
        let part = self.b.scalar(ScalarOp::MulWide, &[block, imm(STREAM_BYTES)]);
        let part = self.b.scalar(ScalarOp::AddI64, &[self.data, part]);
        let offset = self.b.scalar(ScalarOp::MulWide, &[thread, imm(row.bytes)]);
        let own = self.b.scalar(ScalarOp::AddI64, &[part, offset]);
        self.streams.clear();
        for x in now {
            let moved = self.b.scalar(ScalarOp::MulWide, &[*x, imm(16)]);
            let base = self.b.scalar(ScalarOp::AddI64, &[own, moved]);
            self.streams.push(base);
        }
    }

    /// Each step of a stream begins a line after the one before, so that no two loads of a round are the same.
    fn stream(&self, chain: u32, index: u32) -> Address {
        at(self.streams[chain as usize], (128 * (self.spec.length * chain + index)) as i32)
    }
}

/// Bytes of data that the steps which stream a few lines use in each block: those of the threads, and a line for each step.
pub(crate) const STREAM_BYTES: u32 = 16 * THREADS + 128 * 512;

/// Loads that one thread of the bandwidth kernel has in flight.
pub(crate) const FLIGHT: u32 = 8;
/// Bytes that one block of the bandwidth kernel reads a round.
pub(crate) const CHUNK: u32 = FLIGHT * 16 * THREADS;

/// Reads the data in chunks of [`CHUNK`] bytes: a block begins at chunk `block * passes` and reads `rounds` chunks, modulo
/// the `words` of the data. It stores clocks like the other kernels do.
pub(crate) fn bandwidth(name: &str, arch: Arch, chunks: u32) -> Function {
    let mut b = Builder::new(name, arch, THREADS);
    let params = params(&mut b);
    let sum = b.add_array("sum", 1);
    let clocks = b.add_array("clocks", 2);
    let parts = b.add_array("parts", 4 * FLIGHT);
    b.write(reg(sum, 0), imm(0));
    let thread: Operand = b.special(Special::ThreadIndex).into();
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    let apart = Operand::from(b.param(params.passes));
    let first = b.scalar(ScalarOp::MulI32, &[block, apart]);
    let rounds = Operand::from(b.param(params.rounds));
    b.sync(SyncOp::Barrier);
    let before = b.special(Special::Clock);
    b.write(reg(clocks, 0), before.into());
    let round = b.open_loop();
    let chunk = b.scalar(ScalarOp::AddI32, &[first, round.into()]);
    // The number of chunks is a power of two.
    let chunk = b.scalar(ScalarOp::AndB32, &[chunk, imm(chunks - 1)]);
    let start = element(&mut b, params.data, chunk, CHUNK);
    let offset = b.scalar(ScalarOp::MulWide, &[thread, imm(16)]);
    let address = b.scalar(ScalarOp::AddI64, &[start, offset]);
    for k in 0..FLIGHT {
        let place = at(address, (k * 16 * THREADS) as i32);
        b.load(row("ld.global.v4.b32"), regs(parts, 4 * k, 4), place, None);
    }
    let mut total = b.read(reg(sum, 0));
    for index in 0..4 * FLIGHT {
        let word = b.read(reg(parts, index));
        total = b.scalar(ScalarOp::XorB32, &[total, word]);
    }
    b.write(reg(sum, 0), total);
    b.close_loop(round, imm(0), rounds, imm(1));
    b.sync(SyncOp::Barrier);
    let after = b.special(Special::Clock);
    b.write(reg(clocks, 1), after.into());
    // Each block has the place of block 0 to 63: they are too many for a place of their own.
    let slot = b.scalar(ScalarOp::AndB32, &[block, imm(63)]);
    let index = b.scalar(ScalarOp::MulI32, &[slot, imm(THREADS)]);
    let index = b.scalar(ScalarOp::AddI32, &[index, thread]);
    let address = element(&mut b, params.out, index, 4 * SLOTS);
    let store = row("st.global.b32");
    b.store(store, vec![reg(clocks, 0)], at(address, 0), None);
    b.store(store, vec![reg(clocks, 1)], at(address, 4), None);
    b.store(store, vec![reg(sum, 0)], at(address, 8), None);
    b.finish()
}

/// A kernel that does nothing.
pub(crate) fn nothing(name: &str, arch: Arch) -> Function {
    let mut b = Builder::new(name, arch, THREADS);
    params(&mut b);
    b.finish()
}
