//! Gradients against candle's own of the same computation, and against quotients of differences.

mod common;

use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::ops;
use common::{close, data};
use tilewright_candle::{
    Activation, AttentionOptions, LinearW4, attention, layer_norm, linear, rms_norm, softmax,
};

/// The gradients of Σ f · weights, with weights that are all different.
fn gradients(f: &dyn Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let vars = inputs.iter().map(Var::from_tensor).collect::<Result<Vec<_>>>()?;
    let tensors: Vec<Tensor> = vars.iter().map(|var| var.as_tensor().clone()).collect();
    let y = f(&tensors)?;
    let grads = (&y * data(99, y.shape()).to_dtype(y.dtype())?)?.sum_all()?.backward()?;
    vars.iter().map(|var| grads.get(var).cloned().ok_or(candle_core::Error::UnwrapNone)).collect()
}

/// The same by differences, an element at a time.
fn by_differences(f: &dyn Fn(&[Tensor]) -> Result<Tensor>, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
    let step = 1e-5;
    let loss = |inputs: &[Tensor]| -> Result<f64> {
        let y = f(inputs)?;
        (&y * data(99, y.shape()))?.sum_all()?.to_scalar()
    };
    let mut all = Vec::new();
    for (at, input) in inputs.iter().enumerate() {
        let values: Vec<f64> = input.flatten_all()?.to_vec1()?;
        let mut slopes = Vec::new();
        for element in 0..values.len() {
            let moved = |by: f64| -> Result<f64> {
                let (mut values, mut inputs) = (values.clone(), inputs.to_vec());
                values[element] += by;
                inputs[at] = Tensor::from_vec(values, input.shape(), &Device::Cpu)?;
                loss(&inputs)
            };
            slopes.push((moved(step)? - moved(-step)?) / (2.0 * step));
        }
        all.push(Tensor::from_vec(slopes, input.shape(), &Device::Cpu)?);
    }
    Ok(all)
}

/// Compares the gradients of an operation with those of candle's own operations, and with differences.
fn check(
    what: &str,
    ours: &dyn Fn(&[Tensor]) -> Result<Tensor>,
    candles: &dyn Fn(&[Tensor]) -> Result<Tensor>,
    inputs: &[Tensor],
) -> Result<()> {
    close(what, &ours(inputs)?, &candles(inputs)?, 1e-12);
    let found = gradients(ours, inputs)?;
    for (at, (own, expected)) in found.iter().zip(gradients(candles, inputs)?).enumerate() {
        close(&format!("{what}: candle's gradient of operand {at}"), own, &expected, 1e-11);
    }
    for (at, (own, expected)) in found.iter().zip(by_differences(ours, inputs)?).enumerate() {
        close(&format!("{what}: differences of operand {at}"), own, &expected, 1e-7);
    }
    Ok(())
}

#[test]
fn linear_layers() -> Result<()> {
    let inputs = [data(1, (2, 3, 5)), data(2, (4, 5)), data(3, 4)];
    let plain = |t: &[Tensor]| t[0].reshape((6, 5))?.matmul(&t[1].t()?)?.reshape((2, 3, 4));
    check("no bias", &|t| linear(&t[0], &t[1], None, Activation::None), &plain, &inputs[..2])?;
    for activation in [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu] {
        let candles = |t: &[Tensor]| {
            let sums = plain(t)?.broadcast_add(&t[2])?;
            match activation {
                Activation::Relu => sums.relu(),
                // candle's own gradient of `gelu` has constants of six digits.
                Activation::Gelu => {
                    let inner = (&sums + (sums.powf(3.0)? * 0.044715)?)?;
                    (((inner * (2.0 / std::f64::consts::PI).sqrt())?.tanh()? + 1.0)? * sums)? * 0.5
                }
                Activation::Silu => sums.silu(),
                _ => Ok(sums),
            }
        };
        let ours = |t: &[Tensor]| linear(&t[0], &t[1], Some(&t[2]), activation);
        check(&format!("{activation:?}"), &ours, &candles, &inputs)?;
    }
    Ok(())
}

