//! What the configurations of all operators share: their errors, parameters by name, and the rules of tiles.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::Arch;
use tilewright_tile::{Diagnostics, Program};

use crate::gemm::GemmConfig;
use crate::gemm_fp8_blocks::Fp8BlocksConfig;
use crate::gemm_hopper::HopperGemmConfig;
use crate::tuning::{Tuning, tuning};
use crate::w4a16::W4A16Config;

/// Why there is no program for a configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A field has a value that the operator cannot have.
    #[error("`{field}` = {value}: {wanted}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What would be right.
        wanted: String,
    },
    /// There is no operator of this name.
    #[error("there is no operator `{name}`; there are {known}")]
    UnknownOperator {
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The operator has no parameter of this name.
    #[error("`{operator}` has no parameter `{name}`; its parameters are {known}")]
    UnknownParameter {
        /// The operator.
        operator: &'static str,
        /// The name.
        name: String,
        /// Those there are.
        known: String,
    },
    /// The program could not be built.
    #[error(transparent)]
    Program(#[from] Diagnostics),
}

impl ConfigError {
    pub(crate) fn value(field: &'static str, value: impl fmt::Display, wanted: impl Into<String>) -> Self {
        ConfigError::Value { field, value: value.to_string(), wanted: wanted.into() }
    }
}

/// How a tile goes between global memory and registers.
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

impl Path {
    pub(crate) fn parse(field: &'static str, value: &str) -> Result<Self, ConfigError> {
        match value {
            "staged" => Ok(Path::Staged),
            "direct" => Ok(Path::Direct),
            _ => Err(ConfigError::value(field, value, "must be staged or direct")),
        }
    }
}

/// A parameter of an operator, by name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameter {
    /// The name.
    pub name: &'static str,
    /// The value where none is given.
    pub default: String,
    /// What it is.
    pub about: &'static str,
}

/// An operator, as tools see it.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// The name.
    pub name: &'static str,
    /// What it computes.
    pub about: &'static str,
    /// The oldest architecture that it compiles for.
    pub since: Arch,
    /// Its parameters.
    pub parameters: fn() -> Vec<Parameter>,
    /// The programs for values of parameters by name; those not named have their defaults. Where there are several they are launched
    /// in this order, and tensors of the same name are the same.
    pub programs: MakePrograms,
    /// What a tuner may try; `None` if it is not tuned.
    pub tuning: Option<Tuning>,
}

/// Makes an operator's programs from (name, value) pairs.
pub type MakePrograms = fn(&[(&str, &str)]) -> Result<Vec<Program>, ConfigError>;

/// Every operator.
pub const OPERATORS: &[Operator] = &[
    Operator {
        name: "gemm",
        about: "c[m, n] = a[m, k] · b[n, k]ᵀ",
        since: Arch::Sm80,
        parameters: parameters::<GemmConfig>,
        programs: programs::<GemmConfig>,
        tuning: Some(tuning::<GemmConfig>()),
    },
    Operator {
        name: "gemm_hopper",
        about: "c[m, n] = a[m, k] · b[n, k]ᵀ by tensor copies, products of warpgroups and blocks that stay",
        since: Arch::Sm90a,
        parameters: parameters::<HopperGemmConfig>,
        programs: programs::<HopperGemmConfig>,
        tuning: Some(tuning::<HopperGemmConfig>()),
    },
    Operator {
        name: "gemm_fp8_blocks",
        about: "c[m, n] = a[m, k] · b[n, k]ᵀ in 8-bit floats with scales sa and sb for blocks of 128",
        since: Arch::Sm90a,
        parameters: parameters::<Fp8BlocksConfig>,
        programs: programs::<Fp8BlocksConfig>,
        tuning: Some(tuning::<Fp8BlocksConfig>()),
    },
    Operator {
        name: "w4a16",
        about: "c[m, n] = a[m, k] · (s ∘ w)[n, k]ᵀ with 4-bit weights w and a scale s a group",
        since: Arch::Sm80,
        parameters: parameters::<W4A16Config>,
        programs: programs::<W4A16Config>,
        tuning: Some(tuning::<W4A16Config>()),
    },
];

/// The operator of this name.
///
/// # Errors
///
/// A [`ConfigError::UnknownOperator`] that lists those there are.
pub fn operator(name: &str) -> Result<&'static Operator, ConfigError> {
    OPERATORS.iter().find(|o| o.name == name).ok_or_else(|| ConfigError::UnknownOperator {
        name: name.to_string(),
        known: list(OPERATORS.iter().map(|o| o.name)),
    })
}

fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

/// A configuration whose fields have names.
pub(crate) trait Config: Default {
    /// The operator's name.
    const NAME: &'static str;
    /// Each field with what it is.
    const FIELDS: &'static [(&'static str, &'static str)];

