//! The tuning space: which configurations are worth trying for a problem.

use tilewright_machine::{Arch, CacheHint, Features};

use super::estimate::{PerStep, STRIDE, shares};
use super::{Batch, Cluster, FillMode, Form, HopperGemmConfig, Pack, Part, SPARE_REGISTERS, Schedule};
use crate::config::ConfigError;
use crate::epilogue::EpilogueOp;
use crate::moe::{ExpertsProblem, Tiled, registers_beside};
use crate::parts::Estimate;
use crate::tuning::{Chip, HALVES, Launch, MNKL, SizeKind, Tunable, three};
use crate::warp_specialized::{RASTERIZATIONS, Rasterization, TARGET, bytes};

/// Rows of tiles, and the warpgroups that share them.
const ROWS: [(i64, i64); 4] = [(64, 1), (128, 2), (192, 3), (256, 2)];

/// Columns of tiles. Those that are no power of two fill the last round of all multiprocessors where others do not.
const COLUMNS: [i64; 18] = [8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];

/// Deeper rings hide no more.
const MOST_STAGES: i64 = 20;

/// Blocks that share a tile in stream-K: the one that finishes it adds the sums of all others.
const MOST_SHARING: u64 = 33;

/// Rows of a factor up to which those of the other one are read once, and perhaps not worth keeping in the L2 cache.
const FEW: i64 = 512;

/// Registers of an element that a thread stores: for itself, its place and its guard.
const ON_THEIR_WAY: i64 = 3;

/// Registers of a thread that loads elements itself.
const LOADING_REGISTERS: i64 = 56;

/// Rows and columns from which on each element of a factor is read so often that a copy to lines of their own may pay.
const OFTEN: i64 = 1024;

/// Sizes up to which no factor is copied ahead of a product.
const SMALL: i64 = 256;

/// Tiles of each block from which on clusters that share both factors are worth trying.
const WAVES_OF_BOTH: i64 = 2;

/// Tiles of a row that are few.
const FEW_TILES: i64 = 8;

