//! Measuring things beside each other: a [`Contest`] of runners that take turns.
//!
//! A GPU's clock, its heat and what its caches hold change from one second to the next, so two numbers that were measured one after
//! the other say little about each other. Here runners take turns: in a round each has one, in the next round in the opposite order. A turn is
//! a pause, some runs that do not count, and then many that do, each between two events and each from the same state of the L2 cache.
//! The score of a runner is the median of its turns' medians. The [`Condition`] says how long the pause is and what the cache holds.
//!
//! ```
//! use tilewright_lab::measure::{Condition, Contest, Measure, Runner, Turn};
//! use tilewright_runtime::RuntimeError;
//!
//! /// Something that always takes as long.
//! struct Steady(f64);
//!
//! impl Runner for Steady {
//!     fn name(&self) -> &str {
//!         "steady"
//!     }
//!
//!     fn turn(&mut self, turn: &Turn) -> Result<Vec<f64>, RuntimeError> {
//!         Ok(vec![self.0; turn.runs])
//!     }
//! }
//!
//! let mut contest = Contest::new(Measure::new(Condition::Rested));
//! let slow = contest.add(Steady(2.0));
//! let fast = contest.add(Steady(1.0));
//! contest.rounds(3)?;
//! assert_eq!(contest.best(), Some(fast));
//! assert_eq!(contest.score(slow).map(|score| score.median_ms), Some(2.0));
//! # Ok::<(), RuntimeError>(())
//! ```

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

pub use tilewright_runtime::{L2, Turn};
use tilewright_runtime::{RuntimeError, Timing};

/// The state in which a GPU is measured.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// After a pause, the L2 cache emptied by writing before each run. The chip is cool, and its clock as high as it goes.
    Rested,
    /// Without a pause, in longer turns, the L2 cache emptied by writing: the chip is hot, and its power limits the clock.
    Sustained,
    /// As [`Rested`](Condition::Rested), but the L2 cache is emptied by reading: no dirty lines are written back during the run.
    Clean,
    /// Without a pause and with whatever the run before left in the L2 cache.
    Warm,
}

impl Condition {
    /// Every condition.
    pub const ALL: [Condition; 4] =
        [Condition::Rested, Condition::Sustained, Condition::Clean, Condition::Warm];

    /// Content of the L2 cache when a run begins.
    pub fn l2(self) -> L2 {
        match self {
            Condition::Rested | Condition::Sustained => L2::Written,
            Condition::Clean => L2::Read,
            Condition::Warm => L2::Kept,
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Condition::Rested => "rested",
            Condition::Sustained => "sustained",
            Condition::Clean => "clean",
            Condition::Warm => "warm",
        })
    }
}

impl FromStr for Condition {
    type Err = UnknownCondition;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Condition::ALL.into_iter().find(|condition| condition.to_string() == text);
        found.ok_or_else(|| UnknownCondition(text.to_string()))
    }
}

/// The text names no [`Condition`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is not a condition; conditions are rested, sustained, clean and warm")]
pub struct UnknownCondition(String);

/// Settings of turns. A turn has as many runs as take [`turn`](Measure::turn) of the GPU's time, as far as the limits allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Measure {
    /// The state of the GPU.
    pub condition: Condition,
    /// The pause before each turn, in which the GPU idles.
    pub rest: Duration,
    /// The time of runs, before those that count, that do not.
    pub warmup: Duration,
    /// The time of the runs of a turn.
    pub turn: Duration,
    /// The fewest runs of a turn.
    pub least: usize,
    /// The most runs of a turn.
    pub most: usize,
}

impl Measure {
    /// The usual settings of a condition: a pause of 0.2 s and turns of 15 ms, and for [`Condition::Sustained`] no pause and turns of 80 ms.
    pub fn new(condition: Condition) -> Self {
        let ms = Duration::from_millis;
        let usual = Measure { condition, rest: ms(200), warmup: ms(2), turn: ms(15), least: 3, most: 200 };
        match condition {
            Condition::Rested | Condition::Clean => usual,
            Condition::Sustained => {
                Measure { rest: Duration::ZERO, warmup: ms(20), turn: ms(80), most: 1000, ..usual }
            }
            Condition::Warm => Measure { rest: Duration::ZERO, ..usual },
        }
    }

