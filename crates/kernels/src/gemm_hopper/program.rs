//! The tile program of a configuration.

use tilewright_machine::DType;
use tilewright_tile::dsl::{
    Buffer, BufferAt, Elem, KernelBuilder, Pipeline, Reference, Tensor, block_x, steps, tile,
};
use tilewright_tile::{AsyncHow, Expr, Program, ReduceOp, ViewMode};

use super::epilogue::spread;
use super::{Batch, HopperGemmConfig, Major, Part, SIDE_STAGES};
use crate::config::ConfigError;
use crate::hopper::{launch, own, shared_out};

/// Where a block's tile is: its row and column among the tiles of C, and the product that it belongs to.
struct Place {
    row: Expr,
    col: Expr,
    product: Option<Expr>,
    /// The group that its rows of A belong to.
    group: Option<Expr>,
    /// The row behind the last of its group, where tiles reach beyond.
    end: Option<Expr>,
}

impl Place {
    /// Which of several matrices B, and of what belongs to its rows.
    fn of_b(&self) -> Option<&Expr> {
        self.product.as_ref().or(self.group.as_ref())
    }
}

/// An operand of the epilogue that is brought tile by tile, or sums of it that are sent away.
struct Side {
    part: Part,
    /// The view of the vector or matrix, indexed by a [`Place`].
    view: Tensor,
    /// Where it lies in shared memory.
    shared: Tensor,
    /// Along which mode of the tile a vector lies.
    along: Option<u32>,
}

/// The names and numbers that the parts of the program have in common.
struct Shape {
    bm: Expr,
    chunk: Expr,
    chunks: Expr,
    buffers: Expr,
    /// Tiles of C along the tile's rows.
    rows: Expr,
    /// Tiles of all clusters together along the tile's rows and columns.
    cluster_tiles: [Expr; 2],
    depth: Expr,
    /// Blocks of a cluster along the tile's rows and columns, and along k.
    down: i64,
    across: i64,
    deep: i64,
    /// Products, and parts of k that are summed apart: what the rows of tiles are counted through for.
    several: bool,
    /// Whether the tile's columns are along m.
    swap: bool,
    /// The group of each tile along m.
    groups: Option<Buffer>,
    ragged: Option<Ragged>,
}

/// What there is besides groups where their rows lie one behind the other.
struct Ragged {
    /// Rows of A, and tiles of them.
    m: Expr,
    tiles: Expr,
    /// The first row of each tile.
    first: Buffer,
    /// The row behind the last of each group.
    ends: Buffer,
}

impl Shape {
    /// The place of a block's tile, given that of its cluster's.
    fn place(&self, row: &Expr, col: &Expr) -> Place {
        if !self.several {
            let (mut row, mut col) = (own(row, self.down), own(col, self.across));
            let along_m = if self.swap { &mut col } else { &mut row };
            let group = self.groups.map(|groups| groups.element(&*along_m));
            let mut end = None;
            if let (Some(Ragged { m, tiles, first, ends }), Some(group)) = (&self.ragged, &group) {
                // Behind the last tile, where the table reads as 0, there is nothing to write.
                let counts = (tiles - &*along_m).max(0).min(1);
                end = Some(ends.element(group).max(0).min(m) * counts);
                *along_m = first.element(&*along_m).max(0).min(m);
            }
            return Place { row, col, product: None, group, end };
        }
        // Rows of the tiles of clusters are counted through all products.
        let each = shared_out(&self.rows, self.down);
        let within = own(&(row % &each), self.down);
        Place { row: within, col: own(col, self.across), product: Some(row / &each), group: None, end: None }
    }

    /// Which step along the columns of C (of the tile, that is) a chunk is at.
    fn column(&self, place: &Place, j: &Expr) -> Expr {
        if self.swap && self.ragged.is_some() {
            &place.col + j * &self.chunk
        } else {
            &place.col * &self.chunks + j
        }
    }

