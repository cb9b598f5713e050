//! Puts the constants' values into every expression of a program.

use crate::expr::Expr;
use crate::program::{Program, SymbolKind};

/// The program with constants replaced by their values, and literals folded.
pub(super) fn program(program: &Program, values: &[Option<i64>]) -> Program {
    let mut folded = program.clone();
    for (symbol, value) in folded.symbols.iter_mut().zip(values) {
        if let (SymbolKind::Constant(default), Some(value)) = (&mut symbol.kind, value) {
            *default = Expr::Int(*value);
        }
    }
    folded.exprs_mut(&mut |e| *e = e.substitute(&|s| values.get(s.0 as usize).copied().flatten()));
    folded
}
