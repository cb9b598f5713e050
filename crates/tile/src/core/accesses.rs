//! The parameters that a core program reads and writes.

use std::collections::BTreeSet;

use super::{Coord, Expr, Operand, ParamId, Program, TensorId, TensorKind, Use};

/// The parameters that statements write, that they read, and of which elements are integers of the kernel.
#[derive(Default)]
struct Accesses {
    outputs: BTreeSet<ParamId>,
    inputs: BTreeSet<ParamId>,
    elements: BTreeSet<ParamId>,
}

impl Program {
    /// Lists the parameters that statements write and read, and those of which elements are integers of the kernel.
    pub(super) fn list_accesses(&mut self) {
        let mut found = Accesses::default();
        self.visit(&mut |stmt, _| {
            for operand in stmt.kind.operands() {
                match operand {
                    Operand::Tensor(Use::Define, id) => found.view(self, *id),
                    Operand::Reference(used, r) => {
                        found.reference(self, r, used);
                        // A copy that combines reads what is there.
                        if used.writes() && stmt.kind.reads_its_destination() {
                            found.reference(self, r, Use::Read);
                        }
                    }
                    Operand::Expr(e) => found.expr(e),
                    Operand::Param(Use::Read, id) => _ = found.elements.insert(*id),
                    Operand::Param(_, id) => {
                        found.outputs.insert(*id);
                        found.inputs.insert(*id);
                    }
                    _ => {}
                }
            }
        });
        let Accesses { outputs, mut inputs, elements } = found;
        inputs.extend(&elements);
        (self.outputs, self.inputs) = (outputs.into_iter().collect(), inputs.into_iter().collect());
        self.elements = elements.into_iter().collect();
    }
}

impl Accesses {
    fn expr(&mut self, e: &Expr) {
        e.elements(&mut |param| _ = self.elements.insert(param));
    }

    /// The definition of a tensor: the offsets, ends and extents of a view.
    fn view(&mut self, program: &Program, id: TensorId) {
        if let Some(TensorKind::View { offsets, ends, modes, fold, .. }) = program.kind(id) {
            let leaves = modes.iter().flat_map(|mode| &mode.leaves).chain(fold);
            let extents = leaves.map(|leaf| &leaf.extent);
            offsets.iter().chain(ends.iter().flatten()).chain(extents).for_each(|e| self.expr(e));
        }
    }

    fn reference(&mut self, program: &Program, r: &super::TensorRef, used: Use) {
        r.index.iter().flatten().filter_map(Coord::expr).for_each(|e| self.expr(e));
        if let Some(TensorKind::View { param, .. }) = program.kind(r.tensor) {
            let list = if used.writes() { &mut self.outputs } else { &mut self.inputs };
            list.insert(*param);
        }
    }
}
