//! The forms of a kernel: the instruction that multiplies, with the memory of its sums.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::Features;

use super::rules::{NEEDS, TENSOR_MEMORY_NEEDS};

/// The instruction that multiplies, with the memory of its sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// By wgmma, with sums in registers.
    #[default]
    Wgmma,
    /// By tcgen05, with sums in tensor memory.
    Tcgen05,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 2] = [Form::Wgmma, Form::Tcgen05];

    /// The features that it needs.
    pub(crate) fn needs(self) -> Features {
        match self {
            Form::Wgmma => NEEDS,
            Form::Tcgen05 => TENSOR_MEMORY_NEEDS,
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
