//! Inner variants in Rust.

use std::sync::atomic::{AtomicU64, Ordering};

use tilewright_layout::Layout;
use tilewright_machine::DType;
use tilewright_tile::{Code, Expr, Origin, SymbolId};

use super::{NumberHandle, TaskBuilder};
use crate::program::{
    Argument, ArgumentKind, FloatArg, FormalKind, Inner, Launch, LaunchId, Loop, LoopId, LoopKind,
    MmaOperand, Partition, PartitionId, PartitionKind, Piece, ProcessorArg, Range, Stmt, StmtKind,
    SymbolKind, TaskId, Tensor, TensorId,
};

/// A tensor of a variant.
#[derive(Clone, Copy, Debug)]
pub struct TensorHandle {
    id: TensorId,
    owner: u64,
}

/// A partition of a variant.
#[derive(Clone, Copy, Debug)]
pub struct PartitionHandle {
    id: PartitionId,
    owner: u64,
}

/// A formal of type `f32`.
#[derive(Clone, Copy, Debug)]
pub struct FloatFormal {
    formal: usize,
    owner: u64,
}

/// An argument of a launch.
#[derive(Clone, Debug)]
pub struct Arg {
    kind: ArgumentKind,
    /// The variant that it belongs to; none for numbers.
    owner: Option<u64>,
}

impl PartitionHandle {
    /// `cp[i, j]`: the piece of these colours.
    pub fn at<E: Into<Expr>>(self, colours: impl IntoIterator<Item = E>) -> Arg {
        let colours = colours.into_iter().map(Into::into).collect();
        let piece = Piece::Part { partition: self.id, colours };
        Arg { kind: ArgumentKind::Tensor { piece, when: None }, owner: Some(self.owner) }
    }
}

impl Arg {
    /// `… when condition`: absent where the integer is 0.
    pub fn when(mut self, condition: impl Into<Expr>) -> Arg {
        if let ArgumentKind::Tensor { when, .. } = &mut self.kind {
            *when = Some(condition.into());
        }
        self
    }
}

impl From<TensorHandle> for Arg {
    fn from(tensor: TensorHandle) -> Self {
        let kind = ArgumentKind::Tensor { piece: Piece::Whole(tensor.id), when: None };
        Arg { kind, owner: Some(tensor.owner) }
    }
}

impl From<Expr> for Arg {
    fn from(value: Expr) -> Self {
        Arg { kind: ArgumentKind::Integer(value), owner: None }
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Self {
        Expr::Int(value).into()
    }
}

impl From<f64> for Arg {
    fn from(value: f64) -> Self {
        Arg { kind: ArgumentKind::Float(FloatArg::Literal(value)), owner: None }
    }
}

impl From<FloatFormal> for Arg {
    fn from(formal: FloatFormal) -> Self {
        let kind = ArgumentKind::Float(FloatArg::Formal(formal.formal));
        Arg { kind, owner: Some(formal.owner) }
    }
}

impl From<NumberHandle> for Arg {
    fn from(number: NumberHandle) -> Self {
        Arg { kind: ArgumentKind::Float(FloatArg::Constant(number.index)), owner: None }
    }
}

/// A value of a tensor's elements: a number, or a constant of the program.
#[derive(Clone, Copy, Debug)]
pub struct Value(FloatArg);

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Value(FloatArg::Literal(value))
    }
}

impl From<NumberHandle> for Value {
    fn from(number: NumberHandle) -> Self {
        Value(FloatArg::Constant(number.index))
    }
}

/// An inner variant under construction.
pub struct InnerBuilder<'a> {
    builder: &'a mut TaskBuilder,
    task: TaskId,
    inner: Inner,
    /// The statements of the block at hand.
    body: Vec<Stmt>,
    owner: u64,
}

