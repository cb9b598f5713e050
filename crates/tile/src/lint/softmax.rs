//! Lints about softmax: masks that leave a weight, exponentials that overflow, and statistics along another axis.
//!
//! A softmax is known by its quotient: exponentials, or what is computed of them, by their sum. The sum may be carried by a loop, or put together over a
//! cluster. The logarithm of such a sum counts, too.

use std::collections::BTreeSet;

use super::points::Sites;
use super::text::{argument, tensor};
use super::values::{Id, Node, Values};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{BinaryOp, ReduceOp, ShapeOp, UnaryOp};

/// Steps behind a value that are looked at.
const STEPS: usize = 24;

/// Number from which on a masked score has a weight: exp(-16) of the largest is 1e-7.
const WEIGHT: f64 = -16.0;

fn span(sites: &Sites<'_>, site: usize) -> Origin {
    sites.all[site].stmt.span
}

fn is_quotient(op: BinaryOp) -> bool {
    matches!(op, BinaryOp::Div | BinaryOp::FastDiv)
}

/// True for a number, or a scalar or an integer of the launch.
fn is_scalar(values: &Values, id: Id) -> bool {
    values.number(id).is_some()
        || match values.node(id) {
            Node::Scalar(_) | Node::Integer(_) => true,
            Node::Cast(_, x) | Node::Unary(_, x) => is_scalar(values, *x),
            Node::Binary(_, x, y) => is_scalar(values, *x) && is_scalar(values, *y),
            _ => false,
        }
}

/// True if elements along a mode may differ in a value.
fn varies(values: &Values, id: Id, axis: usize) -> bool {
    let value = &values.all[id];
    if value.shape.get(axis).is_some_and(|extent| *extent == 1) {
        return false;
    }
    let on = |x: Id| varies(values, x, axis);
    match &value.node {
        Node::Number(_) | Node::Integer(_) | Node::Scalar(_) => false,
        Node::Index(of) => *of as usize == axis,
        Node::Unary(_, x) | Node::Cast(_, x) => on(*x),
        Node::Binary(_, x, y) => on(*x) || on(*y),
        Node::Where(operands) => operands.iter().any(|x| on(*x)),
        Node::Shape(ShapeOp::Expand { axis: new }, x) => match *new as usize {
            new if new == axis => false,
            new => varies(values, *x, axis - usize::from(axis > new)),
        },
        Node::Shape(ShapeOp::Broadcast(_), x) if values.all[*x].shape.len() == value.shape.len() => on(*x),
        _ => true,
    }
}

/// An exponential that is added up.
#[derive(Clone, Copy)]
struct Exponential {
    id: Id,
    argument: Id,
    /// True if a mask has replaced some behind the exponential.
    masked: bool,
    /// The mode along which one reduction adds them.
    axis: Option<usize>,
    /// The reduction.
    sum: Id,
    /// True if a loop adds up such sums.
    carried: bool,
}

/// The exponentials among the elements of a value.
fn exponentials(values: &Values, id: Id, masked: bool, depth: usize) -> Vec<(Id, Id, bool)> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let on = |x: Id, masked: bool| exponentials(values, x, masked, depth);
    match values.node(id) {
        Node::Unary(UnaryOp::Exp | UnaryOp::Exp2, x) => vec![(id, *x, masked)],
        Node::Cast(_, x) => on(*x, masked),
        Node::Where([_, x, y]) => on(*x, true).into_iter().chain(on(*y, true)).collect(),
        _ => Vec::new(),
    }
}

/// The exponentials of which a value is the sum; nothing where it is another sum.
fn added(values: &Values, id: Id, seen: &mut BTreeSet<Id>) -> Option<Vec<Exponential>> {
    if !seen.insert(id) {
        return Some(Vec::new());
    }
    match values.node(id) {
        Node::Number(_) => Some(Vec::new()),
        Node::Cast(_, x) | Node::Shape(_, x) | Node::Cluster(_, x) => added(values, *x, seen),
        Node::Binary(BinaryOp::Max, x, y) if values.number(*y).is_some() => added(values, *x, seen),
        Node::Binary(BinaryOp::Max, x, y) if values.number(*x).is_some() => added(values, *y, seen),
        Node::Binary(BinaryOp::Add, x, y) => {
            let (mut left, right) = (added(values, *x, seen)?, added(values, *y, seen)?);
            left.extend(right);
            Some(left)
        }
        Node::Reduce(ReduceOp::Sum, axis, x) => {
            let found = exponentials(values, *x, false, STEPS);
            if found.is_empty() {
                let of = added(values, *x, seen)?;
                return Some(of.into_iter().map(|of| Exponential { axis: None, ..of }).collect());
            }
            let axis = Some(*axis as usize);
            let of =
                |(id, argument, masked)| Exponential { id, argument, masked, axis, sum: *x, carried: false };
            Some(found.into_iter().map(of).collect())
        }
        Node::Carried(head, tensor) => {
            let [entry, back] = values.sides(*head, *tensor);
            let mut all = added(values, entry?, seen)?;
            let around = added(values, back?, seen)?;
            all.extend(around.into_iter().map(|of| Exponential { carried: true, ..of }));
            Some(all)
        }
        _ => None,
    }
}

