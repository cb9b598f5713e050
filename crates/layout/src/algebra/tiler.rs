//! Tilers: hierarchical tuples of layouts and integers that operations apply by mode (paper 3.3.5, definition 3.1). A
//! tiler's first element belongs to the first, fastest mode.

use super::compose::{compose, compose_by_mode};
use super::divide::logical_divide;
use super::product::{blocked_product, logical_product, raked_product};
use crate::error::LayoutError;
use crate::htuple::{HTuple, MAX_DEPTH};
use crate::layout::Layout;
use crate::stride::Stride;
use crate::text::Cursor;
use std::fmt;
use std::str::FromStr;

/// A tiler (paper definition 3.1): a layout, an integer `n` that stands for `n:1`, a tuple of tilers, one for each mode,
/// or `_`, which leaves a mode as it is. Prints as `<4:1,<2,8:2>>`.
///
/// ```
/// use tilewright_layout::{Layout, Tiler};
/// let t: Tiler = "<4:1, <2, 8:2>>".parse()?;
/// assert_eq!(t.to_string(), "<4:1,<2:1,8:2>>");
/// assert_eq!(Tiler::from(&(4, 8).into()).to_string(), "<4:1,8:1>");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Tiler {
    /// Applies to the whole.
    Layout(Layout),
    /// Applies to the modes; modes beyond are left as they are.
    Modes(Vec<Tiler>),
    /// Leaves a mode as it is.
    Keep,
}

impl Tiler {
    /// The number of leaves of all its layouts; one for `_`.
    pub fn leaf_count(&self) -> usize {
        match self {
            Tiler::Layout(layout) => layout.shape().leaf_count(),
            Tiler::Modes(modes) => modes.iter().map(Tiler::leaf_count).sum(),
            Tiler::Keep => 1,
        }
    }

    /// The levels of `<…>`.
    pub fn depth(&self) -> usize {
        match self {
            Tiler::Modes(modes) => 1 + modes.iter().map(Tiler::depth).max().unwrap_or(0),
            _ => 0,
        }
    }
}

impl From<Layout> for Tiler {
    fn from(layout: Layout) -> Tiler {
        Tiler::Layout(layout)
    }
}

impl From<&HTuple<i64>> for Tiler {
    fn from(shape: &HTuple<i64>) -> Tiler {
        match shape {
            HTuple::Leaf(n) => Tiler::Layout(Layout::identity(*n)),
            HTuple::Tuple(t) => Tiler::Modes(t.iter().map(Tiler::from).collect()),
        }
    }
}

impl fmt::Display for Tiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tiler::Layout(layout) => write!(f, "{layout}"),
            Tiler::Keep => f.write_str("_"),
            Tiler::Modes(modes) => {
                let modes: Vec<String> = modes.iter().map(Tiler::to_string).collect();
                write!(f, "<{}>", modes.join(","))
            }
        }
    }
}

impl FromStr for Tiler {
    type Err = LayoutError;

    fn from_str(text: &str) -> Result<Tiler, LayoutError> {
        fn read(cursor: &mut Cursor<'_>, depth: usize) -> Result<Tiler, LayoutError> {
            if cursor.eat("_") {
                return Ok(Tiler::Keep);
            }
            if cursor.eat("<") {
                if depth == 0 {
                    return Err(LayoutError::TooDeep { limit: MAX_DEPTH });
                }
                let mut modes = vec![read(cursor, depth - 1)?];
                while cursor.eat(",") {
                    modes.push(read(cursor, depth - 1)?);
                }
                cursor.expect(">")?;
                return Ok(Tiler::Modes(modes));
            }
            let shape = cursor.integers()?;
            shape.check_shape()?;
            if cursor.eat(":") {
                return Ok(Tiler::Layout(Layout::new(shape, cursor.integers()?)?));
            }
            Ok(Tiler::from(&shape))
        }
        let mut cursor = Cursor::new(text);
        let tiler = read(&mut cursor, MAX_DEPTH)?;
        cursor.end()?;
        Ok(tiler)
    }
}

