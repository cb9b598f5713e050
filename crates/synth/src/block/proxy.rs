//! Accesses to memory, each through a proxy: from these follow the fences between ordinary instructions and asynchronous engines, and
//! which waits for tensor copies wait for their writes.
//!
//! Ordinary instructions, `cp.async` among them, access memory through the generic proxy; tensor copies and `wgmma` through the
//! asynchronous one. An access of the one and a conflicting access of the other are ordered only if a proxy fence of their state space
//! stands between, besides what synchronises the threads (PTX ISA 9.0, section 9.7.13.4). The completion of an asynchronous operation
//! brings such a fence along, so it is the ordinary access that comes first which needs one. Reads matter too: a load whose value is
//! not used yet may still be under way when an asynchronous copy overwrites its source.
//!
//! # Fences
//!
//! Accesses of threads to a stage of a pipeline are ordered where the stage is handed on or given back ([`Accesses::of_stages`]). For all else
//! an access stays *dirty* until the next `syncthreads` of any threads, or `arrive` (or sum over a cluster), where a fence of its state space stands if an
//! asynchronous access that conflicts can come later: in the same role, or in another. What an asynchronous copy of threads touches is
//! dirty from its wait on.
//!
//! # Waits
//!
//! `wait_group` for tensor copies to global memory has two forms. The one for reads (`.read`) says nothing of their writes. It is taken
//! where, until the next wait that covers the same copies or the end, nothing touches what they write: other tiles do not matter, as
//! far as `apart` can tell them from these, and no other block learns of it by a statement that comes later.

use std::collections::{BTreeMap, BTreeSet};

use tilewright_machine::{Memory, ProxyFence, TensorOp};
use tilewright_tile::core::{BarrierId, Program, Stmt, StmtKind, SyncScope, TensorRef};
use tilewright_tile::{
    Diagnostic, Expr, ParamId, PipelineId, Side, StmtId, SymbolId, TensorId, statement_text,
};

use super::disjoint::{Known, apart};
use super::part::{Around, Part, Site};
use super::smem::{PartMemory, SharedMemoryMap};
use crate::explain::SyncNote;
use crate::plan::{CopyPlan, StageFences, StmtPlan};

/// The proxy of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Proxy {
    /// Ordinary instructions and `cp.async`.
    Generic,
    /// Tensor copies, and the tensor cores that read shared memory.
    Async,
}

/// The effect of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Read,
    Write,
    /// Adds, each element at once.
    Add,
}

impl Kind {
    /// True if the order of two accesses to one place matters.
    pub(super) fn conflicts(self, other: Kind) -> bool {
        !matches!((self, other), (Kind::Read, Kind::Read) | (Kind::Add, Kind::Add))
    }
}

/// The memory of an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Shared memory of the block, from one byte to another.
    Shared(u32, u32),
    /// A buffer. Parameters are taken to be different buffers.
    Global(ParamId),
}

impl Place {
    pub(super) fn overlaps(self, other: Place) -> bool {
        match (self, other) {
            (Place::Shared(from, to), Place::Shared(first, last)) => from < last && first < to,
            (Place::Global(a), Place::Global(b)) => a == b,
            _ => false,
        }
    }

    fn fence(self) -> ProxyFence {
        match self {
            Place::Shared(..) => ProxyFence::Shared,
            Place::Global(_) => ProxyFence::Global,
        }
    }
}

/// An access of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch<'a> {
    pub(super) reference: &'a TensorRef,
    pub(super) place: Place,
    proxy: Proxy,
    pub(super) kind: Kind,
    /// On which side of its pipeline, if the tensor belongs to one.
    stage: Option<(PipelineId, Side)>,
}

impl Touch<'_> {
    /// True if an ordinary access may not change places with an asynchronous one.
    fn clashes(&self, other: &Touch<'_>) -> bool {
        self.proxy == Proxy::Generic
            && other.proxy == Proxy::Async
            && self.kind.conflicts(other.kind)
            && self.place.overlaps(other.place)
    }
}

