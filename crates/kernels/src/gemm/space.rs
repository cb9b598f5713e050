//! The configurations worth trying, and what they are estimated to take.

use tilewright_machine::{Arch, DType};

use super::GemmConfig;
use crate::estimate::{self, Work};
use crate::tiles::Loads;
use crate::tuning::{Chip, MNKL, SizeKind, Tunable, three};
use crate::warp_specialized::Batch;

/// Parts of k worth trying, and the stages that they have.
const SPLITS: [i64; 3] = [2, 4, 8];
const SPLIT_STAGES: i64 = 4;

/// Blocks beyond which parts of k are of no use: those of two rounds of a large chip.
const ENOUGH_BLOCKS: i64 = 264;

impl GemmConfig {
    /// The configurations worth trying for a problem, in no order of merit: every one compiles for the architecture, as far as the
    /// rules of [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64, k: i64) -> impl Iterator<Item = GemmConfig> {
        Self::grid().filter(move |c| c.suits(&[m, n, k]) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones.
    pub fn grid() -> impl Iterator<Item = GemmConfig> {
        let points = [16, 32, 64, 96, 128, 192, 256]
            .into_iter()
            .flat_map(|bm| [32, 64, 96, 128, 192, 256].map(|bn| (bm, bn)));
        let points = points
            .flat_map(|(bm, bn)| [(32, 16), (32, 32), (64, 16), (64, 32)].map(|(bk, kk)| (bm, bn, bk, kk)));
        let points = points.flat_map(|tile| {
            (2..=6).flat_map(move |stages| [128, 256].map(|threads| (tile, stages, threads)))
        });
        let points = points.flat_map(|(tile, stages, threads)| {
            let splits = SPLITS.into_iter().filter(move |_| stages == SPLIT_STAGES);
            std::iter::once(1).chain(splits).map(move |split| (tile, stages, threads, split))
        });
        points.map(|((bm, bn, bk, kk), stages, threads, split)| GemmConfig {
            bm,
            bn,
            bk,
            kk,
            stages,
            threads,
            split,
            ..Self::default()
        })
    }
}

impl Tunable for GemmConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = MNKL;
    const MEANING: &'static [&'static str] =
        &["dtype", "dtype_b", "sparse", "scales", "precision", "out", "a", "b", "batch", "epilogue"];
    const FAMILY: &'static [&'static str] = &["bm", "bn", "threads", "split"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("results", &["staged", "direct"]),
        ("loads", &["threads", "tma"]),
        ("stages", &["2", "3", "4", "5", "6"]),
        // Of f64 16 bytes of a row are two elements.
        ("kk", &["4", "8", "16", "32", "64", "128"]),
        ("bk", &["8", "16", "32", "64", "128", "256"]),
        ("widen", &["true", "false"]),
        ("rows_together", &["all", "4", "8", "16"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        GemmConfig::grid()
    }

    /// With factors of 4 bits as they are, and cast to 8.
    fn forms(self, _: &[i64]) -> Vec<Self> {
        let wide = Self { widen: true, ..self };
        if wide.multiplied() == self.dtype { vec![self] } else { vec![self, wide] }
    }

    /// As many bytes of a in a stage whatever the factors' type.
    fn fitted(self, given: &dyn Fn(&str) -> bool) -> Self {
        let each = if self.sparse { 2 } else { 1 };
        let bits = |dtype: DType| i64::from(dtype.bits());
        let scaled = |columns: i64| each * columns * bits(DType::F16) / bits(self.dtype);
        Self {
            bk: if given("bk") { self.bk } else { scaled(self.bk) },
            kk: if given("kk") { self.kk } else { scaled(self.kk) },
            ..self
        }
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let [m, n, k] = three(sizes);
        let blocks = ((m + self.bm - 1) / self.bm) * ((n + self.bn - 1) / self.bn);
        // Each part has a few steps, and there are blocks to be had.
        let split = self.split == 1
            || self.batch == Batch::None && blocks < ENOUGH_BLOCKS && k >= 4 * self.split * self.bk;
        // A tensor copy takes rows that begin at multiples of 16 bytes.
        let rows = self.loads == Loads::Threads || k * i64::from(self.dtype.bits()) % 128 == 0;
        split && rows && self.tiles().suits(m, n, k)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        GemmConfig::reject(self, arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        let count = sizes.get(3).copied().unwrap_or(1);
        let work = Work::of(self.multiplied(), self.sum(), three(sizes)).kind(self.kind()).times(count);
        estimate::tiles(&self.tiles(), chip.arch, work)
    }
}
