//! The tuning space: tiles in proportion to a problem, with pixels folded so that few of a tile's are outside of images, and an estimate of each.

use tilewright_machine::{Arch, CacheHint, Features};

use super::geometry::packed_taps;
use super::{ConvSizes, Form, HopperConvConfig, Pass, PerMode, SPARE_REGISTERS};
use crate::gemm_hopper::{Form as ProductForm, HopperGemmConfig, PerStep};
use crate::model::{Model, Numbers};
use crate::parts::{Estimate, Part};
use crate::tuning::{Chip, SizeKind, Tunable};
use crate::warp_specialized::{
    Cluster, MULTIPROCESSORS, RASTERIZATIONS, Rasterization, Schedule, TARGET, bytes, tensor_memory_tiles,
};

/// Rows of tiles, and the warpgroups that share them.
const ROWS: [(i64, i64); 4] = [(64, 1), (128, 2), (192, 3), (256, 2)];

/// Columns of tiles.
const COLUMNS: [i64; 10] = [16, 32, 64, 80, 96, 128, 160, 192, 224, 256];

/// Channels of a stage, or pixels.
const DEPTHS: [i64; 3] = [16, 32, 64];

/// Deeper rings hide no more.
const MOST_STAGES: i64 = 12;

/// Parts of the sums.
const PARTS: [i64; 11] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64];

/// Parts by which steps take longer whose neighbours read other pixels and taps, alone and in clusters of two: on an H100 128 × 256 takes 1.26 µs where it takes 0.69
/// with neighbours at the same taps, and 0.87 in clusters. Fitted to 320 configurations of layers of two and three modes on H100s, as the next ones.
const SCATTERED: [f64; 2] = [2.0, 1.3];
const SCATTERED_GRADIENT: [f64; 2] = [2.0, 2.5];

/// Cycles in which shared memory takes a line that arrives, and the blocks whose requests for a line are answered one by one, of all that ask for it at the same time: fitted to 760 timings of
/// 96 layers and passes on H100s.
const WRITTEN: f64 = 0.5;
const ANSWERED: f64 = 8.0;

/// Rows of a tile for each line of its columns' factor with which products take as long as their lines through the port to the L2 cache.
const LINES_OF_PRODUCTS: i64 = 64;

/// Exponent by which the steps that read and device memory add up; the other constants were fitted with it.
const OVERLAP: f64 = 6.0;

/// The part of the taps by which reads of pixels from memory are denser than steps: those of a tile's first tap, and few of the others.
const READ_AGAIN: f64 = 0.2;

/// Microseconds more of a block with a third warpgroup, and of one that shares its last tile's steps: fitted to the same timings.
const THIRD_WARPGROUP: f64 = 1.5;
const SHARED_TILES: f64 = 4.0;

/// Microseconds that a cluster takes beside its launch, and the kernel that adds parts of sums beside its own: the other constants were fitted with them.
const CLUSTERED: f64 = 0.6;
const ADDED: f64 = 0.3;

/// Stages up to which the products of a step are waited for before those of the next: a stage that waits for one more is one that is not filled.
/// Weight gradients gain nothing by it.
const FEW_STAGES: i64 = 4;

/// Parts of the sums at most, and the rounds of tiles that others fill.
const MOST_PARTS: i64 = 64;
const ROUNDS: [i64; 4] = [1, 2, 3, 5];

/// Registers of a thread that multiplies, as far as a block's registers reach: for two warpgroups, and for a third beside them.
const MATH_REGISTERS: [i64; 2] = [232, 152];

/// Registers of a thread that loads elements itself, because TMA cannot.
const LOADING_REGISTERS: i64 = 56;

/// Columns up to which each pixel is read by few tiles, and is not worth keeping in the L2 cache.
const FEW: i64 = 512;

/// Channels of which rows are multiples of 16 bytes.
const ALIGNED: i64 = 8;

/// Channels from which on steps of a tap each are long enough.
const MANY: i64 = 32;

fn divide(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}

impl HopperConvConfig {
    /// The sizes that a tuner names, in its order.
    fn sizes(&self, all: &[i64]) -> ConvSizes {
        let at = |i: usize| all.get(i).copied().unwrap_or(1);
        let image = [at(1), at(2), at(3)];
        ConvSizes {
            nb: at(0),
            image: image[3 - self.dims.clamp(1, 3) as usize..].to_vec(),
            c: at(4) * self.groups,
            kout: at(5) * self.groups,
        }
    }

