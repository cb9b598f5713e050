//! The task program: what the text form, the Rust DSL and every later stage share.
//!
//! A task is declared once, with the types and privileges of its formals; its variants are bodies of that one signature. The body of an inner
//! variant partitions tensors and launches tasks, and touches no data. The body of a leaf is statements of the tile language.
//!
//! Integers are expressions of the tile language ([`Expr`]) over the symbols of *one* table, [`Program::symbols`]: constants, sizes, the extents
//! that a task's shapes name, formals of type `i32`, tunables, names of integers and counters. A symbol of a task has no value of its own: each
//! launch gives it one. Names may repeat from task to task; symbols do not.

use tilewright_layout::Layout;
use tilewright_machine::{DType, Processor};
use tilewright_tile::Sources;
pub use tilewright_tile::{Expr, Origin, SymbolId};

use crate::mapping::Mapping;

/// Makes the type of an index into a table.
macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        pub struct $name(pub u32);

        impl $name {
            /// As an index of its table.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }
    };
}
pub(crate) use id;

id! {
    /// A task: an index into [`Program::tasks`].
    TaskId
}
id! {
    /// A variant of a task: an index into [`Task::variants`].
    VariantId
}
id! {
    /// A tensor of an inner variant: an index into [`Inner::tensors`].
    TensorId
}
id! {
    /// A partition of an inner variant: an index into [`Inner::partitions`].
    PartitionId
}
id! {
    /// A launch of an inner variant: an index into [`Inner::launches`].
    LaunchId
}
id! {
    /// A loop of an inner variant: an index into [`Inner::loops`].
    LoopId
}

/// Tasks and the mappings for them, as one text declares them.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Every named integer: those of the text first, then those of the tasks, in the order of declaration.
    pub symbols: Vec<Symbol>,
    /// Constants that are no integers, in the order of declaration.
    pub numbers: Vec<Number>,
    /// The tasks, in the order of declaration; behind them those that [fill](Task::fills) tensors.
    pub tasks: Vec<Task>,
    /// The mappings, in the order of declaration.
    pub mappings: Vec<Mapping>,
    /// The texts that it was read from; none of one that was built.
    pub sources: Sources,
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
    /// A constant of the text; the expression, over earlier constants, is its default.
    Constant(Expr),
    /// A run-time size; at least 1. The number is its default. Tasks do not see sizes: the extents of the entry are sizes of these names in
    /// lower case.
    Size(i64),
    /// An extent that a task's shapes name (`M`), bound by the arguments of a launch.
    Extent,
    /// A formal of type `i32`, given by a launch. The number is the default of an entry.
    Scalar(Option<i64>),
    /// A tunable integer, given by an instance.
    Tunable,
    /// A tunable processor, given by an instance. Integer expressions do not have it.
    TunableProcessor,
    /// A name of an integer ([`StmtKind::Let`]), to the end of the block around.
    Let,
    /// A loop's counter.
    Counter,
}

/// A constant that is no integer.
#[derive(Clone, PartialEq, Debug)]
pub struct Number {
    /// The name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// The place of its declaration.
    pub span: Origin,
}

/// A task.
#[derive(Clone, PartialEq, Debug)]
pub struct Task {
    /// The name.
    pub name: String,
    /// The formals, in the order in which a launch gives arguments.
    pub formals: Vec<Formal>,
    /// The extents that the shapes of its formals name, in the order of their first mention.
    pub extents: Vec<SymbolId>,
    /// The variants, in the order of declaration; one at least.
    pub variants: Vec<Variant>,
    /// True of a task that no text declares: it fills tensors that have a [value](Tensor::value).
    pub fills: bool,
    /// The place of its declaration: the name.
    pub span: Origin,
}

/// A formal of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct Formal {
    /// The name.
    pub name: String,
    /// A tensor or a number.
    pub kind: FormalKind,
    /// The place of its declaration.
    pub span: Origin,
}

/// The kind of a [`Formal`].
#[derive(Clone, PartialEq, Debug)]
pub enum FormalKind {
    /// A tensor.
    Tensor {
        /// The uses that the task makes of it.
        privilege: Privilege,
        /// Element type.
        dtype: DType,
        /// Its shape, over [`Task::extents`] and constants.
        shape: Vec<Expr>,
    },
    /// A number of type `f32`. The number is the default of an entry.
    Float(Option<f64>),
    /// An integer of type `i32`, with the symbol that stands for it.
    Integer(SymbolId),
}

