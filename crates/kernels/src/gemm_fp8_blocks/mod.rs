//! C = A · Bᵀ in 8-bit floats with scales for blocks, for Hopper: A has a scale for each row and 128 neighbours along k, B one for
//! each block of 128 × 128 (DeepSeek-V3 technical report, section 3.3.2). Sums of 8-bit floats lose bits in the tensor cores, so that
//! each 128 columns are summed apart, scaled, and added in `f32` by the threads.
//!
//! The kernel is that of [`gemm_hopper`](crate::gemm_hopper) but for that: a warpgroup that promotes its sums leaves the tensor cores to
//! another one. The scales of A come with a stage, those of B straight from memory, one step ahead.

mod program;
mod space;

use tilewright_machine::{Arch, CacheHint, DType};

use crate::config::{Codec, ConfigError, dtype_of, parameters};
use crate::gemm_hopper::{Cluster, Order};
use crate::hopper::{
    BARRIERS, Registers, aligned, check_chunk, check_cluster, check_instruction, check_memory, check_order,
    check_rows, refused, within,
};

/// Neighbours along k that share a scale, and neighbours along n that share one of B.
pub const BLOCK: i64 = 128;

parameters! {
    /// The tiling of a product of scaled blocks and its distribution over blocks. The default is 128 × 128 in five stages, of which two
    /// blocks share the tile of b.
    pub struct Fp8BlocksConfig, "gemm_fp8_blocks", programs {
        /// The type of a: e4m3 or e5m2.
        a: DType as FLOAT8 = DType::E4M3,
        /// The type of b: e4m3 or e5m2.
        b: DType as FLOAT8 = DType::E4M3,
        /// The type of c: bf16, f16 or f32.
        out: DType as FLOAT = DType::BF16,
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
        /// Blocks that share an operand: none, m2 (b is shared), n2 (a is shared), m4 …
        cluster: Cluster as OWN = Cluster::AlongM(2),
        /// The order of tiles: bands(rows), snake(rows) or hilbert(order).
        order: Order as OWN = Order::Bands(12),
        /// A tile's results leave while the next tile is multiplied, a chunk after each of its first steps along k.
        deferred: bool as FLAG = true,
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
        /// Registers of a thread that copies.
        load_registers: i64 as INT = 24,
        /// Registers of a thread that multiplies.
        math_registers: i64 as INT = 240,
        /// Blocks that are launched, at most.
        sms: i64 as INT = 132,
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

/// Registers that addresses, counters, scales and the compiler's temporaries want besides the fragments.
const SPARE_REGISTERS: i64 = 30;

impl Fp8BlocksConfig {
    /// Columns that are promoted at a time.
    fn part(&self) -> i64 {
        self.part.unwrap_or_else(|| [128, 64, 32, 16].into_iter().find(|p| self.bn % p == 0).unwrap_or(8))
    }

    /// Columns of the tile that leave at a time.
    fn columns(&self) -> i64 {
        let widest = 128 * 8 / i64::from(self.out.bits());
        let fits = |c: &i64| *c <= widest && self.part() % c == 0;
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(fits).unwrap_or(8))
    }

    /// Scales of B that a step along k of a tile needs, and which of them part `s` of the columns needs. Where a tile is no row of
    /// whole blocks, nor within one, each part has its own.
    fn scales(&self) -> (i64, impl Fn(i64) -> i64) {
        let (part, each) = (self.part(), self.bn % BLOCK != 0);
        let count = match self.bn {
            _ if self.swap => 1,
            bn if BLOCK % bn == 0 => 1,
            bn if each => bn / part,
            bn => bn / BLOCK,
        };
        (count, move |s| {
            if count == 1 {
                0
            } else if each {
                s
            } else {
                s * part / BLOCK
            }
        })
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self) -> i64 {
        let (rows_of_a, _) = self.sides((self.bm, self.bn));
        let scales = (4 * rows_of_a + 127) / 128 * 128;
        let stage = aligned(self.bm * BLOCK) + aligned(self.bn * BLOCK) + BARRIERS;
        let out = i64::from(self.out.bits() / 8) * self.bm * self.columns();
        self.stages * stage + aligned(self.stages * scales) + self.buffers * aligned(out)
    }

    /// What belongs to m and to n, or to A and to B, of what belongs to a tile's rows and columns; and the other way round.
    fn sides<T>(&self, (rows, cols): (T, T)) -> (T, T) {
        if self.swap { (cols, rows) } else { (rows, cols) }
    }

    /// 32-bit registers of a math thread for its sums, those of a part, and results that wait.
    fn fragments(&self) -> i64 {
        let threads = 128 * self.warpgroups;
        let (sums, part) = (self.bm * self.bn / threads, self.bm * self.part() / threads);
        let rounded = sums * i64::from(self.out.bits()) / 32;
        let scales = if self.swap { self.part() / 4 } else { 2 * self.bm / (64 * self.warpgroups) };
        match (self.deferred, self.out) {
            (true, _) => sums + part + rounded + scales,
            (false, DType::F32) => sums + part + scales,
            (false, _) => sums + part.max(rounded) + scales,
        }
    }

    /// What is wrong with the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        for (field, dtype) in [("a", self.a), ("b", self.b)] {
            if !FLOATS8.contains(&dtype) {
                return Err(ConfigError::value(field, dtype, "must be e4m3 or e5m2"));
            }
        }
        if !FLOATS.contains(&self.out) {
            return Err(ConfigError::value("out", self.out, "must be bf16, f16 or f32"));
        }
        check_rows(self.bm, self.warpgroups)?;
        if self.swap && BLOCK % self.bm != 0 {
            return Err(ConfigError::value(
                "bm",
                self.bm,
                "must be 64 or 128 if swapped: within a block of b",
            ));
        }
        within("bn", self.bn, [8, 512], 8)?;
        let part = self.part();
        if !(8..=256).contains(&part) || part % 8 != 0 || self.bn % part != 0 {
            let wanted =
                format!("must be a multiple of 8 up to 256 that divides bn = {}, or be `widest`", self.bn);
            return Err(ConfigError::value("part", part, wanted));
        }
        check_instruction(part, self.warpgroups)?;
        if !self.swap && BLOCK % part != 0 {
            let wanted = format!("must divide {BLOCK}, so that each part lies within a block of b");
            return Err(ConfigError::value("part", part, wanted));
        }
        within("stages", self.stages, [1, 32], 1)?;
        check_chunk(self.columns(), "part", part, self.out)?;
        within("buffers", self.buffers, [1, 8], 1)?;
        if matches!(self.cluster, Cluster::AlongK(_)) {
            return Err(ConfigError::value(
                "cluster",
                self.cluster,
                "must have 2, 4 or 8 blocks along m or n",
            ));
        }
        let (of_a, of_b) = self.sides((self.bm, self.bn));
        let shared = match self.cluster {
            Cluster::AlongM(_) => Some(of_b),
            Cluster::AlongN(_) => Some(of_a),
            Cluster::None | Cluster::AlongK(_) => None,
        };
        check_cluster(self.cluster, shared)?;
        check_order(self.order)?;
        let registers = Registers {
            load: self.load_registers,
            math: self.math_registers,
            warpgroups: self.warpgroups,
            columns: self.bn,
            fragments: self.fragments(),
            spare: SPARE_REGISTERS,
        };
        registers.check()?;
        within("sms", self.sms, [self.cluster.blocks(), 65_535], 1)?;
        check_memory(self.stages, self.shared_bytes())
    }

    /// Why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        refused(arch).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
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
