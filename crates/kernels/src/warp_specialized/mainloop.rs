//! Mainloops: from operands in global memory to a tile's accumulators, by a role that loads stages and one that multiplies them.

use tilewright_machine::{CacheHint, DType, SumsScaling};
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Pipeline, Reference, Tensor, index, steps, where_};
use tilewright_tile::{AsyncCopyAttrs, CopyAttrs, Expr, Literal, Multicast, ReduceOp};

use super::choices::{Batch, Cluster, FillMode, Major, Triangle};
use super::nested::Share;
use super::rules::bytes;
use super::scheduler::{KRange, Problem, Scheduler, WorkTile, packed_lines};
use super::tiling::{Numbers, Tiling};
use super::views::{OperandView, Steps, matrix_view, parts_view, with_batch};
use crate::contraction::Group;

/// The accumulators of a tile.
pub(crate) struct Accumulators {
    /// Those of neighbouring parts of the tile's columns.
    pub parts: Vec<Tensor>,
    /// Those of the product with a second matrix, which lie as those of the first.
    pub second: Option<Tensor>,
    /// Sums of rows of A's tile, of neighbours along k apart.
    pub of_a: Option<Tensor>,
    /// Scales that a mainloop keeps beside them.
    pub scales: Vec<Tensor>,
}

/// A mainloop of a [kernel](super::GemmKernel). Its methods write parts of the program, in the order in which they stand here.
pub(crate) trait Mainloop {
    /// The tensor parameters.
    type Params;
    /// Their views.
    type Views;
    /// The shared tensors of a stage.
    type Stage: AsRef<[Tensor]>;

    /// Columns of the tile of each accumulator; `None`: there is one.
    fn part(&self) -> Option<i64>;
    /// Returns whether accumulators that need no epilogue are rounded at once rather than chunk by chunk, and chunks made once their buffers are
    /// free: fewer registers are in use meanwhile.
    fn rounds_at_once(&self) -> bool;

    /// Declares the sizes of the problem; the last one is that of k.
    fn problem(&self, t: &mut KernelBuilder, batch: Batch) -> (Problem, Expr) {
        Problem::declare(t, batch, false)
    }
    fn params(&self, t: &mut KernelBuilder, problem: &Problem, numbers: &Numbers) -> Self::Params;
    /// Declares what is written beside C, behind it.
    fn outputs(&self, _: &mut KernelBuilder, _: &Problem, params: Self::Params) -> Self::Params {
        params
    }
    fn views(
        &self,
        t: &mut KernelBuilder,
        params: Self::Params,
        problem: &Problem,
        scheduler: &Scheduler,
    ) -> Self::Views;
    fn stage(&self, t: &mut KernelBuilder, numbers: &Numbers) -> Self::Stage;

    /// The steps along k of a tile.
    fn range(&self, scheduler: &Scheduler, tile: &WorkTile) -> KRange {
        scheduler.k_range(tile)
    }
    /// The numbers of a tile's rows of A, in registers of the role that loads, where these lie anywhere: those of each part of the tile that is copied.
    fn numbers(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &WorkTile) -> Vec<Tensor> {
        Vec::new()
    }
    /// Declares what the role that loads asks for a step ahead, and asks for that of the first.
    fn begin_loads(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &WorkTile) -> Option<Tensor> {
        None
    }
    /// Loads the stage of a step along k.
    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr);
    /// Fills the next stage of the ring with that of a step along k.
    fn fill(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        tile: &WorkTile,
        (step, _): (&Expr, Option<&Tensor>),
    ) {
        t.produce(&on.ring, |t| self.load(t, on, tile, step));
    }
    /// The tensors of a stage that are in rings of their own, with the names of these: other roles read them; or, where a kernel loads constants ahead, a role of its own
    /// fills them before the launches ahead have ended.
    fn apart<'s>(&self, _: &'s Self::Stage) -> &'s [(&'static str, Vec<Tensor>)] {
        &[]
    }
    /// Fills the next stage of each of these rings with that of a step along k.
    fn fill_apart(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &WorkTile, _: &Expr) {}
    /// Declares a left factor in tensor memory, which a role of its own makes, and says how many stages of it there are.
    fn left(&self, _: &mut KernelBuilder, _: &Numbers) -> Option<(Tensor, i64)> {
        None
    }
    /// Makes the left factors of the next step along k.
    fn make_left(&self, _: &mut KernelBuilder, _: &Collective<Self>) {}
    /// Declares accumulators in tensor memory, into which a role of its own multiplies.
    fn sums(&self, _: &mut KernelBuilder, _: &Numbers) -> Option<Accumulators> {
        None
    }
    /// True if those have the sums of parts of a step, which threads [add](Self::add), and not of a tile.
    fn sums_apart(&self) -> bool {
        false
    }
    /// Adds the sums of a step's parts.
    fn add(&self, _: &mut KernelBuilder, _: &Collective<Self>, _: &Accumulators) {}
    /// Accumulators of 0, or a tile's sums out of tensor memory.
    fn begin(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Accumulators;
    /// Multiplies the stage of a step along k. The site tells the places of the program that do so apart.
    fn step(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        tile: &WorkTile,
        at: (&Expr, &str),
    );
    /// Waits until the accumulators are complete, and writes what is written beside C.
    fn complete(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators, tile: &WorkTile);
}

