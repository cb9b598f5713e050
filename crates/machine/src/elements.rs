//! Elements of a tensor as numbers, without loss.

use crate::dtype::DType;

/// Elements of a tensor: of types of which an `f64` holds every number, and of `i64` and `u64`.
#[derive(Clone, Debug)]
pub enum Elements {
    /// Those of every type but `i64` and `u64`.
    Floats(Vec<f64>),
    /// Those of `i64` or `u64`.
    Integers(Vec<i128>),
}

/// A number of an element type: of a type of which an `f64` holds every number, or an integer.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Number {
    /// A number that is an `f64`.
    Float(f64),
    /// An integer.
    Integer(i128),
}

impl Number {
    /// The bits of the number rounded to a type; of an integer type, in its range.
    pub fn bits(self, dtype: DType) -> u64 {
        match (self, dtype.range()) {
            (Number::Integer(x), Some((low, high))) => dtype.encode_integer(x.clamp(low, high)),
            (number, _) => dtype.encode(number.nearest()),
        }
    }

    /// The number that bits are in a type.
    pub fn of_bits(dtype: DType, bits: u64) -> Self {
        match dtype.range() {
            Some(_) => Number::Integer(dtype.decode_integer(bits)),
            None => Number::Float(dtype.decode(bits)),
        }
    }

    /// The nearest `f64`.
    pub fn nearest(self) -> f64 {
        match self {
            Number::Float(x) => x,
            Number::Integer(x) => x as f64,
        }
    }

    /// The integer that it is; `None` of others.
    pub fn integer(self) -> Option<i128> {
        match self {
            Number::Float(x) => (x.fract() == 0.0).then_some(x as i128),
            Number::Integer(x) => Some(x),
        }
    }

    /// True if it is a number of the type, or rounds to one: no NaN, an integer in the range of an integer type, and finite in a float type if it is
    /// finite.
    pub fn fits(self, dtype: DType) -> bool {
        match dtype.range() {
            Some((low, high)) => self.integer().is_some_and(|x| (low..=high).contains(&x)),
            None => {
                let x = self.nearest();
                !x.is_nan() && (x.is_infinite() || dtype.decode(dtype.encode(x)).is_finite())
            }
        }
    }
}

impl From<f64> for Number {
    fn from(x: f64) -> Self {
        Number::Float(x)
    }
}

impl From<i64> for Number {
    fn from(x: i64) -> Self {
        Number::Integer(x.into())
    }
}

impl From<u64> for Number {
    fn from(x: u64) -> Self {
        Number::Integer(x.into())
    }
}

impl Elements {
    /// No elements, of a type.
    pub fn none(dtype: DType) -> Self {
        if dtype.is_wide_integer() { Elements::Integers(Vec::new()) } else { Elements::Floats(Vec::new()) }
    }

    /// Elements of a type, of these numbers rounded to it.
    pub fn rounded(dtype: DType, values: impl IntoIterator<Item = f64>) -> Self {
        Elements::of_bits(dtype, values.into_iter().map(|x| dtype.encode(x)))
    }

    /// Elements of a type of their bits, of which each has the low ones.
    pub fn of_bits(dtype: DType, bits: impl IntoIterator<Item = u64>) -> Self {
        let bits = bits.into_iter();
        if dtype.is_wide_integer() {
            Elements::Integers(bits.map(|bits| dtype.decode_integer(bits)).collect())
        } else {
            Elements::Floats(bits.map(|bits| dtype.decode(bits)).collect())
        }
    }

