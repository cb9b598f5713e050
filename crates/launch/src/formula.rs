//! Integers of a launch as functions of its sizes: formulas in postfix form, their values, and the values that they may take.

use std::error::Error;
use std::fmt;

/// An operator on two integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Op {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a * b`
    Mul,
    /// `a / b`, rounded down
    Div,
    /// `a % b`, with the sign of `b`
    Rem,
    /// `a / b`, rounded up
    CeilDiv,
    /// The smaller of both.
    Min,
    /// The larger of both.
    Max,
    /// `a == b`: 1 where it holds, else 0, like all comparisons.
    Eq,
    /// `a != b`
    Ne,
    /// `a < b`
    Lt,
    /// `a <= b`
    Le,
    /// `a > b`
    Gt,
    /// `a >= b`
    Ge,
    /// 1 where neither is 0, else 0.
    And,
    /// 0 where both are 0, else 1.
    Or,
}

/// A part of a [`Formula`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Item {
    /// A literal.
    Int(i64),
    /// The size with this number.
    Size(u32),
    /// The counter with this number: of a loop of the kernel.
    Counter(u32),
    /// The index of a block along x, y or z (0, 1, 2).
    Block(u32),
    /// The argument for the parameter with this number, an `i32`.
    Scalar(u32),
    /// An element of a tensor of type `i32`, at as many indices as this says, which stand before it.
    Element(u32),
    /// An operator, behind its two operands.
    Op(Op),
}

/// The most items of a formula.
pub const MOST_ITEMS: usize = 4096;
/// The most values that an evaluation holds at once.
const DEPTH: usize = 64;

/// An integer as a function of sizes, in postfix form: operands first, then their operator. `m 128 ceil_div`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Formula(Vec<Item>);

/// A list of items is no formula.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FormulaError {
    /// It has too many items.
    Long(usize),
    /// An evaluation holds too many values at once.
    Deep,
    /// An operator has no two operands, or more than one value is left.
    Unbalanced,
}

impl fmt::Display for FormulaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormulaError::Long(first) => write!(f, "a formula has {first} items; {MOST_ITEMS} is the most"),
            FormulaError::Deep => write!(f, "a formula holds more than {DEPTH} values at once"),
            FormulaError::Unbalanced => f.write_str(
                "a formula is not one value: an operator lacks an operand, or a value has no operator",
            ),
        }
    }
}

impl Error for FormulaError {}

/// An evaluation that leads nowhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It divides by zero, overflows, or reads what has no value.
    NoValue,
    /// It reaches a number that does not fit in 32 bits.
    TooWide(i64),
}

/// The values that an expression may take, both ends included.
pub(crate) type Interval = (i128, i128);

/// Values for the evaluation of intervals.
pub(crate) struct Known<'a> {
    pub(crate) sizes: &'a [i64],
    pub(crate) grid: [u32; 3],
    /// Arguments by parameter, of those that are `i32`.
    pub(crate) scalars: &'a [Option<i64>],
    pub(crate) counters: &'a [Option<Interval>],
}

/// The operands of an evaluation.
struct Stack<T> {
    values: [T; DEPTH],
    len: usize,
}

impl<T: Copy> Stack<T> {
    fn new(zero: T) -> Self {
        Stack { values: [zero; DEPTH], len: 0 }
    }

    fn push(&mut self, value: T) {
        self.values[self.len] = value;
        self.len += 1;
    }

    fn pop(&mut self) -> T {
        self.len -= 1;
        self.values[self.len]
    }
}

impl Formula {
    /// The formula with these items.
    ///
    /// # Errors
    ///
    /// A [`FormulaError`] if they are not one value, or too many.
    pub fn new(items: Vec<Item>) -> Result<Self, FormulaError> {
        if items.len() > MOST_ITEMS {
            return Err(FormulaError::Long(items.len()));
        }
        let mut depth = 0usize;
        for item in &items {
            let taken = match item {
                Item::Op(_) => 2,
                Item::Element(indices) => *indices as usize,
                _ => 0,
            };
            depth = depth.checked_sub(taken).ok_or(FormulaError::Unbalanced)? + 1;
            if depth > DEPTH {
                return Err(FormulaError::Deep);
            }
        }
        if depth == 1 { Ok(Formula(items)) } else { Err(FormulaError::Unbalanced) }
    }

