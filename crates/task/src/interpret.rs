//! The task interpreter: it defines what a task program means.
//!
//! A program runs in the order of its statements, and arguments are passed by reference. The iterations of a `prange` run one after another in
//! any order, which a seed picks. A leaf is a kernel of the tile language, run by its interpreter.
//!
//! Three rules make that well defined, and are checked here, element by element: an argument that is written has no element in common with
//! another of the same launch; iterations of a `prange` touch no common element that one of them writes, but to add to it; and a task writes
//! every element of a `write` formal, which nothing reads before. Elements of such a formal, and of a tensor that a body makes, are not
//! numbers until they are written. What lies outside of a tensor reads as 0 and is not written.

mod memory;

use std::collections::{BTreeMap, HashMap};

use tilewright_machine::Elements;
use tilewright_tile::{Argument, Code, Constants, Diagnostic, Diagnostics, Origin, SymbolId};

use crate::cut::{self, Processors};
use crate::environment::{Environment, check_rank};
use crate::leaf::{self, LeafKernel};
use crate::mapping::{InstanceId, Mapping, SettingValue};
use crate::partition::PartitionError;
use crate::program::{
    ArgumentKind, FloatArg, FormalKind, Inner, Launch, LaunchId, LoopKind, Piece, Privilege, Program, Stmt,
    StmtKind, Task, TaskId, VariantId,
};
use crate::resolve::{Target, resolve};
use crate::verify::entry_extents;
use memory::{Access, Memory, View};

/// Options of an interpretation.
#[derive(Clone, Debug, Default)]
pub struct Interpretation {
    /// Values of constants of the text, by name; the others keep their defaults.
    pub constants: Constants,
    /// Values of sizes, by name; the others keep their defaults.
    pub sizes: BTreeMap<String, i64>,
    /// The order in which iterations of a `prange` run: that of the text for 0.
    pub seed: u64,
}

/// Runs the entry of a mapping. Of the mapping the variants and the tunables are used: it changes nothing else of what is computed.
///
/// `args` are in the order of the entry's formals. Tensors that are written are changed in place.
///
/// # Errors
///
/// A step of the program that has no meaning, at its place; arguments that do not fit.
pub fn interpret(
    program: &Program,
    mapping: &Mapping,
    how: &Interpretation,
    args: &mut [Argument],
) -> Result<(), Diagnostics> {
    let Some(entry) = mapping.entry() else {
        let message = format!("the mapping `{}` has no instance", mapping.name);
        return Err(Diagnostic::new(Code::Unmapped, mapping.span, message).into());
    };
    let constants = Environment::of(program, &how.constants)?;
    let instance = mapping.instance(entry);
    let task = program.task(instance.task);
    let extents = entry_extents(program, task, &how.sizes)?;
    let mut values = constants.clone();
    for (symbol, value) in &extents {
        values.set(*symbol, *value);
    }
    let mut run = Run {
        program,
        mapping,
        constants,
        seed: how.seed,
        memory: Memory::default(),
        kernels: HashMap::new(),
        depth: 0,
    };
    if args.len() != task.formals.len() {
        let message = format!(
            "`{}` has {} formals, and {} arguments are given",
            task.name,
            task.formals.len(),
            args.len()
        );
        return Err(Diagnostic::new(Code::BadLaunch, task.span, message).into());
    }
    let mut given = Vec::new();
    for (formal, arg) in task.formals.iter().zip(args.iter()) {
        let kind = || {
            let message = format!("the argument for `{}` is of another kind", formal.name);
            Diagnostic::new(Code::BadLaunch, formal.span, message)
        };
        given.push(match (&formal.kind, arg) {
            (FormalKind::Float(_), Argument::Scalar(number)) => Value::Float(number.nearest()),
            (FormalKind::Integer(_), Argument::Scalar(number)) => {
                Value::Integer(number.integer().and_then(|n| i64::try_from(n).ok()).ok_or_else(kind)?)
            }
            (FormalKind::Tensor { dtype, shape, .. }, arg) => {
                let elements = arg.elements().ok_or_else(kind)?;
                let mut sizes = Vec::new();
                for extent in shape {
                    sizes.push(values.value(program, extent, formal.span)?);
                }
                holds(&formal.name, &sizes, formal.span)?;
                let expected = sizes.iter().product::<i64>();
                if elements.len() as i64 != expected {
                    let message = format!(
                        "the tensor `{}` has {expected} elements, and {} are given",
                        formal.name,
                        elements.len()
                    );
                    return Err(Diagnostic::new(Code::BadLaunch, formal.span, message).into());
                }
                Value::Tensor(run.memory.object(*dtype, &sizes, Some(elements)))
            }
            _ => return Err(kind().into()),
        });
    }
    run.launch(Target::Instance(entry), &given, task.span)?;
    for (arg, value) in args.iter_mut().zip(&given) {
        if let Value::Tensor(view) = value {
            *arg = Argument::tensor(run.memory.elements(view.object).clone());
        }
    }
    Ok(())
}

