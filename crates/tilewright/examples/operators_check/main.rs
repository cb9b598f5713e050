//! Operators by `tilewright-ops` on a GPU: are they right, what do they cost the host, and what do launches that begin early win?
//!
//! ```text
//! cargo run --release -p tilewright --example operators_check -- [PART…]
//! ```
//!
//! It compares operators with plain loops at some of their elements, on two GPUs at the same time where there are two, replays a captured graph of 1,000 runs of them, and measures the host's time of a run
//! beside bare launches of the same kernels, the time of a warm-up, kernels that rely on 16 bytes beside such as rely on all that divides their sizes, and products one after another with and without an early begin.
//! A part is `runs` (with `graph` and `costs`, which need them), `experts`, `dependent`, `warm-up`, `specialised` or `two`; without one all of them.
#![allow(unsafe_code)] // views and streams are of memory and handles that the example owns

#[path = "../host/mod.rs"]
mod host;
mod runs;
mod times;

use std::env;
use std::error::Error;
use std::fmt::Display;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tilewright::launch::{Chain, Gpu, PreparedChain, Stream, View, ViewMut, Workspace};
use tilewright::machine::DType;
use tilewright::ops::Library;
use tilewright::prelude::Device;
use tilewright::runtime::{Buffer, CudaDevice, decode, encode};

use runs::{experts, runs};
use times::{costs, dependent, in_a_graph, specialised, warm_up};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Bytes of the workspace of calls, and of that of bare launches.
const HALF: usize = 128 << 20;

/// Results that are not what they ought to be.
static WRONG: AtomicUsize = AtomicUsize::new(0);

/// Says that something is wrong, and goes on.
fn wrong(text: impl Display) {
    println!("WRONG: {text}");
    WRONG.fetch_add(1, Ordering::Relaxed);
}

/// A GPU with its library, a stream and a workspace.
struct Place {
    device: CudaDevice,
    gpu: Gpu,
    lib: Library,
    stream: Stream<'static>,
    _workspace: Buffer,
    /// The address of the workspace.
    memory: u64,
}

/// A tensor in the GPU's memory, with the numbers that it was filled with.
struct Held {
    buffer: Buffer,
    pointer: u64,
    dtype: DType,
    /// The same of `launch`.
    of_launch: tilewright::launch::DType,
    shape: Vec<i64>,
    values: Vec<f64>,
}

impl Place {
    fn new(ordinal: u32) -> Fallible<Place> {
        let device = CudaDevice::open(ordinal)?;
        device.bind()?;
        let gpu = Gpu::current()?;
        let lib = Library::for_gpu(&gpu)?;
        let mut raw = ptr::null_mut();
        unsafe { gpu.driver().stream_create(&raw mut raw, 1) }.map_err(|e| format!("{e:?}"))?;
        let workspace = device.alloc(2 * HALF)?;
        device.upload(&workspace, &vec![0; workspace.bytes()])?;
        let memory = device.address(&workspace)?;
        Ok(Place { gpu, lib, stream: unsafe { Stream::borrow(raw) }, _workspace: workspace, memory, device })
    }

    /// The workspace, whose counters are zeros since the first call.
    fn workspace(&self) -> Fallible<Workspace<'_>> {
        Ok(unsafe { Workspace::new(self.memory, HALF as u64) })
    }

    fn wait(&self) -> Fallible<()> {
        let waited = unsafe { self.gpu.driver().stream_synchronize(self.stream.raw()) };
        Ok(waited.map_err(|error| format!("{:?}", self.gpu.driver().describe(error)))?)
    }

    /// Numbers as a tensor of a type, rounded to it.
    fn held(&self, dtype: DType, shape: &[i64], values: &[f64]) -> Fallible<Rc<Held>> {
        let bytes = encode(dtype, values);
        let buffer = self.device.alloc(bytes.len().next_multiple_of(256))?;
        let mut padded = bytes.clone();
        padded.resize(buffer.bytes(), 0);
        self.device.upload(&buffer, &padded)?;
        let mut values = decode(dtype, &bytes);
        values.truncate(shape.iter().product::<i64>() as usize);
        let pointer = self.device.address(&buffer)?;
        let of_launch = tilewright::launch::DType::named(dtype.name()).ok_or("a type that launches lack")?;
        Ok(Rc::new(Held { buffer, pointer, dtype, of_launch, shape: shape.to_vec(), values }))
    }

    /// A tensor of random numbers from -1 to 1; of integers of its range.
    fn random(&self, dtype: DType, shape: &[i64], seed: u64) -> Fallible<Rc<Held>> {
        let count = shape.iter().product::<i64>() as usize;
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let values: Vec<f64> = match dtype.range() {
            Some((low, high)) => {
                (0..count).map(|_| (low as f64 + draw() * (high - low + 1) as f64).floor()).collect()
            }
            None => (0..count).map(|_| draw() * 2.0 - 1.0).collect(),
        };
        self.held(dtype, shape, &values)
    }

    /// A tensor for results, filled with numbers that no result is.
    fn result(&self, dtype: DType, shape: &[i64]) -> Fallible<Rc<Held>> {
        self.held(dtype, shape, &vec![100.0; shape.iter().product::<i64>() as usize])
    }

    fn read(&self, held: &Held) -> Fallible<Vec<f64>> {
        Ok(decode(held.dtype, &self.device.download(&held.buffer)?))
    }

    /// Compares some elements with a reference: at most so much apart, relative to 1 and to the element.
    fn compare(
        &self,
        name: &str,
        held: &Held,
        tolerance: f64,
        reference: impl Fn(usize) -> f64,
    ) -> Fallible<()> {
        self.wait()?;
        let found = self.read(held)?;
        let count = held.shape.iter().product::<i64>() as usize;
        let step = (count / 500).max(1) | 1;
        let mut most = 0f64;
        for at in (0..count).step_by(step).chain([count - 1]) {
            let expected = reference(at);
            let error = (found[at] - expected).abs() / (1.0 + expected.abs());
            most = if error.is_nan() { f64::INFINITY } else { most.max(error) };
        }
        if most > tolerance {
            wrong(format_args!("{name}: an element is {most:.2e} off, {tolerance:.0e} is right"));
        } else {
            println!("right: {name} ({most:.1e} at most)");
        }
        Ok(())
    }
}

