//! Layouts: functions from the coordinates of a shape to a codomain, written `shape:stride` (paper 2.4). A coordinate is
//! first taken to the natural coordinate of the shape, counting colexicographically (leftmost fastest), then to the sum
//! of its elements scaled by the strides.

use crate::error::{LayoutError, overflow};
use crate::htuple::{HTuple, MAX_DEPTH, Shape};
use crate::stride::{Coord, F2, Poly, Stride};
use crate::text::Cursor;
use std::fmt;
use std::str::FromStr;

/// A layout: a shape and a congruent stride (paper 2.4). The shape gives the domain, the stride the codomain: integers
/// unless said otherwise.
///
/// Invariants: shape and stride are congruent, extents are positive, tuples are not empty and at most
/// [`MAX_DEPTH`](crate::MAX_DEPTH) deep, the size fits in 64 bits and so does every value in bounds.
///
/// ```
/// use tilewright_layout::Layout;
/// let l: Layout = "((2,2),(4,2)):((1,8),(2,16))".parse()?;
/// assert_eq!((l.rank(), l.depth(), l.size(), l.cosize()), (2, 2, 32, 32));
/// assert_eq!(l.eval(22), 26); // natural coordinate ((0,1),(1,1)): 8 + 2 + 16
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Layout<S = i64> {
    shape: Shape,
    stride: HTuple<S>,
}

impl<S: Stride> Layout<S> {
    /// The layout `shape:stride`; an error where one of the invariants does not hold.
    pub fn new(shape: Shape, stride: HTuple<S>) -> Result<Self, LayoutError> {
        shape.check_shape()?;
        if !shape.congruent(&stride) {
            return Err(LayoutError::NotCongruent { shape: shape.to_string(), stride: stride.to_string() });
        }
        let layout = Layout { shape, stride };
        if S::span_fits(&layout.leaves()) { Ok(layout) } else { Err(overflow("the cosize of a layout")) }
    }

    /// The shape: the extents of the modes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The stride: what each mode contributes per step.
    pub fn stride(&self) -> &HTuple<S> {
        &self.stride
    }

    /// The number of modes; 1 for a layout of depth 0.
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The levels of nesting; 0 for `8:1`.
    pub fn depth(&self) -> usize {
        self.shape.depth()
    }

    /// The number of integral coordinates: the product of the extents.
    pub fn size(&self) -> i64 {
        self.shape.size().unwrap_or(i64::MAX)
    }

    /// Mode `i` as a layout; a layout of depth 0 is its own mode 0 (paper 3.1).
    pub fn mode(&self, i: usize) -> Result<Layout<S>, LayoutError> {
        match (self.shape.get(i), self.stride.get(i)) {
            (Some(shape), Some(stride)) => Ok(Layout { shape: shape.clone(), stride: stride.clone() }),
            _ => Err(LayoutError::NoSuchMode { mode: i, rank: self.rank() }),
        }
    }

    /// The modes from left to right; a layout of depth 0 is its own only mode.
    pub fn modes(&self) -> Vec<Layout<S>> {
        let pairs = self.shape.modes().iter().zip(self.stride.modes());
        pairs.map(|(shape, stride)| Layout { shape: shape.clone(), stride: stride.clone() }).collect()
    }

    /// The same function of integral coordinates with all nesting removed: [`from_leaves`](Self::from_leaves) of
    /// [`leaves`](Self::leaves).
    pub fn flatten(&self) -> Layout<S> {
        Layout { shape: self.shape.flatten(), stride: self.stride.flatten() }
    }

    /// The (extent, stride) pairs of the leaves, leftmost first.
    pub fn leaves(&self) -> Vec<(i64, S)> {
        fn go<S: Clone>(shape: &Shape, stride: &HTuple<S>, out: &mut Vec<(i64, S)>) {
            match (shape, stride) {
                (HTuple::Leaf(s), HTuple::Leaf(d)) => out.push((*s, d.clone())),
                (HTuple::Tuple(s), HTuple::Tuple(d)) => s.iter().zip(d).for_each(|(s, d)| go(s, d, out)),
                _ => {} // not congruent: excluded by `new`
            }
        }
        let mut leaves = Vec::with_capacity(self.shape.leaf_count());
        go(&self.shape, &self.stride, &mut leaves);
        leaves
    }

    /// The layout of depth 1 with these (extent, stride) pairs; of depth 0 where there is one; `1:0` where there is
    /// none.
    pub fn from_leaves(leaves: &[(i64, S)]) -> Result<Layout<S>, LayoutError> {
        if leaves.is_empty() {
            return Ok(Layout::trivial());
        }
        let shape = HTuple::from_flat(leaves.iter().map(|l| l.0).collect());
        let stride = HTuple::from_flat(leaves.iter().map(|l| l.1.clone()).collect());
        Layout::new(shape, stride)
    }

