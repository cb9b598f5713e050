//! The persistent tile scheduler: it deals the tiles of one product, of batches, groups or parts of k to the clusters of a grid of
//! resident blocks, in a rasterization order.

use tilewright_machine::DType;
use tilewright_tile::Expr;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, Tensor, block_x, steps};

use super::choices::{Batch, FillMode, Major, Triangle};
use super::nested::{Nested, Nesting};
use super::rules::bytes;
use super::stream_k::StepShare;
use super::tiling::{Numbers, Tiling};
use super::views::{Along, Boxes, Steps, indexed, with_batch};
use crate::contraction::Group;

/// The sizes of the problem.
pub(crate) struct Problem {
    pub m: Expr,
    pub n: Expr,
    /// The number of products of a batch.
    pub products: Option<Expr>,
    /// The number of matrices B, and of vectors along n: one a product, or one a group.
    pub matrices: Option<Expr>,
    /// The rows of A, where those of C are some of them, in any order.
    pub rows: Option<Expr>,
    /// The modes of m, n, k and l, where these are groups.
    pub nested: Option<Nested>,
    /// The places of a batch's matrices.
    batch: Batch,
    /// The result, where it is not the matrix `c`.
    pub tensor: Option<ResultTensor>,
}

/// A result that is a tensor of more modes than a matrix, tiles of which are boxes.
pub(crate) struct ResultTensor {
    pub name: &'static str,
    pub shape: Vec<Expr>,
    /// The tiles along m, if these are boxes.
    pub rows: Option<Boxes>,
    /// The contiguous mode, its extent, and ways along others from each run of tiles along it to the next.
    pub columns: (u32, Expr, Vec<Along>),
    /// The mode that counts products of a batch.
    pub products: Option<u32>,
    /// Steps along k.
    pub steps: Expr,
}

impl Problem {
    /// Declares the sizes of groups of modes; the last one is that of k.
    pub fn of(t: &mut KernelBuilder, nesting: &Nesting) -> (Self, Expr) {
        let nested = nesting.declare(t);
        let [m, n, k, l] = Group::ALL.map(|group| nested.extent(group));
        let products = (!nesting.tiles[Group::L as usize].is_empty()).then_some(l);
        let matrices = products.clone();
        (Problem { nested: Some(nested), ..Problem::several(m, n, products, matrices) }, k)
    }

    /// The number of tiles of a size along a mode, or along a group of modes.
    fn tiles(&self, group: Group, extent: &Expr, size: &Expr) -> Expr {
        match &self.nested {
            Some(nested) => nested.count(group, size),
            None => extent.ceil_div(size),
        }
    }

    /// Declares the sizes; the last one is that of k. A `square` result has one extent, m.
    pub fn declare(t: &mut KernelBuilder, batch: Batch, square: bool) -> (Self, Expr) {
        Problem::of_size(t, batch, square, 4096)
    }

    /// The same with another default of the extents.
    pub fn of_size(t: &mut KernelBuilder, batch: Batch, square: bool, extent: i64) -> (Self, Expr) {
        let m = t.size("m", extent);
        let n = if square { m.clone() } else { t.size("n", extent) };
        let k = t.size("k", extent);
        let grouped = batch.has_groups();
        let products = (batch != Batch::None && !grouped).then(|| t.size("l", 4));
        let matrices = products.clone().or_else(|| grouped.then(|| t.size("g", 8)));
        (Problem::several(m, n, products, matrices).of_batch(batch), k)
    }

    /// The same problem, whose matrices lie as this batch says.
    pub fn of_batch(self, batch: Batch) -> Self {
        Problem { batch, ..self }
    }

    /// The same problem, of which A has other rows than C, if that is said.
    pub fn of_rows(self, rows: Option<Expr>) -> Self {
        Problem { rows, ..self }
    }

    /// The problem of real numbers that one of complex numbers is, with its k.
    pub fn of_complex(self, k: &Expr) -> (Self, Expr) {
        (Problem { n: &self.n * 2, ..self }, k * 2)
    }

    /// One product.
    pub fn one(m: Expr, n: Expr) -> Self {
        Problem::several(m, n, None, None)
    }

