//! Mixtures of experts: the operators around the products by groups. `moe_routing` chooses the experts of each token, `moe_sort` puts the tokens in the
//! order of their experts, `moe_combine` adds the results of a token's experts; [`MoeLayer::plan`] has the launches of a whole layer, with the
//! products of [`gemm_hopper`](crate::gemm_hopper) between them.
//!
//! The programs are text with the choices written out; `tilewright kernels moe_sort -p …` prints one.

mod choose;
mod combine;
mod layer;
mod quantise;
mod reference;
mod routing;
mod sort;

pub use combine::MoeCombineConfig;
pub use layer::{MoeError, MoeLaunch, MoeLayer, MoePlan, MoeTensor, MoeWeights};
pub use quantise::MoeQuantiseConfig;
pub use reference::{Places, Routed, Sorted, combine, quantise, route, sort};
pub use routing::{MoeRoutingConfig, Scores};
pub use sort::MoeSortConfig;

use crate::config::ConfigError;
use tilewright_machine::DType;

/// Experts of a layer at most.
const MOST_EXPERTS: i64 = 256;

/// Experts of a token at most.
const MOST_TAKEN: i64 = 8;

/// The types of activations and of logits.
const FLOATS: [DType; 3] = [DType::F16, DType::BF16, DType::F32];

/// Statements ahead of all others, where a program may be launched before the one ahead of it has ended.
fn dependencies(dependent: bool) -> &'static str {
    if dependent { "    wait_dependencies()\n    launch_dependents()\n" } else { "" }
}

/// Checks a number of threads of a block.
fn check_threads(threads: i64) -> Result<(), ConfigError> {
    if threads % 32 == 0 && (32..=1024).contains(&threads) {
        return Ok(());
    }
    Err(ConfigError::value("threads", threads, "must be a multiple of 32, at most 1024"))
}
