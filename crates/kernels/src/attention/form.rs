//! The forms of attention: which program computes it.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::Features;

use crate::warp_specialized::{NEEDS, TENSOR_MEMORY_NEEDS};

/// Keys of a block, at most.
pub(crate) const MOST_KEYS: i64 = 256;

/// The same by tcgen05, where a thread has a row of scores in registers.
const MOST_OF_A_THREAD: i64 = 128;

/// By tcgen05, tiles of queries of a block, and the queries of each: lanes of tensor memory.
pub(super) const TILES: [i64; 2] = [2, 128];

/// The program of attention.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// By wgmma, with scores, weights and sums in registers.
    #[default]
    Wgmma,
    /// By tcgen05, with scores, weights and sums in tensor memory.
    Tcgen05,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 2] = [Form::Wgmma, Form::Tcgen05];

    /// The features that it needs.
    pub(super) fn needs(self) -> Features {
        match self {
            Form::Wgmma => NEEDS,
            Form::Tcgen05 => TENSOR_MEMORY_NEEDS,
        }
    }

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

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Wgmma => "wgmma",
            Form::Tcgen05 => "tcgen05",
        })
    }
}

impl FromStr for Form {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Form::ALL.into_iter().find(|form| form.to_string() == text);
        found.ok_or("must be wgmma or tcgen05")
    }
}
