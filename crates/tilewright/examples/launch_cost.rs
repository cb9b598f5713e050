//! Launches by `tilewright-launch` on a GPU: are they right, and what do they cost the host?
//!
//! ```text
//! cargo run --release -p tilewright --example launch_cost
//! ```
//!
//! It compares operators on a stream of one's own, in a captured graph of 1,000 launches, and on two streams from two threads with the same launches by `runtime`; then
//! it measures the host's time of a launch beside a bare `cuLaunchKernelEx`.
#![allow(unsafe_code)] // views and streams are of memory and handles that the example owns

mod host;

use std::error::Error;
use std::fmt::Display;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tilewright::launch::driver::CAPTURE_THREAD_LOCAL;
use tilewright::launch::{
    Access, Arg, Code, DType, Gpu, LaunchError, LaunchOptions, ParamKind, Plan, Raw, Stream, ViewMut,
};
use tilewright::prelude::*;
use tilewright::runtime::{Buffer, CudaDevice, Sizes, devices, encode};
use tilewright::tile::Constants;

use host::Bare;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Results that are not what they ought to be.
static WRONG: AtomicUsize = AtomicUsize::new(0);

/// Says that something is wrong, and goes on.
fn wrong(text: impl Display) {
    println!("WRONG: {text}");
    WRONG.fetch_add(1, Ordering::Relaxed);
}

/// Operators with sizes, as in tests/operators.txt.
const OPERATORS: &[&str] = &[
    "softmax: m=64 n=1000",
    "rmsnorm: m=64 n=1000",
    "layernorm: m=64 n=1000",
    "log_softmax: m=33 n=777",
    "silu_mul: m=64 n=1000",
    "gelu_mul: m=64 n=1000",
    "transpose: m=130 n=70",
    "max_rows: m=64 n=1000",
    "gemm: m=130 n=70 k=100",
    "w4a16: m=64 n=128 k=256",
    "gemm_hopper: m=300 n=520 k=1000",
    "gemm_hopper epilogue=alpha+bias+gelu+residual bn=128: m=300 n=264 k=264",
    "gemm_hopper cluster=m2 bn=128 sm_count=8: m=600 n=520 k=264",
    "gemm_hopper dtype=f32 precision=tf32x3 bk=32 bn=128 stages=3: m=300 n=264 k=264",
];

/// `x = x + 1`: in a graph each counts.
const COUNT: &str = "
size n = 4096
kernel count(x: f32[n]) grid(ceil_div(n, 128)) threads(128) {
    gx = global_view(x[block.x * 128 :], (128) : (e0))
    r = register_tensor(f32, [128])
    copy(gx, r)
    s = r + 1.0
    copy(s, gx)
}";

/// A kernel that is loaded, with memory of its own.
struct Case {
    name: String,
    plan: Plan,
    kernel: tilewright::launch::Kernel,
    sizes: Vec<i64>,
    /// By parameter; none for numbers.
    buffers: Vec<Option<Buffer>>,
    /// Results of the kernel by `runtime`.
    expected: Vec<Option<Vec<u8>>>,
}

/// Some numbers that every type holds.
fn contents(dtype: tilewright::machine::DType, bytes: usize) -> Vec<u8> {
    let count = bytes * 8 / dtype.bits() as usize;
    let values: Vec<f64> = (0..count).map(|i| ((i * 7 + i / 13) % 5) as f64 * 0.25).collect();
    let mut made = encode(dtype, &values);
    made.resize(bytes, 0);
    made
}

