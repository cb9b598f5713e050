//! Loading the code of many kernels at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tilewright_compiler::Kernel;

use super::driver::{HOPPER_SYMBOLS, has};
use super::load::{SHARED_WITHOUT_OPT_IN, needs_hopper};
use super::module::Entry;
use super::{CudaDevice, lock};

impl CudaDevice {
    /// Gives the PTX of these kernels to the driver's assembler, on `threads` threads (at least one). What it rejects is left out: the
    /// kernel's launch will say why. Afterwards launches find the code.
    pub fn load_ahead(&self, kernels: &[&Kernel], threads: usize) {
        let wanted: Vec<&Kernel> = {
            let modules = lock(&self.modules);
            let able = |kernel: &&&Kernel| kernel.function.arch.runs_on(self.capability);
            kernels.iter().filter(able).filter(|k| !modules.contains_key(&k.ptx)).copied().collect()
        };
        let next = AtomicUsize::new(0);
        let work = || {
            if self.bind().is_err() {
                return;
            }
            while let Some(kernel) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
                // `load` says what the driver lacks for these.
                if needs_hopper(kernel) && has(HOPPER_SYMBOLS).is_err() {
                    continue;
                }
                let Ok(loaded) = self.assemble(kernel) else { continue };
                let entry = Entry { loaded: Arc::new(loaded), dynamic_shared: SHARED_WITHOUT_OPT_IN };
                // Another thread may have been faster with the same text.
                lock(&self.modules).entry(kernel.ptx.clone()).or_insert(entry);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..threads.clamp(1, wanted.len().max(1)) {
                scope.spawn(work);
            }
        });
    }
}
