//! The loads of a convolution: boxes of an image, shifted by the taps of the filter, beside the filter itself.

use std::cell::OnceCell;

use tilewright_machine::CacheHint;
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Tensor, steps, tile};

use super::geometry::Geometry;
use super::phases::Phase;
use super::{HopperConvConfig, Pass};
use crate::warp_specialized::{
    Accumulators, Along, Batch, Boxes, Collective, KRange, Mainloop, Numbers, Problem, ResultTensor,
    Scheduler, Tiling, WorkTile, load_attributes,
};

/// See the [module](self).
pub(super) struct Convolution<'a> {
    pub config: &'a HopperConvConfig,
    pub tiling: Tiling,
    pub geometry: OnceCell<Geometry>,
}

impl Convolution<'_> {
    fn geometry(&self) -> &Geometry {
        self.geometry.get().expect("the problem is declared before what it has")
    }

    /// The factors by their names: that of the result's rows first.
    fn names(&self) -> [&'static str; 2] {
        match self.config.pass {
            Pass::Fprop => ["x", "f"],
            Pass::Dgrad => ["dy", "f"],
            Pass::Wgrad => ["dy", "x"],
        }
    }

    /// Steps of the result's tiles along k, for so many taps.
    fn steps(&self, geometry: &Geometry, taps: Expr, bk: &Expr) -> Expr {
        match self.config.pass {
            Pass::Fprop => taps * geometry.c.ceil_div(bk),
            Pass::Dgrad => taps * geometry.kout.ceil_div(bk),
            Pass::Wgrad if geometry.im2col.is_some() => geometry.pixels(true).ceil_div(bk),
            Pass::Wgrad => geometry.outputs(false).count(),
        }
    }

    /// The number of a step's channels, and of its tap among so many.
    fn chunk_and_tap(step: &Expr, taps: &Expr) -> (Expr, Expr) {
        match taps.as_int() {
            Some(1) => (step.clone(), 0.into()),
            _ => (step / taps, step % taps),
        }
    }
}

/// The steps of a view along the taps of x: of axes that have several.
fn over_taps(geometry: &Geometry) -> impl Iterator<Item = Along> {
    let several = geometry.numbered(1).filter(|(_, axis)| axis.taps > 1);
    several.map(|(mode, axis)| Along::new(mode, axis.taps, axis.dilation))
}

/// Offsets of a view of x, or of dy in the data gradient, that begins so many pixels in front of the first along each axis.
fn begins(geometry: &Geometry, rank: u32, before: impl Fn(usize) -> i64) -> Vec<Expr> {
    let offset = |mode: usize| match mode.checked_sub(1).filter(|axis| *axis < geometry.axes.len()) {
        Some(axis) if before(axis) > 0 => Expr::from(0) - before(axis),
        _ => 0.into(),
    };
    (0..rank as usize).map(offset).collect()
}

fn entries(box_and_ways: Vec<Expr>) -> impl Iterator<Item = Option<Expr>> {
    [None].into_iter().chain(box_and_ways.into_iter().map(Some))
}

