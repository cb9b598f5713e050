//! Statements: what a program's blocks do, and what every statement's operands are.

use std::fmt;

use tilewright_machine::{CacheHint, RedOp};

use crate::diagnostic::Origin;
use crate::elementwise::ElemExpr;
use crate::expr::{Expr, SymbolId};
use crate::ids::StmtId;
use crate::printer::Names;
use crate::program::{ParamId, PipelineId, TensorId};

/// A form of programs: types of what the surface program and the [core program](crate::core) write differently. Every statement is
/// defined once, for both.
pub trait Form: Copy + PartialEq + Eq + std::hash::Hash + fmt::Debug + Default + 'static {
    /// An integer that is known when the kernel is compiled.
    type Int: Clone + PartialEq + Eq + std::hash::Hash + fmt::Debug;
    /// An entry of an index into a view or a shared tensor.
    type Index: Clone + PartialEq + fmt::Debug;
    /// The name of a role, where roles are statements.
    type RoleName: Clone + PartialEq + fmt::Debug;

    /// The value of an integer; `None` before constants have values.
    fn value(int: &Self::Int) -> Option<i64>;
    /// The integer as an expression.
    fn int(int: &Self::Int) -> Expr;
    /// The text of a role's name.
    fn role(name: &Self::RoleName) -> &str;
    /// Writes an entry of an index as text.
    fn write_index(out: &mut dyn fmt::Write, names: &dyn Names, index: &Self::Index) -> fmt::Result;
}

/// The form of the programs that authors write: integers are expressions over constants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Surface;

impl Form for Surface {
    type Int = Expr;
    type Index = Expr;
    type RoleName = String;

    fn value(int: &Expr) -> Option<i64> {
        int.as_int()
    }

    fn int(int: &Expr) -> Expr {
        int.clone()
    }

    fn role(name: &String) -> &str {
        name
    }

    fn write_index(out: &mut dyn fmt::Write, names: &dyn Names, index: &Expr) -> fmt::Result {
        crate::printer::write_expr(out, names, index)
    }
}

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
}

/// The attributes of a [`StmtKind::CopyAsync`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsyncCopyAttrs {
    /// `multicast`: every block of the cluster copies the same tile, which is read once for all.
    pub multicast: bool,
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
    /// `t = global_view(…)`, `t = register_tensor(…)`, `t = shared_tensor(…)`: the tensor exists from here to the end of the
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
    Gemm {
        /// The accumulator.
        c: TensorId,
        /// The left factor.
        a: TensorId,
        /// The right factor, N×K.
        b: TensorId,
        /// `warps = (m, n)`: the warps of the block along M and along N; `None` leaves them to the compiler. Over constants and
        /// counters of `unroll for`.
        warps: Option<[F::Int; 2]>,
    },
    /// `gemm.async(c, a, b)`, `gemm.async(c, a, b, warpgroups = (2, 1))`: `c += a · bᵀ` by the asynchronous tensor cores of a warpgroup, with
    /// `c` M×N in registers, `a` M×K in shared memory or registers, `b` N×K in shared memory. Until the [`StmtKind::WaitGemm`] that
    /// covers it, nothing may read or write `c`, or write `a` or `b`.
    GemmAsync {
        /// The accumulator.
        c: TensorId,
        /// The left factor.
        a: TensorRef<F>,
        /// The right factor, N×K.
        b: TensorRef<F>,
        /// `warpgroups = (m, n)`: the warpgroups of the role along M and along N; `None` leaves them to the compiler. Over constants.
        warpgroups: Option<[F::Int; 2]>,
    },
    /// `commit_gemm()`: the asynchronous products since the last one become a group (perhaps an empty one).
    CommitGemm,
    /// `wait_gemm(n)`: of the groups of products so far, all but the `n` latest are complete. Over constants.
    WaitGemm(F::Int),
    /// `cluster_sum(c)`: `c` becomes, in every block of the cluster, the sum of the `c` of all its blocks, added in the order of their ranks.
    ClusterSum {
        /// A register tensor of `f32`.
        dst: TensorId,
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
    /// whose number is the cluster's index plus a multiple of the number of clusters (along x).
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
    /// `syncthreads()`: all threads of the block arrive; shared writes before it are seen by all after it.
    Sync,
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

/// A statement's use of a tensor, a counter or a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Use {
    /// It exists from here on: a tensor that holds anything yet, the counter of a loop in its body, a pipeline.
    Define,
    /// The result of `t = …`: overwritten, and it exists from here on, if it did not before.
    Assign,
    /// Overwritten.
    Write,
    /// Read and overwritten: an accumulator.
    Accumulate,
    /// Read.
    Read,
}

