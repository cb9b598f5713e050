//! Lints about what loops carry from iteration to iteration: sums beside a running maximum, carries of scans, where maxima begin, sums in 16 bits,
//! accumulators of tiles.

use tilewright_machine::DType;

use super::axes::{Axes, Label};
use super::points::Sites;
use super::values::{Id, Node, Values};
use crate::diagnostic::{Code, Diagnostic, Origin};
use crate::program::{BinaryOp, ReduceOp, StmtKind, TensorId, UnaryOp};

/// Iterations from which on a sum in 16 bits is worth a warning.
const LONG: i64 = 16;

/// Magnitude up to which a number does not stand for infinity, whatever the data are.
const LIMIT: f64 = 1.0;

/// A tensor that a loop carries.
pub(super) struct Carried {
    pub(super) head: usize,
    pub(super) tensor: TensorId,
    /// Its value at the loop's head.
    pub(super) at_head: Id,
    /// Its values before the loop, and behind an iteration.
    entry: Id,
    pub(super) back: Id,
}

/// Tensors that loops carry and change.
pub(super) fn carried(values: &Values) -> Vec<Carried> {
    let mut all = Vec::new();
    for (id, value) in values.all.iter().enumerate() {
        if let Node::Carried(head, tensor) = value.node
            && let [Some(entry), Some(back)] = values.sides(head, tensor)
            && back != id
        {
            all.push(Carried { head, tensor, at_head: id, entry, back });
        }
    }
    all
}

/// The way of an accumulator through a loop's body.
#[derive(Default)]
struct Way {
    added: Vec<Id>,
    factors: Vec<Id>,
    /// The last statement that adds.
    site: Option<usize>,
}

impl Way {
    fn adds(mut self, terms: &[Id], site: usize) -> Way {
        self.added.extend(terms);
        self.site.get_or_insert(site);
        self
    }

    fn scaled(mut self, by: Id) -> Way {
        self.factors.push(by);
        self
    }
}

/// The way from a value back to an earlier one of the same accumulator, over sums, products and factors; `None` if there is none.
fn way(values: &Values, from: Id, to: Id, depth: usize) -> Option<Way> {
    if from == to {
        return Some(Way::default());
    }
    let depth = depth.checked_sub(1)?;
    let site = values.all[from].site;
    let on = |id: Id| way(values, id, to, depth);
    match values.node(from) {
        Node::Cast(_, x) | Node::Shape(_, x) => on(*x),
        Node::Product(site, [c, a, b]) => Some(on(*c)?.adds(&[*a, *b], *site)),
        Node::Binary(BinaryOp::Add, x, y) => match on(*x) {
            Some(way) => Some(way.adds(&[*y], site)),
            None => Some(on(*y)?.adds(&[*x], site)),
        },
        Node::Binary(BinaryOp::Sub, x, y) => Some(on(*x)?.adds(&[*y], site)),
        Node::Binary(BinaryOp::Mul, x, y) => match on(*x) {
            Some(way) => Some(way.scaled(*y)),
            None => Some(on(*y)?.scaled(*x)),
        },
        Node::Binary(BinaryOp::Div | BinaryOp::FastDiv, x, y) => Some(on(*x)?.scaled(*y)),
        Node::Where([_, x, y]) | Node::Either(_, [x, y]) => match (on(*x), on(*y)) {
            (Some(x), Some(y)) if x.factors.len() > y.factors.len() => Some(x),
            (x, y) => y.or(x),
        },
        Node::Carried(head, tensor) => {
            let [entry, back] = values.sides(*head, *tensor);
            let before = on(entry?)?;
            let inner = way(values, back?, from, depth).unwrap_or_default();
            Some(Way {
                added: before.added.into_iter().chain(inner.added).collect(),
                factors: before.factors.into_iter().chain(inner.factors).collect(),
                site: inner.site.or(before.site),
            })
        }
        _ => None,
    }
}

/// Steps that a way may have.
const STEPS: usize = 40;

/// The other operand of a running extremum: `max(carried, x)`.
fn extremum(values: &Values, of: &Carried) -> Option<(BinaryOp, Id)> {
    let Node::Binary(op @ (BinaryOp::Max | BinaryOp::Min), x, y) = values.node(values.plain(of.back)) else {
        return None;
    };
    let is = |id: Id| values.plain(id) == of.at_head;
    match (is(*x), is(*y)) {
        (true, _) => Some((*op, *y)),
        (_, true) => Some((*op, *x)),
        _ => None,
    }
}

