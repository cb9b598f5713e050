//! Values of expressions as far as they are known before a launch.

use crate::expr::{Expr, IntOp, SymbolId};
use crate::printer::Names;

/// The iterations that a loop from `lo` to `hi` has at least, whatever the sizes and in every block; 0 where that depends on them.
pub fn least_iterations(program: &dyn Names, lo: &Expr, hi: &Expr) -> i64 {
    let of = |e| Interval::of(program, e, None, &|_| None);
    of(lo).least_iterations(of(hi))
}

/// The least and the greatest value of an expression, as far as they are known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Interval {
    low: Option<i64>,
    high: Option<i64>,
}

impl Interval {
    /// The values of an expression whatever the sizes, in the blocks of one index along every axis or in all; `counter` knows some counters.
    pub(crate) fn of(
        program: &dyn Names,
        expr: &Expr,
        block: Option<i64>,
        counter: &dyn Fn(SymbolId) -> Option<i64>,
    ) -> Interval {
        match expr {
            Expr::Int(value) => Interval::exactly(*value),
            Expr::Symbol(id) => match program.is_size(*id) {
                true => Interval { low: Some(1), high: None },
                false => counter(*id).map_or(Interval::default(), Interval::exactly),
            },
            Expr::Block(_) => block.map_or(Interval { low: Some(0), high: None }, Interval::exactly),
            Expr::Element(..) | Expr::Scalar(_) => Interval::default(),
            Expr::Binary(op, a, b) => {
                let of = |e| Interval::of(program, e, block, counter);
                of(a).apply(*op, of(b))
            }
        }
    }

    /// The least value, where it is known.
    pub(crate) fn least(self) -> Option<i64> {
        self.low
    }

    /// The iterations that a loop from here to `hi` has at least.
    pub(crate) fn least_iterations(self, hi: Interval) -> i64 {
        hi.low.zip(self.high).map_or(0, |(hi, lo)| hi.saturating_sub(lo).max(0))
    }

    pub(crate) fn exactly(value: i64) -> Interval {
        Interval { low: Some(value), high: Some(value) }
    }

    /// The value, where it is known.
    pub(crate) fn value(self) -> Option<i64> {
        self.low.filter(|_| self.low == self.high)
    }

    /// The values of an operator that grows with both operands.
    fn growing(self, other: Interval, op: impl Fn(i64, i64) -> Option<i64>) -> Interval {
        let end = |a: Option<i64>, b: Option<i64>| op(a?, b?);
        Interval { low: end(self.low, other.low), high: end(self.high, other.high) }
    }

    /// The values of an operator.
    pub(crate) fn apply(self, op: IntOp, other: Interval) -> Interval {
        let apply = |a, b| op.apply(a, b);
        let negative = |x: Interval| x.low.is_none_or(|low| low < 0);
        match op {
            IntOp::Add => self.growing(other, apply),
            IntOp::Sub => self.growing(Interval { low: other.high, high: other.low }, apply),
            IntOp::Mul if !negative(self) && !negative(other) => self.growing(other, apply),
            IntOp::Div | IntOp::CeilDiv if other.value().is_some_and(|by| by > 0) => {
                let by = other.value();
                let end = |a: Option<i64>| op.apply(a?, by?);
                Interval { low: end(self.low), high: end(self.high) }
            }
            IntOp::Rem if other.value().is_some_and(|by| by > 0) => {
                let exact = self.value().zip(other.value()).and_then(|(a, by)| op.apply(a, by));
                let most = other.value().map(|by| by - 1);
                exact.map_or(Interval { low: Some(0), high: most }, Interval::exactly)
            }
            IntOp::Min => Interval {
                low: self.low.zip(other.low).map(|(a, b)| a.min(b)),
                high: [self.high, other.high].into_iter().flatten().min(),
            },
            IntOp::Max => Interval {
                low: [self.low, other.low].into_iter().flatten().max(),
                high: self.high.zip(other.high).map(|(a, b)| a.max(b)),
            },
            op if op.is_condition() => {
                let exact = self.value().zip(other.value()).and_then(|(a, b)| op.apply(a, b));
                let known = exact.or_else(|| self.compared(op, other)).or_else(|| self.connected(op, other));
                known.map_or(Interval { low: Some(0), high: Some(1) }, Interval::exactly)
            }
            _ => Interval::default(),
        }
    }

    /// The result of a comparison of intervals, if it does not depend on where in them the values are.
    fn compared(self, op: IntOp, other: Interval) -> Option<i64> {
        let below = |a: Interval, b: Interval| a.high.zip(b.low).is_some_and(|(a, b)| a < b);
        let upto = |a: Interval, b: Interval| a.high.zip(b.low).is_some_and(|(a, b)| a <= b);
        let (holds, fails) = match op {
            IntOp::Lt => (below(self, other), upto(other, self)),
            IntOp::Le => (upto(self, other), below(other, self)),
            IntOp::Gt => (below(other, self), upto(self, other)),
            IntOp::Ge => (upto(other, self), below(self, other)),
            IntOp::Ne => (below(self, other) || below(other, self), false),
            IntOp::Eq => (false, below(self, other) || below(other, self)),
            _ => (false, false),
        };
        (holds || fails).then_some(i64::from(holds))
    }

    /// The result of `and` and `or`, if one operand alone decides it.
    fn connected(self, op: IntOp, other: Interval) -> Option<i64> {
        let never = |x: Interval| x.value() == Some(0);
        let holds = |x: Interval| x.low.is_some_and(|low| low > 0) || x.high.is_some_and(|high| high < 0);
        match op {
            IntOp::And if never(self) || never(other) => Some(0),
            IntOp::And if holds(self) && holds(other) => Some(1),
            IntOp::Or if holds(self) || holds(other) => Some(1),
            _ => None,
        }
    }
}
