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
use tilewright_machine::{Arch, BoxShape, SwizzleMode, SyncOp, tensor_map_type};
use tilewright_simt::Op;

use crate::buffer::{Buffer, DeviceId, Storage};
use crate::device::{Chip, Device, DeviceChoice, DeviceInfo, DeviceKind, newest_arch, runs};
use crate::error::RuntimeError;
use crate::launch::{Arg, LaunchOptions, Mapped, Passed, Sizes, check};
use crate::report::{CudaReport, LaunchReport, Timing};

mod after;
mod ahead;

/// Bytes of dynamic shared memory that a kernel gets without asking for more.
const SHARED_WITHOUT_OPT_IN: u32 = 48 * 1024;
/// Bytes of the assembler's log that are kept.
const LOG_BYTES: usize = 16 * 1024;
/// Blocks of the largest cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;
/// The compute capability with which clusters and dependent launches came.
const HOPPER: (u32, u32) = (9, 0);
/// Tensor maps that a device keeps.
const MAPS_KEPT: usize = 1024;

// What the driver reads and writes, by its header.
const _: () = assert!(size_of::<sys::CUtensorMap>() == 128 && align_of::<sys::CUtensorMap>() >= 64);
const _: () = assert!(size_of::<sys::CUlaunchAttribute>() == 72 && size_of::<sys::CUlaunchConfig>() == 56);

/// Every function of the driver that this crate calls, also inside `cudarc`, but for [`HOPPER_SYMBOLS`]. One that is missing would be
/// a panic there.
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
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
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
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamDestroy_v2",
    "cuStreamEndCapture",
    "cuStreamSynchronize",
];

/// What kernels with clusters, tensor maps or waits for other grids need besides.
const HOPPER_SYMBOLS: &[&str] =
    &["cuLaunchKernelEx", "cuOccupancyMaxActiveClusters", "cuTensorMapEncodeTiled"];

/// Whether the driver, which is loaded, has these functions; otherwise why not.
fn has(symbols: &[&str]) -> Result<(), String> {
    // SAFETY: the library is present, as the caller says, so it loads; it is never unloaded.
    let library = unsafe { sys::culib() };
    // SAFETY: a symbol is only looked up. What is returned is not used.
    let absent = |symbol: &&&str| unsafe { library.get::<*const ()>(symbol.as_bytes()) }.is_err();
    match symbols.iter().find(absent) {
        Some(symbol) => Err(format!("the installed CUDA driver is too old: it has no {symbol}")),
        None => Ok(()),
    }
}

