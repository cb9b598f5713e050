//! The programs of a product by `mma.sync`.

use tilewright_machine::{DType, Sparsity};
use tilewright_tile::dsl::{
    Buffer, KernelBuilder, Reference, Tensor, block_x, block_y, block_z, steps, tile,
};
use tilewright_tile::{Expr, Program};

use super::GemmConfig;
use super::mainloop::{Mainloop, Scales};
use crate::config::ConfigError;
use crate::epilogue::Chain;
use crate::gemm_hopper::{Adds, Finish, Parts, Tile};
use crate::tiles::{Loads, Path};
use crate::warp_specialized::{Batch, Major, Problem};

/// The default of m, n and k.
const EXTENT: i64 = 1024;

impl GemmConfig {
    /// The program that multiplies, with the sizes `m`, `n` and `k` (and `l`, the number of products): the only one, but where
    /// [`split`](Self::split) says that another adds what it writes.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mut t = KernelBuilder::new("gemm");
        let (problem, k) = Problem::of_size(&mut t, self.batch, false, EXTENT);
        let (m, n) = (&problem.m, &problem.n);
        let (bm, bn, bk) = (t.constant("BM", self.bm), t.constant("BN", self.bn), t.constant("BK", self.bk));
        let (kk, stages) = (t.constant("KK", self.kk), t.constant("STAGES", self.stages));
        let split = (self.split > 1).then(|| t.constant("SPLIT", self.split));
        let products = problem.products.as_ref();
        let columns = if self.sparse { kept(&k.ceil_div(Sparsity::GROUP)) } else { k.clone() };
        let a = problem.matrix(&mut t, "a", self.dtype, [m, &columns], self.a, products);
        let b = problem.matrix(&mut t, "b", self.right(), [n, &k], self.b, products);
        let meta = self.sparse.then(|| {
            let whole = [m.ceil_div(&bm) * &bm, half(&(k.ceil_div(&bk) * &bk))];
            problem.matrix(&mut t, "meta", Sparsity::META, whole.each_ref(), Major::K, products)
        });
        let scales = self.scales.zip(self.block()).map(|(dtype, block)| {
            let [of_a, of_b] = [("a_scale", m), ("b_scale", n)].map(|(name, rows)| {
                problem.matrix(&mut t, name, dtype, [rows, &k.ceil_div(block)], Major::K, products)
            });
            (dtype, block, [of_a, of_b])
        });
        let results = match &split {
            None => {
                let chain = Chain::new(&self.epilogue, &[]);
                let finish = Finish::declare(&mut t, chain, &problem, self.result());
                Results::C(finish.with(self.compute(), Adds::Threads))
            }
            Some(split) => Results::Parts(t.tensor("partial", self.sum(), [split, m, n])),
        };
        let blocks = [m.ceil_div(&bm), n.ceil_div(&bn)];
        let order = self.order(&blocks);
        t.grid(order.grid.iter().chain(products.or(split.as_ref())).cloned());
        t.threads(self.threads + self.loads.threads());

