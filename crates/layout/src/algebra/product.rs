//! Products: a tile repeated over a grid (paper 3.5.1). The tile is the first, fastest mode of the result; the grid is
//! `A* ∘ B`, the layout `B` of the grid applied first, then the complement of the tile.

use super::complement::complement_unbounded;
use super::compose::compose;
use crate::error::LayoutError;
use crate::layout::Layout;

/// The logical product `A ⊗ B = (A, A* ∘ B)`, with `A*` the complement of `A` (paper 3.5.1): every element of `B`
/// replaced by a shifted copy of `A`.
///
/// The laws: mode 0 of the result is `A`; the shape of mode 1 refines that of `B`; copies of `A` do not overlap wherever
/// `B` is injective.
///
/// ```
/// use tilewright_layout::{Layout, logical_product};
/// let l = logical_product(&"(3,4):(4,1)".parse()?, &"(2,5):(1,2)".parse()?)?;
/// assert_eq!(l.to_string(), "((3,4),(2,5)):((4,1),(12,24))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn logical_product(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    Layout::concat(&[a.clone(), grid(a, b)?])
}

/// The product with corresponding modes joined, tile first: `((A0,B0), (A1,B1), …)` with `B` taken through the
/// complement of `A` (paper 3.5.1). The one of lower rank gets modes `1:0`, as in CuTe.
///
/// ```
/// use tilewright_layout::{Layout, blocked_product};
/// let l = blocked_product(&"(3,4):(4,1)".parse()?, &"(2,5):(1,2)".parse()?)?;
/// assert_eq!(l.to_string(), "((3,2),(4,5)):((4,12),(1,24))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn blocked_product(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    let modes = zip(a, b)?;
    Layout::concat(&modes.into_iter().map(|(a, b)| Layout::concat(&[a, b])).collect::<Result<Vec<_>, _>>()?)
}

/// The product with corresponding modes joined, grid first: `((B0,A0), (B1,A1), …)` (paper 3.5.1), so that neighbours
/// belong to different copies of the tile. The one of lower rank gets modes `1:0`, as in CuTe.
///
/// ```
/// use tilewright_layout::{Layout, raked_product};
/// let l = raked_product(&"(3,4):(4,1)".parse()?, &"(2,5):(1,2)".parse()?)?;
/// assert_eq!(l.to_string(), "((2,3),(5,4)):((12,4),(24,1))");
/// # Ok::<(), tilewright_layout::LayoutError>(())
/// ```
pub fn raked_product(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    let modes = zip(a, b)?;
    Layout::concat(&modes.into_iter().map(|(a, b)| Layout::concat(&[b, a])).collect::<Result<Vec<_>, _>>()?)
}

/// [`logical_product`] as `(tile, grid)`: for a single layout the two agree.
pub fn zipped_product(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    logical_product(a, b)
}

/// [`logical_product`] with the modes of the grid spread: `(tile, grid0, grid1, …)`.
pub fn tiled_product(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    let mut modes = vec![a.clone()];
    modes.extend(grid_modes(a, b)?);
    Layout::concat(&modes)
}

/// [`logical_product`] with the modes of tile and grid spread: `(tile0, tile1, …, grid0, grid1, …)`.
pub fn flat_product(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    let mut modes = a.modes();
    modes.extend(grid_modes(a, b)?);
    Layout::concat(&modes)
}

fn grid(a: &Layout, b: &Layout) -> Result<Layout, LayoutError> {
    // Any complement is 0 at 0: where the grid goes nowhere, none is needed.
    let stays = b.leaves().iter().all(|(s, d)| *s == 1 || *d == 0);
    let complement =
        complement_unbounded(a).or_else(|e| if stays { Ok(Layout::identity(1)) } else { Err(e) });
    compose(&complement?, b)
}

/// The modes of the grid, one for each mode of `b`.
fn grid_modes(a: &Layout, b: &Layout) -> Result<Vec<Layout>, LayoutError> {
    let grid = grid(a, b)?;
    Ok(if b.depth() == 0 { vec![grid] } else { grid.modes() })
}

/// The modes of tile and grid side by side; the one of fewer modes gets modes `1:0`, as in CuTe.
fn zip(a: &Layout, b: &Layout) -> Result<Vec<(Layout, Layout)>, LayoutError> {
    let (mut tiles, mut grids) = (a.modes(), grid_modes(a, b)?);
    let rank = tiles.len().max(grids.len());
    tiles.resize(rank, Layout::trivial());
    grids.resize(rank, Layout::trivial());
    Ok(tiles.into_iter().zip(grids).collect())
}
