//! A program that the verifier has accepted, with constants replaced by their values and shapes worked out. [`unroll`](crate::unroll()) and
//! the [core program](crate::core) are made of it alone: later stages need not check again.

use std::collections::BTreeMap;
use std::sync::Arc;

use tilewright_machine::{DType, Memory};

use crate::diagnostic::Origin;
use crate::expr::Expr;
use crate::program::{
    Form, IndexedMode, ParamId, ParamKind, Program, Stmt, Surface, TensorId, TensorKind, TensorRef, ViewLeaf,
    ViewMode,
};
use crate::statement;

/// Values for tile constants, by name; those not named keep their defaults.
pub type Constants = BTreeMap<String, i64>;

/// A program that holds every invariant listed at [`verify`](crate::verify()).
///
/// In it every expression is folded over the constants: what is left are literals, sizes, loop counters, block
/// indices and elements of tensors. Rearrangements are still statements; see [`crate::core`].
#[derive(Clone, Debug)]
pub struct Verified {
    pub(crate) program: Program,
    /// As written, with names for its constants.
    pub(crate) source: Arc<Program>,
    pub(crate) constants: Constants,
    pub(crate) threads: u32,
    /// Strides of each tensor parameter in elements, empty for scalars.
    pub(crate) strides: Vec<Vec<Expr>>,
    /// Parameters that some copy writes.
    pub(crate) outputs: Vec<ParamId>,
    /// Parameters that some copy reads, or of which an element is an integer of the kernel.
    pub(crate) inputs: Vec<ParamId>,
    /// Parameters of which elements are integers of the kernel.
    pub(crate) elements: Vec<ParamId>,
    /// Parameters that count how far the blocks are.
    pub(crate) counters: Vec<ParamId>,
}

/// A tensor as a statement sees it after indexing and transposition: `shape` and, for a view, how its modes
/// walk the buffer.
#[derive(Clone, PartialEq, Debug)]
pub struct TileRef<F: Form = Surface> {
    /// The tensor.
    pub tensor: TensorId,
    /// Memory.
    pub memory: Memory,
    /// Element type.
    pub dtype: DType,
    /// The tile's shape, in the statement's order of modes.
    pub shape: Vec<i64>,
    /// For a shared tensor: the modes that the reference fixes, and where.
    pub fixed: Vec<(usize, F::Index)>,
    /// The mode that a register tensor indexes, if there is one.
    pub indexed: Option<IndexedTile>,
    /// True if the tensor's modes are in reverse order.
    pub transposed: bool,
    /// For a view of global memory: where the tile lies in the buffer.
    pub global: Option<GlobalTile>,
    /// The place of the reference.
    pub span: Origin,
}

impl<F: Form> TileRef<F> {
    /// The tile of a reference, from the modes that it keeps in the tensor's order.
    pub(crate) fn new(
        reference: &TensorRef<F>,
        (memory, dtype): (Memory, DType),
        (mut shape, mut global): (Vec<i64>, Option<GlobalTile>),
        (fixed, mut indexed): (Vec<(usize, F::Index)>, Option<IndexedTile>),
    ) -> Self {
        if reference.transposed {
            shape.reverse();
            if let Some(indexed) = &mut indexed {
                indexed.at = shape.len() - 1 - indexed.at;
            }
            if let Some(global) = &mut global {
                global.modes.reverse();
            }
        }
        let TensorRef { tensor, transposed, span, .. } = *reference;
        TileRef { tensor, memory, dtype, shape, fixed, indexed, transposed, global, span }
    }
}

/// The mode of a tile that a register tensor indexes.
#[derive(Clone, PartialEq, Debug)]
pub struct IndexedTile {
    /// The mode of the tile.
    pub at: usize,
    /// The mode of the tensor.
    pub mode: usize,
    /// The register tensor.
    pub by: TensorId,
    /// The tensor's extent along the mode: what is not below it is outside.
    pub extent: Expr,
}

