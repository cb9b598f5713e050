//! The mainloop of a sparse A, of which two elements of every four along k are there: tiles of A and B come by TMA, and the metadata straight from
//! memory to the registers of the warpgroups that multiply, one step ahead.

use tilewright_machine::{CacheHint, DType, Sparsity};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, Tensor, steps, tile};

use super::choices::Major;
use super::mainloop::{Accumulators, Collective, Mainloop, load_attributes};
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::tiling::{Numbers, Tiling};

/// See the [module](self).
pub(crate) struct SparseWgmma {
    pub tiling: Tiling,
    /// Types of a and b.
    pub dtypes: [DType; 2],
    pub b: Major,
    pub hints: [Option<CacheHint>; 2],
}

impl SparseWgmma {
    /// Rows and columns of which metadata have whole tiles: those of a cluster.
    pub fn metadata_tile(tiling: &Tiling) -> [i64; 2] {
        [tiling.bm * tiling.blocks()[0], tiling.bk]
    }

    /// The metadata of a step along k of a tile; of steps beyond k, whose elements are 0, those of the last one.
    fn places(&self, on: &Collective<Self>, tile: &WorkTile, step: Expr) -> Reference {
        let Numbers { k, bk, .. } = &on.numbers;
        let step = step.min(k.ceil_div(bk) - 1);
        on.views[2].index([None, Some(tile.row.clone()), None, Some(step)])
    }

    /// A register tensor for the metadata of a step.
    fn registers(&self, t: &mut KernelBuilder, on: &Collective<Self>, name: &str) -> Tensor {
        t.register_tensor(name, Sparsity::META, [&on.numbers.bm, &half(&on.numbers.bk)])
    }
}

/// Columns that are there of whole groups of a sparse factor.
fn half(columns: &Expr) -> Expr {
    columns / (Sparsity::GROUP / Sparsity::KEPT)
}

impl Mainloop for SparseWgmma {
    /// A, B and the metadata.
    type Params = [Buffer; 3];
    type Views = [Tensor; 3];
    type Stage = [Tensor; 2];

    fn part(&self) -> Option<i64> {
        None
    }

    fn rounds_at_once(&self) -> bool {
        false
    }

    fn params(&self, t: &mut KernelBuilder, problem: &Problem, numbers: &Numbers) -> [Buffer; 3] {
        let (Problem { m, n, .. }, Numbers { k, .. }) = (problem, numbers);
        let [rows, columns] = SparseWgmma::metadata_tile(&self.tiling);
        let kept = k.ceil_div(Sparsity::GROUP) * Sparsity::KEPT;
        let a = problem.matrix(t, "a", self.dtypes[0], [m, &kept], Major::K, None);
        let b = problem.matrix(t, "b", self.dtypes[1], [n, k], self.b, None);
        let whole = [m.ceil_div(rows) * rows, half(&(k.ceil_div(columns) * columns))];
        [a, b, t.tensor("meta", Sparsity::META, whole)]
    }

    fn views(
        &self,
        t: &mut KernelBuilder,
        [a, b, meta]: [Buffer; 3],
        _: &Problem,
        scheduler: &Scheduler,
    ) -> [Tensor; 3] {
        let Numbers { bm, bn, bk, .. } = &scheduler.numbers;
        let (rows, cols) = (&scheduler.along_rows.count, &scheduler.along_cols.count);
        let along = |extent: &Expr, count: &Expr, columns: &Expr| {
            [tile(0, extent), steps(0, count, extent), tile(1, columns), steps(1, &scheduler.depth, columns)]
        };
        let left = along(bm, rows, &half(bk));
        let ga = t.global_view("ga", &a, left.clone());
        let gb = t.global_view("gb", &b, along(bn, cols, bk));
        [ga, gb, t.global_view("gm", &meta, left)]
    }

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bn, bk, .. }: &Numbers) -> [Tensor; 2] {
        let a = t.shared_tensor("sa", self.dtypes[0], [bm, &half(bk)]);
        [a, t.shared_tensor("sb", self.dtypes[1], [bn, bk])]
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let ([a, b, _], [sa, sb]) = (&on.views, on.stage);
        let [how_a, how_b] = load_attributes(&self.tiling, self.hints);
        let at = |of: &Expr| [None, Some(of.clone()), None, Some(step.clone())];
        t.copy_async_with(a.index(at(&tile.row)), sa, how_a);
        t.copy_async_with(b.index(at(&tile.col)), sb, how_b);
    }

    fn begin(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Accumulators {
        let next = self.registers(t, on, "next");
        t.copy(self.places(on, tile, 0.into()), next);
        Accumulators { scales: vec![next], ..self.tiling.begin(t, &on.numbers) }
    }

    /// Multiplies the stage, while the metadata of the next step are on their way: they are asked for ahead of the products, since `ptxas` serialises those beside which
    /// other instructions define operands of products.
    fn step(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        tile: &WorkTile,
        (step, site): (&Expr, &str),
    ) {
        let places = self.registers(t, on, &format!("places{site}"));
        let ([sa, sb], next) = (on.stage, sums.scales[0]);
        t.copy(next, places);
        t.copy(self.places(on, tile, step + 1), next);
        t.consume(&on.ring, |t| {
            let warpgroups = [self.tiling.warpgroups.into(), 1.into()];
            t.gemm_async_sparse(&sums.parts[0], sa, sb, places, Some(warpgroups));
            t.commit_gemm();
            t.wait_gemm(0);
        });
    }

    fn complete(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &Accumulators, _: &WorkTile) {}
}
