//! The tuning space: which configurations are worth trying for a problem, and how long each may take.

use tilewright_machine::{Arch, CacheHint, DType};

use super::{Batch, Cluster, Instruction, Scaled, Schedule, StoredWeights, WeightsConfig};
use crate::config::ConfigError;
use crate::epilogue::Chain;
use crate::model::Model;
use crate::moe::{ExpertsProblem, Tiled, registers_beside};
use crate::parts::{Estimate, Part, Resource, Steps};
use crate::tuning::{Chip, HALVES, Launch, MNKL, SizeKind, Tunable, three};
use crate::warp_specialized::{RASTERIZATIONS, Rasterization, bytes, memory_of_each};

/// Rows of weights of tiles, the warpgroups that share them, and the registers of a thread of these.
const ROWS: [(i64, i64, i64); 4] = [(64, 1, 240), (128, 2, 240), (256, 2, 240), (256, 4, 112)];

/// Rows of activations of tiles.
const COLUMNS: [i64; 10] = [8, 16, 24, 32, 48, 64, 96, 128, 192, 256];

/// Rows of weights of tiles of blocks that share a multiprocessor, each with one warpgroup that multiplies, and the blocks.
const ROWS_OF_SEVERAL: [i64; 2] = [64, 128];
const SEVERAL: [i64; 3] = [2, 3, 4];

/// Rows of activations of their tiles, at most: with more the sums of several blocks have no registers.
const COLUMNS_OF_SEVERAL: i64 = 96;

/// Rows of activations of tiles up to which `mma` may be faster than `wgmma`.
const ROWS_OF_MMA: i64 = 16;

/// Bytes of which TMA wants strides to be multiples.
const STRIDE: i64 = 16;

/// Registers of a thread that loads elements itself.
const LOADING_REGISTERS: i64 = 56;

/// Deeper rings hide no more.
const MOST_STAGES: i64 = 32;

/// Bytes of weights in flight in a block. More are slower: blocks whose requests are far ahead leave less of the memory to others, and the last
/// block decides (40 KiB were 7 to 16 % faster than 168 KiB with one row of activations, on an H100).
const IN_FLIGHT: i64 = 64 << 10;

// Fitted to 660 timings on an H200 of four shapes, 1 to 256 rows and 143 programs with weights of 4 bits: of those the estimate is 11 % off in the
// root of the mean square, and its choice is 0.5 % slower than the fastest on average, 4 % at most.

/// Cycles to the first product: code, tensor maps and stages come from memory.
const PROLOGUE: f64 = 3600.0;

/// Cycles from the last product of a tile to the next one's first.
const EPILOGUE: f64 = 2400.0;

/// Instructions of a part of a step beside those of its weights and sums: waits, loads, and the products themselves.
const OF_PART: f64 = 3.0;

/// Cycles in which a warp alone issues an instruction of a chain of casts.
const ALONE: f64 = 0.77;

/// Cycles from the last product of a part to its sums.
const COMPLETE: f64 = 67.0;

/// Cycles between the last part of a step and the first one of the next.
const STEP: f64 = 180.0;

/// Cycles of 64 columns in which the tensor cores wait for casts of all warpgroups.
const EXPOSED: f64 = 90.0;

/// Cycles of a tensor core for an `mma` of 16 rows, 8 columns and a step along k; those of e4m3 are two of f16.
const OF_MMA: f64 = 6.0;

/// Bytes that a warp loads of activations at once.
const LOADED: f64 = 512.0;

/// Cycles of a scheduler for an instruction of warps that cast and multiply by themselves, and between their steps. Fitted to 24 timings on an H100 of weights
/// of 1 to 4 bits with 1 and 16 rows, from which they are 6 % off on average.
const OF_WARPS: (f64, f64) = (1.5, 100.0);

/// Rows of activations up to which sums are scaled: more have as much to do for their sums as weights have.
const SUMS_OF: i64 = 32;

/// Cycles until the blocks of a tile meet, and bytes a cycle that they exchange there.
const MEETING: (f64, f64) = (1900.0, 8.0);

/// Microseconds that a cluster takes beside its launch.
const CLUSTERED: f64 = 0.6;

/// Cycles to wait for other blocks' sums, and bytes a cycle of those that are left and added.
const SHARED: (f64, f64, f64) = (6700.0, 120.0, 36.0);

/// Bytes a cycle that a block reads at most.
const OWN: f64 = 18.4;

