//! Streams of others: work is put on them, and nothing else.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ptr;

use crate::driver::{CAPTURE_IMPLICIT, CAPTURE_NONE, Driver, RawStream};

/// A borrowed stream of the driver.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    raw: RawStream,
    of: PhantomData<&'a ()>,
}

// SAFETY: the driver takes streams from any thread, at the same time too.
unsafe impl Send for Stream<'_> {}
// SAFETY: as above.
unsafe impl Sync for Stream<'_> {}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.raw).finish()
    }
}

impl<'a> Stream<'a> {
    /// The stream of a handle (`CUstream`, which is also `cudaStream_t`), of any library in this process.
    ///
    /// # Safety
    ///
    /// The stream lives as long as what is returned, and is one of the context that is current where it is used.
    pub unsafe fn borrow(raw: *mut c_void) -> Stream<'a> {
        Stream { raw, of: PhantomData }
    }

    /// The legacy default stream of the current context, which waits for all others (`CU_STREAM_LEGACY`).
    pub fn legacy() -> Stream<'static> {
        Stream { raw: ptr::without_provenance_mut(1), of: PhantomData }
    }

    /// This thread's default stream of the current context (`CU_STREAM_PER_THREAD`).
    pub fn per_thread() -> Stream<'static> {
        Stream { raw: ptr::without_provenance_mut(2), of: PhantomData }
    }

    /// The handle.
    pub fn raw(self) -> *mut c_void {
        self.raw
    }

    /// True if work on the stream is being captured in a graph.
    pub fn is_capturing(self, driver: &Driver) -> bool {
        let mut state = CAPTURE_NONE;
        // SAFETY: the stream lives (`borrow`), and the driver writes the state to where it is told.
        match unsafe { driver.stream_is_capturing(self.raw, &raw mut state) } {
            Ok(()) => state != CAPTURE_NONE,
            Err(error) => error.0 == CAPTURE_IMPLICIT,
        }
    }
}
