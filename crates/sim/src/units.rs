//! Requests of a warp to asynchronous engines and mbarriers.

use tilewright_machine::{BulkOp, LaunchControl, MbarrierOp, Memory, Rate, TensorOp, Unit, timing};

use crate::clock::{Agent, Event, HappensBefore, lanes};
use crate::cluster::Cluster;
use crate::decode::{BulkCopy, Place, Slot, TensorCopy};
use crate::flight::{Course, MapId, Request, bulk_course};
use crate::mbarrier::{ARRIVALS_LIMIT, Mbarrier, Overflow, Posted};
use crate::observe::stage_end;
use crate::queues::Started;
use crate::rule::Rule;
use crate::sink::{FaultKind, Site};
use crate::warp::{Phase, State, Wait, Warp};

impl Warp {
    /// Issues the tensor copies of the active lanes.
    pub(crate) fn tensor(
        &mut self,
        cluster: &mut Cluster<'_>,
        copy: &TensorCopy,
        origin: u32,
        cost: (u64, u64),
    ) {
        for lane in lanes(self.active) {
            let site = self.site(copy.statement, origin, lane);
            let coords = copy.coords.iter().map(|c| self.values[*c as usize][lane] as u32 as i32).collect();
            let number = copy.one.map_or(0, |one| self.values[one as usize][lane] as u32);
            let map = MapId { index: copy.map, number };
            let request = Request {
                site,
                course: Course::Tensor { op: copy.op, map, coords },
                shared: self.shared_address(copy.shared, lane),
                bytes: copy.bytes,
                barrier: copy.barrier.map(|b| self.shared_address(b, lane)),
                multicast: copy.multicast.map(|m| self.values[m as usize][lane] as u32),
                even: copy.even,
                group: (0, 0),
                ready: self
                    .values_ready(&copy.coords)
                    .max(self.address_ready(copy.shared, copy.multicast))
                    .max(copy.one.map_or(0, |one| self.values_ready(&[one]))),
            };
            self.request(cluster, request, copy.op != TensorOp::Load, lane, cost);
        }
    }

    /// Issues the bulk copies of the active lanes.
    pub(crate) fn bulk(&mut self, cluster: &mut Cluster<'_>, copy: &BulkCopy, origin: u32, cost: (u64, u64)) {
        for lane in lanes(self.active) {
            let site = self.site(copy.statement, origin, lane);
            let request = Request {
                site,
                course: bulk_course(copy.op, self.global_address(copy.other, lane)),
                shared: self.shared_address(copy.shared, lane),
                bytes: self.values[copy.bytes as usize][lane] as u32,
                barrier: copy.barrier.map(|b| self.shared_address(b, lane)),
                multicast: None,
                even: false,
                group: (0, 0),
                ready: self.address_ready(copy.other, Some(copy.bytes)),
            };
            self.request(cluster, request, copy.op == BulkOp::Store, lane, cost);
        }
    }

    /// Issues the requests of the active lanes to cancel a cluster that has not begun.
    pub(crate) fn try_cancel(
        &mut self,
        cluster: &mut Cluster<'_>,
        (answer, barrier): (Place, Place),
        (statement, origin): (u32, u32),
        (issue, latency): (u64, u64),
    ) {
        for lane in lanes(self.active) {
            let site = self.site(statement, origin, lane);
            if cluster.not_begun.refused(site.rank) {
                cluster.misuse(&site, Rule::Launch, || {
                    "the block asks for another cluster and knows that none was left: that is undefined"
                        .to_string()
                });
            }
            let ready = self.address_ready(answer, None).max(self.address_ready(barrier, None));
            let start = self.issue(cluster, Unit::Issue, ready, issue);
            cluster.launch(Request {
                site,
                course: Course::Answer,
                shared: self.shared_address(answer, lane),
                bytes: LaunchControl::ANSWER_BYTES,
                barrier: Some(self.shared_address(barrier, lane)),
                multicast: None,
                even: false,
                group: (0, 0),
                ready: start + latency,
            });
        }
    }

