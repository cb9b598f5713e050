//! Copies by the tensor memory accelerator (TMA, sm_90): one thread starts a copy of a box of up to five dimensions between a
//! tensor in global memory, which a *tensor map* describes, and shared memory; and bulk copies of contiguous bytes.
//!
//! The box's elements lie in shared memory in the order of its dimensions, dimension 0 fastest, without gaps, swizzled by
//! address bits as the map's [`SwizzleMode`] says. What the box has outside the tensor reads as zero and is not written; the
//! bytes that a load signals count the whole box. Dimension 0 is contiguous in global memory. A box that is loaded may begin at negative coordinates; one that is stored or added
//! may not: an H100 takes it for an illegal instruction, also where a part of it lies in the tensor (driver 580; the PTX ISA does not say so), as it and an
//! H200 do a box whose coordinate along dimension 0 is no multiple of 16 bytes (`bench/litmus/tensor_load_within.cu`, `tensor_store_ahead.cu`).
//!
//! Sources: PTX ISA 8.0, section 9.7.8.24; CUDA driver API, `cuTensorMapEncodeTiled` and `cuTensorMapEncodeIm2col`.

use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use crate::arch::Arch;
use crate::dtype::DType;
use crate::features::{Feature, Features};
use crate::wgmma::SwizzleMode;

/// Bytes of a tensor map, which begins at a multiple of 64 (CUDA driver API, `CUtensorMap`): one behind the other, all of an array do.
pub const TENSOR_MAP_BYTES: usize = 128;

/// The direction of a tensor copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TensorOp {
    /// Global to shared memory; signals bytes to an mbarrier.
    Load,
    /// Shared to global memory; belongs to the thread's group of bulk copies.
    Store,
    /// Adds shared to global memory, element by element, each addition atomic; belongs to the thread's group of bulk copies.
    Add,
}

/// A tensor copy of a rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TensorRow {
    /// The name in reports, e.g. `tma.load.2d`.
    pub name: String,
    /// PTX mnemonic with its qualifiers, but for those of multicast and cache hint, which follow in this order.
    pub mnemonic: String,
    /// The direction.
    pub op: TensorOp,
    /// Dimensions of the box, 1 to 5.
    pub rank: u32,
    /// Of a gather: the rows of two dimensions that it loads, each from a place of its own. Its coordinates are that along dimension 0 and those of
    /// the rows, and the box of its map is one row.
    pub gathers: Option<u32>,
    /// True of the im2col mode, whose map has [`Corners`]: behind the coordinates are offsets, of all dimensions but the first and the last, which
    /// are added to those of every pixel.
    pub im2col: bool,
}

impl TensorRow {
    /// The features that an architecture must have.
    pub const NEEDS: Features = Features::of(&[Feature::Tma]);
    /// Those of a copy to several blocks of a cluster.
    pub const MULTICAST_NEEDS: Features = Self::NEEDS.and(&[Feature::Cluster, Feature::Multicast]);
    /// Those of a gather.
    pub const GATHER_NEEDS: Features = Self::NEEDS.and(&[Feature::TensorGather]);

    /// The features that an architecture must have, where one block receives the box.
    pub fn needs(&self) -> Features {
        if self.gathers.is_some() { Self::GATHER_NEEDS } else { Self::NEEDS }
    }

    /// The number of coordinates.
    pub fn coordinates(&self) -> u32 {
        self.rank - 1 + self.gathers.unwrap_or(1)
    }

    /// The number of offsets behind the coordinates.
    pub fn offsets(&self) -> u32 {
        if self.im2col { self.rank - 2 } else { 0 }
    }

    /// The number of boxes of the map that it moves.
    pub fn boxes(&self) -> u32 {
        self.gathers.unwrap_or(1)
    }

    /// The mnemonic of a copy that no other block shares, on an architecture.
    pub fn mnemonic_on(&self, arch: Arch) -> Cow<'_, str> {
        load_on(&self.mnemonic, arch)
    }

    /// The mnemonic of a load by a block of a pair, whose mbarrier may be the other block's: its destination is in the cluster's shared memory (PTX ISA 9.1,
    /// `cp.async.bulk.tensor`).
    pub fn mnemonic_in_pairs(&self) -> Cow<'_, str> {
        Cow::Owned(self.mnemonic.replacen("shared::cta.global", "shared::cluster.global", 1))
    }
}

