//! Arguments of a launch: buffers and numbers, run-time sizes, options.

use std::collections::BTreeMap;

use tilewright_machine::{DType, Number};

use crate::buffer::Buffer;
use crate::tensor::Tensor;

/// Values for the run-time sizes, by name. Those not named keep the defaults that the program declares.
pub type Sizes = BTreeMap<String, i64>;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Arg<'a> {
    /// Memory for a tensor parameter.
    Buffer(&'a Buffer),
    /// The same, and its element type is compared with the parameter's.
    Tensor(&'a Tensor),
    /// Memory for an array of tensors: one buffer each.
    Buffers(&'a [Buffer]),
    /// The same, and their element types are compared with the parameter's.
    Tensors(&'a [Tensor]),
    /// A number for a scalar parameter of type `f32`.
    Scalar(f32),
    /// An integer for a scalar parameter of type `i32`; for one of type `u32`, its bits.
    Integer(i32),
    /// A number for a scalar parameter of type `f64`.
    F64(f64),
    /// An integer for a scalar parameter of type `i64`.
    I64(i64),
    /// An integer for a scalar parameter of type `u64`.
    U64(u64),
}

impl<'a> Arg<'a> {
    /// The memory of a tensor parameter, or that of each tensor of an array; nothing of a number.
    pub(crate) fn buffers(&self) -> Vec<&'a Buffer> {
        match self {
            Arg::Buffer(buffer) => vec![buffer],
            Arg::Tensor(tensor) => vec![tensor.buffer()],
            Arg::Buffers(buffers) => buffers.iter().collect(),
            Arg::Tensors(tensors) => tensors.iter().map(Tensor::buffer).collect(),
            Arg::Scalar(_) | Arg::Integer(_) | Arg::F64(_) | Arg::I64(_) | Arg::U64(_) => Vec::new(),
        }
    }

    /// The element type of tensors, and of no other memory: the first that is not this one.
    pub(crate) fn other_type(&self, than: DType) -> Option<DType> {
        let tensors = match self {
            Arg::Tensor(tensor) => std::slice::from_ref(*tensor),
            Arg::Tensors(tensors) => tensors,
            _ => &[],
        };
        tensors.iter().map(Tensor::dtype).find(|dtype| *dtype != than)
    }

    /// The number for a scalar parameter of a type, rounded to it.
    pub fn number(dtype: DType, number: Number) -> Self {
        let bits = number.bits(dtype);
        match dtype {
            DType::F64 => Arg::F64(f64::from_bits(bits)),
            DType::I64 => Arg::I64(bits.cast_signed()),
            DType::U64 => Arg::U64(bits),
            _ if dtype.range().is_some() => Arg::Integer((bits as u32).cast_signed()),
            _ => Arg::Scalar(number.nearest() as f32),
        }
    }

    /// The words for it in messages.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Arg::Buffer(_) | Arg::Tensor(_) => "a buffer",
            Arg::Buffers(_) | Arg::Tensors(_) => "buffers",
            Arg::Scalar(_) => "a number",
            Arg::Integer(_) => "an integer",
            Arg::F64(_) => "an f64",
            Arg::I64(_) => "an i64",
            Arg::U64(_) => "a u64",
        }
    }

    /// The bits of a number that a parameter of a type takes; `None` of anything else.
    pub(crate) fn bits_for(&self, dtype: DType) -> Option<u64> {
        match (self, dtype) {
            (Arg::Scalar(x), DType::F32) => Some(u64::from(x.to_bits())),
            (Arg::Integer(x), DType::I32 | DType::U32) => Some(u64::from(x.cast_unsigned())),
            (Arg::F64(x), DType::F64) => Some(x.to_bits()),
            (Arg::I64(x), DType::I64) => Some(x.cast_unsigned()),
            (Arg::U64(x), DType::U64) => Some(*x),
            _ => None,
        }
    }
}

impl<'a> From<&'a Buffer> for Arg<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        Arg::Buffer(buffer)
    }
}

impl<'a> From<&'a Tensor> for Arg<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Arg::Tensor(tensor)
    }
}

impl<'a> From<&'a [Buffer]> for Arg<'a> {
    fn from(buffers: &'a [Buffer]) -> Self {
        Arg::Buffers(buffers)
    }
}

impl<'a> From<&'a [Tensor]> for Arg<'a> {
    fn from(tensors: &'a [Tensor]) -> Self {
        Arg::Tensors(tensors)
    }
}

impl From<f32> for Arg<'_> {
    fn from(value: f32) -> Self {
        Arg::Scalar(value)
    }
}

impl From<f64> for Arg<'_> {
    fn from(value: f64) -> Self {
        Arg::F64(value)
    }
}

impl From<i64> for Arg<'_> {
    fn from(value: i64) -> Self {
        Arg::I64(value)
    }
}

impl From<u64> for Arg<'_> {
    fn from(value: u64) -> Self {
        Arg::U64(value)
    }
}

impl From<i32> for Arg<'_> {
    fn from(value: i32) -> Self {
        Arg::Integer(value)
    }
}

/// Relation of a launch to the one before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LaunchOptions {
    /// True if its blocks may start before the launch before it has ended: as soon as all blocks of that one have allowed it or
    /// ended. Only kernels that wait for what they depend on
    /// ([`SyncOp::DependencyWait`](tilewright_machine::SyncOp::DependencyWait)) do, on GPUs that can (compute capability 9.0 and later);
    /// for all others this changes nothing.
    pub dependent: bool,
}
