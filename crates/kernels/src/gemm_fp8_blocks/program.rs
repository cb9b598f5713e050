//! The tile program of a configuration.

use tilewright_machine::DType;
use tilewright_tile::dsl::{KernelBuilder, Pipeline, Reference, Tensor, steps, tile};
use tilewright_tile::{AsyncHow, Expr, Program};

use super::{BLOCK, Fp8BlocksConfig};
use crate::config::ConfigError;
use crate::hopper::{launch, own, shared_out};

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
        let [blocks_m, blocks_n, _] = self.cluster.shape();
        let (down, across) = self.sides((blocks_m, blocks_n));
        let (cluster_rows, cluster_cols) = (shared_out(&rows, down), shared_out(&cols, across));
        let place = |row: &Expr, col: &Expr| (own(row, down), own(col, across));
        let tiles = &cluster_rows * &cluster_cols;
        launch(&mut t, &sms, &tiles, self.cluster.blocks(), self.warpgroups);

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
        let blocks = [tile(0, &one), steps(0, n.ceil_div(BLOCK), 1), steps(1, k.ceil_div(&bk), 1)];
        let blocks = t.global_view("gsb", &sb, blocks);
        let (first, second) = self.sides((0, 1));
        let modes = [
            tile(first, &bm),
            steps(first, &rows, &bm),
            tile(second, &chunk),
            steps(second, width.ceil_div(&chunk), &chunk),
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

    pub(super) fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
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
            for (s, scale) in scales.iter().enumerate() {
                t.fill(&part, 0.0);
                let right = p.right.index([None, Some((s as i64).into()), None]);
                t.gemm_async_over(&part, p.left, right, [self.warpgroups.into(), 1.into()]);
                t.commit_gemm();
                // The scales are there before the product is.
                let of_a = match own {
                    Some(of_a) if !self.swap => of_a,
                    _ => {
                        let of_a = if self.swap || last == 0 { *scale } else { vector(t, "own", s) };
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
                t.assign(scale, of_a * several);
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
}

impl Parts {
    /// The scale of B of block `block` along n and `step` along k.
    fn block(&self, block: Expr, step: Expr) -> Reference {
        self.blocks.index([None, Some(block), Some(step)])
    }
}
