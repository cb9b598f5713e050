//! Warp-specialised matrix products: a kernel is a [scheduler] × a [mainloop](Mainloop) × an epilogue ([operands] and [store]). One
//! warpgroup loads stages, others multiply them and store the results. Where sums are in tensor memory one more multiplies, into one stage of them while the
//! others store another.

mod choices;
mod form;
mod mainloop;
mod nested;
mod operands;
mod promoted;
mod rules;
mod scatter;
mod scheduler;
mod sparse;
mod store;
mod stored;
mod stream_k;
mod tensor_memory;
mod tiling;
mod views;
mod weights;
mod weights_cast;

use tilewright_machine::DType;
use tilewright_tile::dsl::{KernelBuilder, Pipeline, Tensor};
use tilewright_tile::{Expr, Program};

pub use choices::{Batch, Cluster, Dual, FillMode, Major, Rasterization, Schedule, Triangle};
pub use form::Form;
pub(crate) use mainloop::{
    Accumulators, Collective, Mainloop, Second, Term, TmaWgmma, load_attributes, numbers,
};
pub(crate) use nested::{Axis, Nesting};
pub(crate) use operands::{Param, Params, spread_as};
pub use promoted::BLOCK;
pub(crate) use promoted::Promoted;
pub(crate) use rules::*;
pub(crate) use scatter::{Scattered, scattering_registers};
pub(crate) use scheduler::{KRange, Problem, ResultTensor, Scheduler, WorkTile, packed_lines};
pub(crate) use sparse::SparseWgmma;
pub use stored::StoredWeights;
pub(crate) use stored::Takers;
pub(crate) use tensor_memory::{Products, not_there, tensor_memory_tiles};
pub(crate) use tiling::{Numbers, Tiling, tiling};
pub(crate) use views::{Along, Boxes, digits};
pub(crate) use weights::Weights;
pub use weights::{Instruction, Scaled};

use nested::Share;
use operands::{Operands, Sums};
use scatter::Scatter;
use store::{Destination, Store, Waiting};
use stream_k::{Exchange, StepShare};
use tiling::Chunk;
use views::OperandView;

use crate::config::ConfigError;
use crate::contraction::Group;
use crate::epilogue::Chain;

/// A matrix product, to be written as a program.
pub(crate) struct GemmKernel<'a, M> {
    pub name: &'static str,
    pub tiling: Tiling,
    pub batch: Batch,
    /// The modes of m, n, k and l, where these are groups; then the batch is none, and there is one part of k.
    pub nesting: Option<&'a Nesting>,
    /// Parts of k that are summed apart.
    pub split: i64,
    /// The work of a block.
    pub schedule: Schedule,
    /// Chunks of other blocks' sums that are on their way at once, where tiles are shared by steps.
    pub stream_k: Option<i64>,
    /// The type of C.
    pub result: DType,
    /// Rows of the product are added to rows of C anywhere.
    pub scatter: bool,
    pub mainloop: M,
    pub chain: &'a Chain<'a>,
}

