//! Tensors of others on GPUs: by the functions of their type ([`Exchange`]), those of torch without such by their methods, others by `__cuda_array_interface__` or DLPack's capsules.

use std::cell::RefCell;
use std::sync::{PoisonError, RwLock};

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tilewright::launch::{DType, MAX_RANK};

use crate::error::{Class, said};
use crate::exchange::{self, Exchange, Loan};

/// A tensor on a GPU.
#[derive(Debug)]
pub struct Tensor {
    /// The address.
    pub pointer: u64,
    /// The type.
    pub dtype: DType,
    /// The GPU's number.
    pub device: u32,
    /// The origin of the stream that is current.
    pub current: CurrentStream,
    /// The memory's keeper, where it is not the argument.
    pub keeper: Option<Py<PyAny>>,
    rank: usize,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

/// The origin of the stream on which the library of a tensor works.
#[derive(Clone, Copy, Debug)]
pub enum CurrentStream {
    /// Its table.
    Exchange(Exchange),
    /// Torch, where it is imported.
    Torch,
    /// The stream itself.
    Stream(u64),
}

impl Tensor {
    fn new(
        py: Python<'_>,
        name: &str,
        (pointer, dtype): (u64, DType),
        (extents, steps): (&[i64], Option<&[i64]>),
        (device, current): (u32, CurrentStream),
    ) -> PyResult<Tensor> {
        let rank = extents.len();
        if rank > MAX_RANK {
            let message = format!("`{name}` has {rank} modes, and kernels have at most {MAX_RANK}");
            return Err(said(py, Class::Launch, message));
        }
        if let Some(steps) = steps.filter(|steps| steps.len() != rank) {
            let message = format!("`{name}` has {rank} modes and {} strides", steps.len());
            return Err(said(py, Class::Launch, message));
        }
        let (mut shape, mut strides) = ([1; MAX_RANK], [1; MAX_RANK]);
        shape[..rank].copy_from_slice(extents);
        match steps {
            Some(steps) => strides[..rank].copy_from_slice(steps),
            None => {
                for mode in (1..rank).rev() {
                    strides[mode - 1] = strides[mode].saturating_mul(shape[mode]);
                }
            }
        }
        Ok(Tensor { pointer, dtype, device, current, keeper: None, rank, shape, strides })
    }

    /// The same memory as rows of elements of another type, named as in the tile language.
    pub fn seen_as(&self, py: Python<'_>, name: &str, dtype: &str, shape: &[i64]) -> PyResult<Tensor> {
        let Some(of) = DType::named(dtype) else {
            return Err(said(py, Class::Launch, format!("`{name}`: `{dtype}` is no element type")));
        };
        let mut dense = 1;
        for (extent, stride) in self.shape().iter().zip(self.strides()).rev() {
            if *extent != 1 && *stride != dense {
                let message = format!("`{name}` is not contiguous, so that it is no memory of {dtype}");
                return Err(said(py, Class::Launch, message));
            }
            dense *= extent;
        }
        let bits = |dtype: DType, elements: i64| elements.saturating_mul(i64::from(dtype.bits()));
        let wanted = shape.iter().fold(1i64, |all, extent| all.saturating_mul(*extent));
        let (there, needed) = (bits(self.dtype, dense), bits(of, wanted));
        if needed > there {
            let message = format!("`{name}` has {there} bits, and {shape:?} of {dtype} takes {needed}");
            return Err(said(py, Class::Launch, message));
        }
        let seen = Tensor::new(py, name, (self.pointer, of), (shape, None), (self.device, self.current))?;
        Ok(Tensor { keeper: self.keeper.as_ref().map(|keeper| keeper.clone_ref(py)), ..seen })
    }

    /// The extents.
    pub fn shape(&self) -> &[i64] {
        &self.shape[..self.rank]
    }

