//! Units, classes and keys: how a latency and throughput table ([`mod@crate::timing`]) names what it has figures for.
//!
//! A copy or a warp's matrix product is a row of its own; operations of one thread, shuffles, barriers, and the copies of the tensor memory
//! accelerator cost the same by classes ([`Class`]); products of a warpgroup by operand types and `n` ([`WgmmaKind`]).

use std::fmt;

use crate::arch::{Arch, Memory};
use crate::atomic::AtomicRow;
use crate::copy::{CopyKind, CopyRow, Scope, copy_rows, thread_copy};
use crate::dtype::DType;
use crate::features::{Feature, Features};
use crate::mma::{MmaRow, mma_rows};
use crate::scalar::{ScalarOp, ShuffleMode};
use crate::sync::{MbarrierOp, ProxyFence, SyncOp};
use crate::tcgen05::{Tcgen05Row, TensorMemory};
use crate::tensor::{BulkOp, TensorOp};
use crate::wgmma::WgmmaRow;

/// A unit of a multiprocessor that instructions occupy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Unit {
    /// The tensor cores.
    Tensor,
    /// The pipe of `f32` arithmetic and of integer products.
    Fma,
    /// The pipe of integer sums, logic, comparisons, selections and most conversions.
    Alu,
    /// The pipe of transcendental functions and of conversions from floats to integers.
    Mufu,
    /// The load/store unit: shared memory, global memory and shuffles.
    Lsu,
    /// The schedulers' issue slots, which every instruction takes, and sequences of several instructions for longer.
    Issue,
    /// The tensor memory accelerator.
    Tma,
    /// The port to the L2 cache.
    L2,
}

impl Unit {
    /// Number of units.
    pub const COUNT: usize = 8;

