//! References of plain loops, in f64.

use tilewright_machine::DType;

use super::operator::{Sizes, Values};

/// A result of one name.
fn result(name: &str, values: Vec<f64>) -> Values {
    Values::from([(name.to_string(), values)])
}

/// The rows of a tensor whose last mode is the size `n`.
fn rows<'a>(sizes: &Sizes, values: &'a Values, name: &str) -> impl Iterator<Item = &'a [f64]> + use<'a> {
    values[name].chunks(sizes["n"] as usize)
}

/// A function of the elements of two tensors `a` and `b`.
fn of_pairs(values: &Values, f: impl Fn(f64, f64) -> f64) -> Values {
    result("y", values["a"].iter().zip(&values["b"]).map(|(a, b)| f(*a, *b)).collect())
}

/// A function of the rows of `x`.
fn of_rows(sizes: &Sizes, values: &Values, f: impl Fn(&[f64]) -> Vec<f64>) -> Values {
    result("y", rows(sizes, values, "x").flat_map(f).collect())
}

pub(super) fn copy(_: &Sizes, values: &Values) -> Values {
    result("y", values["x"].clone())
}

pub(super) fn silu_mul(_: &Sizes, values: &Values) -> Values {
    of_pairs(values, |a, b| a / (1.0 + (-a).exp()) * b)
}

pub(super) fn gelu_mul(_: &Sizes, values: &Values) -> Values {
    let inner = |a: f64| (2.0 / std::f64::consts::PI).sqrt() * (a + 0.044715 * a * a * a);
    of_pairs(values, |a, b| 0.5 * a * (1.0 + inner(a).tanh()) * b)
}

fn mean(row: &[f64]) -> f64 {
    row.iter().sum::<f64>() / row.len() as f64
}

fn rms_of(row: &[f64], w: &[f64], eps: f64) -> Vec<f64> {
    let squares: Vec<f64> = row.iter().map(|x| x * x).collect();
    let scale = 1.0 / (mean(&squares) + eps).sqrt();
    row.iter().zip(w).map(|(x, w)| x * scale * w).collect()
}

pub(super) fn rmsnorm(sizes: &Sizes, values: &Values) -> Values {
    of_rows(sizes, values, |row| rms_of(row, &values["w"], values["eps"][0]))
}

pub(super) fn layernorm(sizes: &Sizes, values: &Values) -> Values {
    of_rows(sizes, values, |row| {
        let centre = mean(row);
        let centred: Vec<f64> = row.iter().map(|x| x - centre).collect();
        let scaled = rms_of(&centred, &values["w"], values["eps"][0]);
        scaled.iter().zip(&values["b"]).map(|(x, b)| x + b).collect()
    })
}

/// A norm of `h = x + r`, and `h`. Programs take the norm of `h` as it is rounded: this is that of the exact sum, and its tolerance has room
/// for one rounding more.
fn added(sizes: &Sizes, values: &Values, norm: fn(&Sizes, &Values) -> Values) -> Values {
    let h: Vec<f64> = values["x"].iter().zip(&values["r"]).map(|(x, r)| x + r).collect();
    let mut with = values.clone();
    with.insert("x".to_string(), h.clone());
    let mut results = norm(sizes, &with);
    results.insert("h".to_string(), h);
    results
}

pub(super) fn add_rmsnorm(sizes: &Sizes, values: &Values) -> Values {
    added(sizes, values, rmsnorm)
}

pub(super) fn add_layernorm(sizes: &Sizes, values: &Values) -> Values {
    added(sizes, values, layernorm)
}

pub(super) fn transpose(sizes: &Sizes, values: &Values) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let turned = values["x"].chunks(m * n).flat_map(|x| (0..m * n).map(|i| x[i % m * n + i / m]));
    result("y", turned.collect())
}

pub(super) fn permute(sizes: &Sizes, values: &Values) -> Values {
    let (m, n, d) = (sizes["m"] as usize, sizes["n"] as usize, sizes["d"] as usize);
    let mut y = vec![0.0; values["x"].len()];
    for (at, row) in values["x"].chunks(d).enumerate() {
        let (l, i, j) = (at / (m * n), at / n % m, at % n);
        let to = ((l * n + j) * m + i) * d;
        y[to..to + d].copy_from_slice(row);
    }
    result("y", y)
}

