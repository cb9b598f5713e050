//! Matrix-product instructions, one row a shape and type.
//!
//! Operand layouts map (lane, value) → column-major index in the operand's tile: A is M×K with index `m + M·k`, B is
//! N×K with index `n + N·k`, C is M×N with index `m + M·n`. Values pack from low to high bits into 32-bit registers.
//! The simulator multiplies what the layouts say; PTX prints registers in the order of the values.
//!
//! A product with a [`Sparsity`] has of A two elements of every four along K (2:4 sparsity): its A is M×K/2, and metadata tell for each of these
//! its place in its group.
//!
//! A product with a [`Scaling`] multiplies each element of A and of B by the scale of its block: `d += Σ (a · sa) · (b · sb)`, in which the products are
//! exact and the sums are those of the accumulator.
//!
//! Sources: PTX ISA 8.4, section 9.7.13.4 (fragments of `mma.sync`; 9.7.14 in later editions); PTX ISA 8.7, sections 9.7.14.6.1 and
//! 9.7.14.6.2 (storage, selectors and fragments of `mma.sp`); CUTLASS `include/cute/atom/mma_traits_sm90_gmma_sparse.hpp` (`ELayout_64x32`,
//! `ELayout_64x64`: the same metadata for four warps); PTX ISA 8.7, section 9.7.14.3 (block scaling), and CUTLASS
//! `include/cute/atom/mma_traits_sm120.hpp` (the layouts of scales).

mod mixed;

use std::sync::LazyLock;

use tilewright_layout::Layout;

use crate::arch::Arch;
use crate::dtype::DType;
use crate::features::{Feature, Features};

/// A matrix-product instruction of one warp: `D = A · Bᵀ + C`, with C and D in the same registers.
#[derive(Clone, PartialEq, Debug)]
pub struct MmaRow {
    /// The name in reports, e.g. `mma.m16n8k16.f32.f16`.
    pub name: &'static str,
    /// PTX mnemonic with all its qualifiers.
    pub mnemonic: &'static str,
    /// Rows of A and C.
    pub m: i64,
    /// Rows of B, columns of C.
    pub n: i64,
    /// Columns of A and B. Of a sparse A half of them are there ([`a_columns`](MmaRow::a_columns)).
    pub k: i64,
    /// Element type of A. `F32` stands for `tf32`: of a factor's 32 bits the hardware reads the upper 19.
    pub a: DType,
    /// Element type of B, of as many bits.
    pub b: DType,
    /// Element type of C and D.
    pub c: DType,
    /// (lane, value) → `m + M·k`, with `k` counting the columns that are there.
    pub a_tv: Layout,
    /// (lane, value) → `n + N·k`.
    pub b_tv: Layout,
    /// (lane, value) → `m + M·n`.
    pub c_tv: Layout,
    /// The features that an architecture must have.
    pub needs: Features,
    /// The first version of PTX that has the instruction.
    pub ptx_version: &'static str,
    /// The metadata of a sparse A; `None` of a dense one.
    pub sparsity: Option<Sparsity>,
    /// The scales of a block-scaled product.
    pub scaling: Option<Scaling>,
}

/// The kind of a product beside the types of its factors and sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MmaKind {
    /// Both factors are as they stand.
    Dense,
    /// A is sparse.
    Sparse,
    /// Blocks of both factors along K have scales.
    Scaled {
        /// The type of scales.
        scale: DType,
        /// Elements of a block.
        block: i64,
    },
}

impl MmaKind {
    /// A product of `k` columns with so many scales a row; `None` where these are not blocks.
    pub fn scaled(scale: DType, k: i64, scales: i64) -> Option<MmaKind> {
        (scales > 0 && k % scales == 0).then(|| MmaKind::Scaled { scale, block: k / scales })
    }

    /// A product whose A is sparse, or not.
    pub fn sparse(sparse: bool) -> MmaKind {
        if sparse { MmaKind::Sparse } else { MmaKind::Dense }
    }
}

/// The scales of a block-scaled product: each multiplies a block of elements along K of a row of A or of B.
#[derive(Clone, PartialEq, Debug)]
pub struct Scaling {
    /// The type of scales.
    pub dtype: DType,
    /// Elements of a block along K.
    pub block: i64,
    /// (lane, block) → `m + M·block`: bytes of a lane's register, one beside the other. Lanes whose register is not read hold copies.
    pub a_tv: Layout,
    /// (lane, block) → `n + N·block`.
    pub b_tv: Layout,
}

impl Scaling {
    /// The thread id of the scales of A, and of those of B: the first lanes of each four have them.
    pub const THREAD: u32 = 0;
    /// Lanes of each four whose register of A's scales, and of B's, is read.
    const LANES: [u32; 2] = [2, 1];

