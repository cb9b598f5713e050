//! Shared memory: the stages of rings, and which places may lie in one memory, so that a block's places fit. Needs: rings. Keeps: the order of
//! statements, and every edge but those back to who fills a ring whose stages become fewer.
//!
//! Places lie apart as long as there is room for all. Else rings get fewer stages, as far as `pipeline(2..4)` allows, and places that are never needed
//! together use the same memory; the edges from who uses the first to who writes the second make that order (paper, 4.2.4). Taken is what loses
//! the least overlap: each set of changes costs what it adds to the critical circuits of loops, those of the innermost first.
//!
//! The tile compiler places the tensors. It lets two use the same memory if a barrier parts them and no asynchronous unit touches them
//! (`synth::allocate`), and by that rule places are laid out here.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeSet;

use tilewright_machine::{Feature, Memory};
use tilewright_tile::{Code, Constants, Diagnostic, Diagnostics, Expr};

use super::depend::reduced;
use super::retime::persistent;
use super::rings::sides;
use super::schedule::group;
use crate::critical::{Circuit, Estimate};
use crate::environment::Environment;
use crate::graph::{
    Edge, Graph, Group, Item, NodeId, Op, ReplicaId, Ring, Role, SharedMemory, SharedPlace, Stages, Why,
};
use crate::instantiate::LoopId;
use crate::mapping::{Attribute, AttributeKind, InstanceId, Mapping, SettingValue};
use crate::program::{LoopKind, Program};

/// Shared tensors start at multiples of so many bytes, and so do their stages (`synth::SHARED_ALIGN`).
const ALIGN: i64 = 128;
/// Those that asynchronous units touch start at multiples of so many (`synth::ASYNC_ALIGN`).
const ASYNC_ALIGN: i64 = 1024;
/// The bytes of the barriers of a stage between roles: one that is full, one that is empty, each of 8 (PTX ISA, `mbarrier`).
const BARRIERS: i64 = 16;
/// The most sets of changes that are looked at; beyond, the cheapest change is taken one at a time.
const SETS: usize = 1000;

/// A way to make the graph of another mapping, as far as its rings.
pub type Anew = fn(&Program, &Mapping) -> Result<Graph, Diagnostics>;

