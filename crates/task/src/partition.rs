//! Partitions: how a tensor is cut into pieces. A partition is a layout (colour, point) → coordinate: the colour names a piece, the
//! point an element of it, in a compact system of coordinates that begins at 0.
//!
//! The three operators differ only in the layout that they make. `blocks` scales the colour by the block; `mma` takes the threads
//! of an instruction's accumulator for colours, and the complement of what they hold along each mode for points; `tv` is any
//! thread-value layout.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;
use tilewright_layout::{Coord, HTuple, Layout, LayoutError, Stride, complement, compose};
use tilewright_machine::{Processor, WARP, WARPGROUP, WgmmaRow, mma_rows, wgmma_rows};

use crate::program::MmaOperand;

/// An extent: nothing where it is known at run time only.
pub type Extent = Option<i64>;

/// A mode of colours or of points: its extent, and the layout that takes an index to a coordinate. The last leaf of the layout
/// extends, so that a mode whose extent is not known has one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Mode {
    /// The extent; nothing where it is known at run time only.
    pub extent: Extent,
    /// Index → coordinate.
    pub layout: Layout<Coord>,
}

impl Mode {
    /// A mode with one leaf.
    pub fn leaf(extent: Extent, stride: Coord) -> Mode {
        let layout = Layout::new(HTuple::Leaf(extent.unwrap_or(1).max(1)), HTuple::Leaf(stride));
        let layout = layout.unwrap_or_else(|_| Layout::trivial());
        Mode { extent, layout }
    }

    fn of(layout: Layout<Coord>) -> Mode {
        Mode { extent: Some(layout.size()), layout }
    }

    /// The (extent, stride) pairs of the leaves, fastest first; the extent of a mode that is not known is that of its one leaf.
    pub fn leaves(&self) -> Vec<(Extent, Coord)> {
        let mut leaves: Vec<(Extent, Coord)> =
            self.layout.leaves().into_iter().map(|(extent, stride)| (Some(extent), stride)).collect();
        if self.extent.is_none()
            && let Some(last) = leaves.last_mut()
        {
            last.0 = None;
        }
        leaves
    }
}

/// A way in which `blocks` cuts one mode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cut {
    /// Blocks of this many coordinates; the last may reach beyond the tensor.
    Block(i64),
    /// One block, the whole mode.
    Whole,
    /// Blocks of one coordinate, whose mode the piece does not have.
    Index,
}

/// A matrix instruction as partitions see it: its tile, and which thread holds which element of the accumulator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Instruction {
    m: i64,
    n: i64,
    k: i64,
    /// (thread, value) → `m + M·n`.
    c_tv: Layout,
}

impl Instruction {
    /// The instruction with this name: `wgmma_64x256x16`, `mma_16x8x16`. The extents are those of a row of `machine`; rows that differ
    /// in types alone hold their accumulators alike.
    pub fn named(name: &str) -> Option<Instruction> {
        let (family, extents) = name.split_once('_')?;
        let extents: Vec<i64> = extents.split('x').map(|e| e.parse().ok()).collect::<Option<_>>()?;
        let [m, n, k] = extents[..] else { return None };
        let c_tv = match family {
            "wgmma" => {
                let row = wgmma_rows().iter().find(|r| (WgmmaRow::M, r.n, r.k) == (m, n, k))?;
                row.c_tv.clone()
            }
            "mma" => mma_rows().iter().find(|r| (r.m, r.n, r.k) == (m, n, k))?.c_tv.clone(),
            _ => return None,
        };
        Some(Instruction { m, n, k, c_tv })
    }

    /// The threads that execute it.
    pub fn threads(&self) -> i64 {
        self.c_tv.mode(0).map_or(0, |threads| threads.size())
    }