    /// Reads the block in answers of the active lanes.
    pub(crate) fn cancelled(&mut self, cluster: &mut Cluster<'_>, dst: Slot, answer: &[u32]) {
        for lane in lanes(self.active) {
            let mut words = [0; 4];
            for (word, register) in words.iter_mut().zip(answer) {
                *word = self.registers[*register as usize][lane];
            }
            let block = LaunchControl::first_block(words);
            if block.is_none() {
                cluster.not_begun.refuse(self.rank);
            }
            self.values[dst as usize][lane] = u64::from(block.unwrap_or(LaunchControl::NONE));
        }
    }

    fn values_ready(&self, slots: &[Slot]) -> u64 {
        slots.iter().map(|s| self.timing.values[*s as usize]).max().unwrap_or(0)
    }

    fn request(
        &mut self,
        cluster: &mut Cluster<'_>,
        request: Request,
        store: bool,
        lane: usize,
        (issue, latency): (u64, u64),
    ) {
        let rate = if store { Rate::TmaStoreBytes } else { Rate::TmaLoadBytes };
        let rate = timing(cluster.context.program.function.arch).rate(rate);
        let moved = (f64::from(request.bytes) / rate).ceil() as u64;
        let pipes = &mut cluster.ctas[self.rank as usize].pipes;
        let busy = issue.max(moved);
        let issued = self.timing.order(pipes, Unit::Tma, request.ready, busy);
        let start = pipes.copy(issued, busy);
        let ready = start + latency + moved;
        if let Some(tracer) = cluster.observer.as_mut().and_then(|o| o.tracer.as_mut()) {
            let (program, moved) = (&cluster.context.program, (u64::from(request.bytes), ready));
            tracer.copy(self.agent as usize, request.site.origin, (start, start + busy), moved, program);
        }
        let counts = &mut cluster.sink.counts[request.site.statement as usize];
        counts.global_requests += 1;
        counts.global_sectors += u64::from(request.bytes).div_ceil(32);
        counts.global_ideal += u64::from(request.bytes).div_ceil(32);
        counts.global_bytes += u64::from(request.bytes);
        let group = self.bulk.committed[lane];
        let mut time = 0;
        if store {
            self.bulk.time += 1;
            time = self.bulk.time;
            self.bulk.started.push(Started { lane, group, time, ready });
        }
        cluster.launch(Request { group: (group, time), ready, ..request });
    }

    /// Executes a wait of the active lanes for all their groups of bulk copies but the last `n`: their writes are done, or at least
    /// their reads.
    pub(crate) fn bulk_wait(&mut self, cluster: &mut Cluster<'_>, n: u32, reads: bool) {
        let (active, agent) = (self.active, self.agent);
        let committed = self.bulk.committed;
        let covered =
            |lane: usize, group: u32| active & (1 << lane) != 0 && group < committed[lane].saturating_sub(n);
        let mut at = 0;
        while let Some(flight) = cluster.flights.get(at) {
            let lane = (flight.site.thread % 32) as usize;
            if flight.site.agent != agent || !flight.is_store() || !covered(lane, flight.group) {
                at += 1;
            } else if reads {
                cluster.read_source(at);
                at += 1;
            } else {
                cluster.complete(at);
            }
        }
        let (copies, stores) = (cluster.copies_of(agent), cluster.stores_of(agent));
        for lane in lanes(active) {
            let done = self.bulk.started.iter().filter(|s| s.lane == lane && covered(lane, s.group));
            let (mut below, mut ready) = (0, 0);
            for started in done {
                below = below.max(started.time + 1);
                ready = ready.max(started.ready);
            }
            if below > 0 {
                let mut pair = HappensBefore::default();
                pair.learn(copies, 1 << lane, below);
                if !reads {
                    pair.learn(stores, 1 << lane, below);
                }
                cluster.know[agent as usize].acquire(1 << lane, &pair);
                self.timing.clock = self.timing.clock.max(ready);
            }
        }
        if !reads {
            self.bulk.started.retain(|s| !covered(s.lane, s.group));
        }
    }

