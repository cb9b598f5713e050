//! The thread-level program: what one thread of a block runs.
//!
//! Scalars and addresses are SSA values, each defined once by one instruction and visible from there to the end of its
//! block. Fragments are [`Array`]s of 32-bit registers: mutable places that keep their registers and their order for
//! life, because tensor-core instructions name registers and an accumulator must not change its name between
//! issues. Control flow is structured: counted loops and two-way branches. Effects happen in program order.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use tilewright_machine::{
    Arch, AtomicRow, BoxShape, BulkOp, CacheHint, CopyRow, DType, Major, MbarrierOp, MemoryOrder, MmaRow,
    RegType, ScalarOp, ShuffleMode, SyncOp, Tcgen05Row, TensorRow, Until, WgmmaRow,
};

use crate::printed::Print;

/// An SSA value; its type is in [`Function::values`]. Prints as `%7`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A register array; its row is in [`Function::arrays`]. Prints as `@2`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ArrayId(pub u32);

/// One 32-bit register of an array. Prints as `@2[5]`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct Reg {
    /// The array.
    pub array: ArrayId,
    /// The position in it.
    pub index: u32,
}

/// The scales of one factor of a block-scaled product: neighbouring bytes of a register, from this one on. Prints as `@2[5].1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScaleBytes {
    /// The register.
    pub register: Reg,
    /// The first byte, 0 the lowest.
    pub byte: u32,
}

impl fmt::Display for ScaleBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.register, self.byte)
    }
}

/// An operand: a value, or a literal bit pattern of the type that the operation wants there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Operand {
    /// A value.
    Value(Value),
    /// A literal.
    Imm(u64),
}

impl Operand {
    /// The bits of a literal.
    pub fn literal(self) -> Option<u64> {
        match self {
            Operand::Imm(bits) => Some(bits),
            Operand::Value(_) => None,
        }
    }
}

impl From<Value> for Operand {
    fn from(value: Value) -> Self {
        Operand::Value(value)
    }
}

/// A statement of the tile program that instructions come from; an index into [`Function::origins`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct OriginId(pub u32);

/// An argument that a launch passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionParam {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: FunctionParamKind,
}

/// The kind of a [`FunctionParam`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FunctionParamKind {
    /// A 64-bit pointer to global memory.
    Pointer,
    /// A signed 32-bit integer.
    I32,
    /// An `f32`.
    F32,
    /// A 64-bit integer.
    I64,
    /// An `f64`.
    F64,
    /// A tensor map of 128 bytes, by value: an index into [`Function::tensor_maps`]. A launch gives the tensor's extents and strides.
    TensorMap(u32),
    /// A 64-bit pointer to 64-bit pointers to global memory, as many as a launch gives.
    Pointers,
    /// A 64-bit pointer to tensor maps in global memory, which differ in the tensor's address alone: an index into [`Function::tensor_maps`].
    TensorMaps(u32),
}

impl FunctionParamKind {
    /// The kind of a number of a type.
    pub fn number(dtype: DType) -> Self {
        match dtype {
            DType::F32 => FunctionParamKind::F32,
            DType::F64 => FunctionParamKind::F64,
            DType::I64 | DType::U64 => FunctionParamKind::I64,
            _ => FunctionParamKind::I32,
        }
    }

    /// The register that holds its value.
    pub fn register(self) -> RegType {
        match self {
            FunctionParamKind::Pointer
            | FunctionParamKind::Pointers
            | FunctionParamKind::TensorMaps(_)
            | FunctionParamKind::I64
            | FunctionParamKind::F64 => RegType::B64,
            FunctionParamKind::I32 | FunctionParamKind::F32 | FunctionParamKind::TensorMap(_) => RegType::B32,
        }
    }

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            FunctionParamKind::Pointer => "pointer",
            FunctionParamKind::I32 => "i32",
            FunctionParamKind::F32 => "f32",
            FunctionParamKind::I64 => "i64",
            FunctionParamKind::F64 => "f64",
            FunctionParamKind::TensorMap(_) => "tensor map",
            FunctionParamKind::Pointers => "pointers",
            FunctionParamKind::TensorMaps(_) => "tensor maps",
        }
    }

    /// The tensor map that it passes, or of which it passes several.
    pub fn map(self) -> Option<u32> {
        match self {
            FunctionParamKind::TensorMap(map) | FunctionParamKind::TensorMaps(map) => Some(map),
            _ => None,
        }
    }
}

