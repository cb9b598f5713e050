//! Mbarriers: their state, and what their phases order.

use crate::clock::{Agent, Event, HappensBefore};
use crate::shadow::Access;
use crate::sink::Site;

/// Most bytes that a phase may be waiting for, or have received too many of.
const BYTES_LIMIT: i64 = (1 << 20) - 1;

/// Most arrivals of a phase.
pub(crate) const ARRIVALS_LIMIT: u32 = (1 << 20) - 1;

/// An mbarrier.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    /// The unit of the copies that it counts; the time of their landing is the phase's.
    pub agent: Agent,
    /// Arrivals of a phase.
    count: u32,
    /// Arrivals outstanding.
    pub pending: u32,
    /// Bytes outstanding; negative where more have come than are expected.
    pub bytes: i64,
    /// Phases that have ended.
    pub phase: u32,
    /// Its initialisation.
    pub init: Access,
    /// True if its initialisation was made visible to peers and asynchronous engines.
    pub visible: bool,
    /// Vector clocks joined at this phase's arrivals: those that any wait acquires, and those that only one for the whole cluster does.
    current: [HappensBefore; 2],
    /// Vector clocks joined at the last phase's arrivals.
    done: [HappensBefore; 2],
    /// Cycles of the last arrival of this phase, and of that of the last phase.
    time: [u64; 2],
    /// Arrivals of this phase, and of the last.
    arrivals: [Vec<Event>; 2],
    /// True if this phase counts bytes, and if the last did.
    counts: [bool; 2],
    /// Waits for the last phase.
    waits: Vec<Event>,
    /// A wait for the last phase but one that the end of the last may have overtaken.
    overtaken: Option<Event>,
}

/// Misuse of an mbarrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Overflow {
    /// More arrivals than the phase has.
    Arrivals,
    /// More bytes than can be counted.
    Bytes,
}

impl Mbarrier {
    /// One whose phases have `count` arrivals; `phase` is where an earlier one at the same place has come to.
    pub(crate) fn new(agent: Agent, count: u32, phase: u32, init: Access) -> Self {
        let (current, done) = (Default::default(), Default::default());
        Mbarrier {
            agent,
            count,
            pending: count,
            bytes: 0,
            phase,
            init,
            visible: false,
            current,
            done,
            time: [0; 2],
            arrivals: Default::default(),
            counts: [false; 2],
            waits: Vec::new(),
            overtaken: None,
        }
    }

    /// An arrival of the last phase that may come after one with this clock, which then counts for the last phase instead of this one;
    /// `None` if the last phase ends before in every order of execution.
    pub(crate) fn unordered(&self, clock: &HappensBefore) -> Option<Event> {
        let end = Event { agent: self.agent, time: self.phase, lanes: u32::MAX, origin: u32::MAX };
        let [_, last] = &self.arrivals;
        let first = last.first().copied()?;
        if clock.executed(&end) {
            return None;
        }
        // Nobody has waited for the last phase, but all that it counts may have come before.
        if self.counts[1] { Some(first) } else { last.iter().find(|event| !clock.executed(event)).copied() }
    }

    /// Notes an arrival at this phase.
    pub(crate) fn arrived(&mut self, event: Event) {
        self.arrivals[0].push(event);
    }

    /// Notes a wait for the last phase that goes on.
    pub(crate) fn waited(&mut self, event: Event) {
        match self.waits.iter_mut().find(|w| (w.agent, w.time) == (event.agent, event.time)) {
            Some(wait) => wait.lanes |= event.lanes,
            None => self.waits.push(event),
        }
    }

    /// A wait for the phase before that may come after the end of the phase that has just ended.
    pub(crate) fn overtaken(&mut self) -> Option<Event> {
        self.overtaken.take()
    }

    /// The parity of the phase that has not ended.
    pub(crate) fn parity(&self) -> u32 {
        self.phase & 1
    }

    /// Vector clock to which arrivals are joined.
    pub(crate) fn clock(&mut self) -> &mut HappensBefore {
        &mut self.current[0]
    }

