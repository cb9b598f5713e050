//! Critical circuits: the nodes and edges that a loop cannot go faster than. An estimate, by the tables of `machine`, of a graph whose edges have
//! distances: an iteration takes as long as the longest circuit takes cycles for each of its iterations (Reiter 1968).
//!
//! Three kinds of arrows make circuits: edges of the graph; the order of what a role does one after another; and the order in which a unit does the
//! asynchronous nodes of one kind. A body that is not repeated is taken for a loop whose next iteration begins behind the last of this one: its
//! circuit is the longest way through it. What is in a loop further inside counts there.

use std::collections::BTreeMap;

use tilewright_machine::{
    Arch, Class, DType, Feature, Memory, MmaKind, Rate, WARP, WgmmaRow, mmas_of, timing, wgmmas,
};
use tilewright_tile::StmtKind;
use tilewright_tile::elementwise::ElemExpr;

use crate::graph::{Edge, Graph, Group, Item, NodeId, Op, ReplicaId, Role};
use crate::instantiate::LoopId;
use crate::mapping::Mapping;
use crate::passes::retime::persistent;
use crate::passes::schedule::{group, statement};
use crate::piece::Piece;
use crate::program::{LeafFormal, LoopKind, Program};

/// The circuit that decides how long an iteration takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Circuit {
    /// The loop; nothing of the statements outside of all loops.
    pub body: Option<LoopId>,
    /// True if iterations of the loop may overlap; else the nodes are the longest way through the body.
    pub repeats: bool,
    /// Its nodes in their order.
    pub nodes: Vec<NodeId>,
    /// The cycles of one way around.
    pub cycles: i64,
    /// The iterations of one way around.
    pub iterations: i64,
}

impl Circuit {
    /// True if an iteration takes longer by this circuit than by another.
    pub fn longer(&self, other: &Circuit) -> bool {
        self.scaled(other) > other.scaled(self)
    }

    /// Its cycles, in a unit in which those of another may be compared.
    pub fn scaled(&self, other: &Circuit) -> i128 {
        i128::from(self.cycles) * i128::from(other.iterations)
    }
}

/// The cycles of a node.
#[derive(Clone, Copy, Default)]
struct Cycles {
    /// Cycles for which its unit, or its role, does nothing else.
    busy: i64,
    /// Cycles beyond those until the result is there.
    latency: i64,
}

/// A graph with the cycles of its nodes.
pub struct Estimate<'a> {
    graph: &'a Graph,
    cycles: Vec<Cycles>,
    groups: BTreeMap<NodeId, Group>,
    /// The bodies: the items, and if iterations may overlap.
    bodies: Vec<(Option<LoopId>, Vec<Item>, bool)>,
}

