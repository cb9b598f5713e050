//! Running a kernel on random inputs and comparing it with the reference interpreter: what `tilewright run` does, as a
//! function.

use std::collections::BTreeMap;
use std::time::Instant;

use rand::{RngExt, SeedableRng};
use tilewright_compiler::Kernel;
use tilewright_machine::DType;
use tilewright_runtime::{Arg, Device, DeviceKind, LaunchReport, RuntimeError, Sizes, Tensor, Timing};
use tilewright_tile::interpret::{Argument, InterpretError, interpret, tensor_len, work};
use tilewright_tile::{ParamId, ParamKind, StmtKind};

/// Operations of all blocks ([`work`]), above which a check is refused unless it is forced: some ten minutes.
pub const WORK_LIMIT: u64 = 1 << 40;

/// Bytes that a check keeps for an element of a tensor: the inputs, what the interpreter writes, the device's results, and the simulator's
/// memory with what it knows of the accesses to it.
pub const BYTES_OF_AN_ELEMENT: u64 = 64;

/// What to check a kernel with.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The value of every size; those not named take their defaults.
    pub sizes: Sizes,
    /// Values of scalar parameters; those not named take their defaults.
    pub scalars: BTreeMap<String, f64>,
    /// Seed of the random inputs.
    pub seed: u64,
    /// Launches to time after the one that is checked (devices with a clock).
    pub repeat: usize,
    /// Begins however long it takes by the estimate, and however much memory.
    pub force: bool,
}

/// Why a kernel could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The device refused or failed.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    /// The interpreter could not execute the program.
    #[error(transparent)]
    Interpret(#[from] InterpretError),
    /// The tensors are too large for the memory that is free.
    #[error(
        "the tensors have {elements} elements together, for which about {} GiB of memory are needed, and {} GiB are free: choose \
         smaller sizes",
        elements.saturating_mul(BYTES_OF_AN_ELEMENT) >> 30,
        free >> 30
    )]
    TooLarge {
        /// Elements of all tensors.
        elements: u64,
        /// Free bytes.
        free: u64,
    },
    /// The run would take too long.
    #[error(
        "{blocks} blocks of about {operations} operations each would keep the {what} busy for about {}: choose smaller sizes",
        duration(blocks.saturating_mul(*operations))
    )]
    TooLong {
        /// Blocks of the grid.
        blocks: u64,
        /// Operations of a block, as estimated.
        operations: u64,
        /// The interpreter or the simulator.
        what: &'static str,
    },
}

impl CheckError {
    /// Whether [`CheckOptions::force`] would have begun it all the same.
    pub fn is_estimate(&self) -> bool {
        matches!(self, CheckError::TooLarge { .. } | CheckError::TooLong { .. })
    }
}

