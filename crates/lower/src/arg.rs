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
use crate::scan::{Item, Operator};

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
        let read = if dtype.is_float() { elements::read_f32 } else { elements::read_i32 };
        let thread = self.thread();
        let first = scalar::layout(self.b, &plan.along.first, thread);
        let mut items: Vec<Item> = Vec::new();
        for row in &plan.along.rows {
            let mut found: Option<Item> = None;
            for (value, at) in row.iter().zip(&plan.along.offsets) {
                let element = read(self.b, from, *value, dtype);
                let item = vec![self.key(element, dtype, op), int(*at)];
                found = Some(match found {
                    None => item,
                    // What comes later in a thread has the larger coordinate.
                    Some(before) => {
                        let larger = self.b.scalar(ScalarOp::LtI32, &[before[0], item[0]]);
                        self.chosen(larger, &item, &before)
                    }
                });
            }
            let mut item = found.unwrap_or_default();
            item[1] = add(self.b, item[1], first);
            for bit in plan.along.lanes() {
                let other = self.shuffled(&item, ShuffleMode::Bfly, int(1 << bit));
                item = self.combine(Operator::Arg, &item, &other);
            }
            items.push(item);
        }
        if let Some(exchange) = &plan.meeting {
            let rows: Vec<Vec<Item>> = items.iter().map(|item| vec![item.clone()]).collect();
            self.show(exchange, &rows, 2, span)?;
            for (number, item) in (0..).zip(items.iter_mut()) {
                let parts = self.parts(exchange, number, 2, span)?;
                *item = self.together(Operator::Arg, parts);
            }
        }
        let values: Vec<Operand> = items.iter().map(|item| self.element_of_key(item[0], dtype, op)).collect();
        let places: Vec<Operand> = items.iter().map(|item| item[1]).collect();
        self.hand_on(&values, results[0], true, &plan.last[0], span)?;
        self.hand_on(&places, results[1], true, &plan.last[1], span)
    }

    /// The key of an element, an `f32` or an `i32`.
    fn key(&mut self, element: Operand, dtype: DType, op: ArgOp) -> Operand {
        let ordered = self.in_order(element, dtype);
        let key = match op {
            ArgOp::Max => ordered,
            ArgOp::Min => self.b.scalar(ScalarOp::XorB32, &[ordered, int(-1)]),
        };
        if !dtype.is_float() {
            return key;
        }
        let size = self.b.scalar(ScalarOp::AndB32, &[element, int(0x7fff_ffff)]);
        let nan = self.b.scalar(ScalarOp::LtI32, &[int(INFINITY), size]);
        self.b.scalar(ScalarOp::Select, &[int(i64::from(i32::MIN)), key, nan])
    }

    /// The element of a key; of the least one of floats, a NaN.
    fn element_of_key(&mut self, key: Operand, dtype: DType, op: ArgOp) -> Operand {
        let ordered = match op {
            ArgOp::Max => key,
            ArgOp::Min => self.b.scalar(ScalarOp::XorB32, &[key, int(-1)]),
        };
        self.in_order(ordered, dtype)
    }

    /// An element as a signed integer in the order of the elements, and back.
    pub(crate) fn in_order(&mut self, x: Operand, dtype: DType) -> Operand {
        match dtype {
            DType::U32 => self.b.scalar(ScalarOp::XorB32, &[x, int(i64::from(i32::MIN))]),
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