#[test]
fn norms_and_softmax() -> Result<()> {
    let inputs = [data(1, (2, 3, 7)), data(2, 7), data(3, 7)];
    let rms = |t: &[Tensor]| {
        let mean = (t[0].sqr()?.mean_keepdim(D::Minus1)? + 1e-3)?;
        t[0].broadcast_div(&mean.sqrt()?)?.broadcast_mul(&t[1])
    };
    check("rms", &|t| rms_norm(&t[0], &t[1], 1e-3), &rms, &inputs[..2])?;
    let layer = |t: &[Tensor]| {
        let x = t[0].broadcast_sub(&t[0].mean_keepdim(D::Minus1)?)?;
        let variance = (x.sqr()?.mean_keepdim(D::Minus1)? + 1e-3)?;
        x.broadcast_div(&variance.sqrt()?)?.broadcast_mul(&t[1])?.broadcast_add(&t[2])
    };
    check("layer", &|t| layer_norm(&t[0], &t[1], &t[2], 1e-3), &layer, &inputs)?;
    check("softmax", &|t| softmax(&t[0]), &|t| ops::softmax(&t[0], D::Minus1), &inputs[..1])
}

#[test]
fn attention_with_masks_and_shared_heads() -> Result<()> {
    let inputs = [data(1, (2, 3, 4, 2)), data(2, (2, 5, 2, 2)), data(3, (2, 5, 2, 2))];
    for options in [
        AttentionOptions::new(),
        AttentionOptions::new().causal().scale(0.9),
        AttentionOptions::new().window(2),
        // Queries ahead of all keys have none.
        AttentionOptions::new().window(1),
    ] {
        let ours = |t: &[Tensor]| attention(&t[0], &t[1], &t[2], &options);
        let found = gradients(&ours, &inputs)?;
        for (own, expected) in found.iter().zip(by_differences(&ours, &inputs)?) {
            // The largest element may be small: distances are absolute where it is 0.
            let far = (own - &expected)?.abs()?.max_all()?.to_scalar::<f64>()?;
            assert!(far < 1e-7, "{options:?}: {far:e}");
        }
    }
    let few = [data(1, (1, 5, 2, 2)), data(2, (1, 3, 2, 2)), data(3, (1, 3, 2, 2))];
    let ours = |t: &[Tensor]| attention(&t[0], &t[1], &t[2], &AttentionOptions::new().causal());
    for (own, expected) in gradients(&ours, &few)?.iter().zip(by_differences(&ours, &few)?) {
        close("more queries than keys", own, &expected, 1e-7);
    }
    Ok(())
}

#[test]
fn candles_attention_has_the_same_gradients() -> Result<()> {
    let inputs = [data(1, (2, 3, 4, 4)), data(2, (2, 5, 4, 4)), data(3, (2, 5, 4, 4))];
    let candles = |t: &[Tensor]| {
        let [q, k, v] = [0, 1, 2].map(|at| t[at].transpose(1, 2).and_then(|x| x.contiguous()));
        let scores = (q?.matmul(&k?.t()?)? * 0.5)?;
        ops::softmax(&scores, D::Minus1)?.matmul(&v?)?.transpose(1, 2)?.contiguous()
    };
    check("attention", &|t| attention(&t[0], &t[1], &t[2], &AttentionOptions::new()), &candles, &inputs)
}

#[test]
fn weights_of_four_bits_give_the_activations_gradient() -> Result<()> {
    let bytes: Vec<u8> = (0..5 * 16).map(|i| (i * 29 + 3) as u8).collect();
    let rows = Tensor::from_vec(bytes, (5, 16), &Device::Cpu)?;
    let layer = LinearW4::new(&rows, &data(2, (2, 5)).to_dtype(DType::F64)?, None, 16)?;
    let w = layer.dequantised()?.to_dtype(DType::F64)?;
    let candles = |t: &[Tensor]| t[0].matmul(&w.t()?);
    let x = [data(1, (3, 32))];
    for (own, expected) in gradients(&|t| layer.forward(&t[0]), &x)?.iter().zip(gradients(&candles, &x)?) {
        close("x", own, &expected, 1e-6);
    }
    Ok(())
}

#[test]
fn types_of_gradients_are_those_of_operands() -> Result<()> {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let inputs = [data(1, (4, 16)), data(2, 16), data(3, 16)];
        let inputs = inputs.map(|input| input.to_dtype(dtype).unwrap());
        for gradient in gradients(&|t| layer_norm(&t[0], &t[1], &t[2], 1e-5), &inputs)? {
            assert_eq!(gradient.dtype(), dtype);
        }
        let inputs = [data(1, (4, 16)), data(2, (3, 16)), data(3, 3)];
        let inputs = inputs.map(|input| input.to_dtype(dtype).unwrap());
        for gradient in gradients(&|t| linear(&t[0], &t[1], Some(&t[2]), Activation::Gelu), &inputs)? {
            assert_eq!(gradient.dtype(), dtype);
        }
    }
    Ok(())
}
