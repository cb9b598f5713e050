//! C = A · (S ∘ (W − Z))ᵀ with activations in f16 or bf16 and weights of a few bits, for Hopper: the weights stay packed in global and in shared
//! memory, a thread casts those that it multiplies, in registers, and they are the left factor of `wgmma`: the tile's rows are along n.
//! They are stored in the order in which threads load them ([`StoredWeights`], derived by the layout algebra; [`RepackConfig`] is the kernel that
//! brings rows into it, and [`Checkpoint`] reads those of others).
//!
//! With `instruction=tcgen05` (sm_100a) threads of a role of their own cast, and store what the tensor cores multiply to tensor memory.
//!
//! The kernel is that of [`gemm_hopper`](crate::gemm_hopper) but for that. With few rows of A the time is that of reading the weights: all
//! multiprocessors share the steps along k of all tiles (stream-K), with as many stages in flight as shared memory has room for. With many
//! rows the tensor cores bound the time, and weights are cast while others are multiplied.

mod checkpoint;
mod groups;
mod reference;
mod repack;
mod space;
mod tcgen05;

use tilewright_machine::{Arch, CacheHint, DType};
use tilewright_tile::Program;

pub use crate::epilogue::{Epilogue, Part};
pub use crate::warp_specialized::{
    Batch, Cluster, Instruction, Rasterization, Scaled, Schedule, StoredWeights,
};
pub use checkpoint::{Checkpoint, CheckpointError, ReadWeights};
pub use reference::{Factors, edge_sizes, reference};
pub use repack::RepackConfig;

use crate::config::{Codec, ConfigError, dtype_of, optional, optional_text, parameters};
use crate::epilogue::Chain;
use crate::warp_specialized::{
    AHEAD_REGISTERS, BARRIERS, CLUSTER_REDUCE_BYTES, FillMode, GemmKernel, NEEDS, Needs, ROW_BYTES,
    TENSOR_MEMORY_NEEDS, Tiling, Weights, aligned, bytes, lacking, most_beside, scattering_registers, within,
};

