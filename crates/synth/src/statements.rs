//! The statements of a program, as synthesis goes through them.

use tilewright_tile::core::{Program, Stmt};

/// Every statement, in the order of [`Program::visit`], with the depth of loops around it.
pub fn statements(verified: &Program) -> Vec<(&Stmt, usize)> {
    let mut all = Vec::new();
    verified.visit(&mut |stmt, depth| all.push((stmt, depth)));
    all
}