/// The deepest nesting of launches.
const MAX_DEPTH: usize = 64;
/// The most iterations of a `prange`, which 32 bits tell apart.
const MAX_PARALLEL: u64 = 1 << 24;
/// The most elements of a tensor.
const MAX_ELEMENTS: i64 = 1 << 31;

/// Refuses tensors that are too large to hold.
fn holds(name: &str, shape: &[i64], span: Origin) -> Result<(), Diagnostic> {
    let count = shape.iter().try_fold(1i64, |count, extent| count.checked_mul(*extent));
    if count.is_some_and(|count| (0..MAX_ELEMENTS).contains(&count)) {
        return Ok(());
    }
    let message =
        format!("`{name}` has more than {MAX_ELEMENTS} elements, the most that the interpreter holds");
    Err(Diagnostic::new(Code::TooLarge, span, message))
}

/// An argument.
#[derive(Clone, Debug)]
enum Value {
    Tensor(View),
    Integer(i64),
    Float(f64),
}

struct Run<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    constants: Environment,
    seed: u64,
    memory: Memory,
    /// Kernels of leaves, by their variant and the values of their constants.
    kernels: HashMap<(TaskId, VariantId, Vec<Option<i64>>), LeafKernel>,
    depth: usize,
}

/// A launch that runs an inner variant.
struct Frame<'a> {
    task: &'a Task,
    inner: &'a Inner,
    caller: InstanceId,
    values: Environment,
    processors: Processors,
    args: Vec<Value>,
    /// The tensors of the body that there are now.
    tensors: Vec<Option<View>>,
}

impl<'a> Run<'a> {
    fn launch(&mut self, target: Target, args: &[Value], at: Origin) -> Result<(), Diagnostics> {
        if self.depth >= MAX_DEPTH {
            let message = format!("launches nest deeper than {MAX_DEPTH} levels");
            return Err(Diagnostic::new(Code::Level, at, message).into());
        }
        self.depth += 1;
        let ran = self.launched(target, args, at);
        self.depth -= 1;
        ran
    }

    fn launched(&mut self, target: Target, args: &[Value], at: Origin) -> Result<(), Diagnostics> {
        let (task_id, variant_id) = target.variant(self.mapping);
        let task = self.program.task(task_id);
        let variant = task.variant(variant_id);
        let mut values = self.constants.clone();
        self.bind(task, args, &mut values, at)?;
        self.apart(task, args, at)?;
        // What a `write` formal holds at first is unknown.
        for (i, privilege, _, _) in task.tensors() {
            if let (Privilege::Write, Value::Tensor(view)) = (privilege, &args[i]) {
                self.memory.forget(view);
            }
        }
        match (variant.leaf(), variant.inner(), target) {
            (Some(leaf), _, _) => {
                let key =
                    (task_id, variant_id, task.extents.iter().map(|id| values.0[id.0 as usize]).collect());
                let made = match self.kernels.remove(&key) {
                    Some(kernel) => kernel,
                    None => {
                        let constants = leaf.constants(self.program, &values)?;
                        leaf::kernel(task, variant, leaf, &constants).map_err(|errors| {
                            Diagnostics(
                                errors.0.into_iter().map(|e| e.related(at, "in this launch")).collect(),
                            )
                        })?
                    }
                };
                let ran = self.leaf(task, &made, args, at);
                self.kernels.insert(key, made);
                ran?;
            }
            (_, Some(inner), Target::Instance(caller)) => {
                let mut processors = Processors::new();
                for setting in &self.mapping.instance(caller).tunables {
                    match &setting.value {
                        SettingValue::Processor(level) => {
                            processors.insert(setting.tunable, *level);
                        }
                        SettingValue::Integer(value) => {
                            let value = self.constants.value(self.program, value, setting.span)?;
                            values.set(setting.tunable, value);
                        }
                    }
                }
                let mut tensors: Vec<Option<View>> = vec![None; inner.tensors.len()];
                for (slot, tensor) in tensors.iter_mut().zip(&inner.tensors) {
                    if let Some(Value::Tensor(view)) = tensor.formal.and_then(|formal| args.get(formal)) {
                        *slot = Some(view.clone());
                    }
                }
                let args = args.to_vec();
                let mut frame = Frame { task, inner, caller, values, processors, args, tensors };
                let mark = self.memory.mark();
                self.body(&mut frame, &inner.statements)?;
                self.memory.release(mark);
            }
            _ => return Err(Diagnostic::internal(at, "an inner variant without an instance").into()),
        }
        for (i, privilege, _, _) in task.tensors() {
            if let (Privilege::Write, Value::Tensor(view)) = (privilege, &args[i])
                && let Some(missing) = self.memory.unwritten(view)
            {
                let formal = &task.formals[i];
                let message = format!(
                    "`{}` is `write` in `{}`, and {} is never written",
                    formal.name,
                    task.name,
                    missing.text()
                );
                return Err(Diagnostic::new(Code::NotWritten, at, message)
                    .related(formal.span, "declared here")
                    .help(format!(
                        "write every element, or declare `{}: read_write` where the caller's are to stay",
                        formal.name
                    ))
                    .into());
            }
        }
        Ok(())
    }

