//! A warp: 32 lanes in lock-step, resumable between any two instructions.

use tilewright_machine::{ShuffleMode, SyncOp};
use tilewright_simt::Special;

use crate::access::AsyncQueue;
use crate::block::Block;
use crate::context::SHARED_BASE;
use crate::cycles::{Timing, Unit};
use crate::decode::{Code, Instruction, Program};
use crate::error::SimError;

/// What uninitialised registers hold.
const POISON: u32 = u32::MAX;

/// Whether a warp can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Running,
    /// Waits at the block barrier before `pc`.
    AtBarrier,
    Done,
}

/// The masks to return to at the end of a branch or a loop.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Lanes that were active before.
    saved: u32,
    /// Lanes that still have to take the other side of a branch.
    other: u32,
}

/// The state of a warp.
pub(crate) struct Warp {
    pub index: u32,
    pub pc: usize,
    pub state: State,
    /// Lanes that exist.
    live: u32,
    pub active: u32,
    stack: Vec<Frame>,
    pub values: Vec<[u64; 32]>,
    pub registers: Vec<[u32; 32]>,
    pub queue: AsyncQueue,
    /// Warp and block barriers passed.
    pub epoch: u32,
    pub timing: Timing,
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

impl Warp {
    pub(crate) fn new(program: &Program<'_>, index: u32, threads: u32) -> Self {
        let live = match threads - 32 * index {
            n @ 0..32 => (1u32 << n) - 1,
            _ => u32::MAX,
        };
        let mut values = vec![[0; 32]; program.slots];
        let (first, literals) = &program.literals;
        for (slot, bits) in values[*first..].iter_mut().zip(literals) {
            *slot = [*bits; 32];
        }
        Warp {
            index,
            pc: 0,
            state: State::Running,
            live,
            active: live,
            stack: Vec::new(),
            values,
            registers: vec![[POISON; 32]; program.registers],
            queue: AsyncQueue::default(),
            epoch: 0,
            timing: Timing::new(program),
        }
    }

    /// Passes the block barrier, at `time`.
    pub(crate) fn release(&mut self, time: u64) {
        self.state = State::Running;
        self.epoch += 1;
        self.timing.clock = time;
    }

    /// Runs until a block barrier or the end.
    pub(crate) fn run(&mut self, block: &mut Block<'_>) -> Result<(), SimError> {
        let program = &block.context.program;
        let limit = block.context.config.step_limit;
        while self.state == State::Running {
            let Some(instruction) = program.code.get(self.pc) else {
                self.state = State::Done;
                break;
            };
            if block.sink.instructions >= limit {
                return Err(SimError::StepLimit { block: block.index, limit });
            }
            self.pc += 1;
            self.step(block, instruction)?;
        }
        Ok(())
    }

    fn collective(&self, block: &Block<'_>, name: &str, lanes: u32, origin: u32) -> Result<(), SimError> {
        if self.active == lanes {
            return Ok(());
        }
        Err(SimError::DivergentCollective {
            instruction: name.to_string(),
            origin: block.context.program.origin(origin),
            block: block.index,
            warp: self.index,
            active: self.active,
        })
    }

    fn set(&mut self, slot: u32, f: impl Fn(usize) -> u64) {
        let active = self.active;
        let to = &mut self.values[slot as usize];
        lanes(active).for_each(|lane| to[lane] = f(lane));
    }

