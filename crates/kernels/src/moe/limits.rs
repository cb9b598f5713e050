//! Limits that the operators of a layer have in common, and how their programs begin.

use tilewright_machine::{DType, Feature, Features};

use crate::config::{Codec, ConfigError, dtype_of};

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

/// Checks a number of threads of a block.
pub(super) fn check_threads(threads: i64) -> Result<(), ConfigError> {
    if threads % 32 == 0 && (32..=1024).contains(&threads) {
        return Ok(());
    }
    Err(ConfigError::value("threads", threads, "must be a multiple of 32, at most 1024"))
}
