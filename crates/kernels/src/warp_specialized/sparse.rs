//! The mainloop of a sparse A, of which two elements of every four along k are there: tiles of A, of B and of the metadata come by TMA; metadata whose
//! rows are shorter than the 16 bytes of a tensor copy by the threads of the warpgroup that loads, which ask for them a step ahead. A warpgroup that multiplies reads
//! them from shared memory: from memory it would wait for them before each product, since what puts two rows into a register must not stand behind it.

use tilewright_machine::{CacheHint, DType, Sparsity};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, Tensor, steps, tile};

use super::choices::Major;
use super::mainloop::{Accumulators, Collective, Mainloop, load_attributes};
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::tiling::{Numbers, Tiling};

/// Bytes of which the rows of a tensor copy are multiples.
const TENSOR_COPY: i64 = 16;

/// See the [module](self).
pub(crate) struct SparseWgmma {
    pub tiling: Tiling,
    /// Types of a and b.
    pub dtypes: [DType; 2],
    pub b: Major,
    pub hints: [Option<CacheHint>; 2],
    /// Instructions take A from registers.
    pub register_a: bool,
}

impl SparseWgmma {
    /// Rows and columns of which metadata have whole tiles: those of a cluster.
    pub fn metadata_tile(tiling: &Tiling) -> [i64; 2] {
        [tiling.bm * tiling.blocks()[0], tiling.bk]
    }

    /// Returns whether tensor copies bring the metadata: a row of a stage has 16 bytes.
    fn tiles_of_metadata(&self) -> bool {
        let places = self.tiling.bk / Sparsity::GROUP * Sparsity::KEPT;
        places * i64::from(Sparsity::META.bits()) % (8 * TENSOR_COPY) == 0
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
    type Stage = [Tensor; 3];

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

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bn, bk, .. }: &Numbers) -> [Tensor; 3] {
        let left = [bm, &half(bk)];
        let a = t.shared_tensor("sa", self.dtypes[0], left);
        let b = t.shared_tensor("sb", self.dtypes[1], [bn, bk]);
        [a, b, t.shared_tensor("sm", Sparsity::META, left)]
    }

    fn begin_loads(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Option<Tensor> {
        if self.tiles_of_metadata() {
            return None;
        }
        let ahead = self.registers(t, on, "ahead");
        t.copy(self.places(on, tile, 0.into()), ahead);
        Some(ahead)
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let ([a, b, _], [sa, sb, _]) = (&on.views, on.stage);
        let [how_a, how_b] = load_attributes(&self.tiling, self.hints);
        let at = |of: &Expr| [None, Some(of.clone()), None, Some(step.clone())];
        t.copy_async_with(a.index(at(&tile.row)), sa, how_a);
        t.copy_async_with(b.index(at(&tile.col)), sb, how_b);
    }

    fn fill(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        tile: &WorkTile,
        (step, ahead): (&Expr, Option<&Tensor>),
    ) {
        let [_, _, sm] = on.stage;
        t.produce(&on.ring, |t| {
            self.load(t, on, tile, step);
            match ahead {
                Some(ahead) => t.copy(ahead, sm),
                None => t.copy_async(self.places(on, tile, step.clone()), sm),
            }
        });
        if let Some(ahead) = ahead {
            t.copy(self.places(on, tile, step + 1), ahead);
        }
    }

    fn begin(&self, t: &mut KernelBuilder, on: &Collective<Self>, _: &WorkTile) -> Accumulators {
        self.tiling.begin(t, on, false)
    }

    fn step(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        _: &WorkTile,
        (_, site): (&Expr, &str),
    ) {
        let places = self.registers(t, on, &format!("places{site}"));
        let [sa, sb, sm] = on.stage;
        t.consume(&on.ring, |t| {
            t.copy(sm, places);
            let warpgroups = [self.tiling.warpgroups.into(), 1.into()];
            if self.register_a {
                let shape = [&on.numbers.bm, &half(&on.numbers.bk)];
                let rows = t.register_tensor(&format!("rows{site}"), self.dtypes[0], shape);
                t.copy(sa, rows);
                t.gemm_async_sparse(&sums.parts[0], rows, sb, places, Some(warpgroups));
            } else {
                t.gemm_async_sparse(&sums.parts[0], sa, sb, places, Some(warpgroups));
            }
            t.commit_gemm();
            t.wait_gemm(0);
        });
    }

    fn complete(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &Accumulators, _: &WorkTile) {}
}
