//! Happens-before: vector clocks of agents, lanes told apart.
//!
//! An agent is a warp, or a unit that works asynchronously: the bulk copies that a warp started out of shared memory, the matrix products
//! of a warpgroup, the copies that an mbarrier counts. An agent's accesses have times, which grow where it synchronises; of a
//! warp, the lanes too are told apart, for being in one warp orders nothing.
//!
//! Beside what happened before ([`ProxyClocks::all`]) runs for each state space ([`Space`]) a clock of what the asynchronous proxy sees there
//! ([`ProxyClocks::fenced`]): what was known to a thread when it executed a proxy fence of that space. A fence covers all that its thread
//! knows, not its own accesses alone: it composes with other synchronisation (PTX ISA 9.0, section 9.7.13.4).
//!
//! A third clock ([`HappensBefore::executed`]) is that of execution alone: what has been executed, though not what is seen of it in memory.
//! A copy brings what its thread had executed, a product what its warps had, and instructions that a warp executes together (`.sync`)
//! order what its lanes executed. Phases of mbarriers are told apart by it.

/// A warp or a unit of the cluster.
pub(crate) type Agent = u32;

/// A state space for which proxy fences are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Space(usize);

impl Space {
    /// Global memory.
    pub(crate) const GLOBAL: Space = Space(0);

    /// The shared memory of a block of the cluster.
    pub(crate) fn shared(rank: u32) -> Self {
        Space(1 + rank as usize)
    }
}

/// The lanes of a mask, lowest first.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros() as usize;
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

/// Clock of one agent: how much of its past is known.
#[derive(Clone, Debug, Default)]
struct AgentClock {
    /// Every lane's accesses at earlier times.
    below: u32,
    /// Of each lane, its accesses at earlier times.
    lanes: Option<Box<[u32; 32]>>,
}

impl AgentClock {
    fn lane(&self, lane: usize) -> u32 {
        self.lanes.as_ref().map_or(self.below, |l| l[lane].max(self.below))
    }

    /// Those of the lanes whose accesses at a time are not known.
    fn unseen(&self, time: u32, mask: u32) -> u32 {
        if time < self.below {
            return 0;
        }
        let Some(known) = &self.lanes else { return mask };
        lanes(mask).filter(|lane| time >= known[*lane]).fold(0, |rest, lane| rest | 1 << lane)
    }

    fn raise(&mut self, mask: u32, live: u32, below: u32) {
        if mask == live {
            self.below = self.below.max(below);
        } else {
            let known = self.lanes.get_or_insert_default();
            lanes(mask).for_each(|lane| known[lane] = known[lane].max(below));
        }
    }

    fn join(&mut self, other: &AgentClock) {
        self.below = self.below.max(other.below);
        if let Some(theirs) = &other.lanes {
            let mine = self.lanes.get_or_insert_default();
            mine.iter_mut().zip(theirs.iter()).for_each(|(m, t)| *m = (*m).max(*t));
        }
        if self.lanes.as_ref().is_some_and(|l| l.iter().all(|t| *t <= self.below)) {
            self.lanes = None;
        }
    }

    /// Learns what `other` says of these lanes.
    fn join_lanes(&mut self, other: &AgentClock, mask: u32, live: u32) {
        if mask == live {
            self.join(other);
        } else {
            lanes(mask).for_each(|lane| self.raise(1 << lane, live, other.lane(lane)));
        }
    }

    fn meet(&mut self, other: &AgentClock) {
        if self.lanes.is_some() || other.lanes.is_some() {
            self.lanes = Some(Box::new(std::array::from_fn(|l| self.lane(l).min(other.lane(l)))));
        }
        self.below = self.below.min(other.below);
    }
}

/// Vector clock: how much of every agent's past is known.
#[derive(Clone, Debug, Default)]
struct VectorClock(Vec<AgentClock>);

impl VectorClock {
    fn entry(&mut self, agent: Agent) -> &mut AgentClock {
        let index = agent as usize;
        if self.0.len() <= index {
            self.0.resize_with(index + 1, AgentClock::default);
        }
        &mut self.0[index]
    }

    fn unseen(&self, agent: Agent, time: u32, mask: u32) -> u32 {
        self.0.get(agent as usize).map_or(mask, |seen| seen.unseen(time, mask))
    }

    fn join(&mut self, other: &VectorClock) {
        if self.0.len() < other.0.len() {
            self.0.resize_with(other.0.len(), AgentClock::default);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.join(theirs));
    }