/// Makes the shared places of each kernel fit. Mappings that a message may propose are tried by `anew`.
///
/// # Errors
///
/// `memory`: a place whose extents are not known when the kernel is compiled. `shared-memory-exceeded`: more than there is, whatever is changed.
pub fn fit(program: &Program, mapping: &Mapping, graph: &mut Graph, anew: Anew) -> Result<(), Diagnostics> {
    let mut errors = Vec::new();
    for kernel in kernels(graph) {
        match solved(program, mapping, graph, &kernel, false) {
            Ok(Some((plan, change))) => {
                let (memory, edges) = (plan.memory(&change), plan.reduced_edges(&change));
                for (at, depth) in &change.depths {
                    let ring = &mut graph.rings[*at];
                    ring.depth = *depth;
                    for place in ring.places.clone() {
                        let stages =
                            ring.head.filter(|_| *depth > 1).map(|head| Stages { head, depth: *depth });
                        graph.replicas[place.index()].stages = stages;
                    }
                }
                graph.edges = edges;
                graph.shared.push(memory);
            }
            Ok(None) => errors.push(exceeded(program, mapping, graph, &kernel, anew)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(()) } else { Err(Diagnostics(errors)) }
}

/// The kernels of a graph, as their items: each outermost loop is one.
pub(super) fn kernels(graph: &Graph) -> Vec<Vec<Item>> {
    let mut out = Vec::new();
    let mut rest = Vec::new();
    for item in &graph.order {
        match item {
            Item::Loop(..) => out.push(vec![item.clone()]),
            Item::Node(_) => rest.push(item.clone()),
        }
    }
    if !rest.is_empty() {
        // Without a loop over blocks there is one kernel.
        return vec![graph.order.clone()];
    }
    out
}

/// Changes of a graph: the stages of rings by their numbers, and pairs of places in one memory.
#[derive(Clone, PartialEq, Debug)]
struct Change {
    depths: Vec<(usize, i64)>,
    overlays: Vec<(ReplicaId, ReplicaId)>,
}

/// The loss of a change.
struct Loss {
    circuits: Vec<Circuit>,
    stages: i64,
    overlays: usize,
}

impl Loss {
    fn compare(&self, other: &Loss) -> Ordering {
        let circuits = self.circuits.iter().zip(&other.circuits);
        circuits
            .map(|(a, b)| a.scaled(b).cmp(&b.scaled(a)))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
            .then((self.stages, self.overlays).cmp(&(other.stages, other.overlays)))
    }
}

/// A shared place of a kernel.
struct Row {
    place: ReplicaId,
    /// The bytes of a stage.
    bytes: i64,
    /// The number of the ring that it belongs to.
    ring: Option<usize>,
    /// The stages of one that belongs to none.
    stages: i64,
    /// An asynchronous unit touches it, or another role than that which computes: it has its memory for itself.
    alone: bool,
    users: Vec<NodeId>,
    writers: Vec<NodeId>,
    /// The loops in whose iterations it is defined.
    body: Vec<LoopId>,
}

/// The places of a kernel, and what may become of them.
struct Plan<'a> {
    mapping: &'a Mapping,
    graph: &'a Graph,
    estimate: Estimate<'a>,
    kernel: Option<LoopId>,
    rows: Vec<Row>,
    /// The rings of the kernel with the fewest stages that each may have.
    rings: Vec<(usize, i64)>,
    /// The pairs of places that are never needed together.
    pairs: Vec<(ReplicaId, ReplicaId)>,
    bound: i64,
}

/// The changes by which a kernel fits with the least loss; nothing where none do. With `fewest`, rings may have as few stages as iterations need,
/// whatever the mapping says.
fn solved<'a>(
    program: &Program,
    mapping: &'a Mapping,
    graph: &'a Graph,
    kernel: &[Item],
    fewest: bool,
) -> Result<Option<(Plan<'a>, Change)>, Diagnostic> {
    let plan = plan(program, mapping, graph, kernel, fewest)?;
    let found = plan.search();
    Ok(found.map(|change| (plan, change)))
}

fn plan<'a>(
    program: &Program,
    mapping: &'a Mapping,
    graph: &'a Graph,
    kernel: &[Item],
    fewest: bool,
) -> Result<Plan<'a>, Diagnostic> {
    let nodes: BTreeSet<NodeId> = kernel.iter().flat_map(Item::nodes).collect();
    let mut rows = Vec::new();
    for place in (0..graph.replicas.len() as u32).map(ReplicaId) {
        if graph.replica(place).memory == Some(Memory::Shared) {
            let row = row(program, graph, &nodes, place)?;
            rows.extend((!row.users.is_empty()).then_some(row));
        }
    }
    let used = |ring: &Ring| ring.places.iter().any(|place| rows.iter().any(|row| row.place == *place));
    let rings = graph.rings.iter().enumerate().filter(|(_, ring)| used(ring)).map(|(at, ring)| {
        let needed =
            ring.places.iter().filter_map(|id| sides(mapping, graph, *id)).map(|of| of.needed(graph));
        (at, if fewest { needed.max().unwrap_or(1) } else { ring.least })
    });
    let rings = rings.collect();
    let mut plan = Plan {
        mapping,
        graph,
        estimate: Estimate::of(program, mapping, graph),
        kernel: match kernel {
            [Item::Loop(id, _)] => Some(*id),
            _ => None,
        },
        rows,
        rings,
        pairs: Vec::new(),
        bound: bound(program, mapping, graph, &nodes)?.0,
    };
    for first in &plan.rows {
        for second in &plan.rows {
            if first.place != second.place && !first.alone && !second.alone && plan.before(first, second) {
                plan.pairs.push((first.place, second.place));
            }
        }
    }
    Ok(plan)
}