impl<'a> InnerBuilder<'a> {
    pub(super) fn build(
        builder: &'a mut TaskBuilder,
        task: TaskId,
        body: impl FnOnce(&mut InnerBuilder<'_>),
    ) -> Inner {
        static OWNERS: AtomicU64 = AtomicU64::new(0);
        let mut inner = Inner::default();
        for (i, formal) in builder.tasks[task.index()].formals.iter().enumerate() {
            if let FormalKind::Tensor { dtype, shape, .. } = &formal.kind {
                inner.tensors.push(Tensor {
                    name: formal.name.clone(),
                    formal: Some(i),
                    dtype: *dtype,
                    shape: shape.clone(),
                    value: None,
                    span: formal.span,
                });
            }
        }
        let owner = OWNERS.fetch_add(1, Ordering::Relaxed);
        let mut of = InnerBuilder { builder, task, inner, body: Vec::new(), owner };
        body(&mut of);
        of.inner.statements = of.body;
        of.inner
    }

    fn emit(&mut self, kind: StmtKind, span: Origin) {
        self.body.push(Stmt { kind, span });
    }

    /// True if the variant has the name already.
    fn is_taken(&self, name: &str) -> bool {
        let task = &self.builder.tasks[self.task.index()];
        let symbol = |id: &SymbolId| self.builder.symbols[id.0 as usize].name == name;
        self.inner.tensors.iter().any(|tensor| tensor.name == name)
            || self.inner.partitions.iter().any(|partition| partition.name == name)
            || task.formals.iter().any(|formal| formal.name == name)
            || task.extents.iter().any(symbol)
            || self.inner.tunables().collect::<Vec<_>>().iter().any(symbol)
            || self.builder.is_global(name)
    }

    fn symbol(&mut self, name: &str, kind: SymbolKind, span: Origin) -> SymbolId {
        let taken = self.is_taken(name);
        self.builder.check_name(name, span, taken);
        self.builder.symbol(name, kind, span)
    }

    fn unknown(&mut self, what: &str, name: &str, span: Origin) {
        let task = &self.builder.tasks[self.task.index()].name;
        let message = format!("`{task}` has no {what} `{name}`");
        self.builder.error(Code::UnknownName, span, message);
    }

    /// A formal that is a tensor.
    #[track_caller]
    pub fn formal(&mut self, name: &str) -> TensorHandle {
        let found =
            self.inner.tensors.iter().position(|tensor| tensor.name == name && tensor.formal.is_some());
        if found.is_none() {
            self.unknown("tensor", name, Origin::caller());
        }
        TensorHandle { id: TensorId(found.unwrap_or(0) as u32), owner: self.owner }
    }

    /// A formal of type `f32`.
    #[track_caller]
    pub fn float(&mut self, name: &str) -> FloatFormal {
        let formals = &self.builder.tasks[self.task.index()].formals;
        let is = |formal: &crate::program::Formal| {
            formal.name == name && matches!(formal.kind, FormalKind::Float(_))
        };
        let found = formals.iter().position(is);
        if found.is_none() {
            self.unknown("number", name, Origin::caller());
        }
        FloatFormal { formal: found.unwrap_or(0), owner: self.owner }
    }

    /// An extent of the task, or a formal of type `i32`.
    #[track_caller]
    pub fn extent(&mut self, name: &str) -> Expr {
        let task = &self.builder.tasks[self.task.index()];
        let scalars = task.formals.iter().filter_map(|formal| match formal.kind {
            FormalKind::Integer(symbol) => Some(symbol),
            _ => None,
        });
        let mut symbols = task.extents.iter().copied().chain(scalars);
        match symbols.find(|id| self.builder.symbols[id.0 as usize].name == name) {
            Some(symbol) => Expr::Symbol(symbol),
            None => {
                self.unknown("extent or integer", name, Origin::caller());
                Expr::Int(1)
            }
        }
    }

    /// `tunable name`: an integer that instances give.
    #[track_caller]
    pub fn tunable(&mut self, name: &str) -> Expr {
        let symbol = self.symbol(name, SymbolKind::Tunable, Origin::caller());
        self.emit(StmtKind::Tunable(vec![symbol]), Origin::caller());
        Expr::Symbol(symbol)
    }

    /// `tunable first, second`.
    #[track_caller]
    pub fn tunables(&mut self, first: &str, second: &str) -> (Expr, Expr) {
        let span = Origin::caller();
        let symbols = [first, second].map(|name| self.symbol(name, SymbolKind::Tunable, span));
        self.emit(StmtKind::Tunable(symbols.to_vec()), span);
        let [first, second] = symbols.map(Expr::Symbol);
        (first, second)
    }

    /// `tunable name: processor`.
    #[track_caller]
    pub fn tunable_processor(&mut self, name: &str) -> ProcessorArg {
        let symbol = self.symbol(name, SymbolKind::TunableProcessor, Origin::caller());
        self.emit(StmtKind::Tunable(vec![symbol]), Origin::caller());
        ProcessorArg::Tunable(symbol)
    }

    /// `name = value`: a name for an integer.
    #[track_caller]
    pub fn let_integer(&mut self, name: &str, value: impl Into<Expr>) -> Expr {
        let symbol = self.symbol(name, SymbolKind::Let, Origin::caller());
        self.emit(StmtKind::Let { symbol, value: value.into() }, Origin::caller());
        Expr::Symbol(symbol)
    }

    /// `name = tensor(dtype, [shape])`.
    #[track_caller]
    pub fn tensor<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
    ) -> TensorHandle {
        let shape = shape.into_iter().map(Into::into).collect();
        self.made(name, dtype, shape, None, Origin::caller())
    }