    /// The leaves of the threads as (extent, coordinate of the accumulator): the lanes of a warp, then the warps.
    fn leaves(&self) -> Result<[Vec<(i64, Coord)>; 2], LayoutError> {
        let names = identity(&[self.m, self.n])?;
        let threads = compose(&names, &self.c_tv.mode(0)?)?;
        let (mut lanes, mut warps, mut below) = (Vec::new(), Vec::new(), 1);
        for (extent, stride) in threads.leaves() {
            if below < i64::from(WARP) { &mut lanes } else { &mut warps }.push((extent, stride));
            below *= extent;
        }
        Ok([lanes, warps])
    }
}

impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.threads() == i64::from(WARPGROUP) { "wgmma" } else { "mma" };
        write!(f, "{family}_{}x{}x{}", self.m, self.n, self.k)
    }
}

/// A partition that cannot be made, or a piece that it does not have.
#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum PartitionError {
    /// As many cuts as modes are needed.
    #[error("{given} extents for a tensor of {rank} modes")]
    Rank {
        /// The modes of the tensor.
        rank: usize,
        /// The extents given.
        given: usize,
    },
    /// A block without coordinates.
    #[error("a block has {extent} coordinates along mode {mode}; it has at least 1")]
    NotPositive {
        /// The mode.
        mode: usize,
        /// Its extent.
        extent: i64,
    },
    /// A piece beyond the last.
    #[error("piece [{}] of a partition into {} pieces", list(colour), counts(extents))]
    Bounds {
        /// The colour asked for.
        colour: Vec<i64>,
        /// The extents of the colours.
        extents: Vec<Extent>,
    },
    /// An extent that an instruction does not cut evenly.
    #[error(
        "mode {mode} has {extent} coordinates, which is not a multiple of {of}, which {instruction} cuts it into"
    )]
    NotMultiple {
        /// The mode.
        mode: usize,
        /// Its extent.
        extent: i64,
        /// The extent of the instruction's tile.
        of: i64,
        /// The instruction.
        instruction: String,
    },
    /// An extent that must be known when the program is compiled.
    #[error("the extent of mode {mode} is known at run time only, and this partition needs it earlier")]
    Unknown {
        /// The mode.
        mode: usize,
    },
    /// Processors that do not share an instruction out.
    #[error(
        "`mma` does not share {instruction} out among processors of the level {processor}: it does among the threads of a warp, and a \
             warpgroup's among its warps"
    )]
    Level {
        /// The instruction.
        instruction: String,
        /// The level.
        processor: Processor,
    },
    /// A thread-value layout of another form.
    #[error("{layout} is not (thread, value) → coordinate: it has {rank} modes")]
    NotThreadValue {
        /// The layout.
        layout: String,
        /// Its modes.
        rank: usize,
    },
    /// A thread-value layout that leads out of the tensor.
    #[error("{layout} leads to element {element} of a tensor of {size}")]
    Outside {
        /// The layout.
        layout: String,
        /// The element furthest out.
        element: i64,
        /// The elements of the tensor.
        size: i64,
    },
    /// A layout that the algebra refuses.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

fn list(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(", ")
}

fn counts(extents: &[Extent]) -> String {
    let text = extents.iter().map(|e| e.map_or("?".to_string(), |e| e.to_string()));
    text.collect::<Vec<_>>().join(" × ")
}

/// The layout of coordinates of these extents: `(E0,E1):(e0,e1)`.
fn identity(extents: &[i64]) -> Result<Layout<Coord>, LayoutError> {
    let modes = extents.iter().enumerate();
    let modes: Vec<Layout<Coord>> = modes
        .map(|(k, extent)| Layout::new(HTuple::Leaf(*extent), HTuple::Leaf(Coord::basis(k))))
        .collect::<Result<_, _>>()?;
    Layout::concat(&modes)
}

/// A partition: (colour, point) → coordinate of the tensor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Partition {
    tensor: Vec<Extent>,
    colours: Vec<Mode>,
    points: Vec<Mode>,
}

