//! Tensors: memory of a device as elements of one type.

use tilewright_machine::{DType, Elements};

use crate::buffer::{Buffer, decode, decode_elements, encode, encode_elements};
use crate::device::Device;
use crate::error::RuntimeError;

/// A buffer of elements of one type. Numbers go in and out as `f64`, through [`DType::encode`] and [`DType::decode`]: they
/// are rounded to the type on their way in, and are exact on their way out, but for 64-bit integers, of which an `f64` does not hold all; as
/// [`Elements`] these are exact, too.
#[derive(Clone, Debug)]
pub struct Tensor {
    buffer: Buffer,
    dtype: DType,
    len: usize,
}

impl Tensor {
    /// `len` elements, all zero.
    pub fn zeros(device: &dyn Device, dtype: DType, len: usize) -> Result<Self, RuntimeError> {
        let buffer = device.alloc(dtype.bytes_of(len))?;
        Ok(Tensor { buffer, dtype, len })
    }

    /// These elements, rounded to the type.
    pub fn from_f64(device: &dyn Device, dtype: DType, values: &[f64]) -> Result<Self, RuntimeError> {
        let tensor = Tensor::zeros(device, dtype, values.len())?;
        tensor.write(device, values)?;
        Ok(tensor)
    }

    /// These elements, rounded to the type.
    pub fn from_f32(device: &dyn Device, dtype: DType, values: &[f32]) -> Result<Self, RuntimeError> {
        let values: Vec<f64> = values.iter().map(|x| f64::from(*x)).collect();
        Tensor::from_f64(device, dtype, &values)
    }

    /// Replaces every element.
    pub fn write(&self, device: &dyn Device, values: &[f64]) -> Result<(), RuntimeError> {
        if values.len() != self.len {
            return Err(RuntimeError::DataLength {
                given: values.len(),
                expected: self.len,
                unit: "elements",
            });
        }
        device.upload(&self.buffer, &encode(self.dtype, values))
    }

    /// Every element.
    pub fn read(&self, device: &dyn Device) -> Result<Vec<f64>, RuntimeError> {
        let mut values = decode(self.dtype, &device.download(&self.buffer)?);
        // The last byte may have room for more elements.
        values.truncate(self.len);
        Ok(values)
    }

    /// These elements, without loss where they are of the type.
    pub fn from_elements(
        device: &dyn Device,
        dtype: DType,
        elements: &Elements,
    ) -> Result<Self, RuntimeError> {
        let tensor = Tensor::zeros(device, dtype, elements.len())?;
        device.upload(&tensor.buffer, &encode_elements(dtype, elements))?;
        Ok(tensor)
    }

    /// Every element, exactly.
    pub fn elements(&self, device: &dyn Device) -> Result<Elements, RuntimeError> {
        let mut elements = decode_elements(self.dtype, &device.download(&self.buffer)?);
        elements.truncate(self.len);
        Ok(elements)
    }

    /// The buffer.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}
