//! Helpers for programs written by hand.
#![allow(dead_code, reason = "each test file uses some of them")]

use crate::hopper_products::{put, registers};
use tilewright_machine::{
    Arch, BoxShape, BulkOp, CopyRow, DType, MbarrierOp, Memory, ScalarOp, Scope, SwizzleMode, SyncOp,
    TensorOp, copies, copy_named, tensor_memory_copies, tensor_row,
};
use tilewright_sim::{Argument, BufferId, Config, GlobalMemory, Report, SimError};
use tilewright_simt::{
    Address, ArrayId, Builder, Function, FunctionParamKind, Op, Operand, Reg, Special, TensorMap, Value,
};

pub fn builder(threads: u32) -> Builder {
    Builder::new("test", Arch::SM_90A, threads)
}

pub fn imm(x: i64) -> Operand {
    Operand::Imm(u64::from(x as u32))
}

/// The value of an operand that is not a literal.
pub fn value(operand: Operand) -> Value {
    match operand {
        Operand::Value(value) => value,
        Operand::Imm(_) => panic!("a literal"),
    }
}

pub fn at(base: Operand, offset: i32) -> Address {
    Address { base, offset }
}

pub fn reg(array: ArrayId, index: u32) -> Reg {
    Reg { array, index }
}

pub fn row(name: &str) -> &'static CopyRow {
    copy_named(name).unwrap()
}

pub fn transfer(src: Memory, dst: Memory, bytes: u32) -> &'static CopyRow {
    copies(src, dst, Scope::Cta, Arch::SM_90A).find(|r| !r.is_collective() && r.bytes == bytes).unwrap()
}

/// Short spellings of the operations that tests use most.
pub trait Write {
    fn thread(&mut self) -> Operand;
    fn add(&mut self, a: Operand, b: Operand) -> Operand;
    fn mul(&mut self, a: Operand, b: i64) -> Operand;
    fn op(&mut self, op: ScalarOp, a: Operand, b: i64) -> Operand;
    fn pointer(&mut self, param: u32, index: Operand, bytes: i64) -> Operand;
    fn shared(&mut self, offset: Operand) -> Operand;
    fn store_global(&mut self, param: u32, index: Operand, value: Operand);
    fn store_shared(&mut self, offset: Operand, value: Operand);
    fn load_shared(&mut self, offset: Operand) -> Operand;
    fn pointer_param(&mut self, name: &str) -> u32;
}

impl Write for Builder {
    fn thread(&mut self) -> Operand {
        self.special(Special::ThreadIndex).into()
    }

    fn add(&mut self, a: Operand, b: Operand) -> Operand {
        self.scalar(ScalarOp::AddI32, &[a, b])
    }

    fn mul(&mut self, a: Operand, b: i64) -> Operand {
        self.op(ScalarOp::MulI32, a, b)
    }

    fn op(&mut self, op: ScalarOp, a: Operand, b: i64) -> Operand {
        self.scalar(op, &[a, imm(b)])
    }

    fn pointer(&mut self, param: u32, index: Operand, bytes: i64) -> Operand {
        let base = self.param(param).into();
        let offset = self.scalar(ScalarOp::MulWide, &[index, imm(bytes)]);
        self.scalar(ScalarOp::AddI64, &[base, offset])
    }

    fn shared(&mut self, offset: Operand) -> Operand {
        let base = self.special(Special::SharedBase).into();
        self.add(base, offset)
    }

    /// `param[index] = value`, both of 4 bytes.
    fn store_global(&mut self, param: u32, index: Operand, value: Operand) {
        let array = self.add_array("value", 1);
        self.write(reg(array, 0), value);
        let address = self.pointer(param, index, 4);
        let row = transfer(Memory::Register, Memory::Global, 4);
        self.store(row, vec![reg(array, 0)], at(address, 0), None);
    }

    fn store_shared(&mut self, offset: Operand, value: Operand) {
        let array = self.add_array("value", 1);
        self.write(reg(array, 0), value);
        let address = self.shared(offset);
        let row = transfer(Memory::Register, Memory::Shared, 4);
        self.store(row, vec![reg(array, 0)], at(address, 0), None);
    }

    fn load_shared(&mut self, offset: Operand) -> Operand {
        let array = self.add_array("value", 1);
        let address = self.shared(offset);
        let row = transfer(Memory::Shared, Memory::Register, 4);
        self.load(row, vec![reg(array, 0)], at(address, 0), None);
        self.read(reg(array, 0))
    }

