//! A closed-form estimate of the time of a product, with which configurations are ranked: what the tensor cores, shared memory, the
//! port to the L2 cache and device memory want, and what begins and ends cost. Its numbers were fitted to some 1200 timings on an H200.

use super::{Cluster, HopperGemmConfig, Major};
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

/// Cycles from the request of a stage to its product.
const LATENCY: f64 = 1300.0;

/// Bytes of a line of the L2 cache, and cycles in which a multiprocessor's port takes one. A row of a box that lies across two lines takes two.
const LINE: f64 = 128.0;
const PORT: f64 = 2.0;

/// Of two things that go on at once: at least the longer, and a little more where both are as long.
fn together(a: f64, b: f64, sharpness: f64) -> f64 {
    (a.powf(sharpness) + b.powf(sharpness)).powf(1.0 / sharpness)
}

fn rounds(things: i64, each: i64) -> f64 {
    ((things + each - 1) / each) as f64
}

impl HopperGemmConfig {
    /// The estimated time of `m` × `n` × `k` in microseconds on an H200 that was idle, whose L2 cache holds nothing of the factors.
    pub fn estimate(&self, m: i64, n: i64, k: i64) -> f64 {
        self.estimate_with(0.0, [m, n, k, 1])
    }

    /// The same for `l` products, where a warpgroup has its own work for `turn` cycles a step, products included.
    pub(crate) fn estimate_with(&self, turn: f64, [m, n, k, l]: [i64; 4]) -> f64 {
        let size = bytes(self.dtype) as f64;
        let (rows, cols) = self.sides((m, n));
        let [blocks_m, blocks_n, deep] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let blocks = self.cluster.blocks();
        let copies = l as f64 * self.split as f64;
        let tiles = rounds(rows, self.bm * down) * rounds(cols, self.bn * across) * copies;
        let resident = (self.sm_count.min(self.cluster.resident()) / blocks) as f64;
        let waves = (tiles / resident).ceil();
        let active = tiles.min(resident) * blocks as f64;
        let (bm, bn, bk) = (self.bm as f64, self.bn as f64, self.bk as f64);
        let columns = self.columns() as f64;
        let chunks = bn / columns;
        let steps = rounds(k, self.bk * deep * self.split);
        let steps = if self.overlap_epilogue { steps.max(chunks) } else { steps };

        // A step: products of 64 rows and 32 bytes of k each read their factors from shared memory.
        let products = bm / 64.0 * bk * size / 32.0;
        let multiply = products * (bn / 2.0).max(16.0);
        let shared = products * (16.0 + bn / 4.0);
        let aligned = |pitch: i64| pitch as f64 * size % LINE == 0.0;
        let lines = |major: Major, rows: f64, pitch: i64| {
            let across = if aligned(pitch) { 1.0 } else { 2.0 };
            let (boxes, inner) = if major == Major::K { (rows, bk) } else { (bk, rows) };
            boxes * (inner * size / LINE).max(1.0) * across
        };
        let (tall, wide) = (bm / across as f64, bn / down as f64);
        let (of_a, of_b) = self.sides((tall, wide));
        let pitch = |major: Major, rows: i64| if major == Major::K { k } else { rows };
        let (pitch_a, pitch_b) = (pitch(self.a, m), pitch(self.b, n));
        let port = PORT * (lines(self.a, of_a, pitch_a) + lines(self.b, of_b, pitch_b));
        // Requests of neighbours for the same whole lines are merged.
        let sharpness = if aligned(pitch_a) && aligned(pitch_b) { 9.0 } else { 6.0 };
        let busy = together(multiply, port, sharpness);
        let waiting = together(shared, LATENCY / self.stages as f64, 6.0);
        let few_stages = if self.stages < 4 { 1.02 } else { 1.0 };
        let narrow = if self.bn < 256 { 1.01 } else { 1.0 };
        // Blocks of a cluster wait for the slowest of them before a stage is filled again.
        let in_step = if down * across > 1 { 1.012 } else { 1.0 };
        let step = together(together(busy, waiting, 8.0), turn, 8.0) / 0.98 * few_stages * narrow * in_step;

        // A tile, and what is not hidden behind others.
        let drain = 600.0 + chunks * (200.0 + bm * columns / 32.0);
        let leaving = if self.overlap_epilogue { 200.0 + 60.0 * chunks } else { drain };
        // Every block reads what all of its cluster have summed.
        let meeting = if deep > 1 { 1000.0 + bm * bn * 4.0 * deep as f64 / 5.0 } else { 0.0 };
        let last = if self.overlap_epilogue { drain } else { 0.0 };
        let cycles = 1300.0 + waves * (steps * step + leaving + meeting) + last;

        // Device memory: what is in flight limits how fast it comes.
        let all = |rows: i64, cols: i64, bytes: i64| {
            [l, rows, cols, bytes].map(|n| n as f64).iter().product::<f64>()
        };
        let (a, b) = (all(m, k, bytes(self.dtype)), all(n, k, bytes(self.dtype)));
        let c = all(m, n, bytes(self.result()));
        let in_flight = active * self.stages as f64 * (bm + bn) * bk * size;
        let write = if n * bytes(self.result()) % 32 == 0 { WRITE[0] } else { WRITE[1] };
        let mut memory = (a + b) / READ.min(in_flight / 1500.0) + c / write + WARM_UP;
        let shares_the_smaller = match self.cluster {
            Cluster::AlongM(_) => b < a,
            Cluster::AlongN(_) => a < b,
            Cluster::None | Cluster::AlongK(_) => false,
        };
        if shares_the_smaller {
            memory *= 1.1;
        }
        if self.hint_b.is_some() {
            // Lines that are not kept need no room, which in an L2 cache full of written lines has to be made.
            memory += if b < 300e6 { -1500.0 } else { 3000.0 };
        }
        let clusters = if blocks > 1 { 0.5 } else { 0.0 };
        let adding = match self.split {
            1 => 0.0,
            parts => 2.5 + 2.0 * all(m, n, 4 * parts) / 3500.0 / CLOCK,
        };
        LAUNCH + together(cycles, memory, 6.0) / CLOCK + clusters + adding
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
    fn the_largest_sizes_have_an_estimate() {
        let most = i64::from(i32::MAX);
        let all = HopperGemmConfig { split: 2, ..OVERLAPPED(256) }.estimate_with(0.0, [most; 4]);
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
