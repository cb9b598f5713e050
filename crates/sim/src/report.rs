//! What a run found and counted.

use std::fmt;

use serde::Serialize;
use tilewright_simt::Position;

use crate::profile::Profile;
use crate::trace::Trace;

/// Most distinct races that a report lists.
pub const RACE_LIMIT: usize = 64;

/// The outcome of a [`run`](crate::run).
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Report {
    /// Blocks executed.
    pub blocks: u64,
    /// Warps executed.
    pub warps: u64,
    /// Warp instructions executed, branches and loop rounds included.
    pub instructions: u64,
    /// Races on shared and global memory, one for each pair of statements, buffer and kind; at most [`RACE_LIMIT`].
    pub races: Vec<Race>,
    /// Accesses out of bounds, one entry an instruction: reads gave 0, writes were dropped.
    pub out_of_bounds: Vec<Fault>,
    /// Accesses not aligned to their size, one entry an instruction: reads gave 0, writes were dropped.
    pub misaligned: Vec<Fault>,
    /// Reads of shared bytes and of registers that nothing had written, one entry an instruction and memory.
    pub uninitialised: Vec<Fault>,
    /// What was done wrong to mbarriers, asynchronous units and the registers that they own, one entry a statement and rule.
    pub protocol: Vec<Misuse>,
    /// Warp requests to shared memory, asynchronous copies' writes included.
    pub shared_requests: u64,
    /// Wavefronts they took.
    pub shared_wavefronts: u64,
    /// Wavefronts beyond what they need without bank conflicts.
    pub shared_conflicts: u64,
    /// Warp requests to global memory.
    pub global_requests: u64,
    /// 32-byte sectors they touched, each counted once a request.
    pub global_sectors: u64,
    /// Bytes that lanes asked global memory for.
    pub global_bytes: u64,
    /// The same counts by tile statement and instruction, in program order.
    pub traffic: Vec<Traffic>,
    /// Matrix products executed (warp instructions).
    pub mma_count: u64,
    /// Matrix products of warpgroups executed.
    pub wgmma_count: u64,
    /// Bytes that tensor and bulk copies moved.
    pub tma_bytes: u64,
    /// What each instruction of each tile statement cost, in program order; empty without [`Config::profile`](crate::Config::profile).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<Profile>,
    /// The execution of the cluster that was to be traced.
    #[serde(skip)]
    pub trace: Option<Trace>,
    /// An estimate of the kernel's duration in cycles; the model is described in the crate's documentation.
    pub estimated_cycles: u64,
}

impl Report {
    /// Whether nothing wrong was found: no race, no misuse, nothing out of bounds, misaligned or uninitialised.
    pub fn is_clean(&self) -> bool {
        self.races.is_empty()
            && self.out_of_bounds.is_empty()
            && self.misaligned.is_empty()
            && self.uninitialised.is_empty()
            && self.protocol.is_empty()
    }

    /// Everything wrong that was found, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        self.problems_at(&nowhere)
    }

    /// The same, with what `place` makes of each position (a byte offset in the source text) behind the statement.
    pub fn problems_at(&self, place: &dyn Fn(u32) -> String) -> Vec<String> {
        let races = self.races.iter().map(|r| r.describe(place));
        let kinds = [
            ("out of bounds", &self.out_of_bounds),
            ("misaligned", &self.misaligned),
            ("uninitialised", &self.uninitialised),
        ];
        let faults = kinds
            .into_iter()
            .flat_map(|(what, list)| list.iter().map(move |f| format!("{what}: {}", f.describe(place))));
        races.chain(faults).chain(self.protocol.iter().map(|m| m.describe(place))).collect()
    }
}

/// A statement with its place: "`copy(a, b)` (line 3)", or that of the call in Rust that made it.
fn statement(origin: &str, position: Option<Position>, place: &dyn Fn(u32) -> String) -> String {
    let place = position.map(|position| match position {
        Position::Text(byte) => place(byte),
        Position::Rust(location) => location.to_string(),
    });
    match place {
        Some(place) if !place.is_empty() => format!("`{origin}` ({place})"),
        _ => format!("`{origin}`"),
    }
}

fn nowhere(_: u32) -> String {
    String::new()
}