impl<M: Mainloop> GemmKernel<'_, M> {
    pub fn program(&self) -> Result<Program, ConfigError> {
        let mut builder = KernelBuilder::new(self.name);
        self.write(&mut builder);
        Ok(builder.finish()?)
    }

    fn write(&self, t: &mut KernelBuilder) {
        let (problem, k) = match self.nesting {
            Some(nesting) => Problem::of(t, nesting),
            None => self.mainloop.problem(t, self.batch),
        };
        let numbers = Numbers::declare(t, &self.tiling, k, self.mainloop.part());
        let split = (self.split > 1).then(|| t.constant("SPLIT", self.split));
        let params = self.mainloop.params(t, &problem, &numbers);
        let work = (self.batch, split.as_ref());
        let scheduler = Scheduler::declare(t, &self.tiling, &numbers, &problem, work);
        let operands = self.chain.declare(t, &problem, self.result);
        let (c, scattered) = match &problem.nested {
            Some(nested) => (nested.buffer(t, 2, "c", self.result), None),
            None if self.scatter => {
                let (c, rows, tables) = problem.scattered(t, self.result);
                (c, Some((rows, tables)))
            }
            None => (problem.result(t, self.result, split.as_ref()), None),
        };
        let sums = self.chain.declare_sums(t, &problem, self.result);
        let params = self.mainloop.outputs(t, &problem, params);
        let exchanged =
            self.stream_k.map(|_| stream_k::exchanged(t, &numbers, (self.tiling.accumulator, self.schedule)));
        scheduler.launch(t, self.stream_k.is_some());
        let views = self.mainloop.views(t, params, &problem, &scheduler);
        let to = match &problem.nested {
            Some(nested) => {
                let Numbers { bm, bn, chunk, .. } = &numbers;
                let (rows, columns) = self.tiling.sides((Group::M, Group::N));
                let chunked = Share::Chunk(self.tiling.chunk, chunk, bn);
                let view = nested.view(t, "gc", (2, &c), (rows, Share::Whole(bm)), (columns, chunked));
                Destination::Boxes(OperandView::Nested(view))
            }
            None => match &scattered {
                Some((rows, tables)) => Destination::Rows(Scatter::views(t, &scheduler, (&c, rows), tables)),
                None => {
                    let view = scheduler.result_view(t, "gc", &c, scheduler.several.as_ref());
                    Destination::Boxes(OperandView::Matrix(view))
                }
            },
        };
        let stage = self.mainloop.stage(t, &numbers);
        let shape = [&numbers.bm, &numbers.chunk, &numbers.buffers];
        let shared = t.shared_tensor("sc", self.tiling.stored, shape);
        let mirror = (self.tiling.fill == FillMode::Symmetric).then(|| {
            let view = scheduler.mirrored_view(t, "gt", &c, scheduler.several.as_ref());
            (view, t.shared_tensor("st", self.tiling.stored, shape))
        });
        let ring = t.pipeline("ab", &numbers.stages, stage.as_ref());
        let apart = self.mainloop.apart(&stage).iter();
        let apart = apart.map(|(name, tensors)| t.pipeline(name, &numbers.stages, tensors)).collect();
        let operands = Operands::declare(t, self.chain, (operands, sums, &c), (&problem, &scheduler));
        let sums = self
            .mainloop
            .sums(t, &numbers)
            .map(|sums| (t.pipeline("sums", SUM_STAGES, sums.parts.iter().chain(&sums.second)), sums));
        let left = self.mainloop.left(t, &numbers);
        let left = left.map(|(factor, stages)| (t.pipeline("lefts", stages, [&factor]), factor));
        let exchange = exchanged.zip(self.stream_k);
        let exchange = exchange
            .map(|(of, at_once)| Exchange::declare(t, &numbers, of, (&self.tiling, self.schedule, at_once)));
        let roles = Roles {
            store: Store {
                tiling: self.tiling,
                numbers: numbers.clone(),
                buffer: c,
                to,
                shared,
                mirror,
                late: self.mainloop.rounds_at_once(),
            },
            on: Collective { numbers, views, stage, ring, apart, left, sums },
            kernel: self,
            scheduler,
            operands,
            exchange,
        };
        t.role("load", 1, Some(self.tiling.load_registers.into()), |t| roles.load(t));
        if self.tiling.ahead {
            t.role("constants", 1, Some(AHEAD_REGISTERS.into()), |t| roles.load_ahead(t));
        }
        if let Some((ring, sums)) = &roles.on.sums {
            t.role("multiply", 1, Some(ISSUING_REGISTERS.into()), |t| roles.multiply(t, (ring, sums)));
        }
        if roles.on.left.is_some() {
            let registers = Some(self.tiling.cast_registers.into());
            t.role("convert", self.tiling.casting, registers, |t| roles.cast(t));
        }
        let registers = Some(self.tiling.math_registers.into());
        t.role("math", self.tiling.warpgroups, registers, |t| roles.math(t));
    }
}

/// A kernel whose tensors are declared.
struct Roles<'a, M: Mainloop> {
    kernel: &'a GemmKernel<'a, M>,
    scheduler: Scheduler,
    on: Collective<M>,
    operands: Operands<'a>,
    store: Store,
    /// The way of sums between blocks, if tiles are shared by steps along k.
    exchange: Option<Exchange>,
}

