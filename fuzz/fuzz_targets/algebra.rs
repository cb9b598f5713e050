//! The laws of the algebra on any two layouts, with extents and strides up to the ends of 64 bits. Values are checked
//! against an evaluator of its own that counts in 128 bits.
#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;
use tilewright_layout::*;

/// Layouts of at most this size are looked at in whole.
const WHOLE: i64 = 1 << 10;

#[derive(Clone, Copy, Debug, Arbitrary)]
enum Operation {
    Compose,
    ComposeByMode,
    ComposeCoordinates,
    ComposeF2,
    RightInverse,
    LeftInverse,
    Inverse,
    Complement,
    Coalesce,
    Divide,
    Product,
    Common,
    Admissible,
    Nullspace,
    Recast,
    Bits,
    BitInverses,
    CoordinateInverses,
    Injective,
    Coordinates,
}

#[derive(Debug)]
struct Input {
    operation: Operation,
    a: Layout,
    b: Layout,
    /// The bits of these are used as a layout over bit strings.
    bits: Layout<F2>,
    coords: Layout<Coord>,
    number: i64,
    points: Vec<i64>,
}

fn extent(u: &mut Unstructured<'_>) -> Result<i64> {
    Ok(match u.int_in_range(0..=9)? {
        0 => 1,
        1..=4 => u.int_in_range(1..=9)?,
        5..=6 => 1 << u.int_in_range(0..=8)?,
        7 => u.int_in_range(1..=1 << 17)?,
        8 => 1 << u.int_in_range(0..=62)?,
        _ => u.int_in_range(1..=i64::MAX)?,
    })
}

fn stride(u: &mut Unstructured<'_>, compact: i64) -> Result<i64> {
    Ok(match u.int_in_range(0..=11)? {
        0 => 0,
        1..=4 => compact,
        5..=6 => u.int_in_range(-9..=9)?,
        7 => 1 << u.int_in_range(0..=62)?,
        8 => -(1 << u.int_in_range(0..=62)?),
        9 => compact.saturating_mul(u.int_in_range(1..=8)?),
        10 => u.int_in_range(-(1 << 17)..=1 << 17)?,
        _ => u.arbitrary()?,
    })
}

fn shape(u: &mut Unstructured<'_>, depth: usize) -> Result<Shape> {
    if depth == 0 || u.ratio(2, 3)? {
        return Ok(HTuple::Leaf(extent(u)?));
    }
    let modes = u.int_in_range(1..=4)?;
    Ok(HTuple::Tuple((0..modes).map(|_| shape(u, depth - 1)).collect::<Result<_>>()?))
}

