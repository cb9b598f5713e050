//! Operators by `tilewright-ops` on a GPU: are they right, what do they cost the host, and what do launches that begin early win?
//!
//! ```text
//! cargo run --release -p tilewright --example operators_check
//! ```
//!
//! It compares operators with plain loops at some of their elements, replays a captured graph of 1,000 runs of them, and measures the host's time of a run, the time of a warm-up, kernels that rely on
//! 16 bytes beside such as rely on all that divides their sizes, and two products one after another with and without an early begin of the second.
#![allow(unsafe_code)] // views and streams are of memory and handles that the example owns

use std::error::Error;
use std::fmt::Display;
use std::hint::black_box;
use std::ptr;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tilewright::compiler::{Options, compile};
use tilewright::kernels::Operator;
use tilewright::kernels::moe::{MoeLayer, MoeReduction, MoeRoutingConfig, MoeWeights};
use tilewright::launch::driver::CAPTURE_THREAD_LOCAL;
use tilewright::launch::{Chain, Code, Gpu, LaunchOptions, Stream, View, ViewMut, Workspace};
use tilewright::machine::DType;
use tilewright::ops::{Gemm, Library, OpsError, Problems};
use tilewright::prelude::{BF16, Device, E4M3, F16, F32, I4, I32};
use tilewright::runtime::{Buffer, CudaDevice, decode, encode};
use tilewright::tune::{Problem, Target, choose};

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Results that are not what they ought to be.
static WRONG: AtomicUsize = AtomicUsize::new(0);

/// Says that something is wrong, and goes on.
fn wrong(text: impl Display) {
    println!("WRONG: {text}");
    WRONG.fetch_add(1, Ordering::Relaxed);
}

/// A GPU with its library, a stream and a workspace.
struct Place {
    device: CudaDevice,
    gpu: Gpu,
    lib: Library,
    stream: Stream<'static>,
    workspace: Buffer,
}

/// A tensor in the GPU's memory, with the numbers that it was filled with.
struct Held {
    buffer: Buffer,
    pointer: u64,
    dtype: DType,
    shape: Vec<i64>,
    values: Vec<f64>,
}

impl Place {
    fn new() -> Fallible<Place> {
        let device = CudaDevice::open(0)?;
        device.bind()?;
        let gpu = Gpu::current()?;
        let lib = Library::for_gpu(&gpu)?;
        let mut raw = ptr::null_mut();
        unsafe { gpu.driver().stream_create(&raw mut raw, 1) }.map_err(|e| format!("{e:?}"))?;
        let workspace = device.alloc(256 << 20)?;
        Ok(Place { gpu, lib, stream: unsafe { Stream::borrow(raw) }, workspace, device })
    }

    /// The workspace, whose counters are zeros since the first call.
    fn workspace(&self) -> Fallible<Workspace<'_>> {
        let pointer = self.device.address(&self.workspace)?;
        Ok(unsafe { Workspace::new(pointer, self.workspace.bytes() as u64) })
    }

    fn wait(&self) -> Fallible<()> {
        let waited = unsafe { self.gpu.driver().stream_synchronize(self.stream.raw()) };
        Ok(waited.map_err(|error| format!("{:?}", self.gpu.driver().describe(error)))?)
    }

    /// Numbers as a tensor of a type, rounded to it.
    fn held(&self, dtype: DType, shape: &[i64], values: &[f64]) -> Fallible<Rc<Held>> {
        let bytes = encode(dtype, values);
        let buffer = self.device.alloc(bytes.len().next_multiple_of(256))?;
        let mut padded = bytes.clone();
        padded.resize(buffer.bytes(), 0);
        self.device.upload(&buffer, &padded)?;
        let mut values = decode(dtype, &bytes);
        values.truncate(shape.iter().product::<i64>() as usize);
        let pointer = self.device.address(&buffer)?;
        Ok(Rc::new(Held { buffer, pointer, dtype, shape: shape.to_vec(), values }))
    }

    /// A tensor of random numbers from -1 to 1; of integers of its range.
    fn random(&self, dtype: DType, shape: &[i64], seed: u64) -> Fallible<Rc<Held>> {
        let count = shape.iter().product::<i64>() as usize;
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let values: Vec<f64> = match dtype.range() {
            Some((low, high)) => {
                (0..count).map(|_| (low as f64 + draw() * (high - low + 1) as f64).floor()).collect()
            }
            None => (0..count).map(|_| draw() * 2.0 - 1.0).collect(),
        };
        self.held(dtype, shape, &values)
    }

    /// A tensor for results, filled with numbers that no result is.
    fn result(&self, dtype: DType, shape: &[i64]) -> Fallible<Rc<Held>> {
        self.held(dtype, shape, &vec![100.0; shape.iter().product::<i64>() as usize])
    }

    fn read(&self, held: &Held) -> Fallible<Vec<f64>> {
        Ok(decode(held.dtype, &self.device.download(&held.buffer)?))
    }

    /// Compares some elements with a reference: at most so much apart, relative to 1 and to the element.
    fn compare(
        &self,
        name: &str,
        held: &Held,
        tolerance: f64,
        reference: impl Fn(usize) -> f64,
    ) -> Fallible<()> {
        self.wait()?;
        let found = self.read(held)?;
        let count = held.shape.iter().product::<i64>() as usize;
        let step = (count / 500).max(1) | 1;
        let mut most = 0f64;
        for at in (0..count).step_by(step).chain([count - 1]) {
            let expected = reference(at);
            let error = (found[at] - expected).abs() / (1.0 + expected.abs());
            most = if error.is_nan() { f64::INFINITY } else { most.max(error) };
        }
        if most > tolerance {
            wrong(format_args!("{name}: an element is {most:.2e} off, {tolerance:.0e} is right"));
        } else {
            println!("right: {name} ({most:.1e} at most)");
        }
        Ok(())
    }
}

