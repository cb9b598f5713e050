//! The tuning space of attention by `mma.sync`, and how long each point may take.

use tilewright_machine::{Arch, Rate, timing};

use super::space::{SIZES, keys_of};
use super::{AttentionSm80Config, Mask};
use crate::tuning::{Chip, SizeKind, Tunable};

/// Operations of `mma.sync` of a multiprocessor in a cycle on 16-bit factors, and cycles of a score beside them: with heads of 64 and of 128 elements these
/// give what is measured on an H200 (docs/kernels.md).
const PRODUCTS: f64 = 2010.0;
const SOFTMAX: f64 = 0.028;

/// Bytes of shared memory that a multiprocessor reads in a cycle.
const SHARED: f64 = 128.0;

/// Cycles of a block of keys beside its scores, and of a tile beside its blocks of keys: those of a block alone, which other blocks hide.
const TURN: f64 = 250.0;
const ENDS: f64 = 4000.0;

impl AttentionSm80Config {
    /// Blocks that a multiprocessor holds at once.
    fn resident_blocks(&self, arch: Arch) -> i64 {
        let threads = 32 * self.warps as u32;
        let registers = arch.limits().registers_of_a_thread(threads * self.blocks as u32).min(255);
        i64::from(arch.limits().resident_blocks(threads, registers, self.shared_bytes() as u32)).max(1)
    }

    /// The estimated time in microseconds, of sizes b, hq, hk, sq and sk.
    pub fn estimate(&self, arch: Arch, sizes: &[i64]) -> f64 {
        let at = |i: usize| sizes.get(i).copied().unwrap_or(1);
        let (heads, sq, sk) = (at(0) * at(1), at(3), at(4));
        let together = self.resident_blocks(arch);
        let elements = (self.d + self.values()) as f64;
        let scores = (self.bm * self.bn) as f64 * (2.0 * elements / PRODUCTS + SOFTMAX);
        // Each warp reads all keys and values, and queries that are not in its registers.
        let queries = if self.resident { 0 } else { self.bm * self.d };
        let reads = 2.0 * (self.warps as f64 * self.bn as f64 * elements + queries as f64) / SHARED;
        // What a block of keys takes of a multiprocessor, and a tile.
        let of_block = scores.max(reads) + TURN / together as f64;
        let tiles = (sq + self.bm - 1) / self.bm;
        let of = |tile: i64| {
            let (first, last) = keys_of(self.mask, [tile, self.bm], [sq, sk]);
            let blocks = ((last + self.bn - 1) / self.bn - first / self.bn).max(1);
            ENDS / together as f64 + of_block * blocks as f64
        };
        let chips = timing(arch).rate(Rate::Multiprocessors);
        let all = heads as f64 * (0..tiles).map(of).sum::<f64>();
        let slots = chips * together as f64;
        let cycles = if self.mask == Mask::None {
            // Equal tiles end in whole rounds, of which the last may leave multiprocessors free.
            let (rounds, rest) = ((heads * tiles) as f64 / slots, (heads * tiles) as f64 % slots);
            (rounds.floor() * together as f64 + (rest / chips).ceil()) * of(tiles - 1)
        } else {
            (all / chips).max(of(tiles - 1))
        };
        cycles / timing(arch).rate(Rate::ClockMhz) + timing(arch).rate(Rate::LaunchUs)
    }
}

impl Tunable for AttentionSm80Config {
    const SIZES: &'static [(&'static str, SizeKind)] = SIZES;
    const MEANING: &'static [&'static str] = Self::OPTIONS;
    const FAMILY: &'static [&'static str] = &["bm", "bn", "warps"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] =
        &[("stages", &["1", "2"]), ("blocks", &["1", "2", "3"]), ("resident", &["false", "true"])];

    fn points() -> impl Iterator<Item = Self> {
        let tiles = [(64, 4), (128, 4), (128, 8)];
        let keys = [32, 48, 64, 80, 96, 128].map(|bn| (bn, 1));
        // Three blocks of four warps have 168 registers a thread.
        let form = |(bm, warps), (bn, blocks)| Self { bm, warps, bn, blocks, ..Self::default() };
        let plain = tiles.into_iter().flat_map(move |tile| keys.map(|keys| form(tile, keys)));
        plain.chain([(32, 3), (48, 3), (64, 3)].map(|keys| form((128, 4), keys)))
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let (sq, sk) = (sizes.get(3).copied().unwrap_or(1), sizes.get(4).copied().unwrap_or(1));
        (self.bm < 2 * sq || self.bm == 64) && (self.bn < 2 * sk || self.bn == 32)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        self.reject(arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.estimate(chip.arch, sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator;
    use crate::tuning::Point;

    fn points(arch: Arch, [b, hq, s]: [i64; 3], given: &[(&str, &str)]) -> Vec<Point> {
        let tuning = operator("attention_sm80").unwrap().tuning.unwrap();
        let sizes = [("b", b), ("hq", hq), ("hk", hq), ("sq", s), ("sk", s)];
        let sizes = sizes.map(|(name, size)| (name.to_string(), size)).into();
        let points = (tuning.space)(arch.into(), &sizes, given).unwrap().points;
        for point in &points {
            let all: Vec<_> = point.parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
            assert_eq!((tuning.reject)(arch, &all), None, "{all:?}");
        }
        points
    }

    #[test]
    fn spaces_are_small_and_valid() {
        for given in
            [&[][..], &[("d", "64")], &[("d", "256"), ("mask", "causal")], &[("mask", "window(300)")]]
        {
            for arch in Arch::ALL {
                let points = points(arch, [4, 16, 4096], given);
                assert!((2..=24).contains(&points.len()), "{given:?} on {arch}: {}", points.len());
                assert!(points.is_sorted_by(|a, b| a.estimate <= b.estimate) && points[0].estimate > 0.0);
            }
        }
        // Few queries take small tiles.
        let few = points(Arch::SM_80, [4, 16, 20], &[]);
        assert!(
            !few.is_empty()
                && few.iter().all(|point| point.parameters.iter().any(|of| *of == ("bm", "64".to_string())))
        );
    }

    /// Milliseconds that are measured on an H200 (docs/kernels.md), within a quarter.
    #[test]
    fn estimates_are_near_what_is_measured() {
        let causal = Mask::Causal;
        for (sizes, d, mask, bn, measured) in [
            ([1, 16, 16384], 128, Mask::None, 64, 5.411),
            ([1, 16, 16384], 128, causal, 64, 2.957),
            ([4, 16, 4096], 128, Mask::None, 64, 1.382),
            ([16, 16, 1024], 128, causal, 64, 0.241),
            ([1, 32, 16384], 64, Mask::None, 128, 5.956),
            ([4, 32, 4096], 64, causal, 96, 0.876),
        ] {
            let [b, hq, s] = sizes;
            let config = AttentionSm80Config { d, mask, bn, ..Default::default() };
            let estimate = config.estimate(Arch::SM_90A, &[b, hq, hq, s, s]) / 1e3;
            assert!(
                (0.75..1.25).contains(&(estimate / measured)),
                "{sizes:?} {d}: {estimate}, not {measured}"
            );
        }
    }
}
