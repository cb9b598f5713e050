//! Attention forward, o = softmax(scale · q kᵀ) v for each head, in two [forms](Form): by wgmma, blocks of keys from the last to the first, with the scores of a
//! block in flight while the values of the block before are added (FlashAttention-3, section 3.2), and a reference maximum that moves
//! only where a score outgrows it by 2⁸, so that sums are rarely scaled anew; and by tcgen05, in tensor memory (FlashAttention-4).
//!
//! The program is text with the choices written out; `tilewright kernels attention -p …` prints it.

mod derivative;
mod form;
mod functions;
pub(crate) mod options;
mod reference;
mod sm80;
mod sm80_space;
mod space;
mod tcgen05;
mod text;
mod wgmma;

use std::fmt;
use std::str::FromStr;

use tilewright_machine::{Arch, DType};
use tilewright_tile::{Code, Diagnostics, Program, parse};

pub use form::Form;
pub use functions::Expression;
pub use reference::{Inputs, edge_sizes, reference};
pub use sm80::AttentionSm80Config;

pub(crate) use derivative::Change;
pub(crate) use form::MOST_KEYS;
pub(crate) use functions::{Function, Names, capped};
pub(crate) use reference::Problem;
pub(crate) use space::SIZES;
pub(crate) use text::{LOG2E, of_head, rows_by_warp};

use form::TILES;
use options::forward;

use crate::config::{Codec, ConfigError, dtype_of, number, optional, optional_text, says_nothing};
use crate::warp_specialized::lacking;

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

forward! {
    /// The head, the mask and the tiling of attention. The default is 192 queries by 80 keys, the best for heads of 128 elements.
    pub struct AttentionConfig, "attention", programs {
        {
            /// The type of q, k and v: f16, bf16 or e4m3. Scores and sums are f32. With e4m3 heads have scales, q_descale, k_descale and v_descale of [b, hk], and by wgmma a kernel before turns v into vt.
            dtype: DType as OPERAND = DType::F16,
            /// The type of o: same, or with e4m3 f16 or bf16.
            out: Option<DType> as RESULT = None,
        }
        {
            /// The program: wgmma, or tcgen05 with scores, weights and sums in tensor memory, whose blocks have two tiles of 128 queries.
            form: Form as OWN = Form::Wgmma,
            /// Warpgroups that multiply, of 64 queries each.
            warpgroups: i64 as INT = 3,
            /// Keys of a block, a multiple of 16, by tcgen05 up to 128.
            bn: i64 as INT = 80,
            /// Blocks of keys, and of values, in shared memory.
            stages: i64 as INT = 2,
            /// Warpgroups that multiply are roles of their own, with 64 queries each, and take turns at the tensor cores: one has the exponentials while another multiplies.
            ping_pong: bool as FLAG = false,
            /// Tiles of queries in shared memory, if persistent: with two the next one is loaded during this one.
            q_stages: i64 as INT = 1,
            /// Blocks that stay, and work on tile after tile: pays without a mask. Else there is a block for each tile, the longest first.
            persistent: bool as FLAG = false,
            /// Blocks that are launched at most, if persistent.
            sm_count: i64 as INT = 132,
            /// By tcgen05, keys of a block whose exponentials are polynomials on the pipes of fma, a multiple of 16; the others are those of the special function units.
            polynomial: i64 as INT = 0,
        }
    }
}

/// Scalar parameters of functions, as the language declares them: `slope: f32 = 0.5, n: i32 = 3`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Scalars(pub String);

impl fmt::Display for Scalars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { &self.0 })
    }
}

impl Scalars {
    /// The error for a program that does not read: a name that it has itself.
    pub(crate) fn clash(&self, errors: Diagnostics) -> ConfigError {
        clash("scalars", &self.0, errors)
    }
}

/// The error for a program that does not read, where declarations have a name that it has itself.
pub(crate) fn clash(field: &'static str, declarations: &str, errors: Diagnostics) -> ConfigError {
    let names = declarations.split(',').filter_map(|part| part.split_once(':')).map(|(name, _)| name.trim());
    let twice = |name: &&str| {
        let quoted = format!("`{name}`");
        errors.0.iter().any(|e| e.code == Code::DuplicateName && e.message.contains(&quoted))
    };
    match names.filter(|name| !name.is_empty()).find(twice) {
        Some(name) => {
            let wanted = format!("`{name}` is a name of the program: choose another, such as `{name}_0`");
            ConfigError::value(field, declarations, wanted)
        }
        None => ConfigError::Program(errors),
    }
}

impl FromStr for Scalars {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let declared = |part: &str| {
            let (name, rest) = part.split_once(':')?;
            let word = name.trim().chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            (word && rest.contains('=')).then_some(())
        };
        match text {
            "none" | "" => Ok(Scalars::default()),
            _ if text.split(',').all(|part| declared(part).is_some()) => Ok(Scalars(text.to_string())),
            _ => Err("must be none or declarations such as slope: f32 = 0.5".to_string()),
        }
    }
}

