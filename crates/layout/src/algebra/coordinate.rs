//! Inverses and complements of layouts that give coordinates (paper tables 5 to 7). Each works on one basis element at a
//! time; the result's domain is congruent with the coordinates.

use super::complement::{complement, complement_exact, complement_unbounded};
use super::compose::compose_coordinates;
use super::inverse::{left_inverse, right_inverse};
use crate::error::LayoutError;
use crate::htuple::{HTuple, Shape};
use crate::layout::Layout;
use crate::stride::{Coord, Stride, profile_of};
use crate::work;

/// The layout of one component of the coordinates: only the modes that move it keep a stride.
fn component(layout: &Layout<Coord>, path: &[usize]) -> Result<Layout, LayoutError> {
    work::pay(512 + 64 * layout.shape().leaf_count())?;
    Layout::new(layout.shape().clone(), layout.stride().map(|d| d.component_at(path)))
}

/// A layout with a mode for each leaf of the profile.
fn by_component<S: Stride>(
    profile: &HTuple<i64>,
    path: &mut Vec<usize>,
    f: &mut impl FnMut(&[usize]) -> Result<Layout<S>, LayoutError>,
) -> Result<Layout<S>, LayoutError> {
    let HTuple::Tuple(modes) = profile else { return f(path) };
    let mut out = Vec::with_capacity(modes.len());
    for (k, mode) in modes.iter().enumerate() {
        path.push(k);
        out.push(by_component(mode, path, f)?);
        path.pop();
    }
    Layout::concat(&out)
}

fn strides(layout: &Layout<Coord>) -> Vec<Coord> {
    layout.leaves().into_iter().filter(|l| l.0 > 1).map(|l| l.1).collect()
}

fn mixed(layout: &Layout<Coord>, operation: &'static str) -> Result<(), LayoutError> {
    match strides(layout).iter().find(|d| d.terms().len() > 1) {
        None => Ok(()),
        Some(stride) => Err(LayoutError::BadStride {
            operation,
            stride: stride.to_string(),
            layout: layout.to_string(),
            reason: "a stride must be a scaled basis element such as 6e1".to_string(),
        }),
    }
}

/// A right inverse of a layout that gives coordinates (paper 3.4.1, table 5), congruent with those coordinates.
///
/// The law, with `R` the result: `L(R(k)) = k` for every coordinate `k` of `R`. Modes whose stride is a sum of basis
/// elements stay at 0; of the inverses that leave them there it is the greatest.
///
/// ```
/// use tilewright_layout::{Layout, right_inverse_coordinates};
/// let r = right_inverse_coordinates(&"(4,(4,2)):(e1,(e0,6e1))".parse()?)?;
/// assert_eq!(r.to_string(), "(4,4):(4,1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn right_inverse_coordinates(layout: &Layout<Coord>) -> Result<Layout, LayoutError> {
    let profile = profile_of(&strides(layout))?;
    let pure = layout.stride().map(|d| if d.terms().len() > 1 { Coord::zero() } else { d.clone() });
    let pure = Layout::new(layout.shape().clone(), pure)?;
    by_component(&profile, &mut Vec::new(), &mut |path| Ok(right_inverse(&component(&pure, path)?)))
}

/// A left inverse of a layout that gives coordinates (paper 3.4.3, table 6), congruent with those coordinates.
///
/// The law (paper equation 26), with `R` the result: `L(R(L(k))) = L(k)` at every coordinate. An error where a stride is
/// a sum of basis elements, or one component has no left inverse.
///
/// ```
/// use tilewright_layout::{Layout, left_inverse_coordinates};
/// let r = left_inverse_coordinates(&"(4,(4,2)):(e1,(e0,6e1))".parse()?)?;
/// assert_eq!(r.to_string(), "(4,(6,2)):(4,(1,16))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn left_inverse_coordinates(layout: &Layout<Coord>) -> Result<Layout, LayoutError> {
    mixed(layout, "left inverse")?;
    let profile = profile_of(&strides(layout))?;
    by_component(&profile, &mut Vec::new(), &mut |path| left_inverse(&component(layout, path)?))
}

/// The inverse of a layout that is a bijection onto the coordinates of some shape (paper 3.4.1).
///
/// The laws, with `R` the result: `L(R(k)) = k` for every coordinate `k` of `R`, and `R(L(i)) = i`.
pub fn inverse_coordinates(layout: &Layout<Coord>) -> Result<Layout, LayoutError> {
    let right = right_inverse_coordinates(layout)?;
    if right.size() == layout.size() {
        return Ok(right);
    }
    Err(LayoutError::NotInvertible {
        layout: layout.to_string(),
        kind: "inverse",
        reason: format!("its right inverse has size {}, not {}", right.size(), layout.size()),
    })
}

