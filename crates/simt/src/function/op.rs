//! Instructions of a thread.

use std::sync::Arc;

use tilewright_machine::{
    AtomicRow, BulkOp, CacheHint, CopyRow, MbarrierOp, MemoryOrder, MmaRow, RegType, ScalarOp, ShuffleMode,
    SyncOp, Tcgen05Row, TensorRow, Until, WgmmaRow,
};

use super::{
    Address, DescriptorValue, Factor, Inst, MetadataCells, Operand, Reg, ScaleBytes, ScaleCells, Special,
    Value,
};
use crate::printed::Print;

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
        /// Index into [`Function::params`](super::Function::params).
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
    /// read, and the value is 0. `B32`, or `B64` of a load of 8 bytes: a pointer of [`FunctionParamKind::Pointers`](super::FunctionParamKind::Pointers).
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
        /// Index into [`Function::tensor_maps`](super::Function::tensor_maps), of one that is passed as [`FunctionParamKind::TensorMaps`](super::FunctionParamKind::TensorMaps).
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
        /// Index into [`Function::tensor_maps`](super::Function::tensor_maps).
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
