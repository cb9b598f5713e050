//! A closed-form estimate of the time of a product, with which configurations are ranked: what the tensor cores, shared memory, the
//! port to the L2 cache and device memory want, and what begins and ends cost. Its numbers were fitted to some 1200 timings on an H200.

use super::{Cluster, FillMode, Form, HopperGemmConfig, Major, Pack, Schedule, Triangle};
use crate::warp_specialized::bytes;

/// The clock under load, in cycles a microsecond. An H200 stays well below its highest clock.
const CLOCK: f64 = 1580.0;

/// Microseconds of a launch that does nothing, as events around it see it.
const LAUNCH: f64 = 3.3;

/// Bytes a cycle that device memory delivers at best.
const READ: f64 = 2610.0;

/// Bytes a cycle that device memory takes of rows that are multiples of 32 bytes, and of others: those write parts of sectors.
const WRITE: [f64; 2] = [2050.0, 1330.0];

/// Cycles until device memory is at speed, with an L2 cache full of what others wrote.
const WARM_UP: f64 = 6500.0;

/// Cycles from the request of a stage to its product, by what blocks of a cluster wait longer where two share a factor, and where more do.
const LATENCY: f64 = 1300.0;
const SHARED_LATENCY: [f64; 2] = [1.4, 1.75];

/// Bytes a cycle of sums that a block reads of others of its cluster.
const MET: f64 = 15.0;

/// Cycles until the form for short sums writes, and bytes a cycle that it writes then.
const OUTER_WARM_UP: f64 = 1500.0;
const OUTER_WRITE: f64 = 1590.0;

/// Bytes of a line of the L2 cache, and cycles in which a multiprocessor's port takes one. A row of a box that lies across two lines takes two.
const LINE: f64 = 128.0;
const PORT: f64 = 2.0;

/// Bytes of the rows of boxes: the spans of swizzles, and those of none.
const SPANS: [f64; 4] = [128.0, 64.0, 32.0, 16.0];

/// Accesses a cycle of the warpgroup that loads where TMA cannot: through registers, of which it has few, one element each; and of `cp.async`,
/// which takes 4 bytes or 8.
const THROUGH_REGISTERS: f64 = 2.3;
const ASYNCHRONOUS: f64 = 5.0;

/// Elements a cycle that math warps store where TMA cannot.
const STORED: f64 = 8.0;

/// Bytes a microsecond that packing reads and writes, and the microseconds of its launch, during which that of the product goes on.
const PACKED: f64 = 3.0e6;
const PACKING: f64 = 1.2;

/// Microseconds of the launch that adds the parts of sums, and for each part: a thread adds them one after the other.
const ADDING: f64 = 2.0;
const EACH_PART: f64 = 0.07;

/// Microseconds for which the launch of clusters takes longer.
const CLUSTERS: f64 = 1.1;

/// Cycles for which boxes of tiles that lie beside the tensors wholly would be written as zeros.
const BESIDE: f64 = 1200.0;

/// Cycles that reads of lines that are not kept save, for they need no room, which in an L2 cache full of written lines has to be made; bytes from
/// which on they save as much, and beyond which they cost so many.
const UNKEPT: f64 = 1500.0;
const UNKEPT_FROM: f64 = 25e6;
const UNKEPT_TO: f64 = 300e6;
const UNKEPT_COST: f64 = 3000.0;

/// Bytes a cycle of sums that a block leaves for another one, and that it adds of others; and the cycles that a flag takes from one block to
/// another.
const LEFT: f64 = 50.0;
const ADDED: f64 = 30.0;
const FLAG: f64 = 3500.0;

/// Cycles that a block waits for each of the others whose sums it adds.
const OTHER: f64 = 150.0;
/// Cycles until a warpgroup has its sums of a step, and elements that one of them adds to others a cycle (not fitted: issue rates).
const PROMOTION: f64 = 60.0;
const PROMOTED: f64 = 128.0;

/// Cycles in which shared memory takes as many bytes as a line, which others of the cluster may have asked for.
const ARRIVING: f64 = 1.6;

/// Lines of the L2 cache that a row of 128 bytes counts as that begins within one: it takes two, of which its neighbours in the matrix need the other parts.
const ASTRIDE: f64 = 1.75;

