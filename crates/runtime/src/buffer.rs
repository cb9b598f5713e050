//! Memory of a device, as bytes, and the encoding of elements.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tilewright_machine::{DType, Elements};

use crate::cuda::memory::Allocation;

/// Tells the buffers of one opened device from those of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DeviceId(u64);

impl DeviceId {
    /// An identity that no device had before.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        DeviceId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// Storage of a buffer's bytes.
#[derive(Clone)]
pub(crate) enum Storage {
    /// On the simulator: in this process.
    Host(Arc<Mutex<Vec<u8>>>),
    /// On a GPU.
    Cuda(Arc<Allocation>),
}

/// Memory of one device. A clone is another handle to the same memory, which is given back when the last handle goes.
#[derive(Clone)]
pub struct Buffer {
    pub(crate) device: DeviceId,
    pub(crate) bytes: usize,
    pub(crate) storage: Storage,
}

impl Buffer {
    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True if both are handles to the same memory.
    pub fn same(&self, other: &Buffer) -> bool {
        self.key() == other.key()
    }

    /// A number that all handles to this memory have, and no others while there is one.
    pub(crate) fn key(&self) -> usize {
        match &self.storage {
            Storage::Host(bytes) => Arc::as_ptr(bytes).addr(),
            Storage::Cuda(allocation) => Arc::as_ptr(allocation).addr(),
        }
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = match self.storage {
            Storage::Host(_) => "sim",
            Storage::Cuda(_) => "cuda",
        };
        write!(f, "Buffer({place}, {} bytes)", self.bytes)
    }
}

/// The bytes of elements of a type, little-endian, of their bits. Elements of fewer than 8 bits are packed, element `i` at bit `i · bits`, low
/// bits first.
fn packed(dtype: DType, bits: impl Iterator<Item = u64>) -> Vec<u8> {
    let width = (dtype.bits() / 8) as usize;
    if width == 0 {
        let bits: Vec<u64> = bits.collect();
        let byte = |part: &[u64]| part.iter().rev().fold(0, |byte, x| byte << dtype.bits() | x) as u8;
        return bits.chunks(dtype.per_byte() as usize).map(byte).collect();
    }
    bits.flat_map(|bits| bits.to_le_bytes().into_iter().take(width)).collect()
}

/// The bits of the elements in these bytes; bytes that make no whole element are left out, and every element that has its place in the
/// last byte is there.
fn unpacked(dtype: DType, bytes: &[u8]) -> Vec<u64> {
    if dtype.bits() < 8 {
        let parts = |byte: &u8| {
            let byte = u64::from(*byte);
            (0..dtype.per_byte()).map(move |k| byte >> (k * dtype.bits()))
        };
        return bytes.iter().flat_map(parts).collect();
    }
    let element = |chunk: &[u8]| chunk.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    bytes.chunks_exact((dtype.bits() / 8) as usize).map(element).collect()
}

/// The bytes of these numbers as elements of a type, rounded.
pub fn encode(dtype: DType, values: &[f64]) -> Vec<u8> {
    packed(dtype, values.iter().map(|x| dtype.encode(*x)))
}

/// The bytes of these elements in a type, without loss where they are of it.
pub fn encode_elements(dtype: DType, elements: &Elements) -> Vec<u8> {
    packed(dtype, (0..elements.len()).map(|at| elements.bits(dtype, at).unwrap_or(0)))
}

/// The numbers in these bytes; of 64-bit integers the nearest ([`decode_elements`] is exact).
pub fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    unpacked(dtype, bytes).into_iter().map(|bits| dtype.decode(bits)).collect()
}

/// The elements in these bytes.
pub fn decode_elements(dtype: DType, bytes: &[u8]) -> Elements {
    Elements::of_bits(dtype, unpacked(dtype, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_survive_their_encoding() {
        for dtype in DType::ALL {
            let values = [0.0, 1.0, 2.0, 96.0, 64.0].map(|x| dtype.decode(dtype.encode(x)));
            let bytes = encode(dtype, &values);
            assert_eq!(bytes.len(), dtype.bytes_of(values.len()));
            let decoded = decode(dtype, &bytes);
            assert_eq!(decoded[..values.len()], values, "{dtype}");
            assert!(decoded[values.len()..].iter().all(|x| *x == 0.0));
        }
    }

    #[test]
    fn elements_are_little_endian() {
        assert_eq!(encode(DType::I4, &[1.0, -2.0, 7.0]), [0xe1, 0x07]);
        assert_eq!(encode(DType::U1, &[1.0, 0.0, 1.0, 1.0]), [0b1101]);
        assert_eq!(decode(DType::U2, &[0b11_10_01_00]), [0.0, 1.0, 2.0, 3.0]);
        assert_eq!(encode(DType::I32, &[258.0]), [2, 1, 0, 0]);
        assert_eq!(encode(DType::F16, &[1.0, -2.0]), [0x00, 0x3c, 0x00, 0xc0]);
    }
}
