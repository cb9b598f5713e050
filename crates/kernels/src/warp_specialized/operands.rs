//! The tensors of an epilogue: its operands come through pipelines of their own, and are applied to a tile's accumulators chunk by chunk.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, Elem, KernelBuilder, Pipeline, Reference, Tensor, block_x};
use tilewright_tile::{AsyncCopyAttrs, Expr, ReduceOp};

use super::mainloop::Accumulators;
use super::rules::OPERAND_STAGES;
use super::scheduler::{Problem, Scheduler, WorkTile};
use super::tiling::{Chunk, Numbers, Tiling};
use super::views::with_batch;
use crate::epilogue::{Chain, EpilogueTile, Operand, OperandKind};

/// An addition to the sums of a chunk.
pub(super) type Add<'a> = dyn Fn(&mut KernelBuilder, &Tensor, &Chunk) + 'a;

/// The sums of a tile.
pub(super) enum Sums<'a> {
    /// A block's own, to which those of others may be added.
    Own(&'a Accumulators, Option<&'a Add<'a>>),
    /// Sums that all blocks of the tile have left, of which each finishes some chunks: those for whose number it says 1.
    Left(&'a Add<'a>, &'a dyn Fn(&Expr) -> Expr),
}

/// The parameter of an operand.
pub(crate) enum Param {
    Scalar(Elem),
    Tensor(Buffer),
    /// C.
    Result,
}

/// The parameters of a chain's operations: those of each, in its order.
pub(crate) type Params = Vec<Vec<(Operand, Param)>>;

impl Problem {
    /// The tensor parameter of an operand that has one of its own.
    pub fn operand(&self, t: &mut KernelBuilder, operand: &Operand) -> Option<Buffer> {
        let Operand { name, kind, dtype } = operand;
        let (along, several) = match kind {
            OperandKind::Scalar(_) | OperandKind::Result => return None,
            OperandKind::Row => (&self.m, &self.products),
            OperandKind::Column => (&self.n, &self.matrices),
            OperandKind::Matrix => {
                return Some(self.like_result(t, name, *dtype));
            }
        };
        Some(match several {
            Some(several) => t.tensor(name, *dtype, [several, along]),
            None => t.tensor(name, *dtype, [along]),
        })
    }
}

impl Chain<'_> {
    /// Declares the operands: tensors first, then numbers.
    pub fn declare(&self, t: &mut KernelBuilder, problem: &Problem, out: DType) -> Params {
        let tensor = |t: &mut KernelBuilder, operand: Operand| {
            let declared = problem.operand(t, &operand);
            (operand, declared)
        };
        let tensors: Vec<Vec<_>> =
            self.operands(out).into_iter().map(|of| of.into_iter().map(|o| tensor(t, o)).collect()).collect();
        let mut param = |(operand, declared): (Operand, Option<Buffer>)| {
            let param = match (declared, operand.kind) {
                (Some(buffer), _) => Param::Tensor(buffer),
                (None, OperandKind::Scalar(default)) => Param::Scalar(t.scalar(&operand.name, default)),
                (None, _) => Param::Result,
            };
            (operand, param)
        };
        tensors.into_iter().map(|operands| operands.into_iter().map(&mut param).collect()).collect()
    }

    /// Declares the vectors of sums.
    pub fn declare_sums(
        &self,
        t: &mut KernelBuilder,
        problem: &Problem,
        out: DType,
    ) -> Vec<(Operand, Buffer)> {
        let sums = self.sums.iter().filter_map(|part| part.operand(out));
        sums.filter_map(|operand| problem.operand(t, &operand).map(|buffer| (operand, buffer))).collect()
    }
}

/// A tensor operand in a kernel: a view of it, and the part that belongs to a tile or chunk in shared memory.
struct Loaded {
    operand: Operand,
    view: Tensor,
    shared: Tensor,
    /// The mode of the tile along which a vector lies.
    along: Option<u32>,
}

/// The source of an operand of an operation.
enum Source {
    Scalar(Elem),
    /// A vector, by its number.
    Vector(usize),
    /// A matrix, by its number.
    Matrix(usize),
}

/// See the [module](self).
pub(super) struct Operands<'a> {
    chain: &'a Chain<'a>,
    numbers: Numbers,
    tiling: Tiling,
    /// The operands of each operation, in the order of [`Chain::operands`].
    sources: Vec<Vec<Source>>,
    /// Vectors, those of a tile in a stage.
    vectors: Vec<Loaded>,
    ring: Option<Pipeline>,
    /// Matrices, each with a ring of chunks.
    matrices: Vec<(Loaded, Pipeline)>,
    sums: Vec<Loaded>,
}

