//! The rules of task programs and mappings that need no graph.
//!
//! 1. **Names.** Integers of tasks are over the task's extents, formals of type `i32`, tunables, names, counters and constants: not over
//!    sizes. Each extent of an entry is a size of its name in lower case.
//! 2. **Leaves.** The statements compute on register tensors: no memory, no copy, no barrier, no role, no index of a block.
//! 3. **Launches.** An argument has the type and as many modes as its formal. Partitions cut as many modes as their tensor has.
//! 4. **Privileges.** A task does with a formal what it may, and launches others with no more. A `write` formal is written.
//! 5. **Arguments.** Of one launch, one that is written has nothing in common with another.
//! 6. **Mappings.** One instance is the entry. A level is one of the architecture, no instance runs above its caller, and none launches itself. A
//!    tensor lies in a memory that the level can hold it in. Every tunable has a value, every launch one instance, and every instance is
//!    launched.
//! 7. **At the default sizes**, for every mapping: shapes fit, pieces exist, leaves are right tile programs of their extents, and iterations of a
//!    `prange` touch nothing in common that one of them writes.

mod leaves;
mod mapping;
mod parallel;
mod privileges;
mod shapes;

use std::collections::BTreeMap;

use tilewright_tile::{Code, Constants, Diagnostic, Diagnostics, Expr, Origin, SymbolId};

use crate::environment::Environment;
use crate::program::{
    ArgumentKind, Body, FormalKind, Inner, PartitionKind, Piece, Program, StmtKind, SymbolKind, Task,
};

/// The most messages of one program.
const MAX_ERRORS: usize = 50;