    /// Images and extents of what tiles of pixels cover: outputs, or in a data gradient places of one residue of dx.
    fn covered(&self, sizes: &ConvSizes) -> Vec<i64> {
        let image = match self.pass {
            Pass::Dgrad => {
                sizes.image.iter().zip(self.shape()).map(|(n, one)| divide(*n, one.stride)).collect()
            }
            Pass::Fprop | Pass::Wgrad => sizes.output(self).unwrap_or_default(),
        };
        [sizes.nb].into_iter().chain(image).collect()
    }

    /// Tiles of pixels that cover the images.
    fn boxes(&self, sizes: &ConvSizes) -> i64 {
        let covered = self.covered(sizes);
        if self.pointwise() || self.im2col {
            // The last tile alone has pixels outside.
            return divide(covered.iter().product(), self.tile_pixels());
        }
        let tiles: i64 = covered.iter().zip(self.fold()).map(|(n, side)| divide(*n, side)).product();
        let strides = self.shape().iter().map(|one| one.stride).product::<i64>();
        if self.pass == Pass::Dgrad { tiles * strides } else { tiles }
    }

    /// The fold of a tile's pixels that covers images with the fewest tiles; of several the one with the most neighbours in a row, whose boxes share
    /// most of what they read.
    fn folded(self, sizes: &ConvSizes) -> Self {
        let (covered, all) = (self.covered(sizes), self.tile_pixels());
        let mut folds: Vec<Vec<i64>> = vec![Vec::new()];
        for _ in 0..covered.len().saturating_sub(1) {
            let divisors = |fold: &Vec<i64>| {
                let left = all / fold.iter().product::<i64>();
                (1..=left).filter(|n| left % n == 0).map(|n| [&fold[..], &[n]].concat()).collect::<Vec<_>>()
            };
            folds = folds.iter().flat_map(divisors).collect();
        }
        let complete = |fold: Vec<i64>| {
            let last = all / fold.iter().product::<i64>();
            [fold, vec![last]].concat()
        };
        let cost = |fold: &Vec<i64>| {
            let tiles: i64 = covered.iter().zip(fold).map(|(n, side)| divide(*n, *side)).product();
            // The surface of a box of one pixel more on each side is what it reads beside its own.
            let halo: i64 = fold[1..].iter().map(|side| side + 2).product::<i64>() * fold[0];
            (tiles, halo, fold[0])
        };
        let best = folds.into_iter().map(complete).min_by_key(cost);
        Self { pixels: best.and_then(|fold| PerMode::each(&fold)), ..self }
    }

    /// The same with tiles of the next pixels, where these are fewer than such boxes.
    fn next_pixels(self, sizes: &ConvSizes, boxes: &Self) -> Option<Self> {
        let next = Self { im2col: true, ..self };
        let can = self.pixels.is_none() && next.check_im2col().is_ok();
        Some(next).filter(|next| can && next.boxes(sizes) < boxes.boxes(sizes))
    }

    /// Taps that are steps of their own, and channels of each, of so many of x: those of a window where images are packed.
    fn depth(&self, c: i64) -> (i64, i64) {
        let mut taps: Vec<i64> = self.shape().iter().map(|one| one.taps).collect();
        match (self.pack, taps.last_mut()) {
            (Some(pack), Some(last)) => {
                let channels = divide(c, pack) * pack * packed_taps(*last, pack);
                *last = 1;
                (taps.iter().product(), channels)
            }
            _ => (taps.iter().product(), c),
        }
    }

    /// The least channels that images can be packed to, where that may pay: where TMA cannot read x, or steps would be short.
    fn packed_channels(&self, sizes: &ConvSizes) -> Option<i64> {
        let last = *self.shape().last()?;
        let few = sizes.c % ALIGNED != 0 || sizes.c < MANY;
        let packs = |channels: &i64| last.stride * channels % ALIGNED == 0;
        let can = few && self.pass != Pass::Dgrad && self.groups == 1 && last.dilation == 1;
        [1, 2, 4, 8].into_iter().find(packs).filter(|_| can)
    }

