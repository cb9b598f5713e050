//! Sums of the rows of A beside a product: the warpgroups that multiply read the tiles of A from shared memory while the tensor cores do.

use super::HopperGemmConfig;
use crate::config::ConfigError;
use crate::warp_specialized::{Batch, Cluster, Schedule};

impl HopperGemmConfig {
    /// Checks what sums of rows of A go with.
    pub(super) fn check_sums_a(&self) -> Result<(), ConfigError> {
        if !self.sums_a {
            return Ok(());
        }
        if self.split > 1 {
            let wanted = "a part of k has sums of its own: must be 1 with sums_a=true";
            return Err(ConfigError::value("split", self.split, wanted));
        }
        if let Cluster::AlongK(_) = self.cluster {
            let wanted = "its blocks have parts of the rows: must be none, or along m or n, with sums_a=true";
            return Err(ConfigError::value("cluster", self.cluster, wanted));
        }
        if self.schedule != Schedule::DataParallel {
            let wanted = "blocks share steps of a tile: must be data_parallel with sums_a=true";
            return Err(ConfigError::value("schedule", self.schedule, wanted));
        }
        if self.batch == Batch::Ragged {
            let wanted = "rows belong to several tiles: must not be ragged with sums_a=true";
            return Err(ConfigError::value("batch", self.batch, wanted));
        }
        Ok(())
    }

    /// 32-bit registers of a math thread for a tile of A and its sums.
    pub(super) fn registers_of_a(&self) -> i64 {
        let (of_a, _) = self.sides((self.bm, self.bn));
        let words = self.multiplied_bytes(of_a * self.bk) / 4 / (128 * self.warpgroups);
        // A sum for each 16 bytes.
        if self.sums_a { words + (words / 4).max(1) } else { 0 }
    }
}