/// Bytes of factors that the L2 cache holds for blocks at different places of k.
const KEPT: f64 = 40e6;

/// The part by which steps are slower whose neighbours read other places of k: the L2 cache holds less of what they share.
const SCATTERED: f64 = 1.2;

/// Bytes of which TMA wants strides to be multiples.
pub(super) const STRIDE: i64 = 16;

/// Bytes of rows of factors that are a step or two, which no later step hides; by what memory is slower then if those are no multiples of
/// the 32 bytes of a sector, and by what if a step is longer than 64 bytes (fitted to products of 4096² and 8192² with k of 8 to 40).
const SHORT: i64 = 96;
const BESIDE_SECTORS: f64 = 1.2;
const LONG_STEPS: f64 = 1.12;

/// Elements of a step of the form for short sums, beyond which its time grows, and by how much.
const DEEP: (i64, f64) = (16, 1.35);

/// Of two things that go on at once: at least the longer, and a little more where both are as long.
fn together(a: f64, b: f64, sharpness: f64) -> f64 {
    (a.powf(sharpness) + b.powf(sharpness)).powf(1.0 / sharpness)
}

/// The part of a step that products which are like those of matrices have of their own.
#[derive(Clone, Copy)]
pub(crate) struct PerStep {
    /// Cycles of a warpgroup's own work, products included.
    pub turn: f64,
    /// By what a line of the L2 cache takes longer where all multiprocessors load.
    pub line: f64,
    /// Cycles in which an element of the result leaves.
    pub store: f64,
}

/// Cycles in which an element of the result leaves with others of its row.
const STORE: f64 = 1.0 / 32.0;

impl Default for PerStep {
    fn default() -> Self {
        PerStep { turn: 0.0, line: 1.0, store: STORE }
    }
}

/// The work of a block in stream-K (see `warp_specialized/stream_k.rs`).
pub(super) struct Shares {
    /// Tiles that it does whole.
    pub whole: f64,
    /// Steps of those that are shared.
    pub each: f64,
    /// Other blocks that have a part of one of its tiles.
    pub others: f64,
}

/// The work of each of so many clusters that share so many tiles of so many steps.
pub(super) fn shares(tiles: f64, clusters: f64, steps: f64) -> Shares {
    let left = tiles % clusters;
    let shared = if left > 0.0 { tiles.min(left + clusters) } else { 0.0 };
    let each = (shared * steps / clusters).ceil();
    Shares {
        whole: ((tiles - shared) / clusters).round(),
        each,
        others: if each > 0.0 { (steps / each).ceil() } else { 0.0 },
    }
}

fn rounds(things: i64, each: i64) -> f64 {
    ((things + each - 1) / each) as f64
}

/// Cycles for which threads load these elements of lines with a stride; none where TMA does.
fn accesses(line: i64, elements: f64, size: f64) -> f64 {
    let bytes = elements * size;
    match line * size as i64 % STRIDE {
        0 => 0.0,
        rest if rest % 8 == 0 => bytes / 8.0 / ASYNCHRONOUS,
        rest if rest % 4 == 0 => bytes / 4.0 / ASYNCHRONOUS,
        rest => bytes / (if rest % 2 == 0 { 2.0 } else { 1.0 }) / THROUGH_REGISTERS,
    }
}

impl HopperGemmConfig {
    /// The estimated time of `m` × `n` × `k` in microseconds on an H200 that was idle, whose L2 cache holds nothing of the factors.
    pub fn estimate(&self, m: i64, n: i64, k: i64) -> f64 {
        self.estimate_with(PerStep::default(), [m, n, k, 1])
    }

