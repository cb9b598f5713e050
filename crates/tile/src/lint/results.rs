//! Lints about results that cannot be what they are meant for: means by a tile's extent, scales of signed numbers, logarithms of sums without
//! their maximum, parts of a cluster, expressions that have one value.

use std::collections::BTreeSet;

use super::axes::{Axes, Label};
use super::points::Sites;
use super::recurrence::{is_reduction, may_be_negative};
use super::values::{Id, Node, Values};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Expr, IntOp};
use crate::printer::expr_text;
use crate::program::{BinaryOp, ElemExpr, Program, ReduceOp, ShapeOp, StmtKind, SymbolKind, UnaryOp};

/// Steps behind a value that are looked at.
const STEPS: usize = 40;

fn span(sites: &Sites<'_>, site: usize) -> Origin {
    sites.all[site].stmt.span
}

/// Sums over all of a tensor's mode that are divided by the tile's extent.
pub(super) fn means_of_tiles(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let values = axes.values;
    let Some(sample) = sites.samples(&[]).into_iter().next() else { return Vec::new() };
    let mut found = Vec::new();
    for value in &values.all {
        let (sum, by) = match &value.node {
            Node::Binary(BinaryOp::Div | BinaryOp::FastDiv, x, y) => (*x, values.number(*y)),
            Node::Binary(BinaryOp::Mul, x, y) => match values.number(*y) {
                Some(factor) => (*x, Some(1.0 / factor)),
                None => (*y, values.number(*x).map(|factor| 1.0 / factor)),
            },
            _ => continue,
        };
        let sum = values.plain(sum);
        let (Node::Reduce(ReduceOp::Sum, axis, src), Some(by)) = (values.node(sum), by) else { continue };
        let labels = axes.labels(*src);
        let Some(place) = labels.get(*axis as usize).and_then(Label::place) else { continue };
        let whole = place.base.as_ref().is_some_and(|base| base.as_int() == Some(0));
        let extent = sample.eval(&place.extent);
        if !whole || extent.is_none_or(|n| n >= place.len) || (by - place.len as f64).abs() > 1e-6 * by.abs()
        {
            continue;
        }
        let source = &*sites.verified.source;
        let text = expr_text(source, &place.extent);
        let message = format!(
            "the sum over {} is divided by {}, the tile's extent: it has only `{text}` elements",
            axes.name(place),
            place.len
        );
        found.push(
            Diagnostic::new(Code::TileExtent, span(sites, value.site), message)
                .related(span(sites, values.all[sum].site), "the sum; what lies outside adds 0")
                .help(format!("divide by `float({text})`")),
        );
    }
    found
}

/// Reductions over a block's part of a mode, where others are put together over the cluster.
pub(super) fn parts_of_clusters(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let values = axes.values;
    let mut together = BTreeSet::new();
    for value in &values.all {
        match &value.node {
            Node::Cluster(_, x) => {
                together.insert(values.plain(*x));
            }
            Node::Made(site, _, operands)
                if sites
                    .all
                    .get(*site)
                    .is_some_and(|site| matches!(site.stmt.kind, StmtKind::ClusterCombine { .. })) =>
            {
                together.extend(operands.iter().map(|id| values.plain(*id)));
            }
            _ => {}
        }
    }
    let place = |id: &Id| match values.node(*id) {
        Node::Reduce(_, axis, src) => axes.labels(*src).get(*axis as usize)?.place().cloned(),
        _ => None,
    };
    let joined: Vec<_> = together.iter().filter_map(|id| Some((*id, place(id)?))).collect();
    let mut found = Vec::new();
    for (id, value) in values.all.iter().enumerate() {
        let Node::Reduce(op, ..) = &value.node else { continue };
        let Some(at) = place(&id).filter(|_| !together.contains(&id)) else { continue };
        let moved = at.base.as_ref().is_some_and(|base| !axes.movers(base).is_empty());
        let same = joined.iter().find(|(_, other)| other.extent == at.extent && other.base == at.base);
        let (Some((other, _)), true) = (same, moved) else { continue };
        let named =
            |tensor: &crate::program::TensorId| sites.program().tensor(*tensor).unnamed.text().is_none();
        let mut assigned =
            values.assigned.iter().filter(|(_, tensor, x)| values.plain(*x) == id && named(tensor));
        let name = assigned.next().map(|(_, tensor, _)| sites.program().tensor(*tensor));
        let name = name.map_or("t", |tensor| &tensor.name);
        let message = format!(
            "this {} is of the block's own part of {}, and another reduction over it is put together over the cluster",
            op.name(),
            axes.name(&at)
        );
        found.push(
            Diagnostic::new(Code::PartOfCluster, span(sites, value.site), message)
                .related(span(sites, values.all[*other].site), "put together over the cluster")
                .help(format!("add `cluster_reduce({name}, {})` behind it", op.name())),
        );
    }
    found
}