    /// Products of a batch, with so many matrices B.
    pub fn several(m: Expr, n: Expr, products: Option<Expr>, matrices: Option<Expr>) -> Self {
        Problem { m, n, products, matrices, rows: None, nested: None, batch: Batch::Packed, tensor: None }
    }

    /// The same problem with a result that is a tensor.
    pub fn of_tensor(self, tensor: ResultTensor) -> Self {
        Problem { tensor: Some(tensor), ..self }
    }

    /// C, or what parts of k have summed for it.
    pub fn result(&self, t: &mut KernelBuilder, dtype: DType, split: Option<&Expr>) -> Buffer {
        let Some(split) = split else {
            let name = self.tensor.as_ref().map_or("c", |tensor| tensor.name);
            return self.like_result(t, name, dtype);
        };
        let shape = match &self.tensor {
            Some(tensor) => tensor.shape.clone(),
            None => vec![self.m.clone(), self.n.clone()],
        };
        t.tensor("partial", DType::F32, [split.clone()].into_iter().chain(shape))
    }

    /// A tensor of the shape of C.
    pub fn like_result(&self, t: &mut KernelBuilder, name: &str, dtype: DType) -> Buffer {
        match &self.tensor {
            Some(tensor) => t.tensor(name, dtype, &tensor.shape),
            None => self.matrix(t, name, dtype, [&self.m, &self.n], Major::K, self.products.as_ref()),
        }
    }

    /// A matrix parameter, or `several` of them, rows first; [`Major::Mn`]: contiguous along its first mode.
    pub fn matrix(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        dtype: DType,
        [rows, cols]: [&Expr; 2],
        major: Major,
        several: Option<&Expr>,
    ) -> Buffer {
        let inner: [Expr; 2] =
            if major == Major::K { [cols.clone(), 1.into()] } else { [1.into(), rows.clone()] };
        match several {
            None if major == Major::K => t.tensor(name, dtype, [rows, cols]),
            None => t.strided_tensor(name, dtype, [rows, cols], inner),
            Some(several) => {
                let each = ([rows, cols].map(Expr::clone).to_vec(), inner.to_vec());
                self.several_of(t, (name, dtype), several, each, rows * cols)
            }
        }
    }

    /// A parameter of `several` tensors of this shape and these strides, which has so many elements: where the batch says so, of those of
    /// [`IN_BATCH`].
    fn several_of(
        &self,
        t: &mut KernelBuilder,
        (name, dtype): (&str, DType),
        several: &Expr,
        (mut shape, mut strides): (Vec<Expr>, Vec<Expr>),
        elements: Expr,
    ) -> Buffer {
        let batch = if IN_BATCH.contains(&name) { self.batch } else { Batch::Packed };
        let step = match batch {
            Batch::Pointers => return t.tensors(name, dtype, several, shape, strides),
            Batch::Strided => t.size(&format!("step_{name}"), 4096 * 4096),
            _ => elements,
        };
        shape.insert(0, several.clone());
        strides.insert(0, step);
        t.strided_tensor(name, dtype, shape, strides)
    }
}

/// The parameters whose places a batch says: the factors, and C. All others are packed.
const IN_BATCH: [&str; 4] = ["a", "b", "up", "c"];

impl Problem {
    /// Two matrices in one parameter, or `several` pairs, the first's rows ahead of the second's: `[2, rows, cols]`, the memory of
    /// `[2 · rows, cols]`; with [`Major::Mn`] that of the transpose, `[cols, 2 · rows]`.
    pub fn halves(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        dtype: DType,
        [rows, cols]: [&Expr; 2],
        major: Major,
        several: Option<&Expr>,
    ) -> Buffer {
        let shape = vec![Expr::from(2), rows.clone(), cols.clone()];
        let strides = match major {
            Major::K => vec![rows * cols, cols.clone(), 1.into()],
            Major::Mn => vec![rows.clone(), 1.into(), rows * 2],
        };
        match several {
            None => t.strided_tensor(name, dtype, shape, strides),
            Some(several) => self.several_of(t, (name, dtype), several, (shape, strides), rows * cols * 2),
        }
    }
}