    /// True if the instruction reads this lane's scales of A, or with `right` those of B.
    pub fn reads(&self, lane: u32, right: bool) -> bool {
        lane % 4 / Scaling::LANES[usize::from(right)] == Scaling::THREAD
    }

    /// Those of a product of 16 × 8 elements with so many blocks along K.
    fn new(dtype: DType, block: i64, blocks: i64) -> Scaling {
        let layout = |lanes: &str, strides: &str, rows: i64| -> Layout {
            let text = if blocks == 1 {
                format!("({lanes},1):({strides},0)")
            } else {
                format!("({lanes},{blocks}):({strides},{rows})")
            };
            text.parse().expect("the layouts of rows are literals that a test parses")
        };
        // (T32,V) -> (M16,K/block), (N8,K/block)
        Scaling { dtype, block, a_tv: layout("(2,2,8)", "(8,0,1)", 16), b_tv: layout("(4,8)", "(0,1)", 8) }
    }
}

/// The metadata of a sparse A: for each of its elements the place in its group of four along K, from 0 to 3. Of each group there are two elements,
/// the one at the lower place first (PTX ISA: ordered metadata).
#[derive(Clone, PartialEq, Debug)]
pub struct Sparsity {
    /// (lane, place) → `m + M·k`, with `k` counting the columns of A that are there: 16 places of [`META`](Sparsity::META), in one register. Lanes
    /// whose register is not read hold copies.
    pub meta_tv: Layout,
    /// Lanes of each four whose register is read: the first ones of those, as the instruction's sparsity selector is 0.
    pub lanes: u32,
}

impl Sparsity {
    /// The element type of metadata.
    pub const META: DType = DType::U2;
    /// The sparsity selector: the first lanes of each four have the metadata.
    pub const SELECTOR: u32 = 0;
    /// Elements of a group along K.
    pub const GROUP: i64 = 4;
    /// Elements of a group that A has.
    pub const KEPT: i64 = 2;

    /// A register of metadata in which the elements of every group are its first two.
    pub const FIRST_TWO: u32 = 0x4444_4444;

    /// True if the instruction reads the metadata of this lane.
    pub fn reads(&self, lane: u32) -> bool {
        lane % 4 / self.lanes == Self::SELECTOR
    }

    /// The first group of a register of metadata, counted from the low bits, whose places do not increase.
    pub fn disorder(word: u32) -> Option<u32> {
        (0..8).find(|group| {
            let places = word >> (4 * group);
            places & 3 >= places >> 2 & 3
        })
    }

    /// Neighbours along K whose places a lane has in a row.
    pub fn run(&self) -> i64 {
        let threads = self.meta_tv.size() / 16;
        let places: Vec<i64> = (0..16).map(|place| self.meta_tv.eval(threads * place)).collect();
        let step = places[1] - places[0];
        places.windows(2).take_while(|pair| pair[1] - pair[0] == step).count() as i64 + 1
    }

    /// Those of a warpgroup: the same for 16 rows of each of its warps.
    pub(crate) fn of_warpgroup(k: i64, bits: u32) -> Sparsity {
        let (lanes, layout) = match bits {
            // (T128,V16) -> (M64,K/2)
            16 => (2, "((2,2,8,4),(8,2)):((512,0,1,16),(64,8))"),
            _ => (4, "((2,2,8,4),16):((8,1024,1,16),64)"),
        };
        let meta_tv = layout.parse().expect("the layouts of rows are literals that a test parses");
        debug_assert_eq!(k * i64::from(bits), 512, "a row of B has 64 bytes");
        Sparsity { meta_tv, lanes }
    }

    /// The metadata of products of a warp, of factors of `bits` bits and rows of B of 64 bytes. 16 bits: a lane has four groups of two rows, 8
    /// apart. 8 bits: a lane has eight groups of a row.
    fn new(bits: u32) -> Sparsity {
        let (lanes, layout) = match bits {
            // (T32,V16) -> (M16,K/2)
            16 => (2, "((2,2,8),(8,2)):((128,0,1),(16,8))"),
            _ => (4, "((2,2,8),16):((8,256,1),16)"),
        };
        let meta_tv = layout.parse().expect("the layouts of rows are literals that a test parses");
        Sparsity { meta_tv, lanes }
    }
}

impl MmaRow {
    /// Columns of A that are there: half of those of B where it is sparse.
    pub fn a_columns(&self) -> i64 {
        if self.sparsity.is_some() { self.k * Sparsity::KEPT / Sparsity::GROUP } else { self.k }
    }

