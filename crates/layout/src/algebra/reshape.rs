//! Element widths and shapes: recasting, and covering a shape with tiles. The fastest mode is the first.

use super::coalesce::coalesce_by;
use super::product::blocked_product;
use crate::error::{LayoutError, overflow};
use crate::htuple::{HTuple, Shape};
use crate::layout::Layout;
use crate::swizzle::SwizzledLayout;

/// The layout of the same memory in elements of another width, as of pointers cast from `from` to `to` bits.
///
/// The laws: to narrower elements, with `n = from/to`, the offsets of the result are `n·v, …, n·v + n − 1` for each
/// offset `v` of the layout; to wider ones, with `n = to/from`, `n·w, …, n·w + n − 1` are offsets of the layout for each
/// offset `w` of the result. Modes of stride 0 stay. Widths of which neither divides the other are taken through elements of their
/// greatest common divisor. Where the parts of one wide element lie in several modes, these modes shrink to extent 1, but for the one of
/// the largest stride, which keeps the whole elements.
///
/// An error where no layout has these offsets: to wider elements, where they are not whole; to narrower ones, where no
/// mode has stride 1 or extent 1 to hold the parts.
///
/// ```
/// use tilewright_layout::{Layout, recast};
/// let halves: Layout = "(8,64):(64,1)".parse()?;
/// assert_eq!(recast(&halves, 16, 32)?.to_string(), "(8,32):(32,1)");
/// assert_eq!(recast(&halves, 16, 8)?.to_string(), "(8,128):(128,1)");
/// assert_eq!(recast(&"(2,6):(1,2)".parse()?, 16, 48)?.to_string(), "(1,4):(0,1)");
/// assert_eq!(recast(&"(4,8):(8,1)".parse()?, 6, 8)?.to_string(), "(4,6):(6,1)");
/// assert!(recast(&"(8,63):(64,1)".parse()?, 16, 32).is_err());
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn recast(layout: &Layout, from: i64, to: i64) -> Result<Layout, LayoutError> {
    let refuse = |reason: String| LayoutError::Inadmissible {
        operation: "recasting",
        layout: layout.to_string(),
        reason,
    };
    if from < 1 || to < 1 {
        return Err(refuse(format!("the widths {from} and {to} must be at least 1")));
    }
    let common = gcd(from, to);
    let parts = if from == common { layout.clone() } else { narrow(layout, from / common)? };
    if to == common { Ok(parts) } else { widen(&parts, to / common) }
}

fn gcd(mut a: i64, mut b: i64) -> i64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn narrow(layout: &Layout, n: i64) -> Result<Layout, LayoutError> {
    let leaves = layout.leaves();
    // The stride of a mode of extent 1 is in no offset.
    let place = (leaves.iter().position(|(s, d)| *d == 1 && *s > 1))
        .or_else(|| leaves.iter().position(|(_, d)| *d == 1))
        .or_else(|| leaves.iter().position(|(s, _)| *s == 1));
    let Some(place) = place else {
        return Err(LayoutError::Inadmissible {
            operation: "recasting",
            layout: layout.to_string(),
            reason: "to become narrower a mode must have stride 1, or extent 1".to_string(),
        });
    };
    rebuild(layout, |k, s, d| {
        let too_big = || overflow("an extent of a recast layout");
        if k == place {
            Ok((s.checked_mul(n).ok_or_else(too_big)?, 1))
        } else {
            Ok((s, d.checked_mul(n).ok_or_else(too_big)?))
        }
    })
}

fn widen(layout: &Layout, n: i64) -> Result<Layout, LayoutError> {
    by_modes(layout, n).or_else(|error| across_modes(layout, n).ok_or(error))
}

/// [`widen`] where the modes of strides that `n` does not divide are one run, the offsets from 0 up to a multiple of `n`, each once.
fn across_modes(layout: &Layout, n: i64) -> Option<Layout> {
    let mut run: Vec<(i64, i64, usize)> = Vec::new();
    for (k, (s, d)) in layout.leaves().into_iter().enumerate() {
        if s > 1 && d % n != 0 {
            run.push((d, s, k));
        }
    }
    run.sort_unstable();
    let mut next = 1i64;
    for (d, s, _) in &run {
        if *d != next {
            return None;
        }
        next = next.checked_mul(*s)?;
    }
    let last = run.last()?.2;
    if next % n != 0 {
        return None;
    }
    rebuild(layout, |k, s, d| {
        Ok(match () {
            () if k == last => (next / n, if next == n { 0 } else { 1 }),
            () if s == 1 || d % n != 0 => (1, 0),
            () => (s, d / n),
        })
    })
    .ok()
}

