//! GPUs: contexts of the driver, those of others and the primary one.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr;
use std::sync::Arc;

use crate::driver::{Context, Device, DeviceAttribute, Driver, DriverError};
use crate::error::LaunchError;

/// A GPU, with a context on it.
#[derive(Clone)]
pub struct Gpu(Arc<Shared>);

struct Shared {
    driver: &'static Driver,
    context: Context,
    device: Device,
    name: String,
    capability: (u32, u32),
    shared_limit: u32,
    multiprocessors: u32,
    /// True if this holds the primary context.
    retained: bool,
}

// SAFETY: the driver takes contexts from any thread, at the same time too.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.retained {
            // SAFETY: the primary context was retained once by `primary`, and is given back once. An error has nobody to go to.
            let _ = unsafe { self.driver.primary_context_release(self.device) };
        }
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpu")
            .field("name", &self.0.name)
            .field("device", &self.0.device)
            .finish_non_exhaustive()
    }
}

/// The context of a thread, made current again when this is dropped.
struct Restored<'a>(&'a Driver, Context);

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        // SAFETY: the context was current before. An error has nobody to go to.
        let _ = unsafe { self.0.context_set_current(self.1) };
    }
}

impl Gpu {
    /// The GPU of the context that is current in this thread. No context is made, and none is retained: it must live as long as what is returned,
    /// and what is made from it.
    ///
    /// # Errors
    ///
    /// There is no driver, or no current context.
    pub fn current() -> Result<Gpu, LaunchError> {
        Gpu::current_of(Driver::system()?)
    }

    /// The same, by a driver.
    ///
    /// # Errors
    ///
    /// There is no current context.
    pub fn current_of(driver: &'static Driver) -> Result<Gpu, LaunchError> {
        let ask = || -> Result<Option<(Context, Device)>, DriverError> {
            let (mut context, mut device) = (ptr::null_mut(), 0);
            // SAFETY: the driver writes to where it is told.
            unsafe { driver.context_get_current(&raw mut context) }?;
            if context.is_null() {
                return Ok(None);
            }
            // SAFETY: as above.
            unsafe { driver.context_device(&raw mut device) }?;
            Ok(Some((context, device)))
        };
        let current = ask().map_err(driver.failed("asking for the current CUDA context"))?;
        let (context, device) = current.ok_or(LaunchError::NoContext)?;
        Gpu::with(driver, context, device, false)
    }

    /// The primary context of the GPU with a number, from 0: the one that CUDA's runtime and most libraries use. It is held until what is returned, and
    /// what is made from it, is dropped; it does not become this thread's.
    ///
    /// # Errors
    ///
    /// There is no driver or no such GPU, or the driver fails.
    pub fn primary(ordinal: u32) -> Result<Gpu, LaunchError> {
        Gpu::primary_of(Driver::system()?, ordinal)
    }

    /// The same, by a driver.
    ///
    /// # Errors
    ///
    /// There is no such GPU, or the driver fails.
    pub fn primary_of(driver: &'static Driver, ordinal: u32) -> Result<Gpu, LaunchError> {
        let count = driver.count().map_err(driver.failed("counting the CUDA devices"))?;
        if ordinal >= count {
            return Err(LaunchError::NoSuchDevice { ordinal, count });
        }
        let retain = || -> Result<(Context, Device), DriverError> {
            let device = driver.device(ordinal)?;
            let mut context = ptr::null_mut();
            // SAFETY: the driver writes the context to where it is told.
            unsafe { driver.primary_context_retain(&raw mut context, device) }?;
            Ok((context, device))
        };
        let (context, device) = retain().map_err(driver.failed(format!("opening CUDA device {ordinal}")))?;
        Gpu::with(driver, context, device, true)
    }

    fn with(
        driver: &'static Driver,
        context: Context,
        device: Device,
        retained: bool,
    ) -> Result<Gpu, LaunchError> {
        // Dropped where the driver fails, so that the context is given back.
        let mut shared = Shared {
            driver,
            context,
            device,
            name: String::new(),
            capability: (0, 0),
            shared_limit: 0,
            multiprocessors: 0,
            retained,
        };
        let mut ask = || -> Result<(), DriverError> {
            shared.name = driver.name(device)?;
            let get = |attribute| driver.attribute(device, attribute);
            shared.capability =
                (get(DeviceAttribute::CapabilityMajor)?, get(DeviceAttribute::CapabilityMinor)?);
            shared.shared_limit = get(DeviceAttribute::SharedMemoryPerBlock)?;
            shared.multiprocessors = get(DeviceAttribute::MultiprocessorCount)?;
            Ok(())
        };
        ask().map_err(driver.failed(format!("asking for CUDA device {device}")))?;
        Ok(Gpu(Arc::new(shared)))
    }

    /// The driver.
    pub fn driver(&self) -> &'static Driver {
        self.0.driver
    }

    /// The name of the GPU.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The driver's handle of the GPU.
    pub fn device(&self) -> Device {
        self.0.device
    }

    /// The driver's handle of the context.
    pub fn context(&self) -> Context {
        self.0.context
    }

    /// The compute capability.
    pub fn capability(&self) -> (u32, u32) {
        self.0.capability
    }

    /// Bytes of shared memory that a block may have.
    pub fn shared_limit(&self) -> u32 {
        self.0.shared_limit
    }

    /// The number of multiprocessors.
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }

    /// Makes the context this thread's current one, as launches need it.
    ///
    /// # Errors
    ///
    /// Whatever the driver refuses.
    pub fn bind(&self) -> Result<(), LaunchError> {
        self.bound().map(drop).map_err(self.driver().failed("making the CUDA context current"))
    }

    /// Makes the context current; returns the one that was, if it was another.
    fn bound(&self) -> Result<Option<Context>, DriverError> {
        let mut current = ptr::null_mut();
        // SAFETY: the driver writes the context to where it is told; this one lives.
        unsafe {
            self.driver().context_get_current(&raw mut current)?;
            if current == self.0.context {
                return Ok(None);
            }
            self.driver().context_set_current(self.0.context)?;
        }
        Ok(Some(current))
    }

    /// Calls a function while the context is current; afterwards the one is that was before.
    pub(crate) fn within<T>(&self, call: impl FnOnce() -> Result<T, LaunchError>) -> Result<T, LaunchError> {
        let before = self.bound().map_err(self.driver().failed("making the CUDA context current"))?;
        let _restored = before.map(|context| Restored(self.driver(), context));
        call()
    }
}
