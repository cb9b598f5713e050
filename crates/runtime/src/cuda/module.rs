//! Code on a GPU, and what its launches may ask for.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::{CudaContext, sys};

/// A kernel's code on a GPU.
pub(super) struct Loaded {
    pub(super) module: sys::CUmodule,
    pub(super) function: sys::CUfunction,
    pub(super) registers_per_thread: u32,
    pub(super) local_bytes: u32,
    pub(super) static_shared_bytes: u32,
    /// Warnings of the assembler.
    pub(super) advisories: Vec<String>,
    pub(super) context: Arc<CudaContext>,
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
pub(super) struct Entry {
    pub(super) loaded: Arc<Loaded>,
    /// Bytes of dynamic shared memory that a launch may ask for. It only grows: kernels that differ in nothing else have the
    /// same PTX, and a launch that is being prepared must not lose what it was given.
    pub(super) dynamic_shared: u32,
}
