//! Decoding: the structured body of a function becomes a flat list of instructions, so that a warp is a program counter
//! and a stack of masks, and can be suspended anywhere.
//!
//! Operands become indices into one file of values (literals have slots of their own), registers become indices into
//! one file of registers, and collective instructions get their index tables.

mod instructions;

use std::collections::HashMap;
use std::sync::Arc;

use tilewright_machine::{
    ACQUIRE_TENSOR_MAP, AtomicRow, BulkOp, Major, MbarrierOp, Memory, MemoryOrder, Reduction, ShuffleMode,
    SumsScaling, SyncOp, Tcgen05Row, TensorOp, Unit, Until,
};
use tilewright_simt::{Function, Op, OriginId, Position, Print, Special, verify};

use crate::error::SimError;
use crate::findings::{Class, Flow, Row};
use crate::tables::{CopyTable, MatrixTable, MmaTable};
use crate::wgmma::WgmmaTable;

/// Most registers of a thread's fragments.
const REGISTER_LIMIT: u32 = 1 << 16;

/// A slot of the value file.
pub(crate) type Slot = u32;

/// An address: a slot plus a constant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub base: Slot,
    pub offset: i32,
}

/// An access of one thread's own bytes.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    /// Index into [`Program::statements`].
    pub statement: u32,
    pub memory: Memory,
    /// True if addresses may be in the shared memory of any block of the cluster.
    pub peer: bool,
    pub bytes: u32,
    pub regs: Vec<u32>,
    pub place: Place,
    pub guard: Option<Slot>,
    /// Of a load: the content of each register where nothing is read.
    pub outside: [u32; 2],
    /// The reduction that a store does.
    pub reduction: Option<Reduction>,
}

/// An atomic operation.
#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    /// Index into [`Program::statements`].
    pub statement: u32,
    pub row: &'static AtomicRow,
    pub order: MemoryOrder,
    pub dst: Option<Slot>,
    pub place: Place,
    pub operands: Vec<Slot>,
    pub guard: Option<Slot>,
}

/// A factor of a warpgroup's product.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Registers(Vec<u32>),
    Shared { low: Slot, high: u32, major: Major },
    Tensor(Place),
}

/// A tensor copy.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    pub statement: u32,
    pub op: TensorOp,
    pub map: u32,
    /// The number of the map, of one that is one of several.
    pub one: Option<Slot>,
    pub bytes: u32,
    pub coords: Vec<Slot>,
    pub shared: Place,
    pub barrier: Option<Place>,
    pub multicast: Option<Slot>,
    pub even: bool,
}

/// A bulk copy.
#[derive(Clone, Debug)]
pub(crate) struct BulkCopy {
    pub statement: u32,
    pub op: BulkOp,
    pub shared: Place,
    pub other: Place,
    pub bytes: Slot,
    pub barrier: Option<Place>,
}

