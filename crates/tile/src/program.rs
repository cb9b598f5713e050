//! The tile program: what the text form, the Rust DSL and every later stage share.
//!
//! It is structured, not SSA: tensors are named places, statements act on them in order, loops nest.
//! A layout in a program maps *coordinates to places*: a global view's layout maps a coordinate of the tile to a
//! coordinate of the buffer; a pinned register layout maps (thread, value) to the tile's linear coordinate; a
//! pinned shared layout maps the tile's coordinate to an offset in elements.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_layout::{Layout, SwizzledLayout};
use tilewright_machine::{DType, Memory, Number};

use crate::diagnostic::Origin;
pub use crate::elementwise::{Asm, BinaryOp, Combination, ElemExpr, Notation, PACKED, UnaryOp};
use crate::expr::{Expr, SymbolId};
use crate::ids::StmtIds;
pub use crate::ids::{BarrierId, BarrierKind, ParamId, PipelineId, TensorId};
use crate::sources::Sources;
pub use crate::statement::{
    ArgOp, Asserted, AsyncCopyAttrs, CombineForm, CopyAttrs, Dealer, Fetch, Flag, Form, IndexedMode,
    Iteration, Literal, Operand, OperandMut, PrintItem, ReduceOp, ScanOperands, ShapeOp, Side, Stmt,
    StmtKind, Surface, SyncScope, TensorRef, TileOrder, Use,
};

/// A tile program: one kernel.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The kernel's name, also its entry point in PTX.
    pub name: String,
    /// Sizes, constants (both in the order of declaration), names of integers and loop counters (in the order of the text).
    pub symbols: Vec<Symbol>,
    /// Parameters, in the order in which a launch passes them. Sizes follow them, in their own order.
    pub params: Vec<Param>,
    /// Blocks along x, y and z; one to three expressions over constants and sizes.
    pub grid: Vec<Expr>,
    /// The place of the grid.
    pub grid_span: Origin,
    /// Threads of a block; an expression over constants.
    pub threads: Expr,
    /// The place of the number of threads.
    pub threads_span: Origin,
    /// Blocks that one multiprocessor has registers for, at least; an expression over constants, 1 where the program says nothing.
    pub resident: Expr,
    /// Blocks of a cluster along each of its one or two modes: neighbours along x, of which ranks count the first mode fastest. Expressions
    /// over constants; one of 1 where the program says nothing.
    pub cluster: Vec<Expr>,
    /// The place of the cluster.
    pub cluster_span: Origin,
    /// Every tensor, in the order of definition.
    pub tensors: Vec<Tensor>,
    /// Every pipeline, in the order of definition.
    pub pipelines: Vec<Pipeline>,
    /// Every named barrier, in the order of definition.
    pub barriers: Vec<Barrier>,
    /// The ids of statements.
    pub statements: StmtIds,
    /// The statements of a block.
    pub body: Vec<Stmt>,
    /// Values of constants that a tuner may choose, each constant once.
    pub space: Vec<Dimension>,
    /// The texts that it was read from; none of one that was built.
    pub sources: Sources,
}

/// Kernels that are launched one after another, as one text declares them. A tensor of a name is one buffer for all of them: what one writes,
/// the next reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Module {
    /// The kernels, in the order in which they run; one at least. Each has the sizes and constants that it mentions.
    pub programs: Vec<Program>,
    /// The texts that they were read from.
    pub sources: Sources,
}

