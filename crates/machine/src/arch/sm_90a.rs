//! sm_90a: Hopper (H100, H200), with the instructions that only it has.

use super::{ArchSpec, Limits, sm_80};
use crate::features::{Feature, Features};

pub(super) static SM_90A: ArchSpec = ArchSpec {
    name: "sm_90a",
    ptx_version: "8.0",
    capability: (9, 0),
    specific: true,
    limits: Limits { shared_bytes_per_block: 227 * 1024, ..sm_80::LIMITS },
    features: Features::of(&Feature::ALL),
    timing: include_str!("../../tables/sm_90a.txt"),
};