/// The basis element of a path scaled by the strides of a layout.
fn along(layout: &Layout, path: &[usize]) -> Result<Layout<Coord>, LayoutError> {
    let basis = if path.is_empty() { Coord::zero() } else { Coord::nested(path)? };
    Layout::new(layout.shape().clone(), layout.stride().map(|d| basis.scale(*d)))
}

/// The complement of a layout that gives coordinates, without a bound (paper 3.5, table 7): each component's
/// complement, along its basis element.
///
/// The laws (paper equations 27 to 29): its shape refines the profile of the coordinates; but for 0 its values are none
/// of the layout's; along each component they ascend.
///
/// ```
/// use tilewright_layout::{Layout, complement_coordinates};
/// let r = complement_coordinates(&"(4,(4,2)):(e1,(e0,12e1))".parse()?, None)?;
/// assert_eq!(r.to_string(), "(1,(3,1)):(4e0,(4e1,24e1))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn complement_coordinates(
    layout: &Layout<Coord>,
    cotarget: Option<&Shape>,
) -> Result<Layout<Coord>, LayoutError> {
    rest(layout, cotarget, complement)
}

fn rest(
    layout: &Layout<Coord>,
    cotarget: Option<&Shape>,
    bounded: impl Fn(&Layout, i64) -> Result<Layout, LayoutError>,
) -> Result<Layout<Coord>, LayoutError> {
    mixed(layout, "complement")?;
    let profile = profile_of(&strides(layout))?;
    let bad = || LayoutError::BadProfile {
        profile: profile.map(|_| "*").to_string(),
        shape: cotarget.map_or(String::new(), |c| c.to_string()),
    };
    // A bound may have modes that the layout does not move.
    let target = match cotarget {
        None => profile.clone(),
        Some(c) => widen(&profile, c).ok_or_else(bad)?,
    };
    by_component(&target, &mut Vec::new(), &mut |path| {
        let part = component(layout, path)?;
        let rest = match cotarget {
            None => complement_unbounded(&part)?,
            Some(c) => {
                let mode = path.iter().try_fold(c, |c, k| c.get(*k)).ok_or_else(bad)?;
                bounded(&part, mode.size()?)?
            }
        };
        along(&rest, path)
    })
}

/// The profile with leaves for the modes of `shape` beyond it; nothing where it does not fit.
fn widen(profile: &HTuple<i64>, shape: &Shape) -> Option<HTuple<i64>> {
    match (profile, shape) {
        (HTuple::Leaf(_), HTuple::Leaf(_)) => Some(HTuple::Leaf(0)),
        (HTuple::Leaf(_), HTuple::Tuple(_)) => Some(HTuple::Leaf(0)),
        (HTuple::Tuple(p), HTuple::Tuple(s)) if p.len() <= s.len() => {
            let modes = s.iter().enumerate().map(|(k, s)| match p.get(k) {
                Some(p) => widen(p, s),
                None => Some(HTuple::Leaf(0)),
            });
            modes.collect::<Option<Vec<_>>>().map(HTuple::Tuple)
        }
        _ => None,
    }
}

/// The logical product of layouts that give coordinates, `(A, A* ∘ B)` (paper 3.5.1): `B` gives the coordinates of the
/// grid.
///
/// ```
/// use tilewright_layout::{Layout, logical_product_coordinates};
/// let r = logical_product_coordinates(&"(4,8):(e0,e1)".parse()?, &"(2,3):(e0,e1)".parse()?)?;
/// assert_eq!(r.to_string(), "((4,8),(2,3)):((e0,e1),(4e0,8e1))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn logical_product_coordinates(
    a: &Layout<Coord>,
    b: &Layout<Coord>,
) -> Result<Layout<Coord>, LayoutError> {
    let grid = compose_coordinates(&complement_coordinates(a, None)?, b)?;
    Layout::concat(&[a.clone(), grid])
}

/// The logical divide by a tiler that gives coordinates of the modes of `a`, `A ∘ (B, B*)` (paper 3.5.2).
///
/// ```
/// use tilewright_layout::{Layout, logical_divide_coordinates};
/// let r = logical_divide_coordinates(&"(8,16):(20,1)".parse::<Layout>()?, &"(4,8):(e0,2e1)".parse()?)?;
/// assert_eq!(r.to_string(), "((4,8),(2,2)):((20,2),(80,1))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn logical_divide_coordinates<S: Stride>(
    a: &Layout<S>,
    b: &Layout<Coord>,
) -> Result<Layout<S>, LayoutError> {
    let rest = rest(b, Some(a.shape()), complement_exact)?;
    compose_coordinates(a, &Layout::concat(&[b.clone(), rest])?)
}
