//! Statements: what a program's blocks do, and what every statement's operands are.

/// The statements that are plain calls, `name(arguments)`, one line each: all that the words of the language, the parser, the printer,
/// [`StmtKind::operands`] and [`Convert`] know of them. An argument is a tensor with its use, an integer that is known when the kernel is
/// compiled (`Int`), a number (`Number`), or the operation of a reduction (`Operation`), with a noun for messages.
macro_rules! with_plain_statements {
    ($callback:ident! $arguments:tt) => {
        $callback! { $arguments
            commit_group() { StmtKind::Commit }
            wait_group(groups: Int "number of groups") { StmtKind::Wait(groups) }
            commit_gemm() { StmtKind::CommitGemm }
            wait_gemm(groups: Int "number of groups") { StmtKind::WaitGemm(groups) }
            fill(dst: Write "register tensor", value: Number "number") { StmtKind::Fill { dst, value } }
            cluster_reduce(dst: Accumulate "register tensor", op: Operation "operation") {
                StmtKind::ClusterReduce { dst, op }
            }
            wait_dependencies() { StmtKind::WaitDependencies }
            launch_dependents() { StmtKind::LaunchDependents }
        }
    };
}

mod answers;
mod convert;
mod form;
mod operands;
mod operation;

use std::fmt;

use tilewright_machine::{AtomicOp, CacheHint, RedOp};

use crate::cluster::Multicast;
use crate::diagnostic::Origin;
use crate::elementwise::{Combination, ElemExpr};
use crate::expr::{Expr, SymbolId};
use crate::ids::{BarrierId, ParamId, PipelineId, StmtId, TensorId};

pub use convert::Convert;
pub use form::{Form, Surface};
pub(crate) use operands::{Argument, PLAIN, Plain};
pub use operands::{Operand, OperandMut, Use};
pub use operation::{ArgOp, Asserted, CombineForm, Iteration, PrintItem, ReduceOp, ScanOperands, ShapeOp};

/// Side of a pipeline that a [`StmtKind::Stage`] is on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// `produce`: fills the next free stage.
    Produce,
    /// `consume`: reads the next full stage.
    Consume,
}

impl Side {
    /// The word by which the counter of a side's stages is named.
    pub(crate) fn end(self) -> &'static str {
        match self {
            Side::Produce => "produced",
            Side::Consume => "consumed",
        }
    }
}

/// The threads that meet at a [`StmtKind::Sync`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SyncScope {
    /// `syncthreads()`: all threads of the block; in a role, of the role.
    All,
    /// `syncthreads(warpgroup)`: those of each warpgroup for themselves.
    Warpgroup,
    /// `syncthreads(b)`: the threads of all roles that come to the named barrier.
    Barrier(BarrierId),
}

/// A literal number. Compared by its bits, so that NaN is equal to itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Literal(u64);

impl Literal {
    /// The number.
    pub fn value(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Literal {
    fn from(value: f64) -> Self {
        // One NaN stands for all.
        Literal(if value.is_nan() { f64::NAN } else { value }.to_bits())
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value().fmt(f)
    }
}

/// The attributes of a [`StmtKind::Copy`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct CopyAttrs {
    /// `outside = v`: the value of the elements that lie outside of a global tensor; `None`: 0.
    pub outside: Option<Literal>,
    /// `add`, `max`, `min`: each element is combined with the one at its destination, as one step; each once, even where several threads
    /// hold it.
    pub combine: Option<RedOp>,
    /// Each element of memory is changed as one step, in an open order, and what was there becomes the result.
    pub fetch: Option<Fetch>,
}

/// The result of a copy to memory that gives what was there: `old = atomic_add(v, src)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fetch {
    /// The operation.
    pub op: AtomicOp,
    /// The register tensor of what was there, of the shape and the type of what is copied.
    pub old: TensorId,
    /// Of a compare-and-swap: what the elements must be to be replaced.
    pub compare: Option<TensorId>,
}

/// A flag: an element of an `i32` tensor parameter by which blocks tell each other how far they are. Nothing but statements with flags touches
/// the parameter. Where the index is outside of the parameter, nothing is changed and nobody waits.
#[derive(Clone, PartialEq, Debug)]
pub struct Flag {
    /// The parameter.
    pub param: ParamId,
    /// The index, an integer a mode.
    pub index: Vec<Expr>,
}