/// What kind of race two accesses are in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RaceKind {
    /// Two threads write the same byte with no barrier between.
    WriteWrite,
    /// One thread reads and another writes the same byte with no barrier between.
    ReadWrite,
    /// A byte is accessed after the issue of an asynchronous copy into it, with no wait that completes the copy between.
    AsyncPending,
    /// A byte is written after the issue of an asynchronous operation that reads it, with no wait that completes it between.
    AsyncRead,
    /// A byte that a thread writes is accessed by an asynchronous unit after a barrier, with no proxy fence between.
    MissingProxyFence,
    /// A byte that a thread reads is overwritten by an asynchronous unit after a barrier, with no proxy fence between.
    ReadWithoutProxyFence,
}

/// One side of a race.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Party {
    /// The tile statement.
    pub origin: String,
    /// Its position in the source.
    pub position: Option<Position>,
    /// The thread-level instruction: its row's name.
    pub instruction: String,
    /// The thread in its block; of a matrix instruction, the one whose address names the row.
    pub thread: u32,
    /// The block.
    pub block: [u32; 3],
    /// The block's rank in its cluster.
    pub rank: u32,
    /// Whether it writes.
    pub write: bool,
    /// Whether it is an asynchronous operation that the thread has started.
    pub asynchronous: bool,
}

/// Two unordered accesses to the same bytes, at least one of which writes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Race {
    /// The kind.
    pub kind: RaceKind,
    /// `shared` or `global`.
    pub memory: &'static str,
    /// The shared buffer, or the parameter that the global one was passed to.
    pub buffer: String,
    /// A byte in the buffer for which it was found.
    pub offset: u64,
    /// The access that was simulated first; for [`RaceKind::AsyncPending`], the copy.
    pub first: Party,
    /// The access that was simulated second.
    pub second: Party,
    /// The proxy fence that is missing between them, if that is what is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fence: Option<&'static str>,
    /// What would order them.
    pub suggestion: String,
    /// A block in which it was found: that of the second access.
    pub block: [u32; 3],
    /// Second accesses (of one thread in one instruction) that were in such a race; between clusters, ranges of bytes.
    pub count: u64,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&nowhere))
    }
}

impl Race {
    fn describe(&self, place: &dyn Fn(u32) -> String) -> String {
        let Race { memory, buffer, offset, first, second, block, count, suggestion, .. } = self;
        let does = |p: &Party| if p.write { "writes" } else { "reads" };
        let of = |p: &Party| statement(&p.origin, p.position, place);
        let thread = |p: &Party| {
            let of = match first.block == second.block {
                true => String::new(),
                false if first.rank == second.rank => format!(" of block {:?}", p.block),
                false => format!(" of block {:?} (rank {})", p.block, p.rank),
            };
            format!("thread {}{of}", p.thread)
        };
        let acts = |p: &Party| {
            let who = if p.asynchronous { "the asynchronous operation of " } else { "" };
            format!("{who}{} {} (`{}`) in {}", thread(p), does(p), p.instruction, of(p))
        };
        let started = |p: &Party| format!("{} (`{}`) in {}", thread(p), p.instruction, of(p));
        let (a, b) = (of(first), acts(second));
        let what = match self.kind {
            RaceKind::AsyncPending => format!(
                "{b} while the asynchronous copy of {} is in flight (no wait covers it yet)",
                started(first)
            ),
            RaceKind::AsyncRead => format!(
                "{b} while the asynchronous operation of {} may still read it (no wait covers it yet)",
                started(first)
            ),
            RaceKind::MissingProxyFence | RaceKind::ReadWithoutProxyFence => format!(
                "{} {} (`{}`) in {a}, and the asynchronous operation of {} {} it; the {} thread needs {} between",
                thread(first),
                does(first),
                first.instruction,
                started(second),
                if second.write { "overwrites" } else { "reads" },
                if first.write { "writing" } else { "reading" },
                self.fence.unwrap_or("a proxy fence"),
            ),
            _ => format!("{} and {b} with no barrier between", acts(first)),
        };
        format!(
            "race on {memory} `{buffer}` byte {offset}: {what} (block {block:?}, {count} times): {suggestion}"
        )
    }
}