impl Problem {
    /// A matrix of complex numbers, or `several`: `[rows, cols, 2]`, real parts first; with [`Major::Mn`] the memory of `[cols, rows, 2]`.
    pub fn pairs(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        dtype: DType,
        [rows, cols]: [&Expr; 2],
        major: Major,
        several: Option<&Expr>,
    ) -> Buffer {
        let shape = vec![rows.clone(), cols.clone(), 2.into()];
        let strides = match major {
            Major::K => vec![cols * 2, 2.into(), 1.into()],
            Major::Mn => vec![2.into(), rows * 2, 1.into()],
        };
        match several {
            None => t.strided_tensor(name, dtype, shape, strides),
            Some(several) => self.several_of(t, (name, dtype), several, (shape, strides), rows * cols * 2),
        }
    }
}

/// Bytes of which lines of packed factors are multiples: those of a line of the L2 cache, which a row of a box then never lies across.
const PACKED_LINE: i64 = 128;

/// The constant for elements of which lines of packed factors are multiples.
pub(crate) fn packed_lines(t: &mut KernelBuilder, dtype: DType) -> Expr {
    t.constant("PAD", PACKED_LINE / bytes(dtype))
}

impl Problem {
    /// The copy of A (0) or B (1) whose lines are multiples of `pad` elements; where it has several parts, `[parts, rows, k]` of each of `several`
    /// matrices.
    pub fn packed(
        &self,
        t: &mut KernelBuilder,
        factor: usize,
        dtype: DType,
        [rows, k]: [&Expr; 2],
        major: Major,
        (pad, parts): (&Expr, usize),
    ) -> Buffer {
        let padded = |extent: &Expr| extent.ceil_div(pad) * pad;
        let name = ["packed_a", "packed_b"][factor];
        let several = [&self.products, &self.matrices][factor].as_ref();
        if parts > 1 {
            let shape = [(parts as i64).into(), rows.clone(), padded(k)];
            return t.tensor(name, dtype, several.cloned().into_iter().chain(shape));
        }
        match major {
            Major::K => self.matrix(t, name, dtype, [rows, &padded(k)], major, several),
            Major::Mn => self.matrix(t, name, dtype, [&padded(rows), k], major, several),
        }
    }
}

/// A block's unit of work: the row and column of its tile among the tiles of C, and the problem that the tile belongs to.
#[derive(Clone)]
pub(crate) struct WorkTile {
    pub row: Expr,
    pub col: Expr,
    /// The product of a batch.
    pub product: Option<Expr>,
    /// The part of k, of several that are summed apart.
    pub part_of_k: Option<Expr>,
    /// The group of its rows of A.
    pub group: Option<Expr>,
    /// The row behind the last of its group, where tiles reach beyond.
    pub end: Option<Expr>,
    /// The numbers of its rows of A, in registers of the role that loads, where these lie anywhere: those of each part that is copied.
    pub numbers: Vec<Tensor>,
    /// 1 of a tile below the diagonal of a C whose lower triangle is computed, 0 on the diagonal.
    pub elsewhere: Option<Expr>,
}

impl WorkTile {
    /// The index of its matrix B, and of its vectors along n.
    pub fn of_b(&self) -> Option<&Expr> {
        self.product.as_ref().or(self.group.as_ref())
    }

    /// The index of its matrix C.
    pub fn of_c(&self) -> Option<&Expr> {
        self.product.as_ref().or(self.part_of_k.as_ref())
    }
}

/// The assignment of tiles to problems.
enum Work {
    /// One product.
    One,
    /// Rows of tiles are counted through all products of a batch.
    Batched,
    /// Rows of tiles are counted through all parts of k.
    SplitK,
    /// A table has the group of each tile along m.
    Grouped { groups: Buffer },
    /// The same without padding: tables have the first row of each of the `tiles`, and the row behind each group's last.
    Ragged { groups: Buffer, first: Buffer, ends: Buffer, m: Expr, tiles: Expr },
}

