//! Scans along a mode, of any register layout: digit by digit from the finest ([`Along::stages`]). A thread puts together its values, lanes
//! exchange by shuffles what theirs come to, other threads through shared memory; then what comes before is led back to
//! every value.
//!
//! Within the lanes a scan is Sklansky's (*Conditional-sum addition logic*, 1960): in step j the lanes of which bit j of the
//! digit is set take what the last lane below them has, so that any bits of a lane's index serve.

use tilewright_machine::{Class, Timing};

use crate::along::{Along, Exchange, Stage};
use crate::movement::{BARRIER_CYCLES, Between, Movement, WAVEFRONT_CYCLES, halves, movement};
use crate::reject::Reject;
use crate::tv::TvLayout;

/// The plan of a `scan`.
#[derive(Clone, PartialEq, Debug)]
pub struct ScanPlan {
    /// For each row that a thread holds its values in order.
    pub rows: Vec<Vec<u32>>,
    /// The stages, the finest first.
    pub stages: Vec<Stage>,
    /// From the layout of what comes before the first element to that of the rows.
    pub initial: Option<Movement>,
    /// 32-bit words of an item: of a linear scan those of two elements.
    pub words: u32,
}

/// The work of one warp.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    /// Combinations of two items.
    combined: u32,
    /// Items that shuffles exchange.
    shuffled: u32,
    /// Items that are stored to and loaded from shared memory.
    exchanged: u32,
    /// Exchanges.
    meetings: u32,
}

impl ScanPlan {
    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        let exchange = |stage: &Stage| match stage {
            Stage::Threads(exchange) => 4 * exchange.words(self.words),
            _ => 0,
        };
        let exchanges = self.stages.iter().map(exchange).max().unwrap_or(0);
        exchanges.max(self.initial.as_ref().map_or(0, Movement::shared_bytes))
    }

    fn count(&self) -> Count {
        let rows = self.rows.len() as u32;
        let mut items = self.rows.first().map_or(0, Vec::len) as u32;
        let mut count = Count::default();
        for (number, stage) in self.stages.iter().enumerate() {
            // Up, if a stage follows that needs what the items come to; down, if something comes before them.
            let (up, last) = (number + 1 < self.stages.len(), self.stages.len() == 1);
            match stage {
                Stage::Values(extent) => {
                    let passes = 1 + u32::from(up && !last);
                    count.combined += rows * items * passes;
                    items /= extent;
                }
                Stage::Lanes(bits) => {
                    let steps = bits.len() as u32;
                    count.combined += rows * items * (steps + 1);
                    count.shuffled += rows * items * (steps + 1 + u32::from(up));
                }
                Stage::Threads(exchange) => {
                    count.combined += rows * items * exchange.extent;
                    count.exchanged += rows * items * (exchange.extent + 1);
                    count.meetings += 1;
                }
            }
        }
        count
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let count = self.count();
        let initial = self.initial.as_ref().map_or(0, |movement| movement.cycles(timing));
        self.words
            * (2 * count.combined * halves(timing.cost(Class::MinF32))
                + count.shuffled * halves(timing.cost(Class::Shuffle))
                + count.exchanged * WAVEFRONT_CYCLES)
            + 2 * BARRIER_CYCLES * count.meetings
            + initial
    }

    /// Shuffles and accesses to shared memory of one thread.
    pub fn calls(&self) -> u32 {
        let count = self.count();
        self.words * (count.shuffled + count.exchanged) + self.initial.as_ref().map_or(0, Movement::calls)
    }

    /// Accesses to shared memory of one thread.
    pub fn shared_calls(&self) -> u32 {
        self.words * self.count().exchanged
    }

    /// The stages as reports name them: `8 values, 4 lanes, 3 threads`.
    pub fn name(&self) -> String {
        let stage = |stage: &Stage| match stage {
            Stage::Values(extent) => format!("{extent} values"),
            Stage::Lanes(bits) => format!("{} lanes", 1 << bits.len()),
            Stage::Threads(Exchange { extent, .. }) => format!("{extent} groups of threads"),
        };
        let stages: Vec<String> = self.stages.iter().map(stage).collect();
        format!("scan of {}", stages.join(", "))
    }
}

/// Plans a scan of a tensor of `shape` along `axis`. `before` is the layout of what comes before the first element, if there is
/// anything, with the bits of its elements.
///
/// # Errors
///
/// The reason why the distribution of the operand does not allow it.
pub fn scan(
    tv: &TvLayout,
    shape: &[i64],
    axis: u32,
    words: u32,
    before: Option<(&TvLayout, i64, u32)>,
    timing: &Timing,
) -> Result<ScanPlan, Reject> {
    let along = Along::new(tv, shape, axis)?;
    let mut rest = shape.to_vec();
    rest[axis as usize] = 1;
    let initial = before.map(|(from, threads, bits)| {
        let between = Between { from, to: &along.without, shape: &rest, threads, bits, timing };
        movement(&between).map(|(movement, _)| movement)
    });
    Ok(ScanPlan { stages: along.stages()?, rows: along.rows, initial: initial.transpose()?, words })
}
