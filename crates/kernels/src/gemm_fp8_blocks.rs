//! C = A · Bᵀ in 8-bit floats with scales for blocks, for Hopper: A has a scale for each row and 128 neighbours along k, B one for
//! each block of 128 × 128 (DeepSeek-V3 technical report, section 3.3.2). Sums of 8-bit floats lose bits in the tensor cores, so that
//! each 128 columns are summed apart, scaled, and added in `f32` by the threads.
//!
//! The kernel is that of [`gemm_hopper`](crate::gemm_hopper) but for that: a warpgroup that promotes its sums leaves the tensor cores to
//! another one. The scales of A come with a stage, those of B straight from memory, one step ahead.

use tilewright_machine::{Arch, CacheHint, DType, WgmmaRow};
use tilewright_tile::dsl::{KernelBuilder, Pipeline, Reference, Tensor, block_x, steps, tile};
use tilewright_tile::{AsyncHow, Expr, Program};

use crate::config::{Config, ConfigError, number};
use crate::gemm_hopper::{Cluster, Order};

/// Neighbours along k that share a scale, and neighbours along n that share one of B.
pub const BLOCK: i64 = 128;

/// How a product of scaled blocks is tiled and shared out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fp8BlocksConfig {
    /// The type of A: e4m3 or e5m2.
    pub a: DType,
    /// The type of B: e4m3 or e5m2.
    pub b: DType,
    /// The type of C: bf16, f16 or f32.
    pub out: DType,
    /// Whether the product is computed as Cᵀ = B · Aᵀ: the tile's rows are along n, its columns along m. For few rows of A.
    pub swap: bool,
    /// Rows of a block's tile: a multiple of 64 for each math warpgroup; if swapped within a block of B.
    pub bm: i64,
    /// Columns of a block's tile.
    pub bn: i64,
    /// Columns that are multiplied and promoted at a time; `None`: the widest of 128, 64, 32, 16 and 8 that divides `bn`. Unless swapped, they
    /// lie within a block of B.
    pub part: Option<i64>,
    /// Stages between the copies and the products.
    pub stages: i64,
    /// Warpgroups that multiply.
    pub warpgroups: i64,
    /// Which blocks share a factor.
    pub cluster: Cluster,
    /// In which order tiles are taken.
    pub order: Order,
    /// Whether a tile's results leave while the next tile is multiplied, a chunk after each of its first steps along k.
    pub deferred: bool,
    /// Columns of the tile that leave at a time; `None`: the widest with at most 128 bytes.
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

