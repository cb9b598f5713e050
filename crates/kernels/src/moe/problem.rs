//! A product of the rows of experts as a problem of the tuner: rows that are shared out evenly, the tables that say so, and the time that a layer's choice estimates.

use std::collections::BTreeMap;

use super::choose::{Machine, Rows, Tiled};
use crate::tuning::{Integers, Launch, three};

/// The rows of all experts, columns, the length of sums, and the experts, in the order of [`MNKL`](crate::tuning::MNKL).
#[derive(Clone, Copy)]
pub(crate) struct ExpertsProblem {
    rows: i64,
    n: i64,
    k: i64,
    experts: i64,
}

impl ExpertsProblem {
    pub fn of(sizes: &[i64]) -> Self {
        let [rows, n, k] = three(sizes);
        ExpertsProblem { rows, n, k, experts: sizes.get(3).copied().unwrap_or(1) }
    }

    /// The sizes of an expert's product: its rows, columns, and the length of sums.
    pub fn each(self) -> [i64; 3] {
        [(self.rows + self.experts - 1) / self.experts, self.n, self.k]
    }

    /// The launch of a configuration: experts have as many rows as each other, the first ones one more where these do not divide.
    pub fn launch(self, tiled: &Tiled) -> Launch {
        self.launch_in_tiles(tiled.rows(), tiled.gathers())
    }

    /// The launch of a configuration with tiles of so many rows, which may lie anywhere.
    pub fn launch_in_tiles(self, tile: i64, gather: bool) -> Launch {
        let ExpertsProblem { rows, n, k, experts } = self;
        let (mut groups, mut first, mut ends, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for expert in 0..experts {
            let own = rows / experts + i64::from(expert < rows % experts);
            for start in (0..own).step_by(tile.max(1) as usize) {
                groups.push(expert);
                first.push(at + start);
            }
            at += own;
            ends.push(at);
        }
        let sizes = [("m", rows), ("n", n), ("k", k), ("g", experts), ("t", groups.len() as i64)];
        let held = gather.then_some(("r", rows));
        let sizes = sizes.into_iter().chain(held).map(|(name, size)| (name.to_string(), size)).collect();
        let tables = [("groups", groups), ("first", first), ("ends", ends)];
        let tables = tables.map(|(name, values)| (name, Integers::Table(values)));
        let rows = gather.then_some(("rows", Integers::Line { first: 0, step: 1 }));
        Launch { sizes, integers: tables.into_iter().chain(rows).collect::<BTreeMap<_, _>>() }
    }

    /// The sizes of one product of as many rows as all tiles have.
    pub fn in_tiles(self, tile: i64) -> [i64; 3] {
        let [each, n, k] = self.each();
        [(each + tile - 1) / tile * tile * self.experts, n, k]
    }

    /// The estimated time of a configuration in microseconds.
    pub fn microseconds(self, tiled: &Tiled) -> f64 {
        let rows = Rows { experts: self.experts, each: self.rows as f64 / self.experts as f64 };
        Machine { multiprocessors: tiled.multiprocessors() }.microseconds(
            [self.n, self.k],
            tiled,
            rows,
            tiled.rows(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gemm_weights::{Batch, WeightsConfig};

    #[test]
    fn rows_are_shared_out_evenly() {
        let config = WeightsConfig { bn: 8, batch: Batch::Ragged, gather: true, ..WeightsConfig::default() };
        let launch = ExpertsProblem::of(&[29, 64, 128, 3]).launch(&Tiled::Few(config));
        let table = |name: &str| match &launch.integers[name] {
            Integers::Table(values) => values.clone(),
            Integers::Line { .. } => Vec::new(),
        };
        assert_eq!(table("ends"), [10, 20, 29]);
        assert_eq!(table("groups"), [0, 0, 1, 1, 2, 2]);
        assert_eq!(table("first"), [0, 8, 10, 18, 20, 28]);
        assert_eq!(["m", "g", "t", "r"].map(|name| launch.sizes[name]), [29, 3, 6, 29]);
        assert_eq!(launch.integers["rows"].element(7), 7);
    }
}
