//! Operators in an engine: its context, its stream, its memory, and no kernel of its own. `docs/my-data-my-stream.md` explains it line by line.
#![allow(unsafe_code)] // handles and addresses are the engine's word

use std::error::Error;
use std::ffi::c_void;

use tilewright::launch::{DType, Gpu, Stream, View, ViewMut, Workspace};
use tilewright::ops::{Gemm, Library, OpsError, Problems, Warm};
use tilewright::prelude::Device;

/// An engine: a context that is current, a stream, and memory.
pub struct Engine {
    /// The GPU of its context.
    pub gpu: Gpu,
    /// Its stream.
    pub stream: *mut c_void,
    /// Activations, `[m, 512]`.
    pub x: u64,
    /// Weights, `[256, 512]`.
    pub weight: u64,
    /// A number for each row of weights.
    pub bias: u64,
    /// Activations, `[m, 256]`.
    pub hidden: u64,
    /// The weights of a norm, 256.
    pub norm: u64,
    /// Results, `[m, 256]`.
    pub y: u64,
    /// 1 MiB for what kernels leave for each other.
    pub workspace: u64,
}

/// The library of an engine, which is warm for up to 64 rows.
pub fn library(engine: &Engine) -> Result<(Library, Warm), OpsError> {
    let lib = Library::for_gpu(&engine.gpu)?.strict();
    let warm = lib.warm_up(&Gemm::f16().m(1..=64).n(256).k(512).epilogue("bias+gelu"))?;
    lib.warm_up(&Problems::of("rmsnorm").size("m", 1..=64).size("n", 256))?;
    Ok((lib, warm))
}

/// Two operators, one after another.
pub fn step(engine: &Engine, lib: &Library, m: i64) -> Result<(), OpsError> {
    let stream = unsafe { Stream::borrow(engine.stream) };
    let x = unsafe { View::new(engine.x, DType::F16, &[m, 512]) };
    let weight = unsafe { View::new(engine.weight, DType::F16, &[256, 512]) };
    let bias = unsafe { View::new(engine.bias, DType::F16, &[256]) };
    let mut hidden = unsafe { ViewMut::new(engine.hidden, DType::F16, &[m, 256]) };
    let mut memory = unsafe { Workspace::new(engine.workspace, 1 << 20) };
    lib.gemm(stream, &x, &weight, &mut hidden).bias(&bias).gelu().workspace(&mut memory).run()?;

    let norm = unsafe { View::new(engine.norm, DType::F16, &[256]) };
    let mut y = unsafe { ViewMut::new(engine.y, DType::F16, &[m, 256]) };
    let call = lib.operator("rmsnorm").arg("x", &hidden).arg("w", &norm).arg("y", &mut y);
    call.arg("eps", 1e-5f32).run(stream)
}

/// The choice for a product, and what it takes.
pub fn reasons(engine: &Engine, lib: &Library) -> Result<String, OpsError> {
    let x = unsafe { View::new(engine.x, DType::F16, &[16, 512]) };
    let weight = unsafe { View::new(engine.weight, DType::F16, &[256, 512]) };
    let bias = unsafe { View::new(engine.bias, DType::F16, &[256]) };
    let mut hidden = unsafe { ViewMut::new(engine.hidden, DType::F16, &[16, 256]) };
    let stream = unsafe { Stream::borrow(engine.stream) };
    let call = lib.gemm(stream, &x, &weight, &mut hidden).bias(&bias).gelu();
    println!("{} bytes of workspace", call.workspace_bytes()?);
    Ok(call.why()?.to_string())
}

/// The engine is a device of `tilewright::runtime` here; any other that holds a context will do.
pub fn main() -> Result<(), Box<dyn Error>> {
    let device = match tilewright::runtime::CudaDevice::open(0) {
        Ok(device) => device,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    let buffers: Vec<_> = (0..7).map(|_| device.alloc(1 << 20)).collect::<Result<_, _>>()?;
    let at: Vec<u64> = buffers.iter().map(|buffer| device.address(buffer)).collect::<Result<_, _>>()?;
    device.bind()?;
    let engine = Engine {
        gpu: Gpu::current()?,
        stream: Stream::per_thread().raw(),
        x: at[0],
        weight: at[1],
        bias: at[2],
        hidden: at[3],
        norm: at[4],
        y: at[5],
        workspace: at[6],
    };
    let (lib, warm) = library(&engine)?;
    println!("{warm:?}");
    for m in [1, 16, 33] {
        step(&engine, &lib, m)?;
    }
    println!("{}", reasons(&engine, &lib)?);
    // The engine waits when it wants to.
    unsafe { engine.gpu.driver().stream_synchronize(engine.stream) }
        .map_err(|error| format!("{:?}", engine.gpu.driver().describe(error)))?;
    Ok(())
}