    /// The layout `1:0`.
    pub fn trivial() -> Layout<S> {
        Layout { shape: HTuple::Leaf(1), stride: HTuple::Leaf(S::zero()) }
    }

    /// The concatenation `(A,B,…)`: a layout whose modes are the given ones (paper 3.1). The law:
    /// `concat([A,B])((a,b)) = A(a) + B(b)`. `1:0` where there is none.
    pub fn concat(layouts: &[Layout<S>]) -> Result<Layout<S>, LayoutError> {
        if layouts.is_empty() {
            return Ok(Layout::trivial());
        }
        let shape = HTuple::Tuple(layouts.iter().map(|l| l.shape.clone()).collect());
        let stride = HTuple::Tuple(layouts.iter().map(|l| l.stride.clone()).collect());
        Layout::new(shape, stride)
    }

    /// The value at an integral coordinate (paper equations 4 and 6). An index out of bounds extends the last mode, as
    /// in CuTe; there the value saturates where it does not fit ([`checked_eval`](Self::checked_eval) says so).
    pub fn eval(&self, index: i64) -> S {
        let fold = self.fold(index, |sum, c, d| Some(sum.add(&d.scale(c))));
        fold.unwrap_or_else(S::zero)
    }

    /// The value at an integral coordinate, or an error where it does not fit in 64 bits, which happens only out of
    /// bounds.
    pub fn checked_eval(&self, index: i64) -> Result<S, LayoutError> {
        let fold = self.fold(index, |sum, c, d| sum.checked_add(&d.checked_scale(c)?));
        fold.ok_or(overflow("the value of a layout out of bounds"))
    }

    /// The values at 0, 1, …, up to the size: `table()[i] == eval(i)`.
    pub fn table(&self) -> Vec<S> {
        let leaves = self.leaves();
        let size: i64 = leaves.iter().map(|(extent, _)| extent).product();
        let mut table = Vec::with_capacity(size as usize);
        table.push(S::zero());
        for (extent, stride) in leaves {
            let below = table.len();
            for digit in 1..extent {
                let step = stride.scale(digit);
                for i in 0..below {
                    table.push(table[i].add(&step));
                }
            }
        }
        table
    }

    fn fold(&self, index: i64, mut step: impl FnMut(S, i64, &S) -> Option<S>) -> Option<S> {
        fn go<S>(
            (shape, stride): (&Shape, &HTuple<S>),
            last: bool,
            rest: &mut i64,
            sum: S,
            step: &mut impl FnMut(S, i64, &S) -> Option<S>,
        ) -> Option<S> {
            match (shape, stride) {
                _ if *rest == 0 => Some(sum),
                (HTuple::Leaf(s), HTuple::Leaf(d)) => {
                    let c = if last {
                        *rest
                    } else if s & (s - 1) == 0 {
                        // A power of two: division rounds down, for negative indices too.
                        let c = *rest & (s - 1);
                        *rest >>= s.trailing_zeros();
                        c
                    } else {
                        let c = rest.rem_euclid(*s);
                        *rest = rest.div_euclid(*s);
                        c
                    };
                    if c == 0 { Some(sum) } else { step(sum, c, d) }
                }
                (HTuple::Tuple(s), HTuple::Tuple(d)) => {
                    let mut sum = sum;
                    for (k, pair) in s.iter().zip(d).enumerate() {
                        sum = go(pair, last && k + 1 == s.len(), rest, sum, step)?;
                    }
                    Some(sum)
                }
                _ => None, // not congruent: excluded by `new`
            }
        }
        go((&self.shape, &self.stride), true, &mut { index }, S::zero(), &mut step)
    }

    /// The value at any coordinate compatible with the shape: an integer, a tuple with one element for each mode, or
    /// anything between those and the natural coordinate (paper 2.2.1). Elements out of bounds extend the last leaf of
    /// their mode.
    pub fn eval_coord(&self, coord: &HTuple<i64>) -> Result<S, LayoutError> {
        match coord {
            HTuple::Leaf(index) => self.checked_eval(*index),
            HTuple::Tuple(elements) if self.depth() > 0 && elements.len() == self.rank() => {
                let mut sum = S::zero();
                for (element, mode) in elements.iter().zip(self.modes()) {
                    sum = sum
                        .checked_add(&mode.eval_coord(element)?)
                        .ok_or(overflow("the value of a layout out of bounds"))?;
                }
                Ok(sum)
            }
            _ => Err(LayoutError::BadCoordinate { coord: coord.to_string(), shape: self.shape.to_string() }),
        }
    }
}

impl<S: Stride> Layout<S> {
    /// The values at all integral coordinates, in the order of the coordinates; a value occurs as often as it is taken
    /// (paper 2.4.1).
    pub fn image(&self) -> Vec<S> {
        let mut values = vec![S::zero()];
        for (s, d) in self.leaves() {
            let inner = values.len();
            for c in 1..s {
                let step = d.scale(c);
                for k in 0..inner {
                    values.push(values[k].add(&step));
                }
            }
        }
        values
    }

