//! The tiles of a layer's products: those whose estimated time is least. Few tokens are bound by the weights of the experts that they have, which every
//! multiprocessor streams; many are bound by the tensor cores.

use tilewright_machine::DType;

use super::layer::{MoeLayer, MoeReduction, MoeWeights};
use super::measured::{MoeReason, measured};
use super::order::ordered;
use crate::config::{Config, ConfigError, apply, differences, value_of};
use crate::epilogue::{Epilogue, Part};
use crate::gemm_fp8_blocks::{BLOCK, Fp8BlocksConfig};
use crate::gemm_hopper::{Batch, Cluster, Dual, HopperGemmConfig};
use crate::gemm_weights::{Scaled, Schedule, WeightsConfig};
use crate::warp_specialized::{Rasterization, bytes};

/// The machine that tiles are chosen for.
#[derive(Clone, Copy)]
pub(super) struct Machine {
    pub multiprocessors: i64,
}

/// The rows of experts: how many each has on average.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    pub experts: i64,
    pub each: f64,
}

/// The products of a layer.
#[derive(Clone, Debug)]
pub(super) struct Products {
    /// Rows of a tile.
    pub tile: i64,
    /// The product with both matrices ahead, and the one behind.
    pub up: Tiled,
    pub down: Tiled,
    pub microseconds: f64,
    pub reason: MoeReason,
}

/// A product of rows with a matrix of each expert.
#[derive(Clone, Copy)]
struct Product {
    n: i64,
    k: i64,
    /// Matrices that the rows are multiplied by in one pass.
    matrices: i64,
}

/// Rows of tiles of the products by groups.
const TILES: [i64; 12] = [8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256];

/// Columns of tiles whose rows are those of tokens.
const COLUMNS: [i64; 5] = [64, 96, 128, 192, 256];

/// Pairs of products for each number of rows, at most.
const ALTERNATIVES: usize = 8;

/// Registers of a thread that copies scales of rows.
pub(crate) const COPYING_REGISTERS: i64 = 40;

/// Stages at most: deeper rings hide no more.
const MOST_STAGES: i64 = 16;

/// Sums of a thread that meet those of other blocks, at most: where there are more, tiles are many enough.
const MOST_MET: i64 = 64;

/// Clock cycles of a microsecond.
const CYCLES: f64 = 1750.0;

/// Products of two 16-bit floats that a multiprocessor adds in a cycle, of those that its tensor cores can, as long sums reach them.
const PRODUCTS: f64 = 0.8 * 2048.0;

/// Bytes that memory gives all multiprocessors in a cycle, and that the L2 cache gives one.
const FROM_MEMORY: f64 = 2400.0;
const FROM_CACHE: f64 = 40.0;

/// Cycles of a tile beside its steps.
const OF_TILE: f64 = 1200.0;

/// The same of a tile that leaves while the next one is multiplied.
const OF_LATE_TILE: f64 = 1210.0;

/// Tiles of scaled blocks leave ahead of the next, or meanwhile; of others none that left late was faster, on an H100.
const OVERLAPS: [bool; 2] = [false, true];

/// Cycles of a launch.
const OF_LAUNCH: f64 = 4000.0;

/// The part of the shorter of two times that the longer one does not hide.
const NOT_HIDDEN: f64 = 0.15;

/// The time of tensor cores whose results are transposed on their way out, over that of others.
const TRANSPOSED: f64 = 1.03;

/// Rows at most of tiles whose weights are cast, where none was measured: on an H200 wider ones were slower.
const MOST_ROWS_OF_CASTS: i64 = 96;

/// Clusters that share a tile. On an H200 four blocks were never the fastest: fewer of their clusters run at once.
const CLUSTERS: [Cluster; 2] = [Cluster::None, Cluster::AlongK(2)];

/// Cycles of a step beside its casts and products, which a warpgroup does one after the other: fitted to an H200.
const OF_CAST: f64 = 150.0;

/// Cycles of a part of a tile whose sums of a step are scaled, beside its products: on an H100 steps of 128 × 160 in five parts take some 3000.
const OF_PART: f64 = 400.0;

