//! Bit strings that add by exclusive or (paper 2.3.1, figure 4c). Layouts over them swizzle.

use super::Stride;
use crate::error::LayoutError;
use crate::text::Cursor;
use crate::work;
use std::fmt::{self, Display};
use std::str::FromStr;

/// An element of F2^64 = (ℤ mod 2^64, XOR, ·): addition is exclusive or, scaling is the multiplication of integers
/// (paper 2.3.1 and 2.4.4). Prints as `f5`; zero is `f0`.
///
/// Multiplication, not carry-less multiplication, is what satisfies the law `a·(b·m) = (ab)·m` of a semimodule for all
/// integers `a` and `b`. The two agree wherever no bit carries, and then the stride is linear over the bits of its
/// coordinate: `4:f5` is `(2,2):(f5,f10)`, but `4:f3` is not `(2,2):(f3,f6)`, for 3·3 = 9 carries.
///
/// ```
/// use tilewright_layout::{F2, Stride};
/// assert_eq!(F2(5).add(&F2(3)), F2(6));
/// assert_eq!(F2(5).scale(2), F2(10));
/// assert_eq!(F2(5).bits(4), Some(vec![F2(5), F2(10)]));
/// assert_eq!(F2(3).bits(4), None);
/// assert_eq!("f5".parse::<F2>()?.to_string(), "f5");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct F2(
    /// The bits.
    pub u64,
);

/// Extents up to this one are tried coordinate by coordinate.
const TRIED: i64 = 1 << 16;

impl F2 {
    /// The columns of the F2 matrix of the layout `extent:self` (paper table 1): the strides of the bits of its
    /// coordinate. Nothing where the extent is not a power of two, or where a bit carries or is lost.
    pub fn bits(self, extent: i64) -> Option<Vec<F2>> {
        if extent < 1 || extent & (extent - 1) != 0 {
            return None;
        }
        let (mut all, mut bits) = (0u64, Vec::new());
        for k in 0..extent.trailing_zeros() {
            let column = self.0 << k;
            if column >> k != self.0 || all & column != 0 {
                return None;
            }
            all |= column;
            bits.push(F2(column));
        }
        Some(bits)
    }
}

impl Stride for F2 {
    const LINEAR: bool = false;

    fn zero() -> Self {
        F2(0)
    }
    fn checked_add(&self, other: &Self) -> Option<Self> {
        Some(F2(self.0 ^ other.0))
    }
    fn checked_scale(&self, by: i64) -> Option<Self> {
        Some(self.scale(by))
    }
    fn add(&self, other: &Self) -> Self {
        F2(self.0 ^ other.0)
    }
    fn scale(&self, by: i64) -> Self {
        F2(self.0.wrapping_mul(by as u64))
    }
    fn continues(&self, extent: i64, next: &Self, next_extent: i64) -> bool {
        if self.scale(extent) != *next {
            return false;
        }
        let Some(whole) = extent.checked_mul(next_extent) else { return false };
        if self.bits(whole).is_some() {
            return true;
        }
        whole <= TRIED
            && work::spend_for(whole, 0)
            && (1..next_extent).all(|b| {
                let high = next.scale(b);
                (1..extent).all(|a| self.scale(a).add(&high) == self.scale(a + extent * b))
            })
    }
    fn span_fits(_: &[(i64, Self)]) -> bool {
        true
    }
}

impl Display for F2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "f{}", self.0)
    }
}

impl FromStr for F2 {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<F2, LayoutError> {
        let mut cursor = Cursor::new(text);
        let bits = cursor.f2()?;
        cursor.end()?;
        Ok(bits)
    }
}

impl Cursor<'_> {
    /// A bit string such as `f5`; `0` is `f0`.
    pub fn f2(&mut self) -> Result<F2, LayoutError> {
        let offset = self.pos();
        if self.eat("0") {
            return Ok(F2(0));
        }
        if !self.eat("f") {
            return Err(self.unexpected("a bit string such as `f5`"));
        }
        let rest = self.rest();
        let len = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let bits = rest.get(..len).unwrap_or("").parse().map_err(|_| LayoutError::Parse {
            offset,
            message: "after `f` must follow a number of at most 64 bits".to_string(),
        })?;
        self.pos += len;
        Ok(F2(bits))
    }
}