fn cases(device: &CudaDevice, gpu: &Gpu) -> Fallible<Vec<Case>> {
    let mut programs: Vec<(String, Program, Sizes)> =
        vec![("count".into(), parse(COUNT)?, Sizes::from([("n".to_string(), 4096)]))];
    for line in OPERATORS {
        let (words, sizes) = line.split_once(": ").ok_or("a line without sizes")?;
        let (name, rest) = words.split_once(' ').unwrap_or((words, ""));
        let operator = tilewright::kernels::OPERATORS.iter().find(|operator| operator.name == name);
        let given: Vec<(&str, &str)> = rest.split(' ').filter_map(|word| word.split_once('=')).collect();
        let size =
            |word: &str| Some((word.split_once('=')?.0.to_string(), word.split_once('=')?.1.parse().ok()?));
        let sizes: Sizes = sizes.split(' ').filter_map(size).collect();
        let made = match (operator.ok_or("an unknown operator")?.programs)(&given) {
            Ok(made) => made,
            Err(error) => {
                wrong(format_args!("{line}: {error}"));
                continue;
            }
        };
        programs.extend(made.into_iter().map(|program| (line.to_string(), program, sizes.clone())));
    }
    programs
        .into_iter()
        .filter_map(|(name, program, sizes)| case(device, gpu, name, program, &sizes).transpose())
        .collect()
}

/// The case of a program; `None` if this GPU does not run it.
fn case(
    device: &CudaDevice,
    gpu: &Gpu,
    name: String,
    program: Program,
    sizes: &Sizes,
) -> Fallible<Option<Case>> {
    let known = |(size, _): &(&String, &i64)| program.sizes().any(|(_, row, _)| row.name == **size);
    let sizes: Sizes = sizes.iter().filter(known).map(|(name, value)| (name.clone(), *value)).collect();
    let given: Vec<(&str, i64)> = sizes.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let arch = device.arch().ok_or("no architecture for this GPU")?;
    if tilewright::tile::check_architecture(&tilewright::tile::verify(&program, &Constants::new())?, arch)
        .is_err()
    {
        return Ok(None);
    }
    let compiled = compile(&program, &Options::new(arch).for_sizes(&program, &given))?;
    // The kernel is right at all: compared with the interpreter, on this device.
    let outcome =
        check(&compiled, device, &CheckOptions { sizes: sizes.clone(), ..CheckOptions::default() })?;
    if !outcome.is_right() {
        wrong(format_args!("{name} by `runtime`"));
    }
    let recipe = compiled.recipe()?;
    let kernel = unsafe { gpu.load(&recipe, Code::Ptx(&compiled.ptx)) }?;
    let values = recipe.values(&given).ok_or("a size that the kernel does not have")?;
    let plan = kernel.plan(&values)?;
    let mut case = Case { name, plan, kernel, sizes: values, buffers: Vec::new(), expected: Vec::new() };
    for (param, row) in compiled.program().params.iter().enumerate() {
        let Some((shape, strides)) = case.plan.tensor(param) else {
            case.buffers.push(None);
            continue;
        };
        let span: i64 = shape.iter().zip(strides).map(|(n, d)| (n - 1) * d).sum();
        let bytes = row.dtype.bytes_of(span as usize + 1);
        let buffer = device.alloc(bytes)?;
        device.upload(&buffer, &contents(row.dtype, bytes))?;
        case.buffers.push(Some(buffer));
    }
    let numbers = |param: usize| match &recipe.params[param].kind {
        ParamKind::Scalar(scalar) => Some(*scalar),
        _ => None,
    };
    let args: Vec<tilewright::prelude::Arg<'_>> = (case.buffers.iter().enumerate())
        .map(|(param, buffer)| match (buffer, numbers(param)) {
            (Some(buffer), _) => buffer.into(),
            (None, Some(tilewright::launch::Scalar::I32 | tilewright::launch::Scalar::U32)) => 1i32.into(),
            _ => 0.5f32.into(),
        })
        .collect();
    device.launch(&compiled, &sizes, &args)?;
    drop(args);
    for param in 0..recipe.params.len() {
        let written = matches!(&recipe.params[param].kind, ParamKind::Tensor(t) if t.access == Access::Write);
        let bytes = case.buffers[param].as_ref().filter(|_| written).map(|buffer| device.download(buffer));
        case.expected.push(bytes.transpose()?);
    }
    case.reset(device)?;
    Ok(Some(case))
}

impl Case {
    /// Fills the memory as it was before the first launch.
    fn reset(&self, device: &CudaDevice) -> Fallible<()> {
        for (buffer, param) in self.buffers.iter().zip(&self.plan.recipe().params) {
            if let (Some(buffer), ParamKind::Tensor(tensor)) = (buffer, &param.kind) {
                let dtype =
                    tilewright::machine::DType::ALL.into_iter().find(|d| d.name() == tensor.dtype.name());
                device.upload(buffer, &contents(dtype.ok_or("an unknown type")?, buffer.bytes()))?;
            }
        }
        Ok(())
    }

