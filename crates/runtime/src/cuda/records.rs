//! The buffer of records that kernels with assertions and prints write: memory of the host, which is still there when a kernel has failed
//! and its context with it.

use std::ffi::c_void;
use std::ptr;

use tilewright_launch::Gpu;
use tilewright_launch::driver::{DevicePointer, DriverError, HOST_PORTABLE_AND_MAPPED};
use tilewright_simt::record::BUFFER_BYTES;

/// Memory of the host that a GPU writes.
pub(super) struct RecordBuffer {
    pointer: *mut c_void,
    /// The GPU's address of it.
    pub(super) address: DevicePointer,
    gpu: Gpu,
}

// SAFETY: the memory belongs to no thread; it is read when no kernel writes it.
unsafe impl Send for RecordBuffer {}
// SAFETY: as above.
unsafe impl Sync for RecordBuffer {}

impl RecordBuffer {
    /// Memory of [`BUFFER_BYTES`] zeros. The context is current.
    pub(super) fn new(gpu: &Gpu) -> Result<Self, DriverError> {
        let driver = gpu.driver();
        let mut pointer = ptr::null_mut();
        // SAFETY: the context is current, and the driver writes the address to where it is told; the memory is filled before anybody sees it.
        unsafe { driver.host_alloc(&raw mut pointer, BUFFER_BYTES, HOST_PORTABLE_AND_MAPPED) }?;
        let mut buffer = RecordBuffer { pointer, address: 0, gpu: gpu.clone() };
        // SAFETY: the memory has so many bytes; the driver writes the address to where it is told.
        unsafe {
            pointer.cast::<u8>().write_bytes(0, BUFFER_BYTES);
            driver.host_pointer(&raw mut buffer.address, pointer, 0)?;
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
        if self.gpu.bind().is_ok() {
            // SAFETY: `cuMemHostAlloc` returned the pointer, and nobody else frees it. An error has nobody to go to.
            let _ = unsafe { self.gpu.driver().host_free(self.pointer) };
        }
    }
}