/// Checks a program and its mappings, for given values of the constants of the text; those not named keep their defaults.
///
/// ```
/// let program = tilewright_task::parse(
///     "size n = 100
///      task clear(x: read f32[N]) { leaf zero { fill(x, 0.0) } }
///      mapping sm for sm_80 { entry clear.zero on block(register) }",
/// )?;
/// let errors = tilewright_task::verify(&program, &Default::default()).unwrap_err();
/// assert_eq!(errors.0[0].code, tilewright_tile::Code::Privilege);
/// # Ok::<(), tilewright_tile::Diagnostics>(())
/// ```
///
/// # Errors
///
/// Every violation of the rules of this module, up to fifty.
pub fn verify(program: &Program, constants: &Constants) -> Result<(), Diagnostics> {
    let values = Environment::of(program, constants)?;
    let mut errors = Vec::new();
    for task in &program.tasks {
        names(program, task, &mut errors);
        for variant in &task.variants {
            match &variant.body {
                Body::Inner(inner) => {
                    launches(program, inner, &mut errors);
                    privileges::inner(program, task, variant, inner, &mut errors);
                }
                Body::Leaf(leaf) => {
                    leaves::check(leaf, &mut errors);
                    privileges::leaf(task, variant, leaf, &mut errors);
                }
            }
        }
    }
    // What a mapping makes of wrong tasks would be complained about twice.
    if errors.is_empty() {
        for mapping in &program.mappings {
            let before = errors.len();
            mapping::check(program, mapping, &values, &mut errors);
            if errors.len() == before {
                shapes::check(program, mapping, &values, &mut errors);
            }
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let mut told: Vec<Diagnostic> = Vec::new();
    for error in errors {
        if !told.iter().any(|known| known.repeats(&error)) {
            told.push(error);
        }
    }
    told.truncate(MAX_ERRORS);
    Err(Diagnostics(told))
}

/// The extents of an entry: the values of the sizes of their names in lower case.
///
/// # Errors
///
/// An extent without such a size, a size that the text does not declare or that is less than 1.
pub fn entry_extents(
    program: &Program,
    task: &Task,
    sizes: &BTreeMap<String, i64>,
) -> Result<Vec<(SymbolId, i64)>, Diagnostic> {
    let defaults: BTreeMap<&str, i64> = program
        .symbols
        .iter()
        .filter_map(|row| match row.kind {
            SymbolKind::Size(default) => Some((row.name.as_str(), default)),
            _ => None,
        })
        .collect();
    if let Some(name) = sizes.keys().find(|name| !defaults.contains_key(name.as_str())) {
        let names: Vec<&str> = defaults.keys().copied().collect();
        let error = Diagnostic::new(Code::UnknownName, Origin::Unknown, format!("there is no size `{name}`"));
        return Err(error.help(format!("there are {}", names.join(", "))));
    }
    let mut extents = Vec::new();
    for symbol in &task.extents {
        let row = program.symbol(*symbol);
        let name = row.name.to_lowercase();
        let Some(default) = defaults.get(name.as_str()) else {
            let message =
                format!("`{}` is the entry, and its extent `{}` has no size `{name}`", task.name, row.name);
            return Err(Diagnostic::new(Code::UnknownName, row.span, message)
                .help(format!("declare it, with a default: `size {name} = 1024`")));
        };
        let value = sizes.get(&name).copied().unwrap_or(*default);
        if value < 1 {
            let message = format!("the size `{name}` is {value}; it must be at least 1");
            return Err(Diagnostic::new(Code::BadValue, row.span, message));
        }
        extents.push((*symbol, value));
    }
    Ok(extents)
}

/// Refuses sizes in the integers of a task.
fn names(program: &Program, task: &Task, errors: &mut Vec<Diagnostic>) {
    let mut check = |expr: &Expr, span: Origin| {
        let mut found = None;
        expr.visit(&mut |part| {
            if let Expr::Symbol(id) = part
                && matches!(program.symbol(*id).kind, SymbolKind::Size(_) | SymbolKind::TunableProcessor)
            {
                found = Some(*id);
            }
        });
        let Some(row) = found.map(|id| program.symbol(id)) else { return };
        let error = match row.kind {
            SymbolKind::TunableProcessor => {
                let message = format!("`{}` is a processor, not an integer", row.name);
                Diagnostic::new(Code::TypeMismatch, span, message)
            }
            _ => {
                let message = format!("`{}` is a size, which tasks do not see", row.name);
                Diagnostic::new(Code::Misplaced, span, message)
                    .help("take the extent that a shape of the task names, such as `M`")
            }
        };
        errors.push(error.related(row.span, "declared here"));
    };
    for formal in &task.formals {
        if let FormalKind::Tensor { shape, .. } = &formal.kind {
            shape.iter().for_each(|extent| check(extent, formal.span));
        }
    }
    for inner in task.variants.iter().filter_map(|variant| variant.inner()) {
        for tensor in inner.tensors.iter().filter(|tensor| tensor.formal.is_none()) {
            tensor.shape.iter().for_each(|extent| check(extent, tensor.span));
        }
        for partition in &inner.partitions {
            if let PartitionKind::Blocks { shape } = &partition.kind {
                shape.iter().for_each(|extent| check(extent, partition.span));
            }
        }
        for head in &inner.loops {
            head.ranges.iter().for_each(|range| {
                check(&range.lo, head.span);
                check(&range.hi, head.span);
            });
        }
        for argument in inner.launches.iter().flat_map(|launch| &launch.arguments) {
            match &argument.kind {
                ArgumentKind::Integer(value) => check(value, argument.span),
                ArgumentKind::Tensor { piece, when } => {
                    if let Piece::Part { colours, .. } = piece {
                        colours.iter().for_each(|colour| check(colour, argument.span));
                    }
                    when.iter().for_each(|when| check(when, argument.span));
                }
                ArgumentKind::Float(_) => {}
            }
        }
        visit(&inner.statements, &mut |stmt| {
            if let StmtKind::Let { value, .. } = &stmt.kind {
                check(value, stmt.span);
            }
        });
    }
}

/// Calls `f` for every statement of a body, each before its own.
fn visit<'a>(body: &'a [crate::program::Stmt], f: &mut impl FnMut(&'a crate::program::Stmt)) {
    for stmt in body {
        f(stmt);
        if let StmtKind::For { body, .. } = &stmt.kind {
            visit(body, f);
        }
    }
}

/// The number of modes of a piece, where its partition says it.
fn rank(inner: &Inner, piece: &Piece) -> Option<usize> {
    match piece {
        Piece::Whole(tensor) => Some(inner.tensor(*tensor).shape.len()),
        Piece::Part { partition, .. } => inner.partition(*partition).shape().map(|shape| shape.len()),
    }
}

/// Types and modes of arguments, colours of pieces, modes of partitions.
fn launches(program: &Program, inner: &Inner, errors: &mut Vec<Diagnostic>) {
    for partition in &inner.partitions {
        let tensor = inner.tensor(partition.tensor);
        let (cut, what) = match &partition.kind {
            PartitionKind::Blocks { shape } => (shape.len(), "cuts"),
            PartitionKind::Mma { .. } => (2, "is an operand of a matrix product, which cuts"),
            PartitionKind::Tv { .. } => continue,
        };
        if cut != tensor.shape.len() {
            let message = format!(
                "`{}` {what} {cut} modes, and `{}` has {}",
                partition.name,
                tensor.name,
                tensor.shape.len()
            );
            let error = Diagnostic::new(Code::WrongRank, partition.span, message);
            errors.push(error.related(tensor.span, "the tensor"));
        }
        if matches!(&partition.kind, PartitionKind::Blocks { shape } if shape.iter().all(|e| e.as_int() == Some(1)))
        {
            let message = format!("the pieces of `{}` have no mode left", partition.name);
            let error = Diagnostic::new(Code::WrongRank, partition.span, message);
            errors.push(error.help("an extent that is written `1` drops its mode: keep one"));
        }
    }
    for launch in &inner.launches {
        let task = program.task(launch.task);
        for (formal, argument) in task.formals.iter().zip(&launch.arguments) {
            let (ArgumentKind::Tensor { piece, .. }, FormalKind::Tensor { dtype, shape, .. }) =
                (&argument.kind, &formal.kind)
            else {
                continue;
            };
            if let Piece::Part { partition, colours } = piece {
                let row = inner.partition(*partition);
                let expected = match &row.kind {
                    PartitionKind::Blocks { shape } => shape.len(),
                    PartitionKind::Mma { .. } | PartitionKind::Tv { .. } => 1,
                };
                if colours.len() != expected {
                    let message = format!(
                        "`{}` has pieces along {expected} modes, and {} are given",
                        row.name,
                        colours.len()
                    );
                    let error = Diagnostic::new(Code::WrongRank, argument.span, message);
                    errors.push(error.related(row.span, "the partition"));
                    continue;
                }
            }
            let tensor = inner.tensor(inner.tensor_of(piece));
            if tensor.dtype != *dtype {
                let message = format!(
                    "`{}` is of type {dtype} in `{}`, and `{}` of {}",
                    formal.name, task.name, tensor.name, tensor.dtype
                );
                let error = Diagnostic::new(Code::TypeMismatch, argument.span, message);
                errors.push(error.related(formal.span, "declared here"));
            }
            if let Some(rank) = rank(inner, piece)
                && rank != shape.len()
            {
                let message = format!(
                    "`{}` has {} modes in `{}`, and the argument has {rank}",
                    formal.name,
                    shape.len(),
                    task.name
                );
                let error = Diagnostic::new(Code::WrongRank, argument.span, message);
                let error = error.related(formal.span, "declared here");
                errors.push(match piece {
                    Piece::Part { .. } => {
                        error.help("an extent of a block that is written `1` drops its mode")
                    }
                    Piece::Whole(_) => error,
                });
            }
        }
    }
}
