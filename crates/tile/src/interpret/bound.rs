//! Values with bounds: how far a kernel's value may lie from the interpreter's where both are right.
//!
//! The language leaves some roundings open: the order in which reductions add, how tensor cores sum, and the last bits of `exp`, `log`,
//! `rsqrt` and `tanh`. Every element carries a bound on what these come to on the way to it. An operation on the interval around each
//! operand gives the interval around the result; a rounding is monotonic, so that the ends of the interval are rounded, too: a
//! number that no other can be confused with stays exact, and one near a tie may be off by a unit of the type it is rounded to.

use std::borrow::Cow;
use std::cmp::Ordering;

use tilewright_machine::scalar::fused;
use tilewright_machine::{DType, ErrorBound, RedOp};

use super::gemm::Left;
use super::round;
use crate::arith::double::LARGEST_DOUBLE_ANGLE;
use crate::arith::{Compute, LARGEST_ANGLE, fast_quotient_error};
use crate::program::{BinaryOp, ReduceOp, UnaryOp};

/// An element of a tile: the value, and how far the value of a right kernel may lie from it. An infinite bound is none: the
/// kernel's value may be anything.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Element {
    /// The value; of an integer that no `f64` is, the nearest one.
    pub(super) value: f64,
    /// The integer less `value`; 0 of all others.
    pub(super) rest: i32,
    pub(super) bound: f64,
}

/// An element that nothing has written.
pub(super) const UNWRITTEN: Element = Element { value: f64::NAN, rest: 0, bound: 0.0 };

/// The distance that an interval reaches from a value in it.
pub(super) fn reach(value: f64, low: f64, high: f64) -> f64 {
    let side = |end: f64| if end == value { 0.0 } else { (end - value).abs() };
    let [low, high] = [side(low), side(high)];
    if low.is_nan() || high.is_nan() { f64::INFINITY } else { low.max(high) }
}

/// The distance that an error of double precision may move a centre by.
pub(super) fn slack(centre: f64) -> f64 {
    centre.abs() * 2f64.powi(-51)
}

/// The distance that the roundings of bounds themselves may come to in arithmetic of a type: where that is `f64`, bounds are no more exact than
/// what they bound.
pub(super) fn own(compute: Compute, size: f64) -> f64 {
    if compute == Compute::F64 && size.is_finite() { slack(size) + f64::from_bits(1) } else { 0.0 }
}

impl Element {
    pub(super) fn exact(value: f64) -> Self {
        Element { value, rest: 0, bound: 0.0 }
    }

    /// An integer of at most 64 bits.
    pub(super) fn of_integer(x: i128) -> Self {
        let value = x as f64;
        Element { value, rest: (x - value as i128) as i32, bound: 0.0 }
    }

    /// The integer that it is; 0 of a NaN.
    pub(super) fn integer(self) -> i128 {
        self.value as i128 + i128::from(self.rest)
    }

    /// The value for the purpose of rounding it to a type of at most 51 places: of an integer that no `f64` is, the neighbour whose last bit is 1,
    /// which breaks ties.
    fn sticky(self) -> f64 {
        if self.rest == 0 || self.value.to_bits() & 1 == 1 {
            return self.value;
        }
        let away = (self.rest > 0) == (self.value > 0.0);
        f64::from_bits(if away { self.value.to_bits() + 1 } else { self.value.to_bits() - 1 })
    }

    /// The order of two numbers; `None` where one is a NaN.
    pub(super) fn order(self, other: Element) -> Option<Ordering> {
        Some(self.value.partial_cmp(&other.value)?.then(self.rest.cmp(&other.rest)))
    }

    /// True if both values have the same bits.
    pub(super) fn same_value(self, other: Element) -> bool {
        self.value.to_bits() == other.value.to_bits() && self.rest == other.rest
    }

    /// The element of these bits in a type.
    fn of_bits(dtype: DType, bits: u64) -> Self {
        match dtype.range() {
            Some(_) => Element::of_integer(dtype.decode_integer(bits)),
            None => Element::exact(dtype.decode(bits)),
        }
    }

    /// Its bits in the type that it has.
    fn bits(self, dtype: DType) -> u64 {
        match dtype.range() {
            Some(_) => dtype.encode_integer(self.integer()),
            None => dtype.encode(self.value),
        }
    }

    /// A value that is no number is one in the kernel, too, unless something may be otherwise.
    pub(super) fn new(value: f64, bound: f64) -> Self {
        Element::exact(value).within(bound)
    }

