//! Memory of a GPU.

use std::sync::Arc;

use cudarc::driver::result;
use cudarc::driver::{CudaContext, sys};

/// Memory of a GPU.
pub(crate) struct Allocation {
    /// Null if there are no bytes.
    pub(super) pointer: sys::CUdeviceptr,
    pub(super) context: Arc<CudaContext>,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.pointer != 0 && self.context.bind_to_thread().is_ok() {
            // SAFETY: `cuMemAlloc` returned the pointer in this context, nobody else frees it, and every call that uses it
            // has waited for its work. An error has nobody to go to.
            let _ = unsafe { result::free_sync(self.pointer) };
        }
    }
}