    /// The same for `l` products, with what their steps have of their own.
    pub(crate) fn estimate_with(&self, own: PerStep, [m, n, k, l]: [i64; 4]) -> f64 {
        match self.form {
            Form::Wgmma => {}
            Form::Gemv => return self.estimate_gemv([m, n, k]),
            Form::Outer => return self.estimate_outer([m, n, k]),
        }
        let packing = self.packing_time(l, [m, n, k]);
        let [m, n, k] = self.real([m, n, k]);
        let size = self.multiplied_bytes() as f64;
        let (rows, cols) = self.sides((m, n));
        let [blocks_m, blocks_n, deep] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let blocks = self.cluster.blocks();
        let copies = l as f64 * self.split as f64;
        let tiles = self.filled(rounds(rows, self.bm * down) * rounds(cols, self.bn * across)) * copies;
        let resident = (self.sm_count.min(self.cluster.resident()) / blocks) as f64;
        let waves = (tiles / resident).ceil();
        let active = tiles.min(resident) * blocks as f64;
        let (bm, bn, bk) = (self.bm as f64, self.bn as f64, self.bk as f64);
        let columns = self.columns() as f64;
        let chunks = bn / columns;
        let steps = rounds(k, self.bk * deep * self.split);
        let steps = steps * self.triangle_of_a(m as f64, k as f64);
        let steps = if self.overlap_epilogue { steps.max(chunks) } else { steps };

        // Matrices that A is multiplied by, and sums of a tile.
        let (matrices, sums) = (self.dual.matrices() as f64, self.dual.sums() as f64);
        let parts = self.parts() as f64;
        // A step: products of 64 rows and 32 bytes of k each read their factors from shared memory.
        let products = self.terms().len() as f64 * bm / 64.0 * bk * size / 32.0;
        let multiply = products * (bn / 2.0).max(16.0);
        let shared = products * (16.0 + bn / 4.0);
        let aligned = |pitch: i64| pitch as f64 * size % LINE == 0.0;
        let lines = |major: Major, rows: f64, pitch: i64| {
            let across = if aligned(pitch) { 1.0 } else { ASTRIDE };
            let (boxes, inner) = if major == Major::K { (rows, bk) } else { (bk, rows) };
            // A row of a box lies within the span of the widest swizzle that the tile's rows are multiples of.
            let row = inner * size;
            let span = SPANS.into_iter().find(|span| row % span == 0.0).unwrap_or(SPANS[SPANS.len() - 1]);
            boxes * (row / span).max(1.0) * across
        };
        let (tall, wide) = (bm / across as f64, bn / down as f64);
        let (of_a, of_b) = self.sides((tall, wide));
        let [direct_a, direct_b] = self.lines([m, n, k]);
        let packs = self.packs();
        let packs = [packs[0], if self.squares() { packs[0] } else { packs[1] }];
        let [major_a, major_b] = self.majors();
        // Packed lines are whole lines of the L2 cache.
        let pitch = |line: i64, packed: bool| if packed { 0 } else { line };
        let (pitch_a, pitch_b) = (pitch(direct_a, packs[0]), pitch(direct_b, packs[1]));
        // Blocks of a cluster share what TMA loads.
        let (all_a, all_b) = self.sides((bm, bn));
        let loading = accesses(pitch_a, all_a * bk, size) + matrices * accesses(pitch_b, all_b * bk, size);
        let crowded = 1.0 + (own.line - 1.0) * (active / self.sm_count as f64).min(1.0);
        let port = PORT
            * crowded
            * parts
            * (lines(major_a, of_a, pitch_a) + matrices * lines(major_b, of_b, pitch_b));
        // Requests of neighbours for the same whole lines are merged.
        let sharpness = if aligned(pitch_a) && aligned(pitch_b) { 9.0 } else { 6.0 };
        // What blocks of a cluster share arrives at each of them.
        let arriving = ARRIVING * parts * (all_a + matrices * all_b) * bk * size / LINE;
        let busy = together(multiply, port.max(arriving), sharpness);
        // A warpgroup adds its sums while another multiplies.
        let promoting = match (self.promotes(), self.warpgroups) {
            (false, _) => 0.0,
            (true, 1) => PROMOTION + bm * bn / PROMOTED,
            (true, _) => (PROMOTION + bm * bn / PROMOTED - multiply / 2.0).max(0.0),
        };
        let busy = busy + promoting;
        let longer = match down * across {
            1 => 1.0,
            2 => SHARED_LATENCY[0],
            _ => SHARED_LATENCY[1],
        };
        let waiting = together(shared, LATENCY * longer / self.stages as f64, 6.0);
        let few_stages = if self.stages < 4 { 1.02 } else { 1.0 };
        let narrow = if self.bn < 256 { 1.01 } else { 1.0 };
        // Blocks of a cluster wait for the slowest of them before a stage is filled again.
        let in_step = if down * across > 1 { 1.012 } else { 1.0 };
        let step =
            together(together(busy, waiting, 8.0), own.turn, 8.0) / 0.98 * few_stages * narrow * in_step;
        let step = step.max(loading);

        // A tile, and what is not hidden behind others.
        let stores = if self.squares() { 2.0 } else { 1.0 };
        let drain = 600.0 + stores * chunks * (200.0 + sums * bm * columns * own.store);
        let by_threads = if n * bytes(self.stored()) % STRIDE == 0 { 0.0 } else { bm * bn / STORED };
        // Results that leave during the next tile's steps take longer than these, if their rows are short.
        let beyond = if own.store > STORE { (bm * bn * own.store - steps * step).max(0.0) } else { 0.0 };
        let leaving = if self.overlap_epilogue { 200.0 + 60.0 * chunks + beyond } else { drain } + by_threads;
        // Every block reads what all of its cluster have summed.
        let meeting = if deep > 1 { 1000.0 + bm * bn * 4.0 * deep as f64 / MET } else { 0.0 };
        let last = if self.overlap_epilogue { drain } else { 0.0 };
        let tile = steps * step + leaving + meeting;
        let all = |rows: i64, cols: i64, bytes: i64| {
            [l, rows, cols, bytes].map(|n| n as f64).iter().product::<f64>()
        };
        let element = parts as i64 * self.multiplied_bytes();
        let (a, b) = (all(m, k, element), matrices * all(n, k, element));
        let b = if self.squares() { 0.0 } else { b };
        let cycles = match self.schedule {
            Schedule::DataParallel => 1300.0 + waves * tile + last,
            Schedule::StreamK => {
                let Shares { whole, each, others } = shares(tiles, resident, steps);
                let left = 4.0 * bm * bn / LEFT;
                let added = if others > 0.0 { FLAG + others * (OTHER + 4.0 * bm * bn / ADDED) } else { 0.0 };
                // What the L2 cache does not hold every block reads for itself, for its neighbours are at other places of k.
                let missing = (1.0 - KEPT / (a + b)).max(0.0) * active * parts * (all_a + matrices * all_b);
                let scattered = (step * SCATTERED).max(missing * bk * size / READ);
                1300.0 + whole * tile + last + each * scattered + left + added + drain
            }
        };

        // Device memory: what is in flight limits how fast it comes.
        let c = all(m, n, bytes(self.result())) * if self.fill == FillMode::Lower { 0.5 } else { 1.0 };
        let in_flight = active * self.stages as f64 * parts * (all_a + matrices * all_b) * bk * size;
        let write = if n * bytes(self.result()) % 32 == 0 { WRITE[0] } else { WRITE[1] };
        let mut memory = (a + b) / READ.min(in_flight / 1500.0) + c / write + WARM_UP;
        let shares_the_smaller = match self.cluster {
            Cluster::AlongM(_) => b < a,
            Cluster::AlongN(_) => a < b,
            Cluster::None | Cluster::AlongMn(..) | Cluster::AlongK(_) => false,
        };
        if shares_the_smaller {
            memory *= 1.1;
        }
        if self.hint_b.is_some() {
            memory += if b < UNKEPT_TO { -UNKEPT * (b / UNKEPT_FROM).min(1.0) } else { UNKEPT_COST };
        }
        let clusters = if blocks > 1 { CLUSTERS } else { 0.0 };
        let adding = self.adding(all(m, n, 4));
        let row = k * self.multiplied_bytes();
        if row <= SHORT {
            memory *= if row % 32 == 0 { 1.0 } else { BESIDE_SECTORS };
            memory *= if self.bk * self.multiplied_bytes() > 64 { LONG_STEPS } else { 1.0 };
        }
        let covered = rounds(rows, self.bm) * bm * rounds(cols, self.bn) * bn;
        let beside = BESIDE * (1.0 - (rows as f64 / covered) * cols as f64);
        LAUNCH + (together(cycles, memory, 6.0) + beside) / CLOCK + clusters + adding + packing
    }