    /// Binds the extents that a task's shapes name, and its integers.
    fn bind(
        &self,
        task: &Task,
        args: &[Value],
        values: &mut Environment,
        at: Origin,
    ) -> Result<(), Diagnostics> {
        for (formal, arg) in task.formals.iter().zip(args) {
            if let (FormalKind::Integer(symbol), Value::Integer(value)) = (&formal.kind, arg) {
                values.set(*symbol, *value);
            }
        }
        for (i, _, dtype, shape) in task.tensors() {
            let Value::Tensor(view) = &args[i] else { continue };
            let formal = &task.formals[i];
            check_rank((task, formal), (shape, &view.shape), at)?;
            let given = self.memory.dtype(view.object);
            if given != dtype {
                let message = format!(
                    "`{}` is of type {dtype} in `{}`, and the argument of {given}",
                    formal.name, task.name
                );
                let error = Diagnostic::new(Code::TypeMismatch, at, message);
                return Err(error.related(formal.span, "declared here").into());
            }
            values.bind_extents(self.program, (task, formal), (shape, &view.shape), at)?;
        }
        Ok(())
    }

    /// Refuses arguments with a common element of which one is written.
    fn apart(&mut self, task: &Task, args: &[Value], at: Origin) -> Result<(), Diagnostics> {
        let tensors: Vec<(usize, Privilege)> =
            task.tensors().map(|(i, privilege, _, _)| (i, privilege)).collect();
        for (k, (i, first)) in tensors.iter().enumerate() {
            for (j, second) in &tensors[k + 1..] {
                let (Value::Tensor(a), Value::Tensor(b)) = (&args[*i], &args[*j]) else { continue };
                if !(first.writes() || second.writes()) || a.object != b.object {
                    continue;
                }
                if let Some(element) = self.memory.common(a, b) {
                    let written = if first.writes() { i } else { j };
                    let message = format!(
                        "arguments {} and {} of `launch {}` have {} in common, and `{}` is written",
                        i + 1,
                        j + 1,
                        task.name,
                        element.text(),
                        task.formals[*written].name
                    );
                    return Err(Diagnostic::new(Code::Overlap, at, message)
                        .related(task.formals[*i].span, "the one")
                        .related(task.formals[*j].span, "the other")
                        .help("give the task a tensor of its own to write")
                        .into());
                }
            }
        }
        Ok(())
    }