/// The uses that a task may make of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Privilege {
    /// It reads it.
    Read,
    /// It writes every element, before it reads one.
    Write,
    /// It reads and writes it.
    ReadWrite,
    /// It adds to its elements and does not read them: parallel iterations may add to one element.
    Add,
}

impl Privilege {
    /// Every privilege.
    pub const ALL: [Privilege; 4] = [Privilege::Read, Privilege::Write, Privilege::ReadWrite, Privilege::Add];

    /// The name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            Privilege::Read => "read",
            Privilege::Write => "write",
            Privilege::ReadWrite => "read_write",
            Privilege::Add => "add",
        }
    }

    /// True if the task sees the elements that its caller has.
    pub fn reads(self) -> bool {
        matches!(self, Privilege::Read | Privilege::ReadWrite)
    }

    /// True if the task changes elements.
    pub fn writes(self) -> bool {
        self != Privilege::Read
    }
}

/// A body of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct Variant {
    /// The name, unique in its task.
    pub name: String,
    /// The statements.
    pub body: Body,
    /// The place of its name.
    pub span: Origin,
}

/// The statements of a [`Variant`].
#[derive(Clone, PartialEq, Debug)]
pub enum Body {
    /// Partitions and launches.
    Inner(Inner),
    /// Statements of the tile language.
    Leaf(Box<Leaf>),
}

/// The body of an inner variant. Its tables are in the order of the text, but for the launches that give tensors their values: these are the last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Inner {
    /// The tensors: the formals that are tensors, in their order, then those that the body makes.
    pub tensors: Vec<Tensor>,
    /// The partitions.
    pub partitions: Vec<Partition>,
    /// The loops.
    pub loops: Vec<Loop>,
    /// The launches.
    pub launches: Vec<Launch>,
    /// The statements.
    pub statements: Vec<Stmt>,
}

/// A tensor of an inner variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The name.
    pub name: String,
    /// The formal that it is, an index into [`Task::formals`]; `None` of one that the body makes.
    pub formal: Option<usize>,
    /// Element type.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<Expr>,
    /// The value of its elements at first, of one that the body makes; without, they are unknown.
    pub value: Option<FloatArg>,
    /// The place of its definition.
    pub span: Origin,
}

/// A partition of a tensor: a map (colour, point) → coordinate. The pieces of a colour have compact coordinates from 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Partition {
    /// The name.
    pub name: String,
    /// The tensor.
    pub tensor: TensorId,
    /// The way in which it is cut.
    pub kind: PartitionKind,
    /// The place of its definition.
    pub span: Origin,
}

/// The kind of a [`Partition`].
#[derive(Clone, PartialEq, Debug)]
pub enum PartitionKind {
    /// `blocks(c, [U, V])`: blocks of one shape, one colour a mode of the tensor. A mode whose extent is *written* `1` ([`Expr::Int`] of 1) is
    /// dropped from the pieces. Blocks at the edge have the full shape; what lies outside reads as 0 and is not written.
    Blocks {
        /// The extents of a block, one a mode of the tensor.
        shape: Vec<Expr>,
    },
    /// `mma(c, wgmma_64x256x16, warp, C)`: the rows and columns that the parts of an instruction's operand need which a processor of the level
    /// holds. One colour: the processor within its parent.
    Mma {
        /// The name of the instruction.
        instruction: String,
        /// The level of the processors that the colours are.
        processor: ProcessorArg,
        /// The operand.
        operand: MmaOperand,
    },
    /// `tv(x, (8,4):(4,1), thread)`: a thread-value layout, (processor, value) → linear coordinate, leftmost fastest. One colour.
    Tv {
        /// The layout.
        layout: Layout,
        /// The level of the processors that the colours are.
        processor: ProcessorArg,
    },
}

/// A processor level as a partition names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProcessorArg {
    /// A level.
    Level(Processor),
    /// A tunable ([`SymbolKind::TunableProcessor`]).
    Tunable(SymbolId),
}

/// An operand of a matrix product, D = A · B + C.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmaOperand {
    /// M × K.
    A,
    /// N × K.
    B,
    /// M × N.
    C,
}

/// A loop of an inner variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// In order or in parallel.
    pub kind: LoopKind,
    /// The counters, the slowest first.
    pub counters: Vec<SymbolId>,
    /// The range of each counter.
    pub ranges: Vec<Range>,
    /// The place of its head.
    pub span: Origin,
}

/// The values `lo..hi` of a counter.
#[derive(Clone, PartialEq, Debug)]
pub struct Range {
    /// The first value.
    pub lo: Expr,
    /// One past the last.
    pub hi: Expr,
}

