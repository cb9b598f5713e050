//! Shapes, pieces, leaves and parallel iterations at the default sizes: the tree of launches is followed with the first and with the last
//! iteration of each loop.

use std::collections::HashSet;

use tilewright_tile::{Diagnostic, Origin, SymbolId};

use super::parallel;
use crate::cut::{self, Processors};
use crate::environment::{Environment, check_rank};
use crate::leaf;
use crate::mapping::{InstanceId, Mapping, SettingValue};
use crate::partition::PartitionError;
use crate::program::{
    ArgumentKind, Body, FormalKind, Inner, LaunchId, Piece, Program, Stmt, StmtKind, TaskId, VariantId,
};
use crate::resolve::{Target, resolve};

/// Loops in each other of which the first and the last iteration are followed.
const MAX_NEST: usize = 6;
/// The most variants with shapes that are followed.
const MAX_VISITS: usize = 4096;

/// Follows the launches of a mapping.
pub(super) fn check(
    program: &Program,
    mapping: &Mapping,
    values: &Environment,
    errors: &mut Vec<Diagnostic>,
) {
    let Some(entry) = mapping.entry() else { return };
    let task = program.task(mapping.instance(entry).task);
    let Ok(extents) = super::entry_extents(program, task, &Default::default()) else { return };
    let mut bound = values.clone();
    extents.iter().for_each(|(symbol, value)| bound.set(*symbol, *value));
    let mut args = Vec::new();
    for formal in &task.formals {
        args.push(match &formal.kind {
            FormalKind::Tensor { shape, .. } => {
                Arg::Shape(shape.iter().filter_map(|extent| extent.eval(&bound)).collect())
            }
            FormalKind::Integer(_) => Arg::Integer(None),
            FormalKind::Float(_) => Arg::Float,
        });
    }
    let mut walk =
        Walk { program, mapping, constants: values, seen: HashSet::new(), told: HashSet::new(), errors };
    walk.launch(Target::Instance(entry), &args, task.span);
}

/// An argument as far as shapes go. The value of an integer is not always known.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Arg {
    Shape(Vec<i64>),
    Integer(Option<i64>),
    Float,
}

struct Walk<'a> {
    program: &'a Program,
    mapping: &'a Mapping,
    constants: &'a Environment,
    /// Variants and the arguments with which they were followed.
    seen: HashSet<(Target, Vec<Arg>)>,
    /// Leaves that were refused: with other extents they would be again.
    told: HashSet<(TaskId, VariantId)>,
    errors: &'a mut Vec<Diagnostic>,
}

struct Frame<'a> {
    inner: &'a Inner,
    caller: InstanceId,
    values: Environment,
    processors: Processors,
    shapes: Vec<Option<Vec<i64>>>,
    /// The loops around.
    depth: usize,
}

impl<'a> Walk<'a> {
    fn launch(&mut self, target: Target, args: &[Arg], at: Origin) {
        if self.seen.len() >= MAX_VISITS || !self.seen.insert((target, args.to_vec())) {
            return;
        }
        let (task_id, variant_id) = target.variant(self.mapping);
        let task = self.program.task(task_id);
        let mut values = self.constants.clone();
        if let Err(error) = self.bind(task_id, args, &mut values, at) {
            self.errors.push(error);
            return;
        }
        match (&task.variant(variant_id).body, target) {
            (Body::Leaf(leaf), _) => {
                if self.told.contains(&(task_id, variant_id)) {
                    return;
                }
                let made = leaf
                    .constants(self.program, &values)
                    .map_err(|error| error.into())
                    .and_then(|constants| leaf::kernel(task, task.variant(variant_id), leaf, &constants));
                if let Err(found) = made {
                    self.told.insert((task_id, variant_id));
                    self.errors.extend(found.0.into_iter().map(|error| error.related(at, "in this launch")));
                }
            }
            (Body::Inner(inner), Target::Instance(caller)) => {
                let mut processors = Processors::new();
                for setting in &self.mapping.instance(caller).tunables {
                    match &setting.value {
                        SettingValue::Processor(level) => {
                            processors.insert(setting.tunable, *level);
                        }
                        SettingValue::Integer(value) => {
                            if let Some(value) = value.eval(self.constants) {
                                values.set(setting.tunable, value);
                            }
                        }
                    }
                }
                let shape = |formal: Option<usize>| match formal.and_then(|formal| args.get(formal)) {
                    Some(Arg::Shape(shape)) => Some(shape.clone()),
                    _ => None,
                };
                let shapes = inner.tensors.iter().map(|tensor| shape(tensor.formal)).collect();
                let mut frame = Frame { inner, caller, values, processors, shapes, depth: 0 };
                self.body(&mut frame, &inner.statements);
            }
            // A launch of an inner variant goes to an instance.
            (Body::Inner(_), Target::Leaf(..)) => {}
        }
    }

    /// Binds the extents that a task's shapes name.
    fn bind(
        &self,
        task: TaskId,
        args: &[Arg],
        values: &mut Environment,
        at: Origin,
    ) -> Result<(), Diagnostic> {
        let task = self.program.task(task);
        for (formal, arg) in task.formals.iter().zip(args) {
            if let (FormalKind::Integer(symbol), Arg::Integer(Some(value))) = (&formal.kind, arg) {
                values.set(*symbol, *value);
            }
        }
        for (i, _, _, shape) in task.tensors() {
            let Arg::Shape(given) = &args[i] else { continue };
            let formal = &task.formals[i];
            check_rank((task, formal), (shape, given), at)?;
            values.bind_extents(self.program, (task, formal), (shape, given), at)?;
        }
        Ok(())
    }

