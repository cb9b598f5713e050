//! The sink: collects findings and counts of blocks, and makes one report of them.

use std::collections::BTreeMap;

use tilewright_machine::{Memory, PrintLog, ProxyFence, TensorMemory as Shape};

use crate::clock::Agent;
use crate::context::Context;
use crate::decode::Nature;
use crate::findings::{Counts, Fault, Misuse, Party, RACE_LIMIT, Race, RaceKind, Traffic};
use crate::global::Range;
use crate::report::Report;
use crate::rule::Rule;
use crate::shadow::{ASYNC, Event};
use crate::suggest::{Side, suggestion};

/// Agent and statement of an action.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site {
    /// Index into the program's statements.
    pub statement: u32,
    pub origin: u32,
    /// The block in its cluster.
    pub rank: u32,
    /// The thread in its block.
    pub thread: u32,
    /// The warp in the cluster.
    pub agent: Agent,
    /// True if the lanes of the warp act together.
    pub collective: bool,
}

impl Site {
    /// The lanes that act.
    pub(crate) fn lanes(&self) -> u32 {
        if self.collective { u32::MAX } else { 1 << (self.thread % 32) }
    }
}

/// Kind of a wrong access.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    OutOfBounds,
    Misaligned,
    Uninitialised,
    /// A register is read that nothing has written.
    Unwritten,
}

/// Place of a race.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Of a block of the cluster, at an offset of its window.
    Shared(u32, u32),
    /// In a buffer, at an offset.
    Global(u32, u64),
    /// In the tensor memory of a block of the cluster, at an offset: the number of the cell, from the first column of the block's on, times four.
    Tensor(u32, u32),
}

impl Place {
    /// The fence after which the asynchronous proxy sees there what a thread of a block of the cluster did.
    fn fence(self, rank: u32) -> ProxyFence {
        match self {
            Place::Global(..) | Place::Tensor(..) => ProxyFence::Global,
            Place::Shared(own, _) if own == rank => ProxyFence::Shared,
            Place::Shared(..) => ProxyFence::SharedCluster,
        }
    }
}

/// An access that went wrong: `address` is an offset in the block's window, or a global address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wrong {
    pub kind: FaultKind,
    pub memory: Memory,
    pub address: i64,
    pub bytes: u32,
    pub write: bool,
}

/// One side of a race: index into the program's statements, block, rank, thread, whether it writes, whether it is asynchronous.
type Who = (u32, [u32; 3], u32, u32, bool, bool);

/// The number of the first tensor in tensor memory, behind those of all shared buffers.
const TENSORS: usize = usize::MAX / 2;

/// Origins (smaller first), whether in global memory, buffer, kind.
type RaceKey = (u32, u32, bool, usize, RaceKind);

/// The findings of one block, or of several.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub instructions: u64,
    pub mma_count: u64,
    pub wgmma_count: u64,
    pub tma_bytes: u64,
    /// By statement.
    pub counts: Vec<Counts>,
    /// The first of what blocks print.
    pub printed: PrintLog,
    /// By kind, statement, and whether it writes: an asynchronous copy does both.
    faults: BTreeMap<(FaultKind, u32, bool), Fault>,
    /// By statement, origin and rule.
    misuses: BTreeMap<(u32, u32, Rule), Misuse>,
    races: BTreeMap<RaceKey, (Race, u64)>,
    /// The number of the current access, by which races are counted once an access.
    serial: u64,
    /// The last access that read what nothing had written.
    uninitialised: u64,
}

impl Sink {
    pub(crate) fn new(statements: usize) -> Self {
        Sink { counts: vec![Counts::default(); statements], ..Sink::default() }
    }

    /// Says that another access begins.
    pub(crate) fn next_access(&mut self) {
        self.serial += 1;
    }

    pub(crate) fn fault(&mut self, context: &Context<'_>, block: [u32; 3], site: &Site, wrong: Wrong) {
        let key = (wrong.kind, site.statement, wrong.write);
        let fault = self.faults.entry(key).or_insert_with(|| {
            let (buffer, offset, size) = match wrong.memory {
                Memory::Shared => context.describe_shared(site.origin, wrong.address),
                memory => context.describe(memory, wrong.address),
            };
            Fault {
                origin: context.program.origin(site.origin),
                position: context.program.position(site.origin),
                instruction: context.program.statements.get(site.statement as usize).map_or("", |s| s.name),
                memory: match wrong.memory {
                    Memory::Shared => "shared",
                    Memory::Global => "global",
                    Memory::Tensor => "tensor",
                    Memory::Register => "register",
                },
                buffer,
                offset,
                bytes: wrong.bytes,
                size,
                write: wrong.write,
                thread: site.thread,
                block,
                rank: site.rank,
                count: 0,
            }
        });
        fault.count += 1;
    }

