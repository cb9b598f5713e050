//! Attention over `[batch, places, heads, elements]`, with gradients, and over caches.

use candle_core::{DType, Error, Result, Tensor};

use crate::apply::{Operator, apply, run};
use crate::host::{self, Heads, Seen};
use crate::operand::Operands;
use crate::plan::{Plan, Read, Write};

/// The keys that a query attends to, and the factor of scores. Queries stand at the end of the keys: the last query is at the place of the last key.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[must_use]
pub struct AttentionOptions {
    causal: bool,
    window: Option<usize>,
    scale: Option<f64>,
}

impl AttentionOptions {
    /// All keys, and 1 / √d as the factor.
    pub fn new() -> Self {
        AttentionOptions::default()
    }

    /// Keys up to the query's own place.
    pub fn causal(mut self) -> Self {
        self.causal = true;
        self
    }

    /// So many keys up to the query's own place.
    pub fn window(mut self, keys: usize) -> Self {
        self.window = Some(keys);
        self
    }

    /// The factor of scores.
    pub fn scale(mut self, scale: f64) -> Self {
        self.scale = Some(scale);
        self
    }

    fn seen(&self) -> Seen {
        match self.window {
            Some(window) => Some(Some(window)),
            None => self.causal.then_some(None),
        }
    }

    /// The factor for heads of so many elements.
    fn factor(&self, d: usize) -> f64 {
        self.scale.unwrap_or_else(|| 1.0 / (d as f64).sqrt())
    }

    /// A call with the mask and the factor.
    fn put(&self, plan: Plan, d: usize) -> Plan {
        let plan = match self.seen() {
            Some(Some(window)) => plan.word("mask", format!("window({window})")),
            Some(None) => plan.word("mask", "causal"),
            None => plan,
        };
        plan.number("scale", self.factor(d))
    }
}

/// The type of logarithms of sums.
fn of_sums(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// The extents of q, k and v, the first three operands.
fn heads(operands: &Operands<'_>) -> Result<Heads> {
    let ([b, sq, hq, d], [_, sk, hk, _]) = (operands.modes(0)?, operands.modes(1)?);
    operands.extents(1, &[b, sk, hk, d])?;
    operands.extents(2, &[b, sk, hk, d])?;
    groups(operands, hq, hk)?;
    Ok(Heads { b, sq, sk, hq, hk, d })
}

/// Heads of queries are a multiple of those of keys.
fn groups(operands: &Operands<'_>, hq: usize, hk: usize) -> Result<()> {
    if hq.is_multiple_of(hk) {
        return Ok(());
    }
    let error = Error::Msg(format!("{hq} heads of queries are no multiple of {hk} heads of keys"));
    Err(operands.refused(0, error, "has other heads than `k`"))
}

impl Heads {
    fn of_queries(&self) -> [usize; 4] {
        [self.b, self.sq, self.hq, self.d]
    }

    fn of_keys(&self) -> [usize; 4] {
        [self.b, self.sk, self.hk, self.d]
    }

    fn of_sums(&self) -> [usize; 3] {
        [self.b, self.hq, self.sq]
    }

    /// The extents again, of a call with `q` and `k`.
    fn of(plan: &Plan) -> Heads {
        let extent = |read: usize, mode: usize| plan.reads[read].shape[mode] as usize;
        let [b, sq, hq, d] = [0, 1, 2, 3].map(|mode| extent(0, mode));
        Heads { b, sq, hq, d, sk: extent(1, 1), hk: extent(1, 2) }
    }
}

/// Attention, with the logarithms of the sums where gradients need them.
pub(crate) struct Attention {
    pub(crate) options: AttentionOptions,
    pub(crate) sums: bool,
}

impl Operator for Attention {
    const NAME: &'static str = "tilewright attention";
    const OPERANDS: &'static [&'static str] = &["q", "k", "v"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        operands.alike(1)?;
        let heads = heads(operands)?;
        let (q, kv) = (heads.of_queries(), heads.of_keys());
        let reads = vec![Read::new("q", dtype, &q), Read::new("k", dtype, &kv), Read::new("v", dtype, &kv)];
        let mut writes = vec![Write::new("o", dtype, &q, &q[..])];
        if self.sums {
            let sums = heads.of_sums();
            writes.push(Write::new("lse", of_sums(dtype), &sums, &sums[..]));
        }
        Ok(self.options.put(Plan::new("attention", reads, writes), heads.d))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let heads = Heads::of(plan);
        let [q, k, v] = [0, 1, 2].map(|at| operands[at].as_slice());
        let [o, lse] = host::attention(q, k, v, heads, self.options.factor(heads.d), self.options.seen());
        if self.sums { vec![o, lse] } else { vec![o] }
    }

    fn gradients(
        &self,
        operands: &[&Tensor],
        results: &[Tensor],
        grad: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let [o, lse] = results else { return Err(Error::BackwardNotSupported { op: Self::NAME }.bt()) };
        let all: Vec<&Tensor> = operands.iter().copied().chain([o, grad, lse]).collect();
        let gradients = run(&AttentionBackward { options: self.options }, &all)?;
        Ok(gradients.into_iter().map(Some).collect())
    }
}

