//! The form for a factor of few rows, at most 8 (GEMV): bound by reading the other one. A block multiplies `bm` rows of it by up to `bn` of the
//! few, each thread a part of k, and adds what its threads have at the end. Rows of any stride are read in pieces as wide as they allow.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Tensor, block_x, block_y, block_z, steps, tile};
use tilewright_tile::{Expr, Program, ReduceOp};

use super::estimate::{STRIDE, together, warm_up};
use super::tile::{Finish, Tile};
use super::{Form, HopperGemmConfig, Major};
use crate::config::ConfigError;
use crate::epilogue::EpilogueOp;
use crate::model::Numbers;
use crate::parts::{Estimate, Part};
use crate::warp_specialized::{Problem, bytes, bytes_of, within};

/// The most rows of the factor of few.
pub(super) const FEW: i64 = 8;

/// 32-bit registers of a thread for sums, at most.
const SUMS: i64 = 64;

/// Steps along k whose loads are written out together.
const TOGETHER: i64 = 2;

/// Rows and columns of the tile, and warpgroups, worth trying: for rows that are contiguous along k, and for others.
const TILES: [(i64, i64, i64); 9] = [
    (4, 256, 1),
    (8, 128, 1),
    (8, 256, 1),
    (8, 512, 1),
    (16, 256, 1),
    (8, 1024, 2),
    (64, 16, 1),
    (64, 32, 1),
    (128, 32, 2),
];

/// Parts of k worth trying.
const SPLITS: [i64; 6] = [1, 2, 4, 8, 16, 32];

/// Cycles in which a multiprocessor adds what the threads of a block have of a vector: fitted to 328 timings of 65 products on H100s and an H200.
const ENDING: f64 = 60.0;

/// Registers of a thread beside its sums and its elements, and those for each vector: fitted to what `ptxas` says of 68 kernels.
const OTHERS: i64 = 20;
const OF_A_VECTOR: i64 = 3;

/// Bytes of a register. A piece that is loaded has one of its own where it is no wider.
const REGISTER: i64 = 4;

/// Part by which device memory is slower for rows of pieces that are narrower than a register, of which a warp asks for 64 bytes at a time: fitted with the cycles above.
const NARROW_PIECES: f64 = 1.5;

/// Registers that a thread can have, and of which it has a multiple.
const MOST_REGISTERS: i64 = 255;
const REGISTERS_TOGETHER: i64 = 8;

/// Blocks that a multiprocessor holds.
const MOST_BLOCKS: i64 = 32;

/// The place of results.
enum Target<'a> {
    C(Finish<'a>),
    /// Sums of parts of k.
    Partial(Buffer),
}

impl HopperGemmConfig {
    /// The points of this form's space.
    pub(super) fn gemv_points() -> impl Iterator<Item = Self> {
        let tiles = TILES.into_iter().flat_map(|tile| [1, 2, 4, FEW].map(|bn| (tile, bn)));
        let ways = tiles.flat_map(|tile| [false, true].map(|swap| (tile, swap)));
        ways.flat_map(|(((bm, bk, warpgroups), bn), swap)| {
            let one = Self { form: Form::Gemv, bm, bn, bk, warpgroups, swap, ..Self::default() };
            SPLITS.map(|split| Self { split, ..one })
        })
    }

    /// Returns whether the tile and the parts are in proportion to the problem.
    pub(super) fn gemv_suits(&self, m: i64, n: i64, k: i64) -> bool {
        let (rows, few) = self.sides((m, n));
        let (major, _) = self.sides((self.a, self.b));
        let steps = (k + self.bk - 1) / self.bk;
        few <= FEW
            && self.bn.cast_unsigned() == few.cast_unsigned().next_power_of_two()
            && (major == Major::K) == (self.bk > self.bm)
            && (self.bm <= 8 || self.bm < 2 * rows || major != Major::K)
            && (self.split == 1 || steps >= 2 * self.split)
    }