/// Loads and initialises the driver, once; afterwards calls of the functions in [`SYMBOLS`] do not panic.
fn driver() -> Result<(), RuntimeError> {
    static DRIVER: OnceLock<Result<(), String>> = OnceLock::new();
    let loaded = DRIVER.get_or_init(|| {
        // SAFETY: opens the CUDA driver library, if there is one; its initialisers may run at any time.
        if !unsafe { sys::is_culib_present() } {
            return Err("no CUDA driver library (libcuda) is installed".to_string());
        }
        has(SYMBOLS)?;
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
    /// What the assembler warned of.
    advisories: Vec<String>,
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
    /// Tensor maps that were encoded.
    maps: Mutex<HashMap<MapKey, sys::CUtensorMap>>,
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
            maps: Mutex::new(HashMap::new()),
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
        if needs_hopper(kernel) {
            has(HOPPER_SYMBOLS).map_err(|reason| RuntimeError::NoCuda { reason })?;
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

        let (mut errors, mut infos) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
        let mut options = [
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_INFO_LOG_BUFFER,
            Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
        ];
        // The driver takes sizes in the place of pointers.
        let size = ptr::without_provenance_mut(LOG_BYTES);
        let mut values: [*mut c_void; 4] =
            [errors.as_mut_ptr().cast(), size, infos.as_mut_ptr().cast(), size];
        let mut module: sys::CUmodule = ptr::null_mut();
        // SAFETY: the context is current; the text ends with NUL; options and values are four each, of the types that
        // the options have; the logs live until after the call and are as long as stated.
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
            let text = log_text(&errors);
            rejected(code, if text.is_empty() { message } else { text })
        })?;
        let mut loaded = Loaded {
            module,
            function: ptr::null_mut(),
            registers_per_thread: 0,
            local_bytes: 0,
            static_shared_bytes: 0,
            advisories: advisories(&log_text(&infos)),
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
        if kernel.function.cluster > PORTABLE_CLUSTER {
            use Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED as ANY_CLUSTER;
            // SAFETY: the function lives as long as `loaded`.
            unsafe { result::function::set_function_attribute(loaded.function, ANY_CLUSTER, 1) }
                .map_err(failed(format!("asking for large clusters for kernel `{kernel_name}`")))?;
        }
        Ok(loaded)
    }

    /// The tensor map of this tensor, encoded when it is first asked for. The context is current.
    fn tensor_map(&self, kernel: &Kernel, mapped: &Mapped<'_>) -> Result<sys::CUtensorMap, RuntimeError> {
        let map = kernel.function.tensor_maps.get(mapped.map as usize);
        let map = map.ok_or_else(|| RuntimeError::Inconsistent { kernel: kernel.program().name.clone() })?;
        let key = MapKey {
            shape: map.shape.clone(),
            pointer: self.pointer(mapped.buffer)?,
            extents: mapped.extents.clone(),
            strides: mapped.strides.clone(),
        };
        let mut maps = lock(&self.maps);
        if let Some(known) = maps.get(&key) {
            return Ok(*known);
        }
        let encoded = key.encode().map_err(failed(format!("encoding the tensor map of `{}`", map.name)))?;
        if maps.len() >= MAPS_KEPT {
            maps.clear();
        }
        maps.insert(key, encoded);
        Ok(encoded)
    }

    /// Checks a launch and makes everything for it: code, grid and parameters. The context is current afterwards.
    fn prepare(
        &self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        options: LaunchOptions,
    ) -> Result<Prepared, RuntimeError> {
        let launch = check(kernel, sizes, args, self.id, &self.info.name)?;
        self.bind()?;
        let loaded = self.load(kernel)?;
        let mut buffers = Vec::new();
        let mut parameters = Vec::with_capacity(launch.params.len());
        for passed in &launch.params {
            parameters.push(match passed {
                Passed::Buffer(buffer) => {
                    buffers.push((*buffer).clone());
                    Parameter::Word(self.pointer(buffer)?)
                }
                Passed::Scalar(value) => Parameter::Word(u64::from(value.to_bits())),
                Passed::Size(value) => Parameter::Word(u64::from(value.cast_unsigned())),
                Passed::TensorMap(mapped) => Parameter::Map(self.tensor_map(kernel, mapped)?),
            });
        }
        let dependent = options.dependent && self.capability >= HOPPER && waits_for_others(kernel);
        Ok(Prepared {
            kernel: kernel.program().name.clone(),
            loaded,
            grid: launch.grid,
            threads: kernel.threads(),
            cluster: kernel.function.cluster,
            shared_bytes: kernel.shared_bytes(),
            dependent,
            parameters,
            _buffers: buffers,
        })
    }

    /// Puts some work on the stream, `warmup` times and then `repeats` times between two events each, and waits for it: the
    /// milliseconds of each of these. The context is current.
    fn measure(
        &self,
        warmup: usize,
        repeats: usize,
        work: impl Fn(&Stream) -> Result<(), DriverError>,
    ) -> Result<Vec<f64>, DriverError> {
        let stream = lock(&self.stream);
        let run = || -> Result<Vec<f64>, DriverError> {
            let pair = |_| Ok((Event::new()?, Event::new()?));
            let events = (0..repeats).map(pair).collect::<Result<Vec<_>, DriverError>>()?;
            for _ in 0..warmup {
                work(&stream)?;
            }
            // Nothing waits for the host between the runs.
            for (start, end) in &events {
                start.record(&stream)?;
                work(&stream)?;
                end.record(&stream)?;
            }
            stream.synchronize()?;
            events.iter().map(|(start, end)| start.until(end)).collect()
        };
        settle(run(), &stream)
    }

    /// How many of the kernel's blocks the GPU holds at once, in whole clusters: the grid of a kernel whose blocks take one tile after
    /// another.
    pub fn resident_blocks(&self, kernel: &Kernel) -> Result<u32, RuntimeError> {
        use sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as COUNT;
        self.bind()?;
        let loaded = self.load(kernel)?;
        let cluster = kernel.function.cluster;
        let ask = || -> Result<u32, DriverError> {
            if cluster > 1 {
                let mut attributes = [cluster_attribute(cluster)];
                let config = sys::CUlaunchConfig {
                    gridDimX: cluster,
                    gridDimY: 1,
                    gridDimZ: 1,
                    blockDimX: kernel.threads(),
                    blockDimY: 1,
                    blockDimZ: 1,
                    sharedMemBytes: kernel.shared_bytes(),
                    hStream: ptr::null_mut(),
                    attrs: attributes.as_mut_ptr(),
                    numAttrs: attributes.len() as c_uint,
                };
                let mut clusters = 0;
                // SAFETY: the function is loaded; the configuration and its attributes live until after the call, and the driver
                // has the function (`load`).
                unsafe {
                    sys::cuOccupancyMaxActiveClusters(&raw mut clusters, loaded.function, &raw const config)
                }
                .result()?;
                return Ok(clusters.unsigned_abs() * cluster);
            }
            // SAFETY: the function is loaded.
            let each = unsafe {
                result::occupancy::max_active_block_per_multiprocessor(
                    loaded.function,
                    kernel.threads().cast_signed(),
                    kernel.shared_bytes() as usize,
                )
            }?;
            Ok(each.unsigned_abs() * self.context.attribute(COUNT)?.unsigned_abs())
        };
        ask().map_err(failed(format!(
            "asking how many blocks of kernel `{}` run at once",
            kernel.program().name
        )))
    }

    /// An empty sequence of launches.
    pub fn sequence(&self) -> CudaSequence<'_> {
        CudaSequence { device: self, launches: Vec::new() }
    }
}