    /// The arguments as raw ones.
    fn raw(&self, device: &CudaDevice) -> Fallible<Vec<Raw>> {
        let arg = |(buffer, param): (&Option<Buffer>, &tilewright::launch::Param)| {
            Ok(match (buffer, &param.kind) {
                (Some(buffer), _) => Raw::Ptr(device.address(buffer)?),
                (None, ParamKind::Scalar(tilewright::launch::Scalar::I32)) => Raw::I32(1),
                _ => Raw::F32(0.5),
            })
        };
        self.buffers.iter().zip(&self.plan.recipe().params).map(arg).collect()
    }

    /// Launches with views, all of whose properties are compared.
    fn launch(&self, device: &CudaDevice, stream: Stream<'_>) -> Fallible<()> {
        let recipe = self.plan.recipe();
        let mut views: Vec<Option<ViewMut<'_>>> = Vec::new();
        for (param, buffer) in self.buffers.iter().enumerate() {
            let view = match (buffer, self.plan.tensor(param), &recipe.params[param].kind) {
                (Some(buffer), Some((shape, strides)), ParamKind::Tensor(tensor)) => {
                    // The device's memory, which the case holds; the work has ended before anything else uses it.
                    let view = unsafe { ViewMut::new(device.address(buffer)?, tensor.dtype, shape) };
                    Some(unsafe { view.with_strides(strides) })
                }
                _ => None,
            };
            views.push(view);
        }
        let args: Vec<Arg<'_>> = (views.iter_mut().enumerate())
            .map(|(param, view)| match (view, &recipe.params[param].kind) {
                (Some(view), _) => view.into(),
                (None, ParamKind::Scalar(tilewright::launch::Scalar::I32)) => 1i32.into(),
                _ => 0.5f32.into(),
            })
            .collect();
        Ok(self.kernel.launch(stream, &self.sizes, &args[..])?)
    }

    fn compare(&self, device: &CudaDevice, times: usize) -> Fallible<()> {
        for (buffer, expected) in self.buffers.iter().zip(&self.expected) {
            let (Some(buffer), Some(expected)) = (buffer, expected) else { continue };
            let found = device.download(buffer)?;
            if self.name == "count" {
                let was = contents(tilewright::machine::DType::F32, buffer.bytes());
                let number = |bytes: &[u8], i: usize| {
                    f32::from_le_bytes([bytes[4 * i], bytes[4 * i + 1], bytes[4 * i + 2], bytes[4 * i + 3]])
                };
                if (0..4096).any(|i| number(&found, i) != number(&was, i) + times as f32) {
                    wrong(format_args!("count after {times} launches"));
                }
            } else if found != *expected {
                wrong(format_args!("{} differs from its launch by `runtime`", self.name));
            }
        }
        Ok(())
    }
}

/// A stream of the example's own.
fn stream(gpu: &Gpu) -> Fallible<Stream<'static>> {
    let mut raw = ptr::null_mut();
    unsafe { gpu.driver().stream_create(&raw mut raw, 1) }.map_err(|e| format!("{e:?}"))?;
    Ok(unsafe { Stream::borrow(raw) })
}

fn synchronise(gpu: &Gpu, stream: Stream<'_>) -> Fallible<()> {
    let waited = unsafe { gpu.driver().stream_synchronize(stream.raw()) };
    Ok(waited.map_err(|error| format!("{:?}", gpu.driver().describe(error)))?)
}

/// All cases once on each kind of stream.
fn on_streams(device: &CudaDevice, gpu: &Gpu, cases: &[Case]) -> Fallible<()> {
    for (name, stream) in
        [("one's own", stream(gpu)?), ("legacy", Stream::legacy()), ("per thread", Stream::per_thread())]
    {
        for case in cases {
            case.reset(device)?;
            case.launch(device, stream)?;
            synchronise(gpu, stream)?;
            case.compare(device, 1)?;
        }
        println!("done: {} operators on the stream {name}", cases.len());
    }
    Ok(())
}