/// The accesses of a statement itself, not of its body, to shared and to global memory.
///
/// Elements that are integers of the program (`groups[i]`) are of buffers that it does not write, so they conflict with nothing. The
/// memory that statements use for themselves is touched by ordinary instructions alone.
fn ends<'a>(stmt: &'a Stmt, plan: &StmtPlan) -> Vec<(&'a TensorRef, Proxy, Kind)> {
    match (&stmt.kind, plan) {
        (StmtKind::CopyAsync { src, dst, .. }, StmtPlan::Tma(plan)) => {
            let writes = if plan.row.op == TensorOp::Add { Kind::Add } else { Kind::Write };
            vec![(src, Proxy::Async, Kind::Read), (dst, Proxy::Async, writes)]
        }
        (StmtKind::GemmAsync { a, b, scales, .. }, _) => {
            let read = [a, b].into_iter().chain(scales.iter().flatten());
            read.map(|r| (r, Proxy::Async, Kind::Read)).collect()
        }
        (kind, _) => kind.copied().map_or_else(Vec::new, |(src, dst)| {
            vec![(src, Proxy::Generic, Kind::Read), (dst, Proxy::Generic, Kind::Write)]
        }),
    }
}

/// A statement with its accesses.
pub(super) struct Node<'a> {
    pub(super) site: Site<'a>,
    pub(super) touches: Vec<Touch<'a>>,
    /// True if its accesses end at a wait of the program.
    flies: bool,
}

/// The statements of a part.
struct PartAccesses<'a> {
    verified: &'a Program,
    /// In the order of [`Program::visit`].
    nodes: Vec<Node<'a>>,
}

/// The accesses of a program.
pub struct Accesses<'a> {
    parts: Vec<PartAccesses<'a>>,
}

/// The fences and waits that order the accesses of a part, by statement.
#[derive(Default)]
pub struct Orders {
    fences: BTreeMap<StmtId, Vec<ProxyFence>>,
    whole: BTreeSet<StmtId>,
    /// The notes of it in a report.
    pub notes: Vec<SyncNote>,
}

impl Orders {
    /// The fences before what synchronises threads at a statement.
    pub fn fences(&self, statement: StmtId) -> &[ProxyFence] {
        self.fences.get(&statement).map_or(&[], Vec::as_slice)
    }

    /// True if a `wait_group` waits for the writes of tensor copies, and not only for their reads.
    pub fn waits_for_writes(&self, statement: StmtId) -> bool {
        self.whole.contains(&statement)
    }
}

impl<'a> Node<'a> {
    fn new(part: &Part<'a>, places: &PartMemory, site: Site<'a>) -> Self {
        let program = part.verified;
        let touch = |(reference, proxy, kind): (&'a TensorRef, Proxy, Kind)| {
            let tensor = reference.tensor;
            let place = match program.tensor(tensor).memory() {
                Memory::Register | Memory::Tensor => return None,
                Memory::Shared => {
                    let from = *places.offsets.get(tensor.0 as usize)?;
                    Place::Shared(from, from.saturating_add(part.synthesis.shared(tensor)?.1))
                }
                Memory::Global => Place::Global(program.tile(reference).global?.param),
            };
            let of = |around: &&Around| program.pipeline(around.pipeline).tensors.contains(&tensor);
            let stage = site.stages.iter().rev().find(of).map(|around| (around.pipeline, around.side));
            Some(Touch { reference, place, proxy, kind, stage })
        };
        let touches = ends(site.stmt, site.plan).into_iter().filter_map(touch).collect();
        let threads = matches!(site.plan, StmtPlan::Copy(CopyPlan::Async { .. }));
        let produces = site.stages.iter().any(|around| around.side == Side::Produce);
        let flies = threads && !produces && matches!(site.stmt.kind, StmtKind::CopyAsync { .. });
        Node { site, touches, flies }
    }
}

