//! NVIDIA GPUs, through the CUDA driver that is loaded when it is first asked for.
//!
//! This is the one module with `unsafe` code. Each opened device holds the GPU's primary context (the one that other
//! CUDA libraries in the process use too) and a stream of its own that does not wait for the default stream. Every
//! call waits for its own work on that stream before it returns, so no memory is given back while a kernel uses it.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::ffi::{CString, c_uint, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use tilewright_compiler::Kernel;
use tilewright_machine::Arch;

use crate::buffer::{Buffer, DeviceId, Storage};
use crate::device::{Chip, Device, DeviceChoice, DeviceInfo, DeviceKind, newest_arch, runs};
use crate::error::RuntimeError;
use crate::launch::{Arg, Launch, Passed, Sizes, check};
use crate::report::{CudaReport, LaunchReport, Timing};

/// Bytes of dynamic shared memory that a kernel gets without asking for more.
const SHARED_WITHOUT_OPT_IN: u32 = 48 * 1024;
/// Bytes of the assembler's log that are kept.
const LOG_BYTES: usize = 16 * 1024;

/// Every function of the driver that this crate calls, also inside `cudarc`. One that is missing would be a panic there.
const SYMBOLS: &[&str] = &[
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuDriverGetVersion",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventRecord",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuInit",
    "cuLaunchKernel",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadDataEx",
    "cuModuleUnload",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamSynchronize",
];

/// Loads and initialises the driver, once; afterwards calls of the functions in [`SYMBOLS`] do not panic.
fn driver() -> Result<(), RuntimeError> {
    static DRIVER: OnceLock<Result<(), String>> = OnceLock::new();
    let loaded = DRIVER.get_or_init(|| {
        // SAFETY: opens the CUDA driver library, if there is one; its initialisers may run at any time.
        if !unsafe { sys::is_culib_present() } {
            return Err("no CUDA driver library (libcuda) is installed".to_string());
        }
        // SAFETY: the library is present, so it loads; it is never unloaded.
        let library = unsafe { sys::culib() };
        for symbol in SYMBOLS {
            // SAFETY: the symbol is only looked up. What is returned is not used.
            if unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err() {
                return Err(format!("the installed CUDA driver is too old: it has no {symbol}"));
            }
        }
        result::init().map_err(|e| {
            let (code, message) = describe(e);
            format!("the CUDA driver does not start: {code} ({message})")
        })
    });
    loaded.clone().map_err(|reason| RuntimeError::NoCuda { reason })
}

/// The driver's name for an error, and its description.
fn describe(error: DriverError) -> (String, String) {
    let code =
        error.error_name().map_or_else(|_| format!("{:?}", error.0), |n| n.to_string_lossy().into_owned());
    let message = error.error_string().map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned());
    (code, message)
}

fn failed(action: impl Into<String>) -> impl FnOnce(DriverError) -> RuntimeError {
    let action = action.into();
    |error| {
        let (code, message) = describe(error);
        RuntimeError::Driver { action, code, message }
    }
}

fn kernel_failed(kernel: &Kernel) -> impl Fn(DriverError) -> RuntimeError + '_ {
    |error| {
        let (code, message) = describe(error);
        RuntimeError::Kernel { kernel: kernel.program().name.clone(), code, message }
    }
}

/// Every GPU of this machine; never an empty list. Creates no context.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>, RuntimeError> {
    (0..count()?).map(info).collect()
}

/// The number of GPUs; not 0.
fn count() -> Result<u32, RuntimeError> {
    driver()?;
    match result::device::get_count().map_err(failed("counting the CUDA devices"))? {
        0 => Err(RuntimeError::NoCuda { reason: "the CUDA driver finds no device".to_string() }),
        count => Ok(count.unsigned_abs()),
    }
}