/// The declarations of a mainloop.
pub(crate) struct Collective<M: Mainloop + ?Sized> {
    pub numbers: Numbers,
    pub views: M::Views,
    pub stage: M::Stage,
    /// The ring of stages.
    pub ring: Pipeline,
    /// The rings of what is [apart](Mainloop::apart).
    pub apart: Vec<Pipeline>,
    /// The ring of [left factors](Mainloop::left) in tensor memory, with the factor.
    pub left: Option<(Pipeline, Tensor)>,
    /// The ring of sums in tensor memory, with these.
    pub sums: Option<(Pipeline, Accumulators)>,
}

impl<M: Mainloop + ?Sized> Collective<M> {
    /// Waits for a step's stage of the ring and of one apart, if there is one, and gives them back behind the body.
    pub fn consume(&self, t: &mut KernelBuilder, body: impl FnOnce(&mut KernelBuilder)) {
        match self.apart.first() {
            Some(apart) => t.consume(apart, |t| t.consume(&self.ring, body)),
            None => t.consume(&self.ring, body),
        }
    }
}

/// A second matrix that A is multiplied by in the same pass, as large as B and stored as it is.
#[derive(Clone, Copy)]
pub(crate) struct Second {
    /// It is the second half of B's tensor; otherwise a tensor `up`.
    pub fused: bool,
    /// Its products are added to those of B; otherwise they have accumulators of their own.
    pub added: bool,
}

/// A product of a step along k: of a part of A and a part of B, or of A and one of two matrices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Term {
    /// The part of A.
    pub a: usize,
    /// The part of B, or the matrix.
    pub b: usize,
    /// Its accumulators are those of the second matrix.
    pub second: bool,
}

/// TMA loads of the operands, and wgmma straight into the accumulators of the tile, or tcgen05 into those in tensor memory.
pub(crate) struct TmaWgmma {
    pub tiling: Tiling,
    /// Types of a and b.
    pub dtypes: [DType; 2],
    pub majors: [Major; 2],
    /// Parts of a factor, each a matrix of the packed copy.
    pub parts: usize,
    /// The type of scales of blocks of both factors along k, and the elements of a block: with sums in tensor memory.
    pub scales: Option<(DType, i64)>,
    /// The products of a step along k, in order.
    pub terms: Vec<Term>,
    /// Adds the sums of a step to those of the tile in f32, in the threads: tensor cores cut off bits of sums.
    pub promote: bool,
    /// The factors are real numbers that stand for complex ones: n and k count pairs.
    pub complex: bool,
    pub second: Option<Second>,
    /// B is A.
    pub same: bool,
    /// The triangle of A outside of which there are zeros: steps that meet nothing else are left out.
    pub triangle: Triangle,
    /// Adds the rows of A from the tiles in shared memory, while they are multiplied: `sums_a`. Of the blocks that have the same rows,
    /// those do that have the first rows of B.
    pub sums_a: bool,
    /// Rows of A lie anywhere: the table `rows` has the number of each.
    pub gathered: bool,
    /// Factors that were copied to aligned lines, and are read there.
    pub packed: [bool; 2],
    pub hints: [Option<CacheHint>; 2],
    /// Groups of wgmma in flight while the next one is issued.
    pub in_flight: i64,
}

