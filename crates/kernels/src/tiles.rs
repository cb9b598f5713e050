//! Rules about the tiles of products by `mma.sync`.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::{Arch, Feature, Features, TensorRow, WARPGROUP};

use crate::config::ConfigError;
use crate::warp_specialized::BARRIERS;

/// The way of a tile between global memory and registers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Path {
    /// Through shared memory.
    Staged,
    /// Straight.
    Direct,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Path::Staged => "staged",
            Path::Direct => "direct",
        })
    }
}

/// The threads that load the tiles of factors.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Loads {
    /// The threads that multiply, by `cp.async`.
    Threads,
    /// A warpgroup of their own, by tensor copies.
    Tma,
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loads::Threads => "threads",
            Loads::Tma => "tma",
        })
    }
}

impl FromStr for Loads {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "threads" => Ok(Loads::Threads),
            "tma" => Ok(Loads::Tma),
            _ => Err("must be threads or tma"),
        }
    }
}

impl Loads {
    /// The features that an architecture needs for it.
    pub(crate) fn needs(self) -> Features {
        match self {
            Loads::Threads => Features::NONE,
            Loads::Tma => {
                TensorRow::NEEDS.and(&[Feature::TransactionBarrier, Feature::Elect, Feature::SetMaxRegisters])
            }
        }
    }

    /// Threads of a block beside those that multiply.
    pub(crate) fn threads(self) -> i64 {
        match self {
            Loads::Threads => 0,
            Loads::Tma => i64::from(WARPGROUP),
        }
    }

    /// Registers of a thread that loads and of one of so many that multiply, where those are two roles.
    pub(crate) fn registers(self, threads: i64) -> Option<[i64; 2]> {
        let (loading, all) = (self.threads(), threads + self.threads());
        let pool = i64::from(Arch::SM_90A.limits().registers_of_a_thread_at_launch(all as u32)) * all;
        let rest = (pool - loading * LOAD_REGISTERS) / threads.max(1) / 8 * 8;
        (self == Loads::Tma).then_some([LOAD_REGISTERS, rest.min(MATH_REGISTERS)])
    }
}

impl FromStr for Path {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "staged" => Ok(Path::Staged),
            "direct" => Ok(Path::Direct),
            _ => Err("must be staged or direct"),
        }
    }
}

/// The tiles of a pipelined matrix product, as far as the rules about them are the same for every operator.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    pub bm: i64,
    pub bn: i64,
    pub bk: i64,
    pub kk: i64,
    pub stages: i64,
    pub threads: i64,
    /// Bits of an element of the first factor, and of the second where they are multiplied.
    pub a_bits: i64,
    /// Bits of an element of the second factor, as it lies in memory.
    pub b_bits: i64,
    /// Bits of a sum, and of what is stored of it.
    pub sum_bits: i64,
    pub result_bits: i64,
    /// Products of a pair of tiles: 1, or more of factors in parts.
    pub products: i64,
    /// Factors are multiplied in a type of twice their bits.
    pub widened: bool,
    /// A matrix of C's type is added to the results.
    pub residual: bool,
    /// The first factor is sparse: half its elements are there, and 2 bits of metadata for each.
    pub sparse: bool,
    pub results: Path,
    pub loads: Loads,
    /// Parts of k that are summed apart.
    pub split: i64,
    /// The rows of the second factor are those of the instructions, and the first factor's their columns.
    pub swapped: bool,
    /// Bytes of shared memory for what is not a factor.
    pub vectors: i64,
}

/// Registers reserved for addresses, counters and temporaries.
const SPARE_REGISTERS: i64 = 40;

/// Registers of a thread that does nothing but load.
const LOAD_REGISTERS: i64 = 40;

/// Registers that a role of threads that multiply has, at most: `setmaxnreg` gives no more than 256, and `ptxas` keeps some.
const MATH_REGISTERS: i64 = 240;

/// Bytes of a row that go to registers at a time: what an instruction takes, and longer runs of neighbours.
const STEPS: [i64; 3] = [32, 64, 128];

/// Tiles longer than this in any direction are refused.
const MAX_TILE: i64 = 1024;