    /// The kind of the product.
    pub fn kind(&self) -> MmaKind {
        match (&self.sparsity, &self.scaling) {
            (Some(_), _) => MmaKind::Sparse,
            (None, Some(scaling)) => MmaKind::Scaled { scale: scaling.dtype, block: scaling.block },
            (None, None) => MmaKind::Dense,
        }
    }

    /// The types of both factors.
    pub fn factors(&self) -> [DType; 2] {
        [self.a, self.b]
    }

    /// Multiply-adds of one instruction, with those of the elements that a sparse A leaves out.
    pub fn macs(&self) -> i64 {
        self.m * self.n * self.k
    }

    /// 32-bit registers a lane holds of A, B and C.
    pub fn registers(&self) -> (u32, u32, u32) {
        let count = |tv: &Layout, t: DType| (tv.size() as u32 / 32 * t.bits()).div_ceil(32);
        (count(&self.a_tv, self.a), count(&self.b_tv, self.b), count(&self.c_tv, self.c))
    }
}

/// A product of 16 × 8 elements by factors of at most 32 bits: a lane has a register's elements of every 128 bits along K, for two rows of A and
/// one of B. Source: PTX ISA 8.4, figures of the fragments of `.f16`, `.bf16`, `.tf32`, `.u8`, `.s8`, `.e4m3` and `.e5m2`; of `.u4` and `.s4` in
/// sections 9.7.13.4.10 and 9.7.13.4.11, of `.b1` in 9.7.13.4.12 and 9.7.13.4.13.
fn mma(name: &'static str, mnemonic: &'static str, k: i64, ab: DType, c: DType) -> MmaRow {
    let layout =
        |text: &str| -> Layout { text.parse().expect("the layouts of rows are literals that a test parses") };
    let per = i64::from(crate::dtype::per_register(ab.bits()));
    let steps = k / (4 * per);
    // A: (T32,V(per·2·steps)) -> (M16,K); B: (T32,V(per·steps)) -> (N8,K). Modes of one element are left out.
    let values = |modes: &[(i64, i64)]| {
        let modes: Vec<_> = modes.iter().filter(|(extent, _)| *extent > 1).collect();
        let join = |of: &dyn Fn(&(i64, i64)) -> i64| {
            modes.iter().map(|mode| of(mode).to_string()).collect::<Vec<_>>().join(",")
        };
        match modes[..] {
            [] => ("1".to_string(), "0".to_string()),
            [mode] => (mode.0.to_string(), mode.1.to_string()),
            _ => (format!("({})", join(&|mode| mode.0)), format!("({})", join(&|mode| mode.1))),
        }
    };
    let fragment = |rows: i64, modes: &[(i64, i64)]| {
        let (extents, strides) = values(modes);
        layout(&format!("((4,8),{extents}):(({},1),{strides})", per * rows))
    };
    MmaRow {
        name,
        mnemonic,
        m: 16,
        n: 8,
        k,
        a: ab,
        b: ab,
        c,
        a_tv: fragment(16, &[(per, 16), (2, 8), (steps, 16 * 4 * per)]),
        b_tv: fragment(8, &[(per, 8), (steps, 8 * 4 * per)]),
        // (T32,V4) -> (M16,N8)
        c_tv: layout("((4,8),(2,2)):((32,1),(16,8))"),
        needs: Features::NONE,
        ptx_version: "7.0",
        sparsity: None,
        scaling: None,
    }
}

/// A product with a sparse A, of which a lane has the fragment of a dense A of as many elements. Source: PTX ISA 8.7, section 9.7.14.6.2.
fn sparse(name: &'static str, mnemonic: &'static str, k: i64, ab: DType, c: DType) -> MmaRow {
    let dense = mma(name, mnemonic, k, ab, c);
    let left = mma(name, mnemonic, dense.k * Sparsity::KEPT / Sparsity::GROUP, ab, c);
    let needs = if ab.is_float() && ab.bits() == 8 { Feature::Fp8Products.into() } else { Features::NONE };
    let sparsity = Some(Sparsity::new(ab.bits()));
    MmaRow { a_tv: left.a_tv, sparsity, needs, ptx_version: "8.5", ..dense }
}