/// Whether launches of the kernel need [`HOPPER_SYMBOLS`].
fn needs_hopper(kernel: &Kernel) -> bool {
    let function = &kernel.function;
    function.cluster > 1 || !function.tensor_maps.is_empty() || waits_for_others(kernel)
}

/// Whether the kernel waits for grids that it depends on.
fn waits_for_others(kernel: &Kernel) -> bool {
    let mut waits = false;
    kernel.function.visit(&mut |inst| waits |= inst.op == Op::Sync(SyncOp::DependencyWait));
    waits
}

/// What the assembler wrote before the first NUL.
fn log_text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).trim().to_string()
}

/// Of the assembler's information: its warnings, and advisories on products of warpgroups and register budgets, whose numbers begin
/// with C75.
fn advisories(log: &str) -> Vec<String> {
    let line = |line: &str| {
        if let Some(start) = line.find("(C75") {
            return Some(line[start..].trim().to_string());
        }
        line.contains("warning").then(|| line.trim().to_string())
    };
    let mut found: Vec<String> = log.lines().filter_map(line).collect();
    found.dedup();
    found
}

/// What a tensor map is encoded from.
#[derive(Clone, PartialEq, Eq, Hash)]
struct MapKey {
    shape: BoxShape,
    pointer: sys::CUdeviceptr,
    /// In elements, dimension 0 first.
    extents: Vec<u64>,
    /// In bytes, from dimension 1 on.
    strides: Vec<u64>,
}

/// The driver's name for a swizzle.
fn map_swizzle(mode: SwizzleMode) -> sys::CUtensorMapSwizzle {
    use sys::CUtensorMapSwizzle as Swizzle;
    match mode {
        SwizzleMode::None => Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        SwizzleMode::B32 => Swizzle::CU_TENSOR_MAP_SWIZZLE_32B,
        SwizzleMode::B64 => Swizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        SwizzleMode::B128 => Swizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    }
}

