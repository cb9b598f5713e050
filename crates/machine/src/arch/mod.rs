//! Architectures: a set of features, limits, and a table of cycles each. One file an architecture; [`Arch::new`] makes one that is not
//! in the list. Chips of one design that differ in figures alone share a file.
//! Figures: CUDA C++ Programming Guide, table of technical specifications per compute capability.

mod sm_100a;
mod sm_120a;
mod sm_80;
mod sm_86;
mod sm_89;
mod sm_90a;
mod spec;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

pub use spec::{ArchSpec, Limits};

use crate::features::Features;

/// Threads of a warp.
pub const WARP: u32 = 32;

/// Threads of a warpgroup: four warps.
pub const WARPGROUP: u32 = 4 * WARP;

/// Most threads of a block.
pub const MAX_THREADS: u32 = 1024;

/// Threads that a multiprocessor holds, at most.
pub const MAX_RESIDENT_THREADS: u32 = 2048;

/// A GPU architecture that kernels are compiled for: a handle of its [`ArchSpec`].
#[derive(Clone, Copy)]
pub struct Arch(&'static ArchSpec);

impl Arch {
    /// Ampere, data centre (A100).
    pub const SM_80: Arch = Arch(&sm_80::SM_80);
    /// Ampere (A10, RTX 30).
    pub const SM_86: Arch = Arch(&sm_86::SM_86);
    /// Ampere on one chip with a processor (Jetson AGX Orin).
    pub const SM_87: Arch = Arch(&sm_86::SM_87);
    /// Ada (L40, RTX 40).
    pub const SM_89: Arch = Arch(&sm_89::SM_89);
    /// Hopper (H100, H200), with the instructions that only it has.
    pub const SM_90A: Arch = Arch(&sm_90a::SM_90A);
    /// Blackwell, data centre (B200). No kernel for it, nor for any later one, has run on hardware.
    pub const SM_100A: Arch = Arch(&sm_100a::SM_100A);
    /// Blackwell, data centre (B300).
    pub const SM_103A: Arch = Arch(&sm_100a::SM_103A);
    /// Blackwell (RTX 50, RTX PRO).
    pub const SM_120A: Arch = Arch(&sm_120a::SM_120A);
    /// Blackwell on one chip with a processor (GB10).
    pub const SM_121A: Arch = Arch(&sm_120a::SM_121A);

    /// The architectures that come with the compiler, oldest first: the order in which one is chosen for a program.
    pub const ALL: [Arch; 9] = [
        Arch::SM_80,
        Arch::SM_86,
        Arch::SM_87,
        Arch::SM_89,
        Arch::SM_90A,
        Arch::SM_100A,
        Arch::SM_103A,
        Arch::SM_120A,
        Arch::SM_121A,
    ];

    /// The architecture of a description whose table is known to be right.
    pub(crate) fn of(spec: &'static ArchSpec) -> Arch {
        Arch(spec)
    }

    /// The first of [`Arch::ALL`] that has these features.
    pub fn with(needs: Features) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.has(needs))
    }

    /// The name, as in PTX's `.target`.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// The description.
    pub const fn spec(self) -> &'static ArchSpec {
        self.0
    }

    /// The limits.
    pub const fn limits(self) -> &'static Limits {
        &self.0.limits
    }

    /// True if it has all of these features.
    pub fn has(self, needs: impl Into<Features>) -> bool {
        self.0.features.has(needs.into())
    }

    /// Those of these features that it lacks.
    pub fn lacks(self, needs: impl Into<Features>) -> Features {
        needs.into() - self.0.features
    }

    /// True if a GPU of this compute capability runs its code. PTX runs on the capability that it names and on every later one; that of a
    /// specific target runs on the one that it names.
    pub fn runs_on(self, capability: (u32, u32)) -> bool {
        if self.0.specific { capability == self.0.capability } else { capability >= self.0.capability }
    }
}

/// Architectures are the same if their descriptions are one.
impl PartialEq for Arch {
    fn eq(&self, other: &Arch) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Arch {}

impl Hash for Arch {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::ptr::hash(self.0, state);
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl fmt::Debug for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Arch({})", self.0.name)
    }
}

/// The text is not the name of a supported architecture.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("architecture `{0}` is not supported; supported are {names}", names = Arch::ALL.map(Arch::name).join(", "))]
pub struct UnknownArch(pub String);

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Arch::ALL.into_iter().find(|a| a.name() == s).ok_or_else(|| UnknownArch(s.to_string()))
    }
}

/// A memory space.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum Memory {
    /// Device memory, visible to every block.
    Global,
    /// On-chip memory of one thread block.
    Shared,
    /// The registers of the block's threads.
    Register,
    /// The memory of the tensor cores, of the block.
    Tensor,
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Memory::Global => "global",
            Memory::Shared => "shared",
            Memory::Register => "register",
            Memory::Tensor => "tensor",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Feature;

    #[test]
    fn names_parse_back() {
        for arch in Arch::ALL {
            assert_eq!(arch.to_string().parse(), Ok(arch));
            assert!(arch.has(arch.spec().features) && arch.lacks(arch.spec().features) == Features::NONE);
        }
        assert!("sm_75".parse::<Arch>().unwrap_err().to_string().contains("sm_80"));
    }

    #[test]
    fn the_first_with_a_feature_is_found() {
        assert_eq!(Arch::with(Features::NONE), Some(Arch::SM_80));
        assert_eq!(Arch::with(Feature::Fp8Conversion.into()), Some(Arch::SM_89));
        assert_eq!(Arch::with(Features::of(&[Feature::Fp8Conversion, Feature::Wgmma])), Some(Arch::SM_90A));
    }

    #[test]
    fn code_runs_on_its_capability_and_on_later_ones_if_it_is_not_specific() {
        assert!(Arch::SM_80.runs_on((8, 6)) && Arch::SM_89.runs_on((10, 0)) && !Arch::SM_89.runs_on((8, 6)));
        assert!(Arch::SM_90A.runs_on((9, 0)) && !Arch::SM_90A.runs_on((10, 0)));
        assert!(Arch::SM_100A.runs_on((10, 0)) && !Arch::SM_100A.runs_on((10, 3)));
    }

    #[test]
    fn no_architecture_has_all_features_of_another_age() {
        let hopper = Arch::SM_90A.spec().features;
        assert_eq!(Arch::SM_100A.lacks(hopper), Feature::Wgmma.into());
        assert_eq!(Arch::SM_120A.lacks(hopper), Features::of(&[Feature::Wgmma, Feature::Multicast]));
        let news = Features::of(&[
            Feature::MxConversion,
            Feature::BlockScaledProducts,
            Feature::LaunchControl,
            Feature::TensorGather,
        ]);
        assert_eq!(Arch::SM_90A.lacks(Arch::SM_120A.spec().features), news);
        assert_eq!(Arch::SM_100A.lacks(Arch::SM_120A.spec().features), Feature::BlockScaledProducts.into());
    }
}
