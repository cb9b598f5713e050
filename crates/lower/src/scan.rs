//! Scans, and the exchange through shared memory that they share with reductions.
//!
//! A scan goes up its stages, the finest digits of the mode first: each puts together what threads hold, and keeps what it has seen.
//! Then it goes down: what comes before a group is led to the parts of the group, and at last to every value.

use std::ops::Range;

use tilewright_machine::{
    DType, Memory, RegType, ScalarOp, Scope, ShuffleMode, SyncOp, registers_of, thread_copy,
};
use tilewright_simt::{Address, Operand, Reg, Special};
use tilewright_synth::along::{Exchange, Stage};
use tilewright_synth::combine::CombinePlan;
use tilewright_synth::scan::ScanPlan;
use tilewright_tile::{Combination, Diagnostic, Origin, ReduceOp, Rounded, ScanOperands, TensorId, combined};

use crate::bits::{bit, masked_linear_map};
use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, float, int, predicate};

/// The words of an item.
pub(crate) type Item = Vec<Operand>;

/// The items of each row of a thread.
type Rows = Vec<Vec<Item>>;

/// An associative operation on items.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Operator<'p> {
    /// One number, of one word or of two.
    One(ScalarOp),
    /// Pairs (a, b) of h ↦ a·h + b, of `f32`, or of `f64` of two words each: the second after the first.
    Linear(RegType),
    /// Pairs of a key, of one word or of two, and a coordinate: the larger key, of equal ones the smaller coordinate.
    Arg(RegType),
    /// Tuples that a function of the program puts together, with the words of each element. Behind those of a tuple stands one that is 0 of none.
    Function(&'p [Rounded], &'p [u32]),
}

/// The type of the numbers that elements of a type are computed with.
pub(crate) fn computed(dtype: DType) -> RegType {
    if dtype.bits() == 64 { RegType::B64 } else { RegType::B32 }
}

/// The instruction that puts two elements of 64 bits together.
fn combining_wide(dtype: DType, op: ReduceOp) -> ScalarOp {
    match (dtype, op) {
        (DType::F64, ReduceOp::Sum) => ScalarOp::AddF64,
        (DType::F64, ReduceOp::Product) => ScalarOp::MulF64,
        (DType::F64, ReduceOp::Max) => ScalarOp::MaxF64,
        (DType::F64, ReduceOp::Min) => ScalarOp::MinF64,
        (_, ReduceOp::Sum) => ScalarOp::AddI64,
        (_, ReduceOp::Product) => ScalarOp::MulI64,
        (DType::U64, ReduceOp::Max) => ScalarOp::MaxU64,
        (DType::U64, ReduceOp::Min) => ScalarOp::MinU64,
        (_, ReduceOp::Max) => ScalarOp::MaxI64,
        (_, ReduceOp::Min) => ScalarOp::MinI64,
    }
}