    /// Executes an operation of the active lanes on mbarriers.
    pub(crate) fn mbarrier(
        &mut self,
        cluster: &mut Cluster<'_>,
        op: MbarrierOp,
        place: Place,
        operand: Slot,
        (statement, origin): (u32, u32),
    ) {
        let operands = self.values[operand as usize];
        if op.commits() {
            let lane = self.active.trailing_zeros().min(31) as usize;
            let ranks = (op == MbarrierOp::CommitPeers).then_some(operands[lane] as u32);
            self.commit_sums(cluster, place, ranks, (statement, origin));
            return;
        }
        if op.waits() {
            let mut phases: Vec<Phase> = Vec::new();
            for lane in lanes(self.active) {
                let site = self.site(statement, origin, lane);
                let Some(key) = cluster.own_barrier(&site, self.shared_address(place, lane)) else {
                    continue;
                };
                let wanted = operands[lane] as u32;
                if wanted > 1 {
                    cluster
                        .misuse(&site, Rule::Parity, || format!("{wanted:#x} is no parity: neither 0 nor 1"));
                }
                let (offset, parity) = (key.1, wanted & 1);
                match phases.iter_mut().find(|p| p.offset == offset && p.parity == parity) {
                    Some(phase) => phase.lanes |= 1 << lane,
                    None => {
                        let cluster = op == MbarrierOp::WaitCluster;
                        let site = (statement, origin);
                        phases.push(Phase { lanes: 1 << lane, offset, parity, cluster, site });
                    }
                }
            }
            self.state = State::Waiting(Wait::Mbarriers(phases));
            self.look(cluster);
            return;
        }
        let mut groups: Vec<((u32, u32), u32)> = Vec::new();
        for lane in lanes(self.active) {
            let site = self.site(statement, origin, lane);
            let address = self.shared_address(place, lane);
            if op == MbarrierOp::Init {
                cluster.init_barrier(&site, address, operands[lane] as u32);
                continue;
            }
            let key = if op.reaches_peers() {
                cluster.any_barrier(&site, address)
            } else {
                cluster.own_barrier(&site, address)
            };
            let Some(key) = key else { continue };
            if key.0 != self.rank {
                cluster.visible(&site, key);
            }
            match groups.iter_mut().find(|(k, _)| *k == key) {
                Some((_, mask)) => *mask |= 1 << lane,
                None => groups.push((key, 1 << lane)),
            }
        }
        for (key, mask) in groups {
            for lane in lanes(mask) {
                let expected = if op == MbarrierOp::ArriveExpect { operands[lane] as u32 } else { 0 };
                let site = self.site(statement, origin, lane);
                let releases = op == MbarrierOp::ArriveCluster;
                // Each lane brings what it knows: a phase that ends before the last has arrived lacks that one's.
                let mut clock = HappensBefore::default();
                let event = cluster.know[self.agent as usize].event(1 << lane, origin);
                cluster.know[self.agent as usize].release(1 << lane, &mut clock);
                let arrival = Posted { site, event, key, expected, clock, releases, time: self.timing.clock };
                cluster.send(arrival);
            }
        }
    }

    /// Looks whether the phases have ended that lanes of the warp wait for, and lets those go on for which all have.
    pub(crate) fn look(&mut self, cluster: &mut Cluster<'_>) {
        let (rank, agent, live, active) = (self.rank, self.agent, self.live, self.active);
        let mut time = 0;
        self.waits_mut(&mut |state| {
            let State::Waiting(Wait::Mbarriers(phases)) = state else { return };
            phases.retain(|phase| {
                let Some(barrier) = cluster.barriers.get_mut(&(rank, phase.offset)) else { return false };
                let ended = barrier.parity() != phase.parity;
                if ended {
                    // Lanes that are alone in a branch learn alone.
                    let lanes = if phase.lanes == active && active == live { live } else { phase.lanes };
                    let know = &mut cluster.know[agent as usize];
                    barrier.done(phase.cluster).for_each(|known| know.acquire(lanes, known));
                    barrier.waited(know.event(phase.lanes, phase.site.1));
                    time = time.max(barrier.done_time());
                }
                !ended
            });
            if phases.is_empty() {
                *state = State::Running;
            }
        });
        self.timing.clock = self.timing.clock.max(time);
        if matches!(self.state, State::Waiting(Wait::Mbarriers(_))) {
            self.switch();
        }
    }

