//! Rows of activations by groups, each with weights of its own, and rows that lie anywhere: what they go with.

use super::WeightsConfig;
use crate::config::ConfigError;
use crate::warp_specialized::{Batch, FillMode, Scattered, Schedule, gathering_registers};

impl WeightsConfig {
    /// Checks what groups and rows that lie anywhere go with.
    pub(super) fn check_groups(&self) -> Result<(), ConfigError> {
        if self.batch.counts_products() {
            let wanted = "must be none, grouped or ragged: a batch has a launch for each product";
            return Err(ConfigError::value("batch", self.batch, wanted));
        }
        let [along_m, along_n, _] = self.cluster.shape();
        if (self.batch != Batch::None || self.gather) && self.schedule != Schedule::DataParallel {
            let wanted = "tiles of groups, and of rows that lie anywhere, are whole: must be data_parallel";
            return Err(ConfigError::value("schedule", self.schedule, wanted));
        }
        if self.batch.has_groups() && along_m > 1 {
            let wanted = "neighbours along m may be of different groups: use n2, k2 or none";
            return Err(ConfigError::value("cluster", self.cluster, wanted));
        }
        if self.scatter {
            let whole = self.schedule == Schedule::DataParallel;
            let (fill, reads, tiling) = (FillMode::Full, false, &self.tiling());
            Scattered { batch: self.batch, whole, fill, reads, tiling }.check()?;
        }
        if !self.gather {
            return Ok(());
        }
        if along_n > 1 {
            let wanted = "threads copy to their own block: cluster must be none, along m or along k";
            return Err(ConfigError::value("gather", true, wanted));
        }
        let least = self.gathering_registers();
        if self.load_registers < least {
            let wanted = format!(
                "a thread keeps the places of the rows that it copies: must be at least {least} with gather=true"
            );
            return Err(ConfigError::value("load_registers", self.load_registers, wanted));
        }
        Ok(())
    }

    /// Registers of a thread that copies rows that lie anywhere: for the places of those that it copies from.
    pub(crate) fn gathering_registers(&self) -> i64 {
        gathering_registers(self.bn, 2 * self.bk)
    }
}
