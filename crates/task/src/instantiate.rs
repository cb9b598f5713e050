//! Instantiation: a program and a mapping become a tree of calls, every launch with its instance, every formal with the piece of an object
//! that it stands for, and what the mapping leaves out filled in.
//!
//! The tree is by reference: a formal is a piece, never a copy. Its chain of memories, one a call from the entry down, is what
//! placement reads.

pub(crate) mod text;

use std::collections::HashMap;

use tilewright_machine::levels::{holds, level, levels};
use tilewright_machine::{Arch, DType, Memory, Processor};
use tilewright_tile::{Code, Diagnostic, Diagnostics, Expr, IntOp, Origin};

use crate::mapping::{AttributeKind, InstanceId, Mapping, Placement, SettingValue};
use crate::partition::{Cut, Extent, Instruction, Partition};
use crate::piece::{Affine, Guard, Piece, Var, Vars};
use crate::program::{
    self, ArgumentKind, Body, FloatArg, FormalKind, Inner, LaunchId, LoopKind, PartitionKind, Privilege,
    ProcessorArg, Program, StmtKind, SymbolId, SymbolKind, TaskId, VariantId, id,
};
use crate::resolve::{Target, resolve};

id! {
    /// An object: an index into [`Tree::objects`].
    ObjectId
}
id! {
    /// A loop of the tree: an index into [`Tree::loops`].
    LoopId
}
id! {
    /// A call: an index into [`Tree::calls`].
    CallId
}

/// A tensor that exists as such: a parameter of the kernel, or one that a body makes.
#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    /// The name.
    pub name: String,
    /// The formal of the entry that it is; nothing of one that a body makes.
    pub param: Option<usize>,
    /// Element type.
    pub dtype: DType,
    /// The extents.
    pub extents: Vec<Extent>,
    /// The extents as integers.
    pub shape: Vec<Affine>,
    /// The call whose body makes it; nothing of a parameter.
    pub maker: Option<CallId>,
    /// The innermost loop around its definition: each iteration has one of its own.
    pub body: Option<LoopId>,
    /// The level of the call whose body makes it.
    pub processor: Processor,
    /// The memory that a `local` of the mapping gives it.
    pub placement: Placement,
    /// The place of its definition.
    pub span: Origin,
}

/// A loop of the tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Loop {
    /// The loop around.
    pub parent: Option<LoopId>,
    /// The order of the iterations.
    pub kind: LoopKind,
    /// The call whose body it is in.
    pub call: CallId,
    /// The loop there.
    pub head: program::LoopId,
    /// The level on which the iterations run: the outermost of the calls in it.
    pub processor: Processor,
    /// The counters, the slowest first.
    pub counters: Vec<Var>,
    /// Their symbols in the program.
    pub symbols: Vec<SymbolId>,
    /// First value and one past the last of each counter.
    pub ranges: Vec<(Affine, Affine)>,
    /// The place of its head.
    pub span: Origin,
}

/// A variant at a place of the tree.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The call whose body launches it; nothing of the entry.
    pub parent: Option<CallId>,
    /// The launch there.
    pub launch: Option<LaunchId>,
    /// The innermost loop around.
    pub body: Option<LoopId>,
    /// The row of the mapping; nothing of a leaf without one.
    pub instance: Option<InstanceId>,
    /// The task.
    pub task: TaskId,
    /// The variant.
    pub variant: VariantId,
    /// The level on which it runs.
    pub processor: Processor,
    /// The formals, in order.
    pub arguments: Vec<Argument>,
    /// The values of the task's symbols in it.
    pub symbols: HashMap<SymbolId, Affine>,
    /// The place of the launch; of the entry, of its row.
    pub span: Origin,
}

/// The meaning of a formal in a call.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A piece of an object.
    Tensor(Tensor),
    /// An integer.
    Integer(Affine),
    /// A number.
    Float(FloatArg),
}

/// A tensor as a call sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct Tensor {
    /// The object.
    pub object: ObjectId,
    /// The piece of it.
    pub piece: Piece,
    /// Its extents as integers.
    pub shape: Vec<Affine>,
    /// The privilege of the call's task.
    pub privilege: Privilege,
    /// The memory that each call from the object's own body down gives it, outermost first.
    pub chain: Vec<Placed>,
}

