//! The form with sums and cast weights in tensor memory (sm_100a): one warpgroup loads, one or two cast, one thread of another multiplies, and one or two store
//! (`docs/blackwell.md`).

use tilewright_machine::{DType, TensorMemory};

use super::{Cluster, Instruction, Scaled, Schedule, StoredWeights, WeightsConfig};
use crate::config::ConfigError;
use crate::warp_specialized::{
    AHEAD_REGISTERS, BARRIERS, COPIED, ISSUING_REGISTERS, MULTIPROCESSORS, OF_ONE_WARPGROUP, SUM_STAGES,
    WORD, bytes, most_beside, within,
};

/// Rows of the tile, those of a left factor in tensor memory.
const ROWS: i64 = TensorMemory::LANES;

/// Columns of tensor memory of a left factor, at most: with more its products begin later, and take no less time.
const WIDEST: u32 = 64;

/// Stages of left factors, at least and at most.
const LEFTS: [i64; 2] = [2, 4];

/// Registers of a thread that casts beside its weights: for places, barriers and masks of casts.
const OF_CAST: i64 = 40;

/// Those that it needs at least.
const LEAST_OF_CAST: i64 = 24;

/// Registers of a thread that casts, at least and at most.
const CAST_REGISTERS: [i64; 2] = [72, 216];

/// Rows of activations of tiles worth trying.
const COLUMNS: [i64; 9] = [16, 32, 48, 64, 96, 128, 160, 192, 224];

/// Cycles from an arrival of one role to what another does behind it. Not measured.
const HANDED_ON: f64 = 60.0;

/// Instructions of a storing thread for the sums of a group beside those of its columns: waits, scales, and the copy. Not measured.
const OF_SUMS: f64 = 12.0;

impl WeightsConfig {
    /// The tiles of this form's space.
    pub(super) fn tcgen05_tiles() -> impl Iterator<Item = Self> {
        let tiles = [1, 2].into_iter().flat_map(|warpgroups| COLUMNS.map(|bn| (warpgroups, bn)));
        let depths =
            tiles.flat_map(|tile| [(64, 64), (128, 64), (128, 128), (256, 128)].map(|deep| (tile, deep)));
        let forms = depths.flat_map(|point| [Scaled::Sums, Scaled::Weights].map(|scaled| (point, scaled)));
        forms.map(|(((warpgroups, bn), (bk, part)), scaled)| Self {
            instruction: Instruction::Tcgen05,
            bm: ROWS,
            bn,
            bk,
            part,
            warpgroups,
            scaled,
            sm_count: MULTIPROCESSORS,
            ..Self::default()
        })
    }

    /// True if threads of their own cast, for products with sums in tensor memory.
    pub(super) fn casts_apart(&self) -> bool {
        self.instruction == Instruction::Tcgen05
    }

    /// Warpgroups that do nothing but cast.
    pub(super) fn casting(&self) -> i64 {
        if self.casts_apart() { self.warpgroups } else { 0 }
    }

    /// Warpgroups that store results.
    pub(super) fn storing(&self) -> i64 {
        match self.casts_apart() {
            true => 1 + i64::from(self.bn > OF_ONE_WARPGROUP),
            false => self.warpgroups,
        }
    }

    /// Rows of weights of the smallest tile, and rows of activations.
    pub(super) fn smallest(&self) -> [i64; 2] {
        if self.casts_apart() { [ROWS, 16] } else { [StoredWeights::ROWS, 8] }
    }

    /// Columns of k whose sums are one stage of tensor memory, of those of a stage of the factors.
    fn summed(&self) -> i64 {
        match self.group {
            Some(group) if self.promotes() => group.min(self.bk).max(1),
            _ => self.bk.max(1),
        }
    }

    /// Columns of tensor memory that stages of left factors may take.
    fn columns_left(&self) -> i64 {
        i64::from(TensorMemory::COLUMNS) - SUM_STAGES * self.bn
    }

    /// Columns of tensor memory of a left factor of so many weights a row.
    fn columns_of(&self, weights: i64) -> u32 {
        TensorMemory::columns_of(weights, self.a())
    }

    /// Columns of k of a left factor: whole parts of those whose sums are one stage, as many as there is room for.
    pub(super) fn left(&self) -> i64 {
        let span = self.span().max(1);
        let parts = (self.summed() / span).max(1);
        let fits = |parts: &i64| {
            let columns = self.columns_of(parts * span);
            columns <= WIDEST && LEFTS[0] * i64::from(columns) <= self.columns_left()
        };
        let whole = (1..=parts).rev().filter(|some| parts % some == 0);
        span * whole.into_iter().find(fits).unwrap_or(1)
    }

    /// Stages of left factors.
    pub(super) fn lefts(&self) -> i64 {
        (self.columns_left() / i64::from(self.columns_of(self.left())).max(1)).clamp(LEFTS[0], LEFTS[1])
    }

    /// Registers of a thread that casts for what it holds of a part: its weights as they are stored and as they are multiplied, and as many more for each of upper bits, zero points and
    /// scales, which are spread over them.
    fn held_by_cast(&self) -> i64 {
        let weights = self.bm * self.part / 128;
        let changes =
            [self.zeros, self.scaled == Scaled::Weights && self.group.is_some(), self.upper.is_some()];
        let changes = changes.into_iter().filter(|change| *change).count() as i64;
        let left = weights * bytes(self.a()) / 4;
        (left + weights * self.bits() / 32).max(left * (1 + changes))
    }

