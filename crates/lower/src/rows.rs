//! Branches that rows decide: one vote a warp, and a branch that all its lanes take or not.

use tilewright_machine::{DType, ScalarOp};
use tilewright_simt::{Operand, Reg};
use tilewright_synth::{StmtPlan, cast};
use tilewright_tile::core::{Stmt, StmtKind};
use tilewright_tile::{Asserted, Diagnostic, TensorId};

use crate::context::Lower;
use crate::elements;
use crate::scalar::{condition, int};

/// Chains of comparisons that are independent of each other, at most.
const CHAINS: usize = 4;

/// Comparisons of a chain, at least.
const CHAIN: usize = 4;

impl Lower<'_> {
    /// The condition that the statement at a place computes, if only the vote behind it takes that: then no register holds it.
    pub(crate) fn decides(&self, body: &[Stmt], at: usize) -> Option<TensorId> {
        let StmtKind::Elementwise { dst, .. } = &body[at].kind else { return None };
        // A tensor that is only defined holds nothing yet.
        let next = body[at + 1..].iter().find(|stmt| !matches!(stmt.kind, StmtKind::Define(_)))?;
        let StmtKind::IfAny { condition, .. } = &next.kind else { return None };
        let mut uses = 0;
        self.verified
            .visit(&mut |stmt, _| uses += stmt.kind.tensors().iter().filter(|(_, id)| id == dst).count());
        (dst == condition && uses == 2).then_some(*dst)
    }

    /// `if any(condition, axis) { body }`.
    pub(crate) fn branch_of_rows(&mut self, tensor: TensorId, body: &[Stmt]) -> Result<(), Diagnostic> {
        self.wait_for_copies(None);
        let asks = self.asks(tensor)?;
        let any = match asks {
            Operand::Imm(0) => return Ok(()),
            Operand::Imm(_) => return self.block(body),
            Operand::Value(asks) => self.b.vote(asks.into()),
        };
        self.b.open_branch();
        let result = self.block(body);
        self.wait_for_copies(None);
        self.b.close_branch(any);
        result
    }

    /// `assert(condition, text)`.
    pub(crate) fn assert(&mut self, condition: &Asserted) -> Result<(), Diagnostic> {
        let conditions = match condition {
            Asserted::Integer(condition) => vec![self.condition(condition)],
            Asserted::All(tensor) => {
                let (array, count) = (self.array(*tensor)?, self.count(*tensor)?);
                let truth = |value| {
                    let (reg, shift) = elements::place(array, value, DType::Bool.bits());
                    let word = self.b.read(reg);
                    cast::read_truth(&mut elements::Into(self.b), word, shift)
                };
                (0..count).map(truth).collect()
            }
        };
        let holds = Operand::Imm(1);
        let holds = conditions
            .into_iter()
            .fold(holds, |both, holds| self.b.scalar(ScalarOp::AndPred, &[both, holds]));
        if holds != Operand::Imm(1) {
            self.b.assert(holds);
        }
        Ok(())
    }

    /// True if one of the thread's elements of a condition is, as a predicate.
    fn asks(&mut self, tensor: TensorId) -> Result<Operand, Diagnostic> {
        if let Some(stmt) = self.decisions.remove(&tensor)
            && let StmtKind::Elementwise { expr, .. } = &stmt.kind
        {
            let parts = match self.synthesis.plan(&stmt)? {
                StmtPlan::Repeat(parts) => parts.as_slice(),
                _ => &[],
            };
            let truths = self.truths(tensor, expr, parts)?;
            let mut any = |truths: &mut dyn Iterator<Item = Operand>| {
                truths.fold(Operand::Imm(0), |any, truth| match any {
                    Operand::Imm(0) => truth,
                    any => self.b.scalar(ScalarOp::OrPred, &[any, truth]),
                })
            };
            // Each comparison waits for the one before in its chain.
            let chains = (truths.len() / CHAIN).clamp(1, CHAINS);
            let ends: Vec<Operand> =
                (0..chains).map(|i| any(&mut truths.iter().copied().skip(i).step_by(chains))).collect();
            return Ok(any(&mut ends.into_iter()));
        }
        let (array, count, bits) = (self.array(tensor)?, self.count(tensor)?, DType::Bool.bits());
        let registers = elements::registers(count, bits);
        let mut words = int(0);
        for index in 0..registers {
            let mut word = self.b.read(Reg { array, index });
            // The last register may have bytes that are no elements.
            let bytes = count - index * (32 / bits);
            if bytes < 32 / bits {
                word = self.b.scalar(ScalarOp::AndB32, &[word, int((1 << (bytes * bits)) - 1)]);
            }
            words = self.b.scalar(ScalarOp::OrB32, &[words, word]);
        }
        Ok(condition(self.b, ScalarOp::NeI32, words, int(0)).map_or(Operand::Imm(0), Operand::Value))
    }
}