    /// Short turns after short pauses, to find out which of many are worth a longer look.
    pub fn quick(condition: Condition) -> Self {
        let usual = Measure::new(condition);
        let ms = Duration::from_millis;
        Measure {
            rest: usual.rest.min(ms(20)),
            warmup: ms(1),
            turn: usual.turn.min(ms(5)),
            most: 50,
            ..usual
        }
    }

    /// The turn of a runner whose runs take about `estimate_ms` milliseconds.
    fn of(&self, estimate_ms: f64) -> Turn {
        let runs = |time: Duration, least: usize, most: usize| {
            // A time of 0 or none at all gives the most.
            let wanted = (time.as_secs_f64() * 1e3 / estimate_ms).ceil();
            if wanted < most as f64 { (wanted as usize).max(least) } else { most }
        };
        Turn {
            rest: self.rest,
            l2: self.condition.l2(),
            warmup: runs(self.warmup, 1, self.most.max(1)),
            runs: runs(self.turn, self.least.max(1), self.most.max(self.least).max(1)),
        }
    }

    /// The turn that finds out how long a run takes.
    fn first(&self) -> Turn {
        Turn { rest: Duration::ZERO, l2: self.condition.l2(), warmup: 1, runs: 1 }
    }
}

/// Something that can be run and timed. Everything that a run needs is prepared: what is timed is the work alone.
pub trait Runner {
    /// The name, for reports.
    fn name(&self) -> &str;

    /// Takes a turn; the milliseconds of each of its runs that count.
    ///
    /// # Errors
    ///
    /// The error of a run.
    fn turn(&mut self, turn: &Turn) -> Result<Vec<f64>, RuntimeError>;
}

impl<R: Runner + ?Sized> Runner for Box<R> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn turn(&mut self, turn: &Turn) -> Result<Vec<f64>, RuntimeError> {
        (**self).turn(turn)
    }
}

/// A runner of a contest. It means nothing to other contests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Contestant(usize);

/// Score of a runner so far.
#[derive(Clone, PartialEq, Debug)]
pub struct Score {
    /// The median of its turns' medians, in milliseconds.
    pub median_ms: f64,
    /// The difference of its slowest and its fastest turn, as a part of the median.
    pub spread: f64,
    /// The median of each turn, in milliseconds.
    pub turns_ms: Vec<f64>,
    /// Every run of each turn, in milliseconds.
    pub runs_ms: Vec<Vec<f64>>,
}

struct Entry<'a> {
    runner: Box<dyn Runner + 'a>,
    /// Duration of a run, once that is known.
    estimate_ms: Option<f64>,
    turns: Vec<Timing>,
    active: bool,
}

/// Runners that take turns.
pub struct Contest<'a> {
    measure: Measure,
    entries: Vec<Entry<'a>>,
    /// Rounds so far.
    done: usize,
}

impl fmt::Debug for Contest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.entries.iter().map(|entry| entry.runner.name()).collect();
        f.debug_struct("Contest")
            .field("measure", &self.measure)
            .field("runners", &names)
            .finish_non_exhaustive()
    }
}

impl<'a> Contest<'a> {
    /// A contest without runners.
    pub fn new(measure: Measure) -> Self {
        Contest { measure, entries: Vec::new(), done: 0 }
    }

    /// Settings of turns.
    pub fn measure(&self) -> &Measure {
        &self.measure
    }

    /// Adds a runner, which takes part from the next round on.
    pub fn add(&mut self, runner: impl Runner + 'a) -> Contestant {
        let entry = Entry { runner: Box::new(runner), estimate_ms: None, turns: Vec::new(), active: true };
        self.entries.push(entry);
        Contestant(self.entries.len() - 1)
    }

    /// Lets every runner that is still in the contest take a turn, in an order that is the opposite of the last round's.
    ///
    /// # Errors
    ///
    /// The error of a run. Turns before it count.
    pub fn round(&mut self) -> Result<(), RuntimeError> {
        let forwards = self.done.is_multiple_of(2);
        self.done += 1;
        for i in 0..self.entries.len() {
            let i = if forwards { i } else { self.entries.len() - 1 - i };
            if self.entries[i].active {
                self.turn(i)?;
            }
        }
        Ok(())
    }

