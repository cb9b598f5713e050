//! Composition `A ∘ B`: `B` first, then `A` (paper 3.3). Each leaf of `B` is taken through `A` from its fastest mode to
//! its slowest; the sum distributes where the leaves of `B` do not carry over an extent of `A`.

use super::coalesce::coalesce_unbounded;
use crate::error::{Condition, LayoutError, overflow};
use crate::htuple::HTuple;
use crate::layout::Layout;
use crate::stride::{Coord, Stride, profile_of};
use crate::work;
use std::collections::BTreeSet;

/// Domains of at most this size are decided at every coordinate where the conditions of the paper do not hold.
const POINTWISE: i64 = 1 << 16;

/// The composition `A ∘ B`: first `b`, then `a` (paper 3.3).
///
/// The laws (paper equations 16 and 17): the shape of `R` refines the shape of `B` (same nesting, leaves refined), and
/// `R(c) = A(B(c))` at every coordinate of `B`, where `A` extends its last mode beyond its bounds.
///
/// An error where no layout satisfies them: a stride or an extent of `B` does not divide the extents of `A` that it
/// crosses (equations 20 and 21), or the modes of `B` carry into each other (equation 23). Where these sufficient
/// conditions do not hold though the composition may exist (3.3.3, apparent violations), domains of at most 2^16
/// coordinates are decided exactly.
///
/// ```
/// use tilewright_layout::{Layout, compose};
/// let a: Layout = "(4,6,8,10):(2,3,5,7)".parse()?;
/// assert_eq!(compose(&a, &"6:12".parse()?)?.to_string(), "(2,3):(9,5)");
/// let error = compose(&"(6,2):(1,12)".parse::<Layout>()?, &"4:5".parse()?).unwrap_err();
/// assert!(error.to_string().contains("stride divisibility"));
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn compose<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<Layout<S>, LayoutError> {
    assemble(b, parts_of(a, b)?)
}

/// The value of `a` at a formal sum of basis elements: modes that it does not name are at 0.
fn eval_at_coordinate<S: Stride>(a: &Layout<S>, coord: &Coord) -> Option<S> {
    let mut sum = S::zero();
    for (basis, factor) in coord.terms() {
        let mut mode = a.clone();
        for &k in basis.path() {
            mode = mode.mode(k).ok()?;
        }
        sum = sum.checked_add(&mode.checked_eval(*factor).ok()?)?;
    }
    Some(sum)
}

/// The leaves that refine each leaf of `b` in the composition.
fn parts_of<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<Parts<S>, LayoutError> {
    // Strides that are not linear coalesce only in bounds.
    let modes = if S::LINEAR { coalesce_unbounded(a) } else { unmerged(a) };
    let refused = |condition, mode, detail| LayoutError::Composition {
        a: a.to_string(),
        b: b.to_string(),
        condition,
        mode,
        detail,
    };
    match by_conditions(&modes, b) {
        Ok(parts) if S::LINEAR || agrees(&modes, b, &parts) => Ok(parts),
        Ok(_) => pointwise(&modes, b).ok_or_else(|| {
            let (mode, detail) = (0, "a bit carries where the modes of B add up".to_string());
            refused(Condition::Linearity, mode, detail)
        }),
        Err(Refusal::Overflow) => Err(overflow("a stride of a composition")),
        Err(Refusal::Condition { condition, mode, detail }) => {
            pointwise(&modes, b).ok_or_else(|| refused(condition, mode, detail.text()))
        }
    }
}

/// The leaves of extent above 1, and the last.
fn unmerged<S: Stride>(a: &Layout<S>) -> Vec<(i64, S)> {
    let leaves = a.leaves();
    let last = leaves.len().saturating_sub(1);
    leaves.into_iter().enumerate().filter(|(k, (s, _))| *s > 1 || *k == last).map(|(_, leaf)| leaf).collect()
}

