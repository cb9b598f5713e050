//! Reasons for which an instruction cannot do a statement: data, with its words beside it.

use thiserror::Error;
use tilewright_layout::{Layout, LayoutError, Swizzle};
use tilewright_machine::{Arch, DType, Features, InvalidBox, Major, SwizzleMode};

/// An operand of a matrix product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmaOperand {
    /// The first factor.
    A,
    /// The second factor.
    B,
    /// The accumulator.
    C,
    /// The metadata of a sparse first factor.
    Meta,
    /// The scales of the first factor.
    ScalesA,
    /// The scales of the second factor.
    ScalesB,
}

/// Reason for which an instruction cannot do a statement, or register tensors do not allow one.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum Reject {
    /// Features that an architecture lacks.
    #[error("needs {0}, which {1} does not have")]
    Lacks(Features, Arch),
    /// A layout operation is not admissible.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Integers overflow.
    #[error("the tile is too large")]
    TooLarge,
    /// A register tensor has no layout.
    #[error("a register tensor has no layout")]
    NoLayout,

    /// A copy to or from global memory without a view.
    #[error("not a view of global memory")]
    NotAView,
    /// Offset of a view, by mode.
    #[error("the view's offset in mode {0} is not known to be a multiple of {1}")]
    OffsetUnaligned(usize, i64),
    /// Stride of a view, by mode.
    #[error("the stride of mode {0} is not known to be a multiple of {1} elements")]
    StrideUnaligned(usize, i64),
    /// Extent of a view, by mode.
    #[error("the extent of mode {0} is not known to be a multiple of {1}")]
    ExtentUnaligned(usize, i64),
    /// A matrix instruction whose rows a register tensor names.
    #[error("its rows are those of a tile, and not any that an index names")]
    RowsFromAnywhere,
    /// Leaves of a view, by mode.
    #[error("the view walks mode {0} in steps that are not multiples of {1}")]
    StepsUnaligned(usize, i64),
    /// A view without neighbours in memory.
    #[error("the view has no run of {0} elements")]
    NoRun(i64),
    /// No chain of leaves.
    #[error("no mode of the tile is contiguous in memory")]
    TileNotContiguous,
    /// No stride of 1.
    #[error("no mode of the buffer is contiguous")]
    BufferNotContiguous,
    /// Contiguous extent, elements of a vector.
    #[error("the tile's contiguous extent {0} is not a multiple of {1}")]
    RunUneven(i64, i64),
    /// Elements of a vector that leaves do not divide into.
    #[error("the leaves of the view along the contiguous mode do not divide into runs of {0}")]
    LeavesUneven(i64),
    /// Elements of a vector, threads.
    #[error("{0} elements a thread would leave some of the {1} threads idle")]
    IdleThreads(i64, i64),
    /// Elements of a vector that is wider than what a thread has.
    #[error("a thread has fewer than {0} contiguous elements")]
    FewerContiguous(i64),
    /// An element wider than the instruction.
    #[error("is narrower than one {0}")]
    NarrowerThan(DType),
    /// An element of a shared tensor wider than the instruction.
    #[error("is narrower than one element")]
    NarrowerThanElement,
    /// Composition with the buffer's modes.
    #[error("the register layout does not split along the buffer's modes: {0}")]
    BufferModes(LayoutError),
    /// Carries between the view's leaves.
    #[error("the register layout does not split along the view's leaves")]
    ViewLeaves,
    /// Threads between vectors.
    #[error("threads start at coordinates that are not multiples of {0}")]
    ThreadsUnaligned(i64),
    /// A thread's elements are apart in memory.
    #[error("a thread does not hold {0} elements that are consecutive in memory")]
    NotConsecutive(i64),
    /// A thread's elements are in several registers.
    #[error("consecutive elements do not share registers")]
    NotPacked,

    /// An asynchronous copy between registers and memory.
    #[error("does not involve registers")]
    WithoutRegisters,
    /// A thread's elements, elements of a vector.
    #[error("a thread holds {0} elements, not a multiple of {1}")]
    CountUneven(i64, i64),
    /// Values out of order.
    #[error("a thread's values do not come in runs of {0}")]
    ValuesApart(i64),
    /// A shared run that crosses modes.
    #[error("its run does not split along the tensor's modes")]
    RunSplits,
    /// A collective store by several holders.
    #[error("several threads hold the same elements, and only one may store")]
    StoredTwice,
    /// Elements of other widths in matrices.
    #[error("moves units of 16 bits")]
    UnitsOf16Bits,
    /// Broadcast within a warp.
    #[error("lanes of a warp hold the same elements")]
    LanesAlike,
    /// Elements of a fragment, matrices of a call.
    #[error("a fragment of {0} elements is not made of groups of {1} matrices")]
    NoMatrixGroups(usize, usize),
    /// Registers of different forms.
    #[error("the elements of a register lie differently in different registers")]
    RegistersDiffer,
    /// Lanes that are no rows.
    #[error("lanes are not arranged as the rows of 8×8 matrices")]
    NotMatrixRows,
    /// Matrices of a call.
    #[error("groups of {0} matrices do not repeat")]
    GroupsDiffer(usize),
    /// Warps that carry into lanes.
    #[error("warps are not arranged apart from lanes: {0}")]
    WarpsWithLanes(LayoutError),

    /// Architecture, bytes.
    #[error("{0} has no access of {1} bytes")]
    NoAccess(Arch, u32),
    /// Two register tensors of different distributions.
    #[error("the two tensors are distributed differently")]
    DistributedDifferently,
    /// Odd factors.
    #[error("odd factors of the tile are held in different orders")]
    OddFactors,
    /// More than shuffles do.
    #[error("elements change their warp, or lanes need several registers of one lane")]
    BetweenWarps,
    /// A change of shape that does not compose.
    #[error("the operand's layout does not compose with the change of shape")]
    ShapeNotComposed,
    /// A broadcast across threads.
    #[error("threads do not hold what they need")]
    NotHeld,
    /// A half across threads.
    #[error("the mode cannot be left out of the operand's layout")]
    ModeStays,
    /// A reduction's operand outside its result.
    #[error("a value of the operand has no place in the result")]
    NoPlace,
    /// Threads or values that carry from one mode to the next.
    #[error("threads or values carry from one mode of the tile to the next")]
    ModeCrossed,
    /// A mode that is not each digit's once.
    #[error("threads or values hold elements along the mode twice")]
    HeldTwice,
    /// Lanes, warps, threads or values that walk two modes.
    #[error("{0}s walk along the mode and another at once")]
    Diagonal(&'static str),
    /// A gather along an odd mode.
    #[error("a gather runs along modes of power-of-two extents")]
    OddMode,
    /// A gather in an odd tile.
    #[error("a gather needs tiles whose extents are powers of two")]
    OddTile,
    /// A gather across warps.
    #[error("elements along the mode are in several warps")]
    SeveralWarps,

    /// A tensor copy.
    #[error(transparent)]
    Tma(#[from] TmaReject),
    /// An asynchronous matrix product.
    #[error(transparent)]
    Wgmma(#[from] WgmmaReject),
    /// Tensor memory.
    #[error(transparent)]
    TensorMemory(#[from] TensorMemoryReject),
}

/// Reason for which the tensor memory accelerator cannot do a copy.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum TmaReject {
    /// The shared layout is no bijection.
    #[error("the shared tile has gaps or elements that overlap")]
    Gaps,
    /// The shared layout crosses modes.
    #[error("the shared layout does not follow the tile's modes")]
    ModesCrossed,
    /// Bytes at which a tile can begin, period of the swizzle.
    #[error(
        "the tile can begin {0} bytes into its tensor, no multiple of the {1} after which the swizzle repeats"
    )]
    BeginsWithin(i64, u32),
    /// No global memory.
    #[error("it is no copy of a view")]
    NotAView,
    /// Rows by indices otherwise than they are gathered.
    #[error("tensor copies gather rows of a whole matrix, four by each thread, into the stage of one block")]
    Gathered,
    /// Rows that are gathered, threads of the role.
    #[error(
        "{0} rows are gathered four by each thread, and the role's {1} threads are no multiple of a quarter of them"
    )]
    GatheringThreads(i64, u32),
    /// A sum of elements that share a byte.
    #[error("tensor copies add no elements of type {0}")]
    SubByteSum(DType),
    /// Mode, elements of a byte: an offset, an extent or a walk that ends within a byte.
    #[error(
        "tensor maps count bytes, and the tile's places along mode {0} are not known to be multiples of the {1} elements of one"
    )]
    WithinByte(usize, i64),
    /// Swizzle.
    #[error("tensor copies do not have the swizzle {0}")]
    Swizzle(Swizzle),
    /// Mode within which a view ends.
    #[error("the view ends within mode {0} of the buffer, and tensor copies go on to the buffer's end")]
    ViewEnds(usize),
    /// Mode ahead of which a written box begins at some places.
    #[error("the tile may begin ahead of mode {0} of the buffer, where the device refuses to write boxes")]
    BeginsAhead(usize),
    /// Mode that is contiguous, and the elements of 16 bytes.
    #[error("the tile must begin at a multiple of {1} elements (16 bytes) along mode {0} of the buffer")]
    BeginsUnaligned(usize, i64),
    /// Modes of the buffer.
    #[error("the buffer has {0} modes, and tensor maps have 5")]
    Rank(usize),
    /// Mode, elements of 16 bytes.
    #[error("steps along mode {0} of the buffer are not known to be multiples of 16 bytes ({1} elements)")]
    StepsUnaligned(usize, i64),
    /// A multicast of one row.
    #[error("a single row cannot be shared out")]
    SingleRow,
    /// Rows, blocks of a multicast.
    #[error("{0} rows cannot be shared out among {1} blocks")]
    RowsUneven(i64, u32),
    /// Bytes of a block's part, period of the swizzle.
    #[error("a block's part of {0} bytes is no multiple of the swizzle's {1}")]
    PartUneven(i64, u32),
    /// The box.
    #[error(transparent)]
    Box(#[from] InvalidBox),
    /// A step along a mode that the box does not have.
    #[error("a mode of the buffer is missing")]
    MissingMode,
    /// Boxes.
    #[error("it takes {0} tensor copies")]
    TooMany(usize),
    /// Bytes at which a box begins, period of the swizzle.
    #[error("a box would begin {0} bytes into the shared tile, which is no multiple of {1}")]
    BoxBeginsWithin(i64, u32),
    /// No stride of 1.
    #[error("no mode of the buffer is contiguous")]
    BufferNotContiguous,
    /// Modes of a buffer of pixels.
    #[error("the buffer has {0} modes, and the im2col mode is of tensors of 3 to 5")]
    Im2colRank(usize),
    /// A folded mode along which a tile may begin at a negative number.
    #[error("the tile may begin ahead of the first pixel")]
    PixelsAhead,
    /// The contiguous mode.
    #[error("the view folds mode {0} of the buffer, which is contiguous: channels lie beside pixels")]
    FoldsChannels(usize),
    /// The mode of the last digit.
    #[error(
        "the last digit counts images, each of mode {0} of the buffer from its first to its last, and nothing else leads along it"
    )]
    FoldsImages(usize),
    /// Mode along which the first or the last place is not known.
    #[error(
        "where pixels begin and end along mode {0} of the buffer is not known when the kernel is compiled: they begin at a constant, and are as many as \
         `(extent + constant) / step + constant` says"
    )]
    CornerUnknown(usize),
    /// Mode along which indices are not bounded by constants.
    #[error("how far indices lead along mode {0} of the buffer is not known when the kernel is compiled")]
    OffsetsUnknown(usize),
    /// Mode, distance, largest offset.
    #[error("indices lead {1} along mode {0} of the buffer, and offsets of pixels are at most {2}")]
    OffsetsBeyond(usize, i64, i64),
    /// Halves of a pair.
    /// No row of the table.
    #[error("there is no tensor copy of this rank")]
    NoRow,
    /// A load outside of a `produce`.
    #[error("it is none of the accelerator's copies")]
    NotTma,
    /// A shared tensor without a layout.
    #[error("the shared tensor has no layout")]
    NoLayout,
    /// A reference that the layout does not compose with.
    #[error("its tile does not compose with the layout")]
    NotComposed,
    /// No layout was found.
    #[error("no layout of the shared tile can be copied")]
    NoBoxes,
}