/// The steps along k of a tile: their number, and the first of them if it is not 0.
pub(crate) struct KRange {
    pub count: Expr,
    pub first: Option<Expr>,
}

/// See the [module](self).
pub(crate) struct Scheduler {
    pub tiling: Tiling,
    pub numbers: Numbers,
    work: Work,
    /// The tiles of all clusters together along the tile's rows and columns.
    pub cluster_tiles: [Expr; 2],
    /// The rows of the triangle of tiles that are computed, if they are not all.
    triangle: Option<Expr>,
    /// Steps along k that a block does of a tile.
    pub depth: Expr,
    /// The extent of C's first mode, if it has one more: products, or parts of k.
    pub several: Option<Expr>,
    /// Walks along the tile's rows and columns, the latter also by chunks of results.
    pub along_rows: Steps,
    pub along_cols: Steps,
    pub chunked: Steps,
    /// The modes of the result along the tile's rows and columns, and the one that counts products, if it is not in front of them.
    modes: (u32, u32),
    products: Option<u32>,
}

impl Scheduler {
    /// The view of the result, or of a tensor of its shape, in chunks of tiles.
    pub fn result_view(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        of: &Buffer,
        several: Option<&Expr>,
    ) -> Tensor {
        let (first, second) = self.modes;
        let (rows, columns) = (&self.along_rows, &self.chunked);
        let behind = u32::from(several.is_some() && self.products.is_none());
        let mut modes = [rows.tensor_modes(first, behind), columns.tensor_modes(second, behind)].concat();
        modes.extend(several.map(|several| steps(self.products.unwrap_or(0), several, 1)));
        t.global_view(name, of, modes)
    }

    /// The view of the transpose of a square result, in the same chunks.
    pub fn mirrored_view(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        of: &Buffer,
        several: Option<&Expr>,
    ) -> Tensor {
        let behind = u32::from(several.is_some());
        let (rows, columns) = (self.along_rows.modes(1 + behind), self.chunked.modes(behind));
        t.global_view(name, of, with_batch([rows, columns].concat(), several))
    }

    /// The row of tiles to which a block stores a tile's chunk `j`. Of the blocks that have the same sums, each stores some of the chunks: to the
    /// others they are outside.
    pub fn stored_row(&self, tile: &WorkTile, j: &Expr) -> Expr {
        match self.tiling.blocks() {
            [.., 1] => tile.row.clone(),
            [.., deep] => &tile.row + (j + deep - block_x() % deep) % deep * &self.along_rows.count,
        }
    }

    /// A chunk of such a view.
    pub fn result_at(&self, view: &Tensor, row: &Expr, column: &Expr, which: Option<&Expr>) -> Reference {
        indexed(view, [self.along_rows.entries(row), self.chunked.entries(column)], which)
    }

