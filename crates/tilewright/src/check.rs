//! Running a kernel on random inputs and comparing it with the reference interpreter: what `tilewright run` does, as a
//! function.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Instant;

use tilewright_compiler::Kernel;
use tilewright_machine::{DType, Elements, Memory, Number, PrintLog, Progress};
use tilewright_runtime::{Arg, Device, DeviceKind, LaunchReport, RuntimeError, Sizes, Timing};
use tilewright_tile::interpret::{
    Argument, Executable, InterpretError, Questionable, Watched, interpret_bounded, interpret_watched,
    questionable, tensor_shape, tensor_strides, tensors_of_array, work,
};
use tilewright_tile::{Code, Diagnostic, Origin, ParamId, ParamKind, Program, TensorId, core, lint};

use crate::coordinate::coordinate;
use crate::findings::{Detail, broken, findings};
use crate::input::{Input, InputError, arguments};
use crate::memory::Memory as DeviceMemory;
use crate::printed::{PrintedBy, Prints};

/// Operations of all blocks ([`work`]), above which a check is refused unless it is forced: some ten minutes.
pub const WORK_LIMIT: u64 = 1 << 40;

/// Bytes that a check keeps for an element of a tensor: the inputs, what the interpreter writes, the device's results, and the simulator's
/// memory with what it knows of the accesses to it.
pub const BYTES_OF_AN_ELEMENT: u64 = 64;

/// Inputs and limits of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckOptions {
    /// The value of every size; those not named take their defaults.
    pub sizes: Sizes,
    /// Values of scalar parameters; those not named take their defaults.
    pub scalars: BTreeMap<String, Number>,
    /// Elements of tensors; those not named are random.
    pub inputs: BTreeMap<String, Input>,
    /// Seed of the random inputs.
    pub seed: u64,
    /// Launches to time after the one that is checked (devices with a clock).
    pub repeat: usize,
    /// Begins however long it takes by the estimate, and however much memory.
    pub force: bool,
    /// Counts the clusters of blocks that the interpreter has run.
    pub progress: Option<Progress>,
    /// Instead of the bound that the interpreter carries to each element: an element x may be off by this times 1 + |x|.
    pub tolerance: Option<f64>,
    /// Depth of messages about what the simulator finds.
    pub detail: Detail,
}

/// Reasons why a kernel could not be checked.
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
        "the tensors have {elements} elements together, for which about {} GiB of memory are needed, and {} GiB are free",
        elements.saturating_mul(BYTES_OF_AN_ELEMENT) >> 30,
        free >> 30
    )]
    TooLarge {
        /// Elements of all tensors.
        elements: u64,
        /// Free bytes.
        free: u64,
    },
    /// An input cannot be used.
    #[error("input `{name}`: {error}")]
    Input {
        /// The tensor.
        name: String,
        /// The reason.
        error: InputError,
    },
    /// The run would take too long.
    #[error(
        "{blocks} blocks of about {operations} operations each would keep the {what} busy for about {}",
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
    /// The error as a message about a program, with the places of what it names, in the author's words.
    pub fn diagnostic(&self, program: &Program) -> Diagnostic {
        let diagnostic = match self {
            CheckError::Runtime(error) => error.diagnostic(program),
            CheckError::Interpret(error) => error.diagnostic(),
            CheckError::Input { name, error } => {
                let param = program.params.iter().find(|param| param.name == *name);
                let span = param.map_or(Origin::Unknown, |param| param.span);
                let message = Diagnostic::new(Code::BadLaunch, span, self.to_string());
                match (error, param.map(|param| &param.kind)) {
                    (InputError::NotRead { .. }, Some(ParamKind::Scalar { .. })) => message.help(format!(
                        "`{name}` is a number, and no tensor: it is given as a scalar, `-p {name}=…`"
                    )),
                    _ => message,
                }
            }
            CheckError::TooLarge { .. } | CheckError::TooLong { .. } => {
                Diagnostic::new(Code::TooLarge, Origin::Unknown, self.to_string())
                    .help("choose smaller sizes")
            }
        };
        program.unnamed().in_words_of(diagnostic)
    }

    /// True if [`CheckOptions::force`] would have begun it all the same.
    pub fn is_estimate(&self) -> bool {
        matches!(self, CheckError::TooLarge { .. } | CheckError::TooLong { .. })
    }
}