/// The bytes that a kernel may have, and the attribute that says so; without, the architecture does.
fn bound<'a>(
    program: &Program,
    mapping: &'a Mapping,
    graph: &Graph,
    nodes: &BTreeSet<NodeId>,
) -> Result<(i64, Option<&'a Attribute>), Diagnostic> {
    let mut least = (i64::from(graph.tree.arch.limits().shared_bytes_per_block), None);
    let values = Environment::of(program, &Constants::default())?;
    for id in nodes {
        for instance in instances(graph, *id) {
            for attribute in &mapping.instance(instance).attributes {
                let AttributeKind::Shared(bytes) = &attribute.kind else { continue };
                let bytes = values.value(program, bytes, attribute.span)?;
                if bytes < least.0 {
                    least = (bytes, Some(attribute));
                }
            }
        }
    }
    Ok(least)
}

/// The instances that a node belongs to, the innermost first.
pub(super) fn instances(graph: &Graph, id: NodeId) -> impl Iterator<Item = InstanceId> {
    let calls = std::iter::successors(Some(graph.node(id).call), |id| graph.tree.call(*id).parent);
    calls.filter_map(|id| graph.tree.call(id).instance)
}

fn row(
    program: &Program,
    graph: &Graph,
    nodes: &BTreeSet<NodeId>,
    place: ReplicaId,
) -> Result<Row, Diagnostic> {
    let replica = graph.replica(place);
    let object = graph.object(replica.object);
    let writes = |id: &NodeId| graph.node(*id).writes(place);
    let mut users = graph.ordered();
    users.retain(|id| nodes.contains(id) && (graph.node(*id).reads(place) || writes(id)));
    let Some(elements) = replica.piece.size() else {
        let message = format!(
            "`{}` is in shared memory, and its extents are not all known when the kernel is compiled",
            object.name
        );
        let span = users.first().map_or(object.span, |id| graph.node(*id).span);
        return Err(Diagnostic::new(Code::Memory, span, message)
            .related(object.span, "the tensor")
            .help("cut it by `blocks` of known extents, or leave it in global memory"));
    };
    let bits = elements.saturating_mul(i64::from(object.dtype.bits()));
    let ring = graph.rings.iter().position(|ring| ring.places.contains(&place));
    let arch = graph.tree.arch;
    let engine = |id: &NodeId| {
        let moved = match graph.node(*id).op {
            Op::Copy(from, to) => {
                arch.has(Feature::Tma)
                    && [from, to].iter().any(|id| graph.replica(*id).memory == Some(Memory::Global))
            }
            Op::Statement { .. } => group(program, graph, *id) == Some(Group::Products),
        };
        moved || graph.node(*id).role != Role::Compute
    };
    let mut body = graph.tree.around(replica.scope);
    let head = replica.stages.map(|stages| stages.head).or(ring.and_then(|at| graph.rings[at].head));
    if let Some(at) = head.and_then(|head| body.iter().position(|id| *id == head)) {
        body.truncate(at);
    }
    Ok(Row {
        place,
        bytes: up(bits.div_euclid(8) + i64::from(bits % 8 != 0), ALIGN),
        ring,
        stages: replica.stages.map_or(1, |stages| stages.depth),
        alone: users.iter().any(engine),
        writers: users.iter().copied().filter(writes).collect(),
        users,
        body,
    })
}

/// The least multiple of a number that is not below.
fn up(bytes: i64, align: i64) -> i64 {
    bytes.saturating_add(align - 1) / align * align
}