    /// Runs a leaf.
    fn leaf(
        &mut self,
        task: &Task,
        kernel: &LeafKernel,
        args: &[Value],
        at: Origin,
    ) -> Result<(), Diagnostics> {
        let params = kernel.verified.program().params.len();
        let mut given: Vec<Option<Argument>> = vec![None; params];
        for ((formal, arg), param) in task.formals.iter().zip(args).zip(&kernel.params) {
            given[param.0 as usize] = Some(match (arg, &formal.kind) {
                (Value::Integer(value), _) => Argument::Scalar((*value).into()),
                (Value::Float(value), _) => Argument::Scalar((*value).into()),
                (Value::Tensor(view), FormalKind::Tensor { privilege, .. }) => {
                    if privilege.reads() {
                        self.memory
                            .access(view, Access::Read)
                            .map_err(|clash| clash.message(self.program, at))?;
                        if let Some(missing) = self.memory.unwritten(view) {
                            let message = format!(
                                "`launch {}` reads {} of `{}`, which nothing has written",
                                task.name,
                                missing.text(),
                                formal.name
                            );
                            return Err(Diagnostic::new(Code::NotWritten, at, message)
                                .related(formal.span, "declared here")
                                .into());
                        }
                    }
                    Argument::tensor(self.memory.gather(view, *privilege == Privilege::Add))
                }
                (Value::Tensor(_), _) => return Err(Diagnostic::internal(at, "a tensor for a number").into()),
            });
        }
        let mut arguments: Vec<Argument> = Vec::with_capacity(params);
        for arg in given {
            let missing = || Diagnostic::internal(at, "a parameter of a leaf without an argument");
            arguments.push(arg.ok_or_else(missing)?);
        }
        tilewright_tile::interpret(&kernel.verified, &BTreeMap::new(), &mut arguments)
            .map_err(|error| error.diagnostic().related(at, "in this launch"))?;
        for ((formal, arg), param) in task.formals.iter().zip(args).zip(&kernel.params) {
            let (Value::Tensor(view), FormalKind::Tensor { privilege, .. }) = (arg, &formal.kind) else {
                continue;
            };
            if !privilege.writes() {
                continue;
            }
            let add = *privilege == Privilege::Add;
            let access = if add { Access::Add } else { Access::Write };
            self.memory.access(view, access).map_err(|clash| clash.message(self.program, at))?;
            if let Some(elements) = arguments[param.0 as usize].elements() {
                self.memory.scatter(view, &elements, add);
            }
        }
        Ok(())
    }

    // Inner variants.