impl Use {
    /// True for what is overwritten.
    pub fn writes(self) -> bool {
        matches!(self, Use::Assign | Use::Write | Use::Accumulate)
    }

    /// True for what is read, also to add to it.
    pub fn reads(self) -> bool {
        matches!(self, Use::Read | Use::Accumulate)
    }
}

/// The statements that are plain calls, `name(arguments)`, one line each: all that the words of the language, the parser, the printer and
/// [`StmtKind::operands`] know of them. An argument is a tensor with its use, an integer that is known when the kernel is compiled
/// (`Int`), or a number (`Number`), with a noun for messages.
macro_rules! with_plain_statements {
    ($callback:ident! $arguments:tt) => {
        $callback! { $arguments
            commit_group() { StmtKind::Commit }
            wait_group(groups: Int "number of groups") { StmtKind::Wait(groups) }
            commit_gemm() { StmtKind::CommitGemm }
            wait_gemm(groups: Int "number of groups") { StmtKind::WaitGemm(groups) }
            fill(dst: Write "register tensor", value: Number "number") { StmtKind::Fill { dst, value } }
            cluster_sum(dst: Accumulate "register tensor") { StmtKind::ClusterSum { dst } }
            syncthreads() { StmtKind::Sync }
            wait_dependencies() { StmtKind::WaitDependencies }
            launch_dependents() { StmtKind::LaunchDependents }
        }
    };
}

/// An argument of a plain statement: a place in the table, or a value there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Argument<Tensor, Int, Number> {
    Tensor(Tensor),
    Int(Int),
    Number(Number),
}

/// An argument as the parser has read it.
pub(crate) type Parsed = Argument<TensorId, Expr, f64>;

/// A statement that is a plain call, as the parser reads it.
pub(crate) struct Plain {
    pub(crate) name: &'static str,
    /// The kinds of its arguments, of tensors with their use, each with a noun for messages.
    pub(crate) arguments: &'static [(Argument<Use, (), ()>, &'static str)],
    /// The statement with these arguments; `None` if they are of other kinds.
    pub(crate) make: fn(Vec<Parsed>) -> Option<StmtKind>,
}

macro_rules! argument_kind {
    (Int) => {
        Argument::Int(())
    };
    (Number) => {
        Argument::Number(())
    };
    ($used:ident) => {
        Argument::Tensor(Use::$used)
    };
}

macro_rules! argument_value {
    (Int $value:expr) => {
        Argument::Int($value)
    };
    (Number $value:expr) => {
        Argument::Number(*$value)
    };
    ($used:ident $value:expr) => {
        Argument::Tensor(*$value)
    };
}

macro_rules! argument_of {
    (Int $argument:expr) => {
        if let Some(Argument::Int(value)) = $argument { value } else { return None }
    };
    (Number $argument:expr) => {
        if let Some(Argument::Number(value)) = $argument { value } else { return None }
    };
    ($used:ident $argument:expr) => {
        if let Some(Argument::Tensor(value)) = $argument { value } else { return None }
    };
}

macro_rules! operand_of {
    ($Operand:ident Int $value:ident) => {
        Some($Operand::Constant($value))
    };
    ($Operand:ident Number $value:ident) => {{
        let _ = $value;
        None
    }};
    ($Operand:ident $used:ident $value:ident) => {
        Some($Operand::Tensor(Use::$used, $value))
    };
}

macro_rules! plain_statements {
    (() $($name:ident($($arg:ident: $shape:ident $noun:literal),*) { $($kind:tt)* })*) => {
        /// Every statement that is a plain call.
        pub(crate) const PLAIN: &[Plain] = &[$(Plain {
            name: stringify!($name),
            arguments: &[$((argument_kind!($shape), $noun)),*],
            #[allow(unused_mut, unused_variables)] // of statements without arguments
            make: |arguments| {
                let mut arguments = arguments.into_iter();
                $(let $arg = argument_of!($shape arguments.next());)*
                Some($($kind)*)
            },
        }),*];

        impl<F: Form> StmtKind<F> {
            /// The name and the arguments of a statement that is a plain call; `None` of any other.
            pub(crate) fn plain(&self) -> Option<(&'static str, Vec<Argument<TensorId, &F::Int, f64>>)> {
                match self {
                    $($($kind)* => Some((stringify!($name), vec![$(argument_value!($shape $arg)),*])),)*
                    _ => None,
                }
            }
        }
    };
}
with_plain_statements!(plain_statements!());

