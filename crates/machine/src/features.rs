//! Features: the groups of instructions that some architectures have and others lack.
//!
//! An architecture is a set of features and a row *needs* some. There is no order among architectures: sm_100a has no `wgmma`, sm_90 has TMA
//! and no `wgmma`, and neither is a matter of age. What sm_80 has needs no feature, except for what is named here.

use std::fmt;
use std::ops::{BitOr, Sub};

/// A group of instructions that come together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Feature {
    /// `cp.async`: asynchronous copies by the threads themselves.
    CpAsync,
    /// `cvt` from `e4m3`, and to `e4m3` and `e5m2`.
    Fp8Conversion,
    /// `add`, `sub` and `mul` of `bf16x2` (`fma`, `min` and `max` are older).
    Bf16x2Arithmetic,
    /// `stmatrix`.
    StMatrix,
    /// mbarriers that count bytes (`expect_tx`) and suspend who waits (`try_wait`).
    TransactionBarrier,
    /// The tensor memory accelerator, with bulk copies and the fences of the asynchronous proxy.
    Tma,
    /// `elect.sync`.
    Elect,
    /// Clusters of blocks with distributed shared memory.
    Cluster,
    /// `griddepcontrol`: programmatic dependent launch.
    DependentLaunch,
    /// `setmaxnreg`: registers handed from one warpgroup to another.
    SetMaxRegisters,
    /// `wgmma`: asynchronous matrix products of a warpgroup.
    Wgmma,
    /// `red` of `bf16`, and of vectors in global memory.
    VectorReduction,
    /// `mma` of `f64` with 16 rows (those with 8 are older).
    TallF64Products,
    /// `mma` of 8-bit floats.
    Fp8Products,
    /// Tensor copies into the shared memory of several blocks of a cluster.
    Multicast,
    /// `cvt` from and to the floats of blocks: `e3m2`, `e2m3` and `e2m1`, and from `ue8m0` (OCP Microscaling Formats, MX).
    MxConversion,
    /// `mma` of floats of 6 bits (`.kind::f8f6f4`), and with scales of blocks.
    BlockScaledProducts,
    /// `tcgen05`: tensor memory, and asynchronous matrix products with their sums there.
    Tcgen05,
    /// `tcgen05.mma.kind::i8`: such products of integers.
    IntegerSums,
    /// `clusterlaunchcontrol`: a cluster that runs takes the place of one that has not begun.
    LaunchControl,
    /// Tensor copies that gather rows.
    TensorGather,
}

impl Feature {
    /// Every feature.
    pub const ALL: [Feature; 21] = [
        Feature::CpAsync,
        Feature::Fp8Conversion,
        Feature::Bf16x2Arithmetic,
        Feature::StMatrix,
        Feature::TransactionBarrier,
        Feature::Tma,
        Feature::Elect,
        Feature::Cluster,
        Feature::DependentLaunch,
        Feature::SetMaxRegisters,
        Feature::Wgmma,
        Feature::VectorReduction,
        Feature::TallF64Products,
        Feature::Fp8Products,
        Feature::Multicast,
        Feature::MxConversion,
        Feature::BlockScaledProducts,
        Feature::Tcgen05,
        Feature::IntegerSums,
        Feature::LaunchControl,
        Feature::TensorGather,
    ];

    /// The name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Feature::CpAsync => "cp.async",
            Feature::Fp8Conversion => "FP8 conversions",
            Feature::Bf16x2Arithmetic => "bf16x2 arithmetic",
            Feature::StMatrix => "stmatrix",
            Feature::TransactionBarrier => "transaction barriers",
            Feature::Tma => "TMA",
            Feature::Elect => "elect.sync",
            Feature::Cluster => "thread block clusters",
            Feature::DependentLaunch => "programmatic dependent launch",
            Feature::SetMaxRegisters => "setmaxnreg",
            Feature::Wgmma => "wgmma",
            Feature::VectorReduction => "vector reductions",
            Feature::TallF64Products => "f64 products of 16 rows",
            Feature::Fp8Products => "FP8 products of a warp",
            Feature::Multicast => "TMA multicast",
            Feature::MxConversion => "MX conversions",
            Feature::BlockScaledProducts => "block-scaled products of a warp",
            Feature::Tcgen05 => "tcgen05",
            Feature::IntegerSums => "tcgen05 of integers",
            Feature::LaunchControl => "cluster launch control",
            Feature::TensorGather => "TMA gather",
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of features: those of an architecture, or those that a row needs. `a | b` is the union, `a - b` what `b` lacks of `a`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(u32);

impl Features {
    /// No feature: what every architecture has.
    pub const NONE: Features = Features(0);

    /// The set of these.
    pub const fn of(features: &[Feature]) -> Features {
        let (mut bits, mut i) = (0, 0);
        while i < features.len() {
            bits |= 1 << features[i] as u32;
            i += 1;
        }
        Features(bits)
    }

    /// This set with further features.
    pub const fn and(self, features: &[Feature]) -> Features {
        Features(self.0 | Features::of(features).0)
    }

    /// True if all of `needs` are in this set.
    pub const fn has(self, needs: Features) -> bool {
        needs.0 & !self.0 == 0
    }

    /// The features of the set, in the order of [`Feature::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.into_iter().filter(move |feature| self.has(Features::from(*feature)))
    }
}

impl From<Feature> for Features {
    fn from(feature: Feature) -> Features {
        Features::of(&[feature])
    }
}

impl BitOr for Features {
    type Output = Features;

    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl Sub for Features {
    type Output = Features;

    fn sub(self, other: Features) -> Features {
        Features(self.0 & !other.0)
    }
}

/// The names with commas between, e.g. `TMA, wgmma`.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Feature::name).collect();
        f.write_str(&names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_unions_of_their_features() {
        let both = Features::of(&[Feature::Tma, Feature::Wgmma]);
        assert_eq!(both, Features::from(Feature::Wgmma) | Feature::Tma.into());
        assert_eq!(both.to_string(), "TMA, wgmma");
        assert_eq!((both - Feature::Tma.into()).iter().collect::<Vec<_>>(), [Feature::Wgmma]);
        assert!(
            both.has(Feature::Tma.into()) && both.has(Features::NONE) && !both.has(Feature::Cluster.into())
        );
        let every = Features::of(&Feature::ALL);
        assert_eq!(every.iter().collect::<Vec<_>>(), Feature::ALL);
    }
}
