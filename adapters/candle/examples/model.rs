//! A small transformer with these operations beside the same of candle's own: on the host, where both are compared; and on a GPU, where they are compared, trained for a step, and timed.
//!
//! ```sh
//! cargo run --release --example model                       # on the host
//! cargo run --release --example model --features cuda       # on the GPU too, where there is nvcc
//! ```

use std::time::Instant;

use candle_core::backprop::GradStore;
use candle_core::{D, DType, Device, Result, Tensor, Var};
use candle_nn::ops;
use tilewright_candle::{
    Activation, AttentionOptions, LinearW4, add_linear, attention, attention_decode, attention_paged,
    layer_norm, linear, rms_norm, softmax,
};

/// The extents of the model: layers, width, heads, heads of keys, and the width of the network within.
#[derive(Clone, Copy)]
struct Sizes {
    layers: usize,
    width: usize,
    heads: usize,
    kv: usize,
    inner: usize,
}

/// The weights of a layer.
struct Layer {
    norm: [Tensor; 2],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    up: Tensor,
    bias: Tensor,
    down: Tensor,
}

/// The operations that a model is made of.
#[derive(Clone, Copy, PartialEq)]
enum By {
    Tilewright,
    Candle,
}

struct Model {
    sizes: Sizes,
    layers: Vec<Layer>,
}

/// Numbers from −1 to 1, the same on every device.
fn data(seed: u64, shape: &[usize], scale: f64, dtype: DType, device: &Device) -> Result<Tensor> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (scale * ((state >> 33) as f64 / f64::from(1u32 << 30) - 1.0)) as f32
    };
    let values: Vec<f32> = std::iter::repeat_with(next).take(shape.iter().product()).collect();
    Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

impl Model {
    /// A model whose weights are variables, or are not: candle's fused operations have no gradients.
    fn new(sizes: Sizes, dtype: DType, device: &Device, trained: bool) -> Result<Model> {
        let Sizes { width, heads, kv, inner, .. } = sizes;
        let mut seed = 0;
        let weight = |value: Tensor| -> Result<Tensor> {
            Ok(if trained { Var::from_tensor(&value)?.into_inner() } else { value })
        };
        let mut matrix = |rows: usize, columns: usize| {
            seed += 1;
            weight(data(seed, &[rows, columns], (3.0 / columns as f64).sqrt(), dtype, device)?)
        };
        let ones = || weight(Tensor::ones(width, dtype, device)?);
        let d = width / heads;
        let layer = |_| {
            Ok(Layer {
                norm: [ones()?, ones()?],
                q: matrix(width, width)?,
                k: matrix(kv * d, width)?,
                v: matrix(kv * d, width)?,
                o: matrix(width, width)?,
                up: matrix(inner, width)?,
                bias: weight(Tensor::zeros(inner, dtype, device)?)?,
                down: matrix(width, inner)?,
            })
        };
        Ok(Model { sizes, layers: (0..sizes.layers).map(layer).collect::<Result<_>>()? })
    }

    fn forward(&self, x: &Tensor, by: By) -> Result<Tensor> {
        let (mut x, s) = (x.clone(), x.dim(1)?);
        // candle's mask is made once for all layers; a single query needs none.
        let mask = (by == By::Candle && s > 1).then(|| causal(s, x.dtype(), x.device())).transpose()?;
        for layer in &self.layers {
            x = self.layer(layer, &x, by, mask.as_ref())?;
        }
        Ok(x)
    }

    fn layer(&self, layer: &Layer, x: &Tensor, by: By, mask: Option<&Tensor>) -> Result<Tensor> {
        let (b, s, _) = x.dims3()?;
        let Sizes { width, heads, kv, .. } = self.sizes;
        let d = width / heads;
        let y = norm(x, &layer.norm[0], by)?;
        let project = |w: &Tensor, heads: usize| product(&y, w, by)?.reshape((b, s, heads, d));
        let (q, k, v) = (project(&layer.q, heads)?, project(&layer.k, kv)?, project(&layer.v, kv)?);
        let o = match by {
            By::Tilewright => attention(&q, &k, &v, &AttentionOptions::new().causal())?,
            By::Candle => candles_attention(&q, &k, &v, mask)?,
        };
        let x = (x + product(&o.reshape((b, s, width))?, &layer.o, by)?)?;
        let y = norm(&x, &layer.norm[1], by)?;
        let up = match by {
            By::Tilewright => linear(&y, &layer.up, Some(&layer.bias), Activation::Gelu)?,
            By::Candle => product(&y, &layer.up, by)?.broadcast_add(&layer.bias)?.gelu()?,
        };
        x + product(&up, &layer.down, by)?
    }

