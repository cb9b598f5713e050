//! Registers: the fragments that the threads which compute hold at once, against what they have. Needs: placement, roles and retiming. Keeps: everything.
//!
//! The count is one from below: a result takes the registers of an operand that ends there, what only has elements of another in another shape takes none, and nor do factors
//! that may be loaded step by step. So what is refused here does not fit, and what is not may still be too much.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Memory, WARP, WARPGROUP};
use tilewright_tile::{Code, Constants, Diagnostic, Diagnostics, Origin, StmtKind};

use super::fit::{instances, kernels};
use super::schedule::statement;
use crate::environment::Environment;
use crate::graph::{Fragments, Graph, Item, NodeId, Op, ReplicaId};
use crate::mapping::{AttributeKind, Mapping};
use crate::program::Program;

/// The registers of a role that copies, where the mapping does not say: the fewest that a role may ask for (PTX ISA, `setmaxnreg`).
const COPIES: i64 = 24;
/// The most registers that `registers` of the tile language asks for.
const MOST: i64 = 240;

/// Counts the fragments of each kernel whose threads a mapping says.
///
/// # Errors
///
/// `registers-exceeded`: more fragments than registers. `bad-value`: registers of roles that a launch does not have.
pub fn registers(program: &Program, mapping: &Mapping, graph: &mut Graph) -> Result<(), Diagnostics> {
    let (mut errors, mut found) = (Vec::new(), Vec::new());
    for kernel in kernels(graph) {
        match of_kernel(program, mapping, graph, &kernel) {
            Ok(fragments) => found.extend(fragments),
            Err(error) => errors.push(error),
        }
    }
    graph.fragments = found;
    if errors.is_empty() { Ok(()) } else { Err(Diagnostics(errors)) }
}

/// The threads that compute, and the registers of each.
struct Threads {
    count: i64,
    registers: i64,
    /// The attribute that says how many threads.
    span: Origin,
    /// True of a role.
    role: bool,
}

fn threads(
    program: &Program,
    mapping: &Mapping,
    graph: &Graph,
    nodes: &[NodeId],
) -> Result<Option<Threads>, Diagnostic> {
    let values = Environment::of(program, &Constants::default())?;
    let attributes: Vec<_> = nodes
        .iter()
        .flat_map(|id| instances(graph, *id))
        .collect::<BTreeSet<_>>()
        .into_iter()
        .flat_map(|id| &mapping.instance(id).attributes)
        .collect();
    let limits = graph.tree.arch.limits();
    let said = attributes.iter().find_map(|attribute| match &attribute.kind {
        AttributeKind::Registers { load, compute } => Some((load, compute, attribute.span)),
        _ => None,
    });
    for attribute in &attributes {
        match &attribute.kind {
            AttributeKind::Warps(count) => {
                let warps = values.value(program, count, attribute.span)?;
                let count = warps.saturating_mul(i64::from(WARP));
                let registers =
                    i64::from(limits.registers_of_a_thread(u32::try_from(count).unwrap_or(u32::MAX)));
                return Ok(Some(Threads { count, registers, span: attribute.span, role: false }));
            }
            AttributeKind::Warpspecialize { warpgroups, store } => {
                let warpgroups = match warpgroups {
                    Some(count) => values.value(program, count, attribute.span)?,
                    None => 1,
                };
                let group = i64::from(WARPGROUP);
                let copying = group * if *store { 2 } else { 1 };
                let count = warpgroups.saturating_mul(group);
                let all = count.saturating_add(copying);
                let at_launch =
                    limits.registers_of_a_thread_at_launch(u32::try_from(all).unwrap_or(u32::MAX));
                let pool = i64::from(at_launch).saturating_mul(all);
                let registers = match said {
                    Some((load, compute, span)) => {
                        let load = values.value(program, load, span)?;
                        let compute = values.value(program, compute, span)?;
                        let asked =
                            load.saturating_mul(copying).saturating_add(compute.saturating_mul(count));
                        if asked > pool {
                            let message = format!(
                                "`registers({load}, {compute})`: {copying} threads that copy and {count} that compute take {asked} registers, and a launch of {all} has {pool}"
                            );
                            let most = (pool - COPIES * copying).max(0) / count.max(1) / 8 * 8;
                            return Err(Diagnostic::new(Code::BadValue, span, message)
                                .related(attribute.span, "the roles")
                                .help(format!("`registers({COPIES}, {})`", most.min(MOST))));
                        }
                        compute
                    }
                    None => ((pool - COPIES * copying).max(0) / count.max(1) / 8 * 8).min(MOST),
                };
                return Ok(Some(Threads { count, registers, span: attribute.span, role: true }));
            }
            _ => {}
        }
    }
    Ok(None)
}