/// The version of PTX from which loads have the destination `shared::cta` (PTX ISA 8.6, section 9.7.9.25).
pub const TO_OWN_BLOCK_PTX_VERSION: &str = "8.6";

/// The mnemonic of a load, on an architecture. Without multicast the destination is `shared::cta` (PTX ISA 8.6, section 9.7.9.25): there `ptxas` (13.5) makes a
/// call of a load to `shared::cluster`, beside which it ignores `setmaxnreg` (C7506).
fn load_on(mnemonic: &str, arch: Arch) -> Cow<'_, str> {
    match arch.has(TensorRow::MULTICAST_NEEDS) {
        true => Cow::Borrowed(mnemonic),
        false => Cow::Owned(mnemonic.replacen("shared::cluster.global", "shared::cta.global", 1)),
    }
}

static ROWS: LazyLock<Vec<TensorRow>> = LazyLock::new(|| {
    let mut rows = Vec::new();
    for rank in 1..=5u32 {
        let load = "shared::cluster.global.tile.mbarrier::complete_tx::bytes";
        for (name, op, word, rest) in [
            ("load", TensorOp::Load, "cp", load),
            ("store", TensorOp::Store, "cp", "global.shared::cta.tile.bulk_group"),
            ("add", TensorOp::Add, "cp.reduce", "global.shared::cta.add.tile.bulk_group"),
        ] {
            rows.push(TensorRow {
                name: format!("tma.{name}.{rank}d"),
                mnemonic: format!("{word}.async.bulk.tensor.{rank}d.{rest}"),
                op,
                rank,
                gathers: None,
                im2col: false,
            });
        }
    }
    rows
});

static IM2COL: LazyLock<Vec<TensorRow>> = LazyLock::new(|| {
    let row = |rank| TensorRow {
        name: format!("tma.im2col.{rank}d"),
        mnemonic: format!(
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
        ),
        op: TensorOp::Load,
        rank,
        gathers: None,
        im2col: true,
    };
    (3..=5).map(row).collect()
});

/// The gather of four rows (PTX ISA 8.6, `cp.async.bulk.tensor`, `.tile::gather4`). sm_120a has it into the block's own shared memory alone, by its
/// address there.
static GATHER: LazyLock<TensorRow> = LazyLock::new(|| TensorRow {
    name: "tma.gather4.2d".to_string(),
    mnemonic: "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes"
        .to_string(),
    op: TensorOp::Load,
    rank: 2,
    gathers: Some(4),
    im2col: false,
});

/// Every tensor copy of a box.
pub fn tensor_rows() -> &'static [TensorRow] {
    &ROWS
}

/// The gather of rows.
pub fn tensor_gather() -> &'static TensorRow {
    &GATHER
}

/// The tensor copy of this kind and rank (1 to 5).
pub fn tensor_row(op: TensorOp, rank: u32) -> Option<&'static TensorRow> {
    tensor_rows().iter().find(|row| row.op == op && row.rank == rank)
}

/// The loads in im2col mode, of three to five dimensions (PTX ISA 8.0, `cp.async.bulk.tensor`, `.im2col`).
pub fn tensor_im2col() -> &'static [TensorRow] {
    &IM2COL
}

/// The direction of a bulk copy of contiguous bytes. Sizes and addresses are multiples of 16.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum BulkOp {
    /// Global to shared memory; signals bytes to an mbarrier.
    Load,
    /// Shared to global memory; belongs to the thread's group of bulk copies.
    Store,
    /// Shared memory of this block to that of a block of the cluster; signals bytes to an mbarrier there.
    Peer,
}

impl BulkOp {
    /// All.
    pub const ALL: [BulkOp; 3] = [BulkOp::Load, BulkOp::Store, BulkOp::Peer];