impl Mainloop for Convolution<'_> {
    type Params = [Buffer; 2];
    type Views = [Tensor; 2];
    type Stage = [Tensor; 2];

    fn part(&self) -> Option<i64> {
        None
    }

    fn rounds_at_once(&self) -> bool {
        false
    }

    fn problem(&self, t: &mut KernelBuilder, _: Batch) -> (Problem, Expr) {
        let geometry = Geometry::declare(t, &self.config.described(), true);
        let pass = self.config.pass;
        let depth: Expr = self.config.bk.into();
        let steps = self.steps(&geometry, geometry.taps().into(), &depth);
        // Sums in tensor memory begin with a product; of images that are smaller than the filter there is no output to sum over.
        let empty = self.tiling.tensor_memory && pass == Pass::Wgrad;
        let steps = if empty { steps.max(1) } else { steps };
        let [m, n] = geometry.matrix(pass);
        let groups = geometry.groups.clone();
        let (c, kout) = (geometry.c.clone(), geometry.kout.clone());
        let (channels, products) = geometry.plain_channels();
        let boxed = geometry.im2col.is_none();
        let tensor = match pass {
            Pass::Fprop => ResultTensor {
                name: "y",
                shape: geometry.plain_shape(true),
                rows: boxed.then(|| geometry.outputs(false)),
                columns: (channels, kout, Vec::new()),
                products,
                steps,
            },
            Pass::Dgrad => ResultTensor {
                name: "dx",
                shape: geometry.plain_shape(false),
                rows: boxed.then(|| geometry.inputs(true)),
                columns: (channels, c, Vec::new()),
                products,
                steps,
            },
            Pass::Wgrad => {
                let axes = geometry.numbered(1).rev();
                let ways = axes.map(|(mode, axis)| Along::new(mode, axis.taps, 1)).collect();
                let last = geometry.axes.len() as u32 + 1;
                ResultTensor {
                    name: self.config.filter_gradient(),
                    shape: geometry.filter_shape(),
                    rows: None,
                    columns: (last, c, ways),
                    products: None,
                    steps,
                }
            }
        };
        // Rows and columns of a group.
        let (m, n) = match pass {
            Pass::Wgrad => (geometry.kout.clone(), n),
            Pass::Fprop | Pass::Dgrad => (m, tensor.columns.1.clone()),
        };
        let problem = Problem::several(m, n, groups.clone(), groups).of_tensor(tensor);
        let _ = self.geometry.set(geometry);
        (problem, depth)
    }

    fn params(&self, t: &mut KernelBuilder, _: &Problem, _: &Numbers) -> [Buffer; 2] {
        self.names().map(|name| self.geometry().tensor(t, name, self.config.dtype))
    }

    fn views(
        &self,
        t: &mut KernelBuilder,
        [a, b]: [Buffer; 2],
        _: &Problem,
        scheduler: &Scheduler,
    ) -> [Tensor; 2] {
        let geometry = self.geometry();
        let Numbers { bm, bn, bk, .. } = &scheduler.numbers;
        let (channels, of_filter) = (geometry.channels(), geometry.of_filter());
        let last = of_filter + geometry.axes.len() as u32 + 1;
        let (c, kout) = (&geometry.c, &geometry.kout);
        let tiled =
            |mode: u32, size: &Expr, all: &Expr| [tile(mode, size), steps(mode, all.ceil_div(size), size)];
        let group = |mode: Option<u32>| {
            mode.zip(geometry.groups.clone()).map(|(mode, groups)| steps(mode, groups, 1))
        };
        let (of_image, of_taps) = (group(geometry.group()), group(geometry.groups.as_ref().map(|_| 0)));
        let front = |axis: usize| geometry.axes[axis].front;
        let pixels = |boxes: &Boxes| [vec![boxes.tile(0)], boxes.ways(0)].concat();
        let taps_of_x = || over_taps(geometry).map(|way| steps(way.mode, &way.count, &way.step));
        let (x, channels_of) = (begins(geometry, channels + 1, front), channels);
        // Tiles of pixels that taps shift, and what they fold.
        let shifted = |boxes: Boxes, size: &Expr| match geometry.im2col {
            Some(_) => {
                let (modes, fold) = geometry.folded(size);
                (modes.to_vec(), fold)
            }
            None => (pixels(&boxes), Vec::new()),
        };
        match self.config.pass {
            Pass::Fprop => {
                let (mut modes, fold) = shifted(geometry.outputs(true), bm);
                modes.extend(taps_of_x());
                modes.extend(tiled(channels_of, bk, c));
                modes.extend(of_image);
                let gx = t.folding_view("gx", a.from(x), modes, fold);
                let mut modes = tiled(of_filter, bn, kout).to_vec();
                modes.extend(self.taps_of_filter());
                modes.extend(tiled(last, bk, c));
                modes.extend(of_taps);
                [gx, t.global_view("gf", &b, modes)]
            }
            Pass::Dgrad => {
                let from = begins(geometry, channels + 1, |axis| geometry.axes[axis].before());
                let (mut modes, fold) = shifted(geometry.inputs(false), bm);
                let shifts = geometry.numbered(1);
                modes.extend(shifts.map(|(mode, axis)| steps(mode, axis.before() + axis.behind() + 1, 1)));
                modes.extend(tiled(channels_of, bk, kout));
                modes.extend(of_image);
                let gdy = t.folding_view("gdy", a.from(from), modes, fold);
                let mut modes = tiled(last, bn, c).to_vec();
                modes.extend(self.taps_of_filter());
                modes.extend(tiled(of_filter, bk, kout));
                modes.extend(of_taps);
                [gdy, t.global_view("gf", &b, modes)]
            }
            Pass::Wgrad => {
                let (channels_of_y, group_of_y) = geometry.plain_channels();
                let mut modes = tiled(channels_of_y, bm, kout).to_vec();
                modes.extend(match geometry.im2col {
                    Some(_) => tiled(0, bk, &geometry.pixels(true)).to_vec(),
                    None => pixels(&geometry.outputs(false)),
                });
                modes.extend(group(group_of_y));
                let gdy = t.global_view("gdy", &a, modes);
                let mut modes = tiled(channels_of, bn, c).to_vec();
                let (of_pixels, fold) = shifted(geometry.outputs(true), bk);
                modes.extend(of_pixels);
                modes.extend(taps_of_x());
                modes.extend(of_image);
                [gdy, t.folding_view("gx", b.from(x), modes, fold)]
            }
        }
    }

    fn stage(&self, t: &mut KernelBuilder, Numbers { bm, bn, bk, .. }: &Numbers) -> [Tensor; 2] {
        let [a, b] = self.names();
        let left = t.shared_tensor(&format!("s{a}"), self.config.dtype, [bm, bk]);
        let right = t.shared_tensor(&format!("s{b}"), self.config.dtype, [bn, bk]);
        [left, right]
    }

    fn range(&self, scheduler: &Scheduler, tile: &WorkTile) -> KRange {
        if !self.config.has_phases() {
            return scheduler.k_range(tile);
        }
        let Numbers { bk, .. } = &scheduler.numbers;
        let phase = Phase::of(self.geometry(), &self.geometry().inputs(true).indices(&tile.row));
        let taps = phase.count();
        let count = self.steps(self.geometry(), taps.clone(), bk);
        match self.tiling.least_steps(&scheduler.numbers) {
            // A phase that no tap meets has a step behind the last channel, where zeros are.
            Some(least) => {
                let none = (Expr::from(1) - taps).max(0);
                let first = Some(none * self.geometry().kout.ceil_div(bk));
                KRange { count: count.max(least), first }
            }
            None => KRange { count, first: None },
        }
    }

    fn load(&self, t: &mut KernelBuilder, on: &Collective<Self>, tile: &WorkTile, step: &Expr) {
        let geometry = self.geometry();
        let group = tile.product.clone().map(Some);
        let taps = Expr::from(geometry.taps());
        // The indices of a tile of pixels: of a box, or its number.
        let numbers = |boxes: Boxes, number: &Expr| match geometry.im2col {
            Some(_) => vec![number.clone()],
            None => boxes.indices(number),
        };
        let (a, b): (Vec<_>, Vec<_>) = match self.config.pass {
            Pass::Fprop => {
                let (chunk, tap) = Self::chunk_and_tap(step, &taps);
                let at: Vec<_> = geometry.tap(&tap).into_iter().map(Some).collect();
                let boxes = numbers(geometry.outputs(true), &tile.row);
                let x = entries(boxes).chain(at.clone()).chain([None, Some(chunk.clone())]);
                let f = [None, Some(tile.col.clone())].into_iter().chain(at).chain([None, Some(chunk)]);
                (x.chain(group.clone()).collect(), f.chain(group).collect())
            }
            Pass::Dgrad => {
                let boxes = numbers(geometry.inputs(true), &tile.row);
                let phase = Phase::of(geometry, &boxes);
                let count = phase.count();
                let count = if count.as_int().is_some() { count } else { count.max(1) };
                let (chunk, tap) = Self::chunk_and_tap(step, &count);
                let (shifts, at) = phase.tap(geometry, &tap);
                let several = at.into_iter().zip(&geometry.axes).filter(|(_, axis)| axis.taps > 1);
                let at = several.map(|(at, _)| Some(at));
                let boxes = boxes.into_iter().take(geometry.axes.len() + 1).collect();
                let dy =
                    entries(boxes).chain(shifts.into_iter().map(Some)).chain([None, Some(chunk.clone())]);
                let f = [None, Some(tile.col.clone())].into_iter().chain(at).chain([None, Some(chunk)]);
                (dy.chain(group.clone()).collect(), f.chain(group).collect())
            }
            Pass::Wgrad => {
                let boxes = || entries(numbers(geometry.outputs(false), step));
                let tiles = geometry.c.ceil_div(&on.numbers.bn);
                let (col, tap) = match taps.as_int() {
                    Some(1) => (tile.col.clone(), 0.into()),
                    _ => (&tile.col % &tiles, &tile.col / &tiles),
                };
                // Behind the last column a cluster's block loads what it does not store: of a fold's offsets the last ones.
                let beyond = geometry.im2col.is_some() && self.tiling.blocks()[1] > 1;
                let tap = if beyond { tap.min(&taps - 1) } else { tap };
                let at = geometry.tap(&tap).into_iter().map(Some);
                let dy = [None, Some(tile.row.clone())].into_iter().chain(boxes());
                let x = [None, Some(col)].into_iter().chain(boxes()).chain(at);
                (dy.chain(group.clone()).collect(), x.chain(group).collect())
            }
        };
        let HopperConvConfig { hint_a, hint_b, .. } = *self.config;
        let hints: [Option<CacheHint>; 2] = [hint_a, hint_b];
        let [how_a, how_b] = load_attributes(&self.tiling, hints);
        t.copy_async_with(on.views[0].index(a), on.stage[0], how_a);
        t.copy_async_with(on.views[1].index(b), on.stage[1], how_b);
    }

    fn sums(&self, t: &mut KernelBuilder, numbers: &Numbers) -> Option<Accumulators> {
        self.tiling.sums(t, numbers, false)
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
        _: (&Expr, &str),
    ) {
        self.tiling.multiply(t, (&on.ring, on.stage), sums, self.config.in_flight);
    }

    fn complete(&self, t: &mut KernelBuilder, _: &Collective<Self>, sums: &Accumulators, _: &WorkTile) {
        self.tiling.complete(t, sums, self.config.in_flight);
    }
}

impl Convolution<'_> {
    /// The steps of a view along the filter's taps: of axes that have several.
    fn taps_of_filter(&self) -> Vec<tilewright_tile::ViewMode> {
        let geometry = self.geometry();
        let axes = geometry.numbered(geometry.of_filter() + 1);
        axes.filter(|(_, axis)| axis.taps > 1).map(|(mode, axis)| steps(mode, axis.taps, 1)).collect()
    }
}
