//! Attention forward for Hopper, o = softmax(scale · q kᵀ) v for each head: blocks of keys from the last to the first, with the scores of a
//! block in flight while the values of the block before are added (FlashAttention-3, section 3.2), and a reference maximum that moves
//! only where a score outgrows it by 2⁸, so that sums are rarely scaled anew.
//!
//! The program is text with the choices written out; `tilewright kernels attention -p …` prints it.

mod text;

use std::fmt;
use std::str::FromStr;

use tilewright_machine::{Arch, DType};
use tilewright_tile::{Program, parse};

use crate::config::{Codec, ConfigError, number, optional, optional_text, parameters};
use crate::warp_specialized::refused;

/// The keys that a query attends to. Queries stand at the end of the keys: query i of `sq` is at the place of key i + sk − sq.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mask {
    /// All.
    None,
    /// Those up to its own place.
    Causal,
    /// So many up to its own place.
    Window(i64),
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mask::None => f.write_str("none"),
            Mask::Causal => f.write_str("causal"),
            Mask::Window(keys) => write!(f, "window({keys})"),
        }
    }
}

impl FromStr for Mask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let window = || text.strip_prefix("window(")?.strip_suffix(')')?.parse().ok();
        match text {
            "none" => Ok(Mask::None),
            "causal" => Ok(Mask::Causal),
            _ => window().map(Mask::Window).ok_or_else(|| "must be none, causal or window(KEYS)".to_string()),
        }
    }
}

/// The order of the modes of q, k, v and o: b batches, s places, h heads, d elements of a head.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Modes {
    /// `[b, s, h, d]`.
    Bshd,
    /// `[b, h, s, d]`.
    Bhsd,
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Modes::Bshd => "bshd",
            Modes::Bhsd => "bhsd",
        })
    }
}

impl FromStr for Modes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "bshd" => Ok(Modes::Bshd),
            "bhsd" => Ok(Modes::Bhsd),
            _ => Err("must be bshd or bhsd".to_string()),
        }
    }
}

parameters! {
    /// The head, the mask and the tiling of attention. The default is 192 queries by 80 keys, the best for heads of 128 elements.
    pub struct AttentionConfig, "attention", programs {
        /// The type of q, k, v and o: f16 or bf16. Scores and sums are f32.
        dtype: DType as FLOAT16 = DType::F16,
        /// Elements of a head of q and k, a multiple of 16 up to 256.
        d: i64 as INT = 128,
        /// Elements of a head of v and o, a multiple of 16 up to 256, or same: as many.
        dv: Option<i64> as SAME_HEAD = None,
        /// The keys that a query attends to: none (all of them), causal (up to its own place; the last query's is the last key's) or window(n) (the last n of those).
        mask: Mask as OWN = Mask::None,
        /// Scores x become cap · tanh(x / cap), where cap is a scalar of the launch.
        softcap: bool as FLAG = false,
        /// Writes lse[b, hq, sq] as well: the logarithm of each query's sum of exponentials.
        lse: bool as FLAG = false,
        /// The order of the modes of q, k, v and o: bshd or bhsd (b batches, s places, h heads, d elements).
        modes: Modes as OWN = Modes::Bshd,
        /// Warpgroups that multiply, of 64 queries each.
        warpgroups: i64 as INT = 3,
        /// Keys of a block, a multiple of 16.
        bn: i64 as INT = 80,
        /// Blocks of keys, and of values, in shared memory.
        stages: i64 as INT = 2,
        /// Blocks that stay, and work on tile after tile: pays without a mask. Else there is a block for each tile, the longest first.
        persistent: bool as FLAG = false,
        /// Blocks that are launched at most, if persistent.
        sm_count: i64 as INT = 132,
    }
}

impl Codec<Option<i64>> {
    /// A number of elements, or `same`.
    const SAME_HEAD: Self = Codec {
        read: |field, text| optional("same", text, |text| number(field, text)),
        write: |elements| optional_text("same", elements),
    };
}

/// Registers of a math thread beside its scores, factors and sums.
const SPARE_REGISTERS: i64 = 22;

impl AttentionConfig {
    /// Elements of a head of v.
    pub fn values(&self) -> i64 {
        self.dv.unwrap_or(self.d)
    }

    /// Queries of a tile.
    pub fn rows(&self) -> i64 {
        64 * self.warpgroups
    }

    /// Registers of a thread that multiplies.
    fn math_registers(&self) -> i64 {
        if self.warpgroups > 2 { 160 } else { 240 }
    }

    /// True if a tile of o leaves through the shared memory of its queries.
    fn through_queries(&self) -> bool {
        !self.persistent && self.values() == self.d
    }