/// Defines an enum of operands, and the functions that list those of a statement. Twice: shared, and to change them.
macro_rules! operands {
    (
        ($Operand:ident, $operands:ident, $collect:ident, $doc:literal $(, $mut:tt)?)
        $($name:ident($($arg:ident: $shape:ident $noun:literal),*) { $($kind:tt)* })*
    ) => {
        #[doc = $doc]
        #[derive(Debug)]
        pub enum $Operand<'a, F: Form = Surface> {
            /// A whole tensor (or a [`TensorKind::Part`](crate::TensorKind::Part)).
            Tensor(Use, &'a $($mut)? TensorId),
            /// A tensor that may be indexed and transposed.
            Reference(Use, &'a $($mut)? TensorRef<F>),
            /// An integer over constants and counters of `unroll for`.
            Constant(&'a $($mut)? F::Int),
            /// An integer over sizes, block indices and the counters of the loops around.
            Expr(&'a $($mut)? Expr),
            /// A counter of a loop or the name of an integer, defined; of a `drain`, read: the loop before defines it.
            Counter(Use, &'a $($mut)? SymbolId),
            /// A pipeline: defined, filled or read.
            Pipeline(Use, &'a $($mut)? PipelineId),
            /// A scalar parameter.
            Scalar(&'a $($mut)? ParamId),
            /// The statements inside.
            Body(&'a $($mut)? Vec<Stmt<F>>),
        }

        impl<F: Form> StmtKind<F> {
            #[doc = $doc]
            ///
            /// In the order of the text; but the counters that a loop defines follow its bounds, then comes its condition, and its body is last.
            pub fn $operands(&$($mut)? self) -> Vec<$Operand<'_, F>> {
                use $Operand::{Body, Constant, Counter, Expr, Pipeline, Reference, Tensor};
                let mut out = Vec::new();
                match self {
                    StmtKind::Define(id) => out.push(Tensor(Use::Define, id)),
                    StmtKind::Let { symbol, value } => {
                        out.extend([Expr(value), Counter(Use::Define, symbol)]);
                    }
                    StmtKind::Copy { src, dst, how: _ } | StmtKind::CopyAsync { src, dst, how: _ } => {
                        out.extend([Reference(Use::Read, src), Reference(Use::Write, dst)]);
                    }
                    StmtKind::Gemm { c, a, b, warps } => {
                        out.extend([Tensor(Use::Accumulate, c), Tensor(Use::Read, a), Tensor(Use::Read, b)]);
                        if let Some([m, n]) = warps {
                            out.extend([Constant(m), Constant(n)]);
                        }
                    }
                    StmtKind::GemmAsync { c, a, b, warpgroups } => {
                        let factors = [Reference(Use::Read, a), Reference(Use::Read, b)];
                        out.push(Tensor(Use::Accumulate, c));
                        out.extend(factors);
                        if let Some([m, n]) = warpgroups {
                            out.extend([Constant(m), Constant(n)]);
                        }
                    }
                    $($($kind)* => {
                        let plain: [Option<$Operand<'_, F>>; _] = [$(operand_of!($Operand $shape $arg)),*];
                        out.extend(plain.into_iter().flatten());
                    })*
                    StmtKind::Pipeline(id) => out.push(Pipeline(Use::Define, id)),
                    StmtKind::Role { name: _, warpgroups, registers, body } => {
                        out.push(Constant(warpgroups));
                        if let Some(registers) = registers {
                            out.push(Constant(registers));
                        }
                        out.push(Body(body));
                    }
                    StmtKind::Stage { pipeline, side, body } => {
                        let side = match side {
                            Side::Produce => Use::Write,
                            Side::Consume => Use::Read,
                        };
                        out.push(Pipeline(side, pipeline));
                        out.push(Body(body));
                    }
                    StmtKind::Tiles { row, col, previous, rows, cols, order, body } => {
                        out.extend([Expr(rows), Expr(cols)]);
                        out.push(match order {
                            TileOrder::Grouped { rows, serpentine: _ } => Constant(rows),
                            TileOrder::Hilbert { order } => Constant(order),
                        });
                        out.extend([Counter(Use::Define, row), Counter(Use::Define, col)]);
                        if let Some([i, j]) = previous {
                            out.extend([Counter(Use::Define, i), Counter(Use::Define, j)]);
                        }
                        out.push(Body(body));
                    }
                    StmtKind::Drain { previous: [i, j], body } => {
                        out.extend([Counter(Use::Read, i), Counter(Use::Read, j), Body(body)]);
                    }
                    StmtKind::Cast { dst, src }
                    | StmtKind::Rearrange { dst, src }
                    | StmtKind::Reduce { dst, src, op: _, axis: _ } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, src)]);
                    }
                    StmtKind::Elementwise { dst, expr } => {
                        out.push(Tensor(Use::Assign, dst));
                        expr.$collect(&mut out);
                    }
                    StmtKind::Scan { dst, operands, axis: _, reverse: _ } => {
                        out.push(Tensor(Use::Assign, dst));
                        match operands {
                            ScanOperands::One { src, op: _ } => out.push(Tensor(Use::Read, src)),
                            ScanOperands::Linear { a, b, before } => {
                                out.extend([Tensor(Use::Read, a), Tensor(Use::Read, b)]);
                                if let Some(before) = before {
                                    out.push(Tensor(Use::Read, before));
                                }
                            }
                        }
                    }
                    StmtKind::Shape { dst, src, op } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, src)]);
                        match op {
                            ShapeOp::Reshape(shape) | ShapeOp::Broadcast(shape) => {
                                for extent in shape {
                                    out.push(Constant(extent));
                                }
                            }
                            ShapeOp::Slice { axis: _, start, extent } => {
                                out.extend([Constant(start), Constant(extent)]);
                            }
                            ShapeOp::Transpose(_) | ShapeOp::Expand { axis: _ } => {}
                        }
                    }
                    StmtKind::Join { dst, a, b } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, a), Tensor(Use::Read, b)]);
                    }
                    StmtKind::Split { lo, hi, src } => {
                        out.extend([Tensor(Use::Assign, lo), Tensor(Use::Assign, hi), Tensor(Use::Read, src)]);
                    }
                    StmtKind::Arg { value, index, src, op: _, axis: _ } => {
                        let results = [Tensor(Use::Assign, value), Tensor(Use::Assign, index)];
                        out.extend(results);
                        out.push(Tensor(Use::Read, src));
                    }
                    StmtKind::Sort { dst, src, carried, axis: _, descending: _ } => {
                        out.push(Tensor(Use::Assign, dst));
                        match carried {
                            Some([result, operand]) => {
                                let operands = [Tensor(Use::Read, src), Tensor(Use::Read, operand)];
                                out.push(Tensor(Use::Assign, result));
                                out.extend(operands);
                            }
                            None => out.push(Tensor(Use::Read, src)),
                        }
                    }
                    StmtKind::Gather { dst, src, index, axis: _ } => {
                        out.extend([Tensor(Use::Assign, dst), Tensor(Use::Read, src), Tensor(Use::Read, index)]);
                    }
                    StmtKind::If { condition, otherwise: _, body } => {
                        out.extend([Expr(condition), Body(body)]);
                    }
                    StmtKind::For { counter, lo, hi, condition, body } => {
                        out.extend([Expr(lo), Expr(hi), Counter(Use::Define, counter)]);
                        if let Some(condition) = condition {
                            out.push(Expr(condition));
                        }
                        out.push(Body(body));
                    }
                }
                out
            }
        }

        impl ElemExpr {
            fn $collect<'a, F: Form>(&'a $($mut)? self, out: &mut Vec<$Operand<'a, F>>) {
                match self {
                    ElemExpr::Tensor(id) => out.push($Operand::Tensor(Use::Read, id)),
                    ElemExpr::Scalar(id) => out.push($Operand::Scalar(id)),
                    ElemExpr::Int(e) => out.push($Operand::Expr(e)),
                    ElemExpr::Unary(_, x) | ElemExpr::Bitcast(_, x) => x.$collect(out),
                    ElemExpr::Binary(_, x, y) => {
                        x.$collect(out);
                        y.$collect(out);
                    }
                    ElemExpr::Where(operands) => {
                        for x in &$($mut)? **operands {
                            x.$collect(out);
                        }
                    }
                    ElemExpr::Number(_) | ElemExpr::Index(_) => {}
                }
            }
        }
    };
}
with_plain_statements!(operands!(
    Operand,
    operands,
    collect,
    "The operands of a statement: each use of a tensor, integer, counter, pipeline or body."
));
with_plain_statements!(operands!(
    OperandMut,
    operands_mut,
    collect_mut,
    "The operands of a statement, to change them.",
    mut
));