pub(super) fn permute_reversed(sizes: &Sizes, values: &Values) -> Values {
    let (l, m, n) = (sizes["l"] as usize, sizes["m"] as usize, sizes["n"] as usize);
    let from = (0..l * m * n).map(|at| (at % l * m + at / l % m) * n + at / (l * m));
    result("y", from.map(|at| values["x"][at]).collect())
}

/// Matrices times vectors.
pub(super) fn gemv(sizes: &Sizes, values: &Values) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let pairs = values["a"].chunks(m * n).zip(values["x"].chunks(n));
    result("y", pairs.flat_map(|(a, x)| a.chunks(n).map(move |row| dot(row, x))).collect())
}

pub(super) fn gather_gemv(sizes: &Sizes, values: &Values) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let chosen = values["ids"].iter().map(|id| &values["w"][*id as usize * m * n..][..m * n]);
    result("y", chosen.flat_map(|w| w.chunks(n).map(|row| dot(row, &values["x"]))).collect())
}

/// Sums, or means, of the rows of each sequence.
pub(super) fn sum_ragged(sizes: &Sizes, values: &Values, mean: bool) -> Values {
    let n = sizes["n"] as usize;
    let mut y = Vec::new();
    for begins in values["begins"].windows(2) {
        let (first, last) = (begins[0] as usize, begins[1].max(begins[0]) as usize);
        let factor = if mean { 1.0 / (last - first).max(1) as f64 } else { 1.0 };
        y.extend((0..n).map(|j| factor * (first..last).map(|t| values["x"][t * n + j]).sum::<f64>()));
    }
    result("y", y)
}

pub(super) fn sum_all(_: &Sizes, values: &Values) -> Values {
    result("y", vec![values["x"].iter().sum()])
}

pub(super) fn max_all(_: &Sizes, values: &Values) -> Values {
    result("y", vec![values["x"].iter().copied().fold(f64::NEG_INFINITY, f64::max)])
}

/// Quotients by scales of rows, or of blocks of columns of rows; the quotients are not rounded.
pub(super) fn quantise(sizes: &Sizes, values: &Values, block: Option<usize>, most: f64) -> Values {
    let block = block.unwrap_or(sizes["n"] as usize);
    let (mut y, mut scales) = (Vec::new(), Vec::new());
    for part in rows(sizes, values, "x").flat_map(|row| row.chunks(block)) {
        let top = part.iter().fold(0.0_f64, |top, x| top.max(x.abs()));
        let scale = (top / most).max(f64::from(f32::MIN_POSITIVE));
        scales.push(scale);
        y.extend(part.iter().map(|x| x / scale));
    }
    Values::from([("y".to_string(), y), ("s".to_string(), scales)])
}

/// Elements and scales of blocks of columns of rows; whole blocks of types that share bytes. `scale` makes a scale, as the type that it has, of a
/// block's largest magnitude.
fn quantise_blocks(
    sizes: &Sizes,
    values: &Values,
    (dtype, block): (DType, usize),
    scale: impl Fn(f64) -> f64,
) -> Values {
    let (mut y, mut scales) = (Vec::new(), Vec::new());
    for part in rows(sizes, values, "x").flat_map(|row| row.chunks(block)) {
        let scale = scale(part.iter().fold(0.0_f64, |top, x| top.max(x.abs())));
        scales.push(scale);
        let quotient = |x: &f64| if scale > 0.0 { dtype.decode(dtype.encode(x / scale)) } else { 0.0 };
        y.extend(part.iter().map(quotient));
        if dtype.per_byte() > 1 {
            y.extend(vec![0.0; block - part.len()]);
        }
    }
    Values::from([("y".to_string(), y), ("s".to_string(), scales)])
}

