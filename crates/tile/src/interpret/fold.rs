//! Elements put together one after another, with bounds on what a kernel's order of doing so comes to.

use std::cmp::Ordering;

use tilewright_machine::DType;

use super::bound::{Element, UNWRITTEN, own, reach, slack};
use super::round;
use super::shapes::Around;
use crate::arith::Compute;
use crate::program::{ArgOp, ReduceOp};

/// The order in which a kernel may add or multiply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Pairs of pairs: as many roundings as the tree is deep, one more at each of the three places where it may be cut.
    Tree,
    /// Any order that keeps neighbours together: a rounding for each element.
    Chain,
}

impl Order {
    fn roundings(self, count: u32) -> f64 {
        f64::from(match self {
            _ if count <= 1 => 0,
            Order::Tree => (count - 1).ilog2() + 1 + 3,
            Order::Chain => count - 1,
        })
    }
}

/// The elements so far.
#[derive(Clone, Copy)]
pub(super) enum Fold {
    Sum(Sum),
    Product(Product),
    Extreme(Extreme),
    /// Sums and products of integers, modulo 2³² or 2⁶⁴.
    Whole(Whole),
}

/// Sums of floats, in `f32`, of `f64` in that.
#[derive(Clone, Copy, Default)]
pub(super) struct Sum {
    count: u32,
    centre: f64,
    spread: f64,
    /// The sum of the elements without their signs.
    size: f64,
}

/// Products of floats, in `f32`, of `f64` in that.
#[derive(Clone, Copy)]
pub(super) struct Product {
    count: u32,
    centre: f64,
    /// The largest that it may be, signs left out, and what it is.
    most: f64,
    size: f64,
    /// The largest product of some of the factors.
    partial: f64,
}

/// The largest or the smallest.
#[derive(Clone, Copy)]
pub(super) struct Extreme {
    op: ReduceOp,
    value: Element,
    ends: [f64; 2],
    open: bool,
}

/// Integers.
#[derive(Clone, Copy)]
pub(super) struct Whole {
    op: ReduceOp,
    compute: Compute,
    value: Option<Element>,
    bound: f64,
}

/// The type in which elements of a type are put together: those of fewer than 32 bits in one of 32.
pub(super) fn computed(dtype: DType) -> Compute {
    Compute::of(dtype).filter(|compute| *compute != Compute::Bool).unwrap_or(Compute::I32)
}

impl Fold {
    /// Nothing yet, of elements of this type.
    pub(super) fn new(op: ReduceOp, dtype: DType) -> Self {
        match op {
            ReduceOp::Max | ReduceOp::Min => {
                Fold::Extreme(Extreme { op, value: UNWRITTEN, ends: [f64::NAN; 2], open: false })
            }
            ReduceOp::Sum if dtype.is_float() => Fold::Sum(Sum::default()),
            ReduceOp::Product if dtype.is_float() => {
                Fold::Product(Product { count: 0, centre: 1.0, most: 1.0, size: 1.0, partial: 1.0 })
            }
            ReduceOp::Sum | ReduceOp::Product => {
                Fold::Whole(Whole { op, compute: computed(dtype), value: None, bound: 0.0 })
            }
        }
    }

    /// One more element.
    pub(super) fn add(&mut self, x: Element) {
        match self {
            Fold::Sum(sum) => {
                sum.centre = if sum.count == 0 { x.value } else { sum.centre + x.value };
                sum.spread += x.bound;
                sum.size += x.value.abs() + x.bound;
                sum.count += 1;
            }
            Fold::Product(product) => {
                let most = x.value.abs() + x.bound;
                product.centre *= x.value;
                product.size *= x.value.abs();
                product.most *= most;
                product.partial *= most.max(1.0);
                product.count += 1;
            }
            Fold::Extreme(extreme) => {
                let Extreme { op, value, ends, open } = extreme;
                if !value.same_value(x) {
                    *value = match op.apply(value.value, x.value).to_bits() {
                        // Of integers whose nearest `f64` is the same, the rest decides.
                        _ if value.value == x.value && value.rest != x.rest => {
                            if (*op == ReduceOp::Max) == (x.rest > value.rest) { x } else { *value }
                        }
                        bits if bits == x.value.to_bits() => x,
                        _ => *value,
                    };
                }
                *open |= x.bound.is_infinite();
                *ends = [0, 1].map(|k| op.apply(ends[k], x.ends()[k]));
            }
            Fold::Whole(whole) => whole.add(x),
        }
    }