/// The driver's name for an element type, from its number.
fn map_type(code: u32) -> Option<sys::CUtensorMapDataType> {
    use sys::CUtensorMapDataType as Type;
    let all = [
        Type::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        Type::CU_TENSOR_MAP_DATA_TYPE_INT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        Type::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        Type::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    ];
    all.into_iter().find(|ty| *ty as u32 == code)
}

impl MapKey {
    /// Asks the driver. The context is current, and the driver has the function: kernels with tensor maps are not loaded otherwise.
    fn encode(&self) -> Result<sys::CUtensorMap, DriverError> {
        let invalid = || DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE);
        let ty = tensor_map_type(self.shape.dtype).and_then(map_type).ok_or_else(invalid)?;
        let rank = self.shape.extents.len();
        if !(1..=5).contains(&rank) || self.extents.len() != rank || self.strides.len() + 1 != rank {
            return Err(invalid());
        }
        let steps = [1u32; 5];
        let mut map = sys::CUtensorMap { opaque: [0; 16] };
        // SAFETY: the map is aligned as its type says; extents, box and steps have at least as many elements as the rank, strides one
        // fewer; the driver reads them and does not touch the tensor.
        unsafe {
            sys::cuTensorMapEncodeTiled(
                &raw mut map,
                ty,
                rank as u32,
                ptr::with_exposed_provenance_mut(self.pointer as usize),
                self.extents.as_ptr(),
                self.strides.as_ptr(),
                self.shape.extents.as_ptr(),
                steps.as_ptr(),
                sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
                map_swizzle(self.shape.swizzle),
                sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            )
        }
        .result()?;
        Ok(map)
    }
}

/// An attribute of a launch; `set` writes its member of the union, whose other bytes are zero.
fn attribute(
    id: sys::CUlaunchAttributeID,
    set: impl FnOnce(&mut sys::CUlaunchAttributeValue),
) -> sys::CUlaunchAttribute {
    let mut value = sys::CUlaunchAttributeValue { pad: [0; 64] };
    set(&mut value);
    sys::CUlaunchAttribute { id, pad: [0; 4], value }
}

/// Clusters of this many blocks, along x.
fn cluster_attribute(blocks: u32) -> sys::CUlaunchAttribute {
    attribute(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, |value| {
        value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x: blocks, y: 1, z: 1 };
    })
}

/// The launch may begin when the one before it allows it.
fn dependent_attribute() -> sys::CUlaunchAttribute {
    attribute(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, |value| {
        value.programmaticStreamSerializationAllowed = 1;
    })
}

/// A parameter of a function.
enum Parameter {
    /// At most eight bytes, the low ones of the word.
    Word(u64),
    /// A tensor map.
    Map(sys::CUtensorMap),
}

/// A launch that can be put on a stream, any number of times, also one that is being captured: it neither allocates nor waits.
struct Prepared {
    /// The kernel's name.
    kernel: String,
    loaded: Arc<Loaded>,
    grid: [u32; 3],
    threads: u32,
    cluster: u32,
    shared_bytes: u32,
    dependent: bool,
    parameters: Vec<Parameter>,
    /// What the parameters point to.
    _buffers: Vec<Buffer>,
}

