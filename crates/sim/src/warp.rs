//! A warp: 32 lanes in lock-step, resumable between any two instructions.

mod fragments;
mod sync;

use std::collections::BTreeMap;

use tilewright_machine::{Memory, Unit, Until};
use tilewright_simt::Special;

use crate::clock::{Agent, lanes};
use crate::cluster::Cluster;
use crate::cycles::Timing;
use crate::decode::{Code, Instruction, Program, Source};
use crate::error::SimError;
use crate::memory::SHARED_BASE;
use crate::owned::Owned;
use crate::queues::{AsyncQueue, BulkQueue};
use crate::rule::Rule;
use crate::sink::Site;
use crate::tensor_memory::{Issued, TensorAccesses};

/// Content of uninitialised registers.
const POISON: u32 = u32::MAX;

/// True if a warp can run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// Its block has not begun.
    NotBegun,
    Running,
    /// Waits in the instruction before `pc`.
    Waiting(Wait),
    Done,
}

/// Event that a warp waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Wait {
    /// The other warps of the block.
    Block,
    /// The other warps of the cluster.
    Cluster,
    /// As many threads at a barrier of the block.
    Named { id: u32, threads: u32, phase: u32 },
    /// Phases of mbarriers of the block.
    Mbarriers(Vec<Phase>),
    /// So many registers for each thread.
    Registers(u32),
    /// The other warps of the warpgroup, at the same product.
    Product(Issue),
    /// So many products of the warpgroup.
    Products(u32),
    /// Words of global memory.
    Words(Vec<Word>),
}

/// A word of global memory that a lane waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub lane: usize,
    pub address: u64,
    pub until: Until,
    pub operand: u32,
    pub site: (u32, u32),
}

/// A phase that some lanes wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Phase {
    /// The lanes.
    pub lanes: u32,
    /// The mbarrier's offset in the window.
    pub offset: u32,
    /// The phase's parity.
    pub parity: u32,
    /// True if what peers released to the cluster is learnt.
    pub cluster: bool,
    pub site: (u32, u32),
}

/// A product that a warp is ready to issue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Issue {
    /// The instruction.
    pub pc: usize,
    /// The descriptors; 0 of a factor in registers.
    pub descriptors: [u64; 2],
    pub accumulate: bool,
}

/// Target at the end of a branch or a loop.
#[derive(Clone, Debug)]
struct Frame {
    /// Lanes that were active before.
    saved: u32,
    /// The other side of a branch, where lanes have still to come to its end.
    other: Option<Box<Strand>>,
}

/// Lanes on a side of a branch that do not run now, for those on the other side do.
#[derive(Clone, Debug)]
struct Strand {
    pc: usize,
    state: State,
    active: u32,
    /// The branches and loops within this side.
    stack: Vec<Frame>,
}

impl Strand {
    fn can_run(&self) -> bool {
        self.state == State::Running || can_run(&self.stack)
    }
}

/// True if lanes that wait in these branches for their turn can run.
fn can_run(stack: &[Frame]) -> bool {
    stack.iter().any(|frame| frame.other.as_ref().is_some_and(|other| other.can_run()))
}

/// The state of a warp.
pub(crate) struct Warp {
    /// In its block.
    pub index: u32,
    /// The block in its cluster.
    pub rank: u32,
    /// In the cluster.
    pub agent: Agent,
    pub pc: usize,
    pub state: State,
    /// Lanes that exist.
    pub live: u32,
    pub active: u32,
    stack: Vec<Frame>,
    pub values: Vec<[u64; 32]>,
    pub registers: Vec<[u32; 32]>,
    /// Of each register, the lanes that something has written; empty where nobody looks.
    written: Vec<u32>,
    pub queue: AsyncQueue,
    pub bulk: BulkQueue,
    /// The registers that products own, where there are products.
    pub owned: Option<Owned>,
    /// Its accesses to tensor memory.
    pub tensor: TensorAccesses,
    /// Registers that each thread has.
    pub quota: u32,
    pub timing: Timing,
    /// Executions of each print so far.
    pub printed: BTreeMap<usize, u64>,
}

