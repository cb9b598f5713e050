//! Operations: what a program comes down to for one launch. Every reference is a table of offsets, so that running a block only adds and
//! indexes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tilewright_machine::{AtomicOp, DType, PrintLog, Progress, RedOp};

use super::bound::Accumulation;
use super::quote::Quote;
use super::shapes::Around;
use super::values::MadeBy;
use crate::arith::Rounded;
use crate::cluster::{Multicast, Peers};
use crate::core::{Coord, Slot, TileOrder};
use crate::diagnostic::Origin;
use crate::expr::Expr;
use crate::ids::{StmtId, StmtMap};
use crate::program::{ArgOp, Asserted, CombineForm, Dealer, ParamId, PipelineId, ReduceOp};

/// The statements of a program by their places in the order of the text.
pub(super) type Numbers = StmtMap<usize>;

/// An order of what the language leaves open: of blocks, and of the elements that a statement changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Order {
    /// The first block and the first element first.
    #[default]
    Ascending,
    /// The last first.
    Descending,
}

/// The arrivals of blocks at barriers of the grid.
#[derive(Debug, Default)]
pub(super) struct GridBarrier {
    /// Arrivals of each role so far, at all barriers.
    arrived: Vec<AtomicU64>,
    /// Blocks of the grid.
    blocks: AtomicU64,
}

impl GridBarrier {
    /// The barrier of so many roles: each meets with itself in other blocks.
    pub(super) fn new(roles: usize) -> Self {
        GridBarrier { arrived: (0..roles).map(|_| AtomicU64::new(0)).collect(), blocks: AtomicU64::new(0) }
    }

    /// Begins a launch of so many blocks.
    pub(super) fn begin(&self, blocks: u64) {
        self.arrived.iter().for_each(|arrived| arrived.store(0, Ordering::Relaxed));
        self.blocks.store(blocks, Ordering::Relaxed);
    }

    /// A role of a block arrives at its barrier of this number, from 1 on; whether it is the last there.
    pub(super) fn arrive(&self, role: usize, number: u64) -> bool {
        let before = self.arrived[role].fetch_add(1, Ordering::Relaxed);
        before + 1 == number * self.blocks.load(Ordering::Relaxed)
    }

    /// True if a role of all blocks has arrived at the barrier of this number.
    pub(super) fn is_over(&self, role: usize, number: u64) -> bool {
        self.arrived[role].load(Ordering::Relaxed) >= number * self.blocks.load(Ordering::Relaxed)
    }
}

/// A program prepared for one launch.
pub(super) struct Plan {
    pub(super) tensors: usize,
    /// The asynchronous copies and products, as messages name them.
    pub(super) flights: Vec<Quote>,
    /// The statement of each of them, by its number in the masks; empty without masks.
    pub(super) flight_statements: Vec<usize>,
    pub(super) pipelines: Vec<Pipeline>,
    /// The named barriers, by id.
    pub(super) barriers: Vec<Barrier>,
    /// The shared tensors that several roles use outside of stages, and the number of elements of each.
    pub(super) common: Vec<(usize, usize)>,
    /// Blocks of a cluster.
    pub(super) cluster: i64,
    /// The same along each of its modes.
    pub(super) cluster_shape: Vec<u32>,
    /// Extent and stride of each mode of each parameter; none of a scalar.
    pub(super) modes: Vec<Vec<(i64, i64)>>,
    /// The order in which blocks run and elements are changed, where one depends on the other.
    pub(super) order: Order,
    /// The records of what is printed, of a run that keeps them.
    pub(super) printed: Option<Mutex<PrintLog>>,
    /// True if values of elements depend on that order.
    pub(super) depends: bool,
    /// True if the launch deals tiles out: clusters may cancel others.
    pub(super) launched: bool,
    /// The barrier of the grid, of a program whose blocks wait for each other: they take turns.
    pub(super) grid: Option<GridBarrier>,
    /// Counts the clusters that have run.
    pub(super) progress: Option<Progress>,
    /// The values that statements make, of a run that notes them.
    pub(super) made: Option<MadeBy>,
    /// The names of parameters.
    pub(super) names: Vec<Quote>,
    /// True if the blocks of a cluster depend on each other, by sums or by stages that each fills for all.
    pub(super) meets: bool,
    /// The branches that rows decide, with their text and place.
    pub(super) branches: Vec<Branch>,
    /// Those of them that all rows enter.
    pub(super) entered: Entered,
    /// The roles in the order of the text; of a program without roles one that does everything.
    pub(super) roles: Vec<RolePlan>,
}