impl Codec<Option<Expression>> {
    /// An expression, or `none`.
    pub(crate) const EXPRESSION: Self = Codec {
        read: |_, text| optional("none", text, |text| Ok(Expression(text.to_string()))),
        write: |expression| optional_text("none", expression),
    };
}

impl Codec<DType> {
    /// A type of q, k and v.
    const OPERAND: Self = Codec {
        read: |field, text| dtype_of(&[DType::F16, DType::BF16, DType::E4M3], field, text),
        write: DType::to_string,
    };
}

impl Codec<Option<DType>> {
    /// A type of o, or `same`.
    const RESULT: Self = Codec {
        read: |field, text| optional("same", text, |text| dtype_of(&[DType::F16, DType::BF16], field, text)),
        write: |dtype| optional_text("same", dtype),
    };
}

impl Codec<Option<i64>> {
    /// A number of elements, or `same`.
    pub(crate) const SAME_HEAD: Self = Codec {
        read: |field, text| optional("same", text, |text| number(field, text)),
        write: |elements| optional_text("same", elements),
    };
}

/// Checks that a field lies between two numbers.
fn within(field: &'static str, value: i64, low: i64, high: i64) -> Result<(), ConfigError> {
    let wanted = format!("must be {low} to {high}");
    if (low..=high).contains(&value) { Ok(()) } else { Err(ConfigError::value(field, value, wanted)) }
}

/// Registers of a math thread beside its scores, factors and sums: as `ptxas` 13 needs them so as not to spill.
const SPARE_REGISTERS: i64 = 26;

impl AttentionConfig {
    /// The type of o: that of q, or f16 where factors have 8 bits.
    pub fn results(&self) -> DType {
        self.out.unwrap_or(if self.is_fp8() { DType::F16 } else { self.dtype })
    }

    /// True if factors have 8 bits.
    pub(crate) fn is_fp8(&self) -> bool {
        self.dtype == DType::E4M3
    }

    /// True if a kernel before turns v into vt: wgmma takes factors of 8 bits along the sums alone, tcgen05 either way.
    fn turns_values(&self) -> bool {
        self.is_fp8() && self.form == Form::Wgmma
    }

    /// Checks that factors of 8 bits are in whole steps of their products.
    fn check_fp8(&self) -> Result<(), ConfigError> {
        let parts = [("d", self.d), ("bn", self.bn)];
        match parts.into_iter().find(|(_, value)| self.is_fp8() && value % 32 != 0) {
            Some((field, value)) => {
                Err(ConfigError::value(field, value, "must be a multiple of 32 with dtype = e4m3"))
            }
            None => Ok(()),
        }
    }

    /// Queries of a tile.
    pub fn rows(&self) -> i64 {
        match self.form {
            Form::Wgmma => 64 * self.warpgroups,
            Form::Tcgen05 => TILES.iter().product(),
        }
    }

    /// The number of the roles that share a tile of queries, and the rows of each, where they do.
    fn shared_out(&self) -> Option<[i64; 2]> {
        match self.form {
            Form::Wgmma => self.ping_pong.then_some([self.warpgroups, 64]),
            Form::Tcgen05 => Some(TILES),
        }
    }

    /// Registers of a thread that multiplies.
    fn math_registers(&self) -> i64 {
        if self.warpgroups > 2 { 160 } else { 240 }
    }

    /// True if a tile of o leaves through the shared memory of its queries.
    fn through_queries(&self) -> bool {
        !self.persistent && self.values() == self.d && !self.is_fp8()
    }

    /// Bytes of shared memory of a block, without mbarriers.
    fn shared_bytes(&self) -> i64 {
        let keys = self.stages * self.bn * (self.d + self.values());
        let results = if self.through_queries() { 0 } else { self.rows() * self.values() };
        let bytes = i64::from(self.dtype.bits() / 8);
        bytes * (self.q_stages * self.rows() * self.d + keys) + 2 * results
    }

