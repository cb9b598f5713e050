//! Code on GPUs: given to the driver once, and kept.
//!
//! Nothing is unloaded when it is dropped: a graph may hold it, and the driver does not say so.
#![allow(unsafe_code)]

use std::ffi::{CString, c_int, c_uint, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use crate::driver::{
    Driver, DriverError, Function, FunctionAttribute, JitOption, KernelHandle, LaunchAttribute, LaunchConfig,
    LibraryHandle, ModuleHandle,
};
use crate::error::LaunchError;
use crate::gpu::Gpu;
use crate::recipe::Recipe;

/// Bytes of dynamic shared memory that a kernel gets without asking for more.
const SHARED_WITHOUT_OPT_IN: u32 = 48 * 1024;
/// Blocks of the largest cluster that every GPU with clusters runs.
const PORTABLE_CLUSTER: u32 = 8;
/// Bytes of an assembler's log that are kept.
const LOG_BYTES: usize = 16 * 1024;
/// The same, of code that is loaded for all contexts, whose log stays allocated.
const SHORT_LOG_BYTES: usize = 4 * 1024;

/// Code of a kernel.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Code<'a> {
    /// PTX text, for the driver's assembler.
    Ptx(&'a str),
    /// A binary for one kind of GPU.
    Binary(&'a [u8]),
}

/// A log of the driver's assembler.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Log {
    /// The errors of code that it rejects.
    #[default]
    Errors,
    /// All that it says of code that it takes, too ([`Module::log`]). The code is then loaded into one context, at once.
    Full,
}

/// Code that is loaded for all contexts.
struct Library {
    driver: &'static Driver,
    handle: LibraryHandle,
    kernel: KernelHandle,
    /// The driver may write the assembler's errors to it as long as it has the code.
    _log: ManuallyDrop<Vec<u8>>,
}

// SAFETY: the driver takes its handles from any thread, at the same time too.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

/// The driver's handle of code.
enum Handle {
    Library(Arc<Library>),
    /// Of one context, with the code for others.
    Module(ModuleHandle, Arc<[u8]>),
}

/// A kernel's code on a GPU.
#[derive(Clone)]
pub struct Module(Arc<Loaded>);

struct Loaded {
    gpu: Gpu,
    handle: Handle,
    function: Function,
    entry: String,
    registers: u32,
    local_bytes: u32,
    static_shared_bytes: u32,
    log: String,
    /// Bytes of dynamic shared memory that a launch may ask for. It only grows: kernels that differ in nothing else may have the same code.
    dynamic_shared: Mutex<u32>,
}

// SAFETY: the driver takes its handles from any thread, at the same time too.
unsafe impl Send for Loaded {}
// SAFETY: as above.
unsafe impl Sync for Loaded {}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Module")
            .field("entry", &self.0.entry)
            .field("gpu", &self.0.gpu)
            .finish_non_exhaustive()
    }
}

/// Text of the assembler before the first NUL.
fn log_text(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    String::from_utf8_lossy(&log[..end]).trim().to_string()
}

/// Options of the driver's assembler. It takes numbers in the place of pointers.
struct Jit {
    options: Vec<c_int>,
    values: Vec<*mut c_void>,
}

impl Jit {
    fn new(ptx: bool, lines: bool) -> Self {
        let mut jit = Jit { options: Vec::new(), values: Vec::new() };
        if ptx && lines {
            jit.push(JitOption::LineInfo, ptr::without_provenance_mut(1));
        }
        jit
    }

    fn push(&mut self, option: JitOption, value: *mut c_void) {
        self.options.push(option as c_int);
        self.values.push(value);
    }

    fn log(&mut self, option: JitOption, bytes: JitOption, log: &mut [u8]) {
        self.push(option, log.as_mut_ptr().cast());
        self.push(bytes, ptr::without_provenance_mut(log.len()));
    }
}