/// A tensor map: a tensor in global memory and the box that copies move. Extents and strides come with the launch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorMap {
    /// The name of the tensor.
    pub name: String,
    /// The box.
    pub shape: BoxShape,
}

/// A matrix descriptor: its upper half is known when the kernel is compiled, its lower half (address and leading offset) is a
/// value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DescriptorValue {
    /// Bits 0 to 31, `B32`.
    pub low: Operand,
    /// Bits 32 to 63.
    pub high: u32,
}

/// The scales of one factor of a block-scaled product with its sums in tensor memory: cells from an address on, of which it takes neighbouring bytes from this
/// one on. Prints as `[%7+4].1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScaleCells {
    /// The address in tensor memory of the first column.
    pub address: Address,
    /// The first byte of each cell, 0 the lowest.
    pub byte: u32,
}

impl fmt::Display for ScaleCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.address, self.byte)
    }
}

/// The metadata of the sparse left factor of a product with its sums in tensor memory: cells from an address on. Prints as `[%7+4]/1`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MetadataCells {
    /// The address in tensor memory of the first column.
    pub address: Address,
    /// The sparsity selector: the column of a pair that the instruction reads, of 16-bit factors.
    pub selector: u32,
}

impl fmt::Display for MetadataCells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.selector)
    }
}

/// A factor of an asynchronous matrix product.
#[derive(Clone, PartialEq, Debug)]
pub enum Factor {
    /// In the warpgroup's registers; only the left factor.
    Registers(Vec<Reg>),
    /// In shared memory.
    Shared {
        /// Its matrix descriptor.
        descriptor: DescriptorValue,
        /// Along which mode it is contiguous.
        major: Major,
    },
    /// In tensor memory, from lane 0 on; only the left factor of a product with its sums there.
    Tensor(Address),
}

impl Factor {
    /// The lower half of its descriptor, if it lies in shared memory, or its address in tensor memory.
    fn low(&self) -> Option<Operand> {
        match self {
            Factor::Shared { descriptor, .. } => Some(descriptor.low),
            Factor::Tensor(address) => Some(address.base),
            Factor::Registers(_) => None,
        }
    }
}

/// A buffer in shared memory, at a fixed offset of the block's window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedBuffer {
    /// The name of the tensor it holds.
    pub name: String,
    /// Byte offset in the block's window.
    pub offset: u32,
    /// Size in bytes.
    pub bytes: u32,
}

/// A tensor in tensor memory: columns from the block's first on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorBuffer {
    /// The name of the tensor it holds.
    pub name: String,
    /// The first column.
    pub column: u32,
    /// The number of columns.
    pub columns: u32,
}

/// A register array: a fragment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Array {
    /// The name of the tensor it holds a part of.
    pub name: String,
    /// Number of 32-bit registers.
    pub registers: u32,
}

/// A register with a value the hardware provides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Special {
    /// The thread's index in its block.
    ThreadIndex,
    /// The block's index along x, y or z (0, 1, 2).
    BlockIndex(u8),
    /// The address of the block's shared window in the shared address space.
    SharedBase,
    /// The block's rank in its cluster.
    ClusterRank,
    /// The low 32 bits of the multiprocessor's cycle counter, read now: not pure, and ordered like an effect.
    Clock,
}

impl Special {
    /// True if it has the same value whenever a thread reads it.
    pub fn is_constant(self) -> bool {
        self != Special::Clock
    }
}

/// A byte address: a value plus a constant. Shared addresses are 32 bits wide, global ones 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Address {
    /// The base.
    pub base: Operand,
    /// Bytes added to it.
    pub offset: i32,
}

/// An instruction: what it does, and where it comes from.
#[derive(Clone, PartialEq, Debug)]
pub struct Inst {
    /// The operation.
    pub op: Op,
    /// The tile statement it comes from.
    pub origin: OriginId,
}