/// True for an exponential, of a number that depends on one of these.
fn is_exponential_of(values: &Values, id: Id, of: &[Id]) -> bool {
    let Node::Unary(UnaryOp::Exp | UnaryOp::Exp2, x) = values.node(id) else { return false };
    let behind = values.behind(&[*x], |_| true);
    of.iter().any(|id| behind.contains(id))
}

fn span(sites: &Sites<'_>, site: usize) -> Origin {
    sites.all[site].stmt.span
}

/// Sums of what is relative to a running maximum that are not scaled where it grows.
pub(super) fn not_rescaled(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (values, program) = (sites.values(), sites.program());
    let all = carried(values);
    let mut found = Vec::new();
    for top in &all {
        if extremum(values, top).is_none_or(|(op, _)| op != BinaryOp::Max) {
            continue;
        }
        for sum in all.iter().filter(|sum| sum.head == top.head && sum.tensor != top.tensor) {
            let Some(way) = way(values, sum.back, sum.at_head, STEPS) else { continue };
            let stop = |id: Id| id != sum.at_head && id != top.at_head;
            let added = values.behind(&way.added, stop);
            let relative = added.iter().any(|id| is_exponential_of(values, *id, &[top.back]));
            let scaled = way.factors.iter().any(|by| {
                let behind = values.behind(&[*by], |_| true);
                behind.contains(&top.back) || behind.contains(&top.at_head)
            });
            if !relative || scaled {
                continue;
            }
            let (name, of) = (&program.tensor(sum.tensor).name, &program.tensor(top.tensor).name);
            let place = way.site.unwrap_or(values.loops[sum.head].site);
            let grows = values.all[top.back].site;
            let message = format!(
                "`{name}` adds exponentials relative to the running maximum, which grows from iteration to iteration, and is not scaled by exp(old - new)"
            );
            // The factor, where there is one already.
            let factor = values.assigned.iter().find(|(_, _, id)| {
                let id = values.plain(*id);
                matches!(values.node(id), Node::Unary(..))
                    && is_exponential_of(values, id, &[top.at_head])
                    && is_exponential_of(values, id, &[top.back])
                    && program.tensor(sum.tensor).name != *of
            });
            let factor = factor.map_or("exp(old - new)".to_string(), |(_, tensor, _)| {
                let tensor = program.tensor(*tensor);
                tensor.unnamed.text().unwrap_or(&tensor.name).to_string()
            });
            let shapes = [sum.at_head, top.at_head].map(|id| values.all[id].shape.len());
            let factor = if shapes[0] > shapes[1] { format!("expand({factor}, 1)") } else { factor };
            found.push(
                Diagnostic::new(Code::NotRescaled, span(sites, place), message)
                    .related(span(sites, grows), format!("the maximum `{of}` grows here"))
                    .help(format!("scale the sums before they are added to: `{name} = {name} * {factor}`")),
            );
        }
    }
    found
}

/// Carries of scans by chunks that are overwritten, and scans that begin anew in each chunk.
pub(super) fn carries_lost(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (values, program) = (sites.values(), sites.program());
    let mut found = Vec::new();
    for of in carried(values) {
        let continues = values.all.iter().any(|value| match &value.node {
            Node::Binary(_, x, y) => {
                let [x, y] = [x, y].map(|id| values.plain(*id));
                let scan = |id: Id| matches!(values.node(id), Node::Scan(..));
                scan(x) && y == of.at_head || scan(y) && x == of.at_head
            }
            Node::Scan(_, _, Some(before)) => values.plain(*before) == of.at_head,
            _ => false,
        });
        if !continues || values.depends(of.back, of.at_head) {
            continue;
        }
        let name = &program.tensor(of.tensor).name;
        let written = values
            .assigned
            .iter()
            .rev()
            .find(|(site, tensor, _)| *tensor == of.tensor && values.inside(of.head, *site));
        let place = written.map_or(values.loops[of.head].site, |(site, ..)| *site);
        found.push(
            Diagnostic::new(
                Code::CarryLost,
                span(sites, place),
                format!("`{name}` carries what the chunks before come to, and is overwritten here by that of one chunk alone"),
            )
            .related(span(sites, values.loops[of.head].site), "the loop over chunks")
            .help(format!("put both together: `{name} = {name} + …`")),
        );
    }
    found.extend(scans_that_restart(sites));
    found
}

