//! Rows of results that are added to rows of C anywhere: a table has the number of each, and another a factor. Threads add them from registers by `red`, in vectors along a
//! row, since the tensor memory accelerator of Hopper adds boxes of rows that are neighbours.

use tilewright_machine::{DType, RedOp};
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Tensor, block_x, index, steps, where_};
use tilewright_tile::{CopyAttrs, Expr, Literal};

use super::choices::{Batch, FillMode};
use super::operands::spread;
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::store::Store;
use super::tiling::{Chunk, Numbers, Tiling};
use crate::config::ConfigError;

/// C and the tables of a kernel whose results are added to rows anywhere.
pub(super) struct Scatter {
    view: Tensor,
    to: Tensor,
    factors: Tensor,
}

/// The rows of C of a tile's rows, −1 where there is none, and their factors: of each chunk of columns, where these are rows of A, else of the whole tile.
pub(super) struct Targets {
    view: Tensor,
    to: Tensor,
    factors: Tensor,
}

/// The choices that decide whether results can be added to rows anywhere.
pub(crate) struct Scattered<'a> {
    pub batch: Batch,
    /// A block has the whole sums of its tiles, or a cluster.
    pub whole: bool,
    pub fill: FillMode,
    /// C is read in place, or its rows or columns are summed.
    pub reads: bool,
    pub tiling: &'a Tiling,
}

impl Scattered<'_> {
    /// Checks them.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wanted = if self.batch.counts_products() {
            "one c has all rows: batch must be none, grouped or ragged"
        } else if !self.whole {
            "sums of a tile are added once: schedule must be data_parallel, and split 1"
        } else if self.tiling.overlap {
            "a tile leaves ahead of the next: overlap_epilogue must be false"
        } else if self.fill != FillMode::Full {
            "rows have no order: fill must be full"
        } else if self.reads {
            "c is added to: epilogue must be without beta, row_sums and col_sums"
        } else if !self.tiling.stored.is_float() {
            "factors are numbers: out must be f16, bf16 or f32"
        } else if self.tiling.hint_c.is_some() {
            "additions have no hint: hint_c must be none"
        } else {
            return Ok(());
        };
        Err(ConfigError::value("scatter", true, wanted))
    }
}

/// Registers of a thread for the rows and factors of a tile of so many rows of A, which are along the tile's columns where `swap` says so.
pub(crate) fn scattering_registers(rows: i64, swap: bool) -> i64 {
    if swap { rows / 2 } else { 12 }
}

impl Problem {
    /// C, of which the product's rows are some rows, the number of its rows, and the tables of these and of factors.
    pub(super) fn scattered(&self, t: &mut KernelBuilder, dtype: DType) -> (Buffer, Expr, [Buffer; 2]) {
        let rows = t.size("q", 4096);
        let tables = [t.tensor("to", DType::I32, [&self.m]), t.tensor("factor", DType::F32, [&self.m])];
        (t.tensor("c", dtype, [&rows, &self.n]), rows, tables)
    }
}

impl Scatter {
    /// Declares the views of C, which has so many rows, and of the tables.
    pub fn views(
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        (c, rows): (&Buffer, &Expr),
        [to, factors]: &[Buffer; 2],
    ) -> Self {
        let (rows, swap) = (vec![steps(0, rows, 1)], scheduler.tiling.swap);
        let modes = match swap {
            true => [scheduler.along_rows.modes(1), rows].concat(),
            false => [rows, scheduler.chunked.modes(1)].concat(),
        };
        let view = t.global_view("gc", c, modes);
        let along = if swap { &scheduler.chunked } else { &scheduler.along_rows };
        let (to, factors) =
            (t.global_view("g_to", to, along.modes(0)), t.global_view("g_factor", factors, along.modes(0)));
        Scatter { view, to, factors }
    }

