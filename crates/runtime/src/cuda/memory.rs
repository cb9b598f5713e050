//! Memory of a GPU.

use tilewright_launch::Gpu;
use tilewright_launch::driver::DevicePointer;

/// Memory of a GPU.
pub(crate) struct Allocation {
    /// Null if there are no bytes.
    pub(super) pointer: DevicePointer,
    pub(super) gpu: Gpu,
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.pointer != 0 && self.gpu.bind().is_ok() {
            // SAFETY: `cuMemAlloc` returned the pointer in this context, nobody else frees it, and every call that uses it
            // has waited for its work. An error has nobody to go to.
            let _ = unsafe { self.gpu.driver().memory_free(self.pointer) };
        }
    }
}
