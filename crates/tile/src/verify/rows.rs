//! Checks of `if any(condition, axis) { … }`: what its body does to a row follows from that row alone, and a warp can do it without the others.

use tilewright_machine::{DType, Memory};

use super::checker::{Checker, shape_text};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::printer::{Names as _, statement_text};
use crate::program::{ShapeOp, Stmt, StmtKind, TensorId};
use crate::rows::Rows;

/// The condition of the `if any` around.
#[derive(Clone)]
pub(super) struct Deciding {
    /// The condition and the mode; its rows, unless it has none.
    condition: TensorId,
    axis: u32,
    rows: Option<Rows>,
    span: Origin,
}

impl Checker<'_> {
    /// `if any(condition, axis) { body }`.
    pub(super) fn if_any(
        &mut self,
        (condition, axis): (TensorId, u32),
        body: &[Stmt],
        threads: Option<u32>,
        span: Origin,
    ) {
        if let Some(outer) = &self.deciding {
            let message = "an `if any` within another".to_string();
            let error = Diagnostic::new(Code::Misplaced, span, message).related(outer.span, "the other");
            self.report(error.help("put both conditions into one: `if any(a and b, 1)`"));
            return;
        }
        let mut rows = None;
        if let Some(operand) = self.register(condition, span, "if any") {
            let name = self.name(condition);
            if operand.dtype != DType::Bool {
                let message =
                    format!("`if any` asks for truth values, and `{name}` is of type {}", operand.dtype);
                self.report(
                    Diagnostic::new(Code::TypeMismatch, span, message)
                        .help("compare: `if any(t > 0.0, 1) { … }`"),
                );
            }
            if self.axis("if any", name, axis, operand.shape.len(), span) {
                rows = Rows::new(operand.shape, axis);
            }
        }
        self.deciding = Some(Deciding { condition, axis, rows, span });
        self.block(body, threads, "branch");
        self.deciding = None;
    }

    /// Checks a statement in the body of an `if any`.
    pub(super) fn of_rows(&mut self, stmt: &Stmt) {
        let Some(deciding) = self.deciding.clone() else { return };
        let text = || statement_text(self.program, stmt);
        let refuse = |why: String, help: &str| {
            Diagnostic::new(Code::Misplaced, stmt.span, why)
                .related(deciding.span, "each warp decides for the rows that it holds")
                .help(help.to_string())
        };
        let along =
            format!("write it before or behind the branch, or let it go along mode {}", deciding.axis);
        let rank = |id: TensorId| self.program.rank(id);
        let whole = |id: TensorId| rank(id) == rank(deciding.condition);
        let error = match &stmt.kind {
            StmtKind::Reduce { src, axis, .. } if *axis != deciding.axis || !whole(*src) => Some(refuse(
                format!("`{}` puts rows together within `if any`, which not all rows enter", text()),
                &along,
            )),
            StmtKind::Scan { dst, axis, .. } if *axis != deciding.axis || !whole(*dst) => Some(refuse(
                format!("`{}` puts rows together within `if any`, which not all rows enter", text()),
                &along,
            )),
            StmtKind::Shape { op: ShapeOp::Expand { axis }, .. } if *axis == deciding.axis => None,
            StmtKind::Shape { op: ShapeOp::Broadcast(_), .. } => None,
            StmtKind::Define(id) if self.program.tensor(*id).memory() == Memory::Register => None,
            // A warp has its own lanes of tensor memory, and copies them alone.
            StmtKind::Copy { src, dst, .. }
                if [src, dst].iter().all(|r| {
                    let memory = self.program.tensor(self.base(r.tensor)).memory();
                    matches!(memory, Memory::Register | Memory::Tensor)
                }) =>
            {
                None
            }
            StmtKind::Elementwise { .. }
            | StmtKind::Cast { .. }
            | StmtKind::Fill { .. }
            | StmtKind::Reduce { .. }
            | StmtKind::Scan { .. }
            | StmtKind::Let { .. }
            | StmtKind::If { .. }
            | StmtKind::IfAny { .. }
            | StmtKind::For { .. } => None,
            StmtKind::WaitGemm(_) => Some(refuse(
                format!(
                    "`{}` within `if any`, which not all warps enter: the warps of a warpgroup wait together",
                    text()
                ),
                "wait behind the branch, and do what needs the sums there, in a second one: `if any(factor < 1.0, 1) { acc = acc * factor }`",
            )),
            _ => Some(refuse(
                format!("`{}` within `if any`, which not all warps enter", text()),
                "there stand elementwise statements, casts, `fill`, copies of registers and of tensor memory, and reductions and scans along the condition's mode",
            )),
        };
        if let Some(error) = error {
            self.report(error);
            return;
        }
        self.writes_rows(stmt, &deciding);
    }

    /// Checks that what a statement writes has rows of the condition.
    fn writes_rows(&mut self, stmt: &Stmt, deciding: &Deciding) {
        let Some(rows) = &deciding.rows else { return };
        let mut written = stmt.kind.writes();
        if let StmtKind::Define(id) = &stmt.kind {
            written.push(*id);
        }
        for id in written {
            let mut shape = super::checker::static_shape(&self.program.tensor(id).kind);
            // Of several parts in tensor memory a copy writes one.
            if let StmtKind::Copy { dst, .. } = &stmt.kind
                && dst.tensor == id
                && dst.index.len() == shape.len()
            {
                let modes = shape.iter().zip(&dst.index).filter(|(_, at)| at.is_none());
                shape = modes.map(|(extent, _)| *extent).collect();
            }
            if shape.contains(&0) || rows.row_modes(&shape).is_some() {
                continue;
            }
            let condition = super::checker::static_shape(&self.program.tensor(deciding.condition).kind);
            let message = format!(
                "`{}` has shape {}, which has not the rows of the condition, of shape {} along mode {}",
                self.name(id),
                shape_text(&shape),
                shape_text(&condition),
                deciding.axis
            );
            let error = Diagnostic::new(Code::ShapeMismatch, stmt.span, message)
                .related(deciding.span, "the condition");
            self.report(error.help(
                "what the branch writes has the condition's modes, with any extent along that one, or is without it",
            ));
        }
    }
}