/// The attributes of loads of a and of b: those that a cluster shares are multicast, or halves of a pair's blocks.
pub(crate) fn load_attributes(tiling: &Tiling, hints: [Option<CacheHint>; 2]) -> [AsyncCopyAttrs; 2] {
    let [blocks_m, blocks_n, _] = tiling.cluster.shape();
    // Blocks along n have the same tile of A, those along m the same tile of B. The first mode of a cluster is along the tile's rows.
    let (along_m, along_n) = match tiling.cluster {
        _ if tiling.pair => {
            let several = tiling.blocks()[0] > 2;
            let halves = if several { Multicast::Pairs(0) } else { Multicast::Pair };
            tiling.sides((halves, Multicast::Along(1)))
        }
        Cluster::AlongMn(..) => tiling.sides((Multicast::Along(0), Multicast::Along(1))),
        _ => (Multicast::All, Multicast::All),
    };
    let attributes = |multicast, hint| AsyncCopyAttrs { multicast, hint, ..AsyncCopyAttrs::default() };
    [
        attributes((blocks_n > 1).then_some(along_n), hints[0]),
        attributes((blocks_m > 1).then_some(along_m), hints[1]),
    ]
}

impl Mainloop for TmaWgmma {
    /// A, B, the second matrix if it is a tensor of its own, and the numbers of rows of A where these lie anywhere.
    type Params = Vec<Buffer>;
    type Views = Vec<OperandView>;
    /// Tiles of A, B and the second matrix.
    type Stage = Vec<Tensor>;

    fn part(&self) -> Option<i64> {
        None
    }

    fn rounds_at_once(&self) -> bool {
        false
    }

    fn problem(&self, t: &mut KernelBuilder, batch: Batch) -> (Problem, Expr) {
        let (problem, k) = Problem::declare(t, batch, self.tiling.fill != FillMode::Full);
        let rows = self.gathered.then(|| t.size("r", 4096));
        let problem = problem.of_rows(rows);
        if self.complex { problem.of_complex(&k) } else { (problem, k) }
    }

    fn params(&self, t: &mut KernelBuilder, problem: &Problem, numbers: &Numbers) -> Vec<Buffer> {
        let Problem { m, n, products, matrices, nested, .. } = problem;
        if let Some(nested) = nested {
            return [0, 1].map(|i| nested.buffer(t, i, ["a", "b"][i], self.dtypes[i])).into();
        }
        let (k, several) = (&numbers.k, [products, matrices]);
        let pad = self.packed.contains(&true).then(|| packed_lines(t, self.dtypes[0]));
        let mut params: Vec<Buffer> = (0..if self.same { 1 } else { 2 })
            .map(|i| {
                let rows_of_a = problem.rows.as_ref().unwrap_or(m);
                let (dtype, major, shape) = (self.dtypes[i], self.majors[i], [[rows_of_a, n][i], k]);
                match (&pad, self.second) {
                    (Some(pad), _) if self.packed[i] => {
                        problem.packed(t, i, dtype, shape, major, (pad, self.parts))
                    }
                    (_, Some(Second { fused: true, .. })) if i == 1 => {
                        problem.halves(t, "b", dtype, shape, major, several[i].as_ref())
                    }
                    _ => problem.matrix(t, ["a", "b"][i], dtype, shape, major, several[i].as_ref()),
                }
            })
            .collect();
        if let Some(Second { fused: false, .. }) = self.second {
            params.push(problem.matrix(t, "up", self.dtypes[1], [n, k], self.majors[1], several[1].as_ref()));
        }
        if self.gathered {
            params.push(t.tensor("rows", DType::I32, [m]));
        }
        if let Some((dtype, block)) = self.scales {
            let rows_of_a = problem.rows.as_ref().unwrap_or(m);
            let all = [("a_scale", rows_of_a), ("b_scale", n), ("up_scale", n)];
            let blocks = k.ceil_div(block);
            for (i, (name, rows)) in all.into_iter().take(self.scale_params()).enumerate() {
                let (shape, several) = ([rows, &blocks], several[i.min(1)].as_ref());
                params.push(match self.second {
                    Some(Second { fused: true, .. }) if i == 1 => {
                        problem.halves(t, name, dtype, shape, Major::K, several)
                    }
                    _ => problem.matrix(t, name, dtype, shape, Major::K, several),
                });
            }
        }
        params
    }

