//! Values of symbols: constants of a text, and what a launch binds.

use tilewright_tile::{Axis, Code, Constants, Diagnostic, Expr, Origin, Scope, SymbolId, nearest};

use crate::program::{Formal, Program, SymbolKind, Task};

/// The values of the symbols of a program, as far as they are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment(pub Vec<Option<i64>>);

impl Scope for Environment {
    fn symbol(&self, id: SymbolId) -> Option<i64> {
        self.0.get(id.0 as usize).copied().flatten()
    }

    fn block(&self, _: Axis) -> Option<i64> {
        None
    }
}

impl Environment {
    /// The values of the constants of a program: those given by name, else their defaults.
    ///
    /// # Errors
    ///
    /// A name that is no constant, and a default without a value.
    pub fn of(program: &Program, given: &Constants) -> Result<Environment, Diagnostic> {
        let constants: Vec<&str> = program
            .symbols
            .iter()
            .filter(|row| matches!(row.kind, SymbolKind::Constant(_)))
            .map(|row| row.name.as_str())
            .collect();
        if let Some(name) = given.keys().find(|name| !constants.contains(&name.as_str())) {
            let message = format!("there is no constant `{name}`");
            let error = Diagnostic::new(Code::UnknownName, Origin::Unknown, message);
            return Err(match nearest(name, constants.iter().copied()) {
                Some(near) => error.help(format!("did you mean `{near}`?")),
                None if constants.is_empty() => error.help("the text has none"),
                None => error.help(format!("there are {}", constants.join(", "))),
            });
        }
        let mut values = Environment(vec![None; program.symbols.len()]);
        for (i, row) in program.symbols.iter().enumerate() {
            let SymbolKind::Constant(default) = &row.kind else { continue };
            let value = given.get(&row.name).copied().or_else(|| default.eval(&values));
            values.0[i] = Some(value.ok_or_else(|| {
                let message = format!("the default of the constant `{}` has no value", row.name);
                Diagnostic::new(Code::BadValue, row.span, message)
                    .help("a default is an expression over numbers and earlier constants; it may not divide by zero or overflow")
            })?);
        }
        Ok(values)
    }

    /// Gives a symbol a value.
    pub fn set(&mut self, id: SymbolId, value: i64) {
        if let Some(slot) = self.0.get_mut(id.0 as usize) {
            *slot = Some(value);
        }
    }

    /// The value of an expression.
    ///
    /// # Errors
    ///
    /// A division by zero, or an overflow.
    pub fn value(&self, program: &Program, expr: &Expr, span: Origin) -> Result<i64, Diagnostic> {
        expr.eval(self).ok_or_else(|| {
            let message = format!("`{}` has no value: it divides by zero or overflows", program.expr(expr));
            Diagnostic::new(Code::BadValue, span, message)
        })
    }

    /// Binds the extents that the shape of a formal names to those of an argument of as many modes.
    ///
    /// # Errors
    ///
    /// An extent that the argument has otherwise.
    pub fn bind_extents(
        &mut self,
        program: &Program,
        (task, formal): (&Task, &Formal),
        (shape, given): (&[Expr], &[i64]),
        at: Origin,
    ) -> Result<(), Diagnostic> {
        for (extent, given) in shape.iter().zip(given) {
            if let Expr::Symbol(symbol) = extent
                && self.0[symbol.0 as usize].is_none()
            {
                self.set(*symbol, *given);
                continue;
            }
            let expected = self.value(program, extent, formal.span)?;
            if expected != *given {
                let text = program.expr(extent);
                let shown =
                    if text == expected.to_string() { text } else { format!("`{text}` = {expected}") };
                let message = format!(
                    "`{}` has the extent {shown} in `{}`, and the argument has {given}",
                    formal.name, task.name
                );
                let error = Diagnostic::new(Code::ShapeMismatch, at, message);
                return Err(error.related(formal.span, "declared here"));
            }
        }
        Ok(())
    }
}

/// Checks that an argument has as many modes as its formal.
///
/// # Errors
///
/// Another number of modes.
pub fn check_rank(
    (task, formal): (&Task, &Formal),
    (shape, given): (&[Expr], &[i64]),
    at: Origin,
) -> Result<(), Diagnostic> {
    if given.len() == shape.len() {
        return Ok(());
    }
    let message = format!(
        "`{}` has {} modes in `{}`, and the argument has {}",
        formal.name,
        shape.len(),
        task.name,
        given.len()
    );
    Err(Diagnostic::new(Code::WrongRank, at, message).related(formal.span, "declared here"))
}