/// The instruction that puts two elements together, each an `f32`, an `i32`, or of 64 bits.
pub(crate) fn combining(dtype: DType, op: ReduceOp) -> ScalarOp {
    if dtype.bits() == 64 {
        return combining_wide(dtype, op);
    }
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

impl Operator<'_> {
    /// The item that changes no other.
    fn neutral(self) -> Item {
        match self {
            Operator::Function(_, widths) => vec![int(0); widths.iter().sum::<u32>() as usize + 1],
            Operator::Linear(RegType::B64) => [halves(1f64.to_bits()), halves(0)].concat(),
            Operator::Linear(_) => vec![float(1.0), float(0.0)],
            Operator::Arg(RegType::B64) => {
                [halves(i64::MIN.cast_unsigned()), vec![int(i64::from(i32::MAX))]].concat()
            }
            Operator::Arg(_) => vec![int(i64::from(i32::MIN)), int(i64::from(i32::MAX))],
            Operator::One(op) if op.row().result == RegType::B64 => halves(match op {
                ScalarOp::MulF64 => 1f64.to_bits(),
                ScalarOp::MulI64 => 1,
                // A NaN loses to every number.
                ScalarOp::MaxF64 | ScalarOp::MinF64 => f64::NAN.to_bits(),
                ScalarOp::MaxI64 => i64::MIN.cast_unsigned(),
                ScalarOp::MinI64 => i64::MAX.cast_unsigned(),
                ScalarOp::MinU64 => u64::MAX,
                _ => 0,
            }),
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

/// The words of each element of a tuple.
fn words_of_each(widths: &[u32]) -> impl Iterator<Item = Range<usize>> {
    widths.iter().scan(0, |first, width| {
        let words = *first..*first + *width as usize;
        *first = words.end;
        Some(words)
    })
}

/// The words of a literal of 64 bits.
fn halves(bits: u64) -> Item {
    vec![Operand::Imm(bits & 0xffff_ffff), Operand::Imm(bits >> 32)]
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
    operator: Operator<'p>,
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
            ScanOperands::Linear { .. } => Operator::Linear(computed(dtype)),
        };
        let arrays =
            operands.tensors().into_iter().map(|id| self.array(id)).collect::<Result<Vec<_>, _>>()?;
        let mut items: Rows = Vec::new();
        for row in &plan.rows {
            let item = |value: &u32| {
                let words = arrays.iter().map(|array| elements::read_words_of(self.b, *array, *value, dtype));
                words.collect::<Vec<Item>>().concat()
            };
            items.push(row.iter().map(item).collect());
        }
        let before = self.before(operands, plan, dtype, span)?;
        let scan = Scan { operator, plan, reverse };
        let results = self.scanned(&scan, items, before, span)?;
        let mut ordered = vec![int(0); self.count(dst)? as usize];
        for (row, results) in plan.rows.iter().zip(results) {
            for (value, result) in row.iter().zip(results) {
                let words = result.len().min(tilewright_machine::registers_of(dtype.bits()) as usize);
                ordered[*value as usize] = elements::of_words(self.b, &result[result.len() - words..]);
            }
        }
        let exact = matches!(operands, ScanOperands::One { op, .. } if !op.computes());
        let to = self.array(dst)?;
        self.write_reduced(to, dtype, exact, &ordered);
        Ok(())
    }

    /// The tuples of each row of a thread, each with the word that it is there.
    pub(crate) fn tuples(&mut self, srcs: &[TensorId], rows: &[Vec<u32>]) -> Result<Rows, Diagnostic> {
        let mut sources = Vec::new();
        for src in srcs {
            sources.push((self.array(*src)?, self.verified.tensor(*src).dtype));
        }
        let mut items: Rows = Vec::new();
        for row in rows {
            let item = |value: &u32| {
                let words = sources
                    .iter()
                    .flat_map(|(array, dtype)| elements::read_words_of(self.b, *array, *value, *dtype));
                words.chain([int(1)]).collect()
            };
            items.push(row.iter().map(item).collect());
        }
        Ok(items)
    }

    /// The operations of a function that puts tuples of these tensors together, and the words of each element.
    pub(crate) fn trees(
        &self,
        by: &Combination,
        srcs: &[TensorId],
        span: Origin,
    ) -> Result<(Vec<Rounded>, Vec<u32>), Diagnostic> {
        let dtypes: Vec<DType> = srcs.iter().map(|src| self.verified.tensor(*src).dtype).collect();
        let trees = combined(by, &dtypes, self.verified)
            .map_err(|_| internal(span, "types that clash, which the verifier refuses"))?;
        Ok((trees, dtypes.iter().map(|dtype| registers_of(dtype.bits())).collect()))
    }

    /// `m, s = scan((x, e), f, …)`.
    pub(crate) fn combined_scan(
        &mut self,
        (dsts, srcs): (&[TensorId], &[TensorId]),
        by: &Combination,
        plan: &ScanPlan,
        reverse: bool,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (trees, widths) = self.trees(by, srcs, span)?;
        let items = self.tuples(srcs, &plan.rows)?;
        let scan = Scan { operator: Operator::Function(&trees, &widths), plan, reverse };
        let results = self.scanned(&scan, items, vec![None; plan.rows.len()], span)?;
        for (words, dst) in words_of_each(&widths).zip(dsts) {
            let mut ordered = vec![int(0); self.count(*dst)? as usize];
            for (row, results) in plan.rows.iter().zip(&results) {
                for (value, result) in row.iter().zip(results) {
                    ordered[*value as usize] = elements::of_words(self.b, &result[words.clone()]);
                }
            }
            let (to, dtype) = (self.array(*dst)?, self.verified.tensor(*dst).dtype);
            self.write_reduced(to, dtype, false, &ordered);
        }
        Ok(())
    }

    /// `m, s = reduce((x, e), f, …)`: up the stages of a scan, at whose end every thread has what its rows come to.
    pub(crate) fn combined_reduction(
        &mut self,
        (dsts, srcs): (&[TensorId], &[TensorId]),
        by: &Combination,
        plan: &CombinePlan,
        span: Origin,
    ) -> Result<(), Diagnostic> {
        let (trees, widths) = self.trees(by, srcs, span)?;
        let mut items = self.tuples(srcs, &plan.up.rows)?;
        let scan = Scan { operator: Operator::Function(&trees, &widths), plan: &plan.up, reverse: false };
        for stage in &plan.up.stages {
            match stage {
                Stage::Values(extent) => items = self.groups(&scan, &items, *extent as usize)?,
                Stage::Lanes(bits) => {
                    for item in items.iter_mut().flatten() {
                        for lane in bits {
                            let other = self.shuffled(item, ShuffleMode::Bfly, int(1 << lane));
                            let thread = self.thread();
                            let upper = bit(self.b, thread, *lane);
                            let first = self.chosen(upper, &other, item);
                            let second = self.chosen(upper, item, &other);
                            *item = self.combine(scan.operator, &first, &second)?;
                        }
                    }
                }
                Stage::Threads(exchange) => {
                    self.groups_of_threads(&scan, &mut items, exchange, true, span)?;
                }
            }
        }
        for (words, (dst, last)) in words_of_each(&widths).zip(dsts.iter().zip(&plan.last)) {
            let items = items.iter().flatten();
            let values: Vec<Operand> =
                items.map(|item| elements::of_words(self.b, &item[words.clone()])).collect();
            self.hand_on(&values, *dst, false, last, span)?;
        }
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
        let one = if computed(dtype) == RegType::B64 { halves(1f64.to_bits()) } else { vec![float(1.0)] };
        let state = |h: Item| Some([one.clone(), h].concat());
        let (Some(before), Some(movement)) = (before, &plan.initial) else {
            return Ok(vec![Some(Operator::Linear(computed(dtype)).neutral()); rows]);
        };
        let bits = dtype.bits();
        let from = self.array(*before)?;
        let count = self.count(*before)?;
        let to = self.b.add_array("before", elements::registers(rows as u32, bits));
        self.movement_of((from, to), (count, rows as u32), bits, movement, span)?;
        Ok((0..rows as u32).map(|row| state(elements::read_words_of(self.b, to, row, dtype))).collect())
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
                    let groups = if more { self.groups(scan, &items, extent)? } else { Vec::new() };
                    Seen::Values(std::mem::replace(&mut items, groups), extent)
                }
                Stage::Lanes(bits) => Seen::Before(self.lanes(scan, &mut items, bits, more)?),
                Stage::Threads(exchange) => {
                    Seen::Before(self.groups_of_threads(scan, &mut items, exchange, more, span)?)
                }
            });
        }
        // What comes before each item of a stage, from the last stage down.
        let mut ahead: Vec<Vec<Option<Item>>> = before.into_iter().map(|first| vec![first]).collect();
        for stage in seen.iter().rev() {
            ahead = match stage {
                Seen::Values(items, extent) => self.led_on(scan, &ahead, items, *extent)?,
                Seen::Before(within) => {
                    let mut led = Vec::new();
                    for (ahead, within) in ahead.iter().zip(within) {
                        let both = ahead.iter().zip(within);
                        let both = both.map(|(first, then)| self.after(scan.operator, first.as_ref(), then));
                        led.push(both.map(|item| item.map(Some)).collect::<Result<_, _>>()?);
                    }
                    led
                }
            };
        }
        let mut results = Vec::new();
        for (ahead, row) in ahead.iter().zip(&elements) {
            let both = ahead.iter().zip(row);
            let both = both.map(|(first, item)| self.after(scan.operator, first.as_ref(), item));
            results.push(both.collect::<Result<_, _>>()?);
        }
        Ok(results)
    }

    /// Two items put together, the first before the second.
    pub(crate) fn combine(
        &mut self,
        operator: Operator<'_>,
        first: &[Operand],
        second: &[Operand],
    ) -> Result<Item, Diagnostic> {
        Ok(match operator {
            Operator::One(op) => {
                let both = [first, second].map(|item| elements::of_words(self.b, item));
                let result = self.b.scalar(op, &both);
                elements::words(self.b, result, 32 * first.len() as u32)
            }
            Operator::Arg(ty) => {
                let [(larger, equal), (before, _)] = [
                    self.ordered(ty, &first[..first.len() - 1], &second[..second.len() - 1]),
                    self.ordered(RegType::B32, &second[second.len() - 1..], &first[first.len() - 1..]),
                ];
                let both = self.b.scalar(ScalarOp::AndPred, &[equal, before]);
                // One of both at most.
                let takes = self.b.scalar(ScalarOp::XorPred, &[larger, both]);
                self.chosen(takes, second, first)
            }
            Operator::Linear(RegType::B64) => {
                let [a, b] = [first, second]
                    .map(|item| [&item[..2], &item[2..]].map(|words| elements::of_words(self.b, words)));
                let factor = self.b.scalar(ScalarOp::MulF64, &[a[0], b[0]]);
                let term = self.b.scalar(ScalarOp::FmaF64, &[b[0], a[1], b[1]]);
                [factor, term].map(|x| elements::words(self.b, x, 64)).concat()
            }
            Operator::Linear(_) => {
                let [factor, term] = [second[0], second[1]];
                vec![
                    self.b.scalar(ScalarOp::MulF32, &[first[0], factor]),
                    self.b.scalar(ScalarOp::FmaF32, &[factor, first[1], term]),
                ]
            }
            Operator::Function(trees, widths) => self.tuple((trees, widths), first, second)?,
        })
    }

    /// The conditions that the first of two integers, each of one word or of two, is less, and that both are equal.
    pub(crate) fn ordered(
        &mut self,
        ty: RegType,
        first: &[Operand],
        second: &[Operand],
    ) -> (Operand, Operand) {
        let [less, equal] = match ty {
            RegType::B64 => [ScalarOp::LtI64, ScalarOp::EqI64],
            _ => [ScalarOp::LtI32, ScalarOp::EqI32],
        };
        let both = [first, second].map(|words| elements::of_words(self.b, words));
        (self.b.scalar(less, &both), self.b.scalar(equal, &both))
    }

    /// Two tuples put together, of which either may be none.
    fn tuple(
        &mut self,
        function: (&[Rounded], &[u32]),
        first: &[Operand],
        second: &[Operand],
    ) -> Result<Item, Diagnostic> {
        let count = function.1.iter().sum::<u32>() as usize;
        let mut item = self.both_tuples(function, &first[..count], &second[..count])?;
        let there = [first[count], second[count]];
        for (flag, other) in [(there[1], first), (there[0], second)] {
            if flag != int(1) {
                let there = self.b.scalar(ScalarOp::NeI32, &[flag, int(0)]);
                item = self.chosen(there, &item, &other[..count]);
            }
        }
        item.push(match there {
            [one, other] if one == int(1) || other == int(1) => int(1),
            [one, other] => self.b.scalar(ScalarOp::OrB32, &[one, other]),
        });
        Ok(item)
    }

    /// Two tuples put together by a function, of which the elements have so many words.
    pub(crate) fn both_tuples(
        &mut self,
        (trees, widths): (&[Rounded], &[u32]),
        first: &[Operand],
        second: &[Operand],
    ) -> Result<Item, Diagnostic> {
        let mut operands = Vec::new();
        for tuple in [first, second] {
            operands.extend(words_of_each(widths).map(|words| elements::of_words(self.b, &tuple[words])));
        }
        let results = self.function_of(trees, &operands)?;
        let words = results.into_iter().zip(widths);
        Ok(words.flat_map(|(result, width)| elements::words(self.b, result, 32 * width)).collect())
    }

    fn after(
        &mut self,
        operator: Operator<'_>,
        first: Option<&Item>,
        item: &Item,
    ) -> Result<Item, Diagnostic> {
        first.map_or_else(|| Ok(item.clone()), |first| self.combine(operator, first, item))
    }

    /// Neighbours put together pairwise.
    pub(crate) fn together(
        &mut self,
        operator: Operator<'_>,
        mut items: Vec<Item>,
    ) -> Result<Item, Diagnostic> {
        while items.len() > 1 {
            let pair = |pair: &[Item]| match pair {
                [first, second] => self.combine(operator, first, second),
                alone => Ok(alone[0].clone()),
            };
            items = items.chunks(2).map(pair).collect::<Result<_, _>>()?;
        }
        Ok(items.pop().unwrap_or_else(|| operator.neutral()))
    }

    /// Groups of neighbouring items put together.
    fn groups(&mut self, scan: &Scan<'_>, items: &Rows, extent: usize) -> Result<Rows, Diagnostic> {
        let mut rows = Vec::new();
        for row in items {
            let groups = row.chunks(extent);
            let together = groups.map(|group| self.together(scan.operator, scan.in_order(group.to_vec())));
            rows.push(together.collect::<Result<_, _>>()?);
        }
        Ok(rows)
    }

    /// The items before each item, of those before each group of `extent`.
    fn led_on(
        &mut self,
        scan: &Scan<'_>,
        ahead: &[Vec<Option<Item>>],
        items: &Rows,
        extent: usize,
    ) -> Result<Vec<Vec<Option<Item>>>, Diagnostic> {
        let mut rows = Vec::new();
        for (ahead, row) in ahead.iter().zip(items) {
            let mut led: Vec<Option<Item>> = Vec::new();
            for (first, group) in ahead.iter().zip(row.chunks(extent)) {
                let mut next = first.clone();
                let mut of_group = Vec::new();
                for item in scan.in_order(group.to_vec()) {
                    let then = self.after(scan.operator, next.as_ref(), &item)?;
                    of_group.push(next.replace(then));
                }
                led.extend(scan.in_order(of_group));
            }
            rows.push(led);
        }
        Ok(rows)
    }

    /// A stage of lanes: what comes before each item among them. The items become what all these lanes come to, if there is `more`.
    fn lanes(
        &mut self,
        scan: &Scan<'_>,
        items: &mut Rows,
        bits: &[u32],
        more: bool,
    ) -> Result<Rows, Diagnostic> {
        let lanes = self.lanes_of(bits, scan.reverse);
        let mut rows = Vec::new();
        for row in items.iter_mut() {
            let mut before = Vec::new();
            for item in row.iter_mut() {
                for (source, takes) in &lanes.steps {
                    let other = self.shuffled(item, ShuffleMode::Idx, *source);
                    let both = self.combine(scan.operator, &other, item)?;
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
        Ok(rows)
    }

    pub(crate) fn shuffled(&mut self, item: &Item, mode: ShuffleMode, operand: Operand) -> Item {
        let word = |word: &Operand| match word {
            // Alike in all lanes.
            Operand::Imm(_) => *word,
            Operand::Value(_) => self.b.shuffle(*word, mode, operand),
        };
        item.iter().map(word).collect()
    }

    /// The first item where a condition holds, else the second.
    pub(crate) fn chosen(&mut self, condition: Operand, first: &[Operand], second: &[Operand]) -> Item {
        let both = first.iter().zip(second);
        let choose = |(x, y): (&Operand, &Operand)| {
            if x == y { *x } else { self.b.scalar(ScalarOp::Select, &[*x, *y, condition]) }
        };
        both.map(choose).collect()
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
                let mut parts = self.parts(exchange, number, words, span)?;
                // What was shown is there.
                let beyond = item.len() - words as usize;
                parts.iter_mut().for_each(|part| part.extend(vec![int(1); beyond]));
                number += 1;
                let mut numbered: Vec<(i64, Item)> = (0..).zip(parts).collect();
                if scan.reverse {
                    numbered.reverse();
                }
                let mut sum: Option<Item> = None;
                for (number, shown) in &numbered[..numbered.len() - 1] {
                    let then = self.after(scan.operator, sum.as_ref(), shown)?;
                    let ends = if scan.reverse { [part, int(*number)] } else { [int(*number), part] };
                    let takes = self.b.scalar(ScalarOp::LtI32, &ends);
                    let so_far = sum.unwrap_or_else(|| scan.operator.neutral());
                    sum = Some(self.chosen(takes, &then, &so_far));
                }
                before.push(sum.unwrap_or_else(|| scan.operator.neutral()));
                if more {
                    *item =
                        self.together(scan.operator, numbered.into_iter().map(|(_, item)| item).collect())?;
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
