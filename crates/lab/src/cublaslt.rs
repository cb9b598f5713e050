//! cuBLASLt, NVIDIA's library of matrix products, as a peer to be measured against. It is loaded when it is first asked for, and
//! nothing else needs it.
//!
//! Names, numbers and rules are those of the [cuBLAS documentation](https://docs.nvidia.com/cuda/cublas/), chapter "Using the cublasLt
//! API", which are the same in its versions 12 and 13. What the library returns are numbers here and not Rust enumerations, so one
//! that is newer does no harm.

#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Arc, OnceLock};
use std::{env, fmt};

use libloading::Library;
use tilewright_machine::DType;

use tilewright_runtime::{Buffer, CudaDevice, CudaStream, Device, RuntimeError, StreamWork};

use crate::runner::CudaRunner;

/// The name, for errors.
const LIBRARY: &str = "cuBLASLt";
/// The environment variable that names the library.
const VARIABLE: &str = "TILEWRIGHT_CUBLASLT";
/// File names of the library, as dynamic loaders find them.
const NAMES: [&str; 3] = ["libcublasLt.so", "libcublasLt.so.13", "libcublasLt.so.12"];
/// Usual folders of CUDA.
const FOLDERS: [&str; 2] = ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];
/// Bytes of memory that a product may use in addition to its operands.
const WORKSPACE: usize = 64 << 20;
/// `CUBLAS_STATUS_SUCCESS`.
const SUCCESS: Status = 0;

type Status = u32;
type Opaque = *mut c_void;

/// `cublasLtMatmulAlgo_t`.
type RawAlgorithm = [u64; 8];

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Heuristic {
    algorithm: RawAlgorithm,
    workspace: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Heuristic>() == 96);

/// Numbers of `cublasLtMatmulDescAttributes_t`.
mod desc {
    pub const TRANSPOSE_A: u32 = 3;
    pub const TRANSPOSE_B: u32 = 4;
    pub const SCALE_A: u32 = 17;
    pub const SCALE_B: u32 = 18;
    pub const FAST_ACCUMULATION: u32 = 25;
}

/// Numbers of `cublasLtMatrixLayoutAttribute_t`.
mod layout {
    pub const BATCHES: u32 = 5;
    pub const BATCH_STRIDE: u32 = 6;
}

/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
const MAX_WORKSPACE: u32 = 1;

/// Attributes of `cublasLtMatmulAlgoConfigAttributes_t` that describe an algorithm: the attribute's number, its bytes, and a word for it.
const CONFIG: [(u32, usize, &str); 7] = [
    (0, 4, "algorithm"),
    (1, 4, "tile"),
    (6, 4, "stages"),
    (8, 2, "cluster"),
    (2, 4, "split-K"),
    (4, 4, "swizzle"),
    (5, 4, "option"),
];

/// The functions of the library.
struct Api {
    path: String,
    version: usize,
    create: unsafe extern "C" fn(*mut Opaque) -> Status,
    destroy: unsafe extern "C" fn(Opaque) -> Status,
    desc_create: unsafe extern "C" fn(*mut Opaque, u32, u32) -> Status,
    desc_set: unsafe extern "C" fn(Opaque, u32, *const c_void, usize) -> Status,
    desc_destroy: unsafe extern "C" fn(Opaque) -> Status,
    layout_create: unsafe extern "C" fn(*mut Opaque, u32, u64, u64, i64) -> Status,
    layout_set: unsafe extern "C" fn(Opaque, u32, *const c_void, usize) -> Status,
    layout_destroy: unsafe extern "C" fn(Opaque) -> Status,
    preference_create: unsafe extern "C" fn(*mut Opaque) -> Status,
    preference_set: unsafe extern "C" fn(Opaque, u32, *const c_void, usize) -> Status,
    preference_destroy: unsafe extern "C" fn(Opaque) -> Status,
    heuristic: unsafe extern "C" fn(
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        Opaque,
        c_int,
        *mut Heuristic,
        *mut c_int,
    ) -> Status,
    config: unsafe extern "C" fn(*const RawAlgorithm, u32, *mut c_void, usize, *mut usize) -> Status,
    matmul: unsafe extern "C" fn(
        Opaque,
        Opaque,
        *const c_void,
        *const c_void,
        Opaque,
        *const c_void,
        Opaque,
        *const c_void,
        *const c_void,
        Opaque,
        *mut c_void,
        Opaque,
        *const RawAlgorithm,
        *mut c_void,
        usize,
        *mut c_void,
    ) -> Status,
    /// Never unloaded before the functions are gone.
    _library: Library,
}