impl Default for Fp8BlocksConfig {
    /// 128 × 128 in five stages, of which two blocks share the tile of B.
    fn default() -> Self {
        Fp8BlocksConfig {
            a: DType::E4M3,
            b: DType::E4M3,
            out: DType::BF16,
            swap: false,
            bm: 128,
            bn: 128,
            part: None,
            stages: 5,
            warpgroups: 2,
            cluster: Cluster::AlongM(2),
            order: Order::Bands(12),
            deferred: true,
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

/// Registers that addresses, counters, scales and the compiler's temporaries want besides the fragments.
const SPARE_REGISTERS: i64 = 30;

/// Registers that the threads of a multiprocessor have together.
const REGISTERS: i64 = 65_536;

/// Bytes of the two barriers of a stage.
const BARRIERS: i64 = 16;

/// Tiles start at multiples of this many bytes of shared memory: after so many the widest swizzle repeats.
const ALIGNMENT: i64 = 1024;

/// What the parts of the program share.
struct Parts {
    bm: Expr,
    part: Expr,
    depth: Expr,
    chunk: Expr,
    buffers: Expr,
    ab: Pipeline,
    left: Tensor,
    right: Tensor,
    scales: Tensor,
    blocks: Tensor,
    out: Tensor,
    view: Tensor,
}

/// A block's sums, one tensor for each part of the tile's columns, and the scales of the blocks of B that it meets.
struct Sums {
    parts: Vec<Tensor>,
    blocks: Vec<Tensor>,
}

impl Fp8BlocksConfig {
    /// Columns that are promoted at a time.
    fn part(&self) -> i64 {
        self.part.unwrap_or_else(|| [128, 64, 32, 16].into_iter().find(|p| self.bn % p == 0).unwrap_or(8))
    }

    /// Columns of the tile that leave at a time.
    fn columns(&self) -> i64 {
        let widest = 128 * 8 / i64::from(self.out.bits());
        let fits = |c: &i64| *c <= widest && self.part() % c == 0;
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(fits).unwrap_or(8))
    }

    /// Scales of B that a step along k of a tile needs, and which of them part `s` of the columns needs. Where a tile is no row of
    /// whole blocks, nor within one, each part has its own.
    fn scales(&self) -> (i64, impl Fn(i64) -> i64) {
        let (part, each) = (self.part(), self.bn % BLOCK != 0);
        let count = match self.bn {
            _ if self.swap => 1,
            bn if BLOCK % bn == 0 => 1,
            bn if each => bn / part,
            bn => bn / BLOCK,
        };
        (count, move |s| {
            if count == 1 {
                0
            } else if each {
                s
            } else {
                s * part / BLOCK
            }
        })
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self) -> i64 {
        let aligned = |bytes: i64| (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        let (rows_of_a, _) = self.sides((self.bm, self.bn));
        let scales = (4 * rows_of_a + 127) / 128 * 128;
        let stage = aligned(self.bm * BLOCK) + aligned(self.bn * BLOCK) + BARRIERS;
        let out = i64::from(self.out.bits() / 8) * self.bm * self.columns();
        self.stages * stage + aligned(self.stages * scales) + self.buffers * aligned(out)
    }

    /// What belongs to m and to n, or to A and to B, of what belongs to a tile's rows and columns; and the other way round.
    fn sides<T>(&self, (rows, cols): (T, T)) -> (T, T) {
        if self.swap { (cols, rows) } else { (rows, cols) }
    }

    /// 32-bit registers of a math thread for its sums, those of a part, and results that wait.
    fn fragments(&self) -> i64 {
        let threads = 128 * self.warpgroups;
        let (sums, part) = (self.bm * self.bn / threads, self.bm * self.part() / threads);
        let rounded = sums * i64::from(self.out.bits()) / 32;
        let scales = if self.swap { self.part() / 4 } else { 2 * self.bm / (64 * self.warpgroups) };
        match (self.deferred, self.out) {
            (true, _) => sums + part + rounded + scales,
            (false, DType::F32) => sums + part + scales,
            (false, _) => sums + part.max(rounded) + scales,
        }
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
        for (field, dtype) in [("a", self.a), ("b", self.b)] {
            if ![DType::E4M3, DType::E5M2].contains(&dtype) {
                return Err(ConfigError::value(field, dtype, "must be e4m3 or e5m2"));
            }
        }
        if ![DType::BF16, DType::F16, DType::F32].contains(&self.out) {
            return Err(ConfigError::value("out", self.out, "must be bf16, f16 or f32"));
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
        if self.swap && BLOCK % self.bm != 0 {
            return Err(ConfigError::value(
                "bm",
                self.bm,
                "must be 64 or 128 if swapped: within a block of b",
            ));
        }
        within("bn", self.bn, [8, 512], 8)?;
        let part = self.part();
        if !(8..=256).contains(&part) || part % 8 != 0 || self.bn % part != 0 {
            let wanted =
                format!("must be a multiple of 8 up to 256 that divides bn = {}, or be `widest`", self.bn);
            return Err(ConfigError::value("part", part, wanted));
        }
        if !self.swap && BLOCK % part != 0 {
            let wanted = format!("must divide {BLOCK}, so that each part lies within a block of b");
            return Err(ConfigError::value("part", part, wanted));
        }
        within("stages", self.stages, [1, 32], 1)?;
        let columns = self.columns();
        if ![8, 16, 32, 64].contains(&columns) || part % columns != 0 {
            let wanted = format!("must be 8, 16, 32 or 64 and divide part = {part}, or be `widest`");
            return Err(ConfigError::value("chunk", columns, wanted));
        }
        within("buffers", self.buffers, [1, 8], 1)?;
        let blocks = match self.cluster {
            Cluster::None => 1,
            Cluster::AlongM(blocks) | Cluster::AlongN(blocks) => blocks,
        };
        if ![1, 2, 4, 8].contains(&blocks) {
            return Err(ConfigError::value("cluster", self.cluster, "must have 2, 4 or 8 blocks"));
        }
        let (of_a, of_b) = self.sides((self.bm, self.bn));
        let shared = match self.cluster {
            Cluster::AlongM(_) => Some(of_b),
            Cluster::AlongN(_) => Some(of_a),
            Cluster::None => None,
        };
        if let Some(rows) = shared.filter(|rows| rows % (8 * blocks) != 0) {
            let wanted = format!("{blocks} blocks cannot share {rows} rows in groups of 8");
            return Err(ConfigError::value("cluster", self.cluster, wanted));
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
                 more: use a smaller tile or part, or more warpgroups",
                self.math_registers
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        within("sms", self.sms, [blocks, 65_535], 1)?;
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

    /// The program, with the sizes `m`, `n` and `k` and the parameters `a[m, k]`, `b[n, k]`, `sa[ceil_div(k, 128), m]`,
    /// `sb[ceil_div(n, 128), ceil_div(k, 128)]` and `c[m, n]`.
    ///
    /// # Errors
    ///
    /// What [`validate`](Self::validate) says.
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mut t = KernelBuilder::new("gemm_fp8_blocks");
        let (m, n, k) = (t.size("m", 4096), t.size("n", 4096), t.size("k", 4096));
        let (height, width) = self.sides((m.clone(), n.clone()));
        let (bm, bn, bk) = (t.constant("BM", self.bm), t.constant("BN", self.bn), t.constant("BK", BLOCK));
        let (stages, sms) = (t.constant("STAGES", self.stages), t.constant("SMS", self.sms));
        let (chunk, buffers) = (t.constant("CHUNK", self.columns()), t.constant("BUFFERS", self.buffers));
        let part = t.constant("PART", self.part());
        let a = t.tensor("a", self.a, [&m, &k]);
        let b = t.tensor("b", self.b, [&n, &k]);
        let sa = t.tensor("sa", DType::F32, [&k.ceil_div(&bk), &m]);
        let sb = t.tensor("sb", DType::F32, [&n.ceil_div(BLOCK), &k.ceil_div(&bk)]);
        let c = t.tensor("c", self.out, [&m, &n]);

        let (rows, cols) = (height.ceil_div(&bm), width.ceil_div(&bn));
        let chunks = self.bn / self.columns();
        // Every chunk of the tile before has a step to leave after: a step past the end of k adds zeros.
        let depth = k.ceil_div(&bk);
        let depth = if self.deferred { depth.max(chunks) } else { depth };
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
        match blocks_m * blocks_n {
            1 => t.grid([sms.min(&tiles)]),
            blocks => {
                t.grid([(&sms / blocks).min(&tiles) * blocks]);
                t.cluster(blocks);
            }
        }
        t.threads(128 * (1 + self.warpgroups));

        // The tile's rows are of one factor; its columns, of the other, are multiplied part by part.
        let parts = Expr::from(self.bn / self.part());
        let ((by_rows, by_columns), (left_type, right_type)) =
            (self.sides((&a, &b)), self.sides((self.a, self.b)));
        let along_k = [tile(1, &bk), steps(1, &depth, &bk)];
        let split = |dim: u32| [tile(dim, &part), steps(dim, &parts, &part), steps(dim, &cols, &bn)];
        let of_left = [tile(0, &bm), steps(0, &rows, &bm)];
        let left = t.global_view("gl", by_rows, of_left.into_iter().chain(along_k.clone()));
        let right = t.global_view("gr", by_columns, split(0).into_iter().chain(along_k));
        let steps_of_scales = steps(0, &depth, 1);
        let scales = if self.swap {
            t.global_view("gsa", &sa, split(1).into_iter().chain([steps_of_scales]))
        } else {
            t.global_view("gsa", &sa, [tile(1, &bm), steps(1, &rows, &bm), steps_of_scales])
        };
        let one = Expr::from(1);
        let blocks = [tile(0, &one), steps(0, &n.ceil_div(BLOCK), 1), steps(1, &k.ceil_div(&bk), 1)];
        let blocks = t.global_view("gsb", &sb, blocks);
        let (first, second) = self.sides((0, 1));
        let modes = [
            tile(first, &bm),
            steps(first, &rows, &bm),
            tile(second, &chunk),
            steps(second, &width.ceil_div(&chunk), &chunk),
        ];
        let view = t.global_view("gc", &c, modes);
        let tl = t.shared_tensor("tl", left_type, [&bm, &bk]);
        let tr = t.shared_tensor("tr", right_type, [&part, &parts, &bk]);
        let ts = if self.swap {
            t.shared_tensor("ts", DType::F32, [&part, &parts])
        } else {
            t.shared_tensor("ts", DType::F32, [&bm])
        };
        let out = t.shared_tensor("sc", self.out, [&bm, &chunk, &buffers]);
        let ab = t.pipeline("ab", &stages, [&tl, &tr, &ts]);

        let how = |multicast: bool, hint| AsyncHow { multicast, hint, ..AsyncHow::default() };
        let how_a = how(blocks_n > 1, self.hint_a);
        let how_b = how(blocks_m > 1, self.hint_b);
        let (how_left, how_right) = self.sides((how_a, how_b));
        t.role("load", 1, Some(self.load_registers.into()), |t| {
            t.for_tiles(["tm", "tn"], &cluster_rows, &cluster_cols, self.order.tiles(), |t, tm, tn| {
                let (row, col) = place(&tm, &tn);
                t.for_range("kl", 0, &depth, |t, kl| {
                    t.produce(&ab, |t| {
                        let (row, col) = (Some(row.clone()), Some(col.clone()));
                        let step = Some(kl.clone());
                        t.copy_async_with(left.index([None, row.clone(), None, step.clone()]), tl, how_left);
                        t.copy_async_with(
                            right.index([None, None, col.clone(), None, step.clone()]),
                            tr,
                            how_right,
                        );
                        let scales = if self.swap {
                            scales.index([None, None, col, step])
                        } else {
                            scales.index([None, row, step])
                        };
                        t.copy_async(scales, ts);
                    });
                });
            });
        });

        let p =
            Parts { bm, part, depth, chunk, buffers, ab, left: tl, right: tr, scales: ts, blocks, out, view };
        let (cluster_tiles, order) = ([cluster_rows.clone(), cluster_cols.clone()], self.order.tiles());
        let count = self.bn / self.part();
        let per = self.part() / self.columns();
        t.role("math", self.warpgroups, Some(self.math_registers.into()), |t| {
            if self.deferred {
                let waiting: Vec<Tensor> = (0..count)
                    .map(|s| t.register_tensor(&format!("rounded{s}"), self.out, [&p.bm, &p.part]))
                    .collect();
                waiting.iter().for_each(|rounded| t.fill(rounded, 0.0));
                let body = |t: &mut KernelBuilder, [um, un]: [Expr; 2], [pm, pn]: [Expr; 2]| {
                    let (now, before) = (place(&um, &un), place(&pm, &pn));
                    let sums = self.begin(t, &p, &now);
                    self.first_buffer(t);
                    for (s, rounded) in (0..).zip(&waiting) {
                        t.unroll_for(&format!("j{s}"), 0, per, |t, j| {
                            let chunk = &j + s * per;
                            self.step(t, &p, &sums, &now, (&chunk, &s.to_string()));
                            self.leave(t, &p, (&format!("out{s}"), rounded), (&j, &chunk), &before);
                        });
                    }
                    t.for_range("km", chunks, &p.depth, |t, km| self.step(t, &p, &sums, &now, (&km, "")));
                    waiting.iter().zip(&sums.parts).for_each(|(rounded, sum)| t.cast_to(rounded, sum));
                };
                t.for_tiles_after(["um", "un", "pm", "pn"], cluster_tiles, order, body, |t, [pm, pn]| {
                    let last = place(&pm, &pn);
                    self.first_buffer(t);
                    for (s, rounded) in (0..).zip(&waiting) {
                        t.unroll_for(&format!("late{s}"), 0, per, |t, i| {
                            let chunk = &i + s * per;
                            self.leave(t, &p, (&format!("rest{s}"), rounded), (&i, &chunk), &last);
                        });
                    }
                });
            } else {
                t.for_tiles(["um", "un"], &cluster_rows, &cluster_cols, order, |t, um, un| {
                    let now = place(&um, &un);
                    let sums = self.begin(t, &p, &now);
                    t.for_range("km", 0, &p.depth, |t, km| self.step(t, &p, &sums, &now, (&km, "")));
                    self.first_buffer(t);
                    for (s, sum) in (0..).zip(&sums.parts) {
                        let rounded = t.cast(&format!("rounded{s}"), sum, self.out);
                        t.unroll_for(&format!("j{s}"), 0, per, |t, j| {
                            let chunk = &j + s * per;
                            self.leave(t, &p, (&format!("out{s}"), &rounded), (&j, &chunk), &now);
                        });
                    }
                });
            }
            t.wait_group(0);
        });
        Ok(t.finish()?)
    }

    /// Where the scale of B number `index` of a tile's is: that of the blocks along n.
    fn block(&self, index: i64, (row, col): &(Expr, Expr)) -> Expr {
        let (count, _) = self.scales();
        if self.swap {
            return row * self.bm / BLOCK;
        }
        (col * self.bn + index * (self.bn / count)) / BLOCK
    }

    /// The sums of a tile, all zero, and the first scales of B.
    fn begin(&self, t: &mut KernelBuilder, p: &Parts, now: &(Expr, Expr)) -> Sums {
        let parts = (0..self.bn / self.part())
            .map(|s| {
                let sum = t.register_tensor(&format!("sum{s}"), DType::F32, [&p.bm, &p.part]);
                t.fill(&sum, 0.0);
                sum
            })
            .collect();
        let blocks = (0..self.scales().0)
            .map(|i| {
                let block = t.register_tensor(&format!("block{i}"), DType::F32, [1]);
                t.copy(p.block(self.block(i, now), 0.into()), block);
                block
            })
            .collect();
        Sums { parts, blocks }
    }

    /// A step along k: each part of the columns is multiplied apart, scaled and added to its sums. The stage is given back before the last
    /// part is.
    fn step(
        &self,
        t: &mut KernelBuilder,
        p: &Parts,
        sums: &Sums,
        now: &(Expr, Expr),
        (step, tag): (&Expr, &str),
    ) {
        let (_, which) = self.scales();
        let last = sums.parts.len() - 1;
        let side = if self.swap { &p.part } else { &p.bm };
        let part = t.register_tensor(&format!("part{tag}"), DType::F32, [&p.bm, &p.part]);
        let vector = |t: &mut KernelBuilder, name: &str, s: usize| {
            t.register_tensor(&format!("{name}{tag}_{s}"), DType::F32, [side])
        };
        let scales: Vec<Tensor> = (0..=last).map(|s| vector(t, "scale", s)).collect();
        let promote = |t: &mut KernelBuilder, s: usize| {
            let across = t.expand(&format!("line{tag}_{s}"), &scales[s], u32::from(!self.swap));
            let wide = t.broadcast(&format!("wide{tag}_{s}"), &across, [&p.bm, &p.part]);
            t.assign(&sums.parts[s], sums.parts[s] + part * wide);
        };
        t.consume(&p.ab, |t| {
            let mut own = None;
            for s in 0..=last {
                t.fill(&part, 0.0);
                let right = p.right.index([None, Some((s as i64).into()), None]);
                t.gemm_async_over(&part, p.left, right, [self.warpgroups.into(), 1.into()]);
                t.commit_gemm();
                // The scales are there before the product is.
                let of_a = match own {
                    Some(of_a) if !self.swap => of_a,
                    _ => {
                        let of_a = if self.swap || last == 0 { scales[s] } else { vector(t, "own", s) };
                        let there: Reference =
                            if self.swap { p.scales.at(s as i64) } else { (&p.scales).into() };
                        t.copy(there, of_a);
                        own = Some(of_a);
                        of_a
                    }
                };
                let index = which(s as i64);
                let block = sums.blocks[index as usize];
                let several = t.broadcast(&format!("several{tag}_{s}"), &block, [side]);
                t.assign(&scales[s], of_a * several);
                if s == last || which(s as i64 + 1) != index {
                    t.copy(p.block(self.block(index, now), step + 1), block);
                }
                t.wait_gemm(0);
                if s < last {
                    promote(t, s);
                }
            }
        });
        promote(t, last);
    }

    /// A tile begins with the first buffer, whichever the one before ended with.
    fn first_buffer(&self, t: &mut KernelBuilder) {
        if self.bn / self.columns() % self.buffers != 0 {
            t.wait_group(0);
        }
    }

    /// Chunk `j` of a part of a tile's results leaves: chunk `chunk` of all.
    fn leave(
        &self,
        t: &mut KernelBuilder,
        p: &Parts,
        (name, rounded): (&str, &Tensor),
        (j, chunk): (&Expr, &Expr),
        (row, col): &(Expr, Expr),
    ) {
        let buffer = || p.out.at(chunk % &p.buffers);
        t.wait_group(&p.buffers - 1);
        t.syncthreads();
        let piece = t.slice(name, rounded, 1, j * &p.chunk, &p.chunk);
        t.copy(piece, buffer());
        t.syncthreads();
        let column = col * (self.bn / self.columns()) + chunk;
        let there = p.view.index([None, Some(row.clone()), None, Some(column)]);
        t.copy_async_with(buffer(), there, AsyncHow { hint: self.hint_c, ..AsyncHow::default() });
        t.commit_group();
    }

    /// The configurations worth trying for a problem, in no order of merit: every one compiles, as far as the rules of
    /// [`reject`](Self::reject) know, and has tiles in proportion to the problem.
    pub fn space(arch: Arch, m: i64, n: i64) -> impl Iterator<Item = Fp8BlocksConfig> {
        Self::grid().filter(move |c| c.suits(m, n) && c.reject(arch).is_none())
    }

    /// The points of which [`space`](Self::space) keeps the valid ones, each with as many stages as shared memory has room for.
    pub fn grid() -> impl Iterator<Item = Fp8BlocksConfig> {
        let tiles = [(64, 1), (128, 2), (192, 3), (256, 2)].into_iter().flat_map(|(bm, warpgroups)| {
            [16, 32, 48, 64, 96, 128, 160, 192, 256].map(|bn| (bm, warpgroups, bn))
        });
        let sides = tiles.flat_map(|tile| [false, true].map(|swap| (tile, swap)));
        let shares = sides.flat_map(|both| {
            [Cluster::None, Cluster::AlongM(2), Cluster::AlongN(2)].map(|cluster| (both, cluster))
        });
        let orders = [Order::Bands(8), Order::Bands(12), Order::Bands(16), Order::Snake(12)];
        let all = shares.flat_map(move |shared| orders.map(|order| (shared, order)));
        let late = all.flat_map(|point| [false, true].map(|deferred| (point, deferred)));
        late.map(|(((((bm, warpgroups, bn), swap), cluster), order), deferred)| {
            let config = Fp8BlocksConfig {
                bm,
                bn,
                warpgroups,
                swap,
                cluster,
                order,
                deferred,
                // A third math warpgroup leaves 160 registers for each thread.
                math_registers: if warpgroups > 2 { 160 } else { 240 },
                ..Self::default()
            };
            config.deepest()
        })
    }

    /// The same with as many stages as shared memory has room for, at most 12.
    fn deepest(self) -> Self {
        let have = i64::from(WgmmaRow::ARCH.limits().shared_bytes_per_block);
        let fits = |stages: &i64| Fp8BlocksConfig { stages: *stages, ..self }.shared_bytes() <= have;
        Fp8BlocksConfig { stages: (2..=12).rev().find(fits).unwrap_or(2), ..self }
    }

    /// Whether the tile is not out of proportion to the problem.
    fn suits(&self, m: i64, n: i64) -> bool {
        let (mut of_m, mut of_n) = self.sides((self.bm, self.bn));
        match self.cluster {
            Cluster::None => {}
            Cluster::AlongM(blocks) => of_m *= blocks,
            Cluster::AlongN(blocks) => of_n *= blocks,
        }
        let (least_m, least_n) = self.sides((64, 16));
        (of_m <= least_m || of_m < 2 * m) && (of_n <= least_n || of_n < 2 * n)
    }
}

impl Parts {
    /// The scale of B of block `block` along n and `step` along k.
    fn block(&self, block: Expr, step: Expr) -> Reference {
        self.blocks.index([None, Some(block), Some(step)])
    }
}

/// The number in `word12` or `word(12)`, whose word and brackets are given.
fn numbered(value: &str, word: &str, close: &str) -> Option<i64> {
    value.strip_prefix(word)?.strip_suffix(close)?.parse().ok()
}

impl Config for Fp8BlocksConfig {
    const NAME: &'static str = "gemm_fp8_blocks";
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("a", "the type of a: e4m3 or e5m2"),
        ("b", "the type of b: e4m3 or e5m2"),
        ("out", "the type of c: bf16, f16 or f32"),
        ("swap", "true: the tile's rows are along n and its columns along m, for small m"),
        ("bm", "rows of a block's tile of c, a multiple of 64 for each math warpgroup"),
        ("bn", "columns of a block's tile of c"),
        ("part", "columns that are multiplied and promoted at a time, or widest"),
        ("stages", "stages between the copies and the products"),
        ("warpgroups", "warpgroups that multiply"),
        ("cluster", "blocks that share a factor: none, m2 (b is shared), n2 (a is shared), m4 …"),
        ("order", "the order of tiles: bands(rows), snake(rows) or hilbert(order)"),
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
        let hint = |hint: Option<CacheHint>| hint.map_or("none", CacheHint::name).to_string();
        let widest =
            |columns: Option<i64>| columns.map_or("widest".to_string(), |columns| columns.to_string());
        match field {
            "a" => self.a.to_string(),
            "b" => self.b.to_string(),
            "out" => self.out.to_string(),
            "swap" => self.swap.to_string(),
            "bm" => self.bm.to_string(),
            "bn" => self.bn.to_string(),
            "part" => widest(self.part),
            "stages" => self.stages.to_string(),
            "warpgroups" => self.warpgroups.to_string(),
            "cluster" => self.cluster.to_string(),
            "order" => self.order.to_string(),
            "deferred" => self.deferred.to_string(),
            "chunk" => widest(self.chunk),
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
        let flag =
            || value.parse::<bool>().map_err(|_| ConfigError::value(field, value, "must be true or false"));
        let hint = || match value {
            "none" => Ok(None),
            "evict_first" => Ok(Some(CacheHint::EvictFirst)),
            "evict_last" => Ok(Some(CacheHint::EvictLast)),
            _ => Err(ConfigError::value(field, value, "must be none, evict_first or evict_last")),
        };
        let widest = || if value == "widest" { Ok(None) } else { number(field, value).map(Some) };
        let dtype = |wanted: &str| {
            value.parse::<DType>().map_err(|_| ConfigError::value(field, value, format!("must be {wanted}")))
        };
        match field {
            "a" => self.a = dtype("e4m3 or e5m2")?,
            "b" => self.b = dtype("e4m3 or e5m2")?,
            "out" => self.out = dtype("bf16, f16 or f32")?,
            "swap" => self.swap = flag()?,
            "bm" => self.bm = number(field, value)?,
            "bn" => self.bn = number(field, value)?,
            "part" => self.part = widest()?,
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
            "deferred" => self.deferred = flag()?,
            "chunk" => self.chunk = widest()?,
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

/// Sizes at which tiles meet every kind of edge: one, one less and one more than a tile, scales that no vector divides, and rows
/// that tensor copies can take without being whole tiles.
pub fn edge_sizes(config: &Fp8BlocksConfig) -> Vec<[i64; 3]> {
    let (rows, cols) = config.sides((config.bm, config.bn));
    vec![
        [1, 1, 1],
        [7, 65, 129],
        [rows, cols, 2 * BLOCK],
        [rows + 1, cols - 1, BLOCK + 1],
        [2 * rows + 8, cols + 16, 3 * BLOCK + 16],
        [rows - 4, 2 * cols + 24, BLOCK - 16],
        [200, 259, 5 * BLOCK],
    ]
}

/// C = Σ over blocks of k of sa · sb · (A · Bᵀ there) in f64, row-major.
pub fn reference((a, b): (&[f64], &[f64]), (sa, sb): (&[f64], &[f64]), [m, n, k]: [usize; 3]) -> Vec<f64> {
    let block = BLOCK as usize;
    let deep = k.div_ceil(block);
    let dot = |i: usize, j: usize| -> f64 {
        let scaled = |l: usize| sa[l / block * m + i] * sb[j / block * deep + l / block];
        (0..k).map(|l| a[i * k + l] * b[j * k + l] * scaled(l)).sum()
    };
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect()
}
