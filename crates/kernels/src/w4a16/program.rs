//! The program of a product with 4-bit weights: the views of a block, which may be a tile of an expert's rows, and the loop along k.
//!
//! Rows of weights are the rows of the instructions, and those of activations their columns: a lane that loads 8 neighbours along k of a row of activations has them in the
//! registers that the right factor wants side by side. As the left factor, whose registers are of two rows by turns, they would be moved for every
//! product that reads them (450 moves beside 128 products of a step, on sm_90).

use tilewright_layout::Layout;
use tilewright_machine::DType;
use tilewright_tile::dsl::{
    Buffer, BufferAt, KernelBuilder, Reference, Tensor, block_x, block_y, steps, tile,
};
use tilewright_tile::{Expr, Program};

use super::{W4A16Config, Way};
use crate::config::ConfigError;
use crate::gemm::{part_of, store};
use crate::warp_specialized::{Batch, numbers};

/// The numbers of a program.
struct Sizes {
    /// The extents of the product.
    extents: [Expr; 3],
    bm: Expr,
    bn: Expr,
    bk: Expr,
    kk: Expr,
    stages: Expr,
    /// Neighbours along k that share a scale, where not all do.
    group: Option<Expr>,
    /// Steps along k, and the parts of each.
    tiles: Expr,
    parts: Expr,
}

/// The block's part of the product.
struct Place {
    /// The first row of its tile, and the number of its tile along n.
    row: Expr,
    column: Expr,
    /// The expert whose weights it takes, and the row behind the last one of that expert.
    of_expert: Option<(Expr, Expr)>,
    /// Steps along k: none of a tile without an expert.
    steps: Expr,
}

/// Factors or zero points of the weights: a vector for each group of a stage.
struct Vectors {
    name: &'static str,
    view: Tensor,
    shared: Tensor,
    /// A register tensor for each group.
    held: Vec<Tensor>,
}

/// The weights' tensors along their way: view, shared tensor, registers as they are stored.
struct Weights {
    view: Tensor,
    shared: Option<Tensor>,
    stored: Tensor,
    /// In the type of activations.
    wide: Tensor,
    /// With [`Way::Cast`]: those that come back from shared memory.
    back: Option<Tensor>,
}

/// The loop of a block.
struct Mainloop<'c> {
    config: &'c W4A16Config,
    sizes: Sizes,
    place: Place,
    a: Tensor,
    /// Rows of activations, where these lie anywhere.
    rows: Option<Tensor>,
    sa: Tensor,
    ra: Tensor,
    weights: Weights,
    scales: Vectors,
    zeros: Option<Vectors>,
    sums: Tensor,
}

impl W4A16Config {
    /// The program, with the sizes `m`, `n` and `k`; of groups of rows also `g`, `t` and, where rows lie anywhere, `r`.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mut t = KernelBuilder::new("w4a16");
        let sizes = Sizes::declare(&mut t, self);
        let [m, n, k] = sizes.extents.clone();
        let experts = (self.batch == Batch::Ragged).then(|| (t.size("g", 8), t.size("t", 40)));
        let held = if self.gather { t.size("r", 4096) } else { m.clone() };
        let groups = sizes.group.as_ref().map_or(Expr::Int(1), |group| k.ceil_div(group));
        let each = |extents: [&Expr; 2]| -> Vec<Expr> {
            experts.iter().map(|(g, _)| g).chain(extents).cloned().collect()
        };
        let a = t.tensor("a", DType::F16, [&held, &k]);
        let w = t.tensor("w", DType::I4, each([&n, &k]));
        let s = t.tensor("s", DType::F16, each([&groups, &n]));
        let z = self.zeros.then(|| t.tensor("z", DType::F16, each([&groups, &n])));
        let anywhere = self.gather.then(|| t.tensor("rows", DType::I32, [&m]));
        let tables = experts.as_ref().map(|(g, tiles)| {
            [("groups", tiles), ("first", tiles), ("ends", g)]
                .map(|(name, length)| t.tensor(name, DType::I32, [length]))
        });
        let c = t.tensor("c", DType::F16, [&m, &n]);
        let blocks = match &experts {
            Some((_, tiles)) => [n.ceil_div(&sizes.bn), tiles.clone()],
            None => [m.ceil_div(&sizes.bm), n.ceil_div(&sizes.bn)],
        };
        t.grid(blocks);
        t.threads(self.threads);