/// Operations ([`work`]) that a thread of the simulator and the interpreter does in a second.
pub const PER_SECOND: u64 = 1_000_000_000;

/// The sizes of kernels that run one after another, with some of them halved so that all operations ([`work`]) are at most so many;
/// `None` where halving leads to nothing.
pub fn smaller(kernels: &[&Kernel], sizes: &Sizes, most: u64) -> Option<Sizes> {
    let total = |sizes: &Sizes| {
        kernels.iter().try_fold(0u64, |sum, kernel| {
            let sizes = tilewright_runtime::sizes_of(kernel, sizes);
            Some(sum.saturating_add(work(&kernel.verified, &sizes).ok()?.total()))
        })
    };
    let mut found = sizes.clone();
    let mut now = total(&found)?;
    while now > most {
        // Sizes of more than a tile first: what lies below is often the number of problems, or of heads.
        let halved = |least: i64| {
            let large = found.iter().filter(move |(_, value)| **value > least);
            let halves = large.map(|(name, value)| {
                let mut sizes = found.clone();
                sizes.insert(name.clone(), value - value / 2);
                (*value, sizes)
            });
            let fewer =
                halves.filter_map(|(value, sizes)| Some((total(&sizes)?, std::cmp::Reverse(value), sizes)));
            fewer
                .filter(|(operations, ..)| *operations < now)
                .min_by_key(|(operations, value, _)| (*operations, *value))
        };
        let (operations, _, sizes) = halved(256).or_else(|| halved(64)).or_else(|| halved(1))?;
        (now, found) = (operations, sizes);
    }
    Some(found)
}

/// The time of some operations on this machine's cores, as text.
pub fn duration(operations: u64) -> String {
    let seconds = operations / PER_SECOND / rayon::current_num_threads().max(1) as u64;
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

/// The interpreter's results of a kernel: the reference of [`check_against`].
#[derive(Clone, Debug)]
pub struct Expected {
    /// The arguments after the launch, by parameter.
    pub arguments: Vec<Argument>,
    /// For each output, how far each element of a right kernel may lie from the interpreter's
    /// ([`interpret_bounded`]).
    pub bounds: Vec<Option<Vec<f32>>>,
    /// Records of the interpreter's prints. Empty of [`interpreted`].
    pub printed: PrintLog,
}

/// An element that is not what the interpreter has.
#[derive(Clone, PartialEq, Debug)]
pub struct Difference {
    /// Its coordinate in the tensor.
    pub at: Vec<i64>,
    /// The interpreter's value.
    pub expected: f64,
    /// The device's.
    pub actual: f64,
    /// The distance of the two, exactly 0 of equal ones: also of 64-bit integers, which `expected` and `actual` round.
    pub distance: f64,
    /// Largest distance of the two at which the device's value is right.
    pub bound: f64,
}

impl Difference {
    /// The error as a part of its bound: more than 1 is wrong. Infinite where one of both is NaN, or nothing may differ.
    pub fn ratio(&self) -> f64 {
        let ratio = self.distance / self.bound;
        if self.bound == f64::INFINITY {
            0.0
        } else if ratio.is_nan() {
            f64::INFINITY
        } else {
            ratio
        }
    }
}

/// The comparison of one output with the interpreter's.
#[derive(Clone, PartialEq, Debug)]
pub struct Comparison {
    /// The parameter.
    pub name: String,
    /// Elements that were compared.
    pub elements: usize,
    /// Elements that are wrong: farther from the interpreter's than their bounds.
    pub wrong: usize,
    /// The element whose error is the largest part of its bound; `None` where all are equal.
    pub worst: Option<Difference>,
    /// Elements that nothing bounds, so that any value is right (a divisor may be 0, for instance).
    pub unbounded: usize,
    /// Elements that are 0 by the interpreter.
    pub zeros: usize,
    /// Elements that are no numbers by the interpreter.
    pub nans: usize,
}

impl fmt::Display for Comparison {
    /// The element that takes the largest part of its bound.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.worst {
            None => write!(f, "all {} elements equal the interpreter's", self.elements)?,
            Some(w) => write!(
                f,
                "largest error {:.2} of its bound: {:?} is {}, the interpreter has {}, bound {:.1e}",
                w.ratio(),
                w.at,
                w.actual,
                w.expected,
                w.bound
            )?,
        }
        if self.zeros == self.elements && self.elements > 1 {
            write!(f, ", and all are 0")?;
        }
        match self.nans {
            0 => {}
            nans if nans == self.elements => write!(f, "; all are NaN")?,
            nans => write!(f, "; {nans} of {} are NaN", self.elements)?,
        }
        if self.unbounded > 0 {
            write!(f, "; nothing bounds {} of {} elements", self.unbounded, self.elements)?;
        }
        Ok(())
    }
}

