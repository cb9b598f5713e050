//! A program that has its kernels in itself, as a pack that its build script has compiled: it links neither compiler nor simulator. It launches `scale` on its own stream and memory.
#![allow(unsafe_code, reason = "the program has addresses and streams of the driver")]

use std::error::Error;

use tilewright_launch::{DType, Gpu, Kernel, Stream, View, ViewMut};
use tilewright_twpack::{Included, include_kernels};

/// The kernels.
fn kernels() -> &'static Included {
    include_kernels!(concat!(env!("OUT_DIR"), "/kernels.twpack"))
}

/// Elements of each tensor.
const N: i64 = 4096;

/// Puts y = factor · x on a stream, with the tensors at these addresses.
fn scale(gpu: &Gpu, stream: Stream<'_>, [x, y]: [u64; 2], factor: f32) -> Result<Kernel, Box<dyn Error>> {
    let kernel = kernels().load(gpu, "scale")?;
    // SAFETY: the memory is there until the work has ended.
    let (x, mut y) = unsafe { (View::new(x, DType::F32, &[N]), ViewMut::new(y, DType::F32, &[N])) };
    kernel.launch(stream, &[N], (&x, &mut y, factor))?;
    Ok(kernel)
}

fn main() -> Result<(), Box<dyn Error>> {
    for kernel in kernels().pack()?.file().kernels() {
        println!("{} for {}", kernel.name(), kernel.target().name);
    }
    let gpu = match Gpu::primary(0) {
        Ok(gpu) => gpu,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    gpu.bind()?;
    let (driver, stream) = (gpu.driver(), Stream::per_thread());
    let failed = |error| format!("{:?}", driver.describe(error));
    let mut host = vec![3f32; N as usize];
    let bytes = size_of_val(&host[..]);
    let (mut x, mut y) = (0, 0);
    // SAFETY: the context is current; the driver writes to where it is told, and the work has ended before the memory on the host is read.
    unsafe {
        driver.memory_alloc(&raw mut x, bytes).map_err(failed)?;
        driver.memory_alloc(&raw mut y, bytes).map_err(failed)?;
        driver.copy_to_device(x, host.as_ptr().cast(), bytes, stream.raw()).map_err(failed)?;
        scale(&gpu, stream, [x, y], 0.5)?;
        driver.copy_to_host(host.as_mut_ptr().cast(), y, bytes, stream.raw()).map_err(failed)?;
        driver.stream_synchronize(stream.raw()).map_err(failed)?;
    }
    println!("y[0] = {}", host[0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_launch::Driver;
    use tilewright_stand_in_driver::StandIn;

    #[test]
    fn the_kernel_for_the_gpu_is_launched() {
        let stand_in = StandIn::of_this_test();
        // SAFETY: the stand-in has the functions of a driver, and runs no code.
        let driver = unsafe { Driver::open(stand_in.path()) }.unwrap();
        stand_in.make_current(0);
        for (capability, target) in [(80, "sm_80"), (90, "sm_90a"), (120, "sm_80")] {
            stand_in.set("capability", capability);
            let gpu = Gpu::current_of(driver).unwrap();
            let kernel = scale(&gpu, Stream::legacy(), [0x1000, 0x9000], 0.5).unwrap();
            assert_eq!(kernel.recipe().target.name, target);
            let launch = "cuLaunchKernelEx grid=32,1,1 block=128,1,1 shared=0 stream=0x1 attributes=[] function=scale params=[\
                          0010000000000000 0090000000000000 0000003f 00100000]";
            assert_eq!(stand_in.calls().last().unwrap(), launch);
        }
        stand_in.set("capability", 75);
        let error = scale(&Gpu::current_of(driver).unwrap(), Stream::legacy(), [0, 0], 0.5).unwrap_err();
        let text = "kernel `scale` of the pack has code for sm_80 (PTX), sm_90a (PTX), which Stand-in GPU (compute capability 7.5) does not run";
        assert_eq!(error.to_string(), text);
    }
}
