//! The scheduler of a cluster: which warp runs next and for how long, who meets at barriers, when asynchronous operations complete, and
//! who waits for what when nothing can run.

use std::collections::BTreeMap;

use crate::choices::Choices;
use crate::clock::HappensBefore;
use crate::cluster::{Cluster, GROUP};
use crate::context::Context;
use crate::decode::{Code, Source};
use crate::error::{Awaited, BarrierState, SimError, Waiting};
use crate::global::Touched;
use crate::launch::NotBegun;
use crate::named::NamedBarrier;
use crate::profile::Observer;
use crate::rule::Rule;
use crate::shadow::Kind;
use crate::sink::{Sink, Site};
use crate::tables::disorder;
use crate::warp::{Issue, State, Wait, Warp, disordered};
use crate::wgmma::{CHUNK, Left, NOWHERE, Operand, Product, Unit};

/// Most instructions that a warp runs before another may, where a seed decides.
const QUANTUM: u64 = 64;

/// The findings of a cluster and how long its blocks took.
pub(crate) struct Outcome {
    pub sink: Sink,
    /// Global memory that the cluster has touched.
    pub touched: Touched,
    /// Cycles of the slowest block from start to end, alone on its multiprocessor.
    pub longest: u64,
    /// Those of all blocks.
    pub sum: u64,
    /// Cycles for which the blocks' busiest units were occupied, in all.
    pub busy: u64,
    /// Blocks that have begun: all but those that others have cancelled.
    pub begun: u64,
    pub observer: Option<Box<Observer>>,
}

struct Scheduler<'a> {
    cluster: Cluster<'a>,
    /// By rank, then by index.
    warps: Vec<Warp>,
    /// Warps of a block.
    per_block: usize,
    /// `None`: warps run in order, and units as late as they may.
    choices: Option<Choices>,
    /// Of clusters that run together in order: the first warp whose turn it is.
    turn: usize,
}

/// Executes the clusters that run together from this one on to their ends.
pub(crate) fn execute<'a>(context: &'a Context<'a>, linear: u64) -> Result<Outcome, SimError> {
    let function = context.program.function;
    let per_block = function.threads.div_ceil(32);
    let clusters = context.together.min(context.clusters() - linear) as u32;
    let blocks = clusters * function.cluster;
    let mut cluster = Cluster::new(context, context.first_block(linear), blocks, per_block);
    let mut warps: Vec<Warp> = (0..blocks)
        .flat_map(|rank| (0..per_block).map(move |index| (rank, index)))
        .map(|(rank, index)| Warp::new(&context.program, context.config.check_registers, rank, index))
        .collect();
    cluster.know = warps.iter().map(|w| crate::clock::Knowledge::new(w.agent, w.live)).collect();
    cluster.observer = Observer::new(context, linear..linear + u64::from(clusters), warps.len());
    let seed = context.config.seed;
    let choices = (seed != 0).then(|| Choices::new(seed ^ linear.wrapping_mul(0x2545_f491_4f6c_dd1d)));
    if context.program.cancels {
        cluster.not_begun = NotBegun::new(context, clusters, choices.as_ref());
        let begins = |warp: &Warp| !cluster.not_begun.has(warp.rank / function.cluster);
        warps.iter_mut().filter(|warp| !begins(warp)).for_each(|warp| warp.state = State::NotBegun);
    }
    Scheduler { cluster, warps, per_block: per_block as usize, choices, turn: 0 }.run()
}

