//! The coordinate semimodule: formal sums of scaled basis elements (paper 2.3.1). A basis element is named by the path
//! that leads to a leaf of a coordinate, outermost mode first.

use super::{Stride, integer_span_fits};
use crate::error::{LayoutError, overflow};
use crate::htuple::{HTuple, MAX_DEPTH};
use crate::text::Cursor;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::str::FromStr;

/// A basis element: `e1` is the coordinate that is 1 in mode 1 and 0 elsewhere; `e(0,1)` is 1 in mode 1 of mode 0.
/// Ordered as the leaves of a coordinate are, from left to right.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Basis(Vec<usize>);

impl Basis {
    /// The modes that lead to the leaf, outermost first; never empty.
    pub fn path(&self) -> &[usize] {
        &self.0
    }

    /// True if one names a mode within the other's, so that both cannot be parts of one coordinate.
    pub fn conflicts(&self, other: &Basis) -> bool {
        self != other && (self.0.starts_with(&other.0) || other.0.starts_with(&self.0))
    }
}

impl Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [index] = self.0.as_slice() {
            return write!(f, "e{index}");
        }
        let path: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "e({})", path.join(","))
    }
}

/// An element of the coordinate semimodule ℤ^(*,*,…): a finite formal sum of scaled basis elements `e0`, `e1`, …
/// (paper 2.3.1). Prints as that sum: `0`, `e0`, `6e1`, `e0+6e1`, `2e0-e3`. Basis elements of nested coordinates name
/// their path: `e(0,1)` stands for the 1 in `((0,1),0)`.
///
/// ```
/// use tilewright_layout::{Coord, HTuple, Stride};
/// let c = Coord::basis(0).add(&Coord::basis(1).scale(6));
/// assert_eq!(c.to_string(), "e0+6e1");
/// assert_eq!(c.component(1), 6);
/// let nested: Coord = "2e0+3e(1,1)".parse()?;
/// assert_eq!(nested.to_htuple(&HTuple::from((0, (0, 0))))?.to_string(), "(2,(0,3))");
/// assert_eq!(Coord::from_htuple(&(2, (0, 3)).into()), Some(nested));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Coord {
    /// (basis element, factor), ascending, no factor zero.
    terms: Vec<(Basis, i64)>,
}

impl Coord {
    /// The basis element `e_index`.
    pub fn basis(index: usize) -> Coord {
        Coord { terms: vec![(Basis(vec![index]), 1)] }
    }

    /// The basis element of a nested coordinate, its path outermost mode first. An error where the path is empty or
    /// longer than [`MAX_DEPTH`].
    pub fn nested(path: &[usize]) -> Result<Coord, LayoutError> {
        if path.len() > MAX_DEPTH {
            return Err(LayoutError::TooDeep { limit: MAX_DEPTH });
        }
        if path.is_empty() {
            return Err(LayoutError::EmptyTuple);
        }
        Ok(Coord { terms: vec![(Basis(path.to_vec()), 1)] })
    }

    /// The factor of `e_index`; 0 where it does not occur.
    pub fn component(&self, index: usize) -> i64 {
        self.component_at(&[index])
    }

    /// The factor of the basis element with this path; 0 where it does not occur.
    pub fn component_at(&self, path: &[usize]) -> i64 {
        let at = self.terms.binary_search_by(|t| t.0.0.as_slice().cmp(path));
        at.map_or(0, |k| self.terms[k].1)
    }

    /// The (basis element, factor) pairs with a factor other than 0, ascending.
    pub fn terms(&self) -> &[(Basis, i64)] {
        &self.terms
    }