impl Plan<'_> {
    fn row(&self, place: ReplicaId) -> Option<&Row> {
        self.rows.iter().find(|row| row.place == place)
    }

    /// True if a place is done with before another is first used, in the body in which both are defined.
    fn before(&self, first: &Row, second: &Row) -> bool {
        let shared = first.body.iter().zip(&second.body).take_while(|(a, b)| a == b).count();
        let items = items(&self.graph.order, &first.body[..shared]);
        let interval = |row: &Row| {
            let uses = |item: &Item| match row.body.get(shared) {
                Some(deeper) => matches!(item, Item::Loop(id, _) if id == deeper),
                None => item.nodes().iter().any(|id| row.users.contains(id)),
            };
            let at = |index: Option<usize>| index.unwrap_or(0);
            (at(items.iter().position(uses)), at(items.iter().rposition(uses)))
        };
        interval(first).1 < interval(second).0
    }

    /// The edges by which two places are in one memory: from who uses the first to who writes the second, and back in the next iteration.
    fn of_overlay(&self, first: &Row, second: &Row) -> Vec<Edge> {
        let common: Vec<LoopId> =
            first.body.iter().zip(&second.body).take_while(|(a, b)| a == b).map(|(id, _)| *id).collect();
        let mut edges = Vec::new();
        let mut all = |from: &Row, to: &Row, distance: &[i64]| {
            for (from, to) in from.users.iter().flat_map(|from| to.writers.iter().map(move |to| (*from, *to)))
            {
                let (distance, why) = (distance.to_vec(), Why::SamePlace);
                edges.push(Edge { from, to, distance, why, event: Vec::new() });
            }
        };
        all(first, second, &[]);
        for (level, head) in common.iter().enumerate() {
            let kind = self.graph.tree.loop_(*head).kind;
            if kind == LoopKind::Srange || persistent(self.mapping, self.graph, *head) {
                let mut distance = vec![0; level];
                distance.push(1);
                all(second, first, &distance);
            }
        }
        edges
    }

    fn unchanged(&self) -> Change {
        let depths = self.rings.iter().map(|(at, _)| (*at, self.graph.rings[*at].depth)).collect();
        Change { depths, overlays: Vec::new() }
    }

    fn stages(&self, row: &Row, change: &Change) -> i64 {
        let of_ring = row.ring.and_then(|ring| change.depths.iter().find(|(at, _)| *at == ring));
        of_ring.map_or(row.stages, |(_, depth)| *depth)
    }

    fn barriers(&self, change: &Change) -> i64 {
        let between = change.depths.iter().filter(|(at, _)| {
            let ring = &self.graph.rings[*at];
            ring.from != ring.to
        });
        between.map(|(_, depth)| BARRIERS * depth).sum()
    }

    /// The bytes of all places and barriers: the largest place first, each as low as it may lie, as the tile compiler does it.
    fn bytes(&self, change: &Change) -> i64 {
        let mut order: Vec<(&Row, i64)> =
            self.rows.iter().map(|row| (row, row.bytes.saturating_mul(self.stages(row, change)))).collect();
        order.sort_by_key(|(row, bytes)| (Reverse(*bytes), row.place));
        let mut placed: Vec<(i64, i64, ReplicaId)> = Vec::new();
        for (row, bytes) in order {
            let align = if row.alone { ASYNC_ALIGN } else { ALIGN };
            let mut offset = 0;
            for (from, end, other) in &placed {
                if offset + bytes <= *from {
                    break;
                }
                let pairs = [(row.place, *other), (*other, row.place)];
                if !change.overlays.iter().any(|pair| pairs.contains(pair)) {
                    offset = offset.max(up(*end, align));
                }
            }
            let at = placed.partition_point(|(from, ..)| *from <= offset);
            placed.insert(at, (offset, offset.saturating_add(bytes), row.place));
        }
        let end = placed.iter().map(|(_, end, _)| *end).max().unwrap_or(0);
        end.saturating_add(self.barriers(change))
    }

    /// The edges of the graph under a change.
    fn edges(&self, change: &Change) -> Vec<Edge> {
        let graph = self.graph;
        let mut edges = graph.edges.clone();
        for edge in edges.iter_mut().filter(|edge| edge.why == Why::Reuse) {
            let of = |(at, _): &&(usize, i64)| {
                let ring = &graph.rings[*at];
                let (from, to) = (graph.node(edge.from), graph.node(edge.to));
                ring.places.iter().any(|place| from.reads(*place) && to.writes(*place))
            };
            if let (Some((at, depth)), Some(last)) = (change.depths.iter().find(of), edge.distance.last_mut())
            {
                *last += depth - graph.rings[*at].depth;
            }
        }
        for (first, second) in &change.overlays {
            if let (Some(first), Some(second)) = (self.row(*first), self.row(*second)) {
                edges.extend(self.of_overlay(first, second));
            }
        }
        edges
    }

    /// The same, of overlays only those edges that no others imply.
    fn reduced_edges(&self, change: &Change) -> Vec<Edge> {
        let mut edges = self.edges(change);
        let overlay = |edge: &Edge| edge.why == Why::SamePlace;
        if edges.iter().any(overlay) {
            let left = reduced(self.graph, edges.iter().cloned().collect());
            edges.retain(|edge| !overlay(edge));
            edges.extend(left.into_iter().filter(overlay));
            edges.sort();
        }
        edges
    }

    fn loss(&self, change: &Change) -> Loss {
        let circuits = self.estimate.circuits(&self.edges(change));
        let lost = change.depths.iter().map(|(at, depth)| self.graph.rings[*at].depth - depth);
        Loss { circuits, stages: lost.sum(), overlays: change.overlays.len() }
    }

    /// The changes that take one step more than these, each with the number of the step.
    fn steps(&self, change: &Change) -> Vec<(usize, Change)> {
        let mut out = Vec::new();
        for (step, (_, least)) in self.rings.iter().enumerate() {
            if change.depths[step].1 > *least {
                let mut next = change.clone();
                next.depths[step].1 -= 1;
                out.push((step, next));
            }
        }
        for (step, pair) in self.pairs.iter().enumerate() {
            if !change.overlays.contains(pair) {
                let mut next = change.clone();
                next.overlays.push(*pair);
                out.push((self.rings.len() + step, next));
            }
        }
        out
    }

    /// All steps at once: rings with the fewest stages, and all pairs in one memory.
    fn fewest(&self) -> Change {
        Change { depths: self.rings.clone(), overlays: self.pairs.clone() }
    }

    /// The changes that fit with the least loss. No step makes a loss smaller, so that the first set that fits, by rising loss, is the best.
    fn search(&self) -> Option<Change> {
        let fits = |change: &Change| self.bytes(change) <= self.bound;
        let start = self.unchanged();
        if fits(&start) {
            return Some(start);
        }
        if !fits(&self.fewest()) {
            return None;
        }
        let loss = self.loss(&start);
        let (mut open, mut seen) = (vec![(loss, 0, start.clone())], 1);
        while seen < SETS {
            let least = (0..open.len()).min_by(|a, b| open[*a].0.compare(&open[*b].0))?;
            let (_, first, change) = open.swap_remove(least);
            if fits(&change) {
                return Some(change);
            }
            // Each set of steps is made in one order.
            let steps = self.steps(&change).into_iter().filter(|(step, _)| *step >= first);
            let before = open.len();
            open.extend(steps.map(|(step, next)| (self.loss(&next), step, next)));
            seen += open.len() - before;
        }
        let mut change = start;
        while !fits(&change) {
            let steps = self.steps(&change).into_iter().map(|(_, next)| (self.loss(&next), next));
            change = steps.min_by(|(a, _), (b, _)| a.compare(b))?.1;
        }
        Some(change)
    }

    fn memory(&self, change: &Change) -> SharedMemory {
        let places = self.rows.iter().map(|row| SharedPlace {
            place: row.place,
            bytes: row.bytes,
            stages: self.stages(row, change),
        });
        SharedMemory {
            kernel: self.kernel,
            bound: self.bound,
            bytes: self.bytes(change),
            barriers: self.barriers(change),
            places: places.collect(),
            overlays: change.overlays.clone(),
        }
    }
}