/// Results of a check.
#[derive(Debug)]
pub struct Outcome {
    /// The device's report of the launch.
    pub report: LaunchReport,
    /// Seconds of the launch that was checked, with compilation by the driver.
    pub seconds: f64,
    /// Times of further launches, if they were asked for and the device has a clock.
    pub timing: Option<Timing>,
    /// One entry an output.
    pub comparisons: Vec<Comparison>,
    /// Elements of the outputs after the launch, by parameter; `None` for parameters that are no outputs.
    pub results: Vec<Option<Elements>>,
    /// Findings of the simulator: races, stray and misaligned accesses, what is in flight or unwritten.
    pub findings: Vec<Diagnostic>,
    /// Warnings of the interpreter's masks ([`interpret_watched`]): mistakes that a comparison with the interpreter cannot find, since it
    /// does what the program says. Empty of [`check_against`].
    pub warnings: Vec<Diagnostic>,
    /// Records of the kernel's prints, by the interpreter and by the simulator. Empty of [`check_against`] with what [`interpreted`] gave.
    pub printed: Prints,
}

/// Summary of a check in a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Every element of every output is written, and right.
    Right,
    /// The same, but the interpreter's masks show what may be a mistake.
    RightWithWarnings,
    /// Every element that is written is right, but some elements of outputs are not written.
    RightWhereWritten,
    /// Every element with a bound is right, but nothing bounds some elements: of those any value passes.
    RightWhereBounded,
    /// An output is wrong, or depends on what nothing had written, or the simulator found something.
    Wrong,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Right => "right",
            Verdict::RightWithWarnings => "right, with warnings",
            Verdict::RightWhereWritten => "right where written",
            Verdict::RightWhereBounded => "right where bounded",
            Verdict::Wrong => "WRONG",
        })
    }
}

impl Outcome {
    /// True if every output is right where it is written, and nothing is wrong on the way to it. See [`Outcome::verdict`] for the rest.
    pub fn is_right(&self) -> bool {
        let garbage = self.warnings.iter().any(|warning| warning.code == Code::ReadUnwritten);
        !garbage && self.findings.is_empty() && self.comparisons.iter().all(|c| c.wrong == 0)
    }

    /// Summary of the check in a word.
    pub fn verdict(&self) -> Verdict {
        let partly = self.warnings.iter().any(|warning| warning.code == Code::PartlyWritten);
        let unbounded = self.comparisons.iter().any(|c| c.unbounded > 0);
        match (self.is_right(), partly, self.warnings.is_empty()) {
            (false, _, _) => Verdict::Wrong,
            (true, true, _) => Verdict::RightWhereWritten,
            (true, false, _) if unbounded => Verdict::RightWhereBounded,
            (true, false, false) => Verdict::RightWithWarnings,
            (true, false, true) => Verdict::Right,
        }
    }
}

/// Runs a kernel on a device with uniform random inputs in [−1, 1) (integers: of their whole range, i32 up to a million; those
/// of which elements are integers of the kernel: from −2 to 7; those that index a mode of a view or of a shared tensor: coordinates of the mode and
/// two beyond either end, each once where what is written there does not combine; counters: 0) and compares every output with the reference
/// interpreter's.
///
/// Elements that are only written begin as NaN (integers: 85, or the nearest there is) on both sides, so that elements nobody writes show.
///
/// # Errors
///
/// The device's or the interpreter's; a wrong result is no error but an [`Outcome`].
pub fn check(kernel: &Kernel, device: &dyn Device, options: &CheckOptions) -> Result<Outcome, CheckError> {
    // What the interpreter refuses it says in the program's words; a device would hang, or say what its engines wait for.
    let (expected, warnings) = watched(kernel, options)?;
    let launched = launch(kernel, device, options)?;
    Ok(Outcome { warnings, ..outcome(kernel, launched, &expected, options)? })
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
    expected: &Expected,
) -> Result<Outcome, CheckError> {
    outcome(kernel, launch(kernel, device, options)?, expected, options)
}