    /// The estimated time of the form for few columns or rows.
    pub(super) fn estimate_gemv(&self, model: &Numbers, [m, n, k]: [i64; 3]) -> Estimate {
        let cycles = self.gemv_cycles(model, [m, n, k]);
        let (rows, cols, depth) = (m as f64, n as f64, k as f64);
        let read = (rows + cols) * depth * bytes(self.dtype) as f64;
        let write = rows * cols * bytes(self.result()) as f64;
        let [a, b] = self.lines([m, n, k]);
        let slower = self.gemv_reads(self.sides((a, b)).0);
        let memory = slower * read / model.read + write / model.write + warm_up(model, read + write);
        let (both, adding) = (together(cycles, memory, 6.0), self.adding(model, rows * cols * 4.0));
        let of = |cycles: f64| cycles / model.clock;
        let parts = [
            (Part::Launch, model.launch),
            (Part::Prologue, of(model.gemv_prologue)),
            (Part::Steps, of(cycles - model.gemv_prologue)),
            (Part::Memory, of(both - cycles)),
            (Part::SplitSums, adding),
        ];
        Estimate::of(model.launch + both / model.clock + adding, &parts)
    }

    /// The estimated cycles: those of the instructions or of the accesses, or of the loads that wait for each other.
    fn gemv_cycles(&self, model: &Numbers, [m, n, k]: [i64; 3]) -> f64 {
        let (rows, few) = self.sides((m, n));
        let (long, vector) = {
            let [a, b] = self.lines([m, n, k]);
            self.sides((a, b))
        };
        let (size, threads) = (bytes(self.dtype) as f64, self.gemv_threads());
        let up = |size: i64, of: i64| ((size + of - 1) / of) as f64;
        let blocks = up(rows, self.bm) * up(few, self.bn) * self.split as f64;
        let registers = self.gemv_registers(long);
        let resident = (2048 / threads).min(65_536 / (threads * registers)).clamp(1, MOST_BLOCKS) as f64;
        let at_once = blocks.min(self.sm_count as f64 * resident);
        let active = blocks.min(self.sm_count as f64);
        let elements = up(rows, self.bm) * up(few, self.bn) * up(k, self.bk) * (self.bm * self.bk) as f64;
        // Rows that a warp has share the elements of a vector.
        let again = (4.0 * self.warpgroups as f64 / self.bm as f64).min(1.0) * self.bn as f64;
        let converted = model.gemv_converted;
        let compute = elements * (converted + self.bn as f64 + converted * again) / (128.0 * active);
        let width = |line: i64| self.piece(line) as f64;
        let accesses = elements * size * (1.0 / width(long) + again / width(vector)) / 32.0;
        let busy = compute.max(model.gemv_access * accesses / active);
        let ending = ENDING * self.bn as f64 * (blocks / active).ceil();
        let waves = (blocks / at_once).ceil();
        let steps = (k + self.bk - 1) / self.bk;
        let waits = up((steps + self.split - 1) / self.split, TOGETHER);
        // A block begins as another ends: what a multiprocessor has to do is that of the most blocks of one.
        let busy = busy * (blocks / active).ceil() / (blocks / active);
        let waiting = waves * waits * model.gemv_latency;
        let beside = model.gemv_prologue + ending;
        // A block's own work is not done while it waits, that of the others is.
        let own = busy * active / at_once;
        together(beside + busy, beside + waiting + own, 6.0)
    }

    /// Bytes of the widest pieces in which lines of so many elements can be loaded.
    fn piece(&self, line: i64) -> i64 {
        1 << (bytes_of(line, self.dtype) | STRIDE).trailing_zeros()
    }

    /// Part by which device memory is slower for lines of so many elements.
    fn gemv_reads(&self, line: i64) -> f64 {
        if self.piece(line) < REGISTER { NARROW_PIECES } else { 1.0 }
    }

