//! Launches one after another, and graphs of them.

use std::fmt;
use std::ptr;

use tilewright_compiler::Kernel;
use tilewright_launch::driver::{CAPTURE_THREAD_LOCAL, DriverError, GraphExec};

use super::driver::failed;
use super::prepared::Prepared;
use super::stream::{CudaStream, StreamWork};
use super::{CudaDevice, kernel_error, lock};
use crate::arg::{Arg, LaunchOptions, Sizes};
use crate::error::RuntimeError;
use crate::report::Timing;
use crate::sequence::Uses;

impl CudaDevice {
    /// An empty sequence of launches.
    pub fn sequence(&self) -> CudaSequence<'_> {
        CudaSequence { device: self, launches: Vec::new(), uses: Uses::default() }
    }
}

fn enqueue_all(launches: &[Prepared], stream: &CudaStream) -> Result<(), DriverError> {
    launches.iter().try_for_each(|launch| launch.enqueue(stream))
}

/// The names of what is launched, for errors.
fn names(launches: &[Prepared]) -> String {
    launches.iter().map(|launch| launch.kernel.as_str()).collect::<Vec<_>>().join(", ")
}

impl StreamWork for CudaSequence<'_> {
    fn name(&self) -> String {
        names(&self.launches)
    }

    fn enqueue(&self, stream: &CudaStream) -> Result<(), RuntimeError> {
        enqueue_all(&self.launches, stream).map_err(kernel_error(self.name()))
    }
}

impl StreamWork for CudaGraph<'_> {
    fn name(&self) -> String {
        names(&self.launches)
    }

    fn enqueue(&self, stream: &CudaStream) -> Result<(), RuntimeError> {
        self.put_on(stream).map_err(kernel_error(self.name()))
    }
}

/// Launches that run one after another on a GPU, without waiting for the host between them. Their code is loaded, their
/// arguments are checked, and their buffers are kept.
pub struct CudaSequence<'a> {
    device: &'a CudaDevice,
    launches: Vec<Prepared>,
    uses: Uses,
}

impl<'a> CudaSequence<'a> {
    /// Bytes of local memory of a thread (registers that were spilled), the most of all launches, and everything that the driver's
    /// assembler warned of.
    pub fn warnings(&self) -> (u32, Vec<String>) {
        let loaded = || self.launches.iter().map(|launch| &launch.loaded);
        let local = loaded().map(|l| l.module.local_bytes()).max().unwrap_or(0);
        (local, loaded().flat_map(|l| l.advisories.iter().cloned()).collect())
    }

    /// Adds a launch, which comes after those before.
    ///
    /// # Errors
    ///
    /// Those of [`Device::launch`](crate::Device::launch), and [`RuntimeError::ConstantWritten`] if a parameter of one launch is
    /// `constant` and another launch of the sequence writes its buffer.
    pub fn push(
        &mut self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        options: LaunchOptions,
    ) -> Result<(), RuntimeError> {
        let launch = self.device.prepare(kernel, sizes, args, options)?;
        self.uses.add(kernel, args)?;
        self.launches.push(launch);
        Ok(())
    }

    /// Runs all once; returns how many milliseconds they took.
    pub fn run(&self) -> Result<f64, RuntimeError> {
        self.device.bind()?;
        let runs = self.device.measure(0, 1, |stream| enqueue_all(&self.launches, stream));
        runs.map(|ms| ms.into_iter().sum()).map_err(kernel_error(names(&self.launches)))
    }

    /// Captures all in a graph, whose launch costs the host little however many they are.
    pub fn capture(self) -> Result<CudaGraph<'a>, RuntimeError> {
        self.device.bind()?;
        let stream = lock(&self.device.stream);
        let driver = stream.driver();
        let capture = || -> Result<GraphExec, DriverError> {
            // SAFETY: the stream lives, and its lock keeps everybody else from it until the capture has ended.
            unsafe { driver.stream_begin_capture(stream.raw, CAPTURE_THREAD_LOCAL) }?;
            let queued = enqueue_all(&self.launches, &stream);
            let mut graph = ptr::null_mut();
            // SAFETY: the stream is being captured; this ends it, also after an error. The driver writes the graph to where it is told.
            let ended = unsafe { driver.stream_end_capture(stream.raw, &raw mut graph) };
            queued?;
            ended?;
            let mut exec = ptr::null_mut();
            // SAFETY: the graph was just captured, and is destroyed once, when what is made of it no longer needs it.
            unsafe {
                let made = driver.graph_instantiate(&raw mut exec, graph, 0);
                let destroyed = driver.graph_destroy(graph);
                made.and(destroyed)?;
            }
            Ok(exec)
        };
        let exec = capture().map_err(failed("capturing launches in a graph"))?;
        drop(stream);
        Ok(CudaGraph { device: self.device, launches: self.launches, exec })
    }
}

impl fmt::Debug for CudaSequence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.launches.iter().map(|launch| &launch.kernel)).finish()
    }
}

/// A graph of launches, made by [`CudaSequence::capture`]. It can be run any number of times; buffers may get new contents
/// between.
pub struct CudaGraph<'a> {
    device: &'a CudaDevice,
    /// Launches of the graph: their code and their buffers.
    launches: Vec<Prepared>,
    exec: GraphExec,
}

impl CudaGraph<'_> {
    fn put_on(&self, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: the graph lives as long as `self`; code and buffers too.
        unsafe { stream.driver().graph_launch(self.exec, stream.raw) }
    }

    /// Runs it once; returns how many milliseconds it took.
    pub fn run(&self) -> Result<f64, RuntimeError> {
        self.device.bind()?;
        let runs = self.device.measure(0, 1, |stream| self.put_on(stream));
        runs.map(|ms| ms.into_iter().sum()).map_err(kernel_error(names(&self.launches)))
    }

    /// Runs it `warmup` times, then `repeats` times (at least once), and says how long each of these took.
    pub fn time(&self, warmup: usize, repeats: usize) -> Result<Option<Timing>, RuntimeError> {
        self.device.bind()?;
        let runs = self.device.measure(warmup, repeats.max(1), |stream| self.put_on(stream));
        runs.map(Timing::of).map_err(kernel_error(names(&self.launches)))
    }
}

impl Drop for CudaGraph<'_> {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: the graph was made by `capture` and is destroyed once; its runs have been waited for.
            let _ = unsafe { self.device.gpu.driver().graph_exec_destroy(self.exec) };
        }
    }
}

impl fmt::Debug for CudaGraph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.launches.iter().map(|launch| &launch.kernel)).finish()
    }
}
