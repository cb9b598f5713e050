//! The order in which weights of a few bits are stored: what a thread of `wgmma` multiplies lies together, so that it loads what it casts.
//!
//! It is derived by the layout algebra from three rows of tables. The fragment of A says which elements of 64 × 16, or of 64 × 32 of 8 bits, a
//! thread has in its registers. A load by a thread takes up to 16 bytes: as many of these steps along k as that is, which is a *unit* of 64
//! rows. A cast of elements of less than 8 bits to 16 bits makes a register's two elements at once where they lie half a word apart, so that the
//! fragment's innermost mode comes behind as many others as half a word has elements; one to 8 bits takes the elements of a register in their order.

use tilewright_layout::{Layout, LayoutError, inverse};
use tilewright_machine::{DType, WgmmaRow, wgmmas};
use tilewright_tile::dsl::steps;
use tilewright_tile::{Expr, ViewMode};

/// Bytes that a thread loads at once, at most.
const WIDEST: i64 = 16;

/// Elements along a mode of a tensor copy's box, at most: words of elements of less than 8 bits (CUDA driver API, `cuTensorMapEncodeTiled`).
const BOX: i64 = 256;

/// A mode of a unit: so many steps along its rows or its columns, and in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Leaf {
    extent: i64,
    /// The step along the unit's column-major index.
    index: i64,
    /// The step in memory, in elements.
    offset: i64,
}

/// The order of stored weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredWeights {
    dtype: DType,
    /// Columns of an instruction.
    step: i64,
    /// Instructions' columns along k that a thread loads at once.
    steps: i64,
    /// Those of a thread's values first, in the order of memory.
    leaves: Vec<Leaf>,
    /// The number of those that are a thread's values.
    values: usize,
}

impl StoredWeights {
    /// The types of at most 8 bits that weights can have.
    pub const TYPES: [DType; 10] = [
        DType::I4,
        DType::U4,
        DType::E2M1,
        DType::I8,
        DType::U8,
        DType::E4M3,
        DType::I2,
        DType::U2,
        DType::I1,
        DType::U1,
    ];

    /// Rows of a unit.
    pub const ROWS: i64 = WgmmaRow::M;

    /// The order of weights of a type, of which so many neighbours along k have a scale; `None`: all. Activations have 16 bits.
    pub fn new(dtype: DType, group: Option<i64>) -> Self {
        Self::for_activations(dtype, group, DType::F16)
    }

    /// The same for activations of a type: f16, bf16, e4m3 or i8.
    pub fn for_activations(dtype: DType, group: Option<i64>, activations: DType) -> Self {
        let bits = i64::from(dtype.bits());
        let step = Self::step_of(activations);
        // Values of a thread for an instruction.
        let each = Self::ROWS * step / 128;
        let widest = (WIDEST * 8 / bits).max(each);
        let values = group.map_or(widest, |group| widest.min(group / step * each).max(32 / bits).max(each));
        let steps = values / each;
        let [threads, mut fragment] = Self::factor_of(activations);
        fragment.push((steps, Self::ROWS * step));
        if bits < 8 && activations.bits() == 16 {
            fragment = half_a_word_apart(fragment, 32 / bits / 2);
        }
        fragment.retain(|(extent, _)| *extent > 1);
        let (values, mut leaves, mut offset) = (fragment.len(), Vec::new(), 1);
        let mut stored = StoredWeights { dtype, step, steps, leaves: Vec::new(), values };
        let piece = stored.piece();
        for (extent, index) in fragment.into_iter().chain(threads) {
            // A mode that goes beyond a piece is cut there.
            let within = if offset < piece { extent.min(piece / offset) } else { extent };
            for (extent, index) in [(within, index), (extent / within, index * within)] {
                if extent > 1 {
                    leaves.push(Leaf { extent, index, offset });
                    offset *= extent;
                }
            }
        }
        stored.leaves = leaves;
        stored
    }

