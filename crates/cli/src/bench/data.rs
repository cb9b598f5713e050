//! Factors of a matrix product, and how far a result is from the exact one.
//!
//! A factor has the elements of a random sequence of [`PERIOD`] numbers over and over. The period is a prime, so rows differ
//! from each other, and what any element is can be told without keeping all of them.

use rayon::prelude::*;
use tilewright::machine::DType;
use tilewright::runtime::encode;

use super::shapes::Shape;

/// Period of a factor's elements: a prime a little above 2²⁰.
const PERIOD: usize = 1_048_583;
/// Rows and columns of the result that are computed exactly, at most.
const SAMPLES: usize = 48;

/// Numbers by SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Uniform in (0, 1).
    fn uniform(&mut self) -> f64 {
        ((self.next() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    /// Normally distributed, with mean 0 and variance 1 (Box and Muller).
    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (2.0 * std::f64::consts::PI * self.uniform()).cos()
    }
}

/// A factor: `rows` of `k` elements, of each product.
pub struct Factor {
    batches: usize,
    rows: usize,
    k: usize,
    /// True if rows are contiguous; otherwise columns are.
    k_major: bool,
    dtype: DType,
    /// The sequence as it is stored, and its values.
    bytes: Vec<u8>,
    values: Vec<f32>,
}

impl Factor {
    /// A factor with elements from N(0, 1), or with any integers of its type.
    pub fn new(dtype: DType, [batches, rows, k]: [usize; 3], k_major: bool, seed: u64) -> Self {
        let mut numbers = Numbers(seed);
        let len = PERIOD.min(batches * rows * k);
        let values: Vec<f64> = match dtype {
            DType::I8 => (0..len).map(|_| f64::from(numbers.next() as i8)).collect(),
            _ => (0..len).map(|_| numbers.normal()).collect(),
        };
        let bytes = encode(dtype, &values);
        let values = tilewright::runtime::decode(dtype, &bytes).into_iter().map(|x| x as f32).collect();
        Factor { batches, rows, k, k_major, dtype, bytes, values }
    }

    /// All its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut all = vec![0; self.dtype.bytes_of(self.batches * self.rows * self.k)];
        all.par_chunks_mut(self.bytes.len()).for_each(|part| part.copy_from_slice(&self.bytes[..part.len()]));
        all
    }

    fn at(&self, batch: usize, row: usize, column: usize) -> f64 {
        let index = if self.k_major { row * self.k + column } else { column * self.rows + row };
        f64::from(self.values[(batch * self.rows * self.k + index) % self.values.len()])
    }
}

/// Sample of the indices below `count`: the first, the last, and others between, spread unevenly.
fn sample(count: usize) -> Vec<usize> {
    if count <= SAMPLES {
        return (0..count).collect();
    }
    let mut numbers = Numbers(count as u64);
    let step = count / SAMPLES;
    let mut all: Vec<usize> = (0..SAMPLES).map(|i| i * step + numbers.next() as usize % step).collect();
    all[0] = 0;
    all[SAMPLES - 1] = count - 1;
    all
}

/// The exact result at some of its rows and columns: of the first product and of the last.
pub struct Reference {
    batches: Vec<usize>,
    rows: Vec<usize>,
    columns: Vec<usize>,
    /// Product by product, row by row.
    values: Vec<f64>,
}

impl Reference {
    /// Sums in f64.
    pub fn new(a: &Factor, b: &Factor) -> Self {
        let (rows, columns) = (sample(a.rows), sample(b.rows));
        let mut batches = vec![0, a.batches - 1];
        batches.dedup();
        let line = |factor: &Factor, batch: usize, row: usize| -> Vec<f64> {
            (0..factor.k).map(|column| factor.at(batch, row, column)).collect()
        };
        let mut values = Vec::new();
        for batch in &batches {
            let right: Vec<Vec<f64>> = columns.iter().map(|column| line(b, *batch, *column)).collect();
            values.par_extend(rows.par_iter().flat_map_iter(|row| {
                let left = line(a, *batch, *row);
                let dot = |other: &Vec<f64>| left.iter().zip(other).map(|(x, y)| x * y).sum::<f64>();
                right.iter().map(dot).collect::<Vec<f64>>()
            }));
        }
        Reference { batches, rows, columns, values }
    }

    /// The relative error of a result at these rows and columns, in the Frobenius norm.
    pub fn error(&self, shape: &Shape, result: &Elements<'_>) -> f64 {
        let mut exact = self.values.iter();
        let (mut difference, mut norm) = (0.0, 0.0);
        for batch in &self.batches {
            for row in &self.rows {
                for (column, exact) in self.columns.iter().zip(&mut exact) {
                    let ours = result.at((batch * shape.m + row) * shape.n + column);
                    difference += (ours - exact).powi(2);
                    norm += exact.powi(2);
                }
            }
        }
        relative(difference, norm)
    }
}

/// The root of a quotient of squares; 0 if both are 0.
fn relative(difference: f64, norm: f64) -> f64 {
    if difference == 0.0 { 0.0 } else { (difference / norm).sqrt() }
}

/// Elements in memory.
pub struct Elements<'a> {
    bytes: &'a [u8],
    width: usize,
    dtype: DType,
    /// The value of every pattern of at most 16 bits.
    table: Vec<f32>,
}