/// Applies an operation by mode, `A ⋆ ⟨B,C⟩ = (A0 ⋆ B, A1 ⋆ C)` (paper equation 12), nested as the tiler is. Modes beyond
/// the tiler stay as they are; more elements than modes are an error.
///
/// ```
/// use tilewright_layout::{Layout, by_mode, complement};
/// let tiler = "<8,16>".parse()?;
/// let r = by_mode(&"(4,8):(1,2)".parse()?, &tiler, &mut |mode, tile| complement(mode, tile.size()))?;
/// assert_eq!(r.to_string(), "(2,2):(4,1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn by_mode<S: Stride>(
    a: &Layout<S>,
    tiler: &Tiler,
    operation: &mut impl FnMut(&Layout<S>, &Layout) -> Result<Layout<S>, LayoutError>,
) -> Result<Layout<S>, LayoutError> {
    match tiler {
        Tiler::Keep => Ok(a.clone()),
        Tiler::Layout(b) => operation(a, b),
        Tiler::Modes(tilers) => {
            check_rank(a, tilers)?;
            let mut modes = a.modes();
            for (mode, tiler) in modes.iter_mut().zip(tilers) {
                *mode = by_mode(mode, tiler, operation)?;
            }
            Layout::concat(&modes)
        }
    }
}

fn check_rank<S: Stride>(a: &Layout<S>, tilers: &[Tiler]) -> Result<(), LayoutError> {
    if tilers.len() <= a.rank() && !tilers.is_empty() {
        return Ok(());
    }
    Err(LayoutError::RankMismatch {
        operation: "an operation by mode",
        left: a.rank(),
        right: tilers.len(),
        expected: "there must be at least one tiler, and at most one for each mode",
    })
}

/// Composition with a tiler, `A ∘ ⟨B,C⟩ = (A0 ∘ B, A1 ∘ C)` (paper 3.3.5).
///
/// ```
/// use tilewright_layout::{Layout, compose_tiler};
/// let r = compose_tiler(&"(8,16):(20,1)".parse::<Layout>()?, &"<4:1,8:2>".parse()?)?;
/// assert_eq!(r.to_string(), "(4,8):(20,2)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn compose_tiler<S: Stride>(a: &Layout<S>, tiler: &Tiler) -> Result<Layout<S>, LayoutError> {
    match tiler {
        Tiler::Modes(t) if t.iter().all(|t| matches!(t, Tiler::Layout(_))) => {
            let layouts: Vec<Layout> = t
                .iter()
                .filter_map(|t| if let Tiler::Layout(l) = t { Some(l.clone()) } else { None })
                .collect();
            compose_by_mode(a, &layouts)
        }
        _ => by_mode(a, tiler, &mut |a, b| compose(a, b)),
    }
}

/// The logical divide with a tiler, by mode (paper 3.5.2): `((tile0,grid0), (tile1,grid1), …)`.
///
/// ```
/// use tilewright_layout::{Layout, logical_divide_tiler, zipped_divide_tiler};
/// let (a, t) = ("(8,16):(20,1)".parse::<Layout>()?, "<4:1,8:2>".parse()?);
/// assert_eq!(logical_divide_tiler(&a, &t)?.to_string(), "((4,2),(8,2)):((20,80),(2,1))");
/// assert_eq!(zipped_divide_tiler(&a, &t)?.to_string(), "((4,8),(2,2)):((20,2),(80,1))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn logical_divide_tiler<S: Stride>(a: &Layout<S>, tiler: &Tiler) -> Result<Layout<S>, LayoutError> {
    by_mode(a, tiler, &mut |a, b| logical_divide(a, b))
}

/// The logical product with a tiler, by mode (paper 3.5.1): `((A0, A0* ∘ B), (A1, A1* ∘ C), …)`.
pub fn logical_product_tiler(a: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    by_mode(a, tiler, &mut logical_product)
}

/// The blocked product with a tiler: [`blocked_product`] of each mode with its tiler, which has the mode's rank.
pub fn blocked_product_tiler(a: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    by_mode(a, tiler, &mut blocked_product)
}

/// The raked product with a tiler: [`raked_product`] of each mode with its tiler, which has the mode's rank.
pub fn raked_product_tiler(a: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    by_mode(a, tiler, &mut raked_product)
}