/// Paths at which the library is looked for: the one that the environment names, else the usual ones.
fn candidates(named: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(path) = named {
        return vec![path];
    }
    let installed = FOLDERS.iter().flat_map(|folder| NAMES.map(|name| Path::new(folder).join(name)));
    NAMES.iter().map(PathBuf::from).chain(installed).collect()
}

/// Loads the first of these files that is there and is the library; otherwise why none is.
fn load(candidates: &[PathBuf]) -> Result<Api, String> {
    let mut tried = Vec::new();
    for path in candidates {
        // SAFETY: loads a library that the user names or that NVIDIA installed; its initialisers may run at any time.
        match unsafe { Library::new(path) } {
            Ok(library) => return functions(path, library),
            Err(_) => tried.push(path.display().to_string()),
        }
    }
    Err(format!(
        "none of {} could be loaded; set {VARIABLE} to the path of the library, e.g. \
         {VARIABLE}=/usr/local/cuda/lib64/libcublasLt.so.13 (Python's packages have it in site-packages/nvidia/cu13/lib \
         or site-packages/nvidia/cublas/lib)",
        tried.join(", ")
    ))
}

/// The library's functions, or which of them it lacks.
fn functions(path: &Path, library: Library) -> Result<Api, String> {
    macro_rules! function {
        ($name:literal) => {
            // SAFETY: the symbol has the type that cublasLt.h declares, which is the type of the field that it goes to.
            *unsafe { library.get(concat!($name, "\0").as_bytes()) }
                .map_err(|_| format!("`{}` has no function {}", path.display(), $name))?
        };
    }
    let version: unsafe extern "C" fn() -> usize = function!("cublasLtGetVersion");
    Ok(Api {
        path: path.display().to_string(),
        // SAFETY: takes nothing and needs no context.
        version: unsafe { version() },
        create: function!("cublasLtCreate"),
        destroy: function!("cublasLtDestroy"),
        desc_create: function!("cublasLtMatmulDescCreate"),
        desc_set: function!("cublasLtMatmulDescSetAttribute"),
        desc_destroy: function!("cublasLtMatmulDescDestroy"),
        layout_create: function!("cublasLtMatrixLayoutCreate"),
        layout_set: function!("cublasLtMatrixLayoutSetAttribute"),
        layout_destroy: function!("cublasLtMatrixLayoutDestroy"),
        preference_create: function!("cublasLtMatmulPreferenceCreate"),
        preference_set: function!("cublasLtMatmulPreferenceSetAttribute"),
        preference_destroy: function!("cublasLtMatmulPreferenceDestroy"),
        heuristic: function!("cublasLtMatmulAlgoGetHeuristic"),
        config: function!("cublasLtMatmulAlgoConfigGetAttribute"),
        matmul: function!("cublasLtMatmul"),
        _library: library,
    })
}

/// The library, loaded once.
fn api() -> Result<Arc<Api>, RuntimeError> {
    static API: OnceLock<Result<Arc<Api>, String>> = OnceLock::new();
    let loaded =
        API.get_or_init(|| load(&candidates(env::var_os(VARIABLE).map(PathBuf::from))).map(Arc::new));
    loaded.clone().map_err(|reason| RuntimeError::NoLibrary { library: LIBRARY, reason })
}

/// The documentation's name for a status.
fn status_name(status: Status) -> String {
    let name = match status {
        0 => "CUBLAS_STATUS_SUCCESS",
        1 => "CUBLAS_STATUS_NOT_INITIALIZED",
        3 => "CUBLAS_STATUS_ALLOC_FAILED",
        7 => "CUBLAS_STATUS_INVALID_VALUE",
        8 => "CUBLAS_STATUS_ARCH_MISMATCH",
        11 => "CUBLAS_STATUS_MAPPING_ERROR",
        13 => "CUBLAS_STATUS_EXECUTION_FAILED",
        14 => "CUBLAS_STATUS_INTERNAL_ERROR",
        15 => "CUBLAS_STATUS_NOT_SUPPORTED",
        16 => "CUBLAS_STATUS_LICENSE_ERROR",
        _ => return format!("status {status}"),
    };
    name.to_string()
}

