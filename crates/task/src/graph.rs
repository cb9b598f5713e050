//! The event graph: what statements and copies wait for. A node is a statement of a leaf, or a copy between two places of one object; an
//! edge says which node another waits for, how many iterations of which loop later.
//!
//! This is the intermediate representation of the paper (4.1) with distances on the edges, which its loops do not have. Events exist in the
//! compiler alone.

mod kernels;
mod text;
mod verify;

use std::collections::BTreeMap;

use tilewright_machine::{DType, Memory, Processor};
use tilewright_tile::Origin;

use crate::instantiate::{CallId, LoopId, ObjectId, Tree};
use crate::mapping::{Attribute, Mapping};
use crate::partition::{Extent, Partition};
use crate::piece::{Guard, Piece};
use crate::program::id;

pub(crate) use text::distance_text;
pub use verify::verify_graph;

id! {
    /// A node: an index into [`Graph::nodes`].
    NodeId
}
id! {
    /// A replica: an index into [`Graph::replicas`].
    ReplicaId
}

/// The graph of a program under a mapping.
#[derive(Clone, PartialEq, Debug)]
pub struct Graph {
    /// The tree that it was made of: loops, calls, integers.
    pub tree: Tree,
    /// The objects: those of the tree, then the tensors of leaves.
    pub objects: Vec<Object>,
    /// The places of objects. Before placement there are none.
    pub replicas: Vec<Replica>,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The nodes in their loops, in the order of the program.
    pub order: Vec<Item>,
    /// The edges, by their ends.
    pub edges: Vec<Edge>,
    /// The rings of shared memory. Before their pass there are none.
    pub rings: Vec<Ring>,
    /// The waits at the end of each iteration of a loop.
    pub ends: BTreeMap<LoopId, Vec<Wait>>,
    /// The loops of launches that are late over a loop: by that loop, behind whose first iterations theirs leave one by one.
    pub dealt: BTreeMap<LoopId, LoopId>,
    /// The shared memory of each kernel. Before its pass there is none.
    pub shared: Vec<SharedMemory>,
    /// The registers of each kernel whose threads the mapping says. Before their pass there are none.
    pub fragments: Vec<Fragments>,
    /// The copies that a compiler would make at every call, with what became of each.
    pub candidates: Vec<Candidate>,
}

/// An object.
#[derive(Clone, PartialEq, Debug)]
pub struct Object {
    /// The name.
    pub name: String,
    /// True of a parameter of the kernel.
    pub param: bool,
    /// Element type.
    pub dtype: DType,
    /// The extents.
    pub extents: Vec<Extent>,
    /// The innermost loop around its definition.
    pub body: Option<LoopId>,
    /// The place of its definition.
    pub span: Origin,
}

/// An item of a body.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// A node.
    Node(NodeId),
    /// A loop.
    Loop(LoopId, Vec<Item>),
}

impl Item {
    /// The nodes in it, in the order of the program.
    pub fn nodes(&self) -> Vec<NodeId> {
        match self {
            Item::Node(id) => vec![*id],
            Item::Loop(_, items) => Item::all(items),
        }
    }

    /// The nodes of items, in the order of the program.
    pub fn all(items: &[Item]) -> Vec<NodeId> {
        items.iter().flat_map(Item::nodes).collect()
    }
}

/// The way in which processors share a piece: a level each, outermost first, with the partition whose colours are its processors. Empty: synthesis decides.
pub type Spread = Vec<(Processor, Partition)>;

/// A place of an object, or of a piece of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Replica {
    /// The object.
    pub object: ObjectId,
    /// The piece.
    pub piece: Piece,
    /// The memory; nothing where nobody gives it one.
    pub memory: Option<Memory>,
    /// The way in which processors below the block share it.
    pub spread: Spread,
    /// The place that it is a copy of; nothing of the object's own.
    pub of: Option<ReplicaId>,
    /// The innermost loop in whose iterations it lives.
    pub scope: Option<LoopId>,
    /// The buffers that iterations of a loop take in turn; without, there is one.
    pub stages: Option<Stages>,
}

/// Buffers that the iterations of a loop take in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stages {
    /// The loop.
    pub head: LoopId,
    /// The number of buffers.
    pub depth: i64,
}

