//! Sorts along a mode by a bitonic network.
//!
//! Elements are compared by keys: integers in the order that is asked for, a NaN the last. What goes along with them is compared by the
//! coordinate that it had where keys are equal, so that what is equal keeps its order.

use tilewright_machine::{DType, Memory, ScalarOp, Scope, ShuffleMode, thread_copy};
use tilewright_simt::{Address, Operand, Reg};
use tilewright_synth::along::{Exchange, Place};
use tilewright_synth::sort::SortPlan;
use tilewright_tile::{Diagnostic, Origin, TensorId};

use crate::arg::INFINITY;
use crate::bits::bit;
use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, int};
use crate::scan::Item;

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
                self.compare(plan, &mut rows, step, size, span)?;
            }
        }
        let place = |rows: &[Vec<Item>], word: usize, count: usize| {
            let mut ordered = vec![int(0); count];
            for (row, items) in plan.along.rows.iter().zip(rows) {
                row.iter().zip(items).for_each(|(value, item)| ordered[*value as usize] = item[word]);
            }
            ordered
        };
        let keys = place(&rows, 0, self.count(dst)? as usize);
        let elements: Vec<Operand> =
            keys.into_iter().map(|key| self.element_in_order(key, dtype, descending)).collect();
        let to = self.array(dst)?;
        self.write_reduced(to, dtype, true, &elements);
        if let Some([result, _]) = carried {
            let values = place(&rows, 2, self.count(result)? as usize);
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
                let element = self.read_word(from, *value, dtype);
                let mut item = vec![self.key_in_order(element, dtype, descending)];
                if let Some((array, dtype)) = with {
                    item.push(add(self.b, first, int(*at)));
                    item.push(self.read_word(array, *value, dtype));
                }
                items.push(item);
            }
            rows.push(items);
        }
        Ok(rows)
    }

    fn read_word(&mut self, array: tilewright_simt::ArrayId, value: u32, dtype: DType) -> Operand {
        let read = if dtype.is_float() { elements::read_f32 } else { elements::read_i32 };
        read(self.b, array, value, dtype)
    }

    /// The key of an element: a signed integer, the first in order the least.
    fn key_in_order(&mut self, element: Operand, dtype: DType, descending: bool) -> Operand {
        let ordered = self.in_order(element, dtype);
        let key = if descending { self.b.scalar(ScalarOp::XorB32, &[ordered, int(-1)]) } else { ordered };
        if !dtype.is_float() {
            return key;
        }
        let size = self.b.scalar(ScalarOp::AndB32, &[element, int(0x7fff_ffff)]);
        let nan = self.b.scalar(ScalarOp::LtI32, &[int(INFINITY), size]);
        self.b.scalar(ScalarOp::Select, &[int(i64::from(i32::MAX)), key, nan])
    }

    /// The element of a key.
    fn element_in_order(&mut self, key: Operand, dtype: DType, descending: bool) -> Operand {
        let ordered = if descending { self.b.scalar(ScalarOp::XorB32, &[key, int(-1)]) } else { key };
        self.in_order(ordered, dtype)
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
    fn comes_first(&mut self, first: &Item, second: &Item) -> Operand {
        let less = self.b.scalar(ScalarOp::LtI32, &[first[0], second[0]]);
        let (Some(x), Some(y)) = (first.get(1), second.get(1)) else { return less };
        let equal = self.b.scalar(ScalarOp::EqI32, &[first[0], second[0]]);
        let before = self.b.scalar(ScalarOp::LtI32, &[*x, *y]);
        let both = self.b.scalar(ScalarOp::AndPred, &[equal, before]);
        self.b.scalar(ScalarOp::XorPred, &[less, both])
    }

    /// One step of the network: elements whose coordinates differ in bit `step` are compared, in the order that bit `size` says.
    fn compare(
        &mut self,
        plan: &SortPlan,
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
                    let swap = self.comes_first(&row[high], &row[low]);
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
                let takes = self.comes_first(&other, item);
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
