//! References on the host against candle's own operations.

mod common;

use candle_core::{D, DType, Device, Result, Tensor};
use candle_nn::ops;
use common::{close, data, rounding};
use tilewright_candle::{
    Activation, AttentionOptions, LinearW4, add_linear, attention, attention_decode, attention_paged,
    layer_norm, linear, rms_norm, softmax,
};

const TYPES: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

#[test]
fn linear_layers_are_products_with_bias_and_activation() -> Result<()> {
    for dtype in TYPES {
        let [x, w] = [data(1, (2, 5, 12)).to_dtype(dtype)?, data(2, (7, 12)).to_dtype(dtype)?];
        let bias = data(3, 7).to_dtype(dtype)?;
        // In f64, of the rounded factors.
        let [wide, of_w, of_bias] = [&x, &w, &bias].map(|t| t.to_dtype(DType::F64).unwrap());
        let plain = wide.reshape((10, 12))?.matmul(&of_w.t()?)?.reshape((2, 5, 7))?;
        let sums = plain.broadcast_add(&of_bias)?;
        let functions = [
            (Activation::None, sums.clone()),
            (Activation::Relu, sums.relu()?),
            (Activation::Gelu, sums.gelu()?),
            (Activation::Silu, sums.silu()?),
        ];
        for (activation, expected) in functions {
            let y = linear(&x, &w, Some(&bias), activation)?;
            close(&format!("{activation:?}"), &y, &expected.to_dtype(dtype)?, rounding(dtype));
        }
        close("no bias", &linear(&x, &w, None, Activation::None)?, &plain.to_dtype(dtype)?, rounding(dtype));
        let c = data(4, (2, 5, 7)).to_dtype(dtype)?;
        let expected = (c.to_dtype(DType::F64)? + plain)?.to_dtype(dtype)?;
        add_linear(&c, &x, &w)?;
        close("added", &c, &expected, rounding(dtype));
    }
    Ok(())
}

#[test]
fn a_row_of_a_larger_tensor_is_an_operand_and_a_place() -> Result<()> {
    let (all, w) = (data(1, (4, 6, 8)), data(2, (8, 8)));
    let part = all.narrow(0, 2, 1)?;
    let expected = part.reshape((6, 8))?.matmul(&w.t()?)?.reshape((1, 6, 8))?;
    close("a part", &linear(&part, &w, None, Activation::None)?, &expected, 1e-13);
    let sums = Tensor::zeros((3, 6, 8), DType::F64, &Device::Cpu)?;
    add_linear(&sums.narrow(0, 1, 1)?, &part, &w)?;
    close("the place", &sums.narrow(0, 1, 1)?.contiguous()?, &expected, 1e-13);
    assert_eq!(sums.narrow(0, 0, 1)?.abs()?.sum_all()?.to_scalar::<f64>()?, 0.0);
    assert_eq!(sums.narrow(0, 2, 1)?.abs()?.sum_all()?.to_scalar::<f64>()?, 0.0);
    Ok(())
}

#[test]
fn norms_and_softmax_are_those_of_candle_nn() -> Result<()> {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let x = (data(1, (3, 4, 33)) * 3.0)?.to_dtype(dtype)?;
        let [w, b] = [data(2, 33).to_dtype(dtype)?, data(3, 33).to_dtype(dtype)?];
        let within = 2.0 * rounding(dtype);
        close("rms", &rms_norm(&x, &w, 1e-5)?, &ops::rms_norm(&x, &w, 1e-5)?, within);
        close("layer", &layer_norm(&x, &w, &b, 1e-5)?, &ops::layer_norm(&x, &w, &b, 1e-5)?, within);
        close("softmax", &softmax(&x)?, &ops::softmax_last_dim(&x)?, within);
    }
    Ok(())
}

/// Attention by candle's operations, over `[b, s, h, d]`, of the pairs that a function takes.
fn by_candle(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    scale: f64,
    attends: impl Fn(i64, i64) -> bool,
) -> Result<Tensor> {
    let ((b, sq, hq, d), (_, sk, hk, _)) = (q.dims4()?, k.dims4()?);
    let heads = |x: &Tensor| -> Result<Tensor> {
        let x = x.transpose(1, 2)?.unsqueeze(2)?;
        x.broadcast_as((b, hk, hq / hk, sk, d))?.reshape((b, hq, sk, d))
    };
    let mask: Vec<f64> = (0..sq as i64)
        .flat_map(|i| (0..sk as i64).map(move |j| (i + (sk as i64) - (sq as i64), j)))
        .map(|(i, j)| if attends(i, j) { 0.0 } else { f64::NEG_INFINITY })
        .collect();
    let mask = Tensor::from_vec(mask, (sq, sk), &Device::Cpu)?;
    let scores = (q.transpose(1, 2)?.contiguous()?.matmul(&heads(k)?.t()?)? * scale)?;
    let weights = ops::softmax(&scores.broadcast_add(&mask)?, D::Minus1)?;
    weights.matmul(&heads(v)?)?.transpose(1, 2)?.contiguous()
}