/// A layout of any strides; strides of compact layouts, counted in a random order of the leaves, are frequent.
fn layout<S: Stride>(
    u: &mut Unstructured<'_>,
    mut element: impl FnMut(&mut Unstructured<'_>, i64) -> Result<S>,
) -> Result<Layout<S>> {
    let shape = match u.ratio(4, 5)? {
        true => {
            let modes = u.int_in_range(1..=4)?;
            HTuple::Tuple((0..modes).map(|_| shape(u, 3)).collect::<Result<_>>()?)
        }
        false => shape(u, 0)?,
    };
    let extents: Vec<i64> = shape.leaves().into_iter().copied().collect();
    let mut order: Vec<usize> = (0..extents.len()).collect();
    if u.arbitrary()? {
        for k in 1..order.len() {
            order.swap(k, u.int_in_range(0..=k)?);
        }
    }
    let mut strides = vec![None; extents.len()];
    let mut next = 1i64;
    for k in order {
        strides[k] = Some(element(u, next)?);
        next = next.saturating_mul(extents[k]);
    }
    let mut strides = strides.into_iter().flatten();
    let stride = shape.map(|_| strides.next().unwrap_or_else(S::zero));
    Layout::new(shape, stride).map_err(|_| arbitrary::Error::IncorrectFormat)
}

impl<'a> Arbitrary<'a> for Input {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Input> {
        Ok(Input {
            operation: u.arbitrary()?,
            a: layout(u, stride)?,
            b: layout(u, stride)?,
            number: if u.arbitrary()? { extent(u)? } else { u.arbitrary()? },
            bits: layout(u, |u, compact| {
                let d = stride(u, compact)? as u64;
                Ok(F2(if u.ratio(1, 4)? { d ^ u.int_in_range(0..=255)? } else { d }))
            })?,
            coords: layout(u, |u, compact| {
                let path = [vec![0], vec![1], vec![2], vec![0, 0], vec![0, 1], vec![1, 0]];
                let k = u.int_in_range(0..=path.len() - 1)?;
                let d = stride(u, compact)?;
                Ok(Coord::nested(&path[k]).map_or_else(|_| Coord::zero(), |e| e.scale(d)))
            })?,
            points: u.arbitrary()?,
        })
    }
}

/// The value of a layout at an integral coordinate, extending the last mode, in 128 bits.
fn value(layout: &Layout, index: i64) -> i128 {
    let leaves = layout.leaves();
    let (mut rest, mut sum) = (i128::from(index), 0i128);
    for (k, (s, d)) in leaves.iter().enumerate() {
        let (s, d) = (i128::from(*s), i128::from(*d));
        let c = if k + 1 == leaves.len() { rest } else { rest.rem_euclid(s) };
        rest = rest.div_euclid(s);
        sum += c * d;
    }
    sum
}

impl Input {
    /// Some of the integers below `size`: all if there are few.
    fn points(&self, size: i64) -> Vec<i64> {
        if size <= WHOLE {
            return (0..size).collect();
        }
        let mut points = vec![0, 1, 2, 3, size / 3, size / 2, size - 2, size - 1];
        points.extend(self.points.iter().take(64).map(|p| p.rem_euclid(size)));
        points
    }

    fn run(&self) {
        let (a, b) = (&self.a, &self.b);
        match self.operation {
            Operation::Compose => {
                if let Ok(r) = compose(a, b) {
                    self.same_as_composition(&r, a, b);
                }
            }
            Operation::ComposeByMode => {
                let tilers = b.modes();
                if let Ok(r) = compose_by_mode(a, &tilers) {
                    for ((mode, a), b) in r.modes().iter().zip(a.modes()).zip(&tilers) {
                        self.same_as_composition(mode, &a, b);
                    }
                }
            }
            Operation::ComposeCoordinates => {
                if let Ok(r) = compose_coordinates(a, &self.coords) {
                    assert_eq!(r.size(), self.coords.size());
                    for i in self.points(r.size()) {
                        let mut sum = 0;
                        for (basis, factor) in self.coords.eval(i).terms() {
                            let mode = basis.path().iter().fold(a.clone(), |m, k| m.mode(*k).unwrap());
                            sum += value(&mode, *factor);
                        }
                        assert_eq!(value(&r, i), sum, "{r} at {i}");
                    }
                }
                let _ = compose(&self.coords, b).map(|r| {
                    for i in self.points(r.size()) {
                        if let Ok(v) = self.coords.checked_eval(b.eval(i)) {
                            assert_eq!(r.eval(i), v, "{r} at {i}");
                        }
                    }
                });
            }
            Operation::ComposeF2 => {
                if let Ok(r) = compose(&self.bits, b) {
                    assert_eq!(r.size(), b.size());
                    for i in self.points(r.size()) {
                        assert_eq!(r.eval(i), self.bits.eval(b.eval(i)), "{r} at {i}");
                    }
                }
                if let Ok(r) = compose_f2(a, &self.bits) {
                    for i in self.points(r.size()) {
                        assert_eq!(value(&r, i), value(a, self.bits.eval(i).0 as i64), "{r} at {i}");
                    }
                }
            }
            Operation::RightInverse => self.right(a, &right_inverse(a)),
            Operation::LeftInverse => {
                if let Ok(r) = left_inverse(a) {
                    for i in self.points(a.size()) {
                        let at = r.checked_eval(a.eval(i)).unwrap();
                        assert_eq!(value(a, at), value(a, i), "{r} at {i}");
                    }
                }
            }
            Operation::Inverse => {
                if let Ok(r) = inverse(a) {
                    assert_eq!(r.size(), a.size());
                    self.right(a, &r);
                    for i in self.points(a.size()) {
                        assert_eq!(value(&r, a.eval(i)), i128::from(i), "{r} at {i}");
                    }
                }
            }
            Operation::Complement => {
                let values: Option<BTreeSet<i64>> =
                    (a.size() <= WHOLE).then(|| a.image().into_iter().collect());
                let check = |r: &Layout, size: i64| {
                    for x in self.points(size).into_iter().filter(|x| *x > 0) {
                        let Ok(v) = r.checked_eval(x) else { continue };
                        assert!(value(r, x - 1) < i128::from(v), "{r} at {x}");
                        assert!(values.as_ref().is_none_or(|all| !all.contains(&v)), "{r} at {x}");
                    }
                };
                if let Ok(r) = complement(a, self.number) {
                    check(&r, r.size());
                }
                if let Ok(r) = complement_unbounded(a) {
                    check(&r, r.size().saturating_mul(64));
                }
            }
            Operation::Coalesce => {
                let r = coalesce(a);
                assert!(r.size() == a.size() && r.depth() <= 1);
                for i in self.points(a.size()) {
                    assert_eq!(value(&r, i), value(a, i), "{r} at {i}");
                    assert_eq!(value(a, i), i128::from(a.eval(i)));
                }
                if let Ok(r) = coalesce_by(a, b.shape()) {
                    for i in self.points(a.size()) {
                        assert_eq!(value(&r, i), value(a, i), "{r} at {i}");
                    }
                }
                let r = coalesce(&self.bits);
                for i in self.points(r.size()) {
                    assert_eq!(r.eval(i), self.bits.eval(i), "{r} at {i}");
                }
            }
            Operation::Divide => {
                let tilers = b.modes();
                for f in
                    [logical_divide_by_mode, zipped_divide_by_mode, tiled_divide_by_mode, flat_divide_by_mode]
                {
                    let _ = f(a, &tilers);
                }
                for f in [tiled_divide, flat_divide] {
                    let _ = f(a, b);
                }
                let Ok(r) = logical_divide(a, b) else { return };
                self.same_as_composition(&r.mode(0).unwrap(), a, b);
                if r.size() <= WHOLE && a.size() <= WHOLE {
                    let all: BTreeSet<i64> = r.image().into_iter().collect();
                    for i in 0..a.size() {
                        assert!(all.contains(&a.eval(i)), "{r} lacks the value at {i}");
                    }
                }
            }
            Operation::Product => {
                for f in [tiled_product, flat_product, blocked_product, raked_product] {
                    if let (Ok(p), Ok(r)) = (f(a, b), logical_product(a, b)) {
                        assert_eq!(p.size(), r.size());
                    }
                }
                let Ok(r) = logical_product(a, b) else { return };
                assert_eq!(r.mode(0).unwrap(), *a);
                assert_eq!(r.mode(1).unwrap().size(), b.size());
                if r.size() <= WHOLE && a.is_injective() && b.is_injective() {
                    assert!(r.is_injective(), "{r}");
                }
            }
            Operation::Common => {
                let r = max_common_layout(a, b);
                assert_eq!(max_common_vector(a, b), r.size());
                for k in self.points(r.size()) {
                    let at = r.eval(k);
                    assert_eq!((value(a, at), value(b, at)), (i128::from(k), i128::from(k)), "{r}");
                    assert!((0..a.size().min(b.size())).contains(&at), "{r} at {k}");
                }
            }
            Operation::Admissible => {
                if let Ok(r) = admissible(a, b) {
                    for i in self.points(b.size()) {
                        assert!((0..a.size()).contains(&r.eval(i)), "{r} at {i}");
                        assert_eq!(value(a, r.eval(i)), value(b, i), "{r} at {i}");
                    }
                }
            }
            Operation::Nullspace => {
                let r = nullspace(a);
                let zero = a.leaves().iter().filter(|l| l.1 == 0).fold(1i64, |n, l| n.saturating_mul(l.0));
                assert_eq!(r.size(), zero);
                for i in self.points(r.size()) {
                    assert_eq!(value(a, r.eval(i)), 0, "{r} at {i}");
                }
            }
            Operation::Recast => {
                let (from, to) = match self.points.first() {
                    Some(p) if p % 2 == 0 => (16, 16 << (p / 2).rem_euclid(4)),
                    Some(p) => (16 << (p / 2).rem_euclid(4), 16),
                    None => (self.number, 8),
                };
                let Ok(r) = recast(a, from, to) else { return };
                if a.size() > WHOLE || r.size() > WHOLE {
                    return;
                }
                let (narrow, wide, n) = if from > to { (&r, a, from / to) } else { (a, &r, to / from) };
                let narrow: BTreeSet<i64> = narrow.image().into_iter().collect();
                for v in wide.image() {
                    for k in 0..n.min(64) {
                        assert!(narrow.contains(&(v * n + k)), "{a} recast from {from} to {to}: {r}");
                    }
                }
            }
            Operation::Bits => {
                if let Ok(r) = to_f2(a) {
                    for i in self.points(a.size()) {
                        assert_eq!(i128::from(r.eval(i).0), value(a, i), "{r} at {i}");
                    }
                }
                if let Ok(r) = from_f2(&self.bits) {
                    for i in self.points(r.size()) {
                        assert_eq!(self.bits.eval(i).0 as i64, r.eval(i), "{r} at {i}");
                    }
                }
            }
            Operation::BitInverses => {
                let l = &self.bits;
                if let Ok(r) = right_inverse_f2(l) {
                    for k in self.points(r.size()) {
                        assert_eq!(l.eval(r.eval(k).0 as i64), F2(k as u64), "{r} at {k}");
                    }
                }
                if let Ok(r) = left_inverse_f2(l) {
                    for i in self.points(l.size()) {
                        let v = l.eval(i);
                        if i64::try_from(v.0).is_ok_and(|v| v < r.size()) {
                            assert_eq!(l.eval(r.eval(v.0 as i64).0 as i64), v, "{r} at {i}");
                        }
                    }
                }
                if let Ok(r) = nullspace_f2(l) {
                    for i in self.points(r.size()) {
                        assert_eq!(l.eval(r.eval(i).0 as i64), F2(0), "{r} at {i}");
                    }
                }
                let _ = inverse_f2(l);
            }
            Operation::CoordinateInverses => {
                let l = &self.coords;
                if let Ok(r) = right_inverse_coordinates(l) {
                    for k in self.points(r.size()) {
                        let c = idx2crd(k, r.shape());
                        let at = r.eval_coord(&c).unwrap();
                        assert!((0..l.size()).contains(&at), "{r} at {k}");
                    }
                }
                let _ = left_inverse_coordinates(l);
                let _ = inverse_coordinates(l);
                let _ = complement_coordinates(l, None);
                let _ = complement_coordinates(l, Some(b.shape()));
                let _ = logical_product_coordinates(l, l);
                let _ = logical_divide_coordinates(a, l);
                let _ = l.linear_form();
            }
            Operation::Injective => {
                if a.size() <= WHOLE {
                    let all: BTreeSet<i64> = a.image().into_iter().collect();
                    let distinct = all.len() as i64;
                    assert_eq!(a.is_injective(), distinct == a.size());
                    let whole = distinct == a.size()
                        && all.first() == Some(&0)
                        && all.last() == Some(&(distinct - 1));
                    assert_eq!(a.is_compact(), whole);
                }
                let _ = (a.cosize(), a.compatible(b), a.congruent(b), a.linear_form());
            }
            Operation::Coordinates => {
                for i in self.points(a.size()) {
                    let c = idx2crd(i, a.shape());
                    assert_eq!(crd2idx(&c, a.shape()), Ok(i));
                    assert_eq!(a.eval_coord(&c), Ok(a.eval(i)));
                    assert_eq!(natural_coordinate(&i.into(), a.shape()), Ok(c.clone()));
                    if let Ok(there) = map_coordinate(&c, a.shape(), b.shape()) {
                        assert_eq!(map_coordinate(&there, b.shape(), a.shape()), Ok(c));
                    }
                }
                for p in &self.points {
                    let _ = (a.eval(*p), a.checked_eval(*p), crd2idx(&idx2crd(*p, b.shape()), a.shape()));
                }
            }
        }
    }

    fn right(&self, a: &Layout, r: &Layout) {
        for k in self.points(r.size()) {
            assert_eq!(value(a, r.eval(k)), i128::from(k), "{r} at {k}");
        }
    }

    fn same_as_composition(&self, r: &Layout, a: &Layout, b: &Layout) {
        assert_eq!(r.size(), b.size());
        assert!(b.compatible(r));
        for i in self.points(b.size()) {
            assert_eq!(value(r, i), value(a, b.eval(i)), "{r} at {i}");
        }
    }
}

fuzz_target!(|input: Input| input.run());
