//! Code on a GPU.

use tilewright_launch::Module;

/// A kernel's code on a GPU, which is unloaded when nothing of the device needs it any more.
pub(super) struct Loaded {
    pub(super) module: Module,
    /// Warnings of the assembler.
    pub(super) advisories: Vec<String>,
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: every launch of the code has been waited for, and launches that are prepared, sequences and graphs have a share in this.
        unsafe { self.module.unload() };
    }
}