/// A product of `f64`: a lane has one element along K of every four. Source: PTX ISA 8.0, sections 9.7.13.4.1 and 9.7.13.4.5 to 9.7.13.4.7.
fn dmma(name: &'static str, mnemonic: &'static str, [m, k]: [i64; 2], needs: Features) -> MmaRow {
    let layout =
        |text: &str| -> Layout { text.parse().expect("the layouts of rows are literals that a test parses") };
    let fours = k / 4;
    let (a_tv, b_tv, c_tv) = if m == 8 {
        ("((4,8),1):((8,1),0)".to_string(), "((4,8),1):((8,1),0)".to_string(), "((4,8),2):((16,1),8)")
    } else {
        (
            format!("((4,8),(2,{fours})):((16,1),(8,64))"),
            format!("((4,8),{fours}):((8,1),32)"),
            "((4,8),(2,2)):((32,1),(16,8))",
        )
    };
    MmaRow {
        name,
        mnemonic,
        m,
        n: 8,
        k,
        a: DType::F64,
        b: DType::F64,
        c: DType::F64,
        a_tv: layout(&a_tv),
        b_tv: layout(&b_tv),
        c_tv: layout(c_tv),
        needs,
        ptx_version: if m == 8 { "7.0" } else { "7.8" },
        sparsity: None,
        scaling: None,
    }
}

/// A product of 4-bit integers. Tensor cores of sm_80 to sm_89 have it; for sm_90a `ptxas` (13.5) writes two products of 8-bit integers, and around
/// them the operations that widen the factors: 180 of signed ones of 64 columns, 18 of unsigned ones.
fn int4(name: &'static str, mnemonic: &'static str, k: i64, ab: DType) -> MmaRow {
    mma(name, mnemonic, k, ab, DType::I32)
}

/// A product of bits: how many are set in both factors, which is the sum of their products as `u1`. `xor.popc`, which no row has, counts those
/// that are set in one: that is `popc(a) + popc(b) − 2 · popc(a & b)`. Source: PTX ISA 8.4, section 9.7.13.4.14 (`.and` is of PTX 7.1).
fn binary(name: &'static str, mnemonic: &'static str, k: i64) -> MmaRow {
    MmaRow { ptx_version: "7.1", ..mma(name, mnemonic, k, DType::U1, DType::I32) }
}

/// A product of 8-bit floats. Source: PTX ISA 8.4, section 9.7.13.4.14 (target notes).
fn fp8(name: &'static str, mnemonic: &'static str, ab: DType) -> MmaRow {
    let needs = Features::from(Feature::Fp8Products);
    MmaRow { needs, ptx_version: "8.4", ..mma(name, mnemonic, 32, ab, DType::F32) }
}

/// A product of floats of six bits, each in a byte whose upper two bits are not read. Source: PTX ISA 8.7, section 9.7.14.5.14 (`.kind::f8f6f4`).
fn six_bits(name: &'static str, mnemonic: &'static str, ab: DType) -> MmaRow {
    let needs = Features::from(Feature::BlockScaledProducts);
    MmaRow { needs, ptx_version: "8.7", ..mma(name, mnemonic, 32, ab, DType::F32) }
}

/// A block-scaled product: of K = 32 elements in bytes, or of 64 of four bits. Source: PTX ISA 8.7, section 9.7.14.5.14 (`.kind::mxf8f6f4`,
/// `.kind::mxf4nvf4`; blocks of 16 with `ue8m0` are of PTX 9.1).
fn scaled(name: &'static str, mnemonic: &'static str, ab: DType, scale: DType, block: i64) -> MmaRow {
    let k = i64::from(256 / ab.bits());
    let younger = scale == DType::UE8M0 && block == 16;
    MmaRow {
        needs: Feature::BlockScaledProducts.into(),
        ptx_version: if younger { "9.1" } else { "8.7" },
        scaling: Some(Scaling::new(scale, block, k / block)),
        ..mma(name, mnemonic, k, ab, DType::F32)
    }
}

