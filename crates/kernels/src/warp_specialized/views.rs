//! Views of matrices and vectors in tiles.

use tilewright_tile::dsl::{Buffer, BufferAt, KernelBuilder, Reference, Tensor, steps, tile};
use tilewright_tile::{Expr, ViewMode};

use super::nested::NestedView;

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

/// The view of both halves of a buffer of two matrices, or of `several` pairs, in tiles along rows and columns; the half is the last index.
pub(super) fn halves_view(
    t: &mut KernelBuilder,
    name: &str,
    from: &Buffer,
    several: Option<&Expr>,
    rows: &Steps,
    columns: &Steps,
) -> Tensor {
    let half = u32::from(several.is_some());
    let modes = [rows.modes(half + 1), columns.modes(half + 2)].concat();
    let mut modes = with_batch(modes, several);
    modes.push(steps(half, 2, 1));
    t.global_view(name, from, modes)
}

/// The modes, and one for the first mode of a buffer of several matrices or vectors.
pub(super) fn with_batch(mut modes: Vec<ViewMode>, several: Option<&Expr>) -> Vec<ViewMode> {
    modes.extend(several.map(|several| steps(0, several, 1)));
    modes
}

/// `view[:, row, :, column]`, or `view[:, row, :, column, which]`, with as many indices behind.
pub(super) fn at<'a>(
    view: &Tensor,
    row: &Expr,
    column: &Expr,
    which: impl IntoIterator<Item = &'a Expr>,
) -> Reference {
    let mut entries = vec![None, Some(row.clone()), None, Some(column.clone())];
    entries.extend(which.into_iter().map(|which| Some(which.clone())));
    view.index(entries)
}

/// The view of an operand: of a matrix in tiles along two modes, or of a tensor in tiles along groups of modes.
#[derive(Clone)]
pub(crate) enum OperandView {
    Matrix(Tensor),
    Nested(NestedView),
}

impl OperandView {
    /// The tile at a row and column of tiles, of a product, with as many indices behind.
    pub fn at<'a>(&self, row: &Expr, column: &Expr, which: impl IntoIterator<Item = &'a Expr>) -> Reference {
        match self {
            OperandView::Matrix(view) => at(view, row, column, which),
            OperandView::Nested(view) => view.at(row, (column, None), which.into_iter().next()),
        }
    }
}