        let (tiles, parts) = (k.ceil_div(&bk), &bk / &kk);
        // The product of a batch is the first mode of every tensor.
        let product = (self.batch != Batch::None).then(|| order.behind.clone());
        let first = u32::from(product.is_some());
        let on = Tile {
            row: &order.row * &bm,
            col: &order.col * &bn,
            shape: [bm.clone(), bn.clone()],
            product: product.clone(),
        };
        let from = |row: &Expr| product.iter().chain([row, &0.into()]).cloned().collect::<Vec<Expr>>();
        let rows = |rows, [part, step]: [&Expr; 2]| {
            let (down, across) = (first, first + 1);
            [tile(down, rows), tile(across, part), steps(across, &parts, part), steps(across, &tiles, step)]
        };
        let of_a = if self.sparse { [half(&kk), half(&bk)] } else { [kk.clone(), bk.clone()] };
        let ga = t.global_view("ga", a.from(from(&on.row)), rows(&bm, of_a.each_ref()));
        let gb = t.global_view("gb", b.from(from(&on.col)), rows(&bn, [&kk, &bk]));
        let gm = meta.map(|meta| t.global_view("gm", meta.from(from(&on.row)), rows(&bm, of_a.each_ref())));
        let scales = scales.map(|(dtype, block, [of_a, of_b])| {
            let [kk, bk] = [&kk / block, &bk / block];
            let ga = t.global_view("ga_scale", of_a.from(from(&on.row)), rows(&bm, [&kk, &bk]));
            let gb = t.global_view("gb_scale", of_b.from(from(&on.col)), rows(&bn, [&kk, &bk]));
            Scales { dtype, from: [ga, gb], kk }
        });
        let gc = match &results {
            Results::C(finish) => finish.view(&mut t, &on),
            Results::Parts(partial) => {
                let from = partial.from([order.behind.clone(), on.row.clone(), on.col.clone()]);
                t.global_view("gc", from, [tile(1, &bm), tile(2, &bn)])
            }
        };
        // The steps along k: all of them, or those of the block's part.
        let (start, count) = match &split {
            None => (None, tiles.clone()),
            Some(split) => {
                let share = tiles.ceil_div(split);
                let start = &order.behind * &share;
                (Some(start.clone()), share.min(&tiles - start))
            }
        };
        let mainloop = Mainloop {
            dtypes: [self.dtype, self.right()],
            sum: self.sum(),
            in_halves: self.products() > 1,
            wide: self.widen.then(|| self.multiplied()),
            tile: [bm.clone(), bn.clone()],
            of_a: of_a[0].clone(),
            kk,
            parts,
            stages,
            piped: self.stages > 1,
            ahead: self.stages > 1 && self.bk / self.kk % 2 == 0,
            start,
            count,
        };
        let leave = |t: &mut KernelBuilder, rc: Tensor| match results {
            Results::Parts(_) => store(t, self.results, &rc, gc, self.sum(), [&bm, &bn]),
            Results::C(finish) => {
                // An epilogue of integers' sums computes in floats.
                let v = if self.sum() == self.compute() { rc } else { t.cast("wide", rc, self.compute()) };
                match self.results {
                    Path::Direct => finish.store(t, &on, v, gc),
                    Path::Staged => {
                        tiles_are_read(t);
                        finish.store_staged(t, &on, v, gc);
                    }
                }
            }
        };
        match self.loads.registers(self.threads) {
            None => {
                let rc = mainloop.write(&mut t, [ga, gb], gm, scales);
                leave(&mut t, rc);
            }
            Some(registers) => {
                let warpgroups = self.threads / Loads::Tma.threads();
                mainloop.write_roles(&mut t, ([ga, gb], scales), (warpgroups, registers), leave);
            }
        }
        Ok(t.finish()?)
    }

    /// The order of so many rows and columns of tiles.
    fn order(&self, [rows, cols]: &[Expr; 2]) -> Order {
        let Some(group) = self.rows_together else {
            let grid = vec![rows.clone(), cols.clone()];
            return Order { grid, row: block_x(), col: block_y(), behind: block_z() };
        };
        let (above, within) = (block_x() / (cols * group) * group, block_x() % (cols * group));
        let high = (rows - &above).min(group);
        Order { grid: vec![rows * cols], row: above + &within % &high, col: within / high, behind: block_y() }
    }

    /// C = epilogue(Σ `partial`), tile by tile.
    pub(super) fn split_sum(&self) -> Result<Program, ConfigError> {
        let mut t = KernelBuilder::new("split_sum");
        let [m, n] = ["m", "n"].map(|name| t.size(name, EXTENT));
        let parts = Parts {
            sums: self.sum(),
            compute: self.compute(),
            dependent: false,
            adds: Adds::Threads,
            ..Parts::of(self.split)
        };
        parts.add(t, &Problem::one(m, n), Chain::new(&self.epilogue, &[]), self.result())
    }
}

/// Elements that are there of so many groups.
fn kept(groups: &Expr) -> Expr {
    groups * Sparsity::KEPT
}

/// Columns that are there of whole groups of a sparse factor.
fn half(columns: &Expr) -> Expr {
    columns / (Sparsity::GROUP / Sparsity::KEPT)
}

/// The tiles of blocks.
struct Order {
    /// The grid of a product.
    grid: Vec<Expr>,
    /// A block's tile.
    row: Expr,
    col: Expr,
    /// The block's place along the mode of the grid behind the product's: its product or part of k.
    behind: Expr,
}

/// The tensor that the product's kernel writes.
enum Results<'a> {
    /// C, behind the epilogue.
    C(Finish<'a>),
    /// The sums of parts of k, as they are.
    Parts(Buffer),
}

/// Waits until the last copies have landed and nobody reads the tiles any more: results may lie where they were.
fn tiles_are_read(t: &mut KernelBuilder) {
    t.wait_group(0);
    t.syncthreads();
}

/// Rounds the sums of a tile and writes them.
pub(crate) fn store(
    t: &mut KernelBuilder,
    results: Path,
    sums: &Tensor,
    to: impl Into<Reference>,
    dtype: DType,
    shape: [&Expr; 2],
) {
    let rounded = t.cast("rounded", sums, dtype);
    match results {
        Path::Direct => t.copy(rounded, to),
        Path::Staged => {
            let staged = t.shared_tensor("staged", dtype, shape);
            let rows = t.register_tensor("long_rows", dtype, shape);
            tiles_are_read(t);
            t.copy(rounded, staged);
            t.syncthreads();
            t.copy(staged, rows);
            t.copy(rows, to);
        }
    }
}
