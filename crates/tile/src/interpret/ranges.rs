//! Checks that every integer of a kernel fits in 32 bits at given sizes.
//!
//! A kernel computes integers (coordinates, offsets, loop bounds, `float(…)`) in 32 bits; only strides have 64. Before a
//! kernel runs, interval arithmetic over its bounds (`bounds.rs`) shows that no expression leaves that range, so that the
//! language's integers, which have no width, and the machine's are the same.

use std::collections::BTreeMap;

use super::bounds::{Bound, bounds};
use super::error::InterpretError;
use super::executable::Executable;
use super::launch::{grid, symbol_values};
use super::quote::Quote;
use crate::expr::{Expr, IntOp};
use crate::printer::expr_text;
use crate::program::{Operand, Param, ParamId, ParamKind};

/// The values that an expression may take, both ends included.
type Interval = (i128, i128);

struct Ranges<'a, P> {
    program: &'a P,
    sizes: Vec<Option<i64>>,
    grid: [u32; 3],
    integers: &'a BTreeMap<ParamId, i64>,
    counters: BTreeMap<u32, Interval>,
}

fn narrow(what: &Quote, (low, high): Interval) -> Result<Interval, InterpretError> {
    for value in [low, high] {
        if i32::try_from(value).is_err() {
            let value = value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
            return Err(InterpretError::TooWide { what: what.clone(), value, help: None });
        }
    }
    Ok((low, high))
}

fn hull(values: impl IntoIterator<Item = i128>) -> Interval {
    values.into_iter().fold((i128::MAX, i128::MIN), |(low, high), x| (low.min(x), high.max(x)))
}

fn apply(op: IntOp, (a, b): Interval, (c, d): Interval) -> Interval {
    let corners = |f: fn(i128, i128) -> i128| hull([f(a, c), f(a, d), f(b, c), f(b, d)]);
    let largest = a.abs().max(b.abs());
    match op {
        IntOp::Add => (a + c, b + d),
        IntOp::Sub => (a - d, b - c),
        IntOp::Mul => corners(|x, y| x.saturating_mul(y)),
        IntOp::Min => (a.min(c), b.min(d)),
        IntOp::Max => (a.max(c), b.max(d)),
        // A divisor whose sign is open may be ±1.
        IntOp::Div | IntOp::CeilDiv if c <= 0 && d >= 0 => (-largest, largest),
        IntOp::Div => corners(floor_div),
        IntOp::CeilDiv => corners(|x, y| -floor_div(-x, y)),
        IntOp::Rem => {
            let most = c.abs().max(d.abs());
            (if c > 0 { 0 } else { -most }, if d < 0 { 0 } else { most })
        }
        IntOp::Lt => decided(b < c, a >= d),
        IntOp::Ge => decided(a >= d, b < c),
        IntOp::Gt => decided(a > d, b <= c),
        IntOp::Le => decided(b <= c, a > d),
        IntOp::Eq => decided(a == b && (a, b) == (c, d), b < c || d < a),
        IntOp::Ne => decided(b < c || d < a, a == b && (a, b) == (c, d)),
        IntOp::And => decided(holds((a, b)) && holds((c, d)), (a, b) == (0, 0) || (c, d) == (0, 0)),
        IntOp::Or => decided(holds((a, b)) || holds((c, d)), (a, b) == (0, 0) && (c, d) == (0, 0)),
    }
}

/// The values of a condition that always holds, never holds, or neither.
fn decided(always: bool, never: bool) -> Interval {
    (i128::from(always), i128::from(!never))
}

/// True if no value is 0.
fn holds((low, high): Interval) -> bool {
    low > 0 || high < 0
}

/// `⌊x / y⌋`
fn floor_div(x: i128, y: i128) -> i128 {
    let (q, r) = (x / y, x % y);
    if r != 0 && (r < 0) != (y < 0) { q - 1 } else { q }
}