    /// Microseconds in which images are copied to rows of windows.
    fn packing_time(&self, model: &Numbers, sizes: &ConvSizes) -> f64 {
        let Some(pack) = self.pack else { return 0.0 };
        let pixels = sizes.nb * sizes.image.iter().product::<i64>();
        let read_and_written = pixels * (sizes.c + divide(sizes.c, pack) * pack) * bytes(self.dtype);
        let launches = if self.pass == Pass::Wgrad { 2.0 } else { 1.0 };
        launches * model.conv_packing + read_and_written as f64 / model.conv_packed
    }

    /// The deepest ring that there is room for.
    fn deepest(self) -> i64 {
        let room = i64::from(TARGET.limits().shared_bytes_per_block);
        let fits = |stages: &i64| Self { stages: *stages, ..self }.shared_bytes(&self.applied()) <= room;
        (1..=MOST_STAGES).rev().find(fits).unwrap_or(1)
    }

    /// The extents of a product with as many tiles, which has rows of what tiles cover beside the images.
    fn extents(&self, sizes: &ConvSizes) -> [i64; 3] {
        let strides: i64 = self.shape().iter().map(|one| one.stride).product();
        let kout = sizes.kout / self.groups;
        let (taps, c) = self.depth(sizes.c / self.groups);
        let boxes = self.boxes(sizes);
        let whole = |n: i64| divide(n, self.bk) * self.bk;
        let wide = |n: i64| divide(n, self.bn) * self.bn;
        match self.pass {
            Pass::Fprop => [boxes * self.bm, kout, taps * whole(c)],
            Pass::Dgrad => [boxes * self.bm, c, (taps * whole(kout) / strides).max(self.bk)],
            Pass::Wgrad => [kout, if taps > 1 { taps * wide(c) } else { c }, boxes * self.bk],
        }
    }

    /// Bytes of the factors of the result's rows and of its columns. Steps of other taps read most pixels again.
    fn bytes_of_factors(&self, sizes: &ConvSizes) -> [f64; 2] {
        let (taps, c) = self.depth(sizes.c / self.groups);
        let output: i64 = sizes.output(self).unwrap_or_default().iter().product();
        // Strides leave out the pixels that no tap meets.
        let pixels = sizes.image.iter().product::<i64>().min(output * taps);
        let x = sizes.nb * pixels * sizes.c;
        let (y, f) = (sizes.nb * output * sizes.kout, taps * c * sizes.kout);
        let factors = match self.pass {
            Pass::Fprop => [x, f],
            Pass::Dgrad => [y, f],
            Pass::Wgrad => [y, x],
        };
        factors.map(|elements| (elements * bytes(self.dtype)) as f64)
    }

    /// A product of tiles of the same size, in the same order.
    fn product(&self) -> HopperGemmConfig {
        let [a, b] = self.majors();
        HopperGemmConfig {
            dtype: self.dtype,
            out: Some(self.result()),
            a,
            b,
            form: match self.form {
                Form::Wgmma => ProductForm::Wgmma,
                Form::Tcgen05 => ProductForm::Tcgen05,
            },
            pair: self.pair,
            bm: self.bm,
            bn: self.bn,
            bk: self.bk,
            stages: self.stages,
            warpgroups: self.warpgroups,
            cluster: self.cluster,
            split: self.split,
            schedule: self.schedule,
            overlap_epilogue: self.overlap_epilogue,
            chunk: self.chunk,
            buffers: self.buffers,
            sm_count: self.sm_count,
            hint_a: self.hint_a,
            // Tiles of a row follow each other closely enough for its pixels to be in the L2 cache.
            rasterization: Rasterization::Grouped(1),
            ..HopperGemmConfig::default()
        }
    }

    /// Parts of the sums worth trying: those of any tile, and those with which tiles fill their rounds.
    fn parts(&self, sizes: &ConvSizes) -> Vec<i64> {
        let [m, n, _] = self.extents(sizes);
        let tiles = divide(m, self.bm) * divide(n, self.bn);
        let filling = ROUNDS.map(|rounds| rounds * self.sm_count / tiles.max(1));
        let mut parts: Vec<i64> = PARTS.into_iter().chain(filling).collect();
        parts.retain(|parts| (1..=MOST_PARTS).contains(parts));
        parts.sort_unstable();
        parts.dedup();
        parts
    }

