//! Sorts along a mode by a bitonic network.
//!
//! Elements are compared by keys: integers in the order that is asked for, a NaN the last. What goes along with them is compared by the
//! coordinate that it had where keys are equal, so that what is equal keeps its order.

use std::ops::Range;

use tilewright_machine::{Memory, RegType, ScalarOp, Scope, ShuffleMode, registers_of, thread_copy};
use tilewright_simt::{Address, Operand, Reg};
use tilewright_synth::along::{Exchange, Place};
use tilewright_synth::sort::SortPlan;
use tilewright_tile::{Diagnostic, Origin, TensorId};

use crate::bits::bit;
use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, int};
use crate::scan::{Item, computed};

/// A condition on the coordinate of a value: known, or one of the thread's.
#[derive(Clone, Copy)]
enum Bit {
    Known(bool),
    Thread(Operand),
}

impl Lower<'_> {
    /// `dst = sort(src, axis)`, `dst, values = sort(src, carried, axis)`.
    pub(crate) fn sort(
        &mut self,
        (dst, src): (TensorId, TensorId),
        carried: Option<[TensorId; 2]>,
        descending: bool,
        plan: &SortPlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let dtype = self.verified.tensor(src).dtype;
        let mut rows = self.items_to_sort(src, carried, descending, plan)?;
        for size in 1..=plan.bits.len() {
            for step in (0..size).rev() {
                self.compare((plan, computed(dtype)), &mut rows, step, size, span)?;
            }
        }
        let place = |rows: &[Vec<Item>], words: Range<usize>, count: usize| {
            let mut ordered = vec![vec![int(0); words.len()]; count];
            for (row, items) in plan.along.rows.iter().zip(rows) {
                for (value, item) in row.iter().zip(items) {
                    ordered[*value as usize] = item[words.clone()].to_vec();
                }
            }
            ordered
        };
        let key = registers_of(dtype.bits()) as usize;
        let keys = place(&rows, 0..key, self.count(dst)? as usize);
        let elements: Vec<Operand> =
            keys.into_iter().map(|key| self.element_of(&key, dtype, descending)).collect();
        let to = self.array(dst)?;
        self.write_reduced(to, dtype, true, &elements);
        if let Some([result, _]) = carried {
            let values = place(&rows, key + 1..plan.words as usize, self.count(result)? as usize);
            let values: Vec<Operand> =
                values.into_iter().map(|words| elements::of_words(self.b, &words)).collect();
            let (to, dtype) = (self.array(result)?, self.verified.tensor(result).dtype);
            self.write_reduced(to, dtype, true, &values);
        }
        Ok(())
    }

    /// The items of each row: keys, with what goes along and its coordinate.
    fn items_to_sort(
        &mut self,
        src: TensorId,
        carried: Option<[TensorId; 2]>,
        descending: bool,
        plan: &SortPlan,
    ) -> Result<Vec<Vec<Item>>, Diagnostic> {
        let (dtype, from) = (self.verified.tensor(src).dtype, self.array(src)?);
        let with = match carried {
            Some([_, with]) => Some((self.array(with)?, self.verified.tensor(with).dtype)),
            None => None,
        };
        let thread = self.thread();
        let first = scalar::layout(self.b, &plan.along.first, thread);
        let mut rows = Vec::new();
        for row in &plan.along.rows {
            let mut items = Vec::new();
            for (value, at) in row.iter().zip(&plan.along.offsets) {
                let element = elements::read(self.b, from, *value, dtype);
                // A NaN is the last.
                let mut item = self.key_of(element, dtype, descending, [i64::from(i32::MAX), i64::MAX]);
                if let Some((array, dtype)) = with {
                    item.push(add(self.b, first, int(*at)));
                    item.extend(elements::read_words_of(self.b, array, *value, dtype));
                }
                items.push(item);
            }
            rows.push(items);
        }
        Ok(rows)
    }

    /// A bit of the coordinate of a row's value of this number.
    fn coordinate_bit(&mut self, plan: &SortPlan, number: usize, value: usize) -> Bit {
        let thread = self.thread();
        match plan.bits.get(number) {
            None => Bit::Known(false),
            Some(Place::Value(k)) => Bit::Known(value >> k & 1 == 1),
            Some(Place::Lane(k)) => Bit::Thread(bit(self.b, thread, *k)),
            Some(Place::Part(k)) => match &plan.meeting {
                Some(exchange) => {
                    let part = scalar::layout(self.b, &exchange.part, thread);
                    Bit::Thread(bit(self.b, part, *k))
                }
                None => Bit::Known(false),
            },
        }
    }

    /// The exclusive or of a condition and a bit.
    fn turned(&mut self, condition: Operand, by: Bit) -> Operand {
        match by {
            Bit::Known(false) => condition,
            Bit::Known(true) => self.b.scalar(ScalarOp::NotPred, &[condition]),
            Bit::Thread(by) => self.b.scalar(ScalarOp::XorPred, &[condition, by]),
        }
    }

    /// True if the first item comes before the second.
    fn comes_first(&mut self, key: RegType, first: &Item, second: &Item) -> Operand {
        let words = if key == RegType::B64 { 2 } else { 1 };
        let (less, equal) = self.ordered(key, &first[..words], &second[..words]);
        let (Some(x), Some(y)) = (first.get(words), second.get(words)) else { return less };
        let before = self.b.scalar(ScalarOp::LtI32, &[*x, *y]);
        let both = self.b.scalar(ScalarOp::AndPred, &[equal, before]);
        self.b.scalar(ScalarOp::XorPred, &[less, both])
    }

    /// One step of the network: elements whose coordinates differ in bit `step` are compared, in the order that bit `size` says.
    fn compare(
        &mut self,
        (plan, key): (&SortPlan, RegType),
        rows: &mut [Vec<Item>],
        step: usize,
        size: usize,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        if let Place::Value(k) = plan.bits[step] {
            for row in rows.iter_mut() {
                for low in (0..row.len()).filter(|value| value >> k & 1 == 0) {
                    let high = low | 1 << k;
                    let down = self.coordinate_bit(plan, size, low);
                    let swap = self.comes_first(key, &row[high], &row[low]);
                    let swap = self.turned(swap, down);
                    let (x, y) = (row[low].clone(), row[high].clone());
                    row[low] = self.chosen(swap, &y, &x);
                    row[high] = self.chosen(swap, &x, &y);
                }
            }
            return Ok(());
        }
        if let (Place::Part(_), Some(exchange)) = (plan.bits[step], &plan.meeting) {
            self.show(exchange, rows, plan.words, span)?;
        }
        let mut number = 0;
        for row in rows.iter_mut() {
            for (value, item) in row.iter_mut().enumerate() {
                let other = match (plan.bits[step], &plan.meeting) {
                    (Place::Part(k), Some(exchange)) => {
                        self.partner(exchange, number, 1 << k, plan.words, span)?
                    }
                    (Place::Lane(k), _) => self.shuffled(item, ShuffleMode::Bfly, int(1 << k)),
                    _ => return Err(internal(span, "a sort without an exchange")),
                };
                number += 1;
                // The upper one of both takes what comes later, and so does the lower one where the order is turned.
                let (upper, down) =
                    (self.coordinate_bit(plan, step, value), self.coordinate_bit(plan, size, value));
                let takes = self.comes_first(key, &other, item);
                let takes = self.turned(takes, upper);
                let takes = self.turned(takes, down);
                *item = self.chosen(takes, &other, item);
            }
        }
        Ok(())
    }

    /// The item of this number of the thread whose part differs in one bit.
    fn partner(
        &mut self,
        exchange: &Exchange,
        number: u32,
        mask: u32,
        words: u32,
        span: Origin,
    ) -> Result<Item, Diagnostic> {
        let load = thread_copy(Memory::Shared, Memory::Register, Scope::Cta, 4);
        let load = load.ok_or_else(|| internal(span, "no row loads a word"))?;
        let thread = self.thread();
        let part = scalar::layout(self.b, &exchange.part, thread);
        let part = self.b.scalar(ScalarOp::XorB32, &[part, int(i64::from(mask))]);
        let part = scalar::scale(self.b, part, i64::from(4 * exchange.stride()));
        let base = self.shown_at(exchange);
        let base = add(self.b, base, part);
        let array = self.b.add_array("partner", words);
        for word in 0..words {
            let offset = self.shown_offset(exchange, number, 0, word);
            self.b.load(load, vec![Reg { array, index: word }], Address { base, offset }, None);
        }
        Ok((0..words).map(|index| self.b.read(Reg { array, index })).collect())
    }
}
