//! Tuples that a function of the program puts together along a mode: neighbours with neighbours, digit by digit from the finest
//! ([`Along::stages`]), so that the function need not be commutative. A scan by a function is a [`ScanPlan`].

use tilewright_machine::Timing;

use crate::along::Along;
use crate::movement::{Between, Movement, movement};
use crate::reduce::words_of;
use crate::reject::Reject;
use crate::scan::{ScanPlan, scan};
use crate::tv::TvLayout;

/// The plan of a reduction by a function.
#[derive(Clone, PartialEq, Debug)]
pub struct CombinePlan {
    /// The way up the stages, at whose end every thread has what its rows come to.
    pub up: ScanPlan,
    /// From the layout in which each result arises to that of its tensor.
    pub last: Vec<Movement>,
}

impl CombinePlan {
    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        let last = self.last.iter().map(Movement::shared_bytes).max().unwrap_or(0);
        self.up.shared_bytes().max(last)
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        self.up.cycles(timing) + self.last.iter().map(|last| last.cycles(timing)).sum::<u32>()
    }

    /// Shuffles and accesses to shared memory of one thread.
    pub fn calls(&self) -> u32 {
        self.up.calls() + self.last.iter().map(Movement::calls).sum::<u32>()
    }

    /// The stages as reports name them.
    pub fn name(&self) -> String {
        self.up.name().replacen("scan", "reduction", 1)
    }
}

/// Plans a reduction by a function of tensors of `shape` along `axis`, with one layout, to results with layouts of their own; each with the
/// bits of its elements.
///
/// # Errors
///
/// The reason why the distribution of the operands does not allow it.
pub fn reduce(
    tv: &TvLayout,
    results: &[(TvLayout, u32)],
    (shape, result): (&[i64], &[i64]),
    axis: u32,
    threads: i64,
    timing: &Timing,
) -> Result<CombinePlan, Reject> {
    let words = results.iter().map(|(_, bits)| words_of(*bits)).sum();
    let up = scan(tv, shape, axis, words, None, timing)?;
    let from = Along::new(tv, shape, axis)?.without;
    let last = |(to, bits): &(TvLayout, u32)| {
        let between = Between { from: &from, to, shape: result, threads, bits: *bits, timing };
        movement(&between).map(|(movement, _)| movement)
    };
    Ok(CombinePlan { up, last: results.iter().map(last).collect::<Result<_, _>>()? })
}
