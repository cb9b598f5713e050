//! sm_86 and sm_87: Ampere without the data centre's shared memory and threads (A10, RTX 30), and on one chip with a processor (Orin). They have
//! the instructions of sm_80.

use super::sm_80;
use super::spec::{ArchSpec, Limits};

/// Limits of both, with the shared memory of sm_87.
const LIMITS: Limits =
    Limits { threads_per_multiprocessor: 1536, blocks_per_multiprocessor: 16, ..sm_80::LIMITS };

pub(super) static SM_86: ArchSpec = ArchSpec {
    name: "sm_86",
    ptx_version: "7.4",
    capability: (8, 6),
    specific: false,
    limits: Limits { shared_bytes_per_block: 99 * 1024, ..LIMITS },
    features: sm_80::FEATURES,
    timing: include_str!("../../tables/sm_86.txt"),
};

pub(super) static SM_87: ArchSpec = ArchSpec {
    name: "sm_87",
    capability: (8, 7),
    limits: LIMITS,
    timing: include_str!("../../tables/sm_87.txt"),
    ..SM_86
};