impl Held {
    fn dtype(&self) -> tilewright::launch::DType {
        tilewright::launch::DType::named(self.dtype.name()).expect("both crates have the same types")
    }

    fn view(&self) -> View<'_> {
        unsafe { View::new(self.pointer, self.dtype(), &self.shape) }
    }

    fn view_mut(&self) -> ViewMut<'_> {
        unsafe { ViewMut::new(self.pointer, self.dtype(), &self.shape) }
    }
}

/// Puts the launches of an operator on the stream.
type Launches = Box<dyn Fn(&Place) -> Fallible<()>>;

/// A run of an operator, and its result.
struct Run {
    name: &'static str,
    result: Rc<Held>,
    run: Launches,
}

fn gelu(x: f64) -> f64 {
    x * 0.5 * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh())
}

/// Operators with arguments of their own, each right.
fn runs(p: &Place) -> Fallible<Vec<Run>> {
    let mut runs = Vec::new();
    for (name, m, n, k) in
        [("gemm, 1 row", 1, 1024, 2048), ("gemm, 17 rows", 17, 1000, 1000), ("gemm", 300, 1024, 520)]
    {
        let (a, b) = (p.random(F16, &[m, k], 1)?, p.random(F16, &[n, k], 2)?);
        let (bias, residual) = (p.random(F16, &[n], 3)?, p.random(F16, &[m, n], 4)?);
        let c = p.result(F16, &[m, n])?;
        let of = (a.clone(), b.clone(), bias.clone(), residual.clone(), c.clone());
        let run = move |p: &Place| {
            let (a, b, bias, residual, c) = &of;
            let mut memory = p.workspace()?;
            p.lib
                .gemm(p.stream, &a.view(), &b.view(), &mut c.view_mut())
                .alpha(0.25)
                .bias(&bias.view())
                .gelu()
                .residual(&residual.view())
                .workspace(&mut memory)
                .run()?;
            Ok(())
        };
        run(p)?;
        let (k, n) = (k as usize, n as usize);
        p.compare(name, &c, 4e-3, |at| {
            let (i, j) = (at / n, at % n);
            let sum: f64 = (0..k).map(|l| a.values[i * k + l] * b.values[j * k + l]).sum();
            gelu(sum * 0.25 + bias.values[j]) + residual.values[at]
        })?;
        runs.push(Run { name, result: c, run: Box::new(run) });
    }
    {
        let (l, m, n, k) = (3, 70, 96, 128);
        let (a, b) = (p.random(BF16, &[l, m, k], 5)?, p.random(BF16, &[l, n, k], 6)?);
        let c = p.result(F32, &[l, m, n])?;
        let of = (a.clone(), b.clone(), c.clone());
        let run = move |p: &Place| {
            let mut memory = p.workspace()?;
            let (a, b, c) = &of;
            p.lib.gemm(p.stream, &a.view(), &b.view(), &mut c.view_mut()).workspace(&mut memory).run()?;
            Ok(())
        };
        run(p)?;
        let [m, n, k] = [m, n, k].map(|size| size as usize);
        p.compare("gemm, a batch of bf16 with results in f32", &c, 1e-4, |at| {
            let (product, i, j) = (at / (m * n), at / n % m, at % n);
            let (a, b) = (&a.values[(product * m + i) * k..][..k], &b.values[(product * n + j) * k..][..k]);
            a.iter().zip(b).map(|(a, b)| a * b).sum()
        })?;
        runs.push(Run { name: "gemm, a batch", result: c, run: Box::new(run) });
    }
    for (name, m, n) in [("rmsnorm", 64, 4096), ("rmsnorm, odd rows", 33, 1001)] {
        let (x, w, y) = (p.random(F16, &[m, n], 7)?, p.random(F16, &[n], 8)?, p.result(F16, &[m, n])?);
        let of = (x.clone(), w.clone(), y.clone());
        let run = move |p: &Place| {
            let (x, w, y) = &of;
            Ok(p.lib.rmsnorm(p.stream, &x.view(), &w.view(), &mut y.view_mut()).eps(1e-5).run()?)
        };
        run(p)?;
        let n = n as usize;
        p.compare(name, &y, 2e-3, |at| {
            let row = &x.values[at / n * n..][..n];
            let square = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
            x.values[at] / (square + 1e-5).sqrt() * w.values[at % n]
        })?;
        runs.push(Run { name, result: y, run: Box::new(run) });
    }
    {
        let n = 1000usize;
        let (x, y) = (p.random(F16, &[64, 1000], 9)?, p.result(F16, &[64, 1000])?);
        let of = (x.clone(), y.clone());
        let run = move |p: &Place| {
            Ok(p.lib
                .operator("softmax")
                .arg("x", &of.0.view())
                .arg("y", &mut of.1.view_mut())
                .run(p.stream)?)
        };
        run(p)?;
        p.compare("softmax by name", &y, 1e-4, |at| {
            let row = &x.values[at / n * n..][..n];
            x.values[at].exp() / row.iter().map(|x| x.exp()).sum::<f64>()
        })?;
        runs.push(Run { name: "softmax", result: y, run: Box::new(run) });
    }
    runs.push(attention(p)?);
    runs.push(decode_attention(p)?);
    runs.push(weights(p)?);
    {
        let (x, y, s) =
            (p.random(F16, &[48, 1024], 20)?, p.result(E4M3, &[48, 1024])?, p.result(F32, &[48])?);
        let of = (x.clone(), y, s.clone());
        let run = move |p: &Place| {
            let (x, y, s) = &of;
            Ok(p.lib.quantise_rows_fp8(p.stream, &x.view(), &mut y.view_mut(), &mut s.view_mut()).run()?)
        };
        run(p)?;
        p.compare("quantise_rows_fp8", &s, 1e-5, |row| {
            x.values[row * 1024..][..1024].iter().fold(0f64, |most, x| most.max(x.abs())) / 448.0
        })?;
        runs.push(Run { name: "quantise_rows_fp8", result: s, run: Box::new(run) });
    }
    {
        let (x, y) = (p.random(F16, &[300_000], 21)?, p.result(F32, &[1])?);
        let of = (x.clone(), y.clone());
        let run = move |p: &Place| {
            let mut memory = p.workspace()?;
            let call = p
                .lib
                .operator("sum_all")
                .arg("x", &of.0.view())
                .arg("y", &mut of.1.view_mut())
                .workspace(&mut memory)
                .run(p.stream);
            Ok(call?)
        };
        run(p)?;
        p.compare("sum_all, with counters in the workspace", &y, 1e-3, |_| x.values.iter().sum())?;
        runs.push(Run { name: "sum_all", result: y, run: Box::new(run) });
    }
    Ok(runs)
}