    /// The features that an architecture must have.
    pub fn needs(self) -> Features {
        match self {
            BulkOp::Load | BulkOp::Store => TensorRow::NEEDS,
            BulkOp::Peer => TensorRow::NEEDS.and(&[Feature::Cluster]),
        }
    }

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            BulkOp::Load => "bulk.load",
            BulkOp::Store => "bulk.store",
            BulkOp::Peer => "bulk.peer",
        }
    }

    /// PTX mnemonic.
    pub fn mnemonic(self) -> &'static str {
        match self {
            BulkOp::Load => "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes",
            BulkOp::Store => "cp.async.bulk.global.shared::cta.bulk_group",
            BulkOp::Peer => "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes",
        }
    }

    /// The mnemonic on an architecture.
    pub fn mnemonic_on(self, arch: Arch) -> Cow<'static, str> {
        load_on(self.mnemonic(), arch)
    }
}

/// The eviction priority in the L2 cache of what a copy touches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CacheHint {
    /// Evicted first: read once.
    EvictFirst,
    /// Evicted last: read again by others.
    EvictLast,
}

impl CacheHint {
    /// The 64-bit policy operand (the constants of CUTLASS `copy_sm90_desc.hpp`).
    pub fn policy(self) -> u64 {
        match self {
            CacheHint::EvictFirst => 0x12f0_0000_0000_0000,
            CacheHint::EvictLast => 0x14f0_0000_0000_0000,
        }
    }

    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            CacheHint::EvictFirst => "evict_first",
            CacheHint::EvictLast => "evict_last",
        }
    }
}

/// The number in `CUtensorMapL2promotion` for a tensor of these strides in bytes: fills of the L2 cache of 256 bytes where every row begins at a multiple of
/// as many, else of 128. (Rows of 8,208 bytes of which boxes are 128 wide: a product of 4096 × 4096 × 4104 takes 1.16 times as long with 256.)
pub fn tensor_map_l2_promotion(strides: &[u64]) -> u32 {
    const WIDEST: u64 = 256;
    if strides.iter().all(|stride| stride % WIDEST == 0) { 3 } else { 2 }
}

/// The number in `CUtensorMapDataType` of an element type; `None` for types narrower than a byte. Of bytes and of signed integers of 16 bits there is
/// none: they are moved as unsigned ones. (CUDA driver API, `cuda.h` of CUDA 12.)
pub fn tensor_map_type(dtype: DType) -> Option<u32> {
    Some(match dtype {
        DType::U8 | DType::I8 | DType::Bool => 0,
        DType::E4M3 | DType::E5M2 | DType::E3M2 | DType::E2M3 | DType::UE8M0 | DType::UE4M3 => 0,
        DType::U16 | DType::I16 => 1,
        DType::U32 => 2,
        DType::I32 => 3,
        DType::U64 => 4,
        DType::I64 => 5,
        DType::F16 => 6,
        DType::F32 => 7,
        DType::F64 => 8,
        DType::BF16 => 9,
        DType::I1 | DType::I2 | DType::I4 | DType::U1 | DType::U2 | DType::U4 | DType::E2M1 => return None,
    })
}

/// The part of a tensor map that is known when a kernel is compiled. Extents and strides follow at launch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BoxShape {
    /// Element type.
    pub dtype: DType,
    /// Extents of the box in elements that it has in shared memory, dimension 0 fastest; one to five, each 1 to 256. In im2col mode two: channels of a
    /// pixel, 1 to 256, and pixels, 1 to 1024.
    pub extents: Vec<u32>,
    /// Steps in the tensor from one of them to the next (`elementStrides`), one a dimension: 1 to 8, along dimension 0 always 1. The box
    /// reaches over at most 256 elements of the tensor. Only loads step over elements.
    pub steps: Vec<u32>,
    /// The swizzle of the box in shared memory.
    pub swizzle: SwizzleMode,
    /// The bounding box of the im2col mode; `None` in the tiled one.
    pub corners: Option<Corners>,
}