    fn outputs(&self, t: &mut KernelBuilder, problem: &Problem, mut params: Vec<Buffer>) -> Vec<Buffer> {
        if self.sums_a {
            let shape: Vec<&Expr> = problem.products.iter().chain([&problem.m]).collect();
            params.push(t.tensor("sums_a", self.tiling.accumulator, shape));
        }
        params
    }

    fn views(
        &self,
        t: &mut KernelBuilder,
        params: Vec<Buffer>,
        Problem { products, matrices, nested, rows, .. }: &Problem,
        scheduler: &Scheduler,
    ) -> Vec<OperandView> {
        let Numbers { k, bm, bn, bk, .. } = &scheduler.numbers;
        if let Some(nested) = nested {
            let (of_a, of_b) = self.tiling.sides((bm, bn));
            let along_k = (Group::K, Share::Whole(bk));
            let factors = [("ga", Group::M, of_a), ("gb", Group::N, of_b)];
            let view = |(i, buffer): (usize, &Buffer)| {
                let (name, rows, size) = factors[i];
                OperandView::Nested(nested.view(t, name, (i, buffer), (rows, Share::Whole(size)), along_k))
            };
            return params.iter().enumerate().map(view).collect();
        }
        let along_k = Steps::tiled(bk, k.ceil_div(bk));
        let (of_a, of_b) = self.tiling.sides((&scheduler.along_rows, &scheduler.along_cols));
        let fused = self.second.is_some_and(|second| second.fused);
        let last = params.len() - usize::from(!self.same);
        let (factors, of_blocks) = params.split_at(params.len() - self.scale_params());
        let first_scale = factors.len() + usize::from(self.same);
        let view = |(i, buffer): (usize, &Buffer)| {
            match rows {
                Some(rows) if i == 0 => {
                    let modes = [vec![steps(0, rows, 1)], along_k.modes(1)].concat();
                    return t.global_view("ga", buffer, modes);
                }
                Some(_) if i == self.table() => return t.global_view("gr", buffer, of_a.modes(0)),
                _ => {}
            }
            if i == last && self.sums_a {
                let modes = of_a.modes(u32::from(products.is_some()));
                return t.global_view("gs", buffer, with_batch(modes, products.as_ref()));
            }
            if let Some((_, block)) = self.scales.filter(|_| i >= first_scale) {
                let (name, of, several) = match i - first_scale {
                    0 => ("ga_scale", of_a, products.as_ref()),
                    1 => ("gb_scale", of_b, matrices.as_ref()),
                    _ => ("gu_scale", of_b, matrices.as_ref()),
                };
                let along_blocks = Steps::tiled(&(bk / block), k.ceil_div(bk));
                if let (Some(rows), 0) = (rows, i - first_scale) {
                    let modes = [vec![steps(0, rows, 1)], along_blocks.modes(1)].concat();
                    return t.global_view(name, buffer, modes);
                }
                let of = Steps { size: scaled_rows(&of.size), ..of.clone() };
                if i == first_scale + 1 && fused {
                    return parts_view(t, name, buffer, (several, 2), &of, &along_blocks);
                }
                return matrix_view(t, name, &buffer.into(), several, (0, 1), &of, &along_blocks);
            }
            let (of, several) = if i == 0 { (of_a, products.as_ref()) } else { (of_b, matrices.as_ref()) };
            if self.parts > 1 {
                return parts_view(t, ["ga", "gb"][i], buffer, (several, self.parts as i64), of, &along_k);
            }
            if i == 1 && fused {
                return parts_view(t, "gb", buffer, (several, 2), of, &along_k);
            }
            matrix_view(t, ["ga", "gb", "gu"][i], &buffer.into(), several, (0, 1), of, &along_k)
        };
        let again = |of: &'_ [Buffer]| self.same.then(|| of.first().copied()).flatten();
        let (also_factor, also_scales) = (again(factors), again(of_blocks));
        let operands = factors[..1].iter().chain(&also_factor).chain(&factors[1..]);
        let operands = operands.chain(of_blocks).chain(&also_scales);
        operands.enumerate().map(view).map(OperandView::Matrix).collect()
    }

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bn, bk, .. }: &Numbers) -> Vec<Tensor> {
        let (of_a, of_b) = self.tiling.sides((bm, bn));
        let name =
            |word: &str, part: usize| if part == 0 { word.to_string() } else { format!("{word}{part}") };
        let mut tile = |name: &str, factor: usize| {
            t.shared_tensor(name, self.dtypes[factor], [[of_a, of_b][factor], bk])
        };
        let mut stage: Vec<Tensor> = (0..self.parts).map(|part| tile(&name("sa", part), 0)).collect();
        stage.extend((0..self.parts).map(|part| tile(&name("sb", part), 1)));
        stage.extend(self.second.map(|_| tile("su", 1)));
        if let Some((dtype, block)) = self.scales {
            let all = [("sa_scale", of_a), ("sb_scale", of_b), ("su_scale", of_b)];
            for (name, rows) in all.into_iter().take(self.scale_tensors()) {
                stage.push(t.shared_tensor(name, dtype, [&scaled_rows(rows), &(bk / block)]));
            }
        }
        stage
    }

    fn range(&self, scheduler: &Scheduler, tile: &WorkTile) -> KRange {
        let range = scheduler.k_range(tile);
        scheduler.within_triangle(self.triangle, tile, range)
    }

    fn numbers(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Vec<Tensor> {
        let Some(OperandView::Matrix(table)) = on.views.get(self.table()).filter(|_| self.gathered) else {
            return Vec::new();
        };
        let (of_a, _) = self.tiling.sides((&on.numbers.bm, &on.numbers.bn));
        let (row, _) = self.tiling.sides((&tile.row, &tile.col));
        vec![numbers(
            t,
            "numbers",
            table.index([None, Some(row.clone())]),
            of_a,
            tile.end.as_ref().map(|end| end - row),
        )]
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let (views, stage) = (&on.views, &on.stage);
        let (of_a, of_b) = self.tiling.sides((&tile.row, &tile.col));
        let [how_a, how_b] = load_attributes(&self.tiling, self.hints);
        let (factors, scales) = stage.split_at(stage.len() - self.scale_tensors());
        let of_blocks = &views[views.len() - self.scale_views()..];
        for (i, shared) in scales.iter().enumerate() {
            match (of_blocks, i, tile.numbers.first()) {
                ([OperandView::Matrix(view), ..], 0, Some(numbers)) => {
                    let rows = view.index([None, None, Some(step.clone())]).indexed(0, numbers);
                    t.copy_async(rows, *shared);
                }
                (_, 0, _) => t.copy_async(of_blocks[0].at(of_a, step, tile.product.as_ref()), *shared),
                _ => {
                    let number = Expr::from(i as i64 - 1);
                    let (view, part) = match self.second {
                        Some(Second { fused: true, .. }) => (&of_blocks[1], Some(&number)),
                        _ => (&of_blocks[i], None),
                    };
                    t.copy_async(view.at(of_b, step, tile.of_b().into_iter().chain(part)), *shared);
                }
            }
        }
        let (parts_of_a, parts_of_b) = factors.split_at(self.parts);
        for (part, shared) in parts_of_a.iter().enumerate() {
            if let (Some(numbers), OperandView::Matrix(view)) = (tile.numbers.first(), &views[0]) {
                t.copy_async_with(
                    view.index([None, None, Some(step.clone())]).indexed(0, numbers),
                    *shared,
                    how_a,
                );
                continue;
            }
            let number = Expr::from(part as i64);
            let part = (self.parts > 1).then_some(&number);
            let which = tile.product.iter().chain(part);
            t.copy_async_with(views[0].at(of_a, step, which), *shared, how_a);
        }
        for (part, shared) in parts_of_b.iter().enumerate() {
            let number = Expr::from(part as i64);
            let (view, part) = match self.second {
                Some(Second { fused: false, .. }) => (&views[1 + part], None),
                Some(Second { fused: true, .. }) => (&views[1], Some(&number)),
                None => (&views[1], (self.parts > 1).then_some(&number)),
            };
            t.copy_async_with(view.at(of_b, step, tile.of_b().into_iter().chain(part)), *shared, how_b);
        }
    }

    fn sums(&self, t: &mut KernelBuilder, numbers: &Numbers) -> Option<Accumulators> {
        self.tiling.sums(t, numbers, self.has_second_sums())
    }

    fn begin(&self, t: &mut KernelBuilder, on: &Collective<Self>, _: &WorkTile) -> Accumulators {
        let sums = self.tiling.begin(t, on, self.has_second_sums());
        let of_a = self.sums_a.then(|| {
            let (of_a, _) = self.tiling.sides((&on.numbers.bm, &on.numbers.bn));
            let shape = [of_a, &(&on.numbers.bk / self.neighbours())];
            let sums = t.register_tensor("rs", self.tiling.accumulator, shape);
            t.fill(&sums, 0.0);
            sums
        });
        Accumulators { of_a, ..sums }
    }

    fn step(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        tile: &WorkTile,
        (_, site): (&Expr, &str),
    ) {
        let partial = self.promote.then(|| {
            let shape = [&on.numbers.bm, &on.numbers.width];
            t.register_tensor(&format!("of_step{site}"), self.tiling.accumulator, shape)
        });
        t.consume(&on.ring, |t| {
            if let Some(partial) = &partial {
                t.fill(partial, 0.0);
            }
            for Term { a, b, second } in &self.terms {
                let (left, right) = self.tiling.sides((on.stage[*a], on.stage[self.parts + b]));
                let whole = sums.second.as_ref().filter(|_| *second).unwrap_or(&sums.parts[0]);
                let to = partial.as_ref().unwrap_or(whole);
                if let [of_a, of_others @ ..] = &on.stage[on.stage.len() - self.scale_tensors()..] {
                    t.gemm_async_scaled(to, left, right, self.tiling.sides((*of_a, of_others[*b])));
                } else {
                    self.tiling.issue(t, to, left, right);
                }
            }
            if self.tiling.tensor_memory {
                return;
            }
            t.commit_gemm();
            if let Some(of_a) = &sums.of_a {
                self.add_rows(t, on, of_a, tile, site);
            }
            t.wait_gemm(if self.promote { 0 } else { self.in_flight });
        });
        if let Some(partial) = &partial {
            t.assign(&sums.parts[0], sums.parts[0] + partial);
        }
    }

    fn complete(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators, tile: &WorkTile) {
        self.tiling.complete(t, sums, if self.promote { 0 } else { self.in_flight });
        if let (Some(of_a), Some(OperandView::Matrix(view))) = (&sums.of_a, on.views.last()) {
            let (rows, first) = self.rows_of_a(tile);
            t.if_then(first, |t| {
                let all = t.reduce("sums_of_rows", of_a, ReduceOp::Sum, 1);
                let entries = [None, Some(rows)].into_iter().chain(tile.product.clone().map(Some));
                t.copy(all, view.index(entries));
            });
        }
    }
}