fn check(status: Status, action: impl FnOnce() -> String) -> Result<(), RuntimeError> {
    if status == SUCCESS {
        return Ok(());
    }
    Err(RuntimeError::Library { library: LIBRARY, action: action(), status: status_name(status) })
}

/// The number of an element type in `cudaDataType_t`.
fn type_number(dtype: DType) -> Option<u32> {
    Some(match dtype {
        DType::F32 => 0,
        DType::F16 => 2,
        DType::I8 => 3,
        DType::I32 => 10,
        DType::BF16 => 14,
        DType::E4M3 => 28,
        DType::E5M2 => 29,
        _ => return None,
    })
}

/// A factor of a product, as it lies in memory. All matrices of a batch follow each other without gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    /// The element type.
    pub dtype: DType,
    /// True if the rows of `a[m, k]`, or `b[n, k]`, are contiguous; otherwise its transpose is stored row by row.
    pub k_major: bool,
}

/// `c[m, n] = alpha · a[m, k] · b[n, k]ᵀ`, for each matrix of a batch; `c` is stored row by row.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Product {
    /// Rows of `a` and `c`.
    pub m: usize,
    /// Rows of `b`, columns of `c`.
    pub n: usize,
    /// Columns of `a` and `b`.
    pub k: usize,
    /// Matrices of each operand.
    pub batches: usize,
    /// The first factor.
    pub a: Factor,
    /// The second factor.
    pub b: Factor,
    /// The element type of `c`: sums are i32 if it is i32, and f32 otherwise.
    pub c: DType,
    /// Factor of every element; 1 if sums are i32.
    pub alpha: f32,
    /// True if 8-bit floats are summed in the tensor cores' own precision throughout, which is faster; otherwise partial sums are
    /// added in f32 from time to time.
    pub fast_accumulation: bool,
}

impl Product {
    /// The product of two factors that are contiguous along k, of one type; `alpha` is 1.
    pub fn new([m, n, k]: [usize; 3], factors: DType, c: DType) -> Self {
        let factor = Factor { dtype: factors, k_major: true };
        Product { m, n, k, batches: 1, a: factor, b: factor, c, alpha: 1.0, fast_accumulation: true }
    }

    /// Bytes of `a`, `b` and `c`; `None` if they are more than an address reaches.
    fn bytes(&self) -> Option<[usize; 3]> {
        let of = |rows: usize, columns: usize, dtype: DType| {
            let elements = rows.checked_mul(columns)?.checked_mul(self.batches)?;
            elements.checked_mul(4)?;
            Some(dtype.bytes_of(elements))
        };
        Some([
            of(self.m, self.k, self.a.dtype)?,
            of(self.n, self.k, self.b.dtype)?,
            of(self.m, self.n, self.c)?,
        ])
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Product { m, n, k, batches, a, b, c, .. } = self;
        write!(f, "{m} × {n} × {k}, {} × {} to {c}", a.dtype, b.dtype)?;
        if *batches > 1 { write!(f, ", {batches} times") } else { Ok(()) }
    }
}

/// Scales of 8-bit operands: one f32 each.
#[derive(Clone, Copy, Debug)]
pub struct Scales<'b> {
    /// Factor of the elements of `a`.
    pub a: &'b Buffer,
    /// Factor of the elements of `b`.
    pub b: &'b Buffer,
}

/// A way to compute a product, as the library's heuristics propose it.
#[derive(Clone, PartialEq, Debug)]
pub struct Algorithm {
    raw: RawAlgorithm,
    /// Its place among those proposed, from 0.
    pub rank: usize,
    /// Bytes of memory that it uses in addition to the operands.
    pub workspace_bytes: usize,
    /// Waves: times that the GPU is filled, as the library estimates it.
    pub waves: f32,
    /// The library's numbers for its parts, e.g. `algorithm 66, tile 24, stages 36`.
    pub config: String,
}

/// The cuBLASLt that is loaded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CublasLtPath {
    /// Path by which it was loaded.
    pub path: String,
    /// Its version, e.g. 130101 for 13.1.1.
    pub version: usize,
}

/// A handle of the library.
struct Handle {
    raw: Opaque,
    api: Arc<Api>,
}

// SAFETY: the documentation says that one handle can be used from several threads at the same time.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle was created once and is destroyed once. An error has nobody to go to.
        let _ = unsafe { (self.api.destroy)(self.raw) };
    }
}