/// The bounding box of a tensor map in im2col mode, along the dimensions between the first (channels) and the last (images), in their order. A load goes
/// through the pixels of the box by the map's steps, dimension 1 fastest, and from one image on to the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Corners {
    /// The place of the first pixel, relative to the tensor's first.
    pub lower: Vec<i32>,
    /// The place of the last one, relative to the tensor's last.
    pub upper: Vec<i32>,
}

impl Corners {
    /// The corners that a map of so many dimensions, 3 to 5, can have: 16 bits are shared out among those of pixels (CUDA driver API,
    /// `cuTensorMapEncodeIm2col`).
    pub fn range(rank: usize) -> RangeInclusive<i32> {
        let most = 1 << (16 / (rank.clamp(3, 5) as u32 - 2) - 1);
        -most..=most - 1
    }

    /// The offsets that a load of so many dimensions can add to pixels (PTX ISA, `cp.async.bulk.tensor`, `im2colOffsets`).
    pub fn offsets(rank: usize) -> RangeInclusive<i64> {
        0..=(1 << (16 / (rank.clamp(3, 5) as u32 - 2))) - 1
    }
}

/// The most steps in the tensor from one element of a box to the next.
pub const MOST_STEP: u32 = 8;
/// The most pixels of a load in im2col mode.
pub const MOST_PIXELS: u32 = 1024;

/// The rule that a TMA box breaks.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidBox {
    /// Too few or too many dimensions.
    #[error("a tensor map has 1 to 5 dimensions, not {0}")]
    Rank(usize),
    /// An extent out of range.
    #[error("extent {extent} of dimension {dim} of the box is not between 1 and 256")]
    Extent {
        /// The dimension.
        dim: usize,
        /// The extent.
        extent: u32,
    },
    /// A step out of range, or one that dimension 0 cannot have.
    #[error("step {step} of dimension {dim} of the box is not {}", if *.dim == 0 { "1" } else { "between 1 and 8" })]
    Step {
        /// The dimension.
        dim: usize,
        /// The step.
        step: u32,
    },
    /// Extents and steps that reach too far.
    #[error(
        "{extent} elements in steps of {step} along dimension {dim} of the box are more than 256 of the tensor"
    )]
    Reach {
        /// The dimension.
        dim: usize,
        /// The extent.
        extent: u32,
        /// The step.
        step: u32,
    },
    /// Another number of steps than of extents.
    #[error("a box of {extents} dimensions wants as many steps, not {steps}")]
    Steps {
        /// Extents.
        extents: usize,
        /// Steps.
        steps: usize,
    },
    /// Dimensions that the im2col mode does not have.
    #[error("a tensor map in im2col mode has 3 to 5 dimensions, not {0}")]
    Im2colRank(usize),
    /// A step from image to image.
    #[error("step {0} of the last dimension, which counts images in im2col mode, is not 1")]
    ImageStep(u32),
    /// Channels and pixels otherwise than the im2col mode has them.
    #[error("a load in im2col mode has 1 to 256 channels of 1 to 1024 pixels, not {0:?}")]
    Pixels(Vec<u32>),
    /// Another number of corners than of dimensions of pixels.
    #[error("a tensor map in im2col mode of {rank} dimensions has {} corners, not {lower} and {upper}", .rank - 2)]
    Corners {
        /// Dimensions.
        rank: usize,
        /// Lower corners.
        lower: usize,
        /// Upper corners.
        upper: usize,
    },
    /// A corner out of range.
    #[error(
        "corner {corner} along dimension {dim} of the bounding box is not from {} to {}, which those of {rank} dimensions are",
        Corners::range(*.rank).start(), Corners::range(*.rank).end()
    )]
    Corner {
        /// The dimension.
        dim: usize,
        /// The corner.
        corner: i32,
        /// Dimensions.
        rank: usize,
    },
    /// Rows that are no multiple of 16 bytes.
    #[error("a row of the box has {0} bytes, which is no multiple of 16")]
    Row(u32),
    /// Rows that are not the swizzle's span. The hardware leaves shorter ones a span apart (CUDA programming guide, tensor memory access; seen on
    /// an H200), and longer ones are no box.
    #[error("a row of the box has {bytes} bytes, not the {span} within which the {swizzle} exchanges")]
    Span {
        /// Bytes of the row.
        bytes: u32,
        /// The swizzle's span.
        span: u32,
        /// The swizzle.
        swizzle: SwizzleMode,
    },
    /// An element type that tensor maps do not have.
    #[error("tensor maps do not have elements of type {0}")]
    Type(DType),
}