    /// Declares the tables of groups and counts the tiles.
    pub fn declare(
        t: &mut KernelBuilder,
        tiling: &Tiling,
        numbers: &Numbers,
        problem: &Problem,
        (batch, split): (Batch, Option<&Expr>),
    ) -> Self {
        let Problem { m, n, .. } = problem;
        let Numbers { k, bm, bn, bk, chunk, chunks, .. } = numbers;
        let (_, width) = tiling.sides((m, n));
        let (of_m, of_n) = tiling.sides((bm, bn));
        let boxes = problem.tensor.as_ref().and_then(|tensor| tensor.rows.clone());
        let tiles_of_m = match &boxes {
            Some(boxes) => boxes.count(),
            None if batch == Batch::Ragged => t.size("t", 40),
            None => problem.tiles(Group::M, m, of_m),
        };
        let mut table = |name: &str, length: &Expr| t.tensor(name, DType::I32, [length]);
        let work = match (batch, &problem.matrices) {
            (Batch::Grouped, _) => Work::Grouped { groups: table("groups", &tiles_of_m) },
            (Batch::Ragged, Some(matrices)) => Work::Ragged {
                groups: table("groups", &tiles_of_m),
                first: table("first", &tiles_of_m),
                ends: table("ends", matrices),
                m: m.clone(),
                tiles: tiles_of_m.clone(),
            },
            (_, Some(_)) => Work::Batched,
            (_, None) if split.is_some() => Work::SplitK,
            (_, None) => Work::One,
        };
        let columns = problem.tensor.as_ref().map(|tensor| &tensor.columns);
        let ways = columns.filter(|(_, _, ways)| !ways.is_empty() && !tiling.swap);
        let tiles_of_n = match ways {
            Some((_, extent, ways)) => ways.iter().fold(extent.ceil_div(bn), |all, way| all * &way.count),
            None => problem.tiles(Group::N, n, of_n),
        };
        let (rows, cols) = tiling.sides((tiles_of_m, tiles_of_n));
        let [down, across, deep] = tiling.blocks();
        let steps_of_k = match &problem.tensor {
            Some(tensor) => tensor.steps.clone(),
            None => problem.tiles(Group::K, k, bk),
        };
        let parts_of_k = split.map_or(deep.into(), |split| split * deep);
        let depth = match parts_of_k.as_int() {
            Some(1) => steps_of_k,
            _ => steps_of_k.ceil_div(&parts_of_k),
        };
        // A step past the end of k adds zeros.
        let depth = match (tiling.overlap, tiling.least_steps(numbers)) {
            (true, Some(least)) => depth.max(least),
            _ => depth,
        };
        let several = problem.products.as_ref().or(split).cloned();
        let (each, across) = (shared_out(&rows, down), shared_out(&cols, across));
        let triangle = (tiling.fill != FillMode::Full).then(|| each.clone());
        let (each, across) = match &triangle {
            Some(rows) => (rows.ceil_div(2), rows + 1 - rows % 2),
            None => (each, across),
        };
        let cluster_rows = match &several {
            Some(several) => each * several,
            None => each,
        };
        let cluster_tiles = [cluster_rows, across];

        let (mut along_rows, mut along_cols) = (Steps::tiled(bm, rows), Steps::tiled(bn, cols));
        let mut chunked = Steps::tiled(chunk, width.ceil_div(chunk));
        if batch == Batch::Ragged {
            // A tile begins at any row.
            if tiling.swap {
                (along_cols, chunked) = (Steps::anywhere(bn, m), Steps::anywhere(chunk, m));
            } else {
                along_rows = Steps::anywhere(bm, m);
            }
        }
        if let Some(boxes) = boxes {
            along_rows = Steps::over(bm, boxes);
        }
        if let Some((mode, extent, ways)) = ways {
            let tiles = extent.ceil_div(bn);
            let over = |size: &Expr, count: Expr| {
                let walks = [Along::new(*mode, count, size)].into_iter().chain(ways.clone()).collect();
                Steps::over(size, Boxes { sides: vec![Along::new(*mode, size, 1)], walks })
            };
            (along_cols, chunked) = (over(bn, tiles.clone()), over(chunk, tiles * chunks));
        }
        let modes = tiling.sides((0, columns.map_or(1, |(mode, ..)| *mode)));
        let products = problem.tensor.as_ref().and_then(|tensor| tensor.products);
        Scheduler {
            tiling: *tiling,
            numbers: numbers.clone(),
            modes,
            products,
            work,
            cluster_tiles,
            triangle,
            depth,
            several,
            along_rows,
            along_cols,
            chunked,
        }
    }

    /// The grid: as many clusters as there are tiles of clusters, and no more blocks than multiprocessors. One warpgroup of each block
    /// copies.
    pub fn launch(&self, t: &mut KernelBuilder, stream_k: bool) {
        let [rows, cols] = &self.cluster_tiles;
        let (sm_count, tiles, blocks) = (&self.numbers.sm_count, rows * cols, self.tiling.cluster.blocks());
        // A cluster has a step at least.
        let tiles = if stream_k { tiles * &self.depth } else { tiles };
        if blocks > 1 {
            t.grid([(sm_count / blocks).min(tiles) * blocks]);
            match self.tiling.blocks() {
                [down, across, 1] if down > 1 && across > 1 => t.cluster_shape([down, across]),
                _ => t.cluster(blocks),
            }
        } else {
            t.grid([sm_count.min(tiles)]);
        }
        t.threads(128 * self.tiling.all_warpgroups());
        if self.tiling.resident > 1 {
            t.resident(self.tiling.resident);
        }
    }

