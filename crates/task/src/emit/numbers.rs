//! Integers of the graph as expressions of the tile language.

use tilewright_tile::{Diagnostic, Expr, IntOp, Origin};

use super::{Emit, Res};
use crate::piece::{Affine, Guard, Term, Var};

impl Emit<'_> {
    /// The expression of a form: what is added, the constant, then what is taken away.
    pub(super) fn expr(&self, form: &Affine, span: Origin) -> Res<Expr> {
        let mut sum: Option<Expr> = None;
        for (term, factor) in form.terms().iter().filter(|(_, factor)| *factor > 0) {
            let product = Expr::binary(IntOp::Mul, self.term(term, span)?, Expr::Int(*factor));
            sum = Some(match sum {
                Some(sum) => Expr::binary(IntOp::Add, sum, product),
                None => product,
            });
        }
        let rest = form.rest();
        let mut sum = match sum {
            Some(sum) if rest < 0 => Expr::binary(IntOp::Sub, sum, Expr::Int(rest.saturating_neg())),
            Some(sum) => Expr::binary(IntOp::Add, sum, Expr::Int(rest)),
            None => Expr::Int(rest),
        };
        for (term, factor) in form.terms().iter().filter(|(_, factor)| *factor < 0) {
            let by = Expr::Int(factor.saturating_neg());
            sum = Expr::binary(IntOp::Sub, sum, Expr::binary(IntOp::Mul, self.term(term, span)?, by));
        }
        Ok(sum)
    }

    fn term(&self, term: &Term, span: Origin) -> Res<Expr> {
        match term {
            Term::Var(var) => self.var(*var, span),
            Term::Digit { of, below, extent } => {
                let over = Expr::binary(IntOp::Div, self.var(*of, span)?, Expr::Int(*below));
                Ok(Expr::binary(IntOp::Rem, over, Expr::Int(*extent)))
            }
        }
    }

    fn var(&self, var: Var, span: Origin) -> Res<Expr> {
        if let Some(expr) = self.bound.get(&var) {
            return Ok(expr.clone());
        }
        match &self.vars.row(var).definition {
            Some((op, a, b)) => Ok(Expr::binary(*op, self.expr(a, span)?, self.expr(b, span)?)),
            None => {
                let name = self.vars.text(&Affine::var(var));
                Err(Diagnostic::internal(span, format!("`{name}` has no value at this place")))
            }
        }
    }

    /// The conditions as one integer: 1 where all hold, else 0. Nothing of none.
    pub(super) fn condition(&self, guards: &[Guard], span: Origin) -> Res<Option<Expr>> {
        let mut all: Option<Expr> = None;
        for guard in guards {
            // The constant stands on the other side.
            let rest = guard.form().rest();
            let form = self.expr(&guard.form().plus(&Affine::constant(rest), -1), span)?;
            let one = match guard {
                Guard::Zero(_) => Expr::binary(IntOp::Eq, form, Expr::Int(-rest)),
                Guard::AtLeastZero(_) => Expr::binary(IntOp::Ge, form, Expr::Int(-rest)),
            };
            all = Some(match all {
                Some(all) => Expr::binary(IntOp::And, all, one),
                None => one,
            });
        }
        Ok(all)
    }
}