/// Tiles beyond one of each expert, from which one more is counted.
const LIKELY: f64 = 0.05;

/// Cycles by which products are late that threads copy rows for, times the stages of the ring: they wait for a stage's rows before they hand it on. On an H100 steps of
/// 128 × 256 × 64 with four stages take 1790 to 2250 cycles instead of some 1280; on an H200 casts beside rings of 15 stages lose some 150.
const OF_GATHER: f64 = 2400.0;

impl Rows {
    /// Tiles of so many rows of all experts, if each row has an expert of its own choice: an expert has as many rows as a Poisson distribution says.
    fn tiles(self, tile: i64) -> f64 {
        // E ⌈n / tile⌉ = Σ over j of P(n > j · tile).
        let (mut tiles, mut below, mut n) = (0.0, 0.0, 0);
        let most = (self.each + 12.0 * self.each.sqrt() + 16.0) as i64;
        let mut logarithm = -self.each;
        for j in 0..=most / tile {
            while n <= j * tile {
                below += logarithm.exp();
                n += 1;
                logarithm += self.each.ln() - (n as f64).ln();
            }
            tiles += (1.0 - below).max(0.0);
        }
        tiles * self.experts as f64
    }

    /// Experts that have rows.
    fn used(self) -> f64 {
        (1.0 - (-self.each).exp()) * self.experts as f64
    }
}

/// A product whose tile is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tiled {
    Same(HopperGemmConfig),
    Blocks(Fp8BlocksConfig),
    Few(WeightsConfig),
}