    /// Steps along k of a tile, and the first of them: tiles of padding have none, or some past the end of k if results of others
    /// leave meanwhile.
    fn steps(&self, place: &Place, least: Option<&Expr>) -> (Expr, Option<Expr>) {
        let Some(group) = &place.group else { return (self.depth.clone(), None) };
        // 1 for a group, 0 for a negative number.
        let counts = (group.min(0) + 1).max(0);
        match least {
            None => (counts * &self.depth, None),
            Some(least) => {
                let past = (Expr::from(1) - &counts) * &self.depth;
                ((counts * &self.depth).max(least), Some(past))
            }
        }
    }
}

impl HopperGemmConfig {
    /// The program that multiplies, with the sizes `m`, `n` and `k` (and `l`, the number of products): the only one, but where
    /// [`split`](Self::split) says that others add what it writes.
    ///
    /// # Errors
    ///
    /// What [`validate`](Self::validate) says.
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mut t = KernelBuilder::new("gemm_hopper");
        self.write(&mut t);
        Ok(t.finish()?)
    }

    /// The programs that compute C, to be launched in this order; tensors of the same name are the same. Of more than one the first
    /// writes `partial`, which is no operand of the product.
    ///
    /// # Errors
    ///
    /// What [`validate`](Self::validate) says.
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        let product = self.program()?;
        if self.split > 1 { Ok(vec![product, self.split_sum()?]) } else { Ok(vec![product]) }
    }

    fn write(&self, t: &mut KernelBuilder) {
        let (m, n, k) = (t.size("m", 4096), t.size("n", 4096), t.size("k", 4096));
        let grouped = self.batch.has_groups();
        let products = (self.batch != Batch::None && !grouped).then(|| t.size("l", 4));
        // How many matrices B there are, and vectors along n.
        let matrices = products.clone().or_else(|| grouped.then(|| t.size("g", 8)));
        let (height, width) = self.sides((m.clone(), n.clone()));
        let (bm, bn, bk) = (t.constant("BM", self.bm), t.constant("BN", self.bn), t.constant("BK", self.bk));
        let (stages, sms) = (t.constant("STAGES", self.stages), t.constant("SMS", self.sms));
        let (chunk, buffers) = (t.constant("CHUNK", self.columns()), t.constant("BUFFERS", self.buffers));
        let split = (self.split > 1).then(|| t.constant("SPLIT", self.split));
        let epilogue = self.applied();

        let a = self.matrix(t, "a", self.dtype, [&m, &k], self.a, &products);
        let b = self.matrix(t, "b", self.right(), [&n, &k], self.b, &matrices);
        let (of_m, _) = self.sides((&bm, &bn));
        let tiles_of_m = if self.batch == Batch::Ragged { t.size("t", 40) } else { m.ceil_div(of_m) };
        let groups = grouped.then(|| t.tensor("groups", DType::I32, [&tiles_of_m]));
        let ragged = (self.batch == Batch::Ragged).then(|| Ragged {
            m: m.clone(),
            tiles: tiles_of_m.clone(),
            first: t.tensor("first", DType::I32, [&tiles_of_m]),
            ends: t.tensor("ends", DType::I32, [matrices.clone().unwrap_or(1.into())]),
        });
        let operands: Vec<(Part, Option<Buffer>)> = epilogue
            .parts()
            .filter(|p| !p.sums())
            .map(|p| (p, self.operand(t, p, &m, &n, (&products, &matrices))))
            .collect();
        let alpha = epilogue.has(Part::Alpha).then(|| t.scalar("alpha", 1.0));
        let c = match &split {
            Some(split) => t.tensor("partial", DType::F32, [split, &m, &n]),
            None => self.matrix(t, "c", self.result(), [&m, &n], Major::K, &products),
        };
        let sums: Vec<(Part, Option<Buffer>)> = epilogue
            .parts()
            .filter(|p| p.sums())
            .map(|p| (p, self.operand(t, p, &m, &n, (&products, &matrices))))
            .collect();

        // The tiles of clusters, and how many steps along k a block does of each.
        let (rows, cols) = if self.swap {
            (height.ceil_div(&bm), tiles_of_m.clone())
        } else {
            (tiles_of_m.clone(), width.ceil_div(&bn))
        };
        let chunks = &bn / &chunk;
        let [blocks_m, blocks_n, deep] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let steps_of_k = k.ceil_div(&bk);
        let parts_of_k = match &split {
            Some(split) => split * deep,
            None => deep.into(),
        };
        let depth = match parts_of_k.as_int() {
            Some(1) => steps_of_k.clone(),
            _ => steps_of_k.ceil_div(&parts_of_k),
        };
        // Every chunk of the tile before has a step to leave after: a step past the end of k adds zeros.
        let depth = if self.deferred { depth.max(&chunks) } else { depth };
        let through = products.clone().or(split.clone());
        let cluster_rows = match &through {
            Some(through) => shared_out(&rows, down) * through,
            None => shared_out(&rows, down),
        };
        let cluster_cols = shared_out(&cols, across);
        let tiles = &cluster_rows * &cluster_cols;
        launch(t, &sms, &tiles, self.cluster.blocks(), self.warpgroups);

        let tiled = |size: &Expr, count: &Expr| Steps::of(size, count, size);
        let (mut along_rows, mut along_cols) = (tiled(&bm, &rows), tiled(&bn, &cols));
        let mut chunked = tiled(&chunk, &width.ceil_div(&chunk));
        if ragged.is_some() {
            // A tile begins at any row.
            let any = |size: &Expr| Steps::of(size, &m, &1.into());
            if self.swap {
                (along_cols, chunked) = (any(&bn), any(&chunk));
            } else {
                along_rows = any(&bm);
            }
        }
        let along_k = tiled(&bk, &steps_of_k);
        let (of_a, of_b) = self.sides((&along_rows, &along_cols));
        let ga = matrix_view(t, "ga", &(&a).into(), products.as_ref(), (0, 1), of_a, &along_k);
        let gb = matrix_view(t, "gb", &(&b).into(), matrices.as_ref(), (0, 1), of_b, &along_k);
        let modes = self.sides((0, 1));
        let gc = matrix_view(t, "gc", &(&c).into(), through.as_ref(), modes, &along_rows, &chunked);
        let (tall_a, tall_b) = self.sides((&bm, &bn));
        let sa = t.shared_tensor("sa", self.dtype, [tall_a, &bk]);
        let sb = t.shared_tensor("sb", self.right(), [tall_b, &bk]);
        let sc = t.shared_tensor("sc", self.stored(), [&bm, &chunk, &buffers]);
        let ab = t.pipeline("ab", &stages, [&sa, &sb]);

        let shape = Shape {
            bm: bm.clone(),
            chunk: chunk.clone(),
            chunks: chunks.clone(),
            buffers: buffers.clone(),
            rows: along_rows.count.clone(),
            cluster_tiles: [cluster_rows, cluster_cols],
            depth,
            down,
            across,
            deep,
            several: through.is_some(),
            swap: self.swap,
            groups,
            ragged,
        };
        let side = |t: &mut KernelBuilder, (part, buffer): &(Part, Option<Buffer>)| {
            let buffer = buffer.as_ref()?;
            let name = part.name();
            let dtype = part.dtype(self.result());
            let Some(along_columns) = part.vector() else {
                let (name, from) = (format!("g_{name}"), buffer.into());
                let view = matrix_view(t, &name, &from, products.as_ref(), modes, &along_rows, &chunked);
                let shared = t.shared_tensor(&format!("s_{}", part.name()), dtype, [&bm, &chunk]);
                return Some(Side { part: *part, view, shared, along: None });
            };
            // Along the tile's columns a vector is cut into chunks as the tile is.
            let along = if along_columns != self.swap { 1 } else { 0 };
            let several = if along_columns { &matrices } else { &products };
            let mode = u32::from(several.is_some());
            let (view, shared) = if along == 1 {
                (chunked.modes(mode), vec![&chunk, &chunks])
            } else {
                (along_rows.modes(mode), vec![&bm])
            };
            let view = with_matrices(view, several.as_ref());
            let view = t.global_view(&format!("g_{name}"), buffer, view);
            let shared = t.shared_tensor(&format!("s_{name}"), dtype, shared);
            Some(Side { part: *part, view, shared, along: Some(along) })
        };
        let sides: Vec<Side> = operands.iter().filter_map(|both| side(t, both)).collect();
        let sums: Vec<Side> = sums.iter().filter_map(|both| side(t, both)).collect();
        let (matrices, vectors): (Vec<Side>, Vec<Side>) = sides.into_iter().partition(|s| s.along.is_none());
        let rings = Rings {
            ab,
            vectors: (!vectors.is_empty())
                .then(|| t.pipeline("sides", SIDE_STAGES, vectors.iter().map(|s| &s.shared))),
            residual: matrices.first().map(|s| t.pipeline("residuals", SIDE_STAGES, [&s.shared])),
        };
        let operands = Operands { alpha, vectors, residual: matrices.into_iter().next(), sums };

        t.role("load", 1, Some(self.load_registers.into()), |t| {
            self.load(t, &shape, &rings, &operands, [(&ga, sa), (&gb, sb)]);
        });
        t.role("math", self.warpgroups, Some(self.math_registers.into()), |t| {
            let result = Target { buffer: c, view: gc, shared: sc, along_rows, chunked };
            self.multiply(t, &shape, &rings, &operands, &result, self.sides((sa, sb)));
        });
    }

    /// A matrix, or `l` of them, rows first; `Mn`: contiguous along its first mode.
    fn matrix(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        dtype: DType,
        [rows, cols]: [&Expr; 2],
        major: Major,
        products: &Option<Expr>,
    ) -> Buffer {
        let inner: [Expr; 2] =
            if major == Major::K { [cols.clone(), 1.into()] } else { [1.into(), rows.clone()] };
        match products {
            None if major == Major::K => t.tensor(name, dtype, [rows, cols]),
            None => t.strided_tensor(name, dtype, [rows, cols], inner),
            Some(products) => {
                let step = if self.batch == Batch::Strided && ["a", "b", "c"].contains(&name) {
                    t.size(&format!("step_{name}"), 4096 * 4096)
                } else {
                    rows * cols
                };
                let [down, across] = inner;
                t.strided_tensor(name, dtype, [products, rows, cols], [step, down, across])
            }
        }
    }

    /// The parameter of a part of the epilogue, if it has one; a scalar is none.
    pub(super) fn operand(
        &self,
        t: &mut KernelBuilder,
        part: Part,
        m: &Expr,
        n: &Expr,
        (products, matrices): (&Option<Expr>, &Option<Expr>),
    ) -> Option<Buffer> {
        let dtype = part.dtype(self.result());
        if part == Part::Residual {
            return Some(self.matrix(t, part.name(), dtype, [m, n], Major::K, products));
        }
        let (along, several) = if part.vector()? { (n, matrices) } else { (m, products) };
        Some(match several {
            Some(several) => t.tensor(part.name(), dtype, [several, along]),
            None => t.tensor(part.name(), dtype, [along]),
        })
    }

    /// What the role that copies does.
    fn load(
        &self,
        t: &mut KernelBuilder,
        shape: &Shape,
        rings: &Rings,
        operands: &Operands,
        [(ga, sa), (gb, sb)]: [(&Tensor, Tensor); 2],
    ) {
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let how_a = AsyncHow { multicast: blocks_n > 1, hint: self.hint_a, ..AsyncHow::default() };
        let how_b = AsyncHow { multicast: blocks_m > 1, hint: self.hint_b, ..AsyncHow::default() };
        if self.dependent {
            t.wait_dependencies();
        }
        let [rows, cols] = &shape.cluster_tiles;
        t.for_tiles(["tm", "tn"], rows, cols, self.order.tiles(), |t, tm, tn| {
            let place = shape.place(&tm, &tn);
            let (row_a, row_b) = self.sides((&place.row, &place.col));
            if let Some(ring) = &rings.vectors {
                t.produce(ring, |t| {
                    for side in &operands.vectors {
                        side.each(t, shape, &place, |t, view, shared| t.copy_async(view, shared));
                    }
                });
            }
            let (product, first) = match &place.product {
                Some(part) if self.split > 1 => (None, Some(part * &shape.depth)),
                product => (product.as_ref(), None),
            };
            let (steps, past) = shape.steps(&place, self.deferred.then_some(&shape.chunks));
            let first = first.or(past);
            let of_b = if self.split > 1 { None } else { place.of_b() };
            t.for_range("kl", 0, steps, |t, kl| {
                let step = match &first {
                    Some(first) => first + kl,
                    None => kl,
                };
                let step = if shape.deep > 1 { step * shape.deep + block_x() % shape.deep } else { step };
                t.produce(&rings.ab, |t| {
                    t.copy_async_with(at(ga, row_a, &step, product), sa, how_a);
                    t.copy_async_with(at(gb, row_b, &step, of_b), sb, how_b);
                });
            });
            if let (Some(ring), Some(side)) = (&rings.residual, &operands.residual) {
                t.for_range("jl", 0, &shape.chunks, |t, j| {
                    let col = shape.column(&place, &j);
                    t.produce(ring, |t| {
                        t.copy_async(at(&side.view, &place.row, &col, place.product.as_ref()), side.shared);
                    });
                });
            }
        });
        if self.dependent {
            t.launch_dependents();
        }
    }

    /// What the role that multiplies does.
    fn multiply(
        &self,
        t: &mut KernelBuilder,
        shape: &Shape,
        rings: &Rings,
        operands: &Operands,
        result: &Target,
        (left, right): (Tensor, Tensor),
    ) {
        let (bm, chunk, chunks) = (&shape.bm, &shape.chunk, &shape.chunks);
        let bn = &(chunk * chunks);
        let plain = self.applied().is_empty();
        let step = |t: &mut KernelBuilder, rc: &Tensor| {
            t.consume(&rings.ab, |t| {
                t.gemm_async_over(rc, left, right, [self.warpgroups.into(), 1.into()]);
                t.commit_gemm();
                t.wait_gemm(self.in_flight);
            });
        };
        let complete = |t: &mut KernelBuilder, rc: &Tensor| {
            if self.in_flight > 0 {
                t.wait_gemm(0);
            }
            if shape.deep > 1 {
                t.cluster_sum(rc);
            }
        };
        let first_buffer = |t: &mut KernelBuilder| {
            if self.bn / self.columns() % self.buffers != 0 {
                // A tile begins with the first buffer, whichever the one before ended with.
                t.wait_group(0);
            }
        };
        let leave =
            |t: &mut KernelBuilder, part: &Tensor, j: &Expr, place: &Place, clipped: &Option<Clipped>| {
                let buffer = || result.shared.at(j % &shape.buffers);
                t.wait_group(&shape.buffers - 1);
                t.syncthreads();
                t.copy(part, buffer());
                t.syncthreads();
                // Of the blocks that have the same sums, each stores some of the chunks: to the others it is outside.
                let row = match shape.deep {
                    1 => place.row.clone(),
                    deep => &place.row + (j + deep - block_x() % deep) % deep * &shape.rows,
                };
                let column = shape.column(place, j);
                let how = AsyncHow { hint: self.hint_c, ..AsyncHow::default() };
                let all = at(&result.view, &row, &column, place.product.as_ref());
                let Some((clipped, end)) = clipped.as_ref().zip(place.end.as_ref()) else {
                    t.copy_async_with(buffer(), all, how);
                    t.commit_group();
                    return;
                };
                // A chunk that ends behind its group's end leaves by threads, which write the rows before it: a loop of one round or none.
                let (begin, extent) = if self.swap { (&column, chunk) } else { (&place.row, bm) };
                let whole = (end - begin - extent + 1).max(0).min(1);
                let name = |word: &str| format!("{word}_{}", clipped.site);
                t.for_range(&name("whole"), 0, &whole, |t, _| t.copy_async_with(buffer(), all, how));
                t.for_range(&name("some"), whole, 1, |t, _| {
                    t.copy(buffer(), at(&clipped.view, &row, &column, None));
                });
                t.commit_group();
            };
        if self.dependent {
            t.wait_dependencies();
        }
        let ([cluster_rows, cluster_cols], order) = (shape.cluster_tiles.clone(), self.order.tiles());
        let sums = |t: &mut KernelBuilder| {
            let rc = t.register_tensor("rc", self.sum(), [bm, bn]);
            t.fill(&rc, 0.0);
            rc
        };
        if self.deferred {
            let rounded = if plain {
                t.register_tensor("rounded", self.stored(), [bm, bn])
            } else {
                t.register_tensor("rounded", self.stored(), [bm, chunk, chunks])
            };
            let part_of = |t: &mut KernelBuilder, name: &str, j: &Expr| {
                if plain {
                    t.slice(name, &rounded, 1, j * chunk, chunk)
                } else {
                    t.part(rounded.at(j.clone()))
                }
            };
            if plain {
                t.fill(&rounded, 0.0);
            } else {
                t.unroll_for("jz", 0, chunks, |t, j| {
                    let part = t.part(rounded.at(j));
                    t.fill(&part, 0.0);
                });
            }
            let body = |t: &mut KernelBuilder, now: [Expr; 2], [row, col]: [Expr; 2]| {
                let before = shape.place(&row, &col);
                let clipped = result.clipped(t, &before, self.sides((0, 1)), "late");
                let rc = sums(t);
                first_buffer(t);
                t.unroll_for("j", 0, chunks, |t, j| {
                    step(t, &rc);
                    let part = part_of(t, "part", &j);
                    leave(t, &part, &j, &before, &clipped);
                });
                let place = shape.place(&now[0], &now[1]);
                let (steps, _) = shape.steps(&place, Some(chunks));
                t.for_range("km", chunks, steps, |t, _| step(t, &rc));
                complete(t, &rc);
                if plain {
                    t.cast_to(&rounded, &rc);
                } else {
                    self.finish(t, shape, rings, operands, &rc, &place, |t, part, j| {
                        let part = self.round(t, part);
                        t.copy(part, rounded.at(j.clone()));
                    });
                }
            };
            t.for_tiles_after(
                ["um", "un", "pm", "pn"],
                [cluster_rows, cluster_cols],
                order,
                body,
                |t, [row, col]| {
                    let last = shape.place(&row, &col);
                    let clipped = result.clipped(t, &last, self.sides((0, 1)), "last");
                    first_buffer(t);
                    t.unroll_for("i", 0, chunks, |t, i| {
                        let part = part_of(t, "rest", &i);
                        leave(t, &part, &i, &last, &clipped);
                    });
                },
            );
        } else {
            t.for_tiles(["um", "un"], &cluster_rows, &cluster_cols, order, |t, um, un| {
                let now = shape.place(&um, &un);
                let clipped = result.clipped(t, &now, self.sides((0, 1)), "now");
                let rc = sums(t);
                t.for_range("km", 0, shape.steps(&now, None).0, |t, _| step(t, &rc));
                complete(t, &rc);
                first_buffer(t);
                self.finish(t, shape, rings, operands, &rc, &now, |t, part, j| {
                    let part = self.round(t, part);
                    leave(t, &part, j, &now, &clipped);
                });
            });
        }
        t.wait_group(0);
    }

    /// The type in which the epilogue works: f32, but for integers that leave as they are.
    fn finished(&self) -> DType {
        if self.stored() == DType::I32 { DType::I32 } else { DType::F32 }
    }

    /// The values in the type that is stored.
    fn round(&self, t: &mut KernelBuilder, values: &Tensor) -> Tensor {
        if self.stored() == self.finished() { *values } else { t.cast("half", values, self.stored()) }
    }

    /// Applies the epilogue to the sums of a tile, chunk by chunk, and hands each on.
    fn finish(
        &self,
        t: &mut KernelBuilder,
        shape: &Shape,
        rings: &Rings,
        operands: &Operands,
        rc: &Tensor,
        place: &Place,
        mut hand_on: impl FnMut(&mut KernelBuilder, &Tensor, &Expr),
    ) {
        if !operands.sums.is_empty() {
            // The sums of the tile before have left.
            t.wait_group(0);
            t.syncthreads();
        }
        let mut totals = Vec::new();
        for side in operands.sums.iter().filter(|side| side.along == Some(0)) {
            let total = t.register_tensor(&format!("{}_here", side.part.name()), DType::F32, [&shape.bm]);
            t.fill(&total, 0.0);
            totals.push((side, total));
        }
        let mut all = |t: &mut KernelBuilder| {
            t.unroll_for("je", 0, &shape.chunks, |t, j| {
                let mut v = t.slice("v", rc, 1, &j * &shape.chunk, &shape.chunk);
                if self.sum() != self.finished() {
                    v = t.cast("v_f32", &v, DType::F32);
                }
                for part in self.applied().parts() {
                    let operand = self.operand_of(t, shape, rings, operands, part, &j);
                    if let Some(value) = part.apply(&v, operand) {
                        v = t.define(&format!("v_{}", part.name()), value);
                    }
                }
                for (side, total) in &totals {
                    let some = t.reduce(&format!("{}_some", side.part.name()), &v, ReduceOp::Sum, 1);
                    t.assign(total, Elem::from(total) + some);
                }
                for side in operands.sums.iter().filter(|side| side.along == Some(1)) {
                    let some = t.reduce(&format!("{}_some", side.part.name()), &v, ReduceOp::Sum, 0);
                    t.copy(some, side.shared.at(j.clone()));
                }
                hand_on(t, &v, &j);
            });
        };
        match &rings.vectors {
            Some(ring) => t.consume(ring, all),
            None => all(t),
        }
        if operands.sums.is_empty() {
            return;
        }
        for (side, total) in totals {
            t.copy(total, side.shared);
        }
        t.syncthreads();
        // Of the blocks that have the same sums one adds them: to the others they are outside.
        let (mut row, mut col) = (place.row.clone(), place.col.clone());
        if shape.deep > 1 {
            row = row + block_x() % shape.deep * &shape.rows;
            col = col + block_x() % shape.deep * &shape.cluster_tiles[1];
        }
        let place = Place { row, col, product: place.product.clone(), group: place.group.clone(), end: None };
        for side in &operands.sums {
            side.each(t, shape, &place, |t, view, shared| {
                t.copy_async_with(shared, view, AsyncHow { add: true, ..AsyncHow::default() });
            });
        }
        t.commit_group();
    }

    /// What a part of the epilogue combines the chunk with, as large as the chunk, if with anything.
    fn operand_of(
        &self,
        t: &mut KernelBuilder,
        shape: &Shape,
        rings: &Rings,
        operands: &Operands,
        part: Part,
        j: &Expr,
    ) -> Option<Elem> {
        if part == Part::Alpha {
            return operands.alpha.clone();
        }
        let whole = [&shape.bm, &shape.chunk];
        let (name, dtype) = (part.name(), part.dtype(self.result()));
        if part == Part::Residual {
            let (side, ring) = (operands.residual.as_ref()?, rings.residual.as_ref()?);
            let tile = t.register_tensor(&format!("{name}_r"), dtype, whole);
            t.consume(ring, |t| t.copy(side.shared, tile));
            return Some(t.cast(&format!("{name}_f32"), &tile, DType::F32).into());
        }
        let side = operands.vectors.iter().find(|side| side.part == part)?;
        let along = side.along?;
        let vector = t.register_tensor(&format!("{name}_r"), dtype, [whole[along as usize]]);
        t.copy(if along == 1 { side.shared.at(j.clone()) } else { side.shared.into() }, vector);
        Some(spread(t, name, &vector, along, whole).into())
    }
}

