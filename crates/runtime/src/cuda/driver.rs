//! The driver: loading it, its errors, and the GPUs that it has.

use std::sync::OnceLock;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tilewright_compiler::Kernel;

use crate::device::{DeviceChoice, DeviceInfo, newest_arch};
use crate::error::RuntimeError;

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
    "cuMemFreeHost",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemHostGetDevicePointer_v2",
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

/// Functions for kernels with clusters, tensor maps or waits for other grids.
pub(super) const HOPPER_SYMBOLS: &[&str] =
    &["cuLaunchKernelEx", "cuOccupancyMaxActiveClusters", "cuTensorMapEncodeTiled"];

/// True if the driver, which is loaded, has these functions; otherwise why not.
pub(super) fn has(symbols: &[&str]) -> Result<(), String> {
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
pub(super) fn describe(error: DriverError) -> (String, String) {
    let code =
        error.error_name().map_or_else(|_| format!("{:?}", error.0), |n| n.to_string_lossy().into_owned());
    let message = error.error_string().map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned());
    (code, message)
}

pub(super) fn failed(action: impl Into<String>) -> impl FnOnce(DriverError) -> RuntimeError {
    let action = action.into();
    |error| {
        let (code, message) = describe(error);
        RuntimeError::Driver { action, code, message }
    }
}

pub(super) fn kernel_failed(kernel: &Kernel) -> impl Fn(DriverError) -> RuntimeError {
    kernel_error(kernel.program().name.clone())
}

/// The error of a kernel, or of several, that met one of the driver's while it ran.
pub(super) fn kernel_error(kernel: String) -> impl Fn(DriverError) -> RuntimeError {
    move |error| {
        let (code, message) = describe(error);
        RuntimeError::Kernel { kernel: kernel.clone(), code, message }
    }
}

/// Every GPU of this machine; never an empty list. Creates no context.
pub(crate) fn devices() -> Result<Vec<DeviceInfo>, RuntimeError> {
    (0..count()?).map(info).collect()
}

/// The number of GPUs; not 0.
pub(super) fn count() -> Result<u32, RuntimeError> {
    driver()?;
    match result::device::get_count().map_err(failed("counting the CUDA devices"))? {
        0 => Err(RuntimeError::NoCuda { reason: "the CUDA driver finds no device".to_string() }),
        count => Ok(count.unsigned_abs()),
    }
}

pub(super) fn info(ordinal: u32) -> Result<DeviceInfo, RuntimeError> {
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