/// The attributes of a [`StmtKind::CopyAsync`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncCopyAttrs {
    /// `multicast`, `pair` or both: blocks of the cluster copy the same tile, which is read once for all.
    pub multicast: Option<Multicast>,
    /// `add`: from shared to global memory, the elements are added to those there.
    pub add: bool,
    /// `outside = v`: the value of the elements that lie outside of a global tensor: 0, which is what asynchronous copies write.
    pub outside: Option<Literal>,
    /// True if TMA does the copy: synthesis decides.
    pub tensor: bool,
    /// `threads`: the threads copy, each its vectors, and TMA does not.
    pub threads: bool,
    /// `evict_first`, `evict_last`: how the L2 cache treats what is read or written.
    pub hint: Option<CacheHint>,
}

/// Source of the tiles of a [`StmtKind::Tiles`] that are dealt out. Which of them a block does is open, and each is done once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Dealer {
    /// `dynamic = counter`: the first element of an `i32` tensor parameter counts the tiles that clusters have taken. It is 0 when a launch
    /// begins and when it ends.
    Counter(ParamId),
    /// `dynamic`: the launch, whose grid has a cluster for each tile. One that runs does its own, and those of clusters that have not begun and never do.
    Launch,
}

impl Dealer {
    /// The parameter that counts the tiles.
    pub fn counter(self) -> Option<ParamId> {
        match self {
            Dealer::Counter(counter) => Some(counter),
            Dealer::Launch => None,
        }
    }
}

/// The rasterization order of a [`StmtKind::Tiles`]. Neighbours in the order are close together, so that blocks that run at
/// the same time read the same rows and columns.
#[derive(Clone, PartialEq, Debug)]
pub enum TileOrder<F: Form = Surface> {
    /// `grouped(n)`, `grouped(n, serpentine)`: groups of `n` rows of tiles (the last may have fewer); in a group column by column, each from top to
    /// bottom. `serpentine`: every second group from its last column to its first.
    Grouped {
        /// Rows of a group, over constants.
        rows: F::Int,
        /// Walks every second group backwards.
        serpentine: bool,
    },
    /// `hilbert(s)`: squares of 2ˢ×2ˢ tiles, each along a Hilbert curve, in groups of squares; then the tiles that are in no whole square,
    /// row by row.
    Hilbert {
        /// The curve's order, over constants.
        order: F::Int,
    },
    /// `listed(table)`: the tiles whose numbers, row by row, the elements of an `i32` tensor parameter of one mode are, in its order. A number
    /// of no tile stands for the one outside, (`rows`, `cols`).
    Listed {
        /// The parameter.
        table: ParamId,
    },
}

/// A mode of a view or of a shared tensor that a register tensor indexes: `ga[id, :]`. Coordinate `i` of the mode, in the tile, is the
/// `id[i]`-th of the tensor; where that is outside of the mode, nothing is read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexedMode {
    /// The mode of the tensor.
    pub mode: u32,
    /// The register tensor: `i32`, of one mode, whose extent the mode has in the tile.
    pub by: TensorId,
}

/// A tensor as a statement uses it: perhaps indexed, perhaps transposed.
#[derive(Clone, PartialEq, Debug)]
pub struct TensorRef<F: Form = Surface> {
    /// The tensor.
    pub tensor: TensorId,
    /// One entry a mode: an expression fixes the mode at that coordinate, `None` (`:` or `_` in the text) keeps it. An
    /// empty list keeps every mode. Global views and shared tensors are indexed here; of a register tensor, a statement
    /// names a [`TensorKind::Part`](crate::TensorKind::Part).
    pub index: Vec<Option<F::Index>>,
    /// The mode that a register tensor indexes, if there is one. Its entry of `index` is `None`.
    pub indexed: Option<IndexedMode>,
    /// `transpose(t)`: the kept modes in reverse order. Costs nothing: it is a view.
    pub transposed: bool,
    /// Its place.
    pub span: Origin,
}

