//! Synchronisation: the index of each edge's event, which says who waits for whom. Needs: joining and placement. Keeps: the edges.
//!
//! An edge between statements that processors share out makes a processor of a level wait for its own part alone as long as no other touches
//! what it does: a question about two spreads. The paper's rule for it (figure 10a) is the case of two equal partitions.

mod spread;

use tilewright_machine::Memory;
use tilewright_tile::{Code, Diagnostic, Diagnostics};

use crate::graph::{Access, Graph, NodeId, Spread};
use crate::instantiate::ObjectId;
use crate::mapping::Placement;
use crate::program::Program;

pub use spread::event;

/// Finds the spread of each place and the index of each event.
///
/// # Errors
///
/// Uses of a tensor in registers that share it out differently: `none` of one to which the mapping gives no memory, `memory` of another.
pub fn synchronise(program: &Program, graph: &mut Graph) -> Result<(), Diagnostics> {
    let mut errors = Vec::new();
    spreads(program, graph, &mut errors);
    if !errors.is_empty() {
        return Err(Diagnostics(errors));
    }
    let events: Vec<_> = graph.edges.iter().map(|edge| event(graph, edge)).collect();
    graph.edges.iter_mut().zip(events).for_each(|(edge, event)| edge.event = event);
    Ok(())
}

/// The spread of each place: that of its uses, which must agree where the place is in registers.
fn spreads(program: &Program, graph: &mut Graph, errors: &mut Vec<Diagnostic>) {
    for id in 0..graph.replicas.len() {
        let place = &graph.replicas[id];
        if place.memory != Some(Memory::Register) {
            continue;
        }
        let mut first: Option<(NodeId, Access)> = None;
        for node in graph.ordered() {
            for access in &graph.node(node).accesses {
                if access.replica.is_none_or(|replica| replica.index() != id) || access.spread.is_empty() {
                    continue;
                }
                match &first {
                    None => first = Some((node, access.clone())),
                    Some((_, other)) if other.spread == access.spread && other.piece.same(&access.piece) => {}
                    // A use of a part of what another shares out.
                    Some((_, other)) if !other.piece.same(&access.piece) => {}
                    Some((before, other)) => {
                        let uses = [(*before, &other.spread), (node, &access.spread)];
                        errors.push(disagree(program, graph, place.object, uses));
                        break;
                    }
                }
            }
        }
        if let Some((_, access)) = first {
            graph.replicas[id].spread = access.spread;
        }
    }
}

/// The message about two uses of a tensor in registers that share it out differently.
fn disagree(
    program: &Program,
    graph: &Graph,
    id: ObjectId,
    [first, second]: [(NodeId, &Spread); 2],
) -> Diagnostic {
    let name = &graph.object(id).name;
    let said = |(node, spread): (NodeId, &Spread)| {
        let call = graph.tree.call(graph.node(node).call);
        let levels: Vec<String> = spread.iter().map(|(level, by)| format!("{level} {by}")).collect();
        let of = program.task(call.task).variant_name(call.variant);
        format!("`{of}` by {}", levels.join(", "))
    };
    let (before, behind) = (said(first), said(second));
    let message =
        format!("`{name}` is in registers, and two uses share it out differently: {before}; {behind}");
    // A tensor whose memory is given is in another place than it can be used in.
    let given = graph.tree.objects.get(id.index()).is_some_and(|row| row.placement != Placement::None);
    let code = if given { Code::Memory } else { Code::None };
    Diagnostic::new(code, graph.node(second.0).span, message)
        .related(graph.node(first.0).span, before)
        .help(format!("partition alike, or give `{name}` the memory `shared`"))
}