        let place = Place::of(&sizes, tables.as_ref());
        let first = &place.column * &sizes.bn;
        let end = place.of_expert.as_ref().map(|(_, end)| end.clone());
        let anywhere = anywhere.map(|rows| {
            let view = t.global_view("gn", &rows, [tile(0, &sizes.bm), steps(0, &m, 1)]);
            let left = end.as_ref().map(|end| end - &place.row);
            numbers(&mut t, "numbers", view.index([None, Some(place.row.clone())]), &sizes.bm, left)
        });
        let along_k = |mode| {
            [
                tile(mode, &sizes.kk),
                steps(mode, &sizes.parts, &sizes.kk),
                steps(mode, &sizes.tiles, &sizes.bk),
            ]
        };
        let of_a = match (&anywhere, &end) {
            (Some(_), _) => [tile(0, &held)].into_iter().chain(along_k(1)).collect(),
            (None, Some(_)) => {
                [tile(0, &sizes.bm)].into_iter().chain(along_k(1)).chain([steps(0, &m, 1)]).collect()
            }
            (None, None) => [tile(0, &sizes.bm)].into_iter().chain(along_k(1)).collect::<Vec<_>>(),
        };
        let from = if end.is_some() { Expr::Int(0) } else { place.row.clone() };
        let ga = t.global_view("ga", a.from([from.clone(), 0.into()]), of_a);
        let (mut of_c, mut modes) =
            (c.from([from, first.clone()]), vec![tile(1, &sizes.bn), tile(0, &sizes.bm)]);
        if let Some(end) = &end {
            of_c = of_c.until(0, end.clone());
            modes.push(steps(0, &m, 1));
        }
        let gc = t.global_view("gc", of_c, modes);
        let outer = u32::from(experts.is_some());
        let of_expert = experts.as_ref().map(|(g, _)| g);
        let modes = [tile(outer, &sizes.bn)].into_iter().chain(along_k(1 + outer));
        let modes = modes.chain(of_expert.map(|g| steps(0, g, 1))).collect::<Vec<_>>();
        let gw = t.global_view("gw", from_column(&w, outer, 0, &first), modes);
        let scales =
            Vectors::declare(&mut t, self, &sizes, ["gs", "ss", "rs"], (&s, &first, of_expert, &groups));
        let zeros = z.map(|z| {
            Vectors::declare(&mut t, self, &sizes, ["gz", "sz", "rz"], (&z, &first, of_expert, &groups))
        });
        let sa = t.shared_tensor("sa", DType::F16, [&sizes.bm, &sizes.kk, &sizes.parts, &sizes.stages]);
        let ra = t.register_tensor("ra", DType::F16, [&sizes.bm, &sizes.kk, &2.into()]);
        let weights = Weights::declare(&mut t, self.weights, &sizes, gw);
        let sums = t.register_tensor("rc", DType::F32, [&sizes.bn, &sizes.bm]);
        t.fill(&sums, 0.0);
        let mainloop = Mainloop {
            config: self,
            sizes,
            place,
            a: ga,
            rows: anywhere,
            sa,
            ra,
            weights,
            scales,
            zeros,
            sums,
        };
        mainloop.write(&mut t);
        let Mainloop { sizes, place, sums, .. } = &mainloop;
        let to: Reference = match &place.of_expert {
            Some(_) => gc.index([None, None, Some(place.row.clone())]),
            None => (&gc).into(),
        };
        store(&mut t, self.epilogue, sums, to, DType::F16, [&sizes.bn, &sizes.bm]);
        Ok(t.finish()?)
    }
}

/// A matrix, or one of several, from a place along one of its modes on.
fn from_column(of: &Buffer, outer: u32, mode: usize, first: &Expr) -> BufferAt {
    let mut offsets = vec![Expr::Int(0); 2 + outer as usize];
    offsets[mode + outer as usize] = first.clone();
    of.from(offsets)
}