    /// Registers of a thread where lines of the long factor have so many elements: its sums, and the elements of both factors of the steps whose loads are written out together.
    fn gemv_registers(&self, line: i64) -> i64 {
        let each = self.bm * self.bk / self.gemv_threads();
        let rows_of_a_warp = (self.bm / (4 * self.warpgroups)).max(1);
        let loaded = TOGETHER * (each + each / rows_of_a_warp * self.bn);
        let loaded =
            loaded * if self.piece(line) < REGISTER { REGISTER } else { bytes(self.dtype) } / REGISTER;
        let all = OTHERS + (OF_A_VECTOR + each) * self.bn + loaded;
        (all.min(MOST_REGISTERS) + REGISTERS_TOGETHER - 1) / REGISTERS_TOGETHER * REGISTERS_TOGETHER
    }

    /// Threads of a block of this form.
    pub(super) fn gemv_threads(&self) -> i64 {
        128 * self.warpgroups
    }

    /// Checks the tile.
    pub(super) fn check_gemv(&self) -> Result<(), ConfigError> {
        within("warpgroups", self.warpgroups, [1, 8], 1)?;
        within("bn", self.bn, [1, FEW], 1)?;
        within("bm", self.bm, [1, 1024], 1)?;
        within("bk", self.bk, [8, 4096], 8)?;
        let elements = self.bm * self.bk;
        if elements % self.gemv_threads() != 0 || elements * self.bn > SUMS * self.gemv_threads() {
            let wanted = format!(
                "{} rows of {} elements for each of {} vectors must be from 1 to {SUMS} sums of each of {} threads",
                self.bm,
                self.bk,
                self.bn,
                self.gemv_threads()
            );
            return Err(ConfigError::value("bk", self.bk, wanted));
        }
        Ok(())
    }

    /// C, or `partial` where k is split.
    pub(super) fn gemv(&self, custom: &[&dyn EpilogueOp]) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("gemv");
        let [m, n, k] = ["m", "n", "k"].map(|name| t.size(name, 4096));
        let [bm, bn, bk] =
            [("BM", self.bm), ("BN", self.bn), ("BK", self.bk)].map(|(name, value)| t.constant(name, value));
        let problem = Problem::one(m.clone(), n.clone());
        let a = problem.matrix(&mut t, "a", self.dtype, [&m, &k], self.a, None);
        let b = problem.matrix(&mut t, "b", self.right(), [&n, &k], self.b, None);
        let count = k.ceil_div(&bk);
        let (target, first, depth) = if self.split > 1 {
            let split = t.constant("SPLIT", self.split);
            let depth = count.ceil_div(&split);
            let partial = t.tensor("partial", DType::F32, [&split, &m, &n]);
            (Target::Partial(partial), block_z() * &depth, depth)
        } else {
            let finish = Finish::declare(&mut t, self.applied(custom), &problem, self.result());
            (Target::C(finish), 0.into(), count.clone())
        };
        let (height, width) = self.sides((&m, &n));
        t.grid([height.ceil_div(&bm), width.ceil_div(&bn), self.split.into()]);
        t.threads(self.gemv_threads());
        let (row, col) = self.sides((block_x() * &bm, block_y() * &bn));
        let (rows, cols) = self.sides((bm.clone(), bn.clone()));
        let on = Tile { row, col, shape: [rows, cols], product: None };
        let along_k = || [tile(1, &bk), steps(1, &count, &bk)];
        let ((long, few), (from, vectors)) = (self.sides((&a, &b)), self.sides((&on.row, &on.col)));
        let modes = [tile(0, &bm)].into_iter().chain(along_k());
        let rows = t.global_view("rows", long.from([from.clone(), 0.into()]), modes);
        let modes = along_k().into_iter().chain([steps(0, &bn, 1)]);
        let vectors = t.global_view("vectors", few.from([vectors.clone(), 0.into()]), modes);
        let to = target.view(&mut t, &on);
        if self.launches_overlap() {
            t.wait_dependencies();
        }
        let total = self.totals(&mut t, [rows, vectors], [&bm, &bn, &bk], &on, (&first, &depth));
        match target {
            Target::C(finish) => finish.store(&mut t, &on, total, to),
            Target::Partial(_) => t.copy(total, to),
        }
        if self.launches_overlap() {
            t.launch_dependents();
        }
        Ok(t.finish()?)
    }

    /// The sums of a tile over these steps along k.
    fn totals(
        &self,
        t: &mut KernelBuilder,
        [rows, vectors]: [Tensor; 2],
        [bm, bn, bk]: [&Expr; 3],
        on: &Tile,
        (first, depth): (&Expr, &Expr),
    ) -> Tensor {
        let (long, few) = self.sides((self.dtype, self.right()));
        let sums = t.register_tensor("sums", DType::F32, [bm, bk, bn]);
        t.unroll_for("z", 0, bn, |t, j| {
            let part = t.part(sums.at(j));
            t.fill(&part, 0.0);
        });
        t.unroll_for_by("i", TOGETHER, 0, depth, |t, i| {
            let step = first + i;
            let values = t.register_tensor("values", long, [bm, bk]);
            t.copy(rows.at(step.clone()), values);
            let wide = t.cast("wide", values, DType::F32);
            t.unroll_for("j", 0, bn, |t, j| {
                let vector = t.register_tensor("vector", few, [bk]);
                t.copy(vectors.index([None, Some(step.clone()), Some(j.clone())]), vector);
                let other = Elem::from(&vector).cast(DType::F32).expand(0);
                let part = t.part(sums.at(j));
                t.assign(&part, Elem::from(&part) + Elem::from(&wide) * other);
            });
        });
        // Threads meet in shared memory, where the tile lies as C does.
        let shared = t.shared_tensor("shared", DType::F32, &on.shape);
        t.unroll_for("v", 0, bn, |t, j| {
            let part = t.part(sums.at(j.clone()));
            let sum = t.reduce("sum", part, ReduceOp::Sum, 1);
            let (row, column) = self.sides((None, Some(j)));
            t.copy(sum, shared.index([row, column]));
        });
        t.syncthreads();
        let total = t.register_tensor("total", DType::F32, &on.shape);
        t.copy(shared, total);
        total
    }
}

