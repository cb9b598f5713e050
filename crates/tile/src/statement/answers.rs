//! Answers of a statement: its operands, its body, and what it does.

use tilewright_machine::RedOp;

use super::form::Form;
use super::operands::{Operand, OperandMut, Use};
use super::{Dealer, Fetch, Flag, Stmt, StmtKind, TensorRef};
use crate::expr::Expr;
use crate::ids::{ParamId, TensorId};

impl<F: Form> StmtKind<F> {
    /// The tensors of the statement and their uses, in the order of the text; not those of the statements inside.
    pub fn tensors(&self) -> Vec<(Use, TensorId)> {
        let tensors = |operand| match operand {
            Operand::Tensor(used, id) => [Some((used, *id)), None],
            Operand::Reference(used, r) => {
                [Some((used, r.tensor)), r.indexed.map(|indexed| (Use::Read, indexed.by))]
            }
            _ => [None, None],
        };
        self.operands().into_iter().flat_map(tensors).flatten().collect()
    }

    fn tensors_with(&self, with: impl Fn(Use) -> bool) -> Vec<TensorId> {
        self.tensors().into_iter().filter(|(used, _)| with(*used)).map(|(_, id)| id).collect()
    }

    /// The tensors that the statement assigns to (`t = …`): each exists from here on, if it did not before.
    pub fn assigned(&self) -> Vec<TensorId> {
        self.tensors_with(|used| matches!(used, Use::Define | Use::Assign))
    }

    /// The tensors that the statement reads, in the order of the text; an accumulator counts.
    pub fn reads(&self) -> Vec<TensorId> {
        self.tensors_with(Use::reads)
    }

    /// The tensors that the statement writes.
    pub fn writes(&self) -> Vec<TensorId> {
        self.tensors_with(Use::writes)
    }

    /// The references of a statement whose operands may be indexed, and their uses.
    pub fn references(&self) -> Vec<(Use, &TensorRef<F>)> {
        let reference = |operand| match operand {
            Operand::Reference(used, r) => Some((used, r)),
            _ => None,
        };
        self.operands().into_iter().filter_map(reference).collect()
    }

    /// The statements inside a loop, a branch, a `drain`, a role or a stage; none of any other.
    pub fn body(&self) -> &[Stmt<F>] {
        match self {
            StmtKind::For { body, .. }
            | StmtKind::If { body, .. }
            | StmtKind::IfAny { body, .. }
            | StmtKind::Role { body, .. }
            | StmtKind::Stage { body, .. }
            | StmtKind::InTurn { body, .. }
            | StmtKind::Tiles { body, .. }
            | StmtKind::Drain { body, .. } => body,
            _ => &[],
        }
    }

    /// The same, to change them.
    pub fn body_mut(&mut self) -> Option<&mut Vec<Stmt<F>>> {
        match self {
            StmtKind::For { body, .. }
            | StmtKind::If { body, .. }
            | StmtKind::IfAny { body, .. }
            | StmtKind::Role { body, .. }
            | StmtKind::Stage { body, .. }
            | StmtKind::InTurn { body, .. }
            | StmtKind::Tiles { body, .. }
            | StmtKind::Drain { body, .. } => Some(body),
            _ => None,
        }
    }

    /// True if the body is done any number of times.
    pub fn repeats(&self) -> bool {
        matches!(self, StmtKind::For { .. } | StmtKind::Tiles { .. })
    }

    /// The operation by which a copy combines elements with those of its destination, if it does.
    pub fn combines(&self) -> Option<RedOp> {
        match self {
            StmtKind::Copy { how, .. } => how.combine,
            StmtKind::CopyAsync { how, .. } => how.add.then_some(RedOp::Add),
            _ => None,
        }
    }

    /// The parameter whose element counts how far the blocks are, of a statement with one.
    pub fn counter(&self) -> Option<ParamId> {
        match self {
            StmtKind::Tiles { dynamic, .. } => dynamic.and_then(Dealer::counter),
            StmtKind::SyncGrid { counter } => Some(*counter),
            _ => self.flag().map(|flag| flag.param),
        }
    }

    /// The flag of a statement with one.
    pub fn flag(&self) -> Option<&Flag> {
        match self {
            StmtKind::Signal { flag, .. } | StmtKind::Await { flag, .. } | StmtKind::Ticket { flag, .. } => {
                Some(flag)
            }
            _ => None,
        }
    }

    /// True if all threads of the block, or of the role, meet at the statement, and what they did before comes before what any of them does
    /// after.
    pub fn is_barrier(&self) -> bool {
        matches!(self, StmtKind::Sync(_) | StmtKind::SyncGrid { .. }) || self.flag().is_some()
    }

    /// True if other blocks must run while the statement waits for them.
    pub fn waits_for_blocks(&self) -> bool {
        matches!(self, StmtKind::SyncGrid { .. } | StmtKind::Await { .. })
    }

    /// True if the counter that the statement defines is visible to the end of the block around, and not in a body.
    pub fn names_integer(&self) -> bool {
        matches!(self, StmtKind::Let { .. } | StmtKind::Ticket { .. })
    }

    /// The result of a copy that gives what was in memory, if it does.
    pub fn fetch(&self) -> Option<Fetch> {
        if let StmtKind::Copy { how, .. } = self { how.fetch } else { None }
    }

    /// True if a copy reads what it changes.
    pub fn reads_its_destination(&self) -> bool {
        self.combines().is_some() || self.fetch().is_some()
    }

    /// True if the body may not be done at all: of a loop, of a branch.
    pub fn is_optional(&self) -> bool {
        self.repeats() || matches!(self, StmtKind::If { .. } | StmtKind::IfAny { .. })
    }

    /// True if a `break` ends the loop that this is, before its last iteration may be.
    pub fn may_break(&self) -> bool {
        fn within<F: Form>(body: &[Stmt<F>]) -> bool {
            body.iter().any(|stmt| match &stmt.kind {
                StmtKind::Break { .. } => true,
                StmtKind::If { body, .. } => within(body),
                _ => false,
            })
        }
        matches!(self, StmtKind::For { .. }) && within(self.body())
    }

    /// True for an `else`.
    pub fn is_otherwise(&self) -> bool {
        matches!(self, StmtKind::If { otherwise: true, .. })
    }

    /// Source and destination of a copy of either kind that threads do: not by the tensor memory accelerator.
    pub fn copied(&self) -> Option<(&TensorRef<F>, &TensorRef<F>)> {
        match self {
            StmtKind::CopyAsync { how, .. } if how.tensor => None,
            StmtKind::Copy { src, dst, .. } | StmtKind::CopyAsync { src, dst, .. } => Some((src, dst)),
            _ => None,
        }
    }
}

impl StmtKind {
    /// Calls `visit` for every integer expression, also in indices and in the statements inside.
    pub fn exprs_mut(&mut self, visit: &mut impl FnMut(&mut Expr)) {
        for operand in self.operands_mut() {
            match operand {
                OperandMut::Constant(e) | OperandMut::Expr(e) => visit(e),
                OperandMut::Reference(_, r) => r.index.iter_mut().flatten().for_each(&mut *visit),
                OperandMut::Body(body) => body.iter_mut().for_each(|stmt| stmt.kind.exprs_mut(visit)),
                OperandMut::Tensor(..)
                | OperandMut::Counter(..)
                | OperandMut::Pipeline(..)
                | OperandMut::Barrier(..)
                | OperandMut::Scalar(_)
                | OperandMut::Param(..) => {}
            }
        }
    }
}
