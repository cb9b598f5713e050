//! DLPack's table of C functions (dlpack.h from version 1.3), by which a type of tensors says what its objects are without calls of Python.
#![allow(unsafe_code, reason = "the functions are of C")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyType;
use tilewright::launch::DType;

/// The name of the capsules that hold tables.
const NAME: &CStr = c"dlpack_exchange_api";
/// The name of capsules that hold a tensor which nobody has taken yet.
const GIVEN: &CStr = c"dltensor";
/// The major version of what is below.
const MAJOR: u32 = 1;
/// A device of CUDA, and memory that it manages (`DLDeviceType`).
pub const CUDA: [c_int; 2] = [2, 13];

/// `DLTensor`.
#[repr(C)]
struct Lent {
    data: *mut c_void,
    device_type: c_int,
    device_id: c_int,
    rank: c_int,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *const i64,
    strides: *const i64,
    offset: u64,
}

impl Lent {
    /// The tensor as launches read it.
    ///
    /// # Safety
    ///
    /// The extents and the strides live as long as is said of them.
    unsafe fn loan<'a>(&self) -> Loan<'a> {
        let rank = usize::try_from(self.rank).unwrap_or(0);
        // SAFETY: it leads to as many numbers as there are modes, or to nothing, and lives as the caller says.
        let list = |at: *const i64| (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, rank) });
        Loan {
            pointer: self.data.addr() as u64 + self.offset,
            dtype: dtype(self.code, self.bits, self.lanes),
            shape: list(self.shape).unwrap_or_default(),
            strides: list(self.strides),
            device: CUDA.contains(&self.device_type).then_some(self.device_id.unsigned_abs()),
        }
    }
}

/// A tensor that a library has given away in a capsule, as of `__dlpack__`. The capsule keeps its memory.
pub fn given<'a>(capsule: &'a Bound<'_, PyAny>) -> Option<Loan<'a>> {
    // SAFETY: a capsule of this name holds a `DLManagedTensor`, which begins with its tensor, and lives as long as the capsule.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), GIVEN.as_ptr()) == 0 {
            return None;
        }
        let lent: *const Lent = ffi::PyCapsule_GetPointer(capsule.as_ptr(), GIVEN.as_ptr()).cast();
        Some((*lent).loan())
    }
}

impl Loan<'_> {
    /// True of a tensor in row-major order without gaps.
    pub fn is_dense(&self) -> bool {
        let Some(strides) = self.strides else { return true };
        let mut step = 1;
        for (extent, stride) in self.shape.iter().zip(strides).rev() {
            if *extent != 1 && *stride != step {
                return false;
            }
            step *= extent;
        }
        true
    }
}

/// The function that lends a tensor for the length of a call (`DLPackDLTensorFromPyObjectNoSync`).
type Lend = unsafe extern "C" fn(*mut ffi::PyObject, *mut Lent) -> c_int;
/// The function that says which stream of a device is current (`DLPackCurrentWorkStream`).
type CurrentStream = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

/// `DLPackExchangeAPI`.
#[repr(C)]
struct Table {
    major: u32,
    minor: u32,
    before: *const Table,
    allocate: *const c_void,
    export: *const c_void,
    import: *const c_void,
    lend: Option<Lend>,
    current_stream: Option<CurrentStream>,
}

/// The functions of a library of tensors that launches call.
#[derive(Clone, Copy, Debug)]
pub struct Exchange {
    lend: Lend,
    current_stream: CurrentStream,
}

/// A tensor as its library lends it for the length of a call.
pub struct Loan<'a> {
    /// The address of the first element.
    pub pointer: u64,
    /// The type; none where no kernel has it.
    pub dtype: Option<DType>,
    /// The extents.
    pub shape: &'a [i64],
    /// The strides, in elements; none of a tensor that is row-major.
    pub strides: Option<&'a [i64]>,
    /// The number of the GPU; none of what is elsewhere.
    pub device: Option<u32>,
}

/// Element types by the codes, bits and lanes of DLPack.
fn dtype(code: u8, bits: u8, lanes: u16) -> Option<DType> {
    Some(match (code, bits, lanes) {
        (0, 8, 1) => DType::I8,
        (0, 16, 1) => DType::I16,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (1, 8, 1) => DType::U8,
        (1, 16, 1) => DType::U16,
        (1, 32, 1) => DType::U32,
        (1, 64, 1) => DType::U64,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (4, 16, 1) => DType::BF16,
        (6, 8, 1) => DType::Bool,
        (10, 8, 1) => DType::E4M3,
        (12, 8, 1) => DType::E5M2,
        (14, 8, 1) => DType::UE8M0,
        // Two in a byte.
        (17, 4, 2) => DType::E2M1,
        _ => return None,
    })
}

impl Exchange {
    /// The functions of a type, if it has such that are meant for its objects: a class with a dispatch of its own stands between others and what it wraps.
    pub fn of(class: &Bound<'_, PyType>) -> PyResult<Option<Exchange>> {
        let py = class.py();
        let (name, dispatch) = (intern!(py, "__dlpack_c_exchange_api__"), intern!(py, "__torch_dispatch__"));
        for owner in class.mro() {
            let own = owner.getattr(intern!(py, "__dict__"))?;
            if own.contains(name)? {
                let capsule = class.getattr(name)?;
                // SAFETY: a capsule of this name is what dlpack.h says.
                return Ok(unsafe { Exchange::in_capsule(capsule.as_ptr()) });
            }
            if own.contains(dispatch)? {
                return Ok(None);
            }
        }
        Ok(None)
    }

    /// The functions of a capsule's table, or of the first of those before it that is of our version.
    ///
    /// # Safety
    ///
    /// A capsule of that name holds a table that lives as long as the process.
    unsafe fn in_capsule(capsule: *mut ffi::PyObject) -> Option<Exchange> {
        // SAFETY: the name is asked for before the pointer.
        let mut at: *const Table = unsafe {
            if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 0 {
                return None;
            }
            ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast()
        };
        while !at.is_null() {
            // SAFETY: the table lives as long as the process, as the caller says, and the first fields are the same in all versions.
            let (major, before) = unsafe { ((*at).major, (*at).before) };
            if major == MAJOR {
                // SAFETY: as above, and the version says that these are there.
                let (lend, current_stream) = unsafe { ((*at).lend, (*at).current_stream) };
                return Some(Exchange { lend: lend?, current_stream: current_stream? });
            }
            at = before;
        }
        None
    }

    /// A tensor of the type.
    pub fn lend<'a>(&self, value: &'a Bound<'_, PyAny>) -> PyResult<Loan<'a>> {
        let mut lent = MaybeUninit::<Lent>::uninit();
        // SAFETY: the object is of the type whose function this is, which writes the tensor to where it is told unless it fails.
        let lent = unsafe {
            if (self.lend)(value.as_ptr(), lent.as_mut_ptr()) != 0 {
                return Err(PyErr::fetch(value.py()));
            }
            lent.assume_init()
        };
        // SAFETY: it lives as long as nobody changes the object.
        Ok(unsafe { lent.loan() })
    }

    /// The handle of the library's current stream on a GPU.
    pub fn current_stream(&self, py: Python<'_>, device: u32) -> PyResult<u64> {
        let mut stream = ptr::null_mut();
        // SAFETY: the function writes the handle to where it is told.
        let failed = unsafe { (self.current_stream)(CUDA[0], device.cast_signed(), &raw mut stream) != 0 };
        if failed { Err(PyErr::fetch(py)) } else { Ok(stream.addr() as u64) }
    }
}