    pub(crate) fn misuse(
        &mut self,
        context: &Context<'_>,
        block: [u32; 3],
        site: &Site,
        rule: Rule,
        message: impl FnOnce() -> String,
    ) {
        let key = (site.statement, site.origin, rule);
        let misuse = self.misuses.entry(key).or_insert_with(|| {
            let statement = context.program.statements.get(site.statement as usize);
            Misuse {
                origin: context.program.origin(site.origin),
                position: context.program.position(site.origin),
                instruction: statement.map_or("", |s| s.name).to_string(),
                rule,
                message: message(),
                thread: site.thread,
                block,
                rank: site.rank,
                count: 0,
            }
        });
        misuse.count += 1;
    }

    /// Takes an event of the shadow of shared memory, that of a block's. `first` is the first block of the cluster.
    pub(crate) fn event(
        &mut self,
        context: &Context<'_>,
        first: [u32; 3],
        (site, memory): (&Site, u32),
        (bytes, write, asynchronous): (u32, bool, bool),
        event: Event,
    ) {
        match event {
            Event::Uninitialised { offset } => {
                // One count an access, not one a byte.
                if context.config.check_uninitialised && self.uninitialised != self.serial {
                    self.uninitialised = self.serial;
                    let kind = FaultKind::Uninitialised;
                    let wrong = Wrong { kind, memory: Memory::Shared, address: offset.into(), bytes, write };
                    self.fault(context, context.block_behind(first, site.rank), site, wrong);
                }
            }
            Event::Race { offset, .. } if context.config.check_races => {
                self.raced(context, first, site, (write, asynchronous), event, Place::Shared(memory, offset));
            }
            Event::Race { .. } => {}
        }
    }

    /// Takes an event of the shadow of a block's tensor memory, whose columns begin at `base`.
    pub(crate) fn tensor_event(
        &mut self,
        context: &Context<'_>,
        first: [u32; 3],
        site: &Site,
        (base, write): (u32, bool),
        event: Event,
    ) {
        let cell = |offset: u32| {
            let (lane, column) = (offset / 4 / Shape::COLUMNS, offset / 4 % Shape::COLUMNS);
            4 * (lane + Shape::LANES as u32 * column.saturating_sub(base))
        };
        match event {
            Event::Uninitialised { offset } => {
                if context.config.check_uninitialised && self.uninitialised != self.serial {
                    self.uninitialised = self.serial;
                    let (kind, address) = (FaultKind::Uninitialised, i64::from(cell(offset)));
                    let wrong = Wrong { kind, memory: Memory::Tensor, address, bytes: 4, write };
                    self.fault(context, context.block_behind(first, site.rank), site, wrong);
                }
            }
            Event::Race { offset, .. } if context.config.check_races => {
                self.raced(
                    context,
                    first,
                    site,
                    (write, true),
                    event,
                    Place::Tensor(site.rank, cell(offset)),
                );
            }
            Event::Race { .. } => {}
        }
    }

    /// Takes a race that a shadow has found.
    pub(crate) fn raced(
        &mut self,
        context: &Context<'_>,
        first: [u32; 3],
        site: &Site,
        (write, asynchronous): (bool, bool),
        event: Event,
        place: Place,
    ) {
        let Event::Race { kind, first: access, first_writes, .. } = event else { return };
        let block = |rank: u32| context.block_behind(first, rank);
        let rank = u32::from(access.rank);
        let thread = u32::from(access.thread);
        let first = (access.statement, block(rank), rank, thread, first_writes, access.is(ASYNC));
        let second = (site.statement, block(site.rank), site.rank, site.thread, write, asynchronous);
        let serial = self.serial;
        self.race(context, kind, place, (first, second), serial);
    }

    /// Takes a race on global memory between two clusters, given by their first blocks, at an offset of the buffer.
    pub(crate) fn raced_between(
        &mut self,
        context: &Context<'_>,
        first: ([u32; 3], Range),
        second: ([u32; 3], Range),
        offset: u64,
    ) {
        let who = |(block, range): ([u32; 3], Range)| -> Who {
            let rank = u32::from(range.rank);
            let block = context.block_behind(block, rank);
            let writes = range.touch.writes();
            (range.statement, block, rank, u32::from(range.thread), writes, range.asynchronous)
        };
        let both = first.1.touch.writes() && second.1.touch.writes();
        let kind = if both { RaceKind::WriteWrite } else { RaceKind::ReadWrite };
        self.serial += 1;
        let (place, serial) = (Place::Global(second.1.buffer, offset), self.serial);
        self.race(context, kind, place, (who(first), who(second)), serial);
    }