    /// The loop of a role over its tiles: where others are shared by steps along k, over those that it does whole.
    pub(super) fn for_tiles(
        &self,
        t: &mut KernelBuilder,
        share: Option<&StepShare>,
        names: [&str; 2],
        body: impl FnOnce(&mut KernelBuilder, &WorkTile),
    ) {
        if let Some(share) = share {
            return share.for_whole(t, self, names, body);
        }
        let [rows, cols] = &self.cluster_tiles;
        t.for_tiles(names, rows, cols, self.tiling.rasterization.tiles(), |t, row, col| {
            body(t, &self.tile(&row, &col));
        });
    }

    /// The same with the previous tile, and with what is done behind the last one.
    pub(super) fn for_tiles_after(
        &self,
        t: &mut KernelBuilder,
        share: Option<&StepShare>,
        names: [&str; 4],
        body: impl FnOnce(&mut KernelBuilder, &WorkTile, &WorkTile),
        last: impl FnOnce(&mut KernelBuilder, &WorkTile),
    ) {
        if let Some(share) = share {
            return share.for_whole_after(t, self, names, body, last);
        }
        let tile = |[row, col]: [Expr; 2]| self.tile(&row, &col);
        t.for_tiles_after(
            names,
            self.cluster_tiles.clone(),
            self.tiling.rasterization.tiles(),
            |t, current, previous| body(t, &tile(current), &tile(previous)),
            |t, previous| last(t, &tile(previous)),
        );
    }

    /// The work of a block, given the row and column of its cluster's tile.
    pub fn tile(&self, row: &Expr, col: &Expr) -> WorkTile {
        let [down, across, _] = self.tiling.blocks();
        let (mut row, col) = (row.clone(), col.clone());
        let work = |row: Expr, col: Expr| {
            let folded = self.triangle.as_ref().map(|rows| lower(rows, &row, &col));
            let elsewhere = folded.as_ref().map(|[row, col]| (row - col).min(1));
            let [row, col] = folded.unwrap_or([row, col]);
            WorkTile {
                row: block_of(&row, down, 1),
                col: block_of(&col, across, down),
                product: None,
                part_of_k: None,
                group: None,
                end: None,
                numbers: Vec::new(),
                elsewhere,
            }
        };
        let counted = |row: &mut Expr| {
            let each = shared_out(&self.along_rows.count, down);
            let each = if self.triangle.is_some() { each.ceil_div(2) } else { each };
            let which = &*row / &each;
            *row = &*row % &each;
            Some(which)
        };
        match &self.work {
            Work::One => work(row, col),
            Work::Batched => {
                let product = counted(&mut row);
                WorkTile { product, ..work(row, col) }
            }
            Work::SplitK => {
                let part_of_k = counted(&mut row);
                WorkTile { part_of_k, ..work(row, col) }
            }
            Work::Grouped { groups } => {
                let mut tile = work(row, col);
                let along_m = if self.tiling.swap { &tile.col } else { &tile.row };
                tile.group = Some(groups.element(along_m));
                tile
            }
            Work::Ragged { groups, first, ends, m, tiles } => {
                let mut tile = work(row, col);
                let along_m = if self.tiling.swap { &mut tile.col } else { &mut tile.row };
                let group = groups.element(&*along_m);
                // Behind the last tile, where the table reads as 0, there is nothing to write.
                let counts = (tiles - &*along_m).max(0).min(1);
                tile.end = Some(ends.element(&group).max(0).min(m) * counts);
                *along_m = first.element(&*along_m).max(0).min(m);
                tile.group = Some(group);
                tile
            }
        }
    }

    /// The place of chunk `j` of a tile's columns among those of C.
    pub fn chunk_column(&self, tile: &WorkTile, j: &Expr) -> Expr {
        if self.tiling.swap && matches!(self.work, Work::Ragged { .. }) {
            &tile.col + j * &self.numbers.chunk
        } else {
            &tile.col * &self.numbers.chunks + j
        }
    }