/// The divide by mode with like parts together, `(tile, grid)`: each nested as the tiler is. A mode that the tiler keeps
/// belongs to the grid.
pub fn zipped_divide_tiler<S: Stride>(a: &Layout<S>, tiler: &Tiler) -> Result<Layout<S>, LayoutError> {
    zipped(unzip(a, tiler, logical_divide)?)
}

/// The divide by mode as `(tile, grid0, grid1, …)`.
pub fn tiled_divide_tiler<S: Stride>(a: &Layout<S>, tiler: &Tiler) -> Result<Layout<S>, LayoutError> {
    tiled(unzip(a, tiler, logical_divide)?)
}

/// The divide by mode as `(tile0, tile1, …, grid0, grid1, …)`.
pub fn flat_divide_tiler<S: Stride>(a: &Layout<S>, tiler: &Tiler) -> Result<Layout<S>, LayoutError> {
    flat(unzip(a, tiler, logical_divide)?)
}

/// The product by mode with like parts together, `(tile, grid)`: each nested as the tiler is. A mode that the tiler keeps
/// belongs to the grid.
///
/// ```
/// use tilewright_layout::{Layout, logical_product_tiler, zipped_product_tiler};
/// let (a, t) = ("(2,5):(1,2)".parse::<Layout>()?, "<3,4:2>".parse()?);
/// assert_eq!(logical_product_tiler(&a, &t)?.to_string(), "((2,3),(5,4)):((1,2),(2,10))");
/// assert_eq!(zipped_product_tiler(&a, &t)?.to_string(), "((2,5),(3,4)):((1,2),(2,10))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn zipped_product_tiler(a: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    zipped(unzip(a, tiler, logical_product)?)
}

/// The product by mode as `(tile, grid0, grid1, …)`.
pub fn tiled_product_tiler(a: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    tiled(unzip(a, tiler, logical_product)?)
}

/// The product by mode as `(tile0, tile1, …, grid0, grid1, …)`.
pub fn flat_product_tiler(a: &Layout, tiler: &Tiler) -> Result<Layout, LayoutError> {
    flat(unzip(a, tiler, logical_product)?)
}

/// The tile, if there is one, and the grid.
type Unzipped<S> = (Option<Layout<S>>, Layout<S>);

fn zipped<S: Stride>((tile, grid): Unzipped<S>) -> Result<Layout<S>, LayoutError> {
    Layout::concat(&[tile.unwrap_or_else(Layout::trivial), grid])
}

fn tiled<S: Stride>((tile, grid): Unzipped<S>) -> Result<Layout<S>, LayoutError> {
    let mut modes = vec![tile.unwrap_or_else(Layout::trivial)];
    modes.extend(grid.modes());
    Layout::concat(&modes)
}

fn flat<S: Stride>((tile, grid): Unzipped<S>) -> Result<Layout<S>, LayoutError> {
    let mut modes = tile.unwrap_or_else(Layout::trivial).modes();
    modes.extend(grid.modes());
    Layout::concat(&modes)
}

/// A division or product by a layout as a whole.
type Whole<S> = fn(&Layout<S>, &Layout) -> Result<Layout<S>, LayoutError>;

/// The tile, if the tiler has one, and the grid, as `split` makes them of a mode and its tiler: `(tile, grid)`.
fn unzip<S: Stride>(a: &Layout<S>, tiler: &Tiler, split: Whole<S>) -> Result<Unzipped<S>, LayoutError> {
    match tiler {
        Tiler::Keep => Ok((None, a.clone())),
        Tiler::Layout(b) => {
            let split = split(a, b)?;
            Ok((Some(split.mode(0)?), split.mode(1)?))
        }
        Tiler::Modes(tilers) => {
            check_rank(a, tilers)?;
            let (mut tiles, mut grids) = (Vec::new(), Vec::new());
            let modes = a.modes();
            for (mode, tiler) in modes.iter().zip(tilers) {
                let (tile, grid) = unzip(mode, tiler, split)?;
                tiles.extend(tile);
                grids.push(grid);
            }
            grids.extend(modes.into_iter().skip(tilers.len()));
            let tile = if tiles.is_empty() { None } else { Some(Layout::concat(&tiles)?) };
            Ok((tile, Layout::concat(&grids)?))
        }
    }
}