impl Tiled {
    pub fn operator(&self) -> &'static str {
        match self {
            Tiled::Same(_) => "gemm_hopper",
            Tiled::Blocks(_) => "gemm_fp8_blocks",
            Tiled::Few(_) => "gemm_weights",
        }
    }

    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        match self {
            Tiled::Same(config) => differences(config),
            Tiled::Blocks(config) => differences(config),
            Tiled::Few(config) => differences(config),
        }
    }

    /// The value of a parameter as text.
    pub fn value(&self, name: &str) -> Option<String> {
        match self {
            Tiled::Same(config) => value_of(config, name),
            Tiled::Blocks(config) => value_of(config, name),
            Tiled::Few(config) => value_of(config, name),
        }
    }

    /// The product with other values of parameters; none where it cannot be.
    pub fn with(&self, given: &[(&str, &str)]) -> Option<Self> {
        fn changed<C: Config + Copy>(config: &C, given: &[(&str, &str)]) -> Option<C> {
            let mut config = *config;
            apply(&mut config, given).ok().map(|()| config)
        }
        let tiled = match self {
            Tiled::Same(config) => Tiled::Same(changed(config, given)?),
            Tiled::Blocks(config) => Tiled::Blocks(changed(config, given)?),
            Tiled::Few(config) => Tiled::Few(changed(config, given)?),
        };
        tiled.validate().is_ok().then_some(tiled)
    }

    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Tiled::Same(config) => config.validate(),
            Tiled::Blocks(config) => config.validate(),
            Tiled::Few(config) => config.validate(),
        }
    }

    pub fn gathers(&self) -> bool {
        match self {
            Tiled::Same(config) => config.gather,
            Tiled::Blocks(config) => config.gather,
            Tiled::Few(config) => config.gather,
        }
    }

    /// Returns whether tiles leave while others are multiplied.
    fn overlaps(&self) -> bool {
        match self {
            Tiled::Same(config) => config.overlap_epilogue,
            Tiled::Blocks(config) => config.overlap_epilogue,
            Tiled::Few(config) => config.overlap_epilogue,
        }
    }

    pub fn scatters(&self) -> bool {
        match self {
            Tiled::Same(config) => config.scatter,
            Tiled::Blocks(config) => config.scatter,
            Tiled::Few(config) => config.scatter,
        }
    }

    /// Columns of the tile that are of weights, and columns of a step.
    fn tile(&self) -> [i64; 2] {
        let columns = |swap: bool, bm: i64, bn: i64| if swap { bm } else { bn };
        match self {
            Tiled::Same(c) => [columns(c.swap, c.bm, c.bn), c.bk],
            Tiled::Blocks(c) => [columns(c.swap, c.bm, c.bn), BLOCK],
            Tiled::Few(c) => [c.bm, c.bk],
        }
    }

    /// Bytes of an activation, of a weight with its part of a scale, and of a factor of the tensor cores.
    fn bytes(&self) -> [f64; 3] {
        match self {
            Tiled::Same(c) => [bytes(c.dtype) as f64; 3],
            Tiled::Blocks(_) => [1.0; 3],
            Tiled::Few(c) => {
                let scales = c.group.map_or(0.0, |group| bytes(c.scales()) as f64 / group as f64);
                [2.0, f64::from(c.weights.bits()) / 8.0 + scales, 2.0]
            }
        }
    }

    /// Returns whether rows of weights are rows of the tile.
    pub fn swaps(&self) -> bool {
        match self {
            Tiled::Same(config) => config.swap,
            Tiled::Blocks(config) => config.swap,
            Tiled::Few(_) => true,
        }
    }

    /// Cycles in which threads cast the weights of a step of so many rows, and scale its sums.
    fn cast(&self, tile: i64) -> f64 {
        if let Tiled::Blocks(config) = self {
            // The sums of a part are added to those of the tile by both warpgroups, each behind its products.
            let parts = (config.bn / config.part()) as f64;
            return parts * OF_PART + (config.bm * config.bn) as f64 / 128.0;
        }
        let Tiled::Few(config) = self else { return 0.0 };
        let weights = (config.bm * config.bk) as f64 * config.cast_of_weight();
        let sums = match config.scaled {
            Scaled::Sums if config.group.is_some() => config.bm * tile * (config.bk / config.part),
            _ => 0,
        };
        (weights + sums as f64) / 128.0 + OF_CAST
    }

    /// The rows of activations of a tile.
    pub fn rows(&self) -> i64 {
        match self {
            Tiled::Same(config) if !config.swap => config.bm,
            Tiled::Blocks(config) if !config.swap => config.bm,
            Tiled::Same(HopperGemmConfig { bn, .. })
            | Tiled::Blocks(Fp8BlocksConfig { bn, .. })
            | Tiled::Few(WeightsConfig { bn, .. }) => *bn,
        }
    }

    /// Matrices that the rows are multiplied by in one pass.
    fn matrices(&self) -> i64 {
        match self {
            Tiled::Same(config) => config.dual.sums(),
            Tiled::Blocks(_) | Tiled::Few(_) => 1,
        }
    }

    /// Stages of the ring.
    fn stages(&self) -> i64 {
        match self {
            Tiled::Same(config) => config.stages,
            Tiled::Blocks(config) => config.stages,
            Tiled::Few(config) => config.stages,
        }
    }

    /// Blocks at once.
    pub fn multiprocessors(&self) -> i64 {
        let [_, all] = self.blocks();
        all
    }

    /// The order of tiles.
    pub fn rasterization(&self) -> Rasterization {
        match self {
            Tiled::Same(config) => config.rasterization,
            Tiled::Blocks(config) => config.rasterization,
            Tiled::Few(config) => config.rasterization,
        }
    }

    /// The product with its tiles in another order.
    pub fn in_order(self, rasterization: Rasterization) -> Self {
        match self {
            Tiled::Same(config) => Tiled::Same(HopperGemmConfig { rasterization, ..config }),
            Tiled::Blocks(config) => Tiled::Blocks(Fp8BlocksConfig { rasterization, ..config }),
            Tiled::Few(config) => Tiled::Few(WeightsConfig { rasterization, ..config }),
        }
    }

    /// Tiles of columns that a cluster's blocks have side by side, and clusters at once.
    pub fn clusters(&self) -> [i64; 2] {
        let (cluster, sm_count) = match self {
            Tiled::Same(config) => (config.cluster, config.sm_count),
            Tiled::Blocks(config) => (config.cluster, config.sm_count),
            Tiled::Few(config) => (config.cluster, config.at_once()),
        };
        [cluster.shape()[1], (sm_count / cluster.blocks()).max(1)]
    }

    /// Blocks that share a tile, and all blocks.
    fn blocks(&self) -> [i64; 2] {
        match self {
            Tiled::Same(config) => [config.cluster.shape()[2], config.sm_count],
            Tiled::Blocks(config) => [1, config.sm_count],
            Tiled::Few(config) => [config.cluster.shape()[2], config.at_once()],
        }
    }
}

