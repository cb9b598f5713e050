//! The code of kernels: given to the driver's assembler, and kept.

use std::ffi::{CString, c_uint, c_void};
use std::ptr;
use std::sync::Arc;

use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys;
use tilewright_compiler::Kernel;
use tilewright_machine::SyncOp;
use tilewright_simt::Op;

use super::driver::{HOPPER_SYMBOLS, describe, failed, has};
use super::module::{Entry, Loaded};
use super::{CudaDevice, lock};
use crate::error::RuntimeError;

/// Bytes of dynamic shared memory that a kernel gets without asking for more.
pub(super) const SHARED_WITHOUT_OPT_IN: u32 = 48 * 1024;
/// Bytes of the assembler's log that are kept.
const LOG_BYTES: usize = 16 * 1024;
/// Blocks of the largest cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;

impl CudaDevice {
    /// The kernel's code, loaded when it is first asked for, and allowed the kernel's shared memory. The context is current.
    pub(super) fn load(&self, kernel: &Kernel) -> Result<Arc<Loaded>, RuntimeError> {
        if !kernel.function.arch.runs_on(self.capability) {
            return Err(RuntimeError::UnsupportedArch {
                kernel: kernel.program().name.clone(),
                arch: kernel.function.arch,
                device: self.info.name.clone(),
                major: self.capability.0,
                minor: self.capability.1,
            });
        }
        if needs_hopper(kernel) {
            has(HOPPER_SYMBOLS).map_err(|reason| RuntimeError::NoCuda { reason })?;
        }
        let mut modules = lock(&self.modules);
        let entry = match modules.get_mut(&kernel.ptx) {
            Some(entry) => entry,
            None => {
                let loaded = Arc::new(self.assemble(kernel)?);
                let entry = Entry { loaded, dynamic_shared: SHARED_WITHOUT_OPT_IN };
                modules.entry(kernel.ptx.clone()).or_insert(entry)
            }
        };
        let dynamic = kernel.shared_bytes();
        let needed = dynamic.saturating_add(entry.loaded.static_shared_bytes);
        if needed > self.shared_limit {
            return Err(RuntimeError::SharedMemory {
                kernel: kernel.program().name.clone(),
                needed,
                available: self.shared_limit,
                device: self.info.name.clone(),
            });
        }
        if dynamic > entry.dynamic_shared {
            use sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES as DYNAMIC;
            // SAFETY: the function lives as long as `loaded`.
            unsafe {
                result::function::set_function_attribute(entry.loaded.function, DYNAMIC, dynamic as i32)
            }
            .map_err(failed(format!("asking for shared memory for kernel `{}`", kernel.program().name)))?;
            entry.dynamic_shared = dynamic;
        }
        Ok(entry.loaded.clone())
    }

    /// Gives the PTX to the driver's assembler.
    pub(super) fn assemble(&self, kernel: &Kernel) -> Result<Loaded, RuntimeError> {
        use sys::CUfunction_attribute as Attribute;
        use sys::CUjit_option as Jit;
        let kernel_name = &kernel.program().name;
        let rejected =
            |code: String, log: String| RuntimeError::Load { kernel: kernel_name.clone(), code, log };
        let no_nul = |_| rejected("invalid text".to_string(), "the text has a NUL character".to_string());
        let ptx = CString::new(kernel.ptx.as_str()).map_err(no_nul)?;
        let entry = CString::new(kernel.function.name.as_str()).map_err(no_nul)?;

        let (mut errors, mut infos) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
        // As a pointer, as all values: 1 where the text has source lines, for a line table of the code.
        let lines = ptr::without_provenance_mut(usize::from(kernel.ptx.contains("\n.file ")));
        let mut options = [
            Jit::CU_JIT_ERROR_LOG_BUFFER,
            Jit::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_INFO_LOG_BUFFER,
            Jit::CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
            Jit::CU_JIT_GENERATE_LINE_INFO,
        ];
        // The driver takes sizes in the place of pointers.
        let size = ptr::without_provenance_mut(LOG_BYTES);
        let mut values: [*mut c_void; 5] =
            [errors.as_mut_ptr().cast(), size, infos.as_mut_ptr().cast(), size, lines];
        let mut module: sys::CUmodule = ptr::null_mut();
        // SAFETY: the context is current; the text ends with NUL; options and values are five each, of the types that
        // the options have; the logs live until after the call and are as long as stated.
        let status = unsafe {
            sys::cuModuleLoadDataEx(
                &raw mut module,
                ptx.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        status.result().map_err(|error| {
            let (code, message) = describe(error);
            let text = kernel.explain_log(&log_text(&errors));
            rejected(code, if text.is_empty() { message } else { text })
        })?;
        let mut loaded = Loaded {
            module,
            function: ptr::null_mut(),
            registers_per_thread: 0,
            local_bytes: 0,
            static_shared_bytes: 0,
            advisories: advisories(&log_text(&infos)),
            context: self.context.clone(),
        };
        let mut ask = || -> Result<(), DriverError> {
            // SAFETY: the module is loaded, and the function lives as long as it.
            unsafe {
                loaded.function = result::module::get_function(loaded.module, entry.clone())?;
                let get = |attribute| {
                    result::function::get_function_attribute(loaded.function, attribute)
                        .map(i32::unsigned_abs)
                };
                loaded.registers_per_thread = get(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS)?;
                loaded.local_bytes = get(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES)?;
                loaded.static_shared_bytes = get(Attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES)?;
            }
            Ok(())
        };
        ask().map_err(failed(format!("finding kernel `{kernel_name}` in its module")))?;
        if kernel.function.cluster > PORTABLE_CLUSTER {
            use Attribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED as ANY_CLUSTER;
            // SAFETY: the function lives as long as `loaded`.
            unsafe { result::function::set_function_attribute(loaded.function, ANY_CLUSTER, 1) }
                .map_err(failed(format!("asking for large clusters for kernel `{kernel_name}`")))?;
        }
        Ok(loaded)
    }
}

/// True if launches of the kernel need [`HOPPER_SYMBOLS`].
pub(super) fn needs_hopper(kernel: &Kernel) -> bool {
    let function = &kernel.function;
    function.cluster > 1 || !function.tensor_maps.is_empty() || waits_for_others(kernel)
}

/// True if the kernel waits for grids that it depends on.
pub(super) fn waits_for_others(kernel: &Kernel) -> bool {
    let mut waits = false;
    kernel.function.visit(&mut |inst| waits |= inst.op == Op::Sync(SyncOp::DependencyWait));
    waits
}

/// True if blocks of a kernel wait for others: all must run at once.
pub(super) fn waits_for_blocks(kernel: &Kernel) -> bool {
    let mut waits = false;
    kernel.function.visit(&mut |inst| waits |= matches!(inst.op, Op::Await { .. }));
    waits
}

/// Text of the assembler before the first NUL.
fn log_text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).trim().to_string()
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
        assert_eq!(log_text(b" one\ntwo\n\0rest"), "one\ntwo");
    }
}
