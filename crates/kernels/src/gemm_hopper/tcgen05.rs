//! The form with sums in tensor memory (sm_100a): one warpgroup loads, one thread of the next multiplies into one stage of the sums, and others store another. Tiles are those
//! of one instruction (`docs/blackwell.md`).

use tilewright_machine::{DType, TensorMemory};

use super::{Cluster, Form, HopperGemmConfig, Major, Precision};
use crate::config::ConfigError;
use crate::warp_specialized::{
    BARRIERS, COPIED, ISSUING_REGISTERS, MULTIPROCESSORS, OF_ONE_WARPGROUP, SUM_STAGES, WORD, most_beside,
    within,
};

/// Cycles of a product of 128 rows and 32 bytes of k, both factors in shared memory: half of the columns, or what reading the factors takes, and of 64 rows as many
/// (SemiAnalysisAI/microbench-blackwell, on a B200: `docs/blackwell.md`).
const A_OF_128_ROWS: f64 = 32.0;

/// Floats of 32 bits within a span of 128 bytes.
const FLOATS_OF_A_SPAN: i64 = 32;

/// Bytes of the shortest row of a box in shared memory.
const RUN: i64 = 16;

/// Cycles of a product of a pair's 256 rows beside an eighth of its columns: each block reads its rows of one factor and half of the other (the same source).
const A_OF_A_PAIR: f64 = 35.0;

/// Rows of the tile of an instruction with all of the rate.
const ROWS: i64 = 128;

/// Columns of tiles worth trying: those of instructions.
const COLUMNS: [i64; 16] = [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256];

impl HopperGemmConfig {
    /// The tiles of this form's space, either way round.
    pub(super) fn tcgen05_tiles() -> impl Iterator<Item = Self> {
        let tiles = [64, ROWS].into_iter().flat_map(|bm| COLUMNS.map(|bn| (bm, bn)));
        let ways =
            tiles.flat_map(|tile| [(false, 64), (true, 64), (false, 32), (true, 32)].map(|way| (tile, way)));
        ways.map(|((bm, bn), (swap, bk))| Self {
            form: Form::Tcgen05,
            bm,
            bn,
            bk,
            swap,
            warpgroups: if bm == ROWS && bn > OF_ONE_WARPGROUP { 2 } else { 1 },
            sm_count: MULTIPROCESSORS,
            ..Self::default()
        })
    }

    /// The same tile in pairs of blocks, where it has the rows: one, or two that share the factor of which each block has its own rows.
    pub(super) fn in_pairs(self) -> impl Iterator<Item = Self> {
        let one = if self.swap { Cluster::AlongN(2) } else { Cluster::AlongM(2) };
        let paired = self.form == Form::Tcgen05 && self.bm == ROWS && !self.gather;
        let clusters = [one, Cluster::AlongMn(2, 2)].into_iter().filter(move |_| paired);
        clusters.map(move |cluster| Self { pair: true, cluster, sm_count: self.resident(cluster), ..self })
    }

    /// Columns of the tile whose factor a block has in shared memory: half of them, of a pair.
    pub(super) fn columns_held(&self) -> i64 {
        if self.pair { self.bn / 2 } else { self.bn }
    }

    /// Registers of a thread that multiplies, or of one that stores sums of tensor memory: those that there are beside the other warpgroups'.
    pub(super) fn storing_registers(&self) -> i64 {
        if self.form != Form::Tcgen05 {
            return self.math_registers;
        }
        self.math_registers.min(most_beside(&[self.load_registers, ISSUING_REGISTERS], self.warpgroups, 1))
    }

    /// Columns of the widest instruction whose result is in registers.
    pub(super) fn widest(&self) -> i64 {
        if self.form == Form::Tcgen05 { 2 * COPIED } else { self.bn }
    }

    /// Bytes of shared memory for the barriers of sums in tensor memory and for its address.
    pub(super) fn bytes_of_sums(&self) -> i64 {
        if self.form == Form::Tcgen05 { SUM_STAGES * BARRIERS + WORD } else { 0 }
    }

