//! The mainloop of weights of a few bits: they come in the order of [`StoredWeights`], go from shared memory to registers as they are, are cast there and
//! multiplied as the left factor of wgmma by activations in shared memory. Their scales multiply the sums of a group, in f32, or the
//! weights themselves. While a part of a stage is multiplied, the weights of the next one are loaded and cast. With few rows of activations `mma` takes
//! fewer cycles than `wgmma`, which takes 16 of the tensor cores' however narrow its factor is, and nobody waits for its sums. With `tcgen05` a role casts for another that
//! multiplies ([`weights_cast`](super::weights_cast)).

use std::fmt;
use std::str::FromStr;

use tilewright_machine::{CacheHint, DType};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Reference, Tensor, nested, steps, tile};

use super::choices::Batch;
use super::mainloop::{Accumulators, Collective, Mainloop, load_attributes, numbers};
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::stored::{StoredWeights, Takers};
use super::tiling::{Numbers, Tiling};
use super::views::with_batch;

/// The factor that the scales of groups multiply.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scaled {
    /// The sums of a group, in f32.
    Sums,
    /// The weights, in the type of the activations.
    Weights,
}

/// The instruction that multiplies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Instruction {
    /// That of a warpgroup, which reads the activations from shared memory.
    Wgmma,
    /// That of a warp, which loads the activations into registers.
    Mma,
    /// That with its sums in tensor memory, where its left factor lies too: one thread issues what others have cast.
    Tcgen05,
}

impl Instruction {
    /// All of them.
    pub const ALL: [Instruction; 3] = [Instruction::Wgmma, Instruction::Mma, Instruction::Tcgen05];
}

/// See the [module](self).
pub(crate) struct Weights {
    /// With `swap`: the tile's rows are those of the weights.
    pub tiling: Tiling,
    /// The type of the activations.
    pub dtype: DType,
    /// That of their products' sums.
    pub products: DType,
    /// The type of the zero points.
    pub plain: DType,
    pub stored: StoredWeights,
    /// The order of the weights' upper bits, where these are a tensor of their own.
    pub upper: Option<StoredWeights>,
    /// The type of the scales.
    pub scale: DType,
    /// Neighbours along k that share a scale; `None`: all of a row.
    pub group: Option<i64>,
    /// Zero points are taken from the weights.
    pub zeros: bool,
    pub scaled: Scaled,
    pub instruction: Instruction,
    /// Columns of a stage that are cast at a time, and multiplied then.
    pub part: i64,
    /// With `tcgen05`: columns of a left factor in tensor memory, of whole parts, and its stages.
    pub left: i64,
    pub lefts: i64,
    pub hints: [Option<CacheHint>; 2],
    /// Rows of activations lie anywhere: the table `rows` has the number of each.
    pub gathered: bool,
}

impl fmt::Display for Scaled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Scaled::Sums => "sums",
            Scaled::Weights => "weights",
        })
    }
}

impl FromStr for Scaled {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = [Scaled::Sums, Scaled::Weights].into_iter().find(|scaled| scaled.to_string() == text);
        found.ok_or("must be sums or weights")
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Instruction::Wgmma => "wgmma",
            Instruction::Mma => "mma",
            Instruction::Tcgen05 => "tcgen05",
        })
    }
}

impl FromStr for Instruction {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Instruction::ALL.into_iter().find(|found| found.to_string() == text);
        found.ok_or("must be wgmma, mma or tcgen05")
    }
}

/// Activations, weights, their upper bits, scales, zero points, and the numbers of rows of activations where these lie anywhere.
pub(crate) struct Operands<T> {
    a: T,
    w: T,
    h: Option<T>,
    s: T,
    z: Option<T>,
    table: Option<T>,
}