    /// The modes of an instruction's left factor of a type, of 64 rows: extents and steps of threads, and of a thread's values.
    fn factor_of(dtype: DType) -> [Vec<(i64, i64)>; 2] {
        let sums = if dtype.is_float() { DType::F32 } else { DType::I32 };
        let factor = wgmmas(dtype, dtype, sums, false).next().map(|row| &row.a_tv);
        let modes = factor.map_or_else(Vec::new, |factor| factor.modes());
        [0, 1].map(|mode| modes.get(mode).map_or_else(Vec::new, Layout::leaves))
    }

    /// The type of the weights.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Columns of an instruction that multiplies activations of a type: 32 bytes of them.
    pub fn step_of(activations: DType) -> i64 {
        32 * 8 / i64::from(activations.bits())
    }

    /// Columns of a unit: those of the weights that a thread loads at once.
    pub fn columns(&self) -> i64 {
        self.step * self.steps
    }

    /// Elements of a piece of a unit, of which a tensor copy takes whole ones: a unit, or as many as a mode of a box has.
    pub fn piece(&self) -> i64 {
        let bits = i64::from(self.dtype.bits());
        (Self::ROWS * self.columns()).min(BOX * if bits < 8 { 32 / bits } else { 1 })
    }

    /// Pieces of a unit.
    pub fn pieces(&self) -> i64 {
        Self::ROWS * self.columns() / self.piece()
    }

    /// The shape in memory of `n` rows of `k` weights: rows of units, the pieces of the units of each, and the elements of a piece. What
    /// lies behind the last row or column is stored too.
    pub fn shape(&self, n: &Expr, k: &Expr) -> [Expr; 3] {
        [n.ceil_div(Self::ROWS), k.ceil_div(self.columns()) * self.pieces(), self.piece().into()]
    }

    /// The number of stored elements of `n` rows of `k` weights.
    pub fn count(&self, [n, k]: [usize; 2]) -> usize {
        let (rows, columns) = (Self::ROWS as usize, self.columns() as usize);
        n.div_ceil(rows) * rows * k.div_ceil(columns) * columns
    }

    /// The place in memory of each element of a unit, whose index is column-major.
    ///
    /// # Errors
    ///
    /// The modes are no bijection.
    pub fn layout(&self) -> Result<Layout, LayoutError> {
        let leaves: Vec<(i64, i64)> = self.leaves.iter().map(|leaf| (leaf.extent, leaf.index)).collect();
        inverse(&Layout::from_leaves(&leaves)?)
    }

    /// Weights in the order of memory, of `n` rows of `k` in row-major order; `none` is stored behind the last row and column.
    pub fn pack<T: Copy>(&self, weights: &[T], [n, k]: [usize; 2], none: T) -> Vec<T> {
        let mut stored = vec![none; self.count([n, k])];
        for (row, weights) in weights.chunks(k.max(1)).take(n).enumerate() {
            for (column, weight) in weights.iter().enumerate() {
                stored[self.place([row, column], k)] = *weight;
            }
        }
        stored
    }

    /// The opposite of [`pack`](Self::pack).
    pub fn unpack<T: Copy>(&self, stored: &[T], [n, k]: [usize; 2]) -> Vec<T> {
        let places = (0..n).flat_map(|row| (0..k).map(move |column| [row, column]));
        places.map(|at| stored[self.place(at, k)]).collect()
    }

    /// The place of a weight among stored ones, with so many columns.
    fn place(&self, [row, column]: [usize; 2], k: usize) -> usize {
        let (rows, columns) = (Self::ROWS as usize, self.columns() as usize);
        let unit = row / rows * k.div_ceil(columns) + column / columns;
        let index = (row % rows + rows * (column % columns)) as i64;
        let within: i64 = self.leaves.iter().map(|l| index / l.index % l.extent * l.offset).sum();
        unit * rows * columns + within as usize
    }