    /// The same value, which may be off by a part of its size more than it is.
    pub(super) fn off_by(self, part: f64) -> Self {
        if part == 0.0 { self } else { self.within(self.bound + part * (self.value.abs() + self.bound)) }
    }

    /// The same value with a bound, as [`Element::new`] has it.
    pub(super) fn within(self, bound: f64) -> Self {
        let open = bound.is_nan() || self.value.is_nan() && bound > 0.0;
        Element { bound: if open { f64::INFINITY } else { bound }, ..self }
    }

    /// The rounding of a number that lies within `spread` of `centre`; here it is `value`.
    fn rounded(compute: Compute, value: f64, centre: f64, spread: f64) -> Self {
        let spread = spread + slack(centre) + own(compute, spread);
        Element::new(value, reach(value, compute.round(centre - spread), compute.round(centre + spread)))
    }

    pub(super) fn ends(self) -> [f64; 2] {
        [self.value - self.bound, self.value + self.bound]
    }

    /// The element rounded to a type.
    pub(super) fn round(self, dtype: DType) -> Self {
        let rounded = match dtype {
            DType::I64 | DType::U64 => {
                let (low, high) = dtype.range().unwrap_or((0, 0));
                let whole = self.value.round_ties_even() as i128 + i128::from(self.rest);
                Element::of_integer(whole.clamp(low, high))
            }
            DType::F64 => Element::exact(self.value),
            _ => Element::exact(round(dtype, self.sticky())),
        };
        if self.bound == 0.0 {
            return rounded;
        }
        let value = rounded.value;
        let [low, high] = self.ends().map(|end| round(dtype, end));
        // A NaN is 0 as an integer; what may be anything may be any integer.
        let bound = if self.bound.is_finite() { reach(value, low, high) } else { f64::INFINITY };
        let wide = if dtype.bits() == 64 { slack(value) } else { 0.0 };
        rounded.within(bound + wide)
    }

    /// The upper 19 bits of an `f32`, which are what tensor cores read of one.
    pub(super) fn tf32(self) -> Self {
        let cut = |x: f64| f64::from(f32::from_bits((x as f32).to_bits() & 0xffff_e000));
        let value = cut(self.value);
        if self.bound == 0.0 {
            return Element::exact(value);
        }
        let [low, high] = self.ends().map(cut);
        Element::new(value, reach(value, low, high))
    }

    /// A value of an operation that is exact, of operands that are not: it may be anything.
    fn open(value: f64) -> Self {
        Element::exact(value).opened()
    }

    /// The same value, where the kernel's may be anything.
    fn opened(self) -> Self {
        Element { bound: f64::INFINITY, ..self }
    }

    /// A truth value, which is sure or may be either.
    fn truth(value: bool, sure: bool) -> Self {
        Element::new(f64::from(u8::from(value)), if sure { 0.0 } else { f64::INFINITY })
    }

    /// A function of one value.
    pub(super) fn unary(op: UnaryOp, compute: Compute, x: Element) -> Self {
        match (op, compute) {
            // The function in `f32`, which is rounded once more: that changes nothing where it is defined to the bit.
            (op, Compute::F16 | Compute::BF16) if op != UnaryOp::Not => {
                Element::unary(op, Compute::F32, x).round(compute.dtype())
            }
            (UnaryOp::Not, _) => Element::truth(x.value == 0.0, x.bound == 0.0),
            (UnaryOp::Float, from) => Element::convert(from, Compute::F32, x),
            // An unsigned number keeps its bits.
            (UnaryOp::Int, from) => Element::convert(from, Compute::I32, x),
            (UnaryOp::Neg | UnaryOp::Abs, _) if compute.is_integer() => {
                let value = x.integer();
                let negative = op == UnaryOp::Neg || value < 0;
                let element = Element::of_integer(compute.wrap(if negative { -value } else { value }));
                if x.bound == 0.0 { element } else { element.opened() }
            }
            _ => Element::function(op, compute, x),
        }
    }

