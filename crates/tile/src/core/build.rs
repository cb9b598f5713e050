//! The core program of a verified surface program.

use tilewright_machine::WARPGROUP;

use super::{Coord, Core, Never, Pipeline, Program, Role, Symbol, Tensor, TensorKind};
use crate::diagnostic::{Diagnostic, Origin};
use crate::expr::{Expr, SymbolId};
use crate::program::{self, PipelineId, Side, StmtKind, SymbolKind};
use crate::statement::{Convert, Surface};
use crate::verified::Verified;

/// A state that the surface's verifier should have ruled out.
fn internal(span: Origin, what: &str) -> Diagnostic {
    Diagnostic::internal(span, format_args!("the core program cannot hold {what}"))
}

/// Makes the core program of a program whose `unroll for` loops are expanded ([`unroll`](crate::unroll())).
///
/// # Errors
///
/// An integer that has no value, an `unroll for`, or a part of a register tensor: internal errors.
pub fn build(v: &Verified) -> Result<Program, Diagnostic> {
    let program = v.program();
    let mut symbols = std::collections::BTreeMap::new();
    for (i, row) in program.symbols.iter().enumerate() {
        let size = match row.kind {
            SymbolKind::Size(default) => Some(default),
            SymbolKind::Counter => None,
            // Constants have their values, counters of expanded loops theirs.
            SymbolKind::Constant(_) | SymbolKind::Unrolled => continue,
        };
        symbols.insert(SymbolId(i as u32), Symbol { name: row.name.clone(), size, span: row.span });
    }
    let mut convert = Build { span: Origin::Unknown };
    let mut tensors = Vec::new();
    for row in &program.tensors {
        convert.span = row.span;
        let kind = tensor_kind(&row.kind, &mut convert)?;
        tensors.push(Tensor { name: row.name.clone(), dtype: row.dtype, kind, span: row.span });
    }
    let mut pipelines = Vec::new();
    for row in &program.pipelines {
        convert.span = row.span;
        let stages = convert.number(&row.stages)?;
        pipelines.push(Pipeline {
            name: row.name.clone(),
            stages,
            tensors: row.tensors.clone(),
            span: row.span,
        });
    }
    let (mut body, mut roles, mut first) = (Vec::new(), Vec::new(), 0);
    for stmt in &program.body {
        convert.span = stmt.span;
        let StmtKind::Role { name, warpgroups, registers, body: inner } = &stmt.kind else {
            body.append(&mut convert.body(std::slice::from_ref(stmt))?);
            continue;
        };
        let threads = WARPGROUP * convert.number(warpgroups)?;
        let registers = registers.as_ref().map(|n| convert.number(n)).transpose()?;
        let (name, inner) = (name.clone(), convert.body(inner)?);
        roles.push(Role { name, first, threads, registers, id: stmt.id, span: stmt.span, body: inner });
        first += threads;
    }
    Ok(Program {
        name: program.name.clone(),
        symbols,
        params: program.params.clone(),
        strides: v.strides.clone(),
        outputs: v.outputs.clone(),
        inputs: v.inputs.clone(),
        elements: v.elements.clone(),
        grid: program.grid.clone(),
        threads: v.threads(),
        threads_span: program.threads_span,
        cluster: convert.number(&program.cluster)?,
        tensors,
        pipelines,
        statements: program.statements.clone(),
        body,
        roles,
    })
}

fn tensor_kind(kind: &program::TensorKind, convert: &mut Build) -> Result<TensorKind, Diagnostic> {
    Ok(match kind {
        program::TensorKind::View { param, offsets, ends, modes } => TensorKind::View {
            param: *param,
            offsets: offsets.clone(),
            ends: ends.clone(),
            modes: modes.clone(),
        },
        program::TensorKind::Shared { shape, pinned } => {
            TensorKind::Shared { shape: convert.ints(shape)?, pinned: pinned.clone() }
        }
        program::TensorKind::Register { shape, pinned } => {
            TensorKind::Register { shape: convert.ints(shape)?, pinned: pinned.clone() }
        }
        program::TensorKind::Part { .. } => {
            return Err(internal(convert.span, "a part of a register tensor"));
        }
    })
}

/// The conversion of what is written at a place.
struct Build {
    span: Origin,
}

impl Build {
    fn ints(&mut self, list: &[Expr]) -> Result<Vec<i64>, Diagnostic> {
        list.iter().map(|e| self.int(e)).collect()
    }

    /// A number that is not negative.
    fn number(&mut self, e: &Expr) -> Result<u32, Diagnostic> {
        let value = self.int(e)?;
        u32::try_from(value).map_err(|_| internal(self.span, "such a number"))
    }
}

impl Convert<Surface, Core> for Build {
    type Error = Diagnostic;

    fn int(&mut self, e: &Expr) -> Result<i64, Diagnostic> {
        e.as_int().ok_or_else(|| internal(self.span, "an integer without a value"))
    }

    fn index(&mut self, e: &Expr) -> Result<Coord, Diagnostic> {
        Ok(Coord::Expr(e.clone()))
    }

    fn slot(&mut self, _: (PipelineId, Side), slot: &Option<SymbolId>) -> Result<(), Diagnostic> {
        match slot {
            None => Ok(()),
            Some(_) => Err(internal(self.span, "a counter of stages")),
        }
    }

    fn role(&mut self, _: &String) -> Result<Never, Diagnostic> {
        Err(internal(self.span, "a role within another"))
    }
}
