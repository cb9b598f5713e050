//! The forms of a product: which program computes it.

use std::fmt;
use std::str::FromStr;

use tilewright_machine::Features;
use tilewright_tile::Program;

use super::HopperGemmConfig;
use crate::config::{ConfigError, says_nothing};
use crate::epilogue::EpilogueOp;
use crate::warp_specialized::{Batch, NEEDS, SHARED_NEEDS, TENSOR_MEMORY_NEEDS, within};

/// The program of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Form {
    /// Tiles by TMA and wgmma.
    #[default]
    Wgmma,
    /// Tiles by TMA and tcgen05, with their sums in tensor memory.
    Tcgen05,
    /// Rows of one factor times up to 8 of the other, without matrix instructions.
    Gemv,
    /// A tile a block by `mma.sync` without a pipeline, for short sums.
    Outer,
}

impl Form {
    /// All of them.
    pub const ALL: [Form; 4] = [Form::Wgmma, Form::Tcgen05, Form::Gemv, Form::Outer];

    /// True of those that deal tiles out to a persistent grid, with everything that goes with these.
    pub fn tiles(self) -> bool {
        matches!(self, Form::Wgmma | Form::Tcgen05)
    }

    /// The features that it needs.
    pub(crate) fn needs(self) -> Features {
        match self {
            Form::Wgmma => NEEDS,
            Form::Tcgen05 => TENSOR_MEMORY_NEEDS,
            Form::Gemv | Form::Outer => SHARED_NEEDS,
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Form::Wgmma => "wgmma",
            Form::Tcgen05 => "tcgen05",
            Form::Gemv => "gemv",
            Form::Outer => "outer",
        })
    }
}

impl FromStr for Form {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Form::ALL.into_iter().find(|form| form.to_string() == text);
        found.ok_or("must be wgmma, tcgen05, gemv or outer")
    }
}

/// The parameters that every form has, beside those that say what is computed.
const OF_EVERY_FORM: [&str; 15] = [
    "dtype",
    "dtype_b",
    "out",
    "a",
    "b",
    "batch",
    "epilogue",
    "function",
    "scalars",
    "tensors",
    "form",
    "bm",
    "bn",
    "bk",
    "warpgroups",
];

impl HopperGemmConfig {
    /// Checks a configuration whose form is not one of [tiles](Form::tiles).
    pub(super) fn check_form(&self) -> Result<(), ConfigError> {
        if self.multiplies_integers() {
            return Err(ConfigError::value(
                "dtype",
                self.dtype,
                format!("form={} multiplies floats", self.form),
            ));
        }
        if self.dual.matrices() > 1 {
            let wanted =
                format!("multiplies by one matrix: must be wgmma or tcgen05 with dual={}", self.dual);
            return Err(ConfigError::value("form", self.form, wanted));
        }
        if self.batch != Batch::None {
            let wanted = format!("form={} is for one product at a time: must be none", self.form);
            return Err(ConfigError::value("batch", self.batch, wanted));
        }
        let own: &[&str] = if self.form == Form::Gemv {
            &["swap", "split", "dependent", "sm_count"]
        } else {
            &["dependent", "sm_count"]
        };
        says_nothing(self, self.form, |name| !OF_EVERY_FORM.contains(&name) && !own.contains(&name))?;
        within("split", self.split, [1, 64], 1)?;
        if self.form == Form::Gemv { self.check_gemv() } else { self.check_outer() }
    }

    /// The program of a form that is not one of tiles; `None`: it is.
    pub(super) fn formed(&self, custom: &[&dyn EpilogueOp]) -> Option<Result<Program, ConfigError>> {
        match self.form {
            Form::Wgmma | Form::Tcgen05 => None,
            Form::Gemv => Some(self.gemv(custom)),
            Form::Outer => Some(self.outer(custom)),
        }
    }
}
