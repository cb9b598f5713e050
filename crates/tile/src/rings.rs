//! Makes the stages of pipelines a mode of their tensors.
//!
//! Needs: a verified program. Keeps: its meaning, and every id. Afterwards each shared tensor of a pipeline has one more mode, its
//! last: the stages. In a `produce` or `consume` every reference to it fixes that mode at the counter
//! ([`StmtKind::Stage::slot`](crate::StmtKind::Stage)) that stands for the stage at hand.

use std::collections::BTreeMap;

use tilewright_layout::SwizzledLayout;

use crate::expr::{Expr, SymbolId};
use crate::program::{OperandMut, Side, Stmt, StmtKind, Symbol, SymbolKind, TensorId, TensorKind, TensorRef};
use crate::verified::Verified;

/// The program with the stages of pipelines as modes of their tensors.
pub fn rings(v: &Verified) -> Verified {
    let mut result = v.clone();
    if v.program().pipelines.is_empty() {
        return result;
    }
    let mut pass = Rings { modes: BTreeMap::new(), symbols: v.program().symbols.clone(), v };
    for pipeline in &v.program().pipelines {
        for tensor in &pipeline.tensors {
            pass.modes.insert(*tensor, None);
            if let TensorKind::Shared { shape, pinned } = &mut result.program.tensors[tensor.0 as usize].kind
            {
                shape.push(pipeline.stages.clone());
                if let Some(layout) = pinned {
                    *pinned = staged(layout, shape);
                }
            }
        }
    }
    pass.block(&mut result.program.body);
    result.program.symbols = pass.symbols;
    result
}

/// The layout of a tensor whose last mode is its stages, from a pinned one of a single stage.
fn staged(layout: &SwizzledLayout, shape: &[Expr]) -> Option<SwizzledLayout> {
    let shape = shape.iter().map(Expr::as_int).collect::<Option<Vec<i64>>>()?;
    layout.with_stages(&shape, &[shape.len() - 1], layout.stage_distance(1)?).ok()
}

struct Rings<'a> {
    v: &'a Verified,
    symbols: Vec<Symbol>,
    /// For each tensor of a pipeline the counter of its stage, where there is one.
    modes: BTreeMap<TensorId, Option<SymbolId>>,
}

impl Rings<'_> {
    fn block(&mut self, body: &mut [Stmt]) {
        for stmt in body {
            let mut stage = None;
            if let StmtKind::Stage { pipeline, side, slot, .. } = &mut stmt.kind {
                let row = self.v.program().pipeline(*pipeline);
                let end = if *side == Side::Produce { "produced" } else { "consumed" };
                *slot = Some(SymbolId(self.symbols.len() as u32));
                let name = format!("{}.{end}", row.name);
                self.symbols.push(Symbol { name, kind: SymbolKind::Counter, span: stmt.span });
                self.modes.extend(row.tensors.iter().map(|tensor| (*tensor, *slot)));
                stage = Some(row);
            }
            for operand in stmt.kind.operands_mut() {
                match operand {
                    OperandMut::Reference(_, r) => self.reference(r),
                    OperandMut::Body(body) => self.block(body),
                    _ => {}
                }
            }
            for tensor in stage.iter().flat_map(|row| &row.tensors) {
                self.modes.insert(*tensor, None);
            }
        }
    }

    fn reference(&self, r: &mut TensorRef) {
        let Some(Some(slot)) = self.modes.get(&r.tensor) else { return };
        r.index.resize(self.v.shape(r.tensor).len(), None);
        r.index.push(Some(Expr::Symbol(*slot)));
    }
}