/// The pipelines of a program.
struct Rings {
    /// Tiles of the factors.
    ab: Pipeline,
    /// The vectors of the epilogue, a tile's in a stage.
    vectors: Option<Pipeline>,
    /// Chunks of the residual.
    residual: Option<Pipeline>,
}

/// The operands of the epilogue.
struct Operands {
    alpha: Option<Elem>,
    vectors: Vec<Side>,
    residual: Option<Side>,
    sums: Vec<Side>,
}

impl Side {
    /// Does something with the part of a vector that belongs to a tile, in memory and in shared memory: at once, or chunk by chunk.
    fn each(
        &self,
        t: &mut KernelBuilder,
        shape: &Shape,
        place: &Place,
        mut body: impl FnMut(&mut KernelBuilder, Reference, Reference),
    ) {
        let part = |of: Expr| {
            let which = if self.part.vector() == Some(true) { place.of_b() } else { place.product.as_ref() };
            let entries = [None, Some(of)].into_iter().chain(which.map(|p| Some(p.clone())));
            self.view.index(entries)
        };
        if self.along == Some(1) {
            t.unroll_for(&format!("j_{}", self.part.name()), 0, &shape.chunks, |t, j| {
                body(t, part(shape.column(place, &j)), self.shared.at(j));
            });
        } else {
            body(t, part(place.row.clone()), self.shared.into());
        }
    }
}

