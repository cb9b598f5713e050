//! Rows of A that lie anywhere: a table has the number of each. Threads copy them to the stages, 16 bytes at a time, since the tensor memory
//! accelerator of Hopper copies rows that are neighbours. And rows of C anywhere, to which results are added.

use super::multiplied::is_six;
use super::{HopperGemmConfig, Pack};
use crate::config::ConfigError;
use crate::epilogue::{Chain, EpilogueOp};
use crate::warp_specialized::{FillMode, Major, Scattered, Schedule, Triangle, bytes, gathering_registers};

impl HopperGemmConfig {
    /// Checks what rows that lie anywhere go with.
    pub(super) fn check_gather(&self) -> Result<(), ConfigError> {
        if !self.gather {
            return Ok(());
        }
        let wanted = if !self.form.tiles() {
            "form must be wgmma or tcgen05: others read rows that are neighbours"
        } else if self.a != Major::K {
            "rows are contiguous: a must be k"
        } else if self.batch.counts_products() {
            "one a has all rows: batch must be none, grouped or ragged"
        } else if self.pack != Pack::None {
            "rows are read where they lie: pack must be none"
        } else if self.parts() > 1 {
            "rows are read where they lie, and not split into parts: precision must be tf32"
        } else if [self.dtype, self.right()].into_iter().any(is_six) {
            "rows are read where they lie, and floats of six bits are copied ahead: dtype and dtype_b must be others"
        } else if self.packs() != [false; 2] && !self.complex {
            "rows are read where they lie: b of f32 must be k"
        } else if self.sparse || self.complex {
            "sparse and complex must be false"
        } else if self.fill != FillMode::Full || self.triangular != Triangle::None {
            "rows have no order: fill must be full, and triangular none"
        } else if self.schedule != Schedule::DataParallel {
            "tiles are whole: schedule must be data_parallel"
        } else if self.cluster.shape()[1] > if self.pair && self.swap { 2 } else { 1 } {
            "threads copy to their own block: cluster must be none, along m or along k, or n2 of a pair with swap"
        } else {
            return self.check_loading_registers();
        };
        Err(ConfigError::value("gather", true, wanted))
    }

    /// Registers of a thread that copies rows that lie anywhere: for the places of those that it copies from.
    pub(crate) fn gathering_registers(&self) -> i64 {
        let (of_a, _) = self.sides((self.bm, self.bn));
        gathering_registers(of_a, self.bk * bytes(self.dtype))
    }

    /// Checks what results that are added to rows anywhere go with.
    pub(super) fn check_scatter(&self, custom: &[&dyn EpilogueOp]) -> Result<(), ConfigError> {
        if !self.scatter {
            return Ok(());
        }
        if !self.form.tiles() {
            let wanted = "form must be wgmma or tcgen05: others write rows that are neighbours";
            return Err(ConfigError::value("scatter", true, wanted));
        }
        let chain = Chain::new(&self.epilogue, custom);
        Scattered {
            batch: self.batch,
            whole: self.schedule == Schedule::DataParallel && self.split == 1,
            fill: self.fill,
            reads: chain.in_place(self.result()) || !chain.sums.is_empty(),
            tiling: &self.tiling(),
        }
        .check()
    }

    fn check_loading_registers(&self) -> Result<(), ConfigError> {
        let least = self.gathering_registers();
        if self.load_registers >= least {
            return Ok(());
        }
        let wanted = format!(
            "a thread keeps the places of the rows that it copies: must be at least {least} with gather=true"
        );
        Err(ConfigError::value("load_registers", self.load_registers, wanted))
    }
}
