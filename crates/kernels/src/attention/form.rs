//! Limits and parameters that attention has of its own in each form.

pub use crate::warp_specialized::Form;

/// Keys of a block, at most.
pub(crate) const MOST_KEYS: i64 = 256;

/// The same by tcgen05, where a thread has a row of scores in registers.
const MOST_OF_A_THREAD: i64 = 128;

/// By tcgen05, tiles of queries of a block, and the queries of each: lanes of tensor memory.
pub(super) const TILES: [i64; 2] = [2, 128];

impl Form {
    /// Keys of a block, at most.
    pub(super) fn most_keys(self) -> i64 {
        match self {
            Form::Wgmma => MOST_KEYS,
            Form::Tcgen05 => MOST_OF_A_THREAD,
        }
    }

    /// The parameters that say nothing in this form.
    pub(super) fn idle(self) -> &'static [&'static str] {
        match self {
            Form::Wgmma => &["polynomial"],
            Form::Tcgen05 => &["warpgroups", "ping_pong", "q_stages", "persistent", "sm_count"],
        }
    }
}