    /// Takes the knowledge of a block's peer that arrives. Without a release for the cluster that is only what asynchronous engines
    /// have done, which are the agents that `carries` says, and that reads are over; with one, those who wait for the cluster learn the
    /// rest.
    pub(crate) fn acquire_from_peer(
        &mut self,
        known: &HappensBefore,
        carries: impl Fn(Agent) -> bool,
        releases: bool,
    ) {
        self.current[0].join_reads(known, carries);
        if releases {
            self.current[1].join(known);
        }
    }

    /// Vector clocks after the last phase; `cluster`: to those who wait for what peers did.
    pub(crate) fn done(&self, cluster: bool) -> impl Iterator<Item = &HappensBefore> {
        self.done.iter().take(1 + usize::from(cluster))
    }

    /// Cycle at which the last phase ended.
    pub(crate) fn done_time(&self) -> u64 {
        self.time[1]
    }

    /// The time of copies that land now.
    pub(crate) fn landing_time(&self) -> u32 {
        self.phase + 1
    }

    /// One arrival at a time of the cycle model, after the phase is to wait for more bytes. Whether the phase ended.
    pub(crate) fn arrive(&mut self, expected: u32, time: u64) -> Result<bool, Overflow> {
        let bytes = self.bytes + i64::from(expected);
        if bytes > BYTES_LIMIT {
            return Err(Overflow::Bytes);
        }
        self.bytes = bytes;
        self.counts[0] |= expected > 0;
        self.pending = self.pending.checked_sub(1).ok_or(Overflow::Arrivals)?;
        Ok(self.advance(time))
    }

    /// Bytes that have landed, at a time of the cycle model. Whether the phase ended.
    pub(crate) fn complete(&mut self, bytes: u64, time: u64) -> Result<bool, Overflow> {
        let left = self.bytes - i64::try_from(bytes).unwrap_or(i64::MAX);
        if left < -BYTES_LIMIT {
            return Err(Overflow::Bytes);
        }
        self.bytes = left;
        self.counts[0] = true;
        Ok(self.advance(time))
    }

    fn advance(&mut self, time: u64) -> bool {
        self.time[0] = self.time[0].max(time);
        let ended = self.pending == 0 && self.bytes == 0;
        if ended {
            self.phase += 1;
            self.pending = self.count;
            let [current, cluster] = &mut self.current;
            current.join_executed(cluster);
            self.overtaken = self.waits.drain(..).find(|wait| !current.executed(wait));
            self.arrivals = [Vec::new(), std::mem::take(&mut self.arrivals[0])];
            self.counts = [false, self.counts[0]];
            self.done = std::mem::take(&mut self.current);
            self.done[0].learn(self.agent, u32::MAX, self.phase + 1);
            self.time = [0, self.time[0]];
        }
        ended
    }
}

/// An arrival at an mbarrier of a peer that is on its way.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub site: Site,
    pub event: Event,
    pub key: (u32, u32),
    pub expected: u32,
    /// Vector clocks of those who arrive.
    pub clock: HappensBefore,
    /// True if they release it to the whole cluster.
    pub releases: bool,
    /// Cycle at which it arrives.
    pub time: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_when_no_arrival_and_no_byte_is_outstanding() {
        let mut m = Mbarrier::new(0, 2, 0, Access::default());
        assert_eq!(m.complete(64, 5), Ok(false));
        assert_eq!(m.arrive(128, 3), Ok(false));
        assert_eq!((m.bytes, m.pending, m.parity()), (64, 1, 0));
        assert_eq!(m.arrive(0, 4), Ok(false));
        assert_eq!(m.arrive(0, 4), Err(Overflow::Arrivals));
        assert_eq!(m.complete(64, 9), Ok(true));
        assert_eq!((m.bytes, m.pending, m.parity(), m.done_time()), (0, 2, 1, 9));
    }

    #[test]
    fn bytes_have_a_limit_on_both_sides() {
        let mut m = Mbarrier::new(0, 9, 0, Access::default());
        assert_eq!(m.complete(1 << 20, 0), Err(Overflow::Bytes));
        assert_eq!(m.arrive(1 << 20, 0), Err(Overflow::Bytes));
        assert_eq!(m.arrive((1 << 20) - 1, 0), Ok(false));
    }
}