/// A quotient by a sum of exponentials, or the logarithm of one.
struct Softmax {
    /// The quotient's dividend, and the other operand: the divisor, or its inverse.
    quotient: Option<[Id; 2]>,
    id: Id,
    of: Vec<Exponential>,
}

fn all(values: &Values) -> Vec<Softmax> {
    let sum = |id: Id| added(values, id, &mut BTreeSet::new()).filter(|all| !all.is_empty());
    let mut found = Vec::new();
    for (id, value) in values.all.iter().enumerate() {
        let inverse = |x: Id| match values.node(values.plain(x)) {
            Node::Binary(op, one, by) if is_quotient(*op) && values.number(*one) == Some(1.0) => Some(*by),
            _ => None,
        };
        let quotient = match &value.node {
            Node::Binary(op, x, by) if is_quotient(*op) => Some(([*x, *by], *by)),
            Node::Binary(BinaryOp::Mul, x, y) => match (inverse(*x), inverse(*y)) {
                (_, Some(by)) => Some(([*x, *y], by)),
                (Some(by), _) => Some(([*y, *x], by)),
                _ => None,
            },
            _ => None,
        };
        if let Some((operands, by)) = quotient
            && let Some(mut exponentials) = sum(by)
        {
            let behind = values.behind(&operands[..1], |_| true);
            exponentials.retain(|x| behind.contains(&x.id));
            found.push(Softmax { quotient: Some(operands), id, of: exponentials });
        }
        if let Node::Unary(UnaryOp::Log | UnaryOp::Log2, x) = &value.node
            && let Some(of) = sum(*x)
        {
            found.push(Softmax { quotient: None, id, of });
        }
    }
    found
}

/// True for numbers that may be of any size: elements of a buffer, products of such, multiples of them.
fn is_unbounded(values: &Values, id: Id, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let on = |x: Id| is_unbounded(values, x, depth);
    let factor = |x: Id| is_scalar(values, x) && values.number(x).is_none_or(|x| x > 0.0);
    let side = |x: Id| values.number(x).is_some() || on(x);
    match values.node(id) {
        Node::Load(_) | Node::Slot(..) => {
            values.all[id].dtype.is_some_and(|dtype| dtype.is_float() && dtype.bits() >= 16)
        }
        Node::Product(..) => true,
        Node::Cast(_, x) | Node::Shape(_, x) => on(*x),
        Node::Binary(BinaryOp::Mul, x, y) => on(*x) && factor(*y) || on(*y) && factor(*x),
        Node::Binary(BinaryOp::Div | BinaryOp::FastDiv, x, y) => on(*x) && factor(*y),
        Node::Where([_, x, y]) => side(*x) && side(*y) && (on(*x) || on(*y)),
        Node::Carried(head, tensor) => {
            let back = values.sides(*head, *tensor)[1];
            back.is_some_and(|back| matches!(values.node(back), Node::Product(..)))
        }
        _ => false,
    }
}

/// A wrong way to keep exponentials small.
enum Wrong {
    /// Nothing is subtracted.
    Nothing,
    /// The minimum is: it, and the number.
    Minimum(Id, Id),
    /// The numbers are subtracted from their maximum: it, and the number.
    Reversed(Id, Id),
}

/// The extremum that a value is, with the operand.
fn extremum(values: &Values, id: Id) -> Option<(ReduceOp, Id)> {
    match values.node(values.plain(id)) {
        Node::Reduce(op @ (ReduceOp::Max | ReduceOp::Min), _, x) => Some((*op, values.plain(*x))),
        _ => None,
    }
}

fn wrong(values: &Values, argument: Id) -> Option<Wrong> {
    let id = match values.node(argument) {
        Node::Binary(BinaryOp::Mul, x, y) if values.number(*y).is_some_and(|y| y > 0.0) => values.plain(*x),
        _ => values.plain(argument),
    };
    if let Node::Binary(BinaryOp::Sub, x, y) = values.node(id) {
        return match (extremum(values, *x), extremum(values, *y)) {
            (_, Some((ReduceOp::Min, of))) if of == values.plain(*x) => Some(Wrong::Minimum(*y, *x)),
            (Some((ReduceOp::Max, of)), _) if of == values.plain(*y) => Some(Wrong::Reversed(*x, *y)),
            _ => None,
        };
    }
    is_unbounded(values, id, STEPS).then_some(Wrong::Nothing)
}