/// Rows of the scales of a tile of so many: those that come to tensor memory at a time, of which the last may be those of the next tile.
fn scaled_rows(rows: &Expr) -> Expr {
    match rows.as_int() {
        Some(rows) => SumsScaling::rows_for(rows).into(),
        None => rows.ceil_div(SumsScaling::ROWS) * SumsScaling::ROWS,
    }
}

/// A part of a table of rows in registers: −1 outside of the table, and behind the rows that are left of a group.
pub(crate) fn numbers(
    t: &mut KernelBuilder,
    name: &str,
    from: Reference,
    count: &Expr,
    left: Option<Expr>,
) -> Tensor {
    let all = t.register_tensor(name, DType::I32, [count]);
    let outside = CopyAttrs { outside: Some(Literal::from(-1.0)), ..CopyAttrs::default() };
    t.copy_with(from, all, outside);
    match left {
        // What a tile has behind its group's end is not written, and need not be read.
        Some(left) => t.define(&format!("{name}_here"), where_(index(0).lt(left), all, -1)),
        None => all,
    }
}

/// Products straight into the accumulators of the tile, by wgmma or into tensor memory.
impl Tiling {
    /// The sums of a tile, and those of products with a second matrix where these are apart: accumulators of 0, or sums out of tensor memory.
    pub fn begin<M: Mainloop>(&self, t: &mut KernelBuilder, on: &Collective<M>, apart: bool) -> Accumulators {
        if let Some((ring, in_memory)) = &on.sums {
            return self.read(t, &on.numbers, (ring, in_memory));
        }
        let sums = self.zeros(t, &on.numbers, "rc");
        let second = apart.then(|| self.zeros(t, &on.numbers, "ru"));
        Accumulators { parts: vec![sums], second, of_a: None, scales: Vec::new() }
    }

