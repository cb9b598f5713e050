//! sm_90a: Hopper (H100, H200), with the instructions that only it has.

use super::sm_80;
use super::spec::{ArchSpec, Limits};
use crate::features::{Feature, Features};

pub(super) static SM_90A: ArchSpec = ArchSpec {
    name: "sm_90a",
    ptx_version: "8.0",
    capability: (9, 0),
    specific: true,
    limits: LIMITS,
    features: BASE.and(&[Feature::Multicast, Feature::Wgmma]),
    timing: include_str!("../../tables/sm_90a.txt"),
};

pub(super) const LIMITS: Limits = Limits { shared_bytes_per_block: 227 * 1024, ..sm_80::LIMITS };

/// The features that every later architecture has too.
pub(super) const BASE: Features = Features::of(&[
    Feature::CpAsync,
    Feature::Fp8Conversion,
    Feature::Bf16x2Arithmetic,
    Feature::StMatrix,
    Feature::TransactionBarrier,
    Feature::Tma,
    Feature::Elect,
    Feature::Cluster,
    Feature::DependentLaunch,
    Feature::SetMaxRegisters,
    Feature::VectorReduction,
    Feature::TallF64Products,
    Feature::Fp8Products,
]);