    /// The gradients of the mean of squares.
    fn step(&self, x: &Tensor, by: By) -> Result<(f32, GradStore)> {
        let loss = self.forward(x, by)?.to_dtype(DType::F32)?.sqr()?.mean_all()?;
        Ok((loss.to_scalar()?, loss.backward()?))
    }
}

fn norm(x: &Tensor, w: &Tensor, by: By) -> Result<Tensor> {
    match by {
        By::Tilewright => rms_norm(x, w, 1e-5),
        // That of candle-nn has no gradient.
        By::Candle if x.track_op() || w.is_variable() => ops::rms_norm_slow(x, w, 1e-5),
        By::Candle => ops::rms_norm(x, w, 1e-5),
    }
}

fn product(x: &Tensor, w: &Tensor, by: By) -> Result<Tensor> {
    match by {
        By::Tilewright => linear(x, w, None, Activation::None),
        By::Candle => {
            let (b, s, k) = x.dims3()?;
            x.reshape((b * s, k))?.matmul(&w.t()?)?.reshape((b, s, w.dim(0)?))
        }
    }
}

/// The mask of causal attention, which is added to scores.
fn causal(s: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let mask = |(i, j): (usize, usize)| if j <= i { 0.0 } else { f32::NEG_INFINITY };
    let mask: Vec<f32> = (0..s).flat_map(|i| (0..s).map(move |j| (i, j))).map(mask).collect();
    Tensor::from_vec(mask, (s, s), device)?.to_dtype(dtype)
}

/// Attention as candle's models have it.
fn candles_attention(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let ((b, _, hq, d), (_, sk, hk, _)) = (q.dims4()?, k.dims4()?);
    let heads = |x: &Tensor| -> Result<Tensor> {
        let x = x.transpose(1, 2)?.unsqueeze(2)?;
        x.broadcast_as((b, hk, hq / hk, sk, d))?.contiguous()?.reshape((b, hq, sk, d))
    };
    let q = (q.transpose(1, 2)?.contiguous()? / (d as f64).sqrt())?;
    let scores = q.matmul(&heads(k)?.t()?)?;
    let scores = mask.map_or(Ok(scores.clone()), |mask| scores.broadcast_add(mask))?;
    let weights =
        if scores.track_op() { ops::softmax(&scores, D::Minus1)? } else { ops::softmax_last_dim(&scores)? };
    weights.matmul(&heads(v)?)?.transpose(1, 2)?.contiguous()
}

/// The distance of two tensors over the length of the second, in f32 on the host.
fn distance(a: &Tensor, b: &Tensor) -> Result<f64> {
    let flat = |x: &Tensor| x.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all();
    let (a, b) = (flat(a)?, flat(b)?);
    let norm = |x: &Tensor| x.sqr()?.sum_all()?.to_scalar::<f64>();
    Ok((norm(&(&a - &b)?)? / norm(&b)?).sqrt())
}

/// Compares two tensors and says so; an error if they are further apart than they may.
fn compare(what: &str, a: &Tensor, b: &Tensor, within: f64) -> Result<()> {
    let distance = distance(a, b)?;
    println!("{what}: distance {distance:.2e}, at most {within:.0e}");
    if distance.is_nan() || distance > within {
        candle_core::bail!("{what}: {distance:e} is more than {within:e}");
    }
    Ok(())
}

