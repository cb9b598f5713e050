//! The list of operators, by name.

use tilewright_machine::{Arch, Feature, Features};
use tilewright_tile::Program;

use crate::attention::{AttentionConfig, AttentionSm80Config};
use crate::attention_backward::AttentionBackwardConfig;
use crate::attention_decode::AttentionDecodeConfig;
use crate::config::{Config, ConfigError, Parameter, configured, list, parameter_list};
use crate::contraction::{self, ContractionConfig};
use crate::conv_hopper::HopperConvConfig;
use crate::gemm::GemmConfig;
use crate::gemm_fp8_blocks::Fp8BlocksConfig;
use crate::gemm_hopper::HopperGemmConfig;
use crate::gemm_weights::{RepackConfig, WeightsConfig};
use crate::moe::{
    MoeClearConfig, MoeCombineConfig, MoeGateConfig, MoeGatherConfig, MoeQuantiseConfig,
    MoeQuantiseRowsConfig, MoeRoutingConfig, MoeSortConfig,
};
use crate::text::LISTED;
use crate::tuning::{Tuning, tuning};
use crate::w4a16::W4A16Config;

/// An operator, as tools see it.
#[derive(Clone, Copy, Debug)]
pub struct Operator {
    /// The name.
    pub name: &'static str,
    /// The formula that it computes.
    pub about: &'static str,
    /// The features that it needs.
    pub needs: Features,
    /// Its parameters.
    pub parameters: fn() -> Vec<Parameter>,
    /// The programs for values of parameters by name; those not named have their defaults. Where there are several they are launched
    /// in this order, and tensors of the same name are the same.
    pub programs: MakePrograms,
    /// Its tuning space; `None` if it is not tuned.
    pub tuning: Option<Tuning>,
}

impl Operator {
    /// The first architecture of [`Arch::ALL`] that it compiles for.
    pub fn least_architecture(&self) -> Arch {
        Arch::with(self.needs)
            .expect("every operator compiles for an architecture of the list, as a test says")
    }
}

/// Makes an operator's programs from (name, value) pairs.
pub type MakePrograms = fn(&[(&str, &str)]) -> Result<Vec<Program>, ConfigError>;

/// All operators.
pub const OPERATORS: &[Operator] = &{
    let mut all = [PRODUCTS[0]; PRODUCTS.len() + LISTED.len()];
    let mut i = 0;
    while i < all.len() {
        all[i] = if i < PRODUCTS.len() { PRODUCTS[i] } else { LISTED[i - PRODUCTS.len()] };
        i += 1;
    }
    all
};

