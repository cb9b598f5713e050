//! Square results of which one triangle is computed (rank-k updates: SYRK of BLAS), and products with a triangular A (TRMM).

use super::HopperGemmConfig;
use crate::config::ConfigError;
use crate::epilogue::Part;
use crate::warp_specialized::{Cluster, Dual, FillMode, Major, Schedule, Triangle};

impl HopperGemmConfig {
    /// Returns whether A is the only factor: C = A · Aᵀ.
    pub(super) fn squares(&self) -> bool {
        self.fill == FillMode::Symmetric
    }

    /// Checks what goes with [`fill`](Self::fill) and [`triangular`](Self::triangular).
    pub(super) fn check_triangles(&self, custom: bool) -> Result<(), ConfigError> {
        self.check_fill(custom)?;
        let triangular = self.triangular;
        let wanted = if triangular == Triangle::None {
            return Ok(());
        } else if !self.form.tiles() {
            "form must be wgmma or tcgen05: others do all steps along k"
        } else if self.squares() {
            "a is both factors of a symmetric c: must be none"
        } else if self.batch.has_groups() {
            "rows of a belong to groups: batch must be none, packed, strided or pointers"
        } else if self.split > 1 || self.schedule != Schedule::DataParallel {
            "tiles differ in their steps along k: split must be 1, and schedule data_parallel"
        } else if matches!(self.cluster, Cluster::AlongK(_)) {
            "tiles differ in their steps along k: cluster must be none, along m or n, or both"
        } else {
            return Ok(());
        };
        Err(ConfigError::value("triangular", triangular, wanted))
    }

    fn check_fill(&self, custom: bool) -> Result<(), ConfigError> {
        let fill = self.fill;
        if fill == FillMode::Full {
            return Ok(());
        }
        let [down, across, _] = self.cluster.shape();
        let [rows, cols] = [self.bm * down, self.bn * across];
        let of_columns = |part: &Part| matches!(part, Part::RowSums | Part::ColSums);
        let of_a_side =
            |part: &Part| matches!(part, Part::RowScale | Part::ColScale | Part::Bias) || of_columns(part);
        let refused = |part: &Part| if self.squares() { of_a_side(part) } else { of_columns(part) };
        let wanted = if !self.form.tiles() {
            "form must be wgmma or tcgen05: others compute all of c".to_string()
        } else if rows != cols {
            format!(
                "tiles of {rows} × {cols} are not square: bm and bn, times the blocks of a cluster along them, must be equal"
            )
        } else if self.swap {
            "a square c is no smaller the other way round: swap must be false".to_string()
        } else if self.batch.has_groups() {
            "batch must be none, packed, strided or pointers".to_string()
        } else if self.schedule != Schedule::DataParallel {
            "schedule must be data_parallel".to_string()
        } else if self.split > 1 && !self.squares() {
            "parts of k are added everywhere: split must be 1".to_string()
        } else if let Some(part) = self.epilogue.parts().find(refused) {
            match of_columns(&part) {
                true => format!("{} would be sums of a part of c", part.name()),
                false => format!("{} differs between a tile and its mirror", part.name()),
            }
        } else if self.sums_a {
            "sums_a must be false".to_string()
        } else if !self.squares() {
            return Ok(());
        } else if custom {
            "function, or an operation of one's own, may differ between a tile and its mirror".to_string()
        } else if self.dual != Dual::None {
            "a is multiplied by itself: dual must be none".to_string()
        } else if self.b != Major::K {
            "a is both factors, and its order is that of a: b must be k".to_string()
        } else if self.dtype_b.is_some() {
            "a is both factors: dtype_b must be same".to_string()
        } else if self.pack.factors()[1] {
            "a is both factors: pack must be none or a".to_string()
        } else {
            return Ok(());
        };
        Err(ConfigError::value("fill", fill, wanted))
    }
}
