//! Thread-value layouts, and the coordinates that the threads of a block touch.
//!
//! Directions: a register tensor's thread-value layout maps (thread, value) → linear coordinate in the tile (leftmost
//! mode fastest). An [`Access`] names the coordinates at a thread's address, call by call.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap as HashMap;

use tilewright_layout::{HTuple, Layout, LayoutError, coalesce, compose, squeeze, zipped_divide_by_mode};

/// A thread-value layout: rank 2, mode 0 the threads of the block, mode 1 the values of a thread.
///
/// A search hands the same layouts on many times: a clone shares them.
#[derive(Clone, Debug)]
pub struct TvLayout(Arc<Modes>);

#[derive(Debug)]
struct Modes {
    layout: Layout,
    threads: Layout,
    values: Layout,
    /// Both modes as tables, as far as they are short: most questions are asked for every thread or value.
    thread_offsets: Vec<i64>,
    value_offsets: Vec<i64>,
}

/// The most entries of a table of offsets: those of any tile that fits into registers.
const MAX_TABLE: i64 = 4096;

fn table(mode: &Layout) -> Vec<i64> {
    if mode.size() <= MAX_TABLE { mode.table() } else { Vec::new() }
}

impl PartialEq for TvLayout {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.layout == other.0.layout
    }
}

impl Eq for TvLayout {}

impl Hash for TvLayout {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.layout.hash(state);
    }
}

impl TvLayout {
    /// From a thread mode and a value mode.
    pub fn new(threads: Layout, values: Layout) -> Result<Self, LayoutError> {
        let layout = Layout::concat(&[threads.clone(), values.clone()])?;
        Ok(TvLayout(Arc::new(Modes {
            thread_offsets: table(&threads),
            value_offsets: table(&values),
            layout,
            threads,
            values,
        })))
    }

    /// From a layout of rank 2.
    pub fn from_layout(layout: Layout) -> Result<Self, LayoutError> {
        TvLayout::new(layout.mode(0)?, layout.mode(1)?)
    }

    /// The whole layout.
    pub fn layout(&self) -> &Layout {
        &self.0.layout
    }

    /// The thread mode: thread → coordinate of its value 0.
    pub fn threads(&self) -> &Layout {
        &self.0.threads
    }

    /// The value mode: value → coordinate relative to value 0.
    pub fn values(&self) -> &Layout {
        &self.0.values
    }

    /// Values a thread holds.
    pub fn count(&self) -> usize {
        self.values().size() as usize
    }

    /// The coordinate of a value of a thread.
    pub fn at(&self, thread: i64, value: i64) -> i64 {
        self.thread_offset(thread) + self.value_offset(value)
    }

    /// The coordinate of value 0 of a thread.
    pub fn thread_offset(&self, thread: i64) -> i64 {
        let known = usize::try_from(thread).ok().and_then(|thread| self.0.thread_offsets.get(thread));
        known.copied().unwrap_or_else(|| self.threads().eval(thread))
    }

    /// The coordinate of a value relative to value 0.
    pub fn value_offset(&self, value: i64) -> i64 {
        let known = usize::try_from(value).ok().and_then(|value| self.0.value_offsets.get(value));
        known.copied().unwrap_or_else(|| self.values().eval(value))
    }

    /// True if both give every (thread, value) the same coordinate.
    pub fn same_function(&self, other: &TvLayout) -> bool {
        // Coalesced layouts are equal where they are the same function.
        let same = |a: &Layout, b: &Layout| a == b || coalesce(a) == coalesce(b);
        same(self.threads(), other.threads()) && same(self.values(), other.values())
    }
}

/// The layout of a tile's linear coordinate: leftmost mode fastest. `1:0` of a single element without modes.
pub(crate) fn linear_coordinate(shape: Vec<i64>) -> Result<Layout, LayoutError> {
    if shape.is_empty() { Ok(Layout::trivial()) } else { Layout::column_major(HTuple::from_flat(shape)) }
}

/// A tile of an operand divided into the tiles of an instruction, as CuTe's `TiledMMA` partitions (`thrfrg`): a tiler for each mode says
/// which elements an instruction takes together.
pub(crate) struct InstructionTiles {
    /// The instruction's (thread, value) → coordinate relative to the first element of an instruction tile.
    pub atom: Layout,
    /// Instruction tiles along each mode → coordinate of their first element.
    pub repeats: [Layout; 2],
}

impl InstructionTiles {
    /// Divides `tile`, a layout of two modes, by a tiler for each. `tv` is the instruction's (thread, value) → coordinate, the first
    /// mode of its tile fastest.
    pub fn new(tv: &Layout, tile: &Layout, tilers: [&Layout; 2]) -> Result<Self, LayoutError> {
        let divided = zipped_divide_by_mode(tile, &tilers.map(Layout::clone))?;
        let grid = divided.mode(1)?;
        Ok(InstructionTiles {
            atom: compose(&divided.mode(0)?, tv)?,
            repeats: [grid.mode(0)?, grid.mode(1)?],
        })
    }

    /// The layout in which the instruction's threads are repeated over `groups` (group → coordinate) and hold all instruction tiles,
    /// those along the first mode first.
    pub fn tv(&self, groups: &[Layout]) -> Result<TvLayout, LayoutError> {
        let [first, second] = self.repeats.clone();
        let threads = Layout::concat(&[&[self.atom.mode(0)?], groups].concat())?;
        let values = Layout::concat(&[self.atom.mode(1)?, first, second])?;
        TvLayout::new(squeeze(&threads), squeeze(&values))
    }
}

/// The moves (source value, destination value) that turn one distribution into another without any exchange between
/// threads; `None` where some thread lacks what it needs.
pub fn moves(src: &TvLayout, dst: &TvLayout, threads: i64) -> Option<Vec<(u32, u32)>> {
    moves_through(src, dst, threads, &|place| place)
}

/// [`moves`] between tiles of different shapes: the destination's coordinate `c` wants the source's `map(c)`.
pub(crate) fn moves_through(
    src: &TvLayout,
    dst: &TvLayout,
    threads: i64,
    map: &dyn Fn(i64) -> i64,
) -> Option<Vec<(u32, u32)>> {
    let values: HashMap<i64, u32> = (0..src.count()).map(|v| (src.at(0, v as i64), v as u32)).collect();
    let moves: Vec<(u32, u32)> = (0..dst.count())
        .map(|v| values.get(&map(dst.at(0, v as i64))).map(|s| (*s, v as u32)))
        .collect::<Option<_>>()?;
    let everywhere = (0..threads)
        .all(|t| moves.iter().all(|(s, d)| src.at(t, i64::from(*s)) == map(dst.at(t, i64::from(*d)))));
    everywhere.then_some(moves)
}

/// The elements that the threads of a block touch with one statement, instruction call by instruction call.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// Contiguous elements at one address.
    pub vector: u32,
    /// thread → linear coordinate in the statement's tile of the first element at the thread's address.
    pub threads: Layout,
    /// The calls, each an offset added to the thread's coordinate.
    pub calls: Vec<Call>,
    /// True if several threads touch the same elements: only those whose coordinates in broadcast modes are 0 may store.
    pub broadcast: bool,
}

/// One instruction call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// Added to the thread's coordinate.
    pub offset: i64,
    /// Per-thread instructions: the values moved, in the order of rising addresses. Matrix instructions: for each
    /// matrix the first of the two values in its register. Empty where no register tensor takes part.
    pub values: Vec<u32>,
}
