//! The mainloop of 8-bit floats with scales for blocks: the products of each 128 columns are summed apart by wgmma, scaled and
//! promoted to f32 sums by the threads. The scales of A come with a stage, those of B straight from memory, one step ahead.

use tilewright_machine::{CacheHint, DType};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Reference, Tensor, index, steps, tile};

use super::choices::Batch;
use super::mainloop::{Accumulators, Collective, Mainloop, load_attributes, numbers};
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::tiling::{Numbers, Tiling};
use super::views::with_batch;

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
    /// Rows of A and of its scales lie anywhere: the table `rows` has the number of each.
    pub gathered: bool,
    /// Tiles begin at any row. Threads copy the scales of these: an H100 and an H200 take a tensor copy of a box that begins within 16 bytes of a row for an illegal
    /// instruction (driver 580; the PTX ISA does not say so).
    pub anywhere: bool,
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
        let group = tile.group.clone().map(Some);
        on.views[3].index([None, Some(block), Some(step)].into_iter().chain(group))
    }
}

impl Promoted {
    /// The numbers of a tile's rows, where it begins anywhere among those of A: those of each part of its columns.
    fn places(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Vec<Tensor> {
        if !self.anywhere {
            return Vec::new();
        }
        let Numbers { bm, width, .. } = &on.numbers;
        let (begin, _) = self.tiling.sides((&tile.row, &tile.col));
        let (count, parts) = match self.tiling.swap {
            true => (width, self.tiling.bn / self.part),
            false => (bm, 1),
        };
        let place = |part: i64| {
            let none = t.register_tensor(&format!("none_{part}"), DType::I32, [count]);
            t.fill(&none, 0.0);
            t.define(&format!("place_{part}"), Elem::from(none) + index(0) + (begin + count * part))
        };
        (0..parts).map(place).collect()
    }
}

impl Mainloop for Promoted {
    /// A, B, their scales, and the numbers of rows of A where these lie anywhere.
    type Params = Vec<Buffer>;
    /// Of A and B, that of the tile's columns part by part, of the scales of A and B, and of the numbers of rows.
    type Views = Vec<Tensor>;
    type Stage = [Tensor; 3];

    fn part(&self) -> Option<i64> {
        Some(self.part)
    }

    fn rounds_at_once(&self) -> bool {
        true
    }

    fn problem(&self, t: &mut KernelBuilder, batch: Batch) -> (Problem, Expr) {
        let (problem, k) = Problem::declare(t, batch, false);
        let rows = self.gathered.then(|| t.size("r", 4096));
        (problem.of_rows(rows), k)
    }

    fn params(&self, t: &mut KernelBuilder, problem: &Problem, numbers: &Numbers) -> Vec<Buffer> {
        let (Problem { m, n, rows, matrices, .. }, Numbers { k, bk, .. }) = (problem, numbers);
        let rows_of_a = rows.as_ref().unwrap_or(m);
        let blocks = (&n.ceil_div(BLOCK), &k.ceil_div(bk));
        let mut params = vec![
            t.tensor("a", self.dtypes[0], [rows_of_a, k]),
            t.tensor("b", self.dtypes[1], matrices.iter().chain([n, k])),
            t.tensor("sa", DType::F32, [blocks.1, rows_of_a]),
            t.tensor("sb", DType::F32, matrices.iter().chain([blocks.0, blocks.1])),
        ];
        if rows.is_some() {
            params.push(t.tensor("rows", DType::I32, [m]));
        }
        params
    }

