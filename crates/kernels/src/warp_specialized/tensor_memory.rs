//! Sums in tensor memory (sm_100a): one warpgroup loads, one thread of the next multiplies into one stage of the sums, and others store another. Tiles are those
//! of one instruction (`docs/blackwell.md`).

use tilewright_layout::Layout;
use tilewright_machine::{DType, TensorMemory};
use tilewright_tile::dsl::{KernelBuilder, Pipeline, Tensor};

use super::choices::{Cluster, Major};
use super::mainloop::Accumulators;
use super::rules::{
    BARRIERS, COPIED, ISSUING_REGISTERS, OF_ONE_WARPGROUP, SUM_STAGES, WORD, most_beside, within,
};
use super::stored::modes;
use super::tiling::{Numbers, Tiling};
use crate::config::ConfigError;

/// Cycles of a product of 128 rows and 32 bytes of k, both factors in shared memory: half of the columns, or what reading the factors takes, and of 64 rows as many
/// (SemiAnalysisAI/microbench-blackwell, on a B200: `docs/blackwell.md`).
const A_OF_128_ROWS: f64 = 32.0;

/// Cycles of a product of a pair's 256 rows beside an eighth of its columns: each block reads its rows of one factor and half of the other (the same source).
const A_OF_A_PAIR: f64 = 35.0;

/// Floats of 32 bits within a span of 128 bytes.
const FLOATS_OF_A_SPAN: i64 = 32;

/// Bytes of the shortest row of a box in shared memory.
const RUN: i64 = 16;

/// Rows of the tile of an instruction with all of the rate.
const ROWS: i64 = 128;

/// Groups of products in flight where nobody waits for groups: what there is without a choice.
const IN_FLIGHT: i64 = 1;

/// Tiles of these columns: rows, columns, and the warpgroups that store them.
pub(crate) fn tensor_memory_tiles(columns: &[i64]) -> impl Iterator<Item = (i64, i64, i64)> {
    let warpgroups = |bm, bn| if bm == ROWS && bn > OF_ONE_WARPGROUP { 2 } else { 1 };
    [64, ROWS].into_iter().flat_map(move |bm| columns.iter().map(move |bn| (bm, *bn, warpgroups(bm, *bn))))
}

/// The factors and sums of a kernel, as far as rules about tensor memory ask.
pub(crate) struct Products {
    /// Sums of a tile.
    pub sums: i64,
    /// The types of a and b, and the modes along which they are contiguous.
    pub dtypes: [DType; 2],
    pub majors: [Major; 2],
    /// Groups of products in flight, which is a choice of the other form.
    pub in_flight: i64,
}

impl Tiling {
    /// The same with sums in tensor memory, of pairs of blocks if so, and threads that store with the registers that there are beside the other warpgroups'.
    pub fn in_tensor_memory(self, pair: bool) -> Self {
        let others = [self.load_registers, ISSUING_REGISTERS];
        let math_registers = self.math_registers.min(most_beside(&others, self.warpgroups, 1));
        Tiling { tensor_memory: true, pair, math_registers, ..self }
    }

    /// The clusters of the tile's pairs, where it has the rows: one pair, or two that share the factor of which each block has its own rows, or the other.
    pub fn pairs(&self) -> impl Iterator<Item = Cluster> + use<> {
        let along = if self.swap { Cluster::AlongN } else { Cluster::AlongM };
        let paired = self.tensor_memory && self.bm == ROWS;
        [along(2), along(4), Cluster::AlongMn(2, 2)].into_iter().filter(move |_| paired)
    }

    /// Columns of the tile whose factor a block has in shared memory: half of them, of a pair.
    pub fn columns_held(&self) -> i64 {
        if self.pair { self.bn / 2 } else { self.bn }
    }

    /// Columns of the widest instruction whose result is in registers.
    pub fn widest(&self) -> i64 {
        if self.tensor_memory { 2 * COPIED } else { self.bn }
    }

    /// Bytes of shared memory for the barriers of sums in tensor memory and for its address.
    pub fn bytes_of_sums(&self) -> i64 {
        if self.tensor_memory { SUM_STAGES * BARRIERS + WORD } else { 0 }
    }

    /// Cycles of the tensor cores for products into tensor memory along so many bytes of k, and of shared memory.
    pub fn tensor_memory_cycles(&self, bytes: f64) -> [f64; 2] {
        let (bm, bn) = (self.bm as f64, self.bn as f64);
        let shared =
            if self.pair { A_OF_A_PAIR + bn / 8.0 } else { A_OF_128_ROWS * bm / ROWS as f64 + bn / 4.0 };
        let products = bytes / 32.0;
        [products * (bn / 2.0).max(shared), products * shared]
    }

    /// Checks what pairs of blocks go with; where stages are no halves, `whole` says why, and what would be right.
    pub fn check_pair(&self, pair: bool, whole: Option<&str>) -> Result<(), ConfigError> {
        let wanted = match (self.blocks(), whole) {
            _ if !pair => return Ok(()),
            _ if !self.tensor_memory => "blocks multiply together with form=tcgen05 alone",
            _ if self.bm != ROWS => "each block of a pair has 128 rows: with bm=128",
            (_, Some(whole)) => whole,
            ([2 | 4 | 8, _, 1], _) => return Ok(()),
            _ if self.swap => {
                "the two blocks lie along the tile's rows: with cluster=n2, or n4, m2n2, m4n2, … of several pairs"
            }
            _ => {
                "the two blocks lie along the tile's rows: with cluster=m2, or m4, m2n2, m2n4, … of several pairs"
            }
        };
        Err(ConfigError::value("pair", pair, wanted))
    }

