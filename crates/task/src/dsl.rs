//! The Rust DSL: a [`TaskBuilder`] makes the same [`Program`] that [`parse`](crate::parse()) reads, so Rust's functions and generics do the
//! metaprogramming. Mistakes never panic: [`TaskBuilder::finish`] reports them.
//!
//! ```
//! use tilewright_machine::{Arch, DType::F32, Memory::{Global, Register}, Processor};
//! use tilewright_task::dsl::{TaskBuilder, read, write};
//!
//! let mut t = TaskBuilder::new();
//! t.size("n", 1000);
//! let halve = t.task("halve", [write("y", F32, ["N"]), read("x", F32, ["N"])]);
//! let half = t.task("half", [write("y", F32, ["N"]), read("x", F32, ["N"])]);
//! t.inner(halve, "host", |s| {
//!     let (y, x, n) = (s.formal("y"), s.formal("x"), s.extent("N"));
//!     let width = s.tunable("T");
//!     let (yp, xp) = (s.blocks("yp", y, [&width]), s.blocks("xp", x, [&width]));
//!     s.prange(["i"], [n.ceil_div(&width)], |s, [i]| {
//!         s.launch(half, [yp.at([&i]), xp.at([&i])]);
//!     });
//! });
//! t.leaf(half, "all", |k, formals| {
//!     let [y, x] = formals.tensors();
//!     k.assign(&y, 0.5 * &x);
//! });
//! t.mapping("a100", Arch::SM_80, |m| {
//!     m.row(halve, "host").entry().on(Processor::Host).memories([Global, Global]).set("T", 128);
//!     m.row(half, "all").on(Processor::Block).memories([Register, Register]);
//! });
//! let program = t.finish()?;
//!
//! let text = "size n = 1000
//!     task halve(y: write f32[N], x: read f32[N]) {
//!         inner host {
//!             tunable T
//!             yp = blocks(y, [T])
//!             xp = blocks(x, [T])
//!             for i in prange(ceil_div(N, T)) { launch half(yp[i], xp[i]) }
//!         }
//!     }
//!     task half(y: write f32[N], x: read f32[N]) {
//!         leaf all { y = 0.5 * x }
//!     }
//!     mapping a100 for sm_80 {
//!         entry halve.host on host(global, global) { T = 128 }
//!         half.all on block(register, register)
//!     }";
//! assert_eq!(program, tilewright_task::parse(text)?);
//! # Ok::<(), tilewright_tile::Diagnostics>(())
//! ```

mod inner;
mod renumber;
mod rows;

use std::collections::BTreeMap;

use tilewright_machine::{Arch, DType};
use tilewright_tile::dsl::{Elem, KernelBuilder, Tensor};
use tilewright_tile::{Code, Diagnostic, Diagnostics, Expr, Origin, ParamId, Sources, SymbolId};

use crate::mapping::Mapping;
use crate::program::{
    Body, FormalKind, Inner, Leaf, LeafFormal, Number, Privilege, Program, Symbol, SymbolKind, Task, TaskId,
    Variant, VariantId,
};

pub use inner::{Arg, FloatFormal, InnerBuilder, PartitionHandle, TensorHandle, Value};
pub use rows::{MappingBuilder, Row};

/// An extent of a formal: a name that the task's shapes share, or an integer over constants.
#[derive(Clone, Debug)]
pub enum Extent {
    /// A name, bound by the arguments of a launch.
    Name(String),
    /// An integer.
    Value(Expr),
}

impl From<&str> for Extent {
    fn from(name: &str) -> Self {
        Extent::Name(name.to_string())
    }
}

impl From<Expr> for Extent {
    fn from(value: Expr) -> Self {
        Extent::Value(value)
    }
}

impl From<&Expr> for Extent {
    fn from(value: &Expr) -> Self {
        Extent::Value(value.clone())
    }
}

impl From<i64> for Extent {
    fn from(value: i64) -> Self {
        Extent::Value(Expr::Int(value))
    }
}

/// A formal of a task that is declared.
#[derive(Clone, Debug)]
pub struct Formal {
    name: String,
    kind: Kind,
    span: Origin,
}

#[derive(Clone, Debug)]
enum Kind {
    Tensor(Privilege, DType, Vec<Extent>),
    Float(Option<f64>),
    Integer(Option<i64>),
}