impl<'a> Estimate<'a> {
    /// The estimate of a graph. Needs: rings.
    pub fn of(program: &Program, mapping: &Mapping, graph: &'a Graph) -> Estimate<'a> {
        let ids = || graph.node_ids();
        let mut bodies = Vec::new();
        collect(mapping, graph, None, &graph.order, &mut bodies);
        Estimate {
            graph,
            cycles: ids().map(|id| cycles(program, graph, id)).collect(),
            groups: ids().filter_map(|id| Some((id, group(program, graph, id)?))).collect(),
            bodies,
        }
    }

    /// The critical circuit of each body that has one, the innermost bodies first, if these were the edges.
    pub fn circuits(&self, edges: &[Edge]) -> Vec<Circuit> {
        self.bodies
            .iter()
            .filter_map(|(body, items, repeats)| self.circuit(*body, items, *repeats, edges))
            .collect()
    }

    fn circuit(
        &self,
        body: Option<LoopId>,
        items: &[Item],
        repeats: bool,
        edges: &[Edge],
    ) -> Option<Circuit> {
        let arrows = self.arrows(body, items, repeats, edges);
        let (mut best, mut ratio) = (None, (0, 1));
        // Each circuit that is found is longer than the one before (Newton's method on the ratio), so that this ends.
        while let Some(found) = above(&arrows, items.len(), ratio) {
            let sum = |of: fn(&Arrow) -> i64| found.iter().map(|at| of(&arrows[*at])).sum::<i64>();
            ratio = (sum(|arrow| arrow.cycles), sum(|arrow| arrow.iterations));
            let nodes = found.iter().filter_map(|at| match &items[arrows[*at].from] {
                Item::Node(id) => Some(*id),
                Item::Loop(..) => None,
            });
            let nodes = nodes.collect();
            best = Some(Circuit { body, repeats, nodes, cycles: ratio.0, iterations: ratio.1 });
        }
        best
    }

    /// The arrows between the items of a body.
    fn arrows(&self, body: Option<LoopId>, items: &[Item], repeats: bool, edges: &[Edge]) -> Vec<Arrow> {
        let graph = self.graph;
        let mut at: BTreeMap<NodeId, usize> = BTreeMap::new();
        for (index, item) in items.iter().enumerate() {
            at.extend(item.nodes().into_iter().map(|id| (id, index)));
        }
        let outside = graph.tree.around(body).len();
        let mut arrows = Vec::new();
        let cycles = |index: usize| match &items[index] {
            Item::Node(id) => self.cycles[id.index()],
            Item::Loop(..) => Cycles::default(),
        };
        for edge in edges {
            let (Some(from), Some(to)) = (at.get(&edge.from), at.get(&edge.to)) else { continue };
            let level = outside.checked_sub(1);
            let outer = &edge.distance[..level.unwrap_or(0).min(edge.distance.len())];
            let iterations = level.and_then(|level| edge.distance.get(level)).copied().unwrap_or(0);
            let inner = edge.distance.iter().skip(outside).any(|distance| *distance != 0);
            if outer.iter().any(|distance| *distance != 0) || (from == to && iterations == 0) || inner {
                continue;
            }
            let Cycles { busy, latency } = cycles(*from);
            arrows.push(Arrow { from: *from, to: *to, cycles: busy + latency, iterations });
        }
        // A chain of items, each behind the one before, and the first of the next iteration behind the last.
        let mut chain = |of: &dyn Fn(&Item) -> bool, cost: &dyn Fn(usize) -> i64| {
            let chained: Vec<usize> = (0..items.len()).filter(|index| of(&items[*index])).collect();
            for pair in chained.windows(2) {
                arrows.push(Arrow { from: pair[0], to: pair[1], cycles: cost(pair[0]), iterations: 0 });
            }
            if let (Some(first), Some(last)) = (chained.first(), chained.last()) {
                arrows.push(Arrow { from: *last, to: *first, cycles: cost(*last), iterations: 1 });
            }
        };
        for role in [Role::Load, Role::Compute, Role::Store] {
            let does = |item: &Item| item.nodes().iter().any(|id| graph.node(*id).role == role);
            // To issue what is asynchronous takes next to nothing.
            chain(&does, &|index| match &items[index] {
                Item::Node(id) if self.groups.contains_key(id) => 0,
                _ => cycles(index).busy,
            });
            for kind in Group::ALL {
                let of_kind = |item: &Item| matches!(item, Item::Node(id) if self.groups.get(id) == Some(&kind) && graph.node(*id).role == role);
                chain(&of_kind, &|index| cycles(index).busy);
            }
        }
        if !repeats {
            for from in 0..items.len() {
                for to in 0..=from {
                    let Cycles { busy, latency } = cycles(from);
                    arrows.push(Arrow { from, to, cycles: busy + latency, iterations: 1 });
                }
            }
        }
        arrows
    }
}

/// An arrow between two items of a body.
struct Arrow {
    from: usize,
    to: usize,
    cycles: i64,
    iterations: i64,
}

/// A circuit with more cycles an iteration than the ratio, as the numbers of its arrows; nothing where there is none. (Bellman and Ford: a way that
/// still grows after as many steps as there are items goes round.)
fn above(arrows: &[Arrow], items: usize, (cycles, iterations): (i64, i64)) -> Option<Vec<usize>> {
    let gain = |arrow: &Arrow| {
        i128::from(arrow.cycles) * i128::from(iterations) - i128::from(arrow.iterations) * i128::from(cycles)
    };
    let mut longest = vec![0i128; items];
    let mut by: Vec<Option<usize>> = vec![None; items];
    let mut grown = None;
    for _ in 0..=items {
        grown = None;
        for (at, arrow) in arrows.iter().enumerate() {
            let length = longest[arrow.from] + gain(arrow);
            if length > longest[arrow.to] {
                longest[arrow.to] = length;
                by[arrow.to] = Some(at);
                grown = Some(arrow.to);
            }
        }
        grown?;
    }
    // As many steps back lead onto the circuit.
    let mut on = grown?;
    for _ in 0..items {
        on = arrows[by[on]?].from;
    }
    let (mut circuit, mut item) = (Vec::new(), on);
    loop {
        let arrow = by[item]?;
        circuit.push(arrow);
        item = arrows[arrow].from;
        if item == on {
            break;
        }
    }
    circuit.reverse();
    Some(circuit)
}

/// The bodies of a graph, those inside first.
fn collect(
    mapping: &Mapping,
    graph: &Graph,
    body: Option<LoopId>,
    items: &[Item],
    out: &mut Vec<(Option<LoopId>, Vec<Item>, bool)>,
) {
    for item in items {
        if let Item::Loop(id, items) = item {
            collect(mapping, graph, Some(*id), items, out);
        }
    }
    let serial = |id: LoopId| graph.tree.loop_(id).kind == LoopKind::Srange || persistent(mapping, graph, id);
    out.push((body, items.to_vec(), body.is_some_and(serial)));
}

/// The bytes of a place's piece, as far as its extents are known.
fn bytes(graph: &Graph, id: ReplicaId) -> i64 {
    let place = graph.replica(id);
    elements(&place.piece).saturating_mul(i64::from(graph.object(place.object).dtype.bits())) / 8
}

fn elements(piece: &Piece) -> i64 {
    piece.size().unwrap_or(1)
}

fn cycles(program: &Program, graph: &Graph, id: NodeId) -> Cycles {
    let arch = graph.tree.arch;
    let timing = timing(arch);
    let node = graph.node(id);
    let whole = |cycles: f64| cycles.ceil() as i64;
    if let Op::Copy(from, to) = node.op {
        let memories = (graph.replica(from).memory, graph.replica(to).memory);
        let tma = arch.has(Feature::Tma);
        let (rate, latency) = match memories {
            (Some(Memory::Global), Some(Memory::Shared)) if tma => {
                (Rate::TmaLoadBytes, Some(Rate::L2Latency))
            }
            (Some(Memory::Global), _) => (Rate::L2Bytes, Some(Rate::L2Latency)),
            (Some(Memory::Shared), Some(Memory::Global)) if tma => (Rate::TmaStoreBytes, None),
            (_, Some(Memory::Global)) => (Rate::StoreBytes, None),
            _ => (Rate::SharedBytes, None),
        };
        let moved = bytes(graph, from).min(bytes(graph, to)).max(1);
        let busy = whole(moved as f64 / timing.rate(rate));
        return Cycles { busy, latency: latency.map_or(0, |rate| whole(timing.rate(rate))) };
    }
    let busy = match statement(program, graph, id) {
        Some(StmtKind::Gemm { c, a, b, meta, scales, .. }) => {
            let call = graph.tree.call(node.call);
            let leaf = program.task(call.task).variant(call.variant).leaf();
            let operand = |tensor| {
                let formal = leaf?.formals.iter().position(|of| *of == LeafFormal::Tensor(tensor))?;
                let access = node.accesses.iter().find(|access| access.formal == Some(formal))?;
                Some((access.piece.shape().to_vec(), graph.object(access.object).dtype))
            };
            match (operand(*c), operand(*a), operand(*b)) {
                (Some(c), Some(a), Some(b)) => product(
                    arch,
                    [&c, &a, &b],
                    scales
                        .and_then(|[left, _]| {
                            let (shape, dtype) = operand(left)?;
                            MmaKind::scaled(dtype, *b.0.get(1)?.as_ref()?, *shape.get(1)?.as_ref()?)
                        })
                        .unwrap_or_else(|| MmaKind::sparse(meta.is_some())),
                    node.accesses.iter().any(|access| {
                        access.reads
                            && !access.writes
                            && access
                                .replica
                                .is_some_and(|id| graph.replica(id).memory == Some(Memory::Shared))
                    }),
                ),
                _ => 1.0,
            }
        }
        Some(StmtKind::Elementwise { expr, .. }) => {
            let mut operations = 0;
            expr.visit(&mut |expr| {
                operations +=
                    i64::from(!matches!(expr, ElemExpr::Tensor(_) | ElemExpr::Int(_) | ElemExpr::Number(_)))
            });
            arithmetic(arch, most(graph, id), operations.max(1))
        }
        _ => arithmetic(arch, most(graph, id), 1),
    };
    Cycles { busy: whole(busy), latency: 0 }
}

/// The elements of the largest operand.
fn most(graph: &Graph, id: NodeId) -> i64 {
    graph.node(id).accesses.iter().map(|access| elements(&access.piece)).max().unwrap_or(1)
}

/// Cycles of so many operations on each element, by the pipe of `f32` arithmetic.
fn arithmetic(arch: Arch, elements: i64, operations: i64) -> f64 {
    let warps = elements as f64 / f64::from(WARP);
    warps * operations as f64 * timing(arch).cost(Class::FmaF32).share()
}

/// Cycles of a product on the tensor cores: by the fastest instruction of these types, of warpgroups where a factor is in shared memory.
fn product(arch: Arch, [c, a, b]: [&(Vec<Option<i64>>, DType); 3], kind: MmaKind, shared: bool) -> f64 {
    let timing = timing(arch);
    let extent =
        |(shape, _): &(Vec<Option<i64>>, DType), mode: usize| shape.get(mode).copied().flatten().unwrap_or(1);
    let (m, n, k) = (extent(c, 0), extent(c, 1), extent(b, 1));
    let calls = |rows: i64, columns: i64, depth: i64| {
        [(m, rows), (n, columns), (k, depth)]
            .iter()
            .map(|(extent, by)| (*extent as f64 / *by as f64).max(1.0))
            .product::<f64>()
    };
    if shared && arch.has(WgmmaRow::NEEDS) && !matches!(kind, MmaKind::Scaled { .. }) {
        let rows = wgmmas(a.1, b.1, c.1, kind == MmaKind::Sparse);
        let of = rows.map(|row| calls(WgmmaRow::M, row.n, row.k) * timing.wgmma(row).issue);
        if let Some(fewest) = of.reduce(f64::min) {
            return fewest;
        }
    }
    let rows = mmas_of(kind).filter(|row| (row.a, row.b, row.c) == (a.1, b.1, c.1) && arch.has(row.needs));
    let of = rows.map(|row| calls(row.m, row.n, row.k) * timing.cost(row).share());
    of.reduce(f64::min).unwrap_or_else(|| arithmetic(arch, m * n * k, 1))
}