/// The product ahead and the one behind.
fn both(layer: &MoeLayer) -> [Product; 2] {
    let fused = layer.weights == MoeWeights::Same;
    let (n, matrices) = if fused { (layer.intermediate, 2) } else { (2 * layer.intermediate, 1) };
    let up = Product { n, k: layer.hidden, matrices };
    [up, Product { n: layer.hidden, k: layer.intermediate, matrices: 1 }]
}

impl Machine {
    /// The products by their estimated time, the least ahead, with a few pairs for each number of rows, but those first that were measured to be the fastest; none: no tile fits.
    pub fn products(self, layer: &MoeLayer, tokens: i64, rows: Rows) -> Vec<Products> {
        let [up, down] = both(layer);
        let mut products = self.by_time(layer, tokens, rows);
        for pair in &mut products {
            let places = layer.sort(tokens, pair.tile).places(tokens).tiles;
            let with_work = rows.tiles(pair.tile).round() as i64;
            for (tiled, product) in [(&mut pair.up, up), (&mut pair.down, down)] {
                let [columns, _] = tiled.tile();
                *tiled = ordered(*tiled, (product.n + columns - 1) / columns, places, with_work);
            }
        }
        products
    }

    /// The same, each in the usual order of its tiles.
    fn by_time(self, layer: &MoeLayer, tokens: i64, rows: Rows) -> Vec<Products> {
        let [up, down] = both(layer);
        // Rows of activations with scales of their own are rounded into the order of the experts.
        let by_rows = matches!(layer.weights, MoeWeights::Rows(_));
        let ranked = |ahead: bool, tile: i64| {
            let here = self.configs(layer, (ahead, false), tile).into_iter();
            // Rows that are copied ahead are written and read once more.
            let copied = if ahead && !by_rows { copied_ahead(layer, rows) } else { 0.0 };
            let cycles = |tiled: &Tiled| self.cycles(if ahead { up } else { down }, tiled, rows, tile);
            let here = here.map(|tiled| (cycles(&tiled) + copied, tiled));
            let anywhere =
                if ahead && !by_rows { self.configs(layer, (true, true), tile) } else { Vec::new() };
            let anywhere = anywhere.into_iter().map(|tiled| (cycles(&tiled), tiled));
            let mut timed: Vec<(f64, Tiled)> = if ahead && layer.weights == MoeWeights::Fp8Blocks {
                anywhere.collect()
            } else {
                anywhere.chain(here).collect()
            };
            timed.sort_by(|(a, _), (b, _)| a.total_cmp(b));
            timed
        };
        let mut pairs = Vec::new();
        let few = matches!(layer.weights, MoeWeights::Few { .. });
        for tile in TILES.into_iter().filter(|tile| !few || *tile <= MOST_ROWS_OF_CASTS) {
            let (ups, downs) = (ranked(true, tile), ranked(false, tile));
            let (Some(last_up), Some(last_down)) = (ups.last(), downs.last()) else { continue };
            for i in 0..ups.len().max(downs.len()).min(ALTERNATIVES) {
                let (of_up, up) = ups.get(i).unwrap_or(last_up);
                let (of_down, down) = downs.get(i).unwrap_or(last_down);
                let microseconds = (of_up + of_down) / CYCLES;
                pairs.push(Products {
                    tile,
                    up: *up,
                    down: *down,
                    microseconds,
                    reason: MoeReason::Estimated,
                });
            }
        }
        pairs.sort_by(|a, b| a.microseconds.total_cmp(&b.microseconds));
        let Some(row) = measured(layer, tokens, self.multiprocessors) else { return pairs };
        let (ups, downs) = (ranked(true, row.tile), ranked(false, row.tile));
        let found = |which: usize, of: &[(f64, Tiled)]| {
            let (cycles, tiled) = of.iter().find(|(_, tiled)| row.is(which, tiled))?;
            Some((*cycles, tiled.with(&row.others[which])?))
        };
        let Some(((of_up, up), (of_down, down))) = found(0, &ups).zip(found(1, &downs)) else { return pairs };
        let microseconds = (of_up + of_down) / CYCLES;
        pairs.insert(0, Products { tile: row.tile, up, down, microseconds, reason: row.reason });
        pairs
    }