    /// The same in the order in which blocks that run at once ask the L2 cache for the least: of a weight gradient tiles of a part of the sums one after another,
    /// which read the same pixels; else tiles of a row beside each other, where sums are whole (1.7 % in the geometric mean of 27 layers on an H100, up to 6.1).
    fn in_order(self, kout: i64) -> Self {
        let rasterization = match (self.pass, self.split) {
            (Pass::Wgrad, 2..) => Rasterization::Grouped(divide(kout, self.bm)),
            (Pass::Fprop | Pass::Dgrad, 1) => Rasterization::Grouped(1),
            _ => self.rasterization,
        };
        Self { rasterization, ..self }
    }

    /// The same with no more blocks than its rounds of tiles need: as many rounds, in which blocks have more of the L2 cache. On an H100 544 tiles take 0.348 ms with 109
    /// blocks and 0.361 with 132, and 216 tiles of a weight gradient 0.184 with 108 and 0.192.
    fn evened(self, sizes: &ConvSizes) -> Self {
        let (taps, _) = self.depth(sizes.c / self.groups);
        if taps == 1 || self.has_phases() || self.cluster != Cluster::None {
            return self;
        }
        let [m, n, _] = self.extents(sizes);
        let tiles = divide(m, self.bm) * divide(n, self.bn) * self.split * self.groups;
        let rounds = divide(tiles, self.sm_count).max(1);
        Self { sm_count: if rounds > 1 { divide(tiles, rounds) } else { self.sm_count }, ..self }
    }

    /// The same tile in pairs of blocks, where it has the rows and tensor copies bring its stages.
    fn in_pairs(self, whole: bool) -> impl Iterator<Item = Self> {
        let can = whole && !self.has_phases();
        let clusters = self.tiling().pairs().filter(move |_| can);
        let blocks = move |cluster: Cluster| self.sm_count / cluster.blocks() * cluster.blocks();
        clusters.map(move |cluster| Self { pair: true, cluster, sm_count: blocks(cluster), ..self })
    }

    /// The same with chunks of which a thread has room for those of other blocks beside the sums.
    fn exchanged(self) -> Self {
        let fits = |columns: &i64| {
            let same = Self { chunk: Some(*columns), ..self };
            let there = same.tiling().math_registers;
            self.bn % columns == 0 && same.fragments(&same.applied()) + SPARE_REGISTERS <= there
        };
        let columns =
            [64, 32, 16].into_iter().filter(|columns| *columns <= self.columns()).find(fits).unwrap_or(8);
        Self { chunk: Some(columns).filter(|columns| *columns != self.columns()), ..self }
    }

    /// Parts of the requests for lines of A and of B that the L2 cache answers one by one; none where all blocks ask for the same pixels at the same time, as those of weight gradients.
    ///
    /// They are all requests where tiles of columns are not alike and steps take as long as their loads: blocks of the tile with fewer columns run ahead, and others' requests come too
    /// late. On an H100 256 channels in tiles of 64 × 160 take 590 cycles for a step of 98 blocks, 39 lines a cycle, and 640 channels 400 for one of 128; 256 channels in tiles of
    /// 128 × 96 740 cycles for a step of 129 blocks. Steps that take as long as their products keep blocks together: a data gradient of 1280 channels in tiles of 128 × 192 takes 770 for
    /// one of 112.
    fn one_by_one(&self, sizes: &ConvSizes) -> Option<[f64; 2]> {
        let (taps, _) = self.depth(sizes.c / self.groups);
        if taps == 1 || self.pass == Pass::Wgrad {
            return None;
        }
        let [m, n, _] = self.extents(sizes);
        let loads = LINES_OF_PRODUCTS * (self.bm + self.bn) > self.bm * self.bn;
        if loads && n > self.bn && n % self.bn != 0 {
            return Some([1.0; 2]);
        }
        let [rows, columns] = [divide(m, self.bm), divide(n, self.bn)];
        let blocks = (rows * columns * self.split * self.groups).min(self.sm_count) as f64;
        let part = |asking: f64| (ANSWERED / asking.max(1.0)).min(1.0);
        Some([part(columns as f64), part(blocks / columns as f64)])
    }