/// 1,000 launches in a graph, replayed.
fn in_a_graph(device: &CudaDevice, gpu: &Gpu, cases: &[Case]) -> Fallible<()> {
    let (driver, stream) = (gpu.driver(), stream(gpu)?);
    let failed = |error| format!("{:?}", driver.describe(error));
    cases.iter().try_for_each(|case| case.reset(device))?;
    unsafe { driver.stream_begin_capture(stream.raw(), CAPTURE_THREAD_LOCAL) }.map_err(failed)?;
    let mut counted = 0;
    for i in 0..1000 {
        let case = &cases[i % cases.len()];
        counted += usize::from(case.name == "count");
        case.launch(device, stream)?;
    }
    // A plan that is not there is not made now.
    let unknown: Vec<i64> = cases[0].sizes.iter().map(|size| size + 128).collect();
    let refused = cases[0].kernel.launch(stream, &unknown, &[][..]);
    if !matches!(refused, Err(LaunchError::NotReady { .. })) {
        wrong(format_args!("a miss during a capture: {refused:?}"));
    }
    let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
    unsafe { driver.stream_end_capture(stream.raw(), &raw mut graph) }.map_err(failed)?;
    unsafe { driver.graph_instantiate(&raw mut exec, graph, 0) }.map_err(failed)?;
    for replay in 1..=3 {
        unsafe { driver.graph_launch(exec, stream.raw()) }.map_err(failed)?;
        synchronise(gpu, stream)?;
        cases.iter().try_for_each(|case| case.compare(device, replay * counted))?;
    }
    println!("done: a graph of 1000 launches of {} operators, replayed 3 times", cases.len());
    Ok(())
}

/// Two threads, each with a stream and memory of its own, by the same kernels.
fn in_threads(device: &CudaDevice, gpu: &Gpu, cases: &[[Case; 2]]) -> Fallible<()> {
    let streams = [stream(gpu)?, stream(gpu)?];
    for pair in cases {
        pair.iter().try_for_each(|case| case.reset(device))?;
    }
    std::thread::scope(|scope| {
        let threads = streams.iter().enumerate().map(|(number, stream)| {
            scope.spawn(move || -> Result<(), String> {
                gpu.bind().map_err(|error| error.to_string())?;
                for i in 0..2000 {
                    let case = &cases[i % cases.len()][number];
                    case.launch(device, *stream).map_err(|error| error.to_string())?;
                }
                synchronise(gpu, *stream).map_err(|error| error.to_string())
            })
        });
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked".to_string())?)
    })?;
    for (i, pair) in cases.iter().enumerate() {
        let times = 2000 / cases.len() + usize::from(i < 2000 % cases.len());
        pair.iter().try_for_each(|case| case.compare(device, times))?;
    }
    println!("done: 2000 launches on each of two streams from two threads");
    Ok(())
}