impl Partition {
    /// Blocks: mode `d` of the tensor cut by `cuts[d]`. Colour `c` and point `x` are coordinate `B·c + x`, `B` the block. Disjoint and
    /// complete; blocks at the edge have the full shape, and their coordinates beyond the tensor do not exist.
    ///
    /// ```
    /// use tilewright_task::partition::{Cut, Partition};
    /// let p = Partition::blocks(&[Some(4), Some(100), Some(64)], &[Cut::Index, Cut::Block(32), Cut::Whole])?;
    /// assert_eq!((p.colours(), p.shape()), (vec![Some(4), Some(4), Some(1)], vec![Some(32), Some(64)]));
    /// assert_eq!(p.coordinate(&[3, 3, 0], &[4, 5])?, [3, 100, 5]); // beyond the edge
    /// assert!(p.is_disjoint() && p.is_complete());
    /// # Ok::<(), tilewright_task::partition::PartitionError>(())
    /// ```
    pub fn blocks(tensor: &[Extent], cuts: &[Cut]) -> Result<Partition, PartitionError> {
        if tensor.len() != cuts.len() {
            return Err(PartitionError::Rank { rank: tensor.len(), given: cuts.len() });
        }
        let (mut colours, mut points) = (Vec::new(), Vec::new());
        for (mode, (extent, cut)) in tensor.iter().zip(cuts).enumerate() {
            let along = Coord::basis(mode);
            match cut {
                Cut::Block(block) if *block < 1 => {
                    return Err(PartitionError::NotPositive { mode, extent: *block });
                }
                Cut::Block(block) => {
                    let count = extent.map(|extent| (extent - 1).div_euclid(*block) + 1);
                    colours.push(Mode::leaf(count, along.scale(*block)));
                    points.push(Mode::leaf(Some(*block), along));
                }
                Cut::Whole => {
                    colours.push(Mode::leaf(Some(1), Coord::zero()));
                    points.push(Mode::leaf(*extent, along));
                }
                Cut::Index => colours.push(Mode::leaf(*extent, along)),
            }
        }
        Ok(Partition { tensor: tensor.to_vec(), colours, points })
    }