    /// The estimated time on the device of a model: that of the product with as many tiles.
    pub(crate) fn estimated(&self, model: &Model, sizes: &ConvSizes) -> Estimate {
        let [m, n, k] = self.extents(sizes);
        let (taps, _) = self.depth(sizes.c / self.groups);
        let wgrad = self.pass == Pass::Wgrad;
        let line = if taps > 1 && !wgrad { model.numbers().conv_shifted } else { 1.0 };
        let ways = if wgrad { SCATTERED_GRADIENT } else { SCATTERED };
        let scattered = Some(ways[usize::from(self.cluster != Cluster::None)]);
        let [of_rows, of_columns] = self.bytes_of_factors(sizes);
        // Other taps find most pixels in the L2 cache; each has a part of the filter of its own.
        let again = if wgrad { 0.0 } else { READ_AGAIN * of_rows / (of_rows + of_columns) };
        let reads = 1.0 + again * (taps - 1) as f64;
        let bytes = Some([of_rows, of_columns]);
        let (overlap, one_by_one) = (Some(OVERLAP), self.one_by_one(sizes));
        let written = WRITTEN;
        let steps =
            PerStep { line, scattered, bytes, written, one_by_one, reads, overlap, ..PerStep::default() };
        let estimate = self.product().estimated(model, steps, [m, n, k, self.groups]);
        let third = if self.warpgroups > 2 { THIRD_WARPGROUP } else { 0.0 };
        let shared = if self.schedule == Schedule::DataParallel { 0.0 } else { SHARED_TILES };
        let clustered = if self.cluster == Cluster::None { 0.0 } else { CLUSTERED };
        let estimate = estimate.with(Part::Epilogue, third).with(Part::StreamK, shared);
        let added = if self.split > 1 { ADDED } else { 0.0 };
        let estimate = estimate.with(Part::Clusters, clustered).with(Part::SplitSums, added);
        estimate.after(self.packing_time(model.numbers(), sizes))
    }
}

