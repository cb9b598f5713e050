//! Roles: which warps of a block do what. Needs: placement. Keeps: everything else.
//!
//! Without `warpspecialize` all threads compute, and copy what they need. With it copies from global to shared memory are a role's of their own, so
//! that it may run ahead; `warpspecialize(n, store)` makes one of the copies back, too.

use tilewright_machine::Memory;

use crate::graph::{Graph, Op, Role};
use crate::instantiate::CallId;
use crate::mapping::{AttributeKind, Mapping};

/// Gives each node its role.
pub fn roles(mapping: &Mapping, graph: &mut Graph) {
    for at in 0..graph.nodes.len() {
        let node = &graph.nodes[at];
        let Op::Copy(from, to) = node.op else { continue };
        let Some(store) = specialised(mapping, graph, node.call) else { continue };
        let memories = (graph.replica(from).memory, graph.replica(to).memory);
        graph.nodes[at].role = match memories {
            (Some(Memory::Global), Some(Memory::Shared)) => Role::Load,
            (Some(Memory::Shared), Some(Memory::Global)) if store => Role::Store,
            _ => Role::Compute,
        };
    }
}

/// True or false for a call under an instance with `warpspecialize`: if it has a role that stores. Nothing under none.
fn specialised(mapping: &Mapping, graph: &Graph, call: CallId) -> Option<bool> {
    let calls = std::iter::successors(Some(call), |id| graph.tree.call(*id).parent);
    let instances = calls.filter_map(|id| graph.tree.call(id).instance);
    let mut attributes = instances.flat_map(|id| &mapping.instance(id).attributes);
    attributes.find_map(|attribute| match attribute.kind {
        AttributeKind::Warpspecialize { store, .. } => Some(store),
        _ => None,
    })
}
