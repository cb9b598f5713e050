//! Demand: the conditions without which nobody needs what a node does. A piece of a parameter that is absent is not written, so that nothing that only leads
//! to it need be done either: `yp[i] when j == 0` leaves out the sums that `y` would get.
//!
//! The conditions of a node are those that all readers of what it writes have in common, as far as they stay the same while the place lives: the greatest
//! solution of these equations. What is asynchronous is counted by waits, and so always done, as is what a role of its own stores, and all that they need with
//! them; but not copies into a ring by a role of their own, which its other side waits for stage by stage.

use std::collections::BTreeSet;

use tilewright_machine::Memory;

use super::schedule;
use crate::graph::{Graph, NodeId, ReplicaId, Role};
use crate::piece::Guard;
use crate::program::Program;

/// Gives each node the conditions without which nobody needs it. Needs: places. Keeps: everything else.
pub fn demand(program: &Program, graph: &mut Graph) {
    let counted = schedule::kinds(program, graph);
    let always = |at: usize| match graph.nodes[at].role {
        Role::Load => false,
        Role::Compute => counted.contains_key(&NodeId(at as u32)),
        Role::Store => true,
    };
    let mut needs: Vec<Option<BTreeSet<Guard>>> = vec![None; graph.nodes.len()];
    loop {
        let found: Vec<_> = (0..graph.nodes.len())
            .map(|at| match always(at) {
                true => Some(BTreeSet::new()),
                false => need(graph, &needs, at),
            })
            .collect();
        if found == needs {
            break;
        }
        needs = found;
    }
    for (node, need) in graph.nodes.iter_mut().zip(needs) {
        node.when = need.into_iter().flatten().collect();
    }
}

/// The conditions of a node, given those of all; nothing where nobody needs it as far as they say.
fn need(graph: &Graph, needs: &[Option<BTreeSet<Guard>>], at: usize) -> Option<BTreeSet<Guard>> {
    let mut need: Option<BTreeSet<Guard>> = None;
    let mut also = |other: BTreeSet<Guard>| {
        need = Some(match need.take() {
            Some(known) => known.intersection(&other).cloned().collect(),
            None => other,
        });
    };
    for access in graph.nodes[at].accesses.iter().filter(|access| access.writes) {
        let Some(place) = access.replica else {
            also(BTreeSet::new());
            continue;
        };
        if graph.replica(place).memory == Some(Memory::Global) {
            also(access.piece.guards().iter().cloned().collect());
        }
        let readers = graph.nodes.iter().zip(needs).enumerate();
        for (_, (_, need)) in readers.filter(|(reader, (node, _))| *reader != at && node.reads(place)) {
            if let Some(need) = need {
                also(need.iter().filter(|guard| stays(graph, guard, place)).cloned().collect());
            }
        }
    }
    need
}

/// True if a condition stays the same while a place lives.
fn stays(graph: &Graph, guard: &Guard, place: ReplicaId) -> bool {
    let around = graph.tree.around(graph.replica(place).scope);
    let mut changing = graph.tree.loop_ids().filter(|id| !around.contains(id));
    !changing
        .any(|id| graph.tree.loop_(id).counters.iter().any(|var| graph.tree.vars.depends(guard.form(), *var)))
}
