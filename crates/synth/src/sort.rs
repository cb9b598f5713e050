//! Sorts along a mode: Batcher's bitonic network (*Sorting networks and their applications*, 1968), of any register layout. The two elements
//! of a comparison differ in one bit of their coordinate: a thread compares its own values, lanes by shuffles, other threads through shared
//! memory.

use tilewright_machine::{Class, Timing};

use crate::along::{Along, Exchange, Place};
use crate::movement::{BARRIER_CYCLES, WAVEFRONT_CYCLES, halves};
use crate::reject::Reject;
use crate::tv::TvLayout;

/// The plan of a `sort`.
#[derive(Clone, PartialEq, Debug)]
pub struct SortPlan {
    /// The rows of a thread, and the coordinates of their values.
    pub along: Along,
    /// The places of the bits of a coordinate along the mode, the lowest first.
    pub bits: Vec<Place>,
    /// The exchange of all items between threads.
    pub meeting: Option<Exchange>,
    /// 32-bit words of an item: those of its key, with what goes along also the coordinate that it had, and those of that.
    pub words: u32,
}

impl SortPlan {
    /// Steps of the network that compare across a bit of each kind: values, lanes, parts.
    fn steps(&self) -> [u32; 3] {
        let mut steps = [0; 3];
        for (bit, place) in self.bits.iter().enumerate() {
            let kind = match place {
                Place::Value(_) => 0,
                Place::Lane(_) => 1,
                Place::Part(_) => 2,
            };
            steps[kind] += (self.bits.len() - bit) as u32;
        }
        steps
    }

    fn items(&self) -> u32 {
        self.along.rows.iter().map(|row| row.len() as u32).sum()
    }

    /// Bytes of shared memory.
    pub fn shared_bytes(&self) -> u32 {
        self.meeting.as_ref().map_or(0, |exchange| 4 * exchange.words(self.words))
    }

    /// Accesses to shared memory of one thread.
    pub fn shared_calls(&self) -> u32 {
        2 * self.words * self.items() * self.steps()[2]
    }

    /// Shuffles and accesses to shared memory of one thread.
    pub fn calls(&self) -> u32 {
        self.words * self.items() * self.steps()[1] + self.shared_calls()
    }

    /// Half cycles of the multiprocessor for one warp.
    pub fn cycles(&self, timing: &Timing) -> u32 {
        let steps = self.steps();
        let all: u32 = steps.iter().sum();
        self.items() * all * (1 + self.words) * halves(timing.cost(Class::MinF32))
            + self.words * self.items() * steps[1] * halves(timing.cost(Class::Shuffle))
            + self.shared_calls() * WAVEFRONT_CYCLES
            + 2 * BARRIER_CYCLES * steps[2]
    }
}

/// Plans a sort of a tensor of `shape` along `axis`, of items of so many words.
///
/// # Errors
///
/// The reason why the distribution does not allow it.
pub fn sort(tv: &TvLayout, shape: &[i64], axis: u32, words: u32) -> Result<SortPlan, Reject> {
    let along = Along::new(tv, shape, axis)?;
    Ok(SortPlan { bits: along.bits()?, meeting: along.meeting_of_all()?, along, words })
}
