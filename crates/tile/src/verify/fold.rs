//! Puts the values of constants, and the integers that `let` names, into every expression of a program, and the counters around it into every
//! `print`.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::{Code, Diagnostic, Diagnostics, Origin};
use crate::expr::{Expr, SymbolId};
use crate::parser::MAX_DEPTH;
use crate::program::{Operand, Program, Stmt, StmtKind, Symbol, SymbolKind, TensorKind};

/// The most operators, names and literals that an integer comes to once the names in it are replaced.
const MAX_SIZE: usize = 10_000;

/// The program with constants replaced by their values and names of integers by these, and literals folded. A `let` stays where it
/// is.
///
/// # Errors
///
/// Names that are used outside the block of their `let`, and integers that grow too large with those that they name.
pub(super) fn program(program: &Program, values: &[Option<i64>]) -> Result<Program, Diagnostics> {
    let mut fold =
        Fold { program, values, lets: BTreeMap::new(), visible: BTreeSet::new(), errors: Vec::new() };
    fold.block(&program.body);
    if !fold.errors.is_empty() {
        return Err(Diagnostics(fold.errors));
    }
    let mut folded = program.clone();
    for (symbol, value) in folded.symbols.iter_mut().zip(values) {
        match (&mut symbol.kind, value) {
            (SymbolKind::Constant(default), Some(value)) => *default = Expr::Int(*value),
            (SymbolKind::UnrolledBy(factor), _) => *factor = fold.expr(factor),
            _ => {}
        }
    }
    folded.exprs_mut(&mut |e| *e = fold.expr(e));
    let Program { body, symbols, .. } = &mut folded;
    iterations(body, symbols, &mut Vec::new());
    Ok(folded)
}

/// Gives every `print` the counters of the loops around it, unless it has some.
fn iterations(body: &mut [Stmt], symbols: &[Symbol], around: &mut Vec<SymbolId>) {
    for stmt in body {
        if let StmtKind::Print { iteration, .. } = &mut stmt.kind {
            let counter = |id: &SymbolId| Some((symbols.get(id.0 as usize)?.name.clone(), Expr::Symbol(*id)));
            iteration.get_or_insert_with(|| around.iter().filter_map(counter).collect());
        }
        let outside = around.len();
        match &stmt.kind {
            StmtKind::For { counter, .. } => around.push(*counter),
            StmtKind::Tiles { row, col, .. } => around.extend([*row, *col]),
            _ => {}
        }
        if let Some(body) = stmt.kind.body_mut() {
            iterations(body, symbols, around);
        }
        around.truncate(outside);
    }
}

struct Fold<'a> {
    program: &'a Program,
    values: &'a [Option<i64>],
    /// The integer of each `let` so far.
    lets: BTreeMap<SymbolId, Expr>,
    /// The names that exist at the statement at hand.
    visible: BTreeSet<SymbolId>,
    errors: Vec<Diagnostic>,
}

impl Fold<'_> {
    fn expr(&self, e: &Expr) -> Expr {
        e.substitute(&|s| match self.values.get(s.0 as usize).copied().flatten() {
            Some(value) => Some(Expr::Int(value)),
            None => self.lets.get(&s).cloned(),
        })
    }

    fn block(&mut self, body: &[Stmt]) {
        let before = self.visible.clone();
        body.iter().for_each(|stmt| self.statement(stmt));
        self.visible = before;
    }

    fn statement(&mut self, stmt: &Stmt) {
        for operand in stmt.kind.operands() {
            match operand {
                Operand::Constant(e) | Operand::Expr(e) => self.sees(e, stmt.span),
                Operand::Reference(_, r) => r.index.iter().flatten().for_each(|e| self.sees(e, stmt.span)),
                Operand::Body(body) => self.block(body),
                Operand::Tensor(..)
                | Operand::Counter(..)
                | Operand::Pipeline(..)
                | Operand::Barrier(..)
                | Operand::Scalar(_)
                | Operand::Param(..) => {}
            }
        }
        for (_, id) in stmt.kind.tensors() {
            let defines = matches!(stmt.kind, StmtKind::Define(_));
            let Some(row) = self.program.tensors.get(id.0 as usize) else { continue };
            // The index of a part is the statement's, all else its definition's.
            if defines || matches!(row.kind, TensorKind::Part { .. }) {
                row.kind.clone().exprs_mut(&mut |e| self.sees(e, stmt.span));
            }
        }
        let StmtKind::Let { symbol, value } = &stmt.kind else { return };
        let value = self.expr(value);
        let name = || self.program.symbols.get(symbol.0 as usize).map_or("?", |row| &row.name);
        let problem = if value.size() > MAX_SIZE {
            format!(
                "the integer `{}` has more than {MAX_SIZE} operators once the names in it are replaced",
                name()
            )
        } else if value.height() > MAX_DEPTH {
            format!(
                "the integer `{}` is deeper than {MAX_DEPTH} levels once the names in it are replaced",
                name()
            )
        } else {
            self.visible.insert(*symbol);
            self.lets.insert(*symbol, value);
            return;
        };
        self.errors.push(Diagnostic::new(Code::BadValue, stmt.span, problem).help("name smaller parts"));
        // What follows from it is not reported.
        self.visible.insert(*symbol);
        self.lets.insert(*symbol, Expr::Int(1));
    }

    /// Asks that the names in an expression exist here.
    fn sees(&mut self, e: &Expr, span: Origin) {
        let mut unknown = Vec::new();
        e.symbols(&mut |id| {
            let row = self.program.symbols.get(id.0 as usize);
            if let Some(row) = row.filter(|row| row.kind == SymbolKind::Let)
                && !self.visible.contains(&id)
            {
                unknown.push(row);
            }
        });
        for row in unknown {
            let message = format!("`{}` is used where its `let` does not reach", row.name);
            let error = Diagnostic::new(Code::UnknownName, span, message)
                .related(row.span, "named here")
                .help("a name stands for its integer behind its `let`, to the end of the block around");
            if !self.errors.iter().any(|known| known.repeats(&error)) {
                self.errors.push(error);
            }
        }
    }
}
