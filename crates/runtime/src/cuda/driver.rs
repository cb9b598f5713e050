//! The driver as this crate asks it: its errors, and the GPUs that it has.

use tilewright_compiler::Kernel;
use tilewright_launch::driver::{DeviceAttribute, DriverError};
use tilewright_launch::{Driver, LaunchError};

use crate::device::{DeviceChoice, DeviceInfo, newest_arch};
use crate::error::RuntimeError;

/// Loads and initialises the driver, once.
pub(super) fn driver() -> Result<&'static Driver, RuntimeError> {
    Driver::system().map_err(launch_error)
}

/// The driver's name for an error, and its description.
pub(super) fn describe(error: DriverError) -> (String, String) {
    match Driver::system() {
        Ok(driver) => driver.describe(error),
        Err(_) => (format!("CUDA error {}", error.0), String::new()),
    }
}

pub(super) fn failed(action: impl Into<String>) -> impl FnOnce(DriverError) -> RuntimeError {
    let action = action.into();
    |error| {
        let (code, message) = describe(error);
        RuntimeError::Driver { action, code, message }
    }
}

/// An error of a launch, in this crate's terms.
pub(super) fn launch_error(error: LaunchError) -> RuntimeError {
    match error {
        LaunchError::NoDriver { reason } => RuntimeError::NoCuda { reason },
        LaunchError::DriverTooOld { symbol } => RuntimeError::NoCuda {
            reason: format!("the installed CUDA driver is too old: it has no {symbol}"),
        },
        LaunchError::NoSuchDevice { ordinal, count } => RuntimeError::NoSuchDevice { ordinal, count },
        LaunchError::Driver { action, code, message } => RuntimeError::Driver { action, code, message },
        LaunchError::Load { kernel, code, log } => RuntimeError::Load { kernel, code, log },
        LaunchError::SharedMemory { kernel, needed, available, device } => {
            RuntimeError::SharedMemory { kernel, needed, available, device }
        }
        LaunchError::NotResident { kernel, blocks, resident } => {
            RuntimeError::NotResident { kernel, blocks, resident }
        }
        other => RuntimeError::Launch(Box::new(other)),
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
    match driver()?.count().map_err(failed("counting the CUDA devices"))? {
        0 => Err(RuntimeError::NoCuda { reason: "the CUDA driver finds no device".to_string() }),
        count => Ok(count),
    }
}

pub(super) fn info(ordinal: u32) -> Result<DeviceInfo, RuntimeError> {
    let driver = driver()?;
    let ask = || -> Result<DeviceInfo, DriverError> {
        let device = driver.device(ordinal)?;
        let capability = (
            driver.attribute(device, DeviceAttribute::CapabilityMajor)?,
            driver.attribute(device, DeviceAttribute::CapabilityMinor)?,
        );
        Ok(DeviceInfo {
            choice: DeviceChoice::Cuda(ordinal),
            name: driver.name(device)?,
            compute_capability: Some(capability),
            memory_bytes: Some(driver.memory(device)?),
            arch: newest_arch(capability),
        })
    };
    ask().map_err(failed(format!("asking for CUDA device {ordinal}")))
}