    /// A value of one type as the nearest one of another; integers modulo 2ⁿ.
    pub(super) fn convert(from: Compute, to: Compute, x: Element) -> Self {
        match to {
            Compute::F64 => {
                Element::exact(x.value).within(if x.bound == 0.0 { 0.0 } else { x.bound + own(to, x.value) })
            }
            _ if to.is_float() => {
                let value = to.round(x.sticky());
                if x.bound == 0.0 {
                    Element::exact(value)
                } else {
                    Element::rounded(to, value, x.value, x.bound)
                }
            }
            _ => {
                let whole = if from == Compute::Bool { i128::from(x.value != 0.0) } else { x.integer() };
                let element = Element::of_integer(to.wrap(whole));
                if x.bound == 0.0 { element } else { element.opened() }
            }
        }
    }

    /// The element of a tensor of the block combined with another, in an order that the program leaves open. Of sums, each partial sum of
    /// another order may round as this one does, and once more.
    pub(super) fn combined(self, op: RedOp, x: Element, dtype: DType) -> Self {
        let [old, new] = [self.value, x.value];
        let spread = self.bound.max(x.bound);
        match op {
            RedOp::Add if !dtype.is_float() => {
                let of = Compute::of(dtype).unwrap_or(Compute::I32);
                Element::of_integer(of.wrap(self.integer() + x.integer()))
            }
            RedOp::Add => {
                let size = old.abs() + new.abs() + spread;
                let value = round(dtype, old + new);
                let rounding = if value.is_finite() { 4.0 * dtype.epsilon() * size } else { 0.0 };
                Element::new(value, self.bound + x.bound + rounding)
            }
            _ if new.is_nan() => self,
            RedOp::Max => (if self.order(x) == Some(Ordering::Less) { x } else { self }).within(spread),
            RedOp::Min => (if self.order(x) == Some(Ordering::Greater) { x } else { self }).within(spread),
        }
    }

    /// A function of one float.
    fn function(op: UnaryOp, compute: Compute, x: Element) -> Self {
        let value = op.apply_in(compute, x.value);
        let error = if compute == Compute::F64 { None } else { op.error() };
        if x.bound == 0.0 && error.is_none() {
            return Element::exact(value);
        }
        match op {
            UnaryOp::Neg | UnaryOp::Abs => Element::new(value, x.bound),
            _ if value.is_nan() => Element::new(value, x.bound),
            UnaryOp::Sin | UnaryOp::Cos => {
                // Neither changes faster than its argument, and neither leaves −1 to 1.
                let largest = if compute == Compute::F64 { LARGEST_DOUBLE_ANGLE } else { LARGEST_ANGLE };
                let small = x.value.abs() + x.bound <= largest;
                let absolute = error.map_or(0.0, |bound| bound.absolute);
                Element::new(value, if small { (x.bound + absolute + slack(1.0)).min(2.0) } else { 2.0 })
            }
            _ => {
                // Each of them is monotonic where it is defined.
                let [low, high] = x.ends().map(|end| (end, op.exact(end)));
                if x.bound.is_infinite() || low.1.is_nan() || high.1.is_nan() {
                    return Element::new(value, f64::INFINITY);
                }
                let (low, high) = if low.1 <= high.1 { (low, high) } else { (high, low) };
                let end = |(x, y): (f64, f64), sign: f64| match error {
                    Some(bound) => near(bound, x, y, sign),
                    None => compute.round(y),
                };
                Element::new(value, reach(value, end(low, -1.0), end(high, 1.0)) + own(compute, value))
            }
        }
    }

    /// An operator on two values.
    pub(super) fn binary(op: BinaryOp, compute: Compute, x: Element, y: Element) -> Self {
        if op.compares() {
            return Element::compare(op, x, y);
        }
        match (op, compute) {
            (BinaryOp::And | BinaryOp::Or, _) => {
                // One that is sure decides alone where it can.
                let decides = f64::from(u8::from(op == BinaryOp::Or));
                let sure = |x: Element| x.bound == 0.0;
                let alone = |x: Element| sure(x) && x.value == decides;
                let value = if x.value == decides || y.value == decides { decides } else { 1.0 - decides };
                Element::truth(value != 0.0, sure(x) && sure(y) || alone(x) || alone(y))
            }
            (_, Compute::F16 | Compute::BF16) => {
                Element::float(op, Compute::F32, x, y).round(compute.dtype())
            }
            (_, Compute::F32 | Compute::F64) => Element::float(op, compute, x, y),
            _ => Element::integers(op, compute, x, y),
        }
    }