    /// The modes along a side of a unit, with their steps along it, those with short steps first.
    fn side(&self, columns: bool) -> Vec<Leaf> {
        let on_side = |leaf: &&Leaf| (leaf.index >= Self::ROWS) == columns;
        let mut side: Vec<Leaf> = self.leaves.iter().filter(on_side).copied().collect();
        side.sort_by_key(|leaf| leaf.index);
        side
    }

    /// The modes of a view of the buffer along a unit's rows, or its columns. The buffer's modes stand behind so many others.
    pub(crate) fn view(&self, columns: bool, behind: u32) -> Vec<ViewMode> {
        let piece = self.piece();
        let mode = |leaf: Leaf| match leaf.offset < piece {
            true => steps(2 + behind, leaf.extent, leaf.offset),
            false => steps(1 + behind, leaf.extent, leaf.offset / piece),
        };
        self.side(columns).into_iter().map(mode).collect()
    }

    /// The layout of a stage in shared memory, in the order of the buffer: rows, columns of a part, and parts.
    pub(super) fn shared(&self, [rows, part, parts]: [i64; 3]) -> Layout {
        let (unit, units) = (Self::ROWS * self.columns(), part / self.columns());
        let of = |columns: bool, more: (i64, i64)| {
            let side = self.side(columns).into_iter().map(|leaf| (leaf.extent, leaf.offset));
            side.chain([more]).collect::<Vec<_>>()
        };
        let rows = of(false, (rows / Self::ROWS, unit * units * parts));
        modes([rows, of(true, (units, unit)), vec![(parts, unit * units)]])
    }

    /// The fragment of a part of so many rows and columns: a thread's values in the order of memory.
    pub(crate) fn fragment(&self, shape: [i64; 2], takers: Takers) -> Layout {
        let (values, threads) = self.leaves.split_at(self.values);
        let [threads, values] = [threads, values]
            .map(|leaves| leaves.iter().map(|leaf| (leaf.extent, leaf.index)).collect::<Vec<_>>());
        takers.share_out(shape, self.columns(), [threads, values])
    }

    /// The same of what the weights are cast to, the type of the activations: a thread's values in the order of the instruction's.
    pub(super) fn factor(dtype: DType, shape: [i64; 2], takers: Takers) -> Layout {
        takers.share_out(shape, Self::step_of(dtype), Self::factor_of(dtype))
    }
}

/// Those who share a tile, and have neighbouring rows each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Takers {
    /// So many warpgroups.
    Warpgroups(i64),
    /// So many warps.
    Warps(i64),
    /// So many warpgroups that have the same rows and neighbouring columns each. Of the 128 rows each warp has those of the lanes of tensor memory that it reaches.
    Lanes(i64),
}

impl Takers {
    /// The layout of a part of so many rows and columns, which consists of units of 64 rows and so many columns: of threads and values of a unit.
    fn share_out(
        self,
        [rows, part]: [i64; 2],
        columns: i64,
        [threads, values]: [Vec<(i64, i64)>; 2],
    ) -> Layout {
        let (count, own, groups) = match self {
            Takers::Warpgroups(count) => (count, StoredWeights::ROWS, 1),
            Takers::Warps(count) => (count, StoredWeights::ROWS / 4, 1),
            Takers::Lanes(groups) => (4, StoredWeights::ROWS / 4, groups),
        };
        let in_tile = |(extent, index): (i64, i64)| match index < StoredWeights::ROWS {
            true => (extent, index),
            false => (extent, index / StoredWeights::ROWS * rows),
        };
        // Rows of a unit that other warps have.
        let theirs = |(_, index): &(i64, i64)| (own..StoredWeights::ROWS).contains(index);
        let threads = threads.into_iter().filter(|leaf| !theirs(leaf)).map(in_tile);
        let values = values.into_iter().map(in_tile);
        let more = [(part / groups / columns, columns * rows), (rows / (own * count), own)];
        let groups = (groups > 1).then_some((groups, part / groups * rows));
        let threads = threads.chain([(count, rows / count)]).chain(groups);
        modes([threads.collect(), values.chain(more).collect()])
    }
}