fn info(ordinal: u32) -> Result<DeviceInfo, RuntimeError> {
    let ask = || -> Result<DeviceInfo, DriverError> {
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        let device = result::device::get(ordinal as i32)?;
        // SAFETY: `device` was just returned by the driver.
        let (major, minor, memory) = unsafe {
            (
                result::device::get_attribute(device, MAJOR)?,
                result::device::get_attribute(device, MINOR)?,
                result::device::total_mem(device)?,
            )
        };
        let capability = (major.unsigned_abs(), minor.unsigned_abs());
        Ok(DeviceInfo {
            choice: DeviceChoice::Cuda(ordinal),
            name: result::device::get_name(device)?,
            compute_capability: Some(capability),
            memory_bytes: Some(memory as u64),
            arch: newest_arch(capability),
        })
    };
    ask().map_err(failed(format!("asking for CUDA device {ordinal}")))
}

/// Memory of a GPU.
pub(crate) struct Allocation {
    /// Null if there are no bytes.
    pointer: sys::CUdeviceptr,
    context: Arc<CudaContext>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.pointer != 0 && self.context.bind_to_thread().is_ok() {
            // SAFETY: `cuMemAlloc` returned the pointer in this context, nobody else frees it, and every call that uses it
            // has waited for its work. An error has nobody to go to.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}

/// A stream of the driver.
struct Stream {
    raw: sys::CUstream,
    context: Arc<CudaContext>,
}

// SAFETY: the driver takes streams from any thread, at the same time too.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(Stream { raw, context: context.clone() })
    }

    fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.raw) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the stream was created by `new` and is destroyed once.
            let _ = unsafe { result::stream::destroy(self.raw) };
        }
    }
}

/// An event that records a time. The context is current where it is made, used and dropped: inside one call.
struct Event(sys::CUevent);

impl Event {
    fn new() -> Result<Self, DriverError> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Event)
    }

    fn record(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: both live, and belong to the same context.
        unsafe { result::event::record(self.0, stream.raw) }
    }

    /// Milliseconds from this event to a later one; both have happened.
    fn until(&self, later: &Event) -> Result<f64, DriverError> {
        // SAFETY: both live, and were recorded on the same stream.
        unsafe { result::event::elapsed(self.0, later.0) }.map(f64::from)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event was created by `new` and is destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

/// A kernel's code on a GPU.
struct Loaded {
    module: sys::CUmodule,
    function: sys::CUfunction,
    registers_per_thread: u32,
    local_bytes: u32,
    static_shared_bytes: u32,
    context: Arc<CudaContext>,
}

// SAFETY: the driver takes modules and functions from any thread, at the same time too.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl Drop for Loaded {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the module was loaded once, is unloaded once, and no launch of its function is under way.
            let _ = unsafe { result::module::unload(self.module) };
        }
    }
}

/// A kernel's code, and what its launches may ask for.
struct Entry {
    loaded: Arc<Loaded>,
    /// Bytes of dynamic shared memory that a launch may ask for. It only grows: kernels that differ in nothing else have the
    /// same PTX, and a launch that is being prepared must not lose what it was given.
    dynamic_shared: u32,
}

