//! The estimate of a whole grid: waves of resident blocks, the last with those that are left.

use tilewright_machine::{Rate, Unit};
use tilewright_tile::ParamKind;

use super::{At, Clock, Estimate, FOLLOWED, IssuedOnce, MOST_CYCLES, Problem, SCALAR_REGISTERS, UNITS, WAVE};

/// Bytes of all tensors of global memory that a kernel reads or writes, each once.
fn footprint(problem: &Problem<'_>) -> f64 {
    let scope = At { problem, counters: None };
    let used: Vec<_> =
        problem.verified.inputs().iter().chain(problem.verified.outputs()).map(|p| p.0 as usize).collect();
    let params = problem.verified.params.iter().enumerate();
    params
        .filter(|(i, _)| used.contains(i))
        .map(|(_, param)| match &param.kind {
            ParamKind::Tensor { shape, .. } => {
                let elements: f64 = shape.iter().map(|e| e.eval(&scope).unwrap_or(1) as f64).product();
                elements * f64::from(param.dtype.bits()) / 8.0
            }
            ParamKind::Scalar { .. } => 0.0,
        })
        .sum()
}

/// Estimates a kernel.
pub fn estimate(problem: &Problem<'_>) -> Estimate {
    let program = problem.verified;
    let limits = problem.timing.arch.limits();
    let threads = problem.verified.threads();
    let registers = (problem.registers + SCALAR_REGISTERS).clamp(24, limits.registers_per_thread);
    let blocks = blocks(problem);
    let multiprocessors = problem.timing.rate(Rate::Multiprocessors);
    let resident = limits.resident_blocks(threads, registers, problem.shared_bytes);
    let waves = Waves::of(blocks, resident, multiprocessors);
    let issued = IssuedOnce::default();
    let mut clock = Clock::new(problem, &issued, 1);
    clock.block(&program.body);
    let alone = clock.finish();
    let busy = UNITS.map(|u| (u, clock.busy.get(&u).copied().unwrap_or(0.0)));
    let followed = waves.resident.min(FOLLOWED);
    let overlapped = if followed > 1 {
        let mut several = Clock::new(problem, &issued, followed as usize);
        several.block(&program.body);
        several.finish()
    } else {
        alone
    };
    let memory = footprint(problem) / (problem.timing.rate(Rate::DramBytes) * multiprocessors);
    Estimate {
        stages: clock.stages,
        blocks,
        memory,
        ..Estimate::new(busy, (alone, overlapped), waves, memory)
    }
}

/// Blocks of the grid.
pub(super) fn blocks(problem: &Problem<'_>) -> i64 {
    let scope = At { problem, counters: None };
    let extents = problem.verified.grid.iter().map(|e| e.eval(&scope).unwrap_or(1).max(1));
    extents.fold(1, i64::saturating_mul)
}

/// The waves in which a grid runs.
#[derive(Clone, Copy)]
pub(super) struct Waves {
    /// Blocks that are resident on a multiprocessor together.
    resident: i64,
    /// Waves of them.
    count: i64,
    /// Blocks that a multiprocessor has in the last wave, at most.
    last: i64,
}

impl Waves {
    /// Those of so many blocks, of which a multiprocessor has room for `resident`.
    pub fn of(blocks: i64, resident: u32, multiprocessors: f64) -> Waves {
        let multiprocessors = multiprocessors as i64;
        let needed = ((blocks - 1) / multiprocessors + 1).max(1);
        let resident = i64::from(resident).min(needed);
        let count = (needed - 1) / resident + 1;
        Waves { resident, count, last: needed - (count - 1) * resident }
    }
}

impl Estimate {
    /// The estimate of blocks that occupy the units so long, take `alone` cycles each and `overlapped` where several are resident together, in
    /// waves, and that no less than `memory` cycles of device memory.
    pub(super) fn new(
        busy: [(Unit, f64); UNITS.len()],
        (alone, overlapped): (f64, f64),
        waves: Waves,
        memory: f64,
    ) -> Estimate {
        let first = (Unit::Tensor, 0.0);
        let busiest = busy.into_iter().fold(first, |best, next| if next.1 > best.1 { next } else { best });
        // Each block beside another takes as much longer as those that were followed do.
        let beside = (waves.resident.min(FOLLOWED) - 1).max(1) as f64;
        let wave = |blocks: i64| {
            let others = (blocks.min(FOLLOWED) - 1) as f64;
            let latency = alone + (overlapped - alone) * others / beside;
            latency.max(busiest.1 * blocks as f64) + WAVE
        };
        let cycles = wave(waves.resident) * (waves.count - 1) as f64 + wave(waves.last);
        let work = busiest.1 * waves.resident as f64;
        Estimate {
            cycles: cycles.max(memory).min(MOST_CYCLES) as u64,
            block_cycles: alone as u64,
            busy: busy.into_iter().map(|(unit, cycles)| (unit.title(), cycles as u64)).collect(),
            resident: waves.resident as u32,
            waves: waves.count as u64,
            bound: if 1.1 * work >= overlapped { busiest.0.title() } else { "latency" },
            ..Estimate::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1024 blocks on 132 multiprocessors: a multiprocessor that holds three has two in the last of three waves, and one that holds two has two in each of four.
    #[test]
    fn the_last_wave_has_the_blocks_that_are_left() {
        let busy = UNITS.map(|unit| (unit, 0.0));
        let three = Estimate::new(busy, (100.0, 220.0), Waves::of(1024, 3, 132.0), 0.0);
        let two = Estimate::new(busy, (100.0, 160.0), Waves::of(1024, 2, 132.0), 0.0);
        assert_eq!((three.resident, three.waves), (3, 3));
        assert_eq!((two.resident, two.waves), (2, 4));
        assert_eq!(three.cycles as f64, 2.0 * (220.0 + WAVE) + 160.0 + WAVE);
        assert_eq!(two.cycles as f64, 4.0 * (160.0 + WAVE));
    }

    #[test]
    fn a_grid_that_fits_is_one_wave() {
        let waves = Waves::of(100, 8, 132.0);
        assert_eq!((waves.resident, waves.count, waves.last), (1, 1, 1));
        let waves = Waves::of(1, 1, 132.0);
        assert_eq!((waves.resident, waves.count, waves.last), (1, 1, 1));
    }
}
