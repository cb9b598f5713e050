//! Findings and counts: what is wrong with an access, and what instructions cost.

use std::fmt;

use serde::Serialize;
use tilewright_machine::Memory;
use tilewright_simt::Position;

use crate::rule::Rule;

/// Most distinct races that a report lists.
pub const RACE_LIMIT: usize = 64;

/// A statement, with the call in Rust that made it, if one did.
fn statement(origin: &str, position: Option<Position>) -> String {
    match position {
        Some(Position::Rust(location)) => format!("`{origin}` ({location})"),
        Some(Position::Text(_)) | None => format!("`{origin}`"),
    }
}

/// The kind of a race.
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
    /// A byte that a thread writes is accessed by an asynchronous engine after a barrier, with no proxy fence between.
    MissingProxyFence,
    /// A byte that a thread reads is overwritten by an asynchronous engine after a barrier, with no proxy fence between.
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
    /// True if it writes.
    pub write: bool,
    /// True if it is an asynchronous operation that the thread has started.
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
    /// Synchronisation that would order them.
    pub suggestion: String,
    /// A block in which it was found: that of the second access.
    pub block: [u32; 3],
    /// Second accesses (of one thread in one instruction) that were in such a race; between clusters, ranges of bytes.
    pub count: u64,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Race {
    fn describe(&self) -> String {
        let Race { memory, buffer, offset, first, second, block, count, suggestion, .. } = self;
        let does = |p: &Party| if p.write { "writes" } else { "reads" };
        let of = |p: &Party| statement(&p.origin, p.position);
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
    /// True if it writes.
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
        f.write_str(&self.describe())
    }
}

impl Fault {
    fn describe(&self) -> String {
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
        let of = statement(&self.origin, self.position);
        format!("`{instruction}` in {of}: thread {thread} {what} (block {block:?}, {count} times)")
    }
}

/// Misuse of an mbarrier, an asynchronous engine or registers, with the first case as an example.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Misuse {
    /// The tile statement.
    pub origin: String,
    /// Its position in the source.
    pub position: Option<Position>,
    /// The instruction.
    pub instruction: String,
    /// The rule.
    pub rule: Rule,
    /// The fault.
    pub message: String,
    /// The thread in its block.
    pub thread: u32,
    /// The block.
    pub block: [u32; 3],
    /// The block's rank in its cluster.
    pub rank: u32,
    /// Number of occurrences.
    pub count: u64,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}

impl Misuse {
    fn describe(&self) -> String {
        let Misuse { instruction, message, thread, block, count, .. } = self;
        let of = statement(&self.origin, self.position);
        format!("`{instruction}` in {of}: thread {thread}: {message} (block {block:?}, {count} times)")
    }
}

/// Everything wrong that a run has found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// Races.
    pub races: Vec<Race>,
    /// Accesses out of bounds.
    pub out_of_bounds: Vec<Fault>,
    /// Accesses not aligned to their size.
    pub misaligned: Vec<Fault>,
    /// Reads of what nothing had written.
    pub uninitialised: Vec<Fault>,
    /// Misuse of mbarriers, asynchronous engines and the registers that they own.
    pub protocol: Vec<Misuse>,
}

impl Findings {
    /// True if there is none.
    pub fn is_clean(&self) -> bool {
        self.races.is_empty()
            && self.out_of_bounds.is_empty()
            && self.misaligned.is_empty()
            && self.uninitialised.is_empty()
            && self.protocol.is_empty()
    }

    /// One sentence each.
    pub fn problems(&self) -> Vec<String> {
        let kinds = [
            ("out of bounds", &self.out_of_bounds),
            ("misaligned", &self.misaligned),
            ("uninitialised", &self.uninitialised),
        ];
        let faults =
            kinds.into_iter().flat_map(|(what, list)| list.iter().map(move |f| format!("{what}: {f}")));
        let races = self.races.iter().map(ToString::to_string);
        races.chain(faults).chain(self.protocol.iter().map(ToString::to_string)).collect()
    }
}

/// Memory traffic of one instruction row in one tile statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Traffic {
    /// The tile statement.
    pub origin: String,
    /// The instruction row's name.
    pub instruction: &'static str,
    /// Bytes moved, and requests.
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

/// The kind of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Arithmetic, addresses, branches and loops.
    Scalar,
    /// Loads, stores, copies and shuffles.
    Memory,
    /// Matrix products.
    Tensor,
    /// Barriers, mbarriers, fences and waits.
    Barrier,
}

/// Bytes by the memories that they come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Bytes {
    /// Read from global memory, tensor and bulk copies not included.
    pub global_read: u64,
    /// Written to global memory, tensor and bulk copies not included.
    pub global_written: u64,
    /// Read from shared memory, by warps and by products of warpgroups.
    pub shared_read: u64,
    /// Written to shared memory by warps and their asynchronous copies.
    pub shared_written: u64,
    /// Moved into shared memory by tensor and bulk copies, once for each request.
    pub unit_read: u64,
    /// Moved out of shared memory by tensor and bulk copies.
    pub unit_written: u64,
}

impl Bytes {
    /// Adds others.
    pub fn add(&mut self, other: &Bytes) {
        self.global_read += other.global_read;
        self.global_written += other.global_written;
        self.shared_read += other.shared_read;
        self.shared_written += other.shared_written;
        self.unit_read += other.unit_read;
        self.unit_written += other.unit_written;
    }
}

/// The memories that an instruction's bytes come from and go to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    Nowhere,
    Load(Memory),
    Store(Memory),
    /// From global to shared memory by a thread.
    Async,
    UnitLoad,
    UnitStore,
    /// From shared memory into a product: bytes a warp instruction.
    Product(u64),
}

/// The instructions of a statement that are counted together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub origin: u32,
    pub name: &'static str,
    pub class: Class,
    pub flow: Flow,
}

impl Row {
    pub(crate) fn bytes(&self, calls: u64, counts: &Counts) -> Bytes {
        let (global, shared) = (counts.global_bytes, counts.shared_bytes);
        let none = Bytes::default();
        match self.flow {
            Flow::Nowhere => none,
            Flow::Load(Memory::Shared) => Bytes { shared_read: shared, ..none },
            Flow::Load(_) => Bytes { global_read: global, shared_read: shared, ..none },
            Flow::Store(Memory::Shared) => Bytes { shared_written: shared, ..none },
            Flow::Store(_) => Bytes { global_written: global, ..none },
            Flow::Async => Bytes { global_read: global, shared_written: shared, ..none },
            Flow::UnitLoad => Bytes { unit_read: global, ..none },
            Flow::UnitStore => Bytes { unit_written: global, ..none },
            Flow::Product(bytes) => Bytes { shared_read: calls * bytes, ..none },
        }
    }
}