    /// Every unit.
    pub const ALL: [Unit; Unit::COUNT] =
        [Unit::Tensor, Unit::Fma, Unit::Alu, Unit::Mufu, Unit::Lsu, Unit::Issue, Unit::Tma, Unit::L2];

    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Unit::Tensor => "tensor",
            Unit::Fma => "fma",
            Unit::Alu => "alu",
            Unit::Mufu => "mufu",
            Unit::Lsu => "lsu",
            Unit::Issue => "issue",
            Unit::Tma => "tma",
            Unit::L2 => "l2",
        }
    }

    /// The name in reports.
    pub fn title(self) -> &'static str {
        match self {
            Unit::Tensor => "tensor cores",
            Unit::Fma => "FMA pipe",
            Unit::Alu => "arithmetic",
            Unit::Mufu => "special functions",
            Unit::Lsu => "load/store unit",
            Unit::Issue => "issue slots",
            Unit::Tma => "TMA",
            Unit::L2 => "global memory",
        }
    }

    /// Number of these units in a multiprocessor: one in each of its four sub-partitions, or one in all.
    pub const fn count(self) -> u32 {
        match self {
            Unit::Tensor | Unit::Fma | Unit::Alu | Unit::Mufu | Unit::Issue => 4,
            Unit::Lsu | Unit::Tma | Unit::L2 => 1,
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

macro_rules! classes {
    ($( $(#[$doc:meta])* $class:ident: $name:literal, $unit:ident, $needs:expr; )*) => {
        /// Operations that cost the same.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Class { $( $(#[$doc])* $class, )* }

        impl Class {
            /// Every class, in the order of tables.
            pub const ALL: &'static [Class] = &[ $(Class::$class,)* ];

            /// The name in tables.
            pub fn name(self) -> &'static str {
                match self { $( Class::$class => $name, )* }
            }

            /// The unit that it occupies.
            pub fn unit(self) -> Unit {
                match self { $( Class::$class => Unit::$unit, )* }
            }

            /// The features of an architecture that has operations of the class.
            pub fn needs(self) -> Features {
                match self { $( Class::$class => $needs, )* }
            }
        }
    };
}

const BASE: Features = Features::NONE;
const BARRIER: Features = Features::of(&[Feature::TransactionBarrier]);
const CLUSTER: Features = Features::of(&[Feature::Cluster]);
const TMA: Features = Features::of(&[Feature::Tma]);
const TENSOR_MEMORY: Features = Tcgen05Row::NEEDS;
const LAUNCH_CONTROL: Features = Features::of(&[Feature::LaunchControl]);

classes! {
    /// `f32` sums, products, and both in one.
    FmaF32: "fma.f32", Fma, BASE;
    /// Packed 16-bit sums, products, and both in one.
    FmaF16x2: "fma.f16x2", Fma, BASE;
    /// Minima and maxima of floats.
    MinF32: "min.f32", Alu, BASE;
    /// Integer sums.
    AddI32: "add.i32", Alu, BASE;
    /// Integer minima and maxima.
    MinI32: "min.i32", Alu, BASE;
    /// Logic.
    Lop3: "lop3", Alu, BASE;
    /// Shifts.
    Shift: "shift", Alu, BASE;
    /// Byte permutations.
    Prmt: "prmt", Alu, BASE;
    /// Extractions of bit fields.
    Bfe: "bfe", Alu, BASE;
    /// Insertions of bit fields.
    Bfi: "bfi", Alu, BASE;
    /// Comparisons, and logic of predicates.
    Setp: "setp", Alu, BASE;
    /// Selections by a predicate.
    Selp: "selp", Alu, BASE;
    /// Integer products.
    Imad: "imad", Fma, BASE;
    /// 64-bit products of 32-bit integers.
    ImadWide: "imad.wide", Fma, BASE;
    /// 64-bit sums.
    AddI64: "add.i64", Alu, BASE;
    /// 64-bit products.
    MulI64: "mul.i64", Fma, BASE;
    /// 64-bit shifts.
    ShiftB64: "shift.b64", Alu, BASE;
    /// Sign extensions to 64 bits.
    ExtendI64: "extend.i64", Alu, BASE;
    /// Conversions of `f32` to 16-bit floats.
    HalfFromF32: "cvt.f16x2.f32", Alu, BASE;
    /// Conversions of `f16` to `f32`.
    F32FromHalf: "cvt.f32.f16", Fma, BASE;
    /// Conversions of integers to `f32`.
    F32FromI32: "cvt.f32.i32", Alu, BASE;
    /// Conversions of `f32` to integers.
    I32FromF32: "cvt.i32.f32", Mufu, BASE;
    /// Conversions between widths of integers.
    ConvertI16: "cvt.i16", Alu, BASE;
    /// Conversions from and to floats of 8 bits and 4.
    ConvertF8: "cvt.f8", Alu, BASE;
    /// 2ˣ and 1/x.
    Ex2: "ex2", Mufu, BASE;
    /// log₂ x.
    Lg2: "lg2", Mufu, BASE;
    /// 1/√x.
    Rsqrt: "rsqrt", Mufu, BASE;
    /// √x.
    SqrtF32: "sqrt.f32", Issue, BASE;
    /// Quotients of floats.
    DivF32: "div.f32", Issue, BASE;
    /// Quotients of integers.
    DivI32: "div.i32", Issue, BASE;
    /// Warp shuffles.
    Shuffle: "shfl", Lsu, BASE;
    /// Issue of a barrier of the block, or of some of its warps.
    BlockBarrier: "bar.sync", Issue, BASE;
    /// Issue of the other waits and commits.
    Wait: "wait", Issue, BASE;
    /// Issue of an operation on an mbarrier.
    Mbarrier: "mbarrier", Issue, BARRIER;
    /// Issue of a barrier of the cluster.
    ClusterBarrier: "barrier.cluster", Issue, CLUSTER;
    /// Issue of a fence between the proxies that covers shared memory.
    ProxyFence: "fence.proxy.async", Issue, TMA;
    /// Issue of a fence between the proxies that covers global memory alone.
    GlobalProxyFence: "fence.proxy.async.global", Issue, TMA;
    /// Tensor and bulk copies into shared memory.
    TmaLoad: "tma.load", Tma, TMA;
    /// Tensor and bulk copies out of shared memory.
    TmaStore: "tma.store", Tma, TMA;
    /// Tensor copies out of shared memory that add.
    TmaAdd: "tma.add", Tma, TMA;
    /// Copies of a cell a lane from tensor memory: one of several columns takes as many times its issue.
    TensorLoad: "tcgen05.ld", Lsu, TENSOR_MEMORY;
    /// The same to tensor memory.
    TensorStore: "tcgen05.st", Lsu, TENSOR_MEMORY;
    /// Requests to cancel a cluster that has not begun, until the answer is there.
    LaunchControl: "clusterlaunchcontrol", Issue, LAUNCH_CONTROL;
    /// Copies of a chunk of scales from shared memory to tensor memory.
    TensorScales: "tcgen05.cp", Tensor, TENSOR_MEMORY;
}

impl ScalarOp {
    /// The class of operations that cost the same.
    pub fn class(self) -> Class {
        use ScalarOp::*;
        match self {
            AddI32 | SubI32 => Class::AddI32,
            MulI32 | MulHiI32 | MulHiU32 => Class::Imad,
            DivI32 | RemI32 | DivU32 | RemU32 => Class::DivI32,
            MinI32 | MaxI32 | MinU32 | MaxU32 => Class::MinI32,
            AndB32 | OrB32 | XorB32 | Lop3B32 => Class::Lop3,
            ShlB32 | ShrU32 | ShrI32 => Class::Shift,
            BfeU32 | BfeS32 => Class::Bfe,
            BfiB32 => Class::Bfi,
            PrmtB32 => Class::Prmt,
            ExtendI64 | ExtendU64 => Class::ExtendI64,
            MulWide => Class::ImadWide,
            AddI64 | SubI64 => Class::AddI64,
            MulI64 => Class::MulI64,
            ShlB64 | ShrI64 | ShrU64 => Class::ShiftB64,
            LtI32 | GeI32 | EqI32 | NeI32 | LtU32 | GeU32 | LtF32 | LeF32 | EqF32 | NeF32 | AndPred
            | OrPred | XorPred | NotPred => Class::Setp,
            Select => Class::Selp,
            // Negation and absolute value are mostly modifiers of what uses them; alone, they are a sum.
            AddF32 | SubF32 | MulF32 | FmaF32 | NegF32 | AbsF32 => Class::FmaF32,
            MinF32 | MaxF32 | MinF16x2 | MaxF16x2 | MinBF16x2 | MaxBF16x2 => Class::MinF32,
            DivF32 => Class::DivF32,
            SqrtF32 => Class::SqrtF32,
            RsqrtF32 | RsqrtFtzF32 => Class::Rsqrt,
            // A quotient by the reciprocal, sines and cosines are operations of the same pipe.
            Ex2FtzF32 | RcpFtzF32 | SinF32 | CosF32 | DivApproxFtzF32 => Class::Ex2,
            Lg2F32 | Lg2FtzF32 => Class::Lg2,
            Mapa | LowB16 | ExtendB16 | LowB32 => Class::ConvertI16,
            F32FromF16 => Class::F32FromHalf,
            F16FromF32 | BF16FromF32 | F16x2FromF32 | BF16x2FromF32 => Class::HalfFromF32,
            F32FromI32 | F32FromU32 => Class::F32FromI32,
            I32FromF32 | U32FromF32 | RoundF32 | FloorF32 | CeilF32 => Class::I32FromF32,
            // Of arithmetic in `f64` nothing is measured: it costs what products of 64 bits do.
            F64FromF32 | F32FromF64 | MulF64 | FmaF64 | RoundF64 | AddF64 | SubF64 | MinF64 | MaxF64
            | NegF64 | AbsF64 | FloorF64 | CeilF64 | F64FromI32 | F64FromU32 | F64FromI64 | F64FromU64
            | F32FromI64 | F32FromU64 | I32FromF64 | U32FromF64 | I64FromF64 | U64FromF64 | I64FromF32
            | U64FromF32 | MulHiI64 | MulHiU64 => Class::MulI64,
            DivF64 | SqrtF64 => Class::DivF32,
            DivI64 | RemI64 | DivU64 | RemU64 => Class::DivI32,
            MinI64 | MaxI64 | MinU64 | MaxU64 | AndB64 | OrB64 | XorB64 | SelectB64 | LtI64 | GeI64
            | LtU64 | GeU64 | EqI64 | NeI64 | LtF64 | LeF64 | EqF64 | NeF64 => Class::AddI64,
            JoinB64 | HighB32 => Class::ConvertI16,
            AddF16x2 | SubF16x2 | MulF16x2 | FmaF16x2 | AddBF16x2 | SubBF16x2 | MulBF16x2 | FmaBF16x2 => {
                Class::FmaF16x2
            }
            F16x2FromE4M3x2 | E4M3x2FromF16x2 | E5M2x2FromF16x2 | E4M3x2FromF32 | E5M2x2FromF32
            | F16x2FromE2M1x2 | E2M1x2FromF32 | F16x2FromE3M2x2 | E3M2x2FromF32 | F16x2FromE2M3x2
            | E2M3x2FromF32 | BF16x2FromUE8M0x2 => Class::ConvertF8,
        }
    }
}

/// A, and the accumulators: what the cost of a warpgroup's product depends on, in addition to `n`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WgmmaKind {
    /// 16-bit floats into `f32`.
    HalfF32,
    /// `f16` into `f16`.
    HalfF16,
    /// `tf32` into `f32`.
    Tf32,
    /// 8-bit floats into `f32`.
    F8F32,
    /// 8-bit floats into `f16`.
    F8F16,
    /// 8-bit integers into `i32`.
    I8,
}

impl WgmmaKind {
    /// Every kind.
    pub const ALL: [WgmmaKind; 6] = [
        WgmmaKind::HalfF32,
        WgmmaKind::HalfF16,
        WgmmaKind::Tf32,
        WgmmaKind::F8F32,
        WgmmaKind::F8F16,
        WgmmaKind::I8,
    ];

    /// Types of A, B and the accumulators that stand for the kind.
    pub fn types(self) -> (DType, DType, DType) {
        use DType::{E4M3, F16, F32, I8, I32};
        match self {
            WgmmaKind::HalfF32 => (F16, F16, F32),
            WgmmaKind::HalfF16 => (F16, F16, F16),
            WgmmaKind::Tf32 => (F32, F32, F32),
            WgmmaKind::F8F32 => (E4M3, E4M3, F32),
            WgmmaKind::F8F16 => (E4M3, E4M3, F16),
            WgmmaKind::I8 => (I8, I8, I32),
        }
    }

    fn name(self) -> &'static str {
        match self {
            WgmmaKind::HalfF32 => "f32.f16",
            WgmmaKind::HalfF16 => "f16.f16",
            WgmmaKind::Tf32 => "f32.tf32",
            WgmmaKind::F8F32 => "f32.f8",
            WgmmaKind::F8F16 => "f16.f8",
            WgmmaKind::I8 => "s32.s8",
        }
    }
}

impl WgmmaRow {
    /// The kind that its cost depends on.
    pub fn kind(&self) -> WgmmaKind {
        match (self.a.bits(), self.c) {
            (32, _) => WgmmaKind::Tf32,
            (16, DType::F16) => WgmmaKind::HalfF16,
            (16, _) => WgmmaKind::HalfF32,
            (_, DType::I32) => WgmmaKind::I8,
            (_, DType::F16) => WgmmaKind::F8F16,
            _ => WgmmaKind::F8F32,
        }
    }
}

/// The `n` of products of a warpgroup that tables have lines for. Between two of them the figures are on the line between theirs.
pub const WGMMA_KNOTS: [i64; 6] = [8, 16, 32, 64, 128, 256];

/// The `n` of products with sums in tensor memory that tables have lines for.
pub const TCGEN05_KNOTS: [i64; 4] = [8, 64, 128, 256];

/// The rows of products with sums in tensor memory, the last of a pair of blocks. Their cost depends on these and on `n`; every kind multiplies 32 bytes of a row in the same time.
pub const TCGEN05_ROWS: [i64; 3] = [64, TensorMemory::LANES, 2 * TensorMemory::LANES];

/// A line of a table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OpKey {
    /// A row, by its name: a copy or a warp's matrix product.
    Row(&'static str, Unit),
    /// A class of operations.
    Class(Class),
    /// A product of a warpgroup.
    Wgmma(WgmmaKind, i64),
    /// A product with sums in tensor memory, of so many rows and columns, with both factors in shared memory.
    Tcgen05(i64, i64),
    /// One of so many columns, of 128 rows, with its left factor in tensor memory.
    Tcgen05Left(i64),
}

impl OpKey {
    /// The unit that it occupies.
    pub fn unit(self) -> Unit {
        match self {
            OpKey::Row(_, unit) => unit,
            OpKey::Class(class) => class.unit(),
            OpKey::Wgmma(..) | OpKey::Tcgen05(..) | OpKey::Tcgen05Left(_) => Unit::Tensor,
        }
    }

    /// The lines of an architecture's table, in their order.
    pub fn all(arch: Arch) -> Vec<OpKey> {
        let mma = mma_rows().iter().filter(|row| arch.has(row.needs)).map(OpKey::from);
        let copies = copy_rows().iter().filter(|row| arch.has(row.needs)).map(OpKey::from);
        let classes = Class::ALL.iter().filter(|class| arch.has(class.needs())).map(|class| (*class).into());
        let products = WgmmaKind::ALL.into_iter().filter(|_| arch.has(WgmmaRow::NEEDS));
        let products = products.flat_map(|kind| WGMMA_KNOTS.map(|n| OpKey::Wgmma(kind, n)));
        let sums = TCGEN05_ROWS.into_iter().filter(|_| arch.has(Tcgen05Row::NEEDS));
        let sums = sums.flat_map(|m| TCGEN05_KNOTS.map(|n| OpKey::Tcgen05(m, n)));
        let left = TCGEN05_KNOTS.into_iter().filter(|_| arch.has(Tcgen05Row::NEEDS));
        let sums = sums.chain(left.map(OpKey::Tcgen05Left));
        mma.chain(copies).chain(classes).chain(products).chain(sums).collect()
    }
}

impl fmt::Display for OpKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpKey::Row(name, _) => f.write_str(name),
            OpKey::Class(class) => f.write_str(class.name()),
            OpKey::Wgmma(kind, n) => write!(f, "wgmma.n{n}.{}", kind.name()),
            OpKey::Tcgen05(m, n) => write!(f, "tcgen05.mma.m{m}n{n}"),
            OpKey::Tcgen05Left(n) => write!(f, "tcgen05.mma.left.n{n}"),
        }
    }
}