/// The gradients of attention's operands.
pub(crate) struct AttentionBackward {
    pub(crate) options: AttentionOptions,
}

impl Operator for AttentionBackward {
    const NAME: &'static str = "tilewright attention backward";
    const OPERANDS: &'static [&'static str] = &["q", "k", "v", "o", "dout", "lse"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        let heads = heads(operands)?;
        let (q, kv, sums) = (heads.of_queries(), heads.of_keys(), heads.of_sums());
        operands.extents(3, &q)?;
        operands.extents(4, &q)?;
        operands.extents(5, &sums)?;
        let shapes: [&[usize]; 6] = [&q, &kv, &kv, &q, &q, &sums];
        let reads = Self::OPERANDS.iter().zip(shapes).enumerate();
        let reads = reads.map(|(at, (name, shape))| Read::new(name, operands.dtype(at), shape)).collect();
        let writes = [("dq", q), ("dk", kv), ("dv", kv)];
        let writes = writes.map(|(name, shape)| Write::new(name, dtype, &shape, &shape[..])).into();
        Ok(self.options.put(Plan::new("attention_backward", reads, writes), heads.d))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let heads = Heads::of(plan);
        let all = [0, 1, 2, 3, 4, 5].map(|at| operands[at].as_slice());
        host::attention_backward(all, heads, self.options.factor(heads.d), self.options.seen()).into()
    }
}

/// `softmax(scale · q kᵀ) v` of `q[b, sq, hq, d]`, `k[b, sk, hk, d]` and `v[b, sk, hk, d]`, with sums in f32; neighbouring heads of q share one of k and v where there are more of them. Types are f16 or
/// bf16, on the host also f32 and f64. Gradients flow to all three; on a GPU that takes one of Hopper's (sm_90).
///
/// Places come before heads: what projections give, reshaped to `[b, s, h, d]`, without the transpose that candle's products need.
///
/// # Errors
///
/// As of [`linear`](crate::linear).
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let sums = [q, k, v].into_iter().any(Tensor::track_op);
    apply(Attention { options: *options, sums }, &[q, k, v])
}

/// Attention of few queries over a cache.
pub(crate) struct Decode {
    pub(crate) options: AttentionOptions,
    /// True of a cache in pages.
    pub(crate) paged: bool,
}

