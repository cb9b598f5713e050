//! The rows under test: the code that applies each to a thread's words, and what must come out by the row's own description.

use tilewright_layout::Layout;
use tilewright_machine::{
    Arch, CopyKind, CopyRow, DType, Memory, MmaRow, RegType, ScalarOp, Scope, ShuffleMode, Sparsity, SyncOp,
    copy_named, copy_rows, mma_rows,
};
use tilewright_simt::{Address, Builder, Operand, Reg, ScaleBytes, Special, Value};

use super::THREADS;
use super::values::{Domain, Random, operands};

/// Lanes of a warp.
const WARP: usize = 32;

/// Permitted difference of two devices in the result of a row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Match {
    /// Not at all.
    Bits,
    /// In the bits of NaNs: the values are floats of this type.
    Floats(DType),
    /// The values are `f32`, and differ by the operation's error.
    Near(ScalarOp),
    /// The values are sums of products, of this type.
    Sums(&'static MmaRow),
}

/// Test of a row.
#[derive(Clone, Debug)]
enum Work {
    Scalar(ScalarOp, Vec<Domain>),
    Shuffle(ShuffleMode),
    Copy(&'static CopyRow),
    Mma(&'static MmaRow),
}

/// A row under test. Each thread has `inputs` words of its own and leaves `outputs`.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub row: &'static str,
    pub mnemonic: &'static str,
    pub matches: Match,
    pub inputs: usize,
    pub outputs: usize,
    work: Work,
}

/// Every row that an architecture has.
pub(super) fn items(arch: Arch) -> Vec<Item> {
    let mut all = Vec::new();
    for op in ScalarOp::ALL.iter().copied().filter(|op| arch.has(op.needs())) {
        for domains in operands(op) {
            let row = op.row();
            let inputs = 2 * row.operands.len();
            all.push(Item {
                row: row.name,
                mnemonic: row.mnemonic,
                matches: matches(op),
                inputs,
                outputs: 2,
                work: Work::Scalar(op, domains),
            });
        }
    }
    for mode in ShuffleMode::ALL {
        let name = mode.mnemonic();
        let work = Work::Shuffle(mode);
        all.push(Item { row: name, mnemonic: name, matches: Match::Bits, inputs: 2, outputs: 1, work });
    }
    for row in copy_rows().iter().filter(|row| arch.has(row.needs)) {
        let work = Work::Copy(row);
        // Four words that are moved, and one that says whether and from where.
        all.push(Item {
            row: row.name,
            mnemonic: row.mnemonic,
            matches: Match::Bits,
            inputs: 5,
            outputs: 4,
            work,
        });
    }
    // Words of these items hold whole elements: products of `f64` are not compared.
    for row in mma_rows().iter().filter(|row| arch.has(row.needs) && row.c.bits() <= 32) {
        let (a, b, c) = row.registers();
        let beside = u32::from(row.sparsity.is_some()) + 2 * u32::from(row.scaling.is_some());
        all.push(Item {
            row: row.name,
            mnemonic: row.mnemonic,
            // Sums of integers are exact, modulo 2³².
            matches: if row.c.is_float() { Match::Sums(row) } else { Match::Bits },
            inputs: (a + b + c + beside) as usize,
            outputs: c as usize,
            work: Work::Mma(row),
        });
    }
    all
}

/// Largest difference that results of an operation may have. The match has no wildcard: a new operation says what it is.
fn matches(op: ScalarOp) -> Match {
    use ScalarOp::*;
    match op {
        AddI32 | SubI32 | MulI32 | DivI32 | RemI32 | MinI32 | MaxI32 | AndB32 | OrB32 | XorB32 | ShlB32
        | ShrU32 | BfeU32 | BfeS32 | BfiB32 | PrmtB32 | Lop3B32 | ExtendI64 | MulWide | AddI64 | MulI64
        | ShlB64 | ShrI64 | LowB32 | Mapa | LtI32 | GeI32 | EqI32 | NeI32 | AndPred | XorPred | Select
        | LowB16 | ExtendB16 | I32FromF32 | MulHiI32 | MulHiU32 | DivU32 | RemU32 | MinU32 | MaxU32
        | ShrI32 | LtU32 | GeU32 | LtF32 | LeF32 | EqF32 | NeF32 | OrPred | NotPred | U32FromF32
        | F64FromF32 | MulF64 | FmaF64 | RoundF64 | SubI64 | DivI64 | RemI64 | DivU64 | RemU64 | MinI64
        | MaxI64 | MinU64 | MaxU64 | MulHiI64 | MulHiU64 | AndB64 | OrB64 | XorB64 | ShrU64 | ExtendU64
        | JoinB64 | HighB32 | LtI64 | GeI64 | LtU64 | GeU64 | EqI64 | NeI64 | SelectB64 | AddF64 | SubF64
        | DivF64 | MinF64 | MaxF64 | NegF64 | AbsF64 | SqrtF64 | FloorF64 | CeilF64 | LtF64 | LeF64
        | EqF64 | NeF64 | F64FromI32 | F64FromU32 | F64FromI64 | F64FromU64 | I32FromF64 | U32FromF64
        | I64FromF64 | U64FromF64 | I64FromF32 | U64FromF32 => Match::Bits,
        AddF32 | SubF32 | MulF32 | FmaF32 | DivF32 | MinF32 | MaxF32 | NegF32 | AbsF32 | SqrtF32
        | F32FromF16 | F32FromI32 | F32FromU32 | RoundF32 | FloorF32 | CeilF32 | F32FromF64 | F32FromI64
        | F32FromU64 => Match::Floats(DType::F32),
        RsqrtF32 | RsqrtFtzF32 | Lg2FtzF32 | RcpFtzF32 | Ex2FtzF32 | Lg2F32 | SinF32 | CosF32
        | DivApproxFtzF32 => Match::Near(op),
        AddF16x2 | SubF16x2 | MulF16x2 | MinF16x2 | MaxF16x2 | FmaF16x2 | F16FromF32 | F16x2FromF32
        | F16x2FromE4M3x2 | F16x2FromE2M1x2 | F16x2FromE3M2x2 | F16x2FromE2M3x2 => Match::Floats(DType::F16),
        AddBF16x2 | SubBF16x2 | MulBF16x2 | MinBF16x2 | MaxBF16x2 | FmaBF16x2 | BF16FromF32
        | BF16x2FromF32 | BF16x2FromUE8M0x2 => Match::Floats(DType::BF16),
        E4M3x2FromF16x2 | E4M3x2FromF32 => Match::Floats(DType::E4M3),
        E5M2x2FromF16x2 | E5M2x2FromF32 => Match::Floats(DType::E5M2),
        // No code of these is a NaN.
        E2M1x2FromF32 | E3M2x2FromF32 | E2M3x2FromF32 => Match::Bits,
    }
}

/// Code that is being built: one thread's registers and addresses.
pub(super) struct Code<'a> {
    pub b: &'a mut Builder,
    /// Addresses of the thread's words and of its results, 64 bits each.
    pub from: Operand,
    pub to: Operand,
    /// Address of its warp's shared memory, and the lane.
    pub warp: Operand,
    pub lane: Operand,
}

