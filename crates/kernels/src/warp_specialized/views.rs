//! Views of matrices and vectors in tiles, and of tensors whose tiles are boxes of several modes.

use tilewright_tile::dsl::{Buffer, BufferAt, KernelBuilder, Reference, Tensor, nested, steps, tile};
use tilewright_tile::{Expr, ViewMode};

use super::nested::NestedView;

/// The walk of a view along a mode of a buffer: `count` tiles of `size`, each a step behind the one before.
#[derive(Clone)]
pub(crate) struct Steps {
    pub size: Expr,
    pub count: Expr,
    pub step: Expr,
    /// The modes of a tensor that the walk is over, where it is not along one mode of a matrix.
    pub boxes: Option<Boxes>,
}

/// A walk over several modes of a tensor: tiles are boxes, whose elements are counted along its sides, and which are counted along the walks.
#[derive(Clone)]
pub(crate) struct Boxes {
    /// Sides of a box, fastest first.
    pub sides: Vec<Along>,
    /// Ways from box to box, fastest first.
    pub walks: Vec<Along>,
}

/// Steps along a mode of a tensor.
#[derive(Clone)]
pub(crate) struct Along {
    pub mode: u32,
    pub count: Expr,
    pub step: Expr,
}

impl Along {
    pub fn new(mode: u32, count: impl Into<Expr>, step: impl Into<Expr>) -> Self {
        Along { mode, count: count.into(), step: step.into() }
    }

    fn view(&self, behind: u32) -> ViewMode {
        steps(self.mode + behind, &self.count, &self.step)
    }
}

impl Boxes {
    /// All boxes.
    pub fn count(&self) -> Expr {
        self.walks.iter().fold(1.into(), |all: Expr, walk| all * &walk.count)
    }

    /// The box as one mode of a view of a tensor whose modes stand behind so many others.
    pub fn tile(&self, behind: u32) -> ViewMode {
        // A side of one element is no mode.
        let long = |side: &&Along| side.count.as_int() != Some(1);
        let sides: Vec<_> = self.sides.iter().filter(long).map(|side| side.view(behind)).collect();
        match &sides[..] {
            [] => nested(self.sides.first().map(|side| side.view(behind))),
            _ => nested(sides),
        }
    }

    /// The ways from box to box.
    pub fn ways(&self, behind: u32) -> Vec<ViewMode> {
        self.walks.iter().map(|walk| walk.view(behind)).collect()
    }

    /// The indices of a box along its walks, given its number. Behind the last box the last index is outside.
    pub fn indices(&self, number: &Expr) -> Vec<Expr> {
        let last = self.walks.len().saturating_sub(1);
        let mut rest = number.clone();
        let mut indices = Vec::new();
        for (i, walk) in self.walks.iter().enumerate() {
            if i == last {
                indices.push(rest.clone());
            } else {
                indices.push(&rest % &walk.count);
                rest = &rest / &walk.count;
            }
        }
        indices
    }
}

impl Steps {
    /// Tiles side by side.
    pub fn tiled(size: &Expr, count: impl Into<Expr>) -> Self {
        Steps { size: size.clone(), count: count.into(), step: size.clone(), boxes: None }
    }

    /// Tiles that may begin at any of `count` places.
    pub fn anywhere(size: &Expr, count: &Expr) -> Self {
        Steps { size: size.clone(), count: count.clone(), step: 1.into(), boxes: None }
    }

    /// Those over the modes of a tensor.
    pub fn over(size: &Expr, boxes: Boxes) -> Self {
        Steps { size: size.clone(), count: boxes.count(), step: size.clone(), boxes: Some(boxes) }
    }

    pub fn modes(&self, mode: u32) -> Vec<ViewMode> {
        vec![tile(mode, &self.size), steps(mode, &self.count, &self.step)]
    }

    /// The modes of a matrix's view, or of a tensor's whose modes stand behind so many others.
    pub fn tensor_modes(&self, mode: u32, behind: u32) -> Vec<ViewMode> {
        match &self.boxes {
            None => self.modes(mode + behind),
            Some(boxes) => [vec![boxes.tile(behind)], boxes.ways(behind)].concat(),
        }
    }

    /// The entries of an index for these modes.
    pub fn entries(&self, number: &Expr) -> Vec<Option<Expr>> {
        match &self.boxes {
            None => vec![None, Some(number.clone())],
            Some(boxes) => [None].into_iter().chain(boxes.indices(number).into_iter().map(Some)).collect(),
        }
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

/// The view of a buffer of several parts of a matrix, or of those of `several` matrices, in tiles along rows and columns; the part is the last index.
pub(super) fn parts_view(
    t: &mut KernelBuilder,
    name: &str,
    from: &Buffer,
    (several, parts): (Option<&Expr>, i64),
    rows: &Steps,
    columns: &Steps,
) -> Tensor {
    let part = u32::from(several.is_some());
    let modes = [rows.modes(part + 1), columns.modes(part + 2)].concat();
    let mut modes = with_batch(modes, several);
    modes.push(steps(part, parts, 1));
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
    indexed(view, [vec![None, Some(row.clone())], vec![None, Some(column.clone())]], which)
}

/// The same with the entries of rows and columns.
pub(super) fn indexed<'a>(
    view: &Tensor,
    of: [Vec<Option<Expr>>; 2],
    which: impl IntoIterator<Item = &'a Expr>,
) -> Reference {
    let mut entries = of.concat();
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

/// The digits of a number in a mixed base, the last fastest.
pub(crate) fn digits(number: &Expr, counts: &[Expr]) -> Vec<Expr> {
    let mut rest = number.clone();
    let mut found = Vec::new();
    for (i, count) in counts.iter().enumerate().rev() {
        if i == 0 {
            found.push(rest.clone());
        } else {
            found.push(&rest % count);
            rest = &rest / count;
        }
    }
    found.reverse();
    found
}
