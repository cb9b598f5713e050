//! Views of matrices and vectors in tiles.

use tilewright_tile::dsl::{BufferAt, KernelBuilder, Reference, Tensor, steps, tile};
use tilewright_tile::{Expr, ViewMode};

/// The walk of a view along a mode of a buffer: `count` tiles of `size`, each a step behind the one before.
#[derive(Clone)]
pub(crate) struct Steps {
    pub size: Expr,
    pub count: Expr,
    pub step: Expr,
}

impl Steps {
    /// Tiles side by side.
    pub fn tiled(size: &Expr, count: impl Into<Expr>) -> Self {
        Steps { size: size.clone(), count: count.into(), step: size.clone() }
    }

    /// Tiles that may begin at any of `count` places.
    pub fn anywhere(size: &Expr, count: &Expr) -> Self {
        Steps { size: size.clone(), count: count.clone(), step: 1.into() }
    }

    pub fn modes(&self, mode: u32) -> Vec<ViewMode> {
        vec![tile(mode, &self.size), steps(mode, &self.count, &self.step)]
    }
}

/// The view of a matrix, or of `several`, in tiles along two modes.
pub(super) fn matrix_view(
    t: &mut KernelBuilder,
    name: &str,
    from: &BufferAt,
    several: Option<&Expr>,
    (first, second): (u32, u32),
    rows: &Steps,
    columns: &Steps,
) -> Tensor {
    let outer = u32::from(several.is_some());
    let modes = [rows.modes(first + outer), columns.modes(second + outer)].concat();
    t.global_view(name, from.clone(), with_batch(modes, several))
}

/// The modes, and one for the first mode of a buffer of several matrices or vectors.
pub(super) fn with_batch(mut modes: Vec<ViewMode>, several: Option<&Expr>) -> Vec<ViewMode> {
    modes.extend(several.map(|several| steps(0, several, 1)));
    modes
}

/// `view[:, row, :, column]`, or `view[:, row, :, column, which]`.
pub(super) fn at(view: &Tensor, row: &Expr, column: &Expr, which: Option<&Expr>) -> Reference {
    let mut entries = vec![None, Some(row.clone()), None, Some(column.clone())];
    entries.extend(which.map(|which| Some(which.clone())));
    view.index(entries)
}
