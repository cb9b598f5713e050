//! Scales of blocks of both factors along k, with sums in tensor memory: MXFP8, MXFP4 and NVFP4.

use tilewright_machine::{DType, SumsScaling, TensorMemory, has_scaled_tcgen05};

use super::{Form, HopperGemmConfig, Pack};
use crate::config::ConfigError;
use crate::warp_specialized::SUM_STAGES;

impl HopperGemmConfig {
    /// Elements of a block that has a scale: those of the formats MX, and of NVFP4.
    pub(super) fn block(&self) -> Option<i64> {
        self.scales.map(|scale| if scale == DType::UE4M3 { 16 } else { 32 })
    }

    /// Bytes of the scales of a stage: of A's rows and of each right matrix', as many as come to tensor memory. A block of a pair has those of all rows of B.
    pub(super) fn bytes_of_scales(&self) -> i64 {
        let Some(block) = self.block() else { return 0 };
        let (of_a, of_b) = self.sides((self.bm, self.bn));
        let rows = SumsScaling::rows_for(of_a) + self.dual.matrices() * SumsScaling::rows_for(of_b);
        rows * (self.bk / block)
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
            ("pack", self.pack.to_string(), self.pack == Pack::None || self.dtype != DType::E2M1),
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
        let of_scales = self.bytes_of_scales() / SumsScaling::BYTES * i64::from(SumsScaling::COLUMNS);
        let all = SUM_STAGES * self.dual.sums() * self.bn + of_scales;
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