/// The time of some operations on this machine's cores, in words.
pub fn duration(operations: u64) -> String {
    let seconds = operations / 1_000_000_000 / rayon::current_num_threads().max(1) as u64;
    match seconds {
        0..=119 => format!("{seconds} seconds"),
        120..=7_199 => format!("{} minutes", seconds / 60),
        7_200..=172_799 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Bytes of memory that are free, where the system says so.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Refuses what cannot end soon, or does not fit into memory.
fn affordable(
    kernel: &Kernel,
    sizes: &Sizes,
    options: &CheckOptions,
    what: &'static str,
) -> Result<(), CheckError> {
    let work = work(&kernel.verified, sizes)?;
    if options.force {
        return Ok(());
    }
    if let Some(free) = free_memory()
        && work.elements.saturating_mul(BYTES_OF_AN_ELEMENT) > free
    {
        return Err(CheckError::TooLarge { elements: work.elements, free });
    }
    if work.total() > WORK_LIMIT {
        return Err(CheckError::TooLong { blocks: work.blocks, operations: work.operations, what });
    }
    Ok(())
}

/// The comparison of one output with the interpreter's.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The parameter.
    pub name: String,
    /// Largest difference, relative to the larger of the reference's element and the reference's root mean square. Infinite
    /// where one of both is NaN.
    pub max_error: f64,
    /// The largest difference that counts as right.
    pub tolerance: f64,
    /// Elements that are wrong.
    pub wrong: usize,
    /// The first of them: index, what it should be, what it is.
    pub first: Option<(usize, f64, f64)>,
}

/// What a check found.
#[derive(Debug)]
pub struct Outcome {
    /// What the device reported.
    pub report: LaunchReport,
    /// How long the launch that was checked took, compilation by the driver included.
    pub seconds: f64,
    /// Times of further launches, if they were asked for and the device has a clock.
    pub timing: Option<Timing>,
    /// One entry an output.
    pub comparisons: Vec<Comparison>,
    /// What the simulator found: races, stray and misaligned accesses, one sentence each.
    pub problems: Vec<String>,
}

impl Outcome {
    /// Whether every output is right and nothing is wrong on the way to it.
    pub fn is_right(&self) -> bool {
        self.problems.is_empty() && self.comparisons.iter().all(|c| c.wrong == 0)
    }
}

/// Runs a kernel on a device with uniform random inputs in [−1, 1) (integers: of their whole range, i32 up to a million; those
/// of which elements are integers of the kernel: from −2 to 7) and compares every output with the reference interpreter's.
///
/// What is only written begins as NaN (integers: 85, or the nearest there is) on both sides, so that elements nobody writes show.
///
/// # Errors
///
/// The device's or the interpreter's; a wrong result is no error but an [`Outcome`].
pub fn check(kernel: &Kernel, device: &dyn Device, options: &CheckOptions) -> Result<Outcome, CheckError> {
    let launched = launch(kernel, device, options)?;
    Ok(outcome(kernel, launched, &interpreted(kernel, options)?))
}

/// Does the same as [`check`] with what [`interpreted`] gave for the same kernel and options: for many launches, one interpretation.
///
/// # Errors
///
/// The device's.
pub fn check_against(
    kernel: &Kernel,
    device: &dyn Device,
    options: &CheckOptions,
    expected: &[Argument],
) -> Result<Outcome, CheckError> {
    Ok(outcome(kernel, launch(kernel, device, options)?, expected))
}

fn outcome(kernel: &Kernel, launched: Launched, expected: &[Argument]) -> Outcome {
    let Launched { report, seconds, results, timing } = launched;
    let comparisons = kernel
        .verified
        .outputs()
        .iter()
        .filter_map(|id| {
            let param = kernel.program().param(*id);
            match (expected.get(id.0 as usize), &results[id.0 as usize]) {
                (Some(Argument::Tensor(expected)), Some(actual)) => {
                    let slack = if param.dtype.is_float() || !rounds_to_integers(kernel) { 0.0 } else { 1.0 };
                    Some(compare(&param.name, expected, actual, tolerance(kernel, param.dtype), slack))
                }
                _ => None,
            }
        })
        .collect();
    let problems = report.problems();
    Outcome { report, seconds, timing, comparisons, problems }
}

/// Runs a kernel as [`check`] does, and compares nothing: what the simulator finds wrong with it, one sentence each.
///
/// # Errors
///
/// The device's.
pub fn problems(
    kernel: &Kernel,
    device: &dyn Device,
    options: &CheckOptions,
) -> Result<Vec<String>, CheckError> {
    let report = launch(kernel, device, options)?.report;
    Ok(report.sim().map(|s| s.problems()).unwrap_or_default())
}

/// Interprets a kernel with the inputs that [`check`] draws.
///
/// # Errors
///
/// The interpreter's.
pub fn interpreted(kernel: &Kernel, options: &CheckOptions) -> Result<Vec<Argument>, CheckError> {
    let sizes = sizes(kernel, options);
    affordable(kernel, &sizes, options, "interpreter")?;
    let mut arguments = inputs(kernel, &sizes, options)?;
    interpret(&kernel.verified, &sizes, &mut arguments)?;
    Ok(arguments)
}

/// A kernel that has run.
struct Launched {
    seconds: f64,
    report: LaunchReport,
    /// What the tensors hold then, by parameter.
    results: Vec<Option<Vec<f64>>>,
    timing: Option<Timing>,
}

fn sizes(kernel: &Kernel, options: &CheckOptions) -> Sizes {
    let mut sizes = tilewright_runtime::default_sizes(kernel);
    sizes.extend(options.sizes.iter().map(|(name, value)| (name.clone(), *value)));
    sizes
}

/// A kernel's arguments on a device.
pub(crate) struct Prepared {
    pub(crate) sizes: Sizes,
    inputs: Vec<Argument>,
    tensors: Vec<Option<Tensor>>,
}

impl Prepared {
    pub(crate) fn args(&self) -> Vec<Arg<'_>> {
        let both = self.tensors.iter().zip(&self.inputs);
        both.map(|(tensor, input)| match (tensor, input) {
            (Some(tensor), _) => Arg::Buffer(tensor.buffer()),
            (None, Argument::Scalar(x)) => Arg::Scalar(*x as f32),
            (None, Argument::Tensor(_)) => Arg::Scalar(f32::NAN),
        })
        .collect()
    }

    /// What the kernel's outputs hold, by parameter.
    pub(crate) fn read(
        &self,
        kernel: &Kernel,
        device: &dyn Device,
    ) -> Result<Vec<Option<Vec<f64>>>, CheckError> {
        let outputs: Vec<usize> = kernel.verified.outputs().iter().map(|id| id.0 as usize).collect();
        let read = |(i, t): (usize, &Option<Tensor>)| {
            t.as_ref().filter(|_| outputs.contains(&i)).map(|t| t.read(device)).transpose()
        };
        Ok(self.tensors.iter().enumerate().map(read).collect::<Result<_, _>>()?)
    }
}

