//! Early begins: a call permits them ([`Call::dependent`](crate::Call::dependent)), and the class of sizes decides whether its kernels are such as begin early.

use std::fmt;
use std::ops::RangeInclusive;

use crate::class::Class;
use crate::kept::Kept;

/// The parameter of operators whose kernels wait by themselves for the launch ahead.
const WAITS: &str = "dependent";

/// Sizes for which launches that begin early were slower on a GPU, as measured.
#[derive(Debug)]
struct Slower {
    /// The first words of the GPU's name.
    device: &'static str,
    operator: &'static str,
    sizes: &'static [(&'static str, RangeInclusive<i64>)],
    measured: &'static str,
}

/// Those of docs/my-data-my-stream.md that are slower behind each other, with weights of their own by more than 2 %, and behind a norm.
const SLOWER: &[Slower] = &[
    Slower {
        device: "NVIDIA H100",
        operator: "gemm_hopper",
        sizes: &[("m", 193..=256), ("n", 1025..=2048), ("k", 1025..=2048)],
        measured: "256 × 2048 × 2048 took 6.40 µs without and 6.86 with an early begin",
    },
    Slower {
        device: "NVIDIA H200",
        operator: "gemm_hopper",
        sizes: &[("m", 97..=128), ("n", 2049..=4096), ("k", 2049..=4096)],
        measured: "128 × 4096 × 4096 took 12.30 µs without and 12.87 with an early begin",
    },
];

/// The begin of the launches of a choice.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Begin {
    /// Behind the end of the launch ahead: the call permits nothing else.
    Behind,
    /// Early: the call permits it, and the kernels wait by themselves.
    Early,
    /// Behind the end of the launch ahead, though the call permits an early begin: the operator has no kernels that wait by themselves, with its options on this architecture.
    NoKernel,
    /// Behind the end of the launch ahead, though the call permits an early begin: it is slower for the class of sizes on this GPU.
    Slower {
        /// The sizes and their ranges.
        sizes: String,
        /// The measurement.
        measured: &'static str,
    },
}

/// The row that a class of an operator is in on a GPU of this name.
fn row(device: &str, operator: &str, class: &Class) -> Option<&'static Slower> {
    let size = |name: &str| class.0.iter().find(|member| member.name == name)?.chosen_for;
    let is = |row: &&Slower| {
        let within =
            |(name, range): &(&str, RangeInclusive<i64>)| size(name).is_some_and(|n| range.contains(&n));
        device.starts_with(row.device) && operator == row.operator && row.sizes.iter().all(within)
    };
    SLOWER.iter().find(is)
}

/// True if kernels of a class that a call permits to begin early are to do so.
pub(crate) fn is_faster(device: &str, operator: &str, class: &Class) -> bool {
    row(device, operator, class).is_none()
}

impl Begin {
    /// The begin of the launches of a configuration that was chosen for a class; `permitted` says whether the call permits an early one.
    pub(crate) fn of(kept: &Kept, class: &Class, device: &str, permitted: bool) -> Begin {
        match row(device, kept.operator.name, class) {
            _ if !permitted => Begin::Behind,
            _ if kept.parameters.value(WAITS) == Some("true") => Begin::Early,
            Some(Slower { sizes, measured, .. }) => {
                let sizes =
                    sizes.iter().map(|(name, range)| format!("{name} {}..={}", range.start(), range.end()));
                Begin::Slower { sizes: sizes.collect::<Vec<_>>().join(", "), measured }
            }
            None => Begin::NoKernel,
        }
    }
}

impl fmt::Display for Begin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Begin::Behind => f.write_str("begins behind the end of the launch ahead"),
            Begin::Early => f.write_str("begins early, and waits for the launch ahead by itself"),
            Begin::NoKernel => f.write_str(
                "begins behind the end of the launch ahead: with these options no kernel waits for it by itself",
            ),
            Begin::Slower { sizes, measured } => {
                write!(
                    f,
                    "begins behind the end of the launch ahead, which is faster with {sizes}: {measured}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Member;
    use tilewright_kernels::SizeKind;

    #[test]
    fn the_table_names_operators_and_their_sizes() {
        for row in SLOWER {
            let operator = tilewright_kernels::operator(row.operator).unwrap();
            let waits = (operator.parameters)().iter().any(|p| p.name == WAITS && p.default == "false");
            let sizes = operator.tuning.unwrap().sizes;
            let known = |name: &str| sizes.iter().any(|(own, _)| *own == name);
            assert!(
                waits && row.sizes.iter().all(|(name, range)| known(name) && !range.is_empty()),
                "{row:?}"
            );
        }
    }

    #[test]
    fn a_class_begins_early_where_that_is_no_slower() {
        let faster = |device: &str, operator: &str, m: i64, nk: i64| {
            let member = |name: &str, size: i64, kind| Member::of(name, size, Some(kind), 1);
            let (extent, depth) = (SizeKind::Extent, SizeKind::Depth);
            let class = Class(vec![member("m", m, extent), member("n", nk, extent), member("k", nk, depth)]);
            is_faster(device, operator, &class)
        };
        let rows = [1, 64, 128, 250, 256, 257, 2048];
        let of = |device: &str, nk: i64| rows.map(|m| faster(device, "gemm_hopper", m, nk));
        assert_eq!(of("NVIDIA H100 80GB HBM3", 2048), [true, true, true, false, false, true, true]);
        assert_eq!(of("NVIDIA H200", 4096), [true, true, false, true, true, true, true]);
        for (device, nk) in [("NVIDIA H100 80GB HBM3", 4096), ("NVIDIA H200", 2048), ("NVIDIA B200", 4096)] {
            assert_eq!(of(device, nk), [true; 7], "{device}");
        }
        assert!(rows.iter().all(|m| faster("NVIDIA H200", "rmsnorm", *m, 4096)));
    }
}
