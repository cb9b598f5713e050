//! A cluster of blocks: their shared memory, and the accesses to it and to global memory with all their checks.

use std::collections::BTreeMap;

use tilewright_machine::{LaunchControl, Memory, ProxyFence, Reduction};

use crate::clock::{Agent, HappensBefore, Knowledge, Space, View};
use crate::context::Context;
use crate::cycles::Pipes;
use crate::flight::Flight;
use crate::global::{Range, Touch, Watched};
use crate::launch::NotBegun;
use crate::mbarrier::{Mbarrier, Posted};
use crate::memory::{Buffer, SHARED_BASE};
use crate::named::NamedBarrier;
use crate::profile::Observer;
use crate::rule::Rule;
use crate::shadow::{ASYNC, ATOMIC, Access, COLLECTIVE, Kind, Now, Shadow};
use crate::sink::{FaultKind, Place, Sink, Site, Wrong};
use crate::tables::MmaTiles;
use crate::tensor_memory::{TensorMemory, TensorUnit};
use crate::wgmma::{CHUNK, NOWHERE, Tiles, Unit};

/// Value of uninitialised shared bytes: as `f16`, `bf16` and `f32` a NaN.
const POISON: u8 = 0xff;

/// Bits of an address in the cluster's window that are below the block's rank.
const RANK_SHIFT: u32 = 24;

/// Threads of a warpgroup, in warps.
pub(crate) const GROUP: u32 = 4;

/// A block of the cluster.
pub(crate) struct Cta {
    pub index: [u32; 3],
    pub pipes: Pipes,
    /// Registers that no warp has.
    pub pool: u64,
    /// Warps that have not ended.
    pub running: u32,
    pub shared: Vec<u8>,
    shadow: Option<Shadow>,
    /// Tensor memory, where the function has some.
    pub tensor: Option<TensorMemory>,
    /// Marks of the 8 bytes that are an mbarrier; empty before the first.
    barriers: Vec<bool>,
    /// The number of each record of what it prints, by the instruction and how often that was executed before.
    pub printed: BTreeMap<(usize, u64), u64>,
}

/// The operand tiles of products, kept between products.
#[derive(Debug, Default)]
pub(crate) struct AllTiles {
    pub warp: MmaTiles,
    pub floats: Tiles<f32>,
    pub integers: Tiles<i32>,
}

/// A cluster that is being executed.
pub(crate) struct Cluster<'a> {
    pub context: &'a Context<'a>,
    pub sink: Sink,
    pub tiles: AllTiles,
    pub ctas: Vec<Cta>,
    /// Vector clocks of each warp.
    pub know: Vec<Knowledge>,
    /// By rank and offset in the window.
    pub barriers: BTreeMap<(u32, u32), Mbarrier>,
    /// By rank and number.
    pub named: BTreeMap<(u32, u32), NamedBarrier>,
    /// Copies in flight, in the order of their issue.
    pub flights: Vec<Flight>,
    /// Arrivals at mbarriers of peers that are on their way, in the order of their issue.
    pub posted: Vec<Posted>,
    /// The matrix units, one a warpgroup.
    pub units: Vec<Unit>,
    /// Products with sums in tensor memory and their commits that are outstanding, by warp; none where the function has no tensor memory.
    pub tensor_units: Vec<TensorUnit>,
    /// Clocks that releases of words of global memory have published, by buffer and offset.
    pub words: BTreeMap<(u32, u64), HappensBefore>,
    /// Accesses to global memory.
    pub global: Watched,
    /// The clusters of the launch that have not begun, where a function may cancel some.
    pub not_begun: NotBegun,
    /// Something has happened that a blocked warp may wait for.
    pub changed: bool,
    /// Counts what warps do, where it is wanted.
    pub observer: Option<Box<Observer>>,
    agents: Agent,
}

impl<'a> Cluster<'a> {
    /// The launch's answer to a request to cancel a cluster that has not begun.
    pub(crate) fn answer(&mut self) -> Vec<u8> {
        let blocks = self.context.program.function.cluster;
        let block = self.not_begun.cancel().map(|cluster| self.index(cluster * blocks));
        LaunchControl::answer(block).into_iter().flat_map(u32::to_le_bytes).collect()
    }

