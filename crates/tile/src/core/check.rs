//! The check of a core program that an author wrote: its invariants, and the rules of the language for the surface program that says the
//! same.

use tilewright_layout::{Layout, SwizzledLayout};

use super::{Coord, Core, Never, Program, Slot, Tensor, TensorKind, TensorRef, verify::violation};
use crate::diagnostic::{Code, Diagnostic, Diagnostics};
use crate::expr::{Expr, SymbolId};
use crate::program::{self, StmtKind, SymbolKind, TensorId};
use crate::sources::Sources;
use crate::statement::{self, Convert, Surface};
use crate::verified::{Constants, Verified};
use crate::verify as language;

/// Checks a core program that [`parse`](super::parse()) read: its invariants ([`verify`](super::verify())), and the rules of the language
/// ([`verify`](crate::verify())) for the surface program that says the same, which is the result.
///
/// # Errors
///
/// A violated invariant ([`Code::Invariant`]); or every violation of the language's rules, up to fifty.
pub fn check(program: &Program) -> Result<Verified, Diagnostics> {
    if let Some((span, violated)) = violation(program) {
        let message = format!("the core program violates {violated}");
        return Err(Diagnostic::new(Code::Invariant, span, message).into());
    }
    // The size of a tensor is legal where that of its stage is: pipelines have 64 stages at most.
    let verified = language::verify(&program.to_surface()?, &Constants::new())?;
    let problems: Vec<_> =
        program.staged().into_iter().filter_map(|id| layout_problem(program, id)).collect();
    if problems.is_empty() { Ok(verified) } else { Err(Diagnostics(problems)) }
}

/// The reason why a tensor with stages cannot have its layout.
fn layout_problem(program: &Program, id: TensorId) -> Option<Diagnostic> {
    let row = program.tensor(id);
    let TensorKind::Shared { shape, pinned: Some(layout) } = &row.kind else { return None };
    let mut halves = false;
    program.visit(&mut |stmt, _| halves |= language::is_half(&stmt.kind, id));
    let message = language::shared_layout_problem(&row.name, layout, shape, halves)?;
    Some(Diagnostic::new(Code::LayoutConflict, row.span, message).help(language::SHARED_LAYOUT))
}

impl Program {
    /// The surface program that says the same, without the mode of stages: there, the name of a tensor of a pipeline stands for that of the
    /// stage at hand.
    ///
    /// # Errors
    ///
    /// A slot that is not the last entry of an index, where the invariants do not hold: an internal error.
    pub fn to_surface(&self) -> Result<program::Program, Diagnostic> {
        let staged = self.staged();
        let tensors = self.tensors.iter().enumerate();
        let tensors = tensors.map(|(i, row)| tensor(row, staged.contains(&TensorId(i as u32))));
        let pipeline = |row: &super::Pipeline| program::Pipeline {
            name: row.name.clone(),
            stages: Expr::Int(i64::from(row.stages)),
            tensors: row.tensors.clone(),
            span: row.span,
        };
        let count = self.symbols.keys().next_back().map_or(0, |id| id.0 + 1);
        let symbol = |i: u32| {
            let row = self.symbols.get(&SymbolId(i));
            let kind = row.and_then(|row| row.size).map_or(SymbolKind::Counter, SymbolKind::Size);
            let (name, span) = row.map_or_else(Default::default, |row| (row.name.clone(), row.span));
            program::Symbol { name, kind, span }
        };
        let mut convert = Unstage;
        let mut body = convert.body(&self.body)?;
        for role in &self.roles {
            let kind = StmtKind::Role {
                name: role.name.clone(),
                warpgroups: Expr::Int(i64::from(role.threads / 128)),
                registers: role.registers.map(|n| Expr::Int(i64::from(n))),
                body: convert.body(&role.body)?,
            };
            body.push(program::Stmt { id: role.id, kind, span: role.span });
        }
        Ok(program::Program {
            name: self.name.clone(),
            symbols: (0..count).map(symbol).collect(),
            params: self.params.clone(),
            grid: self.grid.clone(),
            grid_span: self.grid_span,
            threads: Expr::Int(i64::from(self.threads)),
            threads_span: self.threads_span,
            resident: Expr::Int(i64::from(self.resident)),
            cluster: self.cluster.iter().map(|extent| Expr::Int(i64::from(*extent))).collect(),
            cluster_span: self.cluster_span,
            tensors: tensors.collect(),
            pipelines: self.pipelines.iter().map(pipeline).collect(),
            barriers: self.barriers.clone(),
            statements: self.statements.clone(),
            body,
            space: Vec::new(),
            sources: Sources::default(),
        })
    }
}