macro_rules! tensor_formal {
    ($($(#[$doc:meta])* $function:ident = $privilege:ident;)*) => {
        $(
            $(#[$doc])*
            #[track_caller]
            pub fn $function<E: Into<Extent>>(name: &str, dtype: DType, shape: impl IntoIterator<Item = E>) -> Formal {
                let shape = shape.into_iter().map(Into::into).collect();
                Formal { name: name.to_string(), kind: Kind::Tensor(Privilege::$privilege, dtype, shape), span: Origin::caller() }
            }
        )*
    };
}
tensor_formal! {
    /// `name: read dtype[shape]`
    read = Read;
    /// `name: write dtype[shape]`
    write = Write;
    /// `name: read_write dtype[shape]`
    read_write = ReadWrite;
    /// `name: add dtype[shape]`
    add = Add;
}

/// `name: f32`, with the default of an entry.
#[track_caller]
pub fn float(name: &str, default: Option<f64>) -> Formal {
    Formal { name: name.to_string(), kind: Kind::Float(default), span: Origin::caller() }
}

/// `name: i32`, with the default of an entry.
#[track_caller]
pub fn integer(name: &str, default: Option<i64>) -> Formal {
    Formal { name: name.to_string(), kind: Kind::Integer(default), span: Origin::caller() }
}

/// A constant that is no integer.
#[derive(Clone, Copy, Debug)]
pub struct NumberHandle {
    index: usize,
    /// The value.
    pub value: f64,
}

/// The formals of a leaf.
pub struct LeafFormals {
    tensors: Vec<(String, Tensor)>,
    floats: BTreeMap<String, Elem>,
    integers: BTreeMap<String, Expr>,
    missing: Vec<String>,
}

impl LeafFormals {
    /// The tensors, in the order of the formals: as many as there are, or fewer.
    ///
    /// ```should_panic
    /// # use tilewright_task::dsl::{TaskBuilder, write};
    /// let mut t = TaskBuilder::new();
    /// let clear = t.task("clear", [write("x", tilewright_machine::DType::F32, ["N"])]);
    /// t.leaf(clear, "zero", |_, formals| {
    ///     let [_x, _y] = formals.tensors(); // there is one
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// More are asked for than there are.
    pub fn tensors<const N: usize>(&self) -> [Tensor; N] {
        std::array::from_fn(|i| self.tensors[i].1)
    }

    /// A formal of type `f32`.
    pub fn float(&mut self, name: &str) -> Elem {
        match self.floats.get(name) {
            Some(elem) => elem.clone(),
            None => {
                self.missing.push(name.to_string());
                0.0.into()
            }
        }
    }

    /// A formal of type `i32`, an extent of the task, or a constant of the program.
    pub fn integer(&mut self, name: &str) -> Expr {
        match self.integers.get(name) {
            Some(value) => value.clone(),
            None => {
                self.missing.push(name.to_string());
                Expr::Int(1)
            }
        }
    }
}

/// A task program under construction.
#[derive(Default)]
pub struct TaskBuilder {
    symbols: Vec<Symbol>,
    numbers: Vec<Number>,
    tasks: Vec<Task>,
    mappings: Vec<Mapping>,
    /// The symbols of each variant, in the order of its text.
    of_variants: BTreeMap<(TaskId, VariantId), Vec<SymbolId>>,
    errors: Vec<Diagnostic>,
}

impl TaskBuilder {
    /// A program without tasks.
    pub fn new() -> Self {
        TaskBuilder::default()
    }

    fn symbol(&mut self, name: &str, kind: SymbolKind, span: Origin) -> SymbolId {
        self.symbols.push(Symbol { name: name.to_string(), kind, span });
        SymbolId(self.symbols.len() as u32 - 1)
    }

    fn error(&mut self, code: Code, span: Origin, message: String) {
        self.errors.push(Diagnostic::new(code, span, message));
    }

    /// Records a name that is no name, or that another thing in sight has.
    fn check_name(&mut self, name: &str, span: Origin, taken: bool) {
        let mut characters = name.chars();
        let begins = characters.next().is_some_and(|c| c == '_' || c.is_ascii_alphabetic());
        if !begins || !characters.all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            self.error(Code::Syntax, span, format!("`{}` is not a name", name.escape_debug()));
        } else if taken {
            self.error(Code::DuplicateName, span, format!("the name `{name}` is declared twice"));
        }
    }

    fn is_global(&self, name: &str) -> bool {
        let global = |row: &Symbol| {
            row.name == name && matches!(row.kind, SymbolKind::Constant(_) | SymbolKind::Size(_))
        };
        self.symbols.iter().any(global) || self.numbers.iter().any(|number| number.name == name)
    }

    /// `size name = default`: a run-time size. The entry has it as the extent of the same name in capitals.
    #[track_caller]
    pub fn size(&mut self, name: &str, default: i64) {
        self.check_name(name, Origin::caller(), self.is_global(name));
        self.symbol(name, SymbolKind::Size(default), Origin::caller());
    }

    /// `const name = default`.
    #[track_caller]
    pub fn constant(&mut self, name: &str, default: impl Into<Expr>) -> Expr {
        self.check_name(name, Origin::caller(), self.is_global(name));
        Expr::Symbol(self.symbol(name, SymbolKind::Constant(default.into()), Origin::caller()))
    }

    /// `const name = 1.5`: a constant that is no integer.
    #[track_caller]
    pub fn number(&mut self, name: &str, value: f64) -> NumberHandle {
        self.check_name(name, Origin::caller(), self.is_global(name));
        self.numbers.push(Number { name: name.to_string(), value, span: Origin::caller() });
        NumberHandle { index: self.numbers.len() - 1, value }
    }

    /// `task name(formals) { … }`, whose variants [`inner`](Self::inner) and [`leaf`](Self::leaf) add.
    #[track_caller]
    pub fn task(&mut self, name: &str, formals: impl IntoIterator<Item = Formal>) -> TaskId {
        let span = Origin::caller();
        self.check_name(name, span, self.tasks.iter().any(|task| task.name == name));
        let mut extents: Vec<SymbolId> = Vec::new();
        let mut rows: Vec<crate::program::Formal> = Vec::new();
        for formal in formals {
            let taken = rows.iter().any(|row| row.name == formal.name) || self.is_global(&formal.name);
            self.check_name(&formal.name, formal.span, taken);
            let kind = match formal.kind {
                Kind::Float(default) => FormalKind::Float(default),
                Kind::Integer(default) => {
                    let kind = SymbolKind::Scalar(default);
                    FormalKind::Integer(self.symbol(&formal.name, kind, formal.span))
                }
                Kind::Tensor(privilege, dtype, shape) => {
                    let mut extent = |extent: Extent| match extent {
                        Extent::Value(value) => value,
                        Extent::Name(name) => Expr::Symbol(self.extent(&name, &mut extents, formal.span)),
                    };
                    let shape = shape.into_iter().map(&mut extent).collect();
                    FormalKind::Tensor { privilege, dtype, shape }
                }
            };
            rows.push(crate::program::Formal { name: formal.name, kind, span: formal.span });
        }
        let (name, variants) = (name.to_string(), Vec::new());
        self.tasks.push(Task { name, formals: rows, extents, variants, fills: false, span });
        TaskId(self.tasks.len() as u32 - 1)
    }

    /// The constant of a name, or the task's extent of it.
    fn extent(&mut self, name: &str, extents: &mut Vec<SymbolId>, span: Origin) -> SymbolId {
        let constant = |row: &Symbol| row.name == name && matches!(row.kind, SymbolKind::Constant(_));
        if let Some(constant) = self.symbols.iter().position(constant) {
            return SymbolId(constant as u32);
        }
        if let Some(known) = extents.iter().find(|id| self.symbols[id.0 as usize].name == name) {
            return *known;
        }
        self.check_name(name, span, false);
        let symbol = self.symbol(name, SymbolKind::Extent, span);
        extents.push(symbol);
        symbol
    }

    fn variant(&mut self, task: TaskId, name: &str, body: Body, span: Origin) {
        let taken = self.tasks[task.index()].variant_named(name).is_some();
        self.check_name(name, span, taken);
        self.tasks[task.index()].variants.push(Variant { name: name.to_string(), body, span });
    }

    /// `inner name { … }`: a variant that partitions and launches.
    #[track_caller]
    pub fn inner(&mut self, task: TaskId, name: &str, body: impl FnOnce(&mut InnerBuilder<'_>)) {
        let span = Origin::caller();
        let before = self.symbols.len() as u32;
        let variant = VariantId(self.tasks[task.index()].variants.len() as u32);
        let inner: Inner = InnerBuilder::build(self, task, body);
        let made = (before..self.symbols.len() as u32).map(SymbolId).collect();
        self.of_variants.insert((task, variant), made);
        self.variant(task, name, Body::Inner(inner), span);
    }

    /// `leaf name { … }`: a variant of statements of the tile language.
    #[track_caller]
    pub fn leaf(
        &mut self,
        task: TaskId,
        name: &str,
        body: impl FnOnce(&mut KernelBuilder, &mut LeafFormals),
    ) {
        let span = Origin::caller();
        let mut k = KernelBuilder::new(name);
        let mut symbols: Vec<(SymbolId, SymbolId)> = Vec::new();
        let mut inside: BTreeMap<SymbolId, Expr> = BTreeMap::new();
        let mut formals = LeafFormals {
            tensors: Vec::new(),
            floats: BTreeMap::new(),
            integers: BTreeMap::new(),
            missing: Vec::new(),
        };
        let row = self.tasks[task.index()].clone();
        // Constants first, as in the text form.
        let is_constant = |id: &SymbolId| matches!(self.symbols[id.0 as usize].kind, SymbolKind::Constant(_));
        let constants = (0..self.symbols.len() as u32).map(SymbolId).filter(is_constant);
        for outside in constants.chain(row.extents.iter().copied()) {
            let symbol = &self.symbols[outside.0 as usize];
            let default = match &symbol.kind {
                SymbolKind::Constant(default) => default.substitute(&|id| inside.get(&id).cloned()),
                _ => Expr::Int(1),
            };
            let made = k.constant(&symbol.name, default);
            symbols.push((SymbolId(symbols.len() as u32), outside));
            formals.integers.insert(symbol.name.clone(), made.clone());
            inside.insert(outside, made);
        }
        let (mut meanings, mut scalars, mut tensors) = (Vec::new(), 0, 0);
        for formal in &row.formals {
            let mut scalar = || {
                scalars += 1;
                LeafFormal::Scalar(ParamId(scalars - 1))
            };
            meanings.push(match &formal.kind {
                FormalKind::Float(_) => {
                    formals.floats.insert(formal.name.clone(), k.scalar(&formal.name, 0.0));
                    scalar()
                }
                FormalKind::Integer(_) => {
                    let made = k.integer(&formal.name, DType::I32, 0);
                    formals.integers.insert(formal.name.clone(), made);
                    scalar()
                }
                FormalKind::Tensor { dtype, shape, .. } => {
                    let shape: Vec<Expr> = shape
                        .iter()
                        .map(|extent| extent.substitute(&|id| inside.get(&id).cloned()))
                        .collect();
                    let made = k.register_tensor(&formal.name, *dtype, shape);
                    formals.tensors.push((formal.name.clone(), made));
                    tensors += 1;
                    LeafFormal::Tensor(tilewright_tile::TensorId(tensors - 1))
                }
            });
        }
        body(&mut k, &mut formals);
        for name in formals.missing {
            let message = format!("`{}` has no formal, extent or constant `{name}`", row.name);
            self.error(Code::UnknownName, span, message);
        }
        match k.finish() {
            Err(errors) => self.errors.extend(errors.0),
            Ok(mut fragment) => {
                fragment.body.drain(..(tensors as usize).min(fragment.body.len()));
                let leaf = Leaf { fragment, formals: meanings, symbols };
                self.variant(task, name, Body::Leaf(Box::new(leaf)), span);
            }
        }
    }

    /// `mapping name for arch { … }`.
    #[track_caller]
    pub fn mapping(&mut self, name: &str, arch: Arch, rows: impl FnOnce(&mut MappingBuilder<'_>)) {
        let span = Origin::caller();
        self.check_name(name, span, self.mappings.iter().any(|mapping| mapping.name == name));
        let mapping = Mapping { name: name.to_string(), arch, instances: Vec::new(), span };
        let mapping = MappingBuilder::build(self, mapping, Vec::new(), rows);
        self.mappings.push(mapping);
    }

    /// `mapping name for arch like other { … }`: the rows of another mapping, with these in place of those of their names, or besides.
    #[track_caller]
    pub fn mapping_like(
        &mut self,
        name: &str,
        arch: Arch,
        like: &str,
        rows: impl FnOnce(&mut MappingBuilder<'_>),
    ) {
        let span = Origin::caller();
        self.check_name(name, span, self.mappings.iter().any(|mapping| mapping.name == name));
        let other = self.mappings.iter().find(|mapping| mapping.name == like);
        let other = other.map(|mapping| mapping.instances.clone());
        if other.is_none() {
            self.error(Code::UnknownName, span, format!("no mapping before this one is named `{like}`"));
        }
        let mapping = Mapping { name: name.to_string(), arch, instances: Vec::new(), span };
        let mapping = MappingBuilder::build(self, mapping, other.unwrap_or_default(), rows);
        self.mappings.push(mapping);
    }

    /// The program, or every mistake made while building it. What depends on shapes and mappings is checked by
    /// [`verify`](crate::verify()).
    ///
    /// # Errors
    ///
    /// The mistakes.
    pub fn finish(self) -> Result<Program, Diagnostics> {
        let TaskBuilder { symbols, numbers, tasks, mappings, of_variants, mut errors } = self;
        for task in tasks.iter().filter(|task| task.variants.is_empty()) {
            let message = format!("the task `{}` has no variant", task.name);
            errors.push(
                Diagnostic::new(Code::Syntax, task.span, message).help("add one with `inner` or `leaf`"),
            );
        }
        if !errors.is_empty() {
            return Err(Diagnostics(errors));
        }
        let mut program = Program { symbols, numbers, tasks, mappings, sources: Sources::default() };
        renumber::renumber(&mut program, &of_variants);
        crate::fill::fill(&mut program);
        Ok(program)
    }
}