    /// The clusters that run together, of so many `blocks`, the first of which is block `first` of the grid.
    pub(crate) fn new(context: &'a Context<'a>, first: [u32; 3], blocks: u32, warps: u32) -> Self {
        let function = context.program.function;
        let watched = context.config.check_races || context.config.check_uninitialised;
        let bytes = function.shared_bytes;
        let cta = |rank| Cta {
            index: context.block_behind(first, rank),
            pipes: Pipes::default(),
            pool: 0,
            running: warps,
            shared: vec![POISON; bytes as usize],
            shadow: watched.then(|| Shadow::new(bytes)),
            tensor: context.program.sums.then(|| TensorMemory::new(watched)),
            barriers: Vec::new(),
            printed: BTreeMap::new(),
        };
        let all = blocks * warps;
        let groups = warps / GROUP;
        Cluster {
            context,
            sink: Sink::new(context.program.statements.len()),
            tiles: AllTiles::default(),
            ctas: (0..blocks).map(cta).collect(),
            know: Vec::new(),
            barriers: BTreeMap::new(),
            named: BTreeMap::new(),
            flights: Vec::new(),
            posted: Vec::new(),
            tensor_units: vec![TensorUnit::default(); if context.program.sums { all as usize } else { 0 }],
            words: BTreeMap::new(),
            global: Watched::default(),
            // Warps come first, then the reads of their bulk copies, then the matrix units, then the writes of bulk copies, then the
            // reads of asynchronous copies, and, where there is tensor memory, the loads from it, the stores to it and the products there.
            units: (0..blocks * groups).map(|u| Unit::new((2 * all + u) as Agent)).collect(),
            not_begun: NotBegun::default(),
            changed: false,
            observer: None,
            agents: ((if context.program.sums { 7 } else { 4 }) * all + blocks * groups) as Agent,
        }
    }

    /// The agent of the bulk copies out of shared memory that a warp starts.
    pub(crate) fn copies_of(&self, warp: Agent) -> Agent {
        self.know.len() as Agent + warp
    }

    /// The agent of the writes to global memory of the bulk copies that a warp starts.
    pub(crate) fn stores_of(&self, warp: Agent) -> Agent {
        (2 * self.know.len() + self.units.len()) as Agent + warp
    }

    /// The agent of the reads of global memory by the asynchronous copies of a warp.
    pub(crate) fn fetches_of(&self, warp: Agent) -> Agent {
        (3 * self.know.len() + self.units.len()) as Agent + warp
    }

    /// The agent of a kind of a warp's accesses to tensor memory.
    pub(crate) fn tensor_agents(&self, kind: usize, warp: Agent) -> Agent {
        ((4 + kind) * self.know.len() + self.units.len()) as Agent + warp
    }

    /// True if what an agent does carries over to an agent that learns that a peer has come to a point, without a release for the cluster: the
    /// units do, which work on shared memory; what they write to global memory does not (other multiprocessors' L1 caches keep it).
    pub(crate) fn carries(&self) -> impl Fn(Agent) -> bool + use<> {
        let (warps, stores) = (self.know.len() as Agent, self.stores_of(0));
        move |agent| agent >= warps && !(stores..stores + warps).contains(&agent)
    }

    /// The spaces that a proxy fence of a thread of a block covers.
    pub(crate) fn spaces(&self, fence: ProxyFence, rank: u32) -> Vec<Space> {
        let global = fence.covers(Memory::Global).then_some(Space::GLOBAL);
        let shared: Vec<u32> = match fence {
            ProxyFence::Shared => vec![rank],
            ProxyFence::SharedCluster | ProxyFence::All => self.peers(rank).collect(),
            ProxyFence::Global => Vec::new(),
        };
        global.into_iter().chain(shared.into_iter().map(Space::shared)).collect()
    }

    /// The blocks of a block's cluster, among those that run together.
    pub(crate) fn peers(&self, rank: u32) -> std::ops::Range<u32> {
        let blocks = self.context.program.function.cluster;
        let first = rank / blocks * blocks;
        first..first + blocks
    }

    /// The block of a thread's cluster that an address of the cluster's window, or a rank, names; `None` where there is none.
    pub(crate) fn peer(&self, site: &Site, rank: u32) -> Option<u32> {
        self.peers(site.rank).nth(rank as usize)
    }

    /// A unit that is new.
    pub(crate) fn new_agent(&mut self) -> Agent {
        self.agents += 1;
        self.agents - 1
    }

    /// The index of a block in the grid.
    pub(crate) fn index(&self, rank: u32) -> [u32; 3] {
        self.ctas.get(rank as usize).map_or([0; 3], |cta| cta.index)
    }

    /// The shadow's record of a warp's access.
    pub(crate) fn access(&self, site: &Site) -> Access {
        let time = self.know[site.agent as usize].time;
        let flags = if site.collective { COLLECTIVE } else { 0 };
        Access {
            time,
            statement: site.statement,
            lanes: site.lanes(),
            agent: site.agent,
            thread: site.thread as u16,
            rank: site.rank as u8,
            flags,
        }
    }

