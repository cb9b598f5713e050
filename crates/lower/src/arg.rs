//! The largest or the smallest element along a mode, with its coordinate.
//!
//! Elements are compared by keys: integers in the order of the elements, the largest the one that is looked for. A NaN has the least.

use tilewright_machine::{DType, ScalarOp, ShuffleMode};
use tilewright_simt::Operand;
use tilewright_synth::reduce::ArgPlan;
use tilewright_tile::{ArgOp, Diagnostic, Origin, TensorId};

use crate::context::Lower;
use crate::elements;
use crate::scalar::{self, add, int};
use crate::scan::{Item, Operator, computed};

/// The bits of the largest `f32`, infinity.
pub(crate) const INFINITY: i64 = 0x7f80_0000;

impl Lower<'_> {
    /// `value, index = argmax(src, axis)`, `argmin`.
    pub(crate) fn arg(
        &mut self,
        results: [TensorId; 2],
        src: TensorId,
        op: ArgOp,
        plan: &ArgPlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (dtype, from) = (self.verified.tensor(src).dtype, self.array(src)?);
        let ty = computed(dtype);
        let thread = self.thread();
        let first = scalar::layout(self.b, &plan.along.first, thread);
        let mut items: Vec<Item> = Vec::new();
        for row in &plan.along.rows {
            let mut found: Option<Item> = None;
            for (value, at) in row.iter().zip(&plan.along.offsets) {
                let element = elements::read(self.b, from, *value, dtype);
                let mut item = self.key(element, dtype, op);
                item.push(int(*at));
                found = Some(match found {
                    None => item,
                    // What comes later in a thread has the larger coordinate.
                    Some(before) => {
                        let key = item.len() - 1;
                        let (larger, _) = self.ordered(ty, &before[..key], &item[..key]);
                        self.chosen(larger, &item, &before)
                    }
                });
            }
            let mut item = found.unwrap_or_default();
            if let Some(place) = item.last_mut() {
                *place = add(self.b, *place, first);
            }
            for bit in plan.along.lanes() {
                let other = self.shuffled(&item, ShuffleMode::Bfly, int(1 << bit));
                item = self.combine(Operator::Arg(ty), &item, &other)?;
            }
            items.push(item);
        }
        if let Some(exchange) = &plan.meeting {
            let rows: Vec<Vec<Item>> = items.iter().map(|item| vec![item.clone()]).collect();
            self.show(exchange, &rows, plan.words, span)?;
            for (number, item) in (0..).zip(items.iter_mut()) {
                let parts = self.parts(exchange, number, plan.words, span)?;
                *item = self.together(Operator::Arg(ty), parts)?;
            }
        }
        let values: Vec<Operand> =
            items.iter().map(|item| self.element_of_key(&item[..item.len() - 1], dtype, op)).collect();
        let places: Vec<Operand> = items.iter().map(|item| item[item.len() - 1]).collect();
        self.hand_on(&values, results[0], true, &plan.last[0], span)?;
        self.hand_on(&places, results[1], true, &plan.last[1], span)
    }

    /// The words of the key of an element, an `f32`, an `i32`, or one of 64 bits.
    fn key(&mut self, element: Operand, dtype: DType, op: ArgOp) -> Item {
        self.key_of(element, dtype, op == ArgOp::Min, [i64::from(i32::MIN), i64::MIN])
    }

    /// The words of the key of an element in the order of the elements or in its opposite; that of a NaN, of 32 bits and of 64, is given.
    pub(crate) fn key_of(
        &mut self,
        element: Operand,
        dtype: DType,
        opposite: bool,
        of_nan: [i64; 2],
    ) -> Item {
        let ordered = self.in_order(element, dtype);
        let key = if opposite { self.turned_over(ordered, dtype) } else { ordered };
        let key = match dtype {
            DType::F64 => {
                let known = self.b.scalar(ScalarOp::EqF64, &[element, element]);
                let nan = Operand::Imm(of_nan[1].cast_unsigned());
                self.b.scalar(ScalarOp::SelectB64, &[key, nan, known])
            }
            _ if dtype.is_float() => {
                let size = self.b.scalar(ScalarOp::AndB32, &[element, int(0x7fff_ffff)]);
                let nan = self.b.scalar(ScalarOp::LtI32, &[int(INFINITY), size]);
                self.b.scalar(ScalarOp::Select, &[int(of_nan[0]), key, nan])
            }
            _ => key,
        };
        elements::words(self.b, key, dtype.bits())
    }

    /// The complement of a key, whose order is the opposite.
    fn turned_over(&mut self, key: Operand, dtype: DType) -> Operand {
        match dtype.bits() {
            64 => self.b.scalar(ScalarOp::XorB64, &[key, Operand::Imm(u64::MAX)]),
            _ => self.b.scalar(ScalarOp::XorB32, &[key, int(-1)]),
        }
    }

    /// The element of a key; of the least one of floats, a NaN.
    fn element_of_key(&mut self, key: &[Operand], dtype: DType, op: ArgOp) -> Operand {
        self.element_of(key, dtype, op == ArgOp::Min)
    }

    /// The element of a key in the order of the elements or in its opposite.
    pub(crate) fn element_of(&mut self, key: &[Operand], dtype: DType, opposite: bool) -> Operand {
        let key = elements::of_words(self.b, key);
        let ordered = if opposite { self.turned_over(key, dtype) } else { key };
        self.in_order(ordered, dtype)
    }

    /// An element as a signed integer in the order of the elements, and back.
    pub(crate) fn in_order(&mut self, x: Operand, dtype: DType) -> Operand {
        match dtype {
            DType::U32 => self.b.scalar(ScalarOp::XorB32, &[x, int(i64::from(i32::MIN))]),
            DType::U64 => self.b.scalar(ScalarOp::XorB64, &[x, Operand::Imm(1 << 63)]),
            DType::F64 => {
                let sign = self.b.scalar(ScalarOp::ShrI64, &[x, int(63)]);
                let turned = self.b.scalar(ScalarOp::AndB64, &[sign, Operand::Imm(u64::MAX >> 1)]);
                self.b.scalar(ScalarOp::XorB64, &[x, turned])
            }
            _ if dtype.is_float() => self.in_order_of_bits(x),
            _ => x,
        }
    }

    /// The bits of an `f32` as an integer in the order of the numbers, and back: of negative ones all but the sign turn over.
    fn in_order_of_bits(&mut self, x: Operand) -> Operand {
        let sign = self.b.scalar(ScalarOp::BfeS32, &[x, int(31), int(1)]);
        let turned = self.b.scalar(ScalarOp::AndB32, &[sign, int(0x7fff_ffff)]);
        self.b.scalar(ScalarOp::XorB32, &[x, turned])
    }
}
