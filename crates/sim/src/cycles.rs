//! The cycle model.
//!
//! A warp issues in order. An instruction starts when its operands are ready (the latencies of the instructions that made
//! them), and when the warp's previous use of the same unit is over (its issue cycles, plus one cycle for each shared-memory
//! wavefront beyond the ideal). Every instruction costs what the architecture's table of `machine` says. That gives the time at which each warp reaches a barrier if nothing else runs.
//!
//! Between two barriers a block takes the longest of: its slowest warp; the issue slots of its schedulers, of which an instruction takes
//! one; and the work of each kind of unit, evenly divided among those that there are. Bandwidth and caches of global memory are not
//! modelled: a load takes the latency of the L2 cache.
//!
//! Matrix products of a warpgroup occupy the tensor cores, which all warpgroups of the block share, for the longer of their arithmetic and
//! of reading their operands; tensor and bulk copies occupy the one unit that makes them, by their bytes. Both go on while their warp does
//! something else, until it waits for them. Warps are simulated one after the other, each as far as it comes, so such a unit has a
//! calendar: what is simulated later gets the first gap after its operands are ready. Who waits for an mbarrier goes on after the last
//! arrival and the last byte of the phase.
//!
//! A kernel runs in waves of `multiprocessors × resident` blocks, where shared memory, threads and registers decide how
//! many are resident; a wave takes as long as one block alone, or as long as the resident blocks together occupy their
//! busiest unit. Blocks of a persistent grid are one wave, which takes as long as the longest.

use tilewright_machine::{Rate, Unit, timing};
use tilewright_simt::Function;

use crate::decode::Program;

/// Busy times of a unit that several warps share.
#[derive(Clone, Debug, Default)]
struct Calendar {
    /// Intervals in which it is, in order, none touching the next.
    busy: Vec<(u64, u64)>,
    /// Time before which nothing matters any more.
    floor: u64,
}

impl Calendar {
    /// Intervals that are kept.
    const LIMIT: usize = 64;

    /// Occupies the unit for the first free `length` cycles from `ready` on; returns when they begin. Warps are not simulated in the order
    /// of time, so what comes later may begin earlier.
    fn reserve(&mut self, ready: u64, length: u64) -> u64 {
        let mut begin = ready.max(self.floor);
        let mut at = self.busy.partition_point(|(_, end)| *end <= begin);
        while let Some((start, end)) = self.busy.get(at)
            && begin + length > *start
        {
            begin = *end;
            at += 1;
        }
        if length == 0 {
            return begin;
        }
        self.busy.insert(at, (begin, begin + length));
        for next in [at + 1, at] {
            if next > 0 && self.busy.get(next).is_some_and(|(start, _)| *start == self.busy[next - 1].1) {
                self.busy[next - 1].1 = self.busy.remove(next).1;
            }
        }
        if self.busy.len() > Self::LIMIT {
            self.floor = self.busy.drain(..Self::LIMIT / 2).map(|(_, end)| end).max().unwrap_or(self.floor);
        }
        begin
    }
}

/// Cycles for which each unit is occupied, in the order of [`Unit::ALL`].
type Work = [u64; Unit::COUNT];

/// Work since the last block barrier, and in all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pipes {
    work: Work,
    start: u64,
    total: Work,
    /// The tensor cores, by products of warpgroups.
    products: Calendar,
    /// The tensor memory accelerator.
    copies: Calendar,
}

impl Pipes {
    /// Cycles of the busiest unit, the work evenly divided among those of a kind.
    fn longest(work: Work) -> u64 {
        let each = Unit::ALL.map(|unit| work[unit as usize].div_ceil(u64::from(unit.count())));
        each.into_iter().fold(0, u64::max)
    }

    /// Ends the segment whose slowest warp alone would end at `slowest`; returns when it ends.
    pub(crate) fn end_segment(&mut self, slowest: u64) -> u64 {
        let end = slowest.max(self.start + Pipes::longest(self.work));
        let total = std::array::from_fn(|i| self.total[i] + self.work[i]);
        let (products, copies) = (std::mem::take(&mut self.products), std::mem::take(&mut self.copies));
        *self = Pipes { start: end, total, products, copies, ..Pipes::default() };
        end
    }

    /// Executes a product of a warpgroup whose operands are ready, and occupy shared memory for `shared`; returns when it begins.
    pub(crate) fn multiply(&mut self, ready: u64, busy: u64, shared: u64) -> u64 {
        self.work[Unit::Lsu as usize] += shared;
        self.products.reserve(ready, busy)
    }

    /// Executes a copy of the tensor memory accelerator that was issued at `ready`; returns when it begins.
    pub(crate) fn copy(&mut self, ready: u64, busy: u64) -> u64 {
        self.copies.reserve(ready, busy)
    }

    /// Cycles for which the busiest unit has been occupied.
    pub(crate) fn busy(&self) -> u64 {
        Pipes::longest(self.total)
    }
}

/// The clock of a warp and when its values are ready.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    pub clock: u64,
    /// Cycle at which the warp's last use of each unit ends.
    free: Work,
    /// Cycles for which units were occupied since this was taken.
    pub spent: u64,
    /// Cycle at which the last product's operands were ready.
    pub product: u64,
    pub values: Vec<u64>,
    pub registers: Vec<u64>,
}