/// Reason for which `wgmma` cannot do a matrix product.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum WgmmaReject {
    /// Types of A, B and C.
    #[error("no wgmma multiplies {0} by {1} into {2}")]
    Types(DType, DType, DType),
    /// K, its multiple, the type of A.
    #[error("K is {0}, and wgmma takes multiples of {1} elements of {2}")]
    K(i64, i64, DType),
    /// Warpgroups that were asked for; M and N.
    #[error("{} × {} warpgroups cannot share {} × {}: each needs a multiple of 64 rows and of 8 columns", .0[0], .0[1], .1[0], .1[1])]
    Asked([i64; 2], [i64; 2]),
    /// Number of warpgroups; M and N.
    #[error(
        "{} {} cannot do a product of {} × {}: each needs a multiple of 64 rows and of 8 columns{}",
        .0, if *.0 == 1 { "warpgroup" } else { "warpgroups" }, .1[0], .1[1], larger(*.0, .1)
    )]
    Warpgroups(i64, [i64; 2]),
    /// Elements of fewer bits than a descriptor has.
    #[error("elements of fewer than 8 bits are not multiplied")]
    SubByte,
    /// Swizzle, operand.
    #[error("wgmma does not have the swizzle {0} of operand {1:?}")]
    Swizzle(Swizzle, MmaOperand),
    /// Operand, why it has no descriptor.
    #[error("operand {0:?}: {1}")]
    Descriptor(MmaOperand, DescriptorReject),
    /// Operand whose parts are not told apart by adding.
    #[error("operand {0:?}: the parts of warpgroups lie differently")]
    Parts(MmaOperand),
    /// The right factor of a pair of blocks, of which each has other rows than half.
    #[error(
        "the blocks of a pair have a half of B's rows each, at the same places, and its layout has no such halves"
    )]
    Halves,
}

