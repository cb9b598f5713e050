//! Symbolic integers: polynomials in named symbols. Layouts over them describe loops whose strides are not known yet
//! (paper 1.2: `A[p*m + q*n]`).

use super::Stride;
use crate::error::{LayoutError, overflow};
use crate::text::Cursor;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

/// The greatest power of a symbol.
const MAX_POWER: u32 = 64;

/// A product of powers of symbols, each at most [`MAX_POWER`]; empty for 1.
type Monomial = BTreeMap<String, u32>;

/// An integer polynomial in named symbols. Prints as `0`, `k`, `2*n`, `2*m*n^2-k+3`, the terms of more symbols first.
///
/// ```
/// use tilewright_layout::{Layout, Poly};
/// let l: Layout<Poly> = "(4,20):(5*p,2*q)".parse()?; // the loop nest of paper 1.2
/// assert_eq!(l.eval(7), "15*p+2*q".parse()?);
/// assert_eq!(l.eval(7).substitute(&[("p", 1), ("q", 10)])?, Poly::integer(35));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Poly {
    /// Factor of each monomial, none zero.
    terms: BTreeMap<Monomial, i64>,
}

impl Poly {
    /// A constant.
    pub fn integer(n: i64) -> Poly {
        let mut terms = BTreeMap::new();
        if n != 0 {
            terms.insert(Monomial::new(), n);
        }
        Poly { terms }
    }

    /// The symbol of this name.
    pub fn symbol(name: &str) -> Poly {
        Poly { terms: BTreeMap::from([(Monomial::from([(name.to_string(), 1)]), 1)]) }
    }

    /// A power of the symbol of this name, if it is not too great; the power 0 is 1.
    pub(crate) fn power(name: &str, power: u32) -> Option<Poly> {
        if power == 0 {
            return Some(Poly::integer(1));
        }
        (power <= MAX_POWER)
            .then(|| Poly { terms: BTreeMap::from([(Monomial::from([(name.to_string(), power)]), 1)]) })
    }

    /// Adds in place; nothing where a factor does not fit.
    pub(crate) fn try_add(&mut self, other: &Poly) -> Option<()> {
        for (monomial, factor) in &other.terms {
            let sum = self.terms.get(monomial).copied().unwrap_or(0).checked_add(*factor)?;
            if sum == 0 {
                self.terms.remove(monomial);
            } else {
                self.terms.insert(monomial.clone(), sum);
            }
        }
        Some(())
    }

    /// The product, or nothing where a factor does not fit or a power is greater than 64.
    pub fn checked_mul(&self, other: &Poly) -> Option<Poly> {
        let mut product = Poly::default();
        for (a, x) in &self.terms {
            for (b, y) in &other.terms {
                let mut monomial = a.clone();
                for (symbol, power) in b {
                    let p = monomial.entry(symbol.clone()).or_insert(0);
                    *p = p.checked_add(*power).filter(|p| *p <= MAX_POWER)?;
                }
                product.try_add(&Poly { terms: BTreeMap::from([(monomial, x.checked_mul(*y)?)]) })?;
            }
        }
        Some(product)
    }

    /// The polynomial with these symbols replaced by numbers; others stay. An error where a factor does not fit.
    pub fn substitute(&self, values: &[(&str, i64)]) -> Result<Poly, LayoutError> {
        let too_big = || overflow("a factor of a symbolic integer");
        let mut sum = Poly::default();
        for (monomial, factor) in &self.terms {
            let (mut factor, mut rest) = (*factor, Monomial::new());
            for (symbol, power) in monomial {
                match values.iter().find(|v| v.0 == symbol) {
                    Some((_, n)) => {
                        let value = n.checked_pow(*power).ok_or_else(too_big)?;
                        factor = factor.checked_mul(value).ok_or_else(too_big)?;
                    }
                    None => {
                        rest.insert(symbol.clone(), *power);
                    }
                }
            }
            if factor != 0 {
                let term = Poly { terms: BTreeMap::from([(rest, factor)]) };
                sum = sum.checked_add(&term).ok_or_else(too_big)?;
            }
        }
        Ok(sum)
    }

    /// Its terms: the symbols, each as often as its power, and the factor.
    pub fn terms(&self) -> impl Iterator<Item = (Vec<&str>, i64)> {
        self.terms.iter().map(|(monomial, factor)| {
            let repeated =
                monomial.iter().flat_map(|(symbol, power)| (0..*power).map(move |_| symbol.as_str()));
            (repeated.collect(), *factor)
        })
    }

    fn merge(&self, other: &Poly, add: impl Fn(i64, i64) -> Option<i64>) -> Option<Poly> {
        let mut terms = self.terms.clone();
        for (monomial, factor) in &other.terms {
            let sum = add(terms.get(monomial).copied().unwrap_or(0), *factor)?;
            if sum == 0 {
                terms.remove(monomial);
            } else {
                terms.insert(monomial.clone(), sum);
            }
        }
        Some(Poly { terms })
    }