/// An operation of a thread.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// `dst = special register`. Pure, unless the register is the clock. `B32`.
    Special {
        /// The result.
        dst: Value,
        /// The special register.
        special: Special,
    },
    /// `dst = parameter`. Pure. `B64` for pointers, else `B32`.
    Param {
        /// The result.
        dst: Value,
        /// Index into [`Function::params`].
        param: u32,
    },
    /// `dst = op(args)`. Pure.
    Scalar {
        /// The result.
        dst: Value,
        /// The operation.
        op: ScalarOp,
        /// Its operands, of the types in the operation's row.
        args: Vec<Operand>,
    },
    /// `dst = register`: reads a fragment's register now.
    ReadReg {
        /// The result, `B32`.
        dst: Value,
        /// The register.
        src: Reg,
    },
    /// `register = operand`.
    WriteReg {
        /// The register.
        dst: Reg,
        /// The `B32` operand.
        src: Operand,
    },
    /// Loads `row.bytes` at `address` into `dst` (one register for 4 bytes or fewer, zero-extended). Where `guard` is
    /// false nothing is read and the registers become `outside`, in turns.
    Load {
        /// The instruction; per-thread, to registers.
        row: &'static CopyRow,
        /// The registers, in the order of rising addresses.
        dst: Vec<Reg>,
        /// The address, aligned to `row.bytes`.
        address: Address,
        /// The predicate of reading, per thread.
        guard: Option<Value>,
        /// The content of the registers where nothing is read: of the first, the third and so on, and of the others.
        outside: [u32; 2],
    },
    /// `dst = the word at address`, in global memory that nothing writes while the function runs. Pure. Where `guard` is false nothing is
    /// read, and the value is 0. `B32`, or `B64` of a load of 8 bytes: a pointer of [`FunctionParamKind::Pointers`].
    Lookup {
        /// The instruction: a load of 4 or 8 bytes.
        row: &'static CopyRow,
        /// The result.
        dst: Value,
        /// The address, aligned to as many bytes.
        address: Address,
        /// The predicate of reading, per thread.
        guard: Option<Value>,
    },
    /// Stores `row.bytes` from `src` at `address`, or combines them with those there, where `guard` holds.
    Store {
        /// The instruction; per-thread, from registers, or a reduction.
        row: &'static CopyRow,
        /// The registers, in the order of rising addresses.
        src: Vec<Reg>,
        /// The address, aligned to `row.bytes`.
        address: Address,
        /// The predicate of writing, per thread.
        guard: Option<Value>,
    },
    /// `dst = the element at address`, which the operation changes as one step. Where `guard` is false nothing is done, and the value is 0. Of
    /// the row's register type.
    Atomic {
        /// The instruction.
        row: &'static AtomicRow,
        /// The order that it gives to other accesses.
        order: MemoryOrder,
        /// The result, if it is used.
        dst: Option<Value>,
        /// The element, aligned to its size.
        address: Address,
        /// As many as the operation has, of the row's register type.
        operands: Vec<Operand>,
        /// The predicate of doing it, per thread.
        guard: Option<Value>,
    },
    /// Waits until a word of global memory is what the condition says, and acquires what a release of it has published to the GPU.
    Await {
        /// The word, aligned to 4 bytes.
        address: Address,
        /// The condition.
        until: Until,
        /// Its operand, `B32`.
        operand: Operand,
    },
    /// Starts a copy of `row.bytes` from global to shared memory; where `guard` is false zeros are written. It is
    /// complete, for the issuing thread, after a wait that covers it.
    AsyncCopy {
        /// The instruction.
        row: &'static CopyRow,
        /// Destination in shared memory.
        dst: Address,
        /// Source in global memory.
        src: Address,
        /// The predicate of reading, per thread.
        guard: Option<Value>,
    },
    /// `ldmatrix` or `stmatrix`: every lane's address names a row of 16 bytes. All lanes take part.
    Matrix {
        /// The instruction.
        row: &'static CopyRow,
        /// The fragment's registers, one a matrix.
        regs: Vec<Reg>,
        /// The lane's row address in shared memory.
        address: Address,
    },
    /// `d += a · bᵀ` on a warp's fragments. All lanes take part.
    Mma {
        /// The instruction.
        row: &'static MmaRow,
        /// Accumulator registers, read and written.
        d: Vec<Reg>,
        /// A's registers.
        a: Vec<Reg>,
        /// B's registers.
        b: Vec<Reg>,
        /// The register of a sparse A's metadata.
        meta: Option<Reg>,
        /// The scales of A and of B of a block-scaled product.
        scales: Option<[ScaleBytes; 2]>,
    },
    /// `dst = src of another lane`. All lanes take part.
    Shuffle {
        /// The result, `B32`.
        dst: Value,
        /// The value that each lane offers.
        src: Operand,
        /// The rule that chooses the lane.
        mode: ShuffleMode,
        /// The `B32` operand of the mode.
        operand: Operand,
    },
    /// `d = a · bᵀ`, added to `d` where `accumulate` holds: asynchronous, on a warpgroup's fragments and shared memory. All threads of
    /// the warpgroup take part, with equal descriptors. Until a [`SyncOp::WgmmaWait`] that covers it, `d`, the registers of `a` and the
    /// shared memory of both factors belong to it, and so does the register of metadata.
    Wgmma {
        /// The instruction.
        row: &'static WgmmaRow,
        /// Accumulator registers.
        d: Vec<Reg>,
        /// Left factor.
        a: Factor,
        /// Right factor, N×K, in shared memory.
        b: Factor,
        /// The register of a sparse left factor's metadata.
        meta: Option<Reg>,
        /// The predicate of accumulation: adds the product to `d`, else overwrites it. A `Pred`, the same in all threads.
        accumulate: Operand,
    },
    /// `d = a · bᵀ`, added to `d` where `accumulate` holds: asynchronous, in tensor memory, with the right factor in shared memory and the left one there or in tensor memory. One thread issues it. Until
    /// those who use it have waited for a phase of an mbarrier that a later [`MbarrierOp::Commit`] of the thread ends, `d` and the memory of both factors belong
    /// to it. A product of a pair has its operands at the same places in both blocks, each with its rows of A and of D and its part of the rows of B.
    Tcgen05 {
        /// The instruction.
        row: &'static Tcgen05Row,
        /// The sums: an address in tensor memory, of lane 0.
        d: Address,
        /// Left factor.
        a: Factor,
        /// Right factor, N×K.
        b: Factor,
        /// The scales of A and of B of a block-scaled product, which belong to it as its factors do.
        scales: Option<[ScaleCells; 2]>,
        /// The metadata of a sparse left factor, which belong to it too.
        meta: Option<MetadataCells>,
        /// The predicate of accumulation: adds the product to `d`, else overwrites it. A `Pred`.
        accumulate: Operand,
    },
    /// A copy of a chunk of scales from shared memory to tensor memory, asynchronous: products that the thread issues later find them there. One thread issues it.
    ScaleCopy {
        /// The chunk.
        chunk: DescriptorValue,
        /// The address in tensor memory of the first of its columns.
        to: Address,
    },
    /// A copy between tensor memory and a warp's registers, asynchronous: it is done after a [`SyncOp::TensorWaitLoad`] or a
    /// [`SyncOp::TensorWaitStore`]. All lanes take part, with the same address.
    TensorCopy {
        /// The instruction.
        row: &'static CopyRow,
        /// The registers.
        regs: Vec<Reg>,
        /// The address in tensor memory: its lane is among those that the warp reaches.
        address: Address,
    },
    /// The block allocates columns of tensor memory, once there are as many; the address of the first is written to shared memory. A warp does.
    TensorAllocate {
        /// The number of columns: a power of two from 32 to 512.
        columns: u32,
        /// The word that gets the address.
        to: Address,
    },
    /// Columns of tensor memory that the block has allocated are free for others. A warp does.
    TensorFree {
        /// The number of columns.
        columns: u32,
        /// The address of the first.
        address: Operand,
    },
    /// `dst = one of the tensor maps that a parameter points to`, for tensor copies of this thread: what the host wrote to it before the launch is
    /// acquired by the proxy that reads tensor maps, which a kernel's start does not do (PTX ISA 9.0, sections 8.9.4 and 9.7.13.4). Pure. `B64`,
    /// opaque.
    TensorMap {
        /// The result.
        dst: Value,
        /// Index into [`Function::tensor_maps`], of one that is passed as [`FunctionParamKind::TensorMaps`].
        map: u32,
        /// The number among them, `B32`; one that there is.
        number: Operand,
        /// Threads that copy by it; `None`: all. Others acquire nothing: each time the multiprocessor forgets what it knows of the map.
        guard: Option<Value>,
    },
    /// A tensor copy: every active thread starts one.
    Tensor {
        /// The instruction.
        row: &'static TensorRow,
        /// Index into [`Function::tensor_maps`].
        map: u32,
        /// The result of an [`Op::TensorMap`], of a map that is one of several.
        one: Option<Operand>,
        /// The coordinates of the box's first element, dimension 0 first; `B32`, signed.
        coords: Vec<Operand>,
        /// The box in shared memory.
        shared: Address,
        /// Of loads: the mbarrier that counts the bytes.
        barrier: Option<Address>,
        /// Of loads: the blocks of the cluster that receive the box, a bit each (`B32`), at the same place as in this block and signalled
        /// to the same mbarrier of theirs; `None`: this block.
        multicast: Option<Operand>,
        /// Of a multicast in a function of pairs: the mbarriers are those of the even blocks of the pairs that receive the box, and the given one is that of the block's own pair.
        even: bool,
        /// L2 cache policy.
        hint: Option<CacheHint>,
    },
    /// A bulk copy of contiguous bytes: every active thread starts one.
    Bulk {
        /// The operation.
        op: BulkOp,
        /// In this block's shared memory.
        shared: Address,
        /// The other side: in global memory, or an address in the cluster's window.
        other: Address,
        /// Number of bytes, a multiple of 16; `B32`.
        bytes: Operand,
        /// The mbarrier that counts the bytes; of a copy to a peer, one of the peer's.
        barrier: Option<Address>,
    },
    /// Asks the launch to cancel a cluster that has not begun: asynchronous, every active thread does ([`LaunchControl`](tilewright_machine::LaunchControl)).
    TryCancel {
        /// The place of the answer in shared memory, 16 bytes.
        answer: Address,
        /// The mbarrier that counts the bytes.
        barrier: Address,
    },
    /// `dst = the index along x of the first block of the cluster that an answer says was cancelled`, or
    /// [`LaunchControl::NONE`](tilewright_machine::LaunchControl::NONE). `B32`.
    Cancelled {
        /// The result.
        dst: Value,
        /// The four words of the answer.
        answer: Vec<Reg>,
    },
    /// An operation on an mbarrier in shared memory, by every active thread.
    Mbarrier {
        /// The operation.
        op: MbarrierOp,
        /// The mbarrier, aligned to 8 bytes.
        address: Address,
        /// The operand of `op`, `B32`.
        operand: Operand,
    },
    /// `dst = whether this lane is the one elected`: one of the active lanes, always the same of the same. `Pred`.
    Elect {
        /// The result.
        dst: Value,
    },
    /// Nothing, where the operand holds in each thread; a mistake of the program where it does not. PTX has none.
    Assert {
        /// The operand, a `Pred`.
        holds: Operand,
    },
    /// Shows the operands: for the author, to whom a simulator may show them. PTX has none.
    Print {
        /// Its form.
        what: Arc<Print>,
        /// The operands, as [`Print`] lists them.
        operands: Vec<Operand>,
    },
    /// `dst = what instructions of PTX compute`: nothing but a value of registers, so that it is shared and left out like other pure operations
    /// by whoever wishes. A simulator takes the value that it means.
    Asm {
        /// The instructions, in which `$0` is the result and `$1` and so on are the operands.
        text: Arc<str>,
        /// The result.
        dst: Value,
        /// Type of the result.
        result: RegType,
        /// Types of the operands.
        types: Vec<RegType>,
        /// The operands.
        args: Vec<Operand>,
        /// The value, of the result's type. PTX has nothing of it.
        means: Operand,
    },
    /// `dst = whether the operand holds in a lane`: the same in all lanes, which all take part. `Pred`.
    Vote {
        /// The result.
        dst: Value,
        /// The operand, a `Pred`.
        src: Operand,
    },
    /// A barrier, a fence or a wait.
    Sync(SyncOp),
    /// A wait at a barrier of the block until `threads` threads have come: [`SyncOp::NamedBarrier`], of which the number is a value.
    BarrierSync {
        /// The number, from 1 to 15, alike in the threads of a warp.
        id: Operand,
        /// Number of threads that take part, a multiple of 32.
        threads: u32,
    },
    /// `for counter in lo..hi step step { body }`; `step` is positive. The bounds and the step are `B32`, signed.
    For {
        /// The counter, `B32`, visible in the body.
        counter: Value,
        /// First value.
        lo: Operand,
        /// Bound, exclusive.
        hi: Operand,
        /// Added after each round.
        step: Operand,
        /// The body.
        body: Vec<Inst>,
    },
    /// Threads in which the condition holds leave the loop in whose body it stands.
    Break {
        /// The condition.
        condition: Value,
    },
    /// `if condition { then } else { otherwise }`, per thread.
    If {
        /// The condition.
        condition: Value,
        /// The side of threads in which it holds.
        then: Vec<Inst>,
        /// The side of threads in which it does not.
        otherwise: Vec<Inst>,
    },
}