impl From<Class> for OpKey {
    fn from(class: Class) -> OpKey {
        OpKey::Class(class)
    }
}

impl From<&CopyRow> for OpKey {
    fn from(row: &CopyRow) -> OpKey {
        if let CopyKind::Tensor { .. } = row.kind {
            return if row.src == Memory::Tensor { Class::TensorLoad } else { Class::TensorStore }.into();
        }
        // Of reductions nothing is measured: they cost what a store of as many bytes does.
        let store = || thread_copy(row.src, row.dst, row.scope, row.bytes);
        let row = if let CopyKind::Reduction(_) | CopyKind::Atomic(_) = row.kind {
            store().unwrap_or(row)
        } else {
            row
        };
        OpKey::Row(row.name, Unit::Lsu)
    }
}

impl From<&AtomicRow> for OpKey {
    fn from(row: &AtomicRow) -> OpKey {
        // Nothing is measured of atomic operations either: what comes back takes as long as a load.
        let load = thread_copy(row.memory, Memory::Register, Scope::Cta, row.bytes());
        load.map_or(OpKey::Class(Class::Wait), OpKey::from)
    }
}

impl From<&MmaRow> for OpKey {
    fn from(row: &MmaRow) -> OpKey {
        OpKey::Row(row.name, Unit::Tensor)
    }
}

