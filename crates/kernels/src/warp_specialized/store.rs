//! The way of results from registers to C: chunk by chunk through shared memory, by TMA stores.

use tilewright_tile::dsl::{Buffer, KernelBuilder, Tensor};
use tilewright_tile::{AsyncCopyAttrs, Expr};

use super::scatter::{Scatter, Targets};
use super::scheduler::{Scheduler, WorkTile};
use super::tiling::{Chunk, Numbers, Tiling};
use super::views::{OperandView, at, matrix_view};

/// C, and the buffers of chunks on their way to it.
pub(super) struct Store {
    pub tiling: Tiling,
    pub numbers: Numbers,
    pub buffer: Buffer,
    pub to: Destination,
    pub shared: Tensor,
    /// The view of the transpose of C, and the buffers of chunks on their way there, where C is symmetric.
    pub mirror: Option<(Tensor, Tensor)>,
    /// Makes the values of a chunk once its buffer is free: fewer registers are in use meanwhile.
    pub late: bool,
}

/// The places of results.
pub(super) enum Destination {
    /// Boxes of C, or of a tensor of its elements.
    Boxes(OperandView),
    /// Rows of C anywhere, to which they are added.
    Rows(Scatter),
}

/// A view of C that ends with the rows of a group, and the word for the loops of chunks that leave through it.
pub(super) struct Clipped {
    view: Tensor,
    site: &'static str,
}

/// The way of a tile's results to C.
pub(super) enum Way<'a> {
    /// Boxes at the tile's place, which may reach beyond its group.
    Boxes(&'a OperandView, Option<Clipped>),
    /// Additions to rows anywhere.
    Rows(Targets),
}

impl Way<'_> {
    /// The values of a chunk as they are stored, but for their type.
    pub fn scaled(&self, t: &mut KernelBuilder, store: &Store, values: &Tensor, chunk: &Chunk) -> Tensor {
        match self {
            Way::Boxes(..) => *values,
            Way::Rows(targets) => targets.scaled(t, store, values, chunk),
        }
    }
}