fn costs(device: &CudaDevice, gpu: &Gpu, case: &Case) -> Fallible<()> {
    let stream = stream(gpu)?;
    let raw = case.raw(device)?;
    let prepared = case.plan.prepare_raw(&raw, &LaunchOptions::new())?;
    let word = |raw: &Raw| match *raw {
        Raw::Ptr(pointer) => pointer,
        Raw::F32(x) => u64::from(x.to_bits()),
        Raw::I32(x) => u64::from(x.cast_unsigned()),
        _ => 0,
    };
    let words: Vec<u64> = raw.iter().map(word).collect();
    let mut bare = Bare::new(&case.plan, &words, false, stream)?;
    let options = LaunchOptions::new();
    let mut views: Vec<(usize, ViewMut<'_>)> = Vec::new();
    for (param, row) in case.plan.recipe().params.iter().enumerate() {
        if let (ParamKind::Tensor(tensor), Some((shape, strides)), Raw::Ptr(at)) =
            (&row.kind, case.plan.tensor(param), raw[param])
        {
            let view = unsafe { ViewMut::new(at, tensor.dtype, shape) };
            views.push((param, unsafe { view.with_strides(strides) }));
        }
    }
    let numbers: [f32; 16] = [0.5; 16];
    let mut args: Vec<Arg<'_>> = numbers.iter().take(raw.len()).map(|x| Arg::from(*x)).collect();
    for (param, view) in &mut views {
        args[*param] = Arg::from(view);
    }
    for (param, raw) in raw.iter().enumerate() {
        if let Raw::I32(x) = raw {
            args[param] = Arg::from(*x);
        }
    }
    let costs = host::costs(
        || synchronise(gpu, stream),
        [
            &mut || bare.launch(),
            &mut || {
                let launched = unsafe { prepared.enqueue(stream) };
                Ok(launched.map_err(|error| format!("{error:?}"))?)
            },
            &mut || Ok(unsafe { case.plan.launch_raw(stream, &raw, &options) }?),
            &mut || Ok(case.plan.launch(stream, &args[..])?),
            &mut || Ok(case.kernel.launch(stream, &case.sizes, &args[..])?),
        ],
    )?;
    let maps = case.plan.recipe().maps.len();
    println!(
        "cost: {} ({} arguments, {maps} tensor maps), ns of the host, median (least)",
        case.name,
        raw.len()
    );
    let names =
        ["bare cuLaunchKernelEx", "Prepared::enqueue", "Plan::launch_raw", "Plan::launch", "Kernel::launch"];
    for (name, cost) in names.into_iter().zip(costs) {
        println!("    {name:22} {:6.0} ({:5.0}) {:+5.0}", cost.median, cost.least, cost.more);
    }
    Ok(())
}

/// Code that the assembler rejects is refused with its log, and a kernel runs on every GPU.
fn others(gpu: &Gpu, case: &Case) -> Fallible<()> {
    let broken = unsafe {
        gpu.load(
            case.plan.recipe(),
            Code::Ptx(
                ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry count() { nonsense; }\n",
            ),
        )
    };
    match broken {
        Err(error) => println!("refused, as it ought to be: {error}"),
        Ok(_) => wrong("broken code is loaded"),
    }
    let count = devices().devices.len() as u32;
    for ordinal in 1..count {
        let Ok(other) = Gpu::primary(ordinal) else { break };
        let there = CudaDevice::open(ordinal)?;
        let kernel = case.kernel.on(&other)?;
        let buffer = there.alloc(4096 * 4)?;
        other.bind()?;
        let mut x = unsafe { ViewMut::new(there.address(&buffer)?, DType::F32, &[4096]) };
        for _ in 0..10 {
            kernel.launch(Stream::legacy(), &[4096], (&mut x,))?;
        }
        synchronise(&other, Stream::legacy())?;
        let right = there.download(&buffer)?.chunks(4).all(|bytes| bytes == 10f32.to_le_bytes());
        println!("done: 10 launches on GPU {ordinal} ({})", other.name());
        if !right {
            wrong(format_args!("launches on GPU {ordinal}"));
        }
    }
    gpu.bind()?;
    Ok(())
}

fn main() -> Fallible<()> {
    let device = Arc::new(CudaDevice::open(0)?);
    device.bind()?;
    // The context that is current is the one of the device, as an engine's would be.
    let gpu = Gpu::current()?;
    println!(
        "{} (compute capability {:?}), CUDA {:?}",
        gpu.name(),
        gpu.capability(),
        gpu.driver().cuda_version()
    );
    let start = Instant::now();
    let first = cases(&device, &gpu)?;
    let second = cases(&device, &gpu)?;
    println!(
        "{} kernels compiled, compared with the interpreter and loaded in {:.1} s",
        2 * first.len(),
        start.elapsed().as_secs_f64()
    );
    on_streams(&device, &gpu, &first)?;
    in_a_graph(&device, &gpu, &first)?;
    for case in &first {
        costs(&device, &gpu, case)?;
    }
    others(&gpu, &first[0])?;
    let pairs: Vec<[Case; 2]> = first.into_iter().zip(second).map(|(a, b)| [a, b]).collect();
    in_threads(&device, &gpu, &pairs)?;
    match WRONG.load(Ordering::Relaxed) {
        0 => {
            println!("all right");
            Ok(())
        }
        count => Err(format!("{count} results are wrong").into()),
    }
}
