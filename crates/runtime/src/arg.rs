//! Arguments of a launch: buffers and numbers, run-time sizes, options.

use std::collections::BTreeMap;

use crate::buffer::Buffer;
use crate::tensor::Tensor;

/// Values for the run-time sizes, by name. Those not named keep the defaults that the program declares.
pub type Sizes = BTreeMap<String, i64>;

/// An argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// Memory for a tensor parameter.
    Buffer(&'a Buffer),
    /// The same, and its element type is compared with the parameter's.
    Tensor(&'a Tensor),
    /// A number for a scalar parameter of type `f32`.
    Scalar(f32),
    /// An integer for a scalar parameter of an integer type.
    Integer(i32),
}

impl<'a> Arg<'a> {
    /// The memory, of a tensor parameter.
    pub(crate) fn buffer(&self) -> Option<&'a Buffer> {
        match self {
            Arg::Buffer(buffer) => Some(buffer),
            Arg::Tensor(tensor) => Some(tensor.buffer()),
            Arg::Scalar(_) | Arg::Integer(_) => None,
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

impl From<f32> for Arg<'_> {
    fn from(value: f32) -> Self {
        Arg::Scalar(value)
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