/// A named barrier.
pub(super) struct Barrier {
    pub(super) name: Quote,
    /// The roles that come to it.
    pub(super) roles: Vec<usize>,
}

/// An `if any`.
pub(super) struct Branch {
    pub(super) text: Quote,
}

/// The `if any` that all rows enter; the others are entered by the rows in which an element of the condition is true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entered {
    None,
    One(usize),
    All,
}

impl Entered {
    pub(super) fn has(self, number: usize) -> bool {
        self == Entered::All || self == Entered::One(number)
    }
}

/// The operations of a role.
pub(super) struct RolePlan {
    /// Its name, if the program has roles.
    pub(super) name: Option<String>,
    pub(super) ops: Vec<Step>,
}

/// A pipeline.
pub(super) struct Pipeline {
    pub(super) name: Quote,
    pub(super) stages: i64,
    /// The tensors of a stage, and the number of elements of each.
    pub(super) tensors: Vec<(usize, usize)>,
    /// The role that fills it.
    pub(super) producer: Option<usize>,
    /// The roles that read it.
    pub(super) consumers: Vec<usize>,
    /// The blocks of a cluster for which each fills its stages, those of each multicast.
    pub(super) multicast: BTreeSet<Peers>,
    /// The side of the role that multiplies its stages, or fills them by products, for both blocks of a pair.
    pub(super) pair: Option<crate::program::Side>,
    /// True if a `produce` goes on with what the `consume` before has left: of one stage in tensor memory.
    pub(super) keeps: bool,
}