    /// Learns what `other` knows of some agents.
    fn join_of(&mut self, other: &VectorClock, agents: &impl Fn(Agent) -> bool) {
        let theirs = (0..).zip(&other.0).filter(|(agent, _)| agents(*agent));
        theirs.for_each(|(agent, seen)| self.entry(agent).join(seen));
    }

    fn meet(&mut self, other: &VectorClock) {
        self.0.truncate(other.0.len());
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| mine.meet(theirs));
    }
}

/// The clock of a space in a list of them that is as long as it needs to be.
fn of(fenced: &mut Vec<VectorClock>, space: Space) -> &mut VectorClock {
    if fenced.len() <= space.0 {
        fenced.resize_with(space.0 + 1, VectorClock::default);
    }
    &mut fenced[space.0]
}

/// Vector clocks of what happened before, and of what the asynchronous proxy sees of it, by space.
#[derive(Clone, Debug, Default)]
struct ProxyClocks {
    all: VectorClock,
    fenced: Vec<VectorClock>,
}

impl ProxyClocks {
    fn join(&mut self, other: &ProxyClocks) {
        self.all.join(&other.all);
        for (space, theirs) in other.fenced.iter().enumerate() {
            of(&mut self.fenced, Space(space)).join(theirs);
        }
    }

    fn join_of(&mut self, other: &ProxyClocks, agents: &impl Fn(Agent) -> bool) {
        self.all.join_of(&other.all, agents);
        for (space, theirs) in other.fenced.iter().enumerate() {
            of(&mut self.fenced, Space(space)).join_of(theirs, agents);
        }
    }

    fn meet(&mut self, other: &ProxyClocks) {
        self.all.meet(&other.all);
        self.fenced.truncate(other.fenced.len());
        self.fenced.iter_mut().zip(&other.fenced).for_each(|(mine, theirs)| mine.meet(theirs));
    }

    /// The asynchronous proxy sees in these spaces all that `known` knows.
    fn fence(&mut self, spaces: &[Space], known: &VectorClock) {
        spaces.iter().for_each(|space| of(&mut self.fenced, *space).join(known));
    }

    fn unfenced(&self, space: Space, agent: Agent, time: u32, mask: u32) -> u32 {
        self.fenced.get(space.0).map_or(mask, |clock| clock.unseen(agent, time, mask))
    }
}

/// Vector clocks of accesses.
#[derive(Clone, Debug, Default)]
pub(crate) struct HappensBefore {
    /// Of all of them.
    known: ProxyClocks,
    /// Of whose reads it is known that they are over, though not what was written before.
    reads: ProxyClocks,
    /// Of everything else that has been executed.
    executed: VectorClock,
    /// True if the launches before this one are over. All that they did to global memory is one access of every byte, which both proxies
    /// see, so that no clock is needed.
    launches: bool,
}

impl HappensBefore {
    /// Learns all that `other` knows.
    pub(crate) fn join(&mut self, other: &HappensBefore) {
        self.known.join(&other.known);
        self.reads.join(&other.reads);
        self.executed.join(&other.executed);
        self.launches |= other.launches;
    }

    /// Forgets what `other` does not know.
    pub(crate) fn meet(&mut self, other: &HappensBefore) {
        self.known.meet(&other.known);
        self.reads.meet(&other.reads);
        self.executed.meet(&other.executed);
        self.launches &= other.launches;
    }

    /// Learns what `other` knows of these agents, and which reads of all are over.
    pub(crate) fn join_reads(&mut self, other: &HappensBefore, agents: impl Fn(Agent) -> bool) {
        self.known.join_of(&other.known, &agents);
        self.reads.join(&other.known);
        self.reads.join(&other.reads);
        self.executed.join(&other.executed);
    }

    /// Learns what had been executed by all that `other` knows.
    pub(crate) fn join_executed(&mut self, other: &HappensBefore) {
        for clock in [&other.known.all, &other.reads.all, &other.executed] {
            self.executed.join(clock);
        }
    }

    /// True if an event was executed before.
    pub(crate) fn executed(&self, event: &Event) -> bool {
        let clocks = [&self.known.all, &self.reads.all, &self.executed];
        clocks.iter().fold(event.lanes, |rest, clock| clock.unseen(event.agent, event.time, rest)) == 0
    }

    /// Learns of a unit's accesses before a time, those of these lanes.
    pub(crate) fn learn(&mut self, agent: Agent, lanes: u32, below: u32) {
        self.known.all.entry(agent).raise(lanes, u32::MAX, below);
    }

