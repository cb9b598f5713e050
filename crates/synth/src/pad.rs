//! Extents that leave threads idle: a mode of which the extent shares too few factors with the number of threads is padded to one that
//! shares more. What is added is loaded as 0, stored nowhere and neutral in reductions.

use tilewright_machine::Memory;
use tilewright_tile::core::{self, Changed, FreeExtent, Program, StmtKind, TileRef};

use crate::access::{coalesced, widest_vector};
use crate::divisibility::Divisibility;
use crate::options::Options;

/// Values of a thread before over those after, at least, for a mode to be padded.
const WORTH: usize = 2;

/// Pads the modes of register tensors whose copies to or from global memory would leave most threads idle.
pub fn pad_extents(program: &mut Program, options: &Options) -> Changed {
    let mut changed = false;
    // Each round changes one extent to one that is not worth changing.
    while let Some((class, to)) = worth_padding(program, options) {
        core::pad(program, &class, to);
        changed = true;
    }
    Changed::from(changed)
}

/// The first extent that is worth padding, and what to.
fn worth_padding(program: &Program, options: &Options) -> Option<(FreeExtent, i64)> {
    let divisibility = Divisibility::new(program, &options.multiples);
    core::free_extents(program).into_iter().find_map(|class| {
        let copy = largest(program, &class)?;
        Some((class, copy.better(&divisibility)?))
    })
}

/// A copy of a tile, and the mode of it that may be padded.
struct Copy {
    tile: TileRef,
    mode: usize,
    threads: i64,
}

/// The copy that moves the most of those of an extent.
fn largest(program: &Program, class: &FreeExtent) -> Option<Copy> {
    let mut found: Option<Copy> = None;
    let mut look = |program: &Program, threads: u32| {
        program.visit(&mut |stmt, _| {
            let StmtKind::Copy { src, dst, .. } = &stmt.kind else { return };
            if !class.copies.contains(&stmt.id) {
                return;
            }
            let loads = program.tensor(dst.tensor).memory() == Memory::Register;
            let (register, memory) = if loads { (dst, src) } else { (src, dst) };
            let modes = 0..program.shape(register.tensor).len();
            let Some(mode) = modes.into_iter().find(|mode| class.modes.contains(&(register.tensor, *mode)))
            else {
                return;
            };
            let tile = program.tile(memory);
            let bits = |tile: &TileRef| tile.shape.iter().product::<i64>() * i64::from(tile.dtype.bits());
            if found.as_ref().is_none_or(|other| bits(&other.tile) < bits(&tile)) {
                found = Some(Copy { tile, mode, threads: i64::from(threads) });
            }
        });
    };
    if program.roles().is_empty() {
        look(program, program.threads());
    }
    for (index, role) in program.roles().iter().enumerate() {
        look(&program.of_role(index), role.threads);
    }
    found
}

impl Copy {
    /// Values of a thread if the mode had another extent.
    fn held(&self, divisibility: &Divisibility<'_>, extent: i64) -> Option<usize> {
        let mut tile = self.tile.clone();
        tile.shape[self.mode] = extent;
        tile.global.as_mut()?.modes[self.mode].first_mut()?.0 = extent;
        let vector = widest_vector(divisibility, &tile, self.threads, 16).0;
        Some(coalesced(&tile, self.threads, vector)?.count())
    }

    /// The extent that lets threads hold the fewest values, and of those the least, if it is worth it.
    fn better(&self, divisibility: &Divisibility<'_>) -> Option<i64> {
        let extent = self.tile.shape[self.mode];
        let all: i64 = self.tile.shape.iter().product();
        let before = self.held(divisibility, extent)?;
        let share = (all as usize).div_ceil(self.threads as usize);
        if before < WORTH * share.max(1) {
            return None;
        }
        let widest = i64::from(128 / self.tile.dtype.bits());
        let vectors = std::iter::successors(Some(widest), |n| (*n > 1).then_some(n / 2));
        let along = (1..=self.threads).filter(|n| self.threads % n == 0);
        let units: Vec<i64> = along.flat_map(|along| vectors.clone().map(move |n| n * along)).collect();
        let mut extents: Vec<i64> = units
            .into_iter()
            .map(|unit| (extent + unit - 1) / unit * unit)
            .filter(|to| *to < 2 * extent)
            .collect();
        extents.sort_unstable();
        extents.dedup();
        let held = extents.into_iter().filter_map(|to| Some((self.held(divisibility, to)?, to)));
        let (after, to) = held.min()?;
        (WORTH * after <= before).then_some(to)
    }
}
