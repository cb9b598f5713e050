//! sm_100a and sm_103a: Blackwell, data centre (B200, B300). What Hopper has with `tcgen05` in the place of `wgmma` (docs/blackwell.md).
//! Versions of PTX: PTX ISA 9.1, notes on targets of `.target`.

use super::sm_90a;
use super::spec::ArchSpec;
use crate::features::{Feature, Features};

/// Features of both. sm_103a has no products of integers (`ptxas` 13.5 refuses `.kind::i8`).
const BASE: Features = sm_90a::BASE.and(&[
    Feature::Multicast,
    Feature::MxConversion,
    Feature::Tcgen05,
    Feature::LaunchControl,
    Feature::TensorGather,
]);

pub(super) static SM_100A: ArchSpec = ArchSpec {
    name: "sm_100a",
    ptx_version: "8.6",
    capability: (10, 0),
    specific: true,
    limits: sm_90a::LIMITS,
    features: BASE.and(&[Feature::IntegerSums]),
    timing: include_str!("../../tables/sm_100a.txt"),
};

pub(super) static SM_103A: ArchSpec = ArchSpec {
    name: "sm_103a",
    ptx_version: "8.8",
    capability: (10, 3),
    features: BASE,
    timing: include_str!("../../tables/sm_103a.txt"),
    ..SM_100A
};