impl IndexedTile {
    /// The indexed mode of a reference to a tensor of modes of these extents.
    pub(crate) fn new<F: Form>(reference: &TensorRef<F>, extents: impl Fn(usize) -> Expr) -> Option<Self> {
        let IndexedMode { mode, by } = reference.indexed?;
        let mode = mode as usize;
        let fixed = |i: &usize| matches!(reference.index.get(*i), Some(Some(_)));
        let at = mode - (0..mode).filter(fixed).count();
        Some(IndexedTile { at, mode, by, extent: extents(mode) })
    }
}

/// The extent of a mode of a view.
pub(crate) fn extent_of(mode: &ViewMode) -> Expr {
    mode.leaves.iter().fold(Expr::Int(1), |product, leaf| product * &leaf.extent)
}

/// A mode that folds modes of a buffer, of a tile of a view that has one. It is one more mode of the buffer, behind the others, whose coordinate has a
/// digit for each leaf; each digit leads along a mode of the buffer, from where the other coordinates of the tile are.
#[derive(Clone, PartialEq, Debug)]
pub struct FoldedTile {
    /// The leaves, leftmost fastest: extent, mode of the buffer, length of a step. The last digit is what the others leave.
    pub leaves: Vec<(Expr, u32, i64)>,
    /// The place along each mode of the buffer at which the view begins.
    pub offsets: Vec<Expr>,
    /// The distance from there to which the tile's indices lead, along each mode of the buffer.
    pub taps: Vec<Expr>,
    /// The farthest that indices lead, if that is known when a kernel is compiled.
    pub farthest: Vec<Option<i64>>,
    /// The indices that lie within their modes: all but those along the buffer's contiguous mode and along the folded one. Each with its mode
    /// of the view, and that one's extent.
    pub within: Vec<(usize, Expr, Expr)>,
}

impl FoldedTile {
    /// The number of elements along the folded mode.
    fn extent(&self) -> Expr {
        self.leaves.iter().fold(Expr::Int(1), |product, (extent, ..)| product * extent)
    }

    /// Notes the index of a mode with these leaves.
    fn index(&mut self, (number, mode): (usize, &ViewMode), index: &Expr, strides: &[Expr]) {
        let walks = |leaf: &ViewLeaf| match strides.get(leaf.dim as usize) {
            Some(stride) => *stride != Expr::Int(1),
            None => false,
        };
        if !mode.leaves.iter().any(walks) {
            return;
        }
        self.within.push((number, index.clone(), extent_of(mode)));
        for leaf in mode.leaves.iter().filter(|leaf| walks(leaf)) {
            let farthest = &mut self.farthest[leaf.dim as usize];
            let reach = leaf.extent.as_int().zip(leaf.scale.as_int());
            let reach = reach.and_then(|(extent, scale)| (extent - 1).checked_mul(scale));
            *farthest = farthest.zip(reach).and_then(|(all, one)| all.checked_add(one));
        }
    }
}

/// The place of a tile in a buffer: `coordinate[d] = base[d] + Σ over leaves with dim d of digit · scale`.
#[derive(Clone, PartialEq, Debug)]
pub struct GlobalTile {
    /// The buffer.
    pub param: ParamId,
    /// The buffer's coordinate of the tile's first element; one expression a mode of the buffer, and one for that which folds some.
    pub base: Vec<Expr>,
    /// For each mode of the tile (in the order of [`TileRef::shape`]) its leaves as (extent, buffer mode, scale).
    pub modes: Vec<Vec<(i64, u32, i64)>>,
    /// The buffer's shape, as far as the view reaches, with the extent of the mode that folds some.
    pub shape: Vec<Expr>,
    /// The buffer's strides in elements.
    pub strides: Vec<Expr>,
    /// True for a tile of an array of tensors, each of which is a buffer: `base[0]` says in which it lies.
    pub array: bool,
    /// Of a tile with a mode that a register tensor indexes: the buffer's mode along which it leads, and how far a step of the index. That mode
    /// of the tile has a scale of 0.
    pub indexed: Option<(u32, i64)>,
    /// The mode that folds modes of the buffer.
    pub folded: Option<FoldedTile>,
}