impl<F: Form> StmtKind<F> {
    /// The tensors of the statement and their uses, in the order of the text; not those of the statements inside.
    pub fn tensors(&self) -> Vec<(Use, TensorId)> {
        let tensors = |operand| match operand {
            Operand::Tensor(used, id) => [Some((used, *id)), None],
            Operand::Reference(used, r) => {
                [Some((used, r.tensor)), r.indexed.map(|indexed| (Use::Read, indexed.by))]
            }
            _ => [None, None],
        };
        self.operands().into_iter().flat_map(tensors).flatten().collect()
    }

    fn tensors_with(&self, with: impl Fn(Use) -> bool) -> Vec<TensorId> {
        self.tensors().into_iter().filter(|(used, _)| with(*used)).map(|(_, id)| id).collect()
    }

    /// The tensors that the statement assigns to (`t = …`): each exists from here on, if it did not before.
    pub fn assigned(&self) -> Vec<TensorId> {
        self.tensors_with(|used| matches!(used, Use::Define | Use::Assign))
    }

    /// The tensors that the statement reads, in the order of the text; an accumulator counts.
    pub fn reads(&self) -> Vec<TensorId> {
        self.tensors_with(Use::reads)
    }

    /// The tensors that the statement writes.
    pub fn writes(&self) -> Vec<TensorId> {
        self.tensors_with(Use::writes)
    }

