//! The mainloop of 8-bit floats with scales for blocks: the products of each 128 columns are summed apart by wgmma, scaled and
//! promoted to f32 sums by the threads. The scales of A come with a stage, those of B straight from memory, one step ahead.

use tilewright_machine::{CacheHint, DType};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, Tensor, steps, tile};

use super::mainloop::{Accumulators, Collective, Mainloop, load_attributes};
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::tiling::{Numbers, Tiling};

/// Neighbours along k that share a scale, and neighbours along n that share one of B.
pub const BLOCK: i64 = 128;

/// See the [module](self).
pub(crate) struct Promoted {
    pub tiling: Tiling,
    /// Types of a and b.
    pub dtypes: [DType; 2],
    pub hints: [Option<CacheHint>; 2],
    /// Columns that are multiplied and promoted at a time.
    pub part: i64,
}

impl Promoted {
    /// Scales of B that a step along k of a tile needs, and which of them part `s` of the columns needs. Where a tile is no row of
    /// whole blocks, nor within one, each part has its own.
    fn scales(&self) -> (i64, impl Fn(i64) -> i64) {
        let Tiling { bn, swap, .. } = self.tiling;
        let (part, each) = (self.part, bn % BLOCK != 0);
        let count = match bn {
            _ if swap => 1,
            bn if BLOCK % bn == 0 => 1,
            bn if each => bn / part,
            bn => bn / BLOCK,
        };
        (count, move |s| {
            if count == 1 {
                0
            } else if each {
                s
            } else {
                s * part / BLOCK
            }
        })
    }

    /// The scale of B number `index` of a tile's at a step along k.
    fn scale_of_b(&self, on: &Collective<Self>, index: i64, tile: &WorkTile, step: Expr) -> Reference {
        let Tiling { bm, bn, swap, .. } = self.tiling;
        let (count, _) = self.scales();
        let block =
            if swap { &tile.row * bm / BLOCK } else { (&tile.col * bn + index * (bn / count)) / BLOCK };
        on.views[3].index([None, Some(block), Some(step)])
    }
}

impl Mainloop for Promoted {
    type Params = [Buffer; 4];
    /// Of the operands of the tile's rows and columns, the latter part by part, and of the scales of A and B.
    type Views = [Tensor; 4];
    type Stage = [Tensor; 3];

    fn part(&self) -> Option<i64> {
        Some(self.part)
    }

    fn rounds_at_once(&self) -> bool {
        true
    }

    fn params(&self, t: &mut KernelBuilder, problem: &Problem, numbers: &Numbers) -> [Buffer; 4] {
        let (Problem { m, n, .. }, Numbers { k, bk, .. }) = (problem, numbers);
        let a = t.tensor("a", self.dtypes[0], [m, k]);
        let b = t.tensor("b", self.dtypes[1], [n, k]);
        let sa = t.tensor("sa", DType::F32, [&k.ceil_div(bk), m]);
        let sb = t.tensor("sb", DType::F32, [&n.ceil_div(BLOCK), &k.ceil_div(bk)]);
        [a, b, sa, sb]
    }