/// The formats of OCP Microscaling Formats (MX) 1.0, section 6.3: a scale is the largest power of two that is not above a block's largest
/// magnitude, over the largest power of two of the type.
pub(super) fn quantise_mx(sizes: &Sizes, values: &Values, dtype: DType) -> Values {
    let floor = |x: f64| f64::from_bits(x.to_bits() >> 52 << 52);
    let most = floor(dtype.decode(dtype.encode(f64::INFINITY)));
    quantise_blocks(sizes, values, (dtype, 32), |top| {
        DType::UE8M0.decode(DType::UE8M0.encode(floor(top) / most))
    })
}

/// NVFP4 without the factor of a tensor: a scale is a sixth of the largest magnitude of 16 columns.
pub(super) fn quantise_nv(sizes: &Sizes, values: &Values) -> Values {
    quantise_blocks(sizes, values, (DType::E2M1, 16), |top| {
        DType::UE4M3.decode(DType::UE4M3.encode(top / 6.0))
    })
}

/// Rotates the pairs `(x[first], x[second])` of heads of `d` numbers by the angles of their token.
fn rope(sizes: &Sizes, values: &Values, pair: impl Fn(usize, usize) -> (usize, usize)) -> Values {
    let d = sizes["d"] as usize;
    let heads = sizes["h"] as usize;
    let mut y = vec![0.0; values["x"].len()];
    for (at, x) in values["x"].chunks(d).enumerate() {
        let token = at / heads;
        for i in 0..d / 2 {
            let (c, s) = (values["cos"][token * (d / 2) + i], values["sin"][token * (d / 2) + i]);
            let (first, second) = pair(i, d);
            y[at * d + first] = x[first] * c - x[second] * s;
            y[at * d + second] = x[second] * c + x[first] * s;
        }
    }
    result("y", y)
}

pub(super) fn rope_half(sizes: &Sizes, values: &Values) -> Values {
    rope(sizes, values, |i, d| (i, i + d / 2))
}

pub(super) fn rope_interleaved(sizes: &Sizes, values: &Values) -> Values {
    rope(sizes, values, |i, _| (2 * i, 2 * i + 1))
}
pub(super) fn softmax(sizes: &Sizes, values: &Values) -> Values {
    of_rows(sizes, values, |row| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| (x - most).exp() / total).collect()
    })
}
pub(super) fn log_softmax(sizes: &Sizes, values: &Values) -> Values {
    of_rows(sizes, values, |row| {
        let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = row.iter().map(|x| (x - most).exp()).sum();
        row.iter().map(|x| x - most - total.ln()).collect()
    })
}
pub(super) fn causal_conv1d(sizes: &Sizes, values: &Values) -> Values {
    let (d, l) = (sizes["d"] as usize, sizes["l"] as usize);
    let mut y = Vec::new();
    for (at, row) in values["x"].chunks(l).enumerate() {
        let channel = at % d;
        let w = &values["w"][4 * channel..4 * channel + 4];
        for i in 0..l {
            let taps = (0..4).filter(|k| i + k >= 3).map(|k| w[k] * row[i + k - 3]);
            let sum = values["bias"][channel] + taps.sum::<f64>();
            y.push(sum / (1.0 + (-sum).exp()));
        }
    }
    result("y", y)
}

/// The logarithm of the sum of exponentials.
fn log_sum(row: &[f64]) -> f64 {
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    most + row.iter().map(|x| (x - most).exp()).sum::<f64>().ln()
}

pub(super) fn cross_entropy(sizes: &Sizes, values: &Values) -> Values {
    let sums: Vec<f64> = rows(sizes, values, "x").map(log_sum).collect();
    let each = rows(sizes, values, "x").zip(&values["target"]).zip(&sums);
    let loss = each.map(|((row, target), lse)| lse - row[*target as usize]).collect();
    Values::from([("lse".to_string(), sums), ("loss".to_string(), loss)])
}

/// Rows of losses of two tensors.
fn losses(sizes: &Sizes, values: &Values, of: impl Fn(f64, f64) -> f64) -> Values {
    let pairs = rows(sizes, values, "x").zip(rows(sizes, values, "target"));
    result("loss", pairs.map(|(x, target)| x.iter().zip(target).map(|(x, t)| of(*x, *t)).sum()).collect())
}

pub(super) fn kl_div(sizes: &Sizes, values: &Values) -> Values {
    losses(sizes, values, |x, target| if target <= 0.0 { 0.0 } else { target * (target.ln() - x) })
}