impl WeightsConfig {
    /// The configurations worth trying for a problem with the formats of this one, in no order of merit.
    pub fn space(self, arch: Arch, sizes: [i64; 3]) -> impl Iterator<Item = WeightsConfig> {
        let of_formats = move |c: WeightsConfig| {
            let WeightsConfig {
                dtype,
                activations,
                weights,
                upper,
                scale,
                group,
                zeros,
                batch,
                gather,
                epilogue,
                dependent,
                ..
            } = self;
            WeightsConfig {
                dtype,
                activations,
                weights,
                upper,
                scale,
                group,
                zeros,
                batch,
                gather,
                epilogue,
                dependent,
                ..c
            }
            .deepest()
        };
        let fits = move |c: &WeightsConfig| c.in_proportion(sizes) && c.reject(arch).is_none();
        Self::grid().map(of_formats).filter(fits)
    }

    /// The points of which [`space`](Self::space) keeps the valid ones.
    pub fn grid() -> impl Iterator<Item = WeightsConfig> {
        let tiles = ROWS.into_iter().flat_map(|rows| COLUMNS.map(|bn| (rows, bn)));
        let depths = tiles.flat_map(|tile| {
            [(64, 64), (128, 64), (128, 128), (256, 128), (512, 128)].map(|deep| (tile, deep))
        });
        let forms = depths.flat_map(|point| {
            let by_warps = (point.0.1 <= ROWS_OF_MMA).then_some((Scaled::Sums, Instruction::Mma));
            let by_groups = [Scaled::Sums, Scaled::Weights].map(|scaled| (scaled, Instruction::Wgmma));
            by_groups.into_iter().chain(by_warps).map(move |form| (point, form))
        });
        let shapes = forms.map(|((((bm, warpgroups, math_registers), bn), (bk, part)), form)| {
            // Of weights a cache keeps nothing.
            let (scaled, instruction, hint_w) = (form.0, form.1, Some(CacheHint::EvictFirst));
            let tile = WeightsConfig { bm, bn, bk, part, warpgroups, math_registers, ..Self::default() };
            WeightsConfig { scaled, instruction, hint_w, ..tile }
        });
        let shapes = shapes.flat_map(Self::shared_out);
        let hint_w = Some(CacheHint::EvictFirst);
        let tensor_memory = Self::tcgen05_tiles().flat_map(Self::tcgen05_shared_out);
        shapes.chain(tensor_memory.map(move |c| Self { hint_w, ..c })).map(Self::deepest)
    }

    /// The ways to share out what a tile needs.
    fn shared_out(self) -> Vec<Self> {
        let whole = |cluster: Cluster, overlap_epilogue: bool| Self {
            schedule: Schedule::DataParallel,
            cluster,
            overlap_epilogue,
            ..self
        };
        let ways = [Cluster::None, Cluster::AlongN(2), Cluster::AlongM(2)];
        let late = ways.into_iter().flat_map(|cluster| [false, true].map(|late| whole(cluster, late)));
        // Clusters of four leave multiprocessors without a block.
        let along_k = [2].map(|blocks| whole(Cluster::AlongK(blocks), false));
        let shared = [Cluster::None, Cluster::AlongN(2)];
        let shared = shared.map(|cluster| Self { schedule: Schedule::StreamK, cluster, ..self });
        late.chain(along_k).chain(shared).chain(self.several()).collect()
    }

    /// With several blocks of a multiprocessor: while one waits for its weights, begins or ends, the others cast and multiply.
    fn several(self) -> impl Iterator<Item = Self> {
        // Of the points with one warpgroup, whose rows these have and twice as many.
        let rows = ROWS_OF_SEVERAL
            .into_iter()
            .filter(move |_| self.warpgroups == 1 && self.bn <= COLUMNS_OF_SEVERAL);
        let alone = Self { schedule: Schedule::DataParallel, ..self };
        rows.flat_map(move |bm| SEVERAL.map(|blocks| Self { bm, blocks, ..alone }))
    }

    /// The same with parts and stages of whole units and groups, and as many stages as shared memory has room for, up to [`IN_FLIGHT`].
    fn deepest(self) -> Self {
        let unit = self.unit();
        let part = self.part.max(unit);
        // Those who cast share a group.
        let part = part.min(self.group.map_or(part, |group| (group / self.casting().max(1)).max(unit)));
        let same = Self { part, ..self };
        let same = Self { bk: same.bk.max(same.span()), ..same };
        let have = memory_of_each(same.blocks);
        let chain = Chain::new(&same.epilogue, &[]);
        let of_weights = same.bm * same.bk * same.bits() / 8;
        let fits = |stages: &i64| {
            let in_flight = *stages <= 3 || stages * of_weights <= IN_FLIGHT / same.blocks.max(1);
            in_flight && Self { stages: *stages, ..same }.shared_bytes(&chain) <= have
        };
        Self { stages: (2..=MOST_STAGES).rev().find(fits).unwrap_or(2), ..same }
    }