/// Reason for which a statement cannot use tensor memory.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum TensorMemoryReject {
    /// M and N.
    #[error(
        "tcgen05 has no sums of {} × {}: there are 128 rows with a multiple of 16 columns, and 64 with a multiple of 8, up to 256", .0[0], .0[1]
    )]
    Extents([i64; 2]),
    /// K, its multiple, the type of A.
    #[error("K is {0}, and tcgen05 takes multiples of {1} elements of {2}")]
    K(i64, i64, DType),
    /// M and N of a product with scales.
    #[error(
        "tcgen05 has no block-scaled sums of {} × {}: there are 128 rows with a multiple of 16 columns up to 256", .0[0], .0[1]
    )]
    ScaledExtents([i64; 2]),
    /// Rows and columns of the sums of a sparse factor.
    #[error(
        "tcgen05 has no sums of a sparse factor of {} × {}: there are 128 rows with a multiple of 16 columns up to 256", .0[0], .0[1]
    )]
    SparseExtents([i64; 2]),
    /// A sparse factor in a product of a pair.
    #[error(
        "a pair of blocks has no product with a sparse factor, whose metadata threads of each block store"
    )]
    SparsePairs,
    /// Rows of a factor, those of its scales, scales of a row.
    #[error(
        "scales come to tensor memory by 128 rows: those of a factor of {0} rows are [{1}, {2}], of which the first {0} rows are read"
    )]
    ScaledRows(i64, i64, i64),
    /// K, its multiple.
    #[error("K is {0}, and four scales of a row come to tensor memory at a time: it takes multiples of {1}")]
    Scales(i64, i64),
    /// The layout that scales have.
    #[error("the scales lie otherwise than tcgen05.cp reads them, as {0} does")]
    ScalesElsewhere(Layout),
    /// Number of warpgroups, columns.
    #[error("{0} warpgroups cannot share {1} columns of tensor memory: each has a multiple of 8")]
    Columns(i64, i64),
    /// A warp, a row that it does not reach.
    #[error(
        "warp {warp} holds elements of row {row}, and reaches only its quarter of the lanes of tensor memory; leave the register tensor's layout open, or give warp w of a warpgroup the rows of its lanes"
    )]
    Lanes {
        /// The warp.
        warp: i64,
        /// The row.
        row: i64,
    },
    /// No instruction has the shape of the layout.
    #[error("no tcgen05.ld or st has the shape of the register tensor's layout; leave it open")]
    NoShape,
}