impl Scheduler<'_> {
    fn run(mut self) -> Result<Outcome, SimError> {
        let mut ready = Vec::new();
        loop {
            ready.clear();
            ready.extend((0..self.warps.len()).filter(|w| self.warps[*w].state == State::Running));
            let Some(first) = ready.first().copied() else {
                if self.progress() || self.begin() {
                    continue;
                }
                if self.warps.iter().all(|w| matches!(w.state, State::Done | State::NotBegun)) {
                    return Ok(self.end());
                }
                return Err(self.deadlock());
            };
            let (warp, quantum) = match &mut self.choices {
                None if self.cluster.context.together > 1 => {
                    let next = ready.iter().copied().find(|warp| *warp >= self.turn).unwrap_or(first);
                    self.turn = next + 1;
                    (next, QUANTUM)
                }
                None => (first, u64::MAX),
                Some(choices) => {
                    let warp = ready[choices.below(ready.len())];
                    (warp, choices.next() % QUANTUM + 1)
                }
            };
            self.warps[warp].run(&mut self.cluster, quantum)?;
            if matches!(self.warps[warp].state, State::Waiting(_)) {
                self.settle(warp)?;
            }
            self.wake();
            if self.choices.as_mut().is_some_and(|c| c.next() & 1 == 0) {
                self.progress();
            }
            if self.cluster.not_begun.some_begin() {
                self.begin();
            }
        }
    }

    /// Lets a cluster begin that has not; false where there is none.
    fn begin(&mut self) -> bool {
        let Some(cluster) = self.cluster.not_begun.begin() else { return false };
        let warps = self.per_block * self.cluster.context.program.function.cluster as usize;
        let first = cluster as usize * warps;
        self.warps[first..first + warps].iter_mut().for_each(|warp| warp.state = State::Running);
        true
    }

    /// Completes an asynchronous operation that is outstanding: a copy, or (where a seed decides) a product, an arrival at a peer, or a
    /// part of one of them. Whether there was one.
    fn progress(&mut self) -> bool {
        let flights = self.cluster.flights.len();
        let done = match &mut self.choices {
            None => match self.cluster.flights.iter().position(|f| !f.is_store()) {
                Some(first) => {
                    self.cluster.complete(first);
                    true
                }
                None => match self.cluster.waiting_units().first() {
                    Some(unit) => {
                        self.cluster.complete_sums(*unit, true);
                        true
                    }
                    None => false,
                },
            },
            Some(choices) => {
                let busy: Vec<usize> = (0..self.cluster.units.len())
                    .filter(|u| !self.cluster.units[*u].queue.is_empty())
                    .collect();
                let posted = self.cluster.posted.len();
                let fetching: Vec<usize> =
                    (0..self.warps.len()).filter(|w| self.warps[*w].queue.len() > 0).collect();
                let sums = self.cluster.waiting_units();
                let (part, whole) = (choices.next() as usize, choices.below(2) == 0);
                let others = flights + busy.len() + posted + fetching.len();
                match choices.below(others + sums.len()) {
                    flight if flight < flights && whole => {
                        self.cluster.complete(flight);
                        true
                    }
                    flight if flight < flights => {
                        self.cluster.complete_part(flight, part);
                        true
                    }
                    unit if unit - flights < busy.len() => {
                        let unit = busy[unit - flights];
                        self.execute_products(unit, 1);
                        true
                    }
                    arrival if arrival - flights - busy.len() < posted => {
                        self.cluster.deliver(arrival - flights - busy.len());
                        true
                    }
                    // These copies let nobody go on: who waits for them lands them.
                    warp if warp - flights - busy.len() - posted < fetching.len() => {
                        let warp = &mut self.warps[fetching[warp - flights - busy.len() - posted]];
                        let first = part % warp.queue.len().max(1);
                        for copy in first..(first + QUANTUM as usize).min(warp.queue.len()) {
                            warp.land_early(&mut self.cluster, copy);
                        }
                        flights + busy.len() + posted + sums.len() > 0
                    }
                    unit if unit >= others && unit - others < sums.len() => {
                        self.cluster.complete_sums(sums[unit - others], whole);
                        true
                    }
                    _ => false,
                }
            }
        };
        self.wake();
        done
    }

    /// Lets those go on that wait for what has happened.
    fn wake(&mut self) {
        while std::mem::take(&mut self.cluster.changed) {
            for warp in &mut self.warps {
                warp.look(&mut self.cluster);
                warp.take_registers(&mut self.cluster);
                warp.look_at_words(&mut self.cluster);
                warp.look_at_named(&mut self.cluster);
            }
        }
    }

    /// The warps that wait for the same as this one, and whether they are all that it takes.
    fn settle(&mut self, warp: usize) -> Result<(), SimError> {
        // One that has ended may be the last for which the others wait at the cluster's barrier.
        let warp = match self.warps[warp].state {
            State::Done => {
                let cluster = self.cluster_of(warp);
                let waits = |w: &usize| self.warps[*w].state == State::Waiting(Wait::Cluster);
                cluster.into_iter().find(waits).unwrap_or(warp)
            }
            _ => warp,
        };
        let State::Waiting(wait) = self.warps[warp].state.clone() else { return Ok(()) };
        let first = warp / self.per_block * self.per_block;
        let block = first..first + self.per_block;
        match wait {
            Wait::Block | Wait::Cluster => {
                let range = if wait == Wait::Block { block } else { self.cluster_of(warp) };
                // The cluster's barrier does not wait for warps that have ended (PTX ISA 8.0, section 9.7.12.3).
                let ended = |w: &Warp| wait == Wait::Cluster && w.state == State::Done;
                let here = |w: &Warp| w.state == State::Waiting(wait.clone());
                if self.warps[range.clone()].iter().all(|w| here(w) || ended(w)) {
                    if wait == Wait::Cluster {
                        // What came before the barrier is there after it.
                        self.cluster.deliver_all();
                    }
                    let time = range.clone().map(|w| self.warps[w].timing.clock).max().unwrap_or(0);
                    let mut end = time;
                    for rank in range.start / self.per_block..range.end / self.per_block {
                        end = end.max(self.cluster.ctas[rank].pipes.end_segment(time));
                    }
                    self.meet(&range.filter(|w| here(&self.warps[*w])).collect::<Vec<_>>(), end);
                }
            }
            Wait::Product(issue) => self.rendezvous(warp, issue)?,
            Wait::Products(products) => {
                let unit = self.unit(warp);
                while self.cluster.units[unit].executed < products {
                    self.execute_products(unit, products - self.cluster.units[unit].executed);
                }
                let mut done = HappensBefore::default();
                done.learn(self.cluster.units[unit].agent, u32::MAX, products + 1);
                self.cluster.units[unit].execution(products).into_iter().for_each(|e| done.join_executed(e));
                let agent = self.warps[warp].agent as usize;
                self.cluster.know[agent].acquire(self.warps[warp].live, &done);
                self.warps[warp].resume(0);
            }
            Wait::Named { .. } | Wait::Mbarriers(_) | Wait::Registers(_) | Wait::Words(_) => {}
        }
        Ok(())
    }

    /// The warps of a warp's cluster.
    fn cluster_of(&self, warp: usize) -> std::ops::Range<usize> {
        let warps = self.per_block * self.cluster.context.program.function.cluster as usize;
        let first = warp / warps * warps;
        first..first + warps
    }

    /// These warps have met: each knows what the others know, and goes on.
    fn meet(&mut self, warps: &[usize], time: u64) {
        let mut all = HappensBefore::default();
        for warp in warps {
            let know = &mut self.cluster.know[*warp];
            know.meet_lanes();
            all.join(know.everyone());
        }
        for warp in warps {
            let live = self.warps[*warp].live;
            self.cluster.know[*warp].acquire(live, &all);
            self.warps[*warp].resume(time);
        }
    }

    /// The matrix unit of a warp.
    fn unit(&self, warp: usize) -> usize {
        let groups = self.per_block / GROUP as usize;
        warp / self.per_block * groups + warp % self.per_block / GROUP as usize
    }

    fn site_of(&self, warp: usize) -> Site {
        let warp = &self.warps[warp];
        let instruction = warp.pc.checked_sub(1).and_then(|pc| self.cluster.context.program.code.get(pc));
        let (statement, origin) = instruction.map_or((u32::MAX, 0), |i| (i.statement, i.origin));
        Site { collective: true, ..warp.site(statement, origin, 0) }
    }

    /// Issues a product once all warps of the warpgroup are there.
    fn rendezvous(&mut self, warp: usize, issue: Issue) -> Result<(), SimError> {
        let first = warp / GROUP as usize * GROUP as usize;
        let group = first..first + GROUP as usize;
        let site = self.site_of(warp);
        let mut common: Option<HappensBefore> = None;
        for other in group.clone() {
            match &self.warps[other].state {
                State::Waiting(Wait::Product(theirs)) if theirs.pc == issue.pc => {
                    if *theirs != issue {
                        self.cluster.misuse(&site, Rule::Disagree, || {
                            "the warps of a warpgroup pass different operands".to_string()
                        });
                    }
                    let know = self.cluster.know[other].everyone();
                    match &mut common {
                        Some(common) => common.meet(know),
                        None => common = Some(know.clone()),
                    }
                }
                State::Waiting(Wait::Product(_)) | State::Done => {
                    return Err(SimError::DivergentWarpgroup {
                        origin: self.cluster.context.program.origin(site.origin),
                        block: self.cluster.index(site.rank),
                        group: self.warps[warp].index / GROUP,
                    });
                }
                _ => return Ok(()),
            }
        }
        let program = &self.cluster.context.program;
        let Some(Code::Wgmma { table, d, a, b, meta, .. }) = program.code.get(issue.pc).map(|i| &i.code)
        else {
            return Ok(());
        };
        let common = common.unwrap_or_default();
        let unit = self.unit(warp);
        let places = &program.wgmmas[*table as usize];
        let number = (self.cluster.units[unit].agent, self.cluster.units[unit].issued() + 1);
        let mut operand = |source: &Source, left: bool| -> Option<Operand> {
            let Source::Shared { major, .. } = source else { return None };
            let bits = issue.descriptors[usize::from(!left)];
            let mut places = places.places(bits, *major, left);
            let cluster = &mut self.cluster;
            cluster.inside(&site, &mut places);
            let inside: Vec<u32> = places.iter().copied().filter(|p| *p != NOWHERE).collect();
            cluster.watch_unit(&site, site.rank, (&inside, CHUNK), Kind::Read, number, Some(&common));
            Some(Operand { places, major: *major })
        };
        let left = match a {
            Source::Registers(regs) => Some(Left::Registers(regs.clone())),
            source => operand(source, true).map(Left::Shared),
        };
        let (Some(a), Some(b)) = (left, operand(b, false)) else { return Ok(()) };
        let registers: &[u32] = if let Left::Registers(regs) = &a { regs } else { &[] };
        let ready = group.clone().map(|w| self.warps[w].timing.product).max().unwrap_or(0);
        let instruction = &program.code[issue.pc];
        let shared = u64::from(places.row.shared_cycles(registers.is_empty()));
        let busy = shared.max(u64::from(instruction.issue));
        let pipes = &mut self.cluster.ctas[site.rank as usize].pipes;
        let begin = pipes.multiply(ready.max(self.cluster.units[unit].free), busy, shared);
        self.cluster.units[unit].free = begin + busy;
        if let Some(tracer) = self.cluster.observer.as_mut().and_then(|o| o.tracer.as_mut()) {
            let (origin, row) = (instruction.origin, places.row.name.as_str());
            tracer.product(first, origin, (begin, begin + busy), row, program);
        }
        let mut executed = HappensBefore::default();
        let read: Vec<u32> = registers.iter().chain(meta).copied().collect();
        let sparsity = places.row.sparsity.as_ref();
        for other in group {
            if let (Some(sparsity), Some(meta)) = (sparsity, meta)
                && let Some((lane, group)) = disorder(sparsity, &self.warps[other].registers[*meta as usize])
            {
                let site = self.site_of(other);
                let site = Site { thread: site.thread + lane as u32, ..site };
                self.cluster.misuse(&site, Rule::Metadata, || disordered(group));
            }
            self.own(other, d, &read, issue.accumulate);
            executed.join_executed(self.cluster.know[other].everyone());
            let warp = &mut self.warps[other];
            if let Some(owned) = &mut warp.owned {
                owned.ready = begin + busy.max(u64::from(instruction.latency));
            }
            warp.resume(ready);
        }
        self.cluster.sink.wgmma_count += 1;
        let meta = *meta;
        let product = Product { table: *table, d: d.clone(), a, b, meta, accumulate: issue.accumulate };
        self.cluster.units[unit].issue(product, executed);
        Ok(())
    }

    /// Gives a warp's registers to a product.
    fn own(&mut self, warp: usize, d: &[u32], a: &[u32], accumulate: bool) {
        let site = self.site_of(warp);
        let at = (site.statement, site.origin);
        self.warps[warp].defined(&mut self.cluster, a, u32::MAX, at);
        if accumulate {
            self.warps[warp].defined(&mut self.cluster, d, u32::MAX, at);
        }
        self.warps[warp].define(d, u32::MAX);
        let program = &self.cluster.context.program;
        let Some(owned) = &mut self.warps[warp].owned else { return };
        if let Some(reg) = d.iter().chain(a).find(|r| owned.unfenced(**r)) {
            self.cluster.misuse(&site, Rule::Fence, || {
                format!(
                    "{} has no wgmma.fence between what ordinary code left in it and the product",
                    program.register(*reg)
                )
            });
        }
        if let Some((reg, owner)) = a.iter().find_map(|r| owned.writer(*r).map(|o| (*r, o))) {
            self.cluster.misuse(&site, Rule::Owned, || {
                let owner = program.origin(owner);
                let name = program.register(reg);
                format!(
                    "{name} is read while the wgmma in `{owner}` owns it; no wgmma.wait_group covers it yet"
                )
            });
        }
        owned.issue(d, a, site.origin);
    }

    /// Executes the first products in the queue of a unit that are alike, at most `most`.
    fn execute_products(&mut self, unit: usize, most: u32) {
        let Unit { queue, executed, .. } = &mut self.cluster.units[unit];
        let alike =
            |p: &&Product| queue.front().is_some_and(|first| p.table == first.table && p.d == first.d);
        let count = queue.iter().take(most as usize).take_while(alike).count();
        // A warp waits only for products that were issued.
        *executed += (count as u32).max(1);
        let products: Vec<Product> = queue.drain(..count).collect();
        let Some(first) = products.first() else { return };
        let groups = self.per_block / GROUP as usize;
        let rank = unit / groups;
        let warp = rank * self.per_block + unit % groups * GROUP as usize;
        let Some([a, b, c, d]) = self.warps.get_mut(warp..warp + GROUP as usize) else { return };
        let mut registers = [a, b, c, d].map(|warp| &mut warp.registers[..]);
        let table = &self.cluster.context.program.wgmmas[first.table as usize];
        let shared = &self.cluster.ctas[rank].shared;
        let tiles = &mut self.cluster.tiles;
        table.execute(&products, &mut registers, shared, (&mut tiles.floats, &mut tiles.integers));
    }

    /// Completes what is pending when all warps have ended.
    fn end(mut self) -> Outcome {
        self.cluster.report_unread();
        self.cluster.report_arrivals();
        while !self.cluster.flights.is_empty() {
            self.cluster.complete(0);
        }
        self.cluster.deliver_all();
        self.cluster.end_of_tensor_memory();
        let mut outcome = Outcome {
            sink: Sink::default(),
            touched: Touched::default(),
            longest: 0,
            sum: 0,
            busy: 0,
            begun: 0,
            observer: None,
        };
        for (cta, warps) in self.cluster.ctas.iter_mut().zip(self.warps.chunks(self.per_block)) {
            let end = cta.pipes.end_segment(warps.iter().map(|w| w.timing.clock).max().unwrap_or(0));
            outcome.begun += u64::from(warps.iter().all(|warp| warp.state != State::NotBegun));
            outcome.longest = outcome.longest.max(end);
            outcome.sum += end;
            outcome.busy += cta.pipes.busy();
        }
        outcome.sink = self.cluster.sink;
        outcome.observer = self.cluster.observer;
        outcome.touched = self.cluster.global.finish();
        outcome
    }

    /// Waiting warps, with what each waits for.
    fn deadlock(self) -> SimError {
        let context = self.cluster.context;
        let program = &context.program;
        let mut waits: BTreeMap<(u32, u32, Awaited, String), Vec<u32>> = BTreeMap::new();
        let mut first = None;
        for (i, warp) in self.warps.iter().enumerate() {
            let State::Waiting(wait) = &warp.state else { continue };
            let origin = self.site_of(i).origin;
            first = first.or(Some((warp.rank, origin)));
            let code = &program.code;
            let aside = warp.waits_aside().into_iter().map(|(pc, wait)| {
                let origin = pc.checked_sub(1).and_then(|pc| code.get(pc)).map_or(0, |i| i.origin);
                (origin, wait)
            });
            for (origin, wait) in std::iter::once((origin, wait)).chain(aside) {
                for (on, what) in self.describe(i, wait) {
                    waits.entry((warp.rank, origin, on, what)).or_default().push(warp.index);
                }
            }
        }
        let waits = waits.into_iter().map(|((rank, origin, on, what), warps)| Waiting {
            block: self.cluster.index(rank),
            warps,
            origin: program.origin(origin),
            position: program.position(origin),
            on,
            what,
        });
        let waits = waits.collect();
        let ended: Box<[([u32; 3], u32)]> = self
            .warps
            .iter()
            .filter(|w| w.state == State::Done)
            .map(|w| (self.cluster.index(w.rank), w.index))
            .collect();
        let barriers = self.cluster.barriers.iter().map(|((rank, offset), barrier)| {
            let (buffer, at, _) = context.describe(tilewright_machine::Memory::Shared, i64::from(*offset));
            let block = self.cluster.index(*rank);
            BarrierState { block, buffer, offset: at as u64, phases: barrier.phase }
        });
        let barriers = barriers.collect();
        let (rank, origin) = first.unwrap_or((0, 0));
        let (origin, block) = (program.origin(origin), self.cluster.index(rank));
        let exited = ended.len() as u32;
        let not_begun = self.warps.iter().filter(|w| w.state == State::NotBegun).count() as u32;
        let waiting = self.warps.len() as u32 - exited - not_begun;
        let found = Box::new(self.cluster.sink.report(context).findings());
        SimError::Deadlock { origin, block, waiting, exited, waits, ended, barriers, found }
    }

    /// The awaited events of a warp, each also as text.
    fn describe(&self, warp: usize, wait: &Wait) -> Vec<(Awaited, String)> {
        let of = &self.warps[warp];
        let first = warp / self.per_block * self.per_block;
        let block = &self.warps[first..first + self.per_block];
        let there = |warps: &[Warp]| {
            let waiting = warps.iter().filter(|w| w.state == State::Waiting(wait.clone())).count();
            let ended = warps.iter().filter(|w| w.state == State::Done).count();
            let ended = if ended == 0 { String::new() } else { format!(", {ended} have finished") };
            format!("{waiting} of {} warps are there{ended}", warps.len())
        };
        match wait {
            Wait::Block => vec![(Awaited::Block, format!("the barrier of the block: {}", there(block)))],
            Wait::Cluster => {
                let there = there(&self.warps[self.cluster_of(warp)]);
                vec![(Awaited::Cluster, format!("the barrier of the cluster: {there}"))]
            }
            Wait::Words(words) => words.iter().map(|word| self.cluster.describe_word(word)).collect(),
            Wait::Named { id, threads, phase } => {
                let here = self.cluster.named.get(&(of.rank, *id)).map_or(0, NamedBarrier::threads);
                let what = format!("barrier {id}: {here} of {threads} threads are there");
                vec![(Awaited::Named { id: *id, phases: *phase }, what)]
            }
            Wait::Mbarriers(phases) => {
                phases.iter().map(|phase| self.describe_phase(of.rank, phase.offset, phase.parity)).collect()
            }
            Wait::Registers(registers) => {
                let pool = self.cluster.ctas[of.rank as usize].pool;
                let wanted = 32 * (registers - of.quota);
                let what = format!(
                    "{registers} registers a thread: a warp wants {wanted} more, and the block's pool has {pool}"
                );
                vec![(Awaited::Registers, what)]
            }
            Wait::Product(_) => {
                let what = "the other warps of the warpgroup, to issue a product together".to_string();
                vec![(Awaited::Warpgroup, what)]
            }
            Wait::Products(products) => vec![(Awaited::Products, format!("{products} products"))],
        }
    }

    fn describe_phase(&self, rank: u32, offset: u32, parity: u32) -> (Awaited, String) {
        let memory = tilewright_machine::Memory::Shared;
        let (name, at, _) = self.cluster.context.describe(memory, i64::from(offset));
        let on = Awaited::Mbarrier { buffer: name.clone(), offset: at as u64 };
        let Some(barrier) = self.cluster.barriers.get(&(rank, offset)) else {
            return (on, format!("an mbarrier at byte {at} of `{name}`"));
        };
        let bytes = match barrier.bytes {
            more @ 1.. => format!("{more} bytes"),
            0 => "no bytes".to_string(),
            less => format!("no bytes, for {} more have come than were expected", -less),
        };
        let ended = barrier.phase;
        let what = format!(
            "the mbarrier at byte {at} of `{name}`, parity {parity}: {ended} phases have ended, the next lacks {} arrivals and {bytes}",
            barrier.pending
        );
        (on, what)
    }
}