/// Causal attention, 8 heads over 2.
fn attention(p: &Place) -> Fallible<Run> {
    let (b, s, hq, hk, d) = (2usize, 200usize, 8usize, 2usize, 64usize);
    let shape = |heads: usize| [b as i64, s as i64, heads as i64, d as i64];
    let (q, k, v) =
        (p.random(F16, &shape(hq), 10)?, p.random(F16, &shape(hk), 11)?, p.random(F16, &shape(hk), 12)?);
    let o = p.result(F16, &shape(hq))?;
    let of = (q.clone(), k.clone(), v.clone(), o.clone());
    let run = move |p: &Place| {
        let (q, k, v, o) = &of;
        Ok(p.lib.attention(p.stream, &q.view(), &k.view(), &v.view(), &mut o.view_mut()).causal().run()?)
    };
    run(p)?;
    p.compare("attention, causal", &o, 2e-3, |at| {
        let (batch, i, head, e) = (at / (s * hq * d), at / (hq * d) % s, at / d % hq, at % d);
        let of_k = |j: usize| ((batch * s + j) * hk + head / (hq / hk)) * d;
        let row = &q.values[at / d * d..][..d];
        let weight = |j: usize| {
            let key = &k.values[of_k(j)..][..d];
            (row.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()).exp()
        };
        let all: f64 = (0..=i).map(weight).sum();
        (0..=i).map(|j| weight(j) * v.values[of_k(j) + e]).sum::<f64>() / all
    })?;
    Ok(Run { name: "attention", result: o, run: Box::new(run) })
}