    /// The strides, in elements.
    pub fn strides(&self) -> &[i64] {
        &self.strides[..self.rank]
    }
}

/// Element types by their names in torch.
const TORCH: [(&str, DType); 17] = [
    ("torch.float16", DType::F16),
    ("torch.bfloat16", DType::BF16),
    ("torch.float32", DType::F32),
    ("torch.float64", DType::F64),
    ("torch.float8_e4m3fn", DType::E4M3),
    ("torch.float8_e5m2", DType::E5M2),
    ("torch.float8_e8m0fnu", DType::UE8M0),
    ("torch.bool", DType::Bool),
    ("torch.int8", DType::I8),
    ("torch.int16", DType::I16),
    ("torch.int32", DType::I32),
    ("torch.int64", DType::I64),
    ("torch.uint8", DType::U8),
    ("torch.uint16", DType::U16),
    ("torch.uint32", DType::U32),
    ("torch.uint64", DType::U64),
    ("torch.float4_e2m1fn_x2", DType::E2M1),
];

/// Element types by the type strings of the array interface.
const INTERFACE: [(&str, DType); 12] = [
    ("f2", DType::F16),
    ("f4", DType::F32),
    ("f8", DType::F64),
    ("b1", DType::Bool),
    ("i1", DType::I8),
    ("i2", DType::I16),
    ("i4", DType::I32),
    ("i8", DType::I64),
    ("u1", DType::U8),
    ("u2", DType::U16),
    ("u4", DType::U32),
    ("u8", DType::U64),
];

thread_local! {
    /// Types of torch that were met, by the addresses of their objects, which live as long as torch.
    static MET: RefCell<Vec<(usize, DType)>> = const { RefCell::new(Vec::new()) };
}

/// The most types whose functions are kept.
const MOST_MET: usize = 64;

/// Types of tensors that were met, by the addresses of their objects, with the functions that they have. The types are kept, so that no other has its address.
static EXCHANGES: RwLock<Vec<(usize, Option<Exchange>)>> = RwLock::new(Vec::new());

/// The functions of an object's type.
pub fn exchange(value: &Bound<'_, PyAny>) -> PyResult<Option<Exchange>> {
    let class = value.get_type_ptr() as usize;
    let met = EXCHANGES.read().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, known)) = met.iter().find(|(known, _)| *known == class) {
        return Ok(*known);
    }
    drop(met);
    let class = value.get_type();
    let found = Exchange::of(&class)?;
    let mut met = EXCHANGES.write().unwrap_or_else(PoisonError::into_inner);
    if met.len() < MOST_MET {
        met.push((class.unbind().into_ptr() as usize, found));
    }
    Ok(found)
}

/// The tensor that an argument is. `stream` says on which stream the launch will be, to those who order their work before it.
pub fn read(
    py: Python<'_>,
    name: &str,
    value: &Bound<'_, PyAny>,
    stream: &dyn Fn() -> PyResult<u64>,
) -> PyResult<Tensor> {
    if let Some(exchange) = exchange(value)? {
        let loan = exchange.lend(value)?;
        // What launches do not take is refused by the words of its library below.
        if let Some(tensor) = of_loan(py, name, &loan, CurrentStream::Exchange(exchange))? {
            return Ok(tensor);
        }
    }
    if let Ok(pointer) = value.call_method0(intern!(py, "data_ptr")) {
        return torch(py, name, value, pointer.extract()?);
    }
    let interface = value.getattr(intern!(py, "__cuda_array_interface__")).ok();
    let interface = interface.map(|interface| interface.cast_into::<PyDict>()).transpose()?;
    if let Some(interface) = &interface
        && interface.contains(intern!(py, "stream"))?
    {
        return array(py, name, value, interface);
    }
    // Of those that say no stream, DLPack's capsule: whoever gives it orders the work before ours.
    if let Some(tensor) = capsule(py, name, value, stream)? {
        return Ok(tensor);
    }
    match interface {
        Some(interface) => array(py, name, value, &interface),
        None => {
            let message = format!(
                "`{name}` is no tensor on a GPU, but a {}: launches take what torch, DLPack or `__cuda_array_interface__` have; `simulate` takes arrays of the CPU",
                value.get_type().name()?
            );
            Err(said(py, Class::Launch, message))
        }
    }
}

/// The tensor of a loan, if launches take such.
fn of_loan(py: Python<'_>, name: &str, loan: &Loan<'_>, current: CurrentStream) -> PyResult<Option<Tensor>> {
    let (Some(dtype), Some(device)) = (loan.dtype, loan.device) else { return Ok(None) };
    Tensor::new(py, name, (loan.pointer, dtype), (loan.shape, loan.strides), (device, current)).map(Some)
}

/// The handle by which DLPack knows the legacy default stream, which is 0 elsewhere.
const LEGACY: u64 = 1;

/// The tensor of an array that has nothing but DLPack's methods, such as JAX's.
fn capsule(
    py: Python<'_>,
    name: &str,
    value: &Bound<'_, PyAny>,
    stream: &dyn Fn() -> PyResult<u64>,
) -> PyResult<Option<Tensor>> {
    let Ok(device) = value.call_method0(intern!(py, "__dlpack_device__")) else { return Ok(None) };
    let (kind, _): (i32, i32) = device.extract()?;
    if !exchange::CUDA.contains(&kind) {
        return Ok(None);
    }
    let stream = stream()?;
    let options = PyDict::new(py);
    options.set_item(intern!(py, "stream"), if stream == 0 { LEGACY } else { stream })?;
    let capsule = value.call_method(intern!(py, "__dlpack__"), (), Some(&options))?;
    let Some(loan) = exchange::given(&capsule) else { return Ok(None) };
    let tensor = of_loan(py, name, &loan, CurrentStream::Stream(stream))?;
    Ok(tensor.map(|tensor| Tensor { keeper: Some(capsule.unbind()), ..tensor }))
}

