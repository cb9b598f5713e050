//! Pieces as parts of tensors: of a parameter by a `global_view`, whose steps are modes of their own, of a shared tensor by an index of its modes,
//! of a register tensor by `slice`.

use tilewright_machine::Memory;
use tilewright_tile::statement::ShapeOp;
use tilewright_tile::{
    Expr, IntOp, Origin, ParamId, Stmt, StmtKind, TensorId, TensorKind, TensorRef, ViewLeaf, ViewMode,
};

use super::{Emit, Res, refused};
use crate::graph::{Node, Op, ReplicaId};
use crate::partition::Mode;
use crate::piece::{Affine, Piece, Place};

/// A shared tensor.
#[derive(Clone, Debug)]
pub(super) struct SharedPlace {
    pub(super) tensor: TensorId,
    /// The steps that each mode is cut into, where uses have parts of it: the mode is then two, of the coordinates in a step and of the steps.
    pub(super) steps: Vec<Option<i64>>,
    /// The last mode counts stages, which the iterations of a loop take in turn.
    pub(super) staged: bool,
    /// The definition is written.
    pub(super) defined: bool,
}

/// A mode of a piece along one mode of what it is a part of: a block of consecutive coordinates.
struct Block {
    extent: i64,
    offset: Affine,
}

impl Emit<'_> {
    /// A piece of a parameter: the view, with an index for each mode that is a step. A mode of the piece is two where it is told into which steps it is
    /// cut.
    pub(super) fn global(
        &mut self,
        param: ParamId,
        piece: &Piece,
        cuts: &[Option<i64>],
        span: Origin,
    ) -> Res<TensorRef> {
        let place = self.place_of(piece, span)?;
        let shape = match &self.out.param(param).kind {
            tilewright_tile::ParamKind::Tensor { shape, .. } => shape.clone(),
            tilewright_tile::ParamKind::Scalar { .. } => Vec::new(),
        };
        let modes = along(&place, shape.len()).ok_or_else(|| {
            refused(
                span,
                "a piece whose points walk several modes of its tensor at once is no part of a view",
            )
            .help("cut it by `blocks`")
        })?;
        let mut absent = self.condition(&self.open(piece.guards()), span)?;
        let mut view: Vec<ViewMode> = Vec::new();
        let mut index: Vec<Option<Expr>> = Vec::new();
        let mut cuts = cuts.iter().copied();
        for (dim, (points, extent)) in modes.iter().zip(&shape).enumerate() {
            let leaf =
                |extent: Expr, scale: i64| ViewLeaf { extent, dim: dim as u32, scale: Expr::Int(scale) };
            for mode in points {
                let mut leaves = Vec::new();
                for (extent, stride) in mode.leaves() {
                    let extent = extent.ok_or_else(|| {
                        refused(span, "the piece has an extent that is known at run time only, and is copied as a whole")
                            .help("cut it by `blocks` into pieces of known extents")
                    })?;
                    leaves.push(leaf(Expr::Int(extent), stride.component(dim)));
                }
                match (cuts.next().flatten(), &leaves[..]) {
                    (Some(step), [whole]) => {
                        let (all, scale) =
                            (whole.extent.as_int().unwrap_or(step), whole.scale.as_int().unwrap_or(1));
                        for (extent, scale) in [(step, scale), (all / step, step * scale)] {
                            view.push(ViewMode { leaves: vec![leaf(Expr::Int(extent), scale)] });
                            index.push(None);
                        }
                    }
                    _ => {
                        view.push(ViewMode { leaves });
                        index.push(None);
                    }
                }
            }
            // The step: the tile's extent where all offsets are multiples of it.
            let offset = &place.offset[dim];
            let reach: i64 = points
                .iter()
                .flat_map(Mode::leaves)
                .map(|(extent, stride)| (extent.unwrap_or(1) - 1) * stride.component(dim))
                .sum();
            let common = common(offset);
            if common == 0 && absent.is_none() {
                continue;
            }
            let step = if common % (reach + 1) == 0 { reach + 1 } else { common };
            let steps = Expr::binary(IntOp::CeilDiv, extent.clone(), Expr::Int(step));
            let mut at = self.expr(&divided(offset, step), span)?;
            if let Some(present) = absent.take() {
                // A step behind the last: what lies there reads as 0 and is not written.
                let away = Expr::binary(IntOp::Mul, present.negated(), steps.clone());
                at = Expr::binary(IntOp::Add, at, away);
            }
            view.push(ViewMode { leaves: vec![leaf(steps, step)] });
            index.push(Some(at));
        }
        let known = self.views.iter().find(|(of, modes, _)| *of == param && *modes == view);
        let tensor = match known {
            Some((.., tensor)) => *tensor,
            None => {
                let row = self.out.param(param).clone();
                let name = self.names.global(&format!("g{}", row.name));
                let (offsets, ends) = (vec![Expr::Int(0); shape.len()], vec![None; shape.len()]);
                let kind = TensorKind::View { param, offsets, ends, modes: view.clone(), fold: Vec::new() };
                let tensor = self.tensor(name, row.dtype, kind, span);
                let define = self.stmt(StmtKind::Define(tensor), span);
                self.definitions[0].push(define);
                self.views.push((param, view, tensor));
                tensor
            }
        };
        Ok(indexed(tensor, index))
    }

    /// A piece of a place in shared memory.
    pub(super) fn in_shared(&mut self, replica: ReplicaId, piece: &Piece, span: Origin) -> Res<TensorRef> {
        let shared = match self.shared.get(&replica) {
            Some(shared) => shared.clone(),
            None => return Err(tilewright_tile::Diagnostic::internal(span, "a place that is not there")),
        };
        self.define_shared(replica);
        let blocks = self.within(replica, piece, span)?;
        let mut index = Vec::new();
        for (block, step) in blocks.iter().zip(&shared.steps) {
            index.push(None);
            if let Some(step) = step {
                let whole = block.extent != *step;
                index.push(if whole { None } else { Some(self.expr(&divided(&block.offset, *step), span)?) });
            }
        }
        if shared.staged {
            index.push(Some(self.stage(replica, span)?));
        }
        if index.iter().all(Option::is_none) {
            index.clear();
        }
        Ok(indexed(shared.tensor, index))
    }

    /// Writes the definition of a shared tensor, once.
    pub(super) fn define_shared(&mut self, replica: ReplicaId) {
        let Some(shared) = self.shared.get_mut(&replica).filter(|shared| !shared.defined) else { return };
        shared.defined = true;
        let tensor = shared.tensor;
        let span = self.out.tensor(tensor).span;
        let define = self.stmt(StmtKind::Define(tensor), span);
        self.definitions[1].push(define);
    }

    /// The stage of the iteration in which a place is used.
    fn stage(&self, replica: ReplicaId, span: Origin) -> Res<Expr> {
        let Some(stages) = self.graph.replica(replica).stages else { return Ok(Expr::Int(0)) };
        let row = self.graph.tree.loop_(stages.head);
        let ([counter], [(lo, _)]) = (&row.counters[..], &row.ranges[..]) else {
            return Err(refused(
                span,
                "stages that the iterations of a loop of several counters take in turn",
            )
            .help("give the loop one counter, or `pipeline(1)`"));
        };
        let round = self.expr(&Affine::var(*counter).plus(lo, -1), span)?;
        Ok(Expr::binary(IntOp::Rem, round, Expr::Int(stages.depth)))
    }

    /// A piece of a register tensor that stands for a place: the tensor, or a part of it, which the statements in front make.
    pub(super) fn in_registers(
        &mut self,
        replica: ReplicaId,
        tensor: TensorId,
        piece: &Piece,
        before: &mut Vec<Stmt>,
        span: Origin,
    ) -> Res<TensorId> {
        if piece.same(&self.graph.replica(replica).piece) {
            return Ok(tensor);
        }
        let blocks = self.within(replica, piece, span)?;
        let TensorKind::Register { shape, .. } = self.out.tensor(tensor).kind.clone() else {
            return Err(tilewright_tile::Diagnostic::internal(span, "a place that is no register tensor"));
        };
        let (mut part, mut shape) = (tensor, shape);
        for (axis, block) in blocks.iter().enumerate() {
            if shape[axis] == Expr::Int(block.extent) {
                continue;
            }
            let start = self.expr(&block.offset, span)?;
            shape[axis] = Expr::Int(block.extent);
            let op = ShapeOp::Slice { axis: axis as u32, start, extent: Expr::Int(block.extent) };
            let known = before.iter().find_map(|stmt| match &stmt.kind {
                StmtKind::Shape { dst, src, op: of } if (*src, of) == (part, &op) => Some(*dst),
                _ => None,
            });
            if let Some(known) = known {
                part = known;
                continue;
            }
            let row = self.out.tensor(tensor).clone();
            let name = self.names.local(&format!("{}_part", row.name));
            let kind = TensorKind::Register { shape: shape.clone(), pinned: None };
            let dst = self.tensor(name, row.dtype, kind, span);
            before.push(self.stmt(StmtKind::Shape { dst, src: part, op }, span));
            part = dst;
        }
        Ok(part)
    }

    /// The blocks that a piece is along the modes of a place.
    fn within(&mut self, replica: ReplicaId, piece: &Piece, span: Origin) -> Res<Vec<Block>> {
        let row = self.graph.replica(replica);
        let name = &self.graph.object(row.object).name;
        let whole: Vec<Option<i64>> = row.piece.shape().to_vec();
        let part = if piece.same(&row.piece) {
            Piece::whole(&whole)
        } else {
            let steps = piece.steps().strip_prefix(row.piece.steps());
            let mut part = Some(Piece::whole(&whole));
            for step in steps.unwrap_or_default() {
                part = part.and_then(|part| part.part(&step.partition, &step.colours, &mut self.vars).ok());
            }
            part.filter(|_| steps.is_some()).ok_or_else(|| {
                refused(span, format!("a part of `{name}` that is no piece of the place that has it"))
                    .help("cut it by the partitions of the caller")
            })?
        };
        if part.guards().len() + piece.guards().len() > row.piece.guards().len() {
            return Err(refused(
                span,
                format!("`{name}` is absent in some iterations, and it is no parameter"),
            )
            .help("`when` may leave out pieces of parameters"));
        }
        let place = self.place_of(&part, span)?;
        let modes = along(&place, whole.len());
        let blocks: Option<Vec<Block>> = modes.and_then(|modes| {
            let modes = modes.into_iter().zip(&place.offset);
            modes
                .map(|(points, offset)| Some(Block { extent: consecutive(&points)?, offset: offset.clone() }))
                .collect()
        });
        blocks.ok_or_else(|| {
            refused(span, format!("a part of `{name}` that has no whole blocks along its modes"))
                .help("cut it by `blocks`")
        })
    }

    /// The place of a piece whose points all exist.
    fn place_of(&self, piece: &Piece, span: Origin) -> Res<Place> {
        if piece.reaches_beyond(&self.vars) {
            return Err(refused(span, "a piece reaches beyond the edge of the piece that it is cut of")
                .help("cut into blocks whose extent divides that of what is cut"));
        }
        piece.place().cloned().ok_or_else(|| {
            refused(span, "a piece whose partitions compose to no layout").help("cut it by `blocks`")
        })
    }

    /// True of a copy between shared and global memory.
    fn with_global(&self, node: &Node) -> bool {
        let Op::Copy(from, to) = node.op else { return false };
        [from, to].iter().any(|replica| self.graph.replica(*replica).memory == Some(Memory::Global))
    }

    /// Declares the shared tensors: each with the steps that its uses cut it into, and with stages where iterations take them in turn.
    pub(super) fn places(&mut self) -> Res<()> {
        for id in (0..self.graph.replicas.len() as u32).map(ReplicaId) {
            let row = self.graph.replica(id).clone();
            if row.memory != Some(Memory::Shared) {
                continue;
            }
            let object = self.graph.object(row.object).clone();
            let between =
                self.graph.rings.iter().any(|ring| ring.places.contains(&id) && ring.from != ring.to);
            let uses: Vec<(Piece, bool, Origin)> = self
                .graph
                .nodes
                .iter()
                .flat_map(|node| node.accesses.iter().map(move |access| (access, node)))
                .filter(|(access, _)| access.replica == Some(id))
                .map(|(access, node)| (access.piece.clone(), self.with_global(node), node.span))
                .collect();
            if uses.is_empty() {
                continue;
            }
            let mut shape = Vec::new();
            for extent in row.piece.shape() {
                shape.push(extent.ok_or_else(|| {
                    let message = format!(
                        "`{}` in shared memory has an extent that is known at run time only",
                        object.name
                    );
                    refused(object.span, message).help("cut it by `blocks` into pieces of known extents")
                })?);
            }
            let mut steps: Vec<Option<i64>> = vec![None; shape.len()];
            let mut whole = vec![false; shape.len()];
            for (piece, with_global, span) in &uses {
                for (at, block) in self.within(id, piece, *span)?.into_iter().enumerate() {
                    if block.extent == shape[at] {
                        // A view can be cut alike.
                        whole[at] |= !with_global;
                        continue;
                    }
                    let divides = shape[at] % block.extent == 0 && common(&block.offset) % block.extent == 0;
                    if !divides || steps[at].is_some_and(|step| step != block.extent) {
                        let message =
                            format!("`{}` in shared memory is used by parts of several extents", object.name);
                        return Err(refused(*span, message).help("cut it alike in all its uses"));
                    }
                    steps[at] = Some(block.extent);
                }
            }
            if let Some(at) = (0..shape.len()).find(|at| whole[*at] && steps[*at].is_some()) {
                let message = format!(
                    "`{}` in shared memory is used as a whole and by parts along mode {at}",
                    object.name
                );
                return Err(refused(object.span, message).help("cut it alike in all its uses"));
            }
            let mut extents: Vec<Expr> = Vec::new();
            for (extent, step) in shape.iter().zip(&steps) {
                match step {
                    Some(step) => extents.extend([Expr::Int(*step), Expr::Int(extent / step)]),
                    None => extents.push(Expr::Int(*extent)),
                }
            }
            let staged = row.stages.is_some_and(|stages| stages.depth > 1) && !between;
            if let Some(stages) = row.stages.filter(|_| staged) {
                extents.push(Expr::Int(stages.depth));
            }
            let name = self.names.global(&format!("s{}", object.name));
            let cut = staged || steps.iter().any(Option::is_some);
            let (pinned, span) = self.pinned_shared(id, cut, object.span)?;
            let tensor = self.tensor(name, object.dtype, TensorKind::Shared { shape: extents, pinned }, span);
            self.shared.insert(id, SharedPlace { tensor, steps, staged, defined: false });
        }
        Ok(())
    }
}