    /// Begins a product of a stage's tensors: one that warpgroups share, or one into tensor memory.
    pub fn issue(&self, t: &mut KernelBuilder, to: &Tensor, left: Tensor, right: Tensor) {
        match self.tensor_memory {
            true => t.gemm_async(to, left, right),
            false => t.gemm_async_over(to, left, right, [self.warpgroups.into(), 1.into()]),
        }
    }

    /// Multiplies a stage's two tensors; by wgmma with so many groups in flight behind it.
    pub fn multiply(
        &self,
        t: &mut KernelBuilder,
        (ring, stage): (&Pipeline, [Tensor; 2]),
        sums: &Accumulators,
        in_flight: i64,
    ) {
        let (left, right) = self.sides((stage[0], stage[1]));
        t.consume(ring, |t| {
            sums.parts.iter().for_each(|sums| self.issue(t, sums, left, right));
            if !self.tensor_memory {
                t.commit_gemm();
                t.wait_gemm(in_flight);
            }
        });
    }

    /// Waits until the accumulators are complete.
    pub fn complete(&self, t: &mut KernelBuilder, sums: &Accumulators, in_flight: i64) {
        if in_flight > 0 && !self.tensor_memory {
            t.wait_gemm(0);
        }
        if self.blocks()[2] > 1 {
            sums.parts.iter().chain(&sums.second).for_each(|sums| t.cluster_reduce(sums, ReduceOp::Sum));
        }
    }
}

