//! The asynchronous matrix products of warpgroups: descriptors, instructions, and accumulators that begin with zero.

use tilewright_machine::{Descriptor, ScalarOp, Sparsity, SyncOp};
use tilewright_simt::{DescriptorValue, Factor, Operand, Reg};
use tilewright_synth::{OperandA, SharedOperand, WgmmaPlan};
use tilewright_tile::core::{Stmt, StmtKind, TensorRef};
use tilewright_tile::{Diagnostic, Origin, TensorId};

use crate::context::{Lower, internal};
use crate::elements;
use crate::scalar::{self, add, int};

impl Lower<'_> {
    /// The lower half of an operand's descriptor, for the part of this warpgroup.
    pub(crate) fn descriptor(
        &mut self,
        reference: &TensorRef,
        operand: &SharedOperand,
        (along, count): (i64, i64),
        span: Origin,
    ) -> Result<DescriptorValue, Diagnostic> {
        let (constant, dynamic) = self.begins(reference, true, span)?;
        let base = self.shared_base();
        let start = add(self.b, base, int(constant));
        let window = self.b.scalar(ScalarOp::AndB32, &[start, int(0x3ffff)]);
        let units = self.b.scalar(ScalarOp::ShrU32, &[window, int(4)]);
        let bits = Descriptor { start: 0, ..operand.descriptor }.encode();
        let mut low = self.b.scalar(ScalarOp::OrB32, &[units, Operand::Imm(bits & 0xffff_ffff)]);
        if operand.warpgroup != 0 && count > 1 {
            let (first, warp) = self.state.warps;
            let own = add(self.b, warp, int(-i64::from(first)));
            let group = self.b.scalar(ScalarOp::ShrU32, &[own, int(2)]);
            let over = scalar::divide(self.b, group, along);
            let index = scalar::remainder(self.b, over, count);
            let part = scalar::scale(self.b, index, operand.warpgroup / 16);
            low = add(self.b, low, part);
        }
        if let Some(dynamic) = dynamic {
            low = add(self.b, low, dynamic);
        }
        Ok(DescriptorValue { low, high: (bits >> 32) as u32 })
    }

    /// `gemm.async(c, a, b)`.
    pub(crate) fn product(
        &mut self,
        c: TensorId,
        (a, b): (&TensorRef, &TensorRef),
        meta: Option<TensorId>,
        plan: &WgmmaPlan,
    ) -> Result<(), Diagnostic> {
        let span = self.verified.tensor(c).span;
        let accumulator = self.array(c)?;
        let [gm, gn] = plan.warpgroups;
        let right = self.descriptor(b, &plan.b, (gm, gn), span)?;
        let left = match &plan.a {
            OperandA::Shared(operand) => Some((self.descriptor(a, operand, (1, gm), span)?, operand.major)),
            OperandA::Registers => None,
        };
        let left_array = if left.is_none() { Some(self.array(a.tensor)?) } else { None };
        let metadata = meta.map(|meta| self.array(meta)).transpose()?;
        let (first, flag) = self.accumulates(c);
        self.b.sync(SyncOp::WgmmaFence);
        let at = |lower: &mut Self, low: DescriptorValue, bytes: i64| {
            let sum = add(lower.b, low.low, int(bytes / 16));
            DescriptorValue { low: sum, ..low }
        };
        for call in &plan.calls {
            let d = elements::places(accumulator, &call.c, plan.row.c.bits());
            let x = match (left, left_array) {
                (Some((descriptor, major)), _) => {
                    Factor::Shared { descriptor: at(self, descriptor, call.a_at), major }
                }
                (None, Some(array)) => Factor::Registers(elements::places(array, &call.a, plan.row.a.bits())),
                (None, None) => return Err(internal(span, "a product without its left factor")),
            };
            let y = Factor::Shared { descriptor: at(self, right, call.b_at), major: plan.b.major };
            let accumulate = if call.first { first } else { Operand::Imm(1) };
            match metadata {
                Some(array) => {
                    let places = elements::places(array, &call.meta, Sparsity::META.bits());
                    let meta =
                        *places.first().ok_or_else(|| internal(span, "a call without its metadata"))?;
                    self.b.sparse_wgmma(plan.row, d, (x, meta), y, accumulate);
                }
                None => self.b.wgmma(plan.row, d, x, y, accumulate),
            }
        }
        if let Some(flag) = flag {
            self.b.write(flag, int(1));
        }
        Ok(())
    }

    /// The predicate that a product adds to what the accumulator holds, which the first after a fill does not; and the register that says so, to be set behind it.
    pub(crate) fn accumulates(&mut self, c: TensorId) -> (Operand, Option<Reg>) {
        let flag = self.state.accumulate.get(&c).copied();
        let first = if self.state.zero_init.remove(&c) {
            Operand::Imm(0)
        } else if let Some(flag) = flag {
            let added = self.b.read(flag);
            self.b.scalar(ScalarOp::NeI32, &[added, int(0)])
        } else {
            Operand::Imm(1)
        };
        (first, flag)
    }

    /// True if a fill with zero can be left out because the next thing that happens to the tensor is a product that need not read it.
    /// If so, the product is told.
    pub(crate) fn starts_afresh(&mut self, tensor: TensorId, rest: &[Stmt]) -> bool {
        let Some(looped) = self.next_is_product(tensor, rest) else { return false };
        if !looped {
            self.state.zero_init.insert(tensor);
            return true;
        }
        self.begin_by_flag(tensor);
        true
    }

    /// Has the next product of a tensor overwrite it, by a flag that each sets behind itself.
    pub(crate) fn begin_by_flag(&mut self, tensor: TensorId) {
        let flag = match self.state.accumulate.get(&tensor) {
            Some(flag) => *flag,
            None => {
                let name = format!("{}.begun", self.verified.tensor(tensor).name);
                let flag = Reg { array: self.b.add_array(name, 1), index: 0 };
                self.state.accumulate.insert(tensor, flag);
                flag
            }
        };
        self.b.write(flag, int(0));
    }

    /// Looks for the next statement that touches a tensor: `Some` if it is sure to be a product that adds to it, true if that is in a loop.
    fn next_is_product(&self, tensor: TensorId, rest: &[Stmt]) -> Option<bool> {
        fn touches(stmt: &Stmt, tensor: TensorId) -> bool {
            stmt.kind.reads().contains(&tensor)
                || stmt.kind.writes().contains(&tensor)
                || stmt.kind.body().iter().any(|s| touches(s, tensor))
        }
        let stmt = rest.iter().find(|s| touches(s, tensor))?;
        match &stmt.kind {
            StmtKind::GemmAsync { c, a, .. } if *c == tensor && a.tensor != tensor => Some(false),
            StmtKind::For { lo, hi, condition: None, body, .. }
                if self.divisibility.has_round(lo, hi) && !stmt.kind.may_break() =>
            {
                self.next_is_product(tensor, body).map(|_| true)
            }
            StmtKind::Stage { body, .. } => self.next_is_product(tensor, body),
            _ => None,
        }
    }
}