    fn pointer_param(&mut self, name: &str) -> u32 {
        self.add_param(name, FunctionParamKind::Pointer)
    }
}

pub fn run_with(
    f: &Function,
    memory: &GlobalMemory,
    buffers: &[BufferId],
    config: &Config,
) -> Result<Report, SimError> {
    let args: Vec<_> = buffers.iter().map(|b| Argument::Buffer(*b)).collect();
    tilewright_sim::run(f, [1, 1, 1], memory, &args, config)
}

/// Runs one block with one buffer of `words` words for each parameter; returns the report and the last buffer.
pub fn run_block(f: &Function, inputs: &[&[u8]], words: usize) -> (Report, Vec<u32>) {
    let mut memory = GlobalMemory::new();
    let mut ids = Vec::new();
    for input in inputs {
        let id = memory.alloc(input.len());
        memory.write(id, input);
        ids.push(id);
    }
    ids.push(memory.alloc(4 * words));
    let report = run_with(f, &memory, &ids, &Config::default()).unwrap();
    (report, words_of(&memory.read(ids[ids.len() - 1])))
}

pub fn words_of(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]])).collect()
}

/// Short spellings of Hopper's operations.
pub trait Hopper {
    fn map(&mut self, name: &str, dtype: DType, extents: &[u32], swizzle: SwizzleMode) -> u32;
    fn only(&mut self, thread: i64, body: impl FnOnce(&mut Builder));
    fn window(&mut self, offset: i64) -> Address;
    fn mbarrier_at(&mut self, op: MbarrierOp, address: Address, operand: i64);
    fn init_barriers(&mut self, list: &[(i64, i64)]);
    fn tma(&mut self, op: TensorOp, map: u32, coords: &[Operand], shared: Address, barrier: Option<Address>);
    fn multicast(&mut self, map: u32, coords: &[Operand], shared: Address, barrier: Address, mask: i64);
    fn copy_bulk(
        &mut self,
        op: BulkOp,
        shared: Address,
        other: Address,
        bytes: i64,
        barrier: Option<Address>,
    );
}

impl Hopper for Builder {
    fn map(&mut self, name: &str, dtype: DType, extents: &[u32], swizzle: SwizzleMode) -> u32 {
        let shape = BoxShape::dense(dtype, extents.to_vec(), swizzle);
        self.add_tensor_map(TensorMap { name: name.to_string(), shape })
    }

    /// Adds `body` for one thread of the block.
    fn only(&mut self, thread: i64, body: impl FnOnce(&mut Builder)) {
        let t = self.thread();
        let it = self.op(ScalarOp::EqI32, t, thread);
        self.branch(value(it), body, |_| {});
    }

    /// A place in the block's window.
    fn window(&mut self, offset: i64) -> Address {
        at(self.special(Special::SharedBase).into(), offset as i32)
    }

    fn mbarrier_at(&mut self, op: MbarrierOp, address: Address, operand: i64) {
        self.mbarrier(op, address, imm(operand));
    }

    /// Makes mbarriers at these offsets, with their counts of arrivals, for all threads of the block.
    fn init_barriers(&mut self, list: &[(i64, i64)]) {
        self.only(0, |b| {
            for (offset, count) in list {
                let address = b.window(*offset);
                b.mbarrier_at(MbarrierOp::Init, address, *count);
            }
            b.sync(SyncOp::FenceMbarrierInit);
        });
        self.sync(SyncOp::Barrier);
    }

    fn tma(&mut self, op: TensorOp, map: u32, coords: &[Operand], shared: Address, barrier: Option<Address>) {
        let row = tensor_row(op, coords.len() as u32).unwrap();
        let coords = coords.to_vec();
        self.bulk(Op::Tensor {
            row,
            map,
            one: None,
            coords,
            shared,
            barrier,
            multicast: None,
            even: false,
            hint: None,
        });
    }

    fn multicast(&mut self, map: u32, coords: &[Operand], shared: Address, barrier: Address, mask: i64) {
        let row = tensor_row(TensorOp::Load, coords.len() as u32).unwrap();
        let (coords, multicast) = (coords.to_vec(), Some(imm(mask)));
        self.bulk(Op::Tensor {
            row,
            map,
            one: None,
            coords,
            shared,
            barrier: Some(barrier),
            multicast,
            even: false,
            hint: None,
        });
    }