    /// The configurations whose tiles have these rows of A, each with the deepest ring that fits.
    fn configs(self, layer: &MoeLayer, (ahead, gather): (bool, bool), tile: i64) -> Vec<Tiled> {
        let swapped = [(true, 64, tile, 1), (true, 128, tile, 2)];
        let rows = [(64, 1), (128, 2), (256, 2)].into_iter().find(|(bm, _)| *bm == tile);
        let plain =
            rows.into_iter().flat_map(|(bm, warpgroups)| COLUMNS.map(|bn| (false, bm, bn, warpgroups)));
        let tiles = swapped.into_iter().chain(plain);
        // The type that the results of the second product are added in.
        let added = match layer.reduction {
            MoeReduction::Added(dtype) if !ahead => Some(dtype),
            _ => None,
        };
        let scatter = added.is_some();
        if layer.weights == MoeWeights::Fp8Blocks {
            let base = Fp8BlocksConfig {
                out: added.unwrap_or(layer.dtype),
                batch: Batch::Ragged,
                gather,
                scatter,
                load_registers: COPYING_REGISTERS,
                cluster: Cluster::None,
                dependent: true,
                sm_count: self.multiprocessors,
                ..Fp8BlocksConfig::default()
            };
            let of = |(swap, bm, bn, warpgroups)| {
                let whole = (bn <= BLOCK).then_some(bn);
                let parts = [None, whole.filter(|whole| *whole != Fp8BlocksConfig { bn, ..base }.part())];
                let parts = parts.into_iter().enumerate().filter(|(at, part)| *at == 0 || part.is_some());
                parts.flat_map(move |(_, part)| {
                    OVERLAPS.map(|overlap_epilogue| Fp8BlocksConfig {
                        swap,
                        bm,
                        bn,
                        warpgroups,
                        part,
                        overlap_epilogue,
                        ..base
                    })
                })
            };
            return tiles.flat_map(of).filter_map(fitted_blocks).map(Tiled::Blocks).collect();
        }
        if let MoeWeights::Few { dtype, group } = layer.weights {
            return self.of_few_bits(layer.dtype, (dtype, group), [gather, scatter], tile);
        }
        let base = HopperGemmConfig {
            dtype: layer.dtype,
            out: added.filter(|added| *added != layer.dtype),
            batch: Batch::Ragged,
            scatter,
            dependent: true,
            ..HopperGemmConfig::default()
        };
        let base = match layer.weights {
            MoeWeights::Rows(dtype) => HopperGemmConfig {
                dtype,
                out: Some(added.unwrap_or(layer.dtype)),
                bk: 128,
                epilogue: Epilogue::new(&[Part::RowScale, Part::ColScale])
                    .expect("a row and a column have a scale each"),
                ..base
            },
            _ if ahead => HopperGemmConfig { dual: Dual::SiluMul, fused: true, gather, ..base },
            _ => base,
        };
        let configs = tiles.flat_map(|(swap, bm, bn, warpgroups)| {
            CLUSTERS.map(|cluster| HopperGemmConfig { swap, bm, bn, warpgroups, cluster, ..base })
        });
        configs
            .filter(|config| config.cluster == Cluster::None || sums_of(config) <= MOST_MET)
            .map(|config| HopperGemmConfig { sm_count: self.in_clusters(config.cluster), ..config })
            .filter_map(fitted)
            .map(Tiled::Same)
            .collect()
    }