static ROWS: LazyLock<Vec<MmaRow>> = LazyLock::new(|| {
    use DType::{BF16, E2M1, E2M3, E3M2, E4M3, E5M2, F16, F32, I4, I8, I32, U4, U8, UE4M3, UE8M0};
    let tall = Features::from(Feature::TallF64Products);
    let mut rows = vec![
        mma("mma.m16n8k16.f32.f16", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 16, F16, F32),
        mma("mma.m16n8k16.f16.f16", "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", 16, F16, F16),
        mma("mma.m16n8k16.f32.bf16", "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", 16, BF16, F32),
        mma("mma.m16n8k8.f32.f16", "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", 8, F16, F32),
        mma("mma.m16n8k8.f16.f16", "mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16", 8, F16, F16),
        mma("mma.m16n8k8.f32.bf16", "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32", 8, BF16, F32),
        mma("mma.m16n8k8.f32.tf32", "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 8, F32, F32),
        mma("mma.m16n8k4.f32.tf32", "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32", 4, F32, F32),
        mma("mma.m16n8k32.s32.s8", "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", 32, I8, I32),
        mma("mma.m16n8k16.s32.s8", "mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32", 16, I8, I32),
        mma("mma.m16n8k32.s32.u8", "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32", 32, U8, I32),
        mma("mma.m16n8k16.s32.u8", "mma.sync.aligned.m16n8k16.row.col.s32.u8.u8.s32", 16, U8, I32),
        int4("mma.m16n8k64.s32.s4", "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32", 64, I4),
        int4("mma.m16n8k32.s32.s4", "mma.sync.aligned.m16n8k32.row.col.s32.s4.s4.s32", 32, I4),
        int4("mma.m16n8k64.s32.u4", "mma.sync.aligned.m16n8k64.row.col.s32.u4.u4.s32", 64, U4),
        int4("mma.m16n8k32.s32.u4", "mma.sync.aligned.m16n8k32.row.col.s32.u4.u4.s32", 32, U4),
        binary("mma.m16n8k256.s32.b1", "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc", 256),
        binary("mma.m16n8k128.s32.b1", "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc", 128),
        fp8("mma.m16n8k32.f32.e4m3", "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", E4M3),
        fp8("mma.m16n8k32.f32.e5m2", "mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32", E5M2),
        six_bits(
            "mma.m16n8k32.f32.e3m2",
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e3m2.e3m2.f32",
            E3M2,
        ),
        six_bits(
            "mma.m16n8k32.f32.e2m3",
            "mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.f32.e2m3.e2m3.f32",
            E2M3,
        ),
        scaled(
            "mma.mx.m16n8k32.f32.e4m3",
            "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0",
            E4M3,
            UE8M0,
            32,
        ),
        scaled(
            "mma.mx.m16n8k32.f32.e5m2",
            "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e5m2.e5m2.f32.ue8m0",
            E5M2,
            UE8M0,
            32,
        ),
        scaled(
            "mma.mx.m16n8k32.f32.e3m2",
            "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e3m2.e3m2.f32.ue8m0",
            E3M2,
            UE8M0,
            32,
        ),
        scaled(
            "mma.mx.m16n8k32.f32.e2m3",
            "mma.sync.aligned.kind::mxf8f6f4.block_scale.scale_vec::1X.m16n8k32.row.col.f32.e2m3.e2m3.f32.ue8m0",
            E2M3,
            UE8M0,
            32,
        ),
        scaled(
            "mma.mx.m16n8k64.f32.e2m1",
            "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
            E2M1,
            UE8M0,
            32,
        ),
        scaled(
            "mma.nv.m16n8k64.f32.e2m1",
            "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue4m3",
            E2M1,
            UE4M3,
            16,
        ),
        scaled(
            "mma.mx16.m16n8k64.f32.e2m1",
            "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
            E2M1,
            UE8M0,
            16,
        ),
        dmma("mma.m16n8k16.f64.f64", "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64", [16, 16], tall),
        dmma("mma.m16n8k8.f64.f64", "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64", [16, 8], tall),
        dmma("mma.m16n8k4.f64.f64", "mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64", [16, 4], tall),
        dmma("mma.m8n8k4.f64.f64", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", [8, 4], Features::NONE),
        sparse(
            "mma.sp.m16n8k32.f32.f16",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
            32,
            F16,
            F32,
        ),
        sparse(
            "mma.sp.m16n8k32.f16.f16",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f16.f16.f16.f16",
            32,
            F16,
            F16,
        ),
        sparse(
            "mma.sp.m16n8k32.f32.bf16",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
            32,
            BF16,
            F32,
        ),
        sparse(
            "mma.sp.m16n8k64.s32.s8",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32",
            64,
            I8,
            I32,
        ),
        sparse(
            "mma.sp.m16n8k64.s32.u8",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.u8.s32",
            64,
            U8,
            I32,
        ),
        sparse(
            "mma.sp.m16n8k64.f32.e4m3",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32",
            64,
            E4M3,
            F32,
        ),
        sparse(
            "mma.sp.m16n8k64.f32.e5m2",
            "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e5m2.e5m2.f32",
            64,
            E5M2,
            F32,
        ),
    ];
    rows.extend(mixed::rows());
    rows
});

/// Every matrix-product instruction, fastest first within a type.
pub fn mma_rows() -> &'static [MmaRow] {
    &ROWS
}

/// The rows of a kind of product.
pub fn mmas_of(kind: MmaKind) -> impl Iterator<Item = &'static MmaRow> {
    mma_rows().iter().filter(move |row| row.kind() == kind)
}