/// The items of a body, from the outermost loop to it.
fn items<'a>(order: &'a [Item], body: &[LoopId]) -> &'a [Item] {
    body.iter().fold(order, |items, id| {
        let inner = items.iter().find_map(|item| match item {
            Item::Loop(of, inner) if of == id => Some(&inner[..]),
            _ => None,
        });
        inner.unwrap_or(&[])
    })
}

/// The message about a kernel that does not fit: its table of places, and the nearest mapping that fits.
fn exceeded(program: &Program, mapping: &Mapping, graph: &Graph, kernel: &[Item], anew: Anew) -> Diagnostic {
    let whole = plan(program, mapping, graph, kernel, false).and_then(|plan| {
        let nodes: BTreeSet<NodeId> = kernel.iter().flat_map(Item::nodes).collect();
        Ok((bound(program, mapping, graph, &nodes)?.1, plan))
    });
    let (attribute, plan) = match whole {
        Ok(found) => found,
        Err(error) => return error,
    };
    let memory = plan.memory(&plan.fewest());
    let has = match attribute {
        Some(_) => format!("the mapping has `shared <= {}`", memory.bound),
        None => format!("{} has {} for a block", graph.tree.arch, memory.bound),
    };
    let message = format!("the shared tensors of a block take {} bytes, and {has}", memory.bytes);
    let largest = memory.places.iter().max_by_key(|row| row.bytes * row.stages);
    let row = largest.and_then(|row| {
        let head = graph.rings.iter().find(|ring| ring.places.contains(&row.place))?.head?;
        graph.tree.call(graph.tree.loop_(head).call).instance
    });
    let span = attribute.map(|attribute| attribute.span);
    let span = span.or(row.map(|id| mapping.instance(id).span)).unwrap_or(mapping.span);
    let mut error = Diagnostic::new(Code::SharedMemoryExceeded, span, message);
    for line in graph.places_text(&memory) {
        error = error.note(line);
    }
    error.help(
        nearest(program, mapping, graph, kernel, anew)
            .unwrap_or_else(|| "make the tiles smaller".to_string()),
    )
}