impl Module {
    /// Kernels that were built apart, in the order in which they run, as one text can declare them: a constant of a name that stands for a size or
    /// for another value in a kernel before is renamed, with the kernel's name behind its own (`BM_split_sum`).
    pub fn of(mut programs: Vec<Program>) -> Self {
        let sizes: BTreeSet<String> =
            programs.iter().flat_map(|p| p.sizes()).map(|(_, symbol, _)| symbol.name.clone()).collect();
        let mut taken: BTreeSet<String> =
            programs.iter().flat_map(Program::names).map(str::to_string).collect();
        let mut known: BTreeMap<String, Option<i64>> = BTreeMap::new();
        for program in &mut programs {
            for (id, value) in program.constant_values() {
                let name = &mut program.symbols[id.0 as usize].name;
                let differs = known.get(name).is_some_and(|other| value.is_none() || *other != value);
                if differs || sizes.contains(name) {
                    name.push_str(&format!("_{}", program.name));
                    while !taken.insert(name.clone()) {
                        name.push('_');
                    }
                }
                known.insert(name.clone(), value);
            }
        }
        Module { programs, sources: Sources::default() }
    }
}

/// A constant with the values that a tuner may choose.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dimension {
    /// The constant.
    pub constant: SymbolId,
    /// The values, in the order in which they are written.
    pub values: Vec<i64>,
    /// The place of the values.
    pub span: Origin,
}

/// A named integer.
#[derive(Clone, PartialEq, Debug)]
pub struct Symbol {
    /// The name.
    pub name: String,
    /// Its meaning.
    pub kind: SymbolKind,
    /// The place of its declaration.
    pub span: Origin,
}

/// The meaning of a [`Symbol`].
#[derive(Clone, PartialEq, Debug)]
pub enum SymbolKind {
    /// A tile constant: known when the kernel is compiled. The expression, over earlier constants, is its default.
    Constant(Expr),
    /// A run-time size, passed at launch; at least 1. The number is its default.
    Size(i64),
    /// The name that a [`StmtKind::Let`] gives an integer, to the end of the block around.
    Let,
    /// The name of a ticket ([`StmtKind::Ticket`]), to the end of the block around.
    Ticket,
    /// A loop's counter.
    Counter,
    /// The counter of an `unroll(n) for`: a loop of any bounds, `n` of whose iterations are written out at a time. The number is over
    /// constants.
    UnrolledBy(Expr),
    /// The counter of an `unroll for`: the loop's bounds are constants, and [`unroll`](crate::unroll()) puts its values in its
    /// place.
    Unrolled,
}

/// A kernel's parameter.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// The name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// A buffer, or one number.
    pub kind: ParamKind,
    /// The place of its declaration.
    pub span: Origin,
}

impl Param {
    /// The types of numbers that a launch passes.
    pub const SCALARS: [DType; 6] = [DType::F32, DType::F64, DType::I32, DType::U32, DType::I64, DType::U64];

    /// True for a tensor that is marked `constant`.
    pub fn is_constant(&self) -> bool {
        matches!(self.kind, ParamKind::Tensor { constant: true, .. })
    }

    /// True for a scalar of an integer type.
    pub fn is_integer(&self) -> bool {
        matches!(self.kind, ParamKind::Scalar { .. }) && self.dtype.range().is_some()
    }

    /// True for an integer that integer expressions may have: those have 32 bits and a sign.
    pub fn is_signed_integer(&self) -> bool {
        self.is_integer() && self.dtype == DType::I32
    }

    /// The default of a scalar of an integer type, if an `i64` is it.
    pub fn integer(&self) -> Option<i64> {
        match self.kind {
            // The verifier knows that it is a value of the type.
            ParamKind::Scalar { default } if self.is_integer() => i64::try_from(default.integer()?).ok(),
            _ => None,
        }
    }

    /// The strides in elements: those given, else those of a row-major tensor; empty for a scalar. The first mode of an array of tensors has the
    /// number of elements that each of them spans: what is one step where they lie one behind the other, as in the interpreter.
    pub fn strides(&self) -> Vec<Expr> {
        match &self.kind {
            ParamKind::Tensor { shape, strides, array: false, .. } => {
                strides.clone().unwrap_or_else(|| row_major(shape))
            }
            ParamKind::Tensor { shape, strides, array: true, .. } => {
                let shape = shape.get(1..).unwrap_or_default();
                let within = strides.clone().unwrap_or_else(|| row_major(shape));
                [span(shape, &within)].into_iter().chain(within).collect()
            }
            ParamKind::Scalar { .. } => Vec::new(),
        }
    }