/// The rows for these types of a kind of product that exist on `arch`, fastest first.
pub fn mmas(
    factors: [DType; 2],
    c: DType,
    kind: MmaKind,
    arch: Arch,
) -> impl Iterator<Item = &'static MmaRow> {
    mmas_of(kind).filter(move |row| row.factors() == factors && row.c == c && arch.has(row.needs))
}

/// The types of both factors as text: one where they are alike.
pub fn factor_types([a, b]: [DType; 2]) -> String {
    if a == b { a.to_string() } else { format!("{a} and {b}") }
}

/// The types of which any two are multiplied by these rows as text, with what stands behind: nothing where there are none.
fn any_two<'a>(rows: impl Iterator<Item = &'a MmaRow>, behind: &str) -> Option<String> {
    let mut types: Vec<&str> = Vec::new();
    for row in rows.filter(|row| row.a != row.b) {
        types.extend(
            row.factors().map(DType::name).iter().filter(|name| !types.contains(name)).collect::<Vec<_>>(),
        );
    }
    let (last, others) = types.split_last()?;
    Some(format!("or any two of {} and {last}{behind}", others.join(", ")))
}

/// The types of these rows' products as text, e.g. `f16 into f32 or f16; bf16 into f32`, those of two types last.
pub fn product_types<'a>(rows: impl Iterator<Item = &'a MmaRow>) -> String {
    let (mixed, alike): (Vec<&MmaRow>, Vec<&MmaRow>) = rows.partition(|row| row.a != row.b);
    let mut types: Vec<(DType, Vec<&str>)> = Vec::new();
    for row in alike {
        match types.iter_mut().find(|(ab, _)| *ab == row.a) {
            Some((_, sums)) if sums.contains(&row.c.name()) => {}
            Some((_, sums)) => sums.push(row.c.name()),
            None => types.push((row.a, vec![row.c.name()])),
        }
    }
    let each = types.iter().map(|(ab, sums)| format!("{ab} into {}", sums.join(" or ")));
    each.chain(any_two(mixed.into_iter(), " into f32")).collect::<Vec<_>>().join("; ")
}

/// The block-scaled products of these rows as text, e.g. `e4m3 with ue8m0 of 32`.
pub fn scaled_types<'a>(rows: impl Iterator<Item = &'a MmaRow>) -> String {
    let (mixed, alike): (Vec<&MmaRow>, Vec<&MmaRow>) =
        rows.filter(|row| row.scaling.is_some()).partition(|row| row.a != row.b);
    let each = alike.into_iter().filter_map(|row| {
        let Scaling { dtype, block, .. } = row.scaling.as_ref()?;
        Some(format!("{} with {dtype} of {block}", row.a))
    });
    each.chain(any_two(mixed.into_iter(), " with ue8m0 of 32")).collect::<Vec<_>>().join("; ")
}

