//! Memory of a tensor parameter on a device: one tensor, or those of an array.

use tilewright_machine::{DType, Elements};
use tilewright_runtime::{Arg, Device, RuntimeError, Tensor};

/// Memory of a tensor parameter.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Of one tensor.
    One(Tensor),
    /// Of the tensors of an array, each apart.
    Array(Vec<Tensor>),
}

impl Memory {
    /// Memory with these elements; those of an array of so many tensors lie one behind the other, as in the interpreter.
    pub(crate) fn new(
        device: &dyn Device,
        dtype: DType,
        elements: &Elements,
        tensors: Option<usize>,
    ) -> Result<Self, RuntimeError> {
        let Some(tensors) = tensors else {
            return Ok(Memory::One(Tensor::from_elements(device, dtype, elements)?));
        };
        let each = elements.len() / tensors.max(1);
        let tensor = |i: usize| {
            let of_one = elements.picked(i * each..(i + 1) * each);
            Tensor::from_elements(device, dtype, &of_one)
        };
        Ok(Memory::Array((0..tensors).map(tensor).collect::<Result<_, _>>()?))
    }

    /// The tensors, in order.
    pub(crate) fn tensors(&self) -> &[Tensor] {
        match self {
            Memory::One(tensor) => std::slice::from_ref(tensor),
            Memory::Array(tensors) => tensors,
        }
    }

    /// The argument of a launch.
    pub(crate) fn arg(&self) -> Arg<'_> {
        match self {
            Memory::One(tensor) => Arg::Buffer(tensor.buffer()),
            Memory::Array(tensors) => Arg::Tensors(tensors),
        }
    }

    /// All elements, those of an array one tensor behind the other.
    pub(crate) fn elements(&self, device: &dyn Device) -> Result<Elements, RuntimeError> {
        let mut tensors = self.tensors().iter();
        let Some(first) = tensors.next() else { return Ok(Elements::from(Vec::new())) };
        let mut elements = first.elements(device)?;
        for tensor in tensors {
            elements.extend_from(&tensor.elements(device)?, 0);
        }
        Ok(elements)
    }
}
