//! Division: a layout split into the tile that a tiler points to and the grid of such tiles (paper 3.5.2). The tile is
//! the first, fastest mode of the result; results are compositions `A ∘ (B, B*)`, the tiler applied first.

use super::complement::complement_exact;
use super::compose::compose;
use crate::error::LayoutError;
use crate::layout::Layout;
use crate::stride::Stride;

/// The logical divide `A ⊘ B = A ∘ (B, B*)`, with `B*` the complement of `B` up to the size of `A` (paper 3.5.2):
/// `(tile, grid)`.
///
/// The laws: mode 0 of the result is `A ∘ B`, mode 1 is `A ∘ B*`, and every value of `A` occurs. Where the tile does
/// not divide `A` evenly, the result extends beyond `A`.
///
/// ```
/// use tilewright_layout::{Layout, logical_divide};
/// let l = logical_divide(&"24:1".parse::<Layout>()?, &"8:3".parse()?)?;
/// assert_eq!(l.to_string(), "(8,3):(3,1)");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn logical_divide<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<Layout<S>, LayoutError> {
    let rest = complement_exact(b, a.size())?;
    compose(a, &Layout::concat(&[b.clone(), rest])?)
}

/// [`logical_divide`] as `(tile, grid)`: for a single tiler the two agree.
pub fn zipped_divide<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<Layout<S>, LayoutError> {
    logical_divide(a, b)
}

/// [`logical_divide`] with the modes of the grid spread: `(tile, grid0, grid1, …)`.
pub fn tiled_divide<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<Layout<S>, LayoutError> {
    let (tile, grid) = split(a, b)?;
    let mut modes = vec![tile];
    modes.extend(grid.modes());
    Layout::concat(&modes)
}

/// [`logical_divide`] with the modes of tile and grid spread: `(tile0, tile1, …, grid0, grid1, …)`.
pub fn flat_divide<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<Layout<S>, LayoutError> {
    let (tile, grid) = split(a, b)?;
    let mut modes = tile.modes();
    modes.extend(grid.modes());
    Layout::concat(&modes)
}

fn split<S: Stride>(a: &Layout<S>, b: &Layout<i64>) -> Result<(Layout<S>, Layout<S>), LayoutError> {
    let divided = logical_divide(a, b)?;
    Ok((divided.mode(0)?, divided.mode(1)?))
}

/// The logical divide of each mode by its tiler, `((tile0,grid0), (tile1,grid1), …)`. Modes of `a` beyond the tilers
/// stay as they are; more tilers than modes are an error.
///
/// ```
/// use tilewright_layout::{Layout, logical_divide_by_mode, zipped_divide_by_mode};
/// let a: Layout = "(8,16):(1,8)".parse()?;
/// let tilers = [Layout::identity(4), Layout::identity(8)];
/// assert_eq!(logical_divide_by_mode(&a, &tilers)?.to_string(), "((4,2),(8,2)):((1,4),(8,64))");
/// assert_eq!(zipped_divide_by_mode(&a, &tilers)?.to_string(), "((4,8),(2,2)):((1,8),(4,64))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn logical_divide_by_mode<S: Stride>(
    a: &Layout<S>,
    tilers: &[Layout<i64>],
) -> Result<Layout<S>, LayoutError> {
    let (tiles, grids, others) = unzip(a, tilers)?;
    let mut modes = Vec::with_capacity(a.rank());
    for (tile, grid) in tiles.into_iter().zip(grids) {
        modes.push(Layout::concat(&[tile, grid])?);
    }
    modes.extend(others);
    Layout::concat(&modes)
}

/// The divide by mode as `((tile0,tile1,…), (grid0,grid1,…,others))`, others being the modes of `a` beyond the tilers.
pub fn zipped_divide_by_mode<S: Stride>(
    a: &Layout<S>,
    tilers: &[Layout<i64>],
) -> Result<Layout<S>, LayoutError> {
    let (tiles, mut grids, others) = unzip(a, tilers)?;
    grids.extend(others);
    Layout::concat(&[Layout::concat(&tiles)?, Layout::concat(&grids)?])
}

/// The divide by mode as `((tile0,tile1,…), grid0, grid1, …, others)`.
pub fn tiled_divide_by_mode<S: Stride>(
    a: &Layout<S>,
    tilers: &[Layout<i64>],
) -> Result<Layout<S>, LayoutError> {
    let (tiles, grids, others) = unzip(a, tilers)?;
    let mut modes = vec![Layout::concat(&tiles)?];
    modes.extend(grids);
    modes.extend(others);
    Layout::concat(&modes)
}

/// The divide by mode as `(tile0, tile1, …, grid0, grid1, …, others)`.
pub fn flat_divide_by_mode<S: Stride>(
    a: &Layout<S>,
    tilers: &[Layout<i64>],
) -> Result<Layout<S>, LayoutError> {
    let (mut modes, grids, others) = unzip(a, tilers)?;
    modes.extend(grids);
    modes.extend(others);
    Layout::concat(&modes)
}

/// Tiles, grids, and the modes that have no tiler.
type Unzipped<S> = (Vec<Layout<S>>, Vec<Layout<S>>, Vec<Layout<S>>);

/// Tiles and grids of the modes that have a tiler, and the modes that have none.
fn unzip<S: Stride>(a: &Layout<S>, tilers: &[Layout<i64>]) -> Result<Unzipped<S>, LayoutError> {
    if tilers.is_empty() || tilers.len() > a.rank() {
        return Err(LayoutError::RankMismatch {
            operation: "division by mode",
            left: a.rank(),
            right: tilers.len(),
            expected: "there must be at least one tiler, and at most one for each mode",
        });
    }
    let (mut tiles, mut grids) = (Vec::new(), Vec::new());
    let mut modes = a.modes();
    let others = modes.split_off(tilers.len());
    for (mode, tiler) in modes.iter().zip(tilers) {
        let (tile, grid) = split(mode, tiler)?;
        tiles.push(tile);
        grids.push(grid);
    }
    Ok((tiles, grids, others))
}