impl Warp {
    pub(crate) fn new(program: &Program<'_>, check_registers: bool, rank: u32, index: u32) -> Self {
        let threads = program.function.threads;
        let live = match threads - 32 * index {
            n @ 0..32 => (1u32 << n) - 1,
            _ => u32::MAX,
        };
        let mut values = vec![[0; 32]; program.slots];
        let (first, literals) = &program.literals;
        for (slot, bits) in values[*first..].iter_mut().zip(literals) {
            *slot = [*bits; 32];
        }
        let limits = program.function.arch.limits();
        Warp {
            index,
            rank,
            agent: (rank * threads.div_ceil(32) + index) as Agent,
            pc: 0,
            state: State::Running,
            live,
            active: live,
            stack: Vec::new(),
            values,
            registers: vec![[POISON; 32]; program.registers],
            written: vec![0; if check_registers { program.registers } else { 0 }],
            queue: AsyncQueue::default(),
            bulk: BulkQueue::default(),
            owned: (!program.wgmmas.is_empty()).then(|| Owned::new(program.registers)),
            tensor: TensorAccesses::default(),
            // Registers are given out in groups of eight.
            quota: limits.registers_of_a_thread(threads * program.function.resident).next_multiple_of(8),
            timing: Timing::new(program),
            printed: BTreeMap::new(),
        }
    }

    /// Goes on, at `time` of the cycle model or later.
    pub(crate) fn resume(&mut self, time: u64) {
        self.state = State::Running;
        self.timing.clock = self.timing.clock.max(time);
    }

    /// Runs until it waits or ends, or for `quantum` instructions.
    pub(crate) fn run(&mut self, cluster: &mut Cluster<'_>, quantum: u64) -> Result<(), SimError> {
        let program = &cluster.context.program;
        let limit = cluster.context.config.step_limit;
        let limit = limit.saturating_mul(cluster.ctas.len() as u64);
        if let Some(observer) = &mut cluster.observer {
            observer.resume(self.agent as usize, self.timing.clock, program);
        }
        for _ in 0..quantum {
            let Some(instruction) = program.code.get(self.pc) else {
                self.state = State::Done;
                let cta = &mut cluster.ctas[self.rank as usize];
                cta.running -= 1;
                break;
            };
            if cluster.sink.instructions >= limit {
                let limit = cluster.context.config.step_limit;
                return Err(SimError::StepLimit { block: cluster.index(self.rank), limit });
            }
            self.pc += 1;
            let before = self.timing.clock;
            self.step(cluster, instruction)?;
            if let Some(observer) = &mut cluster.observer {
                self.observe(observer, cluster.context, instruction, before);
            }
            if self.state != State::Running && !self.switch() {
                break;
            }
        }
        Ok(())
    }

    /// While the active lanes wait on one side of a branch, lets those run on the other side that can; false if there are none.
    pub(crate) fn switch(&mut self) -> bool {
        while self.state != State::Running {
            let side = |frame: &Frame| frame.other.as_ref().is_some_and(|other| other.can_run());
            let Some(at) = self.stack.iter().rposition(side) else { return false };
            let inner = self.stack.split_off(at + 1);
            let Some(other) = self.stack[at].other.take() else { return false };
            let state = std::mem::replace(&mut self.state, other.state);
            let pc = std::mem::replace(&mut self.pc, other.pc);
            let active = std::mem::replace(&mut self.active, other.active);
            self.stack[at].other = Some(Box::new(Strand { pc, state, active, stack: inner }));
            self.stack.extend(other.stack);
        }
        true
    }

    /// Calls `f` with the state of the active lanes, and with that of the lanes on other sides of branches.
    pub(crate) fn waits_mut(&mut self, f: &mut impl FnMut(&mut State)) {
        fn aside(stack: &mut [Frame], f: &mut impl FnMut(&mut State)) {
            for other in stack.iter_mut().filter_map(|frame| frame.other.as_mut()) {
                f(&mut other.state);
                aside(&mut other.stack, f);
            }
        }
        f(&mut self.state);
        aside(&mut self.stack, f);
    }

