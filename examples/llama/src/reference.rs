//! The same model on the host, in f32: what the engine's results are compared with.

use half::f16;

use crate::config::Config;
use crate::weights::{Layer, Weights};

/// A model on the host, with the keys and values of one sequence.
pub struct Reference<'a> {
    config: &'a Config,
    weights: &'a Weights,
    /// By layer: keys and values of the tokens so far, `[tokens, kv_heads, head]`.
    cache: Vec<(Vec<f32>, Vec<f32>)>,
}

/// w · x, of a row of w for each result.
fn product(w: &[f16], x: &[f32]) -> Vec<f32> {
    let row = |row: &[f16]| row.iter().zip(x).map(|(w, x)| w.to_f32() * x).sum();
    w.chunks_exact(x.len()).map(row).collect()
}

fn norm(x: &[f32], g: &[f16], eps: f32) -> Vec<f32> {
    let mean = x.iter().map(|x| x * x).sum::<f32>() / x.len() as f32;
    let scale = (mean + eps).sqrt().recip();
    x.iter().zip(g).map(|(x, g)| x * scale * g.to_f32()).collect()
}

impl<'a> Reference<'a> {
    /// A sequence without tokens.
    pub fn new(config: &'a Config, weights: &'a Weights) -> Self {
        let cache = vec![(Vec::new(), Vec::new()); config.layers];
        Reference { config, weights, cache }
    }

    /// Tokens so far.
    fn tokens(&self) -> usize {
        self.cache[0].0.len() / (self.config.kv_heads * self.config.head)
    }

    /// Takes the next word of the sequence; returns the scores of those that may come behind it.
    pub fn step(&mut self, word: u32) -> Vec<f32> {
        let Config { hidden, eps, .. } = *self.config;
        let row = word as usize * hidden;
        let mut h: Vec<f32> = self.weights.embedding[row..row + hidden].iter().map(|x| x.to_f32()).collect();
        let (cos, sin) = self.config.angles(self.tokens() + 1);
        let last = cos.len() - self.config.head / 2;
        for number in 0..self.config.layers {
            let layer = &self.weights.layers[number].clone();
            self.layer(number, layer, &mut h, (&cos[last..], &sin[last..]));
        }
        product(&self.weights.words, &norm(&h, &self.weights.norm, eps))
    }

    fn layer(&mut self, number: usize, layer: &Layer, h: &mut [f32], (cos, sin): (&[f32], &[f32])) {
        let Config { heads, kv_heads, head, intermediate, eps, .. } = *self.config;
        let mut qkv = product(&layer.qkv, &norm(h, &layer.attention_norm, eps));
        for turned in qkv[..(heads + kv_heads) * head].chunks_exact_mut(head) {
            let (low, high) = turned.split_at_mut(head / 2);
            for (i, (a, b)) in low.iter_mut().zip(high).enumerate() {
                (*a, *b) = (*a * cos[i] - *b * sin[i], *b * cos[i] + *a * sin[i]);
            }
        }
        let (keys, values) = &mut self.cache[number];
        keys.extend(&qkv[heads * head..(heads + kv_heads) * head]);
        values.extend(&qkv[(heads + kv_heads) * head..]);
        let mut attended = Vec::with_capacity(heads * head);
        for (i, q) in qkv[..heads * head].chunks_exact(head).enumerate() {
            let at = i / (heads / kv_heads) * head;
            let rows = |all: &'_ [f32]| -> Vec<Vec<f32>> {
                all.chunks_exact(kv_heads * head).map(|token| token[at..at + head].to_vec()).collect()
            };
            let scale = (head as f32).sqrt().recip();
            let dot = |k: &Vec<f32>| k.iter().zip(q).map(|(k, q)| k * q).sum::<f32>() * scale;
            let scores: Vec<f32> = rows(keys).iter().map(dot).collect();
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let weights: Vec<f32> = scores.iter().map(|score| (score - most).exp()).collect();
            let total: f32 = weights.iter().sum();
            let mut sums = vec![0.0; head];
            for (weight, value) in weights.iter().zip(rows(values)) {
                sums.iter_mut().zip(value).for_each(|(sum, v)| *sum += weight / total * v);
            }
            attended.extend(sums);
        }
        add(h, &product(&layer.output, &attended));
        let both = product(&layer.gate_up, &norm(h, &layer.gate_norm, eps));
        let (gates, ups) = both.split_at(intermediate);
        let gated: Vec<f32> = gates.iter().zip(ups).map(|(a, u)| a / (1.0 + (-a).exp()) * u).collect();
        add(h, &product(&layer.down, &gated));
    }
}

fn add(h: &mut [f32], x: &[f32]) {
    h.iter_mut().zip(x).for_each(|(h, x)| *h += x);
}
