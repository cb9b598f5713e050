//! The reference interpreter: it defines what a program means. Blocks run one by one (in parallel on the CPU), statements
//! in order, tiles as plain arrays. There are no threads and no layouts in it.
//!
//! A tile's values are `f64`, rounded to the tile's element type whenever they are written. Register and shared tensors
//! hold NaN until they are written.

mod access;
mod arith;
mod asynchronous;
mod bound;
mod buffer;
mod cluster;
mod coverage;
mod error;
mod executable;
mod flight;
mod fold;
mod follow;
mod gemm;
mod launch;
mod op;
mod ops;
mod plan;
mod ranges;
mod ring;
mod role;
mod round;
mod schedule;
mod shapes;
mod tiles;
mod wait;
mod warnings;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use buffer::Buffer;
use rayon::prelude::*;
use tilewright_machine::RedOp;

use crate::diagnostic::Diagnostic;
use crate::program::{Param, ParamId, ParamKind, StmtKind};
use crate::verified::Verified;

use cluster::Cluster;
use coverage::{Coverage, Watch};
use op::Plan;
use role::Role;

pub use error::InterpretError;
pub use executable::{Executable, PipelineRow};
pub use launch::{grid, size_values, tensor_len, tensor_shape, tensor_strides};
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
    /// A number; for a parameter of an integer type, an integer.
    Scalar(f64),
}

/// For each parameter that is a tensor which the kernel writes, a bound for each of its elements ([`interpret_bounded`]).
pub type Bounds = Vec<Option<Vec<f32>>>;

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
/// nothing. `gemm` sums in `f64` and rounds once a statement; elementwise expressions are evaluated as [`crate::arith`] defines them,
/// each operation in `f32`, and rounded to the type of the result. `reduce` sums floats in `f64`, rounds to `f32` and then to the type.
/// Sums of integers, largest and smallest elements and gathers are exact.
///
/// An asynchronous copy reads its source where it stands, and writes its destination at the wait that covers it. An asynchronous
/// product is computed where it stands. Whatever touches in between what they write, or writes what they read, is an error that
/// names both statements.
///
/// Roles run as coroutines, one at a time, in an order that depends on nothing but the program and its sizes: a role runs until a
/// `produce` has no free stage, a `consume` no full one, or a `cluster_sum` lacks another block. Where none can go on, the error
/// says who waits for what. A stage that is read and never filled, or filled and not read by a consuming role, is an error, too. The
/// blocks of a cluster run in turns with their roles where they depend on each other, each for itself otherwise.
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
    execute(program, sizes, args, None).map(|_| ())
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
    execute(program, sizes, args, None)
}

/// Runs a kernel as [`interpret_bounded`] does, with masks of what is read and written, and says what they show: elements of outputs that
/// nothing writes, of inputs that nothing reads, elements written more than once with different values, results that are overwritten before
/// anything reads them, and outputs that depend on elements of register and shared tensors that nothing had written
/// ([`Code::PartlyWritten`](crate::Code::PartlyWritten) to [`Code::ReadUnwritten`](crate::Code::ReadUnwritten)), in the order of the text.
///
/// A program may mean each of them. What elements of a buffer decide (`x[ids[i] :, :]`, loops that end at `len[i]`) is not complained about,
/// since with other elements the rest is touched.
///
/// # Errors
///
/// Those of [`interpret`].
pub fn interpret_watched(
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<(Bounds, Vec<Diagnostic>), InterpretError> {
    let lengths: Vec<usize> = args
        .iter()
        .map(|arg| match arg {
            Argument::Tensor(data) => data.len(),
            Argument::Scalar(_) => 0,
        })
        .collect();
    let coverage = Coverage::new(v, &lengths);
    let bounds = execute(v, sizes, args, Some(&coverage))?;
    Ok((bounds, warnings::warnings(&coverage, sizes)?))
}

/// Runs a kernel, with masks if there are any.
fn execute(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
    coverage: Option<&Coverage<'_>>,
) -> Result<Bounds, InterpretError> {
    let grid = grid(program, sizes)?;
    let values = launch::symbol_values(program, sizes)?;
    check_arguments(program, sizes, args)?;
    check_ranges(program, sizes, &integers(program, args))?;
    let plan = Plan::new(program, sizes, coverage.map(|coverage| &coverage.numbers))?;
    let added = added(program);
    let buffer = |(i, arg): (usize, _)| {
        let id = ParamId(i as u32);
        match arg {
            &Argument::Scalar(x) => Buffer::Scalar(round(program.params()[i].dtype, x)),
            Argument::Tensor(data) if program.outputs().contains(&id) => {
                let adds = added.contains(&id).then(|| program.params()[i].dtype);
                Buffer::output(data, adds)
            }
            Argument::Tensor(data) => Buffer::Input(data),
        }
    };
    let buffers: Vec<Buffer<'_>> = args.iter().enumerate().map(buffer).collect();
    let result = run_blocks(&plan, &buffers, &values, grid, coverage);
    let (mut written, mut bounds) = (Vec::new(), Vec::new());
    for buffer in buffers {
        let (values, reach) = buffer.contents().unzip();
        written.push(values);
        bounds.push(reach);
    }
    for (arg, written) in args.iter_mut().zip(written) {
        if let Some(data) = written {
            *arg = Argument::Tensor(data);
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
    (0..x * y * z / blocks).into_par_iter().try_for_each(|cluster| {
        let numbers: Vec<u64> = (0..blocks).map(|rank| cluster * blocks + rank).collect();
        let watches =
            numbers.iter().map(|number| coverage.map(|coverage| Watch::new(coverage, plan, *number)));
        let roles = numbers.iter().enumerate().flat_map(|(rank, number)| {
            let index = [number % x, number / x % y, number / x / y].map(|i| i as i64);
            let at = (index, rank, x as i64);
            (0..plan.roles.len()).map(move |role| Role::new(plan, buffers, role, at, values.to_vec()))
        });
        Cluster::new(plan, watches).run(roles.collect())
    })
}

/// The values of scalar parameters of integer types.
fn integers(program: &impl Executable, args: &[Argument]) -> BTreeMap<ParamId, i64> {
    let both = (0..).map(ParamId).zip(program.params().iter().zip(args));
    let integer = |(id, (param, arg)): (ParamId, (&Param, &Argument))| match arg {
        Argument::Scalar(x) if param.is_integer() => Some((id, round(param.dtype, *x) as i64)),
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
        match (&param.kind, arg) {
            (ParamKind::Tensor { .. }, Argument::Tensor(data)) => {
                let expected = tensor_len(program, ParamId(i as u32), sizes)?;
                if data.len() != expected {
                    let param = param.name.clone();
                    return Err(InterpretError::ArgumentLength { param, expected, found: data.len() });
                }
            }
            (ParamKind::Scalar { .. }, Argument::Scalar(_)) => {}
            (ParamKind::Tensor { .. }, Argument::Scalar(_)) => return Err(kind("tensor")),
            (ParamKind::Scalar { .. }, Argument::Tensor(_)) => return Err(kind("number")),
        }
    }
    Ok(())
}