    /// So many rounds.
    ///
    /// # Errors
    ///
    /// The error of a run.
    pub fn rounds(&mut self, count: usize) -> Result<(), RuntimeError> {
        (0..count).try_for_each(|_| self.round())
    }

    fn turn(&mut self, i: usize) -> Result<(), RuntimeError> {
        let entry = &mut self.entries[i];
        let estimate = match entry.estimate_ms {
            Some(known) => known,
            None => {
                let first = entry.runner.turn(&self.measure.first())?;
                let known = Timing::of(first).map_or(0.0, |timing| timing.median_ms);
                *entry.estimate_ms.insert(known)
            }
        };
        let runs = entry.runner.turn(&self.measure.of(estimate))?;
        entry.turns.extend(Timing::of(runs));
        Ok(())
    }

    /// Takes a runner out of further rounds. What it has shown stays.
    pub fn retire(&mut self, contestant: Contestant) {
        if let Some(entry) = self.entries.get_mut(contestant.0) {
            entry.active = false;
        }
    }

    /// Those that are still in the contest, in the order in which they were added.
    pub fn active(&self) -> impl Iterator<Item = Contestant> + '_ {
        let active = |(i, entry): (usize, &Entry<'a>)| entry.active.then_some(Contestant(i));
        self.entries.iter().enumerate().filter_map(active)
    }

    /// A runner's name.
    pub fn name(&self, contestant: Contestant) -> &str {
        self.entries.get(contestant.0).map_or("", |entry| entry.runner.name())
    }

    /// Score of a runner so far; `None` if it had no turn yet.
    pub fn score(&self, contestant: Contestant) -> Option<Score> {
        let turns = &self.entries.get(contestant.0)?.turns;
        let turns_ms: Vec<f64> = turns.iter().map(|turn| turn.median_ms).collect();
        let all = Timing::of(turns_ms.clone())?;
        Some(Score {
            median_ms: all.median_ms,
            spread: (all.max_ms - all.min_ms) / all.median_ms,
            turns_ms,
            runs_ms: turns.iter().map(|turn| turn.runs_ms.clone()).collect(),
        })
    }

    /// Of those that are still in the contest, the one with the smallest median so far.
    pub fn best(&self) -> Option<Contestant> {
        let medians = self.active().filter_map(|c| self.score(c).map(|score| (c, score.median_ms)));
        medians.min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(contestant, _)| contestant)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    type Log = Rc<RefCell<Vec<(String, Turn)>>>;

    /// Takes as long as it is told, run after run, and notes its turns.
    struct Fake {
        name: &'static str,
        times: Vec<f64>,
        next: usize,
        log: Log,
    }

    impl Runner for Fake {
        fn name(&self) -> &str {
            self.name
        }

        fn turn(&mut self, turn: &Turn) -> Result<Vec<f64>, RuntimeError> {
            self.log.borrow_mut().push((self.name.to_string(), *turn));
            let time = self.times[self.next.min(self.times.len() - 1)];
            self.next += 1;
            if time < 0.0 {
                return Err(RuntimeError::NoCuda { reason: self.name.to_string() });
            }
            Ok(vec![time; turn.runs])
        }
    }

    fn fake(log: &Log, name: &'static str, times: &[f64]) -> Fake {
        Fake { name, times: times.to_vec(), next: 0, log: log.clone() }
    }

    fn names(log: &Log) -> Vec<String> {
        log.borrow().iter().filter(|(_, turn)| turn.runs > 1).map(|(name, _)| name.clone()).collect()
    }