impl<P: Executable> Ranges<'_, P> {
    fn interval(&self, what: &Quote, e: &Expr) -> Result<Interval, InterpretError> {
        let result = match e {
            Expr::Int(value) => (i128::from(*value), i128::from(*value)),
            Expr::Block(axis) => (0, i128::from(self.grid[axis.index()]) - 1),
            Expr::Symbol(id) => match (self.counters.get(&id.0), self.sizes[id.0 as usize]) {
                (Some(range), _) => *range,
                (None, Some(value)) => (i128::from(value), i128::from(value)),
                (None, None) => return Err(InterpretError::NoValue { what: what.clone() }),
            },
            Expr::Binary(op, a, b) => apply(*op, self.interval(what, a)?, self.interval(what, b)?),
            Expr::Element(_, index) => {
                index.iter().try_for_each(|e| self.interval(what, e).map(drop))?;
                (i128::from(i32::MIN), i128::from(i32::MAX))
            }
            Expr::Scalar(param) => match self.integers.get(param).copied().or_else(|| self.default(*param)) {
                Some(value) => (i128::from(value), i128::from(value)),
                None => return Err(InterpretError::NoValue { what: what.clone() }),
            },
        };
        narrow(what, result).map_err(|error| self.with_help(error, e))
    }

    /// The error with the remedy: elements of tensors have to be bounded, since they may be any integers.
    fn with_help(&self, error: InterpretError, e: &Expr) -> InterpretError {
        let InterpretError::TooWide { what, value, help: None } = error else { return error };
        let mut elements: Vec<Expr> = Vec::new();
        e.visit(&mut |part| {
            if matches!(part, Expr::Element(..)) && !elements.contains(part) {
                elements.push(part.clone());
            }
        });
        let text = |e: &Expr| expr_text(self.program.names(), e);
        let bounded = |element: &Expr| {
            let most = self.reached(element).unwrap_or_else(|| "MOST".to_string());
            format!("`min(max({}, 0), {most})`", text(element))
        };
        let help = match elements.as_slice() {
            [] => "choose smaller sizes".to_string(),
            elements => format!(
                "the elements of a tensor may be any integers of 32 bits; bound each where it is read: {}",
                elements.iter().map(bounded).collect::<Vec<_>>().join(", ")
            ),
        };
        InterpretError::TooWide { what, value, help: Some(help) }
    }

    /// The extent of the mode in which views begin or end at elements of the same tensor as this one.
    fn reached(&self, element: &Expr) -> Option<String> {
        let Expr::Element(of, _) = element else { return None };
        let names = |e: &Expr| {
            let mut found = false;
            e.visit(&mut |part| found |= matches!(part, Expr::Element(param, _) if param == of));
            found
        };
        let mut found = None;
        self.program.visit(&mut |stmt| {
            for operand in stmt.kind.operands() {
                let Operand::Reference(_, reference) = operand else { continue };
                let Some(global) = self.program.tile(reference).global else { continue };
                let mode = (0..global.base.len())
                    .find(|mode| names(&global.base[*mode]) || names(&global.shape[*mode]));
                if let (Some(mode), ParamKind::Tensor { shape, .. }) =
                    (mode, &self.program.params()[global.param.0 as usize].kind)
                {
                    found = found
                        .take()
                        .or(shape.get(mode).map(|extent| expr_text(self.program.names(), extent)));
                }
            }
        });
        found
    }

    fn default(&self, param: ParamId) -> Option<i64> {
        self.program.params().get(param.0 as usize).and_then(Param::integer)
    }

    /// Checks bounds, in order.
    fn check(&mut self, bounds: &[Bound]) -> Result<(), InterpretError> {
        let mut at = 0;
        while let Some(bound) = bounds.get(at) {
            at += 1;
            match bound {
                Bound::Fits { what, expr, reach } => {
                    let (low, high) = self.interval(what, expr)?;
                    narrow(what, (low.min(low + reach), high.max(high + reach)))?;
                }
                Bound::Range { what, counter, least, most, beyond, body } => {
                    let (low, _) = self.interval(what, least)?;
                    let (_, high) = self.interval(what, most)?;
                    let range = (low, high + i128::from(*beyond));
                    if range.0 <= range.1 {
                        self.counters.insert(counter.0, range);
                    } else {
                        at += body;
                    }
                }
                Bound::When { what, condition, body } => {
                    if self.interval(what, condition)? == (0, 0) {
                        at += body;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Checks that every integer of the kernel fits in 32 bits (strides: 64) at these sizes and values of scalar parameters of integer types,
/// which have their defaults where none is given. The interpreter and the runtime both ask before they run a kernel.
///
/// # Errors
///
/// The first expression that may leave that range; a size that the kernel does not have.
pub fn check_ranges(
    program: &impl Executable,
    sizes: &BTreeMap<String, i64>,
    integers: &BTreeMap<ParamId, i64>,
) -> Result<(), InterpretError> {
    let mut ranges = Ranges {
        program,
        sizes: symbol_values(program, sizes)?,
        grid: grid(program, sizes)?,
        integers,
        counters: BTreeMap::new(),
    };
    ranges.check(&bounds(program))
}
