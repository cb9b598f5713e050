//! NVIDIA GPUs, through the CUDA driver that is loaded when it is first asked for.
//!
//! The binding of the driver, code and launches are those of `tilewright-launch`; here are devices with memory and a stream of their own. Each opened device holds the GPU's primary context (the one that other
//! CUDA libraries in the process use too) and a stream of its own that does not wait for the default stream. Every
//! call waits for its own work on that stream before it returns, so no memory is given back while a kernel uses it.
#![allow(unsafe_code)]

mod ahead;
mod driver;
mod launch;
mod load;
pub(crate) mod memory;
mod module;
mod prepared;
mod records;
mod sequence;
mod stream;
mod turn;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tilewright_compiler::Kernel;
use tilewright_launch::Gpu;
use tilewright_launch::driver::DeviceAttribute;
use tilewright_machine::Arch;

use crate::arg::{Arg, LaunchOptions, Sizes};
use crate::buffer::{Buffer, DeviceId, Storage};
use crate::device::sealed::Sealed;
use crate::device::{Chip, Device, DeviceInfo, DeviceKind};
use crate::error::RuntimeError;
use crate::report::{CudaReport, LaunchReport, Timing, assertions};

use self::driver::{count, failed, info, kernel_error, kernel_failed, launch_error};
use self::memory::Allocation;
use self::module::Loaded;
use self::prepared::Scrub;

pub(crate) use self::driver::devices;
pub use self::sequence::{CudaGraph, CudaSequence};
pub use self::stream::{CudaStream, StreamWork};

/// An NVIDIA GPU.
pub struct CudaDevice {
    id: DeviceId,
    info: DeviceInfo,
    /// Code by PTX text. Declared before the stream and the context, which it needs to unload.
    modules: Mutex<HashMap<String, Arc<Loaded>>>,
    /// Memory and code that empty the L2 cache, once needed.
    scrub: Mutex<Option<Arc<Scrub>>>,
    /// Held while work is on the stream, so that times are of one kernel only.
    stream: Mutex<CudaStream>,
    gpu: Gpu,
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice").field("info", &self.info).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaDevice {
    /// Opens the GPU with this number.
    pub fn open(ordinal: u32) -> Result<Self, RuntimeError> {
        let count = count()?;
        if ordinal >= count {
            return Err(RuntimeError::NoSuchDevice { ordinal, count });
        }
        let info = info(ordinal)?;
        let gpu = Gpu::primary(ordinal).map_err(launch_error)?;
        gpu.bind().map_err(launch_error)?;
        let stream = CudaStream::new(&gpu).map_err(failed(format!("opening CUDA device {ordinal}")))?;
        Ok(CudaDevice {
            id: DeviceId::new(),
            info,
            modules: Mutex::new(HashMap::new()),
            scrub: Mutex::new(None),
            stream: Mutex::new(stream),
            gpu,
        })
    }

    /// Description of the device.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// Makes the GPU's context the current one of this thread, for libraries that use it.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn bind(&self) -> Result<(), RuntimeError> {
        self.gpu.bind().map_err(launch_error)
    }

    /// The GPU with its primary context, for launches by `tilewright-launch`.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The address of a buffer on this GPU; 0 if it has no bytes.
    ///
    /// # Errors
    ///
    /// The buffer is another device's.
    pub fn address(&self, buffer: &Buffer) -> Result<u64, RuntimeError> {
        match &buffer.storage {
            Storage::Cuda(allocation) if buffer.device == self.id => Ok(allocation.pointer),
            _ => Err(RuntimeError::ForeignBuffer { device: self.info.name.clone() }),
        }
    }
}

impl Sealed for CudaDevice {}

impl Device for CudaDevice {
    fn name(&self) -> String {
        self.info.name.clone()
    }

    fn kind(&self) -> DeviceKind {
        DeviceKind::Cuda
    }

    fn arch(&self) -> Option<Arch> {
        self.info.arch
    }