parameters! {
    /// The formats of a product with weights of a few bits, its tiling and its distribution over blocks. The default is for few rows: 128 rows of
    /// weights by 16 of activations, 128 columns a stage.
    #[derive(Copy)]
    pub struct WeightsConfig, "gemm_weights", programs {
        /// The type of c, and of a where that has none of its own: f16 or bf16. Sums are f32.
        dtype: DType as FLOAT16 = DType::F16,
        /// The type of a: same, that of c; or of 8 bits: e4m3, or i8, whose products with integer weights are summed as integers.
        activations: Option<DType> as ACTIVATIONS = None,
        /// The type of the weights: i4, u4, e2m1, i8, u8, e4m3, i2, u2, i1, u1 or i16.
        weights: DType as WEIGHT = DType::I4,
        /// The type of the weights' upper bits, a tensor h: none, u1, i1, u2 or i2. Weights are then w + h · 2^(the bits of w): w of u2 and h of i1
        /// are signed integers of 3 bits.
        upper: Option<DType> as UPPER = None,
        /// The type of the scales: same, that of a; f32, ue8m0 or ue4m3.
        scale: Option<DType> as SCALE = None,
        /// Neighbours along k that share a scale: a power of two from 16 on, or k, for all of them.
        group: Option<i64> as GROUP = Some(128),
        /// Zero points z, a number for each scale, which are taken from the weights.
        zeros: bool as FLAG = false,
        /// The factor of the scales of groups: sums, those of a group, in f32; or weights, in the type of a, which is less to do with many rows of a.
        scaled: Scaled as OWN = Scaled::Sums,
        /// The instruction that multiplies: wgmma; or mma, which takes less time where bn is small; or tcgen05, with sums and weights in tensor memory.
        instruction: Instruction as OWN = Instruction::Wgmma,
        /// Batching: none; or grouped (each tile of rows of a has the weights of its group, and their scales); or ragged (the same for groups that are not padded).
        batch: Batch as OWN = Batch::None,
        /// Rows of a lie anywhere: `rows[m]`, of i32, has for each row of c the number of its row among the r rows of a, a negative number for a row of zeros.
        /// Threads copy them, and need load_registers.
        gather: bool as FLAG = false,
        /// Row i of the product, times `factor[i]`, of f32, is added to row `to[i]`, of i32, of the q rows of c, in an open order; to none where that is negative.
        scatter: bool as FLAG = false,
        /// Operations on the sums, in order: none, or of alpha, row_scale, col_scale, bias, relu, gelu, silu, residual, some joined with +.
        epilogue: Epilogue as OWN = Epilogue::default(),
        /// Rows of weights of a block's tile, along n: a multiple of 64 for each math warpgroup.
        bm: i64 as INT = 128,
        /// Rows of activations of a block's tile, along m: a multiple of 8, or of 16 with tcgen05.
        bn: i64 as INT = 16,
        /// Columns of a and w in a stage, a multiple of part.
        bk: i64 as INT = 128,
        /// Columns that are cast and multiplied at a time, within a group; the next ones of a stage are cast meanwhile. With tcgen05: those that each warpgroup casts at a time.
        part: i64 as INT = 64,
        /// Stages between the copies and the products.
        stages: i64 as INT = 12,
        /// Warpgroups that cast and multiply, or that cast alone: 1 or 2 with tcgen05.
        warpgroups: i64 as INT = 2,
        /// Blocks that share a factor: none, m2 (w is shared), n2 (a is shared), m4 …; both: m2n2, m2n4 …; or a tile: k2, k4 …
        cluster: Cluster as OWN = Cluster::None,
        /// The work of a block: data_parallel, whole tiles; or stream_k, whole tiles and then a share of the steps along k of the rest.
        schedule: Schedule as OWN = Schedule::StreamK,
        /// The order of tiles: grouped(rows), serpentine(rows) or hilbert(order).
        rasterization: Rasterization as OWN = Rasterization::Grouped(12),
        /// A tile's results leave while the next tile is multiplied, a chunk after each of its first steps along k.
        overlap_epilogue: bool as FLAG = false,
        /// Columns of the tile that leave at a time: 8, 16, 32, 64, or widest.
        chunk: Option<i64> as WIDEST = None,
        /// Chunks on their way to memory or being written for it.
        buffers: i64 as INT = 1,
        /// L2 cache hint of reads of a: none, evict_first or evict_last.
        hint_a: Option<CacheHint> as HINT = None,
        /// L2 cache hint of reads of w.
        hint_w: Option<CacheHint> as HINT = None,
        /// L2 cache hint of writes of c.
        hint_c: Option<CacheHint> as HINT = None,
        /// Programmatic dependent launch: the kernel may be launched before the one ahead of it has ended, and waits for its results.
        dependent: bool as FLAG = false,
        /// With dependent: w, h, s and z are `constant`, written by no launch of a sequence, and threads of their own load them before the kernel ahead has ended.
        ahead: bool as FLAG = false,
        /// Registers of a thread that copies.
        load_registers: i64 as INT = 24,
        /// Registers of a thread that multiplies; with ahead, and with several blocks, at most what the other threads leave.
        math_registers: i64 as INT = 240,
        /// Blocks of a multiprocessor at once: each has its share of the registers and of shared memory, and one multiplies while another waits or writes results.
        blocks: i64 as INT = 1,
        /// Multiprocessors whose blocks are launched, at most.
        sm_count: i64 as INT = 132,
    }
}

impl Codec<DType> {
    const WEIGHT: Self =
        Codec { read: |field, text| dtype_of(&WeightsConfig::WEIGHTS, field, text), write: DType::to_string };
}

impl Codec<Option<DType>> {
    const ACTIVATIONS: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&WeightsConfig::ACTIVATIONS, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
    const UPPER: Self = Codec {
        read: |field, text| optional("none", text, |text| dtype_of(&WeightsConfig::UPPERS, field, text)),
        write: |dtype| optional_text("none", dtype),
    };
    const SCALE: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&WeightsConfig::SCALES, field, text)),
        write: |dtype| optional_text("same", dtype),
    };
}