impl<'a> Elements<'a> {
    /// These bytes as elements of a type.
    pub fn new(dtype: DType, bytes: &'a [u8]) -> Self {
        let bits = dtype.bits();
        let table = if bits <= 16 {
            (0..1u32 << bits).map(|pattern| dtype.decode(pattern) as f32).collect()
        } else {
            Vec::new()
        };
        Elements { bytes, width: (bits / 8).max(1) as usize, dtype, table }
    }

    fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    fn at(&self, index: usize) -> f64 {
        let bytes = &self.bytes[index * self.width..][..self.width];
        let pattern = bytes.iter().rev().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        match self.table.get(pattern as usize) {
            Some(value) if !self.table.is_empty() => f64::from(*value),
            _ => self.dtype.decode(pattern),
        }
    }

    /// Number of elements that are not finite.
    pub fn not_finite(&self) -> usize {
        (0..self.len()).into_par_iter().filter(|i| !self.at(*i).is_finite()).count()
    }

    /// The relative difference to another result, in the Frobenius norm.
    pub fn difference(&self, other: &Elements<'_>) -> f64 {
        let squares = |i: usize| {
            let (x, y) = (self.at(i), other.at(i));
            ((x - y).powi(2), y.powi(2))
        };
        let add = |(a, b): (f64, f64), (c, d): (f64, f64)| (a + c, b + d);
        let (difference, norm) =
            (0..self.len()).into_par_iter().with_min_len(1 << 16).map(squares).reduce(|| (0.0, 0.0), add);
        relative(difference, norm)
    }
}

/// The largest relative error that counts as right: what rounding results to their type explains, with room for sums in f32, and for
/// those of 8-bit floats in the tensor cores' own precision.
pub fn tolerance(factors: DType, result: DType) -> f64 {
    let rounding = match result {
        DType::I32 => 0.0,
        DType::BF16 => 8e-3,
        DType::F16 => 1e-3,
        _ => 1e-5,
    };
    match factors {
        DType::E4M3 | DType::E5M2 => rounding + 2e-3,
        _ => rounding,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result by plain loops.
    fn product(a: &Factor, b: &Factor) -> Vec<f64> {
        let mut all = Vec::new();
        for batch in 0..a.batches {
            for i in 0..a.rows {
                let dot = |j| (0..a.k).map(|l| a.at(batch, i, l) * b.at(batch, j, l)).sum::<f64>();
                all.extend((0..b.rows).map(dot));
            }
        }
        all
    }

    #[test]
    fn errors_are_those_of_rounding() {
        let shape = Shape { m: 70, n: 60, k: 40, batches: 3 };
        for dtype in [DType::F16, DType::BF16, DType::E4M3, DType::I8] {
            let a = Factor::new(dtype, [3, 70, 40], true, 1);
            let b = Factor::new(dtype, [3, 60, 40], false, 2);
            let exact = product(&a, &b);
            let result = match dtype {
                DType::I8 => DType::I32,
                DType::E4M3 => DType::BF16,
                other => other,
            };
            let stored = encode(result, &exact);
            let elements = Elements::new(result, &stored);
            let error = Reference::new(&a, &b).error(&shape, &elements);
            assert!(error <= tolerance(dtype, result), "{dtype}: {error}");
            assert_eq!((elements.not_finite(), elements.difference(&elements)), (0, 0.0));
            // One wrong element at the edge is seen by both comparisons.
            let mut wrong = exact.clone();
            wrong[3 * 70 * 60 - 1] += 1000.0 * exact.iter().fold(1.0, |most, x| x.abs().max(most));
            let other = encode(result, &wrong);
            let other = Elements::new(result, &other);
            assert!(Reference::new(&a, &b).error(&shape, &other) > 0.01, "{dtype}");
            assert!(other.difference(&elements) > 0.01, "{dtype}");
        }
    }

    #[test]
    fn factors_repeat_after_their_period_and_are_normal() {
        let a = Factor::new(DType::F16, [1, 1030, 1024], true, 3);
        let bytes = a.bytes();
        assert_eq!(bytes.len(), 2 * 1030 * 1024);
        assert_eq!(bytes[2 * PERIOD..2 * PERIOD + 64], bytes[..64]);
        let elements = Elements::new(DType::F16, &bytes);
        assert_eq!(elements.at(5 * 1024 + 7), a.at(0, 5, 7));
        assert_eq!(elements.at(1029 * 1024 + 1023), a.at(0, 1029, 1023));
        let n = a.values.len() as f64;
        let mean = a.values.iter().map(|x| f64::from(*x)).sum::<f64>() / n;
        let variance = a.values.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n;
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.01, "{mean} {variance}");
        let columns = Factor::new(DType::F16, [2, 30, 20], false, 3);
        let stored = columns.bytes();
        assert_eq!(Elements::new(DType::F16, &stored).at(600 + 4 * 30 + 9), columns.at(1, 9, 4));
    }

    #[test]
    fn poison_is_found() {
        let poison = [0xff; 12];
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::E4M3] {
            assert_eq!(Elements::new(dtype, &poison).not_finite(), 96 / dtype.bits() as usize, "{dtype}");
        }
        let good = encode(DType::F16, &[1.0; 6]);
        let good = Elements::new(DType::F16, &good);
        assert!(Elements::new(DType::F16, &poison).difference(&good).is_nan());
    }

    #[test]
    fn samples_have_both_ends() {
        assert_eq!(sample(3), [0, 1, 2]);
        let some = sample(10_000);
        assert_eq!((some.len(), some[0], some[SAMPLES - 1]), (SAMPLES, 0, 9_999));
        assert!(some.is_sorted() && some.iter().any(|i| i % 2 == 1));
    }
}