impl GlobalTile {
    /// The tile of a view at an index, and its shape.
    pub(crate) fn new(
        (param, extents, strides, array): (ParamId, &[Expr], &[Expr], bool),
        (offsets, ends): (&[Expr], &[Option<Expr>]),
        (modes, fold): (&[ViewMode], &[ViewLeaf]),
        index: &[Option<&Expr>],
        indexed: Option<(usize, i64)>,
    ) -> (Vec<i64>, GlobalTile) {
        let int = |e: &Expr| e.as_int().unwrap_or(0);
        let rank = offsets.len();
        let mut folded = (!fold.is_empty()).then(|| FoldedTile {
            leaves: fold.iter().map(|leaf| (leaf.extent.clone(), leaf.dim, int(&leaf.scale))).collect(),
            offsets: offsets.to_vec(),
            taps: vec![Expr::Int(0); rank],
            farthest: vec![Some(0); rank],
            within: Vec::new(),
        });
        let mut base = offsets.to_vec();
        base.extend(folded.iter().map(|_| Expr::Int(0)));
        let (mut kept, mut step) = (Vec::new(), None);
        for (i, mode) in modes.iter().enumerate() {
            if let (Some((at, extent)), [leaf]) = (indexed, mode.leaves.as_slice())
                && at == i
            {
                step = Some((leaf.dim, int(&leaf.scale)));
                kept.push(vec![(extent, leaf.dim, 0)]);
                continue;
            }
            let Some(Some(index)) = index.get(i) else {
                kept.push(
                    mode.leaves.iter().map(|l| (int(&l.extent), l.dim, int(&l.scale))).collect::<Vec<_>>(),
                );
                continue;
            };
            if let Some(folded) = &mut folded {
                folded.index((i, mode), index, strides);
            }
            // The digits of the index over the mode's leaves; the last leaf takes what is left.
            let mut rest = (*index).clone();
            for (j, leaf) in mode.leaves.iter().enumerate() {
                let last = j + 1 == mode.leaves.len();
                let digit = if last { rest.clone() } else { rest.clone() % &leaf.extent };
                if !last {
                    rest = rest / &leaf.extent;
                }
                let dim = leaf.dim as usize;
                let distance = digit * &leaf.scale;
                if let Some(tap) = folded.as_mut().and_then(|folded| folded.taps.get_mut(dim)) {
                    *tap = tap.clone() + &distance;
                }
                base[dim] = base[dim].clone() + distance;
            }
        }
        let shape = kept.iter().map(|leaves| leaves.iter().map(|l| l.0).product()).collect();
        let bounded = extents.iter().zip(ends).map(|(extent, end)| match end {
            Some(end) => end.min(extent),
            None => extent.clone(),
        });
        let shape_of_buffer = bounded.chain(folded.as_ref().map(FoldedTile::extent)).collect();
        let (modes, strides) = (kept, strides.to_vec());
        (
            shape,
            GlobalTile { param, base, modes, shape: shape_of_buffer, strides, array, indexed: step, folded },
        )
    }

    /// The modes along which the tile lies in one buffer: all, but for the one that counts the tensors of an array.
    pub fn modes_in_memory(&self) -> std::ops::Range<usize> {
        usize::from(self.array)..self.strides.len()
    }

    /// The index of its tensor, of a tile of an array.
    pub fn tensor_of_array(&self) -> Option<&Expr> {
        self.base.first().filter(|_| self.array)
    }
}

impl Verified {
    /// The program, folded over the constants.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The value of every constant.
    pub fn constants(&self) -> &Constants {
        &self.constants
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.threads
    }

    /// Blocks of a cluster, neighbours along x; 1 where the program says nothing.
    pub fn cluster(&self) -> u32 {
        self.cluster_shape().iter().product()
    }

    /// Blocks of a cluster along each of its modes.
    pub fn cluster_shape(&self) -> Vec<u32> {
        let blocks = |extent: &Expr| extent.as_int().and_then(|blocks| u32::try_from(blocks).ok());
        self.program.cluster.iter().map(|extent| blocks(extent).unwrap_or(1).max(1)).collect()
    }

    /// Strides of a tensor parameter, in elements, over literals and sizes.
    pub fn strides(&self, param: ParamId) -> &[Expr] {
        &self.strides[param.0 as usize]
    }