#[derive(Clone, Debug)]
pub(crate) enum Code {
    Special {
        dst: Slot,
        special: Special,
    },
    Param {
        dst: Slot,
        param: u32,
    },
    Scalar {
        dst: Slot,
        eval: fn(&[u64]) -> u64,
        args: [Slot; 4],
        count: u8,
        unit: Unit,
    },
    ReadReg {
        dst: Slot,
        src: u32,
    },
    WriteReg {
        dst: u32,
        src: Slot,
    },
    Load(Transfer),
    Lookup {
        dst: Slot,
        transfer: Transfer,
    },
    /// A tensor map is its number.
    TensorMap {
        dst: Slot,
        number: Slot,
    },
    Store(Transfer),
    Atomic(Atomic),
    Await {
        statement: u32,
        place: Place,
        until: Until,
        operand: Slot,
    },
    AsyncCopy {
        statement: u32,
        bytes: u32,
        dst: Place,
        src: Place,
        guard: Option<Slot>,
    },
    Matrix {
        statement: u32,
        table: u32,
        regs: Vec<u32>,
        place: Place,
    },
    Mma {
        table: u32,
        d: Vec<u32>,
        a: Vec<u32>,
        b: Vec<u32>,
        meta: Option<u32>,
        /// The registers of the scales of A and of B, with the first byte of each.
        scales: Option<[(u32, u32); 2]>,
    },
    Shuffle {
        dst: Slot,
        src: Slot,
        mode: ShuffleMode,
        operand: Slot,
    },
    Wgmma {
        statement: u32,
        table: u32,
        d: Vec<u32>,
        a: Source,
        b: Source,
        meta: Option<u32>,
        accumulate: Slot,
    },
    /// A product with its sums in tensor memory.
    Sums {
        statement: u32,
        row: &'static Tcgen05Row,
        d: Place,
        a: Source,
        b: Source,
        /// The places of the scales of A and of B, with the first byte of each.
        scales: Option<[(Place, u32); 2]>,
        /// The place of the metadata of a sparse left factor, with the sparsity selector.
        meta: Option<(Place, u32)>,
        accumulate: Slot,
    },
    /// A copy of a chunk of scales to tensor memory.
    ScaleCopy {
        statement: u32,
        low: Slot,
        high: u32,
        to: Place,
    },
    /// A copy between tensor memory and registers.
    TensorCopy {
        statement: u32,
        table: u32,
        regs: Vec<u32>,
        place: Place,
    },
    TensorAllocate {
        statement: u32,
        columns: u32,
        to: Place,
    },
    TensorFree {
        statement: u32,
        columns: u32,
        address: Slot,
    },
    Tensor(TensorCopy),
    Bulk(BulkCopy),
    TryCancel {
        statement: u32,
        answer: Place,
        barrier: Place,
    },
    /// The block in an answer of the launch.
    Cancelled {
        dst: Slot,
        answer: Vec<u32>,
    },
    Mbarrier {
        statement: u32,
        op: MbarrierOp,
        place: Place,
        operand: Slot,
    },
    Elect {
        dst: Slot,
    },
    Assert {
        holds: Slot,
    },
    Print {
        what: Arc<Print>,
        operands: Vec<Slot>,
    },
    Vote {
        dst: Slot,
        src: Slot,
    },
    Sync {
        statement: u32,
        op: SyncOp,
    },
    BarrierSync {
        statement: u32,
        id: Slot,
        threads: u32,
    },
    /// Lanes where the condition holds leave the loop, whose [`Code::LoopEnd`] is at `end`.
    Break {
        condition: Slot,
        end: u32,
    },
    /// Lanes where the condition is false skip to behind `otherwise`, the position of the matching [`Code::Else`].
    If {
        condition: Slot,
        otherwise: u32,
    },
    /// Lanes that took the branch wait for the others, at `end`, the position of the matching [`Code::EndIf`].
    Else {
        end: u32,
    },
    EndIf,
    /// `end` is the position of the matching [`Code::LoopEnd`].
    LoopBegin {
        counter: Slot,
        lo: Slot,
        hi: Slot,
        end: u32,
    },
    LoopEnd {
        counter: Slot,
        hi: Slot,
        step: Slot,
        begin: u32,
    },
}

/// A flat instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub code: Code,
    /// Index into [`Program::statements`].
    pub statement: u32,
    pub origin: u32,
    /// Index into [`Program::rows`].
    pub row: u32,
    pub issue: u32,
    pub latency: u32,
}

/// An instruction in a tile statement, for which traffic and faults are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    pub origin: u32,
    pub name: &'static str,
    pub nature: Nature,
}

/// Kind of an instruction that accesses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Nature {
    /// One that is done when the next begins.
    Ordinary,
    /// A thread's asynchronous copy.
    Copy,
    /// A tensor or bulk copy into shared memory.
    Load,
    /// One out of shared memory.
    Store,
    /// A product of a warpgroup.
    Product,
    /// An access to tensor memory, or a product with its sums there.
    Sums,
}