/// Scales of quotients in narrow types that are maxima of the numbers, and not of their magnitudes.
pub(super) fn signed_scales(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for value in &values.all {
        let Node::Cast(dtype, x) = &value.node else { continue };
        let signed = dtype.is_float() || dtype.range().is_some_and(|(low, _)| low < 0);
        if dtype.bits() > 8 || !signed {
            continue;
        }
        let elementwise = |id: Id| {
            matches!(
                values.node(id),
                Node::Unary(..) | Node::Binary(..) | Node::Where(_) | Node::Cast(..) | Node::Shape(..)
            )
        };
        for id in values.behind(&[*x], elementwise) {
            let Node::Binary(BinaryOp::Div | BinaryOp::FastDiv, number, scale) = values.node(id) else {
                continue;
            };
            let behind = values.behind(&[*scale], |_| true);
            let magnitudes = behind.iter().any(|id| matches!(values.node(*id), Node::Unary(UnaryOp::Abs, _)));
            let least = behind.iter().any(|id| is_reduction(values, *id, ReduceOp::Min));
            let most = behind.iter().find(|id| match values.node(**id) {
                Node::Reduce(ReduceOp::Max, _, of) => {
                    values.plain(*of) == values.plain(*number) && may_be_negative(values, *of, STEPS)
                }
                _ => false,
            });
            if let (Some(most), false, false) = (most, magnitudes, least) {
                let message = "the scale is the largest number, and not the largest magnitude: numbers below its negative saturate";
                found.push(
                    Diagnostic::new(Code::SignedScale, span(sites, values.all[*most].site), message)
                        .related(span(sites, value.site), format!("rounded to {dtype} with this scale"))
                        .help("reduce magnitudes: `reduce(abs(…), max, …)`"),
                );
            }
        }
    }
    found
}

/// The reshape behind a value, through elementwise statements alone.
fn reshape_behind(values: &Values, id: Id) -> Option<Id> {
    let mut at = id;
    for _ in 0..STEPS {
        at = match values.node(at) {
            Node::Shape(ShapeOp::Reshape(_), _) => return Some(at),
            Node::Unary(_, x) | Node::Cast(_, x) => *x,
            Node::Binary(_, x, y) if values.number(*y).is_some() => *x,
            Node::Binary(_, x, y) if values.number(*x).is_some() => *y,
            Node::Binary(_, x, y) if x == y => *x,
            _ => return None,
        };
    }
    None
}

/// The quotient by which an extent is written, or the constant that it names.
fn is_quotient(source: &Program, e: &Expr) -> bool {
    match e {
        Expr::Binary(IntOp::Div | IntOp::CeilDiv, ..) => true,
        Expr::Symbol(id) => match &source.symbol(*id).kind {
            SymbolKind::Constant(value) => is_quotient(source, value),
            _ => false,
        },
        _ => false,
    }
}

/// Reductions over groups that a reshape makes as if the last mode were the fastest: `[BM, N / G, G]`, reduced along mode 2.
pub(super) fn reshapes_by_rows(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let source = &*sites.verified.source;
    let mut found = Vec::new();
    for value in &values.all {
        let (axis, src, name) = match &value.node {
            Node::Reduce(op, axis, src) => (*axis as usize, *src, op.name()),
            Node::Extreme(_, axis, src) => (*axis as usize, *src, "…"),
            _ => continue,
        };
        let Some(reshape) = reshape_behind(values, src) else { continue };
        let Node::Shape(_, operand) = values.node(reshape) else { continue };
        let (before, after) = (&values.all[*operand].shape, &values.all[reshape].shape);
        let Some(faster) = axis.checked_sub(1).filter(|_| axis < after.len()) else { continue };
        // The mode of the operand that becomes the two.
        let inner: i64 = after[..faster].iter().product();
        let split = (0..before.len()).find(|mode| {
            before[..*mode].iter().product::<i64>() == inner && before[*mode] == after[faster] * after[axis]
        });
        let at = values.all[reshape].site;
        let stmt = sites.verified.as_written(sites.all[at].stmt);
        let StmtKind::Shape { op: ShapeOp::Reshape(written), .. } = &stmt.kind else { continue };
        let by_rows = written.len() == after.len()
            && is_quotient(source, &written[faster])
            && !is_quotient(source, &written[axis]);
        let (Some(mode), true) = (split, by_rows && after[faster] > 1 && after[axis] > 1) else { continue };
        let text = |e: &Expr| expr_text(source, e);
        let shape = |of: &[Expr]| of.iter().map(text).collect::<Vec<_>>().join(", ");
        let mut meant = written.clone();
        meant.swap(faster, axis);
        let message = format!(
            "a group of this reduction is each {}th element along mode {mode}: of [{}] the leftmost mode is the fastest, so that neighbours lie along mode {faster}",
            after[faster],
            shape(written)
        );
        let help = format!(
            "for groups of {} neighbours: `reshape(…, [{}])` and `reduce(…, {name}, {faster})`",
            text(&written[axis]),
            shape(&meant)
        );
        let finding = Diagnostic::new(Code::ReshapeByRows, span(sites, at), message).help(help);
        found.push(match value.site == at {
            true => finding,
            false => finding.related(span(sites, value.site), format!("reduces along mode {axis}")),
        });
    }
    found
}

