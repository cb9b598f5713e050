//! Text of values and statements for the messages of lints, in the author's words.

use super::points::Sites;
use super::values::Id;
use crate::printer::elementwise_text;
use crate::program::{ElemExpr, StmtKind, UnaryOp};

/// A statement as its author wrote it, where its text is that of one statement.
pub(super) fn statement(sites: &Sites<'_>, site: usize) -> Option<String> {
    let stmt = sites.all[site].stmt;
    let text = sites.verified.source.sources.quote(stmt.span.text()?)?;
    matches!(stmt.kind, StmtKind::Elementwise { .. } if text.contains(" = ")).then_some(text)
}

/// The name of a tensor that holds a value, or the expression that gives it one.
pub(super) fn tensor(sites: &Sites<'_>, id: Id) -> Option<String> {
    let values = sites.values();
    let all = || values.assigned.iter().filter(|(_, _, of)| *of == id).map(|(_, tensor, _)| tensor);
    let named = |id: &&crate::ids::TensorId| sites.program().tensor(**id).unnamed.text().is_none();
    let tensor = sites.program().tensor(*all().find(named).or_else(|| all().next())?);
    Some(format!("`{}`", tensor.unnamed.text().unwrap_or(&tensor.name)))
}

/// The argument of the first of these functions in a statement.
pub(super) fn argument(sites: &Sites<'_>, site: usize, of: &[UnaryOp]) -> Option<String> {
    let StmtKind::Elementwise { expr, .. } = &sites.all[site].stmt.kind else { return None };
    let source = &*sites.verified.source;
    let mut found = None;
    expr.visit(&mut |part| {
        if let ElemExpr::Unary(op, inner) = part
            && of.contains(op)
        {
            found.get_or_insert_with(|| source.unnamed().said(&elementwise_text(source, inner)));
        }
    });
    found
}
