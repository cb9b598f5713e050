//! The reference interpreter: it defines what a program means. Blocks run one by one (in parallel on the CPU), statements
//! in order, tiles as plain arrays. There are no threads and no layouts in it.
//!
//! A tile's values are `f64`, rounded to the tile's element type whenever they are written. Register and shared tensors
//! hold NaN until they are written.

mod arith;
mod bound;
mod buffer;
mod cluster;
mod coverage;
mod launch;
mod plan;
mod progress;
mod ranges;
mod round;
mod run;
mod shapes;
mod warnings;
mod work;

use std::collections::{BTreeMap, BTreeSet};

use buffer::Buffer;
use rayon::prelude::*;
use tilewright_machine::DType;

use crate::diagnostic::Diagnostic;
use crate::program::{ParamKind, StmtKind, TensorKind};
use crate::verified::Verified;

use coverage::{Coverage, Watch};

pub use launch::{grid, size_values, tensor_len, tensor_shape, tensor_strides};
pub use ranges::check_ranges;
pub use round::round;
pub use work::{Work, work};

/// What a launch passes for a parameter.
#[derive(Clone, PartialEq, Debug)]
pub enum Argument {
    /// A tensor: as many elements as its shape and strides span (see [`tensor_len`]), each a value of its element type.
    Tensor(Vec<f64>),
    /// A number.
    Scalar(f64),
}

/// For each parameter that is a tensor which the kernel writes, a bound for each of its elements ([`interpret_bounded`]).
pub type Bounds = Vec<Option<Vec<f32>>>;

/// Why a launch is not possible.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum InterpretError {
    /// A size is given that the kernel does not declare.
    #[error("the kernel has no size `{name}`; it has {known}")]
    UnknownSize {
        /// The name given.
        name: String,
        /// The names declared.
        known: String,
    },
    /// A size is less than 1.
    #[error("the size `{name}` is {value}; it must be at least 1")]
    BadSize {
        /// The size.
        name: String,
        /// The value given.
        value: i64,
    },
    /// The number of arguments is not the number of parameters.
    #[error("the kernel has {expected} parameters, and {found} arguments are given")]
    ArgumentCount {
        /// Parameters.
        expected: usize,
        /// Arguments.
        found: usize,
    },
    /// A number is given for a tensor, or a tensor for a number.
    #[error("the parameter `{param}` is a {expected}")]
    ArgumentKind {
        /// The parameter.
        param: String,
        /// `tensor` or `number`.
        expected: &'static str,
    },
    /// A tensor argument has the wrong number of elements.
    #[error("the tensor `{param}` spans {expected} elements, and {found} are given")]
    ArgumentLength {
        /// The parameter.
        param: String,
        /// What shape and strides span.
        expected: usize,
        /// The elements given.
        found: usize,
    },
    /// An expression divides by zero or overflows at these sizes.
    #[error("{what} has no value: it divides by zero or overflows")]
    NoValue {
        /// Which expression.
        what: String,
    },
    /// An integer of the kernel does not fit in the 32 bits that kernels compute with, at these sizes.
    #[error("{what} can reach {value}: the integers of a kernel have 32 bits")]
    TooWide {
        /// Which expression.
        what: String,
        /// A value it can take.
        value: i64,
    },
    /// An index of a tensor is outside its mode.
    #[error(
        "`{statement}`: the index {index} is outside mode {mode} of `{tensor}`, which has extent {extent}"
    )]
    IndexOutside {
        /// The statement.
        statement: String,
        /// The tensor.
        tensor: String,
        /// The mode.
        mode: usize,
        /// The index.
        index: i64,
        /// The mode's extent.
        extent: i64,
    },
    /// An element is read or written between an asynchronous copy or product that writes it and the wait that completes that, or
    /// written while one reads it.
    #[error(
        "`{statement}` {access} an element of `{tensor}` that `{flight}` has in flight: no wait covers it yet"
    )]
    InFlight {
        /// The statement that comes too early.
        statement: String,
        /// `reads` or `writes`.
        access: &'static str,
        /// The shared or register tensor.
        tensor: String,
        /// The asynchronous copy or product.
        flight: String,
    },
    /// A copy to global memory that no wait completes.
    #[error("`{flight}` is still in flight at the end: its writes are done once a `wait_group` covers it")]
    NeverWaitedFor {
        /// The asynchronous copy.
        flight: String,
    },
    /// A stage is to be read, and none is full.
    #[error("`{statement}` has no stage to read: {}", produced(role, *filled))]
    NoStage {
        /// The statement, `consume ab`.
        statement: String,
        /// The role that fills the stages.
        role: Option<String>,
        /// How many stages it fills in all.
        filled: usize,
    },
    /// Stages are filled that nothing reads.
    #[error("`produce {pipeline}` filled {} that nothing reads, of {filled} in all", stages(*left))]
    UnreadStages {
        /// The pipeline.
        pipeline: String,
        /// How many nothing reads.
        left: usize,
        /// How many were filled in all.
        filled: usize,
    },
    /// A slice begins where it does not fit.
    #[error("`{statement}`: the slice begins at {start}, and fits from 0 to {most}")]
    SliceOutside {
        /// The statement.
        statement: String,
        /// Where it begins.
        start: i64,
        /// The largest coordinate at which it may begin.
        most: i64,
    },
    /// Blocks of a cluster wait for each other at different statements, or one ends while others wait.
    #[error("`{statement}`: the blocks of the cluster do not all reach it at the same time")]
    ClusterApart {
        /// The statement at which one waits.
        statement: String,
    },
    /// The blocks of a cluster are to share a copy, and copy different tiles.
    #[error("`{statement}`: the blocks of the cluster do not all copy the same tile")]
    MulticastApart {
        /// The statement.
        statement: String,
    },
    /// The blocks of a cluster fill stages for each other, and not equally many.
    #[error(
        "`{statement}`: the blocks of a cluster share its copies (`multicast`), and block 0 of the cluster fills {}, block {other} {}; all must fill as many",
        stages(counts[0]), counts[1]
    )]
    MulticastCounts {
        /// The statement, `produce ab`.
        statement: String,
        /// A block that fills another number than block 0, by its rank in the cluster.
        other: usize,
        /// What block 0 fills, and what it does.
        counts: [usize; 2],
    },
    /// Roles wait for each other's stages for ever.
    #[error(
        "nothing can go on: {waits}; a stage is free once its `consume` has ended and a `wait_gemm` covers every group of products that reads it"
    )]
    Deadlock {
        /// For each role that does not end what it waits for, and where.
        waits: String,
    },
    /// The grid is not made of whole clusters, at these sizes.
    #[error(
        "the grid has {blocks} blocks along x, which is no multiple of the {cluster} blocks of a cluster"
    )]
    PartOfCluster {
        /// Blocks along x.
        blocks: u32,
        /// Blocks of a cluster.
        cluster: u32,
    },
    /// An extent or a stride is not positive, or the grid is outside what the hardware takes, at these sizes.
    #[error("{what} is {value}; it must be from 1 to {most}")]
    OutOfRange {
        /// Which expression.
        what: String,
        /// Its value.
        value: i64,
        /// The largest legal value.
        most: i64,
    },
}