    /// A comparison.
    fn compare(op: BinaryOp, x: Element, y: Element) -> Self {
        let value = if x.rest == 0 && y.rest == 0 {
            op.compare(x.value, y.value)
        } else {
            op.compare(x.integer(), y.integer())
        };
        let value = value.unwrap_or(false);
        if x.bound == 0.0 && y.bound == 0.0 {
            return Element::truth(value, true);
        }
        // Between intervals it is sure where it is so at all their ends and none crosses the other.
        let (x, y) = (x.ends(), y.ends());
        let apart = x[1] < y[0] || y[1] < x[0];
        let sure = match op {
            BinaryOp::Le | BinaryOp::Gt => apart || x[1] <= y[0],
            BinaryOp::Lt | BinaryOp::Ge => apart || y[1] <= x[0],
            _ => apart,
        };
        Element::truth(value, sure)
    }

    /// An operator on two integers.
    fn integers(op: BinaryOp, compute: Compute, x: Element, y: Element) -> Self {
        let Some(whole) = op.apply_integer(compute, x.integer(), y.integer()) else {
            return Element::open(0.0);
        };
        let element = Element::of_integer(whole);
        if x.bound == 0.0 && y.bound == 0.0 {
            return element;
        }
        let (value, spread) = (element.value, x.bound + y.bound);
        let fits = |x: f64| compute.wrap(x as i128) as f64 == x;
        match op {
            BinaryOp::Add | BinaryOp::Sub if fits(value - spread) && fits(value + spread) => {
                element.within(spread)
            }
            _ => element.opened(),
        }
    }

    /// The second where the first is true, else the third.
    pub(super) fn choose(c: Element, x: Element, y: Element) -> Self {
        let (found, other) = if c.value != 0.0 { (x, y) } else { (y, x) };
        if c.bound == 0.0 {
            return found;
        }
        let [low, high] = other.ends();
        let bound = reach(found.value, low, high).max(found.bound);
        let same = found.same_value(other) && other.bound == 0.0;
        found.within(if same { found.bound } else { bound })
    }

    /// The bits of a value as another of as many bits.
    pub(super) fn bitcast(from: Compute, to: Compute, x: Element) -> Self {
        let element = Element::of_bits(to.dtype(), x.bits(from.dtype()));
        if x.bound == 0.0 || from == to { element.within(x.bound) } else { element.opened() }
    }

    /// An operator on two floats.
    fn float(op: BinaryOp, compute: Compute, x: Element, y: Element) -> Self {
        let value = op.apply_in(compute, x.value, y.value).unwrap_or(f64::NAN);
        if op == BinaryOp::FastDiv {
            let whole = Element::float(BinaryOp::Div, compute, x, y);
            let [least, most] = [-126, 126].map(|power| 2f64.powi(power));
            let size = y.value.abs();
            if value.is_nan() || size - y.bound < least || !whole.bound.is_finite() {
                return Element::new(value, if value.is_nan() { whole.bound } else { f64::INFINITY });
            }
            let largest = value.abs() + whole.bound;
            // Of larger divisors the quotient may be 0.
            let error = match size + y.bound > most {
                true => largest,
                false => fast_quotient_error(size - y.bound).at(1.0, largest),
            };
            return Element::new(value, whole.bound + error);
        }
        if x.bound == 0.0 && y.bound == 0.0 {
            return Element::exact(value);
        }
        // The sign of a number that reaches from one side of 0 to the other is open.
        let sure = |x: Element| x.value.abs() > x.bound;
        let (a, b) = (x.value.abs(), y.value.abs());
        match op {
            BinaryOp::Add | BinaryOp::Sub => {
                let spread = x.bound + y.bound;
                if spread.is_finite() && value.is_infinite() && (a.is_infinite() || b.is_infinite()) {
                    return Element::exact(value);
                }
                let y = if op == BinaryOp::Sub { -y.value } else { y.value };
                Element::rounded(compute, value, x.value + y, spread)
            }
            BinaryOp::Mul if a.is_infinite() || b.is_infinite() => {
                Element::new(value, if sure(x) && sure(y) { 0.0 } else { f64::INFINITY })
            }
            BinaryOp::Mul => {
                let spread = a * y.bound + b * x.bound + x.bound * y.bound;
                Element::rounded(compute, value, x.value * y.value, spread)
            }
            BinaryOp::Div if a.is_infinite() => {
                Element::new(value, if sure(x) && sure(y) { 0.0 } else { f64::INFINITY })
            }
            BinaryOp::Div if !sure(y) => Element::new(value, f64::INFINITY),
            BinaryOp::Div => {
                let quotient = x.value / y.value;
                let spread = (x.bound + quotient.abs() * y.bound) / (b - y.bound);
                Element::rounded(compute, value, quotient, spread)
            }
            BinaryOp::Min | BinaryOp::Max => {
                if x.bound.is_infinite() || y.bound.is_infinite() {
                    return Element::new(value, f64::INFINITY);
                }
                let [low, high] = [0, 1].map(|k| {
                    let of = if op == BinaryOp::Min { ReduceOp::Min } else { ReduceOp::Max };
                    of.apply(x.ends()[k], y.ends()[k])
                });
                Element::new(value, reach(value, low, high))
            }
            _ => Element::open(value),
        }
    }