impl From<ScalarOp> for OpKey {
    fn from(op: ScalarOp) -> OpKey {
        op.class().into()
    }
}

impl From<ShuffleMode> for OpKey {
    fn from(_: ShuffleMode) -> OpKey {
        Class::Shuffle.into()
    }
}

impl From<SyncOp> for OpKey {
    fn from(op: SyncOp) -> OpKey {
        let class = match op {
            SyncOp::Barrier | SyncOp::NamedBarrier { .. } | SyncOp::BarrierArrive { .. } => {
                Class::BlockBarrier
            }
            SyncOp::ClusterBarrier | SyncOp::ClusterStart => Class::ClusterBarrier,
            // The fence of global memory has no memory barrier before it (SASS of sm_90a).
            SyncOp::FenceProxyAsync(ProxyFence::Global) => Class::GlobalProxyFence,
            SyncOp::FenceProxyAsync(_) => Class::ProxyFence,
            _ => Class::Wait,
        };
        class.into()
    }
}

impl From<MbarrierOp> for OpKey {
    fn from(_: MbarrierOp) -> OpKey {
        Class::Mbarrier.into()
    }
}

impl From<TensorOp> for OpKey {
    fn from(op: TensorOp) -> OpKey {
        let class = match op {
            TensorOp::Load => Class::TmaLoad,
            TensorOp::Store => Class::TmaStore,
            TensorOp::Add => Class::TmaAdd,
        };
        class.into()
    }
}

impl From<BulkOp> for OpKey {
    fn from(op: BulkOp) -> OpKey {
        if op == BulkOp::Load { Class::TmaLoad.into() } else { Class::TmaStore.into() }
    }
}
