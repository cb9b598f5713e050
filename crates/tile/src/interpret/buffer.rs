//! Parameters while blocks run.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tilewright_machine::{DType, RedOp};

use super::bound::Element;
use super::op::Combine;

/// A parameter's buffer while blocks run.
pub(super) enum Buffer<'a> {
    /// A tensor that the kernel only reads.
    Input(&'a [f64]),
    /// A tensor that the kernel writes.
    Output {
        /// The bits of its elements.
        values: Vec<AtomicU64>,
        /// The bits of their bounds.
        bounds: Vec<AtomicU32>,
        /// The additions to each element, of a tensor that the kernel adds to.
        added: Option<Added>,
    },
    /// A number.
    Scalar(f64),
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
        let subnormal = if self.dtype == DType::F32 { 2f64.powi(-125) } else { 2f64.powi(-133) };
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

impl<'a> Buffer<'a> {
    /// A tensor that the kernel writes; if it adds to it, with its type.
    pub(super) fn output(data: &[f64], added: Option<DType>) -> Self {
        Buffer::Output {
            values: data.iter().map(|x| AtomicU64::new(x.to_bits())).collect(),
            bounds: data.iter().map(|_| AtomicU32::new(0)).collect(),
            added: added.map(|dtype| Added::new(dtype, data)),
        }
    }

    /// The element at an offset. The verifier knows that a view is of a tensor.
    pub(super) fn read(&self, offset: usize) -> Element {
        match self {
            Buffer::Input(data) => Element::exact(data[offset]),
            Buffer::Output { values, bounds, added } => Element {
                value: f64::from_bits(values[offset].load(Ordering::Relaxed)),
                bound: f64::from(f32::from_bits(bounds[offset].load(Ordering::Relaxed)))
                    + added.as_ref().map_or(0.0, |added| added.bound(offset)),
            },
            Buffer::Scalar(_) => Element::exact(f64::NAN),
        }
    }

    /// Writes the element at an offset.
    pub(super) fn write(&self, offset: usize, x: Element) {
        let Buffer::Output { values, bounds, added } = self else { return };
        values[offset].store(x.value.to_bits(), Ordering::Relaxed);
        bounds[offset].store(upper(x.bound), Ordering::Relaxed);
        if let Some(added) = added {
            added.counts[offset].store(0, Ordering::Relaxed);
            added.sizes[offset].store((x.value.abs() + x.bound).to_bits(), Ordering::Relaxed);
        }
    }

    /// Combines the element at an offset with another.
    pub(super) fn combine(&self, offset: usize, x: Element, (op, dtype): Combine) {
        let Buffer::Output { values, bounds, .. } = self else { return };
        if op == RedOp::Add {
            return self.add(offset, x, dtype);
        }
        let change =
            |old: u64| Some(Element::exact(f64::from_bits(old)).combined(op, x, dtype).value.to_bits());
        // Neither a largest nor a smallest element is further off than one of those that it is of.
        let _ = values[offset].fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        bounds[offset].fetch_max(upper(x.bound), Ordering::Relaxed);
    }

    /// Adds to the element at an offset, rounded to the type.
    fn add(&self, offset: usize, x: Element, dtype: DType) {
        let Buffer::Output { values, bounds, added } = self else { return };
        // The updates always give a value, so that they cannot fail.
        let update = |place: &AtomicU64, change: &dyn Fn(f64) -> f64| {
            let change = |old: u64| Some(change(f64::from_bits(old)).to_bits());
            let _ = place.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        };
        update(&values[offset], &|old| Element::exact(old).combined(RedOp::Add, x, dtype).value);
        let wider = |old: u32| Some(upper(f64::from(f32::from_bits(old)) + x.bound));
        let _ = bounds[offset].fetch_update(Ordering::Relaxed, Ordering::Relaxed, wider);
        if let Some(added) = added {
            added.counts[offset].fetch_add(1, Ordering::Relaxed);
            update(&added.sizes[offset], &|old| old + x.value.abs() + x.bound);
        }
    }

    /// The elements and their bounds, of a tensor that the kernel writes.
    pub(super) fn contents(&self) -> Option<(Vec<f64>, Vec<f32>)> {
        let Buffer::Output { values, .. } = self else { return None };
        Some(
            (0..values.len())
                .map(|offset| {
                    let x = self.read(offset);
                    (x.value, f32::from_bits(upper(x.bound)))
                })
                .unzip(),
        )
    }
}