impl<'a> Accesses<'a> {
    /// Those of a program.
    ///
    /// # Errors
    ///
    /// A statement without a plan.
    pub fn new(parts: &[Part<'a>], memory: &SharedMemoryMap) -> Result<Self, Diagnostic> {
        let accesses = |(part, places): (&Part<'a>, &PartMemory)| {
            let nodes = part.sites()?.into_iter().map(|site| Node::new(part, places, site)).collect();
            Ok(PartAccesses { verified: part.verified, nodes })
        };
        let parts = parts.iter().zip(&memory.parts).map(accesses);
        Ok(Accesses { parts: parts.collect::<Result<_, Diagnostic>>()? })
    }

    /// The statements of a part with their accesses.
    pub(super) fn nodes(&self, part: usize) -> &[Node<'a>] {
        &self.parts[part].nodes
    }

    fn touches(&self) -> impl Iterator<Item = &Touch<'a>> {
        self.parts.iter().flat_map(|part| &part.nodes).flat_map(|node| &node.touches)
    }

    /// The fences at the arrivals at the barriers of the pipeline of these tensors. Accesses of threads to a stage are ordered there and
    /// nowhere else.
    pub fn of_stages(&self, tensors: &[TensorId]) -> StageFences {
        let mut stages = StageFences::default();
        let ordinary = |t: &&Touch<'_>| t.proxy == Proxy::Generic && tensors.contains(&t.reference.tensor);
        for touch in self.touches().filter(ordinary) {
            let clashes = self.touches().any(|other| touch.clashes(other));
            match touch.stage {
                Some((_, Side::Produce)) => stages.fence_full |= clashes,
                _ => (stages.read, stages.fence_empty) = (true, stages.fence_empty | clashes),
            }
        }
        stages
    }

    /// The parts that come after this one through pipelines and named barriers: their consumers, those that wait where this one comes, and
    /// so on.
    fn behind(&self, part: usize) -> BTreeSet<usize> {
        let sides = |part: usize, wanted: Side| -> BTreeSet<PipelineId> {
            let stages = self.parts[part].nodes.iter().filter_map(|node| match &node.site.stmt.kind {
                StmtKind::Stage { pipeline, side, .. } if *side == wanted => Some(*pipeline),
                _ => None,
            });
            stages.collect()
        };
        let barriers = |part: usize, waits: bool| -> BTreeSet<BarrierId> {
            let come = self.parts[part].nodes.iter().filter_map(|node| match node.site.stmt.kind {
                StmtKind::Sync(SyncScope::Barrier(barrier)) => Some(barrier),
                StmtKind::Arrive(barrier) if !waits => Some(barrier),
                _ => None,
            });
            come.collect()
        };
        let mut found = BTreeSet::new();
        let mut open = vec![part];
        while let Some(one) = open.pop() {
            let (filled, come) = (sides(one, Side::Produce), barriers(one, false));
            for next in 0..self.parts.len() {
                let waits = !sides(next, Side::Consume).is_disjoint(&filled)
                    || !barriers(next, true).is_disjoint(&come);
                if waits && found.insert(next) {
                    open.push(next);
                }
            }
        }
        found.remove(&part);
        found
    }

    /// The fences and waits that order the accesses of a part.
    pub fn orders(&self, part: usize) -> Orders {
        let mut flow = Flow {
            all: self,
            part,
            behind: self.behind(part),
            found: BTreeMap::new(),
            breaks: State::default(),
        };
        flow.body(0, self.parts[part].nodes.len(), State::default());
        let mut orders = Orders::default();
        for (statement, needs) in std::mem::take(&mut flow.found) {
            let id = self.parts[part].nodes[statement].site.stmt.id;
            orders.fences.insert(id, needs.iter().map(|need| need.fence).collect());
            for Need { fence, first, second: (of, second) } in needs {
                let why = format!(
                    "between `{}`, by threads, and `{}`, by an asynchronous engine",
                    self.text(part, first),
                    self.text(of, second)
                );
                orders.notes.push(self.note(part, statement, format!("{} before it", fence.spelling()), why));
            }
        }
        flow.waits(&mut orders);
        orders
    }

    pub(super) fn text(&self, part: usize, statement: usize) -> String {
        let part = &self.parts[part];
        statement_text(part.verified, part.nodes[statement].site.stmt)
    }

    pub(super) fn note(&self, part: usize, statement: usize, what: String, why: String) -> SyncNote {
        let span = self.parts[part].nodes[statement].site.stmt.span;
        SyncNote {
            text: self.text(part, statement),
            position: span.text().map_or(0, |span| span.start),
            what,
            why,
        }
    }
}