/// An object of the library that is only passed back to it.
struct Object {
    raw: Opaque,
    destroy: unsafe extern "C" fn(Opaque) -> Status,
}

impl Object {
    fn new(
        create: impl FnOnce(*mut Opaque) -> Status,
        destroy: unsafe extern "C" fn(Opaque) -> Status,
        what: &str,
    ) -> Result<Self, RuntimeError> {
        let mut raw = ptr::null_mut();
        check(create(&raw mut raw), || format!("creating {what}"))?;
        Ok(Object { raw, destroy })
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the object was created once and is destroyed once.
        let _ = unsafe { (self.destroy)(self.raw) };
    }
}

/// A product as the library wants it described. The library's matrices are stored column by column, so it is told to compute
/// cᵀ[n, m] = b[n, k] · aᵀ[k, m]: its first factor is `b`, its second `a`.
struct Description {
    desc: Object,
    a: Object,
    b: Object,
    c: Object,
    /// The bits of 1 or `alpha`, and of 0, in the type of the sums.
    factors: [u32; 2],
}

/// Describes a product. `scales` are the addresses of the factors' scales, that of `a` first.
fn describe(api: &Api, product: &Product, scales: Option<[u64; 2]>) -> Result<Description, RuntimeError> {
    let refuse = |status: &str| RuntimeError::Library {
        library: LIBRARY,
        action: format!("describing {product}"),
        status: status.to_string(),
    };
    let number = |dtype: DType| {
        type_number(dtype).ok_or_else(|| refuse(&format!("it has no elements of type {dtype}")))
    };
    let Product { m, n, k, batches, .. } = *product;
    if [m, n, k, batches].contains(&0) || batches > i32::MAX as usize || product.bytes().is_none() {
        return Err(refuse("a size is 0 or too large"));
    }
    let set = |object: &Object, set: Setter, attribute: u32, value: &[u8], what: &str| {
        // SAFETY: the object is of the kind that the function sets; the value is as long as told, and is copied.
        let status = unsafe { set(object.raw, attribute, value.as_ptr().cast(), value.len()) };
        check(status, || format!("describing {product}: {what}"))
    };
    let matrix = |dtype: DType, rows: usize, columns: usize| -> Result<Object, RuntimeError> {
        let ty = number(dtype)?;
        let create = |raw| {
            // SAFETY: the object is written to where it is told.
            unsafe { (api.layout_create)(raw, ty, rows as u64, columns as u64, rows as i64) }
        };
        let made = Object::new(create, api.layout_destroy, "the layout of a matrix")?;
        if batches > 1 {
            let (count, step) = (batches as i32, (rows * columns) as i64);
            set(&made, api.layout_set, layout::BATCHES, &count.to_ne_bytes(), "the batch")?;
            set(&made, api.layout_set, layout::BATCH_STRIDE, &step.to_ne_bytes(), "the batch")?;
        }
        Ok(made)
    };
    // Row-major [rows, k] is column-major [k, rows], and the other way round.
    let factor = |factor: Factor, rows: usize| {
        let (height, width) = if factor.k_major { (k, rows) } else { (rows, k) };
        matrix(factor.dtype, height, width)
    };
    let integers = product.c == DType::I32;
    // CUBLAS_COMPUTE_32I with CUDA_R_32I, or CUBLAS_COMPUTE_32F with CUDA_R_32F.
    let (compute, scale) = if integers { (72, 10) } else { (68, 0) };
    // SAFETY: the object is written to where it is told.
    let create = |raw| unsafe { (api.desc_create)(raw, compute, scale) };
    let desc = Object::new(create, api.desc_destroy, "the description of a product")?;
    // CUBLAS_OP_N is 0, CUBLAS_OP_T 1.
    let first = u32::from(product.b.k_major).to_ne_bytes();
    let second = u32::from(!product.a.k_major).to_ne_bytes();
    set(&desc, api.desc_set, desc::TRANSPOSE_A, &first, "how the first factor lies")?;
    set(&desc, api.desc_set, desc::TRANSPOSE_B, &second, "how the second factor lies")?;
    let eight = |dtype| matches!(dtype, DType::E4M3 | DType::E5M2);
    if eight(product.a.dtype) || eight(product.b.dtype) {
        let fast = [u8::from(product.fast_accumulation)];
        set(&desc, api.desc_set, desc::FAST_ACCUMULATION, &fast, "the precision of sums")?;
    }
    if let Some(scales) = scales {
        for (attribute, pointer) in [desc::SCALE_B, desc::SCALE_A].into_iter().zip(scales) {
            set(&desc, api.desc_set, attribute, &pointer.to_ne_bytes(), "a factor's scale")?;
        }
    }
    let factors = [if integers { 1 } else { product.alpha.to_bits() }, 0];
    Ok(Description {
        desc,
        a: factor(product.a, m)?,
        b: factor(product.b, n)?,
        c: matrix(product.c, n, m)?,
        factors,
    })
}

