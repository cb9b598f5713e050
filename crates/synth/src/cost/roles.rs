//! The estimate of a kernel whose warpgroups have roles: the roles of a block run beside each other and share its units, and pipelines hold
//! one back where the other has not come as far.

use tilewright_machine::{Rate, Timing};
use tilewright_tile::core::Program;
use tilewright_tile::{PipelineId, Side};

use super::{Estimate, SCALAR_REGISTERS, StageUse, UNITS, Waves};

/// The estimate of a whole program from those of its roles. A block takes the longest of: the work of its busiest unit, of all roles
/// together; its slowest role, if nothing held it back; and each pipeline, whose `n` stages are filled and used in turn, so that a
/// stage comes round no sooner than it is filled and used. Before, the first stage is filled.
pub fn together(
    whole: &Program,
    timing: &Timing,
    roles: &[Estimate],
    registers: u32,
    shared_bytes: u32,
) -> Estimate {
    let busy = UNITS.map(|unit| {
        let of =
            |role: &Estimate| role.busy.iter().find(|(title, _)| *title == unit.title()).map_or(0, |b| b.1);
        (unit, roles.iter().map(of).fold(0u64, u64::saturating_add) as f64)
    });
    let uses =
        |side: Side| roles.iter().flat_map(|role| &role.stages).filter(move |stage| stage.side == side);
    let stages = |id: PipelineId| f64::from(whole.pipeline(id).stages);
    let turn = |filled: &StageUse| {
        let used =
            uses(Side::Consume).filter(|used| used.pipeline == filled.pipeline).map(|used| used.cycles);
        filled.times * (filled.cycles + used.fold(0.0, f64::max)) / stages(filled.pipeline).max(1.0)
    };
    let rings = uses(Side::Produce).map(turn).fold(0.0, f64::max);
    let first = uses(Side::Produce).map(|filled| filled.cycles).fold(0.0, f64::max);
    let slowest = roles.iter().map(|role| role.block_cycles as f64).fold(0.0, f64::max);
    let busiest = busy.iter().map(|(_, cycles)| *cycles).fold(0.0, f64::max);
    let block = rings.max(slowest).max(busiest) + first;
    let limits = timing.arch.limits();
    let registers = (registers + SCALAR_REGISTERS).clamp(24, limits.registers_per_thread);
    let resident = limits.resident_blocks(whole.threads(), registers, shared_bytes);
    let blocks = roles.iter().map(|role| role.blocks).max().unwrap_or(1);
    let waves = Waves::of(blocks, resident, timing.rate(Rate::Multiprocessors));
    let memory = roles.iter().map(|role| role.memory).sum();
    Estimate::new(busy, (block, block), waves, memory)
}