pub(super) fn jsd(sizes: &Sizes, values: &Values) -> Values {
    let beta = values["beta"][0];
    losses(sizes, values, |x, target| {
        let (p, q) = (beta * target.exp(), (1.0 - beta) * x.exp());
        let mix = (p + q).ln();
        p * (target - mix) + q * (x - mix)
    })
}

pub(super) fn cross_entropy_backward(sizes: &Sizes, values: &Values) -> Values {
    let mut dx = Vec::new();
    for (i, row) in rows(sizes, values, "x").enumerate() {
        let (target, lse, scale) = (values["target"][i], values["lse"][i], values["dloss"][i]);
        let of = |(j, x): (usize, &f64)| ((x - lse).exp() - f64::from(u8::from(j as f64 == target))) * scale;
        dx.extend(row.iter().enumerate().map(of));
    }
    result("dx", dx)
}

/// The four words of Philox-4x32-10 for a counter and a key (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC11).
fn philox(mut c: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let wide = u64::from(a) * u64::from(b);
        ((wide >> 32) as u32, wide as u32)
    };
    for _ in 0..10 {
        let ((h0, l0), (h1, l1)) = (product(c[0], 0xD251_1F53), product(c[2], 0xCD9E_8D57));
        c = [h1 ^ c[1] ^ key[0], l1, h0 ^ c[3] ^ key[1], l0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    c
}

pub(super) fn dropout(sizes: &Sizes, values: &Values) -> Values {
    let (p, seed) = (values["p"][0], values["seed"][0] as u32);
    let mut y = Vec::new();
    for (i, row) in rows(sizes, values, "x").enumerate() {
        for (j, x) in row.iter().enumerate() {
            let bits = philox([(j / 4) as u32, i as u32, 0, 0], [seed, 0])[j % 4];
            let kept = f64::from(bits >> 8) * 2f64.powi(-24) >= p;
            y.push(if kept { x / (1.0 - p) } else { 0.0 });
        }
    }
    result("y", y)
}

pub(super) fn argmax(sizes: &Sizes, values: &Values) -> Values {
    let (mut at, mut most) = (Vec::new(), Vec::new());
    for row in rows(sizes, values, "x") {
        let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        at.push(row.iter().position(|x| *x == top).unwrap_or(0) as f64);
        most.push(top);
    }
    Values::from([("y".to_string(), at), ("v".to_string(), most)])
}

/// Sums of the columns of a function of row, column and element of `x`.
fn columns(sizes: &Sizes, values: &Values, f: impl Fn(usize, usize, f64) -> f64) -> Vec<f64> {
    let mut sums = vec![0.0; sizes["n"] as usize];
    for (i, row) in rows(sizes, values, "x").enumerate() {
        sums.iter_mut().enumerate().for_each(|(j, sum)| *sum += f(i, j, row[j]));
    }
    sums
}

/// A function of the elements of `x[m, n]` along one of its modes.
fn along_rows(sizes: &Sizes, values: &Values, f: impl Fn(&[f64]) -> f64) -> Values {
    result("y", rows(sizes, values, "x").map(f).collect())
}

/// The same along the middle mode of `x[l, m, n]`; of `x[m, n]` along the first.
fn along_columns(sizes: &Sizes, values: &Values, f: impl Fn(&[f64]) -> f64) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let column = |x: &[f64], j: usize| (0..m).map(|i| x[i * n + j]).collect::<Vec<f64>>();
    let of = |x| (0..n).map(|j| f(&column(x, j))).collect::<Vec<f64>>();
    result("y", values["x"].chunks(m * n).flat_map(of).collect())
}

fn sum(x: &[f64]) -> f64 {
    x.iter().sum()
}