    /// The result, rounded to the type.
    pub(super) fn element(&self, order: Order, dtype: DType) -> Element {
        match self {
            Fold::Sum(sum) => sum.element(order, dtype),
            Fold::Product(product) => product.element(order, dtype),
            Fold::Extreme(Extreme { value, ends: [low, high], open, .. }) => {
                let bound = match open {
                    true => f64::INFINITY,
                    false if value.value.is_nan() => 0.0,
                    false => reach(value.value, *low, *high),
                };
                value.within(bound)
            }
            Fold::Whole(whole) => {
                Element { bound: whole.bound, ..whole.value.unwrap_or(Element::exact(0.0)) }
            }
        }
    }
}

/// The largest number of the type in which floats of a type are put together.
fn largest(compute: Compute) -> f64 {
    if compute == Compute::F64 { f64::MAX } else { f64::from(f32::MAX) }
}

/// The distance of subnormal numbers of the type in which floats of a type are put together.
fn tiny(compute: Compute) -> f64 {
    if compute == Compute::F64 { f64::from_bits(1) } else { 2f64.powi(-149) }
}

/// The roundings of the interpreter's own that count, of so many operations: those of `f64`.
fn roundings_here(compute: Compute, count: u32) -> f64 {
    if compute == Compute::F64 { f64::from(count.saturating_sub(1)) } else { 0.0 }
}

/// The element whose value in double precision is `centre`, and may be off by `spread`.
fn within(centre: f64, spread: f64, dtype: DType) -> Element {
    let compute = computed(dtype);
    let value = round(dtype, compute.round(centre));
    if spread == 0.0 {
        return Element::exact(value);
    }
    let spread = spread + own(compute, spread);
    let [low, high] = [centre - spread, centre + spread].map(|end| round(dtype, compute.round(end)));
    Element::new(value, reach(value, low, high))
}

impl Sum {
    fn element(&self, order: Order, dtype: DType) -> Element {
        let Sum { count, centre, spread, size } = *self;
        let compute = computed(dtype);
        if !centre.is_finite() {
            let bound = if spread.is_finite() { 0.0 } else { f64::INFINITY };
            return Element::new(round(dtype, compute.round(centre)), bound);
        }
        let roundings = order.roundings(count) + roundings_here(compute, count);
        let spread = spread + roundings * compute.epsilon() * size;
        within(centre, if spread == 0.0 { 0.0 } else { spread + slack(size) }, dtype)
    }
}

impl Product {
    fn element(&self, order: Order, dtype: DType) -> Element {
        let Product { count, centre, most, size, partial } = *self;
        let compute = computed(dtype);
        let roundings = order.roundings(count) + roundings_here(compute, count);
        let epsilon = 2.0 * compute.epsilon();
        // A part of the factors may leave the range of the type where all of them do not.
        if partial.is_nan() || partial * (1.0 + roundings * epsilon) > largest(compute) {
            let sure = count <= 1 && most.is_nan();
            let value = round(dtype, compute.round(centre));
            return Element::new(value, if sure { 0.0 } else { f64::INFINITY });
        }
        // Each rounding is relative, or one below the least normal number, which later factors make larger.
        let rounded = roundings * (epsilon * most + tiny(compute) * partial);
        let spread = (most - size) + rounded;
        within(centre, if spread == 0.0 { 0.0 } else { spread + slack(centre) * roundings }, dtype)
    }
}

impl Whole {
    fn add(&mut self, x: Element) {
        let Some(value) = self.value else {
            (self.value, self.bound) = (Some(x), x.bound);
            return;
        };
        let product = self.op == ReduceOp::Product;
        let [left, right] = [value, x].map(|x| self.compute.wrap(x.integer()));
        let next = if product { left.wrapping_mul(right) } else { left + right };
        self.bound = match (product, self.bound == 0.0 && x.bound == 0.0) {
            (true, true) => 0.0,
            // Modulo 2ⁿ an integer that is off by one may come out as anything.
            (true, false) => f64::INFINITY,
            (false, _) => self.bound + x.bound,
        };
        let nothing = value.value.is_nan() || x.value.is_nan();
        self.value = Some(if nothing { UNWRITTEN } else { Element::of_integer(self.compute.wrap(next)) });
    }
}

