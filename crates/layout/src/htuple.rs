//! Hierarchical tuples, and shapes: hierarchical tuples of positive integers (paper 2.1, 2.2). A shape maps integral
//! coordinates to natural ones and back, counting colexicographically: the leftmost mode is the fastest.

use crate::error::{LayoutError, overflow};
use std::fmt;

/// The greatest depth of a [`Layout`](crate::Layout) and of anything read from text.
pub const MAX_DEPTH: usize = 64;

/// Either one `T` or a tuple of hierarchical tuples of `T` (paper 2.1). Prints as `((2,2),8)`; a leaf prints bare.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum HTuple<T> {
    /// One element; depth 0.
    Leaf(T),
    /// A tuple; its depth is one more than that of its deepest element.
    Tuple(Vec<HTuple<T>>),
}

/// A shape: the extents of the modes, all of them at least 1.
pub type Shape = HTuple<i64>;

impl<T> HTuple<T> {
    /// The number of modes: the length of the tuple, 1 for a leaf.
    pub fn rank(&self) -> usize {
        match self {
            HTuple::Leaf(_) => 1,
            HTuple::Tuple(t) => t.len(),
        }
    }

    /// The levels of nesting: 0 for a leaf, 1 for a tuple of leaves.
    pub fn depth(&self) -> usize {
        match self {
            HTuple::Leaf(_) => 0,
            HTuple::Tuple(t) => 1 + t.iter().map(HTuple::depth).max().unwrap_or(0),
        }
    }

    /// The leaves from left to right.
    pub fn leaves(&self) -> Vec<&T> {
        let mut out = Vec::new();
        self.visit(&mut |leaf| out.push(leaf));
        out
    }

    fn visit<'a>(&'a self, f: &mut impl FnMut(&'a T)) {
        match self {
            HTuple::Leaf(leaf) => f(leaf),
            HTuple::Tuple(t) => t.iter().for_each(|e| e.visit(f)),
        }
    }

    /// The number of leaves.
    pub fn leaf_count(&self) -> usize {
        let mut n = 0;
        self.visit(&mut |_| n += 1);
        n
    }

    /// The same nesting with `f` applied to each leaf, from left to right.
    pub fn map<U>(&self, mut f: impl FnMut(&T) -> U) -> HTuple<U> {
        fn go<T, U>(h: &HTuple<T>, f: &mut impl FnMut(&T) -> U) -> HTuple<U> {
            match h {
                HTuple::Leaf(leaf) => HTuple::Leaf(f(leaf)),
                HTuple::Tuple(t) => HTuple::Tuple(t.iter().map(|e| go(e, f)).collect()),
            }
        }
        go(self, &mut f)
    }

    /// True if both nest in the same way (paper 2.1, congruence).
    pub fn congruent<U>(&self, other: &HTuple<U>) -> bool {
        match (self, other) {
            (HTuple::Leaf(_), HTuple::Leaf(_)) => true,
            (HTuple::Tuple(a), HTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.congruent(b))
            }
            _ => false,
        }
    }

    /// True if `other` nests like `self` wherever `self` is a tuple (paper 2.1, weak congruence): `self` is `other` with
    /// some tuples replaced by leaves.
    pub fn weakly_congruent<U>(&self, other: &HTuple<U>) -> bool {
        match (self, other) {
            (HTuple::Leaf(_), _) => true,
            (HTuple::Tuple(a), HTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.weakly_congruent(b))
            }
            _ => false,
        }
    }

    /// Mode `i`; a leaf is its own mode 0.
    pub fn get(&self, i: usize) -> Option<&HTuple<T>> {
        match self {
            HTuple::Leaf(_) => (i == 0).then_some(self),
            HTuple::Tuple(t) => t.get(i),
        }
    }

    /// The modes from left to right; a leaf is its own only mode.
    pub fn modes(&self) -> &[HTuple<T>] {
        match self {
            HTuple::Leaf(_) => std::slice::from_ref(self),
            HTuple::Tuple(t) => t,
        }
    }
}

impl<T: Clone> HTuple<T> {
    /// The leaves as a tuple of depth 1; a leaf, or a nest of tuples around one leaf, becomes that leaf.
    pub fn flatten(&self) -> HTuple<T> {
        HTuple::from_flat(self.leaves().into_iter().cloned().collect())
    }

    /// A tuple of depth 1, or a leaf where there is just one element.
    pub fn from_flat(mut leaves: Vec<T>) -> HTuple<T> {
        match leaves.len() {
            1 => HTuple::Leaf(leaves.remove(0)),
            _ => HTuple::Tuple(leaves.into_iter().map(HTuple::Leaf).collect()),
        }
    }
}

impl HTuple<i64> {
    /// The product of the leaves; an error where it does not fit in 64 bits.
    pub fn size(&self) -> Result<i64, LayoutError> {
        let mut size = Some(1i64);
        self.visit(&mut |&s| size = size.and_then(|n| n.checked_mul(s)));
        size.ok_or(overflow("the size of a shape"))
    }

