//! Tensors of fixed numbers, and comparisons.
#![allow(dead_code, reason = "each test file uses some of it")]

use candle_core::{DType, Device, Result, Shape, Tensor};

/// Numbers from −1 to 1, others for each seed.
pub fn data(seed: u64, shape: impl Into<Shape>) -> Tensor {
    let shape = shape.into();
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as f64 / f64::from(1u32 << 30) - 1.0
    };
    let values: Vec<f64> = std::iter::repeat_with(next).take(shape.elem_count()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu).unwrap()
}

/// The largest distance of two tensors, over the largest element.
pub fn distance(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.dims(), b.dims());
    assert_eq!(a.dtype(), b.dtype());
    let flat = |x: &Tensor| -> Result<Vec<f64>> { x.to_dtype(DType::F64)?.flatten_all()?.to_vec1() };
    let (a, b) = (flat(a).unwrap(), flat(b).unwrap());
    let scale = b.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    a.iter().zip(&b).fold(0.0f64, |most, (a, b)| most.max((a - b).abs())) / scale
}

/// Two tensors are alike, up to a part of the largest element.
pub fn close(what: &str, a: &Tensor, b: &Tensor, within: f64) {
    let distance = distance(a, b);
    assert!(distance <= within, "{what}: {distance:e} > {within:e}");
}

/// A bound for results that are rounded to a type.
pub fn rounding(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 2e-6,
        _ => 1e-13,
    }
}