impl Nature {
    fn of(op: &Op) -> Self {
        match op {
            Op::AsyncCopy { .. } => Nature::Copy,
            Op::Tensor { row, .. } if row.op != TensorOp::Load => Nature::Store,
            Op::Bulk { op: BulkOp::Store, .. } => Nature::Store,
            Op::Tensor { .. } | Op::Bulk { .. } | Op::TryCancel { .. } => Nature::Load,
            Op::Wgmma { .. } => Nature::Product,
            Op::Tcgen05 { .. } | Op::ScaleCopy { .. } | Op::TensorCopy { .. } | Op::TensorFree { .. } => {
                Nature::Sums
            }
            _ => Nature::Ordinary,
        }
    }
}

/// The name of an instruction in reports.
fn name_of(op: &Op) -> &'static str {
    match op {
        Op::Special { .. } | Op::Param { .. } | Op::ReadReg { .. } | Op::WriteReg { .. } => "mov",
        Op::Scalar { op, .. } => op.row().name,
        Op::Load { row, .. }
        | Op::Lookup { row, .. }
        | Op::Store { row, .. }
        | Op::AsyncCopy { row, .. }
        | Op::Matrix { row, .. }
        | Op::TensorCopy { row, .. } => row.name,
        Op::Mma { row, .. } => row.name,
        Op::Atomic { row, .. } => row.name.as_str(),
        Op::Await { .. } => "ld.acquire",
        Op::TensorMap { .. } => ACQUIRE_TENSOR_MAP,
        Op::Shuffle { mode, .. } => mode.mnemonic(),
        Op::Wgmma { row, .. } => row.name.as_str(),
        Op::Tcgen05 { row, .. } => row.name.as_str(),
        Op::ScaleCopy { .. } => SumsScaling::COPY,
        Op::TensorAllocate { .. } => "tcgen05.alloc",
        Op::TensorFree { .. } => "tcgen05.dealloc",
        Op::Tensor { row, .. } => row.name.as_str(),
        Op::Bulk { op, .. } => op.name(),
        Op::TryCancel { .. } | Op::Cancelled { .. } => "clusterlaunchcontrol",
        Op::Mbarrier { op, .. } => op.name(),
        Op::Elect { .. } => "elect.sync",
        Op::Vote { .. } => "vote.sync",
        Op::Assert { .. } => "assert",
        Op::Print { .. } => "print",
        Op::Asm { .. } => "asm",
        Op::Sync(op) => sync_name(*op),
        Op::BarrierSync { .. } => "bar.sync",
        Op::For { .. } => "for",
        Op::Break { .. } => "break",
        Op::If { .. } => "if",
    }
}

/// A decoded function.
#[derive(Debug)]
pub(crate) struct Program<'a> {
    pub function: &'a Function,
    pub code: Vec<Instruction>,
    /// Slots of the value file: the function's values, then literals.
    pub slots: usize,
    /// The literals, which begin at this slot.
    pub literals: (usize, Vec<u64>),
    /// Registers of the register file.
    pub registers: usize,
    pub matrices: Vec<MatrixTable>,
    pub products: Vec<MmaTable>,
    /// Of warpgroups.
    pub wgmmas: Vec<WgmmaTable>,
    /// Of tensor memory.
    pub tensor_copies: Vec<CopyTable>,
    /// True if there is tensor memory.
    pub sums: bool,
    /// True if clusters may cancel others that have not begun.
    pub cancels: bool,
    pub statements: Vec<Statement>,
    /// Rows of a profile, in program order.
    pub rows: Vec<Row>,
    /// True if warpgroups go ways of their own: there are mbarriers, or barriers of some of the block's threads.
    pub roles: bool,
}