    /// Waits of lanes on other sides of branches than the active ones, each with the position of its instruction.
    pub(crate) fn waits_aside(&self) -> Vec<(usize, &Wait)> {
        let mut found = Vec::new();
        let mut rest: Vec<&[Frame]> = vec![&self.stack];
        while let Some(stack) = rest.pop() {
            for other in stack.iter().filter_map(|frame| frame.other.as_ref()) {
                if let State::Waiting(wait) = &other.state {
                    found.push((other.pc, wait));
                }
                rest.push(&other.stack);
            }
        }
        found
    }

    fn wait(&mut self, wait: Wait) {
        self.state = State::Waiting(wait);
    }

    /// The site of a warp's own instruction.
    pub(crate) fn together(&self, statement: u32, origin: u32) -> Site {
        Site {
            collective: true,
            ..self.site(statement, origin, self.active.trailing_zeros().min(31) as usize)
        }
    }

    fn collective(
        &self,
        cluster: &mut Cluster<'_>,
        name: &str,
        lanes: u32,
        origin: u32,
    ) -> Result<(), SimError> {
        if self.active == lanes {
            cluster.know[self.agent as usize].converge();
            return Ok(());
        }
        Err(SimError::DivergentCollective {
            instruction: name.to_string(),
            origin: cluster.context.program.origin(origin),
            block: cluster.index(self.rank),
            warp: self.index,
            active: self.active,
        })
    }

    fn set(&mut self, slot: u32, f: impl Fn(usize) -> u64) {
        let active = self.active;
        let to = &mut self.values[slot as usize];
        lanes(active).for_each(|lane| to[lane] = f(lane));
    }