impl Held {
    fn dtype(&self) -> tilewright::launch::DType {
        self.of_launch
    }

    fn view(&self) -> View<'_> {
        unsafe { View::new(self.pointer, self.dtype(), &self.shape) }
    }

    fn view_mut(&self) -> ViewMut<'_> {
        unsafe { ViewMut::new(self.pointer, self.dtype(), &self.shape) }
    }
}

/// The purpose for which a call is made.
#[derive(Clone, Copy)]
enum Want {
    /// Putting its launches on the stream.
    Run,
    /// Knowing them.
    Launches,
    /// Having them with their arguments.
    Prepared,
}

/// The result of a call.
enum Given {
    Run,
    Launches(Chain),
    Prepared(PreparedChain),
}

/// A call that is made anew, with its views.
type Made = Box<dyn Fn(&Place, Want) -> Fallible<Given>>;

/// A run of an operator, its result, and its tensors by name.
struct Run {
    name: &'static str,
    result: Rc<Held>,
    tensors: Vec<(&'static str, Rc<Held>)>,
    call: Made,
}

impl Run {
    fn run(&self, p: &Place) -> Fallible<()> {
        (self.call)(p, Want::Run).map(drop)
    }

    fn launches(&self, p: &Place) -> Fallible<Chain> {
        match (self.call)(p, Want::Launches)? {
            Given::Launches(chain) => Ok(chain),
            _ => Err("no launches".into()),
        }
    }

    fn prepared(&self, p: &Place) -> Fallible<PreparedChain> {
        match (self.call)(p, Want::Prepared)? {
            Given::Prepared(launches) => Ok(launches),
            _ => Err("no launches".into()),
        }
    }
}

/// The operators on the second GPU and on the first at the same time, each from a thread of its own.
fn on_two() -> Fallible<()> {
    if tilewright::launch::Driver::system()?.count().map_err(|error| format!("{error:?}"))? < 2 {
        println!("there is one GPU");
        return Ok(());
    }
    let of_one = |ordinal: u32| -> Result<usize, String> {
        let work = || -> Fallible<usize> {
            let place = Place::new(ordinal)?;
            let runs = runs(&place)?;
            in_a_graph(&place, &runs)?;
            Ok(runs.len())
        };
        work().map_err(|error| error.to_string())
    };
    let done = std::thread::scope(|scope| {
        [0, 1].map(|ordinal| scope.spawn(move || of_one(ordinal))).map(|thread| thread.join())
    });
    for (ordinal, done) in done.into_iter().enumerate() {
        match done {
            Ok(Ok(count)) => println!("done: {count} operators on GPU {ordinal}, beside the other"),
            Ok(Err(error)) => wrong(format_args!("GPU {ordinal}: {error}")),
            Err(_) => wrong(format_args!("GPU {ordinal}: the thread ended")),
        }
    }
    Ok(())
}

fn main() -> Fallible<()> {
    let begin = Instant::now();
    let place = match Place::new(0) {
        Ok(place) => place,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    println!("{}, {}", place.gpu.name(), place.lib.arch());
    let asked: Vec<String> = env::args().skip(1).collect();
    let wanted = |part: &str| asked.is_empty() || asked.iter().any(|name| name == part);
    if wanted("runs") {
        let runs = runs(&place)?;
        println!("{:.1} s", begin.elapsed().as_secs_f64());
        for part in [in_a_graph, costs] {
            if let Err(error) = part(&place, &runs) {
                wrong(error);
            }
        }
    }
    type Part = fn(&Place) -> Fallible<()>;
    let parts: [(&str, Part); 4] =
        [("experts", experts), ("dependent", dependent), ("warm-up", warm_up), ("specialised", specialised)];
    for (_, part) in parts.iter().filter(|(name, _)| wanted(name)) {
        if let Err(error) = part(&place) {
            wrong(error);
        }
        println!("{:.1} s", begin.elapsed().as_secs_f64());
    }
    if wanted("two")
        && let Err(error) = on_two()
    {
        wrong(error);
    }
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    match WRONG.load(Ordering::Relaxed) {
        0 => println!("all right"),
        count => return Err(format!("{count} results are wrong").into()),
    }
    Ok(())
}