impl Prepared {
    fn enqueue(&self, stream: &Stream) -> Result<(), DriverError> {
        let pointer = |parameter: &Parameter| -> *mut c_void {
            match parameter {
                // Little-endian: the low bytes of the word are the parameter.
                Parameter::Word(word) => ptr::from_ref(word).cast_mut().cast(),
                Parameter::Map(map) => ptr::from_ref(map).cast_mut().cast(),
            }
        };
        let mut pointers: Vec<*mut c_void> = self.parameters.iter().map(pointer).collect();
        let [x, y, z] = self.grid;
        let mut attributes = Vec::with_capacity(2);
        if self.cluster > 1 {
            attributes.push(cluster_attribute(self.cluster));
        }
        if self.dependent {
            attributes.push(dependent_attribute());
        }
        if attributes.is_empty() {
            // SAFETY: the function has one parameter for each pointer, of at most eight bytes or a tensor map, as `Kernel` promises and
            // `check` compares; the driver reads them before it returns. Buffers are as large as the kernel's shapes (`check`), and
            // stay alive as long as `self`, which outlives the work on the stream.
            return unsafe {
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
            .result();
        }
        let config = sys::CUlaunchConfig {
            gridDimX: x,
            gridDimY: y,
            gridDimZ: z,
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream.raw,
            attrs: attributes.as_mut_ptr(),
            numAttrs: attributes.len() as c_uint,
        };
        // SAFETY: as above; the configuration and its attributes live until after the call, and the driver has the function (`load`).
        unsafe {
            sys::cuLaunchKernelEx(
                &raw const config,
                self.loaded.function,
                pointers.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
        .result()
    }
}

fn enqueue_all(launches: &[Prepared], stream: &Stream) -> Result<(), DriverError> {
    launches.iter().try_for_each(|launch| launch.enqueue(stream))
}

fn sequence_failed(launches: &[Prepared]) -> impl Fn(DriverError) -> RuntimeError + '_ {
    |error| {
        let (code, message) = describe(error);
        let names: Vec<&str> = launches.iter().map(|launch| launch.kernel.as_str()).collect();
        RuntimeError::Kernel { kernel: names.join(", "), code, message }
    }
}

/// Launches that run one after another on a GPU, without waiting for the host between them. Their code is loaded, their
/// arguments are checked, and their buffers are kept.
pub struct CudaSequence<'a> {
    device: &'a CudaDevice,
    launches: Vec<Prepared>,
}

impl<'a> CudaSequence<'a> {
    /// Adds a launch, which comes after those before.
    pub fn push(
        &mut self,
        kernel: &Kernel,
        sizes: &Sizes,
        args: &[Arg<'_>],
        options: LaunchOptions,
    ) -> Result<(), RuntimeError> {
        self.launches.push(self.device.prepare(kernel, sizes, args, options)?);
        Ok(())
    }

    /// Runs all once; returns how many milliseconds they took.
    pub fn run(&self) -> Result<f64, RuntimeError> {
        self.device.bind()?;
        let runs = self.device.measure(0, 1, |stream| enqueue_all(&self.launches, stream));
        runs.map(|ms| ms.into_iter().sum()).map_err(sequence_failed(&self.launches))
    }

    /// Captures all in a graph, whose launch costs the host little however many they are.
    pub fn capture(self) -> Result<CudaGraph<'a>, RuntimeError> {
        use sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL as MODE;
        self.device.bind()?;
        let stream = lock(&self.device.stream);
        let capture = || -> Result<sys::CUgraphExec, DriverError> {
            // SAFETY: the stream lives, and its lock keeps everybody else from it until the capture has ended.
            unsafe { result::stream::begin_capture(stream.raw, MODE) }?;
            let queued = enqueue_all(&self.launches, &stream);
            // SAFETY: the stream is being captured; this ends it, also after an error.
            let graph = unsafe { result::stream::end_capture(stream.raw) };
            queued?;
            let graph = graph?;
            let mut exec: sys::CUgraphExec = ptr::null_mut();
            // SAFETY: the graph was just captured, and is destroyed once, when what is made of it no longer needs it.
            unsafe {
                let made = sys::cuGraphInstantiateWithFlags(&raw mut exec, graph, 0).result();
                let destroyed = result::graph::destroy(graph);
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
    /// What the graph runs: their code and their buffers.
    launches: Vec<Prepared>,
    exec: sys::CUgraphExec,
}

impl CudaGraph<'_> {
    fn enqueue(&self, stream: &Stream) -> Result<(), DriverError> {
        // SAFETY: the graph lives as long as `self`; code and buffers too.
        unsafe { result::graph::launch(self.exec, stream.raw) }
    }

    /// Runs it once; returns how many milliseconds it took.
    pub fn run(&self) -> Result<f64, RuntimeError> {
        self.device.bind()?;
        let runs = self.device.measure(0, 1, |stream| self.enqueue(stream));
        runs.map(|ms| ms.into_iter().sum()).map_err(sequence_failed(&self.launches))
    }

    /// Runs it `warmup` times, then `repeats` times (at least once), and says how long each of these took.
    pub fn time(&self, warmup: usize, repeats: usize) -> Result<Option<Timing>, RuntimeError> {
        self.device.bind()?;
        let runs = self.device.measure(warmup, repeats.max(1), |stream| self.enqueue(stream));
        runs.map(Timing::of).map_err(sequence_failed(&self.launches))
    }
}

impl Drop for CudaGraph<'_> {
    fn drop(&mut self) {
        if self.device.context.bind_to_thread().is_ok() {
            // SAFETY: the graph was made by `capture` and is destroyed once; its runs have been waited for.
            let _ = unsafe { result::graph::exec_destroy(self.exec) };
        }
    }
}

impl fmt::Debug for CudaGraph<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.launches.iter().map(|launch| &launch.kernel)).finish()
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