    /// The first row and column of chunk `j` of a tile, in elements along the tile's rows and columns.
    pub fn origin(&self, tile: &WorkTile, j: &Expr) -> [Expr; 2] {
        [&tile.row * &self.along_rows.step, self.chunk_column(tile, j) * &self.chunked.step]
    }

    /// The steps along k of a tile: tiles of padding have none, or as few past the end of k as every tile has.
    pub fn k_range(&self, tile: &WorkTile) -> KRange {
        if let Some(part) = &tile.part_of_k {
            return KRange { count: self.depth.clone(), first: Some(part * &self.depth) };
        }
        let Some(group) = &tile.group else { return KRange { count: self.depth.clone(), first: None } };
        // 1 for a group, 0 for a negative number, and where a tile begins behind its group's end.
        let mut counts = (group.min(0) + 1).max(0);
        if let Some(end) = &tile.end {
            let (along_m, _) = self.tiling.sides((&tile.row, &tile.col));
            counts = counts * (end - along_m).max(0).min(1);
        }
        let Some(least) = self.tiling.least_steps(&self.numbers) else {
            return KRange { count: counts * &self.depth, first: None };
        };
        let past = (Expr::from(1) - &counts) * &self.depth;
        KRange { count: (counts * &self.depth).max(least), first: Some(past) }
    }

    /// The steps of a tile whose rows of A have zeros outside of a triangle: those of all blocks of a cluster, which load the same steps.
    pub fn within_triangle(&self, triangle: Triangle, tile: &WorkTile, range: KRange) -> KRange {
        let Numbers { bm, bn, bk, .. } = &self.numbers;
        let [down, across, _] = self.tiling.blocks();
        let ((of_a, _), (blocks, _)) = (self.tiling.sides((bm, bn)), self.tiling.sides((down, across)));
        let (along, _) = self.tiling.sides((&tile.row, &tile.col));
        let rows = of_a * blocks;
        let first = if blocks > 1 { along / blocks * &rows } else { along * &rows };
        let least = self.tiling.least_steps(&self.numbers).unwrap_or(0.into());
        match triangle {
            Triangle::None => range,
            Triangle::Lower => {
                let count = (first + rows).ceil_div(bk).min(range.count).max(least);
                KRange { count, first: None }
            }
            Triangle::Upper => {
                let first = (first / bk).min(&range.count);
                KRange { count: (range.count - &first).max(least), first: Some(first) }
            }
        }
    }

    /// The step along k of all blocks, given the block's own.
    pub fn k_step(&self, range: &KRange, step: Expr) -> Expr {
        let [.., deep] = self.tiling.blocks();
        let step = match &range.first {
            Some(first) => first + step,
            None => step,
        };
        if deep > 1 { step * deep + block_x() % deep } else { step }
    }
}

/// The tile of a triangle of so many `rows`, of which row r has the columns 0 to r, given the tile of the rectangle of half as many rows
/// that the triangle makes: its long rows, from the last on, with its short ones behind them. What is outside of one is outside of the other.
fn lower(rows: &Expr, row: &Expr, col: &Expr) -> [Expr; 2] {
    let long = rows - row;
    let short = (col + 1 - &long).max(0).min(1);
    let outside = (row + 1 - rows.ceil_div(2)).max(0).min(1) * rows;
    let of_short = row - rows % 2;
    [&long - 1 + &short * (of_short - &long + 1) + outside, col - &short * long]
}

/// The tiles of clusters, of which each has a number of blocks along a mode.
fn shared_out(tiles: &Expr, blocks: i64) -> Expr {
    if blocks > 1 { tiles.ceil_div(blocks) } else { tiles.clone() }
}

/// The tile of a block along a mode, given that of its cluster, which has so many blocks along it, and so many from one to the next.
fn block_of(tile: &Expr, blocks: i64, apart: i64) -> Expr {
    let place = if apart > 1 { block_x() / apart } else { block_x() };
    if blocks > 1 { tile * blocks + place % blocks } else { tile.clone() }
}
