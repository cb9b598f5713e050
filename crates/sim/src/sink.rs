//! What a block finds and counts while it runs, and how the findings of all blocks become one report.

use std::collections::BTreeMap;

use tilewright_machine::Memory;

use crate::clock::Agent;
use crate::context::Context;
use crate::report::{Counts, Fault, Misuse, Party, RACE_LIMIT, Race, RaceKind, Report, Traffic};
use crate::shadow::Event;

/// Who does something, where in the program.
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
    /// Whether the lanes of the warp act together.
    pub collective: bool,
}

impl Site {
    /// The lanes that act.
    pub(crate) fn lanes(&self) -> u32 {
        if self.collective { u32::MAX } else { 1 << (self.thread % 32) }
    }
}

/// Which rule is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Rule {
    /// An mbarrier is initialised where one is.
    Again,
    /// What begins at an address needs another alignment.
    Alignment,
    /// More arrivals than a phase has.
    Arrivals,
    /// An mbarrier's bytes are not for ordinary accesses, and nothing else is an mbarrier.
    Barrier,
    /// A count of bytes is wrong.
    Bytes,
    /// The threads of a warpgroup or of a barrier do not agree.
    Disagree,
    /// What has ended is used.
    Ended,
    /// Registers are written before a product without a fence.
    Fence,
    /// Registers are used while a product owns them.
    Owned,
    /// A wait names neither phase.
    Parity,
    /// An address is not where it has to be.
    Place,
    /// A thread's number of registers is wrong.
    Registers,
    /// An mbarrier's initialisation was not made visible.
    Visible,
}

/// How an access goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum FaultKind {
    OutOfBounds,
    Misaligned,
    Uninitialised,
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

/// Origins (smaller first), buffer, kind.
type RaceKey = (u32, u32, usize, RaceKind);

/// The findings of one block, or of several.
#[derive(Debug, Default)]
pub(crate) struct Sink {
    pub instructions: u64,
    pub mma_count: u64,
    pub wgmma_count: u64,
    pub tma_bytes: u64,
    /// By statement.
    pub counts: Vec<Counts>,
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
            let (buffer, offset, size) = context.describe(wrong.memory, wrong.address);
            Fault {
                origin: context.program.origin(site.origin),
                instruction: context.program.statements.get(site.statement as usize).map_or("", |s| s.name),
                memory: if wrong.memory == Memory::Shared { "shared" } else { "global" },
                buffer,
                offset,
                bytes: wrong.bytes,
                size,
                write: wrong.write,
                thread: site.thread,
                block,
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
                instruction: statement.map_or("a register", |s| s.name).to_string(),
                message: message(),
                thread: site.thread,
                block,
                count: 0,
            }
        });
        misuse.count += 1;
    }

    /// Takes an event of the shadow.
    pub(crate) fn event(
        &mut self,
        context: &Context<'_>,
        block: [u32; 3],
        site: &Site,
        bytes: u32,
        write: bool,
        event: Event,
    ) {
        match event {
            Event::Uninitialised { offset } => {
                // One count an access, not one a byte.
                if context.config.check_uninitialised && self.uninitialised != self.serial {
                    self.uninitialised = self.serial;
                    let address = i64::from(offset);
                    let kind = FaultKind::Uninitialised;
                    self.fault(
                        context,
                        block,
                        site,
                        Wrong { kind, memory: Memory::Shared, address, bytes, write },
                    );
                }
            }
            Event::Race { kind, first, first_writes, offset } => {
                if !context.config.check_races {
                    return;
                }
                let buffer = context.owners.find(offset, 1).unwrap_or(usize::MAX);
                let (a, b) = (first.origin, site.origin);
                let key = (a.min(b), a.max(b), buffer, kind);
                if self.races.len() >= RACE_LIMIT && !self.races.contains_key(&key) {
                    return;
                }
                let (race, serial) = self.races.entry(key).or_insert_with(|| {
                    let (buffer, offset, _) = context.describe(Memory::Shared, i64::from(offset));
                    let party = |origin, thread, write| Party {
                        origin: context.program.origin(origin),
                        thread,
                        write,
                    };
                    let first = party(first.origin, u32::from(first.thread), first_writes);
                    let second = party(site.origin, site.thread, write);
                    (Race { kind, buffer, offset: offset as u32, first, second, block, count: 0 }, 0)
                });
                if *serial != self.serial {
                    *serial = self.serial;
                    race.count += 1;
                }
            }
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
                FaultKind::Uninitialised => report.uninitialised.push(fault),
            }
        }
        report.races = self.races.into_values().map(|(race, _)| race).collect();
        report
    }
}