    /// Checks what sums in tensor memory go with.
    pub fn check_tensor_memory(&self, products: &Products) -> Result<(), ConfigError> {
        if !self.tensor_memory {
            return Ok(());
        }
        if !matches!(self.bm, 64 | ROWS) {
            return Err(not_there(
                "bm",
                &self.bm,
                "a tile has the rows of an instruction: must be 64 or 128",
            ));
        }
        // Of integers a pair's instructions have every 32nd number of columns.
        let integers = !self.accumulator.is_float();
        let step = if self.pair && integers { 32 } else { 16 };
        within("bn", self.bn, [step, 256], step)?;
        // Where elements are contiguous along m or n: spans of 32 floats, and of others 16 bytes.
        let units = products.dtypes.map(|dtype| match dtype.bits() {
            32 => (FLOATS_OF_A_SPAN, "floats"),
            bits => (RUN * 8 / i64::from(bits), "elements"),
        });
        let blocks = self.bn / self.columns_held();
        let (first, second) = self.sides((("bm", self.bm, 1), ("bn", self.bn, blocks)));
        for (((field, side, blocks), (unit, what)), major) in
            [(first, units[0]), (second, units[1])].into_iter().zip(products.majors)
        {
            if major == Major::Mn && side % (unit * blocks) != 0 {
                let half = if blocks > 1 { ", and blocks of a pair have half each" } else { "" };
                let wanted =
                    format!("must be a multiple of {} where {what} lie along it{half}", unit * blocks);
                return Err(not_there(field, &side, &wanted));
            }
        }
        let columns = SUM_STAGES * products.sums * self.bn;
        if columns > i64::from(TensorMemory::COLUMNS) {
            let wanted = format!(
                "{SUM_STAGES} stages of sums take {columns} columns of tensor memory, and there are {}: use narrower tiles",
                TensorMemory::COLUMNS
            );
            return Err(not_there("bn", &self.bn, &wanted));
        }
        if self.overlap {
            let wanted = "results leave during the next tile's products always: must be false";
            return Err(not_there("overlap_epilogue", &true, wanted));
        }
        if products.in_flight != IN_FLIGHT {
            let wanted = "products are waited for by barriers: must be 1";
            return Err(not_there("in_flight", &products.in_flight, wanted));
        }
        Ok(())
    }

    /// Declares accumulators in tensor memory, into which a role of its own multiplies: those of the tile, and of products with a second matrix where these are
    /// apart.
    pub fn sums(&self, t: &mut KernelBuilder, numbers: &Numbers, apart: bool) -> Option<Accumulators> {
        let mut sums = |name: &str| t.tensor_memory(name, self.accumulator, [&numbers.bm, &numbers.width]);
        self.tensor_memory.then(|| Accumulators {
            parts: vec![sums("acc")],
            second: apart.then(|| sums("acc_up")),
            of_a: None,
            scales: Vec::new(),
        })
    }

    /// Registers for a tile's sums.
    pub fn sums_of_threads(&self, t: &mut KernelBuilder, numbers: &Numbers, name: &str) -> Tensor {
        let shape = [&numbers.bm, &numbers.width];
        if self.tensor_memory && self.warpgroups > 1 {
            return t.register_tensor_with(name, self.accumulator, shape, self.rows_of_threads());
        }
        t.register_tensor(name, self.accumulator, shape)
    }

    /// Sums of 0 in registers.
    pub fn zeros(&self, t: &mut KernelBuilder, numbers: &Numbers, name: &str) -> Tensor {
        let sums = self.sums_of_threads(t, numbers, name);
        t.fill(&sums, 0.0);
        sums
    }

    /// Sums out of tensor memory, whose stage is then free for those of another tile.
    pub fn read(
        &self,
        t: &mut KernelBuilder,
        numbers: &Numbers,
        (ring, from): (&Pipeline, &Accumulators),
    ) -> Accumulators {
        let sums = self.sums_of_threads(t, numbers, "rc");
        let second = from.second.as_ref().map(|_| self.sums_of_threads(t, numbers, "ru"));
        t.consume(ring, |t| {
            let pairs = from.parts.iter().zip([&sums]).chain(from.second.iter().zip(&second));
            pairs.for_each(|(from, to)| t.copy(*from, *to));
        });
        Accumulators { parts: vec![sums], second, of_a: None, scales: Vec::new() }
    }

    /// A layout in which a thread has a row of the sums, and of each chunk its warpgroup's part of the columns: (thread, value) → row + rows · column.
    fn rows_of_threads(&self) -> Layout {
        let (rows, part) = (self.bm, self.chunk / self.warpgroups);
        modes([
            vec![(rows, 1), (self.warpgroups, rows * part)],
            vec![(part, rows), (self.bn / self.chunk, rows * self.chunk)],
        ])
    }
}

/// The error for a value that sums in tensor memory do not go with.
pub(crate) fn not_there(field: &'static str, value: &dyn std::fmt::Display, wanted: &str) -> ConfigError {
    ConfigError::value(field, value, format!("{wanted}, with form=tcgen05"))
}
