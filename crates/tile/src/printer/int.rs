//! Integer expressions and lists to text.

use std::fmt::{self, Write};

use super::names::Names;
use crate::expr::{Axis, Expr, IntOp};

/// The precedence of a place: an expression that binds less there needs parentheses.
pub(super) const CONDITION: u8 = 0;
pub(super) const CONJUNCTION: u8 = 1;
pub(super) const COMPARISON: u8 = 2;
pub(super) const SUM: u8 = 3;
pub(super) const PRODUCT: u8 = 4;
pub(super) const FACTOR: u8 = 5;

/// An integer expression in the program's names.
pub fn expr_text(program: &dyn Names, expr: &Expr) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = int(&mut text, program, expr, SUM);
    text
}

/// Writes an integer expression.
pub(crate) fn write_expr(out: &mut dyn Write, program: &dyn Names, expr: &Expr) -> fmt::Result {
    int(out, program, expr, SUM)
}

pub(super) fn int(out: &mut dyn Write, program: &dyn Names, expr: &Expr, place: u8) -> fmt::Result {
    write(out, program, expr, place, Place::Integers)
}

/// An integer expression among elements, where literals alone are numbers of any type: a quotient of two, which is none of integers if it is by
/// 0, says that it is of integers.
pub(super) fn int_of_elements(
    out: &mut dyn Write,
    program: &dyn Names,
    expr: &Expr,
    place: u8,
) -> fmt::Result {
    write(out, program, expr, place, Place::Elements)
}

/// The expressions around an integer.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Integers,
    Elements,
}

fn write(out: &mut dyn Write, program: &dyn Names, expr: &Expr, place: u8, around: Place) -> fmt::Result {
    match expr {
        // The literal without its sign would not fit.
        Expr::Int(i64::MIN) => write!(out, "(-{} - 1)", i64::MAX),
        Expr::Int(value) => write!(out, "{value}"),
        Expr::Symbol(id) => out.write_str(program.symbol(*id)),
        Expr::Block(axis) => out.write_str(match axis {
            Axis::X => "block.x",
            Axis::Y => "block.y",
            Axis::Z => "block.z",
        }),
        Expr::Element(param, index) => {
            write!(out, "{}[", program.param(*param))?;
            ints(out, program, index)?;
            out.write_str("]")
        }
        Expr::Scalar(param) => out.write_str(program.param(*param)),
        Expr::Binary(op, a, b) => {
            let (sign, level) = match op {
                IntOp::Add => ("+", SUM),
                IntOp::Sub => ("-", SUM),
                IntOp::Mul => ("*", PRODUCT),
                IntOp::Div => ("/", PRODUCT),
                IntOp::Rem => ("%", PRODUCT),
                IntOp::Eq => ("==", COMPARISON),
                IntOp::Ne => ("!=", COMPARISON),
                IntOp::Lt => ("<", COMPARISON),
                IntOp::Le => ("<=", COMPARISON),
                IntOp::Gt => (">", COMPARISON),
                IntOp::Ge => (">=", COMPARISON),
                IntOp::And => ("and", CONJUNCTION),
                IntOp::Or => ("or", CONDITION),
                // Its operands are read as integers wherever it stands.
                IntOp::CeilDiv => return call(out, program, "ceil_div", (a, b), Place::Integers),
                IntOp::Min => return call(out, program, "min", (a, b), around),
                IntOp::Max => return call(out, program, "max", (a, b), around),
            };
            let brackets = place > level;
            if brackets {
                out.write_str("(")?;
            }
            if let (Place::Elements, Expr::Int(first), Expr::Int(_)) = (around, &**a, &**b) {
                write!(out, "int({first})")?;
            } else {
                // A comparison does not follow another without parentheses.
                write(out, program, a, if level == COMPARISON { SUM } else { level }, around)?;
            }
            write!(out, " {sign} ")?;
            write(out, program, b, level + 1, around)?;
            if brackets {
                out.write_str(")")?;
            }
            Ok(())
        }
    }
}

fn call(
    out: &mut dyn Write,
    program: &dyn Names,
    name: &str,
    (a, b): (&Expr, &Expr),
    around: Place,
) -> fmt::Result {
    write!(out, "{name}(")?;
    write(out, program, a, SUM, around)?;
    out.write_str(", ")?;
    write(out, program, b, SUM, around)?;
    out.write_str(")")
}

pub(crate) fn list<T>(
    out: &mut dyn Write,
    items: &[T],
    mut item: impl FnMut(&mut dyn Write, &T) -> fmt::Result,
) -> fmt::Result {
    for (i, value) in items.iter().enumerate() {
        let mut text = String::new();
        item(&mut text, value)?;
        write!(out, "{}{text}", if i > 0 { ", " } else { "" })?;
    }
    Ok(())
}

pub(crate) fn ints(out: &mut dyn Write, program: &dyn Names, items: &[Expr]) -> fmt::Result {
    list(out, items, |out, e| int(out, program, e, SUM))
}
