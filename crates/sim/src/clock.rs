//! What happened before what: clocks of agents, lanes told apart.
//!
//! An agent is a warp, or a unit that works asynchronously: the bulk copies that a warp started out of shared memory, the matrix products
//! of a warpgroup, the copies that an mbarrier counts. An agent's accesses have times, which grow where it synchronises; of a
//! warp, the lanes too are told apart, for being in one warp orders nothing.
//!
//! Beside what happened before ([`Pair::all`]) runs a second clock of what the asynchronous proxy sees ([`Pair::fenced`]): of the accesses
//! by ordinary instructions those after which their thread has executed a proxy fence.

/// A warp or a unit of the cluster.
pub(crate) type Agent = u32;

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

/// What of one agent's past is known.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// Every lane's accesses at earlier times.
    below: u32,
    /// Of each lane, its accesses at earlier times.
    lanes: Option<Box<[u32; 32]>>,
}

impl Seen {
    fn lane(&self, lane: usize) -> u32 {
        self.lanes.as_ref().map_or(self.below, |l| l[lane].max(self.below))
    }

    fn covers(&self, time: u32, mask: u32) -> bool {
        time < self.below || self.lanes.as_ref().is_some_and(|l| lanes(mask).all(|lane| time < l[lane]))
    }

    fn raise(&mut self, mask: u32, live: u32, below: u32) {
        if mask == live {
            self.below = self.below.max(below);
        } else {
            let known = self.lanes.get_or_insert_default();
            lanes(mask).for_each(|lane| known[lane] = known[lane].max(below));
        }
    }

    fn join(&mut self, other: &Seen) {
        self.below = self.below.max(other.below);
        if let Some(theirs) = &other.lanes {
            let mine = self.lanes.get_or_insert_default();
            mine.iter_mut().zip(theirs.iter()).for_each(|(m, t)| *m = (*m).max(*t));
        }
        if self.lanes.as_ref().is_some_and(|l| l.iter().all(|t| *t <= self.below)) {
            self.lanes = None;
        }
    }

    fn meet(&mut self, other: &Seen) {
        if self.lanes.is_some() || other.lanes.is_some() {
            self.lanes = Some(Box::new(std::array::from_fn(|l| self.lane(l).min(other.lane(l)))));
        }
        self.below = self.below.min(other.below);
    }
}

/// What of every agent's past is known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock(Vec<Seen>);

impl Clock {
    fn entry(&mut self, agent: Agent) -> &mut Seen {
        let index = agent as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, Seen::default);
        }
        &mut self.0[index]
    }

    fn covers(&self, agent: Agent, time: u32, mask: u32) -> bool {
        self.0.get(agent as usize).is_some_and(|seen| seen.covers(time, mask))
    }

    fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), Seen::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.join(theirs));
    }

    fn meet(&mut self, other: &Clock) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.meet(theirs));
    }
}

/// What happened before, and what of it the asynchronous proxy sees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pair {
    all: Clock,
    fenced: Clock,
    /// Of whose reads it is known that they are over, though not what was written before.
    read: Clock,
}

impl Pair {
    /// Learns all that `other` knows.
    pub(crate) fn join(&mut self, other: &Pair) {
        self.all.join(&other.all);
        self.fenced.join(&other.fenced);
        self.read.join(&other.read);
    }

    /// Forgets what `other` does not know.
    pub(crate) fn meet(&mut self, other: &Pair) {
        self.all.meet(&other.all);
        self.fenced.meet(&other.fenced);
        self.read.meet(&other.read);
    }

    /// Learns what `other` knows of units, which are the agents from `first` on, and which reads are over.
    pub(crate) fn join_reads(&mut self, other: &Pair, first: Agent) {
        let theirs = other.all.0.iter().enumerate().skip(first as usize);
        theirs.for_each(|(agent, seen)| self.all.entry(agent as Agent).join(seen));
        self.read.join(&other.all);
        self.read.join(&other.read);
    }

    /// Learns of a unit's accesses before a time, those of these lanes.
    pub(crate) fn learn(&mut self, agent: Agent, lanes: u32, below: u32) {
        self.all.entry(agent).raise(lanes, u32::MAX, below);
    }
}

/// What the threads of a warp know.
#[derive(Clone, Debug)]
pub(crate) struct Knowledge {
    agent: Agent,
    /// Lanes that exist.
    live: u32,
    /// The time of the warp's accesses now.
    pub time: u32,
    everyone: Pair,
    /// What only some lanes know, until they meet the others.
    some: Vec<(u32, Pair)>,
}

impl Knowledge {
    pub(crate) fn new(agent: Agent, live: u32) -> Self {
        Knowledge { agent, live, time: 1, everyone: Pair::default(), some: Vec::new() }
    }

    /// All lanes meet: each knows what any did and knew.
    pub(crate) fn meet_lanes(&mut self) {
        for (_, pair) in std::mem::take(&mut self.some) {
            self.everyone.join(&pair);
        }
        self.time += 1;
        self.everyone.all.entry(self.agent).below = self.time;
    }

    /// What all lanes know, after they [met](Self::meet_lanes).
    pub(crate) fn everyone(&self) -> &Pair {
        &self.everyone
    }