/// Registers reserved for addresses, counters and temporaries.
const SPARE_REGISTERS: i64 = 24;

impl WeightsConfig {
    /// The types that weights can have.
    pub const WEIGHTS: [DType; 11] = {
        let [a, b, c, d, e, f, g, h, i, j] = StoredWeights::TYPES;
        [a, b, c, d, e, f, g, h, i, j, DType::I16]
    };

    /// The types that activations can have beside that of c.
    pub const ACTIVATIONS: [DType; 2] = [DType::E4M3, DType::I8];

    /// The types that upper bits can have.
    pub const UPPERS: [DType; 4] = [DType::U1, DType::I1, DType::U2, DType::I2];

    /// The types that scales can have beside that of a.
    pub const SCALES: [DType; 3] = [DType::F32, DType::UE8M0, DType::UE4M3];

    /// The type of the scales.
    pub fn scales(&self) -> DType {
        self.scale.unwrap_or(self.dtype)
    }

    /// The type of the activations.
    pub fn a(&self) -> DType {
        self.activations.unwrap_or(self.dtype)
    }

    /// The order in which the weights are stored.
    pub fn stored(&self) -> StoredWeights {
        StoredWeights::for_activations(self.weights, self.group, self.a())
    }

    /// The order in which their upper bits are, if these are a tensor of their own.
    pub fn stored_upper(&self) -> Option<StoredWeights> {
        self.upper.map(|upper| StoredWeights::for_activations(upper, self.group, self.a()))
    }

    /// Columns of a unit of every tensor of weights.
    fn unit(&self) -> i64 {
        self.stored().columns().max(self.stored_upper().map_or(0, |upper| upper.columns()))
    }

    /// Bits of a weight.
    fn bits(&self) -> i64 {
        i64::from(self.weights.bits() + self.upper.map_or(0, DType::bits))
    }

    /// True where sums of a part are apart from those of a tile.
    fn promotes(&self) -> bool {
        self.scaled == Scaled::Sums && self.group.is_some() || !self.a().is_float()
    }

    /// Registers of a thread that multiplies.
    fn multiplying(&self) -> i64 {
        if self.casts_apart() {
            return self.storing_registers();
        }
        if !self.ahead && self.blocks == 1 {
            return self.math_registers;
        }
        let others = [self.load_registers, AHEAD_REGISTERS];
        let others = if self.ahead { &others[..] } else { &others[..1] };
        self.math_registers.min(most_beside(others, self.warpgroups, self.blocks))
    }

    /// Columns of a stage that are cast at a time, by all who share them.
    fn span(&self) -> i64 {
        self.part * self.casting().max(1)
    }

    /// Columns of the tile that leave at a time.
    fn columns(&self) -> i64 {
        let wide = |c: &i64| *c <= ROW_BYTES / 2 && self.bn % c == 0;
        self.chunk.unwrap_or_else(|| [64, 32, 16].into_iter().find(wide).unwrap_or(8))
    }

    fn tiling(&self) -> Tiling {
        Tiling {
            swap: true,
            bm: self.bm,
            bn: self.bn,
            bk: self.bk,
            stages: self.stages,
            warpgroups: self.storing(),
            cluster: self.cluster,
            rasterization: self.rasterization,
            fill: FillMode::Full,
            overlap: self.overlap_epilogue,
            chunk: self.columns(),
            buffers: self.buffers,
            hint_c: self.hint_c,
            dependent: self.dependent,
            ahead: self.ahead,
            tensor_memory: self.casts_apart(),
            casting: self.casting(),
            cast_registers: self.cast_registers(),
            pair: false,
            load_registers: self.load_registers,
            math_registers: self.multiplying(),
            sm_count: self.sm_count * self.blocks,
            resident: self.blocks,
            accumulator: DType::F32,
            stored: self.dtype,
        }
    }