impl TmaWgmma {
    /// The place of the table of rows among the parameters.
    fn table(&self) -> usize {
        2 + usize::from(self.second.is_some_and(|second| !second.fused))
    }

    /// Tensors of scales of a stage: of A, of B and of a second matrix.
    fn scale_tensors(&self) -> usize {
        if self.scales.is_some() { 2 + usize::from(self.second.is_some()) } else { 0 }
    }

    /// Their views: a second matrix that is half of B's tensor has none of its own.
    fn scale_views(&self) -> usize {
        self.scale_tensors()
            - usize::from(self.scales.is_some() && self.second.is_some_and(|second| second.fused))
    }

    /// Their parameters: a B that is A has none of its own either.
    fn scale_params(&self) -> usize {
        self.scale_views() - usize::from(self.scales.is_some() && self.same)
    }

    /// Returns whether the products with a second matrix have accumulators of their own.
    fn has_second_sums(&self) -> bool {
        self.second.is_some_and(|second| !second.added)
    }

    /// Neighbours along k that a thread reads of a row of A at once: 16 bytes.
    fn neighbours(&self) -> i64 {
        16 / bytes(self.dtypes[0])
    }

    /// The number of a tile's rows of A, and the condition that the tile is the first of those with these rows.
    fn rows_of_a(&self, tile: &WorkTile) -> (Expr, Expr) {
        let (of_a, of_b) = self.tiling.sides((&tile.row, &tile.col));
        (of_a.clone(), of_b.less(1))
    }

    /// Adds the rows of A's tile in shared memory. A thread adds the neighbours that it reads; the rest is added at the tile's end.
    fn add_rows(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Tensor,
        tile: &WorkTile,
        site: &str,
    ) {
        let Numbers { bm, bn, bk, .. } = &on.numbers;
        let (of_a, _) = self.tiling.sides((bm, bn));
        let (_, first) = self.rows_of_a(tile);
        t.if_then(first, |t| {
            let name = |word: &str| format!("{word}_of_a{site}");
            let values = t.register_tensor(&name("tile"), self.dtypes[0], [of_a, bk]);
            t.copy(on.stage[0], values);
            let wide = t.cast(&name("wide"), values, self.tiling.accumulator);
            let each = self.neighbours();
            let apart = t.reshape(&name("apart"), wide, [of_a, &each.into(), &(bk / each)]);
            let some = t.reduce(&name("some"), apart, ReduceOp::Sum, 1);
            t.assign(sums, Elem::from(sums) + some);
        });
    }
}