    /// The coordinate as a tuple congruent to `profile` (paper definition 2.14). An error where a basis element is not
    /// a leaf of the profile.
    pub fn to_htuple<T>(&self, profile: &HTuple<T>) -> Result<HTuple<i64>, LayoutError> {
        fn go<T>(profile: &HTuple<T>, path: &mut Vec<usize>, this: &Coord, used: &mut usize) -> HTuple<i64> {
            match profile {
                HTuple::Leaf(_) => {
                    let factor = this.component_at(path);
                    *used += usize::from(factor != 0);
                    HTuple::Leaf(factor)
                }
                HTuple::Tuple(t) => HTuple::Tuple(
                    t.iter()
                        .enumerate()
                        .map(|(k, e)| {
                            path.push(k);
                            let part = go(e, path, this, used);
                            path.pop();
                            part
                        })
                        .collect(),
                ),
            }
        }
        let mut used = 0;
        let tuple = go(profile, &mut Vec::new(), self, &mut used);
        if used == self.terms.len() {
            Ok(tuple)
        } else {
            Err(LayoutError::BadCoordinate {
                coord: self.to_string(),
                shape: profile.map(|_| "*").to_string(),
            })
        }
    }

    /// The formal sum of a tuple of integers; nothing for a bare integer, which has no basis element.
    pub fn from_htuple(coord: &HTuple<i64>) -> Option<Coord> {
        fn go(coord: &HTuple<i64>, path: &mut Vec<usize>, terms: &mut Vec<(Basis, i64)>) {
            match coord {
                HTuple::Leaf(0) => {}
                HTuple::Leaf(n) => terms.push((Basis(path.clone()), *n)),
                HTuple::Tuple(t) => {
                    for (k, e) in t.iter().enumerate() {
                        path.push(k);
                        go(e, path, terms);
                        path.pop();
                    }
                }
            }
        }
        if matches!(coord, HTuple::Leaf(n) if *n != 0) {
            return None;
        }
        let mut terms = Vec::new();
        go(coord, &mut Vec::new(), &mut terms);
        Some(Coord { terms })
    }

    /// The sum of all the terms, in the order in which they come; nothing where a factor does not fit on the way.
    pub(crate) fn sum(terms: impl IntoIterator<Item = Coord>) -> Option<Coord> {
        let mut sum: BTreeMap<Basis, i64> = BTreeMap::new();
        for (basis, factor) in terms.into_iter().flat_map(|c| c.terms) {
            let total = sum.entry(basis).or_insert(0);
            *total = total.checked_add(factor)?;
        }
        Some(Coord { terms: sum.into_iter().filter(|t| t.1 != 0).collect() })
    }