impl<F: Form> TensorRef<F> {
    /// The whole tensor.
    pub fn whole(tensor: TensorId) -> Self {
        TensorRef { tensor, index: Vec::new(), indexed: None, transposed: false, span: Origin::Unknown }
    }
}

impl<F: Form> From<TensorId> for TensorRef<F> {
    fn from(tensor: TensorId) -> Self {
        TensorRef::whole(tensor)
    }
}

/// A statement, its identity, and where it is written.
#[derive(Clone, Debug)]
pub struct Stmt<F: Form = Surface> {
    /// Its identity, unique in the program.
    pub id: StmtId,
    /// The kind, with the operands.
    pub kind: StmtKind<F>,
    /// Its place.
    pub span: Origin,
}

/// Statements are equal that do the same, whatever their ids.
impl<F: Form> PartialEq for Stmt<F> {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind
    }
}

/// A statement by kind. All threads of the block do it together.
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind<F: Form = Surface> {
    /// `t = global_view(…)`, `t = register_tensor(…)`, `t = shared_tensor(…)`, `t = tensor_memory(…)`: the tensor exists from here to the end of the
    /// enclosing block. Registers and shared memory hold anything until they are written.
    Define(TensorId),
    /// `let symbol = value`: the name stands for the integer, from here to the end of the enclosing block. [`verify`](crate::verify())
    /// puts the value in its place; core programs have none.
    Let {
        /// The name.
        symbol: SymbolId,
        /// The integer.
        value: Expr,
    },
    /// `copy(src, dst, how)`: shapes are equal, element types are equal. What lies outside a global tensor reads as
    /// zero, or as the attributes say, and is not written. A write to shared memory is seen by other threads after the next `syncthreads`.
    Copy {
        /// From here.
        src: TensorRef<F>,
        /// To here.
        dst: TensorRef<F>,
        /// Its attributes.
        how: CopyAttrs,
    },
    /// `copy.async(src, dst)` from a global view to a shared tensor, or from a shared tensor to a global view. The source is read, and
    /// the destination written, between here and the wait that covers the copy; until then nothing may read or write the
    /// destination, or write the source. In a `produce` the copy is part of filling the stage, and no wait covers it.
    CopyAsync {
        /// From here.
        src: TensorRef<F>,
        /// To here.
        dst: TensorRef<F>,
        /// Its attributes.
        how: AsyncCopyAttrs,
    },
    /// `commit_group()`: the asynchronous copies since the last one become a group (perhaps an empty one).
    Commit,
    /// `wait_group(n)`: of the groups so far, all but the `n` latest are complete. The number is at least 0, over constants and
    /// counters of `unroll for`.
    Wait(F::Int),
    /// `gemm(c, a, b)`, `gemm(c, a, b, warps = (2, 2))`: `c += a · bᵀ`, with `c` M×N, `a` M×K, `b` N×K, all in registers.
    ///
    /// `gemm(c, a, b, meta)`: of the left factor two elements of every four along K are there, the others are 0: `a` is M×K/2, and `meta`, M×K/2 of
    /// `u2` in registers, has for each of its elements the place in its group of four. In the factor that is multiplied, element
    /// (m, 4·g + `meta[m, 2·g + j]`) is `a[m, 2·g + j]`. The places of a group increase.
    ///
    /// `gemm(c, a, b, scales = (sa, sb))`: K is cut into blocks of K/S elements, and the factors that are multiplied are `a[m, k] · sa[m, k / (K/S)]`
    /// and `b[n, k] · sb[n, k / (K/S)]`, exactly; `sa` is M×S and `sb` N×S, both in registers.
    Gemm {
        /// The accumulator.
        c: TensorId,
        /// The left factor.
        a: TensorId,
        /// The right factor, N×K.
        b: TensorId,
        /// The places of the elements of a sparse left factor.
        meta: Option<TensorId>,
        /// The scales of blocks of the left and of the right factor.
        scales: Option<[TensorId; 2]>,
        /// `warps = (m, n)`: the warps of the block along M and along N; `None` leaves them to the compiler. Over constants and
        /// counters of `unroll for`.
        warps: Option<[F::Int; 2]>,
    },
    /// `gemm.async(c, a, b)`, `gemm.async(c, a, b, warpgroups = (2, 1))`: `c += a · bᵀ` by the asynchronous tensor cores of a warpgroup, with
    /// `c` M×N in registers, `a` M×K in shared memory or registers, `b` N×K in shared memory. Until the [`StmtKind::WaitGemm`] that
    /// covers it, nothing may read or write `c`, or write `a` or `b`. `gemm.async(c, a, b, meta)`: with a sparse left factor, as in
    /// [`StmtKind::Gemm`]; `meta` is in registers, which nothing may write until then either, or in tensor memory where `c` is.
    ///
    /// With `c` in tensor memory, inside a `produce` of its pipeline, one thread issues it, and there is no wait: `c` is complete where the stage is full,
    /// and the stages of other pipelines that the role consumes are given back once the products have read them. `a` may then lie in tensor memory too, and
    /// `gemm.async(c, a, b, scales = (sa, sb))` is [`StmtKind::Gemm`]'s with scales of blocks, which lie in shared memory: `sa` is M×S and
    /// `sb` N×S, or of more rows, up to the next multiple of 128, which are not read.
    GemmAsync {
        /// The accumulator.
        c: TensorId,
        /// The left factor.
        a: TensorRef<F>,
        /// The right factor, N×K.
        b: TensorRef<F>,
        /// The places of the elements of a sparse left factor.
        meta: Option<TensorId>,
        /// The scales of blocks of the left and of the right factor.
        scales: Option<[TensorRef<F>; 2]>,
        /// `warpgroups = (m, n)`: the warpgroups of the role along M and along N; `None` leaves them to the compiler. Over constants.
        warpgroups: Option<[F::Int; 2]>,
    },
    /// `commit_gemm()`: the asynchronous products since the last one become a group (perhaps an empty one).
    CommitGemm,
    /// `wait_gemm(n)`: of the groups of products so far, all but the `n` latest are complete. Over constants.
    WaitGemm(F::Int),
    /// `cluster_reduce(t, op)`: `t` becomes, in every block of the cluster, element by element what the `t` of all its blocks come to, put
    /// together in the order of their ranks: floats in `f32`, rounded once to the element type. See [`ReduceOp`].
    ClusterReduce {
        /// A register tensor.
        dst: TensorId,
        /// The operation on two elements.
        op: ReduceOp,
    },
    /// `cluster_reduce((m, s), f)`: the tensors become, in every block of the cluster, element by element the tuples that those of all its blocks
    /// come to, put together by a function of the program in the order of their ranks. See [`StmtKind::Combine`].
    ClusterCombine {
        /// Register tensors of one shape.
        dsts: Vec<TensorId>,
        /// The function.
        by: Combination,
    },
    /// `wait_dependencies()`: the kernels that this one was launched behind have ended, and their writes are visible.
    WaitDependencies,
    /// `launch_dependents()`: kernels that are launched behind this one may begin.
    LaunchDependents,
    /// `p = pipeline(stages, sa, sb)`: a ring of stages of these shared tensors exists from here on.
    Pipeline(PipelineId),
    /// `warpgroup name(n) registers(r) { … }`: what the next `n` warpgroups of the block do, each of their threads with `r` registers. Roles
    /// stand at the program's outermost level; beside them are only definitions.
    Role {
        /// The role's name.
        name: F::RoleName,
        /// The number of warpgroups, over constants.
        warpgroups: F::Int,
        /// Registers of a thread, over constants; `None`: an even share.
        registers: Option<F::Int>,
        /// The statements of the role.
        body: Vec<Stmt<F>>,
    },
    /// `produce p { … }`: waits for a free stage, fills it, and hands it on once it is full. `consume p { … }`: waits for a full stage,
    /// reads it, and gives it back once nothing reads it any more.
    Stage {
        /// The pipeline.
        pipeline: PipelineId,
        /// The side.
        side: Side,
        /// The statements that fill or read the stage.
        body: Vec<Stmt<F>>,
    },
    /// `for (row, col) in tiles(rows, cols, order) { … }`: this block's share of `rows`×`cols` tiles: of the tiles in their order, those
    /// whose number is the cluster's index plus a multiple of the number of clusters (along x). `tiles(…, dynamic = counter)` and
    /// `tiles(…, dynamic)`: clusters take the tiles that no other has taken.
    Tiles {
        /// The counter of the tile's row.
        row: SymbolId,
        /// The counter of the tile's column.
        col: SymbolId,
        /// `for (row, col) previous (i, j) in …`: the counters of the row and the column of the previous iteration's tile; in the first round
        /// they are `rows` and `cols`.
        previous: Option<[SymbolId; 2]>,
        /// Rows of tiles.
        rows: Expr,
        /// Columns of tiles.
        cols: Expr,
        /// The rasterization order.
        order: TileOrder<F>,
        /// Source of the tiles, if they are dealt out.
        dynamic: Option<Dealer>,
        /// The statements done for each tile.
        body: Vec<Stmt<F>>,
    },
    /// `drain { … }`: stands right behind a [`StmtKind::Tiles`] with [`previous`](StmtKind::Tiles::previous) and is done once, after its last
    /// round. The counters are of that round's tile; they are `rows` and `cols` where there was none.
    Drain {
        /// The counters that are the loop's `after`.
        previous: [SymbolId; 2],
        /// The statements done once.
        body: Vec<Stmt<F>>,
    },
    /// `dst = cast(src, dtype)`: converts each element, rounding to nearest even.
    Cast {
        /// The result; it has the type.
        dst: TensorId,
        /// The operand.
        src: TensorId,
    },
    /// `dst = rearrange(src)`: the same tile in another distribution over the threads (one that the statements
    /// that use `dst` want, or the pinned layout of `dst`).
    Rearrange {
        /// The result.
        dst: TensorId,
        /// The operand.
        src: TensorId,
    },
    /// `fill(dst, value)`: every element of a register tensor becomes `value`.
    Fill {
        /// The tensor.
        dst: TensorId,
        /// The value.
        value: f64,
    },
    /// `dst = expression`: elementwise over register tensors of one shape. Floats are evaluated in `f32` from operands
    /// converted exactly, and rounded once to the type of `dst`; integers and truth values are exact. See [`crate::arith`]. A tensor alone, of any type, is moved.
    Elementwise {
        /// The result.
        dst: TensorId,
        /// The expression.
        expr: ElemExpr,
    },
    /// `dst = transpose(src)` and the like: the elements of `src` in another shape, each unchanged. Costs nothing: it
    /// is another way to count the registers.
    Shape {
        /// The result; not `src`.
        dst: TensorId,
        /// The operand.
        src: TensorId,
        /// The relation of the shapes.
        op: ShapeOp<F>,
    },
    /// `dst = join(a, b)`: two tensors of one shape side by side along a new last mode of extent 2:
    /// `dst[…, 0] = a[…]`, `dst[…, 1] = b[…]`. Costs nothing.
    Join {
        /// The result; neither operand.
        dst: TensorId,
        /// The half at 0.
        a: TensorId,
        /// The half at 1.
        b: TensorId,
    },
    /// `lo, hi = split(src)`: `join` undone. The last mode of `src` has extent 2: `lo[…] = src[…, 0]`,
    /// `hi[…] = src[…, 1]`. Costs nothing.
    Split {
        /// The half at 0; not `src`.
        lo: TensorId,
        /// The half at 1; neither `src` nor `lo`.
        hi: TensorId,
        /// The operand.
        src: TensorId,
    },
    /// `dst = reduce(src, op, axis)`: the elements along one mode become one; the mode is gone (of a tensor of one mode,
    /// a tensor of shape `[1]` is left). See [`ReduceOp`] for what is computed.
    Reduce {
        /// The result, of the type of `src`.
        dst: TensorId,
        /// The operand.
        src: TensorId,
        /// The operation on two elements.
        op: ReduceOp,
        /// The mode that goes.
        axis: u32,
    },
    /// `dst = scan(src, op, axis)`, `dst = scan(a, b, linear, axis, h0)`, `dst = scan(…, reverse)`: every element becomes what those up to
    /// it along the mode come to, itself among them; `reverse` from the last to the first. See [`ScanOperands`].
    Scan {
        /// The result, of the shape and the type of its operands.
        dst: TensorId,
        /// The operands, with the operation.
        operands: ScanOperands,
        /// The mode.
        axis: u32,
        /// `reverse`: from the last element of the mode to the first.
        reverse: bool,
    },
    /// `m, s = reduce((x, e), f, axis)`, `m, s = scan((x, e), f, axis)`: tuples of elements put together along a mode by a function of the
    /// program, neighbours with neighbours; which of them first is the compiler's choice. Floats are combined in `f32` (`f64` in that), each result is
    /// rounded once to its element type.
    Combine {
        /// The results, one for each operand, of its type.
        dsts: Vec<TensorId>,
        /// The operands, of one shape: floats, `i32`, `u32`, `i64` or `u64`.
        srcs: Vec<TensorId>,
        /// The function.
        by: Combination,
        /// The mode.
        axis: u32,
        /// The results that are wanted.
        form: CombineForm,
    },
    /// `value, index = argmax(src, axis)`, `argmin`: the largest or the smallest element along one mode, and its coordinate there; of several
    /// the first. The mode is gone, as in a reduction.
    Arg {
        /// The element, of the type of `src`.
        value: TensorId,
        /// Its coordinate, `i32`; not `value`.
        index: TensorId,
        /// The operand.
        src: TensorId,
        /// The element that is looked for.
        op: ArgOp,
        /// The mode that goes.
        axis: u32,
    },
    /// `dst = sort(src, axis)`, `dst, values = sort(src, carried, axis)`, `descending`: the elements along one mode in their order, and others
    /// that go with them. What is equal keeps its order; NaNs are last either way, −0 lies below +0.
    Sort {
        /// The result, of the shape and the type of `src`.
        dst: TensorId,
        /// The operand; a power of two of elements along the mode.
        src: TensorId,
        /// The result and the operand that go with them; not `dst`.
        carried: Option<[TensorId; 2]>,
        /// The mode.
        axis: u32,
        /// `descending`: from the largest to the smallest.
        descending: bool,
    },
    /// `dst = gather(src, index, axis)`: `dst[…, i, …] = src[…, index[…, i, …] mod n, …]`, where `i` stands in mode
    /// `axis` and `n` is the extent of that mode of `src`. The remainder is not negative, so that every index is
    /// legal and −1 is the last. `dst` has the shape of `index` and the type of `src`.
    Gather {
        /// The result.
        dst: TensorId,
        /// The tensor that is read.
        src: TensorId,
        /// The coordinates along the mode: `i32`, of the shape of `src` but for that mode.
        index: TensorId,
        /// The mode.
        axis: u32,
    },
    /// `syncthreads()`, `syncthreads(warpgroup)`, `syncthreads(b)`: these threads arrive; writes before it are seen by all of them after it.
    Sync(SyncScope),
    /// `arrive(b)`: the threads of the role come to the named barrier and do not wait: what they did before is seen by those that wait there.
    Arrive(BarrierId),
    /// `b = named_barrier()`, `t = turns()`: a barrier of the roles that come to it exists from here on.
    Barrier(BarrierId),
    /// `in_turn t { … }`: waits until it is the role's turn, and passes the turn to the next role behind the body.
    InTurn {
        /// The turns.
        turns: BarrierId,
        /// The statements of the turn.
        body: Vec<Stmt<F>>,
    },
    /// `syncgrid(counter)`: all threads of all blocks arrive; what they read and wrote before comes before all that any of them does after.
    /// The blocks of the grid must all be resident. The parameter, `i32[1]`, is 0 at the first launch, and has another sign after each barrier.
    SyncGrid {
        /// The parameter by which blocks meet.
        counter: ParamId,
    },
    /// `signal(flag[i], value)`, `signal(flag[i], value, add)`: behind a barrier of the threads, the flag becomes the value, or is combined with
    /// it, and publishes what the threads read and wrote before: who waits for the flag, or draws a ticket of it, and finds that value or one that
    /// was made of it, comes after.
    Signal {
        /// The flag.
        flag: Flag,
        /// The value, an `i32`.
        value: Expr,
        /// The operation that combines the flag with the value; `None`: the value takes its place.
        combine: Option<RedOp>,
    },
    /// `wait(flag[i] >= least)`: the threads wait until the flag is at least so much, and what they do afterwards comes after what those who
    /// made it so had published. The blocks of the grid must all be resident.
    Await {
        /// The flag.
        flag: Flag,
        /// The least value of the flag, an `i32`.
        least: Expr,
    },
    /// `let symbol = ticket(flag[i], count)`: behind a barrier of the threads, the flag goes up by one, and from `count - 1` to 0; the ticket,
    /// from 0 to `count - 1`, is what it was. It publishes as [`StmtKind::Signal`] does, and what the threads do afterwards comes after what
    /// those who drew before had published.
    Ticket {
        /// The name of the number, to the end of the block around.
        symbol: SymbolId,
        /// The flag.
        flag: Flag,
        /// The number of tickets, at least 1.
        count: Expr,
    },
    /// `if condition { … }`: done where the integer is not 0. All threads of the block, or of the role, take the same way. `else { … }`
    /// is a statement of its own that stands right behind, with the opposite condition: nothing in between changes an integer.
    If {
        /// The condition of this side.
        condition: Expr,
        /// True for an `else`.
        otherwise: bool,
        /// The statements.
        body: Vec<Stmt<F>>,
    },
    /// `if any(condition, axis) { … }`: done at least for the rows in which an element of the condition is true, and right if it is done for
    /// others: each warp decides for the rows that it holds. A row is what coordinates along the other modes name.
    IfAny {
        /// A register tensor of truth values.
        condition: TensorId,
        /// The mode along which one true element decides.
        axis: u32,
        /// The statements, each row's of its own: elementwise statements, casts, reductions and scans along `axis`.
        body: Vec<Stmt<F>>,
    },
    /// `break`, `break if condition`: where the integer is not 0, the loop around ends here. Branches may stand between, and nothing else. In a
    /// core program it stands in the loop's body itself.
    Break {
        /// The condition; 1 of a `break` without.
        condition: Expr,
    },
    /// `assert(condition, "text")`: the interpreter and the simulator report where it does not hold; PTX has nothing of it.
    Assert {
        /// The condition.
        condition: Asserted,
        /// Words for the report: without quotation marks and line breaks.
        text: String,
    },
    /// `print("text", item, …)`: the interpreter and the simulator show the items; PTX has nothing of it. Of a shared tensor what the first
    /// of the threads to come here sees; nothing is ordered by it.
    Print {
        /// Words before the items: without quotation marks and line breaks.
        text: String,
        /// The items.
        items: Vec<PrintItem<F>>,
        /// The counters of the loops around. `None` before [`verify`](crate::verify()), which fills them in.
        iteration: Option<Iteration>,
    },
    /// `for counter in lo..hi { … }`, `for counter in lo..hi while condition { … }`: with a condition, up to the first iteration at whose
    /// beginning it is 0.
    For {
        /// The counter.
        counter: SymbolId,
        /// Its first value.
        lo: Expr,
        /// One past its last value.
        hi: Expr,
        /// The condition of an iteration and those behind it, over the counter too.
        condition: Option<Expr>,
        /// The statements of an iteration.
        body: Vec<Stmt<F>>,
    },
}

/// Calls `f` for every statement of a body, `depth` loops deep, and of the bodies within, each before its body.
pub(crate) fn visit<'a, F: Form>(body: &'a [Stmt<F>], depth: usize, f: &mut impl FnMut(&'a Stmt<F>, usize)) {
    for stmt in body {
        f(stmt, depth);
        visit(stmt.kind.body(), depth + usize::from(stmt.kind.repeats()), f);
    }
}

/// The statements of the `else` that stands right behind the `if` at a place of a body.
pub(crate) fn otherwise<F: Form>(body: &[Stmt<F>], at: usize) -> Option<&Stmt<F>> {
    let is_if = matches!(body.get(at)?.kind, StmtKind::If { otherwise: false, .. });
    body.get(at + 1).filter(|stmt| is_if && stmt.kind.is_otherwise())
}