impl<'a> Operands<'a> {
    /// Declares views, shared tensors and pipelines, for the result `c`.
    pub fn declare(
        t: &mut KernelBuilder,
        chain: &'a Chain<'a>,
        (params, sums, c): (Params, Vec<(Operand, Buffer)>, &Buffer),
        (problem, scheduler): (&Problem, &Scheduler),
    ) -> Self {
        let (mut vectors, mut matrices) = (Vec::new(), Vec::new());
        let mut source = |(operand, param): (Operand, Param)| match param {
            Param::Scalar(number) => Source::Scalar(number),
            param => {
                let buffer = if let Param::Tensor(buffer) = &param { buffer } else { c };
                let loaded = Loaded::declare(t, operand, buffer, problem, scheduler);
                let list = if loaded.along.is_some() { &mut vectors } else { &mut matrices };
                list.push(loaded);
                let number = list.len() - 1;
                if list[number].along.is_some() { Source::Vector(number) } else { Source::Matrix(number) }
            }
        };
        let sources = params.into_iter().map(|of| of.into_iter().map(&mut source).collect()).collect();
        let sum = |(operand, buffer)| Loaded::declare(t, operand, &buffer, problem, scheduler);
        let sums = sums.into_iter().map(sum).collect();
        let ring = (!vectors.is_empty())
            .then(|| t.pipeline("sides", OPERAND_STAGES, vectors.iter().map(|vector| &vector.shared)));
        let ringed = |matrix: Loaded| {
            let ring = t.pipeline(&format!("{}s", matrix.operand.name), OPERAND_STAGES, [&matrix.shared]);
            (matrix, ring)
        };
        let matrices = matrices.into_iter().map(ringed).collect();
        let (numbers, tiling) = (scheduler.numbers.clone(), scheduler.tiling);
        Operands { chain, numbers, tiling, sources, vectors, ring, matrices, sums }
    }

    /// Returns whether there are vectors to load.
    pub fn has_vectors(&self) -> bool {
        self.ring.is_some()
    }

    /// Returns whether there are matrices to load.
    pub fn has_matrices(&self) -> bool {
        !self.matrices.is_empty()
    }

    /// Loads the vectors of a tile.
    pub fn load_vectors(&self, t: &mut KernelBuilder, scheduler: &Scheduler, tile: &WorkTile) {
        let Some(ring) = &self.ring else { return };
        t.produce(ring, |t| {
            for vector in &self.vectors {
                vector.each(t, scheduler, tile, |t, view, shared| t.copy_async(view, shared));
            }
        });
    }

    /// Loads the matrices of a tile, chunk by chunk: of those that the block finishes, if others finish some.
    pub fn load_matrices(
        &self,
        t: &mut KernelBuilder,
        (scheduler, tile): (&Scheduler, &WorkTile),
        finishes: Option<&dyn Fn(&Expr) -> Expr>,
    ) {
        if self.matrices.is_empty() {
            return;
        }
        let load = |t: &mut KernelBuilder, j: Expr| {
            let col = scheduler.chunk_column(tile, &j);
            for (matrix, ring) in &self.matrices {
                // Of the blocks that have the same sums, each reads of C what it stores: others may have stored theirs.
                let row = match matrix.operand.kind {
                    OperandKind::Result => scheduler.stored_row(tile, &j),
                    _ => tile.row.clone(),
                };
                t.produce(ring, |t| {
                    let from = scheduler.result_at(&matrix.view, &row, &col, tile.product.as_ref());
                    t.copy_async(from, matrix.shared);
                });
            }
        };
        t.for_range("jl", 0, &self.numbers.chunks, |t, j| match finishes {
            Some(finishes) => t.if_then(finishes(&j), |t| load(t, j.clone())),
            None => load(t, j),
        });
    }

    /// Applies the operations to the accumulators of a tile, chunk by chunk, to which something may be added first, and hands each chunk on.
    pub fn apply(
        &self,
        t: &mut KernelBuilder,
        (scheduler, tile): (&Scheduler, &WorkTile),
        from: &Sums<'_>,
        mut hand_on: impl FnMut(&mut KernelBuilder, &Tensor, &Chunk),
    ) {
        if !self.sums.is_empty() {
            // The sums of the previous tile have left.
            t.wait_group(0);
            t.syncthreads();
        }
        let mut totals = Vec::new();
        for sum in self.sums.iter().filter(|sum| sum.along == Some(0)) {
            let name = format!("{}_here", sum.operand.name);
            let total = t.register_tensor(&name, DType::F32, [&self.numbers.bm]);
            t.fill(&total, 0.0);
            totals.push((sum, total));
        }
        let mut chunks = |t: &mut KernelBuilder| {
            self.numbers.for_chunks(t, "je", |t, chunk| {
                let mut finish = |t: &mut KernelBuilder| {
                    let (v, second) = self.chunk_of(t, from, chunk);
                    let origin = scheduler.origin(tile, &chunk.index);
                    let v = self.values(t, (v, second), chunk, &origin);
                    for (sum, total) in &totals {
                        let of_chunk =
                            t.reduce(&chunk.name(&format!("{}_some", sum.operand.name)), v, ReduceOp::Sum, 1);
                        t.assign(total, Elem::from(total) + of_chunk);
                    }
                    for sum in self.sums.iter().filter(|sum| sum.along == Some(1)) {
                        let of_chunk =
                            t.reduce(&chunk.name(&format!("{}_some", sum.operand.name)), v, ReduceOp::Sum, 0);
                        t.copy(of_chunk, sum.shared.at(chunk.index.clone()));
                    }
                    hand_on(t, &v, chunk);
                };
                match from {
                    Sums::Own(..) => finish(t),
                    Sums::Left(_, finishes) => t.if_then(finishes(&chunk.index), finish),
                }
            });
        };
        match &self.ring {
            Some(ring) => t.consume(ring, chunks),
            None => chunks(t),
        }
        self.add_sums(t, (scheduler, tile), totals);
    }