/// A query of each of 3 sequences, in two launches.
fn decode_attention(p: &Place) -> Fallible<Run> {
    let (b, s, hq, hk, d) = (3usize, 1000usize, 16usize, 4usize, 128usize);
    let (q, o) = (p.random(F16, &[3, 1, 16, 128], 13)?, p.result(F16, &[3, 1, 16, 128])?);
    let cache = [b as i64, s as i64, hk as i64, d as i64];
    let (k, v) = (p.random(F16, &cache, 14)?, p.random(F16, &cache, 15)?);
    let lengths = [1000.0, 417.0, 33.0];
    let len = p.held(I32, &[3], &lengths)?;
    let of = (q.clone(), k.clone(), v.clone(), len, o.clone());
    let run = move |p: &Place| {
        let (q, k, v, len, o) = &of;
        let mut memory = p.workspace()?;
        p.lib
            .attention_decode(p.stream, &q.view(), &k.view(), &v.view(), &len.view(), &mut o.view_mut())
            .option("split", true)
            .workspace(&mut memory)
            .run()?;
        Ok(())
    };
    run(p)?;
    p.compare("attention_decode, in parts", &o, 2e-3, |at| {
        let (batch, head, e) = (at / (hq * d), at / d % hq, at % d);
        let of_k = |j: usize| ((batch * s + j) * hk + head / (hq / hk)) * d;
        let row = &q.values[at / d * d..][..d];
        let weight = |j: usize| {
            let key = &k.values[of_k(j)..][..d];
            (row.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()).exp()
        };
        let keys = lengths[batch] as usize;
        let all: f64 = (0..keys).map(weight).sum();
        (0..keys).map(|j| weight(j) * v.values[of_k(j) + e]).sum::<f64>() / all
    })?;
    Ok(Run { name: "attention_decode", result: o, run: Box::new(run) })
}

/// A product with weights of 4 bits, which are brought into their order before.
fn weights(p: &Place) -> Fallible<Run> {
    let (m, n, k) = (5i64, 1024i64, 2048i64);
    let (a, x) = (p.random(F16, &[m, k], 16)?, p.random(I4, &[n, k], 17)?);
    let (s, c) = (p.random(F16, &[k / 128, n], 18)?, p.result(F16, &[m, n])?);
    let w = p.result(I4, &[n / 64, k / 64 * 2, 2048])?;
    p.lib.operator("repack_weights").arg("x", &x.view()).arg("w", &mut w.view_mut()).run(p.stream)?;
    let of = (a.clone(), w, s.clone(), c.clone());
    let run = move |p: &Place| {
        let (a, w, s, c) = &of;
        let mut memory = p.workspace()?;
        p.lib
            .gemm_weights(p.stream, &a.view(), &w.view(), &s.view(), &mut c.view_mut())
            .workspace(&mut memory)
            .run()?;
        Ok(())
    };
    run(p)?;
    let (n, k) = (n as usize, k as usize);
    p.compare("gemm_weights, repacked", &c, 4e-3, |at| {
        let (i, j) = (at / n, at % n);
        (0..k).map(|l| a.values[i * k + l] * x.values[j * k + l] * s.values[l / 128 * n + j]).sum()
    })?;
    Ok(Run { name: "gemm_weights", result: c, run: Box::new(run) })
}

