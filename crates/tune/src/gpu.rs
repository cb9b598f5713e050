//! Measuring on a GPU.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tilewright_compiler::Kernel;
use tilewright_kernels::{Integers, Launch, Operator};
use tilewright_lab::CudaRunner;
use tilewright_lab::measure::{L2, Runner, Turn};
use tilewright_machine::{Arch, DType};
use tilewright_runtime::{
    Bindings, Buffer, CudaDevice, Device, LaunchOptions, RuntimeError, Scales, Timing, decode, encode,
    sizes_of,
};
use tilewright_tile::interpret::tensor_len;
use tilewright_tile::{ParamId, ParamKind, Program};

use crate::error::TuneError;
use crate::measurer::{Load, Measurer};
use crate::problem::Problem;
use crate::record::Conditions;
use crate::store::DeviceLock;

/// Elements of a tensor that are drawn; they are repeated. A prime, so that rows differ.
const DRAWN: usize = 1_048_573;
/// Elements that are compared at a time.
const CHUNK: usize = 1 << 16;
/// Milliseconds that a turn's runs take together, about.
const TURN_MS: f64 = 3.0;
/// Runs of a turn.
const RUNS: std::ops::RangeInclusive<usize> = 2..=8;
/// Times as long as a turn's runs that the rest before them is, if that is no longer than the longest one: the chip is busy for a ninth of the time.
const RESTS: f64 = 8.0;
/// Milliseconds in which the L2 cache is emptied before a run, about.
const EMPTYING_MS: f64 = 0.1;

/// Measures on a GPU. Every turn begins with a rest; each run of it follows a flush of the L2 cache on the same stream, so that the host
/// has queued the run when it begins, and lies between two events; the median of a turn's runs is its time.
///
/// Tensors are bound by name and allocated from the sizes. Those of the operator's own programs hold random numbers, or
/// not-a-number where they are only written; all others are workspaces and begin as zeros.
#[derive(Debug)]
pub struct GpuMeasurer<'a> {
    device: &'a CudaDevice,
    /// Held as long as the measurer.
    _lock: DeviceLock,
    public: BTreeSet<String>,
    tensors: BTreeMap<String, Bound>,
    loaded: BTreeMap<usize, Loaded<'a>>,
    l2: L2,
    rest: Duration,
}

/// A tensor on the device.
#[derive(Debug)]
struct Bound {
    buffer: Buffer,
    dtype: DType,
    elements: usize,
    /// Bytes that it holds before a run whose result is compared, if they matter.
    before: Option<Vec<u8>>,
}

/// A candidate on the device.
#[derive(Debug)]
struct Loaded<'a> {
    runner: CudaRunner<'a>,
    outputs: BTreeSet<String>,
    milliseconds: Option<f64>,
    /// Tables of integers that are its own: other configurations have others.
    _tables: BTreeMap<String, Buffer>,
}

fn failed(doing: &str) -> impl FnOnce(RuntimeError) -> TuneError {
    TuneError::device(doing.to_string())
}

impl<'a> GpuMeasurer<'a> {
    /// For candidates of a problem.
    ///
    /// # Errors
    ///
    /// A [`TuneError::Config`] if the operator has no programs for the problem's meaning.
    pub fn new(
        device: &'a CudaDevice,
        lock: DeviceLock,
        problem: &Problem,
        l2: L2,
        rest: Duration,
    ) -> Result<Self, TuneError> {
        let programs = problem.programs(device.arch().unwrap_or(Arch::SM_90A))?;
        let mut measurer = GpuMeasurer::of_programs(device, lock, &programs, l2, rest);
        measurer.public = operands(problem.operator(), &programs);
        Ok(measurer)
    }

    /// For candidates of the kernels of a program, all of whose tensors are inputs or outputs.
    pub fn of_programs(
        device: &'a CudaDevice,
        lock: DeviceLock,
        programs: &[Program],
        l2: L2,
        rest: Duration,
    ) -> Self {
        let public = names(programs);
        let (tensors, loaded) = (BTreeMap::new(), BTreeMap::new());
        GpuMeasurer { device, _lock: lock, public, tensors, loaded, l2, rest }
    }

