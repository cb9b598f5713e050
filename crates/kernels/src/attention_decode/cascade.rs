//! Sequences that share their first keys: the launches of a cascade.

use tilewright_machine::Arch;

use super::{AttentionDecodeConfig, Cascade, DecodeLengths, DecodeSchedule, QueryTokens, ScheduleError};

/// Neighbouring sequences that share their first keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedPrefix {
    /// Sequences.
    pub sequences: usize,
    /// Keys that they share.
    pub keys: i64,
}

/// The launches of a cascade, in this order: the first program of `prefix`, the first of `rest`, and the second of `rest`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CascadePlan {
    /// The configuration and the launch of shared keys, whose sequences are the groups: their query tokens are rows of as few tiles as can be.
    pub prefix: (AttentionDecodeConfig, DecodeSchedule),
    /// The configuration and the launch of each sequence's own keys; `combine` is the grid of the second program.
    pub rest: (AttentionDecodeConfig, DecodeSchedule),
    /// Keys that each group shares: `len` of the first launch.
    pub shared: Vec<i64>,
    /// The first query token of each group, and the end: `cu_q` of the first launch.
    pub places: Vec<i64>,
    /// Keys of each sequence behind those that it shares: `len` of the other launches.
    pub lengths: Vec<i64>,
    /// The size `slots` of all programs: parts of both launches.
    pub slots: i64,
    /// Bytes of the workspace of all: `po` and behind it `pl`.
    pub workspace: i64,
}

impl DecodeLengths<'_> {
    /// The launches of a cascade of these sequences, which share their first keys in groups one behind the other: the keys that a group shares are read
    /// once for its queries, as far as a tile has rows for them. `capacity` is that of either launch.
    ///
    /// # Errors
    ///
    /// Those of [`schedule`](Self::schedule); a [`ScheduleError`] that names the sequence whose own keys are fewer than its query tokens, or says
    /// that groups have not as many sequences as there are.
    pub fn cascade(
        &self,
        groups: &[SharedPrefix],
        config: &AttentionDecodeConfig,
        arch: Arch,
        multiprocessors: i64,
    ) -> Result<CascadePlan, ScheduleError> {
        let count: usize = groups.iter().map(|group| group.sequences).sum();
        if count != self.lengths.len() {
            let wanted = format!("must be {}, the sequences of all groups", self.lengths.len());
            return Err(ScheduleError::Value { field: "groups", value: count as i64, wanted });
        }
        let shared_by = groups.iter().flat_map(|group| vec![group.keys; group.sequences]);
        let lengths: Vec<i64> =
            self.lengths.iter().zip(shared_by).map(|(all, shared)| all - shared).collect();
        let counts: Vec<i64> = (0..count).map(|sequence| self.tokens.of(sequence)).collect();
        for (sequence, (own, tokens)) in lengths.iter().zip(&counts).enumerate() {
            if own < tokens {
                let wanted =
                    format!("{own} at most, the keys of its own: a query attends to all that are shared");
                return Err(ScheduleError::Tokens { sequence, tokens: *tokens, wanted });
            }
        }
        let shared: Vec<i64> = groups.iter().map(|group| group.keys).collect();
        let mut places = vec![0];
        let mut first = 0;
        for group in groups {
            let tokens: i64 = counts[first..first + group.sequences].iter().sum();
            places.push(places[places.len() - 1] + tokens);
            first += group.sequences;
        }
        let of_groups: Vec<i64> = places.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let form =
            |cascade, rows| AttentionDecodeConfig { varlen: true, split: true, cascade, rows, ..*config };
        // The fewest rows that have the queries of a group, or the most that there can be.
        let most = of_groups.iter().copied().max().unwrap_or(0);
        let tiles = [16, 32, 64, 128].map(|rows| form(Cascade::Prefix, rows));
        let able = tiles.iter().filter(|tile| tile.reject(arch).is_none());
        let prefix = able.min_by_key(|tile| (tile.tiles_of(most), tile.rows)).copied();
        let prefix = prefix.unwrap_or(form(Cascade::Prefix, config.rows));
        let rest = form(Cascade::Rest, config.rows);
        let of = |lengths, tokens, config: &AttentionDecodeConfig| {
            let of = DecodeLengths { lengths, tokens: QueryTokens::Each(tokens), ..*self };
            of.schedule(config, arch, multiprocessors)
        };
        let [a, b] = [of(&shared, &of_groups, &prefix)?, of(&lengths, &counts, &rest)?];
        Ok(CascadePlan {
            prefix: (prefix, DecodeSchedule { combine: None, ..a }),
            rest: (rest, b),
            shared,
            places,
            lengths,
            slots: a.splits + b.splits,
            workspace: a.workspace + b.workspace,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(lengths: &[i64], groups: &[[i64; 2]]) -> Result<CascadePlan, ScheduleError> {
        let of = DecodeLengths { lengths, capacity: 1 << 20, heads: 8, tokens: QueryTokens::All(1) };
        let group =
            |[sequences, keys]: &[i64; 2]| SharedPrefix { sequences: *sequences as usize, keys: *keys };
        let groups: Vec<SharedPrefix> = groups.iter().map(group).collect();
        of.cascade(&groups, &AttentionDecodeConfig::default(), Arch::SM_90A, 132)
    }

    #[test]
    fn the_queries_of_a_group_are_rows_of_one_tile() {
        let plan = plan(&[8200; 32], &[[32, 8192]]).unwrap();
        let (prefix, a) = plan.prefix;
        // 32 tokens of 4 heads.
        assert_eq!((prefix.rows, prefix.cascade, a.grid[1], a.grid[2]), (128, Cascade::Prefix, 8, 1));
        let (rest, b) = plan.rest;
        assert_eq!((rest.rows, rest.cascade, b.grid[2]), (16, Cascade::Rest, 32));
        assert_eq!((plan.lengths, plan.places, plan.shared), (vec![8; 32], vec![0, 32], vec![8192]));
        assert_eq!(plan.slots, a.splits + b.splits);
        assert_eq!(plan.workspace, 32 * 32 * plan.slots * 129 * 4);
        assert_eq!((a.combine, b.combine), (None, Some([32, 32, 1])));
    }

    #[test]
    fn groups_are_sequences_of_the_first_launch() {
        let plan = plan(&[100, 90, 70, 5], &[[2, 80], [1, 64], [1, 0]]).unwrap();
        assert_eq!((plan.shared, plan.places), (vec![80, 64, 0], vec![0, 2, 3, 4]));
        assert_eq!(plan.lengths, [20, 10, 6, 5]);
        assert_eq!(plan.prefix.0.rows, 16);
    }

    #[test]
    fn groups_that_are_not_those_of_the_sequences_are_refused() {
        let said = |lengths: &[i64], groups: &[[i64; 2]]| plan(lengths, groups).unwrap_err().to_string();
        assert_eq!(said(&[9, 9], &[[1, 5]]), "`groups` = 1: must be 2, the sequences of all groups");
        let wanted = "the query tokens of sequence 1 are 1, and must be 0 at most, the keys of its own: a query attends to all that are shared";
        assert_eq!(said(&[9, 5], &[[2, 5]]), wanted);
    }
}
