//! sm_80: Ampere, data centre (A100).

use super::spec::{ArchSpec, Limits};
use crate::features::{Feature, Features};

pub(super) static SM_80: ArchSpec = ArchSpec {
    name: "sm_80",
    ptx_version: "7.4",
    capability: (8, 0),
    specific: false,
    limits: LIMITS,
    features: FEATURES,
    timing: include_str!("../../tables/sm_80.txt"),
};

pub(super) const LIMITS: Limits = Limits {
    shared_bytes_per_block: 163 * 1024,
    threads_per_block: 1024,
    registers_per_thread: 255,
    registers_per_multiprocessor: 65536,
    threads_per_multiprocessor: 2048,
    blocks_per_multiprocessor: 32,
};

pub(super) const FEATURES: Features = Features::of(&[Feature::CpAsync]);