/// The shared tensors of a stage: weights, activations, and what there is of upper bits, scales and zero points.
pub(crate) struct Stage {
    weights: Tensor,
    pub(super) activations: Tensor,
    /// Those of the main ring, and those of rings of their own: weights and what they are cast with, and the scales of sums, if other threads read them.
    tensors: Vec<Tensor>,
    apart: Vec<(&'static str, Vec<Tensor>)>,
    upper: Option<Tensor>,
    scale: Option<Tensor>,
    zero: Option<Tensor>,
}

impl AsRef<[Tensor]> for Stage {
    fn as_ref(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl Weights {
    /// Parts of a stage.
    pub(super) fn parts(&self) -> i64 {
        self.tiling.bk / self.part
    }

    /// Columns of the activations that are multiplied at a time.
    fn multiplied(&self) -> i64 {
        if self.instruction == Instruction::Tcgen05 { self.left } else { self.part }
    }

    /// Groups of a stage: one where it lies within a group.
    pub(super) fn groups(&self) -> i64 {
        self.group.map_or(1, |group| (self.tiling.bk / group).max(1))
    }

    /// The group of a stage in which a part lies.
    fn group_of(&self, part: i64) -> i64 {
        part * self.groups() / self.parts()
    }

    /// True where sums are scaled, or become floats, as soon as those of a part are complete.
    pub(super) fn promotes(&self) -> bool {
        self.scaled == Scaled::Sums && self.group.is_some() || !self.products.is_float()
    }

    /// Vectors of a step's groups: scales or zero points, of each of several matrices.
    fn vector_view(
        &self,
        t: &mut KernelBuilder,
        (name, of): (&str, &Buffer),
        matrices: Option<&Expr>,
        scheduler: &Scheduler,
    ) -> Tensor {
        let (bm, rows) = (&scheduler.numbers.bm, &scheduler.along_rows.count);
        let groups = self.groups();
        let count = match self.group {
            Some(group) => scheduler.numbers.k.ceil_div(group * groups),
            None => 1.into(),
        };
        let behind = u32::from(matrices.is_some());
        let along_n = [tile(1 + behind, bm), steps(1 + behind, rows, bm)];
        let along_k = [tile(behind, groups), steps(behind, count, groups)];
        let modes = along_n.into_iter().chain(along_k).collect();
        t.global_view(name, of, with_batch(modes, matrices))
    }

    /// The number of a step's groups among all.
    fn group_at(&self, step: &Expr) -> Expr {
        match self.group {
            Some(group) if group > self.tiling.bk => step * self.tiling.bk / group,
            Some(_) => step.clone(),
            None => 0.into(),
        }
    }

    /// Loads the vector of a part's group into registers.
    fn vector(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        (name, shared): (&str, &Tensor),
        part: i64,
        dtype: DType,
    ) -> Tensor {
        let values = t.register_tensor(name, dtype, [&on.numbers.bm]);
        t.copy(shared.index([None, Some(self.group_of(part).into())]), values);
        values
    }

    /// Loads the weights of a step, and their upper bits.
    fn load_weights(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let ([_, how], views, stage) = (load_attributes(&self.tiling, self.hints), &on.views, &on.stage);
        for (view, shared) in
            [(Some(&views.w), Some(&stage.weights)), (views.h.as_ref(), stage.upper.as_ref())]
        {
            if let (Some(view), Some(shared)) = (view, shared) {
                let place = [None, Some(tile.row.clone()), None, None, Some(step.clone())];
                t.copy_async_with(view.index(place.into_iter().chain(of_matrix(tile))), shared, how);
            }
        }
    }

    /// Loads the scales and zero points of a step, or one of both.
    fn load_vectors(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        (tile, step): (&WorkTile, &Expr),
        which: [bool; 2],
    ) {
        let (group, views, stage) = (self.group_at(step), &on.views, &on.stage);
        let pairs = [(Some(&views.s), &stage.scale), (views.z.as_ref(), &stage.zero)];
        for ((view, shared), _) in pairs.into_iter().zip(which).filter(|(_, loads)| *loads) {
            if let (Some(view), Some(shared)) = (view, shared) {
                let place = [None, Some(tile.row.clone()), None, Some(group.clone())];
                t.copy_async(view.index(place.into_iter().chain(of_matrix(tile))), shared);
            }
        }
    }

    /// Registers for parts in turn: of two, so that one is cast while the other is multiplied, where a stage has several.
    fn turns(&self) -> i64 {
        self.parts().min(2)
    }

    /// Those who share the weights.
    pub(super) fn takers(&self) -> Takers {
        match self.instruction {
            Instruction::Wgmma => Takers::Warpgroups(self.tiling.warpgroups),
            Instruction::Mma => Takers::Warps(4 * self.tiling.warpgroups),
            Instruction::Tcgen05 => Takers::Lanes(self.tiling.casting),
        }
    }

    /// A part's weights as the products take them.
    pub(super) fn cast(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        (site, part): (&str, i64),
        to: &Tensor,
    ) {
        let Numbers { bm, .. } = &on.numbers;
        let columns = Expr::from(self.part);
        let name = |word: &str| format!("{word}{site}_{part}");
        let loaded = |t: &mut KernelBuilder, word: &str, order: &StoredWeights, from: &Tensor| {
            let layout = order.fragment([self.tiling.bm, self.part], self.takers());
            let stored = t.register_tensor_with(&name(word), order.dtype(), [bm, &columns], layout);
            t.copy(of_part(from, part), stored);
            stored
        };
        let stored = loaded(t, "stored", &self.stored, &on.stage.weights);
        let upper = self.upper.as_ref().zip(on.stage.upper.as_ref());
        let upper = upper.map(|(order, from)| loaded(t, "stored_upper", order, from));
        let factor = on.stage.scale.as_ref().filter(|_| self.scaled == Scaled::Weights);
        if factor.is_none() && on.stage.zero.is_none() && upper.is_none() {
            return t.cast_to(to, stored);
        }
        let mut value = Elem::from(t.cast(&name("plain"), stored, self.dtype));
        if let Some(upper) = upper {
            let upper = t.cast(&name("plain_upper"), upper, self.dtype);
            value = value + Elem::from(upper) * f64::from(1u32 << self.stored.dtype().bits());
        }
        if let Some(zeros) = &on.stage.zero {
            let zero = self.vector(t, on, (&name("zero"), zeros), part, self.plain);
            value = value - wide(t, &name("zero"), zero, [bm, &columns]);
        }
        if let Some(scales) = factor {
            let scale = self.vector(t, on, (&name("factor"), scales), part, self.scale);
            let rounded = match self.scale == self.dtype {
                true => scale,
                false => t.cast(&name("rounded_factor"), scale, self.dtype),
            };
            value = value * wide(t, &name("factor"), rounded, [bm, &columns]);
        }
        t.assign(to, if self.dtype == DType::F16 { value.f16x2() } else { value.bf16x2() });
    }

    /// Adds sums of a part, scaled.
    pub(super) fn promote(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        (name, partial, scale): (&str, Option<Tensor>, Option<Tensor>),
    ) {
        let Numbers { bm, width: columns, .. } = &on.numbers;
        let Some(partial) = partial else { return };
        let float = self.products.is_float();
        let partial =
            if float { partial } else { t.cast(&format!("float{name}"), partial, self.tiling.accumulator) };
        match scale {
            Some(scale) => {
                let wide = wide(t, &format!("scale{name}"), scale, [bm, columns]);
                t.assign(&sums.parts[0], sums.parts[0] + partial * wide);
            }
            None => t.assign(&sums.parts[0], sums.parts[0] + partial),
        }
    }

    /// The scales of a part's group, in f32, where sums are scaled part by part.
    pub(super) fn scale_of(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        (site, part): (&str, i64),
    ) -> Option<Tensor> {
        let scales = on.stage.scale.as_ref().filter(|_| self.scaled == Scaled::Sums)?;
        let stored = self.vector(t, on, (&format!("stored_scale{site}_{part}"), scales), part, self.scale);
        let wide = self.scale == DType::F32;
        Some(if wide { stored } else { t.cast(&format!("scale_of{site}_{part}"), stored, DType::F32) })
    }

    /// Multiplies the parts of a stage. The sums of each are scaled and added while the next one is multiplied; those of the last part behind it, since
    /// the assembler lets products overlap with reads of others' sums within an iteration only.
    fn step_of_warpgroups(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        sums: &Accumulators,
        site: &str,
    ) {
        let (turns, last) = (self.turns(), self.parts() - 1);
        let Numbers { bm, width, .. } = &on.numbers;
        let part_columns = Expr::from(self.part);
        let mut in_turn = |name: &str, dtype: DType, columns: &Expr| -> Vec<Tensor> {
            (0..turns)
                .map(|which| t.register_tensor(&format!("{name}{site}_{which}"), dtype, [bm, columns]))
                .collect()
        };
        let lefts = in_turn("left", self.dtype, &part_columns);
        let partials = if self.promotes() { in_turn("partial", self.products, width) } else { Vec::new() };
        let of = |of_parts: &[Tensor], part: i64| of_parts.get((part % turns) as usize).copied();
        on.consume(t, |t| {
            let mut scale = self.scale_of(t, on, (site, 0));
            for part in 0..=last {
                let Some(left) = of(&lefts, part) else { continue };
                self.cast(t, on, (site, part), &left);
                let partial = of(&partials, part);
                if let Some(partial) = &partial {
                    t.fill(partial, 0.0);
                }
                let to = partial.as_ref().unwrap_or(&sums.parts[0]);
                let right = of_part(&on.stage.activations, part);
                t.gemm_async_over(to, left, right, [self.tiling.warpgroups.into(), 1.into()]);
                t.commit_gemm();
                // With an odd number of parts the next stage begins with the registers of the last one.
                let odd = part == last && last % 2 == 0;
                if partials.is_empty() {
                    t.wait_gemm(if odd { 0 } else { 1 });
                    continue;
                }
                if part > 0 {
                    t.wait_gemm(1);
                    self.promote(t, on, sums, (&format!("{site}_{part}"), of(&partials, part - 1), scale));
                    if self.group_of(part) != self.group_of(part - 1) {
                        scale = self.scale_of(t, on, (site, part));
                    }
                }
            }
            if !partials.is_empty() {
                t.wait_gemm(0);
                self.promote(t, on, sums, (&format!("{site}_{}", last + 1), of(&partials, last), scale));
            }
        });
    }

    /// Multiplies the parts of a stage one after another, each warp by itself: the assembler mixes the casts of one with the products of others.
    fn step_of_warps(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators, site: &str) {
        let Numbers { bm, bn, width, .. } = &on.numbers;
        let (columns, warps) = (Expr::from(self.part), 4 * self.tiling.warpgroups);
        let layout = StoredWeights::factor(self.dtype, [self.tiling.bm, self.part], self.takers());
        on.consume(t, |t| {
            let mut scale = None;
            for part in 0..self.parts() {
                let name = |word: &str| format!("{word}{site}_{part}");
                if part == 0 || self.group_of(part) != self.group_of(part - 1) {
                    scale = self.scale_of(t, on, (site, part));
                }
                let left = t.register_tensor_with(&name("left"), self.dtype, [bm, &columns], layout.clone());
                self.cast(t, on, (site, part), &left);
                let right = t.register_tensor(&name("right"), self.dtype, [bn, &columns]);
                t.copy(of_part(&on.stage.activations, part), right);
                let partial = self.promotes().then(|| {
                    let partial = t.register_tensor(&name("partial"), self.products, [bm, width]);
                    t.fill(&partial, 0.0);
                    partial
                });
                let to = partial.as_ref().unwrap_or(&sums.parts[0]);
                t.gemm_over(to, left, right, [warps.into(), 1.into()]);
                self.promote(t, on, sums, (&format!("{site}_{}", part + 1), partial, scale));
            }
        });
    }
}

/// The last index of a view of the weights of several matrices.
fn of_matrix(tile: &WorkTile) -> Option<Option<Expr>> {
    tile.group.clone().map(Some)
}

/// A part's columns of a shared tensor of a stage.
pub(super) fn of_part(tensor: &Tensor, part: i64) -> Reference {
    tensor.index([None, None, Some(part.into())])
}

/// A vector along the tile's rows, for every column of a matrix.
fn wide(t: &mut KernelBuilder, name: &str, vector: Tensor, shape: [&Expr; 2]) -> Tensor {
    let line = t.expand(&format!("{name}_line"), vector, 1);
    t.broadcast(&format!("{name}_wide"), line, shape)
}

impl Mainloop for Weights {
    type Params = Operands<Buffer>;
    type Views = Operands<Tensor>;
    type Stage = Stage;

    fn part(&self) -> Option<i64> {
        None
    }

    fn rounds_at_once(&self) -> bool {
        false
    }

    fn problem(&self, t: &mut KernelBuilder, batch: Batch) -> (Problem, Expr) {
        let (problem, k) = Problem::declare(t, batch, false);
        let rows = self.gathered.then(|| t.size("r", 4096));
        (problem.of_rows(rows), k)
    }

    fn params(&self, t: &mut KernelBuilder, problem: &Problem, numbers: &Numbers) -> Operands<Buffer> {
        let (Problem { m, n, rows, matrices, .. }, k) = (problem, &numbers.k);
        let a = t.tensor("a", self.dtype, [rows.as_ref().unwrap_or(m), k]);
        let of_each = |shape: [Expr; 3]| matrices.iter().cloned().chain(shape).collect::<Vec<_>>();
        let w = t.tensor("w", self.stored.dtype(), of_each(self.stored.shape(n, k)));
        let h = self.upper.as_ref().map(|upper| t.tensor("h", upper.dtype(), of_each(upper.shape(n, k))));
        let groups = self.group.map_or(1.into(), |group| k.ceil_div(group));
        let s = t.tensor("s", self.scale, matrices.iter().chain([&groups, n]));
        let z = self.zeros.then(|| t.tensor("z", self.plain, matrices.iter().chain([&groups, n])));
        let table = rows.as_ref().map(|_| t.tensor("rows", DType::I32, [m]));
        if self.tiling.ahead {
            [Some(&w), h.as_ref(), Some(&s), z.as_ref()]
                .into_iter()
                .flatten()
                .for_each(|of| t.mark_constant(of));
        }
        Operands { a, w, h, s, z, table }
    }

    fn views(
        &self,
        t: &mut KernelBuilder,
        Operands { a, w, h, s, z, table }: Operands<Buffer>,
        Problem { rows, matrices, .. }: &Problem,
        scheduler: &Scheduler,
    ) -> Operands<Tensor> {
        let Numbers { bk, .. } = &scheduler.numbers;
        let (columns, parts) = (Expr::from(self.multiplied()), Expr::from(self.parts()));
        let pieces = Expr::from(self.tiling.bk / self.multiplied());
        let along_k = [tile(1, &columns), steps(1, &pieces, &columns), steps(1, &scheduler.depth, bk)];
        let along_m = scheduler.along_cols.modes(0);
        let table = table.map(|table| t.global_view("gn", &table, along_m.clone()));
        let of_a = rows.as_ref().map_or(along_m, |rows| vec![steps(0, rows, 1)]);
        let a = t.global_view("ga", &a, of_a.into_iter().chain(along_k));
        // Those of several matrices have a mode for these in front of the others.
        let (matrices, behind) = (matrices.as_ref(), u32::from(matrices.is_some()));
        let units = |t: &mut KernelBuilder, name: &str, order: &StoredWeights, of: &Buffer| {
            // Units of the tile's rows and of a part's columns.
            let (down, units) = (self.tiling.bm / StoredWeights::ROWS, self.part / order.columns());
            let pieces = order.pieces();
            let of_rows = order.view(false, behind).into_iter().chain([steps(behind, down, 1)]);
            let of_columns = order.view(true, behind).into_iter().chain([steps(1 + behind, units, pieces)]);
            let modes = vec![
                nested(of_rows),
                steps(behind, &scheduler.along_rows.count, down),
                nested(of_columns),
                steps(1 + behind, &parts, units * pieces),
                steps(1 + behind, &scheduler.depth, units * pieces * self.parts()),
            ];
            t.global_view(name, of, with_batch(modes, matrices))
        };
        let w = units(t, "gw", &self.stored, &w);
        let h = self.upper.as_ref().zip(h).map(|(upper, h)| units(t, "gh", upper, &h));
        let s = self.vector_view(t, ("gs", &s), matrices, scheduler);
        let z = z.map(|z| self.vector_view(t, ("gz", &z), matrices, scheduler));
        Operands { a, w, h, s, z, table }
    }

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bn, .. }: &Numbers) -> Stage {
        let (part, parts) = (Expr::from(self.part), Expr::from(self.parts()));
        let of_weights = |t: &mut KernelBuilder, name: &str, order: &StoredWeights| {
            let layout = order.shared([self.tiling.bm, self.part, self.parts()]);
            t.shared_tensor_with(name, order.dtype(), [bm, &part, &parts], layout)
        };
        let weights = of_weights(t, "tw", &self.stored);
        let upper = self.upper.as_ref().map(|upper| of_weights(t, "th", upper));
        let columns = self.multiplied();
        let shape = [bn, &columns.into(), &(self.tiling.bk / columns).into()];
        let activations = t.shared_tensor("ta", self.dtype, shape);
        let groups = Expr::from(self.groups());
        let scale = self.group.map(|_| t.shared_tensor("ts", self.scale, [bm, &groups]));
        let zero = self.zeros.then(|| t.shared_tensor("tz", self.plain, [bm, &groups]));
        let tensors = [weights].into_iter().chain(upper).chain(scale).chain(zero);
        let (tensors, apart) = match self.instruction {
            Instruction::Tcgen05 => {
                let (of_sums, of_weights) = if self.promotes() { (scale, None) } else { (None, scale) };
                let cast = [weights].into_iter().chain(upper).chain(of_weights).chain(zero).collect();
                let scales = of_sums.map(|scale| ("ss", vec![scale]));
                (vec![activations], [("ws", cast)].into_iter().chain(scales).collect())
            }
            _ if self.tiling.ahead => (vec![activations], vec![("ws", tensors.collect())]),
            _ => {
                let mut all: Vec<Tensor> = tensors.collect();
                all.insert(1, activations);
                (all, Vec::new())
            }
        };
        Stage { weights, activations, tensors, apart, upper, scale, zero }
    }

