//! Streams and events: work in order, and the times between.

use std::ffi::c_void;
use std::fmt;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};

use crate::error::RuntimeError;

/// A stream of the driver.
pub struct CudaStream {
    pub(super) raw: sys::CUstream,
    context: Arc<CudaContext>,
}

// SAFETY: the driver takes streams from any thread, at the same time too.
unsafe impl Send for CudaStream {}
// SAFETY: as above.
unsafe impl Sync for CudaStream {}

impl CudaStream {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let raw = result::stream::create(result::stream::StreamKind::NonBlocking)?;
        Ok(CudaStream { raw, context: context.clone() })
    }

    /// The driver's `CUstream`, for libraries that put work on it.
    pub fn raw(&self) -> *mut c_void {
        self.raw.cast()
    }

    pub(super) fn synchronize(&self) -> Result<(), DriverError> {
        // SAFETY: the stream lives as long as `self`.
        unsafe { result::stream::synchronize(self.raw) }
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: the stream was created by `new` and is destroyed once.
            let _ = unsafe { result::stream::destroy(self.raw) };
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
pub(super) struct Event(sys::CUevent);

impl Event {
    pub(super) fn new() -> Result<Self, DriverError> {
        result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map(Event)
    }

    pub(super) fn record(&self, stream: &CudaStream) -> Result<(), DriverError> {
        // SAFETY: both live, and belong to the same context.
        unsafe { result::event::record(self.0, stream.raw) }
    }

    /// Milliseconds from this event to a later one; both have happened.
    pub(super) fn until(&self, later: &Event) -> Result<f64, DriverError> {
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

/// Waits for what is on the stream also when something failed: it may use buffers that the caller will give back.
pub(super) fn settle<T, E>(result: Result<T, E>, stream: &CudaStream) -> Result<T, E> {
    result.inspect_err(|_| {
        // The first error is the one to report.
        let _ = stream.synchronize();
    })
}