/// An NVIDIA GPU.
pub struct CudaDevice {
    id: DeviceId,
    info: DeviceInfo,
    capability: (u32, u32),
    /// Bytes of shared memory that a block may have.
    shared_limit: u32,
    /// Code by PTX text. Declared before the stream and the context, which it needs to unload.
    modules: Mutex<HashMap<String, Entry>>,
    /// Held while work is on the stream, so that times are of one kernel only.
    stream: Mutex<Stream>,
    context: Arc<CudaContext>,
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
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN as SHARED;
        let count = count()?;
        if ordinal >= count {
            return Err(RuntimeError::NoSuchDevice { ordinal, count });
        }
        let info = info(ordinal)?;
        let make = || -> Result<(Arc<CudaContext>, Stream, u32), DriverError> {
            let context = CudaContext::new(ordinal as usize)?;
            let stream = Stream::new(&context)?;
            let shared = context.attribute(SHARED)?;
            Ok((context, stream, shared.unsigned_abs()))
        };
        let (context, stream, shared_limit) =
            make().map_err(failed(format!("opening CUDA device {ordinal}")))?;
        Ok(CudaDevice {
            id: DeviceId::new(),
            capability: info.compute_capability.unwrap_or((0, 0)),
            info,
            shared_limit,
            modules: Mutex::new(HashMap::new()),
            stream: Mutex::new(stream),
            context,
        })
    }

    /// What the device is.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn bind(&self) -> Result<(), RuntimeError> {
        self.context.bind_to_thread().map_err(failed("making the CUDA context current"))
    }

    fn pointer(&self, buffer: &Buffer) -> Result<sys::CUdeviceptr, RuntimeError> {
        match &buffer.storage {
            Storage::Cuda(allocation) if buffer.device == self.id => Ok(allocation.pointer),
            _ => Err(RuntimeError::ForeignBuffer { device: self.info.name.clone() }),
        }
    }

    /// The kernel's code, loaded when it is first asked for, and allowed the kernel's shared memory. The context is current.
    fn load(&self, kernel: &Kernel) -> Result<Arc<Loaded>, RuntimeError> {
        if !runs(self.capability, kernel.function.arch) {
            return Err(RuntimeError::UnsupportedArch {
                kernel: kernel.program().name.clone(),
                arch: kernel.function.arch,
                device: self.info.name.clone(),
                major: self.capability.0,
                minor: self.capability.1,
            });
        }
        let mut modules = lock(&self.modules);
        let entry = match modules.get_mut(&kernel.ptx) {
            Some(entry) => entry,
            None => {
                let loaded = Arc::new(self.assemble(kernel)?);
                let entry = Entry { loaded, dynamic_shared: SHARED_WITHOUT_OPT_IN };
                modules.entry(kernel.ptx.clone()).or_insert(entry)
            }
        };
        let dynamic = kernel.shared_bytes();
        let needed = dynamic.saturating_add(entry.loaded.static_shared_bytes);
        if needed > self.shared_limit {
            return Err(RuntimeError::SharedMemory {
                kernel: kernel.program().name.clone(),
                needed,
                available: self.shared_limit,
                device: self.info.name.clone(),
            });
        }
        if dynamic > entry.dynamic_shared {
            use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC;
            // SAFETY: the function lives as long as `loaded`.
            unsafe {
                result::function::set_function_attribute(entry.loaded.function, DYNAMIC, dynamic as i32)
            }
            .map_err(failed(format!("asking for shared memory for kernel `{}`", kernel.program().name)))?;
            entry.dynamic_shared = dynamic;
        }
        Ok(entry.loaded.clone())
    }

    /// Gives the PTX to the driver's assembler.
    fn assemble(&self, kernel: &Kernel) -> Result<Loaded, RuntimeError> {
        use sys::CUfunction_attribute as Attribute;
        use sys::CUjit_option as Jit;
        let kernel_name = &kernel.program().name;
        let rejected =
            |code: String, log: String| RuntimeError::Load { kernel: kernel_name.clone(), code, log };
        let no_nul = |_| rejected("invalid text".to_string(), "the text has a NUL character".to_string());
        let ptx = CString::new(kernel.ptx.as_str()).map_err(no_nul)?;
        let entry = CString::new(kernel.function.name.as_str()).map_err(no_nul)?;

        let mut log = vec![0u8; LOG_BYTES];
        let mut options = [Jit::CU_JIT_ERROR_LOG_BUFFER, Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The driver takes the size in the place of a pointer.
        let mut values: [*mut c_void; 2] = [log.as_mut_ptr().cast(), ptr::without_provenance_mut(LOG_BYTES)];
        let mut module: sys::CUmodule = ptr::null_mut();
        // SAFETY: the context is current; the text ends with NUL; options and values are two each, of the types that
        // the options have; the log lives until after the call and is as long as stated.
        let status = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut module,
                ptx.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        status.result().map_err(|error| {
            let (code, message) = describe(error);
            let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
            let text = String::from_utf8_lossy(&log[..end]).trim().to_string();
            rejected(code, if text.is_empty() { message } else { text })
        })?;
        let mut loaded = Loaded {
            module,
            function: ptr::null_mut(),
            registers_per_thread: 0,
            local_bytes: 0,
            static_shared_bytes: 0,
            context: self.context.clone(),
        };
        let mut ask = || -> Result<(), DriverError> {
            // SAFETY: the module is loaded, and the function lives as long as it.
            unsafe {
                loaded.function = result::module::get_function(loaded.module, entry.clone())?;
                let get = |attribute| {
                    result::function::get_function_attribute(loaded.function, attribute)
                        .map(i32::unsigned_abs)
                };
                loaded.registers_per_thread = get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
                loaded.local_bytes = get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
                loaded.static_shared_bytes = get(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
            }
            Ok(())
        };
        ask().map_err(failed(format!("finding kernel `{kernel_name}` in its module")))?;
        Ok(loaded)
    }

    /// The launch's parameters, each in eight bytes.
    fn parameters(&self, launch: &Launch<'_>) -> Result<Vec<u64>, RuntimeError> {
        let bits = |passed: &Passed<'_>| match passed {
            Passed::Buffer(buffer) => self.pointer(buffer),
            Passed::Scalar(value) => Ok(u64::from(value.to_bits())),
            Passed::Size(value) => Ok(u64::from(value.cast_unsigned())),
        };
        launch.params.iter().map(bits).collect()
    }

    /// Checks a launch and makes everything for it: code, grid and parameters. The context is current afterwards.
    fn prepare(&self, kernel: &Kernel, sizes: &Sizes, args: &[Arg<'_>]) -> Result<Prepared, RuntimeError> {
        let launch = check(kernel, sizes, args, self.id, &self.info.name)?;
        self.bind()?;
        let loaded = self.load(kernel)?;
        Ok(Prepared {
            loaded,
            grid: launch.grid,
            threads: kernel.threads(),
            shared_bytes: kernel.shared_bytes(),
            parameters: self.parameters(&launch)?,
        })
    }
}

/// A launch that can be put on a stream, any number of times.
struct Prepared {
    loaded: Arc<Loaded>,
    grid: [u32; 3],
    threads: u32,
    shared_bytes: u32,
    parameters: Vec<u64>,
}

impl Prepared {
    fn enqueue(&mut self, stream: &Stream) -> Result<(), DriverError> {
        // Little-endian: the low bytes of each word are the parameter.
        let mut pointers: Vec<*mut c_void> =
            self.parameters.iter_mut().map(|word| ptr::from_mut(word).cast()).collect();
        let [x, y, z] = self.grid;
        // SAFETY: the function has one parameter of at most eight bytes for each pointer, as `Kernel` promises; the driver
        // copies them before it returns. Buffers are as large as the kernel's shapes (`check`), and stay alive until
        // the caller, who borrows them, has waited for the stream.
        unsafe {
            sys::cuLaunchKernel(
                self.loaded.function,
                x,
                y,
                z,
                self.threads,
                1,
                1,
                self.shared_bytes,
                stream.raw,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
        .result()
    }
}

/// Waits for what is on the stream also when something failed: it may use buffers that the caller will give back.
fn settle<T>(result: Result<T, DriverError>, stream: &Stream) -> Result<T, DriverError> {
    result.inspect_err(|_| {
        // The first error is the one to report.
        let _ = stream.synchronize();
    })
}

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
        use sys::CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_CLOCK_RATE as CLOCK, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as COUNT,
        };
        let ask = |attribute| self.context.attribute(attribute).ok().map(i32::unsigned_abs);
        let mut version = 0;
        // SAFETY: the driver writes the number to where it is told.
        let known = unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().is_ok();
        Chip {
            multiprocessors: ask(COUNT),
            clock_mhz: ask(CLOCK).map(|kilohertz| kilohertz / 1000),
            cuda: known.then(|| format!("{}.{}", version / 1000, version % 1000 / 10)),
        }
    }

    fn alloc(&self, bytes: usize) -> Result<Buffer, RuntimeError> {
        self.bind()?;
        let action = || failed(format!("allocating {bytes} bytes on {}", self.info.name));
        let mut allocation = Allocation { pointer: 0, context: self.context.clone() };
        if bytes > 0 {
            let stream = lock(&self.stream);
            // SAFETY: the context is current; the new memory is filled before anybody sees it.
            let fill = unsafe {
                allocation.pointer = result::malloc_sync(bytes).map_err(action())?;
                result::memset_d8_async(allocation.pointer, 0, bytes, stream.raw)
            };
            fill.and_then(|()| stream.synchronize()).map_err(action())?;
        }
        Ok(Buffer { device: self.id, bytes, storage: Storage::Cuda(Arc::new(allocation)) })
    }

    fn upload(&self, buffer: &Buffer, data: &[u8]) -> Result<(), RuntimeError> {
        let pointer = self.pointer(buffer)?;
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
        unsafe { result::memcpy_htod_async(pointer, data, stream.raw) }
            .and_then(|()| stream.synchronize())
            .map_err(failed(format!("copying {} bytes to {}", data.len(), self.info.name)))
    }

    fn download(&self, buffer: &Buffer) -> Result<Vec<u8>, RuntimeError> {
        let pointer = self.pointer(buffer)?;
        let mut data = vec![0u8; buffer.bytes];
        if data.is_empty() {
            return Ok(data);
        }
        self.bind()?;
        let stream = lock(&self.stream);
        // SAFETY: the allocation is as long as the data; both stay alive until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(&mut data, pointer, stream.raw) }
            .and_then(|()| stream.synchronize())
            .map_err(failed(format!("copying {} bytes from {}", buffer.bytes, self.info.name)))?;
        Ok(data)
    }

    fn launch(&self, kernel: &Kernel, sizes: &Sizes, args: &[Arg<'_>]) -> Result<LaunchReport, RuntimeError> {
        let mut prepared = self.prepare(kernel, sizes, args)?;
        let stream = lock(&self.stream);
        let mut run = || -> Result<f64, DriverError> {
            let (start, end) = (Event::new()?, Event::new()?);
            start.record(&stream)?;
            prepared.enqueue(&stream)?;
            end.record(&stream)?;
            stream.synchronize()?;
            start.until(&end)
        };
        let milliseconds = settle(run(), &stream).map_err(kernel_failed(kernel))?;
        Ok(LaunchReport::Cuda(CudaReport {
            grid: prepared.grid,
            registers_per_thread: prepared.loaded.registers_per_thread,
            local_bytes: prepared.loaded.local_bytes,
            shared_bytes: prepared.shared_bytes + prepared.loaded.static_shared_bytes,
            milliseconds,
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
        let mut prepared = self.prepare(kernel, sizes, args)?;
        let stream = lock(&self.stream);
        let mut run = || -> Result<Vec<f64>, DriverError> {
            for _ in 0..warmup {
                prepared.enqueue(&stream)?;
            }
            // Nothing waits for the host between the runs.
            let mut events = Vec::with_capacity(repeats.max(1));
            for _ in 0..repeats.max(1) {
                let (start, end) = (Event::new()?, Event::new()?);
                start.record(&stream)?;
                prepared.enqueue(&stream)?;
                end.record(&stream)?;
                events.push((start, end));
            }
            stream.synchronize()?;
            events.iter().map(|(start, end)| start.until(end)).collect()
        };
        let runs = settle(run(), &stream).map_err(kernel_failed(kernel))?;
        Ok(Timing::of(runs))
    }
}