impl Module {
    /// Loads the code of a recipe on a GPU, for all contexts where the driver can.
    ///
    /// # Safety
    ///
    /// The function that the recipe names does what the recipe says: it has these parameters, and reads and writes what these lead to.
    ///
    /// # Errors
    ///
    /// The GPU or the driver cannot run it, or the driver rejects it.
    pub unsafe fn load(gpu: &Gpu, recipe: &Recipe, code: Code<'_>, log: Log) -> Result<Module, LaunchError> {
        supported(gpu, recipe)?;
        let rejected = |code: &str, log: &str| LaunchError::Load {
            kernel: recipe.name.clone(),
            code: code.into(),
            log: log.into(),
        };
        let no_nul = |_| rejected("invalid text", "the text has a NUL character");
        let (image, ptx): (Arc<[u8]>, bool) = match code {
            Code::Ptx(text) => (CString::new(text).map_err(no_nul)?.into_bytes_with_nul().into(), true),
            Code::Binary(bytes) if bytes.starts_with(b"\x7fELF") => (bytes.into(), false),
            Code::Binary(_) => {
                return Err(rejected("invalid binary", "it does not begin as an ELF file does"));
            }
        };
        // Lines of the source, for NVIDIA's tools, where the text has them.
        let lines = matches!(code, Code::Ptx(text) if text.contains("\n.file "));
        let driver = gpu.driver();
        gpu.within(|| {
            let failed = |error: DriverError, log: &[u8]| {
                let (code, message) = driver.describe(error);
                let text = log_text(log);
                rejected(&code, if text.is_empty() { &message } else { &text })
            };
            let entry = CString::new(recipe.entry.as_str()).map_err(no_nul)?;
            let mut jit = Jit::new(ptx, lines);
            if log == Log::Errors && driver.has_libraries() {
                let mut errors = vec![0u8; SHORT_LOG_BYTES];
                if ptx {
                    jit.log(JitOption::ErrorLog, JitOption::ErrorLogBytes, &mut errors);
                }
                let (mut handle, mut kernel, mut function) =
                    (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
                // SAFETY: the context is current; the image ends with NUL or is a binary; options and values are equally many, of
                // the types that the options have; the log lives as long as the code does, and is as long as stated. The driver
                // may assemble the code only when the function is asked for.
                let loaded = unsafe {
                    driver
                        .library_load(
                            &raw mut handle,
                            image.as_ptr().cast(),
                            jit.options.as_mut_ptr(),
                            jit.values.as_mut_ptr(),
                            jit.options.len() as c_uint,
                            ptr::null_mut(),
                            ptr::null_mut(),
                            0,
                        )
                        .and_then(|()| driver.library_kernel(&raw mut kernel, handle, entry.as_ptr()))
                        .and_then(|()| driver.kernel_function(&raw mut function, kernel))
                };
                if let Err(error) = loaded {
                    let error = failed(error, &errors);
                    if !handle.is_null() {
                        // SAFETY: nobody has the library, whose log ends here.
                        let _ = unsafe { driver.library_unload(handle) };
                    }
                    return Err(error);
                }
                let log = ManuallyDrop::new(errors);
                let library = Arc::new(Library { driver, handle, kernel, _log: log });
                return Module::with(
                    gpu,
                    Handle::Library(library),
                    function,
                    recipe.entry.clone(),
                    String::new(),
                );
            }
            let (mut errors, mut infos) = (vec![0u8; LOG_BYTES], vec![0u8; LOG_BYTES]);
            if ptx {
                jit.log(JitOption::ErrorLog, JitOption::ErrorLogBytes, &mut errors);
                jit.log(JitOption::InfoLog, JitOption::InfoLogBytes, &mut infos);
            }
            let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: as above, and this call reads and writes all that it is given before it returns.
            let loaded = unsafe {
                driver
                    .module_load(
                        &raw mut module,
                        image.as_ptr().cast(),
                        jit.options.len() as c_uint,
                        jit.options.as_mut_ptr(),
                        jit.values.as_mut_ptr(),
                    )
                    .and_then(|()| driver.module_function(&raw mut function, module, entry.as_ptr()))
            };
            if let Err(error) = loaded {
                if !module.is_null() {
                    // SAFETY: nobody has the module.
                    let _ = unsafe { driver.module_unload(module) };
                }
                return Err(failed(error, &errors));
            }
            let handle = Handle::Module(module, image);
            Module::with(gpu, handle, function, recipe.entry.clone(), log_text(&infos))
        })
    }

    /// The same code on another GPU. Where the driver loads code for all contexts, it is not loaded again.
    ///
    /// # Errors
    ///
    /// The driver fails, or is another one.
    pub fn on(&self, gpu: &Gpu) -> Result<Module, LaunchError> {
        let driver = gpu.driver();
        if !ptr::eq(driver, self.0.gpu.driver()) {
            let (entry, device) = (self.0.entry.clone(), gpu.name().to_string());
            return Err(LaunchError::OtherDriver { entry, device });
        }
        let action = || driver.failed(format!("loading `{}` on {}", self.0.entry, gpu.name()));
        gpu.within(|| {
            let mut function = ptr::null_mut();
            let handle = match &self.0.handle {
                Handle::Library(library) => {
                    // SAFETY: the context is current, and the library is loaded.
                    unsafe { driver.kernel_function(&raw mut function, library.kernel) }.map_err(action())?;
                    Handle::Library(library.clone())
                }
                Handle::Module(_, image) => {
                    let entry = CString::new(self.0.entry.as_str()).unwrap_or_default();
                    let mut module = ptr::null_mut();
                    // SAFETY: as in `load`; the image was loaded before.
                    unsafe {
                        driver
                            .module_load(
                                &raw mut module,
                                image.as_ptr().cast(),
                                0,
                                ptr::null_mut(),
                                ptr::null_mut(),
                            )
                            .and_then(|()| driver.module_function(&raw mut function, module, entry.as_ptr()))
                    }
                    .map_err(action())?;
                    Handle::Module(module, image.clone())
                }
            };
            Module::with(gpu, handle, function, self.0.entry.clone(), self.0.log.clone())
        })
    }

    fn with(
        gpu: &Gpu,
        handle: Handle,
        function: Function,
        entry: String,
        log: String,
    ) -> Result<Module, LaunchError> {
        let driver = gpu.driver();
        let get = |attribute: FunctionAttribute| {
            let mut value = 0;
            // SAFETY: the driver writes the number to where it is told, and the function is loaded.
            unsafe { driver.function_attribute(&raw mut value, attribute as c_int, function) }?;
            Ok(value.unsigned_abs())
        };
        let ask = || -> Result<[u32; 3], DriverError> {
            use FunctionAttribute::{LocalBytes, Registers, StaticSharedBytes};
            Ok([get(Registers)?, get(LocalBytes)?, get(StaticSharedBytes)?])
        };
        let asked = ask().map_err(driver.failed(format!("asking for the code of `{entry}`")));
        let [registers, local_bytes, static_shared_bytes] = asked?;
        Ok(Module(Arc::new(Loaded {
            gpu: gpu.clone(),
            handle,
            function,
            entry,
            registers,
            local_bytes,
            static_shared_bytes,
            log,
            dynamic_shared: Mutex::new(SHARED_WITHOUT_OPT_IN),
        })))
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    /// The driver's handle of the function.
    pub fn function(&self) -> Function {
        self.0.function
    }

    /// Registers of a thread.
    pub fn registers(&self) -> u32 {
        self.0.registers
    }

    /// Bytes of local memory of a thread.
    pub fn local_bytes(&self) -> u32 {
        self.0.local_bytes
    }

    /// Bytes of static shared memory.
    pub fn static_shared_bytes(&self) -> u32 {
        self.0.static_shared_bytes
    }

    /// The assembler's log, of code that was loaded with [`Log::Full`].
    pub fn log(&self) -> &str {
        &self.0.log
    }

    /// Lets launches of a recipe have its shared memory and its clusters.
    pub(crate) fn admit(&self, recipe: &Recipe) -> Result<(), LaunchError> {
        let driver = self.0.gpu.driver();
        let needed = recipe.shared_bytes.saturating_add(self.0.static_shared_bytes);
        if needed > self.0.gpu.shared_limit() {
            return Err(LaunchError::SharedMemory {
                kernel: recipe.name.clone(),
                needed,
                available: self.0.gpu.shared_limit(),
                device: self.0.gpu.name().to_string(),
            });
        }
        let set = |attribute: FunctionAttribute, value: c_int| {
            // SAFETY: the function is loaded.
            unsafe { driver.set_function_attribute(self.0.function, attribute as c_int, value) }
        };
        let mut allowed = self.0.dynamic_shared.lock().unwrap_or_else(PoisonError::into_inner);
        if recipe.shared_bytes > *allowed {
            set(FunctionAttribute::MaxDynamicSharedBytes, recipe.shared_bytes.cast_signed())
                .map_err(driver.failed(format!("asking for shared memory for kernel `{}`", recipe.name)))?;
            *allowed = recipe.shared_bytes;
        }
        if recipe.cluster > PORTABLE_CLUSTER {
            set(FunctionAttribute::NonPortableCluster, 1)
                .map_err(driver.failed(format!("asking for large clusters for kernel `{}`", recipe.name)))?;
        }
        Ok(())
    }

    /// Blocks of a kernel with this code that the GPU holds at once, in whole clusters.
    pub(crate) fn resident_blocks(&self, recipe: &Recipe) -> Result<u32, LaunchError> {
        let driver = self.0.gpu.driver();
        let ask = || -> Result<u32, DriverError> {
            let mut count = 0;
            if recipe.cluster > 1 {
                let attributes = [LaunchAttribute::cluster(recipe.cluster)];
                let config = LaunchConfig {
                    grid: [recipe.cluster, 1, 1],
                    block: [recipe.threads, 1, 1],
                    shared_bytes: recipe.shared_bytes,
                    stream: ptr::null_mut(),
                    attributes: attributes.as_ptr(),
                    attribute_count: 1,
                };
                // SAFETY: the function is loaded; the configuration and its attributes live until after the call.
                unsafe { driver.occupancy_clusters(&raw mut count, self.0.function, &raw const config) }?;
                return Ok(count.unsigned_abs() * recipe.cluster);
            }
            let (threads, shared) = (recipe.threads.cast_signed(), recipe.shared_bytes as usize);
            // SAFETY: the function is loaded.
            unsafe { driver.occupancy_blocks(&raw mut count, self.0.function, threads, shared) }?;
            Ok(count.unsigned_abs() * self.0.gpu.multiprocessors())
        };
        let action = format!("asking how many blocks of kernel `{}` run at once", recipe.name);
        self.0.gpu.within(|| ask().map_err(driver.failed(action)))
    }

    /// Unloads the code.
    ///
    /// # Safety
    ///
    /// No launch of it is under way, no graph that has such a launch will run, and no module, kernel or plan of it is used any more, on any GPU. The
    /// context is alive.
    pub unsafe fn unload(&self) {
        let driver = self.0.gpu.driver();
        let _ = self.0.gpu.within(|| {
            // SAFETY: as the caller says. An error has nobody to go to.
            let _ = unsafe {
                match &self.0.handle {
                    Handle::Library(library) => library.driver.library_unload(library.handle),
                    Handle::Module(module, _) => driver.module_unload(*module),
                }
            };
            Ok(())
        });
    }
}

/// Checks that a GPU and its driver run such a kernel.
pub(crate) fn supported(gpu: &Gpu, recipe: &Recipe) -> Result<(), LaunchError> {
    recipe.check().map_err(|error| LaunchError::Recipe { kernel: recipe.name.clone(), error })?;
    if !recipe.target.runs_on(gpu.capability()) {
        return Err(LaunchError::UnsupportedTarget {
            kernel: recipe.name.clone(),
            target: recipe.target.name.clone(),
            device: gpu.name().to_string(),
            capability: gpu.capability(),
        });
    }
    if recipe.cluster > 1 || !recipe.maps.is_empty() || recipe.waits {
        gpu.driver().has_hopper()?;
    }
    Ok(())
}
