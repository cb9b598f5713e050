//! Strides: the elements of an integer-semimodule, which can be added and scaled by integers (paper 2.3.1). A layout
//! maps a natural coordinate to the sum of its elements, each scaled by the stride of its mode. Two instances: the
//! integers, whose layouts give offsets, and [`Coord`], whose layouts give coordinates.

use crate::error::LayoutError;
use crate::text::Cursor;
use std::fmt::{self, Debug, Display};
use std::str::FromStr;

/// An element of an integer-semimodule with a zero (paper definition 2.16). The laws, wherever nothing overflows:
/// `1·m = m`, `m + (n + p) = (m + n) + p`, `a·(b·m) = (ab)·m`, `0 + m = m` and `0·m = 0`.
pub trait Stride: Clone + PartialEq + Debug + Display {
    /// The neutral element of addition.
    fn zero() -> Self;
    /// The sum, or nothing where it cannot be represented.
    fn checked_add(&self, other: &Self) -> Option<Self>;
    /// The multiple `by · self`, or nothing where it cannot be represented.
    fn checked_scale(&self, by: i64) -> Option<Self>;
    /// The sum; saturates where it cannot be represented.
    fn add(&self, other: &Self) -> Self;
    /// The multiple `by · self`; saturates where it cannot be represented.
    fn scale(&self, by: i64) -> Self;
    /// Whether this is [`zero`](Stride::zero).
    fn is_zero(&self) -> bool {
        *self == Self::zero()
    }
    /// Whether the values of a layout with these leaves, (extent, stride), can all be represented, in whatever order
    /// they are summed. [`Layout::new`](crate::Layout::new) asks, so that evaluation in bounds never overflows.
    fn span_fits(leaves: &[(i64, Self)]) -> bool;
}

/// Whether 1 + Σ (extent − 1)·|stride| fits in 64 bits.
fn integer_span_fits(leaves: impl Iterator<Item = (i64, i64)>) -> bool {
    let mut sum = 1i128;
    for (extent, stride) in leaves {
        let term = i128::from(extent.saturating_sub(1)) * i128::from(stride.unsigned_abs());
        sum = sum.saturating_add(term);
    }
    sum <= i128::from(i64::MAX)
}

impl Stride for i64 {
    fn zero() -> Self {
        0
    }
    fn checked_add(&self, other: &Self) -> Option<Self> {
        i64::checked_add(*self, *other)
    }
    fn checked_scale(&self, by: i64) -> Option<Self> {
        self.checked_mul(by)
    }
    fn add(&self, other: &Self) -> Self {
        self.saturating_add(*other)
    }
    fn scale(&self, by: i64) -> Self {
        self.saturating_mul(by)
    }
    fn span_fits(leaves: &[(i64, Self)]) -> bool {
        integer_span_fits(leaves.iter().copied())
    }
}

/// An element of the coordinate semimodule ℤ^(*,*,…): a finite formal sum of scaled basis elements `e0`, `e1`, …
/// (paper 2.3.1). Prints as that sum: `0`, `e0`, `6e1`, `e0+6e1`, `2e0-e3`.
///
/// ```
/// use tilewright_layout::{Coord, Stride};
/// let c = Coord::basis(0).add(&Coord::basis(1).scale(6));
/// assert_eq!(c.to_string(), "e0+6e1");
/// assert_eq!(c.component(1), 6);
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Coord {
    /// (basis index, factor), ascending in the index, no factor zero.
    terms: Vec<(usize, i64)>,
}

impl Coord {
    /// The basis element `e_index`.
    pub fn basis(index: usize) -> Coord {
        Coord { terms: vec![(index, 1)] }
    }

    /// The factor of `e_index`; 0 where it does not occur.
    pub fn component(&self, index: usize) -> i64 {
        self.terms.iter().find(|t| t.0 == index).map_or(0, |t| t.1)
    }

    /// The (basis index, factor) pairs with a factor other than 0, ascending in the index.
    pub fn terms(&self) -> &[(usize, i64)] {
        &self.terms
    }

    fn merge(&self, other: &Coord, add: impl Fn(i64, i64) -> Option<i64>) -> Option<Coord> {
        let (mut a, mut b) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        loop {
            let term = match (a.peek(), b.peek()) {
                (None, None) => break,
                (Some(&&x), Some(&&y)) if x.0 == y.0 => {
                    a.next();
                    b.next();
                    (x.0, add(x.1, y.1)?)
                }
                (Some(&&x), y) if y.is_none_or(|y| x.0 < y.0) => {
                    a.next();
                    x
                }
                (_, Some(&&y)) => {
                    b.next();
                    y
                }
                (Some(&&x), None) => {
                    a.next();
                    x
                }
            };
            if term.1 != 0 {
                terms.push(term);
            }
        }
        Some(Coord { terms })
    }
}

impl Stride for Coord {
    fn zero() -> Self {
        Coord::default()
    }
    fn checked_add(&self, other: &Self) -> Option<Self> {
        self.merge(other, i64::checked_add)
    }
    fn checked_scale(&self, by: i64) -> Option<Self> {
        if by == 0 {
            return Some(Coord::zero());
        }
        let terms = self.terms.iter().map(|&(e, k)| Some((e, k.checked_mul(by)?))).collect::<Option<_>>()?;
        Some(Coord { terms })
    }
    fn add(&self, other: &Self) -> Self {
        self.merge(other, |a, b| Some(a.saturating_add(b))).unwrap_or_default()
    }
    fn scale(&self, by: i64) -> Self {
        if by == 0 {
            return Coord::zero();
        }
        Coord { terms: self.terms.iter().map(|&(e, k)| (e, k.saturating_mul(by))).collect() }
    }
    fn span_fits(leaves: &[(i64, Self)]) -> bool {
        let mut bases: Vec<usize> = leaves.iter().flat_map(|(_, c)| c.terms.iter().map(|t| t.0)).collect();
        bases.sort_unstable();
        bases.dedup();
        bases.iter().all(|&e| integer_span_fits(leaves.iter().map(|(s, c)| (*s, c.component(e)))))
    }
}

impl Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        for (k, (e, factor)) in self.terms.iter().enumerate() {
            match (*factor, k) {
                (1, 0) => write!(f, "e{e}")?,
                (1, _) => write!(f, "+e{e}")?,
                (-1, _) => write!(f, "-e{e}")?,
                (n, 0) => write!(f, "{n}e{e}")?,
                (n, _) => write!(f, "{n:+}e{e}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for Coord {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Coord, LayoutError> {
        let mut cursor = Cursor::new(text);
        let coord = cursor.coord()?;
        cursor.end()?;
        Ok(coord)
    }
}