    /// `name = tensor(dtype, [shape], value)`: every element has the value at first.
    #[track_caller]
    pub fn filled<E: Into<Expr>>(
        &mut self,
        name: &str,
        dtype: DType,
        shape: impl IntoIterator<Item = E>,
        value: impl Into<Value>,
    ) -> TensorHandle {
        let shape = shape.into_iter().map(Into::into).collect();
        self.made(name, dtype, shape, Some(value.into().0), Origin::caller())
    }

    fn made(
        &mut self,
        name: &str,
        dtype: DType,
        shape: Vec<Expr>,
        value: Option<FloatArg>,
        span: Origin,
    ) -> TensorHandle {
        let taken = self.is_taken(name);
        self.builder.check_name(name, span, taken);
        let id = TensorId(self.inner.tensors.len() as u32);
        self.inner.tensors.push(Tensor { name: name.to_string(), formal: None, dtype, shape, value, span });
        self.emit(StmtKind::Tensor(id), span);
        TensorHandle { id, owner: self.owner }
    }

    #[track_caller]
    fn partition(&mut self, name: &str, tensor: TensorHandle, kind: PartitionKind) -> PartitionHandle {
        let span = Origin::caller();
        self.owned(Some(tensor.owner), span);
        let taken = self.is_taken(name);
        self.builder.check_name(name, span, taken);
        let id = PartitionId(self.inner.partitions.len() as u32);
        self.inner.partitions.push(Partition { name: name.to_string(), tensor: tensor.id, kind, span });
        self.emit(StmtKind::Partition(id), span);
        PartitionHandle { id, owner: self.owner }
    }

    /// `name = blocks(tensor, [shape])`. A mode of a literal extent of 1 is dropped from the pieces.
    #[track_caller]
    pub fn blocks<E: Into<Expr>>(
        &mut self,
        name: &str,
        tensor: TensorHandle,
        shape: impl IntoIterator<Item = E>,
    ) -> PartitionHandle {
        let shape = shape.into_iter().map(Into::into).collect();
        self.partition(name, tensor, PartitionKind::Blocks { shape })
    }

    /// `name = mma(tensor, instruction, processor, operand)`.
    #[track_caller]
    pub fn mma(
        &mut self,
        name: &str,
        tensor: TensorHandle,
        instruction: &str,
        processor: ProcessorArg,
        operand: MmaOperand,
    ) -> PartitionHandle {
        let instruction = instruction.to_string();
        self.partition(name, tensor, PartitionKind::Mma { instruction, processor, operand })
    }

    /// `name = tv(tensor, layout, processor)`.
    #[track_caller]
    pub fn tv(
        &mut self,
        name: &str,
        tensor: TensorHandle,
        layout: Layout,
        processor: ProcessorArg,
    ) -> PartitionHandle {
        self.partition(name, tensor, PartitionKind::Tv { layout, processor })
    }

    fn owned(&mut self, owner: Option<u64>, span: Origin) -> bool {
        let own = owner.is_none_or(|owner| owner == self.owner);
        if !own {
            let message = "a tensor, a partition or a number of another variant is used".to_string();
            self.builder.error(Code::UnknownName, span, message);
        }
        own
    }

    /// `launch task(arguments)`.
    #[track_caller]
    pub fn launch<A: Into<Arg>>(&mut self, task: TaskId, arguments: impl IntoIterator<Item = A>) {
        self.launch_of(None, task, arguments);
    }