/// How a view walks a mode of a buffer: tiles of a size, so many, each a step behind the one before.
struct Steps {
    size: Expr,
    count: Expr,
    step: Expr,
}

impl Steps {
    fn of(size: &Expr, count: &Expr, step: &Expr) -> Self {
        Steps { size: size.clone(), count: count.clone(), step: step.clone() }
    }

    fn modes(&self, mode: u32) -> Vec<ViewMode> {
        vec![tile(mode, &self.size), steps(mode, &self.count, &self.step)]
    }
}

/// C, and how it is written.
struct Target {
    buffer: Buffer,
    view: Tensor,
    /// The chunks on their way.
    shared: Tensor,
    along_rows: Steps,
    chunked: Steps,
}

/// The view of C that ends with the rows of a group, and what the loops of chunks that leave through it are called.
struct Clipped {
    view: Tensor,
    site: &'static str,
}

impl Target {
    fn clipped(
        &self,
        t: &mut KernelBuilder,
        place: &Place,
        modes: (u32, u32),
        site: &'static str,
    ) -> Option<Clipped> {
        let from = self.buffer.from([0, 0]).until(0, place.end.clone()?);
        let view = matrix_view(t, &format!("gc_{site}"), &from, None, modes, &self.along_rows, &self.chunked);
        Some(Clipped { view, site })
    }
}

/// The view of a matrix, or of several, in tiles along two modes.
fn matrix_view(
    t: &mut KernelBuilder,
    name: &str,
    from: &BufferAt,
    several: Option<&Expr>,
    (first, second): (u32, u32),
    rows: &Steps,
    columns: &Steps,
) -> Tensor {
    let outer = u32::from(several.is_some());
    let modes = [rows.modes(first + outer), columns.modes(second + outer)].concat();
    t.global_view(name, from.clone(), with_matrices(modes, several))
}

/// The modes, and one for the first mode of a buffer of several matrices or vectors.
fn with_matrices(mut modes: Vec<ViewMode>, several: Option<&Expr>) -> Vec<ViewMode> {
    modes.extend(several.map(|several| steps(0, several, 1)));
    modes
}

/// `view[:, row, :, column]`, or `view[:, row, :, column, which]`.
fn at(view: &Tensor, row: &Expr, column: &Expr, which: Option<&Expr>) -> Reference {
    let mut entries = vec![None, Some(row.clone()), None, Some(column.clone())];
    entries.extend(which.map(|which| Some(which.clone())));
    view.index(entries)
}