    /// Makes a kernel's tensors, where there are none of their names or too small ones.
    fn bind(&mut self, kernel: &Kernel, launch: &Launch) -> Result<(), TuneError> {
        let sizes = sizes_of(kernel, &launch.sizes);
        for (i, param) in kernel.program().params.iter().enumerate() {
            if matches!(param.kind, ParamKind::Scalar { .. }) || table_of(launch, &param.name).is_some() {
                continue;
            }
            let id = ParamId(i as u32);
            let elements = tensor_len(&kernel.verified, id, &sizes).map_err(|error| {
                let kernel = kernel.program().name.clone();
                failed("allocating tensors")(RuntimeError::Sizes { kernel, error: Box::new(error) })
            })?;
            let bytes = param.dtype.bytes_of(elements);
            if self.tensors.get(&param.name).is_some_and(|t| t.buffer.bytes() >= bytes) {
                continue;
            }
            let buffer = self.device.alloc(bytes).map_err(failed("allocating tensors"))?;
            let (reads, writes) =
                (kernel.verified.inputs().contains(&id), kernel.verified.outputs().contains(&id));
            let mut before = None;
            if self.public.contains(&param.name) {
                let known = launch.integers.contains_key(param.name.as_str());
                let drawn = match (reads, known || kernel.verified.elements().contains(&id)) {
                    _ if kernel.verified.counters().contains(&id) => vec![0; bytes],
                    // Integers of the kernel, such as lengths: those of the launch, or small ones, as `tilewright run` draws them.
                    (_, true) => encode(param.dtype, &integers(launch, &param.name, elements)),
                    (true, false) => random(param.dtype, bytes),
                    (false, false) => vec![0xff; bytes],
                };
                self.device.upload(&buffer, &drawn).map_err(failed("filling tensors"))?;
                before = writes.then_some(drawn);
            }
            let bound = Bound { buffer, dtype: param.dtype, elements, before };
            self.tensors.insert(param.name.clone(), bound);
        }
        Ok(())
    }

    /// The tables of integers that are a configuration's own, for its kernels.
    fn tables(&self, kernels: &[Kernel], launch: &Launch) -> Result<BTreeMap<String, Buffer>, TuneError> {
        let mut tables = BTreeMap::new();
        for param in kernels.iter().flat_map(|kernel| &kernel.program().params) {
            let Some(values) = table_of(launch, &param.name) else { continue };
            let values: Vec<f64> = values.iter().map(|value| *value as f64).collect();
            let bytes = encode(param.dtype, &values);
            let buffer = self.device.alloc(bytes.len()).map_err(failed("allocating tensors"))?;
            self.device.upload(&buffer, &bytes).map_err(failed("filling tensors"))?;
            tables.insert(param.name.clone(), buffer);
        }
        Ok(tables)
    }

    fn candidate(&mut self, id: usize) -> Result<&mut Loaded<'a>, TuneError> {
        let missing = || failed("finding a candidate")(RuntimeError::Inconsistent { kernel: id.to_string() });
        self.loaded.get_mut(&id).ok_or_else(missing)
    }

    /// Runs a candidate once on what tensors held at first; what its public outputs hold then.
    fn results(&mut self, id: usize) -> Result<BTreeMap<String, Vec<u8>>, TuneError> {
        for bound in self.tensors.values() {
            if let Some(before) = &bound.before {
                self.device.upload(&bound.buffer, before).map_err(failed("filling tensors"))?;
            }
        }
        let candidate = self.candidate(id)?;
        candidate.runner.run().map_err(failed("running a candidate"))?;
        let outputs = candidate.outputs.clone();
        let read = |name: &String| {
            let bound = self.tensors.get(name)?;
            Some(self.device.download(&bound.buffer).map(|bytes| (name.clone(), bytes)))
        };
        outputs.iter().filter_map(read).collect::<Result<_, _>>().map_err(failed("reading results"))
    }
}

