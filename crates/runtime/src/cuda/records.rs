//! The buffer of records that kernels with assertions and prints write: memory of the host, which is still there when a kernel has failed
//! and its context with it.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use tilewright_simt::record::BUFFER_BYTES;

/// Memory of the host that a GPU writes.
pub(super) struct RecordBuffer {
    pointer: *mut c_void,
    /// The GPU's address of it.
    pub(super) address: sys::CUdeviceptr,
    context: Arc<CudaContext>,
}

// SAFETY: the memory belongs to no thread; it is read when no kernel writes it.
unsafe impl Send for RecordBuffer {}
// SAFETY: as above.
unsafe impl Sync for RecordBuffer {}

impl RecordBuffer {
    /// Memory of [`BUFFER_BYTES`] zeros. The context is current.
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DriverError> {
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: the context is current; the memory is filled before anybody sees it.
        let pointer = unsafe { result::malloc_host(BUFFER_BYTES, flags) }?;
        let mut buffer = RecordBuffer { pointer, address: 0, context: context.clone() };
        // SAFETY: the memory has so many bytes; the driver writes the address to where it is told.
        unsafe {
            pointer.cast::<u8>().write_bytes(0, BUFFER_BYTES);
            sys::cuMemHostGetDevicePointer_v2(&raw mut buffer.address, pointer, 0).result()?;
        }
        Ok(buffer)
    }

    /// The bytes. No kernel that writes them runs: its launch has ended, or failed.
    pub(super) fn bytes(&self) -> Vec<u8> {
        // SAFETY: the memory has so many bytes, all of them written by `new`.
        unsafe { std::slice::from_raw_parts(self.pointer.cast::<u8>(), BUFFER_BYTES) }.to_vec()
    }
}

impl Drop for RecordBuffer {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_ok() {
            // SAFETY: `malloc_host` returned the pointer, and nobody else frees it. An error has nobody to go to.
            let _ = unsafe { result::free_host(self.pointer) };
        }
    }
}