/// The composition `A ∘ B` with a `B` that gives coordinates (paper 3.3.2, coordinate case): a stride `a·e_i` of `B` is
/// taken through mode `i` of `A` alone, `a·e(i,j)` through mode `j` of mode `i`.
///
/// The laws are those of [`compose`]: `R(c) = A(B(c))`, with `B(c)` a coordinate weakly congruent to the shape of `A`.
///
/// An error where a stride of `B` is not a scaled basis element, names a mode that `A` does not have or a mode within
/// another stride's, or where the part in a mode does not compose.
///
/// ```
/// use tilewright_layout::{Coord, Layout, compose_coordinates};
/// let a: Layout = "(8,8):(8,1)".parse()?;
/// let b: Layout<Coord> = "((4,8),2):((2e1,e0),e1)".parse()?;
/// assert_eq!(compose_coordinates(&a, &b)?.to_string(), "((4,8),2):((2,8),1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn compose_coordinates<S: Stride>(a: &Layout<S>, b: &Layout<Coord>) -> Result<Layout<S>, LayoutError> {
    let leaves = b.leaves();
    let strides: Vec<Coord> = leaves.iter().map(|l| l.1.clone()).collect();
    profile_of(&strides)?;
    let (mut paths, mut known): (Vec<Vec<usize>>, BTreeSet<&[usize]>) = (Vec::new(), BTreeSet::new());
    for stride in &strides {
        match stride.terms() {
            [] => {}
            [(basis, _)] if !known.insert(basis.path()) => {}
            [(basis, _)] => paths.push(basis.path().to_vec()),
            _ => {
                return Err(LayoutError::BadStride {
                    operation: "composition",
                    stride: stride.to_string(),
                    layout: b.to_string(),
                    reason: "a stride must be a scaled basis element such as 6e1".to_string(),
                });
            }
        }
    }
    let mut parts: Parts<S> = leaves.iter().map(|(s, _)| vec![(*s, S::zero())]).collect();
    for path in paths {
        work::pay(512 + 64 * (leaves.len() + a.shape().leaf_count()))?;
        let mut mode = a.clone();
        for &k in &path {
            mode = mode.mode(k)?;
        }
        let component = Layout::new(b.shape().clone(), b.stride().map(|d| d.component_at(&path)))?;
        let through = parts_of(&mode, &component)?;
        for ((part, through), stride) in parts.iter_mut().zip(through).zip(&strides) {
            if stride.component_at(&path) != 0 {
                *part = through;
            }
        }
    }
    let result = assemble(b, parts)?;
    if !S::LINEAR {
        let each = 16 * (a.shape().leaf_count() + leaves.len());
        let agrees = || {
            let mut places = b.image().into_iter().zip(result.image());
            places.all(|(at, value)| eval_at_coordinate(a, &at).is_some_and(|v| v == value))
        };
        if b.size() > POINTWISE || !work::spend_for(b.size(), each) || !agrees() {
            return Err(LayoutError::Composition {
                a: a.to_string(),
                b: b.to_string(),
                condition: Condition::Linearity,
                mode: 0,
                detail: "a bit carries where the modes of B add up".to_string(),
            });
        }
    }
    Ok(result)
}

/// Composition by mode, `A ∘ ⟨B0,B1,…⟩ = (A0∘B0, A1∘B1, …)` (paper 3.3.5). Modes of `a` beyond the tilers stay as they
/// are; more tilers than modes are an error.
///
/// ```
/// use tilewright_layout::{Layout, compose_by_mode};
/// let a: Layout = "(8,16):(1,8)".parse()?;
/// let tile = compose_by_mode(&a, &["4:2".parse()?, "8:1".parse()?])?;
/// assert_eq!(tile.to_string(), "(4,8):(2,8)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn compose_by_mode<S: Stride>(a: &Layout<S>, tilers: &[Layout<i64>]) -> Result<Layout<S>, LayoutError> {
    if tilers.len() > a.rank() {
        return Err(LayoutError::RankMismatch {
            operation: "composition by mode",
            left: a.rank(),
            right: tilers.len(),
            expected: "there must be at most one tiler for each mode",
        });
    }
    let mut modes = a.modes();
    for (mode, tiler) in modes.iter_mut().zip(tilers) {
        *mode = compose(mode, tiler)?;
    }
    Layout::concat(&modes)
}