impl Measurer for GpuMeasurer<'_> {
    fn conditions(&self) -> Conditions {
        Conditions { l2: name_of(self.l2).to_string(), rest_seconds: self.rest.as_secs_f64() }
    }

    fn prefetch(&mut self, kernels: &[&Kernel]) {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        self.device.load_ahead(kernels, threads);
    }

    fn load(&mut self, id: usize, kernels: Vec<Kernel>, launch: &Launch) -> Result<Load, TuneError> {
        let mut sequence = self.device.sequence();
        let tables = self.tables(&kernels, launch)?;
        for (i, kernel) in kernels.iter().enumerate() {
            self.bind(kernel, launch)?;
            let mut bindings = Bindings::new();
            for (name, bound) in &self.tensors {
                bindings.set(name, &bound.buffer);
            }
            for (name, buffer) in &tables {
                bindings.set(name, buffer);
            }
            let args = bindings.args(kernel).map_err(failed("loading a candidate"))?;
            // The kernels behind the first wait for it by themselves.
            match sequence.push(
                kernel,
                &sizes_of(kernel, &launch.sizes),
                &args,
                LaunchOptions { dependent: i > 0 },
            ) {
                Ok(()) => {}
                Err(error @ (RuntimeError::Driver { .. } | RuntimeError::NoCuda { .. })) => {
                    return Err(failed("loading a candidate")(error));
                }
                Err(refused) => return Ok(Load::Refused(refused.to_string())),
            }
        }
        let outputs = results_of(&kernels, &self.public);
        let (local, advisories) = sequence.warnings();
        if local > 0 {
            return Ok(Load::Refused(format!("{local} bytes of registers of a thread are spilled")));
        }
        if let Some(advisory) = advisories.into_iter().next() {
            return Ok(Load::Refused(advisory));
        }
        let runner = CudaRunner::new(self.device, id.to_string(), sequence);
        self.loaded.insert(id, Loaded { runner, outputs, milliseconds: None, _tables: tables });
        Ok(Load::Ready)
    }

    fn time(&mut self, id: usize) -> Result<f64, TuneError> {
        let (l2, rest) = (self.l2, self.rest);
        let candidate = self.candidate(id)?;
        let timed = |candidate: &mut Loaded<'_>, rest, warmup, runs| {
            let times = candidate
                .runner
                .turn(&Turn { rest, l2, warmup, runs })
                .map_err(failed("timing a candidate"))?;
            Ok::<f64, TuneError>(Timing::of(times).map_or(f64::NAN, |timing| timing.median_ms))
        };
        let last = match candidate.milliseconds {
            Some(milliseconds) => milliseconds,
            // Never run before: these runs are no measurement, and say how many a turn can have.
            None => timed(candidate, Duration::ZERO, 1, 1)?,
        };
        let milliseconds = timed(candidate, rest_before(last, rest), 0, turn_of(last))?;
        candidate.milliseconds = Some(milliseconds);
        Ok(milliseconds * 1e3)
    }

    fn difference(&mut self, id: usize, other: usize) -> Result<Option<String>, TuneError> {
        let (own, expected) = (self.results(id)?, self.results(other)?);
        for (name, expected) in &expected {
            let Some(own) = own.get(name) else { return Ok(Some(format!("`{name}` is not written"))) };
            let Some(bound) = self.tensors.get(name) else { continue };
            if let Some(difference) = compare(bound.dtype, bound.elements, own, expected) {
                return Ok(Some(format!("`{name}`: {difference}")));
            }
        }
        Ok(None)
    }
}

/// The names of the parameters of programs.
fn names(programs: &[Program]) -> BTreeSet<String> {
    programs.iter().flat_map(|program| &program.params).map(|param| param.name.clone()).collect()
}

/// The operands of an operator's programs: not its workspaces, which candidates with other parameters need not have.
fn operands(operator: &Operator, programs: &[Program]) -> BTreeSet<String> {
    let mut names = names(programs);
    for workspace in operator.workspaces() {
        names.remove(workspace.name);
    }
    names
}

/// The tensors of these names that a sequence of kernels computes: those that one of them writes and none behind it reads. What one leaves for
/// another is no result, and candidates of other programs have nothing like it.
fn results_of(kernels: &[Kernel], public: &BTreeSet<String>) -> BTreeSet<String> {
    let names = |kernel: &Kernel, of: &[ParamId]| -> BTreeSet<String> {
        of.iter().map(|id| kernel.program().param(*id).name.clone()).collect()
    };
    let mut results = BTreeSet::new();
    for kernel in kernels {
        let (read, written) =
            (names(kernel, kernel.verified.inputs()), names(kernel, kernel.verified.outputs()));
        results.retain(|name| !read.contains(name));
        results.extend(written.into_iter().filter(|name| public.contains(name)));
    }
    results
}

/// Name of a state of the L2 cache in records.
fn name_of(l2: L2) -> &'static str {
    match l2 {
        L2::Written => "dirty",
        L2::Read => "clean",
        L2::Kept => "kept",
    }
}