    /// True for an array of tensors.
    pub fn is_array(&self) -> bool {
        matches!(self.kind, ParamKind::Tensor { array: true, .. })
    }
}

/// The strides of a row-major tensor: the last mode is contiguous.
pub(crate) fn row_major(shape: &[Expr]) -> Vec<Expr> {
    let mut strides = vec![Expr::Int(1); shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = shape[d].clone() * &strides[d];
    }
    strides
}

/// The number of elements that a tensor spans: one more than the offset of its last element.
fn span(shape: &[Expr], strides: &[Expr]) -> Expr {
    if *strides == row_major(shape) {
        return shape.iter().fold(Expr::Int(1), |product, extent| product * extent);
    }
    let steps = shape.iter().zip(strides).map(|(extent, stride)| (extent.clone() - 1) * stride);
    steps.fold(Expr::Int(1), |sum, step| sum + step)
}

/// The kind of a [`Param`].
#[derive(Clone, PartialEq, Debug)]
pub enum ParamKind {
    /// A tensor in global memory.
    Tensor {
        /// Its shape: expressions over sizes and constants.
        shape: Vec<Expr>,
        /// Its strides in elements; `None` means row-major (the last mode contiguous). Of an array of tensors, those within each of them.
        strides: Option<Vec<Expr>>,
        /// True for an array of tensors of one shape, each a buffer of its own, that lie anywhere in memory: the first mode counts them, and the
        /// others are those of each.
        array: bool,
        /// `constant`: no launch of a sequence of launches that overlap writes it, so that it may be read before
        /// [`StmtKind::WaitDependencies`].
        constant: bool,
    },
    /// A number of type `f32`, `f64`, `i32` (an integer of the kernel), `u32`, `i64` or `u64`, with the default that `tilewright run` passes.
    Scalar {
        /// The default.
        default: Number,
    },
}

/// A ring of stages between one role that fills them and one that reads them.
///
/// Each shared tensor of the pipeline exists once a stage. Inside a `produce` or `consume` of the pipeline its name stands for
/// that of the current stage; outside, it cannot be used.
#[derive(Clone, PartialEq, Debug)]
pub struct Pipeline {
    /// The name.
    pub name: String,
    /// The number of stages: an expression over constants.
    pub stages: Expr,
    /// The shared tensors of a stage.
    pub tensors: Vec<TensorId>,
    /// The place of its definition.
    pub span: Origin,
}

/// A barrier of several roles: those that have statements of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Barrier {
    /// The name.
    pub name: String,
    /// The way in which roles come to it. Core programs have named barriers alone.
    pub kind: BarrierKind,
    /// The place of its definition.
    pub span: Origin,
}

/// A tensor of the program.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// Element type; for a view, its parameter's.
    pub dtype: DType,
    /// Its memory and its shape.
    pub kind: TensorKind,
    /// The place of its definition.
    pub span: Origin,
    /// The expression whose value it holds, where the author gave that no name.
    pub unnamed: Unnamed,
}

impl Tensor {
    /// The memory this tensor lives in.
    pub fn memory(&self) -> Memory {
        match self.kind {
            TensorKind::View { .. } => Memory::Global,
            TensorKind::Shared { .. } => Memory::Shared,
            TensorKind::Tensor { .. } => Memory::Tensor,
            TensorKind::Register { .. } | TensorKind::Part { .. } => Memory::Register,
        }
    }
}

