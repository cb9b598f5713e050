//! Operators by `tilewright-ops` on a GPU: are they right, what do they cost the host, and what do launches that begin early win?
//!
//! ```text
//! cargo run --release -p tilewright --example operators_check
//! ```
//!
//! It compares operators with plain loops at some of their elements, on two GPUs at the same time where there are two, replays a captured graph of 1,000 runs of them, and measures the host's time of a run
//! beside bare launches of the same kernels, the time of a warm-up, kernels that rely on 16 bytes beside such as rely on all that divides their sizes, and products one after another with and without an early begin.
#![allow(unsafe_code)] // views and streams are of memory and handles that the example owns

mod host;

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
use tilewright::launch::{Chain, Code, Gpu, LaunchOptions, ParamKind, Stream, View, ViewMut, Workspace};
use tilewright::machine::DType;
use tilewright::ops::{Call, Gemm, Library, OpsError, Problems};
use tilewright::prelude::{BF16, Device, E4M3, F16, F32, I4, I32};
use tilewright::runtime::{Buffer, CudaDevice, decode, encode};
use tilewright::tune::{Problem, Target, choose};

use host::Bare;

type Fallible<T> = Result<T, Box<dyn Error>>;

/// Bytes of the workspace of calls, and of that of bare launches.
const HALF: usize = 128 << 20;

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
    _workspace: Buffer,
    /// The address of the workspace.
    memory: u64,
}

/// A tensor in the GPU's memory, with the numbers that it was filled with.
struct Held {
    buffer: Buffer,
    pointer: u64,
    dtype: DType,
    /// The same of `launch`.
    of_launch: tilewright::launch::DType,
    shape: Vec<i64>,
    values: Vec<f64>,
}

impl Place {
    fn new(ordinal: u32) -> Fallible<Place> {
        let device = CudaDevice::open(ordinal)?;
        device.bind()?;
        let gpu = Gpu::current()?;
        let lib = Library::for_gpu(&gpu)?;
        let mut raw = ptr::null_mut();
        unsafe { gpu.driver().stream_create(&raw mut raw, 1) }.map_err(|e| format!("{e:?}"))?;
        let workspace = device.alloc(2 * HALF)?;
        device.upload(&workspace, &vec![0; workspace.bytes()])?;
        let memory = device.address(&workspace)?;
        Ok(Place { gpu, lib, stream: unsafe { Stream::borrow(raw) }, _workspace: workspace, memory, device })
    }

    /// The workspace, whose counters are zeros since the first call.
    fn workspace(&self) -> Fallible<Workspace<'_>> {
        Ok(unsafe { Workspace::new(self.memory, HALF as u64) })
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
        let of_launch = tilewright::launch::DType::named(dtype.name()).ok_or("a type that launches lack")?;
        Ok(Rc::new(Held { buffer, pointer, dtype, of_launch, shape: shape.to_vec(), values }))
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
        self.of_launch
    }

    fn view(&self) -> View<'_> {
        unsafe { View::new(self.pointer, self.dtype(), &self.shape) }
    }

    fn view_mut(&self) -> ViewMut<'_> {
        unsafe { ViewMut::new(self.pointer, self.dtype(), &self.shape) }
    }
}

/// The purpose for which a call is made.
#[derive(Clone, Copy)]
enum Want {
    /// Putting its launches on the stream.
    Run,
    /// Knowing them.
    Launches,
}

/// A call that is made anew, with its views: its launches, if they are wanted.
type Made = Box<dyn Fn(&Place, Want) -> Fallible<Option<Chain>>>;