    fn chip(&self) -> Chip {
        let driver = self.gpu.driver();
        let clock = driver.attribute(self.gpu.device(), DeviceAttribute::ClockRate).ok();
        Chip {
            multiprocessors: Some(self.gpu.multiprocessors()),
            clock_mhz: clock.map(|kilohertz| kilohertz / 1000),
            cuda: driver.cuda_version(),
        }
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, RuntimeError> {
        self.bind()?;
        let action = || failed(format!("allocating {bytes} bytes on {}", self.info.name));
        let mut allocation = Allocation { pointer: 0, gpu: self.gpu.clone() };
        if bytes > 0 {
            let stream = lock(&self.stream);
            // SAFETY: the context is current; the new memory is filled before anybody sees it.
            let fill = unsafe {
                let driver = self.gpu.driver();
                driver.memory_alloc(&raw mut allocation.pointer, bytes).map_err(action())?;
                driver.memory_set(allocation.pointer, 0, bytes, stream.raw)
            };
            fill.and_then(|()| stream.synchronize()).map_err(action())?;
        }
        Ok(Buffer { device: self.id, bytes, storage: Storage::Cuda(Arc::new(allocation)) })
    }

    fn upload(&self, buffer: &Buffer, data: &[u8]) -> Result<(), RuntimeError> {
        let pointer = self.address(buffer)?;
        if data.len() != buffer.bytes {
            return Err(RuntimeError::DataLength {
                given: data.len(),
                expected: buffer.bytes,
                unit: "bytes",
            });
        }
        if data.is_empty() {
            return Ok(());
        }
        self.bind()?;
        let stream = lock(&self.stream);
        // SAFETY: the allocation is as long as the data; both stay alive until the stream has been waited for.
        unsafe { stream.driver().copy_to_device(pointer, data.as_ptr().cast(), data.len(), stream.raw) }
            .and_then(|()| stream.synchronize())
            .map_err(failed(format!("copying {} bytes to {}", data.len(), self.info.name)))
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, RuntimeError> {
        let pointer = self.address(buffer)?;
        let mut data = vec![0u8; buffer.bytes];
        if data.is_empty() {
            return Ok(data);
        }
        self.bind()?;
        let stream = lock(&self.stream);
        // SAFETY: the allocation is as long as the data; both stay alive until the stream has been waited for.
        unsafe { stream.driver().copy_to_host(data.as_mut_ptr().cast(), pointer, data.len(), stream.raw) }
            .and_then(|()| stream.synchronize())
            .map_err(failed(format!("copying {} bytes from {}", buffer.bytes, self.info.name)))?;
        Ok(data)
    }

    fn launch(&self, kernel: &Kernel, sizes: &Sizes, args: &[Arg<'_>]) -> Result<LaunchReport, RuntimeError> {
        let prepared = self.prepare(kernel, sizes, args, LaunchOptions::default())?;
        let runs = self.measure(0, 1, |stream| prepared.enqueue(stream));
        let records = prepared.records.as_ref().zip(kernel.recording.as_ref());
        let records = records.map(|(buffer, recording)| recording.read(&buffer.bytes()));
        let runs = runs.map_err(|error| match kernel_failed(kernel)(error) {
            RuntimeError::Kernel { kernel: name, code, message } => {
                let broken = records.iter().flat_map(|records| assertions(kernel, records));
                let message = [message].into_iter().chain(broken).collect::<Vec<_>>().join("; ");
                RuntimeError::Kernel { kernel: name, code, message }
            }
            other => other,
        })?;
        let (loaded, module) = (&prepared.loaded, &prepared.loaded.module);
        Ok(LaunchReport::Cuda(CudaReport {
            grid: prepared.prepared.plan().grid(),
            registers_per_thread: module.registers(),
            local_bytes: module.local_bytes(),
            shared_bytes: kernel.shared_bytes() + module.static_shared_bytes(),
            advisories: loaded.advisories.clone(),
            milliseconds: runs.into_iter().sum(),
            broken: records.iter().flat_map(|records| assertions(kernel, records)).collect(),
            records,
        }))
    }

    fn time(
        &self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        warmup: usize,
        repeats: usize,
    ) -> Result<Option<Timing>, RuntimeError> {
        let prepared = self.prepare(kernel, sizes, args, LaunchOptions::default())?;
        let runs = self.measure(warmup, repeats.max(1), |stream| prepared.enqueue(stream));
        runs.map(Timing::of).map_err(kernel_failed(kernel))
    }
}