/// Draws a kernel's inputs and brings them to a device.
pub(crate) fn prepare(
    kernel: &Kernel,
    device: &dyn Device,
    options: &CheckOptions,
) -> Result<Prepared, CheckError> {
    let sizes = sizes(kernel, options);
    if device.kind() == DeviceKind::Sim {
        affordable(kernel, &sizes, options, "simulator")?;
    }
    let inputs = inputs(kernel, &sizes, options)?;
    let tensors: Vec<Option<Tensor>> = kernel
        .program()
        .params
        .iter()
        .zip(&inputs)
        .map(|(param, input)| match input {
            Argument::Tensor(values) => Tensor::from_f64(device, param.dtype, values).map(Some),
            Argument::Scalar(_) => Ok(None),
        })
        .collect::<Result<_, _>>()?;
    Ok(Prepared { sizes, inputs, tensors })
}

fn launch(kernel: &Kernel, device: &dyn Device, options: &CheckOptions) -> Result<Launched, CheckError> {
    let prepared = prepare(kernel, device, options)?;
    let args = prepared.args();
    let started = Instant::now();
    let report = device.launch(kernel, &prepared.sizes, &args)?;
    let seconds = started.elapsed().as_secs_f64();
    let results = prepared.read(kernel, device)?;
    let timing = if options.repeat > 0 {
        device.time(kernel, &prepared.sizes, &args, 3, options.repeat)?
    } else {
        None
    };
    Ok(Launched { report, seconds, results, timing })
}

/// Whether two runs of a kernel left the same in every output, within what roundings may separate.
pub(crate) fn compare_results(
    kernel: &Kernel,
    expected: &[Option<Vec<f64>>],
    actual: &[Option<Vec<f64>>],
) -> bool {
    kernel.verified.outputs().iter().all(|id| {
        let param = kernel.program().param(*id);
        let slack = if param.dtype.is_float() || !rounds_to_integers(kernel) { 0.0 } else { 1.0 };
        match (&expected[id.0 as usize], &actual[id.0 as usize]) {
            (Some(expected), Some(actual)) => {
                compare(&param.name, expected, actual, tolerance(kernel, param.dtype), slack).wrong == 0
            }
            _ => true,
        }
    })
}

fn inputs(kernel: &Kernel, sizes: &Sizes, options: &CheckOptions) -> Result<Vec<Argument>, CheckError> {
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(options.seed);
    let mut all = Vec::new();
    for (i, param) in kernel.program().params.iter().enumerate() {
        if let ParamKind::Scalar { default } = param.kind {
            // The launch passes an `f32`, so the interpreter computes with one too.
            let value = options.scalars.get(&param.name).copied().unwrap_or(default);
            all.push(Argument::Scalar(f64::from(value as f32)));
            continue;
        }
        let id = ParamId(i as u32);
        let len = tensor_len(&kernel.verified, id, sizes)?;
        let read = kernel.verified.inputs().contains(&id);
        let indexes = kernel.verified.elements().contains(&id);
        let dtype = param.dtype;
        let mut draw = || -> f64 {
            let x = match (read, dtype.range()) {
                (false, None) => f64::NAN,
                (false, Some(_)) => 85.0,
                (true, _) if indexes => f64::from(rng.random_range(-2..8)),
                (true, None) => rng.random_range(-1.0..1.0),
                (true, Some((low, high))) => {
                    f64::from(rng.random_range(low.max(-1_000_000)..=high.min(1_000_000)))
                }
            };
            dtype.decode(dtype.encode(x))
        };
        all.push(Argument::Tensor((0..len).map(|_| draw()).collect()));
    }
    Ok(all)
}