    /// Checks the configuration.
    ///
    /// # Errors
    ///
    /// A [`ConfigError::Value`] that names the field and says what would be right.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_options(self.form.most_keys())?;
        says_nothing(self, self.form, |name| self.form.idle().contains(&name))?;
        within("sm_count", self.sm_count, 1, 1 << 20)?;
        if self.out.is_some_and(|out| !self.is_fp8() && out != self.dtype) {
            let wanted = format!("must be same with dtype = {}", self.dtype);
            return Err(ConfigError::value("out", self.results(), wanted));
        }
        match self.form {
            Form::Wgmma => self.check_wgmma(),
            Form::Tcgen05 => self.check_tcgen05(),
        }
    }

    /// Checks a configuration of the form of wgmma.
    fn check_wgmma(&self) -> Result<(), ConfigError> {
        within("warpgroups", self.warpgroups, 1, 3)?;
        within("stages", self.stages, 1, 8)?;
        within("q_stages", self.q_stages, 1, 4)?;
        if self.ping_pong && self.warpgroups < 2 {
            let wanted = "must be false with one warpgroup, which has nobody to take turns with";
            return Err(ConfigError::value("ping_pong", self.ping_pong, wanted));
        }
        if self.q_stages > 1 && !self.persistent {
            let wanted = "must be 1, or persistent = true: else a block has one tile of queries";
            return Err(ConfigError::value("q_stages", self.q_stages, wanted));
        }
        self.check_fp8()?;
        // Scores, factors of half as many bits, sums, a block of bias.
        let bias = if self.bias { self.bn / 4 } else { 0 };
        // Tiles one after another, turns, and masks.
        let more = match (self.persistent, self.ping_pong, self.mask) {
            (_, true, Mask::None) | (true, false, Mask::Window(_)) => 8,
            (_, true, _) => 16,
            (true, false, _) => 4,
            (false, false, _) => 0,
        };
        let weights = self.bn * i64::from(self.dtype.bits()) / 64;
        let registers = self.bn / 2 + weights + bias + self.values() / 2 + SPARE_REGISTERS + more;
        if registers > self.math_registers() {
            let wanted = format!(
                "needs {registers} registers of a thread, which has {}: choose fewer keys, or {}",
                self.math_registers(),
                if self.warpgroups > 2 { "two warpgroups" } else { "smaller heads" }
            );
            return Err(ConfigError::value("bn", self.bn, wanted));
        }
        self.check_shared(self.shared_bytes(), Arch::SM_90A)
    }

    /// Checks that so many bytes of shared memory, without mbarriers, are a block's on an architecture.
    fn check_shared(&self, bytes: i64, arch: Arch) -> Result<(), ConfigError> {
        let (bytes, have) = (bytes + 1024, i64::from(arch.limits().shared_bytes_per_block));
        if bytes > have {
            let wanted = format!(
                "needs {bytes} bytes of shared memory, and a block has {have}: choose fewer stages or keys"
            );
            return Err(ConfigError::value("stages", self.stages, wanted));
        }
        Ok(())
    }

    /// Checks what every form of attention asks of heads, masks and functions, and of blocks of at most so many keys.
    pub(crate) fn validate_options(&self, keys: i64) -> Result<(), ConfigError> {
        for (field, elements, most) in [("d", self.d, 256), ("dv", self.values(), 256), ("bn", self.bn, keys)]
        {
            if !(16..=most).contains(&elements) || elements % 16 != 0 {
                let wanted = format!("must be a multiple of 16 from 16 to {most}");
                return Err(ConfigError::value(field, elements, wanted));
            }
        }
        if let Mask::Window(keys) = self.mask
            && !(1..=1 << 30).contains(&keys)
        {
            return Err(ConfigError::value("mask", self.mask, "must have a window of 1 to 2^30 keys"));
        }
        if self.varlen && self.modes == Modes::Bhsd {
            return Err(ConfigError::value("modes", self.modes, "must be bshd with varlen = true"));
        }
        if self.varlen && self.bias {
            return Err(ConfigError::value("bias", self.bias, "must be false with varlen = true"));
        }
        self.functions().map(|_| ())
    }

    /// The functions for scores and masks, read.
    pub(crate) fn functions(&self) -> Result<(Option<Function>, Option<Function>), ConfigError> {
        let read = |field, expression: &Option<Expression>, truth| {
            expression.as_ref().map(|text| text.read(field, &self.scalars.0, truth)).transpose()
        };
        Ok((read("score", &self.score, false)?, read("attends", &self.attends, true)?))
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
        parse(&self.text()?).map_err(|errors| self.scalars.clash(errors))
    }

    /// The programs of a launch: [`program`](Self::program), and with 8-bit factors by wgmma before it the one that writes `vt[b, hk, dv, sk]` (`vt[hk, dv, 64 · (tk / 64 + b)]` of sequences of their own lengths), v with keys as
    /// neighbours, in groups of 32 in the order in which a thread has its weights.
    ///
    /// # Errors
    ///
    /// Those of [`validate`](Self::validate).
    pub fn programs(&self) -> Result<Vec<Program>, ConfigError> {
        let main = self.program()?;
        if self.turns_values() { Ok(vec![parse(&self.transposition())?, main]) } else { Ok(vec![main]) }
    }

    /// The reason why the configuration cannot run on this architecture, if it cannot.
    pub fn reject(&self, arch: Arch) -> Option<String> {
        lacking(arch, self.form.needs()).or_else(|| self.validate().err().map(|e| e.to_string()))
    }

    /// True if the mask lets the query at this place among the keys attend to key `j`.
    pub fn attends_to(&self, place: i64, j: i64) -> bool {
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