impl Op {
    /// The value it defines, if any.
    pub fn defines(&self) -> Option<Value> {
        match self {
            Op::Special { dst, .. }
            | Op::Param { dst, .. }
            | Op::Scalar { dst, .. }
            | Op::ReadReg { dst, .. }
            | Op::Lookup { dst, .. }
            | Op::TensorMap { dst, .. }
            | Op::Elect { dst }
            | Op::Vote { dst, .. }
            | Op::Asm { dst, .. }
            | Op::Cancelled { dst, .. }
            | Op::Shuffle { dst, .. } => Some(*dst),
            Op::Atomic { dst, .. } => *dst,
            _ => None,
        }
    }

    /// True if removing it changes nothing when its value is unused.
    pub fn is_removable(&self) -> bool {
        match self {
            Op::Special { special, .. } => special.is_constant(),
            op => matches!(
                op,
                Op::Param { .. }
                    | Op::Scalar { .. }
                    | Op::ReadReg { .. }
                    | Op::Lookup { .. }
                    | Op::TensorMap { .. }
                    | Op::Asm { .. }
            ),
        }
    }

    /// The operands it reads (fragments' registers not included, nor those of nested blocks).
    pub fn operands(&self) -> Vec<Operand> {
        let guarded = |address: &Address, guard: &Option<Value>| {
            let mut all = vec![address.base];
            all.extend(guard.map(Operand::Value));
            all
        };
        match self {
            Op::Special { .. }
            | Op::Param { .. }
            | Op::ReadReg { .. }
            | Op::Mma { .. }
            | Op::Cancelled { .. }
            | Op::Sync(_)
            | Op::Elect { .. } => Vec::new(),
            Op::Scalar { args, .. } => args.clone(),
            Op::WriteReg { src, .. } => vec![*src],
            Op::Load { address, guard, .. }
            | Op::Lookup { address, guard, .. }
            | Op::Store { address, guard, .. } => guarded(address, guard),
            Op::Atomic { address, operands, guard, .. } => {
                let mut all = guarded(address, guard);
                all.extend(operands);
                all
            }
            Op::Await { address, operand, .. } => vec![address.base, *operand],
            Op::AsyncCopy { dst, src, guard, .. } => {
                let mut all = guarded(dst, guard);
                all.push(src.base);
                all
            }
            Op::Matrix { address, .. } | Op::TensorCopy { address, .. } => vec![address.base],
            Op::TensorAllocate { to, .. } => vec![to.base],
            Op::TensorFree { address, .. } => vec![*address],
            Op::Shuffle { src, operand, .. } => vec![*src, *operand],
            Op::Vote { src, .. } => vec![*src],
            Op::Asm { args, means, .. } => args.iter().chain([means]).copied().collect(),
            Op::BarrierSync { id, .. } => vec![*id],
            Op::Assert { holds } => vec![*holds],
            Op::Print { operands, .. } => operands.clone(),
            Op::Wgmma { a, b, accumulate, .. } => {
                [a.low(), b.low(), Some(*accumulate)].into_iter().flatten().collect()
            }
            Op::Tcgen05 { d, a, b, scales, meta, accumulate, .. } => {
                let meta = meta.map(|meta| meta.address.base);
                let operands = [Some(d.base), a.low(), b.low(), Some(*accumulate), meta];
                let scales = scales.iter().flatten().map(|scales| scales.address.base);
                operands.into_iter().flatten().chain(scales).collect()
            }
            Op::ScaleCopy { chunk, to } => vec![chunk.low, to.base],
            Op::TensorMap { number, guard, .. } => {
                std::iter::once(*number).chain(guard.map(Operand::Value)).collect()
            }
            Op::Tensor { one, coords, shared, barrier, multicast, .. } => {
                let mut all = coords.clone();
                all.extend(*one);
                all.push(shared.base);
                all.extend(barrier.map(|b| b.base));
                all.extend(*multicast);
                all
            }
            Op::Bulk { shared, other, bytes, barrier, .. } => {
                let mut all = vec![shared.base, other.base, *bytes];
                all.extend(barrier.map(|b| b.base));
                all
            }
            Op::TryCancel { answer, barrier } => vec![answer.base, barrier.base],
            Op::Mbarrier { address, operand, .. } => vec![address.base, *operand],
            Op::For { lo, hi, step, .. } => vec![*lo, *hi, *step],
            Op::If { condition, .. } | Op::Break { condition } => vec![Operand::Value(*condition)],
        }
    }
}