impl<M: Mainloop> Roles<'_, M> {
    /// The role that loads.
    fn load(&self, t: &mut KernelBuilder) {
        let (scheduler, dependent) = (&self.scheduler, self.kernel.tiling.dependent);
        if dependent {
            t.wait_dependencies();
        }
        let share = self.share(t);
        scheduler.for_tiles(t, share.as_ref(), ["tm", "tn"], |t, tile| {
            let numbers = self.kernel.mainloop.numbers(t, &self.on, tile);
            let tile = &WorkTile { numbers, ..tile.clone() };
            self.operands.load_vectors(t, scheduler, tile);
            let range = self.kernel.mainloop.range(scheduler, tile);
            let ahead = self.kernel.mainloop.begin_loads(t, &self.on, tile);
            t.for_range("kl", 0, range.count.clone(), |t, step| {
                let step = scheduler.k_step(&range, step);
                self.kernel.mainloop.fill(t, &self.on, tile, (&step, ahead.as_ref()));
            });
            self.operands.load_matrices(t, (scheduler, tile), None);
        });
        if let Some(share) = share {
            self.load_segments(t, &share);
        }
        if dependent {
            t.launch_dependents();
        }
    }

    /// Loads what is constant, and waits for no launch.
    fn load_ahead(&self, t: &mut KernelBuilder) {
        self.for_steps(t, |t, tile, step| self.kernel.mainloop.fill_apart(t, &self.on, tile, step));
    }

    /// Makes left factors in tensor memory.
    fn cast(&self, t: &mut KernelBuilder) {
        // Of constants there are no tables to read.
        if self.kernel.tiling.dependent && !self.kernel.tiling.ahead {
            t.wait_dependencies();
        }
        self.for_steps(t, |t, _, _| self.kernel.mainloop.make_left(t, &self.on));
    }

    /// Writes the same for every step along k of the tiles and parts of tiles of a block, in order.
    fn for_steps(&self, t: &mut KernelBuilder, body: impl Fn(&mut KernelBuilder, &WorkTile, &Expr)) {
        let (mainloop, scheduler) = (&self.kernel.mainloop, &self.scheduler);
        let share = self.share(t);
        scheduler.for_tiles(t, share.as_ref(), ["wm", "wn"], |t, tile| {
            let range = mainloop.range(scheduler, tile);
            t.for_range("kw", 0, range.count.clone(), |t, step| {
                body(t, tile, &scheduler.k_step(&range, step));
            });
        });
        if let Some(share) = share {
            share.for_segments(t, scheduler, ["xm", "xn"], |t, segment| {
                t.for_range("ks", &segment.from, &segment.to, |t, step| body(t, &segment.tile, &step));
            });
        }
    }

    /// Multiplies into tensor memory: a tile a stage of sums, or a part of a step.
    fn multiply(&self, t: &mut KernelBuilder, (ring, sums): (&Pipeline, &Accumulators)) {
        let (mainloop, scheduler) = (&self.kernel.mainloop, &self.scheduler);
        if self.kernel.tiling.dependent {
            t.wait_dependencies();
        }
        let steps = |t: &mut KernelBuilder, tile: &WorkTile, counter: &str, count: Expr| {
            let products = |t: &mut KernelBuilder| {
                t.for_range(counter, 0, count, |t, step| {
                    mainloop.step(t, &self.on, sums, tile, (&step, ""));
                });
            };
            if mainloop.sums_apart() {
                return products(t);
            }
            t.produce(ring, |t| {
                sums.parts.iter().chain(&sums.second).for_each(|sums| t.fill(sums, 0.0));
                products(t);
            });
        };
        let share = self.share(t);
        scheduler.for_tiles(t, share.as_ref(), ["im", "in_"], |t, tile| {
            let range = mainloop.range(scheduler, tile);
            steps(t, tile, "ki", range.count);
        });
        if let Some(share) = share {
            share.for_segments(t, scheduler, ["ym", "yn"], |t, segment| {
                // A segment has a step at least.
                steps(t, &segment.tile, "ks", (&segment.to - &segment.from).max(1));
            });
        }
    }

    /// The sums of a tile over these steps: multiplied here, or by the role that does nothing else.
    fn summed(
        &self,
        t: &mut KernelBuilder,
        tile: &WorkTile,
        (counter, from, to): (&str, &Expr, &Expr),
    ) -> Accumulators {
        let (mainloop, on) = (&self.kernel.mainloop, &self.on);
        let sums = mainloop.begin(t, on, tile);
        if on.sums.is_none() {
            t.for_range(counter, from, to, |t, step| mainloop.step(t, on, &sums, tile, (&step, "")));
        } else if mainloop.sums_apart() {
            t.for_range(counter, from, to, |t, _| mainloop.add(t, on, &sums));
        }
        mainloop.complete(t, on, &sums, tile);
        sums
    }

    fn share(&self, t: &mut KernelBuilder) -> Option<StepShare> {
        self.exchange.is_some().then(|| StepShare::declare(t, &self.scheduler, self.kernel.schedule))
    }

    /// Loads the parts of tiles in a block's share of steps along k.
    fn load_segments(&self, t: &mut KernelBuilder, share: &StepShare) {
        let scheduler = &self.scheduler;
        let several = share.several();
        share.for_segments(t, scheduler, ["sm", "sn"], |t, segment| {
            if !several && self.operands.has_vectors() {
                t.if_then(&segment.finishes, |t| self.operands.load_vectors(t, scheduler, &segment.tile));
            }
            t.for_range("ks", &segment.from, &segment.to, |t, step| {
                self.kernel.mainloop.fill(t, &self.on, &segment.tile, (&step, None));
            });
            if !several && self.operands.has_matrices() {
                t.if_then(&segment.finishes, |t| {
                    self.operands.load_matrices(t, (scheduler, &segment.tile), None);
                });
            }
        });
        if several && (self.operands.has_vectors() || self.operands.has_matrices()) {
            share.for_segments(t, scheduler, ["om", "on"], |t, segment| {
                let finishes = |chunk: &Expr| segment.finishes_chunk(chunk);
                self.operands.load_vectors(t, scheduler, &segment.tile);
                self.operands.load_matrices(t, (scheduler, &segment.tile), Some(&finishes));
            });
        }
    }

    /// The role that multiplies and stores.
    fn math(&self, t: &mut KernelBuilder) {
        if self.kernel.tiling.dependent {
            t.wait_dependencies();
        }
        let share = self.share(t);
        if self.kernel.tiling.overlap {
            self.overlapped(t, share.as_ref());
        } else {
            self.immediate(t, share.as_ref());
        }
        if let (Some(share), Some(exchange)) = (&share, &self.exchange) {
            if share.several() {
                self.segments_of_all(t, share, exchange);
            } else {
                self.segments(t, share, exchange);
            }
        }
        t.wait_group(0);
    }

    /// Multiplies the parts of tiles in a block's share of steps along k, and stores those that it finishes.
    fn segments(&self, t: &mut KernelBuilder, share: &StepShare, exchange: &Exchange) {
        let (on, store, scheduler) = (&self.on, &self.store, &self.scheduler);
        share.for_segments(t, scheduler, ["vm", "vn"], |t, segment| {
            let tile = &segment.tile;
            let sums = self.summed(t, tile, ("ks", &segment.from, &segment.to));
            let finish = |t: &mut KernelBuilder| {
                let way = store.way(t, scheduler, tile, "shared");
                exchange.wait(t, segment);
                store.first_buffer(t);
                let add = |t: &mut KernelBuilder, values: &Tensor, chunk: &Chunk| {
                    exchange.add(t, (scheduler, segment), values, chunk);
                };
                let all = Sums::Own(&sums, Some(&add));
                self.operands.apply(t, (scheduler, tile), &all, |t, values, chunk| {
                    let values = |t: &mut KernelBuilder| store.round(t, &chunk.name("half"), values);
                    store.chunk(t, (scheduler, tile), values, chunk, &way);
                });
                exchange.reset(t, segment);
            };
            let leave = |t: &mut KernelBuilder| {
                sums.parts.iter().for_each(|sums| exchange.leave(t, &on.numbers, sums, segment));
            };
            t.if_else(&segment.finishes, finish, leave);
        });
    }

    /// Multiplies the parts of tiles in a block's share of steps along k, leaves their sums, and then adds and stores some chunks of each of these tiles.
    fn segments_of_all(&self, t: &mut KernelBuilder, share: &StepShare, exchange: &Exchange) {
        let (on, store, scheduler) = (&self.on, &self.store, &self.scheduler);
        share.for_segments(t, scheduler, ["vm", "vn"], |t, segment| {
            let sums = self.summed(t, &segment.tile, ("ks", &segment.from, &segment.to));
            sums.parts.iter().for_each(|sums| exchange.leave(t, &on.numbers, sums, segment));
        });
        share.for_segments(t, scheduler, ["xm", "xn"], |t, segment| {
            let tile = &segment.tile;
            let way = store.way(t, scheduler, tile, "shared");
            exchange.wait_all(t, segment);
            store.first_buffer(t);
            let add = |t: &mut KernelBuilder, values: &Tensor, chunk: &Chunk| {
                exchange.add_all(t, (scheduler, segment), values, chunk);
            };
            let finishes = |chunk: &Expr| segment.finishes_chunk(chunk);
            let all = Sums::Left(&add, &finishes);
            self.operands.apply(t, (scheduler, tile), &all, |t, values, chunk| {
                // Of its chunks any two may have the same buffer.
                t.wait_group(0);
                let values = |t: &mut KernelBuilder| store.round(t, &chunk.name("half"), values);
                store.chunk(t, (scheduler, tile), values, chunk, &way);
            });
            exchange.reset_all(t, &on.numbers, segment);
        });
    }

    /// Each tile is stored before the next one is multiplied.
    fn immediate(&self, t: &mut KernelBuilder, share: Option<&StepShare>) {
        let (mainloop, on, store) = (&self.kernel.mainloop, &self.on, &self.store);
        self.scheduler.for_tiles(t, share, ["um", "un"], |t, tile| {
            let way = store.way(t, &self.scheduler, tile, "now");
            let range = mainloop.range(&self.scheduler, tile);
            let sums = self.summed(t, tile, ("km", &0.into(), &range.count));
            store.first_buffer(t);
            let to = (&self.scheduler, tile);
            if self.kernel.chain.is_empty() && mainloop.rounds_at_once() && !self.kernel.scatter {
                for (part, sums) in sums.parts.iter().enumerate() {
                    let rounded =
                        t.cast(&format!("rounded{}", on.numbers.tag(part)), sums, store.tiling.stored);
                    on.numbers.for_chunks_of(t, part, "j", |t, chunk| {
                        let values =
                            |t: &mut KernelBuilder| store.slice(t, &chunk.name("out"), &rounded, chunk);
                        store.chunk(t, to, values, chunk, &way);
                    });
                }
                return;
            }
            self.operands.apply(t, to, &Sums::Own(&sums, None), |t, values, chunk| {
                let values = |t: &mut KernelBuilder| {
                    let values = way.scaled(t, store, values, chunk);
                    store.round(t, &chunk.name("half"), &values)
                };
                store.chunk(t, to, values, chunk, &way);
            });
        });
    }

    /// Each tile is stored during the mainloop of the next one: its rounded results wait in registers, and a chunk leaves after each of the
    /// first steps along k.
    fn overlapped(&self, t: &mut KernelBuilder, share: Option<&StepShare>) {
        let (mainloop, on, store) = (&self.kernel.mainloop, &self.on, &self.store);
        let waiting = Waiting::declare(t, store, self.kernel.chain.is_empty());
        let body = |t: &mut KernelBuilder, tile: &WorkTile, previous: &WorkTile| {
            let to = (&self.scheduler, previous);
            let way = store.way(t, &self.scheduler, previous, "late");
            let sums = mainloop.begin(t, on, tile);
            store.first_buffer(t);
            on.numbers.for_chunks(t, "j", |t, chunk| {
                mainloop.step(t, on, &sums, tile, (&chunk.index, &chunk.tag));
                let values = |t: &mut KernelBuilder| waiting.chunk(t, store, "part", chunk);
                store.chunk(t, to, values, chunk, &way);
            });
            let range = mainloop.range(&self.scheduler, tile);
            t.for_range("km", &on.numbers.chunks, range.count, |t, step| {
                mainloop.step(t, on, &sums, tile, (&step, ""));
            });
            mainloop.complete(t, on, &sums, tile);
            match &waiting {
                Waiting::Parts(rounded) => {
                    rounded.iter().zip(&sums.parts).for_each(|(rounded, sums)| t.cast_to(rounded, sums));
                }
                Waiting::Chunks(rounded) => {
                    let to = (&self.scheduler, tile);
                    self.operands.apply(t, to, &Sums::Own(&sums, None), |t, values, chunk| {
                        let values = store.round(t, &chunk.name("half"), values);
                        t.copy(values, rounded.at(chunk.index.clone()));
                    });
                }
            }
        };
        self.scheduler.for_tiles_after(t, share, ["um", "un", "pm", "pn"], body, |t, last| {
            let way = store.way(t, &self.scheduler, last, "last");
            store.first_buffer(t);
            on.numbers.for_chunks(t, "i", |t, chunk| {
                let values = |t: &mut KernelBuilder| waiting.chunk(t, store, "rest", chunk);
                store.chunk(t, (&self.scheduler, last), values, chunk, &way);
            });
        });
    }
}