    /// A chunk's columns of a tile's sums, and of those of a second product.
    fn chunk_of(&self, t: &mut KernelBuilder, from: &Sums<'_>, chunk: &Chunk) -> (Tensor, Option<Tensor>) {
        let Numbers { bm, chunk: columns, .. } = &self.numbers;
        match from {
            Sums::Own(own, add) => {
                let slice = |t: &mut KernelBuilder, name: &str, of: &Tensor| {
                    t.slice(&chunk.name(name), of, 1, &chunk.within * columns, columns)
                };
                let v = slice(t, "v", &own.parts[chunk.part]);
                if let Some(add) = add {
                    add(t, &v, chunk);
                }
                let v = self.finished(t, "v", v, chunk);
                let second = own.second.as_ref().map(|of| slice(t, "u", of));
                (v, second.map(|u| self.finished(t, "u", u, chunk)))
            }
            Sums::Left(add, _) => {
                let v = t.register_tensor(&chunk.name("v"), self.tiling.accumulator, [bm, columns]);
                t.fill(&v, 0.0);
                add(t, &v, chunk);
                (self.finished(t, "v", v, chunk), None)
            }
        }
    }

    /// Sums of a chunk in the type in which epilogues work.
    fn finished(&self, t: &mut KernelBuilder, name: &str, v: Tensor, chunk: &Chunk) -> Tensor {
        if self.tiling.accumulator == self.tiling.finished() {
            return v;
        }
        t.cast(&chunk.name(&format!("{name}_f32")), v, DType::F32)
    }

    /// The values of a chunk, which may have sums of two products, after all operations.
    fn values(
        &self,
        t: &mut KernelBuilder,
        (mut v, second): (Tensor, Option<Tensor>),
        chunk: &Chunk,
        origin: &[Expr; 2],
    ) -> Tensor {
        let shape = [&self.numbers.bm, &self.numbers.chunk];
        let mut sources = self.sources.iter();
        let mut next = |t: &mut KernelBuilder| -> Vec<Elem> {
            sources.next().into_iter().flatten().map(|source| self.operand(t, source, chunk, shape)).collect()
        };
        if let Some((combine, second)) = self.chain.combine.zip(second) {
            let operands = next(t);
            v = combine.apply(t, [v, second], &operands, &chunk.tag);
        }
        for op in &self.chain.ops {
            let operands = next(t);
            let [row, col] = origin.clone();
            let (row, col) = self.tiling.sides((row, col));
            let tile = EpilogueTile {
                value: v,
                operands: &operands,
                shape,
                origin: [row, col],
                transposed: self.tiling.swap,
                site: &chunk.tag,
            };
            let value = op.apply(t, &tile);
            v = t.define(&chunk.name(&format!("v_{}", op.name())), value);
        }
        v
    }

    /// An operand for a chunk, as large as the chunk.
    fn operand(&self, t: &mut KernelBuilder, source: &Source, chunk: &Chunk, shape: [&Expr; 2]) -> Elem {
        match source {
            Source::Scalar(number) => number.clone(),
            Source::Vector(number) => {
                let Loaded { operand: Operand { name, dtype, .. }, shared, along, .. } =
                    &self.vectors[*number];
                let along = along.unwrap_or(0);
                let vector =
                    t.register_tensor(&chunk.name(&format!("{name}_r")), *dtype, [shape[along as usize]]);
                t.copy(if along == 1 { shared.at(chunk.index.clone()) } else { shared.into() }, vector);
                spread(t, &|word| chunk.name(&format!("{name}_{word}")), &vector, along, shape).into()
            }
            Source::Matrix(number) => {
                let (Loaded { operand: Operand { name, dtype, .. }, shared, .. }, ring) =
                    &self.matrices[*number];
                let values = t.register_tensor(&chunk.name(&format!("{name}_r")), *dtype, shape);
                t.consume(ring, |t| t.copy(*shared, values));
                t.cast(&chunk.name(&format!("{name}_f32")), values, DType::F32).into()
            }
        }
    }