/// The position of a tile statement in its source.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Position {
    /// The byte of the text at which it begins.
    Text(u32),
    /// The call in Rust that made it.
    Rust(&'static Location<'static>),
}

impl Position {
    /// The byte at which it begins in the text, of a program that was parsed.
    pub fn text(self) -> Option<u32> {
        match self {
            Position::Text(byte) => Some(byte),
            Position::Rust(_) => None,
        }
    }
}

/// A number, or `file:line:column`.
impl Serialize for Position {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Position::Text(byte) => serializer.serialize_u32(*byte),
            Position::Rust(location) => serializer.collect_str(location),
        }
    }
}

/// A thread-level program.
#[derive(Clone, PartialEq, Debug)]
pub struct Function {
    /// The entry point's name.
    pub name: String,
    /// The architecture it needs.
    pub arch: Arch,
    /// Threads of a block.
    pub threads: u32,
    /// Blocks that one multiprocessor has registers for, at least.
    pub resident: u32,
    /// Blocks of a cluster, along x; 1 where there are no clusters.
    pub cluster: u32,
    /// True if blocks 2i and 2i + 1 of a cluster are a pair: they allocate and free tensor memory together, the first issues products for both
    /// ([`Tcgen05Row::blocks`]), and tensor copies to one block may signal an mbarrier of the other.
    pub pairs: bool,
    /// Parameters, in launch order.
    pub params: Vec<FunctionParam>,
    /// Tensor maps, to which parameters refer.
    pub tensor_maps: Vec<TensorMap>,
    /// Shared buffers, by rising offset.
    pub shared: Vec<SharedBuffer>,
    /// Bytes of shared memory that a block needs.
    pub shared_bytes: u32,
    /// Tensors in tensor memory, by rising column.
    pub tensor_memory: Vec<TensorBuffer>,
    /// The type of each value.
    pub values: Vec<RegType>,
    /// The register arrays.
    pub arrays: Vec<Array>,
    /// Tile statements that instructions come from, as text for messages.
    pub origins: Vec<String>,
    /// The position of the statement of each origin in its source.
    pub positions: Vec<Option<Position>>,
    /// For each origin the shared buffers that its statement names, as indices into [`Function::shared`]: those that its accesses mean
    /// where buffers lie at the same place. May be shorter than the origins: nothing is said of the rest.
    pub named: Vec<Vec<u32>>,
    /// The code that each thread runs.
    pub body: Vec<Inst>,
}