/// A run of an operator, its result, and its tensors by name.
struct Run {
    name: &'static str,
    result: Rc<Held>,
    tensors: Vec<(&'static str, Rc<Held>)>,
    call: Made,
}

impl Run {
    fn run(&self, p: &Place) -> Fallible<()> {
        (self.call)(p, Want::Run).map(drop)
    }
}

/// Runs a call of an operator by position, or gives its launches.
macro_rules! done {
    ($call:expr, $want:expr) => {{
        let call = $call;
        match $want {
            Want::Run => {
                call.run()?;
                Ok(None)
            }
            Want::Launches => Ok(Some(call.call().launches()?)),
        }
    }};
}

/// The same of one by name.
fn done_by_name(call: Call<'_>, p: &Place, want: Want) -> Fallible<Option<Chain>> {
    match want {
        Want::Run => {
            call.run(p.stream)?;
            Ok(None)
        }
        Want::Launches => Ok(Some(call.launches()?)),
    }
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
        let tensors = vec![
            ("a", a.clone()),
            ("b", b.clone()),
            ("bias", bias.clone()),
            ("residual", residual.clone()),
            ("c", c.clone()),
        ];
        let call = move |p: &Place, want: Want| {
            let (a, b, bias, residual, c) = &of;
            let mut memory = p.workspace()?;
            let (a, b, bias, residual) = (a.view(), b.view(), bias.view(), residual.view());
            let mut c = c.view_mut();
            let call =
                p.lib.gemm(p.stream, &a, &b, &mut c).alpha(0.25).bias(&bias).gelu().residual(&residual);
            done!(call.workspace(&mut memory), want)
        };
        call(p, Want::Run)?;
        let (k, n) = (k as usize, n as usize);
        p.compare(name, &c, 4e-3, |at| {
            let (i, j) = (at / n, at % n);
            let sum: f64 = (0..k).map(|l| a.values[i * k + l] * b.values[j * k + l]).sum();
            gelu(sum * 0.25 + bias.values[j]) + residual.values[at]
        })?;
        runs.push(Run { name, result: c, tensors, call: Box::new(call) });
    }
    {
        let (l, m, n, k) = (3, 70, 96, 128);
        let (a, b) = (p.random(BF16, &[l, m, k], 5)?, p.random(BF16, &[l, n, k], 6)?);
        let c = p.result(F32, &[l, m, n])?;
        let of = (a.clone(), b.clone(), c.clone());
        let call = move |p: &Place, want: Want| {
            let mut memory = p.workspace()?;
            let (a, b, mut c) = (of.0.view(), of.1.view(), of.2.view_mut());
            done!(p.lib.gemm(p.stream, &a, &b, &mut c).workspace(&mut memory), want)
        };
        let tensors = vec![("a", a.clone()), ("b", b.clone()), ("c", c.clone())];
        call(p, Want::Run)?;
        let [m, n, k] = [m, n, k].map(|size| size as usize);
        p.compare("gemm, a batch of bf16 with results in f32", &c, 1e-4, |at| {
            let (product, i, j) = (at / (m * n), at / n % m, at % n);
            let (a, b) = (&a.values[(product * m + i) * k..][..k], &b.values[(product * n + j) * k..][..k]);
            a.iter().zip(b).map(|(a, b)| a * b).sum()
        })?;
        runs.push(Run { name: "gemm, a batch", result: c, tensors, call: Box::new(call) });
    }
    for (name, m, n) in [("rmsnorm", 64, 4096), ("rmsnorm, odd rows", 33, 1001)] {
        let (x, w, y) = (p.random(F16, &[m, n], 7)?, p.random(F16, &[n], 8)?, p.result(F16, &[m, n])?);
        let of = (x.clone(), w.clone(), y.clone());
        let call = move |p: &Place, want: Want| {
            let (x, w, mut y) = (of.0.view(), of.1.view(), of.2.view_mut());
            done!(p.lib.rmsnorm(p.stream, &x, &w, &mut y).eps(1e-5), want)
        };
        let tensors = vec![("x", x.clone()), ("w", w.clone()), ("y", y.clone())];
        call(p, Want::Run)?;
        let n = n as usize;
        p.compare(name, &y, 2e-3, |at| {
            let row = &x.values[at / n * n..][..n];
            let square = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
            x.values[at] / (square + 1e-5).sqrt() * w.values[at % n]
        })?;
        runs.push(Run { name, result: y, tensors, call: Box::new(call) });
    }
    {
        let n = 1000usize;
        let (x, y) = (p.random(F16, &[64, 1000], 9)?, p.result(F16, &[64, 1000])?);
        let of = (x.clone(), y.clone());
        let call = move |p: &Place, want: Want| {
            let (x, mut y) = (of.0.view(), of.1.view_mut());
            done_by_name(p.lib.operator("softmax").arg("x", &x).arg("y", &mut y), p, want)
        };
        let tensors = vec![("x", x.clone()), ("y", y.clone())];
        call(p, Want::Run)?;
        p.compare("softmax by name", &y, 1e-4, |at| {
            let row = &x.values[at / n * n..][..n];
            x.values[at].exp() / row.iter().map(|x| x.exp()).sum::<f64>()
        })?;
        runs.push(Run { name: "softmax", result: y, tensors, call: Box::new(call) });
    }
    runs.push(attention(p)?);
    runs.push(decode_attention(p, "attention_decode", None)?);
    runs.push(decode_attention(p, "pages of 64 keys", Some(64))?);
    runs.push(decode_attention(p, "pages of 16 keys", Some(16))?);
    runs.push(weights(p)?);
    {
        let (x, y, s) =
            (p.random(F16, &[48, 1024], 20)?, p.result(E4M3, &[48, 1024])?, p.result(F32, &[48])?);
        let of = (x.clone(), y.clone(), s.clone());
        let call = move |p: &Place, want: Want| {
            let (x, mut y, mut s) = (of.0.view(), of.1.view_mut(), of.2.view_mut());
            done!(p.lib.quantise_rows_fp8(p.stream, &x, &mut y, &mut s), want)
        };
        let tensors = vec![("x", x.clone()), ("y", y), ("s", s.clone())];
        call(p, Want::Run)?;
        p.compare("quantise_rows_fp8", &s, 1e-5, |row| {
            x.values[row * 1024..][..1024].iter().fold(0f64, |most, x| most.max(x.abs())) / 448.0
        })?;
        runs.push(Run { name: "quantise_rows_fp8", result: s, tensors, call: Box::new(call) });
    }
    {
        let (x, y) = (p.random(F16, &[300_000], 21)?, p.result(F32, &[1])?);
        let of = (x.clone(), y.clone());
        let call = move |p: &Place, want: Want| {
            let mut memory = p.workspace()?;
            let (x, mut y) = (of.0.view(), of.1.view_mut());
            let call = p.lib.operator("sum_all").arg("x", &x).arg("y", &mut y);
            done_by_name(call.workspace(&mut memory), p, want)
        };
        let tensors = vec![("x", x.clone()), ("y", y.clone())];
        call(p, Want::Run)?;
        p.compare("sum_all, with counters in the workspace", &y, 1e-3, |_| x.values.iter().sum())?;
        runs.push(Run { name: "sum_all", result: y, tensors, call: Box::new(call) });
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
    let call = move |p: &Place, want: Want| {
        let (q, k, v, mut o) = (of.0.view(), of.1.view(), of.2.view(), of.3.view_mut());
        done!(p.lib.attention(p.stream, &q, &k, &v, &mut o).causal(), want)
    };
    let tensors = vec![("q", q.clone()), ("k", k.clone()), ("v", v.clone()), ("o", o.clone())];
    call(p, Want::Run)?;
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
    Ok(Run { name: "attention", result: o, tensors, call: Box::new(call) })
}

/// A query of each of 3 sequences, in two launches; or, over a cache in pages, in one: pages of any order, of which each block has a part or several.
fn decode_attention(p: &Place, name: &'static str, page: Option<usize>) -> Fallible<Run> {
    let (b, s, hq, hk, d) = (3usize, 1000usize, 16usize, 4usize, 128usize);
    let (q, o) = (p.random(F16, &[3, 1, 16, 128], 13)?, p.result(F16, &[3, 1, 16, 128])?);
    let rows = page.unwrap_or(s);
    let of_sequence = s.div_ceil(rows);
    let pages = b * of_sequence;
    let cache = [pages as i64, rows as i64, hk as i64, d as i64];
    let (k, v) = (p.random(F16, &cache, 14)?, p.random(F16, &cache, 15)?);
    let lengths = [1000.0, 417.0, 33.0];
    let len = p.held(I32, &[3], &lengths)?;
    // Without pages sequence i has the cache's i-th part.
    let place = move |i: usize| if page.is_some() { (i * 11 + 5) % pages } else { i };
    let places: Vec<f64> = (0..pages).map(|i| place(i) as f64).collect();
    let table = p.held(I32, &[b as i64, of_sequence as i64], &places)?;
    let of = (q.clone(), k.clone(), v.clone(), len.clone(), o.clone(), table.clone());
    let call = move |p: &Place, want: Want| {
        let (q, k, v, len, mut o) = (of.0.view(), of.1.view(), of.2.view(), of.3.view(), of.4.view_mut());
        let (table, mut memory) = (of.5.view(), p.workspace()?);
        match page {
            None => {
                let call = p.lib.attention_decode(p.stream, &q, &k, &v, &len, &mut o).option("split", true);
                done!(call.workspace(&mut memory), want)
            }
            Some(_) => {
                let call = p.lib.attention_paged(p.stream, &q, &k, &v, &table, &len, &mut o);
                done!(call.option("split", false).option("bn", 32).workspace(&mut memory), want)
            }
        }
    };
    let names = ["q", if page.is_some() { "kc" } else { "k" }, if page.is_some() { "vc" } else { "v" }];
    let names = names.into_iter().chain(["len", "o", "table"]);
    let tensors = names.zip([&q, &k, &v, &len, &o, &table].map(Rc::clone)).collect();
    call(p, Want::Run)?;
    p.compare(name, &o, 2e-3, |at| {
        let (batch, head, e) = (at / (hq * d), at / d % hq, at % d);
        let of_k = |j: usize| {
            let row = place(batch * of_sequence + j / rows) * rows + j % rows;
            (row * hk + head / (hq / hk)) * d
        };
        let row = &q.values[at / d * d..][..d];
        let weight = |j: usize| {
            let key = &k.values[of_k(j)..][..d];
            (row.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt()).exp()
        };
        let keys = lengths[batch] as usize;
        let all: f64 = (0..keys).map(weight).sum();
        (0..keys).map(|j| weight(j) * v.values[of_k(j) + e]).sum::<f64>() / all
    })?;
    Ok(Run { name, result: o, tensors, call: Box::new(call) })
}

/// A product with weights of 4 bits, which are brought into their order before.
fn weights(p: &Place) -> Fallible<Run> {
    let (m, n, k) = (5i64, 1024i64, 2048i64);
    let (a, x) = (p.random(F16, &[m, k], 16)?, p.random(I4, &[n, k], 17)?);
    let (s, c) = (p.random(F16, &[k / 128, n], 18)?, p.result(F16, &[m, n])?);
    let w = p.result(I4, &[n / 64, k / 64 * 2, 2048])?;
    p.lib.operator("repack_weights").arg("x", &x.view()).arg("w", &mut w.view_mut()).run(p.stream)?;
    let of = (a.clone(), w.clone(), s.clone(), c.clone());
    let call = move |p: &Place, want: Want| {
        let (a, w, s, mut c) = (of.0.view(), of.1.view(), of.2.view(), of.3.view_mut());
        let mut memory = p.workspace()?;
        done!(p.lib.gemm_weights(p.stream, &a, &w, &s, &mut c).workspace(&mut memory), want)
    };
    let tensors = vec![("a", a.clone()), ("w", w.clone()), ("s", s.clone()), ("c", c.clone())];
    call(p, Want::Run)?;
    let (n, k) = (n as usize, k as usize);
    p.compare("gemm_weights, repacked", &c, 4e-3, |at| {
        let (i, j) = (at / n, at % n);
        (0..k).map(|l| a.values[i * k + l] * x.values[j * k + l] * s.values[l / 128 * n + j]).sum()
    })?;
    Ok(Run { name: "gemm_weights", result: c, tensors, call: Box::new(call) })
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
        let [cost] = host::costs(
            || p.wait(),
            [&mut || {
                let mut memory = p.workspace()?;
                let call = layer.tokens(tokens).arg("logits", &logits).arg("x", &x).arg("w13", &w13);
                Ok(call.arg("w2", &w2).arg("y", &mut y).workspace(&mut memory).run(p.stream)?)
            }],
        )?;
        println!("  the host's time of a run: {:.0} {:.0} ns", cost.median, cost.least);
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
    let exec = captured(p, || (0..1000).try_for_each(|i| runs[i % runs.len()].run(p)))?;
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

/// Bare launches of the same kernels with the same tensors, and with a workspace of their own.
fn bare(p: &Place, run: &Run) -> Fallible<Vec<Bare>> {
    let chain = (run.call)(p, Want::Launches)?.ok_or("no launches")?;
    let mut free = p.memory + HALF as u64;
    let mut parts: Vec<(String, u64)> = Vec::new();
    let mut launches = Vec::new();
    for (number, plan) in chain.plans().enumerate() {
        let mut words = Vec::new();
        for (place, param) in plan.recipe().params.iter().enumerate() {
            let held = run.tensors.iter().find(|(name, _)| *name == param.name).map(|(_, held)| held.pointer);
            let part = parts.iter().find(|(name, _)| *name == param.name).map(|(_, at)| *at);
            words.push(match (&param.kind, held.or(part)) {
                (ParamKind::Tensor(_), Some(pointer)) => pointer,
                (ParamKind::Tensor(tensor), None) => {
                    let (shape, strides) = plan.tensor(place).ok_or("a tensor without a shape")?;
                    let last: i64 =
                        shape.iter().zip(strides).map(|(extent, stride)| (extent - 1) * stride).sum();
                    let bytes = (last as u64 + 1) * u64::from(tensor.dtype.bits()) / 8;
                    let pointer = free;
                    free += bytes.next_multiple_of(256);
                    parts.push((param.name.clone(), pointer));
                    pointer
                }
                _ => u64::from(1f32.to_bits()),
            });
        }
        launches.push(Bare::new(plan, &words, number > 0, p.stream)?);
    }
    Ok(launches)
}

fn costs(p: &Place, runs: &[Run]) -> Fallible<()> {
    println!(
        "the host's time in ns of a run with its views, and of bare launches of its kernels: medians, least ones, and the median of the differences"
    );
    for run in runs {
        let mut launches = bare(p, run)?;
        let maps: usize = (run.call)(p, Want::Launches)?
            .map_or(0, |chain| chain.plans().map(|plan| plan.recipe().maps.len()).sum());
        let [of_bare, of_run] = host::costs(
            || p.wait(),
            [&mut || launches.iter_mut().try_for_each(Bare::launch), &mut || run.run(p)],
        )?;
        println!(
            "  {:<20} {} launches, {maps} tensor maps: bare {:5.0} {:5.0}, run {:5.0} {:5.0}: {:+.0}",
            run.name,
            launches.len(),
            of_bare.median,
            of_bare.least,
            of_run.median,
            of_run.least,
            of_run.more
        );
    }
    let (x, y) = (p.random(F16, &[64, 1000], 9)?, p.result(F16, &[64, 1000])?);
    let (a, b, c) =
        (p.random(F16, &[16, 512], 1)?, p.random(F16, &[512, 512], 2)?, p.result(F16, &[16, 512])?);
    let bias = p.random(F16, &[512], 3)?;
    let (x, a, b, bias) = (x.view(), a.view(), b.view(), bias.view());
    let (mut y, mut c) = (y.view_mut(), c.view_mut());
    p.lib.softmax(p.stream, &x, &mut y).run()?;
    p.lib.gemm(p.stream, &a, &b, &mut c).option("split", 1).bias(&bias).gelu().run()?;
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
        for (words, lib) in [("", &lib), (", kept on disk", &Library::for_gpu(&p.gpu)?)] {
            let start = Instant::now();
            let warm = lib.warm_up(&problems)?;
            println!("warm: {name}{words}: {warm:?} in {:.2} s", start.elapsed().as_secs_f64());
        }
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

/// Tiles of few rows, and square ones.
const TALL: &[(&str, &str)] = &[("bm", "64"), ("bn", "16")];
const SQUARE: &[(&str, &str)] = &[("bm", "64"), ("bn", "64")];

/// Products one after another, each of the result of the one ahead: with the same weights again and again, which the L2 cache keeps if it can, and with
/// weights of so many layers that it keeps none, also behind a norm each.
fn dependent(p: &Place) -> Fallible<()> {
    const PRODUCTS: usize = 48;
    const BYTES: i64 = 400 << 20;
    println!(
        "products one after another, each in µs: without and with early begins, of the same weights; the same of weights of their own; and each behind an rmsnorm"
    );
    for (m, n) in [(1, 4096), (16, 4096), (64, 2048), (256, 2048), (2048, 2048)] {
        let layers = (BYTES / (n * n * 2)).min(PRODUCTS as i64);
        let of_layers: Vec<Rc<Held>> = (0..layers)
            .map(|layer| p.random(F16, &[n, n], 2 + layer.cast_unsigned()))
            .collect::<Fallible<_>>()?;
        let rows = [p.random(F16, &[m, n], 1)?, p.result(F16, &[m, n])?, p.result(F16, &[m, n])?];
        let normal = p.result(F16, &[m, n])?;
        let norm = p.random(F16, &[n], 3)?;
        let mut times = Vec::new();
        for (weights, norms) in [(&of_layers[..1], false), (&of_layers[..], false), (&of_layers[..], true)] {
            let mut results = Vec::new();
            for dependent in [false, true] {
                let products = || -> Fallible<()> {
                    for number in 0..PRODUCTS {
                        let x = &rows[if number == 0 { 0 } else { 1 + number % 2 }];
                        let y = &rows[2 - number % 2];
                        let w = &weights[number % weights.len()];
                        let mut memory = p.workspace()?;
                        let mut from = x;
                        if norms {
                            let (x, norm, mut y) = (x.view(), norm.view(), normal.view_mut());
                            p.lib.rmsnorm(p.stream, &x, &norm, &mut y).dependent(dependent).run()?;
                            from = &normal;
                        }
                        let (x, w, mut y) = (from.view(), w.view(), y.view_mut());
                        let call = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(1.7 / (n as f32).sqrt());
                        call.dependent(dependent).workspace(&mut memory).run()?;
                    }
                    Ok(())
                };
                products()?;
                let exec = captured(p, products)?;
                times.push(microseconds(p, exec)? / PRODUCTS as f64);
                results.push(p.read(&rows[2 - (PRODUCTS - 1) % 2])?);
            }
            if results[0] != results[1] {
                wrong(format_args!("products with early begins, m = {m}"));
            }
        }
        let times: Vec<String> = times.iter().map(|time| format!("{time:.2}")).collect();
        println!("  {m} × {n} × {n}, {layers} layers: {}", times.join(" "));
        let (x, w, mut y) = (rows[0].view(), of_layers[0].view(), rows[1].view_mut());
        println!("    {}", p.lib.gemm(p.stream, &x, &w, &mut y).alpha(0.5).call().why()?.parameters);
        // Clusters, and fewer stages: then blocks of two launches have room on a multiprocessor.
        let forms: &[&[(&str, &str)]] = match m {
            64 => &[TALL, &[("stages", "10"), TALL[0], TALL[1]], &[("stages", "5"), TALL[0], TALL[1]]],
            256 => &[
                SQUARE,
                &[("stages", "6"), SQUARE[0], SQUARE[1]],
                &[("stages", "4"), SQUARE[0], SQUARE[1]],
                &[("cluster", "m2")],
                &[("cluster", "n2")],
            ],
            _ => &[],
        };
        for form in forms {
            let mut times = Vec::new();
            for dependent in [false, true] {
                let products = || -> Fallible<()> {
                    for number in 0..PRODUCTS {
                        let mut memory = p.workspace()?;
                        let (x, w) =
                            (rows[1 + number % 2].view(), of_layers[number % of_layers.len()].view());
                        let mut y = rows[2 - number % 2].view_mut();
                        let call = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(1.7 / (n as f32).sqrt());
                        let call = form.iter().fold(call, |call, (name, value)| call.option(name, *value));
                        call.option("split", 1).dependent(dependent).workspace(&mut memory).run()?;
                    }
                    Ok(())
                };
                if let Err(error) = products() {
                    println!("    {form:?}: {error}");
                    break;
                }
                times.push(format!("{:.2}", microseconds(p, captured(p, products)?)? / PRODUCTS as f64));
            }
            let call = p.lib.gemm(p.stream, &x, &w, &mut y).alpha(0.5).option("split", 1);
            let call = form.iter().fold(call, |call, (name, value)| call.option(name, *value));
            if let Ok(why) = call.call().why() {
                println!("    {}: {}", why.parameters, times.join(" "));
            }
        }
    }
    Ok(())
}

/// The operators on the second GPU and on the first at the same time, each from a thread of its own.
fn on_two() -> Fallible<()> {
    if tilewright::launch::Driver::system()?.count().map_err(|error| format!("{error:?}"))? < 2 {
        println!("there is one GPU");
        return Ok(());
    }
    let of_one = |ordinal: u32| -> Result<usize, String> {
        let work = || -> Fallible<usize> {
            let place = Place::new(ordinal)?;
            let runs = runs(&place)?;
            in_a_graph(&place, &runs)?;
            Ok(runs.len())
        };
        work().map_err(|error| error.to_string())
    };
    let done = std::thread::scope(|scope| {
        [0, 1].map(|ordinal| scope.spawn(move || of_one(ordinal))).map(|thread| thread.join())
    });
    for (ordinal, done) in done.into_iter().enumerate() {
        match done {
            Ok(Ok(count)) => println!("done: {count} operators on GPU {ordinal}, beside the other"),
            Ok(Err(error)) => wrong(format_args!("GPU {ordinal}: {error}")),
            Err(_) => wrong(format_args!("GPU {ordinal}: the thread ended")),
        }
    }
    Ok(())
}

fn main() -> Fallible<()> {
    let begin = Instant::now();
    let place = match Place::new(0) {
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
    if let Err(error) = on_two() {
        wrong(error);
    }
    println!("{:.1} s", begin.elapsed().as_secs_f64());
    match WRONG.load(Ordering::Relaxed) {
        0 => println!("all right"),
        count => return Err(format!("{count} results are wrong").into()),
    }
    Ok(())
}
