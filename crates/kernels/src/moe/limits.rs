//! Limits that the operators of a layer have in common, and how their programs begin.

use tilewright_machine::DType;

use crate::config::ConfigError;

/// Experts of a layer at most.
pub(super) const MOST_EXPERTS: i64 = 256;

/// Experts of a token at most.
pub(super) const MOST_TAKEN: i64 = 8;

/// The types of activations and of logits.
pub(super) const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

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