    /// The references of a statement whose operands may be indexed, and their uses.
    pub fn references(&self) -> Vec<(Use, &TensorRef<F>)> {
        let reference = |operand| match operand {
            Operand::Reference(used, r) => Some((used, r)),
            _ => None,
        };
        self.operands().into_iter().filter_map(reference).collect()
    }

    /// The statements inside a loop, a branch, a `drain`, a role or a stage; none of any other.
    pub fn body(&self) -> &[Stmt<F>] {
        match self {
            StmtKind::For { body, .. }
            | StmtKind::If { body, .. }
            | StmtKind::Role { body, .. }
            | StmtKind::Stage { body, .. }
            | StmtKind::Tiles { body, .. }
            | StmtKind::Drain { body, .. } => body,
            _ => &[],
        }
    }

    /// The same, to change them.
    pub fn body_mut(&mut self) -> Option<&mut Vec<Stmt<F>>> {
        match self {
            StmtKind::For { body, .. }
            | StmtKind::If { body, .. }
            | StmtKind::Role { body, .. }
            | StmtKind::Stage { body, .. }
            | StmtKind::Tiles { body, .. }
            | StmtKind::Drain { body, .. } => Some(body),
            _ => None,
        }
    }

    /// True if the body is done any number of times.
    pub fn repeats(&self) -> bool {
        matches!(self, StmtKind::For { .. } | StmtKind::Tiles { .. })
    }

    /// The operation by which a copy combines elements with those of its destination, if it does.
    pub fn combines(&self) -> Option<RedOp> {
        match self {
            StmtKind::Copy { how, .. } => how.combine,
            StmtKind::CopyAsync { how, .. } => how.add.then_some(RedOp::Add),
            _ => None,
        }
    }

    /// True if the body may not be done at all: of a loop, of a branch.
    pub fn is_optional(&self) -> bool {
        self.repeats() || matches!(self, StmtKind::If { .. })
    }

    /// True for an `else`.
    pub fn is_otherwise(&self) -> bool {
        matches!(self, StmtKind::If { otherwise: true, .. })
    }

    /// Source and destination of a copy of either kind that threads do: not by the tensor memory accelerator.
    pub fn copied(&self) -> Option<(&TensorRef<F>, &TensorRef<F>)> {
        match self {
            StmtKind::CopyAsync { how, .. } if how.tensor => None,
            StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } => Some((src, dst)),
            _ => None,
        }
    }
}

impl StmtKind {
    /// Calls `visit` for every integer expression, also in indices and in the statements inside.
    pub fn exprs_mut(&mut self, visit: &mut impl FnMut(&mut Expr)) {
        for operand in self.operands_mut() {
            match operand {
                OperandMut::Constant(e) | OperandMut::Expr(e) => visit(e),
                OperandMut::Reference(_, r) => r.index.iter_mut().flatten().for_each(&mut *visit),
                OperandMut::Body(body) => body.iter_mut().for_each(|stmt| stmt.kind.exprs_mut(visit)),
                OperandMut::Tensor(..)
                | OperandMut::Counter(..)
                | OperandMut::Pipeline(..)
                | OperandMut::Scalar(_) => {}
            }
        }
    }
}