/// The change of a mapping that is nearest to it and fits: fewer stages, else a tunable halved.
fn nearest(
    program: &Program,
    mapping: &Mapping,
    graph: &Graph,
    kernel: &[Item],
    anew: Anew,
) -> Option<String> {
    if let Ok(Some((plan, change))) = solved(program, mapping, graph, kernel, true) {
        let mut said: Vec<String> = Vec::new();
        for (at, depth) in &change.depths {
            let ring = &graph.rings[*at];
            let (true, Some(head)) = (*depth < ring.least, ring.head) else { continue };
            let call = graph.tree.call(graph.tree.loop_(head).call);
            let of = call.instance.map(|id| program.instance_name(mapping.instance(id)));
            let counters = graph.counters_text(head);
            let text =
                format!("`pipeline({depth})` for the loop over {counters} of `{}`", of.unwrap_or_default());
            if !said.contains(&text) {
                said.push(text);
            }
        }
        return Some(format!("{} fits, in {} bytes", said.join(" and "), plan.bytes(&change)));
    }
    let mut best: Option<(u32, String)> = None;
    for (id, instance) in mapping.instances() {
        for (at, setting) in instance.tunables.iter().enumerate() {
            let SettingValue::Integer(value) = &setting.value else { continue };
            let values = Environment::of(program, &Constants::default()).ok()?;
            let Ok(mut value) = values.value(program, value, setting.span) else { continue };
            let mut halvings = 0;
            while value % 2 == 0 && best.as_ref().is_none_or(|(least, _)| halvings + 1 < *least) {
                (value, halvings) = (value / 2, halvings + 1);
                let mut changed = mapping.clone();
                changed.instances[id.index()].tunables[at].value = SettingValue::Integer(Expr::Int(value));
                let Some(bytes) = fits(program, &changed, anew) else { continue };
                let name = &program.symbol(setting.tunable).name;
                let of = program.instance_name(instance);
                best = Some((
                    halvings,
                    format!("`{name} = {value}` in the row of `{of}` fits, in {bytes} bytes"),
                ));
                break;
            }
        }
    }
    best.map(|(_, text)| text)
}

/// The bytes of the largest kernel under a mapping that is right and under which all fit.
fn fits(program: &Program, mapping: &Mapping, anew: Anew) -> Option<i64> {
    let mut changed = program.clone();
    changed.mappings = vec![mapping.clone()];
    crate::verify(&changed, &Constants::default()).ok()?;
    let graph = anew(program, mapping).ok()?;
    let mut most = 0;
    for kernel in kernels(&graph) {
        let (plan, change) = solved(program, mapping, &graph, &kernel, false).ok()??;
        most = most.max(plan.bytes(&change));
    }
    Some(most)
}
