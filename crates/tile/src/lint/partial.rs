//! Lints about sums that are not complete yet: what is added to them too often, and functions of their parts.
//!
//! A sum of products is made in parts, by the iterations of a loop or by blocks that add to one output. What does not belong to a part (a bias) is
//! added once, and a function that is not linear (an activation) is applied to the whole sum.

use std::collections::BTreeSet;

use super::axes::{Axes, Label, by_data};
use super::points::{Sites, names};
use super::recurrence::{Carried, carried};
use super::text::{statement, tensor};
use super::values::{Id, Node, Store, Values};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::expr::{Axis, Expr};
use crate::program::{BinaryOp, StmtKind, TensorRef, UnaryOp};
use tilewright_machine::RedOp;

/// Steps that a way may have.
const STEPS: usize = 40;

/// Magnitude from which on a bound keeps sums from an overflow, and is no activation.
const BOUND: f64 = 100.0;

/// A step on the way of a sum, with the value that it makes.
#[derive(Clone, Copy)]
enum Step {
    /// A product is added.
    Product([Id; 2]),
    /// A value is added, by an operation.
    Term(Id, Id),
    /// A factor that does not depend on the sum.
    Factor,
    /// A function that is not linear, and its argument.
    Function(Id),
}

fn span(sites: &Sites<'_>, site: usize) -> Origin {
    sites.all[site].stmt.span
}

/// True for functions that are no rounding: one of a part of a sum is not that of the sum.
fn is_curved(op: UnaryOp) -> bool {
    !matches!(
        op,
        UnaryOp::Neg | UnaryOp::Float | UnaryOp::Int | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Round
    )
}

/// The steps of a binary operation of which one side or both are on the way.
fn binary(
    values: &Values,
    id: Id,
    (op, x, y): (BinaryOp, Id, Id),
    on: &dyn Fn(Id) -> Option<Vec<Step>>,
) -> Option<Vec<Step>> {
    let (mut steps, other, both) = match (on(x), on(y)) {
        (Some(steps), other) => (steps, y, other.is_some()),
        (None, Some(steps)) => (steps, x, false),
        (None, None) => return None,
    };
    let small = |id: Id| values.number(id).is_none_or(|x| x.abs() < BOUND);
    steps.push(match op {
        BinaryOp::Add | BinaryOp::Sub if both => Step::Factor,
        BinaryOp::Add | BinaryOp::Sub => Step::Term(other, id),
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::FastDiv if !both => Step::Factor,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::FastDiv => Step::Function(id),
        BinaryOp::Max | BinaryOp::Min if small(other) => Step::Function(id),
        BinaryOp::Max | BinaryOp::Min => Step::Factor,
        _ => return None,
    });
    Some(steps)
}

/// The steps from an accumulator's value at the head of a loop to that behind an iteration, without those that only some iterations take.
fn steps(values: &Values, from: Id, to: Id, depth: usize) -> Option<Vec<Step>> {
    if from == to {
        return Some(Vec::new());
    }
    let depth = depth.checked_sub(1)?;
    let on = |id: Id| steps(values, id, to, depth);
    let with = |steps: Option<Vec<Step>>, step: Step| {
        steps.map(|mut steps| {
            steps.push(step);
            steps
        })
    };
    match values.node(from) {
        Node::Cast(_, x) | Node::Shape(_, x) => on(*x),
        Node::Product(_, [c, a, b]) => with(on(*c), Step::Product([*a, *b])),
        Node::Unary(op, x) => with(on(*x), if is_curved(*op) { Step::Function(from) } else { Step::Factor }),
        Node::Binary(op, x, y) => binary(values, from, (*op, *x, *y), &on),
        Node::Either(_, [before, _]) => on(*before),
        Node::Carried(head, tensor) => {
            let [entry, back] = values.sides(*head, *tensor);
            let mut before = on(entry?)?;
            before.extend(steps(values, back?, from, depth)?);
            Some(before)
        }
        _ => None,
    }
}

/// True if the iterations of a loop may differ in a value.
fn varies(sites: &Sites<'_>, id: Id, head: usize) -> bool {
    let values = sites.values();
    let (outputs, inside) = (sites.verified.outputs(), |site: usize| values.inside(head, site));
    let counted = |e: &Expr| {
        let mut symbols = BTreeSet::new();
        names(e, &mut symbols, &mut [false; 3]);
        let bound = |site: usize| sites.all[site].counters.iter().map(|counter| counter.symbol);
        let of = &values.loops[head];
        let before: BTreeSet<_> = bound(of.site).collect();
        // What is counted outside of the loop stays.
        by_data(e) || symbols.iter().any(|id| sites.is_counter(*id) && !before.contains(id))
    };
    let through =
        |id: Id| !matches!(values.node(id), Node::Carried(at, _) if !inside(values.loops[*at].site));
    values.behind(&[id], through).into_iter().any(|id| match values.node(id) {
        Node::Carried(at, _) => *at == head,
        Node::Integer(e) => counted(e),
        Node::Load(site) => {
            inside(*site) && {
                source(sites, *site).is_none_or(|r| {
                    let tile = sites.verified.tile(r).global;
                    tile.is_none_or(|tile| {
                        tile.indexed.is_some()
                            || outputs.contains(&tile.param)
                            || tile.base.iter().any(counted)
                    })
                })
            }
        }
        Node::Slot(site, _) | Node::Made(site, ..) | Node::Either(site, _) => inside(*site),
        _ => false,
    })
}