    /// Microseconds of the kernel ahead, which reads factors and writes their copies.
    fn packing_time(&self, l: i64, sizes: [i64; 3]) -> f64 {
        let [m, n, k] = self.real(sizes).map(|size| size as f64);
        // A matrix that is real stands for one of half as many rows.
        let read_of_b = if self.complex { n / 2.0 } else { n };
        let written = self.parts() as f64 * self.multiplied_bytes() as f64;
        let copy =
            |(rows, read): (f64, f64)| l as f64 * k * (read * bytes(self.dtype) as f64 + rows * written);
        let copies = [(m, m), (n, read_of_b)].into_iter().zip(self.packs());
        let copied: f64 = copies.filter(|(_, packed)| *packed).map(|(factor, _)| copy(factor)).sum();
        if copied > 0.0 { PACKING + copied / PACKED } else { 0.0 }
    }

    /// Microseconds in which the parts of k are added, each of so many bytes.
    fn adding(&self, bytes: f64) -> f64 {
        let parts = self.split as f64;
        if self.split > 1 { ADDING + EACH_PART * parts + 2.0 * bytes * parts / 3500.0 / CLOCK } else { 0.0 }
    }

    /// The estimated time of the form for short sums.
    fn estimate_outer(&self, [m, n, k]: [i64; 3]) -> f64 {
        let wide = n * bytes(self.result()) % STRIDE == 0;
        let (rows, cols, depth) = (m as f64, n as f64, k as f64);
        let read = (rows + cols) * depth * bytes(self.dtype) as f64;
        let write = if n * bytes(self.result()) % 32 == 0 { OUTER_WRITE } else { WRITE[1] };
        let memory = read / READ + rows * cols * bytes(self.result()) as f64 / write + OUTER_WARM_UP;
        let deep = if self.bk > DEEP.0 { DEEP.1 } else { 1.0 };
        LAUNCH + deep * together(self.outer_cycles([m, n, k], wide), memory, 6.0) / CLOCK
    }