/// `3 stages`.
fn stages(n: usize) -> String {
    format!("{n} stage{}", if n == 1 { "" } else { "s" })
}

fn produced(role: &Option<String>, filled: usize) -> String {
    match role {
        Some(role) => format!("role `{role}` produced {}", stages(filled)),
        None => format!("{} produced so far", stages(filled)),
    }
}

/// The parameters that a kernel adds to.
fn added(v: &Verified) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    v.visit(&mut |stmt, _| {
        if let StmtKind::CopyAsync { dst, how, .. } = &stmt.kind
            && how.add
            && let TensorKind::View { param, .. } = v.program().tensor(dst.tensor).kind
        {
            all.insert(param.0 as usize);
        }
    });
    all
}

/// Runs a kernel: every block of the grid, in any order.
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
/// Roles run one after the other, each pipeline's producer before its consumer: a pipeline is a queue of the contents of its
/// stages. A stage that is read and was never filled, and one that is filled and never read, is an error, and so are roles that would
/// wait for each other for ever if they ran side by side, with as many stages as there are. The blocks of a cluster
/// run side by side where they add up what they have, each for itself otherwise.
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
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<(), InterpretError> {
    execute(v, sizes, args, None).map(|_| ())
}

/// Runs a kernel as [`interpret`] does. The result has, for each parameter that is a tensor which the kernel writes, a bound for each of
/// its elements: how far a right kernel's value may lie from it. Where the language leaves nothing open it is 0; where the
/// kernel's value may be anything (a divisor may be 0, for instance) it is infinite.
///
/// # Errors
///
/// Those of [`interpret`].
pub fn interpret_bounded(
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
) -> Result<Bounds, InterpretError> {
    execute(v, sizes, args, None)
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

fn execute(
    v: &Verified,
    sizes: &BTreeMap<String, i64>,
    args: &mut [Argument],
    coverage: Option<&Coverage<'_>>,
) -> Result<Bounds, InterpretError> {
    let program = v.program();
    let grid = grid(v, sizes)?;
    check_ranges(v, sizes)?;
    let values = launch::symbol_values(v, sizes)?;
    if args.len() != program.params.len() {
        return Err(InterpretError::ArgumentCount { expected: program.params.len(), found: args.len() });
    }
    for (i, (param, arg)) in program.params.iter().zip(args.iter()).enumerate() {
        let kind = |expected| InterpretError::ArgumentKind { param: param.name.clone(), expected };
        match (&param.kind, arg) {
            (ParamKind::Tensor { .. }, Argument::Tensor(data)) => {
                let expected = tensor_len(v, crate::ParamId(i as u32), sizes)?;
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
    let plan = plan::Plan::new(v, sizes, coverage)?;
    let is_output = |i: usize| v.outputs().iter().any(|p| p.0 as usize == i);
    let added = added(v);
    let buffers: Vec<Buffer<'_>> = args
        .iter()
        .enumerate()
        .map(|(i, arg)| match arg {
            Argument::Scalar(x) => Buffer::Scalar(round(DType::F32, *x)),
            Argument::Tensor(data) if is_output(i) => {
                let adds = added.contains(&i).then(|| program.params[i].dtype);
                Buffer::output(data, adds)
            }
            Argument::Tensor(data) => Buffer::Input(data),
        })
        .collect();
    let [x, y, z] = grid.map(u64::from);
    // At most 2³¹ · 2¹⁶ · 2¹⁶ blocks: fits. The blocks of a cluster follow each other.
    let shared = plan.meets || plan.pipelines.iter().any(|ring| ring.multicast);
    let blocks = if shared { plan.cluster as u64 } else { 1 };
    let result = (0..x * y * z / blocks).into_par_iter().try_for_each(|cluster| {
        let steps = cluster::run(blocks as usize, plan.meets, |rank, meeting| {
            let index = cluster * blocks + rank as u64;
            let block = [index % x, index / x % y, index / x / y].map(|i| i as i64);
            let watch = coverage.map(|coverage| Watch::new(coverage, &plan, index));
            run::block(&plan, &buffers, (block, x as i64), values.clone(), meeting, watch)
        })?;
        progress::check(&plan, &steps)
    });
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
