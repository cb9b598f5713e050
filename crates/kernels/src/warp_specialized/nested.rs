//! Products whose m, n and k are groups of modes: a tile is a box of several dimensions, the tiles along a group are counted as one
//! number, and an edge is that of each mode.

use tilewright_machine::DType;
use tilewright_tile::dsl::{Buffer, KernelBuilder, Reference, Tensor, nested, steps, tile};
use tilewright_tile::{Expr, ViewMode};

use super::views::Steps;
use crate::contraction::Group;

/// A mode of a tensor: its group, and its number in the group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Axis {
    pub group: Group,
    pub mode: usize,
}

/// The modes of a contraction and their tiles.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Nesting {
    /// The tile's extent along each mode of m, n and k, fastest first, and 1 for each mode of l. Each of the first three has one at least.
    pub tiles: [Vec<i64>; 4],
    /// Groups of m, n and k that are a mode of extent 1, which stands for none.
    pub units: [bool; 3],
    /// The modes of a, b and c, outermost first.
    pub operands: [Vec<Axis>; 3],
}

/// The sizes of a problem with groups of modes.
pub(crate) struct Nested {
    nesting: Nesting,
    extents: [Vec<Expr>; 4],
}

/// The part of a tile that a view has along a group.
#[derive(Clone, Copy)]
pub(crate) enum Share<'a> {
    /// All of it: the constant.
    Whole(&'a Expr),
    /// A chunk of it that leaves at a time: its elements, the constant for them, and that for the whole.
    Chunk(i64, &'a Expr, &'a Expr),
}

/// The walk of a view along a group.
#[derive(Clone)]
struct Walk {
    /// The walk along each mode, with the mode of the buffer.
    modes: Vec<(u32, Steps)>,
    /// Tiles along each mode.
    counts: Vec<Expr>,
    /// Parts of a tile along each mode.
    parts: Vec<i64>,
}

/// A view of a tensor in tiles along two groups and the batches.
#[derive(Clone)]
pub(crate) struct NestedView {
    tensor: Tensor,
    walks: [Walk; 2],
    batches: Vec<Expr>,
}

/// The digits of a number, of which each but the last is below a count.
fn digits(number: &Expr, counts: &[Expr]) -> Vec<Expr> {
    let last = counts.len().saturating_sub(1);
    let mut rest = number.clone();
    let mut found = Vec::new();
    for (i, count) in counts.iter().enumerate() {
        if i == last {
            found.push(rest.clone());
        } else {
            found.push(&rest % count);
            rest = &rest / count;
        }
    }
    found
}

/// Tiles of a size along a mode.
fn steps_of(extent: &Expr, size: &Expr) -> Expr {
    if extent.as_int() == Some(1) || size.as_int() == Some(1) {
        extent.clone()
    } else {
        extent.ceil_div(size)
    }
}

impl Nesting {
    /// Declares the sizes: of a group with one mode by the group's name, of one with several `m0`, `m1`, …
    pub fn declare(&self, t: &mut KernelBuilder) -> Nested {
        let extents = Group::ALL.map(|group| {
            let (name, count) = (group.name(), self.tiles[group as usize].len());
            let default = match (group, count) {
                (Group::L, 1) => 4,
                (Group::L, _) => 2,
                (_, 1) => 4096,
                _ => 64,
            };
            match count {
                _ if self.units.get(group as usize) == Some(&true) => vec![1.into()],
                1 => vec![t.size(name, default)],
                _ => (0..count).map(|i| t.size(&format!("{name}{i}"), default)).collect(),
            }
        });
        Nested { nesting: self.clone(), extents }
    }
}

impl Nested {
    /// The product of a group's extents.
    pub fn extent(&self, group: Group) -> Expr {
        self.extents[group as usize].iter().cloned().reduce(|a, b| a * b).unwrap_or_else(|| 1.into())
    }

    /// A tile's extents along the modes of a group; that of all of it is the constant.
    fn tiles(&self, group: Group, whole: &Expr) -> Vec<Expr> {
        let tiles = &self.nesting.tiles[group as usize];
        let all: i64 = tiles.iter().product();
        tiles
            .iter()
            .map(|tile| if *tile == all && all > 1 { whole.clone() } else { (*tile).into() })
            .collect()
    }

    /// Tiles along each mode of a group.
    fn counts(&self, group: Group, whole: &Expr) -> Vec<Expr> {
        let counted = |(extent, tile): (&Expr, Expr)| steps_of(extent, &tile);
        self.extents[group as usize].iter().zip(self.tiles(group, whole)).map(counted).collect()
    }

    /// Tiles along a group.
    pub fn count(&self, group: Group, whole: &Expr) -> Expr {
        self.counts(group, whole).into_iter().reduce(|a, b| a * b).unwrap_or_else(|| 1.into())
    }