    fn numbers(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile) -> Vec<Tensor> {
        let Some(table) = &on.views.table else { return Vec::new() };
        let left = tile.end.as_ref().map(|end| end - &tile.col);
        let from = table.index([None, Some(tile.col.clone())]);
        vec![numbers(t, "numbers", from, &on.numbers.bn, left)]
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, at: &Expr) {
        let together = on.apart.is_empty();
        if together {
            self.load_weights(t, on, tile, at);
        }
        let ([how_a, _], views) = (load_attributes(&self.tiling, self.hints), &on.views);
        let step = Some(at.clone());
        let activations = match tile.numbers.first() {
            Some(numbers) => views.a.index([None, None, None, step]).indexed(0, numbers),
            None => views.a.index([None, Some(tile.col.clone()), None, None, step]),
        };
        t.copy_async_with(activations, on.stage.activations, how_a);
        if together {
            self.load_vectors(t, on, (tile, at), [true; 2]);
        }
    }

    fn fill(
        &self,
        t: &mut KernelBuilder,
        on: &Collective<Self>,
        tile: &WorkTile,
        (step, _): (&Expr, Option<&Tensor>),
    ) {
        if !self.tiling.ahead {
            self.fill_apart(t, on, tile, step);
        }
        t.produce(&on.ring, |t| self.load(t, on, tile, step));
    }

