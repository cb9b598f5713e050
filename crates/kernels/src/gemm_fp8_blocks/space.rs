//! The tuning space: which configurations are worth trying for a problem, and how long each may take.

use tilewright_machine::Arch;

use super::{BLOCK, Fp8BlocksConfig};
use crate::config::ConfigError;
use crate::epilogue::Chain;
use crate::gemm_hopper::{Batch, Cluster, HopperGemmConfig, PerStep};
use crate::model::Model;
use crate::moe::{COPYING_REGISTERS, ExpertsProblem, Tiled, registers_beside};
use crate::parts::Estimate;
use crate::tuning::{Chip, Launch, MNKL, SizeKind, Tunable, three};
use crate::warp_specialized::{RASTERIZATIONS, TARGET};

/// Rows of tiles, and the warpgroups that share them.
const ROWS: [(i64, i64); 4] = [(64, 1), (128, 2), (192, 3), (256, 2)];

/// Columns of tiles.
const COLUMNS: [i64; 9] = [16, 32, 48, 64, 96, 128, 160, 192, 256];

/// Deeper rings hide no more.
const MOST_STAGES: i64 = 12;

impl Fp8BlocksConfig {
    /// The configurations worth trying for a problem, in no order of merit: every one compiles, as far as the rules of
    /// [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64, k: i64) -> impl Iterator<Item = Fp8BlocksConfig> {
        Self::grid().filter(move |c| c.suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones, each with as many stages as shared memory has room for.
    pub fn grid() -> impl Iterator<Item = Fp8BlocksConfig> {
        let tiles = ROWS.into_iter().flat_map(|rows| COLUMNS.map(|bn| (rows, bn)));
        let sides = tiles.flat_map(|tile| [false, true].map(|swap| (tile, swap)));
        let clusters = [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(2), Cluster::AlongMn(2, 2)];
        let shares = sides.flat_map(move |both| clusters.map(|cluster| (both, cluster)));
        let late = shares.flat_map(|point| [false, true].map(|overlap_epilogue| (point, overlap_epilogue)));
        late.flat_map(|(((((bm, warpgroups), bn), swap), cluster), overlap_epilogue)| {
            [1, 2].map(|buffers| Fp8BlocksConfig {
                bm,
                bn,
                warpgroups,
                swap,
                cluster,
                overlap_epilogue,
                buffers,
                // A third math warpgroup leaves 160 registers for each thread.
                math_registers: if warpgroups > 2 { 160 } else { 240 },
                ..Self::default()
            })
        })
        .map(Self::deepest)
    }

    /// The same with as many stages as shared memory has room for.
    fn deepest(self) -> Self {
        let have = i64::from(TARGET.limits().shared_bytes_per_block);
        let fits = |stages: &i64| {
            Fp8BlocksConfig { stages: *stages, ..self }.shared_bytes(&Chain::default()) <= have
        };
        Fp8BlocksConfig { stages: (2..=MOST_STAGES).rev().find(fits).unwrap_or(2), ..self }
    }

    /// Returns whether the configuration is in proportion to the problem.
    pub(crate) fn suits(&self, m: i64, n: i64, k: i64) -> bool {
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let ((of_m, of_n), (least_m, least_n)) = (self.sides((self.bm, self.bn)), self.sides((64, 16)));
        let fits = |tile: i64, blocks: i64, least: i64, size: i64| {
            tile * blocks < 2 * size || (tile <= least && blocks == 1)
        };
        // A tile's results leave during the next one's steps, if there are enough of them.
        let (steps, chunks) = ((k + BLOCK - 1) / BLOCK, self.bn / self.columns());
        self.cluster.has_many([(m, of_m), (n, of_n)], self.sm_count)
            && fits(of_m, blocks_m, least_m, m)
            && fits(of_n, blocks_n, least_n, n)
            && (!self.overlap_epilogue || steps >= 2 * chunks)
    }

    /// The estimated time in microseconds on an H200: that of the product alone, longer where warpgroups that promote leave the tensor
    /// cores without work.
    pub fn estimate(&self, m: i64, n: i64, k: i64) -> f64 {
        self.estimated(Model::built_in(), [m, n, k]).microseconds
    }

    /// The estimated time on the device of a model.
    pub(crate) fn estimated(&self, model: &Model, [m, n, k]: [i64; 3]) -> Estimate {
        let product = HopperGemmConfig {
            dtype: self.a,
            out: Some(self.out),
            swap: self.swap,
            bm: self.bm,
            bn: self.bn,
            bk: BLOCK,
            stages: self.stages,
            warpgroups: self.warpgroups,
            cluster: self.cluster,
            rasterization: self.rasterization,
            overlap_epilogue: self.overlap_epilogue,
            chunk: Some(self.columns()),
            buffers: self.buffers,
            hint_b: self.hint_b,
            sm_count: self.sm_count,
            ..HopperGemmConfig::default()
        };
        let (bm, groups) = (self.bm as f64, self.warpgroups as f64);
        let (part, parts) = (self.part() as f64, (self.bn / self.part()) as f64);
        // What the tensor cores need for a step, and what a warpgroup does in one if it has them to itself.
        let busy = bm / 64.0 * (BLOCK / 32) as f64 * (part / 2.0).max(16.0) * parts;
        let scales = if self.swap { part / 2.0 } else { 4.0 };
        let alone =
            busy / groups + parts * (model.numbers().fp8_turn + scales + bm * part / (128.0 * groups));
        product.estimated(model, PerStep { turn: alone, ..PerStep::default() }, [m, n, k, 1])
    }
}

impl Tunable for Fp8BlocksConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = MNKL;
    const MEANING: &'static [&'static str] = &["a", "b", "out", "batch", "gather"];
    const FAMILY: &'static [&'static str] = &["swap", "bm", "bn", "warpgroups", "part"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("rasterization", RASTERIZATIONS),
        ("cluster", &["none", "m2", "n2", "m4", "n4", "m2n2"]),
        ("overlap_epilogue", &["false", "true"]),
        ("part", &["widest", "64", "32"]),
        ("hint_b", &["none", "evict_first", "evict_last"]),
        ("hint_a", &["none", "evict_first", "evict_last"]),
        ("hint_c", &["none", "evict_first"]),
        ("stages", &["3", "4", "5", "6", "8", "12"]),
        ("buffers", &["1", "2", "4"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        Fp8BlocksConfig::grid()
    }

    fn fitted(self, given: &dyn Fn(&str) -> bool) -> Self {
        if given("stages") { self } else { self.deepest() }
    }

    /// With registers for threads that copy rows, or their scales.
    fn forms(self, _: &[i64]) -> Vec<Self> {
        if self.batch != Batch::Ragged {
            return vec![self];
        }
        let load_registers = if self.gather { self.gathering_registers() } else { COPYING_REGISTERS };
        let math_registers = registers_beside(load_registers, self.warpgroups);
        vec![Self { load_registers, math_registers, ..self }]
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let [m, n, k] = match self.batch {
            Batch::Ragged => ExpertsProblem::of(sizes).each(),
            _ => three(sizes),
        };
        Fp8BlocksConfig::suits(self, m, n, k)
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        Fp8BlocksConfig::reject(self, arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.explained(chip, sizes).microseconds
    }

    fn launch(&self, _: Arch, sizes: &[i64]) -> Result<Option<Launch>, ConfigError> {
        Ok((self.batch == Batch::Ragged).then(|| ExpertsProblem::of(sizes).launch(&Tiled::Blocks(*self))))
    }

    fn explained(&self, chip: Chip<'_>, sizes: &[i64]) -> Estimate {
        if self.batch == Batch::Ragged {
            return Estimate::whole(ExpertsProblem::of(sizes).microseconds(&Tiled::Blocks(*self)));
        }
        self.estimated(chip.model, three(sizes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_warpgroup_leaves_the_tensor_cores_without_work() {
        let two = Fp8BlocksConfig::default();
        let one = Fp8BlocksConfig { bm: 64, warpgroups: 1, ..two };
        assert!(two.estimate(4096, 7168, 2048) < 0.9 * one.estimate(4096, 7168, 2048));
    }

    #[test]
    fn few_rows_want_narrow_tiles() {
        let of = |bn| Fp8BlocksConfig { bn, cluster: Cluster::None, stages: 6, ..Fp8BlocksConfig::default() };
        assert!(of(32).estimate(128, 4096, 7168) < of(128).estimate(128, 4096, 7168));
        assert!(of(128).estimate(8192, 4096, 7168) < of(32).estimate(8192, 4096, 7168));
    }
}