    /// All that it knows, the asynchronous proxy sees in these spaces.
    fn fence(&mut self, spaces: &[Space]) {
        for ProxyClocks { all, fenced } in [&mut self.known, &mut self.reads] {
            spaces.iter().for_each(|space| of(fenced, *space).join(all));
        }
    }

    /// The asynchronous proxy sees in these spaces all that `other` knows.
    fn fence_of(&mut self, spaces: &[Space], other: &HappensBefore) {
        self.known.fence(spaces, &other.known.all);
        self.reads.fence(spaces, &other.reads.all);
    }
}

/// An event of some lanes of a warp, or of a unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub agent: Agent,
    pub time: u32,
    pub lanes: u32,
    /// The origin of its instruction.
    pub origin: u32,
}

/// Vector clocks of the threads of a warp.
#[derive(Clone, Debug)]
pub(crate) struct Knowledge {
    agent: Agent,
    /// Lanes that exist.
    live: u32,
    /// The time of the warp's accesses now.
    pub time: u32,
    everyone: HappensBefore,
    /// Clocks of some lanes only, until they meet the others.
    some: Vec<(u32, HappensBefore)>,
    /// By space: which of its own accesses each lane has fenced. The other lanes learn of it like of the accesses.
    fenced: Vec<AgentClock>,
    /// True if lanes have used an mbarrier since they last executed something together.
    apart: bool,
}

impl Knowledge {
    pub(crate) fn new(agent: Agent, live: u32) -> Self {
        Knowledge {
            agent,
            live,
            time: 1,
            everyone: HappensBefore::default(),
            some: Vec::new(),
            fenced: Vec::new(),
            apart: false,
        }
    }

    /// An event of these lanes now; what they release from here on comes after it.
    pub(crate) fn event(&mut self, lanes: u32, origin: u32) -> Event {
        self.apart = true;
        Event { agent: self.agent, time: self.time, lanes, origin }
    }

    /// All lanes execute an instruction together: each has executed what any had, though it need not see what that wrote.
    pub(crate) fn converge(&mut self) {
        if !std::mem::take(&mut self.apart) {
            return;
        }
        for (_, pair) in &self.some {
            self.everyone.join_executed(pair);
        }
        self.time += 1;
        self.everyone.executed.entry(self.agent).below = self.time;
    }

    /// All lanes meet: each knows what any did and knew.
    pub(crate) fn meet_lanes(&mut self) {
        for (_, pair) in std::mem::take(&mut self.some) {
            self.everyone.join(&pair);
        }
        self.time += 1;
        self.everyone.known.all.entry(self.agent).below = self.time;
        for (space, own) in self.fenced.iter().enumerate() {
            of(&mut self.everyone.known.fenced, Space(space)).entry(self.agent).join(own);
        }
    }

    /// Clocks that all these lanes have in common, with what they did; what they do next comes later.
    pub(crate) fn common(&mut self, mask: u32) -> HappensBefore {
        let mut known = self.everyone.clone();
        for (_, pair) in self.some.iter().filter(|(lanes, _)| mask & !lanes == 0) {
            known.join(pair);
        }
        known.known.all.entry(self.agent).raise(mask, self.live, self.time + 1);
        for (space, own) in self.fenced.iter().enumerate() {
            let theirs = of(&mut known.known.fenced, Space(space)).entry(self.agent);
            theirs.join_lanes(own, mask, self.live);
        }
        self.time += 1;
        known
    }

    /// Clocks of all lanes, after they [met](Self::meet_lanes).
    pub(crate) fn everyone(&self) -> &HappensBefore {
        &self.everyone
    }

    /// Adds to `to` what these lanes did and know; what they do next comes later.
    pub(crate) fn release(&mut self, mask: u32, to: &mut HappensBefore) {
        to.join(&self.everyone);
        for (lanes, pair) in &self.some {
            if lanes & mask != 0 {
                to.join(pair);
            }
        }
        to.known.all.entry(self.agent).raise(mask, self.live, self.time + 1);
        for (space, own) in self.fenced.iter().enumerate() {
            let theirs = of(&mut to.known.fenced, Space(space)).entry(self.agent);
            theirs.join_lanes(own, mask, self.live);
        }
        self.time += 1;
    }

    /// These lanes learn what `from` knows.
    pub(crate) fn acquire(&mut self, mask: u32, from: &HappensBefore) {
        self.known_to(mask).join(from);
    }