/// Bytes of shared memory that a warp has.
pub(super) const WARP_BYTES: u32 = 16 * 32;

fn imm(x: u32) -> Operand {
    Operand::Imm(u64::from(x))
}

fn at(base: Operand, offset: u32) -> Address {
    Address { base, offset: offset as i32 }
}

fn row(name: &'static str) -> &'static CopyRow {
    copy_named(name).expect("the name of a row that a test looks up")
}

impl Code<'_> {
    fn registers(&mut self, count: usize) -> Vec<Reg> {
        let array = self.b.add_array("words", count.max(1) as u32);
        (0..count as u32).map(|index| Reg { array, index }).collect()
    }

    fn load_words(&mut self, count: usize) -> Vec<Reg> {
        let registers = self.registers(count);
        for (i, register) in registers.iter().enumerate() {
            self.b.load(row("ld.global.b32"), vec![*register], at(self.from, 4 * i as u32), None);
        }
        registers
    }

    fn store_words(&mut self, registers: &[Reg]) {
        for (i, register) in registers.iter().enumerate() {
            self.b.store(row("st.global.b32"), vec![*register], at(self.to, 4 * i as u32), None);
        }
    }

    fn store_values(&mut self, values: &[Operand]) {
        let registers = self.registers(values.len());
        registers.iter().zip(values).for_each(|(r, v)| self.b.write(*r, *v));
        self.store_words(&registers);
    }

    /// True if the lowest bit of a word is set.
    fn predicate(&mut self, word: Operand) -> Option<Value> {
        let bit = self.b.scalar(ScalarOp::AndB32, &[word, imm(1)]);
        match self.b.scalar(ScalarOp::NeI32, &[bit, imm(0)]) {
            Operand::Value(value) => Some(value),
            Operand::Imm(_) => None,
        }
    }

    /// The address of one of the warp's 32 rows of 16 bytes.
    fn row_address(&mut self, index: Operand) -> Operand {
        let index = self.b.scalar(ScalarOp::AndB32, &[index, imm(31)]);
        let offset = self.b.scalar(ScalarOp::ShlB32, &[index, imm(4)]);
        self.b.scalar(ScalarOp::AddI32, &[self.warp, offset])
    }

    fn scalar(&mut self, op: ScalarOp, domains: &[Domain]) {
        let words = self.load_words(2 * domains.len());
        let types = op.row().operands;
        let mut args = Vec::with_capacity(domains.len());
        for ((domain, ty), pair) in domains.iter().zip(types).zip(words.chunks_exact(2)) {
            if let Domain::Literal(bits) = domain {
                args.push(Operand::Imm(*bits));
                continue;
            }
            let [low, high] = [0, 1].map(|i| self.b.read(pair[i]));
            args.push(match ty {
                RegType::B32 => low,
                RegType::B16 => self.b.scalar(ScalarOp::LowB16, &[low]),
                RegType::Pred => self.b.scalar(ScalarOp::NeI32, &[low, imm(0)]),
                RegType::B64 => {
                    // The lower half is extended by its sign: what that takes away the upper half gives back.
                    let sign = self.b.scalar(ScalarOp::ShrU32, &[low, imm(31)]);
                    let high = self.b.scalar(ScalarOp::AddI32, &[high, sign]);
                    let [low, high] = [low, high].map(|word| self.b.scalar(ScalarOp::ExtendI64, &[word]));
                    let high = self.b.scalar(ScalarOp::ShlB64, &[high, imm(32)]);
                    self.b.scalar(ScalarOp::AddI64, &[high, low])
                }
            });
        }
        let result = self.b.scalar(op, &args);
        let [low, high] = match op.row().result {
            RegType::B32 => [result, imm(0)],
            RegType::B16 => [self.b.scalar(ScalarOp::ExtendB16, &[result]), imm(0)],
            RegType::Pred => [self.b.scalar(ScalarOp::Select, &[imm(1), imm(0), result]), imm(0)],
            RegType::B64 => {
                let high = self.b.scalar(ScalarOp::ShrI64, &[result, imm(32)]);
                [result, high].map(|half| self.b.scalar(ScalarOp::LowB32, &[half]))
            }
        };
        self.store_values(&[low, high]);
    }

    /// Each lane stores its words to its own row of the warp's shared memory.
    fn fill_shared(&mut self, words: &[Reg]) {
        let own = self.row_address(self.lane);
        for (i, word) in words.iter().enumerate() {
            self.b.store(row("st.shared.b32"), vec![*word], at(own, 4 * i as u32), None);
        }
        self.b.sync(SyncOp::Barrier);
    }

    /// Each lane stores its own row of the warp's shared memory to its results.
    fn drain_shared(&mut self) {
        self.b.sync(SyncOp::Barrier);
        let own = self.row_address(self.lane);
        let words = self.registers(4);
        for (i, word) in words.iter().enumerate() {
            self.b.load(row("ld.shared.b32"), vec![*word], at(own, 4 * i as u32), None);
        }
        self.store_words(&words);
        self.b.sync(SyncOp::Barrier);
    }

    fn zero_shared(&mut self) {
        let zeros = self.registers(4);
        zeros.iter().for_each(|r| self.b.write(*r, imm(0)));
        self.fill_shared(&zeros);
    }

    fn copy(&mut self, copy: &'static CopyRow) {
        let mut words = self.load_words(5);
        let Some(control) = words.pop() else { return };
        let control = self.b.read(control);
        let guard = self.predicate(control);
        let registers = copy.registers() as usize;
        match (copy.kind, copy.src, copy.dst) {
            (CopyKind::Matrix { .. }, Memory::Shared, _) => {
                self.fill_shared(&words);
                let address = self.row_address(control);
                let loaded = self.registers(registers);
                self.b.matrix(copy, loaded.clone(), at(address, 0));
                self.store_words(&loaded);
                self.b.sync(SyncOp::Barrier);
            }
            (CopyKind::Matrix { .. }, ..) => {
                self.zero_shared();
                // No two lanes write the same row: all of a warp are moved by its first lane's number.
                let moved = self.b.shuffle(control, ShuffleMode::Idx, imm(0));
                let index = self.b.scalar(ScalarOp::XorB32, &[self.lane, moved]);
                let address = self.row_address(index);
                self.b.matrix(copy, words[..registers].to_vec(), at(address, 0));
                self.drain_shared();
            }
            (CopyKind::Async, ..) => {
                let own = self.row_address(self.lane);
                self.zero_shared();
                self.b.async_copy(copy, at(own, 0), at(self.from, 0), guard);
                self.b.sync(SyncOp::AsyncWaitAll);
                self.drain_shared();
            }
            (_, Memory::Shared, _) => {
                self.fill_shared(&words);
                let mut address = self.row_address(control);
                if copy.scope == Scope::Cluster {
                    address = self.b.scalar(ScalarOp::Mapa, &[address, imm(0)]);
                }
                let loaded = self.registers(registers);
                self.b.load(copy, loaded.clone(), at(address, 0), guard);
                self.store_words(&loaded);
                self.b.sync(SyncOp::Barrier);
            }
            (_, Memory::Global, _) => {
                let loaded = self.registers(registers);
                self.b.load(copy, loaded.clone(), at(self.from, 0), guard);
                self.store_words(&loaded);
            }
            (_, _, Memory::Shared) => {
                let own = self.row_address(self.lane);
                self.zero_shared();
                self.b.store(copy, words[..registers].to_vec(), at(own, 0), guard);
                self.drain_shared();
            }
            _ => self.b.store(copy, words[..registers].to_vec(), at(self.to, 0), guard),
        }
    }
}