/// The order of a loop's iterations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LoopKind {
    /// One after another.
    Srange,
    /// In any order: no iteration touches what another writes.
    Prange,
}

impl LoopKind {
    /// The name in texts.
    pub const fn name(self) -> &'static str {
        match self {
            LoopKind::Srange => "srange",
            LoopKind::Prange => "prange",
        }
    }
}

/// A launch of a task.
#[derive(Clone, PartialEq, Debug)]
pub struct Launch {
    /// The name by which mappings call it, unique in its variant.
    pub label: Option<String>,
    /// The task.
    pub task: TaskId,
    /// One argument a formal.
    pub arguments: Vec<Argument>,
    /// The place of the launch.
    pub span: Origin,
}

/// An argument of a [`Launch`].
#[derive(Clone, PartialEq, Debug)]
pub struct Argument {
    /// A tensor or a number.
    pub kind: ArgumentKind,
    /// The place of the argument.
    pub span: Origin,
}

/// The kind of an [`Argument`].
#[derive(Clone, PartialEq, Debug)]
pub enum ArgumentKind {
    /// A tensor, or a piece of one.
    Tensor {
        /// The tensor or piece.
        piece: Piece,
        /// The condition without which the argument is absent: it reads as 0 and is not written.
        when: Option<Expr>,
    },
    /// An integer.
    Integer(Expr),
    /// A number of type `f32`.
    Float(FloatArg),
}

/// A tensor of a body, or a piece of one.
#[derive(Clone, PartialEq, Debug)]
pub enum Piece {
    /// All of it.
    Whole(TensorId),
    /// A piece of a partition.
    Part {
        /// The partition.
        partition: PartitionId,
        /// The piece's colours, as many as [`PartitionKind`] says.
        colours: Vec<Expr>,
    },
}

/// A number of type `f32` that a launch passes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FloatArg {
    /// A formal of the task around: an index into [`Task::formals`].
    Formal(usize),
    /// A constant: an index into [`Program::numbers`].
    Constant(usize),
    /// A literal.
    Literal(f64),
}

/// A statement of an inner variant.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// Its meaning.
    pub kind: StmtKind,
    /// Its place.
    pub span: Origin,
}

/// The meaning of a [`Stmt`].
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    /// `tunable U, PROC: processor`: names whose values an instance gives.
    Tunable(Vec<SymbolId>),
    /// `rows = M / WGS`: a name for an integer.
    Let {
        /// The name.
        symbol: SymbolId,
        /// The value.
        value: Expr,
    },
    /// `acc = tensor(f32, [M, N])`: a tensor of the body, a new one in every iteration of the loops around. Its elements are unknown, or have the value of
    /// `acc = tensor(f32, [M, N], 0.0)`: then a launch that fills it stands behind.
    Tensor(TensorId),
    /// `cp = blocks(c, [U, V])`.
    Partition(PartitionId),
    /// `launch f(…)`.
    Launch(LaunchId),
    /// `for i, j in prange(…) { … }`.
    For {
        /// Its head.
        head: LoopId,
        /// The statements of an iteration.
        body: Vec<Stmt>,
    },
}

/// The body of a leaf: statements of the tile language on register tensors.
///
/// The fragment is no kernel: its tensors for formals are defined by nobody, and what they hold at the end goes nowhere. With copies of
/// the formals around it, the tile verifier checks it and the tile interpreter runs it.
#[derive(Clone, PartialEq, Debug)]
pub struct Leaf {
    /// The statements, with the tensors that they name. A tensor formal is a register tensor of its shape, a formal of type `f32` or `i32` a
    /// scalar parameter, and a symbol of the task a constant of the same name.
    pub fragment: tilewright_tile::Program,
    /// The meaning of each formal in the fragment, in the order of [`Task::formals`].
    pub formals: Vec<LeafFormal>,
    /// The constants of the fragment that stand for symbols of the task program.
    pub symbols: Vec<(SymbolId, SymbolId)>,
}

/// A formal in the [fragment](Leaf::fragment) of a leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LeafFormal {
    /// A register tensor.
    Tensor(tilewright_tile::TensorId),
    /// A scalar parameter.
    Scalar(tilewright_tile::ParamId),
}

impl Program {
    /// The same program with other values of constants, by name; those that are not named keep their defaults.
    pub fn with_constants(&self, values: &tilewright_tile::Constants) -> Program {
        let mut program = self.clone();
        for symbol in &mut program.symbols {
            if let (SymbolKind::Constant(default), Some(value)) = (&mut symbol.kind, values.get(&symbol.name))
            {
                *default = Expr::Int(*value);
            }
        }
        program
    }