/// Accesses of one instruction that went wrong in one way, with the first as an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Fault {
    /// The tile statement.
    pub origin: String,
    /// Its position in the source.
    pub position: Option<Position>,
    /// The instruction row's name.
    pub instruction: &'static str,
    /// `shared`, `global` or `register`.
    pub memory: &'static str,
    /// The buffer: the name of a shared one, of the parameter that a global one was passed to, or of the tensor in registers; empty
    /// where the address lies in none.
    pub buffer: String,
    /// The byte offset in the buffer, or the address where there is none; of registers, which one.
    pub offset: i64,
    /// Bytes accessed.
    pub bytes: u32,
    /// Size of the buffer, 0 where there is none; of registers, how many.
    pub size: u64,
    /// Whether it writes.
    pub write: bool,
    /// The thread in its block.
    pub thread: u32,
    /// The block.
    pub block: [u32; 3],
    /// The block's rank in its cluster.
    pub rank: u32,
    /// Accesses (of one thread in one instruction) that went wrong so.
    pub count: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&nowhere))
    }
}

impl Fault {
    fn describe(&self, place: &dyn Fn(u32) -> String) -> String {
        let Fault { instruction, thread, bytes, buffer, memory, offset, size, block, count, .. } = self;
        let does = if self.write { "writes" } else { "reads" };
        let what = match (*memory, buffer.as_str()) {
            ("register", _) => {
                format!(
                    "reads a register of `{buffer}` that nothing has written (register {offset} of {size})"
                )
            }
            (_, "") => {
                format!("{does} {bytes} bytes at {memory} address {offset:#x}, which lies in no buffer")
            }
            _ => format!(
                "{does} {bytes} bytes at offset {offset} of {memory} buffer `{buffer}` ({size} bytes)"
            ),
        };
        let of = statement(&self.origin, self.position, place);
        format!("`{instruction}` in {of}: thread {thread} {what} (block {block:?}, {count} times)")
    }
}

/// What a statement does wrong to an mbarrier, an asynchronous unit or registers, with the first case as an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Misuse {
    /// The tile statement.
    pub origin: String,
    /// Its position in the source.
    pub position: Option<Position>,
    /// The instruction.
    pub instruction: String,
    /// What is wrong.
    pub message: String,
    /// The thread in its block.
    pub thread: u32,
    /// The block.
    pub block: [u32; 3],
    /// The block's rank in its cluster.
    pub rank: u32,
    /// How often.
    pub count: u64,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe(&nowhere))
    }
}

impl Misuse {
    fn describe(&self, place: &dyn Fn(u32) -> String) -> String {
        let Misuse { instruction, message, thread, block, count, .. } = self;
        let of = statement(&self.origin, self.position, place);
        format!("`{instruction}` in {of}: thread {thread}: {message} (block {block:?}, {count} times)")
    }
}

/// Memory traffic of one instruction row in one tile statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Traffic {
    /// The tile statement.
    pub origin: String,
    /// The instruction row's name.
    pub instruction: &'static str,
    /// What it moved and what that took.
    #[serde(flatten)]
    pub counts: Counts,
}

/// Requests of warps and what they took.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Requests to shared memory.
    pub shared_requests: u64,
    /// Wavefronts they took.
    pub shared_wavefronts: u64,
    /// Wavefronts they need without bank conflicts.
    pub shared_ideal: u64,
    /// Bytes that lanes asked shared memory for.
    pub shared_bytes: u64,
    /// Requests to global memory.
    pub global_requests: u64,
    /// Sectors they touched.
    pub global_sectors: u64,
    /// Sectors that would hold what they asked for, at most as many as they touched.
    pub global_ideal: u64,
    /// Bytes that lanes asked for.
    pub global_bytes: u64,
}

impl Counts {
    /// Wavefronts beyond the ideal.
    pub fn conflicts(&self) -> u64 {
        self.shared_wavefronts - self.shared_ideal
    }

    pub(crate) fn add(&mut self, other: &Counts) {
        self.shared_requests += other.shared_requests;
        self.shared_wavefronts += other.shared_wavefronts;
        self.shared_ideal += other.shared_ideal;
        self.shared_bytes += other.shared_bytes;
        self.global_requests += other.global_requests;
        self.global_sectors += other.global_sectors;
        self.global_ideal += other.global_ideal;
        self.global_bytes += other.global_bytes;
    }
}