/// Scans along a mode that a loop goes through by chunks, of which each is stored where it lies, with nothing from the chunks before.
fn scans_that_restart(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let values = axes.values;
    let mut found = Vec::new();
    for (id, value) in values.all.iter().enumerate() {
        let Node::Scan(axis, operands, None) = &value.node else { continue };
        let mode = *axis as usize;
        let place = operands.iter().find_map(|x| axes.labels(*x).get(mode)?.place().cloned());
        let Some(place) = place else { continue };
        let Some(base) = &place.base else { continue };
        let moved = axes.movers(base).counters;
        let around = sites.all[value.site].counters.iter().find(|c| moved.contains(&c.symbol));
        let Some(counter) = around else { continue };
        for store in &values.stores {
            let behind = values.behind(&[store.value], |_| true);
            // What a loop carries, or what others have left in memory, may be the state before.
            let within = values.behind(&[id], |_| true);
            let more = |x: &Id| {
                matches!(values.node(*x), Node::Carried(..))
                    || matches!(values.node(*x), Node::Load(_) | Node::Slot(..)) && !within.contains(x)
            };
            if !behind.contains(&id) || behind.iter().any(more) {
                continue;
            }
            let labels = axes.stored(store);
            let along = labels.get(mode).and_then(Label::place);
            if along.is_none_or(|to| to.extent != place.extent || to.base != place.base) {
                continue;
            }
            let name = &sites.program().symbol(counter.symbol).name;
            let message = format!(
                "the scan begins anew in every iteration over `{name}`: what the chunks before come to is not in it"
            );
            found.push(
                Diagnostic::new(Code::CarryLost, span(sites, value.site), message)
                    .related(counter.span, format!("goes through {} by chunks", axes.name(&place)))
                    .related(span(sites, store.site), "stores each chunk")
                    .help("carry the last state: a tensor before the loop, `scan(…) + carried` or `scan(a, b, linear, axis, carried)`, and what the chunk comes to for the next"),
            );
            break;
        }
    }
    found
}

/// Sums that a long loop keeps in 16 bits.
pub(super) fn narrow_sums(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (values, program) = (sites.values(), sites.program());
    let mut found = Vec::new();
    for of in carried(values) {
        let dtype = program.tensor(of.tensor).dtype;
        let StmtKind::For { lo, hi, .. } = &sites.all[values.loops[of.head].site].stmt.kind else { continue };
        let sample = sites.samples(&[]).into_iter().next();
        let trips = sample.and_then(|sample| Some(sample.eval(hi)? - sample.eval(lo)?));
        let products = values.behind(&[of.back], |id| id != of.at_head);
        let products = products.iter().any(|id| matches!(values.node(*id), Node::Product(..)));
        if !matches!(dtype, DType::F16 | DType::BF16) || trips.is_none_or(|trips| trips < LONG) || products {
            continue;
        }
        let Some(way) = way(values, of.back, of.at_head, STEPS) else { continue };
        // A sum that decays keeps its size.
        let (Some(site), true) = (way.site, way.factors.is_empty()) else { continue };
        let name = &program.tensor(of.tensor).name;
        let digits = if dtype == DType::F16 { "11" } else { "8" };
        let message = format!(
            "`{name}` adds {} times in {dtype}, whose {digits} bits lose what is small beside the sum",
            trips.unwrap_or_default()
        );
        found.push(
            Diagnostic::new(Code::NarrowSum, span(sites, site), message)
                .related(program.tensor(of.tensor).span, format!("{dtype} here"))
                .help(format!(
                    "keep the sum in f32, `register_tensor(f32, …)` and `{name} = {name} + cast(…, f32)`, and cast the result"
                )),
        );
    }
    found
}