impl HopperGemmConfig {
    /// The configurations worth trying for a problem, in no order of merit: every one compiles, as far as the rules of
    /// [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64, k: i64) -> impl Iterator<Item = HopperGemmConfig> {
        Self::grid().filter(move |c| c.suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones: tiles, each with the deepest ring that shared memory has room
    /// for, either way round, with results that leave at once or late, and with the ways to share a factor, a tile or k.
    pub fn grid() -> impl Iterator<Item = HopperGemmConfig> {
        let tiles = ROWS.into_iter().flat_map(|rows| COLUMNS.map(|bn| (rows, bn)));
        let ways =
            tiles.flat_map(|tile| [(false, 64), (true, 64), (false, 32), (true, 32)].map(|way| (tile, way)));
        let shapes = ways.map(|(((bm, warpgroups), bn), (swap, bk))| HopperGemmConfig {
            bm,
            bn,
            bk,
            swap,
            warpgroups,
            // A third math warpgroup leaves 160 registers for each thread.
            math_registers: if warpgroups > 2 { 160 } else { 240 },
            ..Self::default()
        });
        let hinted = shapes
            .chain(Self::tcgen05_tiles())
            .flat_map(|c| [None, Some(CacheHint::EvictFirst)].map(|hint_b| Self { hint_b, ..c }));
        hinted
            .flat_map(Self::shared_out)
            .filter_map(Self::deepest)
            .chain(Self::gemv_points())
            .chain(Self::outer_points())
    }

    /// The ways to share out what a tile needs, for one tile.
    fn shared_out(self) -> Vec<Self> {
        if self.bk < 64 {
            // Steps this short are for sums this short.
            return vec![Self { buffers: 4, ..self }, self];
        }
        let clusters = [
            Cluster::None,
            Cluster::AlongM(2),
            Cluster::AlongN(2),
            Cluster::AlongM(4),
            Cluster::AlongN(4),
            Cluster::AlongMn(2, 2),
        ];
        // Sums in tensor memory are made while others leave in any case.
        let late = |overlap: &bool| !(self.form == Form::Tcgen05 && *overlap);
        let clustered = clusters.into_iter().flat_map(|cluster| {
            [false, true].into_iter().filter(late).map(move |overlap_epilogue| Self {
                cluster,
                overlap_epilogue,
                sm_count: self.resident(cluster),
                ..self
            })
        });
        let along_k = [2, 4].map(|blocks| {
            let cluster = Cluster::AlongK(blocks);
            Self { cluster, sm_count: self.resident(cluster), ..self }
        });
        let split = [2, 3, 4, 6, 8, 16, 32].map(|split| Self { split, ..self });
        let ways = [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(2)];
        let shared = ways.into_iter().flat_map(|cluster| {
            [false, true].into_iter().filter(late).map(move |overlap_epilogue| Self {
                schedule: Schedule::StreamK,
                cluster,
                overlap_epilogue,
                ..self
            })
        });
        let shared = shared.map(Self::exchanged);
        clustered.chain(along_k).chain(split).chain(shared).chain(self.in_pairs()).collect()
    }

    /// Blocks of clusters that all run at once, of a device with as many multiprocessors as the tile's form has blocks for.
    pub(super) fn resident(&self, cluster: Cluster) -> i64 {
        if self.form == Form::Tcgen05 {
            self.sm_count / cluster.blocks() * cluster.blocks()
        } else {
            cluster.resident()
        }
    }

    /// The same with chunks of which a thread has room for those of other blocks beside the sums.
    fn exchanged(self) -> Self {
        let fits = |columns: &i64| {
            let same = Self { chunk: Some(*columns), ..self };
            self.bn % columns == 0
                && same.fragments(&same.applied(&[])) + SPARE_REGISTERS <= self.storing_registers()
        };
        let columns =
            [64, 32, 16].into_iter().filter(|columns| *columns <= self.columns()).find(fits).unwrap_or(8);
        Self { chunk: Some(columns).filter(|columns| *columns != self.columns()), ..self }
    }

    /// The deepest ring that there is room for, with as many buffers as that leaves.
    fn deepest(self) -> Option<Self> {
        let room = i64::from(TARGET.limits().shared_bytes_per_block);
        let own = self.user_function().ok().flatten();
        let own: Vec<&dyn EpilogueOp> = own.iter().map(|function| &**function as &dyn EpilogueOp).collect();
        let fits = |buffers: i64| {
            let stages = (1..=MOST_STAGES).rev().map(|stages| Self { stages, buffers, ..self });
            stages.take_while(|c| c.stages > 1).find(|c| c.shared_bytes(&c.applied(&own)) <= room)
        };
        let wide = fits(self.buffers);
        // One buffer less may be a fourth stage, which is worth more.
        let narrow = fits(1).filter(|c| c.stages <= 4 && wide.is_none_or(|wide| wide.stages < c.stages));
        narrow.or(wide)
    }

    /// The same with chunks of which a thread has few elements on their way from shared memory to C: each takes a register.
    fn stored_by_threads(self) -> Self {
        let threads = 128 * self.warpgroups;
        let sums = self.bm * self.bn / threads;
        let waiting = if self.overlap_epilogue { sums * bytes(self.stored()) / 4 } else { 0 };
        // What an epilogue makes of a chunk is there beside the sums.
        let each = ON_THEIR_WAY + i64::from(!self.epilogue.is_empty() || self.function.is_some());
        let fits = |columns: &i64| {
            self.bn % columns == 0
                && sums + waiting + each * self.bm * columns / threads + SPARE_REGISTERS
                    <= self.math_registers
        };
        let columns =
            [64, 32, 16].into_iter().filter(|columns| *columns <= self.columns()).find(fits).unwrap_or(8);
        Self { chunk: Some(columns).filter(|columns| *columns != self.columns()), ..self }
    }

    /// The same with registers in which a thread that loads keeps what is in flight.
    fn loaded_by_threads(self) -> Self {
        let math_registers = self.math_registers.min(match self.warpgroups {
            1 => 240,
            2 => 224,
            _ => 144,
        });
        Self { load_registers: LOADING_REGISTERS, math_registers, ..self }
    }

    /// Returns whether the configuration is in proportion to the problem.
    pub(crate) fn suits(&self, m: i64, n: i64, k: i64) -> bool {
        match self.form {
            Form::Wgmma | Form::Tcgen05 => {}
            Form::Gemv => return self.gemv_suits(m, n, k),
            Form::Outer => return self.outer_suits(m, n, k),
        }
        let [m, n, k] = self.real([m, n, k]);
        let [blocks_m, blocks_n, blocks_k] = self.cluster.shape();
        let ((of_m, of_n), (least_m, least_n)) = (self.sides((self.bm, self.bn)), self.sides((64, 16)));
        let fits = |tile: i64, blocks: i64, least: i64, size: i64| {
            tile * blocks <= least || tile * blocks < 2 * size || (tile <= least && blocks == 1)
        };
        let steps = (k + self.bk - 1) / self.bk;
        let chunks = self.bn / self.columns();
        let parts = blocks_k * self.split;
        // A sparse A is read in half the time, and that of B shows.
        let few = if self.sparse { 4 * FEW } else { FEW };
        if self.schedule != Schedule::DataParallel && !self.shares_out([m, n], steps) {
            return false;
        }
        // A tile's results leave during the next one's steps, if there are enough of them; a part of k is a few steps.
        self.cluster.has_many([(m, of_m), (n, of_n)], self.sm_count)
            && fits(of_m, blocks_m, least_m, m)
            && fits(of_n, blocks_n, least_n, n)
            && (self.multiplied_bytes(self.bk) <= 64) == (self.multiplied_bytes(k) <= 64)
            && (!self.overlap_epilogue || (steps >= chunks.max(2) && self.has_next([m, n])))
            && (parts == 1 || (steps >= 4 * parts && m * n <= 1 << 22))
            && (self.hint_b.is_none() || m <= few)
    }

    /// With an order of tiles in which those of a row come one after the other, where they are few and a row's factor is the larger one: it is then
    /// read from memory once.
    fn ordered(self, [m, n]: [i64; 2]) -> Self {
        let few = self.few_of_a_row([m, n]);
        Self { rasterization: if few { Rasterization::Grouped(1) } else { self.rasterization }, ..self }
    }

    /// With no more blocks than the rounds of tiles need, if those leave out few multiprocessors, but several: 2048 tiles are 16 rounds of 132 blocks and of 128. The
    /// blocks that run have more of the L2 cache and of the power then: on an H100 8192³ takes 0.7 % less time so, 1024 × 28672 × 8192 1.1 %. Gated products in rounds of 131 blocks took up to
    /// 5 % more. Of a sparse factor what all of them read stays in the cache.
    fn evened(self, [m, n]: [i64; 2]) -> Self {
        let alone = self.cluster == Cluster::None && self.split == 1 && self.batch == Batch::None;
        if !alone || self.schedule != Schedule::DataParallel {
            return self;
        }
        let (rows, cols) = self.sides((m, n));
        let count = |extent: i64, tile: i64| (extent + tile - 1) / tile;
        let tiles = count(rows, self.bm) as u64 * count(cols, self.bn) as u64;
        let rounds = tiles.div_ceil(self.sm_count as u64).max(1);
        let blocks = tiles.div_ceil(rounds) as i64;
        let few = blocks * 20 >= self.sm_count * 19 && blocks * 50 <= self.sm_count * 49;
        if rounds == 1 || !few {
            return self;
        }
        let hint_a = if self.sparse { Some(CacheHint::EvictLast) } else { self.hint_a };
        Self { sm_count: blocks, hint_a, ..self }
    }

    /// Returns whether the tiles of a row are few, and its factor is the larger one.
    fn few_of_a_row(&self, [m, n]: [i64; 2]) -> bool {
        let (rows, cols) = self.sides((m, n));
        cols <= FEW_TILES * self.bn && rows >= 4 * cols
    }

    /// Returns whether they are several beside that, and in different clusters.
    pub(super) fn few_across(&self, [m, n]: [i64; 2]) -> bool {
        let (_, cols) = self.sides((m, n));
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let (_, across) = self.sides((blocks_m, blocks_n));
        self.few_of_a_row([m, n]) && cols > self.bn * across
    }

    /// Returns whether a block has a tile behind the first, during whose steps results can leave, as far as sizes tell.
    fn has_next(&self, [m, n]: [i64; 2]) -> bool {
        if self.schedule != Schedule::DataParallel || self.batch != Batch::None {
            return true;
        }
        let (rows, cols) = self.sides((m, n));
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let count = |extent: i64, tile: i64| (extent as u64).div_ceil(tile as u64);
        let tiles = count(rows, self.bm * down) * count(cols, self.bn * across) * self.split as u64;
        tiles > (self.sm_count / self.cluster.blocks()).max(1) as u64
    }

    /// Returns whether the tiles of C leave blocks idle that steps along k could be shared with, a few each and among few blocks.
    pub(crate) fn shares_out(&self, [m, n]: [i64; 2], steps: i64) -> bool {
        let (rows, cols) = self.sides((m, n));
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let tiles = (rows as u64).div_ceil((self.bm * down) as u64)
            * (cols as u64).div_ceil((self.bn * across) as u64);
        // A cluster of more blocks than there are is refused as such.
        let clusters = ((self.sm_count / self.cluster.blocks()) as u64).max(1);
        let last = tiles % clusters;
        last != 0
            && last * 20 <= clusters * 19
            && shares(self.schedule, tiles as f64, clusters as f64, steps as f64).each >= 4.0
            && tiles * MOST_SHARING >= clusters
    }
}

impl Cluster {
    /// Blocks of clusters that all run at once on an H200: its 132 multiprocessors are not all in groups of 4 or 8 (measured with
    /// `cuOccupancyMaxActiveClusters`).
    pub(crate) fn resident(self) -> i64 {
        match self.blocks() {
            1 | 2 => 132,
            4 => 120,
            _ => 112,
        }
    }

