//! Weights of a few bits as left factors in tensor memory (sm_100a): one role loads packed weights and activations, one casts the weights and stores them to tensor memory,
//! one thread of another multiplies them there by the activations in shared memory, and those that store results add the sums, scaled, or take them whole.
//!
//! A warp reaches 32 lanes of tensor memory, which are rows of the factor. The copy of the shape 16x128b stores to 16 of them what a warp has of a left factor of `mma` or of `wgmma` in its
//! registers, so that a thread casts what it has loaded and stores it: nothing goes from thread to thread, and weights are stored in memory in one order for all instructions.

use tilewright_tile::Expr;
use tilewright_tile::dsl::{KernelBuilder, Reference, Tensor};

use super::mainloop::{Accumulators, Collective};
use super::stored::StoredWeights;
use super::tiling::Numbers;
use super::weights::{Weights, of_part};

impl Weights {
    /// Parts of a left factor, each of which is cast at a time.
    fn parts_of_left(&self) -> i64 {
        self.left / self.part
    }

    /// Sums of a step: those of a group each where these are scaled.
    fn sums_of_step(&self) -> i64 {
        if self.promotes() { self.groups() } else { 1 }
    }

    /// A left factor in tensor memory: its parts lie side by side.
    pub(super) fn declare_left(&self, t: &mut KernelBuilder, Numbers { bm, .. }: &Numbers) -> Tensor {
        let parts = self.parts_of_left();
        let shape = [bm.clone(), self.part.into()].into_iter().chain((parts > 1).then(|| parts.into()));
        t.tensor_memory("left_factor", self.dtype, shape)
    }

    /// Casts the weights of a step, a left factor after the other.
    pub(super) fn cast_step(&self, t: &mut KernelBuilder, on: &Collective<Self>) {
        let (Some((ring, left)), Some(weights)) = (&on.left, on.apart.first()) else { return };
        let layout = StoredWeights::factor(self.dtype, [self.tiling.bm, self.part], self.takers());
        let shape = [on.numbers.bm.clone(), self.part.into()];
        let each = self.parts_of_left();
        t.consume(weights, |t| {
            for first in (0..self.parts()).step_by(each as usize) {
                t.produce(ring, |t| {
                    for within in 0..each {
                        let part = first + within;
                        let name = format!("left_{part}");
                        let cast = t.register_tensor_with(&name, self.dtype, &shape, layout.clone());
                        self.cast(t, on, ("", part), &cast);
                        let to: Reference = match each {
                            1 => left.into(),
                            _ => left.index([None, None, Some(Expr::from(within))]),
                        };
                        t.copy(cast, to);
                    }
                });
            }
        });
    }

    /// Multiplies the left factors of a step, in stages of sums of their own where threads add these.
    pub(super) fn multiply_step(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators) {
        let (Some((lefts, left)), Some((ring, _))) = (&on.left, &on.sums) else { return };
        let each = self.tiling.bk / self.left / self.sums_of_step();
        t.consume(&on.ring, |t| {
            for number in 0..self.sums_of_step() {
                let products = |t: &mut KernelBuilder| {
                    for piece in number * each..(number + 1) * each {
                        let right = of_part(&on.stage.activations, piece);
                        t.consume(lefts, |t| t.gemm_async(&sums.parts[0], left, right));
                    }
                };
                if !self.promotes() {
                    products(t);
                    continue;
                }
                t.produce(ring, |t| {
                    t.fill(&sums.parts[0], 0.0);
                    products(t);
                });
            }
        });
    }

    /// Adds the sums of a step's groups, scaled.
    pub(super) fn add_step(&self, t: &mut KernelBuilder, on: &Collective<Self>, sums: &Accumulators) {
        let (Some((ring, from)), Some(scales)) = (&on.sums, on.apart.last()) else { return };
        let parts = self.parts() / self.sums_of_step();
        t.consume(scales, |t| {
            for number in 0..self.sums_of_step() {
                let scale = self.scale_of(t, on, ("", number * parts));
                let partial = self.tiling.sums_of_threads(t, &on.numbers, &format!("partial_{number}"));
                t.consume(ring, |t| t.copy(from.parts[0], partial));
                self.promote(t, on, sums, (&format!("_{number}"), Some(partial), scale));
            }
        });
    }
}