    /// Adds the sums of a tile's rows and columns to those in memory.
    fn add_sums(
        &self,
        t: &mut KernelBuilder,
        (scheduler, tile): (&Scheduler, &WorkTile),
        totals: Vec<(&Loaded, Tensor)>,
    ) {
        if self.sums.is_empty() {
            return;
        }
        for (sum, total) in totals {
            t.copy(total, sum.shared);
        }
        t.syncthreads();
        // Of the blocks that have the same sums one adds them: to the others they are outside.
        let (mut row, mut col) = (tile.row.clone(), tile.col.clone());
        let [.., deep] = self.tiling.blocks();
        if deep > 1 {
            row = row + block_x() % deep * &scheduler.along_rows.count;
            col = col + block_x() % deep * &scheduler.cluster_tiles[1];
        }
        let tile = WorkTile { row, col, ..tile.clone() };
        for sum in &self.sums {
            sum.each(t, scheduler, &tile, |t, view, shared| {
                t.copy_async_with(shared, view, AsyncCopyAttrs { add: true, ..AsyncCopyAttrs::default() });
            });
        }
        t.commit_group();
    }
}

impl Loaded {
    fn declare(
        t: &mut KernelBuilder,
        operand: Operand,
        buffer: &Buffer,
        problem: &Problem,
        scheduler: &Scheduler,
    ) -> Self {
        let Numbers { bm, chunk, chunks, .. } = &scheduler.numbers;
        let Scheduler { tiling, along_rows, chunked, .. } = scheduler;
        let names = [format!("g_{}", operand.name), format!("s_{}", operand.name)];
        let dtype = operand.dtype;
        let (along_columns, several) = match operand.kind {
            OperandKind::Column => (true, &problem.matrices),
            OperandKind::Row => (false, &problem.products),
            OperandKind::Matrix | OperandKind::Result | OperandKind::Scalar(_) => {
                let view = scheduler.result_view(t, &names[0], buffer, problem.products.as_ref());
                let shared = t.shared_tensor(&names[1], dtype, [bm, chunk]);
                return Loaded { operand, view, shared, along: None };
            }
        };
        // Along the tile's columns a vector is cut into chunks as the tile is.
        let along = u32::from(along_columns != tiling.swap);
        let mode = u32::from(several.is_some());
        let (modes, shape) = match along {
            1 => (chunked.modes(mode), vec![chunk, chunks]),
            _ => (along_rows.modes(mode), vec![bm]),
        };
        let view = t.global_view(&names[0], buffer, with_batch(modes, several.as_ref()));
        let shared = t.shared_tensor(&names[1], dtype, shape);
        Loaded { operand, view, shared, along: Some(along) }
    }

    /// Does something with the part of a vector that belongs to a tile, in memory and in shared memory: at once, or chunk by chunk.
    fn each(
        &self,
        t: &mut KernelBuilder,
        scheduler: &Scheduler,
        tile: &WorkTile,
        mut body: impl FnMut(&mut KernelBuilder, Reference, Reference),
    ) {
        let part = |of: Expr| {
            let which =
                if self.operand.kind == OperandKind::Column { tile.of_b() } else { tile.product.as_ref() };
            let entries = [None, Some(of)].into_iter().chain(which.map(|p| Some(p.clone())));
            self.view.index(entries)
        };
        if self.along == Some(1) {
            t.unroll_for(&format!("j_{}", self.operand.name), 0, &scheduler.numbers.chunks, |t, j| {
                body(t, part(scheduler.chunk_column(tile, &j)), self.shared.at(j));
            });
        } else {
            body(t, part(tile.row.clone()), self.shared.into());
        }
    }
}

/// Makes a vector, which lies along mode `along` of the shape, f32 and as large as the shape.
pub(crate) fn spread(
    t: &mut KernelBuilder,
    name: &dyn Fn(&str) -> String,
    vector: &Tensor,
    along: u32,
    shape: [&Expr; 2],
) -> Tensor {
    spread_as(t, DType::F32, name, vector, (along, shape))
}

/// The same in a type.
pub(crate) fn spread_as(
    t: &mut KernelBuilder,
    dtype: DType,
    name: &dyn Fn(&str) -> String,
    vector: &Tensor,
    (along, shape): (u32, [&Expr; 2]),
) -> Tensor {
    let wide = t.cast(&name(dtype.name()), vector, dtype);
    let column = t.expand(&name("1"), wide, 1 - along);
    t.broadcast(&name("2"), column, shape)
}
