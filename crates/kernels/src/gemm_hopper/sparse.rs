//! Products with a sparse A, of which two elements of every four along k are there.

use tilewright_machine::Sparsity;

use super::{Dual, FillMode, Form, HopperGemmConfig, Pack, Triangle};
use crate::config::ConfigError;
use crate::warp_specialized::{Batch, Cluster, Major, Schedule, SparseWgmma, bytes};

/// Bytes of a row of B that an instruction with a sparse A takes.
const STEP: i64 = 64;

/// 32-bit registers of A of an instruction, of 64 rows of 32 bytes (PTX ISA 8.7, section 9.7.15.6).
const FRAGMENT: i64 = 4;

impl HopperGemmConfig {
    /// Rows and columns of which metadata have whole tiles (see [`compress`](crate::sparse::compress)).
    pub fn metadata_tile(&self) -> [usize; 2] {
        SparseWgmma::metadata_tile(&self.tiling()).map(|extent| usize::try_from(extent).unwrap_or(1))
    }

    /// The columns of A that are there of so many: two of every four, the last of which may be cut.
    pub(super) fn columns_of_a(&self, columns: i64) -> i64 {
        if self.sparse { (columns + 3) / 4 * 2 } else { columns }
    }

    /// Columns of which a stage has a multiple.
    pub(super) fn columns_of_step(&self) -> i64 {
        (if self.sparse { STEP } else { STEP / 2 }) * 8 / i64::from(self.multiplied()[0].bits())
    }

    /// 32-bit registers of a math thread for what of A a step along k has there: the metadata, and the elements where instructions take them
    /// from registers.
    pub(super) fn registers_of_sparse(&self) -> i64 {
        let calls = self.bm / 64 / self.warpgroups * (self.multiplied_bytes(self.bk) / STEP);
        let elements = if self.register_a { FRAGMENT } else { 0 };
        if self.sparse { calls * (1 + elements) } else { 0 }
    }

    /// Bytes of a stage's metadata.
    pub(super) fn bytes_of_metadata(&self) -> i64 {
        let places = self.bm * self.columns_of_a(self.bk);
        if self.sparse { places * i64::from(Sparsity::META.bits()) / 8 } else { 0 }
    }

    /// The mainloop.
    pub(super) fn sparse_mainloop(&self) -> SparseWgmma {
        SparseWgmma {
            tiling: self.tiling(),
            dtypes: self.multiplied(),
            b: self.b,
            hints: [self.hint_a, self.hint_b],
            register_a: self.register_a,
        }
    }

    /// Checks what a sparse A goes with.
    pub(super) fn check_sparse(&self) -> Result<(), ConfigError> {
        if !self.sparse {
            let wanted = "of a dense a it says nothing: must be false, or sparse true";
            let refused = self.register_a.then(|| ConfigError::value("register_a", true, wanted));
            return refused.map_or(Ok(()), Err);
        }
        let refuse = |field, value: &dyn std::fmt::Display, wanted: &str| {
            Err(ConfigError::value(field, value, format!("{wanted}, with sparse=true")))
        };
        if bytes(self.dtype) > 2 || self.multiplied()[0] != self.dtype {
            return refuse("dtype", &self.dtype, "must be f16, bf16, e4m3, e5m2, i8 or u8");
        }
        if self.multiplied()[1] != self.right() {
            return refuse("dtype_b", &self.right(), "must be same, e4m3 or e5m2");
        }
        if self.a != Major::K {
            return refuse("a", &"m", "the groups of elements lie along k: must be k");
        }
        if self.batch != Batch::None {
            return refuse("batch", &self.batch, "metadata are of one matrix: must be none");
        }
        if self.form != Form::Wgmma {
            return refuse("form", &self.form, "must be wgmma");
        }
        if self.dual != Dual::None {
            return refuse("dual", &self.dual, "must be none");
        }
        if self.pack != Pack::None {
            return refuse("pack", &self.pack, "must be none");
        }
        if self.fill != FillMode::Full {
            return refuse("fill", &self.fill, "must be full");
        }
        if self.triangular != Triangle::None {
            return refuse("triangular", &self.triangular, "must be none");
        }
        if self.split > 1 {
            return refuse("split", &self.split, "must be 1");
        }
        if self.schedule != Schedule::DataParallel {
            return refuse("schedule", &self.schedule, "must be data_parallel");
        }
        if let Cluster::AlongK(_) = self.cluster {
            return refuse("cluster", &self.cluster, "must be none, or along m or n");
        }
        for (field, set) in [("complex", self.complex), ("sums_a", self.sums_a), ("swap", self.swap)] {
            if set {
                return refuse(field, &true, "must be false");
            }
        }
        if self.promotes() {
            return refuse("promote", &true, "must be false or auto");
        }
        if self.in_flight > 1 {
            let wanted = "a step's metadata stay in registers until its products are done: must be 0 or 1";
            return refuse("in_flight", &self.in_flight, wanted);
        }
        Ok(())
    }
}