/// The parts of an algorithm that are not 0, as text.
fn config(api: &Api, algorithm: &RawAlgorithm) -> String {
    let part = |(number, bytes, word): (u32, usize, &str)| {
        let (mut value, mut written) = ([0u8; 4], 0usize);
        // SAFETY: at most four bytes are written, to where it is told.
        let status =
            unsafe { (api.config)(algorithm, number, value.as_mut_ptr().cast(), bytes, &raw mut written) };
        // Little-endian: bytes that are not written are the high ones.
        let value = u32::from_le_bytes(value);
        (status == SUCCESS && value != 0).then(|| format!("{word} {value}"))
    };
    CONFIG.into_iter().filter_map(part).collect::<Vec<_>>().join(", ")
}

/// cuBLASLt on a GPU.
pub struct CublasLt<'a> {
    device: &'a CudaDevice,
    handle: Arc<Handle>,
    workspace: Buffer,
}

impl fmt::Debug for CublasLt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CublasLt").field("library", &self.library()).finish_non_exhaustive()
    }
}

impl<'a> CublasLt<'a> {
    /// Loads cuBLASLt, if that has not been done, and opens it on this GPU. It is looked for where the environment variable
    /// `TILEWRIGHT_CUBLASLT` says; without that, where the dynamic loader looks, and in `/usr/local/cuda`.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::NoLibrary`] says what was tried.
    pub fn open(device: &'a CudaDevice) -> Result<Self, RuntimeError> {
        let api = api()?;
        device.bind()?;
        let mut raw = ptr::null_mut();
        // SAFETY: the context is current; the handle is written to where it is told.
        check(unsafe { (api.create)(&raw mut raw) }, || format!("opening it on {}", device.name()))?;
        let handle = Arc::new(Handle { raw, api });
        Ok(CublasLt { device, handle, workspace: device.alloc(WORKSPACE)? })
    }

    /// Path and version of the library.
    pub fn library(&self) -> CublasLtPath {
        CublasLtPath { path: self.handle.api.path.clone(), version: self.handle.api.version }
    }

    fn describe(&self, product: &Product, scales: Option<Scales<'_>>) -> Result<Description, RuntimeError> {
        let pointers = |scales: Scales<'_>| Ok([self.pointer(scales.a, 4)?, self.pointer(scales.b, 4)?]);
        describe(&self.handle.api, product, scales.map(pointers).transpose()?)
    }

    /// The buffer's address, if it has as many bytes.
    fn pointer(&self, buffer: &Buffer, bytes: usize) -> Result<u64, RuntimeError> {
        let pointer = self.device.address(buffer)?;
        if buffer.bytes() < bytes {
            let (given, expected) = (buffer.bytes(), bytes);
            return Err(RuntimeError::DataLength { given, expected, unit: "bytes" });
        }
        Ok(pointer)
    }

