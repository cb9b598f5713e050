//! Rules about tiles, stages, clusters and the registers of roles.

use tilewright_machine::{Arch, DType, Feature, Features, Tcgen05Row, WgmmaRow};

use super::choices::{Cluster, FillMode, Rasterization};
use super::tiling::Tiling;
use crate::config::ConfigError;
use crate::epilogue::{Chain, OperandKind};

/// Features that warp-specialised kernels need in all of their forms.
const SHARED: &[Feature] = &[
    Feature::Tma,
    Feature::Multicast,
    Feature::TransactionBarrier,
    Feature::Elect,
    Feature::Cluster,
    Feature::SetMaxRegisters,
    Feature::DependentLaunch,
];

/// The set of these features.
pub(crate) const SHARED_NEEDS: Features = Features::of(SHARED);

/// Features that warp-specialized kernels need by wgmma.
pub(crate) const NEEDS: Features = WgmmaRow::NEEDS.and(SHARED);

/// Features that warp-specialized kernels need with sums in tensor memory.
pub(crate) const TENSOR_MEMORY_NEEDS: Features = Tcgen05Row::NEEDS.and(SHARED);

/// The architecture that their spaces and rules are made for.
pub(crate) const TARGET: Arch = Arch::SM_90A;
/// The orders of tiles that a search varies.
pub(crate) const RASTERIZATIONS: &[&str] = &[
    "grouped(4)",
    "grouped(8)",
    "grouped(12)",
    "grouped(16)",
    "serpentine(8)",
    "serpentine(12)",
    "hilbert(3)",
];

/// Registers that the threads of a multiprocessor have together.
const REGISTERS: i64 = TARGET.limits().registers_per_multiprocessor as i64;

/// Registers that an instruction of the widest kind needs in addition to its sums, so that it can be assembled at all.
const FEWEST_OTHERS: i64 = 26;

/// Bytes of the two barriers of a stage.
pub(crate) const BARRIERS: i64 = 16;

/// Stages of the pipelines that bring an epilogue's operands.
pub(crate) const OPERAND_STAGES: i64 = 2;

/// Bytes of shared memory of a thread for a reduction over a cluster.
pub(crate) const CLUSTER_REDUCE_BYTES: i64 = 128;

/// Bytes of a row of a tile that a TMA store takes, at most: the widest swizzle.
pub(crate) const ROW_BYTES: i64 = 128;

/// Tiles start at multiples of this many bytes of shared memory: the period of the widest swizzle.
const ALIGNMENT: i64 = 1024;

/// Bytes that a thread copies at a time of rows that lie anywhere.
const PIECE: i64 = 16;

/// Registers of a thread that copies such rows, beside those of each row that it copies from: its place, of 64 bits, and whether it is there.
const BESIDE_ROWS: i64 = 24;
const OF_ROW: i64 = 4;

/// Registers of each of the 128 threads that copy so many rows of so many bytes, which lie anywhere: for the places of those that it copies from.
pub(crate) fn gathering_registers(rows: i64, bytes: i64) -> i64 {
    let pieces = rows * (bytes / PIECE).max(1);
    (BESIDE_ROWS + OF_ROW * ((pieces + 127) / 128) + 7) / 8 * 8
}

