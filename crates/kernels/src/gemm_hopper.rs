//! C = A · Bᵀ in f16 or bf16 with f32 sums, for Hopper: `examples/gemm_hopper.tile` with everything about it a parameter. One
//! warpgroup copies tiles of A and B with the tensor memory accelerator into a ring of stages, others multiply them with `wgmma` and
//! send their results back in chunks; blocks stay and take one tile of C after another, whose results may leave while the next tile is
//! multiplied. With few rows of A the sides may be swapped, so that those of B meet the 64 rows of `wgmma`.

use std::fmt;

use tilewright_machine::{Arch, CacheHint, DType, WgmmaRow};
use tilewright_tile::dsl::{KernelBuilder, Tensor, bands, block_x, hilbert, snake, steps, tile};
use tilewright_tile::{AsyncHow, Expr, Program, TileOrder};

use crate::config::{Config, ConfigError, number};

/// How a factor lies in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Major {
    /// Contiguous along k: `a[m, k]`, `b[n, k]`, row-major.
    K,
    /// Contiguous along m or n: the transpose, `[k, m]` or `[k, n]`, is row-major.
    Mn,
}

/// Which blocks are a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cluster {
    /// Each block is on its own.
    None,
    /// So many neighbours along m: each brings a part of their tile of B to all of them.
    AlongM(i64),
    /// So many neighbours along n: each brings a part of their tile of A to all of them.
    AlongN(i64),
}

impl Cluster {
    /// Blocks of a cluster.
    fn blocks(self) -> i64 {
        match self {
            Cluster::None => 1,
            Cluster::AlongM(blocks) | Cluster::AlongN(blocks) => blocks,
        }
    }
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cluster::None => f.write_str("none"),
            Cluster::AlongM(blocks) => write!(f, "m{blocks}"),
            Cluster::AlongN(blocks) => write!(f, "n{blocks}"),
        }
    }
}

/// In which order the tiles of C are taken.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Order {
    /// Bands of so many rows of tiles, each column by column.
    Bands(i64),
    /// The same, every second band from its last column to its first.
    Snake(i64),
    /// Squares of 2ˢ × 2ˢ tiles, each along a Hilbert curve.
    Hilbert(i64),
}

impl Order {
    pub(crate) fn tiles(self) -> TileOrder {
        match self {
            Order::Bands(rows) => bands(rows),
            Order::Snake(rows) => snake(rows),
            Order::Hilbert(order) => hilbert(order),
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Order::Bands(rows) => write!(f, "bands({rows})"),
            Order::Snake(rows) => write!(f, "snake({rows})"),
            Order::Hilbert(order) => write!(f, "hilbert({order})"),
        }
    }
}

/// How a matrix product is tiled and shared out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HopperGemmConfig {
    /// The type of the factors and of the result: f16 or bf16. Sums are f32.
    pub dtype: DType,
    /// How A lies in memory.
    pub a: Major,
    /// How B lies in memory.
    pub b: Major,
    /// Whether the product is computed as Cᵀ = B · Aᵀ: the tile's rows are along n, its columns along m. For few rows of A.
    pub swap: bool,
    /// Rows of a block's tile: a multiple of 64 for each math warpgroup. Along m, or along n if swapped.
    pub bm: i64,
    /// Columns of a block's tile: a multiple of 8. Along n, or along m if swapped.
    pub bn: i64,
    /// Columns of A and B that a stage holds: a multiple of 16.
    pub bk: i64,
    /// Stages between the copies and the products.
    pub stages: i64,
    /// Warpgroups that multiply.
    pub warpgroups: i64,
    /// Which blocks share a factor.
    pub cluster: Cluster,
    /// In which order tiles are taken.
    pub order: Order,
    /// Products that go on while the next one is issued; their stages are given back later.
    pub in_flight: i64,
    /// Whether a tile's results leave while the next tile is multiplied, a chunk after each of its first steps along k.
    pub deferred: bool,
    /// Columns of the tile that leave at a time; `None`: the widest of 64, 32, 16 and 8 that divides `bn`.
    pub chunk: Option<i64>,
    /// Chunks on their way to memory or being written for it.
    pub buffers: i64,
    /// How the L2 cache treats what is read of A.
    pub hint_a: Option<CacheHint>,
    /// How the L2 cache treats what is read of B.
    pub hint_b: Option<CacheHint>,
    /// How the L2 cache treats what is written to C.
    pub hint_c: Option<CacheHint>,
    /// Registers of a thread that copies.
    pub load_registers: i64,
    /// Registers of a thread that multiplies.
    pub math_registers: i64,
    /// Blocks that are launched, at most: the multiprocessors.
    pub sms: i64,
}