    /// Gives registers to the block's pool, or waits for some of it.
    pub(crate) fn set_registers(
        &mut self,
        cluster: &mut Cluster<'_>,
        more: bool,
        registers: u32,
        (statement, origin): (u32, u32),
    ) {
        let quota = self.quota;
        let site = self.site(statement, origin, self.active.trailing_zeros().min(31) as usize);
        if !(24..=256).contains(&registers) || !registers.is_multiple_of(8) {
            cluster.misuse(&site, Rule::Registers, || {
                format!("{registers} registers are no multiple of 8 between 24 and 256")
            });
        } else if more && registers < quota {
            cluster.misuse(&site, Rule::Registers, || {
                format!("it asks for {registers} registers, but each thread has {quota} already")
            });
        } else if !more && registers > quota {
            cluster.misuse(&site, Rule::Registers, || {
                format!("it keeps {registers} registers, but each thread has only {quota}")
            });
        } else if more {
            self.state = State::Waiting(Wait::Registers(registers));
            self.take_registers(cluster);
        } else {
            cluster.ctas[self.rank as usize].pool += u64::from(32 * (quota - registers));
            self.quota = registers;
            cluster.changed = true;
        }
    }

    /// Takes the registers that the warp waits for, and goes on if the pool has them.
    pub(crate) fn take_registers(&mut self, cluster: &mut Cluster<'_>) {
        let State::Waiting(Wait::Registers(registers)) = self.state else { return };
        let pool = &mut cluster.ctas[self.rank as usize].pool;
        if let Some(rest) = pool.checked_sub(u64::from(32 * (registers - self.quota))) {
            *pool = rest;
            self.quota = registers;
            self.state = State::Running;
        }
    }
}