impl Plan {
    /// The extent of the first mode of a parameter; 0 of a scalar.
    pub(super) fn extent(&self, param: ParamId) -> i64 {
        let mode = self.modes.get(param.0 as usize).and_then(|modes| modes.first());
        mode.map_or(0, |(extent, _)| *extent)
    }

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

/// An operation, and the statement that it is of.
pub(super) struct Step {
    pub(super) op: Op,
    /// None of what a role does when it begins or ends.
    pub(super) stmt: Option<StmtId>,
    /// The place of the statement.
    pub(super) span: Origin,
    /// The tensors that the operation reads and writes, if it is all that the statement does.
    pub(super) reads: Vec<usize>,
    pub(super) writes: Vec<usize>,
    /// True if it writes what it reads.
    pub(super) copies: bool,
}

impl Step {
    /// An operation beside that of a statement.
    pub(super) fn part_of(stmt: Option<StmtId>, span: Origin, op: Op) -> Step {
        Step { op, stmt, span, reads: Vec::new(), writes: Vec::new(), copies: false }
    }
}

/// One statement.
pub(super) enum Op {
    /// The next operations are part of the statement of this number, for the masks.
    Mark(usize),
    /// The tensor begins, with so many elements.
    Define { tensor: usize, len: usize },
    /// `dst = src`, element by element in the order of the tile's linear coordinate.
    Copy { src: Side, dst: Side, len: usize, how: How, text: Quote },
    /// The same, the destination at the wait. The number is that of the copy in [`Plan::flights`].
    CopyAsync { src: Side, dst: Side, how: How, flight: usize },
    /// The asynchronous copies since the last are a group.
    Commit,
    /// All groups but so many are complete.
    Wait(Expr),
    /// The parts of register tensors that the next operation has for operands are taken out.
    TakeParts { parts: Arc<[PartOf]>, text: Quote },
    /// They are put back.
    PutParts { parts: Arc<[PartOf]>, text: Quote },
    /// An error where the blocks of a multicast do not all mean the same tile.
    Alike { access: Box<Access>, multicast: Multicast, text: Quote },
    /// An error where a tile that is read, or written, is in flight.
    Landed { reads: Vec<Tile>, writes: Vec<Tile>, text: Quote },
    /// `c += a · bᵀ`.
    Gemm {
        c: usize,
        a: usize,
        b: usize,
        sparse: Option<Box<Metadata>>,
        /// The scales of blocks of both factors.
        scales: Option<[usize; 2]>,
        shape: [usize; 3],
        how: Accumulation,
    },
    /// The same, after which `place`, where `c` lies, is not touched, and its factors are not written, until the wait. The factors lose
    /// the low bits of `f32` that the tensor cores do not have.
    GemmAsync(Box<Product>),
    /// The asynchronous products since the last are a group.
    CommitGemm,
    /// All groups of products but so many are complete.
    WaitGemm(Expr),
    /// Tuples of elements put together along a mode.
    Combine(Box<Combining>),
    /// The tensors become what those of the cluster's blocks come to; the number tells one such statement from another.
    ClusterReduce { dsts: Vec<usize>, number: usize, reduction: ClusterReduction },
    /// `old = atomic_add(dst, src)` and the like: element by element.
    Fetch {
        src: usize,
        dst: Side,
        old: usize,
        compare: Option<usize>,
        op: AtomicOp,
        dtype: DType,
        text: Quote,
    },
    /// The flag becomes the value, or is combined with it.
    Signal { flag: FlagOf, value: Expr, combine: Option<RedOp> },
    /// The role waits until the flag is at least so much.
    Await { flag: FlagOf, least: Expr },
    /// The flag goes up by one, from `count - 1` to 0, and the symbol is what it was.
    Ticket { symbol: usize, flag: FlagOf, count: Expr },
    /// All blocks meet; the element of the counter gets another sign.
    SyncGrid { counter: usize, text: Quote },
    /// A role comes to a named barrier, and perhaps waits there.
    Come { barrier: usize, waits: bool, text: Quote },
    /// One stage of a pipeline.
    Stage { slot: Slot, body: Vec<Step>, span: Origin },
    /// A loop over tiles.
    /// `previous`: the counters that are the row and the column of the previous iteration, and of the last one after the loop.
    Tiles {
        row: usize,
        col: usize,
        previous: Option<[usize; 2]>,
        rows: Expr,
        cols: Expr,
        order: TileOrder,
        dynamic: Option<Dealer>,
        body: Vec<Step>,
    },
    /// `dst = src`, rounded to the type if there is one; perhaps to `f32` first.
    Convert { dst: usize, src: usize, dtype: Option<DType>, through_f32: bool },
    /// Every element becomes the value.
    /// `pair`: the number of the statement among [`Plan::flights`], where the blocks of a pair multiply into what it fills.
    Fill { dst: usize, len: usize, value: f64, pair: Option<usize> },
    /// `dst = expression`; `repeats` are the operands with extents of 1 that the result has not.
    Elementwise { dst: usize, shape: Vec<usize>, tree: Rounded, dtype: DType, repeats: Repeats },
    /// `dst = src` element by element; `None` for their own order.
    Pick { dst: usize, src: usize, order: Option<Vec<u32>> },
    /// `dst = src` from a coordinate of a mode on; `order` counts from there.
    Slice { dst: usize, src: usize, order: Vec<u32>, start: Expr, most: i64, stride: i64, text: Quote },
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
    If { condition: Expr, body: Vec<Step> },
    /// A branch that is done at least for the rows of the condition, given for each of its elements, in which one is true. The number tells
    /// one such statement from another.
    IfAny { number: usize, condition: usize, rows: Vec<u32>, count: usize, body: Vec<Step> },
    /// An operation on registers in the body of such a branch: of `dst` only elements of rows that are decided for change.
    OfRows { dst: Vec<(usize, Vec<u32>)>, op: Box<Op> },
    /// An error where the condition does not hold.
    Assert { condition: Asserted, text: Quote },
    /// Shows items.
    Print(Box<Printing>),
    /// The loop around ends where the condition is not 0.
    Break { condition: Expr },
    /// A loop. Of an unrolled one, `unrolled` are the tensors that its body defines: each iteration has some for itself.
    For {
        counter: usize,
        lo: Expr,
        hi: Expr,
        condition: Option<Expr>,
        unrolled: Option<Vec<usize>>,
        body: Vec<Step>,
    },
}

/// The flag of a statement.
pub(super) struct FlagOf {
    pub(super) param: usize,
    pub(super) index: Vec<Expr>,
    /// The statement.
    pub(super) text: Quote,
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

/// A `print`, prepared for a launch.
pub(super) struct Printing {
    pub(super) statement: StmtId,
    pub(super) items: Vec<Printable>,
    /// The counters of the loops around.
    pub(super) iteration: Vec<Expr>,
    pub(super) text: Quote,
}

/// An item of it.
pub(super) enum Printable {
    Integer(Expr),
    Tensor {
        tile: Tile,
        dtype: DType,
        /// The shape of the tile, and the extents up to which it is shown.
        shape: Vec<i64>,
        extents: Vec<i64>,
    },
}

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

/// Tuples that a function of the program puts together.
pub(super) struct Combining {
    pub(super) dsts: Vec<usize>,
    pub(super) srcs: Vec<usize>,
    pub(super) function: TupleFunction,
    pub(super) around: Around,
    pub(super) form: CombineForm,
}

/// A function of the program that puts two tuples together.
pub(super) struct TupleFunction {
    /// Its operations.
    pub(super) trees: Vec<Rounded>,
    /// The types of the elements.
    pub(super) dtypes: Vec<DType>,
    /// The statement's text.
    pub(super) text: Quote,
}

/// A reduction over the blocks of a cluster.
pub(super) struct ClusterReduction {
    pub(super) by: ReduceBy,
    /// Its text.
    pub(super) text: Quote,
}

/// The operation of a reduction over the blocks of a cluster.
pub(super) enum ReduceBy {
    /// Of one tensor of a type.
    Op(ReduceOp, DType),
    /// Of several.
    Function(TupleFunction),
}

/// An asynchronous product.
pub(super) struct Product {
    pub(super) c: usize,
    /// The place of `c`, which may be a part of a tensor.
    pub(super) place: Tile,
    pub(super) a: Side,
    pub(super) b: Side,
    /// The places of the operands, of which each may be a part of a tensor; of metadata too.
    pub(super) reads: Vec<Tile>,
    pub(super) sparse: Option<Box<Metadata>>,
    /// The scales of blocks of both factors.
    pub(super) scales: Option<[Side; 2]>,
    /// Scales of a row of a factor.
    pub(super) blocks: usize,
    pub(super) shape: [usize; 3],
    pub(super) how: Accumulation,
    /// True if it ends at a wait of the program. In tensor memory nobody touches the sums before their stage is full.
    pub(super) flies: bool,
    /// True if the blocks of a pair do it together.
    pub(super) pair: bool,
    pub(super) flight: usize,
}

/// The metadata of a product's sparse left factor.
pub(super) struct Metadata {
    pub(super) tensor: usize,
    /// The name in messages.
    pub(super) name: String,
    /// The product.
    pub(super) text: Quote,
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
    /// The leaves of a mode that folds modes of the buffer: extent, mode, length of a step. Its coordinates, ends, strides and reach are behind
    /// those of the buffer's modes.
    pub(super) folded: Vec<(Expr, usize, i64)>,
    /// Indices that lie within their modes: the mode, the index, its extent.
    pub(super) within: Vec<(usize, Expr, Expr)>,
    /// The place of the reference.
    pub(super) span: Origin,
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
