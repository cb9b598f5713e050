//! Traces: a cluster's execution as a trace for ui.perfetto.dev.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use tilewright_machine::Wavefronts;
use tilewright_simt::Position;

use crate::context::Context;
use crate::decode::Program;
use crate::findings::Row;

/// Most events of a trace; what comes after is left out.
pub const EVENT_LIMIT: usize = 1 << 20;

/// The execution of a cluster by the cycle model.
///
/// It serialises as an array of events in the format that `chrome://tracing` and ui.perfetto.dev read: blocks are processes; warps, the
/// tensor memory accelerator and the tensor cores of each warpgroup are threads; a cycle is a microsecond.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The names of blocks and of what is in them.
    pub tracks: Vec<Track>,
    /// The events; those of a track follow each other.
    pub events: Vec<Event>,
    /// For each instruction of a statement that accesses shared memory, the request of a warp that took the most wavefronts.
    pub requests: Vec<SharedRequest>,
    /// The ends of phases of pipelines' mbarriers, in the order in which they were executed.
    pub phases: Vec<Phase>,
    /// True if there were more than [`EVENT_LIMIT`].
    pub truncated: bool,
}

/// A side of a stage of a pipeline: the mbarrier that says that it is full, or empty.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct StageEnd {
    /// The pipeline.
    pub pipeline: String,
    /// The stage.
    pub stage: u32,
    /// True if the stage is full, false if it is free.
    pub full: bool,
}

/// The end of a phase of a stage's mbarrier: from then on the stage is full, or free.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Phase {
    /// The block's number in the grid.
    pub block: u64,
    /// The mbarrier.
    #[serde(flatten)]
    pub end: StageEnd,
    /// The cycle.
    pub time: u64,
}

/// A warp's request to shared memory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SharedRequest {
    /// The position of the tile statement in its source.
    pub position: Option<Position>,
    /// The instruction row's name.
    pub instruction: &'static str,
    /// The block's number in the grid.
    pub block: u64,
    /// The warp in its block.
    pub warp: u32,
    /// Bytes of each lane; of a matrix access those of each row.
    pub bytes: u32,
    /// By lane: the first byte in the window of the block's shared memory; none of a lane that accesses nothing.
    pub offsets: Vec<Option<u32>>,
    /// Wavefronts that it took.
    pub wavefronts: u32,
    /// Wavefronts that it needs without bank conflicts.
    pub ideal: u32,
}

/// A warp or a unit of a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Track {
    /// The block's number in the grid, x fastest.
    pub block: u64,
    /// The number in the block.
    pub number: u32,
    /// The name.
    pub name: String,
}

/// Something that took time.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Event {
    /// The tile statement; of a wait, `wait` and what it waits for.
    pub name: String,
    /// `statement`, `wait`, `copy` or `product`.
    #[serde(rename = "cat")]
    pub category: &'static str,
    /// The position of the tile statement in its source; of a wait, that of the statement that waits.
    #[serde(skip)]
    pub position: Option<Position>,
    ph: &'static str,
    /// The first cycle.
    #[serde(rename = "ts")]
    pub start: u64,
    /// Cycles.
    #[serde(rename = "dur")]
    pub cycles: u64,
    /// The block's number in the grid.
    #[serde(rename = "pid")]
    pub block: u64,
    /// The number of the track in its block.
    #[serde(rename = "tid")]
    pub track: u32,
    /// More about it.
    pub args: Details,
}

/// More about an event.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Details {
    /// Number of each instruction.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instructions: BTreeMap<&'static str, u64>,
    /// Bytes that they move.
    #[serde(skip_serializing_if = "is_zero")]
    pub bytes: u64,
    /// Cycles of it in which a warp waits for operands or a busy unit.
    #[serde(skip_serializing_if = "is_zero")]
    pub stall: u64,
    /// Of a copy: when its bytes are there.
    #[serde(skip_serializing_if = "is_zero")]
    pub lands: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The name of a process or a thread, as an event.
#[derive(Serialize)]
struct Metadata<'a> {
    name: &'static str,
    ph: &'static str,
    pid: u64,
    tid: u32,
    args: Named<'a>,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Name(Metadata<'a>),
    Event(&'a Event),
}

impl Serialize for Trace {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut blocks: Vec<u64> = self.tracks.iter().map(|t| t.block).collect();
        blocks.dedup();
        let names: Vec<String> = blocks.iter().map(|block| format!("block {block}")).collect();
        let name = |name, pid, tid, text| {
            Entry::Name(Metadata { name, ph: "M", pid, tid, args: Named { name: text } })
        };
        let processes = blocks.iter().zip(&names).map(|(block, text)| name("process_name", *block, 0, text));
        let threads = self.tracks.iter().map(|t| name("thread_name", t.block, t.number, &t.name));
        serializer.collect_seq(processes.chain(threads).chain(self.events.iter().map(Entry::Event)))
    }
}

/// Writes a trace.
#[derive(Debug)]
pub(crate) struct Tracer {
    trace: Trace,
    /// The first block.
    first: u64,
    /// Warps of a block.
    warps: u32,
    /// By warp: the event that its next instruction may continue, with its statement.
    open: Vec<Option<(u32, Event)>>,
    /// By the program's statements, the request with the most wavefronts.
    requests: BTreeMap<u32, SharedRequest>,
}

