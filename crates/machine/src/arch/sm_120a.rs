//! sm_120a and sm_121a: Blackwell (RTX 50, RTX PRO), and on one chip with a processor (GB10). TMA, transaction barriers, clusters and
//! `setmaxnreg` as Hopper has them, products of a warp alone, block-scaled ones too, and Ada's shared memory. `ptxas` takes multicast and warns of it.
//! Versions of PTX: PTX ISA 9.1, notes on targets of `.target`.

use super::sm_90a;
use super::spec::{ArchSpec, Limits};
use crate::features::Feature;

pub(super) static SM_120A: ArchSpec = ArchSpec {
    name: "sm_120a",
    ptx_version: "8.7",
    capability: (12, 0),
    specific: true,
    limits: Limits {
        shared_bytes_per_block: 99 * 1024,
        threads_per_multiprocessor: 1536,
        blocks_per_multiprocessor: 24,
        ..sm_90a::LIMITS
    },
    features: sm_90a::BASE.and(&[
        Feature::MxConversion,
        Feature::BlockScaledProducts,
        Feature::LaunchControl,
        Feature::TensorGather,
    ]),
    timing: include_str!("../../tables/sm_120a.txt"),
};

pub(super) static SM_121A: ArchSpec = ArchSpec {
    name: "sm_121a",
    ptx_version: "8.8",
    capability: (12, 1),
    timing: include_str!("../../tables/sm_121a.txt"),
    ..SM_120A
};