/// The relation of the result of a [`StmtKind::Shape`] to its operand. Elements are counted colexicographically, the leftmost
/// mode fastest, as everywhere.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ShapeOp<F: Form = Surface> {
    /// `transpose(r, 1, 0, 2)`: mode `i` of the result is mode `order[i]` of the operand. Each mode occurs once.
    Transpose(Vec<u32>),
    /// `reshape(r, [A, B])`: the same elements in the same order, in this shape.
    Reshape(Vec<F::Int>),
    /// `expand(r, axis)`: a new mode of extent 1, which is mode `axis` of the result.
    Expand {
        /// From 0 to the number of modes of the operand.
        axis: u32,
    },
    /// `slice(r, axis, start, extent)`: of mode `axis`, the coordinates from `start` on, `extent` of them.
    Slice {
        /// The mode.
        axis: u32,
        /// The first coordinate, over constants and counters of `unroll for`.
        start: F::Int,
        /// The number of coordinates, over constants.
        extent: F::Int,
    },
    /// `broadcast(r, [A, B])`: modes of extent 1 are repeated to these extents; the others have them already.
    Broadcast(Vec<F::Int>),
}

impl<F: Form> ShapeOp<F> {
    /// The word of the tile language.
    pub fn name(&self) -> &'static str {
        match self {
            ShapeOp::Transpose(_) => "transpose",
            ShapeOp::Reshape(_) => "reshape",
            ShapeOp::Expand { .. } => "expand",
            ShapeOp::Slice { .. } => "slice",
            ShapeOp::Broadcast(_) => "broadcast",
        }
    }
}

/// The operation of a [`StmtKind::Reduce`]. The order of the elements is the compiler's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// `sum`: floats are added in `f32`, and the sum is rounded once to the element type; `i32` counts modulo 2³².
    /// There is no sum of integers of 8 bits and fewer.
    Sum,
    /// `max`: the largest. A NaN loses to every number.
    Max,
    /// `min`: the smallest. A NaN loses to every number.
    Min,
    /// `product`: floats are multiplied in `f32`, and the product is rounded once to the element type; `i32` counts modulo 2³².
    /// There is no product of integers of 8 bits and fewer.
    Product,
}

impl ReduceOp {
    /// All, in the order of the grammar.
    pub const ALL: [ReduceOp; 4] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min, ReduceOp::Product];

    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            ReduceOp::Sum => "sum",
            ReduceOp::Max => "max",
            ReduceOp::Min => "min",
            ReduceOp::Product => "product",
        }
    }

    /// True if it computes new numbers, which are rounded: the others choose among the elements.
    pub fn computes(self) -> bool {
        matches!(self, ReduceOp::Sum | ReduceOp::Product)
    }
}

/// The element that a [`StmtKind::Arg`] finds. The order is that of [`ReduceOp::Max`]: a NaN loses to every number, −0 lies below +0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArgOp {
    /// `argmax`: the largest.
    Max,
    /// `argmin`: the smallest.
    Min,
}

impl ArgOp {
    /// All, in the order of the grammar.
    pub const ALL: [ArgOp; 2] = [ArgOp::Max, ArgOp::Min];

    /// The word of the tile language.
    pub fn name(self) -> &'static str {
        match self {
            ArgOp::Max => "argmax",
            ArgOp::Min => "argmin",
        }
    }

    /// The reduction to the same element.
    pub fn extreme(self) -> ReduceOp {
        match self {
            ArgOp::Max => ReduceOp::Max,
            ArgOp::Min => ReduceOp::Min,
        }
    }
}

/// The operands of a [`StmtKind::Scan`]. Floats are combined in `f32`, each result is rounded once to the element type; which elements are
/// put together first is the compiler's choice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ScanOperands {
    /// `scan(src, op, axis)`: sums, products, the largest or the smallest so far.
    One {
        /// The operand.
        src: TensorId,
        /// The operation on two elements.
        op: ReduceOp,
    },
    /// `scan(a, b, linear, axis)`, `scan(a, b, linear, axis, h0)`: hₜ = aₜ·hₜ₋₁ + bₜ of floats, from h₋₁ = `h0`, or 0.
    Linear {
        /// The factors.
        a: TensorId,
        /// The terms, of the same shape and type.
        b: TensorId,
        /// The state before the first: of extent 1 along the mode, or without it. In a reverse scan it is the state behind the last.
        before: Option<TensorId>,
    },
}