    /// Returns whether the configuration is in proportion to the problem.
    fn in_proportion(&self, [m, n, k]: [i64; 3]) -> bool {
        let [blocks_m, blocks_n, blocks_k] = self.cluster.shape();
        let fits = |tile: i64, blocks: i64, least: i64, size: i64| {
            tile * blocks < 2 * size || (tile <= least && blocks == 1)
        };
        let steps = (k + self.bk - 1) / self.bk;
        let tiles = ((n + self.bm - 1) / self.bm) * ((m + self.bn - 1) / self.bn);
        let shared = self.schedule != Schedule::DataParallel;
        let [rows, columns] = self.smallest();
        fits(self.bn, blocks_m, columns, m)
            && fits(self.bm, blocks_n, rows, n)
            && (!self.overlap_epilogue
                || (self.bn > SUMS_OF
                    && steps >= 2 * (self.bn / self.columns())
                    && tiles > 2 * self.at_once()))
            && (blocks_k == 1 || (steps >= 4 * blocks_k && tiles * blocks_k <= 2 * self.at_once()))
            && (!shared
                || (tiles % self.at_once() != 0
                    && tiles < 8 * self.at_once()
                    && tiles * steps >= self.at_once()))
            && match self.scaled {
                Scaled::Sums => self.bn <= SUMS_OF || self.group.is_none() || self.activations.is_some(),
                Scaled::Weights => {
                    self.group.is_some() && self.activations.is_none() && (m > 16 || self.casts_apart())
                }
            }
            && (self.rasterization == Rasterization::Grouped(12))
            // Each block has a tile.
            && (self.blocks == 1 || tiles > self.sm_count * (self.blocks - 1))
    }

    /// Blocks at once.
    pub(crate) fn at_once(&self) -> i64 {
        self.sm_count * self.blocks
    }

    /// Instructions of a thread for a weight, to cast it, as reports count them.
    pub(crate) fn cast_of_weight(&self) -> f64 {
        let of_cast = match (self.weights, self.a()) {
            (weights, activations) if weights == activations => 0.0,
            (DType::I4 | DType::U4 | DType::E2M1, DType::E4M3) => 11.0 / 8.0,
            (_, DType::I8) => 9.0 / 8.0,
            (DType::E2M1, _) => 19.0 / 8.0,
            (DType::E4M3, DType::BF16) => 2.5,
            (DType::E4M3, _) => 10.0 / 8.0,
            (DType::I8 | DType::U8, DType::BF16) => 2.5,
            (DType::I8 | DType::U8, _) => 5.0 / 4.0,
            (DType::I16, _) => 3.0,
            (_, DType::BF16) => 11.0 / 8.0,
            _ => 9.0 / 8.0,
        };
        let zeros = if self.zeros { 0.5 } else { 0.0 };
        let scaled = if self.scaled == Scaled::Weights && self.group.is_some() { 0.5 } else { 0.0 };
        let upper = if self.upper.is_some() { of_cast + 0.5 } else { 0.0 };
        of_cast + upper + zeros + scaled
    }

    /// The estimated time in microseconds on an H200 that was idle, whose L2 cache holds nothing of the factors.
    pub fn estimate(&self, m: i64, n: i64, k: i64) -> f64 {
        self.estimated(Model::built_in(), [m, n, k]).microseconds
    }