#[test]
fn attention_is_candles_own_with_masks_and_shared_heads() -> Result<()> {
    let (q, k, v) = (data(1, (2, 5, 4, 16)), data(2, (2, 9, 2, 16)), data(3, (2, 9, 2, 16)));
    let all = AttentionOptions::new();
    close("all", &attention(&q, &k, &v, &all)?, &by_candle(&q, &k, &v, 0.25, |_, _| true)?, 1e-13);
    let causal = attention(&q, &k, &v, &all.causal().scale(0.7))?;
    close("causal", &causal, &by_candle(&q, &k, &v, 0.7, |i, j| j <= i)?, 1e-13);
    let window = attention(&q, &k, &v, &all.window(3))?;
    close("window", &window, &by_candle(&q, &k, &v, 0.25, |i, j| j <= i && j > i - 3)?, 1e-13);
    Ok(())
}

#[test]
fn caches_give_what_their_keys_do() -> Result<()> {
    let (b, room, lengths) = (3, 32, [7u32, 0, 32]);
    let (q, k, v) = (data(1, (b, 2, 4, 16)), data(2, (b, room, 2, 16)), data(3, (b, room, 2, 16)));
    let len = Tensor::from_slice(&lengths, b, &Device::Cpu)?;
    let options = AttentionOptions::new();
    let o = attention_decode(&q, &k, &v, &len, &options)?;
    for (i, length) in lengths.into_iter().enumerate() {
        let of_sequence = o.narrow(0, i, 1)?;
        if length == 0 {
            assert_eq!(of_sequence.abs()?.sum_all()?.to_scalar::<f64>()?, 0.0);
            continue;
        }
        let [k, v] = [&k, &v].map(|x| x.narrow(0, i, 1).and_then(|x| x.narrow(1, 0, length as usize)));
        let expected = by_candle(&q.narrow(0, i, 1)?, &k?, &v?, 0.25, |i, j| j <= i)?;
        close("a sequence", &of_sequence, &expected, 1e-13);
    }
    // The same keys in pages, in another order.
    let places: Vec<u32> = (0..6).map(|page| (page * 5 + 2) % 6).collect();
    let table = Tensor::from_slice(&places, (b, 2), &Device::Cpu)?;
    let pages = |x: &Tensor| -> Result<Tensor> {
        let all = x.reshape((6, 16, 2, 16))?;
        let mut of_page = vec![0u32; 6];
        places.iter().enumerate().for_each(|(from, to)| of_page[*to as usize] = from as u32);
        all.index_select(&Tensor::from_vec(of_page, 6, &Device::Cpu)?, 0)
    };
    let paged = attention_paged(&q, &pages(&k)?, &pages(&v)?, &table, &len, &options)?;
    close("pages", &paged, &o, 1e-13);
    let few = options.window(3);
    let [a, b] = [
        attention_paged(&q, &pages(&k)?, &pages(&v)?, &table, &len, &few)?,
        attention_decode(&q, &k, &v, &len, &few)?,
    ];
    close("a window", &a, &b, 1e-13);
    assert!(common::distance(&a, &paged) > 0.1);
    Ok(())
}

#[test]
fn weights_of_four_bits_are_what_they_stand_for() -> Result<()> {
    let (n, k, group) = (6, 40, 16);
    let bytes: Vec<u8> = (0..n * k / 2).map(|i| (i * 37 + 11) as u8).collect();
    let rows = Tensor::from_slice(&bytes, (n, k / 2), &Device::Cpu)?;
    let scales = (data(2, (3, n)).abs()? + 0.1)?.to_dtype(DType::F16)?;
    let zeros = (data(3, (3, n)).abs()? * 15.0)?.round()?.to_dtype(DType::F16)?;
    let x = data(1, (2, 3, k)).to_dtype(DType::F16)?;
    for zeros in [None, Some(&zeros)] {
        let layer = LinearW4::new(&rows, &scales, zeros, group)?;
        let read = |tensor: &Tensor, group: usize, row: usize| -> Result<f64> {
            Ok(f64::from(tensor.get(group)?.get(row)?.to_dtype(DType::F32)?.to_scalar::<f32>()?))
        };
        let mut w = Vec::new();
        for row in 0..n {
            for column in 0..k {
                let byte = bytes[(row * k + column) / 2];
                let half = i32::from(if column % 2 == 0 { byte & 15 } else { byte >> 4 });
                let value = match zeros {
                    Some(zeros) => f64::from(half) - read(zeros, column / group, row)?,
                    None => f64::from(if half > 7 { half - 16 } else { half }),
                };
                w.push(value * read(&scales, column / group, row)?);
            }
        }
        let w = Tensor::from_vec(w, (n, k), &Device::Cpu)?;
        close("dequantised", &layer.dequantised()?, &w.to_dtype(DType::F16)?, 1e-3);
        let expected = x.to_dtype(DType::F64)?.reshape((6, k))?.matmul(&w.t()?)?.reshape((2, 3, n))?;
        close("the product", &layer.forward(&x)?, &expected.to_dtype(DType::F16)?, 2e-3);
    }
    Ok(())
}