fn largest(x: &[f64]) -> f64 {
    x.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

pub(super) fn sum_rows(sizes: &Sizes, values: &Values) -> Values {
    along_rows(sizes, values, sum)
}

pub(super) fn mean_rows(sizes: &Sizes, values: &Values) -> Values {
    along_rows(sizes, values, mean)
}

pub(super) fn max_rows(sizes: &Sizes, values: &Values) -> Values {
    along_rows(sizes, values, largest)
}

pub(super) fn sum_columns(sizes: &Sizes, values: &Values) -> Values {
    along_columns(sizes, values, sum)
}

pub(super) fn mean_columns(sizes: &Sizes, values: &Values) -> Values {
    along_columns(sizes, values, mean)
}

pub(super) fn max_columns(sizes: &Sizes, values: &Values) -> Values {
    along_columns(sizes, values, largest)
}

/// The gradients of a norm: of its input, its weights and, of one that centres, its biases.
fn norm_backward(sizes: &Sizes, values: &Values, centres: bool) -> Values {
    let n = sizes["n"] as usize;
    let (w, dy) = (&values["w"], &values["dy"]);
    let (mut dx, mut normed) = (Vec::new(), Vec::new());
    for (i, row) in rows(sizes, values, "x").enumerate() {
        let centre = if centres { mean(row) } else { 0.0 };
        let centred: Vec<f64> = row.iter().map(|x| x - centre).collect();
        let squares: Vec<f64> = centred.iter().map(|x| x * x).collect();
        let scale = 1.0 / (mean(&squares) + values["eps"][0]).sqrt();
        let h: Vec<f64> = centred.iter().map(|x| x * scale).collect();
        let g: Vec<f64> = dy[i * n..(i + 1) * n].iter().zip(w).map(|(d, w)| d * w).collect();
        let flat = if centres { mean(&g) } else { 0.0 };
        let both = g.iter().zip(&h).map(|(g, h)| g * h).sum::<f64>() / n as f64;
        dx.extend(g.iter().zip(&h).map(|(g, h)| scale * (g - flat - h * both)));
        normed.extend(h);
    }
    let dw = columns(sizes, values, |i, j, _| dy[i * n + j] * normed[i * n + j]);
    let mut results = Values::from([("dx".to_string(), dx), ("dw".to_string(), dw)]);
    if centres {
        results.insert("db".to_string(), columns(sizes, values, |i, j, _| dy[i * n + j]));
    }
    results
}

pub(super) fn rmsnorm_backward(sizes: &Sizes, values: &Values) -> Values {
    norm_backward(sizes, values, false)
}

pub(super) fn layernorm_backward(sizes: &Sizes, values: &Values) -> Values {
    norm_backward(sizes, values, true)
}

/// The gradients of a norm of a sum, which has a gradient of its own.
fn add_norm_backward(sizes: &Sizes, values: &Values, centres: bool) -> Values {
    let mut results = norm_backward(sizes, values, centres);
    if let Some(dx) = results.get_mut("dx") {
        dx.iter_mut().zip(&values["dh"]).for_each(|(dx, dh)| *dx += dh);
    }
    results
}

pub(super) fn add_rmsnorm_backward(sizes: &Sizes, values: &Values) -> Values {
    add_norm_backward(sizes, values, false)
}

pub(super) fn add_layernorm_backward(sizes: &Sizes, values: &Values) -> Values {
    add_norm_backward(sizes, values, true)
}

pub(super) fn embedding(sizes: &Sizes, values: &Values) -> Values {
    let n = sizes["n"] as usize;
    let row = |id: &f64| values["w"][*id as usize * n..(*id as usize + 1) * n].to_vec();
    result("y", values["ids"].iter().flat_map(row).collect())
}

pub(super) fn softmax_ragged(sizes: &Sizes, values: &Values) -> Values {
    let mut y = Vec::new();
    for (row, length) in rows(sizes, values, "x").zip(&values["lengths"]) {
        let there = &row[..*length as usize];
        let lse = log_sum(there);
        y.extend(there.iter().map(|x| (x - lse).exp()));
        y.resize(y.len() + row.len() - there.len(), 0.0);
    }
    result("y", y)
}

/// Mamba's selective scan, step by step (Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", algorithm 2).
pub(super) fn selective_scan(sizes: &Sizes, values: &Values) -> Values {
    const STATES: usize = 16;
    let (d, l) = (sizes["d"] as usize, sizes["l"] as usize);
    let mut y = Vec::new();
    for (at, u) in values["u"].chunks(l).enumerate() {
        let (batch, channel) = (at / d, at % d);
        let mut h = [0.0; STATES];
        for (t, u) in u.iter().enumerate() {
            let v = values["delta"][at * l + t] + values["bias"][channel];
            let dt = v.max(0.0) + (-v.abs()).exp().ln_1p();
            let mut sum = values["skip"][channel] * u;
            for (n, h) in h.iter_mut().enumerate() {
                let of = |name: &str| values[name][(batch * STATES + n) * l + t];
                *h = (dt * values["a"][channel * STATES + n]).exp() * *h + dt * u * of("bs");
                sum += *h * of("cs");
            }
            let z = values["z"][at * l + t];
            y.push(sum * z / (1.0 + (-z).exp()));
        }
    }
    result("y", y)
}

pub(super) fn cumsum(sizes: &Sizes, values: &Values) -> Values {
    let sums = |row: &[f64]| {
        let next = |sum: &mut f64, x: &f64| {
            *sum += x;
            Some(*sum)
        };
        row.iter().scan(0.0, next).collect()
    };
    of_rows(sizes, values, sums)
}

/// The columns of a row, the largest elements first, equals in order.
fn sorted(row: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..row.len()).collect();
    order.sort_by(|a, b| row[*b].total_cmp(&row[*a]));
    order
}

