//! Strides: the elements of an integer-semimodule, which can be added and scaled by integers (paper 2.3.1). A layout
//! maps a natural coordinate to the sum of its elements, each scaled by the stride of its mode. Four instances: the
//! integers, whose layouts give offsets; [`Coord`], whose layouts give coordinates; [`F2`], bit strings that add by
//! exclusive or, whose layouts swizzle; and [`Poly`], integers not known yet.

mod coord;
mod f2;
mod poly;

pub(crate) use coord::profile_of;
pub use coord::{Basis, Coord};
pub use f2::F2;
pub use poly::Poly;

use std::fmt::{Debug, Display};

/// An element of an integer-semimodule with a zero (paper definition 2.16). The laws, wherever nothing overflows:
/// `1·m = m`, `m + (n + p) = (m + n) + p`, `a·(b·m) = (ab)·m`, `0 + m = m` and `0·m = 0`.
///
/// ```
/// use tilewright_layout::{Coord, F2, Poly, Stride};
/// fn laws<M: Stride>(a: i64, b: i64, m: M, n: M, p: M) {
///     assert_eq!(m.scale(1), m);
///     assert_eq!(m.add(&n.add(&p)), m.add(&n).add(&p));
///     assert_eq!(m.scale(b).scale(a), m.scale(a * b));
/// }
/// laws(3, -2, 5i64, 0, -7);
/// laws(3, -2, Coord::basis(0), Coord::basis(1), Coord::basis(0).scale(6));
/// laws(3, -2, F2(5), F2(3), F2(9));
/// laws(3, -2, Poly::symbol("k"), Poly::integer(2), Poly::symbol("n"));
/// ```
pub trait Stride: Clone + PartialEq + Debug + Display {
    /// True if scaling distributes over the addition of integers, `(a + b)·m = a·m + b·m`. An integer-semimodule need
    /// not have this law, and [`F2`] does not; operations on layouts over one without it check their results.
    const LINEAR: bool = true;
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
    /// True if the layout `(extent,next_extent):(self,next)` agrees with `extent·next_extent:self` at every integral
    /// coordinate in bounds, so that the two modes coalesce (paper 3.2).
    fn continues(&self, extent: i64, next: &Self, next_extent: i64) -> bool {
        let _ = next_extent;
        self.checked_scale(extent).as_ref() == Some(next)
    }
    /// True if this is [`zero`](Stride::zero).
    fn is_zero(&self) -> bool {
        *self == Self::zero()
    }
    /// True if the values of a layout with these leaves, (extent, stride), can all be represented, in whatever order
    /// they are summed. [`Layout::new`](crate::Layout::new) asks, so that evaluation in bounds never overflows.
    fn span_fits(leaves: &[(i64, Self)]) -> bool;
}

/// True if 1 + Σ (extent − 1)·|stride| fits in 64 bits.
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