    /// Reports what was done wrong to a barrier, a unit or a register.
    pub(crate) fn misuse(&mut self, site: &Site, rule: Rule, message: impl FnOnce() -> String) {
        let block = self.index(site.rank);
        self.sink.misuse(self.context, block, site, rule, message);
    }

    /// Reports a wrong access; the address of a shared one is that in its block.
    pub(crate) fn wrong(
        &mut self,
        site: &Site,
        kind: FaultKind,
        memory: Memory,
        address: i64,
        bytes: u32,
        write: bool,
    ) {
        let block = self.index(site.rank);
        let address = if memory == Memory::Shared { address - i64::from(SHARED_BASE) } else { address };
        self.sink.fault(self.context, block, site, Wrong { kind, memory, address, bytes, write });
    }

    /// The offset in its block's window of an access that is aligned and lies in a shared buffer; any other is reported.
    pub(crate) fn shared_offset(
        &mut self,
        site: &Site,
        address: u32,
        bytes: u32,
        write: bool,
    ) -> Option<u32> {
        let (rank, offset) = self.cluster_offset(site, address, bytes, write)?;
        if rank == site.rank {
            return Some(offset);
        }
        self.wrong(site, FaultKind::OutOfBounds, Memory::Shared, i64::from(address), bytes, write);
        None
    }

    /// The same for an access that may be to a block of the cluster: its rank and the offset.
    pub(crate) fn cluster_offset(
        &mut self,
        site: &Site,
        address: u32,
        bytes: u32,
        write: bool,
    ) -> Option<(u32, u32)> {
        let found = self.place(site, address, bytes, write)?;
        if self.barrier_within(found, bytes) {
            self.misuse(site, Rule::Barrier, || "it accesses the bytes of an mbarrier".to_string());
        }
        Some(found)
    }

    /// The rank and the offset of what is aligned and lies in a shared buffer of a block that runs; all else is reported.
    pub(crate) fn place(&mut self, site: &Site, address: u32, bytes: u32, write: bool) -> Option<(u32, u32)> {
        let local = address & ((1 << RANK_SHIFT) - 1);
        let offset = local.wrapping_sub(SHARED_BASE);
        let peer = self.peer(site, address >> RANK_SHIFT);
        let found =
            peer.filter(|_| local >= SHARED_BASE && self.context.owners.find(offset, bytes).is_some());
        let Some(rank) = found else {
            let address = if peer == Some(site.rank) { local } else { address };
            self.wrong(site, FaultKind::OutOfBounds, Memory::Shared, i64::from(address), bytes, write);
            return None;
        };
        if !local.is_multiple_of(bytes) {
            self.wrong(site, FaultKind::Misaligned, Memory::Shared, i64::from(local), bytes, write);
            return None;
        }
        if self.ctas[rank as usize].running == 0 {
            let rank = rank - self.peers(rank).start;
            self.misuse(site, Rule::Ended, || {
                format!("it reaches the shared memory of block {rank} of the cluster, which has ended")
            });
        }
        Some((rank, offset))
    }

    /// True if any of these bytes belongs to an mbarrier.
    pub(crate) fn barrier_within(&self, (rank, offset): (u32, u32), bytes: u32) -> bool {
        let barriers = &self.ctas[rank as usize].barriers;
        !barriers.is_empty() && (offset / 8..(offset + bytes).div_ceil(8)).any(|i| barriers[i as usize])
    }

    /// Makes an mbarrier of 8 bytes.
    pub(crate) fn make_barrier(&mut self, (rank, offset): (u32, u32), barrier: Mbarrier) {
        let cta = &mut self.ctas[rank as usize];
        cta.barriers.resize(cta.shared.len().div_ceil(8), false);
        cta.barriers[(offset / 8) as usize] = true;
        if let Some(bytes) = cta.shared.get_mut(offset as usize..offset as usize + 8) {
            bytes.fill(POISON);
        }
        if let Some(shadow) = &mut cta.shadow {
            shadow.land(offset, 8, barrier.init);
        }
        self.barriers.insert((rank, offset), barrier);
    }

    /// The buffer, its number and the offset of an access that is aligned and in bounds; any other is reported.
    pub(crate) fn global_offset(
        &mut self,
        site: &Site,
        address: u64,
        bytes: u32,
        write: bool,
    ) -> Option<(&'a Buffer, u32, u64)> {
        let found = self.context.memory.locate(address).filter(|(b, _, o)| o + u64::from(bytes) <= b.size());
        match found {
            Some((buffer, index, offset)) if offset.is_multiple_of(u64::from(bytes)) => {
                return Some((buffer, index, offset));
            }
            Some(_) => self.wrong(site, FaultKind::Misaligned, Memory::Global, address as i64, bytes, write),
            None => self.wrong(site, FaultKind::OutOfBounds, Memory::Global, address as i64, bytes, write),
        }
        None
    }

