//! C = A · Bᵀ in 8-bit floats with scales for blocks, for Hopper: A has a scale for each row and 128 neighbours along k, B one for
//! each block of 128 × 128 (DeepSeek-V3 technical report, section 3.3.2). Sums of 8-bit floats lose bits in the tensor cores, so that
//! each 128 columns are summed apart, scaled, and added in `f32` by the threads.
//!
//! The kernel is that of [`gemm_hopper`](crate::gemm_hopper) but for that: a warpgroup that promotes its sums leaves the tensor cores to
//! another one. The scales of A come with a stage, those of B straight from memory, one step ahead.

mod space;

use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_tile::Program;

use crate::config::{Codec, ConfigError, dtype_of, parameters};
use crate::epilogue::{Chain, EpilogueOp};
use crate::gemm_hopper::{Batch, Cluster, Rasterization};
pub use crate::warp_specialized::BLOCK;
use crate::warp_specialized::{
    BARRIERS, FillMode, GemmKernel, Needs, Promoted, Scattered, Schedule, Tiling, aligned,
    gathering_registers, refused, scattering_registers, tiling,
};

parameters! {
    /// The tiling of a product of scaled blocks and its distribution over blocks. The default is 128 × 128 in five stages, of which two
    /// blocks share the tile of b.
    #[derive(Copy)]
    pub struct Fp8BlocksConfig, "gemm_fp8_blocks", programs {
        /// The type of a: e4m3 or e5m2.
        a: DType as FLOAT8 = DType::E4M3,
        /// The type of b: e4m3 or e5m2.
        b: DType as FLOAT8 = DType::E4M3,
        /// The type of c: bf16, f16 or f32.
        out: DType as FLOAT = DType::BF16,
        /// Batching: none; or grouped (each tile of rows of a has the matrix b of its group, and its scales); or ragged (the same for groups that are not padded).
        batch: Batch as OWN = Batch::None,
        /// Rows of a, and their scales, lie anywhere: `rows[m]`, of i32, has for each row of c the number of its row among the r rows of a, a negative number for a row of
        /// zeros. Threads copy them, and need load_registers.
        gather: bool as FLAG = false,
        /// Row i of the product, times `factor[i]`, of f32, is added to row `to[i]`, of i32, of the q rows of c, in an open order; to none where that is negative.
        scatter: bool as FLAG = false,
        /// Computes cᵀ = b · aᵀ: the tile's rows are along n and its columns along m, for small m.
        swap: bool as FLAG = false,
        /// Rows of a block's tile of c, a multiple of 64 for each math warpgroup; if swapped within a block of b.
        bm: i64 as INT = 128,
        /// Columns of a block's tile of c.
        bn: i64 as INT = 128,
        /// Columns that are multiplied and promoted at a time, or widest. Unless swapped, they lie within a block of b.
        part: Option<i64> as WIDEST = None,
        /// Stages between the copies and the products.
        stages: i64 as INT = 5,
        /// Warpgroups that multiply.
        warpgroups: i64 as INT = 2,
        /// Blocks that share an operand: none, m2 (b is shared), n2 (a is shared), m4 …; or both: m2n2, m2n4 …
        cluster: Cluster as OWN = Cluster::AlongM(2),
        /// The order of tiles: grouped(rows), serpentine(rows) or hilbert(order).
        rasterization: Rasterization as OWN = Rasterization::Grouped(12),
        /// A tile's results leave while the next tile is multiplied, a chunk after each of its first steps along k.
        overlap_epilogue: bool as FLAG = true,
        /// Columns of the tile that leave at a time: 8, 16, 32, 64, or widest.
        chunk: Option<i64> as WIDEST = None,
        /// Chunks on their way to memory or being written for it.
        buffers: i64 as INT = 2,
        /// L2 cache hint of reads of a: none, evict_first or evict_last.
        hint_a: Option<CacheHint> as HINT = None,
        /// L2 cache hint of reads of b.
        hint_b: Option<CacheHint> as HINT = None,
        /// L2 cache hint of writes of c.
        hint_c: Option<CacheHint> as HINT = None,
        /// Programmatic dependent launch: the kernel may be launched before the one ahead of it has ended, and waits for its results.
        dependent: bool as FLAG = false,
        /// Registers of a thread that copies.
        load_registers: i64 as INT = 24,
        /// Registers of a thread that multiplies.
        math_registers: i64 as INT = 240,
        /// Blocks that are launched, at most.
        sm_count: i64 as INT = 132,
    }
}

/// The types of a and b, and those of c.
const FLOATS8: [DType; 2] = [DType::E4M3, DType::E5M2];
const FLOATS: [DType; 3] = [DType::BF16, DType::F16, DType::F32];