fn turn_of(milliseconds: f64) -> usize {
    ((TURN_MS / milliseconds.max(1e-3)) as usize).clamp(*RUNS.start(), *RUNS.end())
}

/// The rest before a turn of runs that take so many milliseconds each, at most the longest one.
fn rest_before(milliseconds: f64, longest: Duration) -> Duration {
    let busy = turn_of(milliseconds) as f64 * (milliseconds + EMPTYING_MS);
    Duration::try_from_secs_f64(RESTS * busy / 1e3).map_or(longest, |rest| rest.min(longest))
}

/// Integers of a tensor that the kernel reads: those of the launch, or small ones.
fn integers(launch: &Launch, name: &str, elements: usize) -> Vec<f64> {
    let own = launch.integers.get(name);
    let element = |i: i64| own.map_or(i % 8, |own| own.element(i)) as f64;
    (0..elements as i64).map(element).collect()
}

/// The integers of a tensor that are a configuration's own.
fn table_of<'l>(launch: &'l Launch, name: &str) -> Option<&'l [i64]> {
    match launch.integers.get(name)? {
        Integers::Table(values) => Some(values),
        Integers::Line { .. } => None,
    }
}

/// Random elements: normally distributed floats, integers of the whole range. `DRAWN` of them are drawn and repeated.
fn random(dtype: DType, bytes: usize) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let drawn = if dtype.is_float() {
        let mut normal = || {
            // Box and Muller, A Note on the Generation of Random Normal Deviates (1958).
            let (u, v): (f64, f64) = (1.0 - rng.random::<f64>(), rng.random());
            (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
        };
        let values: Vec<f64> = (0..DRAWN.min(8 * bytes)).map(|_| normal()).collect();
        encode(dtype, &values)
    } else {
        (0..DRAWN.min(bytes)).map(|_| rng.random::<u8>()).collect()
    };
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        all.extend_from_slice(&drawn[..drawn.len().min(bytes - all.len())]);
    }
    all
}