    #[test]
    fn runners_take_turns_in_alternating_order() {
        let log = Log::default();
        let mut contest = Contest::new(Measure::new(Condition::Rested));
        let [a, b, c] = [("a", 3.0), ("b", 1.0), ("c", 2.0)].map(|(n, t)| contest.add(fake(&log, n, &[t])));
        contest.round().unwrap();
        contest.round().unwrap();
        assert_eq!(names(&log), ["a", "b", "c", "c", "b", "a"]);
        assert_eq!(contest.best(), Some(b));
        contest.retire(b);
        assert_eq!(contest.best(), Some(c));
        assert_eq!(contest.active().collect::<Vec<_>>(), [a, c]);
        log.borrow_mut().clear();
        contest.rounds(2).unwrap();
        assert_eq!(names(&log), ["a", "c", "c", "a"]);
        assert_eq!(contest.score(b).unwrap().turns_ms, [1.0, 1.0]);
        assert_eq!(contest.score(a).unwrap().turns_ms, [3.0; 4]);
        assert_eq!(contest.name(a), "a");
    }

    #[test]
    fn the_first_run_only_says_how_many_there_are_to_be() {
        let log = Log::default();
        let mut contest = Contest::new(Measure::new(Condition::Clean));
        // The first time does not count: it is 1 ms, the others are 5, 7 and 4.
        let a = contest.add(fake(&log, "a", &[1.0, 5.0, 7.0, 4.0]));
        assert_eq!(contest.score(a), None);
        assert_eq!(contest.best(), None);
        contest.rounds(3).unwrap();
        let turns: Vec<(usize, usize)> = log.borrow().iter().map(|(_, t)| (t.warmup, t.runs)).collect();
        assert_eq!(turns, [(1, 1), (2, 15), (2, 15), (2, 15)]);
        assert!(log.borrow().iter().all(|(_, turn)| turn.l2 == L2::Read));
        let score = contest.score(a).unwrap();
        assert_eq!((score.median_ms, score.turns_ms), (5.0, vec![5.0, 7.0, 4.0]));
        assert!((score.spread - 0.6).abs() < 1e-12);
        assert_eq!(score.runs_ms[2], [4.0; 15]);
    }

    #[test]
    fn turns_have_their_limits() {
        let of = |condition, ms| Measure::new(condition).of(ms);
        assert_eq!((of(Condition::Rested, 0.001).runs, of(Condition::Rested, 0.001).warmup), (200, 200));
        assert_eq!((of(Condition::Rested, 13.0).runs, of(Condition::Rested, 13.0).warmup), (3, 1));
        assert_eq!(of(Condition::Sustained, 1.0).runs, 80);
        assert_eq!(of(Condition::Sustained, 1.0).rest, Duration::ZERO);
        assert_eq!(of(Condition::Rested, 1.0).rest, Duration::from_millis(200));
        for odd in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!((3..=200).contains(&of(Condition::Rested, odd).runs), "{odd}");
        }
        let nothing = Measure { least: 0, most: 0, ..Measure::quick(Condition::Warm) };
        assert_eq!((nothing.of(1.0).runs, nothing.of(1.0).warmup), (1, 1));
        assert_eq!(Measure::quick(Condition::Rested).rest, Duration::from_millis(20));
        assert_eq!(Measure::quick(Condition::Sustained).rest, Duration::ZERO);
    }

    #[test]
    fn an_error_of_a_runner_is_the_rounds() {
        let log = Log::default();
        let mut contest = Contest::new(Measure::new(Condition::Warm));
        let good = contest.add(fake(&log, "good", &[1.0]));
        let bad = contest.add(fake(&log, "bad", &[1.0, 1.0, -1.0]));
        contest.round().unwrap();
        let error = contest.round().unwrap_err();
        assert_eq!(error.to_string(), "CUDA is not available: bad");
        assert_eq!(contest.score(bad).unwrap().turns_ms, [1.0]);
        // The last round began at the end.
        assert_eq!(contest.score(good).unwrap().turns_ms, [1.0]);
        contest.retire(bad);
        contest.round().unwrap();
        assert_eq!(contest.score(good).unwrap().turns_ms, [1.0, 1.0]);
    }

    #[test]
    fn conditions_parse_back() {
        for condition in Condition::ALL {
            assert_eq!(condition.to_string().parse(), Ok(condition));
        }
        let error = "hot".parse::<Condition>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`hot` is not a condition; conditions are rested, sustained, clean and warm"
        );
    }
}
