//! Rules of the form with sums in tensor memory that are of matrices alone: its space, and the options that it does not go with. The rest is that of all such kernels
//! (`warp_specialized/tensor_memory.rs`).

use tilewright_machine::{Features, sums_need};

use super::{Form, HopperGemmConfig, Precision};
use crate::config::ConfigError;
use crate::warp_specialized::{MULTIPROCESSORS, Products, not_there, tensor_memory_tiles};

/// Columns of tiles worth trying: those of instructions.
const COLUMNS: [i64; 16] = [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];

impl HopperGemmConfig {
    /// The tiles of this form's space, either way round.
    pub(super) fn tcgen05_tiles() -> impl Iterator<Item = Self> {
        let ways = tensor_memory_tiles(&COLUMNS)
            .flat_map(|tile| [(false, 64), (true, 64), (false, 32), (true, 32)].map(|way| (tile, way)));
        ways.map(|((bm, bn, warpgroups), (swap, bk))| Self {
            form: Form::Tcgen05,
            bm,
            bn,
            bk,
            swap,
            warpgroups,
            sm_count: MULTIPROCESSORS,
            ..Self::default()
        })
    }

    /// The same tile in pairs of blocks, where it has the rows: one, or two that share the factor of which each block has its own rows, or the other.
    pub(super) fn in_pairs(self) -> impl Iterator<Item = Self> {
        let clusters = self.tiling().pairs();
        clusters.map(move |cluster| Self { pair: true, cluster, sm_count: self.resident(cluster), ..self })
    }

    /// The features that an architecture must have: those of the form, and of its sums.
    pub(super) fn features(&self) -> Features {
        let sums = if self.form == Form::Tcgen05 { sums_need(self.sum()) } else { Features::NONE };
        self.form.needs() | sums
    }

    /// Registers of a thread that multiplies, or of one that stores sums of tensor memory: those that there are beside the other warpgroups'.
    pub(crate) fn storing_registers(&self) -> i64 {
        self.tiling().math_registers
    }

    /// Checks what pairs of blocks go with.
    pub(super) fn check_pair(&self) -> Result<(), ConfigError> {
        let whole = (self.gather && self.swap && self.bn.count_ones() > 1)
            .then_some("each block gathers half of the rows, four a thread: with bn a power of two");
        self.tiling().check_pair(self.pair, whole)
    }

    /// Checks what sums in tensor memory go with.
    pub(super) fn check_tcgen05(&self) -> Result<(), ConfigError> {
        if self.form != Form::Tcgen05 {
            return Ok(());
        }
        if self.precision != Precision::Tf32 {
            let wanted = "sums of parts are not added by threads: must be tf32";
            return Err(not_there("precision", &self.precision, wanted));
        }
        let flags = [
            ("promote", self.promotes(), "no threads add sums of steps"),
            ("sums_a", self.sums_a, "no threads read stages"),
        ];
        if let Some((field, _, why)) = flags.into_iter().find(|(_, set, _)| *set) {
            return Err(not_there(field, &true, &format!("{why}: must be false")));
        }
        self.tiling().check_tensor_memory(&Products {
            sums: self.dual.sums(),
            dtypes: self.multiplied(),
            majors: self.majors(),
            in_flight: self.in_flight,
        })
    }
}