impl ScanOperands {
    /// The operands of the result's shape, in the order of the text.
    pub fn tensors(&self) -> Vec<TensorId> {
        match self {
            ScanOperands::One { src, .. } => vec![*src],
            ScanOperands::Linear { a, b, .. } => vec![*a, *b],
        }
    }
}

impl ElemExpr {
    /// Calls `visit` for every use of a tensor.
    pub(crate) fn tensors_mut(&mut self, mut visit: impl FnMut(&mut TensorId)) {
        let mut operands: Vec<OperandMut<'_>> = Vec::new();
        self.collect_mut(&mut operands);
        for operand in operands {
            if let OperandMut::Tensor(_, id) = operand {
                visit(id);
            }
        }
    }
}

/// Conversion of the parts of statements that differ between the forms `F` and `G`.
pub trait Convert<F: Form, G: Form> {
    /// Reason why something cannot be converted.
    type Error;
    /// An integer.
    fn int(&mut self, int: &F::Int) -> Result<G::Int, Self::Error>;
    /// An entry of an index.
    fn index(&mut self, index: &F::Index) -> Result<G::Index, Self::Error>;
    /// The name of a role.
    fn role(&mut self, name: &F::RoleName) -> Result<G::RoleName, Self::Error>;

    /// A reference.
    ///
    /// # Errors
    ///
    /// The error of an entry of its index.
    fn reference(&mut self, r: &TensorRef<F>) -> Result<TensorRef<G>, Self::Error> {
        let index = r.index.iter().map(|entry| entry.as_ref().map(|e| self.index(e)).transpose());
        let index = index.collect::<Result<_, _>>()?;
        let TensorRef { tensor, indexed, transposed, span, .. } = *r;
        Ok(TensorRef { tensor, index, indexed, transposed, span })
    }

    /// A number of warps or warpgroups along M and N.
    ///
    /// # Errors
    ///
    /// The error of an integer.
    fn shares(&mut self, shares: &Option<[F::Int; 2]>) -> Result<Option<[G::Int; 2]>, Self::Error> {
        let Some([m, n]) = shares else { return Ok(None) };
        Ok(Some([self.int(m)?, self.int(n)?]))
    }

    /// Statements.
    ///
    /// # Errors
    ///
    /// The error of one of them.
    fn body(&mut self, body: &[Stmt<F>]) -> Result<Vec<Stmt<G>>, Self::Error> {
        body.iter()
            .map(|stmt| Ok(Stmt { id: stmt.id, kind: self.kind(&stmt.kind)?, span: stmt.span }))
            .collect()
    }

    /// Converts a shape statement's operation.
    ///
    /// # Errors
    ///
    /// The error of an integer.
    fn shape(&mut self, op: &ShapeOp<F>) -> Result<ShapeOp<G>, Self::Error> {
        Ok(match op {
            ShapeOp::Transpose(order) => ShapeOp::Transpose(order.clone()),
            ShapeOp::Reshape(shape) => {
                ShapeOp::Reshape(shape.iter().map(|e| self.int(e)).collect::<Result<_, _>>()?)
            }
            ShapeOp::Expand { axis } => ShapeOp::Expand { axis: *axis },
            ShapeOp::Slice { axis, start, extent } => {
                ShapeOp::Slice { axis: *axis, start: self.int(start)?, extent: self.int(extent)? }
            }
            ShapeOp::Broadcast(shape) => {
                ShapeOp::Broadcast(shape.iter().map(|e| self.int(e)).collect::<Result<_, _>>()?)
            }
        })
    }