fn of_kernel(
    program: &Program,
    mapping: &Mapping,
    graph: &Graph,
    kernel: &[Item],
) -> Result<Option<Fragments>, Diagnostic> {
    let nodes: Vec<NodeId> = kernel.iter().flat_map(Item::nodes).collect();
    let Some(threads) = threads(program, mapping, graph, &nodes)? else { return Ok(None) };
    let mut held = Held { graph, sizes: sizes(program, graph, threads.count), most: (0, None) };
    held.items(kernel, BTreeSet::new());
    let (registers, at) = held.most.clone();
    let fragments = Fragments {
        kernel: match kernel {
            [Item::Loop(id, _)] => Some(*id),
            _ => None,
        },
        threads: threads.count,
        registers,
        bound: threads.registers,
    };
    let Some((at, live)) = at.filter(|_| registers > threads.registers) else { return Ok(Some(fragments)) };
    let who = if threads.role { "the role that computes" } else { "the block" };
    let message = format!(
        "{who} holds fragments of {registers} registers in each of its {} threads at once, and a thread has {}",
        threads.count, threads.registers
    );
    let mut error = Diagnostic::new(Code::RegistersExceeded, threads.span, message)
        .related(graph.node(at).span, "held here");
    let mut live: Vec<(i64, ReplicaId)> = live.iter().map(|id| (held.size(*id), *id)).collect();
    live.sort_by_key(|(size, id)| (std::cmp::Reverse(*size), *id));
    for (size, id) in live.iter().filter(|(size, _)| *size > 0) {
        let name = &graph.object(graph.replica(*id).object).name;
        error = error.note(format!("`{name}` takes {size} of them"));
    }
    Err(error
        .help("share it among more threads, make the tiles smaller, or give a tensor the memory `shared`"))
}

/// The registers of a thread that each place takes.
fn sizes(program: &Program, graph: &Graph, threads: i64) -> BTreeMap<ReplicaId, i64> {
    let mut sizes = BTreeMap::new();
    for id in (0..graph.replicas.len() as u32).map(ReplicaId) {
        let place = graph.replica(id);
        let (Some(Memory::Register), Some(elements)) = (place.memory, place.piece.size()) else { continue };
        let nodes = || graph.node_ids();
        let writers = || nodes().filter(|node| graph.node(*node).writes(id));
        let mut readers = nodes().filter(|node| graph.node(*node).reads(id));
        let repeats =
            writers().all(|node| matches!(statement(program, graph, node), Some(StmtKind::Shape { .. })));
        let step_by_step = writers().all(|node| matches!(graph.node(node).op, Op::Copy(..)))
            && readers.all(|node| matches!(statement(program, graph, node), Some(StmtKind::Gemm { .. })));
        if repeats || step_by_step {
            continue;
        }
        let bits = elements.saturating_mul(i64::from(graph.object(place.object).dtype.bits()));
        let each = bits / threads.max(1) / 32;
        sizes.insert(id, each.saturating_mul(place.stages.map_or(1, |stages| stages.depth)));
    }
    sizes
}

/// Places whose contents are needed later.
type Live = BTreeSet<ReplicaId>;

struct Held<'a> {
    graph: &'a Graph,
    sizes: BTreeMap<ReplicaId, i64>,
    /// The most registers that are held at once, with the node and the places.
    most: (i64, Option<(NodeId, Live)>),
}

impl Held<'_> {
    fn size(&self, id: ReplicaId) -> i64 {
        self.sizes.get(&id).copied().unwrap_or(0)
    }

    /// The places that are live before items, given those behind them.
    fn items(&mut self, items: &[Item], behind: Live) -> Live {
        items.iter().rev().fold(behind, |live, item| match item {
            Item::Node(id) => self.node(*id, live),
            Item::Loop(_, items) => self.loop_(items, live),
        })
    }

    /// The same of a loop: what its next iteration needs is live at the end of each.
    fn loop_(&mut self, items: &[Item], behind: Live) -> Live {
        let mut end = behind.clone();
        loop {
            let begin = self.items(items, end.clone());
            let next: Live = end.union(&begin).copied().collect();
            if next == end {
                return next;
            }
            end = next;
        }
    }

    fn node(&mut self, id: NodeId, behind: Live) -> Live {
        let node = self.graph.node(id);
        let mut before = behind.clone();
        let mut with = behind;
        for access in &node.accesses {
            let Some(place) = access.replica.filter(|place| self.sizes.contains_key(place)) else { continue };
            let whole = access.piece.same(&self.graph.replica(place).piece);
            if access.writes {
                with.insert(place);
                if whole && !access.reads {
                    before.remove(&place);
                }
            }
        }
        for access in node.accesses.iter().filter(|access| access.reads) {
            before.extend(access.replica.filter(|place| self.sizes.contains_key(place)));
        }
        for live in [&before, &with] {
            let held = live.iter().map(|id| self.size(*id)).sum();
            if held > self.most.0 {
                self.most = (held, Some((id, live.clone())));
            }
        }
        before
    }
}