/// True if these parts agree with the composition at every coordinate, for a domain of at most 2^16.
fn agrees<S: Stride>(modes: &[(i64, S)], b: &Layout<i64>, parts: &Parts<S>) -> bool {
    let crossing = b.leaves().iter().filter(|(s, d)| *s > 1 && *d != 0).count();
    if crossing <= 1 && parts.iter().all(|p| p.len() == 1) {
        return true; // one multiple of one stride: only associativity is needed
    }
    let (Ok(a), Ok(r)) = (Layout::from_leaves(modes), assemble(b, parts.clone())) else { return false };
    b.size() <= POINTWISE
        && work::spend_for(b.size(), modes.len())
        && b.image().into_iter().zip(r.image()).all(|(at, value)| a.eval(at) == value)
}

/// The reason why the ordinary path does not compose.
enum Refusal {
    Overflow,
    Condition { condition: Condition, mode: usize, detail: Detail },
}

/// The numbers of a refusal; made into text only where nothing else composes.
enum Detail {
    Stride { stride: i64, extent: i64 },
    Shape { left: i64, part: i64 },
    Carry { boundary: i64, reach: i128 },
}

impl Detail {
    fn text(&self) -> String {
        match self {
            Detail::Stride { stride, extent } => {
                format!("of stride {stride} and extent {extent} of A one must divide the other")
            }
            Detail::Shape { left, part } => format!("extent {left} must be a multiple of {part}"),
            Detail::Carry { boundary, reach } => {
                format!(
                    "the modes of B reach {reach} together, which must stay below {boundary}, an extent of A"
                )
            }
        }
    }
}

/// The (extent, stride) pairs that refine each leaf of `B`, at least one each.
pub(crate) type Parts<S> = Vec<Vec<(i64, S)>>;

/// The composition wherever the conditions of the paper hold. `modes` are the coalesced modes of `A`; the last of them
/// is taken to be without bound.
fn by_conditions<S: Stride>(modes: &[(i64, S)], b: &Layout<i64>) -> Result<Parts<S>, Refusal> {
    let leaves = b.leaves();
    let mut parts = Vec::with_capacity(leaves.len());
    for (k, &(s, d)) in leaves.iter().enumerate() {
        parts.push(base_case(modes, k, s, d)?);
    }
    if leaves.iter().filter(|(s, d)| *s > 1 && *d != 0).count() > 1 {
        distributes(modes, &leaves)?;
    }
    Ok(parts)
}

/// The base case, `A ∘ s:d` for leaf `mode` of `B` (paper 3.3.2).
fn base_case<S: Stride>(modes: &[(i64, S)], mode: usize, s: i64, d: i64) -> Result<Vec<(i64, S)>, Refusal> {
    if s == 1 || d == 0 {
        return Ok(vec![(s, S::zero())]);
    }
    let refuse = |condition, detail| Err(Refusal::Condition { condition, mode, detail });
    let (mut shape, mut stride) = (s, d);
    let mut out = Vec::new();
    for (k, (extent, step)) in modes.iter().enumerate() {
        // The last mode is without bound, and so is one that this leaf never leaves.
        let reach = i128::from(shape - 1) * i128::from(stride);
        if k + 1 == modes.len() || (0..i128::from(*extent)).contains(&reach) {
            out.push((shape, step.checked_scale(stride).ok_or(Refusal::Overflow)?));
            break;
        }
        if stride % extent == 0 {
            stride /= extent; // "divide out": this mode stays at 0
        } else if stride > 0 && extent % stride == 0 {
            let part = extent / stride; // "keep" every stride-th element of this mode
            if shape % part != 0 {
                return refuse(Condition::ShapeDivisibility, Detail::Shape { left: shape, part });
            }
            out.push((part, step.checked_scale(stride).ok_or(Refusal::Overflow)?));
            shape /= part;
            stride = 1;
        } else {
            return refuse(Condition::StrideDivisibility, Detail::Stride { stride, extent: *extent });
        }
    }
    Ok(out)
}