impl Function {
    /// The type of a value.
    pub fn type_of(&self, value: Value) -> RegType {
        self.values[value.0 as usize]
    }

    /// The text of an origin.
    pub fn origin(&self, id: OriginId) -> &str {
        self.origins.get(id.0 as usize).map_or("", String::as_str)
    }

    /// The position of an origin's statement in its source.
    pub fn position(&self, id: OriginId) -> Option<Position> {
        self.positions.get(id.0 as usize).copied().flatten()
    }

    /// Calls `visit` on every instruction, a loop or branch before what it holds.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Inst)) {
        fn go<'a>(body: &'a [Inst], visit: &mut impl FnMut(&'a Inst)) {
            for inst in body {
                visit(inst);
                match &inst.op {
                    Op::For { body, .. } => go(body, visit),
                    Op::If { then, otherwise, .. } => {
                        go(then, visit);
                        go(otherwise, visit);
                    }
                    _ => {}
                }
            }
        }
        go(&self.body, visit);
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

impl fmt::Display for ArrayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", self.0)
    }
}

impl fmt::Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.array, self.index)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Value(value) => value.fmt(f),
            Operand::Imm(bits) if *bits < 1 << 20 => write!(f, "{bits}"),
            Operand::Imm(bits) => write!(f, "{bits:#x}"),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            0 => write!(f, "[{}]", self.base),
            offset => write!(f, "[{}{offset:+}]", self.base),
        }
    }
}