impl Tiles {
    /// Checks the tiles, whatever the architecture.
    pub fn check(&self) -> Result<(), ConfigError> {
        let multiple = |field, value: i64, of: i64| {
            if (of..=MAX_TILE).contains(&value) && value % of == 0 {
                return Ok(());
            }
            Err(ConfigError::value(
                field,
                value,
                format!("must be a multiple of {of} from {of} to {MAX_TILE}"),
            ))
        };
        multiple("threads", self.threads, if self.loads == Loads::Tma { i64::from(WARPGROUP) } else { 32 })?;
        let (of_m, of_n) = self.instruction();
        multiple("bm", self.bm, of_m)?;
        multiple("bn", self.bn, of_n)?;
        // An instruction takes as many elements of a sparse factor as of another, of twice the columns.
        let columns = if self.sparse { 2 } else { 1 };
        let steps = STEPS.map(|bytes| columns * bytes * 8 / self.a_bits);
        if !steps.contains(&self.kk) {
            let [short, middle, long] = steps;
            return Err(ConfigError::value("kk", self.kk, format!("must be {short}, {middle} or {long}")));
        }
        multiple("bk", self.bk, self.kk)?;
        if !(1..=16).contains(&self.stages) {
            return Err(ConfigError::value("stages", self.stages, "must be from 1 to 16"));
        }
        if self.grids().next().is_none() {
            let wanted = format!(
                "{} warps must divide the {} × {} tile into parts of {of_m} × {of_n}: use fewer threads or a larger tile",
                self.threads / 32,
                self.bm,
                self.bn
            );
            return Err(ConfigError::value("threads", self.threads, wanted));
        }
        let alone = i64::from(Arch::SM_80.limits().registers_of_a_thread(self.threads as u32));
        let (need, have) =
            (self.registers(), self.loads.registers(self.threads).map_or(alone, |[_, math]| math));
        if need + SPARE_REGISTERS > have {
            let wanted = format!(
                "fragments take {need} registers of a thread, which has {have} and needs about {SPARE_REGISTERS} more \
                 for addresses: use a smaller tile, a smaller kk or more threads"
            );
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        Ok(())
    }

    /// Checks the tiles for an architecture.
    pub fn check_for(&self, arch: Arch) -> Result<(), ConfigError> {
        self.check()?;
        let (need, have) = (self.shared_bytes(), i64::from(arch.limits().shared_bytes_per_block));
        if need > have {
            let wanted = format!(
                "the tiles take {need} bytes of shared memory, and {arch} has {have} a block: use fewer stages or \
                 smaller tiles"
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// Rows of the two factors that an instruction takes: those of mma.m16n8, and its columns.
    fn instruction(&self) -> (i64, i64) {
        if self.swapped { (8, 16) } else { (16, 8) }
    }

    /// The grids of warps that divide the tile into parts of whole instructions.
    fn grids(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        let Tiles { bm, bn, threads, .. } = *self;
        let (warps, (of_m, of_n)) = (threads / 32, self.instruction());
        let ways = (1..=warps).filter(move |rows| warps % rows == 0).map(move |rows| (rows, warps / rows));
        ways.filter(move |(rows, columns)| bm % (of_m * rows) == 0 && bn % (of_n * columns) == 0)
    }

    /// Bits of the first factor, with its metadata, a column of its rows.
    pub fn left_bits(&self) -> i64 {
        if self.sparse { self.a_bits / 2 + 1 } else { self.a_bits }
    }

    /// 32-bit registers of a thread for fragments, where the warps divide the tile best.
    fn registers(&self) -> i64 {
        let buffers = (self.bk / self.kk).min(2);
        let words = |bits: i64| self.bm * self.bn * bits / 32 / self.threads;
        let factors = self.grids().map(|(rows, columns)| {
            let a = self.bm / rows * self.kk * self.left_bits() / 1024;
            let b = self.bn / columns * self.kk * self.a_bits / 1024;
            // Factors in two parts, or of twice the bits, have registers of their own.
            let parts = if self.products > 1 || self.widened { 2 * (a + b) } else { 0 };
            // Narrow weights: the packed buffers, the weights in the other factor's type, and their scales.
            let narrow = self.b_bits < self.a_bits;
            let b = if narrow { buffers * b * self.b_bits / self.a_bits + 2 * b } else { buffers * b };
            buffers * a + b + parts
        });
        // The matrix in the type that the epilogue computes in.
        let residual = if self.residual { words(self.sum_bits) } else { 0 };
        words(self.sum_bits) + factors.min().unwrap_or(0).max(residual)
    }

    /// Bytes that all warps read from shared memory for a column of both factors, where they divide the tile best.
    pub fn read_by_warps(&self) -> i64 {
        let reads = self
            .grids()
            .map(|(rows, columns)| (columns * self.bm * self.left_bits() + rows * self.bn * self.b_bits) / 8);
        reads.min().unwrap_or(0)
    }

    /// Returns whether the first factor goes to registers in runs of more bytes than an instruction takes: 32, and of f64 up to 16 columns.
    fn has_long_runs(&self) -> bool {
        let columns = if self.sparse { 2 } else { 1 };
        let bytes = if self.a_bits == 64 { STEPS[2] } else { STEPS[0] };
        self.kk * self.a_bits > columns * bytes * 8
    }

    /// Returns whether factors, both as they are multiplied, go to registers in long runs.
    pub fn loads_long_runs(&self) -> bool {
        self.b_bits == self.a_bits && self.has_long_runs()
    }

    /// Returns whether fragments go to registers while others are multiplied: those of the next run where a stage has an even number of runs,
    /// which the mainloop loads ahead, or of the same long run.
    pub fn reads_ahead(&self) -> bool {
        self.bk / self.kk.max(1) % 2 == 0 || self.has_long_runs()
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> i64 {
        let stage = self.bk * (self.left_bits() * self.bm + self.b_bits * self.bn) / 8;
        let results = if self.results == Path::Staged { self.bm * self.bn * self.result_bits / 8 } else { 0 };
        match self.loads {
            Loads::Threads => (self.stages * stage + self.vectors).max(results),
            // Results do not lie where stages do, and each stage has two barriers.
            Loads::Tma => self.stages * (stage + BARRIERS) + self.vectors + results,
        }
    }

    /// Returns whether the tile is in proportion to the problem.
    pub fn suits(&self, m: i64, n: i64, k: i64) -> bool {
        (self.bm <= 16 || self.bm < 2 * m)
            && (self.bn <= 32 || self.bn < 2 * n)
            && (self.bk <= 32 || self.bk < 2 * k)
    }
}