    /// The estimated time of the form for few columns or rows.
    fn estimate_gemv(&self, [m, n, k]: [i64; 3]) -> f64 {
        let (busy, in_flight) = self.gemv_cycles([m, n, k]);
        let (rows, cols, depth) = (m as f64, n as f64, k as f64);
        let read = (rows + cols) * depth * bytes(self.dtype) as f64;
        let write = rows * cols * bytes(self.result()) as f64;
        let memory = read / READ.min(in_flight / 1500.0) + write / WRITE[1] + WARM_UP;
        LAUNCH + together(busy, memory, 6.0) / CLOCK + self.adding(rows * cols * 4.0)
    }

    /// Elements of a contiguous line of a and of b.
    pub(super) fn lines(&self, [m, n, k]: [i64; 3]) -> [i64; 2] {
        [(self.a, m), (self.b, n)].map(|(major, rows)| if major == Major::K { k } else { rows })
    }

    /// The factors that TMA cannot read where they lie.
    pub(super) fn unaligned(&self, sizes: [i64; 3]) -> Pack {
        let [a, b] = self.lines(self.real(sizes)).map(|line| line * bytes(self.dtype) % STRIDE != 0);
        // Those that are packed in any case are read as they are.
        let [packed_a, packed_b] = Self { pack: Pack::None, ..*self }.packs();
        Pack::of([a && !packed_a, b && !packed_b && !self.squares()])
    }

    /// The factors whose lines begin within those of the L2 cache.
    pub(super) fn astride(&self, sizes: [i64; 3]) -> Pack {
        let [a, b] = self.lines(self.real(sizes)).map(|line| line * bytes(self.dtype) % LINE as i64 != 0);
        let [packed_a, packed_b] = Self { pack: Pack::None, ..*self }.packs();
        Pack::of([a && !packed_a, b && !packed_b && !self.squares()])
    }

    /// The tiles of clusters that are computed of so many.
    fn filled(&self, tiles: f64) -> f64 {
        if self.fill == FillMode::Full { tiles } else { (tiles + tiles.sqrt()) / 2.0 }
    }