    /// Shares of a matrix instruction's operand among the warps of a warpgroup or the threads of a warp. Along each mode a colour has what
    /// its accumulator elements need: rows for A, columns for B, both for C, as `c_tv` of the instruction's row says; its points are
    /// the complement of the colours there, so that larger tensors repeat the instruction's tile. C is cut disjointly and
    /// completely; A and B are complete and overlap where several colours need the same.
    ///
    /// ```
    /// use tilewright_machine::Processor;
    /// use tilewright_task::{partition::{Instruction, Partition}, program::MmaOperand};
    /// let wgmma = Instruction::named("wgmma_64x256x16").ok_or("no such row")?;
    /// let c = Partition::mma(&[Some(16), Some(256)], &wgmma, Processor::Thread, MmaOperand::C)?;
    /// assert_eq!((c.colours(), c.shape()), (vec![Some(32)], vec![Some(2), Some(64)]));
    /// assert_eq!(c.coordinate(&[5], &[1, 3])?, [9, 11]); // thread 5: rows 1 and 9, columns 2, 3, 10, 11, …
    /// let b = Partition::mma(&[Some(256), Some(64)], &wgmma, Processor::Thread, MmaOperand::B)?;
    /// assert_eq!(b.shape(), vec![Some(64), Some(64)]);
    /// assert!(c.is_disjoint() && c.is_complete() && b.is_complete() && !b.is_disjoint());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn mma(
        tensor: &[Extent],
        instruction: &Instruction,
        processor: Processor,
        operand: MmaOperand,
    ) -> Result<Partition, PartitionError> {
        if tensor.len() != 2 {
            return Err(PartitionError::Rank { rank: tensor.len(), given: 2 });
        }
        let [lanes, warps] = instruction.leaves()?;
        // A warp's part of the rows and columns: what the warps' own leaves do not count.
        let within = |mode: usize, extent: i64| {
            let cut = warps.iter().filter(|(_, stride)| stride.component(mode) != 0);
            if processor == Processor::Warp { extent } else { cut.fold(extent, |rest, (n, _)| rest / n) }
        };
        let (m, n) = (within(0, instruction.m), within(1, instruction.n));
        let leaves = match processor {
            Processor::Warp if !warps.is_empty() => warps,
            Processor::Thread => lanes,
            _ => return Err(PartitionError::Level { instruction: instruction.to_string(), processor }),
        };
        // The mode of the accumulator whose coordinates each mode of the operand shares, and the extent of the tile there.
        let modes = match operand {
            MmaOperand::A => [(Some(0), m), (None, instruction.k)],
            MmaOperand::B => [(Some(1), n), (None, instruction.k)],
            MmaOperand::C => [(Some(0), m), (Some(1), n)],
        };
        let mut points = Vec::with_capacity(2);
        let mut strides = vec![Coord::zero(); leaves.len()];
        for (mode, ((along, tile), extent)) in modes.into_iter().zip(tensor).enumerate() {
            let extent = extent.ok_or(PartitionError::Unknown { mode })?;
            if extent < 1 || extent % tile != 0 {
                let instruction = instruction.to_string();
                return Err(PartitionError::NotMultiple { mode, extent, of: tile, instruction });
            }
            let held: Vec<(i64, i64)> = leaves
                .iter()
                .map(|(n, stride)| (*n, along.map_or(0, |along| stride.component(along))))
                .collect();
            for (stride, (_, factor)) in strides.iter_mut().zip(&held) {
                *stride = stride.add(&Coord::basis(mode).scale(*factor));
            }
            let rest = complement(&Layout::from_leaves(&held)?, extent)?;
            let layout =
                Layout::new(rest.shape().clone(), rest.stride().map(|d| Coord::basis(mode).scale(*d)))?;
            points.push(Mode::of(layout));
        }
        let colours: Vec<(i64, Coord)> = leaves.iter().map(|(n, _)| *n).zip(strides).collect();
        let colours = vec![Mode::of(Layout::from_leaves(&colours)?)];
        Ok(Partition { tensor: tensor.to_vec(), colours, points })
    }

    /// The pieces of a thread-value layout: (thread, value) → the element's place when coordinates count leftmost fastest. A piece has as
    /// many modes as the values; where an instruction's row or CuTe has such a layout, it can be written as it is.
    ///
    /// ```
    /// use tilewright_task::partition::Partition;
    /// let rows = Partition::tv(&[Some(8), Some(4)], &"(4,(2,4)):(2,(1,8))".parse()?)?;
    /// assert_eq!((rows.colours(), rows.shape()), (vec![Some(4)], vec![Some(2), Some(4)]));
    /// assert_eq!(rows.coordinate(&[3], &[1, 2])?, [7, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn tv(tensor: &[Extent], layout: &Layout) -> Result<Partition, PartitionError> {
        if layout.rank() != 2 || layout.depth() == 0 {
            return Err(PartitionError::NotThreadValue { layout: layout.to_string(), rank: layout.rank() });
        }
        let mut extents = Vec::with_capacity(tensor.len());
        for (mode, extent) in tensor.iter().enumerate() {
            extents.push(extent.ok_or(PartitionError::Unknown { mode })?);
        }
        let names = identity(&extents)?;
        let leaves = layout.leaves();
        let reach = |sign: i64| leaves.iter().map(|(n, d)| (n - 1) * d).filter(|x| x * sign > 0).sum::<i64>();
        let (least, most, size) = (reach(-1), reach(1), names.size());
        if least < 0 || most >= size {
            let element = if least < 0 { least } else { most };
            return Err(PartitionError::Outside { layout: layout.to_string(), element, size });
        }
        let placed = compose(&names, layout)?;
        let values = placed.mode(1)?;
        // A mode that the tensor's extents refine is still one mode of values.
        let points = if layout.mode(1)?.depth() == 0 { vec![values] } else { values.modes() };
        let points = points.into_iter().map(Mode::of).collect();
        Ok(Partition { tensor: tensor.to_vec(), colours: vec![Mode::of(placed.mode(0)?)], points })
    }

    /// The extents of what is cut.
    pub fn tensor(&self) -> &[Extent] {
        &self.tensor
    }

    /// The modes of colours.
    pub fn colour_modes(&self) -> &[Mode] {
        &self.colours
    }

    /// The modes of points.
    pub fn point_modes(&self) -> &[Mode] {
        &self.points
    }

    /// The extents of the colours: how many pieces there are along each of their modes.
    pub fn colours(&self) -> Vec<Extent> {
        self.colours.iter().map(|mode| mode.extent).collect()
    }

    /// The shape of every piece.
    pub fn shape(&self) -> Vec<Extent> {
        self.points.iter().map(|mode| mode.extent).collect()
    }

    /// The coordinate in the tensor of a point of a piece. It may lie beyond an edge: see [`contains`](Self::contains). An error where
    /// there is no such piece; points are taken as they are.
    pub fn coordinate(&self, colour: &[i64], point: &[i64]) -> Result<Vec<i64>, PartitionError> {
        let inside = |(mode, at): (&Mode, &i64)| *at >= 0 && mode.extent.is_none_or(|extent| *at < extent);
        if colour.len() != self.colours.len() || !self.colours.iter().zip(colour).all(inside) {
            return Err(PartitionError::Bounds { colour: colour.to_vec(), extents: self.colours() });
        }
        if point.len() != self.points.len() {
            return Err(PartitionError::Rank { rank: self.points.len(), given: point.len() });
        }
        let modes = self.colours.iter().zip(colour).chain(self.points.iter().zip(point));
        let sum = modes.fold(Coord::zero(), |sum, (mode, at)| sum.add(&mode.layout.eval(*at)));
        Ok((0..self.tensor.len()).map(|d| sum.component(d)).collect())
    }

    /// True if the tensor has this coordinate.
    pub fn contains(&self, coordinate: &[i64]) -> bool {
        let inside = |(at, extent): (&i64, &Extent)| *at >= 0 && extent.is_none_or(|extent| *at < extent);
        coordinate.len() == self.tensor.len() && coordinate.iter().zip(&self.tensor).all(inside)
    }

    /// True if no piece has points beyond the tensor.
    pub fn stays_inside(&self) -> bool {
        let leaves = self.leaves();
        (0..self.tensor.len()).all(|d| {
            let moving = leaves.iter().map(|(extent, stride)| (*extent, stride.component(d)));
            let moving: Vec<(Extent, i64)> = moving.filter(|(_, stride)| *stride != 0).collect();
            match self.tensor[d] {
                // One leaf that has the whole mode, or none at all.
                None => matches!(moving[..], [] | [(None, 1)]),
                Some(extent) => {
                    let end = moving.iter().try_fold(0i64, |end, (n, stride)| {
                        end.checked_add(((*n)? - 1).checked_mul(*stride)?)
                    });
                    end.is_some_and(|end| end < extent)
                }
            }
        })
    }

    fn leaves(&self) -> Vec<(Extent, Coord)> {
        self.colours.iter().chain(&self.points).flat_map(Mode::leaves).collect()
    }

    /// True if no element has two places: the layout is injective. Then pieces of different colours have no element in common.
    pub fn is_disjoint(&self) -> bool {
        // Coordinates become numbers, mode by mode, in a box that holds them all. Two places of one element differ in an index of unknown
        // extent by no more than the other leaves make up for.
        let leaves = self.leaves();
        let mut place = 1i64;
        let mut numbers = vec![0i64; leaves.len()];
        let mut extents: Vec<i64> = leaves.iter().map(|(extent, _)| extent.unwrap_or(1)).collect();
        for mode in 0..self.tensor.len() {
            let along = |(_, stride): &(Extent, Coord)| stride.component(mode);
            let span: i64 = leaves.iter().zip(&extents).fold(0, |span, (leaf, n)| {
                span.saturating_add((n - 1).saturating_mul(along(leaf).saturating_abs()))
            });
            for (leaf, extent) in leaves.iter().zip(&mut extents) {
                if leaf.0.is_none() && along(leaf) != 0 {
                    *extent = span / along(leaf).abs() + 2;
                }
            }
            let span: i64 = leaves.iter().zip(&extents).fold(0, |span, (leaf, n)| {
                span.saturating_add((n - 1).saturating_mul(along(leaf).saturating_abs()))
            });
            for (number, leaf) in numbers.iter_mut().zip(&leaves) {
                *number = number.saturating_add(place.saturating_mul(along(leaf)));
            }
            place = place.saturating_mul(span.saturating_mul(2).saturating_add(1));
        }
        let leaves: Vec<(i64, i64)> = extents.into_iter().zip(numbers).collect();
        Layout::from_leaves(&leaves).is_ok_and(|layout| layout.is_injective())
    }

    /// True if every element of the tensor is in a piece: the layout is onto.
    pub fn is_complete(&self) -> bool {
        let leaves = self.leaves();
        match by_mode(&leaves, self.tensor.len()) {
            Some(modes) => modes.iter().zip(&self.tensor).all(|(leaves, extent)| {
                let reach = contiguous(leaves);
                reach.is_none_or(|reach| extent.is_some_and(|extent| reach >= extent))
            }),
            // Leaves that move along two modes at once: only thread-value layouts have them, and their tensors are small.
            None => {
                let layouts: Vec<Layout<Coord>> =
                    self.colours.iter().chain(&self.points).map(|mode| mode.layout.clone()).collect();
                let Ok(layout) = Layout::concat(&layouts) else { return false };
                let image: std::collections::BTreeSet<Vec<i64>> = layout
                    .image()
                    .iter()
                    .map(|c| (0..self.tensor.len()).map(|d| c.component(d)).collect())
                    .collect();
                let size = self.tensor.iter().try_fold(1i64, |size, extent| Some(size * (*extent)?));
                let inside = image.iter().filter(|c| self.contains(c)).count() as i64;
                size == Some(inside)
            }
        }
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |modes: &[Mode]| {
            let text = modes.iter().map(|mode| match mode.extent {
                Some(_) => mode.layout.to_string(),
                None => format!("?:{}", mode.layout.stride()),
            });
            text.collect::<Vec<_>>().join(", ")
        };
        write!(f, "[{}] × [{}] -> [{}]", side(&self.colours), side(&self.points), counts(&self.tensor))
    }
}