/// The maxima that are subtracted in the exponentials behind a value.
fn maxima_behind(values: &Values, id: Id) -> BTreeSet<Id> {
    let mut maxima = BTreeSet::new();
    for id in values.behind(&[id], |_| true) {
        let Node::Unary(UnaryOp::Exp | UnaryOp::Exp2, x) = values.node(id) else { continue };
        let Node::Binary(BinaryOp::Sub, _, most) = values.node(values.plain(*x)) else { continue };
        let most = values.plain(*most);
        let extreme = is_reduction(values, most, ReduceOp::Max)
            || matches!(values.node(most), Node::Binary(BinaryOp::Max, ..) | Node::Cluster(..));
        if extreme {
            maxima.insert(most);
        }
    }
    // What a loop leaves of one.
    let left: Vec<Id> = (0..values.all.len())
        .filter(|id| match values.node(*id) {
            Node::Carried(head, tensor) => {
                values.sides(*head, *tensor)[1].is_some_and(|back| maxima.contains(&values.plain(back)))
            }
            _ => false,
        })
        .collect();
    maxima.extend(left);
    maxima
}

/// Logarithms of sums of exponentials relative to a maximum that is not added again.
pub(super) fn maxima_not_added(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for (id, value) in values.all.iter().enumerate() {
        let Node::Unary(UnaryOp::Log | UnaryOp::Log2, sum) = &value.node else { continue };
        let behind = values.behind(&[*sum], |_| true);
        let sums = behind.iter().any(|id| is_reduction(values, *id, ReduceOp::Sum));
        let maxima = maxima_behind(values, *sum);
        if maxima.is_empty() || !sums {
            continue;
        }
        // The maximum by itself may be a result, too.
        let given = values.stores.iter().any(|store| maxima.contains(&values.plain(store.value)));
        for store in values.stores.iter().filter(|store| values.depends(store.value, id)) {
            let besides = values.behind(&[store.value], |x| x != id);
            if given || besides.iter().any(|x| maxima.contains(x)) {
                continue;
            }
            let message = "the logarithm is of a sum of exponentials relative to their maximum, and the maximum is not added again";
            let most = maxima.iter().find(|id| !matches!(values.node(**id), Node::Carried(..)));
            let mut finding = Diagnostic::new(Code::MaximumNotAdded, span(sites, value.site), message)
                .related(span(sites, store.site), "stored without it");
            if let Some(most) = most {
                let assigned = values.assigned.iter().find(|(_, _, x)| values.plain(*x) == *most);
                let tensor = assigned.map(|(_, tensor, _)| sites.program().tensor(*tensor));
                let name = tensor.map_or("the maximum", |t| t.unnamed.text().unwrap_or(&t.name));
                finding = finding
                    .related(span(sites, values.all[*most].site), "the maximum")
                    .help(format!("log Σ exp(x) is `log(…) + {name}`"));
            }
            found.push(finding);
            break;
        }
    }
    found
}

/// The first quotient of integers in an expression that is 0 at these sizes, and whose dividend is not.
fn lost_quotient<'e>(e: &'e Expr, eval: &impl Fn(&Expr) -> Option<i64>) -> Option<&'e Expr> {
    let Expr::Binary(op, a, b) = e else { return None };
    let deeper = || lost_quotient(a, eval).or_else(|| lost_quotient(b, eval));
    if *op == IntOp::Div && eval(e) == Some(0) && eval(a).is_some_and(|a| a != 0) {
        return Some(e);
    }
    deeper()
}