    /// Cycles of the tensor cores for a step along k of so many bytes, and of shared memory.
    pub(super) fn tcgen05_cycles(&self, bytes: f64) -> [f64; 2] {
        let (bm, bn) = (self.bm as f64, self.bn as f64);
        let shared =
            if self.pair { A_OF_A_PAIR + bn / 8.0 } else { A_OF_128_ROWS * bm / ROWS as f64 + bn / 4.0 };
        let products = bytes / 32.0;
        [products * (bn / 2.0).max(shared), products * shared]
    }

    /// Checks what pairs of blocks go with.
    pub(super) fn check_pair(&self) -> Result<(), ConfigError> {
        let wanted = match self.tiling().blocks() {
            _ if !self.pair => return Ok(()),
            _ if self.form != Form::Tcgen05 => "blocks multiply together with form=tcgen05 alone",
            _ if self.bm != ROWS => "each block of a pair has 128 rows: with bm=128",
            _ if self.gather => "tensor copies of boxes fill the stages of a pair: with gather=false",
            [2, _, 1] => return Ok(()),
            _ if self.swap => {
                "the two blocks lie along the tile's rows: with cluster=n2, or m2n2, m4n2, … of several pairs"
            }
            _ => {
                "the two blocks lie along the tile's rows: with cluster=m2, or m2n2, m2n4, … of several pairs"
            }
        };
        Err(ConfigError::value("pair", self.pair, wanted))
    }

    /// Checks what sums in tensor memory go with.
    pub(super) fn check_tcgen05(&self) -> Result<(), ConfigError> {
        if self.form != Form::Tcgen05 {
            return Ok(());
        }
        let refuse = |field, value: &dyn std::fmt::Display, wanted: &str| {
            Err(ConfigError::value(field, value, format!("{wanted}, with form=tcgen05")))
        };
        if self.multiplies_integers() {
            return refuse("dtype", &self.dtype, "must be f16, bf16, f32, e4m3 or e5m2, or e2m1 with scales");
        }
        if self.precision != Precision::Tf32 {
            return refuse(
                "precision",
                &self.precision,
                "sums of parts are not added by threads: must be tf32",
            );
        }
        if !matches!(self.bm, 64 | ROWS) {
            return refuse("bm", &self.bm, "a tile has the rows of an instruction: must be 64 or 128");
        }
        within("bn", self.bn, [16, 256], 16)?;
        // Where elements are contiguous along m or n: spans of 32 floats, and of others 16 bytes.
        let [of_a, of_b] = self.multiplied().map(|dtype| match dtype.bits() {
            32 => FLOATS_OF_A_SPAN,
            bits => RUN * 8 / i64::from(bits),
        });
        let blocks = self.bn / self.columns_held();
        let (rows, columns) = (("bm", self.bm, 1), ("bn", self.bn, blocks));
        let (first, second) = self.tiling().sides((rows, columns));
        for (((field, side, blocks), unit), major) in
            [(first, of_a), (second, of_b)].into_iter().zip(self.majors())
        {
            if major == Major::Mn && side % (unit * blocks) != 0 {
                let half = if blocks > 1 { ", and blocks of a pair have half each" } else { "" };
                let what = if self.dtype == DType::F32 { "floats" } else { "elements" };
                let wanted =
                    format!("must be a multiple of {} where {what} lie along it{half}", unit * blocks);
                return refuse(field, &side, &wanted);
            }
        }
        let columns = SUM_STAGES * self.dual.sums() * self.bn;
        if columns > i64::from(TensorMemory::COLUMNS) {
            let wanted = format!(
                "{SUM_STAGES} stages of sums take {columns} columns of tensor memory, and there are {}: use narrower tiles",
                TensorMemory::COLUMNS
            );
            return refuse("bn", &self.bn, &wanted);
        }
        let flags = [
            ("promote", self.promotes(), "no threads add sums of steps"),
            ("sums_a", self.sums_a, "no threads read stages"),
            (
                "overlap_epilogue",
                self.overlap_epilogue,
                "results leave during the next tile's products always",
            ),
        ];
        if let Some((field, _, why)) = flags.into_iter().find(|(_, set, _)| *set) {
            return refuse(field, &true, &format!("{why}: must be false"));
        }
        if self.in_flight != Self::default().in_flight {
            return refuse("in_flight", &self.in_flight, "products are waited for by barriers: must be 1");
        }
        Ok(())
    }
}