impl Codec<DType> {
    const FLOAT8: Self =
        Codec { read: |field, text| dtype_of(&FLOATS8, field, text), write: DType::to_string };
    const FLOAT: Self = Codec { read: |field, text| dtype_of(&FLOATS, field, text), write: DType::to_string };
}

/// Registers reserved for addresses, counters, scales and temporaries.
const SPARE_REGISTERS: i64 = 30;

/// Registers of a thread that copies scales of rows that lie anywhere.
const OF_SCALES: i64 = 8;

impl Fp8BlocksConfig {
    /// Columns that are promoted at a time.
    pub(crate) fn part(&self) -> i64 {
        self.part.unwrap_or_else(|| [128, 64, 32, 16].into_iter().find(|p| self.bn % p == 0).unwrap_or(8))
    }

    /// Columns of the tile that leave at a time.
    fn columns(&self) -> i64 {
        let widest = 128 * 8 / i64::from(self.out.bits());
        let fits = |c: &i64| *c <= widest && self.part() % c == 0;
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(fits).unwrap_or(8))
    }

    fn tiling(&self) -> Tiling {
        tiling!(self; {
            bk: BLOCK,
            fill: FillMode::Full,
            chunk: self.columns(),
            dependent: self.dependent,
            accumulator: DType::F32,
            stored: self.out,
        })
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self, chain: &Chain<'_>) -> i64 {
        // The scales of a part begin where tensor copies may write: at a multiple of 128 bytes (PTX ISA, `cp.async.bulk.tensor`).
        let (rows, parts) = if self.swap { (self.part(), self.bn / self.part()) } else { (self.bm, 1) };
        let scales = (4 * rows + 127) / 128 * 128 * parts;
        let stage = aligned(self.bm * BLOCK) + aligned(self.bn * BLOCK) + BARRIERS;
        self.stages * stage + aligned(self.stages * scales) + self.tiling().epilogue_bytes(chain, self.out)
    }

    /// See [`Tiling::sides`].
    fn sides<T>(&self, both: (T, T)) -> (T, T) {
        self.tiling().sides(both)
    }

    /// 32-bit registers of a math thread for its sums, those of a part, and results that wait.
    fn fragments(&self, chain: &Chain<'_>) -> i64 {
        let threads = 128 * self.warpgroups;
        let (sums, part) = (self.bm * self.bn / threads, self.bm * self.part() / threads);
        let rounded = sums * i64::from(self.out.bits()) / 32;
        let scales = if self.swap { self.part() / 4 } else { 2 * self.bm / (64 * self.warpgroups) };
        let chunks =
            if chain.is_empty() && !self.scatter { 0 } else { 2 * self.bm * self.columns() / threads };
        let rows = match self.scatter {
            true => scattering_registers(self.sides((self.bm, self.bn)).0, self.swap),
            false => 0,
        };
        let leaving = match (self.overlap_epilogue, self.out) {
            (true, _) => part + rounded,
            (false, DType::F32) => part,
            (false, _) => part.max(rounded),
        };
        sums + rows + leaving.max(chunks) + scales
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check(&[])
    }

    fn check(&self, custom: &[&dyn EpilogueOp]) -> Result<(), ConfigError> {
        for (field, dtype) in [("a", self.a), ("b", self.b)] {
            if !FLOATS8.contains(&dtype) {
                return Err(ConfigError::value(field, dtype, "must be e4m3 or e5m2"));
            }
        }
        if !FLOATS.contains(&self.out) {
            return Err(ConfigError::value("out", self.out, "must be bf16, f16 or f32"));
        }
        let tiling = self.tiling();
        tiling.check_tile()?;
        if self.swap && BLOCK % self.bm != 0 {
            let wanted = "must be 64 or 128 if swapped: within a block of b";
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        let part = self.part();
        within_part(part, self.bn, self.swap)?;
        if matches!(self.cluster, Cluster::AlongK(_)) {
            let wanted = "must be none, along m or n, or both";
            return Err(ConfigError::value("cluster", self.cluster, wanted));
        }
        if self.batch.counts_products() {
            let wanted = "must be none, grouped or ragged: a batch has a launch for each product";
            return Err(ConfigError::value("batch", self.batch, wanted));
        }
        if self.batch.has_groups() && self.cluster.shape()[0] > 1 {
            let wanted = "neighbours along m may be of different groups: use n2 or none";
            return Err(ConfigError::value("cluster", self.cluster, wanted));
        }
        self.check_gather()?;
        if self.scatter {
            let reads = Chain::new(&Default::default(), custom).in_place(self.out);
            let whole = true;
            Scattered { batch: self.batch, whole, fill: FillMode::Full, reads, tiling: &tiling }.check()?;
        }
        let (of_a, of_b) = self.sides((self.bm, self.bn));
        let chain = Chain::new(&Default::default(), custom);
        tiling.check_resources(&Needs {
            chunk_of: ("part", part),
            shared_rows: tiling.shared_rows(of_a, of_b),
            fragments: self.fragments(&chain),
            spare: SPARE_REGISTERS,
            instruction: part,
            shared_bytes: self.shared_bytes(&chain),
        })
    }

    /// Registers of a thread that copies rows that lie anywhere: for the places of those that it copies from, and of their scales.
    pub(crate) fn gathering_registers(&self) -> i64 {
        let (of_a, _) = self.sides((self.bm, self.bn));
        gathering_registers(of_a, BLOCK) + OF_SCALES
    }

    /// Checks what rows that lie anywhere go with.
    fn check_gather(&self) -> Result<(), ConfigError> {
        let least = self.gathering_registers();
        if !self.gather {
            return Ok(());
        }
        if self.cluster.shape()[1] > 1 {
            let wanted = "threads copy to their own block: cluster must be none, or along m";
            return Err(ConfigError::value("gather", true, wanted));
        }
        if self.load_registers < least {
            let wanted = format!(
                "a thread keeps the places of the rows that it copies: must be at least {least} with gather=true"
            );
            return Err(ConfigError::value("load_registers", self.load_registers, wanted));
        }
        Ok(())
    }

    /// The program, with the sizes `m`, `n` and `k` and the parameters `a[m, k]`, `b[n, k]`, `sa[ceil_div(k, 128), m]`,
    /// `sb[ceil_div(n, 128), ceil_div(k, 128)]` and `c[m, n]`. With groups b and sb have a first mode `g`, and with rows that lie anywhere a and sa have `r` of them.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.program_with(&[])
    }

    /// The same with operations of the caller's own on the promoted sums.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate), and mistakes in what the operations write.
    pub fn program_with(&self, custom: &[&dyn EpilogueOp]) -> Result<Program, ConfigError> {
        self.check(custom)?;
        let mainloop = Promoted {
            tiling: self.tiling(),
            dtypes: [self.a, self.b],
            hints: [self.hint_a, self.hint_b],
            part: self.part(),
            gathered: self.gather,
            anywhere: self.batch == Batch::Ragged,
        };
        let kernel = GemmKernel {
            schedule: Schedule::DataParallel,
            stream_k: None,
            name: "gemm_fp8_blocks",
            tiling: self.tiling(),
            batch: self.batch,
            nesting: None,
            split: 1,
            result: self.out,
            scatter: self.scatter,
            mainloop,
            chain: &Chain::new(&Default::default(), custom),
        };
        kernel.program()
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        refused(arch).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
}

