//! Copies between places as statements.

use tilewright_machine::Memory;
use tilewright_tile::{
    AsyncCopyAttrs, CopyAttrs, Diagnostic, Expr, Origin, Stmt, StmtKind, TensorKind, TensorRef,
};

use super::{Emit, Res, refused};
use crate::graph::{Access, Group, NodeId, Op, ReplicaId, Role};
use crate::piece::Piece;

impl Emit<'_> {
    /// The statements of a copy.
    pub(super) fn copy(&mut self, id: NodeId) -> Res<Vec<Stmt>> {
        let node = self.graph.node(id).clone();
        let Op::Copy(from, to) = node.op else {
            return Err(Diagnostic::internal(node.span, "a statement as a copy"));
        };
        let piece = |replica: ReplicaId| {
            let of = |access: &&Access| access.replica == Some(replica);
            node.accesses.iter().find(of).map(|access| access.piece.clone())
        };
        let (Some(read), Some(written)) = (piece(from), piece(to)) else {
            return Err(Diagnostic::internal(node.span, "a copy without places"));
        };
        let memories = (self.graph.replica(from).memory, self.graph.replica(to).memory);
        let (Some(source), Some(target)) = memories else {
            return Err(Diagnostic::internal(node.span, "a copy between places without a memory"));
        };
        let mut out = Vec::new();
        let asynchronous = self.groups.get(&id).copied();
        // Memory to memory by threads goes through registers.
        if source != Memory::Register && target != Memory::Register && asynchronous.is_none() {
            let object = self.graph.object(self.graph.replica(to).object).clone();
            let name = self.names.local(&format!("r{}", object.name));
            let shape = self.extents(written.shape(), &object.name, node.span)?;
            let shape = self.in_steps([(from, &read), (to, &written)], shape);
            let through =
                self.tensor(name, object.dtype, TensorKind::Register { shape, pinned: None }, node.span);
            let src = self.reference((from, to), &read, false, &mut out, node.span)?;
            let dst = self.reference((to, from), &written, true, &mut out, node.span)?;
            out.push(self.stmt(StmtKind::Define(through), node.span));
            for (src, dst) in [(src, TensorRef::whole(through)), (TensorRef::whole(through), dst)] {
                out.push(self.stmt(StmtKind::Copy { src, dst, how: CopyAttrs::default() }, node.span));
            }
            return Ok(out);
        }
        let src = self.reference((from, to), &read, false, &mut out, node.span)?;
        let dst = self.reference((to, from), &written, true, &mut out, node.span)?;
        match asynchronous {
            None => out.push(self.stmt(StmtKind::Copy { src, dst, how: CopyAttrs::default() }, node.span)),
            Some(group) => {
                let multicast = if group == Group::CopiesIn { self.shared_by(id, to, &read) } else { None };
                let how = AsyncCopyAttrs { multicast, ..AsyncCopyAttrs::default() };
                out.push(self.stmt(StmtKind::CopyAsync { src, dst, how }, node.span));
                // The stage of a ring between roles counts the copies that fill it.
                if group != Group::CopiesIn || self.role == Role::Compute {
                    out.push(self.stmt(StmtKind::Commit, node.span));
                }
            }
        }
        Ok(out)
    }

    /// The modes of what is copied: where a shared place that is used as a whole is cut into steps, two of one.
    fn in_steps(&self, sides: [(ReplicaId, &Piece); 2], shape: Vec<Expr>) -> Vec<Expr> {
        let mut modes = Vec::new();
        for (at, extent) in shape.into_iter().enumerate() {
            let mut steps = sides.iter().filter_map(|(replica, piece)| {
                let whole = self.graph.replica(*replica).piece.shape()[at] == piece.shape()[at];
                self.shared.get(replica)?.steps[at].filter(|_| whole)
            });
            match (steps.next_back(), extent.as_int()) {
                (Some(step), Some(all)) => modes.extend([Expr::Int(step), Expr::Int(all / step)]),
                _ => modes.push(extent),
            }
        }
        modes
    }

    /// A piece of a place, as a copy with another place names it.
    fn reference(
        &mut self,
        (replica, other): (ReplicaId, ReplicaId),
        piece: &Piece,
        writes: bool,
        before: &mut Vec<Stmt>,
        span: Origin,
    ) -> Res<TensorRef> {
        let row = self.graph.replica(replica);
        match row.memory {
            Some(Memory::Global) => {
                let param = self.param_of(replica, span)?;
                let cuts = self.shared.get(&other).map(|shared| shared.steps.clone()).unwrap_or_default();
                let shape = self.graph.replica(other).piece.shape();
                let whole = piece.shape().iter().zip(shape).map(|(extent, all)| extent == all);
                let cuts: Vec<Option<i64>> =
                    whole.zip(cuts).map(|(whole, step)| step.filter(|_| whole)).collect();
                self.global(param, piece, &cuts, span)
            }
            Some(Memory::Shared) => self.in_shared(replica, piece, span),
            Some(Memory::Register) => {
                if writes && !piece.same(&row.piece) {
                    return Err(self.part_written(replica, span));
                }
                let tensor = self.register(replica, span)?;
                Ok(TensorRef::whole(self.in_registers(replica, tensor, piece, before, span)?))
            }
            // No mapping names tensor memory.
            Some(Memory::Tensor) | None => Err(Diagnostic::internal(span, "a place without a memory")),
        }
    }

    /// The parameter that a place in global memory is.
    fn param_of(&self, replica: ReplicaId, span: Origin) -> Res<tilewright_tile::ParamId> {
        let object = self.graph.replica(replica).object;
        let row = self.graph.tree.objects.get(object.index());
        let formal = row.and_then(|row| row.param).and_then(|formal| self.params.get(&formal));
        match formal.or_else(|| self.workspaces.get(&object)) {
            Some(param) => Ok(*param),
            None => {
                let object = self.graph.object(object);
                Err(refused(object.span, format!("`{}` is in global memory, and no parameter", object.name))
                    .related(span, "used here")
                    .help("give it the memory `shared` or `register`, or make it a formal of the entry"))
            }
        }
    }

    /// The refusal of a write to a part of a register tensor.
    pub(super) fn part_written(&self, replica: ReplicaId, span: Origin) -> Diagnostic {
        let name = &self.graph.object(self.graph.replica(replica).object).name;
        refused(span, format!("a part of `{name}`, which is in registers, is written"))
            .help(format!("write `{name}` as a whole, or give it the memory `shared`"))
    }
}