    /// The first `count` ways to compute the product that the library's heuristics propose, the most promising first. They may use
    /// up to 64 MiB of memory in addition to the operands.
    ///
    /// # Errors
    ///
    /// The library has no way to compute such a product, or fails.
    pub fn heuristics(
        &self,
        product: &Product,
        scales: Option<Scales<'_>>,
        count: usize,
    ) -> Result<Vec<Algorithm>, RuntimeError> {
        self.device.bind()?;
        let api = &self.handle.api;
        let described = self.describe(product, scales)?;
        // SAFETY: the object is written to where it is told.
        let create = |raw| unsafe { (api.preference_create)(raw) };
        let preference = Object::new(create, api.preference_destroy, "a preference")?;
        let most = WORKSPACE.to_ne_bytes();
        // SAFETY: the value is as long as told, and is copied.
        let status =
            unsafe { (api.preference_set)(preference.raw, MAX_WORKSPACE, most.as_ptr().cast(), most.len()) };
        check(status, || "setting a preference".to_string())?;
        let none =
            Heuristic { algorithm: [0; 8], workspace: 0, state: u32::MAX, waves: 0.0, reserved: [0; 4] };
        let wanted = count.clamp(1, 100);
        let mut found = vec![none; wanted];
        let mut returned: c_int = 0;
        // SAFETY: every object lives; `found` has room for as many results as are asked for.
        let status = unsafe {
            (api.heuristic)(
                self.handle.raw,
                described.desc.raw,
                described.b.raw,
                described.a.raw,
                described.c.raw,
                described.c.raw,
                preference.raw,
                wanted as c_int,
                found.as_mut_ptr(),
                &raw mut returned,
            )
        };
        let action = || format!("asking how to compute {product}");
        check(status, action)?;
        found.truncate(usize::try_from(returned).unwrap_or(0));
        let usable: Vec<Algorithm> = found
            .iter()
            .enumerate()
            .filter(|(_, result)| result.state == SUCCESS && result.workspace <= WORKSPACE)
            .map(|(rank, result)| Algorithm {
                raw: result.algorithm,
                rank,
                workspace_bytes: result.workspace,
                waves: result.waves,
                config: config(&self.handle.api, &result.algorithm),
            })
            .collect();
        if usable.is_empty() {
            let status = "it knows no way".to_string();
            return Err(RuntimeError::Library { library: LIBRARY, action: action(), status });
        }
        Ok(usable)
    }

    /// The product, computed in this way, as something that can be run and measured. `a`, `b` and `c` must hold at least as
    /// many elements as the product says.
    ///
    /// # Errors
    ///
    /// A buffer is too small or another device's, or the library refuses the product.
    pub fn product(
        &self,
        name: impl Into<String>,
        product: &Product,
        algorithm: &Algorithm,
        [a, b, c]: [&Buffer; 3],
        scales: Option<Scales<'_>>,
    ) -> Result<CudaRunner<'a>, RuntimeError> {
        self.device.bind()?;
        let described = self.describe(product, scales)?;
        // `describe` has refused sizes that are too large.
        let bytes = product.bytes().unwrap_or([usize::MAX; 3]);
        let pointers = [self.pointer(a, bytes[0])?, self.pointer(b, bytes[1])?, self.pointer(c, bytes[2])?];
        let mut buffers = vec![a.clone(), b.clone(), c.clone(), self.workspace.clone()];
        buffers.extend(scales.iter().flat_map(|scales| [scales.a.clone(), scales.b.clone()]));
        let matmul = Matmul {
            described,
            algorithm: algorithm.raw,
            pointers,
            workspace: self.pointer(&self.workspace, WORKSPACE)?,
            what: product.to_string(),
            _buffers: buffers,
            handle: self.handle.clone(),
        };
        Ok(CudaRunner::new(self.device, name, matmul))
    }
}

type Setter = unsafe extern "C" fn(Opaque, u32, *const c_void, usize) -> Status;

/// A product that can be put on a stream any number of times.
struct Matmul {
    described: Description,
    algorithm: RawAlgorithm,
    /// Of `a`, `b` and `c`.
    pointers: [u64; 3],
    workspace: u64,
    what: String,
    /// Buffers that the pointers point to.
    _buffers: Vec<Buffer>,
    handle: Arc<Handle>,
}

impl StreamWork for Matmul {
    fn name(&self) -> String {
        self.what.clone()
    }