    fn known_to(&mut self, mask: u32) -> &mut HappensBefore {
        if mask == self.live {
            return &mut self.everyone;
        }
        let at = self.some.iter().position(|(lanes, _)| *lanes == mask).unwrap_or_else(|| {
            self.some.push((mask, HappensBefore::default()));
            self.some.len() - 1
        });
        &mut self.some[at].1
    }

    /// These lanes execute a proxy fence of these spaces: what they did and know so far, the asynchronous proxy sees there.
    pub(crate) fn fence(&mut self, mask: u32, spaces: &[Space]) {
        for at in 0..self.some.len() {
            let lanes = self.some[at].0;
            if lanes & !mask == 0 {
                self.some[at].1.fence(spaces);
            } else if lanes & mask != 0 {
                let pair = self.some[at].1.clone();
                self.known_to(lanes & mask).fence_of(spaces, &pair);
            }
        }
        if mask == self.live {
            self.everyone.fence(spaces);
        } else {
            let everyone = std::mem::take(&mut self.everyone);
            self.known_to(mask).fence_of(spaces, &everyone);
            self.everyone = everyone;
        }
        self.time += 1;
        for space in spaces {
            if self.fenced.len() <= space.0 {
                self.fenced.resize_with(space.0 + 1, AgentClock::default);
            }
            self.fenced[space.0].raise(mask, self.live, self.time);
        }
    }

    /// These lanes wait for the launches before this one.
    pub(crate) fn wait_for_launches(&mut self, mask: u32) {
        self.known_to(mask).launches = true;
    }

    /// Clocks of these lanes, acting together.
    pub(crate) fn view(&self, mask: u32) -> View<'_> {
        View {
            agent: Some(self.agent),
            lanes: mask,
            everyone: &self.everyone,
            some: &self.some,
            fenced: &self.fenced,
        }
    }
}

/// Clocks of the agent of an access.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    /// The warp.
    agent: Option<Agent>,
    /// Its lanes.
    lanes: u32,
    everyone: &'a HappensBefore,
    some: &'a [(u32, HappensBefore)],
    fenced: &'a [AgentClock],
}

impl<'a> View<'a> {
    /// Clocks that several warps have in common.
    pub(crate) fn common(pair: &'a HappensBefore) -> Self {
        View { agent: None, lanes: u32::MAX, everyone: pair, some: &[], fenced: &[] }
    }

    /// The lane of this warp that it is, if it is one alone.
    pub(crate) fn own(&self, agent: Agent) -> u32 {
        if self.agent == Some(agent) && self.lanes.is_power_of_two() { self.lanes } else { 0 }
    }

    /// Lanes of `mask` that `rest` leaves, applied to the common clock and to that of each group of lanes that covers `self.lanes`.
    fn left(&self, mask: u32, rest: impl Fn(&HappensBefore, u32) -> u32) -> u32 {
        let mut left = rest(self.everyone, mask);
        for (lanes, pair) in self.some {
            if left == 0 {
                break;
            }
            if self.lanes & !lanes == 0 {
                left = rest(pair, left);
            }
        }
        left
    }

    /// Those of these lanes whose access did not happen before.
    pub(crate) fn unseen(&self, agent: Agent, time: u32, lanes: u32) -> u32 {
        self.left(lanes, |pair, lanes| pair.known.all.unseen(agent, time, lanes))
    }

    /// True if the accesses of these lanes happened before.
    pub(crate) fn sees(&self, agent: Agent, time: u32, lanes: u32) -> bool {
        self.unseen(agent, time, lanes) == 0
    }

    /// Those of these lanes whose read is not known to be over.
    pub(crate) fn unread(&self, agent: Agent, time: u32, lanes: u32) -> u32 {
        self.left(lanes, |pair, lanes| match pair.known.all.unseen(agent, time, lanes) {
            0 => 0,
            rest => pair.reads.all.unseen(agent, time, rest),
        })
    }

    /// Those of these lanes whose access the asynchronous proxy does not see in a space.
    pub(crate) fn unfenced(&self, space: Space, agent: Agent, time: u32, lanes: u32) -> u32 {
        let rest = self.left(lanes, |pair, lanes| pair.known.unfenced(space, agent, time, lanes));
        rest & !self.fenced_itself(space, agent, time)
    }

    /// Those of these lanes whose read the asynchronous proxy does not see in a space.
    pub(crate) fn unread_fenced(&self, space: Space, agent: Agent, time: u32, lanes: u32) -> u32 {
        let rest = self.left(lanes, |pair, lanes| match pair.known.unfenced(space, agent, time, lanes) {
            0 => 0,
            rest => pair.reads.unfenced(space, agent, time, rest),
        });
        rest & !self.fenced_itself(space, agent, time)
    }