/// The memory and the shape of a [`Tensor`].
#[derive(Clone, PartialEq, Debug)]
pub enum TensorKind {
    /// `global_view`: a part of a parameter's buffer, seen in another shape.
    View {
        /// The buffer.
        param: ParamId,
        /// The buffer's coordinate at which the view starts, one expression a mode of the buffer.
        offsets: Vec<Expr>,
        /// The end of the view, if before the buffer's: one entry a mode of the buffer. Elements behind it read as zero and are not written.
        ends: Vec<Option<Expr>>,
        /// The view's modes.
        modes: Vec<ViewMode>,
        /// `fold = (q, p, nb) : (2 * e2, 2 * e1, e0)`: the leaves of a mode that folds modes of the buffer, leftmost fastest; none where the view
        /// has no such mode. It counts as one more mode of the buffer, behind the others.
        fold: Vec<ViewLeaf>,
    },
    /// `shared_tensor`.
    Shared {
        /// Its shape: expressions over constants.
        shape: Vec<Expr>,
        /// A layout that the user insists on (tile coordinate → offset in elements).
        pinned: Option<SwizzledLayout>,
    },
    /// `tensor_memory`: sums of products, or a left factor, in the memory of the tensor cores.
    Tensor {
        /// Its shape: expressions over constants.
        shape: Vec<Expr>,
    },
    /// `register_tensor`, or the result of an assignment: of a `cast`, a `rearrange`, an elementwise statement, a
    /// [`StmtKind::Shape`], `join`, `split`, `reduce` or `gather`.
    Register {
        /// Its shape: expressions over constants.
        shape: Vec<Expr>,
        /// A thread-value layout that the user insists on ((thread, value) → linear coordinate in the tile).
        pinned: Option<Layout>,
    },
    /// A part of a register tensor, as a statement's operand names it: `ra[:, :, kk % 2]`. It is never defined; it exists where
    /// the tensor does. [`unroll`](crate::unroll()) makes a tensor of its own of every part.
    Part {
        /// The register tensor.
        of: TensorId,
        /// One entry a mode: an expression over constants and counters of `unroll for` fixes it, `None` keeps it.
        index: Vec<Option<Expr>>,
        /// The extents of the modes that are kept.
        shape: Vec<Expr>,
    },
}

impl TensorKind {
    /// Calls `visit` for every integer expression.
    pub fn exprs_mut(&mut self, visit: &mut impl FnMut(&mut Expr)) {
        match self {
            TensorKind::View { param: _, offsets, ends, modes, fold } => {
                offsets.iter_mut().chain(ends.iter_mut().flatten()).for_each(&mut *visit);
                for leaf in modes.iter_mut().flat_map(|mode| &mut mode.leaves).chain(fold) {
                    [&mut leaf.extent, &mut leaf.scale].into_iter().for_each(&mut *visit);
                }
            }
            TensorKind::Shared { shape, pinned: _ }
            | TensorKind::Register { shape, pinned: _ }
            | TensorKind::Tensor { shape } => {
                shape.iter_mut().for_each(visit);
            }
            TensorKind::Part { of: _, index, shape } => {
                index.iter_mut().flatten().chain(shape).for_each(visit);
            }
        }
    }
}

/// One mode of a global view: a layout from the mode's coordinate to coordinates of the buffer.
///
/// `BK : 1 e1` walks the buffer's mode 1; `ceil_div(k, BK) : BK e1` steps over it tile by tile. A mode of several
/// leaves walks the leftmost fastest.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewMode {
    /// The mode's leaves, leftmost fastest; at least one.
    pub leaves: Vec<ViewLeaf>,
}

/// `extent : scale·e_dim`: `extent` steps of `scale` along mode `dim` of the buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewLeaf {
    /// The number of steps. An expression over constants for a mode of the tile; sizes may occur in a mode that
    /// every use indexes (an iteration mode).
    pub extent: Expr,
    /// The mode of the buffer that it walks.
    pub dim: u32,
    /// The length of a step: an expression over constants.
    pub scale: Expr,
}