    fn scaled(&self, by: impl Fn(i64) -> Option<i64>) -> Option<Poly> {
        let mut terms = BTreeMap::new();
        for (monomial, factor) in &self.terms {
            let factor = by(*factor)?;
            if factor != 0 {
                terms.insert(monomial.clone(), factor);
            }
        }
        Some(Poly { terms })
    }
}

impl Stride for Poly {
    fn zero() -> Self {
        Poly::default()
    }
    fn checked_add(&self, other: &Self) -> Option<Self> {
        self.merge(other, i64::checked_add)
    }
    fn checked_scale(&self, by: i64) -> Option<Self> {
        self.scaled(|k| k.checked_mul(by))
    }
    fn add(&self, other: &Self) -> Self {
        self.merge(other, |a, b| Some(a.saturating_add(b))).unwrap_or_default()
    }
    fn scale(&self, by: i64) -> Self {
        self.scaled(|k| Some(k.saturating_mul(by))).unwrap_or_default()
    }
    fn span_fits(leaves: &[(i64, Self)]) -> bool {
        // The sum of |factor|·(extent − 1) bounds every factor of every value.
        let total = leaves.iter().fold(1i128, |sum, (s, d)| {
            let size: i128 = d.terms.values().map(|k| i128::from(k.unsigned_abs())).sum();
            sum.saturating_add(size.saturating_mul(i128::from(s.saturating_sub(1))))
        });
        total <= i128::from(i64::MAX)
    }
}

impl Display for Poly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        let degree = |m: &Monomial| m.values().map(|p| u64::from(*p)).sum::<u64>();
        let mut terms: Vec<(&Monomial, &i64)> = self.terms.iter().collect();
        terms.sort_by(|a, b| degree(b.0).cmp(&degree(a.0)).then(a.0.cmp(b.0)));
        for (k, (monomial, factor)) in terms.into_iter().enumerate() {
            let plus = if k > 0 && *factor > 0 { "+" } else { "" };
            let symbols: Vec<String> = monomial
                .iter()
                .map(|(symbol, power)| if *power == 1 { symbol.clone() } else { format!("{symbol}^{power}") })
                .collect();
            match *factor {
                n if symbols.is_empty() => write!(f, "{plus}{n}")?,
                1 => write!(f, "{plus}{}", symbols.join("*"))?,
                -1 => write!(f, "-{}", symbols.join("*"))?,
                n => write!(f, "{plus}{n}*{}", symbols.join("*"))?,
            }
        }
        Ok(())
    }
}

impl From<i64> for Poly {
    fn from(n: i64) -> Poly {
        Poly::integer(n)
    }
}

impl FromStr for Poly {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Poly, LayoutError> {
        let mut cursor = Cursor::new(text);
        let poly = cursor.poly()?;
        cursor.end()?;
        Ok(poly)
    }
}

impl Cursor<'_> {
    /// A polynomial: a sum of products of integers and powers of symbols, such as `2*m*n^2-k+3`.
    pub fn poly(&mut self) -> Result<Poly, LayoutError> {
        let too_big = |offset| LayoutError::Parse {
            offset,
            message: "a number in this polynomial does not fit in 64 bits".to_string(),
        };
        let mut sum = Poly::zero();
        let mut first = true;
        loop {
            let offset = self.pos();
            // The sign belongs to the number: the least one has no positive.
            let mut term = if self.at_integer() && (first || self.peek() == Some('-')) {
                Poly::integer(self.integer()?)
            } else {
                let negative = self.eat("-");
                if !negative && !first && !self.eat("+") {
                    return Ok(sum);
                }
                let factor = self.power()?;
                factor.checked_scale(if negative { -1 } else { 1 }).ok_or_else(|| too_big(offset))?
            };
            while self.eat("*") {
                let factor = self.power()?;
                term = term.checked_mul(&factor).ok_or_else(|| too_big(offset))?;
            }
            sum.try_add(&term).ok_or_else(|| too_big(offset))?;
            first = false;
        }
    }

    /// An integer, or a symbol with an optional power.
    fn power(&mut self) -> Result<Poly, LayoutError> {
        if self.at_integer() {
            return self.integer().map(Poly::integer);
        }
        let Some(symbol) = self.word() else {
            return Err(self.unexpected("an integer or a symbol"));
        };
        if !self.eat("^") {
            return Ok(Poly::symbol(symbol));
        }
        let offset = self.pos();
        let power = u32::try_from(self.integer()?).ok().and_then(|power| Poly::power(symbol, power));
        power.ok_or_else(|| LayoutError::Parse {
            offset,
            message: format!("a power must be between 0 and {MAX_POWER}"),
        })
    }
}
