//! The kernel behind a product whose k was split through global memory: it adds the parts, applies the epilogue, and rounds. It may begin
//! before the product has ended, which writes `partial`, and waits for it before it reads anything.

use tilewright_machine::DType;
use tilewright_tile::Program;
use tilewright_tile::dsl::{Elem, KernelBuilder, block_x, block_y, steps, tile};

use super::tile::{Adds, Finish, Tile};
use super::{Form, HopperGemmConfig};
use crate::config::ConfigError;
use crate::epilogue::{Chain, EpilogueOp};
use crate::warp_specialized::Problem;

/// Rows and columns of a block's tile, and its threads.
const TILE: [i64; 2] = [8, 128];
const THREADS: i64 = 128;

/// Elements of a block's tile where a side of the result has few.
const NARROW: i64 = 512;

/// Words of an element's parts that a thread reads at once.
const TOGETHER: i64 = 8;

impl HopperGemmConfig {
    /// C = epilogue(Σ `partial`), tile by tile.
    pub(super) fn split_sum(&self, custom: &[&dyn EpilogueOp]) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("split_sum");
        let m = t.size("m", 4096);
        let n = if self.squares() { m.clone() } else { t.size("n", 4096) };
        let n = if self.complex { n * 2 } else { n };
        let tile = match self.form {
            Form::Gemv => {
                let few = self.bn.cast_unsigned().next_power_of_two().cast_signed();
                let (rows, columns) = self.sides((NARROW / few, few));
                [rows, columns]
            }
            _ => TILE,
        };
        Parts { tile, ..Parts::of(self.split) }.add(
            t,
            &Problem::one(m, n),
            Chain::new(&self.epilogue, custom),
            self.result(),
        )
    }
}

/// Parts of sums in memory.
pub(crate) struct Parts {
    pub split: i64,
    /// Rows and columns of a block's tile.
    pub tile: [i64; 2],
    /// The type of the sums.
    pub sums: DType,
    /// The type that the epilogue computes in.
    pub compute: DType,
    /// The kernel may begin before the product has ended, as architectures with programmatic dependent launch can.
    pub dependent: bool,
    pub adds: Adds,
}

/// The program of a kernel whose sizes are declared, which adds so many parts of a matrix.
pub(crate) fn add_parts(
    t: KernelBuilder,
    problem: &Problem,
    split: i64,
    chain: Chain<'_>,
    result: DType,
) -> Result<Program, ConfigError> {
    Parts::of(split).add(t, problem, chain, result)
}

impl Parts {
    /// So many parts of a kernel of sm_90a, in f32.
    pub fn of(split: i64) -> Self {
        let [sums, compute] = [DType::F32; 2];
        Parts { split, tile: TILE, sums, compute, dependent: true, adds: Adds::Bulk }
    }

    /// The program of a kernel whose sizes are declared, which adds the parts.
    pub fn add(
        self,
        mut t: KernelBuilder,
        problem: &Problem,
        chain: Chain<'_>,
        result: DType,
    ) -> Result<Program, ConfigError> {
        let Parts { split, tile: [bm, bn], sums, compute, dependent, adds } = self;
        let Problem { m, n, .. } = problem;
        let (bm, bn) = (t.constant("BM", bm), t.constant("BN", bn));
        let parts_of_k = t.constant("SPLIT", split);
        let partial = t.tensor("partial", sums, [&parts_of_k, m, n]);
        let finish = Finish::declare(&mut t, chain, problem, result).with(compute, adds);
        t.grid([n.ceil_div(&bn), m.ceil_div(&bm)]);
        t.threads(THREADS);
        let on = Tile { row: block_y() * &bm, col: block_x() * &bn, shape: [bm, bn], product: None };
        let [bm, bn] = &on.shape;
        let from = [0.into(), on.row.clone(), on.col.clone()];
        let gp =
            t.global_view("gp", partial.from(from), [tile(1, bm), tile(2, bn), steps(0, &parts_of_k, 1)]);
        let gc = finish.view(&mut t, &on);
        if dependent {
            t.wait_dependencies();
        }
        // Several parts are in flight at once; those behind the last are zeros.
        let together = t.constant("TOGETHER", split.min(TOGETHER * 32 / i64::from(sums.bits())));
        let v = t.register_tensor("sums", sums, [bm, bn]);
        t.fill(&v, 0.0);
        t.for_range("group", 0, parts_of_k.ceil_div(&together), |t, group| {
            let parts = t.register_tensor("parts", sums, [bm, bn, &together]);
            t.unroll_for("i", 0, &together, |t, i| {
                let part = t.part(parts.at(i.clone()));
                t.copy(gp.at(&group * &together + i), part);
            });
            t.unroll_for("j", 0, &together, |t, j| {
                let part = t.part(parts.at(j));
                t.assign(&v, Elem::from(&v) + part);
            });
        });
        // An epilogue of integers' sums computes in floats.
        let v = if sums == compute { v } else { t.cast("wide", v, compute) };
        finish.store(&mut t, &on, v, gc);
        if dependent {
            t.launch_dependents();
        }
        Ok(t.finish()?)
    }
}