/// True if a value may be negative, as far as data may.
pub(super) fn may_be_negative(values: &Values, id: Id, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let of = |id: Id| may_be_negative(values, id, depth);
    match values.node(id) {
        Node::Load(_) => values.all[id].dtype.is_some_and(DType::is_float),
        Node::Slot(..) => values.operands(id).into_iter().any(of),
        Node::Cast(_, x) | Node::Shape(_, x) | Node::Reduce(_, _, x) | Node::Extreme(_, _, x) => of(*x),
        Node::Product(..) => true,
        Node::Binary(BinaryOp::Mul, x, y) => x != y && (of(*x) || of(*y)),
        Node::Binary(BinaryOp::Add | BinaryOp::Sub, x, y) => of(*x) || of(*y),
        Node::Binary(BinaryOp::Div, x, y) => of(*x) || of(*y),
        Node::Binary(BinaryOp::Max, x, y) => of(*x) && of(*y),
        Node::Binary(BinaryOp::Min, x, y) => of(*x) || of(*y),
        Node::Unary(UnaryOp::Neg | UnaryOp::Tanh, x) => of(*x),
        Node::Where([_, x, y]) => of(*x) || of(*y),
        Node::Number(bits) => f64::from_bits(*bits) < 0.0,
        _ => false,
    }
}

/// Running maxima and minima that begin with a number that data may not reach.
pub(super) fn extremum_starts(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let (values, program) = (sites.values(), sites.program());
    let mut found = Vec::new();
    for of in carried(values) {
        let Some((op, other)) = extremum(values, &of) else { continue };
        let Some(begin) = values.number(of.entry) else { continue };
        if !program.tensor(of.tensor).dtype.is_float() {
            continue;
        }
        let loads =
            || values.behind(&[other], |_| true).iter().any(|id| matches!(values.node(*id), Node::Load(_)));
        let (wrong, word, neutral) = match op {
            BinaryOp::Max => (begin >= 0.0 && may_be_negative(values, other, STEPS), "maximum", "-inf"),
            _ => (begin <= LIMIT && loads(), "minimum", "inf"),
        };
        if !wrong {
            continue;
        }
        let name = &program.tensor(of.tensor).name;
        let first = values
            .assigned
            .iter()
            .rev()
            .find(|(site, tensor, _)| *tensor == of.tensor && *site < values.loops[of.head].site);
        let place = first.map_or(values.loops[of.head].site, |(site, ..)| *site);
        let beyond = if op == BinaryOp::Max { "below" } else { "above" };
        let message = format!(
            "the running {word} `{name}` begins with {begin}: where all elements lie {beyond}, the result is {begin}"
        );
        found.push(
            Diagnostic::new(Code::ExtremumStart, span(sites, place), message)
                .related(span(sites, values.all[values.plain(of.back)].site), format!("the {word} so far"))
                .help(format!("begin with `fill({name}, {neutral})`")),
        );
    }
    found
}

/// Accumulators that a loop over tiles stores for each tile, and that never begin anew.
pub(super) fn sums_not_reset(sites: &Sites<'_>) -> Vec<Diagnostic> {
    let axes = Axes::of(sites);
    let (values, program) = (axes.values, sites.program());
    let mut found = Vec::new();
    for of in carried(values) {
        let around = values.loops[of.head].site;
        let StmtKind::Tiles { row, col, .. } = &sites.all[around].stmt.kind else { continue };
        let Some(way) = way(values, of.back, of.at_head, STEPS) else { continue };
        let Some(site) = way.site.filter(|_| way.factors.is_empty()) else { continue };
        let stored = values.stores.iter().find(|store| {
            let moved = |label: &Label| {
                let base = label.place().and_then(|place| place.base.as_ref());
                base.is_some_and(|base| {
                    let counters = axes.movers(base).counters;
                    counters.contains(row) || counters.contains(col)
                })
            };
            values.inside(of.head, store.site)
                && axes.stored(store).iter().any(moved)
                && values.depends(store.value, of.at_head)
        });
        let Some(store) = stored else { continue };
        let name = &program.tensor(of.tensor).name;
        found.push(
            Diagnostic::new(
                Code::SumNotReset,
                span(sites, site),
                format!("`{name}` goes on from tile to tile: what is stored for a tile holds the sums of those before it"),
            )
            .related(span(sites, store.site), "stored for each tile")
            .related(span(sites, around), "the loop over tiles")
            .help(format!("begin each tile with `fill({name}, 0.0)`, inside the loop over tiles")),
        );
    }
    found
}

/// True for a reduction of this operation.
pub(super) fn is_reduction(values: &Values, id: Id, op: ReduceOp) -> bool {
    matches!(values.node(id), Node::Reduce(of, ..) if *of == op)
}