impl Program {
    /// A new statement, which belongs nowhere yet.
    pub fn statement(&mut self, kind: StmtKind, span: Origin) -> Stmt {
        Stmt { id: self.statements.fresh(None), kind, span }
    }

    /// The symbol's row.
    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        &self.symbols[id.0 as usize]
    }

    /// The parameter's row.
    pub fn param(&self, id: ParamId) -> &Param {
        &self.params[id.0 as usize]
    }

    /// The pipeline's row.
    pub fn pipeline(&self, id: PipelineId) -> &Pipeline {
        &self.pipelines[id.0 as usize]
    }

    /// The named barrier's row.
    pub fn barrier(&self, id: BarrierId) -> &Barrier {
        &self.barriers[id.0 as usize]
    }

    /// The tensor's row.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// Calls `visit` for every integer expression of the program, but for the defaults of constants and sizes.
    pub fn exprs_mut(&mut self, visit: &mut impl FnMut(&mut Expr)) {
        for param in &mut self.params {
            if let ParamKind::Tensor { shape, strides, array: _, constant: _ } = &mut param.kind {
                shape.iter_mut().chain(strides.iter_mut().flatten()).for_each(&mut *visit);
            }
        }
        self.grid
            .iter_mut()
            .chain([&mut self.threads, &mut self.resident])
            .chain(&mut self.cluster)
            .for_each(&mut *visit);
        self.tensors.iter_mut().for_each(|tensor| tensor.kind.exprs_mut(visit));
        self.pipelines.iter_mut().for_each(|pipeline| visit(&mut pipeline.stages));
        self.body.iter_mut().for_each(|stmt| stmt.kind.exprs_mut(visit));
    }

    /// The run-time sizes, in the order in which a launch passes them.
    pub fn sizes(&self) -> impl Iterator<Item = (SymbolId, &Symbol, i64)> {
        self.symbols.iter().enumerate().filter_map(|(i, s)| match s.kind {
            SymbolKind::Size(default) => Some((SymbolId(i as u32), s, default)),
            _ => None,
        })
    }

    /// The tile constants, in order of declaration.
    pub fn constants(&self) -> impl Iterator<Item = (SymbolId, &Symbol, &Expr)> {
        self.symbols.iter().enumerate().filter_map(|(i, s)| match &s.kind {
            SymbolKind::Constant(default) => Some((SymbolId(i as u32), s, default)),
            _ => None,
        })
    }

    /// The constants with their values, in order of declaration; none of one that is computed from what is no constant.
    fn constant_values(&self) -> Vec<(SymbolId, Option<i64>)> {
        let mut values: Vec<(SymbolId, Option<i64>)> = Vec::new();
        for (id, _, default) in self.constants() {
            let known = |id: SymbolId| {
                let found = values.iter().find(|(other, _)| *other == id);
                found.and_then(|(_, value)| *value).map(Expr::Int)
            };
            let value = default.substitute(&known).as_int();
            values.push((id, value));
        }
        values
    }

    /// The names that the text of the program has for what it declares.
    fn names(&self) -> impl Iterator<Item = &str> {
        let symbols = self.symbols.iter().map(|symbol| symbol.name.as_str());
        let params = self.params.iter().map(|param| param.name.as_str());
        let tensors = self.tensors.iter().map(|tensor| tensor.name.as_str());
        let pipelines = self.pipelines.iter().map(|pipeline| pipeline.name.as_str());
        symbols.chain(params).chain(tensors).chain(pipelines).chain([self.name.as_str()])
    }
}

/// The text of the expression whose value a tensor holds, of a tensor without a name of the author's.
///
/// It never takes part in comparing programs: in the text form every tensor has a name.
#[derive(Clone, Debug, Default)]
pub struct Unnamed(pub(crate) Option<String>);

impl Unnamed {
    /// The text; `None` of a tensor that the author named.
    pub fn text(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

impl PartialEq for Unnamed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}