/// A link of a tensor's chain of memories.
#[derive(Clone, PartialEq, Debug)]
pub struct Placed {
    /// The call.
    pub call: CallId,
    /// The formal.
    pub formal: usize,
    /// The memory.
    pub placement: Placement,
    /// The piece that the formal stands for.
    pub piece: Piece,
}

/// An item of a body.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// A loop.
    Loop(LoopId, Vec<Item>),
    /// An inner call, with its body.
    Call(CallId, Vec<Item>),
    /// A leaf.
    Leaf(CallId),
}

/// A program under a mapping, launch by launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Tree {
    /// The name of the mapping.
    pub mapping: String,
    /// The architecture.
    pub arch: Arch,
    /// The counters and other integers.
    pub vars: Vars,
    /// The objects, parameters first.
    pub objects: Vec<Object>,
    /// The loops, outermost first.
    pub loops: Vec<Loop>,
    /// The calls, in the order of the program.
    pub calls: Vec<Call>,
    /// The entry.
    pub root: Item,
}

impl Tree {
    /// The object's row.
    pub fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id.index()]
    }

    /// The loop's row.
    pub fn loop_(&self, id: LoopId) -> &Loop {
        &self.loops[id.index()]
    }

    /// The loops, outermost first.
    pub fn loop_ids(&self) -> impl Iterator<Item = LoopId> + use<> {
        (0..self.loops.len() as u32).map(LoopId)
    }

    /// The call's row.
    pub fn call(&self, id: CallId) -> &Call {
        &self.calls[id.index()]
    }

    /// The loops around a body, outermost first.
    pub fn around(&self, body: Option<LoopId>) -> Vec<LoopId> {
        let mut loops: Vec<LoopId> = std::iter::successors(body, |id| self.loop_(*id).parent).collect();
        loops.reverse();
        loops
    }

    /// True if the loop is known to run at least once.
    pub fn runs(&self, id: LoopId) -> bool {
        self.loop_(id).ranges.iter().all(|(lo, hi)| {
            let count = hi.plus(lo, -1);
            self.at_least(&count, 1)
        })
    }

    /// True if the form is at least `least` for certain.
    pub fn at_least(&self, form: &Affine, least: i64) -> bool {
        self.vars.range(form).0.is_some_and(|low| low >= least)
    }
}

/// Calls inside calls; a mapping that leads to more has a circle.
const DEPTH: usize = 64;
/// Calls in all.
const CALLS: usize = 4096;

/// Instantiates a program under one of its mappings. Needs: a verified program. Keeps: the order of its launches.
///
/// # Errors
///
/// Gaps and contradictions of the mapping: `unmapped`, `ambiguous`, `tunable`, `level`, `memory`; partitions and pieces that do not fit at these
/// values: `partition-bounds`; a tree of too many launches: `too-large`.
pub fn instantiate(program: &Program, mapping: &Mapping) -> Result<Tree, Diagnostics> {
    let mut build = Build {
        program,
        mapping,
        vars: Vars::default(),
        objects: Vec::new(),
        loops: Vec::new(),
        calls: Vec::new(),
    };
    let root = build.entry().map_err(|error| Diagnostics(vec![error]))?;
    Ok(Tree {
        mapping: mapping.name.clone(),
        arch: mapping.arch,
        vars: build.vars,
        objects: build.objects,
        loops: build.loops,
        calls: build.calls,
        root,
    })
}

struct Build<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    vars: Vars,
    objects: Vec<Object>,
    loops: Vec<Loop>,
    calls: Vec<Call>,
}

type Res<T> = Result<T, Diagnostic>;

/// The body of a call under construction.
struct Frame {
    call: CallId,
    tensors: HashMap<program::TensorId, Tensor>,
    partitions: HashMap<program::PartitionId, Partition>,
    /// The shape of a partition's pieces.
    shapes: HashMap<program::PartitionId, Vec<Affine>>,
    processors: HashMap<SymbolId, Processor>,
    body: Option<LoopId>,
    depth: usize,
}