/// [`widen`] where the parts of a mode in each wide element are a whole number of its own.
fn by_modes(layout: &Layout, n: i64) -> Result<Layout, LayoutError> {
    // The parts of the modes below stride n must make up one wide element: 0, …, n−1, each once.
    let mut below: Vec<(i64, i64)> = Vec::new();
    let fail = |stride: i64, reason: String| LayoutError::BadStride {
        operation: "recasting",
        stride: stride.to_string(),
        layout: layout.to_string(),
        reason,
    };
    let result = rebuild(layout, |_, s, d| {
        if d % n == 0 {
            return Ok((s, d / n));
        }
        if s == 1 {
            return Ok((1, 0));
        }
        if d < 0 || n % d != 0 {
            return Err(fail(d, format!("it must be a multiple of {n}, or positive and divide it")));
        }
        let part = n / d;
        if s % part == 0 {
            below.push((d, part));
            Ok((s / part, 1))
        } else if part % s == 0 {
            below.push((d, s));
            Ok((1, 0))
        } else {
            Err(fail(d, format!("{s} elements of it do not make up whole elements of {n}")))
        }
    })?;
    below.sort_unstable();
    let mut next = 1i64;
    for (d, s) in below {
        if d != next {
            return Err(fail(d, format!("elements of {n} would have holes or overlap: {next} is missing")));
        }
        next = d.saturating_mul(s);
    }
    if next == n {
        Ok(result)
    } else {
        Err(fail(1, format!("only {next} of the {n} parts of each wide element are there")))
    }
}

/// The layout with each leaf replaced.
fn rebuild(
    layout: &Layout,
    mut f: impl FnMut(usize, i64, i64) -> Result<(i64, i64), LayoutError>,
) -> Result<Layout, LayoutError> {
    let mut leaves = Vec::new();
    for (k, (s, d)) in layout.leaves().into_iter().enumerate() {
        leaves.push(f(k, s, d)?);
    }
    let (mut shapes, mut strides) = (leaves.iter(), leaves.iter());
    let shape = layout.shape().map(|_| shapes.next().map_or(1, |l| l.0));
    let stride = layout.stride().map(|_| strides.next().map_or(0, |l| l.1));
    Layout::new(shape, stride)
}

/// Covers `shape` with copies of `block` in the given order of the modes: the mode of smallest order has its copies
/// next to each other in memory.
///
/// The laws: mode `i` of the result has the size of mode `i` of `shape`; every copy is a shifted `block`; a bijective
/// block gives a bijection. An error where the ranks differ or a block does not divide its mode.
///
/// ```
/// use tilewright_layout::{Layout, tile_to_shape};
/// let r = tile_to_shape(&"(8,64):(64,1)".parse()?, &(16, 128).into(), &(0, 1).into())?;
/// assert_eq!(r.to_string(), "(16,(64,2)):(64,(1,1024))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn tile_to_shape(block: &Layout, shape: &Shape, order: &HTuple<i64>) -> Result<Layout, LayoutError> {
    shape.check_shape()?;
    if block.rank() != shape.rank() {
        return Err(LayoutError::RankMismatch {
            operation: "tiling to a shape",
            left: block.rank(),
            right: shape.rank(),
            expected: "the block must have a mode for each mode of the shape",
        });
    }
    let mut grid = Vec::new();
    for (mode, whole) in block.modes().iter().zip(shape.modes()) {
        let whole = whole.size()?;
        if whole % mode.size() != 0 {
            return Err(LayoutError::Inadmissible {
                operation: "tiling to a shape",
                layout: block.to_string(),
                reason: format!("mode {mode} must divide the extent {whole} of shape {shape}"),
            });
        }
        grid.push(HTuple::Leaf(whole / mode.size()));
    }
    let grid = if block.depth() == 0 { grid.remove(0) } else { HTuple::Tuple(grid) };
    let product = blocked_product(block, &Layout::ordered(grid.clone(), order)?)?;
    coalesce_by(&product, &grid)
}

impl SwizzledLayout {
    /// [`tile_to_shape`] with a swizzled block: the swizzle stays last.
    pub fn tile_to_shape(&self, shape: &Shape, order: &HTuple<i64>) -> Result<SwizzledLayout, LayoutError> {
        Ok(SwizzledLayout { swizzle: self.swizzle, layout: tile_to_shape(&self.layout, shape, order)? })
    }

    /// The same function as a layout over bit strings (paper figure 4c): modes split where the swizzle folds them.
    ///
    /// The law: `to_f2(L)(c) = f_{L(c)}` at every coordinate; errors are those of [`to_f2`](crate::to_f2), for at most
    /// 2^16 coordinates.
    ///
    /// ```
    /// use tilewright_layout::SwizzledLayout;
    /// let l: SwizzledLayout = "Sw<2,0,2> o (4,4):(1,4)".parse()?;
    /// assert_eq!(l.to_f2()?.to_string(), "(4,4):(f1,f5)"); // table 1
    /// # Ok::<(), tilewright_layout::LayoutError>(())
    /// ```
    pub fn to_f2(&self) -> Result<Layout<crate::F2>, LayoutError> {
        super::f2::to_f2_of(&self.layout, |x| self.swizzle.apply(x))
    }
}
