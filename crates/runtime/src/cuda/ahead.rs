//! Loading the code of many kernels at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_compiler::Kernel;
use tilewright_launch::Log;

use super::{CudaDevice, lock};

impl CudaDevice {
    /// Gives the PTX of these kernels to the driver's assembler, on `threads` threads (at least one). What it rejects is left out: the
    /// kernel's launch will say why. Afterwards launches find the code, without the assembler's advisories: code is loaded for all contexts where the
    /// driver can (`cuLibraryLoadData`). For a module (`cuModuleLoadDataEx`) it holds a lock until that is assembled, for which other threads wait
    /// (driver 580, docs/measurements/choices.md).
    pub fn load_ahead(&self, kernels: &[&Kernel], threads: usize) {
        let wanted: Vec<&Kernel> = {
            let modules = lock(&self.modules);
            let able = |kernel: &&&Kernel| kernel.function.arch.runs_on(self.gpu.capability());
            kernels.iter().filter(able).filter(|k| !modules.contains_key(&k.ptx)).copied().collect()
        };
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(kernel) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                // `load` says what the driver lacks, and what it rejects.
                let Ok(loaded) =
                    self.recipe(kernel).and_then(|recipe| self.assemble(kernel, &recipe, Log::Errors))
                else {
                    continue;
                };
                // Another thread may have been faster with the same text.
                lock(&self.modules).entry(kernel.ptx.clone()).or_insert(Arc::new(loaded));
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, wanted.len().max(1)) {
                scope.spawn(work);
            }
        });
    }
}