impl BoxShape {
    /// A box of neighbouring elements.
    pub fn dense(dtype: DType, extents: Vec<u32>, swizzle: SwizzleMode) -> Self {
        let steps = vec![1; extents.len()];
        BoxShape { dtype, extents, steps, swizzle, corners: None }
    }

    /// Dimensions of the tensor.
    pub fn rank(&self) -> usize {
        if self.corners.is_some() { self.steps.len() } else { self.extents.len() }
    }

    /// Returns whether the box steps over elements of the tensor.
    pub fn skips(&self) -> bool {
        self.steps.iter().any(|step| *step > 1)
    }

    /// The extents that `cuTensorMapEncodeTiled` takes as `boxDim`: those in the tensor, of which it loads one a step.
    pub fn reach(&self) -> Vec<u32> {
        self.extents.iter().zip(&self.steps).map(|(extent, step)| extent * step).collect()
    }

    /// Elements of the box.
    pub fn elements(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(*e)).product()
    }

    /// Bytes of the box in shared memory: what a load signals.
    pub fn bytes(&self) -> u64 {
        self.elements() * u64::from(self.dtype.bits()) / 8
    }

    /// Checks the rules of the hardware.
    ///
    /// # Errors
    ///
    /// The first rule of `cuTensorMapEncodeTiled`, or of `cuTensorMapEncodeIm2col`, that it breaks.
    pub fn check(&self) -> Result<(), InvalidBox> {
        if let Some(corners) = &self.corners {
            return self.check_pixels(corners);
        }
        if !(1..=5).contains(&self.extents.len()) {
            return Err(InvalidBox::Rank(self.extents.len()));
        }
        if tensor_map_type(self.dtype).is_none() {
            return Err(InvalidBox::Type(self.dtype));
        }
        if let Some((dim, extent)) = self.extents.iter().enumerate().find(|(_, e)| !(1..=256).contains(*e)) {
            return Err(InvalidBox::Extent { dim, extent: *extent });
        }
        if self.steps.len() != self.extents.len() {
            return Err(InvalidBox::Steps { extents: self.extents.len(), steps: self.steps.len() });
        }
        for (dim, (extent, step)) in self.extents.iter().copied().zip(self.steps.iter().copied()).enumerate()
        {
            if !(1..=if dim == 0 { 1 } else { MOST_STEP }).contains(&step) {
                return Err(InvalidBox::Step { dim, step });
            }
            if extent * step > 256 {
                return Err(InvalidBox::Reach { dim, extent, step });
            }
        }
        self.check_rows()
    }

    /// Checks the rules of the im2col mode.
    fn check_pixels(&self, Corners { lower, upper }: &Corners) -> Result<(), InvalidBox> {
        let rank = self.steps.len();
        if !(3..=5).contains(&rank) {
            return Err(InvalidBox::Im2colRank(rank));
        }
        if tensor_map_type(self.dtype).is_none() {
            return Err(InvalidBox::Type(self.dtype));
        }
        let legal = match self.extents[..] {
            [channels, pixels] => (1..=256).contains(&channels) && (1..=MOST_PIXELS).contains(&pixels),
            _ => false,
        };
        if !legal {
            return Err(InvalidBox::Pixels(self.extents.clone()));
        }
        let (images, of_pixels) = (self.steps[rank - 1], &self.steps[..rank - 1]);
        let most = |dim| if dim == 0 { 1 } else { MOST_STEP };
        let steps = of_pixels.iter().copied().enumerate();
        if let Some((dim, step)) = steps.into_iter().find(|(dim, step)| !(1..=most(*dim)).contains(step)) {
            return Err(InvalidBox::Step { dim, step });
        }
        if images != 1 {
            return Err(InvalidBox::ImageStep(images));
        }
        if lower.len() + 2 != rank || upper.len() + 2 != rank {
            return Err(InvalidBox::Corners { rank, lower: lower.len(), upper: upper.len() });
        }
        let range = Corners::range(rank);
        let both = lower.iter().enumerate().chain(upper.iter().enumerate());
        if let Some((at, corner)) = both.into_iter().find(|(_, corner)| !range.contains(corner)) {
            return Err(InvalidBox::Corner { dim: at + 1, corner: *corner, rank });
        }
        self.check_rows()
    }

    /// Checks rows of dimension 0 against the swizzle.
    fn check_rows(&self) -> Result<(), InvalidBox> {
        let row = self.extents[0] * self.dtype.bits() / 8;
        if !row.is_multiple_of(16) {
            return Err(InvalidBox::Row(row));
        }
        let (span, swizzle) = (self.swizzle.span(), self.swizzle);
        let rows: u32 = self.extents[1..].iter().product();
        if swizzle != SwizzleMode::None && (row > span || row < span && rows > 1) {
            return Err(InvalidBox::Span { bytes: row, span, swizzle });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rank_has_its_rows() {
        for rank in 1..=5 {
            for op in [TensorOp::Load, TensorOp::Store, TensorOp::Add] {
                assert_eq!(tensor_row(op, rank).unwrap().rank, rank);
            }
        }
        assert!(tensor_row(TensorOp::Load, 6).is_none());
    }

    #[test]
    fn without_multicast_loads_are_to_the_block() {
        let load = tensor_row(TensorOp::Load, 2).unwrap();
        let to = |arch| [load.mnemonic_on(arch), BulkOp::Load.mnemonic_on(arch)];
        assert!(to(Arch::SM_120A).iter().all(|m| m.contains("shared::cta.global")));
        assert_eq!(to(Arch::SM_100A), [&load.mnemonic, BulkOp::Load.mnemonic()]);
        assert_eq!(BulkOp::Store.mnemonic_on(Arch::SM_120A), BulkOp::Store.mnemonic());
    }

    #[test]
    fn boxes_are_checked() {
        let shape = |extents: &[u32], swizzle| BoxShape::dense(DType::F16, extents.to_vec(), swizzle);
        assert_eq!(shape(&[64, 256], SwizzleMode::B128).check(), Ok(()));
        assert_eq!(shape(&[64, 256], SwizzleMode::B128).bytes(), 32768);
        assert!(matches!(
            shape(&[64, 257], SwizzleMode::B128).check(),
            Err(InvalidBox::Extent { dim: 1, .. })
        ));
        assert!(matches!(shape(&[128, 8], SwizzleMode::B128).check(), Err(InvalidBox::Span { .. })));
        let short = shape(&[32, 8], SwizzleMode::B128).check();
        assert_eq!(short, Err(InvalidBox::Span { bytes: 64, span: 128, swizzle: SwizzleMode::B128 }));
        assert_eq!(shape(&[32, 1], SwizzleMode::B128).check(), Ok(()));
        assert_eq!(shape(&[32, 8], SwizzleMode::B64).check(), Ok(()));
        assert_eq!(shape(&[128, 8], SwizzleMode::None).check(), Ok(()));
        assert!(matches!(shape(&[12], SwizzleMode::None).check(), Err(InvalidBox::Row(24))));
        assert!(matches!(shape(&[], SwizzleMode::None).check(), Err(InvalidBox::Rank(0))));
        let narrow = BoxShape::dense(DType::U4, vec![64], SwizzleMode::None);
        assert!(matches!(narrow.check(), Err(InvalidBox::Type(DType::U4))));
    }

    #[test]
    fn steps_are_checked() {
        let shape = |extents: &[u32], steps: &[u32]| BoxShape {
            steps: steps.to_vec(),
            ..BoxShape::dense(DType::F16, extents.to_vec(), SwizzleMode::B128)
        };
        let strided = shape(&[64, 16, 8], &[1, 2, 8]);
        assert_eq!(strided.check(), Ok(()));
        assert_eq!((strided.bytes(), strided.reach()), (16384, vec![64, 32, 64]));
        assert!(strided.skips() && !shape(&[64], &[1]).skips());
        assert_eq!(shape(&[32, 8], &[2, 1]).check(), Err(InvalidBox::Step { dim: 0, step: 2 }));
        assert_eq!(shape(&[64, 8], &[1, 9]).check(), Err(InvalidBox::Step { dim: 1, step: 9 }));
        assert_eq!(shape(&[64, 8], &[1, 0]).check(), Err(InvalidBox::Step { dim: 1, step: 0 }));
        let reach = InvalidBox::Reach { dim: 1, extent: 129, step: 2 };
        assert_eq!(shape(&[64, 129], &[1, 2]).check(), Err(reach));
        assert_eq!(shape(&[64, 8], &[1]).check(), Err(InvalidBox::Steps { extents: 2, steps: 1 }));
        let text = shape(&[32, 8], &[2, 1]).check().unwrap_err().to_string();
        assert_eq!(text, "step 2 of dimension 0 of the box is not 1");
    }

    #[test]
    fn boxes_of_pixels_are_checked() {
        let shape = |extents: &[u32], steps: &[u32], lower: &[i32], upper: &[i32]| BoxShape {
            steps: steps.to_vec(),
            corners: Some(Corners { lower: lower.to_vec(), upper: upper.to_vec() }),
            ..BoxShape::dense(DType::F16, extents.to_vec(), SwizzleMode::B128)
        };
        let whole = shape(&[64, 1024], &[1, 2, 8, 1], &[-1, -128], &[-1, 127]);
        assert_eq!((whole.check(), whole.rank(), whole.bytes()), (Ok(()), 4, 131_072));
        assert_eq!(shape(&[64, 8], &[1, 1], &[], &[]).check(), Err(InvalidBox::Im2colRank(2)));
        let pixels = shape(&[64, 1025], &[1, 1, 1], &[0], &[0]).check();
        assert_eq!(pixels, Err(InvalidBox::Pixels(vec![64, 1025])));
        let images = shape(&[64, 8], &[1, 1, 2], &[0], &[0]).check();
        assert_eq!(images, Err(InvalidBox::ImageStep(2)));
        let corners = shape(&[64, 8], &[1, 1, 1, 1], &[0], &[0, 0]).check();
        assert_eq!(corners, Err(InvalidBox::Corners { rank: 4, lower: 1, upper: 2 }));
        let [three, four, five] = [
            shape(&[64, 8], &[1, 1, 1], &[-32768], &[32767]),
            shape(&[64, 8], &[1; 4], &[0, 0], &[0, -129]),
            shape(&[64, 8], &[1; 5], &[0, 16, 0], &[0; 3]),
        ]
        .map(|shape| shape.check());
        assert_eq!(three, Ok(()));
        assert_eq!(four, Err(InvalidBox::Corner { dim: 2, corner: -129, rank: 4 }));
        assert_eq!(five, Err(InvalidBox::Corner { dim: 2, corner: 16, rank: 5 }));
        let text = five.unwrap_err().to_string();
        assert_eq!(
            text,
            "corner 16 along dimension 2 of the bounding box is not from -16 to 15, which those of 5 dimensions are"
        );
        assert_eq!([3, 4, 5].map(Corners::offsets), [0..=65_535, 0..=255, 0..=31]);
        let span = shape(&[32, 8], &[1, 1, 1], &[0], &[0]).check();
        assert_eq!(span, Err(InvalidBox::Span { bytes: 64, span: 128, swizzle: SwizzleMode::B128 }));
    }

    #[test]
    fn types_of_whole_bytes_have_a_number_of_as_many_bytes() {
        // The bytes of `CUtensorMapDataType`'s types, from 0 on.
        let bytes = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2];
        for dtype in DType::ALL {
            let number = tensor_map_type(dtype);
            assert_eq!(number.is_some(), dtype.bits() >= 8, "{dtype}");
            assert!(number.is_none_or(|n| bytes[n as usize] == dtype.bits() / 8), "{dtype}");
        }
    }
}