    /// Loads the rows and factors of a tile.
    pub fn targets(&self, t: &mut KernelBuilder, scheduler: &Scheduler, tile: &WorkTile) -> Targets {
        let Numbers { bm, chunk, chunks, .. } = &scheduler.numbers;
        let swap = scheduler.tiling.swap;
        let (count, parts) = if swap { (chunk, chunks.clone()) } else { (bm, 1.into()) };
        let to = t.register_tensor("to_rows", DType::I32, [count, &parts]);
        let factors = t.register_tensor("factors", DType::F32, [count, &parts]);
        t.unroll_for("jt", 0, &parts, |t, j| {
            let (to, factors) = (t.part(to.at(j.clone())), t.part(factors.at(j.clone())));
            let place = if swap { scheduler.chunk_column(tile, &j) } else { tile.row.clone() };
            let outside = CopyAttrs { outside: Some(Literal::from(-1.0)), ..CopyAttrs::default() };
            t.copy_with(self.to.index([None, Some(place.clone())]), to, outside);
            t.copy(self.factors.index([None, Some(place)]), factors);
            let Some(end) = &tile.end else { return };
            // What a tile has behind its group's end is another tile's.
            let (first, _) = scheduler.tiling.sides((&tile.row, &tile.col));
            let left = end - first - j * count;
            t.assign(&to, where_(index(0).lt(left.clone()), to, -1));
            t.assign(&factors, where_(index(0).lt(left), factors, 0.0));
        });
        Targets { view: self.view, to, factors }
    }
}

impl Targets {
    /// The number of a chunk's part.
    fn part_of(store: &Store, chunk: &Chunk) -> Expr {
        if store.tiling.swap { chunk.index.clone() } else { 0.into() }
    }

    /// The values of a chunk, in f32, times the factors of their rows.
    pub fn scaled(&self, t: &mut KernelBuilder, store: &Store, values: &Tensor, chunk: &Chunk) -> Tensor {
        let Numbers { bm, chunk: columns, .. } = &store.numbers;
        let factors = t.part(self.factors.at(Self::part_of(store, chunk)));
        let along = u32::from(store.tiling.swap);
        let name = |word: &str| chunk.name(&format!("factor_{word}"));
        let factors = spread(t, &name, &factors, along, [bm, columns]);
        t.define(&chunk.name("scaled"), Elem::from(*values) * factors)
    }

    /// Adds a chunk to the rows, given what makes its values.
    pub fn add(
        &self,
        t: &mut KernelBuilder,
        store: &Store,
        (scheduler, tile): (&Scheduler, &WorkTile),
        values: impl Fn(&mut KernelBuilder) -> Tensor,
        chunk: &Chunk,
    ) {
        let Numbers { bm, chunk: columns, buffers, .. } = &store.numbers;
        let buffer = || store.shared.at(&chunk.index % buffers);
        let early = (!store.late).then(|| values(t));
        // All threads have read the chunk that the buffer had.
        t.syncthreads();
        let values = early.unwrap_or_else(|| values(t));
        t.copy(values, buffer());
        t.syncthreads();
        let leaving = t.register_tensor(&chunk.name("leaving"), store.tiling.stored, [bm, columns]);
        t.copy(buffer(), leaving);
        let to = t.part(self.to.at(Self::part_of(store, chunk)));
        let place = match store.tiling.swap {
            true => self.view.index([None, Some(tile.row.clone()), None]).indexed(2, to),
            false => {
                let column = scheduler.chunk_column(tile, &chunk.index);
                self.view.index([None, None, Some(column)]).indexed(0, to)
            }
        };
        let attributes = CopyAttrs { combine: Some(RedOp::Add), ..CopyAttrs::default() };
        let add = |t: &mut KernelBuilder| t.copy_with(leaving, place, attributes);
        match store.tiling.blocks() {
            [.., 1] => add(t),
            // Of the blocks that have the same sums, each adds some of the chunks.
            [.., deep] => t.if_then(((&chunk.index + deep - block_x() % deep) % deep).less(1), add),
        }
    }
}
