//! What the operators for Hopper have in common: the rules about tiles, rings and roles, and how the fields are written that all of
//! them have.

use tilewright_machine::{Arch, DType, Feature, Features, WgmmaRow};
use tilewright_tile::Expr;
use tilewright_tile::dsl::{KernelBuilder, block_x};

use crate::config::ConfigError;
use crate::gemm_hopper::{Cluster, Order};

/// The features that these operators need.
pub(crate) const NEEDS: Features = WgmmaRow::NEEDS.and(&[
    Feature::Tma,
    Feature::TransactionBarrier,
    Feature::Elect,
    Feature::Cluster,
    Feature::SetMaxRegisters,
    Feature::DependentLaunch,
]);

/// The architecture that their spaces and rules are made for.
pub(crate) const TARGET: Arch = Arch::SM_90A;

/// Registers that the threads of a multiprocessor have together.
const REGISTERS: i64 = TARGET.limits().registers_per_multiprocessor as i64;

/// Registers that an instruction of the widest kind needs besides its sums, so that it can be assembled at all.
const FEWEST_BESIDES: i64 = 26;

/// Bytes of the two barriers of a stage.
pub(crate) const BARRIERS: i64 = 16;

/// Bytes of a row of a tile that leaves by one tensor copy, at most: the widest swizzle.
pub(crate) const ROW_BYTES: i64 = 128;

/// Tiles start at multiples of this many bytes of shared memory: after so many the widest swizzle repeats.
const ALIGNMENT: i64 = 1024;