    /// A literal.
    pub fn int(value: i64) -> Self {
        Formula(vec![Item::Int(value)])
    }

    /// The items.
    pub fn items(&self) -> &[Item] {
        &self.0
    }

    /// The value at these sizes; `None` where it divides by zero, overflows, or reads anything but sizes.
    pub fn value(&self, sizes: &[i64]) -> Option<i64> {
        let mut stack = Stack::new(0i64);
        for item in &self.0 {
            let value = match *item {
                Item::Int(value) => value,
                Item::Size(size) => *sizes.get(size as usize)?,
                Item::Op(op) => {
                    let b = stack.pop();
                    op.apply(stack.pop(), b)?
                }
                Item::Counter(_) | Item::Block(_) | Item::Scalar(_) | Item::Element(_) => return None,
            };
            stack.push(value);
        }
        Some(stack.pop())
    }

    /// The values that it may take. Every integer on the way fits in 32 bits.
    pub(crate) fn interval(&self, known: &Known<'_>) -> Result<Interval, Fault> {
        let mut stack = Stack::new((0i128, 0i128));
        let exactly = |value: i64| (i128::from(value), i128::from(value));
        for item in &self.0 {
            let value = match *item {
                Item::Int(value) => exactly(value),
                Item::Size(size) => exactly(*known.sizes.get(size as usize).ok_or(Fault::NoValue)?),
                Item::Counter(counter) => {
                    known.counters.get(counter as usize).copied().flatten().ok_or(Fault::NoValue)?
                }
                Item::Block(axis) => {
                    let extent = known.grid.get(axis as usize).ok_or(Fault::NoValue)?;
                    (0, i128::from(*extent) - 1)
                }
                Item::Scalar(param) => {
                    exactly(known.scalars.get(param as usize).copied().flatten().ok_or(Fault::NoValue)?)
                }
                Item::Element(indices) => {
                    for _ in 0..indices {
                        stack.pop();
                    }
                    (i128::from(i32::MIN), i128::from(i32::MAX))
                }
                Item::Op(op) => {
                    let b = stack.pop();
                    op.interval(stack.pop(), b)
                }
            };
            stack.push(narrow(value)?);
        }
        Ok(stack.pop())
    }
}