/// An access: the statement's number in its part, and the access's in the statement.
type At = (usize, usize);

/// The accesses on their way at a point of a part.
#[derive(Clone, Default)]
struct State {
    /// Ordinary accesses that no fence stands behind.
    dirty: BTreeSet<At>,
    /// Accesses by asynchronous copies of threads that have not been waited for.
    flying: BTreeSet<At>,
}

impl State {
    fn join(mut self, other: State) -> State {
        self.dirty.extend(other.dirty);
        self.flying.extend(other.flying);
        self
    }
}

struct Flow<'a, 'p> {
    all: &'p Accesses<'a>,
    part: usize,
    /// The parts that come after this one.
    behind: BTreeSet<usize>,
    /// The fences that statements need.
    found: BTreeMap<usize, Vec<Need>>,
    /// Accesses on their way where a `break` ends the loop around.
    breaks: State,
}

/// A fence that must stand at a statement, and accesses that it orders.
#[derive(Clone, Copy)]
struct Need {
    fence: ProxyFence,
    /// The number of the statement that accesses memory by threads.
    first: usize,
    /// The part, and the number in it, of one that does by asynchronous engines.
    second: (usize, usize),
}

impl<'a> Flow<'a, '_> {
    fn nodes(&self) -> &[Node<'a>] {
        &self.all.parts[self.part].nodes
    }

    /// Follows the statements with these numbers that stand side by side; returns what is on its way behind them.
    fn body(&mut self, mut at: usize, end: usize, mut state: State) -> State {
        while at < end {
            let node = &self.nodes()[at];
            let (next, flies, kind) = (node.site.end, node.flies, &node.site.stmt.kind);
            let ordinary = (0..node.touches.len()).filter(|k| node.touches[*k].proxy == Proxy::Generic);
            if flies { &mut state.flying } else { &mut state.dirty }.extend(ordinary.map(|k| (at, k)));
            match kind {
                StmtKind::Wait(groups) => {
                    state.dirty.extend(state.flying.iter().copied());
                    if *groups == 0 {
                        state.flying.clear();
                    }
                }
                // In a cluster of one block it waits for nobody.
                StmtKind::ClusterReduce { .. } | StmtKind::ClusterCombine { .. }
                    if self.all.parts[self.part].verified.cluster() == 1 => {}
                StmtKind::Break { .. } => self.breaks = std::mem::take(&mut self.breaks).join(state.clone()),
                kind if kind.is_barrier()
                    || matches!(kind, StmtKind::ClusterReduce { .. } | StmtKind::ClusterCombine { .. }) =>
                {
                    self.fence(at, &mut state, false);
                }
                // It orders the part's accesses against those of others alone.
                StmtKind::Arrive(_) => self.fence(at, &mut state, true),
                // It may give stages back.
                StmtKind::WaitGemm(_) => self.fence(at, &mut state, true),
                StmtKind::Stage { side, .. } => {
                    let side = *side;
                    state = self.body(at + 1, next, state);
                    // Where tensor copies alone fill a stage, one thread has arrived before them.
                    let threads = |node: &Node<'_>| node.touches.iter().any(|t| t.proxy == Proxy::Generic);
                    if side == Side::Consume || self.nodes()[at..next].iter().any(threads) {
                        self.fence(at, &mut state, true);
                    }
                }
                kind if kind.repeats() => {
                    let outer = std::mem::take(&mut self.breaks);
                    // Once for what a round leaves behind, once more for the rounds that find it there.
                    let once = self.body(at + 1, next, state.clone());
                    let again = self.body(at + 1, next, state.clone().join(once.clone()));
                    let breaks = std::mem::replace(&mut self.breaks, outer);
                    state = state.join(once).join(again).join(breaks);
                }
                kind if kind.is_optional() => {
                    let taken = self.body(at + 1, next, state.clone());
                    state = state.join(taken);
                }
                _ => state = self.body(at + 1, next, state),
            }
            at = next;
        }
        state
    }

    /// Notes the fences that must stand at a statement, and clears what they cover. `arrives`: at a barrier of a pipeline, which orders
    /// against other parts alone.
    fn fence(&mut self, at: usize, state: &mut State, arrives: bool) {
        for fence in [ProxyFence::Shared, ProxyFence::Global] {
            let of = |(node, k): &At| self.nodes()[*node].touches[*k].place.fence() == fence;
            let pair = state.dirty.iter().filter(|at| of(at)).find_map(|first| {
                let rival = self.rival(at, *first, arrives)?;
                Some((first.0, rival))
            });
            let Some((first, second)) = pair else { continue };
            let clean: Vec<At> = state.dirty.iter().copied().filter(of).collect();
            let found = self.found.entry(at).or_default();
            if found.iter().all(|need| need.fence != fence) {
                found.push(Need { fence, first, second });
                found.sort_by_key(|need| need.fence != ProxyFence::Shared);
            }
            clean.iter().for_each(|at| _ = state.dirty.remove(at));
        }
    }

    /// An asynchronous access that conflicts with an ordinary one and can come after the statement `at`.
    fn rival(&self, at: usize, (node, k): At, arrives: bool) -> Option<(usize, usize)> {
        let touch = &self.nodes()[node].touches[k];
        for (part, other) in self.all.parts.iter().enumerate() {
            let own = part == self.part;
            if (own && arrives) || (!own && touch.stage.is_some()) {
                continue;
            }
            if !own && touch.place.fence() == ProxyFence::Global && !self.behind.contains(&part) {
                continue;
            }
            for (number, rival) in other.nodes.iter().enumerate() {
                let later = !own || reaches(self.nodes(), at, number);
                // The other side of a stage is ordered by the pipeline.
                let clashes = |t: &Touch<'_>| {
                    touch.clashes(t)
                        && (touch.stage.is_none() || touch.stage == t.stage)
                        && (!own || self.may_meet((node, touch), at, (number, t)))
                };
                if later && rival.touches.iter().any(clashes) {
                    return Some((part, number));
                }
            }
        }
        None
    }

    /// Notes the waits that must be for writes.
    fn waits(&self, orders: &mut Orders) {
        let nodes = self.nodes();
        let stores: Vec<(usize, &Touch<'_>)> = nodes
            .iter()
            .enumerate()
            .flat_map(|(i, node)| node.touches.iter().map(move |t| (i, t)))
            .filter(|(_, t)| {
                t.proxy == Proxy::Async && t.kind != Kind::Read && matches!(t.place, Place::Global(_))
            })
            .collect();
        if stores.is_empty() {
            return;
        }
        for (wait, node) in nodes.iter().enumerate() {
            let StmtKind::Wait(n) = node.site.stmt.kind else { continue };
            let published = self.published(wait);
            let mut ahead = BTreeSet::new();
            self.ahead(wait, n, &mut ahead);
            let covered = stores.iter().filter(|(store, _)| reaches(nodes, *store, wait));
            let clash = covered.clone().find_map(|(store, touch)| {
                let later = self.touched_later(*store, touch, wait, &ahead)?;
                Some((*store, later))
            });
            let (what, why) = match clash {
                None if covered.clone().next().is_some() && published.is_some() => {
                    orders.whole.insert(node.site.stmt.id);
                    let (part, at) = published.unwrap_or_default();
                    let why = format!(
                        "other blocks may touch what it writes, behind `{}`",
                        self.all.text(part, at)
                    );
                    (format!("cp.async.bulk.wait_group {n}"), why)
                }
                Some((store, (part, later))) => {
                    orders.whole.insert(node.site.stmt.id);
                    let why = format!(
                        "`{}` may touch what `{}` writes",
                        self.all.text(part, later),
                        self.all.text(self.part, store)
                    );
                    (format!("cp.async.bulk.wait_group {n}"), why)
                }
                None if covered.clone().next().is_none() => continue,
                None => (
                    format!("cp.async.bulk.wait_group.read {n}"),
                    "nothing touches what the copies write before the next wait that covers them".to_string(),
                ),
            };
            orders.notes.push(self.all.note(self.part, wait, what, why));
        }
    }

    /// A statement by which other blocks learn that this one has come as far as a wait, with its part: of this part one that can come
    /// behind the wait, of others any.
    fn published(&self, wait: usize) -> Option<(usize, usize)> {
        let tells = |node: &Node<'_>| {
            matches!(
                node.site.stmt.kind,
                StmtKind::SyncGrid { .. } | StmtKind::Signal { .. } | StmtKind::Ticket { .. }
            )
        };
        let parts = self.all.parts.iter().enumerate();
        let behind = |part: usize, at: usize| part != self.part || reaches(self.nodes(), wait, at);
        parts
            .filter_map(|(part, of)| {
                let mut nodes = of.nodes.iter().enumerate();
                Some((part, nodes.position(|(at, node)| tells(node) && behind(part, at))?))
            })
            .next()
    }

    /// An access that may be to the place that a store of tensor copies writes, and comes after a wait that covers the store.
    fn touched_later(
        &self,
        store: usize,
        touch: &Touch<'_>,
        wait: usize,
        ahead: &BTreeSet<usize>,
    ) -> Option<(usize, usize)> {
        let clashes = |t: &Touch<'_>| t.place.overlaps(touch.place) && t.kind.conflicts(touch.kind);
        for part in &self.behind {
            let other = self.all.parts[*part].nodes.iter().position(|node| node.touches.iter().any(clashes));
            if let Some(other) = other {
                return Some((*part, other));
            }
        }
        let later = ahead.iter().copied().find(|later| {
            let mut touches = self.nodes()[*later].touches.iter();
            touches.any(|t| clashes(t) && self.may_meet((store, touch), wait, (*later, t)))
        });
        later.map(|later| (self.part, later))
    }

    /// Adds the statements that can follow a wait, up to the next waits that leave as few groups.
    fn ahead(&self, wait: usize, n: i64, found: &mut BTreeSet<usize>) {
        let nodes = self.nodes();
        let (mut at, mut begin) = (wait, nodes[wait].site.end);
        loop {
            let parent = nodes[at].site.parent;
            let end = parent.map_or(nodes.len(), |parent| nodes[parent].site.end);
            if self.scan(begin, end, n, found) {
                return;
            }
            let Some(parent) = parent else { return };
            if nodes[parent].site.stmt.kind.repeats() {
                self.scan(parent + 1, end, n, found);
            }
            (at, begin) = (parent, end);
        }
    }

    /// Adds statements that stand side by side up to a wait; whether there is one on every way through them.
    fn scan(&self, mut at: usize, end: usize, n: i64, found: &mut BTreeSet<usize>) -> bool {
        let mut leaves = false;
        while at < end {
            let node = &self.nodes()[at];
            if matches!(node.site.stmt.kind, StmtKind::Wait(left) if left <= n) {
                return !leaves;
            }
            leaves |= matches!(node.site.stmt.kind, StmtKind::Break { .. });
            found.insert(at);
            if self.scan(at + 1, node.site.end, n, found) && !node.site.stmt.kind.is_optional() {
                return !leaves;
            }
            at = node.site.end;
        }
        false
    }

    /// True if two accesses to one buffer, the first before and the second behind a wait or a barrier, may be to one element. Of shared
    /// memory nothing is proved.
    fn may_meet(
        &self,
        (store, touch): (usize, &Touch<'_>),
        wait: usize,
        (later, other): (usize, &Touch<'_>),
    ) -> bool {
        let nodes = self.nodes();
        let verified = self.all.parts[self.part].verified;
        let (Some(a), Some(b)) =
            (verified.tile(touch.reference).global, verified.tile(other.reference).global)
        else {
            return true;
        };
        let counters = self.counters();
        let is_counter = |id: SymbolId| counters.contains_key(&id);
        let known = |equal: &[SymbolId], tables: bool| Known {
            equal: equal.to_vec(),
            counters: counters.iter().filter_map(|(id, range)| Some((*id, range.clone()?))).collect(),
            is_counter: Some(&is_counter),
            tables,
            ..Known::default()
        };
        let writes = touch.kind != Kind::Read && other.kind != Kind::Read;
        // Of tiles of different rounds of a loop, one of the pairs of counters differs.
        let rounds_apart = |equal: &[SymbolId], kind: &StmtKind| {
            let tables = writes && matches!(kind, StmtKind::Tiles { .. } | StmtKind::Drain { .. });
            pairs(kind).iter().any(|pair| {
                (0..pair.len()).all(|i| {
                    let equal = [equal, &pair[..i]].concat();
                    apart(&a, &b, &known(&equal, tables), Some(&Expr::Symbol(pair[i])))
                })
            })
        };
        let common = |x: usize, y: usize| {
            let (x, y) = (&nodes[x].site.loops, &nodes[y].site.loops);
            x.iter().zip(y).take_while(|(x, y)| x == y).count()
        };
        let shared = common(store, later).min(common(store, wait)).min(common(wait, later));
        let around = &nodes[store].site.loops[..shared];
        let mut equal: Vec<SymbolId> = Vec::new();
        for at in around {
            let kind = &nodes[*at].site.stmt.kind;
            if !rounds_apart(&equal, kind) {
                return true;
            }
            equal.extend(pairs(kind).concat());
        }
        // In the same round of all those loops.
        let before = |x: usize, y: usize| x < y || common(x, y) > shared;
        if !before(store, wait) || !before(wait, later) {
            return false;
        }
        if let (Some(first), Some(second)) = (self.drain_around(store), self.drain_around(later))
            && first == second
        {
            equal.extend(pairs(&nodes[first].site.stmt.kind).concat());
        }
        match self.loop_of_drain(store, later) {
            Some(drain) => !rounds_apart(&equal, drain),
            None => !apart(&a, &b, &known(&equal, false), None),
        }
    }

    /// The `drain` that one statement is in, if the other is in its loop.
    fn loop_of_drain(&self, in_loop: usize, later: usize) -> Option<&StmtKind> {
        let nodes = self.nodes();
        let drain = &nodes[self.drain_around(later)?].site.stmt.kind;
        let StmtKind::Drain { previous, .. } = drain else { return None };
        let is_its = |i: &usize| matches!(&nodes[*i].site.stmt.kind, StmtKind::Tiles { previous: Some(own), .. } if own == previous);
        nodes[in_loop].site.loops.iter().any(is_its).then_some(drain)
    }

    /// The `drain` that a statement is in.
    fn drain_around(&self, mut at: usize) -> Option<usize> {
        let nodes = self.nodes();
        while !matches!(nodes[at].site.stmt.kind, StmtKind::Drain { .. }) {
            at = nodes[at].site.parent?;
        }
        Some(at)
    }

    /// The counters of the part, with what they count from and to, where that is known.
    fn counters(&self) -> BTreeMap<SymbolId, Option<(Expr, Expr)>> {
        let mut found = BTreeMap::new();
        for node in self.nodes() {
            match &node.site.stmt.kind {
                StmtKind::For { counter, lo, hi, .. } => {
                    found.insert(*counter, Some((lo.clone(), hi.clone())));
                }
                StmtKind::Ticket { symbol, count, .. } => {
                    found.insert(*symbol, Some((Expr::Int(0), count.clone())));
                }
                StmtKind::Tiles { row, col, previous, rows, cols, .. } => {
                    for [i, j] in [[*row, *col]].into_iter().chain(*previous) {
                        found.insert(i, Some((Expr::Int(0), rows.clone())));
                        found.insert(j, Some((Expr::Int(0), cols.clone())));
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// The counters of a loop, of which no two rounds have the same: those of each tile and those of the tile before, or the one of a range.
fn pairs(kind: &StmtKind) -> Vec<Vec<SymbolId>> {
    match kind {
        StmtKind::For { counter, .. } => vec![vec![*counter]],
        StmtKind::Tiles { row, col, previous, .. } => {
            [[*row, *col]].into_iter().chain(*previous).map(|pair| pair.to_vec()).collect()
        }
        StmtKind::Drain { previous, .. } => vec![previous.to_vec()],
        _ => Vec::new(),
    }
}

/// True if a statement can be done after another was.
pub(super) fn reaches(nodes: &[Node<'_>], from: usize, to: usize) -> bool {
    to > from || nodes[from].site.loops.iter().any(|at| nodes[to].site.loops.contains(at))
}