struct Decoder<'a> {
    program: Program<'a>,
    bases: Vec<u32>,
    literals: HashMap<u64, Slot>,
    matrices: HashMap<&'static str, u32>,
    products: HashMap<&'static str, u32>,
    wgmmas: HashMap<&'static str, u32>,
    statements: HashMap<(u32, &'static str), u32>,
    rows: HashMap<(u32, &'static str), u32>,
}

impl Program<'_> {
    /// The row of an instruction, whose tables are there.
    fn row(&self, code: &Code, origin: u32) -> Row {
        let named = |statement: &u32| self.statements.get(*statement as usize).map_or("", |s| s.name);
        let (name, class, flow) = match code {
            Code::Load(t) | Code::Lookup { transfer: t, .. } => {
                (named(&t.statement), Class::Memory, Flow::Load(t.memory))
            }
            Code::Store(t) => (named(&t.statement), Class::Memory, Flow::Store(t.memory)),
            Code::Atomic(t) => (named(&t.statement), Class::Memory, Flow::Store(t.row.memory)),
            Code::Await { statement, .. } => (named(statement), Class::Barrier, Flow::Nowhere),
            Code::AsyncCopy { statement, .. } => (named(statement), Class::Memory, Flow::Async),
            Code::Matrix { statement, table, .. } => {
                let store = self.matrices[*table as usize].store;
                let flow = if store { Flow::Store(Memory::Shared) } else { Flow::Load(Memory::Shared) };
                (named(statement), Class::Memory, flow)
            }
            Code::Mma { table, .. } => (self.products[*table as usize].name(), Class::Tensor, Flow::Nowhere),
            Code::Shuffle { mode, .. } => (mode.mnemonic(), Class::Memory, Flow::Nowhere),
            Code::Wgmma { statement, table, a, .. } => {
                let bytes = product_bytes(&self.wgmmas[*table as usize], a);
                (named(statement), Class::Tensor, Flow::Product(bytes / 4))
            }
            Code::Sums { statement, row, .. } => {
                let bytes = (row.m + row.n) * row.k * i64::from(row.a.bits()) / 8;
                (named(statement), Class::Tensor, Flow::Product(bytes as u64))
            }
            Code::ScaleCopy { statement, .. } => {
                (named(statement), Class::Tensor, Flow::Product(SumsScaling::BYTES as u64))
            }
            Code::TensorCopy { statement, .. } => (named(statement), Class::Memory, Flow::Nowhere),
            Code::TensorAllocate { statement, .. }
            | Code::TensorFree { statement, .. }
            | Code::TryCancel { statement, .. } => (named(statement), Class::Barrier, Flow::Nowhere),
            Code::Tensor(copy) => {
                let flow = if copy.op == TensorOp::Load { Flow::UnitLoad } else { Flow::UnitStore };
                (named(&copy.statement), Class::Memory, flow)
            }
            Code::Bulk(copy) => {
                let flow = match copy.op {
                    BulkOp::Load => Flow::UnitLoad,
                    BulkOp::Store => Flow::UnitStore,
                    _ => Flow::Nowhere,
                };
                (named(&copy.statement), Class::Memory, flow)
            }
            Code::Mbarrier { statement, .. }
            | Code::Sync { statement, .. }
            | Code::BarrierSync { statement, .. } => (named(statement), Class::Barrier, Flow::Nowhere),
            _ => ("scalar", Class::Scalar, Flow::Nowhere),
        };
        Row { origin, name, class, flow }
    }
}

/// Bytes of shared memory that a product reads.
fn product_bytes(table: &WgmmaTable, a: &Source) -> u64 {
    let row = table.row;
    let left = if matches!(a, Source::Registers(_)) { 0 } else { tilewright_machine::WgmmaRow::M };
    ((left * row.a_columns()) as u64 * u64::from(row.a.bits())
        + (row.n * row.k) as u64 * u64::from(row.b.bits()))
        / 8
}

