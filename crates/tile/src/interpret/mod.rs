//! The reference interpreter: it defines what a program means. Blocks run one by one (in parallel on the CPU), statements
//! in order, tiles as plain arrays. There are no threads and no layouts in it.
//!
//! A tile's values are `f64`, those of 64-bit integers with what these lack, rounded to the tile's element type whenever they are written. Register and shared tensors
//! hold NaN until they are written.

mod access;
mod arith;
mod asynchronous;
mod bound;
mod bounds;
mod buffer;
mod cluster;
mod combine;
mod coverage;
mod error;
mod executable;
mod flags;
mod flight;
mod fold;
mod follow;
mod gemm;
mod launch;
mod made;
mod op;
mod ops;
mod plan;
mod print;
mod quote;
mod ranges;
mod refusal;
mod ring;
mod role;
mod round;
mod rows;
mod schedule;
mod shapes;
mod tiles;
mod values;
mod wait;
mod warnings;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use bound::Element;
use buffer::Buffer;
use rayon::prelude::*;
use tilewright_machine::{Elements, Number, PrintLog, Progress, RedOp};

use crate::diagnostic::Diagnostic;
use crate::program::{Param, ParamId, ParamKind, StmtKind};
use crate::rasterization;
use crate::verified::Verified;

use cluster::Cluster;
use coverage::{Coverage, Watch};
use op::{Entered, Order, Plan};
use role::Role;
use values::MadeBy;

pub use bounds::{Bound, bounds};
pub use error::{InterpretError, Underway};
pub use executable::{Executable, PipelineRow};
pub use launch::{grid, size_values, tensor_len, tensor_shape, tensor_strides, tensors_of_array};
pub use made::Questionable;
pub use quote::Quote;
pub use ranges::check_ranges;
pub use round::round;
pub(crate) use wait::who;
pub use wait::{Wait, WaitFor};
pub use work::{Work, work};

/// An argument of a launch.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A tensor: as many elements as its shape and strides span (see [`tensor_len`]), each a value of its element type.
    Tensor(Vec<f64>),
    /// A tensor of type `i64` or `u64`, of which an `f64` does not hold every element.
    Integers(Vec<i128>),
    /// A number; for a parameter of an integer type, an integer.
    Scalar(Number),
}

impl Argument {
    /// A tensor of these elements.
    pub fn tensor(elements: Elements) -> Self {
        match elements {
            Elements::Floats(values) => Argument::Tensor(values),
            Elements::Integers(values) => Argument::Integers(values),
        }
    }

    /// The elements of a tensor.
    pub fn elements(&self) -> Option<Elements> {
        match self {
            Argument::Tensor(values) => Some(Elements::Floats(values.clone())),
            Argument::Integers(values) => Some(Elements::Integers(values.clone())),
            Argument::Scalar(_) => None,
        }
    }
}

/// For each parameter that is a tensor which the kernel writes, a bound for each of its elements ([`interpret_bounded`]).
pub type Bounds = Vec<Option<Vec<f32>>>;

/// The results of [`interpret_watched`], beside the arguments.
#[derive(Debug)]
pub struct Watched {
    /// The bounds of what the kernel writes.
    pub bounds: Bounds,
    /// Warnings of the masks.
    pub warnings: Vec<Diagnostic>,
    /// Records of the program's prints; statements by their numbers as the author wrote them.
    pub printed: PrintLog,
}

/// The parameters that a kernel adds to.
fn added(program: &impl Executable) -> BTreeSet<ParamId> {
    let mut params = BTreeSet::new();
    program.visit(&mut |stmt| {
        if let (StmtKind::Copy { dst, .. } | StmtKind::CopyAsync { dst, .. }, Some(RedOp::Add)) =
            (&stmt.kind, stmt.kind.combines())
        {
            params.extend(program.viewed(dst.tensor));
        }
    });
    params
}

