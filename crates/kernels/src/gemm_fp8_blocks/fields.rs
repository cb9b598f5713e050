//! The configuration's fields by name.

use tilewright_machine::DType;
use tilewright_tile::Program;

use super::Fp8BlocksConfig;
use crate::config::{Config, ConfigError, number, parsed};
use crate::hopper::{flag, hint, hint_text, widest, widest_text};

impl Config for Fp8BlocksConfig {
    const NAME: &'static str = "gemm_fp8_blocks";
    const FIELDS: &'static [(&'static str, &'static str)] = &[
        ("a", "the type of a: e4m3 or e5m2"),
        ("b", "the type of b: e4m3 or e5m2"),
        ("out", "the type of c: bf16, f16 or f32"),
        ("swap", "true: the tile's rows are along n and its columns along m, for small m"),
        ("bm", "rows of a block's tile of c, a multiple of 64 for each math warpgroup"),
        ("bn", "columns of a block's tile of c"),
        ("part", "columns that are multiplied and promoted at a time, or widest"),
        ("stages", "stages between the copies and the products"),
        ("warpgroups", "warpgroups that multiply"),
        ("cluster", "blocks that share a factor: none, m2 (b is shared), n2 (a is shared), m4 …"),
        ("order", "the order of tiles: bands(rows), snake(rows) or hilbert(order)"),
        ("deferred", "true: a tile's results leave while the next tile is multiplied"),
        ("chunk", "columns of the tile that leave at a time: 8, 16, 32, 64, or widest"),
        ("buffers", "chunks on their way to memory or being written for it"),
        ("hint_a", "how the L2 cache treats what is read of a: none, evict_first or evict_last"),
        ("hint_b", "the same for b"),
        ("hint_c", "the same for what is written to c"),
        ("load_registers", "registers of a thread that copies"),
        ("math_registers", "registers of a thread that multiplies"),
        ("sms", "blocks that are launched, at most"),
    ];

    fn get(&self, field: &str) -> String {
        match field {
            "a" => self.a.to_string(),
            "b" => self.b.to_string(),
            "out" => self.out.to_string(),
            "swap" => self.swap.to_string(),
            "bm" => self.bm.to_string(),
            "bn" => self.bn.to_string(),
            "part" => widest_text(self.part),
            "stages" => self.stages.to_string(),
            "warpgroups" => self.warpgroups.to_string(),
            "cluster" => self.cluster.to_string(),
            "order" => self.order.to_string(),
            "deferred" => self.deferred.to_string(),
            "chunk" => widest_text(self.chunk),
            "buffers" => self.buffers.to_string(),
            "hint_a" => hint_text(self.hint_a),
            "hint_b" => hint_text(self.hint_b),
            "hint_c" => hint_text(self.hint_c),
            "load_registers" => self.load_registers.to_string(),
            "math_registers" => self.math_registers.to_string(),
            "sms" => self.sms.to_string(),
            _ => String::new(),
        }
    }

    fn set(&mut self, field: &'static str, value: &str) -> Result<(), ConfigError> {
        let dtype = |wanted: &str| {
            value.parse::<DType>().map_err(|_| ConfigError::value(field, value, format!("must be {wanted}")))
        };
        match field {
            "a" => self.a = dtype("e4m3 or e5m2")?,
            "b" => self.b = dtype("e4m3 or e5m2")?,
            "out" => self.out = dtype("bf16, f16 or f32")?,
            "swap" => self.swap = flag(field, value)?,
            "bm" => self.bm = number(field, value)?,
            "bn" => self.bn = number(field, value)?,
            "part" => self.part = widest(field, value)?,
            "stages" => self.stages = number(field, value)?,
            "warpgroups" => self.warpgroups = number(field, value)?,
            "cluster" => self.cluster = parsed(field, value)?,
            "order" => self.order = parsed(field, value)?,
            "deferred" => self.deferred = flag(field, value)?,
            "chunk" => self.chunk = widest(field, value)?,
            "buffers" => self.buffers = number(field, value)?,
            "hint_a" => self.hint_a = hint(field, value)?,
            "hint_b" => self.hint_b = hint(field, value)?,
            "hint_c" => self.hint_c = hint(field, value)?,
            "load_registers" => self.load_registers = number(field, value)?,
            "math_registers" => self.math_registers = number(field, value)?,
            _ => self.sms = number(field, value)?,
        }
        Ok(())
    }

    fn build(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }
}