/// Matrix products and attention, whose programs are built in Rust.
const PRODUCTS: &[Operator] = &[
    Operator {
        name: "gemm",
        about: "c[m, n] = a[m, k] · b[n, k]ᵀ",
        needs: Features::NONE,
        parameters: parameter_list::<GemmConfig>,
        programs: programs::<GemmConfig>,
        tuning: Some(tuning::<GemmConfig>()),
    },
    Operator {
        name: "gemm_hopper",
        about: "c[m, n] = a[m, k] · b[n, k]ᵀ by TMA loads, wgmma or tcgen05 and persistent scheduling",
        needs: crate::warp_specialized::SHARED_NEEDS,
        parameters: parameter_list::<HopperGemmConfig>,
        programs: programs::<HopperGemmConfig>,
        tuning: Some(tuning::<HopperGemmConfig>()),
    },
    Operator {
        name: "gemm_fp8_blocks",
        about: "c[m, n] = a[m, k] · b[n, k]ᵀ in 8-bit floats with scales sa and sb for blocks of 128",
        needs: crate::warp_specialized::NEEDS,
        parameters: parameter_list::<Fp8BlocksConfig>,
        programs: programs::<Fp8BlocksConfig>,
        tuning: Some(tuning::<Fp8BlocksConfig>()),
    },
    Operator {
        name: "w4a16",
        about: "c[m, n] = a[m, k] · (s ∘ w)[n, k]ᵀ with 4-bit weights w and a scale s a group",
        needs: Features::NONE,
        parameters: parameter_list::<W4A16Config>,
        programs: programs::<W4A16Config>,
        tuning: Some(tuning::<W4A16Config>()),
    },
    Operator {
        name: "gemm_weights",
        about: "c[m, n] = a[m, k] · (s ∘ (w − z))[n, k]ᵀ with weights w of 1 to 8 bits, cast for wgmma, mma or tcgen05, and scales s of groups",
        needs: crate::warp_specialized::SHARED_NEEDS,
        parameters: parameter_list::<WeightsConfig>,
        programs: programs::<WeightsConfig>,
        tuning: Some(tuning::<WeightsConfig>()),
    },
    Operator {
        name: "repack_weights",
        about: "w, the weights x[n, k] in the order in which gemm_weights loads them",
        needs: Features::NONE,
        parameters: parameter_list::<RepackConfig>,
        programs: programs::<RepackConfig>,
        tuning: None,
    },
    Operator {
        name: "contraction",
        about: "c = Σ a · b over indices of two tensors, as einsum writes it, with nested modes in place of m, n and k",
        needs: crate::warp_specialized::SHARED_NEEDS,
        parameters: parameter_list::<ContractionConfig>,
        programs: programs::<ContractionConfig>,
        tuning: Some(contraction::TUNING),
    },
    Operator {
        name: "conv_hopper",
        about: "y[nb, p, q, kout] = x[nb, h, w, c] ∗ f[kout, r, s, c], its data gradient or its weight gradient, by TMA loads and wgmma or tcgen05",
        needs: crate::warp_specialized::SHARED_NEEDS,
        parameters: parameter_list::<HopperConvConfig>,
        programs: programs::<HopperConvConfig>,
        tuning: Some(tuning::<HopperConvConfig>()),
    },
    Operator {
        name: "attention",
        about: "o[b, sq, hq, dv] = softmax(scale · q kᵀ) v by heads by TMA loads and wgmma or tcgen05, with masks, shared heads of k and v, a cap of scores",
        needs: crate::warp_specialized::SHARED_NEEDS,
        parameters: parameter_list::<AttentionConfig>,
        programs: programs::<AttentionConfig>,
        tuning: Some(tuning::<AttentionConfig>()),
    },
    Operator {
        name: "attention_decode",
        about: "o[b, sq, hq, dv] = softmax(scale · q kᵀ) v of few queries over a cache of keys and values, split into parts, perhaps in pages",
        needs: Features::NONE,
        parameters: parameter_list::<AttentionDecodeConfig>,
        programs: programs::<AttentionDecodeConfig>,
        tuning: Some(tuning::<AttentionDecodeConfig>()),
    },
    Operator {
        name: "attention_backward",
        about: "dq, dk and dv of attention from q, k, v, o, do and the log-sum-exp",
        needs: crate::warp_specialized::NEEDS,
        parameters: parameter_list::<AttentionBackwardConfig>,
        programs: programs::<AttentionBackwardConfig>,
        tuning: Some(tuning::<AttentionBackwardConfig>()),
    },
    Operator {
        name: "attention_sm80",
        about: "o[b, sq, hq, dv] = softmax(scale · q kᵀ) v by heads, by mma.sync and cp.async, for every architecture",
        needs: Features::NONE,
        parameters: parameter_list::<AttentionSm80Config>,
        programs: programs::<AttentionSm80Config>,
        tuning: Some(tuning::<AttentionSm80Config>()),
    },
    Operator {
        name: "moe_routing",
        about: "ids[tokens, k] and weights[tokens, k]: the experts of each token with the largest scores of x[tokens, experts]",
        needs: Features::NONE,
        parameters: parameter_list::<MoeRoutingConfig>,
        programs: programs::<MoeRoutingConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_sort",
        about: "the tokens in the order of their experts ids[tokens, k], and the expert of each tile of rows",
        needs: Features::NONE,
        parameters: parameter_list::<MoeSortConfig>,
        programs: programs::<MoeSortConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_quantise",
        about: "y[m, n] = v / s in e4m3, with s[n/128, m] = max(|v|) / 448 of 128 columns of a row of v = x[m, n], or silu(x[m, : n]) · x[m, n :]",
        needs: Features::of(&[Feature::Fp8Conversion]),
        parameters: parameter_list::<MoeQuantiseConfig>,
        programs: programs::<MoeQuantiseConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_quantise_rows",
        about: "y[m, n] = v / s in e4m3 or i8, with s[m] = max(|v|) / 448 or 127 of a row of v = x[m, n], x[rows[m], n], or silu(x[m, : n]) · x[m, n :]",
        needs: Features::of(&[Feature::Fp8Conversion]),
        parameters: parameter_list::<MoeQuantiseRowsConfig>,
        programs: programs::<MoeQuantiseRowsConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_gate",
        about: "y[m, n] = silu(x[m, : n]) · x[m, n :]",
        needs: Features::NONE,
        parameters: parameter_list::<MoeGateConfig>,
        programs: programs::<MoeGateConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_gather",
        about: "y[m, n] = x[rows[m], n]",
        needs: Features::NONE,
        parameters: parameter_list::<MoeGatherConfig>,
        programs: programs::<MoeGatherConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_clear",
        about: "y[m, n] = 0",
        needs: Features::NONE,
        parameters: parameter_list::<MoeClearConfig>,
        programs: programs::<MoeClearConfig>,
        tuning: None,
    },
    Operator {
        name: "moe_combine",
        about: "y[tokens, n] = Σ weights[tokens, k] · c[places[tokens, k], n] over the experts of a token",
        needs: Features::NONE,
        parameters: parameter_list::<MoeCombineConfig>,
        programs: programs::<MoeCombineConfig>,
        tuning: None,
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

fn programs<C: Config>(given: &[(&str, &str)]) -> Result<Vec<Program>, ConfigError> {
    configured::<C>(given)?.build()
}
