//! Parameters while blocks run.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tilewright_machine::{DType, RedOp};

use super::Argument;
use super::bound::Element;
use super::op::Combine;

/// A parameter's buffer while blocks run.
pub(super) enum Buffer<'a> {
    /// A tensor that the kernel only reads.
    Input(&'a [f64]),
    /// The same, of 64-bit integers.
    Integers(&'a [i128]),
    /// A tensor that the kernel writes.
    Output {
        /// The type of 64-bit integers, if it has such elements.
        integers: Option<DType>,
        /// The bits of its elements: of `f64`, or of 64-bit integers.
        values: Vec<AtomicU64>,
        /// The bits of their bounds.
        bounds: Vec<AtomicU32>,
        /// The additions to each element, of a tensor that the kernel adds to.
        added: Option<Added>,
    },
    /// A number.
    Scalar(Element),
}

/// The additions to the elements of a tensor. They come in any order, so that neither is known what each of them rounds; each partial sum
/// is at most as large as the sum of all sizes.
pub(super) struct Added {
    dtype: DType,
    /// Their number.
    counts: Vec<AtomicU32>,
    /// The bits of the sum of the sizes of what was added, and of what was there.
    sizes: Vec<AtomicU64>,
}

impl Added {
    fn new(dtype: DType, data: &[f64]) -> Self {
        Added {
            dtype,
            counts: data.iter().map(|_| AtomicU32::new(0)).collect(),
            sizes: data.iter().map(|x| AtomicU64::new(x.abs().to_bits())).collect(),
        }
    }

    /// The sum that the roundings of so many additions may come to, here and in a kernel together. An addition of `f32` takes subnormal
    /// numbers for 0 (PTX ISA 8.1, section 9.7.12.4).
    fn bound(&self, offset: usize) -> f64 {
        let count = f64::from(self.counts[offset].load(Ordering::Relaxed));
        if count == 0.0 || !self.dtype.is_float() {
            return 0.0;
        }
        let size = f64::from_bits(self.sizes[offset].load(Ordering::Relaxed));
        let subnormal = match self.dtype {
            DType::F32 => 2f64.powi(-125),
            DType::F64 => f64::from_bits(1),
            _ => 2f64.powi(-133),
        };
        let bound = 2.0 * count * (self.dtype.epsilon() * size + subnormal);
        // What is infinite or no number is so in any order.
        if bound.is_finite() { bound } else { 0.0 }
    }
}

/// The bits of the least `f32` that is no less than a bound.
fn upper(bound: f64) -> u32 {
    let near = bound as f32;
    if f64::from(near) < bound { near.next_up().to_bits() } else { near.to_bits() }
}

/// The bits of an element's value in a buffer, of 64-bit integers of a type if there is one.
fn bits_in(integers: Option<DType>, x: Element) -> u64 {
    integers.map_or_else(|| x.value.to_bits(), |dtype| dtype.encode_integer(x.integer()))
}

/// The element of bits in a buffer.
fn element_of(integers: Option<DType>, bits: u64) -> Element {
    match integers {
        None => Element::exact(f64::from_bits(bits)),
        Some(dtype) => Element::of_integer(dtype.decode_integer(bits)),
    }
}

impl<'a> Buffer<'a> {
    /// A tensor that the kernel writes; if it adds to it, with its type.
    pub(super) fn output(data: &[f64], added: Option<DType>) -> Self {
        Buffer::Output {
            integers: None,
            values: data.iter().map(|x| AtomicU64::new(x.to_bits())).collect(),
            bounds: data.iter().map(|_| AtomicU32::new(0)).collect(),
            added: added.map(|dtype| Added::new(dtype, data)),
        }
    }

    /// A tensor of 64-bit integers that the kernel writes.
    pub(super) fn output_of_integers(data: &[i128], dtype: DType) -> Self {
        Buffer::Output {
            integers: Some(dtype),
            values: data.iter().map(|x| AtomicU64::new(dtype.encode_integer(*x))).collect(),
            bounds: data.iter().map(|_| AtomicU32::new(0)).collect(),
            added: None,
        }
    }

    /// The element at an offset. The verifier knows that a view is of a tensor.
    pub(super) fn read(&self, offset: usize) -> Element {
        match self {
            Buffer::Input(data) => Element::exact(data[offset]),
            Buffer::Integers(data) => Element::of_integer(data[offset]),
            Buffer::Output { integers, values, bounds, added } => Element {
                bound: f64::from(f32::from_bits(bounds[offset].load(Ordering::Relaxed)))
                    + added.as_ref().map_or(0.0, |added| added.bound(offset)),
                ..element_of(*integers, values[offset].load(Ordering::Relaxed))
            },
            Buffer::Scalar(_) => Element::exact(f64::NAN),
        }
    }

    /// Writes the element at an offset.
    pub(super) fn write(&self, offset: usize, x: Element) {
        let Buffer::Output { integers, values, bounds, added } = self else { return };
        values[offset].store(bits_in(*integers, x), Ordering::Relaxed);
        // Of integers no value says that nothing has written it.
        let bound = if integers.is_some() && x.value.is_nan() { f64::INFINITY } else { x.bound };
        bounds[offset].store(upper(bound), Ordering::Relaxed);
        if let Some(added) = added {
            added.counts[offset].store(0, Ordering::Relaxed);
            added.sizes[offset].store((x.value.abs() + x.bound).to_bits(), Ordering::Relaxed);
        }
    }

    /// Combines the element at an offset with another.
    pub(super) fn combine(&self, offset: usize, x: Element, (op, dtype): Combine) {
        let Buffer::Output { integers, values, bounds, .. } = self else { return };
        if op == RedOp::Add {
            return self.add(offset, x, dtype);
        }
        let change = |old: u64| Some(bits_in(*integers, element_of(*integers, old).combined(op, x, dtype)));
        // Neither a largest nor a smallest element is further off than one of those that it is of.
        let _ = values[offset].fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        bounds[offset].fetch_max(upper(x.bound), Ordering::Relaxed);
    }

    /// Adds to the element at an offset, rounded to the type.
    fn add(&self, offset: usize, x: Element, dtype: DType) {
        let Buffer::Output { integers, values, bounds, added } = self else { return };
        // The updates always give a value, so that they cannot fail.
        let update = |place: &AtomicU64, change: &dyn Fn(u64) -> u64| {
            let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| Some(change(old)));
        };
        update(&values[offset], &|old| {
            bits_in(*integers, element_of(*integers, old).combined(RedOp::Add, x, dtype))
        });
        let wider = |old: u32| Some(upper(f64::from(f32::from_bits(old)) + x.bound));
        let _ = bounds[offset].fetch_update(Ordering::Relaxed, Ordering::Relaxed, wider);
        if let Some(added) = added {
            added.counts[offset].fetch_add(1, Ordering::Relaxed);
            update(&added.sizes[offset], &|old| (f64::from_bits(old) + x.value.abs() + x.bound).to_bits());
        }
    }

    /// The elements and their bounds, of a tensor that the kernel writes.
    pub(super) fn contents(&self) -> Option<(Argument, Vec<f32>)> {
        let Buffer::Output { integers, values, .. } = self else { return None };
        let elements = || (0..values.len()).map(|offset| self.read(offset));
        let argument = match integers {
            None => Argument::Tensor(elements().map(|x| x.value).collect()),
            Some(_) => Argument::Integers(elements().map(Element::integer).collect()),
        };
        Some((argument, elements().map(|x| f32::from_bits(upper(x.bound))).collect()))
    }
}