/// A tensor; of one with stages, a single stage.
fn tensor(row: &Tensor, staged: bool) -> program::Tensor {
    let ints = |shape: &[i64]| shape.iter().map(|n| Expr::Int(*n)).collect();
    let kind = match &row.kind {
        TensorKind::View { param, offsets, ends, modes, fold } => program::TensorKind::View {
            param: *param,
            offsets: offsets.clone(),
            ends: ends.clone(),
            modes: modes.clone(),
            fold: fold.clone(),
        },
        TensorKind::Shared { shape, pinned } => match shape.split_last().filter(|_| staged) {
            Some((_, stage)) => {
                program::TensorKind::Shared { shape: ints(stage), pinned: pinned.as_ref().map(first_stage) }
            }
            None => program::TensorKind::Shared { shape: ints(shape), pinned: pinned.clone() },
        },
        TensorKind::Tensor { shape } => program::TensorKind::Tensor { shape: ints(shape) },
        TensorKind::Register { shape, pinned } => {
            program::TensorKind::Register { shape: ints(shape), pinned: pinned.clone() }
        }
    };
    let (name, unnamed) = (row.name.clone(), row.unnamed.clone());
    program::Tensor { name, dtype: row.dtype, kind, span: row.span, unnamed }
}

/// The layout of the first stage; one of too few modes stays what it is.
fn first_stage(pinned: &SwizzledLayout) -> SwizzledLayout {
    let modes = pinned.layout.modes();
    let stage = modes.split_last().and_then(|(_, stage)| Layout::concat(stage).ok());
    stage.map_or_else(|| pinned.clone(), |layout| SwizzledLayout { layout, swizzle: pinned.swizzle })
}

/// The conversion of statements, whose tensors lose their mode of stages.
struct Unstage;

impl Convert<Core, Surface> for Unstage {
    type Error = Diagnostic;

    fn int(&mut self, int: &i64) -> Result<Expr, Diagnostic> {
        Ok(Expr::Int(*int))
    }

    fn index(&mut self, coord: &Coord) -> Result<Expr, Diagnostic> {
        match coord {
            Coord::Expr(e) => Ok(e.clone()),
            Coord::Slot(Slot { .. }) => {
                Err(Diagnostic::internal(crate::Origin::Unknown, "a slot before the last mode"))
            }
        }
    }

    fn role(&mut self, name: &Never) -> Result<String, Diagnostic> {
        match *name {}
    }

    fn reference(&mut self, r: &TensorRef) -> Result<statement::TensorRef, Diagnostic> {
        let kept = match r.index.split_last() {
            // What keeps every mode of the stage is the tensor's name alone.
            Some((Some(Coord::Slot(_)), kept)) if kept.iter().all(Option::is_none) && r.indexed.is_none() => {
                &[]
            }
            Some((Some(Coord::Slot(_)), kept)) => kept,
            _ => &r.index[..],
        };
        let index = kept.iter().map(|entry| entry.as_ref().map(|e| self.index(e)).transpose());
        let index = index.collect::<Result<_, _>>()?;
        let statement::TensorRef { tensor, indexed, transposed, span, .. } = *r;
        Ok(statement::TensorRef { tensor, index, indexed, transposed, span })
    }
}