    /// True if both have the same profile (paper 2.4.1, `A ~ B`).
    pub fn congruent<D: Stride>(&self, other: &Layout<D>) -> bool {
        self.shape().congruent(other.shape())
    }

    /// True if every coordinate of this layout is one of `other` (paper 2.4.1, `A ⪯ B`).
    pub fn compatible<D: Stride>(&self, other: &Layout<D>) -> bool {
        self.shape().compatible(other.shape())
    }
}

impl Layout<Coord> {
    /// The layout of the coordinates' elements of basis `e_index`. The law: `R(i)` is the component `index` of `L(i)`.
    ///
    /// ```
    /// use tilewright_layout::{Coord, Layout};
    /// let l: Layout<Coord> = "(4,(4,2)):(e1,(e0,6e1))".parse()?;
    /// assert_eq!(l.component(1).to_string(), "(4,(4,2)):(1,(0,6))");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn component(&self, index: usize) -> Layout {
        Layout { shape: self.shape.clone(), stride: self.stride.map(|d| d.component(index)) }
    }
}

impl Layout<i64> {
    /// Number of consecutive integers that the values span, from the least to the greatest: `1 + Σ (extent − 1)·|stride|`.
    /// With no negative stride this is the greatest value plus one.
    pub fn cosize(&self) -> i64 {
        self.leaves().iter().fold(1i64, |sum, (s, d)| {
            let term = (s - 1).saturating_mul(d.saturating_abs());
            sum.saturating_add(term)
        })
    }

    /// The compact layout of `shape` whose leftmost mode has stride 1.
    pub fn column_major(shape: Shape) -> Result<Layout, LayoutError> {
        shape.check_shape()?;
        let mut next = 1i64;
        let stride = shape.map(|s| {
            let this = next;
            next = next.saturating_mul(*s);
            this
        });
        Layout::new(shape, stride)
    }

    /// The compact layout of `shape` whose rightmost mode has stride 1.
    pub fn row_major(shape: Shape) -> Result<Layout, LayoutError> {
        shape.check_shape()?;
        let mut next = shape.size()?;
        let stride = shape.map(|s| {
            next /= s;
            next
        });
        Layout::new(shape, stride)
    }

    /// The compact layout of `shape` whose leaves count in the given order: the leaf with the smallest order has stride
    /// 1. Leaves of equal order count from left to right. An error where `order` is not congruent to the shape.
    ///
    /// ```
    /// use tilewright_layout::Layout;
    /// let l = Layout::ordered((3, 4, 5).into(), &(1, 2, 0).into())?;
    /// assert_eq!(l.to_string(), "(3,4,5):(5,15,1)");
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn ordered(shape: Shape, order: &HTuple<i64>) -> Result<Layout, LayoutError> {
        shape.check_shape()?;
        if !shape.congruent(order) {
            return Err(LayoutError::NotCongruent { shape: shape.to_string(), stride: order.to_string() });
        }
        let (extents, order) = (shape.leaves(), order.leaves());
        let mut sorted: Vec<usize> = (0..extents.len()).collect();
        sorted.sort_by_key(|k| order[*k]);
        let (mut strides, mut next) = (vec![0i64; extents.len()], 1i64);
        for k in sorted {
            strides[k] = next;
            next = next.saturating_mul(*extents[k]);
        }
        let mut strides = strides.into_iter();
        let stride = shape.map(|_| strides.next().unwrap_or(0));
        Layout::new(shape, stride)
    }

    /// The layout `n:0`, which maps each integer to 0: repetition. An `n` below 1 is read as 1.
    pub fn broadcast(n: i64) -> Layout {
        Layout { shape: HTuple::Leaf(n.max(1)), stride: HTuple::Leaf(0) }
    }

    /// The layout `n:1`, which maps each integer to itself. An `n` below 1 is read as 1.
    pub fn identity(n: i64) -> Layout {
        Layout { shape: HTuple::Leaf(n.max(1)), stride: HTuple::Leaf(1) }
    }
}

impl<S: Stride> fmt::Display for Layout<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.shape, self.stride)
    }
}

/// Reads the text form `((2,2),8):((1,16),2)`. White space may stand anywhere between tokens.
macro_rules! from_text {
    ($($stride:ty, $read:path;)*) => {$(
        impl FromStr for Layout<$stride> {
            type Err = LayoutError;

            fn from_str(text: &str) -> Result<Layout<$stride>, LayoutError> {
                let mut cursor = Cursor::new(text);
                let shape = cursor.integers()?;
                cursor.expect(":")?;
                let stride = cursor.htuple(MAX_DEPTH, &$read)?;
                cursor.end()?;
                Layout::new(shape, stride)
            }
        }
    )*};
}

from_text! {
    i64, Cursor::integer;
    Coord, Cursor::coord;
    F2, Cursor::f2;
    Poly, Cursor::poly;
}