/// Bytes that a tile takes in shared memory.
pub(crate) fn aligned(bytes: i64) -> i64 {
    (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
}

/// Bytes of an element of 8 bits or more.
pub(crate) fn bytes(dtype: DType) -> i64 {
    i64::from(dtype.bits()) / 8
}

/// A number is in a range and a multiple of another.
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

/// Math warpgroups share the rows of a tile.
pub(crate) fn check_rows(bm: i64, warpgroups: i64) -> Result<(), ConfigError> {
    within("warpgroups", warpgroups, [1, 7], 1)?;
    let rows = WgmmaRow::M * warpgroups;
    if (rows..=1024).contains(&bm) && bm % rows == 0 {
        return Ok(());
    }
    let wanted = format!("must be a multiple of 64 for each of {warpgroups} math warpgroups, at most 1024");
    Err(ConfigError::value("bm", bm, wanted))
}

/// The columns that leave at a time divide those of `field`, and are rows that a tensor copy takes.
pub(crate) fn check_chunk(columns: i64, field: &str, of: i64, dtype: DType) -> Result<(), ConfigError> {
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

/// Blocks of a cluster can share rows of a tile, if they share any: each brings as many of them, in groups of 8.
pub(crate) fn check_cluster(cluster: Cluster, shared: Option<i64>) -> Result<(), ConfigError> {
    let blocks = cluster.blocks();
    if ![1, 2, 4, 8].contains(&blocks) {
        return Err(ConfigError::value("cluster", cluster, "must have 2, 4 or 8 blocks"));
    }
    if let Some(rows) = shared.filter(|rows| rows % (8 * blocks) != 0) {
        let wanted = format!("{blocks} blocks cannot share {rows} rows in groups of 8");
        return Err(ConfigError::value("cluster", cluster, wanted));
    }
    Ok(())
}

/// An order of tiles is one that the language has.
pub(crate) fn check_order(order: Order) -> Result<(), ConfigError> {
    let wanted = match order {
        Order::Bands(rows) | Order::Snake(rows) if !(1..=1024).contains(&rows) => {
            "bands have 1 to 1024 rows of tiles"
        }
        Order::Hilbert(level) if !(0..=8).contains(&level) => "the squares are of order 0 to 8",
        _ => return Ok(()),
    };
    Err(ConfigError::value("order", order, wanted))
}

/// The registers of a block's roles.
pub(crate) struct Registers {
    /// Of a thread that copies.
    pub load: i64,
    /// Of a thread that multiplies.
    pub math: i64,
    /// Warpgroups that multiply.
    pub warpgroups: i64,
    /// Columns of the tile, which are too many if the registers do not suffice.
    pub columns: i64,
    /// What a thread that multiplies holds at most.
    pub fragments: i64,
    /// What it needs besides, about.
    pub spare: i64,
}

impl Registers {
    /// There are as many, and they suffice.
    pub fn check(&self) -> Result<(), ConfigError> {
        within("load_registers", self.load, [24, 240], 8)?;
        within("math_registers", self.math, [24, 240], 8)?;
        let together = 128 * (self.load + self.warpgroups * self.math);
        if together > REGISTERS {
            let wanted = format!(
                "the block's threads would have {together} registers, and there are {REGISTERS}: use fewer, or fewer \
                 warpgroups"
            );
            return Err(ConfigError::value("math_registers", self.math, wanted));
        }
        if self.fragments + self.spare > self.math {
            let wanted = format!(
                "sums and results take {} registers of a thread, which has {} and needs about {} more: use a smaller \
                 tile or more warpgroups",
                self.fragments, self.math, self.spare
            );
            return Err(ConfigError::value("bn", self.columns, wanted));
        }
        Ok(())
    }
}

/// An instruction as wide as a tile's columns finds its registers: a block starts with an even share of them all, in which the
/// assembler must find room for one instruction's sums, whatever roles ask for.
pub(crate) fn check_instruction(columns: i64, warpgroups: i64) -> Result<(), ConfigError> {
    let threads = 128 * (1 + warpgroups);
    let share = REGISTERS / threads / 8 * 8;
    let wide = (1..=32).rev().map(|eighth| 8 * eighth).find(|n| columns % n == 0).unwrap_or(8);
    if wide / 2 + FEWEST_BESIDES <= share {
        return Ok(());
    }
    let wanted = format!(
        "an instruction's sums take {} registers of a thread, and {threads} threads can start with {share} each: use \
         a narrower tile or fewer warpgroups",
        wide / 2
    );
    Err(ConfigError::value("bn", columns, wanted))
}

/// A block has so much shared memory.
pub(crate) fn check_memory(stages: i64, need: i64) -> Result<(), ConfigError> {
    let have = i64::from(TARGET.limits().shared_bytes_per_block);
    if need <= have {
        return Ok(());
    }
    let wanted = format!(
        "the tiles take {need} bytes of shared memory, and {} has {have} a block: use fewer stages or smaller tiles",
        TARGET
    );
    Err(ConfigError::value("stages", stages, wanted))
}

/// Why there are no products of warpgroups on an architecture, if there are none.
pub(crate) fn refused(arch: Arch) -> Option<String> {
    let missing = arch.lacks(NEEDS);
    (missing != Features::NONE).then(|| format!("{arch} lacks {missing}"))
}

/// Tiles of clusters, of which each has so many along a mode.
pub(crate) fn shared_out(tiles: &Expr, blocks: i64) -> Expr {
    if blocks > 1 { tiles.ceil_div(blocks) } else { tiles.clone() }
}

/// The tile of a block along a mode, given that of its cluster, which has so many blocks along it.
pub(crate) fn own(tile: &Expr, blocks: i64) -> Expr {
    if blocks > 1 { tile * blocks + block_x() % blocks } else { tile.clone() }
}

/// A grid of blocks that stay: as many clusters as there are tiles of clusters, and no more blocks than `sms`; one warpgroup of each copies.
pub(crate) fn launch(t: &mut KernelBuilder, sms: &Expr, tiles: &Expr, blocks: i64, warpgroups: i64) {
    if blocks > 1 {
        t.grid([(sms / blocks).min(tiles) * blocks]);
        t.cluster(blocks);
    } else {
        t.grid([sms.min(tiles)]);
    }
    t.threads(128 * (1 + warpgroups));
}