    /// Groups of a stage: one where it lies within a group, none where a row is one group.
    fn groups(&self) -> i64 {
        self.group.map_or(0, |group| (self.bk / group).max(1))
    }

    /// Bytes of a stage beside its barriers.
    fn stage_bytes(&self) -> i64 {
        let weights = self.bm * self.bk * i64::from(self.weights.bits()) / 8;
        let upper = self.upper.map_or(0, |upper| aligned(self.bm * self.bk * i64::from(upper.bits()) / 8));
        // Those of several groups are a matrix, which a tensor copy swizzles.
        let vector = |dtype: DType, groups: i64| match self.bm * groups * bytes(dtype) {
            several if groups > 1 => aligned(several),
            one => (one + 127) / 128 * 128,
        };
        let zeros = if self.zeros { vector(self.dtype, self.groups().max(1)) } else { 0 };
        aligned(weights)
            + upper
            + aligned(bytes(self.a()) * self.bn * self.bk)
            + vector(self.scales(), self.groups())
            + zeros
    }

    /// Bytes of shared memory of a block.
    fn shared_bytes(&self, chain: &Chain<'_>) -> i64 {
        let reduction = match self.cluster {
            Cluster::AlongK(_) => CLUSTER_REDUCE_BYTES * 128 * self.storing(),
            _ => 0,
        };
        let rings = match (self.casts_apart(), self.ahead) {
            (true, _) => 2 + i64::from(self.promotes()),
            (false, ahead) => 1 + i64::from(ahead),
        };
        // Vectors end at multiples of a tile's alignment together.
        aligned(self.stages * self.stage_bytes())
            + self.stages * BARRIERS * rings
            + self.bytes_of_sums()
            + self.tiling().epilogue_bytes(chain, self.dtype)
            + reduction
    }

