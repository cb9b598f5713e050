//! Kernels in an engine: its context, its stream, its memory. `docs/my-data-my-stream.md` explains it line by line.
#![allow(unsafe_code)] // handles and addresses are the engine's word

use std::error::Error;
use std::ffi::c_void;

use tilewright::cache::Kernels;
use tilewright::launch::{
    Code, DType, Gpu, Kernel, LaunchError, LaunchOptions, Raw, Recipe, Stream, View, ViewMut,
};
use tilewright::prelude::{Arch, Device, Options, compile, parse};

/// `y = factor · x`, 128 elements a block.
const SCALE: &str = "
size n = 4096
kernel scale(x: f32[n], y: f32[n], factor: f32 = 2.0) grid(ceil_div(n, 128)) threads(128) {
    gx = global_view(x[block.x * 128 :], (128) : (e0))
    gy = global_view(y[block.x * 128 :], (128) : (e0))
    r = register_tensor(f32, [128])
    copy(gx, r)
    s = r * factor
    copy(s, gy)
}";

/// The parts of a kernel that an engine keeps, as data.
pub fn compiled() -> Result<(Recipe, String), Box<dyn Error>> {
    let program = parse(SCALE)?;
    let kernel = compile(&program, &Options::new(Arch::SM_80))?;
    Ok((kernel.recipe()?, kernel.ptx))
}

/// An engine: a context that is current, a stream, and memory for `n` elements at two addresses.
pub struct Engine {
    /// The GPU of its context.
    pub gpu: Gpu,
    /// Its stream.
    pub stream: *mut c_void,
    /// The address of what is read.
    pub x: u64,
    /// The address of what is written.
    pub y: u64,
    /// The number of elements.
    pub n: i64,
}

/// The launches that the page shows.
pub fn launches(engine: &Engine, recipe: &Recipe, ptx: &str) -> Result<Kernel, LaunchError> {
    let (gpu, n) = (&engine.gpu, engine.n);
    let kernel = unsafe { gpu.load(recipe, Code::Ptx(ptx)) }?;
    let plan = kernel.plan(&[n])?;

    let stream = unsafe { Stream::borrow(engine.stream) };
    let x = unsafe { View::new(engine.x, DType::F32, &[n]) };
    let mut y = unsafe { ViewMut::new(engine.y, DType::F32, &[n]) };
    plan.launch(stream, (&x, &mut y, 0.5f32))?;

    // By sizes: the plan that is known, or a new one.
    kernel.launch(stream, &[n], (&x, &mut y, 0.5f32))?;

    // Without views: only number and kinds of the arguments are compared.
    let raw = [Raw::Ptr(engine.x), Raw::Ptr(engine.y), Raw::F32(0.5)];
    unsafe { plan.launch_raw(stream, &raw, &LaunchOptions::new()) }?;
    Ok(kernel)
}

/// The kernel of the user's cache, which is compiled once on this machine.
pub fn kept(gpu: &Gpu) -> Result<Kernel, Box<dyn Error>> {
    let kept = Kernels::of_user()?.load_or_compile(&parse(SCALE)?, &Options::new(Arch::SM_80))?;
    kept.warnings.iter().for_each(|warning| eprintln!("{warning}"));
    let kernel = kept.load(gpu)?;
    Ok(kernel)
}

/// A launch while the engine captures its stream in a graph, which holds no plan yet for twice as many elements.
pub fn captured(engine: &Engine, kernel: &Kernel) -> Result<(), LaunchError> {
    let (stream, n) = (unsafe { Stream::borrow(engine.stream) }, engine.n);
    let x = unsafe { View::new(engine.x, DType::F32, &[n / 2]) };
    let mut y = unsafe { ViewMut::new(engine.y, DType::F32, &[n / 2]) };
    match kernel.launch(stream, &[n / 2], (&x, &mut y, 0.5f32)) {
        Err(LaunchError::NotReady { kernel }) => println!("make the plans of `{kernel}` before the capture"),
        other => other?,
    }
    Ok(())
}

/// The engine is a device of `tilewright::runtime` here; any other that holds a context will do.
pub fn main() -> Result<(), Box<dyn Error>> {
    let (recipe, ptx) = compiled()?;
    let device = match tilewright::runtime::CudaDevice::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    let n = 4096;
    let [x, y] = [device.alloc(4 * n)?, device.alloc(4 * n)?];
    device.upload(&x, &3f32.to_le_bytes().repeat(n))?;
    device.bind()?;
    let engine = Engine {
        gpu: Gpu::current()?,
        stream: Stream::per_thread().raw(),
        x: device.address(&x)?,
        y: device.address(&y)?,
        n: n as i64,
    };
    launches(&engine, &recipe, &ptx)?;
    kept(&engine.gpu)?;
    // The engine waits when it wants to.
    unsafe { engine.gpu.driver().stream_synchronize(engine.stream) }
        .map_err(|error| format!("{:?}", engine.gpu.driver().describe(error)))?;
    let y = device.download(&y)?;
    println!("y[0] = {}", f32::from_le_bytes([y[0], y[1], y[2], y[3]]));
    Ok(())
}