    fn views(
        &self,
        t: &mut KernelBuilder,
        params: Vec<Buffer>,
        Problem { m, n, rows, matrices, .. }: &Problem,
        scheduler: &Scheduler,
    ) -> Vec<Tensor> {
        let Numbers { k, bk, width: part, .. } = &scheduler.numbers;
        let Scheduler { along_rows, along_cols, .. } = scheduler;
        let parts = Expr::from(self.tiling.bn / self.part);
        let swap = self.tiling.swap;
        // B and its scales have a mode for groups in front of the others, which is the last of their views.
        let behind = u32::from(matrices.is_some());
        let along_k = |dim| [tile(dim, bk), steps(dim, &scheduler.depth, bk)];
        let of_columns = |dim| {
            vec![tile(dim, part), steps(dim, &parts, part), steps(dim, &along_cols.count, &along_cols.step)]
        };
        let side = |is_rows: bool, dim| if is_rows { along_rows.modes(dim) } else { of_columns(dim) };
        let of_a = match rows {
            Some(rows) => vec![steps(0, rows, 1)],
            None => side(!swap, 0),
        };
        let (name_a, name_b) = self.tiling.sides(("gl", "gr"));
        let a = t.global_view(name_a, &params[0], of_a.into_iter().chain(along_k(1)));
        let of_b = side(swap, behind).into_iter().chain(along_k(1 + behind)).collect();
        let b = t.global_view(name_b, &params[1], with_batch(of_b, matrices.as_ref()));
        let along = match rows {
            Some(rows) => vec![steps(1, rows, 1)],
            None if self.anywhere => vec![steps(1, m, 1)],
            None => side(!swap, 1),
        };
        let scales = along.into_iter().chain([steps(0, &scheduler.depth, 1)]);
        let scales = t.global_view("gsa", &params[2], scales);
        let blocks =
            vec![tile(behind, 1), steps(behind, n.ceil_div(BLOCK), 1), steps(1 + behind, k.ceil_div(bk), 1)];
        let blocks = t.global_view("gsb", &params[3], with_batch(blocks, matrices.as_ref()));
        let mut views = vec![a, b, scales, blocks];
        if let Some(table) = params.get(4) {
            views.push(t.global_view("gn", table, side(!swap, 0)));
        }
        views
    }

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bk, width: part, .. }: &Numbers) -> [Tensor; 3] {
        let parts = &Expr::from(self.tiling.bn / self.part);
        let (left, right) = self.tiling.sides((self.dtypes[0], self.dtypes[1]));
        let left = t.shared_tensor("tl", left, [bm, bk]);
        let right = t.shared_tensor("tr", right, [part, parts, bk]);
        let along = if self.tiling.swap { vec![part, parts] } else { vec![bm] };
        [left, right, t.shared_tensor("ts", DType::F32, along)]
    }

    fn numbers(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Vec<Tensor> {
        let Some(table) = on.views.get(4) else { return self.places(t, on, tile) };
        let Numbers { bm, width, .. } = &on.numbers;
        if !self.tiling.swap {
            let left = tile.end.as_ref().map(|end| end - &tile.row);
            return vec![numbers(t, "numbers", table.index([None, Some(tile.row.clone())]), bm, left)];
        }
        let part = |part: i64| {
            let left = tile.end.as_ref().map(|end| end - &tile.col - width * part);
            let from = table.index([None, Some(part.into()), Some(tile.col.clone())]);
            numbers(t, &format!("numbers_{part}"), from, width, left)
        };
        (0..self.tiling.bn / self.part).map(part).collect()
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let [tl, tr, ts] = on.stage;
        let swap = self.tiling.swap;
        let [how_a, how_b] = load_attributes(&self.tiling, self.hints);
        let (row, col, step) = (Some(tile.row.clone()), Some(tile.col.clone()), Some(step.clone()));
        let group = tile.group.clone().map(Some);
        // The places of a tile along its rows, or along its columns part by part, and along k.
        let at = |is_rows: bool| match is_rows {
            true => vec![None, row.clone(), None, step.clone()],
            false => vec![None, None, col.clone(), None, step.clone()],
        };
        let (of_a, of_b) = self.tiling.sides((tl, tr));
        t.copy_async_with(on.views[1].index(at(swap).into_iter().chain(group)), of_b, how_b);
        if !self.gathered {
            t.copy_async_with(on.views[0].index(at(!swap)), of_a, how_a);
        }
        if tile.numbers.is_empty() {
            let place = if swap { vec![None, None, col, step] } else { vec![None, row, step] };
            t.copy_async(on.views[2].index(place), ts);
            return;
        }
        let (a, scales) = (on.views[0].index([None, None, step.clone()]), on.views[2].index([None, step]));
        for (part, numbers) in tile.numbers.iter().enumerate() {
            let part = Expr::from(part as i64);
            let (to, to_scales): (Reference, Reference) = match swap {
                true => (of_a.index([None, Some(part.clone()), None]), ts.at(part)),
                false => (of_a.into(), ts.into()),
            };
            if self.gathered {
                t.copy_async_with(a.clone().indexed(0, numbers), to, how_a);
            }
            t.copy_async(scales.clone().indexed(0, numbers), to_scales);
        }
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