/// A layer of 8 experts, 2 for each token.
fn experts(p: &Place) -> Fallible<()> {
    let (hidden, between, experts, k) = (128usize, 256usize, 8usize, 2usize);
    let routing = MoeRoutingConfig { dtype: F32, experts: 8, k: 2, ..MoeRoutingConfig::default() };
    let layer = p.lib.moe_layer(MoeLayer {
        dtype: F16,
        weights: MoeWeights::Same,
        hidden: 128,
        intermediate: 256,
        experts: 8,
        all_experts: None,
        k: 2,
        routing: Some(routing),
        reduction: MoeReduction::Ordered,
    })?;
    let small = |held: Rc<Held>| held.values.iter().map(|x| x * 0.125).collect::<Vec<f64>>();
    let w13 = small(p.random(F16, &[8, 2, 256, 128], 31)?);
    let w2 = small(p.random(F16, &[8, 128, 256], 32)?);
    let (w13, w2) = (p.held(F16, &[8, 2, 256, 128], &w13)?, p.held(F16, &[8, 128, 256], &w2)?);
    for tokens in [1i64, 5, 40, 300] {
        let (logits, x) = (p.random(F32, &[tokens, 8], 33)?, p.random(F16, &[tokens, 128], 34)?);
        let y = p.result(F16, &[tokens, 128])?;
        let mut memory = p.workspace()?;
        layer
            .tokens(tokens)
            .arg("logits", &logits.view())
            .arg("x", &x.view())
            .arg("w13", &w13.view())
            .arg("w2", &w2.view())
            .arg("y", &mut y.view_mut())
            .workspace(&mut memory)
            .run(p.stream)?;
        p.compare(&format!("a layer of experts, {tokens} tokens"), &y, 5e-3, |at| {
            let (token, column) = (at / hidden, at % hidden);
            let row = &x.values[token * hidden..][..hidden];
            let scores: Vec<f64> =
                logits.values[token * experts..][..experts].iter().map(|x| x.exp()).collect();
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            let all: f64 = order[..k].iter().map(|expert| scores[*expert]).sum();
            let dot = |w: &[f64]| row.iter().zip(w).map(|(a, b)| a * b).sum::<f64>();
            let of = |expert: usize| {
                let unit = |i: usize| {
                    let gate = dot(&w13.values[(expert * 2 * between + i) * hidden..][..hidden]);
                    let up = dot(&w13.values[((expert * 2 + 1) * between + i) * hidden..][..hidden]);
                    gate / (1.0 + (-gate).exp()) * up
                };
                let w = &w2.values[(expert * hidden + column) * between..][..between];
                scores[expert] / all * (0..between).map(|i| unit(i) * w[i]).sum::<f64>()
            };
            order[..k].iter().map(|expert| of(*expert)).sum()
        })?;
        let (logits, x, w13, w2) = (logits.view(), x.view(), w13.view(), w2.view());
        let mut y = y.view_mut();
        let (median, least) = cost(p, || {
            let mut memory = p.workspace()?;
            let call = layer.tokens(tokens).arg("logits", &logits).arg("x", &x).arg("w13", &w13);
            Ok(call.arg("w2", &w2).arg("y", &mut y).workspace(&mut memory).run(p.stream)?)
        })?;
        println!("  the host's time of a run: {median:.0} {least:.0} ns");
    }
    Ok(())
}

/// A graph of what a function puts on the stream.
fn captured(
    p: &Place,
    work: impl FnOnce() -> Fallible<()>,
) -> Fallible<tilewright::launch::driver::GraphExec> {
    let failed = |error| format!("{:?}", p.gpu.driver().describe(error));
    unsafe { p.gpu.driver().stream_begin_capture(p.stream.raw(), CAPTURE_THREAD_LOCAL) }.map_err(failed)?;
    let worked = work();
    let (mut graph, mut exec) = (ptr::null_mut(), ptr::null_mut());
    unsafe { p.gpu.driver().stream_end_capture(p.stream.raw(), &raw mut graph) }.map_err(failed)?;
    worked?;
    unsafe { p.gpu.driver().graph_instantiate(&raw mut exec, graph, 0) }.map_err(failed)?;
    Ok(exec)
}