    /// True if every coordinate of `self` is one of `other` (paper 2.2.1, compatibility, `self ⪯ other`): both are
    /// congruent wherever `self` is a tuple, and where `self` is a leaf the sizes agree. `30 ⪯ (2,15) ⪯ (2,(3,5))`.
    pub fn compatible(&self, other: &Shape) -> bool {
        match (self, other) {
            (HTuple::Leaf(n), s) => s.size() == Ok(*n),
            (HTuple::Tuple(a), HTuple::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.compatible(b))
            }
            _ => false,
        }
    }

    /// True if this is a shape: no empty tuple, every extent at least 1, not too deep, of a size that fits in 64 bits.
    pub fn check_shape(&self) -> Result<(), LayoutError> {
        fn go(s: &Shape, depth: usize) -> Result<(), LayoutError> {
            match s {
                HTuple::Leaf(n) if *n < 1 => Err(LayoutError::NotPositive { extent: *n }),
                HTuple::Leaf(_) => Ok(()),
                HTuple::Tuple(_) if depth == 0 => Err(LayoutError::TooDeep { limit: MAX_DEPTH }),
                HTuple::Tuple(t) if t.is_empty() => Err(LayoutError::EmptyTuple),
                HTuple::Tuple(t) => t.iter().try_for_each(|e| go(e, depth - 1)),
            }
        }
        go(self, MAX_DEPTH)?;
        self.size().map(|_| ())
    }
}

/// The natural coordinate of integral coordinate `index` in `shape` (paper equation 4, at every level). An index out of
/// bounds extends the last mode. Assumes a valid shape; an extent below 1 is read as 1.
pub fn idx2crd(index: i64, shape: &Shape) -> HTuple<i64> {
    fn leaf(i: i64, n: i64, last: bool) -> (i64, i64) {
        if last { (i, 0) } else { (i.rem_euclid(n), i.div_euclid(n)) }
    }
    fn go(rest: &mut i64, shape: &Shape, last: bool) -> HTuple<i64> {
        match shape {
            HTuple::Leaf(n) => {
                let (c, r) = leaf(*rest, (*n).max(1), last);
                *rest = r;
                HTuple::Leaf(c)
            }
            HTuple::Tuple(t) => {
                let n = t.len();
                HTuple::Tuple(t.iter().enumerate().map(|(k, e)| go(rest, e, last && k + 1 == n)).collect())
            }
        }
    }
    go(&mut { index }, shape, true)
}

/// The integral coordinate of any compatible coordinate in `shape` (paper equation 5, at every level). The law:
/// `crd2idx(idx2crd(i, s), s) == i` for every `i` in bounds.
pub fn crd2idx(coord: &HTuple<i64>, shape: &Shape) -> Result<i64, LayoutError> {
    match (coord, shape) {
        (HTuple::Leaf(c), _) => Ok(*c),
        (HTuple::Tuple(c), HTuple::Tuple(s)) if c.len() == s.len() => {
            let (mut index, mut scale) = (0i64, Some(1i64));
            for (c, s) in c.iter().zip(s) {
                let within = crd2idx(c, s)?;
                let term = scale.and_then(|k| within.checked_mul(k));
                index = term.and_then(|t| index.checked_add(t)).ok_or(overflow("an integral coordinate"))?;
                scale = scale.and_then(|k| k.checked_mul(s.size().ok()?));
            }
            Ok(index)
        }
        _ => Err(LayoutError::BadCoordinate { coord: coord.to_string(), shape: shape.to_string() }),
    }
}

impl<T: fmt::Display> fmt::Display for HTuple<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HTuple::Leaf(leaf) => write!(f, "{leaf}"),
            HTuple::Tuple(t) => {
                f.write_str("(")?;
                for (k, e) in t.iter().enumerate() {
                    if k > 0 {
                        f.write_str(",")?;
                    }
                    write!(f, "{e}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl From<i64> for HTuple<i64> {
    fn from(n: i64) -> Self {
        HTuple::Leaf(n)
    }
}

impl From<i32> for HTuple<i64> {
    fn from(n: i32) -> Self {
        HTuple::Leaf(n.into())
    }
}

impl<T> From<Vec<HTuple<T>>> for HTuple<T> {
    fn from(t: Vec<HTuple<T>>) -> Self {
        HTuple::Tuple(t)
    }
}

impl From<Vec<i64>> for HTuple<i64> {
    fn from(t: Vec<i64>) -> Self {
        HTuple::Tuple(t.into_iter().map(HTuple::Leaf).collect())
    }
}

impl From<&[i64]> for HTuple<i64> {
    fn from(t: &[i64]) -> Self {
        t.to_vec().into()
    }
}

impl<const N: usize> From<[i64; N]> for HTuple<i64> {
    fn from(t: [i64; N]) -> Self {
        t.to_vec().into()
    }
}

impl<A: Into<Shape>, B: Into<Shape>> From<(A, B)> for HTuple<i64> {
    fn from((a, b): (A, B)) -> Self {
        HTuple::Tuple(vec![a.into(), b.into()])
    }
}

impl<A: Into<Shape>, B: Into<Shape>, C: Into<Shape>> From<(A, B, C)> for HTuple<i64> {
    fn from((a, b, c): (A, B, C)) -> Self {
        HTuple::Tuple(vec![a.into(), b.into(), c.into()])
    }
}

impl<A: Into<Shape>, B: Into<Shape>, C: Into<Shape>, D: Into<Shape>> From<(A, B, C, D)> for HTuple<i64> {
    fn from((a, b, c, d): (A, B, C, D)) -> Self {
        HTuple::Tuple(vec![a.into(), b.into(), c.into(), d.into()])
    }
}
