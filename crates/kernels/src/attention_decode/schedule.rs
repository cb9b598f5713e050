//! The parts that the keys of each sequence are split into, so that blocks fill all multiprocessors evenly.

use tilewright_machine::Arch;

use super::estimate::{Machine, Work};
use super::{AttentionDecodeConfig, Cascade};

/// Keys that a sequence has at most: places are integers of 32 bits.
const MOST_KEYS: i64 = 1 << 30;

/// Blocks of a grid along y and z at most.
const MOST_BLOCKS: i64 = 65_535;

/// Parts of a sequence at most.
const MOST_SPLITS: i64 = 1 << 12;

/// Bytes of the workspace at most.
const MOST_BYTES: i64 = 1 << 40;

/// The time to add a part of every sequence, in sixty-fourths of a block of keys.
const COMBINE: i64 = 4;

/// The reason why there is no schedule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScheduleError {
    /// A number is not one that a launch can have.
    #[error("`{field}` = {value}: {wanted}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: i64,
        /// The values that would be right.
        wanted: String,
    },
    /// A sequence has a length that there is no room for.
    #[error("the length of sequence {sequence} is {length}, and must be 0 to {capacity}")]
    Length {
        /// The sequence.
        sequence: usize,
        /// Its length.
        length: i64,
        /// The keys that there is room for.
        capacity: i64,
    },
    /// The query tokens of a sequence are out of range, or not those of the others.
    #[error("the query tokens of sequence {sequence} are {tokens}, and must be {wanted}")]
    Tokens {
        /// The sequence.
        sequence: usize,
        /// Its query tokens.
        tokens: i64,
        /// The numbers that would be right.
        wanted: String,
    },
    /// A launch has more blocks along one axis than a grid has.
    #[error("{blocks} blocks along {axis}, and a grid has {most}: {wanted}")]
    Grid {
        /// The axis.
        axis: char,
        /// The blocks.
        blocks: i64,
        /// The blocks that a grid has at most.
        most: i64,
        /// The remedy.
        wanted: &'static str,
    },
}

/// The query tokens of sequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueryTokens<'a> {
    /// As many for each sequence.
    All(i64),
    /// A number of its own for each, perhaps 0: takes [`varlen`](AttentionDecodeConfig::varlen).
    Each(&'a [i64]),
}

impl QueryTokens<'_> {
    /// Those of this sequence.
    pub(super) fn of(self, sequence: usize) -> i64 {
        match self {
            QueryTokens::All(count) => count,
            QueryTokens::Each(counts) => counts.get(sequence).copied().unwrap_or(0),
        }
    }
}

/// The lengths of sequences, and what else decides about their parts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeLengths<'a> {
    /// Keys of each sequence.
    pub lengths: &'a [i64],
    /// Keys that there is room for in each: `sk`, or the pages of a sequence times their keys.
    pub capacity: i64,
    /// Heads of k and v.
    pub heads: i64,
    /// Query tokens of each sequence.
    pub tokens: QueryTokens<'a>,
}

/// A launch of the programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DecodeSchedule {
    /// The size `splits`: blocks of a sequence, head and tile of rows.
    pub splits: i64,
    /// The size `chunk`: keys of a part, a multiple of a block's.
    pub chunk: i64,
    /// The size `sq`: query tokens of the sequence that has the most.
    pub sq: i64,
    /// The size `tq`, with [`varlen`](AttentionDecodeConfig::varlen): query tokens of all sequences.
    pub tq: i64,
    /// The grid of the first program.
    pub grid: [i64; 3],
    /// The grid of the second program; `None` without [`split`](AttentionDecodeConfig::split).
    pub combine: Option<[i64; 3]>,
    /// Bytes of the workspace: `po` and behind it `pl`.
    pub workspace: i64,
}

/// A launch in the better of both forms.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DecodePlan {
    /// The configuration to launch: the given one, with [`split`](AttentionDecodeConfig::split) as it is better.
    pub config: AttentionDecodeConfig,
    /// Its launch.
    pub schedule: DecodeSchedule,
    /// The estimated time in microseconds, from the first block to the last: for ranking.
    pub estimate: f64,
}