impl Operator for Decode {
    const NAME: &'static str = "tilewright attention_decode";
    const OPERANDS: &'static [&'static str] = &["q", "k", "v", "lengths", "table"];

    fn plan(&self, operands: &Operands<'_>) -> Result<Plan> {
        let dtype = operands.float(0)?;
        operands.same_type(1, 0)?;
        operands.same_type(2, 0)?;
        let integers = [DType::I32, DType::U32];
        let of_lengths = operands.one_of(3, &integers)?;
        let [b, sq, hq, d] = operands.modes(0)?;
        // Keys of a page and pages, or keys and sequences.
        let [outer, inner, hk, _] = operands.modes(1)?;
        let kv = if self.paged { [outer, inner, hk, d] } else { [b, inner, hk, d] };
        operands.extents(1, &kv)?;
        operands.extents(2, &kv)?;
        operands.extents(3, &[b])?;
        groups(operands, hq, hk)?;
        let names = if self.paged { ["kc", "vc"] } else { ["k", "v"] };
        let q = [b, sq, hq, d];
        let mut reads = vec![
            Read::new("q", dtype, &q),
            Read::new(names[0], dtype, &kv),
            Read::new(names[1], dtype, &kv),
            Read::new("len", of_lengths, &[b]),
        ];
        if self.paged {
            let of_table = operands.one_of(4, &integers)?;
            let [_, pages] = operands.modes(4)?;
            operands.extents(4, &[b, pages])?;
            reads.push(Read::new("table", of_table, &[b, pages]));
        }
        let mut plan = Plan::new("attention_decode", reads, vec![Write::new("o", dtype, &q, &q[..])]);
        if let Some(window) = self.options.window {
            plan = plan.option("window", window);
        }
        Ok(plan.number("scale", self.options.factor(d)))
    }

    fn host(&self, plan: &Plan, operands: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let extents = |read: usize| -> Vec<usize> {
            plan.reads[read].shape.iter().map(|extent| *extent as usize).collect()
        };
        let (q, kv) = (extents(0), extents(1));
        let ([sq, hq, d], [inner, hk]) = ([q[1], q[2], q[3]], [kv[1], kv[2]]);
        let mut o = Vec::with_capacity(operands[0].len());
        for (b, query) in operands[0].chunks(sq * hq * d).enumerate() {
            // Lengths beyond the cache, and pages that there are none of, read nothing.
            let room = if self.paged { extents(4)[1] * inner } else { inner };
            let sk = (operands[3][b].max(0.0) as usize).min(room);
            let gathered = [1, 2].map(|at| -> Vec<f64> {
                let row = hk * d;
                let place = |j: usize| match self.paged {
                    true => operands[4][b * extents(4)[1] + j / inner] as usize * inner + j % inner,
                    false => b * inner + j,
                };
                let rows = (0..sk).map(|j| operands[at].get(place(j) * row..(place(j) + 1) * row));
                rows.flat_map(|row_of| row_of.map_or_else(|| vec![0.0; row], <[f64]>::to_vec)).collect()
            });
            let heads = Heads { b: 1, sq, sk, hq, hk, d };
            let seen = Some(self.options.window);
            let [of_sequence, _] =
                host::attention(query, &gathered[0], &gathered[1], heads, self.options.factor(d), seen);
            o.extend(of_sequence);
        }
        vec![o]
    }
}

/// Attention of few queries `q[b, sq, hq, d]` over a cache `k[b, room, hk, d]` and `v`, of which sequence i has `lengths[i]` keys (u32 or i32), its queries' own among them. Queries attend to
/// keys up to their own place, or to a window of those. Types are f16 or bf16, on the host also f32 and f64. It has no gradients.
///
/// # Errors
///
/// As of [`linear`](crate::linear).
pub fn attention_decode(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    lengths: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    apply(Decode { options: *options, paged: false }, &[q, k, v, lengths])
}

/// The same over a cache in pages, `k[pages, page, hk, d]` and `v`: key j of sequence i is key j mod page of page `table[i, j / page]` (u32 or i32). A page has a power of two of keys,
/// from 16 to 1024.
///
/// # Errors
///
/// As of [`linear`](crate::linear).
pub fn attention_paged(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    table: &Tensor,
    lengths: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    apply(Decode { options: *options, paged: true }, &[q, k, v, lengths, table])
}