/// Checks the columns that are promoted at a time.
fn within_part(part: i64, bn: i64, swap: bool) -> Result<(), ConfigError> {
    if !(8..=256).contains(&part) || part % 8 != 0 || bn % part != 0 {
        let wanted = format!("must be a multiple of 8 up to 256 that divides bn = {bn}, or be `widest`");
        return Err(ConfigError::value("part", part, wanted));
    }
    if !swap && BLOCK % part != 0 {
        let wanted = format!("must divide {BLOCK}, so that each part lies within a block of b");
        return Err(ConfigError::value("part", part, wanted));
    }
    Ok(())
}

/// Sizes at which tiles meet every kind of edge: one, one less and one more than a tile, scales that no vector divides, and rows
/// that tensor copies can take without being whole tiles.
pub fn edge_sizes(config: &Fp8BlocksConfig) -> Vec<[i64; 3]> {
    let (rows, cols) = config.sides((config.bm, config.bn));
    vec![
        [1, 1, 1],
        [7, 65, 129],
        [rows, cols, 2 * BLOCK],
        [rows + 1, cols - 1, BLOCK + 1],
        [2 * rows + 8, cols + 16, 3 * BLOCK + 16],
        [rows - 4, 2 * cols + 24, BLOCK - 16],
        [200, 259, 5 * BLOCK],
    ]
}

/// C = Σ over blocks of k of sa · sb · (A · Bᵀ there) in f64, row-major.
pub fn reference((a, b): (&[f64], &[f64]), (sa, sb): (&[f64], &[f64]), [m, n, k]: [usize; 3]) -> Vec<f64> {
    let block = BLOCK as usize;
    let deep = k.div_ceil(block);
    let dot = |i: usize, j: usize| -> f64 {
        let scaled = |l: usize| sa[l / block * m + i] * sb[j / block * deep + l / block];
        (0..k).map(|l| a[i * k + l] * b[j * k + l] * scaled(l)).sum()
    };
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| dot(i, j)).collect()
}