/// The tile that a copy reads.
fn source<'s>(sites: &'s Sites<'_>, site: usize) -> Option<&'s TensorRef> {
    match &sites.all[site].stmt.kind {
        StmtKind::Copy { src, .. } | StmtKind::CopyAsync { src, .. } => Some(src),
        _ => None,
    }
}

/// A sum of which every iteration of a loop adds a part, and that nothing uses before the loop has ended.
struct Sum {
    of: Carried,
    steps: Vec<Step>,
    /// True if products are added.
    products: bool,
}

fn sums(sites: &Sites<'_>) -> Vec<Sum> {
    let values = sites.values();
    let all = carried(values);
    let alone = |of: &Carried| {
        let stored = |store: &&Store| values.inside(of.head, store.site);
        let other = |other: &&Carried| other.head == of.head && other.tensor != of.tensor;
        let used = |id: Id| values.depends(id, of.at_head);
        !values.stores.iter().filter(stored).any(|store| used(store.value))
            && !all.iter().filter(other).any(|other| used(other.back))
    };
    let mut found = Vec::new();
    for of in carried(values) {
        let around = &sites.all[values.loops[of.head].site];
        let StmtKind::For { lo, hi, .. } = &around.stmt.kind else { continue };
        let single = lo.as_int().zip(hi.as_int()).is_some_and(|(lo, hi)| hi - lo <= 1);
        let Some(steps) = steps(values, of.back, of.at_head, STEPS).filter(|_| !single) else { continue };
        let added: Vec<Id> = steps
            .iter()
            .flat_map(|step| match step {
                Step::Product(factors) => factors.to_vec(),
                Step::Term(term, _) => vec![*term],
                _ => Vec::new(),
            })
            .collect();
        let loads = |id: &Id| {
            values
                .behind(&[*id], |_| true)
                .iter()
                .any(|id| matches!(values.node(*id), Node::Load(_) | Node::Slot(..)))
        };
        let data = added.iter().any(|id| varies(sites, *id, of.head) && loads(id));
        // What is computed of the sum itself makes an iteration of it, and no sum.
        let own = added.iter().any(|id| values.depends(*id, of.at_head));
        let products = steps.iter().any(|step| matches!(step, Step::Product(_)));
        if data && !own && alone(&of) {
            found.push(Sum { of, steps, products });
        }
    }
    found
}

/// The loop in the author's words: `the loop over `i``.
fn loop_text(sites: &Sites<'_>, head: usize) -> String {
    match &sites.all[sites.values().loops[head].site].stmt.kind {
        StmtKind::For { counter, .. } => format!("the loop over `{}`", sites.program().symbol(*counter).name),
        _ => "the loop".to_string(),
    }
}

/// Terms that are the same in every iteration of the loop that makes a sum.
fn terms_in_loops(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for Sum { of, steps, products } in sums(sites) {
        let floats = sites.program().tensor(of.tensor).dtype.is_float();
        if !floats || steps.iter().any(|step| matches!(step, Step::Factor)) {
            continue;
        }
        for step in &steps {
            let Step::Term(term, sum) = step else { continue };
            let site = values.all[*sum].site;
            let behind = values.behind(&[*term], |_| true);
            let loaded = behind.iter().any(|id| matches!(values.node(*id), Node::Load(_)));
            if !values.inside(of.head, site)
                || values.number(*term) == Some(0.0)
                || !(products || loaded)
                || varies(sites, *term, of.head)
            {
                continue;
            }
            let name = &sites.program().tensor(of.tensor).name;
            let what = tensor(sites, *term).unwrap_or("this term".to_string());
            let over = loop_text(sites, of.head);
            let message = format!(
                "{what} is the same in every iteration of {over}, and each adds it to the sum `{name}` once more"
            );
            let alone = steps
                .iter()
                .filter(|step| matches!(step, Step::Term(_, sum) if values.all[*sum].site == site));
            let mut finding = Diagnostic::new(Code::RepeatedTerm, span(sites, site), message)
                .related(span(sites, values.loops[of.head].site), "the loop that makes the sum");
            finding = finding.help(match (alone.count(), statement(sites, site)) {
                (1, Some(text)) if is_only(sites, site) => {
                    format!("add it once: move `{text}` behind the loop")
                }
                _ => format!("leave it out here, and add it to `{name}` once, behind the loop"),
            });
            found.push(finding);
        }
    }
    found
}