    fn race(
        &mut self,
        context: &Context<'_>,
        kind: RaceKind,
        place: Place,
        (first, second): (Who, Who),
        now: u64,
    ) {
        let program = &context.program;
        let statement = |who: Who| program.statements.get(who.0 as usize);
        let origin = |who: Who| statement(who).map_or(0, |s| s.origin);
        let (a, b) = (origin(first), origin(second));
        let (global, buffer) = match place {
            Place::Shared(_, offset) => (false, context.owners.of(b, offset).unwrap_or(usize::MAX)),
            Place::Global(buffer, _) => (true, buffer as usize),
            Place::Tensor(_, offset) => {
                let column = offset / 4 / Shape::LANES as u32;
                (false, TENSORS + program.tensor_at(column).unwrap_or_default())
            }
        };
        let key = (a.min(b), a.max(b), global, buffer, kind);
        if self.races.len() >= RACE_LIMIT && !self.races.contains_key(&key) {
            return;
        }
        let (race, serial) = self.races.entry(key).or_insert_with(|| {
            let (buffer, offset) = match place {
                Place::Shared(_, offset) => {
                    let (name, offset, _) = context.describe_shared(b, i64::from(offset));
                    (name, offset as u64)
                }
                Place::Global(buffer, offset) => (context.name(buffer), offset),
                Place::Tensor(_, offset) => {
                    let (name, offset, _) = context.describe(Memory::Tensor, i64::from(offset));
                    (name, offset as u64)
                }
            };
            let party = |who: Who| Party {
                origin: program.origin(origin(who)),
                position: program.position(origin(who)),
                instruction: statement(who).map_or(String::new(), |s| s.name.to_string()),
                block: who.1,
                rank: who.2 % program.function.cluster,
                thread: who.3,
                write: who.4,
                asynchronous: who.5,
            };
            let side = |who: Who| Side {
                nature: statement(who).map_or(Nature::Ordinary, |s| s.nature),
                write: who.4,
                block: who.1,
                thread: who.3,
            };
            let unfenced = matches!(kind, RaceKind::MissingProxyFence | RaceKind::ReadWithoutProxyFence);
            let fence = unfenced.then(|| place.fence(first.2).spelling());
            let race = Race {
                kind,
                fence,
                memory: match place {
                    Place::Global(..) => "global",
                    Place::Shared(..) => "shared",
                    Place::Tensor(..) => "tensor",
                },
                buffer,
                offset,
                first: party(first),
                second: party(second),
                suggestion: suggestion(context, kind, global, fence, (side(first), side(second))),
                block: second.1,
                count: 0,
            };
            (race, 0)
        });
        if *serial != now {
            *serial = now;
            race.count += 1;
        }
    }

    /// Adds the findings of a later block.
    pub(crate) fn merge(&mut self, other: Sink) {
        self.instructions += other.instructions;
        self.mma_count += other.mma_count;
        self.wgmma_count += other.wgmma_count;
        self.tma_bytes += other.tma_bytes;
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            mine.add(theirs);
        }
        self.printed.merge(other.printed);
        for (key, fault) in other.faults {
            if let Some(mine) = self.faults.get_mut(&key) {
                mine.count += fault.count;
            } else {
                self.faults.insert(key, fault);
            }
        }
        for (key, misuse) in other.misuses {
            if let Some(mine) = self.misuses.get_mut(&key) {
                mine.count += misuse.count;
            } else {
                self.misuses.insert(key, misuse);
            }
        }
        for (key, (race, serial)) in other.races {
            if let Some((mine, _)) = self.races.get_mut(&key) {
                mine.count += race.count;
            } else if self.races.len() < RACE_LIMIT {
                self.races.insert(key, (race, serial));
            }
        }
    }

    /// The report of all blocks, but for what is known only of the launch.
    pub(crate) fn report(self, context: &Context<'_>) -> Report {
        let mut report = Report {
            instructions: self.instructions,
            mma_count: self.mma_count,
            wgmma_count: self.wgmma_count,
            tma_bytes: self.tma_bytes,
            protocol: self.misuses.into_values().collect(),
            printed: self.printed,
            ..Report::default()
        };
        for (statement, counts) in context.program.statements.iter().zip(self.counts) {
            report.shared_requests += counts.shared_requests;
            report.shared_wavefronts += counts.shared_wavefronts;
            report.shared_conflicts += counts.conflicts();
            report.global_requests += counts.global_requests;
            report.global_sectors += counts.global_sectors;
            report.global_bytes += counts.global_bytes;
            if counts != Counts::default() {
                let origin = context.program.origin(statement.origin);
                report.traffic.push(Traffic { origin, instruction: statement.name, counts });
            }
        }
        for ((kind, _, _), fault) in self.faults {
            match kind {
                FaultKind::OutOfBounds => report.out_of_bounds.push(fault),
                FaultKind::Misaligned => report.misaligned.push(fault),
                FaultKind::Uninitialised | FaultKind::Unwritten => report.uninitialised.push(fault),
            }
        }
        report.races = self.races.into_values().map(|(race, _)| race).collect();
        report
    }
}