    /// The estimated time on the device of a model.
    pub(crate) fn estimated(&self, model: &Model, [m, n, k]: [i64; 3]) -> Estimate {
        let model = model.numbers();
        let rounds = |things: i64, each: i64| ((things + each - 1) / each) as f64;
        let (bm, bn, bk) = (self.bm as f64, self.bn as f64, self.bk as f64);
        let [blocks_m, blocks_n, deep] = self.cluster.shape();
        let (groups, parts) = (self.warpgroups as f64, bk / self.part as f64);
        let bits = self.bits() as f64;

        // A step: products, casts of all warpgroups on the four schedulers, a warpgroup by itself, factors through the port to the L2 cache.
        let step = StoredWeights::step_of(self.a()) as f64;
        let a_bytes = bytes(self.a()) as f64;
        // Cycles of the tensor cores, and instructions of a thread for them and for what they read.
        let (multiply, of_products) = match self.instruction {
            Instruction::Wgmma => (bm / 64.0 * bk / step * (bn / 2.0).max(16.0), 0.0),
            Instruction::Mma => {
                let products = bm / 16.0 * bk / step * bn / 8.0;
                let halves = if self.a() == DType::E4M3 { 2.0 } else { 1.0 };
                (products * halves * OF_MMA / 4.0, products / (4.0 * groups) + a_bytes * bn * bk / LOADED)
            }
            // A copy to tensor memory, a register at a time.
            Instruction::Tcgen05 => (0.0, bm * bk * a_bytes / (4.0 * 128.0 * groups)),
        };
        let of_lane = bm * bk / (128.0 * groups);
        let promotes = self.promotes() && !self.casts_apart();
        let promoted = if promotes { parts * bm * bn / (128.0 * groups) } else { 0.0 };
        let instructions = of_lane * self.cast_of_weight() + promoted + parts * OF_PART + of_products;
        let issue = groups * instructions;
        let products = multiply / groups;
        let of_warp = ALONE * instructions;
        let [multiply, issue, turn] = match self.instruction {
            Instruction::Tcgen05 => self.tcgen05_cycles(step, [instructions, ALONE]),
            _ => [multiply, issue, 0.0],
        };
        let turn = match self.instruction {
            Instruction::Tcgen05 => turn,
            Instruction::Mma => OF_WARPS.0 * issue + OF_WARPS.1,
            // Of a stage with one part nothing overlaps, nor where sums are waited for.
            Instruction::Wgmma if promoted > 0.0 || self.bk == self.part => {
                of_warp + products + parts * COMPLETE
            }
            Instruction::Wgmma => of_warp.max(products) + STEP + parts * COMPLETE,
        };
        let exposed = match self.instruction {
            Instruction::Wgmma => bk / 64.0 * EXPOSED,
            Instruction::Mma | Instruction::Tcgen05 => 0.0,
        };
        let of_weights = bm * bk * bits / 8.0 / blocks_m as f64;
        let of_activations = a_bytes * bn * bk / blocks_n as f64;
        let port = (of_weights + of_activations) / 128.0 * model.port;
        let latency = model.latency / (self.stages as f64 - 1.0).max(1.0);
        // Blocks of a multiprocessor share it.
        let together = self.blocks as f64;
        let mut wanted = [0.0; Resource::ALL.len()];
        for (resource, cycles) in [
            (Resource::TensorCores, multiply / model.tensor_cores * together + exposed),
            (Resource::Threads, (issue * together).max(turn)),
            (Resource::Port, port * together),
            (Resource::Latency, latency),
        ] {
            wanted[resource as usize] = cycles;
        }
        let cycles = wanted.iter().copied().fold(0.0, f64::max);

        let tiles = rounds(n, self.bm * blocks_n) * rounds(m, self.bn * blocks_m);
        let clusters = (self.at_once() / self.cluster.blocks()) as f64;
        let steps = rounds(k, self.bk * deep);
        let (waves, of_block, others) = match self.schedule {
            Schedule::DataParallel => ((tiles / clusters).ceil(), (tiles / clusters).ceil() * steps, 0.0),
            Schedule::StreamK | Schedule::Remainder => {
                let each = (tiles * steps / clusters).ceil();
                ((tiles / clusters).ceil(), each, (steps / each).ceil().min(clusters))
            }
        };
        // Results leave behind the last steps, or during the next tile's.
        let chunks = bn / self.columns() as f64;
        let epilogue = if self.overlap_epilogue {
            (waves - 1.0) * (model.overlapped + chunks * model.overlapped_chunk) + EPILOGUE
        } else {
            waves * EPILOGUE
        };
        let meeting = if deep > 1 { MEETING.0 + 4.0 * bm * bn / groups / MEETING.1 } else { 0.0 };
        let (flag, left, added) = SHARED;
        let sums = 4.0 * bm * bn;
        let shared = if others > 0.0 { flag + sums / left + others * sums / added } else { 0.0 };
        let computed = of_block * cycles + epilogue;
        let read = (n * k) as f64 * bits / 8.0
            + self.group.map_or(0.0, |group| (n * k / group.max(1) * bytes(self.scales())) as f64)
            + (bytes(self.a()) * m * k) as f64;
        // Blocks that have tiles of their own read as many as the one with the most, each no faster than it can.
        let (blocks, uneven) = match self.schedule {
            Schedule::DataParallel => {
                (tiles.min(clusters) * self.cluster.blocks() as f64, (waves * clusters / tiles).max(1.0))
            }
            Schedule::StreamK | Schedule::Remainder => (self.at_once() as f64, 1.0),
        };
        let uneven = if tiles > clusters { uneven } else { 1.0 };
        let whole = read / model.read + (2 * m * n) as f64 / model.write;
        let memory = whole.max(read / blocks / OWN * uneven) + model.warm_up;
        let clustered = if self.cluster.blocks() > 1 { model.clusters + CLUSTERED } else { 0.0 };
        let us = |cycles: f64| cycles / model.clock;
        let beyond = (memory - computed - PROLOGUE).max(0.0);
        let parts = [
            (Part::Launch, model.launch),
            (Part::Clusters, clustered),
            (Part::Prologue, us(PROLOGUE)),
            (Part::Steps, us(of_block * cycles)),
            (Part::Epilogue, us(epilogue)),
            (Part::Meeting, us(meeting)),
            (Part::StreamK, us(shared)),
            (Part::Memory, us(beyond)),
        ];
        let steps = Steps { waves, steps: of_block / waves.max(1.0), cycles, wanted };
        Estimate { steps: Some(steps), ..Estimate::of(parts.iter().map(|(_, time)| time).sum(), &parts) }
    }
}