    fn cuda(&self) -> Option<&CudaDevice> {
        Some(self)
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
        let prepared = self.prepare(kernel, sizes, args, LaunchOptions::default())?;
        let runs = self.measure(0, 1, |stream| prepared.enqueue(stream)).map_err(kernel_failed(kernel))?;
        let loaded = &prepared.loaded;
        Ok(LaunchReport::Cuda(CudaReport {
            grid: prepared.grid,
            registers_per_thread: loaded.registers_per_thread,
            local_bytes: loaded.local_bytes,
            shared_bytes: prepared.shared_bytes + loaded.static_shared_bytes,
            advisories: loaded.advisories.clone(),
            milliseconds: runs.into_iter().sum(),
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

#[cfg(test)]
mod tests {
    use tilewright_machine::DType;

    use super::*;

    #[test]
    fn advisories_are_picked_from_the_log() {
        let log = "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x\n\
                   ptxas info    : 0 bytes gmem\n\
                   ptxas warning : Value of threads per SM is out of range\n";
        let found = advisories(log);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("(C7511) Potential Performance Loss: wgmma.mma_async"), "{found:?}");
        assert!(found[1].starts_with("ptxas warning"), "{found:?}");
        assert_eq!(advisories("ptxas info    : Used 40 registers\n"), [""; 0]);
        assert_eq!(log_text(b" one\ntwo\n\0rest"), "one\ntwo");
    }

    #[test]
    fn names_of_the_driver_have_the_numbers_of_the_machine() {
        for mode in SwizzleMode::ALL {
            assert_eq!(map_swizzle(mode) as u32, mode.tensor_map_code());
        }
        for dtype in DType::ALL {
            if let Some(code) = tensor_map_type(dtype) {
                assert_eq!(map_type(code).map(|ty| ty as u32), Some(code), "{dtype}");
            }
        }
        assert_eq!(sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B as u32, 3);
    }

    #[test]
    fn attributes_have_their_bytes_where_the_driver_reads_them() {
        let bytes = |value: &sys::CUlaunchAttribute| -> Vec<i8> {
            assert_eq!(std::mem::offset_of!(sys::CUlaunchAttribute, value), 8);
            // SAFETY: every byte of the union is initialised, `attribute` has cleared them all.
            unsafe { value.value.pad }.to_vec()
        };
        let cluster = cluster_attribute(2);
        assert_eq!(cluster.id as u32, 4);
        assert_eq!(bytes(&cluster)[..16], [2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
        let dependent = dependent_attribute();
        assert_eq!(dependent.id as u32, 6);
        assert_eq!(bytes(&dependent)[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    }
}