    /// The part of the elements of A that are in its triangle.
    fn triangle_of_a(&self, m: f64, k: f64) -> f64 {
        let lower = if m <= k { m / k / 2.0 } else { 1.0 - k / m / 2.0 };
        match self.triangular {
            Triangle::None => 1.0,
            Triangle::Lower => lower,
            Triangle::Upper => 1.0 - lower,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OVERLAPPED: fn(i64) -> HopperGemmConfig =
        |bn| HopperGemmConfig { bn, overlap_epilogue: true, ..HopperGemmConfig::default() };

    #[test]
    fn a_tile_that_fills_the_last_round_is_ahead() {
        // 1024 × 6144: 192 tiles of 128 × 256 are 1.45 rounds of 132 blocks, 256 of 128 × 192 are 1.94.
        assert!(OVERLAPPED(192).estimate(1024, 6144, 4096) < OVERLAPPED(256).estimate(1024, 6144, 4096));
        assert!(OVERLAPPED(256).estimate(8192, 8192, 8192) < OVERLAPPED(128).estimate(8192, 8192, 8192));
    }

    #[test]
    fn rows_across_lines_want_clusters() {
        // Rows of 7624 elements begin anywhere within a line of the cache, those of 8192 do not.
        let alone = OVERLAPPED(256);
        let shared = HopperGemmConfig { cluster: Cluster::AlongM(2), ..alone };
        assert!(shared.estimate(8192, 8192, 7624) < 0.9 * alone.estimate(8192, 8192, 7624));
        assert!(alone.estimate(8192, 8192, 8192) < shared.estimate(8192, 8192, 8192));
    }

    #[test]
    fn rows_that_tma_cannot_read_are_packed_where_that_pays() {
        let large = OVERLAPPED(256);
        let packed = HopperGemmConfig { pack: Pack::Both, ..large };
        assert_eq!(large.unaligned([8000, 8000, 8001]), Pack::Both);
        assert!(packed.estimate(8000, 8000, 8001) < 0.3 * large.estimate(8000, 8000, 8001));
        assert!(large.estimate(8000, 8000, 8000) < packed.estimate(8000, 8000, 8000));
        assert_eq!(large.unaligned([8001, 8001, 8000]), Pack::None);
        let stored = HopperGemmConfig { b: Major::Mn, ..large };
        assert_eq!(stored.unaligned([8000, 8001, 8000]), Pack::B);
        // A block's one short tile is loaded before another kernel has begun.
        let small = HopperGemmConfig { bm: 64, bn: 16, warpgroups: 1, ..HopperGemmConfig::default() };
        let packed = HopperGemmConfig { pack: Pack::Both, ..small };
        assert!(small.estimate(16, 16, 65) < packed.estimate(16, 16, 65));
    }

    #[test]
    fn the_shortest_sums_have_the_form_that_was_fastest() {
        // 4096 × 4096, H200: k = 8 took 17.1 µs by mma.sync and 20.5 by wgmma, k = 24 26.9 and 17.6.
        let outer =
            |bk| HopperGemmConfig { form: Form::Outer, bm: 128, bn: 128, bk, ..HopperGemmConfig::default() };
        let tiled = |bk| HopperGemmConfig { bm: 256, bn: 192, bk, stages: 3, ..HopperGemmConfig::default() };
        assert!(outer(16).estimate(4096, 4096, 8) < tiled(32).estimate(4096, 4096, 8));
        assert!(tiled(32).estimate(4096, 4096, 24) < outer(32).estimate(4096, 4096, 24));
        assert!(tiled(32).estimate(4096, 4096, 24) < tiled(64).estimate(4096, 4096, 24));
    }

    #[test]
    fn the_largest_sizes_have_an_estimate() {
        let most = i64::from(i32::MAX);
        let all =
            HopperGemmConfig { split: 2, ..OVERLAPPED(256) }.estimate_with(PerStep::default(), [most; 4]);
        assert!(all.is_finite() && all > OVERLAPPED(256).estimate(most, most, most), "{all}");
    }

    #[test]
    fn few_rows_are_swapped_and_few_tiles_are_split() {
        let few = |swap, bm, bn, warpgroups, split| {
            let config = HopperGemmConfig {
                swap,
                bm,
                bn,
                warpgroups,
                split,
                stages: 5,
                ..HopperGemmConfig::default()
            };
            config.estimate(128, 4096, 14336)
        };
        assert!(few(true, 128, 128, 2, 4) < few(true, 128, 128, 2, 1));
        let swapped = |swap, stages| {
            let config = HopperGemmConfig {
                swap,
                bm: 64,
                bn: 16,
                stages,
                warpgroups: 1,
                ..HopperGemmConfig::default()
            };
            config.estimate(16, 8192, 8192)
        };
        assert!(swapped(true, 20) < swapped(false, 20) && swapped(true, 20) < swapped(true, 3));
    }
}
