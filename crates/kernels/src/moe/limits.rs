//! Limits that the operators of a layer have in common, and how their programs begin.

use tilewright_machine::{DType, Feature, Features};

use crate::config::{Codec, ConfigError, dtype_of};
use crate::warp_specialized::within;

/// Experts of a layer at most.
pub(super) const MOST_EXPERTS: i64 = 256;

/// Experts of a token at most.
pub(super) const MOST_TAKEN: i64 = 8;

/// The types of activations and of logits.
const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

impl Codec<DType> {
    /// A type of activations or of logits.
    pub(super) const LAYERS: Self =
        Codec { read: |field, text| dtype_of(&FLOATS, field, text), write: DType::to_string };
}

/// Checks a type of activations or of logits.
pub(super) fn check_dtype(dtype: DType) -> Result<(), ConfigError> {
    if FLOATS.contains(&dtype) {
        return Ok(());
    }
    Err(ConfigError::value("dtype", dtype, "must be f16, bf16 or f32"))
}

/// The features that a dependent launch needs, where there is one.
pub(super) fn launch_needs(dependent: bool) -> Features {
    if dependent { Feature::DependentLaunch.into() } else { Features::NONE }
}

/// Statements ahead of all others, where a program may be launched before the one ahead of it has ended.
pub(super) fn dependencies(dependent: bool) -> &'static str {
    if dependent { "    wait_dependencies()\n    launch_dependents()\n" } else { "" }
}

/// Checks a block's tile, of whose numbers each thread holds at most so many.
pub(super) fn check_tile(bm: i64, bn: i64, threads: i64, most: i64) -> Result<(), ConfigError> {
    within("bm", bm, [1, 128], 1)?;
    within("bn", bn, [32, 8192], 32)?;
    if bm.count_ones() == 1 && bn.count_ones() == 1 && bm * bn / threads <= most {
        return Ok(());
    }
    let wanted = format!(
        "bm and bn must be powers of two, and {threads} threads hold at most {most} numbers each of bm · bn"
    );
    Err(ConfigError::value("bn", bn, wanted))
}

/// Checks a number of threads of a block.
pub(super) fn check_threads(threads: i64) -> Result<(), ConfigError> {
    if threads % 32 == 0 && (32..=1024).contains(&threads) {
        return Ok(());
    }
    Err(ConfigError::value("threads", threads, "must be a multiple of 32, at most 1024"))
}

/// The methods of an operator that has one program and writes it as a text, beside its own `validate`, `needs` and `text`.
macro_rules! one_program {
    ($(#[$meta:meta])+ $Config:ident) => {
        impl $Config {
            $(#[$meta])+
            ///
            /// # Errors
            ///
            /// Those of [`validate`](Self::validate).
            pub fn program(&self) -> Result<tilewright_tile::Program, $crate::config::ConfigError> {
                self.validate()?;
                Ok(tilewright_tile::parse(&self.text())?)
            }

            fn programs(&self) -> Result<Vec<tilewright_tile::Program>, $crate::config::ConfigError> {
                Ok(vec![self.program()?])
            }

            /// The reason why the configuration cannot run on this architecture, if it cannot.
            pub fn reject(&self, arch: tilewright_machine::Arch) -> Option<String> {
                $crate::config::refusal(arch, self.needs(), self.validate())
            }
        }
    };
}
pub(super) use one_program;
