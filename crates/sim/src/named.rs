//! Named barriers of a block: `bar.sync` and `bar.arrive`.
//!
//! A phase of a barrier ends when as many threads have come to it as they say. Those that wait go on then, and know what all that came knew;
//! those that only arrive do not wait, and learn nothing. Which phase an arrival counts for must not depend on the order of execution: a warp
//! comes again only when it knows that all have come for the phase before.

use std::collections::BTreeMap;

use crate::clock::{Event, HappensBefore, lanes};
use crate::cluster::Cluster;
use crate::decode::Slot;
use crate::error::SimError;
use crate::rule::Rule;
use crate::sink::Site;
use crate::warp::{State, Wait, Warp};

/// A warp that has come to a phase.
struct Coming {
    event: Event,
    site: Site,
    /// The threads that it says the phase takes.
    threads: u32,
    waits: bool,
}

/// A phase that has ended.
struct Ended {
    /// Warps that have not gone on.
    left: usize,
    known: HappensBefore,
    /// The cycle of the last arrival.
    time: u64,
}

/// A named barrier of a block.
#[derive(Default)]
pub(crate) struct NamedBarrier {
    /// Number of phases that have ended.
    phase: u32,
    /// The warps that have come to the next.
    here: Vec<Coming>,
    /// Knowledge of all of them.
    known: HappensBefore,
    /// Cycle of the last of them.
    time: u64,
    /// The warps that came to the last phase.
    last: Vec<Coming>,
    /// Phases that have ended, and for which not all warps that waited have gone on.
    ended: BTreeMap<u32, Ended>,
}

impl NamedBarrier {
    /// Threads that have come to the phase under way.
    pub(crate) fn threads(&self) -> u32 {
        32 * self.here.len() as u32
    }

    /// A warp that came to the last phase, and perhaps after one with this clock, which then counts for that phase.
    fn unordered(&self, event: &Event, clock: &HappensBefore) -> Option<Event> {
        let waited = |coming: &Coming| coming.waits && coming.event.agent == event.agent;
        if self.last.iter().any(waited) {
            return None;
        }
        self.last.iter().map(|coming| coming.event).find(|event| !clock.executed(event))
    }

    /// Ends the phase if as many threads have come; true if it did.
    fn advance(&mut self, threads: u32) -> bool {
        if self.threads() < threads {
            return false;
        }
        self.last = std::mem::take(&mut self.here);
        let left = self.last.iter().filter(|coming| coming.waits).count();
        let ended = Ended { left, known: std::mem::take(&mut self.known), time: self.time };
        if left > 0 {
            self.ended.insert(self.phase, ended);
        }
        self.phase += 1;
        true
    }
}

impl Warp {
    /// Waits at the barrier whose number a value says.
    pub(crate) fn barrier_sync(
        &mut self,
        cluster: &mut Cluster<'_>,
        (id, threads): (Slot, u32),
        at: (u32, u32),
    ) -> Result<(), SimError> {
        self.all_lanes(cluster, at.1)?;
        let numbers = self.values[id as usize];
        let first = lanes(self.live).next().map_or(0, |lane| numbers[lane] as u32);
        let site = self.together(at.0, at.1);
        if lanes(self.live).any(|lane| numbers[lane] as u32 != first) {
            cluster.misuse(&site, Rule::Disagree, || {
                "the lanes of a warp wait at different barriers".to_string()
            });
        }
        if !(1..=15).contains(&first) {
            cluster.misuse(&site, Rule::Barrier, || {
                format!("{first} is no barrier: they have numbers from 1 to 15")
            });
            return Ok(());
        }
        self.come(cluster, (first, threads), true, at);
        Ok(())
    }

    /// Comes to a named barrier, and waits there or goes on.
    pub(crate) fn come(
        &mut self,
        cluster: &mut Cluster<'_>,
        (id, threads): (u32, u32),
        waits: bool,
        (statement, origin): (u32, u32),
    ) {
        let site = self.together(statement, origin);
        let know = &mut cluster.know[self.agent as usize];
        let event = Event { agent: self.agent, time: know.time, lanes: self.live, origin };
        let mut clock = HappensBefore::default();
        if waits {
            know.meet_lanes();
            clock.join(know.everyone());
        } else {
            know.release(self.live, &mut clock);
        }
        let phase =
            cluster.come((self.rank, id), Coming { event, site, threads, waits }, &clock, self.timing.clock);
        if waits {
            self.state = State::Waiting(Wait::Named { id, threads, phase });
        }
    }

    /// Goes on if the phase of a named barrier has ended for which the warp waits.
    pub(crate) fn look_at_named(&mut self, cluster: &mut Cluster<'_>) {
        let State::Waiting(Wait::Named { id, phase, .. }) = self.state else { return };
        let Some(barrier) = cluster.named.get_mut(&(self.rank, id)) else { return };
        let Some(ended) = barrier.ended.get_mut(&phase) else { return };
        cluster.know[self.agent as usize].acquire(self.live, &ended.known);
        ended.left -= 1;
        let (left, time) = (ended.left, ended.time);
        if left == 0 {
            barrier.ended.remove(&phase);
        }
        self.resume(time);
    }
}

impl Cluster<'_> {
    /// A warp comes to a named barrier; the number of its phase.
    fn come(&mut self, key: (u32, u32), coming: Coming, clock: &HappensBefore, time: u64) -> u32 {
        let (site, id) = (coming.site, key.1);
        let barrier = self.named.entry(key).or_default();
        let other = barrier.here.iter().map(|other| other.threads).find(|other| *other != coming.threads);
        let twice = barrier.here.iter().any(|other| other.event.agent == coming.event.agent);
        let unordered = barrier.unordered(&coming.event, clock);
        if let Some(other) = other {
            let threads = coming.threads;
            self.misuse(&site, Rule::Disagree, || {
                format!("it comes to barrier {id} for {threads} threads, and others there for {other}")
            });
        }
        if twice {
            self.misuse(&site, Rule::Arrivals, || {
                format!("it comes to barrier {id} a second time before the others have come once")
            });
        } else if let Some(last) = unordered.filter(|_| self.context.config.check_races) {
            let origin = self.context.program.origin(last.origin);
            self.misuse(&site, Rule::Phase, || {
                format!(
                    "it may count for the phase before, since it is not ordered after an arrival of that phase (in `{origin}`): barrier {id}"
                )
            });
        }
        let Some(barrier) = self.named.get_mut(&key) else { return 0 };
        let (phase, threads) = (barrier.phase, coming.threads);
        barrier.known.join(clock);
        barrier.time = barrier.time.max(time);
        barrier.here.push(coming);
        self.changed |= barrier.advance(threads);
        phase
    }

    /// Reports the warps that came to a phase of a named barrier that never ended.
    pub(crate) fn report_arrivals(&mut self) {
        let open: Vec<(u32, u32, Site, u32)> = self
            .named
            .iter()
            .filter_map(|((_, id), barrier)| {
                let first = barrier.here.first()?;
                Some((*id, barrier.threads(), first.site, first.threads))
            })
            .collect();
        for (id, here, site, threads) in open {
            self.misuse(&site, Rule::Ended, || {
                format!("its block ends when {here} of {threads} threads have come to barrier {id}")
            });
        }
    }
}
