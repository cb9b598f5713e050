//! Streams and events: work in order, and the times between.

use std::ffi::c_void;
use std::{fmt, ptr};

use tilewright_launch::driver::{self, DriverError, RawStream, STREAM_NON_BLOCKING};
use tilewright_launch::{Driver, Gpu, Stream};

use crate::error::RuntimeError;

/// A stream of the driver.
pub struct CudaStream {
    pub(super) raw: RawStream,
    gpu: Gpu,
}

// SAFETY: the driver takes streams from any thread, at the same time too.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    /// A stream that does not wait for the default stream. The context is current.
    pub(super) fn new(gpu: &Gpu) -> Result<Self, DriverError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the driver writes the stream to where it is told.
        unsafe { gpu.driver().stream_create(&raw mut raw, STREAM_NON_BLOCKING) }?;
        Ok(CudaStream { raw, gpu: gpu.clone() })
    }

    pub(super) fn driver(&self) -> &'static Driver {
        self.gpu.driver()
    }

    /// The stream, for launches by `tilewright-launch`.
    pub fn borrow(&self) -> Stream<'_> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { Stream::borrow(self.raw) }
    }

    /// The driver's `CUstream`, for libraries that put work on it.
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { self.driver().stream_synchronize(self.raw) }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.gpu.bind().is_ok() {
            // SAFETY: the stream was created by `new` and is destroyed once.
            let _ = unsafe { self.driver().stream_destroy(self.raw) };
        }
    }
}

impl fmt::Debug for CudaStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CudaStream").field(&self.raw).finish()
    }
}

/// Work that can be put on a GPU's stream any number of times. Everything that it needs is prepared, and lives as long as it does.
pub trait StreamWork {
    /// The name, for errors that come while it runs.
    fn name(&self) -> String;

    /// Puts the work on the stream. The GPU's context is current.
    ///
    /// # Errors
    ///
    /// Whatever the driver or a library refuses.
    fn enqueue(&self, stream: &CudaStream) -> Result<(), RuntimeError>;
}

/// An event that records a time. The context is current where it is made, used and dropped: inside one call.
pub(super) struct Event(driver::Event, &'static Driver);

impl Event {
    pub(super) fn new(driver: &'static Driver) -> Result<Self, DriverError> {
        let mut event = ptr::null_mut();
        // SAFETY: the driver writes the event to where it is told.
        unsafe { driver.event_create(&raw mut event, 0) }?;
        Ok(Event(event, driver))
    }

    pub(super) fn record(&self, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: both live, and belong to the same context.
        unsafe { self.1.event_record(self.0, stream.raw) }
    }

    /// Milliseconds from this event to a later one; both have happened.
    pub(super) fn until(&self, later: &Event) -> Result<f64, DriverError> {
        let mut milliseconds = 0f32;
        // SAFETY: both live, and were recorded on the same stream; the driver writes the number to where it is told.
        unsafe { self.1.event_elapsed(&raw mut milliseconds, self.0, later.0) }?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event was created by `new` and is destroyed once.
        let _ = unsafe { self.1.event_destroy(self.0) };
    }
}

/// Waits for what is on the stream also when something failed: it may use buffers that the caller will give back.
pub(super) fn settle<T, E>(result: Result<T, E>, stream: &CudaStream) -> Result<T, E> {
    result.inspect_err(|_| {
        // The first error is the one to report.
        let _ = stream.synchronize();
    })
}
