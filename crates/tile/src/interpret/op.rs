//! Operations: what a program comes down to for one launch. Every reference is a table of offsets, so that running a block only adds and
//! indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_machine::{DType, RedOp};

use super::bound::Accumulation;
use super::shapes::Around;
use crate::arith::Rounded;
use crate::core::{Coord, Slot, TileOrder};
use crate::diagnostic::Origin;
use crate::expr::Expr;
use crate::ids::StmtMap;
use crate::program::{ArgOp, PipelineId, ReduceOp};

/// The statements of a program by their places in the order of the text.
pub(super) type Numbers = StmtMap<usize>;

/// A program prepared for one launch.
pub(super) struct Plan {
    pub(super) tensors: usize,
    /// The asynchronous copies and products, as messages name them.
    pub(super) flights: Vec<String>,
    /// The statement of each of them, by its number in the masks; empty without masks.
    pub(super) flight_statements: Vec<usize>,
    pub(super) pipelines: Vec<Pipeline>,
    /// Blocks of a cluster.
    pub(super) cluster: i64,
    /// Extent and stride of each mode of each parameter; none of a scalar.
    pub(super) modes: Vec<Vec<(i64, i64)>>,
    /// True if the blocks of a cluster depend on each other, by sums or by stages that each fills for all.
    pub(super) meets: bool,
    /// The roles in the order of the text; of a program without roles one that does everything.
    pub(super) roles: Vec<RolePlan>,
}

/// The operations of a role.
pub(super) struct RolePlan {
    /// Its name, if the program has roles.
    pub(super) name: Option<String>,
    pub(super) ops: Vec<Op>,
}

/// A pipeline.
pub(super) struct Pipeline {
    pub(super) name: String,
    pub(super) stages: i64,
    /// The tensors of a stage, and the number of elements of each.
    pub(super) tensors: Vec<(usize, usize)>,
    /// The role that fills it.
    pub(super) producer: Option<usize>,
    /// The roles that read it.
    pub(super) consumers: Vec<usize>,
    /// True if each block of a cluster fills its stages for all.
    pub(super) multicast: bool,
}

impl Plan {
    /// The pipeline of an id.
    pub(super) fn pipeline(&self, id: PipelineId) -> &Pipeline {
        &self.pipelines[id.0 as usize]
    }
}

impl Pipeline {
    /// The place of a role among the consuming roles.
    pub(super) fn reader(&self, role: usize) -> Option<usize> {
        self.consumers.iter().position(|consumer| *consumer == role)
    }

    /// True if the tensor is part of a stage.
    pub(super) fn has(&self, tensor: usize) -> bool {
        self.tensors.iter().any(|(part, _)| *part == tensor)
    }
}

/// One statement.
pub(super) enum Op {
    /// The next operations are part of the statement of this number, for the masks.
    Mark(usize),
    /// The tensor begins, with so many elements.
    Define { tensor: usize, len: usize },
    /// `dst = src`, element by element in the order of the tile's linear coordinate.
    Copy { src: Side, dst: Side, len: usize, how: How, text: String },
    /// The same, the destination at the wait. The number is that of the copy in [`Plan::flights`].
    CopyAsync { src: Side, dst: Side, how: How, flight: usize },
    /// The asynchronous copies since the last are a group.
    Commit,
    /// All groups but so many are complete.
    Wait(Expr),
    /// The parts of register tensors that the next operation has for operands are taken out.
    TakeParts { parts: Arc<[PartOf]>, text: String },
    /// They are put back.
    PutParts { parts: Arc<[PartOf]>, text: String },
    /// An error where the blocks of the cluster do not all mean the same tile.
    Alike { access: Box<Access>, text: String },
    /// An error where a tile that is read, or written, is in flight.
    Landed { reads: Vec<Tile>, writes: Vec<Tile>, text: String },
    /// `c += a · bᵀ`.
    Gemm { c: usize, a: usize, b: usize, shape: [usize; 3], how: Accumulation },
    /// The same, after which `place`, where `c` lies, is not touched, and its factors are not written, until the wait. The factors lose
    /// the low bits of `f32` that the tensor cores do not have.
    GemmAsync(Box<Product>),
    /// The asynchronous products since the last are a group.
    CommitGemm,
    /// All groups of products but so many are complete.
    WaitGemm(Expr),
    /// The tensor becomes the sum over the cluster's blocks; the number tells one such statement from another.
    ClusterSum { dst: usize, number: usize, text: String, span: Origin },
    /// One stage of a pipeline.
    Stage { slot: Slot, body: Vec<Op>, span: Origin },
    /// A loop over tiles.
    /// `previous`: the counters that are the row and the column of the previous iteration, and of the last one after the loop.
    Tiles {
        row: usize,
        col: usize,
        previous: Option<[usize; 2]>,
        rows: Expr,
        cols: Expr,
        order: TileOrder,
        body: Vec<Op>,
    },
    /// `dst = src`, rounded to the type if there is one; perhaps to `f32` first.
    Convert { dst: usize, src: usize, dtype: Option<DType>, through_f32: bool },
    /// Every element becomes the value.
    Fill { dst: usize, len: usize, value: f64 },
    /// `dst = expression`; `repeats` are the operands with extents of 1 that the result has not.
    Elementwise { dst: usize, shape: Vec<usize>, tree: Rounded, dtype: DType, repeats: Repeats },
    /// `dst = src` element by element; `None` for their own order.
    Pick { dst: usize, src: usize, order: Option<Vec<u32>> },
    /// `dst = src` from a coordinate of a mode on; `order` counts from there.
    Slice { dst: usize, src: usize, order: Vec<u32>, start: Expr, most: i64, stride: i64, text: String },
    /// `dst = a`, then `b`.
    Join { dst: usize, a: usize, b: usize },
    /// `lo = src`'s first half, `hi =` its second.
    Split { lo: usize, hi: usize, src: usize },
    /// `dst = src` put together along a mode.
    Reduce { dst: usize, src: usize, around: Around, op: ReduceOp, dtype: DType },
    /// `dst = src` put together along a mode, up to each element.
    Scan { dst: usize, operands: Scanned, around: Around, dtype: DType, reverse: bool },
    /// The largest or the smallest along a mode, and its coordinate.
    Arg { value: usize, index: usize, src: usize, around: Around, op: ArgOp },
    /// `dst = src` in order along a mode, and what goes with it.
    Sort { dst: usize, src: usize, carried: Option<[usize; 2]>, around: Around, descending: bool },
    /// `dst = src` at the places that `index` names along a mode.
    Gather { dst: usize, src: usize, around: Around, index: usize, along: Around },
    /// A branch, taken where the condition is not 0.
    If { condition: Expr, body: Vec<Op> },
    /// A loop. Of an unrolled one, `unrolled` are the tensors that its body defines: each iteration has some for itself.
    For {
        counter: usize,
        lo: Expr,
        hi: Expr,
        condition: Option<Expr>,
        unrolled: Option<Vec<usize>>,
        body: Vec<Op>,
    },
}