/// A ring: places whose stages one side fills in turn and the other empties. Both sides go through the same iterations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ring {
    /// The places; each stage has one buffer of each.
    pub places: Vec<ReplicaId>,
    /// The loop whose iterations take stages in turn; nothing where it is filled once.
    pub head: Option<LoopId>,
    /// The number of stages.
    pub depth: i64,
    /// The fewest stages that the mapping allows.
    pub least: i64,
    /// The role that fills stages.
    pub from: Role,
    /// The role that empties them.
    pub to: Role,
}

/// The shared memory of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedMemory {
    /// The kernel's outermost loop; nothing of one without.
    pub kernel: Option<LoopId>,
    /// The bytes that there may be.
    pub bound: i64,
    /// The bytes of all places, with the barriers of rings between roles. What exchanges between threads need is beyond them.
    pub bytes: i64,
    /// The bytes of the barriers.
    pub barriers: i64,
    /// The places.
    pub places: Vec<SharedPlace>,
    /// Pairs of places that are never needed together and use the same memory, the one that is needed first before the other.
    pub overlays: Vec<(ReplicaId, ReplicaId)>,
}

/// The registers of the threads of a block that compute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragments {
    /// The kernel's outermost loop; nothing of one without.
    pub kernel: Option<LoopId>,
    /// The threads.
    pub threads: i64,
    /// The registers of a thread that fragments take at least, where they take most.
    pub registers: i64,
    /// The registers of a thread.
    pub bound: i64,
}

/// A place in shared memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedPlace {
    /// The place.
    pub place: ReplicaId,
    /// The bytes of a stage.
    pub bytes: i64,
    /// The number of stages.
    pub stages: i64,
}

/// A kind of asynchronous nodes: those of one kind in one role finish in the order in which they are issued.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Group {
    /// Products of warpgroups.
    Products,
    /// Copies from global to shared memory.
    CopiesIn,
    /// Copies from shared to global memory.
    CopiesOut,
}

impl Group {
    /// Every kind.
    pub const ALL: [Group; 3] = [Group::Products, Group::CopiesIn, Group::CopiesOut];
}

/// A wait until no more than so many nodes of a kind have not finished.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// The kind.
    pub group: Group,
    /// The number.
    pub left: i64,
}

/// A move of a node to later iterations of a loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// The loop.
    pub head: LoopId,
    /// The number of iterations: in each, the node does the work of so many iterations before.
    pub iterations: i64,
}

/// A node.
#[derive(Clone, PartialEq, Debug)]
pub struct Node {
    /// The operation.
    pub op: Op,
    /// The level of the processors that do it.
    pub at: Processor,
    /// The warps of the block that do it.
    pub role: Role,
    /// The innermost loop around it.
    pub body: Option<LoopId>,
    /// The moves to later iterations of loops around it.
    pub late: Vec<Late>,
    /// The conditions without which nobody needs it. Before their pass there are none.
    pub when: Vec<Guard>,
    /// The waits for asynchronous nodes of its role, before it. Before scheduling there are none.
    pub waits: Vec<Wait>,
    /// The tensors that it touches.
    pub accesses: Vec<Access>,
    /// The call that it belongs to.
    pub call: CallId,
    /// Its place.
    pub span: Origin,
}

/// A role of a block's warps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Role {
    /// It brings tiles from global to shared memory.
    Load,
    /// It computes, and copies what nobody else does.
    Compute,
    /// It takes tiles from shared to global memory.
    Store,
}

/// The operation of a [`Node`].
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// A copy from the first place to the second.
    Copy(ReplicaId, ReplicaId),
    /// A statement of the leaf that the node's call is, by its number.
    Statement {
        /// The number.
        number: usize,
        /// Its text.
        text: String,
    },
}

/// A use of a piece of an object.
#[derive(Clone, PartialEq, Debug)]
pub struct Access {
    /// The object.
    pub object: ObjectId,
    /// The piece.
    pub piece: Piece,
    /// The formal of the node's call through which it is used; nothing of a leaf's own tensor.
    pub formal: Option<usize>,
    /// The leaf's own tensor, of its fragment; nothing of a formal, and in copies.
    pub own: Option<tilewright_tile::TensorId>,
    /// It is read.
    pub reads: bool,
    /// It is written.
    pub writes: bool,
    /// The place that it uses. Before placement there is none.
    pub replica: Option<ReplicaId>,
    /// The number of iterations before the node's own whose stage it uses, where the place has stages that iterations take in turn.
    pub behind: i64,
    /// The way in which processors share the piece: after joining, the partitions of the loops over processors.
    pub spread: Spread,
}