    /// The parameter of a tensor, row-major.
    pub fn buffer(&self, t: &mut KernelBuilder, operand: usize, name: &str, dtype: DType) -> Buffer {
        let axes = &self.nesting.operands[operand];
        let shape: Vec<Expr> =
            axes.iter().map(|axis| self.extents[axis.group as usize][axis.mode].clone()).collect();
        t.tensor(name, dtype, shape)
    }

    /// The modes of a tensor's buffer that a group has, fastest first.
    fn modes(&self, operand: usize, group: Group) -> Vec<u32> {
        let axes = &self.nesting.operands[operand];
        let place = |mode: usize| axes.iter().position(|axis| *axis == Axis { group, mode });
        let all = (0..self.extents[group as usize].len()).filter_map(place);
        all.map(|place| place as u32).collect()
    }

    fn walk(&self, operand: usize, group: Group, share: Share<'_>) -> Walk {
        let (whole, mut room) = match share {
            Share::Whole(whole) => (whole, None),
            Share::Chunk(chunk, _, whole) => (whole, Some(chunk)),
        };
        let (mut modes, mut parts) = (Vec::new(), Vec::new());
        let extents = &self.extents[group as usize];
        let tiles = self.nesting.tiles[group as usize].iter().zip(self.tiles(group, whole));
        for ((mode, extent), (elements, tile)) in
            self.modes(operand, group).into_iter().zip(extents).zip(tiles)
        {
            let (size, count) = match (&mut room, share) {
                (Some(room), Share::Chunk(chunk, constant, _)) => {
                    let size = (*elements).min(*room);
                    *room /= size;
                    (if size == chunk { constant.clone() } else { size.into() }, elements / size)
                }
                _ => (tile, 1),
            };
            modes.push((mode, Steps::tiled(&size, steps_of(extent, &size))));
            parts.push(count);
        }
        Walk { modes, counts: self.counts(group, whole), parts }
    }

    /// The view of a tensor in tiles along a group of rows and one of columns.
    pub fn view(
        &self,
        t: &mut KernelBuilder,
        name: &str,
        (operand, buffer): (usize, &Buffer),
        rows: (Group, Share<'_>),
        columns: (Group, Share<'_>),
    ) -> NestedView {
        let walks = [rows, columns].map(|(group, share)| self.walk(operand, group, share));
        let batches: Vec<(u32, Expr)> =
            self.modes(operand, Group::L).into_iter().zip(self.extents[Group::L as usize].clone()).collect();
        let along = |walk: &Walk| -> Vec<ViewMode> {
            let boxed = walk.modes.iter().filter(|(_, walk)| walk.size.as_int() != Some(1));
            let mut boxed: Vec<ViewMode> = boxed.map(|(mode, walk)| tile(*mode, &walk.size)).collect();
            if boxed.is_empty() {
                boxed.extend(walk.modes.first().map(|(mode, _)| tile(*mode, 1)));
            }
            let walked = walk.modes.iter().map(|(mode, walk)| steps(*mode, &walk.count, &walk.step));
            std::iter::once(nested(boxed)).chain(walked).collect()
        };
        let mut modes: Vec<ViewMode> = walks.iter().flat_map(along).collect();
        modes.extend(batches.iter().map(|(mode, extent)| tile(*mode, extent)));
        let tensor = t.global_view(name, buffer, modes);
        NestedView { tensor, walks, batches: batches.into_iter().map(|(_, extent)| extent).collect() }
    }
}

impl Walk {
    /// The indices of a tile of a number, of which a chunk has a number of its own.
    fn indices(&self, tile: &Expr, chunk: Option<&Expr>) -> Vec<Expr> {
        let tiles = digits(tile, &self.counts);
        let Some(chunk) = chunk else { return tiles };
        let parts: Vec<Expr> = self.parts.iter().map(|part| (*part).into()).collect();
        // Digits of one part are 0, and the last that has several needs no remainder.
        let several: Vec<usize> = (0..parts.len()).filter(|i| self.parts[*i] > 1).collect();
        let counts: Vec<Expr> = several.iter().map(|i| parts[*i].clone()).collect();
        let mut found = digits(chunk, &counts).into_iter();
        let one = |(i, tile): (usize, Expr)| match several.contains(&i) {
            true => tile * &parts[i] + found.next().unwrap_or_else(|| 0.into()),
            false => tile,
        };
        tiles.into_iter().enumerate().map(one).collect()
    }
}

impl NestedView {
    /// The tile in a row and column of tiles of a product; of a view in chunks, the chunk of that number.
    pub fn at(
        &self,
        row: &Expr,
        (column, chunk): (&Expr, Option<&Expr>),
        product: Option<&Expr>,
    ) -> Reference {
        let mut entries = vec![None];
        entries.extend(self.walks[0].indices(row, None).into_iter().map(Some));
        entries.push(None);
        entries.extend(self.walks[1].indices(column, chunk).into_iter().map(Some));
        let batch = product.map(|product| digits(product, &self.batches)).unwrap_or_default();
        entries.extend(batch.into_iter().map(Some));
        self.tensor.index(entries)
    }
}