impl Store {
    /// The way of a tile's results, at a place of the program that the site tells from others.
    pub fn way(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        tile: &WorkTile,
        site: &'static str,
    ) -> Way<'_> {
        let boxes = match &self.to {
            Destination::Boxes(view) => view,
            Destination::Rows(scatter) => return Way::Rows(scatter.targets(t, scheduler, tile)),
        };
        let clipped = |end: &Expr| {
            let from = self.buffer.from([0, 0]).until(0, end.clone());
            let (modes, name) = (self.tiling.sides((0, 1)), format!("gc_{site}"));
            let view = matrix_view(t, &name, &from, None, modes, &scheduler.along_rows, &scheduler.chunked);
            Clipped { view, site }
        };
        Way::Boxes(boxes, tile.end.as_ref().map(clipped))
    }

    /// Rounds values to the type of C.
    pub fn round(&self, t: &mut KernelBuilder, name: &str, values: &Tensor) -> Tensor {
        let to = self.tiling.stored;
        if to == self.tiling.finished() { *values } else { t.cast(name, values, to) }
    }

    /// A chunk of an accumulator's columns.
    pub fn slice(&self, t: &mut KernelBuilder, name: &str, of: &Tensor, chunk: &Chunk) -> Tensor {
        let columns = &self.numbers.chunk;
        t.slice(name, of, 1, &chunk.within * columns, columns)
    }

    /// Lets a tile begin with the first buffer, whichever the previous one ended with.
    pub fn first_buffer(&self, t: &mut KernelBuilder) {
        if self.tiling.bn / self.tiling.chunk % self.tiling.buffers != 0 {
            t.wait_group(0);
        }
    }

    /// Stores a chunk of a tile, given what makes its values.
    pub fn chunk(
        &self,
        t: &mut KernelBuilder,
        (scheduler, tile): (&Scheduler, &WorkTile),
        values: impl Fn(&mut KernelBuilder) -> Tensor,
        chunk: &Chunk,
        way: &Way<'_>,
    ) {
        let (view, clipped) = match way {
            Way::Boxes(view, clipped) => (*view, clipped),
            Way::Rows(targets) => return targets.add(t, self, (scheduler, tile), values, chunk),
        };
        let j = &chunk.index;
        let buffer = || self.shared.at(j % &self.numbers.buffers);
        let early = (!self.late).then(|| values(t));
        t.wait_group(&self.numbers.buffers - 1);
        t.syncthreads();
        let values = early.unwrap_or_else(|| values(t));
        t.copy(values, buffer());
        if let Some((_, mirrored)) = &self.mirror {
            t.copy(values, mirrored.at(j % &self.numbers.buffers));
        }
        t.syncthreads();
        let row = scheduler.stored_row(tile, j);
        let column = scheduler.chunk_column(tile, j);
        let attributes = AsyncCopyAttrs { hint: self.tiling.hint_c, ..AsyncCopyAttrs::default() };
        if let (Some((view, mirrored)), Some(elsewhere)) = (&self.mirror, &tile.elsewhere) {
            // A tile on the diagonal is its own mirror: the copy is outside.
            let row = &row + (Expr::from(1) - elsewhere) * &scheduler.along_rows.count;
            let to = scheduler.result_at(view, &row, &column, tile.of_c());
            t.copy_async_with(mirrored.at(j % &self.numbers.buffers), to, attributes);
        }
        let to = match view {
            OperandView::Matrix(view) => scheduler.result_at(view, &row, &column, tile.of_c()),
            OperandView::Nested(view) => view.at(&row, (&tile.col, Some(j)), tile.of_c()),
        };
        let Some((clipped, end)) = clipped.as_ref().zip(tile.end.as_ref()) else {
            t.copy_async_with(buffer(), to, attributes);
            t.commit_group();
            return;
        };
        // A chunk that ends behind its group's end is stored by threads, which write the rows before it: a loop of one iteration or none.
        let (begin, extent) =
            if self.tiling.swap { (&column, &self.numbers.chunk) } else { (&tile.row, &self.numbers.bm) };
        let whole = (end - begin - extent + 1).max(0).min(1);
        let name = |word: &str| format!("{word}_{}", clipped.site);
        t.for_range(&name("whole"), 0, &whole, |t, _| t.copy_async_with(buffer(), to, attributes));
        t.for_range(&name("some"), whole, 1, |t, _| {
            t.copy(buffer(), at(&clipped.view, &row, &column, None));
        });
        t.commit_group();
    }
}

/// Rounded results that wait for the next tile's mainloop.
pub(super) enum Waiting {
    /// As they are in the accumulators.
    Parts(Vec<Tensor>),
    /// By chunks, which are the last mode.
    Chunks(Tensor),
}

impl Waiting {
    /// Declares the registers, with zeros for the tile before the first one.
    pub fn declare(t: &mut KernelBuilder, store: &Store, plain: bool) -> Self {
        let (numbers, stored) = (&store.numbers, store.tiling.stored);
        let Numbers { bm, chunk, chunks, width, .. } = numbers;
        if plain {
            let parts: Vec<Tensor> = (0..numbers.parts)
                .map(|part| t.register_tensor(&format!("rounded{}", numbers.tag(part)), stored, [bm, width]))
                .collect();
            parts.iter().for_each(|rounded| t.fill(rounded, 0.0));
            return Waiting::Parts(parts);
        }
        let rounded = t.register_tensor("rounded", stored, [bm, chunk, chunks]);
        t.unroll_for("jz", 0, chunks, |t, j| {
            let part = t.part(rounded.at(j));
            t.fill(&part, 0.0);
        });
        Waiting::Chunks(rounded)
    }

    /// The values of a chunk.
    pub fn chunk(&self, t: &mut KernelBuilder, store: &Store, name: &str, chunk: &Chunk) -> Tensor {
        match self {
            Waiting::Parts(parts) => store.slice(t, &chunk.name(name), &parts[chunk.part], chunk),
            Waiting::Chunks(rounded) => t.part(rounded.at(chunk.index.clone())),
        }
    }
}