/// True if a value is another one with casts, changes of shape and factors.
fn is_scaled(values: &Values, id: Id, of: Id) -> bool {
    let on = |id: &Id| is_scaled(values, *id, of);
    id == of
        || match values.node(id) {
            Node::Cast(_, x) | Node::Shape(_, x) => on(x),
            Node::Binary(BinaryOp::Mul, x, y) => on(x) || on(y),
            Node::Binary(BinaryOp::Div | BinaryOp::FastDiv, x, _) => on(x),
            _ => false,
        }
}

/// The reason why an expression has one value: the value, and the words.
fn constant(values: &Values, id: Id) -> Option<(String, String)> {
    let node = values.node(id);
    let made = |id: Id| values.all[id].dtype.is_some();
    match node {
        Node::Binary(op, x, y) if x == y && values.number(*x).is_none() && !values.idioms.contains(&id) => {
            let result = match op {
                BinaryOp::Sub => "0",
                BinaryOp::Div | BinaryOp::FastDiv => "1",
                BinaryOp::Lt | BinaryOp::Gt | BinaryOp::Ne => "false",
                BinaryOp::Le | BinaryOp::Ge | BinaryOp::Eq => "true",
                _ => return None,
            };
            Some((result.to_string(), "both operands are the same value".to_string()))
        }
        Node::Binary(BinaryOp::Mul, x, y) => {
            let zero = |id: Id| values.number(id) == Some(0.0) && made(id);
            let other = if zero(*x) { *y } else { *x };
            // Sums that are scaled before anything is added to them are 0, too: only what is stored as it is counts.
            let stored = || values.stores.iter().any(|store| is_scaled(values, store.value, id));
            let found = (zero(*x) || zero(*y)) && values.number(other).is_none() && stored();
            found.then(|| ("0".to_string(), "one factor is 0: only a `fill` has written it".to_string()))
        }
        Node::Where([_, x, y]) if x == y => {
            Some(("the same either way".to_string(), "both sides are the same value".to_string()))
        }
        _ => None,
    }
}

/// Expressions that have one value whatever their operands hold.
pub(super) fn constant_results(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let program = sites.program();
    let mut found = Vec::new();
    for (id, value) in values.all.iter().enumerate() {
        let Some((result, why)) = constant(values, id) else { continue };
        let message = format!("part of this expression is always {result}: {why}");
        let mut finding = Diagnostic::new(Code::ConstantResult, span(sites, value.site), message);
        let operands = values.operands(id);
        let names: BTreeSet<_> = operands
            .iter()
            .flat_map(|id| values.assigned.iter().filter(move |(_, _, x)| x == id))
            .filter(|(site, ..)| *site < value.site)
            .map(|(site, tensor, _)| (*site, *tensor))
            .collect();
        for (site, tensor) in names.iter().take(3) {
            finding = finding.related(span(sites, *site), format!("`{}`", program.tensor(*tensor).name));
        }
        let help = if names.len() > 1 && why.starts_with("both") {
            "take the difference or quotient before one becomes the other"
        } else {
            "is another tensor meant?"
        };
        found.push(finding.help(help));
    }
    found.extend(lost_quotients(sites));
    found
}

/// Quotients of integers in expressions that are rounded down to 0.
fn lost_quotients(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let Some(sample) = sites.samples(&[]).into_iter().next() else { return Vec::new() };
    let axes = Axes::of(sites);
    let source = &*sites.verified.source;
    let mut found = Vec::new();
    for site in &sites.all {
        let StmtKind::Elementwise { expr, .. } = &site.stmt.kind else { continue };
        expr.visit(&mut |x| {
            // Of sizes and constants alone: blocks and counters begin with 0.
            let ElemExpr::Int(e) = x else { return };
            let fixed = |e: &Expr| sample.eval(e).filter(|_| axes.movers(e).is_empty());
            if let Some(Expr::Binary(_, a, b)) = lost_quotient(e, &fixed) {
                let (a, b) = (expr_text(source, a), expr_text(source, b));
                let message = format!("`{a} / {b}` is a quotient of integers, rounded down: it is 0");
                found.push(
                    Diagnostic::new(Code::ConstantResult, site.stmt.span, message)
                        .help(format!("divide numbers: `float({a}) / float({b})`")),
                );
            }
        });
    }
    found
}
