//! Who touches memory, and through which proxy: from that follow the fences between ordinary instructions and asynchronous units.
//!
//! Ordinary instructions, `cp.async` among them, access memory through the generic proxy; tensor copies and `wgmma` through the
//! asynchronous one. An access of the one and a conflicting access of the other are ordered only if a proxy fence of their state space
//! stands between, besides what synchronises the threads (PTX ISA 9.0, section 9.7.13.4). The completion of an asynchronous operation
//! brings such a fence along, so it is the ordinary access that comes first which needs one. Reads matter too: a load whose value is
//! not used yet may still be under way when an asynchronous copy overwrites its source.

use tilewright_machine::{Memory, TensorOp};
use tilewright_synth::StmtPlan;
use tilewright_tile::{ParamId, PipelineId, Side, Stmt, StmtKind, TensorId, TensorRef};

use crate::Part;
use crate::places::{PartPlaces, Places};

/// What accesses memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proxy {
    /// Ordinary instructions and `cp.async`.
    Generic,
    /// Tensor copies, and the tensor cores that read shared memory.
    Async,
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Adds, each element at once.
    Add,
}

impl Kind {
    /// Whether the order of two accesses to one place matters.
    pub fn conflicts(self, other: Kind) -> bool {
        !matches!((self, other), (Kind::Read, Kind::Read) | (Kind::Add, Kind::Add))
    }
}

/// What is accessed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// Shared memory of the block, from one byte to another.
    Shared(u32, u32),
    /// A buffer. Different parameters are different buffers: a launch that passes one buffer as two of which one is written is
    /// none that the language gives a meaning.
    Global(ParamId),
}

impl Place {
    /// Whether both have bytes in common.
    pub fn overlaps(self, other: Place) -> bool {
        match (self, other) {
            (Place::Shared(from, to), Place::Shared(first, last)) => from < last && first < to,
            (Place::Global(a), Place::Global(b)) => a == b,
            _ => false,
        }
    }
}

/// An access of a statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The tensor that the statement names.
    pub tensor: TensorId,
    /// Where it lies.
    pub place: Place,
    /// By whom.
    pub proxy: Proxy,
    /// What is done there.
    pub kind: Kind,
}

impl Touch {
    /// Whether an ordinary access and an asynchronous one may not change places.
    fn clashes(&self, other: &Touch) -> bool {
        self.proxy != other.proxy && self.kind.conflicts(other.kind) && self.place.overlaps(other.place)
    }
}

/// The accesses of a statement itself, not of its body, to shared and to global memory.
///
/// Elements that are integers of the program (`groups[i]`) are of buffers that it does not write, so they conflict with nothing.
pub fn touches(part: &Part<'_>, places: &PartPlaces, stmt: &Stmt, plan: &StmtPlan) -> Vec<Touch> {
    let ends: Vec<(&TensorRef, Proxy, Kind)> = match (&stmt.kind, plan) {
        (StmtKind::CopyAsync { src, dst, .. }, StmtPlan::Tensor(plan)) => {
            let writes = if plan.row.op == TensorOp::Add { Kind::Add } else { Kind::Write };
            vec![(src, Proxy::Async, Kind::Read), (dst, Proxy::Async, writes)]
        }
        (StmtKind::GemmAsync { a, b, .. }, _) => {
            vec![(a, Proxy::Async, Kind::Read), (b, Proxy::Async, Kind::Read)]
        }
        (StmtKind::Copy { src, dst } | StmtKind::CopyAsync { src, dst, .. }, _) => {
            vec![(src, Proxy::Generic, Kind::Read), (dst, Proxy::Generic, Kind::Write)]
        }
        _ => Vec::new(),
    };
    let touch = |(reference, proxy, kind): (&TensorRef, Proxy, Kind)| {
        let tensor = reference.tensor;
        let place = match part.verified.program().tensor(tensor).memory() {
            Memory::Register => return None,
            Memory::Shared => {
                let from = *places.offsets.get(tensor.0 as usize)?;
                Place::Shared(from, from.saturating_add(part.synthesis.shared(tensor)?.1))
            }
            Memory::Global => Place::Global(part.verified.tile(reference).global?.param),
        };
        Some(Touch { tensor, place, proxy, kind })
    };
    ends.into_iter().filter_map(touch).collect()
}

/// An access in a stage of a pipeline.
struct Staged {
    touch: Touch,
    /// The sides of the stages that the statement is in, of the pipelines that have the tensor.
    side: Option<Side>,
}

/// The accesses of all parts.
pub struct Accesses {
    /// By part, in the order of its statements.
    parts: Vec<Vec<Staged>>,
}

impl Accesses {
    /// Those of a program.
    pub fn new(parts: &[Part<'_>], places: &Places) -> Self {
        let one = |(part, places): (&Part<'_>, &PartPlaces)| {
            let mut all = Vec::new();
            let body = &part.verified.program().body;
            collect(part, places, body, &mut 0, &mut Vec::new(), &mut all);
            all
        };
        Accesses { parts: parts.iter().zip(&places.parts).map(one).collect() }
    }

    fn all(&self) -> impl Iterator<Item = &Staged> {
        self.parts.iter().flatten()
    }

    /// What the arrivals at the barriers of the pipeline of these tensors must order. What threads do to a stage is ordered there and
    /// nowhere else.
    pub fn of_stages(&self, tensors: &[TensorId]) -> Stages {
        let mut stages = Stages::default();
        for one in self.all().filter(|one| tensors.contains(&one.touch.tensor)) {
            if one.touch.proxy == Proxy::Async {
                continue;
            }
            let clashes = self.all().any(|other| one.touch.clashes(&other.touch));
            match one.side {
                Some(Side::Produce) => stages.fence_full |= clashes,
                _ => (stages.read, stages.fence_empty) = (true, stages.fence_empty | clashes),
            }
        }
        stages
    }
}

/// Adds the accesses of statements, which stand in these stages.
fn collect(
    part: &Part<'_>,
    places: &PartPlaces,
    body: &[Stmt],
    next: &mut usize,
    stages: &mut Vec<(PipelineId, Side)>,
    all: &mut Vec<Staged>,
) {
    for stmt in body {
        let plan = part.synthesis.statements.get(*next).unwrap_or(&StmtPlan::None);
        *next += 1;
        for touch in touches(part, places, stmt, plan) {
            let of = |id: PipelineId| part.verified.program().pipeline(id).tensors.contains(&touch.tensor);
            let side = stages.iter().rev().find(|(id, _)| of(*id)).map(|(_, side)| *side);
            all.push(Staged { touch, side });
        }
        let entered = match &stmt.kind {
            StmtKind::Stage { pipeline, side, .. } => Some((*pipeline, *side)),
            _ => None,
        };
        stages.extend(entered);
        collect(part, places, stmt.kind.body(), next, stages, all);
        stages.truncate(stages.len() - usize::from(entered.is_some()));
    }
}

/// What orders the accesses to the stages of a pipeline.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stages {
    /// Whether threads, and not only asynchronous units, read a stage.
    pub read: bool,
    /// Whether a fence stands before an arrival at the full barrier: threads write what asynchronous units read or overwrite.
    pub fence_full: bool,
    /// Whether a fence stands before an arrival at the empty barrier: threads read what asynchronous copies overwrite.
    pub fence_empty: bool,
}