    /// `x · y + z`, rounded once.
    pub(super) fn fma(compute: Compute, x: Element, y: Element, z: Element) -> Self {
        let value = match compute {
            Compute::F64 => x.value.mul_add(y.value, z.value),
            Compute::F16 | Compute::BF16 => compute.round(fused(x.value, y.value, z.value)),
            _ => f64::from((x.value as f32).mul_add(y.value as f32, z.value as f32)),
        };
        if x.bound == 0.0 && y.bound == 0.0 && z.bound == 0.0 {
            return Element::exact(value);
        }
        let (a, b) = (x.value.abs(), y.value.abs());
        if a.is_infinite() || b.is_infinite() || z.value.is_infinite() {
            // What is infinite stays so, unless a factor may be 0 or change its sign.
            let open = (a.is_infinite() || b.is_infinite()) && (a <= x.bound || b <= y.bound);
            let unknown = open || [x, y, z].iter().any(|operand| operand.bound.is_infinite());
            return Element::new(value, if unknown { f64::INFINITY } else { 0.0 });
        }
        let spread = a * y.bound + b * x.bound + x.bound * y.bound + z.bound + slack(x.value * y.value);
        Element::rounded(compute, value, x.value * y.value + z.value, spread)
    }
}

/// The end of an interval that an approximation widens: an end `y` of f's values, taken at `x`, moved outwards by the bound. A result
/// beyond the largest `f32` is infinite.
fn near(bound: ErrorBound, x: f64, y: f64, sign: f64) -> f64 {
    let moved = y.clamp(-f64::MAX, f64::MAX) + sign * bound.at(x, y);
    let moved = if y.is_infinite() { y } else { moved };
    // Half a unit beyond the largest number.
    if moved.abs() >= 3.402_823_567_797_336_6e38 { f64::INFINITY.copysign(moved) } else { moved }
}

/// The way in which tensor cores sum products: [`Accumulation::error`] bounds what one product of tiles adds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Accumulation {
    /// The types of both factors, of as many bits.
    pub(super) factors: [DType; 2],
    /// The type of the sums.
    pub(super) sums: DType,
    /// The factors are multiplied by scales of blocks, which moves the least normal number of their type.
    pub(super) scaled: bool,
}

impl Accumulation {
    /// The elements of a factor as tensor cores read them: of an `f32` the upper 19 bits count.
    pub(super) fn read(self, factor: &[Element]) -> Cow<'_, [Element]> {
        match self.factors[0] {
            DType::F32 => Cow::Owned(factor.iter().map(|x| x.tf32()).collect()),
            _ => Cow::Borrowed(factor),
        }
    }

    /// The error of adding `k` products to a sum, relative to the largest partial sum on the way.
    ///
    /// An instruction aligns its 8 to 32 products and the sum before them to the largest of them, cuts what lies below 2⁻²⁴ of it,
    /// adds, and cuts the sum to `f32`; products of 8-bit floats are cut at 2⁻¹³ (`docs/fidelity.md` has what is measured). With sums in
    /// `f16` each instruction rounds to that. Integers are exact.
    fn error(self, k: usize) -> f64 {
        let k = k as f64;
        if self.sums == DType::F64 {
            // A rounding for each product that is added, here and in the kernel.
            return (k + 4.0) * 2f64.powi(-52);
        }
        let single = (0.75 * k + 4.0) * 2f64.powi(-23);
        let narrow = if self.sums == DType::F16 { (k / 8.0 + 1.0) * DType::F16.epsilon() } else { 0.0 };
        let bytes = if self.factors[0].bits() == 8 { (k / 16.0 + 2.0) * 2f64.powi(-13) } else { 0.0 };
        if self.sums.is_float() { single + narrow + bytes } else { 0.0 }
    }

    /// Tensor cores align by exponents, and that of a subnormal element of a factor is the least normal one's.
    fn least(self) -> [f64; 2] {
        self.factors.map(|dtype| match dtype {
            _ if self.scaled => f64::MIN_POSITIVE,
            DType::F16 => 2f64.powi(-14),
            DType::E4M3 => 2f64.powi(-6),
            DType::E5M2 => 2f64.powi(-14),
            DType::F64 => 0.0,
            _ => 2f64.powi(-126),
        })
    }
}