/// Runs a kernel: every block of the grid, in any order.
///
/// The program is that of the surface, which this defines, or a core program, whose slots and roles are run as they are: no pass takes part
/// in the first, and nothing of the surface in the second.
///
/// Sizes not named keep their defaults. `args` are in the order of the program's parameters; tensors that the kernel
/// writes are changed in place (also when an error ends the run). Reads outside a tensor give 0, writes outside do
/// nothing. Where a statement gives what was in memory before it changed that (`atomic_add`), blocks run one after the other, the first first and then
/// once more the last first: elements that differ depend on an order that the language leaves open, and nothing bounds them. `gemm` sums in `f64` and rounds once a statement; elementwise expressions are evaluated as [`crate::arith`] defines them,
/// each operation in `f32` (of `f64` in that), and rounded to the type of the result. `reduce` sums floats in `f64`, rounds to `f32` and then to the
/// type.
/// Sums of integers, largest and smallest elements and gathers are exact.
///
/// An asynchronous copy reads its source where it stands, and writes its destination at the wait that covers it. An asynchronous
/// product is computed where it stands. Whatever touches in between what they write, or writes what they read, is an error that
/// names both statements.
///
/// Roles run as coroutines, one at a time, in an order that depends on nothing but the program and its sizes: a role runs until a
/// `produce` has no free stage, a `consume` no full one, or a `cluster_reduce` lacks another block. Where none can go on, the error
/// says who waits for what. A stage that is read and never filled, or filled and not read by a consuming role, is an error, too. The
/// blocks of a cluster run in turns with their roles where they depend on each other, each for itself otherwise.
///
/// A program with branches that rows decide (`if any`) is run several times: with the rows that ask for them alone, whose results are
/// the program's, and with all rows. Results that differ by more than rounding are an error ([`InterpretError::RowsDiffer`]).
///
/// ```
/// use std::collections::BTreeMap;
/// use tilewright_tile::{Argument, Constants, interpret, parse, verify};
/// let program = parse(
///     "kernel twice(x: f32[4], y: f32[4]) grid(1) threads(32) {
///          gx = global_view(x[:], (4) : (e0))
///          gy = global_view(y[:], (4) : (e0))
///          r = register_tensor(f32, [4])
///          copy(gx, r)
///          t = r + r
///          copy(t, gy)
///      }",
/// )?;
/// let verified = verify(&program, &Constants::new())?;
/// let mut args = [Argument::Tensor(vec![1.0, 2.0, 3.0, 4.0]), Argument::Tensor(vec![0.0; 4])];
/// interpret(&verified, &BTreeMap::new(), &mut args)?;
/// assert_eq!(args[1], Argument::Tensor(vec![2.0, 4.0, 6.0, 8.0]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn interpret(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<(), InterpretError> {
    execute(program, sizes, args, None, None).map(|_| ())
}