fn outcome(
    kernel: &Kernel,
    launched: Launched,
    expected: &Expected,
    options: &CheckOptions,
) -> Result<Outcome, CheckError> {
    let Launched { report, seconds, results, timing } = launched;
    let comparisons = compare(kernel, options, expected, &results)?;
    let findings = found(kernel, options, &report);
    let device = if report.sim().is_some() { PrintedBy::Simulator } else { PrintedBy::Gpu };
    let printed = Prints::new(kernel, &expected.printed, report.printed().map(|log| (log, device)));
    Ok(Outcome { report, seconds, timing, comparisons, results, findings, warnings: Vec::new(), printed })
}

/// Findings of a device in a launch: of the simulator all that it looks for, of a GPU assertions that do not hold.
fn found(kernel: &Kernel, options: &CheckOptions, report: &LaunchReport) -> Vec<Diagnostic> {
    match report.sim() {
        Some(sim) => findings(kernel, &sizes(kernel, options), &sim.findings(), options.detail),
        None => report.problems().into_iter().map(|wrong| broken(kernel, wrong)).collect(),
    }
}

/// Runs a kernel as [`check`] does, and compares nothing: the findings of the simulator.
///
/// # Errors
///
/// The device's.
pub fn findings_of(
    kernel: &Kernel,
    device: &dyn Device,
    options: &CheckOptions,
) -> Result<Vec<Diagnostic>, CheckError> {
    Ok(found(kernel, options, &launch(kernel, device, options)?.report))
}

/// Interprets a kernel with the inputs that [`check`] draws.
///
/// # Errors
///
/// The interpreter's.
pub fn interpreted(kernel: &Kernel, options: &CheckOptions) -> Result<Expected, CheckError> {
    interpreted_as(&kernel.verified, kernel, options)
}

/// Interprets a core program of a kernel, after any of its passes, with the inputs that [`check`] draws, and compares it with what
/// [`interpreted`] gave for the surface program: every element and its bound must be the same, bit by bit. Where copies add to global memory,
/// in an order that the program leaves open, elements may differ by their bounds. The result names the first element that is another.
///
/// # Errors
///
/// The interpreter's.
pub fn core_difference(
    program: &core::Program,
    kernel: &Kernel,
    surface: &Expected,
    options: &CheckOptions,
) -> Result<Option<String>, CheckError> {
    let core = interpreted_as(program, kernel, options)?;
    let (adds, padded) = (adds(kernel), padded(program, kernel));
    for (i, pair) in surface.arguments.iter().zip(&core.arguments).enumerate() {
        let (Some(x), Some(y)) = (pair.0.elements(), pair.1.elements()) else { continue };
        let [left, right] = [surface, &core].map(|of| of.bounds.get(i).and_then(Option::as_ref));
        let at = |bounds: Option<&Vec<f32>>, k: usize| bounds.and_then(|b| b.get(k)).copied().unwrap_or(0.0);
        for k in 0..x.len().min(y.len()) {
            let [bound, again] = [at(left, k), at(right, k)];
            // A reduction of more elements has a wider bound, though those that are added change nothing.
            let bounded = adds || bound.to_bits() == again.to_bits() || padded && again >= bound;
            let same = x.same_bits(&y, k) && bounded;
            let near = adds && x.distance(&y, k) < f64::from(bound);
            if !(same || near) {
                let [x, y] = [&x, &y].map(|of| of.get(k).unwrap_or(f64::NAN));
                let name = &kernel.verified.program().params[i].name;
                return Ok(Some(format!(
                    "element {k} of `{name}` is {x} (bound {bound:e}), and {y} (bound {again:e}) by the core program"
                )));
            }
        }
    }
    Ok(None)
}