    fn step(&mut self, cluster: &mut Cluster<'_>, instruction: &Instruction) -> Result<(), SimError> {
        let Instruction { code, statement: own, origin, issue, latency, .. } = instruction;
        let at = (*own, *origin);
        let (busy, latency) = (u64::from(*issue), u64::from(*latency));
        if !matches!(code, Code::Else { .. } | Code::EndIf) {
            cluster.sink.instructions += 1;
        }
        match code {
            Code::Special { dst, special } => {
                let (first, index) = (u64::from(32 * self.index), cluster.index(self.rank));
                match special {
                    Special::ThreadIndex => self.set(*dst, |lane| first + lane as u64),
                    Special::BlockIndex(axis) => {
                        let index = index.get(usize::from(*axis)).copied().unwrap_or(0);
                        self.set(*dst, |_| u64::from(index));
                    }
                    Special::ClusterRank => {
                        let rank = u64::from(self.rank - cluster.peers(self.rank).start);
                        self.set(*dst, |_| rank);
                    }
                    Special::SharedBase => {
                        let rank = self.rank - cluster.peers(self.rank).start;
                        let base = u64::from(rank << 24 | SHARED_BASE);
                        self.set(*dst, |_| base);
                    }
                    // The warp's own clock: between two barriers no other warp moves it.
                    Special::Clock => {
                        let now = u64::from(self.timing.clock as u32);
                        self.set(*dst, |_| now);
                    }
                }
                let start = self.issue(cluster, Unit::Issue, 0, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Param { dst, param } => {
                let bits = cluster.context.args.get(*param as usize).copied().unwrap_or(0);
                self.set(*dst, |_| bits);
                let start = self.issue(cluster, Unit::Issue, 0, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Scalar { dst, eval, args, count, unit } => {
                let mut ready = 0;
                for arg in &args[..usize::from(*count)] {
                    ready = ready.max(self.timing.values[*arg as usize]);
                }
                self.scalar(*dst, *eval, args, usize::from(*count));
                let start = self.issue(cluster, *unit, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::ReadReg { dst, src } => {
                self.touch(cluster, &[*src], false, self.active, at);
                let (to, from) = (&mut self.values[*dst as usize], &self.registers[*src as usize]);
                lanes(self.active).for_each(|lane| to[lane] = u64::from(from[lane]));
                self.timing.values[*dst as usize] = self.timing.registers[*src as usize];
            }
            Code::WriteReg { dst, src } => {
                self.touch(cluster, &[*dst], true, self.active, at);
                let (to, from) = (&mut self.registers[*dst as usize], &self.values[*src as usize]);
                lanes(self.active).for_each(|lane| to[lane] = from[lane] as u32);
                self.timing.registers[*dst as usize] = self.timing.values[*src as usize];
            }
            Code::Load(transfer) => {
                self.touch(cluster, &transfer.regs, true, self.active, at);
                let lost = self.load(cluster, transfer, *origin);
                let ready = self.address_ready(transfer.place, transfer.guard);
                let start = self.issue(cluster, Unit::Lsu, ready, busy + lost);
                transfer
                    .regs
                    .iter()
                    .for_each(|r| self.timing.registers[*r as usize] = start + latency + lost);
            }
            Code::Lookup { dst, transfer } => {
                self.lookup(cluster, *dst, transfer, *origin);
                let ready = self.address_ready(transfer.place, transfer.guard);
                let start = self.issue(cluster, Unit::Lsu, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::TensorMap { dst, number } => {
                let numbers = self.values[*number as usize];
                self.set(*dst, |lane| numbers[lane]);
                let ready = self.timing.values[*number as usize];
                let start = self.issue(cluster, Unit::Issue, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Store(transfer) => {
                self.touch(cluster, &transfer.regs, false, self.guarded(transfer.guard), at);
                let lost = self.store(cluster, transfer, *origin);
                let ready = self.address_ready(transfer.place, transfer.guard);
                let ready = ready.max(self.timing.registers_ready(&transfer.regs));
                self.issue(cluster, Unit::Lsu, ready, busy + lost);
            }
            Code::Atomic(atomic) => {
                self.atomic(cluster, atomic, *origin);
                let ready =
                    self.address_ready(atomic.place, atomic.guard).max(self.slots_ready(&atomic.operands));
                let start = self.issue(cluster, Unit::Lsu, ready, busy);
                if let Some(dst) = atomic.dst {
                    self.timing.values[dst as usize] = start + latency;
                }
            }
            Code::Await { statement, place, until, operand } => {
                let ready = self.address_ready(*place, Some(*operand));
                self.issue(cluster, Unit::Issue, ready, busy);
                self.await_words(cluster, (*place, *until, *operand), (*statement, *origin));
            }
            Code::AsyncCopy { statement, bytes, dst, src, guard } => {
                let ready = self.address_ready(*dst, *guard).max(self.address_ready(*src, None));
                // The conflicts of the landing are charged to the issue; the model has no later moment for them.
                let start = self.issue(cluster, Unit::Lsu, ready, busy);
                let lost = self.async_copy(
                    cluster,
                    *statement,
                    *origin,
                    *bytes,
                    (*dst, *src),
                    *guard,
                    start + latency,
                );
                self.issue(cluster, Unit::Lsu, 0, lost);
            }
            Code::Matrix { statement, table, regs, place } => {
                let program = &cluster.context.program;
                let name = program.statements[*statement as usize].name;
                self.collective(cluster, name, u32::MAX, *origin)?;
                let table = &program.matrices[*table as usize];
                self.touch(cluster, regs, !table.store, u32::MAX, at);
                let lost = self.matrix(cluster, table, *statement, *origin, regs, *place);
                let mut ready = self.address_ready(*place, None);
                if table.store {
                    ready = ready.max(self.timing.registers_ready(regs));
                }
                let start = self.issue(cluster, Unit::Lsu, ready, busy + lost);
                if !table.store {
                    regs.iter().for_each(|r| self.timing.registers[*r as usize] = start + latency + lost);
                }
            }
            Code::Mma { table, d, a, b, meta, scales } => {
                let table = &cluster.context.program.products[*table as usize];
                self.collective(cluster, table.name(), u32::MAX, *origin)?;
                self.defined(cluster, d, u32::MAX, at);
                let beside: Vec<u32> =
                    meta.iter().copied().chain(scales.iter().flatten().map(|s| s.0)).collect();
                let read = [a.as_slice(), b, &beside];
                read.into_iter().for_each(|r| self.touch(cluster, r, false, u32::MAX, at));
                self.touch(cluster, d, true, u32::MAX, at);
                if let Some((lane, group)) = table.disorder(&self.registers, *meta) {
                    let site = self.site(*own, *origin, lane);
                    cluster.misuse(&site, Rule::Metadata, || disordered(group));
                }
                table.execute(&mut self.registers, [d, a, b], (*meta, *scales), &mut cluster.tiles.warp);
                cluster.sink.mma_count += 1;
                let ready = [a.as_slice(), b, &beside, d]
                    .iter()
                    .map(|r| self.timing.registers_ready(r))
                    .max()
                    .unwrap_or(0);
                let start = self.issue(cluster, Unit::Tensor, ready, busy);
                d.iter().for_each(|r| self.timing.registers[*r as usize] = start + latency);
            }
            Code::Shuffle { dst, src, mode, operand } => {
                self.collective(cluster, mode.mnemonic(), self.live, *origin)?;
                let (offered, operands) = (self.values[*src as usize], self.values[*operand as usize]);
                let source = |lane: usize| mode.source(lane as u32, operands[lane] as u32) as usize % 32;
                if let Some(lane) = lanes(self.active).find(|lane| self.live & (1 << source(*lane)) == 0) {
                    let from = 32 * self.index + source(lane) as u32;
                    cluster.misuse(&self.site(*own, *origin, lane), Rule::Place, || {
                        format!("it takes the value of thread {from}, which the block does not have")
                    });
                }
                self.set(*dst, |lane| offered[source(lane)]);
                let ready = self.timing.values[*src as usize].max(self.timing.values[*operand as usize]);
                let start = self.issue(cluster, Unit::Lsu, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Wgmma { statement, a, b, meta, accumulate, .. } => {
                self.collective(cluster, "wgmma", u32::MAX, *origin)?;
                let accumulate = self.uniform(cluster, *accumulate, *statement, *origin) != 0;
                let mut descriptors = [0; 2];
                let mut ready = self.timing.registers_ready(meta.as_slice());
                for (bits, source) in descriptors.iter_mut().zip([a, b]) {
                    match source {
                        Source::Registers(regs) => ready = ready.max(self.timing.registers_ready(regs)),
                        Source::Shared { low, high, .. } => {
                            ready = ready.max(self.timing.values[*low as usize]);
                            let low = self.uniform(cluster, *low, *statement, *origin) & 0xffff_ffff;
                            *bits = low | u64::from(*high) << 32;
                        }
                        // A product of warpgroups has none there: the program has been verified.
                        Source::Tensor(_) => {}
                    }
                }
                // When the product begins is known when all warps of the warpgroup are there.
                let pipes = &mut cluster.ctas[self.rank as usize].pipes;
                self.timing.product = self.timing.order(pipes, Unit::Tensor, ready, busy);
                self.wait(Wait::Product(Issue { pc: self.pc - 1, descriptors, accumulate }));
            }
            Code::Sums { statement, row, d, a, b, scales, meta, accumulate } => {
                let product = Issued {
                    row,
                    d: *d,
                    factors: [a, b],
                    scales: *scales,
                    meta: *meta,
                    accumulate: *accumulate,
                };
                self.sums(cluster, &product, (*statement, *origin), (busy, latency));
            }
            Code::ScaleCopy { statement, low, high, to } => {
                self.scale_copy(cluster, (*low, *high), *to, (*statement, *origin), (busy, latency));
            }
            Code::TensorCopy { statement, table, regs, place } => {
                let table = &cluster.context.program.tensor_copies[*table as usize];
                self.collective(cluster, table.row.name, u32::MAX, *origin)?;
                let load = table.row.dst == Memory::Register;
                self.touch(cluster, regs, load, u32::MAX, at);
                let address = self.uniform(cluster, place.base, *statement, *origin) as u32;
                let address = address.wrapping_add(place.offset as u32);
                let site = self.together(*statement, *origin);
                self.tensor_copy(cluster, table, regs, address, &site);
                let mut ready = self.address_ready(*place, None);
                if !load {
                    ready = ready.max(self.timing.registers_ready(regs));
                }
                let start = self.issue(cluster, Unit::Lsu, ready, busy);
                if load {
                    regs.iter().for_each(|r| self.timing.registers[*r as usize] = start + latency);
                }
            }
            Code::TensorAllocate { statement, columns, to } => {
                self.collective(cluster, "tcgen05.alloc", u32::MAX, *origin)?;
                let site = self.together(*statement, *origin);
                self.tensor_allocate(cluster, *columns, *to, &site);
                let ready = self.address_ready(*to, None);
                self.issue(cluster, Unit::Issue, ready, busy);
            }
            Code::TensorFree { statement, columns, address } => {
                self.collective(cluster, "tcgen05.dealloc", u32::MAX, *origin)?;
                let site = self.together(*statement, *origin);
                let first = self.uniform(cluster, *address, *statement, *origin) as u32;
                self.tensor_free(cluster, *columns, first, &site);
                let ready = self.timing.values[*address as usize];
                self.issue(cluster, Unit::Issue, ready, busy);
            }
            Code::Tensor(copy) => self.tensor(cluster, copy, *origin, (busy, latency)),
            Code::Bulk(copy) => self.bulk(cluster, copy, *origin, (busy, latency)),
            Code::TryCancel { statement, answer, barrier } => {
                self.try_cancel(cluster, (*answer, *barrier), (*statement, *origin), (busy, latency));
            }
            Code::Cancelled { dst, answer } => {
                self.touch(cluster, answer, false, self.active, at);
                self.cancelled(cluster, *dst, answer);
                let start = self.issue(cluster, Unit::Alu, self.timing.registers_ready(answer), busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Mbarrier { statement, op, place, operand } => {
                let ready = self.address_ready(*place, Some(*operand));
                self.issue(cluster, Unit::Issue, ready, busy);
                self.mbarrier(cluster, *op, *place, *operand, (*statement, *origin));
            }
            Code::Elect { dst } => {
                let elected = self.active.trailing_zeros() as usize;
                self.set(*dst, |lane| u64::from(lane == elected));
                let start = self.issue(cluster, Unit::Issue, 0, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Assert { holds } => {
                let broken = self.active & !self.where_true(*holds);
                for lane in lanes(broken) {
                    let site = self.site(*own, *origin, lane);
                    cluster.misuse(&site, Rule::Assertion, || "the assertion does not hold".to_string());
                }
            }
            Code::Print { what, operands } => self.print(cluster, what, operands),
            Code::Vote { dst, src } => {
                self.collective(cluster, "vote.sync", self.live, *origin)?;
                let any = u64::from(self.where_true(*src) & self.active != 0);
                self.set(*dst, |_| any);
                let ready = self.timing.values[*src as usize];
                let start = self.issue(cluster, Unit::Issue, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::BarrierSync { statement, id, threads } => {
                let ready = self.timing.values[*id as usize];
                self.issue(cluster, Unit::Issue, ready, busy);
                self.barrier_sync(cluster, (*id, *threads), (*statement, *origin))?;
            }
            Code::Sync { statement, op } => {
                self.issue(cluster, Unit::Issue, 0, busy);
                self.sync(cluster, *op, *statement, *origin)?;
            }
            Code::If { condition, otherwise } => {
                let taken = self.where_true(*condition);
                let (then, other) = (self.active & taken, self.active & !taken);
                let (saved, behind) = (self.active, *otherwise as usize + 1);
                let strand = |active| Strand { pc: behind, state: State::Running, active, stack: Vec::new() };
                let aside = (then != 0 && other != 0).then(|| Box::new(strand(other)));
                self.stack.push(Frame { saved, other: aside });
                (self.active, self.pc) = if then == 0 { (other, behind) } else { (then, self.pc) };
                let ready = self.timing.values[*condition as usize];
                self.issue(cluster, Unit::Issue, ready, busy);
            }
            Code::Else { end } => {
                self.pc = *end as usize;
                self.take_other();
            }
            Code::EndIf => {
                if !self.take_other() {
                    self.pop();
                }
            }
            Code::LoopBegin { counter, lo, hi, end } => {
                let ready = self.timing.values[*lo as usize].max(self.timing.values[*hi as usize]);
                let first = self.values[*lo as usize];
                self.set(*counter, |lane| first[lane] & 0xffff_ffff);
                self.stack.push(Frame { saved: self.active, other: None });
                self.active = self.below(*counter, *hi);
                if self.active == 0 {
                    self.pop();
                    self.pc = *end as usize + 1;
                }
                let start = self.issue(cluster, Unit::Issue, ready, busy);
                self.timing.values[*counter as usize] = start + latency;
            }
            Code::Break { condition, end } => {
                self.active &= !self.where_true(*condition);
                if self.active == 0 {
                    self.pop();
                    self.pc = *end as usize + 1;
                }
                let ready = self.timing.values[*condition as usize];
                self.issue(cluster, Unit::Issue, ready, busy);
            }
            Code::LoopEnd { counter, hi, step, begin } => {
                let steps = self.values[*step as usize];
                let values = &mut self.values[*counter as usize];
                for lane in lanes(self.active) {
                    let step = steps[lane] as u32 as i32;
                    let Some(next) = (values[lane] as u32 as i32).checked_add(step) else {
                        let origin = cluster.context.program.origin(*origin);
                        return Err(SimError::LoopOverflow { origin, block: cluster.index(self.rank) });
                    };
                    values[lane] = u64::from(next as u32);
                }
                self.active = self.below(*counter, *hi);
                if self.active == 0 {
                    self.pop();
                } else {
                    self.pc = *begin as usize + 1;
                }
                let start = self.issue(cluster, Unit::Issue, 0, busy);
                self.timing.values[*counter as usize] = start + latency;
            }
        }
        Ok(())
    }

    /// Returns to the lanes that were active before the innermost branch or loop.
    fn pop(&mut self) {
        if let Some(frame) = self.stack.pop() {
            self.active = frame.saved;
        }
    }

    /// At the end of a side of a branch, goes on with the lanes of the other side that are not at its end; whether there are any.
    fn take_other(&mut self) -> bool {
        let Some(other) = self.stack.last_mut().and_then(|frame| frame.other.take()) else { return false };
        let Strand { pc, state, active, stack } = *other;
        (self.pc, self.state, self.active) = (pc, state, active);
        self.stack.extend(stack);
        true
    }

    /// The lanes, active or not, where a predicate holds.
    pub(crate) fn where_true(&self, slot: u32) -> u32 {
        let values = &self.values[slot as usize];
        (0..32).fold(0, |mask, lane| mask | u32::from(values[lane] != 0) << lane)
    }

    /// The active lanes in which the counter is below the bound.
    fn below(&self, counter: u32, hi: u32) -> u32 {
        let (counter, hi) = (&self.values[counter as usize], &self.values[hi as usize]);
        lanes(self.active)
            .filter(|lane| (counter[*lane] as u32 as i32) < hi[*lane] as u32 as i32)
            .fold(0, |mask, lane| mask | 1 << lane)
    }

    /// Cycle at which the warp's next instruction begins on a unit of its multiprocessor, which it keeps for `busy` cycles, once its
    /// operands are ready.
    pub(crate) fn issue(&mut self, cluster: &mut Cluster<'_>, unit: Unit, ready: u64, busy: u64) -> u64 {
        self.timing.issue(&mut cluster.ctas[self.rank as usize].pipes, unit, ready, busy)
    }

    fn scalar(&mut self, dst: u32, eval: fn(&[u64]) -> u64, args: &[u32; 4], count: usize) {
        let mut result = self.values[dst as usize];
        let sources: [&[u64; 32]; 4] = std::array::from_fn(|i| &self.values[args[i] as usize]);
        for lane in lanes(self.active) {
            let inputs = [sources[0][lane], sources[1][lane], sources[2][lane], sources[3][lane]];
            result[lane] = eval(&inputs[..count]);
        }
        self.values[dst as usize] = result;
    }

    /// The value that all lanes have; others are reported.
    fn uniform(&self, cluster: &mut Cluster<'_>, slot: u32, statement: u32, origin: u32) -> u64 {
        let values = &self.values[slot as usize];
        if values.iter().any(|v| *v != values[0]) {
            let site = self.together(statement, origin);
            cluster.misuse(&site, Rule::Disagree, || {
                "the threads of a warp pass different operands".to_string()
            });
        }
        values[0]
    }
}

/// The message for metadata that are out of order.
pub(crate) fn disordered(group: u32) -> String {
    format!("the places of group {group} of its register of metadata do not increase")
}
