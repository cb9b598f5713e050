//! The steps along k of a block's tile: copies to a ring of stages, fragments in two buffers, and products. The threads that multiply copy too, or
//! a role of its own does.

use tilewright_machine::{DType, Sparsity};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{KernelBuilder, Reference, Tensor};

use super::precision::{Halves, multiply};

/// See the [module](self).
pub(super) struct Mainloop {
    /// The types of both factors, and of sums.
    pub dtypes: [DType; 2],
    pub sum: DType,
    /// Factors are divided in [`Halves`].
    pub in_halves: bool,
    /// The type to which factors are cast ahead of products.
    pub wide: Option<DType>,
    /// Rows and columns of the tile.
    pub tile: [Expr; 2],
    /// Columns of A that are there of those that go to registers at a time: half of a sparse one's.
    pub of_a: Expr,
    /// Columns that go to registers at a time, and their number in a stage.
    pub kk: Expr,
    pub parts: Expr,
    pub stages: Expr,
    /// Several stages: copies are on their way while others are multiplied.
    pub piped: bool,
    /// The first fragments of a round's tile are loaded before the last products of the round before: those hide the barrier and the load. They must not
    /// be those that these products read, so that a stage has an even number of parts.
    pub ahead: bool,
    /// The first step, if it is not 0, and the number of steps.
    pub start: Option<Expr>,
    pub count: Expr,
}

/// The scales of blocks of both factors.
pub(super) struct Scales {
    pub dtype: DType,
    /// Views of them, with modes as those of A and B.
    pub from: [Tensor; 2],
    /// Blocks of the columns that go to registers at a time.
    pub kk: Expr,
}

impl Mainloop {
    /// Writes the loop; the sums. The views of A, B and a sparse A's metadata have modes of rows, columns of a part, parts and steps.
    pub fn write(
        &self,
        t: &mut KernelBuilder,
        [ga, gb]: [Tensor; 2],
        gm: Option<Tensor>,
        scales: Option<Scales>,
    ) -> Tensor {
        let Mainloop { dtypes: [of_left, of_right], tile: [bm, bn], of_a, kk, parts, stages, .. } = self;
        let sa = t.shared_tensor("sa", *of_left, [bm, of_a, parts, stages]);
        let sb = t.shared_tensor("sb", *of_right, [bn, kk, parts, stages]);
        let metadata = gm.map(|gm| (gm, t.shared_tensor("sm", Sparsity::META, [bm, of_a, parts, stages])));
        let staged = scales.as_ref().map(|scales| self.staged(t, scales, &[parts, stages]));
        let fragments = self.fragments(t, metadata.is_some(), scales.as_ref());

        let fetch = |t: &mut KernelBuilder, i: &Expr| {
            let step = self.step(i);
            t.copy_async(ga.at(step.clone()), sa.at(i % stages));
            t.copy_async(gb.at(step.clone()), sb.at(i % stages));
            if let Some((gm, sm)) = &metadata {
                t.copy_async(gm.at(step.clone()), sm.at(i % stages));
            }
            if let Some((scales, staged)) = scales.as_ref().zip(staged.as_ref()) {
                for (from, to) in scales.from.iter().zip(staged) {
                    t.copy_async(from.at(step.clone()), to.at(i % stages));
                }
            }
            t.commit_group();
        };
        let load = |t: &mut KernelBuilder, p: &Expr, i: &Expr| {
            t.copy(part_of(&sa, p, i % stages), fragments.a.at(p % 2));
            t.copy(part_of(&sb, p, i % stages), fragments.b.at(p % 2));
            if let Some(((_, sm), rm)) = metadata.as_ref().zip(fragments.meta.as_ref()) {
                t.copy(part_of(sm, p, i % stages), rm.at(p % 2));
            }
            if let Some((staged, registers)) = staged.as_ref().zip(fragments.scales.as_ref()) {
                for (from, to) in staged.iter().zip(registers) {
                    t.copy(part_of(from, p, i % stages), to.at(p % 2));
                }
            }
        };
        // The oldest group in flight is the next tile; after the barrier nobody reads the one before any more.
        let arrive = |t: &mut KernelBuilder| {
            t.wait_group(stages - 2);
            t.syncthreads();
        };
        let first = Expr::from(0);
        t.unroll_for("s", 0, stages - 1, |t, s| fetch(t, &s));
        if self.ahead {
            arrive(t);
            load(t, &first, &first);
        }
        t.for_range("ki", 0, &self.count, |t, ki| {
            if self.ahead {
                fetch(t, &(&ki + stages - 1));
            } else if self.piped {
                arrive(t);
                fetch(t, &(&ki + stages - 1));
            } else {
                // No pipeline: the last round's tile is read to the end before this round's takes its place.
                t.syncthreads();
                fetch(t, &ki);
                t.wait_group(0);
                t.syncthreads();
            }
            if !self.ahead {
                load(t, &first, &ki);
            }
            t.unroll_for("p", 1, parts, |t, p| {
                load(t, &p, &ki);
                fragments.multiply(t, &(p - 1));
            });
            if self.ahead {
                arrive(t);
                load(t, &first, &(&ki + 1));
            }
            fragments.multiply(t, &(parts - 1));
        });
        fragments.sums
    }