    /// 32-bit registers of a math thread: its sums, those of parts, weights as they are stored and as they are multiplied, and what leaves.
    fn fragments(&self, chain: &Chain<'_>) -> i64 {
        let threads = 128 * self.storing();
        let sums = self.bm * self.bn / threads;
        // Parts of a stage that are there at once, and a warp's part of the activations.
        let (turns, right) = match self.instruction {
            Instruction::Wgmma => ((self.bk / self.part).min(2), 0),
            Instruction::Mma => (1, self.bn * self.part * bytes(self.a()) / (4 * 32)),
            // Others cast.
            Instruction::Tcgen05 => (1, 0),
        };
        let weights = if self.casts_apart() { 0 } else { self.bm * self.part / threads };
        let left = turns * weights * bytes(self.a()) / 4 + weights * self.bits() / 32 + right;
        let partial = if self.promotes() { turns * sums } else { 0 };
        // Values of scaled weights, of those without zero points, or of halves of them, on their way.
        let changes =
            [self.zeros, self.scaled == Scaled::Weights && self.group.is_some(), self.upper.is_some()];
        let changes = changes.into_iter().filter(|change| *change).count() as i64;
        let plain = (weights * (2 * changes - 1) / 4).max(0);
        let chunk = self.bm * self.columns() / threads;
        let theirs = if self.schedule != Schedule::DataParallel { 2 * chunk } else { 0 };
        let chunks = (if chain.is_empty() && !self.scatter { chunk / 2 } else { 2 * chunk }).max(theirs);
        let rows = if self.scatter { scattering_registers(self.bn, true) } else { 0 };
        let waiting = if self.overlap_epilogue { sums / 2 } else { 0 };
        // With more than two parts those of both turns are there while vectors are spread over a third, which the compiler counts without a reserve.
        let spread = if changes > 0 && self.bk > 2 * self.part {
            turns * weights * bytes(self.a()) / 4 + weights * (1 + changes) / 2 - SPARE_REGISTERS
        } else {
            0
        };
        sums + rows + (left + partial + plain + waiting).max(chunks).max(spread)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.check_formats()?;
        let tiling = self.tiling();
        tiling.check_tile()?;
        self.check_tcgen05()?;
        let unit = self.unit();
        within("blocks", self.blocks, [1, 4], 1)?;
        within("part", self.part, [unit, 256], unit)?;
        within("bk", self.bk, [self.span(), 512], self.span())?;
        if let Some(group) = self.group {
            if group % self.span() != 0 {
                let wanted = match self.casting() {
                    2.. => format!(
                        "parts of {} warpgroups must divide a group of {group}, whose weights have a scale: use narrower ones, or one warpgroup",
                        self.casting()
                    ),
                    _ => format!("must divide a group of {group}, whose weights have a scale"),
                };
                return Err(ConfigError::value("part", self.part, wanted));
            }
            if group % self.bk != 0 && self.bk % group != 0 {
                let wanted = format!("must be a multiple of a group of {group}, or divide it");
                return Err(ConfigError::value("bk", self.bk, wanted));
            }
        }
        if self.schedule == Schedule::Remainder {
            return Err(ConfigError::value("schedule", self.schedule, "must be data_parallel or stream_k"));
        }
        if self.schedule != Schedule::DataParallel && matches!(self.cluster, Cluster::AlongK(_)) {
            let wanted = "the blocks of k2 share a tile already: cluster must be none, along m or n, or both";
            return Err(ConfigError::value("schedule", self.schedule, wanted));
        }
        if self.ahead && (!self.dependent || self.batch != Batch::None) {
            let wanted = if self.dependent {
                "must be false with groups, whose tables the kernel ahead may write"
            } else {
                "must be false unless dependent is true: nothing is waited for"
            };
            return Err(ConfigError::value("ahead", self.ahead, wanted));
        }
        if self.epilogue.has(Part::Beta) || self.epilogue.parts().any(Part::sums) {
            let wanted = "must be none, or of alpha, row_scale, col_scale, bias, relu, gelu, silu, residual";
            return Err(ConfigError::value("epilogue", self.epilogue, wanted));
        }
        self.check_groups()?;
        self.check_room()?;
        let chain = Chain::new(&self.epilogue, &[]);
        let [rows, units] = [self.bn, self.bm / StoredWeights::ROWS];
        // Blocks along m share units of weights, each of which is loaded whole.
        let [along_m, along_n, _] = self.cluster.shape();
        if along_m > 1 && units % along_m != 0 {
            let wanted = format!("{along_m} blocks cannot share {units} units of 64 rows of weights");
            return Err(ConfigError::value("cluster", self.cluster, wanted));
        }
        tiling.check_resources(&Needs {
            chunk_of: ("bn", self.bn),
            shared_rows: [(rows, along_n), (self.bm, along_m)],
            fragments: self.fragments(&chain),
            spare: SPARE_REGISTERS,
            instruction: self.widest(),
            shared_bytes: self.shared_bytes(&chain),
        })
    }

