//! Reductions and gathers.

use tilewright_machine::{DType, ScalarOp, ShuffleMode};
use tilewright_simt::{Address, ArrayId, Operand, Reg, Special};
use tilewright_synth::gather::{GatherPlan, SharedGather, WarpGather};
use tilewright_synth::movement::{Movement, Trip};
use tilewright_synth::reduce::{Meeting, PickPlan, ReducePlan};
use tilewright_tile::{Diagnostic, Origin, ReduceOp, TensorId};

use crate::bits::{bit, masked_linear_map};
use crate::context::Lower;
use crate::elements;
use crate::movement::{Element, apply};
use crate::scalar::{add, int};
use crate::scan::{Item, Operator, combining};

impl Lower<'_> {
    /// `dst = reduce(src, op, …)`. Floats are combined in `f32` and rounded once; integers in 32 bits.
    pub(crate) fn reduce(
        &mut self,
        dst: TensorId,
        src: TensorId,
        op: ReduceOp,
        plan: &ReducePlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let dtype = self.verified.tensor(src).dtype;
        let from = self.array(src)?;
        let combine = combining(dtype, op);
        let operator = Operator::One(combine);
        let mut partial: Vec<Item> = Vec::new();
        for values in &plan.local {
            let read = |v: &u32| elements::read_words_of(self.b, from, *v, dtype);
            let values: Vec<Item> = values.iter().map(read).collect();
            partial.push(self.together(operator, values)?);
        }
        for distance in &plan.lanes {
            for value in &mut partial {
                let other = self.shuffled(value, ShuffleMode::Bfly, int(i64::from(*distance)));
                *value = self.combine(operator, value, &other)?;
            }
        }
        match &plan.meeting {
            Meeting::None => {}
            Meeting::Warps(trip) => self.reduce_across_warps(operator, trip, &mut partial, span)?,
            Meeting::Threads(exchange) => {
                let items: Vec<Vec<Item>> = partial.iter().map(|value| vec![value.clone()]).collect();
                self.show(exchange, &items, plan.words, span)?;
                for (number, value) in (0..).zip(partial.iter_mut()) {
                    let parts = self.parts(exchange, number, plan.words, span)?;
                    *value = self.together(operator, parts)?;
                }
            }
        }
        let partial = self.numbers(&partial);
        self.hand_on(&partial, dst, !op.computes(), &plan.last, span)
    }

    /// `dst = slice(src, axis, start, 1)` along a mode that threads share.
    pub(crate) fn pick(
        &mut self,
        dst: TensorId,
        src: TensorId,
        plan: &PickPlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (dtype, from) = (self.verified.tensor(src).dtype, self.array(src)?);
        let read = |v: &u32| elements::read_words_of(self.b, from, *v, dtype);
        let mut picked: Vec<Item> = plan.values.iter().map(read).collect();
        let [mask, set] = plan.lanes;
        if mask != 0 {
            let thread = self.thread();
            let others = self.b.scalar(ScalarOp::AndB32, &[thread, int(!i64::from(mask))]);
            let holder = self.b.scalar(ScalarOp::OrB32, &[others, int(i64::from(set))]);
            picked.iter_mut().for_each(|value| *value = self.shuffled(value, ShuffleMode::Idx, holder));
        }
        if let Some((exchange, part)) = &plan.meeting {
            let items: Vec<Vec<Item>> = picked.iter().map(|value| vec![value.clone()]).collect();
            self.show(exchange, &items, plan.words, span)?;
            for (number, value) in (0..).zip(picked.iter_mut()) {
                *value = self.shown(exchange, number, *part..*part + 1, plan.words, span)?.concat();
            }
        }
        let picked = self.numbers(&picked);
        self.hand_on(&picked, dst, true, &plan.last, span)
    }

    /// The number of each item.
    fn numbers(&mut self, items: &[Item]) -> Vec<Operand> {
        items.iter().map(|item| elements::of_words(self.b, item)).collect()
    }

    /// Rounds what has been put together, unless it is `exact`, and moves it to the layout of its tensor.
    pub(crate) fn hand_on(
        &mut self,
        partial: &[Operand],
        dst: TensorId,
        exact: bool,
        last: &Movement,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (dtype, to) = (self.verified.tensor(dst).dtype, self.array(dst)?);
        if let Movement::Registers(moves) = last {
            let mut ordered = vec![int(0); moves.len()];
            moves.iter().for_each(|(s, d)| ordered[*d as usize] = partial[*s as usize]);
            self.write_reduced(to, dtype, exact, &ordered);
            return Ok(());
        }
        let (count, bits) = (partial.len() as u32, dtype.bits());
        let result = self.b.add_array("reduced", elements::registers(count, bits));
        self.write_reduced(result, dtype, exact, partial);
        let counts = (count, self.count(dst)?);
        self.movement_of((result, to), counts, bits, last, span)
    }

    /// Combines the values of several warps, which meet in the scratch buffer.
    fn reduce_across_warps(
        &mut self,
        operator: Operator<'_>,
        trip: &Trip,
        partial: &mut [Item],
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let words = partial.first().map_or(1, Vec::len) as u32;
        let (given, taken) = (trip.store.bits.register_bits(), trip.load.bits.register_bits());
        let slices = trip.store.bits.slices() as u32;
        let parts = 1usize << (taken - given);
        let stored = self.b.add_array("partial", (words * slices) << given);
        let loaded = self.b.add_array("parts", (words * slices) << taken);
        elements::write_words(self.b, stored, partial.concat());
        self.trip(trip, (stored, loaded), 32 * words, span)?;
        for slice in 0..trip.store.bits.slices() {
            for register in 0..1u64 << given {
                let values: Vec<Item> = (0..parts as u64)
                    .map(|part| {
                        let index = trip.load.bits.value(register << (taken - given) | part, slice);
                        let places = elements::places(loaded, &[index], 32 * words);
                        places.into_iter().map(|place| self.b.read(place)).collect()
                    })
                    .collect();
                let value = trip.store.bits.value(register, slice);
                partial[value as usize] = self.together(operator, values)?;
            }
        }
        Ok(())
    }

    /// Writes results to a fragment; `exact` ones are numbers of the element type.
    pub(crate) fn write_reduced(&mut self, array: ArrayId, dtype: DType, exact: bool, results: &[Operand]) {
        let per_register = tilewright_machine::per_register(dtype.bits());
        for (k, group) in results.chunks(per_register as usize).enumerate() {
            self.write_group(array, (dtype, exact), k as u32 * per_register, group);
        }
    }

    /// Writes the results of one register, whose first value is `first`.
    pub(crate) fn write_group(
        &mut self,
        array: ArrayId,
        (dtype, exact): (DType, bool),
        first: u32,
        group: &[Operand],
    ) {
        if !dtype.is_float() && dtype.bits() < 64 {
            let word = elements::join(self.b, group, dtype.bits());
            self.b.write(elements::place(array, first, dtype.bits()).0, word);
        } else if exact {
            elements::write_exact(self.b, array, dtype, first, group);
        } else {
            elements::write_register(self.b, array, dtype, first, group);
        }
    }

    /// `dst = gather(src, index, …)`.
    pub(crate) fn gather(
        &mut self,
        (dst, src, index): (TensorId, TensorId, TensorId),
        plan: &GatherPlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let own = self.verified.tensor(src).dtype.bits();
        let (from, to, by) = (self.array(src)?, self.array(dst)?, self.array(index)?);
        // Elements of a few bits travel in bytes.
        let bits = own.max(8);
        let from = if own < 8 { self.in_bytes(from, own, self.count(src)?) } else { from };
        let values = match plan {
            GatherPlan::Warp(g) if bits == 64 => {
                let count = self.count(src)?;
                let halves = self.halves_of(from, count);
                let found = halves.map(|half| self.gather_in_warp(g, half, by, 32));
                let words: Vec<Operand> =
                    found[0].iter().zip(&found[1]).flat_map(|(low, high)| [low.0, high.0]).collect();
                elements::write_words(self.b, to, words);
                return Ok(());
            }
            GatherPlan::Warp(g) => self.gather_in_warp(g, from, by, bits),
            GatherPlan::Shared(g) if bits == 64 => {
                let words = self.gather_through_shared(g, from, by, bits, span)?;
                elements::write_words(self.b, to, words.into_iter().map(|(word, _)| word).collect());
                return Ok(());
            }
            GatherPlan::Shared(g) => self.gather_through_shared(g, from, by, bits, span)?,
        };
        if own < 8 {
            let count = values.len() as u32;
            let bytes = self.b.add_array("bytes", elements::registers(count, 8));
            self.write_values(bytes, &values, bits);
            self.out_of_bytes(bytes, to, own, count);
        } else {
            self.write_values(to, &values, bits);
        }
        Ok(())
    }

    /// The index of a value, its bits beyond the mode's extent still there.
    fn index_of(&mut self, array: ArrayId, value: u32) -> Operand {
        elements::read_i32(self.b, array, value, DType::I32)
    }

    fn gather_in_warp(&mut self, g: &WarpGather, src: ArrayId, by: ArrayId, bits: u32) -> Vec<Element> {
        let per_register = tilewright_machine::per_register(bits);
        let within = per_register.trailing_zeros().min(g.from.register_bits());
        let registers = g.source.outs()[0].bits;
        let lanes_of = g.source.outs()[1].bits;
        let mask = (1u64 << registers) - 1;
        let lane_mask = (1u64 << lanes_of) - 1;
        let own = g.source.ins()[0].bits as usize;
        let (by_register, by_thread) = g.source.columns().split_at(own);
        let thread = self.thread();
        let known = (1u64 << by_thread.len()) - 1;
        let register_columns: Vec<u64> = by_thread.iter().map(|c| c & mask).collect();
        let lane_columns: Vec<u64> = by_thread.iter().map(|c| c >> registers & lane_mask).collect();
        let lane = masked_linear_map(self.b, &lane_columns, thread, known);
        let index_registers: Vec<u64> = g.index.iter().map(|i| i.0).collect();
        let index_lanes: Vec<u64> = g.index.iter().map(|i| i.1).collect();
        let lanes = g.source.ins()[1].bits as usize;
        let still = index_lanes.iter().all(|i| *i == 0)
            && lane_columns.iter().enumerate().all(|(k, c)| *c == if k < lanes { 1 << k } else { 0 })
            && by_register.iter().all(|c| c >> registers & lane_mask == 0);
        // Of a shuffle's lane the low five bits count: an index that is the lane needs no mask.
        let is_lane = index_lanes.len() >= 5
            && index_lanes.iter().enumerate().all(|(k, c)| *c == if k < 5 { 1 << k } else { 0 });
        let candidates: u64 = g.candidates.iter().fold(0, |all, c| all | c);
        let words: Vec<u64> = g.candidates.iter().copied().filter(|c| *c >= 1 << within).collect();
        let mut values = Vec::new();
        for value in 0..1u64 << own {
            let place = apply(by_register, value);
            let index = self.index_of(by, value as u32);
            let from = if still {
                lane
            } else {
                let lane_index =
                    if is_lane { index } else { masked_linear_map(self.b, &index_lanes, index, u64::MAX) };
                let from = self.b.scalar(ScalarOp::XorB32, &[lane, lane_index]);
                self.b.scalar(ScalarOp::XorB32, &[from, int((place >> registers & lane_mask) as i64)])
            };
            // Every word that a lane may want, then the one that it does.
            let fixed = place & mask & !candidates;
            let mut offered: Vec<Operand> = (0..1u64 << words.len())
                .map(|k| {
                    let register = apply(&words, k) | fixed;
                    let word = self.b.read(Reg { array: src, index: (register >> within) as u32 });
                    if still { word } else { self.b.shuffle(word, ShuffleMode::Idx, from) }
                })
                .collect();
            for word in &words {
                let (upper, flipped) = self.wanted_bit(
                    *word,
                    (&register_columns, thread),
                    (&index_registers, index),
                    place & word != 0,
                );
                offered = offered
                    .chunks(2)
                    .map(|pair| {
                        let (set, clear) = if flipped { (pair[0], pair[1]) } else { (pair[1], pair[0]) };
                        self.b.scalar(ScalarOp::Select, &[set, clear, upper])
                    })
                    .collect();
            }
            let mut found = offered[0];
            let inside = candidates & ((1 << within) - 1);
            let at = (fixed & ((1 << within) - 1)) as u32;
            if inside != 0 {
                let only = |columns: &[u64]| columns.iter().map(|c| c & inside).collect::<Vec<u64>>();
                let mine = masked_linear_map(self.b, &only(&register_columns), thread, known);
                let theirs = masked_linear_map(self.b, &only(&index_registers), index, u64::MAX);
                let part = self.b.scalar(ScalarOp::XorB32, &[mine, theirs]);
                let part = self.b.scalar(ScalarOp::XorB32, &[part, int((place & inside) as i64)]);
                let shift = i64::from(bits.trailing_zeros());
                let amount = self.b.scalar(ScalarOp::ShlB32, &[part, int(shift)]);
                found = self.b.scalar(ScalarOp::ShrU32, &[found, amount]);
            }
            values.push((found, at * bits / 8));
        }
        values
    }

    /// One bit of the register that a lane wants, the sum of bits of its thread and of its index: a condition, and whether
    /// it is the opposite that says so (as where `set`, the register of the result says so already).
    fn wanted_bit(
        &mut self,
        unit: u64,
        (thread_columns, thread): (&[u64], Operand),
        (index_columns, index): (&[u64], Operand),
        set: bool,
    ) -> (Operand, bool) {
        let sources = |columns: &[u64]| -> Vec<u32> {
            (0..columns.len() as u32).filter(|k| columns[*k as usize] & unit != 0).collect()
        };
        let mut all: Vec<(Operand, u32)> = sources(thread_columns).into_iter().map(|k| (thread, k)).collect();
        all.extend(sources(index_columns).into_iter().map(|k| (index, k)));
        let mut sum = None;
        for (value, k) in all {
            let here = bit(self.b, value, k);
            sum = Some(match sum {
                None => here,
                Some(before) => self.b.scalar(ScalarOp::XorPred, &[before, here]),
            });
        }
        (sum.unwrap_or(int(0)), set)
    }

    fn gather_through_shared(
        &mut self,
        g: &SharedGather,
        src: ArrayId,
        by: ArrayId,
        bits: u32,
        span: Origin,
    ) -> Result<Vec<Element>, Diagnostic> {
        self.store_side(&g.memory, &g.store, src, bits, span)?;
        let shift = (bits / 8).trailing_zeros();
        let bytes = |columns: &[u64]| columns.iter().map(|c| c << shift).collect::<Vec<u64>>();
        let own = g.offsets.ins().first().map_or(0, |d| d.bits) as usize;
        let columns = bytes(g.offsets.columns());
        let (by_register, by_thread) = columns.split_at(own);
        let thread = self.thread();
        let known = (1u64 << by_thread.len()) - 1;
        let mine = masked_linear_map(self.b, by_thread, thread, known);
        let index_columns = bytes(&g.index);
        let window = Operand::Value(self.b.special(Special::SharedBase));
        let count = 1u32 << own;
        let arrived = self.b.add_array("gathered", count * g.load.registers());
        for value in 0..count {
            let index = self.index_of(by, value);
            let along = masked_linear_map(self.b, &index_columns, index, u64::MAX);
            let place =
                self.b.scalar(ScalarOp::XorB32, &[mine, int(apply(by_register, u64::from(value)) as i64)]);
            let place = self.b.scalar(ScalarOp::XorB32, &[place, along]);
            let base = add(self.b, window, place);
            let address = Address { base, offset: self.memory.scratch as i32 };
            let width = g.load.registers();
            let places = (0..width).map(|k| Reg { array: arrived, index: value * width + k });
            self.b.load(g.load, places.collect(), address, None);
        }
        let words = 0..count * g.load.registers();
        Ok(words.map(|index| (self.b.read(Reg { array: arrived, index }), 0)).collect())
    }
}