/// The attributes of a copy.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// The value of what lies outside of a buffer.
    pub(super) outside: f64,
    /// The operation by which elements are combined with those at the destination, and their type.
    pub(super) combine: Option<Combine>,
}

/// A combination of elements of a type.
pub(super) type Combine = (RedOp, DType);

/// The operands of a scan.
pub(super) enum Scanned {
    One { src: usize, op: ReduceOp },
    Linear { a: usize, b: usize, before: Option<usize> },
}

impl Scanned {
    /// The operands of the result's shape.
    pub(super) fn whole(&self) -> Vec<usize> {
        match self {
            Scanned::One { src, .. } => vec![*src],
            Scanned::Linear { a, b, .. } => vec![*a, *b],
        }
    }

    /// The state before the first element.
    pub(super) fn before(&self) -> Option<usize> {
        if let Scanned::Linear { before, .. } = self { *before } else { None }
    }
}

/// An asynchronous product.
pub(super) struct Product {
    pub(super) c: usize,
    /// The place of `c`, which may be a part of a tensor.
    pub(super) place: Tile,
    pub(super) a: Side,
    pub(super) b: Side,
    /// The places of the operands, of which each may be a part of a tensor.
    pub(super) reads: [Tile; 2],
    pub(super) shape: [usize; 3],
    pub(super) how: Accumulation,
    /// The factors are `f32`, of which the upper 19 bits count.
    pub(super) tf32: bool,
    pub(super) flight: usize,
}

/// A part of a register tensor.
pub(super) struct PartOf {
    /// The tensor in which the statement finds it.
    pub(super) part: usize,
    pub(super) tile: Tile,
}

/// A tile of a tensor of the block.
pub(super) struct Tile {
    pub(super) tensor: usize,
    /// The name in messages.
    pub(super) name: String,
    /// The offset of each element; `None` for the whole tensor in its own order.
    pub(super) order: Option<Vec<u32>>,
    /// The modes that are fixed.
    pub(super) fixed: Vec<Fixed>,
    /// A mode that a register tensor indexes: its extent and stride.
    pub(super) indexed: Option<(Indices, i64, i64)>,
}

/// The indices of a mode, which a register tensor holds.
pub(super) struct Indices {
    /// The register tensor.
    pub(super) by: usize,
    /// For each element of the tile, which of the indices is its.
    pub(super) of: Vec<u32>,
}

/// A mode that an index fixes.
pub(super) struct Fixed {
    pub(super) mode: usize,
    pub(super) index: Coord,
    pub(super) extent: i64,
    pub(super) stride: i64,
}

/// One side of a copy.
pub(super) enum Side {
    /// A tile of the block.
    Tile(Tile),
    /// A tile of a buffer.
    Global(Box<Access>),
}

/// The places in operands of the elements of a result.
pub(super) type Repeats = BTreeMap<usize, Vec<u32>>;

/// A tile of a buffer.
pub(super) struct Access {
    pub(super) param: usize,
    /// The name in messages.
    pub(super) name: String,
    /// The coordinate of the first element.
    pub(super) base: Vec<Expr>,
    /// The buffer's shape, as far as the view reaches.
    pub(super) shape: Vec<Expr>,
    /// The buffer's strides.
    pub(super) strides: Vec<i64>,
    /// The distance that the tile reaches from its first element along each mode of the buffer; `None` if that overflows.
    pub(super) reach: Option<Vec<i64>>,
    /// For each element its offset from the first: right where the tile lies within the buffer.
    pub(super) offsets: Vec<i64>,
    /// For each leaf of the tile (extent, buffer mode, scale), leftmost fastest.
    pub(super) leaves: Vec<(i64, usize, i64)>,
    /// A mode that a register tensor indexes.
    pub(super) indexed: Option<IndexedSteps>,
}

/// A mode of a view that a register tensor indexes.
pub(super) struct IndexedSteps {
    pub(super) indices: Indices,
    /// The mode's extent.
    pub(super) extent: Expr,
    /// The buffer's mode along which a step leads, and how far.
    pub(super) dim: usize,
    pub(super) scale: i64,
}