    fn apart<'s>(&self, stage: &'s Stage) -> &'s [(&'static str, Vec<Tensor>)] {
        &stage.apart
    }

    fn fill_apart(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        // The last ring has the scales.
        let last = on.apart.len().saturating_sub(1);
        for (i, ring) in on.apart.iter().enumerate() {
            t.produce(ring, |t| {
                if i == 0 {
                    self.load_weights(t, on, tile, step);
                }
                self.load_vectors(t, on, (tile, step), [i == last, i == 0]);
            });
        }
    }

    fn left(&self, t: &mut KernelBuilder, numbers: &Numbers) -> Option<(Tensor, i64)> {
        (self.instruction == Instruction::Tcgen05).then(|| (self.declare_left(t, numbers), self.lefts))
    }

    fn make_left(&self, t: &mut KernelBuilder, on: &Collective<Self>) {
        self.cast_step(t, on);
    }

    fn sums(&self, t: &mut KernelBuilder, numbers: &Numbers) -> Option<Accumulators> {
        let shape = [&numbers.bm, &numbers.width];
        self.tiling.tensor_memory.then(|| Accumulators {
            parts: vec![t.tensor_memory("acc", self.products, shape)],
            second: None,
            of_a: None,
            scales: Vec::new(),
        })
    }

    fn sums_apart(&self) -> bool {
        self.promotes()
    }

    fn add(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators) {
        self.add_step(t, on, sums);
    }

    fn begin(&self, t: &mut KernelBuilder, on: &Collective<Self>, _: &WorkTile) -> Accumulators {
        if on.sums.is_some() && self.promotes() {
            let zeros = self.tiling.zeros(t, &on.numbers, "rc");
            return Accumulators { parts: vec![zeros], second: None, of_a: None, scales: Vec::new() };
        }
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
        match self.instruction {
            Instruction::Wgmma => self.step_of_warpgroups(t, on, sums, site),
            Instruction::Mma => self.step_of_warps(t, on, sums, site),
            Instruction::Tcgen05 => self.multiply_step(t, on, sums),
        }
    }

    fn complete(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators, tile: &WorkTile) {
        if self.instruction == Instruction::Wgmma {
            t.wait_gemm(0);
        }
        if self.group.is_none() {
            let Numbers { bm, width, .. } = &on.numbers;
            let scale = t.register_tensor("scale_of_row", self.scale, [bm]);
            let place = [None, Some(tile.row.clone()), Some(0.into()), Some(0.into())];
            let place = place.into_iter().chain(tile.group.clone().map(Some));
            t.copy(on.views.s.index(place), scale);
            let scale =
                if self.scale == DType::F32 { scale } else { t.cast("scale_of_row_f32", scale, DType::F32) };
            let wide = wide(t, "scale_of_row", scale, [bm, width]);
            t.assign(&sums.parts[0], sums.parts[0] * wide);
        }
        self.tiling.complete(t, sums, 0);
    }
}