/// The first difference of two results larger than roundings explain: several of the element type, relative to the larger of the element and the
/// scale of those of its size among the first ones.
fn compare(dtype: DType, elements: usize, own: &[u8], expected: &[u8]) -> Option<String> {
    let each = CHUNK / dtype.per_byte().max(1) as usize * (dtype.bits().max(8) / 8) as usize;
    let first = decode(dtype, &expected[..expected.len().min(16 * each)]);
    let scales = Scales::of(first);
    let tolerance = if dtype.is_float() { 8.0 * dtype.epsilon() + 1e-3 } else { 0.0 };
    let agree = |x: f64, y: f64| {
        (x - y).abs() <= tolerance * y.abs().max(scales.at(y)) || x == y || x.is_nan() && y.is_nan()
    };
    let (mut wrong, mut first) = (0usize, None);
    let chunks = (0..).step_by(CHUNK).zip(own.chunks(each).zip(expected.chunks(each)));
    // Most configurations sum in the same order, and give the same bits.
    for (start, (own, expected)) in chunks.filter(|(_, (own, expected))| own != expected) {
        let values = decode(dtype, own).into_iter().zip(decode(dtype, expected));
        for (at, (x, y)) in (start..elements).zip(values).filter(|(_, (x, y))| !agree(*x, *y)) {
            wrong += 1;
            first = first.or(Some((at, x, y)));
        }
    }
    let (at, x, y) = first?;
    Some(format!("{wrong} of {elements} elements differ; element {at} is {x} and {y}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_compared_within_roundings() {
        let of = |values: &[f64]| encode(DType::F16, values);
        let compare = |a: &[f64], b: &[f64]| compare(DType::F16, a.len(), &of(a), &of(b));
        assert_eq!(compare(&[1.0, -2.0, 300.0], &[1.0, -2.0, 300.25]), None);
        assert_eq!(compare(&[f64::NAN], &[f64::NAN]), None);
        let said = compare(&[1.0, 2.0, 3.0], &[1.0, 2.5, f64::NAN]).unwrap();
        assert_eq!(said, "2 of 3 elements differ; element 1 is 2 and 2.5");
        // Small against the others: noise of a sum that cancels.
        assert_eq!(compare(&[0.001, 100.0], &[0.002, 100.0]), None);
        // Beside a number that dwarfs it, an element is compared with those of its own size.
        let of = |values: &[f64]| encode(DType::F32, values);
        let mask = |x: f64| [vec![-1e30; 100], vec![x; 100]].concat();
        let masked = super::compare(DType::F32, 200, &of(&mask(1.5)), &of(&mask(1.0))).unwrap();
        assert_eq!(masked, "100 of 200 elements differ; element 100 is 1.5 and 1");
        let ints = |a: &[u8], b: &[u8]| super::compare(DType::I8, a.len(), a, b);
        assert!(ints(&[1, 2], &[1, 3]).is_some() && ints(&[1, 2], &[1, 2]).is_none());
    }

    #[test]
    fn what_one_kernel_leaves_for_another_is_no_result() {
        let body = |params: &str, of: &str| {
            let text = format!(
                "size n = 32\nkernel k({params}) grid(1) threads(32) {{\nr = register_tensor(f32, [32])\n{of}}}\n"
            );
            tilewright_tile::parse(&text).unwrap()
        };
        let view = |name: &str| format!("g{name} = global_view({name}, (32) : (e0))\n");
        let first = [
            view("a"),
            view("part"),
            view("kept"),
            "copy(ga, r)\ncopy(r, gpart)\ncopy(r, gkept)\n".to_string(),
        ]
        .concat();
        let second = [view("part"), view("c"), "copy(gpart, r)\ncopy(r, gc)\n".to_string()].concat();
        let programs =
            [body("a: f32[n], part: f32[n], kept: f32[n]", &first), body("part: f32[n], c: f32[n]", &second)];
        let compiled = |program| {
            let options = tilewright_compiler::Options::new(tilewright_machine::Arch::SM_80);
            tilewright_compiler::compile(program, &options).unwrap()
        };
        let kernels: Vec<Kernel> = programs.iter().map(compiled).collect();
        let public = ["a", "part", "kept", "c"].map(str::to_string).into();
        assert_eq!(results_of(&kernels, &public), ["c", "kept"].map(str::to_string).into());
        assert_eq!(results_of(&kernels[..1], &public), ["kept", "part"].map(str::to_string).into());
        let fewer = ["part", "c"].map(str::to_string).into();
        assert_eq!(results_of(&kernels, &fewer), ["c"].map(str::to_string).into());
    }

    #[test]
    fn workspaces_are_no_operands() {
        let operator = tilewright_kernels::operator("gemm_weights").unwrap();
        let programs = (operator.programs)(&[("schedule", "stream_k")]).unwrap();
        assert!(names(&programs).contains("done"));
        assert_eq!(operands(operator, &programs), ["a", "w", "s", "c"].map(str::to_string).into());
    }

    #[test]
    fn integers_are_those_of_the_launch() {
        let line = |first, step| Integers::Line { first, step };
        let all = [("len", line(300, 0)), ("cu_q", line(0, 2)), ("groups", Integers::Table(vec![2, 3]))];
        let launch = Launch { integers: all.into(), ..Launch::default() };
        assert_eq!(table_of(&launch, "groups"), Some(&[2, 3][..]));
        assert_eq!(table_of(&launch, "len"), None);
        assert_eq!(integers(&launch, "len", 2), [300.0, 300.0]);
        assert_eq!(integers(&launch, "cu_q", 3), [0.0, 2.0, 4.0]);
        assert_eq!(integers(&launch, "ids", 9)[7..], [7.0, 0.0]);
    }

    #[test]
    fn random_numbers_fill_every_byte() {
        for dtype in DType::ALL {
            let bytes = random(dtype, 4096);
            assert_eq!(bytes.len(), 4096);
            let values = decode(dtype, &bytes);
            assert!(
                values.iter().all(|x| x.is_finite()) && values.iter().any(|x| *x != values[0]),
                "{dtype}"
            );
        }
    }

    #[test]
    fn short_kernels_run_more_often_in_a_turn() {
        assert_eq!([0.0, 0.01, 0.5, 13.0].map(turn_of), [8, 8, 6, 2]);
        // And rest no longer than what little they heat the chip wants.
        let longest = Duration::from_millis(30);
        let rests = [0.0, 0.01, 0.1, 0.5, 13.0, f64::NAN].map(|ms| rest_before(ms, longest).as_micros());
        assert_eq!(rests, [6400, 7040, 12_800, 28_800, 30_000, 30_000]);
    }
}