/// True if a register tensor of the core program has more elements than that of the surface by its name.
fn padded(program: &core::Program, kernel: &Kernel) -> bool {
    let surface =
        kernel.program().tensors.iter().enumerate().filter(|(_, row)| row.memory() == Memory::Register);
    let shapes: BTreeMap<&str, Vec<i64>> = surface
        .map(|(i, row)| (row.name.as_str(), Executable::shape(&kernel.verified, TensorId(i as u32))))
        .collect();
    program.tensors.iter().enumerate().any(|(i, row)| {
        let known = shapes.get(row.name.as_str());
        known.is_some_and(|shape| *shape != program.shape(TensorId(i as u32)))
    })
}

/// True if copies of the kernel add to global memory, in an order that the program leaves open.
pub(crate) fn adds(kernel: &Kernel) -> bool {
    let mut adds = false;
    kernel.verified.visit(&mut |stmt, _| {
        adds |= stmt.kind.combines().is_some();
    });
    adds
}

fn interpreted_as(
    program: &impl Executable,
    kernel: &Kernel,
    options: &CheckOptions,
) -> Result<Expected, CheckError> {
    let sizes = sizes(kernel, options);
    affordable(kernel, &sizes, options, "interpreter")?;
    let mut arguments = arguments(kernel, &sizes, options)?;
    let bounds = interpret_bounded(program, &sizes, &mut arguments)?;
    Ok(Expected { arguments, bounds, printed: PrintLog::default() })
}

/// Interprets a kernel as [`interpreted`] does, with what the interpreter's masks show.
///
/// # Errors
///
/// The interpreter's.
pub fn watched(kernel: &Kernel, options: &CheckOptions) -> Result<(Expected, Vec<Diagnostic>), CheckError> {
    let sizes = sizes(kernel, options);
    affordable(kernel, &sizes, options, "interpreter")?;
    let mut arguments = arguments(kernel, &sizes, options)?;
    let Watched { bounds, mut warnings, printed } =
        interpret_watched(&kernel.verified, &sizes, &mut arguments, options.progress.as_ref())?;
    // A run shows more of a mistake than a lint; one message of it is enough.
    warnings.extend(questioned(kernel, options, &sizes, (&arguments, &warnings))?);
    let lints = lint(&kernel.verified, &sizes);
    warnings.extend(lints.into_iter().filter(|lint| !shown(lint.code, &warnings)).collect::<Vec<_>>());
    Ok((Expected { arguments, bounds, printed }, warnings))
}

/// Elements of an output from which on it is asked whether all of them are meant to be 0.
const MANY: usize = 16;

/// Warnings about outputs that are 0 everywhere, and such as are no numbers although all inputs are.
fn questioned(
    kernel: &Kernel,
    options: &CheckOptions,
    sizes: &Sizes,
    (results, warnings): (&[Argument], &[Diagnostic]),
) -> Result<Vec<Diagnostic>, CheckError> {
    // Elements that nothing wrote are NaN, and so is what depends on them.
    let unwritten = [Code::PartlyWritten, Code::ReadUnwritten];
    let written = !warnings.iter().any(|warning| unwritten.contains(&warning.code));
    let of = |id: &ParamId| {
        let dtype = kernel.program().param(*id).dtype;
        let elements = results.get(id.0 as usize)?.elements()?;
        let Counts { zero, nan, all } = Counts::of(&elements);
        if dtype.is_float() && zero == all && all >= MANY {
            Some((*id, Questionable::Zero))
        } else {
            (nan > 0 && written).then_some((*id, Questionable::Nan { count: nan, of: all }))
        }
    };
    let outputs: Vec<(ParamId, Questionable)> = kernel.verified.outputs().iter().filter_map(of).collect();
    if outputs.is_empty() {
        return Ok(Vec::new());
    }
    let mut arguments = arguments(kernel, sizes, options)?;
    let finite = |id: &ParamId| {
        let elements = arguments.get(id.0 as usize).and_then(Argument::elements);
        elements
            .is_none_or(|elements| (0..elements.len()).all(|i| elements.get(i).is_none_or(f64::is_finite)))
    };
    if !kernel.verified.inputs().iter().all(finite) {
        return Ok(Vec::new());
    }
    Ok(questionable(&kernel.verified, sizes, &mut arguments, &outputs)?)
}

/// Elements of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    /// Those that are 0.
    zero: usize,
    /// Those that are NaN.
    nan: usize,
    /// All.
    all: usize,
}