/// The largest elements and their columns; −∞ and −1 where a row has fewer.
pub(super) fn topk(sizes: &Sizes, values: &Values) -> Values {
    let (mut tops, mut at) = (Vec::new(), Vec::new());
    for row in rows(sizes, values, "x") {
        let order = sorted(row);
        for i in 0..sizes["k"] as usize {
            tops.push(order.get(i).map_or(f64::NEG_INFINITY, |j| row[*j]));
            at.push(order.get(i).map_or(-1.0, |j| *j as f64));
        }
    }
    Values::from([("v".to_string(), tops), ("y".to_string(), at)])
}

/// The columns at which what is taken of a row's softmax sums to more than `u` of it.
pub(super) fn top_p(sizes: &Sizes, values: &Values) -> Values {
    let mut y = Vec::new();
    for (row, u) in rows(sizes, values, "x").zip(&values["u"]) {
        let lse = log_sum(row);
        let share: Vec<f64> = row.iter().map(|x| (x - lse).exp()).collect();
        let (mut least, mut sum) = (f64::INFINITY, 0.0);
        for j in sorted(row) {
            if sum < values["p"][0] {
                least = row[j];
            }
            sum += share[j];
        }
        let taken = share.iter().zip(row).map(|(share, x)| if *x >= least { *share } else { 0.0 });
        let up: Vec<f64> = taken
            .scan(0.0, |sum, share| {
                *sum += share;
                Some(*sum)
            })
            .collect();
        let total = up.last().copied().unwrap_or(0.0);
        y.push(up.iter().filter(|up| **up <= u * total).count() as f64);
    }
    result("y", y)
}

pub(super) fn histogram(sizes: &Sizes, values: &Values) -> Values {
    let mut h = vec![0.0; sizes["v"] as usize];
    values["x"].iter().for_each(|x| h[*x as usize] += 1.0);
    result("h", h)
}

pub(super) fn scatter(sizes: &Sizes, values: &Values) -> Values {
    let (n, mut y) = (sizes["n"] as usize, values["y"].clone());
    for (row, id) in rows(sizes, values, "x").zip(&values["ids"]).filter(|(_, id)| **id >= 0.0) {
        let at = *id as usize * n;
        y[at..at + n].copy_from_slice(row);
    }
    result("y", y)
}