    fn views(
        &self,
        t: &mut KernelBuilder,
        [a, b, sa, sb]: [Buffer; 4],
        Problem { n, .. }: &Problem,
        scheduler: &Scheduler,
    ) -> [Tensor; 4] {
        let Numbers { k, bm, bn, bk, width: part, .. } = &scheduler.numbers;
        let (rows, cols) = (&scheduler.along_rows.count, &scheduler.along_cols.count);
        let parts = Expr::from(self.tiling.bn / self.part);
        let (by_rows, by_columns) = self.tiling.sides((a, b));
        let along_k = [tile(1, bk), steps(1, &scheduler.depth, bk)];
        let of_rows = |dim| [tile(dim, bm), steps(dim, rows, bm)];
        let of_columns = |dim| [tile(dim, part), steps(dim, &parts, part), steps(dim, cols, bn)];
        let left = t.global_view("gl", &by_rows, of_rows(0).into_iter().chain(along_k.clone()));
        let right = t.global_view("gr", &by_columns, of_columns(0).into_iter().chain(along_k));
        let along = if self.tiling.swap { of_columns(1).to_vec() } else { of_rows(1).to_vec() };
        let scales = t.global_view("gsa", &sa, along.into_iter().chain([steps(0, &scheduler.depth, 1)]));
        let blocks = [tile(0, 1), steps(0, n.ceil_div(BLOCK), 1), steps(1, k.ceil_div(bk), 1)];
        [left, right, scales, t.global_view("gsb", &sb, blocks)]
    }

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bk, width: part, .. }: &Numbers) -> [Tensor; 3] {
        let parts = &Expr::from(self.tiling.bn / self.part);
        let (left, right) = self.tiling.sides((self.dtypes[0], self.dtypes[1]));
        let left = t.shared_tensor("tl", left, [bm, bk]);
        let right = t.shared_tensor("tr", right, [part, parts, bk]);
        let along = if self.tiling.swap { vec![part, parts] } else { vec![bm] };
        [left, right, t.shared_tensor("ts", DType::F32, along)]
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let ([left, right, scales, _], [tl, tr, ts]) = (&on.views, on.stage);
        let [how_a, how_b] = load_attributes(&self.tiling, self.hints);
        let (how_left, how_right) = self.tiling.sides((how_a, how_b));
        let (row, col, step) = (Some(tile.row.clone()), Some(tile.col.clone()), Some(step.clone()));
        t.copy_async_with(left.index([None, row.clone(), None, step.clone()]), tl, how_left);
        t.copy_async_with(right.index([None, None, col.clone(), None, step.clone()]), tr, how_right);
        let place = if self.tiling.swap { vec![None, None, col, step] } else { vec![None, row, step] };
        t.copy_async(scales.index(place), ts);
    }

    fn begin(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Accumulators {
        let parts = (0..self.tiling.bn / self.part).map(|s| {
            let sum = t.register_tensor(&format!("sum{s}"), DType::F32, [&on.numbers.bm, &on.numbers.width]);
            t.fill(&sum, 0.0);
            sum
        });
        let parts = parts.collect();
        let scales = (0..self.scales().0).map(|i| {
            let block = t.register_tensor(&format!("block{i}"), DType::F32, [1]);
            t.copy(self.scale_of_b(on, i, tile, 0.into()), block);
            block
        });
        Accumulators { parts, second: None, of_a: None, scales: scales.collect() }
    }

    /// Multiplies, scales and adds each part of the columns to its sums. The stage is released before the last part is promoted.
    fn step(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        tile: &WorkTile,
        (step, site): (&Expr, &str),
    ) {
        let (_, which) = self.scales();
        let (swap, [left, right, of_a]) = (self.tiling.swap, &on.stage);
        let last = sums.parts.len() - 1;
        let Numbers { bm, width: columns, .. } = &on.numbers;
        let along = if swap { columns } else { bm };
        let partial = t.register_tensor(&format!("partial{site}"), DType::F32, [bm, columns]);
        let vector = |t: &mut KernelBuilder, name: &str, s: usize| {
            t.register_tensor(&format!("{name}{site}_{s}"), DType::F32, [along])
        };
        let scales: Vec<Tensor> = (0..=last).map(|s| vector(t, "scale", s)).collect();
        let promote = |t: &mut KernelBuilder, s: usize| {
            let across = t.expand(&format!("line{site}_{s}"), scales[s], u32::from(!swap));
            let wide = t.broadcast(&format!("wide{site}_{s}"), across, [bm, columns]);
            t.assign(&sums.parts[s], sums.parts[s] + partial * wide);
        };
        t.consume(&on.ring, |t| {
            let mut loaded = None;
            for (s, scale) in scales.iter().enumerate() {
                t.fill(&partial, 0.0);
                let right = right.index([None, Some((s as i64).into()), None]);
                t.gemm_async_over(&partial, left, right, [self.tiling.warpgroups.into(), 1.into()]);
                t.commit_gemm();
                // The scales are there before the product is.
                let row_scale = match loaded {
                    Some(loaded) if !swap => loaded,
                    _ => {
                        let to = if swap || last == 0 { *scale } else { vector(t, "row_scale", s) };
                        let from: Reference = if swap { of_a.at(s as i64) } else { of_a.into() };
                        t.copy(from, to);
                        loaded = Some(to);
                        to
                    }
                };
                let index = which(s as i64);
                let block = sums.scales[index as usize];
                let several = t.broadcast(&format!("several{site}_{s}"), block, [along]);
                t.assign(scale, row_scale * several);
                if s == last || which(s as i64 + 1) != index {
                    t.copy(self.scale_of_b(on, index, tile, step + 1), block);
                }
                t.wait_gemm(0);
                if s < last {
                    promote(t, s);
                }
            }
        });
        promote(t, last);
    }

    fn complete(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &Accumulators, _: &WorkTile) {}
}