impl Tunable for WeightsConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = MNKL;
    const MEANING: &'static [&'static str] = &[
        "dtype",
        "activations",
        "weights",
        "upper",
        "scale",
        "group",
        "zeros",
        "batch",
        "gather",
        "epilogue",
        "dependent",
        "ahead",
    ];
    const ALIKE: &'static [(&'static str, &'static [&'static str])] =
        &[HALVES[0], ("dependent", &["false", "true"]), ("ahead", &["false", "true"])];
    const FAMILY: &'static [&'static str] =
        &["bm", "bn", "bk", "part", "warpgroups", "scaled", "instruction", "schedule"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("rasterization", RASTERIZATIONS),
        ("cluster", &["none", "m2", "n2", "k2"]),
        ("overlap_epilogue", &["false", "true"]),
        ("hint_w", &["none", "evict_first"]),
        ("hint_a", &["none", "evict_last"]),
        ("stages", &["3", "4", "6", "8", "12"]),
        ("buffers", &["1", "2"]),
        ("blocks", &["1", "2", "3"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        WeightsConfig::grid()
    }

    /// With registers for threads that load, where TMA cannot read activations or scales, or rows lie anywhere.
    fn forms(self, sizes: &[i64]) -> Vec<Self> {
        if self.gather {
            let load_registers = self.gathering_registers();
            if self.casts_apart() {
                return vec![Self { load_registers, ..self }];
            }
            let math_registers = registers_beside(load_registers, self.warpgroups);
            return vec![Self { load_registers, math_registers, ..self }];
        }
        let [_, n, k] = three(sizes);
        let aligned = |elements: i64, dtype: DType| elements * bytes(dtype) % STRIDE == 0;
        if aligned(k, self.a()) && aligned(n, self.dtype) && aligned(n, self.scales()) {
            return vec![self];
        }
        let most = match self.warpgroups {
            _ if self.casts_apart() => 240,
            1 => 240,
            2 => 224,
            _ => 104,
        };
        let math_registers = self.math_registers.min(most);
        vec![Self { load_registers: LOADING_REGISTERS, math_registers, ..self }]
    }

    fn fitted(self, given: &dyn Fn(&str) -> bool) -> Self {
        let fitted = self.deepest();
        Self {
            stages: if given("stages") { self.stages } else { fitted.stages },
            part: if given("part") { self.part } else { fitted.part },
            bk: if given("bk") { self.bk } else { fitted.bk },
            ..self
        }
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        self.in_proportion(match self.batch {
            Batch::Ragged => ExpertsProblem::of(sizes).each(),
            _ => three(sizes),
        })
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        WeightsConfig::reject(self, arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.explained(chip, sizes).microseconds
    }

    fn launch(&self, _: Arch, sizes: &[i64]) -> Result<Option<Launch>, ConfigError> {
        Ok((self.batch == Batch::Ragged).then(|| ExpertsProblem::of(sizes).launch(&Tiled::Few(*self))))
    }

    fn explained(&self, chip: Chip<'_>, sizes: &[i64]) -> Estimate {
        if self.batch == Batch::Ragged {
            return Estimate::whole(ExpertsProblem::of(sizes).microseconds(&Tiled::Few(*self)));
        }
        self.estimated(chip.model, three(sizes))
    }
}