/// Exponentials of a softmax that overflow, for the maximum is not subtracted.
pub(super) fn maxima_not_subtracted(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for softmax in all(values) {
        for of in &softmax.of {
            let Some(wrong) = wrong(values, of.argument) else { continue };
            let site = values.all[of.id].site;
            let base2 = matches!(values.node(of.id), Node::Unary(UnaryOp::Exp2, _));
            let (word, most) = if base2 { ("exp2", "128") } else { ("exp", "89") };
            let text = argument(sites, site, &[UnaryOp::Exp, UnaryOp::Exp2]).unwrap_or("x".to_string());
            let overflow = format!("`{word}` is inf from {most} on, and inf / inf is no number");
            let named = |id: Id| {
                tensor(sites, id).or_else(|| tensor(sites, values.plain(id))).unwrap_or("x".to_string())
            };
            let (message, help) = match wrong {
                Wrong::Nothing => (
                    format!("a softmax of `{text}` from which the maximum is not subtracted: {overflow}"),
                    subtracted(values, of, word, &text),
                ),
                Wrong::Minimum(least, x) => (
                    format!(
                        "the minimum is subtracted before `{word}`, which is at least 1 then: {overflow}"
                    ),
                    format!(
                        "subtract the maximum from {}: `max` in the place of `min` in {}",
                        named(x),
                        named(least)
                    ),
                ),
                Wrong::Reversed(most, x) => (
                    format!("the largest number has the smallest weight here, and {overflow}"),
                    format!("subtract the maximum from the numbers: {} - {}", named(x), named(most)),
                ),
            };
            let what =
                if softmax.quotient.is_some() { "divided by their sum here" } else { "of their sum here" };
            found.push(
                Diagnostic::new(Code::MaximumNotSubtracted, span(sites, site), message)
                    .related(span(sites, values.all[softmax.id].site), what)
                    .help(help),
            );
        }
    }
    found
}

/// The help that subtracts the maximum.
fn subtracted(values: &Values, of: &Exponential, word: &str, text: &str) -> String {
    let axis = of.axis.unwrap_or_default();
    let single = values.all[of.argument].shape.len() == 1;
    if of.carried {
        let top = if single { "top".to_string() } else { format!("expand(top, {axis})") };
        return format!(
            "carry the running maximum `top` and subtract it, `{word}({text} - {top})`, and scale the sums by `{word}(old - top)` where it grows"
        );
    }
    let keep = if single { "" } else { ", keep" };
    format!("subtract it: `{word}({text} - reduce({text}, max, {axis}{keep}))`")
}

/// A mask by which scores become a number.
struct Mask {
    id: Id,
    number: f64,
    /// True for a factor of 0 and 1.
    factor: bool,
}

/// The leaves of data behind a value.
fn data(values: &Values, id: Id) -> BTreeSet<Id> {
    let leaf = |id: &Id| {
        matches!(values.node(*id), Node::Load(_) | Node::Slot(..) | Node::Product(..) | Node::Made(..))
    };
    values.behind(&[id], |_| true).into_iter().filter(leaf).collect()
}

/// The mask among the steps of a score, along a mode; the last one alone.
fn mask(values: &Values, id: Id, axis: usize, depth: usize) -> Option<Mask> {
    let depth = depth.checked_sub(1)?;
    let on = |x: Id| mask(values, x, axis, depth);
    let of_place = |condition: Id, x: Id| {
        varies(values, condition, axis) && data(values, condition).is_disjoint(&data(values, x))
    };
    match values.node(id) {
        Node::Cast(_, x) | Node::Unary(UnaryOp::Float, x) => on(*x),
        Node::Binary(BinaryOp::Sub, x, _) => on(*x),
        Node::Binary(BinaryOp::Div | BinaryOp::FastDiv, x, y) if is_scalar(values, *y) => on(*x),
        Node::Binary(BinaryOp::Mul, x, y) if is_scalar(values, *y) => on(*x),
        Node::Binary(BinaryOp::Mul, x, y) if is_scalar(values, *x) => on(*y),
        Node::Binary(BinaryOp::Mul, x, y) => {
            let condition = |x: Id| match values.node(x) {
                Node::Unary(UnaryOp::Float | UnaryOp::Int, condition) => is_truth(values, *condition),
                Node::Where([_, one, zero]) => {
                    values.number(*one) == Some(1.0) && values.number(*zero) == Some(0.0)
                }
                _ => false,
            };
            let sides = [(*x, *y), (*y, *x)];
            let (by, _) = sides.into_iter().find(|(by, x)| condition(*by) && of_place(*by, *x))?;
            Some(Mask { id, number: 0.0, factor: true }).filter(|_| by != id)
        }
        Node::Where([condition, x, y]) => {
            let (number, score) = match (values.number(*x), values.number(*y)) {
                (None, Some(number)) => (number, *x),
                (Some(number), None) => (number, *y),
                _ => return None,
            };
            (of_place(*condition, score) && number > WEIGHT).then_some(Mask { id, number, factor: false })
        }
        _ => None,
    }
}