    /// Adds to `to` what these lanes did and know; what they do next comes later.
    pub(crate) fn release(&mut self, mask: u32, to: &mut Pair) {
        to.join(&self.everyone);
        for (lanes, pair) in &self.some {
            if lanes & mask != 0 {
                to.join(pair);
            }
        }
        to.all.entry(self.agent).raise(mask, self.live, self.time + 1);
        self.time += 1;
    }

    /// These lanes learn what `from` knows.
    pub(crate) fn acquire(&mut self, mask: u32, from: &Pair) {
        self.known_to(mask).join(from);
    }

    fn known_to(&mut self, mask: u32) -> &mut Pair {
        if mask == self.live {
            return &mut self.everyone;
        }
        let at = self.some.iter().position(|(lanes, _)| *lanes == mask).unwrap_or_else(|| {
            self.some.push((mask, Pair::default()));
            self.some.len() - 1
        });
        &mut self.some[at].1
    }

    /// These lanes execute a proxy fence: what they did so far, the asynchronous proxy sees.
    pub(crate) fn fence(&mut self, mask: u32) {
        let (agent, live, time) = (self.agent, self.live, self.time + 1);
        self.known_to(mask).fenced.entry(agent).raise(mask, live, time);
        self.time = time;
    }

    /// What these lanes, acting together, know.
    pub(crate) fn view(&self, mask: u32) -> View<'_> {
        View { agent: Some(self.agent), lanes: mask, everyone: &self.everyone, some: &self.some }
    }
}

/// What whoever makes an access knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The warp.
    agent: Option<Agent>,
    /// Its lanes.
    lanes: u32,
    everyone: &'a Pair,
    some: &'a [(u32, Pair)],
}

impl<'a> View<'a> {
    /// What several warps know all of.
    pub(crate) fn common(pair: &'a Pair) -> Self {
        View { agent: None, lanes: u32::MAX, everyone: pair, some: &[] }
    }

    /// Whether it is this very lane.
    pub(crate) fn is_lane(&self, agent: Agent, lanes: u32) -> bool {
        self.agent == Some(agent) && self.lanes == lanes
    }

    fn pairs(&self) -> impl Iterator<Item = &'a Pair> {
        let own = self.lanes;
        let some = self.some.iter().filter(move |(mask, _)| own & !mask == 0).map(|(_, pair)| pair);
        std::iter::once(self.everyone).chain(some)
    }

    /// Whether an access of these lanes happened before.
    pub(crate) fn sees(&self, agent: Agent, time: u32, lanes: u32) -> bool {
        self.pairs().any(|pair| pair.all.covers(agent, time, lanes))
    }

    /// Whether a read by these lanes is over.
    pub(crate) fn sees_read(&self, agent: Agent, time: u32, lanes: u32) -> bool {
        self.pairs().any(|pair| pair.all.covers(agent, time, lanes) || pair.read.covers(agent, time, lanes))
    }

    /// Whether the asynchronous proxy sees it.
    pub(crate) fn sees_fenced(&self, agent: Agent, time: u32, lanes: u32) -> bool {
        self.pairs().any(|pair| pair.fenced.covers(agent, time, lanes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVE: u32 = u32::MAX;

    #[test]
    fn lanes_of_one_warp_know_of_each_other_only_after_they_met() {
        let mut warp = Knowledge::new(0, LIVE);
        let time = warp.time;
        assert!(!warp.view(1).sees(0, time, 2));
        warp.meet_lanes();
        assert!(warp.view(1).sees(0, time, 2) && !warp.view(1).sees(0, warp.time, 2));
    }

    #[test]
    fn what_one_lane_releases_covers_that_lane_up_to_then() {
        let (mut a, mut b) = (Knowledge::new(0, LIVE), Knowledge::new(1, LIVE));
        let before = a.time;
        let mut pair = Pair::default();
        a.release(1, &mut pair);
        b.acquire(4, &pair);
        assert!(b.view(4).sees(0, before, 1));
        assert!(!b.view(4).sees(0, before, 2), "another lane of the releasing warp");
        assert!(!b.view(4).sees(0, a.time, 1), "what it does after");
        assert!(!b.view(8).sees(0, before, 1), "another lane of the acquiring warp");
        b.meet_lanes();
        assert!(b.view(8).sees(0, before, 1));
    }

    #[test]
    fn the_asynchronous_proxy_sees_what_was_fenced_before_the_release() {
        for fence_first in [true, false] {
            let (mut a, mut b) = (Knowledge::new(0, LIVE), Knowledge::new(1, LIVE));
            let (before, mut pair) = (a.time, Pair::default());
            if fence_first {
                a.fence(LIVE);
            }
            a.release(LIVE, &mut pair);
            a.fence(LIVE);
            b.acquire(LIVE, &pair);
            assert!(b.view(1).sees(0, before, LIVE));
            assert_eq!(b.view(1).sees_fenced(0, before, LIVE), fence_first);
        }
    }

    #[test]
    fn what_several_know_is_what_each_knows() {
        let (mut a, mut b) = (Pair::default(), Pair::default());
        a.learn(3, LIVE, 5);
        b.learn(3, 2, 9);
        a.meet(&b);
        assert!(View::common(&a).sees(3, 4, 2));
        assert!(!View::common(&a).sees(3, 5, 2) && !View::common(&a).sees(3, 4, 1));
    }
}