/// Runs a kernel as [`interpret`] does. The result has, for each parameter that is a tensor which the kernel writes, a bound for each of
/// its elements: how far a right kernel's value may lie from it. Where the language leaves nothing open it is 0; where the
/// kernel's value may be anything (a divisor may be 0, for instance) it is infinite.
///
/// # Errors
///
/// Those of [`interpret`].
pub fn interpret_bounded(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<Bounds, InterpretError> {
    execute(program, sizes, args, None, None)
}

/// Runs a kernel as [`interpret_bounded`] does, with masks of what is read and written, and says what they show: elements of outputs that
/// nothing writes, of inputs that nothing reads, elements written more than once with different values, results that are overwritten before
/// anything reads them, and outputs that depend on elements of register and shared tensors that nothing had written
/// ([`Code::PartlyWritten`](crate::Code::PartlyWritten) to [`Code::ReadUnwritten`](crate::Code::ReadUnwritten)), in the order of the text.
///
/// A program may mean each of them. What elements of a buffer decide (`x[ids[i] :, :]`, loops that end at `len[i]`) is not complained about,
/// since with other elements the rest is touched. What the program prints is kept too. `progress` counts the clusters that have run.
///
/// # Errors
///
/// Those of [`interpret`].
pub fn interpret_watched(
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
    progress: Option<&Progress>,
) -> Result<Watched, InterpretError> {
    let lengths: Vec<usize> = args
        .iter()
        .map(|arg| match arg {
            Argument::Tensor(data) => data.len(),
            Argument::Integers(data) => data.len(),
            Argument::Scalar(_) => 0,
        })
        .collect();
    let coverage = Coverage::new(v, &lengths);
    let mut printed = PrintLog::default();
    let bounds = execute(v, sizes, args, Some((&coverage, &mut printed)), progress)?;
    let statements = &v.program().statements;
    printed.name(|statement| statements.written_number(statement));
    Ok(Watched { bounds, warnings: warnings::warnings(&coverage, sizes)?, printed })
}

/// Runs a kernel once more, and says which statements made outputs what they are: warnings
/// ([`Code::AllZero`](crate::Code::AllZero), [`Code::NotANumber`](crate::Code::NotANumber)).
///
/// Other inputs might give other results, so that only what does not depend on them is complained about: quotients of integers that are 0,
/// factors that were only filled, masks that hold nowhere, and rows that are masked as a whole. Where a function of numbers has no value
/// (`log` of a negative one), the inputs are at fault.
///
/// # Errors
///
/// Those of [`interpret`].
pub fn questionable(
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
    outputs: &[(ParamId, Questionable)],
) -> Result<Vec<Diagnostic>, InterpretError> {
    if outputs.is_empty() {
        return Ok(Vec::new());
    }
    let extents = grid(v, sizes)?;
    let values = launch::symbol_values(v, sizes)?;
    check_ranges(v, sizes, &integers(v, args))?;
    let mut plan = Plan::new(v, sizes, None)?;
    plan.made = Some(MadeBy::default());
    once(v, &plan, (&values, extents), args, None)?;
    let made = plan.made.take().unwrap_or_default().into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(made::warnings(v, &values, made, outputs))
}

/// Runs a kernel, with masks if there are any.
fn execute(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
    watched: Option<(&Coverage<'_>, &mut PrintLog)>,
    progress: Option<&Progress>,
) -> Result<Bounds, InterpretError> {
    let (coverage, log) = watched.unzip();
    let grid = grid(program, sizes)?;
    let values = launch::symbol_values(program, sizes)?;
    check_arguments(program, sizes, args)?;
    check_ranges(program, sizes, &integers(program, args))?;
    let mut plan = Plan::new(program, sizes, coverage.map(|coverage| &coverage.numbers))?;
    plan.progress = progress.cloned();
    let others = rows::others(&plan);
    let before = (plan.depends || !others.is_empty()).then(|| args.to_vec());
    let run =
        |plan: &Plan, args: &mut [Argument], coverage| once(program, plan, (&values, grid), args, coverage);
    plan.printed = coverage.map(|_| Mutex::default());
    let mut bounds = run(&plan, args, coverage)?;
    if let (Some(log), Some(printed)) = (log, plan.printed.take()) {
        *log = printed.into_inner().unwrap_or_else(PoisonError::into_inner);
    }
    for (entered, branch) in others {
        let mut again = before.clone().unwrap_or_default();
        plan.entered = entered;
        let reach = run(&plan, &mut again, None)?;
        let results = (&*args, &mut bounds);
        rows::differences(program.params(), (&plan.branches[branch], entered), results, (&again, &reach))?;
    }
    if plan.depends {
        // What depends on the order that the language leaves open may be anything.
        let mut again = before.unwrap_or_default();
        plan.entered = Entered::None;
        plan.order = Order::Descending;
        run(&plan, &mut again, None)?;
        unbound(args, &again, &mut bounds);
    }
    Ok(bounds)
}

/// Lets elements be anything that two runs differ in by more than their bounds.
fn unbound(args: &[Argument], again: &[Argument], bounds: &mut Bounds) {
    for ((bound, one), other) in bounds.iter_mut().zip(args).zip(again) {
        let Some(bound) = bound else { continue };
        let apart = |at: usize, bound: f32| match (one, other) {
            (Argument::Tensor(one), Argument::Tensor(other)) => {
                let (x, y) = (one[at], other[at]);
                x.to_bits() != y.to_bits() && (x - y).abs() > f64::from(bound)
            }
            (Argument::Integers(one), Argument::Integers(other)) => one[at] != other[at],
            _ => false,
        };
        for (at, bound) in bound.iter_mut().enumerate() {
            if apart(at, *bound) {
                *bound = f32::INFINITY;
            }
        }
    }
}

/// Runs a plan.
fn once(
    program: &impl Executable,
    plan: &Plan,
    (values, grid): (&[Option<i64>], [u32; 3]),
    args: &mut [Argument],
    coverage: Option<&Coverage<'_>>,
) -> Result<Bounds, InterpretError> {
    let added = added(program);
    let buffer = |(i, arg): (usize, _)| {
        let id = ParamId(i as u32);
        match arg {
            &Argument::Scalar(x) => {
                let dtype = program.params()[i].dtype;
                Buffer::Scalar(match Number::of_bits(dtype, x.bits(dtype)) {
                    Number::Float(x) => Element::exact(x),
                    Number::Integer(x) => Element::of_integer(x),
                })
            }
            Argument::Tensor(data) if program.outputs().contains(&id) => {
                let adds = added.contains(&id).then(|| program.params()[i].dtype);
                Buffer::output(data, adds)
            }
            Argument::Tensor(data) => Buffer::Input(data),
            Argument::Integers(data) if program.outputs().contains(&id) => {
                Buffer::output_of_integers(data, program.params()[i].dtype)
            }
            Argument::Integers(data) => Buffer::Integers(data),
        }
    };
    let buffers: Vec<Buffer<'_>> = args.iter().enumerate().map(buffer).collect();
    let result = run_blocks(plan, &buffers, values, grid, coverage);
    let (mut written, mut bounds) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let (values, reach) = buffer.contents().unzip();
        written.push(values);
        bounds.push(reach);
    }
    for (arg, written) in args.iter_mut().zip(written) {
        if let Some(data) = written {
            *arg = data;
        }
    }
    result.map(|()| bounds)
}

/// Runs every block of the grid.
fn run_blocks(
    plan: &Plan,
    buffers: &[Buffer<'_>],
    values: &[Option<i64>],
    grid: [u32; 3],
    coverage: Option<&Coverage<'_>>,
) -> Result<(), InterpretError> {
    let [x, y, z] = grid.map(u64::from);
    // At most 2³¹ · 2¹⁶ · 2¹⁶ blocks: fits. The blocks of a cluster follow each other.
    let blocks = if plan.meets { plan.cluster as u64 } else { 1 };
    let clusters = x * y * z / blocks;
    let begin = |cluster: u64| {
        let numbers: Vec<u64> = (0..blocks).map(|rank| cluster * blocks + rank).collect();
        let watches =
            numbers.iter().map(|number| coverage.map(|coverage| Watch::new(coverage, plan, *number)));
        let roles = numbers.iter().enumerate().flat_map(|(rank, number)| {
            let index = [number % x, number / x % y, number / x / y].map(|i| i as i64);
            let at = (index, rank, x as i64);
            (0..plan.roles.len()).map(move |role| Role::new(plan, buffers, role, at, values.to_vec()))
        });
        let roles: Vec<Role<'_>> = roles.collect();
        (Cluster::new(plan, watches), roles)
    };
    let all = (x * y * z / plan.cluster as u64) as i64;
    let cancelled = |number: u64| {
        let dealt = plan.launched && plan.order == Order::Ascending;
        dealt && (number * blocks / plan.cluster as u64) as i64 >= rasterization::begun(all)
    };
    let cluster = |number: u64| {
        let ran = if cancelled(number) {
            Ok(())
        } else {
            let (cluster, roles) = begin(number);
            cluster.run(roles)
        };
        plan.progress.iter().for_each(Progress::step);
        ran
    };
    plan.progress.iter().for_each(|progress| progress.begin(clusters));
    if let Some(barrier) = &plan.grid {
        barrier.begin(x * y * z);
        let mut all: Vec<_> = (0..clusters).filter(|number| !cancelled(*number)).map(begin).collect();
        if plan.order == Order::Descending {
            all.reverse();
        }
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for (cluster, roles) in &mut all {
                moved |= cluster.turn(roles)?;
            }
        }
        return all.iter().try_for_each(|(cluster, roles)| cluster.end(roles));
    }
    match plan.order {
        _ if !plan.depends => (0..clusters).into_par_iter().try_for_each(cluster),
        Order::Ascending => (0..clusters).try_for_each(cluster),
        Order::Descending => (0..clusters).rev().try_for_each(cluster),
    }
}

/// The values of scalar parameters of integer types.
fn integers(program: &impl Executable, args: &[Argument]) -> BTreeMap<ParamId, i64> {
    let both = (0..).map(ParamId).zip(program.params().iter().zip(args));
    let integer = |(id, (param, arg)): (ParamId, (&Param, &Argument))| match arg {
        Argument::Scalar(x) if param.is_integer() => {
            let integer = Number::of_bits(param.dtype, x.bits(param.dtype)).integer()?;
            Some((id, i64::try_from(integer).ok()?))
        }
        _ => None,
    };
    both.filter_map(integer).collect()
}

/// Checks that there is an argument for each parameter, of its kind and length.
fn check_arguments(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    args: &[Argument],
) -> Result<(), InterpretError> {
    let params = program.params();
    if args.len() != params.len() {
        return Err(InterpretError::ArgumentCount { expected: params.len(), found: args.len() });
    }
    for (i, (param, arg)) in params.iter().zip(args).enumerate() {
        let kind = |expected| InterpretError::ArgumentKind { param: param.name.clone(), expected };
        let length = |found: usize| {
            let expected = tensor_len(program, ParamId(i as u32), sizes)?;
            if found == expected {
                return Ok(());
            }
            Err(InterpretError::ArgumentLength { param: param.name.clone(), expected, found })
        };
        let wide = param.dtype.is_wide_integer();
        match (&param.kind, arg) {
            (ParamKind::Tensor { .. }, Argument::Tensor(data)) if !wide => length(data.len())?,
            (ParamKind::Tensor { .. }, Argument::Integers(data)) if wide => length(data.len())?,
            (ParamKind::Scalar { .. }, Argument::Scalar(_)) => {}
            (ParamKind::Tensor { .. }, Argument::Tensor(_)) => return Err(kind("tensor of integers")),
            (ParamKind::Tensor { .. }, Argument::Integers(_)) => {
                return Err(kind("tensor of no 64-bit integers"));
            }
            (ParamKind::Tensor { .. }, Argument::Scalar(_)) => return Err(kind("tensor")),
            (ParamKind::Scalar { .. }, _) => return Err(kind("number")),
        }
    }
    Ok(())
}
