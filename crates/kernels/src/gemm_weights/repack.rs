//! The kernel that brings weights from rows to the order of [`StoredWeights`]: a block has some units, which it reads by rows, exchanges
//! between its threads, and writes as threads of the product will load them.

use tilewright_machine::DType;
use tilewright_tile::Program;
use tilewright_tile::dsl::{KernelBuilder, block_x, block_y, nested, steps, tile};

use super::{StoredWeights, WeightsConfig};
use crate::config::{ConfigError, parameters};
use crate::warp_specialized::{Takers, within};

parameters! {
    /// The formats of weights that are put in the order in which `gemm_weights` loads them. The order does not depend on tiles.
    #[derive(Copy)]
    pub struct RepackConfig, "repack_weights", programs {
        /// The type of the weights, or of their upper bits: i4, u4, e2m1, i8, u8, e4m3, i2, u2, i1, u1 or i16.
        weights: DType as WEIGHT = DType::I4,
        /// Neighbours along k that share a scale: a power of two from 16 on, or k, for all of them.
        group: Option<i64> as GROUP = Some(128),
        /// The type of the activations, where that has 8 bits: same, e4m3 or i8.
        activations: Option<DType> as ACTIVATIONS = None,
        /// Units of 64 rows along k that a block of 128 threads has.
        units: i64 as INT = 1,
    }
}

/// Threads of a block: those of a unit.
const THREADS: i64 = 128;

impl RepackConfig {
    /// The product that the weights are for.
    fn product(&self) -> WeightsConfig {
        let RepackConfig { weights, group, activations, .. } = *self;
        WeightsConfig { weights, group, activations, ..WeightsConfig::default() }
    }

    /// The order in which the weights are stored.
    pub fn stored(&self) -> StoredWeights {
        self.product().stored()
    }

    /// The program, with the sizes `n` and `k`, the weights `x[n, k]` in rows, and `w`, the same as [`stored`](Self::stored).
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.product().check_formats()?;
        within("units", self.units, [1, 16], 1)?;
        let (stored, rows) = (self.stored(), StoredWeights::ROWS);
        let columns = stored.columns() * self.units;
        let mut t = KernelBuilder::new("repack_weights");
        let (n, k) = (t.size("n", 4096), t.size("k", 4096));
        let (down, across) = (n.ceil_div(rows), k.ceil_div(columns));
        let x = t.tensor("x", self.weights, [&n, &k]);
        let w = t.tensor("w", self.weights, stored.shape(&n, &k));
        t.grid([&down, &across]);
        t.threads(THREADS);
        let modes = [tile(0, rows), steps(0, &down, rows), tile(1, columns), steps(1, &across, columns)];
        let by_rows = t.global_view("gx", &x, modes);
        let pieces = stored.pieces();
        let of_columns = stored.view(true, 0).into_iter().chain([steps(1, self.units, pieces)]);
        let modes = [
            nested(stored.view(false, 0)),
            steps(0, &down, 1),
            nested(of_columns),
            steps(1, &across, self.units * pieces),
        ];
        let by_units = t.global_view("gw", &w, modes);
        let [here, there] =
            [by_rows, by_units].map(|view| view.index([None, Some(block_x()), None, Some(block_y())]));
        let read = t.register_tensor("read", self.weights, [rows, columns]);
        t.copy(here, read);
        let order = t.rearrange("order", read, Some(stored.fragment([rows, columns], Takers::Warpgroups(1))));
        t.copy(order, there);
        Ok(t.finish()?)
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }
}