/// The states of hₜ = aₜ·hₜ₋₁ + bₜ in `f32`, of `f64` in that, where the pairs (a, b) may be put together in any order that keeps neighbours together.
#[derive(Clone, Copy)]
pub(super) struct Linear {
    steps: u32,
    state: f64,
    spread: f64,
    /// The state of the terms without their signs, now and at most.
    size: f64,
    most: f64,
    /// The largest product of some of the factors.
    partial: f64,
}

impl Linear {
    /// The state before the first.
    pub(super) fn new(before: Element) -> Self {
        let size = before.value.abs() + before.bound;
        Linear { steps: 0, state: before.value, spread: before.bound, size, most: size, partial: 1.0 }
    }

    /// The next state.
    pub(super) fn next(&mut self, a: Element, b: Element, dtype: DType) -> Element {
        let factor = a.value.abs() + a.bound;
        self.spread = factor * self.spread + a.bound * self.state.abs() + b.bound;
        self.state = a.value * self.state + b.value;
        self.size = factor * self.size + b.value.abs() + b.bound;
        self.most = self.most.max(self.size);
        self.partial *= factor.max(1.0);
        self.steps += 1;
        let compute = computed(dtype);
        let value = round(dtype, compute.round(self.state));
        let range = largest(compute) * 0.99;
        if !(self.partial <= range && self.most <= range) {
            return Element::new(value, f64::INFINITY);
        }
        // A term passes a product and a sum at each step at most.
        let roundings = 2.0 * f64::from(self.steps) + 1.0 + 2.0 * roundings_here(compute, self.steps + 1);
        let subnormal = 2.0 * tiny(compute) * self.partial * self.most.max(1.0);
        let rounded = 2.0 * compute.epsilon() * self.size + subnormal;
        within(self.state, self.spread + roundings * rounded, dtype)
    }
}

/// The elements along a mode put together.
pub(super) fn reduce(src: &[Element], around: Around, op: ReduceOp, dtype: DType) -> Vec<Element> {
    around
        .rows()
        .map(|row| {
            let mut fold = Fold::new(op, dtype);
            row.for_each(|at| fold.add(src[at]));
            fold.element(Order::Tree, dtype)
        })
        .collect()
}

/// The largest or the smallest along a mode, and its coordinate: of several the first.
pub(super) fn arg(src: &[Element], around: Around, op: ArgOp) -> (Vec<Element>, Vec<Element>) {
    let extreme = op.extreme();
    let found = around.rows().map(|row| {
        let elements: Vec<Element> = row.map(|at| src[at]).collect();
        let mut fold = Fold::new(extreme, DType::F32);
        elements.iter().for_each(|x| fold.add(*x));
        let value = fold.element(Order::Tree, DType::F32);
        // Of numbers that are equal, that is: a zero of another sign is another number.
        let same = |x: &&Element| x.same_value(value) || x.value.is_nan() && value.value.is_nan();
        let first = elements.iter().position(|x| same(&x)).unwrap_or(0);
        // Others may be it where their intervals reach its own.
        let reached = |x: &Element| {
            let ends = x.ends();
            let end = if op == ArgOp::Max { ends[1] } else { ends[0] };
            let [low, high] = value.ends();
            let beats = if op == ArgOp::Max { end >= low } else { end <= high };
            x.bound.is_infinite() || (x.bound > 0.0 || value.bound > 0.0) && beats
        };
        let open = |(k, x): (usize, &Element)| if reached(x) { first.abs_diff(k) as f64 } else { 0.0 };
        let bound = elements.iter().enumerate().map(open).fold(0.0, f64::max);
        (value, Element::exact(first as f64).within(bound))
    });
    found.unzip()
}

/// The order of a sort: NaNs last, −0 below +0.
fn sorted_order(descending: bool) -> impl Fn(f64, f64) -> Ordering {
    move |x: f64, y: f64| match (x.is_nan(), y.is_nan()) {
        (false, false) if descending => y.total_cmp(&x),
        (false, false) => x.total_cmp(&y),
        (nan, other) => nan.cmp(&other),
    }
}