/// True if `A` distributes over the sum of the leaves of `B`: at every boundary between modes of `A` the remainders of
/// the leaves sum to less than the boundary, so that nothing carries (paper equation 23; weaker than its segregated
/// images, and as strong as needed when the strides of `A` are generic).
fn distributes<S>(modes: &[(i64, S)], leaves: &[(i64, i64)]) -> Result<(), Refusal> {
    let mut boundary = 1i128;
    for (extent, _) in modes.iter().take(modes.len() - 1) {
        boundary *= i128::from(*extent);
        let mut sum = 0i128;
        for (k, &(s, d)) in leaves.iter().enumerate() {
            let (reach, d) = (i128::from(s - 1) * i128::from(d), i128::from(d));
            // The greatest remainder of c·d for c < s. Where the leaf crosses the boundary, the base case has made sure
            // that one of boundary and stride divides the other.
            sum += match d % boundary {
                0 => 0,
                _ if d > 0 && reach < boundary => reach,
                _ if d > 0 && boundary % d == 0 => boundary - d,
                _ => boundary,
            };
            if sum >= boundary {
                let boundary = i64::try_from(boundary).unwrap_or(i64::MAX);
                let detail = Detail::Carry { boundary, reach: sum };
                return Err(Refusal::Condition { condition: Condition::Disjointness, mode: k, detail });
            }
        }
    }
    Ok(())
}

/// The last resort: reads off each leaf what it would have to become, then checks every coordinate.
fn pointwise<S: Stride>(modes: &[(i64, S)], b: &Layout<i64>) -> Option<Parts<S>> {
    if b.size() > POINTWISE || !work::spend_for(b.size(), 2 * modes.len()) {
        return None;
    }
    let a = Layout::from_leaves(modes).ok()?;
    let at = |i: i64| a.checked_eval(i).ok();
    let leaves = b.leaves();
    let mut parts = Vec::with_capacity(leaves.len());
    for &(s, d) in &leaves {
        parts.push(fit(s, |i| at(i.checked_mul(d)?))?);
    }
    let fitted = assemble(b, parts.clone()).ok()?;
    let mut places = b.image().into_iter().zip(fitted.image());
    places.all(|(i, value)| at(i).is_some_and(|v| v == value)).then_some(parts)
}

/// The coalesced leaves of the function `f` on `0, …, s−1`, if it is that of a layout. In a coalesced layout the first
/// extent is exactly how far the function is linear; the rest is the same question on its multiples.
pub(super) fn fit<S: Stride>(s: i64, f: impl Fn(i64) -> Option<S>) -> Option<Vec<(i64, S)>> {
    let mut leaves = Vec::new();
    let (mut unit, mut left) = (1i64, s);
    while left > 1 {
        let step = f(unit)?;
        let mut run = 2;
        while run < left && f(run * unit)? == step.checked_scale(run)? {
            run += 1;
        }
        while !S::LINEAR && run > 2 && left % run != 0 {
            run -= 1; // multiples of a bit string may agree by accident
        }
        if left % run != 0 {
            return None;
        }
        leaves.push((run, step));
        unit *= run;
        left /= run;
    }
    if leaves.is_empty() {
        leaves.push((1, S::zero()));
    }
    Some(leaves)
}

/// The layout with the nesting of `b` and each of its leaves replaced by its parts.
pub(crate) fn assemble<S: Stride, D: Stride>(
    b: &Layout<D>,
    parts: Parts<S>,
) -> Result<Layout<S>, LayoutError> {
    fn go<T: Clone>(h: &HTuple<i64>, parts: &mut impl Iterator<Item = Vec<T>>) -> HTuple<T> {
        match h {
            HTuple::Leaf(_) => HTuple::from_flat(parts.next().unwrap_or_default()),
            HTuple::Tuple(t) => HTuple::Tuple(t.iter().map(|e| go(e, parts)).collect()),
        }
    }
    let shapes: Vec<Vec<i64>> = parts.iter().map(|p| p.iter().map(|l| l.0).collect()).collect();
    let strides = parts.into_iter().map(|p| p.into_iter().map(|l| l.1).collect());
    let shape = go(b.shape(), &mut shapes.into_iter());
    let stride = go(b.shape(), &mut { strides });
    Layout::new(shape, stride)
}