impl Cluster<'_> {
    /// Delivers the first of the arrivals on their way to the mbarrier of this one.
    pub(crate) fn deliver(&mut self, index: usize) {
        let key = self.posted.get(index).map(|posted| posted.key);
        if let Some(first) = self.posted.iter().position(|posted| Some(posted.key) == key) {
            let posted = self.posted.remove(first);
            if self.ctas[posted.key.0 as usize].running == 0 {
                let rank = posted.key.0 - self.peers(posted.key.0).start;
                self.misuse(&posted.site, Rule::Ended, || {
                    format!("block {rank} of the cluster ends before the arrival at its mbarrier")
                });
            }
            self.arrive(posted);
        }
    }

    /// Delivers all arrivals on their way.
    pub(crate) fn deliver_all(&mut self) {
        while !self.posted.is_empty() {
            self.deliver(0);
        }
    }

    /// Arrives; where a seed decides, at a peer some time later.
    pub(crate) fn send(&mut self, arrival: Posted) {
        if arrival.key.0 != arrival.site.rank && self.context.config.seed != 0 {
            self.posted.push(arrival);
        } else {
            self.arrive(arrival);
        }
    }

    pub(crate) fn arrive(&mut self, Posted { site, event, key, expected, clock, releases, time }: Posted) {
        if let Some(last) = self.barriers.get(&key).and_then(|barrier| barrier.unordered(&clock)) {
            let message =
                "it may count for the phase before, since it is not ordered after an arrival of that phase";
            self.undetermined(&site, key, &last, message);
        }
        let carries = self.carries();
        let Some(barrier) = self.barriers.get_mut(&key) else { return };
        barrier.arrived(event);
        if site.rank == key.0 {
            barrier.clock().join(&clock);
        } else {
            barrier.acquire_from_peer(&clock, carries, releases);
        }
        match barrier.arrive(expected, time) {
            Ok(ended) => self.ended(&site, key, ended),
            Err(overflow) => self.overflow(&site, overflow),
        }
    }

    /// Notes that a phase of an mbarrier has ended, if it has, and checks that all waits for the phase before were over.
    pub(crate) fn ended(&mut self, site: &Site, key: (u32, u32), ended: bool) {
        self.changed |= ended;
        if ended {
            self.trace_phase(key);
        }
        if let Some(wait) = self.barriers.get_mut(&key).and_then(Mbarrier::overtaken) {
            let message = "it may end a phase while a thread still waits for the phase before, since it is not ordered after that wait";
            self.undetermined(site, key, &wait, message);
        }
    }

    /// Writes down that a phase of an mbarrier has ended, if the cluster is traced.
    fn trace_phase(&mut self, (rank, offset): (u32, u32)) {
        let Some(tracer) = self.observer.as_mut().and_then(|o| o.tracer.as_mut()) else { return };
        let Some(time) = self.barriers.get(&(rank, offset)).map(Mbarrier::done_time) else { return };
        if let Some(end) = stage_end(self.context, offset) {
            tracer.phase(rank, end, time);
        }
    }

    /// Reports an arrival or a wait whose phase depends on the order of execution.
    fn undetermined(&mut self, site: &Site, (_, offset): (u32, u32), other: &Event, message: &str) {
        if self.context.config.check_races {
            let (name, at, _) = self.context.describe(Memory::Shared, i64::from(offset));
            let origin = self.context.program.origin(other.origin);
            self.misuse(site, Rule::Phase, || {
                format!("{message} (in `{origin}`): the mbarrier at byte {at} of `{name}`")
            });
        }
    }

    fn init_barrier(&mut self, site: &Site, address: u32, count: u32) {
        let place = self.place(site, address, 8, true).filter(|(rank, _)| *rank == site.rank);
        let Some(key) = place else { return };
        if !(1..=ARRIVALS_LIMIT).contains(&count) {
            self.misuse(site, Rule::Arrivals, || format!("phases of {count} arrivals"));
            return;
        }
        let known = self.barriers.get(&key).map(|b| (b.agent, b.phase));
        if known.is_some() {
            self.misuse(site, Rule::Again, || {
                format!("there is an initialised mbarrier at offset {} of the window already", key.1)
            });
        }
        let (agent, phase) = known.unwrap_or_else(|| (self.new_agent(), 0));
        // The next phase is the first again, of even parity.
        let phase = phase.next_multiple_of(2);
        let init = self.access(site);
        self.make_barrier(key, Mbarrier::new(agent, count, phase, init));
    }

    /// The mbarrier of the thread's own block at an address.
    pub(crate) fn own_barrier(&mut self, site: &Site, address: u32) -> Option<(u32, u32)> {
        if self.peer(site, address >> 24) != Some(site.rank) {
            let local = i64::from(address);
            self.wrong(site, FaultKind::OutOfBounds, Memory::Shared, local, 8, true);
            return None;
        }
        self.any_barrier(site, address)
    }

    /// The mbarrier of any block of the cluster at an address.
    fn any_barrier(&mut self, site: &Site, address: u32) -> Option<(u32, u32)> {
        let key = self.place(site, address, 8, true)?;
        self.barrier(site, key).then_some(key)
    }

    /// True if an mbarrier is there whose initialisation came before; all else is reported.
    pub(crate) fn barrier(&mut self, site: &Site, key: (u32, u32)) -> bool {
        let Some(barrier) = self.barriers.get(&key) else {
            self.misuse(site, Rule::Barrier, || {
                format!("there is no initialised mbarrier at offset {} of the window", key.1)
            });
            return false;
        };
        let init = barrier.init;
        let view = self.know[site.agent as usize].view(site.lanes());
        let known = view.own(init.agent) == init.lanes || view.sees(init.agent, init.time, init.lanes);
        if !known && self.context.config.check_races {
            self.misuse(site, Rule::Barrier, || {
                format!(
                    "no barrier lies between it and the initialisation of the mbarrier at offset {}",
                    key.1
                )
            });
        }
        true
    }

    /// Checks that a peer or an asynchronous engine sees the initialisation of an mbarrier.
    pub(crate) fn visible(&mut self, site: &Site, key: (u32, u32)) {
        if self.barriers.get(&key).is_some_and(|b| !b.visible) {
            self.misuse(site, Rule::Visible, || {
                format!(
                    "the mbarrier at offset {} of the window needs fence.mbarrier_init between its initialisation and this",
                    key.1
                )
            });
        }
    }

    /// These lanes of a warp make the mbarriers visible that they have initialised.
    pub(crate) fn publish_barriers(&mut self, agent: Agent, mask: u32) {
        let own = |b: &&mut Mbarrier| b.init.agent == agent && b.init.lanes & mask != 0;
        self.barriers.values_mut().filter(own).for_each(|barrier| barrier.visible = true);
    }

    fn overflow(&mut self, site: &Site, overflow: Overflow) {
        match overflow {
            Overflow::Arrivals => self.misuse(site, Rule::Arrivals, || {
                "it arrives at an mbarrier whose phase has had all its arrivals".to_string()
            }),
            Overflow::Bytes => {
                self.misuse(site, Rule::Bytes, || "the phase would wait for over a MiB".to_string())
            }
        }
    }
}
