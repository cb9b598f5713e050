//! Scans, and the exchange through shared memory that they share with reductions.
//!
//! A scan goes up its stages, the finest digits of the mode first: each puts together what threads hold, and keeps what it has seen.
//! Then it goes down: what comes before a group is led to the parts of the group, and at last to every value.

use std::ops::Range;

use tilewright_machine::{DType, Memory, ScalarOp, Scope, ShuffleMode, SyncOp, thread_copy};
use tilewright_simt::{Address, Operand, Reg, Special};
use tilewright_synth::along::{Exchange, Stage};
use tilewright_synth::scan::ScanPlan;
use tilewright_tile::{Diagnostic, Origin, ReduceOp, ScanOperands, TensorId};

use crate::bits::{bit, masked_linear_map};
use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, float, int, predicate};

/// The words of an item.
pub(crate) type Item = Vec<Operand>;

/// The items of each row of a thread.
type Rows = Vec<Vec<Item>>;

/// An associative operation on items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operator {
    /// One word.
    One(ScalarOp),
    /// Pairs (a, b) of h ↦ a·h + b: the second after the first.
    Linear,
    /// Pairs of a key and a coordinate: the larger key, of equal ones the smaller coordinate.
    Arg,
}

/// The instruction that puts two elements together, each an `f32` or an `i32`.
pub(crate) fn combining(dtype: DType, op: ReduceOp) -> ScalarOp {
    match (dtype.is_float(), op) {
        (true, ReduceOp::Sum) => ScalarOp::AddF32,
        (true, ReduceOp::Product) => ScalarOp::MulF32,
        (true, ReduceOp::Max) => ScalarOp::MaxF32,
        (true, ReduceOp::Min) => ScalarOp::MinF32,
        (false, ReduceOp::Sum) => ScalarOp::AddI32,
        (false, ReduceOp::Product) => ScalarOp::MulI32,
        (false, ReduceOp::Max) if dtype == DType::U32 => ScalarOp::MaxU32,
        (false, ReduceOp::Min) if dtype == DType::U32 => ScalarOp::MinU32,
        (false, ReduceOp::Max) => ScalarOp::MaxI32,
        (false, ReduceOp::Min) => ScalarOp::MinI32,
    }
}

impl Operator {
    /// The item that changes no other.
    fn neutral(self) -> Item {
        match self {
            Operator::Linear => vec![float(1.0), float(0.0)],
            Operator::Arg => vec![int(i64::from(i32::MIN)), int(i64::from(i32::MAX))],
            Operator::One(op) => vec![match op {
                ScalarOp::MulF32 => float(1.0),
                ScalarOp::MulI32 => int(1),
                // A NaN loses to every number.
                ScalarOp::MaxF32 | ScalarOp::MinF32 => float(f64::NAN),
                ScalarOp::MaxI32 => int(i64::from(i32::MIN)),
                ScalarOp::MinI32 => int(i64::from(i32::MAX)),
                ScalarOp::MinU32 => int(-1),
                _ => int(0),
            }],
        }
    }
}

/// The items that a stage has seen on the way up.
enum Seen {
    /// The items before the stage, in groups of so many.
    Values(Rows, usize),
    /// For each item what comes before it within the stage.
    Before(Rows),
}

/// A scan under way.
struct Scan<'p> {
    operator: Operator,
    plan: &'p ScanPlan,
    /// From the last element to the first.
    reverse: bool,
}