    /// Those of weights of a few bits, whose rows are always those of the tile.
    fn of_few_bits(
        self,
        dtype: DType,
        (weights, group): (DType, Option<i64>),
        [gather, scatter]: [bool; 2],
        tile: i64,
    ) -> Vec<Tiled> {
        let base = WeightsConfig {
            dtype,
            weights,
            group,
            batch: Batch::Ragged,
            gather,
            scatter,
            schedule: Schedule::DataParallel,
            bn: tile,
            dependent: true,
            ..WeightsConfig::default()
        };
        // With many rows there is less to do for a weight than for its sums.
        let scaled = if tile > 32 && group.is_some() { Scaled::Weights } else { Scaled::Sums };
        let rows = [(64, 1), (128, 2), (256, 2)];
        // Scaled weights on their way take registers for each part of a stage.
        let depths = [(64, 32), (128, 64), (256, 64)].into_iter();
        let depths = depths.filter(move |(bk, _)| *bk <= 128 || scaled == Scaled::Sums);
        let tiles = rows.into_iter().flat_map(|rows| depths.clone().map(move |depth| (rows, depth)));
        let shared = tiles.flat_map(|tile| CLUSTERS.map(|cluster| (tile, cluster)));
        let configs = shared.map(|(((bm, warpgroups), (bk, part)), cluster)| {
            let sm_count = self.in_clusters(cluster);
            WeightsConfig { bm, warpgroups, bk, part, cluster, scaled, sm_count, ..base }
        });
        let met = |config: &WeightsConfig| {
            config.cluster == Cluster::None || config.bm * config.bn / (128 * config.warpgroups) <= MOST_MET
        };
        configs.filter(met).filter_map(fitted_few).map(Tiled::Few).collect()
    }

    /// As many blocks as run at once, in proportion to those of a machine that was measured.
    fn in_clusters(self, cluster: Cluster) -> i64 {
        let (blocks, most) = (cluster.blocks(), Cluster::None.resident());
        (self.multiprocessors * cluster.resident() / most / blocks).max(1) * blocks
    }

    /// The estimated time of a product of these columns and this length of sums.
    pub fn microseconds(self, [n, k]: [i64; 2], tiled: &Tiled, rows: Rows, tile: i64) -> f64 {
        self.cycles(Product { n, k, matrices: tiled.matrices() }, tiled, rows, tile) / CYCLES
    }

    /// Clock cycles of a product.
    fn cycles(self, product: Product, tiled: &Tiled, rows: Rows, tile: i64) -> f64 {
        let Product { n, k, matrices } = product;
        let ([columns, bk], [deep, blocks]) = (tiled.tile(), tiled.blocks());
        let [of_activation, of_weight, multiplied] = tiled.bytes();
        // An expert may have more rows than expected, whose tile begins one more round.
        let more = if rows.tiles(tile) - rows.used() > LIKELY { 1.0 } else { 0.0 };
        let of_rows = rows.tiles(tile).max(1.0) + if rows.each < tile as f64 { more } else { 0.0 };
        let tiles = of_rows * ((n + columns - 1) / columns) as f64;
        // Few rounds are whole ones.
        let rounds = tiles / (blocks / deep) as f64;
        let rounds = if rounds < 6.0 { rounds.ceil() } else { rounds + 0.5 };
        let steps = ((k + bk * deep - 1) / (bk * deep)) as f64;
        let transposed = if tiled.swaps() { TRANSPOSED } else { 1.0 };
        let (products, weights) = ((tile * columns * matrices * bk) as f64, (columns * matrices * bk) as f64);
        let multiplied = products * multiplied / (2.0 * PRODUCTS) * transposed;
        let copied = ((tile * bk) as f64 * of_activation + weights * of_weight) / FROM_CACHE;
        let cast = tiled.cast(tile);
        // The deeper the ring, the earlier the copies.
        let late = if tiled.gathers() { OF_GATHER / tiled.stages() as f64 } else { 0.0 };
        // The sums of a cluster's blocks meet in f32.
        let met = (tile * columns * matrices * 4) as f64 / FROM_CACHE;
        let of_cluster = if deep > 1 { OF_TILE + met } else { 0.0 };
        let of_tile = if tiled.overlaps() { OF_LATE_TILE } else { OF_TILE };
        let in_tiles = rounds * (steps * (multiplied + late + cast).max(copied) + of_tile + of_cluster);
        let streamed = rows.used() * (n * k * matrices) as f64 * of_weight / FROM_MEMORY;
        in_tiles.max(streamed) + NOT_HIDDEN * in_tiles.min(streamed) + OF_LAUNCH
    }
}