impl DecodeLengths<'_> {
    /// The better of both forms for this many multiprocessors of an architecture, with parts or without: the one whose estimate is less. The estimate of parts has the
    /// second program as well, by the bytes of the parts that it reads, at the speed of memory, and a fixed time to launch it. A function of its arguments alone.
    ///
    /// # Errors
    ///
    /// Those of [`schedule`](Self::schedule), if neither form has a launch.
    pub fn plan(
        &self,
        config: &AttentionDecodeConfig,
        arch: Arch,
        multiprocessors: i64,
    ) -> Result<DecodePlan, ScheduleError> {
        let of = |split: bool| {
            let config = AttentionDecodeConfig { split, ..*config };
            let (schedule, estimate) = self.estimated(&config, arch, multiprocessors)?;
            Ok(DecodePlan { config, schedule, estimate })
        };
        // The parts of a cascade are added with those of its other launch.
        if config.cascade != Cascade::None {
            return of(true);
        }
        match (of(false), of(true)) {
            (Ok(whole), Ok(parts)) => Ok(if whole.estimate <= parts.estimate { whole } else { parts }),
            (Ok(only), Err(_)) | (Err(_), Ok(only)) => Ok(only),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// The parts for this many multiprocessors of an architecture: the length of a part for which the estimate of the time is least. All parts
    /// have that length but the last of each sequence, so that long sequences have more of them than short ones.
    ///
    /// # Errors
    ///
    /// A [`ScheduleError`] that names what is out of range.
    pub fn schedule(
        &self,
        config: &AttentionDecodeConfig,
        arch: Arch,
        multiprocessors: i64,
    ) -> Result<DecodeSchedule, ScheduleError> {
        self.estimated(config, arch, multiprocessors).map(|(schedule, _)| schedule)
    }

    /// The launch of a form, and its estimated time in microseconds.
    pub(super) fn estimated(
        &self,
        config: &AttentionDecodeConfig,
        arch: Arch,
        multiprocessors: i64,
    ) -> Result<(DecodeSchedule, f64), ScheduleError> {
        self.check(multiprocessors)?;
        if let Some(heads) = config.hk.filter(|heads| *heads != self.heads) {
            let wanted = format!("must be hk = {heads}");
            return Err(ScheduleError::Value { field: "heads", value: self.heads, wanted });
        }
        let bn = config.bn;
        let (sequences, places) = (self.lengths.len() as i64, 0..self.lengths.len());
        let (sq, tq) = self.query_tokens(config)?;
        let tiles = self.heads * config.tiles_of(sq);
        let grid = |axis, blocks: i64, wanted| {
            let most = MOST_BLOCKS;
            if blocks > most { Err(ScheduleError::Grid { axis, blocks, most, wanted }) } else { Ok(()) }
        };
        grid('y', tiles, "choose more rows of a tile, or fewer queries")?;
        grid('z', sequences, "launch fewer sequences at a time")?;
        // The blocks of keys that each tile of a sequence reads, and its tiles.
        let work = |sequence: usize| {
            let (length, tokens) = (self.lengths[sequence], self.tokens.of(sequence));
            let read = (length - config.begin(length, tokens) + bn - 1) / bn;
            Work { blocks: if tokens == 0 { 0 } else { read }, tiles: self.heads * config.tiles_of(tokens) }
        };
        let work: Vec<Work> = places.map(work).collect();
        let longest = work.iter().map(|work| work.blocks).max().unwrap_or(0).max(1);
        let machine = Machine::new(config, arch, multiprocessors);
        if !config.split {
            let (chunk, grid) = (longest * bn, [1, tiles, sequences]);
            let schedule = DecodeSchedule { splits: 1, chunk, sq, tq, grid, combine: None, workspace: 0 };
            return Ok((schedule, machine.microseconds(machine.time(&work, longest))));
        }
        let heads = self.heads * config.group;
        let combine = if config.varlen { [heads, tq, 1] } else { [heads, sq, sequences] };
        grid('y', combine[1], "launch fewer sequences at a time")?;
        // The second program adds the parts of a row one after another.
        let time =
            |chunk: i64| machine.time(&work, chunk) + i128::from(COMBINE * ((longest + chunk - 1) / chunk));
        // The shortest chunk for each number of parts of the longest sequence.
        let parts = 1..=longest.min(MOST_SPLITS);
        let chunks = parts.map(|parts| (longest + parts - 1) / parts);
        let chunk = chunks.min_by_key(|chunk| time(*chunk)).unwrap_or(longest);
        let splits = (longest + chunk - 1) / chunk;
        let bytes: i128 =
            [tq, heads, splits, 4 * (config.values() + 1)].into_iter().map(i128::from).product();
        let workspace = i64::try_from(bytes).ok().filter(|bytes| *bytes <= MOST_BYTES).ok_or_else(|| {
            let wanted = format!("needs a workspace of {bytes} bytes: launch fewer sequences at a time");
            ScheduleError::Value { field: "lengths", value: sequences, wanted }
        })?;
        let schedule = DecodeSchedule {
            splits,
            chunk: chunk * bn,
            sq,
            tq,
            grid: [splits, tiles, sequences],
            combine: Some(combine),
            workspace,
        };
        let parts_of =
            |(sequence, work): (usize, &Work)| (work.blocks + chunk - 1) / chunk * self.tokens.of(sequence);
        let parts = heads * work.iter().enumerate().map(parts_of).sum::<i64>();
        let added = machine.combine(parts * 4 * (config.values() + 1), config.dependent);
        Ok((schedule, machine.microseconds(machine.time(&work, chunk)) + added))
    }

    /// The most query tokens of a sequence, and those of all.
    fn query_tokens(&self, config: &AttentionDecodeConfig) -> Result<(i64, i64), ScheduleError> {
        let sequences = self.lengths.len();
        let counts = match self.tokens {
            QueryTokens::All(count) => return Ok((count, count * sequences as i64)),
            QueryTokens::Each(counts) => counts,
        };
        let refused = |wanted: String, right: &dyn Fn(i64) -> bool| match counts
            .iter()
            .position(|count| !right(*count))
        {
            Some(sequence) => Err(ScheduleError::Tokens { sequence, tokens: counts[sequence], wanted }),
            None => Ok(()),
        };
        if counts.len() != sequences {
            let wanted = format!("must be {sequences} numbers: one for each length");
            return Err(ScheduleError::Value { field: "tokens", value: counts.len() as i64, wanted });
        }
        refused(format!("0 to {MOST_BLOCKS}"), &|count| (0..=MOST_BLOCKS).contains(&count))?;
        let first = self.tokens.of(0);
        if !config.varlen {
            let wanted = format!("{first}, as those of sequence 0, or varlen = true");
            refused(wanted, &|count| count == first)?;
        }
        let (sq, tq) = (counts.iter().copied().max().unwrap_or(0), counts.iter().sum());
        if sq == 0 {
            let wanted = "must be 1 at least of a sequence".to_string();
            return Err(ScheduleError::Value { field: "tokens", value: 0, wanted });
        }
        Ok((sq, tq))
    }

    fn check(&self, multiprocessors: i64) -> Result<(), ScheduleError> {
        let within = |field, value: i64, most: i64| {
            let wanted = format!("must be 1 to {most}");
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(ScheduleError::Value { field, value, wanted })
            }
        };
        within("lengths", self.lengths.len() as i64, MOST_BLOCKS)?;
        within("capacity", self.capacity, MOST_KEYS)?;
        within("heads", self.heads, MOST_BLOCKS)?;
        if let QueryTokens::All(tokens) = self.tokens {
            within("tokens", tokens, MOST_BLOCKS)?;
        }
        within("multiprocessors", multiprocessors, 1 << 16)?;
        let capacity = self.capacity;
        match self.lengths.iter().position(|length| !(0..=capacity).contains(length)) {
            Some(sequence) => {
                Err(ScheduleError::Length { sequence, length: self.lengths[sequence], capacity })
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(lengths: &[i64]) -> DecodeSchedule {
        let of = DecodeLengths { lengths, capacity: 1 << 20, heads: 8, tokens: QueryTokens::All(1) };
        of.schedule(&AttentionDecodeConfig::default(), Arch::SM_90A, 132).unwrap()
    }

    /// Every key is in a part: the last begins before the end of the longest sequence, and none is left over.
    fn covers(schedule: &DecodeSchedule, longest: i64) {
        let DecodeSchedule { splits, chunk, grid, workspace, .. } = *schedule;
        assert!(splits * chunk >= longest && (splits - 1) * chunk < longest.max(1), "{schedule:?}");
        assert!(chunk % 32 == 0 && grid[0] == splits && workspace > 0, "{schedule:?}");
    }

    /// The fastest of those measured on an H200: bench/decode.py and the table in docs/kernels.md.
    #[test]
    fn sequences_have_as_many_parts_as_are_fastest() {
        for (b, length, splits) in [
            (1, 1024, 32),
            (1, 8192, 32),
            (1, 32768, 32),
            (8, 1024, 4),
            (8, 32768, 4),
            (32, 8192, 1),
            (128, 1024, 1),
        ] {
            let schedule = plan(&vec![length; b]);
            covers(&schedule, length);
            assert_eq!(schedule.splits, splits, "{b} × {length}: {schedule:?}");
        }
    }

    #[test]
    fn multiprocessors_have_equally_many_parts_of_equal_sequences() {
        for (b, length) in [(1, 8192), (8, 32768), (32, 8192), (128, 1024), (7, 30_000)] {
            let schedule = plan(&vec![length; b]);
            covers(&schedule, length);
            let blocks = schedule.splits * 8 * b as i64;
            let each = (blocks + 131) / 132;
            assert!(each >= 2 && 10 * blocks >= 9 * each * 132, "{b} × {length}: {schedule:?}");
        }
    }

    #[test]
    fn a_long_sequence_among_short_ones_is_split_more() {
        let mut lengths = vec![100; 31];
        lengths.push(100_000);
        let schedule = plan(&lengths);
        covers(&schedule, 100_000);
        assert!(schedule.splits > 30 && schedule.chunk >= 100, "{schedule:?}");
    }

    #[test]
    fn sequences_without_keys_have_a_launch() {
        for lengths in [vec![0], vec![0; 5], vec![0, 1]] {
            covers(&plan(&lengths), 1);
        }
    }

    #[test]
    fn a_window_is_all_that_is_split() {
        let config = AttentionDecodeConfig { window: Some(1000), ..AttentionDecodeConfig::default() };
        let of =
            DecodeLengths { lengths: &[1 << 20], capacity: 1 << 20, heads: 8, tokens: QueryTokens::All(1) };
        let schedule = of.schedule(&config, Arch::SM_90A, 132).unwrap();
        assert!(schedule.splits * schedule.chunk < 1200, "{schedule:?}");
    }

    #[test]
    fn without_parts_there_is_no_workspace() {
        let config = AttentionDecodeConfig { split: false, ..AttentionDecodeConfig::default() };
        let of = DecodeLengths { lengths: &[70, 9], capacity: 100, heads: 2, tokens: QueryTokens::All(5) };
        let schedule = of.schedule(&config, Arch::SM_80, 108).unwrap();
        let wanted = DecodeSchedule {
            splits: 1,
            chunk: 96,
            sq: 5,
            tq: 10,
            grid: [1, 4, 2],
            combine: None,
            workspace: 0,
        };
        assert_eq!(schedule, wanted);
    }

    fn better(lengths: &[i64], config: &AttentionDecodeConfig) -> DecodePlan {
        let of = DecodeLengths { lengths, capacity: 1 << 20, heads: 8, tokens: QueryTokens::All(1) };
        let plan = of.plan(config, Arch::SM_90A, 132).unwrap();
        assert_eq!(plan.schedule, of.schedule(&plan.config, Arch::SM_90A, 132).unwrap());
        let other = AttentionDecodeConfig { split: !plan.config.split, ..plan.config };
        assert!(plan.estimate <= of.estimated(&other, Arch::SM_90A, 132).unwrap().1);
        assert_eq!(AttentionDecodeConfig { split: config.split, ..plan.config }, *config);
        plan
    }

    /// As measured: the table in docs/kernels.md.
    #[test]
    fn many_sequences_take_no_parts_and_few_do() {
        let config = AttentionDecodeConfig { hk: Some(8), dependent: true, ..Default::default() };
        for (b, length, split) in [
            (1, 1024, true),
            (1, 32768, true),
            (8, 1024, true),
            (8, 32768, true),
            (32, 1024, false),
            (32, 8192, false),
            (32, 32768, false),
            (128, 1024, false),
            (128, 8192, false),
        ] {
            let plan = better(&vec![length; b], &config);
            assert_eq!(plan.config.split, split, "{b} × {length}: {plan:?}");
            assert_eq!(plan.schedule.combine.is_some(), split);
            assert_eq!(plan.schedule.workspace > 0, split);
        }
    }

    #[test]
    fn a_long_sequence_among_many_short_ones_has_parts() {
        let mut lengths = vec![500; 127];
        lengths.push(200_000);
        assert!(better(&lengths, &AttentionDecodeConfig::default()).config.split);
        assert!(!better(&[0; 200], &AttentionDecodeConfig::default()).config.split);
    }

    #[test]
    fn the_second_program_is_estimated_by_the_bytes_that_it_reads() {
        let config = AttentionDecodeConfig::default();
        let machine = Machine::new(&config, Arch::SM_90A, 132);
        // 128 sequences with 8 parts of 32 heads: 17 MB, and 3.7 TB/s.
        let read = machine.combine(128 * 8 * 32 * 129 * 4, false) - machine.combine(0, false);
        assert!((4.0..5.5).contains(&read), "{read}");
        assert!((2.0..=4.0).contains(&machine.combine(0, true)));
        assert!(machine.combine(0, true) < machine.combine(0, false));
    }

    /// A form without a launch leaves the other.
    #[test]
    fn a_form_that_has_no_launch_is_not_taken() {
        let config = AttentionDecodeConfig { varlen: true, ..AttentionDecodeConfig::default() };
        let lengths = vec![100_000; 9000];
        let of =
            DecodeLengths { lengths: &lengths, capacity: 1 << 20, heads: 1, tokens: QueryTokens::All(8) };
        assert!(of.schedule(&config, Arch::SM_90A, 132).is_err());
        assert!(!of.plan(&config, Arch::SM_90A, 132).unwrap().config.split);
        let none = DecodeLengths { lengths: &[], ..of };
        assert_eq!(
            none.plan(&config, Arch::SM_90A, 132),
            none.schedule(&config, Arch::SM_90A, 132).map(|_| unreachable!())
        );
    }

    #[test]
    fn counts_of_queries_decide_about_grids_and_workspace() {
        let config = AttentionDecodeConfig { varlen: true, ..AttentionDecodeConfig::default() };
        let counts = [1, 0, 16, 1];
        let of = DecodeLengths {
            lengths: &[5000, 9000, 700, 0],
            capacity: 1 << 14,
            heads: 8,
            tokens: QueryTokens::Each(&counts),
        };
        let schedule = of.schedule(&config, Arch::SM_90A, 132).unwrap();
        let DecodeSchedule { splits, chunk, .. } = schedule;
        // Sequence 1, of which nothing is asked, has no parts.
        assert!((splits - 1) * chunk < 5000 && splits * chunk >= 5000, "{schedule:?}");
        let wanted = DecodeSchedule {
            splits,
            chunk,
            sq: 16,
            tq: 18,
            grid: [splits, 8 * 4, 4],
            combine: Some([32, 18, 1]),
            workspace: 18 * 32 * splits * 129 * 4,
        };
        assert_eq!(schedule, wanted);
        // As many for each are the same however they are given.
        let even = DecodeLengths { tokens: QueryTokens::Each(&[3; 4]), ..of };
        let all = DecodeLengths { tokens: QueryTokens::All(3), ..of };
        let schedules = [even, all].map(|of| of.schedule(&config, Arch::SM_90A, 132).unwrap());
        assert_eq!(schedules[0], schedules[1]);
        let one = DecodeLengths { tokens: QueryTokens::All(1), ..of };
        let plain = AttentionDecodeConfig::default();
        let [a, b] = [&config, &plain].map(|config| one.schedule(config, Arch::SM_90A, 132).unwrap());
        assert_eq!([a.splits, a.chunk, a.workspace], [b.splits, b.chunk, b.workspace]);
    }

    #[test]
    fn counts_of_queries_out_of_range_are_refused() {
        let config = AttentionDecodeConfig { varlen: true, ..AttentionDecodeConfig::default() };
        let refused = |config: &AttentionDecodeConfig, counts: &[i64]| {
            let tokens = QueryTokens::Each(counts);
            let of = DecodeLengths { lengths: &[5, 9], capacity: 9, heads: 2, tokens };
            of.schedule(config, Arch::SM_90A, 132).unwrap_err().to_string()
        };
        assert_eq!(refused(&config, &[1]), "`tokens` = 1: must be 2 numbers: one for each length");
        let wanted = "the query tokens of sequence 1 are -1, and must be 0 to 65535";
        assert_eq!(refused(&config, &[1, -1]), wanted);
        assert_eq!(refused(&config, &[0, 0]), "`tokens` = 0: must be 1 at least of a sequence");
        let even = AttentionDecodeConfig { varlen: false, ..config };
        let wanted =
            "the query tokens of sequence 1 are 3, and must be 2, as those of sequence 0, or varlen = true";
        assert_eq!(refused(&even, &[2, 3]), wanted);
        let lengths = vec![9; 9000];
        let of = DecodeLengths { lengths: &lengths, capacity: 9, heads: 2, tokens: QueryTokens::All(8) };
        let wanted = "72000 blocks along y, and a grid has 65535: launch fewer sequences at a time";
        assert_eq!(of.schedule(&config, Arch::SM_90A, 132).unwrap_err().to_string(), wanted);
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        let config = AttentionDecodeConfig::default();
        let refused = |of: DecodeLengths<'_>, multiprocessors| {
            of.schedule(&config, Arch::SM_90A, multiprocessors).unwrap_err().to_string()
        };
        let right = DecodeLengths { lengths: &[5, 9], capacity: 9, heads: 2, tokens: QueryTokens::All(1) };
        assert!(right.schedule(&config, Arch::SM_90A, 132).is_ok());
        let long = DecodeLengths { capacity: 8, ..right };
        assert_eq!(refused(long, 132), "the length of sequence 1 is 9, and must be 0 to 8");
        let negative = DecodeLengths { lengths: &[-1], ..right };
        assert_eq!(refused(negative, 132), "the length of sequence 0 is -1, and must be 0 to 9");
        let none = DecodeLengths { lengths: &[], ..right };
        assert_eq!(refused(none, 132), "`lengths` = 0: must be 1 to 65535");
        let huge = DecodeLengths { capacity: i64::MAX, ..right };
        let wanted = "must be 1 to 1073741824";
        assert_eq!(refused(huge, 132), format!("`capacity` = {}: {wanted}", i64::MAX));
        assert_eq!(refused(right, 0), "`multiprocessors` = 0: must be 1 to 65536");
        let known = AttentionDecodeConfig { hk: Some(4), ..config };
        let other = right.schedule(&known, Arch::SM_90A, 132).unwrap_err().to_string();
        assert_eq!(other, "`heads` = 2: must be hk = 4");
        let heads = DecodeLengths { heads: 40_000, tokens: QueryTokens::All(8), ..right };
        let wanted =
            "80000 blocks along y, and a grid has 65535: choose more rows of a tile, or fewer queries";
        assert_eq!(refused(heads, 132), wanted);
    }
}