impl Counts {
    fn of(elements: &Elements) -> Counts {
        let all = elements.len();
        let count = |is: fn(f64) -> bool| (0..all).filter(|i| elements.get(*i).is_some_and(is)).count();
        Counts { zero: count(|x| x == 0.0), nan: count(f64::is_nan), all }
    }
}

/// True if what a lint is about is among the warnings of a run.
fn shown(lint: Code, warnings: &[Diagnostic]) -> bool {
    let of: &[Code] = match lint {
        Code::ReadBeforeWrite => &[Code::ReadUnwritten],
        Code::FillInAccumulation => &[Code::OverwrittenUnread],
        Code::UnusedTensor => &[Code::OverwrittenUnread],
        Code::ConstantResult => &[Code::AllZero],
        Code::IdleAxis => &[Code::WrittenAgain, Code::PartlyRead],
        Code::ShortGrid
        | Code::ShortLoop
        | Code::StepOfView
        | Code::AxesMixed
        | Code::IdleBlocks
        | Code::IndexBeyond => &[Code::PartlyWritten, Code::PartlyRead, Code::WrittenAgain],
        _ => &[],
    };
    warnings.iter().any(|warning| of.contains(&warning.code))
}

/// A kernel that has run.
struct Launched {
    seconds: f64,
    report: LaunchReport,
    /// Elements of the tensors after the launch, by parameter.
    results: Vec<Option<Elements>>,
    timing: Option<Timing>,
}

pub(crate) fn sizes(kernel: &Kernel, options: &CheckOptions) -> Sizes {
    let mut sizes = tilewright_runtime::default_sizes(kernel);
    sizes.extend(options.sizes.iter().map(|(name, value)| (name.clone(), *value)));
    sizes
}

/// A kernel's arguments on a device.
pub(crate) struct Prepared {
    pub(crate) sizes: Sizes,
    inputs: Vec<Argument>,
    tensors: Vec<Option<DeviceMemory>>,
    /// The tensors of each parameter that is an array.
    counts: Vec<Option<usize>>,
    /// The type of each parameter.
    types: Vec<DType>,
}

impl Prepared {
    /// New memory with the elements that were drawn for a parameter; `None` of a scalar.
    fn memory(&self, device: &dyn Device, at: usize) -> Result<Option<DeviceMemory>, RuntimeError> {
        let elements = self.inputs[at].elements();
        elements
            .map(|elements| DeviceMemory::new(device, self.types[at], &elements, self.counts[at]))
            .transpose()
    }

    /// Gives outputs the elements that they had before a launch.
    pub(crate) fn restore(&mut self, kernel: &Kernel, device: &dyn Device) -> Result<(), CheckError> {
        for id in kernel.verified.outputs() {
            let at = id.0 as usize;
            self.tensors[at] = self.memory(device, at)?;
        }
        Ok(())
    }