/// Bytes that a tile takes in shared memory.
pub(crate) fn aligned(bytes: i64) -> i64 {
    (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
}

/// Bytes of an element of 8 bits or more.
pub(crate) fn bytes(dtype: DType) -> i64 {
    i64::from(dtype.bits()) / 8
}

/// Bytes of so many elements of any type.
pub(crate) fn bytes_of(elements: i64, dtype: DType) -> i64 {
    elements * i64::from(dtype.bits()) / 8
}

/// Checks that a number is in a range and a multiple of another.
pub(crate) fn within(
    field: &'static str,
    value: i64,
    [low, high]: [i64; 2],
    of: i64,
) -> Result<(), ConfigError> {
    if (low..=high).contains(&value) && value % of == 0 {
        return Ok(());
    }
    let wanted = match of {
        1 => format!("must be from {low} to {high}"),
        _ => format!("must be a multiple of {of} from {low} to {high}"),
    };
    Err(ConfigError::value(field, value, wanted))
}

/// Checks that math warpgroups share the rows of a tile.
fn check_rows(bm: i64, warpgroups: i64) -> Result<(), ConfigError> {
    within("warpgroups", warpgroups, [1, 7], 1)?;
    let rows = WgmmaRow::M * warpgroups;
    if (rows..=1024).contains(&bm) && bm % rows == 0 {
        return Ok(());
    }
    let wanted = format!("must be a multiple of 64 for each of {warpgroups} math warpgroups, at most 1024");
    Err(ConfigError::value("bm", bm, wanted))
}

/// Checks that the columns that leave at a time divide those of `field`, and are rows that TMA takes.
fn check_chunk(columns: i64, field: &str, of: i64, dtype: DType) -> Result<(), ConfigError> {
    if ![8, 16, 32, 64].contains(&columns) || of % columns != 0 {
        let wanted = format!("must be 8, 16, 32 or 64 and divide {field} = {of}, or be `widest`");
        return Err(ConfigError::value("chunk", columns, wanted));
    }
    if columns * bytes(dtype) > ROW_BYTES {
        let wanted = format!("{columns} columns of {dtype} are more than {ROW_BYTES} bytes");
        return Err(ConfigError::value("chunk", columns, wanted));
    }
    Ok(())
}

/// Checks that blocks of a cluster can share rows of a tile, given of each factor the rows and the blocks: each loads as many of them, in
/// groups of 8.
fn check_cluster(cluster: Cluster, shared: [(i64, i64); 2]) -> Result<(), ConfigError> {
    let wanted = match cluster {
        Cluster::AlongMn(along_m, along_n) if [along_m, along_n].iter().any(|n| ![2, 4].contains(n)) => {
            "must have 2 or 4 blocks along m and along n"
        }
        Cluster::AlongMn(..) => "",
        _ if ![1, 2, 4, 8].contains(&cluster.blocks()) => "must have 2, 4 or 8 blocks",
        _ => "",
    };
    if !wanted.is_empty() {
        return Err(ConfigError::value("cluster", cluster, wanted));
    }
    let apart = |(rows, blocks): &(i64, i64)| *blocks > 1 && rows % (8 * blocks) != 0;
    if let Some((rows, blocks)) = shared.into_iter().find(apart) {
        let wanted = format!("{blocks} blocks cannot share {rows} rows in groups of 8");
        return Err(ConfigError::value("cluster", cluster, wanted));
    }
    Ok(())
}

/// Checks that the language has an order of tiles.
fn check_order(rasterization: Rasterization) -> Result<(), ConfigError> {
    let wanted = match rasterization {
        Rasterization::Grouped(rows) | Rasterization::Serpentine(rows) if !(1..=1024).contains(&rows) => {
            "groups have 1 to 1024 rows of tiles"
        }
        Rasterization::Hilbert(level) if !(0..=8).contains(&level) => "the squares are of order 0 to 8",
        _ => return Ok(()),
    };
    Err(ConfigError::value("rasterization", rasterization, wanted))
}

/// Registers of a thread that loads what is constant.
pub(crate) const AHEAD_REGISTERS: i64 = 24;

/// Registers of a thread that multiplies into tensor memory: for descriptors and places of stages.
pub(crate) const ISSUING_REGISTERS: i64 = 40;

/// Stages of sums in tensor memory: one is stored while the next tile's are made.
pub(crate) const SUM_STAGES: i64 = 2;

/// Bytes for the word with the address of tensor memory, which an allocation writes.
pub(crate) const WORD: i64 = 16;

/// Columns that one call brings from tensor memory to a thread's registers, of rows of 32 bits.
pub(crate) const COPIED: i64 = 32;

/// Columns of a tile up to which one warpgroup has registers for all of its sums, which others have made.
pub(crate) const OF_ONE_WARPGROUP: i64 = 128;

/// Multiprocessors of a B200 (NVIDIA B200 data sheet).
pub(crate) const MULTIPROCESSORS: i64 = 148;

/// The needs of a kernel.
pub(crate) struct Needs {
    /// The columns that chunks divide: the parameter and its value.
    pub chunk_of: (&'static str, i64),
    /// Rows of a's and of b's tile, with the number of blocks that share them.
    pub shared_rows: [(i64, i64); 2],
    /// Registers of a math thread for fragments, and those reserved for the rest.
    pub fragments: i64,
    pub spare: i64,
    /// Columns of the widest instruction.
    pub instruction: i64,
    pub shared_bytes: i64,
}

impl Tiling {
    /// Checks the tile and its stages.
    pub fn check_tile(&self) -> Result<(), ConfigError> {
        check_rows(self.bm, self.warpgroups)?;
        within("bn", self.bn, [8, 512], 8)?;
        within("stages", self.stages, [1, 32], 1)?;
        within("buffers", self.buffers, [1, 8], 1)
    }

    /// Checks that a block, its cluster and the grid have what a kernel needs.
    pub fn check_resources(&self, needs: &Needs) -> Result<(), ConfigError> {
        let (field, columns) = needs.chunk_of;
        check_chunk(self.chunk, field, columns, self.stored)?;
        check_cluster(self.cluster, needs.shared_rows)?;
        check_order(self.rasterization)?;
        self.check_registers(needs)?;
        check_instruction(needs.instruction, self.all_warpgroups(), self.resident)?;
        within("sm_count", self.sm_count, [self.cluster.blocks(), 65_535], 1)?;
        check_memory(self.stages, needs.shared_bytes, self.resident)
    }

    /// The rows of a's and of b's tile with the number of blocks of a cluster that share them: those along n the first, those along m the second.
    pub fn shared_rows(&self, of_a: i64, of_b: i64) -> [(i64, i64); 2] {
        let [along_m, along_n, _] = self.cluster.shape();
        [(of_a, along_n), (of_b, along_m)]
    }

    /// Bytes of shared memory for an epilogue's operands and for the chunks on their way.
    pub fn epilogue_bytes(&self, chain: &Chain<'_>, result: DType) -> i64 {
        let (rows, cols) = self.sides((self.bm, self.bn));
        let operand = |kind: OperandKind, dtype: DType| {
            let elements = match kind {
                OperandKind::Scalar(_) => 0,
                OperandKind::Row => rows,
                OperandKind::Column => cols,
                OperandKind::Matrix | OperandKind::Result => self.bm * self.chunk,
            };
            aligned(elements * bytes(dtype))
        };
        let ringed = |bytes: i64| if bytes == 0 { 0 } else { OPERAND_STAGES * (bytes + BARRIERS) };
        let sums = chain.sums.iter().filter_map(|part| part.operand(result));
        let operands = chain.operands(result).into_iter().flatten();
        let operands: i64 = operands.map(|o| ringed(operand(o.kind, o.dtype))).sum();
        let sums: i64 = sums.map(|o| operand(o.kind, o.dtype)).sum();
        let chunks = self.buffers * if self.fill == FillMode::Symmetric { 2 } else { 1 };
        operands + sums + chunks * aligned(self.bm * self.chunk * bytes(self.stored))
    }

    fn check_registers(&self, needs: &Needs) -> Result<(), ConfigError> {
        within("load_registers", self.load_registers, [24, 240], 8)?;
        within("math_registers", self.math_registers, [24, 240], 8)?;
        let ahead = if self.ahead { AHEAD_REGISTERS } else { 0 };
        let issuing = if self.tensor_memory { ISSUING_REGISTERS } else { 0 };
        let casting = self.casting * self.cast_registers;
        let math = self.warpgroups * self.math_registers;
        let together = 128 * (self.load_registers + ahead + issuing + casting + math);
        let there = 128 * self.all_warpgroups() * share_of(self.all_warpgroups(), self.resident);
        if together > there {
            let wanted = format!(
                "the block's threads would have {together} registers, and there are {there}: use fewer, or fewer \
                 warpgroups"
            );
            return Err(ConfigError::value("math_registers", self.math_registers, wanted));
        }
        if needs.fragments + needs.spare > self.math_registers {
            let wanted = format!(
                "sums and results take {} registers of a thread, which has {} and needs about {} more: use a smaller \
                 tile or more warpgroups",
                needs.fragments, self.math_registers, needs.spare
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        Ok(())
    }
}

/// Registers with which each thread of a block of so many warpgroups starts, of so many blocks of a multiprocessor: the same number, a multiple of 8.
fn share_of(warpgroups: i64, resident: i64) -> i64 {
    REGISTERS / (128 * (warpgroups * resident).max(1)) / 8 * 8
}

/// Registers of a thread of so many warpgroups, at most, beside warpgroups whose threads have these, in each of so many blocks of a multiprocessor.
pub(crate) fn most_beside(others: &[i64], warpgroups: i64, resident: i64) -> i64 {
    let all = warpgroups + others.len() as i64;
    (all * share_of(all, resident) - others.iter().sum::<i64>()) / warpgroups.max(1) / 8 * 8
}

/// Checks that an instruction as wide as these columns finds its registers: a block starts with an even share of them all, in which the
/// assembler must find room for one instruction's sums, whatever roles ask for.
fn check_instruction(columns: i64, warpgroups: i64, resident: i64) -> Result<(), ConfigError> {
    let (threads, share) = (128 * warpgroups, share_of(warpgroups, resident));
    let wide = (1..=32).rev().map(|eighth| 8 * eighth).find(|n| columns % n == 0).unwrap_or(8);
    if wide / 2 + FEWEST_OTHERS <= share {
        return Ok(());
    }
    let wanted = format!(
        "an instruction's sums take {} registers of a thread, and {threads} threads can start with {share} each: use \
         a narrower tile or fewer warpgroups",
        wide / 2
    );
    Err(ConfigError::value("bn", columns, wanted))
}

/// Bytes of shared memory of each of so many blocks of a multiprocessor; the system takes 1 KiB of each.
pub(crate) fn memory_of_each(resident: i64) -> i64 {
    (i64::from(TARGET.limits().shared_bytes_per_block) + 1024) / resident.max(1) - 1024
}

/// Checks that each of so many blocks of a multiprocessor has this much shared memory.
fn check_memory(stages: i64, need: i64, resident: i64) -> Result<(), ConfigError> {
    let have = memory_of_each(resident);
    if need <= have {
        return Ok(());
    }
    let wanted = format!(
        "the tiles take {need} bytes of shared memory, and {} has {have} a block: use fewer stages or smaller tiles",
        TARGET
    );
    Err(ConfigError::value("stages", stages, wanted))
}

/// The reason why an architecture cannot run these kernels, if it cannot.
pub(crate) fn refused(arch: Arch) -> Option<String> {
    lacking(arch, NEEDS)
}

/// The reason why an architecture cannot run kernels that need these features, if it cannot.
pub(crate) fn lacking(arch: Arch, needs: Features) -> Option<String> {
    let missing = arch.lacks(needs);
    let has = Arch::with(needs).map_or(String::new(), |least| format!(", which {least} has"));
    (missing != Features::NONE).then(|| format!("{arch} lacks {missing}{has}"))
}