    /// Reads shared bytes, at most 16, at a rank and an offset that were checked.
    pub(crate) fn read_shared(&mut self, site: &Site, rank: u32, offset: u32, bytes: u32) -> [u8; 16] {
        self.watch(site, rank, offset, bytes, Kind::Read);
        let mut data = [0; 16];
        let (start, len) = (offset as usize, bytes.min(16) as usize);
        if let Some(from) = self.ctas[rank as usize].shared.get(start..start + len) {
            data[..len].copy_from_slice(from);
        }
        data
    }

    /// Writes shared bytes of the thread's block, at most 16, at an offset that was checked.
    pub(crate) fn write_shared(&mut self, site: &Site, offset: u32, bytes: u32, data: &[u8; 16]) {
        self.watch(site, site.rank, offset, bytes, Kind::Write);
        self.put(site.rank, offset, &data[..bytes.min(16) as usize]);
    }

    /// Combines elements with shared bytes of the thread's block, each as one step, at an offset that was checked.
    pub(crate) fn reduce_shared(&mut self, site: &Site, offset: u32, data: &[u8], by: Reduction) {
        self.watch(site, site.rank, offset, data.len() as u32, Kind::Combine);
        let (start, bytes) = (offset as usize, (by.dtype.bits() / 8) as usize);
        let Some(to) = self.ctas[site.rank as usize].shared.get_mut(start..start + data.len()) else {
            return;
        };
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        for (old, new) in to.chunks_exact_mut(bytes).zip(data.chunks_exact(bytes)) {
            let result = by.op.combine(by.dtype, word(old), word(new));
            old.copy_from_slice(&result.to_le_bytes()[..bytes]);
        }
    }

    /// Notes an atomic operation on shared bytes of the thread's block.
    pub(crate) fn watch_combine(&mut self, site: &Site, offset: u32, bytes: u32) {
        self.watch(site, site.rank, offset, bytes, Kind::Combine);
    }

    /// Notes that an asynchronous copy of a thread into shared bytes is in flight.
    pub(crate) fn issue_async(&mut self, site: &Site, offset: u32, bytes: u32) {
        self.watch(site, site.rank, offset, bytes, Kind::Issue);
    }

    /// Ends an asynchronous copy of a thread, whose bytes are there.
    pub(crate) fn land_async(&mut self, site: &Site, offset: u32, bytes: u32) {
        let access = self.access(site);
        if let Some(shadow) = &mut self.ctas[site.rank as usize].shadow {
            shadow.land(offset, bytes, access);
        }
    }

    /// Lands bytes that a unit has copied.
    pub(crate) fn land(&mut self, rank: u32, offset: u32, data: &[u8], access: Access) {
        if let Some(shadow) = &mut self.ctas[rank as usize].shadow {
            shadow.land(offset, data.len() as u32, access);
        }
        self.put(rank, offset, data);
    }

    fn watch(&mut self, site: &Site, rank: u32, offset: u32, bytes: u32, kind: Kind) {
        if self.ctas[rank as usize].shadow.is_some() {
            self.sink.next_access();
            let access = self.access(site);
            self.note(site, rank, &[offset], bytes, kind, access, None);
        }
    }

    /// Notes what a unit does to each of these runs of shared bytes, by the knowledge of the lane that started it or, where it is given,
    /// of all that did. It counts as one access.
    pub(crate) fn watch_unit(
        &mut self,
        site: &Site,
        rank: u32,
        (offsets, bytes): (&[u32], u32),
        kind: Kind,
        (agent, time): (Agent, u32),
        common: Option<&HappensBefore>,
    ) {
        self.sink.next_access();
        let lanes = if common.is_some() || kind == Kind::Issue { u32::MAX } else { site.lanes() };
        let access = Access { agent, time, lanes, flags: ASYNC, ..self.access(site) };
        self.note(site, rank, offsets, bytes, kind, access, common);
    }