impl<'a> Program<'a> {
    /// Verifies and decodes a function.
    pub(crate) fn new(function: &'a Function) -> Result<Self, SimError> {
        verify(function)?;
        let mut bases = Vec::with_capacity(function.arrays.len());
        let mut registers = 0u32;
        for array in &function.arrays {
            bases.push(registers);
            registers = registers.saturating_add(array.registers);
        }
        if registers > REGISTER_LIMIT {
            let reason = "a thread has more than 65536 of them";
            return Err(SimError::Unsupported {
                instruction: "register arrays".to_string(),
                reason,
                origin: String::new(),
            });
        }
        let program = Program {
            function,
            code: Vec::new(),
            slots: 0,
            literals: (function.values.len(), Vec::new()),
            registers: registers as usize,
            matrices: Vec::new(),
            products: Vec::new(),
            wgmmas: Vec::new(),
            tensor_copies: Vec::new(),
            sums: false,
            cancels: false,
            statements: Vec::new(),
            rows: Vec::new(),
            roles: false,
        };
        let mut decoder = Decoder {
            program,
            bases,
            literals: HashMap::new(),
            matrices: HashMap::new(),
            products: HashMap::new(),
            wgmmas: HashMap::new(),
            statements: HashMap::new(),
            rows: HashMap::new(),
        };
        decoder.block(&function.body)?;
        let mut program = decoder.program;
        program.slots = program.literals.0 + program.literals.1.len();
        Ok(program)
    }

    /// The fragment of a register of the register file, which of its registers it is, and how many it has.
    pub(crate) fn fragment(&self, register: u32) -> (&str, u32, u32) {
        let mut first = 0;
        for array in &self.function.arrays {
            if register < first + array.registers {
                return (&array.name, register - first, array.registers);
            }
            first += array.registers;
        }
        ("", register, 0)
    }

    /// The tensor in tensor memory that has a column.
    pub(crate) fn tensor_at(&self, column: u32) -> Option<usize> {
        let has = |b: &tilewright_simt::TensorBuffer| (b.column..b.column + b.columns).contains(&column);
        self.function.tensor_memory.iter().position(has)
    }

    /// A register of the register file in words.
    pub(crate) fn register(&self, register: u32) -> String {
        let (name, index, _) = self.fragment(register);
        format!("register {index} of `{name}`")
    }

    /// The position of an origin's statement in its source.
    pub(crate) fn position(&self, origin: u32) -> Option<Position> {
        self.function.position(OriginId(origin))
    }

    pub(crate) fn origin(&self, origin: u32) -> String {
        self.function.origins.get(origin as usize).cloned().unwrap_or_default()
    }
}

/// The name of a barrier, a fence or a wait in reports.
pub(crate) fn sync_name(op: SyncOp) -> &'static str {
    match op {
        SyncOp::Barrier => "bar.sync 0",
        SyncOp::WarpBarrier => "bar.warp.sync",
        SyncOp::AsyncCommit => "cp.async.commit_group",
        SyncOp::AsyncWaitGroup(_) => "cp.async.wait_group",
        SyncOp::AsyncWaitAll => "cp.async.wait_all",
        SyncOp::NamedBarrier { .. } => "bar.sync",
        SyncOp::BarrierArrive { .. } => "bar.arrive",
        SyncOp::ClusterBarrier | SyncOp::ClusterStart => "barrier.cluster",
        SyncOp::WgmmaFence => "wgmma.fence",
        SyncOp::WgmmaCommit => "wgmma.commit_group",
        SyncOp::WgmmaWait(_) => "wgmma.wait_group",
        SyncOp::BulkCommit => "cp.async.bulk.commit_group",
        SyncOp::BulkWait(_) => "cp.async.bulk.wait_group",
        SyncOp::TensorRelinquish => "tcgen05.relinquish_alloc_permit",
        SyncOp::TensorWaitLoad => "tcgen05.wait::ld",
        SyncOp::TensorWaitStore => "tcgen05.wait::st",
        SyncOp::TensorFenceBefore => "tcgen05.fence::before_thread_sync",
        SyncOp::TensorFenceAfter => "tcgen05.fence::after_thread_sync",
        SyncOp::BulkWaitRead(_) => "cp.async.bulk.wait_group.read",
        SyncOp::FenceProxyAsync(fence) => fence.spelling(),
        SyncOp::FenceMbarrierInit => "fence.mbarrier_init",
        SyncOp::SetMaxRegisters { more: true, .. } => "setmaxnreg.inc",
        SyncOp::SetMaxRegisters { more: false, .. } => "setmaxnreg.dec",
        SyncOp::DependencyWait => "griddepcontrol.wait",
        SyncOp::DependentsLaunch => "griddepcontrol.launch_dependents",
    }
}
