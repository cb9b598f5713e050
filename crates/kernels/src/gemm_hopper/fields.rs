//! The configuration's fields by name.

use tilewright_machine::DType;
use tilewright_tile::Program;

use super::{HopperGemmConfig, Major};
use crate::config::{Config, ConfigError, number, parsed};
use crate::hopper::{flag, hint, hint_text, widest, widest_text};

impl Config for HopperGemmConfig {
    const NAME: &'static str = "gemm_hopper";
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("dtype", "the type of a and b: f16, bf16, e4m3, e5m2, i8 or u8"),
        ("dtype_b", "the type of b: same, or of 8-bit floats e4m3 or e5m2"),
        (
            "out",
            "the type of c: f16, bf16, f32 or i32; same: that of a and b, of 8-bit floats bf16, of integers i32",
        ),
        ("a", "along which mode a is contiguous: k or m"),
        ("b", "along which mode b is contiguous: k or n"),
        (
            "batch",
            "packed: l products, one behind the other; strided: l products so many elements apart; grouped: each tile of rows of a with the matrix b of its group; ragged: the same without padding; none",
        ),
        (
            "epilogue",
            "what is done to the sums, in order: none, or of alpha, row_scale, col_scale, bias, relu, gelu, silu, residual, row_sums, col_sums some joined with +",
        ),
        ("swap", "true: the tile's rows are along n and its columns along m, for small m"),
        ("bm", "rows of a block's tile of c, a multiple of 64 for each math warpgroup"),
        ("bn", "columns of a block's tile of c, a multiple of 8"),
        ("bk", "columns of a and b in a stage, a multiple of 32 bytes; 128 bytes are best"),
        ("stages", "stages between the copies and the products"),
        ("warpgroups", "warpgroups that multiply"),
        (
            "cluster",
            "blocks that share a factor: none, m2 (b is shared), n2 (a is shared), m4 …; or a tile: k2, k4 …",
        ),
        ("split", "parts of k whose sums meet in global memory: more than 1 for few tiles and a long k"),
        ("order", "the order of tiles: bands(rows), snake(rows) or hilbert(order)"),
        ("in_flight", "products that go on while the next one is issued"),
        ("deferred", "true: a tile's results leave while the next tile is multiplied"),
        ("chunk", "columns of the tile that leave at a time: 8, 16, 32, 64, or widest"),
        ("buffers", "chunks on their way to memory or being written for it"),
        ("hint_a", "how the L2 cache treats what is read of a: none, evict_first or evict_last"),
        ("hint_b", "the same for b"),
        ("hint_c", "the same for what is written to c"),
        ("dependent", "true: may be launched before the kernel ahead of it has ended"),
        ("load_registers", "registers of a thread that copies"),
        ("math_registers", "registers of a thread that multiplies"),
        ("sms", "blocks that are launched, at most"),
    ];

    fn get(&self, field: &str) -> String {
        let major = |major: Major, rows: &str| if major == Major::K { "k" } else { rows }.to_string();
        match field {
            "dtype" => self.dtype.to_string(),
            "dtype_b" => self.dtype_b.map_or("same".to_string(), |dtype| dtype.to_string()),
            "out" => self.out.map_or("same".to_string(), |out| out.to_string()),
            "a" => major(self.a, "m"),
            "b" => major(self.b, "n"),
            "batch" => self.batch.to_string(),
            "epilogue" => self.epilogue.to_string(),
            "swap" => self.swap.to_string(),
            "bm" => self.bm.to_string(),
            "bn" => self.bn.to_string(),
            "bk" => self.bk.to_string(),
            "stages" => self.stages.to_string(),
            "warpgroups" => self.warpgroups.to_string(),
            "cluster" => self.cluster.to_string(),
            "split" => self.split.to_string(),
            "order" => self.order.to_string(),
            "in_flight" => self.in_flight.to_string(),
            "deferred" => self.deferred.to_string(),
            "chunk" => widest_text(self.chunk),
            "buffers" => self.buffers.to_string(),
            "hint_a" => hint_text(self.hint_a),
            "hint_b" => hint_text(self.hint_b),
            "hint_c" => hint_text(self.hint_c),
            "dependent" => self.dependent.to_string(),
            "load_registers" => self.load_registers.to_string(),
            "math_registers" => self.math_registers.to_string(),
            "sms" => self.sms.to_string(),
            _ => String::new(),
        }
    }

    fn set(&mut self, field: &'static str, value: &str) -> Result<(), ConfigError> {
        let major = |rows: &str| match value {
            "k" => Ok(Major::K),
            _ if value == rows => Ok(Major::Mn),
            _ => Err(ConfigError::value(field, value, format!("must be k or {rows}"))),
        };
        let dtype = |of: &[DType]| {
            of.iter().copied().find(|dtype| dtype.to_string() == value).ok_or_else(|| {
                let names: Vec<_> = of.iter().map(DType::to_string).collect();
                ConfigError::value(field, value, format!("must be {}", names.join(" or ")))
            })
        };
        match field {
            "dtype" => self.dtype = dtype(&Self::FACTORS)?,
            "dtype_b" => {
                self.dtype_b = if value == "same" { None } else { Some(dtype(&Self::FACTORS)?) };
            }
            "out" => self.out = if value == "same" { None } else { Some(dtype(&Self::RESULTS)?) },
            "a" => self.a = major("m")?,
            "b" => self.b = major("n")?,
            "batch" => self.batch = parsed(field, value)?,
            "epilogue" => self.epilogue = parsed(field, value)?,
            "swap" => self.swap = flag(field, value)?,
            "bm" => self.bm = number(field, value)?,
            "bn" => self.bn = number(field, value)?,
            "bk" => self.bk = number(field, value)?,
            "stages" => self.stages = number(field, value)?,
            "warpgroups" => self.warpgroups = number(field, value)?,
            "cluster" => self.cluster = parsed(field, value)?,
            "split" => self.split = number(field, value)?,
            "order" => self.order = parsed(field, value)?,
            "in_flight" => self.in_flight = number(field, value)?,
            "chunk" => self.chunk = widest(field, value)?,
            "deferred" => self.deferred = flag(field, value)?,
            "buffers" => self.buffers = number(field, value)?,
            "hint_a" => self.hint_a = hint(field, value)?,
            "hint_b" => self.hint_b = hint(field, value)?,
            "hint_c" => self.hint_c = hint(field, value)?,
            "dependent" => self.dependent = flag(field, value)?,
            "load_registers" => self.load_registers = number(field, value)?,
            "math_registers" => self.math_registers = number(field, value)?,
            _ => self.sms = number(field, value)?,
        }
        Ok(())
    }

    fn build(&self) -> Result<Vec<Program>, ConfigError> {
        self.programs()
    }
}