/// True if a statement does nothing but add two values.
fn is_only(sites: &Sites<'_>, site: usize) -> bool {
    use crate::program::ElemExpr;
    let StmtKind::Elementwise { expr: ElemExpr::Binary(_, x, y), .. } = &sites.all[site].stmt.kind else {
        return false;
    };
    [x, y].iter().all(|x| matches!(***x, ElemExpr::Tensor(_) | ElemExpr::Number(_) | ElemExpr::Scalar(_)))
}

/// The word for a function.
fn function(values: &Values, id: Id) -> String {
    match values.node(id) {
        Node::Unary(op, _) => format!("`{}`", op.name()),
        Node::Binary(op @ (BinaryOp::Max | BinaryOp::Min), ..) => format!("`{}`", op.name()),
        _ => "a function that is not linear".to_string(),
    }
}

/// Functions of what a loop has added up so far.
fn functions_in_loops(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let values = sites.values();
    let mut found = Vec::new();
    for Sum { of, steps, products } in sums(sites) {
        let applied = steps.iter().find_map(|step| match step {
            Step::Function(id) if values.inside(of.head, values.all[*id].site) => Some(*id),
            _ => None,
        });
        let Some(id) = applied.filter(|_| products) else { continue };
        let name = &sites.program().tensor(of.tensor).name;
        let (word, over) = (function(values, id), loop_text(sites, of.head));
        let site = values.all[id].site;
        let message = format!(
            "{word} is applied in every iteration of {over} to the sum `{name}`, which the next goes on with: of parts it is not what it is of the whole sum"
        );
        let text = statement(sites, site);
        let help = match text {
            Some(text) => format!("apply it once, to the whole sum: move `{text}` behind the loop"),
            None => "apply it once, to the whole sum, behind the loop".to_string(),
        };
        found.push(
            Diagnostic::new(Code::FunctionOfPart, span(sites, site), message)
                .related(span(sites, values.loops[of.head].site), "the loop that makes the sum")
                .help(help),
        );
    }
    found
}

/// The way from a value that blocks add up to a product of which each has a part.
struct Parts<'x, 's, 'a> {
    axes: &'x Axes<'s, 'a>,
    /// The axis of the grid along which blocks share a sum.
    axis: usize,
}

impl Parts<'_, '_, '_> {
    fn values(&self) -> &Values {
        self.axes.values
    }

    /// The mode of a product's sum that the axis moves.
    fn summed(&self, factors: [Id; 2]) -> Option<super::axes::Place> {
        factors.into_iter().find_map(|id| {
            let place = self.axes.labels(id).get(1).and_then(Label::place).cloned()?;
            let moved = place.base.as_ref().is_some_and(|base| self.axes.movers(base).axes[self.axis]);
            moved.then_some(place)
        })
    }

    /// The steps from a product to a value, innermost first, and the mode that the product sums.
    fn way(&self, id: Id, depth: usize) -> Option<(Vec<Step>, super::axes::Place)> {
        let depth = depth.checked_sub(1)?;
        let values = self.values();
        let on = |id: Id| self.way(id, depth);
        let then = |of: Option<(Vec<Step>, super::axes::Place)>, step: Step| {
            of.map(|(mut steps, place)| {
                steps.push(step);
                (steps, place)
            })
        };
        match values.node(id) {
            Node::Product(_, [c, a, b]) => {
                self.summed([*a, *b]).map(|place| (Vec::new(), place)).or_else(|| on(*c))
            }
            Node::Carried(head, tensor) => on(values.sides(*head, *tensor)[1]?),
            Node::Cast(_, x) | Node::Shape(_, x) => on(*x),
            Node::Unary(op, x) => {
                then(on(*x), if is_curved(*op) { Step::Function(id) } else { Step::Factor })
            }
            Node::Binary(op, x, y) => {
                let place = on(*x).or_else(|| on(*y))?.1;
                let only = |id: Id| on(id).map(|(steps, _)| steps);
                binary(values, id, (*op, *x, *y), &only).map(|steps| (steps, place))
            }
            Node::Where([condition, x, y]) => match (on(*condition), on(*x).or_else(|| on(*y))) {
                (None, of) => of,
                (Some(_), of) => then(of, Step::Function(id)),
            },
            _ => None,
        }
    }

    /// True if blocks along the axis may differ in a value.
    fn varies(&self, id: Id) -> bool {
        let (values, sites) = (self.values(), self.axes.sites);
        let named = |e: &Expr| by_data(e) || self.axes.movers(e).axes[self.axis];
        values.behind(&[id], |_| true).into_iter().any(|id| match values.node(id) {
            Node::Integer(e) => named(e),
            Node::Load(site) => source(sites, *site).is_none_or(|r| {
                let tile = sites.verified.tile(r).global;
                tile.is_none_or(|tile| tile.indexed.is_some() || tile.base.iter().any(named))
            }),
            Node::Slot(..) | Node::Made(..) | Node::Either(..) | Node::Cluster(..) => true,
            _ => false,
        })
    }
}