impl Lower<'_> {
    /// `dst = scan(…)`.
    pub(crate) fn scan(
        &mut self,
        dst: TensorId,
        operands: &ScanOperands,
        plan: &ScanPlan,
        reverse: bool,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let dtype = self.verified.tensor(dst).dtype;
        let operator = match operands {
            ScanOperands::One { op, .. } => Operator::One(combining(dtype, *op)),
            ScanOperands::Linear { .. } => Operator::Linear,
        };
        let arrays =
            operands.tensors().into_iter().map(|id| self.array(id)).collect::<Result<Vec<_>, _>>()?;
        let read = if dtype.is_float() { elements::read_f32 } else { elements::read_i32 };
        let mut items: Rows = Vec::new();
        for row in &plan.rows {
            let item = |value: &u32| arrays.iter().map(|array| read(self.b, *array, *value, dtype)).collect();
            items.push(row.iter().map(item).collect());
        }
        let before = self.before(operands, plan, dtype, span)?;
        let scan = Scan { operator, plan, reverse };
        let results = self.scanned(&scan, items, before, span)?;
        let mut ordered = vec![int(0); self.count(dst)? as usize];
        for (row, results) in plan.rows.iter().zip(results) {
            for (value, result) in row.iter().zip(results) {
                ordered[*value as usize] = result[result.len() - 1];
            }
        }
        let exact = matches!(operands, ScanOperands::One { op, .. } if !op.computes());
        let to = self.array(dst)?;
        self.write_reduced(to, dtype, exact, &ordered);
        Ok(())
    }

    /// The states before the first element of each row.
    fn before(
        &mut self,
        operands: &ScanOperands,
        plan: &ScanPlan,
        dtype: DType,
        span: Origin,
    ) -> Result<Vec<Option<Item>>, Diagnostic> {
        let rows = plan.rows.len();
        let ScanOperands::Linear { before, .. } = operands else { return Ok(vec![None; rows]) };
        // Of what comes before nothing is multiplied.
        let state = |h: Operand| Some(vec![float(1.0), h]);
        let (Some(before), Some(movement)) = (before, &plan.initial) else {
            return Ok(vec![state(float(0.0)); rows]);
        };
        let bits = dtype.bits();
        let from = self.array(*before)?;
        let count = self.count(*before)?;
        let to = self.b.add_array("before", elements::registers(rows as u32, bits));
        self.movement_of((from, to), (count, rows as u32), bits, movement, span)?;
        Ok((0..rows as u32).map(|row| state(elements::read_f32(self.b, to, row, dtype))).collect())
    }

    /// Every item put together with those before it.
    fn scanned(
        &mut self,
        scan: &Scan<'_>,
        elements: Rows,
        before: Vec<Option<Item>>,
        span: Origin,
    ) -> Result<Rows, Diagnostic> {
        let mut items = elements.clone();
        let mut seen = Vec::new();
        for (number, stage) in scan.plan.stages.iter().enumerate() {
            let more = number + 1 < scan.plan.stages.len();
            seen.push(match stage {
                Stage::Values(extent) => {
                    let extent = *extent as usize;
                    let groups = if more { self.groups(scan, &items, extent) } else { Vec::new() };
                    Seen::Values(std::mem::replace(&mut items, groups), extent)
                }
                Stage::Lanes(bits) => Seen::Before(self.lanes(scan, &mut items, bits, more)),
                Stage::Threads(exchange) => {
                    Seen::Before(self.groups_of_threads(scan, &mut items, exchange, more, span)?)
                }
            });
        }
        // What comes before each item of a stage, from the last stage down.
        let mut ahead: Vec<Vec<Option<Item>>> = before.into_iter().map(|first| vec![first]).collect();
        for stage in seen.iter().rev() {
            ahead = match stage {
                Seen::Values(items, extent) => self.led_on(scan, &ahead, items, *extent),
                Seen::Before(within) => ahead
                    .iter()
                    .zip(within)
                    .map(|(ahead, within)| {
                        let both = ahead.iter().zip(within);
                        both.map(|(first, then)| Some(self.after(scan.operator, first.as_ref(), then)))
                            .collect()
                    })
                    .collect(),
            };
        }
        let rows = ahead.iter().zip(&elements);
        Ok(rows
            .map(|(ahead, row)| {
                let both = ahead.iter().zip(row);
                both.map(|(first, item)| self.after(scan.operator, first.as_ref(), item)).collect()
            })
            .collect())
    }

    /// Two items put together, the first before the second.
    pub(crate) fn combine(&mut self, operator: Operator, first: &[Operand], second: &[Operand]) -> Item {
        match operator {
            Operator::One(op) => vec![self.b.scalar(op, &[first[0], second[0]])],
            Operator::Arg => {
                let larger = self.b.scalar(ScalarOp::LtI32, &[first[0], second[0]]);
                let equal = self.b.scalar(ScalarOp::EqI32, &[first[0], second[0]]);
                let before = self.b.scalar(ScalarOp::LtI32, &[second[1], first[1]]);
                let both = self.b.scalar(ScalarOp::AndPred, &[equal, before]);
                // One of both at most.
                let takes = self.b.scalar(ScalarOp::XorPred, &[larger, both]);
                self.chosen(takes, second, first)
            }
            Operator::Linear => {
                let [factor, term] = [second[0], second[1]];
                vec![
                    self.b.scalar(ScalarOp::MulF32, &[first[0], factor]),
                    self.b.scalar(ScalarOp::FmaF32, &[factor, first[1], term]),
                ]
            }
        }
    }

    fn after(&mut self, operator: Operator, first: Option<&Item>, item: &Item) -> Item {
        first.map_or_else(|| item.clone(), |first| self.combine(operator, first, item))
    }

    /// Neighbours put together pairwise.
    pub(crate) fn together(&mut self, operator: Operator, mut items: Vec<Item>) -> Item {
        while items.len() > 1 {
            items = items
                .chunks(2)
                .map(|pair| match pair {
                    [first, second] => self.combine(operator, first, second),
                    alone => alone[0].clone(),
                })
                .collect();
        }
        items.pop().unwrap_or_else(|| operator.neutral())
    }

    /// Groups of neighbouring items put together.
    fn groups(&mut self, scan: &Scan<'_>, items: &Rows, extent: usize) -> Rows {
        items
            .iter()
            .map(|row| {
                let groups = row.chunks(extent);
                groups.map(|group| self.together(scan.operator, scan.in_order(group.to_vec()))).collect()
            })
            .collect()
    }

    /// The items before each item, of those before each group of `extent`.
    fn led_on(
        &mut self,
        scan: &Scan<'_>,
        ahead: &[Vec<Option<Item>>],
        items: &Rows,
        extent: usize,
    ) -> Vec<Vec<Option<Item>>> {
        let mut rows = Vec::new();
        for (ahead, row) in ahead.iter().zip(items) {
            let mut led: Vec<Option<Item>> = Vec::new();
            for (first, group) in ahead.iter().zip(row.chunks(extent)) {
                let mut next = first.clone();
                let mut of_group = Vec::new();
                for item in scan.in_order(group.to_vec()) {
                    let then = self.after(scan.operator, next.as_ref(), &item);
                    of_group.push(next.replace(then));
                }
                led.extend(scan.in_order(of_group));
            }
            rows.push(led);
        }
        rows
    }

    /// A stage of lanes: what comes before each item among them. The items become what all these lanes come to, if there is `more`.
    fn lanes(&mut self, scan: &Scan<'_>, items: &mut Rows, bits: &[u32], more: bool) -> Rows {
        let lanes = self.lanes_of(bits, scan.reverse);
        let mut rows = Vec::new();
        for row in items.iter_mut() {
            let mut before = Vec::new();
            for item in row.iter_mut() {
                for (source, takes) in &lanes.steps {
                    let other = self.shuffled(item, ShuffleMode::Idx, *source);
                    let both = self.combine(scan.operator, &other, item);
                    *item = self.chosen(*takes, &both, item);
                }
                let (mode, distance) = lanes.neighbour;
                let next = self.shuffled(item, mode, distance);
                before.push(self.chosen(lanes.first, &scan.operator.neutral(), &next));
                if more {
                    *item = self.shuffled(item, ShuffleMode::Idx, lanes.last);
                }
            }
            rows.push(before);
        }
        rows
    }

    pub(crate) fn shuffled(&mut self, item: &Item, mode: ShuffleMode, operand: Operand) -> Item {
        item.iter().map(|word| self.b.shuffle(*word, mode, operand)).collect()
    }

    /// The first item where a condition holds, else the second.
    pub(crate) fn chosen(&mut self, condition: Operand, first: &[Operand], second: &[Operand]) -> Item {
        let both = first.iter().zip(second);
        both.map(|(x, y)| self.b.scalar(ScalarOp::Select, &[*x, *y, condition])).collect()
    }

    /// The lanes of a stage, of which these bits count the digit.
    fn lanes_of(&mut self, bits: &[u32], reverse: bool) -> Lanes {
        let thread = self.thread();
        let mask: i64 = bits.iter().map(|bit| 1 << bit).sum();
        let mut low = 0i64;
        let mut steps = Vec::new();
        for k in bits {
            let unit = 1i64 << k;
            // The end of the neighbouring half: the last of the lower one, or in reverse the first of the upper one.
            let ends = if reverse { [!low, unit] } else { [!unit, low] };
            let cleared = self.b.scalar(ScalarOp::AndB32, &[thread, int(ends[0])]);
            let source = self.b.scalar(ScalarOp::OrB32, &[cleared, int(ends[1])]);
            let set = if reverse {
                let masked = self.b.scalar(ScalarOp::AndB32, &[thread, int(unit)]);
                self.b.scalar(ScalarOp::EqI32, &[masked, int(0)])
            } else {
                bit(self.b, thread, *k)
            };
            steps.push((source, set));
            low |= unit;
        }
        let digit = self.b.scalar(ScalarOp::AndB32, &[thread, int(mask)]);
        let first = self.b.scalar(ScalarOp::EqI32, &[digit, int(if reverse { mask } else { 0 })]);
        let last = if reverse {
            self.b.scalar(ScalarOp::AndB32, &[thread, int(!mask)])
        } else {
            self.b.scalar(ScalarOp::OrB32, &[thread, int(mask)])
        };
        Lanes { steps, neighbour: self.neighbour(bits, reverse), first, last }
    }

    /// The lane one before in the digit that these bits count.
    fn neighbour(&mut self, bits: &[u32], reverse: bool) -> (ShuffleMode, Operand) {
        let contiguous = bits.windows(2).all(|pair| pair[1] == pair[0] + 1);
        if let (true, Some(unit)) = (contiguous, bits.first()) {
            let mode = if reverse { ShuffleMode::Down } else { ShuffleMode::Up };
            return (mode, int(1 << unit));
        }
        let thread = self.thread();
        let place = |lane: u32| bits.iter().position(|bit| *bit == lane).map_or(0, |digit| 1u64 << digit);
        let gathered: Vec<u64> = (0..5).map(place).collect();
        let spread: Vec<u64> = bits.iter().map(|bit| 1 << bit).collect();
        let digit = masked_linear_map(self.b, &gathered, thread, u64::MAX);
        let next = add(self.b, digit, int(if reverse { 1 } else { -1 }));
        let moved = masked_linear_map(self.b, &spread, next, u64::MAX);
        let mask: i64 = bits.iter().map(|bit| 1 << bit).sum();
        let others = self.b.scalar(ScalarOp::AndB32, &[thread, int(!mask)]);
        (ShuffleMode::Idx, self.b.scalar(ScalarOp::OrB32, &[others, moved]))
    }

    /// A stage of threads that meet in shared memory, like [`lanes`](Self::lanes).
    fn groups_of_threads(
        &mut self,
        scan: &Scan<'_>,
        items: &mut Rows,
        exchange: &Exchange,
        more: bool,
        span: Origin,
    ) -> Result<Rows, Diagnostic> {
        let words = scan.plan.words;
        let thread = self.thread();
        let part = scalar::layout(self.b, &exchange.part, thread);
        self.show(exchange, items, words, span)?;
        let mut rows = Vec::new();
        let mut number = 0;
        for row in items.iter_mut() {
            let mut before = Vec::new();
            for item in row.iter_mut() {
                let parts = self.parts(exchange, number, words, span)?;
                number += 1;
                let mut numbered: Vec<(i64, Item)> = (0..).zip(parts).collect();
                if scan.reverse {
                    numbered.reverse();
                }
                let mut sum: Option<Item> = None;
                for (number, shown) in &numbered[..numbered.len() - 1] {
                    let then = self.after(scan.operator, sum.as_ref(), shown);
                    let ends = if scan.reverse { [part, int(*number)] } else { [int(*number), part] };
                    let takes = self.b.scalar(ScalarOp::LtI32, &ends);
                    let so_far = sum.unwrap_or_else(|| scan.operator.neutral());
                    sum = Some(self.chosen(takes, &then, &so_far));
                }
                before.push(sum.unwrap_or_else(|| scan.operator.neutral()));
                if more {
                    *item =
                        self.together(scan.operator, numbered.into_iter().map(|(_, item)| item).collect());
                }
            }
            rows.push(before);
        }
        Ok(rows)
    }

    /// Stores the items of an exchange to the scratch buffer, and waits for all.
    pub(crate) fn show(
        &mut self,
        exchange: &Exchange,
        items: &[Vec<Item>],
        words: u32,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let store = thread_copy(Memory::Register, Memory::Shared, Scope::Cta, 4);
        let store = store.ok_or_else(|| internal(span, "no row stores a word"))?;
        // Others may still read what they exchanged before.
        if self.scratch_used || self.loops > 0 {
            self.b.sync(SyncOp::Barrier);
        }
        self.scratch_used = true;
        let thread = self.thread();
        let part = scalar::layout(self.b, &exchange.part, thread);
        let part = scalar::scale(self.b, part, i64::from(4 * exchange.stride()));
        let base = self.shown_at(exchange);
        let base = add(self.b, base, part);
        let guard = self.stores(exchange);
        let shown = self.b.add_array("shown", 1);
        let register = Reg { array: shown, index: 0 };
        for (number, item) in (0..).zip(items.iter().flatten()) {
            for (word, value) in (0..words).zip(item) {
                self.b.write(register, *value);
                let offset = self.shown_offset(exchange, number, 0, word);
                self.b.store(store, vec![register], Address { base, offset }, guard);
            }
        }
        self.b.sync(SyncOp::Barrier);
        Ok(())
    }

    /// The parts of the thread's item of this number.
    pub(crate) fn parts(
        &mut self,
        exchange: &Exchange,
        number: u32,
        words: u32,
        span: Origin,
    ) -> Result<Vec<Item>, Diagnostic> {
        self.shown(exchange, number, 0..exchange.extent, words, span)
    }

    /// Some parts of the thread's item of this number.
    pub(crate) fn shown(
        &mut self,
        exchange: &Exchange,
        number: u32,
        wanted: Range<u32>,
        words: u32,
        span: Origin,
    ) -> Result<Vec<Item>, Diagnostic> {
        let load = thread_copy(Memory::Shared, Memory::Register, Scope::Cta, 4);
        let load = load.ok_or_else(|| internal(span, "no row loads a word"))?;
        let base = self.shown_at(exchange);
        let array = self.b.add_array("parts", wanted.len() as u32 * words);
        let first = wanted.start;
        let mut parts = Vec::new();
        for part in wanted {
            let mut item = Vec::new();
            for word in 0..words {
                let register = Reg { array, index: (part - first) * words + word };
                let offset = self.shown_offset(exchange, number, part, word);
                self.b.load(load, vec![register], Address { base, offset }, None);
                item.push(register);
            }
            parts.push(item);
        }
        let read = |item: Vec<Reg>| item.into_iter().map(|register| self.b.read(register)).collect();
        Ok(parts.into_iter().map(read).collect())
    }

    /// The byte of the scratch buffer at which a part's word of an item lies, from the thread's base.
    pub(crate) fn shown_offset(&self, exchange: &Exchange, number: u32, part: u32, word: u32) -> i32 {
        let words = exchange.step * number + exchange.stride() * (part + exchange.extent * word);
        (self.memory.scratch + 4 * words) as i32
    }

    /// The thread's base in the window of shared memory.
    pub(crate) fn shown_at(&mut self, exchange: &Exchange) -> Operand {
        let thread = self.thread();
        let place = scalar::layout(self.b, &exchange.place, thread);
        let bytes = scalar::scale(self.b, place, 4);
        let window = Operand::Value(self.b.special(Special::SharedBase));
        add(self.b, window, bytes)
    }

    /// The condition under which a thread is the one of those who hold the same that stores it.
    fn stores(&mut self, exchange: &Exchange) -> Option<tilewright_simt::Value> {
        let thread = self.thread();
        let (mut done, mut mask, mut odd) = (1i64, 0i64, false);
        for (extent, step) in exchange.copies.leaves() {
            if step != 0 && done.count_ones() == 1 && extent.count_ones() == 1 {
                mask |= (extent - 1) * done;
            } else {
                odd |= step != 0;
            }
            done *= extent;
        }
        let number = match (odd, mask) {
            (false, 0) => return None,
            (false, mask) => self.b.scalar(ScalarOp::AndB32, &[thread, int(mask)]),
            (true, _) => scalar::layout(self.b, &exchange.copies, thread),
        };
        let first = self.b.scalar(ScalarOp::EqI32, &[number, int(0)]);
        predicate(self.b, Some(first))
    }
}

/// The lanes of a stage.
struct Lanes {
    /// The lane that each step takes from, and the condition under which it does.
    steps: Vec<(Operand, Operand)>,
    /// The lane one before.
    neighbour: (ShuffleMode, Operand),
    /// True in the first lane, which has none before it.
    first: Operand,
    /// The last lane.
    last: Operand,
}

impl Scan<'_> {
    /// Items in the order in which they are put together, and back.
    fn in_order<T>(&self, mut items: Vec<T>) -> Vec<T> {
        if self.reverse {
            items.reverse();
        }
        items
    }
}