impl Item {
    /// Appends the code that applies the row to a thread's words.
    pub(super) fn emit(&self, code: &mut Code<'_>) {
        match &self.work {
            Work::Scalar(op, domains) => code.scalar(*op, domains),
            Work::Shuffle(mode) => {
                let words = code.load_words(2);
                let [src, operand] = [0, 1].map(|i| code.b.read(words[i]));
                let result = code.b.shuffle(src, *mode, operand);
                code.store_values(&[result]);
            }
            Work::Copy(row) => code.copy(row),
            Work::Mma(row) => {
                let words = code.load_words(self.inputs);
                let (a, b, c) = row.registers();
                let (a, rest) = words.split_at(a as usize);
                let (b, rest) = rest.split_at(b as usize);
                let (c, beside) = rest.split_at(c as usize);
                let [d, a, b] = [c, a, b].map(<[_]>::to_vec);
                match beside {
                    [left, right] => {
                        let scales = [*left, *right].map(|register| ScaleBytes { register, byte: 0 });
                        code.b.scaled_mma(row, d, [a, b], scales);
                    }
                    [meta, ..] => code.b.sparse_mma(row, d, a, b, *meta),
                    [] => code.b.mma(row, d, a, b),
                }
                code.store_words(c);
            }
        }
    }

    /// The words of `threads` threads, which are whole warps.
    pub(super) fn draw(&self, threads: usize, random: &mut Random) -> Vec<u32> {
        let mut words = Vec::with_capacity(threads * self.inputs);
        match &self.work {
            Work::Scalar(_, domains) => {
                for _ in 0..threads {
                    for domain in domains {
                        let bits = domain.draw(random);
                        words.extend([bits as u32, (bits >> 32) as u32]);
                    }
                }
            }
            Work::Shuffle(_) | Work::Copy(_) => {
                words.extend((0..threads * self.inputs).map(|_| random.word()));
            }
            Work::Mma(row) => {
                for warp in 0..threads / WARP {
                    // Of four warps one has integers, whose sums are exact in any order, and one infinities and NaNs.
                    let (kind, special) = (warp % 4, random.below(5));
                    let (a, b, c) = row.registers();
                    for index in 0..WARP * self.inputs {
                        if index % self.inputs >= (a + b + c) as usize {
                            words.push(match &row.scaling {
                                Some(scaling) => scales(scaling.dtype, random),
                                None => places(random),
                            });
                            continue;
                        }
                        let place = index % self.inputs;
                        let dtype = match () {
                            () if place < a as usize => row.a,
                            () if place < (a + b) as usize => row.b,
                            () => row.c,
                        };
                        let mut word = 0;
                        for lane in 0..32 / dtype.bits() {
                            let unit = f64::from(random.word()) / f64::from(u32::MAX) * 2.0 - 1.0;
                            let rare = random.below(200) == 0;
                            let x = match (kind, rare) {
                                (0, _) => f64::from(random.below(9)) - 4.0,
                                (1, true) => {
                                    [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, -0.0, 0.0][special as usize]
                                }
                                // Factors as small as subnormal f16.
                                (2, _) => unit * 2f64.powi(-(random.below(24) as i32)),
                                _ => unit,
                            };
                            word |= (dtype.encode(x) as u32) << (dtype.bits() * lane);
                        }
                        words.push(word);
                    }
                }
            }
        }
        words
    }