    /// Converts a statement's kind and its parts.
    ///
    /// # Errors
    ///
    /// The error of one of the parts.
    fn kind(&mut self, kind: &StmtKind<F>) -> Result<StmtKind<G>, Self::Error> {
        Ok(match kind {
            StmtKind::Define(id) => StmtKind::Define(*id),
            StmtKind::Let { symbol, value } => StmtKind::Let { symbol: *symbol, value: value.clone() },
            StmtKind::Copy { src, dst, how } => {
                StmtKind::Copy { src: self.reference(src)?, dst: self.reference(dst)?, how: *how }
            }
            StmtKind::CopyAsync { src, dst, how } => {
                StmtKind::CopyAsync { src: self.reference(src)?, dst: self.reference(dst)?, how: *how }
            }
            StmtKind::Commit => StmtKind::Commit,
            StmtKind::Wait(groups) => StmtKind::Wait(self.int(groups)?),
            StmtKind::Gemm { c, a, b, warps } => {
                StmtKind::Gemm { c: *c, a: *a, b: *b, warps: self.shares(warps)? }
            }
            StmtKind::GemmAsync { c, a, b, warpgroups } => StmtKind::GemmAsync {
                c: *c,
                a: self.reference(a)?,
                b: self.reference(b)?,
                warpgroups: self.shares(warpgroups)?,
            },
            StmtKind::CommitGemm => StmtKind::CommitGemm,
            StmtKind::WaitGemm(groups) => StmtKind::WaitGemm(self.int(groups)?),
            StmtKind::ClusterSum { dst } => StmtKind::ClusterSum { dst: *dst },
            StmtKind::WaitDependencies => StmtKind::WaitDependencies,
            StmtKind::LaunchDependents => StmtKind::LaunchDependents,
            StmtKind::Pipeline(id) => StmtKind::Pipeline(*id),
            StmtKind::Role { name, warpgroups, registers, body } => StmtKind::Role {
                name: self.role(name)?,
                warpgroups: self.int(warpgroups)?,
                registers: registers.as_ref().map(|n| self.int(n)).transpose()?,
                body: self.body(body)?,
            },
            StmtKind::Stage { pipeline, side, body } => {
                StmtKind::Stage { pipeline: *pipeline, side: *side, body: self.body(body)? }
            }
            StmtKind::Tiles { row, col, previous, rows, cols, order, body } => StmtKind::Tiles {
                row: *row,
                col: *col,
                previous: *previous,
                rows: rows.clone(),
                cols: cols.clone(),
                order: match order {
                    TileOrder::Grouped { rows, serpentine } => {
                        TileOrder::Grouped { rows: self.int(rows)?, serpentine: *serpentine }
                    }
                    TileOrder::Hilbert { order } => TileOrder::Hilbert { order: self.int(order)? },
                },
                body: self.body(body)?,
            },
            StmtKind::Drain { previous, body } => {
                StmtKind::Drain { previous: *previous, body: self.body(body)? }
            }
            StmtKind::Cast { dst, src } => StmtKind::Cast { dst: *dst, src: *src },
            StmtKind::Rearrange { dst, src } => StmtKind::Rearrange { dst: *dst, src: *src },
            StmtKind::Fill { dst, value } => StmtKind::Fill { dst: *dst, value: *value },
            StmtKind::Elementwise { dst, expr } => StmtKind::Elementwise { dst: *dst, expr: expr.clone() },
            StmtKind::Shape { dst, src, op } => StmtKind::Shape { dst: *dst, src: *src, op: self.shape(op)? },
            StmtKind::Join { dst, a, b } => StmtKind::Join { dst: *dst, a: *a, b: *b },
            StmtKind::Split { lo, hi, src } => StmtKind::Split { lo: *lo, hi: *hi, src: *src },
            StmtKind::Reduce { dst, src, op, axis } => {
                StmtKind::Reduce { dst: *dst, src: *src, op: *op, axis: *axis }
            }
            StmtKind::Scan { dst, operands, axis, reverse } => {
                StmtKind::Scan { dst: *dst, operands: *operands, axis: *axis, reverse: *reverse }
            }
            StmtKind::Arg { value, index, src, op, axis } => {
                StmtKind::Arg { value: *value, index: *index, src: *src, op: *op, axis: *axis }
            }
            StmtKind::Sort { dst, src, carried, axis, descending } => StmtKind::Sort {
                dst: *dst,
                src: *src,
                carried: *carried,
                axis: *axis,
                descending: *descending,
            },
            StmtKind::Gather { dst, src, index, axis } => {
                StmtKind::Gather { dst: *dst, src: *src, index: *index, axis: *axis }
            }
            StmtKind::Sync => StmtKind::Sync,
            StmtKind::If { condition, otherwise, body } => {
                StmtKind::If { condition: condition.clone(), otherwise: *otherwise, body: self.body(body)? }
            }
            StmtKind::For { counter, lo, hi, condition, body } => StmtKind::For {
                counter: *counter,
                lo: lo.clone(),
                hi: hi.clone(),
                condition: condition.clone(),
                body: self.body(body)?,
            },
        })
    }
}