/// True if a store adds to what is there.
fn adds(sites: &Sites<'_>, store: &Store) -> bool {
    match &sites.all[store.site].stmt.kind {
        StmtKind::Copy { how, .. } => how.combine == Some(RedOp::Add),
        StmtKind::CopyAsync { how, .. } => how.add,
        _ => false,
    }
}

/// The axes of the grid along which blocks add to the same elements of an output.
fn shared_axes(axes: &Axes<'_, '_>, store: &Store) -> Vec<usize> {
    let sites = axes.sites;
    let Some(tile) = sites.verified.tile(&store.to).global else { return Vec::new() };
    if tile.indexed.is_some() || tile.base.iter().any(by_data) {
        return Vec::new();
    }
    let moved = |axis: usize| tile.base.iter().any(|base| axes.movers(base).axes[axis]);
    let extents = sites.program().grid.iter();
    let several = extents.enumerate().take(3).filter(|(_, extent)| extent.as_int() != Some(1));
    several.map(|(axis, _)| axis).filter(|axis| !moved(*axis)).collect()
}

/// Terms and functions of parts of a sum that blocks add to one output.
fn of_blocks(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let values = axes.values;
    let mut found = Vec::new();
    for store in values.stores.iter().filter(|store| adds(sites, store)) {
        for axis in shared_axes(&axes, store) {
            let parts = Parts { axes: &axes, axis };
            let Some((steps, place)) = parts.way(store.value, STEPS) else { continue };
            let block = format!("block.{}", [Axis::X, Axis::Y, Axis::Z].map(letter)[axis]);
            let each = format!(
                "the blocks along `{block}` share the sum over {}, and each adds its part to `{}`",
                axes.name(&place),
                param_name(&axes, store)
            );
            let function_id = steps.iter().find_map(|step| match step {
                Step::Function(id) => Some(*id),
                _ => None,
            });
            if let Some(id) = function_id {
                let word = function(values, id);
                let message = format!(
                    "{each}: {word} is applied to each part, which is not what it is of the whole sum"
                );
                let help = format!(
                    "add the parts as they are, and apply {word} once all are added: in a kernel behind that reads `{}` and writes it",
                    param_name(&axes, store)
                );
                found.push(
                    Diagnostic::new(Code::FunctionOfPart, span(sites, values.all[id].site), message)
                        .related(span(sites, store.site), "added here")
                        .help(help),
                );
                continue;
            }
            let same = steps.iter().find_map(|step| match step {
                Step::Term(term, sum) if !parts.varies(*term) && values.number(*term) != Some(0.0) => {
                    Some((*term, *sum))
                }
                _ => None,
            });
            if let Some((term, sum)) = same {
                let what = tensor(sites, term).unwrap_or("this term".to_string());
                let message =
                    format!("{each}: {what}, which is the same in each, is added by every one of them");
                found.push(
                    Diagnostic::new(Code::RepeatedTerm, span(sites, values.all[sum].site), message)
                        .related(span(sites, store.site), "added here")
                        .help(format!("let one block add it: `where({block} == 0, …, 0.0)` around it")),
                );
            }
        }
    }
    found
}

fn param_name(axes: &Axes<'_, '_>, store: &Store) -> String {
    let tile = axes.sites.verified.tile(&store.to).global;
    tile.map_or(String::new(), |tile| axes.sites.program().param(tile.param).name.clone())
}

fn letter(axis: Axis) -> &'static str {
    ["x", "y", "z"][axis.index()]
}

/// Terms that are added to a sum once for each of its parts.
pub(super) fn repeated_terms(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let blocks = of_blocks(sites).into_iter().filter(|found| found.code == Code::RepeatedTerm);
    terms_in_loops(sites).into_iter().chain(blocks).collect()
}

/// Functions that are applied to parts of a sum.
pub(super) fn functions_of_parts(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let blocks = of_blocks(sites).into_iter().filter(|found| found.code == Code::FunctionOfPart);
    functions_in_loops(sites).into_iter().chain(blocks).collect()
}