    fn body(&mut self, frame: &mut Frame<'a>, body: &'a [Stmt]) -> Result<(), Diagnostics> {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Tunable(_) | StmtKind::Partition(_) => {}
                StmtKind::Let { symbol, value } => {
                    let value = frame.values.value(self.program, value, stmt.span)?;
                    frame.values.set(*symbol, value);
                }
                StmtKind::Tensor(id) => {
                    let tensor = frame.inner.tensor(*id);
                    let mut shape = Vec::new();
                    for extent in &tensor.shape {
                        let value = frame.values.value(self.program, extent, stmt.span)?;
                        if value < 1 {
                            let message = format!("`{}` has the extent {value}", tensor.name);
                            let error = Diagnostic::new(Code::BadValue, stmt.span, message);
                            return Err(error.help("an extent is at least 1").into());
                        }
                        shape.push(value);
                    }
                    holds(&tensor.name, &shape, stmt.span)?;
                    frame.tensors[id.index()] = Some(self.memory.object(tensor.dtype, &shape, None));
                }
                StmtKind::Launch(id) => self.launch_statement(frame, *id)?,
                StmtKind::For { head, body } => {
                    let head = frame.inner.head(*head);
                    let mut ranges = Vec::new();
                    for range in &head.ranges {
                        let lo = frame.values.value(self.program, &range.lo, head.span)?;
                        let hi = frame.values.value(self.program, &range.hi, head.span)?;
                        ranges.push((lo, hi.max(lo)));
                    }
                    self.loop_over(frame, (head.kind, &head.counters, &ranges), (head.span, body))?;
                }
            }
        }
        Ok(())
    }

    fn loop_over(
        &mut self,
        frame: &mut Frame<'a>,
        (kind, counters, ranges): (LoopKind, &[SymbolId], &[(i64, i64)]),
        (span, body): (Origin, &'a [Stmt]),
    ) -> Result<(), Diagnostics> {
        let parallel = kind == LoopKind::Prange;
        let most = if parallel { MAX_PARALLEL } else { i64::MAX as u64 };
        let count = ranges.iter().try_fold(1u64, |count, (lo, hi)| count.checked_mul(hi.abs_diff(*lo)));
        let count = count.filter(|count| *count <= most).ok_or_else(|| {
            let message = format!("the interpreter runs loops of up to {most} iterations");
            Diagnostic::new(Code::TooLarge, span, message)
        })?;
        let order = if parallel && self.seed != 0 { permuted(count, self.seed) } else { Vec::new() };
        if parallel {
            self.memory.begin_parallel(span, counters, ranges);
        }
        for step in 0..count {
            let number = order.get(step as usize).copied().unwrap_or(step);
            let mut rest = number;
            for (counter, (lo, hi)) in counters.iter().zip(ranges).rev() {
                let extent = hi.abs_diff(*lo);
                frame.values.set(*counter, lo + (rest % extent) as i64);
                rest /= extent;
            }
            if parallel {
                self.memory.iteration(number);
            }
            let mark = self.memory.mark();
            self.body(frame, body)?;
            self.memory.release(mark);
        }
        if parallel {
            self.memory.end_parallel();
        }
        Ok(())
    }

    fn launch_statement(&mut self, frame: &Frame<'a>, id: LaunchId) -> Result<(), Diagnostics> {
        let launch = frame.inner.launch(id);
        let target = resolve(self.program, self.mapping, frame.caller, id)?;
        let mut args = Vec::with_capacity(launch.arguments.len());
        for argument in &launch.arguments {
            args.push(match &argument.kind {
                ArgumentKind::Integer(value) => {
                    let value = frame.values.value(self.program, value, argument.span)?;
                    if i32::try_from(value).is_err() {
                        let message = format!("an argument of type `i32` is {value}");
                        return Err(Diagnostic::new(Code::BadValue, argument.span, message).into());
                    }
                    Value::Integer(value)
                }
                ArgumentKind::Float(FloatArg::Literal(value)) => Value::Float(f64::from(*value as f32)),
                ArgumentKind::Float(FloatArg::Constant(constant)) => {
                    Value::Float(f64::from(self.program.numbers[*constant].value as f32))
                }
                ArgumentKind::Float(FloatArg::Formal(formal)) => frame.args[*formal].clone(),
                ArgumentKind::Tensor { piece, when } => {
                    let view = self.piece(frame, launch, piece, argument.span)?;
                    let absent = match when {
                        None => false,
                        Some(when) => frame.values.value(self.program, when, argument.span)? == 0,
                    };
                    Value::Tensor(if absent { view.absent() } else { view })
                }
            });
        }
        self.launch(target, &args, launch.span)
    }

    /// The elements of a piece.
    fn piece(
        &self,
        frame: &Frame<'a>,
        launch: &Launch,
        piece: &Piece,
        span: Origin,
    ) -> Result<View, Diagnostics> {
        let inner = frame.inner;
        let missing =
            || Diagnostic::internal(launch.span, format!("a tensor of `{}` is not there", frame.task.name));
        let whole = frame.tensors[inner.tensor_of(piece).index()].as_ref().ok_or_else(missing)?;
        let Piece::Part { partition, colours } = piece else { return Ok(whole.clone()) };
        let row = inner.partition(*partition);
        let extents: Vec<Option<i64>> = whole.shape.iter().map(|extent| Some(*extent)).collect();
        let cut = cut::partition(self.program, inner, row, &extents, &frame.values, &frame.processors)?;
        let mut colour = Vec::new();
        for value in colours {
            colour.push(frame.values.value(self.program, value, span)?);
        }
        let beyond =
            |(at, extent): (&i64, &Option<i64>)| *at < 0 || extent.is_some_and(|extent| *at >= extent);
        let of_colours = cut.colours();
        if colour.len() != of_colours.len() || colour.iter().zip(&of_colours).any(beyond) {
            let error = PartitionError::Bounds { colour, extents: of_colours };
            return Err(cut::refused(inner, row, span, &error).into());
        }
        Ok(whole.part(&cut, &colour))
    }
}

/// The numbers below a count in an order that a seed picks: Fisher and Yates, with the numbers of splitmix64.
fn permuted(count: u64, seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    for i in (1..order.len()).rev() {
        order.swap(i, (next() % (i as u64 + 1)) as usize);
    }
    order
}

/// The elements of a tensor that nothing has written.
pub(crate) fn unknown(dtype: tilewright_machine::DType, count: usize) -> Elements {
    match dtype.is_wide_integer() {
        true => Elements::Integers(vec![0; count]),
        false => Elements::Floats(vec![f64::NAN; count]),
    }
}