    /// Registers of a thread that casts.
    pub(super) fn cast_registers(&self) -> i64 {
        if !self.casts_apart() {
            return 0;
        }
        ((self.held_by_cast() + OF_CAST + 7) / 8 * 8).clamp(CAST_REGISTERS[0], CAST_REGISTERS[1])
    }

    /// Registers of a thread that stores: those that there are beside the others'.
    pub(super) fn storing_registers(&self) -> i64 {
        let constants = self.ahead.then_some(AHEAD_REGISTERS);
        let casting = std::iter::repeat_n(self.cast_registers(), self.warpgroups.max(0) as usize);
        let others = [self.load_registers, ISSUING_REGISTERS].into_iter().chain(constants).chain(casting);
        self.math_registers.min(most_beside(&others.collect::<Vec<_>>(), self.storing(), 1))
    }

    /// Columns of the widest instruction whose result is in registers.
    pub(super) fn widest(&self) -> i64 {
        if self.casts_apart() { 2 * COPIED } else { self.bn }
    }

    /// Bytes of shared memory for the barriers of what is in tensor memory, and for its address.
    pub(super) fn bytes_of_sums(&self) -> i64 {
        if self.casts_apart() { (SUM_STAGES + self.lefts()) * BARRIERS + WORD } else { 0 }
    }

    /// Cycles of the tensor cores for a step (SemiAnalysisAI/microbench-blackwell, on a B200: n/2 cycles of 128 rows and 32 bytes, whose left factor is in tensor memory); those of
    /// all threads that cast and store, given the instructions of each, and of the role that takes longest.
    pub(super) fn tcgen05_cycles(&self, step: f64, [cast, alone]: [f64; 2]) -> [f64; 3] {
        let multiply = self.bk as f64 / step * self.bn as f64 / 2.0;
        let (sums, lefts) = ((self.bk / self.summed()) as f64, (self.bk / self.left()) as f64);
        let store = match self.promotes() {
            true => sums * (2.0 * (self.bn / self.storing()) as f64 + OF_SUMS),
            false => 0.0,
        };
        let issue = self.warpgroups as f64 * cast + self.storing() as f64 * store;
        let of_sums = if self.promotes() { sums * HANDED_ON } else { 0.0 };
        let turn = (alone * cast + lefts * HANDED_ON).max(alone * store + of_sums);
        [multiply, issue, turn]
    }

    /// Checks what sums in tensor memory go with.
    pub(super) fn check_tcgen05(&self) -> Result<(), ConfigError> {
        if !self.casts_apart() {
            return Ok(());
        }
        let refuse = |field, value: &dyn std::fmt::Display, wanted: &str| {
            Err(ConfigError::value(field, value, format!("{wanted}, with instruction=tcgen05")))
        };
        if self.activations == Some(DType::I8) {
            return refuse("activations", &DType::I8, "sums are floats: must be same or e4m3");
        }
        if self.bm != ROWS {
            return refuse(
                "bm",
                &self.bm,
                "a tile has the rows of a left factor in tensor memory: must be 128",
            );
        }
        within("bn", self.bn, [16, 240], 16)?;
        within("warpgroups", self.warpgroups, [1, 2], 1)?;
        if self.blocks != 1 {
            return refuse(
                "blocks",
                &self.blocks,
                "a block has the multiprocessor's tensor memory: must be 1",
            );
        }
        if self.overlap_epilogue {
            let wanted = "results leave during the next tile's products always: must be false";
            return refuse("overlap_epilogue", &true, wanted);
        }
        Ok(())
    }

    /// Checks that registers have room for what is cast, and tensor memory for the sums and for stages of left factors.
    pub(super) fn check_room(&self) -> Result<(), ConfigError> {
        if self.casts_apart() && self.held_by_cast() > CAST_REGISTERS[1] - LEAST_OF_CAST {
            let wanted = format!(
                "what is cast takes {} registers of a thread, which has {} and needs about {LEAST_OF_CAST} more: use narrower \
                 parts or groups, or scaled=sums",
                self.held_by_cast(),
                CAST_REGISTERS[1]
            );
            return Err(ConfigError::value("part", self.part, wanted));
        }
        let least = self.columns_of(self.left());
        if self.casts_apart() && LEFTS[0] * i64::from(least) > self.columns_left() {
            let wanted = format!(
                "{SUM_STAGES} stages of sums and {} of weights of {least} columns take more than the {} columns of \
                 tensor memory: use narrower tiles or parts",
                LEFTS[0],
                TensorMemory::COLUMNS
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }

    /// The ways to share out what a tile of this form needs.
    pub(super) fn tcgen05_shared_out(self) -> Vec<Self> {
        let of = |schedule: Schedule, cluster: Cluster| Self { schedule, cluster, ..self };
        let whole = [Cluster::None, Cluster::AlongN(2), Cluster::AlongM(2), Cluster::AlongK(2)];
        let shared = [Cluster::None, Cluster::AlongN(2)];
        let whole = whole.map(|cluster| of(Schedule::DataParallel, cluster));
        whole.into_iter().chain(shared.map(|cluster| of(Schedule::StreamK, cluster))).collect()
    }
}