/// The modes of a place by the modes of the tensor that they walk, in order; nothing where one walks several, or they are in another order.
fn along(place: &Place, rank: usize) -> Option<Vec<Vec<Mode>>> {
    let mut out: Vec<Vec<Mode>> = vec![Vec::new(); rank];
    let mut last = 0;
    for mode in &place.points {
        let mut dims: Vec<usize> = Vec::new();
        for (extent, stride) in mode.leaves() {
            let moved: Vec<usize> = (0..rank).filter(|d| stride.component(*d) != 0).collect();
            match moved[..] {
                [] if extent == Some(1) => {}
                [dim] => dims.push(dim),
                _ => return None,
            }
        }
        dims.dedup();
        let dim = match dims[..] {
            // One point: it may walk any mode.
            [] => last,
            [dim] => dim,
            _ => return None,
        };
        if dim < last {
            return None;
        }
        last = dim;
        out[dim].push(mode.clone());
    }
    Some(out)
}

/// The extent of a mode that is a block of consecutive coordinates.
fn consecutive(points: &[Mode]) -> Option<i64> {
    let [mode] = points else { return None };
    let mut below = 1;
    for (extent, stride) in mode.leaves() {
        let step = stride.terms().first().map_or(0, |(_, factor)| *factor);
        let extent = extent?;
        if extent != 1 && step != below {
            return None;
        }
        below *= extent;
    }
    Some(below)
}

fn indexed(tensor: TensorId, index: Vec<Option<Expr>>) -> TensorRef {
    TensorRef { index, ..TensorRef::whole(tensor) }
}

/// The greatest common divisor of a form's constant and factors: 0 of the form 0.
fn common(form: &Affine) -> i64 {
    form.terms().iter().fold(form.rest().abs(), |g, (_, factor)| gcd(g, *factor))
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

/// A form of which every factor is a multiple.
fn divided(form: &Affine, by: i64) -> Affine {
    let terms = form.terms().iter().map(|(term, factor)| Affine::term(term.clone()).times(factor / by));
    terms.fold(Affine::constant(form.rest() / by), |sum, term| sum.plus(&term, 1))
}