impl Default for HopperGemmConfig {
    /// 128 × 256 × 64 in four stages: what is fastest or nearly so wherever C has a few hundred tiles of that size.
    fn default() -> Self {
        HopperGemmConfig {
            dtype: DType::F16,
            a: Major::K,
            b: Major::K,
            swap: false,
            bm: 128,
            bn: 256,
            bk: 64,
            stages: 4,
            warpgroups: 2,
            cluster: Cluster::None,
            order: Order::Bands(12),
            in_flight: 1,
            deferred: false,
            chunk: None,
            buffers: 2,
            hint_a: None,
            hint_b: None,
            hint_c: None,
            load_registers: 24,
            math_registers: 240,
            sms: 132,
        }
    }
}

/// Registers that addresses, counters and the compiler's temporaries want besides the fragments.
const SPARE_REGISTERS: i64 = 40;

/// Registers that the threads of a multiprocessor have together.
const REGISTERS: i64 = 65_536;

/// Bytes of the two barriers of a stage.
const BARRIERS: i64 = 16;

/// Tiles start at multiples of this many bytes of shared memory: after so many the widest swizzle repeats.
const ALIGNMENT: i64 = 1024;

impl HopperGemmConfig {
    /// Columns of the tile that leave at a time.
    fn columns(&self) -> i64 {
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(|c| self.bn % c == 0).unwrap_or(8))
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self) -> i64 {
        let aligned = |elements: i64| (2 * elements + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        let stage = aligned(self.bm * self.bk) + aligned(self.bn * self.bk) + BARRIERS;
        self.stages * stage + self.buffers * aligned(self.bm * self.columns())
    }

    /// What belongs to m and to n, or to A and to B, of what belongs to a tile's rows and columns; and the other way round.
    fn sides<T>(&self, (rows, cols): (T, T)) -> (T, T) {
        if self.swap { (cols, rows) } else { (rows, cols) }
    }

    /// 32-bit registers of a math thread for its sums, and for their rounded values in pairs.
    fn fragments(&self) -> i64 {
        let sums = self.bm * self.bn / (128 * self.warpgroups);
        sums + sums / 2
    }

    /// What is wrong with the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let within = |field, value: i64, [low, high]: [i64; 2], of: i64| {
            if (low..=high).contains(&value) && value % of == 0 {
                return Ok(());
            }
            let wanted = match of {
                1 => format!("must be from {low} to {high}"),
                _ => format!("must be a multiple of {of} from {low} to {high}"),
            };
            Err(ConfigError::value(field, value, wanted))
        };
        if ![DType::F16, DType::BF16].contains(&self.dtype) {
            return Err(ConfigError::value("dtype", self.dtype, "must be f16 or bf16"));
        }
        within("warpgroups", self.warpgroups, [1, 7], 1)?;
        let rows = WgmmaRow::M * self.warpgroups;
        if !(rows..=1024).contains(&self.bm) || self.bm % rows != 0 {
            let wanted = format!(
                "must be a multiple of 64 for each of {} math warpgroups, at most 1024",
                self.warpgroups
            );
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        within("bn", self.bn, [8, 512], 8)?;
        within("bk", self.bk, [16, 256], 16)?;
        within("stages", self.stages, [1, 32], 1)?;
        if !(0..self.stages).contains(&self.in_flight) {
            let wanted = format!("must be from 0 to {}: fewer than the stages", self.stages - 1);
            return Err(ConfigError::value("in_flight", self.in_flight, wanted));
        }
        let columns = self.columns();
        if ![8, 16, 32, 64].contains(&columns) || self.bn % columns != 0 {
            let wanted = format!("must be 8, 16, 32 or 64 and divide bn = {}, or be `widest`", self.bn);
            return Err(ConfigError::value("chunk", columns, wanted));
        }
        within("buffers", self.buffers, [1, 8], 1)?;
        if ![1, 2, 4, 8].contains(&self.cluster.blocks()) {
            return Err(ConfigError::value("cluster", self.cluster, "must have 2, 4 or 8 blocks"));
        }
        let (of_a, of_b) = self.sides((self.bm, self.bn));
        let shared = match self.cluster {
            Cluster::AlongM(blocks) => Some((of_b, blocks, self.b)),
            Cluster::AlongN(blocks) => Some((of_a, blocks, self.a)),
            Cluster::None => None,
        };
        if let Some((rows, blocks, major)) = shared {
            // Each block copies the same number of rows of what they share.
            let rows = if major == Major::K { rows } else { self.bk };
            if rows % (8 * blocks) != 0 {
                let wanted = format!("{blocks} blocks cannot share {rows} rows in groups of 8");
                return Err(ConfigError::value("cluster", self.cluster, wanted));
            }
        }
        match self.order {
            Order::Bands(rows) | Order::Snake(rows) if !(1..=1024).contains(&rows) => {
                return Err(ConfigError::value("order", self.order, "bands have 1 to 1024 rows of tiles"));
            }
            Order::Hilbert(order) if !(0..=8).contains(&order) => {
                return Err(ConfigError::value("order", self.order, "the squares are of order 0 to 8"));
            }
            _ => {}
        }
        within("load_registers", self.load_registers, [24, 240], 8)?;
        within("math_registers", self.math_registers, [24, 240], 8)?;
        let together = 128 * (self.load_registers + self.warpgroups * self.math_registers);
        if together > REGISTERS {
            let wanted = format!(
                "the block's threads would have {together} registers, and there are {REGISTERS}: use fewer, or fewer \
                 warpgroups"
            );
            return Err(ConfigError::value("math_registers", self.math_registers, wanted));
        }
        let need = self.fragments();
        if need + SPARE_REGISTERS > self.math_registers {
            let wanted = format!(
                "sums and results take {need} registers of a thread, which has {} and needs about {SPARE_REGISTERS} \
                 more: use a smaller tile or more warpgroups",
                self.math_registers
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        within("sms", self.sms, [self.cluster.blocks(), 65_535], 1)?;
        let (need, have) = (self.shared_bytes(), i64::from(WgmmaRow::ARCH.limits().shared_bytes_per_block));
        if need > have {
            let wanted = format!(
                "the tiles take {need} bytes of shared memory, and {} has {have} a block: use fewer stages or smaller \
                 tiles",
                WgmmaRow::ARCH
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// Why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        if arch != WgmmaRow::ARCH {
            return Some(format!("{arch} has no products of warpgroups: they are {}'s", WgmmaRow::ARCH));
        }
        self.validate().err().map(|e| e.to_string())
    }

    /// The program, with the sizes `m`, `n` and `k`.
    ///
    /// # Errors
    ///
    /// What [`validate`](Self::validate) says.
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mut t = KernelBuilder::new("gemm_hopper");
        let (m, n, k) = (t.size("m", 4096), t.size("n", 4096), t.size("k", 4096));
        let (height, width) = self.sides((m.clone(), n.clone()));
        let (bm, bn, bk) = (t.constant("BM", self.bm), t.constant("BN", self.bn), t.constant("BK", self.bk));
        let (stages, sms) = (t.constant("STAGES", self.stages), t.constant("SMS", self.sms));
        let (chunk, buffers) = (t.constant("CHUNK", self.columns()), t.constant("BUFFERS", self.buffers));
        let factor = |t: &mut KernelBuilder, name: &str, rows: &Expr, major: Major| match major {
            Major::K => t.tensor(name, self.dtype, [rows, &k]),
            Major::Mn => t.strided_tensor(name, self.dtype, [rows, &k], [&1.into(), rows]),
        };
        let a = factor(&mut t, "a", &m, self.a);
        let b = factor(&mut t, "b", &n, self.b);
        let c = t.tensor("c", self.dtype, [&m, &n]);

        // The tiles of clusters, and where in its cluster's tile a block's tile is.
        let (rows, cols) = (height.ceil_div(&bm), width.ceil_div(&bn));
        let chunks = &bn / &chunk;
        let depth = if self.deferred {
            // Every chunk of the tile before has a step to leave after: a step past the end of k adds zeros.
            k.ceil_div(&bk).max(&chunks)
        } else {
            k.ceil_div(&bk)
        };
        let (blocks_m, blocks_n) = match self.cluster {
            Cluster::None => (1, 1),
            Cluster::AlongM(blocks) => (blocks, 1),
            Cluster::AlongN(blocks) => (1, blocks),
        };
        let (down, across) = self.sides((blocks_m, blocks_n));
        let shared_out =
            |tiles: &Expr, blocks: i64| if blocks > 1 { tiles.ceil_div(blocks) } else { tiles.clone() };
        let (cluster_rows, cluster_cols) = (shared_out(&rows, down), shared_out(&cols, across));
        let own = |tile: &Expr, blocks: i64| {
            if blocks > 1 { tile * blocks + block_x() % blocks } else { tile.clone() }
        };
        let place = |row: &Expr, col: &Expr| (own(row, down), own(col, across));
        let tiles = &cluster_rows * &cluster_cols;
        match self.cluster.blocks() {
            1 => t.grid([sms.min(&tiles)]),
            blocks => {
                t.grid([(&sms / blocks).min(&tiles) * blocks]);
                t.cluster(blocks);
            }
        }
        t.threads(128 * (1 + self.warpgroups));

        // Tiles of the rows and of the columns of a buffer, whose modes these are.
        let two = |modes: (u32, u32), (tall, of_rows): (&Expr, &Expr), (wide, of_columns): (&Expr, &Expr)| {
            let (first, second) = modes;
            [
                tile(first, tall),
                steps(first, of_rows, tall),
                tile(second, wide),
                steps(second, of_columns, wide),
            ]
        };
        let ((tall_a, of_a), (tall_b, of_b)) = self.sides(((&bm, &rows), (&bn, &cols)));
        let ga = t.global_view("ga", &a, two((0, 1), (tall_a, of_a), (&bk, &depth)));
        let gb = t.global_view("gb", &b, two((0, 1), (tall_b, of_b), (&bk, &depth)));
        let gc =
            t.global_view("gc", &c, two(self.sides((0, 1)), (&bm, &rows), (&chunk, &width.ceil_div(&chunk))));
        let sa = t.shared_tensor("sa", self.dtype, [tall_a, &bk]);
        let sb = t.shared_tensor("sb", self.dtype, [tall_b, &bk]);
        let sc = t.shared_tensor("sc", self.dtype, [&bm, &chunk, &buffers]);
        let ab = t.pipeline("ab", &stages, [&sa, &sb]);

        let how = |multicast: bool, hint| AsyncHow { multicast, hint, ..AsyncHow::default() };
        let (how_a, how_b) = (how(blocks_n > 1, self.hint_a), how(blocks_m > 1, self.hint_b));
        t.role("load", 1, Some(self.load_registers.into()), |t| {
            t.for_tiles(["tm", "tn"], &cluster_rows, &cluster_cols, self.order.tiles(), |t, tm, tn| {
                let (row_a, row_b) = self.sides(place(&tm, &tn));
                t.for_range("kl", 0, &depth, |t, kl| {
                    t.produce(&ab, |t| {
                        t.copy_async_with(at(&ga, &row_a, &kl), sa, how_a);
                        t.copy_async_with(at(&gb, &row_b, &kl), sb, how_b);
                    });
                });
            });
        });
        let step = |t: &mut KernelBuilder, rc: &Tensor| {
            let (left, right) = self.sides((sa, sb));
            t.consume(&ab, |t| {
                t.gemm_async_over(rc, left, right, [self.warpgroups.into(), 1.into()]);
                t.commit_gemm();
                t.wait_gemm(self.in_flight);
            });
        };
        let all_complete = |t: &mut KernelBuilder| {
            if self.in_flight > 0 {
                t.wait_gemm(0);
            }
        };
        let first_buffer = |t: &mut KernelBuilder| {
            if self.bn / self.columns() % self.buffers != 0 {
                // A tile begins with the first buffer, whichever the one before ended with.
                t.wait_group(0);
            }
        };
        let leave =
            |t: &mut KernelBuilder, part: &str, rounded: &Tensor, j: &Expr, (row, col): &(Expr, Expr)| {
                let buffer = || sc.at(j % &buffers);
                t.wait_group(&buffers - 1);
                t.syncthreads();
                let part = t.slice(part, rounded, 1, j * &chunk, &chunk);
                t.copy(part, buffer());
                t.syncthreads();
                t.copy_async_with(buffer(), at(&gc, row, &(col * &chunks + j)), how(false, self.hint_c));
                t.commit_group();
            };
        let (cluster_tiles, order) = ([cluster_rows.clone(), cluster_cols.clone()], self.order.tiles());
        t.role("math", self.warpgroups, Some(self.math_registers.into()), |t| {
            if self.deferred {
                let rounded = t.register_tensor("rounded", self.dtype, [&bm, &bn]);
                t.fill(&rounded, 0.0);
                let body = |t: &mut KernelBuilder, _, [row, col]: [Expr; 2]| {
                    let before = place(&row, &col);
                    let rc = t.register_tensor("rc", DType::F32, [&bm, &bn]);
                    t.fill(&rc, 0.0);
                    first_buffer(t);
                    t.unroll_for("j", 0, &chunks, |t, j| {
                        step(t, &rc);
                        leave(t, "part", &rounded, &j, &before);
                    });
                    t.for_range("km", &chunks, &depth, |t, _| step(t, &rc));
                    all_complete(t);
                    t.cast_to(&rounded, &rc);
                };
                t.for_tiles_after(["um", "un", "pm", "pn"], cluster_tiles, order, body, |t, [row, col]| {
                    let last = place(&row, &col);
                    first_buffer(t);
                    t.unroll_for("i", 0, &chunks, |t, i| leave(t, "rest", &rounded, &i, &last));
                });
            } else {
                t.for_tiles(["um", "un"], &cluster_rows, &cluster_cols, order, |t, um, un| {
                    let now = place(&um, &un);
                    let rc = t.register_tensor("rc", DType::F32, [&bm, &bn]);
                    t.fill(&rc, 0.0);
                    t.for_range("km", 0, &depth, |t, _| step(t, &rc));
                    all_complete(t);
                    let rounded = t.cast("rounded", &rc, self.dtype);
                    first_buffer(t);
                    t.unroll_for("j", 0, &chunks, |t, j| leave(t, "part", &rounded, &j, &now));
                });
            }
            t.wait_group(0);
        });
        Ok(t.finish()?)
    }

    /// The configurations worth trying for a problem, in no order of merit: every one compiles, as far as the rules of
    /// [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64, k: i64) -> impl Iterator<Item = HopperGemmConfig> {
        Self::grid().filter(move |c| c.suits(m, n, k) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones: the deepest pipelines that shared memory has room for, and
    /// tiles that are no power of two, with which a problem may need fewer rounds of all multiprocessors.
    pub fn grid() -> impl Iterator<Item = HopperGemmConfig> {
        let tiles =
            [(64, 1), (128, 1), (128, 2), (192, 3), (256, 2)].into_iter().flat_map(|(bm, warpgroups)| {
                [16, 32, 64, 96, 112, 128, 160, 192, 224, 256].map(|bn| (bm, warpgroups, bn))
            });
        let rings = tiles.flat_map(|tile| {
            let rings =
                [(32, 6), (32, 8), (64, 3), (64, 4), (64, 5), (64, 6), (64, 8), (64, 12), (128, 2), (128, 3)];
            rings.map(|ring| (tile, ring))
        });
        let shares = rings.flat_map(|both| {
            [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(2)].map(|cluster| (both, cluster))
        });
        let orders =
            [Order::Bands(8), Order::Bands(12), Order::Bands(16), Order::Snake(12), Order::Hilbert(3)];
        shares.flat_map(move |(((bm, warpgroups, bn), (bk, stages)), cluster)| {
            orders.map(|order| HopperGemmConfig {
                bm,
                bn,
                bk,
                stages,
                warpgroups,
                cluster,
                order,
                // A third math warpgroup leaves 160 registers for each thread.
                math_registers: if warpgroups > 2 { 160 } else { 240 },
                ..Self::default()
            })
        })
    }

    /// Whether the tile is not out of proportion to the problem.
    fn suits(&self, m: i64, n: i64, k: i64) -> bool {
        let (mut of_m, mut of_n) = self.sides((self.bm, self.bn));
        match self.cluster {
            Cluster::None => {}
            Cluster::AlongM(blocks) => of_m *= blocks,
            Cluster::AlongN(blocks) => of_n *= blocks,
        }
        let (least_m, least_n) = self.sides((64, 16));
        (of_m <= least_m || of_m < 2 * m)
            && (of_n <= least_n || of_n < 2 * n)
            && (self.bk <= 32 || self.bk < 2 * k)
    }
}

/// `view[:, row, :, column]`.
fn at(view: &Tensor, row: &Expr, column: &Expr) -> tilewright_tile::dsl::Reference {
    view.index([None, Some(row.clone()), None, Some(column.clone())])
}

/// The number in `word12` or `word(12)`, whose word and brackets are given.
fn numbered(value: &str, word: &str, close: &str) -> Option<i64> {
    value.strip_prefix(word)?.strip_suffix(close)?.parse().ok()
}

impl Config for HopperGemmConfig {
    const NAME: &'static str = "gemm_hopper";
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("dtype", "the type of a, b and c: f16 or bf16"),
        ("a", "along which mode a is contiguous: k or m"),
        ("b", "along which mode b is contiguous: k or n"),
        ("swap", "true: the tile's rows are along n and its columns along m, for small m"),
        ("bm", "rows of a block's tile of c, a multiple of 64 for each math warpgroup"),
        ("bn", "columns of a block's tile of c, a multiple of 8"),
        ("bk", "columns of a and b in a stage, a multiple of 16"),
        ("stages", "stages between the copies and the products"),
        ("warpgroups", "warpgroups that multiply"),
        ("cluster", "blocks that share a factor: none, m2 (b is shared), n2 (a is shared), m4 …"),
        ("order", "the order of tiles: bands(rows), snake(rows) or hilbert(order)"),
        ("in_flight", "products that go on while the next one is issued"),
        ("deferred", "true: a tile's results leave while the next tile is multiplied"),
        ("chunk", "columns of the tile that leave at a time: 8, 16, 32, 64, or widest"),
        ("buffers", "chunks on their way to memory or being written for it"),
        ("hint_a", "how the L2 cache treats what is read of a: none, evict_first or evict_last"),
        ("hint_b", "the same for b"),
        ("hint_c", "the same for what is written to c"),
        ("load_registers", "registers of a thread that copies"),
        ("math_registers", "registers of a thread that multiplies"),
        ("sms", "blocks that are launched, at most"),
    ];

    fn get(&self, field: &str) -> String {
        let major = |major: Major, rows: &str| if major == Major::K { "k" } else { rows }.to_string();
        let hint = |hint: Option<CacheHint>| hint.map_or("none", CacheHint::name).to_string();
        match field {
            "dtype" => self.dtype.to_string(),
            "a" => major(self.a, "m"),
            "b" => major(self.b, "n"),
            "swap" => self.swap.to_string(),
            "bm" => self.bm.to_string(),
            "bn" => self.bn.to_string(),
            "bk" => self.bk.to_string(),
            "stages" => self.stages.to_string(),
            "warpgroups" => self.warpgroups.to_string(),
            "cluster" => self.cluster.to_string(),
            "order" => self.order.to_string(),
            "in_flight" => self.in_flight.to_string(),
            "deferred" => self.deferred.to_string(),
            "chunk" => self.chunk.map_or("widest".to_string(), |chunk| chunk.to_string()),
            "buffers" => self.buffers.to_string(),
            "hint_a" => hint(self.hint_a),
            "hint_b" => hint(self.hint_b),
            "hint_c" => hint(self.hint_c),
            "load_registers" => self.load_registers.to_string(),
            "math_registers" => self.math_registers.to_string(),
            "sms" => self.sms.to_string(),
            _ => String::new(),
        }
    }

    fn set(&mut self, field: &'static str, value: &str) -> Result<(), ConfigError> {
        let major = |rows: &str| match value {
            "k" => Ok(Major::K),
            _ if value == rows => Ok(Major::Mn),
            _ => Err(ConfigError::value(field, value, format!("must be k or {rows}"))),
        };
        let flag =
            || value.parse::<bool>().map_err(|_| ConfigError::value(field, value, "must be true or false"));
        let hint = || match value {
            "none" => Ok(None),
            "evict_first" => Ok(Some(CacheHint::EvictFirst)),
            "evict_last" => Ok(Some(CacheHint::EvictLast)),
            _ => Err(ConfigError::value(field, value, "must be none, evict_first or evict_last")),
        };
        match field {
            "dtype" => {
                self.dtype = match value {
                    "f16" => DType::F16,
                    "bf16" => DType::BF16,
                    _ => return Err(ConfigError::value("dtype", value, "must be f16 or bf16")),
                }
            }
            "a" => self.a = major("m")?,
            "b" => self.b = major("n")?,
            "swap" => self.swap = flag()?,
            "bm" => self.bm = number(field, value)?,
            "bn" => self.bn = number(field, value)?,
            "bk" => self.bk = number(field, value)?,
            "stages" => self.stages = number(field, value)?,
            "warpgroups" => self.warpgroups = number(field, value)?,
            "cluster" => {
                let along_m = numbered(value, "m", "").filter(|n| *n > 1).map(Cluster::AlongM);
                let along_n = numbered(value, "n", "").filter(|n| *n > 1).map(Cluster::AlongN);
                let none = (value == "none").then_some(Cluster::None);
                self.cluster = none.or(along_m).or(along_n).ok_or_else(|| {
                    ConfigError::value(field, value, "must be none, or m or n with a number of blocks: m2")
                })?;
            }
            "order" => {
                let bands = numbered(value, "bands(", ")").map(Order::Bands);
                let snake = numbered(value, "snake(", ")").map(Order::Snake);
                let hilbert = numbered(value, "hilbert(", ")").map(Order::Hilbert);
                self.order = bands.or(snake).or(hilbert).ok_or_else(|| {
                    ConfigError::value(field, value, "must be bands(rows), snake(rows) or hilbert(order)")
                })?;
            }
            "in_flight" => self.in_flight = number(field, value)?,
            "chunk" => {
                self.chunk = if value == "widest" { None } else { Some(number(field, value)?) };
            }
            "deferred" => self.deferred = flag()?,
            "buffers" => self.buffers = number(field, value)?,
            "hint_a" => self.hint_a = hint()?,
            "hint_b" => self.hint_b = hint()?,
            "hint_c" => self.hint_c = hint()?,
            "load_registers" => self.load_registers = number(field, value)?,
            "math_registers" => self.math_registers = number(field, value)?,
            _ => self.sms = number(field, value)?,
        }
        Ok(())
    }

    fn build(&self) -> Result<Program, ConfigError> {
        self.program()
    }
}

/// Sizes at which tiles of `bm` × `bn` × `bk` meet every kind of edge: one, one less and one more than a tile, rows that no
/// vector divides, and rows that tensor copies can take without being whole tiles.
pub fn edge_sizes(config: &HopperGemmConfig) -> Vec<[i64; 3]> {
    let HopperGemmConfig { bm, bn, bk, .. } = *config;
    let (rows, cols) = config.sides((bm, bn));
    vec![
        [1, 1, 1],
        [7, 65, 129],
        [rows, cols, bk * 2],
        [rows + 1, cols - 1, bk + 1],
        [2 * rows + 8, cols + 8, 3 * bk + 8],
        [rows - 8, 2 * cols + 24, bk - 8],
        [200, 129, 200],
    ]
}

/// C = A · Bᵀ in f64, row-major, for factors that lie as the configuration says.
pub fn reference(config: &HopperGemmConfig, a: &[f64], b: &[f64], [m, n, k]: [usize; 3]) -> Vec<f64> {
    let step = |major: Major, rows: usize| if major == Major::K { (k, 1) } else { (1, rows) };
    let (a_steps, b_steps) = (step(config.a, m), step(config.b, n));
    let dot = |i: usize, j: usize| -> f64 {
        let product = |l: usize| a[i * a_steps.0 + l * a_steps.1] * b[j * b_steps.0 + l * b_steps.1];
        (0..k).map(product).sum()
    };
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect()
}