    /// The field as text; empty for one that there is not.
    fn get(&self, field: &str) -> String;
    /// Sets a field; the name is one of [`Config::FIELDS`].
    fn set(&mut self, field: &'static str, value: &str) -> Result<(), ConfigError>;
    /// The programs, to be launched in this order.
    fn build(&self) -> Result<Vec<Program>, ConfigError>;
}

fn parameters<C: Config>() -> Vec<Parameter> {
    let default = C::default();
    C::FIELDS.iter().map(|&(name, about)| Parameter { name, default: default.get(name), about }).collect()
}

fn programs<C: Config>(given: &[(&str, &str)]) -> Result<Vec<Program>, ConfigError> {
    configured::<C>(given)?.build()
}

/// The defaults, but for what is given.
pub(crate) fn configured<C: Config>(given: &[(&str, &str)]) -> Result<C, ConfigError> {
    let mut config = C::default();
    apply(&mut config, given)?;
    Ok(config)
}

/// Sets what is given.
pub(crate) fn apply<C: Config>(config: &mut C, given: &[(&str, &str)]) -> Result<(), ConfigError> {
    for (name, value) in given {
        let Some((field, _)) = C::FIELDS.iter().find(|(field, _)| field == name) else {
            return Err(ConfigError::UnknownParameter {
                operator: C::NAME,
                name: name.to_string(),
                known: list(C::FIELDS.iter().map(|(field, _)| *field)),
            });
        };
        config.set(field, value)?;
    }
    Ok(())
}

/// A number of the command line.
pub(crate) fn number(field: &'static str, value: &str) -> Result<i64, ConfigError> {
    value.parse().map_err(|_| ConfigError::value(field, value, "must be an integer"))
}

/// A value that knows its own text form.
pub(crate) fn parsed<T: FromStr>(field: &'static str, value: &str) -> Result<T, ConfigError>
where
    T::Err: Into<String>,
{
    value.parse().map_err(|wanted: T::Err| ConfigError::value(field, value, wanted))
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
    /// Bits of an element of the second factor, as it lies in memory.
    pub b_bits: i64,
    pub epilogue: Path,
}

/// Registers that addresses, counters and the compiler's temporaries want besides the fragments.
const SPARE_REGISTERS: i64 = 40;

/// Tiles longer than this in any direction are refused.
const MAX_TILE: i64 = 1024;

impl Tiles {
    /// What is wrong whatever the architecture.
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
        multiple("threads", self.threads, 32)?;
        multiple("bm", self.bm, 16)?; // rows of mma.m16n8k16
        multiple("bn", self.bn, 8)?; //  its columns
        if ![16, 32, 64].contains(&self.kk) {
            return Err(ConfigError::value("kk", self.kk, "must be 16, 32 or 64"));
        }
        multiple("bk", self.bk, self.kk)?;
        if !(1..=16).contains(&self.stages) {
            return Err(ConfigError::value("stages", self.stages, "must be from 1 to 16"));
        }
        if self.grids().next().is_none() {
            let wanted = format!(
                "{} warps must divide the {} × {} tile into parts of 16 × 8: use fewer threads or a larger tile",
                self.threads / 32,
                self.bm,
                self.bn
            );
            return Err(ConfigError::value("threads", self.threads, wanted));
        }
        let (need, have) =
            (self.registers(), i64::from(Arch::Sm80.limits().registers_of_a_thread(self.threads as u32)));
        if need + SPARE_REGISTERS > have {
            let wanted = format!(
                "fragments take {need} registers of a thread, which has {have} and needs about {SPARE_REGISTERS} more \
                 for addresses: use a smaller tile, a smaller kk or more threads"
            );
            return Err(ConfigError::value("bm", self.bm, wanted));
        }
        Ok(())
    }

    /// What is wrong on this architecture.
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

    /// How warps can divide the tile: parts of whole instructions.
    fn grids(&self) -> impl Iterator<Item = (i64, i64)> + use<> {
        let Tiles { bm, bn, threads, .. } = *self;
        let warps = threads / 32;
        let ways = (1..=warps).filter(move |rows| warps % rows == 0).map(move |rows| (rows, warps / rows));
        ways.filter(move |(rows, columns)| bm % (16 * rows) == 0 && bn % (8 * columns) == 0)
    }

    /// 32-bit registers of a thread for fragments, where the warps divide the tile best.
    fn registers(&self) -> i64 {
        let buffers = (self.bk / self.kk).min(2);
        let sums = self.bm * self.bn / self.threads;
        let factors = self.grids().map(|(rows, columns)| {
            let a = self.bm / rows * self.kk / 64;
            let b = self.bn / columns * self.kk / 64;
            // Narrow weights: the packed buffers, the weights as f16, and their scales.
            let b = if self.b_bits < 16 { buffers * b * self.b_bits / 16 + 2 * b } else { buffers * b };
            buffers * a + b
        });
        sums + factors.min().unwrap_or(0)
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> i64 {
        let stage = self.bk * (16 * self.bm + self.b_bits * self.bn) / 8;
        let results = if self.epilogue == Path::Staged { 2 * self.bm * self.bn } else { 0 };
        (self.stages * stage).max(results)
    }

    /// Whether the tile is not out of proportion to the problem.
    pub fn suits(&self, m: i64, n: i64, k: i64) -> bool {
        (self.bm <= 16 || self.bm < 2 * m)
            && (self.bn <= 32 || self.bn < 2 * n)
            && (self.bk <= 32 || self.bk < 2 * k)
    }
}