    /// Checks the types and the group, whatever the tile.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn check_formats(&self) -> Result<(), ConfigError> {
        if ![DType::F16, DType::BF16].contains(&self.dtype) {
            return Err(ConfigError::value("dtype", self.dtype, "must be f16 or bf16"));
        }
        if !Self::WEIGHTS.contains(&self.weights) {
            let wanted = "must be i4, u4, e2m1, i8, u8, e4m3, i2, u2, i1, u1 or i16";
            return Err(ConfigError::value("weights", self.weights, wanted));
        }
        if let Some(activations) = self.activations {
            self.check_activations(activations)?;
        }
        if let Some(upper) = self.upper {
            let value = |wanted: &str| Err(ConfigError::value("upper", upper, wanted));
            if !Self::UPPERS.contains(&upper) {
                return value("must be none, u1, i1, u2 or i2");
            }
            if self.weights.range().is_none_or(|(least, _)| least < 0) || self.bits() > 6 {
                return value("the weights below must be u4, u2 or u1");
            }
        }
        if self.scale.is_some_and(|scale| !Self::SCALES.contains(&scale)) {
            return Err(ConfigError::value("scale", self.scales(), "must be same, f32, ue8m0 or ue4m3"));
        }
        if self.weights.is_float() && self.zeros {
            return Err(ConfigError::value(
                "zeros",
                self.zeros,
                "must be false: weights that are floats have none",
            ));
        }
        let smallest = |weights: DType| StoredWeights::for_activations(weights, Some(1), self.a()).columns();
        let least = smallest(self.weights).max(self.upper.map_or(0, smallest));
        match self.group {
            Some(group) if group < least || !(group as u64).is_power_of_two() || group > 1 << 20 => {
                let wanted = format!("must be a power of two from {least} to {}, or k", 1 << 20);
                Err(ConfigError::value("group", group, wanted))
            }
            _ => Ok(()),
        }
    }

    /// Checks what activations of 8 bits are multiplied with.
    fn check_activations(&self, activations: DType) -> Result<(), ConfigError> {
        if !Self::ACTIVATIONS.contains(&activations) {
            return Err(ConfigError::value("activations", activations, "must be same, e4m3 or i8"));
        }
        let held = match activations {
            DType::I8 => matches!(self.weights, DType::I8 | DType::I4 | DType::U4 | DType::I2 | DType::U2),
            _ => matches!(self.weights, DType::E4M3 | DType::E2M1 | DType::I4 | DType::U4),
        };
        if !held {
            let wanted = match activations {
                DType::I8 => "must be i8, i4, u4, i2 or u2 with activations of i8",
                _ => "must be e4m3, e2m1, i4 or u4 with activations of e4m3",
            };
            return Err(ConfigError::value("weights", self.weights, wanted));
        }
        if self.scaled == Scaled::Weights {
            let wanted = "must be sums: weights with scales have more bits than activations of 8";
            return Err(ConfigError::value("scaled", self.scaled, wanted));
        }
        if self.zeros || self.upper.is_some() {
            let wanted = "with activations of 8 bits weights are multiplied as they are stored";
            return Err(match self.upper {
                Some(upper) => ConfigError::value("upper", upper, format!("must be none: {wanted}")),
                None => ConfigError::value("zeros", self.zeros, format!("must be false: {wanted}")),
            });
        }
        Ok(())
    }

    /// The program, with the sizes `m`, `n` and `k` and the parameters `a[m, k]`; `w`, weights as [`stored`](Self::stored); the scales
    /// `s[ceil_div(k, group), n]` and zero points `z` of the same shape; `c[m, n]`; with stream-K the workspace `partial` and `done`, which is 0 at first and
    /// 0 again behind each launch. With groups w, s and z have a first mode `g`, and with rows that lie anywhere a has `r` of them.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        let mainloop = Weights {
            tiling: self.tiling(),
            dtype: self.a(),
            products: if self.a().is_float() { DType::F32 } else { DType::I32 },
            plain: self.dtype,
            stored: self.stored(),
            upper: self.stored_upper(),
            scale: self.scales(),
            group: self.group,
            zeros: self.zeros,
            scaled: self.scaled,
            instruction: self.instruction,
            part: self.span(),
            left: self.left(),
            lefts: self.lefts(),
            hints: [self.hint_a, self.hint_w],
            gathered: self.gather,
        };
        let kernel = GemmKernel {
            name: "gemm_weights",
            tiling: self.tiling(),
            batch: self.batch,
            nesting: None,
            split: 1,
            schedule: self.schedule,
            stream_k: self.tiling().exchanged_at_once(self.schedule, SPARE_REGISTERS),
            result: self.dtype,
            scatter: self.scatter,
            mainloop,
            chain: &Chain::new(&self.epilogue, &[]),
        };
        kernel.program()
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot. Conversions of `e4m3` are those of Hopper.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        let needs = if self.casts_apart() { TENSOR_MEMORY_NEEDS } else { NEEDS };
        lacking(arch, needs).or_else(|| self.validate().err().map(|e| e.to_string()))
    }
}