impl Sizes {
    fn declare(t: &mut KernelBuilder, config: &W4A16Config) -> Self {
        let extents = [t.size("m", 16), t.size("n", 4096), t.size("k", 4096)];
        let (bm, bn) = (t.constant("BM", config.bm), t.constant("BN", config.bn));
        let (bk, kk) = (t.constant("BK", config.bk), t.constant("KK", config.kk));
        let stages = t.constant("STAGES", config.stages);
        let group = config.group.map(|group| t.constant("GROUP", group));
        let (tiles, parts) = (extents[2].ceil_div(&bk), &bk / &kk);
        Sizes { extents, bm, bn, bk, kk, stages, group, tiles, parts }
    }
}

impl Place {
    /// The part of a block: of groups of rows columns are neighbours, so that blocks of one expert follow each other.
    fn of(sizes: &Sizes, tables: Option<&[Buffer; 3]>) -> Self {
        let Some([groups, first, ends]) = tables else {
            let row = block_x() * &sizes.bm;
            return Place { row, column: block_y(), of_expert: None, steps: sizes.tiles.clone() };
        };
        let [m, ..] = &sizes.extents;
        let expert = groups.element(block_y());
        let end = ends.element(&expert).max(0).min(m);
        let row = first.element(block_y()).max(0).min(m);
        // 1 for an expert, 0 for a negative number, and where a tile begins behind its expert's end.
        let counts = (expert.min(0) + 1).max(0) * (&end - &row).max(0).min(1);
        Place { row, column: block_x(), of_expert: Some((expert, end)), steps: counts * &sizes.tiles }
    }

    /// The last entry of an index of what each expert has one of.
    fn expert(&self) -> Option<Option<Expr>> {
        self.of_expert.as_ref().map(|(expert, _)| Some(expert.clone()))
    }
}

impl Vectors {
    fn declare(
        t: &mut KernelBuilder,
        config: &W4A16Config,
        sizes: &Sizes,
        [view, shared, held]: [&str; 3],
        (of, first, experts, groups): (&Buffer, &Expr, Option<&Expr>, &Expr),
    ) -> Self {
        let outer = u32::from(experts.is_some());
        let several = Expr::Int(config.groups());
        let modes = [
            tile(1 + outer, &sizes.bn),
            tile(outer, &several),
            steps(outer, groups.ceil_div(&several), &several),
        ];
        let modes = modes.into_iter().chain(experts.map(|g| steps(0, g, 1))).collect::<Vec<_>>();
        let name = if held == "rs" { "sf" } else { "zf" };
        // Columns side by side, as in global memory: in the order that is best to read, copies of 2 bytes would be left, which are not asynchronous.
        let (columns, all) = (config.bn, config.bn * config.groups());
        let layout = Layout::new((columns, config.groups(), config.stages).into(), (1, columns, all).into())
            .expect("shape and strides have as many modes");
        let shape = [&sizes.bn, &several, &sizes.stages];
        Vectors {
            name,
            view: t.global_view(view, from_column(of, outer, 1, first), modes),
            shared: t.shared_tensor_with(shared, DType::F16, shape, layout),
            held: (0..config.groups())
                .map(|which| t.register_tensor(&numbered(held, which), DType::F16, [&sizes.bn]))
                .collect(),
        }
    }

    /// The registers of the groups of a stage in shared memory.
    fn load(&self, t: &mut KernelBuilder, stage: &Expr) {
        for (which, held) in (0..).zip(&self.held) {
            t.copy(self.shared.index([None, Some(Expr::Int(which)), Some(stage.clone())]), *held);
        }
    }

    /// A matrix of a group's numbers, as wide as a part of the weights; the number is for the names of several in one block.
    fn spread(&self, t: &mut KernelBuilder, sizes: &Sizes, group: usize, number: i64) -> Tensor {
        let column = t.expand(&numbered(&format!("{}_column", self.name), number), self.held[group], 1);
        t.broadcast(&numbered(self.name, number), column, [&sizes.bn, &sizes.kk])
    }
}

/// The name of one of several tensors; of the first, or only one, the word alone.
fn numbered(word: &str, which: i64) -> String {
    if which == 0 { word.to_string() } else { format!("{word}_{which}") }
}