/// The leaves that move along each mode; nothing where one moves along several. Leaves that stay where they are belong to none.
pub(crate) fn by_mode(leaves: &[(Extent, Coord)], rank: usize) -> Option<Vec<Vec<(Extent, i64)>>> {
    let mut modes = vec![Vec::new(); rank];
    for (extent, stride) in leaves.iter().filter(|(extent, _)| *extent != Some(1)) {
        let moved: BTreeMap<usize, i64> =
            (0..rank).map(|d| (d, stride.component(d))).filter(|(_, factor)| *factor != 0).collect();
        if moved.len() > 1 {
            return None;
        }
        for (mode, factor) in moved {
            modes[mode].push((*extent, factor));
        }
    }
    Some(modes)
}

/// The number of consecutive integers from 0 that sums of these leaves take; nothing where there is no end. Exact: in ascending order a
/// leaf whose stride is beyond what the others reach leaves a hole that no later one fills.
pub(crate) fn contiguous(leaves: &[(Extent, i64)]) -> Option<i64> {
    let mut sorted: Vec<(i64, Extent)> = leaves.iter().map(|(extent, stride)| (*stride, *extent)).collect();
    sorted.sort_unstable();
    let mut reach = 1i64;
    for (stride, extent) in sorted.into_iter().filter(|(stride, _)| *stride > 0) {
        if stride > reach {
            break;
        }
        reach = reach.saturating_add(stride.saturating_mul(extent? - 1));
    }
    Some(reach)
}