    /// Writes the loop as two roles: a warpgroup that loads, and so many that multiply and hand their sums to `leave`, each with its registers of a
    /// thread. The views of A and B have modes of rows, columns of a part, parts and steps.
    pub fn write_roles(
        &self,
        t: &mut KernelBuilder,
        ([ga, gb], scales): ([Tensor; 2], Option<Scales>),
        (warpgroups, [load_registers, math_registers]): (i64, [i64; 2]),
        leave: impl FnOnce(&mut KernelBuilder, Tensor),
    ) {
        let Mainloop { dtypes: [of_left, of_right], tile: [bm, bn], kk, parts, stages, .. } = self;
        let sa = t.shared_tensor("sa", *of_left, [bm, kk, parts]);
        let sb = t.shared_tensor("sb", *of_right, [bn, kk, parts]);
        let staged = scales.as_ref().map(|scales| self.staged(t, scales, &[parts]));
        let ring = t.pipeline("ab", stages, [&sa, &sb].into_iter().chain(staged.iter().flatten()));
        t.role("load", 1, Some(load_registers.into()), |t| {
            t.for_range("kl", 0, &self.count, |t, i| {
                t.produce(&ring, |t| {
                    t.copy_async(ga.at(self.step(&i)), sa);
                    t.copy_async(gb.at(self.step(&i)), sb);
                    if let Some((scales, staged)) = scales.as_ref().zip(staged.as_ref()) {
                        for (from, to) in scales.from.iter().zip(staged) {
                            t.copy_async(from.at(self.step(&i)), to);
                        }
                    }
                });
            });
        });
        t.role("math", warpgroups, Some(math_registers.into()), |t| {
            let fragments = self.fragments(t, false, scales.as_ref());
            t.for_range("ki", 0, &self.count, |t, _| {
                t.consume(&ring, |t| {
                    let load = |t: &mut KernelBuilder, p: &Expr| {
                        t.copy(sa.at(p.clone()), fragments.a.at(p % 2));
                        t.copy(sb.at(p.clone()), fragments.b.at(p % 2));
                        if let Some((staged, registers)) = staged.as_ref().zip(fragments.scales.as_ref()) {
                            for (from, to) in staged.iter().zip(registers) {
                                t.copy(from.at(p.clone()), to.at(p % 2));
                            }
                        }
                    };
                    load(t, &0.into());
                    t.unroll_for("p", 1, parts, |t, p| {
                        load(t, &p);
                        fragments.multiply(t, &(p - 1));
                    });
                });
                // Who loads has the stage while its last fragments are multiplied.
                fragments.multiply(t, &(parts - 1));
            });
            leave(t, fragments.sums);
        });
    }