impl Tracer {
    /// That of clusters that run together, of `warps` warps, whose first block is `first`.
    pub(crate) fn new(context: &Context<'_>, first: u64, warps: usize) -> Self {
        let per_block = context.program.function.threads.div_ceil(32).max(1);
        let blocks = warps as u32 / per_block;
        let mut tracks = Vec::new();
        for block in first..first + u64::from(blocks) {
            let mut track = |number, name| tracks.push(Track { block, number, name });
            (0..per_block).for_each(|w| track(w, format!("warp {w}")));
            track(per_block, "TMA".to_string());
            if !context.program.wgmmas.is_empty() {
                (0..per_block / 4)
                    .for_each(|g| track(per_block + 1 + g, format!("tensor cores, warpgroup {g}")));
            }
        }
        let trace = Trace { tracks, ..Trace::default() };
        Tracer { trace, first, warps: per_block.max(1), open: vec![None; warps], requests: BTreeMap::new() }
    }

    fn event(&self, category: &'static str, name: String, agent: usize, (start, end): (u64, u64)) -> Event {
        let agent = agent as u32;
        Event {
            name,
            category,
            position: None,
            ph: "X",
            start,
            cycles: end - start,
            block: self.first + u64::from(agent / self.warps),
            track: agent % self.warps,
            args: Details::default(),
        }
    }

    fn push(&mut self, event: Event) {
        if self.trace.events.len() < EVENT_LIMIT {
            self.trace.events.push(event);
        } else {
            self.trace.truncated = true;
        }
    }

    /// Notes an instruction of a warp.
    pub(crate) fn executed(
        &mut self,
        agent: usize,
        row: &Row,
        (start, end): (u64, u64),
        stall: u64,
        bytes: u64,
        program: &Program<'_>,
    ) {
        let continued = self.open[agent]
            .as_ref()
            .is_some_and(|(origin, event)| *origin == row.origin && event.start + event.cycles == start);
        if !continued {
            // Moves between registers take no time, and begin nothing.
            if end == start {
                return;
            }
            self.close(agent);
            let mut event = self.event("statement", program.origin(row.origin), agent, (start, start));
            event.position = program.position(row.origin);
            self.open[agent] = Some((row.origin, event));
        }
        if let Some((_, event)) = &mut self.open[agent] {
            event.cycles = end - event.start;
            event.args.stall += stall;
            event.args.bytes += bytes;
            *event.args.instructions.entry(row.name).or_insert(0) += 1;
        }
    }

    fn close(&mut self, agent: usize) {
        if let Some((_, event)) = self.open[agent].take() {
            self.push(event);
        }
    }

    /// Notes that a warp waited, in a statement at a position.
    pub(crate) fn wait(
        &mut self,
        agent: usize,
        what: String,
        position: Option<Position>,
        (start, end): (u64, u64),
    ) {
        if end > start {
            self.close(agent);
            let mut event = self.event("wait", what, agent, (start, end));
            event.position = position;
            self.push(event);
        }
    }

    /// Notes a copy of the tensor memory accelerator that a warp has issued.
    pub(crate) fn copy(
        &mut self,
        agent: usize,
        origin: u32,
        time: (u64, u64),
        (bytes, lands): (u64, u64),
        program: &Program<'_>,
    ) {
        let mut event = self.event("copy", program.origin(origin), agent, time);
        event.position = program.position(origin);
        event.track = self.warps;
        event.args = Details { bytes, lands, ..Details::default() };
        self.push(event);
    }

    /// Notes a product of the warpgroup of a warp.
    pub(crate) fn product(
        &mut self,
        agent: usize,
        origin: u32,
        time: (u64, u64),
        instruction: &'static str,
        program: &Program<'_>,
    ) {
        let mut event = self.event("product", program.origin(origin), agent, time);
        event.position = program.position(origin);
        event.track = self.warps + 1 + event.track / 4;
        event.args.instructions.insert(instruction, 1);
        self.push(event);
    }

    /// Notes a request of a warp to shared memory, in one of the program's statements, if none before took as many wavefronts.
    pub(crate) fn request(
        &mut self,
        agent: usize,
        statement: u32,
        offsets: &[Option<u32>; 32],
        (bytes, waves): (u32, Wavefronts),
        program: &Program<'_>,
    ) {
        if self.requests.get(&statement).is_some_and(|known| known.wavefronts >= waves.actual) {
            return;
        }
        let Some(counted) = program.statements.get(statement as usize) else { return };
        let agent = agent as u32;
        let request = SharedRequest {
            position: program.position(counted.origin),
            instruction: counted.name,
            block: self.first + u64::from(agent / self.warps),
            warp: agent % self.warps,
            bytes,
            offsets: offsets.to_vec(),
            wavefronts: waves.actual,
            ideal: waves.ideal,
        };
        self.requests.insert(statement, request);
    }

    /// Notes that a phase of a stage's mbarrier has ended in the block of this rank.
    pub(crate) fn phase(&mut self, rank: u32, end: StageEnd, time: u64) {
        if self.trace.phases.len() < EVENT_LIMIT {
            self.trace.phases.push(Phase { block: self.first + u64::from(rank), end, time });
        }
    }

    /// The trace, when all warps have ended.
    pub(crate) fn finish(mut self) -> Trace {
        (0..self.open.len()).for_each(|agent| self.close(agent));
        self.trace.requests = self.requests.into_values().collect();
        self.trace.events.sort_by_key(|e| (e.block, e.track, e.start));
        self.trace
    }
}