/// A layout of modes, each of leaves: extents and steps.
pub(super) fn modes<const N: usize>(modes: [Vec<(i64, i64)>; N]) -> Layout {
    let modes = modes.map(|leaves| Layout::from_leaves(&leaves));
    modes
        .into_iter()
        .collect::<Result<Vec<Layout>, LayoutError>>()
        .and_then(|modes| Layout::concat(&modes))
        .expect("extents of a tile are positive, and its elements are few")
}

/// The modes of a fragment with the innermost one behind others of so many elements.
fn half_a_word_apart(fragment: Vec<(i64, i64)>, half: i64) -> Vec<(i64, i64)> {
    let (mut before, mut behind, mut room) = (Vec::new(), Vec::new(), half);
    for (extent, index) in fragment.iter().skip(1).copied() {
        let fits = extent.min(room);
        before.push((fits, index));
        behind.push((extent / fits, index * fits));
        room /= fits;
    }
    let all = before.into_iter().chain(fragment.first().copied()).chain(behind);
    all.filter(|(extent, _)| *extent > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_stored_without_gaps_and_each_element_once() {
        for dtype in StoredWeights::TYPES {
            let groups = [None, Some(16), Some(32), Some(64), Some(128)];
            for (group, a) in groups.into_iter().flat_map(|g| [DType::F16, DType::E4M3].map(|a| (g, a))) {
                let stored = StoredWeights::for_activations(dtype, group, a);
                let layout = stored.layout().unwrap();
                let elements = 64 * stored.columns();
                assert!(layout.is_bijective_onto(elements), "{dtype} {group:?} {a}: {layout}");
                assert_eq!(elements, stored.pieces() * stored.piece());
            }
        }
    }

    #[test]
    fn sixteen_bytes_of_a_thread_follow_those_of_the_one_ahead() {
        let stored = StoredWeights::new(DType::I4, Some(128));
        assert_eq!((stored.columns(), stored.piece(), stored.pieces()), (64, 2048, 2));
        // Bit 3 of the rows, then bit 3 and bit 0 of the columns, in a word: pairs of columns lie half a word apart.
        let shared = stored.shared([128, 64, 2]);
        assert_eq!(
            shared.to_string(),
            "((8,2,2,2,2),(2,4,2,4,1),2):((128,1,1024,2048,8192),(4,32,2,8,4096),4096)"
        );
        let groups_of_32 = StoredWeights::new(DType::I4, Some(32));
        assert_eq!((groups_of_32.columns(), groups_of_32.piece(), groups_of_32.pieces()), (32, 2048, 1));
        let bytes = StoredWeights::new(DType::E4M3, None);
        assert_eq!((bytes.columns(), bytes.piece(), bytes.pieces()), (32, 256, 8));
        assert_eq!(StoredWeights::new(DType::E2M1, Some(16)).columns(), 16);
    }

    #[test]
    fn packing_and_unpacking_are_opposites_and_fill_up_units() {
        for (dtype, group) in
            StoredWeights::TYPES.into_iter().zip([None, Some(32), Some(16)].into_iter().cycle())
        {
            let stored = StoredWeights::new(dtype, group);
            for [n, k] in [[1, 1], [64, 64], [65, 129], [130, 40]] {
                let weights: Vec<usize> = (1..=n * k).collect();
                let packed = stored.pack(&weights, [n, k], 0);
                assert_eq!(packed.len(), stored.count([n, k]));
                assert_eq!(packed.iter().filter(|x| **x > 0).count(), n * k);
                assert_eq!(stored.unpack(&packed, [n, k]), weights);
            }
        }
    }
}
