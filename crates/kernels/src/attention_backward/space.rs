//! The tuning space: the forms worth trying for a problem, and how long each may take.

use tilewright_machine::Arch;

use super::AttentionBackwardConfig;
use crate::attention::{Mask, SIZES};
use crate::tuning::{Chip, SizeKind, Tunable};

/// Operations in a microsecond, of heads of up to 64 elements and of longer ones: an H200 at 16384 places, in millions.
const RATES: [f64; 2] = [549.0, 606.0];

/// Bytes in a microsecond that memory moves, in millions.
const MEMORY: f64 = 4.0;

/// Microseconds for three launches and what of a block is not hidden.
const FIXED: f64 = 20.0;

impl AttentionBackwardConfig {
    /// The gain of a form over the widest blocks of queries, as measured (docs/kernels.md).
    fn gain(&self) -> f64 {
        let (short, masked) = (self.d <= 64, self.mask != Mask::None);
        if self.deterministic {
            return 0.86;
        }
        match (self.bulk, self.overlap, self.keys_in_registers) {
            (true, ..) if short => 0.98,
            (true, ..) if !masked => 1.05,
            (true, ..) => 0.97,
            (_, true, _) if short => 0.97,
            (_, true, _) if masked => 1.0,
            (_, true, _) => 1.025,
            (_, _, true) if short => 1.026,
            (_, _, true) => 0.9,
            _ if self.bm.is_some() => 0.99,
            _ => 1.0,
        }
    }

    /// The estimated time in microseconds on an H200, of sizes b, hq, hk, sq and sk.
    pub fn estimate(&self, sizes: &[i64]) -> f64 {
        let at = |i: usize| sizes.get(i).copied().unwrap_or(1) as f64;
        let (queries, keys) = (at(0) * at(1) * at(3), at(4));
        let pairs = match self.mask {
            Mask::None => queries * keys,
            Mask::Causal => queries * (keys + self.keys() as f64) / 2.0,
            Mask::Window(window) => queries * (window as f64 + self.keys() as f64).min(keys),
        };
        let heads = (3 * self.d + 2 * self.values()) as f64;
        let rate = RATES[usize::from(self.d > 64)] * self.gain();
        // o and its gradient are read, sums of dq written, read and rounded.
        let bytes = queries * (4.0 * self.values() as f64 + 10.0 * self.d as f64);
        FIXED + 2.0 * pairs * heads / (rate * 1e6) + bytes / (MEMORY * 1e6)
    }
}

impl Tunable for AttentionBackwardConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = SIZES;
    const MEANING: &'static [&'static str] = Self::OPTIONS;
    const FAMILY: &'static [&'static str] = &["bm", "bulk", "overlap", "keys_in_registers"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] =
        &[("stages", &["2", "3"]), ("stagger", &["0", "1"])];

    fn points() -> impl Iterator<Item = Self> {
        let form = |bm, [bulk, overlap, keys_in_registers]: [bool; 3]| AttentionBackwardConfig {
            bm,
            bulk,
            overlap,
            keys_in_registers,
            ..Self::default()
        };
        let (plain, bulk, overlap, registers) =
            ([false; 3], [true, false, false], [false, true, false], [false, false, true]);
        [
            form(None, plain),
            form(Some(64), plain),
            form(Some(64), bulk),
            form(Some(64), overlap),
            form(Some(80), plain),
            form(Some(96), overlap),
            form(Some(96), registers),
            form(Some(128), plain),
        ]
        .into_iter()
    }

    fn suits(&self, _: &[i64]) -> bool {
        true
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        self.reject(arch)
    }

    fn estimate(&self, _: Chip<'_>, sizes: &[i64]) -> f64 {
        self.estimate(sizes)
    }
}