/// What may separate a right result from the interpreter's: the rounding of the result, the order of `f32` sums, and the
/// roundings on the way of a product that accumulates in `f16`, or of one of 8-bit floats, whose sums the tensor cores keep to
/// about 14 bits.
fn tolerance(kernel: &Kernel, dtype: DType) -> f64 {
    let (mut narrow, mut bytes) = (false, false);
    let dtype_of = |id| kernel.program().tensor(id).dtype;
    kernel.verified.visit(&mut |stmt, _| match &stmt.kind {
        StmtKind::Gemm { c, .. } => narrow |= dtype_of(*c) == DType::F16,
        StmtKind::GemmAsync { c, b, .. } => {
            narrow |= dtype_of(*c) == DType::F16;
            bytes |= dtype_of(b.tensor).is_float() && dtype_of(b.tensor).bits() == 8;
        }
        _ => {}
    });
    let accumulation = match (narrow, bytes) {
        (true, _) => 64.0 * DType::F16.epsilon(),
        (false, true) => 8.0 / 8192.0,
        (false, false) => 1.2e-4,
    };
    4.0 * dtype.epsilon() + accumulation
}

/// Whether the kernel rounds floats to integers: only there may an integer differ by one, where an inexact sum is rounded
/// the other way.
fn rounds_to_integers(kernel: &Kernel) -> bool {
    let mut rounds = false;
    let dtype = |id| kernel.program().tensor(id).dtype;
    kernel.verified.visit(&mut |stmt, _| {
        if let StmtKind::Cast { dst, src } = &stmt.kind {
            rounds |= dtype(*src).is_float() && !dtype(*dst).is_float();
        }
    });
    rounds
}

/// Compares an output; differences of at most `slack` are right whatever their relative size.
fn compare(name: &str, expected: &[f64], actual: &[f64], tolerance: f64, slack: f64) -> Comparison {
    let finite = || expected.iter().copied().filter(|x| x.is_finite());
    let count = finite().count().max(1);
    let rms = (finite().map(|x| x * x).sum::<f64>() / count as f64).sqrt();
    let mut result = Comparison { name: name.to_string(), max_error: 0.0, tolerance, wrong: 0, first: None };
    for (i, (e, a)) in expected.iter().zip(actual).enumerate() {
        let same = e == a || (e.is_nan() && a.is_nan());
        let difference = if same { 0.0 } else { (e - a).abs() / e.abs().max(rms).max(f64::MIN_POSITIVE) };
        let relative = if difference.is_nan() { f64::INFINITY } else { difference };
        let wrong = relative > tolerance && (relative.is_infinite() || (e - a).abs() > slack);
        result.max_error = result.max_error.max(relative);
        if wrong {
            result.wrong += 1;
            result.first.get_or_insert((i, *e, *a));
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_sees_nan_and_wrong_elements() {
        let right = compare("c", &[1.0, f64::NAN, 3.0], &[1.0, f64::NAN, 3.0], 1e-3, 0.0);
        assert_eq!((right.wrong, right.max_error), (0, 0.0));
        let unwritten = compare("c", &[1.0, 2.0], &[1.0, f64::NAN], 1e-3, 0.0);
        assert_eq!((unwritten.wrong, unwritten.first.map(|f| f.0)), (1, Some(1)));
        let off = compare("c", &[1.0, 2.0], &[1.0, 2.1], 1e-3, 0.0);
        assert_eq!(off.wrong, 1);
        let one = compare("c", &[10.0, 2.0], &[11.0, 4.0], 1e-3, 1.0);
        assert_eq!((one.wrong, one.first), (1, Some((1, 2.0, 4.0))));
    }
}
