//! The form for short sums (an outer product, nearly): bound by writing C. A block multiplies one tile by `mma.sync` with no pipeline, several
//! blocks a multiprocessor hide each other's latencies, and results leave through shared memory in pieces as wide as C's rows allow.

use tilewright_machine::DType;
use tilewright_tile::Program;
use tilewright_tile::dsl::{KernelBuilder, block_x, block_y, steps, tile};

use super::estimate::STRIDE;
use super::tile::{Finish, Tile};
use super::{Form, HopperGemmConfig, Pack};
use crate::config::ConfigError;
use crate::epilogue::EpilogueOp;
use crate::model::Numbers;
use crate::warp_specialized::{Problem, bytes, within};

/// Rows and columns of the tile, and warpgroups, worth trying. 128 × 128 by two took 5 to 47 % longer than the fastest of others in 40 products of an H100 and an
/// H200, and 10 % longer than 64 × 96 in the one where it did not.
const TILES: [(i64, i64, i64); 8] = [
    (64, 128, 2),
    (64, 128, 1),
    (32, 128, 1),
    (64, 96, 1),
    (64, 64, 1),
    (32, 64, 1),
    (64, 32, 1),
    (32, 32, 1),
];

/// Columns of which a tile's rows are a line of the L2 cache and a half: in 18 products of an H100 with 96 columns such a tile took up to 20 % longer than the fastest of the others, and
/// never less. It is there where it has all columns.
const LINE_AND_HALF: i64 = 96;

/// Elements of the largest of them: a record of another size with 128 × 128 was the choice for 4328 × 1768 × 56, which took 17.9 µs on an H100 and cuBLASLt 14.0.
const LARGEST: i64 = 64 * 128;

/// Lengths of sums that one step holds.
const DEPTHS: [i64; 3] = [16, 32, 64];

/// Cycles of a block's begin and end, of a byte of a result that goes to shared memory, from there and to C, and of an element that threads store alone: fitted
/// to 365 timings of 120 products on H100s and H200s, that of a byte with those in turns: 12042 × 8568 × 16 takes 75.7 µs on an H100, 3000 × 14000 × 16 32.1.
const BLOCK: f64 = 384.0;
const SHARED: f64 = 0.042;
const NARROW: f64 = 0.11;

/// Cycles for which a block waits until its warpgroups have met, for each behind the first: on an H100 251 × 18976 × 8 takes 10.2 µs in tiles of 64 × 128 of one warpgroup and 11.6 of two,
/// 5475 × 3824 × 8 21.0 and 22.5; where each multiprocessor has a block both take as long.
const MEETING: f64 = 190.0;

/// Cycles of a step behind the first, whose loads wait for the step before it, and accesses of a multiprocessor in a cycle: fitted to 25 timings of 11 products
/// on H100s.
const STEP: f64 = 2200.0;
const ACCESSES: f64 = 5.4;

/// Registers of a thread for the rows and columns of factors of a step of 64 elements, for each of the side of a square of as many elements as a warp has: fitted to 7,300 timings. On an H200 4096 × 4096 takes
/// 17.1 µs in tiles of 128 × 128 with steps of 16, of which a multiprocessor holds two, and 26.9 with steps of 32, of which it holds one.
const FRAGMENTS: f64 = 1.5;

/// Sums of a thread, at most.
const SUMS: i64 = 64;

impl HopperGemmConfig {
    /// The points of this form's space.
    pub(super) fn outer_points() -> impl Iterator<Item = Self> {
        TILES.into_iter().flat_map(|(bm, bn, warpgroups)| {
            DEPTHS.map(|bk| Self { form: Form::Outer, bm, bn, bk, warpgroups, ..Self::default() })
        })
    }

    /// Returns whether the tile holds all of k, or else its steps are the longest and TMA cannot read the factors, and is one of those worth trying in proportion to the problem.
    pub(super) fn outer_suits(&self, m: i64, n: i64, k: i64) -> bool {
        let fits = |tile: i64, least: i64, size: i64| tile <= least || tile < 2 * size;
        let long = self.bk == DEPTHS[DEPTHS.len() - 1] && self.unaligned([m, n, k]) == Pack::Both;
        (k <= self.bk || long)
            && (self.bk == DEPTHS[0] || 2 * k > self.bk)
            && self.bm * self.bn <= LARGEST
            && (self.bn != LINE_AND_HALF || n <= self.bn)
            && fits(self.bm, 32, m)
            && fits(self.bn, 64, n)
    }

    /// The estimated cycles of all steps behind the first.
    pub(super) fn outer_longer(&self, [m, n, k]: [i64; 3]) -> f64 {
        let up = |size: i64, of: i64| ((size + of - 1) / of) as f64;
        let blocks = up(m, self.bm) * up(n, self.bn);
        let accesses = |line: i64, rows: i64, all: i64| {
            let width = 1_i64 << ((line * bytes(self.dtype)) | STRIDE).trailing_zeros();
            (rows.min(all) * self.bk * bytes(self.dtype)) as f64 / width as f64
        };
        let [a, b] = self.lines([m, n, k]);
        let loads = accesses(a, self.bm, m) + accesses(b, self.bn, n);
        (up(k, self.bk) - 1.0) * STEP.max((blocks / self.sm_count as f64).ceil() * loads / ACCESSES)
    }

