//! The binding of the CUDA driver: its library, loaded when it is first asked for, and the functions that are called of it.
//!
//! It loads `libcuda` by name and keeps it for ever, so it lives beside any other binding in the same program: both have the same library.
#![allow(unsafe_code)]

mod table;
mod types;

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::fmt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use libloading::Library;

use crate::error::LaunchError;

use self::table::Table;
pub(crate) use self::types::{CAPTURE_IMPLICIT, CAPTURE_NONE, INVALID_VALUE, JitOption, MAP_PLAIN};
pub use self::types::{
    CAPTURE_THREAD_LOCAL, Context, Device, DeviceAttribute, DevicePointer, Event, Function,
    FunctionAttribute, Graph, GraphExec, HOST_PORTABLE_AND_MAPPED, KernelHandle, LaunchAttribute,
    LaunchConfig, LibraryHandle, ModuleHandle, RawStream, STREAM_NON_BLOCKING, TensorMap,
};

/// The environment variable with the path of the driver library, where it is not the system's.
pub const LIBRARY_VARIABLE: &str = "TILEWRIGHT_LIBCUDA";

/// Names under which the dynamic loader finds the driver.
const NAMES: &[&str] = if cfg!(windows) {
    &["nvcuda.dll"]
} else {
    &["libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"]
};

/// An error of the driver: its number (`CUresult`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriverError(pub c_int);

/// Functions that kernels with clusters, tensor maps or waits for other grids need: of CUDA 11.8 and 12.0.
const HOPPER: &[&str] = &[
    "cuLaunchKernelEx",
    "cuOccupancyMaxActiveClusters",
    "cuTensorMapEncodeTiled",
    "cuTensorMapEncodeIm2col",
];

/// The CUDA driver, loaded and initialised.
pub struct Driver {
    table: Table,
    /// Path or name of the library.
    library: PathBuf,
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Driver").field(&self.library).finish()
    }
}

