//! The event graph as text, in the form of the paper's figures: `e3: [(4, warp)] = copy(…), {e1[:]}`. An event of an earlier iteration has its
//! distance behind an `@`, as has a stage of an earlier iteration.

use super::{
    Access, Candidate, Direction, Edge, Fragments, Graph, Group, Index, Item, Node, NodeId, Op, ReplicaId,
    Role, SharedMemory, Verdict, Wait,
};
use crate::critical::Circuit;
use crate::instantiate::LoopId;
use crate::instantiate::text::{guards_text, piece_text};
use crate::piece::Affine;
use crate::program::Program;

impl Graph {
    /// The graph as text, what `--emit events` prints.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for (id, replica) in self.replicas.iter().enumerate() {
            let object = self.object(replica.object);
            let memory = replica.memory.map_or("none".to_string(), |memory| memory.to_string());
            let piece = piece_text(&replica.piece, &self.tree.vars);
            let of = replica.of.map_or(String::new(), |of| format!(" of p{}", of.0));
            let spread: String =
                replica.spread.iter().map(|(level, partition)| format!("\n  {level}: {partition}")).collect();
            let stages = replica.stages.map_or(String::new(), |stages| {
                format!(", {} stages in {}", stages.depth, self.counters_text(stages.head))
            });
            out += &format!("p{id}: {}{piece} in {memory}{of}{stages}{spread}\n", object.name);
        }
        for ring in &self.rings {
            let places: Vec<String> = ring.places.iter().map(|id| self.place_text(*id)).collect();
            let (from, to) = (ring.from.verb(), ring.to.verb());
            let stages = ring
                .head
                .map_or("once".to_string(), |head| format!("{} in {}", ring.depth, self.counters_text(head)));
            out += &format!("ring {stages}: {} from who {from} to who {to}\n", places.join(", "));
        }
        self.items(&self.order, 0, &mut out);
        out
    }

    fn items(&self, items: &[Item], depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        for item in items {
            match item {
                Item::Node(id) => {
                    let waits = self.node(*id).waits.iter();
                    waits.for_each(|wait| *out += &format!("{indent}{}\n", wait_text(wait)));
                    *out +=
                        &format!("{indent}e{} = {}, {{{}}}\n", id.0, self.node_text(*id), self.waits(*id));
                }
                Item::Loop(id, items) => {
                    let dealt = self.dealt.get(id);
                    let dealt = dealt.map(|late| format!(", by turns with {}", self.tree.loop_text(*late)));
                    *out += &format!("{indent}{}{}\n", self.tree.loop_text(*id), dealt.unwrap_or_default());
                    self.items(items, depth + 1, out);
                    let waits = self.ends.get(id).into_iter().flatten();
                    waits.for_each(|wait| *out += &format!("{indent}  {}\n", wait_text(wait)));
                }
            }
        }
    }

    /// The counters of a loop, as `i, j`.
    pub(crate) fn counters_text(&self, id: LoopId) -> String {
        let counters = &self.tree.loop_(id).counters;
        let counters: Vec<String> =
            counters.iter().map(|var| self.tree.vars.text(&Affine::var(*var))).collect();
        counters.join(", ")
    }

    /// A node, without its event.
    pub(crate) fn node_text(&self, id: NodeId) -> String {
        let node = self.node(id);
        let late = node
            .late
            .iter()
            .map(|late| format!(" late by {} in {}", late.iterations, self.counters_text(late.head)));
        let when = match node.when.is_empty() {
            true => String::new(),
            false => format!(", needed{}", guards_text(&node.when, &self.tree.vars)),
        };
        self.op_text(node) + &late.collect::<String>() + &when
    }

    fn op_text(&self, node: &Node) -> String {
        match &node.op {
            Op::Copy(from, to) => {
                let role = match node.role {
                    Role::Compute => String::new(),
                    role => format!(" by the role that {}", role.verb()),
                };
                format!("copy({}, {}){role}", self.place_text(*from), self.place_text(*to))
            }
            Op::Statement { text, .. } => {
                let uses: Vec<String> = node.accesses.iter().map(|access| self.access_text(access)).collect();
                format!("{text} on {} [{}]", node.at, uses.join("; "))
            }
        }
    }

    fn place_text(&self, id: ReplicaId) -> String {
        format!("{}:p{}", self.object(self.replica(id).object).name, id.0)
    }

    fn access_text(&self, access: &Access) -> String {
        let word = match (access.reads, access.writes) {
            (true, true) => "read-write",
            (false, true) => "write",
            _ => "read",
        };
        let piece = piece_text(&access.piece, &self.tree.vars);
        let place = access.replica.map_or(String::new(), |replica| format!(":p{}", replica.0));
        let place = if access.behind == 0 { place } else { format!("{place}@{}", access.behind) };
        format!("{word} {}{piece}{place}", self.object(access.object).name)
    }

    fn waits(&self, id: NodeId) -> String {
        let waits = self.edges.iter().filter(|edge| edge.to == id).map(|edge| {
            let index = if edge.event.is_empty() {
                String::new()
            } else {
                let index = |index: &Index| if *index == Index::Own { "i" } else { ":" };
                format!("[{}]", edge.event.iter().map(index).collect::<Vec<_>>().join(", "))
            };
            format!("e{}{index}{}", edge.from.0, distance_text(edge))
        });
        waits.collect::<Vec<_>>().join(", ")
    }

    /// The shared memory of each kernel as text, what `--emit memory` prints.
    pub fn memory_text(&self) -> String {
        let mut out = String::new();
        let kernel = |id: Option<LoopId>| id.map_or("the kernel".to_string(), |id| self.tree.loop_text(id));
        for memory in &self.shared {
            let kernel = kernel(memory.kernel);
            out += &format!("{kernel}: {} of {} bytes of shared memory\n", memory.bytes, memory.bound);
            self.places_text(memory).iter().for_each(|line| out += &format!("  {line}\n"));
        }
        for Fragments { kernel: id, threads, registers, bound } in &self.fragments {
            let kernel = kernel(*id);
            out += &format!(
                "{kernel}: {registers} of {bound} registers of each of the {threads} threads that compute\n"
            );
        }
        out
    }

    /// The lines of the places of a kernel in shared memory.
    pub(crate) fn places_text(&self, memory: &SharedMemory) -> Vec<String> {
        let mut lines = Vec::new();
        for row in &memory.places {
            let place = self.replica(row.place);
            let piece = piece_text(&place.piece, &self.tree.vars);
            let name = &self.object(place.object).name;
            let stages = match row.stages {
                1 => String::new(),
                stages => format!(", {stages} stages of {}", row.bytes),
            };
            lines.push(format!("`{name}{piece}` takes {} bytes{stages}", row.bytes * row.stages));
        }
        if memory.barriers > 0 {
            lines.push(format!("barriers of rings take {} bytes", memory.barriers));
        }
        for (first, second) in &memory.overlays {
            let [first, second] = [first, second].map(|id| &self.object(self.replica(*id).object).name);
            lines.push(format!("`{second}` lies where `{first}` was"));
        }
        lines
    }

    /// A circuit that decides how long an iteration takes.
    pub fn circuit_text(&self, circuit: &Circuit) -> String {
        let nodes: Vec<String> = circuit.nodes.iter().map(|id| format!("e{}", id.0)).collect();
        let body = circuit.body.map_or("the kernel".to_string(), |id| self.tree.loop_text(id));
        let cycles = match circuit.iterations {
            1 => circuit.cycles.to_string(),
            iterations => format!("{} / {iterations}", circuit.cycles),
        };
        let what = if circuit.repeats { "an iteration takes" } else { "the longest way through it takes" };
        format!("{body}: {what} about {cycles} cycles by {}", nodes.join(" → "))
    }

    /// The candidates as text, what `--emit copies` prints.
    pub fn copies_text(&self, program: &Program) -> String {
        let mut out = String::new();
        for Candidate { call, formal, direction, verdict } in &self.candidates {
            let row = self.tree.call(*call);
            let task = program.task(row.task);
            let word = if *direction == Direction::In { "in" } else { "out" };
            let verdict = match verdict {
                Verdict::Open => "open".to_string(),
                Verdict::ByReference => "by reference".to_string(),
                Verdict::AlreadyThere => "already there".to_string(),
                Verdict::NobodyReads => "nobody reads it".to_string(),
                Verdict::Outside(id) => format!("once, outside of {}", self.tree.loop_text(*id)),
                Verdict::Kept(from, to) => format!("kept: {from} -> {to}"),
            };
            let of = program.task(row.task).variant_name(row.variant);
            out += &format!("{of} {word} {}: {verdict}\n", task.formals[*formal].name);
        }
        out
    }
}

fn wait_text(wait: &Wait) -> String {
    let group = match wait.group {
        Group::Products => "products",
        Group::CopiesIn => "copies in",
        Group::CopiesOut => "copies out",
    };
    format!("wait until {} {group} are left", wait.left)
}

/// The distance of an edge to a later iteration, as `@(0, 4)`.
pub(crate) fn distance_text(edge: &Edge) -> String {
    if edge.distance.is_empty() {
        return String::new();
    }
    let distance: Vec<String> = edge.distance.iter().map(i64::to_string).collect();
    format!("@({})", distance.join(", "))
}