    /// The estimated cycles of all blocks but for memory. The flag: TMA could store C.
    pub(super) fn outer_cycles(&self, model: &Numbers, [m, n, _]: [i64; 3], wide: bool) -> f64 {
        let up = |size: i64, of: i64| ((size + of - 1) / of) as f64;
        let (blocks, threads) = (up(m, self.bm) * up(n, self.bn), 128 * self.warpgroups);
        let elements = self.bm * self.bn;
        let of_warp = (elements / (4 * self.warpgroups)) as f64;
        let fragments = (FRAGMENTS * of_warp.sqrt() * self.bk as f64 / 64.0) as i64;
        let registers = 40 + elements / threads * if wide { 1 } else { 3 } + fragments;
        let resident = (2048 / threads).min(65_536 / (threads * registers)).max(1) as f64;
        let elements = elements as f64;
        let busy = if wide { elements * SHARED * bytes(self.result()) as f64 } else { elements * NARROW };
        let meeting = MEETING * (self.warpgroups - 1) as f64;
        let (busy, latency) = (BLOCK + meeting + busy, model.outer_latency);
        // A block that has a multiprocessor for itself hides none of its latency behind another's work.
        let each = busy.max((busy + latency) / resident);
        (blocks / self.sm_count as f64).ceil() * each + latency
    }

    /// Checks the tile.
    pub(super) fn check_outer(&self) -> Result<(), ConfigError> {
        if bytes(self.dtype) != 2 {
            return Err(ConfigError::value("dtype", self.dtype, "form=outer multiplies f16 or bf16"));
        }
        within("warpgroups", self.warpgroups, [1, 4], 1)?;
        within("bm", self.bm, [32, 256], 32)?;
        within("bn", self.bn, [32, 256], 32)?;
        within("bk", self.bk, [16, 64], 16)?;
        let (sums, threads) = (self.bm * self.bn, 128 * self.warpgroups);
        // A warp has at least one product of 16 × 8, and 16 columns for a wide store.
        if !(8 * threads..=SUMS * threads).contains(&sums) {
            let wanted = format!(
                "{} × {} elements must be from 8 to {SUMS} of each of {threads} threads",
                self.bm, self.bn
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }

    /// C, a tile a block.
    pub(super) fn outer(&self, custom: &[&dyn EpilogueOp]) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("outer");
        let [m, n, k] = ["m", "n", "k"].map(|name| t.size(name, if name == "k" { 16 } else { 4096 }));
        let [bm, bn, bk] =
            [("BM", self.bm), ("BN", self.bn), ("BK", self.bk)].map(|(name, value)| t.constant(name, value));
        let problem = Problem::one(m.clone(), n.clone());
        let a = problem.matrix(&mut t, "a", self.dtype, [&m, &k], self.a, None);
        let b = problem.matrix(&mut t, "b", self.right(), [&n, &k], self.b, None);
        let finish = Finish::declare(&mut t, self.applied(custom), &problem, self.result());
        t.grid([n.ceil_div(&bn), m.ceil_div(&bm)]);
        t.threads(128 * self.warpgroups);
        let count = k.ceil_div(&bk);
        let on = Tile {
            row: block_y() * &bm,
            col: block_x() * &bn,
            shape: [bm.clone(), bn.clone()],
            product: None,
        };
        let ga = t.global_view(
            "ga",
            a.from([on.row.clone(), 0.into()]),
            [tile(0, &bm), tile(1, &bk), steps(1, &count, &bk)],
        );
        let gb = t.global_view(
            "gb",
            b.from([on.col.clone(), 0.into()]),
            [tile(0, &bn), tile(1, &bk), steps(1, &count, &bk)],
        );
        let gc = finish.view(&mut t, &on);
        let (sa, sb) =
            (t.shared_tensor("sa", self.dtype, [&bm, &bk]), t.shared_tensor("sb", self.dtype, [&bn, &bk]));
        if self.dependent {
            t.wait_dependencies();
        }
        let sums = t.register_tensor("sums", DType::F32, [&bm, &bn]);
        t.fill(&sums, 0.0);
        t.for_range("i", 0, &count, |t, i| {
            t.copy_async(ga.at(i.clone()), sa);
            t.copy_async(gb.at(i), sb);
            t.commit_group();
            t.wait_group(0);
            t.syncthreads();
            let (ra, rb) = (
                t.register_tensor("ra", self.dtype, [&bm, &bk]),
                t.register_tensor("rb", self.dtype, [&bn, &bk]),
            );
            t.copy(sa, ra);
            t.copy(sb, rb);
            t.gemm(&sums, ra, rb);
            t.syncthreads();
        });
        finish.store_staged(&mut t, &on, sums, gc);
        if self.dependent {
            t.launch_dependents();
        }
        Ok(t.finish()?)
    }
}