impl Target<'_> {
    fn view(&self, t: &mut KernelBuilder, on: &Tile) -> Tensor {
        let [rows, cols] = &on.shape;
        match self {
            Target::C(finish) => finish.view(t, on),
            Target::Partial(partial) => {
                let from = [block_z(), on.row.clone(), on.col.clone()];
                t.global_view("gp", partial.from(from), [tile(1, rows), tile(2, cols)])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;

    fn tile(bm: i64, bn: i64, bk: i64, warpgroups: i64) -> HopperGemmConfig {
        HopperGemmConfig { form: Form::Gemv, bm, bn, bk, warpgroups, ..HopperGemmConfig::default() }
    }

    /// Registers that `ptxas` says of kernels, for rows of odd and of even length.
    #[test]
    fn registers_are_nearly_those_of_the_assembler() {
        let kernels = [
            (tile(4, 1, 256, 1), [60, 47]),
            (tile(4, 8, 256, 1), [244, 174]),
            (tile(8, 4, 128, 1), [116, 88]),
            (tile(8, 4, 256, 1), [194, 145]),
            (tile(8, 2, 512, 1), [216, 158]),
            (tile(16, 2, 256, 1), [192, 146]),
            (tile(8, 1, 1024, 2), [180, 122]),
        ];
        for (tile, said) in kernels {
            let found = [4095, 4094].map(|line| tile.gemv_registers(line));
            for (found, said) in found.into_iter().zip(said) {
                assert!((found - said).abs() <= 12, "{tile:?}: {found}, {said}");
            }
        }
    }

    #[test]
    fn rows_of_odd_length_want_few_registers() {
        // 7074 × 3 × 189 took 8.4 µs on an H100 with steps of 128 and 10.9 to 11.1 of 256, of whose blocks a multiprocessor holds two.
        let model = Model::of_device("NVIDIA H100 80GB HBM3").numbers();
        let [short, long] = [128, 256].map(|bk| tile(8, 4, bk, 1).gemv_cycles(model, [7074, 3, 189]));
        assert!(1.1 * short < long, "{short} {long}");
    }
}