/// True for a comparison, or some of them.
fn is_truth(values: &Values, id: Id) -> bool {
    match values.node(id) {
        Node::Binary(BinaryOp::And | BinaryOp::Or, x, y) => is_truth(values, *x) && is_truth(values, *y),
        Node::Binary(op, ..) => op.compares(),
        Node::Unary(UnaryOp::Not | UnaryOp::Int | UnaryOp::Float, x) => is_truth(values, *x),
        _ => false,
    }
}

/// Scores that a mask leaves a weight.
pub(super) fn masks_with_weight(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for softmax in all(values) {
        for of in softmax.of.iter().filter(|of| !of.masked) {
            let Some(axis) = of.axis else { continue };
            if values.all[of.argument].shape != values.all[of.sum].shape {
                continue;
            }
            let Some(mask) = mask(values, of.argument, axis, STEPS) else { continue };
            let word =
                if matches!(values.node(of.id), Node::Unary(UnaryOp::Exp2, _)) { "exp2" } else { "exp" };
            let Mask { id, number, factor } = mask;
            let how = if factor { "multiplied by 0".to_string() } else { format!("set to {number}") };
            let message = format!(
                "scores that are masked are {how}, which is a score as any other: `{word}` of it has a weight in the softmax"
            );
            let help = if factor {
                "replace them by -inf: `where(…, x, -inf)` in the place of the product with the mask"
                    .to_string()
            } else {
                format!(
                    "replace them by `-inf` instead of `{number}`; where a row may have none that is left, by `-1e30`"
                )
            };
            found.push(
                Diagnostic::new(Code::MaskWithWeight, span(sites, values.all[id].site), message)
                    .related(span(sites, values.all[of.id].site), "the exponentials")
                    .help(help),
            );
        }
    }
    found
}

/// Maxima and sums of a softmax that lie along another axis than they are used along.
pub(super) fn axes_of_softmax(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for softmax in all(values) {
        for of in &softmax.of {
            let (Some(axis), Some([dividend, divisor])) = (of.axis, softmax.quotient) else { continue };
            let shape = &values.all[of.sum].shape;
            let same = values.all[softmax.id].shape == *shape && *shape == values.all[of.argument].shape;
            let square = shape.get(axis).is_some_and(|n| *n > 1);
            let direct = exponentials(values, dividend, false, STEPS).iter().any(|(id, ..)| *id == of.id);
            if !same || !square || !direct || of.carried {
                continue;
            }
            let name = tensor(sites, of.id).unwrap_or_else(|| "the exponentials".to_string());
            if let Node::Binary(BinaryOp::Sub, _, most) = values.node(values.plain(of.argument))
                && extremum(values, *most).is_some()
                && varies(values, *most, axis)
            {
                let message = format!(
                    "the exponentials are added along mode {axis}, and what is subtracted from their arguments differs along it: it does not cancel"
                );
                let help = format!("take the maximum along mode {axis}, too: `reduce(…, max, {axis}, keep)`");
                found.push(
                    Diagnostic::new(Code::SoftmaxAxis, span(sites, values.all[of.id].site), message)
                        .related(
                            span(sites, values.all[softmax.id].site),
                            format!("divided by the sums along mode {axis}"),
                        )
                        .help(help),
                );
            } else if varies(values, divisor, axis) {
                let message = format!(
                    "the sums of {name} are along mode {axis}, and are put beside it so that they differ along it: each element is divided by the sum of another row"
                );
                found.push(
                    Diagnostic::new(Code::SoftmaxAxis, span(sites, values.all[softmax.id].site), message)
                        .help(format!("repeat the sums along the mode that was added up: `expand(…, {axis})`, or `reduce(…, sum, {axis}, keep)`")),
                );
            }
        }
    }
    found
}