/// The remedy: the least tile of at least `[m, n]` elements that `groups` warpgroups can share along M.
fn larger(groups: i64, [m, n]: &[i64; 2]) -> String {
    let (rows, columns) = (64 * groups, 8);
    let up = |extent: i64, unit: i64| (extent + unit - 1) / unit * unit;
    let (to_m, to_n) = (up(*m, rows), up(*n, columns));
    format!(", as a tile of {to_m} × {to_n} has")
}

/// Reason for which a matrix descriptor cannot describe a tile in shared memory.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum DescriptorReject {
    /// Extents of the tile, of an instruction's operand.
    #[error("the tile of {}×{} is not covered by operands of {}×{}", .0[0], .0[1], .1[0], .1[1])]
    NotCovered([i64; 2], [i64; 2]),
    /// No contiguous mode.
    #[error("its elements are contiguous along neither mode")]
    NotContiguous,
    /// Bits of an element that must be contiguous along K.
    #[error("operands of {0}-bit elements must be contiguous along K")]
    NotAlongK(u32),
    /// Bits of an element, major mode, swizzle.
    #[error(
        "{1} operands of {0}-bit elements do not lie in the {2}: those of 32 bits along MN have the one of 32-byte atoms, and others have not"
    )]
    Atoms(u32, Major, SwizzleMode),
    /// Leading or stride offset.
    #[error("its rows are not multiples of 16 bytes apart")]
    RowsUnaligned,
    /// Extents of the operand, swizzle.
    #[error("{}×{} elements are no whole number of the {}'s rows", .0[0], .0[1], .1)]
    NotWhole([i64; 2], SwizzleMode),
    /// Coordinate of an operand.
    #[error("the operand at ({}, {}) does not begin at a multiple of 16 bytes", .0[0], .0[1])]
    Unaligned([i64; 2]),
    /// Coordinate of an element, major mode, swizzle.
    #[error("element ({}, {}) lies elsewhere than a {} operand with {} has it", .0[0], .0[1], .1, .2)]
    Elsewhere([i64; 2], Major, SwizzleMode),
}
