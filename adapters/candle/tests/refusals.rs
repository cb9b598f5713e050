//! Refusals: candle's errors, with the operand that is wrong, and what to do.

mod common;

use candle_core::{DType, Device, Error, Result, Tensor, Var};
use common::data;
use tilewright_candle::{
    Activation, AttentionOptions, LinearW4, add_linear, attention, attention_decode, layer_norm, linear,
    rms_norm,
};

/// The error within, and the whole text.
fn refused<T>(result: Result<T>) -> (Error, String) {
    let Err(error) = result else { panic!("it is not refused") };
    let text = error.to_string();
    // With RUST_BACKTRACE there is one around candle's error.
    let within = |error| match error {
        Error::WithBacktrace { inner, .. } => *inner,
        other => other,
    };
    match error {
        Error::Context { inner, .. } => (within(*inner), text),
        other => (within(other), text),
    }
}

#[test]
fn types() {
    let (x, w) = (data(1, (2, 4)), data(2, (3, 4)));
    let other = w.to_dtype(DType::F32).unwrap();
    let (error, text) = refused(linear(&x, &other, None, Activation::None));
    assert!(matches!(error, Error::DTypeMismatchBinaryOp { lhs: DType::F64, rhs: DType::F32, .. }), "{text}");
    assert!(text.starts_with("`w` of tilewright linear has the type of `x`: convert one"), "{text}");
    let whole = x.to_dtype(DType::I64).unwrap();
    let (error, text) = refused(linear(&whole, &w, None, Activation::None));
    assert!(matches!(error, Error::UnsupportedDTypeForOp(DType::I64, "tilewright linear")), "{text}");
    assert!(text.starts_with("`x` of tilewright linear is one of f16, bf16, f32, f64"), "{text}");
    let q = data(1, (1, 2, 2, 4));
    let (error, text) = refused(attention_decode(&q, &q, &q, &data(2, 1), &AttentionOptions::new()));
    assert!(matches!(error, Error::UnsupportedDTypeForOp(DType::F64, _)), "{text}");
    assert!(text.starts_with("`lengths` of tilewright attention_decode is one of i32, u32"), "{text}");
}

#[test]
fn shapes() {
    let (x, w) = (data(1, (2, 4)), data(2, (3, 5)));
    let (error, text) = refused(linear(&x, &w, None, Activation::None));
    assert!(
        matches!(&error, Error::UnexpectedShape { expected, got, .. } if expected.dims() == [3, 4] && got.dims() == [3, 5]),
        "{text}"
    );
    assert!(text.starts_with("`w` of tilewright linear does not fit the others"), "{text}");
    let (_, text) = refused(linear(&x, &data(2, (3, 4)), Some(&data(3, 4)), Activation::None));
    assert!(text.starts_with("`bias` of tilewright linear"), "{text}");
    let (error, text) = refused(linear(&x, &data(2, 4), None, Activation::None));
    assert!(matches!(error, Error::UnexpectedNumberOfDims { expected: 2, got: 1, .. }), "{text}");
    let (_, text) = refused(rms_norm(&x, &data(2, 3), 1e-5));
    assert!(text.starts_with("`w` of tilewright rms_norm does not fit"), "{text}");
    let (_, text) = refused(layer_norm(&x, &data(2, 4), &data(2, 3), 1e-5));
    assert!(text.starts_with("`b` of tilewright layer_norm does not fit"), "{text}");
    let (q, k) = (data(1, (1, 2, 3, 4)), data(1, (1, 2, 2, 4)));
    let (_, text) = refused(attention(&q, &k, &k, &AttentionOptions::new()));
    assert!(text.contains("3 heads of queries are no multiple of 2 heads of keys"), "{text}");
    let (_, text) = refused(attention(&k, &k, &q, &AttentionOptions::new()));
    assert!(text.starts_with("`v` of tilewright attention does not fit"), "{text}");
    let (error, text) = refused(linear(
        &Tensor::zeros((0, 4), DType::F64, &Device::Cpu).unwrap(),
        &data(2, (3, 4)),
        None,
        Activation::None,
    ));
    assert!(matches!(error, Error::EmptyTensor { .. }) && text.starts_with("`x` of"), "{text}");
    let (_, text) = refused(add_linear(&data(3, (2, 4)), &x, &data(2, (3, 4))));
    assert!(text.starts_with("`c` of tilewright add_linear does not fit"), "{text}");
}

#[test]
fn layouts() {
    let (x, w) = (data(1, (4, 2)).t().unwrap(), data(2, (3, 4)));
    let (error, text) = refused(linear(&x, &w, None, Activation::None));
    assert!(matches!(error, Error::RequiresContiguous { .. }), "{text}");
    assert!(
        text.starts_with("`x` of tilewright linear is not in row-major order: call `.contiguous()`"),
        "{text}"
    );
    assert!(linear(&x.contiguous().unwrap(), &w, None, Activation::None).is_ok());
    // What is written once for each element is no result.
    let one = data(3, (1, 3)).broadcast_as((2, 3)).unwrap();
    assert!(add_linear(&one, &x.contiguous().unwrap(), &w).is_err());
    let same = data(4, (4, 4));
    assert!(add_linear(&same, &same, &same).is_err());
}

#[test]
fn groups_and_gradients_that_there_are_not() {
    let rows = Tensor::zeros((3, 8), DType::U8, &Device::Cpu).unwrap();
    let (_, text) = refused(LinearW4::new(&rows, &data(1, (1, 3)), None, 24));
    assert!(text.contains("is a power of two from 16 on, and not 24"), "{text}");
    let layer = LinearW4::new(&rows, &data(1, (2, 3)), None, 16).unwrap();
    let (_, text) = refused(layer.forward(&data(2, (2, 16))));
    assert!(text.starts_with("`scales` of tilewright linear of 4 bits does not fit"), "{text}");
    let q = Var::from_tensor(&data(1, (1, 2, 2, 4))).unwrap();
    let len = Tensor::from_slice(&[2u32], 1, &Device::Cpu).unwrap();
    let o = attention_decode(
        &q,
        &q.as_detached_tensor(),
        &q.as_detached_tensor(),
        &len,
        &AttentionOptions::new(),
    );
    let (error, text) = refused(o.unwrap().sum_all().unwrap().backward());
    assert!(matches!(error, Error::BackwardNotSupported { op: "tilewright attention_decode" }), "{text}");
}