    fn note(
        &mut self,
        site: &Site,
        rank: u32,
        offsets: &[u32],
        bytes: u32,
        kind: Kind,
        access: Access,
        common: Option<&HappensBefore>,
    ) {
        let Cluster { ctas, know, sink, context, .. } = self;
        let first = ctas.first().map_or([0; 3], |cta| cta.index);
        let Some(shadow) = &mut ctas[rank as usize].shadow else { return };
        let view = common.map_or_else(|| know[site.agent as usize].view(site.lanes()), View::common);
        let mut now = Now { access, view, space: Space::shared(rank), tensor: 0 };
        let how = (bytes, kind != Kind::Read, access.is(ASYNC));
        let report = &mut |event| sink.event(context, first, (site, rank), how, event);
        for offset in offsets {
            now.tensor = context.owners.meant(site.origin, *offset);
            match kind {
                Kind::Read => shadow.read(*offset, bytes, &now, report),
                Kind::Write => shadow.write(*offset, bytes, &now, report),
                Kind::Issue => shadow.issue(*offset, bytes, &now, report),
                Kind::Combine => shadow.combine(*offset, bytes, &now, report),
            }
        }
    }

    /// Notes an access to global memory, which writes `data` if it writes: by a thread, or by an asynchronous operation that it starts, which has this agent, time and
    /// flags.
    pub(crate) fn watch_global(
        &mut self,
        site: &Site,
        (buffer, start, bytes): (u32, u64, u64),
        touch: Touch,
        data: &[u8],
        unit: Option<(Agent, u32, u8)>,
    ) {
        self.check_launches(site, (buffer, start), touch);
        if !self.context.config.check_global || (touch == Touch::Read && !self.context.watches(buffer)) {
            return;
        }
        self.sink.next_access();
        let mut access = self.access(site);
        if let Some((agent, time, flags)) = unit {
            access = Access { agent, time, flags, ..access };
        }
        if touch == Touch::Add {
            access.flags |= ATOMIC;
        }
        let asynchronous = unit.is_some();
        let range = Range {
            buffer,
            statement: site.statement,
            touch,
            start,
            end: start + bytes,
            thread: access.thread,
            rank: access.rank,
            asynchronous,
        };
        let Cluster { ctas, know, sink, context, global, .. } = self;
        let first = ctas.first().map_or([0; 3], |cta| cta.index);
        let view = know[site.agent as usize].view(site.lanes());
        let now = Now { access, view, space: Space::GLOBAL, tensor: 0 };
        global.note(range, data, &now, &mut |event, offset| {
            let place = Place::Global(buffer, offset);
            sink.raced(context, first, site, (touch.writes(), asynchronous), event, place);
        });
    }

    /// Reports an access to global memory that a launch before this one may clash with: what threads access, or an asynchronous operation that
    /// they start, comes after a wait that they know of.
    pub(crate) fn check_launches(&mut self, site: &Site, (buffer, offset): (u32, u64), touch: Touch) {
        let context = self.context;
        if !context.depends(buffer, touch.writes())
            || self.know[site.agent as usize].view(site.lanes()).sees_launches()
        {
            return;
        }
        self.misuse(site, Rule::Dependency, || {
            let name = context.name(buffer);
            let (does, may) = match touch {
                Touch::Read => ("reads", "write"),
                Touch::Write => ("writes", "read or write"),
                Touch::Add => ("adds to", "read or write"),
            };
            let or = match touch {
                Touch::Read => format!(", or mark it `constant {name}: …` if none of them writes it"),
                _ => String::new(),
            };
            format!(
                "it {does} byte {offset} of `{name}` and is ordered behind no `wait_dependencies()`: a launch before this one may still \
                 {may} `{name}`; wait before, in the same role or in one whose stage it gets{or}"
            )
        });
    }

    /// Takes the chunks of an operand that lie in no buffer for nowhere, and reports them.
    pub(crate) fn inside(&mut self, site: &Site, places: &mut [u32]) {
        let mut outside = None;
        for place in places {
            if self.context.owners.find(*place, CHUNK).is_none() {
                outside = outside.or(Some(*place));
                *place = NOWHERE;
            } else if self.barrier_within((site.rank, *place), CHUNK) {
                self.misuse(site, Rule::Barrier, || "it reads the bytes of an mbarrier".to_string());
            }
        }
        if let Some(place) = outside {
            let address = i64::from(place as i32) + i64::from(SHARED_BASE);
            self.wrong(site, FaultKind::OutOfBounds, Memory::Shared, address, CHUNK, false);
        }
    }

    /// The shared memory of a block.
    pub(crate) fn shared(&self, rank: u32) -> &[u8] {
        self.ctas.get(rank as usize).map_or(&[], |cta| &cta.shared[..])
    }

    /// Puts bytes into shared memory, unwatched.
    pub(crate) fn put(&mut self, rank: u32, offset: u32, data: &[u8]) {
        let start = offset as usize;
        if let Some(to) = self.ctas[rank as usize].shared.get_mut(start..start + data.len()) {
            to.copy_from_slice(data);
        }
    }
}