/// Clock cycles in which rows are copied into the order of their experts.
fn copied_ahead(layer: &MoeLayer, rows: Rows) -> f64 {
    let copied = rows.each * rows.experts as f64 * (layer.hidden * bytes(layer.dtype)) as f64;
    2.0 * copied / FROM_MEMORY + OF_LAUNCH
}

/// Sums of a thread.
fn sums_of(config: &HopperGemmConfig) -> i64 {
    config.bm * config.bn * config.dual.sums() / (128 * config.warpgroups)
}

/// Registers of threads that multiply beside those that load: all threads start with the same number, a multiple of 8.
pub(crate) fn registers_beside(load_registers: i64, warpgroups: i64) -> i64 {
    let groups = 1 + warpgroups;
    ((512 / groups / 8 * 8 * groups - load_registers) / warpgroups / 8 * 8).min(240)
}

/// The same of a product of scaled blocks.
fn fitted_blocks(config: Fp8BlocksConfig) -> Option<Fp8BlocksConfig> {
    let load_registers = if config.gather { config.gathering_registers() } else { config.load_registers };
    let math_registers = registers_beside(load_registers, config.warpgroups);
    let deeper = (2..=MOST_STAGES).rev().map(|stages| Fp8BlocksConfig {
        stages,
        load_registers,
        math_registers,
        ..config
    });
    deeper.into_iter().find(|config| config.validate().is_ok())
}

/// The same of a product with weights of a few bits, whose parts are whole units of them within a group.
fn fitted_few(config: WeightsConfig) -> Option<WeightsConfig> {
    let part = config.part.max(config.stored().columns()).min(config.group.unwrap_or(i64::MAX));
    let config = WeightsConfig { part, bk: config.bk.max(part), ..config };
    let load_registers = if config.gather { config.gathering_registers() } else { config.load_registers };
    let math_registers = registers_beside(load_registers, config.warpgroups);
    let deeper = (2..=MOST_STAGES).rev();
    let deeper = deeper.map(|stages| WeightsConfig { stages, load_registers, math_registers, ..config });
    deeper.into_iter().find(|config| config.validate().is_ok())
}

/// The configuration with registers for what threads do, the widest chunk that fits, and as many stages as fit.
fn fitted(config: HopperGemmConfig) -> Option<HopperGemmConfig> {
    let load_registers = if config.gather { config.gathering_registers() } else { config.load_registers };
    let math_registers = registers_beside(load_registers, config.warpgroups);
    let of_chunk = |chunk| HopperGemmConfig { load_registers, math_registers, chunk, stages: 2, ..config };
    let chunked = [None, Some(32), Some(16), Some(8)]
        .map(of_chunk)
        .into_iter()
        .find(|config| config.validate().is_ok())?;
    let deeper = (3..=MOST_STAGES).rev().map(|stages| HopperGemmConfig { stages, ..chunked });
    deeper.into_iter().find(|config| config.validate().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expected_tiles_are_between_those_of_even_rows_and_one_more_each() {
        for (each, tile) in [(0.03, 8), (1.0, 8), (2.0, 16), (100.0, 64), (128.0, 128), (5000.0, 128)] {
            let rows = Rows { experts: 8, each };
            let tiles = rows.tiles(tile);
            assert!(
                tiles >= 8.0 * each / tile as f64 && tiles <= 8.0 * (each / tile as f64 + 1.0),
                "{each}: {tiles}"
            );
            assert!(tiles >= rows.used() - 1e-9, "{each}: {tiles} {}", rows.used());
        }
    }

    #[test]
    fn an_expert_with_few_rows_has_one_tile() {
        let rows = Rows { experts: 256, each: 1.0 / 32.0 };
        assert!((rows.tiles(8) - rows.used()).abs() < 1e-6, "{}", rows.tiles(8));
    }
}