/// The interval, if both ends fit in 32 bits.
pub(crate) fn narrow((low, high): Interval) -> Result<Interval, Fault> {
    match [low, high].into_iter().find(|value| i32::try_from(*value).is_err()) {
        Some(value) => Err(Fault::TooWide(value.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)),
        None => Ok((low, high)),
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let q = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
}

fn wide_floor_div(a: i128, b: i128) -> i128 {
    let q = a / b;
    if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
}

/// The values of a condition that always holds, never holds, or neither.
fn decided(always: bool, never: bool) -> Interval {
    (i128::from(always), i128::from(!never))
}

fn never_zero((low, high): Interval) -> bool {
    low > 0 || high < 0
}

impl Op {
    /// The result; `None` on overflow and on division by zero.
    pub fn apply(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Op::Add => a.checked_add(b),
            Op::Sub => a.checked_sub(b),
            Op::Mul => a.checked_mul(b),
            Op::Div => floor_div(a, b),
            Op::Rem => floor_div(a, b).and_then(|q| a.checked_sub(q.checked_mul(b)?)),
            Op::CeilDiv => floor_div(a.checked_neg()?, b).and_then(i64::checked_neg),
            Op::Min => Some(a.min(b)),
            Op::Max => Some(a.max(b)),
            Op::Eq => Some(i64::from(a == b)),
            Op::Ne => Some(i64::from(a != b)),
            Op::Lt => Some(i64::from(a < b)),
            Op::Le => Some(i64::from(a <= b)),
            Op::Gt => Some(i64::from(a > b)),
            Op::Ge => Some(i64::from(a >= b)),
            Op::And => Some(i64::from(a != 0 && b != 0)),
            Op::Or => Some(i64::from(a != 0 || b != 0)),
        }
    }

    /// The results for operands from two intervals of numbers of 32 bits.
    fn interval(self, (a, b): Interval, (c, d): Interval) -> Interval {
        let corners = |f: fn(i128, i128) -> i128| {
            let each = [f(a, c), f(a, d), f(b, c), f(b, d)];
            each.into_iter().fold((i128::MAX, i128::MIN), |(low, high), x| (low.min(x), high.max(x)))
        };
        match self {
            Op::Add => (a + c, b + d),
            Op::Sub => (a - d, b - c),
            Op::Mul => corners(|x, y| x * y),
            Op::Min => (a.min(c), b.min(d)),
            Op::Max => (a.max(c), b.max(d)),
            // A divisor whose sign is open may be ±1.
            Op::Div | Op::CeilDiv if c <= 0 && d >= 0 => {
                let largest = a.abs().max(b.abs());
                (-largest, largest)
            }
            Op::Div => corners(wide_floor_div),
            Op::CeilDiv => corners(|x, y| -wide_floor_div(-x, y)),
            Op::Rem => {
                let most = c.abs().max(d.abs());
                (if c > 0 { 0 } else { -most }, if d < 0 { 0 } else { most })
            }
            Op::Lt => decided(b < c, a >= d),
            Op::Ge => decided(a >= d, b < c),
            Op::Gt => decided(a > d, b <= c),
            Op::Le => decided(b <= c, a > d),
            Op::Eq => decided(a == b && (a, b) == (c, d), b < c || d < a),
            Op::Ne => decided(b < c || d < a, a == b && (a, b) == (c, d)),
            Op::And => {
                decided(never_zero((a, b)) && never_zero((c, d)), (a, b) == (0, 0) || (c, d) == (0, 0))
            }
            Op::Or => decided(never_zero((a, b)) || never_zero((c, d)), (a, b) == (0, 0) && (c, d) == (0, 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_formula_is_one_value() {
        let items = vec![Item::Size(0), Item::Int(128), Item::Op(Op::CeilDiv)];
        let formula = Formula::new(items).unwrap();
        assert_eq!(formula.value(&[300]), Some(3));
        assert_eq!(formula.value(&[]), None);
        assert_eq!(Formula::new(vec![]), Err(FormulaError::Unbalanced));
        assert_eq!(Formula::new(vec![Item::Int(1), Item::Int(2)]), Err(FormulaError::Unbalanced));
        assert_eq!(Formula::new(vec![Item::Int(1), Item::Op(Op::Add)]), Err(FormulaError::Unbalanced));
        assert_eq!(Formula::new(vec![Item::Element(1)]), Err(FormulaError::Unbalanced));
        assert_eq!(Formula::new(vec![Item::Int(1); 65]), Err(FormulaError::Deep));
        assert_eq!(Formula::new(vec![Item::Int(1); 5000]), Err(FormulaError::Long(5000)));
    }

    #[test]
    fn arithmetic_is_that_of_the_language() {
        assert_eq!(Op::Div.apply(-7, 2), Some(-4));
        assert_eq!(Op::Rem.apply(-7, 2), Some(1));
        assert_eq!(Op::CeilDiv.apply(-7, 2), Some(-3));
        assert_eq!(Op::Div.apply(1, 0), None);
        assert_eq!(Op::Div.apply(i64::MIN, -1), None);
        assert_eq!(Op::Mul.apply(i64::MAX, 2), None);
    }

    #[test]
    fn integers_on_the_way_have_32_bits() {
        let known = Known { sizes: &[1 << 20], grid: [1 << 12, 1, 1], scalars: &[], counters: &[] };
        let product = [Item::Block(0), Item::Size(0), Item::Op(Op::Mul)];
        let formula = Formula::new(product.to_vec()).unwrap();
        assert_eq!(formula.interval(&known), Err(Fault::TooWide(((1 << 12) - 1) << 20)));
        let back = Formula::new([&product[..], &[Item::Int(0), Item::Op(Op::Min)]].concat()).unwrap();
        assert!(back.interval(&known).is_err());
    }
}
