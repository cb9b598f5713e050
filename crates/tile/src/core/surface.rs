//! The surface program that says the same as a core program: the interpreter runs it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use super::{Coord, Core, Never, Program, Slot, TensorKind};
use crate::expr::{Expr, SymbolId};
use crate::program::{self, PipelineId, Side, Stmt, StmtKind, SymbolKind};
use crate::statement::{Convert, Surface};
use crate::verified::{Constants, Verified};

impl Program {
    /// The surface program that says the same, with a counter for each slot.
    pub fn surface(&self) -> Verified {
        let ints = |shape: &[i64]| shape.iter().map(|n| Expr::Int(*n)).collect();
        let tensor = |row: &super::Tensor| program::Tensor {
            name: row.name.clone(),
            dtype: row.dtype,
            kind: match &row.kind {
                TensorKind::View { param, offsets, ends, modes } => program::TensorKind::View {
                    param: *param,
                    offsets: offsets.clone(),
                    ends: ends.clone(),
                    modes: modes.clone(),
                },
                TensorKind::Shared { shape, pinned } => {
                    program::TensorKind::Shared { shape: ints(shape), pinned: pinned.clone() }
                }
                TensorKind::Register { shape, pinned } => {
                    program::TensorKind::Register { shape: ints(shape), pinned: pinned.clone() }
                }
            },
            span: row.span,
        };
        let pipeline = |row: &super::Pipeline| program::Pipeline {
            name: row.name.clone(),
            stages: Expr::Int(i64::from(row.stages)),
            tensors: row.tensors.clone(),
            span: row.span,
        };
        let mut staged = false;
        self.visit(&mut |stmt, _| {
            let slot = |coord: &Option<Coord>| matches!(coord, Some(Coord::Slot(_)));
            staged |= stmt.kind.references().iter().any(|(_, r)| r.index.iter().any(slot));
        });
        let mut convert = Raise { symbols: Vec::new(), slots: BTreeMap::new(), names: self, staged };
        let count = self.symbols.keys().next_back().map_or(0, |id| id.0 + 1);
        for i in 0..count {
            let row = self.symbols.get(&SymbolId(i));
            let kind = row.and_then(|row| row.size).map_or(SymbolKind::Counter, SymbolKind::Size);
            let (name, span) = row.map_or_else(Default::default, |row| (row.name.clone(), row.span));
            convert.symbols.push(program::Symbol { name, kind, span });
        }
        let Ok(mut body) = convert.body(&self.body);
        for role in &self.roles {
            let Ok(inner) = convert.body(&role.body);
            let kind = StmtKind::Role {
                name: role.name.clone(),
                warpgroups: Expr::Int(i64::from(role.threads / 128)),
                registers: role.registers.map(|n| Expr::Int(i64::from(n))),
                body: inner,
            };
            body.push(Stmt { id: role.id, kind, span: role.span });
        }
        let program = program::Program {
            name: self.name.clone(),
            symbols: convert.symbols,
            params: self.params.clone(),
            grid: self.grid.clone(),
            grid_span: self.threads_span,
            threads: Expr::Int(i64::from(self.threads)),
            threads_span: self.threads_span,
            cluster: Expr::Int(i64::from(self.cluster)),
            cluster_span: self.threads_span,
            tensors: self.tensors.iter().map(tensor).collect(),
            pipelines: self.pipelines.iter().map(pipeline).collect(),
            statements: self.statements.clone(),
            body,
        };
        Verified {
            source: Arc::new(program.clone()),
            program,
            constants: Constants::new(),
            threads: self.threads,
            strides: self.strides.clone(),
            outputs: self.outputs.clone(),
            inputs: self.inputs.clone(),
            elements: self.elements.clone(),
        }
    }
}

struct Raise<'a> {
    symbols: Vec<program::Symbol>,
    /// The counter of each slot of the stages that are open.
    slots: BTreeMap<Slot, SymbolId>,
    names: &'a Program,
    /// Whether stages are modes of the tensors.
    staged: bool,
}

impl Raise<'_> {
    /// The counter of a slot.
    fn counter(&mut self, slot: Slot) -> SymbolId {
        *self.slots.entry(slot).or_insert_with(|| {
            let row = self.names.pipeline(slot.pipeline);
            let name = format!("{}.{}", row.name, slot.side.end());
            self.symbols.push(program::Symbol { name, kind: SymbolKind::Counter, span: row.span });
            SymbolId((self.symbols.len() - 1) as u32)
        })
    }
}

impl Convert<Core, Surface> for Raise<'_> {
    type Error = Infallible;

    fn int(&mut self, int: &i64) -> Result<Expr, Infallible> {
        Ok(Expr::Int(*int))
    }

    fn index(&mut self, coord: &Coord) -> Result<Expr, Infallible> {
        Ok(match coord {
            Coord::Expr(e) => e.clone(),
            Coord::Slot(slot) => Expr::Symbol(self.counter(*slot)),
        })
    }

    fn slot(
        &mut self,
        (pipeline, side): (PipelineId, Side),
        (): &(),
    ) -> Result<Option<SymbolId>, Infallible> {
        Ok(self.staged.then(|| self.counter(Slot { pipeline, side })))
    }

    fn role(&mut self, name: &Never) -> Result<String, Infallible> {
        match *name {}
    }
}