/// Milliseconds of a call, the median of some, with the work of the device.
fn time(device: &Device, mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut times = Vec::new();
    for round in 0..23 {
        device.synchronize()?;
        let from = Instant::now();
        call()?;
        device.synchronize()?;
        if round >= 3 {
            times.push(from.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Both ways with the gradients of a step.
fn check(device: &Device, dtype: DType, within: f64) -> Result<()> {
    let sizes = Sizes { layers: 2, width: 256, heads: 4, kv: 2, inner: 512 };
    let x = data(1000, &[2, 48, sizes.width], 1.0, dtype, device)?;
    let model = Model::new(sizes, dtype, device, true)?;
    let [ours, theirs] = [By::Tilewright, By::Candle].map(|by| model.forward(&x, by));
    compare(&format!("{:?} {dtype:?}: result beside candle's", device.location()), &ours?, &theirs?, within)?;
    let [(loss, ours), (of_candle, theirs)] = [model.step(&x, By::Tilewright)?, model.step(&x, By::Candle)?];
    println!("loss {loss} and {of_candle}");
    let layer = &model.layers[0];
    for (name, var) in [
        ("norm", &layer.norm[0]),
        ("q", &layer.q),
        ("k", &layer.k),
        ("v", &layer.v),
        ("up", &layer.up),
        ("bias", &layer.bias),
    ] {
        let both = ours.get(var).zip(theirs.get(var));
        let Some((a, b)) = both else { candle_core::bail!("{name} has no gradient") };
        compare(&format!("  gradient of {name}"), a, b, 10.0 * within)?;
    }
    Ok(())
}

/// The results of operations on a device, in one order.
fn operations(device: &Device, dtype: DType) -> Result<Vec<(&'static str, Tensor)>> {
    let of = |seed: u64, shape: &[usize]| data(seed, shape, 1.0, dtype, device);
    let (x, w, bias) = (of(1, &[3, 40, 256])?, of(2, &[192, 256])?, of(3, &[192])?);
    let row = of(4, &[256])?;
    let sums = of(5, &[3, 40, 192])?.copy()?;
    add_linear(&sums, &x, &w)?;
    let (q, k, v) = (of(6, &[3, 2, 8, 64])?, of(7, &[3, 96, 2, 64])?, of(8, &[3, 96, 2, 64])?);
    let len = Tensor::from_slice(&[5u32, 96, 60], 3, device)?;
    let table = Tensor::from_slice(&[4u32, 1, 5, 0, 3, 2], (3, 2), device)?;
    let pages = |seed: u64| of(seed, &[6, 64, 2, 64]);
    let options = AttentionOptions::new();
    let bytes: Vec<u8> = (0..192 * 128).map(|i: usize| (i * 37 + i / 7) as u8).collect();
    let rows = Tensor::from_vec(bytes, (192, 128), device)?;
    let scales = ((of(9, &[2, 192])?.abs()? * 0.1)? + 0.01)?;
    let zeros = (of(10, &[2, 192])?.abs()? * 15.0)?.round()?;
    let long = (of(11, &[2, 130, 8, 64])?, of(12, &[2, 130, 2, 64])?, of(13, &[2, 130, 2, 64])?);
    let mut all = vec![
        ("linear", linear(&x, &w, None, Activation::None)?),
        ("linear, bias, relu", linear(&x, &w, Some(&bias), Activation::Relu)?),
        ("linear, bias, gelu", linear(&x, &w, Some(&bias), Activation::Gelu)?),
        ("linear, silu", linear(&x, &w, None, Activation::Silu)?),
        ("add_linear", sums),
        ("rms_norm", rms_norm(&x, &row, 1e-5)?),
        ("layer_norm", layer_norm(&x, &row, &row, 1e-5)?),
        ("softmax", softmax(&x)?),
        // A part of a tensor, which begins behind its first element.
        ("a part", softmax(&x.narrow(0, 1, 2)?)?),
    ];
    if dtype != DType::F32 {
        all.extend([
            ("attention", attention(&long.0, &long.1, &long.2, &options)?),
            ("attention, causal", attention(&long.0, &long.1, &long.2, &options.causal())?),
            ("attention, window", attention(&long.0, &long.1, &long.2, &options.window(50))?),
            ("decode", attention_decode(&q, &k, &v, &len, &options)?),
            ("decode, window", attention_decode(&q, &k, &v, &len, &options.window(20))?),
            ("decode, pages", attention_paged(&q, &pages(7)?, &pages(8)?, &table, &len, &options)?),
            ("4 bits", LinearW4::new(&rows, &scales, None, 128)?.forward(&x)?),
            ("4 bits, zeros", LinearW4::new(&rows, &scales, Some(&zeros), 128)?.forward(&x)?),
        ]);
    }
    Ok(all)
}

/// Gradients of Σ f² of the first operand, by operations that the model does not have.
fn gradients(device: &Device, dtype: DType) -> Result<Vec<(&'static str, Tensor)>> {
    let of = |seed: u64, shape: &[usize]| data(seed, shape, 1.0, dtype, device);
    let row = of(4, &[256])?;
    let bytes: Vec<u8> = (0..192 * 128).map(|i: usize| (i * 37 + i / 7) as u8).collect();
    let rows = Tensor::from_vec(bytes, (192, 128), device)?;
    let scales = ((of(9, &[2, 192])?.abs()? * 0.1)? + 0.01)?;
    let layer = LinearW4::new(&rows, &scales, None, 128)?;
    let x = Var::from_tensor(&of(1, &[3, 40, 256])?)?;
    let results = [
        ("layer_norm", layer_norm(&x, &row, &row, 1e-5)?),
        ("softmax", softmax(&(x.as_tensor() * 4.0)?)?),
        ("linear, silu", linear(&x, &of(2, &[192, 256])?, None, Activation::Silu)?),
        ("linear, relu", linear(&x, &of(2, &[192, 256])?, None, Activation::Relu)?),
        ("4 bits", layer.forward(&x)?),
    ];
    let gradient = |(name, y): (&'static str, Tensor)| {
        let grads = y.to_dtype(DType::F32)?.sqr()?.sum_all()?.backward()?;
        let Some(gradient) = grads.get(&x) else { candle_core::bail!("{name} has no gradient") };
        Ok((name, gradient.clone()))
    };
    results.into_iter().map(gradient).collect()
}

/// Operands on two devices are refused, candle's own and those beyond its three.
fn devices(device: &Device) -> Result<()> {
    let of = |shape: &[usize], device: &Device| data(1, shape, 1.0, DType::F16, device);
    let apart = [
        linear(&of(&[8, 64], device)?, &of(&[16, 64], &Device::Cpu)?, None, Activation::None),
        attention_decode(
            &of(&[1, 1, 4, 64], device)?,
            &of(&[1, 32, 4, 64], device)?,
            &of(&[1, 32, 4, 64], device)?,
            &Tensor::full(32u32, 1, &Device::Cpu)?,
            &AttentionOptions::new(),
        ),
    ];
    for result in apart {
        let Err(error) = result else { candle_core::bail!("operands on two devices are not refused") };
        println!("refused: {error}");
    }
    Ok(())
}

/// A library that has been warmed up, which compiles nothing more.
#[cfg(feature = "cuda")]
fn strict(device: &Device) -> Result<()> {
    use tilewright_candle::{library, ops, use_library};
    let kernels = library(device)?;
    let from = Instant::now();
    let range = ops::Gemm::f16().m(1..=64).n(1024).k(1024).epilogue("bias+gelu");
    let warm = kernels.warm_up(&range).map_err(candle_core::Error::wrap)?;
    println!("{warm:?} in {:.1} s", from.elapsed().as_secs_f64());
    use_library(device, kernels.strict())?;
    let of = |shape: &[usize]| data(1, shape, 1.0, DType::F16, device);
    let (w, bias) = (of(&[1024, 1024])?, of(&[1024])?);
    linear(&of(&[33, 1024])?, &w, Some(&bias), Activation::Gelu)?;
    let Err(error) = linear(&of(&[33, 1024])?, &w, Some(&bias), Activation::Silu) else {
        candle_core::bail!("what is not warm is not refused");
    };
    println!("refused: {error}");
    Ok(())
}

/// Everything on a GPU: right beside the host, then times beside candle's own kernels.
fn on_gpu(device: &Device) -> Result<()> {
    for (dtype, within) in [(DType::F16, 2e-3), (DType::BF16, 1.6e-2), (DType::F32, 2e-5)] {
        for ((name, ours), (_, host)) in
            operations(device, dtype)?.iter().zip(operations(&Device::Cpu, dtype)?)
        {
            compare(&format!("{dtype:?} {name}"), ours, &host, within)?;
        }
    }
    for (dtype, within) in [(DType::F16, 4e-3), (DType::BF16, 3e-2)] {
        for ((name, ours), (_, host)) in gradients(device, dtype)?.iter().zip(gradients(&Device::Cpu, dtype)?)
        {
            compare(&format!("{dtype:?} gradient of {name}"), ours, &host, within)?;
        }
    }
    check(device, DType::BF16, 3e-2)?;
    check(device, DType::F16, 6e-3)?;
    devices(device)?;
    println!("milliseconds: tilewright, candle, ratio");
    let say =
        |what: &str, [ours, theirs]: [f64; 2]| println!("{what}: {ours:.4} {theirs:.4} {:.2}", theirs / ours);
    let dtype = DType::F16;
    let sizes = Sizes { layers: 2, width: 4096, heads: 32, kv: 8, inner: 14336 };
    let model = Model::new(sizes, dtype, device, false)?;
    let of = |seed: u64, shape: &[usize]| data(seed, shape, 1.0, dtype, device);
    for (b, s) in [(1, 1), (1, 512), (4, 512)] {
        let x = of(1, &[b, s, 4096])?;
        let both = [By::Tilewright, By::Candle].map(|by| time(device, || model.forward(&x, by).map(drop)));
        let [ours, theirs] = both;
        say(&format!("two layers of 4096, b = {b}, s = {s}"), [ours?, theirs?]);
    }
    drop(model);
    let model = Model::new(sizes, dtype, device, true)?;
    let x = of(1, &[2, 512, 4096])?;
    let [ours, theirs] = [By::Tilewright, By::Candle].map(|by| time(device, || model.step(&x, by).map(drop)));
    say("the same, a step with gradients, b = 2, s = 512", [ours?, theirs?]);
    drop(model);
    for m in [1, 16, 512, 4096] {
        let (x, w, bias) = (of(1, &[1, m, 4096])?, of(2, &[4096, 4096])?, of(3, &[4096])?);
        let ours = time(device, || linear(&x, &w, Some(&bias), Activation::Gelu).map(drop))?;
        let theirs = time(device, || product(&x, &w, By::Candle)?.broadcast_add(&bias)?.gelu().map(drop))?;
        say(&format!("linear, bias, gelu, {m} x 4096 x 4096"), [ours, theirs]);
        let row = of(4, &[4096])?;
        let ours = time(device, || rms_norm(&x, &row, 1e-5).map(drop))?;
        let theirs = time(device, || ops::rms_norm(&x, &row, 1e-5).map(drop))?;
        say(&format!("rms_norm, {m} x 4096"), [ours, theirs]);
        let ours = time(device, || softmax(&x).map(drop))?;
        let theirs = time(device, || ops::softmax_last_dim(&x).map(drop))?;
        say(&format!("softmax, {m} x 4096"), [ours, theirs]);
        let bytes: Vec<u8> = (0..4096 * 2048).map(|i: usize| (i * 37) as u8).collect();
        let rows = Tensor::from_vec(bytes, (4096, 2048), device)?;
        let layer = LinearW4::new(&rows, &(of(5, &[32, 4096])?.abs()? * 0.01)?, None, 128)?;
        let ours = time(device, || layer.forward(&x).map(drop))?;
        let theirs = time(device, || product(&x, &w, By::Candle).map(drop))?;
        say(&format!("4 bits beside candle's f16, {m} x 4096 x 4096"), [ours, theirs]);
    }
    for s in [512, 2048] {
        let (q, kv) = (of(1, &[1, s, 32, 128])?, of(2, &[1, s, 8, 128])?);
        let options = AttentionOptions::new().causal();
        let ours = time(device, || attention(&q, &kv, &kv, &options).map(drop))?;
        let mask = causal(s, dtype, device)?;
        let theirs = time(device, || candles_attention(&q, &kv, &kv, Some(&mask)).map(drop))?;
        say(&format!("causal attention, 32 and 8 heads of 128, {s} places"), [ours, theirs]);
    }
    for b in [1, 32] {
        let (q, kv) = (of(1, &[b, 1, 32, 128])?, of(2, &[b, 4096, 8, 128])?);
        let len = Tensor::full(4096u32, b, device)?;
        let ours = time(device, || attention_decode(&q, &kv, &kv, &len, &AttentionOptions::new()).map(drop))?;
        let theirs = time(device, || candles_attention(&q, &kv, &kv, None).map(drop))?;
        say(&format!("decoding, {b} sequences of 4096 keys, 32 and 8 heads of 128"), [ours, theirs]);
    }
    // The host's part of a call: many that nobody waits for.
    let (x, row) = (of(1, &[1, 1, 4096])?, of(2, &[4096])?);
    let host = |call: &dyn Fn() -> Result<Tensor>| -> Result<f64> {
        call()?;
        device.synchronize()?;
        let from = Instant::now();
        for _ in 0..1000 {
            call()?;
        }
        let micros = from.elapsed().as_secs_f64() * 1e3;
        device.synchronize()?;
        Ok(micros)
    };
    let [ours, theirs] = [host(&|| rms_norm(&x, &row, 1e-5))?, host(&|| ops::rms_norm(&x, &row, 1e-5))?];
    println!("microseconds of the host a call of rms_norm: {ours:.2}, candle's own {theirs:.2}");
    Ok(())
}

fn main() -> Result<()> {
    check(&Device::Cpu, DType::F32, 1e-5)?;
    if candle_core::utils::cuda_is_available() {
        let device = Device::new_cuda(0)?;
        on_gpu(&device)?;
        #[cfg(feature = "cuda")]
        strict(&device)?;
    } else {
        println!("no GPU: build with `--features cuda` on a machine that has one");
    }
    Ok(())
}