    /// Returns whether a product, given its extents along m and n with those of a tile, has tiles for several clusters on every multiprocessor, if
    /// both factors are shared: what that saves is a part of each step, and its launch and its ends cost as much whatever there is to do.
    pub(crate) fn has_many(self, sides: [(i64, i64); 2], sm_count: i64) -> bool {
        let Cluster::AlongMn(along_m, along_n) = self else { return true };
        let clusters =
            |(extent, tile): (i64, i64), blocks: i64| (extent + tile * blocks - 1) / (tile * blocks);
        let all = clusters(sides[0], along_m) as f64 * clusters(sides[1], along_n) as f64;
        all >= (WAVES_OF_BOTH * sm_count / self.blocks()) as f64
    }
}

impl Tunable for HopperGemmConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = MNKL;
    const MEANING: &'static [&'static str] = &[
        "dtype",
        "dtype_b",
        "sparse",
        "out",
        "a",
        "b",
        "precision",
        "complex",
        "conj_a",
        "conj_b",
        "batch",
        "gather",
        "dual",
        "fused",
        "dual_bias",
        "sums_a",
        "fill",
        "triangular",
        "epilogue",
        "function",
        "scalars",
        "tensors",
    ];
    const ALIKE: &'static [(&'static str, &'static [&'static str])] = HALVES;
    const FAMILY: &'static [&'static str] =
        &["form", "pair", "swap", "bm", "bn", "bk", "warpgroups", "split", "schedule", "pack"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("rasterization", RASTERIZATIONS),
        ("cluster", &["none", "m2", "n2", "m2n2"]),
        ("overlap_epilogue", &["false", "true"]),
        ("hint_b", &["none", "evict_first", "evict_last"]),
        ("hint_a", &["none", "evict_first", "evict_last"]),
        ("hint_c", &["none", "evict_first"]),
        ("stages", &["3", "4", "5", "6", "8", "12", "16", "20"]),
        ("in_flight", &["0", "1", "2"]),
        ("buffers", &["1", "2", "4"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        HopperGemmConfig::grid()
    }

    /// Packed too, where TMA cannot read the factors or their lines begin within those of the L2 cache, with registers for threads that load, and for
    /// results that threads store.
    fn forms(self, sizes: &[i64]) -> Vec<Self> {
        if !self.form.tiles() {
            return vec![self];
        }
        if self.gather {
            let load_registers = self.gathering_registers();
            let math_registers = registers_beside(load_registers, self.warpgroups);
            return vec![Self { load_registers, math_registers, ..self }];
        }
        let [m, n, k] = three(sizes);
        let [_, columns, _] = self.real([m, n, k]);
        let aligned = |dtype| columns * bytes(dtype) % STRIDE == 0;
        // A matrix of the epilogue lies as C does, and the warpgroup that loads has it to load.
        let matrix = self.epilogue.parts().any(Part::reads_matrix) && !aligned(self.result());
        let loaded = if matrix { self.loaded_by_threads() } else { self };
        let stored = if aligned(self.stored()) { loaded } else { loaded.stored_by_threads() };
        let unaligned = self.unaligned([m, n, k]);
        // Scales are copied by threads.
        let whole = unaligned == Pack::None && self.scales.is_none();
        let read = if whole { stored } else { stored.loaded_by_threads() };
        // Those that TMA reads at the price of two lines for one are worth a copy where each is read often.
        let often = m.min(n) >= OFTEN && k >= OFTEN / 4;
        let apart = if unaligned == Pack::None && often { self.astride([m, n, k]) } else { unaligned };
        // A small product ends before a kernel that copies its factors has.
        let small = m.max(n).max(k) <= SMALL;
        let packed = Some(self.packable(apart)).filter(|pack| *pack != Pack::None && !small);
        let packed = packed.map(|pack| Self { pack, ..stored });
        // Between two steps with a sparse factor a warpgroup's products wait: longer ones wait less often.
        let longer = self.sparse.then_some(Self { bk: 2 * read.bk, ..read });
        let registers = longer.map(|form| Self { register_a: true, ..form });
        let forms = [Some(read), packed, longer, registers];
        // The points have hints of reads of B; with fewer columns than rows A is what is read once.
        let once = n <= FEW && n < m && self.hint_a.is_none() && self.hint_b.is_none();
        let hinted = |form: Self| once.then_some(Self { hint_a: Some(CacheHint::EvictFirst), ..form });
        let forms = forms.into_iter().flatten().map(|form| form.ordered([m, n]).evened([m, n]));
        forms.flat_map(|form| [Some(form), hinted(form)]).flatten().collect()
    }

    /// Stages of as many bytes whatever the factors' type, and as many as there is room for beside the epilogue's operands.
    fn fitted(self, given: &dyn Fn(&str) -> bool) -> Self {
        if !self.form.tiles() {
            return self;
        }
        let bk = if given("bk") { self.bk } else { self.bk * 16 / i64::from(self.multiplied()[0].bits()) };
        let same = Self { bk, ..self };
        // Two sums of tensor memory leave room for narrow chunks beside them.
        let narrow = self.form == Form::Tcgen05 && !given("chunk");
        let same = if narrow { same.exchanged() } else { same };
        let deepest = same.deepest().unwrap_or(same);
        Self {
            stages: if given("stages") { self.stages } else { deepest.stages },
            buffers: if given("buffers") { self.buffers } else { deepest.buffers },
            ..same
        }
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let [m, n, k] = match self.batch {
            Batch::Ragged => ExpertsProblem::of(sizes).each(),
            _ => three(sizes),
        };
        HopperGemmConfig::suits(self, m, n, k)
    }

    fn needs(&self) -> Features {
        self.features()
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        HopperGemmConfig::reject(self, arch)
    }

    fn launch(&self, _: Arch, sizes: &[i64]) -> Result<Option<Launch>, ConfigError> {
        if self.batch == Batch::Ragged {
            return Ok(Some(ExpertsProblem::of(sizes).launch(&Tiled::Same(*self))));
        }
        let [m, n, k] = three(sizes);
        if self.fill == FillMode::Full {
            return Ok(None);
        }
        if m != n {
            return Err(ConfigError::value(
                "n",
                n,
                format!("c is square with fill={}: must be m, {m}", self.fill),
            ));
        }
        let l = (self.batch != Batch::None).then(|| ("l", sizes.get(3).copied().unwrap_or(1)));
        let sizes = [("m", m), ("k", k)].into_iter().chain(l);
        Ok(Some(Launch::of(&sizes.map(|(name, size)| (name.to_string(), size)).collect())))
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.explained(chip, sizes).microseconds
    }

    fn explained(&self, chip: Chip<'_>, sizes: &[i64]) -> Estimate {
        if self.batch == Batch::Ragged {
            return Estimate::whole(ExpertsProblem::of(sizes).microseconds(&Tiled::Same(*self)));
        }
        let [m, n, k] = three(sizes);
        self.estimated(chip.model, PerStep::default(), [m, n, k, sizes.get(3).copied().unwrap_or(1)])
    }
}