    fn merge(&self, other: &Coord, add: impl Fn(i64, i64) -> Option<i64>) -> Option<Coord> {
        let mut terms = Vec::with_capacity(self.terms.len() + other.terms.len());
        let (mut left, mut right) = (self.terms.iter().peekable(), other.terms.iter().peekable());
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            match a.0.cmp(&b.0) {
                Ordering::Less => terms.extend(left.next().cloned()),
                Ordering::Greater => terms.extend(right.next().cloned()),
                Ordering::Equal => {
                    let factor = add(a.1, b.1)?;
                    if factor != 0 {
                        terms.push((a.0.clone(), factor));
                    }
                    left.next();
                    right.next();
                }
            }
        }
        terms.extend(left.cloned());
        terms.extend(right.cloned());
        Some(Coord { terms })
    }

    fn scaled(&self, by: impl Fn(i64) -> Option<i64>) -> Option<Coord> {
        let mut terms = Vec::with_capacity(self.terms.len());
        for (basis, factor) in &self.terms {
            let factor = by(*factor)?;
            if factor != 0 {
                terms.push((basis.clone(), factor));
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
        self.scaled(|k| k.checked_mul(by))
    }
    fn add(&self, other: &Self) -> Self {
        self.merge(other, |a, b| Some(a.saturating_add(b))).unwrap_or_default()
    }
    fn scale(&self, by: i64) -> Self {
        self.scaled(|k| Some(k.saturating_mul(by))).unwrap_or_default()
    }
    fn span_fits(leaves: &[(i64, Self)]) -> bool {
        let of_leaf = leaves.iter().flat_map(|(s, c)| c.terms.iter().map(|t| (&t.0, *s, t.1)));
        let mut terms: Vec<(&Basis, i64, i64)> = of_leaf.collect();
        terms.sort_unstable();
        let mut components = terms.chunk_by(|a, b| a.0 == b.0);
        components.all(|one| integer_span_fits(one.iter().map(|t| (t.1, t.2))))
    }
}

impl Display for Coord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.terms.is_empty() {
            return f.write_str("0");
        }
        for (k, (e, factor)) in self.terms.iter().enumerate() {
            match (*factor, k) {
                (1, 0) => write!(f, "{e}")?,
                (1, _) => write!(f, "+{e}")?,
                (-1, _) => write!(f, "-{e}")?,
                (n, 0) => write!(f, "{n}{e}")?,
                (n, _) => write!(f, "{n:+}{e}")?,
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

/// The profile that the basis elements of these strides span: the smallest coordinate with a leaf for each, at least a
/// tuple of one. An error where one names a mode within another's.
pub(crate) fn profile_of(strides: &[Coord]) -> Result<HTuple<i64>, LayoutError> {
    let mut bases: Vec<&Basis> = strides.iter().flat_map(|c| c.terms.iter().map(|t| &t.0)).collect();
    bases.sort_unstable();
    bases.dedup();
    // A basis element sorts before all that it is a prefix of.
    if let Some(pair) = bases.windows(2).find(|w| w[0].conflicts(w[1])) {
        return Err(LayoutError::BadCoordinate {
            coord: format!("{}+{}", pair[0], pair[1]),
            shape: "with one of these a mode within the other's".to_string(),
        });
    }
    /// `paths` ascend; their first `at` elements are the same. `left` counts how many leaves there may still be.
    fn go(paths: &[&[usize]], at: usize, left: &mut usize) -> Result<HTuple<i64>, LayoutError> {
        let too_wide = || overflow("the number of components of these coordinates, at most 4096 here,");
        let rank = paths.iter().map(|p| p[at]).max().map_or(0, |m| m.saturating_add(1));
        *left = left.checked_sub(rank).ok_or_else(too_wide)?;
        let mut modes = vec![HTuple::Leaf(0); rank];
        for inner in paths.chunk_by(|a, b| a[at] == b[at]) {
            if inner[0].len() > at + 1 {
                modes[inner[0][at]] = go(inner, at + 1, left)?;
            }
        }
        Ok(HTuple::Tuple(modes))
    }
    if bases.is_empty() {
        return Ok(HTuple::Leaf(0));
    }
    let paths: Vec<&[usize]> = bases.iter().map(|b| b.path()).collect();
    go(&paths, 0, &mut (1 << 12))
}

impl Cursor<'_> {
    /// A formal sum of scaled basis elements: `0`, `e0`, `6e1`, `e0+6e1`, `2e0-e3`.
    pub fn coord(&mut self) -> Result<Coord, LayoutError> {
        let mut terms: Vec<Coord> = Vec::new();
        let start = self.pos();
        let too_big =
            |offset| LayoutError::Parse { offset, message: "this sum does not fit in 64 bits".to_string() };
        loop {
            let offset = self.pos();
            // The sign belongs to the number: the least one has no positive.
            let (negative, factor) = if self.at_integer() && (terms.is_empty() || self.peek() == Some('-')) {
                (false, Some(self.integer()?))
            } else {
                let negative = self.eat("-");
                if !negative && !terms.is_empty() && !self.eat("+") {
                    return Coord::sum(terms).ok_or_else(|| too_big(start));
                }
                (negative, if self.at_integer() { Some(self.integer()?) } else { None })
            };
            let term = if self.eat("e") {
                let path = if self.eat("(") {
                    let mut path = vec![self.basis_index()?];
                    while self.eat(",") {
                        path.push(self.basis_index()?);
                    }
                    self.expect(")")?;
                    path
                } else {
                    vec![self.basis_index()?]
                };
                Coord::nested(&path)?.checked_scale(factor.unwrap_or(1))
            } else if factor == Some(0) {
                Some(Coord::zero())
            } else {
                return Err(self.unexpected("a basis element such as `e0`"));
            };
            let term = term.and_then(|t| if negative { t.checked_scale(-1) } else { Some(t) });
            terms.push(term.ok_or_else(|| too_big(offset))?);
        }
    }

    fn basis_index(&mut self) -> Result<usize, LayoutError> {
        let offset = self.pos();
        usize::try_from(self.integer()?).map_err(|_| LayoutError::Parse {
            offset,
            message: "the index of a basis element must not be negative".to_string(),
        })
    }
}