/// The features that a product of these types and kind needs on any architecture; `None` where no row has the types.
pub fn product_needs(factors: [DType; 2], c: DType, kind: MmaKind) -> Option<Features> {
    let needs = || mmas_of(kind).filter(|row| row.factors() == factors && row.c == c).map(|row| row.needs);
    // A row that needs nothing beyond another's is enough.
    needs().find(|least| needs().all(|other| other.has(*least)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operand_layout_is_a_bijection_on_its_tile() {
        for row in mma_rows() {
            let operands = [
                (&row.a_tv, row.m * row.a_columns()),
                (&row.b_tv, row.n * row.k),
                (&row.c_tv, row.m * row.n),
            ];
            for (tv, size) in operands {
                let mut image = tv.image();
                image.sort_unstable();
                assert_eq!(image, (0..size).collect::<Vec<_>>(), "{}", row.name);
            }
        }
    }

    #[test]
    fn register_counts_are_the_manuals() {
        let of = |name: &str| mma_rows().iter().find(|r| r.name == name).unwrap().registers();
        assert_eq!(of("mma.m16n8k16.f32.f16"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k16.f16.f16"), (4, 2, 2));
        assert_eq!(of("mma.m16n8k8.f32.bf16"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k8.f32.tf32"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k4.f32.tf32"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k32.s32.s8"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k16.s32.u8"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k64.s32.s4"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k32.s32.u4"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k256.s32.b1"), (4, 2, 4));
        assert_eq!(of("mma.m16n8k128.s32.b1"), (2, 1, 4));
        assert_eq!(of("mma.m16n8k32.f32.e4m3"), (4, 2, 4));
        assert_eq!(of("mma.mx.m16n8k32.f32.e3m2"), (4, 2, 4));
        assert_eq!(of("mma.mx.m16n8k64.f32.e2m1"), (4, 2, 4));
        assert_eq!(of("mma.sp.m16n8k32.f32.f16"), (4, 4, 4));
        assert_eq!(of("mma.sp.m16n8k32.f16.f16"), (4, 4, 2));
        assert_eq!(of("mma.sp.m16n8k64.s32.s8"), (4, 4, 4));
        assert_eq!(of("mma.m8n8k4.f64.f64"), (2, 2, 4));
        assert_eq!(of("mma.m16n8k16.f64.f64"), (16, 8, 8));
    }

    #[test]
    fn elements_are_where_the_figures_have_them() {
        let row = |name: &str| mma_rows().iter().find(|r| r.name == name).unwrap();
        // (lane, value) and (row, column) of A and of B, by the formulas beside the figures of the PTX ISA.
        for (name, per) in [
            ("mma.m16n8k16.f32.f16", 2),
            ("mma.m16n8k8.f32.bf16", 2),
            ("mma.m16n8k8.f32.tf32", 1),
            ("mma.m16n8k4.f32.tf32", 1),
            ("mma.m16n8k32.s32.s8", 4),
            ("mma.m16n8k16.s32.u8", 4),
            ("mma.m16n8k64.s32.s4", 8),
            ("mma.m16n8k32.s32.u4", 8),
            ("mma.m16n8k256.s32.b1", 32),
            ("mma.m16n8k128.s32.b1", 32),
            ("mma.m16n8k32.f32.e5m2", 4),
            ("mma.m16n8k32.f32.e2m3", 4),
            ("mma.mx.m16n8k32.f32.e4m3", 4),
            ("mma.nv.m16n8k64.f32.e2m1", 8),
        ] {
            let row = row(name);
            for (lane, i) in (0..32).flat_map(|lane| (0..row.a_tv.size() / 32).map(move |i| (lane, i))) {
                let (group, of_group) = (lane / 4, lane % 4);
                let m = if i / per % 2 == 0 { group } else { group + 8 };
                let k = of_group * per + i % per + 4 * per * (i / (2 * per));
                assert_eq!(row.a_tv.eval(lane + 32 * i), m + 16 * k, "{name} a{i} of lane {lane}");
            }
            for (lane, i) in (0..32).flat_map(|lane| (0..row.b_tv.size() / 32).map(move |i| (lane, i))) {
                let k = lane % 4 * per + i % per + 4 * per * (i / per);
                assert_eq!(row.b_tv.eval(lane + 32 * i), lane / 4 + 8 * k, "{name} b{i} of lane {lane}");
            }
        }
    }

    #[test]
    fn the_lanes_that_are_read_hold_all_metadata() {
        for row in mma_rows() {
            let Some(sparsity) = &row.sparsity else { continue };
            let tv = &sparsity.meta_tv;
            assert_eq!(tv.size(), 32 * 16, "{}", row.name);
            let lanes = (0..32).filter(|lane| sparsity.reads(*lane as u32));
            let mut read: Vec<i64> =
                lanes.flat_map(|lane| (0..16).map(move |v| tv.eval(lane + 32 * v))).collect();
            read.sort_unstable();
            assert_eq!(read, (0..row.m * row.a_columns()).collect::<Vec<_>>(), "{}", row.name);
            // The others hold what one of the same four does.
            for lane in 0..32 {
                let same = lane / 4 * 4 + lane % i64::from(sparsity.lanes);
                assert!((0..16).all(|v| tv.eval(lane + 32 * v) == tv.eval(same + 32 * v)), "{}", row.name);
            }
        }
    }

    #[test]
    fn the_lanes_that_are_read_hold_all_scales() {
        let rows: Vec<&MmaRow> = mma_rows().iter().filter(|row| row.scaling.is_some()).collect();
        let blocks: Vec<i64> =
            rows.iter().filter_map(|row| Some(row.k / row.scaling.as_ref()?.block)).collect();
        assert_eq!(blocks, [vec![1, 1, 1, 1, 2, 4, 4], vec![1; 12]].concat());
        for (row, blocks) in rows.into_iter().zip(blocks) {
            let scaling = row.scaling.as_ref().unwrap();
            for (tv, rows, right) in [(&scaling.a_tv, row.m, false), (&scaling.b_tv, row.n, true)] {
                assert_eq!(tv.size(), 32 * blocks, "{}", row.name);
                let lanes = (0..32).filter(|lane| scaling.reads(*lane as u32, right));
                let mut read: Vec<i64> =
                    lanes.flat_map(|lane| (0..blocks).map(move |v| tv.eval(lane + 32 * v))).collect();
                read.sort_unstable();
                assert_eq!(read, (0..rows * blocks).collect::<Vec<_>>(), "{}", row.name);
                // By the figures: of A a lane of each four has the row of its group, the next one that 8 below; of B the first has the column.
                for (lane, block) in (0..32).flat_map(|lane| (0..blocks).map(move |block| (lane, block))) {
                    let of_row = if right { lane / 4 } else { lane / 4 + 8 * (lane % 2) };
                    assert_eq!(tv.eval(lane + 32 * block), of_row + rows * block, "{} lane {lane}", row.name);
                }
            }
        }
    }

    #[test]
    fn block_scaled_products_are_listed_with_their_scales() {
        let text = scaled_types(mma_rows().iter());
        assert!(
            text.starts_with("e4m3 with ue8m0 of 32; e5m2 with")
                && text.ends_with(
                    "e2m1 with ue8m0 of 16; or any two of e4m3, e5m2, e3m2 and e2m3 with ue8m0 of 32"
                )
        );
        let kind = MmaKind::Scaled { scale: DType::UE4M3, block: 16 };
        assert_eq!(
            product_needs([DType::E2M1; 2], DType::F32, kind),
            Some(Feature::BlockScaledProducts.into())
        );
        assert_eq!(product_needs([DType::E2M1; 2], DType::F32, MmaKind::Dense), None);
    }

    #[test]
    fn places_of_a_group_increase() {
        assert_eq!(Sparsity::disorder(Sparsity::FIRST_TWO), None);
        assert_eq!(Sparsity::disorder(0xe9dc_84e4), None);
        assert_eq!(Sparsity::disorder(0x4444_4144), Some(2));
        assert_eq!(Sparsity::disorder(0), Some(0));
        assert_eq!(Sparsity::disorder(0xf444_4444), Some(7));
    }

    #[test]
    fn metadata_are_where_the_figures_have_them() {
        // The row and the first group of four, by lane of a quad, for the lower and for the upper half of a register.
        let half = |name: &str, lane: i64, half: i64| {
            let row = mma_rows().iter().find(|r| r.name == name).unwrap();
            let at = row.sparsity.as_ref().unwrap().meta_tv.eval(lane + 32 * 8 * half);
            (at % 16, at / 16 / 2)
        };
        for (name, lane, wanted) in [
            ("mma.sp.m16n8k32.f32.f16", 0, [(0, 0), (8, 0)]),
            ("mma.sp.m16n8k32.f32.f16", 1, [(0, 4), (8, 4)]),
            ("mma.sp.m16n8k32.f32.f16", 29, [(7, 4), (15, 4)]),
            ("mma.sp.m16n8k64.s32.s8", 0, [(0, 0), (0, 4)]),
            ("mma.sp.m16n8k64.s32.s8", 1, [(8, 0), (8, 4)]),
            ("mma.sp.m16n8k64.f32.e4m3", 6, [(1, 8), (1, 12)]),
            ("mma.sp.m16n8k64.f32.e5m2", 7, [(9, 8), (9, 12)]),
        ] {
            assert_eq!([half(name, lane, 0), half(name, lane, 1)], wanted, "{name} lane {lane}");
        }
        let run = |name: &str| {
            mma_rows().iter().find(|r| r.name == name).and_then(|r| r.sparsity.as_ref()).unwrap().run()
        };
        assert_eq!([run("mma.sp.m16n8k32.f32.f16"), run("mma.sp.m16n8k64.s32.s8")], [8, 16]);
    }

    #[test]
    fn a_product_needs_what_its_least_row_does() {
        assert_eq!(product_needs([DType::F64; 2], DType::F64, MmaKind::Dense), Some(Features::NONE));
        assert_eq!(product_needs([DType::F64; 2], DType::F64, MmaKind::Sparse), None);
        assert_eq!(
            product_needs([DType::E4M3; 2], DType::F32, MmaKind::Dense),
            Some(Feature::Fp8Products.into())
        );
        assert_eq!(product_needs([DType::E4M3; 2], DType::F16, MmaKind::Dense), None);
        let text = product_types(mmas_of(MmaKind::Dense));
        assert!(
            text.starts_with("f16 into f32 or f16; bf16 into f32; ")
                && text.ends_with("; f64 into f64; or any two of e4m3, e5m2, e3m2 and e2m3 into f32")
        );
        let mixed = [DType::E5M2, DType::E3M2];
        assert_eq!(
            product_needs(mixed, DType::F32, MmaKind::Dense),
            Some(Feature::BlockScaledProducts.into())
        );
        assert_eq!(
            product_needs([DType::E5M2, DType::E4M3], DType::F32, MmaKind::Dense),
            Some(Feature::Fp8Products.into())
        );
        assert_eq!(product_needs([DType::E5M2, DType::F16], DType::F32, MmaKind::Dense), None);
    }
}