    /// The symbol's row.
    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        &self.symbols[id.0 as usize]
    }

    /// The task's row.
    pub fn task(&self, id: TaskId) -> &Task {
        &self.tasks[id.index()]
    }

    /// The tasks with their ids.
    pub fn tasks(&self) -> impl Iterator<Item = (TaskId, &Task)> {
        self.tasks.iter().enumerate().map(|(i, task)| (TaskId(i as u32), task))
    }

    /// The task of a name.
    pub fn task_named(&self, name: &str) -> Option<TaskId> {
        self.tasks().find(|(_, task)| task.name == name).map(|(id, _)| id)
    }
}

impl Task {
    /// A variant as `task.variant`, which an instance without a name of its own goes by.
    pub fn variant_name(&self, variant: VariantId) -> String {
        format!("{}.{}", self.name, self.variant(variant).name)
    }

    /// The variant's row.
    pub fn variant(&self, id: VariantId) -> &Variant {
        &self.variants[id.index()]
    }

    /// The body of an inner variant; of a leaf one that has the task's tensors and nothing else.
    pub fn body(&self, id: VariantId) -> std::borrow::Cow<'_, Inner> {
        if let Some(inner) = self.variant(id).inner() {
            return std::borrow::Cow::Borrowed(inner);
        }
        let tensors = self.tensors().map(|(formal, _, dtype, shape)| Tensor {
            name: self.formals[formal].name.clone(),
            formal: Some(formal),
            dtype,
            shape: shape.to_vec(),
            value: None,
            span: self.formals[formal].span,
        });
        std::borrow::Cow::Owned(Inner { tensors: tensors.collect(), ..Inner::default() })
    }

    /// The variant of a name.
    pub fn variant_named(&self, name: &str) -> Option<VariantId> {
        self.variants.iter().position(|variant| variant.name == name).map(|i| VariantId(i as u32))
    }

    /// The formals that are tensors: each with its number, privilege, type and shape.
    pub fn tensors(&self) -> impl Iterator<Item = (usize, Privilege, DType, &[Expr])> {
        self.formals.iter().enumerate().filter_map(|(i, formal)| match &formal.kind {
            FormalKind::Tensor { privilege, dtype, shape } => Some((i, *privilege, *dtype, &shape[..])),
            FormalKind::Float(_) | FormalKind::Integer(_) => None,
        })
    }
}

impl Variant {
    /// The body of an inner variant.
    pub fn inner(&self) -> Option<&Inner> {
        match &self.body {
            Body::Inner(inner) => Some(inner),
            Body::Leaf(_) => None,
        }
    }

    /// The body of a leaf.
    pub fn leaf(&self) -> Option<&Leaf> {
        match &self.body {
            Body::Leaf(leaf) => Some(leaf),
            Body::Inner(_) => None,
        }
    }
}

impl Inner {
    /// The tensor's row.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.index()]
    }

    /// The partition's row.
    pub fn partition(&self, id: PartitionId) -> &Partition {
        &self.partitions[id.index()]
    }

    /// The launch's row.
    pub fn launch(&self, id: LaunchId) -> &Launch {
        &self.launches[id.index()]
    }

    /// The head of a loop.
    pub fn head(&self, id: LoopId) -> &Loop {
        &self.loops[id.index()]
    }

    /// The tensor that a piece is of.
    pub fn tensor_of(&self, piece: &Piece) -> TensorId {
        match piece {
            Piece::Whole(tensor) => *tensor,
            Piece::Part { partition, .. } => self.partition(*partition).tensor,
        }
    }

    /// The names that an instance gives values, in the order of the text.
    pub fn tunables(&self) -> impl Iterator<Item = SymbolId> {
        let of = |stmt: &Stmt| match &stmt.kind {
            StmtKind::Tunable(symbols) => symbols.clone(),
            _ => Vec::new(),
        };
        self.statements.iter().flat_map(of)
    }
}

impl Partition {
    /// The shape of a piece where the partition itself says it: blocks do, without the modes that are written `1`.
    pub fn shape(&self) -> Option<Vec<Expr>> {
        match &self.kind {
            PartitionKind::Blocks { shape } => {
                Some(shape.iter().filter(|extent| extent.as_int() != Some(1)).cloned().collect())
            }
            PartitionKind::Mma { .. } | PartitionKind::Tv { .. } => None,
        }
    }
}
