//! sm_89: Ada (L40, RTX 40).

use super::sm_80;
use super::spec::{ArchSpec, Limits};
use crate::features::Feature;

pub(super) static SM_89: ArchSpec = ArchSpec {
    name: "sm_89",
    ptx_version: "8.1",
    capability: (8, 9),
    specific: false,
    limits: Limits {
        shared_bytes_per_block: 99 * 1024,
        threads_per_multiprocessor: 1536,
        blocks_per_multiprocessor: 24,
        ..sm_80::LIMITS
    },
    features: sm_80::FEATURES.and(&[Feature::Fp8Conversion, Feature::Fp8Products]),
    timing: include_str!("../../tables/sm_89.txt"),
};