    fn copy_bulk(
        &mut self,
        op: BulkOp,
        shared: Address,
        other: Address,
        bytes: i64,
        barrier: Option<Address>,
    ) {
        self.bulk(Op::Bulk { op, shared, other, bytes: imm(bytes), barrier });
    }
}

/// A block of 128 threads with an mbarrier of one arrival and tensor memory, which its first warp allocates and frees.
pub struct TensorBlock {
    pub thread: Operand,
    pub warp: Operand,
    pub first: Value,
    columns: u32,
}

impl TensorBlock {
    /// The mbarrier, then the word with the address of tensor memory.
    pub const BARRIER: i64 = 0;
    const WORD: i64 = 8;

    /// Makes the mbarrier and allocates columns.
    pub fn begin(f: &mut Builder, columns: u32) -> TensorBlock {
        f.add_shared_at("barrier", Self::BARRIER as u32, 8);
        f.add_shared_at("word", Self::WORD as u32, 4);
        let thread = f.thread();
        let warp = f.op(ScalarOp::ShrU32, thread, 5);
        let first = value(f.op(ScalarOp::LtI32, warp, 1));
        f.init_barriers(&[(Self::BARRIER, 1)]);
        let word = f.window(Self::WORD);
        f.branch(
            first,
            |b| {
                b.tensor_allocate(columns, word);
                b.sync(SyncOp::TensorRelinquish);
            },
            |_| {},
        );
        TensorBlock { thread, warp, first, columns }
    }

    /// The address of the columns, behind a barrier of the block.
    pub fn base(&self, f: &mut Builder) -> Operand {
        f.sync(SyncOp::TensorFenceBefore);
        f.sync(SyncOp::Barrier);
        f.sync(SyncOp::TensorFenceAfter);
        f.load_shared(imm(Self::WORD))
    }

    /// The address of a warp's own lanes.
    pub fn lanes(&self, f: &mut Builder, base: Operand) -> Operand {
        let lanes = f.op(ScalarOp::ShlB32, self.warp, 21);
        f.add(base, lanes)
    }

    /// Lets an elected thread of the first warp issue products, and commits them to the mbarrier.
    pub fn multiply(&self, f: &mut Builder, issue: impl FnOnce(&mut Builder)) {
        f.set_origin("multiply");
        let barrier = f.window(Self::BARRIER);
        f.branch(
            self.first,
            |b| {
                let elected = b.elect();
                b.branch(
                    elected,
                    |b| {
                        issue(b);
                        b.mbarrier_at(MbarrierOp::Commit, barrier, 0);
                    },
                    |_| {},
                );
            },
            |_| {},
        );
    }

    /// Waits for what is committed, and stores the sums of the first columns, thread fastest.
    pub fn store_sums(&self, f: &mut Builder, base: Operand, out: u32, columns: u32) {
        f.set_origin("load");
        let barrier = f.window(Self::BARRIER);
        f.mbarrier_at(MbarrierOp::Wait, barrier, 0);
        f.sync(SyncOp::TensorFenceAfter);
        let name = format!("tcgen05.ld.32x32b.x{columns}");
        let copy = tensor_memory_copies().iter().find(|copy| copy.name == name).unwrap();
        let array = f.add_array("sums", columns);
        let sums = registers(array, columns);
        let lanes = self.lanes(f, base);
        f.tensor_copy(copy, sums.clone(), at(lanes, 0));
        f.sync(SyncOp::TensorWaitLoad);
        put(f, out, &sums, 128);
    }

    /// Frees the columns, behind a barrier of the block.
    pub fn end(&self, f: &mut Builder, base: Operand) {
        f.sync(SyncOp::TensorFenceBefore);
        f.sync(SyncOp::Barrier);
        f.branch(
            self.first,
            |b| {
                b.sync(SyncOp::TensorFenceAfter);
                b.tensor_free(self.columns, base);
            },
            |_| {},
        );
    }
}

/// A tensor that fills a buffer.
pub fn tensor(buffer: BufferId, extents: &[u64], bytes: u64) -> Argument {
    let mut strides = Vec::new();
    let mut stride = bytes;
    for extent in &extents[..extents.len() - 1] {
        stride *= extent;
        strides.push(stride);
    }
    Argument::TensorMap { buffer, extents: extents.to_vec(), strides }
}

/// A generator of numbers (an LCG's upper bits).
pub fn random(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u32
    }
}

/// Seeds that tests of schedules try.
pub fn seeded(seed: u64) -> Config {
    Config { seed, ..Config::default() }
}