impl Weights {
    fn declare(t: &mut KernelBuilder, way: Way, sizes: &Sizes, view: Tensor) -> Self {
        let Sizes { bn, kk, parts, stages, .. } = sizes;
        let shared = match way {
            Way::Staged => Some(t.shared_tensor("sw", DType::I4, [bn, kk, parts, stages])),
            Way::Direct => None,
            Way::Cast => Some(t.shared_tensor("sw", DType::F16, [bn, kk, parts])),
        };
        let buffers = if way == Way::Cast { parts.clone() } else { 2.into() };
        Weights {
            view,
            shared,
            stored: t.register_tensor("rw", DType::I4, [bn, kk, &buffers]),
            wide: t.register_tensor("wf", DType::F16, [bn, kk]),
            back: (way == Way::Cast).then(|| t.register_tensor("rb", DType::F16, [bn, kk, &2.into()])),
        }
    }
}

impl Mainloop<'_> {
    /// The first fragments of a round's tile are loaded before the last products of the round before: those hide the barrier and the load. They must not
    /// be those that these products read, so that a stage has an even number of parts.
    fn ahead(&self) -> bool {
        self.config.weights != Way::Cast && self.config.stages > 1 && self.config.bk / self.config.kk % 2 == 0
    }

    fn write(&self, t: &mut KernelBuilder) {
        let Sizes { stages, parts, .. } = &self.sizes;
        let (piped, ahead, first) = (self.config.stages > 1, self.ahead(), Expr::Int(0));
        // The oldest group in flight is the next tile; after the barrier nobody reads the one before any more.
        let arrive = |t: &mut KernelBuilder| {
            t.wait_group(stages - 2);
            t.syncthreads();
        };
        t.unroll_for("p", 0, stages - 1, |t, p| self.fetch(t, &p));
        if self.config.weights == Way::Cast {
            self.ask(t, &first);
        }
        if ahead {
            arrive(t);
            self.vectors(t, &first);
            self.load(t, &first, &first);
        }
        t.for_range("ki", 0, &self.place.steps, |t, ki| {
            if ahead {
                self.fetch(t, &(&ki + stages - 1));
            } else if piped {
                arrive(t);
                self.fetch(t, &(&ki + stages - 1));
            } else {
                // No pipeline: the last round's tile is read to the end before this round's takes its place.
                t.syncthreads();
                self.fetch(t, &ki);
                t.wait_group(0);
                t.syncthreads();
            }
            if !ahead {
                self.vectors(t, &ki);
            }
            if self.config.weights == Way::Cast {
                self.widen(t, &ki);
            }
            if !ahead {
                self.load(t, &first, &ki);
            }
            // Loops over parts of one group each.
            let last = self.config.bk / self.config.kk - 1;
            let mut part = 0;
            while part < last {
                let group = self.group_of(part);
                let end = (part + 1..last).find(|next| self.group_of(*next) != group).unwrap_or(last);
                let end_of_loop = if end == last { parts.clone() } else { Expr::Int(end + 1) };
                t.unroll_for("q", part + 1, &end_of_loop, |t, q| {
                    self.load(t, &q, &ki);
                    self.ready(t, &(&q - 1), group);
                    self.product(t, &(q - 1));
                });
                part = end;
            }
            self.ready(t, &(parts - 1), self.group_of(last));
            if ahead {
                arrive(t);
                self.vectors(t, &(&ki + 1));
                self.load(t, &first, &(&ki + 1));
            }
            self.product(t, &(parts - 1));
        });
    }

    /// The group of a stage in which a part lies.
    fn group_of(&self, part: i64) -> usize {
        (part * self.config.groups() / (self.config.bk / self.config.kk)) as usize
    }

    /// The copies of a step along k to its stage.
    fn fetch(&self, t: &mut KernelBuilder, step: &Expr) {
        let Mainloop { sizes, place, .. } = self;
        let stage = step % &sizes.stages;
        let a = match (&self.rows, &place.of_expert) {
            (Some(rows), _) => self.a.at(step.clone()).indexed(0, rows),
            (None, Some(_)) => self.a.index([None, None, None, Some(step.clone()), Some(place.row.clone())]),
            (None, None) => self.a.at(step.clone()),
        };
        t.copy_async(a, self.sa.at(stage.clone()));
        if let (Way::Staged, Some(shared)) = (self.config.weights, &self.weights.shared) {
            t.copy_async(self.stored_at(None, step), shared.at(stage.clone()));
        }
        for vectors in [&self.scales].into_iter().chain(&self.zeros) {
            // Steps of one group have its vector each.
            let group = match &sizes.group {
                None => Expr::Int(0),
                Some(_) if self.config.group.is_some_and(|group| group <= self.config.bk) => step.clone(),
                Some(group) => step * &sizes.bk / group,
            };
            let at = [None, None, Some(group)].into_iter().chain(place.expert());
            t.copy_async(vectors.view.index(at), vectors.shared.at(stage.clone()));
        }
        t.commit_group();
    }

    /// The weights of a step, or of a part of it, in global memory.
    fn stored_at(&self, part: Option<&Expr>, step: &Expr) -> Reference {
        let at = [None, None, part.cloned(), Some(step.clone())];
        self.weights.view.index(at.into_iter().chain(self.place.expert()))
    }

    /// The registers of all parts of a step's weights, straight from global memory.
    fn ask(&self, t: &mut KernelBuilder, step: &Expr) {
        t.unroll_for("u", 0, &self.sizes.parts, |t, u| {
            t.copy(self.stored_at(Some(&u), step), self.weights.stored.at(u.clone()));
        });
    }

    /// The weights of a step, cast and scaled, in shared memory, and those of the next one on their way.
    fn widen(&self, t: &mut KernelBuilder, step: &Expr) {
        let Some(shared) = &self.weights.shared else { return };
        for part in 0..self.config.bk / self.config.kk {
            let stored = t.part(self.weights.stored.at(part));
            self.scale(t, stored, self.group_of(part), part);
            t.copy(self.weights.wide, shared.at(part));
        }
        self.ask(t, &(step + 1));
        t.syncthreads();
    }

    /// The scales and zero points of a step.
    fn vectors(&self, t: &mut KernelBuilder, step: &Expr) {
        for vectors in [&self.scales].into_iter().chain(&self.zeros) {
            vectors.load(t, &(step % &self.sizes.stages));
        }
    }

    /// The fragments of a part of a step.
    fn load(&self, t: &mut KernelBuilder, part: &Expr, step: &Expr) {
        let stage = step % &self.sizes.stages;
        t.copy(part_of(&self.sa, part, stage.clone()), self.ra.at(part % 2));
        match (self.config.weights, &self.weights.shared, &self.weights.back) {
            (Way::Cast, Some(shared), Some(back)) => t.copy(shared.at(part.clone()), back.at(part % 2)),
            (Way::Staged, Some(shared), _) => {
                t.copy(part_of(shared, part, stage), self.weights.stored.at(part % 2));
            }
            _ => t.copy(self.stored_at(Some(part), step), self.weights.stored.at(part % 2)),
        }
    }

    /// Weights of a group as f16, without their zero points, times their scales.
    fn scale(&self, t: &mut KernelBuilder, stored: Tensor, group: usize, number: i64) {
        let wide = self.weights.wide;
        t.cast_to(&wide, stored);
        if let Some(zeros) = &self.zeros {
            let zero = zeros.spread(t, &self.sizes, group, number);
            t.assign(&wide, wide - zero);
        }
        let scale = self.scales.spread(t, &self.sizes, group, number);
        t.assign(&wide, wide * scale);
    }

    /// The weights of a part of a group ready to be multiplied, where this was not done ahead.
    fn ready(&self, t: &mut KernelBuilder, part: &Expr, group: usize) {
        if self.weights.back.is_none() {
            let stored = t.part(self.weights.stored.at(part % 2));
            self.scale(t, stored, group, 0);
        }
    }

    /// The products of a part, whose weights are ready.
    fn product(&self, t: &mut KernelBuilder, part: &Expr) {
        let a = t.part(self.ra.at(part % 2));
        match &self.weights.back {
            Some(back) => {
                let b = t.part(back.at(part % 2));
                t.gemm(&self.sums, b, a);
            }
            None => t.gemm(&self.sums, self.weights.wide, a),
        }
    }
}