impl Timing {
    pub(crate) fn new(program: &Program<'_>) -> Self {
        Timing {
            clock: 0,
            free: [0; Unit::COUNT],
            spent: 0,
            product: 0,
            values: vec![0; program.slots],
            registers: vec![0; program.registers],
        }
    }

    /// Cycle at which all these registers are ready.
    pub(crate) fn registers_ready(&self, registers: &[u32]) -> u64 {
        registers.iter().map(|r| self.registers[*r as usize]).max().unwrap_or(0)
    }

    /// Issues an instruction whose operands are ready at `ready`; returns when it starts. Sequences of several instructions take
    /// the issue slots for all of them, any other instruction for one cycle.
    pub(crate) fn issue(&mut self, pipes: &mut Pipes, unit: Unit, ready: u64, busy: u64) -> u64 {
        let start = self.clock.max(ready);
        self.spent += busy;
        pipes.work[unit as usize] += busy;
        if unit == Unit::Issue {
            self.clock = start + busy;
            return start;
        }
        let begin = start.max(self.free[unit as usize]);
        self.free[unit as usize] = begin + busy;
        pipes.work[Unit::Issue as usize] += 1;
        self.clock = begin + 1;
        begin
    }

    /// Issues an instruction that a unit does later, which takes orders while it is busy; returns when it is issued.
    pub(crate) fn order(&mut self, pipes: &mut Pipes, unit: Unit, ready: u64, busy: u64) -> u64 {
        let start = self.clock.max(ready);
        self.spent += busy;
        pipes.work[unit as usize] += busy;
        pipes.work[Unit::Issue as usize] += 1;
        self.clock = start + 1;
        start
    }
}

/// Registers of a thread: its fragments, and a guess for the scalars and addresses that live beside them.
const SCALAR_REGISTERS: u32 = 32;

/// Blocks that are resident on one multiprocessor together.
fn resident(function: &Function) -> u64 {
    let limits = function.arch.limits();
    let threads = function.threads.next_multiple_of(32);
    let fragments: u32 = function.arrays.iter().map(|a| a.registers).fold(0, u32::saturating_add);
    let registers = fragments.saturating_add(SCALAR_REGISTERS).min(limits.registers_per_thread);
    u64::from(limits.resident_blocks(threads, registers, function.shared_bytes))
}

/// Blocks that a GPU runs together.
pub(crate) fn blocks_at_once(function: &Function) -> u64 {
    timing(function.arch).rate(Rate::Multiprocessors) as u64 * resident(function)
}

/// Cycles of a kernel of `blocks` blocks: the longest one took `longest`, all together `sum`, and they occupied their
/// busiest units for `busy`.
pub(crate) fn kernel(function: &Function, blocks: u64, longest: u64, sum: u64, busy: u64) -> u64 {
    let blocks = blocks.max(1);
    let multiprocessors = timing(function.arch).rate(Rate::Multiprocessors) as u64;
    let resident = resident(function).min(blocks.div_ceil(multiprocessors));
    let waves = blocks.div_ceil(multiprocessors * resident);
    let (mean, mean_busy) = (sum.div_ceil(blocks), busy.div_ceil(blocks));
    longest.max(waves * mean.max(resident * mean_busy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tilewright_machine::Arch;
    use tilewright_simt::Builder;

    #[test]
    fn a_segment_takes_as_long_as_its_slowest_warp_or_its_busiest_unit() {
        let mut pipes = Pipes::default();
        pipes.work[Unit::Tensor as usize] = 400;
        pipes.work[Unit::Lsu as usize] = 90;
        assert_eq!(pipes.end_segment(50), 100);
        pipes.work[Unit::Lsu as usize] = 30;
        assert_eq!(pipes.end_segment(200), 200);
        assert_eq!(pipes.busy(), 120);
    }

    #[test]
    fn a_shared_unit_fills_its_gaps() {
        let mut unit = Calendar::default();
        assert_eq!(unit.reserve(10, 5), 10);
        assert_eq!(unit.reserve(30, 5), 30);
        // What is simulated later may begin earlier, where it fits.
        assert_eq!(unit.reserve(0, 10), 0);
        assert_eq!(unit.reserve(12, 20), 35);
        assert_eq!(unit.reserve(12, 15), 15);
        assert_eq!(unit.busy, [(0, 55)]);
        assert_eq!(unit.reserve(3, 1), 55);
        (0..1000).for_each(|i| assert_eq!(unit.reserve(100 + 2 * i, 1), 100 + 2 * i));
        assert!(unit.busy.len() <= Calendar::LIMIT && unit.floor > 55);
    }

    #[test]
    fn kernels_run_in_waves_of_resident_blocks() {
        let mut b = Builder::new("f", Arch::SM_90A, 128);
        b.add_shared("s", 100 * 1024, 16);
        let f = b.finish();
        assert_eq!(resident(&f), 2);
        // Latency-bound blocks overlap, busy ones do not.
        assert_eq!(kernel(&f, 132, 100, 132 * 100, 132 * 10), 100);
        assert_eq!(kernel(&f, 264, 100, 264 * 100, 264 * 10), 100);
        assert_eq!(kernel(&f, 264, 100, 264 * 100, 264 * 90), 180);
        assert_eq!(kernel(&f, 265, 100, 265 * 100, 265 * 10), 200);
    }
}