impl Build<'_> {
    fn entry(&mut self) -> Res<Item> {
        let Some(id) = self.mapping.entry() else {
            let message = format!("mapping `{}` has no instances", self.mapping.name);
            return Err(Diagnostic::new(Code::Unmapped, self.mapping.span, message));
        };
        let row = self.mapping.instance(id);
        let task = self.program.task(row.task);
        let processor = row.processor.unwrap_or(Processor::Host);
        let mut symbols = HashMap::new();
        for extent in &task.extents {
            let name = self.program.symbol(*extent).name.to_lowercase();
            let var = self.vars.fresh(&name, Some(1), None);
            symbols.insert(*extent, Affine::var(var));
        }
        let call = CallId(0);
        let mut arguments = Vec::with_capacity(task.formals.len());
        let mut at = 0;
        for (formal, declared) in task.formals.iter().enumerate() {
            arguments.push(match &declared.kind {
                FormalKind::Tensor { privilege, dtype, shape } => {
                    let shape = self.forms(shape, &symbols, declared.span)?;
                    let extents: Vec<Extent> = shape.iter().map(Affine::value).collect();
                    let piece = Piece::whole(&extents);
                    let placement =
                        row.memories.as_ref().and_then(|m| m.get(at)).copied().unwrap_or(Placement::None);
                    at += 1;
                    self.objects.push(Object {
                        name: declared.name.clone(),
                        param: Some(formal),
                        dtype: *dtype,
                        extents,
                        shape: shape.clone(),
                        maker: None,
                        body: None,
                        processor,
                        placement: Placement::In(Memory::Global),
                        span: declared.span,
                    });
                    let object = ObjectId(self.objects.len() as u32 - 1);
                    let placed = Placed { call, formal, placement, piece: piece.clone() };
                    Argument::Tensor(Tensor {
                        object,
                        piece,
                        shape,
                        privilege: *privilege,
                        chain: vec![placed],
                    })
                }
                FormalKind::Integer(symbol) => {
                    let var = self.vars.fresh(&declared.name, None, None);
                    symbols.insert(*symbol, Affine::var(var));
                    Argument::Integer(Affine::var(var))
                }
                FormalKind::Float(_) => Argument::Float(FloatArg::Formal(formal)),
            });
        }
        let call = Call {
            parent: None,
            launch: None,
            body: None,
            instance: Some(id),
            task: row.task,
            variant: row.variant,
            processor,
            arguments,
            symbols,
            span: row.span,
        };
        self.call(call, 0)
    }

    /// Adds a call and what its body launches.
    fn call(&mut self, mut call: Call, depth: usize) -> Res<Item> {
        let program = self.program;
        let variant = program.task(call.task).variant(call.variant);
        self.check_level(&call)?;
        let mut processors = HashMap::new();
        if let Some(id) = call.instance {
            self.tunables(id, &mut call.symbols, &mut processors)?;
        }
        let id = CallId(self.calls.len() as u32);
        let body = call.body;
        if self.calls.len() == CALLS {
            let message = format!("the entry leads to more than {CALLS} launches");
            return Err(Diagnostic::new(Code::TooLarge, call.span, message)
                .help("repeat launches by a loop: one in it counts once"));
        }
        self.calls.push(call);
        let Body::Inner(inner) = &variant.body else { return Ok(Item::Leaf(id)) };
        if depth > DEPTH {
            let message = format!("instances lead to each other more than {DEPTH} calls deep");
            return Err(Diagnostic::new(Code::Unmapped, self.calls[id.index()].span, message)
                .help("a row that leads to itself, directly or through others, has no end"));
        }
        let mut frame = Frame {
            call: id,
            tensors: HashMap::new(),
            partitions: HashMap::new(),
            shapes: HashMap::new(),
            processors,
            body,
            depth,
        };
        for (at, tensor) in inner.tensors.iter().enumerate() {
            if let Some(formal) = tensor.formal
                && let Some(Argument::Tensor(argument)) = self.calls[id.index()].arguments.get(formal)
            {
                frame.tensors.insert(program::TensorId(at as u32), argument.clone());
            }
        }
        let items = self.block(inner, &inner.statements, &mut frame)?;
        Ok(Item::Call(id, items))
    }

    fn check_level(&self, call: &Call) -> Res<()> {
        let arch = self.mapping.arch;
        let span = call.instance.map_or(call.span, |id| self.mapping.instance(id).span);
        if level(arch, call.processor).is_none() {
            let levels: Vec<&str> = levels(arch).map(|row| row.processor.name()).collect();
            let message = format!("{arch} has no level `{}` ({})", call.processor, levels.join(", "));
            return Err(Diagnostic::new(Code::Level, span, message));
        }
        if let Some(parent) = call.parent.map(|parent| &self.calls[parent.index()])
            && call.processor < parent.processor
        {
            let message =
                format!("`{}` under `{}` in the tree of instances", call.processor, parent.processor);
            return Err(Diagnostic::new(Code::Level, span, message)
                .help("a launch goes to the level of its caller or to one below"));
        }
        for argument in &call.arguments {
            let Argument::Tensor(tensor) = argument else { continue };
            if let Some(Placed { placement: Placement::In(memory), formal, .. }) = tensor.chain.last()
                && !holds(call.processor, *memory)
            {
                let name = &self.program.task(call.task).formals[*formal].name;
                let message =
                    format!("the level `{}` does not see `{name}` in {memory} memory", call.processor);
                return Err(Diagnostic::new(Code::Memory, span, message));
            }
        }
        Ok(())
    }

    /// The values that a row gives the tunables of its variant.
    fn tunables(
        &mut self,
        id: InstanceId,
        symbols: &mut HashMap<SymbolId, Affine>,
        processors: &mut HashMap<SymbolId, Processor>,
    ) -> Res<()> {
        let row = self.mapping.instance(id);
        let Some(inner) = self.program.task(row.task).variant(row.variant).inner() else { return Ok(()) };
        for tunable in inner.tunables() {
            let symbol = self.program.symbol(tunable);
            let setting = row.tunables.iter().find(|setting| setting.tunable == tunable);
            match setting.map(|setting| (&setting.value, setting.span)) {
                Some((SettingValue::Integer(value), span)) => {
                    let value = self.form(value, symbols, span)?;
                    symbols.insert(tunable, value);
                }
                Some((SettingValue::Processor(processor), _)) => {
                    processors.insert(tunable, *processor);
                }
                None => {
                    let name = self.program.instance_name(row);
                    let message = format!("`{name}` has no value for `{}`", symbol.name);
                    return Err(Diagnostic::new(Code::Tunable, row.span, message)
                        .related(symbol.span, "declared here")
                        .help(format!("write `{{ {} = … }}` in the row", symbol.name)));
                }
            }
        }
        Ok(())
    }

    fn block(&mut self, inner: &Inner, statements: &[program::Stmt], frame: &mut Frame) -> Res<Vec<Item>> {
        let mut items = Vec::new();
        for stmt in statements {
            match &stmt.kind {
                StmtKind::Tunable(_) => {}
                StmtKind::Let { symbol, value } => {
                    let value = self.here(frame, value, stmt.span)?;
                    self.calls[frame.call.index()].symbols.insert(*symbol, value);
                }
                StmtKind::Tensor(id) => self.local(inner, *id, frame)?,
                StmtKind::Partition(id) => self.partition(inner, *id, frame)?,
                StmtKind::Launch(id) => items.push(self.launch(inner, *id, frame)?),
                StmtKind::For { head, body } => {
                    let id = self.head(inner, *head, frame)?;
                    let around = frame.body.replace(id);
                    let items_of = self.block(inner, body, frame)?;
                    frame.body = around;
                    let level = items_of.iter().map(|item| self.level(item)).min();
                    self.loops[id.index()].processor = level.unwrap_or(Processor::Thread);
                    items.push(Item::Loop(id, items_of));
                }
            }
        }
        Ok(items)
    }

    /// The level of an item: of a loop, the outermost of what is in it.
    fn level(&self, item: &Item) -> Processor {
        match item {
            Item::Loop(id, _) => self.loops[id.index()].processor,
            Item::Call(id, _) | Item::Leaf(id) => self.calls[id.index()].processor,
        }
    }

    fn head(&mut self, inner: &Inner, head: program::LoopId, frame: &Frame) -> Res<LoopId> {
        let row = inner.head(head);
        let mut ranges = Vec::with_capacity(row.ranges.len());
        let mut counters = Vec::with_capacity(row.ranges.len());
        for (symbol, range) in row.counters.iter().zip(&row.ranges) {
            let lo = self.here(frame, &range.lo, row.span)?;
            let hi = self.here(frame, &range.hi, row.span)?;
            let least = self.vars.range(&lo).0;
            // The counter of a loop without iterations has no values, of which everything would hold: it is taken for unbounded.
            let most = self.vars.range(&hi).1.map(|hi| hi - 1);
            let most = most.filter(|most| least.is_none_or(|least| least <= *most));
            // A variant under itself has the same names for its counters: they get numbers.
            let name = &self.program.symbol(*symbol).name;
            let around = std::iter::successors(frame.body, |id| self.loops[id.index()].parent);
            let same = around.filter(|id| self.loops[id.index()].symbols.contains(symbol)).count();
            let name = if same == 0 { name.clone() } else { format!("{name}{}", same + 1) };
            let var = self.vars.fresh(&name, least, most);
            self.calls[frame.call.index()].symbols.insert(*symbol, Affine::var(var));
            counters.push(var);
            ranges.push((lo, hi));
        }
        self.loops.push(Loop {
            parent: frame.body,
            kind: row.kind,
            call: frame.call,
            head,
            processor: Processor::Thread,
            counters,
            symbols: row.counters.clone(),
            ranges,
            span: row.span,
        });
        Ok(LoopId(self.loops.len() as u32 - 1))
    }

    fn local(&mut self, inner: &Inner, id: program::TensorId, frame: &mut Frame) -> Res<()> {
        let row = inner.tensor(id);
        let shape: Vec<Affine> =
            row.shape.iter().map(|extent| self.here(frame, extent, row.span)).collect::<Res<_>>()?;
        let extents: Vec<Extent> = shape.iter().map(Affine::value).collect();
        let call = &self.calls[frame.call.index()];
        let local = call.instance.into_iter().flat_map(|id| &self.mapping.instance(id).attributes);
        let placement = local
            .filter_map(|attribute| match &attribute.kind {
                AttributeKind::Local { tensor, placement } if *tensor == id => Some(*placement),
                _ => None,
            })
            .next();
        self.objects.push(Object {
            name: row.name.clone(),
            param: None,
            maker: Some(frame.call),
            dtype: row.dtype,
            extents: extents.clone(),
            shape: shape.clone(),
            body: frame.body,
            processor: call.processor,
            placement: placement.unwrap_or(Placement::None),
            span: row.span,
        });
        let object = ObjectId(self.objects.len() as u32 - 1);
        let piece = Piece::whole(&extents);
        let tensor = Tensor { object, piece, shape, privilege: Privilege::ReadWrite, chain: Vec::new() };
        frame.tensors.insert(id, tensor);
        Ok(())
    }

    fn partition(&mut self, inner: &Inner, id: program::PartitionId, frame: &mut Frame) -> Res<()> {
        let row = inner.partition(id);
        let tensor = frame.tensors.get(&row.tensor);
        let tensor =
            tensor.ok_or_else(|| Diagnostic::internal(row.span, "a partition of no tensor"))?.clone();
        let bounds = |error: crate::partition::PartitionError| {
            Diagnostic::new(Code::PartitionBounds, row.span, format!("`{}`: {error}", row.name))
        };
        let processor = |arg: &ProcessorArg| match arg {
            ProcessorArg::Level(level) => Ok(*level),
            ProcessorArg::Tunable(symbol) => frame.processors.get(symbol).copied().ok_or_else(|| {
                let message = format!("`{}` has no value", self.program.symbol(*symbol).name);
                Diagnostic::new(Code::Tunable, row.span, message)
            }),
        };
        let (partition, shape) = match &row.kind {
            PartitionKind::Blocks { shape } => {
                let (mut cuts, mut extents) = (Vec::with_capacity(shape.len()), Vec::new());
                for (mode, extent) in shape.iter().enumerate() {
                    if extent.as_int() == Some(1) {
                        cuts.push(Cut::Index);
                        continue;
                    }
                    let block = self.here(frame, extent, row.span)?;
                    let whole = tensor.shape.get(mode) == Some(&block);
                    match block.value() {
                        Some(block) => cuts.push(Cut::Block(block)),
                        None if whole => cuts.push(Cut::Whole),
                        None => {
                            let text = self.vars.text(&block);
                            let message = format!("`{}`: a block of {text} along mode {mode}", row.name);
                            return Err(Diagnostic::new(Code::PartitionBounds, row.span, message)
                                .help("a block's extent is known when the kernel is compiled, or is the whole mode's"));
                        }
                    }
                    extents.push(block);
                }
                (Partition::blocks(tensor.piece.shape(), &cuts).map_err(bounds)?, extents)
            }
            PartitionKind::Mma { instruction, processor: level, operand } => {
                let Some(instruction) = Instruction::named(instruction) else {
                    let message = format!("there is no instruction `{instruction}`");
                    return Err(Diagnostic::new(Code::PartitionBounds, row.span, message)
                        .help("`wgmma_64x256x16`, `mma_16x8x16`: the family, and the extents of its tile"));
                };
                let level = processor(level)?;
                let partition = Partition::mma(tensor.piece.shape(), &instruction, level, *operand);
                let partition = partition.map_err(bounds)?;
                let shape = known(partition.shape());
                (partition, shape)
            }
            PartitionKind::Tv { layout, processor: level } => {
                processor(level)?;
                let partition = Partition::tv(tensor.piece.shape(), layout).map_err(bounds)?;
                let shape = known(partition.shape());
                (partition, shape)
            }
        };
        frame.partitions.insert(id, partition);
        frame.shapes.insert(id, shape);
        Ok(())
    }

    /// The tensor that a piece of a launch is.
    fn piece(&mut self, piece: &program::Piece, inner: &Inner, frame: &Frame, span: Origin) -> Res<Tensor> {
        let missing = || Diagnostic::internal(span, "a piece of no tensor");
        let of = frame.tensors.get(&inner.tensor_of(piece)).ok_or_else(missing)?;
        match piece {
            program::Piece::Whole(_) => Ok(of.clone()),
            program::Piece::Part { partition, colours } => {
                let colours: Vec<Affine> =
                    colours.iter().map(|colour| self.here(frame, colour, span)).collect::<Res<_>>()?;
                let row = frame.partitions.get(partition).ok_or_else(missing)?;
                let shape = frame.shapes.get(partition).ok_or_else(missing)?.clone();
                let part = of.piece.part(row, &colours, &mut self.vars).map_err(|error| {
                    let partition = inner.partition(*partition);
                    let message = format!("`{}`: {error}", partition.name);
                    Diagnostic::new(Code::PartitionBounds, span, message).related(partition.span, "cut here")
                })?;
                Ok(Tensor { piece: part, shape, ..of.clone() })
            }
        }
    }

    fn launch(&mut self, inner: &Inner, id: LaunchId, frame: &Frame) -> Res<Item> {
        let launch = inner.launch(id);
        let caller = &self.calls[frame.call.index()];
        let Some(row_of_caller) = caller.instance else {
            return Err(Diagnostic::internal(launch.span, "a leaf launches"));
        };
        let target = resolve(self.program, self.mapping, row_of_caller, id)?;
        let instance = match target {
            Target::Instance(id) => Some(id),
            Target::Leaf(..) => None,
        };
        let row = instance.map(|id| self.mapping.instance(id));
        let task = self.program.task(launch.task);
        let processor = target.processor(self.mapping, caller.processor);
        let call = CallId(self.calls.len() as u32);
        let mut symbols = HashMap::new();
        let mut arguments = Vec::with_capacity(launch.arguments.len());
        let mut at = 0;
        for (formal, (argument, declared)) in launch.arguments.iter().zip(&task.formals).enumerate() {
            arguments.push(match &argument.kind {
                ArgumentKind::Tensor { piece, when } => {
                    let mut tensor = self.piece(piece, inner, frame, argument.span)?;
                    if let Some(when) = when {
                        let guards = self.guards(frame, when, argument.span)?;
                        tensor.piece = tensor.piece.when(guards);
                    }
                    if let FormalKind::Tensor { privilege, shape, .. } = &declared.kind {
                        tensor.privilege = *privilege;
                        for (extent, value) in shape.iter().zip(&tensor.shape) {
                            if let Expr::Symbol(symbol) = extent
                                && self.program.symbol(*symbol).kind == SymbolKind::Extent
                            {
                                symbols.entry(*symbol).or_insert_with(|| value.clone());
                            }
                        }
                    }
                    let memories = row.and_then(|row| row.memories.as_ref());
                    let placement = memories.and_then(|m| m.get(at)).copied().unwrap_or(Placement::None);
                    at += 1;
                    tensor.chain.push(Placed { call, formal, placement, piece: tensor.piece.clone() });
                    Argument::Tensor(tensor)
                }
                ArgumentKind::Integer(value) => {
                    let value = self.here(frame, value, argument.span)?;
                    if let FormalKind::Integer(symbol) = &declared.kind {
                        symbols.insert(*symbol, value.clone());
                    }
                    Argument::Integer(value)
                }
                ArgumentKind::Float(FloatArg::Formal(formal)) => {
                    match self.calls[frame.call.index()].arguments.get(*formal) {
                        Some(Argument::Float(float)) => Argument::Float(*float),
                        _ => return Err(Diagnostic::internal(argument.span, "no number")),
                    }
                }
                ArgumentKind::Float(float) => Argument::Float(*float),
            });
        }
        let call = Call {
            parent: Some(frame.call),
            launch: Some(id),
            body: frame.body,
            instance,
            task: launch.task,
            variant: target.variant(self.mapping).1,
            processor,
            arguments,
            symbols,
            span: launch.span,
        };
        self.call(call, frame.depth + 1)
    }

    /// The conditions of an integer expression, as far as they are linear; what is not is left out, so that the piece is larger.
    fn guards(&mut self, frame: &Frame, when: &Expr, span: Origin) -> Res<Vec<Guard>> {
        let Expr::Binary(op, a, b) = when else { return Ok(Vec::new()) };
        if *op == IntOp::And {
            let mut guards = self.guards(frame, a, span)?;
            guards.extend(self.guards(frame, b, span)?);
            return Ok(guards);
        }
        if !op.is_condition() || *op == IntOp::Or {
            return Ok(Vec::new());
        }
        let (a, b) = (self.here(frame, a, span)?, self.here(frame, b, span)?);
        let one = Affine::constant(1);
        Ok(match op {
            IntOp::Eq => vec![Guard::Zero(a.plus(&b, -1))],
            IntOp::Lt => vec![Guard::AtLeastZero(b.plus(&a, -1).plus(&one, -1))],
            IntOp::Le => vec![Guard::AtLeastZero(b.plus(&a, -1))],
            IntOp::Gt => vec![Guard::AtLeastZero(a.plus(&b, -1).plus(&one, -1))],
            IntOp::Ge => vec![Guard::AtLeastZero(a.plus(&b, -1))],
            _ => Vec::new(),
        })
    }

    fn here(&mut self, frame: &Frame, expr: &Expr, span: Origin) -> Res<Affine> {
        let symbols = std::mem::take(&mut self.calls[frame.call.index()].symbols);
        let form = self.form(expr, &symbols, span);
        self.calls[frame.call.index()].symbols = symbols;
        form
    }

    fn forms(
        &mut self,
        exprs: &[Expr],
        symbols: &HashMap<SymbolId, Affine>,
        span: Origin,
    ) -> Res<Vec<Affine>> {
        exprs.iter().map(|expr| self.form(expr, symbols, span)).collect()
    }

    /// The value of an expression, affine where it can be.
    fn form(&mut self, expr: &Expr, symbols: &HashMap<SymbolId, Affine>, span: Origin) -> Res<Affine> {
        match expr {
            Expr::Int(value) => Ok(Affine::constant(*value)),
            Expr::Symbol(id) => match (symbols.get(id), &self.program.symbol(*id).kind) {
                (Some(value), _) => Ok(value.clone()),
                (None, SymbolKind::Constant(value)) => self.form(value, symbols, span),
                (None, _) => {
                    let name = &self.program.symbol(*id).name;
                    Err(Diagnostic::new(Code::UnknownName, span, format!("`{name}` has no value here")))
                }
            },
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.form(a, symbols, span)?, self.form(b, symbols, span)?);
                self.vars.apply(*op, &a, &b).ok_or_else(|| {
                    let (a, b) = (self.vars.text(&a), self.vars.text(&b));
                    let message = format!("an operation on {a} and {b} has no value");
                    Diagnostic::new(Code::BadValue, span, message)
                })
            }
            Expr::Block(_) | Expr::Element(..) | Expr::Scalar(_) => {
                Err(Diagnostic::internal(span, "an integer of a kernel in a task program"))
            }
        }
    }
}

fn known(shape: Vec<Extent>) -> Vec<Affine> {
    shape.into_iter().map(|extent| Affine::constant(extent.unwrap_or(1))).collect()
}