    fn step(&mut self, block: &mut Block<'_>, instruction: &Instruction) -> Result<(), SimError> {
        let Instruction { code, origin, issue, latency } = instruction;
        let (busy, latency) = (u64::from(*issue), u64::from(*latency));
        if !matches!(code, Code::Else { .. } | Code::EndIf) {
            block.sink.instructions += 1;
        }
        match code {
            Code::Special { dst, special } => {
                let (first, index) = (u64::from(32 * self.index), block.index);
                match special {
                    Special::ThreadIndex => self.set(*dst, |lane| first + lane as u64),
                    Special::BlockIndex(axis) => {
                        let index = index.get(usize::from(*axis)).copied().unwrap_or(0);
                        self.set(*dst, |_| u64::from(index));
                    }
                    Special::ClusterRank => self.set(*dst, |_| 0),
                    Special::SharedBase => self.set(*dst, |_| u64::from(SHARED_BASE)),
                    // The warp's own clock: between two barriers no other warp moves it.
                    Special::Clock => {
                        let now = u64::from(self.timing.clock as u32);
                        self.set(*dst, |_| now);
                    }
                }
                let start = self.timing.issue(&mut block.pipes, Unit::Scalar, 0, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Param { dst, param } => {
                let bits = block.context.args.get(*param as usize).copied().unwrap_or(0);
                self.set(*dst, |_| bits);
                let start = self.timing.issue(&mut block.pipes, Unit::Scalar, 0, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Scalar { dst, eval, args, count } => {
                let mut ready = 0;
                for arg in &args[..usize::from(*count)] {
                    ready = ready.max(self.timing.values[*arg as usize]);
                }
                self.scalar(*dst, *eval, args, usize::from(*count));
                let start = self.timing.issue(&mut block.pipes, Unit::Scalar, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::ReadReg { dst, src } => {
                let (to, from) = (&mut self.values[*dst as usize], &self.registers[*src as usize]);
                lanes(self.active).for_each(|lane| to[lane] = u64::from(from[lane]));
                self.timing.values[*dst as usize] = self.timing.registers[*src as usize];
            }
            Code::WriteReg { dst, src } => {
                let (to, from) = (&mut self.registers[*dst as usize], &self.values[*src as usize]);
                lanes(self.active).for_each(|lane| to[lane] = from[lane] as u32);
                self.timing.registers[*dst as usize] = self.timing.values[*src as usize];
            }
            Code::Load(transfer) => {
                let lost = self.load(block, transfer, *origin);
                let ready = self.address_ready(transfer.place, transfer.guard);
                let start = self.timing.issue(&mut block.pipes, Unit::LoadStore, ready, busy + lost);
                transfer
                    .regs
                    .iter()
                    .for_each(|r| self.timing.registers[*r as usize] = start + latency + lost);
            }
            Code::Store(transfer) => {
                let lost = self.store(block, transfer, *origin);
                let ready = self.address_ready(transfer.place, transfer.guard);
                let ready = ready.max(self.timing.registers_ready(&transfer.regs));
                self.timing.issue(&mut block.pipes, Unit::LoadStore, ready, busy + lost);
            }
            Code::AsyncCopy { statement, bytes, dst, src, guard } => {
                let ready = self.address_ready(*dst, *guard).max(self.address_ready(*src, None));
                // The conflicts of the landing are charged to the issue; the model has no later moment for them.
                let start = self.timing.issue(&mut block.pipes, Unit::LoadStore, ready, busy);
                let lost = self.async_copy(
                    block,
                    *statement,
                    *origin,
                    *bytes,
                    (*dst, *src),
                    *guard,
                    start + latency,
                );
                self.timing.issue(&mut block.pipes, Unit::LoadStore, 0, lost);
            }
            Code::Matrix { statement, table, regs, place } => {
                let program = &block.context.program;
                let name = program.statements[*statement as usize].row.name;
                self.collective(block, name, u32::MAX, *origin)?;
                let table = &program.matrices[*table as usize];
                let lost = self.matrix(block, table, *statement, *origin, regs, *place);
                let mut ready = self.address_ready(*place, None);
                if table.store {
                    ready = ready.max(self.timing.registers_ready(regs));
                }
                let start = self.timing.issue(&mut block.pipes, Unit::LoadStore, ready, busy + lost);
                if !table.store {
                    regs.iter().for_each(|r| self.timing.registers[*r as usize] = start + latency + lost);
                }
            }
            Code::Mma { table, d, a, b } => {
                let table = &block.context.program.products[*table as usize];
                self.collective(block, table.name(), u32::MAX, *origin)?;
                table.execute(&mut self.registers, d, a, b, &mut block.tiles);
                block.sink.mma_count += 1;
                let ready = [a, b, d].iter().map(|r| self.timing.registers_ready(r)).max().unwrap_or(0);
                let start = self.timing.issue(&mut block.pipes, Unit::Tensor, ready, busy);
                d.iter().for_each(|r| self.timing.registers[*r as usize] = start + latency);
            }
            Code::Shuffle { dst, src, mode, operand } => {
                self.collective(block, mode.mnemonic(), self.live, *origin)?;
                let (offered, operands) = (self.values[*src as usize], self.values[*operand as usize]);
                self.set(*dst, |lane| {
                    let mut operand = operands[lane] as u32;
                    if *mode == ShuffleMode::Down {
                        // Any distance beyond the warp is the same; the row's function adds without a check.
                        operand = operand.min(32);
                    }
                    offered[mode.source(lane as u32, operand) as usize % 32]
                });
                let ready = self.timing.values[*src as usize].max(self.timing.values[*operand as usize]);
                let start = self.timing.issue(&mut block.pipes, Unit::LoadStore, ready, busy);
                self.timing.values[*dst as usize] = start + latency;
            }
            Code::Sync(op) => {
                self.timing.issue(&mut block.pipes, Unit::Scalar, 0, busy);
                self.sync(block, *op, *origin)?;
            }
            Code::If { condition, otherwise } => {
                let taken = self.where_true(*condition);
                let (then, other) = (self.active & taken, self.active & !taken);
                self.stack.push(Frame { saved: self.active, other });
                self.active = then;
                if then == 0 {
                    self.take_other();
                    self.pc = *otherwise as usize + 1;
                }
                let ready = self.timing.values[*condition as usize];
                self.timing.issue(&mut block.pipes, Unit::Scalar, ready, busy);
            }
            Code::Else { end } => {
                self.take_other();
                if self.active == 0 {
                    self.pc = *end as usize;
                }
            }
            Code::EndIf => self.pop(),
            Code::LoopBegin { counter, lo, hi, end } => {
                let ready = self.timing.values[*lo as usize].max(self.timing.values[*hi as usize]);
                let first = self.values[*lo as usize];
                self.set(*counter, |lane| first[lane] & 0xffff_ffff);
                self.stack.push(Frame { saved: self.active, other: 0 });
                self.active = self.below(*counter, *hi);
                if self.active == 0 {
                    self.pop();
                    self.pc = *end as usize + 1;
                }
                let start = self.timing.issue(&mut block.pipes, Unit::Scalar, ready, busy);
                self.timing.values[*counter as usize] = start + latency;
            }
            Code::LoopEnd { counter, hi, step, begin } => {
                let steps = self.values[*step as usize];
                let values = &mut self.values[*counter as usize];
                for lane in lanes(self.active) {
                    let step = steps[lane] as u32 as i32;
                    let Some(next) = (values[lane] as u32 as i32).checked_add(step) else {
                        let origin = block.context.program.origin(*origin);
                        return Err(SimError::LoopOverflow { origin, block: block.index });
                    };
                    values[lane] = u64::from(next as u32);
                }
                self.active = self.below(*counter, *hi);
                if self.active == 0 {
                    self.pop();
                } else {
                    self.pc = *begin as usize + 1;
                }
                let start = self.timing.issue(&mut block.pipes, Unit::Scalar, 0, busy);
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

    fn take_other(&mut self) {
        if let Some(frame) = self.stack.last_mut() {
            self.active = std::mem::take(&mut frame.other);
        }
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

    fn scalar(&mut self, dst: u32, eval: fn(&[u64]) -> u64, args: &[u32; 4], count: usize) {
        let mut result = self.values[dst as usize];
        let sources: [&[u64; 32]; 4] = std::array::from_fn(|i| &self.values[args[i] as usize]);
        for lane in lanes(self.active) {
            let inputs = [sources[0][lane], sources[1][lane], sources[2][lane], sources[3][lane]];
            result[lane] = eval(&inputs[..count]);
        }
        self.values[dst as usize] = result;
    }

    fn sync(&mut self, block: &mut Block<'_>, op: SyncOp, origin: u32) -> Result<(), SimError> {
        match op {
            SyncOp::Barrier => {
                if self.active != self.live {
                    return Err(SimError::DivergentBarrier {
                        origin: block.context.program.origin(origin),
                        block: block.index,
                        warp: self.index,
                        active: self.active,
                    });
                }
                self.state = State::AtBarrier;
            }
            SyncOp::WarpBarrier => {
                self.collective(block, &op.spelling(), self.live, origin)?;
                self.epoch += 1;
            }
            SyncOp::AsyncCommit => self.queue.commit(self.active),
            SyncOp::AsyncWaitGroup(n) => self.land(block, Some(n)),
            SyncOp::AsyncWaitAll => self.land(block, None),
            _ => {}
        }
        Ok(())
    }
}