/// The Euclidean norms of the rows of a factor.
fn norms(factor: &[Element], rows: usize, least: f64) -> Vec<f64> {
    let mut squares = vec![0.0; rows];
    for column in factor.chunks_exact(rows) {
        for (sum, x) in squares.iter_mut().zip(column) {
            *sum += square(*x, least);
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

/// The Euclidean norm of some elements of a factor.
fn norm(elements: impl Iterator<Item = Element>, least: f64) -> f64 {
    elements.map(|x| square(x, least)).sum::<f64>().sqrt()
}

/// The square of the largest that an element may be, which counts as `least` at least unless it is 0.
fn square(x: Element, least: f64) -> f64 {
    let size = x.value.abs() + x.bound;
    let size = if size > 0.0 { size.max(least) } else { 0.0 };
    size * size
}

/// Bounds of `c += a · bᵀ`: `c` has what it held before, and takes the values of `after`.
///
/// A partial sum is at most as large as the larger of both and the product of the factors' norms together.
pub(super) fn product(
    c: &mut [Element],
    after: &[f64],
    (factor, b): (&Left<'_>, &[Element]),
    [m, n, k]: [usize; 3],
    how: Accumulation,
) {
    let a = &*factor.all;
    let [of_a, of_b] = how.least();
    let [left, right] = [(a, m, of_a), (b, n, of_b)].map(|(factor, rows, least)| norms(factor, rows, least));
    let inexact: Vec<bool> = a.chunks_exact(m).map(|column| column.iter().any(|x| x.bound != 0.0)).collect();
    let unit = how.error(k);
    let mut spread = vec![0.0; m];
    for (j, (c, after)) in c.chunks_exact_mut(m).zip(after.chunks_exact(m)).enumerate() {
        spread.fill(0.0);
        for p in 0..k {
            let y = b[j + p * n];
            if y.bound == 0.0 && !inexact[p] {
                continue;
            }
            let (size, reach) = (y.value.abs() + y.bound, y.bound);
            for (i, (spread, x)) in spread.iter_mut().zip(&a[p * m..][..m]).enumerate() {
                if factor.has(i + m * p) {
                    *spread += x.value.abs() * reach + x.bound * size;
                }
            }
        }
        for (i, (((c, value), spread), left)) in c.iter_mut().zip(after).zip(&spread).zip(&left).enumerate() {
            let (before, size) = (c.value.abs(), value.abs());
            let larger = if before > size { before } else { size };
            let right = match &factor.has {
                // Some of the row's elements meet none of the other factor's.
                Some(_) if !right[j].is_finite() => {
                    norm((0..k).filter(|p| factor.has(i + m * p)).map(|p| b[j + n * p]), of_b)
                }
                _ => right[j],
            };
            let partial = larger + left * right;
            let inherited = c.bound + spread;
            let bound = inherited + unit * partial;
            *c = if size + bound < f64::INFINITY {
                Element { value: *value, rest: 0, bound }
            } else {
                // What is infinite or no number is so in any order.
                Element::new(*value, if inherited == 0.0 { 0.0 } else { f64::INFINITY })
            };
        }
    }
}

/// The elements that an index names along a mode, modulo its extent, if it may be off by its bound.
pub(super) fn named(index: Element, extent: usize, at: impl Fn(usize) -> Element) -> Element {
    // What was never written names nothing.
    if index.value.is_nan() {
        return UNWRITTEN;
    }
    let of = |index: i64| at(index.rem_euclid(extent as i64) as usize);
    let named = of(index.value as i64);
    if index.bound == 0.0 {
        return named;
    }
    let off = index.bound.min(extent as f64) as i64;
    let others = (-off..=off).map(|d| of((index.value as i64).saturating_add(d)));
    let bound = others
        .map(|x| (x.value - named.value).abs() + x.bound)
        .fold(named.bound, |worst, bound| if bound.is_nan() { f64::INFINITY } else { worst.max(bound) });
    named.within(bound)
}