/// The elements along a mode in their order, and those of another tile that go with them.
pub(super) fn sort(
    src: &[Element],
    with: Option<&[Element]>,
    around: Around,
    descending: bool,
) -> (Vec<Element>, Option<Vec<Element>>) {
    let order = sorted_order(descending);
    let mut keys = src.to_vec();
    let mut values = with.map(<[Element]>::to_vec);
    for row in around.rows() {
        let places: Vec<usize> = row.collect();
        let mut sorted = places.clone();
        sorted.sort_by(|a, b| {
            let rest = src[*a].rest.cmp(&src[*b].rest);
            order(src[*a].value, src[*b].value).then(if descending { rest.reverse() } else { rest })
        });
        // The k-th of the lower ends and of the upper ends bound the k-th.
        let open = places
            .iter()
            .any(|at| src[*at].bound.is_infinite() || src[*at].value.is_nan() && src[*at].bound > 0.0);
        let ends = [0, 1].map(|k| {
            let mut ends: Vec<f64> = places.iter().map(|at| src[*at].ends()[k]).collect();
            ends.sort_by(|a, b| order(*a, *b));
            ends
        });
        for (k, (at, from)) in places.iter().zip(&sorted).enumerate() {
            let value = src[*from].value;
            let exact = ends[0][k].to_bits() == value.to_bits() && ends[1][k].to_bits() == value.to_bits();
            let bound = match (open, value.is_nan() || exact) {
                (true, _) => f64::INFINITY,
                (false, true) => 0.0,
                (false, false) => reach(value, ends[0][k], ends[1][k]),
            };
            keys[*at] = src[*from].within(bound);
        }
        let (Some(with), Some(values)) = (with, &mut values) else { continue };
        // Those whose intervals meet may come in another order.
        let mut first = 0;
        for k in 0..sorted.len() {
            let meets = |k: usize| {
                let [x, y] = [src[sorted[k]], src[sorted[k + 1]]];
                let [low, high] =
                    if descending { [y.ends()[1], x.ends()[0]] } else { [x.ends()[1], y.ends()[0]] };
                open || (x.bound > 0.0 || y.bound > 0.0) && low >= high
            };
            if k + 1 < sorted.len() && meets(k) {
                continue;
            }
            for at in first..=k {
                let value = with[sorted[at]];
                let others = sorted[first..=k].iter().map(|other| with[*other]);
                let bound = others.map(|x| {
                    if x.value == value.value || first == k {
                        x.bound
                    } else {
                        (x.value - value.value).abs() + x.bound
                    }
                });
                let bound =
                    bound.fold(value.bound, |worst, x| if x.is_nan() { f64::INFINITY } else { worst.max(x) });
                values[places[at]] = value.within(bound);
            }
            first = k + 1;
        }
    }
    (keys, values)
}

/// Every element along a mode put together with those before it, or behind it.
pub(super) fn scan(
    src: &[Element],
    around: Around,
    (op, dtype): (ReduceOp, DType),
    reverse: bool,
) -> Vec<Element> {
    let mut result = vec![Element::exact(0.0); src.len()];
    for row in around.rows() {
        let mut fold = Fold::new(op, dtype);
        for at in ordered(row, reverse) {
            fold.add(src[at]);
            result[at] = fold.element(Order::Chain, dtype);
        }
    }
    result
}

/// The states of a linear recurrence along a mode.
pub(super) fn recurrence(
    [a, b]: [&[Element]; 2],
    before: Option<&[Element]>,
    around: Around,
    dtype: DType,
    reverse: bool,
) -> Vec<Element> {
    let mut result = vec![Element::exact(0.0); a.len()];
    for (number, row) in around.rows().enumerate() {
        let mut state = Linear::new(before.map_or(Element::exact(0.0), |before| before[number]));
        for at in ordered(row, reverse) {
            result[at] = state.next(a[at], b[at], dtype);
        }
    }
    result
}

fn ordered(row: impl Iterator<Item = usize>, reverse: bool) -> Vec<usize> {
    let mut row: Vec<usize> = row.collect();
    if reverse {
        row.reverse();
    }
    row
}