    /// Their number.
    pub fn len(&self) -> usize {
        match self {
            Elements::Floats(values) => values.len(),
            Elements::Integers(values) => values.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bits of an element in a type; `None` if there is none at this place.
    pub fn bits(&self, dtype: DType, at: usize) -> Option<u64> {
        match self {
            Elements::Floats(values) => values.get(at).map(|x| dtype.encode(*x)),
            Elements::Integers(values) if dtype.is_float() => values.get(at).map(|x| dtype.encode(*x as f64)),
            Elements::Integers(values) => {
                let (low, high) = dtype.range().unwrap_or((0, 1));
                values.get(at).map(|x| dtype.encode_integer((*x).clamp(low, high)))
            }
        }
    }

    /// The nearest `f64` of an element; `None` if there is none at this place.
    pub fn get(&self, at: usize) -> Option<f64> {
        match self {
            Elements::Floats(values) => values.get(at).copied(),
            Elements::Integers(values) => values.get(at).map(|x| *x as f64),
        }
    }

    /// The nearest `f64` of each.
    pub fn floats(&self) -> Vec<f64> {
        match self {
            Elements::Floats(values) => values.clone(),
            Elements::Integers(values) => values.iter().map(|x| *x as f64).collect(),
        }
    }

    /// The elements at these places, in their order; a place beyond the end has a NaN, or 0.
    pub fn picked(&self, places: impl IntoIterator<Item = usize>) -> Self {
        let places = places.into_iter();
        match self {
            Elements::Floats(values) => {
                Elements::Floats(places.map(|at| values.get(at).copied().unwrap_or(f64::NAN)).collect())
            }
            Elements::Integers(values) => {
                Elements::Integers(places.map(|at| values.get(at).copied().unwrap_or(0)).collect())
            }
        }
    }

    /// Puts an element of other elements in the place of one; nothing where either has none there, or they are of another kind.
    pub fn put(&mut self, at: usize, from: &Elements, of: usize) {
        match (self, from) {
            (Elements::Floats(to), Elements::Floats(from)) => {
                if let (Some(to), Some(x)) = (to.get_mut(at), from.get(of)) {
                    *to = *x;
                }
            }
            (Elements::Integers(to), Elements::Integers(from)) => {
                if let (Some(to), Some(x)) = (to.get_mut(at), from.get(of)) {
                    *to = *x;
                }
            }
            _ => {}
        }
    }

    /// Appends the elements of others, of the same kind, from a place on.
    pub fn extend_from(&mut self, others: &Elements, from: usize) {
        match (self, others) {
            (Elements::Floats(to), Elements::Floats(others)) => {
                to.extend_from_slice(others.get(from..).unwrap_or_default());
            }
            (Elements::Integers(to), Elements::Integers(others)) => {
                to.extend_from_slice(others.get(from..).unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Keeps the first of them.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Elements::Floats(values) => values.truncate(len),
            Elements::Integers(values) => values.truncate(len),
        }
    }

    /// True if both have the same number at a place, or both a NaN.
    pub fn same(&self, other: &Elements, at: usize) -> bool {
        match (self, other) {
            (Elements::Floats(x), Elements::Floats(y)) => match (x.get(at), y.get(at)) {
                (Some(x), Some(y)) => x == y || x.is_nan() && y.is_nan(),
                (x, y) => x.is_none() && y.is_none(),
            },
            (Elements::Integers(x), Elements::Integers(y)) => x.get(at) == y.get(at),
            _ => false,
        }
    }

    /// True if both have the same number at a place, bit by bit.
    pub fn same_bits(&self, other: &Elements, at: usize) -> bool {
        match (self, other) {
            (Elements::Floats(x), Elements::Floats(y)) => {
                x.get(at).map(|x| x.to_bits()) == y.get(at).map(|y| y.to_bits())
            }
            (Elements::Integers(x), Elements::Integers(y)) => x.get(at) == y.get(at),
            _ => false,
        }
    }

    /// The difference of two elements without its sign: exactly 0 only of equal ones.
    pub fn distance(&self, other: &Elements, at: usize) -> f64 {
        match (self, other) {
            (Elements::Integers(x), Elements::Integers(y)) => match (x.get(at), y.get(at)) {
                (Some(x), Some(y)) => (x - y).unsigned_abs() as f64,
                _ => f64::NAN,
            },
            (x, y) => match (x.get(at), y.get(at)) {
                (Some(x), Some(y)) if x == y => 0.0,
                (Some(x), Some(y)) => (x - y).abs(),
                _ => f64::NAN,
            },
        }
    }
}

/// Bit by bit, so that a NaN equals itself and −0 is not 0.
impl PartialEq for Elements {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Elements::Floats(x), Elements::Floats(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| x.to_bits() == y.to_bits())
            }
            (Elements::Integers(x), Elements::Integers(y)) => x == y,
            _ => false,
        }
    }
}

impl From<Vec<f64>> for Elements {
    fn from(values: Vec<f64>) -> Self {
        Elements::Floats(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_their_type() {
        let most = Number::from(u64::MAX);
        assert_eq!((most.bits(DType::U64), most.bits(DType::I64)), (u64::MAX, i64::MAX as u64));
        assert!(most.fits(DType::U64) && !most.fits(DType::I64) && most.fits(DType::F64));
        assert_eq!(Number::of_bits(DType::I64, u64::MAX), Number::from(-1i64));
        assert_eq!(Number::Float(0.1).bits(DType::F64), 0.1f64.to_bits());
        assert!(Number::Float(1e300).fits(DType::F64) && !Number::Float(1e300).fits(DType::F32));
        assert!(!Number::Float(0.5).fits(DType::I32) && Number::Float(-3.0).fits(DType::I32));
        assert!(Number::Float(f64::INFINITY).fits(DType::F32) && !Number::Float(f64::NAN).fits(DType::F64));
    }

    #[test]
    fn integers_beyond_an_f64_are_kept() {
        let x = (1i128 << 53) + 1;
        let elements = Elements::Integers(vec![x, -1]);
        assert_eq!(elements.bits(DType::I64, 0), Some(x as u64));
        assert_eq!(Elements::of_bits(DType::I64, [x as u64, u64::MAX]), elements);
        assert_eq!(elements.bits(DType::U64, 1), Some(0));
        assert_eq!(elements.bits(DType::I32, 0), Some(i32::MAX as u64));
        assert_eq!(elements.picked([1]), Elements::Integers(vec![-1]));
        assert!(!elements.same(&Elements::Integers(vec![x - 1]), 0));
        assert_eq!(elements.distance(&Elements::Integers(vec![x - 1]), 0), 1.0);
    }
}
