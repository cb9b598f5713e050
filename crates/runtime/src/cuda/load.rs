//! The code of kernels: given to the driver's assembler, and kept.

use std::sync::Arc;

use tilewright_compiler::{Kernel, NoRecipe};
use tilewright_launch::{Code, Log, Module, Recipe};

use super::driver::launch_error;
use super::module::Loaded;
use super::{CudaDevice, lock};
use crate::error::RuntimeError;

impl CudaDevice {
    /// Everything that launches read of a kernel.
    pub(super) fn recipe(&self, kernel: &Kernel) -> Result<Recipe, RuntimeError> {
        kernel.recipe().map_err(|error| match error {
            NoRecipe::Inconsistent { kernel } => RuntimeError::Inconsistent { kernel },
            other => RuntimeError::NoRecipe { kernel: kernel.program().name.clone(), error: Box::new(other) },
        })
    }

    /// The kernel with its code, which is loaded when it is first asked for.
    pub(super) fn load(
        &self,
        kernel: &Kernel,
    ) -> Result<(Arc<Loaded>, tilewright_launch::Kernel), RuntimeError> {
        let recipe = self.recipe(kernel)?;
        if !kernel.function.arch.runs_on(self.gpu.capability()) {
            let (major, minor) = self.gpu.capability();
            return Err(RuntimeError::UnsupportedArch {
                kernel: kernel.program().name.clone(),
                arch: kernel.function.arch,
                device: self.info.name.clone(),
                major,
                minor,
            });
        }
        let mut modules = lock(&self.modules);
        let loaded = match modules.get(&kernel.ptx) {
            Some(loaded) => loaded.clone(),
            None => {
                let loaded = Arc::new(self.assemble(kernel, &recipe, Log::Full)?);
                modules.entry(kernel.ptx.clone()).or_insert(loaded).clone()
            }
        };
        drop(modules);
        let ready = tilewright_launch::Kernel::new(&loaded.module, Arc::new(recipe)).map_err(launch_error)?;
        Ok((loaded, ready))
    }

    /// Gives the PTX to the driver's assembler. Its advisories are those of [`Log::Full`].
    pub(super) fn assemble(
        &self,
        kernel: &Kernel,
        recipe: &Recipe,
        log: Log,
    ) -> Result<Loaded, RuntimeError> {
        // SAFETY: the recipe is that of the kernel, whose PTX does what its function says.
        let module = unsafe { Module::load(&self.gpu, recipe, Code::Ptx(&kernel.ptx), log) };
        let module = module.map_err(|error| match launch_error(error) {
            RuntimeError::Load { kernel: name, code, log } => {
                RuntimeError::Load { kernel: name, code, log: kernel.explain_log(&log) }
            }
            other => other,
        })?;
        let advisories = advisories(module.log());
        Ok(Loaded { module, advisories })
    }
}

/// Of the assembler's information: its warnings, and advisories on products of warpgroups and register budgets, whose numbers begin
/// with C75.
fn advisories(log: &str) -> Vec<String> {
    let line = |line: &str| {
        if let Some(start) = line.find("(C75") {
            return Some(line[start..].trim().to_string());
        }
        line.contains("warning").then(|| line.trim().to_string())
    };
    let mut found: Vec<String> = log.lines().filter_map(line).collect();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advisories_are_picked_from_the_log() {
        let log = "ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to x\n\
                   ptxas info    : 0 bytes gmem\n\
                   ptxas warning : Value of threads per SM is out of range\n";
        let found = advisories(log);
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with("(C7511) Potential Performance Loss: wgmma.mma_async"), "{found:?}");
        assert!(found[1].starts_with("ptxas warning"), "{found:?}");
        assert_eq!(advisories("ptxas info    : Used 40 registers\n"), [""; 0]);
    }
}