    fn enqueue(&self, stream: &CudaStream) -> Result<(), RuntimeError> {
        let Description { desc, a, b, c, factors } = &self.described;
        let address = |pointer: u64| ptr::with_exposed_provenance_mut::<c_void>(pointer as usize);
        let [in_a, in_b, out] = self.pointers.map(address);
        // SAFETY: every object lives; the buffers are as large as the matrices (`product`), and stay alive as long as `self`, which
        // outlives the work on the stream; the context is current; alpha and beta are of the type of the sums, and are copied.
        let status = unsafe {
            (self.handle.api.matmul)(
                self.handle.raw,
                desc.raw,
                (&raw const factors[0]).cast(),
                in_b,
                b.raw,
                in_a,
                a.raw,
                (&raw const factors[1]).cast(),
                out,
                c.raw,
                out,
                c.raw,
                &raw const self.algorithm,
                address(self.workspace),
                WORKSPACE,
                stream.raw(),
            )
        };
        check(status, || format!("computing {}", self.what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_alone_says_where_the_library_is() {
        let named = PathBuf::from("/somewhere/libcublasLt.so.13");
        assert_eq!(candidates(Some(named.clone())), [named]);
        let usual = candidates(None);
        assert_eq!(usual[1], PathBuf::from("libcublasLt.so.13"));
        assert!(usual.contains(&PathBuf::from("/usr/local/cuda/lib64/libcublasLt.so")), "{usual:?}");
    }

    #[test]
    fn a_library_that_is_missing_or_another_is_an_error() {
        let missing = PathBuf::from("/nowhere/libcublasLt.so.13");
        let reason = load(std::slice::from_ref(&missing)).err().unwrap();
        let error = RuntimeError::NoLibrary { library: LIBRARY, reason }.to_string();
        for part in ["cuBLASLt is not available: none of /nowhere/libcublasLt.so.13", "TILEWRIGHT_CUBLASLT="]
        {
            assert!(error.contains(part), "{error}");
        }
        // Some library that every Linux has.
        if let Some(error) =
            load(&[missing, PathBuf::from("libc.so.6")]).err().filter(|e| !e.contains("none"))
        {
            assert_eq!(error, "`libc.so.6` has no function cublasLtGetVersion");
        }
    }

    /// The library that the environment names can be asked what it takes, also without a GPU.
    #[test]
    fn the_library_takes_what_it_is_told() {
        let Some(path) = env::var_os(VARIABLE) else {
            eprintln!("nothing to ask: {VARIABLE} is not set");
            return;
        };
        let api = load(&candidates(Some(path.into()))).unwrap();
        assert!((120_000..200_000).contains(&api.version), "{}", api.version);
        let types = [
            (DType::F16, DType::F16),
            (DType::F16, DType::F32),
            (DType::BF16, DType::BF16),
            (DType::E4M3, DType::BF16),
            (DType::E5M2, DType::F16),
            (DType::I8, DType::I32),
        ];
        for (factors, result) in types {
            let product = Product { batches: 3, ..Product::new([64, 32, 128], factors, result) };
            let scales = (factors.bits() == 8 && result != DType::I32).then_some([16, 32]);
            describe(&api, &product, scales).unwrap();
        }
        for (number, bytes, word) in CONFIG {
            let (mut value, mut written) = ([0u8; 4], 0usize);
            // SAFETY: at most four bytes are written, to where it is told.
            let status =
                unsafe { (api.config)(&[0; 8], number, value.as_mut_ptr().cast(), bytes, &raw mut written) };
            assert_eq!((status, written), (SUCCESS, bytes), "{word}");
        }
        let none = Product { m: 0, ..Product::new([1; 3], DType::F16, DType::F16) };
        let error = |product| describe(&api, &product, None).err().unwrap().to_string();
        assert!(error(none).contains("a size is 0 or too large"));
        let odd = Product::new([16; 3], DType::U4, DType::F16);
        assert!(error(odd).ends_with("it has no elements of type u4"));
    }

    #[test]
    fn statuses_have_names() {
        assert_eq!(status_name(15), "CUBLAS_STATUS_NOT_SUPPORTED");
        assert_eq!(status_name(99), "status 99");
        let error = check(7, || "computing it".to_string()).unwrap_err();
        assert_eq!(error.to_string(), "cuBLASLt: computing it: CUBLAS_STATUS_INVALID_VALUE");
        assert!(check(SUCCESS, String::new).is_ok());
    }

    #[test]
    fn products_know_their_bytes() {
        let product = Product::new([3, 5, 7], DType::F16, DType::F32);
        assert_eq!(product.bytes(), Some([42, 70, 60]));
        assert_eq!(product.to_string(), "3 × 5 × 7, f16 × f16 to f32");
        let many = Product { batches: 2, ..product };
        assert_eq!(many.bytes(), Some([84, 140, 120]));
        assert!(many.to_string().ends_with(", 2 times"));
        assert_eq!(Product { m: usize::MAX, ..product }.bytes(), None);
        let numbers: Vec<_> = DType::ALL.into_iter().filter_map(type_number).collect();
        assert_eq!(numbers, [2, 14, 0, 28, 29, 3, 10]);
    }
}