    /// Bytes of shared memory of a block, without mbarriers.
    fn shared_bytes(&self) -> i64 {
        let keys = self.stages * self.bn * (self.d + self.values());
        let results = if self.through_queries() { 0 } else { self.rows() * self.values() };
        2 * (self.rows() * self.d + keys + results)
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let head = |field, elements: i64| {
            let right = (16..=256).contains(&elements) && elements % 16 == 0;
            let wanted = "must be a multiple of 16 from 16 to 256";
            if right { Ok(()) } else { Err(ConfigError::value(field, elements, wanted)) }
        };
        let within = |field, value: i64, low: i64, high: i64| {
            let wanted = format!("must be {low} to {high}");
            if (low..=high).contains(&value) { Ok(()) } else { Err(ConfigError::value(field, value, wanted)) }
        };
        head("d", self.d)?;
        head("dv", self.values())?;
        within("warpgroups", self.warpgroups, 1, 3)?;
        within("stages", self.stages, 1, 8)?;
        within("sm_count", self.sm_count, 1, 1 << 20)?;
        if !(16..=256).contains(&self.bn) || self.bn % 16 != 0 {
            return Err(ConfigError::value("bn", self.bn, "must be a multiple of 16 from 16 to 256"));
        }
        if let Mask::Window(keys) = self.mask
            && !(1..=1 << 30).contains(&keys)
        {
            return Err(ConfigError::value("mask", self.mask, "must have a window of 1 to 2^30 keys"));
        }
        // Scores, factors of half as many bits, sums.
        let registers = self.bn / 2 + self.bn / 4 + self.values() / 2 + SPARE_REGISTERS;
        if registers > self.math_registers() {
            let wanted = format!(
                "needs {registers} registers of a thread, which has {}: choose fewer keys, or {}",
                self.math_registers(),
                if self.warpgroups > 2 { "two warpgroups" } else { "smaller heads" }
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        let (bytes, have) =
            (self.shared_bytes() + 1024, i64::from(Arch::SM_90A.limits().shared_bytes_per_block));
        if bytes > have {
            let wanted = format!(
                "needs {bytes} bytes of shared memory, and a block has {have}: choose fewer stages or keys"
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// The program, with the sizes `b`, `hq`, `hk`, `sq` and `sk` and the parameters `q[b, sq, hq, d]`, `k[b, sk, hk, d]`, `v[b, sk, hk, dv]`,
    /// `o[b, sq, hq, dv]` (or with heads before places), `lse[b, hq, sq]` and the scalars `scale` and `cap`. `hq` is a multiple of
    /// `hk`: neighbouring heads of q share one of k.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn program(&self) -> Result<Program, ConfigError> {
        self.validate()?;
        Ok(parse(&self.text())?)
    }

    fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        Ok(vec![self.program()?])
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        refused(arch).or_else(|| self.validate().err().map(|e| e.to_string()))
    }

    /// True if query `i` of `sq` attends to key `j` of `sk`.
    pub fn attends(&self, i: i64, j: i64, [sq, sk]: [i64; 2]) -> bool {
        let place = i + sk - sq;
        match self.mask {
            Mask::None => true,
            Mask::Causal => j <= place,
            Mask::Window(keys) => j <= place && j > place - keys,
        }
    }
}

/// The sizes of a problem: batches, heads of q and of k, queries and keys of a head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttentionSizes {
    /// Batches.
    pub b: i64,
    /// Heads of q and o.
    pub hq: i64,
    /// Heads of k and v, a divisor of `hq`.
    pub hk: i64,
    /// Queries.
    pub sq: i64,
    /// Keys.
    pub sk: i64,
}

/// o in f64 in the order of its modes, and the logarithms of the sums of exponentials as `[b, hq, sq]`. A query that attends to no key has
/// zeros and −∞.
pub fn reference(
    config: &AttentionConfig,
    sizes: &AttentionSizes,
    (q, k, v): (&[f64], &[f64], &[f64]),
    (scale, cap): (f64, f64),
) -> (Vec<f64>, Vec<f64>) {
    let AttentionSizes { b, hq, hk, sq, sk } = *sizes;
    let (d, dv) = (config.d, config.values());
    let at = |[batch, place, head]: [i64; 3], [places, heads]: [i64; 2], elements: i64| {
        let row = match config.modes {
            Modes::Bshd => (batch * places + place) * heads + head,
            Modes::Bhsd => (batch * heads + head) * places + place,
        };
        (row * elements) as usize
    };
    let (mut o, mut lse) = (vec![0.0; (b * hq * sq * dv) as usize], Vec::new());
    for batch in 0..b {
        for head in 0..hq {
            for i in 0..sq {
                let query = &q[at([batch, i, head], [sq, hq], d)..][..d as usize];
                let of_key = |j: i64| at([batch, j, head / (hq / hk)], [sk, hk], d);
                let score = |j: i64| {
                    let key = &k[of_key(j)..][..d as usize];
                    let x = scale * query.iter().zip(key).map(|(x, y)| x * y).sum::<f64>();
                    if config.softcap { cap * (x / cap).tanh() } else { x }
                };
                let keys: Vec<i64> = (0..sk).filter(|j| config.attends(i, *j, [sq, sk])).collect();
                let scores: Vec<f64> = keys.iter().map(|j| score(*j)).collect();
                let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
                let sum: f64 = weights.iter().sum();
                lse.push(if keys.is_empty() { f64::NEG_INFINITY } else { most + sum.ln() });
                let row = at([batch, i, head], [sq, hq], dv);
                for (j, weight) in keys.iter().zip(&weights) {
                    let value = &v[at([batch, *j, head / (hq / hk)], [sk, hk], dv)..][..dv as usize];
                    o[row..].iter_mut().zip(value).for_each(|(o, v)| *o += weight / sum * v);
                }
            }
        }
    }
    (o, lse)
}

/// Sizes at which tiles meet every kind of edge: single queries and keys, more queries than keys, shared heads, lengths beside tiles and blocks.
pub fn edge_sizes(config: &AttentionConfig) -> Vec<AttentionSizes> {
    let (rows, keys) = (config.rows(), config.bn);
    let of = |[b, hq, hk, sq, sk]: [i64; 5]| AttentionSizes { b, hq, hk, sq, sk };
    [
        [1, 1, 1, 1, 1],
        [1, 2, 1, 17, 2 * keys + 3],
        [2, 3, 3, rows, keys],
        [1, 4, 2, rows + 1, rows + 1],
        [1, 1, 1, 2 * rows - 7, keys - 1],
        [2, 2, 1, 3, 3 * keys],
    ]
    .map(of)
    .to_vec()
}