    /// The step along k of a round.
    fn step(&self, round: &Expr) -> Expr {
        self.start.as_ref().map_or_else(|| round.clone(), |start| start + round)
    }

    /// Declares the shared memory of scales, whose modes behind those of a part are `behind`.
    fn staged(&self, t: &mut KernelBuilder, scales: &Scales, behind: &[&Expr]) -> [Tensor; 2] {
        let [bm, bn] = &self.tile;
        [("sa_scale", bm), ("sb_scale", bn)].map(|(name, rows)| {
            let shape = [rows, &scales.kk].into_iter().chain(behind.iter().copied());
            t.shared_tensor(name, scales.dtype, shape)
        })
    }

    /// Declares the registers, the sums filled with zeros.
    fn fragments(&self, t: &mut KernelBuilder, sparse: bool, scales: Option<&Scales>) -> Fragments {
        let Mainloop { dtypes: [of_left, of_right], tile: [bm, bn], of_a, kk, .. } = self;
        let a = t.register_tensor("ra", *of_left, [bm, of_a, &2.into()]);
        let b = t.register_tensor("rb", *of_right, [bn, kk, &2.into()]);
        let meta = sparse.then(|| t.register_tensor("rm", Sparsity::META, [bm, of_a, &2.into()]));
        let scales = scales.map(|scales| {
            [("ra_scale", bm), ("rb_scale", bn)]
                .map(|(name, rows)| t.register_tensor(name, scales.dtype, [rows, &scales.kk, &2.into()]))
        });
        let halves = self
            .in_halves
            .then(|| [("ra", bm), ("rb", bn)].map(|(name, rows)| Halves::declare(t, name, [rows, kk])));
        let wide = self.wide.map(|dtype| {
            [("wa", bm), ("wb", bn)].map(|(name, rows)| t.register_tensor(name, dtype, [rows, kk]))
        });
        let sums = t.register_tensor("rc", self.sum, [bm, bn]);
        t.fill(&sums, 0.0);
        Fragments { a, b, meta, scales, halves, wide, sums }
    }
}

/// The registers of the threads that multiply: two buffers of each factor's parts, and the sums.
struct Fragments {
    a: Tensor,
    b: Tensor,
    /// The metadata of a sparse A.
    meta: Option<Tensor>,
    /// The scales of both factors.
    scales: Option<[Tensor; 2]>,
    halves: Option<[Halves; 2]>,
    /// The factors in the type in which they are multiplied.
    wide: Option<[Tensor; 2]>,
    sums: Tensor,
}

impl Fragments {
    /// Adds the product of a part's fragments.
    fn multiply(&self, t: &mut KernelBuilder, part: &Expr) {
        let (ra, rb) = (t.part(self.a.at(part % 2)), t.part(self.b.at(part % 2)));
        if let Some([a, b]) = &self.wide {
            t.cast_to(a, ra);
            t.cast_to(b, rb);
            return t.gemm(&self.sums, a, b);
        }
        if let Some(rm) = &self.meta {
            let rm = t.part(rm.at(part % 2));
            return t.gemm_sparse(&self.sums, ra, rb, rm, None);
        }
        if let Some([of_a, of_b]) = &self.scales {
            let (of_a, of_b) = (t.part(of_a.at(part % 2)), t.part(of_b.at(part % 2)));
            return t.gemm_scaled(&self.sums, (ra, of_a), (rb, of_b), None);
        }
        let Some([a, b]) = &self.halves else { return t.gemm(&self.sums, ra, rb) };
        a.divide(t, &ra);
        b.divide(t, &rb);
        multiply(t, &self.sums, a, b);
    }
}

/// `t[:, :, part, stage]`.
pub(crate) fn part_of(t: &Tensor, part: &Expr, stage: Expr) -> Reference {
    t.index([None, None, Some(part.clone()), Some(stage)])
}
