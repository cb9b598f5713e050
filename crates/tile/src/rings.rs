//! Makes the stages of pipelines a mode of their tensors.
//!
//! Needs: a verified program. Keeps: its meaning, and every id. Afterwards each shared tensor of a pipeline has one more mode, its
//! last: the stages. In a `produce` or `consume` every reference to it fixes that mode at the counter
//! ([`StmtKind::Stage::slot`](crate::StmtKind::Stage)) that stands for the stage at hand.

use std::collections::BTreeMap;

use tilewright_layout::{Layout, SwizzledLayout};

use crate::expr::{Expr, SymbolId};
use crate::program::{Side, Stmt, StmtKind, Symbol, SymbolKind, TensorId, TensorKind, TensorRef};
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
                if let Some(layout) = pinned {
                    *pinned = staged(layout, pipeline.stages.as_int().unwrap_or(1));
                }
                shape.push(pipeline.stages.clone());
            }
        }
    }
    result.program.body = pass.block(&v.program().body);
    result.program.symbols = pass.symbols;
    result
}

/// A pinned layout of one stage, repeated: stages begin at multiples of what the swizzle repeats after.
fn staged(layout: &SwizzledLayout, stages: i64) -> Option<SwizzledLayout> {
    let swizzle = layout.swizzle;
    let period = 1i64 << (swizzle.bits() + swizzle.base() + swizzle.shift());
    let apart = layout.layout.cosize().checked_add(period - 1)? / period * period;
    let stages = Layout::from_leaves(&[(stages, apart)]).ok()?;
    let mut modes =
        (0..layout.layout.rank()).map(|i| layout.layout.mode(i)).collect::<Result<Vec<_>, _>>().ok()?;
    modes.push(stages);
    Some(SwizzledLayout { layout: Layout::concat(&modes).ok()?, swizzle })
}

struct Rings<'a> {
    v: &'a Verified,
    symbols: Vec<Symbol>,
    /// For each tensor of a pipeline the counter of its stage, where there is one.
    modes: BTreeMap<TensorId, Option<SymbolId>>,
}

impl Rings<'_> {
    fn block(&mut self, body: &[Stmt]) -> Vec<Stmt> {
        body.iter().map(|stmt| Stmt { kind: self.kind(&stmt.kind, stmt), span: stmt.span }).collect()
    }

    fn reference(&self, r: &TensorRef) -> TensorRef {
        let Some(Some(slot)) = self.modes.get(&r.tensor) else { return r.clone() };
        let mut index = r.index.clone();
        index.resize(self.v.shape(r.tensor).len(), None);
        index.push(Some(Expr::Symbol(*slot)));
        TensorRef { index, ..r.clone() }
    }

    fn kind(&mut self, kind: &StmtKind, stmt: &Stmt) -> StmtKind {
        match kind {
            StmtKind::Copy { src, dst } => {
                StmtKind::Copy { src: self.reference(src), dst: self.reference(dst) }
            }
            StmtKind::CopyAsync { src, dst, how } => {
                StmtKind::CopyAsync { src: self.reference(src), dst: self.reference(dst), how: *how }
            }
            StmtKind::GemmAsync { c, a, b, warpgroups } => StmtKind::GemmAsync {
                c: *c,
                a: self.reference(a),
                b: self.reference(b),
                warpgroups: warpgroups.clone(),
            },
            StmtKind::Stage { pipeline, side, body, .. } => {
                let row = self.v.program().pipeline(*pipeline);
                let end = if *side == Side::Produce { "produced" } else { "consumed" };
                let slot = SymbolId(self.symbols.len() as u32);
                let name = format!("{}.{end}", row.name);
                self.symbols.push(Symbol { name, kind: SymbolKind::Counter, span: stmt.span });
                let mark = |pass: &mut Self, slot| {
                    for tensor in &row.tensors {
                        pass.modes.insert(*tensor, slot);
                    }
                };
                mark(self, Some(slot));
                let body = self.block(body);
                mark(self, None);
                StmtKind::Stage { pipeline: *pipeline, side: *side, slot: Some(slot), body }
            }
            other => {
                let mut other = other.clone();
                if let Some(body) = other.body_mut() {
                    *body = self.block(body);
                }
                other
            }
        }
    }
}
