//! Mixtures of experts: the operators around the products by groups. `moe_routing` chooses the experts of each token, `moe_sort` puts the tokens in the
//! order of their experts, `moe_combine` adds the results of a token's experts; [`MoeLayer::plan`] has the launches of a whole layer, with the
//! products of [`gemm_hopper`](crate::gemm_hopper) between them.
//!
//! The programs are text with the choices written out; `tilewright kernels moe_sort -p …` prints one.

mod choose;
mod clear;
mod combine;
mod gate;
mod gather;
mod layer;
mod limits;
mod measured;
mod order;
mod problem;
mod quantise;
mod quantise_rows;
mod reference;
mod routing;
mod sort;

pub(crate) use choose::{COPYING_REGISTERS, Tiled, registers_beside};
pub use clear::MoeClearConfig;
pub use combine::MoeCombineConfig;
pub use gate::MoeGateConfig;
pub use gather::MoeGatherConfig;
pub use layer::{MoeChoice, MoeError, MoeLaunch, MoeLayer, MoePlan, MoeReduction, MoeTensor, MoeWeights};
pub use measured::MoeReason;
pub(crate) use problem::ExpertsProblem;
pub use quantise::MoeQuantiseConfig;
pub use quantise_rows::MoeQuantiseRowsConfig;
pub use reference::{Places, Routed, Sorted, combine, gate, quantise, quantise_rows, route, sort};
pub use routing::{MoeRoutingConfig, Scores};
pub use sort::MoeSortConfig;
