//! Assignments of expressions: shapes, types and what their leaves name.

use tilewright_machine::DType;

use super::ELEMENTWISE;
use crate::arith::{TypeClash, TypeClashReason, ValueType, rounded};
use crate::asm::instructions;
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::printer::{Names, elementwise_text};
use crate::program::{BinaryOp, ElemExpr, ParamKind, TensorId};
use crate::verify::checker::{Allowed, Checker, Life, shape_text};
use crate::verify::operands::ONE_SHAPE;

impl Checker<'_> {
    /// `dst = f(operands)`: all in registers, of shapes that `common` puts together; defines `dst` if it is new.
    pub(super) fn assignment(
        &mut self,
        dst: TensorId,
        operands: &[TensorId],
        span: Origin,
        threads: Option<u32>,
        defined: &mut Vec<usize>,
        statement: &str,
    ) -> bool {
        let mut known = Vec::new();
        for id in operands {
            known.extend(self.register(*id, span, statement).map(|operand| (*id, operand.shape)));
        }
        let shape =
            if statement == ELEMENTWISE { self.repeated(&known, span) } else { self.one_shape(&known, span) };
        let ok = known.len() == operands.len() && (shape.is_some() || known.is_empty());
        if self.life[dst.0 as usize] == Life::Undefined {
            self.define(dst, defined);
            if !ok {
                // Its shape came from a wrong operand: what follows from it is not reported.
                self.broken[dst.0 as usize] = true;
                return false;
            }
            self.definition(dst, span, threads);
        }
        let Some(target) = self.register(dst, span, statement) else { return false };
        let (Some(shape), true) = (shape, ok) else { return ok };
        if shape == target.shape {
            return true;
        }
        match known.iter().find(|(_, operand)| *operand == shape) {
            Some((other, _)) => self.shapes_differ((*other, &shape), (dst, &target.shape), span, ONE_SHAPE),
            None => {
                let (name, shape) = (self.name(dst), shape_text(&shape));
                let has = shape_text(&target.shape);
                let message = format!("`{name}` has shape {has}, and what is assigned to it has {shape}");
                self.report(
                    Diagnostic::new(Code::ShapeMismatch, span, message)
                        .related(self.program.tensor(dst).span, "defined here")
                        .help("an expression has of each mode the largest extent"),
                );
            }
        }
        false
    }

    /// The shape that all operands have.
    fn one_shape(&mut self, operands: &[(TensorId, Vec<i64>)], span: Origin) -> Option<Vec<i64>> {
        let (first, shape) = operands.first()?;
        let Some((other, differs)) = operands.iter().find(|(_, other)| other != shape) else {
            return Some(shape.clone());
        };
        self.shapes_differ((*first, shape), (*other, differs), span, ONE_SHAPE);
        None
    }

    /// The shape of an elementwise expression over these operands: of each mode the largest extent, for an extent of 1 repeats.
    fn repeated(&mut self, operands: &[(TensorId, Vec<i64>)], span: Origin) -> Option<Vec<i64>> {
        let mut common = operands.first()?.1.clone();
        // The operand that each extent is of.
        let mut of = vec![0; common.len()];
        for (i, (id, shape)) in operands.iter().enumerate() {
            let differs =
                |mode: &usize| shape[*mode] != common[*mode] && shape[*mode] != 1 && common[*mode] != 1;
            let clash = match shape.len() == common.len() {
                true => (0..common.len()).find(differs).map(|mode| of[mode]),
                false => Some(0),
            };
            if let Some(other) = clash {
                let (other, other_shape) = &operands[other];
                let rule = self.expand_help(operands);
                let rule = rule.unwrap_or_else(|| "extents are equal, or 1, which repeats".to_string());
                self.shapes_differ((*other, other_shape), (*id, shape), span, &rule);
                return None;
            }
            for mode in 0..common.len() {
                if common[mode] == 1 && shape[mode] != 1 {
                    (common[mode], of[mode]) = (shape[mode], i);
                }
            }
        }
        Some(common)
    }

    pub(super) fn elementwise(
        &mut self,
        dst: TensorId,
        expr: &ElemExpr,
        span: Origin,
        threads: Option<u32>,
        defined: &mut Vec<usize>,
    ) {
        expr.visit(&mut |leaf| self.elem_leaf(leaf, span));
        let mut operands = expr.tensors();
        operands.sort_unstable();
        operands.dedup();
        if !self.assignment(dst, &operands, span, threads, defined, ELEMENTWISE) {
            return;
        }
        let program = self.program;
        let result = program.tensor(dst);
        if let Err(clash) = rounded(expr, result.dtype, program) {
            self.type_clash(&clash, span);
        }
        self.indices(expr, (dst, Names::rank(program, dst)), span);
    }

    /// Reports types that clash in an elementwise expression.
    pub(in crate::verify) fn type_clash(&mut self, clash: &TypeClash, span: Origin) {
        let text = elementwise_text(self.program, &clash.expr);
        let (message, help) = match &clash.reason {
            TypeClashReason::Operands(x, y) => {
                let int = |x: &ValueType| *x == ValueType::Int;
                let help = if int(x) || int(y) {
                    "write `float(…)` around the integer"
                } else {
                    "cast the operands to one type first"
                };
                (format!("the operands of `{text}` have two types: {x} and {y}"), help)
            }
            TypeClashReason::Operand(found, expected) => (
                format!("`{text}` has {found} for an operand; it takes {expected}"),
                match (&clash.expr, found) {
                    (ElemExpr::Binary(BinaryOp::BitAnd, ..), ValueType::Is(DType::Bool)) => {
                        "truth values are joined by `and`: write it for `&`"
                    }
                    (ElemExpr::Binary(BinaryOp::BitOr, ..), ValueType::Is(DType::Bool)) => {
                        "truth values are joined by `or`: write it for `|`"
                    }
                    _ => "cast the operand first",
                },
            ),
            TypeClashReason::Result(found, dtype) => (
                format!(
                    "an elementwise expression and its result have one element type: `{text}` is {found}, the result {dtype}"
                ),
                "cast the operands to one type first",
            ),
            TypeClashReason::Literal(value, dtype) => (
                format!("{value} is no number of type {dtype}, which the expression has"),
                "write a number of that type, or cast the operands to f32",
            ),
            TypeClashReason::Unsupported(dtype) => (
                format!("there are no elementwise expressions on {dtype}, as in `{text}`"),
                "cast to f32, or to i32, first",
            ),
        };
        self.report(Diagnostic::new(Code::TypeMismatch, span, message).help(help));
    }

    /// Reports an `index(axis)` of a mode that the result does not have.
    fn indices(&mut self, expr: &ElemExpr, (dst, rank): (TensorId, usize), span: Origin) {
        let mut last = None;
        expr.visit(&mut |x| {
            if let ElemExpr::Index(axis) = x {
                last = last.max(Some(*axis));
            }
        });
        if let Some(axis) = last.filter(|axis| *axis as usize >= rank) {
            let message = format!("`{}` has no mode {axis}: it has {rank}", self.name(dst));
            let help = "`index(axis)` is a coordinate of the result: the first mode is 0";
            self.report(Diagnostic::new(Code::WrongRank, span, message).help(help));
        }
    }

    pub(in crate::verify) fn elem_leaf(&mut self, expr: &ElemExpr, span: Origin) {
        match expr {
            ElemExpr::Tensor(_) => {}
            ElemExpr::Number(value) => {
                if value.is_nan() {
                    self.report(Diagnostic::new(
                        Code::BadValue,
                        span,
                        "a literal of the expression is not a number",
                    ));
                }
            }
            ElemExpr::Scalar(id) => {
                let param = self.program.param(*id);
                if matches!(param.kind, ParamKind::Tensor { .. }) {
                    self.report(
                        Diagnostic::new(
                            Code::TypeMismatch,
                            span,
                            format!("the parameter `{}` is a tensor", param.name),
                        )
                        .help("copy a tile of it into a register tensor first"),
                    );
                } else if param.is_signed_integer() {
                    self.report(
                        Diagnostic::new(
                            Code::TypeMismatch,
                            span,
                            format!("the parameter `{}` is an integer", param.name),
                        )
                        .help(format!("write `float({})`", param.name)),
                    );
                }
            }
            ElemExpr::Int(e) => {
                self.expr(e, Allowed::All, span, "an integer of the expression");
            }
            ElemExpr::Asm(asm) => {
                if let Err(wrong) = instructions(&asm.text, asm.operands.len()) {
                    self.report(Diagnostic::new(Code::BadValue, span, wrong.to_string()).help(wrong.help()));
                }
                if !(0.0..=1.0).contains(&asm.within) {
                    let message = format!("`within = {}` is no part of a size", asm.within);
                    let help = "from 0 to 1: 0.001 lets the result be off by a thousandth of what it means";
                    self.report(Diagnostic::new(Code::BadValue, span, message).help(help));
                }
            }
            ElemExpr::Index(_)
            | ElemExpr::Operand(_)
            | ElemExpr::Unary(..)
            | ElemExpr::Binary(..)
            | ElemExpr::Where(_)
            | ElemExpr::Bitcast(..)
            | ElemExpr::Packed(..) => {}
        }
    }
}