impl Driver {
    /// The driver of this machine, or the library that [`LIBRARY_VARIABLE`] names. It is loaded once.
    ///
    /// # Errors
    ///
    /// [`LaunchError::NoDriver`] and [`LaunchError::DriverTooOld`], on every call.
    pub fn system() -> Result<&'static Driver, LaunchError> {
        static DRIVER: OnceLock<Result<&'static Driver, LaunchError>> = OnceLock::new();
        let load = || match std::env::var_os(LIBRARY_VARIABLE) {
            // SAFETY: whoever sets the variable vouches for the library, as for every program that is started by a path.
            Some(path) => unsafe { Driver::open(path) },
            // SAFETY: opens the CUDA driver library, if there is one; its initialisers may run at any time.
            None => {
                match NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok().map(|l| (name, l))) {
                    Some((name, library)) => Driver::with(library, Path::new(name)),
                    None => Err(LaunchError::NoDriver {
                        reason: "no CUDA driver library (libcuda) is installed".into(),
                    }),
                }
            }
        };
        DRIVER.get_or_init(load).clone()
    }

    /// The driver library at a path. It is loaded once, and never unloaded.
    ///
    /// # Safety
    ///
    /// The library's functions do what the CUDA driver API says of those of their names.
    ///
    /// # Errors
    ///
    /// As of [`Driver::system`].
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<&'static Driver, LaunchError> {
        static OPEN: OnceLock<Mutex<HashMap<PathBuf, &'static Driver>>> = OnceLock::new();
        let path = path.as_ref();
        let mut open = OPEN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(path) {
            return Ok(known);
        }
        // SAFETY: as the caller says.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| LaunchError::NoDriver {
            reason: format!("the library {} does not load: {error}", path.display()),
        })?;
        let driver = Driver::with(library, path)?;
        open.insert(path.to_path_buf(), driver);
        Ok(driver)
    }

    fn with(library: Library, path: &Path) -> Result<&'static Driver, LaunchError> {
        let library: &'static Library = Box::leak(Box::new(library));
        let table = Table::of(library).map_err(|symbol| LaunchError::DriverTooOld { symbol })?;
        let driver: &'static Driver = Box::leak(Box::new(Driver { table, library: path.to_path_buf() }));
        // SAFETY: the only argument is 0, as the driver wants.
        unsafe { driver.init(0) }.map_err(|error| {
            let (code, message) = driver.describe(error);
            LaunchError::NoDriver { reason: format!("the CUDA driver does not start: {code} ({message})") }
        })?;
        Ok(driver)
    }

    /// The driver's name for an error, and its description.
    pub fn describe(&self, error: DriverError) -> (String, String) {
        let text = |ask: &dyn Fn(*mut *const c_char) -> Result<(), DriverError>| {
            let mut text: *const c_char = ptr::null();
            let known = ask(&raw mut text).is_ok() && !text.is_null();
            // SAFETY: the driver gave a text of its own, which ends with NUL and is never freed.
            known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        };
        // SAFETY: the driver writes where it is told to, here and below.
        let name = text(&|out| unsafe { self.error_name(error.0, out) });
        let message = text(&|out| unsafe { self.error_string(error.0, out) });
        (name.unwrap_or_else(|| format!("CUDA error {}", error.0)), message.unwrap_or_default())
    }

    /// The failure of an activity.
    pub(crate) fn failed(&self, action: impl Into<String>) -> impl FnOnce(DriverError) -> LaunchError {
        let action = action.into();
        move |error| {
            let (code, message) = self.describe(error);
            LaunchError::Driver { action, code, message }
        }
    }

    /// True if kernels with clusters, tensor maps or waits for other grids run.
    ///
    /// # Errors
    ///
    /// [`LaunchError::DriverTooOld`] with the first function that is absent.
    pub fn has_hopper(&self) -> Result<(), LaunchError> {
        match HOPPER.iter().find(|symbol| self.table.absent.contains(symbol)) {
            Some(symbol) => Err(LaunchError::DriverTooOld { symbol }),
            None => Ok(()),
        }
    }

    /// True if code is loaded for all contexts at once (`cuLibraryLoadData`, of CUDA 12.0).
    pub fn has_libraries(&self) -> bool {
        let wanted = ["cuLibraryLoadData", "cuLibraryGetKernel", "cuKernelGetFunction", "cuLibraryUnload"];
        wanted.iter().all(|symbol| !self.table.absent.contains(symbol))
    }

    /// True if launches have attributes (`cuLaunchKernelEx`, of CUDA 11.8).
    pub(crate) fn has_attributes(&self) -> bool {
        !self.table.absent.contains(&"cuLaunchKernelEx")
    }

    /// The version of CUDA that the driver is for, as `12.8`.
    pub fn cuda_version(&self) -> Option<String> {
        let mut version = 0;
        // SAFETY: the driver writes the number to where it is told.
        let known = unsafe { self.driver_version(&raw mut version) }.is_ok();
        known.then(|| format!("{}.{}", version / 1000, version % 1000 / 10))
    }

    /// The number of GPUs.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn count(&self) -> Result<u32, DriverError> {
        let mut count = 0;
        // SAFETY: the driver writes the number to where it is told.
        unsafe { self.device_count(&raw mut count) }?;
        Ok(count.unsigned_abs())
    }

    /// The GPU with a number, from 0.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn device(&self, ordinal: u32) -> Result<Device, DriverError> {
        let ordinal = c_int::try_from(ordinal).map_err(|_| DriverError(INVALID_VALUE))?;
        let mut device = 0;
        // SAFETY: the driver writes the device to where it is told.
        unsafe { self.device_get(&raw mut device, ordinal) }?;
        Ok(device)
    }

    /// A number of a GPU.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn attribute(&self, device: Device, attribute: DeviceAttribute) -> Result<u32, DriverError> {
        let mut value = 0;
        // SAFETY: the driver writes the number to where it is told, and refuses devices that it does not have.
        unsafe { self.device_attribute(&raw mut value, attribute as c_int, device) }?;
        Ok(value.unsigned_abs())
    }

    /// The name of a GPU.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn name(&self, device: Device) -> Result<String, DriverError> {
        let mut name = [0u8; 256];
        // SAFETY: the driver writes at most as many bytes as it is told, the last of them NUL.
        unsafe { self.device_name(name.as_mut_ptr().cast(), name.len() as c_int, device) }?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Bytes of memory of a GPU.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn memory(&self, device: Device) -> Result<u64, DriverError> {
        let mut bytes = 0;
        // SAFETY: the driver writes the number to where it is told, and refuses devices that it does not have.
        unsafe { self.device_memory(&raw mut bytes, device) }?;
        Ok(bytes as u64)
    }
}