    /// Extents of a tensor parameter, over literals and sizes; empty for scalars.
    pub fn buffer_shape(&self, param: ParamId) -> &[Expr] {
        match &self.program.param(param).kind {
            ParamKind::Tensor { shape, .. } => shape,
            ParamKind::Scalar { .. } => &[],
        }
    }

    /// Parameters that the kernel writes, in order.
    pub fn outputs(&self) -> &[ParamId] {
        &self.outputs
    }

    /// Parameters that the kernel reads, in order.
    pub fn inputs(&self) -> &[ParamId] {
        &self.inputs
    }

    /// Parameters of which elements are integers of the kernel (`groups[i]`), in order.
    pub fn elements(&self) -> &[ParamId] {
        &self.elements
    }

    /// Parameters that count how far the blocks are (`dynamic = counter`, `syncgrid(counter)`) or are flags (`signal`, `wait`, `ticket`), in
    /// order: 0 when a launch begins, unless the program says otherwise.
    pub fn counters(&self) -> &[ParamId] {
        &self.counters
    }

    /// The shape of a register or shared tensor, or of a view's modes where they are static.
    pub fn shape(&self, tensor: TensorId) -> Vec<i64> {
        self.tile(&TensorRef::whole(tensor)).shape
    }

    /// Resolves a reference of a statement of this program.
    pub fn tile(&self, reference: &TensorRef) -> TileRef {
        let tensor = self.program.tensor(reference.tensor);
        let int = |e: &Expr| e.as_int().unwrap_or(0);
        let indices = reference.indexed.map(|indexed| {
            let shape = self.shape(indexed.by);
            (indexed.mode as usize, shape.first().copied().unwrap_or(1))
        });
        let extent = |i: usize, extent: &Expr| match indices {
            Some((mode, indices)) if mode == i => indices,
            _ => int(extent),
        };
        let (shape, global) = match &tensor.kind {
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape }
            | TensorKind::Part { shape, .. } => {
                let kept = |i: &usize| !matches!(reference.index.get(*i), Some(Some(_)));
                ((0..shape.len()).filter(kept).map(|i| extent(i, &shape[i])).collect::<Vec<_>>(), None)
            }
            TensorKind::View { param, offsets, ends, modes, fold } => {
                let index = reference.index.iter().map(Option::as_ref);
                let array = self.program.param(*param).is_array();
                let buffer = (*param, self.buffer_shape(*param), self.strides(*param), array);
                let (shape, global) = GlobalTile::new(
                    buffer,
                    (offsets, ends),
                    (modes, fold),
                    &index.collect::<Vec<_>>(),
                    indices,
                );
                (shape, Some(global))
            }
        };
        let entries = reference.index.iter().enumerate();
        let fixed = match tensor.memory() {
            Memory::Shared => entries.filter_map(|(i, e)| Some((i, e.clone()?))).collect(),
            Memory::Global | Memory::Register | Memory::Tensor => Vec::new(),
        };
        let indexed = IndexedTile::new(reference, |mode| match &tensor.kind {
            TensorKind::View { modes, .. } => modes.get(mode).map_or(Expr::Int(1), extent_of),
            TensorKind::Register { shape, .. }
            | TensorKind::Shared { shape, .. }
            | TensorKind::Tensor { shape }
            | TensorKind::Part { shape, .. } => shape.get(mode).cloned().unwrap_or(Expr::Int(1)),
        });
        TileRef::new(reference, (tensor.memory(), tensor.dtype), (shape, global), (fixed, indexed))
    }

    /// The statement as it is written, with names for its constants.
    pub(crate) fn as_written<'a>(&'a self, stmt: &'a Stmt) -> &'a Stmt {
        let mut found = None;
        statement::visit(&self.source.body, 0, &mut |other, _| {
            if other.id == stmt.id {
                found = found.or(Some(other));
            }
        });
        found.unwrap_or(stmt)
    }

    /// Calls `visit` for every statement, loops, roles and stages before their bodies, with the number of loops around it.
    pub fn visit<'a>(&'a self, visit: &mut impl FnMut(&'a Stmt, usize)) {
        statement::visit(&self.program.body, 0, visit);
    }
}
