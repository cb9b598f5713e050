//! Operators beside plain loops.

use std::cell::RefCell;
use std::rc::Rc;

use tilewright::kernels::moe::{MoeLayer, MoeReduction, MoeRoutingConfig, MoeWeights};
use tilewright::launch::Workspace;
use tilewright::ops::Call;
use tilewright::prelude::{BF16, Device, E4M3, F16, F32, I4, I32};

use crate::{Fallible, Given, Held, Place, Run, Want, host};

/// Bytes of a workspace whose counters are zeros.
const CLEAR: usize = 1 << 20;

/// Runs a call of an operator by position, or gives its launches, or these with their arguments.
macro_rules! done {
    ($call:expr, $want:expr) => {{
        let call = $call;
        match $want {
            Want::Run => {
                call.run()?;
                Ok(Given::Run)
            }
            Want::Launches => Ok(Given::Launches(call.call().launches()?)),
            Want::Prepared => Ok(Given::Prepared(call.prepared()?)),
        }
    }};
}

/// The same of one by name.
fn done_by_name(call: Call<'_>, p: &Place, want: Want) -> Fallible<Given> {
    match want {
        Want::Run => {
            call.run(p.stream)?;
            Ok(Given::Run)
        }
        Want::Launches => Ok(Given::Launches(call.launches()?)),
        Want::Prepared => Ok(Given::Prepared(call.prepared()?)),
    }
}

fn gelu(x: f64) -> f64 {
    x * 0.5 * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh())
}

/// Operators with arguments of their own, each right.
pub fn runs(p: &Place) -> Fallible<Vec<Run>> {
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
    {
        let (x, y) = (p.random(F16, &[300_000], 21)?, p.result(F32, &[1])?);
        let of = (x.clone(), y.clone());
        let buffer = p.device.alloc(CLEAR)?;
        // SAFETY: the memory is this run's alone, on one stream.
        let mut clear = unsafe { Workspace::new(p.device.address(&buffer)?, CLEAR as u64) };
        unsafe { clear.clear(&p.gpu, p.stream) }?;
        let memory = (RefCell::new(clear), buffer);
        let call = move |p: &Place, want: Want| {
            // A closure has what it names: the buffer, too.
            let (clear, _buffer) = &memory;
            let mut clear = clear.borrow_mut();
            let (x, mut y) = (of.0.view(), of.1.view_mut());
            let call = p.lib.operator("sum_all").arg("x", &x).arg("y", &mut y);
            done_by_name(call.workspace(&mut clear), p, want)
        };
        let tensors = vec![("x", x.clone()), ("y", y.clone())];
        call(p, Want::Run)?;
        call(p, Want::Run)?;
        p.compare("sum_all, in a workspace that is clear", &y, 1e-3, |_| x.values.iter().sum())?;
        runs.push(Run { name: "sum_all, clear", result: y, tensors, call: Box::new(call) });
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
pub fn experts(p: &Place) -> Fallible<()> {
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