    pub(crate) fn args(&self) -> Vec<Arg<'_>> {
        let both = self.tensors.iter().zip(&self.inputs).zip(&self.types);
        both.map(|((tensor, input), dtype)| match (tensor, input) {
            (Some(memory), _) => memory.arg(),
            (None, Argument::Scalar(x)) => Arg::number(*dtype, *x),
            (None, Argument::Tensor(_) | Argument::Integers(_)) => Arg::Scalar(f32::NAN),
        })
        .collect()
    }

    /// Elements of the kernel's outputs, by parameter.
    pub(crate) fn read(
        &self,
        kernel: &Kernel,
        device: &dyn Device,
    ) -> Result<Vec<Option<Elements>>, CheckError> {
        let outputs: Vec<usize> = kernel.verified.outputs().iter().map(|id| id.0 as usize).collect();
        let read = |(i, t): (usize, &Option<DeviceMemory>)| {
            t.as_ref().filter(|_| outputs.contains(&i)).map(|t| t.elements(device)).transpose()
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
    let inputs = arguments(kernel, &sizes, options)?;
    let counts = (0..kernel.program().params.len() as u32)
        .map(|id| tensors_of_array(&kernel.verified, ParamId(id), &sizes))
        .collect::<Result<Vec<_>, _>>()?;
    let types: Vec<DType> = kernel.program().params.iter().map(|param| param.dtype).collect();
    let mut prepared = Prepared { sizes, tensors: Vec::new(), inputs, counts, types };
    prepared.tensors =
        (0..prepared.inputs.len()).map(|i| prepared.memory(device, i)).collect::<Result<_, _>>()?;
    Ok(prepared)
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

/// Compares every output with the interpreter's.
pub(crate) fn compare(
    kernel: &Kernel,
    options: &CheckOptions,
    expected: &Expected,
    results: &[Option<Elements>],
) -> Result<Vec<Comparison>, CheckError> {
    let sizes = sizes(kernel, options);
    let mut all = Vec::new();
    for id in kernel.verified.outputs() {
        let number = id.0 as usize;
        let (Some(argument), Some(Some(bounds)), Some(Some(actual))) =
            (expected.arguments.get(number), expected.bounds.get(number), results.get(number))
        else {
            continue;
        };
        let Some(values) = argument.elements() else { continue };
        let shape = tensor_shape(&kernel.verified, *id, &sizes)?;
        let strides = tensor_strides(&kernel.verified, *id, &sizes)?;
        let at = |offset| coordinate(offset, &shape, &strides);
        let bound = |i: usize| match options.tolerance {
            Some(tolerance) => tolerance * (1.0 + values.get(i).unwrap_or(0.0).abs()),
            None => bounds.get(i).map_or(0.0, |bound| f64::from(*bound)),
        };
        all.push(comparison(&kernel.program().param(*id).name, &values, actual, bound, at));
    }
    Ok(all)
}

fn comparison(
    name: &str,
    expected: &Elements,
    actual: &Elements,
    bound: impl Fn(usize) -> f64,
    at: impl Fn(usize) -> Vec<i64>,
) -> Comparison {
    let (mut wrong, mut unbounded, mut worst) = (0, 0, None::<(usize, f64)>);
    let number = |of: &Elements, i: usize| of.get(i).unwrap_or(f64::NAN);
    let difference = |at: Vec<i64>, i: usize| Difference {
        at,
        expected: number(expected, i),
        actual: number(actual, i),
        distance: expected.distance(actual, i),
        bound: bound(i),
    };
    for i in 0..expected.len().min(actual.len()) {
        unbounded += usize::from(bound(i) == f64::INFINITY);
        if expected.same(actual, i) {
            continue;
        }
        let ratio = difference(Vec::new(), i).ratio();
        wrong += usize::from(ratio > 1.0);
        if worst.is_none_or(|(_, worst)| ratio > worst) {
            worst = Some((i, ratio));
        }
    }
    let worst = worst.map(|(i, _)| difference(at(i), i));
    let Counts { zero, nan, all } = Counts::of(expected);
    Comparison { name: name.to_string(), elements: all, wrong, worst, unbounded, zeros: zero, nans: nan }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_sees_nan_and_elements_beyond_their_bounds() {
        let compare = |expected: &[f64], actual: &[f64], bounds: &[f64]| {
            let [expected, actual] = [expected, actual].map(|values| Elements::from(values.to_vec()));
            comparison("c", &expected, &actual, |i| bounds[i], |i| coordinate(i, &[1, 3], &[3, 1]))
        };
        let right = compare(&[1.0, f64::NAN, -0.0], &[1.0, f64::NAN, 0.0], &[0.0; 3]);
        assert_eq!((right.wrong, right.worst), (0, None));
        let unwritten = compare(&[1.0, 2.0], &[1.0, f64::NAN], &[0.5; 2]);
        assert_eq!((unwritten.wrong, unwritten.worst.map(|w| w.at)), (1, Some(vec![0, 1])));
        // A small element is not hidden by a large one.
        let off = compare(&[-1e30, 2.0, 0.125], &[-1e30, 2.25, 0.126], &[1e25, 0.5, 1e-4]);
        assert_eq!((off.wrong, off.worst.clone().map(|w| w.at)), (1, Some(vec![0, 2])));
        assert!(off.worst.is_some_and(|w| (9.9..10.1).contains(&w.ratio())));
        let open = compare(&[1.0, 2.0], &[f64::NAN, 2.0], &[f64::INFINITY, 0.0]);
        assert_eq!((open.wrong, open.unbounded), (0, 1));
    }
}
