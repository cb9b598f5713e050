//! Tensors of others on GPUs: those of torch by their methods, others by `__cuda_array_interface__`.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tilewright::launch::DType;

use crate::error::{Class, said};

/// An argument of a launch.
#[derive(Clone, Debug)]
pub enum Given {
    /// A tensor.
    Tensor(Tensor),
    /// An `f32`.
    F32(f32),
    /// An `f64`.
    F64(f64),
    /// An `i32`.
    I32(i32),
    /// A `u32`.
    U32(u32),
    /// An `i64`.
    I64(i64),
    /// A `u64`.
    U64(u64),
}

impl Given {
    /// An extent of a tensor.
    pub fn extent(&self, mode: usize) -> Option<i64> {
        match self {
            Given::Tensor(tensor) => tensor.shape.get(mode).copied(),
            _ => None,
        }
    }
}

/// A tensor on a GPU.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The address.
    pub pointer: u64,
    /// The type.
    pub dtype: DType,
    /// The extents.
    pub shape: Vec<i64>,
    /// The strides, in elements.
    pub strides: Vec<i64>,
    /// The GPU's number.
    pub device: u32,
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

/// The tensor that an argument is.
pub fn read(py: Python<'_>, name: &str, value: &Bound<'_, PyAny>) -> PyResult<Given> {
    if let Ok(pointer) = value.call_method0(intern!(py, "data_ptr")) {
        return torch(py, name, value, pointer.extract()?).map(Given::Tensor);
    }
    match value.getattr(intern!(py, "__cuda_array_interface__")) {
        Ok(interface) => array(py, name, value, interface.cast::<PyDict>()?).map(Given::Tensor),
        Err(_) => {
            let message = format!(
                "`{name}` is no tensor on a GPU, but a {}: launches take what torch or `__cuda_array_interface__` have; `simulate` takes arrays of the CPU",
                value.get_type().name()?
            );
            Err(said(py, Class::Launch, message))
        }
    }
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
    let shape = value.getattr(intern!(py, "shape"))?.extract()?;
    let strides = value.call_method0(intern!(py, "stride"))?.extract()?;
    Ok(Tensor { pointer, dtype, shape, strides, device })
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
        Some(strides) => strides.extract::<Vec<i64>>()?.into_iter().map(|bytes| bytes / size).collect(),
        None => row_major(&shape),
    };
    // CuPy names the device; without, it is the first.
    let device = value
        .getattr("device")
        .and_then(|device| device.getattr("id"))
        .and_then(|id| id.extract())
        .unwrap_or(0);
    Ok(Tensor { pointer, dtype, shape, strides, device })
}

fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut strides = vec![1i64; shape.len()];
    for mode in (1..shape.len()).rev() {
        strides[mode - 1] = strides[mode].saturating_mul(shape[mode]);
    }
    strides
}
