//! Scales of blocks of both factors along k, with sums in tensor memory: MXFP8, MXFP4 and NVFP4.

use tilewright_machine::{DType, SumsScaling, TensorMemory, has_scaled_tcgen05};

use super::{Cluster, Dual, FillMode, Form, HopperGemmConfig, Pack, Schedule, Triangle};
use crate::config::ConfigError;
use crate::warp_specialized::SUM_STAGES;

impl HopperGemmConfig {
    /// Elements of a block that has a scale: those of the formats MX, and of NVFP4.
    pub(super) fn block(&self) -> Option<i64> {
        self.scales.map(|scale| if scale == DType::UE4M3 { 16 } else { 32 })
    }

    /// Scales of a stage: of A's rows and of B's, as many as come to tensor memory.
    fn scales_of_stage(&self) -> [i64; 2] {
        let of = |rows: i64, block: i64| SumsScaling::rows_for(rows) * (self.bk / block);
        self.block().map_or([0, 0], |block| [self.bm, self.bn].map(|rows| of(rows, block)))
    }

    /// Bytes of the scales of a stage.
    pub(super) fn bytes_of_scales(&self) -> i64 {
        self.scales_of_stage().iter().sum()
    }

    /// Checks the scales, and what goes with them.
    pub(super) fn check_scales(&self) -> Result<(), ConfigError> {
        let Some((scale, block)) = self.scales.zip(self.block()) else {
            return match self.dtype {
                DType::E2M1 => {
                    let wanted = "elements of e2m1 are multiplied with scales alone: must be ue8m0 or ue4m3";
                    Err(ConfigError::value("scales", "none", wanted))
                }
                _ => Ok(()),
            };
        };
        if self.form != Form::Tcgen05 {
            return Err(ConfigError::value("scales", scale, "must be none but with form=tcgen05"));
        }
        let (scaling, [of_a, of_b]) = (SumsScaling { dtype: scale, block }, self.multiplied());
        if !has_scaled_tcgen05(of_a, of_b, DType::F32, scaling) {
            let wanted = match scale {
                DType::UE4M3 => "goes with e2m1",
                _ => "goes with e4m3, e5m2, e3m2, e2m3 and e2m1",
            };
            let wanted = format!("{wanted}: must be none with dtype={}", self.dtype);
            return Err(ConfigError::value("scales", scale, wanted));
        }
        let whole = [
            ("sparse", self.sparse.to_string(), !self.sparse),
            (
                "gather",
                self.gather.to_string(),
                !self.gather || self.sides((self.bm, self.bn)).0 % SumsScaling::ROWS == 0,
            ),
            ("dual", self.dual.to_string(), self.dual == Dual::None),
            ("fill", self.fill.to_string(), self.fill == FillMode::Full),
            ("triangular", self.triangular.to_string(), self.triangular == Triangle::None),
            ("pack", self.pack.to_string(), self.pack == Pack::None || self.dtype != DType::E2M1),
            ("schedule", self.schedule.to_string(), self.schedule == Schedule::DataParallel),
            ("split", self.split.to_string(), self.split == 1),
            ("cluster", self.cluster.to_string(), self.cluster == Cluster::None),
        ];
        if let Some((field, value, _)) = whole.into_iter().find(|(_, _, right)| !right) {
            return Err(ConfigError::value(
                field,
                value,
                "scales are of blocks of two whole factors along k: must be as by default with scales",
            ));
        }
        if self.bm != SumsScaling::ROWS {
            return Err(ConfigError::value("bm", self.bm, "must be 128 with scales"));
        }
        let step = SumsScaling::SCALES * block;
        if self.bk % step != 0 {
            let wanted =
                format!("four scales of a row come to tensor memory at a time: must be a multiple of {step}");
            return Err(ConfigError::value("bk", self.bk, wanted));
        }
        let columns = self.scales_of_stage().map(|scales| scales / SumsScaling::BYTES);
        let of_scales = columns.iter().sum::<i64>() * i64::from(SumsScaling::COLUMNS);
        let all = SUM_STAGES * self.bn + of_scales;
        if all > i64::from(TensorMemory::COLUMNS) {
            let wanted = format!(
                "{SUM_STAGES} stages of sums and the scales take {all} columns of tensor memory, and there are {}: use narrower tiles",
                TensorMemory::COLUMNS
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }
}