/// Microseconds of a graph: the median of several replays.
fn microseconds(p: &Place, exec: tilewright::launch::driver::GraphExec) -> Fallible<f64> {
    let (driver, stream) = (p.gpu.driver(), p.stream.raw());
    let failed = |error| format!("{:?}", driver.describe(error));
    let (mut start, mut end) = (ptr::null_mut(), ptr::null_mut());
    unsafe {
        driver.event_create(&raw mut start, 0).map_err(failed)?;
        driver.event_create(&raw mut end, 0).map_err(failed)?;
    }
    let mut times = Vec::new();
    for round in 0..15 {
        let mut milliseconds = 0f32;
        unsafe {
            driver.event_record(start, stream).map_err(failed)?;
            driver.graph_launch(exec, stream).map_err(failed)?;
            driver.event_record(end, stream).map_err(failed)?;
        }
        p.wait()?;
        unsafe { driver.event_elapsed(&raw mut milliseconds, start, end) }.map_err(failed)?;
        if round > 2 {
            times.push(f64::from(milliseconds) * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// 1,000 runs in a graph, replayed.
fn in_a_graph(p: &Place, runs: &[Run]) -> Fallible<()> {
    let expected: Vec<Vec<f64>> = runs.iter().map(|run| p.read(&run.result)).collect::<Fallible<_>>()?;
    let exec = captured(p, || (0..1000).try_for_each(|i| (runs[i % runs.len()].run)(p)))?;
    for _ in 0..3 {
        for run in runs {
            p.device.upload(&run.result.buffer, &vec![0x11; run.result.buffer.bytes()])?;
        }
        let failed = |error| format!("{:?}", p.gpu.driver().describe(error));
        unsafe { p.gpu.driver().graph_launch(exec, p.stream.raw()) }.map_err(failed)?;
        p.wait()?;
        for (run, expected) in runs.iter().zip(&expected) {
            let found = p.read(&run.result)?;
            let count = run.result.shape.iter().product::<i64>() as usize;
            let off = |(a, b): (&f64, &f64)| (a - b).abs() > 2e-3 * (1.0 + b.abs());
            if found[..count].iter().zip(expected).any(off) {
                wrong(format_args!("{} in a graph", run.name));
            }
        }
    }
    println!("done: 1000 runs of {} operators in a captured graph, replayed 3 times", runs.len());
    Ok(())
}

/// Nanoseconds of the host: the median of batches that the GPU's queue holds, and the least.
fn cost(p: &Place, mut run: impl FnMut() -> Fallible<()>) -> Fallible<(f64, f64)> {
    const BATCH: u32 = 200;
    let mut times = Vec::new();
    for _ in 0..60 {
        p.wait()?;
        let start = Instant::now();
        for _ in 0..BATCH {
            run()?;
        }
        times.push(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    p.wait()?;
    times.sort_by(f64::total_cmp);
    Ok((times[times.len() / 2], times[0]))
}

fn costs(p: &Place, runs: &[Run]) -> Fallible<()> {
    println!("the host's time of a run, views made anew, median and least, ns");
    for run in runs {
        let (median, least) = cost(p, || (run.run)(p))?;
        println!("  {:<40} {median:7.0} {least:7.0}", run.name);
    }
    let (x, y) = (p.random(F16, &[64, 1000], 9)?, p.result(F16, &[64, 1000])?);
    let (a, b, c) =
        (p.random(F16, &[16, 512], 1)?, p.random(F16, &[512, 512], 2)?, p.result(F16, &[16, 512])?);
    let bias = p.random(F16, &[512], 3)?;
    let (x, a, b, bias) = (x.view(), a.view(), b.view(), bias.view());
    let (mut y, mut c) = (y.view_mut(), c.view_mut());
    p.lib.softmax(p.stream, &x, &mut y).run()?;
    let softmax = cost(p, || Ok(p.lib.softmax(p.stream, &x, &mut y).run()?))?;
    println!("softmax, views kept: {:.0} {:.0} ns", softmax.0, softmax.1);
    p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu().run()?;
    let gemm =
        cost(p, || Ok(p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu().run()?))?;
    println!("gemm with bias and gelu, views kept: {:.0} {:.0} ns", gemm.0, gemm.1);
    known("softmax, with the call made anew", || p.lib.softmax(p.stream, &x, &mut y).call().is_ready());
    let call = p.lib.softmax(p.stream, &x, &mut y);
    known("softmax", || call.call().is_ready());
    known("gemm with bias and gelu, with the call made anew", || {
        p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu().call().is_ready()
    });
    let call = p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu();
    known("gemm with bias and gelu", || call.call().is_ready());
    Ok(())
}

/// Says how long it takes to find a choice that is known: the least of some batches.
fn known(name: &str, mut found: impl FnMut() -> bool) {
    const BATCH: u32 = 20_000;
    let mut least = f64::INFINITY;
    for _ in 0..50 {
        let start = Instant::now();
        for _ in 0..BATCH {
            black_box(found());
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    println!("the choice of {name}, known: {least:.0} ns");
}

/// The time of a warm-up, and that nothing is compiled afterwards.
fn warm_up(p: &Place) -> Fallible<()> {
    let lib = Library::for_gpu(&p.gpu)?.strict();
    for (name, problems) in [
        ("gemm, n = k = 4096, m from 1 to 8192", Gemm::f16().n(4096).k(4096).m(1..=8192).as_ref().clone()),
        ("rmsnorm, n = 4096, m from 1 to 8192", Problems::of("rmsnorm").size("n", 4096).size("m", 1..=8192)),
        (
            "gemm_weights, n = k = 4096, m from 1 to 64",
            Problems::of("gemm_weights").size("n", 4096).size("k", 4096).size("m", 1..=64),
        ),
    ] {
        let start = Instant::now();
        let warm = lib.warm_up(&problems)?;
        println!("warm: {name}: {warm:?} in {:.2} s", start.elapsed().as_secs_f64());
    }
    let (b, a, c) =
        (p.random(F16, &[4096, 4096], 1)?, p.random(F16, &[8192, 4096], 2)?, p.result(F16, &[8192, 4096])?);
    let mut slowest = 0f64;
    for m in (1..=8192).step_by(61) {
        let a = unsafe { View::new(a.pointer, a.dtype(), &[m, 4096]) };
        let mut c = unsafe { ViewMut::new(c.pointer, c.dtype(), &[m, 4096]) };
        let mut memory = p.workspace()?;
        let start = Instant::now();
        if let Err(error) = lib.gemm(p.stream, &a, &b.view(), &mut c).workspace(&mut memory).run() {
            wrong(format_args!("m = {m} in a warm range: {error}"));
        }
        slowest = slowest.max(start.elapsed().as_secs_f64());
        p.wait()?;
    }
    println!(
        "strict: 135 sizes of the range, the slowest first run took {:.0} µs of the host",
        slowest * 1e6
    );
    let a = unsafe { View::new(a.pointer, a.dtype(), &[16, 2000]) };
    let b = unsafe { View::new(b.pointer, b.dtype(), &[4096, 2000]) };
    let mut c = unsafe { ViewMut::new(c.pointer, c.dtype(), &[16, 4096]) };
    match lib.gemm(p.stream, &a, &b, &mut c).run() {
        Err(error @ OpsError::NotWarm { .. }) => println!("strict: {error}"),
        other => wrong(format_args!("sizes out of the range: {other:?}")),
    }
    Ok(())
}

/// Kernels that rely on 16 bytes, and such as rely on all that divides the sizes.
fn specialised(p: &Place) -> Fallible<()> {
    println!("products by the library, and by kernels that rely on all that divides the sizes, µs each");
    let target = Target::new(p.gpu.name(), p.lib.arch());
    for (m, n, k) in
        [(4096, 4096, 4096), (1024, 4096, 14336), (16, 4096, 4096), (1, 4096, 4096), (300, 1000, 2000)]
    {
        let (a, b) = (p.random(F16, &[m, k], 1)?, p.random(F16, &[n, k], 2)?);
        let c = p.result(F16, &[m, n])?;
        let by_library = || {
            let mut memory = p.workspace()?;
            p.lib.gemm(p.stream, &a.view(), &b.view(), &mut c.view_mut()).workspace(&mut memory).run()?;
            Ok(())
        };
        by_library()?;
        let ours = captured(p, || (0..20).try_for_each(|_| by_library()))?;
        let sizes = [("m", m), ("n", n), ("k", k)];
        let named = sizes.map(|(name, size)| (name.to_string(), size)).into();
        let choice = choose(&Problem::new("gemm_hopper", &named, &[])?, &target, None)?;
        let operator: &Operator = tilewright::kernels::operator("gemm_hopper")?;
        let mut plans = Vec::new();
        for program in choice.candidate.programs(operator)? {
            let kernel = compile(&program, &Options::new(p.lib.arch()).for_own_sizes(&program, &sizes))?;
            let mut recipe = kernel.recipe()?;
            for workspace in operator.workspaces() {
                if let Some(tensor) = recipe.tensor_mut(workspace.name) {
                    tensor.workspace = true;
                }
            }
            let values: Vec<i64> = recipe
                .sizes
                .iter()
                .filter_map(|size| sizes.iter().find(|(name, _)| *name == size.name))
                .map(|(_, size)| *size)
                .collect();
            plans.push(unsafe { p.gpu.load(&recipe, Code::Ptx(&kernel.ptx)) }?.plan(&values)?);
        }
        let chain = Chain::new(plans)?;
        let all = || {
            let mut memory = p.workspace()?;
            let (a, b, mut c) = (a.view(), b.view(), c.view_mut());
            let args = chain.params().iter().map(|param| match param.name.as_str() {
                "a" => Some((&a).into()),
                "b" => Some((&b).into()),
                _ => None,
            });
            let args: Vec<Option<tilewright::launch::Arg<'_>>> = args.collect();
            let mut given = Vec::new();
            let mut c = Some((&mut c).into());
            for arg in args {
                given.push(arg.or_else(|| c.take()).ok_or("an argument that there is not")?);
            }
            chain.launch_with(p.stream, &given[..], &LaunchOptions::new().workspace(&mut memory))?;
            Ok(())
        };
        all()?;
        let theirs = captured(p, || (0..20).try_for_each(|_| all()))?;
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..3 {
            times[0].push(microseconds(p, ours)? / 20.0);
            times[1].push(microseconds(p, theirs)? / 20.0);
        }
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[1]
        };
        let (ours, theirs) = (median(&mut times[0]), median(&mut times[1]));
        println!("  {m} × {n} × {k}: {ours:.2} {theirs:.2}; {}: {}", choice.from, choice.candidate);
    }
    Ok(())
}

/// Two products one after another, the second of the first's result.
fn dependent(p: &Place) -> Fallible<()> {
    println!("two products one after another, a pair in µs: without and with an early begin");
    for (m, n) in [(1, 4096), (16, 4096), (64, 2048), (256, 2048), (2048, 2048)] {
        let (a, w) = (p.random(F16, &[m, n], 1)?, p.random(F16, &[n, n], 2)?);
        let (b, c) = (p.result(F16, &[m, n])?, p.result(F16, &[m, n])?);
        let mut results = Vec::new();
        let mut times = Vec::new();
        for dependent in [false, true] {
            let pair = || -> Fallible<()> {
                for (x, y) in [(&a, &b), (&b, &c)] {
                    let mut memory = p.workspace()?;
                    p.lib
                        .gemm(p.stream, &x.view(), &w.view(), &mut y.view_mut())
                        .alpha(0.02)
                        .dependent(dependent)
                        .workspace(&mut memory)
                        .run()?;
                }
                Ok(())
            };
            pair()?;
            let exec = captured(p, || (0..50).try_for_each(|_| pair()))?;
            times.push(microseconds(p, exec)? / 50.0);
            results.push(p.read(&c)?);
        }
        if results[0] != results[1] {
            wrong(format_args!("two products with an early begin, m = {m}"));
        }
        println!("  {m} × {n} × {n}: {:.2} {:.2}", times[0], times[1]);
    }
    Ok(())
}

fn main() -> Fallible<()> {
    let begin = Instant::now();
    let place = match Place::new() {
        Ok(place) => place,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    println!("{}, {}", place.gpu.name(), place.lib.arch());
    let runs = runs(&place)?;
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    for part in [in_a_graph, costs] {
        if let Err(error) = part(&place, &runs) {
            wrong(error);
        }
    }
    for part in [experts, dependent, warm_up, specialised] {
        if let Err(error) = part(&place) {
            wrong(error);
        }
        println!("{:.1} s", begin.elapsed().as_secs_f64());
    }
    match WRONG.load(Ordering::Relaxed) {
        0 => println!("all right"),
        count => return Err(format!("{count} results are wrong").into()),
    }
    Ok(())
}