    /// Words that the row's own description gives.
    pub(super) fn evaluate(&self, words: &[u32]) -> Vec<u32> {
        let threads = words.chunks_exact(self.inputs);
        match &self.work {
            Work::Scalar(op, _) => {
                let one = |thread: &[u32]| {
                    let types = op.row().operands.iter();
                    let args: Vec<u64> = thread
                        .chunks_exact(2)
                        .zip(types)
                        .map(|(pair, ty)| match ty {
                            RegType::B64 => u64::from(pair[0]) | u64::from(pair[1]) << 32,
                            _ => u64::from(pair[0]),
                        })
                        .collect();
                    let result = (op.row().eval)(&args);
                    [result as u32, (result >> 32) as u32]
                };
                threads.flat_map(one).collect()
            }
            Work::Shuffle(mode) => {
                let warps = words.chunks_exact(2 * WARP);
                let of = |warp: &[u32]| -> Vec<u32> {
                    (0..WARP)
                        .map(|lane| warp[2 * mode.source(lane as u32, warp[2 * lane + 1]) as usize])
                        .collect()
                };
                warps.flat_map(of).collect()
            }
            Work::Copy(row) => {
                words.chunks_exact(self.inputs * WARP).flat_map(|warp| copied(row, warp)).collect()
            }
            Work::Mma(row) => {
                let sums = words.chunks_exact(self.inputs * WARP).map(|warp| product(row, warp));
                sums.flat_map(|(words, _)| words).collect()
            }
        }
    }