/// Adds rows of `from` to those of `to` that `ids` names.
fn scattered(sizes: &Sizes, values: &Values, from: &str, mut to: Vec<f64>) -> Vec<f64> {
    let n = sizes["n"] as usize;
    for (row, id) in rows(sizes, values, from).zip(&values["ids"]) {
        let at = *id as usize * n;
        to[at..at + n].iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
    to
}

pub(super) fn embedding_backward(sizes: &Sizes, values: &Values) -> Values {
    result("dw", scattered(sizes, values, "dy", vec![0.0; values["dw"].len()]))
}

pub(super) fn scatter_add(sizes: &Sizes, values: &Values) -> Values {
    result("y", scattered(sizes, values, "x", values["y"].clone()))
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The product of each matrix's transpose and its vector.
pub(super) fn gemv_transposed(sizes: &Sizes, values: &Values) -> Values {
    let (m, n) = (sizes["m"] as usize, sizes["n"] as usize);
    let mut y = Vec::new();
    for (a, x) in values["a"].chunks(m * n).zip(values["x"].chunks(m)) {
        y.extend((0..n).map(|j| x.iter().enumerate().map(|(i, x)| x * a[i * n + j]).sum::<f64>()));
    }
    result("y", y)
}

pub(super) fn batched_gemm(sizes: &Sizes, values: &Values) -> Values {
    let (m, n, k) = (sizes["m"] as usize, sizes["n"] as usize, sizes["k"] as usize);
    let mut c = Vec::new();
    for (a, b) in values["a"].chunks(m * k).zip(values["b"].chunks(n * k)) {
        c.extend(a.chunks(k).flat_map(|row| b.chunks(k).map(|column| dot(row, column))));
    }
    result("c", c)
}

pub(super) fn linear_cross_entropy(sizes: &Sizes, values: &Values) -> Values {
    let k = sizes["k"] as usize;
    let logits = |row: &[f64]| values["w"].chunks(k).map(|w| dot(row, w)).collect::<Vec<f64>>();
    let mut with = values.clone();
    with.insert("x".to_string(), values["x"].chunks(k).flat_map(logits).collect());
    cross_entropy(sizes, &with)
}

/// The gradients of the factors of the logits.
pub(super) fn linear_cross_entropy_backward(sizes: &Sizes, values: &Values) -> Values {
    let (n, k) = (sizes["n"] as usize, sizes["k"] as usize);
    let (x, w) = (&values["x"], &values["w"]);
    let (mut dx, mut dw) = (vec![0.0; x.len()], vec![0.0; n * k]);
    for (i, x) in x.chunks(k).enumerate() {
        for (j, w) in w.chunks(k).enumerate() {
            let hit = f64::from(u8::from(j as f64 == values["target"][i]));
            let g = ((dot(x, w) - values["lse"][i]).exp() - hit) * values["dloss"][i];
            dx[i * k..(i + 1) * k].iter_mut().zip(w).for_each(|(dx, w)| *dx += g * w);
            dw[j * k..(j + 1) * k].iter_mut().zip(x).for_each(|(dw, x)| *dw += g * x);
        }
    }
    Values::from([("dx".to_string(), dx), ("dw".to_string(), dw)])
}

/// Mamba-2's recurrence, step by step (Dao and Gu, "Transformers are SSMs", section 6), of heads of 64 channels with 128 states.
pub(super) fn mamba2(sizes: &Sizes, values: &Values) -> Values {
    const CHANNELS: usize = 64;
    const STATES: usize = 128;
    let (l, heads) = (sizes["l"] as usize, sizes["h"] as usize);
    let mut y = vec![0.0; values["x"].len()];
    for at in 0..values["delta"].len() / l {
        let (batch, head) = (at / heads, at % heads);
        let mut state = vec![0.0; CHANNELS * STATES];
        for step in batch * l..(batch + 1) * l {
            let v = values["delta"][step * heads + head] + values["bias"][head];
            let dt = v.max(0.0) + (-v.abs()).exp().ln_1p();
            let decay = (dt * values["a"][head]).exp();
            let of = |name: &str| &values[name][step * STATES..(step + 1) * STATES];
            for channel in 0..CHANNELS {
                let i = (step * heads + head) * CHANNELS + channel;
                let x = values["x"][i];
                let h = &mut state[channel * STATES..(channel + 1) * STATES];
                h.iter_mut().zip(of("bs")).for_each(|(h, b)| *h = decay * *h + dt * x * b);
                y[i] = dot(h, of("cs")) + values["skip"][head] * x;
            }
        }
    }
    result("y", y)
}

#[cfg(test)]
mod tests {
    use super::philox;

    /// The known answers of Random123 (kat_vectors, philox 4x32 10).
    #[test]
    fn philox_gives_the_published_words() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }
}