fn torch(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>, pointer: u64) -> PyResult<Tensor> {
    let device: i64 = value.call_method0(intern!(py, "get_device"))?.extract()?;
    let device = u32::try_from(device).map_err(|_| {
        said(
            py,
            Class::Launch,
            format!(
                "`{name}` is on the CPU: `{name}.cuda()` is on a GPU, and `simulate` takes tensors of the CPU"
            ),
        )
    })?;
    let object = value.getattr(intern!(py, "dtype"))?;
    let address = object.as_ptr() as usize;
    let met = MET.with_borrow(|met| met.iter().find(|(known, _)| *known == address).map(|(_, dtype)| *dtype));
    let dtype = match met {
        Some(dtype) => dtype,
        None => {
            let text = object.str()?.to_string();
            let found = TORCH.iter().find(|(known, _)| *known == text).map(|(_, dtype)| *dtype);
            let dtype = found.ok_or_else(|| {
                said(py, Class::Launch, format!("`{name}` has elements of type {text}, which no kernel has"))
            })?;
            MET.with_borrow_mut(|met| met.push((address, dtype)));
            dtype
        }
    };
    let shape: Vec<i64> = value.getattr(intern!(py, "shape"))?.extract()?;
    let strides: Vec<i64> = value.call_method0(intern!(py, "stride"))?.extract()?;
    Tensor::new(py, name, (pointer, dtype), (&shape, Some(&strides)), (device, CurrentStream::Torch))
}

fn array(
    py: Python<'_>,
    name: &str,
    value: &Bound<'_, PyAny>,
    interface: &Bound<'_, PyDict>,
) -> PyResult<Tensor> {
    let get = |key: &str| {
        interface
            .get_item(key)?
            .ok_or_else(|| said(py, Class::Launch, format!("`{name}`: its array interface has no `{key}`")))
    };
    let kind: String = get("typestr")?.extract()?;
    let found = kind.get(1..).and_then(|kind| INTERFACE.iter().find(|(known, _)| *known == kind));
    let dtype = match found {
        Some((_, dtype)) if !kind.starts_with('>') => *dtype,
        _ => {
            return Err(said(
                py,
                Class::Launch,
                format!("`{name}`: elements of the form `{kind}` have no type of a kernel"),
            ));
        }
    };
    let (pointer, _read_only): (u64, bool) = get("data")?.extract()?;
    let shape: Vec<i64> = get("shape")?.extract()?;
    let size = i64::from(dtype.bits() / 8);
    let strides = match interface.get_item("strides")?.filter(|strides| !strides.is_none()) {
        Some(strides) => {
            let bytes: Vec<i64> = strides.extract()?;
            if let Some(within) = bytes.iter().find(|bytes| **bytes % size != 0) {
                let message = format!(
                    "`{name}` has a stride of {within} bytes, which is no multiple of its elements of {size}"
                );
                return Err(said(py, Class::Launch, message));
            }
            Some(bytes.into_iter().map(|bytes| bytes / size).collect::<Vec<_>>())
        }
        None => None,
    };
    // The stream on which the array's library works, of those that say it.
    let current = match interface.get_item("stream")?.filter(|stream| !stream.is_none()) {
        Some(stream) => CurrentStream::Stream(stream.extract()?),
        None => CurrentStream::Torch,
    };
    // CuPy names the device; without, it is the first.
    let device = value
        .getattr("device")
        .and_then(|device| device.getattr("id"))
        .and_then(|id| id.extract())
        .unwrap_or(0);
    Tensor::new(py, name, (pointer, dtype), (&shape, strides.as_deref()), (device, current))
}

impl CurrentStream {
    /// The handle of the stream on a GPU.
    pub fn handle(self, py: Python<'_>, ordinal: u32) -> PyResult<u64> {
        match self {
            CurrentStream::Exchange(exchange) => exchange.current_stream(py, ordinal),
            CurrentStream::Stream(stream) => Ok(stream),
            CurrentStream::Torch => of_torch(py, ordinal),
        }
    }
}

/// The handle of torch's current stream on a GPU; 0 of the default stream, where torch is not imported.
fn of_torch(py: Python<'_>, ordinal: u32) -> PyResult<u64> {
    let modules = py.import(intern!(py, "sys"))?.getattr(intern!(py, "modules"))?;
    let torch = modules.call_method1(intern!(py, "get"), (intern!(py, "torch"),))?;
    if torch.is_none() {
        return Ok(0);
    }
    let raw = torch.getattr(intern!(py, "_C"))?.getattr(intern!(py, "_cuda_getCurrentRawStream"));
    match raw {
        Ok(function) => function.call1((ordinal,))?.extract(),
        Err(_) => Err(PyTypeError::new_err("this torch has no CUDA: name the stream, `stream=…`")),
    }
}
