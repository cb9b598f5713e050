//! A lint about scales of quotients in narrow types: the largest magnitude has to become the largest number of the type.

use tilewright_machine::DType;

use super::points::Sites;
use super::recurrence::is_reduction;
use super::values::{Id, Node, Values};
use crate::diagnostic::{Code, Diagnostic};
use crate::program::{BinaryOp, ReduceOp, UnaryOp};

/// Part by which the largest number may lie beyond the type's: 128 instead of 127 is common.
const BEYOND: f64 = 1.05;

/// The largest number of a type of 8 bits or fewer.
fn end_of(dtype: DType) -> Option<f64> {
    match dtype {
        DType::E4M3 | DType::UE4M3 => Some(448.0),
        DType::E2M1 => Some(6.0),
        DType::E2M3 => Some(7.5),
        DType::E3M2 => Some(28.0),
        DType::E5M2 => Some(57344.0),
        _ => dtype.range().filter(|_| dtype.bits() <= 8).map(|(_, most)| most as f64),
    }
}

/// The operand of a value without casts, roundings, changes of shape and bounds that are numbers.
fn bare(values: &Values, id: Id) -> Id {
    match values.node(id) {
        Node::Cast(_, x)
        | Node::Shape(_, x)
        | Node::Cluster(_, x)
        | Node::Unary(UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil, x) => bare(values, *x),
        Node::Binary(BinaryOp::Max | BinaryOp::Min, x, y) if values.number(*y).is_some() => bare(values, *x),
        Node::Binary(BinaryOp::Max | BinaryOp::Min, x, y) if values.number(*x).is_some() => bare(values, *y),
        _ => id,
    }
}

/// True for the largest magnitude of a number along a mode.
fn is_magnitude(values: &Values, id: Id, number: Id) -> bool {
    let id = bare(values, id);
    let Node::Reduce(_, _, of) = values.node(id) else { return false };
    let Node::Unary(UnaryOp::Abs, x) = values.node(bare(values, *of)) else { return false };
    is_reduction(values, id, ReduceOp::Max) && bare(values, *x) == bare(values, number)
}

/// The number that the largest magnitude becomes, and the value that says so.
fn largest(values: &Values, id: Id) -> Option<(f64, Id)> {
    let quotient = |op: BinaryOp| matches!(op, BinaryOp::Div | BinaryOp::FastDiv);
    let scale = |id: Id| match values.node(id) {
        Node::Binary(op, most, by) if quotient(*op) => Some((*most, values.number(*by)?)),
        Node::Binary(BinaryOp::Mul, x, y) => match (values.number(*x), values.number(*y)) {
            (Some(factor), _) => Some((*y, 1.0 / factor)),
            (_, Some(factor)) => Some((*x, 1.0 / factor)),
            _ => None,
        },
        _ => None,
    };
    let inverse = |id: Id| match values.node(id) {
        Node::Binary(op, by, most) if quotient(*op) => Some((*most, values.number(*by)?)),
        _ => None,
    };
    let of = |number: Id, at: Id, found: Option<(Id, f64)>| {
        let (_, by) = found.filter(|(most, _)| is_magnitude(values, *most, number))?;
        Some((by, at))
    };
    match values.node(id) {
        Node::Binary(op, x, by) if quotient(*op) => of(*x, bare(values, *by), scale(bare(values, *by))),
        Node::Binary(BinaryOp::Mul, x, y) => [(*x, *y), (*y, *x)].into_iter().find_map(|(x, by)| {
            let by = bare(values, by);
            of(x, by, inverse(by))
        }),
        _ => None,
    }
}

/// Scales by which the largest magnitude becomes more than the type holds.
pub(super) fn beyond_types(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for value in &values.all {
        let Node::Cast(dtype, x) = &value.node else { continue };
        let Some(most) = end_of(*dtype) else { continue };
        let Some((by, at)) = largest(values, bare(values, *x)).filter(|(by, _)| *by > most * BEYOND) else {
            continue;
        };
        let share = 100.0 * (1.0 - most / by);
        let message = format!(
            "by this scale the largest magnitude becomes {by}, and {dtype} ends at {most}: magnitudes in the upper {share:.0} % of the range saturate"
        );
        found.push(
            Diagnostic::new(Code::ScaleBeyondType, sites.all[values.all[at].site].stmt.span, message)
                .related(sites.all[value.site].stmt.span, format!("rounded to {dtype} with this scale"))
                .help(format!("put `{most:.1}` in the place of `{by:.1}`")),
        );
    }
    found
}