/// A reason for an edge.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Why {
    /// The second reads what the first writes.
    True,
    /// The second overwrites what the first reads.
    Anti,
    /// The second overwrites what the first writes.
    Output,
    /// The second fills the stage of a ring that the first empties.
    Reuse,
    /// The second writes what lies in the memory of what the first uses.
    SamePlace,
}

/// An index of an event array, for one level of processors below the block.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Index {
    /// Each processor waits for its own event: `e[i]`.
    Own,
    /// Each waits for those of all: `e[:]`.
    All,
}

/// An edge: the second node waits for the first.
#[derive(Clone, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Edge {
    /// The first node.
    pub from: NodeId,
    /// The node that waits.
    pub to: NodeId,
    /// Iterations between them, one entry a loop around both, the outermost first, up to the loop that carries it. Empty within one iteration.
    pub distance: Vec<i64>,
    /// The reason.
    pub why: Why,
    /// The index of the event, one entry a level of processors below the block.
    pub event: Vec<Index>,
}

/// The direction of a [`Candidate`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Direction {
    /// From the caller's place to the callee's, before the call.
    In,
    /// From the callee's place to the caller's, behind it.
    Out,
}

/// A copy of an argument at a call, as the copy-in/copy-out discipline of the paper (4.2.1) makes it.
#[derive(Clone, PartialEq, Debug)]
pub struct Candidate {
    /// The call.
    pub call: CallId,
    /// The formal.
    pub formal: usize,
    /// The direction.
    pub direction: Direction,
    /// The verdict on it.
    pub verdict: Verdict,
}

/// The verdict on a [`Candidate`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Verdict {
    /// Not yet decided: placement has not run.
    Open,
    /// Caller and callee use one place.
    ByReference,
    /// The place has the elements already.
    AlreadyThere,
    /// Nobody reads them there before they are overwritten.
    NobodyReads,
    /// Made once, outside of this loop.
    Outside(LoopId),
    /// Made, between these memories.
    Kept(Memory, Memory),
}

impl Role {
    /// The name of its warps in a kernel.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Load => "load",
            Role::Compute => "compute",
            Role::Store => "store",
        }
    }

    /// The verb of what it does.
    pub const fn verb(self) -> &'static str {
        match self {
            Role::Load => "loads",
            Role::Compute => "computes",
            Role::Store => "stores",
        }
    }
}

impl Node {
    /// True if it reads the place.
    pub fn reads(&self, place: ReplicaId) -> bool {
        self.accesses.iter().any(|access| access.reads && access.replica == Some(place))
    }

    /// True if it writes the place.
    pub fn writes(&self, place: ReplicaId) -> bool {
        self.accesses.iter().any(|access| access.writes && access.replica == Some(place))
    }

    /// The iterations by which it is late in the loop.
    pub fn late_in(&self, head: LoopId) -> i64 {
        self.late.iter().filter(|late| late.head == head).map(|late| late.iterations).sum()
    }
}

impl Graph {
    /// The object's row.
    pub fn object(&self, id: ObjectId) -> &Object {
        &self.objects[id.index()]
    }

    /// The nodes.
    pub fn node_ids(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The node's row.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The replica's row.
    pub fn replica(&self, id: ReplicaId) -> &Replica {
        &self.replicas[id.index()]
    }

    /// The attributes of the row whose body a loop is in.
    pub fn attributes<'a>(&self, mapping: &'a Mapping, head: LoopId) -> &'a [Attribute] {
        let instance = self.tree.call(self.tree.loop_(head).call).instance;
        instance.map_or(&[], |id| &mapping.instance(id).attributes)
    }

    /// The nodes in the order of the program.
    pub fn ordered(&self) -> Vec<NodeId> {
        self.order.iter().flat_map(Item::nodes).collect()
    }
}