    /// `label: launch task(arguments)`: a launch that mappings name.
    #[track_caller]
    pub fn labelled<A: Into<Arg>>(
        &mut self,
        label: &str,
        task: TaskId,
        arguments: impl IntoIterator<Item = A>,
    ) {
        self.launch_of(Some(label), task, arguments);
    }

    #[track_caller]
    fn launch_of<A: Into<Arg>>(
        &mut self,
        label: Option<&str>,
        task: TaskId,
        arguments: impl IntoIterator<Item = A>,
    ) {
        let span = Origin::caller();
        let arguments: Vec<Arg> = arguments.into_iter().map(Into::into).collect();
        if !arguments.iter().map(|arg| arg.owner).collect::<Vec<_>>().into_iter().all(|o| self.owned(o, span))
        {
            return;
        }
        let Some(row) = self.builder.tasks.get(task.index()) else {
            return self.builder.error(
                Code::UnknownName,
                span,
                "a task of another program is launched".to_string(),
            );
        };
        let fits = |(formal, arg): (&crate::program::Formal, &Arg)| {
            matches!(
                (&formal.kind, &arg.kind),
                (FormalKind::Tensor { .. }, ArgumentKind::Tensor { .. })
                    | (FormalKind::Integer(_), ArgumentKind::Integer(_))
                    | (FormalKind::Float(_), ArgumentKind::Float(_))
            )
        };
        let (name, count) = (row.name.clone(), row.formals.len());
        if arguments.len() != count {
            let message = format!("`{name}` takes {count} arguments, and {} are given", arguments.len());
            return self.builder.error(Code::Syntax, span, message);
        }
        if let Some(wrong) = row.formals.iter().zip(&arguments).position(|pair| !fits(pair)) {
            let formal = &row.formals[wrong].name;
            let message = format!("the argument for `{formal}` of `{name}` is of another kind");
            return self.builder.error(Code::TypeMismatch, span, message);
        }
        if let Some(label) = label {
            let taken = self.inner.launches.iter().any(|launch| launch.label.as_deref() == Some(label));
            self.builder.check_name(label, span, taken);
        }
        let arguments = arguments.into_iter().map(|arg| Argument { kind: arg.kind, span }).collect();
        let id = LaunchId(self.inner.launches.len() as u32);
        self.inner.launches.push(Launch { label: label.map(str::to_string), task, arguments, span });
        self.emit(StmtKind::Launch(id), span);
    }

    /// `for names in prange(extents) { … }`.
    #[track_caller]
    pub fn prange<const N: usize>(
        &mut self,
        names: [&str; N],
        extents: [Expr; N],
        body: impl FnOnce(&mut Self, [Expr; N]),
    ) {
        let ranges = extents.map(|hi| (Expr::Int(0), hi));
        self.for_loop(LoopKind::Prange, names, ranges, body);
    }

    /// `for name in srange(extent) { … }`.
    #[track_caller]
    pub fn srange(&mut self, name: &str, extent: impl Into<Expr>, body: impl FnOnce(&mut Self, Expr)) {
        self.srange_from(name, 0, extent, body);
    }

    /// `for name in srange(lo..hi) { … }`.
    #[track_caller]
    pub fn srange_from(
        &mut self,
        name: &str,
        lo: impl Into<Expr>,
        hi: impl Into<Expr>,
        body: impl FnOnce(&mut Self, Expr),
    ) {
        self.for_loop(LoopKind::Srange, [name], [(lo.into(), hi.into())], |s, [counter]| body(s, counter));
    }

    #[track_caller]
    fn for_loop<const N: usize>(
        &mut self,
        kind: LoopKind,
        names: [&str; N],
        ranges: [(Expr, Expr); N],
        body: impl FnOnce(&mut Self, [Expr; N]),
    ) {
        let span = Origin::caller();
        let counters: Vec<SymbolId> =
            names.iter().map(|name| self.symbol(name, SymbolKind::Counter, span)).collect();
        let values = std::array::from_fn(|i| Expr::Symbol(counters[i]));
        let head = LoopId(self.inner.loops.len() as u32);
        let ranges = ranges.into_iter().map(|(lo, hi)| Range { lo, hi }).collect();
        self.inner.loops.push(Loop { kind, counters, ranges, span });
        let outer = std::mem::take(&mut self.body);
        body(self, values);
        let body = std::mem::replace(&mut self.body, outer);
        self.emit(StmtKind::For { head, body }, span);
    }
}
