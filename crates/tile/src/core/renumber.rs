//! Numbers symbols as the text does.

use std::collections::BTreeMap;

use super::{Coord, Expr, OperandMut, Program, Stmt, SymbolId, TensorKind};
use crate::program::ParamKind;

impl Program {
    /// The same program with its symbols numbered from 0: the sizes, then the counters, each in their order. Those of [`build`](super::build())
    /// have the numbers of the surface program, which has constants too.
    pub fn renumbered(&self) -> Program {
        let (sizes, counters): (Vec<_>, Vec<_>) = self.symbols.iter().partition(|(_, s)| s.size.is_some());
        let order = sizes.into_iter().chain(counters).map(|(id, _)| *id);
        let numbers: BTreeMap<_, _> = order.enumerate().map(|(i, id)| (id, SymbolId(i as u32))).collect();
        let number = |id: SymbolId| numbers.get(&id).copied().unwrap_or(id);
        let mut result = self.clone();
        result.symbols = self.symbols.iter().map(|(id, row)| (number(*id), row.clone())).collect();
        let mut exprs: Vec<&mut Expr> = result.strides.iter_mut().flatten().chain(&mut result.grid).collect();
        for param in &mut result.params {
            if let ParamKind::Tensor { shape, strides, .. } = &mut param.kind {
                exprs.extend(shape.iter_mut().chain(strides.iter_mut().flatten()));
            }
        }
        for tensor in &mut result.tensors {
            if let TensorKind::View { offsets, ends, modes, fold, .. } = &mut tensor.kind {
                exprs.extend(offsets.iter_mut().chain(ends.iter_mut().flatten()));
                let leaves = modes.iter_mut().flat_map(|mode| &mut mode.leaves).chain(fold);
                exprs.extend(leaves.map(|leaf| &mut leaf.extent));
            }
        }
        exprs.into_iter().for_each(|e| renumber(e, &number));
        result.bodies_mut().for_each(|body| statements(body, &number));
        result
    }
}

fn statements(body: &mut [Stmt], number: &impl Fn(SymbolId) -> SymbolId) {
    for operand in body.iter_mut().flat_map(|stmt| stmt.kind.operands_mut()) {
        match operand {
            OperandMut::Expr(e) => renumber(e, number),
            OperandMut::Counter(_, id) => *id = number(*id),
            OperandMut::Reference(_, r) => {
                for coord in r.index.iter_mut().flatten() {
                    if let Coord::Expr(e) = coord {
                        renumber(e, number);
                    }
                }
            }
            OperandMut::Body(body) => statements(body, number),
            OperandMut::Tensor(..)
            | OperandMut::Constant(_)
            | OperandMut::Pipeline(..)
            | OperandMut::Barrier(..)
            | OperandMut::Scalar(_)
            | OperandMut::Param(..) => {}
        }
    }
}

fn renumber(e: &mut Expr, number: &impl Fn(SymbolId) -> SymbolId) {
    match e {
        Expr::Symbol(id) => *id = number(*id),
        Expr::Binary(_, a, b) => {
            renumber(a, number);
            renumber(b, number);
        }
        Expr::Element(_, index) => index.iter_mut().for_each(|e| renumber(e, number)),
        Expr::Int(_) | Expr::Block(_) | Expr::Scalar(_) => {}
    }
}