    /// The lane that it is, if it has fenced its own access at this time.
    fn fenced_itself(&self, space: Space, agent: Agent, time: u32) -> u32 {
        let own = self.own(agent);
        let fenced = self.fenced.get(space.0).is_some_and(|seen| seen.unseen(time, own) == 0);
        if fenced { own } else { 0 }
    }

    /// True if the launches before this one are over.
    pub(crate) fn sees_launches(&self) -> bool {
        self.left(1, |pair, left| if pair.launches { 0 } else { left }) == 0
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
        let mut pair = HappensBefore::default();
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
            let (before, mut pair) = (a.time, HappensBefore::default());
            if fence_first {
                a.fence(LIVE, &[Space::GLOBAL]);
            }
            a.fence(LIVE, &[Space::shared(0)]);
            a.release(LIVE, &mut pair);
            a.fence(LIVE, &[Space::GLOBAL]);
            b.acquire(LIVE, &pair);
            assert!(b.view(1).sees(0, before, LIVE));
            assert_eq!(b.view(1).unfenced(Space::GLOBAL, 0, before, LIVE) == 0, fence_first);
            assert_eq!(b.view(1).unfenced(Space::shared(0), 0, before, LIVE), 0);
            assert_eq!(b.view(1).unfenced(Space::shared(1), 0, before, LIVE), LIVE);
        }
    }

    #[test]
    fn a_fence_covers_what_its_thread_knows_then() {
        let (mut a, mut b) = (Knowledge::new(0, LIVE), Knowledge::new(1, LIVE));
        let (mut early, mut late) = (HappensBefore::default(), HappensBefore::default());
        let first = a.time;
        a.release(1, &mut early);
        let second = a.time;
        a.release(1, &mut late);
        b.acquire(4, &early);
        b.fence(LIVE, &[Space::GLOBAL]);
        b.acquire(4, &late);
        let unfenced = |time, lane| b.view(lane).unfenced(Space::GLOBAL, 0, time, 1);
        assert_eq!((unfenced(first, 4), unfenced(second, 4)), (0, 1));
        assert_eq!(unfenced(first, 8), 1, "another lane, which did not know of it");
    }

    #[test]
    fn a_lane_does_not_profit_from_the_fence_of_another_before_they_meet() {
        let mut warp = Knowledge::new(0, LIVE);
        let (before, mut pair) = (warp.time, HappensBefore::default());
        warp.release(2, &mut pair);
        warp.fence(LIVE, &[Space::GLOBAL]);
        warp.acquire(1, &pair);
        let left = |warp: &Knowledge, lane| warp.view(lane).unfenced(Space::GLOBAL, 0, before, 2);
        assert!(warp.view(1).sees(0, before, 2));
        assert_eq!((left(&warp, 1), left(&warp, 2)), (2, 0));
        warp.meet_lanes();
        assert_eq!(left(&warp, 1), 0);
    }

    #[test]
    fn a_wait_for_launches_is_known_to_its_lanes_and_behind_barriers() {
        let (mut a, mut b) = (Knowledge::new(0, LIVE), Knowledge::new(1, LIVE));
        a.wait_for_launches(1);
        assert!(a.view(1).sees_launches() && !a.view(2).sees_launches());
        let (mut of_lane, mut of_another) = (HappensBefore::default(), HappensBefore::default());
        a.release(2, &mut of_another);
        b.acquire(LIVE, &of_another);
        assert!(!b.view(1).sees_launches());
        a.release(1, &mut of_lane);
        b.acquire(4, &of_lane);
        assert!(b.view(4).sees_launches() && !b.view(8).sees_launches());
        a.meet_lanes();
        assert!(a.view(2).sees_launches());
        let mut both = of_lane.clone();
        both.meet(&of_another);
        assert!(View::common(&of_lane).sees_launches() && !View::common(&both).sees_launches());
    }

    #[test]
    fn what_several_know_is_what_each_knows() {
        let (mut a, mut b) = (HappensBefore::default(), HappensBefore::default());
        a.learn(3, LIVE, 5);
        b.learn(3, 2, 9);
        a.meet(&b);
        assert!(View::common(&a).sees(3, 4, 2));
        assert!(!View::common(&a).sees(3, 5, 2) && !View::common(&a).sees(3, 4, 1));
    }
}