    /// Of sums, how far each may be off: in the order of the elements of the results.
    pub(super) fn slack(&self, words: &[u32]) -> Vec<f64> {
        match &self.work {
            Work::Mma(row) => {
                words.chunks_exact(self.inputs * WARP).flat_map(|warp| product(row, warp).1).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A register of scales from 2⁻⁸ to 2⁸ or so, now and then of a NaN.
fn scales(dtype: DType, random: &mut Random) -> u32 {
    let byte = |random: &mut Random| match (random.below(500), dtype) {
        (0, _) => 0xff,
        (_, DType::UE8M0) => 119 + random.below(17),
        _ => 1 + random.below(0x7e),
    };
    (0..4).fold(0, |word, _| word << 8 | byte(random))
}

/// A register of metadata: pairs of increasing places.
fn places(random: &mut Random) -> u32 {
    const PAIRS: [u32; 6] = [0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110];
    (0..8).fold(0, |word, _| word << 4 | PAIRS[random.below(6) as usize])
}

/// Results of a warp after a copy, by the layouts of its row.
fn copied(row: &CopyRow, warp: &[u32]) -> Vec<u32> {
    let words = |lane: usize| &warp[5 * lane..5 * lane + 4];
    let control = |lane: usize| warp[5 * lane + 4];
    let mut result = vec![0u32; 4 * WARP];
    if let CopyKind::Matrix { .. } = row.kind {
        let load = row.src == Memory::Shared;
        // The side in memory, where lane and unit name a row and one of its halves of words.
        let (memory, register) = (row.memory_tv(), row.register_tv());
        let rows = memory.size() / 8;
        let half = |words: &[u32], i: usize| words[i / 2] >> (16 * (i % 2)) & 0xffff;
        let mut tile = vec![0u32; memory.size() as usize];
        let values = register.size() / 32;
        let place =
            |layout: &Layout, lane: i64, lanes: i64, unit: i64| layout.eval(lane + lanes * unit) as usize;
        let target =
            |lane: i64| if load { control(lane as usize) } else { lane as u32 ^ control(0) } as usize % WARP;
        if load {
            for lane in 0..rows {
                for unit in 0..8 {
                    tile[place(memory, lane, rows, unit)] = half(words(target(lane)), unit as usize);
                }
            }
            for lane in 0..32 {
                for value in 0..values {
                    let bits = tile[place(register, lane, 32, value)];
                    result[4 * lane as usize + value as usize / 2] |= bits << (16 * (value % 2));
                }
            }
        } else {
            for lane in 0..32 {
                for value in 0..values {
                    tile[place(register, lane, 32, value)] = half(words(lane as usize), value as usize);
                }
            }
            for lane in 0..rows {
                for unit in 0..8usize {
                    let bits = tile[place(memory, lane, rows, unit as i64)];
                    result[4 * target(lane) + unit / 2] |= bits << (16 * (unit % 2));
                }
            }
        }
        return result;
    }
    for lane in (0..WARP).filter(|lane| control(*lane) & 1 == 1) {
        let shared = row.src == Memory::Shared;
        let from = words(if shared { control(lane) as usize % WARP } else { lane });
        for byte in 0..row.bytes as usize {
            let bits = from[byte / 4] >> (8 * (byte % 4)) & 0xff;
            result[4 * lane + byte / 4] |= bits << (8 * (byte % 4));
        }
    }
    result
}

/// The product of a warp's fragments by the row's layouts, summed in double precision and rounded once; and how far each element may
/// be off, in the order of lanes and values.
fn product(row: &MmaRow, warp: &[u32]) -> (Vec<u32>, Vec<f64>) {
    let (na, nb, nc) = row.registers();
    let (na, nb, nc) = (na as usize, nb as usize, nc as usize);
    let stride = na + nb + nc + usize::from(row.sparsity.is_some()) + 2 * usize::from(row.scaling.is_some());
    let element = |lane: usize, first: usize, dtype: DType, value: usize| {
        let each = (32 / dtype.bits()) as usize;
        let word = warp[stride * lane + first + value / each];
        // The lower bits of a tf32 are not read.
        let word = if first < na + nb && dtype == DType::F32 { word & !0x1fff } else { word };
        dtype.decode(word >> (dtype.bits() as usize * (value % each)) & (u32::MAX >> (32 - dtype.bits())))
    };
    let tile = |tv: &Layout, first: usize, dtype: DType| {
        let mut tile = vec![0.0; tv.size() as usize];
        for lane in 0..WARP {
            for value in 0..tv.size() as usize / WARP {
                tile[tv.eval((lane + WARP * value) as i64) as usize] = element(lane, first, dtype, value);
            }
        }
        tile
    };
    let (mut a, mut b) = (tile(&row.a_tv, 0, row.a), tile(&row.b_tv, na, row.b));
    let c = tile(&row.c_tv, na + nb, row.c);
    let (m, n) = (row.m as usize, row.n as usize);
    if let Some(scaling) = &row.scaling {
        let sides = [(&mut a, m, &scaling.a_tv), (&mut b, n, &scaling.b_tv)];
        for (side, (factor, rows, tv)) in sides.into_iter().enumerate() {
            let mut scales = vec![0.0; rows * row.k as usize / scaling.block as usize];
            for lane in (0..WARP).filter(|lane| scaling.reads(*lane as u32, side == 1)) {
                for value in 0..tv.size() as usize / WARP {
                    let at = tv.eval((lane + WARP * value) as i64) as usize;
                    scales[at] = element(lane, na + nb + nc + side, scaling.dtype, value);
                }
            }
            let block = scaling.block as usize;
            let scale = |i: usize| scales[i / rows / block * rows + i % rows];
            factor.iter_mut().enumerate().for_each(|(i, x)| *x *= scale(i));
        }
    }
    let meta = |lane: usize| warp[stride * lane + na + nb + nc];
    let columns = row.sparsity.as_ref().map(|sparsity| columns(sparsity, (m, a.len()), meta));
    let mut words = vec![0; WARP * nc];
    let mut slack = Vec::with_capacity(m * n);
    let each = (32 / row.c.bits()) as usize;
    // Terms are aligned by the exponents of their factors, and a subnormal factor has that of the smallest normal number.
    let [of_a, of_b] = row.factors().map(|dtype| {
        2f64.powi(match dtype {
            _ if row.scaling.is_some() => -254,
            DType::F16 | DType::E5M2 => -14,
            DType::E4M3 => -6,
            _ => -126,
        })
    });
    let raised = |x: f64, least: f64| if x == 0.0 { 0.0 } else { x.abs().max(least) };
    for lane in 0..WARP {
        for value in 0..m * n / WARP {
            let place = row.c_tv.eval((lane + WARP * value) as i64) as usize;
            let (i, j) = (place % m, place / m);
            // Elements that a sparse A leaves out are in no term.
            let column = |x: usize| columns.as_ref().map_or(x, |columns| columns[i + m * x]);
            let factors = || (0..a.len() / m).map(|x| (a[i + m * x], b[j + n * column(x)]));
            let sum = c[place] + factors().map(|(x, y)| x * y).sum::<f64>();
            let size =
                c[place].abs() + factors().map(|(x, y)| raised(x, of_a) * raised(y, of_b)).sum::<f64>();
            let bits = if row.c.is_float() { row.c.encode(sum) } else { row.c.encode_integer(sum as i128) };
            words[nc * lane + value / each] |= (bits as u32) << (row.c.bits() as usize * (value % each));
            slack.push(super::sum_error(row) * size);
        }
    }
    (words, slack)
}

/// For each of `len` elements of a sparse tile of `m` rows its column of the whole factor, by the registers of metadata.
fn columns(sparsity: &Sparsity, (m, len): (usize, usize), meta: impl Fn(usize) -> u32) -> Vec<usize> {
    let mut columns = vec![0; len];
    for lane in (0..WARP).filter(|lane| sparsity.reads(*lane as u32)) {
        for place in 0..16 {
            let at = sparsity.meta_tv.eval((lane + WARP * place) as i64) as usize;
            columns[at] = at / m / 2 * 4 + (meta(lane) >> (2 * place) & 3) as usize;
        }
    }
    columns
}

/// Words of the results that all threads of a launch leave, padded so that accesses of 16 bytes are aligned.
pub(super) fn padded(words: usize) -> usize {
    words.next_multiple_of(4)
}

/// The thread's index in the grid, its warp's shared memory and its lane.
pub(super) fn begin(b: &mut Builder) -> (Operand, Operand, Operand) {
    let thread: Operand = b.special(Special::ThreadIndex).into();
    let block: Operand = b.special(Special::BlockIndex(0)).into();
    let first = b.scalar(ScalarOp::MulI32, &[block, imm(THREADS)]);
    let index = b.scalar(ScalarOp::AddI32, &[first, thread]);
    b.add_shared("rows", THREADS / 32 * WARP_BYTES, 128);
    let window: Operand = b.special(Special::SharedBase).into();
    let warp = b.scalar(ScalarOp::ShrU32, &[thread, imm(5)]);
    let offset = b.scalar(ScalarOp::MulI32, &[warp, imm(WARP_BYTES)]);
    let warp = b.scalar(ScalarOp::AddI32, &[window, offset]);
    let lane = b.scalar(ScalarOp::AndB32, &[thread, imm(31)]);
    (index, warp, lane)
}