impl Tunable for HopperConvConfig {
    const SIZES: &'static [(&'static str, SizeKind)] = &[
        ("nb", SizeKind::Count),
        ("d", SizeKind::Count),
        ("h", SizeKind::Count),
        ("w", SizeKind::Extent),
        ("c", SizeKind::Depth),
        ("kout", SizeKind::Extent),
    ];
    const MEANING: &'static [&'static str] =
        &["pass", "dims", "filter", "stride", "padding", "dilation", "groups", "dtype", "out", "epilogue"];
    const FAMILY: &'static [&'static str] =
        &["form", "pair", "bm", "bn", "bk", "warpgroups", "split", "schedule", "pixels", "pack"];
    const SECONDARY: &'static [(&'static str, &'static [&'static str])] = &[
        ("rasterization", RASTERIZATIONS),
        ("overlap_epilogue", &["false", "true"]),
        ("stages", &["3", "4", "5", "6", "8", "12"]),
        ("in_flight", &["0", "1", "2"]),
        ("hint_a", &["none", "evict_first"]),
        ("buffers", &["1", "2", "4"]),
        ("im2col", &["false", "true"]),
    ];

    fn points() -> impl Iterator<Item = Self> {
        let tiles = ROWS.into_iter().flat_map(|rows| COLUMNS.map(|bn| (rows, bn)));
        let deep = tiles.flat_map(|tile| DEPTHS.map(|bk| (tile, bk)));
        let in_registers = deep.flat_map(|(((bm, warpgroups), bn), bk)| {
            [false, true].map(|overlap_epilogue| HopperConvConfig {
                bm,
                bn,
                bk,
                warpgroups,
                overlap_epilogue,
                math_registers: MATH_REGISTERS[usize::from(warpgroups > 2)],
                ..HopperConvConfig::default()
            })
        });
        // Sums in tensor memory are made while others leave in any case.
        let deep = tensor_memory_tiles(&COLUMNS).flat_map(|tile| DEPTHS.map(|bk| (tile, bk)));
        in_registers.chain(deep.map(|((bm, bn, warpgroups), bk)| HopperConvConfig {
            form: Form::Tcgen05,
            bm,
            bn,
            bk,
            warpgroups,
            sm_count: MULTIPROCESSORS,
            ..HopperConvConfig::default()
        }))
    }

    /// With pixels folded for the images, parts of long sums, and registers for threads that load where TMA cannot.
    fn forms(self, sizes: &[i64]) -> Vec<Self> {
        let sizes = self.sizes(sizes);
        if sizes.output(&self).is_none() {
            return Vec::new();
        }
        let folded = if self.pointwise() || self.im2col { self } else { self.folded(&sizes) };
        let aligned = |channels: i64| channels / self.groups % ALIGNED == 0;
        let whole = aligned(sizes.c) && aligned(sizes.kout);
        if self.im2col && !whole {
            return Vec::new();
        }
        let loaded = if whole {
            folded
        } else {
            let math_registers = folded.math_registers.min(if folded.warpgroups == 3 { 144 } else { 216 });
            Self { load_registers: LOADING_REGISTERS, math_registers, chunk: Some(8), ..folded }
        };
        let one = self.groups == 1 && !self.has_phases();
        let packed = folded.packed_channels(&sizes).filter(|_| aligned(sizes.kout) && !self.im2col);
        let packed = packed.map(|channels| {
            let packed = Self { pack: Some(channels), ..folded };
            packed.folded(&sizes)
        });
        let next = if whole { self.next_pixels(&sizes, &folded) } else { None };
        // A configuration that says how images are read keeps that.
        let forms = if self.pack.is_some() {
            vec![folded]
        } else {
            [Some(loaded), packed, next].into_iter().flatten().collect()
        };
        let kout = sizes.kout / self.groups;
        let shared = |form: Self| {
            let clusters = [Cluster::None, Cluster::AlongM(2)].into_iter().filter(move |_| one);
            clusters.map(move |cluster| Self { schedule: Schedule::Remainder, cluster, ..form }.exchanged())
        };
        let ways = |form: Self| {
            let parts = if one { form.parts(&sizes) } else { vec![1] };
            let parts = parts.into_iter().map(|split| Self { split, ..form }.in_order(kout));
            let parts: Vec<Self> = parts.map(|form| form.evened(&sizes)).collect();
            parts.into_iter().chain(shared(form)).chain(form.in_pairs(whole))
        };
        // Pixels that few tiles read, and no other tap; data gradients gain nothing by it.
        let columns = if self.pass == Pass::Fprop { kout } else { sizes.c / self.groups };
        let once = self.pointwise() && self.pass != Pass::Dgrad && columns <= FEW && self.hint_a.is_none();
        let hinted = |form: Self| once.then_some(Self { hint_a: Some(CacheHint::EvictFirst), ..form });
        forms.into_iter().flat_map(ways).flat_map(|form| [Some(form), hinted(form)]).flatten().collect()
    }

    fn fitted(self, given: &dyn Fn(&str) -> bool) -> Self {
        let stages = if given("stages") { self.stages } else { self.deepest().max(self.in_flight + 1) };
        let waits = stages <= FEW_STAGES && self.pass != Pass::Wgrad && self.form == Form::Wgmma;
        let waits = waits && !given("in_flight");
        Self { stages, in_flight: if waits { 0 } else { self.in_flight }, ..self }
    }

    fn suits(&self, sizes: &[i64]) -> bool {
        let sizes = self.sizes(sizes);
        if sizes.output(self).is_none() {
            return false;
        }
        let kout = sizes.kout / self.groups;
        let (taps, c) = self.depth(sizes.c / self.groups);
        let boxes = self.boxes(&sizes);
        let (columns, depth, steps) = match self.pass {
            Pass::Fprop => (kout, c, divide(c, self.bk)),
            Pass::Dgrad => (c, kout, divide(kout, self.bk)),
            Pass::Wgrad => (c, 64, boxes),
        };
        let steps = if self.pass == Pass::Wgrad { steps } else { steps * taps };
        let chunks = self.bn / self.columns();
        // Short rows of channels have short steps.
        let deep = self.bk == 64 || self.bk >= depth && self.bk < 2 * depth.max(16);
        let [m, n, _] = self.extents(&sizes);
        self.bn < 2 * columns.max(16)
            && deep
            && (self.schedule == Schedule::DataParallel || self.product().shares_out([m, n], steps))
            && (!self.overlap_epilogue || steps >= 2 * chunks)
            && (self.split == 1 || steps >= 4 * self.split)
            && (self.pass != Pass::Wgrad || self.bm < 2 * kout.max(64))
            && self.bk * bytes(self.dtype) <= 128
    }

    fn needs(&self) -> Features {
        self.form.needs()
    }

    fn reject(&self, arch: Arch) -> Option<String> {
        self.reject(arch)
    }

    fn estimate(&self, chip: Chip<'_>, sizes: &[i64]) -> f64 {
        self.explained(chip, sizes).microseconds
    }

    fn explained(&self, chip: Chip<'_>, sizes: &[i64]) -> Estimate {
        self.estimated(chip.model, &self.sizes(sizes))
    }
}