    fn body(&mut self, frame: &mut Frame<'a>, body: &'a [Stmt]) {
        for stmt in body {
            match &stmt.kind {
                StmtKind::Tunable(_) => {}
                StmtKind::Let { symbol, value } => {
                    if let Some(value) = value.eval(&frame.values) {
                        frame.values.set(*symbol, value);
                    }
                }
                StmtKind::Tensor(id) => {
                    let tensor = frame.inner.tensor(*id);
                    let mut shape = Vec::new();
                    for extent in &tensor.shape {
                        match frame.values.value(self.program, extent, stmt.span) {
                            Ok(extent) if extent >= 1 => shape.push(extent),
                            Ok(extent) => {
                                let message = format!("`{}` has the extent {extent}", tensor.name);
                                let code = tilewright_tile::Code::BadValue;
                                let error = Diagnostic::new(code, stmt.span, message);
                                self.errors.push(error.help("an extent is at least 1"));
                                return;
                            }
                            Err(error) => return self.errors.push(error),
                        }
                    }
                    frame.shapes[id.index()] = Some(shape);
                }
                StmtKind::Partition(id) => {
                    let row = frame.inner.partition(*id);
                    let Some(shape) = &frame.shapes[row.tensor.index()] else { continue };
                    let extents: Vec<Option<i64>> = shape.iter().map(|extent| Some(*extent)).collect();
                    let made = cut::partition(
                        self.program,
                        frame.inner,
                        row,
                        &extents,
                        &frame.values,
                        &frame.processors,
                    );
                    if let Err(error) = made {
                        return self.errors.push(error);
                    }
                }
                StmtKind::Launch(id) => self.launch_statement(frame, *id),
                StmtKind::For { head, body } => {
                    let row = frame.inner.head(*head);
                    let mut ranges: Vec<(SymbolId, i64, i64)> = Vec::new();
                    for (counter, range) in row.counters.iter().zip(&row.ranges) {
                        let (lo, hi) = (range.lo.eval(&frame.values), range.hi.eval(&frame.values));
                        let Some((lo, hi)) = lo.zip(hi) else { return };
                        ranges.push((*counter, lo, hi));
                    }
                    if ranges.iter().any(|(_, lo, hi)| lo >= hi) {
                        continue;
                    }
                    let before = self.errors.len();
                    // Both ends of every loop of a deep nest would be too many.
                    let ends: &[bool] = if frame.depth < MAX_NEST { &[false, true] } else { &[false] };
                    frame.depth += 1;
                    for last in ends {
                        for (counter, lo, hi) in &ranges {
                            frame.values.set(*counter, if *last { hi - 1 } else { *lo });
                        }
                        self.body(frame, body);
                        if self.errors.len() > before {
                            return;
                        }
                    }
                    frame.depth -= 1;
                    if let Some(error) = parallel::check(
                        self.program,
                        frame.inner,
                        (&frame.values, &frame.processors),
                        &frame.shapes,
                        (*head, body),
                    ) {
                        self.errors.push(error);
                        return;
                    }
                }
            }
        }
    }

    fn launch_statement(&mut self, frame: &Frame<'a>, id: LaunchId) {
        let launch = frame.inner.launch(id);
        let Ok(target) = resolve(self.program, self.mapping, frame.caller, id) else { return };
        let mut args = Vec::new();
        for argument in &launch.arguments {
            args.push(match &argument.kind {
                ArgumentKind::Integer(value) => Arg::Integer(value.eval(&frame.values)),
                ArgumentKind::Float(_) => Arg::Float,
                ArgumentKind::Tensor { piece, .. } => match self.piece(frame, piece, argument.span) {
                    Ok(Some(shape)) => Arg::Shape(shape),
                    Ok(None) => return,
                    Err(error) => return self.errors.push(error),
                },
            });
        }
        self.launch(target, &args, launch.span);
    }

    /// The shape of a piece; none where it is not known.
    fn piece(&self, frame: &Frame<'a>, piece: &Piece, span: Origin) -> Result<Option<Vec<i64>>, Diagnostic> {
        let inner = frame.inner;
        let Some(whole) = &frame.shapes[inner.tensor_of(piece).index()] else { return Ok(None) };
        let Piece::Part { partition, colours } = piece else { return Ok(Some(whole.clone())) };
        let row = inner.partition(*partition);
        let extents: Vec<Option<i64>> = whole.iter().map(|extent| Some(*extent)).collect();
        let cut = cut::partition(self.program, inner, row, &extents, &frame.values, &frame.processors)?;
        let colour: Option<Vec<i64>> = colours.iter().map(|colour| colour.eval(&frame.values)).collect();
        if let Some(colour) = colour {
            let beyond =
                |(at, extent): (&i64, &Option<i64>)| *at < 0 || extent.is_some_and(|extent| *at >= extent);
            let of_colours = cut.colours();
            if colour.len() != of_colours.len() || colour.iter().zip(&of_colours).any(beyond) {
                let error = PartitionError::Bounds { colour, extents: of_colours };
                return Err(cut::refused(inner, row, span, &error));
            }
        }
        Ok(cut.shape().into_iter().collect())
    }
}
