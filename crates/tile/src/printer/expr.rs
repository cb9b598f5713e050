//! Elementwise expressions and their numbers to text.

use std::fmt::{self, Write};

use super::int::{COMPARISON, CONDITION, CONJUNCTION, FACTOR, PRODUCT, SUM, int, int_of_elements, list};
use super::names::Names;
use crate::expr::{Expr, IntOp};
use crate::program::{BinaryOp, Combination, ElemExpr, Literal, Notation, PACKED, UnaryOp, ViewLeaf};

pub(super) fn number(out: &mut dyn Write, value: f64) -> fmt::Result {
    // The shortest text that reads back; always with a point or an exponent.
    write!(out, "{value:?}")
}

/// The text of an elementwise expression.
pub(crate) fn elementwise_text(program: &dyn Names, expr: &ElemExpr) -> String {
    let mut text = String::new();
    // Writing into a string does not fail.
    let _ = elementwise(&mut text, program, expr, BinaryOp::OR);
    text
}

/// `, outside = -inf`, if a copy says so.
pub(super) fn outside(out: &mut dyn Write, value: Option<Literal>) -> fmt::Result {
    let Some(value) = value.map(Literal::value) else { return Ok(()) };
    out.write_str(", outside = ")?;
    if value.is_nan() { out.write_str("nan") } else { number(out, value) }
}

/// The name of an operand of a function that is passed, as the text form writes the function.
fn operand_name(number: u32) -> String {
    format!("operand{number}")
}

/// Writes a function that puts tuples together.
pub(super) fn combination(out: &mut dyn Write, program: &dyn Names, by: &Combination) -> fmt::Result {
    let params: Vec<String> = (0..2 * by.results.len() as u32).map(operand_name).collect();
    write!(out, "fn({}) {{ return ", params.join(", "))?;
    list(out, &by.results, |out, result| elementwise(out, program, result, BinaryOp::OR))?;
    out.write_str(" }")
}

/// Writes an operand of an operator of level `place`, in parentheses where it binds less tightly.
pub(super) fn elementwise(
    out: &mut dyn Write,
    program: &dyn Names,
    expr: &ElemExpr,
    place: u8,
) -> fmt::Result {
    let call = |out: &mut dyn Write, name: &str, operands: &[&ElemExpr]| {
        write!(out, "{name}(")?;
        for (i, x) in operands.iter().enumerate() {
            out.write_str(if i > 0 { ", " } else { "" })?;
            elementwise(out, program, x, BinaryOp::OR)?;
        }
        out.write_str(")")
    };
    match expr {
        ElemExpr::Tensor(id) => out.write_str(program.tensor(*id)),
        ElemExpr::Number(value) => number(out, *value),
        ElemExpr::Scalar(id) => out.write_str(program.param(*id)),
        // A literal alone is a number of any type.
        ElemExpr::Int(Expr::Int(value)) => write!(out, "int({value})"),
        ElemExpr::Int(value) => {
            let level = match place {
                BinaryOp::OR => CONDITION,
                BinaryOp::AND => CONJUNCTION,
                BinaryOp::NOT..=BinaryOp::COMPARISON => COMPARISON,
                4..=BinaryOp::SUM => SUM,
                BinaryOp::PRODUCT => PRODUCT,
                _ => FACTOR,
            };
            int_of_elements(out, program, value, level)
        }
        ElemExpr::Index(axis) => write!(out, "index({axis})"),
        ElemExpr::Operand(number) => out.write_str(&operand_name(*number)),
        ElemExpr::Unary(UnaryOp::Float, x) if matches!(**x, ElemExpr::Int(Expr::Int(_))) => {
            out.write_str("float(")?;
            if let ElemExpr::Int(value) = &**x {
                int(out, program, value, SUM)?;
            }
            out.write_str(")")
        }
        ElemExpr::Unary(UnaryOp::Neg, x) => {
            out.write_str("-")?;
            elementwise(out, program, x, BinaryOp::FACTOR)
        }
        ElemExpr::Unary(UnaryOp::Not, x) => {
            let brackets = place > BinaryOp::NOT;
            out.write_str(if brackets { "(not " } else { "not " })?;
            elementwise(out, program, x, BinaryOp::NOT)?;
            out.write_str(if brackets { ")" } else { "" })
        }
        ElemExpr::Unary(op, x) => call(out, op.name(), &[x]),
        ElemExpr::Where(operands) => call(out, "where", &operands.each_ref()),
        ElemExpr::Packed(dtype, x) => {
            let name = PACKED.iter().find(|(_, of)| of == dtype).map_or("f16x2", |(name, _)| name);
            call(out, name, &[x])
        }
        ElemExpr::Bitcast(dtype, x) => {
            out.write_str("bitcast(")?;
            elementwise(out, program, x, BinaryOp::OR)?;
            write!(out, ", {dtype})")
        }
        ElemExpr::Asm(asm) => {
            write!(out, "asm(\"{}\"", asm.text)?;
            for x in &asm.operands {
                out.write_str(", ")?;
                elementwise(out, program, x, BinaryOp::OR)?;
            }
            out.write_str(", means = ")?;
            elementwise(out, program, &asm.means, BinaryOp::OR)?;
            if asm.within != 0.0 {
                out.write_str(", within = ")?;
                number(out, asm.within)?;
            }
            out.write_str(")")
        }
        ElemExpr::Binary(op, a, b) => {
            let Notation::Infix(level) = op.notation() else { return call(out, op.name(), &[a, b]) };
            let brackets = place > level;
            if brackets {
                out.write_str("(")?;
            }
            // Comparisons do not chain.
            elementwise(out, program, a, if op.compares() { level + 1 } else { level })?;
            write!(out, " {} ", op.name())?;
            elementwise(out, program, b, level + 1)?;
            if brackets {
                out.write_str(")")?;
            }
            Ok(())
        }
    }
}

/// `BK * e1`: the factors of the scale, each in parentheses where it is no atom, then the basis element.
pub(super) fn step(out: &mut dyn Write, program: &dyn Names, leaf: &ViewLeaf) -> fmt::Result {
    fn factors(out: &mut dyn Write, program: &dyn Names, scale: &Expr) -> fmt::Result {
        match scale {
            Expr::Binary(IntOp::Mul, a, b) => {
                factors(out, program, a)?;
                int(out, program, b, FACTOR)?;
            }
            _ => int(out, program, scale, FACTOR)?,
        }
        out.write_str(" * ")
    }
    if leaf.scale != Expr::Int(1) {
        factors(out, program, &leaf.scale)?;
    }
    write!(out, "e{}", leaf.dim)
}
