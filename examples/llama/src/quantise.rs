//! Weights as integers of 4 bits (W4A16): a scale for each 128 neighbours of a row, the largest of which becomes 7.

use half::f16;
use tilewright::kernels::gemm_weights::StoredWeights;
use tilewright::machine::DType;
use tilewright::runtime::encode;

use crate::config::{Config, GROUP};
use crate::weights::{Layer, Weights};

/// The largest integer.
const LARGEST: f32 = 7.0;

/// A matrix with rows of k weights as integers and scales.
pub(crate) struct Quantised {
    /// Row-major.
    integers: Vec<i8>,
    /// For each row those of its groups.
    scales: Vec<f16>,
    k: usize,
}

impl Quantised {
    /// The nearest integers to weights over their scales.
    pub(crate) fn of(weights: &[f16], k: usize) -> Self {
        let mut integers = Vec::with_capacity(weights.len());
        let mut scales = Vec::with_capacity(weights.len().div_ceil(GROUP));
        for group in weights.chunks_exact(k).flat_map(|row| row.chunks(GROUP)) {
            let largest = group.iter().map(|x| x.to_f32().abs()).fold(0.0, f32::max);
            let scale = f16::from_f32(largest / LARGEST);
            let inverse = if scale == f16::ZERO { 0.0 } else { scale.to_f32().recip() };
            let integer = |x: &f16| (x.to_f32() * inverse).round().clamp(-LARGEST, LARGEST) as i8;
            integers.extend(group.iter().map(integer));
            scales.push(scale);
        }
        Quantised { integers, scales, k }
    }

    fn rows(&self) -> usize {
        self.integers.len() / self.k
    }

    /// The bytes of `w` and of `s[ceil_div(k, group), n]`, as `gemm_weights` reads them.
    pub(crate) fn bytes(&self) -> (Vec<u8>, Vec<u8>) {
        let stored = StoredWeights::new(DType::I4, Some(GROUP as i64));
        let integers = stored.pack(&self.integers, [self.rows(), self.k], 0);
        let pairs = integers.chunks(2);
        let pair = |pair: &[i8]| pair[0] as u8 & 0xf | pair.get(1).map_or(0, |x| (*x as u8) << 4);
        let groups = self.k.div_ceil(GROUP);
        let scales = (0..groups).flat_map(|group| (0..self.rows()).map(move |row| row * groups + group));
        let scales: Vec<f64> = scales.map(|at| self.scales[at].to_f64()).collect();
        (pairs.map(pair).collect(), encode(DType::F16, &scales))
    }

    /// The weights that integers and scales stand for, rounded to f16.
    fn rounded(&self) -> Vec<f16> {
        let groups = self.k.div_ceil(GROUP);
        let weight = |(at, integer): (usize, &i8)| {
            let scale = self.scales[at / self.k * groups + at % self.k / GROUP];
            f16::from_f32(f32::from(*integer) * scale.to_f32())
        };
        self.integers.iter().enumerate().map(weight).collect()
    }
}

impl Weights {
    /// The weights that an engine with integers of 4 bits multiplies by, in f16: what its results are compared with.
    pub fn rounded_to_4_bits(&self, config: &Config) -> Self {
        let rounded = |weights: &[f16], k: usize| Quantised::of(weights, k).rounded();
        let Config { hidden, heads, head, intermediate, .. } = *config;
        let layer = |layer: &Layer| Layer {
            qkv: rounded(&layer.qkv, hidden),
            output: rounded(&layer.output, heads * head),
            gate_up: rounded(&layer.gate_up, hidden),
            down: rounded(&layer.down, intermediate),
            ..layer.clone()
        };
        let layers = self.layers.iter().map(|of| layer(of).into()).collect();
        Weights { layers, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_scales_are_near_the_weights() {
        let weights: Vec<f16> =
            (0..400).map(|i| f16::from_f32(((i * 37 % 101) as f32 - 50.0) / 50.0)).collect();
        let quantised = Quantised::of(&weights, 200);
        assert_eq!((quantised.rows(), quantised.scales.len()), (2, 4));
        for (weight, rounded) in weights.iter().zip(quantised.rounded()) {
            assert!((weight.to_f32() - rounded.to_f32()).abs() <= 0.5 / LARGEST + 1e-3);
        }
        assert_eq!(Quantised::of(&[f16::ZERO; 8], 8).rounded(), [f16::ZERO; 8]);
    }

    #[test]
    fn bytes_have_two_integers_each() {
        let quantised = Quantised::of(&[f16::ONE; 64 * 256], 256);
        let (w, s) = quantised.bytes();
        assert!(w.iter().all(|byte| *byte == 0x77));
        assert_eq!((w.len(), s.len()), (64 * 128, 64 * 2 * 2));
    }
}
